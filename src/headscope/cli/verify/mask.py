"""`headscope verify mask`: what a masked model does with held-out examples, beside its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.mask import VerifyMask, verify_mask


def _table(result: Mapping[str, Any]) -> str:
    lines = []
    for name, one in result["tasks"].items():
        kept = one["mask"]
        seen = ", a task its mask was not trained on" if one["unseen"] else ""
        shots = f", {result['shots']} shots" if result["shots"] else ""
        lines.append(
            f"{name}{seen}: {one['examples']} held-out examples{shots}; {kept['kept']} heads kept, "
            f"{kept['removed']} removed"
        )
        lines += _condition_rows(one["conditions"])
        if not one["leakage"]["known"]:
            lines.append("whether the mask was trained on these examples is not known")
        elif one["leakage"]["overlap"]:
            lines.append(f"{one['leakage']['overlap']} of them are among what it was trained on")
    return "\n".join([*lines, f"run: {result['run']}"])


def _condition_rows(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of conditions; random draws as their mean with the lowest and highest loss."""
    score = "chrf" if conditions[0]["chrf"] is not None else "accuracy"
    words = {"chrf": "chrF++", "accuracy": "right"}[score]
    lines = [f"{'':<24}{'NLL':>8}{'95 % interval':>18}{'ppl':>10}{'ROUGE-L':>9}{words:>9}"]
    done: set[str] = set()
    for row in conditions:
        if row["draw"] is None:
            bounds = row["intervals"]["nll"]
            span = f"{bounds['low']:.3f} to {bounds['high']:.3f}"
            lines.append(_line(row["name"], [row], score, span))
        elif row["kind"] not in done:
            done.add(row["kind"])
            draws = [one for one in conditions if one["kind"] == row["kind"]]
            values = [one["nll"] for one in draws]
            span = f"{min(values):.3f} to {max(values):.3f}"
            lines.append(_line(f"{row['kind']} ({len(draws)})", draws, score, span))
    return lines


def _line(words: str, rows: Sequence[Mapping[str, Any]], score: str, span: str) -> str:
    def mean(name: str, digits: int, scale: float = 1.0) -> str:
        values = [row[name] for row in rows]
        if any(value is None for value in values):
            return "-"
        return f"{scale * sum(values) / len(values):.{digits}f}"

    scale = 100.0 if score == "accuracy" else 1.0
    ending = " %" if score == "accuracy" else ""
    return (
        f"{words:<24}{mean('nll', 3):>8}{span:>18}{mean('perplexity', 2):>10}"
        f"{mean('rouge_l', 1):>9}{mean(score, 1, scale) + ending:>9}"
    )


command = Study(VerifyMask, verify_mask, _table)
