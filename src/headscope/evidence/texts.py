"""Measures of texts: each is one function from outputs to numbers of every output.

They know neither models nor commands. What a package or command is missing for is left out, with
the reason; it is never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.words import plain_words
from headscope.errors import InputError
from headscope.evidence.rows import SHARE, Statistic
from headscope.heads.geometry import without_gradients
from headscope.measure import external, identify
from headscope.measure.metrics import (
    bleu,
    bleu_from_statistics,
    bleu_tokenizer,
    chrf,
    chrf_from_statistics,
    rouge_l,
    source_copies,
)
from headscope.measure.statistics import counted
from headscope.own import OwnMeasure

Array = NDArray[Any]


class Outputs:
    """The texts of one part under several conditions, each distinct one of an example once.

    Random heads often change nothing, so there are far fewer distinct texts than outputs.

    Attributes:
        language: code of the language that outputs should be in.
        outputs, sources, references: the distinct texts, (N,); sources may be empty texts.
        place: int (C, S), where the output of example s under condition c stands among them.
    """

    def __init__(
        self,
        language: str,
        texts: Sequence[Sequence[str]],
        references: Sequence[str],
        sources: Sequence[str] | None = None,
    ) -> None:
        places: dict[tuple[int, str], int] = {}
        self.language = language
        self.place = np.array(
            [
                [places.setdefault((at, text), len(places)) for at, text in enumerate(outputs)]
                for outputs in texts
            ]
        )
        self.outputs = [text for _, text in places]
        self.sources = [sources[at] if sources is not None else "" for at, _ in places]
        self.references = [references[at] for at, _ in places]


@dataclass(frozen=True)
class TextMeasure:
    """How a statistic is counted: from distinct outputs to numbers of each, (N, features).

    `together`: outputs of all parts in one call, as commands that load a model of their own need.
    """

    statistic: Statistic
    count: Callable[[Outputs], Array]
    together: bool = False


#: By name, in the order in which they are shown.
TEXT_MEASURES: dict[str, TextMeasure] = {}


def text_measure(
    name: str, words: str, together: bool = False, **written: Any
) -> Callable[[Callable[[Outputs], Array]], Callable[[Outputs], Array]]:
    """Registers a function as a measure of texts; `written` goes to its `Statistic`."""

    def register(count: Callable[[Outputs], Array]) -> Callable[[Outputs], Array]:
        TEXT_MEASURES[name] = TextMeasure(Statistic(words, **written), count, together)
        return count

    return register


@text_measure("chrf", "chrF++", digits=1, bounds=(0.0, 100.0), score=chrf_from_statistics)
def _chrf(texts: Outputs) -> Array:
    return chrf(texts.outputs, texts.references).statistics


@text_measure("bleu", "BLEU", digits=1, bounds=(0.0, 100.0), score=bleu_from_statistics)
def _bleu(texts: Outputs) -> Array:
    return bleu(texts.outputs, texts.references, texts.language).statistics


@text_measure("rouge_l", "ROUGE-L", digits=1, bounds=(0.0, 100.0))
def _rouge_l(texts: Outputs) -> Array:
    """F1 over words of the language (see `headscope.data.words.plain_words`)."""
    words = [plain_words(text) for text in texts.outputs]
    return counted(rouge_l(words, [plain_words(text) for text in texts.references]).texts)


@text_measure("bert_score", "BERTScore", digits=1)
def _bert_score(texts: Outputs) -> Array:
    result = external.bert_score(texts.outputs, texts.references, texts.language)
    return counted(100 * _scores(result))


@text_measure("comet", "COMET", together=True)
def _comet(texts: Outputs) -> Array:
    return counted(_scores(external.comet(texts.sources, texts.outputs, texts.references)))


@text_measure("bleurt", "BLEURT", together=True)
def _bleurt(texts: Outputs) -> Array:
    return counted(_scores(external.bleurt(texts.outputs, texts.references)))


@text_measure("off_target", "off target", better="lower", unit=SHARE, digits=1)
def _off_target(texts: Outputs) -> Array:
    """Whether an output is in another language, or empty."""
    return counted(identify.off_targets(texts.outputs, texts.language))


@text_measure("source_copy", "source copied", better="lower", unit=SHARE, digits=1)
def _source_copy(texts: Outputs) -> Array:
    return counted(source_copies(texts.outputs, texts.sources, texts.references))


@text_measure("empty", "empty", better="lower", unit=SHARE, digits=1)
def _empty(texts: Outputs) -> Array:
    return counted([not text.strip() for text in texts.outputs])


def _scores(result: external.External) -> NDArray[np.float64]:
    if result.scores is None:
        raise InputError(result.reason)
    return np.asarray(result.scores, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MeasuredTexts:
    """Numbers of every output, by part and statistic, (conditions, examples, features).

    `missing` says by name why a measure is not there, `identifier` who identified languages, and
    `bleu_tokenizers` those of sacrebleu that the BLEU of each part was cut with.
    """

    parts: Mapping[str, Mapping[str, Array]]
    missing: Mapping[str, str] = field(default_factory=dict)
    identifier: str | None = None
    bleu_tokenizers: Mapping[str, str] = field(default_factory=dict)


def measured_texts(parts: Mapping[str, Outputs], names: Collection[str]) -> MeasuredTexts:
    """The measures of these names, of every output of every part.

    A measure that cannot be computed for one part is left out there; the reason is told.
    """
    missing: dict[str, str] = {}
    arrays: dict[str, dict[str, Array]] = {part: {} for part in parts}
    for name, measure in TEXT_MEASURES.items():
        if name not in names:
            continue
        if measure.together:
            _together(name, measure, parts, arrays, missing)
            continue
        for part, texts in parts.items():
            try:
                arrays[part][name] = measure.count(texts)[texts.place]
            except InputError as error:  # a package, a tokeniser or a language that is not there
                missing.setdefault(name, str(error))
    identified = any("off_target" in measures for measures in arrays.values())
    return MeasuredTexts(
        arrays,
        missing,
        identify.identifier_name() if identified else None,
        {
            part: bleu_tokenizer(texts.language).name
            for part, texts in parts.items()
            if "bleu" in arrays[part]
        },
    )


def own_measured(texts: Outputs, measure: OwnMeasure) -> Array:
    """A measure of the user's, of every output; `InputError` unless it gives a number for each."""
    given = measure.function.function(list(texts.outputs), list(texts.references))
    measure.function.tell_change()
    try:
        numbers = np.asarray(without_gradients(given), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the measure {measure.name} gives no numbers ({error})") from error
    if numbers.shape != (len(texts.outputs),) or not np.isfinite(numbers).all():
        raise InputError(
            f"the measure {measure.name} gives {given!s:.40} for {len(texts.outputs)} outputs; "
            "give a list with one finite number for each"
        )
    measured: Array = counted(numbers)[texts.place]
    return measured


def own_statistics(measures: Iterable[OwnMeasure], known: Collection[str]) -> dict[str, Statistic]:
    """The statistics of measures by name; `InputError` for a name that is taken."""
    statistics = dict[str, Statistic]()
    for measure in measures:
        if measure.name in known or measure.name in statistics:
            raise InputError(f"there is a measure {measure.name} already; give yours another name")
        statistics[measure.name] = Statistic(measure.name, measure.better)
    return statistics


def _together(
    name: str,
    measure: TextMeasure,
    parts: Mapping[str, Outputs],
    arrays: Mapping[str, dict[str, Array]],
    missing: dict[str, str],
) -> None:
    """One call for the distinct texts of all parts."""
    every = Outputs("", [], [])
    for texts in parts.values():
        every.outputs += texts.outputs
        every.sources += texts.sources
        every.references += texts.references
    try:
        scores = measure.count(every)
    except InputError as error:
        missing[name] = str(error)
        return
    ends = np.cumsum([len(texts.outputs) for texts in parts.values()])[:-1]
    for (part, texts), part_scores in zip(parts.items(), np.split(scores, ends), strict=True):
        arrays[part][name] = part_scores[texts.place]
