"""Numbers that are kept beside the runs, and inside a unit that a kill interrupts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope
import process_helpers
from command_runs import CommandRun
from conftest import Said, json_of
from headscope.errors import InputError
from headscope.evidence import runner
from headscope.evidence.pace import Pacing
from headscope.evidence.rows import Condition
from headscope.evidence.runner import alone
from headscope.executors import Execution
from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.report.terminal import text_of
from headscope.results.common import PlannedWork
from headscope.runs import KeptNumbers
from headscope.runs.kept import place_of_kept
from headscope.studies.pairs import PairsChoice
from headscope.studies.study import shown_of
from headscope.studies.verify.removal import VerifyRemoval, comparison

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3)
    ),
    max_leaves=6,
)
#: Commands whose conditions are kept, each in its way.
COMPARING = (
    "verify removal", "verify perplexity", "verify layers", "verify summaries",
    "verify off-target", "verify transfer", "verify mask", "verify families", "verify circuit",
)  # fmt: skip
PAIRS = PairsChoice(pair=("en-de",), limit=6)
SELECTED, OTHERS = "5.1,4.3", "5.3,4.2"


def settings(heads: str = SELECTED, **more: Any) -> VerifyRemoval:
    given = {"measure": ("loss",), "batch_tokens": 600, "pairs": PAIRS, **more}
    return VerifyRemoval(heads=heads, **given)


@given(about=JSON, of=JSON, numbers=JSON)
def test_what_is_kept_comes_back_for_the_same_alone(
    about: Any, of: Any, numbers: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    beside = KeptNumbers(tmp_path_factory.mktemp("kept"), "model", {"about": about})
    key = beside.digest("part", of)
    assert beside.read(key) is None
    beside.write(key, [numbers])
    assert beside.read(key) == [numbers]
    others = {
        beside.digest("other", of),
        beside.digest("part", [of]),
        KeptNumbers(beside.folder, "model", {"about": [about]}).digest("part", of),
    }
    assert key not in others and all(beside.read(other) is None for other in others)


def change(text: str) -> str:
    header, _, numbers = text.partition("\n")
    return f"{header}\n{numbers.replace('1', '2', 1)}"


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: "[" * 10**5, change, str.upper]
)
def test_a_damaged_entry_is_computed_again(
    damage: Callable[[str], str], tmp_path: Path, loaded: None
) -> None:
    kept = tmp_path / "kept"
    config = settings(draws=1, loss_draws=1, kept=str(kept))
    whole = comparison.run(config, tmp_path / "whole")
    entries = {file: file.read_text("utf-8") for file in kept.rglob("*.jsonl")}
    for file, text in entries.items():
        file.write_text(damage(text), "utf-8")
    again = comparison.run(config, tmp_path / "again")
    assert again.evidence == whole.evidence
    assert {file: file.read_text("utf-8") for file in kept.rglob("*.jsonl")} == entries


@pytest.mark.parametrize("measure", ["loss", "text"])
def test_other_heads_pay_only_for_themselves(
    measure: str, tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "kept")
    how = {"measure": (measure,), "max_new_tokens": 4}
    first = comparison.run(settings(kept=kept, **how), tmp_path / "first")
    alone = comparison.run(settings(OTHERS, kept="none", **how), tmp_path / "alone")
    computed = 0

    def write(self: KeptNumbers, key: str, numbers: Any) -> None:
        nonlocal computed
        computed += len(numbers)

    monkeypatch.setattr(KeptNumbers, "write", write)
    beside = comparison.run(settings(OTHERS, kept=kept, **how), tmp_path / "beside")
    assert beside.evidence == alone.evidence
    files = ["statistics.safetensors", *(["outputs.jsonl"] if measure == "text" else [])]
    for name in files:
        files_of = [(tmp_path / run / name).read_bytes() for run in ("beside", "alone")]
        assert files_of[0] == files_of[1]
    # The selected heads; and draws beside which those are drawn that were selected before.
    size = 6 if measure == "text" else 1
    assert size <= computed < len(first.evidence.conditions) * size / 8


def test_every_command_takes_what_another_run_has_kept(
    command: Callable[..., Said],
    command_runs: list[CommandRun],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = tmp_path / "kept"
    runs = [run for run in command_runs if run.command in COMPARING]
    assert {run.command for run in runs} == {*COMPARING}

    def again(run: CommandRun, number: int) -> Any:
        out = tmp_path / f"{runs.index(run)} {number}"
        place = ("--out", out, "--kept", kept, "--json")
        said = command(*run.command.split(), *run.arguments, *place)
        assert said.code == 0, said.err
        result = json.loads(said.out)
        return {name: result[name] for name in ("levels", "tests")}

    def refused(self: KeptNumbers, key: str, numbers: Any) -> None:
        raise AssertionError("was computed twice")

    for run in runs:
        with contextlib.chdir(run.folder.parents[1]):
            before = len([*kept.rglob("*.jsonl")])
            first = again(run, 1)
            assert len([*kept.rglob("*.jsonl")]) > before or run.command == "verify layers", run
            with monkeypatch.context() as patched:
                patched.setattr(KeptNumbers, "write", refused)
                assert again(run, 2) == first


def test_a_model_with_something_on_it_is_another(pocket: LanguageModel) -> None:
    assert alone(pocket, len) is len
    with pocket.gated(HeadSet.parse("5.1", pocket.geometry).removed()):
        assert alone(pocket, len) is None
    assert alone(pocket, len) is len


def test_kept_in_no_folder(tmp_path: Path, loaded: None) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"--kept .*file"):
        comparison.run(settings(draws=1, kept=str(tmp_path / "file")), tmp_path / "run")
    comparison.run(settings(draws=1, loss_draws=1, kept="none"), tmp_path / "run")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("reports", [2, 5])
def test_a_kill_inside_a_unit_loses_a_batch(reports: int, tmp_path: Path, loaded: None) -> None:
    config = settings(draws=2, loss_draws=2, batch_tokens=60)
    whole = comparison.run(config, tmp_path / "whole")
    out = tmp_path / "killed"
    process_helpers.killed_at(
        reports,
        process_helpers.run_of,
        "verify removal",
        config,
        out,
        titles=("reading",),
        changes={"headscope.evidence.runner.KEPT_EVERY": 0.0},
    )
    begun = (out / "parts" / "reference-losses, begun.jsonl").read_text("utf-8")
    assert begun.count("\n") >= reports - 1
    assert comparison.run(config, out).evidence == whole.evidence
    files = [(tmp_path / run / "statistics.safetensors") for run in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_is_there_of_a_unit_is_not_computed_again(
    tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.lm import shared_losses

    config = settings(draws=2, loss_draws=2, batch_tokens=60)
    monkeypatch.setattr(runner, "KEPT_EVERY", 0.0)
    batches = 0
    bucket = shared_losses._Passes._bucket

    def counted(self: Any, *given: Any) -> Any:
        nonlocal batches
        batches += 1
        return bucket(self, *given)

    monkeypatch.setattr(shared_losses._Passes, "_bucket", counted)
    comparison.run(config, tmp_path / "run")
    of_all, batches = batches, 0
    for name in ("DONE.json", "parts/reference-losses.jsonl"):
        (tmp_path / "run" / name).unlink()
    comparison.run(config, tmp_path / "run")
    assert batches < of_all / 4  # those by which a model is tried are left


def test_minutes_end_with_what_there_is(tmp_path: Path, loaded: None) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match="minutes are over"):
        comparison.run(settings(minutes=0.0), out)
    assert not (out / "DONE.json").exists()
    reached = 0

    def stop(title: str, done: int, total: int) -> None:
        nonlocal reached
        reached += title == "draws until decided, at most"

    whole = comparison.run(settings(), out, stop)
    assert reached and (out / "DONE.json").exists() and not whole.pending


def test_a_plan_tells_the_time_and_the_run_goes_on(
    tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.evidence.pace.ENOUGH", 0.0)
    plan: Any = comparison.run(settings(plan=True), tmp_path / "run")
    assert isinstance(plan, PlannedWork)
    (part,) = plan.plan
    assert part.draws == (30, 199) and part.conditions == (62, 400)
    assert 0 < part.seconds[0] < part.seconds[1]
    assert part.words in text_of(shown_of(comparison.study, plan, tmp_path / "run"), "run")
    said: list[str] = []
    whole = comparison.run(settings(), tmp_path / "run", None, said.append)
    assert len(said) == 1
    assert whole.evidence == comparison.run(settings(), tmp_path / "whole").evidence


def test_the_time_told_is_that_of_whole_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of a condition takes most of it, and the first condition more once."""
    now, said = [0.0], list[str]()
    monkeypatch.setattr("headscope.evidence.pace.time.monotonic", lambda: now[0])
    selected = Condition("selected", k=1, gate=0.0, heads=("0.4",))
    drawn = [replace(selected, kind="random", draw=draw, heads=(f"0.{draw}",)) for draw in range(4)]
    pacing = Pacing([Condition(), selected, *drawn], None, "9 sentences", said.append)
    pacing.measuring(pacing.conditions)
    pacing.begin("reading", 0, 6)
    for at in range(12):
        now[0] += (2.0 if at % 4 else 14.0) + (9.0 if at == 0 else 0.0)
        pacing.reached((at + 1) / 4)
        assert len(said) == (at >= 7)
    assert pacing.told["reading"].seconds == (120.0, 120.0)
    assert pacing.seconds == 20.0


def test_the_cache_lists_and_prunes(
    command: Callable[..., Said], tmp_path: Path, loaded: None
) -> None:
    kept = tmp_path / "kept"
    comparison.run(settings(draws=2, loss_draws=2, kept=str(kept)), tmp_path / "run")
    files = [*kept.rglob("*.jsonl")]
    size = sum(file.stat().st_size for file in files)
    old, damaged, *rest = files

    def listed(*more: object) -> Any:
        return json_of(command("cache", "--kept", kept, *more, "--json").out)

    assert listed()["numbers"] == {"pocket": size}
    os.utime(old, (0, 0))
    damaged.write_text("{", "utf-8")
    assert listed()["numbers"]["damaged"] == 1
    gone = old.stat().st_size + 1
    pruned = listed("--prune", 30)
    left = sum(file.stat().st_size for file in rest)
    assert (pruned["numbers"], pruned["pruned"]) == ({"pocket": left}, gone)
    assert sorted(kept.rglob("*.jsonl")) == sorted(rest)


def test_minutes_are_kept_by_one_process(tmp_path: Path, loaded: None) -> None:
    config = settings(minutes=5.0, execution=Execution(workers=2))
    with pytest.raises(InputError, match=r"--minutes .*--workers"):
        comparison.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_that_changes_meanwhile_leaves_nothing_to_others(tmp_path: Path) -> None:
    lm = headscope.load("pocket", device="cpu")
    kept, changed = tmp_path / "kept", 0

    def change(title: str, done: int, total: int) -> None:
        nonlocal changed
        if title == "reading references" and done == total:
            changed += 1
            next(lm.model.parameters()).data[0, 0] += 1.0

    asked = {"heads": SELECTED, "pair": "en-de", "limit": 4, "measure": "loss", "draws": 1}
    with pytest.raises(InputError, match="was changed while"):
        headscope.verify.removal(
            lm, **asked, kept=str(kept), out=tmp_path / "changed", progress=change
        )
    assert changed and not [*kept.rglob("*.jsonl")]
    headscope.verify.removal(lm, **asked, kept=str(kept), out=tmp_path / "whole", progress=False)
    assert [*kept.rglob("*.jsonl")]


def test_a_folder_is_made_when_something_is_kept(tmp_path: Path) -> None:
    assert place_of_kept(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert not [*tmp_path.iterdir()]
