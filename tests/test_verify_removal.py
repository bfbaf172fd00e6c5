"""Removal with controls: what is run, what is kept, and what is worked out from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import process_helpers
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import InputError, MissingExtra
from headscope.heads import Geometry, HeadScores, HeadSet, save_scores
from headscope.lm import LanguageModel, load
from headscope.lm.ablation import head_means
from headscope.measure.external import External
from headscope.measure.metrics import BleuTokenizer, chrf_from_statistics
from headscope.results.removal import BASELINE, Label, Measuring
from headscope.runs import encode
from headscope.runs.folder import reopen_run
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.verify.measure import MeasureAgain, measure_again
from headscope.studies.verify.removal import VerifyRemoval, read_test_directions, verify_removal
from headscope.verify.translation import Removal, conditions, measures
from headscope.verify.translation.evidence import evidence, statistics
from headscope.verify.translation.measures import Measures, Translations, kept_from, measure
from lm_helpers import folded, saved
from verify_helpers import label, naive, rows_of, write_data

PROMPT = "Translate this sentence from {} to {}\nSentence: {}\nAnswer:"
LANGUAGES = {"en": "English", "de": "German"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"))


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
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("run") / "run"
    settings = {"gates": (0.0, 2.0, 1.0), "draws": 3, "max_new_tokens": 6}
    return out, removed(model, pairs, out, "1.0,0.2,1.3", 3, 1, **settings)


def removed(
    model: Path, pairs: PairsChoice, out: Path, spec: str = "1.0,0.2", *k: Any, **settings: Any
) -> dict[str, Any]:
    """The result of a run with these settings of `Removal`; `rank` is the command's."""
    rank = settings.pop("rank", "above-chance")
    chosen = Removal(**{"draws": 1, "max_new_tokens": 4, **settings})
    config = VerifyRemoval(spec, k, ModelChoice(str(model)), pairs, chosen, rank=rank)
    return encode(verify_removal(config, out))


def measured_again(out: Path) -> dict[str, Any]:
    return encode(measure_again(MeasureAgain(out)))


def plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value))


def parts_of(out: Path) -> list[str]:
    return [row["key"] for row in rows_of(out / "parts" / "outputs.jsonl")]


def without(result: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name not in ("run", "seconds", *names)}


def test_outputs_are_those_of_a_model_with_folded_weights(
    run: tuple[Path, dict[str, Any]], lm: LanguageModel
) -> None:
    """Every condition again, by a model whose W_O was changed."""
    import torch

    out, result = run
    sets = {label(one): one["heads"] for one in result["conditions"]} | {
        ("baseline", 0, 1.0, None): []
    }
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows_of(out / "outputs.jsonl"):
        if not row["draw"]:  # the first draw stands for them all
            rows.setdefault(label(row), []).append(row)
    assert len(rows) == 1 + 2 * 3 * 3
    for name, part in rows.items():
        gate = torch.ones(lm.geometry.shape)
        for head in sets[name]:
            layer, _, number = head.partition(".")
            gate[int(layer), int(number)] = name[2]
        model = LanguageModel.wrap(folded(lm, gate), lm.tokenizer, check=False)
        prompts = []
        for row in part:
            source, target = row["direction"].split("-")
            prompts.append(PROMPT.format(LANGUAGES[source], LANGUAGES[target], row["source"]))
        made = model.generate(prompts, limits=[6] * len(prompts))
        assert [row["output"] for row in part] == [one.text for one in made]
    assert len({tuple(row["output"] for row in part) for part in rows.values()}) > 5


def test_every_measure_is_that_of_sacrebleu(run: tuple[Path, dict[str, Any]]) -> None:
    out, result = run
    rows = rows_of(out / "outputs.jsonl")
    assert len(rows) == (8 + 5) * (1 + len(result["conditions"]))
    expected = naive(rows)
    for name in ("mean", "en-de", "de-en"):
        shown = result if name == "mean" else result["directions"][name]
        told = {("baseline", 0, 1.0, None): shown["baseline"]} | {
            label(one): one for one in shown["conditions"]
        }
        assert told.keys() == expected[name].keys()
        for one, values in expected[name].items():
            for measure_name, value in values.items():
                assert told[one][measure_name] == pytest.approx(value, abs=1e-9), (name, one)
    stored = load_file(out / "statistics.safetensors")
    for name, shown in result["directions"].items():
        told_chrf = [one["chrf"] for one in (shown["baseline"], *shown["conditions"])]
        assert told_chrf == pytest.approx(list(chrf_from_statistics(stored[f"{name}.chrf"].sum(1))))


def test_differences_tests_and_curves_follow_from_the_outputs(
    run: tuple[Path, dict[str, Any]],
) -> None:
    out, result = run
    expected = naive(rows_of(out / "outputs.jsonl"))["mean"]
    base = expected["baseline", 0, 1.0, None]["chrf"]
    curves = {(one["k"], one["gate"]): one for one in result["curves"]}
    for one in result["conditions"]:
        change = one["change"]["chrf"]
        assert change["value"] == pytest.approx(expected[label(one)]["chrf"] - base, abs=1e-9)
        if change["value"]:  # what no output changed has no interval
            assert change["low"] - 1e-9 <= change["value"] <= change["high"] + 1e-9
        if one["kind"] != "top":
            continue
        at = one["k"], one["gate"]
        top = expected[label(one)]["chrf"]
        for kind, ending in (("random", ""), ("random-layer-matched", "_layer_matched")):
            draws = [expected[kind, *at, n]["chrf"] for n in range(3)]
            assert curves[at][f"random{ending}_mean"] == pytest.approx(fmean(draws))
            assert curves[at][f"random{ending}_low"] == pytest.approx(min(draws))
            assert curves[at][f"random{ending}_high"] == pytest.approx(max(draws))
            against = one[f"against_random{ending}"]
            assert against["value"] == pytest.approx(top - fmean(draws), abs=1e-9)
            sets = {tuple(c["heads"]): c["chrf"] for c in result["conditions"]
                    if (c["kind"], c["k"], c["gate"]) == (kind, *at)}  # fmt: skip
            assert one[f"distinct_draws{ending}"] == len(sets)
            harmful = sum(draw <= top + 1e-9 for draw in sets.values())
            assert one[f"p_draws{ending}"] == (1 + harmful) / (1 + len(sets))
        assert curves[at]["top"] == pytest.approx(top)
    largest = next(c for c in result["conditions"] if label(c) == ("top", 3, 0.0, None))
    assert result["p_value"] == largest["p_sentences"]


def test_a_gate_of_one_is_the_model_as_it_is_and_costs_nothing(
    run: tuple[Path, dict[str, Any]],
) -> None:
    out, result = run
    base = result["baseline"]
    ones = [one for one in result["conditions"] if one["gate"] == 1]
    assert len(ones) == 14
    for one in ones:
        assert {name: one[name] for name in ("chrf", "bleu", "off_target", "source_copy")} == {
            name: base[name] for name in ("chrf", "bleu", "off_target", "source_copy")
        }
        assert one["change"]["chrf"] == {"value": 0.0, "low": None, "high": None}
    keys = parts_of(out)
    assert len(keys) == len(set(keys))
    sets = {(frozenset(c["heads"]), c["gate"]) for c in result["conditions"] if c["gate"] != 1}
    assert len(keys) == 1 + len(sets)


def test_a_killed_run_ends_with_the_same_result(model: Path, tmp_path: Path) -> None:
    data = write_data(tmp_path / "pairs.tsv")
    # Two sets, and two draws of each kind beside each.
    config = VerifyRemoval(
        "1.0,0.2,1.3",
        (1, 3),
        ModelChoice(str(model)),
        PairsChoice(("en-de",), (str(data),)),
        Removal(draws=2, max_new_tokens=4),
    )
    # Two of the conditions, of eight texts each, are written together.
    changes = {"headscope.verify.translation.conditions.KEPT_AT_ONCE": 16}
    # Each time the sixteen texts report, and the end of both blocks.
    _, kept = process_helpers.resumed(
        verify_removal, config, tmp_path, 2 * 17, titles=("translating",), changes=changes
    )
    assert kept["outputs.jsonl"].count(b"\n") == 4


def test_what_was_not_measured_is_null_until_it_is(
    model: Path, pairs: PairsChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = removed(model, pairs, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("headscope.measure.metrics._sacrebleu", absent)
        bare = removed(model, pairs, tmp_path / "bare")
    assert bare["not_measured"].keys() >= {"chrf", "bleu", "source_copy"}
    assert "not installed" in bare["not_measured"]["chrf"]
    for one in (bare["baseline"], *bare["conditions"], bare["directions"]["en-de"]["baseline"]):
        assert one["chrf"] is one["bleu"] is one["source_copy"] is None
        assert isinstance(one["empty"], float)
    top = bare["conditions"][0]
    assert top["p_sentences"] is top["p_draws"] is bare["p_value"] is None
    assert top["change"]["chrf"] == {"value": None, "low": None, "high": None}
    assert without(measured_again(tmp_path / "bare")) == plain(without(whole))


def absent(*_: Any) -> Any:
    raise MissingExtra("it is not installed")


def test_what_cannot_be_measured_again_keeps_its_value(
    model: Path, pairs: PairsChoice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(sources: Any, outputs: list[str], references: Any) -> External:
        return External(0.0, tuple(len(text) / 7 for text in outputs), "")

    with monkeypatch.context() as patch:
        patch.setattr("headscope.measure.external.comet", scored)
        patch.setattr(measures, "bleu_tokenizer", lambda _: BleuTokenizer("that of then"))
        whole = removed(model, pairs, tmp_path / "run")
    assert isinstance(whole["baseline"]["comet"], float)

    with monkeypatch.context() as patch:  # now there is no COMET, no identifier, no tokeniser
        patch.setattr("headscope.measure.identify.off_targets", absent)
        patch.setitem(measures._MEASURES, "bleu", absent)
        assert measured_again(tmp_path / "run") == plain(whole)

    # Numbers of other outputs are not kept.
    rows = (tmp_path / "run" / "outputs.jsonl").read_text().splitlines()
    changed = json.loads(rows[0]) | {"output": "der Hund sieht den Hund"}
    lines = [json.dumps(changed, ensure_ascii=False), *rows[1:]]
    (tmp_path / "run" / "outputs.jsonl").write_text("\n".join(lines) + "\n")
    after = measured_again(tmp_path / "run")
    assert after["baseline"]["comet"] is None and "comet" in after["not_measured"]
    assert after["directions"][changed["direction"]]["baseline"]["comet"] is None


def test_zero_and_mean_ablation_in_one_run(
    model: Path, pairs: PairsChoice, lm: LanguageModel, tmp_path: Path
) -> None:
    few: dict[str, Any] = {"draws": 2, "max_new_tokens": 6}
    result = removed(model, pairs, tmp_path / "run", ablate=("mean", "zero"), **few)
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
    texts, starts = [], []
    for name in files:
        source, target = name.split("-")
        kept = read_directions(pairs, str(model), "test", reference=50)[name].reference
        assert len(kept) == len({one.source for one in files[name].pairs}) // 4
        assert {one.id for one in kept} <= {one.id for one in apart[name]}
        for one in kept:
            prompt = PROMPT.format(LANGUAGES[source], LANGUAGES[target], one.source)
            texts.append(lm.encode(f"{prompt} {one.target}"))
            starts.append(len(lm.encode(f"{prompt} ")))  # a character a token
    assert result["reference_text"]["texts"] == len(texts) > 1
    reference = head_means(lm, texts, starts)
    seen = set()
    for row in rows:
        if row["condition"] == "baseline":
            continue
        match = [
            one
            for one in result["conditions"]
            if (one["kind"], one["draw"], one["ablate"])
            == (row["condition"], row["draw"], row["ablate"])
        ]
        source, target = row["direction"].split("-")
        prompt = PROMPT.format(LANGUAGES[source], LANGUAGES[target], row["source"])
        gate = HeadSet.parse(",".join(match[0]["heads"]), lm.geometry).removed()
        with lm.gated(gate, row["ablate"], reference if row["ablate"] == "mean" else None):
            assert row["output"] == lm.generate([prompt], limits=[6])[0].text
        seen.add((row["condition"], row["draw"], row["ablate"]))
    assert len(seen) == 2 * (1 + 2 + 2)
    # The first kind is what the run's own figures speak of; both have the same heads and draws.
    assert result["ablate"] == "mean"
    tops = [one for one in result["conditions"] if one["kind"] == "top"]
    assert [one["ablate"] for one in tops] == ["mean", "zero"]
    assert result["p_value"] == tops[0]["p_sentences"]
    for kind in ("top", "random", "random-layer-matched"):
        mean, zero = (
            [one["heads"] for one in result["conditions"] if (one["kind"], one["ablate"]) == pair]
            for pair in ((kind, "mean"), (kind, "zero"))
        )
        assert mean == zero and mean
    # A run of one kind has the same figures for it; a run measured again keeps them.
    single = removed(model, pairs, tmp_path / "single", ablate=("mean",), **few)
    means = [one for one in result["conditions"] if one["ablate"] == "mean"]
    assert single["conditions"] == plain(means)
    assert single["signature"] != result["signature"]
    assert measured_again(tmp_path / "run")["conditions"] == plain(result["conditions"])


def test_a_run_of_before_kinds_of_ablation_keeps_its_own(
    model: Path, pairs: PairsChoice, tmp_path: Path
) -> None:
    whole = removed(model, pairs, tmp_path / "run", ablate=("mean",))
    rows = rows_of(tmp_path / "run" / "outputs.jsonl")
    for row in rows:
        del row["ablate"]
    (tmp_path / "run" / "outputs.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    path = tmp_path / "run" / "result.json"
    result = json.loads(path.read_bytes())
    for one in (result, *result["directions"].values()):
        for row in one["conditions"]:
            del row["ablate"]
    del result["run"]
    shutil.rmtree(tmp_path / "run" / "parts")
    with reopen_run(tmp_path / "run") as run:
        run.finish(result)
    assert measured_again(tmp_path / "run")["conditions"] == plain(whole["conditions"])


def test_too_few_sentences_to_set_any_aside_are_refused(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "few.tsv"
    data.write_text("source\ttarget\n" + "".join(f"a {n}\tb {n}\n" for n in range(3)))
    pairs = PairsChoice(("en-de",), (str(data),))
    with pytest.raises(InputError, match=r"few.*a quarter aside"):
        removed(model, pairs, tmp_path / "run", ablate=("mean",))


def test_outputs_that_are_not_those_of_one_set_of_sentences_are_refused(tmp_path: Path) -> None:
    file, languages = tmp_path / "outputs.jsonl", {"en-de": ("en", "de")}
    file.touch()
    with pytest.raises(InputError, match="holds no outputs"):
        measures.read_outputs(file, languages)
    sentence = {"direction": "en-de", "source": "a", "reference": "b", "output": "c", "gate": 0.0}
    rows = [
        {**sentence, "id": "1", "condition": "baseline", "k": 0, "draw": None},
        {**sentence, "id": "2", "condition": "top", "k": 1, "draw": None},
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match="do not hold the same sentences"):
        measures.read_outputs(file, languages)


def test_empty_outputs_are_measured() -> None:
    made = Translations(
        "en", "de", ("1", "2"), ("a dog", "a cat"), ("ein Hund", "ein Kater"),
        (("ein Hund", "ein Kater"), ("", " "), ("", ""), ("a dog", "")),
    )  # fmt: skip
    labels = [BASELINE, Label("top", 1, 0.0), Label("random", 1, 0.0, 0),
              Label("random-layer-matched", 1, 0.0, 0)]  # fmt: skip
    shown = encode(evidence(labels, [(), ("0.0",), ("0.1",), ("0.2",)], measure({"en-de": made})))
    top, random, matched = shown["conditions"]
    assert (top["chrf"], top["bleu"], top["empty"], top["source_copy"]) == (0.0, 0.0, 1.0, 0.0)
    assert (matched["empty"], matched["source_copy"]) == (0.5, 0.5)
    assert shown["baseline"]["chrf"] == pytest.approx(100)
    assert top["off_target"] == random["off_target"] == 1.0
    assert (top["p_sentences"], top["p_draws"]) == (1.0, 1.0)


def three_outputs(*targets: str) -> dict[str, Translations]:
    """A sentence under three conditions, into these languages."""
    texts = (("a long day is over now",), ("a day",), ("a long day",))
    return {
        f"en-{code}": Translations("en", code, ("1",), ("x",), texts[0], texts) for code in targets
    }


def evidence_of_three(measured: Measures) -> dict[str, Any]:
    labels = [BASELINE, Label("top", 1, 0.0), Label("random", 1, 0.0, 0)]
    return encode(evidence(labels, [(), ("0.0",), ("0.1",)], measured))


def test_bleu_of_different_units_has_no_mean() -> None:
    def shown(*targets: str) -> dict[str, Any]:
        return evidence_of_three(measure(three_outputs(*targets)))

    same = shown("de", "fr")
    assert same["bleu_tokenizers"] == {"en-de": "13a", "en-fr": "13a"}
    assert same["baseline"]["bleu"] == pytest.approx(100) and "bleu" not in same["not_measured"]
    mixed = shown("de", "zh")
    assert mixed["bleu_tokenizers"] == {"en-de": "13a", "en-zh": "zh"}
    assert mixed["baseline"]["bleu"] is None and mixed["conditions"][0]["bleu"] is None
    assert "13a, zh" in mixed["not_measured"]["bleu"]
    for one in mixed["directions"].values():
        assert one["baseline"]["bleu"] == pytest.approx(100)


def test_kept_bleu_names_the_tokeniser_that_counted_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = three_outputs("ko", "th")
    stored = statistics(measure(made))

    def again(told: dict[str, Any]) -> dict[str, Any]:
        with monkeypatch.context() as patch:
            patch.setitem(measures._MEASURES, "bleu", absent)
            now = measure(made)
        return evidence_of_three(kept_from(stored, now, Measuring(**told)))

    for cut in ({"en-ko": "ko-mecab", "en-th": "flores200"}, {"en-ko": "spm", "en-th": "spm"}):
        shown = again({"bleu_tokenizers": cut})
        assert shown["bleu_tokenizers"] == cut
        assert (shown["baseline"]["bleu"] is None) == (len(set(cut.values())) > 1)
    shown = again({})  # a result of before these names were stored
    assert shown["bleu_tokenizers"] == {"en-ko": "unknown", "en-th": "unknown"}
    assert shown["baseline"]["bleu"] is None, "who knows whether their units are the same"
    assert shown["directions"]["en-ko"]["baseline"]["bleu"] == pytest.approx(100)


def scored(
    folder: Path, values: list[list[float]], method: str, chance: list[list[float]] | None = None
) -> Path:
    array = np.array(values)
    extra = {} if chance is None else {"chance": np.array(chance)}
    save_scores(folder, HeadScores(Geometry.uniform(*array.shape), array, method, extra=extra))
    return folder


def test_the_pool_leaves_token_alignment_heads_out(
    model: Path, pairs: PairsChoice, tmp_path: Path
) -> None:
    values = [[0.9, 0.3, 0.2, 0.0], [0.0, 0.5, 0.05, 0.1]]

    def drawn(method: str, **options: Any) -> tuple[dict[str, Any], set[str]]:
        heads = str(scored(tmp_path / method, values, method))
        out = tmp_path / f"run {method} {options}"
        result = removed(model, pairs, out, heads, 2, draws=4, max_new_tokens=2, **options)
        kinds = ("random", "random-layer-matched")
        sets = [one["heads"] for one in result["conditions"] if one["kind"] in kinds]
        return result, {head for heads in sets for head in heads}

    result, heads = drawn("translation-score")
    assert (result["pool"], result["pool_note"]) == ("non-alignment", None)
    assert heads == {"0.3", "1.0", "1.2", "1.3"}
    result, heads = drawn("translation-score", threshold=0.06)
    assert heads == {"0.3", "1.0", "1.2"}
    assert drawn("translation-score", pool="outside")[0]["pool"] == "outside"
    result, heads = drawn("another-score")
    assert result["pool"] == "outside"
    assert "no translation scores" in result["pool_note"]
    assert heads & {"0.1", "0.2"}


def test_the_heads_removed_are_the_highest_above_chance_or_by_score(
    model: Path, pairs: PairsChoice, tmp_path: Path
) -> None:
    values = [[0.9, 0.3, 0.2, 0.0], [0.0, 0.5, 0.05, 0.08]]
    chance = [[0.85, 0.0, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]]
    found = str(scored(tmp_path / "found", values, "translation-score", chance))
    few: dict[str, Any] = {"draws": 2, "max_new_tokens": 1, "layer_matched": False}

    def ranked(rank: Any, spec: str = found) -> dict[str, Any]:
        out = tmp_path / f"run {rank} {Path(spec).name}"
        result = removed(model, pairs, out, spec, 2, rank=rank, **few)
        settings = json.loads((out / "run.json").read_bytes())["config"]
        assert settings["rank"] == result["rank"]
        return result

    above, by_score = ranked("above-chance"), ranked("score")
    assert (above["rank"], above["heads"]) == ("above-chance", ["1.1", "0.1"])
    assert (by_score["rank"], by_score["heads"]) == ("score", ["0.0", "1.1"])
    # The pool keeps to the score: 0.0 and 0.2 exceed 0.1, whatever chance takes of it.
    drawn = {head for one in above["conditions"][1:] for head in one["heads"]}
    assert drawn <= {"0.3", "1.0", "1.2", "1.3"}
    bare = ranked("above-chance", str(scored(tmp_path / "bare", values, "translation-score")))
    assert (bare["rank"], bare["heads"]) == ("score", ["0.0", "1.1"])
    assert bare["rank_note"] == "chance is not known at every head"
    assert ranked("above-chance", "1.1,0.1")["rank"] is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gates": (float("nan"),)}, "gate nan is not a finite"),
        ({"gates": (0.0, float("inf"))}, "gate inf is not a finite"),
        ({"gates": (0.0, 0.0)}, "given twice"),
        ({"gates": ()}, "no gate value"),
        ({"draws": 0}, "at least one random draw"),
        ({"measure": ("text", "loss"), "draws": 12, "loss_draws": 4}, "loss_draws 4"),
        ({"measure": ("lost",)}, "measure 'lost' is not known"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Removal(**settings)
    with pytest.raises(InputError, match="no set of heads"):
        conditions([], Removal())


def test_how_many_of_pockets_own_sentences_are_taken() -> None:
    def sizes(*pair: str, limit: int | None = None) -> list[int]:
        found = read_test_directions(PairsChoice(pair, limit=limit), "pocket", 0)
        assert {one.path for one in found.values()} == {"pocket:test"}
        return [len(one.pairs) for one in found.values()]

    assert sizes("en-de") == [200]
    assert sizes("all") == [50] * 20
    assert sizes("en-de", "ru-tr", limit=3) == [3, 3]


def test_pocket_needs_its_translation_heads(tmp_path: Path) -> None:
    """Its six best heads by translation score, against as many others of the last two layers."""
    config = VerifyRemoval(
        "4.3,5.1,5.3,5.11,4.2,5.0",
        pairs=PairsChoice(("en-de", "tr-es"), limit=8),
        removal=Removal(draws=2),
    )
    result = encode(verify_removal(config, tmp_path / "run"))
    top = result["conditions"][0]
    assert result["baseline"]["chrf"] > 85
    assert top["change"]["chrf"]["high"] < -40
    assert top["against_random_layer_matched"]["high"] < -30
    assert top["p_sentences_layer_matched"] < 0.01
    assert result["leakage"] == {"known": False, "overlap": None, "of": 16}
    assert result["directions"].keys() == {"en-de", "tr-es"}


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
    texts = (("aa", "b"), ("aa", ""), ("aa", "b"))
    made = Translations("en", "de", ("1", "2"), ("s", "tt"), ("x", "y"), texts)
    other = Translations("de", "en", ("1",), ("uuu",), ("z",), (("c",), ("dd",), ("c",)))
    found = measure({"en-de": made, "de-en": other})
    assert [len(rows) for rows in calls] == [3 + 2]
    assert found.directions["en-de"].comet.tolist() == [[102, 201], [102, 200], [102, 201]]
    assert found.directions["de-en"].comet.tolist() == [[301], [302], [301]]
    assert "comet" not in found.missing and "bleurt" in found.missing
    labels = [BASELINE, Label("top", 1, 0.0), Label("random", 1, 0.0, 0)]
    shown = encode(evidence(labels, [(), ("0.0",), ("0.1",)], found))
    assert shown["baseline"]["comet"] == fmean([fmean([102, 201]), 301])
    assert shown["conditions"][0]["comet"] == fmean([fmean([102, 200]), 302])
