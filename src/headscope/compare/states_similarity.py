"""Hidden states at the last input token: as is, instructed, masked, and both.

After Heads Up! (ICML 2025), figure 4 and table 41: if a mask makes the model carry out a task
without being told, the states it passes through should come to resemble those of the instructed
model, more than those of the model as it is do. Measured for every layer, after its attention and
after the whole layer, as the cosine between states, over many samples; shuffled masks of the same
size are the control. The logit lens says what each layer would say if it were the last.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.estimates import Mean
from headscope.evidence.rows import ORIGINAL, SELECTED, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.measure import bootstrap_interval, rate_interval
from headscope.measure.statistics import counted
from headscope.results.states import ByPlace, Pair, Rank, SharedTop, StatesFound

if TYPE_CHECKING:
    import torch

    from headscope.heads.adaptation import Adaptation
    from headscope.lm import LanguageModel
    from headscope.lm.states import States

CONDITIONS = ("as is", "instructed", "masked", "masked, instructed")
"""The bare and the instructed prompt, each by the whole model and by the masked one."""

PAPER = (
    ("as is", "instructed"),
    ("instructed", "masked"),
    ("masked", "masked, instructed"),
)
"""The pairs of the paper's figure 4: blue, red and green."""

PAIRS = tuple(PAPER) + tuple(pair for pair in combinations(CONDITIONS, 2) if pair not in PAPER)
"""Every two conditions, the paper's first."""

PLACES = ("after attention", "after layer")
COSINE = Statistic("cosine with the instructed model", bounds=(-1.0, 1.0))
"""The mean over the later half of the layers, after each layer, at the last input token."""

#: The condition that shuffled masks are held against.
_REFERENCE = "instructed"

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sample:
    """One sample as tokens: both prompts up to the last input token, and what should come next.

    `name` says in messages where it stands.
    """

    bare: tuple[int, ...]
    instructed: tuple[int, ...]
    target: int
    name: str = "a sample"


def observe(
    lm: LanguageModel,
    samples: Sequence[Sample],
    mask: Adaptation,
    controls: Mapping[str, Sequence[Adaptation]],
    top: int = 5,
    batch_tokens: int = 8192,
) -> Tensors:
    """All that is kept of some samples, n of them, under a mask and random ones (`controls` by
    their names); the lens shows `top` tokens, k.

    Raises `InputError` if the mask is not of this model, `top` is below 1, or states are no finite
    numbers, naming the sample.

    Returns:
        `cosines` float32 (pairs, n, 2, L), in the order of `PAIRS`, after attention and after the
            layer; for each control float32 (draws, n, 2, L), the cosine between the bare
            prompt under a random mask and the instructed prompt; `lens_tokens` int32 and
            `lens_logits` float32 (conditions, n, L + 1, k), the likeliest tokens of the embedding
            and of each layer; `ranks` int32 (conditions, n, L + 1), of the target's first token.
    """
    import torch

    from headscope.lm.states import states

    if top < 1:
        raise InputError(f"top is {top}; the lens shows at least 1 token")
    bare = [sample.bare for sample in samples]
    instructed = [sample.instructed for sample in samples]

    def under(masking: Adaptation | None, rows: Sequence[Sequence[int]]) -> States:
        with contextlib.nullcontext() if masking is None else lm.adapted(masking):
            seen_states = states(lm, rows, batch_tokens=batch_tokens)
        _check_finite(seen_states, samples)
        return seen_states

    seen = {
        "as is": under(None, bare),
        "instructed": under(None, instructed),
        "masked": under(mask, bare),
        "masked, instructed": under(mask, instructed),
    }
    arrays: Tensors = {"cosines": np.stack([cosines(seen[a], seen[b]) for a, b in PAIRS])}
    nothing = np.zeros((0, *arrays["cosines"].shape[1:]), dtype=np.float32)
    for name, gates in controls.items():
        rows = [cosines(under(gate, bare), seen[_REFERENCE]) for gate in gates]
        arrays[name] = np.stack(rows) if rows else nothing
    targets = torch.tensor([sample.target for sample in samples])
    arrays |= _through_the_lens(lm, [seen[name] for name in CONDITIONS], targets, top)
    return arrays


def _check_finite(seen: States, samples: Sequence[Sample]) -> None:
    import torch

    fine = torch.isfinite(seen.after_layer).flatten(1).all(dim=1)
    if not bool(fine.all()):
        first = int((~fine).nonzero()[0])
        raise InputError(
            f"{samples[first].name}: its hidden states are no finite numbers; leave it out, or "
            "compute in another --dtype"
        )


def cosines(first: States, other: States) -> NDArray[np.float32]:
    """The cosine of two models' states, float32 (n, 2, L): after attention, after the layer."""
    import torch

    both = [
        torch.cosine_similarity(a.double(), b.double(), dim=-1)
        for a, b in (
            (first.after_attention, other.after_attention),
            (first.after_layer, other.after_layer),
        )
    ]
    similarity: NDArray[np.float32] = torch.stack(both, dim=1).float().numpy()
    return similarity


def _through_the_lens(
    lm: LanguageModel, seen: Sequence[States], targets: torch.Tensor, top: int
) -> Tensors:
    import torch

    from headscope.lm.lens import lens, token_ranks

    tokens, logits, ranks = [], [], []
    for part in seen:
        stream = torch.cat([part.embedding[:, None], part.after_layer], dim=1)
        best = lens(lm, stream, top)
        wanted = targets[:, None, None].expand(*stream.shape[:-1], 1)
        tokens.append(best.tokens.int().numpy())
        logits.append(best.logits.numpy())
        ranks.append(token_ranks(lm, stream, wanted)[..., 0].int().numpy())
    return {
        "lens_tokens": np.stack(tokens),
        "lens_logits": np.stack(logits),
        "ranks": np.stack(ranks),
    }


Floats = NDArray[np.floating[Any]]

#: Pairs whose likeliest tokens are counted against each other.
_SHARED = (("as is", "instructed"), ("masked", "instructed"), ("masked", "masked, instructed"))


def states_evidence(
    tensors: Mapping[str, NDArray[Any]], part: str, conditions: Sequence[Condition]
) -> Evidence:
    """How near the masked model comes to the instructed one, beside the original model and random
    masks, from the arrays of `observe` over all samples of a task, the only part.

    `conditions` are the original, the mask, and the draws of each control in their order.
    """
    cosines = {ORIGINAL: _pair(tensors, "as is", "instructed"),
               SELECTED: _pair(tensors, "instructed", "masked")}  # fmt: skip
    drawn = [
        cosines[condition.kind]
        if condition.draw is None
        else tensors[condition.kind][condition.draw]
        for condition in conditions
    ]
    numbers = [counted(_later(similarity.astype(np.float64))) for similarity in drawn]
    return evidence(
        conditions,
        {part: {"cosine": numbers}},
        {"cosine": COSINE},
        helps=lambda condition: True,
        by_size=False,
    )


def describe(tensors: Mapping[str, NDArray[Any]], controls: Sequence[str]) -> StatesFound:
    """What the arrays of `observe` over all samples show by layer.

    Intervals are of the bootstrap over samples, and `nearer` has paired differences.
    """
    masked = _pair(tensors, "instructed", "masked")
    others = {ORIGINAL: _pair(tensors, "as is", "instructed")}
    means = {name: tensors[name].astype(np.float64).mean(axis=0)
             for name in controls if len(tensors[name])}  # fmt: skip
    return StatesFound(
        samples=masked.shape[0],
        layers=masked.shape[2],
        pairs=tuple(
            Pair(
                a=a,
                b=b,
                kind="paper" if (a, b) in PAPER else "other",
                **_by_place(_pair(tensors, a, b)),
            )
            for a, b in PAIRS
        ),
        controls={name: ByPlace(**_by_place(mean)) for name, mean in means.items()},
        nearer={
            name: ByPlace(**_by_place(masked - cosine)) for name, cosine in (others | means).items()
        },
        shared_top=_shared(tensors["lens_tokens"]),
        target_ranks=_ranks(tensors["ranks"].astype(np.float64)),
    )


def _pair(tensors: Mapping[str, NDArray[Any]], a: str, b: str) -> Floats:
    """The cosines of two conditions, (n, 2, L)."""
    cosines: Floats = tensors["cosines"][PAIRS.index((a, b))].astype(np.float64)
    return cosines


def _by_place(values: Floats) -> dict[str, Any]:
    """Of (n, 2, L), after attention and after the layer, the fields of a `ByPlace`."""
    return {name.replace(" ", "_"): _rows(values[:, at]) for at, name in enumerate(PLACES)}


def _rows(values: Floats) -> tuple[Mean, ...]:
    interval = bootstrap_interval(values, np.ones(len(values)))
    rows = (values.mean(axis=0), np.asarray(interval.low), np.asarray(interval.high))
    return tuple(map(Mean, *(row.tolist() for row in rows)))


def _later(values: Floats) -> Floats:
    """Of (n, 2, L) the mean over the later half of the layers, after the layer: (n,)."""
    later: Floats = values[:, 1, values.shape[2] // 2 :].mean(axis=1)
    return later


def _shared(tokens: NDArray[Any]) -> tuple[SharedTop, ...]:
    """The share of the likeliest tokens that two conditions have in common, by layer.

    The first of L + 1 rows is that of the embedding.
    """
    at = {name: number for number, name in enumerate(CONDITIONS)}
    rows = []
    for a, b in _SHARED:
        first, other = tokens[at[a]], tokens[at[b]]
        same = (first[..., :, None] == other[..., None, :]).any(axis=-1)
        counts, totals = same.sum(axis=-1), np.full(len(same), same.shape[-1])
        ends = (same.mean(axis=(0, -1)), *rate_interval(counts, totals))
        rows.append(SharedTop(a, b, tuple(map(Mean, *(end.tolist() for end in ends)))))
    return tuple(rows)


def _ranks(ranks: Floats) -> dict[str, tuple[Rank, ...]]:
    """The rank of the target's first token by condition and layer, the embedding's first."""
    return {
        name: tuple(
            Rank(median, *map(math.exp, (log.mean, log.low, log.high)))
            for median, log in zip(
                np.median(sample_ranks, axis=0).tolist(), _rows(np.log(sample_ranks)), strict=True
            )
        )
        for name, sample_ranks in zip(CONDITIONS, ranks, strict=True)
    }
