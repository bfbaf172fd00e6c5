"""Searches that were killed go on where they stopped and end with the same numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import find_helpers
import process_helpers
from headscope.data.pairs import write_pairs
from headscope.find.lahis_scores import Lahis
from headscope.find.patching_scores import Patching
from headscope.find.translation_score_config import TranslationScore
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.patching import FindPatching, find_patching
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice
from lm_helpers import saved


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_translation_scores(decode: Any, tmp_path: Path) -> None:
    find_helpers.model("qwen3").save_pretrained(tmp_path / "model")
    find_helpers.tokenizer("metaspace").save_pretrained(tmp_path / "model")
    write_pairs(tmp_path / "pairs.tsv", find_helpers.pairs("en-de", 6).pairs)
    settings = TranslationScore(
        decode=decode, batch_tokens=1, max_new_tokens=8, bootstrap_draws=50, keep_peaks=True
    )  # batches of one sentence
    pairs = PairsChoice(("en-de",), (str(tmp_path / "pairs.tsv"),))
    config = FindTranslation(ModelChoice(str(tmp_path / "model")), pairs, settings)
    changes = {**find_helpers.ALIGNER, "headscope.find.capture.AT_ONCE": 1}
    _, kept = process_helpers.resumed(
        find_translation, config, tmp_path, 3, titles=("en-de",), changes=changes
    )
    assert sum(name.endswith(".safetensors") for name in kept) == 3


@pytest.mark.parametrize("moving", [False, True])
def test_lahis(moving: bool, tmp_path: Path) -> None:
    texts = ["The red dog", "A cat sleeps here.", "x y z x y", "Nobody saw it", "one two three"]
    rows = [{"text": text, "language": "en"} for text in texts]
    rows += [{"text": text[::-1], "language": "de"} for text in texts]
    data = tmp_path / "documents.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    measure = Lahis(update_gate=moving, batch_tokens=1, bootstrap_draws=20)
    model, documents = ModelChoice(str(saved(tmp_path / "model"))), DocumentsChoice((str(data),))
    config = FindLahis(model, documents, measure, quantile=0.5)
    # In the second language, after two of its documents and one more.
    changes = {"headscope.find.gate_gradients.KEPT_EVERY": 2}  # of a moving gate
    _, kept = process_helpers.resumed(
        find_lahis, config, tmp_path, 8, titles=("",), changes=changes
    )
    assert sum(name.endswith(".safetensors") for name in kept) == (4 if moving else 8)


def test_patching(tmp_path: Path) -> None:
    measure = Patching(pairs=4, known_only=False, control=False, bootstrap_draws=50)
    config = FindPatching(measure=measure)
    _, kept = process_helpers.resumed(find_patching, config, tmp_path, 2, titles=("",))
    assert sum(name.endswith(".safetensors") for name in kept) == 2
