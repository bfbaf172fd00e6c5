"""Token Alignment Heads as a recipe: coverage, settings, and the claims that follow from runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import combinations
from math import hypot, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev
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
from headscope.papers.claims import judged
from headscope.papers.paper import Missing, PaperData, Setting, Steering
from headscope.papers.plan import make_plan
from headscope.papers.reproduce import describe
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
from headscope.pocket.tasks import GROUPS
from headscope.results.classes import ClassShares
from headscope.results.formation import CheckpointRow
from headscope.results.overlap import Conditional, PairOverlap
from headscope.results.removal import RemovalResult
from headscope.results.translation_score import TranslationResult
from headscope.runs import decode
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
    # As is; two sizes, each chosen and three times 39 random: of as many sentences as are scored
    # once, 1012 for 997.
    times = 1 + 2 * (1 + 3 * 39)
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
        return findings.bounds(decode(TranslationResult, value), 0.1)

    assert of(SCORES) == (0.25, 0.75)
    assert of({**SCORES, "scores": [{**SCORES["scores"][0], "low": None}]}) is None
    assert of({**SCORES, "scores": []}) is None
    other = scored((0.5, 0.4, 0.6))
    assert of({**SCORES, "directions": {"a": SCORES, "b": other}}) == (0.625, 0.875)


def many(values: list[tuple[float, float, float]], chance: float) -> TranslationResult:
    """Heads with these scores, ends and chance."""
    value = scored(*values)
    value["scores"] = [{**head, "chance": chance} for head in value["scores"]]
    return decode(TranslationResult, value)


def classes(share: float, above: float | None, total: int) -> ClassShares:
    def kinds(share: float) -> dict[str, float]:
        return {"token_alignment": share, "low_activity": 1 - share, "inactive": 0.0}

    value = {
        "name": "m", "model": "m", "method": "translation-score", "layers": 3, "total": total,
        "counts": kinds(share), "shares": kinds(share),
        "shares_above_chance": None if above is None else kinds(above), "mean_score": 0.1,
        "highest": {"layer": 1, "head": 0, "score": 0.5, "low": 0.4, "high": 0.6},
    }  # fmt: skip
    found: ClassShares = decode(ClassShares, value)
    return found


SHARP, BLUNT, NONE = (0.5, 0.49, 0.51), (0.12, 0.05, 0.19), (0.05, 0.04, 0.06)


@pytest.mark.parametrize(
    ("heads", "chance", "shares", "holds"),
    [
        # 2 of 100 by score: few.
        ([SHARP] * 2 + [NONE] * 98, 0.0, (0.02, 0.02), True),
        # 30 of 100 are many, by score and above chance; not where chance lifts all of them.
        ([SHARP] * 30 + [NONE] * 70, 0.0, (0.3, 0.3), False),
        ([SHARP] * 2 + [(0.2, 0.19, 0.21)] * 28 + [NONE] * 70, 0.15, (0.3, 0.02), None),
        # None aligns tokens.
        ([NONE] * 100, 0.0, (0.0, 0.0), False),
        # Few heads or many, as their intervals have it.
        ([SHARP] * 2 + [BLUNT] * 28 + [NONE] * 70, 0.0, (0.3, 0.3), None),
    ],
)
def test_there_are_such_heads_and_they_are_few(
    heads: list[tuple[float, float, float]],
    chance: float,
    shares: tuple[float, float],
    holds: bool | None,
) -> None:
    claim = findings.few_claim(classes(*shares, 100), many(heads, chance), 0.08)
    assert judged([claim])[0].holds is holds


def test_thirds_by_the_middle_of_a_layer() -> None:
    assert findings.thirds([1, 2, 4]) == (1, 2, 4)
    assert findings.thirds([1, 1, 1, 1]) == (1, 2, 1)
    assert sum(findings.thirds(list(range(32)))) == sum(range(32))
    assert findings.thirds([0, 0, 0, 0, 25, 0]) == (0, 0, 25)


def pair(a: str, b: str, jaccard: float, p: float = 1e-9) -> PairOverlap:
    return PairOverlap(a, b, jaccard, 0.1, 0.1, p, 1, 2, 2, None, Conditional(None, None), None)


def pairs_of(jaccard: Callable[[str, str], float], ceiling: float | None) -> list[PairOverlap]:
    return [
        replace(pair(a, b, jaccard(a, b)), ceiling=ceiling) for a, b in combinations(FIGURE_5, 2)
    ]


@pytest.mark.parametrize(
    ("index", "ceiling", "holds"),
    [
        (lambda a, b: 0.9 + 0.002 * len({*a, *b}), 1.0, True),
        (lambda a, b: 0.5 + 0.002 * len({*a, *b}), 1.0, False),
        # Halves of a direction's own sentences agree no better: open.
        (lambda a, b: 0.5 + 0.002 * len({*a, *b}), 0.6, None),
        # One direction with other heads makes the mean uncertain.
        (lambda a, b: 0.2 if "ja-ko" in (a, b) else 0.9, 1.0, None),
    ],
)
def test_the_same_heads_in_all_directions(
    index: Callable[[str, str], float], ceiling: float, holds: bool | None
) -> None:
    pairs = pairs_of(index, ceiling)
    (claim,) = findings.same_claim(pairs, 0.6)
    assert judged([claim])[0].holds is holds
    mean = fmean(each.jaccard for each in pairs)
    assert f"{mean:.2f} (" in claim.by and f"{len(FIGURE_5)} directions" in claim.by
    # Two directions have one pair and no interval.
    (claim,) = findings.same_claim(pairs[:1], 0.6)
    assert judged([claim])[0].holds is None
    assert findings.same_claim([], 0.6) == []


def test_only_directions_of_a_figure_are_compared_with_it() -> None:
    own = [pair("en-zh", "en-ja", 0.9)]
    assert findings.among([*own, pair("zh-en", "ja-en", 0.2)], FIGURE_5) == own
    three = [pair(a, b, 0.5) for a, b in combinations(("en-de", "en-es", "en-fr"), 2)]
    assert findings.groups_said({"from English": three, "into English": three[:2]}) == []
    assert findings.groups_said({"from English": three, "into English": three})


def followed(*points: tuple[int | None, int, float], kept: int) -> list[CheckpointRow]:
    """Checkpoints with a step, a number of heads of 100, and chrF++; `kept` of the heads stay."""
    return [
        decode(CheckpointRow, {
            "name": f"s{step}", "step": step, "token_alignment": n / 100, "low_activity": 0.0,
            "inactive": 1 - n / 100, "counts": {"token_alignment": n}, "above_chance": None,
            "mean_score": 0.1, "highest": {"layer": 0, "head": 0, "score": 0.5},
            "overlap_with_last": None, "top_overlap_with_last": None,
            "top_overlap_with_last_expected": 0.1, "chrf": chrf, "chrf_low": chrf - 1,
            "chrf_high": chrf + 1, "heads": [f"0.{at}" for at in range(min(n, kept))]
            + [f"{1 + place}.{at}" for at in range(max(0, n - kept))],
        })
        for place, (step, n, chrf) in enumerate(points)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("points", "kept", "holds"),
    [
        ([(0, 0, 1.0), (1000, 60, 40.0), (5000, 40, 60.0), (9000, 30, 70.0)], 60, True),
        # As many heads at the end as at most.
        ([(0, 0, 1.0), (1000, 60, 40.0), (5000, 59, 60.0), (9000, 59, 70.0)], 60, False),
        # Other heads at the end: no core.
        ([(0, 0, 1.0), (1000, 60, 40.0), (5000, 40, 60.0), (9000, 30, 70.0)], 0, False),
        # chrF++ rises only when the heads are there.
        ([(0, 0, 1.0), (1000, 60, 2.0), (5000, 40, 60.0), (9000, 30, 99.0)], 60, False),
    ],
)
def test_heads_form_with_translation_keep_a_core_and_thin_out(
    points: list[tuple[int | None, int, float]], kept: int, holds: bool
) -> None:
    (claim,) = findings.formation_claim(followed(*points, kept=kept))
    assert judged([claim])[0].holds is holds
    # A last checkpoint without a step, as of another stage, is no part of the slope.
    again = [*points, (None, points[-1][1], 0.0)]
    assert judged(findings.formation_claim(followed(*again, kept=kept)))[0].holds is holds
    assert findings.formation_claim(followed(*points[:2], kept=kept)) == []


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


def test_translation_collapses_without_heads_that_do_more_than_others() -> None:
    def holds(gap: Estimate, change: Estimate) -> bool | None:
        (claim,) = findings.removal_claims(removal(gap, change), 96)
        assert (claim.key, claim.by.partition(" (")[0]) == (
            "collapse", "chrF++ 90.0 as it is, 30.0 without the top 14"
        )  # fmt: skip
        return judged([claim])[0].holds

    assert holds(Estimate(), around(-60.0, 2.0)) is None
    assert holds(around(-53.0, 2.0), around(-60.0, 2.0)) is True
    # A loss that is there and smaller than any of the paper's; random removals that do good make
    # the chosen heads look needed, and they are not.
    assert holds(around(-3.0, 1.0), around(-4.0, 1.0)) is False
    assert holds(around(-3.0, 1.0), around(0.5, 1.0)) is False


@pytest.mark.parametrize(
    ("losses", "half", "holds"),
    [
        ([1.0, 1.5, 2.0, 1.2], 0.5, True),
        ([10.0, 12.0, 11.0, 13.0], 0.5, False),
        ([1.0, 1.5, 2.0, 1.2], 6.0, None),  # few sentences
        ([0.0, 20.0, 1.0, 2.0], 0.5, None),  # few sets
    ],
)
def test_other_heads_are_spared_where_their_loss_is_not_noticed(
    losses: list[float], half: float, holds: bool | None
) -> None:
    draws = [replace(TOP, kind="outside", draw=at) for at in range(len(losses))]
    levels = [Level(value=90.0, part="", condition="original", statistic="chrf", examples=40)]
    levels += [
        Level(value=90.0 - loss, part="", condition=draw.id, statistic="chrf", examples=40,
              change=around(-loss, half))
        for draw, loss in zip(draws, losses, strict=True)
    ]  # fmt: skip
    evidence = Evidence(statistics={"chrf": STATISTICS["chrf"]}, levels=tuple(levels),
                        conditions=(Condition(), TOP, *draws))  # fmt: skip
    (claim,) = findings.spared_claim(evidence, 96)
    assert judged([claim])[0].holds is holds
    # The interval of the mean over sets (Student's t), and that over sentences.
    sets = 3.182446 * stdev(losses) / sqrt(len(losses))
    z = (0.06 - fmean(losses) / 90) / (hypot(half, sets) / 90) * 1.959964
    p = 2 * (1 - NormalDist().cdf(abs(z)))
    assert (claim.p if z > 0 else claim.p_against) == pytest.approx(p, rel=1e-4)
    without = removal(around(1, 1), around(1, 1)).evidence
    assert findings.spared_claim(without, 96) == []
    # A removal of fewer heads decides where there is one.
    assert findings.spared_claim(without, 96, evidence) == [claim]


def tasks(over: Estimate, within: Estimate, draws: list[tuple[float, float]]) -> Evidence:
    """The bundled model's two groups of tasks, with the gaps from random heads, and what single
    random sets cost."""
    sets = [replace(TOP, kind="random", draw=at) for at in range(len(draws))]
    groups = dict(zip((f"{name} (acc)" for name in GROUPS), (over, within), strict=True))
    levels, tests = [], []
    for at, (group, gap) in enumerate(groups.items()):
        own = fmean(costs[at] for costs in draws) + gap.value
        for each, value in zip(
            (Condition(), TOP, *sets), (0.9, 0.9 + own, *(0.9 + c[at] for c in draws)), strict=True
        ):
            change = around(own, (gap.high - gap.low) / 2) if each is TOP else None
            levels.append(Level(value=value, part=group, condition=each.id, statistic="acc",
                                examples=100, change=change))  # fmt: skip
        tests.append(against(gap, statistic="acc", part=group))
    return Evidence(
        statistics={"acc": STATISTICS["chrf"]}, conditions=(Condition(), TOP, *sets),
        levels=tuple(levels), tests=tuple(tests),
    )  # fmt: skip


SPREAD = [(-0.002 * at, 0.002 * at) for at in range(39)]


@pytest.mark.parametrize(
    ("over", "within", "holds"),
    [
        (around(-0.6, 0.05), around(-0.1, 0.02), True),
        (around(-0.1, 0.05), around(-0.6, 0.05), False),
        (around(-0.6, 0.05), around(-0.5, 0.02), False),  # far more than the paper's 10 points
        (around(-0.1, 0.05), around(-0.08, 0.05), None),
        (around(-0.15, 0.01), around(-0.1, 0.01), None),  # random sets are as far apart
    ],
)
def test_tasks_between_languages_lose_more_than_others(
    over: Estimate, within: Estimate, holds: bool | None
) -> None:
    evidence = tasks(over, within, SPREAD)
    (claim,) = findings.task_claim(evidence)
    assert judged([claim])[0].holds is holds
    own = fmean(a - b for a, b in SPREAD) + over.value - within.value
    as_far = sum(a - b <= own + 1e-12 for a, b in SPREAD)
    assert claim.p_draws == pytest.approx((1 + as_far) / (1 + len(SPREAD)))
    assert findings.task_claim(replace(evidence, tests=evidence.tests[:1])) == []


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
        ((-7.0, -5.0), (60.0, 64.0), (0.98, 1.0, 1.02), True),
        # Trainings differ as much as the mixtures do.
        ((-7.0, -5.0), (60.0, 64.0), (0.1, 0.2, 2.7), None),
        ((5.0, 7.0), (60.0, 64.0), (0.98, 1.0, 1.02), False),
        # There, and less than half of what the paper has.
        ((-7.0, -5.0), (0.9, 1.1), (0.98, 1.0, 1.02), False),
    ],
)
def test_selections_are_held_against_the_corpus_as_it_is(
    remove: tuple[float, float],
    enhance: tuple[float, float],
    by_seed: tuple[float, ...],
    holds: bool | None,
) -> None:
    changes = []
    for kind, ends in (("remove", remove), ("enhance", enhance)):
        changes.append(mixture(kind, "baseline", change(*ends, by_seed)))
        changes.append(mixture(kind, "random", change(50.0, 51.0)))
    (claim,) = findings.trater_claim(changes, 3)
    assert judged([claim])[0].holds is holds and "random" in claim.note
    (alone,) = findings.trater_claim([row for row in changes if row.than == "baseline"], 3)
    assert judged([alone])[0].holds is holds and not alone.note
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
    ("best", "others", "random"),
    [("bilingual", "monolingual", 19), ("monolingual", "bilingual", 0)],
)
def test_how_many_selected_documents_carry_translations(
    best: str, others: str, random: int
) -> None:
    draws = [{"kinds": {"de": ["monolingual"] * 20}}] * random
    rows = [rated("de", 100.0 + n, best) for n in range(20)]
    rows += [rated("de", n / 1000, others) for n in range(380)]
    (words,) = findings.rated_said(steps.best_documents(rows, 0.05), rows, draws)
    share = "100%" if best == "bilingual" else "0%"
    assert words.startswith(share) and (f"0 of {random}" in words) is (random > 0)
    unknown = [rated("de", 1.0, None)]
    assert findings.rated_said({"de": unknown}, unknown, draws) == []


def test_attention_of_the_best_heads_and_of_the_others() -> None:
    attention = {Head(0, 0): 0.5, Head(0, 1): 0.1, Head(1, 0): 0.3, Head(1, 1): 0.9}
    scores = {Head(0, 0): 0.6, Head(0, 1): 0.7, Head(1, 0): 0.1, Head(1, 1): 0.0}
    # Both others look as much as the mean of the chosen ones.
    assert findings.looked(attention, scores, 2) == pytest.approx((0.3, 0.6, 1.0))
    assert findings.looked(attention, scores, 4)[1:] == (None, None)


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
    monkeypatch.setattr(steps, "RATED_DRAWS", 1)
    monkeypatch.setattr(steps, "DOCUMENTS", 60)
    monkeypatch.setattr(steps, "PROMPTED", steps.PROMPTED[:1])
    places = []
    for pair_name in ("en-de", "de-en"):
        file = tmp_path / f"{pair_name}.tsv"
        write_pairs(file, sample_pairs(pair_name, "dev", 12, 0).pairs)
        places.append(f"{pair_name}={file}")
    setting = replace(bundled, data=PaperData(pairs=tuple(places)), batch_tokens=2048)
    numbers = (1, 2, 3, 4, 5, 10, 22)
    names = (*(f"figure-{number}" for number in numbers), "table-2")
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
