"""`headscope find first-order`: how steeply the loss changes with every head's gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import documents_choice, model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.inputs import ModelChoice


@taking(model=model_choice, documents=documents_choice)
def first_order(
    model: ModelChoice,
    documents: DocumentsChoice,
    checkpointing: options.Checkpointing = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 2048,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how steeply the loss of documents changes with its gate, in either way.

    Without --data the bundled model is scored on documents of its own development sentences, in
    all its languages.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.first_order import FirstOrder
    from headscope.recipes.find.first_order import FindFirstOrder, find_first_order

    hide_loading_bars()
    score = FirstOrder(seed=seed, batch_tokens=batch_tokens, checkpoint=checkpointing)
    with progress() as update:
        result = find_first_order(FindFirstOrder(model, documents, score), out, update)
    table = score_table(result, ("score", "low", "high", "raising"))
    emit(result, as_json, f"{table}\nrun: {result['run']}")


command = first_order
