"""What is removed and what is read: heads of each language or layer, and random ones beside them.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes 2 % of the heads, or all of one layer, and
compares the perplexity of each language's text. Its published random control always has 9 heads;
here each control has the size of what it controls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError
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
from headscope.heads.draws import Choices, distinct_sets, draw_heads
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished, kind_of
from headscope.progress import Progress, further
from headscope.results.language_texts import Role
from headscope.runs import Kept, Run
from headscope.settings import UNSIGNED, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.replacement import Replacement


TextKind = Literal["baseline", "removed", "random", "random-layer-matched"]


@dataclass(frozen=True)
class LanguageRemoval(Settings):
    """How heads are removed, and what they are compared with: `draws` random sets of each kind,
    with `layer_matched` also as many heads of each layer."""

    draws: options.Draws = 10
    layer_matched: bool = True
    pool: options.Pool = "non-alignment"
    threshold: options.Threshold = 0.1
    ablate: options.Ablate = "zero"
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)


@dataclass(frozen=True)
class TextCondition:
    """Heads that are removed together, and the languages whose documents are read meanwhile.

    Attributes:
        of: the language (or set, or layer) that this is about; "" for the model as it is.
        role: which heads of it: the "chosen" ones, or as many by importance, "full".
        kind: those heads "removed", or a random draw of as many.
        k: how many heads were asked for; `heads` may hold fewer.
        draw: number of a random draw, from 0.
        filled_up: of a random draw, heads that come from elsewhere than asked for (see `Draw`).
        texts: languages whose documents are read.
    """

    of: str
    role: Role
    kind: TextKind
    k: int
    draw: int | None
    heads: HeadSet
    filled_up: int
    texts: tuple[str, ...]

    @property
    def key(self) -> str:
        """Equal for conditions that remove the same heads."""
        return ",".join(map(str, sorted(self.heads))) or "as is"

    def as_dict(self) -> dict[str, Any]:
        """Its name and its heads, as a JSON object."""
        return {
            "of": self.of,
            "role": self.role,
            "kind": self.kind,
            "k": self.k,
            "size": len(self.heads),
            "draw": self.draw,
            "heads": tuple(map(str, self.heads)),
            "filled_up": self.filled_up,
        }


@dataclass(frozen=True)
class Documents:
    """The documents of one language as the model reads them: token ids, each two or more.

    `places` says in messages where each stands: its file and line.
    """

    ids: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    places: tuple[str, ...]

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


def plan(
    sized: Sequence[LanguageHeads],
    languages: Sequence[str],
    config: LanguageRemoval,
    avoid: HeadSet | None = None,
) -> list[TextCondition]:
    """The model as it is; each language's chosen heads, and its `full` ones, with random draws.

    Chosen heads and their free draws are read on the text of every language, so that random heads
    have a row of the matrix too. These draws avoid the chosen heads of every language, and so are
    the same for all languages with as many chosen heads. `full` heads are read on every text;
    their draws, and those of the same layers, on that of their own language. A set that holds no
    heads is left out. `avoid` are the token alignment heads.
    """
    if not sized:
        raise InputError("there is no set of heads to remove; name at least one head")
    every = tuple(languages)
    chosen = functools.reduce(operator.or_, (named.chosen for named in sized))
    apart = chosen if avoid is None else avoid | chosen
    planned = [_original(chosen.geometry, every)]
    for named in sized:
        own = (named.language,) if named.language in every else every
        sets: list[tuple[Role, HeadSet | None, HeadSet | None, tuple[str, ...]]] = [
            ("chosen", named.chosen, apart, every),
            ("full", named.full, avoid, own),
        ]
        for role, heads, avoided, texts in sets:
            if heads is None or not len(heads):
                continue
            of, k = named.language, named.wanted
            planned.append(TextCondition(of, role, "removed", k, None, heads, 0, every))
            kinds: list[tuple[TextKind, HeadSet | None, tuple[str, ...]]] = [
                ("random", avoided, texts)
            ]
            if config.layer_matched:
                kinds.append(("random-layer-matched", avoid, own))
            for kind, without, read in kinds:
                draws = draw_heads(heads, config.draws, config.seed, without, kind != "random")
                planned += [
                    TextCondition(of, role, kind, k, number, draw.heads, draw.filled_up, read)
                    for number, draw in enumerate(draws)
                ]
    return planned


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


def plan_layers(
    geometry: Geometry, languages: Sequence[str], draws: int, seed: int = 0
) -> list[TextCondition]:
    """The model as it is, every layer that has heads, and random draws of each layer size.

    The draws are spread over all layers, and the same for all layers of one size.
    """
    every = tuple(languages)
    sizes = {layer: size for layer, size in enumerate(geometry.counts) if size}
    return [
        _original(geometry, every),
        *(
            TextCondition(
                str(layer), "chosen", "removed", size, None, layer_heads(geometry, layer), 0, every
            )
            for layer, size in sizes.items()
        ),
        *(
            TextCondition("", "chosen", "random", size, number, heads, 0, every)
            for size in sorted(set(sizes.values()))
            for number, heads in enumerate(spread_draws(geometry, size, draws, seed))
        ),
    ]


def _original(geometry: Geometry, texts: tuple[str, ...]) -> TextCondition:
    return TextCondition("", "chosen", "baseline", 0, None, HeadSet(geometry, ()), 0, texts)


TITLE = "reading documents"


def read_texts(
    lm: LanguageModel,
    documents: Mapping[str, Documents],
    planned: Sequence[TextCondition],
    config: LanguageRemoval,
    run: Run,
    replacement: Callable[[], Replacement | None] | None = None,
    progress: Progress | None = None,
) -> dict[str, Text]:
    """The losses of every language's documents under every condition, by language.

    Conditions that remove the same heads are run once. Each language under each of them is kept in
    `run` as soon as it is read, so that a run that was stopped goes on there. `replacement` gives
    what stands in the place of removed heads, and is asked when it is first needed; None: zero.
    """
    kept = Kept(run, "losses")
    removals: dict[str, tuple[HeadSet, set[str]]] = {}
    for condition in planned:
        removals.setdefault(condition.key, (condition.heads, set()))[1].update(condition.texts)
    sizes = {
        f"{name} {key}": len(texts.rows)
        for name, texts in documents.items()
        for key, (_, names) in removals.items()
        if name in names
    }

    def left() -> list[str]:
        return [unit for unit in sizes if unit not in kept]

    total = sum(sizes.values())
    done = total - sum(sizes[unit] for unit in left())
    report = further(progress, TITLE, done, total)
    with run.units("losses", left, kept.reread, report, lambda unit: sizes[unit]) as mine:
        own = set(mine)
        for key, (heads, _) in removals.items():
            missing = [name for name in documents if f"{name} {key}" in own]
            gated = missing and len(heads)
            replacing = replacement() if gated and replacement is not None else None
            with lm.gated(heads.removed(), replacing) if gated else nullcontext():
                for name in missing:
                    texts = documents[name]
                    losses = _losses(lm, name, texts, config, progress, done, total)
                    kept.add(f"{name} {key}", losses)
                    done += len(texts.rows)
                    if progress:
                        progress(TITLE, done, total)
    return {
        name: Text(
            np.array(
                [
                    kept[f"{name} {each.key}"] if name in each.texts else [np.nan] * len(texts.rows)
                    for each in planned
                ],
                dtype=np.float64,
            ),
            texts.tokens,
        )
        for name, texts in documents.items()
    }


def _losses(
    lm: LanguageModel,
    name: str,
    documents: Documents,
    config: LanguageRemoval,
    progress: Progress | None,
    before: int,
    total: int,
) -> list[float]:
    from headscope.lm.losses import token_losses

    def report(done: int, _: int) -> None:
        if progress and done < len(documents.rows):
            progress(TITLE, before + done, total)

    losses = token_losses(lm, documents.rows, None, config.batch_tokens, report)
    sums = [float(loss.sum(dtype=np.float64)) for loss in losses]
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
