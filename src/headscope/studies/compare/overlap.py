"""How far sets of heads agree, of what was found before: no model is loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from headscope import options
from headscope.compare.artifacts import GEOMETRY, Artifact, check_one_geometry, read_artifacts
from headscope.compare.overlap_agreement import half_agreement, importance_agreement
from headscope.compare.overlap_sets import group_overlaps, kernel_of, overlaps
from headscope.errors import InputError, naming
from headscope.heads import (
    Amount,
    Geometry,
    GroupedGeometry,
    Head,
    HeadSet,
    about_rank,
    read_scores,
)
from headscope.heads.geometry import keys_of
from headscope.results.overlap import ComparedSet, Halves, OverlapResult, PairOverlap
from headscope.runs import Result, Run, carry_out
from headscope.runs.reading import result_of
from headscope.settings import Option, Settings
from headscope.shown.blocks import HeadSets, Section, Shown, Table, p_cell, table_of
from headscope.shown.words import arrow, count, fixed
from headscope.studies.shows import alike, overlap_blocks, places
from headscope.studies.study import Study
from headscope.studies.verify.perplexity import paired_loss

COMMAND = "compare overlap"


@dataclass(frozen=True)
class CompareOverlap(Settings):
    """Compare sets of heads of one geometry: directions, methods, models, base and instruct."""

    artifacts: Annotated[
        tuple[str, ...],
        Option(
            "Runs (RUN:en-de is one direction), saved scores, sets or gates, files of heads or "
            "scores (CSV, JSON, published formats; FILE#PART), lists such as 5.3,7.11.",
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
    geometry: Annotated[Geometry | GroupedGeometry | None, GEOMETRY] = None


def compare_overlap(config: CompareOverlap, out: Path | None = None) -> OverlapResult:
    """The overlap of every two artifacts of one geometry.

    Raises:
        InputError: for fewer than two artifacts, both `k` and `threshold`, `threshold` where
            nothing has scores, or differing geometries.
    """
    began = time.monotonic()
    if config.k is not None and config.threshold is not None:
        raise InputError("--k and --threshold both say which heads are compared; give one of them")
    artifacts = read_artifacts(config.artifacts, config.mean_only, config.geometry)
    if len(artifacts) < 2:
        raise InputError(
            f"{config.artifacts[0] if config.artifacts else 'nothing'} holds only one set of "
            "heads; name a second one to compare it with"
        )
    geometry = check_one_geometry((each.place, each.geometry) for each in artifacts)
    if config.threshold is not None and not any(each.scores for each in artifacts):
        raise InputError("--threshold needs scores, and only sets were named; leave it out")
    sets = {}
    for artifact in artifacts:
        with naming(artifact.place):
            sets[artifact.name] = artifact.top(config.k, config.threshold, config.rank)
    ways = {each.name: each.direction for each in artifacts}
    settings = {
        "k": config.k,
        "threshold": config.threshold,
        "rank": about_rank(*sets.values())["rank"],
        "ranks": {name: about_rank(heads)["rank"] for name, heads in sets.items()},
        "artifacts": [each.name for each in artifacts],
    }

    def compute(run: Run) -> OverlapResult:
        scores = {
            artifact.name: artifact.scores for artifact in artifacts if artifact.scores is not None
        }
        halves = {artifact.name: _halves(artifact, config) for artifact in artifacts}
        pairs = overlaps(sets, scores, ways, halves)
        return OverlapResult(
            geometry=geometry.as_dict(),
            k=config.k,
            threshold=config.threshold,
            **about_rank(*sets.values()),
            artifacts=tuple(
                _compared(artifact, sets[artifact.name], halves[artifact.name])
                for artifact in artifacts
            ),
            pairs=tuple(pairs),
            groups=tuple(group_overlaps(pairs, ways)),
            kernel=kernel_of(list(sets.values())),
        )

    inputs = {artifact.name: artifact.digest for artifact in artifacts}
    return carry_out(COMMAND, out, settings, inputs, compute, began, kind=OverlapResult)


def _halves(artifact: Artifact, config: CompareOverlap) -> Halves | None:
    """How far heads agree that scores of two halves of the examples give; None for a given set."""
    given = artifact.heads is not None and config.k is None and config.threshold is None
    if artifact.scores is None or given:
        return None
    return half_agreement(
        artifact.scores,
        lambda part: replace(artifact, scores=part).top(config.k, config.threshold, config.rank),
    )


def _compared(artifact: Artifact, heads: HeadSet, halves: Halves | None) -> ComparedSet:
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
        heads=keys_of(heads),
        note=origin.config.get("note"),
        ties=_ties(artifact, heads),
        halves=halves,
    )


def _ties(artifact: Artifact, heads: HeadSet) -> int | None:
    """How many heads outside a top set score as much as its last one; None for none."""
    if artifact.scores is None or not len(heads) or about_rank(heads)["rank"] != "score":
        return None
    last = artifact.scores[heads.heads[-1]]
    return int(((artifact.scores.values == last) & ~heads.mask()).sum()) or None


def _show(result: OverlapResult, run: Path) -> Shown:
    pairs, sets, geometry = result.pairs, result.artifacts, Geometry.from_dict(result.geometry)
    shared, *tables = overlap_blocks(pairs, result.groups)
    sizes = sorted({heads.size for heads in sets})
    return Shown(
        "Overlap of head sets",
        "Do sets of attention heads hold the same heads, more than random sets would?",
        _finding(pairs),
        _uncertainty(result),
        "",
        [
            f"{arrow(heads.name)} is empty: it overlaps with nothing."
            for heads in sets
            if heads.size == 0
        ]
        + [
            f"The last of the {heads.size} heads of {arrow(heads.name)} ties with "
            f"{count(heads.ties, 'head')} outside the set: which are compared follows their place."
            for heads in sets
            if heads.ties
        ],
        [
            ("sets", str(len(sets))),
            ("heads in a set", " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))),
            ("compared", _compared_heads(result)),
            ("heads of the model", f"{geometry.total} in {count(geometry.layers, 'layer')}"),
        ],
        [
            Section("Sets", [_heads(result)]),
            Section("Values and tests", [*tables, *_kernel(result)], brief=True),
            Section("Where the sets come from", [_sets(result)]),
        ],
        shared,
    )


def _finding(pairs: Sequence[PairOverlap]) -> list[str]:
    mean = "The mean" if len(pairs) > 1 else "Their"
    return [
        alike(pairs),
        f"{mean} Jaccard index is {fixed(fmean(pair.jaccard for pair in pairs), 2)}; of random "
        f"sets of these sizes {fixed(fmean(pair.expected_exact for pair in pairs), 2)}.",
    ]


def _uncertainty(result: OverlapResult) -> str:
    halves = [pair.ceiling for pair in result.pairs if pair.ceiling is not None]
    if not halves:
        return "Exact for these sets; other sentences may give other sets."
    return (
        "Exact for these sets; those found on two halves of the examples: "
        f"{fixed(fmean(halves), 2)}."
    )


def _compared_heads(result: OverlapResult) -> str:
    if result.threshold is not None:
        return f"heads that score above {fixed(result.threshold, 2)}"
    if result.k is not None:
        share = str(result.k).endswith("%") or float(result.k) < 1
        return f"the first {result.k}{' of the' if share else ''} heads of each"
    return "sets whole, of scores the usual number of highest heads"


def _heads(result: OverlapResult) -> HeadSets:
    sets = {
        arrow(compared.name): places(map(Head.parse, compared.heads))
        for compared in result.artifacts
    }
    if result.kernel is not None:
        sets["all of them"] = places(map(Head.parse, result.kernel.heads))
    return HeadSets("Heads of each set, best first where they have scores", sets)


def _kernel(result: OverlapResult) -> list[Table]:
    if result.kernel is None:
        return []
    return [
        table_of(
            f"Heads that all {len(result.artifacts)} sets hold",
            [("heads", result.kernel)],
            {
                "number": lambda kernel: len(kernel.heads),
                "by chance": lambda kernel: kernel.expected,
                "p": lambda kernel: p_cell(kernel.p_value),
                "by chance within layers": lambda kernel: kernel.expected_within_layers,
                "p within layers": lambda kernel: p_cell(kernel.p_within_layers),
            },
            "By chance: the mean number that random sets of these sizes share, and within layers "
            "random sets with as many heads of each layer. p: they share at least as many (exact)",
        )
    ]


def _sets(result: OverlapResult) -> Table:
    return table_of(
        "Where the sets come from",
        ((arrow(compared.name), compared) for compared in result.artifacts),
        {
            "heads": lambda compared: compared.size,
            "method": lambda compared: compared.method or None,
            "model": lambda compared: compared.model,
            "read from": lambda compared: compared.place,
        },
        "; ".join(compared.note for compared in result.artifacts if compared.note),
    )


@dataclass(frozen=True)
class CompareImportance:
    """What is compared; the runs' signatures count, not their places.

    Attributes:
        scored: two finished runs of `find lahis` on the same documents.
        read: two finished runs of `verify perplexity` on the same documents, each without the
            heads of one of them.
        seed: of resamples and permutations.
    """

    scored: tuple[Path, Path] = field(metadata={"signature": False})
    read: tuple[Path, Path] = field(metadata={"signature": False})
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ImportanceRun(Result):
    """What is asked of a run of `find lahis`."""

    quantile: float
    languages: Mapping[str, Any]


def compare_importance(config: CompareImportance, out: Path | None = None) -> dict[str, Any]:
    """By language how far the important heads agree, and what those of the second run cost more.

    `languages` has for each what `importance_agreement` gives, and `costs_more` as `paired_loss`
    gives it. Important are the heads above the first run's quantile.
    """
    began = time.monotonic()
    folders = (*config.scored, *config.read)
    signatures = [result_of(run_folder, Result, "a run").signature for run_folder in folders]
    inputs = {f"run {at}": signature for at, signature in enumerate(signatures)}
    scored = result_of(config.scored[0], ImportanceRun, "find lahis")

    def compute(run: Run) -> dict[str, Any]:
        first, second = (read_scores(run_folder) for run_folder in config.scored)
        first_read, second_read = config.read
        languages = {
            code: {
                **importance_agreement(
                    first.get(code, first["mean"]),
                    second.get(code, second["mean"]),
                    scored.quantile,
                    config.seed,
                ),
                "costs_more": paired_loss(second_read, first_read, code, config.seed),
            }
            for code in scored.languages
        }
        return {"languages": languages}

    return carry_out("compare importance", out, {"settings": config}, inputs, compute, began)


command = Study(
    CompareOverlap,
    compare_overlap,
    result=OverlapResult,
    show=_show,
    usage="runs/found runs/lahis --k 15%",
)
