"""Removal by loss: equal to a naive loop, recomputable from what is stored, resumable."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import find_helpers
from headscope.data.pairs import PairSource
from headscope.data.prompts import translation_prompts
from headscope.lm import load
from headscope.lm.prompting import chat_writer
from headscope.results.removal import BASELINE, Label
from headscope.runs import encode
from headscope.studies.align import Align, align
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.report import write_report
from headscope.studies.verify.measure import MeasureAgain, measure_again
from headscope.studies.verify.removal import VerifyRemoval, verify_removal
from headscope.verify.translation import Removal
from headscope.verify.translation.conditions import ReferenceLosses
from headscope.verify.translation.evidence import loss_evidence
from lm_helpers import folded
from loss_helpers import CHATML, TEMPLATE, data, of_sentence
from verify_helpers import rows_of

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
    settings = Removal(template=TEMPLATE, measure=("loss",), **more)
    return VerifyRemoval("1.0,0.3,1.2", (), ModelChoice(str(folder / "model")), pairs, settings)


def naive(config: VerifyRemoval, result: dict[str, Any]) -> dict[str, Any]:
    """Losses by direction, condition, sentence and kind: one sentence and condition at a time."""
    lm = load(config.model.model)
    directions = read_directions(config.pairs, config.model.model, "test")
    found: dict[str, Any] = {name: [] for name in directions}
    for condition in [{"heads": [], "gate": 1.0}, *result["conditions"]]:
        gate = torch.ones(lm.geometry.shape)
        for head in condition["heads"]:
            layer, _, number = head.partition(".")
            gate[int(layer), int(number)] = condition["gate"]
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
    result = encode(verify_removal(config, tmp_path / "run"))
    assert result["measures"] == ["loss"] and not (tmp_path / "run" / "outputs.jsonl").exists()
    expected = naive(config, result)
    stored = load_file(tmp_path / "run" / "statistics.safetensors")
    for number, one in enumerate([result["baseline"], *result["conditions"]]):
        of_directions = []
        for direction, losses in expected.items():
            part = result["directions"][direction]
            shown = part["conditions"][number - 1] if number else part["baseline"]
            values = figures(losses[number])
            of_directions.append(values)
            for key, value in values.items():
                assert shown[key] == pytest.approx(value, abs=1e-5), (number, direction, key)
            sums = [[sum(kind) for kind in sentence] for sentence in losses[number]]
            assert stored[f"{direction}.nll"][number] == pytest.approx(np.array(sums), abs=1e-4)
            counts = [[len(kind) for kind in sentence] for sentence in losses[number]]
            assert stored[f"{direction}.nll_tokens"].tolist() == counts
        for key in of_directions[0]:
            assert one[key] == pytest.approx(fmean(v[key] for v in of_directions), abs=1e-5)
    top = next(one for one in result["conditions"] if one["kind"] == "top" and not one["gate"])
    assert abs(top["change"]["nll"]["value"]) > 1e-3
    assert top["change"]["nll"]["value"] == pytest.approx(top["nll"] - result["baseline"]["nll"])


def crafted(harm: float, on_linked: float) -> ReferenceLosses:
    """Two tokens of each kind; the chosen heads cost `harm`, on linked ones `on_linked` more."""
    generator = np.random.default_rng(0)
    base = 2 + generator.random((40, 3))
    conditions = [base, base + harm + np.array([on_linked, 0, 0])]
    conditions += [base + 0.1 * generator.random((40, 3)) for _ in range(9)]
    return ReferenceLosses(2 * np.array(conditions), np.full((40, 3), 2))


def evidence_of(losses: ReferenceLosses) -> dict[str, Any]:
    labels = [BASELINE, Label("top", 1, 0.0), *(Label("random", 1, 0.0, n) for n in range(9))]
    sets = [(), ("0.0",), *((f"1.{n}",) for n in range(9))]
    return encode(loss_evidence(labels, sets, {"en-de": losses}))


@pytest.mark.parametrize(("harm", "on_linked"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 0.0)])
def test_harm_is_a_higher_loss_and_the_claim_is_that_of_linked_tokens(
    harm: float, on_linked: float
) -> None:
    found = evidence_of(crafted(harm, on_linked))
    top = found["conditions"][0]
    hurts = harm + on_linked > 0
    assert (top["p_draws"] == 0.1) == hurts and (top["p_sentences"] < 0.001) == hurts
    assert top["against_random"]["value"] == pytest.approx(harm + on_linked / 3 - 0.05, abs=0.01)
    gap = top["classes"]["linked_minus_unlinked"]
    assert gap["value"] == pytest.approx(on_linked, abs=0.01)
    assert (gap["p_sentences"] < 0.001 and gap["p_draws"] == 0.1) == bool(on_linked)
    assert found["p_value"] == top["p_sentences"]


def test_a_kind_of_token_that_there_is_none_of_has_no_figure() -> None:
    losses = crafted(1.0, 0.0)
    tokens = losses.tokens.copy()
    tokens[:, 2] = 0
    tokens[5:, 1] = 0
    sums = losses.sums * (tokens > 0)
    found = evidence_of(ReferenceLosses(sums, tokens))
    top = found["conditions"][0]
    assert top["nll_unlinked"] is None and top["nll_unlinked_micro"] is None
    nothing = {"value": None, "low": None, "high": None, "p_sentences": None, "p_draws": None}
    assert top["classes"]["unlinked"] == top["classes"]["linked_minus_unlinked"] == nothing
    assert top["nll_linked_later"] == pytest.approx(np.mean(losses.sums[1, :5, 1] / 2))
    json.dumps(found, allow_nan=False)


def test_texts_are_those_of_the_first_draws_and_both_can_be_measured_again(
    tmp_path: Path,
) -> None:
    config = choose(tmp_path, "pocket-like", False, loss_draws=4, draws=2, max_new_tokens=4)
    removal = dataclasses.replace(config.removal, measure=("loss", "text"))
    both = encode(verify_removal(dataclasses.replace(config, removal=removal), tmp_path / "both"))
    only = dataclasses.replace(removal, measure=None)
    texts = encode(verify_removal(dataclasses.replace(config, removal=only), tmp_path / "texts"))
    losses = encode(verify_removal(config, tmp_path / "losses"))
    assert both["measures"] == ["text", "loss"] and (both["draws"], both["draws_loss"]) == (2, 4)

    def named(result: dict[str, Any], key: str) -> dict[Any, Any]:
        rows = [one for one in result["conditions"] if key in one]
        return {(one["kind"], one["draw"]): (one["heads"], one[key]) for one in rows}

    assert named(both, "chrf") == named(texts, "chrf")
    assert named(both, "nll") == named(losses, "nll")
    assert set(named(both, "chrf")) < set(named(both, "nll")) and len(named(both, "nll")) == 9
    for part in both["directions"].values():
        assert list(map(Label.of_row, part["conditions"])) == list(
            map(Label.of_row, both["conditions"])
        )
    top, text, loss = (one["conditions"][0] for one in (both, texts, losses))
    for name in ("p_sentences", "p_draws_layer_matched", "against_random"):
        assert (top[name], top[f"{name}_loss"]) == (text[name], loss[name])
    assert (both["p_value"], both["p_value_loss"]) == (texts["p_value"], losses["p_value"])
    for run, result in (("both", both), ("losses", losses)):
        again = encode(measure_again(MeasureAgain(tmp_path / run)))
        assert {**again, "run": ""} == {**result, "run": ""}


def test_a_stopped_run_goes_on_and_links_are_part_of_the_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = choose(tmp_path, "pocket-like", False, loss_draws=3)
    whole = encode(verify_removal(config, tmp_path / "whole"))
    stopped = tmp_path / "stopped"

    def stop(_: str, done: int, __: int) -> None:
        if done == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(verify_removal(config, stopped, stop))
    kept = (stopped / "parts" / "losses.jsonl").read_bytes()
    result = encode(verify_removal(config, stopped))
    assert (stopped / "parts" / "losses.jsonl").read_bytes().startswith(kept)
    assert len(rows_of(stopped / "parts" / "losses.jsonl")) == 2 * (1 + 1 + 3 + 3)
    assert {**result, "run": "", "seconds": 0} == {**whole, "run": "", "seconds": 0}
    assert result["signature"].rpartition("|")[2].startswith("links:")
    assert result["reference_links"]["en-de"]["aligner"] == "links"


def test_a_file_with_links_between_units_gives_what_the_aligner_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[tuple[int, int]] = []

    def recorded(texts: Any, extra: Any, options: Any) -> Any:
        fitted.append((len(texts), len(extra)))
        return find_helpers.align_by_rule(texts, extra, options)

    for place in ("headscope.data.align", "headscope.data.align.outputs"):
        monkeypatch.setattr(f"{place}.check_eflomal", find_helpers.eflomal_is_there)
        monkeypatch.setattr(f"{place}.align_eflomal", recorded)
    rows = [(f"The {n} dogs sleep.", f"{n}只狗睡了，猫也睡了。") for n in range(2, 9)]
    plain, linked = tmp_path / "plain.tsv", tmp_path / "linked.tsv"
    plain.write_text("".join(f"{a}\t{b}\n" for a, b in [("source", "target"), *rows]), "utf-8")
    align(Align(PairSource(str(plain), "en-zh"), "eflomal"), linked)
    lm = find_helpers.wrapped("qwen3")
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    removal = Removal(template=TEMPLATE, measure=("loss", "text"), draws=1, loss_draws=1,
                      layer_matched=False, max_new_tokens=4)  # fmt: skip
    results = {}
    for file in (plain, linked):
        choice = PairsChoice(("en-zh",), (str(file),), limit=3)
        model = ModelChoice(str(tmp_path / "model"))
        config = VerifyRemoval("1.0", (), model, choice, removal)
        results[file.stem] = encode(verify_removal(config, tmp_path / file.stem))
    # The command's; then those of references, and of outputs, both fitted on all of the file.
    assert fitted == [(7, 0), (3, 4), (12, 7)]
    told = [results[name]["reference_links"]["en-zh"] for name in results]
    assert told[0] == told[1] and (told[0]["aligner"], told[0]["units"]) == ("eflomal", "words")
    assert results["linked"]["links"] == {"method": "reference", "aligner": "eflomal"}
    kept = [load_file(tmp_path / name / "statistics.safetensors") for name in results]
    for name in ("en-zh.nll", "en-zh.nll_tokens"):
        np.testing.assert_array_equal(kept[0][name], kept[1][name])
    outputs = [(tmp_path / name / "outputs.jsonl").read_bytes() for name in results]
    assert outputs[0] == outputs[1]
    page = write_report(tmp_path / "linked")
    assert "links were made by eflomal" in page.read_text("utf-8")
