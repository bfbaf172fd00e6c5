"""Proving heads: what a model does without them, beside the original model and random heads.

Does translation need them (`translation`), how does it fail (`failure`), when does behaviour change
(`successive`), what else needs them (`other_tasks`); does a language need its heads (`languages`),
what is written without them (`writing`); what does a model do under a learned mask (`masks`), and
does the mask pick heads that look at the answer (`looking`).

Served here by name are the studies of the commands `verify NAME`, such as
`headscope.verify.removal(lm, pairs, heads, draws=20)`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "verify")
