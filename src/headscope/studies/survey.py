"""A survey: every method that the data at hand allows, on one model, then what they agree on.

Each method has a run folder of its own below that of the survey, so a survey that was stopped goes
on with the method it was at, and within that where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from headscope.ablations import KINDS
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.errors import InputError, ModelError
from headscope.find.registry import Method, method
from headscope.heads.geometry import count_of
from headscope.progress import Progress
from headscope.results.common import ModelFacts
from headscope.results.methods import MethodRun, MethodsResult, SurveyResult
from headscope.runs import Kept, Result, Run, carry_out, decode, encode
from headscope.runs.reading import result_of
from headscope.settings import GIVEN, Option, Settings
from headscope.shown.blocks import Cell, Section, Shown, table_of
from headscope.studies.compare.methods import (
    CompareMethods,
    TopHeads,
    compare_methods,
    show_methods,
)
from headscope.studies.judging import (
    DRAWS,
    EXAMPLES,
    SETS,
    circuit_settings,
    judges,
    set_size,
    show_judges,
    tokens_of,
)
from headscope.studies.models import (
    PROMPTED_ARGUMENT,
    ModelChoice,
    about_loaded,
    about_model,
    about_prompts,
    dtype_name,
    kept_model,
    model_inputs,
    model_provenance,
    template_inputs,
)
from headscope.studies.named_data import data_digests
from headscope.studies.registry import COMMANDS, methods, study_of
from headscope.studies.report import write_report
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyData, SurveyPlan
from headscope.studies.verify.circuit import read_examples

COMMAND = "survey"
#: A method, given its folder; one from elsewhere may return a dictionary.
Runner = Callable[[Path, Progress | None], Result | Mapping[str, Any]]
#: Where the runs of the methods, their comparison and judging are, below the survey's folder.
RUNS, COMPARISON, JUDGES = "runs", "methods", "judges"


@dataclass(frozen=True)
class Survey(Settings):
    """Run every method of finding heads that the data allows, and show how far they agree.

    The bundled model brings data for all of them. Writes report.html into the run folder.
    """

    model: Annotated[ModelChoice, PROMPTED_ARGUMENT] = field(default_factory=ModelChoice)
    data: SurveyData = field(default_factory=SurveyData)
    methods: Annotated[
        tuple[str, ...],
        Option(
            "Only this one, see `headscope methods`; repeatable. Without it all that the data "
            "allows.",
            flag="--method",
            metavar="NAME",
        ),
    ] = ()
    # Methods that need their time are left out.
    quick: Annotated[bool, Option("Little data and no long trainings: a first look.")] = False
    k: TopHeads = None
    judge: Annotated[
        bool | None,
        Option(
            "Judge every ranking on examples that no method finds on: are its best heads enough "
            "(as verify circuit), and does it predict what removing random sets does? By --task, "
            "else by translation.",
            flag="--judge",
        ),
    ] = field(default=None, metadata=GIVEN)
    judged: Annotated[
        int | None,
        Option(
            f"With --judge: examples; without it {EXAMPLES}, with --quick {QUICK}. Of a task a "
            "quarter of them is set aside for what replaces heads.",
            min=2,
        ),
    ] = field(default=None, metadata=GIVEN)
    draws: Annotated[
        int | None,
        Option(f"With --judge: random rankings; without it {DRAWS}.", min=1, panel="Test"),
    ] = field(default=None, metadata=GIVEN)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("judged", "draws"):
            if getattr(self, name) is not None and not self.judge:
                raise InputError(f"--{name} is for judging; add --judge")
        if self.judge and len(self.data.task) > 1:
            raise InputError(
                f"{len(self.data.task)} tasks are named; methods are judged by one, name it alone"
            )

    def plan(self, folder: Path) -> SurveyPlan:
        """What the methods are told, whose runs are below the survey's folder."""
        judged = self.judged or (QUICK if self.quick else EXAMPLES) if self.judge else None
        return SurveyPlan(self.model, self.data, self.quick, folder / RUNS, judged)


def survey(
    config: Survey,
    out: Path | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> SurveyResult:
    """Run the methods, compare them, judge them if asked, and write the report; the command's
    result. `tell` is given a sentence on what judging costs before it begins.

    A method whose data cannot be used, or that finds nothing to count, is told with its reason,
    and the others go on.

    Raises:
        InputError: for an unknown method, or if fewer than two methods could be run.
    """
    from headscope.lm.prompting import uses_chat

    began = time.monotonic()
    known = methods()
    wanted = [method(name, known) for name in dict.fromkeys(config.methods) or known]
    if len(wanted) < 2:
        raise InputError("only one method is asked for, so there is nothing to compare; name more")
    lm = config.model.load_for()
    count_of(config.k if config.k is not None else 1, lm.geometry.total)
    chat = uses_chat(lm, config.data.chat, DEFAULT_TEMPLATE.text)
    config = replace(config, data=replace(config.data, chat=chat))
    settings = {
        "settings": config,
        "methods": [language.name for language in wanted],
        "computed_in": dtype_name(lm),
    }
    if config.judge:  # before the methods take their time
        set_size(lm.geometry)
        read_examples(circuit_settings(config.plan(Path())), *KINDS)
    inputs = model_inputs(lm) | data_digests(config.data.places())
    inputs |= template_inputs(lm) if chat else {}
    prompts = about_prompts(lm) if chat else {}

    def compute(run: Run) -> SurveyResult:
        counted, kept = partial(tokens_of, lm) if config.judge else nullcontext, Kept(run, "tokens")
        with kept_model():  # loaded by the first method whose data can be used
            rows = [_run(each, config, run.path, progress, counted, kept) for each in wanted]
            if any(row.run for row in rows):
                run.provenance |= about_loaded(lm)
            found = {row.method: str(run.path / str(row.run)) for row in rows if row.compared}
            if len(found) < 2:
                why = "; ".join(f"{row.method}: {row.why}" for row in rows if row.why)
                raise InputError(
                    "fewer than two methods could be run, so there is nothing to compare "
                    f"({why}); name or give data for more of them"
                )
            judged = None
            if config.judge:
                draws, folder = config.draws or DRAWS, run.path / JUDGES
                made = judges(config.plan(run.path), found, draws, SETS, folder, progress, tell)
                judged = replace(made, run=None)  # the folder may be moved
        compared_runs = compare_methods(
            CompareMethods(tuple(found.values()), config.k, rank=config.data.rank),
            run.path / COMPARISON,
        )
        return SurveyResult(
            model=decode(ModelFacts, about_model(lm) | prompts),
            quick=config.quick,
            runs=tuple(rows),
            comparison=compared_runs.comparison,
            judges=judged,
        )

    about = model_provenance(lm)
    result = carry_out(COMMAND, out, settings, inputs, compute, began, about, kind=SurveyResult)
    return replace(result, report=str(write_report(str(result.run)).resolve()))


def _run(
    entry: Method,
    config: Survey,
    folder: Path,
    progress: Progress | None,
    counted: Callable[[], AbstractContextManager[Any]],
    kept: Kept,
) -> MethodRun:
    """Run one method below `folder`, or say why not; what is `counted` in a whole run is kept."""
    row = MethodRun(entry.name, entry.measures, entry.needs)
    place = f"{RUNS}/{entry.name}"
    planned = _plan(entry, config, folder)
    if isinstance(planned, str):
        return replace(row, why=planned)
    new = not (folder / place).exists()
    try:
        with counted() as tokens:
            result = encode(planned(folder / place, progress))
    except ModelError:
        raise  # no method could go on
    except InputError as error:
        return replace(row, why=str(error))
    compared = entry.name != "soft-gate"
    why = None if compared else "its heads are those of translation-score, and so not compared"
    if new and tokens:
        kept.add(entry.name, {name: round(number) for name, number in tokens.items()})
    about = {"seconds": result.get("seconds"), **kept.get(entry.name, {})}
    return replace(row, run=place, compared=compared, why=why, **about)


def _plan(entry: Method, config: Survey, folder: Path) -> Runner | str:
    """How a method is run with the data at hand, or in words why it is not."""
    if entry.recipe is not None:
        function = _from_elsewhere(entry)
        return lambda out, progress: function(config.model, out, config.quick, progress)
    command = "verify heads" if entry.name == "single-removal" else f"find {entry.name}"
    study = study_of(command) if command in COMMANDS else None
    if study is None or study.survey is None:
        return "it has no recipe here; run it by itself and name its run in compare methods"
    planned = study.survey(config.plan(folder))
    if isinstance(planned, str):
        return planned
    return lambda out, progress: study.run(planned, out, progress)


def _from_elsewhere(entry: Method) -> Callable[..., Result | Mapping[str, Any]]:
    module, _, name = str(entry.recipe).partition(":")
    try:
        function: Callable[..., Result | Mapping[str, Any]] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"the recipe {entry.recipe!r} of the method {entry.name} cannot be loaded ({error}); "
            "write it as package.module:function"
        ) from error
    return function


def _show(result: SurveyResult, run: Path) -> Shown:
    compared = result_of(run / COMPARISON, MethodsResult, "a comparison of methods")
    shown = show_methods(result.comparison, compared.geometry, result.model.name or "model")

    def thousands(tokens: int | None) -> Cell:
        return Cell(None if tokens is None else tokens / 1e3, digits=0, why="not counted")

    costs: dict[str, Callable[[MethodRun], Cell]] = {
        "1,000 tokens": lambda row: thousands(row.forward_tokens),
        "with gradients": lambda row: thousands(row.gradient_tokens),
    }
    ran = table_of(
        "Methods of this survey",
        ((row.method, row) for row in result.runs),
        {
            "what it measures": lambda row: row.measures,
            **({} if result.judges is None else costs),
            "time": lambda row: Cell(row.seconds, digits=0, unit="s", why="left out"),
            "remark": lambda row: row.why,
        },
        f"Each has a run folder with a report of its own, {RUNS}/METHOD below that of the survey",
    )
    shown = shown if result.judges is None else show_judges(result.judges, shown)
    return replace(shown, sections=[*shown.sections, Section("What was run", [ran], brief=True)])


command = Study(Survey, survey, result=SurveyResult, show=_show, usage="pocket --quick")
