"""What the explorer's server answers, against plain transformers with scaled slices of W_O."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch

import headscope
from browser_helpers import chromium, visit
from conftest import json_of
from explore_process import Served, events_in, explored, one
from headscope.evidence.controls import CONTROLS, sets_of
from headscope.heads import HeadSet, read_scores
from headscope.live.command import Explore, explorer_of
from headscope.live.scores import bundled_scores
from headscope.lm import LanguageModel
from headscope.pocket.weights import scores_path
from headscope.results.translation_score import best_sentences

SENTENCE = {"sentence": "The good king planted flowers.", "pair": "en-de",
            "reference": "Der gute König pflanzte Blumen."}  # fmt: skip
PROMPT = "Translate this sentence from English to German\nSentence: {}\nAnswer:"
GATES = {"3.2": 0.0, "4.3": 0.0, "5.11": 0.0}
MIXED = {"1.4": -0.5, "2.9": 2.0, "4.3": 0.25}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with explored(tmp_path_factory.mktemp("explore")) as served:
        yield served


@cache
def loaded(folder: Path, kernel: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation=kernel, dtype=torch.float32
    )
    return model.eval(), AutoTokenizer.from_pretrained(folder)


class Plain:
    """The bundled model by transformers alone, with slices of W_O times a number."""

    def __init__(self, lm: LanguageModel, kernel: str = "sdpa") -> None:
        assert lm.folder is not None
        model, self.tokenizer = loaded(lm.folder, kernel)
        self.model = copy.deepcopy(model)

    def scaled(self, gates: dict[str, float]) -> Plain:
        config = self.model.config
        for name, factor in gates.items():
            layer, head = map(int, name.split("."))
            width = config.head_dim
            weight = self.model.model.layers[layer].self_attn.o_proj.weight
            weight.data[:, head * width : (head + 1) * width] *= factor
        return self

    def log_probabilities(self, prompt: str, output: list[int]) -> np.ndarray[Any, Any]:
        ids = [*self.tokenizer(prompt)["input_ids"], *output]
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0].double()
        chosen = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        return chosen[len(ids) - len(output) - 1 :].numpy()

    def written(self, prompt: str, most: int = 64) -> list[int]:
        ids = self.tokenizer(prompt)["input_ids"]
        ends = self.model.generation_config.eos_token_id
        ends = [ends] if isinstance(ends, int) else list(ends)
        output: list[int] = []
        while len(output) < most:
            with torch.no_grad():
                token = int(self.model(torch.tensor([[*ids, *output]])).logits[0, -1].argmax())
            if token in ends:
                break
            output.append(token)
        return output


def ids_of(plain: Plain, tokens: list[str]) -> list[int]:
    return plain.tokenizer(" " + "".join(tokens), add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("control", ["random", "same layers"])
def test_the_place_is_among_draws_of_as_many_heads(
    server: Served, pocket: LanguageModel, control: str
) -> None:
    events = server.ask("run", input=SENTENCE, gates=GATES, control=control, draw=2)
    place = one(events, "place")
    heads = HeadSet.parse(",".join(GATES), pocket.geometry)
    draws = sets_of(control, heads, 20)
    prompt = PROMPT.format(SENTENCE["sentence"])
    reference = ids_of(Plain(pocket), [SENTENCE["reference"]])
    base = Plain(pocket).log_probabilities(prompt, reference).sum()
    changes = []
    for draw in draws:
        scaled = Plain(pocket).scaled({head.key: 0.0 for head in draw})
        changes.append(scaled.log_probabilities(prompt, reference).sum() - base)
    assert place["random"] == pytest.approx(changes, abs=1e-5)
    assert len(place["random"]) == 20 and place["control"] == CONTROLS[control].words
    sign = np.sign(place["selected"])
    assert place["as_much"] == sum(sign * change >= abs(place["selected"]) for change in changes)
    assert set(one(events, "prompt")["control"]) == {head.key for head in draws[2]}


def test_a_prompt_without_a_reference_is_placed_by_its_own_output(server: Served) -> None:
    events = server.ask("run", input={"prompt": "Word: Kuh\nAnswer:"}, gates={"4.3": 0.0})
    place, shift = one(events, "place"), one(events, "shift", lane="gated")
    assert place["of"] == "original output" and place["selected"] == shift["total"]
    lane = one(events, "lane", lane="gated")
    assert lane["chrf"] is None and lane["reference_logprob"] is None


def test_no_gate_is_no_comparison(server: Served) -> None:
    events = server.ask("run", input=SENTENCE, gates={"4.3": 1.0}, pinned="4.3")
    names = {each["event"] for each in events}
    assert "same" in names and not names & {"shift", "place"}
    assert one(events, "attention")["lane"] == "original"


def test_all_heads_have_no_control(server: Served) -> None:
    gates = {f"{layer}.{head}": 0.0 for layer in range(6) for head in range(16)}
    events = server.ask("run", input=SENTENCE, gates=gates)
    prompt = one(events, "prompt")
    assert prompt["control"] is None and "all 96 heads" in prompt["control_note"]
    assert not [each for each in events if each.get("lane") == "random"]


def test_a_saved_question_is_a_run_that_commands_take(
    server: Served, pocket: LanguageModel, tmp_path: Path
) -> None:
    with explored(tmp_path) as served:
        answer = served.ask("run", input=SENTENCE, gates=MIXED)
        run = tmp_path / one(served.ask("save", input=SENTENCE, gates=MIXED), "saved")["run"]
    row = json.loads((run / "outputs.jsonl").read_text())
    assert row["text"] == one(answer, "lane", lane="gated")["text"]
    assert row["text_as_is"] == one(answer, "lane", lane="original")["text"]
    assert row["prompt"] == PROMPT.format(SENTENCE["sentence"])
    from headscope.heads import Gate, resolve_heads

    gate = Gate.from_pretrained(run / "gate")
    assert {h.key: gate[h] for h in gate.changed_heads()} == MIXED
    assert {head.key for head in resolve_heads(run, None, pocket.geometry)} == set(MIXED)


def test_a_page_of_a_real_model_plays_what_arrives(server: Served) -> None:
    body = {"input": SENTENCE, "heads": "4.3,5.1", "policy": "alignatt", "number": 2}
    events = server.ask("interpret", **body)
    steps = [each for each in events if each["event"] == "read"]
    with chromium() as browser, visit(browser, server.address) as seen:
        page = seen.page
        page.wait_for_selector(".explorer[data-state=done]")
        page.click(".nothing")
        page.fill(".own-text", SENTENCE["sentence"])
        for head in ("4.3", "5.1"):
            page.click(f'.cell[data-head="{head}"]')
        page.click(".go")
        page.click(".arrives")
        page.wait_for_selector(".arrivals li")
        page.click(".play")
        page.wait_for_selector(".arrivals li:nth-child(3):not(.coming)")
        page.wait_for_selector(".word-on:disabled")
        page.click(".rewind")
        for read in range(1, len(steps) + 1):
            page.click(".word-on")
            assert page.locator(".arrivals li:not(.coming)").count() == read
            written = [text for each in steps[:read] for text in each["tokens"][: each["written"]]]
            step = steps[read - 1]
            shown = [*written, *step["tokens"][step["written"] :]]
            assert page.locator(".drafted .tok").all_text_contents() == shown
            assert page.locator(".drafted .written").all_text_contents() == written
            if read < len(steps) and step["written"] < len(step["tokens"]):
                looked = SENTENCE["sentence"].split()[step["looks"][step["written"]]]
                assert page.locator(".arrivals .lit").all_text_contents() == [looked]
        assert "".join(written) == one(events, "interpreted")["text"]
        assert seen.errors == []


@pytest.mark.parametrize("gates", [GATES, MIXED])
def test_the_copied_command_and_python_write_the_same(
    server: Served, tmp_path: Path, gates: dict[str, float], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import subprocess
    import sys

    gated = one(server.ask("run", input=SENTENCE, gates=gates), "lane", lane="gated")["text"]
    copied = one(server.ask("copy", input=SENTENCE, gates=gates), "copy")
    headscope = Path(sys.executable).with_name("headscope")
    command = copied["command"].replace("headscope use", f"{headscope} use", 1)
    made = subprocess.run(
        f"{command} --json", shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json_of(made.stdout)["outputs"][0]["text"] == gated
    capsys.readouterr()
    exec(compile(copied["python"], "copied", "exec"), {})
    assert capsys.readouterr().out.strip() == gated


def test_a_stream_is_events_and_an_end(server: Served) -> None:
    body = json.dumps({"input": SENTENCE, "gates": GATES})
    status, headers, text = server.request("POST", "/ask/run", body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    assert [each["event"] for each in events_in(text)][-2:] == ["done", "end"]


# ---- the lesson ----------------------------------------------------------------------------------
def test_the_bundled_scores_are_those_of_the_command(pocket: LanguageModel, tmp_path: Path) -> None:
    run = tmp_path / "run"
    headscope.find.translation_score(pocket, pair="en-de", out=run, progress=False)
    (made,), (bundled,) = read_scores(run).values(), bundled_scores(pocket)
    assert bundled.scores.values == pytest.approx(made.values, abs=1e-6)
    for name in ("low", "high"):
        assert getattr(bundled.scores, name) == pytest.approx(getattr(made, name), abs=1e-6)
    assert bundled.scores.extra["chance"] == pytest.approx(made.extra["chance"], abs=1e-6)
    best = str(bundled.scores.top(1).heads[0])
    shown = best_sentences(scores_path(), best)
    assert shown and shown == best_sentences(run, best)


def test_other_weights_have_no_bundled_scores(pocket: LanguageModel) -> None:
    from headscope.pocket import weights

    earlier = headscope.load(str(weights.path("step-00128")))
    assert bundled_scores(earlier) == []


def test_the_lesson_shows_what_it_asks_about(pocket: LanguageModel) -> None:
    """The selected heads do more than any draw and than each of them alone."""
    explorer = explorer_of(Explore(), pocket)
    bodies = []
    for step in explorer.lesson:
        scene = {name: values[0] for name, values in parse_qs(step.scene).items()}
        gates = {head.partition(":")[0]: 0 for head in scene.get("gates", "").split(",") if head}
        bodies.append(
            {"input": json.loads(scene["input"]), "gates": gates, "pinned": scene["pin"],
             "effects": scene.get("shade") == "effect"}
        )  # fmt: skip
    events: list[list[dict[str, Any]]] = [[] for _ in bodies]
    for body, answers in zip(bodies, events, strict=True):
        explorer.compute("run", body, answers.append, lambda: False)
    together = one(events[0], "place")
    assert together["as_much"] == 0 and len(together["random"]) == 20
    original, gated = (one(events[0], "lane", lane=lane) for lane in ("original", "gated"))
    assert gated["text"] != original["text"] and gated["language"] == original["language"]
    alone = [each for each in events[1] if each["event"] == "effects"][-1]["values"]
    assert len(alone) == pocket.geometry.total and min(alone) > together["selected"]
    assert one(events[2], "attention")["head"] == bodies[2]["pinned"]
    assert bodies[0]["gates"] == bodies[3]["gates"] == bodies[4]["gates"]
    assert bodies[1]["gates"] == bodies[2]["gates"] == {}
    assert "prompt" in bodies[3]["input"] and bodies[4]["input"]["pair"] == "ru-es"
