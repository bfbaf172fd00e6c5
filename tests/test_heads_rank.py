"""Whatever cuts translation scores by --k takes the heads that --rank puts first."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import json_of
from headscope.data.pairs import PairFile, SentencePair
from headscope.errors import InputError
from headscope.find.translation_score_config import TranslationScore
from headscope.heads import Geometry, HeadScores, HeadSet, Rank, save_scores
from headscope.lm import LanguageModel
from headscope.papers.paper import PaperData, Setting
from headscope.papers.plan import make_plan
from headscope.papers.registry import paper_named
from headscope.runs import Signature, open_run
from headscope.runs.signature import configuration
from headscope.studies.compare.checkpoints import Checkpoint
from headscope.studies.compare.formation import Formation, MeasuredCheckpoint, Opened, series
from headscope.studies.models import ModelChoice
from headscope.studies.use.steering import Steer, steering_heads
from headscope.studies.verify.one_by_one import OneByOne, starting_order
from headscope.verify.language_texts.conditions import language_heads
from headscope.verify.one_by_one_steps import Order

#: The best head by each ranking; the other one is second.
BEST: dict[Rank, str] = {"above-chance": "1.3", "score": "1.1"}
RANKS = pytest.mark.parametrize(("rank", "best"), BEST.items())


def swapped(geometry: Geometry) -> HeadScores:
    """Translation scores whose best head owes most of its score to chance."""
    values, chance = np.zeros(geometry.shape), np.zeros(geometry.shape)
    values[1, 1], values[1, 3], chance[1, 1] = 0.9, 0.5, 0.8
    return HeadScores(geometry, values, "translation-score", extra={"chance": chance})


TASK = """task: small
dataset_path: json
dataset_kwargs: {data_files: {test: corpus.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: ["A", "B"]
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
COMMANDS = (
    "use adapt --prompt x",
    "use adapt --steer de",
    "use export",
    "use rate --data de={folder}/corpus.jsonl",
    "verify removal --pair en-de --limit 1",
    "verify tasks --task {folder}/small.yaml",
    "verify perplexity --language de --limit 2",
    "verify summaries --limit 2",
    "verify off-target --limit 2",
    "verify one-by-one --pair en-de --limit 1",
    "verify one-by-one --pair en-de --limit 1 --order descending",
    "find soft-gate",
    "find key-tokens --prompt cat --word cat",
)


@pytest.mark.usefixtures("loaded")
@RANKS
@pytest.mark.parametrize("words", COMMANDS)
def test_commands_take_the_head_that_the_rank_puts_first(
    words: str,
    rank: Rank,
    best: str,
    pocket: LanguageModel,
    command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "ein Wort"}\n', "utf-8")
    (tmp_path / "small.yaml").write_text(TASK, "utf-8")
    save_scores(tmp_path / "found", swapped(pocket.geometry))
    signed: dict[str, Any] = {}

    def stop(name: str, config: Any, inputs: Any) -> Any:
        """What decides the run is known before anything is computed."""
        signed.update(configuration(config), inputs=inputs)
        raise InputError("stopped")

    monkeypatch.setattr(Signature, "of", stop)
    spoken = words.format(folder=tmp_path).split()
    said = command(*spoken, "--heads", tmp_path / "found", "--k", 1, "--rank", rank)
    assert said.err == "error: stopped\n"
    assert signed["rank"] == rank
    # Chosen heads stand before random ones, or in a digest.
    names = {name: head for head in BEST.values() for name in (head, sha256(head))}
    written = re.findall(r"[0-9a-f.]+", json.dumps(signed))
    assert next(names[one] for one in written if one in names) == best


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@RANKS
def test_scores_of_a_language_are_cut_by_the_rank(
    rank: Rank, best: str, pocket: LanguageModel, tmp_path: Path
) -> None:
    geometry = pocket.geometry
    save_scores(tmp_path, {"de": swapped(geometry), "en": swapped(geometry)})
    (own,) = language_heads(str(tmp_path), 1, ["de"], None, geometry, rank)
    assert own.full == HeadSet.parse(best, geometry) and not own.chosen
    HeadSet.parse("0.0", geometry).save_pretrained(tmp_path / "specific" / "de")
    config = Steer(languages=("de",), heads=str(tmp_path), k=1, ranking="importance", rank=rank)
    assert steering_heads(config, pocket) == {"de": HeadSet.parse(best, geometry)}


@RANKS
def test_an_order_of_heads_goes_by_the_rank(
    rank: Rank, best: str, pocket: LanguageModel, tmp_path: Path
) -> None:
    save_scores(tmp_path, swapped(pocket.geometry))
    orders: tuple[Order, ...] = ("given", "descending")
    for order in orders:
        config = OneByOne(heads=str(tmp_path), k=2, order=order, rank=rank)
        assert starting_order(config, pocket).heads[0].key == best


@RANKS
def test_methods_are_compared_by_the_heads_of_the_rank(
    rank: Rank, best: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    places = [tmp_path / "found", tmp_path / "other"]
    for place in places:
        with open_run(place, "find translation-score", {"name": place.name}, {}) as run:
            save_scores(place, swapped(Geometry.uniform(2, 4)))
            run.finish({"run": str(place)})
    said = command("compare", "methods", *places, "--k", 1, "--rank", rank, "--json", "--out",
                   tmp_path / "run")  # fmt: skip
    result = json_of(said.out)
    assert [one["heads"] for one in result["columns"]] == [[best]] * 2
    first = next(one for one in result["heads"] if f"{one['layer']}.{one['head']}" == best)
    assert [one["rank"] for one in first["columns"].values()] == [1, 1]


@RANKS
def test_top_sets_of_checkpoints_are_cut_by_the_rank(rank: Rank, best: str) -> None:
    """The first checkpoint has one best head by either ranking, the last one's by score."""
    last = swapped(Geometry.uniform(2, 4))
    values = np.where(last.values == 0.9, 0.9, 0)
    first = HeadScores(last.geometry, values, last.method, extra={"chance": np.zeros((2, 4))})
    measured = [
        MeasuredCheckpoint(
            Opened(Checkpoint(name, ModelChoice()), last.geometry, {"model": name}, "float32"),
            {},
            {"mean": scores},
            [["ein Hund", "zwei Katzen"]],
        )
        for name, scores in (("first", first), ("last", last))
    ]
    pairs = PairFile(
        tuple(SentencePair(text, text, text) for text in ("ein Hund", "zwei Katzen")),
        "en", "de", "x", "0",
    )  # fmt: skip
    config = Formation((), score=TranslationScore(bootstrap_draws=5), rank=rank)
    ranking, rows = series(measured, {"en-de": pairs}, 1, config)
    assert ranking.rank == rank
    assert rows[0].top_overlap_with_last == (best == BEST["score"])


STEPS = {
    "token-alignment-heads": {
        "scores", "overlap", "removal", "tasks", "rated", "formation", "key-words-plurals-1",
    },
    "lahis": {
        "perplexity", "summaries", "off-target-translate", "off-target-continue", "soft-gate-de",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_papers_rank_by_the_score_itself(name: str, pocket: LanguageModel, tmp_path: Path) -> None:
    setting = Setting(ModelChoice(), pocket.geometry, pocket.digest, PaperData(), tmp_path)
    ranks = {
        one.step.name: one.step.run.settings(setting).rank
        for one in make_plan(paper_named(name).experiments, setting).steps
        if one.step.name in STEPS[name]
    }
    assert ranks == dict.fromkeys(STEPS[name], "score")
