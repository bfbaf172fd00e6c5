"""Sentences of a run with what the model made of them, and which words belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headscope.report.records.sentence_scores import sentence_scores
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import LinkedWords, Sentence

__all__ = [
    "BASELINE",
    "MATCHED",
    "RANDOM",
    "REFERENCE",
    "TOP",
    "read_sentences",
]

BASELINE: Final = "baseline"
TOP: Final = "top"
RANDOM: Final = "random"
MATCHED: Final = "random-layer-matched"
REFERENCE = "reference"

Span = tuple[int, int]


def read_sentences(
    path: Path,
    k: int | None = None,
    gate: float | None = None,
    places: Mapping[str, int] | None = None,
    ablate: str | None = None,
) -> tuple[Sentence, ...]:
    """The sentences of `outputs.jsonl` in file order that have an output as is and without `top`.

    Of several draws the first is taken; of several sizes, strengths and kinds of ablation `k`,
    `gate` and `ablate`, where they are given and the rows name theirs. Links come from
    `links.jsonl` where there is one. `places` says where the conditions stand among those of
    `statistics.safetensors`, which chrF++ of each sentence comes from. InputError naming the line
    that is damaged.
    """
    file, rows = path / "outputs.jsonl", dict[tuple[str, str], dict[str, Any]]()
    for number, entry in read_rows(file):
        try:
            key = (str(entry["direction"]), str(entry["id"]))
            known = {name: entry[name] for name in ("source", "reference")}
            kind, output = entry["condition"], entry["output"]
        except KeyError as error:
            raise damaged_line(file, number) from error
        if not all(isinstance(text, str) for text in (*known.values(), kind, output)):
            raise damaged_line(file, number)
        row = rows.setdefault(key, {"outputs": {}, **known})
        wanted = {"k": k, "gate": gate, "ablate": ablate}
        if kind in row["outputs"] or not (kind == BASELINE or _meant(entry, wanted)):
            continue
        row["outputs"][kind] = output
    linked = _links(path / "links.jsonl", rows)
    chrf = _chrf(path, list(rows), places) if places else {}
    return tuple(
        Sentence(*key, **row, chrf=chrf.get(key, {}), linked=linked.get(key, {}))
        for key, row in rows.items()
        if BASELINE in row["outputs"] and TOP in row["outputs"]
    )


def _chrf(
    path: Path, keys: Sequence[tuple[str, str]], places: Mapping[str, int]
) -> dict[tuple[str, str], dict[str, float]]:
    """chrF++ of every sentence by condition, as far as the run stores what it takes."""
    by_direction: dict[str, list[tuple[str, str]]] = {}
    for key in keys:
        by_direction.setdefault(key[0], []).append(key)
    scores = sentence_scores(path, {name: len(own) for name, own in by_direction.items()}, places)
    return {
        key: {kind: float(values[place]) for kind, values in scores[name].items()}
        for name, own in by_direction.items()
        if name in scores
        for place, key in enumerate(own)
    }


def _meant(entry: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the row has what is wanted, as far as it names any."""
    pairs = [(one, entry.get(name)) for name, one in wanted.items()]
    return all(one is None or other is None or one == other for one, other in pairs)


def _links(
    file: Path, rows: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[tuple[str, str], dict[str, LinkedWords]]:
    found: dict[tuple[str, str], dict[str, LinkedWords]] = {}
    for number, entry in read_rows(file):
        try:
            key, kind = (str(entry["direction"]), str(entry["id"])), str(entry["condition"])
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
        found.setdefault(key, {}).setdefault(kind, LinkedWords(source, other, links))
    return found


def _spans(value: Sequence[Sequence[int]], text: str) -> tuple[Span, ...]:
    """Spans one after the other within the text; ValueError if they are not."""
    spans = tuple((int(start), int(end)) for start, end in value)
    last = 0
    for start, end in spans:
        if not last <= start <= end <= len(text):
            raise ValueError("a span lies outside its text")
        last = end
    return spans
