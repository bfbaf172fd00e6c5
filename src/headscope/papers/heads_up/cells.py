"""What the runs found as cells with the published figures, and as claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from headscope.data.tasks import read_task
from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.papers.cells import Place
from headscope.papers.claims import of_interval, of_removal
from headscope.papers.heads_up.tasks import NAME, Task, word_tasks
from headscope.papers.paper import Setting, decided
from headscope.papers.published import (
    examples_digest,
    paper_model,
    paper_tasks,
    published,
    reference,
)
from headscope.results.mask_tests import Measure, Outcome, TaskOutcomes, mean_of
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import NOT_RUN, Cell, Claim
from headscope.shown.words import enumeration

#: The paper's main model, with which models that it does not have are compared.
MAIN = "Llama-3.1-8B-Instruct"
#: The paper's names of the conditions of a task, and ours; `shuffled` stands for all draws.
CONDITIONS = {
    "original": "as is",
    "instructed": "instructed",
    "random mask": "shuffled",
    "mask": "masked",
}
#: What they are called in sentences.
WORDS = {"as is": "as is", "shuffled": "under random masks", "masked": "masked"}
WORDS |= {"instructed": "instructed"}
ANOTHER = "mask of another model"
#: What measures are called, and on which side of zero a difference is better.
MEASURES: Mapping[Measure, tuple[str, int]] = {
    "nll": ("loss", -1),
    "rouge_l": ("ROUGE-L", 1),
    "accuracy": ("accuracy", 1),
    "bleu_published": ("BLEU", 1),
}
#: The paper gives shares where our measures are from 0 to 100.
SCALE: Mapping[str, float] = {"rouge_l": 0.01, "bleu_published": 0.01}
#: Of the tests of several tasks the figure that shows least.
_WEAKEST = {"p_draws": max, "p_examples": max, "least_p": max, "distinct_draws": min}
#: What no interval of a mask holds.
ONCE = "Every mask was trained once, with one seed."


def place_of(
    setting: Setting,
    tables: str | Mapping[str, str],
    data: str | None = None,
    main: str = MAIN,
    *,
    other: str = "",
) -> Place:
    """The place of a table's published values: one of the paper, or that of the model by its name.

    `data` names the sentences that the paper measured on, whose content is not known here, so that
    no sentences count as the same; without it those word tasks are compared that the table has, by
    their examples. `main` is the model with which models that the paper does not have are compared.
    `other` says why ours is another quantity, whatever the data.
    """
    model = setting.model.model
    table = tables
    if not isinstance(table, str):
        table = table.get(paper_model(NAME, model) or MAIN, table[MAIN])
    differs = [other] if other else []
    if data is not None:
        differs.append(f"sentences not known by content to be {data}'s")
        differs += ["our instructions"] if setting.pocket else []
    elif not other:
        names = {figure.column for figure in published(NAME) if figure.table == table}
        shown = [task for task in word_tasks(setting) if setting.pocket or task.name in names]
        strange = [task.name for task in shown if not _of_paper(task)]
        differs += [f"other examples of {enumeration(strange)}"] if strange else []
    differs += decided(setting)
    return Place(NAME, table, reference(NAME, table, model, default=main, differs=differs))


def _of_paper(task: Task) -> bool:
    """Whether a task has the examples of the paper's task of this name."""
    theirs = paper_tasks().get(task.name)
    if theirs is None or not task.choice.task or not Path(task.choice.task[0]).is_file():
        return False
    try:
        examples = read_task(task.choice.task[0]).examples
    except InputError:  # the step that reads it says why
        return False
    return examples_digest((example.input, example.output) for example in examples) == theirs.digest


def partner(place: Place, other: str | None) -> str | None:
    """The row of the published mask of the other model: of an instructed model's base, or reverse.

    `other` is the model whose mask is ours; None if it is another one than the paper's. Without
    one, the published figures stand alone.
    """
    shown = place.reference.model
    base = shown.removesuffix("-Instruct")
    theirs = f"{shown}-Instruct" if base == shown else base
    if other is not None and paper_model(NAME, other) != theirs:
        return None
    return f"mask of {theirs}"


def outcomes(task: TaskOutcomes | None, name: str) -> tuple[Outcome, ...]:
    """The condition of this name, or all shuffled masks of the same size; empty without."""
    every = () if task is None else task.conditions
    return tuple(each for each in every if name == (each.name if each.draw is None else each.kind))


def outcome_cell(own: Sequence[Outcome], measure: Measure, why: str = NOT_RUN) -> Cell:
    """A measure of a condition with its interval, on the paper's scale; the plain mean of draws."""
    scale = SCALE.get(measure, 1.0)
    values = [known for each in own if (known := each.value(measure)) is not None]
    if values and own[0].draw is None:
        return Cell.of(own[0].level(measure), factor=scale)
    return Cell(fmean(values) * scale if values else None, why=why)


def samples(setting: Setting, step: str, task: str) -> dict[str, list[Mapping[str, Any]]]:
    """What models wrote in a finished run by condition, in the order of the examples.

    Each has `input`, `reference` and `output`. Empty where the run itself is not at hand.
    """
    file, found = setting.at(step) / "samples" / f"{task}.jsonl", dict[str, list[Any]]()
    for line, row in read_rows(file) if setting.done(step) else ():
        if not {"condition", "output"} <= row.keys():
            raise damaged_line(file, line)
        found.setdefault(row["condition"], []).append(row)
    return found


def exact(rows: Iterable[Mapping[str, Any]]) -> list[bool]:
    """Which outputs are exactly the reference."""
    return [row["output"].strip() == row["reference"].strip() for row in rows]


@dataclass(frozen=True)
class Case:
    """A task under a mask, and what the claim compares it with.

    Attributes:
        mask: the condition that is claimed to differ.
        conditions: the conditions that a sentence names, by its words; several are draws.
        examples: of the task.
        random: the kind of random masks that it is tested against.
    """

    mask: Outcome
    conditions: Mapping[str, Sequence[Outcome]]
    examples: int
    random: Literal["shuffled", "random"] = "shuffled"


def case_of(
    task: TaskOutcomes | None, mask: str = "masked", words: Mapping[str, str] = WORDS
) -> Case | None:
    """The test of a mask with the conditions of these names, each under its words."""
    own = outcomes(task, mask)
    if task is None or not own:
        return None
    return Case(own[0], {word: outcomes(task, name) for name, word in words.items()}, task.examples)


def with_measure(cases: Iterable[Case | None], measure: Measure) -> list[Case]:
    """The cases whose masks were tested by this measure."""
    return [case for case in cases if case is not None and case.mask.value(measure) is not None]


def of_masks(name: str, cases: Sequence[Case], measure: Measure, task: str, sign: int) -> Claim:
    """A claim that each of these masks does more than random ones of its size.

    It holds if the weakest of its tests does: each has to hold, so none is corrected for the
    others, and the largest p is that of all (intersection-union test, Berger 1982). `task` says
    what the cases are of.
    """
    row: dict[str, Any] = {"against_random": {}}
    for ending in ("", "_layer_matched"):
        tests = [getattr(case.mask, f"{case.random}{ending}_draws") for case in cases]
        if None in tests:
            continue
        row[f"against_random{ending}"] = least([test.against.get(measure) for test in tests], sign)
        for key, pick in _WEAKEST.items():
            values = [getattr(test, key) for test in tests]
            each: list[Any] = [
                own.get(measure) if isinstance(own, Mapping) else own for own in values
            ]
            row |= {} if None in each else {f"{key}{ending}": pick(each)}
    parts = []
    for word in cases[0].conditions:
        means = [mean_of(case.conditions.get(word, ()), measure) for case in cases]
        known = [mean for mean in means if mean is not None]
        if len(known) == len(means):
            parts.append(f"{SCALE.get(measure, 1.0) * fmean(known):.3f} {word}")
    by = f"{MEASURES[measure][0]} {', '.join(parts)}; {_all_of(cases, task)}"
    change = least([case.mask.changed(measure) for case in cases], sign)
    return of_removal(name, row, by, change=change, sign=sign)


def as_instructed(name: str, cases: Sequence[Case], measure: Measure, task: str) -> list[Claim]:
    """The claim that the masked model reaches the instructed one, by paired intervals.

    None where a task has no such interval.
    """
    paired = [(case.mask.against_instructed or {}).get(measure) for case in cases]
    known = [gap for gap in paired if gap is not None]
    if not known or len(known) < len(cases):
        return []
    word, sign = MEASURES[measure]
    better = sum(min(sign * gap.low, sign * gap.high) > 0 for gap in known)
    worse = sum(max(sign * gap.low, sign * gap.high) < 0 for gap in known)
    by = f"{word} better in {better} and worse in {worse} of {_all_of(cases, task)}"
    return [of_interval(name, least(known, sign), by, "paired intervals", sign=sign)]


def least(differences: Sequence[Estimate | None], sign: int) -> dict[str, float]:
    """The bounds that lie least far on the side of `sign`; none where a difference has none."""
    known = [gap for gap in differences if gap is not None and gap.bounded]
    if not known or len(known) < len(differences):
        return {}
    pick = min if sign > 0 else max
    return {"low": pick(gap.low for gap in known), "high": pick(gap.high for gap in known)}


def bounds(mean: Any) -> dict[str, float]:
    """The bounds of an interval as claims read them; without those that are not known."""
    ends = {end: getattr(mean, end) for end in ("low", "high")}
    return {end: value for end, value in ends.items() if not isnan(value)}


def interval_words(mean: Any) -> str:
    """A difference with its interval in a sentence."""
    return f"{mean.mean:+.3f} ({mean.low:+.3f} to {mean.high:+.3f})"


def _all_of(cases: Sequence[Case], task: str) -> str:
    """The number of tasks and of their examples."""
    sizes = sorted(case.examples for case in cases)
    size = " to ".join(dict.fromkeys((f"{sizes[0]}", f"{sizes[-1]}")))
    return f"{len(cases)} {task}{'' if len(cases) == 1 else 's'} of {size} examples"
