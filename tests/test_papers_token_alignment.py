"""Token Alignment Heads as a recipe: coverage, settings, and the claims that follow from runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.align import AlignWords, LlmAligner, align_file
from headscope.data.chat import ChatModel
from headscope.data.pairs import write_pairs
from headscope.estimates import Estimate
from headscope.evidence.rows import Condition, Evidence, Level, Tested
from headscope.heads import Geometry, Head, read_scores
from headscope.lm.checkpoints import digest_of_files
from headscope.measure.statistics import holm
from headscope.papers.claims import answer_of, judged, of_tests
from headscope.papers.paper import Missing, PaperData, Setting, Steering
from headscope.papers.plan import make_plan
from headscope.papers.reproduce import describe
from headscope.papers.show import Answer
from headscope.papers.token_alignment_heads import findings, steps
from headscope.papers.token_alignment_heads.paper import PAPER, group_of
from headscope.papers.token_alignment_heads.setting import (
    DIRECTIONS,
    FIGURE_5,
    amounts,
    checked_on,
    found_on,
    largest,
    top,
)
from headscope.papers.trater.result import Change
from headscope.pocket import weights
from headscope.pocket.sample import sample_pairs
from headscope.results.classes import ClassShares
from headscope.results.overlap import Conditional, PairOverlap
from headscope.results.removal import RemovalResult
from headscope.results.translation_score import TranslationResult
from headscope.runs import decode
from headscope.shown.blocks import Claim
from headscope.verify.removal_translations.evidence import STATISTICS
from paper_helpers import around, asked, experiment, setting_of, steps_of, words_of

LLAMA = "meta-llama/Llama-3.1-8B"
DATA = PaperData(
    pairs=("en-zh=pairs.tsv", "zh-en=other.tsv"),
    documents=("de=de.jsonl",),
    benchmarks=("xnli",),
    checkpoints=("step1", "step2"),
    others=("org/base",),
)
FAILURES: tuple[Any, ...] = ("no translation", "hallucination", "missing details", "other")
KINDS = (
    *("hellaswag_multilingual", "arc_multilingual", "xwinograd", "xstorycloze", "xnli", "xcopa"),
    "cmmlu",
)


NAME = "token-alignment-heads"


@pytest.fixture
def bundled(tmp_path: Path) -> Setting:
    """The bundled model's setting, with nothing run."""
    return setting_of(tmp_path)


@pytest.fixture
def large(tmp_path: Path) -> Setting:
    """A model of the paper's size, without data."""
    return setting_of(tmp_path, LLAMA)


# Coverage, settings, what is missing


def test_small_models_take_shares_and_large_ones_the_papers_numbers(
    bundled: Setting, large: Setting
) -> None:
    assert (top(bundled), amounts(bundled), largest(bundled)) == ("15%", ("15%",), 14)
    assert (top(large), amounts(large), largest(large)) == (20, (20, 30), 30)
    # 256 heads are the first that the numbers suit.
    assert replace(large, geometry=Geometry((16,) * 16)).small is False
    assert replace(large, geometry=Geometry((255,))).small is True


def test_small_models_read_references_and_large_ones_translate(
    bundled: Setting, large: Setting
) -> None:
    small, paper = (
        asked(setting, steps_of(NAME, "figure-4", setting))["scores"]
        for setting in (bundled, replace(large, data=DATA))
    )
    assert (small.score.decode, paper.score.decode) == ("reference", "greedy")
    assert (small.threshold, paper.threshold, small.pairs.pair) == (0.1, 0.1, ("all",))


@pytest.mark.parametrize(
    ("figure", "step", "whole"),
    [
        ("figure-1", "scores", 997),
        ("figure-1", "removal", 1012),
        ("figure-9", "tasks", 500),
        ("table-2", "rated", 2000),
        ("table-2", "rated-random", 2000),
    ],
)
def test_the_time_told_before_is_of_the_examples_that_are_asked_for(
    large: Setting, figure: str, step: str, whole: int
) -> None:
    every = replace(large, data=DATA)
    few = replace(every, steering=replace(every.steering, limit=30))
    work = [
        next(each.work for each in steps_of(NAME, figure, setting) if each.name == step)
        for setting in (every, few)
    ]
    assert work[1].tokens == pytest.approx(work[0].tokens * 30 / whole)
    assert work[1].calls == pytest.approx(work[0].calls * 30 / whole)


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
    missing = experiment(NAME, "figure-1").steps(setting)
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
    planned = experiment(NAME, "figure-4").steps(setting)
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
    missing = experiment(NAME, "figure-5").steps(one)
    assert isinstance(missing, Missing) and "--pairs de-en=FILE" in missing.give
    two = replace(large, data=PaperData(pairs=("en-de=a.tsv", "de-en=b.tsv")))
    steps = experiment(NAME, "figure-5").steps(two)
    assert not isinstance(steps, Missing) and steps[-1].name == "overlap"
    assert not isinstance(experiment(NAME, "figure-1").steps(one), Missing)


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
    known = json.loads(measured.read_text(encoding="utf-8"))  # as results were then
    assert {**stored, "changes": None} == {
        **{name: known[name] for name in stored if name != "changes"},
        "changes": None,
    }
    named = {(one["kind"], one["share"]): one for one in known["conditions"]}
    for one in stored["changes"]:
        was = named[one["kind"], one["share"]]
        way = "differences" if one["than"] == "baseline" else "against_random"
        assert one["figures"] == was[way]
    assert stored["signature"] and stored["command"] and stored["machine"]["cpu"]
    assert not re.search(r'"/', json.dumps(stored))  # no absolute path


def test_checkpoints_are_revisions_of_the_model_unless_they_are_places(
    bundled: Setting, large: Setting, tmp_path: Path
) -> None:
    for name in ("step-10", "step-20"):
        (tmp_path / "kept" / name).mkdir(parents=True)
        (tmp_path / "kept" / name / "config.json").write_text("{}", encoding="utf-8")
    own = ("step1000", f"{LLAMA}@step500", f"{tmp_path}/kept/step-*")
    data = PaperData(pairs=("en-zh=x.tsv", "zh-en=y.tsv"), checkpoints=own)
    few, many = (
        asked(setting, steps_of(NAME, "figure-6", setting))["formation"]
        for setting in (bundled, replace(large, data=data))
    )
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
        found = words_of(NAME, replace(large, data=PaperData(pairs=pairs)))
        assert (found["Figure 5"], found["Figure 28"]) == words
    found = words_of(NAME, bundled)
    assert found["Figure 5"] == found["Figure 28"] == "needs MODEL"
    plan = make_plan(
        [experiment(NAME, "figure-5")], replace(large, data=PaperData(pairs=every[1:]))
    )
    _, missing = plan.experiments[0].coverage["Figure 28"]
    assert missing is not None and missing.give == "--pairs PAIR=FILE for en-zh"


@pytest.mark.parametrize(
    ("model", "group"),
    [
        ("meta-llama/Llama-3.2-1B", "small"),
        ("google/gemma-2-2b-it", "small"),
        ("mistralai/Mixtral-8x7B-v0.1", "medium"),
        ("Qwen/Qwen3-30B-A3B", "large"),
        ("meta-llama/Meta-Llama-3-8B", "medium"),
        ("mistralai/Mistral-Small-24B-Base-2501", "large"),
        # Of other families, whatever their size.
        ("google/gemma-3-270m", None),
        ("Qwen/Qwen3.5-9B", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None),
        ("pocket", None),
    ],
)
def test_groups_of_models_by_their_names(model: str, group: str | None) -> None:
    assert group_of(model) == group


def test_groups_of_models_are_covered_by_those_that_are_given(large: Setting) -> None:
    data = replace(DATA, others=("google/gemma-2-2b-it",), benchmarks=KINDS)
    words = words_of(NAME, replace(large, data=data))
    for small in (13, 16, 19):  # Llama-3.1-8B itself is of the medium ones
        assert [words[f"Figure {small + at}"] for at in range(3)] == [
            "measured",
            "measured",
            "needs MODEL",
        ]
    assert words["Figure 3"] == words["Figure 9"] == "measured"


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
    (planned,) = make_plan([experiment(NAME, "figure-9")], setting).experiments
    word, missing = planned.coverage["Figure 9"]
    assert word == ("needs DATA" if lacking else "measured")
    named = set() if missing is None else set(re.findall(r"--benchmarks (\w+)", missing.give))
    assert named == lacking


# Runs of several steps


def test_other_models_have_their_own_heads_removed(large: Setting) -> None:
    """Figures 19 to 21."""
    setting = replace(large, data=DATA)
    found = asked(setting, steps_of(NAME, "figure-9", setting))
    for name in ("removal", "tasks"):
        own, other = found[name], found[f"{name}-of-org-base"]
        assert (own.model.model, other.model.model) == (LLAMA, "org/base")
        assert own.heads == str(setting.at("scores"))
        assert other.heads == str(setting.at("scores-of-org-base"))


@pytest.mark.parametrize("chat", [None, True, False])
def test_key_words_are_asked_for_as_the_paper_prompts(large: Setting, chat: bool | None) -> None:
    setting = replace(large, data=DATA, steering=Steering(chat=chat))
    found = asked(setting, steps_of(NAME, "figure-22", setting))
    looking = [one for name, one in found.items() if name.startswith("key-words-")]
    assert looking and {one.chat for one in looking} == {bool(chat)}  # else plainly


def test_key_words_are_the_longest_in_the_order_of_the_text() -> None:
    assert steps.longest("An owl admires elephants.") == ("admires", "elephants")
    assert steps.longest("тигр") == ("тигр",)


def test_the_paper_s_key_words_stand_in_prompts_of_ours(large: Setting, bundled: Setting) -> None:
    from headscope.find.key_tokens_attention import locate_words

    found = {one.name: one for one in steps.prompts(large)}
    # Figure 22; Figure 23 prints the same words beside a German prompt.
    assert found["ending-fr"].words == ("tutoriel", "feu de camp", "brûle")
    assert found["ending-de"].words == ("Anleitung", "Lagerfeuer", "brennt")
    kinds = [name.partition("-")[0] for name in found]
    assert sorted(kinds) == sorted(2 * ["ending", "inference", "pronoun"])
    for one in found.values():
        assert len(locate_words(one.prompt, one.words)) == len(one.words)
        assert one.mapping == one.name.startswith("ending")
    for one in steps.prompts(bundled):  # of its own world
        assert all(word in one.prompt for word in one.words) and one.name not in found


def test_the_paper_s_own_links_reach_its_figure(
    bundled: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AlignWords] = []

    def align(pairs: Any, *options: AlignWords) -> Any:
        asked.extend(options)
        return align_file(pairs)

    monkeypatch.setattr(steps, "align_file", align)
    setting = replace(bundled, steering=Steering(aligner="llm", limit=3), llm=ChatModel("m"))
    planned = experiment(NAME, "figure-2").steps(setting)
    assert not isinstance(planned, Missing)
    planned[-1].run(setting, setting.at("links"), None)
    assert [(one.aligner, one.llm) for one in asked] == [("llm", LlmAligner("m"))]
    assert words_of(NAME, setting)["Figure 2"] == "measured"
    # Exact links are no language model's, and a flag alone asks none.
    for one in (bundled, replace(setting, llm=None), replace(setting, steering=Steering())):
        assert words_of(NAME, one)["Figure 2"] == "needs ENDPOINT"


def rated(language: str, score: float, kind: str | None) -> dict[str, Any]:
    about = {"id": f"{language}{score}", "text": "one\ntwo", "language": language, "score": score}
    return about if kind is None else about | {"kind": kind}


def test_the_best_documents_of_each_language() -> None:
    rows = [rated("de", n, "monolingual") for n in range(10)] + [rated("en", 0.5, "bilingual")]
    found = steps.best_documents(rows, 0.2)
    assert [one["score"] for one in found["de"]] == [9, 8]
    assert [one["score"] for one in found["en"]] == [0.5]  # at least one


# Claims


def scored(*rows: tuple[float, float, float]) -> dict[str, Any]:
    """Scores of heads with their intervals."""
    heads = [
        {"layer": at, "head": 0, "score": score, "low": low, "high": high}
        for at, (score, low, high) in enumerate(rows)
    ]
    counts = {"token_alignment": 2, "low_activity": 1, "inactive": 1}
    return {"scores": heads, "counts": counts, "counts_above_chance": None, "examples": 1,
            "tokens": 1}  # fmt: skip


SCORES = scored((0.5, 0.4, 0.6), (0.12, 0.08, 0.16), (0.09, 0.05, 0.13), (0.0, 0.0, 0.0))


def test_bounds_need_every_heads_interval() -> None:
    def of(value: dict[str, Any]) -> tuple[float, float] | None:
        return findings.bounds(decode(TranslationResult, value))

    assert of(SCORES) == (0.25, 0.75)
    assert of({**SCORES, "scores": [{**SCORES["scores"][0], "low": None}]}) is None
    assert of({**SCORES, "scores": []}) is None
    other = scored((0.5, 0.4, 0.6))
    assert of({**SCORES, "directions": {"a": SCORES, "b": other}}) == (0.625, 0.875)


def classes(counts: tuple[int, int, int], above: int | None) -> ClassShares:
    kinds = ("token_alignment", "low_activity", "inactive")
    total = sum(counts)
    value = {
        "name": "m", "model": "m", "method": "translation-score", "layers": 3, "total": total,
        "counts": dict(zip(kinds, counts, strict=True)),
        "shares": {kind: n / total for kind, n in zip(kinds, counts, strict=True)},
        "counts_above_chance": above and dict(zip(kinds, (above, 0, 0), strict=True)),
        "shares_above_chance": None, "mean_score": 0.1,
        "highest": {"layer": 1, "head": 0, "score": 0.5, "low": 0.4, "high": 0.6},
    }  # fmt: skip
    if above == 0:
        value["counts_above_chance"] = dict.fromkeys(kinds, 0)
    found: ClassShares = decode(ClassShares, value)
    return found


@pytest.mark.parametrize(
    ("counts", "above", "bounds", "some", "few"),
    [
        ((2, 1, 1), 1, (0.25, 0.75), True, False),
        ((0, 3, 1), 0, None, False, True),
        ((5, 90, 5), None, None, True, True),
        ((5, 90, 5), 0, None, False, True),  # none of them above chance
        ((1, 0, 1), 1, (0.0, 0.5), None, None),  # no interval lies above the threshold
    ],
)
def test_there_are_such_heads_and_they_are_few(
    counts: tuple[int, int, int],
    above: int | None,
    bounds: tuple[float, float] | None,
    some: bool | None,
    few: bool | None,
) -> None:
    claims = findings.class_claims(classes(counts, above), bounds, 0.08)
    assert [claim.holds for claim in claims] == [some, few]
    assert claims[0].by.startswith(f"{counts[0]} of {sum(counts)} score above 0.1")


def test_thirds_by_the_middle_of_a_layer() -> None:
    assert findings.thirds([1, 2, 4]) == (1, 2, 4)
    assert findings.thirds([1, 1, 1, 1]) == (1, 2, 1)
    assert sum(findings.thirds(list(range(32)))) == sum(range(32))
    assert findings.thirds([0, 0, 0, 0, 25, 0]) == (0, 0, 25)


def pair(a: str, b: str, jaccard: float, p: float = 1e-9) -> PairOverlap:
    return PairOverlap(a, b, jaccard, 0.1, 0.1, p, 1, 2, 2, None, Conditional(None, None), None)


@pytest.mark.parametrize(
    ("lowest", "p", "holds"), [(0.7, 0.001, True), (0.5, 0.001, False), (0.7, 0.2, None)]
)
def test_the_bound_of_figure_5_is_asked_of_its_ten_directions(
    lowest: float, p: float, holds: bool | None
) -> None:
    pairs = [
        pair(a, b, lowest if at == 7 else 0.9, p if at == 7 else 1e-9)
        for at, (a, b) in enumerate(combinations(FIGURE_5, 2))
    ]
    # Directions into English are no part of it, however little they share.
    others = [pair("zh-en", "ja-en", 0.2, 0.3), pair("en-zh", "zh-en", 0.1, 0.5)]
    assert findings.among([*pairs, *others], FIGURE_5) == pairs
    claim = findings.figure_5_claim(pairs, 0.6)
    assert claim.holds is holds and "45 of its 45 pairs" in claim.by
    # Some of the ten agree: what the others would say is open; one that does not agree decides.
    claim = findings.figure_5_claim(pairs[:8], 0.6)
    assert claim.holds is (False if holds is False else None)
    assert bool(claim.decides) is (claim.holds is None)


def test_directions_from_english_beside_those_into_it() -> None:
    into = [pair("de-en", "es-en", 0.9)]
    for jaccard, holds in ((0.6, False), (0.95, True)):
        (claim,) = findings.figure_28_claim([pair("en-de", "en-es", jaccard)], into)
        assert claim.holds is holds and not claim.sure
    assert findings.figure_28_claim([], into) == []


@pytest.mark.parametrize(
    ("shares", "above", "holds"),
    [
        ((0.0, 0.3, 0.2), None, True),
        ((0.1, 0.2, 0.3), None, False),
        ((0.3, 0.2, 0.1), None, False),
        ((0.0, 0.3, 0.2), (0.0, 0.1, 0.1), None),  # above chance they do not thin out
        ((0.0, 0.3, 0.2), (0.0, 0.1, 0.093), None),  # less than a head is no fall
        ((0.0, 0.3, 0.2), (0.0, 0.1, 0.09), True),
    ],
)
def test_heads_rise_and_fall_in_training(
    shares: tuple[float, ...], above: tuple[float, ...] | None, holds: bool | None
) -> None:
    assert findings.formation_claim(shares, above, 100).holds is holds


TOP = Condition("selected", k=14, gate=0.0)
RANDOM = (replace(TOP, kind="random", draw=0), replace(TOP, kind="random", draw=1))


def removal(gap: Estimate, change: Estimate, loss: Estimate | None = None) -> RemovalResult:
    """Selected heads beside two draws whose tests are those of many."""
    levels, tests = [], []
    values = {"chrf": (90.0, 30.0, 80.0, 86.0), **({"nll": (1.0, 3.0, 1.5, 1.5)} if loss else {})}
    for name, own in values.items():
        for part in ("", "en-de", "de-en"):
            levels += [
                Level(value=value, part=part, condition=each.id, statistic=name, examples=40,
                      change=change if each is TOP else None)
                for each, value in zip((Condition(), TOP, *RANDOM), own, strict=True)
            ]  # fmt: skip
        for control in ("random", "same layers"):
            tests.append(against(loss if name == "nll" and loss else gap, control, statistic=name))
    evidence = Evidence(
        statistics={name: STATISTICS[name] for name in values},
        conditions=(Condition(), TOP, *RANDOM),
        levels=tuple(levels),
        tests=tuple(tests),
    )
    return RemovalResult(evidence=evidence)


def against(gap: Estimate, control: str = "random", p: float = 0.025, **more: Any) -> Tested:
    side = "higher" if more.get("statistic") == "nll" else "lower"
    about = {"part": "", "condition": TOP.id, "statistic": "chrf", "side": side, **more}
    known = {"p_examples": 0.001, "p_draws": p, "least_p": 0.025, "draws": 39}
    return Tested(**{"difference": gap, "control": control, **known, **about})


def test_translation_needs_heads_that_do_more_than_random_ones() -> None:
    (claim,) = findings.removal_claims(removal(Estimate(), around(-60.0, 2.0)))
    assert claim.holds is None
    (claim,) = findings.removal_claims(removal(around(-53.0, 2.0), around(-60.0, 2.0)))
    assert claim.name == "translation needs the heads" and claim.holds is True
    assert claim.by.startswith(  # (80 + 86) / 2
        "chrF++ 90.0 as it is, 30.0 without the top 14, 83.0 without random ones; 40 sentences of "
        "2 directions"
    )


def test_heads_that_are_no_loss_are_not_needed() -> None:
    """Random removals that do good make the chosen heads look needed, and they are not."""
    (claim,) = findings.removal_claims(removal(around(-3.0, 1.0), around(0.5, 1.0)))
    assert claim.holds is None


def test_a_verdict_by_loss_is_a_claim_of_its_own() -> None:
    both = removal(around(1.0, 2.0), Estimate(), around(1.5, 0.5))
    levels = [
        replace(row, change=around(2.0, 0.5) if row.statistic == "nll" else row.change)
        if row.condition == TOP.id else row
        for row in both.levels
    ]  # fmt: skip
    evidence = replace(both.evidence, levels=tuple(levels))
    by_text, by_loss = findings.removal_claims(replace(both, evidence=evidence))
    assert by_text.name == "translation needs the heads" and by_text.holds is None
    assert by_loss.holds is True and "loss" in by_loss.name


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ((1, 3, 6, 0), None),  # 1 of 7 may be half of them
        ((1, 3, 16, 0), False),
        # 8 of the 14 failures of the two most frequent kinds may be chance; 100 of 160 are not.
        ((8, 3, 6, 0), None),
        ((100, 30, 60, 0), True),
        ((6, 3, 6, 0), None),
    ],
)
def test_most_failures_repeat_the_source(counts: tuple[int, ...], holds: bool | None) -> None:
    kinds = dict(zip(FAILURES, counts, strict=True))
    (claim,) = findings.failure_claim(kinds, sum(counts))
    assert claim.holds is holds
    assert findings.failure_claim(dict.fromkeys(FAILURES, 0), 0) == []


@pytest.mark.parametrize(
    ("across", "within", "holds"),
    [
        (around(-0.5, 0.1), around(-0.05, 0.15), True),
        (around(0, 0.01), around(-0.4, 0.1), False),
        (around(-0.1, 0.1), around(-0.1, 0.1), None),
    ],
)
def test_tasks_within_and_across_languages(
    across: Estimate, within: Estimate, holds: bool | None
) -> None:
    (claim,) = findings.task_claim({"pocket_translate_words": across, "pocket_plurals": within})
    assert claim.holds is holds
    assert claim.by == (
        f"tasks across languages {100 * across.value:+.1f} points, within one "
        f"{100 * within.value:+.1f}"
    )
    assert findings.task_claim({"xnli": within}) == []


def mixture(kind: str, than: str, changed: dict[str, Any]) -> Change:
    row = {"kind": kind, "share": None, "than": than, "figures": {"chrf_prompt": changed}}
    found: Change = decode(Change, row)
    return found


def change(low: float, high: float, by_seed: tuple[float, ...] = (0.9, 1.0, 1.1)) -> dict[str, Any]:
    value = (low + high) / 2
    return {"value": value, "low": low, "high": high, "by_seed": [value * one for one in by_seed]}


@pytest.mark.parametrize(
    ("remove", "enhance", "by_seed", "holds"),
    [
        ((-7.0, -5.0), (60.0, 64.0), (0.9, 1.0, 1.1), True),
        # A random selection does as much; trainings differ as much as the selections do.
        ((-7.0, -5.0), (-1.0, 3.0), (0.9, 1.0, 1.1), None),
        ((-7.0, -5.0), (60.0, 64.0), (0.1, 0.2, 2.7), None),
        ((5.0, 7.0), (60.0, 64.0), (0.9, 1.0, 1.1), False),
    ],
)
def test_selections_are_held_against_random_ones_of_the_same_size(
    remove: tuple[float, float],
    enhance: tuple[float, float],
    by_seed: tuple[float, ...],
    holds: bool | None,
) -> None:
    changes = []
    for kind, ends in (("remove", remove), ("enhance", enhance)):
        changes.append(mixture(kind, "baseline", change(-6.0, -4.0)))
        changes.append(mixture(kind, "random", change(*ends, by_seed)))
    (claim,) = findings.trater_claim(changes, 3)
    assert claim.holds is holds
    assert findings.trater_claim(changes[:1], 3) == []


def test_the_stored_trainings_stand_beside_table_1(bundled: Setting) -> None:
    stored = files("headscope.papers") / "data" / "stored" / "trater-pocket.json"
    bundled.kept("trater").parent.mkdir(parents=True)
    bundled.kept("trater").write_text(stored.read_text("utf-8"), "utf-8")
    shown = experiment(NAME, "table-1").show(bundled)
    cells = {row.name.partition(":")[0]: row.cells[0] for row in shown.tables[0].rows}
    assert cells["remove"].published == 41.33 and cells["remove random"].published is None
    assert shown.found and [claim["name"] for claim in shown.more["claims"]]


@pytest.mark.parametrize(
    ("best", "others", "random", "holds"),
    [
        ("bilingual", "monolingual", 19, True),
        # Random heads that select as many translations; fewer sets than decide.
        ("bilingual", "monolingual", -19, None),
        ("bilingual", "monolingual", 5, None),
        ("bilingual", "monolingual", 0, None),
        ("monolingual", "bilingual", 19, False),
    ],
)
def test_whether_selected_documents_carry_translations(
    best: str, others: str, random: int, holds: bool | None
) -> None:
    kinds = ["bilingual" if random < 0 else "monolingual"] * 20
    draws = [{"means": {"de": 0.1}, "kinds": {"de": kinds}}] * abs(random)
    rows = [rated("de", 100.0 + n, best) for n in range(20)]
    rows += [rated("de", n / 1000, others) for n in range(380)]
    chosen = steps.best_documents(rows, 0.05)
    (claim,) = findings.rated_claim(chosen, rows, draws)
    assert claim.holds is holds
    unknown = [rated("de", 1.0, None)]
    assert findings.rated_claim({"de": unknown}, unknown, draws) == []


def test_attention_of_the_best_heads_and_of_the_others() -> None:
    attention = {Head(0, 0): 0.5, Head(0, 1): 0.1, Head(1, 0): 0.3, Head(1, 1): 0.9}
    scores = {Head(0, 0): 0.6, Head(0, 1): 0.7, Head(1, 0): 0.1, Head(1, 1): 0.0}
    # Both others look as much as the mean of the chosen ones.
    assert findings.looked(attention, scores, 2) == pytest.approx((0.3, 0.6, 1.0))
    assert findings.looked(attention, scores, 4)[1:] == (None, None)
    for looking, holds in (([False, False], True), ([True, False], None), ([True], False)):
        assert findings.key_word_claim(looking)[0].holds is holds
    assert findings.key_word_claim([]) == []


# The answer


def test_the_answer_sorts_claims_by_what_was_found() -> None:
    answer = answer_of(
        [
            Claim("A", True, "1 of 2", "an interval"),
            Claim("B", False, "0.3"),
            Claim("C", None, "0.1", decides="more of it"),
            Claim("D", False, "0.4", "an interval"),
        ]
    )
    assert [(claim.name, claim.verdict) for claim in answer.claims] == [
        ("A", "holds"), ("D", "does not hold"), ("C", "open"), ("B", "not so here"),
    ]  # fmt: skip
    assert re.findall(r"\d+", answer.found) == ["3", "1", "1", "1"] and "interval" in answer.sure
    assert answer_of([]) == Answer()


def of_two(free: Tested, same: Tested | None = None, **more: Any) -> Claim:
    """A claim by its tests; of heads of the same layers as by random ones, if not given."""
    tests = {"random": free, "same layers": same or replace(free, control="same layers")}
    return of_tests("A", tests, "f", **more)


@pytest.mark.parametrize(
    ("gap", "p", "least", "holds", "decides"),
    [
        (around(-4, 1), 0.025, 0.025, True, ""),
        (around(-4, 1), 0.075, 0.025, None, "do as much"),
        (around(-4, 1), 0.167, 0.167, None, "19 random sets or more"),
        (around(-2, 3), 0.025, 0.025, None, "more examples"),
        (around(2, 1), 1.0, 0.025, False, ""),
    ],
)
def test_what_removal_has_to_show(
    gap: Estimate, p: float, least: float, holds: bool | None, decides: str
) -> None:
    test = against(gap, p=p, least_p=least)
    claim = of_two(test)
    assert claim.holds is holds
    assert decides in claim.decides and bool(claim.decides) is bool(decides)
    turned = Estimate(-gap.value, -gap.high, -gap.low)
    assert of_two(replace(test, difference=turned, side="higher")).holds is holds


@pytest.mark.parametrize(
    ("change", "holds"),
    [(around(-4, 1), True), (around(-2, 3), None), (Estimate(), None), (around(2, 1), False)],
)
def test_what_is_no_worse_than_the_original_is_not_needed(
    change: Estimate, holds: bool | None
) -> None:
    claim = of_two(against(around(-4, 1)), change=change)
    assert (claim.holds, bool(claim.decides)) == (holds, holds is None)


def test_heads_of_the_same_layers_decide_too() -> None:
    free = against(around(-4, 1))
    # As much as heads of the same layers: a claim of depth alone.
    depth = of_two(free, replace(free, control="same layers", p_draws=0.4))
    assert depth.holds is True and depth.name == "A, more than heads at any depth"
    # Too few sets of these layers, or none drawn: open, and what would decide it.
    few = of_two(free, replace(free, control="same layers", p_draws=0.1, least_p=0.1, draws=9))
    assert few.holds is None and "9 different sets" in few.decides
    # Few sets because few were asked for are no lack of heads.
    asked = replace(free, p_draws=0.25, least_p=0.25, draws=3)
    assert "heads a layer" not in of_two(asked, replace(asked, control="same layers")).decides
    alone = of_tests("A", {"random": free}, "f")
    assert alone.holds is None and "same layers" in alone.decides
    assert of_tests("A", {}, "f").holds is None


def test_p_over_draws_is_corrected_over_the_papers_claims() -> None:
    def claim(name: str, p: float) -> Claim:
        return replace(of_two(against(around(-4, 1), p=p, least_p=0.001)), name=name)

    assert judged([claim("A", 0.03)])[0].holds is True
    three = judged([claim("A", 0.03), claim("B", 0.001), claim("C", 0.04), Claim("D", True, "f")])
    assert [one.holds for one in three] == [None, True, None, True]
    assert "0.06 after Holm" in three[0].decides


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_what_its_definition_says(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for at, p in enumerate(p_values):
        # A p-value is rejected at a level if all that are not larger are, each at its own share.
        levels = [
            min(1.0, (len(p_values) - sum(q < other for q in p_values)) * other)
            for other in p_values
            if other <= p
        ]
        assert corrected[at] == pytest.approx(max(levels))
        assert p <= corrected[at] <= 1


def test_the_runs_themselves_on_a_few_sentences(
    loaded: None, bundled: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundled model on sentences given as files: every step runs, and figures agree."""
    monkeypatch.setattr(steps, "DRAWS", 1)
    monkeypatch.setattr(steps, "PROMPTS_EACH", 1)
    monkeypatch.setattr(steps, "PROMPTED", steps.PROMPTED[:1])
    places = []
    for pair_name in ("en-de", "de-en"):
        file = tmp_path / f"{pair_name}.tsv"
        write_pairs(file, sample_pairs(pair_name, "dev", 12, 0).pairs)
        places.append(f"{pair_name}={file}")
    setting = replace(bundled, data=PaperData(pairs=tuple(places)), batch_tokens=2048)
    names = ("figure-1", "figure-2", "figure-3", "figure-4", "figure-5", "figure-10", "figure-22")
    chosen = [experiment(NAME, name) for name in names]
    for one in make_plan(chosen, setting).due:
        one.step.run(setting, setting.at(one.step.name), None)
    found = describe(PAPER, make_plan(PAPER.experiments, setting), setting, set(names), {})
    json.dumps(found, allow_nan=False)
    shown = {one["name"]: one for one in found["experiments"]}
    assert all(shown[name]["state"] == "run" and shown[name]["found"] for name in names)

    scores = read_scores(setting.at("scores"))["mean"].values
    share = shown["figure-3"]["tables"][0]["rows"][0]["cells"][0]
    assert share["value"] == pytest.approx(100 * (scores > 0.1).sum() / 96)
    assert share["published"] == "< 8"
    maps = {one["title"].rpartition(", ")[2]: one for one in shown["figure-4"]["figures"]}
    drawn = maps["mean"]["values"]
    assert drawn[3][5] == pytest.approx(scores[3, 5])

    # Exact links: every sentence of this world has some, and the model needs its best heads.
    assert int(shown["figure-2"]["found"].partition("%")[0].strip("\u00a0 ")) > 50
    change, bleu = (row["cells"][0] for row in shown["figure-1"]["tables"][0]["rows"])
    assert change["high"] < -20
    assert (change["published"], bleu["published"]) == ("< \u221225", "< \u221217")
    kinds = [row["cells"][0] for row in shown["figure-10"]["tables"][0]["rows"]]
    assert sum(one["value"] for one in kinds) == pytest.approx(100)
    assert [one["published"] for one in kinds] == [46.0, 36.0, 18.0, None]
    assert len(shown["figure-22"]["tables"][0]["rows"]) == 1
