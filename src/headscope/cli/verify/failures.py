"""`headscope verify failures`: how translations fail that were good before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from headscope.cli import old_options as options
from headscope.cli.output import emit, progress
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.data.chat import ChatModel

JudgeName = Literal["llm"]
ConditionName = Literal["top", "random", "random-layer-matched"]


def failures(
    run: Annotated[
        Path | None, Argument(metavar="RUN", help="The folder of a `verify removal` run.")
    ] = None,
    outputs: Annotated[
        Path | None,
        Option(
            "--outputs",
            metavar="FILE",
            help="Instead of RUN: JSON Lines with id, source, reference, before and after, and "
            "direction and links (0-0 1-2) where known. Every row is sorted.",
        ),
    ] = None,
    pair: options.Pair = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    condition: Annotated[
        ConditionName, Option("--condition", help="Which heads of RUN were removed.")
    ] = "top",
    k: Annotated[int | None, Option("--k", min=1, help="How many; without it the most.")] = None,
    gate: Annotated[
        float | None, Option("--gate", help="The gate put on them; without it 0, else the first.")
    ] = None,
    draw: Annotated[int, Option("--draw", min=0, help="Which draw of random heads.")] = 0,
    ablate: Annotated[
        options.AblateName | None,
        Option("--ablate", help="What removed heads gave; without it what RUN names first."),
    ] = None,
    judge: Annotated[
        JudgeName | None,
        Option("--judge", help="llm: a language model sorts them too, beside the rules."),
    ] = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    cache: options.Cache = None,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Sort failed translations: no translation, hallucination, missing details, other.

    Of a removal run those sentences count that were good before (chrF++ of 50) and lost 20 of it.
    """
    from headscope.recipes.verify.failure_rows import Choice
    from headscope.recipes.verify.failures import VerifyFailures, verify_failures

    config = VerifyFailures(
        run,
        outputs,
        pair,
        source_language,
        target_language,
        Choice(condition, k, gate, draw, ablate),
        llm=_judge(judge, llm_model, base_url, cache),
    )
    with progress() as update:
        result = verify_failures(config, out, update)
    emit(result, as_json, _table(result))


def _judge(
    judge: str | None, model: str | None, base_url: str | None, cache: Path | None
) -> ChatModel | None:
    if judge is None:
        return None
    if model is None:
        raise InputError("--judge llm needs the name of a model; add --llm-model NAME")
    from headscope.data.chat import ChatModel, default_cache

    return ChatModel(model, base_url, cache or default_cache("failures"))


def _table(result: dict[str, Any], examples: int = 3) -> str:
    """The shares, and the first cases of each kind with what decided."""
    of_run = result["condition"] is not None
    counted = f"{result['selected']} of {result['rows']} sentences" if of_run else "all rows"
    judge = result["judge"]
    lines = [f"{'kind':<18}{'share':>8}{'count':>7}" + (f"{'judge':>8}" if judge else "")]
    for kind, share in result["shares"].items():
        line = f"{kind:<18}{_share(share):>8}{result['counts'][kind]:>7}"
        lines.append(line + (f"{_share(judge['shares'][kind]):>8}" if judge else ""))
    lines.append(f"shares over {counted}" + (", good before and bad after" if of_run else ""))
    if judge:
        agree, invalid = _share(judge["agreement"]), judge["invalid"]
        lines.append(
            f"rules and judge agree on {agree} of {judge['answered']} cases; "
            f"{invalid} answers could not be read"
        )
    for kind in result["shares"]:
        chosen = [one for one in result["cases"] if one["kind"] == kind]
        for one in [one for one in chosen if one["selected"] or not of_run][:examples]:
            where = f"{one['direction']} {one['id']}" if one["direction"] else one["id"]
            lines.append(f"{kind}: {where}: {one['evidence']['because']}")
    return "\n".join([*lines, f"run: {result['run']}"])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


command = failures
