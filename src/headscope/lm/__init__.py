"""Everything that touches a model: loading, heads and their gates, attention, states, losses, text.

Heads, feed-forward layers and queries are found by probing (`geometry`, `feed_forward`,
`queries`); gates, recordings and patches are contexts that put everything back.
"""

from headscope.lm.attention.maps import Attention
from headscope.lm.generation import GenerateConfig, Generation
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel
from headscope.lm.positions import answers_at
from headscope.lm.replacement import head_means, replacement_of

__all__ = [
    "Attention",
    "GenerateConfig",
    "Generation",
    "LanguageModel",
    "answers_at",
    "head_means",
    "load",
    "replacement_of",
]
