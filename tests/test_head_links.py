"""Word links from heads: equal to a naive reading of attention maps; counts, laws, whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import find_helpers
import lm_helpers
from conftest import Said, json_of
from headscope.data.align import AlignWords, align_file
from headscope.data.pairs import PairFile, PairSource, SentencePair, read_pairs, write_pairs
from headscope.data.prompts import DEFAULT_TEMPLATE, translation_prompts
from headscope.errors import InputError
from headscope.evidence.rows import SELECTED
from headscope.find.head_links import HeadLinker, Reader, links_of, turned
from headscope.find.translation_score_config import HeadLinks, TranslationScore, by_heads
from headscope.find.translation_scores import linked_parts, linking_scores, with_heads
from headscope.lm import LanguageModel
from headscope.lm.attention.maps import attention_of
from headscope.pocket.sample import sample_pairs
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.alignment import VerifyAlignment, verify_alignment
from headscope.verify.alignment_evidence import STATISTICS, counted, gold, measures
from verify_helpers import write_data


def settings(**how: Any) -> TranslationScore:
    return TranslationScore(aligner="heads", head_links=HeadLinks(**how), batch_tokens=600)


def words_of(pairs: PairFile) -> list[Any]:
    return [pair.words for pair in pairs.pairs]


def naive(lm: LanguageModel, pairs: PairFile, number: int, rows: str, weights: str) -> Any:
    """A[head, j, i] of one pair from its whole attention map, by loops over characters."""
    pair = pairs.pairs[number]
    prompt = translation_prompts(pairs, DEFAULT_TEMPLATE, None, lm.tokenizer.bos_token or "")
    full = prompt[number].with_target(pair.target)
    spans, map_ = lm.encoded(full.text).spans, attention_of(lm, full.text)
    sources, targets = pair.words

    def tokens(word: Any, start: int) -> list[int]:
        return [
            at
            for at, (first, last) in enumerate(spans)
            if first < last and first < start + word.end and last > start + word.start
        ]

    of_source = [tokens(word, full.source_start) for word in sources]
    every = sorted({at for own in of_source for at in own})
    made = np.zeros((lm.geometry.total, len(targets), len(sources)))
    for h, head in enumerate(lm.geometry.heads()):
        for j, target in enumerate(targets):
            own = tokens(target, full.target_start)
            for at in own:
                row = map_[head][at - (rows == "predict")]
                if not row[every].any():  # beyond the window
                    continue
                best = max(every, key=lambda key: row[key])
                for i, keys in enumerate(of_source):
                    if weights == "peak":
                        made[h, j, i] += (best in keys) / len(own)
                    else:
                        made[h, j, i] += row[keys].sum() / row[every].sum() / len(own)
    return made


@pytest.mark.parametrize("rows", ["read", "predict"])
@pytest.mark.parametrize("weights", ["mass", "peak"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_attention_between_words_is_that_of_whole_maps(name: str, rows: str, weights: str) -> None:
    """Of models with grouped keys and windows, in batches, behind a common beginning."""
    lm = lm_helpers.wrapped(name)
    pairs = find_helpers.pairs(n=5)
    linker = HeadLinker(lm, pairs, settings(heads="0.1", rows=rows, weights=weights))
    made = [*linker.attention(words_of(pairs), [*lm.geometry.heads()], [4, 0, 2])]
    assert sorted(number for number, *_ in made) == [0, 2, 4]
    for number, first, second in made:
        wanted = naive(lm, pairs, number, rows, weights)
        np.testing.assert_allclose(first, wanted, atol=1e-4)
        back = naive(lm, turned(pairs), number, rows, weights)
        np.testing.assert_allclose(second, back.transpose(0, 2, 1), atol=1e-4)


def test_shots_stand_before_the_pair_in_both_directions() -> None:
    lm = lm_helpers.wrapped("llama")
    pairs = find_helpers.pairs(n=5)
    pairs = replace(pairs, pairs=pairs.pairs[:3], shots=pairs.pairs[3:])
    linker = HeadLinker(lm, pairs, settings(heads="0.1", rows="read"))
    ((_, first, second),) = linker.attention(words_of(pairs), [*lm.geometry.heads()], [1])
    np.testing.assert_allclose(first, naive(lm, pairs, 1, "read", "mass"), atol=1e-4)
    back = naive(lm, turned(pairs), 1, "read", "mass")
    np.testing.assert_allclose(second.transpose(0, 2, 1), back, atol=1e-4)


def test_turning_a_file_twice_gives_it_back() -> None:
    pairs = replace(sample_pairs("en-de", "dev", 4, 0), read=None)
    pairs = replace(pairs, shots=pairs.pairs[:1], names=("English", "German"))
    assert turned(turned(pairs)) == pairs
    assert turned(pairs).pairs[0].source == pairs.pairs[0].target
    assert turned(pairs).language_names == ("German", "English")


TABLES = st.integers(1, 4).flatmap(
    lambda targets: st.lists(
        st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=targets, max_size=targets
    )
)


@given(TABLES, st.sampled_from(["multiplied", "apart", "one"]))
def test_links_are_the_largest_of_rows_and_columns(table: list[list[int]], prompts: Any) -> None:
    first = np.array([table], dtype=np.float32)
    second = first if prompts == "one" else (first + 1) % 4
    forth, back = first[0].tolist(), second[0].tolist()
    if prompts == "multiplied":
        forth = back = (first * second)[0].tolist()
    by_target = {(row.index(max(row)), j) for j, row in enumerate(forth) if max(row) > 0}
    columns = [[row[i] for row in back] for i in range(3)]
    by_source = {(i, own.index(max(own))) for i, own in enumerate(columns) if max(own) > 0}
    for join, wanted in (
        ("intersection", by_target & by_source),
        ("union", by_target | by_source),
    ):
        how = HeadLinks(prompts=prompts, join=join)  # type: ignore[arg-type]
        assert links_of(first, second, how) == wanted


def test_of_nothing_there_are_no_links() -> None:
    for shape in ((1, 0, 3), (1, 3, 0), (1, 2, 2)):
        empty = np.zeros(shape, dtype=np.float32)
        assert links_of(empty, empty, HeadLinks()) == frozenset()


LINKS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=9)


def scores(made: Any, sure: Any, possible: Any) -> dict[str, float]:
    found = measures(np.array(counted(made, sure, possible)))
    assert list(found) == list(STATISTICS)
    return {name: float(own) for name, own in found.items()}


@given(LINKS, LINKS.filter(bool), LINKS)
def test_measures_are_those_of_their_definitions(made: Any, sure: Any, more: Any) -> None:
    found = scores(made, sure, more - sure)
    possible = sure | more
    precision = len([link for link in made if link in possible]) / len(made) if made else 0
    recall = sum(link in made for link in sure) / len(sure)
    error = 1 - (len(made & sure) + len(made & possible)) / (len(made) + len(sure))
    assert found["precision"] == pytest.approx(precision)
    assert found["recall"] == pytest.approx(recall)
    assert found["aer"] == pytest.approx(error)
    both = precision + recall
    assert found["f1"] == pytest.approx(2 * precision * recall / both if both else 0)
    plain = scores(made, sure, frozenset())
    assert plain["aer"] == pytest.approx(1 - plain["f1"])
    assert plain["precision"] <= found["precision"] and plain["aer"] >= found["aer"]


@given(LINKS.filter(bool), LINKS)
def test_perfect_links_have_no_error(sure: Any, more: Any) -> None:
    perfect = {"f1": 1, "precision": 1, "recall": 1, "aer": 0}
    assert scores(sure, sure, more) == perfect
    assert scores(sure | more, sure, more - sure) == perfect
    assert scores(None, sure, more) == {"f1": 0, "precision": 0, "recall": 0, "aer": 1}


def test_possible_links_are_read_and_written(tmp_path: Path) -> None:
    file = tmp_path / "gold.tsv"
    file.write_text("source\ttarget\tlinks\na b\tc d\t0-0 1p1 0p0\ne\tf\t\n", "utf-8")
    (first, second) = read_pairs(PairSource(str(file), "en-de")).pairs
    assert (first.links, first.possible) == ({(0, 0)}, {(1, 1)})
    assert (second.links, second.possible) == (frozenset(), frozenset())
    write_pairs(tmp_path / "again.tsv", (first, second))
    again = read_pairs(PairSource(str(tmp_path / "again.tsv"), "en-de")).pairs
    assert [(pair.links, pair.possible) for pair in again] == [({(0, 0)}, {(1, 1)}), (set(), set())]
    file.write_text("source\ttarget\tlinks\na b\tc d\t0-0 1p2\n", "utf-8")
    with pytest.raises(InputError, match="1-2"):
        read_pairs(PairSource(str(file), "en-de"))
    assert first.unlinked.possible == frozenset()
    fitted = (replace(first, aligner="eflomal"),)
    with pytest.raises(InputError, match="eflomal"):
        gold(fitted)
    with pytest.raises(InputError, match="no sentence pair"):
        gold((replace(first, links=frozenset()),))


def test_heads_are_found_without_links_that_people_made(pocket: LanguageModel) -> None:
    pytest.importorskip("eflomal")
    pairs = sample_pairs("en-de", "dev", 300, 0)
    empty = replace(pairs, pairs=tuple(replace(p, links=frozenset()) for p in pairs.pairs))
    for data in (pairs, empty):
        how = with_heads(pocket, [data], settings(k=3)).head_links
        assert how is not None and how.rows == "predict" and how.heads is not None
        # The heads of the bundled model that align tokens stand in its last layers.
        assert "5.3" in how.heads.split(",") and len(how.heads.split(",")) == 3
    named = settings(heads="5.3,5.1", rows="predict")
    assert with_heads(pocket, [], named) == named


def test_many_words_are_linked_rightly(pocket: LanguageModel) -> None:
    """Links of the bundled model's world are exact, and its heads find them."""
    pairs = sample_pairs("en-de", "test", 30, 0)
    found = []
    for heads in ("5.3,5.1,4.3", "0.0,0.5,1.0"):
        linker = HeadLinker(pocket, pairs, settings(heads=heads, rows="predict"))
        made = align_file(pairs, AlignWords("heads", linker=linker))
        assert made.aligner == f"heads {heads}"
        sums = np.sum(
            [counted(own, pair.links or frozenset(), frozenset())
             for own, pair in zip(made.links, pairs.pairs, strict=True)], axis=0
        )  # fmt: skip
        found.append(float(measures(sums)["f1"]))
    assert found[0] > 0.85 > 0.5 > found[1]
    with pytest.raises(InputError, match="needs a model"):
        align_file(pairs, AlignWords("heads"))


def asked(**more: Any) -> VerifyAlignment:
    how = HeadLinks(heads="5.3,5.1", rows="predict")
    score = by_heads(head_links=how, batch_tokens=300) if not more else TranslationScore(**more)
    return VerifyAlignment(score=score, pairs=PairsChoice(("en-de", "de-en"), limit=6), draws=3)


def test_a_run_counts_what_every_set_of_heads_links(
    tmp_path: Path, pocket: LanguageModel, loaded: None
) -> None:
    pytest.importorskip("eflomal")
    result = verify_alignment(asked(), tmp_path / "run")
    assert result.evidence.parts == ("", "en-de", "de-en")
    assert len(result.evidence.conditions) == 2 + 6
    for part in ("en-de", "de-en"):
        pairs = sample_pairs(part, "test", 6, 0)
        for condition in result.evidence.conditions[1:]:
            how = settings(heads=",".join(condition.heads), rows="predict")
            linker = HeadLinker(pocket, pairs, how)
            made = align_file(pairs, AlignWords("heads", linker=linker)).links
            right = sum(
                len((own or frozenset()) & (pair.links or frozenset()))
                for own, pair in zip(made, pairs.pairs, strict=True)
            )
            wanted = [pair.links or () for pair in pairs.pairs]
            sizes = [sum(len(links or ()) for links in side) for side in (made, wanted)]
            level = result.evidence.level("f1", condition, part)
            assert level is not None and level.examples == 6
            assert level.value == pytest.approx(2 * right / sum(sizes))
    level = result.evidence.level("f1", result.evidence.selected[0])
    base = result.evidence.level("f1")
    assert level is not None and base is not None and level.change is not None
    assert level.change.value == pytest.approx(level.value - base.value)
    assert {test.side for test in result.tests if test.statistic == "f1"} == {"higher"}
    assert {test.side for test in result.tests if test.statistic == "aer"} == {"lower"}


def test_a_run_that_was_killed_goes_on(
    tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("eflomal")
    whole = verify_alignment(asked(), tmp_path / "whole")
    read: list[int] = []
    before = HeadLinker.attention

    def failing(self: HeadLinker, *given: Any) -> Any:
        if read:
            raise KeyboardInterrupt
        read.append(1)
        return before(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(HeadLinker, "attention", failing)
        with pytest.raises(KeyboardInterrupt):
            verify_alignment(asked(), tmp_path / "run")
    kept = (tmp_path / "run" / "parts").glob("*")
    assert any("links en-de" in file.name for file in kept)
    again = verify_alignment(asked(), tmp_path / "run")
    own = {each.id for each in whole.evidence.conditions[1:]}  # eflomal has no seed
    levels = [
        [(row.part, row.condition, row.statistic, row.value) for row in result.levels
         if row.condition in own]
        for result in (whole, again)
    ]  # fmt: skip
    assert levels[0] == levels[1]


def test_other_aligners_stand_beside_eflomal(tmp_path: Path, loaded: None) -> None:
    pytest.importorskip("eflomal")
    result = verify_alignment(asked(aligner="eflomal"), tmp_path / "run")
    assert [each.of for each in result.evidence.conditions] == ["eflomal"]
    assert result.details.heads == () and not result.tests


def test_links_that_count_from_1_are_cautioned_where_they_are_used(
    tmp_path: Path, command: Callable[..., Said]
) -> None:
    """In JSON, the terminal and the page; read from 1 they are the links that there were."""
    pytest.importorskip("eflomal")
    pairs, data = sample_pairs("en-de", "test", 30, 0).pairs, tmp_path / "one.tsv"
    lines = ["source\ttarget\tlinks"]
    for pair in pairs:
        first, second = pair.words
        links = [(i + 1, j + 1) for i, j in pair.links or ()]
        cell = " ".join(f"{i}-{j}" for i, j in links if i < len(first) and j < len(second))
        lines.append(f"{pair.source}\t{pair.target}\t{cell}")
    data.write_text("\n".join(lines), "utf-8")
    own = ("--data", data, "--pair", "en-de")
    verified = ("verify", "alignment", *own, "--aligner", "eflomal")
    scored = ("find", "translation-score", *own, "--limit", 20, "--aligner", "links")
    values = {}
    for name, how in (("one", ()), ("from", ("--links-from", 1))):
        for words in (verified, scored):
            out = tmp_path / f"{words[0]} {name}"
            code, said, err = command(*words, *how, "--out", out, "--json")
            assert code == 0
            cautions = json_of(said).get("cautions", [])
            assert any("add --links-from 1" in each for each in cautions) == (not how)
            assert ("add --links-from 1" in err) == (not how)
            command("report", out, "--out", out / "page.html")
            page = (out / "page.html").read_text("utf-8")
            assert ("no link touches word 0" in page) == (not how)
        values[name] = json.loads((tmp_path / f"verify {name}" / "result.json").read_text("utf-8"))
    one, read = (
        next(row["value"] for row in values[name]["levels"] if row["statistic"] == "f1")
        for name in ("one", "from")
    )
    assert read > one + 0.05


def test_the_commands(tmp_path: Path, command: Callable[..., Said]) -> None:
    pytest.importorskip("eflomal")
    pairs = sample_pairs("en-de", "dev", 8, 0)
    write_pairs(data := tmp_path / "pairs.tsv", pairs.pairs)
    own = ("--data", data, "--pair", "en-de", "--aligner", "heads")
    out = tmp_path / "links.tsv"
    heads = ("--align-heads", "5.3,5.1", "--align-rows", "predict")
    told = json_of(command("align", *own, *heads, "--out", out, "--json").out)
    assert told["aligner"] == "heads 5.3,5.1" and told["pairs"] == 8
    made = read_pairs(PairSource(str(out), "en-de")).pairs
    assert {pair.aligner for pair in made} == {"heads 5.3,5.1"}
    again = json_of(command("align", *own, *heads, "--out", out, "--json").out)
    assert {**again, "seconds": 0} == {**told, "seconds": 0}
    # Other heads are another file.
    code, _, err = command("align", *own, "--align-heads", "5.3", "--out", out)
    assert code == 2 and "--overwrite" in err
    code, said, _ = command(
        "verify", "alignment", "--data", data, "--pair", "en-de", *heads, "--draws", 2,
        "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0
    result = json_of(said)
    assert [row["k"] for row in result["conditions"] if row["kind"] == SELECTED] == [2]
    assert result["details"]["links_by"]["rows"] == "predict"
    scored = json_of(
        command("find", "translation-score", *own, *heads, "--out", tmp_path / "ts", "--json").out
    )
    assert scored["aligner"] == "heads 5.3,5.1"
    for wrong in (
        ("align", *own, "--align-heads", "99.1"),
        ("align", *own, "--align-heads", "nowhere"),
        ("align", *own, "--align-heads", ""),
        ("align", *own, "--align-heads", "5.1", "--align-k", "2"),
        ("align", *own, "--align-k", "1000"),
        ("align", *own[:-1], "eflomal", "--align-k", "2"),
        ("verify", "alignment", *own[:4], "--align-heads", "99.1"),
        ("verify", "alignment", "--data", out, "--pair", "en-de"),
        ("verify", "alignment", *own[:4], "--aligner", "links"),
    ):
        code, said, err = command(*wrong)
        assert (code, said) == (2, "") and len(err.strip().splitlines()) >= 1, wrong


def test_a_pair_that_does_not_fit_is_named(pocket: LanguageModel) -> None:
    pairs = sample_pairs("en-de", "dev", 2, 0)
    many = "the dog " * pocket.context_length
    long = SentencePair("2", many, "der Hund", frozenset(), line=2)
    file = replace(pairs, pairs=(pairs.pairs[0], long))
    with pytest.raises(InputError, match="line 2"):
        Reader(pocket, file, settings())


def test_few_heads_link_words_and_one_pair_has_no_chance(
    tmp_path: Path, command: Callable[..., Said]
) -> None:
    pytest.importorskip("eflomal")
    model, data = lm_helpers.saved(tmp_path / "model"), write_data(tmp_path / "pairs.tsv")
    own = ("--model", model, "--data", data, "--pair", "en-de")
    told = json.loads(
        command("verify", "alignment", *own, "--draws", 2, "--out", tmp_path / "run", "--json").out
    )
    assert len(told["details"]["heads"]) == 2 and told["details"]["found"]  # of eight
    code, _, err = command("align", *own, "--aligner", "heads", "--align-k", 9)
    assert code == 2 and "9" in err
    scores = linking_scores(
        lm_helpers.wrapped("llama"), [find_helpers.pairs(n=1)], settings(), "read"
    )
    assert np.isfinite(scores.values).all()


def test_without_links_of_eflomal_there_is_nothing_to_choose_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(pairs: Sequence[SentencePair], *_: Any) -> list[SentencePair]:
        return [replace(pair, links=frozenset()) for pair in pairs]

    monkeypatch.setattr("headscope.find.translation_scores.align_file", lambda *_: None)
    monkeypatch.setattr("headscope.find.translation_scores.linked_pairs", nothing)
    with pytest.raises(InputError, match="--align-heads"):
        linked_parts([find_helpers.pairs(n=2)])
