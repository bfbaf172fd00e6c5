"""Gradient descent on numbers that make a gate, while the model itself is frozen.

Shared by the methods that fit soft gates: some numbers, a way to make a gate of them, rows of
tokens whose ends are learned. A step that does not fit the memory is done in halves, a loss that
is no number stops the fit, and `Descent` can be kept and gone on with at any step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError

if TYPE_CHECKING:
    import torch

    from headscope.heads import Gate
    from headscope.lm import LanguageModel

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Sample:
    """A row of tokens of which those from `start` on are learned; `name` is for messages."""

    ids: tuple[int, ...]
    start: int
    name: str


@dataclass(frozen=True)
class Optimizer:
    """How numbers are moved: Adam (Kingma & Ba 2015) with decoupled weight decay.

    Attributes:
        learning_rate: of the first step.
        weight_decay: share of each number, times the learning rate, that a step takes off.
        clip_norm: longest gradient; a longer one is scaled down to it. None: as it is.
        last_rate: the learning rate falls or rises evenly to this one. None: it stays.
        steps: after so many steps it is reached.
    """

    learning_rate: float
    weight_decay: float = 0.0
    clip_norm: float | None = None
    last_rate: float | None = None
    steps: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"the learning rate is {self.learning_rate}; it must be above 0")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(f"the weight decay is {self.weight_decay}; it must be 0 or more")

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if self.last_rate is None:
            return self.learning_rate
        done = min(1.0, step / self.steps)
        return self.learning_rate + (self.last_rate - self.learning_rate) * done


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a fit stands after so many steps; all that is needed to go on with it.

    Attributes:
        values: the numbers, float32 (n,).
        first, second: Adam's two moments, float32 (n,).
        losses: mean loss of each step's rows, before the step, float64 (steps,).
    """

    values: Floats
    first: Floats
    second: Floats
    losses: NDArray[np.float64]

    @classmethod
    def begin(cls, values: Floats) -> Descent:
        """Before the first step."""
        return cls(
            values.astype(np.float32),
            np.zeros_like(values, dtype=np.float32),
            np.zeros_like(values, dtype=np.float32),
            np.zeros(0),
        )

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.losses)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a run keeps it."""
        names = ("values", "first", "second", "losses")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> Descent:
        """From what `arrays` gave."""
        return cls(*(arrays[name] for name in ("values", "first", "second", "losses")))


def descend(
    lm: LanguageModel,
    samples: Sequence[Sample],
    batches: Sequence[Sequence[int]],
    gate: Callable[[torch.Tensor], torch.Tensor],
    optimizer: Optimizer,
    begin: Descent,
    penalty: Callable[[torch.Tensor], torch.Tensor] | None = None,
    checkpointing: bool = False,
) -> Descent:
    """One step for each batch, from `begin` on.

    Args:
        lm: the model; frozen meanwhile and afterwards as it was.
        samples: all rows.
        batches: which rows each step learns from, at least one.
        gate: makes the gate, (L, W), of the numbers, (n,); differentiable.
        optimizer: how the numbers move.
        begin: where to start.
        penalty: a number that is added to the mean loss of each step's rows.
        checkpointing: compute layers again in the backward pass instead of keeping their values.

    Raises:
        InputError: if a loss or a gradient is no finite number; it names the row.
        torch.OutOfMemoryError: if memory does not suffice for a single row.
    """
    import torch

    from headscope.lm.batching import collate, in_halves
    from headscope.lm.losses import checkpointed, frozen, row_losses

    numbers = torch.nn.Parameter(torch.from_numpy(begin.values.copy()))
    adam = torch.optim.AdamW(
        [numbers], lr=optimizer.learning_rate, weight_decay=optimizer.weight_decay
    )
    adam.state[numbers] = {
        "step": torch.tensor(float(begin.steps)),
        "exp_avg": torch.from_numpy(begin.first.copy()),
        "exp_avg_sq": torch.from_numpy(begin.second.copy()),
    }
    losses = list(begin.losses)

    def work(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        batch = collate([samples[i].ids for i in rows], lm.pad_token_id)
        learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
        for at, i in enumerate(rows):
            learned[at, learned.shape[1] - len(samples[i].ids) + samples[i].start :] = True
        with lm.gated(gate(numbers)):
            found = row_losses(lm, batch, learned)
            (gradient,) = torch.autograd.grad(found.sum(), numbers)
        return found.detach().cpu(), gradient

    with frozen(lm), checkpointed(lm) if checkpointing else contextlib.nullcontext():
        for rows in batches:
            total, gradient = 0.0, torch.zeros_like(numbers)
            for some, (found, part) in in_halves([rows], work):
                _check([samples[i] for i in some], found, part)
                total += float(found.sum())
                gradient += part / len(rows)
            if penalty is not None:
                (part,) = torch.autograd.grad(penalty(numbers), numbers)
                gradient += part
            numbers.grad = gradient
            if optimizer.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_([numbers], optimizer.clip_norm)
            adam.param_groups[0]["lr"] = optimizer.rate(len(losses))
            adam.step()
            losses.append(total / len(rows))
    state = adam.state[numbers]
    return Descent(
        numbers.detach().numpy().copy(),
        state["exp_avg"].numpy().copy(),
        state["exp_avg_sq"].numpy().copy(),
        np.array(losses),
    )


def _check(samples: Sequence[Sample], losses: torch.Tensor, gradient: torch.Tensor) -> None:
    """Stop before a number that is none reaches the gates."""
    import torch

    for sample, loss in zip(samples, losses.tolist(), strict=True):
        if not np.isfinite(loss):
            raise _no_number(sample, loss)
    if not bool(torch.isfinite(gradient).all()):
        names = ", ".join(sample.name for sample in samples)
        raise InputError(
            f"{names}: the gradient is not finite; leave it out, lower the learning rate, or "
            "compute in another --dtype; what is done so far is kept"
        )


def mean_losses(
    lm: LanguageModel, samples: Sequence[Sample], gate: Gate, batch_tokens: int = 8192
) -> NDArray[np.float64]:
    """The mean loss of each row's learned tokens under a gate, in nats, float64 (rows,).

    Raises `InputError` naming the first row whose loss is no finite number.
    """
    from headscope.lm.losses import token_losses

    with lm.gated(gate):
        found = token_losses(lm, [s.ids for s in samples], [s.start for s in samples], batch_tokens)
    means = np.array([float(one.mean(dtype=np.float64)) for one in found])
    for sample, mean in zip(samples, means, strict=True):
        if not np.isfinite(mean):
            raise _no_number(sample, mean)
    return means


def _no_number(sample: Sample, loss: float) -> InputError:
    return InputError(
        f"{sample.name}: the loss of its answer is {loss}; leave it out, or compute in another "
        "--dtype; what is done so far is kept"
    )
