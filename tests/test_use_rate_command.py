"""`headscope use rate` with the bundled model: figures, workers, messages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from headscope.heads import HeadSet
from headscope.pocket.sample import sample_documents
from use_corpus_helpers import rated_records, write_jsonl

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

HEADS = "4.3,5.1,5.3,5.11,4.2"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents of two languages, a short one, and two that cannot be rated."""
    made = [
        {"id": one.id, "text": one.text, "language": code}
        for code in ("de", "en")
        for one in sample_documents(code, "test", 5, 3).documents
    ]
    odd = [{"id": "short", "text": "Ja"}, {"id": "empty", "text": ""}, {"text": 1}]
    return write_jsonl(tmp_path / "c.jsonl.zst", [*made, *odd])


def naive(lm: LanguageModel, text: str, heads: HeadSet | None) -> tuple[float, int]:
    """Mean NLL of the tokens after the first, from plain logits."""
    ids = torch.tensor([lm.encode(text)])
    with torch.no_grad():
        if heads is None:
            logits = lm.model(ids).logits[0]
        else:
            with lm.gated(heads.removed()):
                logits = lm.model(ids).logits[0]
    losses = torch.log_softmax(logits[:-1].double(), -1).gather(1, ids[0, 1:, None])
    return -float(losses.mean()), ids.shape[1] - 1


def test_the_figures_are_the_models_own(
    corpus: Path, tmp_path: Path, pocket: LanguageModel, command: Callable[..., Any], loaded: None
) -> None:
    said = command(
        *("use", "rate", "--data", corpus, "--heads", HEADS, "--chunk", 4),
        *("--out", tmp_path / "run", "--json"),
    )
    assert said.code == 0, said.err
    result = json.loads(said.out)
    assert {"signature", "run", "seconds", "tokens_per_second"} <= result.keys()
    heads = HeadSet.parse(HEADS, pocket.geometry)
    rated = rated_records(tmp_path / "run")
    assert result["documents"] == len(rated) and result["documents"] + result["rejected"] == 13
    assert result["tokens"] == sum(one["tokens"] for one in rated)
    for one in rated:
        full, tokens = naive(pocket, one["text"], None)
        removed, _ = naive(pocket, one["text"], heads)
        assert one["tokens"] == tokens
        assert math.isclose(one["nll_full"], full, abs_tol=2e-5)
        assert math.isclose(one["nll_removed"], removed, abs_tol=2e-5)
        assert one["score"] == one["nll_removed"] - one["nll_full"]
    assert {path.name for path in tmp_path.iterdir()} == {"c.jsonl.zst", "run"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "none.jsonl"], "none.jsonl does not exist"),
        (["--heads", "9.9"], "9.9"),
        (["--heads", "nothing"], "'nothing' names no heads"),
        (["--text-column", "body"], "no field 'body'; found: id, text, language"),
        (["--split", "train"], "--split is for datasets"),
        (["--max-tokens", "1"], "--max-tokens"),
        (["--format", "csv"], "csv"),
        (["--data", "c=x"], "unknown language code 'c'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    arguments: list[str],
    message: str,
    corpus: Path,
    tmp_path: Path,
    command: Callable[..., Any],
    loaded: None,
) -> None:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    options = {"--data": corpus, "--heads": HEADS, "--out": tmp_path / "run", **given}
    said = command("use", "rate", *(one for pair in options.items() for one in pair))
    assert said.code == 2 and said.out == ""
    assert said.err.count("\n") == 1 and message in said.err
    assert not (tmp_path / "run").exists()
