"""Masks compared, and importance with and without an instruction."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from small_models import ARCHITECTURES

from headscope.compare.masks_similarity import against, dropped_groups, kept_in_groups, read_masks
from headscope.compare.overlap_agreement import importance_agreement
from headscope.data.pairs import PairSource, read_pairs
from headscope.errors import InputError
from headscope.find.lahis_scores import importance
from headscope.heads import Geometry, Head, HeadScores, HeadSet
from headscope.lm.geometry import key_value_heads
from headscope.runs import file_digest
from headscope.shown.blocks import Table
from headscope.studies.compare.masks import CompareMasks, _show, compare_masks
from headscope.studies.compare.overlap import CompareImportance, compare_importance
from headscope.studies.use.steering import write_astray
from headscope.studies.verify.perplexity import paired_loss
from lm_helpers import wrapped
from mask_helpers import all_but, random_weights, write_mask_run

SMALL = Geometry.uniform(4, 4)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_key_heads_are_those_of_the_configuration(name: str) -> None:
    lm = wrapped(name)
    groups = key_value_heads(lm)
    for layer, heads in enumerate(lm.geometry.counts):
        config = lm.model.config
        if name == "gemma4":  # its layers differ
            config = config.per_layer_config[layer]
        wanted = getattr(config, "num_kv_heads", None) or getattr(
            config, "num_key_value_heads", None
        )
        assert groups[layer] == (0 if not heads else wanted or heads)


@st.composite
def masks(draw: st.DrawFn) -> tuple[HeadSet, tuple[int, ...]]:
    """A mask over a tiny model whose layers may have different heads and groups."""
    shapes = draw(
        st.lists(
            st.sampled_from([(2, 1), (4, 2), (3, 3), (4, 1), (0, 0), (2, 2)]),
            min_size=1,
            max_size=3,
        ).filter(lambda rows: any(heads for heads, _ in rows))
    )
    geometry = Geometry(tuple(heads for heads, _ in shapes))
    heads = list(geometry.heads())
    kept = draw(st.lists(st.sampled_from(heads), unique=True))
    return HeadSet(geometry, tuple(kept)), tuple(groups for _, groups in shapes)


def naive_dropped(kept: set[Head], geometry: Geometry, groups: tuple[int, ...]) -> int:
    found = 0
    for layer, (heads, several) in enumerate(zip(geometry.counts, groups, strict=True)):
        for group in range(several):
            size = heads // several
            members = {Head(layer, group * size + n) for n in range(size)}
            found += not (members & kept)
    return found


@given(masks())
def test_chance_of_dropped_groups_is_that_of_all_masks(
    case: tuple[HeadSet, tuple[int, ...]],
) -> None:
    mask, groups = case
    geometry = mask.geometry
    found = dropped_groups(mask, groups)
    own = naive_dropped(set(mask), geometry, groups)
    assert found.dropped == own
    assert found.groups == sum(groups)
    heads = list(geometry.heads())
    every = [naive_dropped(set(some), geometry, groups) for some in combinations(heads, len(mask))]
    assert found.expected == pytest.approx(sum(every) / len(every))
    assert found.p_value == pytest.approx(sum(n >= own for n in every) / len(every))
    wanted = [sum(head.layer == layer for head in mask) for layer in range(geometry.layers)]
    alike = [
        naive_dropped(set(some), geometry, groups)
        for some in combinations(heads, len(mask))
        if [sum(head.layer == layer for head in some) for layer in range(geometry.layers)] == wanted
    ]
    assert found.expected_by_layer == pytest.approx(sum(alike) / len(alike))


def test_kept_heads_are_counted_in_their_groups() -> None:
    mask = HeadSet.parse("0.0,0.1,1.3,3.2,3.3", SMALL)
    assert kept_in_groups(mask, (2, 2, 4, 1)) == ((2, 0), (0, 1), (0, 0, 0, 0), (2,))
    found = dropped_groups(mask, (2, 2, 4, 1))
    assert (found.groups, found.dropped, found.kept) == (9, 6, 1)


@pytest.mark.parametrize("groups", [(2, 2, 2), (3, 3, 3, 3), (2, 2, 2, 0), (2, 2, 2, 2, 2)])
def test_groups_of_another_model_are_refused(groups: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="do not belong"):
        dropped_groups(HeadSet.parse("0.0", SMALL), groups)


def test_masks_are_read_as_they_were_left(tmp_path: Path) -> None:
    weights = all_but(SMALL, [Head(1, 1), Head(0, 2)])
    write_mask_run(tmp_path / "a", SMALL, weights, "en-de", key_heads=[2] * 4)
    write_mask_run(tmp_path / "b", SMALL, weights, "de-en", start="negative")
    one, other = read_masks([str(tmp_path / "a"), str(tmp_path / "b")])
    assert (one.name, one.task, one.start, one.key_heads) == (
        "en-de",
        "en-de",
        "positive",
        (2,) * 4,
    )
    assert (other.name, other.start, other.key_heads) == ("de-en", "negative", None)
    assert set(one.heads.complement()) == {Head(1, 1), Head(0, 2)}
    assert one.open[1, 1] == pytest.approx(1 / (1 + math.exp(100)))
    assert ((one.open >= 0.5) == one.heads.mask()).all()


def test_what_is_no_mask_is_refused(tmp_path: Path) -> None:
    mask = write_mask_run(tmp_path / "a", SMALL, random_weights(SMALL))
    HeadSet.parse("0.0", SMALL).save_pretrained(tmp_path / "set")
    with pytest.raises(InputError, match="no learned mask"):
        read_masks([str(mask), str(tmp_path / "set")])
    (mask / "DONE.json").unlink()
    with pytest.raises(InputError, match="not finished"):
        read_masks([str(mask)])


def runs(folder: Path, tasks: list[str], base: bool = False) -> list[str]:
    shared = random_weights(SMALL, 99, 1.0)
    places = []
    for number, task in enumerate(tasks):
        name = f"base-{task}" if base else task
        own = random_weights(SMALL, number + 50 * base, 1.0)
        write_mask_run(folder / name, SMALL, shared + 0.5 * own, task, key_heads=[2] * 4)
        places.append(str(folder / name))
    return places


def test_a_base_is_the_reference_of_its_task(tmp_path: Path) -> None:
    own = read_masks(runs(tmp_path, ["en-de", "de-en"]))
    base = read_masks(runs(tmp_path, ["de-en", "en-de"], base=True))
    rows = against(own, base)
    for mask, reference, pair in rows:
        assert mask.task == reference.task
        both = len(mask.heads & reference.heads)
        size_a, size_b = len(mask.heads), len(reference.heads)
        assert pair.recall == both / size_b
        assert pair.jaccard == pytest.approx(both / (size_a + size_b - both))
        e = size_a * size_b / 16  # equation 4 of the paper
        assert pair.expected == pytest.approx(e / (size_a + size_b - e))
    assert [reference.name for _, reference, _ in against(own, base[:1])] == ["de-en"] * 2
    with pytest.raises(InputError, match="no --base runs"):
        against(own, [base[0], base[0]])


def test_the_comparison_holds_what_it_says(tmp_path: Path) -> None:
    own = runs(tmp_path, ["en-de", "de-en", "en-tr"])
    base = runs(tmp_path, ["en-de", "de-en", "en-tr"], base=True)
    result = compare_masks(CompareMasks(tuple(own), tuple(base)), tmp_path / "out")
    assert [mask.name for mask in result.masks] == [
        "en-de", "de-en", "en-tr", "en-de (base)", "de-en (base)", "en-tr (base)",
    ]  # fmt: skip
    assert result.base is not None
    assert len(result.pairs) == len(result.base.pairs) == 3
    first = result.masks[0]
    assert sum(row.kept for row in first.layers) == first.selected
    assert np.array(result.maps["en-de"]).shape == (4, 4)
    kept = sum(row.masks for row in result.kept_by)
    assert kept == sum(mask.selected for mask in result.own)
    assert first.groups is not None and first.groups.groups == 8
    for pair, other in zip(result.removed, result.pairs, strict=True):
        dropped = [
            {place for place in np.ndindex(4, 4) if result.maps[name][place[0]][place[1]] < 0.5}
            for name in (pair.a, pair.b)
        ]
        assert pair.jaccard == len(dropped[0] & dropped[1]) / len(dropped[0] | dropped[1])
        assert pair.p_value == pytest.approx(other.p_value)  # the same event
    assert compare_masks(CompareMasks(tuple(own), tuple(base)), tmp_path / "out") == result
    shown = _show(result, tmp_path / "out")
    (masks,), (bases,) = (section.blocks for section in shown.sections[:2])
    assert isinstance(masks, Table) and isinstance(bases, Table)
    assert [row.cells[0].value for row in masks.rows] == [mask.selected for mask in result.masks]
    assert bases.rows[0].cells[3].value == result.base.pairs[0].jaccard


def test_masks_of_two_models_do_not_mix(tmp_path: Path) -> None:
    one = write_mask_run(tmp_path / "a", SMALL, random_weights(SMALL))
    large = Geometry.uniform(4, 8)
    other = write_mask_run(tmp_path / "b", large, random_weights(large))
    with pytest.raises(InputError, match="one geometry"):
        compare_masks(CompareMasks((str(one), str(other))))
    with pytest.raises(InputError, match="only one mask"):
        compare_masks(CompareMasks((str(one),)))


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
    rows = [("", "original"), ("de", "selected")]
    lines = [json.dumps({"of": of, "kind": kind}) for of, kind in rows]
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
    # Every document loses one nat a token more: no resample tells how far that may vary.
    assert found == {"value": pytest.approx(1), "low": None, "high": None}
    assert paired_loss(one, other, "en") is None
    with pytest.raises(InputError, match="read other documents"):
        paired_loss(one, read_run(tmp_path / "third", [[0, 0, 0], [1, 2, 3]], "b"), "de")


def test_the_run_compares_every_language_and_goes_by_the_runs_it_read(tmp_path: Path) -> None:
    def finish(folder: Path, result: dict[str, Any]) -> Path:
        (folder / "result.json").write_text(json.dumps(result))
        done = {"format": 2, "result": file_digest(folder / "result.json")}
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
