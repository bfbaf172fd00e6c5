"""Outputs under several conditions, and from them numbers for each sentence, without the model.

What a package or command is missing for is None, with the reason; it is never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.measure import external, identify
from headscope.measure.metrics import bleu, bleu_tokenizer, chrf, source_copies
from headscope.results.removal import Label, Measuring
from headscope.runs.reading import damaged_line, read_rows
from headscope.verify.translation.conditions import answers_of


@dataclass(frozen=True)
class Translations:
    """The sentences of one direction, and what was made of them.

    `texts[c][s]` is the output under condition c of sentence s; where these are answers alone,
    `whole[c][s]` is what was written.
    """

    source_language: str
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
            pairs.source_language,
            pairs.target_language,
            tuple(pair.id for pair in pairs.pairs),
            tuple(pair.source for pair in pairs.pairs),
            tuple(pair.target for pair in pairs.pairs),
            tuple(map(tuple, texts)),
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
                    **({} if made.whole is None else {"whole": made.whole[number][at]}),
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
    for number, row in read_rows(path):
        try:
            label = Label.of_row(row, "condition", ablate)
            names = ("id", "source", "reference", "output")
            texts = tuple(row[name] for name in names)
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("an entry is no text")
            made[row["direction"]].setdefault(label, []).append(texts)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(path, number) from error
        labels[label] = None
    outputs = {
        name: _table(path, name, languages[name], [by_label.get(label, []) for label in labels])
        for name, by_label in made.items()
    }
    if not labels or not outputs:
        raise InputError(f"{path}: holds no outputs; run the verification again")
    return list(labels), outputs


def _table(
    path: Path,
    name: str,
    languages: tuple[str, str],
    conditions: Sequence[Sequence[tuple[str, str, str, str]]],
) -> Translations:
    first = [row[:3] for row in conditions[0]] if conditions else []
    if conditions and (not first or any([row[:3] for row in rows] != first for rows in conditions)):
        raise InputError(
            f"{path}: the conditions of {name} do not hold the same sentences; run the "
            "verification again"
        )
    ids, sources, references = (tuple(row[at] for row in first) for at in range(3))
    texts = tuple(tuple(row[3] for row in rows) for rows in conditions)
    return Translations(*languages, ids, sources, references, texts)


Array = NDArray[Any]
#: The tokeniser of counts that were kept without its name.
UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Measured:
    """The measures of one direction, by condition and sentence: arrays (C, S), or None.

    `chrf` (C, S, 24) and `bleu` (C, S, 10) are counts, from whose sums over sentences the corpus
    scores follow (`chrf_from_statistics`, `bleu_from_statistics`). `off_target`, `source_copy`
    and `empty` are bool, `comet` and `bleurt` float64.
    """

    empty: Array
    chrf: Array | None = None
    bleu: Array | None = None
    off_target: Array | None = None
    source_copy: Array | None = None
    comet: Array | None = None
    bleurt: Array | None = None

    def tensors(self) -> dict[str, Array]:
        """The arrays there are, by name, as a file holds them: counts as int32, bool as uint8."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        kinds: dict[str, type] = {"b": np.uint8, "i": np.int32}
        return {
            name: array.astype(kinds.get(array.dtype.kind, np.float64))
            for name, array in arrays.items()
            if array is not None
        }


@dataclass(frozen=True)
class Measures:
    """The measures of all directions; why some are missing, by name; who identified languages.

    `bleu_tokenizers` are those of sacrebleu that the BLEU of each direction was cut with; `UNKNOWN`
    where it was counted before and nobody wrote down how.
    """

    directions: dict[str, Measured]
    missing: dict[str, str]
    identifier: str | None
    bleu_tokenizers: Mapping[str, str] = field(default_factory=dict)


def measure(
    directions: Mapping[str, Translations], only: Collection[str] | None = None
) -> Measures:
    """Every measure of every output, each distinct one of a sentence scored once.

    `only` names the measures that are wanted, such as `chrf`; `empty` is always there.
    """
    missing: dict[str, str] = {}
    distinct = {name: Distinct(made) for name, made in directions.items()}
    arrays: dict[str, dict[str, Array]] = {}
    for name, unique in distinct.items():
        arrays[name] = {"empty": np.array([not text.strip() for text in unique.outputs])}
        for key, compute in _MEASURES.items():
            if only is not None and key not in only:
                continue
            try:
                arrays[name][key] = compute(unique, directions[name].target_language)
            except InputError as error:  # a package, a tokeniser or a language that is not there
                missing.setdefault(key, str(error))
    external = _external(list(distinct.values()), missing) if only is None else {}
    for key, scores in external.items():
        for name, part in zip(arrays, scores, strict=True):
            arrays[name][key] = part
    identified = any("off_target" in part for part in arrays.values())
    return Measures(
        {
            name: Measured(**{key: array[distinct[name].place] for key, array in part.items()})
            for name, part in arrays.items()
        },
        missing,
        identify.identifier_name() if identified else None,
        {
            name: bleu_tokenizer(made.target_language).name
            for name, made in directions.items()
            if "bleu" in arrays[name]
        },
    )


def kept_from(stored: Mapping[str, Array], measures: Measures, measuring: Measuring) -> Measures:
    """What could be measured, and of the rest what was measured before.

    `stored` are the numbers of each sentence (`DIRECTION.MEASURE`), `measuring` what the result
    beside them says. The numbers count only if they are of the same outputs, as their chrF counts
    tell; where there are none to compare, nothing is kept.
    """
    directions: dict[str, Measured] = {}
    tokenizers = dict(measures.bleu_tokenizers)
    for name, new in measures.directions.items():
        old = {f.name: stored.get(f"{name}.{f.name}") for f in fields(new)}
        counts = old["chrf"]
        same = counts is not None and new.chrf is not None and np.array_equal(counts, new.chrf)
        earlier = {
            key: array
            for key, array in old.items()
            if same and array is not None and getattr(new, key) is None
        }
        directions[name] = replace(new, **earlier)
        if "bleu" in earlier:
            tokenizers[name] = measuring.bleu_tokenizers.get(name, UNKNOWN)
    missing = {
        key: why
        for key, why in measures.missing.items()
        if any(getattr(measured, key) is None for measured in directions.values())
    }
    kept = measures.identifier is None and "off_target" not in missing
    named = measuring.identifier if kept else measures.identifier
    return Measures(directions, missing, named, tokenizers)


class Distinct:
    """The distinct (sentence, output) pairs of a direction.

    Random heads often change nothing, so that there are far fewer of them than outputs.
    `place[c, s]` says where the output of sentence s under condition c stands among them.
    """

    def __init__(self, made: Translations) -> None:
        places: dict[tuple[int, str], int] = {}
        self.place = np.array(
            [
                [places.setdefault((at, text), len(places)) for at, text in enumerate(texts)]
                for texts in made.texts
            ]
        )
        self.outputs = [text for _, text in places]
        self.sources = [made.sources[at] for at, _ in places]
        self.references = [made.references[at] for at, _ in places]


def _off_targets(outputs: Sequence[str], language: str) -> Array:
    """Which outputs are not in the target language; InputError where nobody can tell."""
    flags = identify.off_targets(outputs, language)
    if flags is not None:
        return flags
    identify.identify(["a"])  # says what is not installed, if that is it
    raise InputError(f"{identify.identifier_name()} does not know the language {language}")


#: How outputs are measured here, each by the texts and the code of the target language.
_MEASURES: dict[str, Callable[[Distinct, str], Array]] = {
    "chrf": lambda of, _: chrf(of.outputs, of.references).statistics,
    "bleu": lambda of, language: bleu(of.outputs, of.references, language).statistics,
    "off_target": lambda of, language: _off_targets(of.outputs, language),
    "source_copy": lambda of, _: source_copies(of.outputs, of.sources, of.references),
}


def _external(parts: Sequence[Distinct], missing: dict[str, str]) -> dict[str, list[Array]]:
    """Scores of the measures that run as commands, by direction: one call for all sentences."""
    outputs = [text for part in parts for text in part.outputs]
    sources = [text for part in parts for text in part.sources]
    references = [text for part in parts for text in part.references]
    bounds = np.cumsum([len(part.outputs) for part in parts])[:-1]
    scores: dict[str, list[Array]] = {}
    results: dict[str, external.External] = {
        "comet": external.comet(sources, outputs, references),
        "bleurt": external.bleurt(outputs, references),
    }
    for name, result in results.items():
        if result.scores is None:
            missing[name] = result.reason
        else:
            scores[name] = list(np.split(np.array(result.scores, dtype=np.float64), bounds))
    return scores
