"""`headscope use adapt`: write with a mask, soft gates or scaled heads, and steer a language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, one_line, progress
from headscope.cli.use.gates import gate_choice
from headscope.cli.verify.writing import effects_table
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice
    from headscope.recipes.use.gates import GateChoice

__all__ = ["adapt", "adapt_text", "steering_text"]

RankingName = Literal["specific", "importance"]
#: Outputs that the terminal shows.
SHOWN = 3

WORDS = {
    "off_target": ("other language", 1, 100.0),
    "empty": ("empty", 1, 100.0),
    "chrf": ("chrF++", 1, 1.0),
}


@taking(model=model_choice, choice=gate_choice)
def adapt(
    model: ModelChoice,
    *,
    choice: GateChoice,
    prompt: Annotated[
        list[str] | None,
        Option("--prompt", metavar="TEXT", help="A text to go on from; repeatable."),
    ] = None,
    data: Annotated[
        list[str] | None,
        Option(
            "--data",
            metavar="FILE",
            help="Prompts: text file (.txt, one a line), JSON Lines, Parquet or TSV file with "
            "texts or chat messages; to --steer several languages, LANG=FILE, repeatable.",
        ),
    ] = None,
    text_column: options.TextColumn = "text",
    reference_column: Annotated[
        str | None,
        Option(
            "--reference-column",
            metavar="COLUMN",
            help="What was hoped for, likewise; without it reference, if there.",
        ),
    ] = None,
    limit: options.Limit = None,
    chat: Annotated[
        bool,
        Option(
            "--chat/--no-chat",
            help="Put texts through the chat template as a user's turn; chat messages always go.",
        ),
    ] = False,
    max_new_tokens: options.MaxNewTokens = None,
    line: Annotated[
        bool, Option("--one-line", help="End an output at the first newline after text.")
    ] = False,
    compare: Annotated[
        bool, Option("--compare/--no-compare", help="Also write with the model as it is.")
    ] = True,
    steer: Annotated[
        list[str] | None,
        Option(
            "--steer",
            metavar="LANG",
            help="Instead count answers in another language than this, which prompts ask for, with "
            "its heads multiplied by each --factor, and random heads beside; repeatable.",
        ),
    ] = None,
    factor: Annotated[
        list[float] | None,
        Option(
            "--factor", metavar="X", help="To --steer; repeatable; without it 0.5, 1.5, 2, 3, 5."
        ),
    ] = None,
    away: Annotated[
        str | None,
        Option(
            "--away",
            metavar="LANG",
            help="To --steer: also remove the heads of this language, as a condition of its own.",
        ),
    ] = None,
    ranking: Annotated[
        RankingName,
        Option(
            "--ranking",
            help="To --steer: heads specific to the language, or the most important ones.",
        ),
    ] = "specific",
    draws: options.Draws = 5,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Write with a mask, soft gates or scaled heads on the model, beside the model as it is.

    With --steer: turn the --heads of a language up where the model answers in the wrong one, beside
    as many random heads; a --gate is then on the model in every condition, and --k is 1% of a run
    of find lahis if not given. Without prompts the pocket model is given its own translations.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.use.adapt import PromptsChoice, UseAdapt, use_adapt
    from headscope.recipes.use.steering import FACTORS, Steer
    from headscope.recipes.use.steering import steer as lead

    hide_loading_bars()
    if not steer:
        if factor or away or ranking != "specific":
            raise InputError(
                "--factor, --away and --ranking are for --steer; name a language there"
            )
        if len(data or ()) > 1:
            raise InputError("--data names one file of prompts; put them into one")
        config = UseAdapt(
            choice,
            PromptsChoice(
                tuple(prompt or ()),
                data[0] if data else None,
                text_column,
                reference_column,
                limit,
                chat,
            ),
            model,
            max_new_tokens,
            line,
            compare,
            batch_tokens,
        )
        with progress() as update:
            result = use_adapt(config, out, update)
        emit(result, as_json, adapt_text(result))
        return
    if choice.heads is None:
        raise InputError(
            "--steer needs the languages' heads; name a run of find lahis with --heads"
        )
    if choice.scale is not None or not compare:
        raise InputError("--steer takes --factor instead of --scale, and always compares")
    steering = Steer(
        tuple(steer),
        choice.heads,
        choice.k,
        ranking,
        tuple(factor or FACTORS),
        away,
        None if choice.gate is None else replace(choice, heads=None, k=None),
        PromptsChoice(tuple(prompt or ()), None, text_column, reference_column, limit, chat),
        tuple(data or ()),
        model,
        draws,
        max_new_tokens,
        line,
        seed,
        batch_tokens,
        choice.rank,
    )
    with progress() as update:
        result = lead(steering, out, update)
    emit(result, as_json, steering_text(result))


def adapt_text(result: Mapping[str, Any]) -> str:
    """What was applied, how many outputs it changes, and the first ones."""
    gate = result["gate"]
    parts = f", {gate['feed_forward']} feed-forward parts" if gate["feed_forward"] else ""
    lines = [f"{gate['name']}: {gate['heads']} of {gate['of']} heads changed{parts}"]
    if result["changed"] is not None:
        lines.append(f"{result['changed']} of {result['prompts']} outputs differ from the model's")
    for row in result["outputs"][:SHOWN]:
        given = row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"]
        lines += ["", f"prompt  {_line(given)}"]
        if "text_as_is" in row:
            lines.append(f"as is   {_line(row['text_as_is'])}")
        lines.append(f"adapted {_line(row['text'])}")
    return "\n".join([*lines, "", f"run: {result['run']}"])


def steering_text(result: Mapping[str, Any]) -> str:
    """By language: answers in another one under every factor, with the tests; in per cent."""
    lines = ["answers in another language than asked for, and their worth"]
    lines += effects_table(result, "languages", WORDS)
    lines += [f"not measured, {name}: {why}" for name, why in result["not_measured"].items()]
    return "\n".join([*lines, f"run: {result['run']}"])


def _line(text: str, width: int = 88) -> str:
    flat = one_line(text)
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


command = adapt
