"""The work of steps: rows of tokens that are read, or written under a condition."""

from __future__ import annotations

from math import inf

from headscope.studies.costs.estimate import Work


def read(
    rows: float, length: float, batch_tokens: float, most: float = inf, gradients: bool = False
) -> Work:
    """So many rows of `length` tokens read once, each `most` together, or as many as fit."""
    together = max(1.0, min(most, batch_tokens // length))
    tokens = "backward" if gradients else "forward"
    return Work(**{tokens: rows * length}, length=length, rows=together, calls=rows / together)


def written(
    rows: float,
    prompt: float,
    answer: float,
    batch_tokens: float,
    most: float = inf,
    passes: int = 1,
    steps: float | None = None,
) -> Work:
    """So many prompts, each read in `passes` passes, and as many answers of `answer` tokens.

    `steps`: of generation a batch, until its longest answer ends; without it one a token.
    """
    together = max(1.0, min(most, batch_tokens // (prompt + answer)))
    return Work(
        forward=rows * passes * prompt,
        generated=rows * answer,
        length=prompt + answer / 2,
        rows=together,
        calls=rows / together * (passes + (answer if steps is None else steps)),
    )
