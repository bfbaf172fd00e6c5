"""The run folder around any method that gives every head a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.heads import HeadScores, save_scores
from headscope.recipes.inputs import Progress, Steps, run_with_model, steps_of
from headscope.runs import Run

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["scores_run"]

Scored = HeadScores | dict[str, HeadScores]


def scores_run(
    command: str,
    settings: Any,
    lm: LanguageModel,
    data: Mapping[str, Mapping[str, Any]],
    out: Path | None,
    score: Callable[[Run, Steps | None], Scored],
    progress: Progress | None = None,
    more: Callable[[Scored], Mapping[str, Any]] = lambda scores: {},
    seed: int = 0,
) -> dict[str, Any]:
    """Score inside a run folder and return the command's result; a finished run comes back.

    Args:
        command: such as `find induction`.
        settings: the configuration, which makes the signature.
        lm: the model.
        data: what was read, by name; each tells its `digest`, and `path` and `examples` if it has.
        out: the run folder; None: of the command's and the signature's name.
        score: computes the scores; given the run and a call for (done, in all).
        progress: called with (command, done, in all).
        more: what the result tells beside, from the scores.
        seed: noted in the provenance.
    """

    def compute(run: Run) -> dict[str, Any]:
        scores = score(run, steps_of(progress, command))
        save_scores(run.path, scores)
        read = {name: dict(one) for name, one in data.items()}
        return {**describe(scores), **more(scores), "data": read}

    digests = {name: str(one["digest"]) for name, one in data.items()}
    return run_with_model(lm, command, out, {"settings": settings}, digests, compute, seed=seed)


def describe(scores: Scored) -> dict[str, Any]:
    """The JSON of scores: of one set, or of the mean over several and of each of them."""
    if isinstance(scores, HeadScores):
        kept = ("examples", "left_out", "tokens")
        return {
            "heads": scores.records(),
            # The classes of a profile are those of translation scores, and say nothing here.
            "layer_profile": [
                {"layer": one.layer, "heads": one.heads, "mean": one.mean, "highest": one.highest}
                for one in scores.layer_profile()
            ],
            **{name: scores.config[name] for name in kept if name in scores.config},
        }
    mean = HeadScores.mean(scores)
    return describe(mean) | {"parts": {name: describe(one) for name, one in scores.items()}}
