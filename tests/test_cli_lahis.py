"""`headscope find lahis` and `find first-order`: results, run folders, pages, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.data.split import known_digests, sentence_digest
from headscope.errors import InputError
from headscope.find.importance import language_sets
from headscope.heads import HeadSet, read_scores, resolve_heads
from headscope.pocket.sample import sample_documents
from headscope.results.common import Leakage
from headscope.studies.leakage import check_document_leakage

LANGUAGES = ("en", "tr", "ru")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three languages on the bundled model, eight documents each."""
    from headscope.cli import main

    folder = tmp_path_factory.mktemp("lahis") / "run"
    wanted = [part for code in LANGUAGES for part in ("--language", code)]
    assert main(["find", "lahis", *wanted, "--limit", "8", "--out", str(folder)]) == 0
    return folder


def result_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text("utf-8"))
    return found


def test_the_run_holds_scores_and_sets(run: Path) -> None:
    result, scores = result_of(run), read_scores(run)
    assert set(scores) == {*LANGUAGES, "mean"} and list(result["languages"]) == list(LANGUAGES)
    assert result["examples"] == 24 and len(result["heads"]) == 96
    assert result["quantile"] == 0.9 and result["general_in"] == 2
    sets = language_sets({code: scores[code] for code in LANGUAGES})
    for code in LANGUAGES:
        one = result["languages"][code]
        assert one["documents"] == 8 and one["tokens"] > 100 and 0.5 < one["loss"] < 5
        assert one["important"] == len(sets.important[code]) == 10
        stored = HeadSet.from_pretrained(run / "specific" / code)
        assert stored.heads == sets.specific[code].heads
        assert [(h["layer"], h["head"]) for h in one["specific"]] == [
            (h.layer, h.head) for h in stored
        ]
        assert sum(layer["important"] for layer in one["layers"]) == 10
        assert 0 <= one["halves"]["jaccard"] <= 1 and 0 < one["halves"]["expected"] < 0.2
        assert not len(stored & HeadSet.from_pretrained(run / "general"))
    assert [(h["layer"], h["head"]) for h in result["general"]] == [
        (h.layer, h.head) for h in sets.general
    ]
    assert {(one["a"], one["b"]) for one in result["overlap"]} == {
        ("en", "tr"),
        ("en", "ru"),
        ("tr", "ru"),
    }
    np.testing.assert_allclose(
        scores["mean"].values, np.mean([scores[code].values for code in LANGUAGES], axis=0)
    )
    geometry = scores["mean"].geometry
    assert len(resolve_heads(str(run / "scores" / "tr"), "2%", geometry)) == 2
    assert len(resolve_heads(str(run), "3", geometry)) == 3


def test_the_documents_that_heads_were_found_on_are_known(run: Path) -> None:
    stored = json.loads((run / "found_on.json").read_text("utf-8"))
    used = sample_documents("tr", "dev", 8, 0).documents
    assert {sentence_digest(one.text) for one in used} <= known_digests(stored)
    fresh = sample_documents("tr", "test", 3, 0).documents
    heads = str(run / "specific" / "tr")
    assert check_document_leakage(heads, fresh) == Leakage(known=True, overlap=0, of=3)
    with pytest.raises(InputError, match=r"1 of 4 test documents .* --allow-overlap"):
        check_document_leakage(heads, [*fresh, used[2]])
    allowed = check_document_leakage(heads, [*fresh, used[2]], allow_overlap=True)
    assert allowed.overlap == 1
    assert not check_document_leakage("5.3", fresh).known


def test_one_language_and_a_moving_gate(command: Callable[..., Any], tmp_path: Path) -> None:
    data = tmp_path / "few.txt"
    texts = [one.text for one in sample_documents("de", "dev", 5, 3).documents]
    data.write_text("\n".join(texts) + "\n", "utf-8")
    out = tmp_path / "run"
    said = command("find", "lahis", "--data", f"de={data}", "--update-gate", "--json", "--out", out)
    assert said.code == 0
    result = json.loads(said.out)
    assert result["update_gate"] and result["general"] == [] and result["general_in"] is None
    assert result["languages"]["de"]["fewer_than_usual"] is True
    assert len(result["languages"]["de"]["specific"]) == 10 and result["overlap"] == []
    assert set(read_scores(out)) == {"mean"}
    plain = command("find", "lahis", "--data", f"de={data}", "--out", tmp_path / "other")
    assert "Fewer documents than the usual 1,000: de" in " ".join(plain.out.split())


def test_bad_input_is_told_before_a_model_is_loaded(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.lm.load", lambda *_: pytest.fail("a model was loaded"))
    text = tmp_path / "x.txt"
    text.write_text("eins\nzwei\n", "utf-8")
    for arguments, message in (
        (["--data", f"de={text}", "--limit", "3"], "holds 2 documents in de, but --limit asks"),
        (["--data", text], "does not say in which language"),
        (["--language", "fr"], "does not speak French"),
        (["--language", "de", "--limit", "1", "--general-in", "2"], "there is one language"),
        (["--limit", "1", "--general-in", "6"], "in 6 of 5 languages"),
        (["--limit", "1", "--quantile", "1.5"], "the quantile is 1.5"),
        (["--model", "elsewhere"], "no data given for the model elsewhere"),
    ):
        said = command("find", "lahis", *arguments)
        assert said.code == 2 and said.out == ""
        assert message in said.err and said.err.count("\n") == 1
