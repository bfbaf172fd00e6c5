"""Proving heads: what a model does without them, beside the untouched model and random heads."""

from headscope.verify.removal import Condition, conditions, translate

__all__ = ["Condition", "conditions", "translate"]
