"""Sentences of a run: what is read, what is kept, in which order, and which words are linked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.measure.metrics import chrf
from headscope.measure.metrics import chrf_from_statistics as chrf_of_counts
from headscope.report.drawing import sentences as module
from headscope.report.drawing.blocks import draw
from headscope.report.drawing.sentences import bigram_similarity, browser, marked
from headscope.report.html import join
from headscope.shown.blocks import LinkedWords, Sentence, Sentences
from headscope.studies.sentences import read_sentences
from removal_report_helpers import write_removal

LABELS = {"original": "As is", "selected": "Highest removed"}


def sentence(number: int, output: str, direction: str = "de-en", **more: object) -> Sentence:
    outputs = {"original": "the red door", "selected": output}
    return Sentence(direction, str(number), "die rote T\u00fcr", "the red door", outputs, **more)


def test_similarity_has_known_values() -> None:
    # " ab " and " ac ": the pairs " a" of {" a", "ab", "b "} and {" a", "ac", "c "}
    assert bigram_similarity("ab", "AC") == pytest.approx(2 / 6)
    assert bigram_similarity("", "a") == 0
    assert bigram_similarity("", "  ") == 1


@given(st.text(), st.text())
def test_similarity_is_symmetric_and_1_for_the_same_text(one: str, other: str) -> None:
    value = bigram_similarity(one, other)
    assert 0 <= value <= 1
    assert value == bigram_similarity(other, one)
    assert bigram_similarity(one, f"  {one}\n") == 1


def test_chrf_of_counts_is_that_of_the_measure() -> None:
    outputs = ["the red door", "", "a door", "t\u00fcr", "the the the"]
    counted = chrf(outputs, ["the red door"] * 5)
    expected = [chrf([output], ["the red door"]).value for output in outputs]
    assert chrf_of_counts(counted.statistics) == pytest.approx(expected)


def test_the_worst_comes_first_and_ties_keep_their_order() -> None:
    outputs = ["the red door", "", "the door", "the red door"]
    shown = browser([sentence(n, output) for n, output in enumerate(outputs)], LABELS)
    assert shown
    assert [one.id for one in shown.sentences] == ["1", "2", "0", "3"]
    assert [row[0] for row in shown.data["rows"]] == [1, 2, 0, 3]
    assert shown.measure == "similarity to the reference"


def test_stored_scores_go_before_similarity() -> None:
    made = [
        sentence(0, "", chrf={"original": 90.0, "selected": 80.0}),
        sentence(1, "the red door", chrf={"original": 90.0, "selected": 10.0}),
    ]
    shown = browser(made, LABELS)
    assert shown
    assert shown.measure == "chrF++"
    assert [one.id for one in shown.sentences] == ["1", "0"]


def test_what_does_not_fit_is_left_out_evenly_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES", 3000)
    directions = ("de-en", "de-es", "de-ru")
    made = [sentence(n, "a", direction) for direction in directions for n in range(40)]
    shown = browser(made, LABELS)
    assert shown
    kept = list(shown.sentences)
    assert shown.left_out == 120 - len(kept) > 0
    for direction in directions:
        ids = sorted(int(one.id) for one in kept if one.direction == direction)
        assert ids == list(range(len(kept) // 3))
    size = len(json.dumps(shown.data["rows"], ensure_ascii=False).encode())
    assert size < 3600
    words = draw("a", Sentences("Outputs", tuple(made), LABELS)).html
    assert f"{shown.left_out} more " in words


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1), max_size=6)
)
def test_spans_are_told_in_the_units_of_the_script(words: list[str]) -> None:
    text = " \U0001f600 ".join(words)
    spans, position = [], 0
    for word in words:
        spans.append((position, position + len(word)))
        position += len(word) + 3
    units = list(module._units(spans, text))
    encoded = text.encode("utf-16-le")
    found, at = [], 0
    for gap, length in zip(units[::2], units[1::2], strict=True):
        at += gap
        found.append(encoded[2 * at : 2 * (at + length)].decode("utf-16-le"))
        at += length
    assert found == words


def test_links_go_with_the_texts_that_have_them() -> None:
    linked = {
        "original": LinkedWords(((0, 3), (4, 8)), ((0, 3), (4, 7)), ((0, 0), (1, 1))),
        "reference": LinkedWords(((0, 3), (4, 8)), ((0, 3),), ((0, 0),)),
    }
    shown = browser([sentence(0, "a", linked=linked)], LABELS)
    assert shown
    words = shown.data["rows"][0][-1]
    assert words == [[0, 3, 1, 4], [[0, 3], [0, 0]], [[0, 3, 1, 3], [0, 0, 1, 1]], 0]


KINDS = {"original": "original", "selected 4": "selected"}


def test_the_largest_set_and_the_first_draw_are_shown(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", k=(2, 4), gates=(0.0, 2.0), draws=2, sentences=3)
    found = read_sentences(
        run,
        KINDS | {"random 4 #0": "random", "same layers 4 #0": "same layers"},
        {"original": 0, "selected": 11},
    )
    assert len(found) == 6
    assert set(found[0].outputs) == {"original", "selected", "random", "same layers"}
    assert set(found[0].linked) == {*found[0].outputs, "reference"}
    assert [one.chrf["selected"] for one in found[:2]] == [
        0.0,
        pytest.approx(found[1].chrf["selected"]),
    ]
    assert found[1].chrf["selected"] < found[1].chrf["original"]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("source_spans", [[0, 999]]),
        ("source_spans", [[3, 5], [0, 2]]),
        ("output_spans", "x"),
        ("links", [[0, 99]]),
        ("links", [[-1, 0]]),
        ("id", None),
    ],
)
def test_damaged_links_are_named(tmp_path: Path, entry: str, value: object) -> None:
    run = write_removal(tmp_path / "run", k=(2,), draws=1, sentences=2)
    file = run / "links.jsonl"
    lines = file.read_text("utf-8").splitlines()
    row = json.loads(lines[2])
    row[entry] = value
    if value is None:
        del row[entry]
    lines[2] = json.dumps(row)
    file.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=r"links\.jsonl, line 3: is damaged"):
        read_sentences(run, {**KINDS, "selected 2": "selected"})


def test_statistics_of_other_sentences_are_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    run = write_removal(tmp_path / "run", k=(2,), draws=1, sentences=2)
    save_file({"en-de.chrf": np.zeros((4, 3, 24), np.int32)}, run / "statistics.safetensors")
    with pytest.raises(InputError, match="holds other sentences of en-de than"):
        read_sentences(run, {**KINDS, "selected 2": "selected"}, {"original": 0, "selected": 1})
    (run / "statistics.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"statistics\.safetensors: is damaged"):
        read_sentences(run, {**KINDS, "selected 2": "selected"}, {"original": 0, "selected": 1})


def test_words_are_marked_however_they_are_written() -> None:
    def html(*given: Any) -> str:
        return join(marked(*given))

    assert html("\u0130ki <b>", ["iki"], "lost") == '<mark class="lost">\u0130ki</mark> &lt;b&gt;'
    assert html("Clara'y\u0131, gel!", ["clara'y\u0131"], "made").startswith(
        '<mark class="made">Clara'
    )
    assert html("a hundred", ["hund"], "lost") == "a hundred"
    assert (
        html("\u72d7\u559c\u6b22\u732b", ["\u559c\u6b22"], "lost")
        == '\u72d7<mark class="lost">\u559c\u6b22</mark>\u732b'
    )
    assert html("(no) words", [], "lost") == "(no) words"
    assert marked("", ["word"], "lost") == []
