"""`headscope find translation-score`: how often each head looks at the right source word."""

from __future__ import annotations

from typing import Any

from headscope.cli import options
from headscope.cli.output import emit, progress


def translation_score(
    model: options.ModelOption = "pocket",
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    batch_tokens: options.BatchTokens = 8192,
    pair: options.Pairs = None,
    data: options.DataOfPairs = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_column: options.SourceColumn = "source",
    target_column: options.TargetColumn = "target",
    links_column: options.LinksColumn = None,
    split: options.Split = None,
    limit: options.Limit = None,
    decode: options.Decode = "reference",
    scope: options.Scope = "all",
    query: options.Query = "predict",
    average: options.Average = "macro",
    skip_identical: options.SkipIdentical = False,
    aligner: options.Aligner = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    confidence: options.Confidence = 0.9,
    template: options.TemplateText = None,
    max_new_tokens: options.MaxNewTokens = None,
    threshold: options.Threshold = 0.1,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Score every head by how often its peak falls on the aligned source word.

    Without --data the bundled model is scored on its own development sentences.
    """
    from headscope.cli.models import hide_loading_bars, llm_aligner
    from headscope.data.prompts import DEFAULT_TEMPLATE, Template
    from headscope.find.translation import TranslationScore
    from headscope.recipes.find_translation import FindTranslation, find_translation
    from headscope.recipes.inputs import ModelChoice, PairsChoice

    config = FindTranslation(
        model=ModelChoice(model, revision, device, dtype, device_map),
        pairs=PairsChoice(
            tuple(pair or ()),
            tuple(data or ()),
            source_language,
            target_language,
            source_column,
            target_column,
            links_column,
            split,
            limit,
        ),
        score=TranslationScore(
            decode=decode,
            scope=scope,
            query=query,
            average=average,
            skip_identical=skip_identical,
            aligner=aligner,
            llm=llm_aligner(aligner, llm_model, base_url, confidence),
            template=DEFAULT_TEMPLATE if template is None else Template.from_option(template),
            max_new_tokens=max_new_tokens,
            seed=seed,
            batch_tokens=batch_tokens,
        ),
        threshold=threshold,
    )
    hide_loading_bars()
    with progress() as update:
        result = find_translation(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any], rows: int = 20) -> str:
    """The best heads, the three classes, and where the rest is."""
    lines = ["head      score      low     high   chance"]
    for one in result["heads"][:rows]:
        name = f"{one['layer']}.{one['head']}"
        numbers = "".join(
            f"{_number(one.get(key)):>9}" for key in ("score", "low", "high", "chance")
        )
        lines.append(f"{name:<6}{numbers}")
    counts = ", ".join(f"{count} {name}" for name, count in result["counts"].items())
    lines += [counts.replace("_", " "), f"run: {result['run']}"]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
