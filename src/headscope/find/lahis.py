"""LAHIS: how much a language's text depends on each head, by gradients of its gate.

Liu et al. 2025 (arXiv 2511.07498): with g the gate of a head and L a document's mean next-token
loss, a head's importance for a language is mean over documents of |g ∂L/∂g|, times the share of
documents with g ∂L/∂g < 0 (those that raising the head would make likelier).  Heads above a
quantile are a language's important heads; those important in nearly all languages are general,
what is left of each language's is specific to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.documents import DocumentFile
from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadScores, HeadSet
from headscope.measure.intervals import bootstrap_score
from headscope.runs.plain import plain
from headscope.settings import UNSIGNED, Option, Settings

if TYPE_CHECKING:
    from headscope.find.capture import Progress
    from headscope.lm import LanguageModel
    from headscope.runs import Run

#: Below so many heads the default quantile is the lower one: 4 % of them would be too few.
FEW_HEADS = 256


@dataclass(frozen=True)
class Lahis(Settings):
    """How heads are scored.

    Attributes:
        update_gate: as published: documents one at a time, in their order, each scored at the
            gate as it is before a step of AdamW lowers its loss; else the gate stays 1.
        learning_rate, weight_decay: of these steps.
        bootstrap_draws, level: of the interval over documents.
        seed: of its draws.
        batch_tokens: padded tokens of a batch; no part of what is computed.
        checkpoint: save memory by computing each layer twice, see `gate_gradients`.
    """

    update_gate: Annotated[
        bool,
        Option("As published: documents one by one, the gate trained a step after each."),
    ] = False
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    bootstrap_draws: int = 1000
    level: float = 0.95
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=2048, metadata=UNSIGNED)
    checkpoint: options.Checkpointing = field(default=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learning_rate <= 0 or self.weight_decay < 0:
            raise InputError(
                f"the learning rate is {self.learning_rate} and the weight decay "
                f"{self.weight_decay}; give a positive rate and a decay of 0 or more"
            )
        if self.bootstrap_draws < 1:
            raise InputError("bootstrap_draws must be 1 or more")
        if not 0 < self.level < 1:
            raise InputError(f"level is {self.level}; it must lie between 0 and 1, such as 0.95")


def lahis(
    lm: LanguageModel,
    documents: DocumentFile,
    config: Lahis = Lahis(),
    run: Run | None = None,
    progress: Progress | None = None,
) -> HeadScores:
    """Score every head by its importance for the language of some documents.

    Args:
        lm: the model; nothing of it is changed.
        documents: texts of one language, cut at 2,048 tokens or the context.
        config: how to score.
        run: a run folder; finished batches are kept there, and a run that was stopped goes on.
        progress: called with (documents done, documents in all).

    Returns:
        Importance in nats a token, with bootstrap bounds over documents.  `extra`: `magnitude`,
        the mean of |g ∂L/∂g|, and `raising`, the share of documents with g ∂L/∂g < 0.
        `statistics`, by document: `products` (g ∂L/∂g, float32), `losses` and `tokens`; from them
        every figure follows again without the model.  `config` also tells `examples`, `left_out`
        (documents of a single token), `tokens` and `loss`, the mean loss of the documents.

    Raises:
        InputError: if a loss is no finite number, naming the document, or there is nothing to
            predict.
    """
    from headscope.find.capture import Part
    from headscope.find.gate_gradients import gate_gradients, moving_gate_gradients, texts_of

    texts = texts_of(lm, documents)
    part = Part(run, documents.language or "documents")
    if config.update_gate:
        found = moving_gate_gradients(
            lm,
            texts,
            config.learning_rate,
            config.weight_decay,
            config.checkpoint,
            part,
            progress,
        )
    else:
        found = gate_gradients(lm, texts, config.batch_tokens, config.checkpoint, part, progress)
    products = found.products
    statistics = _statistics(products)
    low, high = bootstrap_score(
        statistics, _importance_of_sums, config.bootstrap_draws, config.seed, config.level
    )
    return HeadScores(
        lm.geometry,
        importance(products),
        "lahis",
        low.reshape(lm.geometry.shape),
        high.reshape(lm.geometry.shape),
        extra={
            "magnitude": np.abs(products).mean(axis=0, dtype=np.float64),
            "raising": (products < 0).mean(axis=0),
        },
        statistics={"products": products, "losses": found.losses, "tokens": found.tokens},
        config={
            **plain(config),
            "language": documents.language,
            "examples": len(texts),
            "left_out": len(documents.documents) - len(texts),
            "tokens": int(found.tokens.sum()),
            "loss": float(found.losses.mean(dtype=np.float64)),
        },
        provenance=dict(run.provenance) if run is not None else {},
        signature=run.signature if run is not None else "",
    )


def importance(products: NDArray[Any]) -> NDArray[np.float64]:
    """mean |g ∂L/∂g| × share of g ∂L/∂g < 0, over the first dimension (documents)."""
    magnitude = np.abs(products).mean(axis=0, dtype=np.float64)
    return np.asarray(magnitude * (products < 0).mean(axis=0))


def _statistics(products: NDArray[Any]) -> NDArray[np.float64]:
    """By document, (documents, 3 × heads): |g ∂L/∂g|, whether it is below 0, and 1 for counting."""
    flat = products.reshape(len(products), -1).astype(np.float64)
    return np.concatenate([np.abs(flat), flat < 0, np.ones((len(flat), 1))], axis=1)


def _importance_of_sums(sums: NDArray[Any]) -> NDArray[np.float64]:
    magnitude, raising = np.split(sums[:, :-1] / sums[:, -1:], 2, axis=1)
    return np.asarray(magnitude * raising)


def quantile_for(geometry: Geometry) -> float:
    """The quantile above which heads are important: 0.96 (the paper), 0.9 for small models."""
    return 0.9 if geometry.total < FEW_HEADS else 0.96


@dataclass(frozen=True)
class LanguageSets:
    """Heads by what they are to several languages.

    Attributes:
        important: for each language its heads strictly above the quantile, by importance.
        thresholds: for each language the score at that quantile.
        general: heads in at least `general_in` of these sets, those of most languages first, then
            by mean importance.
        specific: for each language its important heads that are not general; may be empty.
        languages_of: in how many of the sets each head is, for heads in any.
    """

    important: dict[str, HeadSet]
    thresholds: dict[str, float]
    general: HeadSet
    general_in: int
    specific: dict[str, HeadSet]
    languages_of: dict[Head, int]


def check_sets(languages: int, quantile: float | None, general_in: int | None) -> None:
    """Raise `InputError` if so many languages cannot be told apart by these numbers."""
    if quantile is not None and not 0 < quantile < 1:
        raise InputError(f"the quantile is {quantile}; it must lie between 0 and 1, such as 0.96")
    if general_in is None:
        return
    if languages < 2:
        raise InputError(
            "general heads are asked for, but there is one language; give several, or leave "
            "--general-in out"
        )
    if not 2 <= general_in <= languages:
        raise InputError(
            f"general heads are asked for in {general_in} of {languages} languages; give a number "
            f"from 2 to {languages}"
        )


def language_sets(
    scores: Mapping[str, HeadScores],
    quantile: float | None = None,
    general_in: int | None = None,
) -> LanguageSets:
    """Sort heads into those of all languages and those of single ones.

    Args:
        scores: for each language, of one model.
        quantile: None: `quantile_for` the model.
        general_in: in how many languages' sets a general head is; None: max(2, n - 1) of n.  With
            one language no head can be told to be general, and none is.

    Raises:
        InputError: if there are no scores, or the numbers make no sense.
    """
    if not scores:
        raise InputError("there are no scores of any language; give at least one")
    first = next(iter(scores.values()))
    geometry = first.geometry
    check_sets(len(scores), quantile, general_in)
    q = quantile_for(geometry) if quantile is None else quantile
    needed = max(2, len(scores) - 1) if general_in is None else general_in
    mask = geometry.mask()
    thresholds = {code: float(np.quantile(one.values[mask], q)) for code, one in scores.items()}
    important = {code: one.select(thresholds[code]) for code, one in scores.items()}
    counts = Counter(head for heads in important.values() for head in heads)
    mean = np.mean([one.values for one in scores.values()], axis=0)
    shared = [head for head, count in counts.items() if count >= needed]
    shared.sort(key=lambda head: (-counts[head], -mean[head.layer, head.head], head))
    general = HeadSet(geometry, tuple(shared), first.origin)
    specific = {
        code: HeadSet(
            geometry, tuple(head for head in heads if head not in general), scores[code].origin
        )
        for code, heads in important.items()
    }
    return LanguageSets(important, thresholds, general, needed, specific, dict(counts))


def expected_general(sizes: list[int], heads: int, needed: int) -> float:
    """How many of `heads` heads would be in at least `needed` of random sets of these sizes."""
    chances = np.ones(1)
    for size in sizes:
        share = size / heads
        chances = np.convolve(chances, [1 - share, share])
    return heads * math.fsum(chances[needed:])
