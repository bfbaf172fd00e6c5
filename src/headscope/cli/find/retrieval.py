"""`headscope find retrieval`: heads that look at a hidden fact while it is copied out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

ShareName = Literal["generated", "needle"]


@taking(model=model_choice)
def retrieval(
    model: ModelChoice,
    data: Annotated[
        str | None,
        Option(
            "--data",
            metavar="FILE",
            help="JSON Lines, TSV or Parquet with needle, question, haystack and, if known, "
            "answer. May be left out for pocket.",
        ),
    ] = None,
    haystack: Annotated[
        list[str] | None,
        Option(
            "--haystack",
            metavar="DATA",
            help="Documents to hide needles in that bring no haystack of their own; repeatable.",
        ),
    ] = None,
    length: Annotated[
        list[int] | None,
        Option(
            "--length",
            min=1,
            help="Tokens of a haystack with its needle; repeatable. Without it a quarter, half "
            "and all of the shortest.",
        ),
    ] = None,
    depth: Annotated[
        list[float] | None,
        Option(
            "--depth",
            min=0.0,
            max=1.0,
            help="Share of the haystack before the needle; repeatable; without it 0, 0.25, 0.5, "
            "0.75, 1.",
        ),
    ] = None,
    share_of: Annotated[
        ShareName,
        Option("--share-of", help="Of the needle's tokens generated, or of all of the needle's."),
    ] = "generated",
    every: options.CountAll = False,
    chat: options.ChatTemplate = None,
    limit: options.Limit = None,
    max_new_tokens: options.MaxNewTokens = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how often it looks at the token of a hidden fact that comes next.

    Without --data facts of the bundled model's world are hidden in its held-out sentences.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.retrieval import Retrieval
    from headscope.recipes.find.retrieval import FindRetrieval, NeedlesChoice, find_retrieval

    hide_loading_bars()
    needles = NeedlesChoice(data, tuple(haystack or ()), limit)
    measure = Retrieval(
        lengths=tuple(sorted(set(length or ()))),
        depths=tuple(sorted(set(depth))) if depth else Retrieval.depths,
        share_of=share_of,
        answered_only=not every,
        chat=chat,
        max_new_tokens=max_new_tokens,
        seed=seed,
        batch_tokens=batch_tokens,
    )
    with progress() as update:
        result = find_retrieval(FindRetrieval(model, needles, measure), out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """The best heads, how much was found at each place, and where the rest is."""
    lines = [score_table(result, ("score", "low", "high", "chance", "elsewhere"))]
    lines += ["", "length  depth  prompts  answered"]
    for one in result["places"]:
        answered = "-" if one["answered"] is None else f"{one['answered']:.2f}"
        lines.append(
            f"{one['length']:>6}  {one['depth']:>5.2f}  {one['examples']:>7}  {answered:>8}"
        )
    return "\n".join([*lines, f"run: {result['run']}"])


command = retrieval
