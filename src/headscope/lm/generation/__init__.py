"""Greedy continuation of many prompts."""

from headscope.lm.generation.greedy import GenerateConfig, Generation, Observer, generate

__all__ = ["GenerateConfig", "Generation", "Observer", "generate"]
