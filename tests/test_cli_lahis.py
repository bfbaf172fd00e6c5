"""`headscope find lahis` and `find first-order`: results, run folders, pages, bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.data.split import known_digests, sentence_digest
from headscope.errors import InputError
from headscope.heads import read_scores
from headscope.pocket.sample import sample_documents
from headscope.results.common import Leakage
from headscope.results.lahis import LahisResult
from headscope.runs.reading import result_of
from headscope.shown.blocks import HeadMaps
from headscope.studies.leakage import check_text_leakage
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of

LANGUAGES = ("en", "tr", "ru")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three languages on the bundled model, eight documents each."""
    from headscope.cli import main

    folder = tmp_path_factory.mktemp("lahis") / "run"
    wanted = [part for code in LANGUAGES for part in ("--language", code)]
    assert main(["find", "lahis", *wanted, "--limit", "8", "--out", str(folder)]) == 0
    return folder


def test_the_documents_that_heads_were_found_on_are_known(run: Path) -> None:
    stored = json.loads((run / "found_on.json").read_text("utf-8"))
    used = sample_documents("tr", "dev", 8, 0).documents
    assert {sentence_digest(one.text) for one in used} <= known_digests(stored)
    fresh = [each.text for each in sample_documents("tr", "test", 3, 0).documents]
    heads = str(run / "specific" / "tr")
    assert check_text_leakage(heads, fresh) == Leakage(known=True, overlap=0, of=3)
    with pytest.raises(InputError, match=r"1 of 4 test texts .* --allow-overlap"):
        check_text_leakage(heads, [*fresh, used[2].text])
    allowed = check_text_leakage(heads, [*fresh, used[2].text], allow_overlap=True)
    assert allowed.overlap == 1
    assert not check_text_leakage("5.3", fresh).known


def test_the_map_counts_the_languages_in_which_a_head_is_important(run: Path) -> None:
    result = result_of(run, LahisResult, "a run of find lahis")
    figure = shown_of(study_of("find lahis"), result, run).figure
    assert isinstance(figure, HeadMaps)
    (counts,) = figure.maps
    counted = [count for row in counts.values for count in row if count is not None]
    important = [language.important for language in result.languages.values()]
    assert sum(counted) == sum(important) and max(counted) <= len(LANGUAGES)
    assert {counts.values[layer][head] for layer, head in counts.marked} <= {2.0, 3.0}


def test_one_language_and_a_moving_gate(command: Callable[..., Any], tmp_path: Path) -> None:
    data = tmp_path / "few.txt"
    texts = [one.text for one in sample_documents("de", "dev", 5, 3).documents]
    data.write_text("\n".join(texts) + "\n", "utf-8")
    out = tmp_path / "run"
    said = command("find", "lahis", "--data", f"de={data}", "--update-gate", "--json", "--out", out)
    assert said.code == 0
    result = json_of(said.out)
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
