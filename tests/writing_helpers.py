"""A folder as a run of LAHIS leaves it, made by hand, for tests of what models write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headscope.heads import Geometry, HeadScores, HeadSet, save_scores


def language_run(
    folder: Path, geometry: Geometry, specific: Mapping[str, str], general: str = ""
) -> Path:
    """Scores of each language with its heads first, its specific heads, and the general ones."""
    scores = {}
    for seed, (code, heads) in enumerate(specific.items()):
        values = np.random.default_rng(seed).random(geometry.shape)
        own = HeadSet.parse(heads, geometry) if heads else HeadSet(geometry, ())
        for place, head in enumerate(own):
            values[head.layer, head.head] = 10 - place
        scores[code] = HeadScores(geometry, values, "lahis")
        own.save_pretrained(folder / "specific" / code)
    save_scores(folder, scores)
    found = HeadSet.parse(general, geometry) if general else HeadSet(geometry, ())
    found.save_pretrained(folder / "general")
    return folder
