"""Value types for attention heads: a head, a geometry, scores, sets and gates.

They know no model. Everything is frozen, follows the laws of sets, and is saved as safetensors
with a config.json and a model card.
"""

from headscope.heads.amounts import Amount, count_of, default_amount
from headscope.heads.geometry import Geometry, Head, check_geometry
from headscope.heads.resolve import read_scores, resolve_heads, save_scores
from headscope.heads.scores import HeadScores, LayerProfile
from headscope.heads.sets import Gate, HeadSet
from headscope.heads.store import Origin

__all__ = [
    "Amount",
    "Gate",
    "Geometry",
    "Head",
    "HeadScores",
    "HeadSet",
    "LayerProfile",
    "Origin",
    "check_geometry",
    "count_of",
    "default_amount",
    "read_scores",
    "resolve_heads",
    "save_scores",
]
