"""What a reproduction shows: the answer, its experiments in one table and one by one, the runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from headscope.results.common import ModelResult
from headscope.runs import Record, Result
from headscope.shown.blocks import Cell, Claim, Figure, Row, Section, Shown, Table
from headscope.shown.words import count, fixed, ranges

#: The states of an experiment, and what they are called.
STATES = {
    "run": "run",
    "part": "run in part",
    "stored": "from stored results",
    "not run": "not run",
    "missing": "data missing",
}


@dataclass(frozen=True, kw_only=True)
class PaperRun(Record):
    """One of the runs behind an experiment: run, read from stored results, or not run."""

    step: str
    title: str
    run: str | None = None
    signature: str | None = None
    seconds: float | None = None
    state: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExperimentResult(Record):
    """What stands for one or several tables and figures of the paper.

    `why` says why it was not run, or not whole, `give` what the command needs for it; `coverage`
    what became of each table and figure.
    """

    name: str
    elements: tuple[str, ...]
    title: str
    state: Literal["run", "part", "stored", "not run", "missing"]
    why: str | None = None
    give: str | None = None
    runs: tuple[PaperRun, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    found: str = ""
    sure: str = ""
    coverage: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> bool:
        """Whether there is anything to show of it."""
        return self.state in ("run", "part", "stored")

    @property
    def named(self) -> str:
        """Its tables and figures in short."""
        return _listed(self.elements) or self.name


@dataclass(frozen=True, kw_only=True)
class PaperFacts(Record):
    """The paper: what it asks, and how."""

    name: str
    title: str
    source: str = ""
    question: str = ""
    method: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer(Record):
    """What a paper's claims come to on this model, what that rests on, and each claim."""

    found: str = ""
    sure: str = ""
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Totals(Record):
    """How many runs there are, made, stored and not made, and how long they took."""

    runs: int = 0
    run: int = 0
    stored: int = 0
    not_run: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Listed(Result):
    """The result of `reproduce PAPER --list`."""

    experiments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Reproduced(ModelResult):
    """What the runs of one paper and of all have in common."""

    command_line: str = ""
    totals: Totals = field(default_factory=Totals)
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole_command(self) -> str:
        """The command with the folder that it wrote."""
        if not self.run or "--out" in self.command_line.split():
            return self.command_line
        return f"{self.command_line} --out {quote(self.run)}"


@dataclass(frozen=True, kw_only=True)
class PaperResult(Reproduced):
    """The result of `reproduce PAPER`."""

    paper: PaperFacts
    answer: Answer
    notes: tuple[str, ...] = ()
    experiments: tuple[ExperimentResult, ...]

    def __post_init__(self) -> None:
        if len({experiment.name for experiment in self.experiments}) < len(self.experiments):
            raise ValueError("two experiments have one name")

    @property
    def runs(self) -> tuple[PaperRun, ...]:
        """Every run behind the experiments once, in their order."""
        return tuple(
            {run.step: run for experiment in self.experiments for run in experiment.runs}.values()
        )


@dataclass(frozen=True, kw_only=True)
class ReproducedPaper(Record):
    """One of the papers of `reproduce all`; `run` and `report` lie below its folder."""

    name: str
    title: str
    question: str = ""
    answer: Answer
    totals: Totals
    report: str = ""


@dataclass(frozen=True, kw_only=True)
class PapersResult(Reproduced):
    """The result of `reproduce all`."""

    papers: tuple[ReproducedPaper, ...]


def show_paper(result: PaperResult, run: Path) -> Shown:
    """The answer, every experiment, what was not run, and the runs."""
    paper, shown = (
        result.paper,
        [experiment for experiment in result.experiments if experiment.shown],
    )
    made = [run for run in result.runs if run.state != "not run"]
    # The claims stand beside the answer; where there are none, the overview.
    claims = _claims(result.answer.claims)
    sections = _by_claim(result.answer.claims, shown)
    if claims:
        sections.append(Section("Experiments", [_overview(result)], brief=True))
    if made:
        sections.append(Section("Runs", [_runs(made)]))
    method = (
        "Every table and figure of the paper is measured again with this model; \u201ctheirs\u201d "
        "are the published figures. A difference is given only where model, data, prompt, decoding "
        "and measure are the paper's."
    )
    sections += [
        Section("Method", [], lead=" ".join(paper.method), after=[method, *result.notes]),
        Section("How to repeat it", [], after=_repeat(result)),
    ]
    return Shown(
        paper.title,
        f"{paper.question} Measured again on {result.model_name}.",
        [result.answer.found],
        result.answer.sure,
        facts=[
            ("", paper.source),
            ("model", result.model_name),
            ("experiments", f"{len(shown)} of {len(result.experiments)}"),
            ("runs", f"{len(made)} of {len(result.runs)}"),
            ("time", span(result.totals.seconds)),
        ],
        sections=sections,
        figure=claims or _overview(result),
    )


def show_papers(result: PapersResult, run: Path) -> Shown:
    """The answers of all papers, each with where its report lies."""
    rows = []
    for paper in result.papers:
        totals = paper.totals
        row = _row(paper.title, totals.run, totals.stored, totals.not_run, span(totals.seconds))
        rows.append(Row(row.name, (*row.cells, Cell(paper.report, link=paper.report))))
    columns = ("runs made", "stored", "not run", "time", "report")
    return Shown(
        f"{count(len(result.papers), 'paper')} on {result.model_name}",
        "What each paper measured, measured again on this model.",
        [f"{paper.title}: {paper.answer.found}" for paper in result.papers],
        facts=[("runs", str(result.totals.runs)), ("time", span(result.totals.seconds))],
        sections=[
            *(
                Section(paper.title, [], lead=paper.question, after=[paper.answer.sure])
                for paper in result.papers
                if paper.answer.sure
            ),
            Section("How to repeat it", [], after=[result.whole_command]),
        ],
        figure=Table("The papers and their runs", columns, tuple(rows)),
    )


def show_listed(result: Listed) -> Shown:
    """Every experiment: what becomes of its tables and figures, and what it needs."""
    rows = []
    for row in result.experiments:
        needs = [
            "; ".join(filter(None, (reason["why"], reason["give"]))) for reason in row["missing"]
        ]
        runs = f"{row['finished']} of {count(row['runs'], 'run')}" if row["runs"] else ""
        words = "; ".join(coverage_words(row["coverage"]))
        name = f"{row['paper']} {row['name']}"
        rows.append(_row(name, row["title"], words, runs, " ".join(needs)))
    columns = ("about", "coverage", "finished or stored", "needs")
    table = Table("Tables and figures", columns, tuple(rows))
    section = Section("Experiments", [table], brief=True)
    return Shown("Experiments", "", [f"{len(rows)} experiments."], sections=[section])


def span(seconds: float | None) -> str:
    """A time in the unit that suits it; an en dash for none."""
    if seconds is None:
        return "\u2013"
    if seconds < 120:
        return f"{fixed(seconds, 1 if seconds < 10 else 0)}\u00a0s"
    if seconds < 7200:
        return f"{fixed(seconds / 60, 0)}\u00a0min"
    return f"{fixed(seconds / 3600, 1)}\u00a0h"


def coverage_words(coverage: Mapping[str, str]) -> list[str]:
    """What becomes of tables and figures, by the word: `measured: Table 1`, `--full: Table 12`."""
    return [
        f"{word}: {_listed([name for name, state in coverage.items() if state == word])}"
        for word in dict.fromkeys(coverage.values())
    ]


def _listed(elements: Sequence[str]) -> str:
    """Tables and figures in short: `Tables 1 and 12\u201331, Figure 2`."""
    numbers: dict[str, list[int]] = {}
    others = []
    for element in elements:
        kind, _, number = element.partition(" ")
        if kind in ("Table", "Figure") and number.isascii() and number.isdigit():
            numbers.setdefault(kind, []).append(int(number))
        else:
            others.append(element)
    counted = [
        f"{kind}{'s' if len(set(places)) > 1 else ''} {ranges(places)}"
        for kind, places in numbers.items()
    ]
    return ", ".join([*counted, *others])


def _row(name: str, *values: float | str | None) -> Row:
    return Row(name, tuple(map(Cell, values)))


def _claims(claims: Sequence[Claim]) -> Table | None:
    """Every claim: what the paper says, what was measured here, the verdict, what may change it."""
    rows = [
        _row(claim.name, f"{claim.says} ({claim.place})", claim.by.partition("; ")[0] or "\u2013",
             claim.verdict, claim.changes)
        for claim in claims
    ]  # fmt: skip
    columns = ("the paper", "measured here", "verdict", "what would change it")
    note = (
        "Does not hold: the interval excludes the effect that is claimed. Holds: the intervals of "
        "all its effects exclude that there is none, and so few random sets do as much. Open: "
        "neither. Verdicts are corrected for the number of claims."
    )
    return Table("The claims", columns, tuple(rows), note=note) if rows else None


def _measured(claim: Claim) -> str:
    """Why a claim is open, what was measured of it, and what decides nothing."""
    parts = [claim.decides, claim.by, claim.rank, claim.note]
    return "; ".join(dict.fromkeys(filter(None, parts)))


def _by_claim(claims: Sequence[Claim], shown: Sequence[ExperimentResult]) -> list[Section]:
    """A section a claim, behind it the experiments that measure it, folded; then the others."""
    left = {experiment.name: experiment for experiment in shown}
    sections = list[Section]()
    for claim in claims:
        tested = [f"Tested: {claim.sure}."] if claim.sure else []
        lead = f"{claim.verdict[:1].upper()}{claim.verdict[1:]}: {_measured(claim)}".rstrip(": ")
        own = [left.pop(name) for name in claim.experiments if name in left]
        sections.append(Section(claim.name, [], f"{lead}.", after=tested, kicker=claim.short))
        sections += map(_experiment, own)
    if claims and left:
        sections.append(Section("Further tables and figures", []))
    return [*sections, *map(_experiment, left.values())]


def _overview(result: PaperResult) -> Table:
    """Every experiment with what became of its tables and figures, in the paper's order."""
    rows = []
    for experiment in result.experiments:
        words = coverage_words(experiment.coverage)
        if len(words) == 1:  # the same for all
            words = [next(iter(experiment.coverage.values()))]
        known = [run.seconds for run in experiment.runs if run.seconds is not None]
        coverage, time = (
            "; ".join(words) or STATES[experiment.state],
            span(sum(known) if known else None),
        )
        needs = [] if experiment.shown else [experiment.why, experiment.give or _flags(experiment)]
        row = (
            experiment.title,
            coverage,
            len(experiment.runs),
            time,
            "; ".join(filter(None, needs)),
        )
        rows.append(_row(experiment.named, *row))
    return Table(
        "The paper's tables and figures, and what became of them",
        ("about", "coverage", "runs", "time", "why not run, and what to give"),
        tuple(rows),
        note="Each is measured, needs DATA, a MODEL or an ENDPOINT that is not here, or is left to "
        "--full. Experiments share runs, so their times do not add up.",
    )


def _flags(experiment: ExperimentResult) -> str:
    """With which flags an experiment that was not run is."""
    if experiment.state == "missing":
        return "nothing would help"
    return f"--only {experiment.name}" + (" --full" if "--full" in (experiment.why or "") else "")


def _experiment(experiment: ExperimentResult) -> Section:
    after = [f"Uncertainty: {experiment.sure}"] if experiment.sure else []
    if experiment.state != "run" or experiment.why:
        after.append(
            f"{STATES[experiment.state]}{f': {experiment.why}' if experiment.why else ''}."
        )
    if experiment.give:
        after.append(f"To run it: {experiment.give}")
    traced = ", ".join(run.step for run in experiment.runs if run.state != "not run")
    return Section(
        experiment.title,
        [*experiment.figures, *experiment.tables],
        lead=experiment.found,
        after=after,
        traced=f"Runs: {traced}." if traced else "",
        kicker=experiment.named,
        compact=True,
        folded=True,
    )


def _runs(made: Iterable[PaperRun]) -> Table:
    rows = []
    for run in made:
        title = f"{run.title} ({run.note})" if run.note else run.title
        state = STATES.get(run.state, run.state)
        rows.append(_row(run.step, title, state, run.run, run.signature, span(run.seconds)))
    return Table(
        f"{count(len(rows), 'run')} behind the numbers",
        ("what", "state", "folder", "signature", "time"),
        tuple(rows),
        note="Folders lie below that of this run. Times of stored results are those where they "
        "were made.",
    )


def _repeat(result: PaperResult) -> list[str]:
    """How to repeat what was run, and what failed."""
    left = [run.title for run in result.runs if run.state == "not run"]
    return [
        result.whole_command,
        f"It took {span(result.totals.seconds)} of computing. Finished runs are read again; the "
        "same command goes on where it was stopped.",
        *(f"Failed: {step}: {why}" for step, why in result.failed.items()),
        *([f"Not made: {', '.join(left)}."] if left else []),
    ]
