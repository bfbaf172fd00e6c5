"""In which language a model writes without the heads of the one it is asked for.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes 1 % of the heads: those specific to the language,
as many by importance without exclusion ("full"), and counts the outputs in another language.
Beside them stand as many random heads, free and of the same layers, and the model as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headscope.errors import InputError, MissingExtra
from headscope.measure.identify import identifier_name, identify, off_targets
from headscope.measure.statistics import counted
from headscope.results.writing import Comparison, Written
from headscope.verify.languages.sets import NAMED, LanguageHeads
from headscope.verify.writing.arms import Arm, Name, as_is, beside
from headscope.verify.writing.evidence import Measure, Numbers
from headscope.verify.writing.texts import Group, output_rows

SPECIFIC, FULL, CHOSEN = "specific", "full", "chosen"
MEASURES = {
    "off_target": Measure(raises=True),
    "empty": Measure(raises=True),
}
CONTROLS = {SPECIFIC: "", FULL: "", CHOSEN: ""}

Named = Sequence[Sequence[Sequence[str | None]]]


def language_arms(found: LanguageHeads, draws: int, seed: int) -> tuple[Arm, ...]:
    """The model as it is, and without the heads of one language.

    `specific` and `full` have the same size and share their random heads, which are outside both
    as far as possible. A language without specific heads has `full` alone; heads that were named
    and belong to no language are `chosen`.
    """
    chosen, full = found.chosen, found.full
    size = chosen if len(chosen) else full
    if size is None or not len(size):
        raise InputError(
            f"there are no heads of {found.language} to remove; name a run that scored heads"
        )
    arms = [as_is(size)]
    if len(chosen):
        kind = CHOSEN if found.language == NAMED else SPECIFIC
        arms.append(Arm(Name(kind), chosen, 0.0))
    if full is not None:
        arms.append(Arm(Name(FULL), full, 0.0))
    return (*arms, *beside(size, 0.0, draws, seed, avoid=full))


def identified(texts: Sequence[Sequence[Sequence[str]]]) -> tuple[str | None, Named | None]:
    """The identifier's name, and the language of every output by group, arm and prompt.

    Neither where there is no identifier. Each text is looked at once.
    """
    distinct = list(dict.fromkeys(one for group in texts for arm in group for one in arm))
    try:
        known = dict(zip(distinct, identify(distinct), strict=True))
    except MissingExtra:
        return None, None
    return identifier_name(), [[[known[one] for one in arm] for arm in group] for group in texts]


def measure_languages(
    groups: Sequence[Group],
    codes: Mapping[str, str],
    texts: Sequence[Sequence[Sequence[str]]],
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """The numbers of each output by group, and why a measure is missing.

    `codes` says which language each group was asked for.
    """
    missing: dict[str, str] = {}
    found: dict[str, Numbers] = {}
    for group, by_arm in zip(groups, texts, strict=True):
        empty = np.array([[not one.strip() for one in arm] for arm in by_arm])
        off = None
        try:
            off = counted([off_targets(arm, codes[group.name]) for arm in by_arm])
        except InputError as error:  # the identifier is not there, or knows no such language
            missing.setdefault("off_target", str(error))
        found[group.name] = Numbers(group.arms, {"off_target": off, "empty": counted(empty)})
    return found, missing


def with_languages(
    found: Mapping[str, Comparison], groups: Sequence[Group], named: Named | None
) -> dict[str, Comparison]:
    """The figures of each group with the languages of its outputs, where they are known.

    Outputs without a letter are in no language, under the name `none`.
    """
    if named is None:
        return dict(found)
    return {
        group.name: replace(
            found[group.name],
            written=tuple(
                Written(
                    arm.name.kind,
                    arm.name.draw,
                    dict(Counter(one or "none" for one in codes).most_common()),
                )
                for arm, codes in zip(group.arms, by_arm, strict=True)
            ),
        )
        for group, by_arm in zip(groups, named, strict=True)
    }


def identified_rows(
    groups: Sequence[Group], texts: Sequence[Sequence[Sequence[str]]], named: Named | None
) -> Iterator[dict[str, Any]]:
    """`output_rows` with the identified language of each output as `identified`, where known."""
    rows = output_rows(groups, texts)
    if named is None:
        yield from rows
        return
    codes = (one for group in named for arm in group for one in arm)
    for row, code in zip(rows, codes, strict=True):
        yield {**row, "identified": code}
