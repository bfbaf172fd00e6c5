"""Comparing what was found: sets of heads of one geometry, models of any geometry.

A module compares one thing: sets of heads, class shares of models, what several methods say of
every head of one model, learned masks, hidden states; `artifacts` reads what runs and folders hold.
Served here by name are the studies of the commands `compare NAME`.
"""

from headscope.verbs import served

__getattr__, __dir__ = served(__name__, "compare")
