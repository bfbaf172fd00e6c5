"""Proving heads: what a model does without them, beside the original model and random heads.

Does translation need them (`removal_translations`), how does it fail (`failures_classes`), when
does behaviour change (`one_by_one_steps`), what else needs them (`tasks_evaluation`); does a
language need its heads (`language_texts`), what is written without them (`writing`); what does a
model do under a learned mask (`masked_tasks`), and does the mask pick heads that look at the answer
(`attention_shares`).

Served here by name are the studies of the commands `verify NAME`, such as
`headscope.verify.removal(lm, pairs, heads, draws=20)`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "verify")
