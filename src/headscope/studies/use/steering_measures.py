"""What answers show under factors of a language's heads: languages and quality.

Everything here follows from stored answers; no model takes part.
"""

from __future__ import annotations

from collections.abc import Sequence

from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.statistics import counted
from headscope.verify.removal.measures import Translations, measure
from headscope.verify.writing.evidence import Measure, Numbers
from headscope.verify.writing.texts import Group

#: What is to be proved: fewer answers in another language, none of them empty, none worse.
MEASURES = {
    "off_target": Measure(),
    "empty": Measure(raises=True),
    "chrf": Measure(chrf_from_statistics, raises=True),
}


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
        off = None if one.off_target is None else counted(one.off_target)
        values = {"off_target": off, "empty": counted(one.empty), "chrf": one.chrf}
        found[group.name] = Numbers(group.arms, values)
    return found, missing
