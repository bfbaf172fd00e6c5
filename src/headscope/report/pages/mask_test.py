"""The report of `verify mask`: a task nobody tells the model, with and without the mask."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.report.sections.mask_tests import (
    UNITS,
    WORDS,
    bars,
    conditions_table,
    gap_words,
    outputs_table,
    value_words,
)
from headscope.results.mask_tests import MaskedTask, MaskTests, Measure, Outcome
from headscope.runs.reading import result_of
from headscope.shown.words import count, enumeration, fixed, p_value

__all__ = ["page"]

TABLED: tuple[Measure, ...] = (
    "nll",
    "nll_tokens",
    "perplexity",
    "rouge_l",
    "chrf",
    "bleu",
    "accuracy",
    "accuracy_words",
)


def page(path: Path) -> Page:
    """The report of the run of `verify mask` in this folder."""
    result = result_of(path, MaskTests, "tests of a mask")
    tasks = result.tasks
    names = enumeration([*tasks]) if len(tasks) <= 4 else count(len(tasks), "task")
    lead = (
        f"What {result.model_name} makes of {names} without being told what to do, when only the "
        "heads of a learned mask are left."
    )
    facts = [
        ("examples", str(sum(task.examples for task in tasks.values()))),
        ("shots", str(result.shots) if result.shots else ""),
        ("shuffled masks", f"{result.draws} free, {result.draws} of the same layers"),
    ]
    parts = [
        (f"task-{place}", name, _task(path, place, name, task))
        for place, (name, task) in enumerate(tasks.items())
    ]
    return simple_page(
        f"{result.model_name} \u00b7 mask test",
        masthead("Mask test", lead, facts, kicker="headscope verify mask"),
        [
            ("summary", "", _summary(tasks)),
            ("overview", "Overview", _overview(tasks) if len(tasks) > 1 else None),
            *parts,
            ("caveats", "Caveats", _caveats(tasks)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(tasks: Mapping[str, MaskedTask]) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "The model reads an input and is asked to go on, with no word on what is wanted. The "
            "loss says how unlikely the right output was, in nats a token: lower is better. "
            "Each masked model is compared with the model as it is, with the same model "
            "instructed, and with masks of the same size whose heads are drawn at random.",
        )
    ]
    parts += [tag("p", _verdict(name, task)) for name, task in [*tasks.items()][:6]]
    if len(tasks) > 6:
        parts.append(tag("p", "The other tasks are in the overview."))
    return section("summary", "In short", *parts)


def _verdict(name: str, task: MaskedTask) -> Html:
    (masked,) = task.of_kind("masked")
    measure = task.main_measure
    outputs = ""
    if measure is not None:
        shown = (task.base, masked, *task.of_kind("instructed"))
        outputs = f"; {UNITS[measure].words}: " + ", ".join(
            f"{value_words(each, measure)} {WORDS[each.kind].lower()}" for each in shown
        )
    return join(
        tag("strong", tag("bdi", name)),
        f": with {task.mask.removed} of {task.mask.removed + task.mask.kept} heads removed the "
        f"loss goes from {fixed(task.base.nll, 3)} to {fixed(masked.nll, 3)}, by "
        f"{gap_words(masked.changed('nll'))}{outputs}. {_better(masked)}",
    )


def _better(masked: Outcome) -> str:
    draws = masked.shuffled_draws
    if draws is None:
        return "There are no shuffled masks to compare with."
    gap = draws.against["nll"]
    words = "below" if gap.high < 0 else "above" if gap.low > 0 else "not clearly apart from"
    return (
        f"The loss is {words} that of shuffled masks, {gap_words(gap)}; p over draws "
        f"{p_value(draws.p_draws['nll'])}."
    )


def _overview(tasks: Mapping[str, MaskedTask]) -> Html:
    header: list[Child] = ["condition"]
    for name, task in tasks.items():
        measure = task.main_measure
        unit = "loss" if measure is None else UNITS[measure].words
        mark = tag("em", " unseen") if task.unseen else None
        header.append(join(tag("bdi", name), mark, tag("small", f" {unit}")))
    names = dict.fromkeys(each.name for task in tasks.values() for each in task.undrawn)
    rows = [[name, *(_cell(task, name) for task in tasks.values())] for name in names]
    note = ""
    if any(task.unseen for task in tasks.values()):
        note = "A task marked unseen is none of those its mask was trained on. "
    if any(_unseen(each) for task in tasks.values() for each in task.of_kind("hybrid")):
        note += "Slanted numbers: the mask of several tasks was not trained on this one."
    grid = table("Tasks side by side", header, rows, class_="numbers")
    return section(
        "overview", "Overview", scroll("Tasks side by side", grid), tag("p", note) if note else None
    )


def _cell(task: MaskedTask, condition: str) -> Child:
    """What came of a task under the condition of this name."""
    outcome = next((each for each in task.undrawn if each.name == condition), None)
    if outcome is None:
        return fixed(None, 0)
    shown = value_words(outcome, task.main_measure or "nll")
    return tag("em", shown) if outcome.kind == "hybrid" and _unseen(outcome) else shown


def _unseen(outcome: Outcome) -> bool:
    return outcome.other is not None and outcome.other.unseen is True


def _task(path: Path, place: int, name: str, task: MaskedTask) -> Html:
    caption = join(
        tag("strong", "Loss of the right outputs. "),
        f"Mean over {count(task.examples, 'held-out example')} of the mean over the tokens of the "
        "right output; whiskers are 95\u00a0% intervals over examples, rings single shuffled "
        "masks. The shorter the bar, the likelier the right output.",
    )
    parts: list[Child] = [bars(f"loss-{place}", task, "nll", caption)]
    measure = task.main_measure
    if measure is not None:
        rule = (
            "An output is right if it begins with the answer"
            if task.at_start
            else "An output is right if the answer is in its first 10 tokens"
        )
        what = "Outputs were cut at the first line break. " if task.translation else f"{rule}. "
        caption = join(
            tag("strong", "Outputs that are right, in per cent. ")
            if measure == "accuracy"
            else tag("strong", f"{UNITS[measure].words} of what the model writes. "),
            what,
            "Intervals and rings as above.",
        )
        parts.append(bars(f"outputs-{place}", task, measure, caption))
    parts += [conditions_table(task, TABLED), outputs_table(path, name, task)]
    return section(f"task-{place}", name, *parts)


def _caveats(tasks: Mapping[str, MaskedTask]) -> Html:
    lines: list[Child] = [
        "The mean loss is what Heads Up! prints as PPL; perplexity here is the exponential of the "
        "mean over all tokens.",
        "A mask is the outcome of one training run; another seed can keep other heads.",
    ]
    if any(task.at_start for task in tasks.values()):
        lines.append(
            "Where an answer is a single letter, a model that repeats the input can begin with it. "
            "\u201cRight as whole words\u201d does not count that."
        )
    for name, task in tasks.items():
        if task.too_long:
            lines.append(
                f"{count(task.too_long, 'answer')} of {name} have more tokens than the model was "
                "let write, so they cannot be right."
            )
        if not task.leakage.known:
            lines.append(f"Whether the mask of {name} was trained on these examples is not known.")
        elif task.leakage.overlap:
            lines.append(
                f"{task.leakage.overlap} of the {task.examples} examples of {name} are among those "
                "its mask was trained on."
            )
    return section("caveats", "Caveats", tag("ul", [tag("li", line) for line in lines]))
