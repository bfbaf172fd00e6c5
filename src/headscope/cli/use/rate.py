"""`headscope use rate`: what heads are worth on each document of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.cli.output import cell, one_line
from headscope.recipes.use.rate import UseRate, use_rate

__all__ = ["command"]


def _table(result: Mapping[str, Any]) -> str:
    """Each language's documents and mean score, then what was left out and how fast it went."""
    if "job" in result:
        state = "was submitted" if result["submitted"] else "is still at it"
        return (
            f"job {result['job']} {state}: {result['chunks_done']} of {result['chunks']} chunks "
            f"done; its logs are in {result['logs']}\n"
            f"run the same command again when it has ended\nrun: {result['run']}"
        )
    lines = [f"{'language':<12}{'documents':>12}{'tokens':>15}{'mean score':>12}  95 % interval"]
    lines += [
        f"{one_line(code) or '-':<12}{one['documents']:>12}{one['tokens']:>15}{one['mean']:>12.4f}"
        f"  {one['low']:.4f} to {one['high']:.4f}"
        for code, one in result["languages"].items()
    ]
    speed = cell(result["tokens_per_second"], ",.0f")
    lines.append(f"{result['tokens']} tokens, {speed} a second of scoring")
    if result["rejected"]:
        lines.append(f"{result['rejected']} records not rated, see rejects.jsonl:")
        reasons = result["reasons"].items()
        lines += [f"  {count} because {one_line(reason)}" for reason, count in reasons]
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(UseRate, use_rate, _table)
