"""The pages of comparisons: every number of the run is on the page, and every text is escaped."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.runs import open_run
from headscope.runs.reading import result_of
from headscope.shown.blocks import Heatmap, Lines, Shown, Table
from headscope.studies.compare import classes, overlap
from headscope.studies.compare.classes import CompareClasses, compare_classes
from headscope.studies.compare.overlap import CompareOverlap, compare_overlap
from headscope.studies.registry import study_of
from headscope.studies.report import write_report
from headscope.studies.study import shown_of

NASTY = "<script>alert(1)</script>&"


class Text(HTMLParser):
    """The text of a page, without what scripts and styles hold."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.said.append(data)


GEOMETRY = Geometry.uniform(3, 4)


def text_of(path: Path) -> str:
    parser = Text()
    parser.feed(path.read_text("utf-8"))
    return " ".join(" ".join(parser.said).split())


def a_run(path: Path, pairs: tuple[str, ...], geometry: Geometry = GEOMETRY) -> str:
    parts = {
        pair: HeadScores(
            geometry,
            np.random.default_rng(n).uniform(0, 0.4, geometry.shape),
            "translation-score",
            extra={"chance": np.full(geometry.shape, 0.03)},
            config={"pair": pair},
        )
        for n, pair in enumerate(pairs)
    }
    with open_run(path, "find translation-score", {}, {"of": path.name}) as run:
        save_scores(run.path, parts if len(parts) > 1 else next(iter(parts.values())))
        run.finish({})
    return str(path)


def test_the_overlap_shows_every_pair_and_group(tmp_path: Path) -> None:
    place = a_run(tmp_path / "run", ("en-de", "de-en", "en-ru"))
    result = compare_overlap(CompareOverlap((place,), k=4), tmp_path / "out")
    found = shown_of(overlap.command, result, tmp_path / "out")
    pairs, groups, shared = (each.blocks[0] for each in found.sections[:3])
    assert isinstance(pairs, Table) and isinstance(groups, Table) and isinstance(shared, Heatmap)
    for pair, row in zip(result.pairs, pairs.rows, strict=True):
        assert [cell.value for cell in row.cells[:3]] == [
            pair.jaccard, pair.expected_exact, pair.expected
        ]  # fmt: skip
    assert [row.name for row in groups.rows] == [group.name for group in result.groups]
    assert shared.values[0][1] == shared.values[1][0] == result.pairs[0].jaccard
    assert dict(found.facts)["compared"] == "the first 4 heads of each"


def test_the_overlap_page_escapes_names(tmp_path: Path) -> None:
    nasty = tmp_path / "<b>set&"
    a_run(nasty, ("en-de",))
    other = a_run(tmp_path / "other", ("en-de",))
    compare_overlap(CompareOverlap((str(nasty), other), k="25%"), tmp_path / "out")
    file = write_report(tmp_path / "out")
    assert (
        "<b>set&" in text_of(file) and "<b>set" not in file.read_text("utf-8").split("<script")[0]
    )


def test_the_classes_show_every_share(tmp_path: Path) -> None:
    specs = (
        a_run(tmp_path / "big", ("en-de", "de-en")),
        a_run(tmp_path / "small", ("en-de",), Geometry((2, 0, 3))),
    )
    result = compare_classes(CompareClasses(specs), tmp_path / "out")
    shares = shown_of(classes.command, result, tmp_path / "out").sections[0].blocks[0]
    assert isinstance(shares, Table)
    for one, row in zip(result.models, shares.rows, strict=True):
        assert one.name == row.name and one.shares_above_chance is not None
        told = [cell.value for cell in row.cells[1:7]]
        assert told[::2] == [100 * share for share in one.shares.each]
        assert told[1::2] == [100 * share for share in one.shares_above_chance.each]


def row(name: str, step: int | None, **more: Any) -> dict[str, Any]:
    shares = {"token_alignment": 0.1, "low_activity": 0.6, "inactive": 0.3}
    return {
        "name": name, "step": step, **shares, "above_chance": shares,
        "counts": {"token_alignment": 1, "low_activity": 6, "inactive": 3},
        "mean_score": 0.123, "highest": {"layer": 1, "head": 2, "score": 0.5},
        "overlap_with_last": 0.4, "top_overlap_with_last": 0.55,
        "top_overlap_with_last_expected": 0.15,
        "chrf": 34.5, "chrf_low": 30.0, "chrf_high": 40.0, **more,
    }  # fmt: skip


def series(path: Path, rows: list[dict[str, Any]], **more: Any) -> Path:
    result = {
        "geometry": {"layers": 1, "heads": 10, "counts": [10]}, "threshold": 0.1, "k": 3,
        "checkpoints": rows, "skipped": [], "same_tokenizer": True, "signature": "s",
        "data": {"en-de": {"found_on": 7, "verified_on": 5}}, "seconds": 1.0, "run": "r", **more,
    }  # fmt: skip
    with open_run(path, "compare formation", {"n": len(rows)}, {}) as run:
        run.finish(result)
    return path


def shown(path: Path) -> Shown:
    study = study_of("compare formation")
    return shown_of(study, result_of(path, study.result, "a series"), path)


def test_the_formation_says_from_when_on_the_heads_are_there(tmp_path: Path) -> None:
    rows = [
        row("step-10", 10, top_overlap_with_last=0.2, chrf=3.0, chrf_low=1.0, chrf_high=4.0),
        row("step-100", 100, chrf=50.0, chrf_low=45.0, chrf_high=55.0),
        row("final", None, top_overlap_with_last=1.0, chrf=80.0, overlap_with_last=1.0),
    ]
    told = shown(series(tmp_path / "run", rows))
    assert told.finding[1].startswith("From step-100 on, half of the last checkpoint’s top 3")
    assert "Half of the last chrF++ is reached from step-100 on" in told.finding[1]
    table, lines = told.sections[0].blocks[0], told.sections[1].blocks[1]
    assert isinstance(table, Table) and isinstance(lines, Lines)
    chrf = [(r.name, r.cells[-1].value, r.cells[-1].low, r.cells[-1].high) for r in table.rows]
    assert chrf == [(r["name"], r["chrf"], r["chrf_low"], r["chrf_high"]) for r in rows]
    # A last checkpoint without a step stands beyond the one before.
    assert lines.x == "training step" and [x for x, _ in lines.labels] == [10, 100, 180]


def test_the_formation_page_of_a_series_with_gaps(tmp_path: Path) -> None:
    rows = [
        row("warm", None, above_chance=None, overlap_with_last=None, top_overlap_with_last=None),
        row(NASTY, None, above_chance=None),
    ]
    skipped = [{"name": "step-2", "reason": f"a weight file is damaged {NASTY}"}]
    place = series(tmp_path / "run", rows, skipped=skipped, same_tokenizer=False)
    file = write_report(place)
    assert NASTY in text_of(file) and "<script>alert" not in file.read_text("utf-8")
    said = " ".join(shown(place).cautions)
    assert "could not be read are left out: step-2" in said and "same tokenizer" in said


@pytest.mark.parametrize("lost", ["checkpoints", "geometry", "data"])
def test_a_result_that_lacks_something_is_named(tmp_path: Path, lost: str) -> None:
    place = series(tmp_path / "run", [row("a", 1), row("b", 2)])
    result = json.loads((place / "result.json").read_bytes())
    del result[lost]
    other = tmp_path / "other"
    with open_run(other, "compare formation", {}, {}) as run:
        run.finish(result)
    with pytest.raises(InputError, match=rf"result\.json: holds no 'result\.{lost}'"):
        write_report(other)
