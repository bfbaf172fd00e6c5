"""The run folder around any method that gives every head a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.heads import HeadScores, save_scores
from headscope.results.common import ScoredHead
from headscope.results.head_scores import LayerScores, ScoredHeads, ScoresResult
from headscope.runs import Run
from headscope.studies.inputs import Progress, Steps, run_with_model, steps_of

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Scored = HeadScores | dict[str, HeadScores]
AnyHeads = TypeVar("AnyHeads", bound=ScoredHeads)
AnyResult = TypeVar("AnyResult", bound=ScoresResult)


def scores_run(
    command: str,
    settings: Any,
    lm: LanguageModel,
    data: Mapping[str, Mapping[str, Any]],
    out: Path | None,
    score: Callable[[Run, Steps | None], Scored],
    progress: Progress | None,
    kind: type[AnyResult],
    complete: Callable[[AnyResult, Scored], AnyResult] = lambda result, scores: result,
    seed: int = 0,
) -> AnyResult:
    """Score inside a run folder and return the command's result; a finished run comes back.

    Args:
        command: such as `find induction`.
        settings: the configuration, which makes the signature.
        lm: the model.
        data: what was read, by name; each tells its `digest`, and `path` and `examples` if it has.
        out: the run folder; None: of the command's and the signature's name.
        score: computes the scores; given the run and a call for (done, in all).
        progress: called with (command, done, in all).
        kind: the type of the result.
        complete: the result with what it tells beside, from the scores.
        seed: noted in the provenance.
    """

    def compute(run: Run) -> AnyResult:
        scores = score(run, steps_of(progress, command))
        save_scores(run.path, scores)
        if isinstance(scores, HeadScores):
            result = replace(describe(kind, scores), data=data)
        else:
            parts = {name: describe(ScoredHeads, part) for name, part in scores.items()}
            result = replace(describe(kind, HeadScores.mean(scores)), parts=parts, data=data)
        return complete(result, scores)

    digests = {name: str(read["digest"]) for name, read in data.items()}
    config = {"settings": settings}
    return run_with_model(lm, command, out, config, digests, compute, kind=kind, seed=seed)


def describe(kind: type[AnyHeads], scores: HeadScores, **more: Any) -> AnyHeads:
    """What a result says of one set of scores; `more` are its other fields."""
    kept = ("examples", "left_out", "tokens")
    return kind(
        heads=ScoredHead.all_of(scores),
        # The classes of a profile are those of translation scores, and say nothing here.
        layer_profile=tuple(
            LayerScores(row.layer, row.heads, row.mean, row.highest)
            for row in scores.layer_profile()
        ),
        **{name: scores.config[name] for name in kept if name in scores.config},
        **more,
    )
