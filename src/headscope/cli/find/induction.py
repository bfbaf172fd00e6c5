"""`headscope find induction`: heads that look at what followed the same token before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from headscope.cli import options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice


@taking(model=model_choice)
def induction(
    model: ModelChoice,
    sequences: Annotated[int, Option("--sequences", min=1, help="Blocks of random tokens.")] = 50,
    block: Annotated[
        int, Option("--block", min=2, help="Tokens of a block, which is read twice.")
    ] = 50,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how often it looks at the token that followed the same one before.

    Needs no data: blocks of random tokens are repeated.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.repeated import Induction
    from headscope.recipes.find.induction import FindInduction, find_induction

    hide_loading_bars()
    measure = Induction(sequences, block, seed, batch_tokens=batch_tokens)
    with progress() as update:
        result = find_induction(FindInduction(model, measure), out, update)
    table = score_table(result, ("score", "low", "high", "chance", "duplicate"))
    emit(result, as_json, f"{table}\nrun: {result['run']}")
