"""What commands print, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headscope.cli import output
from headscope.cli.output import hide_loading_bars
from headscope.lm import LanguageModel, load
from headscope.lm.architectures import build
from lm_helpers import tokenizer


@given(st.text())
def test_a_message_is_one_line_that_cannot_steer_a_terminal(text: str) -> None:
    line = output.one_line(text)
    assert len(line.splitlines()) <= 1
    assert line.isprintable()


@given(st.text(alphabet=st.characters(categories=("L", "N", "P"))))
def test_a_printable_line_stays_as_it_is(text: str) -> None:
    assert output.one_line(text) == text


def test_json_is_one_object_with_unrounded_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"score": 0.1 + 0.2, "name": "Größe", "low": float("nan")}, True, "not this")
    out = capsys.readouterr().out
    assert json.loads(out) == {"score": 0.30000000000000004, "name": "Größe", "low": None}
    assert out.count("\n") == 1


def test_progress_elsewhere_than_on_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output.progress() as update:
        for done in range(51):
            update("scoring [1/2]", done, 200)
            now[0] += 1
    said = capsys.readouterr()
    assert said.out == ""
    # After 30 seconds 30 of 200 are done, one a second.
    assert said.err == "scoring [1/2]: 30 of 200 (1.0/s, 170 s left)\n"


def test_work_of_an_earlier_run_does_not_count_for_the_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output.progress() as update:
        update("scoring", 900, 1000)
        now[0] += 40
        update("scoring", 910, 1000)
    assert capsys.readouterr().err == "scoring: 910 of 1000 (0.2/s, 360 s left)\n"


def test_on_a_terminal_progress_writes_to_stderr_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with output.progress() as update:
        update("scoring [1/2]", 1, 2)
        update("removing", 1, 4)
    said = capsys.readouterr()
    assert said.out == ""
    assert "scoring [1/2]" in said.err
    assert "removing" in said.err


def test_weights_are_counted_while_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    calls: list[tuple[str, int, int]] = []

    monkeypatch.setattr(output, "_Lines", lambda: lambda *call: calls.append(call))
    hide_loading_bars()
    with output.progress():
        load(tmp_path, check=False)
    assert len({title for title, _, _ in calls}) == 1
    total = len(build("llama").state_dict())
    assert [call[1:] for call in calls] == [(done, total) for done in range(total + 1)]
    calls.clear()
    load(tmp_path, check=False)  # outside of the block nothing is shown
    assert not calls


def test_a_check_shows_how_far_loading_and_comparing_are(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build("llama").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    calls: dict[str, list[tuple[int, int]]] = {}

    def note(title: str, done: int, total: int) -> None:
        calls.setdefault(title, []).append((done, total))

    monkeypatch.setattr(output, "_Lines", lambda: note)
    assert command("check", tmp_path).code == 0
    loading, checking, comparing = calls.values()
    tensors, layers = len(build("llama").state_dict()), build("llama").config.num_hidden_layers
    assert loading == [(done, tensors) for done in range(tensors + 1)]
    assert checking == [(done, layers) for done in range(layers + 1)]
    assert len(comparing) > 2 and comparing == sorted(comparing)
    done, total = comparing[-1]
    assert done == total and {one for _, one in comparing} == {total}


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
    told = json.loads(command("check", "--json").out)
    assert lm.noise is not None
    assert told["noise"] == lm.noise.largest and (told["noise"] > 0) == (size > 0)
    said = command("check").out.partition("\n\n")[0]
    assert (f" {told['noise']:.2g} " in said) == (size > 0)
