"""`headscope verify perplexity`: each language's text without each language's heads."""

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

__all__ = ["perplexity", "perplexity_table"]

HeadsOfLanguages = Annotated[
    list[str],
    Option(
        "--heads",
        metavar="HEADS|LANG=HEADS",
        help="A run folder of find lahis; or a saved set, a CSV or JSON of layer and head, or a "
        "list: 5.3,7.11; for several languages LANG=HEADS, repeatable.",
    ),
]
HeadsOfALanguage = Annotated[
    list[str] | None,
    Option(
        "--k",
        metavar="K",
        help="Number of heads of each language, or a share such as 0.02 or 2%; repeatable. Without "
        "it 2%, or at most 5% in a model of fewer than 256; a set is used whole.",
    ),
]


@taking(model=model_choice, documents=documents_choice)
def perplexity(
    model: ModelChoice,
    documents: DocumentsChoice,
    heads: HeadsOfLanguages,
    k: HeadsOfALanguage = None,
    rank: options.Rank = "above-chance",
    draws: options.Draws = 10,
    pool: options.Pool = "non-alignment",
    ablate: options.Ablate = "zero",
    threshold: options.Threshold = 0.1,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure how each language's text suffers when a language's heads are removed.

    Its specific heads, as many by importance alone, and random ones of the same number; the text of
    every language without the heads of every other is the cross-language matrix.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.verify.perplexity import VerifyPerplexity, verify_perplexity
    from headscope.verify.languages.conditions import LanguageRemoval

    hide_loading_bars()
    removal = LanguageRemoval(
        draws=draws,
        pool=pool,
        threshold=threshold,
        ablate=ablate,
        seed=seed,
        batch_tokens=batch_tokens,
    )
    config = VerifyPerplexity(
        tuple(heads), tuple(k or ()), model, documents, removal, allow_overlap, rank
    )
    with progress() as update:
        result = verify_perplexity(config, out, update)
    emit(result, as_json, perplexity_table(result))


def perplexity_table(result: Mapping[str, Any]) -> str:
    """Each language's text as is and without heads, then each matrix with its answer."""
    lines = [
        f"{'text':<8}{'removed':<22}{'heads':>6}{'ppl':>9}{'published':>11}{'NLL':>9}"
        f"{'change':>9}  {'95 % interval':<20}{'random':>9}{'p_docs':>9}{'p_draws':>9}"
    ]
    ranked = any(one["full"] is not None for one in result["sets"])
    for name, one in result["languages"].items():
        lines.append(_line(name, "nothing", one["baseline"], ""))
        for row in one["conditions"]:
            if row["kind"] == "removed":
                lines.append(_line(name, _removed(row, name, ranked), row, row["size"]))
    for matrix in result["matrices"]:
        lines += ["", *_matrix(matrix, ranked)]
    lines += [f"{name} has no specific heads, so none are removed" for name in result["empty"]]
    lines += [str(result["pool_note"])] if result["pool_note"] else []
    if not result["leakage"]["known"]:
        lines.append("whether the heads were found on these documents is not known")
    return "\n".join([*lines, f"run: {result['run']}"])


def _removed(row: Mapping[str, Any], name: str, ranked: bool) -> str:
    if row["role"] == "full":
        return "most important"
    if row["of"] != name:
        return str(row["of"])
    return "specific heads" if ranked else "its heads"


def _line(name: str, words: str, row: Mapping[str, Any], size: object) -> str:
    change, span = row.get("change"), ""
    if change is not None:
        span = f"{change['low']:.4f} to {change['high']:.4f}"
    random = row.get("random")
    return (
        f"{name:<8}{words:<22}{size:>6}{row['perplexity']['value']:>9.3f}"
        f"{row['published_perplexity']['value']:>11.3f}{row['nll']['value']:>9.4f}"
        f"{_number(change and change['value']):>9}  {span:<20}"
        f"{_number(random and random['mean']):>9}{_p(row.get('p_documents')):>9}"
        f"{_p(row.get('p_draws')):>9}"
    ).rstrip()


def _matrix(matrix: Mapping[str, Any], ranked: bool) -> list[str]:
    role = "most important heads" if matrix["role"] == "full" else "heads"
    role = "specific heads" if matrix["role"] == "chosen" and ranked else role
    title = f"change of NLL, {role} of (rows, k = {matrix['k']}), text of (columns)"
    lines = [title, " " * 8 + "".join(f"{name:>9}" for name in matrix["text_of"])]
    for name, row in zip(matrix["heads_of"], matrix["change"], strict=True):
        lines.append(f"{name:<8}" + "".join(f"{cell['value']:>9.4f}" for cell in row))
    answer = matrix["answer"]
    if answer is not None:
        lines.append(
            f"own text rises most: {answer['own_rises_most']} of {answer['languages']} languages "
            f"({answer['own_rises_most_surely']} surely)"
        )
        if "above_random" in answer:
            lines.append(
                f"own text rises more than without random heads: {answer['above_random']} of "
                f"{answer['languages']} ({answer['above_random_surely']} surely)"
            )
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


command = perplexity
