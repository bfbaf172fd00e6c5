"""Whether a model does a task at all, judged on a few examples before anything is claimed of it.

What the removal of heads, a score or a mask shows about a task means little for a model that does
not do the task: a model that repeats its prompt has attention peaks and losses, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.answers import preambles
from headscope.errors import InputError, MissingExtra
from headscope.estimates import OTHER_SHOTS, Baseline, Estimate, Example
from headscope.measure.identify import identify, off_targets, same_language
from headscope.measure.intervals import bootstrap_difference, wilson_interval
from headscope.measure.metrics import chrf, chrf_from_statistics, sentence_chrf
from headscope.settings import Settings

#: Outputs that are shown.
SHOWN = 3
#: Examples from which on a difference that is not above zero counts as none, and below which no
#: difference counts at all: of two or three the bootstrap interval is much too narrow (simulated,
#: up to 18 % of outputs that translate nothing lay above zero, 5 % of four).
ENOUGH, FEW = 8, 4


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
    source_language: str | None = None,
    whole: Sequence[str] | None = None,
) -> Baseline:
    """Judge translations of one direction; `whole` is what was written, where it is more.

    They are translations where, of `FEW` examples or more, the 95 % bootstrap interval of
    chrF++(outputs) − chrF++(sources copied) lies above zero. They are none where it lies below or,
    with `ENOUGH` examples, does not lie above; where most are in another language than the target's
    (where the identifier knows that one); or where most are empty or `cut` off at their limit. Of
    fewer examples most are so where the 95 % interval of the share (Wilson) lies above the limit.
    Otherwise there are too few to tell.

    Where most of the references, or of the sources, are in another language than they should be,
    the data are at fault, and nothing is said of the model. Short texts are often taken for another
    language, so data are at fault only if all of a side, read as one text, is in another language,
    and the language of an output counts only if that of its reference is recognised. Outputs with a
    preamble are counted (see `headscope.answers`); chrF++ is that of the whole outputs.
    """
    ours, copied = chrf(outputs, references), chrf(sources, references)
    gain = bootstrap_difference(ours.statistics, copied.statistics, chrf_from_statistics, seed=seed)
    total = len(outputs)
    empty = sum(not text.strip() for text in outputs)
    unfinished = sum(not text.strip() or ended for text, ended in zip(outputs, cut, strict=True))
    elsewhere, odd = _elsewhere(outputs, target_language), _elsewhere(references, target_language)
    around, kinds = preambles(outputs if whole is None else whole, sources)
    faults, sure = _data_faults(
        sources, references, source_language, target_language, rules.off_target
    )
    verdicts = [_above_zero(gain, total)]
    reasons = []
    if not verdicts[0]:
        interval = f", 95 % CI {gain.low:+.1f} to {gain.high:+.1f}" if gain.bounded else ""
        reasons.append(
            f"chrF++ is {ours.value:.1f} and copying the source gives {copied.value:.1f} "
            f"(difference {gain.value:+.1f}{interval})"
        )
    foreign = np.zeros(0, bool) if elsewhere is None or odd is None else elsewhere[~odd]
    for number, of, most, what in (
        (int(foreign.sum()), len(foreign), rules.off_target, "in another language"),
        (unfinished, total, rules.unfinished, "empty or cut off"),
    ):
        verdicts.append(_not_most(number, of, most))
        if not verdicts[-1]:
            reasons.append(f"{number} of {of} outputs are {what}")
    works = None if None in verdicts else True
    works = False if False in verdicts else works
    if faults:
        works, reasons = None, faults if sure else [*reasons, *faults]
    if works is None and not sure:
        reasons = [f"{total} example{'s are' if total > 1 else ' is'} too few to tell", *reasons]
    counts = {
        "chrf": ours.value,
        "chrf_of_copies": copied.value,
        "gain": gain.record(),
        "off_target": None if elsewhere is None else int(elsewhere.sum()),
        "empty": empty,
        "empty_or_cut": unfinished,
    }
    if around:
        counts |= {"preamble": around, "preamble_kinds": list(kinds)}
    if faults and sure:
        counts["data_at_fault"] = True
    shown = some_examples(sources, references, outputs, sentence_chrf(outputs, references).tolist())
    return Baseline(works, total, tuple(reasons), counts, shown)


def _above_zero(gain: Estimate, examples: int) -> bool | None:
    """Whether a difference lies above zero; None where so few examples do not tell."""
    # What is the same in all examples has no interval.
    low, high = (gain.low, gain.high) if gain.bounded else (gain.value, gain.value)
    if examples < FEW and high > 0:
        return None
    if low > 0:
        return True
    return False if high <= 0 or examples >= ENOUGH else None


def _not_most(number: int, total: int, most: float) -> bool | None:
    """Whether a share stays within its limit; None where so few examples do not tell."""
    if number <= most * total:
        return True
    return False if total >= ENOUGH or wilson_interval(number, total)[0] > most else None


def _elsewhere(texts: Sequence[str], language: str) -> NDArray[np.bool_] | None:
    """Which texts are in another language; None where nobody here can tell it from others."""
    try:
        return off_targets(texts, language)
    except (MissingExtra, InputError):
        return None


def _data_faults(
    sources: Sequence[str], references: Sequence[str], source: str | None, target: str, most: float
) -> tuple[list[str], bool]:
    """Which side of the data is in another language than it should be, each a clause, and whether
    the examples are enough to be sure of one."""
    wrong, sure = {}, False
    for what, texts, language in (("references", references, target), ("sources", sources, source)):
        flags = None if language is None else _elsewhere(texts, language)
        number = 0 if flags is None else int(flags.sum())
        within = _not_most(number, len(texts), most)
        if language is not None and not within and _elsewhere_as_one(texts, language):
            sure = sure or within is False
            codes = Counter(code for code in identify(texts) if code is not None)
            spoken = codes.most_common(1)[0][0] if codes else None
            is_in = f" (most in {spoken})" if spoken else ""
            wrong[what] = (
                spoken,
                f"{number} of {len(texts)} {what} are not in {language}{is_in}",
            )
    if not wrong:
        return [], False
    read = wrong.get("references", (None, ""))[0], wrong.get("sources", (None, ""))[0]
    swapped = (
        source is not None
        and all(read)
        and same_language(str(read[0]), source)
        and same_language(str(read[1]), target)
    )
    fix = (
        f"the columns are swapped: give --pair {target}-{source}, or --source-column and "
        "--target-column the other way round"
        if swapped
        else "correct --pair, or --source-column and --target-column"
    )
    return [*(words for _, words in wrong.values()), fix], sure


def _elsewhere_as_one(texts: Sequence[str], language: str) -> bool:
    """Whether texts, read as one, are in another language; figures are in none."""
    (code,) = identify([" ".join(texts)])
    return code is not None and not same_language(code, language)


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


def with_other_shots(first: Baseline, other: Baseline | None) -> Baseline:
    """What is judged where other shots were tried, too: if the model does the task behind these, it
    cannot be told from one draw of shots."""
    if other is None:
        return first
    counts = {**first.counts, OTHER_SHOTS: other.works}
    if not other.works:
        return replace(first, counts=counts)
    reasons = (*first.reasons, "behind as many other shots it does the task")
    return replace(first, works=None, reasons=reasons, counts=counts)


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
