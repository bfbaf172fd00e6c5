"""Everything that touches a model: loading, heads, gates, peaks, generation."""

from headscope.lm.ablation import head_means
from headscope.lm.generation import GenerateConfig, Generation
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel

__all__ = ["GenerateConfig", "Generation", "LanguageModel", "head_means", "load"]
