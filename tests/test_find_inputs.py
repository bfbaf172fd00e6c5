"""Bad input: one sentence with the file, the line and the fix; earlier results stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import find_helpers
from headscope.errors import InputError
from headscope.find.translation_config import TranslationScore
from headscope.heads import Geometry, resolve_heads
from headscope.results.translation import TranslationResult
from headscope.studies.find.translation import FindTranslation, find_translation
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions

GOOD = "source\ttarget\tlinks\nThe dog sleeps\tDer Hund schläft\t0-0 1-1 2-2\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    find_helpers.model("qwen3").save_pretrained(folder)
    find_helpers.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def earlier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("earlier")
    (folder / "good.tsv").write_text(GOOD, "utf-8")
    result = find(model, folder / "good.tsv", folder / "run")
    assert len(result.heads) == 8
    return folder / "run"


def find(
    model: Path, data: Path | str, out: Path, pair: str | None = "en-de", **score: Any
) -> TranslationResult:
    choice = PairsChoice((pair,) if pair else (), (str(data),))
    options = {"bootstrap_draws": 10, **score}
    return find_translation(
        FindTranslation(ModelChoice(str(model)), choice, TranslationScore(**options)), out
    )


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    return {str(one): (one.stat().st_mtime_ns, one.read_bytes()) for one in files}


def refused(earlier: Path, fresh: Path, call: Callable[[Path], Any]) -> str:
    """The error of a call, which must leave a finished run alone and begin none."""
    before = contents(earlier)
    with pytest.raises(InputError) as caught:
        call(earlier)
    assert contents(earlier) == before
    with pytest.raises(InputError):
        call(fresh)
    assert not fresh.exists()
    message = str(caught.value)
    assert "\n" not in message.strip()
    return message


FILES: dict[str, tuple[bytes, list[str]]] = {
    "missing column": (b"source\tzieltext\na\tb\n", ["data.tsv", "target", "zieltext"]),
    "link outside": (GOOD.encode() + b"A b\tC d\t0-0 5-1\n", ["data.tsv", "line 3", "5-1"]),
    "empty file": (b"", ["data.tsv", "empty"]),
    "header alone": (b"source\ttarget\n", ["data.tsv"]),
    "invalid UTF-8": (GOOD.encode() + b"caf\xe9\tKaffee\t0-0\n", ["data.tsv", "line 3", "UTF-8"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_used(name: str, model: Path, earlier: Path, tmp_path: Path) -> None:
    data, said = FILES[name]
    (tmp_path / "data.tsv").write_bytes(data)
    message = refused(
        earlier, tmp_path / "fresh", lambda out: find(model, tmp_path / "data.tsv", out)
    )
    for part in said:
        assert part in message, message


def test_settings_that_do_not_fit_the_data_begin_no_run(
    model: Path, earlier: Path, tmp_path: Path
) -> None:
    (tmp_path / "data.tsv").write_text("source\ttarget\nThe dog\tDer Hund\n", "utf-8")
    for settings in ({"aligner": "links"}, {"aligner": "links", "decode": "greedy"}):
        message = refused(
            earlier,
            tmp_path / "fresh",
            lambda out, settings=settings: find(model, tmp_path / "data.tsv", out, **settings),
        )
        assert "links" in message


@pytest.mark.parametrize("line", [3, 25])
@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_prompt_beyond_the_context_is_named_wherever_it_stands(
    line: int, decode: str, model: Path, tmp_path: Path
) -> None:
    rows = [f"{one.source}\t{one.target}\t0-0" for one in find_helpers.pairs(n=30).pairs]
    rows[line - 2] = "word " * 20000 + "\tWort\t0-0"
    data = tmp_path / "long.tsv"
    data.write_text("\n".join(["source\ttarget\tlinks", *rows]) + "\n", "utf-8")
    with pytest.raises(InputError, match=rf"long.tsv, line {line}: .*shorten the sentence"):
        find(model, data, tmp_path / "run", decode=decode, max_new_tokens=2)


def test_a_single_pair_has_no_chance(earlier: Path) -> None:
    """There is no other sentence to borrow links from: the scores are given all the same."""
    result = json.loads((earlier / "result.json").read_text("utf-8"))
    assert result["examples"] == 1 and result["counts_above_chance"] is None
    assert all(0 <= head["score"] <= 1 and head["chance"] is None for head in result["heads"])


def test_scores_of_another_geometry_are_refused(earlier: Path) -> None:
    before = contents(earlier)
    with pytest.raises(InputError) as caught:
        resolve_heads(str(earlier), 3, Geometry.uniform(3, 5))
    assert "2 layers" in str(caught.value) and "3 layers" in str(caught.value), caught.value
    assert contents(earlier) == before


def test_a_direction_named_twice_is_one_direction(tmp_path: Path) -> None:
    (tmp_path / "good.tsv").write_text(GOOD, "utf-8")
    choice = PairsChoice(("en-de", "en-de"), (str(tmp_path / "good.tsv"),))
    assert list(read_directions(choice, "some", "dev")) == ["en-de"]
