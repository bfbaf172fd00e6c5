"""Gradient descent on numbers that make a gate, while the model itself is frozen.

Shared by the methods that fit soft gates: some numbers, a way to make a gate of them, rows of
tokens whose ends are learned. A step that does not fit the memory is done in halves, a loss that
is no number stops the fit, and `Descent` can be kept and gone on with at any step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError

if TYPE_CHECKING:
    import torch

    from headscope.heads import Gate, Geometry
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered

Floats = NDArray[np.float32]


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
        zeros = np.zeros_like(values, dtype=np.float32)
        return cls(values.astype(np.float32), zeros, zeros, np.zeros(0))

    @property
    def steps(self) -> int:
        """Steps done."""
        return len(self.losses)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As a run keeps it."""
        return dict(vars(self))

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> Descent:
        """From what `arrays` gave, among others."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})


def descend(
    lm: LanguageModel,
    samples: Sequence[Answered],
    batches: Sequence[Sequence[int]],
    gate: Callable[[torch.Tensor], torch.Tensor],
    optimizer: Optimizer,
    begin: Descent,
    penalty: Callable[[torch.Tensor], torch.Tensor] | None = None,
    checkpointing: bool = False,
) -> Descent:
    """One step for each batch of samples, from `begin` on; the model is frozen meanwhile.

    Raises `InputError` if a loss or a gradient is no finite number, naming the row;
    `torch.OutOfMemoryError` if memory does not suffice for a single row.

    Args:
        batches: which rows each step learns from, at least one.
        gate: makes the gate, (L, W), of the numbers, (n,); differentiable.
        penalty: a number that is added to the mean loss of each step's rows.
        checkpointing: compute layers again in the backward pass instead of keeping their values.
    """
    import torch

    from headscope.lm.batching import in_halves
    from headscope.lm.losses import checkpointed, frozen

    numbers = torch.nn.Parameter(torch.from_numpy(begin.values.copy()))
    adam = adam_after(numbers, begin.steps, begin.first, begin.second, optimizer.weight_decay)
    losses = list(begin.losses)

    def work(rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        with lm.gated(gate(numbers)):
            found = answer_losses(lm, [samples[i] for i in rows])
            (gradient,) = torch.autograd.grad(found.sum(), numbers)
        return found.detach().cpu(), gradient

    with frozen(lm.model), checkpointed(lm) if checkpointing else contextlib.nullcontext():
        for rows in batches:
            total, gradient = 0.0, torch.zeros_like(numbers)
            apart = lm.separated([len(samples[i].ids) for i in rows])
            batch = [[rows[at] for at in some] for some in apart]
            for some, (nats, part) in in_halves(batch, work):
                check_finite([samples[i] for i in some], nats, part)
                total += float(nats.sum())
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


def adam_after(
    numbers: torch.Tensor, steps: int, first: Floats, second: Floats, weight_decay: float = 0.0
) -> torch.optim.AdamW:
    """AdamW over some numbers after so many steps, with its moments as they were then.

    Its learning rate is to be set before each step.
    """
    import torch

    adam = torch.optim.AdamW([numbers], lr=1.0, weight_decay=weight_decay)
    moments = (torch.from_numpy(moment.copy()).to(numbers.device) for moment in (first, second))
    kept = dict(zip(("exp_avg", "exp_avg_sq"), moments, strict=True))
    adam.state[numbers] = {"step": torch.tensor(float(steps)), **kept}
    return adam


def gate_maker(geometry: Geometry, places: ArrayLike) -> Callable[[torch.Tensor], torch.Tensor]:
    """Puts numbers (n,) at these places of a flat gate into a gate (L, W) that is 1 elsewhere."""
    import torch

    at = torch.as_tensor(np.asarray(places))

    def make(values: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(geometry.layers * geometry.width)
        return ones.index_put((at,), values).view(geometry.shape)

    return make


def answer_losses(lm: LanguageModel, samples: Sequence[Answered]) -> torch.Tensor:
    """The mean loss of each row's learned tokens, (rows,) with a graph, from one pass."""
    from headscope.lm.losses import answer_batch, row_losses

    return row_losses(lm, *answer_batch(lm, [(sample.ids, sample.start) for sample in samples]))


def check_finite(samples: Sequence[Answered], losses: torch.Tensor, gradient: torch.Tensor) -> None:
    """Stop before a number that is none reaches the gates; `InputError` naming the row."""
    import torch

    for sample, loss in zip(samples, losses.detach().tolist(), strict=True):
        if not np.isfinite(loss):
            raise _no_number(sample, loss)
    if not bool(torch.isfinite(gradient).all()):
        names = ", ".join(sample.name for sample in samples)
        raise InputError(
            f"{names}: the gradient is not finite; leave it out, lower the learning rate, or "
            "compute in another --dtype; what is done so far is kept"
        )


def mean_losses(
    lm: LanguageModel, samples: Sequence[Answered], gate: Gate, batch_tokens: int = 8192
) -> NDArray[np.float64]:
    """The mean loss of each row's learned tokens under a gate, in nats, float64 (rows,).

    Raises `InputError` naming the first row whose loss is no finite number.
    """
    from headscope.lm.losses import token_losses

    with lm.gated(gate):
        found = token_losses(lm, [s.ids for s in samples], [s.start for s in samples], batch_tokens)
    means = np.array([float(losses.mean(dtype=np.float64)) for losses in found])
    for sample, mean in zip(samples, means, strict=True):
        if not np.isfinite(mean):
            raise _no_number(sample, mean)
    return means


def _no_number(sample: Answered, loss: float) -> InputError:
    return InputError(
        f"{sample.name}: the loss of its answer is {loss}; leave it out, or compute in another "
        "--dtype; what is done so far is kept"
    )
