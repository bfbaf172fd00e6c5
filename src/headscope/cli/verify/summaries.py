"""`headscope verify summaries`: what a model writes without heads that all languages share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress
from headscope.cli.verify.writing import GeneralAmount, effects_table, leak_line

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

__all__ = ["summaries", "summaries_table"]

DataOfSummaries = Annotated[
    list[str] | None,
    Option(
        "--data",
        metavar="LANG=FILE",
        help="Texts with summaries: JSON Lines, TSV or Parquet file; LANG may be left out where a "
        "column says it; repeatable. Without it pocket repeats sentences, which is what it can do.",
    ),
]
Gate = Annotated[
    float, Option("--gate", help="Number by which the heads' outputs are multiplied; 0 removes.")
]
Template = Annotated[
    str | None,
    Option(
        "--template",
        help="Prompt up to where the summary begins, with {source}, the text, and "
        "{target_language}, its language.",
    ),
]

WORDS = {
    "rouge_l": ("ROUGE-L", 1, 1.0),
    "chrf": ("chrF++", 1, 1.0),
    "bert_score": ("BERTScore", 1, 1.0),
    "off_target": ("other language", 1, 100.0),
}


@taking(model=model_choice)
def summaries(
    heads: options.Heads,
    model: ModelChoice,
    k: GeneralAmount = None,
    rank: options.Rank = "above-chance",
    data: DataOfSummaries = None,
    text_column: options.TextColumn = "text",
    summary_column: Annotated[
        str, Option("--summary-column", metavar="COLUMN", help="Likewise.")
    ] = "summary",
    language_column: options.LanguageColumn = None,
    language: options.Languages = None,
    limit: options.Limit = None,
    template: Template = None,
    gate: Gate = 0.0,
    ablate: options.Ablate = "zero",
    draws: options.Draws = 10,
    chat: options.ChatTemplate = None,
    max_new_tokens: options.MaxNewTokens = None,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Let a model summarise without the heads that all languages share, and without random ones.

    ROUGE-L over words of the language, chrF++, and BERTScore where its command is installed
    (HEADSCOPE_BERTSCORE). 100 texts of each language are read unless --limit says otherwise.
    Without --data the bundled model repeats 40 sentences of each of its languages instead.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.data.prompts import Template as Prompt
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.verify.summaries import VerifySummaries, verify_summaries

    hide_loading_bars()
    config = VerifySummaries(
        heads,
        k,
        model,
        DocumentsChoice(
            tuple(data or ()), text_column, language_column, tuple(language or ()), None, limit
        ),
        summary_column,
        None if template is None else Prompt.from_option(template),
        gate,
        draws,
        chat,
        max_new_tokens,
        seed,
        batch_tokens,
        allow_overlap,
        rank,
        ablate,
    )
    with progress() as update:
        result = verify_summaries(config, out, update)
    emit(result, as_json, summaries_table(result))


def summaries_table(result: Mapping[str, Any]) -> str:
    """By language and measure: as is, without the heads, without random ones, and the tests."""
    task = "repeating sentences" if result["task"] == "repeat" else "summaries"
    title = f"{task}, general heads {','.join(result['heads'])} at gate {result['gate']:g}"
    lines = [title, *effects_table(result, "languages", WORDS)]
    if any(result["cut"].values()):
        lines.append(f"texts cut to fit the context: {sum(result['cut'].values())}")
    lines += leak_line(result["leakage"], "texts")
    lines += [f"not measured, {name}: {why}" for name, why in result["not_measured"].items()]
    return "\n".join([*lines, f"run: {result['run']}"])


command = summaries
