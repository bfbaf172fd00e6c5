"""Putting heads to use: rating and mixing a corpus, applying gates, exporting them.

`rating` says how much a document needs some heads, `corpus` does so for corpora of any size,
`mixing` makes training mixtures of what was rated; `adapting` applies gates in generation, and
`exporting` folds them into checkpoints and adapters. Served here by name are the studies of the
commands `use NAME`, such as `headscope.use.export(lm, heads)`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "use")
