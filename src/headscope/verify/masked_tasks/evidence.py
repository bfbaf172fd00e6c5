"""From what a model did with every example of tasks to the table of evidence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.answers import answer_of
from headscope.data.tasks import Task
from headscope.evidence.rows import SELECTED, SHARE, Condition, Evidence, Statistic
from headscope.evidence.table import evidence_of_parts
from headscope.evidence.texts import TEXT_MEASURES, Outputs, measured_texts
from headscope.measure.statistics import counted, counted_mean
from headscope.verify.masked_tasks.asking import MaskRecord

Floats = NDArray[np.float64]


def _exponential(sums: NDArray[Any]) -> Floats:
    # Over 700 nats a token no float holds the perplexity; infinity is what is left to say.
    with np.errstate(over="ignore"):
        return np.exp(counted_mean(sums))


#: Measures of a task, in their order: the loss is the mean over examples of the mean over the
#: output's tokens, or that over all tokens, whose exponential is the perplexity.
STATISTICS = {
    "nll": Statistic("loss", "lower", "nats a token"),
    "nll_tokens": Statistic("loss over all tokens", "lower", "nats a token"),
    "perplexity": Statistic("perplexity", "lower", digits=2, score=_exponential),
    **{name: TEXT_MEASURES[name].statistic for name in ("rouge_l", "chrf", "bleu")},
    "bleu_published": Statistic("BLEU as published", digits=1, bounds=(0.0, 100.0)),
    "accuracy": Statistic("right", unit=SHARE, digits=1),
    "accuracy_words": Statistic("right as whole words", unit=SHARE, digits=1),
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


def marks(task: Task, texts: Sequence[Sequence[str]]) -> dict[str, Floats]:
    """Numbers of every output of a task under several conditions, (conditions, examples, features).

    `rouge_l` is of the whole output. Of translations `chrf` and `bleu` are of its first line, where
    sacrebleu (and what it needs for the language) is installed, and `bleu_published` is
    `paragraph_bleu` in per cent; of other tasks `accuracy` and `accuracy_words` count right ones.
    """
    references, language = [example.output for example in task.examples], task.language or ""

    def measured(made: Sequence[Sequence[str]], *names: str) -> dict[str, Floats]:
        outputs = {task.name: Outputs(language, made, references)}
        arrays = measured_texts(outputs, names).parts[task.name]
        return {name: array.astype(np.float64) for name, array in arrays.items()}

    values = measured(texts, "rouge_l")
    if task.is_translation:
        values |= measured([translations_in(task, outputs) for outputs in texts], "chrf", "bleu")
        published = [counted(100 * paragraph_bleu(outputs, references)) for outputs in texts]
        return {**values, "bleu_published": np.stack(published)}
    for name, rule in (("accuracy", right), ("accuracy_words", right_as_words)):
        values[name] = np.stack([
            counted([rule(text, answer, task.at_start)
                     for text, answer in zip(outputs, references, strict=True)])
            for outputs in texts
        ])  # fmt: skip
    return values


def numbers_of(
    task: Task, records: Mapping[Condition, MaskRecord]
) -> dict[Condition, dict[str, Floats]]:
    """The numbers of every example by condition and statistic, each (examples, features)."""
    numbers = dict[Condition, dict[str, Floats]]()
    for condition, record in records.items():
        nll, tokens = (
            np.asarray(column, dtype=np.float64) for column in (record.nll, record.tokens)
        )
        both = np.stack([nll, tokens], axis=1)
        numbers[condition] = {"nll": counted(nll / tokens), "nll_tokens": both, "perplexity": both}
    if all(record.texts for record in records.values()):
        arrays = marks(task, [record.texts for record in records.values()])
        for at, measures in enumerate(numbers.values()):
            measures |= {name: array[at] for name, array in arrays.items()}
    return numbers


def masks_evidence(
    tasks: Mapping[str, Task],
    records: Mapping[str, Mapping[Condition, MaskRecord]],
    seed: int = 0,
    helps: Callable[[Condition], bool] = lambda condition: True,
    by_gate: bool = False,
    **more: Any,
) -> Evidence:
    """What a model did with tasks as their table (see `of_tasks`). Masks are said to help where
    `helps` does not deny it."""
    numbers = {name: numbers_of(task, records[name]) for name, task in tasks.items()}
    return of_tasks(numbers, STATISTICS, by_gate, seed=seed, helps=helps, **more)


def of_tasks(
    tasks: Mapping[str, Mapping[Condition, Mapping[str, Floats | None]]],
    statistics: Mapping[str, Statistic],
    by_gate: bool = False,
    **more: Any,
) -> Evidence:
    """The table of tasks, which are its parts, from the numbers of each by condition.

    Conditions are those of `in_table`. `more` goes to `headscope.evidence.table.evidence`.
    """
    parts = {
        name: {
            statistic: [numbers.get(statistic) for numbers in by_condition.values()]
            for statistic in statistics
            if any(numbers.get(statistic) is not None for numbers in by_condition.values())
        }
        for name, by_condition in tasks.items()
    }
    return evidence_of_parts(in_table(tasks, by_gate), parts, statistics, **more)


def in_table(
    tasks: Mapping[str, Iterable[Condition]], by_gate: bool = False
) -> dict[str, list[Condition]]:
    """The conditions of each task as the table of all names them.

    Each task may have a mask of its own: conditions of one kind and draw are one, which tells of
    the number of heads and the gate as far as tasks agree. `by_gate`: so are those of one gate
    alone.
    """

    def role(condition: Condition) -> tuple[Any, ...]:
        gate = condition.gate if by_gate else None
        return condition.kind, condition.of, condition.draw, gate

    alike: dict[tuple[Any, ...], list[Condition]] = {}
    for conditions in tasks.values():
        for condition in conditions:
            alike.setdefault(role(condition), []).append(condition)

    def named(condition: Condition) -> Condition:
        # Random masks stand in for the masks of their `of`, which a task may lack them for.
        selected = role(replace(condition, kind=SELECTED, draw=None))
        masks = alike.get(selected) or alike[role(condition)]
        return replace(
            condition,
            k=condition.k if len({mask.k for mask in masks}) == 1 else 0,
            gate=condition.gate if len({mask.gate for mask in masks}) == 1 else None,
        )

    return {name: list(map(named, conditions)) for name, conditions in tasks.items()}


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
