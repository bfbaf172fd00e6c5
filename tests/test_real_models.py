"""Real weights, where HEADSCOPE_REAL_MODELS names a folder with gemma3.gguf and smollm2.gguf."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import json_of
from headscope.cli import main
from headscope.data.pairs import PairFile, SentencePair, write_pairs
from headscope.data.prompts import translation_prompts
from headscope.data.split import with_shots
from headscope.evidence.runner import prompts_of
from headscope.find.translation_score_config import TranslationScore
from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.tokens import encode

FOLDER = os.environ.get("HEADSCOPE_REAL_MODELS")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not FOLDER, reason="HEADSCOPE_REAL_MODELS names no folder of real models"),
]
#: Sentences, translations and word links of our own.
PAIRS = (
    ("The house is old .", "La casa es vieja .", "0-0 1-1 2-2 3-3 4-4"),
    ("My son reads a long book .", "Mi hijo lee un libro largo .", "0-0 1-1 2-2 3-3 4-5 5-4"),
    ("We drink cold water .", "Bebemos agua fría .", "0-0 1-0 2-2 3-1 4-3"),
    ("The dog sleeps in the garden .", "El perro duerme en el jardín .", "0-0 1-1 2-2 3-3 4-4 5-5"),
    ("She bought two red apples .", "Compró dos manzanas rojas .", "0-0 1-0 2-1 3-3 4-2 5-4"),
    ("The train arrives at night .", "El tren llega de noche .", "0-0 1-1 2-2 3-3 4-4 5-5"),
    ("They live near the river .", "Viven cerca del río .", "0-0 1-0 2-1 3-2 4-3 5-4"),
    ("The boys play in the street .", "Los niños juegan en la calle .", "0-0 1-1 2-2 3-3 4-4 5-5"),
)  # fmt: skip


def pairs() -> PairFile:
    rows = []
    for number, (source, target, links) in enumerate(PAIRS):
        linked = frozenset((int(i), int(j)) for i, j in (one.split("-") for one in links.split()))
        rows.append(SentencePair(str(number), source, target, linked))
    return PairFile(tuple(rows), "en", "es", "own sentences", "")


@cache
def model(name: str) -> Any:
    import headscope

    return headscope.load(f"{FOLDER}/{name}.gguf")


@pytest.mark.parametrize("name", ["gemma3", "smollm2"])
def test_peaks_are_those_of_returned_attention(name: str) -> None:
    """A peak differs from the largest weight only where two weights differ by less than 1e-6."""
    lm = model(name)
    shown = with_shots(pairs(), 3)
    flips = total = 0
    config = TranslationScore()
    prompts = prompts_of(lm, shown, config.template, config.chat)
    for pair, prompt in zip(shown.pairs, prompts, strict=True):
        full = prompt.with_target(pair.target)
        ids = torch.tensor([encode(lm.tokenizer, full.text, full.special).ids])
        with torch.no_grad(), lm.attention_peaks(PeakRequest("all")) as peaks:
            lm.model(input_ids=ids)
        kernel = lm.model.config._attn_implementation
        lm.model.set_attn_implementation("eager")
        try:
            with torch.no_grad():
                weights = lm.model(input_ids=ids, output_attentions=True).attentions
        finally:
            lm.model.set_attn_implementation(kernel)
        naive = torch.stack([layer[0] for layer in weights])  # (L, H, T, T)
        found = torch.as_tensor(peaks.keys).permute(1, 2, 0)[..., None].long()
        lost = naive.amax(dim=-1) - naive.gather(-1, found)[..., 0]
        assert float(lost.max()) < 1e-6
        flips += int((naive.argmax(dim=-1) != found[..., 0]).sum())
        total += lost.numel()
    print(f"{name}: {flips} of {total} peaks differ where two weights are equal within 1e-6")


def test_chat_prompts_are_those_of_the_template() -> None:
    lm = model("smollm2")
    shown = with_shots(pairs(), 2)
    config = TranslationScore()
    template, names = config.template, shown.language_names
    prompts = prompts_of(lm, shown, template, config.chat)
    for pair, prompt in zip(shown.pairs, prompts, strict=True):
        turns = []
        for shot in shown.shots:
            turns.append({"role": "user", "content": template.render(shot.source, *names).text})
            turns.append({"role": "assistant", "content": shot.target})
        turns.append({"role": "user", "content": template.render(pair.source, *names).text})
        whole = lm.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert lm.encode(prompt.text, prompt.special) == whole
    assert all(one.special for one in translation_prompts(shown, template))  # without the chat


def test_the_main_commands_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "en-es.tsv"
    write_pairs(data, pairs().pairs)
    where = ["--model", f"{FOLDER}/gemma3.gguf", "--pair", "en-es", "--data", str(data)]
    where += ["--shots", "2", "--baseline-examples", "2", "--json"]
    assert main(["find", "translation-score", *where, "--out", str(tmp_path / "found")]) == 0
    found = json_of(capsys.readouterr().out)
    # Two examples tell nothing of the model.
    assert len(found["scores"]) == 72 and found["baseline_works"] is None
    remove = ["--heads", str(tmp_path / "found"), "--k", "2", "--allow-overlap"]
    more = ["--measure", "loss", "--draws", "3", "--limit", "3"]
    out = ["--out", str(tmp_path / "removed")]
    assert main(["verify", "removal", *where, *remove, *more, *out]) == 0
    removed = json_of(capsys.readouterr().out)
    losses = [one["nll"] for one in (removed["baseline"], *removed["conditions"])]
    assert (
        np.isfinite(losses).all() and removed["conditions"][0]["nll"] != removed["baseline"]["nll"]
    )


SENTENCES = "--pair en-es --data {data}/en-es.tsv"
WORDS = "--task {data}/words.json --held-out 2 --bare {{input}}:"


@pytest.mark.parametrize(
    ("name", "command", "key"),
    [
        (
            "gemma3",
            f"atlas {{model}} {SENTENCES} --shots 1 --k 1 --draws 1 --verify-limit 2",
            "removal",
        ),
        ("gemma3", f"verify heads {SENTENCES} --shots 1 --limit 1", "heads"),
        ("gemma3", "find lahis --data en={data}/en.txt --data es={data}/es.txt", "languages"),
        ("gemma3", "find induction --sequences 2 --data en={data}/en.txt", "heads"),
        ("smollm2", f"find translation-score {SENTENCES} --chat", "heads"),
        ("smollm2", f"find mask {WORDS} --steps 2 --learning-rate 9", "selected"),
        ("smollm2", "use export --heads 18.6,17.3 --out {data}/exported", "signature"),
    ],
)  # fmt: skip
def test_other_commands_run(
    name: str, command: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path / "en-es.tsv", pairs().pairs)
    for at, code in enumerate(("en", "es")):
        (tmp_path / f"{code}.txt").write_text("\n".join(pair[at] for pair in PAIRS) + "\n", "utf-8")
    words = [{"input": word, "output": f"{word}s"} for word in ("dog", "cat", "tree", "car")]
    (tmp_path / "words.json").write_text(json.dumps(words), "utf-8")
    file = f"{FOLDER}/{name}.gguf"
    given = [word.format(data=tmp_path, model=file) for word in command.split()]
    given += [] if file in given else ["--model", file]
    given += [] if "--out" in given else ["--out", str(tmp_path / "run")]
    assert main([*given, "--json"]) == 0
    assert json_of(capsys.readouterr().out)[key]
