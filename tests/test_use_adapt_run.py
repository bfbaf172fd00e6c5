"""`headscope use adapt`: outputs with and without a gate, steering, runs that go on, bad input."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import process_helpers
from conftest import json_of
from headscope.errors import InputError
from headscope.heads import Gate, HeadSet
from headscope.lm import LanguageModel, load
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.generation import GenerateConfig
from headscope.studies.models import ModelChoice
from headscope.studies.report import read_run, write_report
from headscope.studies.study import shown_of
from headscope.studies.use.adapt import UseAdapt, use_adapt
from headscope.studies.use.adapt import command as adapt_study
from headscope.studies.use.gates import GateChoice
from headscope.studies.use.prompts import PromptsChoice
from headscope.studies.use.steering import FACTORS, Steer, comparison, steering_heads
from lm_helpers import saved
from writing_helpers import language_run

Command = Callable[..., Any]
#: The module: its package has a function of this name.
RUNNER = importlib.import_module("headscope.evidence.runner")
HOSTILE = "<script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapt")
    saved(folder / "model")
    lm = load(str(folder / "model"))
    language_run(folder / "found", lm.geometry, {"de": "0.1,1.2", "en": "0.3,1.3"})
    rows = [
        {"id": f"{at} {HOSTILE}", "text": f"Say {at} {HOSTILE}:", "reference": f"Das Haus {at}."}
        for at in range(6)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "prompts.jsonl").write_text(lines, "utf-8")
    gate = HeadSet.parse("0.1,1.0", lm.geometry).removed()
    gate.save_pretrained(folder / "mask" / "gate")
    save_file({"mask": np.array([1, 0], np.float32)}, folder / "mask" / "feed_forward.safetensors")
    return folder


@pytest.fixture
def adapt(place: Path, command: Command) -> Callable[..., dict[str, Any]]:
    """Run the command on the small model and its prompts; the JSON it prints."""

    def run(*arguments: object, out: str, data: bool = True) -> dict[str, Any]:
        given = ("--data", place / "prompts.jsonl") if data else ()
        said = command(
            "use", "adapt", "--model", place / "model", *given, *arguments,
            "--max-new-tokens", 5, "--out", place / out, "--json",
        )  # fmt: skip
        assert (said.code, said.err) == (0, "")
        told: dict[str, Any] = json_of(said.out)
        return told

    return run


@pytest.fixture
def made(adapt: Callable[..., dict[str, Any]], place: Path) -> Callable[[str], dict[str, Any]]:
    """What a run shows; a finished one is not made again."""
    arguments: dict[str, list[object]] = {
        "masked": ["--gate", place / "mask", "--outside", 0.5],
        "steered": ["--steer", "de", "--heads", place / "found", "--k", 2, "--factor", 3,
                    "--factor", 0.5, "--away", "en", "--gate", place / "mask", "--draws", 2],
    }  # fmt: skip
    return lambda name: adapt(*arguments[name], out=name)


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_outputs_are_those_of_the_gated_model(
    made: Callable[[str], dict[str, Any]], place: Path
) -> None:
    told = made("masked")
    lm = load(str(place / "model"))
    gate = HeadSet.parse("0.1,1.0", lm.geometry).scaled(0.5)
    how = GenerateConfig(max_new_tokens=5, stop_at_newline=False)
    rows = rows_of(place / "masked" / "outputs.jsonl")
    prompts = [row["prompt"] for row in rows_of(place / "masked" / "outputs.jsonl")]
    assert prompts == [f"Say {at} {HOSTILE}:" for at in range(6)]
    assert [row["text_as_is"] for row in rows] == [one.text for one in lm.generate(prompts, how)]
    with lm.gated(gate), feed_forward_gated(lm, torch.tensor([1.0, 0.5])):
        assert [row["text"] for row in rows] == [one.text for one in lm.generate(prompts, how)]
    assert told["changed"] == sum(row["text"] != row["text_as_is"] for row in rows) > 0
    assert told["outputs"] == rows
    assert told["prompts"] == 6
    assert told["gate"]["applied"] == {
        "on": "output",
        "heads": {"0.1": 0.5, "1.0": 0.5},
        "feed_forward": {"1": 0.5},
    }
    assert Gate.from_pretrained(place / "masked" / "gate") == gate
    assert {"signature", "run", "seconds"} <= set(told)
    page = write_report(place / "masked").read_text("utf-8")
    assert HOSTILE not in page and "window.hacked" in page
    figure = shown_of(adapt_study, read_run(place / "masked"), place / "masked").figure
    shares = dict(zip(figure.groups, figure.values, strict=True))
    assert shares["equal to the original"] == (
        100.0,
        pytest.approx(100 * (1 - told["changed"] / 6)),
    )


def gate_file(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_every_prompt_has_its_own_gate(adapt: Callable[..., dict[str, Any]], place: Path) -> None:
    factors = [{"0.1": 0, "1.2": -2.5}, {}, {"1.0": 3}, {"0.1": 0, "1.2": -2.5}, {}, {"0.3": 0}]
    ids = [f"{at} {HOSTILE}" for at in range(6)]
    rows = [{"heads": heads, "id": own} for heads, own in zip(factors, ids, strict=True)]
    file = gate_file(place / "gates.jsonl", *rows)
    told = adapt("--gates", file, out="batch")
    lm = load(str(place / "model"))
    how = GenerateConfig(max_new_tokens=5, stop_at_newline=False)
    for row, heads in zip(told["outputs"], factors, strict=True):
        gate = torch.ones(lm.geometry.shape)
        for head, factor in heads.items():
            gate[tuple(map(int, head.split(".")))] = factor
        with lm.gated(gate):
            (alone,) = lm.generate([row["prompt"]], how)
        assert row["text"] == alone.text
        assert row["heads"] == heads
    assert told["gate"]["different"] == 4
    assert (told["gate"]["heads"], told["gate"]["removed"]) == (4, 2)
    assert told["changed"] > 0
    assert all(row["text"] == row["text_as_is"] for row in told["outputs"] if not row["heads"])
    page = write_report(place / "batch").read_text("utf-8")
    assert HOSTILE not in page and "L1.H2 × -2.5" in page


@pytest.mark.parametrize(
    ("rows", "options", "why"),
    [
        ([{"heads": {}}], (), "holds 1 gates for 6 prompts"),
        ([{"heads": {"9.0": 0}}] * 6, (), r"gates.jsonl, line 1: column 'heads'.*L9.H0"),
        ([{"heads": {"x": 0}}] * 6, (), "'x' is not a head"),
        ([{"heads": {}}] * 5 + [{"heads": {"0.1": "2"}}], (), "line 6.*by '2'; give a finite"),
        ([{"heads": {"0.1": 0, "00.1": 2}}] * 6, (), "line 1.*head L0.H1 twice"),
        ([{"heads": {"0.1": 1e39}}] * 6, (), "finite"),
        ([{"heads": {"0.1": True}}] * 6, (), "finite"),
        ([{"heads": ["0.1"]}] * 6, (), "is no JSON object"),
        ([{"heads": {}, "id": "other"}] * 6, (), "for the prompt 'other'"),
        ([{"gate": {}}] * 6, (), "heads"),
        ([{"heads": {}}] * 6, ("--scale", 2), "leave --gate, --heads"),
        ([{"heads": {}}] * 6, ("--steer", "de", "--heads", "0.1"), "leave --gates away"),
    ],
)
def test_gates_that_fit_no_prompts_are_refused(
    place: Path, tmp_path: Path, command: Command, rows: Any, options: Any, why: str
) -> None:
    file = gate_file(tmp_path / "gates.jsonl", *rows)
    said = command(
        "use", "adapt", "--model", place / "model", "--data", place / "prompts.jsonl",
        "--gates", file, *options, "--out", tmp_path / "out",
    )  # fmt: skip
    assert said.code == 2
    assert re.search(why, " ".join(said.err.split())), said.err
    assert said.err.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_without_comparing_nothing_else_is_written(
    adapt: Callable[..., dict[str, Any]], place: Path
) -> None:
    told = adapt(
        "--heads", "0.1", "--scale", 2, "--outside", 0.9, "--prompt", "Hi", "--prompt", "Ho",
        "--no-compare", out="alone", data=False,
    )  # fmt: skip
    assert told["gate"]["applied"]["heads"]["0.1"] == 2
    assert told["changed"] is None
    assert [set(row) for row in told["outputs"]] == [{"id", "prompt", "text"}] * 2
    assert len(told["gate"]["applied"]["heads"]) == 8
    figure = shown_of(adapt_study, read_run(place / "alone"), place / "alone").figure
    assert figure is None or figure.series == ("adapted",)


def test_a_run_that_was_killed_goes_on(place: Path, tmp_path: Path) -> None:
    config = UseAdapt(
        GateChoice(heads="0.1,1.2", scale=3.0),
        PromptsChoice(data=str(place / "prompts.jsonl")),
        ModelChoice(str(place / "model")),
        max_new_tokens=4,
    )
    # Two passes over blocks of two prompts begin; each block reports both its texts and its end.
    changes = {f"{RUNNER.__name__}.KEPT_AT_ONCE": 2}
    _, kept = process_helpers.resumed(
        use_adapt, config, tmp_path, 2 + 12, titles=("",), changes=changes
    )
    assert kept["outputs.jsonl"].count(b"\n") == 4


def test_steering_stands_beside_random_heads(
    made: Callable[[str], dict[str, Any]], place: Path
) -> None:
    told = made("steered")
    details = told["details"]
    assert details["factors"] == [0.5, 3.0]
    assert details["heads"] == {"de": ["0.1", "1.2"], "en": ["0.3", "1.3"]}
    selected = [row for row in told["conditions"] if row["kind"] == "selected"]
    assert [(row["of"], row["gate"]) for row in selected] == [("own", 0.5), ("own", 3), ("en", 0)]
    for one in selected:
        alike = one["of"], one["gate"]
        drawn = [row for row in told["conditions"]
                 if row["draw"] is not None and (row["of"], row["gate"]) == alike]  # fmt: skip
        # The mask removes 0.1 and 1.0: of them nothing can be multiplied.
        assert set(one["heads"]) == ({"1.2"} if one["of"] == "own" else {"0.3", "1.3"})
        assert len(drawn) == 4 and all(len(row["heads"]) == len(one["heads"]) for row in drawn)
    sides = {test["statistic"]: test["side"] for test in told["tests"]}
    assert sides == {"off_target": "lower", "empty": "higher", "chrf": "higher"}
    rows = rows_of(place / "steered" / "outputs.jsonl")
    assert len(rows) == 6 * (1 + 3 * 5)
    levels = {row["condition"]: row["value"] for row in told["levels"]
              if row["statistic"] == "off_target"}  # fmt: skip
    for name in ("original", *(row["id"] for row in selected)):
        own = [row["identified"] != "de" for row in rows if row["condition"] == name]
        assert levels[name] == pytest.approx(np.mean(own))
    page = write_report(place / "steered").read_text("utf-8")
    assert HOSTILE not in page and "window.hacked" in page


def test_the_gate_is_on_in_every_condition(
    adapt: Callable[..., dict[str, Any]], place: Path
) -> None:
    """The answers are those of both gates multiplied, feed-forward parts included.

    No random head is one that the gate has removed: nothing of it could be multiplied.
    """
    told = adapt("--steer", "de", "--heads", "0.2,1.3", "--factor", 2, "--draws", 12,
                 "--control", "random", "--control", "equal norm", "--control", "outside",
                 "--gate", place / "mask", out="both")  # fmt: skip
    drawn = [{*each["heads"]} for each in told["conditions"] if each["draw"] is not None]
    assert len(drawn) > 24 and not any(heads & {"0.1", "1.0"} for heads in drawn)
    rows = rows_of(place / "both" / "outputs.jsonl")
    asked = [row["prompt"] for row in rows_of(place / "both" / "prompts.jsonl")]
    lm = load(str(place / "model"))
    gate = HeadSet.parse("0.1,1.0", lm.geometry).removed()
    how = GenerateConfig(max_new_tokens=5, stop_at_newline=False)
    for kind, factor in (("original", 1.0), ("selected own 2 \u00d72", 2.0)):
        every = gate * HeadSet.parse("0.2,1.3", lm.geometry).scaled(factor)
        with lm.gated(every), feed_forward_gated(lm, torch.tensor([1.0, 0.0])):
            wanted = [one.text for one in lm.generate(asked, how)]
        assert [row["output"] for row in rows if row["condition"] == kind] == wanted


def test_the_pocket_model_has_prompts_of_its_own(
    loaded: None, pocket: LanguageModel, tmp_path: Path
) -> None:
    found = language_run(tmp_path / "found", pocket.geometry, {"de": "1.5,1.8"})
    config = Steer(
        languages=("de",), heads=str(found), k=1, factors=(2.0,), draws=1, max_new_tokens=4,
        prompts=PromptsChoice(limit=4),
    )  # fmt: skip
    told = comparison.run(config, tmp_path / "run")
    level = told.evidence.level("off_target", None, "de")
    assert level is not None and level.examples == 4
    assert "to German" in rows_of(tmp_path / "run" / "prompts.jsonl")[0]["prompt"]
    assert config.model == ModelChoice() and FACTORS == (0.5, 1.5, 2.0, 3.0, 5.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prompt", "Hi"], "give either --gate RUN, or --heads"),
        (["--gate", "x", "--heads", "0.1", "--prompt", "Hi"], "give either --gate RUN"),
        (["--gate", "x", "--scale", "2", "--prompt", "Hi"], "--scale and --k go with --heads"),
        (["--heads", "0.1", "--scale", "2"], "give either --prompt TEXT"),
        (["--heads", "0.1", "--scale", "nan", "--prompt", "Hi"], "finite number"),
        (["--heads", "0.1", "--scale", "2", "--prompt", " "], "--prompt is empty"),
        (["--heads", "7.1", "--scale", "2", "--prompt", "Hi"], "L7.H1"),
        (["--gate", "nowhere", "--prompt", "Hi"], "nowhere"),
        (["--heads", "0.1", "--scale", "2", "--away", "de", "--prompt", "Hi"], "for --steer"),
        (["--heads", "0.1", "--scale", "2", "--data", "a", "--data", "b"], "one file"),
        (["--steer", "de", "--prompt", "Hi"], "--steer needs"),
        (["--steer", "de", "--heads", "0.1", "--scale", "2"], "--factor instead of --scale"),
        (["--steer", "de", "--heads", "0.1"], "no prompts are given"),
        (["--steer", "qqq", "--heads", "0.1", "--prompt", "Hi"], "qqq"),
        (["--steer", "de", "--heads", "0.1", "--factor", "1", "--prompt", "Hi"], "1 is the model"),
        (["--steer", "de", "--heads", "0.1", "--factor", "inf", "--prompt", "Hi"], "finite"),
        (["--steer", "de", "--heads", "0.1", "--away", "en", "--prompt", "Hi"], "which language"),
        (["--steer", "de", "--steer", "en", "--heads", "0.1", "--prompt", "Hi"], "one language"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, place: Path, tmp_path: Path, command: Command
) -> None:
    told = command("use", "adapt", "--model", place / "model", *arguments, "--out", tmp_path / "o")
    assert (told.code, told.out) == (2, "")
    assert said in told.err and told.err.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_languages_without_heads_and_mixed_prompts_are_refused(place: Path, tmp_path: Path) -> None:
    lm = load(str(place / "model"))
    with pytest.raises(InputError, match="holds heads of de, en"):
        steering_heads(Steer(languages=("tr",), heads=str(place / "found")), lm)
    with pytest.raises(InputError, match="no heads of Turkish"):
        steering_heads(Steer(languages=("de",), heads=str(place / "found"), away="tr"), lm)
    language_run(tmp_path, lm.geometry, {"de": "", "en": "0.1"})
    with pytest.raises(InputError, match="no head is specific to German"):
        steering_heads(Steer(languages=("de",), heads=str(tmp_path)), lm)
