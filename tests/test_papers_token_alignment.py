"""Token Alignment Heads as a recipe: coverage, settings, and what is told of made-up runs.

The results below are made up, small enough that every figure can be worked out by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.align import AlignWords, LlmAligner, align_words
from headscope.data.chat import ChatModel
from headscope.data.pairs import write_pairs
from headscope.heads import Geometry, read_scores
from headscope.lm.digests import digest_of_files
from headscope.measure.statistics import holm
from headscope.papers.claims import answer_of, judged, of_removal
from headscope.papers.paper import Experiment, Missing, PaperData, Setting, Steering
from headscope.papers.plan import make_plan
from headscope.papers.published import published
from headscope.papers.results import describe, typeset
from headscope.papers.token_alignment_heads import PAPER
from headscope.papers.token_alignment_heads.alignment import described
from headscope.papers.token_alignment_heads.classes import bounds, group_of, thirds
from headscope.papers.token_alignment_heads.consistency import matrix
from headscope.papers.token_alignment_heads.key_words import (
    compared,
    key_word_claim,
    longest,
    prompts,
)
from headscope.papers.token_alignment_heads.rated import best_documents
from headscope.papers.token_alignment_heads.setting import (
    DIRECTIONS,
    FIGURE_5,
    amounts,
    checked_on,
    found_on,
    how_chosen,
    largest,
    top,
)
from headscope.pocket import weights
from headscope.pocket.sample import sample_pairs
from headscope.shown.blocks import Cell, Claim, Findings, Table
from headscope.studies.inputs import ModelChoice

LLAMA = "meta-llama/Llama-3.1-8B"
DATA = PaperData(
    pairs=("en-zh=pairs.tsv", "zh-en=other.tsv"),
    documents=("de=de.jsonl",),
    benchmarks=("xnli",),
    checkpoints=("step1", "step2"),
    others=("org/base",),
)


def experiment(name: str) -> Experiment:
    return next(one for one in PAPER.experiments if one.name == name)


@pytest.fixture
def bundled(tmp_path: Path) -> Setting:
    """The bundled model's setting, with nothing run."""
    return Setting(ModelChoice(), Geometry((16,) * 6), "digest", PaperData(), tmp_path)


@pytest.fixture
def large(tmp_path: Path) -> Setting:
    """A model of the paper's size, without data."""
    return Setting(ModelChoice(LLAMA), Geometry((32,) * 32), "other", PaperData(), tmp_path)


def put(setting: Setting, step: str, result: dict[str, Any]) -> None:
    folder = setting.at(step)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    (folder / "DONE.json").write_text("{}", encoding="utf-8")


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def row(table: Table, name: str) -> dict[str, Cell]:
    (cells,) = (one.cells for one in table.rows if one.name == name)
    return dict(zip(table.columns, cells, strict=True))


def claims(told: Findings) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in told.more["claims"]}


# Coverage, settings, what is missing


def test_every_table_and_figure_belongs_to_exactly_one_experiment() -> None:
    wanted = [f"Table {n}" for n in range(1, 4)] + [f"Figure {n}" for n in range(1, 29)]
    found = [element for one in PAPER.experiments for element in one.elements]
    assert sorted(found) == sorted(wanted)
    for one in PAPER.experiments:  # and the first of them names it
        assert one.name == one.elements[0].lower().replace(" ", "-")


def test_published_figures_are_all_of_elements_or_sections_of_the_paper() -> None:
    elements = {element for one in PAPER.experiments for element in one.elements}
    tables = {one.table for one in published(PAPER.name) if not one.table.startswith("Section ")}
    assert tables <= elements


def test_small_models_take_shares_and_large_ones_the_papers_numbers(
    bundled: Setting, large: Setting
) -> None:
    assert (top(bundled), amounts(bundled), largest(bundled)) == ("15%", ("15%",), 14)
    assert (top(large), amounts(large), largest(large)) == (20, (20, 30), 30)
    assert "15% of 96 heads (14)" in how_chosen(bundled)
    assert "The paper's settings: the top 20 heads are compared" in how_chosen(large)
    assert "reference translation, with exact word links" in how_chosen(bundled)
    assert "own greedy translation" in how_chosen(large)
    assert "GPT-4.1" in how_chosen(large)
    # 256 heads are the first that the numbers suit.
    assert replace(large, geometry=Geometry((16,) * 16)).small is False
    assert replace(large, geometry=Geometry((255,))).small is True


def test_the_note_says_what_was_decided_instead(bundled: Setting, large: Setting) -> None:
    own = how_chosen(replace(bundled, steering=Steering(k=5, decode="greedy")))
    assert "5 of 96 heads" in own and "15%" not in own
    # No link of the data is of the model's own words.
    assert "own greedy translation, with word links by eflomal" in own and "exact" not in own
    read = how_chosen(replace(large, steering=Steering(k="50", decode="reference", aligner="llm")))
    assert "50 of 1024 heads" in read and "The paper's settings" not in read
    assert "scored on the reference translation, with word links by a language model" in read
    found = {"direction": "en-de", "aligner": "llm", "sentences": 1, "words": 4, "linked": 3}
    example = {"source": "a", "target": "x", "words": [{"target": "x", "source": ["a"]}]}
    for setting, steering, told in (
        (bundled, Steering(), "those."),
        (bundled, Steering(decode="greedy"), "own translations"),
        (large, Steering(decode="reference"), "those."),
    ):
        put(setting, "links", {**found, "example": example})
        setting = replace(setting, steering=steering)
        assert told in experiment("figure-2").tell(setting).found


def test_the_estimate_is_of_what_is_scored(large: Setting) -> None:
    setting = replace(large, data=DATA)
    for decode, name in (("greedy", "generated"), ("reference", "forward")):
        one = replace(setting, steering=Steering(decode=decode))  # type: ignore[arg-type]
        steps = experiment("figure-4").steps(one)
        assert not isinstance(steps, Missing)
        for step in steps[1:]:
            assert getattr(step.work, name) > 0
            assert (step.work.generated > 0) is (decode == "greedy")


def test_no_more_is_said_of_the_paper_than_it_says(large: Setting, bundled: Setting) -> None:
    missing = experiment("figure-1").steps(large)
    assert isinstance(missing, Missing)
    assert "test data" not in missing.why  # the text names the dev split alone
    counts = dict.fromkeys(("no translation", "missing details", "hallucination", "other"), 1)
    rule = {"good": 50.0, "loss": 20.0}
    put(bundled, "failures", {"selected": 4, "rows": 5, "counts": counts, "rule": rule})
    assert "by eye" not in experiment("figure-10").tell(bundled).tables[0].note
    about = {"documents": 1, "tokens": 1, "mean": 0.2, "low": 0.1, "high": 0.3}
    put(bundled, "rated", {"languages": {"de": about}})
    lines(bundled.at("rated") / "documents" / "a.jsonl", [rated("de", 1.0, "bilingual")])
    # Behind the Spanish text stands another, in French.
    assert "mostly" in experiment("table-2").tell(bundled).tables[1].note


def test_small_models_read_references_and_large_ones_translate(
    bundled: Setting, large: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.papers.token_alignment_heads import steps

    asked = []
    monkeypatch.setattr(
        steps, "find_translation", lambda config, out, progress: asked.append(config)
    )
    for setting in (bundled, replace(large, data=DATA)):
        planned = steps.score_steps(setting)
        assert not isinstance(planned, Missing)
        planned[-1].run(setting, setting.at("scores"), None)
    assert [one.score.decode for one in asked] == ["reference", "greedy"]
    assert [one.threshold for one in asked] == [0.1, 0.1]
    assert asked[0].pairs.pair == ("all",)


def test_a_flores_folder_is_read_in_the_papers_directions_and_by_its_splits(
    large: Setting, tmp_path: Path
) -> None:
    for name in ("eng.dev", "zho_simpl.dev", "eng.devtest", "zho_simpl.devtest"):
        (tmp_path / "flores").mkdir(exist_ok=True)
        (tmp_path / "flores" / name).write_text("A sentence.\n", encoding="utf-8")
    setting = replace(large, data=PaperData(pairs=(str(tmp_path / "flores"),)))
    assert (found_on(setting).split, checked_on(setting).split) == ("dev", "devtest")
    assert found_on(setting).pair == checked_on(setting).pair == ("en-zh", "zh-en")
    (tmp_path / "flores" / "deu.dev").write_text("Ein Satz.\n", encoding="utf-8")
    assert found_on(setting).pair == ("en-zh", "zh-en")  # the other split has no German
    (tmp_path / "flores" / "deu.devtest").write_text("Ein Satz.\n", encoding="utf-8")
    assert found_on(setting).pair == ("en-zh", "en-de", "zh-en", "de-en")
    for file in (tmp_path / "flores").glob("eng.*"):
        file.rename(file.with_name(file.name.replace("eng", "por")))
    missing = experiment("figure-1").steps(setting)
    assert isinstance(missing, Missing) and "none of the paper's directions" in missing.why
    # Ten pairs of Figure 5 and twenty of Figure 28, which share all but one.
    assert len(DIRECTIONS) == len(set(DIRECTIONS)) == 21


def test_sentences_without_splits_are_cut_into_halves_that_share_none(
    large: Setting, tmp_path: Path
) -> None:
    file = tmp_path / "en-de.tsv"
    rows = [f"Sentence number {n}.\tSatz Nummer {n}." for n in range(40)]
    file.write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")
    setting = replace(large, data=PaperData(pairs=(f"en-de={file}",)))
    planned = experiment("figure-4").steps(setting)
    assert not isinstance(planned, Missing)
    sentences, scores = planned
    assert scores.after == ("sentences",)
    result = sentences.run(setting, setting.at("sentences"), None)
    halves = []
    for choice in (found_on(setting), checked_on(setting)):
        (named,) = choice.data
        pair, _, place = named.partition("=")
        assert pair == "en-de"
        halves.append(set(Path(place).read_text(encoding="utf-8").splitlines()[1:]))
    assert halves[0] and halves[1] and not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(rows)
    assert result["found_on"]["en-de"] + result["checked_on"]["en-de"] == 40
    # The same once more is read back, not done again.
    assert sentences.run(setting, setting.at("sentences"), None)["signature"] == result["signature"]


def test_without_data_every_experiment_names_flags_that_exist(large: Setting) -> None:
    from typer.main import get_command

    from headscope.cli.app import app
    from headscope.cli.commands import commands_of

    command = commands_of(get_command(app))["reproduce"]
    flags = {name for option in command.params for name in option.opts}
    for one in PAPER.experiments:
        missing = one.steps(large)
        assert isinstance(missing, Missing), one.name
        assert missing.why
        named = set(re.findall(r"--[a-z-]+", missing.give))
        assert named <= flags
        # Trainings from nothing are the only thing that no file replaces.
        assert bool(named) == (one.name != "table-1")


def test_data_make_all_but_the_trainings_runnable(
    large: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = make_plan(PAPER.experiments, replace(large, data=DATA), lambda work: work.tokens)
    assert [one.experiment.name for one in plan.experiments if one.missing] == ["table-1"]
    names = [one.step.name for one in plan.steps]
    assert {"scores-of-org-base", "key-words-ending-fr", "formation", "tasks"} <= set(names)
    assert {"removal-of-org-base", "tasks-of-org-base"} <= set(names)
    assert "task-files" not in names and "corpus" not in names
    seconds = {one.step.name: one.seconds for one in plan.steps}
    # As is; two sizes, each chosen and two times 39 random: of as many sentences as are scored
    # once, 1012 for 997.
    times = 1 + 2 * (1 + 2 * 39)
    assert seconds["removal"] == pytest.approx(times * 1012 / 997 * (seconds["scores"] or 0.0))


def test_one_direction_is_compared_with_nothing(large: Setting) -> None:
    one = replace(large, data=PaperData(pairs=("en-de=a.tsv",)))
    missing = experiment("figure-5").steps(one)
    assert isinstance(missing, Missing) and "--pairs de-en=FILE" in missing.give
    two = replace(large, data=PaperData(pairs=("en-de=a.tsv", "de-en=b.tsv")))
    steps = experiment("figure-5").steps(two)
    assert not isinstance(steps, Missing) and steps[-1].name == "overlap"
    assert not isinstance(experiment("figure-1").steps(one), Missing)


def test_the_pocket_model_needs_nothing_and_takes_the_stored_trainings(bundled: Setting) -> None:
    plan = make_plan(PAPER.experiments, bundled, lambda work: work.tokens)
    assert not [one for one in plan.experiments if one.missing]
    assert {one.step.name: one.state for one in plan.steps}["trater"] == "due"  # other weights
    own = replace(bundled, digest=digest_of_files(weights.path()))
    for retrain, state in ((False, "stored"), (True, "due")):
        plan = make_plan(PAPER.experiments, replace(own, retrain=retrain))
        assert {one.step.name: one.state for one in plan.steps}["trater"] == state


def test_the_stored_trainings_are_the_measured_ones_without_places() -> None:
    place = files("headscope.papers") / "data" / "stored" / "trater-pocket.json"
    stored = json.loads(place.read_text(encoding="utf-8"))
    measured = Path(__file__).parents[1] / "bench" / "results" / "trater-mixtures-pocket.json"
    assert stored == json.loads(measured.read_text(encoding="utf-8"))
    assert stored["signature"] and stored["command"] and stored["machine"]["cpu"]
    assert not re.search(r'"/', json.dumps(stored))  # no absolute path


def test_checkpoints_are_revisions_of_the_model_unless_they_are_places(
    bundled: Setting, large: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.papers.token_alignment_heads import formation

    asked = []
    monkeypatch.setattr(formation, "formation", lambda config, out, progress: asked.append(config))
    for name in ("step-10", "step-20"):
        (tmp_path / "kept" / name).mkdir(parents=True)
        (tmp_path / "kept" / name / "config.json").write_text("{}", encoding="utf-8")
    own = ("step1000", f"{LLAMA}@step500", f"{tmp_path}/kept/step-*")
    data = PaperData(pairs=("en-zh=x.tsv", "zh-en=y.tsv"), checkpoints=own)
    for setting in (bundled, replace(large, data=data)):
        planned = experiment("figure-6").steps(setting)
        assert not isinstance(planned, Missing)
        planned[-1].run(setting, setting.at("formation"), None)
    few, many = asked
    assert [one.name for one in few.checkpoints][-1] == "final"
    assert all(one.bundled for one in few.checkpoints)
    assert (few.check, few.k, few.score.decode) == (20, "15%", "reference")
    assert [(one.model.model, one.model.revision) for one in many.checkpoints] == [
        (f"{tmp_path}/kept/step-10", None),
        (f"{tmp_path}/kept/step-20", None),
        (LLAMA, "step500"),
        (LLAMA, "step1000"),
    ]
    assert (many.check, many.k, many.score.decode) == (50, 20, "greedy")
    assert (few.pairs.language_names, many.pairs.language_names) == ((), ("zh=Simplified Chinese",))


# What is told


def head(layer: int, number: int, score: float, low: float, high: float) -> dict[str, Any]:
    return {"layer": layer, "head": number, "score": score, "low": low, "high": high}


SCORES = {
    "heads": [
        head(1, 0, 0.5, 0.4, 0.6),
        head(1, 1, 0.12, 0.08, 0.16),
        head(0, 0, 0.09, 0.05, 0.13),
        head(2, 1, 0.0, 0.0, 0.0),
    ],
    "layer_profile": [
        {"layer": 0, "heads": 1, "token_alignment": 0},
        {"layer": 1, "heads": 2, "token_alignment": 2},
        {"layer": 2, "heads": 1, "token_alignment": 0},
    ],
}


def model(name: str, counts: tuple[int, int, int], above: int | None) -> dict[str, Any]:
    total = sum(counts)
    kinds = ("token_alignment", "low_activity", "inactive")
    return {
        "name": name,
        "model": name,
        "total": total,
        "counts": dict(zip(kinds, counts, strict=True)),
        "shares": {kind: n / total for kind, n in zip(kinds, counts, strict=True)},
        "counts_above_chance": None if above is None else {"token_alignment": above},
        "shares_above_chance": None if above is None else {"token_alignment": above / total},
        "highest": {"layer": 1, "head": 0, "score": 0.5, "low": 0.4, "high": 0.6},
    }


def test_class_shares_with_bounds_from_the_heads_own_intervals(bundled: Setting) -> None:
    put(bundled, "scores", SCORES)
    put(bundled, "classes", {"models": [model("m", (2, 1, 1), 1)]})
    told = experiment("figure-3").tell(bundled)
    cell = row(told.tables[0], "m")["token alignment %"]
    # One head lies wholly above 0.1, the upper bounds of three do.
    assert (cell.value, cell.low, cell.high, cell.published) == (50.0, 25.0, 75.0, "< 8")
    assert told.figures[0].values == ((50.0, 25.0, 25.0),)  # type: ignore[union-attr]
    assert "2 of 4 heads (50.0%)" in told.found
    assert "below 8%" in told.found
    assert claims(told)["some heads align tokens"]["holds"] is True
    assert claims(told)["token alignment heads are few"]["holds"] is False
    reference = told.tables[0].reference
    assert reference is not None and not reference.comparable


def test_no_such_heads_and_few_of_them_are_told_as_such(bundled: Setting) -> None:
    put(bundled, "classes", {"models": [model("m", (0, 3, 1), 0)]})
    told = experiment("figure-3").tell(bundled)
    assert "No head of 4 scores above 0.1." in told.found
    assert "sparse" not in told.found
    assert claims(told)["some heads align tokens"]["holds"] is False
    put(bundled, "classes", {"models": [model("m", (5, 90, 5), None), model("n", (1, 9, 0), 1)]})
    told = experiment("figure-3").tell(bundled)
    assert "below 8%" in told.found
    assert "2 of 2 models" in told.found
    assert claims(told)["token alignment heads are few"]["holds"] is True
    # Chance that is not known is told as a reason, never as a number.
    cell = row(told.tables[0], "m")["0.1 above chance %"]
    assert cell.value is None and cell.why == "no chance known at every head"
    # Heads above the threshold that are none above chance are no such heads.
    put(bundled, "classes", {"models": [model("m", (5, 90, 5), 0)]})
    assert claims(experiment("figure-3").tell(bundled))["some heads align tokens"]["holds"] is False


def test_heads_that_are_not_surely_above_the_threshold_leave_it_open(bundled: Setting) -> None:
    heads = [head(1, 0, 0.12, 0.08, 0.16), head(1, 1, 0.0, 0.0, 0.0)]
    put(bundled, "scores", {**SCORES, "heads": heads})
    put(bundled, "classes", {"models": [model("m", (1, 0, 1), 1)]})
    told = experiment("figure-3").tell(bundled)
    assert claims(told)["some heads align tokens"]["holds"] is None
    assert "Over several directions shares, and the ends" in told.tables[0].note
    assert "nearly 50% of the heads have low activity and 36% to 55%" in told.tables[0].note


def test_bounds_need_every_heads_interval() -> None:
    assert bounds(SCORES) == (0.25, 0.75)
    assert bounds({"heads": [{"low": None, "high": 0.2}]}) is None
    assert bounds({"heads": []}) is None
    other = {"heads": [head(1, 0, 0.5, 0.4, 0.6)]}
    assert bounds({"heads": [], "directions": {"a": SCORES, "b": other}}) == (0.625, 0.875)


def test_thirds_by_the_middle_of_a_layer() -> None:
    assert thirds([1, 2, 4]) == (1, 2, 4)
    assert thirds([1, 1, 1, 1]) == (1, 2, 1)
    assert sum(thirds(list(range(32)))) == sum(range(32))
    assert thirds([0, 0, 0, 0, 25, 0]) == (0, 0, 25)


def test_positions_say_where_most_heads_lie(bundled: Setting) -> None:
    put(bundled, "scores", SCORES)
    told = experiment("figure-4").tell(bundled)
    assert "2 of 2 token alignment heads (100%) lie in the middle third" in told.found
    assert "as in the paper's models" in told.found
    field = told.figures[0].values  # type: ignore[union-attr]
    assert field == ((0.09, None), (0.5, 0.12), (None, 0.0))
    late = {**SCORES, "layer_profile": [dict(one) for one in SCORES["layer_profile"]]}
    for one, number in zip(late["layer_profile"], (0, 1, 2), strict=True):
        one["token_alignment"] = number
    put(bundled, "scores", late)
    told = experiment("figure-4").tell(bundled)
    assert "highest third" in told.found and "unlike in the paper's models" in told.found
    assert claims(told)["token alignment heads lie in the middle layers"]["holds"] is False


def pair(a: str, b: str, jaccard: float, p: float) -> dict[str, Any]:
    same = a.split("-")[0] == b.split("-")[0]
    return {
        "a": a,
        "b": b,
        "jaccard": jaccard,
        "expected_exact": 0.1,
        "p_value": p,
        "relation": "same source" if same else "other",
    }


@pytest.mark.parametrize(
    ("lowest", "p", "holds"), [(0.7, 0.001, True), (0.5, 0.001, False), (0.7, 0.2, None)]
)
def test_the_bound_of_figure_5_is_asked_of_its_ten_directions(
    bundled: Setting, lowest: float, p: float, holds: bool | None
) -> None:
    of = list(combinations(FIGURE_5, 2))
    pairs = [
        pair(a, b, lowest if at == 7 else 0.9, p if at == 7 else 1e-9)
        for at, (a, b) in enumerate(of)
    ]
    # Directions into English are no part of it, however little they share.
    others = [pair("zh-en", "ja-en", 0.2, 0.3), pair("en-zh", "zh-en", 0.1, 0.5)]
    names = (*FIGURE_5, "zh-en", "ja-en")
    artifacts = [{"name": n, "size": 14} for n in names]
    put(bundled, "overlap", {"artifacts": artifacts, "pairs": [*pairs, *others]})
    told = experiment("figure-5").tell(bundled)
    claim, _ = claims(told).values()
    assert claim["holds"] is holds and "45 of its 45 pairs" in claim["by"]
    table = told.tables[0]
    assert row(table, "Figure 5")["lowest"] == Cell(lowest, published="\u2265 0.6")
    assert row(table, "all")["lowest"] == Cell(0.1)
    assert row(table, "all")["pairs"].value == 47 and "Not every pair" in told.sure
    # Some of the ten agree: what the others would say is open; one that does not agree decides.
    put(bundled, "overlap", {"artifacts": artifacts, "pairs": pairs[:8]})
    claim = next(iter(claims(experiment("figure-5").tell(bundled)).values()))
    assert claim["holds"] is (False if holds is False else None)
    assert bool(claim["decides"]) is (claim["holds"] is None)


def test_directions_from_english_beside_those_into_it(bundled: Setting) -> None:
    names = ("en-de", "en-es", "en-ru", "de-en", "es-en")
    pairs = [
        pair("en-de", "en-es", 0.6, 1e-9),
        pair("en-de", "en-ru", 0.1, 1e-9),  # no direction of the figure
        pair("de-en", "es-en", 0.9, 1e-9),
        pair("en-de", "es-en", 0.2, 1e-9),  # neither
    ]
    found = {"artifacts": [{"name": n, "size": 14} for n in names], "pairs": pairs}
    put(bundled, "overlap", found)
    told = experiment("figure-5").tell(bundled)
    assert row(told.tables[0], "from English")["mean"].value == pytest.approx(0.6)
    assert row(told.tables[0], "into English")["mean"].value == pytest.approx(0.9)
    name = "directions from English share more heads than those into English (Figure 28)"
    assert claims(told)[name]["holds"] is False and not claims(told)[name]["sure"]
    pairs[0]["jaccard"] = 0.95
    put(bundled, "overlap", found)
    assert claims(experiment("figure-5").tell(bundled))[name]["holds"] is True
    put(bundled, "overlap", {**found, "pairs": pairs[:1]})
    told = experiment("figure-5").tell(bundled)
    assert name not in claims(told)
    assert "into English" not in [one.name for one in told.tables[0].rows]


def test_directions_without_english_are_groups_of_figure_28(bundled: Setting) -> None:
    names = ("de-ja", "de-es", "ja-ko", "ja-es", "en-de")
    pairs = [
        pair("de-ja", "de-es", 0.5, 1e-9),
        pair("ja-ko", "ja-es", 0.3, 1e-9),
        pair("de-ja", "ja-ko", 0.7, 1e-9),
        pair("en-de", "en-ru", 0.1, 1e-9),  # not in the figure
    ]
    put(bundled, "overlap", {"artifacts": [{"name": n, "size": 14} for n in names], "pairs": pairs})
    table = experiment("figure-5").tell(bundled).tables[0]
    means = {one.name: one.cells[1].value for one in table.rows}
    assert (means["from German"], means["from Japanese"]) == (0.5, 0.3)
    assert means["Figure 28"] == pytest.approx(0.5) and row(table, "Figure 28")["pairs"].value == 3


def words_of(setting: Setting) -> dict[str, str]:
    plan = make_plan(PAPER.experiments, setting)
    return {name: word for one in plan.experiments for name, (word, _) in one.coverage.items()}


def test_figures_of_directions_are_of_all_of_them(large: Setting, bundled: Setting) -> None:
    few = ("en-pt=a.tsv", "pt-en=b.tsv")
    five = tuple(f"{name}=x.tsv" for name in FIGURE_5)
    every = tuple(f"{name}=x.tsv" for name in DIRECTIONS)
    for pairs, words in (
        (few, ("needs DATA", "needs DATA")),
        (five, ("measured", "needs DATA")),
        (every, ("measured", "measured")),
        (every[1:], ("needs DATA", "needs DATA")),
    ):
        found = words_of(replace(large, data=PaperData(pairs=pairs)))
        assert (found["Figure 5"], found["Figure 28"]) == words
    found = words_of(bundled)
    assert found["Figure 5"] == found["Figure 28"] == "needs MODEL"
    plan = make_plan([experiment("figure-5")], replace(large, data=PaperData(pairs=every[1:])))
    _, missing = plan.experiments[0].coverage["Figure 28"]
    assert missing is not None and missing.give == "--pairs PAIR=FILE for en-zh"


def test_the_matrix_is_symmetric_with_ones_and_gaps() -> None:
    found = matrix(("x", "y", "z"), [{"a": "x", "b": "y", "jaccard": 0.25}])
    assert found == ((1.0, 0.25, None), (0.25, 1.0, None), (None, None, 1.0))


def checkpoint(name: str, step: int | None, share: float, **more: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "name": name,
        "step": step,
        "token_alignment": share,
        "low_activity": 1 - share,
        "inactive": 0.0,
        "counts": {"token_alignment": 100 * share, "low_activity": 100 * (1 - share)},
        "above_chance": None,
        "overlap_with_last": 0.9,
        "overlap_with_last_expected": share,
        "top_overlap_with_last": 0.5,
        "chrf": 50.0,
        "chrf_low": 45.0,
        "chrf_high": 55.0,
    }
    return known | more


def test_formation_follows_the_figures_both_ways(bundled: Setting) -> None:
    rows = [
        checkpoint("a", 10, 0.0, overlap_with_last=0.0, chrf=5.0, chrf_low=4.0, chrf_high=6.0),
        checkpoint("b", 20, 0.3, chrf=70.0, chrf_low=65.0, chrf_high=75.0),
        checkpoint("final", None, 0.2, overlap_with_last=1.0, chrf=80.0, chrf_low=78.0),
    ]
    put(bundled, "formation", {"checkpoints": rows})
    told = experiment("figure-6").tell(bundled)
    assert "30.0% at its highest (b) and 20.0% at the end." in told.found
    # 65 of the 75 points; the later step has the other 10.
    assert "from 5.0 to 80.0; its largest rise is between a and b (+65.0)" in told.found
    assert "From b on at least 80 %" in told.found
    assert "lie apart" in told.sure
    assert row(told.tables[0], "a")["chrF++"] == Cell(5.0, 4.0, 6.0, digits=1)
    end = row(told.tables[1], "at the end")["token alignment %"]
    assert (end.value, end.published) == (pytest.approx(20.0), pytest.approx(2.6))
    peak = row(told.tables[1], "largest share (b; paper: step 8000)")["overlap with last"]
    assert (peak.value, peak.published) == (0.9, 0.9)  # Figure 7
    assert (
        claims(told)["token alignment heads multiply in training and thin out later"]["holds"]
        is True
    )
    # Above chance the same heads do not thin out: the claim is left open.
    name = "token alignment heads multiply in training and thin out later"
    for last, holds in ((0.1, None), (0.093, None), (0.09, True)):  # less than a head is no fall
        for one, share in zip(rows, (0.0, 0.1, last), strict=True):
            one["above_chance"] = {"token_alignment": share}
        put(bundled, "formation", {"checkpoints": rows})
        again = experiment("figure-6").tell(bundled)
        assert f"10.0% at their highest (b) and {last:.1%} at the end." in again.found
        assert claims(again)[name]["holds"] is holds
    # A checkpoint without a step is in the table alone.
    assert [point[0] for point in told.figures[0].series[0].points] == [10.0, 20.0]  # type: ignore[union-attr]
    assert "without a step" in told.figures[0].note


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ((0.1, 0.2, 0.3), "10.0% at c1, 30.0% at its highest (c3) and 30.0% at the end."),
        ((0.3, 0.2, 0.1), "30.0% at c1, 30.0% at its highest (c1) and 10.0% at the end."),
        ((0.2, 0.2, 0.2), "20.0% at c1, 20.0% at its highest (c1) and 20.0% at the end."),
    ],
)
def test_phases_that_are_not_there(bundled: Setting, shares: tuple[float, ...], words: str) -> None:
    rows = [checkpoint(f"c{n}", n, share) for n, share in enumerate(shares, 1)]
    rows[-2]["overlap_with_last"] = 0.1
    put(bundled, "formation", {"checkpoints": rows})
    told = experiment("figure-6").tell(bundled)
    assert words in told.found
    assert "fewer than 80 %" in told.found
    assert "overlap. It is one training" in told.sure
    assert (
        claims(told)["token alignment heads multiply in training and thin out later"]["holds"]
        is False
    )


def test_a_training_that_only_unlearns_is_told_so(bundled: Setting) -> None:
    worse = {"chrf": 10.0, "chrf_low": 8.0, "chrf_high": 12.0}
    rows = [
        checkpoint("a", 1, 0.2, overlap_with_last=None),
        checkpoint("b", 2, 0.0, overlap_with_last=None, **worse),
    ]
    put(bundled, "formation", {"checkpoints": rows})
    told = experiment("figure-6").tell(bundled)
    assert "chrF++ goes from 50.0 to 10.0, and never rises." in told.found
    assert "80 %" not in told.found  # the last checkpoint has no heads to be there
    assert "lie apart" in told.sure


def condition(kind: str, chrf: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "k": 14,
        "gate": 0.0,
        "draw": None if kind == "top" else 0,
        "chrf": chrf,
        "bleu": chrf / 2,
        "off_target": 0.0,
        "source_copy": 0.25,
        "comet": None,
        "bleurt": None,
        **more,
    }


def removal(low: float | None, high: float | None) -> dict[str, Any]:
    value = None if low is None or high is None else (low + high) / 2
    top_row = condition(
        "top",
        30.0,
        change={"chrf": {"value": -60.0, "low": -62.0, "high": -58.0}},
        against_random={"value": value, "low": low, "high": high},
        against_random_layer_matched={"value": None, "low": None, "high": None},
        p_sentences=0.001,
        p_draws=0.025,
        least_p=0.025,
        distinct_draws=39,
    )
    return {
        "sentences": 40,
        "draws": 2,
        "directions": {"en-de": {}, "de-en": {}},
        "leakage": {"overlap": 0},
        "not_measured": {"comet": "comet-score is not installed"},
        "baseline": {
            **{"chrf": 90.0, "low": 88.0, "high": 92.0, "bleu": 45.0},
            **{"off_target": 0.0, "source_copy": 0.0, "comet": None, "bleurt": None},
        },
        "conditions": [top_row, condition("random", 80.0), condition("random", 86.0, draw=1)],
    }


@pytest.mark.parametrize(
    ("low", "high", "words", "holds"),
    [
        (-55.0, -51.0, "Beside random ones that is -53.0 (-55.0 to -51.0) points.", True),
        (2.0, 4.0, "+3.0 (+2.0 to +4.0) points.", False),
        (-1.0, 3.0, "+1.0 (-1.0 to +3.0) points.", None),
        (None, None, "Nothing random was removed", None),
    ],
)
def test_removal_says_what_the_interval_beside_random_heads_says(
    bundled: Setting, low: float | None, high: float | None, words: str, holds: bool | None
) -> None:
    put(bundled, "removal", removal(low, high))
    told = experiment("figure-1").tell(bundled)
    assert words in told.found
    assert "chrF++ is 90.0 as it is and 30.0 without the top 14 heads" in told.found
    assert "it is 83.0" in told.found  # (80 + 86) / 2
    assert "25.0% copy the source" in told.found
    assert claims(told)["translation needs the heads"]["holds"] is holds
    table = told.tables[0]
    change = list(row(table, "without the top 14").items())
    assert table.columns[1] == "its change"
    cells = next(one.cells for one in table.rows if one.name == "without the top 14")
    assert (cells[1].value, cells[1].low, cells[1].high) == (-60.0, -62.0, -58.0)
    assert (cells[1].published, cells[3].published) == ("< \u221225", "< \u221217")
    assert cells[3].value == -30.0 and len(change) >= 4
    random = next(one.cells for one in table.rows if one.name == "without 14 random heads")
    assert (random[0].value, random[1].value) == (83.0, -7.0)
    matched = next(one.cells for one in table.rows if one.name.endswith("of the same layers"))
    assert matched[0].value is None and matched[0].why == "not run"
    assert [one.values for one in told.figures] == [  # type: ignore[union-attr]
        ((-30.0, -3.5, None),),
        ((-60.0, -7.0, None),),
    ]
    assert len(told.tables) == 1  # no outputs, no example


def test_heads_that_are_no_loss_are_not_needed(bundled: Setting) -> None:
    """Random removals that do good make the chosen heads look needed, and they are not."""
    found = removal(-4.0, -2.0)
    found["conditions"][0]["change"]["chrf"] = {"value": 0.5, "low": -0.5, "high": 1.5}
    put(bundled, "removal", found)
    told = experiment("figure-1").tell(bundled)
    assert "points, where the change as such includes zero" in told.found
    assert claims(told)["translation needs the heads"]["holds"] is None


def test_heads_from_other_layers_are_counted(bundled: Setting) -> None:
    found = removal(-55.0, -51.0)
    put(bundled, "removal", found)
    assert "nearest layers" not in experiment("figure-1").tell(bundled).tables[0].note
    found["conditions"].append(condition("random-layer-matched", 85.0, filled_up=6))
    put(bundled, "removal", found)
    note = experiment("figure-1").tell(bundled).tables[0].note
    assert "Of those of the same layers 6 come from the nearest layers" in note


def test_bounds_over_models_are_no_figure_to_differ_from(large: Setting) -> None:
    """Not even for a model of the paper: it lies below a bound, and that is no difference."""
    setting = replace(large, data=DATA)
    pairs = [pair("en-de", "en-fr", 0.9, 1e-9), pair("de-en", "es-en", 0.7, 1e-9)]
    put(setting, "removal", removal(-55.0, -51.0))
    put(setting, "scores", SCORES)
    put(setting, "classes", {"models": [model(LLAMA, (2, 1, 1), 1)]})
    put(setting, "overlap", {"artifacts": [{"name": "en-de", "size": 20}], "pairs": pairs})
    put(setting, "tasks", {"tasks": {"xnli": task(0.8, -0.1, 0.2, 0.7)}, "draws": 3})
    counts = {"no translation": 9, "missing details": 1, "hallucination": 0, "other": 0}
    rule = {"good": 50.0, "loss": 20.0}
    put(setting, "failures", {"selected": 10, "rows": 12, "counts": counts, "rule": rule})
    for name in ("figure-1", "figure-3", "figure-5", "figure-9", "figure-10"):
        table = experiment(name).tell(setting).tables[0]
        assert any(cell.published is not None for one in table.rows for cell in one.cells), name
        assert table.reference is not None and not table.reference.comparable, name
        assert table.reference.why.startswith("not comparable: told of several"), name


def test_a_share_of_the_very_model_is_compared_on_the_papers_data(
    large: Setting, tmp_path: Path
) -> None:
    name = "mistralai/Mistral-7B-v0.3"
    for file in ("eng.dev", "zho_simpl.dev", "eng.devtest", "zho_simpl.devtest"):
        (tmp_path / file).write_text("A sentence.\n", encoding="utf-8")
    setting = replace(large, model=ModelChoice(name), data=PaperData(pairs=(str(tmp_path),)))
    # No folder of such names is known to be FLORES, and links are never the paper's.
    for one in (setting, replace(setting, data=DATA)):
        put(one, "classes", {"models": [model(name, (2, 1, 1), 1), model("n", (1, 1, 2), 1)]})
        table = experiment("figure-3").tell(one).tables[0]
        shares = [each.cells[1] for each in table.rows]
        assert [share.published for share in shares] == [pytest.approx(3.0), None]
        assert table.reference is not None
        assert table.reference.model == "Mistral-7B-v0.3" and not table.reference.comparable
        assert "links" in table.reference.why and "by content" in table.reference.why


def test_the_example_is_the_first_right_one_that_fails(bundled: Setting) -> None:
    put(bundled, "removal", removal(-55.0, -51.0))
    made = []
    for number, (as_is, without) in enumerate(
        [("wrong", "worse"), ("right", "right"), ("right", "gone")]
    ):
        about = {"direction": "en-de", "id": str(number), "source": f"s{number}"}
        about["reference"] = "right"
        for kind, text in (("baseline", as_is), ("top", without), ("random", "near")):
            made.append(
                {**about, "condition": kind, "k": 0 if kind == "baseline" else 14, "gate": 0.0}
                | {"draw": 0 if kind == "random" else None, "output": text}
            )
    lines(bundled.at("removal") / "outputs.jsonl", made)
    table = experiment("figure-1").tell(bundled).tables[1]
    texts = {one.name: one.cells[0].value for one in table.rows}
    assert texts["source"] == "s2"
    assert texts["no heads removed"] == "right"
    assert texts["top 14 removed"] == "gone"
    assert texts["14 random heads removed"] == "near"
    assert texts["14 random heads of the same layers removed"] is None


def test_failures_beside_the_papers_shares(bundled: Setting) -> None:
    counts = {"no translation": 1, "missing details": 6, "hallucination": 3, "other": 0}
    found = {"selected": 10, "rows": 12, "counts": counts, "rule": {"good": 50.0, "loss": 20.0}}
    put(bundled, "failures", found)
    told = experiment("figure-10").tell(bundled)
    shares = {one.name: one.cells[1] for one in told.tables[0].rows}
    assert [shares[kind].value for kind in counts] == [10.0, 60.0, 30.0, 0.0]
    assert [shares[kind].published for kind in counts] == [46.0, 36.0, 18.0, None]
    # Wilson's interval of 6 of 10.
    assert shares["missing details"].low == pytest.approx(31.27, abs=0.01)
    assert shares["missing details"].high == pytest.approx(83.18, abs=0.01)
    assert "missing details 60%, hallucination 30%, no translation 10%" in told.found
    (claim,) = told.more["claims"]
    assert claim["holds"] is None  # 1 of 7 may be half of them
    put(bundled, "failures", {**found, "counts": {**counts, "missing details": 16}, "selected": 20})
    assert experiment("figure-10").tell(bundled).more["claims"][0]["holds"] is False
    put(bundled, "failures", {**found, "counts": {**counts, "no translation": 8}, "selected": 17})
    told = experiment("figure-10").tell(bundled)
    # 8 of the 14 failures of the two most frequent kinds: that may be chance; 80 of 140 is not.
    assert told.more["claims"][0]["holds"] is None
    many = {kind: 10 * number for kind, number in {**counts, "no translation": 10}.items()}
    put(bundled, "failures", {**found, "counts": many, "selected": 190})
    assert experiment("figure-10").tell(bundled).more["claims"][0]["holds"] is True
    tie = {**counts, "no translation": 6}
    put(bundled, "failures", {**found, "counts": tie, "selected": 15})
    assert experiment("figure-10").tell(bundled).more["claims"][0]["holds"] is None


def test_no_failure_is_nothing_to_sort(bundled: Setting) -> None:
    counts = dict.fromkeys(("no translation", "missing details", "hallucination", "other"), 0)
    rule = {"good": 50.0, "loss": 20.0}
    put(bundled, "failures", {"selected": 0, "rows": 5, "counts": counts, "rule": rule})
    told = experiment("figure-10").tell(bundled)
    assert "nothing to sort" in told.found
    assert not told.figures
    assert told.tables[0].rows[0].cells[1].why == "no translation failed"


def task(base: float, change: float, width: float, random: float) -> dict[str, Any]:
    against = base + change - random
    top_row = {
        "kind": "top",
        "k": 14,
        "value": base + change,
        "change": {"value": change, "low": change - width, "high": change + width},
        "against_random": {"value": against, "low": against - width, "high": against + width},
    }
    return {
        "metric": "acc",
        "examples": 100,
        "baseline": {"value": base, "low": base - 0.1, "high": base},
        "conditions": [top_row, {"kind": "random", "k": 14, "value": random}],
    }


def test_tasks_within_and_across_languages(bundled: Setting) -> None:
    tasks = {
        "pocket_translate_words": task(0.9, -0.5, 0.1, 0.8),  # 40 points below random heads
        "pocket_plurals": task(0.8, 0.0, 0.1, 0.5),  # 30 above
        "pocket_capitals": task(0.8, -0.1, 0.2, 0.7),  # no difference
    }
    put(bundled, "tasks", {"tasks": tasks, "draws": 5})
    told = experiment("figure-9").tell(bundled)
    assert "change by -50.0 points on average, tasks within one language by -5.0" in told.found
    assert claims(told)["other tasks need the heads less"]["holds"] is True
    cells = row(told.tables[0], "pocket_translate_words")
    assert cells["as it is %"].value == 90.0
    assert cells["change without the heads"].value == -50.0
    assert cells["change without the heads"].published == -10.0  # beside our largest loss
    assert row(told.tables[0], "pocket_plurals")["change without the heads"].published is None
    assert cells["without random ones"].value == pytest.approx(-10.0)
    assert cells["of the same layers"].value is None
    assert cells["chosen less random"].value == pytest.approx(-40.0)
    # The reverse, and the same: told as such.
    tasks["pocket_translate_words"], tasks["pocket_plurals"] = (
        task(0.9, 0.0, 0.01, 0.9),
        task(0.8, -0.7, 0.01, 0.8),
    )
    put(bundled, "tasks", {"tasks": tasks, "draws": 5})
    told = experiment("figure-9").tell(bundled)
    assert claims(told)["other tasks need the heads less"]["holds"] is False
    put(
        bundled, "tasks", {"tasks": {name: task(0.5, -0.1, 0.1, 0.5) for name in tasks}, "draws": 5}
    )
    told = experiment("figure-9").tell(bundled)
    assert claims(told)["other tasks need the heads less"]["holds"] is None


def test_translation_alone_is_told_where_the_tasks_are_missing(bundled: Setting) -> None:
    put(bundled, "removal", removal(-55.0, -51.0))
    told = experiment("figure-9").tell(bundled)
    (table,) = told.tables
    assert row(table, "chrF++")["change without the top 14"].value == -60.0
    comet = row(table, "COMET")["as it is"]
    assert comet.value is None and comet.why == "not measured"
    assert not told.found and not told.more


def mixture(kind: str, chrf: float, low: float, high: float) -> dict[str, Any]:
    value = (low + high) / 2
    seeds = [0.9 * value, value, 1.1 * value]
    one = {"value": value, "low": low, "high": high, "by_seed": seeds}
    plain = {"value": 0.1, "by_seed": [0.1]}
    return {
        "kind": kind,
        "seeds": [0, 1, 2],
        "chrf_prompt": chrf,
        "chrf_document": chrf - 1,
        "differences": {"chrf_prompt": one, "plain_nll": plain},
    }


BASE = {"kind": "baseline", "seeds": [0, 1, 2], "chrf_prompt": 40.0, "chrf_document": 39.0}


CORPUS = {
    "corpus": {"bilingual_share_of_tokens": 0.31},
    "machine": {"commit": "abcdef1234"},
}


@pytest.mark.parametrize(
    ("remove", "enhance", "holds", "words"),
    [
        (
            (-6.0, -4.0),
            (2.0, 4.0),
            None,
            "-5.0 (-6.0 to -4.0) (paper -2.5).",
        ),
        (
            (-6.0, -4.0),
            (70.0, 74.0),
            None,
            "+72.0 (+70.0 to +74.0) (paper +2.8).",
        ),
        ((1.0, 3.0), (2.0, 4.0), False, "+2.0 (+1.0 to +3.0) (paper -2.5)."),
        ((-1.0, 1.0), (2.0, 4.0), None, "+0.0 (-1.0 to +1.0) (paper -2.5)."),
    ],
)
def test_trainings_beside_table_1(
    bundled: Setting,
    remove: tuple[float, float],
    enhance: tuple[float, float],
    holds: bool | None,
    words: str,
) -> None:
    conditions = [BASE, mixture("remove", 35.0, *remove), mixture("enhance", 43.0, *enhance)]
    file = bundled.kept("trater")
    file.parent.mkdir(parents=True)
    file.write_text(
        json.dumps({**CORPUS, "conditions": conditions, "note": "a note"}), encoding="utf-8"
    )
    told = experiment("table-1").tell(bundled)
    table = told.tables[0]
    assert table.columns == ("chrF++",)
    ours = row(table, "remove: without the selected texts")["chrF++"]
    assert (ours.value, ours.published) == (35.0, 41.33)
    assert "MMMLU, " in table.note and "do not exist for this world" in table.note
    assert words in told.found
    # Without models that learned from a random selection of the same size nothing holds.
    claim = claims(told)["texts that need the heads teach translation"]
    assert claim["holds"] is holds and ("random selection" in claim["decides"]) is (holds is None)
    assert "31% bilingual" in table.note and "abcdef1" in table.note
    assert row(told.tables[1], "remove: without the selected texts")["gain, nats"].why == "not run"


@pytest.mark.parametrize(
    ("random", "by_seed", "holds"),
    [
        ({"remove": (-7.0, -5.0), "enhance": (60.0, 64.0)}, (0.9, 1.0, 1.1), True),
        # A random selection does as much; trainings differ as much as the selections do.
        ({"remove": (-7.0, -5.0), "enhance": (-1.0, 3.0)}, (0.9, 1.0, 1.1), None),
        ({"remove": (-7.0, -5.0), "enhance": (60.0, 64.0)}, (0.1, 0.2, 2.7), None),
        ({"remove": (5.0, 7.0), "enhance": (60.0, 64.0)}, (0.9, 1.0, 1.1), False),
    ],
)
def test_selections_are_held_against_random_ones_of_the_same_size(
    bundled: Setting,
    random: dict[str, tuple[float, float]],
    by_seed: tuple[float, ...],
    holds: bool | None,
) -> None:
    conditions = [BASE]
    for kind, (low, high) in {"remove": (-6.0, -4.0), "enhance": (70.0, 74.0)}.items():
        one = mixture(kind, 40.0, low, high)
        least, most = random[kind]
        value = (least + most) / 2
        seeds = [value * share for share in by_seed]
        change = {"value": value, "low": least, "high": most, "by_seed": seeds}
        one["against_random"] = {"chrf_prompt": change}
        conditions += [one, mixture(f"{kind} random", 40.0, -1.0, 1.0)]
    put(bundled, "trater", {**CORPUS, "conditions": conditions})
    told = experiment("table-1").tell(bundled)
    claim = claims(told)["texts that need the heads teach translation"]
    assert claim["holds"] is holds
    ours = row(told.tables[1], "remove, less random")["chrF++, prompt"]
    assert (ours.low, ours.high) == random["remove"]
    assert row(told.tables[0], "remove random: without as many random ones")["chrF++"].value == 40.0


def test_a_mixture_that_was_not_trained_is_told(bundled: Setting) -> None:
    put(bundled, "trater", {**CORPUS, "conditions": [BASE]})
    told = experiment("table-1").tell(bundled)
    assert "with three times as many of them was not trained" in told.found
    assert row(told.tables[0], "remove: without the selected texts")["chrF++"].why == "not run"
    assert not told.more


def rated(language: str, score: float, kind: str | None) -> dict[str, Any]:
    about = {"id": f"{language}{score}", "text": "one\ntwo", "language": language, "score": score}
    return about if kind is None else about | {"kind": kind}


def test_the_best_documents_of_each_language() -> None:
    rows = [rated("de", n, "monolingual") for n in range(10)] + [rated("en", 0.5, "bilingual")]
    found = best_documents(rows, 0.2)
    assert [one["score"] for one in found["de"]] == [9, 8]
    assert [one["score"] for one in found["en"]] == [0.5]  # at least one


@pytest.mark.parametrize(
    ("best", "others", "random", "words", "holds"),
    [
        ("bilingual", "monolingual", 19, "100% of 20 selected documents", True),
        # Random heads that select as many translations; fewer sets than decide.
        ("bilingual", "monolingual", -19, "100% of 20 selected documents", None),
        ("bilingual", "monolingual", 5, "100% of 20 selected documents", None),
        ("bilingual", "monolingual", 0, "100% of 20 selected documents", None),
        ("monolingual", "bilingual", 19, "0% of 20 selected documents", False),
        (None, None, 0, "the data do not say", None),
    ],
)
def test_whether_selected_documents_carry_translations(
    bundled: Setting,
    best: str | None,
    others: str | None,
    random: int,
    words: str,
    holds: bool | None,
) -> None:
    kinds = ["bilingual" if random < 0 else "monolingual"] * 20
    draws = [{"means": {"de": 0.1}, "kinds": {"de": kinds}}] * abs(random)
    put(bundled, "rated-random", {"draws": draws})
    rows = [rated("de", 100.0 + n, best) for n in range(20)]
    rows += [rated("de", n / 1000, others) for n in range(380)]
    about = {"documents": 400, "tokens": 1, "mean": 0.2, "low": 0.1, "high": 0.3}
    put(bundled, "rated", {"languages": {"de": about}})
    lines(bundled.at("rated") / "documents" / "a.jsonl", rows)
    told = experiment("table-2").tell(bundled)
    assert words in told.found
    cells = row(told.tables[0], "de")
    assert cells["selected"].value == 20  # 5 % of 400
    assert row(told.tables[1], "de")["text"].value == "one / two"
    assert row(told.tables[1], "de")["score"].value == 119.0
    if best is None:
        assert cells["of all %"].why == "the data do not say" and not told.more
    else:
        assert cells["of all %"].value == (5.0 if best == "bilingual" else 95.0)
        assert told.more["claims"][0]["holds"] is holds


def test_attention_of_the_best_heads_and_of_the_others() -> None:
    attention = {(0, 0): 0.5, (0, 1): 0.1, (1, 0): 0.3, (1, 1): 0.9}
    scores = {(0, 0): 0.6, (0, 1): 0.7, (1, 0): 0.1, (1, 1): 0.0}
    found = compared(attention, scores, 2)
    assert found["chosen"] == pytest.approx(0.3) and found["others"] == pytest.approx(0.6)
    assert found["beside"] == 1.0  # both others look as much as the mean of the chosen ones
    assert (found["most"], found["most_score"]) == ((1, 1), 0.0)
    assert compared(attention, scores, 4)["others"] is None


def test_key_words_are_the_longest_in_the_order_of_the_text() -> None:
    assert longest("An owl admires elephants.") == ("admires", "elephants")
    assert longest("тигр") == ("тигр",)


def test_the_paper_s_key_words_stand_in_prompts_of_ours(large: Setting, bundled: Setting) -> None:
    from headscope.find.key_attention import locate_words

    found = {one.name: one for one in prompts(large)}
    # Figure 22; Figure 23 prints the same words beside a German prompt.
    assert found["ending-fr"].words == ("tutoriel", "feu de camp", "brûle")
    assert found["ending-de"].words == ("Anleitung", "Lagerfeuer", "brennt")
    kinds = [name.partition("-")[0] for name in found]
    assert sorted(kinds) == sorted(2 * ["ending", "inference", "pronoun"])
    for one in found.values():
        assert len(locate_words(one.prompt, one.words)) == len(one.words)
        assert one.mapping == one.name.startswith("ending")
    for one in prompts(bundled):  # of its own world
        assert all(word in one.prompt for word in one.words) and one.name not in found


@pytest.mark.parametrize(
    ("model", "group"),
    [
        ("meta-llama/Llama-3.2-1B", "small"),
        ("google/gemma-2-2b-it", "small"),
        ("meta-llama/Llama-3.1-8B-Instruct", "medium"),
        ("mistralai/Mixtral-8x7B-v0.1", "medium"),
        ("google/gemma-2-9b", "medium"),
        ("Qwen/Qwen3-30B-A3B", "large"),
        ("Qwen/Qwen3-14B", "large"),
        ("meta-llama/Meta-Llama-3-8B", "medium"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "medium"),
        ("mistralai/Mistral-Small-24B-Base-2501", "large"),
        ("Qwen/Qwen3-1.7B", "small"),
        # Of other families, whatever their size.
        ("google/gemma-3-270m", None),
        ("HuggingFaceTB/SmolLM2-135M", None),
        ("org/gpt2-1b", None),
        ("Qwen/Qwen2.5-7B", None),
        ("Qwen/Qwen3.5-9B", None),
        ("meta-llama/Llama-2-13b", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None),
        ("pocket", None),
        ("microsoft/Phi-3.5-MoE-instruct", None),
    ],
)
def test_groups_of_models_by_their_names(model: str, group: str | None) -> None:
    assert group_of(model) == group


KINDS = (
    *("hellaswag_multilingual", "arc_multilingual", "xwinograd", "xstorycloze", "xnli", "xcopa"),
    "cmmlu",
)


def test_groups_of_models_are_covered_by_those_that_are_given(large: Setting) -> None:
    data = replace(DATA, others=("google/gemma-2-2b-it",), benchmarks=KINDS)
    words = words_of(replace(large, data=data))
    for small in (13, 16, 19):  # Llama-3.1-8B itself is of the medium ones
        assert [words[f"Figure {small + at}"] for at in range(3)] == [
            "measured",
            "measured",
            "needs MODEL",
        ]
    assert words["Figure 3"] == words["Figure 9"] == "measured"


def test_other_models_do_tasks_only_where_tasks_are_given(bundled: Setting) -> None:
    """The bundled model's tasks and sentences cannot be asked of others."""
    data = PaperData(pairs=DATA.pairs, others=("Qwen/Qwen3-1.7B",))
    for benchmarks, word in (((), "needs MODEL"), (("xnli",), "needs DATA"), (KINDS, "measured")):
        setting = replace(bundled, data=replace(data, benchmarks=benchmarks))
        (planned,) = make_plan([experiment("figure-9")], setting).experiments
        told, missing = planned.coverage["Figure 19"]
        ran = any(one.step.name == "tasks-of-Qwen-Qwen3-1.7B" for one in planned.steps)
        assert (told, ran) == (word, bool(benchmarks))
        assert missing is None or "--benchmarks" in missing.give
    assert words_of(setting)["Figure 13"] == "measured"  # scores need the sentences alone


@pytest.mark.parametrize(
    ("benchmarks", "lacking"),
    [
        (("xnli",), set(KINDS) - {"xnli"}),
        (KINDS, set()),
        (("hellaswag", "arc_easy", "arc_challenge", "mmlu", *KINDS[2:6]), {*KINDS[:2], "cmmlu"}),
        (("hellaswag_de", "arc_fr", "global_mmlu_full_*", *KINDS[2:6]), set()),
        (("own",), set(KINDS) - {"xcopa", "arc_multilingual"}),
    ],
)
def test_other_tasks_are_of_all_kinds_of_the_paper(
    large: Setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    benchmarks: tuple[str, ...],
    lacking: set[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    for name in ("mubench_ARC_C_de.yaml", "xcopa_et.yml"):
        (tmp_path / "own" / name).write_text("task: x\n", encoding="utf-8")
    setting = replace(large, data=replace(DATA, benchmarks=benchmarks))
    (planned,) = make_plan([experiment("figure-9")], setting).experiments
    word, missing = planned.coverage["Figure 9"]
    assert word == ("needs DATA" if lacking else "measured")
    named = set() if missing is None else set(re.findall(r"--benchmarks (\w+)", missing.give))
    assert named == lacking


def test_the_tasks_that_are_named_are_those_of_the_harness(large: Setting) -> None:
    pytest.importorskip("lm_eval")
    from headscope.verify.tasks.library import resolve

    missing = experiment("figure-9").steps(large)
    assert isinstance(missing, Missing)
    named = re.findall(r"--benchmarks (\w+)", missing.give)
    assert set(named) == set(KINDS) and all(resolve(one) == (one,) for one in named)


def test_other_models_are_removed_from_and_told_beside(
    large: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures 19 to 21: another model's own heads are removed, and each has its tables."""
    from headscope.papers.token_alignment_heads import steps, tasks

    setting = replace(large, data=DATA)
    seen: dict[str, Any] = {}
    for module, recipe in ((steps, "verify_removal"), (tasks, "verify_tasks")):
        monkeypatch.setattr(
            module, recipe, lambda config, out, progress: seen.update({out.name: config})
        )
    for one in make_plan([experiment("figure-9")], setting).steps:
        if one.step.name.startswith(("removal", "tasks")):
            one.step.run(setting, setting.at(one.step.name), None)
    assert set(seen) == {"removal", "removal-of-org-base", "tasks", "tasks-of-org-base"}
    for name in ("removal", "tasks"):
        own, other = seen[name], seen[f"{name}-of-org-base"]
        assert (own.model.model, other.model.model) == (LLAMA, "org/base")
        assert own.heads == str(setting.at("scores"))
        assert other.heads == str(setting.at("scores-of-org-base"))
    for name, change in (("tasks", -0.3), ("tasks-of-org-base", -0.1)):
        put(setting, name, {"tasks": {"xnli": task(0.8, change, 0.01, 0.78)}, "draws": 3})
    told = experiment("figure-9").tell(setting)
    assert [table.title for table in told.tables] == [
        "Tasks without the heads",
        "Tasks without the heads, org/base",
    ]
    assert [figure.title for figure in told.figures][1].endswith(", org/base")
    assert "org/base: The tasks change by" in told.found


def test_prompts_are_told_one_by_one_and_missing_ones_left_out(bundled: Setting) -> None:
    geometry = Geometry((2, 2))
    setting = replace(bundled, geometry=geometry)
    scores = [head(1, 1, 0.9, 0.8, 1.0), *(head(at, 0, 0.01, 0.0, 0.02) for at in (0, 1))]
    scores.append(head(0, 1, 0.0, 0.0, 0.0))
    put(setting, "scores", {"heads": scores})
    for name, mine in (("plurals-1", 0.8), ("plurals-2", 0.2)):
        heads = [{"layer": 1, "head": 1, "score": mine}]
        heads += [{"layer": a, "head": b, "score": 0.4} for a, b in ((0, 0), (0, 1), (1, 0))]
        put(setting, f"key-words-{name}", {"heads": heads, "uniform": 0.1})
    told = experiment("figure-22").tell(setting)
    assert [one.name for one in told.tables[0].rows] == ["plurals-1", "plurals-2"]
    cells = row(told.tables[0], "plurals-1")
    assert (cells["top 1"].value, cells["other heads"].value) == (0.8, pytest.approx(0.4))
    assert (cells["head that looks most"].value, cells["its translation score"].value) == (
        "1.1",
        0.9,
    )
    assert "In 1 of 2 prompts" in told.found
    assert "token alignment head in 1 of 2" in told.found
    assert "(plurals-1), in 1 they do not (plurals-2)" in told.found
    # Plurals need no mapping between languages: one of two looks away, so the claim is open.
    assert "Of the 2 prompts that need no mapping between languages it is so in 1" in told.found
    name = "token alignment heads look away from words that need no mapping"
    assert claims(told)[name]["holds"] is None
    fact = {"chosen": 0.2, "others": 0.4, "mapping": False}
    for mine, holds in ((0.2, True), (0.5, False)):
        (claim,) = key_word_claim({"x": fact | {"chosen": mine}})["claims"]
        assert claim["holds"] is holds
    assert key_word_claim({"x": fact | {"mapping": True}}) == {}


@pytest.mark.parametrize("chat", [None, True, False])
def test_key_words_are_asked_for_as_the_paper_prompts(
    large: Setting, monkeypatch: pytest.MonkeyPatch, chat: bool | None
) -> None:
    from headscope.papers.token_alignment_heads import key_words

    asked = []
    monkeypatch.setattr(key_words, "find_key_tokens", lambda config, *_: asked.append(config))
    setting = replace(large, data=DATA, steering=Steering(chat=chat))
    steps = experiment("figure-22").steps(setting)
    assert not isinstance(steps, Missing)
    steps[-1].run(setting, setting.at("x"), None)
    assert [one.measure.chat for one in asked] == [bool(chat)]  # plainly unless told otherwise


def test_prompts_of_another_world_stand_for_no_figure(bundled: Setting, large: Setting) -> None:
    figures = [f"Figure {number}" for number in range(22, 28)]
    assert {words_of(bundled)[name] for name in figures} == {"needs MODEL"}
    assert {words_of(replace(large, data=DATA))[name] for name in figures} == {"measured"}
    tables = []
    for setting, name in ((bundled, "plurals-1"), (replace(large, data=DATA), "ending-de")):
        setting = replace(setting, geometry=Geometry((1, 1)))
        heads = [{"layer": at, "head": 0, "score": 0.4} for at in (0, 1)]
        put(setting, "scores", {"heads": [head(at, 0, 0.5, 0.4, 0.6) for at in (0, 1)]})
        put(setting, f"key-words-{name}", {"heads": heads, "uniform": 0.1})
        tables.append(experiment("figure-22").tell(setting).tables[0])
        shutil.rmtree(setting.folder)
    assert tables[0].title != tables[1].title
    assert "Key words of the endings are the paper's" not in tables[1].note  # one translates them
    assert "translate" in tables[1].note


def test_word_links_of_a_sentence() -> None:
    def words(text: str) -> tuple[Any, ...]:
        return tuple(SimpleNamespace(text=one) for one in text.split())

    pairs = SimpleNamespace(pairs=(SimpleNamespace(source="a b", target="x y z"),))
    linked = SimpleNamespace(
        aligner="links",
        units="white-space",
        source_words=(words("a b"),),
        target_words=(words("x y z"),),
        links=(frozenset({(0, 0), (1, 0), (1, 2)}),),
    )
    found = described("en-de", pairs, linked)  # type: ignore[arg-type]
    assert (found["words"], found["linked"]) == (3, 2)
    assert found["example"]["words"] == [
        {"target": "x", "source": ["a", "b"]},
        {"target": "y", "source": []},
        {"target": "z", "source": ["b"]},
    ]


def test_the_paper_s_own_links_reach_its_figure(
    bundled: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.papers.token_alignment_heads import alignment

    asked: list[AlignWords] = []

    def align(pairs: Any, *options: AlignWords, **languages: str) -> Any:
        asked.extend(options)
        return align_words(pairs, **languages)

    monkeypatch.setattr(alignment, "align_words", align)
    setting = replace(bundled, steering=Steering(aligner="llm", limit=3), llm=ChatModel("m"))
    steps = experiment("figure-2").steps(setting)
    assert not isinstance(steps, Missing)
    steps[-1].run(setting, setting.at("links"), None)
    assert [(one.aligner, one.llm) for one in asked] == [("llm", LlmAligner("m"))]
    assert words_of(setting)["Figure 2"] == "measured"
    # Exact links are no language model's, and a flag alone asks none.
    for one in (bundled, replace(setting, llm=None), replace(setting, steering=Steering())):
        assert words_of(one)["Figure 2"] == "needs ENDPOINT"


def test_the_example_of_links_has_a_row_a_target_word(bundled: Setting) -> None:
    words = [{"target": "x", "source": ["a", "b"]}, {"target": "y", "source": []}]
    example = {"source": "a b", "target": "x y", "words": words}
    found = {"direction": "en-de", "aligner": "links", "sentences": 1, "words": 4, "linked": 3}
    put(bundled, "links", {**found, "example": example})
    told = experiment("figure-2").tell(bundled)
    assert [(one.name, one.cells[0].value) for one in told.tables[0].rows] == [
        ("x", "a b"),
        ("y", None),
    ]
    assert told.found.startswith("75% of 4 target words")


# The answer


def test_the_answer_sorts_claims_by_what_was_found() -> None:
    found, sure = answer_of(
        [
            Claim("A", True, "1 of 2", "an interval"),
            Claim("B", False, "0.3"),
            Claim("C", None, "0.1", decides="more of it"),
            Claim("D", False, "0.4", "an interval"),
        ]
    )
    assert [line.partition(" (")[0] for line in found.splitlines()] == [
        "Holds here:", "\u2013 A", "Does not hold here:", "\u2013 D", "Open:", "\u2013 C",
        "Described, not tested:", "\u2013 B: not so here",
    ]  # fmt: skip
    assert "more of it" in found and "an interval" in sure
    assert answer_of([]) == ("", "")


def beside(low: float, high: float, p_draws: float, **more: Any) -> dict[str, Any]:
    return {
        "against_random": {"value": (low + high) / 2, "low": low, "high": high},
        **{"p_sentences": 0.001, "p_draws": p_draws, "least_p": 0.025, "distinct_draws": 39},
        **more,
    }


@pytest.mark.parametrize(
    ("row", "holds", "decides"),
    [
        (beside(-5, -3, 0.025), True, ""),
        (beside(-5, -3, 0.075), None, "do as much"),
        (beside(-5, -3, 0.167, least_p=0.167), None, "19 random sets or more"),
        (beside(-5, 1, 0.025), None, "more examples"),
        (beside(1, 3, 1.0), False, ""),
    ],
)
def test_what_removal_has_to_show(row: dict[str, Any], holds: bool | None, decides: str) -> None:
    claim = of_removal("A", row, "f", sign=-1)
    assert (
        claim.holds is holds and decides in claim.decides and bool(claim.decides) is bool(decides)
    )
    turned = row | {"against_random": {name: -one for name, one in row["against_random"].items()}}
    assert of_removal("A", turned, "f", sign=1).holds is holds  # an interval with its ends swapped


@pytest.mark.parametrize(
    ("low", "high", "holds"), [(-5, -3, True), (-5, 1, None), (None, None, None), (1, 3, False)]
)
def test_what_is_no_worse_than_untouched_is_not_needed(
    low: float | None, high: float | None, holds: bool | None
) -> None:
    row, change = beside(-5, -3, 0.025), {"low": low, "high": high}
    claim = of_removal("A", row, "f", change=change, sign=-1)
    assert (claim.holds, bool(claim.decides)) == (holds, holds is None)


def test_all_that_would_decide_an_open_claim_is_named() -> None:
    claim = of_removal("A", beside(-5, 1, 0.167, p_sentences=0.2, least_p=0.167), "f", sign=-1)
    (told,) = judged([claim])
    for one in (claim, told):
        assert one.decides.count("more examples") == one.decides.count("19 random sets") == 1
    without = {key: one for key, one in beside(-5, -3, 0.025).items() if key != "p_sentences"}
    untested = of_removal("A", without, "f", sign=-1)
    assert (untested.holds, untested.p) == (None, None) and "p over examples" in untested.decides


def test_few_sets_of_the_same_layers_decide_nothing() -> None:
    few = {"least_p_layer_matched": 0.1, "distinct_draws_layer_matched": 9}
    told = of_removal("A", beside(-5, -3, 0.025, **few, p_draws_layer_matched=0.1), "f", sign=-1)
    assert told.holds is True and "9 different sets" in told.by
    assert "of the same layers 0.1; not decidable" in told.by
    # As many as free ones: more were not asked for. None: they were not drawn.
    for sets in (39, 0):
        own = few | {"distinct_draws_layer_matched": sets}
        assert "not decidable" not in of_removal("A", beside(-5, -3, 0.025, **own), "f", sign=-1).by
    enough = {"least_p_layer_matched": 0.025, "distinct_draws_layer_matched": 39}
    assert "not decidable" not in of_removal("A", beside(-5, -3, 0.025, **enough), "f", sign=-1).by


def test_p_over_examples_is_corrected_over_the_papers_claims() -> None:
    def claim(name: str, p: float) -> Claim:
        return of_removal(name, beside(-5, -3, 0.025, p_sentences=p), "f", sign=-1)

    alone = judged([claim("A", 0.03)])
    assert alone[0].holds is True
    three = judged([claim("A", 0.03), claim("B", 0.001), claim("C", 0.2), Claim("D", True, "f")])
    assert [one.holds for one in three] == [None, True, None, True]
    assert "0.06 after Holm" in three[0].decides


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_what_its_definition_says(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for at, p in enumerate(p_values):
        # A p-value is rejected at a level if all that are not larger are, each at its own share.
        steps = [
            min(1.0, (len(p_values) - sum(q < other for q in p_values)) * other)
            for other in p_values
            if other <= p
        ]
        assert corrected[at] == pytest.approx(max(steps))
        assert p <= corrected[at] <= 1


def test_a_verdict_by_loss_is_a_claim_of_its_own(bundled: Setting) -> None:
    both = removal(-1.0, 3.0)
    top_row = both["conditions"][0]
    top_row["change"]["nll"] = {"value": 2.0, "low": 1.5, "high": 2.5}
    top_row |= {"nll": 3.0, "p_sentences_loss": 0.001, "p_draws_loss": 0.01, "least_p_loss": 0.01}
    top_row |= {"against_random_loss": {"value": 1.5, "low": 1.0, "high": 2.0}}
    both["baseline"]["nll"] = 1.0
    for one in both["conditions"][1:]:
        one["nll"] = 1.5
    both["measures"] = ["text", "loss"]
    put(bundled, "removal", both)
    told = experiment("figure-1").tell(bundled)
    by_text, by_loss = told.more["claims"]
    assert by_text["name"] == "translation needs the heads" and by_text["holds"] is None
    assert by_loss["holds"] is True and "loss" in by_loss["name"]
    alone = {**both, "measures": ["loss"]}
    for name in ("p_sentences", "p_draws", "least_p", "against_random"):
        top_row[name] = top_row.pop(f"{name}_loss")
    put(bundled, "removal", alone)
    told = experiment("figure-1").tell(bundled)
    assert [one["holds"] for one in told.more["claims"]] == [True]
    assert row(told.tables[0], "without the top 14")["its change"].value == 2.0


def test_signs_and_per_cent_have_one_form() -> None:
    said = "-0.5 (-1 to +2), 26% and 5 % of en-de, step-00032, --full, p 4.1e-05"
    assert typeset(said) == (
        "\u22120.5 (\u22121 to +2), 26\u00a0% and 5\u00a0% of en-de, step-00032, --full, "
        "p 4.1e\u22125"
    )


def test_what_answers_nothing_is_told_so(bundled: Setting) -> None:
    put(
        bundled,
        "links",
        {
            "direction": "en-de", "aligner": "links", "words": 2, "linked": 1, "sentences": 1,
            "example": {"source": "a", "target": "x", "words": [{"target": "x", "source": ["a"]}]},
        },
    )  # fmt: skip
    plan = make_plan(PAPER.experiments, bundled)
    found = describe(PAPER, plan, bundled, {"figure-2"}, {})
    assert found["answer"]["found"] == "What was run does not answer the paper's question."


def test_nothing_run_is_nothing_told(bundled: Setting) -> None:
    for one in PAPER.experiments:
        told = one.tell(bundled)
        assert not told.tables and not told.figures and not told.found and not told.sure, one.name
    assert PAPER.answer(bundled, {}) == ("", "")


def test_a_whole_run_of_made_up_results_becomes_plain_json(bundled: Setting) -> None:
    put(bundled, "scores", SCORES)
    put(bundled, "classes", {"models": [model("m", (2, 1, 1), 1)]})
    put(bundled, "removal", removal(-55.0, -51.0))
    plan = make_plan(PAPER.experiments, bundled)
    found = describe(PAPER, plan, bundled, {one.name for one in PAPER.experiments}, {})
    json.dumps(found, allow_nan=False)
    states = {one["name"]: one["state"] for one in found["experiments"]}
    assert states["figure-3"] == "run" and states["figure-9"] == "part"
    assert states["figure-5"] == "part"  # its scores are there, and it has nothing to tell yet
    assert found["answer"]["found"].startswith("Holds here:\n")
    # Figure 9 has a table of what was removed, and no task that it is about.
    assert found["answer"]["sure"].endswith(
        "Not answered here: Figure 2, Figure 5, Figure 6, Figure 9, Table 1, Table 2, Figure 10, "
        "Figure 22."
    )
    assert (
        "Translation needs the heads (chrF++ 90.0 as it is, 30.0 without the top 14"
        in (found["answer"]["found"])
    )


def test_the_runs_themselves_on_a_few_sentences(
    loaded: None, bundled: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled model on sentences given as files: every step runs, and figures agree."""
    from headscope.papers.token_alignment_heads import key_words, steps

    monkeypatch.setattr(steps, "DRAWS", 1)
    monkeypatch.setattr(key_words, "EACH", 1)
    monkeypatch.setattr(key_words, "POCKET", key_words.POCKET[:1])
    places = []
    for pair_name in ("en-de", "de-en"):
        file = tmp_path / f"{pair_name}.tsv"
        write_pairs(file, sample_pairs(pair_name, "dev", 12, 0).pairs)
        places.append(f"{pair_name}={file}")
    setting = replace(bundled, data=PaperData(pairs=tuple(places)), batch_tokens=2048)
    names = ("figure-1", "figure-2", "figure-3", "figure-4", "figure-5", "figure-10", "figure-22")
    chosen = [experiment(name) for name in names]
    for one in make_plan(chosen, setting).due:
        one.step.run(setting, setting.at(one.step.name), None)
    found = describe(PAPER, make_plan(PAPER.experiments, setting), setting, set(names), {})
    json.dumps(found, allow_nan=False)
    told = {one["name"]: one for one in found["experiments"]}
    assert all(told[name]["state"] == "run" and told[name]["found"] for name in names)

    scores = read_scores(setting.at("scores"))
    aligned = (scores["mean"].values > 0.1).sum()
    cells = told["figure-3"]["tables"][0]["rows"][0]["cells"]
    assert cells[1]["value"] == pytest.approx(100 * aligned / 96)
    tops = [set(map(tuple, _best(scores[name].values, 14))) for name in ("en-de", "de-en")]
    jaccard = len(tops[0] & tops[1]) / len(tops[0] | tops[1])
    whole = told["figure-5"]["tables"][0]["rows"][0]
    assert whole["name"] == "all" and whole["cells"][1]["value"] == pytest.approx(jaccard)

    # Exact links: every sentence of this world has some, and the model needs its best heads.
    assert told["figure-2"]["tables"][1]["rows"][0]["cells"][2]["value"] > 50
    change = told["figure-1"]["tables"][0]["rows"][1]["cells"][1]
    assert change["high"] < -20
    shares = [one["cells"][1]["value"] for one in told["figure-10"]["tables"][0]["rows"]]
    assert sum(shares) == pytest.approx(100)
    assert len(told["figure-22"]["tables"][0]["rows"]) == 1


def _best(values: Any, k: int) -> list[tuple[int, int]]:
    """The k largest of a (layers, heads) array; of equal ones the lower layer, then head, first."""
    places = [(layer, at) for layer in range(values.shape[0]) for at in range(values.shape[1])]
    return sorted(places, key=lambda place: (-values[place], place))[:k]
