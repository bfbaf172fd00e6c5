"""Files of AlignAtt4LLM: its heads are read and written, its word alignments are sentence pairs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import Caution, InputError
from headscope.heads import (
    Geometry,
    GroupedGeometry,
    Head,
    HeadScores,
    HeadSet,
    resolve_heads,
)
from headscope.heads.files import HeadsFile, read_heads_file
from headscope.heads.published import Format, alignatt_text, geometry_of, heads_of
from headscope.lm import LanguageModel
from headscope.studies.verify.heads import read_beside
from headscope.studies.verify.removal import Removal, alignment_heads

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
#: A model of this size, of which nothing else is asked.
LM = SimpleNamespace(geometry=Geometry.uniform(2, 3), digest="none")
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
    ("num_heads", True),
    ("num_layers", 10**6),
    ("all_heads_ranked", [{**LISTED[0], "score": 0.125}]),
    ("all_heads_ranked", [{**LISTED[0], "head_idx": 9}]),
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
    ("all_heads_ranked", [{"layer": [0], "head": 0, "ts": 0.5}]),
    ("all_heads_ranked", [LISTED[0], LISTED[0]]),
    ("all_heads_ranked", [{**LISTED[0], "ts": 0.125}]),
    ("token_alignment_heads", [*LISTED[:2], {**LISTED[2], "ts": LISTED[2]["ts"] + 1e-3}]),
    ("score_name", 5),
    ("score_name", ""),
    ("score_name", "two\nlines"),
    ("score_name", "half \ud800"),
    ("score_name", "x" * 120_000),
]


@pytest.mark.parametrize(("name", "value"), DAMAGED)
def test_damaged_files_of_heads_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    place = write(tmp_path / "heads.json", {**PUBLISHED, name: value})
    with pytest.raises(InputError) as refused:
        heads_of(read_heads_file(place))
    assert str(refused.value).startswith(place) and "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1_000


MAE = "audio_alignment_monotonicity_mae"


def told(folder: Path, **changes: Any) -> tuple[HeadScores | HeadSet, list[str]]:
    """What is read of the published file with these changes, and what is said of it."""
    file = {name: value for name, value in {**PUBLISHED, **changes}.items() if value is not None}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        read = heads_of(read_heads_file(write(folder / "heads.json", file)), Geometry.uniform(2, 3))
    return read, [str(each.message) for each in said]


def in_order(*heads: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"layer": layer, "head": head, "ts": TS[layer][head]} for layer, head in heads]


def test_known_names_are_mapped_and_unknown_ones_stay(tmp_path: Path) -> None:
    for name in (None, "paper_translation_score_argmax", "translation-score"):
        scores, said = told(tmp_path, score_name=name)
        assert isinstance(scores, HeadScores) and not said
        assert scores.method == "translation-score" and "score_name" not in scores.config
    matrix = [[-3.0, 0.25, 2.5], [7.5, 0.0, 1.25]]  # no shares
    lists = dict.fromkeys(("token_alignment_heads", "all_heads_ranked"))
    other, said = told(tmp_path, score_name=MAE, ts_matrix=matrix, **lists)
    assert isinstance(other, HeadScores) and other.values.tolist() == matrix
    assert other.method == MAE and MAE in repr(other) and len(said) == 1
    other.save_pretrained(tmp_path / "saved")
    assert HeadScores.from_pretrained(tmp_path / "saved").method == MAE
    assert read_beside([str(tmp_path / "saved")], cast(LanguageModel, LM)).keys() == {MAE}
    # A name also has the list beside a matrix, and the one that is named.
    for part in ("all_heads_ranked", "token_alignment_heads"):
        place = write(tmp_path / "a.json", {**PUBLISHED, "score_name": MAE})
        named = heads_of(read_heads_file(f"{place}#{part}"), Geometry.uniform(2, 3))
        assert named.origin.method == MAE


def test_which_end_of_an_unknown_score_is_best_is_read_or_said(tmp_path: Path) -> None:
    matrix, alone = {"all_heads_ranked": LISTED[:4]}, {"all_heads_ranked": LISTED}
    for lists in (matrix, {**alone, "ts_matrix": None}):
        empty = {"token_alignment_heads": [] if "ts_matrix" not in lists else None}
        _, said = told(tmp_path, score_name=MAE, **empty, **lists)
        assert not said  # the file lists the highest first
        turned = {**lists, "all_heads_ranked": LISTED[::-1][: len(lists["all_heads_ranked"] or [])]}
        with pytest.raises(InputError, match=f"lists the lowest {MAE} first"):
            told(tmp_path, score_name=MAE, **empty, **turned)
        # Of translation scores the highest are best, whatever a list begins with.
        scores, said = told(tmp_path, **empty, **turned)
        assert scores.method == "translation-score" and bool(said) == ("ts_matrix" not in lists)
    by_place = in_order(*((layer, head) for layer in range(2) for head in range(3)))
    rising = [{**head, "ts": at / 8} for at, head in enumerate(by_place)]
    for ordered in (by_place, rising):
        scores, (said_of,) = told(tmp_path, score_name=MAE, all_heads_ranked=None, ts_matrix=None,
                                  token_alignment_heads=ordered)  # fmt: skip
        assert isinstance(scores, HeadScores) and "does not say whether high or low" in said_of
    # A list of some heads is a set, best first as whoever wrote it takes them.
    some = in_order((1, 2), (1, 1), (0, 2))
    listed, said = told(tmp_path, ts_matrix=None, token_alignment_heads=some, score_name=MAE)
    assert isinstance(listed, HeadSet) and not said and listed.origin.method == MAE
    assert listed.heads == (Head(1, 2), Head(1, 1), Head(0, 2))
    plain = write(tmp_path / "l.json", LISTED[::-1])
    with pytest.warns(Caution, match="lists the lowest scores of a file first"):
        heads_of(read_heads_file(plain))


@given(data=st.data())
def test_lists_agree_with_their_matrix_or_are_told(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, heads = tmp_path_factory.mktemp("lists"), list(Geometry.uniform(2, 3).heads())
    order = data.draw(st.permutations(heads))[: data.draw(st.integers(1, 6))]
    listed = in_order(*((head.layer, head.head) for head in order))
    rounded = [{**head, "ts": round(head["ts"], 4) + 1e-5} for head in listed]
    _, said = told(folder, token_alignment_heads=rounded, all_heads_ranked=None)
    ranked = sorted((score for row in TS for score in row), reverse=True)
    assert bool(said) == ([head["ts"] for head in listed] != ranked[: len(listed)])
    at, off = data.draw(st.integers(0, len(listed) - 1)), data.draw(st.floats(1e-3, 0.2))
    listed[at] = {**listed[at], "ts": listed[at]["ts"] + off}
    with pytest.raises(InputError, match=f"head {order[at]} the score .* ts_matrix"):
        told(folder, token_alignment_heads=listed, all_heads_ranked=None)


def test_scores_are_written_under_their_own_name_or_not_at_all(
    tmp_path: Path, command: Callable[..., Said]
) -> None:
    audio = write(tmp_path / "audio.json", {**PUBLISHED, "score_name": MAE})
    out = tmp_path / "out.json"
    # The threshold of translation scores is none of other scores.
    assert command("heads", audio, "--to", "alignatt", "--out", out).code == 2 and not out.exists()
    assert command("heads", audio, "--to", "alignatt", "--k", 2, "--out", out).code == 0
    written = json.loads(out.read_text("utf-8"))
    assert written["score_name"] == MAE and written["paper_threshold"] is None
    assert written["token_alignment_heads"] == LISTED[:2] and written["ts_matrix"] == TS
    lahis = HeadScores(Geometry.uniform(2, 3), np.array(TS), "lahis")
    lahis.save_pretrained(tmp_path / "lahis")
    for to in get_args(Format):
        file = tmp_path / f"lahis.{to}"
        more = ("--geometry", "2x3:3") if to == "duo-attention" else ()
        done = command("heads", tmp_path / "lahis", "--to", to, "--k", 6, "--out", file, *more)
        if to == "alignatt":
            assert done.code == 2 and "lahis" in done.err and not file.exists()
            continue
        assert done.code == 0, done.err
        method = heads_of(read_heads_file(file), GroupedGeometry.parse("2x3:3")).origin.method
        assert method == "" or method.startswith("scores of a file")
    for place in (audio, tmp_path / "lahis"):
        run = tmp_path / f"{Path(place).stem}-classes"
        said = command("compare", "classes", place, "--out", run)
        assert said.code == 0 and "align tokens" not in said.out
        page = command("report", run, "--out", tmp_path / "page.html")
        assert page.code == 0 and "align tokens" not in (tmp_path / "page.html").read_text("utf-8")


def test_control_outside_knows_translation_scores_of_a_file(tmp_path: Path) -> None:
    """The paper's control draws heads of a translation score up to the threshold, where known."""
    lm, removal = cast(LanguageModel, LM), Removal(controls=("outside",), threshold=0.125)
    avoid, why = alignment_heads(write(tmp_path / "ts.json", PUBLISHED), removal, lm)
    assert avoid is not None and why is None
    assert set(avoid) == {Head(0, 1), Head(0, 2), Head(1, 0)}
    for other in ({**PUBLISHED, "score_name": MAE}, LISTED):
        avoid, why = alignment_heads(write(tmp_path / "other.json", other), removal, lm)
        assert avoid is None and "no translation scores" in (why or "")


def test_scores_of_several_methods_have_no_mean() -> None:
    scores = [HeadScores(Geometry.uniform(2, 3), np.array(TS), name) for name in ("lahis", MAE)]
    with pytest.raises(InputError, match="several methods"):
        HeadScores.mean({"a": scores[0], "b": scores[1]})


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


def test_a_list_that_fills_a_rectangle_is_no_model_of_its_size(tmp_path: Path) -> None:
    def filled(layers: int, width: int, more: float = 0.0) -> list[dict[str, Any]]:
        return [{"layer": a, "head": b, "ts": (9 - a) / 10 - b / 100 + more}
                for a in range(layers) for b in range(width)]  # fmt: skip

    def read(**members: Any) -> tuple[Geometry | None, HeadsFile]:
        file = read_heads_file(write(tmp_path / "heads.json", members))
        return geometry_of(file), file

    def sizes(layers: int, width: int) -> dict[str, int]:
        return {"num_layers": layers, "num_heads": width}

    small, all_heads = {"token_alignment_heads": filled(2, 2)}, {"all_heads_ranked": filled(4, 4)}
    model = Geometry.uniform(4, 4)
    told, file = read(**small)
    assert told == Geometry.uniform(2, 2) and isinstance(heads_of(file), HeadScores)
    for beside in (sizes(4, 4), all_heads, {**sizes(4, 4), **all_heads}):
        told, file = read(**small, **beside)
        heads = heads_of(file)
        assert told == model and isinstance(heads, HeadSet) and len(heads.heads) == 4
        assert heads.geometry == model
    told, file = read(**sizes(30, 16), token_alignment_heads=filled(4, 4))
    assert told == Geometry.uniform(30, 16) and heads_of(file).geometry == told
    with pytest.raises(InputError, match="30 layers"):
        heads_of(file, model)
    for beside in ({"num_layers": 30}, {"num_heads": 16}, {"all_heads_ranked": filled(1, 3)}):
        assert read(**small, **beside)[0] is None
    matrix = {"ts_matrix": [[head["ts"] for head in filled(4, 4)[at : at + 4]]
                            for at in range(0, 16, 4)]}  # fmt: skip
    read(**small, **matrix)
    part = read_heads_file(f"{tmp_path / 'heads.json'}#token_alignment_heads")
    assert geometry_of(part) == model
    # What contradicts the sizes, or another list.
    for wrong in (
        {**sizes(4, 3), "token_alignment_heads": filled(4, 4)},
        {**sizes(2, 2), **small, **all_heads},
        {"token_alignment_heads": filled(4, 4), "all_heads_ranked": filled(4, 4, 0.05)},
        {"token_alignment_heads": filled(2, 2, 0.05), **all_heads},
        {**small, "all_heads_ranked": filled(4, 4) + filled(1, 1)},
    ):
        with pytest.raises(InputError, match=r"line [0-9]+: ") as refused:
            heads_of(read(**wrong)[1])
        assert "\n" not in str(refused.value)


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
