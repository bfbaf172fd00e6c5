"""Comparisons of what was found before, kept in run folders: no model is loaded."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.compare import Artifact, class_shares, group_overlaps, overlaps, read_artifacts
from headscope.compare.artifacts import check_one_geometry
from headscope.errors import InputError, naming
from headscope.heads import Amount, Geometry, HeadSet, about_rank, check_thresholds
from headscope.results.classes import ClassesResult
from headscope.results.overlap import ComparedSet, OverlapResult
from headscope.runs import Run, carry_out
from headscope.settings import Option, Settings

OVERLAP = "compare overlap"
CLASSES = "compare classes"


def _geometry(text: str) -> Geometry:
    match = re.fullmatch(r"([0-9]{1,6})[x×]([0-9]{1,6})", text.strip())
    if match is None or 0 in (int(match[1]), int(match[2])):
        raise InputError(f"--geometry {text} is not LAYERSxHEADS; write it like 28x16")
    return Geometry.uniform(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class CompareOverlap(Settings):
    """Compare sets of heads of one geometry: directions, methods, models, base and instruct."""

    artifacts: Annotated[
        tuple[str, ...],
        Option(
            "Runs (RUN:en-de is one direction), saved scores, sets or gates, CSV or JSON "
            "files, lists such as 5.3,7.11.",
            metavar="A B...",
            argument=True,
        ),
    ]
    # Of scores, without it and `threshold`: 20 heads, or 15 % below 256.
    k: Annotated[
        Amount | None,
        Option(
            "Top heads compared: a number or a share such as 15%; sets whole without it.",
            metavar="K",
            typed=str,
        ),
    ] = None
    rank: options.Rank = "above-chance"
    threshold: Annotated[
        float | None, Option("Instead of --k: the heads scoring above it.", min=0.0, max=1.0)
    ] = None
    mean_only: Annotated[
        bool, Option("Of runs with several directions only their mean.", flag="--mean")
    ] = False
    geometry: Annotated[
        Geometry | None,
        Option(
            "The model's, such as 28x16, where only lists of heads are compared.",
            metavar="LAYERSxHEADS",
            typed=str,
            read=_geometry,
        ),
    ] = None


@dataclass(frozen=True)
class CompareClasses(Settings):
    """Put the class shares of models of any geometry into one table."""

    artifacts: Annotated[
        tuple[str, ...],
        Option(
            "Runs that scored heads (RUN:en-de is one direction), or saved scores.",
            metavar="RUN...",
            argument=True,
        ),
    ]
    threshold: options.Threshold = 0.1
    inactive: options.Inactive = 0.0

    def __post_init__(self) -> None:
        check_thresholds(self.threshold, self.inactive)
        super().__post_init__()


def compare_overlap(config: CompareOverlap, out: Path | None = None) -> OverlapResult:
    """The overlap of every two artifacts of one geometry.

    Raises:
        InputError: for fewer than two artifacts, both `k` and `threshold`, `threshold` where
            nothing has scores, or differing geometries.
    """
    began = time.monotonic()
    if config.k is not None and config.threshold is not None:
        raise InputError("--k and --threshold both say which heads are compared; give one of them")
    found = read_artifacts(config.artifacts, config.mean_only, config.geometry)
    if len(found) < 2:
        raise InputError(
            f"{config.artifacts[0] if config.artifacts else 'nothing'} holds only one set of "
            "heads; name a second one to compare it with"
        )
    geometry = check_one_geometry(found)
    if config.threshold is not None and not any(one.scores for one in found):
        raise InputError("--threshold needs scores, and only sets were named; leave it out")
    sets = {}
    for one in found:
        with naming(one.place):
            sets[one.name] = one.top(config.k, config.threshold, config.rank)
    ways = {one.name: one.direction for one in found}
    settings = {
        "k": config.k,
        "threshold": config.threshold,
        "rank": about_rank(*sets.values())["rank"],
        "ranks": {name: about_rank(heads)["rank"] for name, heads in sets.items()},
        "artifacts": [one.name for one in found],
    }

    def compute(run: Run) -> OverlapResult:
        scores = {one.name: one.scores for one in found if one.scores is not None}
        pairs = overlaps(sets, scores, ways)
        return OverlapResult(
            geometry=geometry.as_dict(),
            k=config.k,
            threshold=config.threshold,
            **about_rank(*sets.values()),
            artifacts=tuple(_compared(one, sets[one.name]) for one in found),
            pairs=tuple(pairs),
            groups=tuple(group_overlaps(pairs, ways)),
        )

    return carry_out(OVERLAP, out, settings, _inputs(found), compute, began, kind=OverlapResult)


def compare_classes(config: CompareClasses, out: Path | None = None) -> ClassesResult:
    """Class shares of models of any geometry; of runs with several directions, their mean."""
    began = time.monotonic()
    if not config.artifacts:
        raise InputError("there is nothing to compare; name at least one run that scored heads")
    found = read_artifacts(config.artifacts, mean_only=True)
    rows = [class_shares(one, config.threshold, config.inactive) for one in found]
    settings = {
        "threshold": config.threshold,
        "inactive": config.inactive,
        "artifacts": [one.name for one in found],
    }

    def compute(run: Run) -> ClassesResult:
        return ClassesResult(
            threshold=config.threshold, inactive=config.inactive, models=tuple(rows)
        )

    return carry_out(CLASSES, out, settings, _inputs(found), compute, began, kind=ClassesResult)


def _compared(artifact: Artifact, heads: HeadSet) -> ComparedSet:
    origin = artifact.origin
    return ComparedSet(
        name=artifact.name,
        place=artifact.place,
        method=origin.method,
        model=origin.provenance.get("model"),
        signature=origin.signature,
        direction=artifact.direction,
        ranked=artifact.scores is not None,
        **about_rank(heads),
        size=len(heads),
        heads=tuple(map(str, heads)),
    )


def _inputs(artifacts: Sequence[Artifact]) -> dict[str, str]:
    return {one.name: one.digest for one in artifacts}
