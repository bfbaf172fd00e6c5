"""Two scores by gradients of the same documents: how far they agree, and what their heads cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from headscope.compare.agreement import importance_agreement
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import InputError
from headscope.find.importance import importance
from headscope.heads import Geometry, HeadScores
from headscope.runs import file_digest
from headscope.studies.compare.overlap import CompareImportance, compare_importance
from headscope.studies.use.steering_prompts import write_astray
from headscope.studies.verify.perplexity import paired_loss

GEOMETRY = Geometry((4, 2, 4))


def scored(products: Any) -> HeadScores:
    return HeadScores(GEOMETRY, importance(products), "lahis", statistics={"products": products})


def products(seed: int, documents: int = 25, noise: float = 0.3) -> Any:
    fixed = np.random.default_rng(7).normal(size=GEOMETRY.shape)
    drawn = np.random.default_rng(seed).normal(size=(documents, *GEOMETRY.shape))
    return np.where(GEOMETRY.mask(), fixed + noise * drawn, 0).astype(np.float32)


def test_a_score_agrees_with_itself_and_less_with_another() -> None:
    one, other = scored(products(0)), scored(products(1, noise=1.0))
    same = importance_agreement(one, one, 0.8)
    assert (same["jaccard"], same["shared"], same["important"]) == (1, 2, [2, 2])
    assert same["all"] == pytest.approx({"value": 1, "low": 1, "high": 1})
    assert same["p_value"] == pytest.approx(1 / 45)  # one of the sets of two of ten heads
    less = importance_agreement(one, other, 0.8)
    assert less["all"]["low"] < less["all"]["value"] < 1
    mask = GEOMETRY.mask()
    ranks = [np.argsort(np.argsort(each.values[mask])) for each in (one, other)]
    assert less["all"]["value"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    tops = [set(np.argsort(each.values[mask])[-2:]) for each in (one, other)]
    assert less["jaccard"] == len(tops[0] & tops[1]) / len(tops[0] | tops[1])


def test_scores_of_other_documents_are_not_compared() -> None:
    with pytest.raises(InputError, match="25 documents and the other of 24"):
        importance_agreement(scored(products(0)), scored(products(0, 24)), 0.8)


def read_run(folder: Path, nll: Any, text: str = "a") -> Path:
    """A run of `verify perplexity`: the model as it is, then German heads removed."""
    folder.mkdir()
    rows = [("", "chosen", "baseline"), ("de", "chosen", "removed")]
    names = ("of", "role", "kind")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / "conditions.jsonl").write_text("\n".join(lines))
    (folder / "documents.jsonl").write_text(text)
    tokens = np.array([10, 20, 10])
    save_file(
        {"de.nll": np.array(nll, dtype=np.float64), "de.tokens": tokens},
        folder / "losses.safetensors",
    )
    return folder


def test_what_heads_cost_more_is_paired_by_document(tmp_path: Path) -> None:
    one = read_run(tmp_path / "one", [[0, 0, 0], [30, 62, 31]])
    other = read_run(tmp_path / "other", [[0, 0, 0], [20, 42, 21]])
    found = paired_loss(one, other, "de")
    assert found is not None
    # Every document loses one nat a token more, so that no resample differs.
    assert list(found.values()) == pytest.approx([1, 1, 1])
    assert paired_loss(one, other, "en") is None
    with pytest.raises(InputError, match="read other documents"):
        paired_loss(one, read_run(tmp_path / "third", [[0, 0, 0], [1, 2, 3]], "b"), "de")


def test_the_run_compares_every_language_and_goes_by_the_runs_it_read(tmp_path: Path) -> None:
    def finish(folder: Path, result: dict[str, Any]) -> Path:
        (folder / "result.json").write_text(json.dumps(result))
        done = {"result": file_digest(folder / "result.json")}
        (folder / "DONE.json").write_text(json.dumps(done))
        return folder

    scores = []
    for name, seed in (("still", 0), ("moving", 1)):
        for part in ("de", "mean"):
            scored(products(seed)).save_pretrained(tmp_path / name / "scores" / part)
        result = {"signature": name, "quantile": 0.8, "languages": {"de": {}}}
        scores.append(finish(tmp_path / name, result))
    read = [
        finish(read_run(tmp_path / name, [[0, 0, 0], nll]), {"signature": name})
        for name, nll in (("a", [30, 62, 31]), ("b", [40, 82, 41]))
    ]
    config = CompareImportance((scores[0], scores[1]), (read[0], read[1]))
    one = compare_importance(config, tmp_path / "out")["languages"]["de"]
    assert one["costs_more"]["value"] == pytest.approx(1)  # of the second run's heads
    expected = importance_agreement(scored(products(0)), scored(products(1)), 0.8)
    assert {key: one[key] for key in expected} == expected
    assert compare_importance(config, tmp_path / "out")["languages"]["de"] == one
    finish(read[1], {"signature": "c"})
    with pytest.raises(InputError):
        compare_importance(config, tmp_path / "out")


def test_a_prompt_that_leads_astray_is_a_text_and_then_the_instruction(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("source\ttarget\nA dog.\tEin Hund.\nA cat.\tEine Katze.\n")
    pairs = read_pairs(PairSource(str(file), "en-de"))
    path = write_astray(tmp_path / "new" / "de.jsonl", pairs, ["It rains."])
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["reference"] for row in rows] == ["Ein Hund.", "Eine Katze."]
    assert rows[1]["text"] == (
        "It rains.\nTranslate this sentence from English to German\nSentence: A cat.\nAnswer:"
    )
