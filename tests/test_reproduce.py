"""A paper's experiments are planned, run once, told, resumed, and put beside what was published."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextvars import Context
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

import process_helpers
import reproduce_script
import small_paper
from conftest import json_of
from headscope.cli.app import main
from headscope.data.chat import EndpointError
from headscope.errors import InputError, MissingExtra, ModelError
from headscope.heads import Geometry
from headscope.papers import command as listings
from headscope.papers import plan as plans
from headscope.papers import registry
from headscope.papers import reproduce as running
from headscope.papers.command import listing
from headscope.papers.paper import Experiment, PaperData, Setting, Steering, Step
from headscope.papers.plan import make_plan
from headscope.papers.reproduce import Reproduce, reproduce, reproduce_all
from headscope.shown.blocks import Findings
from headscope.studies.costs.estimate import Work
from headscope.studies.models import ModelChoice, kept_model

GEOMETRY = Geometry.uniform(2, 4)


@pytest.fixture(autouse=True)
def papers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The small paper is the only one there is, and costs a second for each thousand tokens."""
    small_paper.CALLS.clear()
    known = MappingProxyType({"small": "small_paper"})
    for module in (registry, listings, running):
        monkeypatch.setattr(module, "PAPERS", known)
    monkeypatch.setattr(running, "costs_here", lambda lm: (lambda work: work.forward / 1000, None))
    with kept_model():  # loaded once for each test
        yield


def setting(folder: Path, **changes: Any) -> Setting:
    return Setting(ModelChoice(), GEOMETRY, "digest", PaperData(), folder, **changes)


def only(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The small paper with these changes."""
    monkeypatch.setattr(small_paper, "PAPER", dataclasses.replace(small_paper.PAPER, **changes))


def by_name(result: dict[str, Any]) -> dict[str, Any]:
    return {row["name"]: row for row in result["experiments"]}


def test_steps_are_run_once_and_in_order_and_those_left_out_are_told(tmp_path: Path) -> None:
    result = reproduce(Reproduce("small"), tmp_path / "r")
    assert small_paper.CALLS == ["first", "second", "trained"]
    rows = by_name(result)
    assert {name: row["state"] for name, row in rows.items()} == {
        "table-1": "run",
        "table-2": "part",
        "table-3": "run",
        "table-4": "part",
        "table-5": "missing",
    }
    cells = rows["table-1"]["tables"][0]["rows"][0]["cells"]
    assert [cell["value"] for cell in cells] == [3.0, 6.0]
    assert [cell["difference"] for cell in cells] == [None, None]  # another model than the paper's
    assert rows["table-2"]["why"] == "left to --full: a long one, after the long one"
    assert [cell["why"] for cell in rows["table-2"]["tables"][0]["rows"][0]["cells"]] == [
        None,
        "not run",
        "not run",
    ]
    assert rows["table-4"]["why"] == "numbers.tsv, line 3: is no number; write one"
    assert result["failed"]["behind"] == "it needs broken, which failed"
    assert rows["table-5"]["give"] == "--documents de=FILE"
    totals = result["totals"]
    assert (totals["runs"], totals["run"], totals["not_run"]) == (7, 3, 4)
    assert totals["seconds"] == pytest.approx(0.75) and totals["elements"] == 7
    assert result["answer"]["found"] == "4 experiments tell something"
    assert [claim["by"] for claim in result["answer"]["claims"]] == ["\u22122 of 2"]
    stored = json.loads((tmp_path / "r" / "result.json").read_bytes())
    assert stored["details"]["experiments"] == json.loads(json.dumps(result["experiments"]))
    assert "A small paper" in (tmp_path / "r" / "report.html").read_text("utf-8")


def test_one_folder_fills_up_and_nothing_is_run_twice(tmp_path: Path) -> None:
    first = reproduce(Reproduce("small", only=("figure 2",)), tmp_path / "r")
    assert small_paper.CALLS == ["first", "second"]
    rows = by_name(first)
    assert (
        rows["table-3"]["state"] == "not run" and rows["table-3"]["why"] == "it was not asked for"
    )
    # A step that another experiment has made is no part of one that was not asked for.
    assert rows["table-2"]["state"] == "not run"
    assert rows["table-2"]["why"] == "it was not asked for" and not rows["table-2"]["tables"]
    result = reproduce(Reproduce("small", full=True, only=("table-2",)), tmp_path / "r")
    assert small_paper.CALLS == ["first", "second", "long", "after"]
    assert by_name(result)["table-2"]["state"] == "run"
    assert by_name(result)["table-1"]["state"] == "run"
    assert result["signature"] == first["signature"]
    with pytest.raises(InputError, match="another configuration"):
        reproduce(Reproduce("small", seed=1), tmp_path / "r")


def test_a_finished_step_of_other_settings_is_refused_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r"
    foreign = out / "runs" / "second"
    reproduce(Reproduce("small", only=("table-1",)), out)
    shutil.rmtree(foreign)
    small_paper.SECOND.run(setting(out, seed=5), out / "other", None)
    (out / "other").rename(foreign)
    small_paper.CALLS.clear()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for only in ("table-1", "table-3"):  # what was not asked for is told as well
        assert main(["reproduce", "small", "--out", str(out), "--only", only]) == 2
        (line,) = [one for one in capsys.readouterr().err.splitlines() if "error: " in one]
        assert line.startswith(f"error: {foreign}: holds a run of another configuration")
        assert "seed (5 there, 0 here)" in line
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert small_paper.CALLS == [] and after == before
    shutil.rmtree(foreign)
    reproduce(Reproduce("small", only=("table-1",)), out)
    assert small_paper.CALLS == ["second"]


def test_a_killed_process_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "r"
    process_helpers.killed(reproduce_script, out, "second")
    done = {path.parent.name for path in out.glob("runs/*/DONE.json")}
    assert done == {"first"} and not (out / "DONE.json").exists()
    before = (out / "runs" / "first" / "result.json").stat().st_mtime_ns
    result = reproduce(Reproduce("small", only=("table-1",)), out)
    assert small_paper.CALLS == ["second"]
    assert (out / "runs" / "first" / "result.json").stat().st_mtime_ns == before
    fresh = reproduce(Reproduce("small", only=("table-1",)), tmp_path / "fresh")
    assert [row["tables"] for row in result["experiments"]] == [
        row["tables"] for row in fresh["experiments"]
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("result.json", b'{"value": 4.0}'), ("result.json", b"[]"), ("result.json", None),
     ("DONE.json", b"")],
)  # fmt: skip
def test_a_damaged_result_is_told_and_the_others_stand(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    out = tmp_path / "r"
    whole = by_name(reproduce(Reproduce("small", only=("table-1", "table-3")), out))
    file = out / "runs" / "first" / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    small_paper.CALLS.clear()
    result = reproduce(Reproduce("small", only=("table-1",)), out)
    assert small_paper.CALLS == []
    why = result["failed"]["first"]
    assert file.name in why and f"delete {file.parent} and run the same" in why
    rows = by_name(result)
    assert (rows["table-1"]["state"], rows["table-1"]["why"]) == ("part", why)
    assert rows["table-1"]["coverage"] == {}  # no data would help
    cells = rows["table-1"]["tables"][0]["rows"][0]["cells"]
    assert [(cell["value"], cell["why"]) for cell in cells] == [(None, "not run"), (6.0, None)]
    assert rows["table-3"] == whole["table-3"]
    shutil.rmtree(out / "runs" / "first")
    again = reproduce(Reproduce("small", only=("table-1",)), out)
    assert small_paper.CALLS == ["first"] and again["failed"] == {}
    assert by_name(again)["table-1"]["tables"] == whole["table-1"]["tables"]


def test_a_file_counts_as_what_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.tsv").write_text("some")
    documents = PaperData(documents=("de=a.tsv",)).digests()
    assert set(documents) & set(PaperData(questions=("de=a.tsv",)).digests()) == set()
    one = PaperData(questions=("de=",), pairs=("", "en-de=a.tsv"))
    before = one.digests()
    Path("b.tsv").write_text("another")  # no name is not the folder one is in
    assert one.digests() == before
    Path("a.tsv").write_text("other")
    assert one.digests() != before
    assert PaperData(documents=("de=a.tsv",)).digests() != documents
    os.mkfifo("pipe")  # reading it would wait for ever
    with pytest.raises(InputError, match="pipe is a pipe or a device"):
        PaperData(pairs=("en-de=pipe",)).digests()


def test_flags_that_cannot_be_planned_bind_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(setting: Setting) -> tuple[Step, ...]:
        raise InputError("the language code is empty; give one like en or de")

    experiment = Experiment("table-9", ("Table 9",), "t", refused, lambda _: Findings())
    only(monkeypatch, experiments=(experiment,))
    for run, name in ((reproduce, "small"), (reproduce_all, "all")):
        with pytest.raises(InputError, match="language code is empty"):
            run(Reproduce(name), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_what_a_user_decides_is_told_signed_and_refused_where_nothing_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = Steering(limit=4, measure=("text", "loss"), chat=False)
    only(monkeypatch, steered=frozenset(("limit",)))
    with pytest.raises(InputError, match=r"small is not steered by --measure; it takes --limit$"):
        reproduce(Reproduce("small", steering=decided), tmp_path / "r")
    assert not (tmp_path / "r").exists()
    only(monkeypatch, steered=frozenset(("limit", "measure", "chat")))
    usual = reproduce(Reproduce("small"), tmp_path / "usual")
    data = PaperData(others=("a model",))
    asked = Reproduce("small", data=data, seed=3, only=("table-3",), steering=decided)
    steered = reproduce(asked, tmp_path / "r")
    assert steered["signature"] != usual["signature"]
    assert steered["command_line"] == (
        f"{usual['command_line']} --others 'a model' --limit 4 --measure text --measure loss "
        "--no-chat --only table-3 --seed 3"
    )
    assert "limit 4" in steered["answer"]["sure"] and "limit" not in usual["answer"]["sure"]


def test_options_of_other_commands_are_told_apart() -> None:
    ours = InputError("give more with --documents de=FILE")
    assert running._said(ours) == str(ours)
    foreign = InputError("--data has no 'source'; name --source-column")
    assert "reproduce has no --data or --source-column" in running._said(foreign)


def test_results_of_the_package_stand_for_trainings_of_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = ModelChoice().load().digest
    kept = {"signature": "headscope-0|x|y", "model": {"digest": digest}, "value": 12.0, "note": "n"}
    kept |= {"seconds": 2.0, "seconds_of_the_first_run": 99.0}
    package = tmp_path / "package"
    (package / "data" / "stored").mkdir(parents=True)
    file = package / "data" / "stored" / "small-trained.json"
    file.write_text(json.dumps(kept))
    monkeypatch.setattr(plans, "files", lambda name: package)
    result = reproduce(Reproduce("small", only=("table-3",)), tmp_path / "r")
    row = by_name(result)["table-3"]
    for retrain, finished in ((False, 1), (True, 0)):
        rows = listing(Reproduce("small", only=("table-3",), retrain=retrain))
        assert [row["finished"] for row in rows] == [finished]
    assert small_paper.CALLS == [] and row["state"] == "stored"
    assert row["tables"][0]["rows"][0]["cells"][0]["value"] == 12.0
    assert (row["runs"][0]["signature"], row["runs"][0]["note"]) == ("headscope-0|x|y", "n")
    assert row["runs"][0]["seconds"] == 99.0 and result["totals"]["seconds"] == 0
    # asked to, the training is repeated, and then it is what is told
    again = reproduce(Reproduce("small", only=("table-3",), retrain=True), tmp_path / "r")
    row = by_name(again)["table-3"]
    assert small_paper.CALLS == ["trained"] and row["state"] == "run"
    assert row["tables"][0]["rows"][0]["cells"][0]["value"] == 11.0
    # asked to, and stopped before it is, nothing stands for it
    stopped = setting(tmp_path / "stopped")
    stopped.kept("trained").parent.mkdir(parents=True)
    stopped.kept("trained").write_text(json.dumps(kept))
    assert stopped.result("trained") == kept
    assert setting(tmp_path / "stopped", retrain=True).result("trained") is None
    # of other weights it says nothing
    file.write_text(json.dumps(kept | {"model": {"digest": "of other weights"}}))
    other = reproduce(Reproduce("small", only=("table-3",)), tmp_path / "other")
    assert by_name(other)["table-3"]["state"] == "run"


def test_the_plan_adds_up_work_once_for_each_step(tmp_path: Path) -> None:
    experiments = small_paper.PAPER.experiments
    plan = make_plan(experiments, setting(tmp_path), *[lambda work: work.forward] * 2)
    assert plan.memory == max(one.step.work.forward for one in plan.due)
    states = {one.step.name: one.state for one in plan.steps}
    assert states == {
        "first": "due",
        "second": "due",
        "long": "left out",
        "after": "blocked",
        "trained": "due",
        "broken": "due",
        "behind": "due",
    }
    assert plan.seconds() == 1000 + 2000 + 3 * 1000
    assert plan.seconds(("left out", "blocked")) == 9000 + 1000
    assert make_plan(experiments, setting(tmp_path)).seconds() is None
    full = make_plan(experiments, setting(tmp_path, full=True))
    assert {one.state for one in full.steps} == {"due"}


def test_mistakes_of_a_paper_are_no_input_errors(tmp_path: Path) -> None:
    def experiment(*steps: Step) -> Experiment:
        return small_paper.experiment("e", ("Table 1",), *steps)

    with pytest.raises(ValueError, match="needs first, which no step before it makes"):
        make_plan([experiment(small_paper.SECOND)], setting(tmp_path))
    other = Step("first", "another", small_paper.fails, Work())
    with pytest.raises(ValueError, match="two different steps are 'first'"):
        make_plan([experiment(small_paper.FIRST), experiment(other)], setting(tmp_path))


@pytest.mark.parametrize("name", ["table-1", "Table 1", "figure_2", "Fig. 2", "fig-2", "FIGURE 2"])
def test_tables_and_figures_name_their_experiment(name: str) -> None:
    found = registry.experiments_named(small_paper.PAPER, [name])
    assert [one.name for one in found] == ["table-1"]


def test_unknown_names_are_told_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "smal"]) == 2
    assert "'smal' is no paper, did you mean small?" in capsys.readouterr().err
    assert main(["reproduce", "small", "--only", "table-11"]) == 2
    assert "no experiment 'table-11', did you mean table-1?" in capsys.readouterr().err
    assert main(["reproduce", "all", "--only", "table-1"]) == 2
    assert "name the paper instead of all" in capsys.readouterr().err


def test_the_command_says_how_long_runs_the_rest_and_ends_with_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "r")
    assert main(["reproduce", "small", "--out", out, "--json"]) == 2
    said = capsys.readouterr()
    result = json_of(said.out)
    assert result["run"] == out and result["totals"]["run"] == 3
    lines = said.err.splitlines()
    assert lines[0].startswith("small: 7 runs, 0 finished or stored; 5 to be made, about 6 s")
    assert lines[0].endswith("; 2 left to --full, about 10 s")
    assert lines[-1].startswith("error: 2 of the runs could not be made (broken: numbers.tsv, line")
    assert main(["reproduce", "small", "--out", out, "--only", "table-1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 experiments tell something")
    assert "Table 1, Figure 2" in shown and f"report: {out}" in shown


def test_the_list_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # so that no cell is wrapped
    assert main(["reproduce", "small", "--list", "--json"]) == 0
    rows = {row["name"]: row for row in json_of(capsys.readouterr().out)["experiments"]}
    assert small_paper.CALLS == []
    assert {name: row["coverage"] for name, row in rows.items()} == {
        "table-1": {"Table 1": "measured", "Figure 2": "measured"},
        "table-2": {"Table 2": "--full"},
        "table-3": {"Table 3": "measured"},
        "table-4": {"Table 4": "measured"},
        "table-5": {"Table 5": "needs DATA", "Figure 28": "needs DATA"},
    }
    (one,) = rows["table-5"]["missing"]
    assert one["give"] == "--documents de=FILE"
    reproduce(Reproduce("small", only=("table-1",)), tmp_path / "r")
    rows = {row["name"]: row for row in listing(Reproduce("small"), tmp_path / "r")}
    assert [rows[name]["finished"] for name in ("table-1", "table-2")] == [2, 1]
    full = listing(Reproduce("small", full=True, only=("table-2",)))
    assert full[0]["coverage"] == {"Table 2": "measured"}
    assert main(["reproduce", "all", "--list"]) == 0
    assert "needs DATA: Table 5, Figure 28" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ModelError("there is no such model"), "needs MODEL"),
        (EndpointError("the endpoint did not judge an output: status 401"), "needs ENDPOINT"),
        (MissingExtra("reading it needs a package"), None),
        (InputError("numbers.tsv: is empty"), "needs DATA"),
    ],
)
def test_what_failed_is_told_of_the_elements_that_need_it_by_what_it_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: InputError, word: str | None
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise error

    broken = dataclasses.replace(small_paper.BROKEN, run=fails)
    steps = (small_paper.FIRST, broken, small_paper.BEHIND)
    own = {"Table 4": steps[:1], "Table 6": steps[1:2], "Table 7": steps[2:]}
    one = Experiment(
        "table-4",
        tuple(own),
        "about it",
        lambda _: steps,
        small_paper.show("first"),
        lambda setting, element, steps: own[element],
    )
    only(monkeypatch, experiments=(one,))
    rows = by_name(reproduce(Reproduce("small"), tmp_path / "r"))
    failed = {} if word is None else {"Table 6": word, "Table 7": word}
    assert rows["table-4"]["coverage"] == {"Table 4": "measured"} | failed


def test_another_experiment_measures_no_table_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tuple(dataclasses.replace(one, apart=True) for one in small_paper.PAPER.experiments[:1])
    only(monkeypatch, experiments=own)
    (row,) = listing(Reproduce("small"))
    assert row["coverage"] == {"Table 1": "needs MODEL", "Figure 2": "needs MODEL"}
    assert row["missing"][0]["give"] == "apart from the paper: --only table-1"
    rows = by_name(reproduce(Reproduce("small", only=("table-1",)), tmp_path / "r"))
    assert rows["table-1"]["state"] == "run" and rows["table-1"]["coverage"] == row["coverage"]


def test_all_papers_have_an_index(tmp_path: Path) -> None:
    result = reproduce_all(Reproduce("all"), tmp_path / "all")
    assert [one["name"] for one in result["papers"]] == ["small"]
    assert (tmp_path / "all" / result["papers"][0]["report"]).is_file()
    assert result["totals"]["run"] == 3
    assert "small: broken" in result["failed"]


def test_a_kept_model_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    def load(name: str, *_: object, **__: object) -> object:
        loads.append(name)
        return SimpleNamespace(files_are_there=lambda: True)

    monkeypatch.setattr(sys.modules["headscope.lm"], "load", load)

    def in_a_row() -> None:
        with kept_model():
            one = ModelChoice("a").load()
            assert ModelChoice("a").load() is one
            with kept_model():
                assert ModelChoice("a").load() is one
            ModelChoice("b").load()  # which lets go of the first
            ModelChoice("a").load()
        ModelChoice("a").load()  # nothing is kept any more

    Context().run(in_a_row)
    assert loads == ["a", "b", "a", "a"]
