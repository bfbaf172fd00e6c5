"""`headscope verify off-target`: in which language a model writes without a language's heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, model_choice, pairs_choice, taking, template_choice
from headscope.cli.output import emit, progress
from headscope.cli.verify.writing import LanguageAmount, effects_table, leak_line

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import ModelChoice, PairsChoice

__all__ = ["off_target", "off_target_table"]

AskName = Literal["translate", "continue"]
DataOfEither = Annotated[
    list[str] | None,
    Option(
        "--data",
        metavar="DATA",
        help="What to translate: sentence pairs, with several --pair as PAIR=DATA; or what to "
        "continue: documents, as LANG=DATA; repeatable. May be left out for pocket.",
    ),
]
StartTokens = Annotated[
    int | None,
    Option(
        "--start-tokens",
        min=1,
        help="Tokens of a document that are given to continue; without it 64, or 16 for pocket.",
    ),
]

WORDS = {"off_target": ("other language", 1, 100.0), "empty": ("empty", 1, 100.0)}


@taking(model=model_choice, pairs=pairs_choice, template=template_choice, baseline=baseline_rules)
def off_target(
    heads: options.Heads,
    model: ModelChoice,
    *,
    data: DataOfEither = None,
    pairs: PairsChoice,
    template: Template,
    baseline: Rules,
    k: LanguageAmount = None,
    rank: options.Rank = "above-chance",
    ask: Annotated[
        AskName, Option("--ask", help="Translate into the language, or continue documents in it.")
    ] = "translate",
    split: options.Split = None,
    limit: options.Limit = None,
    text_column: options.TextColumn = "text",
    language_column: options.LanguageColumn = None,
    language: options.Languages = None,
    start_tokens: StartTokens = None,
    draws: options.Draws = 10,
    ablate: options.Ablate = "zero",
    reference: options.ReferenceTexts = None,
    chat: options.ChatTemplate = None,
    max_new_tokens: options.MaxNewTokens = None,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Count outputs in another language than asked for, without heads of that language.

    Its specific heads, as many by importance alone, and random ones of the same number. 100 prompts
    of each direction or language are read unless --limit says otherwise.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.inputs import PairsChoice as Pairs
    from headscope.recipes.verify.off_target import VerifyOffTarget, verify_off_target

    hide_loading_bars()
    documents = DocumentsChoice(
        tuple(data or ()), text_column, language_column, tuple(language or ()), split, limit
    )
    config = VerifyOffTarget(
        heads,
        k,
        model,
        ask,
        pairs if ask == "translate" else Pairs(),
        documents if ask == "continue" else DocumentsChoice(),
        template,
        start_tokens,
        draws,
        chat,
        max_new_tokens,
        seed,
        batch_tokens,
        allow_overlap,
        rank,
        baseline,
        ablate,
        reference,
    )
    with progress() as update:
        result = verify_off_target(config, out, update)
    emit(result, as_json, off_target_table(result))


def off_target_table(result: Mapping[str, Any]) -> str:
    """By language: the share of outputs in another one, with the tests; in per cent."""
    lines = [
        "outputs in another language than asked for, in per cent "
        f"({'translations' if result['ask'] == 'translate' else 'continued documents'})",
        *effects_table(result, "languages", WORDS),
    ]
    for code, one in result["heads"].items():
        if one["available"] < one["wanted"]:
            lines.append(
                f"{code}: {one['wanted']} heads were asked for, {one['available']} are specific"
            )
    lines += [
        f"{code}: no heads are known, so nothing is removed" for code in result["without_heads"]
    ]
    lines += leak_line(result["leakage"], "texts")
    lines += [f"not measured, {name}: {why}" for name, why in result["not_measured"].items()]
    return "\n".join([*lines, f"run: {result['run']}"])


command = off_target
