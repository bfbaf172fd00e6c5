"""What the runs found as cells with the published figures, and as claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.data.tasks import read_task
from headscope.errors import InputError
from headscope.estimates import CONSTANT, Estimate, known
from headscope.evidence.headline import beside_random
from headscope.evidence.rows import ORIGINAL, SELECTED, WHOLE, Condition, Evidence, Level, Tested
from headscope.measure.statistics import least_p
from headscope.papers.cells import Place
from headscope.papers.claims import Effect, of_effects, same_layers
from headscope.papers.heads_up.tasks import NAME, Task, word_tasks
from headscope.papers.paper import Setting, decided
from headscope.papers.published import (
    examples_digest,
    paper_model,
    paper_tasks,
    published,
    published_claims,
    reference,
)
from headscope.results.common import ComparedResult
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import NOT_RUN, Cell, Claim
from headscope.shown.words import count, enumeration
from headscope.verify.masked_tasks.conditions import OWN

#: The paper's main model, with which models that it does not have are compared.
MAIN = "Llama-3.1-8B-Instruct"
RANDOM, FOREIGN = "random", "foreign"
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
#: What measures are called.
MEASURES: Mapping[str, str] = {
    "nll": "loss",
    "rouge_l": "ROUGE-L",
    "accuracy": "accuracy",
    "bleu_published": "BLEU",
}
#: The paper gives shares where our measures are from 0 to 100.
SCALE: Mapping[str, float] = {"rouge_l": 0.01, "bleu_published": 0.01}
#: The gain in ROUGE-L and accuracy (0 to 1) that the claims are taken to mean at least, for both
#: verdicts: about a tenth of the paper's, which are 0.38 to 0.54 in Table 1 (0.00 to 0.59 in Tables
#: 22 to 31) and 0.56 to 0.84.
GAIN = 0.05
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
        translation: whether it is a direction, whose sentences others may have, too.
    """

    evidence: Evidence
    task: str
    of: str = ""
    translation: bool = True

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
            random = self.beside(measure)
            kind = random.control if random else kind
        if (reference := evidence.reference(own, kind)) is not None:
            return evidence.level(measure, reference, self.task)
        if kind == FOREIGN:  # numbered like draws, but each is a mask that was trained
            return evidence.level(measure, evidence.of_control(own, kind)[0], self.task)
        return known(evidence.draws(measure, own, kind, self.task).mean)

    def value(self, measure: str, kind: str = SELECTED) -> float | None:
        """The same without its interval."""
        level = self.level(measure, kind)
        return level.value if isinstance(level, Level) else level

    def change(self, measure: str, kind: str = SELECTED) -> Estimate | None:
        """How far it is from the model as it is, over the same examples."""
        level = self.level(measure, kind)
        return level.change if isinstance(level, Level) else None

    def random(self, measure: str, control: str) -> tuple[float, ...]:
        """A measure under each draw of a control, in their order."""
        own = self.condition
        return () if own is None else self.evidence.draws(measure, own, control, self.task).each

    @property
    def written(self) -> str:
        """What tells whether the task is done by what is written: ROUGE-L or accuracy."""
        return "rouge_l" if self.translation else "accuracy"

    def tests(self, measure: str) -> Mapping[str, Tested]:
        """The tests of the heads by control."""
        own = self.condition
        return {} if own is None else self.evidence.against(measure, own, self.task)

    def beside(self, measure: str, same_layers: bool = False) -> Tested | None:
        """The test against random masks, or those of the same layers."""
        return beside_random(self.tests(measure))[same_layers]

    def cell(self, measure: str, kind: str = SELECTED, why: str = NOT_RUN) -> Cell:
        """A measure on the paper's scale, with its interval where there is one."""
        level, scale = self.level(measure, kind), SCALE.get(measure, 1.0)
        if isinstance(level, Level):
            return Cell.of(level, factor=scale)
        return Cell(None if level is None else level * scale, why=why)


def case_in(
    result: ComparedResult | None, task: str, of: str = "", translation: bool = True
) -> Case | None:
    """A task of a run; None where the run was not made, or lacks it."""
    if result is None or task not in result.evidence.single:
        return None
    return Case(result.evidence, task, of, translation)


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


def pooled(directions: Sequence[Estimate], words: Sequence[Estimate] = ()) -> Estimate:
    """The mean of estimates of directions and word tasks; no interval where one has none.

    Directions may be of the same sentences, so their errors are taken to go together: their
    half-widths add up, those of word tasks in squares.
    """
    every = [*directions, *words]
    if not every:
        return Estimate()
    value = fmean(each.value for each in every)

    def reach(half: Callable[[Estimate], float]) -> float:
        return hypot(sum(map(half, directions)), *map(half, words)) / len(every)

    below, above = reach(lambda own: own.value - own.low), reach(lambda own: own.high - own.value)
    return Estimate(value, value - below, value + above)


def over_tasks(cases: Iterable[Case], of: Callable[[Case], Estimate | None]) -> Estimate:
    """The mean over tasks of an estimate of each."""
    found = [(case.translation, of(case) or Estimate()) for case in cases]
    return pooled(*([each for kind, each in found if kind is way] for way in (True, False)))


def against_random(cases: Sequence[Case], measure: str, same_layers: bool = False) -> Tested | None:
    """Masks of several tasks against random ones: the mean difference, and the rank of their mean
    over tasks among the means of the draws of one number; None where a task has no such draws."""
    tests = [test for case in cases if (test := case.beside(measure, same_layers)) is not None]
    if not tests or len(tests) < len(cases):
        return None
    sign = 1 if tests[0].side == "higher" else -1
    own = sign * fmean(case.value(measure) or 0.0 for case in cases)
    draws = [case.random(measure, test.control) for case, test in zip(cases, tests, strict=True)]
    # A number that one of the tasks lacks is no draw of all of them.
    as_far = [sign * fmean(each) >= own - CONSTANT for each in zip(*draws, strict=False)]

    def difference(case: Case) -> Estimate | None:
        test = case.beside(measure, same_layers)
        return None if test is None else scaled(test.difference, measure)

    return replace(
        tests[0],
        part=WHOLE,
        difference=over_tasks(cases, difference),
        p_examples=None,
        p_draws=(1 + sum(as_far)) / (1 + len(as_far)),
        draws=len(as_far),
        at_least_as_harmful=sum(as_far),
        as_far=tuple(as_far),
        least_p=least_p(len(as_far)),
    )


def scaled(estimate: Estimate | None, measure: str) -> Estimate | None:
    """An estimate on the paper's scale."""
    if estimate is None:
        return None
    scale = SCALE.get(measure, 1.0)
    return Estimate(scale * estimate.value, scale * estimate.low, scale * estimate.high)


def change(cases: Sequence[Case], measure: str, kind: str = SELECTED) -> Estimate:
    """How far a measure is from that of the model as it is, the mean over tasks."""
    return over_tasks(cases, lambda case: scaled(case.change(measure, kind), measure))


def brought(key: str, cases: Sequence[Case], measure: str) -> Claim:
    """The claim that masks make a model do tasks that it is not told to do: more than as it is, by
    what the paper's gains leave at least, and more than random masks of their sizes."""
    controls = {"random": False, "same layers": True}
    found = {name: against_random(cases, measure, same) for name, same in controls.items()}
    tests = {name: test for name, test in found.items() if test is not None}
    gain, random = change(cases, measure), tests.get("random")
    return of_effects(
        published_claims(NAME)[key],
        f"{levels_words(cases, measure)}; masked against as is {interval_words(gain)}",
        [Effect(gain, least=GAIN), Effect(random.difference if random else Estimate())],
        random,
        sure="the change from the model as it is, the difference from random masks of the size, "
        "and the rank of the mean over tasks among theirs",
        note=same_layers(tests),
    )


def levels_words(cases: Sequence[Case], measure: str, words: Mapping[str, str] = WORDS) -> str:
    """A measure as its mean over tasks by kind of condition, and of how many examples."""
    parts = []
    for kind, word in words.items():
        means = [mean for case in cases if (mean := case.value(measure, kind)) is not None]
        if cases and len(means) == len(cases):
            parts.append(f"{SCALE.get(measure, 1.0) * fmean(means):.3f} {word}")
    return f"{MEASURES[measure]} {', '.join(parts)} ({tasks_words(cases)})"


def tasks_words(cases: Sequence[Case]) -> str:
    """The number of directions and of word tasks, and that of their examples."""
    ways = sum(case.translation for case in cases)
    counts = {"direction": ways, "word task": len(cases) - ways}
    sizes = [case.examples for case in cases]
    many = " and ".join(count(number, name) for name, number in counts.items() if number)
    return f"{many} of {' to '.join(dict.fromkeys((f'{min(sizes)}', f'{max(sizes)}')))} examples"


def interval_words(gap: Estimate) -> str:
    """A difference with its interval in a sentence."""
    return f"{gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
