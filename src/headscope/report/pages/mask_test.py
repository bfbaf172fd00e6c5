"""The report of `verify mask`: a task nobody tells the model, with and without the mask."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import scroll, section, table
from headscope.report.records.mask_tests import MaskTests, TaskTests, read_mask_tests
from headscope.report.sections.mask_tests import (
    UNITS,
    WORDS,
    bars,
    conditions_table,
    gap_words,
    main_measure,
    outputs_table,
)
from headscope.report.words import count, enumeration, fixed, p_value

__all__ = ["page"]

TABLED = (
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
    record = read_mask_tests(path)
    names = enumeration([task.name for task in record.tasks[:4]])
    if len(record.tasks) > 4:
        names = count(len(record.tasks), "task")
    lead = (
        f"What {record.model} makes of {names} without being told what to do, when only the heads "
        "of a learned mask are left."
    )
    facts = [
        ("examples", str(sum(task.examples for task in record.tasks))),
        ("shots", str(record.shots) if record.shots else ""),
        ("shuffled masks", f"{record.draws} free, {record.draws} of the same layers"),
    ]
    parts = [
        (f"task-{place}", task.name, _task(path, place, task))
        for place, task in enumerate(record.tasks)
    ]
    return simple_page(
        f"{record.model} \u00b7 mask test",
        masthead("Mask test", lead, facts, kicker="headscope verify mask"),
        [
            ("summary", "", _summary(record)),
            ("overview", "Overview", _overview(record) if len(record.tasks) > 1 else None),
            *parts,
            ("caveats", "Caveats", _caveats(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(record: MaskTests) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "The model reads an input and is asked to go on, with no word on what is wanted. The "
            "loss says how unlikely the right output was, in nats a token: lower is better. "
            "Each masked model is compared with the model as it is, with the same model "
            "instructed, and with masks of the same size whose heads are drawn at random.",
        )
    ]
    parts += [tag("p", _verdict(task)) for task in record.tasks[:6]]
    if len(record.tasks) > 6:
        parts.append(tag("p", "The other tasks are in the overview."))
    return section("summary", "In short", *parts)


def _verdict(task: TaskTests) -> Html:
    masked, base = task.one("masked"), task.rows[0]
    if masked is None:
        return join(f"{task.name}: no mask was tested.")
    better = _better(task)
    measure = main_measure(task)
    said = ""
    if measure is not None:
        words, digits, factor = UNITS[measure]
        instructed = task.one("instructed")
        values = [(row, row.values[measure]) for row in (base, masked, instructed) if row]
        said = f"; {words}: " + ", ".join(
            f"{fixed(None if value is None else factor * value, digits)} {WORDS[row.kind].lower()}"
            for row, value in values
        )
    change = masked.against["change"]["nll"]
    return join(
        tag("strong", tag("bdi", task.name)),
        f": with {task.removed} of {task.removed + task.kept} heads removed the loss goes from "
        f"{fixed(base.values['nll'], 3)} to {fixed(masked.values['nll'], 3)}, by "
        f"{gap_words(change, 3)}{said}. {better}",
    )


def _better(task: TaskTests) -> str:
    masked = task.one("masked")
    assert masked is not None  # the caller has looked
    gap = masked.against.get("shuffled", {}).get("nll")
    p = masked.p_draws.get("shuffled", {}).get("nll")
    if gap is None or p is None:
        return "There are no shuffled masks to compare with."
    words = "below" if gap.high < 0 else "above" if gap.low > 0 else "not clearly apart from"
    return (
        f"The loss is {words} that of shuffled masks, {gap_words(gap, 3)}; p over draws "
        f"{p_value(p)}."
    )


def _overview(record: MaskTests) -> Html:
    measures = {task.name: main_measure(task) for task in record.tasks}
    kinds: list[str] = []
    for task in record.tasks:
        kinds += [row.name for row in task.rows if row.draw is None and row.name not in kinds]
    header: list[Child] = ["condition"]
    for task in record.tasks:
        measure = measures[task.name]
        unit = "loss" if measure is None else UNITS[measure][0]
        mark = tag("em", " unseen") if task.unseen else None
        header.append(join(tag("bdi", task.name), mark, tag("small", f" {unit}")))
    rows: list[list[Child]] = []
    for name in kinds:
        cells: list[Child] = [name]
        for task in record.tasks:
            row = next((one for one in task.rows if one.name == name), None)
            measure = measures[task.name] or "nll"
            _, digits, factor = UNITS[measure]
            value = None if row is None else row.values[measure]
            shown = fixed(None if value is None else factor * value, digits)
            strange = row is not None and row.kind == "hybrid" and row.unseen
            cells.append(tag("em", shown) if strange else shown)
        rows.append(cells)
    note = ""
    if any(task.unseen for task in record.tasks):
        note = "A task marked unseen is none of those its mask was trained on. "
    if any(row.unseen for task in record.tasks for row in task.of_kind("hybrid")):
        note += "Slanted numbers: the mask of several tasks was not trained on this one."
    grid = table("Tasks side by side", header, rows, class_="numbers")
    return section(
        "overview", "Overview", scroll("Tasks side by side", grid), tag("p", note) if note else None
    )


def _task(path: Path, place: int, task: TaskTests) -> Html:
    caption = join(
        tag("strong", "Loss of the right outputs. "),
        f"Mean over {count(task.examples, 'held-out example')} of the mean over the tokens of the "
        "right output; whiskers are 95\u00a0% intervals over examples, rings single shuffled "
        "masks. The shorter the bar, the likelier the right output.",
    )
    parts: list[Child] = [bars(f"loss-{place}", task, "nll", caption)]
    measure = main_measure(task)
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
            else tag("strong", f"{UNITS[measure][0]} of what the model writes. "),
            what,
            "Intervals and rings as above.",
        )
        parts.append(bars(f"outputs-{place}", task, measure, caption))
    parts += [conditions_table(task, TABLED), outputs_table(path, task)]
    return section(f"task-{place}", task.name, *parts)


def _caveats(record: MaskTests) -> Html:
    lines: list[Child] = [
        "The mean loss is what Heads Up! prints as PPL; perplexity here is the exponential of the "
        "mean over all tokens.",
        "A mask is the outcome of one training run; another seed can keep other heads.",
    ]
    if any(task.at_start for task in record.tasks):
        lines.append(
            "Where an answer is a single letter, a model that repeats the input can begin with it. "
            "\u201cRight as whole words\u201d does not count that."
        )
    for task in record.tasks:
        if task.too_long:
            lines.append(
                f"{count(task.too_long, 'answer')} of {task.name} have more tokens than the model "
                "was let write, so they cannot be right."
            )
        if not task.leakage.get("known", False):
            lines.append(
                f"Whether the mask of {task.name} was trained on these examples is not known."
            )
        elif task.leakage.get("overlap"):
            lines.append(
                f"{task.leakage['overlap']} of the {task.examples} examples of {task.name} are "
                "among those its mask was trained on."
            )
    return section("caveats", "Caveats", tag("ul", [tag("li", line) for line in lines]))
