"""`headscope find patching`: heads whose output carries a language or a meaning over."""

from __future__ import annotations

from headscope.cli.find.score_table import score_table
from headscope.results.head_scores import PatchingResult
from headscope.studies.find.patching import FindPatching, find_patching
from headscope.studies.study import Study


def _table(result: PatchingResult) -> str:
    """The best heads for either effect, what was counted, and where the rest is."""
    lines = []
    for name, words in (("language", "the other language"), ("concept", "the other meaning")):
        table = score_table(result.parts[name].heads, rows=10)
        lines += [f"change in probability of {words}:", table, ""]
    left = result.left_out
    lines.append(
        f"{result.examples} pairs of prompts; left out: {left['not_known']} not known, "
        f"{left['same_first_token']} whose answers begin alike"
    )
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(FindPatching, find_patching, _table)
