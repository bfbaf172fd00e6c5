"""Which heads are a language's: those a run of LAHIS found specific to it, or any set named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import InputError
from headscope.heads import (
    Amount,
    Geometry,
    HeadSet,
    Rank,
    check_geometry,
    count_of,
    read_scores,
    resolve_heads,
)
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished, kind_of

MEAN = "mean"
SPECIFIC = "specific"
#: What a named set is called that is not said to belong to a language.
NAMED = "heads"
SHARE, SMALL, PART_OF_SMALL = "2%", 256, 20


def default_count(geometry: Geometry) -> int:
    """How many heads of a language are removed, if nobody says: 2 %, as in LAHIS.

    In a model of fewer than 256 heads, where that is a head or two, as many as fit into 5 %, and
    at least one.
    """
    if geometry.total >= SMALL:
        return count_of(SHARE, geometry.total)
    return max(1, geometry.total // PART_OF_SMALL)


@dataclass(frozen=True)
class LanguageHeads:
    """The heads of one language that are removed together.

    Attributes:
        language: its code, or `NAMED` for a set that belongs to no language.
        wanted: how many were asked for.
        chosen: the first so many of those specific to the language, fewer or none if there are
            fewer; or a named set.
        full: as many by importance alone, whether other languages need them too or not (`wanted`
            of them where `chosen` is empty); None where nobody ranked the heads.
        available: how many specific heads there are.
    """

    language: str
    wanted: int
    chosen: HeadSet
    full: HeadSet | None
    available: int


def language_heads(
    spec: str,
    k: Amount | None,
    languages: Sequence[str],
    own: str | None,
    geometry: Geometry,
    by: Rank = "above-chance",
) -> list[LanguageHeads]:
    """The heads of each language that has text, in the order of `languages`.

    `spec` is what `resolve_heads` reads. A run of `find lahis` holds sets and scores of languages,
    the runs of some other methods scores of languages alone, of which only `full` can be told; of
    either `own` takes a single language. Any other set is one row, called by `own`, the language
    it is said to belong to; of scores the top, ranked `by`. InputError if there are heads of other
    languages alone, no heads, or heads of another geometry.
    """
    place = place_of(spec)
    folder = place if place is not None and place.is_dir() else None
    if folder is not None:
        check_finished(folder)
        wanted = default_count(geometry) if k is None else count_of(k, geometry.total)
        found = [
            heads
            for language in ([own] if own else languages)
            if (heads := _of_language(folder, language, wanted, geometry, by)) is not None
        ]
        held = sorted(path.name for path in (folder / SPECIFIC).glob("*/"))
        if held and not found:
            asked = f"{own} is" if own else f"the documents are in {', '.join(languages)},"
            raise InputError(
                f"{spec}: holds heads of {', '.join(held)}; {asked} none of these, so name one of "
                "them, and give documents in it"
            )
        if found:
            return found
    named = resolve_heads(spec, k, geometry, default=default_count(geometry), by=by)
    if not len(named):
        raise InputError(f"{spec}: holds no heads, so there is nothing to remove; name some")
    return [LanguageHeads(own or NAMED, len(named), named, None, len(named))]


def _of_language(
    folder: Path, language: str, wanted: int, geometry: Geometry, by: Rank
) -> LanguageHeads | None:
    """What a run holds of one language, or None."""
    place = folder / SPECIFIC / language
    specific = HeadSet.from_pretrained(place) if kind_of(place) == "heads" else None
    scores = read_scores(folder)
    # A run on one language has no name for its scores.
    own = scores.get(language) or (
        scores.get(MEAN) if specific is not None and len(scores) == 1 else None
    )
    if specific is None and own is None:
        return None
    for heads in (specific, own):
        if heads is not None:
            check_geometry(heads, geometry, f"{folder} ({language})")
    every = HeadSet(geometry, ()) if specific is None else specific
    chosen = HeadSet(geometry, every.heads[:wanted], every.origin)
    full = None if own is None else own.top(len(chosen) or wanted, by)
    return LanguageHeads(language, wanted, chosen, full, len(every))
