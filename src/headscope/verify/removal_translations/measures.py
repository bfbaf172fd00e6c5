"""Translations under several conditions: their rows in a run, and their measures, kept or new."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.evidence.rows import Condition
from headscope.evidence.texts import MeasuredTexts, Outputs
from headscope.results.removal import Languages, Measuring
from headscope.runs.reading import damaged_line, read_rows
from headscope.verify.removal_translations.conditions import answers_of
from headscope.verify.removal_translations.evidence import TEXTS, UNKNOWN


@dataclass(frozen=True)
class Translations:
    """The sentences of one direction, and what was made of them.

    `texts[c][s]` is the output under condition c of sentence s; where these are answers alone,
    `whole[c][s]` is what was written.
    """

    target_language: str
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    whole: tuple[tuple[str, ...], ...] | None = None

    @classmethod
    def of(
        cls, pairs: PairFile, texts: Sequence[Sequence[str]], answer_only: bool = False
    ) -> Translations:
        """Outputs, by condition, then sentence, beside the pairs they belong to.

        With `answer_only` the answers in them, beside the whole ones.
        """
        if answer_only:
            answers = [answers_of(pairs, several) for several in texts]
            return replace(cls.of(pairs, answers), whole=tuple(map(tuple, texts)))
        return cls(
            pairs.target_language,
            tuple(pair.id for pair in pairs.pairs),
            tuple(pair.source for pair in pairs.pairs),
            tuple(pair.target for pair in pairs.pairs),
            tuple(map(tuple, texts)),
        )

    @property
    def outputs(self) -> Outputs:
        """What is measured of them."""
        return Outputs(self.target_language, self.texts, self.references, self.sources)


def output_rows(
    conditions: Sequence[Condition], directions: Mapping[str, Translations]
) -> Iterator[dict[str, Any]]:
    """One row a condition, direction and sentence, in this order; what `read_outputs` reads."""
    for number, condition in enumerate(conditions):
        for name, made in directions.items():
            for at, identifier in enumerate(made.ids):
                yield {
                    "direction": name,
                    "id": identifier,
                    "source": made.sources[at],
                    "reference": made.references[at],
                    "condition": condition.id,
                    "output": made.texts[number][at],
                    **({} if made.whole is None else {"whole": made.whole[number][at]}),
                }


def read_outputs(
    path: Path, languages: Mapping[str, Languages]
) -> tuple[list[str], dict[str, Translations]]:
    """The ids of the conditions and the translations in a file of `output_rows`.

    `languages` holds those of each direction. Raises `InputError`, naming file and line, if a row
    is damaged, or if a sentence lacks its output of a condition.
    """
    ids: dict[str, None] = {}
    made: dict[str, dict[str, list[tuple[str, ...]]]] = {name: {} for name in languages}
    for number, row in read_rows(path):
        try:
            condition = row["condition"]
            texts = tuple(row[name] for name in ("id", "source", "reference", "output"))
            if not all(isinstance(text, str) for text in (condition, *texts)):
                raise ValueError("an entry is no text")
            made[row["direction"]].setdefault(condition, []).append(texts)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(path, number) from error
        ids[condition] = None
    outputs = {
        name: _table(path, name, languages[name].target, [rows.get(key, []) for key in ids])
        for name, rows in made.items()
    }
    if not ids or not outputs:
        raise InputError(f"{path}: holds no outputs; run the verification again")
    return list(ids), outputs


def _table(
    path: Path, name: str, language: str, conditions: Sequence[Sequence[tuple[str, ...]]]
) -> Translations:
    first = [row[:3] for row in conditions[0]] if conditions else []
    if conditions and (not first or any([row[:3] for row in rows] != first for rows in conditions)):
        raise InputError(
            f"{path}: the conditions of {name} do not hold the same sentences; run the "
            "verification again"
        )
    ids, sources, references = (tuple(row[at] for row in first) for at in range(3))
    texts = tuple(tuple(row[3] for row in rows) for rows in conditions)
    return Translations(language, ids, sources, references, texts)


def tensors(texts: MeasuredTexts) -> dict[str, NDArray[Any]]:
    """The numbers of each sentence as `DIRECTION.MEASURE`, as a file holds them."""
    return {
        f"{part}.{name}": array.astype(np.int32 if array.dtype.kind == "i" else np.float64)
        for part, arrays in texts.parts.items()
        for name, array in arrays.items()
    }


def kept_from(
    stored: Mapping[str, NDArray[Any]],
    texts: MeasuredTexts,
    before: Measuring,
    own: Collection[str] = (),
) -> MeasuredTexts:
    """What could be measured, and of the rest what was measured before.

    `stored` are `tensors`, `before` is what was told with them; `own` are measures of the user's.
    The numbers count only if they are of the same outputs, as their chrF counts tell; where there
    are none to compare, nothing is kept.
    """
    parts = dict[str, dict[str, NDArray[Any]]]()
    tokenizers = dict(texts.bleu_tokenizers)
    for part, new in texts.parts.items():
        counts = stored.get(f"{part}.chrf")
        same = counts is not None and "chrf" in new and np.array_equal(counts, new["chrf"])
        old = {
            name: stored[f"{part}.{name}"]
            for name in (*TEXTS, *own)
            if same and name not in new and f"{part}.{name}" in stored
        }
        parts[part] = {**new, **old}
        if "bleu" in old:
            tokenizers[part] = before.bleu_tokenizers.get(part, UNKNOWN)
    missing = {
        name: why
        for name, why in texts.missing.items()
        if any(name not in measures for measures in parts.values())
    }
    kept = texts.identifier is None and "off_target" not in missing
    named = before.identifier if kept else texts.identifier
    return MeasuredTexts(parts, missing, named, tokenizers)
