"""`headscope find induction`: heads that look at what followed the same token before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import documents_choice, model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.inputs import ModelChoice


@taking(model=model_choice, documents=documents_choice)
def induction(
    model: ModelChoice,
    documents: DocumentsChoice,
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

    Needs no data: blocks of random tokens are repeated. Beside it stands how often a head looks at
    the token just before, over these tokens and over natural text: documents of --data, or else a
    few English ones of the repository's own.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.repeated import Induction
    from headscope.recipes.find.induction import FindInduction, find_induction

    hide_loading_bars()
    measure = Induction(sequences, block, seed, batch_tokens=batch_tokens)
    config = FindInduction(model, measure, documents if documents.data else None)
    with progress() as update:
        result = find_induction(config, out, update)
    columns = ("score", "low", "high", "chance", "duplicate", "previous_token")
    table = score_table(result, (*columns, "previous_token_text"))
    emit(result, as_json, f"{table}\nrun: {result['run']}")


command = induction
