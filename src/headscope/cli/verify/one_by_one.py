"""`headscope verify one-by-one`: what a model is about to say as heads go, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import (
    baseline_rules,
    model_choice,
    pairs_choice,
    taking,
    task_choice,
    template_choice,
)
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice, PairsChoice
    from headscope.recipes.tasks import TaskChoice

__all__ = ["one_by_one"]

OrderName = Literal["given", "ascending", "descending", "pass", "alone"]


@taking(
    model=model_choice,
    pairs=pairs_choice,
    template=template_choice,
    tasks=task_choice,
    baseline=baseline_rules,
)
def one_by_one(
    heads: options.Heads,
    model: ModelChoice,
    pairs: PairsChoice,
    template: Template,
    tasks: TaskChoice,
    baseline: Rules,
    k: Annotated[
        str | None,
        Option("--k", metavar="K", help="Only the first so many: a number or a share such as 15%."),
    ] = None,
    rank: options.Rank = "above-chance",
    order: Annotated[
        OrderName | None,
        Option(
            "--order",
            help="As given (scores: highest first), by rank, or by the change of the target's "
            "rank each head caused in one pass or when removed alone; without it as given, and "
            "of a mask run all heads by rising weight.",
        ),
    ] = None,
    reorder: Annotated[
        int, Option("--reorder", min=1, help="Heads that --order pass and alone order anew.")
    ] = 320,
    steps: Annotated[
        int | None, Option("--steps", min=1, help="Remove the first so many heads; none: all.")
    ] = None,
    gate: Annotated[
        float, Option("--gate", metavar="G", help="The gate of a removed head; 0 removes it.")
    ] = 0.0,
    ablate: options.Ablate = "zero",
    reference: options.ReferenceTexts = None,
    prompt: Annotated[
        str | None, Option("--prompt", help="A prompt of your own, instead of sentence pairs.")
    ] = None,
    target: Annotated[
        str | None, Option("--target", help="The text to follow: its first token is ranked.")
    ] = None,
    reference_prompt: Annotated[
        str | None,
        Option(
            "--reference-prompt",
            help="Compare hidden states with those of the whole model under this prompt (an "
            "instruction, say); with sentence pairs a template with {source}.",
        ),
    ] = None,
    examples: Annotated[
        int, Option("--examples", min=1, help="Held-out examples of a task to walk over.")
    ] = 20,
    example: options.Example = None,
    random_orders: Annotated[
        int | None,
        Option(
            "--random-orders",
            min=0,
            help="Also remove heads in so many random orders; without it 3 of a mask run, else "
            "none.",
        ),
    ] = None,
    seed: options.Seed = 0,
    text: Annotated[
        bool, Option("--text/--no-text", help="Generate the text at every step.")
    ] = True,
    max_new_tokens: options.MaxNewTokens = None,
    allow_overlap: options.AllowOverlap = False,
    batch_tokens: options.BatchTokens = 16384,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove heads one by one: ranks of the target and of the original top five, texts, layers.

    Without --prompt and --data the bundled model reads 20 of its own test sentences. A mask run is
    walked over the held-out examples of its task, without their instruction.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.masked_tasks import mask_result
    from headscope.recipes.verify.one_by_one import OneByOne, verify_one_by_one

    is_mask = mask_result(heads) is not None
    config = OneByOne(
        heads,
        k,
        model,
        pairs,
        order or ("ascending" if is_mask else "given"),
        reorder,
        steps,
        gate,
        prompt,
        target,
        reference_prompt,
        template,
        tasks.chat,
        text,
        max_new_tokens,
        batch_tokens,
        allow_overlap,
        tasks,
        examples,
        example,
        (3 if is_mask else 0) if random_orders is None else random_orders,
        seed,
        rank,
        baseline,
        ablate,
        reference,
    )
    hide_loading_bars()
    with progress() as update:
        result = verify_one_by_one(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: Mapping[str, Any], rows: int = 24) -> str:
    """The untouched model, the steps where something happened, and where the rest is."""
    lines = [f"{'removed':>7}  {'head':<7}{'target':>9}{'first':>9}  text"]
    lines.append(_row(0, "", result["baseline"]))
    steps = result["steps"]
    last = result["baseline"]
    shown = 0
    for number, step in enumerate(steps, 1):
        if not _differs(step, last) and number < len(steps):
            continue
        last = step
        shown += 1
        if shown <= rows or number == len(steps):
            lines.append(_row(number, f"{step['layer']}.{step['head']}", step))
        elif shown == rows + 1:
            lines.append("    ...")
    lines.append("target, first: ranks of the target's first token and of what was first before")
    hidden = len(steps) - min(shown, rows + (shown > rows))
    if hidden:
        lines.append(
            f"{hidden} of {len(steps)} steps are not shown: those that changed nothing, and what "
            f"goes beyond {rows} rows; steps.jsonl of the run holds all"
        )
    lines += _mask(result)
    return "\n".join([*lines, f"run: {result['run']}"])


def _mask(result: Mapping[str, Any]) -> list[str]:
    """Where the cut of a learned mask lies, beside random orders."""
    mask, share = result["mask"], result["target_first"]["share"]
    if mask is None:
        return []
    at = mask["cut_step"]
    if at is None:
        return [f"the mask drops {mask['removed']} heads; this order does not pass through it"]
    drawn = [order["target_first"][at] for order in result["random_orders"]]
    beside = f", {sum(drawn) / len(drawn):.3g} in random orders" if drawn else ""
    return [
        f"the mask's own {mask['kept']} heads are left after step {at}: the target is first in "
        f"{share[at]:.3g} of the prompts ({share[0]:.3g} before{beside})"
    ]


def _differs(step: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    if step["texts_changed"]:
        return True
    return bool(step["texts_changed"] is None and step["target_rank"] != last["target_rank"])


def _row(number: int, head: str, step: Mapping[str, Any]) -> str:
    text = step["text"]
    if text is None:
        changed, chrf = step["texts_changed"], step["chrf"]
        words = f"{changed} changed" if changed else "unchanged"
        text = "" if changed is None else f"{words}, chrF++ {chrf:.1f}"
    rank, first = step["target_rank"], step["top5_ranks"][0]
    return f"{number:>7}  {head:<7}{rank:>9.6g}{first:>9.6g}  {text}".rstrip()


command = one_by_one
