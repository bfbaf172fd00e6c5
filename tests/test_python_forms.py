"""Models, heads, data, prompts and measures in Python, in every form that users write them."""

from __future__ import annotations

import copy
import functools
import io
import json
import re
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headscope
from command_runs import CommandRun
from headscope.data.prompts import DEFAULT_TEMPLATE, WrittenTemplate
from headscope.errors import Caution, InputError
from headscope.evidence.texts import Outputs, own_measured
from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet, resolve_heads
from headscope.lm import LanguageModel
from headscope.own import OwnMeasure, digest_of
from headscope.studies.functions import _heads_in_memory, function_of
from lm_helpers import build, wrapped

PAIRS = [("The dog sees a cat.", "Der Hund sieht eine Katze.", "0-0 1-1 2-2 3-3 4-4")] * 2
PAIR_NAMES = ("source", "target", "links")
GEOMETRY = Geometry.uniform(12, 16)
PLACES = st.tuples(st.integers(0, 11), st.integers(0, 15))
#: A head in the forms that a list of heads may hold.
SPELLINGS: list[Any] = [
    lambda layer, head: f"{layer}.{head}",
    lambda layer, head: f" {layer}.{head} ",
    lambda layer, head: f"L{layer}.H{head}",
    lambda layer, head: f"L{layer}H{head}",
    lambda layer, head: {"layer": layer, "head": head},
    lambda layer, head: (layer, head),
    lambda layer, head: [layer, head],
    lambda layer, head: (np.int64(layer), np.int32(head)),
    lambda layer, head: np.array([layer, head]),
    Head,
]


@given(
    st.lists(st.tuples(PLACES, st.sampled_from(SPELLINGS)), min_size=1, unique_by=lambda e: e[0])
)
def test_a_list_of_heads_in_any_spelling_is_that_list(heads: list[Any]) -> None:
    spelt = [spelling(*place) for place, spelling in heads]
    expected = [Head(*place) for place, _ in heads]
    for form in (spelt, tuple(spelt), iter(spelt)):
        text = _heads_in_memory(form, several=False)
        assert list(resolve_heads(text, None, GEOMETRY)) == expected
    assert list(HeadSet(GEOMETRY, tuple(spelt))) == expected
    places = [place for place, _ in heads]
    for array in (np.array(places), places):
        text = _heads_in_memory(array, several=True)
        assert list(resolve_heads(text, None, GEOMETRY)) == expected
    by_layer = _heads_in_memory({Head(*place) for place in places}, several=False)
    assert list(resolve_heads(by_layer, None, GEOMETRY)) == sorted(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        ["5"],
        [5, 1, 2],
        [(5,)],
        [("5", "1")],
        [None],
        [(5, -1)],
        ["a", "5.1"],
        (5.0, 1),
        5,
        5.10,
        [5.1],
        ["5.1", 4.3],
        np.float32(5.1),
        pd.Series([5.1, 4.3]),
        pd.DataFrame({"layer": [5.0], "head": [1.0]}),
        {"L11": [2.0]},
    ],
)
def test_what_names_no_heads_is_refused_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"is not a head|must be a whole number"):
        _heads_in_memory(wrong, several=False)
    with pytest.raises(InputError, match=r"is not a head|must be a whole number"):
        HeadSet.of(GEOMETRY, wrong)


@given(st.lists(PLACES, min_size=1, unique=True))
def test_tables_layers_and_masks_name_heads(places: list[tuple[int, int]]) -> None:
    heads, (layers, numbers) = [Head(*place) for place in places], zip(*places, strict=True)
    table = {"layer": layers, "head": numbers}
    mask = HeadSet(GEOMETRY, tuple(heads)).mask()
    by_layer = {layer: [head.head for head in heads if head.layer == layer] for layer in layers}
    in_order = [
        (pd.DataFrame(table), heads),
        (pa.table(table), heads),
        (table, heads),
        ([{"layer": layer, "head": head} for layer, head in places], heads),
        (by_layer, [Head(layer, head) for layer, own in by_layer.items() for head in own]),
        ({f"L{layer}": own for layer, own in by_layer.items()}, None),
        (mask, sorted(heads)),
        (torch.from_numpy(mask), sorted(heads)),
        ({**table, "selected": [head == heads[0] for head in heads]}, heads[:1]),
    ]
    for form, expected in in_order:
        named = HeadSet.of(GEOMETRY, form)
        assert set(named) == set(expected or heads) and (expected or list(named)) == list(named)
        given = _heads_in_memory(form, False, GEOMETRY)
        assert HeadSet.of(GEOMETRY, given) == named


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": [{"a": "x", "b": "y"}]}, "data, row 1 has no column 'source'.*source_column"),
        ({"data": [{"source": "x", "target": ""}]}, "data, row 1: column 'target' is empty"),
        ({"source_column": "target"}, "with source_column and target_column"),
        ({"pair": None}, "add pair en-de, or source_language and target_language"),
        ({"shots": 100}, "shots"),
        (
            {"heads": pd.DataFrame({"layer": [5, 5], "head": [1, 1], "score": [1, 1]})},
            "L5.H1 is listed twice",
        ),
    ],
)
def test_errors_speak_of_arguments(
    given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = {"data": PAIRS, "heads": "5.1", "pair": "en-de", "draws": 2, "progress": False}
    with pytest.raises(InputError, match=words) as refused:
        headscope.verify.removal(**{**usual, **given})
    assert "--" not in str(refused.value) and "inputs" not in str(refused.value)


@given(PLACES, st.sampled_from(SPELLINGS))
def test_scores_gates_and_sets_are_asked_by_any_spelling(
    place: tuple[int, int], spelling: Any
) -> None:
    named = spelling(*place)
    scores = HeadScores(GEOMETRY, np.arange(192.0).reshape(12, 16), "induction")
    assert scores[named] == scores[place] == 16 * place[0] + place[1]
    heads = HeadSet(GEOMETRY, (Head(*place),))
    assert heads.removed()[named] == 0.0
    assert Gate.of(GEOMETRY, {Head(*place): 2.0})[place] == 2.0
    assert f"{place[0]}.{place[1]}" in heads
    assert place in heads
    assert (11 - place[0], 15 - place[1]) not in heads
    with pytest.raises(InputError, match=r"there is no head L12\.H0"):
        scores["12.0"]


def test_the_functions_take_every_form_of_heads(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lm = headscope.load("pocket")
    forms: list[Any] = [
        "5.1", Head(5, 1), (5, 1), ["5.1"], [(5, 1)], {(5, 1)}, np.array([[5, 1]]),
        HeadSet(lm.geometry, (Head(5, 1),)), "L5H1", {"L5": [1]}, {"layer": [5], "head": [1]},
        pd.DataFrame({"layer": [5, 4], "head": [1, 3], "selected": [True, False]}),
        np.arange(96).reshape(6, 16) == 81,
    ]  # fmt: skip
    runs = {
        headscope.use.adapt(lm, heads=heads, prompt=["a"], compare=False).signature
        for heads in forms
    }
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: headscope.verify.removall, "did you mean removal?"),
        (lambda: headscope.find.translationscore, "did you mean translation_score?"),
        (lambda: headscope.verfy, "did you mean verify?"),
        (lambda: headscope.verify.removal(heads="5.1", drawz=3), "did you mean draws?"),
        (lambda: headscope.verify.removal(heads="5.1", progres=False), "did you mean progress?"),
        (lambda: headscope.verify.removal(heads="5.1", measure="los"), "did you mean loss?"),
        (lambda: headscope.verify.removal(heads="5.1", control="randm"), "did you mean random?"),
        (lambda: headscope.find.translation_score(decode="greedi"), "did you mean greedy?"),
        (lambda: headscope.load("pockt"), "did you mean pocket?"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(ask: Any, words: str) -> None:
    with pytest.raises((InputError, AttributeError)) as caught:
        ask()
    assert words in str(caught.value)


@pytest.fixture(scope="module")
def pocket() -> Any:
    return headscope.load("pocket")


@pytest.mark.parametrize("off", [torch.inference_mode, torch.no_grad])
def test_gradients_are_taken_where_the_caller_takes_none(
    off: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    training = {"pair": "en-de", "limit": 20, "steps": 3, "batch": 2, "held_out": 2,
                "learning_rate": 20.0}  # fmt: skip
    wanted = headscope.find.mask(headscope.load("pocket"), out="wanted", **training)
    with off():
        lm = headscope.load("pocket")
        found = headscope.find.mask(lm, out="found", **training)
    masks = [Path(run.run, "history.safetensors") for run in (wanted, found)]
    assert masks[0].read_bytes() == masks[1].read_bytes()
    with torch.inference_mode():
        own = copy.deepcopy(lm.model)
    with pytest.raises(InputError, match="inference_mode"):
        headscope.find.mask(LanguageModel.wrap(own, lm.tokenizer, "pocket"), out="own", **training)


def test_a_loaded_model_is_taken_wherever_a_model_is(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its tokenizer, with that of the folder it came from, and as it is."""
    monkeypatch.chdir(tmp_path)
    by_place = headscope.load(pocket.model, pocket.tokenizer)
    by_name = headscope.load(pocket.model)
    assert by_name.model is by_place.model is pocket.model
    assert by_name.encode("Der Hund.") == pocket.encode("Der Hund.")
    scores = [
        headscope.find.translation_score(model, PAIRS, pair="en-de").scores.values
        for model in (pocket, by_place, pocket.model)
    ]
    assert np.array_equal(scores[0], scores[1], equal_nan=True)
    assert np.array_equal(scores[0], scores[2], equal_nan=True)


def test_a_model_without_a_tokenizer_says_how_to_give_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = build("llama")
    made.name_or_path = str(tmp_path / "gone")
    with pytest.raises(InputError, match=r"give it: headscope\.load\(model, tokenizer\)"):
        headscope.load(made)
    with pytest.raises(InputError, match=r"give it: headscope\.load\(model, tokenizer\)"):
        headscope.find.induction(made, {"en": ["a dog"] * 4})
    made.name_or_path = ""
    with pytest.raises(InputError, match="has no tokenizer"):
        headscope.load(made).encode("a dog")


def test_work_shows_a_bar_unless_it_is_silenced(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    find = headscope.find.translation_score
    calls: list[tuple[str, int, int]] = []
    find(pocket, PAIRS, pair="en-de", out="called", progress=lambda *step: calls.append(step))
    assert {done for _, done, _ in calls} >= {0, 1}
    assert capsys.readouterr().err == ""
    find(pocket.model, PAIRS, pair="en-de", out="silent", progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    find(pocket.model, PAIRS, pair="en-de", out="shown")
    shown = capsys.readouterr()
    assert shown.out == "" and "checking heads" in shown.err and calls[0][0] in shown.err
    find(pocket, PAIRS, pair="en-de", out="asked", progress=True)
    assert calls[0][0] in capsys.readouterr().err


def test_a_notebook_shows_one_line_with_a_bar(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr("sys.stderr", stream)
    headscope.find.translation_score(pocket, PAIRS, pair="en-de")
    lines = stream.getvalue().split("\r")
    assert stream.getvalue().count("\n") == 0 and lines[-1] == ""
    assert any("█" * 20 in line for line in lines) and lines[-2].strip() == ""


def test_a_repr_fits_ten_lines(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_runs: list[CommandRun]
) -> None:
    scores = HeadScores(GEOMETRY, np.arange(192.0).reshape(12, 16), "induction")
    values = [headscope.read_run(made.folder) for made in command_runs]
    values += [getattr(value, "evidence", value) for value in values]
    values += [scores, scores.top(100), scores.top(100).removed(), Gate.identity(GEOMETRY), pocket]
    for value in values:
        lines = repr(value).splitlines()
        assert len(lines) <= 10 and all(len(line) <= 200 for line in lines), repr(value)
        assert lines[0].startswith(type(value).__name__)
    assert "L11.H15 191" in repr(scores) and "L11.H15 × 0" in repr(scores.top(1).removed())


def test_a_figure_is_drawn_in_given_axes(command_runs: list[CommandRun]) -> None:
    from matplotlib.figure import Figure

    drawn = 0
    for made in command_runs:
        result = headscope.read_run(made.folder)
        try:
            own = result.figure()
        except InputError:  # some runs show tables alone
            continue
        panels = [axis for axis in own.axes if axis.get_label() != "<colorbar>" and axis.axison]
        figure = Figure()
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        result.figure(ax=axes[0] if len(panels) == 1 else axes)
        for inside, alone in zip(axes, panels, strict=True):
            assert inside.get_xlabel() == alone.get_xlabel()
            assert len(inside.get_children()) >= len(alone.get_children()) - 1
        assert axes[0].get_title()
        with pytest.raises(InputError, match="panels; give as many axes"):
            result.figure(ax=figure.subplots(1, len(panels) + 1))
        drawn += 1
    assert drawn > 10


def test_figures_have_no_mark_cut_and_no_bands(command_runs: list[CommandRun]) -> None:
    maps = forests = 0
    for made in command_runs:
        try:
            figure = headscope.read_run(made.folder).figure()
        except InputError:  # some runs show tables alone
            continue
        figure.draw_without_rendering()
        for axis in figure.axes:
            if axis.images and axis.get_aspect() == 1:
                place = axis.get_position(original=True).size * figure.get_size_inches()
                maps += 1  # at most 0.2 inches of its place are empty
                assert (place - axis.get_tightbbox().size / figure.dpi < 0.2).all(), made.command
            lines = [line for line in axis.lines if line.get_marker() in ("D", "s")]
            forests += bool(lines)
            for line in lines:
                half = line.get_markersize() * figure.dpi / 72 / 2
                ends = axis.transData.transform(line.get_xydata())
                assert (ends - half >= axis.bbox.min).all(), made.command
                assert (ends + half <= axis.bbox.max).all(), made.command
    assert maps > 3 and forests > 3


def forms_of(columns: dict[str, list[Any]]) -> list[Any]:
    """A table in every form that holds one in memory."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    hub = datasets.Dataset.from_dict(columns)
    split = datasets.DatasetDict({"train": hub})
    return [columns, rows, pd.DataFrame(columns), hub, split, pa.table(columns), iter(rows)]


PAIR_COLUMNS = {name: [pair[at] for pair in PAIRS] for at, name in enumerate(PAIR_NAMES)}
TEXTS = {"text": ["The dog sees a cat and a man."] * 4, "language": ["en", "en", "de", "de"]}
TABLES: list[tuple[str, dict[str, list[Any]], dict[str, Any]]] = [
    ("find translation-score", PAIR_COLUMNS, {"pair": "en-de"}),
    (
        "find translation-score",
        {name.title(): cells for name, cells in PAIR_COLUMNS.items()},
        {"pair": "en-de", "source_column": "Source", "target_column": "Target",
         "links_column": "Links"},
    ),
    ("find first-order", TEXTS, {}),
    (
        "find first-order",
        {"content": TEXTS["text"], "lang": TEXTS["language"]},
        {"text_column": "content", "language_column": "lang"},
    ),
    (
        "find patching",
        {"es": ["perro", "gato", "casa"], "en": ["dog", "cat", "house"],
         "de": ["Hund", "Katze", "Haus"]},
        {},
    ),
    ("use adapt", {"text": ["The dog", "A man"]}, {"heads": "5.1"}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "columns", "given"), TABLES)
def test_data_in_every_form_are_one_run(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: str, columns: dict[str, list[Any]], given: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    call = function_of(command)
    runs = {call(pocket, form, **given).run for form in forms_of(columns)}
    assert len(runs) == 1
    both = datasets.DatasetDict({name: datasets.Dataset.from_dict(columns) for name in "ab"})
    with pytest.raises(InputError, match="splits a, b; give one of them"):
        call(pocket, both, **given)


def test_tuples_are_what_the_command_reads(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    find = headscope.find
    texts = [*zip(*TEXTS.values(), strict=True)]
    assert find.first_order(pocket, texts).run == find.first_order(pocket, TEXTS).run
    by_name = find.translation_score(pocket, PAIR_COLUMNS, pair="en-de").run
    for pair in ("en-de", ("en", "de"), ["en", "de"], [("en", "de")], ["en-de"]):
        assert find.translation_score(pocket, PAIRS, pair=pair).run == by_name
    several = find.translation_score(
        pocket, {("en", "de"): PAIRS, "de-en": PAIR_COLUMNS}, pair=[("en", "de"), ("de", "en")]
    )
    assert [*several.scores.config["mean_over"]] == ["en-de", "de-en"]
    with pytest.raises(InputError, match="column 'source' is of type str; give the list"):
        find.translation_score(pocket, {"source": "a", "target": "b"}, pair="en-de")


def test_the_attention_of_a_text_is_that_of_eager_attention(pocket: Any) -> None:
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(
        pocket.folder, attn_implementation="eager", dtype=torch.float32
    )
    for text in ("Der Hund sieht eine Katze.", ("Sentence: The dog.\nAnswer:", "Der Hund.")):
        attention = pocket.attention(text)
        joined = text if isinstance(text, str) else " ".join(text)
        ids = torch.tensor([pocket.encode(joined)])
        with torch.no_grad():
            expected = plain(ids, output_attentions=True).attentions
        theirs = np.stack([layer[0].float().numpy() for layer in expected])
        assert attention.weights.dtype == np.float32
        np.testing.assert_allclose(attention.weights, theirs, atol=1e-5)
        np.testing.assert_allclose(attention.weights.sum(axis=-1), 1, atol=1e-5)
        assert "".join(attention.tokens) == pocket.decode(ids[0].tolist(), special=True)
    some = pocket.attention(text, heads=["5.1", (4, 3)])
    assert np.array_equal(some["5.1"], attention[5, 1])
    assert np.isfinite(some.weights).any(axis=(2, 3)).sum() == 2
    with pocket.gated(HeadSet.of(pocket.geometry, "0.1,1.2").removed()):
        gated = pocket.attention(text, heads="5.1")
    assert not np.allclose(gated["5.1"], attention["5.1"])
    assert np.array_equal(pocket.attention(text)["5.1"], attention["5.1"])
    with pytest.raises(InputError, match=r"there is no head L6\.H0"):
        pocket.attention(text, heads=(6, 0))


def test_attention_is_not_a_number_where_layers_have_no_heads() -> None:
    lm = wrapped("qwen3_next")
    weights = lm.attention("a dog").weights
    assert np.array_equal(np.isfinite(weights).all(axis=(2, 3)), lm.geometry.mask())


def short(source: str) -> str:
    return f"{source} ="


def with_languages(source: str, source_language: str, target_language: str) -> str:
    task = f"Translate this sentence from {source_language} to {target_language}"
    return f"{task}\nSentence: {source}\nAnswer:"


def longer(texts: list[str], references: list[str]) -> list[float]:
    return [len(text) - len(reference) for text, reference in zip(texts, references, strict=True)]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_the_sentence_is_found_in_what_a_function_writes(source: str) -> None:
    for function in (
        short,
        with_languages,
        lambda text: f"a {text} a {len(text)}:",
        "Q: {}".format,
    ):
        prompt = WrittenTemplate.by(function).render(source, "English", "German")
        assert prompt.text[prompt.source_start : prompt.source_end] == source
    plain = DEFAULT_TEMPLATE.render(source, "English", "German")
    assert WrittenTemplate.by(with_languages).render(source, "English", "German") == plain


def test_a_template_may_be_a_function(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def find(template: Any) -> Any:
        return headscope.find.translation_score(pocket, PAIRS, pair="en-de", template=template)

    by_text, by_function = find("{source} ="), find(short)
    assert np.array_equal(by_text.scores.values, by_function.scores.values)
    assert find(short).run == by_function.run != by_text.run
    assert np.array_equal(find(with_languages).scores.values, find(None).scores.values)
    made = [find(lambda text, end=end: text + end).run for end in (" =", " :")]
    assert made[0] != made[1]
    for wrong, words in (
        (lambda text: "no sentence", "puts the sentence in 0 times"),
        (lambda text: 5, "gives 5; give a text"),
        (lambda text: 1 / 0, "fails on '{source}'"),
    ):
        with pytest.raises(InputError, match=words):
            find(wrong)
    with pytest.raises(InputError, match="template is a function, which other processes"):
        headscope.find.translation_score(pocket, PAIRS, pair="en-de", template=short, workers=2)
    with pytest.raises(InputError, match="the template is a text here"):
        headscope.find.soft_gate(pocket, heads="5.1", template=short)


def test_a_measure_may_be_a_function(
    pocket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def remove(measure: Any) -> Any:
        return headscope.verify.removal(
            pocket, PAIRS, "5.1", pair="en-de", measure=measure, draws=2, max_new_tokens=8
        )

    result = remove(longer)
    levels = result.to_frame()["levels"].query("statistic == 'longer'")
    outputs = Path(result.run, "outputs.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in outputs.splitlines()]
    for level in levels.itertuples():
        own = [row for row in rows if row["condition"] == level.condition]
        lengths = longer([row["output"] for row in own], [row["reference"] for row in own])
        assert level.value == pytest.approx(np.mean(lengths))
    assert len(levels) == len({row["condition"] for row in rows}) > 4
    assert {row.control for row in result.tests if row.statistic == "longer"} == {
        "random", "same layers"
    }  # fmt: skip
    assert remove(["text", longer]).evidence == result.evidence
    # Texts that are kept are not written again.
    monkeypatch.setattr("headscope.runs.kept.PLACE", Path("kept"))
    remove("text")
    with monkeypatch.context() as without_model:
        without_model.delattr(LanguageModel, "generate")
        by_lambda = [
            remove(lambda texts, references, by=by: [by * len(text) for text in texts])
            for by in (1, 2, 1)
        ]
    once, twice, again = ({t.statistic: t for t in made.tests} for made in by_lambda)
    own = [next(name for name in tests if name.startswith("lambda_")) for tests in (once, twice)]
    assert own[0] != own[1] and once == again
    assert twice[own[1]].difference.value == 2 * once[own[0]].difference.value
    again = headscope.verify.measure(result.run)
    assert again.evidence == result.evidence

    def graded(texts: list[str], references: list[str]) -> Any:
        weight = torch.ones(len(texts), requires_grad=True)
        (weight.sum() ** 2).backward()
        lengths = weight * torch.tensor([float(len(text)) for text in texts])
        return list(lengths) if len(texts) % 2 else lengths.bfloat16()

    with torch.inference_mode():  # in which the measure's own gradients would be missing, too
        graded_levels = remove(graded).to_frame()["levels"].query("statistic == 'graded'")
    assert len(graded_levels) == len(levels)
    for level in graded_levels.itertuples():
        own = [row for row in rows if row["condition"] == level.condition]
        assert level.value == pytest.approx(np.mean([len(row["output"]) for row in own]), rel=1e-2)
    for wrong, words in (
        (lambda texts: [1] * len(texts), "cannot be given outputs and references"),
        (chrf, "there is a measure chrf already"),
        (one_number, "give a list with one finite number for each"),
    ):
        with pytest.raises(InputError, match=words):
            remove(wrong)


@pytest.mark.parametrize(
    "given_back", [10**400, [10**400, 1], ["a", 1], [[1], [1, 2]], [float("inf"), 1]]
)
def test_what_is_no_number_for_each_output_is_refused(given_back: Any) -> None:
    def wrong(texts: list[str], references: list[str]) -> Any:
        return given_back

    with pytest.raises(InputError, match="the measure wrong gives") as refused:
        own_measured(Outputs("en", [["a", "b"]], ["c", "d"]), OwnMeasure.of(wrong))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_a_measure_that_keeps_something_in_itself_is_told_of() -> None:
    class Kept:
        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, texts: list[str], references: list[str]) -> list[float]:
            self.seen += 1
            return [1.0 for _ in texts]

    @functools.cache
    def length(text: str) -> float:
        return float(len(text))

    def cached(texts: list[str], references: list[str]) -> list[float]:
        import colorsys  # which is loaded by the first call

        return [length(text) + bool(colorsys) for text in texts]

    sys.modules.pop("colorsys", None)
    outputs = Outputs("en", [["a", "b"]], ["c", "d"])
    with pytest.warns(Caution, match="Kept changes what it holds .* not found again"):
        own_measured(outputs, OwnMeasure.of(Kept()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measure = OwnMeasure.of(cached)
        assert own_measured(outputs, measure).size and OwnMeasure.of(cached) == measure


def chrf(texts: list[str], references: list[str]) -> list[float]:
    return [0.0 for _ in texts]


def one_number(texts: list[str], references: list[str]) -> float:
    return 1.0


def test_functions_are_told_apart_by_what_they_do() -> None:
    """Also where only a default, a value around them or a function that they call differs."""

    def made(number: Any, called: Any = abs) -> Any:
        return lambda text, more=number: f"{text}{number}{more}{called}"

    values: list[Any] = [
        1, 1.0, "1", (1,), [1], {1}, {"a": 1}, np.ones(2), np.zeros(2), re.compile("a"),
        re.compile("b"), Path("a"), Head(1, 2), made(1), made(2), json, re, re.sub, str.upper,
        partial(short, "a"), partial(short, "b"), short, longer, Head, Gate,
    ]  # fmt: skip
    digests = [digest_of(made(value)) for value in values]
    assert len({*digests}) == len(values)
    assert digests == [digest_of(made(value)) for value in values]
    assert len({digest_of(made(1, called)) for called in (abs, short, longer, made(3))}) == 4
    code = "def f(x):\n    return g(x)\ndef g(x):\n    return x + {}"
    spaces: list[dict[str, Any]] = [{"__name__": "__main__"} for _ in range(3)]
    for space, number in zip(spaces, (1, 1, 2), strict=True):
        exec(code.format(number), space)
    first, same, other = (digest_of(space["f"]) for space in spaces)
    assert first == same != other


#: Where a function or class may hold a number: code that makes `new`.
PLACES_OF_A_NUMBER = [
    "def new(x): return x + {}",
    "def new(x, y={}): return x + y",
    "def new(x, *, y={}): return x + y",
    "def around(y): return lambda x: x + y\nnew = around({})",
    "y = {}\ndef new(x): return [x + y for _ in x]",
    "def new(x): return new.y\nnew.y = {}",
    "class new:\n    y = [{}]",
    "class new:\n    y = dict(a=dict(b={}))",
    "class new:\n    class inner:\n        y = {}",
    "class base:\n    def of(self): return {}\nclass new(base): pass",
    "class meta(type):\n    def of(cls): return {}\nclass new(metaclass=meta): pass",
    "class new:\n    __slots__ = ('y',)\n    def __init__(self): self.y = {}\nnew = new()",
    "class new(int):\n    def __repr__(self): return '1'\nnew = new({})",
    "class new(str):\n    def of(self): return {}\nnew = new('a')",
    "class new(list): pass\nnew = new([{}])",
    "class new(enum.Enum):\n    y = {}",
    "@dataclasses.dataclass\nclass new:\n"
    "    y: list = dataclasses.field(default_factory=lambda: [{}])",
    "class new(typing.NamedTuple):\n    y: int = {}",
    "class new(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def y(self): return {}",
    "new = types.SimpleNamespace(y=numpy.array({}))",
    "new = torch.tensor({})",
    "new = types.ModuleType('of_mine')\nnew.y = {}",
]
#: What may stand around `old`, which another number makes another.
AROUND = [
    "new = functools.lru_cache(old if callable(old) else lambda: old)",
    "class new:\n    y = functools.cached_property(old)",
    "class new:\n    y = functools.partialmethod(lambda *a: old, 1)",
    "class new:\n    y = functools.singledispatchmethod(lambda *a: old)",
    "new = functools.singledispatch(lambda x: 1)\nnew.register(int, lambda x: old(x))",
    "new = functools.singledispatch(functools.partial(lambda *a: old))",
    "new = functools.partial(print, old)",
    "def of(call):\n    @functools.wraps(call)\n    def named(*a): return call(*a)\n"
    "    return named\nnew = of(functools.partial(lambda *a: old))",
    "new = contextlib.contextmanager(old)",
    "@functools.wraps(numpy.mean)\ndef new(x): return old(x)",
    "class new:\n    y = staticmethod(old)\n    z = classmethod(lambda cls: 1)",
    "class new:\n    y = property(None, old)",
    "class new:\n    y = [dict(a=(old,))]",
    "class new:\n    def __init__(self, y): self.y = y\nnew = new(old).__eq__",
    "new = numpy.vectorize(lambda *a: old)",
    "new = collections.defaultdict(lambda: old)",
    "new = collections.OrderedDict(a=old)",
    "new = types.MappingProxyType(dict(a=old))",
    "new = (old, {{1, 'a'}}, frozenset([2, 'b']))",
    "new = map(old, [1])",
    "new = operator.methodcaller('of', old)",
    "new = dataclasses.field(metadata=dict(a=old))",
    "def new(x):\n    def inner(y): return old(y)\n    return inner",
    "def new(x): return lambda: lambda: old",
    "new = types.ModuleType('of_mine')\nnew.part = types.ModuleType('of_mine.part')\n"
    "new.part.call = old",
]


def _defined(place: str, around: list[str], number: int) -> Any:
    """What such code defines, run as a program of its own."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "import abc, collections, contextlib, dataclasses, enum, functools, operator, types, typing"
        "\nimport numpy, torch",
        space,
    )
    made = place.format(number)
    for more in around:
        made += f"\nold = new\n{more.format()}"
    for depth, part in enumerate(made.split("\nold = new\n")):
        names = {"new": f"v{depth}", "old": f"v{depth - 1}"}
        code = re.sub(r"\b(new|old)\b", lambda name, names=names: names[name[0]], part)
        exec(code, space)
    return space[f"v{depth}"]


@given(
    st.sampled_from(PLACES_OF_A_NUMBER),
    st.lists(st.sampled_from(AROUND), max_size=3),
)
def test_an_edited_function_is_another_wherever_it_was_edited(
    place: str, around: list[str]
) -> None:
    """In any member, behind any wrapper; what was defined again without an edit is the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Caution)
        first, same, other = (digest_of(_defined(place, around, n)) for n in (1, 1, 2))
    assert first == same != other


def test_functions_differ_by_how_they_are_called_and_by_what_they_catch() -> None:
    """Which the instructions themselves do not say."""
    codes = [
        "def f(a): return a",
        "def f(*a): return a",
        "def f(*, a): return a",
        "def f(b): return b",
        "def f(a):\n    try:\n        a()\n        a()\n    except ValueError: pass",
        "def f(a):\n    try:\n        a()\n    except ValueError: pass\n    else: a()",
    ]
    spaces: list[dict[str, Any]] = [{"__name__": "__main__"} for _ in codes]
    for code, space in zip(codes, spaces, strict=True):
        exec(code, space)
    assert len({digest_of(space["f"]) for space in spaces}) == len(codes)


def test_a_module_changed_in_memory_makes_another_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that only the function itself imports; its file says nothing of it."""
    (tmp_path / "numbers_of_mine.py").write_text("size = 1\ndef unused(): return size")
    monkeypatch.syspath_prepend(tmp_path)

    def function(text: str) -> Any:
        import numbers_of_mine  # type: ignore[import-not-found]

        return numbers_of_mine.size

    first = digest_of(function)
    assert first == digest_of(function)
    monkeypatch.setattr(sys.modules["numbers_of_mine"], "size", 2)
    assert first != digest_of(function)
    monkeypatch.setattr(sys.modules["numbers_of_mine"], "size", 1)
    assert first == digest_of(function)


def test_what_cannot_be_read_makes_runs_of_their_own(pocket: Any) -> None:
    for value in ((n for n in [1]), threading.Lock(), pocket.model):

        def function(text: str, value: Any = value) -> str:
            return f"{text}{value}"

        with pytest.warns(Caution, match="is not found again"):
            assert digest_of(function) != digest_of(function)


def test_what_reads_by_names_that_it_makes_is_no_run_of_before() -> None:
    """However it is called; an attribute of the same name is another matter."""
    unseen = [
        "def f(x): return eval('G')",
        "def f(x): return globals()['G']",
        "def f(x): return [exec('G') for _ in x]",
        "def f(x): return __import__('a' + x)",
        "import builtins as b\ndef f(x): return b.eval('G')",
        "def f(x):\n    import builtins\n    return builtins.eval('G')",
        "def f(x):\n    from importlib import import_module\n    return import_module(x)",
        "e = eval\ndef f(x, e=e): return e('G')",
        "class A:\n    def g(self, x): return eval('G')\nf = A().g",
    ]
    for code in unseen:
        space: dict[str, Any] = {"__name__": "__main__", "G": 1}
        exec(code, space)
        with pytest.warns(Caution, match="is not found again"):
            assert digest_of(space["f"]) != digest_of(space["f"])
    for code in ("def f(x): return x.eval('G')", "def eval(x): return x\ndef f(x): return eval(x)"):
        space = {"__name__": "__main__"}
        exec(code, space)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert digest_of(space["f"]) == digest_of(space["f"])


def test_a_method_that_dispatches_is_the_same_whenever_it_is_read() -> None:
    class Own:
        @functools.singledispatchmethod
        def ask(self, text: Any) -> str:
            return "?"

        @ask.register
        def _(self, text: str) -> str:
            return text

    assert digest_of(Own().ask) == digest_of(Own().ask)


def test_an_edited_module_makes_another_function(tmp_path: Path) -> None:
    """Also one that is only used by the module of the function."""
    code = "import prompts_of_mine as p, headscope.own as o\nprint(o.digest_of(p.ask))"
    (tmp_path / "prompts_of_mine.py").write_text(
        "import words_of_mine as w\ndef ask(s): return w.end(s)"
    )
    seen = set()
    for end in ("=", ":", "="):
        (tmp_path / "words_of_mine.py").write_text(f"def end(s): return s + {end!r}")
        made = subprocess.run(
            [sys.executable, "-B", "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(made.stdout)
    assert len(seen) == 2


def test_the_examples_of_the_python_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "docs" / "reference" / "python" / "index.md"
    first, example = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert "Qwen/" in first  # a model of the Hub, which no test loads
    space: dict[str, Any] = {}
    exec(compile(example, str(page), "exec"), space)
    assert space["attention"].weights.ndim == 4
    assert {row.statistic for row in space["result"].levels} >= {"length_ratio"}
