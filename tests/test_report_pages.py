"""What a reader needs on the pages of tasks, failures and one-by-one removal."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from headscope.report.drawing.sentences import marked
from headscope.report.html import join
from headscope.report.provenance import facts_list
from headscope.results.one_by_one import OneByOneResult, Removed, Untouched
from headscope.runs import open_run
from headscope.shown.blocks import Table
from headscope.studies.report import write_report
from headscope.studies.verify.one_by_one_show import show as one_by_one


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
    assert "Share written exactly right" in page and "at least 0.500" in page
    for name in ("Tasks with 2 heads removed", "Groups of tasks"):
        assert "exact_match" in tables(page)[name]


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
    assert "50\u00a0% of the source's content translated" in unescape(page)
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
@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([7.0, 9.0], "no step improves it."),
        ([0.5, 9.0], "best, 0.5, after step 1 (head 0.0)."),
    ],
)
def test_the_best_step_is_told_in_words(ranks: list[float], words: str) -> None:
    seen: Any = {"text": " The", "texts_changed": 1, "chrf": 50.0, "similarity": (1.0, 0.5)}
    first = Untouched(target_rank=1, top5_ranks=(1, 2, 3, 4, 5), target_token=" The", **seen)
    steps = tuple(
        Removed(step=at + 1, layer=0, head=at, target_rank=rank, top5_ranks=(rank,) * 5, **seen)
        for at, rank in enumerate(ranks)
    )
    result = OneByOneResult(baseline=first, steps=steps, sentences=1, order="given", gate=0.0)
    shown = one_by_one(result, Path())
    assert words in shown.finding[0]
    (table,) = shown.sections[0].blocks
    assert isinstance(table, Table) and [row.name for row in table.rows] == ["0", "1", "2"]
    assert [row.cells[1].value for row in table.rows] == [1, *ranks]


# ---- provenance ----------------------------------------------------------------------------------
def test_a_long_list_of_what_was_read_is_folded() -> None:
    short, long = ({f"file {n}": "ab" for n in range(number)} for number in (24, 25))
    assert "<details" not in str(facts_list("What was read", short))
    folded = str(facts_list("What was read", long))
    assert "<summary>All 25</summary>" in folded and folded.count("<dt>") == 25
