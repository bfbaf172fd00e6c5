"""`headscope pocket trater`: small models trained on mixtures of a corpus that was rated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import cell, emit, progress

if TYPE_CHECKING:
    from collections.abc import Mapping


def trater(
    documents: Annotated[
        int, Option("--documents", min=100, max=1_000_000_000, help="Documents of the corpus.")
    ] = 70_000,
    bilingual: Annotated[
        float, Option("--bilingual", help="Share of documents that carry their translation.")
    ] = 0.3,
    tokens: Annotated[
        int, Option("--tokens", min=1000, help="Tokens that each model reads, prompts included.")
    ] = 1_700_000,
    prompts: Annotated[
        float, Option("--prompts", help="Share of those tokens that are translation prompts.")
    ] = 0.1,
    language: options.Languages = None,
    share: Annotated[
        list[str] | None,
        Option(
            "--share",
            metavar="SHARE",
            help="Share of every language that is selected, repeatable: true (what really carries "
            "a translation), or such as 1.3%.",
        ),
    ] = None,
    seeds: Annotated[int, Option("--seeds", min=1, help="Models trained on each mixture.")] = 3,
    workers: Annotated[
        int, Option("--workers", min=1, help="Trainings at a time, with one thread each.")
    ] = 1,
    sentences: Annotated[
        int, Option("--sentences", min=2, help="Test sentences of each direction.")
    ] = 100,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Train the bundled model from nothing on mixtures of a corpus that it rated.

    Token Alignment Heads, Table 1, at the size of a pocket: the corpus as it is, without the
    documents that need the token alignment heads most, with those three times, and the same with
    as many random documents. Without --language the corpus is in English and German. Fifteen
    models take one to two hours on two cores; a run that was stopped goes on with the same
    command.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.trater import TraterExperiment, trater_experiment
    from headscope.recipes.trater.evaluation import Evaluation

    hide_loading_bars()
    config = TraterExperiment(
        documents=documents,
        bilingual=bilingual,
        tokens=tokens,
        prompts=prompts,
        shares=tuple(dict.fromkeys(share or ["true"])),
        seeds=tuple(range(seeds)),
        evaluation=Evaluation(tuple(dict.fromkeys(language or ("en", "de"))), sentences),
    )
    with progress() as update:
        result = trater_experiment(config, out, update, workers)
    emit(result, as_json, f"{_table(result)}\nrun: {result['run']}")


def _table(result: Mapping[str, Any]) -> str:
    names = {"chrf_prompt": ".1f", "chrf_document": ".1f", "gain": ".3f", "plain_nll": ".3f"}
    lines = ["\t".join(("mixture", "share", *names))]
    for one in result["conditions"]:
        told = [cell(one[name], form) for name, form in names.items()]
        lines.append("\t".join([one["kind"], cell(one["share"], ".1%"), *told]))
    return "\n".join(lines)


command = trater
