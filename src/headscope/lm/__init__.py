"""Everything that touches a model: loading, heads and their gates, attention, states, losses, text.

Heads, feed-forward layers and queries are found by probing (`geometry`, `feed_forward`,
`queries`); gates, recordings and patches are contexts that put everything back.
"""

from headscope.lm.ablation import answers_at, head_means
from headscope.lm.generation import GenerateConfig, Generation
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel

__all__ = ["GenerateConfig", "Generation", "LanguageModel", "answers_at", "head_means", "load"]
