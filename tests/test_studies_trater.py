"""The TRater experiment: mixtures, resumption run by run, and the tables made of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from conftest import Said
from headscope import lm
from headscope.errors import InputError
from headscope.heads.store import with_details
from headscope.lm import LanguageModel
from headscope.papers.trater import TraterExperiment, experiment, trater_experiment
from headscope.papers.trater.evidence import describe
from headscope.papers.trater.experiment import Mixture, selected_share
from headscope.papers.trater.training import (
    WORD_TASKS,
    Evaluation,
    Training,
    _choices,
    train_and_measure,
)
from headscope.runs import encode
from headscope.verify import removal_translations as removal

TINY = TraterExperiment(
    documents=160,
    tokens=2_400,
    shares=("5%",),
    seeds=(4,),
    batch_tokens=512,
    find_sentences=4,
    evaluation=Evaluation(("en", "de"), sentences=2, documents=2),
)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, pocket: LanguageModel
) -> tuple[Path, dict[str, Any], int]:
    """A tiny experiment that was stopped in its second training and begun again."""
    out = tmp_path_factory.mktemp("trater") / "run"
    real, seen = experiment.train_and_measure, []

    def counted(training: Any, place: Path, threads: int | None = None) -> Any:
        seen.append(place.name)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(training, place, threads)

    load = lm.load

    def loaded(name: str | Path, *how: Any, **named: Any) -> LanguageModel:
        return pocket if name == "pocket" else load(name, *how, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "load", loaded)
        # What models after so few steps write is as good cut short.
        patch.setattr("headscope.papers.trater.training.LONGEST", 8)
        short = partial(removal.translate, max_new_tokens=8)
        patch.setattr(removal, "translate", short)
        patch.setattr(experiment, "train_and_measure", counted)
        with pytest.raises(KeyboardInterrupt):
            trater_experiment(TINY, out)
        done = {path: path.stat().st_mtime_ns for path in out.glob("trainings/*/measured.json")}
        assert len(done) == 1
        patch.setattr(experiment, "train_and_measure", real)
        result = with_details(encode(trater_experiment(TINY, out)))
    kept = sum(path.stat().st_mtime_ns == when for path, when in done.items())
    return out, result, kept


def test_what_was_trained_is_kept_when_it_goes_on(
    finished: tuple[Path, dict[str, Any], int],
) -> None:
    out, result, kept = finished
    assert kept == 1
    assert [one["kind"] for one in result["models"]] == [
        "baseline",
        "remove",
        "enhance",
        "remove random",
        "enhance random",
    ]
    assert with_details(encode(trater_experiment(TINY, out))) == result


def test_mixtures_hold_what_their_names_say(finished: tuple[Path, dict[str, Any], int]) -> None:
    out, result, _ = finished

    def texts(name: str) -> Counter[str]:
        files = (out / "mixtures" / "seed-4" / name / "documents").glob("*.jsonl")
        return Counter(json.loads(line)["text"] for file in files for line in file.open())

    base, removed, enhanced = (texts(name) for name in ("baseline", "remove-0.05", "enhance-0.05"))
    gone = set(base) - set(removed)
    assert gone and max(removed.values()) == 1
    # What is selected is gone from the one and stands three times in the other.
    assert {text for text, times in enhanced.items() if times == 3} == gone
    share = {one["kind"]: one["bilingual_share_of_tokens"] for one in result["models"]}
    assert share["remove"] < share["baseline"] < share["enhance"]
    # As many random documents leave the share of those with a translation about as it is.
    random = texts("remove-random-0.05")
    assert set(base) - set(random) and set(base) - set(random) != gone
    assert share["remove"] < share["remove random"] and share["enhance random"] < share["enhance"]
    tokens = [one["tokens"] for one in result["models"]]
    longest = 120  # tokens of the longest documents, by which a budget may be missed a language
    assert max(tokens) - min(tokens) <= 2 * longest


def test_differences_are_those_of_the_models(
    finished: tuple[Path, dict[str, Any], int],
) -> None:
    out, result, _ = finished
    models = {one["kind"]: one for one in result["models"]}
    of = {(one["kind"], one["than"]): one["figures"] for one in result["changes"]}
    for (kind, than), figures in of.items():
        if than == "random":
            continue
        change = figures["gain"]
        assert change["value"] == pytest.approx(models[kind]["gain"] - models["baseline"]["gain"])
        assert change["low"] <= change["value"] <= change["high"]
        assert change["by_seed"] == [pytest.approx(change["value"])]
        chrf = figures["chrf_prompt"]
        assert chrf["value"] == pytest.approx(chrf["by_seed"][0])
    control = models["remove random"]
    beside = of["remove", "random"]
    for name in ("gain", "chrf_prompt", "plain_nll", "words_within", "questions"):
        assert beside[name]["value"] == pytest.approx(models["remove"][name] - control[name])
    measured = json.loads((out / "trainings" / "seed-4-remove-0.05" / "measured.json").read_text())
    assert models["remove"]["chrf_document"] == pytest.approx(fmean(measured["document"]["scores"]))
    assert len(measured["document"]["per_text"]) == 4
    assert models["remove"]["gain"] == pytest.approx(fmean(measured["document"]["per_text"]))
    right = measured["choices"]["translate"]["right"]
    assert models["remove"]["words_across"] == pytest.approx(100 * fmean(right))


@pytest.mark.parametrize("seeds", ["1001", "9" * 23])
def test_more_models_than_can_be_meant_are_refused(
    seeds: str, command: Callable[..., Said]
) -> None:
    said = command("pocket", "trater", "--seeds", seeds)
    assert said.code == 2
    assert said.err == f"error: --seeds is {seeds}; give at most 1000\n"


def test_choices_are_answered_by_the_lowest_loss(pocket: LanguageModel) -> None:
    """Against one choice at a time, its loss summed from the model's own log-probabilities."""
    from headscope.pocket.tasks import word_choices

    config = Evaluation(("en", "de"), sentences=5)
    found = _choices(pocket, config)
    for task in ("translate", "past"):
        rows = list(islice(word_choices(task, "test", config.seed, config.languages), 5))
        right = []
        for one in rows:
            losses = []
            for choice in one["choices"]:
                begins = len(pocket.encode(one["prompt"]))
                ids = torch.tensor([pocket.encode(f"{one['prompt']} {choice}")])
                with torch.no_grad():
                    logs = pocket.model(ids).logits[0].log_softmax(-1)
                places = range(begins, ids.shape[1])
                losses.append(-sum(float(logs[at - 1, ids[0, at]]) for at in places))
            right.append(losses.index(min(losses)) == one["answer"])
        assert found[task] == {"right": right, "chance": 0.25}
        assert all(one["language"] in config.languages for one in rows)
    assert fmean(found["translate"]["right"]) > 0.5  # the bundled model can


def measured(change: float, languages: tuple[str, ...]) -> dict[str, Any]:
    """What a model would measure on ten sentences that are as hard in every language."""
    texts = [change * number**2 for number in range(10)] * len(languages)
    document = {
        "chrf": fmean(texts),
        "scores": texts,
        "shares": dict.fromkeys(languages, 0.5),
        "nll": 1.0,
        "nll_unrelated": 1.0 + fmean(texts),
        "per_text": texts,
    }
    prompt = {"chrf": 0.0, "statistics": {"en-de": [[1] * 24] * 10}}
    tasks = (*WORD_TASKS, "questions")
    choices = {task: {"right": [True, False], "chance": 0.25} for task in tasks}
    found = {"steps": 1, "prompt": prompt, "document": document, "plain": {"mean": 1.0}}
    return {**found, "choices": choices}


def test_a_sentence_said_in_two_languages_is_no_surer_than_in_one() -> None:
    mixtures = [
        Mixture(kind, kind, None, seed, Path(), "", {"bilingual_share_of_tokens": share})
        for seed in (0, 1)
        for kind, share in (("baseline", 0.3), ("remove", 0.1), ("enhance", 0.5))
    ]
    found = []
    for languages in (("en",), ("en", "de")):
        models = [measured(one.kind == "remove", languages) for one in mixtures]
        found.append(describe(mixtures, models)["changes"][0]["figures"])
    for name in ("chrf_document", "gain"):
        one, two = (differences[name] for differences in found)
        assert one["value"] == pytest.approx(28.5)
        assert one["low"] < one["value"] < one["high"]
        bounds = ("value", "low", "high")
        assert [two[at] for at in bounds] == pytest.approx([one[at] for at in bounds])


def test_a_share_is_the_same_however_it_is_written() -> None:
    assert selected_share("1.3%", 0.3) == selected_share("0.013", 0.3) == 0.013
    assert selected_share("true", 0.3) == 0.3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bilingual": 1.0}, "bilingual"),
        ({"seeds": ()}, "seeds"),
        ({"shares": ("most",)}, "share"),
        ({"shares": ("sNaN%",)}, "share"),
        ({"shares": ("true", "120%")}, "share"),
        ({"tokens": 0}, "tokens"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TraterExperiment(**change)


def test_a_corpus_too_small_is_refused_before_it_is_rated(
    tmp_path: Path, pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm, "load", lambda *how, **named: pocket)
    config = replace(TINY, tokens=60_000)
    with pytest.raises(InputError, match="more --documents or fewer --tokens"):
        trater_experiment(config, tmp_path / "run")
    assert not (tmp_path / "run" / "find").exists() and not (tmp_path / "run" / "rated").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"prompt": {}}'])
def test_a_damaged_measurement_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(text)
    training = Training(tmp_path, "", 0, 0, 8)
    with pytest.raises(InputError, match=r"measured\.json is damaged; delete it"):
        train_and_measure(training, tmp_path)


def test_a_measurement_of_another_mixture_is_not_taken_for_this_one(
    finished: tuple[Path, dict[str, Any], int],
) -> None:
    place = finished[0] / "trainings" / "seed-4-baseline"
    with pytest.raises(InputError, match="trained on another mixture"):
        train_and_measure(Training(place, "another", 0, 4, 512), place)


def test_workers_train_every_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[Path, int | None]] = []

    def record(training: Training, place: Path, threads: int | None = None) -> None:
        trained.append((place, threads))

    monkeypatch.setattr(experiment, "train_and_measure", record)
    given = [(Training(Path(), "", 0, at, 8), Path(str(at))) for at in range(5)]
    for rank in range(2):
        experiment._Trainings(given)(None, rank, 2)
    assert sorted(trained) == [(Path(str(at)), 1) for at in range(5)]
