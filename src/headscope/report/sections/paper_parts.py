"""Parts of a paper's page: the answer, its experiments in one table and one by one, the runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headscope.report.drawing.figures import told_figure
from headscope.report.drawing.tables import table_figure
from headscope.report.html import Child, Html, join, tag
from headscope.report.parts import figure, scroll, section, table
from headscope.report.records.paper import STATES, Experiment, PaperRecord, PaperRun
from headscope.shown.words import count, fixed, ranges

__all__ = [
    "answer_section",
    "coverage_words",
    "experiment_section",
    "experiments_table",
    "method_section",
    "not_run_section",
    "runs_section",
    "span",
    "state_mark",
    "with_flags",
]

FLAG = re.compile(r"--[a-z][a-z-]*(?:[ =](?=[^\s,;]*[A-Z=/])[^\s,;]+)?")
MOST = 20
"""The most runs that stand open in a list."""


def span(seconds: float | None) -> str:
    """A time in the unit that suits it; an en dash for none."""
    if seconds is None:
        return "\u2013"
    if seconds < 120:
        return f"{fixed(seconds, 1 if seconds < 10 else 0)}\u00a0s"
    if seconds < 7200:
        return f"{fixed(seconds / 60, 0)}\u00a0min"
    return f"{fixed(seconds / 3600, 1)}\u00a0h"


def state_mark(state: str) -> Html:
    """The state of an experiment or a run in words, with a mark."""
    return tag("span", STATES.get(state, state), class_=f"state is-{state.replace(' ', '-')}")


def elements_words(one: Experiment) -> str:
    """The tables and figures that an experiment stands for: `Tables 1 and 12\u201331, Figure 2`."""
    return _listed(one.elements) or one.name


def coverage_words(coverage: Mapping[str, str]) -> list[str]:
    """What becomes of tables and figures, by the word: `measured: Table 1`, `--full: Table 12`."""
    words = dict.fromkeys(coverage.values())
    return [
        f"{word}: {_listed([name for name, own in coverage.items() if own == word])}"
        for word in words
    ]


def _listed(elements: Sequence[str]) -> str:
    numbers: dict[str, list[int]] = {}
    others = []
    for element in elements:
        kind, _, number = element.partition(" ")
        if kind in ("Table", "Figure") and number.isascii() and number.isdigit():
            numbers.setdefault(kind, []).append(int(number))
        else:
            others.append(element)
    counted = [
        f"{kind}{'s' if len(set(found)) > 1 else ''} {ranges(found)}"
        for kind, found in numbers.items()
    ]
    return ", ".join([*counted, *others])


def answer_section(record: PaperRecord) -> Html:
    """The question, its answer on this model, how sure it is, how much of the paper was run."""
    states = [one.state for one in record.experiments]
    tiles = [
        tag("div", tag("dt", words), tag("dd", str(states.count(state))))
        for state, words in STATES.items()
        if state in states
    ]
    return section(
        "summary",
        "The question, and what was found",
        tag("p", tag("strong", "The paper asks: "), record.question),
        tag("p", record.found or _unanswered(record), class_="answer"),
        tag("p", tag("strong", "How sure: "), record.sure, class_="sure") if record.sure else None,
        tag("dl", tiles, class_="tiles"),
    )


def _unanswered(record: PaperRecord) -> str:
    if any(one.shown for one in record.experiments):
        return "What was run does not answer the paper\u2019s question."
    return "Nothing was run, so there is no answer."


def method_section(record: PaperRecord) -> Html:
    """The paper's method in a few sentences, and how to read the page."""
    return section(
        "method",
        "Method",
        tag("p", " ".join(record.method)),
        tag(
            "p",
            "Below, every table and figure of the paper is measured again with this model; "
            "\u201ctheirs\u201d are the figures that the paper published. A difference is given "
            "only where the same model was measured on the same kind of data. In a table of more "
            "than two columns a cell holds, from above: ours, its 95\u00a0% interval, theirs (ours "
            "minus theirs). Figures without an interval have none.",
            class_="note",
        ),
        tag("p", "What holds for several experiments:", class_="note") if record.notes else None,
        tag("ul", [tag("li", note) for note in record.notes], class_="note")
        if record.notes
        else None,
    )


def experiments_table(record: PaperRecord, at: Mapping[str, str]) -> Html:
    """Every experiment with its state, in the paper's order, linked to where it is told."""
    rows = [
        (
            tag("a", tag("bdi", elements_words(one)), href=f"#{at[one.name]}"),
            tag("bdi", one.title),
            _coverage(one),
            str(len(one.runs)) if one.runs else "\u2013",
            span(_seconds(one.runs)),
        )
        for one in record.experiments
    ]
    caption = join(
        tag("strong", "The paper\u2019s tables and figures, and what became of them. "),
        "Each is measured, needs DATA, a MODEL or an ENDPOINT that is not here, or is left to ",
        tag("code", "--full"),
        ". Several experiments share runs, so their seconds do not add up.",
        None if all(one.shown for one in record.experiments) else _to_not_run(),
    )
    head = ("In the paper", "About", "Coverage", "Runs", "Time")
    body = table("Experiments", head, rows, {1, 2}, class_="numbers experiments")
    return section(
        "experiments", "Experiments", figure("experiments-figure", caption, scroll("All", body))
    )


def _coverage(one: Experiment) -> Html:
    """What became of its elements; of an experiment that was not asked for, its state."""
    words = coverage_words(one.coverage)
    if len(words) == 1:  # the same for all
        words = [next(iter(one.coverage.values()))]
    return tag("span", "; ".join(words)) if words else state_mark(one.state)


def _to_not_run() -> Child:
    link = tag("a", "why, and how to run them", href="#not-run")
    return [" What was not run: see ", link, "."]


def _seconds(runs: Sequence[PaperRun]) -> float | None:
    known = [run.seconds for run in runs if run.seconds is not None and run.state == "run"]
    return sum(known) if known else None


def experiment_section(one: Experiment, at: str, places: Mapping[str, str]) -> Html:
    """One experiment: figures, tables, what was found, how sure, and the runs behind it."""
    heading = join(
        tag("span", tag("bdi", elements_words(one)), class_="elements"),
        tag("span", one.title),
    )
    return section(
        at,
        heading,
        tag(
            "p", state_mark(one.state), _why(one.why), class_="note" if one.why else "note is-plain"
        ),
        tag("p", one.found, class_="found") if one.found else None,
        [told_figure(f"{at}-figure-{n}", figure_) for n, figure_ in enumerate(one.figures, 1)],
        [table_figure(f"{at}-table-{n}", table_) for n, table_ in enumerate(one.tables, 1)],
        tag("p", tag("strong", "How sure: "), one.sure, class_="sure") if one.sure else None,
        _give(one.give),
        _traced(one.runs, places),
        class_="experiment",
    )


def _why(words: str) -> Child:
    return [": ", *with_flags(words)] if words else None


def _give(words: str) -> Html | None:
    if not words:
        return None
    return tag("p", tag("strong", "To run it: "), with_flags(words), class_="give")


def with_flags(words: str) -> list[Child]:
    """Words with the command line's flags in them set as code."""
    made: list[Child] = []
    end = 0
    for match in FLAG.finditer(words):
        made += [words[end : match.start()], tag("code", match[0])]
        end = match.end()
    return [*made, words[end:]]


def _traced(runs: Sequence[PaperRun], places: Mapping[str, str]) -> Html | None:
    if not runs:
        return None
    there = [run for run in runs if run.state != "not run"]
    links: list[Child] = []
    for run in there:
        links += [", " if links else None, tag("a", run.step, href=f"#{places[run.step]}")]
    missing = len(runs) - len(there)
    words = "The run behind it" if len(runs) == 1 else f"The {len(runs)} runs behind it"
    if missing:
        words += f", {missing} of them not run"
    body = tag("p", links or "none", class_="traced")
    if len(there) <= 4:
        return tag("p", f"{words}: ", links or "none", ".", class_="note traced")
    return tag("details", tag("summary", words), body)


def not_run_section(record: PaperRecord, at: Mapping[str, str]) -> Html | None:
    """What was not run: why, and what to give so that it can be."""
    rows = [
        (
            tag("bdi", elements_words(one), id=at[one.name]),
            tag("bdi", one.title),
            state_mark(one.state),
            with_flags(one.why or "\u2013"),
            _to_run(one),
        )
        for one in record.experiments
        if not one.shown
    ]
    if not rows:
        return None
    caption = join(
        tag("strong", f"{count(len(rows), 'experiment')} not run here. "),
        "Where data is missing, the last column says which files the command takes; the run "
        "folder goes on from what it holds.",
    )
    head = ("In the paper", "About", "State", "Why", "To run it")
    body = table("Not run", head, rows, class_="why")
    return section(
        "not-run", "Not run here", figure("not-run-figure", caption, scroll("Not run", body))
    )


def _to_run(one: Experiment) -> Child:
    """What the command has to be given beside what it was given."""
    if one.give:
        return with_flags(one.give)
    if one.state == "missing":
        return "nothing would help"
    flags = f"--only {one.name}"
    return tag("code", f"{flags} --full" if "--full" in one.why else flags)


def runs_section(record: PaperRecord, places: Mapping[str, str]) -> Html | None:
    """Every run that numbers of this page come from: folder, signature, seconds."""
    runs = [run for run in record.runs if run.state != "not run"]
    if not runs:
        return None
    rows = [
        (
            tag("bdi", run.step, id=places[run.step]),
            join(tag("bdi", run.title), f" ({run.note})" if run.note else None),
            state_mark(run.state),
            tag("code", run.run) if run.run else "\u2013",
            tag("code", run.signature) if run.signature else "\u2013",
            span(run.seconds),
        )
        for run in runs
    ]
    caption = join(
        tag("strong", f"{count(len(runs), 'run')} behind the numbers. "),
        "Folders lie below that of this run. A signature says what was computed: command, "
        "configuration, data and model. The times of stored results are those they took where "
        "they were made.",
    )
    head = ("Run", "What", "State", "Folder", "Signature", "Time")
    said = {1, 2, 3, 4}
    shown = scroll("Runs", table("Runs", head, rows[:MOST], said, class_="numbers runs"))
    more = None
    if len(rows) > MOST:
        rest = table("Further runs", head, rows[MOST:], said, class_="numbers runs")
        words = tag("summary", f"The other {len(rows) - MOST}")
        more = tag("details", words, scroll("Further runs", rest))
    return section("runs", "Runs", figure("runs-figure", caption, shown, more))
