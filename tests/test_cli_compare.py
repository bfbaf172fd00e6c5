"""`headscope compare overlap`, `classes` and `formation` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import json_of
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.runs import open_run
from lm_helpers import saved

Command = Callable[..., Any]


def run_of(path: Path, geometry: Geometry, pairs: tuple[str, ...]) -> Path:
    parts = {}
    for number, pair in enumerate(pairs):
        values = np.random.default_rng(number).uniform(0, 0.4, geometry.shape)
        parts[pair] = HeadScores(
            geometry, values, "translation-score", config={"pair": pair},
            extra={"chance": np.full(geometry.shape, 0.04)}, provenance={"model": path.name},
        )  # fmt: skip
    with open_run(path, "find translation-score", {}, {"of": str(path)}) as run:
        save_scores(run.path, parts if len(parts) > 1 else next(iter(parts.values())))
        run.finish({})
    return path


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return (
        run_of(tmp_path / "big", Geometry.uniform(4, 5), ("en-de", "de-en", "en-ru")),
        run_of(tmp_path / "small", Geometry.uniform(2, 3), ("en-de",)),
    )


def test_overlap_by_k_by_threshold_and_of_the_mean(
    command: Command, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    def sizes(name: str, *more: object) -> list[int]:
        arguments = ("compare", "overlap", runs[0], *more, "--out", tmp_path / name, "--json")
        return [one["size"] for one in json_of(command(*arguments)[1])["artifacts"]]

    assert sizes("k", "--k", "25%") == [5, 5, 5]
    assert sizes("mean", f"{runs[0]}:en-ru", "--mean", "--k", 2) == [2, 2]
    above = sizes("threshold", "--threshold", 0.2)
    assert above != [3, 3, 3] and all(0 < size < 20 for size in above)
    for more, said in (
        (("--k", 3, "--threshold", 0.1), "give one of them"),
        (("--k", 21), "more heads than the 20"),
        (("--mean",), "holds only one set of heads; name a second one"),
    ):
        code, out, err = command("compare", "overlap", runs[0], *more)
        assert code == 2 and said in err and not out


def test_overlap_has_a_ceiling_where_sentences_are_kept(command: Command, tmp_path: Path) -> None:
    """One head hits in every sentence, its neighbour in every other, the rest never."""
    geometry, totals = Geometry.uniform(2, 3), np.full(8, 4)
    hits = np.zeros((8, 2, 3), dtype=np.uint16)
    hits[:, 0, 0], hits[::2, 0, 1] = 4, 4
    kept = HeadScores(
        geometry, hits.mean(axis=0) / 4, "translation-score", extra={"chance": np.zeros((2, 3))},
        statistics={"hits": hits, "totals": totals, "chance": 0.0 * hits, "chance_totals": totals},
    )  # fmt: skip
    for name in ("a", "b"):
        with open_run(tmp_path / name, "find translation-score", {}, {"of": name}) as run:
            save_scores(run.path, kept)
            run.finish({})
    arguments = ("compare", "overlap", tmp_path / "a", tmp_path / "b", "--k", 1, "--json")
    result = json_of(command(*arguments, "--out", tmp_path / "both")[1])
    assert [each["halves"]["jaccard"] for each in result["artifacts"]] == [1, 1]
    (pair,) = result["pairs"]
    assert pair["ceiling"] == pair["jaccard"] == 1
    # One head of six, and one of the three of its layer.
    assert pair["p_value"] == pytest.approx(1 / 6)
    assert pair["p_within_layers"] == pytest.approx(1 / 3)
    listed = ("compare", "overlap", tmp_path / "a", "0.0,1.0", "--out", tmp_path / "list", "--json")
    result = json_of(command(*listed)[1])
    assert result["artifacts"][1]["halves"] is None and result["pairs"][0]["ceiling"] is None


def test_top_sets_and_classes_over_directions(command: Command, tmp_path: Path) -> None:
    geometry = Geometry.uniform(1, 4)
    parts = {
        pair: HeadScores(
            geometry, np.array([values]), "translation-score",
            extra={"chance": np.array([[0.35, 0.0, 0.0, 0.0]])},
        )
        for pair, values in (("en-de", [0.4, 0.3, 0.0, 0.0]), ("de-en", [0.4, 0.06, 0.04, 0.0]))
    }  # fmt: skip
    with open_run(tmp_path / "run", "find translation-score", {}, {}) as run:
        save_scores(run.path, parts)
        run.finish({})
    mine = ("compare", "overlap", tmp_path / "run", "0.1", "--mean", "--k", 1, "--json")
    for rank, head in (("above-chance", "0.1"), ("score", "0.0")):
        told = json_of(command(*mine, "--rank", rank, "--out", tmp_path / rank)[1])
        assert [one["heads"] for one in told["artifacts"]] == [[head], ["0.1"]]
        assert [one["rank"] for one in told["artifacts"]] == [rank, None]
        assert told["rank"] == rank
    assert command(*mine, "--out", tmp_path / "above-chance").code == 0  # the default
    code, _, err = command(*mine, "--out", tmp_path / "score")
    assert code == 2 and "rank ('score' there, 'above-chance' here)" in err

    def classes(*more: object) -> dict[str, object]:
        out = tmp_path / f"classes {more}"
        said = command("compare", "classes", tmp_path / "run", *more, "--out", out, "--json").out
        return dict(json_of(said)["models"][0])

    one = classes()
    assert one["counted_over"] == 2
    assert one["counts"] == {"token_alignment": 1.5, "low_activity": 1, "inactive": 1.5}
    assert one["counts_above_chance"] == {
        "token_alignment": 0.5, "low_activity": 2, "inactive": 1.5
    }  # fmt: skip
    assert classes("--inactive", 0.05)["counts"] == {
        "token_alignment": 1.5, "low_activity": 0.5, "inactive": 2
    }  # fmt: skip
    code, _, err = command("compare", "classes", tmp_path / "run", "--inactive", 0.2)
    assert code == 2 and "--inactive not above --threshold" in err


HUB = """
import contextlib, io, json, sys
from headscope.cli import main
said = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(arguments)
    said.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""


def test_revisions_in_the_hub_cache_are_a_series(tmp_path: Path) -> None:
    """Two revisions as a download leaves them, read without a network and told by their step."""
    home = tmp_path / "huggingface"
    repository = home / "hub" / "models--some-org--tiny"
    for number, step in enumerate((100, 20), 1):
        commit = f"{number:040x}"
        saved(repository / "snapshots" / commit, seed=step)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / f"step{step}").write_text(commit, encoding="utf-8")
    file = tmp_path / "pairs.tsv"
    rows = [f"we sing {n}\twir singen {n}\t0-0 1-1 2-2" for n in range(8)]
    file.write_text("\n".join(["source\ttarget\tlinks", *rows]) + "\n")
    common = [
        "--data",
        file,
        "--pair",
        "en-de",
        "--max-new-tokens",
        4,
        "--verify-limit",
        2,
        "--json",
    ]
    series = ["compare", "formation", "some-org/tiny@step100", "some-org/tiny@step20"]
    asked = [
        [*series, "--out", tmp_path / "named", *common],
        [*series, "some-org/tiny@step5", *common],
    ]
    # The Hub's libraries read where their cache is when they are imported.
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", HUB, json.dumps([[*map(str, line)] for line in asked])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (code, out, err), missing = json.loads(done.stdout)
    assert code == 0, err
    told = json_of(out)
    assert [(one["name"], one["step"]) for one in told["checkpoints"]] == [
        ("step20", 20),
        ("step100", 100),
    ]
    assert told["checkpoints"][0]["mean_score"] != told["checkpoints"][1]["mean_score"]
    code, out, err = missing
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "checkpoint step5 cannot be read" in err
