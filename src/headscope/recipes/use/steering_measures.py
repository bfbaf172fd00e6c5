"""What answers show under factors of a language's heads: languages, quality, paired tests.

Everything here follows from stored answers; no model takes part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.statistics import p_sentences
from headscope.verify.removal.measures import measure
from headscope.verify.removal.outputs import Translations
from headscope.verify.writing.arms import MATCHED, RANDOM, Name
from headscope.verify.writing.evidence import Measure, Numbers, rates, ratio
from headscope.verify.writing.texts import Group

__all__ = ["MEASURES", "add_tests", "answer_numbers", "controls"]

#: What is to be proved: fewer answers in another language, none of them empty, none worse.
MEASURES = {
    "off_target": Measure(ratio),
    "empty": Measure(ratio, raises=True),
    "chrf": Measure(chrf_from_statistics, raises=True),
}


def controls(groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """Which random kinds stand beside each chosen kind."""
    kinds = dict.fromkeys(
        arm.name.kind for one in groups for arm in one.arms[1:] if arm.name.draw is None
    )
    return {kind: {f"{kind}-{RANDOM}": "", f"{kind}-{MATCHED}": "_layer_matched"} for kind in kinds}


def answer_numbers(
    groups: Sequence[Group], texts: Sequence[Sequence[Sequence[str]]]
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """The numbers of each answer by language, and why a measure is missing."""
    made = {
        group.name: Translations(
            group.name,
            group.name,
            tuple(one.id for one in group.prompts),
            tuple(one.text for one in group.prompts),
            tuple(one.reference for one in group.prompts),
            tuple(map(tuple, by_arm)),
        )
        for group, by_arm in zip(groups, texts, strict=True)
    }
    referenced = all(one.reference for group in groups for one in group.prompts)
    measures = measure(made, only=("off_target", *(("chrf",) if referenced else ())))
    missing = dict(measures.missing)
    if not referenced:
        missing["chrf"] = "not every prompt has a reference"
    found = {}
    for group in groups:
        one = measures.directions[group.name]
        off = None if one.off_target is None else rates(one.off_target)
        values = {"off_target": off, "empty": rates(one.empty), "chrf": one.chrf}
        found[group.name] = Numbers(group.arms, values)
    return found, missing


def add_tests(shown: dict[str, Any], numbers: Mapping[str, Numbers], seed: int) -> None:
    """Add `p_change` to every effect: a paired test of the answers before and after."""
    parts = [(shown["languages"][code], [one]) for code, one in numbers.items()]
    if len(parts) > 1:
        parts.append((shown, list(numbers.values())))
    for part, groups in parts:
        for kind, measures in part["effects"].items():
            having = [one for one in groups if Name(kind) in one.places()]
            for key, effect in measures.items():
                arrays = [one.values[key] for one in having]
                known = [
                    (array[one.places()[Name(kind)]], array[0])
                    for one, array in zip(having, arrays, strict=True)
                    if array is not None
                ]
                if all((after == before).all() for after, before in known):
                    effect["p_change"] = 1.0
                    continue
                effect["p_change"] = p_sentences(
                    [after for after, _ in known],
                    [before[None] for _, before in known],
                    MEASURES[key].tested,
                    seed=seed,
                    alternative="two-sided",
                )
