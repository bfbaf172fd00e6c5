"""`headscope atlas`: find, verify and compare in one go, and report."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from headscope.cli import options
from headscope.cli.output import emit, progress


def atlas(
    model: options.ModelName = "pocket",
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
    k: Annotated[
        str | None,
        Option(
            "--k", metavar="K", help="Heads removed in the check: a number or a share such as 15%."
        ),
    ] = None,
    draws: options.Draws = 3,
    sentences: Annotated[
        int, Option("--check", min=1, help="Sentences of each direction in the check.")
    ] = 20,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Make the atlas of a model: score its heads, remove the best ones, compare directions.

    Writes report.html into the run folder. Without --data the bundled model's own sentences.
    """
    from headscope.cli.models import hide_loading_bars, llm_aligner
    from headscope.data.prompts import DEFAULT_TEMPLATE, Template
    from headscope.find.translation import TranslationScore
    from headscope.recipes.atlas import Atlas
    from headscope.recipes.atlas import atlas as make_atlas
    from headscope.recipes.inputs import ModelChoice, PairsChoice

    config = Atlas(
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
        k=k,
        draws=draws,
        check=sentences,
    )
    hide_loading_bars()
    with progress() as update:
        result = make_atlas(config, out, update)
    emit(result, as_json, _summary(result))


def _summary(result: dict[str, Any]) -> str:
    """What was found, in five lines; the last one is where to read on."""
    counts, removal = result["counts"], result["removal"]
    top = ", ".join(f"{one['layer']}.{one['head']}" for one in result["heads"][:10])
    scores = {
        "as it is": removal["baseline"]["chrf"],
        f"without its top {removal['k']} heads": removal["top"]["chrf"],
        f"without {removal['k']} random heads": removal["random_mean"]["chrf"],
    }
    chrf = ", ".join(f"{value:.1f} {name}" for name, value in scores.items() if value is not None)
    return "\n".join(
        [
            f"{result['model']['name']}: {len(result['heads'])} heads, "
            f"{len(result['directions'])} directions",
            f"{counts['token_alignment']} token alignment heads, {counts['low_activity']} of low "
            f"activity, {counts['inactive']} inactive; best: {top}",
            f"chrF++ of its translations: {chrf}",
            f"signature: {result['signature']}",
            f"report: {result['report']}",
        ]
    )
