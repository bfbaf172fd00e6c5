"""`headscope verify perplexity`: each language's text without each language's heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.perplexity import VerifyPerplexity, verify_perplexity

__all__ = ["command", "perplexity_table"]


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


command = Study(VerifyPerplexity, verify_perplexity, perplexity_table)
