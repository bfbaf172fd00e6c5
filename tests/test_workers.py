"""Whatever the number of workers, and whenever one dies, a run ends with the same bytes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("datatrove", reason="datatrove, the engine of workers, is not installed")

import fake_slurm
import headscope
import process_helpers
from conftest import Said, json_of
from executor_steps import DyingWork
from headscope.errors import InputError
from headscope.runs import Elsewhere, Share, open_run, sharing
from headscope.studies import workers
from language_helpers import data_of, write_documents
from lm_helpers import saved, wrapped
from verify_helpers import write_data

#: Where runs may differ: times and places, what they went through, and their parts.
PASSING = {"DONE.json", "provenance.json", "commands.json", ".lock"}
#: Keys of JSON that tell of the moment.
MOMENT = {"provenance", "run", "seconds", "seconds_a_step"}
#: Commands on a tiny model, so that each has several units, by how many parts they are kept in.
COMMANDS = {
    "find translation-score": ("pairs", "two", "--batch-tokens", 200),
    "find lahis": ("texts", "--quantile", 0.5, "--batch-tokens", 60),
    "find lahis moving": ("texts", "--quantile", 0.5, "--update-gate"),
    "find first-order": ("texts", "--batch-tokens", 60),
    "find mask": ("task", "--steps", 3, "--batch", 2, "--learning-rate", 30),
    "verify removal": ("pairs", "two", "heads", "--measure", "text", "--measure", "loss",
                       "--draws", 12, "--max-new-tokens", 2),
    "verify heads": ("pairs", "two"),
    "verify perplexity": ("texts", "lahis", "--k", 1, "--draws", 2, "--allow-overlap"),
    "verify one-by-one": ("pairs", "heads", "--order", "alone", "--max-new-tokens", 2,
                          "--batch-tokens", 200),
}  # fmt: skip


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, ...]]:
    """What stands for a word of `COMMANDS`: the model, and data."""
    folder = tmp_path_factory.mktemp("given")
    rows = [{"input": f"{at}, {at + 3}", "output": f"{at + 3}"} for at in range(10, 30)]
    (folder / "next.json").write_text(json.dumps(rows), "utf-8")
    return {
        "model": ("--model", saved(folder / "model")),
        "texts": tuple(data_of(write_documents(folder))),
        "pairs": ("--pair", "en-de", "--data", f"en-de={write_data(folder / 'a.tsv', 12)}"),
        "two": ("--pair", "de-en", "--data",
                f"de-en={write_data(folder / 'b.tsv', 8, reverse=True)}"),
        "task": ("--task", folder / "next.json", "--held-out", 4,
                 "--instruction", "Add three to {input}:"),
        "heads": ("--heads", "0.1,1.2"),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers need not import torch again; what they are given is pickled all the same."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("multiprocessing.get_context", lambda way: process_helpers.FORKS)


@pytest.fixture
def run(
    command: Callable[..., Said], given: dict[str, tuple[object, ...]], tmp_path: Path
) -> Callable[..., Said]:
    """Run a command of `COMMANDS` into a folder of this name, with more options."""

    def call(name: str, out: str, *more: object) -> Said:
        words: list[object] = []
        for word in ("model", *COMMANDS[name]):
            if word == "lahis":
                if not (tmp_path / "lahis").exists():
                    assert call("find lahis", "lahis").code == 0
                words += ["--heads", tmp_path / "lahis"]
            else:
                words += given.get(str(word), (word,))
        return command(*name.split()[:2], *words, *more, "--json", "--out", tmp_path / out)

    return call


def content(folder: Path) -> dict[str, Any]:
    """All final files of a run, JSON without what tells of the moment."""

    def steady(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: steady(each) for name, each in value.items() if name not in MOMENT}
        return [steady(each) for each in value] if isinstance(value, list) else value

    files = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if file.is_file() and name.parts[0] not in {"parts", "logs"} and file.name not in PASSING:
            data = file.read_bytes()
            if file.suffix == ".md":
                data = re.sub(rb"(?m)^\| (started|command_line) \|.*$", b"", data)
            files[str(name)] = steady(json.loads(data)) if file.suffix == ".json" else data
    return files


@pytest.mark.parametrize("name", COMMANDS)
def test_the_number_of_workers_changes_no_byte(
    run: Callable[..., Said], tmp_path: Path, name: str
) -> None:
    assert (one := run(name, "1")).code == 0, one.err
    whole = content(tmp_path / "1")
    assert len(whole) > 2 and not (tmp_path / "1" / "logs").exists()
    said = run(name, "2", "--workers", 2)
    assert said.code == 0, said.err
    assert content(tmp_path / "2") == whole
    alone = name == "find mask"
    assert ("one worker makes it" in said.err) == alone
    assert alone or len(list((tmp_path / "2" / "logs" / "logs").iterdir())) == 2
    # Begun by one, which did not come to its end, and finished by three.
    shutil.copytree(tmp_path / "1", tmp_path / "begun")
    (tmp_path / "begun" / "DONE.json").unlink()
    parts = [
        file
        for file in (tmp_path / "begun" / "parts").rglob("*")
        if file.is_file() and file.stem not in ("alignment", "baseline", "reference-links")
    ]
    for file in parts[::2]:
        if file.suffix == ".jsonl":  # half of its records, and half of a line
            lines = file.read_bytes().splitlines(keepends=True)
            half = (len(lines) + 1) // 2
            file.write_bytes(b"".join(lines[:half])[:-5])
        else:
            file.unlink()
    assert run(name, "begun", "--workers", 3).code == 0
    assert content(tmp_path / "begun") == whole


@pytest.mark.parametrize("name", ["verify removal", "find lahis", "verify one-by-one"])
def test_one_of_two_workers_may_die_half_way(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert run(name, "whole").code == 0
    monkeypatch.setattr(workers, "_Work", DyingWork)
    died = run(name, "run", "--workers", 2)
    assert died.code == 2 and "a worker process was killed (exit code -9)" in died.err
    assert not (tmp_path / "run" / "DONE.json").exists()
    monkeypatch.undo()
    assert run(name, "run", "--workers", 1).code == 0
    assert content(tmp_path / "run") == content(tmp_path / "whole")


def test_greedy_outputs_are_those_of_one_worker(
    run: Callable[..., Said], tmp_path: Path, given: dict[str, Any], command: Callable[..., Said]
) -> None:
    # Their links are not: eflomal draws other ones in every run.
    pytest.importorskip("eflomal", reason="eflomal is not installed")
    data = ("--pair", "en-de", "--data", write_data(tmp_path / "many.tsv", 300))
    greedy = ("--decode", "greedy", "--max-new-tokens", 1, "--keep-peaks")
    made = []
    for number in (1, 2):
        words = (*given["model"], *data, *greedy, "--workers", number)
        said = command("find", "translation-score", *words, "--out", tmp_path / str(number))
        assert said.code == 0, said.err
        shards = (tmp_path / str(number) / "parts" / "en-de" / "outputs").iterdir()
        made.append({shard.name: shard.read_bytes() for shard in shards})
    assert len(made[0]) == 2 and made[0] == made[1]


def test_workers_share_what_is_left_and_write_to_files_of_their_own(
    run: Callable[..., Said], tmp_path: Path
) -> None:
    assert run("verify heads", "run", "--workers", 2).code == 0
    parts = tmp_path / "run" / "parts"
    kept = [
        [json.loads(line)["key"] for line in file.read_text("utf-8").splitlines()]
        for file in sorted(parts.glob("*losses*"))
    ]
    assert len(kept) == 2 and not set(kept[0]) & set(kept[1])
    assert abs(len(kept[0]) - len(kept[1])) <= 1 and not (parts / "workers").exists()


def test_slurm_works_on_each_phase_and_the_same_command_goes_on(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = fake_slurm.install(tmp_path, monkeypatch)
    (tmp_path / "options.toml").write_text('partition = "cpu"\ntime = "1:00:00"\n')
    slurm = ("--executor", "slurm", "--executor-options", tmp_path / "options.toml")
    name = "verify one-by-one"
    (kept / "busy").touch()
    first = json_of(run(name, "run", *slurm, "--workers", 2).out)
    assert (first["job"], first["submitted"], first["workers"]) == ("4242", True, 2)
    assert json_of(run(name, "run", *slurm, "--workers", 2).out)["submitted"] is False
    assert not (tmp_path / "run" / "DONE.json").exists()
    (kept / "busy").unlink()
    units = first["units_left"]
    second = json_of(run(name, "run", *slurm, "--workers", 1).out)  # each head alone
    third = json_of(run(name, "run", *slurm, "--workers", 1).out)  # the walk itself
    assert [second["units_left"], third["job"]] == [units, "4242"], (kept / "said").read_text()
    assert run(name, "run", *slurm).code == 0 and run(name, "here").code == 0
    assert content(tmp_path / "run") == content(tmp_path / "here")


def test_a_job_is_told_in_words(
    run: Callable[..., Said], command: Callable[..., Said], tmp_path: Path,
    given: dict[str, tuple[object, ...]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kept = fake_slurm.install(tmp_path, monkeypatch)
    (kept / "busy").touch()
    (tmp_path / "options.toml").write_text('partition = "cpu"\ntime = "1:00:00"\n')
    said = command(
        "find", "first-order", *given["model"], *given["texts"], "--executor", "slurm",
        "--executor-options", tmp_path / "options.toml", "--out", tmp_path / "run",
    )  # fmt: skip
    assert said.code == 0 and "Job 4242 was submitted: 2 parts of the run not" in said.out
    assert "Run the same command again when the job has ended." in said.out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--workers", 2, "--device-map", "auto"), "--device-map spreads the model over"),
        (("--executor", "slurm"), "the Slurm executor needs partition"),
        (("--workers", 0), "workers"),
    ],
)
def test_what_workers_cannot_do_is_one_sentence(
    run: Callable[..., Said], more: tuple[object, ...], told: str
) -> None:
    said = run("find first-order", "run", *more)
    assert said.code == 2 and told in said.err and "Traceback" not in said.err


def test_a_model_in_memory_has_one_worker(tmp_path: Path, given: dict[str, Any]) -> None:
    texts = {"en": ["a dog sees a cat", "one cat"], "de": ["ein Hund", "eine Katze"]}
    with pytest.raises(InputError, match="is held in memory, where other processes cannot"):
        headscope.find.first_order(wrapped("llama"), texts, workers=2, out=tmp_path / "run")
    lm = headscope.load(given["model"][1])
    found = headscope.find.first_order(lm, texts, workers=2, out=tmp_path / "run", batch_tokens=9)
    alone = headscope.find.first_order(lm, texts, out=tmp_path / "alone", batch_tokens=9)
    assert found.scored == alone.scored and found.signature == alone.signature
    # Loaded otherwise than a worker loads it by its name.
    half = headscope.load(given["model"][1], dtype="bfloat16")
    with pytest.raises(InputError, match=r"comes to another run \(computed_in .*give dtype"):
        headscope.find.first_order(half, texts, workers=2, out=tmp_path / "half", batch_tokens=9)


# ---- the run itself ------------------------------------------------------------------------------
def test_a_worker_computes_its_share_and_writes_nothing_else(tmp_path: Path) -> None:
    config = {"a": 1}
    with open_run(tmp_path, "find x", config, {}) as main:
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        share = Share(3, frozenset({("p", "b"), ("q", "b")}))
        with sharing(tmp_path, share), open_run(tmp_path, "find x", config, {}) as worker:
            worker.write_json("x.json", 1)
            with (
                pytest.raises(Elsewhere),
                worker.units("p", lambda: ["a", "b", "c"], lambda: None) as mine,
            ):
                assert mine == ["b"]
                worker.append_part("p", "b", 2)
            with worker.units("p", lambda: [], lambda: None) as mine:
                assert mine == []  # nothing is left of it: the work goes on
            with pytest.raises(Elsewhere):
                worker.finish({})
            with sharing(tmp_path, share), pytest.raises(InputError, match=r"another run \(a \(1"):
                open_run(tmp_path, "find x", {"a": 2}, {})
        main.append_part("p", "a", 1)
        assert main.read_part("p") == {"a": 1, "b": 2}
        (tmp_path / "parts" / "p.worker-3.jsonl").unlink()
        assert {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_units_of_items_that_are_apart_are_divided_together(tmp_path: Path) -> None:
    asked: list[Any] = []
    with open_run(tmp_path, "find x", {}, {}) as run:

        def divide(units: Any, watch: Callable[[], None]) -> None:
            asked.append(list(units))
            for part, name in units[:-1]:  # a worker that leaves something undone
                run.append_part(part, name, 0)
            watch()

        def work(part: str) -> list[str]:
            def left() -> list[str]:
                return [name for name in "abc" if name not in run.read_part(part)]

            with run.units(part, left, lambda: None, shares.append, ord) as mine:
                for name in mine:
                    run.append_part(part, name, 1)
            return sorted(run.read_part(part))

        shares: list[float] = []
        run.divide = divide
        assert run.each(["p", "q"], work, shares.append) == [list("abc"), list("abc")]
        # Once for both, costly ones first, and what was left undone is done here.
        assert asked[0] == [(part, name) for part in "pq" for name in "cba"]
        assert asked[1:] == [] or asked[1:] == [[("q", "a")]]
        assert run.read_part("q")["c"] == 0 and shares[0] == 0.0


def test_a_model_on_several_devices_stays_where_it_is() -> None:
    spread: Any = SimpleNamespace(
        device=torch.device("meta"), quantised=None, model=SimpleNamespace(hf_device_map={})
    )
    with workers._set_aside(spread):  # such a model cannot be moved
        pass
