"""From what people give as `--heads` to a set of heads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, get_args

from headscope.errors import InputError, caution
from headscope.heads import store
from headscope.heads.files import read_heads_file, split_part
from headscope.heads.geometry import LIST, Geometry, check_geometry, default_amount
from headscope.heads.hub import Repository, exists
from headscope.heads.published import heads_of
from headscope.heads.scores import NO_CHANCE, HeadScores, Rank
from headscope.heads.sets import Gate, HeadSet
from headscope.heads.store import check_finished
from headscope.options import Amount

MEAN = "mean"
# What is read of a run or a saved artifact, by name, so that a repository of something else, such
# as a model, costs no download of its weights.
_FILES = (
    "config.json",
    *(f"{kind}.safetensors" for kind in store.KINDS),
    *("feed_forward.safetensors", "run.json", "result.json", "found_on.json", "DONE.json"),
)


def save_scores(run: str | PathLike[str], scores: HeadScores | dict[str, HeadScores]) -> None:
    """Save the scores of a run where `resolve_heads` and `read_scores` look for them.

    One direction goes to `scores/`; several go to `scores/<name>/` and their mean to
    `scores/mean/`.
    """
    folder = Path(run) / "scores"
    if isinstance(scores, HeadScores):
        scores.save_pretrained(folder)
        return
    for name, part in {**scores, MEAN: HeadScores.mean(scores)}.items():
        part.save_pretrained(folder / name)


def read_scores(folder: str | PathLike[str]) -> dict[str, HeadScores]:
    """The scores in a run folder or scores folder, by direction.

    The mean over several directions is under `mean`; a run with one direction has only that one,
    also under `mean`. The dictionary is empty if the folder holds no scores.
    """
    places = (Path(folder), Path(folder) / "scores")
    for place in places:
        if store.kind_of(place) == "scores":
            return {MEAN: HeadScores.from_pretrained(place)}
    return {
        path.parent.name: HeadScores.from_pretrained(path.parent)
        for place in places
        for path in sorted(place.glob("*/config.json"))
        if store.kind_of(path.parent) == "scores"
    }


def place_of(spec: str | PathLike[str]) -> Path | None:
    """The file or folder that `--heads` names; None if it is a list of heads, or nothing there.

    Of `FILE#PART` (see `read_heads_file`) it is the file.
    A long list is no file name that could be asked for: systems refuse names over 255 bytes. A
    text that is nothing here but a possible repository of the Hub (`owner/name`, or
    `hf://owner/name@revision/subfolder`) is fetched; InputError if the Hub does not give it.
    """
    if not str(spec).strip() or (isinstance(spec, str) and LIST.fullmatch(spec)):
        return None
    path = Path(spec)
    if exists(path):
        return path
    if (file := split_part(spec)[0]) != path and exists(file):
        return file
    repository = Repository.parse(spec) if isinstance(spec, str) else None
    return None if repository is None else _fetched(str(spec), repository)


@cache  # several parts of a command ask for the place of the same heads
def _fetched(spec: str, repository: Repository) -> Path:
    """The cached folder of a repository with heads; InputError naming `--heads` if it has none."""
    try:
        folder = repository.fetch([*_FILES, *(f"*/{name}" for name in _FILES)])
    except InputError as error:
        raise InputError(
            f"{spec!r} names no heads (a list such as 5.3,7.11, a file, a folder, a Hub "
            f"repository): {error}"
        ) from error
    if not folder.is_dir():
        raise InputError(
            f"{spec!r}: the Hub repository {repository} holds no saved heads there; name a "
            "repository that 'push_to_hub' has filled, or the subfolder that holds them"
        )
    return folder


def named_scores(spec: str | PathLike[str], geometry: Geometry) -> HeadScores | None:
    """The scores that `spec` names: of a run, of several directions their mean, or of a file.

    None where it names something else. InputError for a file of another geometry.
    """
    place = place_of(spec)
    if place is None or place.is_dir():
        return None if place is None else read_scores(place).get(MEAN)
    named = heads_of(read_heads_file(spec), geometry)
    return named if isinstance(named, HeadScores) else None


def resolve_heads(
    spec: str | PathLike[str],
    k: Amount | None,
    geometry: Geometry,
    *,
    default: Amount | None = None,
    by: Rank = "above-chance",
    model: str = "",
) -> HeadSet:
    """The heads that `spec` names, for a model of `geometry`.

    `spec` is a list such as `L5.H3,7.11`; a file of heads or scores, also as others publish them
    (see `read_heads_file`); a folder of saved heads, scores or a gate (then the heads whose gate is
    not 1); the folder of a finished run; or a repository of the Hub that holds these (see
    `place_of`). With `k` (a number or a share of all heads) the first k are taken. Without it, a
    list, a saved set and a gate are used whole, and of scores, ranked `by` (see `HeadScores.top`),
    the top `default` (or `default_amount(geometry)`). A run that holds both a set and scores gives
    the set, or, with `k`, the top k scores. InputError if it is none of these, or made for another
    geometry; a `Caution` for a file that names another model than `model`, the name of this one.
    """
    text = str(spec)
    if isinstance(spec, str) and LIST.fullmatch(spec):
        return _cut(HeadSet.parse(spec, geometry), k)
    if not text.strip():
        raise InputError("no heads are named; name a run, a file, or a list such as 5.3,7.11")
    path = place_of(spec)
    if path is not None and path.is_dir():
        return _from_folder(path, k, geometry, default, by)
    if path is not None and path.exists():
        file = read_heads_file(spec)
        named = heads_of(file, geometry)
        if model and file.model and _last(file.model) != _last(model):
            caution(f"{spec}: lists heads of {file.model}, but this model is {model}")
        if isinstance(named, HeadScores):
            return _top(named, k, default, by)
        return _cut(named, k)
    raise InputError(
        f"{text!r} names no heads: it is neither a folder nor a file that exists nor a list such "
        "as 5.3,7.11"
    )


class AboutRank(TypedDict):
    """The entries of a result on the ranking of its heads."""

    rank: str | None
    rank_note: str | None


def about_rank(*sources: HeadSet | Gate | None) -> AboutRank:
    """What a result says of the ranking that its heads are the top of: `rank` and `rank_note`.

    Both are None for heads that are not the top of scores. Of several sets `rank` is above-chance
    if any was ranked so; the note says why others were not.
    """
    origins = [source.origin.config for source in sources if source is not None]
    ranks = {config["rank"] for config in origins if config.get("rank")}
    notes = list(dict.fromkeys(cfg["rank_note"] for cfg in origins if cfg.get("rank_note")))
    begin = f"{NO_CHANCE} ("
    methods = [note.removeprefix(begin)[:-1] for note in notes if note.startswith(begin)]
    if methods:
        notes = [note for note in notes if not note.startswith(begin)]
        notes.append(f"{begin}{', '.join(methods)})")
    rank = next((name for name in get_args(Rank) if name in ranks), None)
    some = "some by score: " if len(ranks) > 1 and notes else ""
    return {"rank": rank, "rank_note": some + "; ".join(notes) or None}


def rank_words(result: Mapping[str, Any]) -> str | None:
    """What the heads of a result are ranked by, in words; None if by nothing."""
    rank = result.get("rank")
    words = {None: None, "above-chance": "score minus chance"}.get(rank, "score")
    note = re.sub(rf"{NO_CHANCE} \(([^)]*)\)", r"\1", result.get("rank_note") or "")
    return f"{words} ({note})" if words and note else words


def _from_folder(
    path: Path, k: Amount | None, geometry: Geometry, default: Amount | None, by: Rank
) -> HeadSet:
    check_finished(path)
    scores = read_scores(path)
    saved, gate = store.held(path, "heads"), store.held(path, "gate")
    artifact: HeadSet | Gate | HeadScores
    if saved is not None and (k is None or not scores):
        artifact = HeadSet.from_pretrained(saved)
    elif scores:
        if MEAN not in scores:
            raise InputError(f"{path}: holds no scores named '{MEAN}'; name one of its directions")
        artifact = scores[MEAN]
    elif gate is not None:
        artifact = Gate.from_pretrained(gate)
    else:
        raise InputError(
            f"{path}: holds no scores, no heads and no gate; name a run that found heads"
        )
    check_geometry(artifact, geometry, str(path))
    if isinstance(artifact, HeadScores):
        return _top(artifact, k, default, by)
    return _cut(artifact.changed_heads() if isinstance(artifact, Gate) else artifact, k)


def _top(scores: HeadScores, k: Amount | None, default: Amount | None, by: Rank) -> HeadSet:
    amounts = (k, default, default_amount(scores.geometry))
    return scores.top(next(amount for amount in amounts if amount is not None), by)


def _last(model: str) -> str:
    """What a model is called, whatever folder or owner it is in."""
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1].casefold()


def _cut(heads: HeadSet, k: Amount | None) -> HeadSet:
    return heads if k is None else heads.top(k)
