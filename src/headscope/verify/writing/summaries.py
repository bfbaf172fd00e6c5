"""Does writing suffer without the heads that all languages share: ROUGE-L, chrF++, BERTScore.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes 1 % of the heads that are general, those
important in most languages, and looks at summaries; beside them stand as many random heads, free
and of the same layers, and the model as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.words import plain_words
from headscope.heads import HeadSet
from headscope.measure.external import bert_score
from headscope.measure.metrics import chrf_from_statistics
from headscope.measure.rouge import rouge_l
from headscope.measure.statistics import counted
from headscope.verify.removal.measures import Distinct, Translations, measure
from headscope.verify.writing.arms import Arm, Name, as_is, beside
from headscope.verify.writing.evidence import Measure, Numbers
from headscope.verify.writing.texts import Group

GENERAL = "general"
#: ROUGE-L and BERTScore are means over texts, chrF++ is that of all texts together.
MEASURES = {
    "rouge_l": Measure(),
    "chrf": Measure(chrf_from_statistics),
    "bert_score": Measure(),
    "off_target": Measure(raises=True),
    "empty": Measure(raises=True),
}
CONTROLS = {GENERAL: ""}


def general_arms(heads: HeadSet, gate: float, draws: int, seed: int) -> tuple[Arm, ...]:
    """The model as it is, `heads` changed, and as many random ones; the same for every language.

    Raises `InputError` if `heads` is empty or holds more than half of all heads.
    """
    return (as_is(heads), Arm(Name(GENERAL), heads, gate), *beside(heads, gate, draws, seed))


def measure_summaries(
    groups: Sequence[Group],
    sources: Mapping[str, Sequence[str]],
    texts: Sequence[Sequence[Sequence[str]]],
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """The numbers of each text by language, and why a measure is missing.

    `sources` are the texts that were summarised, by language; `texts` the outputs by group, arm
    and prompt. ROUGE-L counts words of the language (see `headscope.data.words.plain_words`).
    """
    made = {
        group.name: Translations(
            group.name,
            group.name,
            tuple(one.id for one in group.prompts),
            tuple(sources[group.name]),
            tuple(one.reference for one in group.prompts),
            tuple(map(tuple, by_arm)),
        )
        for group, by_arm in zip(groups, texts, strict=True)
    }
    measures = measure(made, only=("chrf", "off_target"))
    missing = dict(measures.missing)
    found: dict[str, Numbers] = {}
    for group in groups:
        one = measures.directions[group.name]
        distinct = Distinct(made[group.name])
        values: dict[str, NDArray[Any] | None] = {
            "rouge_l": counted(_rouge(distinct)[distinct.place]),
            "chrf": one.chrf,
            "bert_score": _bert_score(distinct, group.name, missing),
            "off_target": None if one.off_target is None else counted(one.off_target),
            "empty": counted(one.empty),
        }
        found[group.name] = Numbers(group.arms, values)
    return found, missing


def _rouge(distinct: Distinct) -> NDArray[np.float64]:
    outputs = [plain_words(text) for text in distinct.outputs]
    return rouge_l(outputs, [plain_words(text) for text in distinct.references]).texts


def _bert_score(distinct: Distinct, language: str, missing: dict[str, str]) -> Any:
    """BERTScore F1 times 100 of each output, or None where the command gives none."""
    if "bert_score" in missing:  # absent for one language, absent for all
        return None
    found = bert_score(distinct.outputs, distinct.references, language)
    if found.scores is None:
        missing["bert_score"] = found.reason
        return None
    return counted(100 * np.array(found.scores)[distinct.place])
