"""Several directions in one run: what is added up, and what the signature stands for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import find_helpers
from headscope.data.align import LlmAligner
from headscope.data.pairs import further_pairs, write_pairs
from headscope.data.split import known_digests, leakage, text_digests
from headscope.errors import InputError
from headscope.find.translation_score_config import TranslationScore
from headscope.heads.store import with_details
from headscope.lm.model import LanguageModel
from headscope.runs import Signature, encode
from headscope.studies.atlas import Atlas, atlas
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.models import ModelChoice, model_inputs
from headscope.studies.pairs import HALVES, PairsChoice, find_and_check, read_directions
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal

SIZES = {"en-de": 16, "de-es": 12}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelChoice, PairsChoice]:
    """A tiny model, and a file for each direction, of unequal size."""
    folder = tmp_path_factory.mktemp("inputs")
    model = folder / "model"
    find_helpers.model("qwen3").save_pretrained(model)
    find_helpers.tokenizer().save_pretrained(model)
    files = []
    for direction, size in SIZES.items():
        write_pairs(folder / f"{direction}.tsv", find_helpers.pairs(direction, size).pairs)
        files.append(f"{direction}={folder / direction}.tsv")
    return ModelChoice(str(model)), PairsChoice(tuple(SIZES), tuple(files))


SCORE = TranslationScore(bootstrap_draws=10, chance_draws=2, max_new_tokens=2)


def test_counts_of_all_directions_are_sums(
    inputs: tuple[ModelChoice, PairsChoice], tmp_path: Path
) -> None:
    found = find_translation(FindTranslation(*inputs, SCORE), tmp_path / "find")
    covered = atlas(Atlas(*inputs, SCORE, draws=1, check=1, k=2), tmp_path / "atlas")
    for result in map(with_details, map(encode, (found, covered))):
        parts = result["directions"]
        assert set(parts) == set(SIZES)
        for name in ("examples", "tokens", "left_out"):
            assert result[name] == sum(part[name] for part in parts.values())
        # Links differ from direction to direction: none of them stands for the run.
        assert "links_digest" not in result
        assert len({result["signature"], *(one["signature"] for one in parts.values())}) == 3
    assert found.examples == sum(SIZES.values())
    mean = json.loads((tmp_path / "find" / "scores" / "mean" / "config.json").read_text())
    assert not {"pair", "examples", "links_digest"} & mean["config"].keys()
    assert mean["signature"] == found.signature


def test_both_directions_of_a_corpus_are_checked_on_sentences_not_found_on(tmp_path: Path) -> None:
    rows = [(f"dog {n}", f"Hund {n}") for n in range(60)]
    choice = PairsChoice(("en-de", "de-en"), tuple(
        f"{name}={write(tmp_path / f'{name}.tsv', lines)}"
        for name, lines in (("en-de", rows), ("de-en", [(b, a) for a, b in rows]))
    ))  # fmt: skip
    find, check = find_and_check(choice, "a model", 60)
    known = known_digests({name: text_digests(one.pairs) for name, one in find.items()})
    assert all(leakage(known, one.pairs) == 0 for one in check.values())
    for name in choice.pair:
        assert len(find[name].pairs) + len(check[name].pairs) == 60


def test_the_halves_of_a_file_are_those_of_the_atlas_and_share_shots(
    inputs: tuple[ModelChoice, PairsChoice],
) -> None:
    model, choice = inputs[0].model, replace(inputs[1], shots=2)
    halves = [read_directions(replace(choice, split=name), model, "dev") for name in HALVES]
    assert halves == list(find_and_check(choice, model, 100))
    for pair in SIZES:
        find, verify = (half[pair] for half in halves)
        assert find.shots == verify.shots
        # No direction uses the shots of another for anything else.
        assert 2 <= SIZES[pair] - len(find.pairs) - len(verify.pairs) <= 4
        assert not leakage(known_digests({pair: text_digests(find.pairs)}), verify.pairs)
        few = read_directions(replace(choice, split="verify", limit=1), model, "dev")
        assert few[pair].pairs == verify.pairs[:1]
        # What means are taken over comes from the half that is tested, and leaves it.
        tested = read_directions(replace(choice, split="verify"), model, "dev", reference=1)[pair]
        assert tested.shots == verify.shots and len(tested.reference) == 1
        assert {*tested.reference, *tested.pairs} <= {*verify.pairs}
        assert not leakage(known_digests({pair: text_digests(tested.reference)}), tested.pairs)
    with pytest.raises(InputError, match="leave --split verify out"):
        find_and_check(replace(choice, split="verify"), model, 100)
    with pytest.raises(InputError, match="leave --split find out"):  # it would verify on these
        find_and_check(PairsChoice(("en-de",), split="find"), "pocket", 100)


def test_one_file_finds_and_verifies(
    inputs: tuple[ModelChoice, PairsChoice], tmp_path: Path
) -> None:
    model, choice = inputs
    found = tmp_path / "find"
    find_translation(FindTranslation(model, replace(choice, split="find"), SCORE), found)
    tested = VerifyRemoval(
        heads=str(found), k=("2",), model=model, pairs=replace(choice, split="verify"),
        draws=1, max_new_tokens=2, ablate=("zero", "mean"),
    )  # fmt: skip
    assert removal.run(tested, tmp_path / "verify").details.leakage.overlap == 0
    with pytest.raises(InputError, match="--split verify"):
        removal.run(replace(tested, pairs=choice), tmp_path / "whole")


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join("\t".join(row) for row in [("source", "target"), *rows]), "utf-8")
    return path


def test_all_of_a_file_helps_an_aligner_whatever_part_is_read(tmp_path: Path) -> None:
    rows = [(f"one {n}", f"eins {n}") for n in range(20)]
    file = str(write(tmp_path / "data.tsv", rows))
    for more in (
        {"limit": 2},
        {"split": "find", "limit": 3},
        {"shots": 2},
        {"split": "verify"},
        {},
    ):
        (pairs,) = read_directions(PairsChoice(("en-de",), (file,), **more), "x", "dev").values()
        every = [*pairs.pairs, *further_pairs(pairs)]
        assert sorted((pair.source, pair.target) for pair in every) == sorted(rows)


@pytest.mark.parametrize("recipe", ["find", "atlas"])
def test_other_links_of_any_direction_are_another_signature(
    inputs: tuple[ModelChoice, PairsChoice],
    recipe: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An aligner without a seed: the same settings, other links in the second direction."""
    monkeypatch.setattr("headscope.data.align.check_eflomal", lambda: None)
    score = replace(SCORE, aligner="eflomal")
    signatures = []
    for run, last in enumerate((0, 1)):
        calls: list[Any] = []

        def align(
            texts: Any, extra: Any, options: Any, last: int = last, calls: list[Any] = calls
        ) -> Any:
            calls.append(texts)
            shift = last if len(calls) == 2 else 0
            return tuple(frozenset({(0, shift)}) for _ in texts)

        monkeypatch.setattr("headscope.data.align.align_eflomal", align)
        out = tmp_path / str(run)
        if recipe == "find":
            result = encode(find_translation(FindTranslation(*inputs, score), out))
        else:
            result = encode(atlas(Atlas(*inputs, score, draws=1, check=1, k=2), out))
        assert len(calls) == 2
        signatures.append(result["signature"])
    assert signatures[0] != signatures[1]


def test_a_run_tells_models_of_another_tokenizer_or_configuration_apart() -> None:
    model = find_helpers.model("qwen3")

    def told(tokenizer: Any) -> dict[str, str]:
        return model_inputs(LanguageModel.wrap(model, tokenizer, check=False))

    tokenizer = find_helpers.tokenizer()
    first = told(tokenizer)
    tokenizer(["a", "a longer text"], padding=True, truncation=True, max_length=3)
    assert told(tokenizer) == first
    other = told(find_helpers.tokenizer("metaspace"))
    assert {name for name in first if first[name] != other[name]} == {"tokenizer"}
    model.config.rms_norm_eps *= 2
    # A model in memory counts with the configurations that its modules read.
    changed = {name for name in first if first[name] != told(tokenizer)[name]}
    assert changed == {"model", "model configuration"}


def test_how_an_annotator_is_asked_is_no_part_of_a_signature(tmp_path: Path) -> None:
    def signature(**options: Any) -> str:
        settings = TranslationScore(llm=LlmAligner("m", **options))
        return str(Signature.of("find", settings, {}))

    plain = signature()
    how = {"cache": tmp_path, "workers": 9, "retries": 0, "first_delay": 9.0}
    assert signature(**how, longest_delay=9.0, timeout=9.0) == plain
    for what in ({"threshold": 0.5}, {"temperature": 0.0}, {"base_url": "http://a.b/v1"}):
        assert signature(**what) != plain
