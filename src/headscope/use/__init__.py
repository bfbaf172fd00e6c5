"""Putting heads to use: rating and mixing a corpus, applying gates, exporting them.

`rating` says how much a document needs some heads, `corpus` does so for corpora of any size,
`mixing` makes training mixtures of what was rated; `adapting` applies gates in generation, and
`exporting` folds them into checkpoints and adapters.
"""
