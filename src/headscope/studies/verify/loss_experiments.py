"""Two experiments by loss, in a run folder: copying without heads, and heads removed in pairs.

Does copying need the heads that translating needs? The model is asked to translate, and the source
itself is given as the answer. If removing heads takes the mapping between languages and leaves
copying as it was, the loss of the reference rises and that of the copy does not.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from headscope.data.align import Alignment
from headscope.data.pairs import Links, PairFile
from headscope.data.words import split_words
from headscope.errors import InputError
from headscope.estimates import Against
from headscope.heads import Amount, Rank, about_rank
from headscope.measure.baseline import Rules
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Side, Trial
from headscope.progress import Progress
from headscope.results.removal import BASELINE, CONTROLS, Label
from headscope.runs import Record, Result, Run, decode, encode, entry
from headscope.runs.reading import read_object
from headscope.studies.baseline import check_translations
from headscope.studies.models import ModelChoice, run_with_model
from headscope.studies.pairs import PairsChoice, pair_inputs
from headscope.studies.verify.removal import STATISTICS, VerifyRemoval, opened
from headscope.verify.translation import Condition, Removal, conditions
from headscope.verify.translation.conditions import reference_alignment, reference_losses
from headscope.verify.translation.single import interactions, pairs_of, planned_pairs

COPYING, PAIRS = "verify copying", "verify pairs of heads"
Floats = NDArray[np.float64]
#: What is tested, and the side on which the claim lies that only translating needs the heads.
TESTED: dict[str, Side] = {
    "copy": "higher",
    "reference": "higher",
    "preference": "lower",
}


@dataclass(frozen=True)
class VerifyCopying:
    """A whole run; the fields are those of `VerifyRemoval`. Losses are measured, and no texts."""

    heads: str = field(metadata={"signature": False})
    k: tuple[Amount, ...] = field(default=(), metadata={"signature": False})
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    removal: Removal = field(default_factory=lambda: Removal(measure=("loss",)))
    rank: Rank = field(default="above-chance", metadata={"signature": False})


def verify_copying(
    config: VerifyCopying, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Measure, and return for each number of heads what their removal does to both losses.

    `baseline` and `conditions` tell `copy` and `reference`, the NLL in nats a token (mean over
    sentences; over directions the plain mean), and `preference`, copy − reference: how much
    likelier the translation is. `tests`, for each number of heads, tell of each measure `as_is`,
    `without` (the heads) and `random` (the mean over random sets), the `change` with an interval
    over sentences and, against random sets and such of the same layers, the difference to their
    mean with both p and `least_p`. The run keeps the losses of every sentence in
    `statistics.safetensors`. Raises `InputError` as `verify_removal` does.
    """
    began = time.monotonic()
    removed = VerifyRemoval(**vars(config))
    opening = opened(removed, out)
    lm, removal, sets, directions = opening.lm, opening.removal, opening.sets, opening.directions
    planned = conditions(sets, removal, opening.avoid)
    copied = {f"{name} copy": _copies(pairs) for name, pairs in directions.items()}
    read = {**directions, **copied}
    settings = {
        "settings": replace(config, removal=removal),
        "sets": [[str(head) for head in heads] for heads in sets],
        **opening.signed,
    }

    def compute(run: Run) -> dict[str, Any]:
        unlinked = {name: _unlinked(pairs) for name, pairs in read.items()}
        losses = reference_losses(lm, read, unlinked, planned, removal, run, progress=progress)
        nll = {name: of.sums.sum(axis=2) / of.tokens.sum(axis=1) for name, of in losses.items()}
        run.write_tensors(STATISTICS, {f"{name}.nll": array for name, array in nll.items()})
        reference, copy = [nll[name] for name in directions], [nll[name] for name in copied]
        measures = {
            "copy": copy,
            "reference": reference,
            "preference": [a - b for a, b in zip(copy, reference, strict=True)],
        }
        removed = [condition.heads for condition in planned]
        shown = {key: _trial(of, removed, removal.seed) for key, of in measures.items()}
        return {
            **about_rank(*sets),
            "sentences": sum(part.shape[1] for part in reference),
            "baseline": {name: float(trial.scores[0]) for name, trial in shown.items()},
            "conditions": [
                {
                    **asdict(condition.label),
                    "heads": [str(head) for head in condition.heads],
                    "filled_up": condition.filled_up,
                    **{name: float(trial.scores[at]) for name, trial in shown.items()},
                }
                for at, condition in enumerate(planned[1:], 1)
            ],
            "tests": tests(planned, shown),
            **encode(opening.controls),
        }

    return run_with_model(
        lm,
        COPYING,
        out,
        settings,
        pair_inputs(directions),
        compute,
        began,
        kind=dict,
        seed=removal.seed,
    )


@dataclass(frozen=True, kw_only=True)
class RemovedSet(Record):
    """A condition of a removal, and its heads."""

    label: Label = entry(flat="")
    heads: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TextsWithout(Result):
    """What is asked of a run of `verify removal`."""

    directions: Mapping[str, Any]
    conditions: tuple[RemovedSet, ...]


def copies_written(folder: Path, seed: int = 0) -> list[dict[str, Any]]:
    """From a finished run of `verify removal` by text: whether copies are written.

    Of each number of heads removed `k`, the share of outputs that copy the source `as_is`,
    `without` the heads and without `random` ones, and `against_random`, the difference with
    its interval, both p and `least_p`. InputError where no copies were counted.
    """
    result = decode(TextsWithout, read_object(folder / "result.json"))
    kept = load_file(folder / STATISTICS)
    if not all(f"{pair}.source_copy" in kept for pair in result.directions):
        raise InputError(f"{folder}: counts no copies of the source")
    copied = [kept[f"{pair}.source_copy"] for pair in result.directions]
    removed = [(), *(tuple(sorted(condition.heads)) for condition in result.conditions)]
    trial = _trial(copied, removed, seed)
    labels = [BASELINE, *(condition.label for condition in result.conditions)]
    rows = []
    for at, label in enumerate(labels):
        if label.kind == "top" and label.gate == 0:
            against = trial.against(at, label.draws(labels, "random"), "higher")
            rows.append(
                {
                    "k": label.k,
                    "as_is": float(trial.scores[0]),
                    "without": float(trial.scores[at]),
                    "random": against.draws.mean,
                    "against_random": _told(against),
                }
            )
    return rows


def _trial(parts: Sequence[NDArray[Any]], sets: Sequence[Hashable], seed: int) -> Trial:
    """The means over sentences of what is (conditions, sentences) by direction."""
    return Trial([Group(list(counted(part)), sets=sets, seed=seed) for part in parts])


def tests(planned: list[Condition], measures: Mapping[str, Trial]) -> list[dict[str, Any]]:
    """What the removal of each number of heads does to each measure, as JSON."""
    labels = [condition.label for condition in planned]
    rows: list[dict[str, Any]] = []
    for at, label in enumerate(labels):
        if label.kind != "top":
            continue
        rows.append({"k": len(planned[at].heads)})
        for name, trial in measures.items():
            row: dict[str, Any] = {
                "as_is": float(trial.scores[0]),
                "without": float(trial.scores[at]),
                "change": trial.difference(at).record(),
            }
            for kind, ending in CONTROLS.items():
                if draws := label.draws(labels, kind):
                    against = trial.against(at, draws, TESTED[name])
                    row[f"against_random{ending}"] = _told(against)
                    if kind == "random":
                        row["random"] = against.draws.mean
            rows[-1][name] = row
    return rows


def _told(against: Against) -> dict[str, Any]:
    return {
        **against.difference.record(),
        "p_sentences": against.p_examples,
        "p_draws": against.p_draws,
        "least_p": against.least_p,
    }


def _copies(pairs: PairFile) -> PairFile:
    """The sources as their own translations, behind the same prompts."""
    rows = tuple(replace(pair.unlinked, target=pair.source) for pair in pairs.pairs)
    return replace(pairs, pairs=rows)


def _unlinked(pairs: PairFile) -> Alignment:
    """No links: here all tokens count alike."""
    sides = [
        tuple(tuple(split_words(text, links_given=True)) for text in texts)
        for texts in ([pair.source for pair in pairs.pairs], [pair.target for pair in pairs.pairs])
    ]
    links: tuple[Links, ...] = tuple(frozenset() for _ in pairs.pairs)
    return Alignment("none", "words", sides[0], sides[1], links, {})


@dataclass(frozen=True)
class VerifyTogether:
    """A whole run.

    `heads` is what `resolve_heads` reads, `k` how many of them make pairs, `rank` what scores are
    ranked by. Of `removal` the loss draws are the random pairs; heads are set to zero.
    """

    heads: str = field(metadata={"signature": False})
    k: Amount = 6
    model: ModelChoice = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    removal: Removal = field(default_factory=lambda: Removal(measure=("loss",)))
    rank: Rank = field(default="above-chance", metadata={"signature": False})
    baseline: Rules = field(default_factory=Rules)


def verify_together(
    config: VerifyTogether, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Remove heads alone and in pairs and return their interactions (see `interactions`).

    The run keeps every sentence's losses in `statistics.safetensors`, conditions in the order of
    `sets` of the result. A run that was stopped goes on where it was. Raises `InputError` if the
    heads were found on sentences of the test data.
    """
    began = time.monotonic()
    removed = VerifyRemoval(**{**vars(config), "k": (config.k,)})
    opening = opened(removed, out, linked=True)
    lm, removal, directions = opening.lm, opening.removal, opening.directions
    (heads,) = opening.sets
    chosen, random = pairs_of(heads, removal.all_draws["loss"], removal.seed, opening.avoid)
    planned = planned_pairs(heads, [*chosen, *random])
    settings = {
        "settings": replace(config, removal=removal),
        "heads": [str(head) for head in heads],
        **opening.signed,
    }

    def compute(run: Run) -> dict[str, Any]:
        works = check_translations(lm, directions, removal, run, config.baseline, progress)
        links = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(lm, directions, links, planned, removal, run, progress=progress)
        run.write_tensors(
            STATISTICS,
            {f"{pair}.{name}": array for pair, part in losses.items()
             for name, array in part.tensors().items()},
        )  # fmt: skip
        sets = [[str(head) for head in condition.heads] for condition in planned]
        best, other = ([list(map(str, pair)) for pair in pairs] for pairs in (chosen, random))
        return {
            "heads": [str(head) for head in heads],
            **about_rank(heads),
            "sets": sets,
            "sentences": sum(len(part.tokens) for part in losses.values()),
            "directions": list(directions),
            **interactions(losses, sets, best, other, removal.seed),
            **encode(opening.controls),
            **works,
        }

    return run_with_model(
        lm,
        PAIRS,
        out,
        settings,
        pair_inputs(directions),
        compute,
        began,
        kind=dict,
        seed=removal.seed,
    )
