"""Word alignment: joining directions, given links, eflomal, and links on their way to a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.align import (
    Alignment,
    AlignWords,
    LlmAligner,
    align_file,
    align_words,
    choose_aligner,
    linked_pairs,
)
from headscope.data.align.eflomal import SYMMETRISERS, Eflomal, align_eflomal, symmetrise
from headscope.data.align.llm import LlmLinks
from headscope.data.pairs import Links, PairSource, SentencePair, read_pairs, write_pairs
from headscope.data.words import Word, split_words
from headscope.errors import InputError

links_sets = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@settings(deadline=None)
@given(links_sets, links_sets)
def test_joined_links_lie_between_intersection_and_union(a: Links, b: Links) -> None:
    both, either = a & b, a | b
    assert symmetrise(a, b) == symmetrise(b, a) == both
    assert symmetrise(a, b, "union") == either
    grown = symmetrise(a, b, "grow-diag")
    final = symmetrise(a, b, "grow-diag-final-and")
    assert both <= grown <= final <= either
    assert grown == symmetrise(b, a, "grow-diag")
    for how in SYMMETRISERS:
        assert symmetrise(a, a, how) == a


@settings(deadline=None)
@given(links_sets, links_sets)
def test_final_and_leaves_no_candidate_between_two_free_words(a: Links, b: Links) -> None:
    final = symmetrise(a, b, "grow-diag-final-and")
    rows, columns = {i for i, _ in final}, {j for _, j in final}
    assert all(i in rows or j in columns for i, j in a | b)


def test_growing_by_hand() -> None:
    forward = frozenset({(0, 0), (1, 1), (4, 4), (2, 2)})
    backward = frozenset({(0, 0), (1, 1), (1, 2), (6, 6)})
    # From 1-1 both 1-2 and 2-2 are neighbours with a free word; 4-4 and 6-6 are too far away.
    assert symmetrise(forward, backward, "grow-diag") == {(0, 0), (1, 1), (1, 2), (2, 2)}
    assert symmetrise(forward, backward, "grow-diag-final-and") == forward | backward
    with pytest.raises(InputError, match="grow-diag-final-and"):
        symmetrise(forward, backward, "grow")


def textbook(forward: Links, backward: Links) -> Links:
    """Grow-diag-final-and, step by step as Moses describes it, over every pair of words."""
    every = [(i, j) for i in range(7) for j in range(7)]
    steps = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    links, before = set(forward & backward), -1
    while before < len(links):
        before = len(links)
        for i, j in every:
            for di, dj in steps if (i, j) in links else ():
                own = {a for a, _ in links}, {b for _, b in links}
                new = (i + di, j + dj)
                if (new[0] not in own[0] or new[1] not in own[1]) and new in forward | backward:
                    links.add(new)
    for direction in (forward, backward):
        for i, j in every:
            if (i, j) in direction and all(i != a and j != b for a, b in links):
                links.add((i, j))
    return frozenset(links)


@settings(deadline=None)
@given(links_sets, links_sets)
def test_grow_diag_final_and_is_that_of_moses(a: Links, b: Links) -> None:
    assert symmetrise(a, b, "grow-diag-final-and") == textbook(a, b)


# --- choosing and given links --------------------------------------------------------------------


def test_given_links_are_taken_as_they_are() -> None:
    pairs = [SentencePair("1", "the dog .", "Hund !", frozenset({(1, 0)}))]
    alignment = align_words(pairs)
    assert (alignment.aligner, alignment.units) == ("links", "white-space")
    assert alignment.links == (frozenset({(1, 0)}),)
    assert [word.text for word in alignment.source_words[0]] == ["the", "dog", "."]
    assert alignment.stats == {"pairs": 1, "skipped": 0, "links": 1}


def test_links_that_are_not_there_and_aligners_that_do_not_exist() -> None:
    pairs = [SentencePair("1", "a", "b", frozenset()), SentencePair("two", "a", "b")]
    with pytest.raises(InputError, match=r"pair two has no links.*--links-column"):
        choose_aligner(pairs, "links")
    with pytest.raises(InputError, match="links, eflomal, llm"):
        choose_aligner(pairs, "fastalign")
    with pytest.raises(InputError, match="name of a model"):
        align_words(pairs[:1], AlignWords("llm"), "en", "de")


def test_the_digest_depends_on_the_links() -> None:
    first = align_words([SentencePair("1", "a b", "c", frozenset({(0, 0)}))])
    second = align_words([SentencePair("1", "a b", "c", frozenset({(1, 0)}))])
    again = align_words([SentencePair("9", "a b", "c", frozenset({(0, 0)}))])
    assert first.digest == again.digest != second.digest


# --- eflomal -------------------------------------------------------------------------------------

nouns = ["dog:hund", "cat:katze", "man:mann", "house:haus", "tree:baum", "bird:vogel", "fish:fisch"]
verbs = ["sees:sieht", "hears:hört", "finds:findet", "wants:will", "knows:kennt"]


def little_corpus() -> list[tuple[list[str], list[str]]]:
    """Every noun-verb-noun sentence; the order of words is reversed in the second language."""
    corpus = []
    for subject in nouns:
        for verb in verbs:
            for thing in nouns:
                words = [word.split(":") for word in (subject, verb, thing)]
                corpus.append(([one for one, _ in words], [other for _, other in words][::-1]))
    return corpus


def test_eflomal_finds_the_links_of_a_regular_language() -> None:
    pytest.importorskip("eflomal")
    corpus = little_corpus()
    links = align_eflomal(corpus[:20], corpus[20:])
    assert len(links) == 20
    right = sum(len(one & {(0, 2), (1, 1), (2, 0)}) for one in links)
    assert right / sum(map(len, links)) > 0.9
    assert right / 60 > 0.8


def test_eflomal_bears_empty_sentences_spaces_in_units_and_case() -> None:
    pytest.importorskip("eflomal")
    corpus = little_corpus()
    spaced = [([f" {one.upper()}" for one in source], target) for source, target in corpus]
    empty: list[tuple[list[str], list[str]]] = [([], ["x"]), ([], [])]
    links = align_eflomal([*empty, *spaced[:10], (["dog"], [])], corpus)
    assert [len(one) for one in (*links[:2], links[-1])] == [0, 0, 0]
    assert sum(len(one & {(0, 2), (1, 1), (2, 0)}) for one in links) > 20
    assert align_eflomal(empty) == (frozenset(), frozenset())
    with pytest.raises(InputError, match="pair 1 has 1024 words"):
        align_eflomal([(["a"] * 1024, ["b"])])
    with pytest.raises(InputError, match="known: intersection"):
        align_eflomal(corpus[:1], options=Eflomal(symmetrise="all"))


def test_more_joining_gives_more_links() -> None:
    pytest.importorskip("eflomal")
    source = ["the", "old", "dog", "sees", "the", "small", "cat", "in", "the", "house"]
    target = ["der", "alte", "hund", "sieht", "die", "kleine", "katze", "im", "haus"]
    links = align_eflomal([(source, target)] * 3, options=Eflomal(symmetrise="union"))
    assert all(0 <= i < 10 and 0 <= j < 9 for one in links for i, j in one)
    assert all({j for _, j in one} for one in links)


# --- towards a file ------------------------------------------------------------------------------


def by_rule(pair: SentencePair, links: set[tuple[int, int]] | None) -> Alignment:
    words: Sequence[tuple[Word, ...]] = [
        tuple(split_words(text, links_given=False)) for text in (pair.source, pair.target)
    ]
    kept = None if links is None else frozenset(links)
    return Alignment("eflomal", "words", (words[0],), (words[1],), (kept,), {})


def test_links_move_to_the_pieces_and_the_text_stays() -> None:
    pair = SentencePair("1", "Don't go, dog!", "Geh nicht , Hund !", None, 4)
    # Don ' t go , dog !   /   Geh nicht , Hund !
    links = {(0, 1), (3, 0), (4, 2), (5, 3), (6, 4)}
    (moved,) = linked_pairs([pair], by_rule(pair, links))
    assert (moved.source, moved.target, moved.line) == (pair.source, pair.target, 4)
    assert moved.links == {(0, 1), (1, 0), (1, 2), (2, 3), (2, 4)}


def test_scripts_without_spaces_keep_their_text_and_its_units() -> None:
    pair = SentencePair("1", "我在2024年 见 Bob，好。", "I saw Bob.")
    words = [word.text for word in split_words(pair.source, links_given=False)]
    last = len(words) - 1
    links = {(place, 0) for place in range(last)} | {(last, 3)}
    (moved,) = linked_pairs([pair], by_rule(pair, links))
    assert (moved.source, moved.target) == (pair.source, pair.target)
    assert [word.text for word in moved.words[0]] == words
    assert [word.text for word in moved.words[1]] == ["I", "saw", "Bob", "."]
    assert (moved.links, moved.aligner) == (links, "eflomal")


def test_units_of_a_segmenter_are_kept_in_any_script() -> None:
    pair = SentencePair("1", "don't go", "geh nicht")
    words = (Word("do", 0, 2), Word("n't", 2, 5), Word("go", 6, 8))
    target = (Word("geh", 0, 3), Word("nicht", 4, 9))
    links = frozenset({(1, 1), (2, 0)})
    cut = Alignment("eflomal", "segmenter", (words,), (target,), (links,), {})
    (moved,) = linked_pairs([pair], cut)
    assert moved.units == (((0, 2), (2, 5), (6, 8)), ((0, 3), (4, 9)))
    assert (moved.links, moved.aligner) == (links, "eflomal (segmenter)")


def test_skipped_pairs_are_left_out() -> None:
    pair = SentencePair("1", "a", "b")
    assert linked_pairs([pair], by_rule(pair, None)) == ()


text = st.text(
    st.one_of(
        st.sampled_from("ab我在，. '\u0301\u200b"),
        st.sampled_from("ไทย\u0e34\u0e49日本\U00020000\U0001f600က\u102b"),
        st.characters(exclude_categories=["C"]),
    ),
    min_size=1,
).filter(lambda one: bool(one.strip()) and not any(sign in one for sign in "\t\n\r"))


@settings(deadline=None)
@given(text, text, st.data())
def test_linked_pairs_are_written_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, source: str, target: str, data: st.DataObject
) -> None:
    pair = SentencePair("1", source, target)
    whole = by_rule(pair, set())
    places = [
        (i, j) for i in range(len(whole.source_words[0])) for j in range(len(whole.target_words[0]))
    ]
    links = data.draw(st.sets(st.sampled_from(places), max_size=9)) if places else set()
    (moved,) = linked_pairs([pair], by_rule(pair, links))
    assert (moved.source, moved.target) == (source, target)
    words = whole.source_words[0], whole.target_words[0]
    if moved.units is not None:
        assert (moved.words, moved.links) == (words, links)
    else:
        # A link between pieces is there exactly if a link between units overlaps both.
        pieces = [
            [(m.start(), m.end()) for m in re.finditer(r"\S+", side)] for side in (source, target)
        ]
        assert moved.links == {
            (a, b)
            for i, j in links
            for a, (first, last) in enumerate(pieces[0])
            for b, (begin, end) in enumerate(pieces[1])
            if first < words[0][i].end and words[0][i].start < last
            if begin < words[1][j].end and words[1][j].start < end
        }
    path = tmp_path_factory.mktemp("moved") / "a.tsv"
    write_pairs(path, [moved])
    assert path.read_text("utf-8").split("\n")[1].split("\t")[:2] == [source, target]
    (back,) = read_pairs(PairSource(str(path), "en-de")).pairs
    assert back == replace(moved, id="2", line=2)
    # What is read again is aligned as it was, and another time written the same.
    again = align_words([back])
    assert (again.aligner, again.links) == ("eflomal", (moved.links,))
    assert (again.source_words[0], again.target_words[0]) == back.words
    write_pairs(path.with_name("b.tsv"), linked_pairs([back], again))
    assert path.with_name("b.tsv").read_bytes() == path.read_bytes()


def test_a_language_model_is_asked_about_the_pairs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def answer(texts: Sequence[object], *_: object) -> LlmLinks:
        asked.extend(texts)
        return LlmLinks(tuple(frozenset({(0, 0)}) for _ in texts), {})

    monkeypatch.setattr("headscope.data.align.align_llm", answer)
    path = tmp_path / "a.tsv"
    write_pairs(path, [SentencePair(str(n), f"狗{n}", f"dog {n}") for n in range(5)])
    file = read_pairs(PairSource(str(path), "zh-en", limit=2))
    alignment = align_file(file, AlignWords("llm", llm=LlmAligner("gpt-x")))
    assert asked == [(["狗", "0"], ["dog", "0"]), (["狗", "1"], ["dog", "1"])]
    assert alignment.aligner == "llm gpt-x" and "fitted_on" not in alignment.stats
    write_pairs(path, linked_pairs(file.pairs, alignment))
    again = align_words(read_pairs(PairSource(str(path), "zh-en")).pairs)
    assert (again.aligner, again.units, again.digest) == ("llm gpt-x", "words", alignment.digest)


def test_units_of_a_file_are_those_of_any_aligner(monkeypatch: pytest.MonkeyPatch) -> None:
    units = (((0, 2), (2, 3)), ((0, 1), (2, 4)))
    pairs = [SentencePair("1", "我们好", "I go", frozenset({(0, 0)}), units=units)]
    seen: list[object] = []

    def fake(texts: object, extra: object, options: object) -> tuple[Links, ...]:
        seen.append((texts, extra))
        return (frozenset({(1, 1)}),)

    monkeypatch.setattr("headscope.data.align.check_eflomal", lambda: None)
    monkeypatch.setattr("headscope.data.align.align_eflomal", fake)
    extra = [SentencePair("2", "好", "go")]
    alignment = align_words(pairs, AlignWords("eflomal"), extra_pairs=extra)
    assert seen == [([(["我们", "好"], ["I", "go"])], [(["好"], ["go"])])]
    assert (alignment.aligner, alignment.units) == ("eflomal", "spans")
    assert align_words(pairs).aligner == "links"
    rules = [replace(pairs[0], units=(((0, 1), (1, 2), (2, 3)), ((0, 1), (2, 4))))]
    assert align_words(rules).units == "words"


def test_files_with_links_keep_their_words_under_another_aligner(tmp_path: Path) -> None:
    pytest.importorskip("eflomal")
    pairs = [
        SentencePair(str(n), " ".join(["don't", *one]), " ".join(["nicht", *other]), frozenset())
        for n, (one, other) in enumerate(little_corpus())
    ]
    alignment = align_words(pairs[:5], AlignWords("eflomal"), extra_pairs=pairs[5:])
    assert alignment.units == "white-space"
    assert alignment.source_words[0][0].text == "don't"
    assert alignment.stats["fitted_on"] == len(pairs)
    assert linked_pairs(pairs[:5], alignment)[0].links == alignment.links[0]
