"""What commands print, and where."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress
from small_models import build

from conftest import json_of
from headscope.cli import output
from headscope.lm import LanguageModel, load
from headscope.progress import by_size
from headscope.studies import bars
from headscope.studies.bars import hide_loading_bars
from lm_helpers import tokenizer


@given(st.text())
def test_a_message_is_one_line_that_cannot_steer_a_terminal(text: str) -> None:
    line = output.one_line(text)
    assert len(line.splitlines()) <= 1
    assert line.isprintable()


def test_json_is_one_object_with_unrounded_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"score": 0.1 + 0.2, "name": "Größe", "low": float("nan")}, True, "not this")
    out = capsys.readouterr().out
    assert json.loads(out) == {"score": 0.30000000000000004, "name": "Größe", "low": None}
    assert out.count("\n") == 1


def test_a_full_stdout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="stdout") as raised:
            output.emit({}, False, "text")
        assert raised.value.filename == "stdout"


def test_progress_elsewhere_than_on_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    with bars.progress() as update:
        for done in range(51):
            update("scoring [1/2]", done, 200)
            now[0] += 1
    said = capsys.readouterr()
    assert said.out == ""
    # After 30 seconds 30 of 200 are done, one a second.
    assert said.err == "scoring [1/2]: 30 of 200 (1.0/s, 170 s left)\n"


def test_time_left_goes_by_bytes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    hide_loading_bars()
    with bars.progress():
        for size in by_size("Loading weights", [3_000_000, *[10_000] * 100], lambda size: size):
            now[0] += size / 75_000
    # After 40 seconds one of 101 tensors is read, and three of four megabytes.
    expected = "loading weights: 3.0 MB of 4.0 MB (75.0 kB/s, 13 s left)\n"
    assert capsys.readouterr().err == expected


def test_work_that_tells_nothing_shows_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: now[0])
    with bars.progress() as update:
        lines: Any = bars._shown.get()
        now[0] += 29
        lines.remind()
        now[0] += 2
        lines.remind()
        update("measuring", 0, 1)
        for _ in range(4):
            now[0] += 20
            lines.remind()
        update("measuring", 1, 1)
        update("scoring", 0, 40)
        now[0] += 10
        update("scoring", 1, 40)
        now[0] += 40
        lines.remind()
    assert capsys.readouterr().err.splitlines() == [
        "working: 31 s so far",
        "measuring: 0 of 1, 40 s so far",
        "measuring: 0 of 1, 80 s so far",
        # 39 were left ten seconds each, 40 seconds ago.
        "scoring: 1 of 40 (0.1/s, 350 s left)",
    ]


def test_the_reminder_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "LINE_EVERY", 0.01)
    came = threading.Event()
    monkeypatch.setattr(bars._Lines, "remind", lambda lines: came.set())
    before = threading.active_count()
    with bars.progress():
        assert came.wait(10)
    for thread in threading.enumerate()[before:]:
        thread.join(10)
    assert threading.active_count() == before


def test_on_a_terminal_work_of_one_step_moves_and_its_clock_runs() -> None:
    now, screen = [0.0], io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    shown = Progress(*bars.columns(80), console=console, get_time=lambda: now[0])
    show = bars._Bars(shown)

    def drawn() -> str:
        with console.capture() as drawn:
            console.print(shown.get_renderable())
        return drawn.get()

    seen = []
    for step in (None, ("measuring", 0, 1), ("measuring", 1, 1), ("measuring", 0, 1)):
        if step is not None:
            show(*step)
        before = drawn()
        now[0] += 65
        assert (drawn() != before) and ("measuring" in before) == (step is not None)
        seen.append([task.description for task in shown.tasks if task.visible])
        seen[-1] += [str(task.total) for task in shown.tasks if task.description == "measuring"]
    assert seen == [
        ["working"],
        ["measuring", "None"],
        ["working", "measuring", "1"],
        ["measuring", "None"],
    ]
    assert "0:01:05" in drawn()
    for done in (0, 1_500_000, 3_000_000):
        show("loading weights", done, 4_000_000)
        now[0] += 30
    assert "3.0/4.0 MB" in drawn() and "0:00:20 left" in drawn() and "…" not in drawn()


def _recorded(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, int]]]:
    calls: dict[str, list[tuple[int, int]]] = {}

    def note(_: object, title: str, done: int, total: int) -> None:
        calls.setdefault(title, []).append((done, total))

    monkeypatch.setattr(bars._Lines, "__call__", note)
    return calls


def _is_counted_in(calls: list[tuple[int, int]], sizes: Collection[int]) -> bool:
    """Whether the calls come from nothing to all, by one size each, in some order."""
    done = [count for count, _ in calls]
    steps = [later - earlier for earlier, later in itertools.pairwise(done)]
    ends = {total for _, total in calls} == {sum(sizes)}
    return done[0] == 0 and ends and sorted(steps) == sorted(sizes)


def test_bytes_are_counted_while_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    calls = _recorded(monkeypatch)
    hide_loading_bars()
    with bars.progress():
        load(tmp_path, check=False)
    assert len(calls) == 1
    sizes = [tensor.nbytes for tensor in build("llama").state_dict().values()]
    assert _is_counted_in(calls["loading weights"], sizes)
    calls.clear()
    load(tmp_path, check=False)  # outside of the block nothing is shown
    assert not calls


def test_bytes_are_counted_while_a_gguf_file_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("gguf")
    from gguf_helpers import tiny, write

    model = tiny()
    path = write(tmp_path / "it.gguf", model, "Q8_0")
    calls = _recorded(monkeypatch)
    hide_loading_bars()
    with bars.progress():
        assert load(path, check=False).digest
    sizes = [tensor.nbytes for tensor in model.state_dict().values()]
    assert _is_counted_in(calls["loading weights"], sizes)
    assert _is_counted_in(calls["digesting weights"], [path.stat().st_size])


def test_a_check_shows_how_far_loading_and_comparing_are(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    calls = _recorded(monkeypatch)
    assert command("check", tmp_path).code == 0
    loading, checking, comparing, digesting = calls.values()
    assert _is_counted_in(
        loading, [tensor.nbytes for tensor in build("llama").state_dict().values()]
    )
    assert checking == [(0, 1), (1, 1)]  # the layers of a small model are removed in one pass
    assert len(comparing) > 2 and comparing == sorted(comparing)
    done, total = comparing[-1]
    assert done == total and {one for _, one in comparing} == {total}
    size = (tmp_path / "model.safetensors").stat().st_size
    assert digesting == [(0, size), (size, size)]


@pytest.mark.parametrize("size", [0.0, 1e-4])
def test_a_check_tells_the_noise_of_repeated_passes(
    size: float, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, generator = build("llama"), torch.Generator().manual_seed(0)
    model.model.embed_tokens.register_forward_hook(
        lambda _, __, states: states + size * torch.randn(states.shape, generator=generator)
    )
    lm = LanguageModel.wrap(model, tokenizer(), name="tiny")
    monkeypatch.setattr("headscope.lm.load", lambda *more, **options: lm)
    told = json_of(command("check", "--json").out)
    assert lm.noise is not None
    assert told["noise"] == lm.noise.largest and (told["noise"] > 0) == (size > 0)
    said = command("check").out.partition("\n\n")[0]
    assert (f" {told['noise']:.2g} " in said) == (size > 0)
