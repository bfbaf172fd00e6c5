"""What a reader needs on the pages of tasks, failures and one-by-one removal."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import report_helpers
from headscope.report.html import join
from headscope.report.sections.effects import effect_rows
from headscope.report.sections.marked import marked
from headscope.report.sections.provenance import facts_list
from headscope.results.removal import Effect
from headscope.runs import open_run
from headscope.studies.report import write_report
from removal_report_helpers import write_removal


def finished(path: Path, command: str, result: dict[str, Any], **rows: list[Any]) -> str:
    """The page of a run with this result, and with these JSON Lines files."""
    with open_run(path, command, {"made": "by hand"}, {}) as run:
        for name, lines in rows.items():
            run.write_jsonl(f"{name}.jsonl", lines)
        run.finish({"signature": run.signature, "run": str(path), "seconds": 1.0, **result})
    return write_report(path).read_text("utf-8")


def tables(page: str) -> dict[str, str]:
    """The tables by their captions."""
    found = re.findall(r"<table[^>]*>.*?</table>", page, re.DOTALL)
    return {re.search(r"<caption[^>]*>(.*?)</caption>", one)[1]: one for one in found}


def bare_tables(page: str) -> set[str]:
    """The captions of tables that stand outside any figure, where nothing says how sure they are.

    The data that a run read needs no such words.
    """
    return set(tables(re.sub(r"<figure.*?</figure>", "", page, flags=re.DOTALL))) - {"Data"}


def captions(page: str) -> list[str]:
    found = re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", page, re.DOTALL)
    return [unescape(re.sub(r"<[^>]*>", "", one)) for one in found]


# ---- tasks ---------------------------------------------------------------------------------------
def task(**more: Any) -> dict[str, Any]:
    heads = {"k": 2, "gate": 0.0, "heads": ["0.0", "0.1"], "filled_up": 0, "change": {}}
    tests = {"p_examples": None, "p_draws": 0.5, "distinct_draws": 1, "against_random": {}}
    chosen = {"kind": "top", "draw": None, "value": 0.4, **heads, **tests}
    random = {"kind": "random", "draw": 0, "value": 0.6, **heads}
    return {
        "metric": "exact_match",
        "examples": 7,
        "chance": None,
        "higher_is_better": True,
        "baseline": {"value": 0.8},
        "conditions": [chosen, random],
        **more,
    }


@pytest.mark.parametrize("bounds", [{}, {"low": None, "high": None}])
def test_a_task_whose_metric_has_no_interval_is_shown(
    tmp_path: Path, bounds: dict[str, None]
) -> None:
    one = task()
    one["baseline"] |= bounds
    one["conditions"][0] |= bounds
    if bounds:
        one["conditions"][0] |= {"change": {"value": -0.4, **bounds}}
        one["conditions"][0] |= {"against_random": {"value": -0.2, **bounds}}
    result = {
        "tasks": {"sums": one},
        "groups": {"all": {"metric": "exact_match", "tasks": ["sums"], **one}},
        "k": [2],
        "draws": 1,
        "harness": "0.4",
        "model": {"name": "small"},
    }
    page = finished(tmp_path / "run", "verify tasks", result)
    assert "share written exactly right (exact_match), 7 examples" in page
    assert "<bdi>7</bdi>" in page
    assert not bare_tables(page)
    for name in ("Every task and head set", "Groups of tasks"):
        assert '<td class="said">exact_match</td>' in tables(page)[name]
    assert any("cannot be lower than 0.500" in one for one in captions(page))


# ---- failures ------------------------------------------------------------------------------------
KINDS = ("no translation", "hallucination", "missing details", "other")


def case(direction: str, **more: Any) -> dict[str, Any]:
    evidence = {
        "because": "nothing backs \u201cv\u00e4ter\u201d",
        "empty": False,
        "language": "de",
        "chrf_source": 9.0,
        "chrf_before": 100.0,
        "chrf_after": 12.0,
        "unsupported_words": ["v\u00e4ter"],
        "missing_words": ["hund"],
        "source_covered": 0.5,
        "output_covered": None,
        "missing": 0.5,
        "unsupported": 0.5,
    }
    return {
        "id": "3 & 4",
        "direction": direction,
        "kind": "hallucination",
        "selected": True,
        "evidence": {**evidence, **more},
        "source": "The <dog> sleeps.",
        "reference": "Der Hund schl\u00e4ft.",
        "before": "Ein Hund, schl\u00e4ft.",
        "after": "" if more.get("empty") else "V\u00c4TER schlafen.",
    }


def failures_page(path: Path, cases: list[dict[str, Any]]) -> str:
    counts = {kind: sum(one["kind"] == kind for one in cases) for kind in KINDS}
    shares = {kind: number / len(cases) for kind, number in counts.items()}
    part = {"rows": 9, "selected": 1, "counts": counts, "shares": shares}
    result = {
        "condition": {"kind": "top", "k": 2, "gate": 0.0, "draw": None},
        "selected": len(cases),
        "rows": 9,
        "rule": {"good": 50.0, "loss": 20.0},
        "links": "given",
        "identifier": "langid",
        "shares": shares,
        "counts": counts,
        "directions": {one["direction"]: part for one in cases},
        "judge": None,
    }
    return finished(path, "verify failures", result, cases=cases)


def test_failures_stand_side_by_side_with_the_words_that_speak_for_them(tmp_path: Path) -> None:
    page = failures_page(tmp_path / "run", [case("en-de"), case("en-ru", empty=True)])
    assert page.count('class="example of2 case"') == 2
    assert '<mark class="made">V\u00c4TER</mark> schlafen.' in page
    assert 'Der <mark class="lost">Hund</mark> schl\u00e4ft.' in page
    assert 'Ein <mark class="lost">Hund</mark>, schl\u00e4ft.' in page
    assert "The &lt;dog&gt; sleeps." in page
    assert "<em>(nothing)</em>" in page
    assert "50\u00a0% of the source\u2019s content translated" in page
    assert not bare_tables(page)
    assert '<table class="numbers">' in tables(page)["Number of cases by direction"]
    assert ".example dl" in page  # the look of sentences side by side


def test_words_are_marked_however_they_are_written() -> None:
    def html(*given: Any) -> str:
        return join(marked(*given))

    assert html("\u0130ki <b>", ["iki"], "lost") == '<mark class="lost">\u0130ki</mark> &lt;b&gt;'
    assert html("Clara'y\u0131, gel!", ["clara'y\u0131"], "made").startswith(
        '<mark class="made">Clara'
    )
    assert html("a hundred", ["hund"], "lost") == "a hundred"
    assert (
        html("\u72d7\u559c\u6b22\u732b", ["\u559c\u6b22"], "lost")
        == '\u72d7<mark class="lost">\u559c\u6b22</mark>\u732b'
    )
    assert html("(no) words", [], "lost") == "(no) words"
    assert marked("", ["word"], "lost") == []


# ---- one by one ----------------------------------------------------------------------------------
def step(**more: Any) -> dict[str, Any]:
    seen = {"text": " The <dog>", "texts_changed": 1, "chrf": 50.0, "similarity": [1.0, 0.5]}
    return {"target_rank": 1, "top5_ranks": [1, 2, 3, 4, 5], **seen, **more}


def one_by_one_page(path: Path, ranks: list[float], **more: Any) -> str:
    result = {
        "baseline": step(target_token=" The", top5_tokens=list("abcde")),
        "steps": [
            step(step=n + 1, layer=0, head=n, target_rank=rank, top5_ranks=[rank] * 5)
            for n, rank in enumerate(ranks)
        ],
        "sentences": 1,
        "order": "given",
        "gate": 0.0,
        "model": {"name": "small"},
        **more,
    }
    return finished(path, "verify one-by-one", result)


def test_ranks_are_read_as_ranks(tmp_path: Path) -> None:
    page = one_by_one_page(tmp_path / "run", [7, 1500])
    ranks = page[page.index('id="ranks-figure"') : page.index('id="texts-figure"')]
    assert "power of ten" not in page
    ticks = re.findall(r'class="across"[^>]*><span>([^<]*)</span>', ranks)
    assert [tick.replace("\u202f", "") for tick in ticks] == ["1", "10", "100", "1000"]
    assert "rank (1: the likeliest): 1\u202f500" in unescape(ranks)
    assert "after step 2 (head 0.1)" in page


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([7, 9], "After no step is it better than"),
        ([0.5, 9], "best, 0.5, after step 1 (head 0.0)."),
    ],
)
def test_the_best_step_is_told_in_words(tmp_path: Path, ranks: list[float], words: str) -> None:
    page = one_by_one_page(tmp_path / "run", ranks)
    assert words in page
    assert "after 0 steps" not in page
    assert "layer 1, in the untouched model: 0.500" in page


@pytest.mark.parametrize("directions", [None, ["en-de", "de-en"]])
def test_a_mean_over_directions_is_told_where_there_are_directions(
    tmp_path: Path, directions: list[str] | None
) -> None:
    walk = {"baseline": step(), "steps": [], "sentences": 2}
    more = {} if directions is None else {"directions": dict.fromkeys(directions, walk)}
    page = one_by_one_page(tmp_path / "run", [7, 9], sentences=4, **more)
    assert ("mean over directions" in page) == bool(directions)


# ---- removal -------------------------------------------------------------------------------------
def test_outputs_without_links_are_named(tmp_path: Path) -> None:
    run = write_removal(tmp_path / "run", sentences=3)
    page = write_report(run).read_text("utf-8")
    assert "are not linked and do not light up" not in page
    lines = (run / "links.jsonl").read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "random-layer-matched" not in line]
    (run / "links.jsonl").write_text("".join(kept), "utf-8")
    page = write_report(run).read_text("utf-8")
    named = "The words of \u201cRandom of the same layers removed\u201d are not linked"
    assert named in page


def test_few_sentences_leave_the_p_value_over_sentences_large(tmp_path: Path) -> None:
    few, many = (
        captions(write_report(write_removal(tmp_path / str(n), sentences=n)).read_text("utf-8"))
        for n in (5, 25)
    )
    said = "in 32 ways only, so that it stays in the order of 0.031 whatever the heads do; "
    assert sum(said + "directions with equally many" in one for one in few) == 1
    assert not any("(it cannot be lower than 0.0001)" in one for one in few)
    assert any("(it cannot be lower than 0.0001)" in one for one in many)


def test_many_draws_become_strokes_and_stay_few() -> None:
    rng = np.random.default_rng(0)
    draws = tuple(rng.uniform(20, 90, 2000).tolist())
    rows = effect_rows({"en-de": Effect(90.0, 10.0, draws, draws[:5] * 40)}, 1)
    assert 'class="track many"' in rows
    assert 500 < rows.count("<u ") <= 1001
    assert rows.count('class="matched"') == 5
    few = effect_rows({"en-de": Effect(90.0, 10.0, (50.0, 50.0, 60.0), ())}, 1)
    assert few.count("<u ") == 2
    assert "many" not in few


@pytest.mark.parametrize(("draws", "least"), [(3, "0.250"), (199, "0.005"), (999, "0.001")])
def test_an_atlas_says_how_small_its_p_value_over_draws_can_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, draws: int, least: str
) -> None:
    monkeypatch.setattr(report_helpers, "DRAWS", draws)
    run = report_helpers.write_atlas(tmp_path / "run", ("en-de", "de-en"), sentences=2)
    page = " ".join(write_report(run).read_text("utf-8").split())
    assert f"its p-value over draws could not be lower than {least}." in page
    assert f"give a p-value over draws of {least} at best" in page


# ---- provenance ----------------------------------------------------------------------------------
def test_a_long_list_of_what_was_read_is_folded() -> None:
    short, long = ({f"file {n}": "ab" for n in range(number)} for number in (24, 25))
    assert "<details" not in str(facts_list("What was read", short))
    folded = str(facts_list("What was read", long))
    assert "<summary>All 25</summary>" in folded and folded.count("<dt>") == 25
