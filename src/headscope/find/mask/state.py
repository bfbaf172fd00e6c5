"""Where a training stands, kept so that it can go on at any step as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.find.mask.config import MaskTraining
from headscope.find.mask.sampling import starting_weights
from headscope.runs import Run

PART = "training"


@dataclass(eq=False)
class TrainingState:
    """Weights, what Adam remembers, and what is to be written of the way so far.

    Attributes:
        numbers: the weights, float32 (n,), a leaf that requires grad.
        optimizer: Adam over them.
        step: steps done.
        losses: loss of every step done.
        steps, history: steps at which the weights were kept, and the weights then.
    """

    numbers: torch.Tensor
    optimizer: torch.optim.Adam
    step: int = 0
    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    history: list[NDArray[np.float32]] = field(default_factory=list)
    _written: tuple[int, int] = (0, 0)

    @classmethod
    def begin(cls, count: int, config: MaskTraining, device: torch.device) -> TrainingState:
        """Before the first step, with `count` weights."""
        values = starting_weights(config.seed, count, config.mean, config.spread)
        state = cls._of(values, device)
        state.keep()
        return state

    @classmethod
    def _of(cls, values: NDArray[np.float32], device: torch.device) -> TrainingState:
        numbers = torch.from_numpy(values.copy()).to(device).requires_grad_()
        # The learning rate is set before each step.
        return cls(numbers, torch.optim.Adam([numbers], lr=1.0, weight_decay=0.0))

    @classmethod
    def resume(
        cls, run: Run, count: int, config: MaskTraining, device: torch.device
    ) -> TrainingState:
        """As the run's last kept part has it, or at the beginning where there is none.

        Raises `InputError` if a part in between is missing or of another training.
        """
        parts = list(run.read_tensors(PART).values())
        if not parts:
            return cls.begin(count, config, device)
        last = parts[-1]
        state = cls._of(last["weights"], device)
        state.step = int(last["step"][0])
        for part in parts:
            state.losses += part["losses"].tolist()
            state.steps += part["steps"].tolist()
            state.history += list(part["history"])
        if len(state.losses) != state.step or last["weights"].shape != (count,):
            raise InputError(
                f"{run.path / 'parts' / PART}: its files do not follow one another; delete this "
                "folder to train from the beginning"
            )
        state._written = (len(state.losses), len(state.steps))
        state.optimizer.state[state.numbers] = {
            "step": torch.tensor(float(state.step)),
            "exp_avg": torch.from_numpy(last["first"].copy()).to(device),
            "exp_avg_sq": torch.from_numpy(last["second"].copy()).to(device),
        }
        return state

    def keep(self) -> None:
        """Add the weights as they are now to the history."""
        self.steps.append(self.step)
        self.history.append(self.numbers.detach().cpu().numpy().copy())

    def write(self, run: Run) -> None:
        """Add what happened since the last time to the run, with all that is needed to go on."""
        losses, steps = self._written
        if len(self.losses) == losses and len(self.steps) == steps:
            return
        moments = self.optimizer.state.get(self.numbers) or {
            name: torch.zeros_like(self.numbers) for name in ("exp_avg", "exp_avg_sq")
        }
        values = self.numbers.detach().cpu().numpy()
        tensors: dict[str, NDArray[Any]] = {
            "step": np.array([self.step], dtype=np.int64),
            "weights": values,
            "first": moments["exp_avg"].cpu().numpy(),
            "second": moments["exp_avg_sq"].cpu().numpy(),
            "losses": np.array(self.losses[losses:], dtype=np.float64),
            "steps": np.array(self.steps[steps:], dtype=np.int64),
            "history": np.array(self.history[steps:], np.float32).reshape(-1, len(values)),
        }
        run.append_tensors(PART, f"{self.step:08d}", tensors)
        self._written = (len(self.losses), len(self.steps))
