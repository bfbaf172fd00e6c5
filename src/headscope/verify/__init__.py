"""Proving heads: what a model does without them, beside the untouched model and random heads.

One folder a question: does translation need them (`removal`), how does it fail (`failures`), when
does behaviour change (`one_by_one`), what else needs them (`tasks`); does a language need its heads
(`languages`), what is written without them (`writing`); what does a model do under a learned mask
(`masks`), and does the mask pick heads that look at the answer (`attention`).

Served here by name are the studies of the commands `verify NAME`, such as
`headscope.verify.removal(lm, pairs, heads, draws=20)`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "verify")
