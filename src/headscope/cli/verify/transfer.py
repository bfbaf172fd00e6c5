"""`headscope verify transfer`: which of two contradicting statements an answer follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress
from headscope.cli.verify.writing import LanguageAmount, effects_table

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

__all__ = ["transfer", "transfer_table"]

PairsOfStatements = Annotated[
    list[str] | None,
    Option(
        "--pair",
        metavar="A-B",
        help="Languages of the first and of the second statement, such as de-ru; repeatable. "
        "Without it every pair of the run's languages.",
    ),
]
DataOfPrompts = Annotated[
    str | None,
    Option(
        "--data",
        metavar="FILE",
        help="Prompts of your own: JSON Lines with a, b, prompt, answers_a, answers_b and, if "
        "wanted, stem and id. Without it those that come with headscope, in fifteen languages.",
    ),
]
Up = Annotated[float, Option("--up", metavar="G", help="Gate of the first language's heads.")]
Down = Annotated[float, Option("--down", metavar="G", help="Gate of the second language's heads.")]

WORDS = {
    "follows_a": ("says A", 1, 100.0),
    "follows_b": ("says B", 1, 100.0),
    "neither": ("says neither", 1, 100.0),
    "ranked_a": ("A ranks above B", 1, 100.0),
}


@taking(model=model_choice)
def transfer(
    heads: options.Heads,
    model: ModelChoice,
    k: LanguageAmount = None,
    pair: PairsOfStatements = None,
    data: DataOfPrompts = None,
    up: Up = 3.0,
    down: Down = 0.0,
    ablate: options.Ablate = "zero",
    reference: options.ReferenceTexts = None,
    limit: options.Limit = None,
    draws: options.Draws = 5,
    chat: options.ChatTemplate = None,
    max_new_tokens: options.MaxNewTokens = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Ask about statements that contradict each other, with either language's heads changed.

    A statement in language A, one in language B that says otherwise, a question in English: A's
    heads times --up, or B's times --down, beside as many random heads under the same gate. 10 to
    50 prompts of each pair, about 400 in all, unless --limit says otherwise.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.transfer import ANSWER_TOKENS, VerifyTransfer, verify_transfer

    hide_loading_bars()
    config = VerifyTransfer(
        heads,
        k,
        model,
        tuple(pair or ()),
        data,
        up,
        down,
        limit,
        draws,
        chat,
        max_new_tokens or ANSWER_TOKENS,
        seed,
        batch_tokens,
        ablate,
        reference,
    )
    with progress() as update:
        result = verify_transfer(config, out, update)
    emit(result, as_json, transfer_table(result))


def transfer_table(result: Mapping[str, Any]) -> str:
    """By pair: shares of answers in per cent, by text and by rank, with the tests."""
    lines = [
        f"answers in per cent; up: A's heads times {result['up']:g}, down: B's heads times "
        f"{result['down']:g}",
        *effects_table(result, "pairs", WORDS),
    ]
    lines += [
        f"{code}: has no specific heads, so none are changed"
        for code, one in result["heads"].items()
        if not one["heads"]
    ]
    return "\n".join([*lines, f"run: {result['run']}"])


command = transfer
