"""Heads and scores that others published, and ours in their formats: no model is needed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from headscope.errors import InputError, caution, naming
from headscope.estimates import Floats
from headscope.heads.files import (
    ABOUT,
    ALIGNATT,
    ALIGNMENT,
    CHANCE,
    MATRIX,
    RANKED,
    SCORE_NAME,
    HeadsFile,
)
from headscope.heads.geometry import Geometry, GroupedGeometry, Head, check_geometry, count_of
from headscope.heads.scores import TRANSLATION_SCORE, HeadScores, Rank
from headscope.heads.sets import HeadSet
from headscope.heads.store import Origin
from headscope.options import Amount

#: Formats that heads are written in; all but the first two are read by other tools.
Format = Literal["csv", "json", "retrieval", "yaml", "duo-attention", "alignatt"]
#: The format of scores of key-value heads.
DUO_ATTENTION = "duo-attention"
#: Formats whose order is that of the file, and which do not say what found the heads.
_OWN = ("csv", "json")
#: Scores of a format that has no place for their name.
UNNAMED = "scores of a file"
#: Scores that others measure as a method here does: their name, and the method.
KNOWN_SCORES = {
    "paper_translation_score_argmax": TRANSLATION_SCORE,
    TRANSLATION_SCORE: TRANSLATION_SCORE,
}
#: Formats in which others keep other scores than those they were made for, as `--to` does.
_NAMELESS = ("retrieval", DUO_ATTENTION)
#: Two scores of one head differ by more than rounding above this share of the largest score.
_ROUNDED = 5e-4


def geometry_of(file: HeadsFile) -> Geometry | None:
    """The geometry that a file names, or that scores of all heads tell; None of anything else.

    Where no matrix and no sizes are named, scores are those of all heads if they fill layers ×
    heads from 0.0 on without a gap, more than one of each, and no other list of the file has heads
    beyond: the largest index of a list says nothing of the heads that it leaves out.
    """
    if file.format == DUO_ATTENTION or not file.scored:
        return None
    lists = [file.heads(), *(listed.heads() for listed in _lists(file).values())]
    if file.counts:
        return Geometry(file.counts)
    layers, width = file.sizes
    if layers and width:
        return Geometry.uniform(layers, width)
    every = {head for heads in lists for head in heads}
    down, across = 1 + max(head.layer for head in every), 1 + max(head.head for head in every)
    filled = min(down, across) > 1 and down * across == max(map(len, lists))
    named = layers in (None, down) and width in (None, across)
    return Geometry.uniform(down, across) if filled and named else None


def _lists(file: HeadsFile) -> dict[str, HeadsFile]:
    """The lists of a file that are not empty, by name, each as a file of its own."""
    return {name: replace(file, entries=entries) for name, entries in file.lists.items() if entries}


def unknown_geometry(place: str, key_value: bool = False) -> InputError:
    """The error for heads, or scores of key-value heads, of a model of unknown size."""
    why = (
        "scores of key-value heads do not say how many query heads share each"
        if key_value
        else "a list of heads does not say how many heads its model has, and the largest index + 1 "
        "would give a wrong chance"
    )
    return InputError(
        f"{place}: {why}; name a run or scores of all heads of that model beside it, or give "
        "--geometry LAYERSxHEADS"
    )


def heads_of(
    file: HeadsFile, known: Geometry | GroupedGeometry | None = None
) -> HeadScores | HeadSet:
    """The scores in a file, if it has one for every head of the model, else its heads as a set.

    Scores of some heads are a set with the highest first; `csv`, `json` and `alignatt` keep their
    order. The method is what the file calls its scores, or a method here that is the same
    (`KNOWN_SCORES`). Of scores that are means of several `extra["measured"]` says how many. Scores
    of key-value heads are those of each query head that shares one, which a `Caution` says, as it
    does of lists beside a matrix that begin otherwise, and where nothing tells whether high scores
    of an unknown name are the best. InputError for a file of another model than `known`, one that
    does not say how many heads there are, lists with other scores than their matrix or one
    another, and scores of an unknown name of which the lowest are listed as the best.
    """
    said = geometry_of(file)
    known = known or said
    if known is None:
        raise unknown_geometry(file.place, file.format == DUO_ATTENTION)
    grouped = known if isinstance(known, GroupedGeometry) else GroupedGeometry(known)
    if file.format == DUO_ATTENTION:
        return _widened(file, grouped)
    geometry = grouped.geometry
    named = bool(file.counts) or None not in file.sizes
    if (
        named
        and said is not None
        and (said.total, said.layers) != (geometry.total, geometry.layers)
    ):
        check_geometry(GroupedGeometry(said), geometry, file.place)
    heads, method = file.heads(geometry), _method(file)
    about = {} if file.model is None else {"model": file.model}
    if file.format == ALIGNATT and method == TRANSLATION_SCORE:
        _check_shares(file)
    _check_lists(file, geometry)
    if file.scored and len(heads) == geometry.total:
        values, measured = np.full((2, *geometry.shape), np.nan)
        for head, entry in zip(heads, file.entries, strict=True):
            values[head.layer, head.head] = entry.score
            measured[head.layer, head.head] = entry.measured
        extra = {"measured": measured} if file.format == "retrieval" else {}
        if file.chance:
            chance = extra["chance"] = np.full(geometry.shape, np.nan)
            for entry in file.chance:
                chance[entry.layer, entry.head] = entry.score
        foreign = file.score_name is not None and file.score_name not in KNOWN_SCORES
        config = {**file.config, **({SCORE_NAME: method} if foreign else {})}
        scores = HeadScores(geometry, values, method, extra=extra, config=config, provenance=about)
        _check_order(file, scores)
        return scores
    if file.format in _OWN:
        return HeadSet(geometry, heads, Origin(provenance=about))
    if file.scored and file.format != ALIGNATT:
        listed = [entry.score or 0.0 for entry in file.entries]
        if listed == sorted(listed) and len(set(listed)) > 1 and list(heads) != sorted(heads):
            _lowest_first(file, method)
        scored = zip(heads, listed, strict=True)
        heads = tuple(head for head, _ in sorted(scored, key=lambda pair: -pair[1]))
    return HeadSet(geometry, heads, Origin(method, provenance=about))


def _method(file: HeadsFile) -> str:
    """What made the heads or their scores, as far as the file says; empty where it does not."""
    if file.score_name is not None:
        return KNOWN_SCORES.get(file.score_name, file.score_name)
    if file.format == ALIGNATT:  # whose scores are called `ts`, as the paper abbreviates them
        return TRANSLATION_SCORE
    if not file.scored:
        return ""
    if file.format in (*_OWN, "tuples"):
        return UNNAMED
    # Any scores are kept in these two formats, as `--to` does; other formats name their lists.
    return f"{UNNAMED} ({file.format})" if file.format in _NAMELESS else file.format


def _check_shares(file: HeadsFile) -> None:
    """InputError for translation scores, or what chance gives them, beyond 0 and 1."""
    for entry in (*file.entries, *file.chance, *chain(*file.lists.values())):
        if entry.score is not None and not 0 <= entry.score <= 1:
            raise InputError(
                f"{file.place}, line {entry.line}: head L{entry.layer}.H{entry.head} has "
                f"{entry.score}, but translation scores are shares; correct it, or name in "
                f"{SCORE_NAME!r} what was measured"
            )


def _check_lists(file: HeadsFile, geometry: Geometry) -> None:
    """InputError unless the lists of a file have heads of its model and the scores that it has."""
    lists = _lists(file)
    own = next((name for name, listed in lists.items() if listed.entries == file.entries), MATRIX)
    scores = dict(zip(file.heads(geometry), (entry.score for entry in file.entries), strict=True))
    near = _ROUNDED * max(abs(score or 0.0) for score in scores.values())
    for name, listed in lists.items():
        for head, entry in zip(listed.heads(geometry), listed.entries, strict=True):
            score = scores.get(head, entry.score)
            if entry.score is None or score is None or abs(entry.score - score) > near:
                raise InputError(
                    f"{file.place}, line {entry.line}: {name} gives head {head} the score "
                    f"{entry.score}, but {MATRIX if file.matrix else own} {score}; correct the one "
                    "that is wrong"
                )


def _check_order(file: HeadsFile, scores: HeadScores) -> None:
    """Compare the order of the lists of a file with its scores of all heads.

    `heads_of` says what is refused, and what a `Caution` says.
    """
    near = _ROUNDED * float(np.nanmax(np.abs(scores.values)))
    lists = file.lists if file.matrix else {"": file.entries}
    first = {}
    for name, entries in lists.items():
        heads = replace(file, entries=entries).heads(scores.geometry) if entries else ()
        first[name] = _first(scores, heads, near)
        if file.matrix and entries and first[name] != "highest":
            caution(
                f"{file.place}: {name} does not begin with the highest scores of {MATRIX}, by "
                f"which heads are ranked; #{name} behind the file's name takes the list as it is"
            )
    if scores.method in KNOWN_SCORES.values() or "highest" in first.values():
        return
    if "lowest" in first.values():
        _lowest_first(file, scores.method)
    elif file.score_name is not None:
        caution(
            f"{file.place}: does not say whether high or low {scores.method} is best; the highest "
            "is taken as best"
        )


def _first(scores: HeadScores, heads: Sequence[Head], near: float) -> str | None:
    """Which scores a list begins with: `highest`, `lowest` or neither.

    Heads in the order of the model are no ranking from the lowest on.
    """

    def begin(ranked: Sequence[tuple[Head, float]]) -> bool:
        by_head = dict(ranked)
        return all(
            abs(by_head[head] - score) <= near
            for head, (_, score) in zip(heads, ranked, strict=False)
        )

    if not heads:
        return None
    if any(begin(scores.ranked(by)) for by in get_args(Rank)):
        return "highest"
    rising = begin(scores.ranked("score")[::-1]) and list(heads) != sorted(heads)
    return "lowest" if rising else None


def _lowest_first(file: HeadsFile, method: str) -> None:
    """InputError for a file whose lists have the best heads first; of others only a `Caution`."""
    said = f"{file.place}: lists the lowest {method} first"
    fix = "but heads are ranked by the highest; turn the sign of the scores"
    if file.format == ALIGNATT:
        raise InputError(f"{said}, so low ones are best, {fix} or write a list without them")
    caution(f"{said}, {fix} if low ones are best")


def _widened(file: HeadsFile, grouped: GroupedGeometry) -> HeadScores:
    """The scores of layers × key-value heads as those of the query heads."""
    geometry, last = grouped.geometry, file.entries[-1]
    values = np.array([entry.score for entry in file.entries]).reshape(last.layer + 1, -1)
    with naming(file.place):
        if len(values) != geometry.layers:
            raise InputError(
                f"has {len(values)} lines, one a layer, but the model has {geometry}; name a file "
                "of this model"
            )
        group = grouped.group(values.shape[1])
    note = (
        f"{file.place}: {values.shape[1]} key-value heads a layer; each of the {geometry.width} "
        f"query heads has the score of its own, which {group} share"
    )
    caution(note)
    config = {"key_value_heads": values.shape[1], "note": note}
    return HeadScores(geometry, np.repeat(values, group, axis=1), _method(file), config=config)


# Writing


def csv_text(heads: Iterable[tuple[Head, float | None]]) -> str:
    """A table of `layer`, `head` and, where all have one, `score`, in this order."""
    rows = list(heads)
    scored = all(score is not None for _, score in rows)
    file = io.StringIO(newline="")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("layer", "head", "score")[: 2 + scored])
    table.writerows((head.layer, head.head, score)[: 2 + scored] for head, score in rows)
    return file.getvalue()


def json_text(heads: Iterable[tuple[Head, float | None]]) -> str:
    """A JSON list of `{"layer": 5, "head": 3, "score": 0.7}`, one a line, in this order."""
    rows = [
        json.dumps({"layer": head.layer, "head": head.head}
                   | ({} if score is None else {"score": score}))
        for head, score in heads
    ]  # fmt: skip
    return "[\n" + ",\n".join(rows) + "\n]\n"


def retrieval_text(scores: Iterable[tuple[Head, float]]) -> str:
    """The format of retrieval heads: `{"5-3": [0.7]}`, one score a head."""
    rows = [f'"{head.layer}-{head.head}": [{json.dumps(score)}]' for head, score in scores]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def yaml_text(heads: Iterable[Head], model: str | None = None) -> str:
    """The configuration of QRHead: `attn_head_set: "5-3,7-11"`, and the model's name if known."""
    listed = ",".join(f"{head.layer}-{head.head}" for head in heads)
    written = (sign if sign.isprintable() and sign not in '"\\' else f"\\U{ord(sign):08x}"
               for sign in model or "")  # fmt: skip
    named = "" if model is None else 'model_name_or_path: "' + "".join(written) + '"\n'
    return f'attn_head_set: "{listed}"\n{named}'


def alignatt_text(
    scores: HeadScores, heads: Iterable[Head], threshold: float | None, selected_by: str = ""
) -> str:
    """The file that AlignAtt4LLM takes its heads from, the first of `token_alignment_heads`.

    `heads` are these, best first, and `selected_by` how they were chosen; `threshold` is written as
    the paper's. The scores keep their name (see `KNOWN_SCORES`). A place without a head is null.
    What chance gives the heads, where it is known, stands beside their scores: read again, they are
    ranked as they were.
    """
    pairs = scores.config.get("examples")

    def listed(some: Iterable[Head]) -> list[dict[str, Any]]:
        return [{"layer": head.layer, "head": head.head, "ts": scores[head], "count": pairs}
                for head in some]  # fmt: skip

    def matrix(values: Floats) -> list[list[float | None]]:
        return [[None if np.isnan(share) else share for share in row] for row in values.tolist()]

    layers, width = scores.geometry.shape
    file = {
        "model": scores.provenance.get("model"),
        **{theirs: scores.config.get(name) for name, theirs in ABOUT.items()},
        "num_layers": layers,
        "num_heads": width,
        "paper_threshold": threshold,
        "selected_by": selected_by,
        SCORE_NAME: next(
            (n for n, column in KNOWN_SCORES.items() if column == scores.method), scores.method
        ),
        ALIGNMENT: listed(heads),
        RANKED: listed(head for head, _ in scores.ranked("score")),
        MATRIX: matrix(scores.values),
    }
    if scores.chance_known:
        file[CHANCE] = matrix(scores.extra["chance"])
    return json.dumps(file, indent=2, ensure_ascii=False) + "\n"


def duo_attention_text(
    ranked: Iterable[tuple[Head, float]], grouped: GroupedGeometry, groups: int, k: Amount | None
) -> tuple[str, int]:
    """DuoAttention's table of `groups` key-value heads a layer, and how many of them are 1.

       Those are the full-attention heads.
    A key-value head takes the highest of its query heads' scores; the first `k` (a number or a
       share of the key-value heads, None: all that are in `ranked`) are 1, the others 0. Equal ones
       come in the order of `ranked`.
    """
    group = grouped.group(groups)
    # In falling order the first query head of a key-value head has the highest score.
    falling = sorted(ranked, key=lambda scored: -scored[1])
    order = list(dict.fromkeys((head.layer, head.head // group) for head, _ in falling))
    count = len(order) if k is None else count_of(k, grouped.geometry.layers * groups)
    if count > len(order):
        raise InputError(
            f"k = {k} asks for {count} key-value heads, but the heads lie in {len(order)}; use a "
            "smaller k or scores of all heads"
        )
    table = np.zeros((grouped.geometry.layers, groups))
    for place in order[:count]:
        table[place] = 1
    return "".join("\t".join(f"{value:.18e}" for value in row) + "\n" for row in table), count
