"""Whether a model does a task at all, judged on a few examples before anything is claimed of it.

What the removal of heads, a score or a mask shows about a task means little for a model that does
not do the task: a model that repeats its prompt has attention peaks and losses, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headscope import options
from headscope.errors import InputError, MissingExtra
from headscope.estimates import Baseline, Example
from headscope.measure.identify import off_targets
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.metrics import chrf, chrf_from_statistics, sentence_chrf
from headscope.settings import Settings

#: Outputs that are shown.
SHOWN = 3


@dataclass(frozen=True)
class Rules(Settings):
    """When a model counts as not doing a task.

    Attributes:
        examples: examples of each direction or task that are looked at, at most.
        off_target: share of outputs in another language above which it does not translate.
        unfinished: share of outputs that are empty or cut off above which it does not.
        errors: standard errors that an accuracy has to lie above chance.
    """

    examples: options.BaselineExamples = 16
    off_target: options.BaselineOffTarget = 0.5
    unfinished: options.BaselineUnfinished = 0.5
    errors: options.BaselineErrors = 2.0


def translates(
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    cut: Sequence[bool],
    target_language: str,
    rules: Rules = Rules(),
    seed: int = 0,
) -> Baseline:
    """Judge translations of one direction.

    They are none where the 95 % bootstrap interval of chrF++(outputs) − chrF++(sources copied)
    does not lie above zero, where most are in another language than the target's (where the
    identifier knows that one), or where most are empty or `cut` off at their limit.
    """
    ours, copied = chrf(outputs, references), chrf(sources, references)
    gain = bootstrap_difference(ours.statistics, copied.statistics, chrf_from_statistics, seed=seed)
    total = len(outputs)
    empty = sum(not text.strip() for text in outputs)
    unfinished = sum(not text.strip() or ended for text, ended in zip(outputs, cut, strict=True))
    try:
        elsewhere: int | None = int(off_targets(outputs, target_language).sum())
    except (MissingExtra, InputError):  # nobody here can tell this language from others
        elsewhere = None
    reasons = []
    if not gain.low > 0:
        reasons.append(
            f"chrF++ is {ours.value:.1f} and copying the source gives {copied.value:.1f} "
            f"(difference {gain.value:+.1f}, 95 % CI {gain.low:+.1f} to {gain.high:+.1f})"
        )
    if elsewhere is not None and elsewhere / total > rules.off_target:
        reasons.append(f"{elsewhere} of {total} outputs are in another language")
    if unfinished / total > rules.unfinished:
        reasons.append(f"{unfinished} of {total} outputs are empty or cut off")
    counts = {
        "chrf": ours.value,
        "chrf_of_copies": copied.value,
        "gain": gain.record(),
        "off_target": elsewhere,
        "empty": empty,
        "empty_or_cut": unfinished,
    }
    shown = some_examples(sources, references, outputs, sentence_chrf(outputs, references).tolist())
    return Baseline(not reasons, total, tuple(reasons), counts, shown)


def answers_right(
    inputs: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    right: Sequence[bool],
    instructed: bool,
) -> Baseline:
    """Judge answers that are right or wrong: a model that never gives a right one cannot do it.

    `right` says of each example whether it was ever answered right, with or without instruction;
    `instructed` whether there was one, as in `outputs`.
    """
    number = sum(right)
    reasons: tuple[str, ...] = ()
    if not number:
        instruction = "even when instructed" if instructed else "and the task has no instruction"
        reasons = (f"none of {len(outputs)} answers is right, {instruction}",)
    shown = some_examples(inputs, references, outputs, [float(value) for value in right])
    return Baseline(not reasons, len(outputs), reasons, {"right": number}, shown)


def choices_above_chance(
    accuracy: float,
    chance: float,
    examples: int,
    rules: Rules = Rules(),
    shown: tuple[Example, ...] = (),
) -> Baseline:
    """Judge multiple choice: the accuracy has to lie `rules.errors` standard errors above chance.

    The standard error is that of guessing, sqrt(chance (1 - chance) / examples); `shown` is kept.
    """
    error = math.sqrt(chance * (1 - chance) / examples)
    works = accuracy > chance + rules.errors * error
    reasons = (
        ()
        if works
        else (
            f"accuracy is {accuracy:.1%} of {examples} examples and chance {chance:.1%} "
            f"(standard error {error:.1%})",
        )
    )
    counts = {"accuracy": accuracy, "chance": chance, "standard_error": error}
    return Baseline(works, examples, reasons, counts, shown)


def some_examples(
    inputs: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    quality: Sequence[float],
) -> tuple[Example, ...]:
    """The worst, the middle and the best of these examples, by `quality`."""
    order = np.argsort(quality, kind="stable")
    places = dict.fromkeys(int(order[at]) for at in (0, len(order) // 2, len(order) - 1))
    return tuple(Example(inputs[at], references[at], outputs[at]) for at in [*places][:SHOWN])
