"""Finding heads: one method a file, each a plain function over one configuration.

`registry` knows all methods by name and imports one where it is used; a method of several files is
a folder (`mask`).
"""

from headscope.find.translation import TranslationScore, translation_score

__all__ = ["TranslationScore", "translation_score"]
