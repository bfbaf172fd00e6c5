"""The gates of a step's requests, as the model multiplies with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from headscope_vllm.gates import Factors


class Asked(NamedTuple):
    """The gate of a request: what it is known by ("" for none), and its factors."""

    digest: str = ""
    factors: Factors = ()


class GateRows:
    """A row of factors for each different gate of a step, and each token's row.

    Both lie where they were made for as long as the model does, so that recorded graphs of it read
    what is written here before a step. Row 0 holds ones, for tokens of requests without a gate and
    for padding.

    Attributes:
        factors: (rows, layers, heads of this process), float32.
        of_token: the row of each token of a step, int64.
        active: whether any token of the step has a gate.
    """

    def __init__(
        self, layers: int, heads: range, tokens: int, requests: int, device: torch.device
    ) -> None:
        self.heads = heads
        self.factors = torch.ones(requests + 1, layers, len(heads), device=device)
        self.of_token = torch.zeros(tokens, dtype=torch.long, device=device)
        self.active = False
        self._rows = dict[str, torch.Tensor]()
        self._step: tuple[list[str], list[int]] = [], []

    def fill(self, gates: Sequence[Asked], tokens: Sequence[int]) -> None:
        """The gates of a step's requests, in the order of the batch, each with its tokens.

        Most steps have those of the one before, and nothing is written then.
        """
        step = [gate.digest for gate in gates], [*tokens]
        if step == self._step:
            return
        self._step = step
        different = {gate.digest: gate for gate in gates if gate.digest}
        if different and [*different] != [*self._rows]:
            known = self._rows
            self._rows = {
                digest: known[digest] if digest in known else self._row(gate.factors)
                for digest, gate in different.items()
            }
            rows = torch.stack([*self._rows.values()])
            self.factors[1 : len(rows) + 1] = rows.to(self.factors.device)
        if different:
            row = {digest: number for number, digest in enumerate(different, 1)}
            of_token = torch.tensor([row.get(gate.digest, 0) for gate in gates])
            of_token = of_token.repeat_interleave(torch.tensor(step[1]))
            self.of_token[: len(of_token)] = of_token.to(self.of_token.device)
            self.of_token[len(of_token) :] = 0
        elif self.active:
            self.of_token.zero_()
        self.active = bool(different)

    def _row(self, gate: Factors) -> torch.Tensor:
        row = torch.ones(self.factors.shape[1:])
        for layer, head, factor in gate:
            if head in self.heads:
                row[layer, head - self.heads.start] = factor
        return row

    def multiply(self, layer: int, written: torch.Tensor) -> None:
        """Multiply in place what the heads of a layer wrote: (tokens, heads, width)."""
        factors = self.factors[self.of_token[: len(written)], layer]
        written *= factors.to(written.dtype).unsqueeze(-1)
