"""A finished run is answered without the weights, and only where nothing has changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from find_helpers import pairs
from headscope.errors import InputError
from headscope.find.induction_scores import Induction
from headscope.find.patching_scores import Patching
from headscope.find.translation_score_config import TranslationScore
from headscope.lm import load
from headscope.lm.loading import WaitingModel, waiting_model
from headscope.runs import encode
from headscope.studies.atlas import Atlas, atlas
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.formation import Formation, formation
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.induction import FindInduction, find_induction
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.find.patching import FindPatching, WordsChoice, find_patching
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.models import ModelChoice, model_inputs
from headscope.studies.pairs import PairsChoice
from headscope.studies.survey import Survey, survey
from headscope.studies.survey_plans import SurveyData
from headscope.studies.tasks import TaskChoice
from headscope.studies.use.rate import UseRate, use_rate
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal
from lm_helpers import VARIED, saved

Step = tuple[Callable[..., Any], Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder, and data of every kind for it."""
    folder = tmp_path_factory.mktemp("finished")
    saved(folder / "model", "gemma2", overrides={"max_position_embeddings": 512})
    shutil.copytree(folder / "model", folder / "later")
    rows = [f"{one.source}\t{one.target}\t0-0" for one in pairs(n=12).pairs]
    (folder / "pairs.tsv").write_text("\n".join(["source\ttarget\tlinks", *rows]), "utf-8")
    (folder / "lines").write_text("one two three\nfour five\nsix seven\n", "utf-8")
    items = [{"input": word, "output": word[::-1]} for word in ("cat", "dog", "house", "tree")]
    (folder / "back.json").write_text(json.dumps(items, indent=1), "utf-8")
    (folder / "rate.jsonl").write_text('{"text": "one two three", "id": 1}\n', "utf-8")
    words = ["en\tde\tes", "cat\tKatze\tgato", "dog\tHund\tperro", "tree\tBaum\tmonte"]
    (folder / "words.tsv").write_text("\n".join(words) + "\n", "utf-8")
    return folder


def steps_of(place: Path) -> dict[str, Step]:
    model = ModelChoice(str(place / "model"))
    data = PairsChoice(("en-de",), (str(place / "pairs.tsv"),))
    return {
        "translation": (find_translation, FindTranslation(model, data)),
        "removal": (
            removal.run,
            VerifyRemoval(heads="0.1", model=model, pairs=data, draws=1, max_new_tokens=2),
        ),
        "atlas": (
            atlas,
            Atlas(model, data, TranslationScore(max_new_tokens=2), draws=1, check=2),
        ),
        "lahis": (
            find_lahis,
            FindLahis(model, DocumentsChoice((f"en={place / 'lines'}",))),
        ),
        "mask": (
            find_mask,
            FindMask(
                model,
                TaskChoice((str(place / "back.json"),), held_out=1),
                "small",
                {"steps": 4, "learning_rate": 4.0, "batch": 2},
            ),
        ),
        "induction": (
            find_induction,
            FindInduction(model, Induction(sequences=2, length=4)),
        ),
        "patching": (
            find_patching,
            FindPatching(
                model,
                WordsChoice(str(place / "words.tsv")),
                Patching(2, known_only=False, control=False),
            ),
        ),
        "rate": (use_rate, UseRate((str(place / "rate.jsonl"),), "0.1", model=model)),
        "survey": (
            survey,
            Survey(
                model,
                SurveyData((f"en-de={place / 'pairs.tsv'}",)),
                ("translation-score", "induction"),
                quick=True,
            ),
        ),
        "formation": (
            formation,
            Formation(
                checkpoint_series([str(place / "model"), str(place / "later")]),
                data,
                TranslationScore(max_new_tokens=2),
                check=2,
            ),
        ),
    }


@pytest.mark.parametrize(
    "name",
    [
        "translation", "removal", "atlas", "lahis", "mask", "induction", "rate", "survey",
        "formation",
    ],
)  # fmt: skip
def test_a_finished_run_is_answered_without_the_weights(
    name: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, config = steps_of(place)[name]
    first = work(config, tmp_path / "run")
    monkeypatch.setattr(ModelChoice, "load", lambda self: pytest.fail("the weights were read"))
    again = work(config, tmp_path / "run")
    assert encode(again) == encode(first)


@pytest.mark.parametrize("name", ["translation", "patching", "mask", "survey"])
def test_a_chat_template_asked_for_is_the_one_used_by_default(
    name: str, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place, tmp_path / "place")
    template = "{% for one in messages %}{{ one.content }}\nSo: {% endfor %}"
    (tmp_path / "place" / "model" / "chat_template.jinja").write_text(template, "utf-8")
    work, config = steps_of(tmp_path / "place")[name]
    part = {"translation": "score", "patching": "measure", "mask": "task", "survey": "data"}[name]

    def with_chat(chat: bool) -> Any:
        return replace(config, **{part: replace(getattr(config, part), chat=chat)})

    first = work(config, tmp_path / "run")
    again = work(with_chat(True), tmp_path / "run")
    assert encode(again)["signature"] == encode(first)["signature"]
    with pytest.raises(InputError, match="another configuration"):
        work(with_chat(False), tmp_path / "run")


@pytest.mark.parametrize("changed", ["model.safetensors", "tokenizer.json", "config.json",
                                     "generation_config.json", "dtype"])  # fmt: skip
def test_what_has_changed_is_not_answered_from_the_old_run(
    changed: str, place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place, tmp_path / "place")
    work, config = steps_of(tmp_path / "place")["induction"]
    work(config, tmp_path / "run")
    model = tmp_path / "place" / "model"
    if changed == "model.safetensors":
        weights = load_file(model / changed)
        name = next(iter(weights))
        weights[name].view(-1)[0] += 1.0
        save_file(weights, model / changed, metadata={"format": "pt"})
    elif changed == "dtype":
        config = FindInduction(ModelChoice(str(model), dtype="bfloat16"), config.measure)
    else:
        stored = json.loads((model / changed).read_text("utf-8"))
        if changed == "tokenizer.json":
            stored["normalizer"] = {"type": "Lowercase"}
        elif changed == "config.json":
            stored["rms_norm_eps"] = 1e-3
        else:
            stored["eos_token_id"] = [2, 5]
        (model / changed).write_text(json.dumps(stored), "utf-8")
    with pytest.raises(InputError, match="another configuration"):
        work(config, tmp_path / "run")


@pytest.mark.parametrize("name", [*VARIED, "a GGUF file"])
def test_files_say_what_the_loaded_model_says(name: str, tmp_path: Path) -> None:
    """Or else a finished run would not be found again."""
    if name == "a GGUF file":
        pytest.importorskip("gguf")
        from gguf_helpers import tiny, write

        folder = str(write(tmp_path / "model.gguf", tiny()))
    else:
        folder = str(saved(tmp_path / "model", name))
    real = load(folder)
    waiting = waiting_model(folder, lambda: real)
    assert isinstance(waiting, WaitingModel)
    assert model_inputs(waiting) == model_inputs(real)
    assert waiting.key_value_heads == real.key_value_heads
    for fact in ("geometry", "dtype", "device", "context_length", "eos_token_ids", "quantised"):
        assert getattr(waiting, fact) == getattr(real, fact)
    assert not waiting.loaded
    # From here on it is the real one.
    ids = torch.tensor([[5, 7, 9, 11]], device=real.device)
    with torch.no_grad():
        assert torch.equal(waiting.model(ids).logits, real.model(ids).logits)
    assert waiting.loaded and waiting.sites == real.sites and waiting.shell is real.model
    assert waiting.noise is real.noise


def test_a_model_that_shows_other_heads_with_its_weights_is_refused(tmp_path: Path) -> None:
    folder = str(saved(tmp_path / "model"))
    other = load(str(saved(tmp_path / "other", layers=7)))
    waiting = waiting_model(folder, lambda: other)
    assert waiting is not None
    with pytest.raises(InputError, match="give the model itself"):
        _ = waiting.model
