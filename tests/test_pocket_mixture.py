"""The training mixture: its shares, and that training never answers what is held out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest

from headscope.pocket import mixture
from headscope.pocket.mixture import SHARES, Document, documents
from headscope.pocket.world.knowledge import (
    CAPITALS,
    COLOURS,
    RELATIONS,
    item_split,
    spelled,
    word_items,
)
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.sampling import split_of
from headscope.pocket.world.sentences import Sentence, of_kind

COUNT = 4000
Stream = tuple[list[Document], list[Sentence], set[str]]


@pytest.fixture(scope="module")
def stream() -> Stream:
    """Documents of train, every sentence that was said in them, and its texts."""
    sentences: list[Sentence] = []
    texts: set[str] = set()

    def say(sentence: Sentence, code: str) -> str:
        text = own(sentence, code)
        sentences.append(sentence)
        texts.add(text)
        return text

    own = mixture.say
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture, "say", say)
        found = list(islice(documents("train", "a test"), COUNT))
    return found, sentences, texts


def of(stream: Stream, kind: str) -> list[Document]:
    return [one for one in stream[0] if one.kind == kind]


def test_documents_come_in_their_shares(stream: Stream) -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    counts = Counter(one.kind for one in stream[0])
    for kind, share in SHARES.items():
        # Four standard deviations of a share of so many documents.
        assert counts[kind] / COUNT == pytest.approx(share, abs=4 * (share / COUNT) ** 0.5)


def test_every_sentence_of_train_is_of_train(stream: Stream) -> None:
    sentences = stream[1]
    assert len(sentences) > COUNT
    assert {split_of(one) for one in sentences} == {"train"}


def test_word_tasks_never_answer_a_held_out_item(stream: Stream) -> None:
    train = [item for item in word_items() if item.split == "train"]
    told = {(mixture.instruction(item), item.input, item.output) for item in train}
    pairs = {(item.input, item.output) for item in train}
    inputs = {item.input for item in train}
    held_out = {(i.input, i.output) for i in word_items() if i.split != "train"} - pairs
    assert len(held_out) > 500
    for one in of(stream, "word"):
        first, second, _ = one.prompt.split("\n")
        assert (first, second.removeprefix("Word: "), one.target) in told
    for one in of(stream, "shots"):
        for shot in one.target.split("\n\n"):
            given, answer = shot.split("\nAnswer: ")
            assert (given, answer) in pairs
    for one in of(stream, "bare"):
        given, texts = one.prompt.removesuffix("\nAnswer:"), stream[2]
        repeated = given == one.target and given in inputs
        assert repeated or (given, one.target) in pairs or {given, one.target} <= texts


def test_questions_never_answer_a_held_out_fact(stream: Stream) -> None:
    closed = {
        RELATIONS["capital"][code].question.format(a=spelled(country, code)): (code, country)
        for code in CODES
        for country in CAPITALS
    }
    values = {"origin": CAPITALS, "colour": COLOURS}
    people = [name.id for name in of_kind("name")]
    opened = {
        RELATIONS[relation][code].question.format(a=mixture.person(name, code)): (
            relation,
            code,
            name,
        )
        for relation in values
        for code in CODES
        for name in people
    }
    kinds: Counter[str] = Counter()
    for one in of(stream, "question"):
        context, _, rest = one.prompt.rpartition("Question: ")
        asked = rest.removesuffix("\nAnswer:")
        if not context:
            code, country = closed[asked]
            assert item_split(f"question {code} {country}") == "train"
            assert one.target == spelled(CAPITALS[country], code)
            kinds["closed"] += 1
            continue
        relation, code, name = opened[asked]
        (value,) = (
            v for v in values[relation] if mixture.fact_value(relation, v, code) == one.target
        )
        assert item_split(f"{relation} {name} {value}") == "train"
        # The answer stands in the context, in one of the languages.
        statements = {
            mixture.fact_stated(
                relation, lang, mixture.person(name, lang), mixture.fact_value(relation, v, lang)
            ): v
            for lang in CODES
            for v in values[relation]
        }
        claims = {v for text, v in statements.items() if text in context}
        assert value in claims
        kinds["two claims" if len(claims) > 1 else "one claim"] += 1
    assert min(kinds[kind] for kind in ("closed", "one claim", "two claims")) > 5


def test_the_stream_is_the_same_in_every_process() -> None:
    script = (
        "import hashlib; from itertools import islice\n"
        "from headscope.pocket.mixture import documents\n"
        "from headscope.pocket.sample import sample_pairs\n"
        "said = repr(list(islice(documents('train', 'a'), 200)))\n"
        "print(hashlib.sha256(said.encode()).hexdigest(), sample_pairs('tr-ru','dev',20,1).digest)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1] != ""
