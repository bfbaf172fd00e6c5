"""Value types for attention heads: a head, a geometry, scores, sets and gates.

They know no model. Everything is frozen, follows the laws of sets, and is saved as safetensors
with a config.json and a model card.
"""

from headscope.heads.geometry import (
    Geometry,
    GroupedGeometry,
    Head,
    check_geometry,
    count_of,
    count_words,
    default_amount,
)
from headscope.heads.resolve import (
    about_rank,
    named_scores,
    rank_words,
    read_scores,
    resolve_heads,
    save_scores,
)
from headscope.heads.scores import HeadScores, LayerProfile, Rank, check_thresholds
from headscope.heads.sets import Gate, HeadSet
from headscope.heads.store import Origin
from headscope.options import Amount

__all__ = [
    "Amount",
    "Gate",
    "Geometry",
    "GroupedGeometry",
    "Head",
    "HeadScores",
    "HeadSet",
    "LayerProfile",
    "Origin",
    "Rank",
    "about_rank",
    "check_geometry",
    "check_thresholds",
    "count_of",
    "count_words",
    "default_amount",
    "named_scores",
    "rank_words",
    "read_scores",
    "resolve_heads",
    "save_scores",
]
