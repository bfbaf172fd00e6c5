"""Heads and scores of a run in the formats that other tools read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.compare.artifacts import GEOMETRY, Artifact, read_artifacts
from headscope.errors import InputError
from headscope.heads import Amount, Geometry, GroupedGeometry, Head, rank_words
from headscope.heads.files import ALIGNATT, SCORE_NAME
from headscope.heads.published import (
    DUO_ATTENTION,
    Format,
    alignatt_text,
    csv_text,
    duo_attention_text,
    json_text,
    retrieval_text,
    yaml_text,
)
from headscope.heads.resolve import place_of
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.heads.store import write_bytes
from headscope.runs import Result, Signature, entry
from headscope.settings import Option, Settings
from headscope.shown.words import count
from headscope.studies.study import Study

#: Above it a head aligns tokens (Token Alignment Heads, section 3).
THRESHOLD = 0.1


@dataclass(frozen=True)
class WriteHeads(Settings):
    """Write the heads or scores of a run in a format that other tools read."""

    source: Annotated[
        str,
        Option(
            "A run (RUN:en-de is one direction), saved scores, a set or a gate, a file of heads or "
            "scores, or a list: 5.3,7.11.",
            metavar="RUN",
            argument=True,
        ),
    ]
    to: Annotated[
        Format,
        Option(
            "csv, json: layer, head and score; retrieval: scores as LAYER-HEAD; yaml: the heads as "
            "attn_head_set; duo-attention: layers by key-value heads, 1 for full attention, else "
            "0; alignatt: translation scores, and as token_alignment_heads those above 0.1 (scores "
            "that such a file names otherwise keep their name, and need --k)."
        ),
    ] = "csv"
    k: Annotated[
        Amount | None,
        Option(
            "Top heads written: a number or a share such as 15%; without it all scores, and of "
            "yaml 20 heads, or 15% below 256. Of duo-attention the key-value heads that are 1.",
            metavar="K",
            typed=str,
        ),
    ] = None
    rank: options.Rank = "above-chance"
    geometry: Annotated[Geometry | GroupedGeometry | None, GEOMETRY] = None


@dataclass(frozen=True, kw_only=True)
class WrittenHeads(Result):
    """What was written; `run` is the file.

    Attributes:
        to: the format.
        heads: how many heads it lists; of `duo-attention` how many key-value heads are 1.
        scored: whether scores stand beside them.
        key_value_heads: of a layer, and `note` how they were made of query heads.
    """

    to: str
    source: str
    heads: int
    scored: bool
    key_value_heads: int | None = entry(absent=True)
    note: str | None = entry(absent=True)


def write_heads(config: WriteHeads, out: Path) -> WrittenHeads:
    """Write the file, whole or not at all; one that holds something else is left as it is.

    Raises:
        InputError: for what holds no heads, scores that a format needs and there are none, and a
            file of this name.
    """
    began = time.monotonic()
    place = place_of(config.source)
    spec = str(place) if place is not None and place.is_dir() else config.source
    (artifact,) = read_artifacts([spec], True, config.geometry)
    made: dict[str, Any]
    if config.to == DUO_ATTENTION:
        text, made = _full_attention(artifact, config)
    elif config.to == ALIGNATT:
        text, made = _alignment(artifact, config)
    else:
        text, made = _listed(artifact, config)
    content = text.encode()
    if out.exists() and (not out.is_file() or out.read_bytes() != content):
        raise InputError(f"{out} exists and holds something else; name another file with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, content)
    settings = {"to": config.to, "k": config.k, "rank": config.rank, **made}
    return WrittenHeads(
        signature=str(Signature.of("heads", settings, {"heads": artifact.digest})),
        run=str(out),
        seconds=time.monotonic() - began,
        to=config.to,
        source=artifact.place,
        **made,
    )


def _listed(artifact: Artifact, config: WriteHeads) -> tuple[str, dict[str, Any]]:
    """The text of all scores, or of the heads that are the top or the set."""
    scores, to = artifact.scores, config.to
    if to == "retrieval" and scores is None:
        raise InputError(
            f"{artifact.place}: holds heads without scores, which this format is of; write --to "
            "yaml, csv or json, or name scores"
        )
    # A set that lies beside scores, as in a run that selected heads, is what it found.
    top = config.k is not None or (artifact.heads is not None and to != "retrieval") or to == "yaml"
    if scores is None or top:
        heads = list(artifact.top(config.k, rank=config.rank))
    else:
        heads = [head for head, _ in scores.ranked(config.rank)]
    scored = scores is not None and to != "yaml"
    if not heads:
        raise InputError(f"{artifact.place}: holds no heads, so there is nothing to write")
    rows = [(head, scores[head] if scores is not None else None) for head in heads]
    if to == "yaml":
        model = artifact.origin.provenance.get("model")
        text = yaml_text(heads, None if model is None else str(model))
    elif to == "retrieval":
        text = retrieval_text((head, score) for head, score in rows if score is not None)
    else:
        text = csv_text(rows) if to == "csv" else json_text(rows)
    return text, {"heads": len(heads), "scored": scored}


def _alignment(artifact: Artifact, config: WriteHeads) -> tuple[str, dict[str, Any]]:
    """The file of translation scores, with its heads: the top, the set, or those above 0.1."""
    scores = artifact.scores
    if scores is None:
        raise InputError(
            f"{artifact.place}: holds heads without scores, which this format is of; name a run of "
            "find translation-score"
        )
    # Files of this format may name other scores, which keep their name.
    named = scores.config.get(SCORE_NAME) == scores.method
    if scores.method != TRANSLATION_SCORE and not named:
        raise InputError(
            f"{artifact.place}: holds no translation scores, as which its scores "
            f"({scores.method}) would be read in this format; write --to csv, json, retrieval or "
            "yaml"
        )
    threshold = None if named else THRESHOLD
    if config.k is not None or artifact.heads is not None:
        heads = list(artifact.top(config.k, rank=config.rank))
        selected_by = f"{len(heads)} heads that were named or are best"
    elif threshold is None:
        raise InputError(
            f"--k is missing: how many heads are listed by {scores.method}, since {THRESHOLD} is a "
            "threshold of translation scores"
        )
    else:
        heads = [head for head, score in scores.ranked(config.rank) if score > threshold]
        selected_by = f"{rank_words(scores.ranking(config.rank))} above {threshold}"
    if not heads:
        raise InputError(
            f"{artifact.place}: no head scores above {THRESHOLD}; name how many are written by --k"
        )
    text = alignatt_text(scores, heads, threshold, selected_by)
    return text, {"heads": len(heads), "scored": True}


def _full_attention(artifact: Artifact, config: WriteHeads) -> tuple[str, dict[str, Any]]:
    """DuoAttention's table from a ranking, or from the heads of a set."""
    scores = artifact.scores
    by_score = scores is not None and (config.k is not None or artifact.heads is None)
    if by_score and config.k is None:
        raise InputError(
            "--k is missing: how many key-value heads keep full attention, such as 50%"
        )
    ranked: list[tuple[Head, float]]
    if scores is not None and by_score:
        ranked = scores.ranked(config.rank)
    else:
        ranked = [(head, 1.0) for head in artifact.top()]
    given = config.geometry
    known = given.key_value_heads if isinstance(given, GroupedGeometry) else None
    groups = known or _key_value_heads(artifact)
    grouped = GroupedGeometry(artifact.geometry, known)
    group = grouped.group(groups)
    text, full = duo_attention_text(ranked, grouped, groups, config.k)
    share = f"{full} of {artifact.geometry.layers * groups} key-value heads keep full attention"
    theirs = count(group, "query head") + (" that share it" if group > 1 else "")
    how = "each has the highest score" if by_score else "the set holds one"
    note = f"{share}; {how} of the {theirs}"
    return text, {"heads": full, "scored": False, "key_value_heads": groups, "note": note}


def _key_value_heads(artifact: Artifact) -> int:
    """How many there are in a layer, from the run that found the heads or from their file."""
    from headscope.runs.reading import read_object

    listed = artifact.origin.config.get("key_value_heads")
    places = [Path(place) for place in (artifact.place, artifact.place.rpartition(":")[0]) if place]
    result = next((place / "result.json" for place in places if place.is_dir()), None)
    if listed is None and result is not None and result.is_file():
        model = read_object(result).get("model")
        listed = model.get("key_value_heads") if isinstance(model, Mapping) else None
    numbers = set(listed) if isinstance(listed, list) else {listed}
    number = numbers.pop() if len(numbers) == 1 else None
    if not isinstance(number, int) or number < 1:
        layers, width = artifact.geometry.shape
        raise InputError(
            f"{artifact.place}: does not say how many key-value heads a layer has; give "
            f"--geometry {layers}x{width}:KEY_VALUE_HEADS"
        )
    return number


def _text(result: WrittenHeads) -> str:
    if result.note is not None:
        return f"{result.run}: {result.note}"
    what = "with scores" if result.scored else "without scores"
    return f"{result.run}: {count(result.heads, 'head')} {what} as {result.to}"


command = Study(
    WriteHeads,
    write_heads,
    _text,
    out=Option("The file to write.", metavar="FILE"),
    loads=False,
    usage="runs/found --k 20 --out heads.csv",
)
