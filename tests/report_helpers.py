"""An atlas run folder with made-up numbers that look like those of a small multilingual model."""

from __future__ import annotations

import re
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from headscope.heads import Geometry, Head, HeadScores
from headscope.runs import open_run
from headscope.shown.blocks import Cell, Shown, Table

LANGUAGES = ("en", "de", "es", "ru", "tr")
DIRECTIONS = tuple(f"{a}-{b}" for a in LANGUAGES for b in LANGUAGES if a != b)
GEOMETRY = Geometry.uniform(6, 16)
K = 14
DRAWS = 3
CLASSES = ("token_alignment", "low_activity", "inactive")
SENTENCES = {
    "en": ("The old teacher sees three small birds.", "Mira did not open the red door."),
    "de": ("Die alte Lehrerin sieht drei kleine Vögel.", "Mira öffnete die rote Tür nicht."),
    "es": ("La vieja maestra ve tres pájaros pequeños.", "Mira no abrió la puerta roja."),
    "ru": ("Старая учительница видит трёх маленьких птиц.", "Мира не открыла красную дверь."),
    "tr": ("Yaşlı öğretmen üç küçük kuş görüyor.", "Mira kırmızı kapıyı açmadı."),
}


def write_atlas(
    path: Path,
    directions: tuple[str, ...] = DIRECTIONS,
    geometry: Geometry = GEOMETRY,
    text: str = "",
    sentences: int = 24,
    removal: bool = True,
    finish: bool = True,
    top_chrf: float | None = None,
    model: dict[str, Any] | None = None,
    links: bool = True,
) -> Path:
    """Write a finished atlas run; `text` is put into every name and sentence."""
    rng = np.random.default_rng(5)
    scores = _scores(directions, geometry, rng)
    mean = HeadScores.mean(scores)
    names = {f"scores/{name}": part for name, part in {**scores, "mean": mean}.items()}
    config = {"pairs": list(directions), "k": K, "draws": DRAWS, "threshold": 0.1, "note": text}
    digest = "sha256:" + "5e" * 32
    provenance = {"model": "pocket" + text, "revision": None, "dtype": "float32", "device": "cpu"}
    with open_run(path, "atlas", config, {"model": digest}, provenance=provenance) as run:
        for folder, part in names.items():
            part.save_pretrained(path / folder)
        result = _result(run.signature, path, scores, mean, config, text, rng, removal, top_chrf)
        result["model"] |= model or {}
        if removal:
            rows = _outputs(directions, sentences, text, rng)
            run.write_jsonl("outputs.jsonl", rows)
            if links:
                run.write_jsonl("links.jsonl", links_of(rows))
                result["removal"]["links"] = {"method": "reference"}
        if finish:
            run.finish(result)
    return path


def _scores(
    directions: tuple[str, ...], geometry: Geometry, rng: np.random.Generator
) -> dict[str, HeadScores]:
    layers, width = geometry.shape
    depth = np.exp(-0.5 * ((np.arange(layers) - 0.55 * layers) / (0.18 * layers)) ** 2)
    talent = depth[:, None] * rng.beta(0.35, 1.6, (layers, width))
    position = rng.beta(0.5, 7.0, (layers, width))
    made = {}
    for name in directions:
        chance = np.clip(position * rng.uniform(0.7, 1.1, position.shape), 0, 0.5)
        values = np.clip(talent * rng.uniform(0.75, 1.15, talent.shape) + 0.8 * chance, 0, 0.97)
        values[values < 0.004] = 0.0
        spread = 0.06 * np.sqrt(values * (1 - values))
        identical = np.clip(values * rng.uniform(0.8, 1.6, values.shape), 0, 1)
        if name.endswith("ru"):
            identical[:] = np.nan
        made[name] = HeadScores(
            geometry,
            values,
            "translation-score",
            low=np.clip(values - spread, 0, 1),
            high=np.clip(values + spread, 0, 1),
            extra={
                "chance": chance,
                "identical": identical,
                "different": np.clip(values * rng.uniform(0.85, 1.0, values.shape), 0, 1),
            },
            signature="made-up",
        )
    return made


def _counts(scores: HeadScores) -> dict[str, Any]:
    return {
        **scores.ranking(),
        "counted_over": scores.counted_over,
        "counts": scores.classes(0.1),
        "counts_above_chance": scores.classes_above_chance(0.1),
        "layer_profile": [vars(layer) for layer in scores.layer_profile(0.1)],
        "heads": scores.records(),
    }


def _result(
    signature: str,
    path: Path,
    scores: dict[str, HeadScores],
    mean: HeadScores,
    config: dict[str, Any],
    text: str,
    rng: np.random.Generator,
    removal: bool,
    top_chrf: float | None,
) -> dict[str, Any]:
    geometry, digest = mean.geometry, "5e" * 32
    k = min(K, geometry.total // 2)
    result: dict[str, Any] = {
        "signature": signature,
        "run": str(path) + text,
        "seconds": 183.25,
        "model": {
            "name": "pocket" + text,
            "revision": None,
            "digest": digest,
            "parameters": 2_713_344,
            "dtype": "float32",
            "device": "cpu",
            "geometry": {"counts": list(geometry.counts)},
            "architecture": "Qwen3ForCausalLM",
        },
        "config": config,
        "data": {
            name: {
                "path": f"world/{name}.tsv{text}",
                "digest": digest,
                "found_on": 200,
                "verified_on": 100,
                "units": "words",
                "aligner": "given",
                "links_digest": digest,
            }
            for name in scores
        },
        **_counts(mean),
        "directions": {
            name: {**_counts(part), "examples": 200, "left_out": 0, "tokens": 2100}
            for name, part in scores.items()
        },
        "overlap": {
            "k": k,
            "pairs": [_pair(a, b, scores, k) for a, b in combinations(scores, 2)],
        },
        "removal": None,
    }
    if removal:
        result["removal"] = _removal(scores, mean, k, rng, top_chrf)
    return result


def _pair(a: str, b: str, scores: dict[str, HeadScores], k: int) -> dict[str, Any]:
    total = scores[a].geometry.total
    one, other = set(scores[a].top(k)), set(scores[b].top(k))
    shared = len(one & other)

    def chance(x: int) -> float:
        return comb(k, x) * comb(total - k, k - x) / comb(total, k)

    expected = k * k / total
    relation = "opposite" if a.split("-") == b.split("-")[::-1] else "other"
    return {
        "a": a,
        "b": b,
        "intersection": shared,
        "size_a": k,
        "size_b": k,
        "recall": shared / k,
        "conditional": {"given_a": shared / k, "given_b": shared / k},
        "rank_correlation": None,
        "relation": relation,
        "jaccard": shared / (2 * k - shared),
        "expected": expected / (2 * k - expected),
        "expected_exact": sum(chance(x) * x / (2 * k - x) for x in range(k + 1)),
        "p_value": sum(chance(x) for x in range(shared, k + 1)),
    }


def _removal(
    scores: dict[str, HeadScores],
    mean: HeadScores,
    k: int,
    rng: np.random.Generator,
    top_chrf: float | None,
) -> dict[str, Any]:
    heads = [str(head) for head in mean.top(k)]
    others = [str(head) for head in mean.geometry.heads() if str(head) not in heads]
    random = [[str(h) for h in rng.choice(others, k, replace=False)] for _ in range(DRAWS)]
    random = [[str(h) for h in sorted(map(Head.parse, draw))] for draw in random]
    directions = {}
    for name in scores:
        baseline = float(rng.uniform(80, 93))
        top = float(rng.uniform(12, 30)) if top_chrf is None else top_chrf
        directions[name] = {
            "baseline": {"chrf": baseline},
            "conditions": [
                {"kind": "top", "k": k, "gate": 0.0, "draw": None, "chrf": top},
                *(
                    {"kind": "random", "k": k, "gate": 0.0, "draw": d, "chrf": chrf}
                    for d, chrf in enumerate(baseline - rng.uniform(1, 30, DRAWS))
                ),
            ],
            "sentences": 100,
        }
    parts = list(directions.values())
    columns = zip(*(part["conditions"] for part in parts), strict=True)
    conditions = [
        {**column[0], "chrf": float(np.mean([cell["chrf"] for cell in column]))}
        for column in columns
    ]
    return {
        "k": k,
        "draws": DRAWS,
        "heads": heads,
        "random": random,
        "baseline": {"chrf": float(np.mean([part["baseline"]["chrf"] for part in parts]))},
        "top": {"chrf": conditions[0]["chrf"]},
        "random_mean": {"chrf": float(np.mean([c["chrf"] for c in conditions[1:]]))},
        "conditions": conditions,
        "directions": directions,
    }


def _outputs(
    directions: tuple[str, ...], sentences: int, text: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    rows = []
    for direction in directions:
        source, target = direction.split("-")[:2]
        for number in range(sentences):
            pick = number % 2
            reference = SENTENCES[target][pick]
            words = reference.split()
            broken = " ".join(rng.permutation(words)[: max(1, number % 5)])
            known = {
                "direction": direction,
                "id": f"{direction}-{number}{text}",
                "source": SENTENCES[source][pick] + text,
                "reference": reference + text,
            }
            top = ("" if number == 3 else reference if number % 6 == 0 else broken) + text
            outputs = [("baseline", None, reference + text), ("top", None, top)]
            outputs += [("random", draw, reference + text) for draw in range(DRAWS)]
            rows += [
                {**known, "condition": kind, "draw": draw, "output": output}
                for kind, draw, output in outputs
            ]
    return rows


def write_scores(path: Path, directions: tuple[str, ...] = DIRECTIONS) -> Path:
    """Write a finished run of `find translation-score`."""
    scores = _scores(directions, GEOMETRY, np.random.default_rng(5))
    mean = HeadScores.mean(scores)
    settings = {"settings": {"threshold": 0.1}}
    provenance = {"model": "pocket", "weights": "5e" * 32, "dtype": "float32"}
    with open_run(path, "find translation-score", settings, {}, provenance=provenance) as run:
        for name, part in {**scores, "mean": mean}.items():
            part.save_pretrained(path / "scores" / name)
        entry = {"examples": 200, "left_out": 0, "units": "words", "aligner": "given"}
        parts = {name: {**_counts(part), **entry} for name, part in scores.items()}
        about = {"signature": run.signature, "run": str(path), "seconds": 4.5}
        run.finish({**about, **_counts(mean), "directions": parts})
    return path


def links_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Links of the first words, one to one, of every shown output and of the reference."""
    made = []
    for row in rows:
        texts = {row["condition"]: row["output"]}
        if row["condition"] == "baseline":
            texts["reference"] = row["reference"]
        for condition, text in texts.items():
            if row["draw"] in (None, 0):
                source, output = word_spans(row["source"]), word_spans(text)
                made.append(
                    {
                        "direction": row["direction"],
                        "id": row["id"],
                        "condition": condition,
                        "source_spans": source,
                        "output_spans": output,
                        "links": [[i, i] for i in range(min(len(source), len(output), 4))],
                    }
                )
    return made


def word_spans(text: str) -> list[list[int]]:
    """Where words are, cut at white space."""
    return [list(match.span()) for match in re.finditer(r"\S+", text)]


def blocks_of(shown: Shown, kind: Any, title: str = "") -> list[Any]:
    """The blocks of one kind in all sections, or those with this title."""
    found = [block for part in shown.sections for block in part.blocks if isinstance(block, kind)]
    return [block for block in found if not title or block.title == title]


def rows_of(shown: Shown, title: str) -> dict[str, dict[str, Cell]]:
    """The cells of a table by row and column."""
    *_, table = blocks_of(shown, Table, title)
    return {row.name: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}
