"""Every supported architecture: gates and peaks against references that share no code."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from headscope.errors import InputError
from headscope.lm.architectures import ARCHITECTURES, build
from headscope.lm.attention.recording import capture_way
from headscope.lm.matrix import ArchitectureReport, as_markdown, check_model, matrix
from headscope.lm.model import LanguageModel


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_gates_and_peaks_are_exact(name):
    (report,) = matrix([name])
    assert report.name == name
    assert report.gate_difference == 0.0
    # Experts gather tokens of all rows, so rows of one batch may be rounded differently.
    assert report.row_gate_difference <= 1e-5
    assert report.peaks > 100 and report.wrong == 0
    assert report.dynamic[0] > 100 and report.dynamic[1] == 0
    assert report.static[0] > 100 and report.static[1] == 0
    assert report.same_outputs
    assert report.passed


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "mixtral", "opt"])
def test_weights_follow_from_the_seed_alone(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build(name, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    second = build(name, seed=3, attn_implementation="eager").state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = build(name, seed=4).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'llama'"):
        build("lama")


def test_fields_of_the_configuration_can_be_set():
    model = build("llama", layers=3, overrides={"num_key_value_heads": 1})
    assert model.config.num_hidden_layers == 3
    assert model.config.num_key_value_heads == 1


def test_falcon_under_sdpa_hides_its_peaks_and_the_advice_helps():
    lm = LanguageModel.wrap(build("falcon", attn_implementation="sdpa"), check=False)
    with pytest.raises(InputError, match='attn_implementation="eager", then wrap'):
        capture_way(lm)
    lm = LanguageModel.wrap(build("falcon", attn_implementation="eager"), check=False)
    assert capture_way(lm) == "weights"


REPORT = ArchitectureReport(
    "tiny", "sdpa", (2, 0), "function", 0.0, 0.0, 10, 0, (5, 0), (6, 0), True, "a note"
)


@pytest.mark.parametrize(
    "change",
    [
        {"gate_difference": 1e-7},
        {"row_gate_difference": 0.1},
        {"wrong": 1},
        {"dynamic": (5, 1)},
        {"static": (6, 1)},
        {"peaks": 0},
        {"same_outputs": False},
    ],
)
def test_a_report_fails_on_any_fault_and_the_table_says_so(change):
    assert REPORT.passed
    assert "**fails**" not in as_markdown([REPORT])
    faulty = dataclasses.replace(REPORT, **change)
    assert not faulty.passed
    assert "**fails**; a note" in as_markdown([faulty])


def test_the_table_has_a_line_for_each_report():
    lines = as_markdown([REPORT, REPORT]).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {12}
    assert lines[2].startswith("| tiny | 2, 0 | sdpa | function | 0 |")


@pytest.mark.parametrize(("size", "passes"), [(1e-4, True), (0.0, False), (1e-4, False)])
def test_differences_are_held_to_the_noise_of_plain_passes(
    size: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build("llama")
    generator = torch.Generator().manual_seed(0)
    model.model.norm.register_forward_hook(
        lambda _, __, output: output + size * torch.randn(output.shape, generator=generator)
    )
    lm = LanguageModel.wrap(model, name="llama")
    if not passes:  # gates of 0 that leave a tenth of a head
        gated = LanguageModel.gated

        def leaking(self: LanguageModel, gate: Any) -> Any:
            values = gate if isinstance(gate, torch.Tensor) else torch.tensor(gate.values)
            return gated(self, values.clamp(min=0.1))

        monkeypatch.setattr(LanguageModel, "gated", leaking)
    report = check_model(lm)
    assert (report.noise > 0) == (size > 0)
    assert report.passed == passes
