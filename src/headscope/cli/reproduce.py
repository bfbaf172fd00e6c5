"""`headscope reproduce`: the experiments of a paper on a model, beside what was published."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.data.chat import ChatModel
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.papers.paper import Steering
    from headscope.recipes.papers.plan import Plan
    from headscope.recipes.papers.reproduce import Reproduce

Names = list[str] | None


def _several(flag: str, metavar: str, words: str) -> Any:
    return Option(flag, metavar=metavar, help=f"{words}; repeatable.")


def steering_choice(
    limit: options.Limit = None,
    draws: options.DrawsOfMeasure = None,
    k: Annotated[
        str | None,
        Option("--k", metavar="K", help="Heads compared, removed or changed: a number or a share."),
    ] = None,
    aligner: Annotated[
        options.AlignerName | None,
        Option("--aligner", help="What links words: the data's links, eflomal, or --llm-model."),
    ] = None,
    measure: options.Measures = None,
    rank: Annotated[
        options.RankName | None, Option("--rank", help="What --k cuts translation scores by.")
    ] = None,
    shots: Annotated[
        int | None, Option("--shots", min=0, help="Examples put before each input or sentence.")
    ] = None,
    chat: options.ChatTemplate = None,
    instruction: options.Instruction = None,
    steps: Annotated[
        int | None, Option("--steps", min=1, help="Steps of the training of a mask.")
    ] = None,
    decode: Annotated[
        options.DecodeName | None,
        Option("--decode", help="Score the reference, or the model's own translation."),
    ] = None,
) -> Steering:
    """What is decided instead of a paper; without a flag the paper's own."""
    from headscope.data.tasks.task import from_option
    from headscope.recipes.papers.paper import Steering

    return Steering(
        limit,
        draws,
        k,
        aligner,
        tuple(dict.fromkeys(measure or ())),
        rank,
        shots,
        chat,
        None if instruction is None else from_option(instruction),
        steps,
        decode,
    )


@taking(model=model_choice, steering=steering_choice)
def reproduce(
    paper: Annotated[
        str,
        Argument(
            metavar="PAPER",
            help="token-alignment-heads, lahis, heads-up, or all three: all. beside: experiments "
            "that none of them has.",
        ),
    ],
    model: ModelChoice,
    steering: Steering,
    show: Annotated[
        bool,
        Option("--list", help="List tables and figures: measured, --full, or what they need."),
    ] = False,
    only: Annotated[
        Names, _several("--only", "NAME", "An experiment, or a table or figure, such as table-1")
    ] = None,
    full: Annotated[
        bool, Option("--full", help="Also make the runs that are left out for their time.")
    ] = False,
    retrain: Annotated[
        bool, Option("--retrain", help="Repeat trainings whose results come with the package.")
    ] = False,
    pairs: options.PairFiles = None,
    documents: options.DocumentFiles = None,
    tasks: Annotated[
        Names, _several("--tasks", "FILE", "A task of inputs and outputs, or a folder of such")
    ] = None,
    benchmarks: Annotated[
        Names, _several("--benchmarks", "NAME", "A task of lm-evaluation-harness, or its file")
    ] = None,
    questions: Annotated[
        Names, _several("--questions", "LANG=FILE", "Questions with contexts and answers")
    ] = None,
    summaries: Annotated[
        Names, _several("--summaries", "LANG=FILE", "Texts with summaries")
    ] = None,
    statements: Annotated[
        Names, _several("--statements", "PAIR=FILE", "Contradicting statements of two languages")
    ] = None,
    checkpoints: Annotated[
        Names, _several("--checkpoints", "REVISION", "A revision of the model in its training")
    ] = None,
    others: Annotated[
        Names, _several("--others", "MODEL", "Another model to put beside, such as its base")
    ] = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Run a paper's experiments on a model and put them beside what the paper published.

    Every table and figure is a named experiment. What was stopped goes on with the same command;
    what needs data that is not there says which. Writes report.html into the run folder.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.papers import registry
    from headscope.recipes.papers.paper import PaperData
    from headscope.recipes.papers.reproduce import Reproduce
    from headscope.recipes.papers.reproduce import reproduce as run_one
    from headscope.recipes.papers.reproduce import reproduce_all as run_all

    given = (pairs, documents, tasks, benchmarks, questions, summaries, statements)
    data = PaperData(*(tuple(one or ()) for one in (*given, checkpoints, others)))
    config = Reproduce(
        paper,
        model,
        data,
        seed,
        tuple(only or ()),
        full,
        retrain,
        batch_tokens,
        steering,
        _llm(llm_model, base_url),
    )
    if paper == registry.ALL and only:
        raise InputError("--only names experiments of one paper; name the paper instead of all")
    if show:
        _list(config, out, as_json)
        return
    hide_loading_bars()
    run = run_all if paper == registry.ALL else run_one
    if paper != registry.ALL:
        registry.experiments_named(registry.paper_named(paper), config.only)
    with progress() as update:
        result = run(config, out, update, _announce)
    emit(result, as_json, _summary(result))
    if result["failed"]:
        failed = result["failed"]
        first, why = next(iter(failed.items()))
        raise InputError(f"{len(failed)} of the runs could not be made ({first}: {why})")


def _llm(model: str | None, base_url: str | None) -> ChatModel | None:
    """The language model that sorts failures beside the rules, and links words."""
    from headscope.data.chat import ChatModel, default_cache

    return None if model is None else ChatModel(model, base_url, default_cache("failures"))


def _announce(paper: str, plan: Plan) -> None:
    """How long it will take and in how much memory, before it begins."""
    due = plan.due
    ready = sum(one.state in ("done", "stored") for one in plan.steps)
    words = [f"{paper}: {_runs(len(plan.steps))}, {ready} finished or stored"]
    memory = "" if plan.memory is None else f", in {plan.memory / 1e6:,.0f} MB of memory"
    words.append(f"{len(due)} to be made{_about(plan.seconds())}{memory}")
    left = [one for one in plan.steps if one.state in ("left out", "blocked")]
    if left:
        time = _about(plan.seconds(("left out", "blocked")))
        words.append(f"{len(left)} left to --full{time}")
    print("; ".join(words), file=sys.stderr, flush=True)


def _about(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 90:
        return f", about {seconds:.0f} s"
    if seconds < 5400:
        return f", about {seconds / 60:.0f} min"
    return f", about {seconds / 3600:.1f} h"


def _list(config: Reproduce, out: Path | None, as_json: bool) -> None:
    from headscope.recipes.papers.listing import listing
    from headscope.report.sections.paper_parts import coverage_words

    rows = listing(config, out)
    lines = []
    for row in rows:
        lines.append(f"{row['paper']}  {row['name']:<14} {row['title']}")
        lines += [f"    {words}" for words in coverage_words(row["coverage"])]
        if row["runs"]:
            lines.append(f"    {_runs(row['runs'])}, {row['finished']} finished or stored")
        for one in row["missing"]:
            lines.append(f"    {'; '.join(each for each in (one['why'], one['give']) if each)}")
    emit({"experiments": rows}, as_json, "\n".join(lines))


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"


def _summary(result: dict[str, Any]) -> str:
    from headscope.recipes.papers.results import NOT_ASKED

    lines = []
    if "papers" in result:
        for one in result["papers"]:
            lines += [f"{one['name']}: {one['answer']['found']}", ""]
    else:
        others = 0
        for one in result["experiments"]:
            if one["why"] == NOT_ASKED:
                others += 1
                continue
            lines.append(f"{one['name']:<16} {one['state']:<8} {one['found'] or one['why'] or ''}")
        lines += [f"{others} more were not asked for"] if others else []
        lines += ["", result["answer"]["found"]]
    totals = result["totals"]
    lines.append(
        f"the folder holds {_runs(totals['run'])} of {totals['seconds']:.0f} s in all; "
        f"{totals['stored']} stored, {totals['not_run']} not made"
    )
    lines.append(f"signature: {result['signature']}")
    lines.append(f"report: {result['report']}")
    return "\n".join(lines)


command = reproduce
