"""`headscope find lahis`: how much each language's text depends on every head."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.cli.find.score_table import score_table
from headscope.recipes.find.lahis import FindLahis, find_lahis


def _table(result: dict[str, Any]) -> str:
    """The best heads, what each language has, and where the rest is."""
    lines = [score_table(result, ("score", "low", "high", "raising"), rows=10), ""]
    for code, one in result["languages"].items():
        heads = _names(one["specific"]) or "none"
        fewer = ", fewer than the usual 1000" if one["fewer_than_usual"] else ""
        lines.append(f"{code}: {one['documents']} documents{fewer}; specific heads: {heads}")
    if result["general_in"] is not None:
        heads = _names(result["general"]) or "none"
        lines.append(
            f"general heads (in {result['general_in']} of {len(result['languages'])} languages; "
            f"{result['general_expected']:.1f} by chance): {heads}"
        )
    lines.append(f"run: {result['run']}")
    return "\n".join(lines)


def _names(heads: list[dict[str, Any]]) -> str:
    return " ".join(f"{one['layer']}.{one['head']}" for one in heads)


command = Study(FindLahis, find_lahis, _table)
