"""`headscope verify layers`: each language's text without the heads of one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import documents_choice, model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.inputs import ModelChoice

__all__ = ["layers", "layers_table"]

HeadsToCount = Annotated[
    str | None,
    Option(
        "--heads",
        help="Count these by layer: a run folder of find lahis (each language's important heads), "
        "a saved set, a CSV or JSON of layer and head, or a list: 5.3,7.11.",
    ),
]


@taking(model=model_choice, documents=documents_choice)
def layers(
    model: ModelChoice,
    documents: DocumentsChoice,
    heads: HeadsToCount = None,
    draws: options.Draws = 10,
    ablate: options.Ablate = "zero",
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure how each language's text suffers when all heads of one layer are removed.

    Beside every layer stand as many random heads of all layers. With --heads, the share of a
    language's important heads that lie in each layer is told too.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.layers import VerifyLayers, verify_layers
    from headscope.verify.languages.conditions import LanguageRemoval

    hide_loading_bars()
    removal = LanguageRemoval(
        draws=draws, layer_matched=False, ablate=ablate, seed=seed, batch_tokens=batch_tokens
    )
    with progress() as update:
        result = verify_layers(VerifyLayers(heads, model, documents, removal), out, update)
    emit(result, as_json, layers_table(result))


def layers_table(result: Mapping[str, Any]) -> str:
    """The change of NLL by layer and language, random heads, and important heads by layer."""
    languages = result["languages"]
    width = 8 + 9 * len(languages)
    lines = [
        "change of NLL without the heads of a layer",
        f"{'layer':<8}" + "".join(f"{name:>9}" for name in languages),
    ]
    count = max(len(one["layers"]) for one in languages.values())
    for at in range(count):
        rows = [one["layers"][at] for one in languages.values()]
        cells = "".join(f"{row['change']['value']:>9.4f}" for row in rows)
        lines.append(f"{rows[0]['layer']:<8}{cells}")
    for size in next(iter(languages.values()))["draws"]:
        means = [sum(one["draws"][size]) / len(one["draws"][size]) for one in languages.values()]
        lines.append(
            f"{'random':<8}" + "".join(f"{mean:>9.4f}" for mean in means) + f"  {size} heads"
        )
    profiles = result["profile"]
    if profiles:
        lines += ["-" * width, "share of the important heads that lie in a layer"]
        lines.append(f"{'layer':<8}" + "".join(f"{name:>9}" for name in profiles) + f"{'even':>9}")
        for spot in zip(*(one["layers"] for one in profiles.values()), strict=True):
            cells = "".join(f"{row['share']:>9.3f}" for row in spot)
            lines.append(f"{spot[0]['layer']:<8}{cells}{spot[0]['even']:>9.3f}")
        counts = ", ".join(f"{name} {one['important']}" for name, one in profiles.items())
        lines.append(f"important heads: {counts}")
    return "\n".join([*lines, f"run: {result['run']}"])


command = layers
