"""Saved artifacts: round trips, damage, cards, tables and `--heads`."""

from __future__ import annotations

import errno
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import Caution, InputError
from headscope.heads import (
    Gate,
    Geometry,
    Head,
    HeadScores,
    HeadSet,
    Origin,
    about_rank,
    read_scores,
    resolve_heads,
    save_scores,
)
from headscope.heads.store import model_card, write_bytes, writing

GEOMETRY = Geometry((3, 0, 2))
ORIGIN = Origin("m", "headscope-0|find m|abc", {"decode": "greedy"}, {"model": "ab/cd", "seed": 7})


def make_scores(start: float = 0.0) -> HeadScores:
    values = np.arange(9, dtype=float).reshape(3, 3) + start
    return HeadScores(
        GEOMETRY,
        values,
        "m",
        low=values - 1,
        high=values + 1,
        extra={"chance": np.where(values > 1, values / 3, np.nan)},
        statistics={
            "hits": np.arange(36, dtype=np.uint16).reshape(4, 3, 3),
            "totals": np.array([1, 2, 3, 4]),
            "kept": np.array([True, False]),
        },
        config=ORIGIN.config,
        provenance=ORIGIN.provenance,
        signature=ORIGIN.signature,
    )


def make(kind: str) -> HeadScores | HeadSet | Gate:
    heads = HeadSet.parse("2.1,0.2", GEOMETRY)
    made: dict[str, HeadScores | HeadSet | Gate] = {
        "scores": make_scores(),
        "heads": HeadSet(GEOMETRY, heads.heads, ORIGIN),
        "gate": Gate(GEOMETRY, heads.scaled(0.5).values, ORIGIN),
    }
    return made[kind]


KINDS = ["scores", "heads", "gate"]


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    artifact = make(kind)
    artifact.save_pretrained(tmp_path / "a")
    again = type(artifact).from_pretrained(tmp_path / "a")
    assert again == artifact
    assert again.origin == ORIGIN
    names = {"README.md", "config.json", f"{kind}.safetensors"}
    assert {p.name for p in (tmp_path / "a").iterdir()} == names


@pytest.mark.parametrize("kind", KINDS)
def test_saving_twice_writes_the_same_bytes(kind: str, tmp_path: Path) -> None:
    for name in ("a", "b", "b"):
        make(kind).save_pretrained(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@given(st.lists(st.sampled_from(list(GEOMETRY.heads())), unique=True))
def test_sets_keep_their_order_when_saved(heads: list[Head]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        HeadSet(GEOMETRY, tuple(heads)).save_pretrained(folder)
        assert list(HeadSet.from_pretrained(folder)) == heads


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_and_every_changed_byte_is_noticed(kind: str, tmp_path: Path) -> None:
    artifact = make(kind)
    artifact.save_pretrained(tmp_path)
    file = tmp_path / f"{kind}.safetensors"
    whole = file.read_bytes()
    for damaged in (b"", whole[:5], whole[:-1], whole + b"x", whole[:-1] + b"\x55"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{kind}.safetensors.*save"):
            type(artifact).from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        type(artifact).from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "gate"}, "holds 'gate', but 'heads' is needed"),
        ({"format": 99}, "format 99"),
        ({"library": "other"}, "not written by headscope"),
        ({"geometry": {}}, "counts"),
        ({"config": 5}, "'config' is no JSON object"),
        ({"provenance": "x"}, "'provenance' is no JSON object"),
        ({"geometry": {"counts": [1, 0, 1]}}, r"no head L2\.H1"),
    ],
)
def test_config_that_does_not_fit_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    make("heads").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        HeadSet.from_pretrained(tmp_path)


def test_config_that_is_no_json_names_the_line(tmp_path: Path) -> None:
    make("heads").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{\n"kind": oops}')
    with pytest.raises(InputError, match=r"config\.json, line 2"):
        HeadSet.from_pretrained(tmp_path)


def test_damaged_scores_in_a_run_are_named_not_overlooked(tmp_path: Path) -> None:
    make("scores").save_pretrained(tmp_path / "scores" / "en-de")
    (tmp_path / "scores" / "en-de" / "config.json").write_text('{\n"kind": oops}')
    with pytest.raises(InputError, match=r"en-de/config\.json, line 2"):
        resolve_heads(str(tmp_path), None, make("heads").geometry)


def test_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    make("gate").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text()) | {"geometry": {"counts": [3, 0, 2, 1]}}
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"\(3, 3\).*\(4, 3\)"):
        Gate.from_pretrained(tmp_path)


def test_missing_folder_and_occupied_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        Gate.from_pretrained(tmp_path / "nothing")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InputError, match="a model"):
        make("gate").save_pretrained(model)
    assert [p.name for p in model.iterdir()] == ["config.json"]
    make("heads").save_pretrained(tmp_path / "set")
    with pytest.raises(InputError, match="something else"):
        make("gate").save_pretrained(tmp_path / "set")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        make("gate").save_pretrained(tmp_path / "file")


def test_an_error_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    place = tmp_path / "there"
    with pytest.raises(OSError, match="full") as full, writing(place):
        raise OSError(errno.ENOSPC, "full")
    nowhere = tmp_path / "missing" / "there"
    with pytest.raises(OSError, match="there") as missing:
        write_bytes(nowhere, b"")
    other = OSError(errno.ENOENT, "gone", "elsewhere")
    with pytest.raises(OSError, match="elsewhere") as foreign, writing(place):
        raise other
    assert (full.value.filename, missing.value.filename) == (str(place), str(nowhere))
    assert foreign.value is other and not [*tmp_path.iterdir()]


def test_card_survives_markdown_in_values() -> None:
    origin = Origin("m", config={"template": "a|b\n`c`", "k": [1, 2]})
    rows = [
        line for line in model_card("heads", GEOMETRY, origin).splitlines() if "template" in line
    ]
    assert rows == ["| template | `a\\|b 'c'` |"]


# Tables and JSON that people write


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.csv", "layer,head\n2,1\n0,2\n"),
        ("h.csv", "\ufeffscore,head,layer\r\n0.5, 1, 2\r\n\r\n0.4,2,0"),
        ("h.tsv", "layer\thead\n2\t1\n0\t2\n"),
        ("h.json", '[{"layer": 2, "head": 1}, {"layer": 0, "head": 2}]'),
        ("h.json", "[[2, 1], [0, 2]]"),
        ("h.json", '["2.1",\n"0.2"]'),
        (
            "h.json",
            '{"s": [1, {"heads": 3}], "heads": [{"layer": 2, "head": 1}, {"layer": 0, "head": 2}]}',
        ),
        (
            "h.json",
            '[{"layer": 2, "head": 1}, {"layer": 0, "head": 0, "selected": false}, "0.2"]',
        ),
        ("h.json", '["L2.H1", "L0H2"]'),
        ("h.json", '{"L2": [1], "0": [2]}'),
        ("h.json", '{"model": "any", "heads": ["2.1", "L0.H2"]}'),
        ("h.txt", "L2.H1\n0.2\n"),
        ("h.txt", "2.1,0.2"),
    ],
)
def test_tables_keep_the_order_of_the_file(name: str, content: str, tmp_path: Path) -> None:
    heads = resolve_heads(str(write(tmp_path / name, content)), None, GEOMETRY)
    assert heads.heads == (Head(2, 1), Head(0, 2))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("h.csv", "", r"h\.csv, line 1: there is no column 'layer'"),
        ("h.csv", "2,1\n", r"line 1: there is no column 'layer'"),
        ("h.csv", "layer\n2\n", r"line 1: there is no column 'head'"),
        ("h.csv", "layer,head\n", "lists no heads; add"),
        ("h.csv", "layer,head\n0,0\n2\n", "line 3: has 1 cells"),
        ("h.csv", "layer,head\n0,x\n", "line 2: head must be a whole number.*correct"),
        ("h.csv", "layer,head\n0,0\n\n0,7\n", r"line 4: there is no head L0\.H7.*heads 0 to 2"),
        ("h.csv", "layer,head\n0,0\n2,1\n0,0\n", "line 4: head L0.H0 is already on line 2; delete"),
        ("h.csv", b"layer,head\n0,0\n0,\xff\n", "line 3: is not valid UTF-8; save"),
        ("h.json", "[{]", "line 1: is not valid JSON.*write"),
        ("h.json", "[" * 200_000, "nested too deeply"),
        ("h.json", '[\n{"layer": 0, "head": 0},\n\n{"layer": 0}]', "line 4: .* is not a head"),
        (
            "h.json",
            '[\n{"layer": 0, "head": 0},\n[0, 0]]',
            "line 3: head L0.H0 is already on line 2",
        ),
        ("h.json", '["0"]', "line 1: '0' is not a head"),
        ("h.json", '{"scores": []}', "lists no heads"),
        ("h.json", '{"ranks": []}', "neither a list of heads nor"),
        ("h.json", "3", "neither a list of heads nor"),
        ("h.json", "[]", "lists no heads"),
        ("h.txt", "0.0", r"line 1: there is no column .layer.*one of the other formats"),
    ],
)
def test_bad_tables_name_file_line_and_fix(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as error:
        resolve_heads(str(path), None, GEOMETRY)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("h.json", '{"model": {"name": "a/b"}, "heads": ["2.1"]}'),
        ("h.yaml", 'attn_head_set: "2-1"\nmodel_name_or_path: a/b # theirs\n'),
    ],
)
def test_heads_of_another_model_are_told(name: str, content: str, tmp_path: Path) -> None:
    path = str(write(tmp_path / name, content))
    with pytest.warns(Caution, match=r"lists heads of a/b, but this model is a/c") as told:
        assert resolve_heads(path, None, GEOMETRY, model="a/c").keys == ("2.1",)
    assert [each.filename for each in told] == [__file__]  # the caller's
    for own in ("", "a/b", "/models/B/"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            resolve_heads(path, None, GEOMETRY, model=own)


# What --heads takes


def finished_run(path: Path) -> Path:
    path.mkdir()
    (path / "run.json").write_text("{}")
    (path / "DONE.json").write_text('{"format": 2}')
    return path


def test_resolve_explicit_list() -> None:
    for spaces in (1, 300):  # or longer than the name of a file may be
        listed = f"2.1,{' ' * spaces}0.2"
        assert resolve_heads(listed, None, GEOMETRY).heads == (Head(2, 1), Head(0, 2))
    assert resolve_heads("2.1,0.2", 1, GEOMETRY).heads == (Head(2, 1),)
    with pytest.raises(InputError, match="has only 2"):
        resolve_heads("2.1,0.2", 3, GEOMETRY)
    with pytest.raises(InputError, match="neither a folder nor a file"):
        resolve_heads("no/such/thing", None, GEOMETRY)


def test_resolve_scores_folder_and_run_folder(tmp_path: Path) -> None:
    make_scores().save_pretrained(tmp_path / "scores-only")
    run = finished_run(tmp_path / "run")
    save_scores(run, make_scores())
    for folder in (tmp_path / "scores-only", run, run / "scores"):
        assert resolve_heads(str(folder), 3, GEOMETRY) == make_scores().top(3)
        assert resolve_heads(folder, None, GEOMETRY) == make_scores().top("15%")
        assert resolve_heads(folder, None, GEOMETRY, default=4) == make_scores().top(4)
        assert resolve_heads(folder, "40%", GEOMETRY, default=4) == make_scores().top(2)


def test_resolve_run_of_several_directions_uses_their_mean(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    parts = {"en-de": make_scores(), "de-en": make_scores(4)}
    save_scores(run, parts)
    assert resolve_heads(run, 2, GEOMETRY) == HeadScores.mean(parts).top(2)
    assert resolve_heads(run / "scores", 2, GEOMETRY) == HeadScores.mean(parts).top(2)
    assert resolve_heads(run / "scores" / "en-de", 2, GEOMETRY) == make_scores().top(2)
    assert read_scores(run) == {**parts, "mean": HeadScores.mean(parts)}
    assert read_scores(run / "scores") == read_scores(run)


def test_classes_of_a_mean_are_means_over_its_directions() -> None:
    whole = HeadScores.mean({"en-de": make_scores(-4), "de-en": make_scores()})
    assert whole.classes()["inactive"] == 2  # 3 of en-de and 1 of de-en, but 3 by their mean
    with pytest.raises(InputError, match="'parts'"):
        replace(whole, statistics={"parts": np.zeros((2, 3))})


def test_what_ranks_heads_goes_with_the_set(tmp_path: Path) -> None:
    values = make_scores().values
    made = HeadScores(GEOMETRY, values, "translation-score", extra={"chance": values * 1.5})
    run = finished_run(tmp_path / "run")
    save_scores(run, made)
    cut = resolve_heads(run, 2, GEOMETRY)
    assert cut.heads == (Head(0, 0), Head(0, 1))
    assert resolve_heads(run, 2, GEOMETRY, by="score").heads == (Head(2, 1), Head(2, 0))
    cut.save_pretrained(tmp_path / "set")
    again = resolve_heads(tmp_path / "set", None, GEOMETRY)
    assert about_rank(again)["rank"] == about_rank(again.removed())["rank"] == "above-chance"
    assert about_rank(resolve_heads("2.1", None, GEOMETRY))["rank"] is None


def test_scores_are_read_from_the_folder_of_a_finished_run(tmp_path: Path) -> None:
    one, several = tmp_path / "one", tmp_path / "several"
    scores = {"a": make_scores(), "b": make_scores(2.0)}
    save_scores(one, scores["a"])
    save_scores(several, scores)
    for run in (one, several):
        (run / "run.json").write_text("{}")
        with pytest.raises(InputError, match="not finished"):
            HeadScores.from_pretrained(run)
        (run / "DONE.json").write_text('{"format": 2}')
    assert HeadScores.from_pretrained(one) == scores["a"]
    assert HeadScores.from_pretrained(several) == HeadScores.mean(scores)
    assert HeadScores.from_pretrained(several, subfolder="scores/b") == scores["b"]
    with pytest.raises(InputError, match=r"no config\.json"):
        HeadSet.from_pretrained(one)


def test_resolve_saved_sets_and_gates_whole(tmp_path: Path) -> None:
    for kind in ("heads", "gate"):
        make(kind).save_pretrained(tmp_path / kind)
    assert resolve_heads(tmp_path / "heads", None, GEOMETRY).heads == (Head(2, 1), Head(0, 2))
    assert resolve_heads(tmp_path / "heads", 1, GEOMETRY).heads == (Head(2, 1),)
    assert resolve_heads(tmp_path / "gate", None, GEOMETRY).heads == (Head(0, 2), Head(2, 1))


def test_run_with_set_and_scores_gives_the_set_unless_k_is_given(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    save_scores(run, make_scores())
    make("heads").save_pretrained(run / "heads")
    assert resolve_heads(run, None, GEOMETRY).heads == (Head(2, 1), Head(0, 2))
    assert resolve_heads(run, 3, GEOMETRY) == make_scores().top(3)


def test_resolve_refuses_what_does_not_fit(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    with pytest.raises(InputError, match="no scores, no heads and no gate"):
        resolve_heads(run, None, GEOMETRY)
    save_scores(run, make_scores())
    with pytest.raises(InputError, match=r"run was made for .*3/0/2.*2 layers × 2 heads"):
        resolve_heads(run, None, Geometry.uniform(2, 2))
    (run / "DONE.json").unlink()
    with pytest.raises(InputError, match="not finished; run the same command again"):
        resolve_heads(run, None, GEOMETRY)
    with pytest.raises(InputError, match="run: this run is not finished"):
        resolve_heads(run / "scores", None, GEOMETRY)
