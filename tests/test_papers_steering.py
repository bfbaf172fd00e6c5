"""What a user decides instead of a paper reaches the studies that it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.papers.heads_up.runs import mask_step, proof_step
from headscope.papers.heads_up.tasks import directions, word_tasks
from headscope.papers.lahis.scale import scale
from headscope.papers.paper import PaperData, Setting, Steering
from paper_helpers import asked, setting_of, steps_of

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


def setting(folder: Path, steering: Steering, model: str = "pocket", **data: Any) -> Setting:
    return setting_of(folder, model, data=PaperData(**data), steering=steering)


def asked_by(paper: str, given: Setting, *experiments: str) -> dict[str, Any]:
    """What the steps of experiments ask of their studies."""
    return {
        name: settings
        for experiment in experiments
        for name, settings in asked(given, steps_of(paper, experiment, given)).items()
    }


def test_heads_that_align_tokens(tmp_path: Path) -> None:
    given = setting(tmp_path, STEERING)
    found = asked_by("token-alignment-heads", given, "figure-1", "figure-5", "figure-9")
    scores, removal, tasks = found["scores"], found["removal"], found["tasks"]
    assert (scores.score.aligner, scores.score.decode, scores.score.chat) == (
        "eflomal",
        "greedy",
        True,
    )
    assert (scores.pairs.limit, scores.pairs.shots) == (7, 2)
    assert (removal.k, removal.pairs.limit, removal.pairs.shots) == ((3,), 7, 2)
    assert (removal.measure, removal.all_draws) == (("loss",), {"loss": 5})
    assert removal.chat is True
    assert (found["overlap"].k, tasks.k, tasks.draws, tasks.limit) == (3, (3,), 5, 7)
    assert {found[name].rank for name in ("scores", "overlap", "removal", "tasks")} == {
        "above-chance"
    }


def test_the_papers_own_prompts_and_ranking(tmp_path: Path) -> None:
    files = ("en-zh=a.tsv", "zh-en=b.tsv")
    given = setting(tmp_path, Steering(), "org/model", pairs=files)
    for half in ("dev", "devtest"):
        (given.at("sentences") / half).mkdir(parents=True)
        for pair in ("en-zh", "zh-en"):
            (given.at("sentences") / half / f"{pair}.tsv").write_text("a\tb\n")
    found = asked_by("token-alignment-heads", given, "figure-1")
    assert found["scores"].score.chat is False and found["removal"].chat is False
    for name in ("scores", "removal"):
        assert found[name].rank == "score"
        assert found[name].pairs.language_names == ("zh=Simplified Chinese",)
    # Enough for p over draws to be 0.05.
    assert found["removal"].all_draws == {"text": 39}


def test_masks(tmp_path: Path) -> None:
    given = setting(tmp_path, STEERING)
    for task in (directions(given)[0], word_tasks(given)[0]):
        runs: list[Any] = [made(given, task).run for made in (mask_step, proof_step)]
        mask, proof = (run.settings(given) for run in runs)
        for choice in (mask.task, proof.tasks):
            assert (choice.limit, choice.shots, choice.chat) == (7, 2, True)
            assert choice.instruction == "Say: {input}\n"
        assert mask.changes["steps"] == 11 and proof.draws == 5


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


def test_heads_of_languages(tmp_path: Path) -> None:
    given = setting(tmp_path, STEERING)
    one = scale(given)
    assert (one.found, one.tested, one.summaries) == (7, 7, 7)
    assert (one.draws, one.layer_draws, one.writing_draws) == (5, 5, 5)
    found = asked_by("lahis", given, "ppl", "general-head")
    assert found["perplexity"].k == (3,) and found["perplexity"].draws == 5
    assert found["summaries"].k == 3 and found["summaries"].draws == 5
