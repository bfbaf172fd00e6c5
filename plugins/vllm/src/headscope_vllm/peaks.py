"""Where heads look: for each written token the key with a head's largest weight, and the weight."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from headscope.heads import Head

#: Tokens of a text up to which keys are kept, and bytes of all keys: the engine's own cache does
#: not count them.
LONGEST, HELD = 32_768, 1 << 29
FULL = "there is no memory left for their keys"


@dataclass(frozen=True)
class Part:
    """What a step computes of a request that asks for peaks.

    Attributes:
        name: the request's.
        heads: what it asks for, by layer, as numbers of this process.
        start: its first token among those of the step.
        position: the place of that token in its text.
        tokens: how many there are.
        prompt: tokens of its prompt.
    """

    name: str
    heads: Mapping[int, tuple[int, ...]]
    start: int
    position: int
    tokens: int
    prompt: int


@dataclass
class Found:
    """Of a request, by layer and head, and by the place of a token in its text: the key with the
    largest weight while the next token is written, and the weight. Or why there is none."""

    peaks: dict[tuple[int, int], dict[int, tuple[int, float]]] = field(default_factory=dict)
    error: str = ""


@dataclass
class _Kept:
    """Keys so far of a request, by layer: (positions, heads, width), and how many are known."""

    keys: dict[int, torch.Tensor] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    error: str = ""


class Peaks:
    """Peaks of the requests of a model's process.

    Keys are those that kernels get, of the heads asked for alone; the requests share no prefix, so
    that every key passes by. No matrix of weights is made.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._kept: dict[str, _Kept] = {}
        self._news: dict[str, Found] = {}

    def begin(self, parts: Sequence[Part], requests: Container[str]) -> None:
        """What a step computes; keys of others than these requests are no longer kept."""
        self.parts = [*parts]
        self._kept = {name: kept for name, kept in self._kept.items() if name in requests}
        for part in parts:
            self._kept.setdefault(part.name, _Kept())

    def news(self) -> dict[str, Found]:
        """What was found since the last time."""
        news, self._news = self._news, {}
        return news

    def look(
        self, layer: int, attention: Any, query: torch.Tensor, key: torch.Tensor | None
    ) -> None:
        """What a layer's kernel gets in this step: query (tokens, heads, width), and its keys; None
        where it takes another layer's."""
        for part in self.parts:
            own = self._kept[part.name]
            if layer not in part.heads or own.error:
                continue
            try:
                self._look(part, layer, attention, query, key)
            except torch.OutOfMemoryError:
                own.error = FULL
            except Exception as error:  # the step is of other requests, too
                own.error = f"they cannot be computed ({error})"
            if own.error:
                own.keys.clear()
                self._news.setdefault(part.name, Found()).error = own.error

    def _look(
        self, part: Part, layer: int, attention: Any, query: torch.Tensor, key: torch.Tensor | None
    ) -> None:
        heads, own = part.heads[layer], self._kept[part.name]
        last = part.position + part.tokens - 1
        if key is None or part.position > own.known.get(layer, 0):
            own.error = f"keys of layer {layer} did not pass by"
        if last >= LONGEST:
            own.error = f"the text is longer than {LONGEST} tokens"
        own.error = _unlike(attention) or own.error
        if own.error or key is None:
            return
        group = attention.num_heads // attention.num_kv_heads
        rows = slice(part.start, part.start + part.tokens)
        shared = sorted({head // group for head in heads})
        if not self._kept_with(own, layer, part.position, key[rows, shared]):
            own.error = FULL
            return
        found = self._news.setdefault(part.name, Found())
        if last >= part.prompt - 1:
            # It predicts a token that is written, and is none of a prompt read in parts.
            keys = own.keys[layer][: last + 1, [shared.index(head // group) for head in heads]]
            weights = weights_of(attention, query[rows][-1, [*heads]], keys, heads)
            largest = weights.max(dim=1)
            pairs = zip(largest.indices.tolist(), largest.values.tolist(), strict=True)
            first = len(keys) - weights.shape[1]
            for head, (place, weight) in zip(heads, pairs, strict=True):
                found.peaks.setdefault((layer, head), {})[last] = (first + place, weight)

    def _kept_with(self, own: _Kept, layer: int, position: int, new: torch.Tensor) -> bool:
        """Keep a layer's keys with these at their position; False where that were more than
        `HELD`."""
        end, old = position + len(new), own.keys.get(layer)
        if old is None or end > len(old):
            room = max(256, end + end // 4)
            every = sum(keys.nbytes for kept in self._kept.values() for keys in kept.keys.values())
            if every + room * new[0].nbytes > HELD:
                return False
            own.keys[layer] = new.new_empty(room, *new.shape[1:])
            if old is not None:
                own.keys[layer][: len(old)] = old
        own.keys[layer][position:end] = new
        # A request that gives way is read again from its first token.
        own.known[layer] = max(end, own.known.get(layer, 0))
        return True


class Answers:
    """What was found of requests, where they end."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def add(self, news: Mapping[str, Found]) -> None:
        """What a step found."""
        for name, new in news.items():
            found = self._found.setdefault(name, Found())
            found.error = found.error or new.error
            for head, peaks in new.peaks.items():
                found.peaks.setdefault(head, {}).update(peaks)

    def take(self, name: str, written: int) -> dict[str, Any] | None:
        """Of a request that ends, and is no longer kept: by head a key and a weight for each of its
        written tokens, or an `error`; None for a request that did not ask."""
        found = self._found.pop(name, None)
        if found is None:
            return None
        if found.error:
            return {"error": found.error}
        return {
            Head(*head).key: [[*pair] for _, pair in sorted(peaks.items())[:written]]
            for head, peaks in sorted(found.peaks.items())
        }


def _unlike(attention: Any) -> str:
    """Why the weights of a layer are not those that are computed here; empty where they are."""
    if getattr(attention.impl, "alibi_slopes", None) is not None:
        return "weights depend on distances (ALiBi), which is not computed"
    if getattr(attention, "kv_sharing_target_layer_name", None) is not None:
        return "keys are another layer's, which is not computed"
    name = type(attention).__name__
    return "" if name == "Attention" else f"weights of {name} are not computed"


def weights_of(
    attention: Any, query: torch.Tensor, keys: torch.Tensor, heads: Sequence[int]
) -> torch.Tensor:
    """Weights of one query on the keys that it sees, (heads, keys), float32.

    `query`: (heads, width); `keys`: (positions, heads, width), of which the last is its own.
    """
    kernel = attention.impl
    if attention.sliding_window is not None:
        keys = keys[-attention.sliding_window :]
    scores = torch.einsum("hd,khd->hk", query.float(), keys.float()) * kernel.scale
    cap = getattr(kernel, "logits_soft_cap", None)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    sinks = getattr(kernel, "sinks", None)
    if sinks is not None:
        with_sink = torch.cat([scores, sinks[[*heads]].float().unsqueeze(1)], dim=1)
        return torch.softmax(with_sink, dim=1)[:, :-1]
    return torch.softmax(scores, dim=1)
