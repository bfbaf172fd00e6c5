"""Formation over checkpoints: figures, checkpoints that cannot be read, killed runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import process_helpers
from headscope.data.pairs import PairFile, SentencePair, write_pairs
from headscope.errors import InputError
from headscope.find.translation_score_config import TranslationScore
from headscope.heads import read_scores
from headscope.measure import chrf
from headscope.pocket import weights
from headscope.results.formation import FormationResult
from headscope.runs import encode
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.formation import Formation, formation, quality
from headscope.studies.pairs import PairsChoice
from lm_helpers import saved

#: Two checkpoints, two directions, few sentences.
SMALL = Formation(
    checkpoint_series(["pocket:step-00800", "pocket:final"]),
    PairsChoice(("en-de", "tr-en"), limit=4),
    TranslationScore(bootstrap_draws=50, keep_peaks=True),
    check=2,
)
SHORT = TranslationScore(bootstrap_draws=20)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> FormationResult:
    return formation(SMALL, tmp_path_factory.mktemp("series") / "run")


def test_each_row_follows_from_the_scores_of_its_checkpoint(measured: FormationResult) -> None:
    rows = measured.checkpoints
    assert [row.name for row in rows] == ["step-00800", "final"] and measured.last == "final"
    means = [
        read_scores(Path(str(measured.run)) / "checkpoints" / row.name)["mean"] for row in rows
    ]
    last = set(means[-1].select(0.1))
    for row, scores in zip(rows, means, strict=True):
        total = scores.geometry.total
        counts = scores.classes(0.1)
        assert encode(row.counts) == counts
        assert row.shares.each == tuple(count / total for count in counts.values())
        mine = set(scores.select(0.1))
        assert row.heads == scores.select(0.1).keys
        assert row.overlap_with_last == len(mine & last) / len(last)
        top, final = (set(one.top(measured.k)) for one in (scores, means[-1]))
        assert row.top_overlap_with_last == len(top & final) / measured.k
        assert row.mean_score == pytest.approx(np.nanmean(scores.values))
        above = scores.above_chance().classes(0.1)
        assert row.above_chance is not None
        assert row.above_chance.token_alignment == above["token_alignment"] / total
    assert rows[-1].overlap_with_last == rows[-1].top_overlap_with_last == 1
    assert rows[-1].rank_correlation_with_last == pytest.approx(1)
    for data in measured.data.values():  # found and verified on sentences of their own
        assert data.path != data.verified_path


def test_chrf_is_that_of_the_kept_translations(measured: FormationResult) -> None:
    lines = (Path(str(measured.run)) / "outputs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 2 * 2 * 2  # checkpoints, directions, sentences
    for one in measured.checkpoints:
        values = []
        for pair in ("en-de", "tr-en"):
            mine = [r for r in rows if (r["checkpoint"], r["direction"]) == (one.name, pair)]
            value = chrf([r["output"] for r in mine], [r["reference"] for r in mine]).value
            assert one.directions[pair].chrf.value == pytest.approx(value)
            values.append(value)
        assert one.chrf.value == pytest.approx(sum(values) / 2)
        # Translations that are all the reference have no interval.
        assert one.chrf.low <= one.chrf.high or (one.chrf.value, one.chrf.bounded) == (100, False)
    # A trained model translates better than it did early on.
    assert measured.checkpoints[-1].chrf.value > measured.checkpoints[0].chrf.value + 10


def test_a_killed_run_ends_with_the_same_numbers(measured: FormationResult, tmp_path: Path) -> None:
    """Killed when the first checkpoint is finished and the second one is half scored."""
    out = tmp_path / "run"
    process_helpers.killed_at(1, formation, SMALL, out, titles=("final: scoring",))
    assert not (out / "DONE.json").exists()
    kept = {p: p.stat().st_mtime_ns for p in out.rglob("parts/**/*.safetensors")}
    finished = {p: p.stat().st_mtime_ns for p in out.rglob("DONE.json")}
    assert len(kept) >= 3 and [p.parent.name for p in finished] == ["step-00800"]
    result = formation(SMALL, out)
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert replace(result, run=measured.run, seconds=measured.seconds) == measured
    # A finished run comes back as it is.
    again = formation(SMALL, out)
    assert again.seconds == result.seconds


@pytest.fixture
def damaged(tmp_path: Path) -> list[str]:
    """Three checkpoints of which the one in the middle is cut short."""
    places = []
    for step, name in enumerate(("step-00320", "step-00800", "final"), 1):
        places.append(str(tmp_path / f"step-{step}"))
        shutil.copytree(weights.path(name), places[-1])
    broken = tmp_path / "step-2" / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:100_000])
    return places


@pytest.fixture
def data(tmp_path: Path) -> Path:
    from headscope.pocket.sample import sample_pairs

    write_pairs(tmp_path / "pairs.tsv", sample_pairs("en-de", "dev", 8, 3).pairs)
    return tmp_path / "pairs.tsv"


def test_an_unreadable_checkpoint_is_named_and_skipped_on_request(
    damaged: list[str], data: Path, tmp_path: Path
) -> None:
    pairs = PairsChoice(("en-de",), (str(data),))
    series = checkpoint_series(damaged)
    out = tmp_path / "run"
    with pytest.raises(InputError, match=r"checkpoint step-2 cannot be read: .*--skip-unreadable"):
        formation(Formation(series, pairs, SHORT, check=2), out)
    assert not out.exists()  # told before any work
    result = formation(Formation(series, pairs, SHORT, check=2, skip_unreadable=True), out)
    assert [row.name for row in result.checkpoints] == ["step-1", "step-3"]
    assert [one.name for one in result.skipped] == ["step-2"]
    assert "step-2" in result.skipped[0].reason
    # Heads were found on one half of the file and translations made of the other.
    found = json.loads((out / "found_on.json").read_bytes())["en-de"]["source"]
    assert result.data["en-de"].found_on == len(found) < 8
    with pytest.raises(InputError, match="only 1 of 2 checkpoints can be read"):
        formation(Formation(series[1:], pairs, SHORT, skip_unreadable=True), tmp_path / "other")


def test_checkpoints_of_two_geometries_are_refused(data: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "step-1")
    series = checkpoint_series([str(other), str(weights.path("final"))])
    pairs = PairsChoice(("en-de",), (str(data),))
    with pytest.raises(
        InputError,
        match=r"step-1 is of a model of 2 layers × 4 heads, but checkpoint final of one of 6",
    ):
        formation(Formation(series, pairs, SHORT), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_statistical_links_are_computed_once_for_the_series(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aligner without a seed gives other links at every call, yet all checkpoints share them."""
    calls: list[int] = []

    def align(texts: Any, extra: Any, options: Any) -> Any:
        calls.append(len(calls))
        return tuple(frozenset({(0, min(calls[-1], len(t) - 1))}) for _, t in texts)

    monkeypatch.setattr("headscope.data.align.check_eflomal", lambda: None)
    monkeypatch.setattr("headscope.data.align.align_eflomal", align)
    places = [saved(tmp_path / f"step-{n}", seed=n) for n in (1, 2, 3)]
    series = checkpoint_series([str(one) for one in places])
    pairs = PairsChoice(("en-de",), (str(data),))
    score = TranslationScore(aligner="eflomal", bootstrap_draws=20, max_new_tokens=4)
    out = tmp_path / "run"
    formation(Formation(series, pairs, score, check=1), out)
    assert len(calls) == 1
    digests = {
        read_scores(out / "checkpoints" / f"step-{n}")["mean"].config["links_digest"]
        for n in (1, 2, 3)
    }
    assert len(digests) == 1


def pair_file(*targets: str) -> PairFile:
    pairs = tuple(SentencePair(str(n), "s", target, None, n) for n, target in enumerate(targets))
    return PairFile(pairs, "en", "de", "x", "0")


def test_the_interval_of_the_mean_covers_directions_of_any_size() -> None:
    one = pair_file("ein kleiner Hund", "zwei große Katzen", "drei alte Lieder")
    other = pair_file("a small dog", "two cats")
    outputs = [["ein kleiner Hund", "zwei Katzen", "nichts"], ["a small cat", "two cats"]]
    # A direction of a single sentence has no interval, and so the mean has none.
    single = quality([one, pair_file("a small dog")], [outputs[0], ["a small cat"]], SHORT)
    assert single.known and not single.bounded
    both = quality([one, other], outputs, SHORT)
    values = [
        chrf(made, [p.target for p in pairs.pairs]).value
        for pairs, made in zip([one, other], outputs, strict=True)
    ]
    assert both.value == pytest.approx(sum(values) / 2)
    assert both.low <= both.value <= both.high
    # Every draw holds a sentence of every direction, however few one has.
    perfect = quality([one, other], [[p.target for p in f.pairs] for f in (one, other)], SHORT)
    assert astuple(perfect) == pytest.approx((100, np.nan, np.nan), nan_ok=True)
    # Two copies of one direction rise and fall together: the interval is that of one.
    single, double = quality([one], outputs[:1], SHORT), quality([one, one], outputs[:1] * 2, SHORT)
    assert astuple(double) == pytest.approx(astuple(single))
