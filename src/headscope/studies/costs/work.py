"""The work of an experiment in numbers that hold for any model: tokens, by what is done to them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Tokens that go through a model, counted over all rows and conditions.

    Attributes:
        forward: tokens of forward passes alone (losses, peaks, teacher forcing).
        backward: tokens of passes with a gradient for gates, the parameters being frozen.
        training: tokens of passes with gradients for all parameters.
        generated: tokens that are written one after the other, over all rows.
        length: mean tokens of a row, which attention's quadratic share depends on.
        rows: rows of a batch, hence of one step of generation.
        calls: passes (and steps of generation) that these tokens are spread over.
    """

    forward: float = 0.0
    backward: float = 0.0
    training: float = 0.0
    generated: float = 0.0
    length: float = 0.0
    rows: float = 1.0
    calls: float = 0.0

    @property
    def tokens(self) -> float:
        """All tokens, whatever is done to them."""
        return self.forward + self.backward + self.training + self.generated

    def __add__(self, other: Work) -> Work:
        """Both, one after the other; lengths and rows are means weighted by tokens."""
        total = self.tokens + other.tokens

        def mean(own: float, others: float) -> float:
            if not total:
                return max(own, others)
            return (own * self.tokens + others * other.tokens) / total

        return Work(
            self.forward + other.forward,
            self.backward + other.backward,
            self.training + other.training,
            self.generated + other.generated,
            mean(self.length, other.length),
            mean(self.rows, other.rows),
            self.calls + other.calls,
        )

    def __mul__(self, times: float) -> Work:
        """The same so many times."""
        return Work(
            self.forward * times,
            self.backward * times,
            self.training * times,
            self.generated * times,
            self.length,
            self.rows,
            self.calls * times,
        )
