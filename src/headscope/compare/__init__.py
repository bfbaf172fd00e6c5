"""Comparing what was found: sets of heads of one geometry, models of any geometry.

`overlap` and `classes` compare sets and class shares, `methods` what several methods say of every
head of one model, `masks` learned masks, `states` the hidden states under a mask and an
instruction; `artifacts` reads what runs and folders hold.
"""

from headscope.compare.artifacts import Artifact, read_artifacts
from headscope.compare.sets import class_shares, group_overlaps, overlaps, rank_correlation

__all__ = [
    "Artifact",
    "class_shares",
    "group_overlaps",
    "overlaps",
    "rank_correlation",
    "read_artifacts",
]
