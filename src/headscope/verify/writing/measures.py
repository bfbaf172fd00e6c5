"""Which heads are changed for each question, and what is measured of the outputs.

Three questions of LAHIS (Liu et al. 2025, arXiv 2511.07498). Does writing suffer without 1 % of
the heads, those general to most languages? In which language does a model write without the heads
of the one it is asked for: those specific to it, or as many by importance without exclusion? Which
of two contradicting statements does an answer follow (attention transfer) when the heads of
language A, the first statement's, are turned up, or those of language B, the second one's, turned
down? Beside all stand as many random heads, free and of the same layers, and the model as it is.

An answer is read in two ways: from the text (it holds an answer of A and none of B, in English or
as the language says it), and from ranks (the better of the English and native first tokens of A's
answer against that of B's; equal ranks count half for each).

What arms show beside each other follows from numbers stored for each prompt. Over several groups
every score is the plain mean of the groups', and tests and intervals resample prompts within
groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.transfer import TransferPrompt, follows
from headscope.data.words import plain_words
from headscope.errors import InputError, MissingExtra
from headscope.estimates import known
from headscope.heads import HeadSet
from headscope.measure.external import bert_score
from headscope.measure.identify import identifier_name, identify, off_targets
from headscope.measure.intervals import FromStatistics
from headscope.measure.metrics import chrf_from_statistics, rouge_l
from headscope.measure.statistics import counted, counted_mean
from headscope.measure.trial import Group as TrialGroup
from headscope.measure.trial import Side, Trial
from headscope.progress import Progress
from headscope.results.writing import Control, Effect, WritingCondition, WritingEffects, Written
from headscope.verify.languages.conditions import NAMED, LanguageHeads
from headscope.verify.translation.measures import Distinct, Translations, measure
from headscope.verify.writing.texts import (
    BASELINE,
    MATCHED,
    RANDOM,
    Arm,
    Group,
    Name,
    Texts,
    as_is,
    beside,
    output_rows,
)


@dataclass(frozen=True)
class Measure:
    """How sums of statistics become a score, and whether what is to be proved raises it."""

    score: FromStatistics = counted_mean
    raises: bool = False


@dataclass(frozen=True, eq=False)
class Numbers:
    """The arms of one group, and by measure the statistics (arms, prompts, features) or None."""

    arms: tuple[Arm, ...]
    values: Mapping[str, NDArray[Any] | None]

    @property
    def places(self) -> dict[Name, int]:
        """Where each arm stands."""
        return {arm.name: at for at, arm in enumerate(self.arms)}

    def group(
        self, names: Sequence[Name], key: str, score: FromStatistics, seed: int
    ) -> TrialGroup:
        """One measure under the arms of these names, as far as this group has them."""
        values, at = self.values.get(key), self.places
        return TrialGroup(
            [None if values is None or name not in at else values[at[name]] for name in names],
            score,
            [frozenset(self.arms[at[name]].heads) if name in at else None for name in names],
            seed,
        )


def evidence(
    groups: Mapping[str, Numbers],
    measures: Mapping[str, Measure],
    controls: Mapping[str, str],
    seed: int = 0,
    progress: Progress | None = None,
    changes: bool = False,
) -> tuple[WritingEffects, dict[str, WritingEffects]]:
    """The figures over all groups, and those of each.

    `controls` are the chosen kinds, each with what the names of its random kinds begin with. Over
    several groups a kind counts where a group has it. With `changes` effects have `p_change`.
    """
    names = list(dict.fromkeys(arm.name for numbers in groups.values() for arm in numbers.arms))
    trials = {
        key: Trial([part.group(names, key, measure.score, seed) for part in groups.values()])
        for key, measure in measures.items()
    }
    parts: dict[str, WritingEffects] = {}
    for at, (title, numbers) in enumerate(groups.items()):
        own = {key: Trial([trial.groups[at]]) for key, trial in trials.items()}
        parts[title] = _compared([numbers], names, own, measures, controls, changes)
        if progress:
            progress("comparing", at + 1, len(groups) + 1)
    whole = parts[title]
    if len(groups) > 1:
        whole = _compared([*groups.values()], names, trials, measures, controls, changes)
    if progress:
        progress("comparing", len(groups) + 1, len(groups) + 1)
    return whole, parts


def _compared(
    groups: Sequence[Numbers],
    names: Sequence[Name],
    trials: Mapping[str, Trial],
    measures: Mapping[str, Measure],
    controls: Mapping[str, str],
    changes: bool,
) -> WritingEffects:
    rows = []
    for at, name in enumerate(names):
        arms = {
            number: group.arms[group.places[name]]
            for number, group in enumerate(groups)
            if name in group.places
        }
        if not arms:
            continue
        about: dict[str, Any] = {"groups": len(arms)}
        if len(groups) == 1:
            arm = arms[0]
            about = {"k": len(arm.heads), "gate": arm.gate, "filled_up": arm.filled_up,
                     "heads": tuple(map(str, arm.heads))}  # fmt: skip
        scores = {
            key: known(Trial([trial.groups[number] for number in arms]).scores[at])
            for key, trial in trials.items()
        }
        rows.append(WritingCondition(kind=name.kind, draw=name.draw, **about, unknown=scores))
    return WritingEffects(
        prompts=sum(
            next((len(values[0]) for values in group.values.values() if values is not None), 0)
            for group in groups
        ),
        baseline=next(row.scores for row in rows if row.kind == BASELINE),
        conditions=tuple(row for row in rows if row.kind != BASELINE),
        effects={
            kind: {
                key: _effect(
                    names,
                    kind,
                    prefix,
                    trial,
                    "higher" if measures[key].raises else "lower",
                    changes,
                )
                for key, whole in trials.items()
                if (trial := whole.among(names.index(Name(kind)))).groups
            }
            for kind, prefix in controls.items()
            if any(Name(kind) in group.places for group in groups)
        },
    )


def _effect(
    names: Sequence[Name], kind: str, prefix: str, trial: Trial, side: Side, changes: bool
) -> Effect:
    """A chosen kind by one measure, in the groups that have both."""
    at, base = names.index(Name(kind)), names.index(Name(BASELINE))

    def control(random: str) -> Control | None:
        draws = [
            place
            for place, name in enumerate(names)
            if name.kind == prefix + random and not np.isnan(trial.scores[place])
        ]
        if not draws:
            return None
        against = trial.against(at, draws, side)
        return Control(against.draws, against)

    return Effect(
        value=float(trial.scores[at]),
        baseline=float(trial.scores[base]),
        change=trial.difference(at, [base]),
        groups=len(trial.groups),
        free=control(RANDOM),
        matched=control(MATCHED),
        p_change=trial.p_examples(at, [base], "two-sided") if changes else None,
    )


GENERAL = "general"
SPECIFIC, FULL, CHOSEN = "specific", "full", "chosen"
UP, DOWN = "up", "down"
OFF_TARGET_MEASURES = {"off_target": Measure(raises=True), "empty": Measure(raises=True)}
#: ROUGE-L and BERTScore are means over texts, chrF++ is that of all texts together.
SUMMARY_MEASURES = {
    "rouge_l": Measure(),
    "chrf": Measure(chrf_from_statistics),
    "bert_score": Measure(),
    **OFF_TARGET_MEASURES,
}
#: What is to be proved: A's share rises, B's falls. Nothing is expected of the other two.
TRANSFER_MEASURES = {
    "follows_a": Measure(raises=True),
    "follows_b": Measure(),
    "both": Measure(),
    "neither": Measure(),
    "ranked_a": Measure(raises=True),
}

Named = Sequence[Sequence[Sequence[str | None]]]


def general_arms(heads: HeadSet, gate: float, draws: int, seed: int) -> tuple[Arm, ...]:
    """The model as it is, `heads` changed, and as many random ones; the same for every language.

    Raises `InputError` if `heads` is empty or holds more than half of all heads.
    """
    return (as_is(heads), Arm(Name(GENERAL), heads, gate), *beside(heads, gate, draws, seed))


def language_arms(language: LanguageHeads, draws: int, seed: int) -> tuple[Arm, ...]:
    """The model as it is, and without the heads of one language.

    `specific` and `full` have the same size and share their random heads, which are outside both
    as far as possible. A language without specific heads has `full` alone; heads that were named
    and belong to no language are `chosen`.
    """
    chosen, full = language.chosen, language.full
    size = chosen if len(chosen) else full
    if size is None or not len(size):
        raise InputError(
            f"there are no heads of {language.language} to remove; name a run that scored heads"
        )
    arms = [as_is(size)]
    if len(chosen):
        kind = CHOSEN if language.language == NAMED else SPECIFIC
        arms.append(Arm(Name(kind), chosen, 0.0))
    if full is not None:
        arms.append(Arm(Name(FULL), full, 0.0))
    return (*arms, *beside(size, 0.0, draws, seed, avoid=full))


def transfer_arms(
    a: HeadSet, b: HeadSet, up: float, down: float, draws: int, seed: int
) -> tuple[Arm, ...]:
    """The model as it is, with A's heads times `up`, with B's heads times `down`, and with as many
    random heads, free and layer-matched, under either gate. An empty set has no arms.

    Random heads are outside both sets as far as possible.
    """
    arms = [as_is(a)]
    for kind, heads, gate, other in ((UP, a, up, b), (DOWN, b, down, a)):
        if len(heads):
            arms.append(Arm(Name(kind), heads, gate))
            arms += beside(heads, gate, draws, seed, avoid=other, prefix=f"{kind}-")
    return tuple(arms)


def measure_summaries(
    groups: Sequence[Group], sources: Mapping[str, Sequence[str]], texts: Texts
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """The numbers of each text by language, and why a measure is missing.

    `sources` are the texts that were summarised, by language. ROUGE-L counts words of the language
    (see `headscope.data.words.plain_words`).
    """
    made = {
        group.name: Translations(
            group.name,
            group.name,
            tuple(prompt.id for prompt in group.prompts),
            tuple(sources[group.name]),
            tuple(prompt.reference for prompt in group.prompts),
            tuple(map(tuple, by_arm)),
        )
        for group, by_arm in zip(groups, texts, strict=True)
    }
    measures = measure(made, only=("chrf", "off_target"))
    missing = dict(measures.missing)
    numbers: dict[str, Numbers] = {}
    for group in groups:
        language = measures.directions[group.name]
        distinct = Distinct(made[group.name])
        words = [plain_words(text) for text in distinct.outputs]
        rouge = rouge_l(words, [plain_words(text) for text in distinct.references]).texts
        values: dict[str, NDArray[Any] | None] = {
            "rouge_l": counted(rouge[distinct.place]),
            "chrf": language.chrf,
            "bert_score": None,
            "off_target": None if language.off_target is None else counted(language.off_target),
            "empty": counted(language.empty),
        }
        if "bert_score" not in missing:  # absent for one language, absent for all
            bert = bert_score(distinct.outputs, distinct.references, group.name)
            if bert.scores is None:
                missing["bert_score"] = bert.reason
            else:
                values["bert_score"] = counted(100 * np.array(bert.scores)[distinct.place])
        numbers[group.name] = Numbers(group.arms, values)
    return numbers, missing


def measure_languages(
    groups: Sequence[Group], texts: Texts
) -> tuple[dict[str, Numbers], dict[str, str]]:
    """The numbers of each output by language, and why a measure is missing."""
    missing: dict[str, str] = {}
    numbers: dict[str, Numbers] = {}
    for group, by_arm in zip(groups, texts, strict=True):
        empty = np.array([[not text.strip() for text in arm] for arm in by_arm])
        off = None
        try:
            off = counted([off_targets(arm, group.name) for arm in by_arm])
        except InputError as error:  # the identifier is not there, or knows no such language
            missing.setdefault("off_target", str(error))
        numbers[group.name] = Numbers(group.arms, {"off_target": off, "empty": counted(empty)})
    return numbers, missing


def identified(texts: Texts) -> tuple[str | None, Named | None]:
    """The identifier's name, and the language of every output by group, arm and prompt.

    Neither where there is no identifier. Each text is looked at once.
    """
    distinct = list(dict.fromkeys(text for group in texts for arm in group for text in arm))
    try:
        known = dict(zip(distinct, identify(distinct), strict=True))
    except MissingExtra:
        return None, None
    named = [[[known[text] for text in arm] for arm in group] for group in texts]
    return identifier_name(), named


def with_languages(
    parts: Mapping[str, WritingEffects], groups: Sequence[Group], named: Named | None
) -> dict[str, WritingEffects]:
    """The figures of each group with the languages of its outputs, where they are known.

    Outputs without a letter are in no language, under the name `none`.
    """
    if named is None:
        return dict(parts)
    return {
        group.name: replace(
            parts[group.name],
            written=tuple(
                Written(
                    arm.name.kind,
                    arm.name.draw,
                    dict(Counter(code or "none" for code in codes).most_common()),
                )
                for arm, codes in zip(group.arms, by_arm, strict=True)
            ),
        )
        for group, by_arm in zip(groups, named, strict=True)
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

    `texts` and `ranks` (see `best_ranks`) are by group, arm and prompt.
    """
    numbers: dict[str, Numbers] = {}
    for group, by_arm, ranked in zip(groups, texts, ranks, strict=True):
        answers = [(prompt.answer_a, prompt.answer_b) for prompt in prompts[group.name]]
        a, b = (
            np.array(
                [
                    [follows(text, both[side]) for text, both in zip(arm, answers, strict=True)]
                    for arm in by_arm
                ]
            )
            for side in (0, 1)
        )
        above = np.array([[own["b"] - own["a"] for own in arm] for arm in ranked])
        shares = {
            "follows_a": a & ~b,
            "follows_b": b & ~a,
            "both": a & b,
            "neither": ~a & ~b,
            "ranked_a": (np.sign(above) + 1) / 2,
        }
        numbers[group.name] = Numbers(
            group.arms, {name: counted(share) for name, share in shares.items()}
        )
    return numbers
