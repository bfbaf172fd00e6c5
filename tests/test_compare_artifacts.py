"""Everything that can be named for a comparison, under names of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headscope.compare.artifacts import Artifact, check_one_geometry, read_artifacts
from headscope.compare.classes_shares import class_shares
from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, HeadScores, HeadSet, save_scores
from headscope.results.classes import Classes
from headscope.runs import open_run

GEOMETRY = Geometry.uniform(3, 4)


def scores(seed: int, pair: str | None = None, geometry: Geometry = GEOMETRY) -> HeadScores:
    values = np.random.default_rng(seed).uniform(0, 0.5, geometry.shape)
    chance = np.full(geometry.shape, 0.05)
    return HeadScores(
        geometry, values, "translation-score", extra={"chance": chance},
        config={"pair": pair} if pair else {}, provenance={"model": f"model {seed}"},
    )  # fmt: skip


def run_of(path: Path, parts: HeadScores | dict[str, HeadScores], finish: bool = True) -> str:
    with open_run(path, "find translation-score", {}, {"seed": str(path)}) as run:
        save_scores(run.path, parts)
        if finish:
            run.finish({})
    return str(path)


@pytest.fixture
def several(tmp_path: Path) -> str:
    parts = {pair: scores(number, pair) for number, pair in enumerate(("en-de", "de-en", "en-ru"))}
    return run_of(tmp_path / "several", parts)


def test_a_run_gives_every_direction_or_its_mean(several: str) -> None:
    found = read_artifacts([several])
    assert [(one.name, one.direction) for one in found] == [
        (pair, pair) for pair in ("de-en", "en-de", "en-ru")
    ]
    assert all(one.scores is not None and one.geometry == GEOMETRY for one in found)
    (mean,) = read_artifacts([several], mean_only=True)
    assert mean.direction is None and mean.name == "several"
    parts = [one.scores.values for one in found if one.scores is not None]
    assert mean.scores is not None
    np.testing.assert_allclose(mean.scores.values, np.mean(parts, axis=0))
    (picked,) = read_artifacts([f"{several}:en-ru"])
    assert (picked.direction, picked.place) == ("en-ru", f"{several}:en-ru")
    assert picked.digest == found[2].digest != found[0].digest
    with pytest.raises(InputError, match="holds no scores named 'tr-es'; known: de-en, en-de"):
        read_artifacts([f"{several}:tr-es"])


def test_a_digest_tells_all_that_comparisons_read() -> None:
    """Halves of the examples are chosen by what is kept of each, and as `average` says."""
    hits, totals = np.arange(24.0).reshape(2, 3, 4), np.array([30, 40])
    kept = replace(scores(1), statistics={"hits": hits, "totals": totals})
    others = [
        scores(2),
        replace(kept, statistics={}),
        replace(kept, statistics={"hits": hits + 1, "totals": totals}),
        replace(kept, statistics={"totals": hits, "hits": totals}),
        replace(kept, extra={"same": kept.extra["chance"]}),
        replace(kept, config={"average": "micro"}),
        replace(kept, low=kept.values, high=kept.values),
    ]
    digests = [Artifact("a", "", GEOMETRY, each).digest for each in (kept, *others)]
    assert len({*digests}) == len(digests)
    assert Artifact("b", "elsewhere", GEOMETRY, replace(kept)).digest == digests[0]


def test_folders_of_scores_sets_and_gates(tmp_path: Path, several: str) -> None:
    heads = HeadSet(GEOMETRY, (Head(2, 1), Head(0, 3)))
    heads.save_pretrained(tmp_path / "set")
    Gate.of(GEOMETRY, {Head(1, 1): 0.5, Head(1, 2): 0.0}).save_pretrained(tmp_path / "gate")
    scores(4, "en-de").save_pretrained(tmp_path / "scores")
    (tmp_path / "list.csv").write_text("layer,head\n0,3\n")
    specs = [str(tmp_path / name) for name in ("set", "gate", "scores", "list.csv")]
    found = read_artifacts([*specs, "2.1,1.1"])
    assert [len(one.top()) for one in found] == [2, 2, 2, 1, 2]
    assert found[0].top() == heads and found[0].top(1).heads == (Head(2, 1),)
    assert set(found[1].top()) == {Head(1, 1), Head(1, 2)}
    # 15 % of 12 heads are 2; a threshold takes all above it, of scores alone.
    assert found[2].scores is not None
    assert found[2].top("50%") == found[2].scores.top(6)
    assert found[2].top(threshold=0.2) == found[2].scores.select(0.2)
    assert found[0].top(threshold=0.2) == heads
    assert [one.name for one in found] == ["set", "gate", "en-de", "list", "2.1,1.1"]


def test_names_are_as_short_as_they_can_be_and_never_the_same(tmp_path: Path, several: str) -> None:
    other = run_of(tmp_path / "other", {p: scores(9, p) for p in ("en-de", "de-en")})
    names = [one.name for one in read_artifacts([several, other])]
    mine, yours = ("de-en", "en-de", "en-ru"), ("de-en", "en-de")
    assert names == [*(f"several:{p}" for p in mine), *(f"other:{p}" for p in yours)]
    twice = [one.name for one in read_artifacts([several, several])]
    assert len(set(twice)) == 6


def test_lists_need_a_geometry_from_somewhere(tmp_path: Path, several: str) -> None:
    with pytest.raises(InputError, match=r"0\.1,0\.2: a list of heads does not say how many"):
        read_artifacts(["0.1,0.2", "1.1"])
    one, _ = read_artifacts(["0.1,0.2", "1.1"], geometry=Geometry.uniform(2, 3))
    assert one.geometry == Geometry.uniform(2, 3)
    first, *_ = read_artifacts(["0.1,0.2", several])  # the run tells, though it comes later
    assert first.geometry == GEOMETRY
    with pytest.raises(InputError, match=r"no head L7\.H1"):
        read_artifacts(["7.1", several])
    with pytest.raises(InputError, match=r"--geometry is of a model of 2 layers × 3 heads, but "
                       r".*several.* of one of 3 layers × 4 heads; correct"):  # fmt: skip
        read_artifacts([several], geometry=Geometry.uniform(2, 3))


def test_what_cannot_be_compared_is_refused(tmp_path: Path, several: str) -> None:
    with pytest.raises(InputError, match="names nothing to compare"):
        read_artifacts([str(tmp_path / "nowhere")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no scores, no heads and no gate"):
        read_artifacts([str(tmp_path / "empty")])
    half = run_of(tmp_path / "half", scores(1), finish=False)
    with pytest.raises(InputError, match="half: this run is not finished"):
        read_artifacts([half])
    small = run_of(tmp_path / "small", scores(1, geometry=Geometry.uniform(2, 2)))
    with pytest.raises(InputError, match=r"several:de-en is of a model of 3 layers × 4 heads, but "
                       r".*small of one of 2 layers × 2 heads"):  # fmt: skip
        check_one_geometry((a.place, a.geometry) for a in read_artifacts([several, small]))


def test_class_shares_are_those_of_the_scores() -> None:
    values = np.array([[0.5, 0.2, 0.1, 0.0], [0.06, 0.05, 0.04, 0.0], [0, 0, 0, 0.9]])
    chance = np.full((3, 4), 0.05)
    found, about = "translation-score", {"model": "x"}
    made = HeadScores(GEOMETRY, values, found, extra={"chance": chance}, provenance=about)
    from headscope.compare.artifacts import Artifact

    row = class_shares(Artifact("a", "a", GEOMETRY, made))
    assert row.counts.each == (3, 4, 5)
    assert row.shares.each == (3 / 12, 4 / 12, 5 / 12)
    assert row.counts_above_chance == Classes(3, 2, 7)
    assert (row.total, row.layers, row.model) == (12, 3, "x")
    assert (row.highest.place.key, row.highest.score) == ("2.3", 0.9)
    assert row.mean_score == pytest.approx(values.mean())
    stricter = class_shares(Artifact("a", "a", GEOMETRY, made), 0.3)
    assert stricter.counts.token_alignment == 2
    bare = class_shares(Artifact("a", "a", GEOMETRY, HeadScores(GEOMETRY, values, found)))
    assert bare.counts_above_chance is None and bare.shares_above_chance is None
    # What is no translation score has no classes, even with a chance.
    other = class_shares(Artifact("a", "a", GEOMETRY, replace(made, method="m")))
    assert np.isnan([*other.counts.each, *other.shares.each]).all() and not other.classified
    assert other.counts_above_chance is None and other.mean_score == row.mean_score
    with pytest.raises(InputError, match="a set has no classes"):
        class_shares(Artifact("s", "s", GEOMETRY, heads=HeadSet(GEOMETRY, ())))
