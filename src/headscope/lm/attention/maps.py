"""The attention of one text as an array, for looking at single sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Geometry, HeadSet
from headscope.heads.geometry import HeadLike
from headscope.lm.attention.weights import WeightRequest, weights_in
from headscope.lm.tokens import joint_after

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@dataclass(frozen=True, eq=False)
class Attention:
    """What every token of a text attends to; `attention[5, 1]` is one head's (T, T).

    Attributes:
        weights: float32 (L, W, T, T), read-only: layers, heads, queries, keys. The softmax weights
            that the model computes; a query's sum to 1 (to less where the model has a sink, or keys
            of prefix tuning, which are left out), and later keys have 0. NaN where the model has
            no head, or where it was not asked for.
        tokens: the texts of the T tokens, special ones included.
        geometry: the heads of the model.
    """

    weights: NDArray[np.float32]
    tokens: tuple[str, ...]
    geometry: Geometry

    def __getitem__(self, head: HeadLike) -> NDArray[np.float32]:
        head = self.geometry.check(head)
        own: NDArray[np.float32] = self.weights[head.layer, head.head]
        return own

    def __repr__(self) -> str:
        return f"Attention({self.geometry}, {len(self.tokens)} tokens)"


def attention_of(
    lm: LanguageModel,
    text: str | tuple[str, str],
    heads: HeadSet | HeadLike | Iterable[HeadLike] | None = None,
) -> Attention:
    """The attention of a text, or of a prompt and its answer, in one pass of the model.

    A text is read as `lm.encode` reads it, a prompt and its answer as one text, with a space
    between them unless the prompt ends in white space; no chat template is applied. `heads`: which,
    in any form; None: all. Memory: 4 bytes × L × W × T². Inside `lm.gated` it is that of the gated
    model. Raises `InputError` for a head that the model lacks, for a text without tokens or beyond
    the context, and as `headscope.lm.attention.weights` does where the weights do not explain what
    the model computed.
    """
    if not isinstance(text, str):
        prompt, answer = text
        text = f"{prompt}{joint_after(prompt)}{answer}"
    ids = lm.encode(text)
    if not ids:
        raise InputError("the text has no tokens; give one that has")
    lm.check_lengths([ids])
    wanted = None if heads is None else HeadSet.of(lm.geometry, heads).heads
    found = weights_in(lm, lm.collate([ids]), WeightRequest(torch.arange(len(ids))[None], wanted))
    weights = np.full((*lm.geometry.shape, len(ids), len(ids)), np.nan, dtype=np.float32)
    for at, head in enumerate(found.heads):
        weights[head.layer, head.head] = found.weights[:, at].cpu().numpy()
    weights.flags.writeable = False
    return Attention(weights, tuple(lm.decode([i], special=True) for i in ids), lm.geometry)


def attention_to_words(
    weights: NDArray[np.float32], member: NDArray[np.bool_], heads: Sequence[int] | None = None
) -> NDArray[np.float32]:
    """What each query pays to each word, the mean over heads, float32 (R, words).

    `weights` (R, N, K) are those of N heads on K keys, of which `member` (K, words) says what word
    each belongs to: a word gets the sum of its keys. `heads` are places among the N; None: all.
    """
    chosen = weights if heads is None else weights[:, list(heads)]
    words: NDArray[np.float32] = chosen.mean(axis=1) @ member.astype(np.float32)
    return words
