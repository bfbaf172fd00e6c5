"""Which heads are changed for each question, and what is measured of the outputs.

Three questions of LAHIS (Liu et al. 2025, arXiv 2511.07498). Does writing suffer without 1 % of
the heads, those general to most languages? In which language does a model write without the heads
of the one it is asked for: those specific to it, or as many by importance without exclusion? Which
of two contradicting statements does an answer follow (attention transfer) when the heads of
language A, the first statement's, are turned up, or those of language B, the second one's, turned
down? Beside all stand controls of as many heads, and the model as it is.

An answer is read in two ways: from the text (it holds an answer of A and none of B, in English or
as the language says it), and from ranks (the better of the English and native first tokens of A's
answer against that of B's; equal ranks count half for each).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.transfer import TransferPrompt, follows
from headscope.errors import InputError, MissingExtra
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.rows import SHARE, Statistic
from headscope.evidence.texts import MeasuredTexts, Outputs, measured_texts
from headscope.heads import HeadSet
from headscope.measure.identify import identifier_name, identify, same_language
from headscope.measure.statistics import counted
from headscope.verify.language_texts.conditions import FULL, NAMED, OWN, LanguageHeads
from headscope.verify.writing.texts import Group, Texts, output_rows

#: Of a group, by statistic, the numbers of every prompt, (conditions, prompts, features).
Numbers = Mapping[str, NDArray[Any]]
#: Whose heads are changed: of two statements A's or B's.
A, B = "A", "B"
OFF_TARGET_MEASURES = ("off_target", "empty")
#: The section of a page with what is asked for, written, mended and broken.
BY_LANGUAGE = "By language"
#: Of outputs how many are in the language that heads are given.
GIVEN_STATISTIC = Statistic("share in the language given", unit=SHARE, digits=1)
SUMMARY_MEASURES = ("rouge_l", "chrf", "bert_score")


def _share(words: str, better: str = "lower") -> Statistic:
    return Statistic(words, "higher" if better == "higher" else "lower", SHARE, 1)


#: What is to be proved: A's share rises, B's falls. Nothing is expected of the other two.
TRANSFER_STATISTICS = {
    "follows_a": _share("answers that follow A", "higher"),
    "follows_b": _share("answers that follow B"),
    "both": _share("answers that hold both"),
    "neither": _share("answers that follow neither"),
    "ranked_a": _share("prompts where A ranks above B", "higher"),
}

Named = Sequence[Sequence[Sequence[str | None]]]


def own_sets(language: LanguageHeads) -> list[SelectedHeads]:
    """The heads of one language to be removed: specific, and most important ones.

    A language without specific heads has the most important ones alone; heads that were named and
    belong to no language are everybody's. `outside` leaves out both.
    """
    chosen, full = language.chosen, language.full
    if not len(chosen) and not full:
        raise InputError(
            f"there are no heads of {language.language} to remove; name a run that scored heads"
        )
    of = "" if language.language == NAMED else OWN
    avoid = chosen if full is None else chosen | full
    return [
        SelectedHeads(heads, whose, language.wanted, avoid=avoid)
        for whose, heads in ((of, chosen), (of + FULL, full))
        if heads is not None
    ]


def statement_sets(
    a: HeadSet, b: HeadSet, k: int, gates: tuple[float, float]
) -> list[SelectedHeads]:
    """A's heads times the first gate, and B's times the second; `outside` leaves out both."""
    return [
        SelectedHeads(heads, whose, k, (gate,), a | b)
        for whose, heads, gate in ((A, a, gates[0]), (B, b, gates[1]))
    ]


def measured(
    groups: Sequence[Group],
    texts: Texts,
    names: Collection[str],
    sources: Mapping[str, Sequence[str]] | None = None,
) -> MeasuredTexts:
    """The measures of these names of each text by group, whose name is the language it should be
    in. `sources` are texts that were summarised, by group."""
    parts = {
        group.name: Outputs(
            group.name,
            made,
            [prompt.reference for prompt in group.prompts],
            None if sources is None else sources[group.name],
        )
        for group, made in zip(groups, texts, strict=True)
    }
    return measured_texts(parts, names)


def identified(texts: Texts) -> tuple[str | None, Named | None]:
    """The identifier's name, and the language of every output by group, condition and prompt.

    Neither where there is no identifier. Each text is looked at once.
    """
    distinct = list(dict.fromkeys(text for group in texts for arm in group for text in arm))
    try:
        known = dict(zip(distinct, identify(distinct), strict=True))
    except MissingExtra:
        return None, None
    named = [[[known[text] for text in arm] for arm in group] for group in texts]
    return identifier_name(), named


def in_language(named: Named, code: str) -> list[NDArray[Any]]:
    """Which outputs are in a language, by group, as the numbers of every prompt."""
    return [
        counted(
            [[known is not None and same_language(known, code) for known in arm] for arm in group]
        )
        for group in named
    ]


def languages_of(
    groups: Sequence[Group], named: Named | None
) -> dict[str, dict[str, dict[str, int]]]:
    """How many outputs are in which language, by group and condition, the most frequent first.

    Outputs without a letter are in no language, under the name `none`; empty where languages are
    not known.
    """
    return {
        group.name: {
            condition.id: dict(Counter(code or "none" for code in codes).most_common())
            for condition, codes in zip(group.conditions, by_condition, strict=True)
        }
        for group, by_condition in zip(groups, named or (), strict=named is not None)
    }


def identified_rows(
    groups: Sequence[Group], texts: Texts, named: Named | None
) -> Iterator[dict[str, Any]]:
    """`output_rows` with the identified language of each output as `identified`, where known."""
    return output_rows(groups, texts, **({} if named is None else {"identified": named}))


def best_ranks(forms: Sequence[Any], ranks: Sequence[int]) -> dict[str, int]:
    """The best rank of each side's forms, as `a` and `b`."""
    return {
        side: min(rank for form, rank in zip(forms, ranks, strict=True) if form.side == side)
        for side in ("a", "b")
    }


def measure_answers(
    groups: Sequence[Group],
    prompts: Mapping[str, Sequence[TransferPrompt]],
    texts: Texts,
    ranks: Sequence[Sequence[Sequence[Mapping[str, int]]]],
) -> dict[str, Numbers]:
    """The numbers of each answer by pair of languages.

    `texts` and `ranks` (see `best_ranks`) are by group, condition and prompt.
    """
    numbers: dict[str, Numbers] = {}
    for group, made, ranked in zip(groups, texts, ranks, strict=True):
        answers = [(prompt.answer_a, prompt.answer_b) for prompt in prompts[group.name]]
        a, b = (
            np.array(
                [
                    [follows(text, both[side]) for text, both in zip(texts, answers, strict=True)]
                    for texts in made
                ]
            )
            for side in (0, 1)
        )
        above = np.array(
            [[rank["b"] - rank["a"] for rank in condition_ranks] for condition_ranks in ranked]
        )
        shares = {
            "follows_a": a & ~b,
            "follows_b": b & ~a,
            "both": a & b,
            "neither": ~a & ~b,
            "ranked_a": (np.sign(above) + 1) / 2,
        }
        numbers[group.name] = {name: counted(share) for name, share in shares.items()}
    return numbers
