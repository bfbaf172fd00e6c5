"""From stored outputs to numbers for each sentence: every measure, without the model.

What a package or command is missing for is None, with the reason; it is never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.measure.tokenizers import bleu_tokenizer
from headscope.results.removal import Measuring
from headscope.verify.removal.outputs import Translations

if TYPE_CHECKING:
    from headscope.measure.external import External

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
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        kinds: dict[str, type] = {"b": np.uint8, "i": np.int32}
        return {
            name: array.astype(kinds.get(array.dtype.kind, np.float64))
            for name, array in found.items()
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
    from headscope.measure.identify import identifier_name

    missing: dict[str, str] = {}
    distinct = {name: Distinct(made) for name, made in directions.items()}
    found: dict[str, dict[str, Array]] = {}
    for name, one in distinct.items():
        found[name] = {"empty": np.array([not text.strip() for text in one.outputs])}
        for key, compute in _MEASURES.items():
            if only is not None and key not in only:
                continue
            try:
                found[name][key] = compute(one, directions[name].target_language)
            except InputError as error:  # a package, a tokeniser or a language that is not there
                missing.setdefault(key, str(error))
    external = _external(list(distinct.values()), missing) if only is None else {}
    for key, scores in external.items():
        for name, part in zip(found, scores, strict=True):
            found[name][key] = part
    identified = any("off_target" in part for part in found.values())
    return Measures(
        {
            name: Measured(**{key: array[distinct[name].place] for key, array in part.items()})
            for name, part in found.items()
        },
        missing,
        identifier_name() if identified else None,
        {
            name: bleu_tokenizer(made.target_language).name
            for name, made in directions.items()
            if "bleu" in found[name]
        },
    )


def kept_from(stored: Mapping[str, Array], measures: Measures, told: Measuring) -> Measures:
    """What could be measured, and of the rest what was measured before.

    `stored` are the numbers of each sentence (`DIRECTION.MEASURE`), `told` what the result beside
    them says. The numbers count only if they are of the same outputs, as their chrF counts tell;
    where there are none to compare, nothing is kept.
    """
    directions: dict[str, Measured] = {}
    tokenizers = dict(measures.bleu_tokenizers)
    for name, new in measures.directions.items():
        old = {f.name: stored.get(f"{name}.{f.name}") for f in fields(new)}
        same = new.chrf is not None and np.array_equal(_or_none(old["chrf"]), new.chrf)
        found = {
            key: array
            for key, array in old.items()
            if same and array is not None and getattr(new, key) is None
        }
        directions[name] = replace(new, **found)
        if "bleu" in found:
            tokenizers[name] = told.bleu_tokenizers.get(name, UNKNOWN)
    missing = {
        key: why
        for key, why in measures.missing.items()
        if any(getattr(one, key) is None for one in directions.values())
    }
    kept = measures.identifier is None and "off_target" not in missing
    named = told.identifier if kept else measures.identifier
    return Measures(directions, missing, named, tokenizers)


def _or_none(array: Array | None) -> Array:
    return np.empty(0) if array is None else array


def _chrf(one: Distinct, _: str) -> Array:
    from headscope.measure.metrics import chrf

    return chrf(one.outputs, one.references).statistics


def _bleu(one: Distinct, language: str) -> Array:
    from headscope.measure.metrics import bleu

    return bleu(one.outputs, one.references, language).statistics


def _source_copies(one: Distinct, _: str) -> Array:
    from headscope.measure.metrics import source_copies

    return source_copies(one.outputs, one.sources, one.references)


def _off_targets(one: Distinct, language: str) -> Array:
    """Which outputs are not in the target language; InputError where nobody can tell."""
    from headscope.measure.identify import identifier_name, identify, off_targets

    found = off_targets(one.outputs, language)
    if found is not None:
        return found
    identify(["a"])  # says what is not installed, if that is it
    raise InputError(f"{identifier_name()} does not know the language {language}")


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


#: How outputs are measured here, each by the texts and the code of the target language.
_MEASURES: dict[str, Callable[[Distinct, str], Array]] = {
    "chrf": _chrf,
    "bleu": _bleu,
    "off_target": _off_targets,
    "source_copy": _source_copies,
}


def _external(parts: Sequence[Distinct], missing: dict[str, str]) -> dict[str, list[Array]]:
    """Scores of the measures that run as commands, by direction: one call for all sentences."""
    from headscope.measure.external import bleurt, comet

    outputs = [text for part in parts for text in part.outputs]
    sources = [text for part in parts for text in part.sources]
    references = [text for part in parts for text in part.references]
    bounds = np.cumsum([len(part.outputs) for part in parts])[:-1]
    found: dict[str, list[Array]] = {}
    results: dict[str, External] = {
        "comet": comet(sources, outputs, references),
        "bleurt": bleurt(outputs, references),
    }
    for name, result in results.items():
        if result.scores is None:
            missing[name] = result.reason
        else:
            found[name] = list(np.split(np.array(result.scores, dtype=np.float64), bounds))
    return found
