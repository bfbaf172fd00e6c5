"""Run folders: what the hash covers, resuming, locking, damage."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.runs import (
    Result,
    Run,
    Signature,
    carry_out,
    collect_provenance,
    configuration,
    file_digest,
    folder_digest,
    open_run,
    plain,
)


@dataclass(frozen=True)
class Inner:
    size: int = 1
    cache: int = field(default=0, metadata={"signature": False})


@dataclass(frozen=True)
class Config:
    decode: str = "reference"
    threshold: float = 0.1
    pairs: tuple[str, ...] = ("en-de",)
    inner: Inner = Inner()
    limit: int | None = None
    device: str = field(default="cpu", metadata={"signature": False})
    later: str | None = field(default=None, metadata={"signature": "given"})


INPUTS = {"data": "00", "model": "11"}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# What the hash covers


def test_a_choice_that_is_not_made_is_not_in_the_signature() -> None:
    assert "later" not in configuration(Config())
    assert configuration(Config(later="x"))["later"] == "x"


@pytest.mark.parametrize(
    "change",
    [
        {"decode": "greedy"},
        {"threshold": 0.2},
        {"pairs": ("en-de", "de-en")},
        {"inner": Inner(size=2)},
        {"limit": 0},
        {"later": "8bit"},
    ],
)
def test_every_field_changes_the_hash(change: dict[str, Any]) -> None:
    one = Signature.of("find x", Config(), INPUTS)
    other = Signature.of("find x", dataclasses.replace(Config(), **change), INPUTS)
    assert one.hash != other.hash


def test_fields_that_opt_out_do_not_change_the_hash() -> None:
    other = Config(device="cuda", inner=Inner(cache=9))
    assert Signature.of("f", Config(), {}).hash == Signature.of("f", other, {}).hash


def test_command_inputs_and_version_change_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Signature.of("find x", Config(), INPUTS)
    seen = {base.hash, Signature.of("find y", Config(), INPUTS).hash}
    seen.add(Signature.of("find x", Config(), INPUTS | {"data": "01"}).hash)
    seen.add(Signature.of("find x", Config(), INPUTS | {"links": "22"}).hash)
    monkeypatch.setattr("headscope.runs.signature.installed_version", lambda: "99.0")
    newer = Signature.of("find x", Config(), INPUTS)
    assert len(seen | {newer.hash}) == 5
    assert str(newer) == f"headscope-99.0|find x|{newer.hash}"
    assert len(newer.hash) == 12


@pytest.mark.parametrize(("finished", "state"), [(True, "a finished"), (False, "an unfinished")])
def test_a_run_of_another_version_is_left_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool, state: str
) -> None:
    with monkeypatch.context() as older:
        older.setattr("headscope.runs.signature.installed_version", lambda: "0.1.0")
        with open_run(tmp_path / "run", "find x", Config(), INPUTS) as run:
            run.append_part("outputs", "a", [1])
            if finished:
                run.finish({"value": 1})
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=rf"{state} run of headscope 0\.1\.0") as raised:
        open_run(tmp_path / "run", "find x", Config(), INPUTS)
    assert "\n" not in str(raised.value)
    assert before == {path: path.read_bytes() for path in before}


def test_the_order_of_names_does_not_matter() -> None:
    one = Signature.of("f", {"a": 1, "b": 2}, {"x": "0", "y": "1"})
    other = Signature.of("f", {"b": 2, "a": 1}, {"y": "1", "x": "0"})
    assert one.hash == other.hash


def test_values_that_look_alike_do_not_collide() -> None:
    values = [1, "1", True, None, "None", [1], math.nan, math.inf, -math.inf, 0.1, ""]
    assert len({Signature.of("f", {"v": v}, {}).hash for v in values}) == len(values)


def test_the_hash_is_the_same_in_another_process() -> None:
    code = (
        "from headscope.runs import Signature;"
        "print(Signature.of('f', {'s': {'b', 'a', 'c'}, 'x': 0.1}, {}).hash)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "123"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == Signature.of("f", {"s": {"c", "a", "b"}, "x": 0.1}, {}).hash


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        configuration({"x": object()})
    with pytest.raises(TypeError, match="a dataclass or a mapping"):
        configuration([1, 2])


# JSON


class Colour(Enum):
    RED = "red"


def test_other_values_become_json() -> None:
    value = {
        "array": np.array([[1.5, np.nan]]),
        "scalar": np.float32(0.5),
        "bool": np.bool_(True),
        "path": Path("a/b"),
        "set": frozenset({(2, 1), (1, 2)}),
        "enum": Colour.RED,
        "data": Inner(),
        3: math.inf,
    }
    assert plain(value) == {
        "array": [[1.5, None]],
        "scalar": 0.5,
        "bool": True,
        "path": "a/b",
        "set": [[1, 2], [2, 1]],
        "enum": "red",
        "data": {"size": 1, "cache": 0},
        "3": None,
    }
    with pytest.raises(TypeError):
        plain(object())
    with pytest.raises(TypeError):
        plain({(1, 2): 3})


# Digests


def test_file_digest_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert file_digest(tmp_path / "f").startswith("ba7816bf8f01cfea414140de5dae2223")
    with pytest.raises(InputError, match="missing: cannot be read"):
        file_digest(tmp_path / "missing")


def test_folder_digest_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    for root in ("a", "b"):
        (tmp_path / root / "sub").mkdir(parents=True)
    for root, names in (("a", ["x", "sub/y"]), ("b", ["sub/y", "x"])):
        for name in names:
            (tmp_path / root / name).write_text(name)
    (tmp_path / "b" / ".hidden").write_text("")
    digest = folder_digest(tmp_path / "a")
    assert folder_digest(tmp_path / "b") == digest
    (tmp_path / "b" / "x").rename(tmp_path / "b" / "z")
    assert folder_digest(tmp_path / "b") != digest
    (tmp_path / "a" / "x").write_text("other")
    assert folder_digest(tmp_path / "a") != digest
    with pytest.raises(InputError, match="not a folder"):
        folder_digest(tmp_path / "missing")


# Opening, continuing, finishing


def test_a_run_begins_continues_and_finishes(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    with open_run(out, "find x", Config(), INPUTS) as run:
        assert not run.finished
        run.append_part("hits", "0", [1, 2])
    with open_run(out, "find x", Config(device="cuda"), INPUTS) as run:
        assert run.read_part("hits") == {"0": [1, 2]}
        run.finish({"heads": [{"score": 0.1 + 0.2}], "seconds": 1})
    again = open_run(out, "find x", Config(), INPUTS)
    assert again.finished
    assert again.result() == {"heads": [{"score": 0.1 + 0.2}], "seconds": 1}
    assert len(again.provenance["started"]) == 2
    assert again.provenance["ended"]
    with pytest.raises(RuntimeError, match="finished or closed"):
        again.write_json("x.json", {})


def test_default_folder_is_named_after_command_and_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_run(None, "find translation-score", Config(), INPUTS) as run:
        assert run.path == Path("runs") / f"find-translation-score-{run.hash}"
        assert (tmp_path / run.path / "run.json").exists()


def test_another_configuration_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with open_run(out, "find x", Config(), INPUTS) as run:
        run.finish({"x": 1})
    before = tree(out)
    with pytest.raises(InputError, match=r"decode \('reference' there, 'greedy' here\).*another"):
        open_run(out, "find x", Config(decode="greedy"), INPUTS)
    with pytest.raises(InputError, match=r"inputs\.data \('00' there, '01' here\)"):
        open_run(out, "find x", Config(), INPUTS | {"data": "01"})
    with pytest.raises(InputError, match=r"a run of find x, which is left untouched"):
        open_run(out, "find y", Config(), INPUTS)
    assert tree(out) == before


def test_folders_with_other_content_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        open_run(tmp_path, "f", {}, {})
    assert tree(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(InputError, match="is a file"):
        open_run(tmp_path / "notes.txt", "f", {}, {})


def test_an_empty_folder_and_one_left_at_the_very_start_are_fine(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("")
    (tmp_path / ".tmp-abc.json").write_text("{")
    (tmp_path / "provenance.json").write_text('{"started": ["then"]}')
    with open_run(tmp_path, "f", {}, {}) as run:
        assert run.provenance["started"][0] == "then"
        assert not list(tmp_path.glob(".tmp-*"))
        with pytest.raises(RuntimeError, match="not finished"):
            run.result()


def test_two_at_once_are_refused_and_the_next_may_go_on(tmp_path: Path) -> None:
    first = open_run(tmp_path, "f", {}, {})
    with pytest.raises(InputError, match="another process is working on this run"):
        open_run(tmp_path, "f", {}, {})
    first.close()
    open_run(tmp_path, "f", {}, {}).close()


def test_the_lock_of_a_killed_process_does_not_last(tmp_path: Path) -> None:
    code = f"""
        import time
        from headscope.runs import open_run
        run = open_run({str(tmp_path)!r}, "f", {{}}, {{}})
        print("open", flush=True)
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with pytest.raises(InputError, match="another process"):
        open_run(tmp_path, "f", {}, {})
    process.send_signal(signal.SIGKILL)
    process.communicate()
    open_run(tmp_path, "f", {}, {}).close()


def test_a_result_that_was_changed_is_noticed(tmp_path: Path) -> None:
    with open_run(tmp_path, "f", {}, {}) as run:
        run.finish({"x": 1})
    (tmp_path / "result.json").write_text('{"x": 2}')
    changed = open_run(tmp_path, "f", {}, {})
    with pytest.raises(InputError, match=r"delete DONE\.json") as error:
        changed.result()
    assert str(error.value).startswith(str(tmp_path / "result.json"))
    (tmp_path / "DONE.json").unlink()
    with open_run(tmp_path, "f", {}, {}) as run:
        run.finish({"x": 1})
        assert run.result() == {"x": 1}


def test_a_run_is_not_finished_before_its_marker_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.runs import folder

    written: list[str] = []
    real = folder.write_bytes

    def stop_at_marker(path: Path, data: bytes) -> None:
        if path.name == "DONE.json":
            raise KeyboardInterrupt
        written.append(path.name)
        real(path, data)

    monkeypatch.setattr(folder, "write_bytes", stop_at_marker)
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path, "f", {}, {}) as run:
        run.write_tensors("x.safetensors", {"a": np.zeros(2)})
        run.finish({"x": 1})
    assert written[-1] == "result.json"
    monkeypatch.undo()
    with open_run(tmp_path, "f", {}, {}) as run:
        assert not run.finished


@pytest.mark.parametrize("name", ["parts", "scores", "result.json"])
def test_a_run_does_not_reach_through_links_to_other_places(name: str, tmp_path: Path) -> None:
    """Two runs whose parts lie in one place would take each other's for their own."""
    with open_run(tmp_path / "run", "find", Config(), INPUTS) as run:
        run.append_part("batches", "0", [1])
    other = tmp_path / "other"
    other.mkdir()
    place = run.path / name
    if place.exists():
        place.rename(other / name)
    for target in (other / name, other / "missing", place):  # elsewhere, nowhere, itself
        place.symlink_to(target)
        before = tree(tmp_path)
        with pytest.raises(InputError, match=f"{name}: is a link"):
            open_run(run.path, "find", Config(), INPUTS)
        assert {n: content for n, content in tree(tmp_path).items() if n in before} == before
        place.unlink()
    with open_run(run.path, "find", Config(), INPUTS) as again:  # linked while the run is open
        place.symlink_to(other)
        with pytest.raises(InputError, match="is a link"):
            again.append_part("batches", "1", [2]) if name == "parts" else again.write_json(name, 1)
    place.unlink()
    # The run folder itself, and links within it, are as good as folders.
    if (other / name).exists():
        (other / name).rename(run.path / "moved")
        place.symlink_to("moved")
    (tmp_path / "link").symlink_to(run.path)
    with open_run(tmp_path / "link", "find", Config(), INPUTS) as linked:
        assert linked.read_part("batches") == {"0": [1]}


@pytest.mark.parametrize("levels", [150, 950, 100_000])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a": ', "}")], ids=["list", "object"])
@pytest.mark.parametrize("file", ["result.json", "provenance.json", "parts/batches.jsonl"])
def test_what_is_nested_too_deeply_is_damaged(
    file: str, begin: str, end: str, levels: int, tmp_path: Path
) -> None:
    with open_run(tmp_path / "run", "find", Config(), INPUTS) as run:
        run.append_part("batches", "0", [1])
        if not file.startswith("parts"):
            run.finish({"value": 1})
    path = run.path / file
    path.write_text(f'{{"key": "1", "record": {begin * levels}1{end * levels}}}\n')
    if file == "result.json":
        done = json.loads((run.path / "DONE.json").read_text())
        (run.path / "DONE.json").write_text(json.dumps({**done, "result": file_digest(path)}))
    with pytest.raises(InputError, match="damaged"):
        again = open_run(run.path, "find", Config(), INPUTS)
        again.read_part("batches") if file.startswith("parts") else again.result()


def test_damaged_run_json_says_so(tmp_path: Path) -> None:
    open_run(tmp_path, "f", {}, {}).close()
    for content in ("{", "[]", "\xff"):
        (tmp_path / "run.json").write_bytes(content.encode("latin-1"))
        with pytest.raises(InputError, match=r"run\.json: is damaged"):
            open_run(tmp_path, "f", {}, {})


def test_writers_stay_inside_and_leave_no_temporary_files(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with open_run(out, "f", {}, {}) as run:
        run.write_jsonl("deep/rows.jsonl", [{"a": 1}, {"b": "\u2028"}])
        run.write_tensors("t.safetensors", {"a": np.arange(3)[::2]})
        with pytest.raises(ValueError, match="not inside"):
            run.write_json("../outside.json", {})
        with pytest.raises(TypeError):
            run.write_json("bad.json", {"x": object()})
    from safetensors.numpy import load_file

    assert load_file(out / "t.safetensors")["a"].tolist() == [0, 2]
    lines = (out / "deep" / "rows.jsonl").read_bytes().splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1}, {"b": "\u2028"}]
    assert not [name for name in tree(tmp_path) if ".tmp" in name or "bad" in name]


# Partial results

records = st.lists(
    st.tuples(st.text(max_size=5), st.lists(st.integers()) | st.text(max_size=5)), max_size=6
)


@given(records)
def test_records_come_back_in_order_and_the_later_of_a_key_counts(rows: Any) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, open_run(folder, "f", {}, {}) as run:
        for key, record in rows:
            run.append_part("p", key, record)
        assert run.read_part("p") == dict(rows)


def test_a_file_cut_at_any_byte_is_read_and_continued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(tmp_path, "f", {}, {}) as run:
        everything = {"a": 1, "ä\n": [2, "ß"], "c": {"x": None}}
        for key, record in everything.items():
            run.append_part("p", key, record)
        file = run.part("p.jsonl")
        whole = file.read_bytes()
        for cut in range(len(whole) + 1):
            file.write_bytes(whole[:cut])
            caplog.clear()
            done = run.read_part("p")
            lines = whole[:cut].count(b"\n")
            assert list(done) == list(everything)[:lines]
            half = cut > 0 and whole[cut - 1 : cut] != b"\n"
            assert ("was not written to its end" in caplog.text) == half
            for key in list(everything)[lines:]:
                run.append_part("p", key, everything[key])
            assert run.read_part("p") == everything
            assert file.read_bytes() == whole


def test_damage_before_the_end_names_file_and_line(tmp_path: Path) -> None:
    with open_run(tmp_path, "f", {}, {}) as run:
        run.append_part("p", "a", 1)
        run.append_part("p", "b", 2)
        file = run.part("p.jsonl")
        file.write_bytes(b"garbage\n" + file.read_bytes())
        with pytest.raises(InputError, match=r"p\.jsonl, line 1: is damaged; delete"):
            run.read_part("p")


def test_tensor_parts(tmp_path: Path) -> None:
    with open_run(tmp_path, "f", {}, {}) as run:
        assert run.read_tensors("hits") == {}
        run.append_tensors("hits", "b/1", {"x": np.arange(4, dtype=np.uint16).reshape(2, 2).T})
        run.append_tensors("hits", "a", {"x": np.zeros(0)})
        (run.part("hits") / ".tmp-half.safetensors").write_bytes(b"half")
        shards = run.read_tensors("hits")
        assert list(shards) == ["a", "b/1"]
        assert shards["b/1"]["x"].tolist() == [[0, 2], [1, 3]]
        assert shards["b/1"]["x"].dtype == np.uint16
        (run.part("hits") / "a.safetensors").write_bytes(b"oops")
        with pytest.raises(InputError, match=r"a\.safetensors: is damaged; delete"):
            run.read_tensors("hits")


def test_a_run_killed_again_and_again_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    code = f"""
        import os, signal, sys
        from headscope.runs import open_run
        with open_run({str(tmp_path / "run")!r}, "f", {{}}, {{}}) as run:
            done = run.read_part("p")
            for i in range(6):
                if str(i) not in done:
                    run.append_part("p", str(i), i / 7)
                    if i % 2:
                        with run.part("p.jsonl").open("ab") as file:
                            file.write(b'{{"key": "half')
                        os.kill(os.getpid(), signal.SIGKILL)
            run.finish({{"sum": sum(run.read_part("p").values())}})
    """
    codes = []
    for _ in range(4):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        codes.append(subprocess.run(command, check=False, capture_output=True).returncode)
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert open_run(tmp_path / "run", "f", {}, {}).result() == {"sum": sum(i / 7 for i in range(6))}


# Provenance


def test_provenance_is_collected_without_heavy_imports() -> None:
    code = (
        "import sys\n"
        "from headscope.runs import collect_provenance\n"
        "import headscope.heads, headscope.measure\n"
        "p = collect_provenance(model='m')\n"
        "assert p['model'] == 'm' and p['numpy'] and p['python'], p\n"
        "heavy = {'torch', 'transformers', 'sacrebleu', 'safetensors', 'huggingface_hub'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("program", ["/lib/headscope/__main__.py", "/bin/headscope"])
def test_the_command_is_one_that_can_be_typed(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "atlas", "pocket"])
    assert collect_provenance()["command_line"] == ["headscope", "atlas", "pocket"]


@dataclass(frozen=True, kw_only=True)
class Sum(Result):
    sum: int


def test_a_command_is_carried_out_once_and_goes_on(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def compute(run: Run) -> Sum:
        calls.append(list(run.read_part("sums")))
        run.append_part("sums", f"call {len(calls)}", 1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return Sum(sum=3, pending=len(calls) == 2)

    def command(folder: Path) -> Sum:
        return carry_out("find x", folder, Config(), INPUTS, compute, kind=Sum)

    with pytest.raises(KeyboardInterrupt):
        command(tmp_path / "run")
    assert command(tmp_path / "run").sum == 3  # pending: the run is not finished
    first = command(tmp_path / "run")
    assert calls == [[], ["call 1"], ["call 1", "call 2"]]
    written = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert written.keys() == {
        "format", "command", "signature", "run", "seconds", "verdict", "cautions", "details"
    }  # fmt: skip
    assert written["details"] == {"sum": 3}
    assert command(tmp_path / "run") == first
    (tmp_path / "run").rename(tmp_path / "moved")
    assert command(tmp_path / "moved") == dataclasses.replace(first, run=str(tmp_path / "moved"))
    assert len(calls) == 3
