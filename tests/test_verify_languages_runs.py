"""Documents read without heads, on small models: against naive twins, killed, and as commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import process_helpers
from conftest import json_of
from headscope.data.documents import Document
from headscope.data.split import sentence_digest
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.lm import LanguageModel, load
from headscope.lm.losses import token_losses
from headscope.lm.replacement import replacement_of
from headscope.results.common import Leakage
from headscope.studies.documents import DocumentsChoice
from headscope.studies.leakage import check_text_leakage
from headscope.studies.models import ModelChoice
from headscope.studies.verify.language_texts import named_heads
from headscope.studies.verify.perplexity import VerifyPerplexity
from headscope.studies.verify.perplexity import comparison as perplexity
from language_helpers import ENGLISH, GERMAN, data_of, naive_losses, write_documents


@pytest.fixture(scope="module")
def lm(model: Path) -> LanguageModel:
    return load(str(model))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_documents(tmp_path_factory.mktemp("documents"))


@pytest.fixture(scope="module")
def lahis_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads found on other documents."""
    from headscope.studies.find.lahis import FindLahis, find_lahis

    folder = tmp_path_factory.mktemp("lahis")
    found_on = write_documents(folder, " now")
    choice = DocumentsChoice(tuple(f"{name}={file}" for name, file in found_on.items()))
    find_lahis(FindLahis(ModelChoice(str(model)), choice, quantile=0.6), folder / "run")
    return folder / "run"


def choice(files: dict[str, Path]) -> DocumentsChoice:
    return DocumentsChoice(tuple(f"{name}={file}" for name, file in files.items()))


def test_all_languages_have_the_same_draws(
    model: Path, files: dict[str, Path], tmp_path: Path
) -> None:
    """They are tested together, so that no draw of one ends before those of another."""
    config = VerifyPerplexity(
        heads=("en=1.0,0.2", "de=1.3,0.1"), model=ModelChoice(str(model)), documents=choice(files),
        draws=12, controls=("random",),
    )  # fmt: skip
    fixed = perplexity.run(config, tmp_path / "fixed")
    claimed = perplexity.run(replace(config, claims=("en", "de")), tmp_path / "claimed")
    assert claimed.evidence == fixed.evidence and claimed.details == fixed.details
    assert {test.draws for test in fixed.details.together.tests} == {12}
    assert {test.statistic for test in fixed.details.together.tests} == {"nll", "contrast"}
    for own in fixed.details.own:
        # Own text against other text.
        others = [part for part in files if part != own.language]
        change = {
            (row.part, row.condition): row.change.value
            for row in fixed.evidence.levels
            if row.statistic == "nll" and row.change is not None
        }

        def margin(
            condition: str, own: Any = own, others: Any = others, change: Any = change
        ) -> Any:
            return change[own.language, condition] - max(change[each, condition] for each in others)

        drawn = [each.id for each in fixed.evidence.conditions
                 if each.kind == "random" and each.of == own.language]  # fmt: skip
        as_far = [margin(each) >= margin(own.condition) for each in drawn]
        assert own.p_draws["random"] == (1 + sum(as_far)) / (1 + len(as_far))


@pytest.mark.parametrize("ablate", ["zero", "mean", "resample"])
def test_losses_are_those_of_a_model_without_the_heads(
    ablate: Any, model: Path, lm: LanguageModel, files: dict[str, Path], tmp_path: Path
) -> None:
    config = VerifyPerplexity(
        heads=("en=1.0,0.2", "de=1.3"),
        model=ModelChoice(str(model)),
        documents=choice(files),
        draws=1,
        ablate=(ablate,),
        seed=4,
        batch_tokens=40,
    )
    result = perplexity.run(config, tmp_path / "run")
    arrays = load_file(tmp_path / "run" / "losses.safetensors")
    conditions = [
        json.loads(line)
        for line in (tmp_path / "run" / "conditions.jsonl").read_text().splitlines()
    ]
    assert [one["heads"] for one in conditions if one["kind"] == "selected"] == [
        ["1.0", "0.2"], ["1.3"]
    ]  # fmt: skip
    kept = {"en": ENGLISH, "de": GERMAN}
    replacement = None
    if ablate != "zero":
        # A quarter of each language is set aside and not read.
        lines = (tmp_path / "run" / "documents.jsonl").read_text().splitlines()
        apart = []
        for name, texts in kept.items():
            rows = map(json.loads, lines)
            tested = {int(row["id"]) - 1 for row in rows if row["language"] == name}
            apart += sorted(text for at, text in enumerate(texts) if at not in tested)
            kept[name] = [text for at, text in enumerate(texts) if at in tested]
            assert len(texts) - len(kept[name]) == max(1, len(texts) // 4)
        texts_apart = [lm.encode(text) for text in apart]
        replacement = replacement_of(ablate, lm, texts_apart, seed=4)
    for name, texts in kept.items():
        rows = [lm.encode(text) for text in texts]
        assert arrays[f"{name}.tokens"].tolist() == [len(row) - 1 for row in rows]
        for at, one in enumerate(conditions):
            read = one["kind"] != "same layers" or one["of"] == name
            assert np.isnan(arrays[f"{name}.nll"][at]).all() != read
            if not read:
                continue
            heads = HeadSet.parse(",".join(one["heads"]), lm.geometry) if at else None
            if heads is None or replacement is None:
                naive = naive_losses(lm, heads or HeadSet(lm.geometry, ()), rows)
                np.testing.assert_allclose(arrays[f"{name}.nll"][at], naive, rtol=2e-5)
            else:
                with lm.gated(heads.removed(), replacement):  # has a naive twin of its own
                    naive = [float(token_losses(lm, [row])[0].sum()) for row in rows]
                np.testing.assert_allclose(arrays[f"{name}.nll"][at], naive, rtol=2e-5)
                plain = naive_losses(lm, heads, rows)
                assert not np.allclose(arrays[f"{name}.nll"][at], plain, rtol=1e-4)
    if ablate != "zero":
        reference = result.details.reference_text
        assert reference is not None and reference.texts == len(apart) > 1


def test_a_killed_run_ends_with_the_same_numbers(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "documents.jsonl"
    rows = [{"text": text, "language": "en"} for text in ENGLISH]
    rows += [{"text": text, "language": "de"} for text in GERMAN]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    config = VerifyPerplexity(
        heads=("en=1.0,0.2", "de=1.3"), model=ModelChoice(str(model)),
        documents=DocumentsChoice((str(data),)), draws=2,
    )  # fmt: skip
    # The beginning is told, and of each language under a condition its batch and its end.
    titles = ("reading documents",)
    _, kept = process_helpers.resumed("verify perplexity", config, tmp_path, 7, titles=titles)
    assert kept["losses.jsonl"].count(b"\n") == 3


def test_heads_are_not_tested_where_they_were_found(
    model: Path, lahis_run: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    found_on = {name: lahis_run.parent / f"{name} now.txt" for name in ("en", "de")}
    arguments = ["verify", "perplexity", "--model", model, "--heads", lahis_run, "--draws", 1]
    arguments += [*data_of(found_on), "--out", tmp_path / "run"]
    said = command(*arguments)
    assert said.code == 2 and "10 of 10 test texts" in said.err
    assert not (tmp_path / "run").exists()
    allowed = command(*arguments, "--allow-overlap", "--json")
    assert allowed.code == 0, allowed.err
    assert json_of(allowed.out)["details"]["leakage"]["overlap"] == 10


def test_documents_of_any_of_several_runs_count_as_seen(tmp_path: Path) -> None:
    rows = tuple(Document(str(n), f"text {n}", "en", n) for n in range(5))
    texts = [row.text for row in rows]
    for name, seen in (("a", (0, 1)), ("b", (1, 2)), ("c", ())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
        digests = [sentence_digest(f"text {n}") for n in seen]
        (tmp_path / name / "found_on.json").write_text(json.dumps({"en": digests}))
    runs = [str(tmp_path / name) for name in "abc"]
    assert check_text_leakage(runs, texts, True) == Leakage(known=True, overlap=3, of=5)
    assert check_text_leakage([*runs, "0.1"], texts, True).known is False
    assert check_text_leakage(["0.1"], texts).overlap is None
    assert check_text_leakage(runs[2:], texts).overlap == 0
    with pytest.raises(InputError, match="2 of 5 test texts"):
        check_text_leakage(runs[1:], texts)


def test_layers_and_where_important_heads_lie(
    model: Path,
    files: dict[str, Path],
    lahis_run: Path,
    tmp_path: Path,
    command: Callable[..., Any],
) -> None:
    out = tmp_path / "run"
    arguments = ["verify", "layers", "--model", model, "--heads", lahis_run, *data_of(files)]
    said = command(*arguments, "--draws", 3, "--out", out, "--json")
    assert said.code == 0, said.err
    result = json_of(said.out)
    found = json_of((lahis_run / "result.json").read_text())
    heads = {row["of"]: row["heads"] for row in result["conditions"] if row["kind"] == "selected"}
    assert {of: len(own) for of, own in heads.items()} == {"layer 0": 4, "layer 1": 4}
    tests = [(row["part"], row["condition"], row["draws"]) for row in result["tests"]]
    assert tests == [(code, f"selected layer {n} 4", 3) for code in ("en", "de") for n in (0, 1)]
    for name, profile in result["details"]["profile"].items():
        assert profile["important"] == found["languages"][name]["important"] > 0
        assert sum(row["share"] for row in profile["layers"]) == pytest.approx(1)
    # Layers can be removed without any heads to count.
    bare = command("verify", "layers", "--model", model, *data_of(files), "--draws", 1,
                   "--out", tmp_path / "bare")  # fmt: skip
    assert bare.code == 0 and "important heads" not in bare.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--heads", "1.2", "--heads", "1.3"], "write all as LANG=HEADS"),
        (["--heads", "en=1.2", "--heads", "en=1.3"], "names en twice"),
        (["--heads", "9.9"], "there is no head L9.H9"),
        (["--heads", "nowhere"], "names no heads"),
        (["--heads", "1.2", "--k", "90"], "more heads than the 8"),
        (["--heads", "1.2", "--data", "tr=missing.txt"], "missing.txt"),
        (["--heads", "0.0,0.1,0.2,0.3,1.0,1.1,1.2,1.3"], "choose a smaller k"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    said: str,
    model: Path,
    files: dict[str, Path],
    tmp_path: Path,
    command: Callable[..., Any],
) -> None:
    out = tmp_path / "run"
    told = command("verify", "perplexity", "--model", model, *data_of(files), *words, "--out", out)
    assert told.code == 2 and told.out == ""
    assert said in told.err and told.err.count("\n") == 1
    assert not out.exists()


def test_heads_are_named_by_language(tmp_path: Path) -> None:
    assert named_heads(["de=1.2", "en=runs/x=y"]) == [("de", "1.2"), ("en", "runs/x=y")]
    place = tmp_path / "de=x"
    place.mkdir()
    assert named_heads([str(place)]) == [(None, str(place))]
    assert named_heads(["nolanguage=1.2"]) == [(None, "nolanguage=1.2")]
