"""Removal with controls: what is run, what is kept, and what is worked out from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import process_helpers
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import InputError, MissingExtra
from headscope.evidence import texts
from headscope.evidence.rows import Condition, Evidence
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.lm import LanguageModel, load
from headscope.lm.replacement import replacement_of
from headscope.measure.external import External
from headscope.measure.metrics import BleuTokenizer, chrf_from_statistics
from headscope.results.common import Leakage
from headscope.results.removal import Languages, Measuring, RemovalDetails, RemovalResult
from headscope.runs import encode
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.verify.measure import MeasureAgain, measure_again
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal
from headscope.verify.removal_translations import Removal, measures
from headscope.verify.removal_translations.evidence import TEXTS, removal_evidence
from headscope.verify.removal_translations.measures import Translations
from lm_helpers import folded
from verify_helpers import naive, rows_of, scores, write_data

PROMPT = "Translate this sentence from {} to {}\nSentence: {}\nAnswer:"
LANGUAGES = {"en": "English", "de": "German"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PairsChoice:
    folder = tmp_path_factory.mktemp("data")
    files = {"en-de": write_data(folder / "a.tsv"), "de-en": write_data(folder / "b.tsv", 5, True)}
    return PairsChoice(tuple(files), tuple(f"{pair}={file}" for pair, file in files.items()))


@pytest.fixture(scope="module")
def lm(model: Path) -> LanguageModel:
    return load(str(model))


@pytest.fixture(scope="module")
def run(
    model: Path, pairs: PairsChoice, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, RemovalResult]:
    out = tmp_path_factory.mktemp("run") / "run"
    settings = {"gates": (0.0, 2.0, 1.0), "draws": 3, "max_new_tokens": 6}
    return out, removed(model, pairs, out, "1.0,0.2,1.3", 3, 1, **settings)


def removed(
    model: Path, pairs: PairsChoice, out: Path, spec: str = "1.0,0.2", *k: Any, **settings: Any
) -> RemovalResult:
    """The result of a run with these settings of `Removal`; `rank` is the command's."""
    rank = settings.pop("rank", "above-chance")
    chosen = {"draws": 1, "max_new_tokens": 4, "rank": rank, **settings}
    config = VerifyRemoval(heads=spec, k=k, model=ModelChoice(str(model)), pairs=pairs, **chosen)
    return removal.run(config, out)


def measured_again(out: Path) -> RemovalResult:
    return measure_again(MeasureAgain(out))


def not_measured(result: RemovalResult) -> Mapping[str, str]:
    measuring = result.details.removed.measuring
    return measuring.not_measured if measuring else {}


def without(result: RemovalResult) -> RemovalResult:
    return replace(result, run=None, seconds=0.0)


def test_outputs_are_those_of_a_model_with_folded_weights(
    run: tuple[Path, RemovalResult], lm: LanguageModel
) -> None:
    """Every condition again, by a model whose W_O was changed."""
    out, result = run
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(out / "outputs.jsonl"):
        rows.setdefault(row["condition"], []).append(row)
    shown = [each for each in result.evidence.conditions if not each.draw]  # the first draw
    assert len(shown) == 1 + 2 * 3 * 3 and len(rows) == len(result.evidence.conditions)
    for condition in shown:
        gate = torch.ones(lm.geometry.shape)
        for head in condition.in_model(lm.geometry):
            gate[head.layer, head.head] = condition.gate
        model = LanguageModel.wrap(folded(lm, gate), lm.tokenizer, check=False)
        part, prompts = rows[condition.id], []
        for row in part:
            source, target = row["direction"].split("-")
            prompts.append(PROMPT.format(LANGUAGES[source], LANGUAGES[target], row["source"]))
        made = model.generate(prompts, limits=[6] * len(prompts))
        assert [row["output"] for row in part] == [one.text for one in made]
    assert len({tuple(row["output"] for row in part) for part in rows.values()}) > 5


def test_every_measure_is_that_of_sacrebleu(run: tuple[Path, RemovalResult]) -> None:
    out, result = run
    rows = rows_of(out / "outputs.jsonl")
    assert len(rows) == (8 + 5) * len(result.evidence.conditions)
    expected = naive(rows)
    assert result.evidence.parts == ("", "en-de", "de-en")
    for part in result.evidence.parts:
        found = scores(result, part)
        assert found.keys() == expected[part].keys()
        for condition, values in expected[part].items():
            for name, value in values.items():
                assert found[condition][name] == pytest.approx(value, abs=1e-9), (part, condition)
    stored = load_file(out / "statistics.safetensors")
    for part in result.evidence.single:
        of_part = [values["chrf"] for values in scores(result, part).values()]
        assert of_part == pytest.approx(list(chrf_from_statistics(stored[f"{part}.chrf"].sum(1))))


def test_differences_and_tests_follow_from_the_outputs(run: tuple[Path, RemovalResult]) -> None:
    out, result = run
    evidence, expected = result.evidence, naive(rows_of(out / "outputs.jsonl"))[""]
    base = expected["original"]["chrf"]
    for condition in evidence.conditions[1:]:
        row = evidence.level("chrf", condition)
        assert row is not None and row.change is not None
        change = row.change
        assert change.value == pytest.approx(expected[condition.id]["chrf"] - base, abs=1e-9)
        if change.value:  # what no output changed has no interval
            assert change.low - 1e-9 <= change.value <= change.high + 1e-9
    assert len(evidence.selected) == 2 * 3
    for condition in evidence.selected:
        top = expected[condition.id]["chrf"]
        tests = evidence.against("chrf", condition)
        assert tests.keys() == {"random", "same layers"}
        for control, test in tests.items():
            drawn = evidence.of_control(condition, control)
            assert [each.draw for each in drawn] == [0, 1, 2][: len(drawn)]
            values = [expected[each.id]["chrf"] for each in drawn]
            assert evidence.draws("chrf", condition, control).each == pytest.approx(values)
            assert test.difference.value == pytest.approx(top - fmean(values), abs=1e-9)
            sets = {frozenset(each.heads) for each in drawn}
            assert test.draws == len(sets) == len(drawn)
            harmful = sum(value <= top + 1e-9 for value in values)
            assert test.p_draws == (1 + harmful) / (1 + len(sets))
            assert test.least_p == 1 / (1 + len(sets))
            shared = [len(set(condition.heads) & own) / len(condition.heads) for own in sets]
            assert test.shared == pytest.approx(fmean(shared))


def test_a_gate_of_one_is_the_model_as_it_is_and_costs_nothing(
    run: tuple[Path, RemovalResult],
) -> None:
    out, result = run
    found, evidence = scores(result), result.evidence
    ones = [each for each in evidence.conditions[1:] if each.gate == 1]
    assert len(ones) == len(evidence.conditions[1:]) / 3
    for each in ones:
        assert found[each.id] == found["original"]
        row = evidence.level("chrf", each)
        assert row is not None and row.change is not None
        assert row.change.value == 0 and not row.change.bounded
    units = rows_of(out / "parts" / "outputs.jsonl")
    assert len({row["key"] for row in units}) == len(units)
    # What the baseline check wrote is not written again.
    (untouched,) = rows_of(out / "parts" / "untouched.jsonl")
    written = sum(len(row["record"]) for row in [untouched, *units])
    assert len(untouched["record"]) == 8 + 5
    different = {each.key for each in evidence.conditions}
    assert written == (8 + 5) * len(different)


def test_a_killed_run_ends_with_the_same_result(model: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "pairs.tsv")
    # Two sets, and two draws of each kind beside each.
    config = VerifyRemoval(
        heads="1.0,0.2,1.3",
        k=(1, 3),
        model=ModelChoice(str(model)),
        pairs=PairsChoice(("en-de",), (str(data),)),
        draws=2,
        max_new_tokens=4,
    )
    # Two of the conditions, of eight texts each, are written together.
    changes = {"headscope.evidence.runner.KEPT_AT_ONCE": 16}
    # At the beginning, then each time the sixteen texts report, and the end of both blocks.
    _, kept = process_helpers.resumed(
        "verify removal", config, tmp_path, 1 + 2 * 17, titles=("translating",), changes=changes
    )
    assert kept["outputs.jsonl"].count(b"\n") == 2


def test_what_was_not_measured_is_missing_until_it_is(
    model: Path, pairs: PairsChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = removed(model, pairs, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("headscope.measure.metrics._sacrebleu", absent)
        bare = removed(model, pairs, tmp_path / "bare")
    missing = not_measured(bare)
    assert missing.keys() >= {"chrf", "bleu", "source_copy"}
    assert "not installed" in missing["chrf"]
    for part in bare.evidence.parts:
        for values in scores(bare, part).values():
            assert not values.keys() & {"chrf", "bleu", "source_copy"} and "empty" in values
    assert bare.tests == ()
    assert without(measured_again(tmp_path / "bare")) == without(whole)


def absent(*_: Any) -> Any:
    raise MissingExtra("it is not installed")


def test_what_cannot_be_measured_again_keeps_its_value(
    model: Path, pairs: PairsChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(sources: Any, outputs: list[str], references: Any) -> External:
        return External(0.0, tuple(len(text) / 7 for text in outputs), "")

    with monkeypatch.context() as patch:
        patch.setattr("headscope.measure.external.comet", scored)
        patch.setattr(texts, "bleu_tokenizer", lambda _: BleuTokenizer("that of then"))
        whole = removed(model, pairs, tmp_path / "run")
    assert "comet" in scores(whole)["original"]

    with monkeypatch.context() as patch:  # now there is no COMET, no identifier, no tokeniser
        patch.setattr("headscope.measure.identify.off_targets", absent)
        patch.setitem(texts.TEXT_MEASURES, "bleu", without_bleu())
        assert encode(measured_again(tmp_path / "run")) == encode(whole)

    # Numbers of other outputs are not kept.
    rows = (tmp_path / "run" / "outputs.jsonl").read_text().splitlines()
    changed = json.loads(rows[0]) | {"output": "der Hund sieht den Hund"}
    lines = [json.dumps(changed, ensure_ascii=False), *rows[1:]]
    (tmp_path / "run" / "outputs.jsonl").write_text("\n".join(lines) + "\n")
    after = measured_again(tmp_path / "run")
    assert "comet" in not_measured(after)
    assert "comet" not in scores(after)["original"]
    assert "comet" not in scores(after, changed["direction"])["original"]


def without_bleu() -> texts.TextMeasure:
    return replace(texts.TEXT_MEASURES["bleu"], count=absent)


def test_kinds_of_ablation_in_one_run(
    model: Path, pairs: PairsChoice, lm: LanguageModel, tmp_path: Path
) -> None:
    few: dict[str, Any] = {"draws": 2, "max_new_tokens": 6}
    result = removed(
        model, pairs, tmp_path / "run", ablate=("mean", "zero", "resample"), seed=4, **few
    )
    rows = rows_of(tmp_path / "run" / "outputs.jsonl")
    files = {
        pair: read_pairs(PairSource(one.split("=")[1], pair))
        for pair, one in zip(pairs.pair, pairs.data, strict=True)
    }
    # At most a quarter of each direction is set aside; no sentence of it is tested anywhere.
    tested = {row[side] for row in rows for side in ("source", "reference")}
    apart = {
        name: [one for one in file.pairs if not {one.source, one.target} & tested]
        for name, file in files.items()
    }
    encoded, starts = [], []
    for name in files:
        source, target = name.split("-")
        kept = read_directions(pairs, str(model), "test", seed=4, reference=50)[name].reference
        assert len(kept) == len({one.source for one in files[name].pairs}) // 4
        assert {one.id for one in kept} <= {one.id for one in apart[name]}
        for one in kept:
            prompt = PROMPT.format(LANGUAGES[source], LANGUAGES[target], one.source)
            encoded.append(lm.encode(f"{prompt} {one.target}"))
            starts.append(len(lm.encode(f"{prompt} ")))  # a character a token
    told = result.details.reference_text
    assert told is not None and told.texts == len(encoded) > 1
    replacements = {
        kind: replacement_of(kind, lm, encoded, starts, seed=4)  # each has a naive twin of its own
        for kind in ("mean", "zero", "resample")
    }
    conditions = {each.id: each for each in result.evidence.conditions[1:]}
    for row in rows:
        if row["condition"] == "original":
            continue
        own = conditions[row["condition"]]
        source, target = row["direction"].split("-")
        prompt = PROMPT.format(LANGUAGES[source], LANGUAGES[target], row["source"])
        with lm.gated(own.in_model(lm.geometry).removed(), replacements[own.replacement]):
            assert row["output"] == lm.generate([prompt], limits=[6])[0].text
    assert len({row["condition"] for row in rows}) == 1 + 3 * (1 + 2 + 2)
    # The first kind is what the page speaks of; both have the same heads and draws.
    assert result.evidence.main.replacement == result.details.ablate == "mean"
    mean, zero, resample = (
        [
            (each.kind, each.draw, each.heads)
            for each in conditions.values()
            if each.replacement == kind
        ]
        for kind in ("mean", "zero", "resample")
    )
    assert mean == zero == resample and mean
    # A run of one kind has the same figures for it; a run measured again keeps them.
    single = removed(model, pairs, tmp_path / "single", ablate=("mean",), seed=4, **few)
    means_of_both = {name: own for name, own in scores(result).items() if "mean" in name}
    assert {k: v for k, v in scores(single).items() if k != "original"} == means_of_both
    assert single.signature != result.signature
    assert measured_again(tmp_path / "run").levels == result.levels


def test_too_few_sentences_to_set_any_aside_are_refused(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "few.tsv"
    data.write_text("source\ttarget\n" + "".join(f"a {n}\tb {n}\n" for n in range(3)))
    pairs = PairsChoice(("en-de",), (str(data),))
    with pytest.raises(InputError, match=r"few.*a quarter aside"):
        removed(model, pairs, tmp_path / "run", ablate=("mean",))


def test_outputs_that_are_not_those_of_one_set_of_sentences_are_refused(tmp_path: Path) -> None:
    file, languages = tmp_path / "outputs.jsonl", {"en-de": Languages("en", "de")}
    file.touch()
    with pytest.raises(InputError, match="holds no outputs"):
        measures.read_outputs(file, languages)
    sentence = {"direction": "en-de", "source": "a", "reference": "b", "output": "c"}
    rows = [
        {**sentence, "id": "1", "condition": "original"},
        {**sentence, "id": "2", "condition": "selected 1"},
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match="do not hold the same sentences"):
        measures.read_outputs(file, languages)


SELECTED = Condition("selected", k=1, gate=0.0, heads=("0.0",))
RANDOM = Condition("random", k=1, gate=0.0, draw=0, heads=("0.1",))


def table_of(made: Mapping[str, Translations], *conditions: Condition) -> Evidence:
    measured = texts.measured_texts({name: each.outputs for name, each in made.items()}, TEXTS)
    return removal_evidence([Condition(), *conditions], measured, None, 9)


def test_empty_outputs_are_measured() -> None:
    made = Translations(
        "de", ("1", "2"), ("a dog", "a cat"), ("ein Hund", "ein Kater"),
        (("ein Hund", "ein Kater"), ("", " "), ("", ""), ("a dog", "")),
    )  # fmt: skip
    matched = replace(RANDOM, kind="same layers", heads=("0.2",))
    evidence = table_of({"en-de": made}, SELECTED, RANDOM, matched)

    def values(condition: Condition, *names: str) -> list[float]:
        rows = (evidence.level(name, condition) for name in names)
        return [row.value for row in rows if row is not None]

    shares = values(SELECTED, "chrf", "bleu", "empty", "source_copy", "off_target")
    assert shares == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert values(matched, "empty", "source_copy") == [0.5, 0.5]
    assert values(Condition(), "chrf") == pytest.approx([100])
    test = evidence.against("chrf", SELECTED)["random"]
    assert (test.p_examples, test.p_draws) == (1.0, 1.0)


def three_outputs(*targets: str) -> dict[str, Translations]:
    """A sentence under three conditions, into these languages."""
    made = (("a long day is over now",), ("a day",), ("a long day",))
    return {f"en-{code}": Translations(code, ("1",), ("x",), made[0], made) for code in targets}


def test_bleu_of_different_units_has_no_mean() -> None:
    same = table_of(three_outputs("de", "fr"), SELECTED, RANDOM).level("bleu")
    assert same is not None and same.value == pytest.approx(100)
    mixed = table_of(three_outputs("de", "zh"), SELECTED, RANDOM)
    assert mixed.level("bleu") is None and mixed.level("chrf") is not None
    for part in mixed.single:
        row = mixed.level("bleu", None, part)
        assert row is not None and row.value == pytest.approx(100)


def test_kept_bleu_names_the_tokeniser_that_counted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {name: made.outputs for name, made in three_outputs("ko", "th").items()}
    stored = measures.tensors(texts.measured_texts(outputs, TEXTS))
    with monkeypatch.context() as patch:
        patch.setitem(texts.TEXT_MEASURES, "bleu", without_bleu())
        now = texts.measured_texts(outputs, TEXTS)
    assert "bleu" in now.missing
    for cut in ({"en-ko": "ko-mecab", "en-th": "flores200"}, {"en-ko": "spm", "en-th": "spm"}):
        kept = measures.kept_from(stored, now, Measuring(bleu_tokenizers=cut))
        assert kept.bleu_tokenizers == cut and "bleu" not in kept.missing
        evidence = removal_evidence([Condition(), SELECTED, RANDOM], kept, None, 9)
        assert (evidence.level("bleu") is None) == (len(set(cut.values())) > 1)
        row = evidence.level("bleu", None, "en-ko")
        assert row is not None and row.value == pytest.approx(100)


def scored(
    folder: Path, values: list[list[float]], method: str, chance: list[list[float]] | None = None
) -> Path:
    array = np.array(values)
    extra = {} if chance is None else {"chance": np.array(chance)}
    save_scores(folder, HeadScores(Geometry.uniform(*array.shape), array, method, extra=extra))
    return folder


def test_outside_leaves_token_alignment_heads_out(
    model: Path, pairs: PairsChoice, tmp_path: Path
) -> None:
    values = [[0.9, 0.3, 0.2, 0.0], [0.0, 0.5, 0.05, 0.1]]

    def drawn(method: str, **options: Any) -> tuple[RemovalResult, set[str]]:
        heads = str(scored(tmp_path / method, values, method))
        out = tmp_path / f"run {method} {options}"
        few: dict[str, Any] = {"draws": 4, "max_new_tokens": 2, "controls": ("outside",)}
        result = removed(model, pairs, out, heads, 2, **few, **options)
        draws = result.evidence.of_control(result.evidence.main, "outside")
        return result, {head for each in draws for head in each.heads}

    result, heads = drawn("translation-score")
    assert result.details.outside_note is None
    assert heads == {"0.3", "1.0", "1.2", "1.3"}
    test = result.evidence.against("chrf", result.evidence.main)["outside"]
    assert test.difference.known and test.p_draws is test.least_p is None
    assert test.shared == 0
    assert drawn("translation-score", threshold=0.06)[1] == {"0.3", "1.0", "1.2"}
    result, heads = drawn("another-score")
    assert "no translation scores" in (result.details.outside_note or "")
    assert heads & {"0.1", "0.2"}


def test_the_heads_removed_are_the_highest_above_chance_or_by_score(
    model: Path, pairs: PairsChoice, tmp_path: Path
) -> None:
    values = [[0.9, 0.3, 0.2, 0.0], [0.0, 0.5, 0.05, 0.08]]
    chance = [[0.85, 0.0, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]]
    found = str(scored(tmp_path / "found", values, "translation-score", chance))
    few: dict[str, Any] = {"draws": 2, "max_new_tokens": 1, "controls": ("random",)}

    def ranked(rank: Any, spec: str = found) -> RemovalDetails:
        out = tmp_path / f"run {rank} {Path(spec).name}"
        result = removed(model, pairs, out, spec, 2, rank=rank, **few)
        settings = json.loads((out / "run.json").read_bytes())["config"]
        assert settings["rank"] == result.details.rank
        return result.details

    above, by_score = ranked("above-chance"), ranked("score")
    assert (above.rank, above.heads) == ("above-chance", ("1.1", "0.1"))
    assert (by_score.rank, by_score.heads) == ("score", ("0.0", "1.1"))
    bare = ranked("above-chance", str(scored(tmp_path / "bare", values, "translation-score")))
    assert (bare.rank, bare.heads) == ("score", ("0.0", "1.1"))
    assert bare.rank_note == "these have no chance (translation-score)"
    assert ranked("above-chance", "1.1,0.1").rank is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gates": (float("nan"),)}, "gate nan is not a finite"),
        ({"gates": (0.0, float("inf"))}, "gate inf is not a finite"),
        ({"gates": (0.0, 0.0)}, "given twice"),
        ({"gates": ()}, "no gate value"),
        ({"draws": 0}, "draws is 0; it must be at least 1"),
        ({"measure": ("text", "loss"), "draws": 12, "loss_draws": 4}, "loss_draws 4"),
        ({"measure": ("lost",)}, "measure 'lost' is not known"),
        ({"controls": ("same layer",)}, "did you mean same layers"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Removal(**settings)


def test_pocket_needs_its_translation_heads(tmp_path: Path) -> None:
    """Its six best heads by translation score, against as many others of the last two layers."""
    config = VerifyRemoval(
        heads="4.3,5.1,5.3,5.11,4.2,5.0",
        pairs=PairsChoice(("en-de", "tr-es"), limit=8),
        draws=2,
    )
    result = removal.run(config, tmp_path / "run")
    evidence = result.evidence
    base, top = evidence.level("chrf"), evidence.level("chrf", evidence.main)
    assert base is not None and base.value > 85
    assert top is not None and top.change is not None and top.change.high < -40
    test = evidence.against("chrf", evidence.main)["same layers"]
    assert test.difference.high < -30 and (test.p_examples or 1) < 0.01
    assert result.details.leakage == Leakage(False, None, 16)
    assert evidence.single == ("en-de", "tr-es")


def test_scores_of_a_command_come_back_to_their_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every (sentence, output) pair is scored once, and its score stands wherever it occurs."""
    calls: list[list[tuple[str, str, str]]] = []

    def comet(
        sources: Any, outputs: Any, references: Any, timeout: float | None = None
    ) -> External:
        rows = list(zip(sources, outputs, references, strict=True))
        calls.append(rows)
        return External(0.0, tuple(float(len(s) * 100 + len(o)) for s, o, _ in rows), "")

    monkeypatch.setattr("headscope.measure.external.comet", comet)
    made = {
        "en-de": Translations(
            "de", ("1", "2"), ("s", "tt"), ("x", "y"), (("aa", "b"), ("aa", ""), ("aa", "b"))
        ),
        "de-en": Translations("en", ("1",), ("uuu",), ("z",), (("c",), ("dd",), ("c",))),
    }
    measured = texts.measured_texts({name: each.outputs for name, each in made.items()}, TEXTS)
    assert [len(rows) for rows in calls] == [3 + 2]
    assert measured.parts["en-de"]["comet"][..., 0].tolist() == [[102, 201], [102, 200], [102, 201]]
    assert measured.parts["de-en"]["comet"][..., 0].tolist() == [[301], [302], [301]]
    assert "comet" not in measured.missing and "bleurt" in measured.missing
    evidence = removal_evidence([Condition(), SELECTED, RANDOM], measured, None, 9)
    for condition, own in ((None, [102, 201]), (SELECTED, [102, 200])):
        row = evidence.level("comet", condition)
        assert row is not None and row.value == fmean([fmean(own), 301 + (condition is not None)])
