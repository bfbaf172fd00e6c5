"""A paper on one model: its experiments are run, told, and put beside what was published."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.data.chat import ChatModel, EndpointError, default_cache
from headscope.errors import InputError, MissingExtra, ModelError
from headscope.papers.estimate import bytes_here, seconds_here
from headscope.papers.paper import Failed, Paper, PaperData, Setting, Steering, Word
from headscope.papers.plan import Plan, PlannedStep, make_plan, stored_result
from headscope.papers.registry import PAPERS, experiments_named, paper_named
from headscope.papers.results import describe
from headscope.runs import Run, carry_out
from headscope.settings import GIVEN, UNSIGNED, MadeBy, Option, Settings
from headscope.studies.inputs import (
    ModelChoice,
    Progress,
    about_model,
    kept_model,
    model_inputs,
    model_provenance,
)
from headscope.studies.report import write_report

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "reproduce"
#: Where runs would be if no folder is named yet: one that never is.
NOWHERE = Path("runs") / "none"
Announce = Callable[[str, Plan], None]


def _llm(llm_model: options.LlmModel = None, base_url: options.BaseUrl = None) -> ChatModel | None:
    """The language model that sorts failures beside the rules, and links words."""
    if llm_model is None:
        return None
    return ChatModel(llm_model, base_url, default_cache("failures"))


@dataclass(frozen=True)
class Reproduce(Settings):
    """Run a paper's experiments on a model and put them beside what the paper published.

    Every table and figure is a named experiment. What was stopped goes on with the same command;
    what needs data that is not there says which. Writes report.html into the run folder.
    """

    paper: Annotated[
        str,
        Option(
            "token-alignment-heads, lahis, heads-up, or all three: all. beside: experiments "
            "that none of them has.",
            metavar="PAPER",
            argument=True,
        ),
    ]
    model: ModelChoice = field(default_factory=ModelChoice)
    data: PaperData = field(default_factory=PaperData)
    seed: options.Seed = 0
    # What these three leave out changes no number, so runs with and without share one folder.
    only: Annotated[
        tuple[str, ...],
        Option("An experiment, or a table or figure, such as table-1; repeatable.", metavar="NAME"),
    ] = field(default=(), metadata=UNSIGNED)
    full: Annotated[bool, Option("Also make the runs that are left out for their time.")] = field(
        default=False, metadata=UNSIGNED
    )
    retrain: Annotated[bool, Option("Repeat trainings whose results come with the package.")] = (
        field(default=False, metadata=UNSIGNED)
    )
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    steering: Steering = field(default_factory=Steering)
    llm: Annotated[ChatModel | None, MadeBy(_llm)] = field(default=None, metadata=GIVEN)


def reproduce(
    config: Reproduce,
    out: Path | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Run the experiments that are asked for, and write result and report; the command's result.

    Every step has a run folder of its own below `out`, so what was stopped goes on where it was,
    and experiments that share a step share its run. A step whose data cannot be used is told with
    its reason in `failed`, and the others go on. `announce` hears the paper's name and the plan
    before anything is run.

    Raises:
        InputError: for an unknown paper or experiment, and for a finished step that is not what
            would be computed now, or of which that cannot be told; all that is there stays.
    """
    paper = paper_named(config.paper)
    asked = {one.name for one in experiments_named(paper, config.only)}
    with kept_model():
        lm = config.model.load()
        model = about_model(lm)

        def compute(run: Run) -> dict[str, Any]:
            nonlocal lm
            setting = _setting(config, lm.geometry, lm.digest, run.path)
            plan = make_plan(paper.experiments, setting, seconds_here(lm), bytes_here(lm))
            wanted = Plan(tuple(one for one in plan.experiments if one.experiment.name in asked))
            if announce is not None:
                announce(paper.name, wanted)
            del lm
            failed = _run_all(paper, plan, wanted.due, setting, progress)
            after = make_plan(paper.experiments, setting)
            _keep_stored(after, setting)
            return {
                "command": _command(config),
                "model": model,
                "seed": config.seed,
                **describe(paper, after, setting, asked, failed),
                "failed": {name: why for name, (why, _) in failed.items()},
            }

        return _reported([paper], config, lm, out, compute)


def reproduce_all(
    config: Reproduce,
    out: Path | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Run every paper, each below `out` in a folder of its name, and write an index of them."""
    with kept_model():
        lm = config.model.load()
        model = about_model(lm)

        def compute(run: Run) -> dict[str, Any]:
            nonlocal lm
            del lm
            papers = []
            for name in PAPERS:
                one = dataclasses.replace(config, paper=name)
                found = reproduce(one, run.path / name, progress, announce)
                papers.append(
                    {
                        **{key: found["paper"][key] for key in ("name", "title", "question")},
                        **{key: found[key] for key in ("answer", "totals", "signature", "failed")},
                        "run": name,
                        "report": f"{name}/report.html",
                    }
                )
            counts = ("runs", "run", "stored", "not_run", "seconds")
            return {
                "command": _command(config),
                "model": model,
                "papers": papers,
                "totals": {key: sum(one["totals"][key] for one in papers) for key in counts},
                "failed": {
                    f"{one['name']}: {step}": why
                    for one in papers
                    for step, why in one["failed"].items()
                },
                "seconds": sum(one["totals"]["seconds"] for one in papers),
            }

        return _reported([paper_named(name) for name in PAPERS], config, lm, out, compute)


def planned(config: Reproduce, geometry: Any, digest: str, folder: Path) -> tuple[Paper, Plan]:
    """What would be run, without a model: for lists."""
    paper = paper_named(config.paper)
    setting = _setting(config, geometry, digest, folder)
    named = experiments_named(paper, config.only) if config.only else paper.experiments
    return paper, make_plan(named, setting)


def _reported(
    papers: list[Paper],
    config: Reproduce,
    lm: LanguageModel,
    out: Path | None,
    compute: Callable[[Run], dict[str, Any]],
) -> dict[str, Any]:
    """The result of the run of these papers, filled up where it is finished, and its report."""
    _check(papers, config, lm)
    inputs = model_inputs(lm, {}) | config.data.digests()
    command, about = f"{COMMAND} {config.paper}", model_provenance(lm)
    del lm  # one step may need all the memory for another model
    result = carry_out(
        command, out, {"settings": config}, inputs, compute, None, about, fills_up=True
    )
    return {**result, "report": str(write_report(Path(result["run"])).resolve())}


def _check(papers: list[Paper], config: Reproduce, lm: LanguageModel) -> None:
    """InputError for flags that no plan can be made of, before a folder is bound to them."""
    if config.steering.aligner == "llm" and config.llm is None:
        raise InputError("--aligner llm needs --llm-model NAME, the model that links words")
    for name in config.steering.given:
        if not any(name in paper.steered for paper in papers):
            known = sorted({one for paper in papers for one in paper.steered})
            raise InputError(
                f"{config.paper} is not steered by --{name}; it takes "
                f"{', '.join(f'--{one}' for one in known)}"
            )
    setting = _setting(config, lm.geometry, lm.digest, NOWHERE)
    for paper in papers:
        make_plan(paper.experiments, setting)


def _setting(config: Reproduce, geometry: Any, digest: str, folder: Path) -> Setting:
    return Setting(
        model=config.model,
        geometry=geometry,
        digest=digest,
        data=config.data,
        folder=folder,
        seed=config.seed,
        full=config.full,
        retrain=config.retrain,
        batch_tokens=config.batch_tokens,
        steering=config.steering,
        llm=config.llm,
    )


def _run_all(
    paper: Paper,
    plan: Plan,
    due: Sequence[PlannedStep],
    setting: Setting,
    progress: Progress | None,
) -> dict[str, Failed]:
    """Run the steps that are due; those that could not be, with why.

    Finished steps of the plan are asked for their results too: their studies compute which run it
    would be now, and raise `InputError` where another one is there. That cannot be told of a step
    behind one that is not there.
    """
    failed: dict[str, Failed] = {}
    known = {one.step.name for one in plan.steps if one.state == "stored"}
    at = 0
    for one in plan.steps:
        name = one.step.name
        if one.state == "done" and known.issuperset(one.step.after):
            one.step.run(setting, setting.at(name), None)
            known.add(name)
        if one not in due:
            continue
        if progress is not None:
            progress(f"{paper.name}, runs", at, len(due))
        at += 1
        broken = [before for before in one.step.after if before in failed]
        damage = setting.damage(name)
        if damage is not None:
            failed[name] = damage, None
            continue
        if broken:
            failed[name] = f"it needs {broken[0]}, which failed", failed[broken[0]][1]
            continue
        try:
            one.step.run(setting, setting.at(name), _titled(one, progress))
            known.add(name)
        except InputError as error:
            failed[name] = _said(error), _needed(error)
    if progress is not None and due:
        progress(f"{paper.name}, runs", len(due), len(due))
    return failed


def _needed(error: InputError) -> Word | None:
    """What would have kept a step from failing; None where that is a package."""
    if isinstance(error, MissingExtra):
        return None
    model, endpoint = isinstance(error, ModelError), isinstance(error, EndpointError)
    return "needs MODEL" if model else "needs ENDPOINT" if endpoint else "needs DATA"


def _said(error: InputError) -> str:
    """What a recipe says; options that only its own command has are told apart."""
    kinds = (Reproduce, ModelChoice, PaperData, Steering)
    names = {one.name for kind in kinds for one in dataclasses.fields(kind)} - {"paper", "data"}
    ours = {f"--{name.replace('_', '-')}" for name in names}
    named = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", str(error)))
    foreign = [flag for flag in named if flag not in ours]
    if not foreign:
        return str(error)
    flags = " or ".join(foreign)
    return f"{error} ({COMMAND} has no {flags}: give data that can do without)"


def _titled(one: PlannedStep, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    told = progress

    def update(title: str, done: int, total: int) -> None:
        told(f"{one.step.title}: {title}", done, total)

    return update


def _keep_stored(plan: Plan, setting: Setting) -> None:
    """Put results of the package beside the runs, so that the folder holds all that is told."""
    from headscope.heads.store import write_bytes
    from headscope.runs import dump_json

    for one in plan.steps:
        found = stored_result(one.step, setting) if one.state == "stored" else None
        if found is not None:
            file = setting.kept(one.step.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, f"{dump_json(found, indent=2)}\n".encode())


def _command(config: Reproduce) -> str:
    """The command, as one would type it again for everything that the folder holds."""
    words = ["headscope", COMMAND, config.paper, "--model", config.model.model]
    usual = ModelChoice()
    for name in ("revision", "dtype", "quantise"):  # where it runs does not change what is told
        given = getattr(config.model, name)
        words += [f"--{name}", str(given)] if given != getattr(usual, name) else []
    for name, values in asdict(config.data).items():
        for value in values:
            words += [f"--{name}", value]
    for name, given in config.steering.given.items():
        if isinstance(given, bool):
            words.append(f"--{name}" if given else f"--no-{name}")
            continue
        for value in given if isinstance(given, tuple) else (given,):
            words += [f"--{name}", str(value)]
    for name in config.only:
        words += ["--only", name]
    if config.llm is not None:
        words += ["--llm-model", config.llm.model]
        words += ["--base-url", config.llm.base_url] if config.llm.base_url else []
    words += ["--seed", str(config.seed)] if config.seed else []
    for flag, wanted in (("--full", config.full), ("--retrain", config.retrain)):
        words += [flag] if wanted else []
    return shlex.join(words)
