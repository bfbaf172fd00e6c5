"""Which heads are changed while a model writes in a language."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.heads import Amount, Rank
from headscope.heads.resolve import place_of
from headscope.verify.languages.sets import LanguageHeads, language_heads

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: How many heads of a language are changed where nobody says: 1 %, as in LAHIS, at least one.
SHARE = "1%"
SPECIFIC = "specific"


def run_languages(spec: str) -> list[str]:
    """The languages that a run holds heads of, by name; empty for any other set."""
    place = _folder(spec)
    return [] if place is None else sorted(one.parent.name for one in place.glob("*/config.json"))


def writing_heads(
    spec: str,
    k: Amount | None,
    languages: Sequence[str],
    lm: LanguageModel,
    rank: Rank = "above-chance",
) -> dict[str, LanguageHeads]:
    """The heads of each language that has some, by its code; a named set stands for every one.

    Of a run of LAHIS 1 % of all heads unless `k` says otherwise, of a named set all of it.
    """
    wanted = SHARE if k is None and _folder(spec) is not None else k
    rows = language_heads(spec, wanted, languages, None, lm.geometry, rank)
    own = {one.language: one for one in rows}
    if not any(code in own for code in languages):
        return dict.fromkeys(languages, rows[0])
    return {code: own[code] for code in languages if code in own}


def _folder(spec: str) -> Path | None:
    """Where a run keeps the heads specific to each language."""
    place = place_of(spec)
    found = None if place is None else place / SPECIFIC
    return found if found is not None and found.is_dir() else None
