"""Experiments beside the papers: every figure again, naively, from what the runs stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import find_helpers
from headscope.compare.agreement import Choice, links_agreement, scores_agreement, stability
from headscope.data.align import Alignment, LlmAligner
from headscope.data.align.llm import LlmLinks
from headscope.data.pairs import PairSource, read_pairs
from headscope.data.prompts import translation_prompts
from headscope.errors import InputError
from headscope.find.translation import attention_mass, translation_score
from headscope.find.translation_config import TranslationScore
from headscope.heads import Geometry, Head, HeadScores, HeadSet, read_scores
from headscope.heads.resolve import read_parts
from headscope.lm import load
from headscope.measure.intervals import bootstrap_difference
from headscope.measure.statistics import (
    counted,
    counted_mean,
    holm,
    least_p,
    overlap,
)
from headscope.papers import beside, registry
from headscope.papers.beside import PAPER
from headscope.papers.command import listing
from headscope.papers.paper import Missing, PaperData, Setting
from headscope.papers.reproduce import Reproduce, reproduce
from headscope.papers.token_alignment_heads.setting import THRESHOLD
from headscope.runs.folder import read_records
from headscope.studies.models import ModelChoice
from headscope.studies.verify.loss_experiments import copies_written
from headscope.verify.translation.conditions import ReferenceLosses
from headscope.verify.translation.single import interactions, pairs_of, planned_pairs
from lm_helpers import folded
from loss_helpers import data, of_sentence
from verify_helpers import naive

WAYS = ("en-de", "de-en")
NAMES = ("own", *(f"eflomal-{n}" for n in range(1, 6)), "llm")


def annotated(texts: Any, *_: Any) -> LlmLinks:
    """A language model that links the n-th unit to the n-th."""
    return LlmLinks(
        tuple(frozenset((n, n) for n in range(min(len(a), len(b)))) for a, b in texts), {}
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """All experiments on a tiny model, with few draws."""
    pytest.importorskip("eflomal")
    folder = tmp_path_factory.mktemp("beside")
    lm = find_helpers.wrapped("pocket-like")
    lm.model.save_pretrained(folder / "model")
    lm.tokenizer.save_pretrained(folder / "model")
    pairs = PaperData(tuple(f"{way}={data(folder, way, 14)}" for way in WAYS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headscope.data.align.align_llm", annotated)
        patch.setenv("HEADSCOPE_API_KEY", "any")
        for name, value in (("LOSS_DRAWS", 6), ("TEXT_DRAWS", 3), ("PAIRED", 3)):
            patch.setattr(beside, name, value)
        config = Reproduce(
            "beside", ModelChoice(str(folder / "model")), pairs, llm=LlmAligner("some-model")
        )
        yield folder, reproduce(config, folder / "run")


def result(folder: Path, step: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/runs" / step / "result.json").read_bytes())
    return found


def cells(ran: tuple[Path, dict[str, Any]], name: str, table: int = 0) -> dict[str, list[Any]]:
    (one,) = (one for one in ran[1]["experiments"] if one["name"] == name)
    assert one["state"] == "run" and one["found"] and one["sure"] and not one["elements"]
    return {row["name"]: row["cells"] for row in one["tables"][table]["rows"]}


def values(row: list[Any]) -> list[Any]:
    return [cell["value"] for cell in row]


def losses(folder: Path, step: str) -> list[Any]:
    """NLL of each condition and sentence, by direction, as stored sums over tokens."""
    stored = load_file(folder / "run/runs" / step / "statistics.safetensors")
    return [stored[f"{w}.nll"].sum(axis=2) / stored[f"{w}.nll_tokens"].sum(axis=1) for w in WAYS]


def p_of(cell: dict[str, Any]) -> float:
    return 0.0005 if cell["value"] == "< 0.001" else float(cell["value"])


# Threshold and number


def test_chosen_heads_are_counted_as_by_hand(ran: tuple[Path, dict[str, Any]]) -> None:
    parts = read_parts(ran[0] / "run/runs/links")
    shown = cells(ran, "threshold")
    assert set(parts) == set(WAYS)
    for limit in (0.05, 0.1, 0.2):
        row = values(shown[f"above {limit:g}"])
        mean = np.mean([one.values for one in parts.values()], axis=0)
        assert row[0] == (mean > limit).sum()
        each = [{h for h in one.geometry.heads() if one[h] > limit} for one in parts.values()]
        found = overlap(*each, parts["en-de"].geometry.total)
        assert row[4:] == pytest.approx([found.jaccard, found.expected_exact])


def test_removal_by_size_is_that_of_the_stored_losses(ran: tuple[Path, dict[str, Any]]) -> None:
    stored, nll = result(ran[0], "sizes"), losses(ran[0], "sizes")
    shown, best = cells(ran, "threshold", 1), []
    for at, one in enumerate(stored["conditions"], 1):
        if one["kind"] != "top":
            continue
        drawn = [
            n
            for n, other in enumerate(stored["conditions"], 1)
            if (other["kind"], other["k"]) == ("random", one["k"])
        ]
        rise = fmean(float((part[at] - part[0]).mean()) for part in nll)
        beside = [fmean(float((part[n] - part[0]).mean()) for part in nll) for n in drawn]
        row = shown[f"best {one['k']}"]
        assert values(row)[:2] == pytest.approx([rise, rise - fmean(beside)])
        assert p_of(row[3]) == pytest.approx(
            (1 + sum(b >= rise for b in beside)) / (1 + len(beside))
        )
        best.append((one["p_sentences"], row[2]))
    corrected = holm([p for p, _ in best])
    assert [p_of(cell) for _, cell in best] == pytest.approx(corrected, abs=0.001)


def crafted(rows: Any, method: str = "x") -> HeadScores:
    """Scores of 2 × 3 heads from those of each sentence, (S, 6)."""
    mass = np.array(rows, dtype=float).reshape(len(rows), 2, 3)
    return HeadScores(Geometry((3, 3)), mass.mean(axis=0), method, statistics={"mass": mass})


def test_stability_where_sentences_agree_and_where_they_do_not() -> None:
    same = crafted([[0.5, 0.4, 0.0, 0.3, 0.0, 0.0]] * 8)
    found = stability([same, same], Choice(k=2))
    assert (found["heads"], found["firm"], found["loose"]) == (2, 2, 0)
    assert found["halves"] == pytest.approx(found["directions"])
    assert found["halves"]["jaccard"] == 1
    chance = [(len(set(a) & set(b)) / len(set(a) | set(b)))
              for a, b in product(combinations(range(6), 2), repeat=2)]  # fmt: skip
    assert found["halves"]["expected"] == pytest.approx(fmean(chance))
    split = crafted([[0.5, 0.4, 0, 0, 0, 0], [0.5, 0, 0.39, 0, 0, 0]] * 4)
    found = stability([split], Choice(k=2))
    assert (found["heads"], found["firm"], found["loose"]) == (2, 1, 1)
    assert found["directions"] is None and found["halves"]["jaccard"] < 1
    assert stability([split], Choice(0.3))["heads"] == 1  # above the mean, not of a sentence


def test_choices_are_those_of_scores() -> None:
    scores = crafted([[0.1, 0.3, 0.3, 0.2, 0.3, 0.0]])
    heads = list(scores.geometry.heads())
    for k in (1, 2, 3, 5):
        chosen = Choice(k=k).of(scores.values.reshape(-1))
        assert {heads[at] for at in np.flatnonzero(chosen)} == set(scores.top(k, "score"))
    above = Choice(0.2).of(scores.values.reshape(-1))
    assert {heads[at] for at in np.flatnonzero(above)} == set(scores.select(0.2))


# Word links


def test_scores_by_stored_links_are_those_of_data_with_these_links(
    ran: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _ = ran
    run, lm = folder / "run/runs/links", load(str(folder / "model"))
    means, above = {}, {}
    for name in NAMES:
        place = run if name == "own" else run / "links" / name
        parts = read_parts(place)
        means[name] = np.mean([one.values for one in parts.values()], axis=0)
        above[name] = set(read_scores(place)["mean"].select(THRESHOLD))
        for way in WAYS if name in ("own", "eflomal-2") else ():
            pairs = read_pairs(PairSource(str(folder / f"run/runs/sentences/dev/{way}.tsv"), way))
            kept = read_records(run / f"parts/{way}/links {name}.jsonl")[f"links {name}"]
            alignment = Alignment.from_dict(kept)
            linked = tuple(
                replace(pair, links=links)
                for pair, links in zip(pairs.pairs, alignment.links, strict=True)
            )
            again = translation_score(lm, replace(pairs, pairs=linked), TranslationScore())
            np.testing.assert_array_equal(again.values, parts[way].values)
            np.testing.assert_allclose(again.extra["chance"], parts[way].extra["chance"])
    shown = cells(ran, "links")
    (own,) = set(shown) - set(NAMES)
    assert own == "the data's links" and values(shown[own])[1] == len(above["own"])
    for name in NAMES[1:]:
        row = values(shown[name])
        assert row[1] == len(above[name])
        assert row[2] == pytest.approx(overlap(above["own"], above[name], 16).jaccard)
        assert row[7] == pytest.approx(np.nanmax(np.abs(means[name] - means["own"])))
    fits = np.stack([means[name] for name in NAMES if name.startswith("eflomal")])
    assert f"{np.ptp(fits, axis=0).max():.3f}" in ran[1]["experiments"][1]["found"]


def test_the_best_heads_of_one_half_are_measured_on_the_other(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    run = ran[0] / "run/runs/links"
    own, other = read_parts(run), read_parts(run / "links/eflomal-1")
    heads = list(own["en-de"].geometry.heads())
    gaps = []
    for half in (0, 1):

        def rate(scores: HeadScores, head: Head, s: int) -> float:
            hits, totals = scores.statistics["hits"], scores.statistics["totals"]
            return float(hits[s, head.layer, head.head] / totals[s])

        def known(scores: HeadScores, side: int) -> set[int]:
            totals = scores.statistics["totals"]
            return {s for s in range(len(totals)) if s % 2 == side and totals[s]}

        mean = {
            head: fmean(
                fmean(rate(own[way], head, s) for s in known(own[way], 1 - half)) for way in WAYS
            )
            for head in heads
        }
        best = sorted(heads, key=lambda head: -mean[head])[:2]
        for way in WAYS:
            both = known(own[way], half) & known(other[way], half)
            gaps.append(
                fmean(rate(other[way], h, s) - rate(own[way], h, s) for h in best for s in both)
            )
    assert values(cells(ran, "links")["eflomal-1"])[8] == pytest.approx(fmean(gaps))


def test_of_noise_no_links_are_favoured() -> None:
    random, geometry = np.random.default_rng(0), Geometry.uniform(8, 8)

    def noise(sentences: int) -> HeadScores:
        mass = random.random((sentences, 8, 8))
        return HeadScores(geometry, mass.mean(axis=0), "x", statistics={"mass": mass})

    biased, apart = [], []
    for _ in range(20):
        own, other = noise(50), noise(50)
        best = Choice(k=4).of(own.values.reshape(-1))
        sides = (one.statistics["mass"].reshape(-1, 64)[:, best] for one in (other, own))
        both = [counted(side.mean(axis=1)) for side in sides]
        biased.append(bootstrap_difference(*both, counted_mean).high < 0)
        found = links_agreement({"x": own}, {"y": {"x": other}}, 0.5, 4)["links"]["y"]
        apart.append(not found["difference"]["low"] <= 0 <= found["difference"]["high"])
    assert sum(biased) > 15, "where heads are chosen, other links lose"
    assert sum(apart) < 4, "on other sentences they do not"
    single = noise(1)
    found = links_agreement({"x": single}, {"y": {"x": single}}, 0.5, 4)["links"]["y"]
    assert found["difference"] is None


# Attention mass


def test_attention_mass_is_that_of_whole_matrices(tmp_path: Path) -> None:
    pairs = find_helpers.pairs("en-de", 4)
    lm, eager = find_helpers.wrapped("gemma2"), find_helpers.model("gemma2", "eager")
    found = attention_mass(lm, pairs, TranslationScore(batch_tokens=200))
    prompts = translation_prompts(pairs, TranslationScore().template)
    total = []
    for prompt, pair in zip(prompts, pairs.pairs, strict=True):
        full = prompt.with_target(pair.target)
        encoded = lm.tokenizer(full.text, return_offsets_mapping=True)
        with torch.no_grad():
            maps = eager(
                input_ids=torch.tensor([encoded["input_ids"]]), output_attentions=True
            ).attentions
        weights = torch.stack([one[0] for one in maps]).numpy()  # (L, H, T, T)
        mine = []
        for at, token in enumerate(encoded["offset_mapping"]):
            sources = {
                i for i, j in pair.links or ()
                if touches(full.text, token, word_span(pair.target, j, full.target_span[0]))
            }  # fmt: skip
            keys = [
                key for key, other in enumerate(encoded["offset_mapping"])
                if any(touches(full.text, other, word_span(pair.source, i, full.source_span[0]))
                       for i in sources)
            ]  # fmt: skip
            if keys:
                mine.append(weights[:, :, at - 1, keys].sum(axis=-1))
        total.append(np.mean(mine, axis=0))
    np.testing.assert_allclose(found.values, np.mean(total, axis=0), atol=1e-6)
    assert found.config["tokens"] > 0 and found.extra["chance"].shape == found.values.shape


def test_chance_is_kept_where_the_first_layer_has_no_heads() -> None:
    lm = find_helpers.wrapped("hybrid")
    assert not lm.geometry.mask()[0].any()
    found = attention_mass(lm, find_helpers.pairs("en-de", 6), TranslationScore())
    every = found.statistics["chance"]
    for layer, head in product(*map(range, lm.geometry.shape)):
        values = [one for one in every[:, layer, head] if not np.isnan(one)]
        if lm.geometry.mask()[layer, head]:
            assert found.extra["chance"][layer, head] == pytest.approx(fmean(values))
        else:
            assert not values and np.isnan(found.extra["chance"][layer, head])
    assert found.chance_known


def word_span(text: str, number: int, shift: int) -> tuple[int, int]:
    start = 0
    for at, word in enumerate(text.split()):
        start = text.index(word, start)
        if at == number:
            break
        start += len(word)
    return start + shift, start + len(word) + shift


def touches(text: str, token: tuple[int, int], word: tuple[int, int]) -> bool:
    begin = token[0] + len(text[slice(*token)]) - len(text[slice(*token)].lstrip())
    return begin < word[1] and token[1] > word[0] and begin < token[1]


def test_attention_mass_is_of_references_alone() -> None:
    lm, pairs = find_helpers.wrapped("pocket-like"), find_helpers.pairs("en-de", 2)
    with pytest.raises(InputError, match="reference"):
        attention_mass(lm, pairs, TranslationScore(decode="greedy"))


def test_mass_and_peaks_are_told_as_stored(ran: tuple[Path, dict[str, Any]]) -> None:
    peaks, masses = (read_scores(ran[0] / "run/runs" / name)["mean"] for name in ("links", "mass"))
    best = set(peaks.top("15%", "score")) | set(masses.top("15%", "score"))
    shown = cells(ran, "mass")
    assert set(shown) == {str(head) for head in best}
    for head in best:
        assert values(shown[str(head)])[:2] == [peaks[head], masses[head]]
    found = scores_agreement({"x": peaks_of(peaks)}, {"x": masses}, "15%")
    assert found["shared"] == len(set(peaks.top("15%", "score")) & set(masses.top("15%", "score")))


def peaks_of(scores: HeadScores) -> HeadScores:
    """The same with sentences, which a mean over directions has not."""
    return replace(scores, statistics={"mass": scores.values[None]})


# Single removal


def test_correlations_are_those_of_the_run_and_corrected_by_holm(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    stored = [
        one
        for one in result(ran[0], "single")["correlations"]
        if one["with"] in ("translation_score", "translation_score_above_chance", "attention_mass")
    ]
    rows = list(cells(ran, "single").values())
    assert len(rows) == len(stored) == 6
    for row, one in zip(rows, stored, strict=True):
        assert values(row)[:2] == [one["all"]["value"], one["within_layers"]["value"]]
    corrected = holm([one["p_within_layers"] for one in stored])
    assert [p_of(row[3]) for row in rows] == pytest.approx(corrected, abs=0.001)


# Pairs of heads


def test_interactions_are_those_of_the_stored_losses(ran: tuple[Path, dict[str, Any]]) -> None:
    stored, nll = result(ran[0], "pairs"), losses(ran[0], "pairs")
    place = {frozenset(one): at for at, one in enumerate(stored["sets"])}

    def each(*heads: str) -> list[Any]:
        """Harm of every sentence, by direction."""
        return [part[place[frozenset(heads)]] - part[0] for part in nll]

    def extra(pair: list[str]) -> list[Any]:
        parts = zip(each(*pair), each(pair[0]), each(pair[1]), strict=True)
        return [both - one - other for both, one, other in parts]

    def mean(parts: list[Any]) -> float:
        return fmean(float(part.mean()) for part in parts)

    beside = [mean(extra(one["heads"])) for one in stored["random"]]
    assert beside == pytest.approx([one["interaction"] for one in stored["random"]])
    assert len({frozenset(one["heads"]) for one in stored["random"]}) == 6
    assert not {h for one in stored["random"] for h in one["heads"]} & set(stored["heads"])
    shown = cells(ran, "pairs")
    assert len(shown) == len(stored["pairs"]) == 3
    for one in stored["pairs"]:
        own = extra(one["heads"])
        row = shown[" and ".join(one["heads"])]
        harms = [mean(each(head)) for head in one["heads"]]
        assert values(row)[:4] == pytest.approx([*harms, mean(each(*one["heads"])), mean(own)])
        assert one["p_draws"] == pytest.approx(
            (1 + sum(abs(other) >= abs(mean(own)) for other in beside)) / 7
        )
    chosen = [mean(extra(one["heads"])) for one in stored["pairs"]]
    assert stored["difference"]["value"] == pytest.approx(fmean(chosen) - fmean(beside))
    corrected = holm([one["p_sentences"] for one in stored["pairs"]])
    assert [one["p_holm"] for one in stored["pairs"]] == corrected


def test_interactions_of_crafted_losses() -> None:
    """Two heads that stand in for each other, and two of which one is enough to lose it all."""
    sets = [[], ["0.0"], ["0.1"], ["0.2"], ["0.0", "0.1"], ["0.0", "0.2"], ["0.1", "0.2"]]
    signs = np.array([1.0, 1, 1, 1, 1, 1, -1, 1, 1, 1])
    nll = np.ones((7, 10))
    nll[1:4] += 0.1
    nll[4] += 0.2 + 0.5 * signs
    nll[5] += 0.1
    nll[6] += 0.2
    one = ReferenceLosses(np.stack([nll * 4, nll * 0, nll * 0], axis=2), np.array([[4, 0, 0]] * 10))
    found = interactions({"en-de": one}, sets, [["0.0", "0.1"], ["0.0", "0.2"]], [["0.1", "0.2"]])
    more, less = found["pairs"]
    assert more["interaction"]["value"] == pytest.approx(0.4)
    assert less["interaction"]["value"] == pytest.approx(-0.1)
    assert less["harms"] == pytest.approx([0.1, 0.1])
    # Of all 1,024 choices of signs those that come as far from 0 as one of ten.
    exact = fmean(abs(sum(s)) >= 8 for s in product((1, -1), repeat=10))
    assert more["p_sentences"] == pytest.approx(exact, abs=0.01)
    assert less["p_sentences"] == pytest.approx(2 / 1024, abs=0.002)
    assert [one["p_draws"] for one in (more, less)] == [0.5, 0.5]
    assert found["least_p"] == least_p(1)


def test_pairs_are_every_two_heads_and_random_ones_outside() -> None:
    geometry = Geometry.uniform(2, 4)
    heads = HeadSet(geometry, (Head(1, 0), Head(0, 2), Head(0, 0)))
    aligned = heads | HeadSet(geometry, (Head(1, 1),))
    chosen, random = pairs_of(heads, 99, 0, aligned)
    assert chosen == list(combinations(heads.heads, 2))
    outside = set(geometry.heads()) - set(aligned)
    assert {frozenset(one) for one in random} == {frozenset(p) for p in combinations(outside, 2)}
    planned = planned_pairs(heads, [*chosen, *random])
    assert len({one.key for one in planned}) == len(planned) == 1 + 7 + 3 + 6
    with pytest.raises(InputError, match="no pair"):
        pairs_of(HeadSet(geometry, (Head(1, 0),)), 9)


# Copying


def test_the_loss_of_a_copy_is_that_of_the_source_as_answer(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    folder, _ = ran
    lm, stored = load(str(folder / "model")), result(folder, "copy-loss")
    kept = load_file(folder / "run/runs/copy-loss/statistics.safetensors")
    tops = [one for one in stored["conditions"] if one["kind"] == "top"]
    for heads, means in (([], stored["baseline"]), (tops[0]["heads"], tops[0])):
        gate = torch.ones(lm.geometry.shape)
        for head in heads:
            gate[tuple(map(int, head.split(".")))] = 0
        model, found = folded(lm, gate), {"copy": [], "reference": []}
        for way in WAYS:
            file = folder / f"run/runs/sentences/devtest/{way}.tsv"
            pairs = read_pairs(PairSource(str(file), way))
            for name in found:
                prompts = translation_prompts(pairs, TranslationScore().template)
                rows = [replace(p, target=p.source) for p in pairs.pairs]
                told = rows if name == "copy" else pairs.pairs
                each = [
                    fmean(every(of_sentence(lm, model, prompt, replace(pair, links=None))))
                    for prompt, pair in zip(prompts, told, strict=True)
                ]
                found[name].append(fmean(each))
        wanted = {name: fmean(parts) for name, parts in found.items()}
        wanted["preference"] = wanted["copy"] - wanted["reference"]
        for name, value in wanted.items():
            assert means[name] == pytest.approx(value, abs=1e-4)
    for test in stored["tests"]:
        places = {
            kind: [n for n, one in enumerate(stored["conditions"], 1)
                   if (one["kind"], one["k"]) == (kind, test["k"])]
            for kind in ("top", "random")
        }  # fmt: skip
        for name, low in (("copy", False), ("reference", False), ("preference", True)):
            parts = {
                "copy": [kept[f"{way} copy.nll"] for way in WAYS],
                "reference": [kept[f"{way}.nll"] for way in WAYS],
                "preference": [kept[f"{way} copy.nll"] - kept[f"{way}.nll"] for way in WAYS],
            }[name]
            means = np.mean([part.mean(axis=1) for part in parts], axis=0)
            own, drawn = means[places["top"][0]], means[places["random"]]
            row = cells(ran, "copying")[f"{name}, best {test['k']}"]
            assert values(row)[:4] == pytest.approx(
                [means[0], own, drawn.mean(), own - drawn.mean()]
            )
            worse = (drawn <= own if low else drawn >= own).sum()
            assert p_of(row[4]) == pytest.approx((1 + worse) / 7)


def every(kinds: list[list[float]]) -> list[float]:
    """The losses of all tokens, whatever their kind."""
    return [loss for kind in kinds for loss in kind]


def test_copies_written_are_counted_again_from_the_outputs(
    ran: tuple[Path, dict[str, Any]],
) -> None:
    # Outputs hold line separators of Unicode, at which JSON Lines do not break.
    lines = (ran[0] / "run/runs/copies/outputs.jsonl").read_text("utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    counted = naive(rows)["mean"]
    sizes = [one["k"] for one in result(ran[0], "copy-loss")["tests"]]
    for k in sizes:
        row = values(cells(ran, "copying")[f"copies written, best {k}"])
        drawn = [one["source_copy"] for label, one in counted.items()
                 if (label[0], label[1]) == ("random", k)]  # fmt: skip
        assert len(drawn) == 3
        top = counted["top", k, 0.0, None]["source_copy"]
        base = counted["baseline", 0, 1.0, None]["source_copy"]
        assert row[:4] == pytest.approx([base, top, fmean(drawn), top - fmean(drawn)])


def test_copies_are_compared_with_different_draws_of_the_same_ablation(tmp_path: Path) -> None:
    """A run of two ablations, from before draws were all different."""
    rows = [
        {"kind": kind, "k": 1, "gate": 0.0, "draw": draw, "ablate": ablate, "heads": [heads]}
        for ablate in ("zero", "mean")
        for kind, draw, heads in (
            ("top", None, "0.0"), ("random", 0, "0.1"), ("random", 1, "0.2"), ("random", 2, "0.1")
        )
    ]  # fmt: skip
    copied = [[0, 0], [1, 0], [0, 0], [1, 1], [0, 0], [1, 1], [1, 1], [1, 1], [1, 1]]
    (tmp_path / "result.json").write_text(
        json.dumps({"directions": {"en-de": {}}, "conditions": rows})
    )
    save_file(
        {"en-de.source_copy": np.array(copied, np.uint8)}, tmp_path / "statistics.safetensors"
    )
    zero, mean = copies_written(tmp_path)
    assert (zero["as_is"], zero["without"], zero["random"]) == (0, 0.5, pytest.approx(1 / 3))
    assert zero["against_random"]["value"] == pytest.approx(0.5 - 1 / 3)
    # Of two different sets one copies as much.
    assert zero["against_random"]["p_draws"] == pytest.approx(2 / 3)
    assert zero["against_random"]["least_p"] == pytest.approx(1 / 3)
    assert (mean["without"], mean["random"], mean["against_random"]["p_draws"]) == (1, 1, 1)


# The room


def test_it_stands_beside_the_papers_and_all_leaves_it_out(tmp_path: Path) -> None:
    assert "beside" not in registry.PAPERS and registry.paper_named("beside") is PAPER
    rows = listing(Reproduce("beside"))
    assert [row["name"] for row in rows] == [one.name for one in PAPER.experiments]
    assert all(row["runs"] and not row["missing"] for row in rows)
    assert {row["paper"] for row in listing(Reproduce("all"))} == set(registry.PAPERS)
    large = Setting(ModelChoice("org/m"), Geometry.uniform(32, 32), "", PaperData(), tmp_path)
    assert all(isinstance(one.steps(large), Missing) for one in PAPER.experiments)


def test_a_second_call_runs_nothing_again(ran: tuple[Path, dict[str, Any]]) -> None:
    folder, first = ran
    markers = {p: p.stat().st_mtime_ns for p in (folder / "run/runs").glob("*/DONE.json")}
    assert len(markers) == 8
    data_ = PaperData(tuple(f"{way}={folder / f'{way}.tsv'}" for way in WAYS))
    again = reproduce(
        Reproduce("beside", ModelChoice(str(folder / "model")), data_,
                  llm=LlmAligner("some-model")), folder / "run",
    )  # fmt: skip
    assert {p: p.stat().st_mtime_ns for p in markers} == markers
    assert again["experiments"] == first["experiments"]
