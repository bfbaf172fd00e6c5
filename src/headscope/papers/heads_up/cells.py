"""What the runs found as cells with the published figures, and as claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.data.tasks import read_task
from headscope.errors import InputError
from headscope.estimates import Estimate, known
from headscope.evidence.headline import beside_random
from headscope.evidence.rows import ORIGINAL, SELECTED, Condition, Evidence, Level, Tested
from headscope.papers.cells import Place
from headscope.papers.claims import of_interval, of_tests
from headscope.papers.heads_up.tasks import NAME, Task, word_tasks
from headscope.papers.paper import Setting, decided
from headscope.papers.published import (
    examples_digest,
    paper_model,
    paper_tasks,
    published,
    reference,
)
from headscope.results.common import ComparedResult
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import NOT_RUN, Cell, Claim
from headscope.shown.words import enumeration
from headscope.verify.masked_tasks.conditions import OWN

#: The paper's main model, with which models that it does not have are compared.
MAIN = "Llama-3.1-8B-Instruct"
RANDOM = "random"
#: The paper's names of the conditions of a task, and our kinds.
CONDITIONS = {
    "original": ORIGINAL,
    "instructed": "instructed",
    "random mask": RANDOM,
    "mask": SELECTED,
}
#: What they are called in sentences.
WORDS = {ORIGINAL: "as is", RANDOM: "under random masks", SELECTED: "masked"}
WORDS |= {"instructed": "instructed"}
ANOTHER = "mask of another model"
#: What measures are called, and on which side of zero a difference is better.
MEASURES: Mapping[str, tuple[str, int]] = {
    "nll": ("loss", -1),
    "rouge_l": ("ROUGE-L", 1),
    "accuracy": ("accuracy", 1),
    "bleu_published": ("BLEU", 1),
}
#: The paper gives shares where our measures are from 0 to 100.
SCALE: Mapping[str, float] = {"rouge_l": 0.01, "bleu_published": 0.01}
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
    differs += [] if setting.as_published else ["our protocol"]
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


@dataclass(frozen=True)
class Case:
    """A task in a table of evidence, and the heads outside a mask, as a claim is about them.

    Attributes:
        evidence: whose parts are tasks.
        task: one of them.
        of: whose heads they are; empty: those of the task's own mask, or the only ones.
    """

    evidence: Evidence
    task: str
    of: str = ""

    @property
    def condition(self) -> Condition | None:
        """The condition of these heads that the task has."""
        selected = self.evidence.selected
        own = self.of or next((condition.of for condition in selected), "")
        return next((condition for condition in selected if condition.of == own), None)

    @property
    def examples(self) -> int:
        """Of the task."""
        rows = (row.examples for row in self.evidence.levels if row.part == self.task)
        return next(rows, 0)

    def level(self, measure: str, kind: str = SELECTED) -> Level | float | None:
        """A measure under the heads or another kind of condition, of draws their mean; `random` are
        those that the heads were tested against."""
        evidence, own = self.evidence, self.condition
        if kind == ORIGINAL:
            return evidence.level(measure, None, self.task)
        if own is None:
            return None
        if kind == SELECTED:
            return evidence.level(measure, own, self.task)
        if kind == RANDOM:
            random, _ = beside_random(self.tests(measure))
            kind = random.control if random else kind
        if (reference := evidence.reference(own, kind)) is not None:
            return evidence.level(measure, reference, self.task)
        return known(evidence.draws(measure, own, kind, self.task).mean)

    def value(self, measure: str, kind: str = SELECTED) -> float | None:
        """The same without its interval."""
        level = self.level(measure, kind)
        return level.value if isinstance(level, Level) else level

    def tests(self, measure: str) -> Mapping[str, Tested]:
        """The tests of the heads by control."""
        own = self.condition
        return {} if own is None else self.evidence.against(measure, own, self.task)

    def cell(self, measure: str, kind: str = SELECTED, why: str = NOT_RUN) -> Cell:
        """A measure on the paper's scale, with its interval where there is one."""
        level, scale = self.level(measure, kind), SCALE.get(measure, 1.0)
        if isinstance(level, Level):
            return Cell.of(level, factor=scale)
        return Cell(None if level is None else level * scale, why=why)


def case_in(result: ComparedResult | None, task: str, of: str = "") -> Case | None:
    """A task of a run; None where the run was not made, or lacks it."""
    if result is None or task not in result.evidence.single:
        return None
    return Case(result.evidence, task, of)


def cell_of(case: Case | None, measure: str, kind: str = SELECTED, why: str = NOT_RUN) -> Cell:
    """A measure of a task, on the paper's scale."""
    return Cell(why=why) if case is None else case.cell(measure, kind, why)


def samples(setting: Setting, step: str, task: str) -> dict[str, list[Mapping[str, Any]]]:
    """What models wrote in a finished run by kind of condition, in the order of the examples; of
    masks by the task's own.

    Each has `input`, `reference` and `output`. Empty where the run itself is not at hand.
    """
    file, found = setting.at(step) / "samples" / f"{task}.jsonl", dict[str, list[Any]]()
    for line, row in read_rows(file) if setting.done(step) else ():
        if not {"kind", "of", "output"} <= row.keys():
            raise damaged_line(file, line)
        if row["of"] in ("", OWN):
            found.setdefault(row["kind"], []).append(row)
    return found


def exact(rows: Iterable[Mapping[str, Any]]) -> list[bool]:
    """Which outputs are exactly the reference."""
    return [row["output"].strip() == row["reference"].strip() for row in rows]


def with_measure(cases: Iterable[Case | None], measure: str) -> list[Case]:
    """The cases whose masks were tested by this measure."""
    return [case for case in cases if case is not None and case.value(measure) is not None]


def of_masks(
    name: str,
    cases: Sequence[Case],
    measure: str,
    task: str,
    words: Mapping[str, str] = WORDS,
) -> Claim:
    """A claim that each of these masks does more than random ones of its size.

    It holds if the weakest of its tests does: each has to hold, so none is corrected for the
    others, and the largest p is that of all (intersection-union test, Berger 1982). `task` says
    what the cases are of, `words` how a sentence calls kinds of conditions.
    """
    tests = {}
    for at, control in enumerate(("random", "same layers")):
        own = [beside_random(case.tests(measure))[at] for case in cases]
        known_ = [test for test in own if test is not None]
        if len(known_) == len(own):
            tests[control] = weakest(known_)
    parts = []
    for kind, word in words.items():
        means = [mean for case in cases if (mean := case.value(measure, kind)) is not None]
        if len(means) == len(cases):
            parts.append(f"{SCALE.get(measure, 1.0) * fmean(means):.3f} {word}")
    by = f"{MEASURES[measure][0]} {', '.join(parts)}; {_all_of(cases, task)}"
    sign = 1 if "random" in tests and tests["random"].side == "higher" else -1
    levels = [case.level(measure) for case in cases]
    changes = [level.change if isinstance(level, Level) else None for level in levels]
    return of_tests(name, tests, by, least(changes, sign))


def weakest(tests: Sequence[Tested]) -> Tested:
    """Of the tests of several tasks the figures that show least."""

    def most(name: str) -> float | None:
        values = [getattr(test, name) for test in tests]
        return None if None in values else max(values)

    sign = 1 if tests[0].side == "higher" else -1
    return replace(
        tests[0],
        difference=least([test.difference for test in tests], sign),
        p_examples=most("p_examples"),
        p_draws=most("p_draws"),
        least_p=most("least_p"),
        draws=min(test.draws for test in tests),
    )


def as_instructed(name: str, cases: Sequence[Case], measure: str, task: str) -> list[Claim]:
    """The claim that the masked model reaches the instructed one, by paired intervals.

    None where a task has no such interval.
    """
    tests = [case.tests(measure).get("instructed") for case in cases]
    gaps = [test.difference for test in tests if test is not None and test.difference.bounded]
    if not gaps or len(gaps) < len(cases):
        return []
    word, sign = MEASURES[measure]
    better = sum(min(sign * gap.low, sign * gap.high) > 0 for gap in gaps)
    worse = sum(max(sign * gap.low, sign * gap.high) < 0 for gap in gaps)
    by = f"{word} better in {better} and worse in {worse} of {_all_of(cases, task)}"
    return [of_interval(name, least(gaps, sign), by, "paired intervals", sign=sign)]


def least(differences: Sequence[Estimate | None], sign: int) -> Estimate:
    """The bounds that lie least far on the side of `sign`; none where a difference has none."""
    gaps = [gap for gap in differences if gap is not None and gap.bounded]
    if not gaps or len(gaps) < len(differences):
        return Estimate()
    pick = min if sign > 0 else max
    low, high = pick(gap.low for gap in gaps), pick(gap.high for gap in gaps)
    return Estimate(low=low, high=high)


def interval_words(gap: Estimate) -> str:
    """A difference with its interval in a sentence."""
    return f"{gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"


def _all_of(cases: Sequence[Case], task: str) -> str:
    """The number of tasks and of their examples."""
    sizes = sorted(case.examples for case in cases)
    size = " to ".join(dict.fromkeys((f"{sizes[0]}", f"{sizes[-1]}")))
    return f"{len(cases)} {task}{'' if len(cases) == 1 else 's'} of {size} examples"
