"""`headscope compare formation`: how heads form over the checkpoints of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.groups import baseline_rules, pairs_choice, taking, translation_score_choice
from headscope.cli.output import cell, emit, progress
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.find.translation import TranslationScore
    from headscope.measure.baseline import Rules
    from headscope.recipes.inputs import PairsChoice


@taking(pairs=pairs_choice, score=translation_score_choice, baseline=baseline_rules)
def formation(
    pairs: PairsChoice,
    score: TranslationScore,
    baseline: Rules,
    checkpoints: Annotated[
        list[str] | None,
        Argument(
            metavar="CHECKPOINT...",
            help="pocket (all its checkpoints), folders, a pattern such as 'ckpt/step-*', or "
            "NAME@REVISION on the Hub.",
        ),
    ] = None,
    model: Annotated[
        str | None, Option("--model", metavar="NAME", help="Hub model that --revision is of.")
    ] = None,
    revisions: Annotated[
        list[str] | None,
        Option("--revision", metavar="STEP", help="Revision of --model; repeatable."),
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    max_memory: options.MaxMemory = None,
    offload_folder: options.OffloadFolder = None,
    quantise: options.Quantise = None,
    tokenizer: options.Tokenizer = None,
    threshold: options.Threshold = 0.1,
    inactive: options.Inactive = 0.0,
    k: Annotated[
        str | None,
        Option("--k", metavar="K", help="Top heads compared with the last checkpoint's, besides."),
    ] = None,
    rank: options.Rank = "above-chance",
    sentences: Annotated[
        int, Option("--check", min=1, help="Sentences of each direction that are translated.")
    ] = 20,
    skip_unreadable: Annotated[
        bool, Option("--skip-unreadable", help="Go on without checkpoints that cannot be read.")
    ] = False,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Show how heads form: shares of the classes, overlap with the last set, and chrF++.

    Without --data the pocket model's own sentences: heads are found on dev, translations made of
    test. Data given is split in two by a hash of the source sentence.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.compare.checkpoints import checkpoint_series
    from headscope.recipes.compare.formation import Formation
    from headscope.recipes.compare.formation import formation as measure
    from headscope.recipes.inputs import ModelChoice

    if bool(revisions) != bool(model):
        raise InputError(
            "--model and --revision belong together: name the Hub model and each of its revisions"
        )
    where = ModelChoice(
        model or "pocket",
        None,
        device,
        dtype,
        device_map,
        tuple(max_memory or ()),
        None if offload_folder is None else str(offload_folder),
        quantise,
        tokenizer,
    )
    series = checkpoint_series(checkpoints or (), revisions or (), where)
    config = Formation(
        series, pairs, score, threshold, k, sentences, skip_unreadable, rank, inactive, baseline
    )
    hide_loading_bars()
    with progress() as update:
        result = measure(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """One line a checkpoint, what was skipped, and where the rest is."""
    rows = result["checkpoints"]
    width = max(10, *(len(one["name"]) for one in rows))
    lines = [
        f"{'checkpoint':<{width}}  aligning  >chance     low  inactive  mean TS  highest  "
        f"of last set  top {result['k']}  chrF++"
    ]
    for one in rows:
        above = one["above_chance"]["token_alignment"] if one["above_chance"] else None
        lines.append(
            f"{one['name']:<{width}}  {cell(one['token_alignment'], '.1%'):>8}  "
            f"{cell(above, '.1%'):>7}  "
            f"{cell(one['low_activity'], '.1%'):>6}  {cell(one['inactive'], '.1%'):>8}  "
            f"{one['mean_score']:>7.3f}  {one['highest']['score']:>7.3f}  "
            f"{cell(one['overlap_with_last'], '.1%'):>11}  "
            f"{cell(one['top_overlap_with_last'], '.1%'):>6}  "
            f"{one['chrf']:>5.1f} ({one['chrf_low']:.1f} to {one['chrf_high']:.1f})"
        )
    if rows[-1]["counted_over"] > 1:
        lines.append(f"shares: mean of {rows[-1]['counted_over']} directions")
    lines += [f"skipped {one['name']}: {one['reason']}" for one in result["skipped"]]
    if not result["same_tokenizer"]:
        lines.append("note: the checkpoints do not all have the same tokenizer")
    return "\n".join([*lines, f"run: {result['run']}"])


command = formation
