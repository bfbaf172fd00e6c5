"""What a user decides instead of a paper reaches the studies that it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope.papers import beside, registry
from headscope.papers.heads_up.runs import mask_step, proof_step
from headscope.papers.heads_up.tasks import directions, word_tasks
from headscope.papers.lahis import steps as lahis
from headscope.papers.lahis.scale import scale
from headscope.papers.paper import PaperData, Setting, Steering
from headscope.papers.token_alignment_heads import steps as alignment
from headscope.studies.models import ModelChoice

STEERING = Steering(
    limit=7,
    draws=5,
    k=3,
    aligner="eflomal",
    measure=("loss",),
    rank="above-chance",
    shots=2,
    chat=True,
    instruction="Say: {input}\n",
    steps=11,
    decode="greedy",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings that each recipe was given, by its name; nothing is run."""
    found: dict[str, Any] = {}

    def instead(module: Any, name: str) -> None:
        def recipe(config: Any, *_: object) -> dict[str, Any]:
            found[name] = config
            return {}

        monkeypatch.setattr(module, name, recipe)

    for name in ("find_translation", "compare_overlap", "verify_removal", "verify_tasks"):
        instead(alignment, name)
    for name in ("verify_perplexity", "verify_summaries"):
        instead(lahis, name)
    return found


def setting(folder: Path, steering: Steering, model: str = "pocket", **data: Any) -> Setting:
    total = Geometry.uniform(6, 16) if model == "pocket" else Geometry.uniform(32, 32)
    return Setting(ModelChoice(model), total, "d", PaperData(**data), folder, steering=steering)


def run(paper: str, experiment: str, given: Setting) -> None:
    (one,) = (e for e in registry.paper_named(paper).experiments if e.name == experiment)
    steps = one.steps(given)
    assert isinstance(steps, tuple)
    for step in steps:
        if step.name != "task-files":
            step.run(given, given.at(step.name), None)


def test_heads_that_align_tokens(tmp_path: Path, asked: dict[str, Any]) -> None:
    given = setting(tmp_path, STEERING)
    for experiment in ("figure-1", "figure-5", "figure-9"):
        run("token-alignment-heads", experiment, given)
    score = asked["find_translation"].score
    assert (score.aligner, score.decode, score.chat) == ("eflomal", "greedy", True)
    assert asked["find_translation"].pairs.limit == 7 and asked["find_translation"].pairs.shots == 2
    removal = asked["verify_removal"]
    assert (removal.k, removal.pairs.limit, removal.pairs.shots) == ((3,), 7, 2)
    assert (removal.removal.measure, removal.removal.all_draws) == (("loss",), {"loss": 5})
    assert removal.removal.chat is True
    assert asked["compare_overlap"].k == 3 and asked["verify_tasks"].k == (3,)
    assert asked["verify_tasks"].removal.draws == 5 and asked["verify_tasks"].limit == 7
    for name in ("find_translation", "compare_overlap", "verify_removal", "verify_tasks"):
        assert asked[name].rank == "above-chance"


def test_the_papers_own_prompts_and_ranking(tmp_path: Path, asked: dict[str, Any]) -> None:
    files = ("en-zh=a.tsv", "zh-en=b.tsv")
    given = setting(tmp_path, Steering(), "org/model", pairs=files)
    for half in ("dev", "devtest"):
        (given.at("sentences") / half).mkdir(parents=True)
        for pair in ("en-zh", "zh-en"):
            (given.at("sentences") / half / f"{pair}.tsv").write_text("a\tb\n")
    (one,) = (
        e for e in registry.paper_named("token-alignment-heads").experiments if e.name == "figure-1"
    )
    steps = one.steps(given)
    assert isinstance(steps, tuple)
    for step in steps:
        if step.name != "sentences":
            step.run(given, given.at(step.name), None)
    for name, own in (("find_translation", "score"), ("verify_removal", "removal")):
        assert getattr(asked[name], own).chat is False and asked[name].rank == "score"
        assert asked[name].pairs.language_names == ("zh=Simplified Chinese",)
    # Enough for p over draws to be 0.05.
    assert asked["verify_removal"].removal.all_draws == {"text": 39}


def test_masks(tmp_path: Path) -> None:
    given = setting(tmp_path, STEERING)
    for task in (directions(given)[0], word_tasks(given)[0]):
        runs: list[Any] = [made(given, task).run for made in (mask_step, proof_step)]
        mask, proof = (run.settings(given) for run in runs)
        for choice in (mask.task, proof.tasks):
            assert (choice.limit, choice.shots, choice.chat) == (7, 2, True)
            assert choice.instruction == "Say: {input}\n"
        assert mask.changes["steps"] == 11 and proof.draws == 5


def test_what_stands_beside_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    for name in ("find_by_links", "verify_removal", "verify_together"):
        monkeypatch.setattr(
            beside, name, lambda config, *_, name=name: asked.update({name: config}) or {}
        )
    given = setting(tmp_path, STEERING)
    for experiment in ("threshold", "pairs"):
        run("beside", experiment, given)
    assert asked["find_by_links"].pairs.limit == 7 and asked["find_by_links"].pairs.shots == 2
    assert asked["verify_removal"].removal.all_draws == {"loss": 5}
    assert asked["verify_removal"].removal.chat is True


def test_few_examples_of_files_are_halved(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('[{"input": "a", "output": "b"}]', "utf-8")
    for limit, held_out in ((7, 3), (1000, 100)):
        given = setting(tmp_path, Steering(limit=limit), "org/model", tasks=(str(file),))
        (task,) = word_tasks(given)
        assert (task.choice.limit, task.choice.held_out) == (limit, held_out)


@pytest.mark.parametrize("wrong", [{"k": "0"}, {"k": "many"}, {"measure": ("lost",)}])
def test_what_cannot_be_meant_is_told_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Steering(**wrong)


def test_heads_of_languages(tmp_path: Path, asked: dict[str, Any]) -> None:
    given = setting(tmp_path, STEERING)
    one = scale(given)
    assert (one.found, one.tested, one.summaries) == (7, 7, 7)
    assert (one.draws, one.layer_draws, one.writing_draws) == (5, 5, 5)
    for step in (lahis.perplexity(given), lahis.summaries(given)):
        step.run(given, tmp_path, None)
    assert asked["verify_perplexity"].k == (3,) and asked["verify_perplexity"].removal.draws == 5
    assert asked["verify_summaries"].k == 3 and asked["verify_summaries"].draws == 5
