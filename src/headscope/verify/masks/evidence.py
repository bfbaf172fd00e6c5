"""From what a model did with every example to marks, values, intervals and differences."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.answers import answer_of
from headscope.data.tasks import Task
from headscope.data.words import plain_words
from headscope.errors import MissingExtra
from headscope.measure.intervals import bootstrap_score, wilson_interval
from headscope.measure.metrics import (
    bleu,
    bleu_from_statistics,
    chrf,
    chrf_from_statistics,
    rouge_l,
)
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group, Side, Trial
from headscope.results.common import Bounds
from headscope.results.mask_tests import (
    AgainstDraws,
    ByMeasure,
    Measure,
    OtherMask,
    Outcome,
    mean_of,
)
from headscope.verify.masks.asking import Masking, MaskKind, MaskRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scoring:
    """How a measure of a condition is computed from sums over examples.

    Attributes:
        score: from sums of statistics (..., features) to values.
        higher: whether more is better.
        share: whether it is a share of examples, whose interval is Wilson's.
    """

    score: Callable[[NDArray[Any]], Floats]
    higher: bool
    share: bool = False


def _exponential(sums: NDArray[Any]) -> Floats:
    # Over 700 nats a token no float holds the perplexity; infinity is what is left to say.
    with np.errstate(over="ignore"):
        return np.exp(counted_mean(sums))


#: How each measure of an `Outcome` is computed.
MEASURES: dict[Measure, Scoring] = {
    "nll": Scoring(counted_mean, higher=False),
    "nll_tokens": Scoring(counted_mean, higher=False),
    "perplexity": Scoring(_exponential, higher=False),
    "rouge_l": Scoring(counted_mean, higher=True),
    "chrf": Scoring(chrf_from_statistics, higher=True),
    "bleu": Scoring(bleu_from_statistics, higher=True),
    "bleu_published": Scoring(counted_mean, higher=True),
    "accuracy": Scoring(counted_mean, higher=True, share=True),
    "accuracy_words": Scoring(counted_mean, higher=True, share=True),
}


def right(text: str, answer: str, at_start: bool) -> bool:
    """Whether an output holds the answer, or begins with it (Heads Up!, appendix B).

    Capitals count. An answer of one letter is held by any word that begins with it; see
    `right_as_words`.
    """
    text, answer = text.strip(), answer.strip()
    return text.startswith(answer) if at_start else answer in text


def right_as_words(text: str, answer: str, at_start: bool) -> bool:
    """Like `right`, but no letter or digit may stand next to the answer.

    So a model that repeats a word has not named the letter it begins with.
    """
    pattern = re.compile(rf"(?<!\w){re.escape(answer.strip())}(?!\w)")
    text = text.strip()
    return bool(pattern.match(text) if at_start else pattern.search(text))


def first_line(text: str) -> str:
    """What an output says before its first line break."""
    return text.strip().split("\n", 1)[0]


def translations_in(task: Task, texts: Sequence[str]) -> list[str]:
    """What of each output is measured as a translation: its first line, or the answer in it."""
    if not task.answer_only:
        return [first_line(text) for text in texts]
    rows = zip(task.examples, texts, strict=True)
    return [answer_of(text, example.input) for example, text in rows]


def marks(task: Task, texts: Sequence[str]) -> dict[str, Floats]:
    """Statistics of each output, (examples, features) by measure; sums of them give the scores.

    `rouge_l` holds F1 (0 to 100) of the whole output and 1. Of translations `chrf` and `bleu` hold
    sacrebleu's counts of its first line, where sacrebleu (and what it needs for the language) is
    installed, and `bleu_published` the score of `paragraph_bleu` (0 to 100) and 1; of other tasks
    `accuracy` and `accuracy_words` hold 0 or 1, and 1.
    """
    references = [example.output for example in task.examples]
    lines = translations_in(task, texts)
    rouge = rouge_l([*map(plain_words, texts)], [*map(plain_words, references)])
    values: dict[str, Floats] = {"rouge_l": counted(rouge.texts)}
    if task.is_translation:
        # Without sacrebleu these are left out; the outputs are kept and can be scored later.
        with contextlib.suppress(MissingExtra):
            values["chrf"] = chrf(lines, references).statistics.astype(np.float64)
            assert task.language is not None  # translations have one
            values["bleu"] = bleu(lines, references, task.language).statistics.astype(np.float64)
        values["bleu_published"] = counted(100 * paragraph_bleu(texts, references))
        return values
    for name, rule in (("accuracy", right), ("accuracy_words", right_as_words)):
        values[name] = counted(
            [
                rule(text, answer, task.at_start)
                for text, answer in zip(texts, references, strict=True)
            ]
        )
    return values


def statistics(task: Task, record: MaskRecord) -> dict[str, Floats]:
    """The statistics of every example by measure, each (examples, features)."""
    nll, tokens = (np.asarray(each, dtype=np.float64) for each in (record.nll, record.tokens))
    both = np.stack([nll, tokens], axis=1)
    values = {"nll": counted(nll / tokens), "nll_tokens": both, "perplexity": both}
    return values | (marks(task, record.texts) if record.texts else {})


def describe(
    conditions: Sequence[Masking],
    numbers: Sequence[Mapping[str, Floats]],
    seed: int = 0,
    beside: Sequence[str] = (),
    others: Mapping[str, OtherMask] | None = None,
) -> tuple[Outcome, ...]:
    """What each condition shows; the first is the one that all are compared with.

    All but the first have a `change`. Conditions of one mask that was not drawn at random stand
    beside the draws of each kind, in every measure: p is that of doing better than they do, or
    worse, for conditions that are meant to harm. Perplexity, which is one number of all tokens and
    may be infinite, has no p over examples: that of `nll_tokens` says the same. `beside` names
    conditions to each of which the others also get their difference, and `others` is told of
    masks that were found for other tasks, by the condition's name.
    """
    sets = [
        None if condition.mask is None else condition.mask.gate.values.tobytes()
        for condition in conditions
    ]
    trials = {
        name: Trial([Group([own.get(name) for own in numbers], scoring.score, sets, seed)])
        for name, scoring in MEASURES.items()
        if name in numbers[0]
    }
    outcomes = []
    for at, condition in enumerate(conditions):
        values: dict[str, Any] = dict.fromkeys(MEASURES)
        intervals: dict[str, Bounds] = {}
        for name, trial in trials.items():
            own = trial.groups[0].statistics[at]
            if own is not None:
                value = float(trial.scores[at])
                values[name] = value if isfinite(value) else None
                intervals[name] = _interval(MEASURES[name], own, seed)
        compared: dict[str, Any] = {"change": _differences(trials, at, 0)} if at else {}
        if condition.draw is None:
            for place, other in enumerate(conditions):
                if other.name in beside and place != at:
                    compared[f"against_{_key(other.name)}"] = _differences(trials, at, place)
            if condition.mask is not None:
                for kind, draws in _draws_for(condition, conditions).items():
                    compared[f"{_key(kind)}_draws"] = _against(trials, at, draws, condition.harmful)
        outcomes.append(
            Outcome(
                kind=condition.kind,
                name=condition.name,
                draw=condition.draw,
                of=condition.of,
                instructed=condition.instructed,
                kept=None if condition.mask is None else len(condition.mask.kept),
                intervals=intervals,
                other=(others or {}).get(condition.name),
                **values,
                **compared,
            )
        )
    return tuple(outcomes)


def _differences(trials: Mapping[Measure, Trial], at: int, place: int) -> ByMeasure:
    return {
        name: trial.difference(at, [place])
        for name, trial in trials.items()
        if _measured(trial, at, place)
    }


def _measured(trial: Trial, *places: int) -> bool:
    return all(trial.groups[0].statistics[place] is not None for place in places)


def _against(
    trials: Mapping[Measure, Trial], at: int, draws: Sequence[int], harmful: bool
) -> AgainstDraws:
    against = {}
    for name, trial in trials.items():
        if _measured(trial, at, *draws):
            side: Side = "lower" if MEASURES[name].higher == harmful else "higher"
            against[name] = trial.against(at, draws, side, swaps=name != "perplexity")
    return AgainstDraws(
        against={name: each.difference for name, each in against.items()},
        p_draws={name: each.p_draws for name, each in against.items()},
        p_examples={
            name: each.p_examples for name, each in against.items() if name != "perplexity"
        },
        distinct_draws=against["nll"].distinct,
        least_p=against["nll"].least_p,
    )


def together(tasks: Sequence[Sequence[Outcome]]) -> tuple[Outcome, ...]:
    """The conditions of all tasks as one list: those of a single task as they are.

    Of several tasks plain means of every condition that all of them have, without intervals.
    """
    first = tasks[0]
    if len(tasks) == 1:
        return tuple(first)
    outcomes = []
    for outcome in first:
        same = [each for task in tasks for each in task if each.name == outcome.name]
        if len(same) == len(tasks):
            kept = ("kind", "name", "draw", "of", "instructed", "kept")
            alike: dict[str, Any] = {name: getattr(outcome, name) for name in kept}
            means: dict[str, Any] = {name: mean_of(same, name) for name in MEASURES}
            outcomes.append(Outcome(**alike, **means))
    return tuple(outcomes)


def _draws_for(condition: Masking, conditions: Sequence[Masking]) -> dict[MaskKind, list[int]]:
    """Where the random masks stand that a condition is compared with, by kind."""
    places: dict[MaskKind, list[int]] = {}
    for place, other in enumerate(conditions):
        alike = other.instructed == condition.instructed
        if other.draw is not None and alike and other.of in (None, condition.name):
            places.setdefault(other.kind, []).append(place)
    return places


def _key(name: str) -> str:
    return name.replace("-", "_").replace(" ", "_").replace("α", "alpha")


def _interval(scoring: Scoring, own: Floats, seed: int) -> Bounds:
    if scoring.share:
        return Bounds(*wilson_interval(int(own[:, 0].sum()), len(own)))
    interval = bootstrap_score(own, scoring.score, seed=seed)
    return Bounds(float(interval.low), float(interval.high))


ORDERS = 4
#: What counts as the matches of an order that has none.
EPSILON = 0.1
_PARAGRAPHS = re.compile(r"\n\n")


def cleaned(text: str) -> str:
    """The text without punctuation, with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"[^\w\s]", "", text)).strip()


def character_bleu(output: str, reference: str) -> float:
    """BLEU of one output over characters, 0 to 1, orders 1 to 4 with equal weight.

    0 if no character matches. Orders longer than the output count as one n-gram without a match.
    """
    if not output:
        return 0.0
    logarithms = []
    for order in range(1, ORDERS + 1):
        mine, theirs = _grams(output, order), _grams(reference, order)
        matches = sum((mine & theirs).values())
        if order == 1 and not matches:
            return 0.0
        logarithms.append(math.log((matches or EPSILON) / max(1, sum(mine.values()))))
    short = min(0.0, 1 - len(reference) / len(output))
    return math.exp(short + math.fsum(logarithms) / ORDERS)


def paragraph_bleu(outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """The BLEU that Heads Up! publishes (Table 8): of each output's best paragraph, (outputs,).

    A sentence BLEU over characters, 0 to 1, without punctuation; of a reference of several
    paragraphs the second counts, as published. Characters match far more often than words, so the
    numbers are high. The published code puts spaces between words found by the segmenter jieba
    before it counts; here the text's own spaces are kept.
    """
    scores = []
    for output, reference in zip(outputs, references, strict=True):
        parts = _PARAGRAPHS.split(reference)
        wanted = cleaned(parts[1] if len(parts) > 1 else reference)
        paragraphs = [cleaned(part) for part in _PARAGRAPHS.split(output)]
        scores.append(max(character_bleu(part, wanted) for part in paragraphs))
    return np.asarray(scores, dtype=np.float64)


def _grams(text: str, order: int) -> Counter[str]:
    return Counter(text[at : at + order] for at in range(len(text) - order + 1))
