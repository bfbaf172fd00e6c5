"""A paper on one model: its experiments are run, shown and compared with what was published."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Set
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.data.chat import ChatModel, EndpointError, default_cache
from headscope.errors import InputError, MissingExtra, ModelError
from headscope.heads import Geometry
from headscope.heads.geometry import count_of
from headscope.heads.store import with_details
from headscope.papers.paper import (
    Failed,
    Missing,
    Paper,
    PaperData,
    Setting,
    Steering,
    Word,
    decided,
)
from headscope.papers.plan import (
    Estimate,
    Plan,
    Planned,
    PlannedStep,
    costs_here,
    make_plan,
    stored_result,
)
from headscope.papers.registry import PAPERS, experiments_named, paper_named
from headscope.papers.show import PaperResult, PapersResult, Reproduced
from headscope.progress import Progress
from headscope.runs import Run, carry_out, decode, encode, plain
from headscope.settings import GIVEN, UNSIGNED, MadeBy, Option, Settings
from headscope.shown.blocks import Cell, Claim, Figure, Findings, Row, Table
from headscope.studies.models import (
    PROMPTED,
    ModelChoice,
    about_model,
    kept_model,
    model_inputs,
    model_provenance,
)
from headscope.studies.report import write_report

COMMAND = "reproduce"
#: Where runs would be if no folder is named yet; it never exists.
NOWHERE = Path("runs") / "none"
#: Hears the paper's name and what will be run before anything is.
Announce = Callable[[str, Plan], None]
#: Estimates of the seconds and bytes of work, where the model gives them.
Costs = tuple[Estimate | None, Estimate | None]
#: Why an experiment was not run, if nothing else is in the way.
NOT_REQUESTED = "it was not asked for"
#: What a paper says where it has no answer, with and without anything that was run.
UNANSWERED = "What was run does not answer the paper's question."
NOTHING = "Nothing that answers the question was run."


def _llm(llm_model: options.LlmModel = None, base_url: options.BaseUrl = None) -> ChatModel | None:
    """The language model that sorts failures besides the rules, and links words."""
    if llm_model is None:
        return None
    return ChatModel(llm_model, base_url, default_cache("failures"))


@dataclass(frozen=True)
class Reproduce(Settings):
    """Run a paper's experiments on a model and compare them with what the paper published.

    Every table and figure is a named experiment. What was stopped goes on with the same command;
    what needs data that is not there says which. Writes report.html into the run folder.
    """

    paper: Annotated[
        str,
        Option(
            "token-alignment-heads, lahis, heads-up, or all three: all.",
            metavar="PAPER",
            argument=True,
        ),
    ]
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
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
    """Run the experiments named, or all, and write result and report; the command's result.

    Every step has a run folder of its own below `out`, so what was stopped goes on where it was,
    and experiments that share a step share its run. A step whose data cannot be used is listed with
    its reason in `failed`, and the others go on.

    Raises:
        InputError: for an unknown paper or experiment, and for a finished step that is not known to
            be what would be computed now; all that is there stays.
    """
    paper = paper_named(config.paper)
    named = {experiment.name for experiment in experiments_named(paper, config.only)}

    def compute(run: Run, setting: Setting, costs: Costs) -> dict[str, Any]:
        plan = make_plan(paper.experiments, setting, *costs)
        wanted = Plan(tuple(entry for entry in plan.experiments if entry.experiment.name in named))
        if announce is not None:
            announce(paper.name, wanted)
        failed = _run_all(paper, plan, wanted, setting, progress)
        after = make_plan(paper.experiments, setting)
        _keep_stored(after, setting)
        return {
            "seed": config.seed,
            **describe(paper, after, setting, named, failed),
            "failed": {name: why for name, (why, _) in failed.items()},
        }

    return _reported([paper], PaperResult, config, out, compute)


def reproduce_all(
    config: Reproduce,
    out: Path | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Run every paper, each below `out` in a folder of its name, and write an index of them."""

    def compute(run: Run, setting: Setting, costs: Costs) -> dict[str, Any]:
        papers: list[dict[str, Any]] = []
        failed: dict[str, str] = {}
        for name in PAPERS:
            own = replace(config, paper=name)
            result = reproduce(own, run.path / name, progress, announce)
            failed |= {f"{name}: {step}": why for step, why in result["failed"].items()}
            papers.append(
                {key: result["paper"][key] for key in ("name", "title", "question")}
                | {key: result[key] for key in ("answer", "totals", "signature", "failed")}
                | {"run": name, "report": f"{name}/report.html"}
            )
        counts = ("runs", "run", "stored", "not_run", "seconds")
        totals = {key: sum(paper["totals"][key] for paper in papers) for key in counts}
        return {"papers": papers, "totals": totals, "failed": failed}

    return _reported(list(map(paper_named, PAPERS)), PapersResult, config, out, compute)


def planned(config: Reproduce, geometry: Geometry, digest: str, folder: Path) -> tuple[Paper, Plan]:
    """What would be run, without a model: for lists."""
    paper = paper_named(config.paper)
    setting = _setting(config, geometry, digest, folder)
    named = experiments_named(paper, config.only) if config.only else paper.experiments
    return paper, make_plan(named, setting)


def _reported(
    papers: list[Paper],
    kind: type[Reproduced],
    config: Reproduce,
    out: Path | None,
    compute: Callable[[Run, Setting, Costs], dict[str, Any]],
) -> dict[str, Any]:
    """The result of the run of these papers, filled up where it is finished, and its report.

    InputError for flags that no plan can be made of, before a folder is bound to them.
    """
    config.model.whole_for("reproduce")
    with kept_model():
        lm = config.model.load_for()
        setting = _setting(config, lm.geometry, lm.digest, NOWHERE)
        _check(papers, config, setting)
        inputs, about = model_inputs(lm) | config.data.digests(), model_provenance(lm)
        held = [lm]  # let go before the first step, which may need all the memory for another model
        del lm

        def computed(run: Run) -> Reproduced:
            own = held.pop()
            single = kind is PaperResult
            model, costs = about_model(own), costs_here(own) if single else (None, None)
            run.provenance |= model_provenance(own)
            del own
            found = compute(run, replace(setting, folder=run.path), costs)
            about = {"command_line": _command(config), "model": model}
            result: Reproduced = decode(kind, plain({**about, **found}))
            return result

        command, settings = f"{COMMAND} {config.paper}", {"settings": config}
        made = carry_out(
            command, out, settings, inputs, computed, None, about, fills_up=True, kind=kind
        )
    result = with_details(encode(made))
    del result["details"]
    return {**result, "report": str(write_report(Path(result["run"])).resolve())}


def _check(papers: list[Paper], config: Reproduce, setting: Setting) -> None:
    if config.steering.aligner == "llm" and config.llm is None:
        raise InputError("--aligner llm needs --llm-model NAME, the model that links words")
    known = frozenset[str]().union(*(paper.steered for paper in papers))
    if foreign := [name for name in config.steering.given if name not in known]:
        raise InputError(
            f"{config.paper} is not steered by --{foreign[0]}; it takes "
            f"{', '.join(f'--{name}' for name in sorted(known))}"
        )
    if config.steering.k is not None:
        count_of(config.steering.k, setting.geometry.total)
    for paper in papers:
        make_plan(paper.experiments, setting)


def _setting(config: Reproduce, geometry: Geometry, digest: str, folder: Path) -> Setting:
    shared = {field_.name for field_ in fields(Setting)} & {
        field_.name for field_ in fields(config)
    }
    given = {name: getattr(config, name) for name in shared}
    return Setting(geometry=geometry, digest=digest, folder=folder, **given)


def _run_all(
    paper: Paper, plan: Plan, wanted: Plan, setting: Setting, progress: Progress | None
) -> dict[str, Failed]:
    """Run the steps of `wanted` that are due; those that could not be, with why.

    Finished steps of the plan are read too: their studies compute which run it would be now, and
    raise `InputError` where there is another. A step that reads a missing one cannot be checked.
    """
    due, failed, made = (
        {entry.step.name for entry in wanted.due},
        dict[str, Failed](),
        0,
    )
    known = {entry.step.name for entry in plan.steps if entry.state == "stored"}
    for entry in plan.steps:
        step, name = entry.step, entry.step.name
        if entry.state == "done" and known.issuperset(step.after):
            step.run(setting, setting.at(name), None)
            known.add(name)
        if name not in due:
            continue
        if progress is not None:
            progress(f"{paper.name}, runs", made, len(due))
        made += 1
        broken = [before for before in step.after if before in failed]
        if (damage := setting.damage(name)) is not None:
            failed[name] = damage, None
        elif broken:
            failed[name] = f"it needs {broken[0]}, which failed", failed[broken[0]][1]
        else:
            try:
                step.run(setting, setting.at(name), _titled(step.title, progress))
                known.add(name)
            except InputError as error:
                failed[name] = _said(error), _needed(error)
    if progress is not None and due:
        progress(f"{paper.name}, runs", made, made)
    return failed


def _needed(error: InputError) -> Word | None:
    """What would have kept a step from failing; None where that is a package."""
    if isinstance(error, MissingExtra):
        return None
    model, endpoint = isinstance(error, ModelError), isinstance(error, EndpointError)
    return "needs MODEL" if model else "needs ENDPOINT" if endpoint else "needs DATA"


def _said(error: InputError) -> str:
    """What a study says, with a note on options that only its own command has."""
    kinds = (Reproduce, ModelChoice, PaperData, Steering)
    names = {field_.name for kind in kinds for field_ in fields(kind)} - {"paper", "data"}
    ours = {f"--{name.replace('_', '-')}" for name in names}
    named = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", str(error)))
    foreign = " or ".join(flag for flag in named if flag not in ours)
    if not foreign:
        return str(error)
    return f"{error} ({COMMAND} has no {foreign}: give data that can do without)"


def _titled(step: str, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda title, done, total: progress(f"{step}: {title}", done, total)


def _keep_stored(plan: Plan, setting: Setting) -> None:
    """Copy results of the package to the runs, so that the folder holds all that is shown."""
    from headscope.heads.store import write_bytes
    from headscope.runs import dump_json

    for entry in plan.steps:
        result = stored_result(entry.step, setting) if entry.state == "stored" else None
        if result is not None:
            file = setting.kept(entry.step.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, f"{dump_json(result, indent=2)}\n".encode())


def _command(config: Reproduce) -> str:
    """The command, as one would type it again for everything that the folder holds."""
    usual = ModelChoice()
    # Where the model runs does not change the result.
    model = {name: getattr(config.model, name) for name in ("revision", "dtype", "quantise")}
    given: dict[str, Any] = {
        "model": config.model.model,
        **{name: value for name, value in model.items() if value != getattr(usual, name)},
        "system": config.model.system,
        "generation-config": config.model.generation_config or None,
        **asdict(config.data),
        **config.steering.given,
        "only": config.only,
        "llm-model": config.llm and config.llm.model,
        "base-url": config.llm and config.llm.base_url,
        "seed": config.seed or None,
        "full": config.full or None,
        "retrain": config.retrain or None,
    }
    words = ["headscope", COMMAND, config.paper]
    for name, value in given.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            for item in value if isinstance(value, tuple) else (value,):
                words += [] if item is None else [f"--{name}", str(item)]
    return shlex.join(words)


def describe(
    paper: Paper, plan: Plan, setting: Setting, requested: Set[str], failed: Mapping[str, Failed]
) -> dict[str, Any]:
    """The paper, its experiments and the answer, from the steps that are finished, as plain JSON.

    `plan` is of all the paper's experiments, after the run; `requested` are those that were to be
    run; `failed` says why steps could not be.
    """
    findings_of: dict[str, Findings] = {}
    rows: list[dict[str, Any]] = []
    for entry in plan.experiments:
        experiment = entry.experiment
        state, why, give = _state(entry, experiment.name in requested, failed)
        if state in ("run", "part", "stored"):
            findings_of[experiment.name] = experiment.show(setting)
        findings = findings_of.get(experiment.name, Findings())
        rows.append(
            {
                "name": experiment.name,
                "elements": list(experiment.elements),
                "coverage": _coverage(entry, setting, failed),
                "title": experiment.title,
                "state": state,
                "why": why,
                "give": give,
                "runs": [_run(step, setting) for step in entry.steps],
                "tables": [_table(table) for table in findings.tables],
                "figures": [_typeset(figure) for figure in findings.figures],
                "found": typeset(findings.found),
                "sure": typeset(findings.sure),
                "more": dict(findings.more),
            }
        )
    answer = paper.answer(setting, findings_of)
    sure = answer.sure
    if chosen := decided(setting):
        own = f"Decided for this run instead of the paper: {', '.join(chosen)}."
        sure = " ".join(filter(None, (sure, own)))
    found = answer.found or (UNANSWERED if findings_of else NOTHING)
    runs = [_run(step, setting) for step in plan.steps]
    states = [run["state"] for run in runs]
    seconds = sum(run["seconds"] or 0.0 for run in runs if run["state"] == "run")
    about = {name: getattr(paper, name) for name in ("name", "title", "source", "question")}
    return {
        "paper": {**about, "method": list(paper.method)},
        "answer": {
            "found": typeset(found),
            "sure": typeset(sure),
            "claims": [_claim(claim) for claim in answer.claims],
        },
        "notes": [typeset(note) for note in paper.notes(setting)],
        "experiments": rows,
        "totals": {
            "experiments": len(rows),
            "elements": sum(len(row["elements"]) for row in rows),
            "runs": len(runs),
            "run": states.count("run"),
            "stored": states.count("stored"),
            "not_run": states.count("not run"),
            "seconds": seconds,
        },
    }


def _state(
    planned: Planned, requested: bool, failed: Mapping[str, Failed]
) -> tuple[str, str | None, str | None]:
    """State of an experiment, why it is so where that is not plain, and what to give."""
    if planned.missing is not None:
        return "missing", planned.missing.why, planned.missing.give or None
    steps = planned.steps
    there = [step.state for step in steps if step.available]
    # Runs of other experiments may be a part of it.
    if not requested and len(there) < len(steps):
        return "not run", NOT_REQUESTED, None
    if len(there) == len(steps):
        return ("stored" if set(there) == {"stored"} else "run"), None, None
    why = next((failed[step.step.name][0] for step in steps if step.step.name in failed), None)
    return ("part" if there else "not run"), why or _left(planned), None


def _coverage(planned: Planned, setting: Setting, failed: Mapping[str, Failed]) -> dict[str, str]:
    """What became of each table and figure; without those not requested.

    Nothing either where a step of its own failed for another reason than what it was given.
    """
    steps = [step.step for step in planned.steps]
    if any(step.state == "due" and step.step.name not in failed for step in planned.steps):
        return {}
    found: dict[str, str] = {}
    for element, (word, missing) in planned.coverage.items():
        needed = missing or planned.experiment.needs(setting, element, steps)
        own = () if isinstance(needed, Missing) else steps if needed is None else needed
        broken = [failed[step.name][1] for step in own if step.name in failed]
        if becomes := broken[0] if broken else word:
            found[element] = becomes
    return found


def _left(planned: Planned) -> str:
    names = [step.step.title for step in planned.steps if step.left]
    if not names:
        return "its runs are not finished"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"left to --full: {', '.join(names[:3])}{more}"


def _run(planned: PlannedStep, setting: Setting) -> dict[str, Any]:
    step = planned.step
    state = {"done": "run", "stored": "stored"}.get(planned.state, "not run")
    result = (setting.result(step.name) or {}) if planned.available else {}
    return {
        "step": step.name,
        "title": step.title,
        "run": f"runs/{step.name}" if state == "run" else None,
        "signature": result.get("signature"),
        # A stored result may have been worked out again from runs that took longer.
        "seconds": result.get("seconds_of_the_first_run", result.get("seconds")),
        "state": state,
        "note": result.get("note") if state == "stored" else None,
    }


def _table(table: Table) -> dict[str, Any]:
    """A table as a result holds it: with differences where its values may be compared."""
    if table.reference is not None and table.reference.comparable:
        rows = tuple(
            Row(row.name, tuple(replace(cell, difference=_difference(cell)) for cell in row.cells))
            for row in table.rows
        )
        table = replace(table, rows=rows)
    return _typeset(table)


def _difference(cell: Cell) -> float | None:
    ours, theirs = cell.value, cell.published
    if isinstance(ours, str) or isinstance(theirs, str) or ours is None or theirs is None:
        return None
    return ours - theirs


def _claim(claim: Claim) -> dict[str, Any]:
    return asdict(claim) | {
        name: typeset(getattr(claim, name)) for name in ("says", "by", "rank", "note", "decides")
    }


def _typeset(block: Table | Figure) -> dict[str, Any]:
    written: dict[str, Any] = encode(block)
    return written | {"title": typeset(block.title), "note": typeset(block.note)}


def typeset(words: str) -> str:
    """Words of ours with one minus sign before numbers, and one form of per cent."""
    words = re.sub(r"(?<=\de)-0?(?=\d)", "\u2212", words)
    words = re.sub(r"(?<![\w)\].\u2212/-])-(?=\.?\d)", "\u2212", words)
    return re.sub(r"(?<=\d)[ \u00a0\u202f]?%", "\u00a0%", words)
