"""Sentences of a removal: what the model made of them, their chrF++, and linked words.

They are read of the run folder alone: a page is made on machines that have neither models nor
metrics, so the few lines from counts to a score stand here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.measure.metrics import chrf_from_statistics
from headscope.results.removal import OutputLinks
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import LinkedWords, NotMeasured, Sentence, Sentences

REFERENCE = "reference"

Span = tuple[int, int]


def shown_conditions(conditions: Sequence[Condition]) -> list[Condition]:
    """Those that a page shows side by side: the model as it is, the most selected heads at their
    first gate, and the first draw of each control."""
    main = max((each for each in conditions if each.kind == SELECTED), key=lambda each: each.k)
    first = [each for each in conditions if each.draw == 0 and each.controls(main)]
    return [conditions[0], main, *first]


def sentences_of(
    run: Path, evidence: Evidence, main: Condition, links: OutputLinks | None
) -> Sentences | NotMeasured:
    """The sentences under the original model, `main` and the first draw of each control."""
    title, first = "Outputs", shown_conditions([evidence.original, main, *evidence.conditions])
    measured = [each for each in evidence.conditions if evidence.level("chrf", each)]
    places = {each.kind: measured.index(each) for each in first if each in measured}
    sentences = read_sentences(run, {each.id: each.kind for each in first}, places)
    if not sentences:
        return NotMeasured(title, "outputs.jsonl of the run folder is missing or empty")
    labels = {
        each.kind: f"{each.kind[:1].upper()}{each.kind[1:]}"
        + ("" if each is evidence.original else f", {each.done}")
        for each in first
    }
    note = ""
    if links is None or not links.method:
        note = (
            "Words are not linked: the data have no word links, and no aligner was installed when "
            "the run was made."
        )
    elif links.aligner:
        note = f"The reference's links were made by {links.aligner} and are sometimes wrong."
    return Sentences(title, sentences, labels, links.method if links else None, note)


def read_sentences(
    path: Path, kinds: Mapping[str, str], places: Mapping[str, int] | None = None
) -> tuple[Sentence, ...]:
    """The sentences of `outputs.jsonl` in file order, with their outputs by kind of condition.

    `kinds` gives the kind of each condition by its id, the original model and the selected heads
    first; sentences without an output of these are left out. Links come from `links.jsonl` where
    there is one. `places` says where the kinds stand among the conditions of
    `statistics.safetensors`, which chrF++ of each sentence comes from. InputError naming the line
    that is damaged.
    """
    file, rows = path / "outputs.jsonl", dict[tuple[str, str], dict[str, Any]]()
    for number, entry in read_rows(file):
        try:
            key = (str(entry["direction"]), str(entry["id"]))
            known = {name: entry[name] for name in ("source", "reference")}
            condition, output = entry["condition"], entry["output"]
        except KeyError as error:
            raise damaged_line(file, number) from error
        if not all(isinstance(text, str) for text in (*known.values(), condition, output)):
            raise damaged_line(file, number)
        row = rows.setdefault(key, {"outputs": {}, **known})
        if condition in kinds:
            row["outputs"].setdefault(kinds[condition], output)
    linked = _links(path / "links.jsonl", rows, kinds)
    chrf = _chrf(path, list(rows), places) if places else {}
    return tuple(
        Sentence(*key, **row, chrf=chrf.get(key, {}), linked=linked.get(key, {}))
        for key, row in rows.items()
        if {*[*kinds.values()][:2]} <= row["outputs"].keys()
    )


def _chrf(
    path: Path, keys: Sequence[tuple[str, str]], places: Mapping[str, int]
) -> dict[tuple[str, str], dict[str, float]]:
    """chrF++ of every sentence by condition, as far as the run stores what it takes."""
    by_direction: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        by_direction.setdefault(key[0], []).append(key)
    scores = _sentence_scores(path, {name: len(own) for name, own in by_direction.items()}, places)
    return {
        key: {kind: float(values[place]) for kind, values in scores[name].items()}
        for name, own in by_direction.items()
        if name in scores
        for place, key in enumerate(own)
    }


def _links(
    file: Path, rows: Mapping[tuple[str, str], Mapping[str, Any]], kinds: Mapping[str, str]
) -> dict[tuple[str, str], dict[str, LinkedWords]]:
    linked: dict[tuple[str, str], dict[str, LinkedWords]] = {}
    for number, entry in read_rows(file):
        try:
            key, kind = (str(entry["direction"]), str(entry["id"])), str(entry["condition"])
            kind = kinds.get(kind, kind)
            row = rows.get(key)
            text = (
                None if row is None else {**row["outputs"], REFERENCE: row["reference"]}.get(kind)
            )
            if row is None or text is None:
                continue
            source = _spans(entry["source_spans"], row["source"])
            other = _spans(entry["output_spans"], text)
            links = tuple((int(i), int(j)) for i, j in entry["links"])
            if any(not (0 <= i < len(source) and 0 <= j < len(other)) for i, j in links):
                raise ValueError("a link leads to no word")
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(file, number) from error
        linked.setdefault(key, {}).setdefault(kind, LinkedWords(source, other, links))
    return linked


def _spans(value: Sequence[Sequence[int]], text: str) -> tuple[Span, ...]:
    """Spans one after the other within the text; ValueError if they are not."""
    spans = tuple((int(start), int(end)) for start, end in value)
    last = 0
    for start, end in spans:
        if not last <= start <= end <= len(text):
            raise ValueError("a span lies outside its text")
        last = end
    return spans


def _sentence_scores(
    path: Path, directions: Mapping[str, int], places: Mapping[str, int]
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """chrF++ (0 to 100) by direction and condition, (sentences,), in the order of the outputs.

    `directions` gives the number of sentences, `places` the place of each condition among those of
    the run, the model as it is being 0. Directions without such counts are left out; InputError if
    `statistics.safetensors` is damaged or has other sentences.
    """
    file = path / "statistics.safetensors"
    if not file.exists():
        return {}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(file)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"{file}: is damaged; run the same command again") from error
    scores: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, sentences in directions.items():
        counts = arrays.get(f"{name}.chrf")
        if counts is None:
            continue
        if counts.ndim != 3 or counts.shape[1] != sentences or len(counts) <= max(places.values()):
            raise InputError(
                f"{file}: holds other sentences of {name} than outputs.jsonl; "
                "run the same command again"
            )
        scores[name] = {kind: chrf_from_statistics(counts[place]) for kind, place in places.items()}
    return scores
