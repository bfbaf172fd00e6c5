"""Pairs of prompts for word translations that differ in the word and in the target language."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headscope.data.concepts import ConceptFile
from headscope.data.languages import language_name
from headscope.data.prompts import Template
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

WORD_TEMPLATE = Template(
    "Translate this word from {source_language} to {target_language}\nWord: {source}\nAnswer:"
)


@dataclass(frozen=True)
class WordPair:
    """A clean prompt and another one.

    Attributes:
        source, target, other_target: language codes; both prompts translate out of `source`.
        concepts: ids of the clean and the other meaning.
        words: their words in `source`.
        answers: of the clean and the other meaning, in `target` and in `other_target`: (clean in
            target, clean in other, other in target, other in other).
    """

    source: str
    target: str
    other_target: str
    concepts: tuple[str, str]
    words: tuple[str, str]
    answers: tuple[str, str, str, str]


@dataclass(frozen=True)
class ReadyPair:
    """A pair as tokens: both prompts, and the first token of each of the four answers."""

    pair: WordPair
    clean: tuple[int, ...]
    other: tuple[int, ...]
    firsts: tuple[int, int, int, int]


def word_pairs(concepts: ConceptFile, count: int, seed: int) -> list[WordPair]:
    """Pairs of prompts drawn at random: two meanings, a source and two target languages.

    No pair is drawn twice; there may be fewer where the words do not suffice.
    """
    rng = random.Random(f"patching {seed}")
    found: dict[tuple[Any, ...], WordPair] = {}
    able = [one for one in concepts.concepts if len(one.words) >= 3]
    if len(able) < 2 or len(concepts.languages) < 3:
        raise InputError(
            f"{concepts.path} has {len(able)} meanings with words in three languages; patching "
            "needs at least two"
        )
    for _ in range(20 * count):
        first, second = rng.sample(able, 2)
        common = [one for one in concepts.languages if one in first.words and one in second.words]
        if len(common) < 3:
            continue
        source, target, other = rng.sample(common, 3)
        answers = (
            first.words[target], first.words[other], second.words[target], second.words[other]
        )  # fmt: skip
        words = (first.words[source], second.words[source])
        if len(set(answers)) < 4 or words[0] == words[1]:
            continue
        pair = WordPair(source, target, other, (first.id, second.id), words, answers)
        found.setdefault((source, target, other, first.id, second.id), pair)
        if len(found) == count:
            break
    if not found:
        raise InputError(
            f"no two meanings of {concepts.path} have different words in the same three "
            "languages; give more words"
        )
    return list(found.values())


def encoded_pairs(
    lm: LanguageModel, pairs: Sequence[WordPair], template: Template, chat: bool | None
) -> list[ReadyPair]:
    """The pairs whose four answers begin with four tokens after one and the same prompt."""
    from headscope.lm.prompting import encode_answers

    prompts, answers = [], []
    for pair in pairs:
        names = language_name(pair.source), language_name(pair.target)
        clean = template.render(pair.words[0], *names).text
        names = language_name(pair.source), language_name(pair.other_target)
        other = template.render(pair.words[1], *names).text
        prompts += [clean] * 4 + [other]
        answers += [*pair.answers, pair.answers[3]]
    encoded = encode_answers(lm, prompts, answers, chat)
    ready = []
    for at, pair in enumerate(pairs):
        *four, other_one = encoded[5 * at : 5 * at + 5]
        heads = {one.ids[: one.start] for one in four}
        firsts = tuple(one.ids[one.start] for one in four)
        same = other_one.ids[other_one.start] == firsts[3]
        if len(heads) == 1 and len(set(firsts)) == 4 and same:
            (clean_ids,) = heads
            other_ids = tuple(other_one.ids[: other_one.start])
            first = (firsts[0], firsts[1], firsts[2], firsts[3])
            ready.append(ReadyPair(pair, tuple(clean_ids), other_ids, first))
    return ready
