"""What a model made of sentences under several conditions, as rows of a file and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.results.removal import Label


@dataclass(frozen=True)
class Translations:
    """The sentences of one direction, and what was made of them.

    `texts[c][s]` is the output under condition c of sentence s.
    """

    source_language: str
    target_language: str
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


def translations(pairs: PairFile, texts: Sequence[Sequence[str]]) -> Translations:
    """Outputs beside the sentence pairs they belong to; `texts` are by condition, then sentence."""
    return Translations(
        pairs.source_language,
        pairs.target_language,
        tuple(pair.id for pair in pairs.pairs),
        tuple(pair.source for pair in pairs.pairs),
        tuple(pair.target for pair in pairs.pairs),
        tuple(tuple(made) for made in texts),
    )


def output_rows(
    labels: Sequence[Label], directions: Mapping[str, Translations]
) -> Iterator[dict[str, Any]]:
    """One row a condition, direction and sentence, in this order; what `read_outputs` reads."""
    for number, label in enumerate(labels):
        for name, made in directions.items():
            for at, identifier in enumerate(made.ids):
                yield {
                    "direction": name,
                    "id": identifier,
                    "source": made.sources[at],
                    "reference": made.references[at],
                    "condition": label.kind,
                    "k": label.k,
                    "gate": label.gate,
                    "draw": label.draw,
                    "ablate": label.ablate,
                    "output": made.texts[number][at],
                }


def read_outputs(
    path: Path, languages: Mapping[str, tuple[str, str]], ablate: str = "zero"
) -> tuple[list[Label], dict[str, Translations]]:
    """The conditions and translations in a file of `output_rows`.

    `languages` holds the source and target language of each direction, `ablate` the kind of
    ablation of an older run, whose rows do not name it. Raises `InputError`,
    naming file and line, if a row is damaged, or if a sentence lacks its output of a condition.
    """
    labels: dict[Label, None] = {}
    made: dict[str, dict[Label, list[tuple[str, str, str, str]]]] = {n: {} for n in languages}
    for number, row in _rows(path):
        try:
            label = Label.of_row(row, "condition", ablate)
            names = ("id", "source", "reference", "output")
            texts = tuple(row[name] for name in names)
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("an entry is no text")
            made[row["direction"]].setdefault(label, []).append(texts)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, number) from error
        labels[label] = None
    found = {
        name: _table(path, name, languages[name], [by_label.get(label, []) for label in labels])
        for name, by_label in made.items()
    }
    if not labels or not found:
        raise InputError(f"{path}: holds no outputs; run the verification again")
    return list(labels), found


def _table(
    path: Path,
    name: str,
    languages: tuple[str, str],
    conditions: Sequence[Sequence[tuple[str, str, str, str]]],
) -> Translations:
    first = [row[:3] for row in conditions[0]] if conditions else []
    for rows in conditions:
        if not rows or [row[:3] for row in rows] != first:
            raise InputError(
                f"{path}: the conditions of {name} do not hold the same sentences; run the "
                "verification again"
            )
    ids, sources, references = (tuple(row[at] for row in first) for at in range(3))
    texts = tuple(tuple(row[3] for row in rows) for rows in conditions)
    return Translations(*languages, ids, sources, references, texts)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); name the folder of a finished run"
        ) from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _damaged(path, number) from error
        if not isinstance(row, dict):
            raise _damaged(path, number)
        yield number, row


def _damaged(path: Path, number: int) -> InputError:
    return InputError(f"{path}, line {number}: is damaged; run the verification again")
