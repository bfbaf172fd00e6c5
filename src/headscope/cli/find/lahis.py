"""`headscope find lahis`: how much each language's text depends on every head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import documents_choice, model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.inputs import ModelChoice


@taking(model=model_choice, documents=documents_choice)
def lahis(
    model: ModelChoice,
    documents: DocumentsChoice,
    update_gate: Annotated[
        bool,
        Option(
            "--update-gate",
            help="As published: documents one by one, the gate trained a step after each.",
        ),
    ] = False,
    quantile: Annotated[
        float | None,
        Option(
            "--quantile",
            metavar="Q",
            help="Heads above this quantile are important; without it 0.96, or 0.9 in a model of "
            "fewer than 256 heads.",
        ),
    ] = None,
    general_in: Annotated[
        int | None,
        Option(
            "--general-in",
            min=2,
            help="In how many languages general heads are important; without it all but one, at "
            "least 2.",
        ),
    ] = None,
    checkpointing: options.Checkpointing = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 2048,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how much each language's text depends on it (LAHIS).

    Without --data the bundled model is scored on documents of its own development sentences, in
    all its languages.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.lahis import Lahis
    from headscope.recipes.find.lahis import FindLahis, find_lahis

    hide_loading_bars()
    score = Lahis(
        update_gate=update_gate, seed=seed, batch_tokens=batch_tokens, checkpoint=checkpointing
    )
    with progress() as update:
        result = find_lahis(FindLahis(model, documents, score, quantile, general_in), out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """The best heads, what each language has, and where the rest is."""
    lines = [score_table(result, ("score", "low", "high", "raising"), rows=10), ""]
    for code, one in result["languages"].items():
        heads = _names(one["specific"]) or "none"
        fewer = ", fewer than the usual 1000" if one["fewer_than_usual"] else ""
        lines.append(f"{code}: {one['documents']} documents{fewer}; specific heads: {heads}")
    if result["general_in"] is not None:
        heads = _names(result["general"]) or "none"
        lines.append(
            f"general heads (in {result['general_in']} of {len(result['languages'])} languages; "
            f"{result['general_expected']:.1f} by chance): {heads}"
        )
    lines.append(f"run: {result['run']}")
    return "\n".join(lines)


def _names(heads: list[dict[str, Any]]) -> str:
    return " ".join(f"{one['layer']}.{one['head']}" for one in heads)


command = lahis
