"""Does copying need the heads that translating needs? By loss, in a run folder.

The model is asked to translate, and the source itself is given as the answer. If removing heads
takes the mapping between languages and leaves copying as it was, the loss of the reference rises
and that of the copy does not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from headscope.data.align import Alignment
from headscope.data.links import Links
from headscope.data.pairs import PairFile
from headscope.data.words import split_words
from headscope.errors import InputError
from headscope.heads import Amount, Rank, about_rank
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import counted, counted_mean, least_p, mean_against_draws
from headscope.recipes.inputs import ModelChoice, PairsChoice, Progress, pair_inputs, run_with_model
from headscope.recipes.verify.removal import VerifyRemoval, opened
from headscope.recipes.verify.removal_run import STATISTICS
from headscope.runs import Run
from headscope.verify.removal import Condition, Removal, conditions
from headscope.verify.removal.losses import reference_losses
from headscope.verify.removal.outputs import Kind

__all__ = ["COMMAND", "VerifyCopying", "copies_written", "verify_copying"]

COMMAND = "verify copying"
KINDS: dict[Kind, str] = {
    "random": "against_random",
    "random-layer-matched": "against_random_layer_matched",
}
#: What is tested, and the side on which the claim lies that only translating needs the heads.
TESTED: dict[str, Literal["lower", "higher"]] = {
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
    over sentences and, against random sets and such of the same layers, what `mean_against_draws`
    tells, with `least_p`. The run keeps the losses of every sentence in
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
        losses = reference_losses(lm, read, unlinked, planned, removal, run, None, progress)
        nll = {name: of.sums.sum(axis=2) / of.tokens.sum(axis=1) for name, of in losses.items()}
        run.write_tensors(STATISTICS, {f"{name}.nll": array for name, array in nll.items()})
        reference, copy = [nll[name] for name in directions], [nll[name] for name in copied]
        measures = {
            "copy": copy,
            "reference": reference,
            "preference": [a - b for a, b in zip(copy, reference, strict=True)],
        }
        means = {
            name: np.mean([part.mean(axis=1) for part in parts], axis=0).tolist()
            for name, parts in measures.items()
        }
        return {
            **about_rank(*sets),
            "sentences": sum(part.shape[1] for part in reference),
            "baseline": {name: values[0] for name, values in means.items()},
            "conditions": [
                {**condition.as_dict(), **{name: values[at] for name, values in means.items()}}
                for at, condition in enumerate(planned[1:], 1)
            ],
            "tests": [
                {"k": len(condition.heads), **_tests(planned, at, measures, removal.seed)}
                for at, condition in enumerate(planned)
                if condition.label.kind == "top"
            ],
            **opening.told,
        }

    return run_with_model(
        lm, COMMAND, out, settings, pair_inputs(directions), compute, began, seed=removal.seed
    )


def copies_written(folder: Path, seed: int = 0) -> list[dict[str, Any]]:
    """From a finished run of `verify removal` by text: whether copies are written.

    Of each number of heads removed `k`, the share of outputs that copy the source `as_is`,
    `without` the heads and without `random` ones, and `against_random`, what `mean_against_draws`
    tells. InputError where no copies were counted.
    """
    found = json.loads((folder / "result.json").read_bytes())
    kept = load_file(folder / STATISTICS)
    if not all(f"{pair}.source_copy" in kept for pair in found["directions"]):
        raise InputError(f"{folder}: counts no copies of the source")
    copied = [kept[f"{pair}.source_copy"] for pair in found["directions"]]
    rows = []
    for at, one in enumerate(found["conditions"], 1):
        if one["kind"] == "top" and one["gate"] == 0:
            like = [
                number
                for number, other in enumerate(found["conditions"], 1)
                if (other["kind"], other["k"], other["gate"]) == ("random", one["k"], 0)
            ]
            tested = mean_against_draws([a[at] for a in copied], [a[like] for a in copied], seed)
            value = one["source_copy"]
            rows.append(
                {
                    "k": one["k"],
                    "as_is": found["baseline"]["source_copy"],
                    "without": value,
                    "random": value - tested["value"],
                    "against_random": {**tested, "least_p": least_p(len(like))},
                }
            )
    return rows


def _tests(
    planned: list[Condition], at: int, measures: Mapping[str, list[NDArray[np.float64]]], seed: int
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, parts in measures.items():
        own, before = [one[at] for one in parts], [one[0] for one in parts]
        change = bootstrap_difference(
            list(map(counted, own)), list(map(counted, before)), counted_mean, seed=seed
        )
        found[name] = {
            "as_is": float(np.mean([one.mean() for one in before])),
            "without": float(np.mean([one.mean() for one in own])),
            "change": {key: float(value) for key, value in change._asdict().items()},
        }
        for kind, key in KINDS.items():
            like = replace(planned[at].label, kind=kind)
            draws = [n for n, one in enumerate(planned) if replace(one.label, draw=None) == like]
            if draws:
                beside = [one[draws] for one in parts]
                tested = mean_against_draws(own, beside, seed, TESTED[name])
                found[name][key] = {**tested, "least_p": least_p(len(draws))}
        if "against_random" in found[name]:
            found[name]["random"] = found[name]["without"] - found[name]["against_random"]["value"]
    return found


def _copies(pairs: PairFile) -> PairFile:
    """The sources as their own translations, behind the same prompts."""
    rows = tuple(replace(one, target=one.source, links=None) for one in pairs.pairs)
    return replace(pairs, pairs=rows)


def _unlinked(pairs: PairFile) -> Alignment:
    """No links: here all tokens count alike."""
    sides = [
        tuple(tuple(split_words(text, links_given=True)) for text in texts)
        for texts in ([one.source for one in pairs.pairs], [one.target for one in pairs.pairs])
    ]
    links: tuple[Links, ...] = tuple(frozenset() for _ in pairs.pairs)
    return Alignment("none", "words", sides[0], sides[1], links, {})
