"""A study: what a command asks for, what it computes, and what it shows of that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.settings import Option
from headscope.shown.blocks import PROMPT, Cell, Row, Section, Shown, Table, Text
from headscope.shown.words import MINUS, arrow, count, enumeration

if TYPE_CHECKING:
    from headscope.results.common import BaselineCheck, ClusterJob
    from headscope.runs import Result
    from headscope.studies.survey_plans import SurveyPlan

#: Parts that a sentence names, of more their number.
LISTED = 4
RUN_FOLDER = Option(
    "The run folder; without it runs/COMMAND-HASH.", metavar="DIR", default=None, panel="Running"
)
OUT_FILE = Option("The file to write.", metavar="FILE", default=None, panel="Running")


@dataclass(frozen=True)
class Study:
    """What a command is made of; it stands in its module as `command`.

    Attributes:
        settings: what is asked for, or a function that makes it; the docstring is the command's
            help, fields or parameters are its options.
        run: settings to result; it is given `out`, `progress` and `tell` where it takes them.
        text: what the terminal shows of a result, of a study that has no `show`.
        result: the type of the result, as its run folder is read again.
        show: a result and its run folder to what it shows; it needs no model.
        out: what `--out` says, required unless it has a default; None: there is none.
        loads: whether a model is loaded where there is progress; of settings, whether by these.
        failure: why a result that is printed all the same ends the command with code 2, or None.
        ends: the code that the command ends with by its result, an answer to scripts.
        survey: of a method that finds heads, its settings in a survey, or in words why it is left
            out.
        measures, needs: of such a method what a head's score says, in one line, and what data it
            needs; a method that `find.registry` has says so there.
        usage: arguments as an example, which work on the bundled model where they can; None: no
            example.
        instead: what is told of the options without a run, as JSON and as text, which may come in
            pieces; None: nothing.
    """

    settings: Callable[..., Any]
    run: Callable[..., Any]
    text: Callable[[Any], str] = str
    result: Any = None
    show: Callable[[Any, Path], Shown] | None = None
    out: Option | None = RUN_FOLDER
    loads: bool | Callable[[Any], bool] = True
    failure: Callable[[Any], str | None] = lambda result: None
    ends: Callable[[Any], int] = lambda result: 0
    survey: Callable[[SurveyPlan], Any] | None = None
    measures: str = ""
    needs: str = ""
    usage: str | None = None
    instead: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], str | Iterable[str]] | None] = (
        lambda given: None
    )


def shown_of(study: Study, result: Result, run: Path) -> Shown:
    """What a result shows, with what is said of any: whether the model does the task at all, what
    heads are ranked by, and its cautions."""
    from headscope.heads import rank_words  # not read by the command line before a command runs
    from headscope.results.common import ClusterJob, PlannedWork
    from headscope.runs import encode
    from headscope.runs.reading import read_object
    from headscope.studies.shows import values_of

    if study.show is None:
        raise ValueError("this study has no `show`")
    if isinstance(result, ClusterJob):
        return _job(result)
    if isinstance(result, PlannedWork):
        less = "A smaller --limit takes less; --minutes M ends early with what there is."
        planned = [*(part.words for part in result.plan), less]
        sent = [_sent(result.first_prompts)] if result.first_prompts else []
        brief = [replace(section, brief=True) for section in sent]
        return Shown("What it takes", "", planned, sections=brief)
    shown = study.show(result, run)
    if result.pending:
        shown = so_far(shown)
    written = encode(getattr(result, "details", result))
    if by := rank_words(written):
        shown = replace(shown, facts=(*shown.facts, ("heads ranked by", by)))
    checked = getattr(result, "checked", result)
    check = getattr(checked, "baseline_check", None)
    if check is not None and not all(judged.works for judged in check.judged.values()):
        judged = check.judged.values()
        faulty = [name for name, each in check.judged.items() if "data_at_fault" in each.counts]
        failed = [arrow(name) for name, each in check.judged.items() if each.works is False]
        if faulty:
            title = "The data are at fault"
            why = "; ".join(check.judged[faulty[0]].reasons)
            warning = f"The data are at fault, not the model ({arrow(faulty[0])}: {why})."
        elif failed:
            title = "The model does not do this task"
            part = f" in {_few(failed, len(judged))}" if len(failed) < len(judged) else ""
            warning = (
                f"The original model does not do this task{part}, so what follows says little "
                f"about it. Try {check.tries}."
            )
        else:
            title = "Does the model do this task?"
            warning = (
                "Whether the original model does this task depends on the shots: behind others it "
                f"does. Try {check.tries}."
                if any(each.swayed for each in judged)
                else "Whether the original model does this task cannot be told from so few "
                "examples."
            )
        sections = (*shown.sections, _baseline(check, title))
        void = all(each.works is False or "data_at_fault" in each.counts for each in judged)
        shown = replace(shown, warning=warning, muted=void, sections=sections)
    if prompts := getattr(result, "first_prompts", None):
        shown = replace(shown, sections=(*shown.sections, _sent(prompts)))
        if any(values_of("chat", read_object(run / "run.json"))):
            shown = replace(shown, facts=(*shown.facts, (PROMPT, "chat template")))
    cautions = dict.fromkeys([*result.cautions, *shown.cautions])
    cautions.pop(shown.warning, None)
    return replace(shown, cautions=tuple(cautions))


def _few(names: Sequence[str], of: int) -> str:
    """Names of parts, or of many their number."""
    return enumeration(names) if len(names) <= LISTED else f"{len(names)} of {of} parts"


UNFINISHED = (
    "This run has not ended: the same command goes on. What it says is valid at any moment."
)


def so_far(shown: Shown) -> Shown:
    """What a run shows that has not ended."""
    cautions = (UNFINISHED, *shown.cautions)
    return replace(shown, title=f"So far: {shown.title}", cautions=cautions)


def _job(job: ClusterJob) -> Shown:
    state = "was submitted" if job.submitted else "is still at work"
    left = f"{count(job.units_left, 'part')} of the run not computed yet; logs: {job.logs}"
    again = "Run the same command again when the job has ended."
    return Shown("Work on a cluster", "", [f"Job {job.job} {state}: {left}", again])


def _sent(prompts: Mapping[str, str]) -> Section:
    """The first prompt of each part, as the model read it."""
    texts = tuple((arrow(name), text) for name, text in prompts.items())
    return Section("The prompt that was sent", [Text("The first prompt", texts, folded=True)])


def _baseline(check: BaselineCheck, title: str) -> Section:
    """What speaks against the model, of each direction or task with some outputs."""
    columns = ("input", "output of the original model", "reference")
    tables = [
        Table(
            f"The original model, {arrow(name)}",
            columns,
            tuple(
                Row(
                    str(number),
                    tuple(
                        Cell(text or "(empty)")
                        for text in (example.input, example.output, example.reference)
                    ),
                )
                for number, example in enumerate(judged.shown, 1)
            ),
            note=re.sub(r" -(?=\d)", f" {MINUS}", f"Reasons: {'; '.join(judged.reasons)}"),
        )
        for name, judged in check.judged.items()
        if not judged.works
    ]
    return Section(title, tables, brief=True)
