"""What is removed and what is read: heads of each language or layer, and random ones beside them.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes 2 % of the heads, or all of one layer, and
compares the perplexity of each language's text. Its published random control always has 9 heads;
here each control has the size of what it controls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.evidence.controls import Changing, Drawing, Draws, SelectedHeads, drawn
from headscope.evidence.rows import AS_IS, NOTHING, ORIGINAL, SELECTED, Basis, Condition
from headscope.evidence.runner import (
    ZERO,
    KeptBatches,
    Pass,
    Replacements,
    Within,
    alone,
    kept_units,
    pass_of,
    rows_at_once,
)
from headscope.heads import (
    Amount,
    Geometry,
    Head,
    HeadSet,
    Rank,
    check_geometry,
    count_of,
    read_scores,
    resolve_heads,
)
from headscope.heads.draws import Choices, distinct_sets
from headscope.heads.geometry import keys_of
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished, kind_of
from headscope.progress import Progress
from headscope.results.language_texts import LanguageSet
from headscope.runs import Run, digest

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


#: Whose heads are changed where every language's text is without its own.
OWN = "own"
#: What stands behind a language whose most important heads are removed, specific or not.
FULL = ", most important"
#: What stands before the number of a layer that is removed whole.
LAYER = "layer "


@dataclass(frozen=True)
class Documents:
    """The documents of one language as the model reads them: token ids, each two or more.

    `places` says in messages where each stands: its file and line.
    """

    ids: tuple[str, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    places: tuple[str, ...] = ()

    @property
    def tokens(self) -> NDArray[np.int64]:
        """How many tokens of each document are predicted: all but the first."""
        return np.array([len(row) - 1 for row in self.rows], dtype=np.int64)


class Text(NamedTuple):
    """The documents of one language, read under every condition.

    Attributes:
        nll: float64 (C, D), the summed negative log-likelihood in nats of each document's
            predicted tokens under each condition; a row of NaN where a condition was not run on
            this language. Row 0 is the model as it is.
        tokens: int64 (D,), how many tokens of each document are predicted, each at least 1.
    """

    nll: NDArray[np.float64]
    tokens: NDArray[np.int64]


def language_of(condition: Condition) -> str:
    """The language whose heads a condition changes; "" of heads that belong to none."""
    return condition.of.removesuffix(FULL)


def sets_by_language(languages: Sequence[LanguageHeads]) -> list[SelectedHeads]:
    """Each language's specific heads, and its most important ones, to be removed; `outside` leaves
    out the specific heads of every language."""
    if not languages:
        raise InputError("there is no set of heads to remove; name at least one head")
    avoid = functools.reduce(operator.or_, (named.chosen for named in languages))
    sets = []
    for named in languages:
        of = "" if named.language == NAMED else named.language
        for whose, heads in ((of, named.chosen), (of + FULL, named.full)):
            if heads is not None:
                sets.append(SelectedHeads(heads, whose, named.wanted, avoid=avoid))
    return sets


def read_on(
    condition: Condition, languages: Sequence[str], controls: Sequence[str]
) -> Sequence[str]:
    """The languages whose documents are read under a condition.

    Selected heads, and the draws of the first control beside a language's specific ones, are read
    on the text of every language, so that random heads have a row of the matrix too; all other
    draws on that of their own language.
    """
    own = language_of(condition)
    everywhere = condition.kind in (ORIGINAL, SELECTED) or (
        condition.kind == controls[0] and condition.of == own
    )
    return languages if everywhere or own not in languages else (own,)


def layer_heads(geometry: Geometry, layer: int) -> HeadSet:
    """All heads of a layer; none where the layer has no attention heads."""
    return HeadSet(geometry, tuple(Head(layer, head) for head in range(geometry.counts[layer])))


def spread_draws(geometry: Geometry, size: int, draws: int, seed: int = 0) -> list[HeadSet]:
    """Different random sets of `size` heads from the whole model, none of them a whole layer.

    Draw i is the same however many draws there are; where fewer sets are possible than asked for,
    each of them is drawn once. InputError unless there are more heads than `size`.
    """
    every = list(geometry.heads())
    whole = {
        frozenset(layer_heads(geometry, layer))
        for layer, count in enumerate(geometry.counts)
        if count == size
    }
    choices = Choices([every], [(size,)])
    if not 0 < size < len(every) or choices.count == len(whole):
        raise InputError(
            f"{size} of {len(every)} heads are a layer, which leaves no choice for random heads; "
            "removing whole layers needs a model with several layers of heads"
        )
    sets = distinct_sets(
        choices,
        lambda stream: stream.sample(every, size),
        draws,
        f"heads of all layers {seed} {size}",
        without=whole,
    )
    return [HeadSet(geometry, heads) for heads in sets]


def layer_sets(geometry: Geometry) -> list[SelectedHeads]:
    """The heads of every layer that has some."""
    return [
        SelectedHeads(layer_heads(geometry, layer), f"{LAYER}{layer}")
        for layer, size in enumerate(geometry.counts)
        if size
    ]


def plan_layers(
    layers: Sequence[SelectedHeads],
    how: Drawing,
    basis: Basis = NOTHING,
    ablate: Sequence[str] = ("zero",),
) -> list[Condition]:
    """The model as it is, every layer with each replacement, and the controls of each.

    Random draws are spread over all layers, and the same for all layers of one size.
    """
    geometry = layers[0].heads.geometry

    def removed(kind: str, of: str, heads: HeadSet, draw: int | None = None) -> list[Condition]:
        named = keys_of(heads)
        return [Condition(kind, of, len(heads), 0.0, name, draw, named) for name in ablate]

    conditions = [Condition()]
    for layer in layers:
        conditions += removed(SELECTED, layer.of, layer.heads)
    if "random" in how.controls:
        for size in sorted({len(layer.heads) for layer in layers}):
            for number, heads in enumerate(spread_draws(geometry, size, how.draws, how.seed)):
                conditions += removed("random", "", heads, number)
    named = tuple(name for name in how.controls if name != "random")
    others = Draws(how.draws, named, how.seed)
    for layer in layers:
        for selected in removed(SELECTED, layer.of, layer.heads):
            conditions += drawn(selected, layer.heads, others, basis)
    return conditions


TITLE = "reading documents"


def read_texts(
    lm: LanguageModel,
    documents: Mapping[str, Documents],
    planned: Sequence[Condition],
    config: Changing,
    run: Run,
    replacements: Callable[[], Replacements] = lambda: ZERO,
    progress: Progress | None = None,
) -> dict[str, Text]:
    """The losses of every language's documents under every condition, by language.

    Conditions that remove the same heads are run once. Each language under each of them is kept in
    `run` as soon as it is read, so that a run that was stopped goes on there. `replacements` gives
    what stands in the place of removed heads, and is asked when it is first needed.
    """
    languages = list(documents)
    removals: dict[str, tuple[Condition, set[str]]] = {}
    for planned_condition in planned:
        texts = read_on(planned_condition, languages, config.controls)
        removals.setdefault(planned_condition.key, (planned_condition, set()))[1].update(texts)
    units = {
        f"{name} {key}": (name, key)
        for key, (_, names) in removals.items()
        for name in languages
        if name in names
    }

    # A batch takes seconds, so that its losses are kept in time; its size follows from the model.
    batch_tokens = min(config.batch_tokens, rows_at_once(lm, 1.0, config.batch_tokens))
    passes: dict[str, Pass] = {}

    def pass_under(key: str) -> Pass:
        condition, _ = removals[key]
        if key not in passes:
            by_kind = {condition.replacement: None} if key == AS_IS else replacements()
            passes[key] = pass_of(condition, lm.geometry, (), by_kind)
        return passes[key]

    def read(mine: Sequence[str], within: Within) -> Iterator[tuple[str, list[float]]]:
        batches = {
            name: KeptBatches(within, [""], [*map(len, texts.rows)], len(texts.rows))
            for name, texts in documents.items()
        }
        for key in removals:
            missing = [unit for unit in mine if units[unit][1] == key]
            if not missing:
                continue
            with pass_under(key).applied(lm):
                for unit in missing:
                    name = units[unit][0]
                    batches[name].begin(unit)
                    yield unit, _losses(lm, name, documents[name], batch_tokens, batches[name])

    read_rows = {name: digest(texts.rows) for name, texts in documents.items()}

    def decides(unit: str) -> Any:
        name, key = units[unit]
        return [read_rows[name], pass_under(key).decides, batch_tokens]

    sizes = {unit: len(documents[name].rows) for unit, (name, _) in units.items()}
    kept = kept_units(run, "losses", TITLE, sizes, read, progress, alone(lm, decides))
    return {
        name: Text(
            np.array(
                [
                    kept[f"{name} {condition.key}"]
                    if name in read_on(condition, languages, config.controls)
                    else [np.nan] * len(texts.rows)
                    for condition in planned
                ],
                dtype=np.float64,
            ),
            texts.tokens,
        )
        for name, texts in documents.items()
    }


def _losses(
    lm: LanguageModel, name: str, documents: Documents, batch_tokens: int, batches: KeptBatches
) -> list[float]:
    from headscope.lm.losses import token_losses

    def summed(row: int, losses: NDArray[np.float32]) -> float:
        return float(losses.sum(dtype=np.float64))

    sums: list[float] = token_losses(
        lm, documents.rows, None, batch_tokens, reduce=summed, batches=batches
    )
    for place, value in zip(documents.places, sums, strict=True):
        if not np.isfinite(value):
            raise InputError(
                f"{place}: the loss of this document ({name}) is {value}, so no mean can be told; "
                "try --dtype float32, or leave the document out"
            )
    return sums


MEAN = "mean"
SPECIFIC = "specific"
#: What a named set is called that is not said to belong to a language.
NAMED = "heads"
SHARE, SMALL, PART_OF_SMALL = "2%", 256, 20


def default_count(geometry: Geometry) -> int:
    """How many heads of a language are removed, if nobody says: 2 %, as in LAHIS.

    In a model of fewer than 256 heads, where that is a head or two, as many as fit into 5 %, and
    at least one.
    """
    if geometry.total >= SMALL:
        return count_of(SHARE, geometry.total)
    return max(1, geometry.total // PART_OF_SMALL)


@dataclass(frozen=True)
class LanguageHeads:
    """The heads of one language that are removed together.

    Attributes:
        language: its code, or `NAMED` for a set that belongs to no language.
        wanted: how many were asked for.
        chosen: the first so many of those specific to the language, fewer or none if there are
            fewer; or a named set.
        full: as many by importance alone, whether other languages need them too or not (`wanted`
            of them where `chosen` is empty); None where nobody ranked the heads.
        available: how many specific heads there are.
    """

    language: str
    wanted: int
    chosen: HeadSet
    full: HeadSet | None
    available: int

    @property
    def row(self) -> LanguageSet:
        """As results hold it."""
        return LanguageSet(
            language=self.language,
            k=self.wanted,
            available=self.available,
            chosen=keys_of(self.chosen),
            full=None if self.full is None else keys_of(self.full),
        )


def language_heads(
    spec: str,
    k: Amount | None,
    languages: Sequence[str],
    own: str | None,
    geometry: Geometry,
    by: Rank = "above-chance",
) -> list[LanguageHeads]:
    """The heads of each language that has text, in the order of `languages`.

    `spec` is what `resolve_heads` reads. A run of `find lahis` holds sets and scores of languages,
    the runs of some other methods scores of languages alone, of which only `full` can be told; of
    either `own` takes a single language. Any other set is one row, called by `own`, the language
    it is said to belong to; of scores the top, ranked `by`. InputError if there are heads of other
    languages alone, no heads, or heads of another geometry.
    """
    place = place_of(spec)
    folder = place if place is not None and place.is_dir() else None
    if folder is not None:
        check_finished(folder)
        wanted = default_count(geometry) if k is None else count_of(k, geometry.total)
        kept = [
            heads
            for language in ([own] if own else languages)
            if (heads := _of_language(folder, language, wanted, geometry, by)) is not None
        ]
        held = sorted(path.name for path in (folder / SPECIFIC).glob("*/"))
        if held and not kept:
            given = f"{own} is" if own else f"the documents are in {', '.join(languages)},"
            raise InputError(
                f"{spec}: holds heads of {', '.join(held)}; {given} none of these, so name one of "
                "them, and give documents in it"
            )
        if kept:
            return kept
    named = resolve_heads(spec, k, geometry, default=default_count(geometry), by=by)
    if not len(named):
        raise InputError(f"{spec}: holds no heads, so there is nothing to remove; name some")
    return [LanguageHeads(own or NAMED, len(named), named, None, len(named))]


def _of_language(
    folder: Path, language: str, wanted: int, geometry: Geometry, by: Rank
) -> LanguageHeads | None:
    place = folder / SPECIFIC / language
    specific = HeadSet.from_pretrained(place) if kind_of(place) == "heads" else None
    scores = read_scores(folder)
    # A run on one language has no name for its scores.
    own = scores.get(language) or (
        scores.get(MEAN) if specific is not None and len(scores) == 1 else None
    )
    if specific is None and own is None:
        return None
    for heads in (specific, own):
        if heads is not None:
            check_geometry(heads, geometry, f"{folder} ({language})")
    every = HeadSet(geometry, ()) if specific is None else specific
    chosen = HeadSet(geometry, every.heads[:wanted], every.origin)
    full = None if own is None else own.top(len(chosen) or wanted, by)
    return LanguageHeads(language, wanted, chosen, full, len(every))
