"""`headscope verify tasks`: what else a model can do without heads."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import cell, emit, progress
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

__all__ = ["tasks", "tasks_table"]

#: Random controls by their kind in the result: their words, and how the names of their tests end.
CONTROLS = {"random": ("random", ""), "random-layer-matched": ("same layers", "_layer_matched")}

TaskNames = Annotated[
    list[str] | None,
    Option(
        "--task",
        metavar="NAME|FILE|DIR",
        help="Task, group or pattern of lm-evaluation-harness, or task files; repeatable.",
    ),
]
Shots = Annotated[
    int | None,
    Option("--shots", min=0, help="Worked examples before each prompt; none: as the task says."),
]
HeadsToRemove = Annotated[
    str | None,
    Option(
        "--heads",
        help="A run folder, a saved set, a CSV or JSON of layer and head, or a list: 5.3,7.11.",
    ),
]
LayerMatched = Annotated[
    bool, Option("--layer-matched", help="Also draw as many random heads of the same layers.")
]
AllowCode = Annotated[
    bool,
    Option("--allow-task-code", help="Run the Python code that task files name (!function)."),
]
Listing = Annotated[bool, Option("--list", help="Only name the known groups of tasks.")]


@taking(model=model_choice)
def tasks(
    model: ModelChoice,
    task: TaskNames = None,
    heads: HeadsToRemove = None,
    k: options.Amounts = None,
    rank: options.Rank = "above-chance",
    gate: options.Gates = None,
    draws: options.Draws = 10,
    pool: options.Pool = "non-alignment",
    layer_matched: LayerMatched = False,
    ablate: options.Ablate = "zero",
    reference: options.ReferenceTexts = None,
    threshold: options.Threshold = 0.1,
    baseline_errors: options.BaselineErrors = 2.0,
    shots: Shots = None,
    limit: options.Limit = None,
    allow_task_code: AllowCode = False,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    listing: Listing = False,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Run multiple-choice and generation tasks without heads, and without random ones.

    Tasks are those of lm-evaluation-harness, or files in its format; `headscope pocket tasks`
    writes some for the bundled model.
    """
    if listing:
        _list(as_json)
        return
    if not task or not all(name.strip() for name in task):
        raise InputError("no task is named; add --task NAME or --task FILE, or see --list")
    if heads is None:
        raise InputError("no heads are given; add --heads with a run folder or a list: 5.3,7.11")
    from headscope.cli.models import hide_loading_bars
    from headscope.measure.baseline import Rules
    from headscope.recipes.verify.tasks import VerifyTasks, verify_tasks
    from headscope.verify.removal import Removal

    removal = Removal(
        gates=tuple(gate) if gate else (0.0,),
        draws=draws,
        layer_matched=layer_matched,
        pool=pool,
        threshold=threshold,
        ablate=(ablate,),
        seed=seed,
        batch_tokens=batch_tokens,
    )
    config = VerifyTasks(
        tuple(task), heads, tuple(k or ()), model, shots, limit, removal,
        allow_task_code, allow_overlap, rank, Rules(errors=baseline_errors), reference,
    )  # fmt: skip
    hide_loading_bars()
    with progress() as update:
        result = verify_tasks(config, out, update)
    emit(result, as_json, tasks_table(result))


def _list(as_json: bool) -> None:
    import time

    from headscope.runs import Signature
    from headscope.verify.tasks.library import GROUPS

    began = time.monotonic()
    key = Signature.of("verify tasks --list", GROUPS, {})
    told = {"signature": str(key), "run": None, "groups": GROUPS}
    width = max(map(len, GROUPS))
    lines = [f"{name:<{width}}  {words}" for name, words in GROUPS.items()]
    more = "and every other task of lm-evaluation-harness, and task files in its format"
    emit({**told, "seconds": time.monotonic() - began}, as_json, "\n".join([*lines, more]))


def tasks_table(result: Mapping[str, Any]) -> str:
    """One line a task and head set: as is, without it, without random heads, and the tests.

    Of the random draws the mean is given, with the lowest and the highest; draws of the same layers
    have a line of their own below.
    """
    named = {**result["tasks"], **result["groups"]}
    width = max(len(name) for name in named) + 2
    head = f"{'':<{width}}{'metric':<14}{'k':>4}{'gate':>6}{'chance':>8}{'as is':>8}{'chosen':>8}"
    lines = [f"{head}  {'control':<12}{'mean':>7}  {'draws':<16}{'p_examples':>10}{'p_draws':>9}"]
    for name, one in named.items():
        for top in (row for row in one["conditions"] if row["kind"] == "top"):
            start = (
                f"{name:<{width}}{one['metric']:<14}{top['k']:>4}{top['gate']:>6g}"
                f"{cell(one.get('chance'), '.3f'):>8}{one['baseline']['value']:>8.3f}"
                f"{top['value']:>8.3f}"
            )
            for kind, (words, ending) in CONTROLS.items():
                drawn = [
                    row["value"]
                    for row in one["conditions"]
                    if (row["kind"], row["k"], row["gate"]) == (kind, top["k"], top["gate"])
                ]
                if not drawn:
                    continue
                span = f"{min(drawn):.3f} to {max(drawn):.3f}"
                tests = (top.get(f"p_examples{ending}"), top.get(f"p_draws{ending}"))
                lines.append(
                    f"{start}  {words:<12}{fmean(drawn):>7.3f}  {span:<16}"
                    f"{cell(tests[0], '.4g'):>10}{cell(tests[1], '.4g'):>9}"
                )
                start = " " * len(start)
    return "\n".join([*lines, *_remarks(result), f"run: {result['run']}"])


def _remarks(result: Mapping[str, Any]) -> list[str]:
    lines = [str(result["pool_note"])] if result["pool_note"] else []
    leak = result["leakage"]
    if not leak["known"]:
        lines.append("whether the heads were found on these examples is not known")
    cut = {name: one["truncated"] for name, one in result["tasks"].items() if one["truncated"]}
    lines += [f"{name}: {n} prompts lost their beginning, being longer than the model's context"
              for name, n in cut.items()]  # fmt: skip
    return lines


command = tasks
