"""Finding heads: each method is a plain function over one configuration.

`registry` knows all methods by name and imports one where it is used; `scoring` is what they share.
Served here by name are the studies of the commands `find METHOD`, such as
`headscope.find.lahis(lm, documents)`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "find")
