"""How much text of a language depends on each head, by gradients of its gate.

LAHIS, Liu et al. 2025 (arXiv 2511.07498): with g the gate of a head and L a document's mean
next-token loss, a head's importance for a language is mean over documents of |g ∂L/∂g|, times the
share of documents with g ∂L/∂g < 0 (those that raising the head would make likelier).  Heads above
a quantile are a language's important heads; those important in nearly all languages are general,
what is left of each language's is specific to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.documents import DocumentFile
from headscope.errors import InputError
from headscope.find.scoring import Resampled, RunPart, with_bounds
from headscope.heads import Head, HeadScores, HeadSet
from headscope.measure.intervals import bootstrap_score
from headscope.progress import Steps
from headscope.settings import GIVEN, UNSIGNED, Option

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

#: The quantile above which heads are important (the paper), and that for models of fewer heads than
#: so many, of which 4 % would be too few.
QUANTILE, LOWER_QUANTILE, FEW_HEADS = 0.96, 0.9, 256
Quantile = Annotated[
    float | None,
    Option(
        f"Heads above this quantile are important; without it {QUANTILE}, or {LOWER_QUANTILE} in a "
        f"model of fewer than {FEW_HEADS} heads.",
        metavar="Q",
    ),
]


@dataclass(frozen=True)
class Lahis(Resampled):
    """How heads are scored by LAHIS.

    Attributes:
        update_gate: as published: documents one at a time, in their order, each scored at the
            gate as it is before a step of AdamW lowers its loss; else the gate stays 1.
        learning_rate, weight_decay: of these steps.
        sums: type in which |g ∂L/∂g| is added up over documents, one after the other; bfloat16, as
            published, drops what is below 1/256 of the sum so far. Intervals are of exact sums.
        seed, batch_tokens, checkpoint: as of `FirstOrder`.
    """

    update_gate: Annotated[
        bool,
        Option(
            "As published: documents one by one, the gate trained a step after each.",
            panel="Expert",
        ),
    ] = False
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    sums: Annotated[
        Literal["bfloat16"] | None,
        Option(
            "Add up over documents in this type, as published; without it exactly.", panel="Expert"
        ),
    ] = field(default=None, metadata=GIVEN)
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


def lahis(
    lm: LanguageModel,
    documents: DocumentFile,
    config: Lahis = Lahis(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """Score every head by its importance for the language of some documents, cut at 2,048 tokens or
    the context.

    Raises `InputError` if a loss is no finite number, naming the document, or there is nothing to
    predict.

    Returns:
        Importance in nats a token, with bootstrap bounds over documents. `extra`: `magnitude`, the
            mean of |g ∂L/∂g|, and `raising`, the share of documents with g ∂L/∂g < 0. `statistics`,
            by document: `products` (g ∂L/∂g, float32), `losses` and `tokens`; from them every
            figure follows again without the model. `config` also tells `examples`, `left_out`
            (documents of a single token), `tokens` and `loss`, the mean loss of the documents.
    """
    from headscope.find.gate_gradients import gate_gradients, moving_gate_gradients, texts_of

    texts = texts_of(lm, documents)
    part = RunPart(run, documents.language or "documents")
    if config.update_gate:
        rates = config.learning_rate, config.weight_decay
        found = moving_gate_gradients(lm, texts, *rates, config.checkpoint, part, progress)
    else:
        found = gate_gradients(lm, texts, config.batch_tokens, config.checkpoint, part, progress)
    products = found.products
    bounds = bootstrap_score(_counted(products), _importance_of_sums, *config.bootstrap)
    extra = {
        "magnitude": np.abs(products).mean(axis=0, dtype=np.float64),
        "raising": (products < 0).mean(axis=0),
    }
    values = importance(products, config.sums)
    return with_bounds(
        lm, "lahis", config, run, values, bounds, extra, dict(vars(found)),
        found.about(documents),
    )  # fmt: skip


def importance(products: NDArray[Any], sums: str | None = None) -> NDArray[np.float64]:
    """mean |g ∂L/∂g| × share of g ∂L/∂g < 0, over the first dimension (documents)."""
    sizes = np.abs(products)
    magnitude = sizes.mean(axis=0, dtype=np.float64)
    if sums is not None:
        import torch

        total = torch.zeros(sizes.shape[1:], dtype=torch.bfloat16)
        for size in torch.from_numpy(sizes).to(torch.bfloat16):
            total += size
        magnitude = total.double().numpy() / len(sizes)
    return np.asarray(magnitude * (products < 0).mean(axis=0))


def _counted(products: NDArray[Any]) -> NDArray[np.float64]:
    """By document, (documents, 3 × heads): |g ∂L/∂g|, whether it is below 0, and 1 for counting."""
    flat = products.reshape(len(products), -1).astype(np.float64)
    return np.concatenate([np.abs(flat), flat < 0, np.ones((len(flat), 1))], axis=1)


def _importance_of_sums(sums: NDArray[Any]) -> NDArray[np.float64]:
    magnitude, raising = np.split(sums[:, :-1] / sums[:, -1:], 2, axis=1)
    return np.asarray(magnitude * raising)


@dataclass(frozen=True)
class LanguageSets:
    """Heads by what they are to several languages.

    Attributes:
        quantile: of a language's scores; heads strictly above it are important.
        important: for each language its important heads, by importance.
        thresholds: for each language the score at that quantile.
        general: heads in at least `general_in` of these sets, those of most languages first, then
            by mean importance.
        specific: for each language its important heads that are not general; may be empty.
        languages_of: in how many of the sets each head is, for heads in any.
    """

    quantile: float
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


def threshold(scores: HeadScores, quantile: float) -> float:
    """The score above which heads are important."""
    return float(np.quantile(scores.values[scores.geometry.mask()], quantile))


def language_sets(
    scores: Mapping[str, HeadScores],
    quantile: float | None = None,
    general_in: int | None = None,
) -> LanguageSets:
    """Sort heads into those of all languages and those of single ones.

    Args:
        scores: for each language, of one model.
        quantile: None: `QUANTILE`, or `LOWER_QUANTILE` of a small model.
        general_in: in how many languages' sets a general head is; None: max(2, n - 1) of n.  With
            one language no head can be told to be general, and none is.

    Raises `InputError` if there are no scores, or the numbers make no sense.
    """
    if not scores:
        raise InputError("there are no scores of any language; give at least one")
    first = next(iter(scores.values()))
    geometry = first.geometry
    check_sets(len(scores), quantile, general_in)
    usual = LOWER_QUANTILE if geometry.total < FEW_HEADS else QUANTILE
    used = usual if quantile is None else quantile
    needed = max(2, len(scores) - 1) if general_in is None else general_in
    thresholds = {code: threshold(part, used) for code, part in scores.items()}
    important = {code: part.select(thresholds[code]) for code, part in scores.items()}
    counts = Counter(head for heads in important.values() for head in heads)
    mean = np.mean([language_scores.values for language_scores in scores.values()], axis=0)
    shared = [head for head, count in counts.items() if count >= needed]
    shared.sort(key=lambda head: (-counts[head], -mean[head.layer, head.head], head))
    general = HeadSet(geometry, tuple(shared), first.origin)
    specific = {
        code: HeadSet(
            geometry, tuple(head for head in heads if head not in general), scores[code].origin
        )
        for code, heads in important.items()
    }
    return LanguageSets(used, important, thresholds, general, needed, specific, dict(counts))


def expected_general(sizes: list[int], heads: int, needed: int) -> float:
    """How many of `heads` heads would be in at least `needed` of random sets of these sizes."""
    chances = np.ones(1)
    for size in sizes:
        share = size / heads
        chances = np.convolve(chances, [1 - share, share])
    return heads * math.fsum(chances[needed:])
