"""`headscope use mix`: training mixtures of a rated corpus."""

from __future__ import annotations

from headscope.cli.output import cell
from headscope.results.mixture import MixedCorpus
from headscope.studies.study import Study
from headscope.studies.use.mix import UseMix, use_mix

__all__ = ["command"]


def _table(result: MixedCorpus) -> str:
    """Each language's share before and after, and what was selected of it."""
    header = ("language", "before", "after", "documents", "selected", "in mixture", "score from")
    lines = [f"{header[0]:<12}" + "".join(f"{word:>12}" for word in header[1:])]
    lines += [
        f"{code or '-':<12}{mix.share_before:>12.3%}{mix.share_after:>12.3%}"
        f"{mix.mixture.documents:>12}{mix.selected.documents:>12}"
        f"{mix.copies * mix.selected.documents:>12}{cell(mix.threshold, '.4f'):>12}"
        for code, mix in result.languages.items()
    ]
    if result.factor < 1:
        lines.append(f"no reserve to replace all from: every language has {result.factor:.3%}")
    tokens = "" if result.tokens is None else f", {result.tokens} tokens"
    lines.append(f"{result.documents} documents{tokens} in {result.run}/documents")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(UseMix, use_mix, _table, loads=False)
