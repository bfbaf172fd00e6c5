"""`headscope find lahis`: how much each language's text depends on every head."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.cli.commands import Study
from headscope.cli.find.score_table import score_table
from headscope.heads import Head
from headscope.results.lahis import LahisResult
from headscope.studies.find.lahis import FindLahis, find_lahis


def _table(result: LahisResult) -> str:
    """The best heads, what each language has, and where the rest is."""
    lines = [score_table(result.heads, ("score", "low", "high", "raising"), rows=10), ""]
    for code, language in result.languages.items():
        heads = _names(language.specific_heads) or "none"
        fewer = ", fewer than the usual 1000" if language.fewer_than_usual else ""
        lines.append(f"{code}: {language.documents} documents{fewer}; specific heads: {heads}")
    if result.general_in is not None:
        heads = _names(head.place for head in result.general) or "none"
        lines.append(
            f"general heads (in {result.general_in} of {len(result.languages)} languages; "
            f"{result.general_expected:.1f} by chance): {heads}"
        )
    lines.append(f"run: {result.run}")
    return "\n".join(lines)


def _names(heads: Iterable[Head]) -> str:
    return " ".join(map(str, heads))


command = Study(FindLahis, find_lahis, _table)
