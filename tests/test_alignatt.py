"""Files of AlignAtt4LLM: its heads are read and written, its word alignments are sentence pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import Caution, InputError
from headscope.heads import Geometry, Head, HeadScores, HeadSet, resolve_heads
from headscope.heads.files import read_heads_file
from headscope.heads.published import alignatt_text, geometry_of, heads_of

TS = [[0.0, 0.25, 0.5], [0.75, 0.05, 0.125]]
RANKED = sorted(((v, a, b) for a, row in enumerate(TS) for b, v in enumerate(row)), reverse=True)
LISTED = [{"layer": a, "head": b, "ts": v, "count": 7} for v, a, b in RANKED]
PUBLISHED: dict[str, Any] = {
    "model": "Qwen/Qwen3-1.7B",
    "direction": "en-de",
    "num_layers": 2,
    "num_heads": 3,
    "used_pairs": 7,
    "used_target_tokens": 99,
    "token_alignment_heads": [head for head in LISTED if head["ts"] > 0.1],
    "all_heads_ranked": LISTED[:3],
    "ts_matrix": TS,
}
PAIR: dict[str, Any] = {
    "pair_id": 3,
    "source_text": "So, so good.",
    "target_text": "很好。",
    "direction": "en-zh",
    "source_words": ["So", ",", "so ", "good", "."],
    "target_words": ["很", "好", "。"],
    "alignments": [
        {"source_span": [2, 4], "target_span": [0, 2], "confidence": 0.95},
        {"source_span": [4, 5], "target_span": [2, 3], "confidence": 0.5},
    ],
}


def write(path: Path, value: Any) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1), "utf-8")
    return str(path)


def aligned(folder: Path, *pairs: dict[str, Any], **settings: Any) -> Any:
    return read_pairs(PairSource(write(folder / "w.json", list(pairs)), "en-zh", **settings))


def test_published_scores_are_translation_scores_of_all_heads(tmp_path: Path) -> None:
    place = write(tmp_path / "heads.json", PUBLISHED)
    file = read_heads_file(place)
    scores = heads_of(file)
    assert geometry_of(file) == Geometry.uniform(2, 3) and isinstance(scores, HeadScores)
    np.testing.assert_array_equal(scores.values, TS)
    assert scores.method == "translation-score" and scores.provenance["model"] == file.model
    assert scores.config == {"pair": "en-de", "examples": 7, "tokens": 99}
    assert scores.classes()["token_alignment"] == len(PUBLISHED["token_alignment_heads"])
    best = resolve_heads(place, 2, Geometry.uniform(2, 3)).heads
    assert best == (Head(1, 0), Head(0, 2))
    # What they take: the first of the list, and the list alone where there is no matrix.
    kernel = write(tmp_path / "kernel.json", {"token_alignment_heads": LISTED[:2], "top_k": 2})
    assert resolve_heads(kernel, None, Geometry.uniform(2, 3)).heads == best
    ranked = write(tmp_path / "ranked.json", {"all_heads_ranked": LISTED})
    alone = heads_of(read_heads_file(ranked))
    assert isinstance(alone, HeadScores) and np.array_equal(alone.values, TS)
    named = heads_of(read_heads_file(f"{place}#all_heads_ranked"), Geometry.uniform(2, 3))
    assert isinstance(named, HeadSet) and named.heads == (*best, Head(0, 1))


@given(data=st.data(), layers=st.integers(2, 4), width=st.integers(2, 4))
def test_scores_come_back_bit_for_bit(
    data: st.DataObject, layers: int, width: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    counts = data.draw(st.lists(st.integers(1, width), min_size=layers, max_size=layers))
    geometry = Geometry((width, *counts))
    values = np.full(geometry.shape, np.nan)
    for head in geometry.heads():
        values[head.layer, head.head] = data.draw(st.floats(0, 1))
    about = {"pair": "en-de", "examples": 3, "tokens": 20}
    chance = {"chance": values / 3} if data.draw(st.booleans()) else {}
    scores = HeadScores(geometry, values, "translation-score", extra=chance, config=about)
    top = scores.top(2).heads
    text = alignatt_text(scores, top, 0.1)
    back = heads_of(read_heads_file(write(tmp_path_factory.mktemp("scores") / "a", text)), geometry)
    assert isinstance(back, HeadScores) and back.config == about
    np.testing.assert_array_equal(back.values, scores.values)
    assert back.chance_known == bool(chance) and back.ranked() == scores.ranked()
    # As their loader takes heads: by these names, the first k.
    taken = json.loads(text)["token_alignment_heads"][:2]
    assert [(int(h["layer"]), int(h["head"]), float(h["ts"])) for h in taken] == [
        (head.layer, head.head, scores[head]) for head in top
    ]


def test_a_run_is_written_and_read_again(tmp_path: Path, command: Callable[..., Said]) -> None:
    place, out = write(tmp_path / "heads.json", PUBLISHED), tmp_path / "out.json"
    command("heads", place, "--to", "alignatt", "--out", out)
    written = json.loads(out.read_text("utf-8"))
    assert {key: written[key] for key in PUBLISHED if key != "all_heads_ranked"} == {
        key: value for key, value in PUBLISHED.items() if key != "all_heads_ranked"
    }
    assert written["all_heads_ranked"] == LISTED
    kernel = write(tmp_path / "kernel.json", {"token_alignment_heads": LISTED[:2]})
    refused = command("heads", kernel, "--geometry", "2x3", "--to", "alignatt", "--out", out)
    assert refused.code == 2


DAMAGED: list[tuple[str, Any]] = [
    ("ts_matrix", []),
    ("ts_matrix", {}),
    ("ts_matrix", 0.5),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, 0.2]]),
    ("ts_matrix", [[0.1, 0.2, 0.3], 4]),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, "x", 0.2]]),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, True, 0.2]]),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, float("nan"), 0.2]]),
    ("ts_matrix", [[0.1, 0.2], [0.1, 0.2]]),
    ("ts_matrix", [[0.1, None, 0.3], [0.1, 0.2, 0.3]]),
    ("ts_matrix", [0, [0.1, 0.2, 0.3]]),
    ("chance_matrix", [[0.1, 0.2, 0.3], [0.1, 0.2, None]]),
    ("chance_matrix", [[0.1, 0.2, 0.3]]),
    ("chance_matrix", "x"),
    ("num_layers", 3),
    ("num_heads", "3"),
    ("num_heads", 0),
    ("model", "half \ud800"),
    ("direction", "half \ud800"),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, 7.5, 0.2]]),
    ("ts_matrix", [[0.1, 0.2, 0.3], [0.1, -1, 0.2]]),
    ("model", 7),
    ("direction", 5),
    ("used_pairs", "x"),
    ("used_pairs", -5),
    ("used_target_tokens", True),
    ("token_alignment_heads", "x"),
    ("token_alignment_heads", [{"layer": 99, "head": 99, "ts": 0.5}]),
    ("all_heads_ranked", [{"layer": -1, "head": 0, "ts": 0.5}]),
    ("all_heads_ranked", [{"layer": 0, "head": 0}]),
]


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_damaged_files_of_heads_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    place = write(tmp_path / "heads.json", {**PUBLISHED, name: value})
    with pytest.raises(InputError) as refused:
        heads_of(read_heads_file(place))
    assert str(refused.value).startswith(place) and "\n" not in str(refused.value)


def test_a_matrix_of_another_model_is_refused(tmp_path: Path) -> None:
    place = write(tmp_path / "heads.json", PUBLISHED)
    for other in (Geometry.uniform(3, 3), Geometry.uniform(2, 4), Geometry.uniform(1, 3)):
        with pytest.raises(InputError, match="model"):
            resolve_heads(place, 1, other)
    lists = dict.fromkeys(("token_alignment_heads", "all_heads_ranked"), LISTED[:2])
    matrix = [TS[0], [0.75, None, None]]
    shorter = write(tmp_path / "a.json", {**PUBLISHED, **lists, "ts_matrix": matrix})
    scores = heads_of(read_heads_file(shorter))
    assert isinstance(scores, HeadScores) and scores.geometry == Geometry((3, 1))


def test_word_alignments_are_pairs_with_links_between_units(tmp_path: Path) -> None:
    (pair,) = aligned(tmp_path, PAIR).pairs
    assert [[word.text for word in side] for side in pair.words] == [
        ["So", ",", "so", "good", "."],
        ["很", "好", "。"],
    ]
    assert pair.words[0][2].start == 4  # the second "so", not the first
    assert pair.links == {(2, 0), (2, 1), (3, 0), (3, 1), (4, 2)} and pair.aligner == "llm"
    (sure,) = aligned(tmp_path, PAIR, min_confidence=0.5).pairs
    assert sure.links == {(2, 0), (2, 1), (3, 0), (3, 1)}  # above, not equal
    with pytest.raises(InputError, match="--min-confidence"):
        aligned(tmp_path, PAIR, min_confidence=1.0)


def test_pairs_whose_words_are_not_in_their_sentences_are_left_out(tmp_path: Path) -> None:
    turned = {**PAIR, "source_words": ["good", "so", ".", "x", "y"]}
    blank = {**PAIR, "target_words": ["很", " ", "。"]}
    with pytest.warns(Caution, match="2 of 3 pairs"):
        assert len(aligned(tmp_path, turned, PAIR, blank).pairs) == 1
    with pytest.raises(InputError):
        aligned(tmp_path, turned)


SPAN = {"source_span": [0, 1], "target_span": [0, 1], "confidence": 0.9}


@pytest.mark.parametrize(
    "change",
    [
        {"direction": "en-de"},
        {"direction": 5},
        {"direction": "english"},
        {"source_words": "So good"},
        {"source_words": [1, 2]},
        {"source_text": " "},
        {"target_text": None},
        {"alignments": "0-0"},
        {"alignments": {}},
        {"alignments": [[0, 0]]},
        {"alignments": [{**SPAN, "source_span": [0, 6]}]},
        {"alignments": [{**SPAN, "source_span": [0, 10**9]}]},
        {"alignments": [{**SPAN, "source_span": [1, 1]}]},
        {"alignments": [{**SPAN, "target_span": [-1, 1]}]},
        {"alignments": [{**SPAN, "target_span": [0, 1, 2]}]},
        {"alignments": [{**SPAN, "confidence": 1.5}]},
        {"alignments": [{**SPAN, "confidence": "0.9"}]},
        {"alignments": [{**SPAN, "confidence": True}]},
        {"alignments": [{**SPAN, "source_span": [False, True]}]},
    ],
)
def test_damaged_word_alignments_are_refused_by_line(
    change: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"w\.json, line [0-9]+") as refused:
        aligned(tmp_path, PAIR, {**PAIR, **change})
    assert "\n" not in str(refused.value)


def test_other_files_have_no_confidence(tmp_path: Path) -> None:
    place = write(tmp_path / "a.tsv", "source\ttarget\tlinks\na b\tc d\t0-0\n")
    with pytest.raises(InputError, match="--min-confidence"):
        read_pairs(PairSource(place, "en-zh", min_confidence=0.9))
