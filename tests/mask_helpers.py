"""Runs of learned masks as `find mask` leaves them, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.runs import open_run


def write_mask_run(
    path: Path,
    geometry: Geometry,
    weights: NDArray[np.float64],
    task: str = "en-de",
    start: str = "positive",
    key_heads: list[int] | None = None,
    model: str = "pocket",
    digest: str = "0",
    found_on: dict[str, Any] | None = None,
) -> Path:
    """A finished run whose weights M are `weights`, (L, W)."""
    config = {"task": task, "start": start, "weights": np.round(weights, 6).tolist()}
    with open_run(path, "find mask", config, {"model": digest}) as run:
        selected = weights >= 0
        scores = HeadScores(
            geometry,
            weights,
            "mask",
            extra={"selected": selected.astype(np.float64)},
            config={"task": task},
            provenance={"model": model, "weights": digest},
            signature=run.signature,
        )
        kept = tuple(head for head, weight in scores.ranked() if weight >= 0)
        heads = HeadSet(geometry, kept, scores.origin)
        save_scores(run.path, scores)
        heads.save_pretrained(run.path / "heads")
        gate = np.where(heads.mask() | ~geometry.mask(), 1.0, 0.0).astype(np.float32)
        Gate(geometry, gate, scores.origin).save_pretrained(run.path / "gate")
        history = {"steps": np.array([0, 10]), "weights": np.stack([weights * 0, weights])}
        run.write_tensors("history.safetensors", history)
        if found_on is not None:
            run.write_json("found_on.json", found_on)
        told: dict[str, Any] = {"name": model, "digest": digest, "geometry": geometry.as_dict()}
        if key_heads is not None:
            told["key_value_heads"] = key_heads
        run.finish(
            {
                "signature": run.signature,
                "run": str(run.path),
                "seconds": 1.0,
                "model": told,
                "task": task,
                "start": start,
                "steps": 10,
                "selected": len(heads),
                "kept_share": len(heads) / geometry.total,
                "heads": [{**row, "selected": row["score"] >= 0} for row in scores.records()],
                "loss": [],
            }
        )
    return path


def random_weights(geometry: Geometry, seed: int = 0, shift: float = 1.0) -> NDArray[np.float64]:
    """Normal weights around `shift`, NaN where there is no head."""
    values = np.random.default_rng(seed).normal(shift, 2.0, geometry.shape)
    values[~geometry.mask()] = np.nan
    return values


def all_but(geometry: Geometry, removed: list[Head]) -> NDArray[np.float64]:
    """Weights that keep every head but these, the first of them lowest."""
    values = np.where(geometry.mask(), 1.0, np.nan)
    for place, head in enumerate(removed):
        values[head.layer, head.head] = -100.0 + place
    return values
