"""Heads that others published, read by what their files hold, and ours in their formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conftest import Said, json_of
from headscope.compare.artifacts import read_artifacts
from headscope.errors import Caution, InputError
from headscope.heads import (
    Geometry,
    GroupedGeometry,
    Head,
    HeadScores,
    HeadSet,
    named_scores,
    resolve_heads,
    save_scores,
)
from headscope.heads.files import read_heads_file
from headscope.heads.published import (
    csv_text,
    duo_attention_text,
    geometry_of,
    heads_of,
    json_text,
    retrieval_text,
    yaml_text,
)
from headscope.live.scores import read_sources
from headscope.runs import open_run

GEOMETRY = Geometry.uniform(3, 4)
#: A score for each of the 12 heads, all different.
VALUES = {
    (layer, head): (layer * 5 + head * 3) % 12 / 16 for layer in range(3) for head in range(4)
}
#: The same in the formats of retrieval heads, of dual-route induction and of tuples.
RETRIEVAL = json.dumps({f"{a}-{b}": [v + 0.25, v - 0.25, v] for (a, b), v in VALUES.items()})
ROUTES = json.dumps(
    {
        "next_tok_attn": [{"layer": a, "head_idx": b, "score": v} for (a, b), v in VALUES.items()],
        "end_tok_attn": [{"layer": a, "head_idx": b, "score": -v} for (a, b), v in VALUES.items()],
    }
)
TUPLES = "[" + ",\n ".join(f"({a}, {b}, {v})" for (a, b), v in VALUES.items()) + ",]\n"
#: Two key-value heads a layer.
DUO = "1.0e+00\t-9.5e-05\n2.5e-01\t5.0e-01\n0.0e+00\t7.5e-01\n"
YAML = '# comment\nname: "x: y"\nattn_head_set: "2-1,0-3" # top2\n'
IMPORTANT = '{"params": {"t": [1], "important_heads": [[2, 1],\n [0, 3]]}, "z": {}}'


def write(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def values_of(scores: HeadScores | HeadSet) -> dict[tuple[int, int], float]:
    assert isinstance(scores, HeadScores)
    return {(head.layer, head.head): scores[head] for head in scores.geometry.heads()}


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a", "a.tsv"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [(RETRIEVAL, "retrieval"), (ROUTES, "next_tok_attn"), (TUPLES, "tuples")],
    ids=["retrieval", "routes", "tuples"],
)
def test_scores_of_all_heads_keep_their_scores_and_tell_the_geometry(
    name: str, text: str, kind: str, tmp_path: Path
) -> None:
    file = read_heads_file(write(tmp_path / name, text))
    assert file.format == kind and geometry_of(file) == GEOMETRY
    scores = heads_of(file, GEOMETRY)
    assert values_of(scores) == pytest.approx(VALUES)
    assert isinstance(scores, HeadScores)
    measured = scores.extra.get("measured")
    assert measured is None if kind != "retrieval" else (measured == 3).all()
    best = sorted(VALUES, key=lambda head: -VALUES[head])[:3]
    top = resolve_heads(str(tmp_path / name), 3, GEOMETRY)
    assert [(head.layer, head.head) for head in top] == best
    assert len(resolve_heads(str(tmp_path / name), None, GEOMETRY)) == 2  # 15 % of 12


@pytest.mark.parametrize(
    "text",
    [
        YAML,
        YAML.replace('"', "'"),
        "attn_head_set: 2-1, 0-3",
        IMPORTANT,
        "[(2, 1), (0, 3)]",
        "(2, 1, 0.5)\n(0, 3, 0.25)",
        "(0, 3, 0.25), (2, 1, 0.5)",
        '{"0-3": [0.25], "2-1": [0.5, 0.75]}',
    ],
)
def test_lists_are_sets_with_the_best_first_and_say_no_geometry(text: str, tmp_path: Path) -> None:
    place = write(tmp_path / "heads.txt", text)
    assert resolve_heads(place, None, GEOMETRY).heads == (Head(2, 1), Head(0, 3))
    assert resolve_heads(place, 1, GEOMETRY).heads == (Head(2, 1),)
    assert named_scores(place, GEOMETRY) is None
    with pytest.raises(InputError, match=r"the largest index \+ 1 would give a wrong chance"):
        read_artifacts([place, place])
    partner = write(tmp_path / "scores.json", ROUTES)
    assert read_artifacts([place, partner])[0].geometry == GEOMETRY
    (alone,) = read_artifacts([place], geometry=GroupedGeometry.parse("9x8:2"))
    assert alone.geometry == Geometry.uniform(9, 8)


@pytest.mark.parametrize("gap", [(0, 0), (1, 2), (2, 3)])
def test_scores_with_a_gap_tell_no_geometry(gap: tuple[int, int], tmp_path: Path) -> None:
    rows = {f"{a}-{b}": [v] for (a, b), v in VALUES.items() if (a, b) != gap}
    file = read_heads_file(write(tmp_path / "r.json", json.dumps(rows)))
    assert geometry_of(file) is None
    heads = heads_of(file, GEOMETRY)
    assert isinstance(heads, HeadSet) and len(heads) == 11 and Head(*gap) not in heads
    # The highest of a single layer is no model of one layer.
    first = json.dumps({"0-0": 1, "0-1": 0.5})
    assert geometry_of(read_heads_file(write(tmp_path / "f.json", first))) is None


def test_a_part_of_a_file_is_chosen_by_name(tmp_path: Path) -> None:
    place = write(tmp_path / "routes.json", ROUTES)
    named = named_scores(f"{place}#end_tok_attn", GEOMETRY)
    assert named is not None and named.method == "end_tok_attn"
    assert values_of(named) == {head: -value for head, value in VALUES.items()}
    names = [each.name for each in read_artifacts([place, f"{place}#end_tok_attn"])]
    assert names == ["routes", "routes#end_tok_attn"]
    with pytest.raises(InputError, match="holds no list 'x'; name #next_tok_attn or #end_tok_attn"):
        read_heads_file(f"{place}#x")
    with pytest.raises(InputError, match=r"holds a single list.*leave #x out"):
        read_heads_file(write(tmp_path / "l.json", "[[0, 1]]") + "#x")
    odd = write(tmp_path / "a#b.json", ROUTES)  # a file may be called so
    assert read_heads_file(odd).format == "next_tok_attn"


def test_key_value_heads_are_widened_and_values_below_zero_kept(tmp_path: Path) -> None:
    place = write(tmp_path / "full.tsv", DUO)
    with pytest.warns(Caution, match=r"2 key-value heads a layer; .* 4 query heads .* 2 share"):
        named = named_scores(place, GEOMETRY)
    assert named is not None
    assert named.values.tolist() == [
        [1, 1, -9.5e-05, -9.5e-05], [0.25, 0.25, 0.5, 0.5], [0, 0, 0.75, 0.75]
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"do not say how many query heads share each.*--geometry"):
        read_artifacts([place, place])
    with pytest.raises(InputError, match=r"3 lines, one a layer, but the model has 4 layers"):
        named_scores(place, Geometry.uniform(4, 4))
    with pytest.raises(InputError, match="2 key-value heads a layer do not fit 3 layers × 3 heads"):
        named_scores(place, Geometry.uniform(3, 3))
    with pytest.raises(InputError, match="do not fit 3 layers × 4 heads and 4 key-value heads"):
        read_artifacts([place], geometry=GroupedGeometry.parse("3x4:4"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"0-0": [0.5],\n"0-1": []}', r"line 2: head 0-1 has \[\], which is no list of finite"),
        ('{"0-0": [0.5],\n"0-1": [0.5, "x"]}', r"line 2: head 0-1 has .* write \"0-1\": \[0\.5"),
        ('{"0-0": [0.5],\n"0-1": [NaN]}', "line 2: head 0-1 has"),
        ('{"0-0": [1e999]}', "line 1: head 0-0 has"),
        ('{"0-0": [1],\n"0-0": [2]}', r"line 2: head L0\.H0 is already on line 1; delete"),
        ('{"0-0": [1],\n"9-0": [2]}', r"line 2: there is no head L9\.H0.*correct or delete"),
        ('{"0-0": [1],\n"layer": [2]}', "line 1: holds neither a list of heads nor .* formats"),
        ('{"next_tok_attn": [\n{"layer": 0, "head_idx": 1}]}', "line 2: .* with a score; write"),
        ('{"next_tok_attn": 3}', "holds no list 'next_tok_attn'"),
        ('{"important_heads": [[1, 2],\n[1]]}', r"line 2: \[1\] is not a head; write"),
        ('[[0, 1, 0.5],\n[0, 2, "a"]]', r"line 2: the score of head L0\.H2 is \"a\".*correct it"),
        ("[[0, 1, 0.5],\n[0, 1.5, 0.2]]", "line 2: head must be a whole number"),
        ("[(0, 1, 0.5),\n(0, 2, 0.2]", r"not valid JSON|write tuples such as"),
        ("[(0, 1, 0.5),\n(0, 2, high)]", r"line 2: is not valid JSON .*write tuples such as"),
        ("[" + "9" * 5000 + "]", "is not valid JSON .*write a list"),
        ("1.0\t0.5\n0.5\n", "line 2: has 1 numbers and the first line 2; give every layer"),
        ("1.0\t0.5\n0.5\tx\n", r"line 2: the score of head L1\.H1 is \"x\".*correct it"),
        ("1.0\tnan\n", r"line 1: the score of head L0\.H1"),
        ('a: 1\nattn_head_set: "1-2,3"\n', r"line 2: '3' is not a head LAYER-HEAD; write attn"),
        ('attn_head_set: "1-2\n', r"line 1: '\"1-2' is no text on this line; write"),
        ("attn_head_set: !!python/object/apply:os.system ['id']", "line 1: .* write attn_head_set"),
        ("attn_head_set: \n- 1-2\n", "lists no heads; add at least one"),
        ('attn_head_set: "1-2"\nattn_head_set: "1-3"', "line 1: .* on line 2 too; delete"),
        ("layer,head,score\n0,1,0.5\n0,2,high\n", r"line 3: the score of head L0\.H2 is"),
        ("layer,head,score\n0,1,0.5\n0,2,1_0\n", r"line 3: the score of head L0\.H2 is"),
        ("layer,head,score\n0,1,0.5\n0,2,٣\n", r"line 3: the score of head L0\.H2 is"),
        ('[{"layer": 0, "head": 1,\n"score": 0.5, "ts": 0.25}]', "line 1: 'score' is 0.5, but"),
        ("layer,head\n0," + "9" * 5000, "line 2: head must be a whole number"),
        ("heads of layer 3", "line 1: there is no column 'layer'.* one of the other formats"),
        ("", "line 1: there is no column 'layer'"),
    ],
)  # fmt: skip
def test_a_malformed_file_gives_one_sentence_with_line_and_fix(
    text: str, message: str, tmp_path: Path, command: Callable[..., Said]
) -> None:
    place = write(tmp_path / "heads", text)
    with pytest.raises(InputError, match=message) as error:
        resolve_heads(place, None, GEOMETRY)
    assert str(error.value).startswith(place)
    code, out, err = command("compare", "overlap", place, "0.1", "--geometry", "3x4")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("text", ["0x4", "3x4:3", "3x4:0", "3x4:", "3", "3x4:8", "axb"])
def test_a_geometry_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        GroupedGeometry.parse(text)


# Round trips

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def scored(draw: st.DrawFn) -> HeadScores:
    """Scores of some model, layers without heads among them."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
    geometry = Geometry(tuple(counts))
    values = np.full(geometry.shape, np.nan)
    for head in geometry.heads():
        values[head.layer, head.head] = draw(FINITE)
    return HeadScores(geometry, values, "any")


def read_back(text: str, known: Geometry | GroupedGeometry, folder: Path) -> HeadScores | HeadSet:
    return heads_of(read_heads_file(write(folder / "written", text)), known)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trips")


def tuples_text(rows: list[tuple[Head, float]]) -> str:
    return repr([(head.layer, head.head, score) for head, score in rows])


def routes_text(rows: list[tuple[Head, float]]) -> str:
    listed = [{"layer": h.layer, "head_idx": h.head, "score": score} for h, score in rows]
    return json.dumps({"next_tok_attn": listed, "end_tok_attn": []}, indent=1)


def important_text(heads: HeadSet) -> str:
    listed = [[head.layer, head.head] for head in heads]
    return json.dumps({"a": [{}], "params": {"important_heads": listed}, "b": 1})


def trimmed(geometry: Geometry) -> Geometry:
    """Without the layers after the last one with heads, of which scores say nothing."""
    last = max(layer for layer, count in enumerate(geometry.counts) if count)
    return Geometry(geometry.counts[: last + 1])


@pytest.mark.parametrize("text_of", [csv_text, json_text, retrieval_text, tuples_text, routes_text])
@given(scores=scored())
def test_scores_come_back_bit_for_bit(
    text_of: Callable[[Any], str], scores: HeadScores, folder: Path
) -> None:
    back = read_back(text_of(scores.ranked("score")), scores.geometry, folder)
    assert isinstance(back, HeadScores)
    np.testing.assert_array_equal(back.values, scores.values)
    uniform = len(set(scores.geometry.counts)) == 1 and min(scores.geometry.shape) > 1
    geometry = geometry_of(read_heads_file(folder / "written"))
    assert geometry == scores.geometry if uniform else geometry in (None, trimmed(scores.geometry))


@st.composite
def listed(draw: st.DrawFn) -> HeadSet:
    """Some heads of a model in some order, but never all."""
    geometry = Geometry.uniform(draw(st.integers(2, 5)), draw(st.integers(1, 4)))
    heads = draw(st.permutations(list(geometry.heads())))
    return HeadSet(geometry, tuple(heads[: draw(st.integers(1, len(heads) - 1))]))


@pytest.mark.parametrize(
    "text_of",
    [
        lambda heads: csv_text((head, None) for head in heads),
        lambda heads: json_text((head, None) for head in heads),
        lambda heads: csv_text((head, -at) for at, head in enumerate(heads)),
        lambda heads: retrieval_text((head, -at) for at, head in enumerate(heads)),
        yaml_text,
        lambda heads: yaml_text(heads, 'a "model"\n: #1'),
        important_text,
        lambda heads: tuples_text([(head, -at) for at, head in enumerate(heads)]),
    ],
    ids=["csv", "json", "csv-scored", "retrieval", "yaml", "yaml-model", "important", "tuples"],
)
@given(heads=listed())
def test_sets_come_back_in_their_order(
    text_of: Callable[[HeadSet], str], heads: HeadSet, folder: Path
) -> None:
    back = read_back(text_of(heads), heads.geometry, folder)
    assert isinstance(back, HeadSet) and back.heads == heads.heads


def test_rows_of_a_table_that_are_not_selected_are_left_out(folder: Path) -> None:
    table = "layer,head,score,selected\n1,0,0.5,True\n0,1,0.4,False\n0,0,0.3,\n"
    back = read_back(table, Geometry.uniform(2, 2), folder)
    assert isinstance(back, HeadSet) and back.heads == (Head(1, 0), Head(0, 0))


@given(heads=listed(), model=st.text())
def test_a_library_reads_the_yaml_as_we_do(heads: HeadSet, model: str) -> None:
    read = yaml.safe_load(yaml_text(heads, model))
    assert read == {
        "attn_head_set": ",".join(f"{head.layer}-{head.head}" for head in heads),
        "model_name_or_path": model,
    }


@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def test_full_attention_heads_come_back(
    layers: int, groups: int, group: int, data: st.DataObject
) -> None:
    """A naive twin: the highest scores of each key-value head, the first k of them."""
    geometry = Geometry.uniform(layers, groups * group)
    grouped = GroupedGeometry(geometry, groups)
    values = data.draw(
        st.lists(st.integers(0, 5), min_size=geometry.total, max_size=geometry.total)
    )
    scores = HeadScores(geometry, np.reshape(np.array(values, float), geometry.shape), "any")
    k = data.draw(st.integers(1, layers * groups))
    text, full = duo_attention_text(scores.ranked("score"), grouped, groups, k)
    best = {
        (layer, kv): max(scores[Head(layer, kv * group + i)] for i in range(group))
        for layer in range(layers)
        for kv in range(groups)
    }
    table = np.loadtxt(text.splitlines(), delimiter="\t", ndmin=2)  # as DuoAttention reads it
    assert full == k == table.sum() and table.shape == (layers, groups)
    chosen = [best[place] for place in best if table[place] == 1]
    assert sorted(chosen, reverse=True) == sorted(best.values(), reverse=True)[:k]


WHOLE = [RETRIEVAL, ROUTES, TUPLES, DUO, YAML, IMPORTANT, csv_text([(Head(0, 1), 0.5)])]


@given(text=st.sampled_from(WHOLE), data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    text: str, data: st.DataObject, folder: Path
) -> None:
    """Never a traceback, whatever is cut out of a file or put in."""
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 9))
    put = data.draw(st.text(alphabet='[]{}(),:"-.#\t\n 09ex\0', max_size=3))
    place = write(folder / "damaged", text[:at] + put + text[at + cut :])
    said = place
    try:
        assert heads_of(read_heads_file(place), GEOMETRY).geometry == GEOMETRY
    except InputError as error:
        said = str(error)
    assert said.startswith(place) and "\n" not in said


# Commands


def test_overlap_of_two_published_files_needs_no_model(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    first, other = write(tmp_path / "r.json", RETRIEVAL), write(tmp_path / "i.json", ROUTES)
    told = json_of(
        command("compare", "overlap", first, other, "--k", 4, "--json", "--out", tmp_path / "o").out
    )
    (pair,) = told["pairs"]
    assert pair["intersection"] == 4 and pair["rank_correlation"] == pytest.approx(1)
    assert [each["method"] for each in told["artifacts"]] == [
        "scores of a file (retrieval)",
        "next_tok_attn",
    ]
    assert "note" not in told["artifacts"][0] and "kernel" not in told
    best, _, third, _ = told["artifacts"][0]["heads"]
    three = ("compare", "overlap", first, other, f"0.0,{third},{best}", "--k", 3, "--json")
    kernel = json_of(command(*three, "--out", tmp_path / "three").out)["kernel"]
    assert kernel["heads"] == [best, third]
    assert kernel["expected"] == pytest.approx(12 * (3 / 12) ** 3)
    duo = write(tmp_path / "d.tsv", DUO)
    code, out, err = command("compare", "overlap", first, duo, "--json", "--out", tmp_path / "d")
    assert code == 0 and "warning:" in err and "2 key-value heads a layer" in err
    assert "2 key-value heads a layer" in json_of(out)["artifacts"][1]["note"]
    assert command("report", tmp_path / "d").code == 0
    assert "2 key-value heads a layer" in (tmp_path / "d" / "report.html").read_text("utf-8")
    # Two key-value heads are 1 and 0.75: their four query heads come before a top set of three.
    tied = ("compare", "overlap", duo, first, "--k", 3, "--out", tmp_path / "t")
    assert "last of the 3 heads of d ties with 1 head outside the set" in command(
        *tied
    ).out.replace("\n", " ")
    assert json_of(command(*tied, "--json").out)["artifacts"][0]["ties"] == 1
    classes = command("compare", "classes", first, "--json", "--out", tmp_path / "c").out
    # Classes are of translation scores, which a file of this format does not say it holds.
    assert set(json_of(classes)["models"][0]["counts"].values()) == {None}


def test_the_map_of_the_explorer_shows_published_scores(tmp_path: Path) -> None:
    place = write(tmp_path / "r.json", RETRIEVAL)
    (source,), gates = read_sources([place, write(tmp_path / "y", YAML)], GEOMETRY)
    assert values_of(source.scores) == pytest.approx(VALUES) and len(gates) == 1


STEPS = {"m_step16": 0.0, "m_step4000": 0.5, "m": 1.0, "m_step256": 0.25}


def series_of(folder: Path) -> list[str]:
    """Four checkpoints: the share of the last one's scores that each has, at half of the heads."""
    places = []
    for name, share in STEPS.items():
        rows = [
            {"layer": a, "head_idx": b, "score": v * (share if b % 2 else 1)}
            for (a, b), v in VALUES.items()
        ]
        places.append(write(folder / f"{name}.json", json.dumps({"next_tok_attn": rows})))
    return places


def test_formation_of_published_scores_without_a_model(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    files = series_of(tmp_path)
    asked = ("compare", "formation", "--scores", *files, "--k", 3)
    told = json_of(command(*asked, "--threshold", 0.3, "--json", "--out", tmp_path / "f").out)
    rows = told["checkpoints"]
    assert [row["name"] for row in rows] == ["m_step16", "m_step256", "m_step4000", "m"]
    assert [row["step"] for row in rows] == [16, 256, 4000, None] and told["last"] == "m"
    final = {head for head, value in VALUES.items() if value > 0.3}
    for row in rows:
        share = STEPS[row["name"]]
        values = {head: v * (share if head[1] % 2 else 1) for head, v in VALUES.items()}
        above = {head for head, value in values.items() if value > 0.3}
        assert row["above_threshold"] == len(above) / 12
        assert row["overlap_with_last"] == len(above & final) / len(final)
        top = [set(sorted(each, key=lambda head: -each[head])[:3]) for each in (values, VALUES)]
        assert row["top_overlap_with_last"] == len(top[0] & top[1]) / 3
        for name in ("token_alignment", "low_activity", "inactive", "chrf"):
            assert row[name] is None
    assert told["method"] == "next_tok_attn" and told["baseline_works"] is None
    page = command("compare", "formation", "--scores", *files, "--k", 3, "--out", tmp_path / "g")
    assert page.code == 0 and "above 0.10" in page.out and "chrF++" not in page.out
    assert command("report", tmp_path / "f").code == 0
    html = (tmp_path / "f" / "report.html").read_text("utf-8")
    assert "training step" in html and "chrF++" not in html
    # The finished run is read again, null and all.
    again = json_of(command(*asked, "--threshold", 0.3, "--json", "--out", tmp_path / "f").out)
    assert again["checkpoints"] == rows


def test_series_of_scores_that_are_none_are_refused(
    command: Callable[..., Said], tmp_path: Path
) -> None:
    files = series_of(tmp_path)
    listed = write(tmp_path / "y.yaml", YAML)
    retrieval = write(tmp_path / "r.json", RETRIEVAL)
    for more, said in (
        (files[:1], "two checkpoints or more"),
        ((files[0], files[0]), "name each once"),
        ((*files, "--data", "x.tsv"), "nothing to do with --data"),
        ((*files, "--model", "a/b", "--revision", "c"), "need no --model"),
        ((files[0], listed), "y.yaml: has no score for every head"),
        (
            (files[0], retrieval),
            "scores of several methods (next_tok_attn, scores of a file (retrieval))",
        ),
        ((files[0], str(tmp_path / "nothing")), "names nothing to compare"),
    ):
        code, out, err = command("compare", "formation", "--scores", *more)
        assert (code, out, err.count("\n")) == (2, "", 1) and said in err


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A run of two directions whose ranking by score minus chance differs from that by score."""
    chance = np.zeros(GEOMETRY.shape)
    chance[1, 2] = 0.6
    values = np.array([[VALUES[a, b] for b in range(4)] for a in range(3)])
    scores = HeadScores(
        GEOMETRY, values, "translation-score", extra={"chance": chance},
        provenance={"model": "org/model"},
    )  # fmt: skip
    with open_run(tmp_path / "run", "find translation-score", {}, {}) as run:
        save_scores(run.path, {"en-de": scores, "de-en": scores})
        run.finish({"model": {"key_value_heads": [2, 2, 2]}})
    return tmp_path / "run"


def test_a_run_is_written_in_every_format(
    found: Path, tmp_path: Path, command: Callable[..., Said]
) -> None:
    def written(to: str, *more: object) -> str:
        file = tmp_path / f"{to}{len(list(tmp_path.iterdir()))}"
        done = command("heads", found, "--to", to, "--out", file, *more)
        assert done.code == 0, done.err
        return str(file)

    for to in ("csv", "json", "retrieval"):
        named = named_scores(written(to), GEOMETRY)
        assert named is not None and values_of(named) == VALUES
    best = sorted(VALUES, key=lambda head: -VALUES[head])
    above = [head for head in best if head != (1, 2)]
    assert (1, 2) in best[:6]
    for more, order in ((("--rank", "score"), best), ((), above)):
        for to in ("csv", "json", "yaml"):
            heads = resolve_heads(written(to, "--k", 6, *more), None, GEOMETRY)
            assert [(head.layer, head.head) for head in heads] == order[:6]
    text = Path(written("yaml")).read_text("utf-8")
    assert text.endswith('model_name_or_path: "org/model"\n')
    assert len(resolve_heads(written("yaml"), None, GEOMETRY)) == 2
    # One direction of the run, which lies in it.
    assert command("heads", f"{found}:en-de", "--out", tmp_path / "one.csv").code == 0
    table = np.loadtxt(written("duo-attention", "--k", "50%"), delimiter="\t")
    assert table.shape == (3, 2) and table.sum() == 3
    said = command("heads", found, "--to", "duo-attention", "--k", 2, "--out", tmp_path / "full")
    assert "2 of 6 key-value heads keep full attention" in said.out
    assert "highest score of the 2 query heads that share it" in said.out
    told = json_of(
        command("heads", found, "--to", "duo-attention", "--k", 2, "--out", tmp_path / "full",
                "--geometry", "3x4:2", "--json").out
    )  # fmt: skip
    assert (told["heads"], told["key_value_heads"]) == (2, 2) and "full attention" in told["note"]


def test_a_set_becomes_full_attention_heads(tmp_path: Path, command: Callable[..., Said]) -> None:
    asked = ("heads", "0.1,2.3,0.0", "--to", "duo-attention", "--geometry", "3x4:2")
    done = command(*asked, "--out", tmp_path / "t")
    assert done.code == 0 and "the set holds one of the 2 query heads" in done.out
    assert np.loadtxt(tmp_path / "t", delimiter="\t").tolist() == [[1, 0], [0, 0], [0, 1]]
    code, _, err = command(*asked, "--out", tmp_path / "u", "--k", 3)
    assert code == 2 and "asks for 3 key-value heads, but the heads lie in 2" in err


def test_what_cannot_be_written_is_refused(
    found: Path, tmp_path: Path, command: Callable[..., Said]
) -> None:
    (tmp_path / "taken").write_text("mine")
    scores = write(tmp_path / "r.json", RETRIEVAL)
    for arguments, said in (
        ((found, "--out", tmp_path / "taken"), "exists and holds something else"),
        ((found, "--out", tmp_path), "exists and holds something else"),
        ((found, "--to", "duo-attention", "--out", tmp_path / "a"), "--k is missing"),
        ((scores, "--to", "duo-attention", "--k", 1, "--out", tmp_path / "a"),
         "give --geometry 3x4:KEY_VALUE_HEADS"),
        ((found, "--to", "duo-attention", "--k", 1, "--geometry", "3x4:4", "--to", "retrieval",
          "--k", 99, "--out", tmp_path / "a"), "more heads than the 12"),
        (("0.1", "--to", "retrieval", "--geometry", "3x4", "--out", tmp_path / "a"),
         "heads without scores"),
        (("0.1", "--out", tmp_path / "a"), "--geometry LAYERSxHEADS"),
    ):  # fmt: skip
        code, out, err = command("heads", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and said in err, err
    assert (tmp_path / "taken").read_text() == "mine" and not (tmp_path / "a").exists()
