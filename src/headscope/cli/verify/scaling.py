"""`headscope verify scaling`: heads outside a mask at part of their strength."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.scaling import VerifyScaling, verify_scaling


def _table(result: Mapping[str, Any]) -> str:
    lines = []
    for name, one in result["tasks"].items():
        lines.append(
            f"{name}: instructed, {one['mask']['removed']} heads scaled; chosen on "
            f"{one['chosen_on']} examples, measured on {one['examples']} others"
        )
        lines.append(f"{'α':<6}{'NLL':>8}{'95 % interval':>18}{'shuffled':>10}{'chosen':>9}")
        shares = {row["alpha"]: row["share"] for row in one["chosen_again"]}
        for row in one["alphas"]:
            bounds = row["intervals"]["nll"]
            span = f"{bounds['low']:.3f} to {bounds['high']:.3f}"
            others = row["shuffled"]
            beside = f"{sum(others) / len(others):.3f}" if others else "-"
            star = " best" if row["alpha"] == one["best"] else ""
            lines.append(
                f"{row['alpha']:<6g}{row['nll']:>8.3f}{span:>18}{beside:>10}"
                f"{shares[row['alpha']]:>9.0%}{star}"
            )
        lines += _measured(one)
    return "\n".join([*lines, f"run: {result['run']}"])


def _measured(one: Mapping[str, Any]) -> list[str]:
    names = ("bleu", "chrf", "bleu_published") if one["translation"] else ("accuracy",)
    words = {"bleu": "BLEU", "chrf": "chrF++", "bleu_published": "published", "accuracy": "right"}
    lines = [f"{'':<24}{'NLL':>8}" + "".join(f"{words[name]:>11}" for name in names)]
    for row in one["conditions"]:
        values = [row[name] for name in names]
        cells = "".join(f"{'-' if value is None else f'{value:.3f}':>11}" for value in values)
        lines.append(f"{row['name']:<24}{row['nll']:>8.3f}{cells}")
    return lines


command = Study(VerifyScaling, verify_scaling, _table)
