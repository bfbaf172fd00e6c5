"""The ways of scoring documents that `rate.py` compares, and how much work they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from timing import wait

from headscope.heads import Gate
from headscope.lm.batching import collate, length_buckets
from headscope.lm.inputs import forward_inputs
from headscope.lm.losses import token_losses
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import replaced_forwards
from headscope.use.rating import Rated, Rating, rate_texts

#: Means of the losses of one text: as it is and, where both were asked for, under the gate.
Means = list[tuple[float, ...]]


class Ways:
    """The same documents scored in several ways, tokenised anew by each."""

    def __init__(self, lm: LanguageModel, gate: Gate, batch_tokens: int, longest: int) -> None:
        self.lm, self.gate = lm, gate
        self.batch_tokens, self.longest = batch_tokens, longest

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.lm.encode(text)[: self.longest] for text in texts]

    def plain(self, texts: Sequence[str]) -> Means:
        """One plain pass: logits of a batch, one cross-entropy in 32 bits."""
        rows = self.encode(texts)
        return [(mean,) for mean in self._plain(rows)]

    def plain_in_chunks(self, texts: Sequence[str]) -> Means:
        """One pass with logits for some positions at a time."""
        rows = self.encode(texts)
        found = token_losses(self.lm, rows, batch_tokens=self.batch_tokens)
        return [(float(losses.mean()),) for losses in found]

    def two_passes(self, texts: Sequence[str]) -> Means:
        """Two plain passes, the second under the gate."""
        rows = self.encode(texts)
        full = self._plain(rows)
        with self.lm.gated(self.gate):
            removed = self._plain(rows)
        return list(zip(full, removed, strict=True))

    def trater(self, texts: Sequence[str]) -> Means:
        config = Rating(batch_tokens=self.batch_tokens, max_tokens=self.longest)
        found = rate_texts(self.lm, texts, self.gate, config)
        return [(rated.nll_full, rated.nll_removed) for rated in found if isinstance(rated, Rated)]

    def tokenising(self, texts: Sequence[str]) -> Means:
        self.encode(texts)
        return []

    def outside_the_layers(self, texts: Sequence[str]) -> Means:
        """A plain pass in which every decoder layer hands on what it was given."""

        def hand_on(*args: Any, **kwargs: Any) -> Any:
            return args[0] if args else kwargs["hidden_states"]

        with replaced_forwards(self.lm.model, self.lm.decoder_layers, hand_on):
            return self.plain(texts)

    def _plain(self, rows: list[list[int]]) -> list[float]:
        means = [0.0] * len(rows)
        for places, batch in self._batches(rows):
            logits = self.lm.model(**forward_inputs(self.lm.model, batch)).logits[:, :-1]
            targets = batch.input_ids[:, 1:].to(logits.device)
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), targets.flatten(), reduction="none"
            ).view(targets.shape)
            counted = batch.attention_mask[:, :-1].to(logits.device)
            sums = (losses * counted).sum(dim=1) / counted.sum(dim=1)
            for place, mean in zip(places, sums.tolist(), strict=True):
                means[place] = mean
        return means

    def _batches(self, rows: list[list[int]]) -> Iterator[tuple[list[int], Any]]:
        lengths = [len(row) for row in rows]
        for places in length_buckets(lengths, self.batch_tokens, self.lm.pass_overhead):
            yield places, collate([rows[place] for place in places], self.lm.pad_token_id)


def operations(lm: LanguageModel, lengths: Sequence[int], first: int) -> float:
    """Multiplications and additions of matrix products that TRater needs, without padding.

    Linear maps of all layers once and of those from ``first`` on once more, the head twice, and of
    attention the half of the square that a token may see.
    """
    parts = [
        sum(
            module.weight.numel()
            for module in layer.modules()
            if isinstance(module, torch.nn.Linear)
        )
        for layer in lm.decoder_layers
    ]
    head = int(lm.model.get_output_embeddings().weight.numel())
    twice = parts + parts[first:]
    widths = {site.layer: site.heads * site.head_width for site in lm.sites}
    attended = sum(widths.values()) + sum(w for layer, w in widths.items() if layer >= first)
    tokens = sum(lengths)
    predicted = tokens - len(lengths)
    pairs = sum(length * (length + 1) / 2 for length in lengths)
    return 2.0 * (sum(twice) * tokens + 2 * head * predicted + 2 * attended * pairs)


def matrix_peak(lm: LanguageModel, clock: Any, seconds: float = 2.0) -> dict[str, float]:
    """Operations a second of the fastest large square matrix product in the model's dtype."""
    best = {"size": 0.0, "operations_per_second": 0.0}
    for size in (1024, 2048) if lm.device.type == "cpu" else (4096, 8192, 16384):
        one = torch.randn(size, size, device=lm.device).to(lm.dtype)
        other = torch.randn(size, size, device=lm.device).to(lm.dtype)
        with contextlib.suppress(torch.OutOfMemoryError):
            one @ other  # the first product chooses its kernel
            wait(lm)
            start, times = clock(), 0
            while times < 3 or clock() - start < seconds:
                one @ other
                times += 1
                if times % 10 == 0:
                    wait(lm)
            wait(lm)
            rate = 2.0 * size**3 * times / (clock() - start)
            if rate > best["operations_per_second"]:
                best = {"size": float(size), "operations_per_second": rate}
    return best
