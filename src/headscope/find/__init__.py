"""Finding heads: one scoring method a file, each a plain function over one configuration."""

from headscope.find.translation import TranslationScore, translation_score

__all__ = ["TranslationScore", "translation_score"]
