"""Removal by loss: equal to a naive loop, recomputable from what is stored, resumable."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import find_helpers
from headscope.data.prompts import translation_prompts
from headscope.evidence.rows import Condition, Evidence
from headscope.lm import load
from headscope.lm.prompting import chat_writer
from headscope.results.removal import RemovalResult
from headscope.runs import encode
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.verify.measure import MeasureAgain, measure_again
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal
from headscope.verify.removal_translations.conditions import ReferenceLosses
from headscope.verify.removal_translations.evidence import GAP, removal_evidence
from lm_helpers import folded
from loss_helpers import CHATML, TEMPLATE, data, of_sentence
from verify_helpers import scores

KINDS = ("linked", "linked_later", "unlinked")


def choose(folder: Path, name: str, chat: bool, **more: Any) -> VerifyRemoval:
    """A saved tiny model with grouped keys, and two directions with or without shots."""
    lm = find_helpers.wrapped(name)
    tokenizer = copy.deepcopy(lm.tokenizer)
    tokenizer.chat_template = CHATML if chat else None
    lm.model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    files = tuple(f"{pair}={data(folder, pair)}" for pair in ("en-de", "de-en"))
    pairs = PairsChoice(("en-de", "de-en"), files, shots=more.pop("shots", 0))
    model = ModelChoice(str(folder / "model"))
    return VerifyRemoval(
        heads="1.0,0.3,1.2", model=model, pairs=pairs, template=TEMPLATE, measure=("loss",), **more
    )


def naive(config: VerifyRemoval, result: RemovalResult) -> dict[str, Any]:
    """Losses by direction, condition, sentence and kind: one sentence and condition at a time."""
    lm = load(config.model.model)
    directions = read_directions(config.pairs, config.model.model, "test")
    found: dict[str, Any] = {name: [] for name in directions}
    for condition in result.evidence.conditions:
        gate = torch.ones(lm.geometry.shape)
        for head in condition.in_model(lm.geometry):
            gate[head.layer, head.head] = condition.gate
        model = folded(lm, gate)
        for name, pairs in directions.items():
            prompts = translation_prompts(pairs, TEMPLATE, chat_writer(lm), "<s>")
            rows = zip(prompts, pairs.pairs, strict=True)
            found[name].append([of_sentence(lm, model, *row) for row in rows])
    return found


def figures(sentences: list[list[list[float]]]) -> dict[str, float]:
    """The mean over sentences of the mean over tokens, and the mean over tokens."""
    found = {}
    for number, kind in enumerate((None, *KINDS)):
        whole = [[*one[0], *one[1], *one[2]] for one in sentences]
        rows = whole if kind is None else [one[number - 1] for one in sentences]
        name = "nll" if kind is None else f"nll_{kind}"
        found[name] = fmean(fmean(row) for row in rows if row)
        found[f"{name}_micro"] = fmean(loss for row in rows for loss in row)
    return found


@pytest.mark.parametrize(
    ("name", "chat", "shots"),
    [("pocket-like", False, 0), ("gemma2", False, 2), ("qwen3", True, 1)],
)
def test_losses_are_those_of_a_naive_loop(
    name: str, chat: bool, shots: int, tmp_path: Path
) -> None:
    config = choose(tmp_path, name, chat, shots=shots, loss_draws=2, gates=(0.0, 2.0))
    result = removal.run(config, tmp_path / "run")
    assert result.details.measures == ("loss",)
    assert not (tmp_path / "run" / "outputs.jsonl").exists()
    expected = naive(config, result)
    stored = load_file(tmp_path / "run" / "statistics.safetensors")
    for number, condition in enumerate(result.evidence.conditions):
        of_directions = []
        for direction, losses in expected.items():
            values = figures(losses[number])
            of_directions.append(values)
            shown = scores(result, direction)[condition.id]
            for key, value in values.items():
                assert shown[key] == pytest.approx(value, abs=1e-5), (number, direction, key)
            sums = [[sum(kind) for kind in sentence] for sentence in losses[number]]
            assert stored[f"{direction}.nll"][number] == pytest.approx(np.array(sums), abs=1e-4)
            counts = [[len(kind) for kind in sentence] for sentence in losses[number]]
            assert stored[f"{direction}.nll_tokens"].tolist() == counts
        for key in of_directions[0]:
            mean = fmean(values[key] for values in of_directions)
            assert scores(result)[condition.id][key] == pytest.approx(mean, abs=1e-5)
    top = result.evidence.level("nll", result.evidence.selected[0])
    assert top is not None and top.change is not None and abs(top.change.value) > 1e-3


def crafted(harm: float, on_linked: float) -> ReferenceLosses:
    """Two tokens of each kind; the chosen heads cost `harm`, on linked ones `on_linked` more."""
    generator = np.random.default_rng(0)
    base = 2 + generator.random((40, 3))
    conditions = [base, base + harm + np.array([on_linked, 0, 0])]
    conditions += [base + 0.1 * generator.random((40, 3)) for _ in range(9)]
    return ReferenceLosses(2 * np.array(conditions), np.full((40, 3), 2))


TOP = Condition("selected", k=1, gate=0.0, heads=("0.0",))


def evidence_of(losses: ReferenceLosses) -> Evidence:
    draws = [replace(TOP, kind="random", draw=n, heads=(f"1.{n}",)) for n in range(9)]
    return removal_evidence([Condition(), TOP, *draws], None, {"en-de": losses}, 0)


@pytest.mark.parametrize(("harm", "on_linked"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 0.0)])
def test_harm_is_a_higher_loss_and_the_claim_is_that_of_linked_tokens(
    harm: float, on_linked: float
) -> None:
    evidence = evidence_of(crafted(harm, on_linked))
    test = evidence.against("nll", TOP)["random"]
    hurts = harm + on_linked > 0
    assert test.p_examples is not None
    assert (test.p_draws == 0.1) == hurts and (test.p_examples < 0.001) == hurts
    assert test.difference.value == pytest.approx(harm + on_linked / 3 - 0.05, abs=0.01)
    gap = evidence.against(GAP, TOP)["random"]
    assert gap.difference.value == pytest.approx(on_linked, abs=0.01)
    assert gap.p_examples is not None
    assert (gap.p_examples < 0.001 and gap.p_draws == 0.1) == bool(on_linked)


def test_a_kind_of_token_that_there_is_none_of_has_no_figure() -> None:
    losses = crafted(1.0, 0.0)
    tokens = losses.tokens.copy()
    tokens[:, 2] = 0
    tokens[5:, 1] = 0
    evidence = evidence_of(ReferenceLosses(losses.sums * (tokens > 0), tokens))
    for name in ("nll_unlinked", "nll_unlinked_micro", GAP):
        assert evidence.level(name, TOP) is None and not evidence.against(name, TOP)
    later = evidence.level("nll_linked_later", TOP)
    assert later is not None
    assert later.value == pytest.approx(np.mean(losses.sums[1, :5, 1] / 2))
    json.dumps(encode(evidence), allow_nan=False)


def test_texts_are_those_of_the_first_draws_and_both_can_be_measured_again(
    tmp_path: Path,
) -> None:
    config = choose(tmp_path, "pocket-like", False, loss_draws=4, draws=2, max_new_tokens=4)
    both = removal.run(replace(config, measure=("loss", "text")), tmp_path / "both")
    texts = removal.run(replace(config, measure=None), tmp_path / "texts")
    losses = removal.run(config, tmp_path / "losses")
    assert both.details.measures == ("text", "loss")
    assert (both.details.text_draws, both.details.draws) == (2, 4)

    def named(result: RemovalResult, name: str) -> dict[str, tuple[Any, ...]]:
        by_id = {each.id: each.heads for each in result.evidence.conditions}
        rows = [row for row in result.levels if row.statistic == name]
        return {f"{row.part} {row.condition}": (by_id[row.condition], row) for row in rows}

    assert named(both, "chrf") == named(texts, "chrf")
    assert named(both, "nll") == named(losses, "nll")
    assert set(named(both, "chrf")) < set(named(both, "nll"))
    assert len(named(both, "nll")) == 3 * (1 + 1 + 4 + 4)
    of_both = {(row.part, row.statistic, row.control): row for row in both.tests}
    for row in (*texts.tests, *losses.tests):
        assert of_both.pop((row.part, row.statistic, row.control)) == row
    assert of_both == {}
    for run, result in (("both", both), ("losses", losses)):
        again = measure_again(MeasureAgain(tmp_path / run))
        assert encode(again) == encode(replace(result, run=again.run, seconds=again.seconds))


def test_a_stopped_run_goes_on_and_links_are_part_of_the_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = choose(tmp_path, "pocket-like", False, loss_draws=3)
    whole = removal.run(config, tmp_path / "whole")
    stopped = tmp_path / "stopped"

    def stop(title: str, done: int, __: int) -> None:
        if title == "reading references" and done >= 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        removal.run(config, stopped, stop)
    file = stopped / "parts" / "reference-losses.jsonl"
    kept = file.read_bytes()
    result = removal.run(config, stopped)
    assert kept and file.read_bytes().startswith(kept)
    assert (
        file.read_bytes() == (tmp_path / "whole" / "parts" / "reference-losses.jsonl").read_bytes()
    )
    assert replace(result, run=None, seconds=0.0) == replace(whole, run=None, seconds=0.0)
    assert result.signature.rpartition("|")[2].startswith("links:")
    assert (result.details.removed.reference_links or {})["en-de"].aligner == "links"
