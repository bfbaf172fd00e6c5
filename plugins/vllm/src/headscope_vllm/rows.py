"""The gates of a step's requests, as the model multiplies with them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headscope_vllm.gates import Factors


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
        self._rows = dict[Factors, torch.Tensor]()

    def fill(self, gates: Sequence[Factors], tokens: Sequence[int]) -> None:
        """The gates of a step's requests, in the order of the batch, each with its tokens."""
        different = {gate: row for row, gate in enumerate(dict.fromkeys(filter(None, gates)), 1)}
        if different:
            if [*different] != [*self._rows]:
                # Most steps have the gates of the one before.
                known = self._rows
                self._rows = {
                    gate: known[gate] if gate in known else self._row(gate) for gate in different
                }
                rows = torch.stack([*self._rows.values()])
                self.factors[1 : len(rows) + 1] = rows.to(self.factors.device)
            of_token = torch.tensor([different.get(gate, 0) for gate in gates])
            of_token = of_token.repeat_interleave(torch.tensor(tokens))
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
