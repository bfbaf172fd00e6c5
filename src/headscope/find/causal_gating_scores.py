"""Causal gating: gates of all heads, fitted freely, then towards keeping and towards removing.

From what both ends leave follow three roles: heads that help, that interfere, that do nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError
from headscope.find.gate_descent import Descent, Floats, Optimizer, descend, gate_maker
from headscope.settings import Option, Settings

if TYPE_CHECKING:
    import torch

    from headscope.heads import Geometry
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

Push = Literal["none", "keep", "remove"]
PUSHES: tuple[Push, ...] = ("none", "keep", "remove")
Role = Literal["facilitating", "interfering", "irrelevant"]
ROLES: tuple[Role, ...] = ("facilitating", "interfering", "irrelevant")


@dataclass(frozen=True)
class CausalGating(Settings):
    """How gates are fitted.

    Attributes:
        steps, pushed_steps: of the first fit, without a push, and of each of the two that go on
            from there.
        rates, pushed_rates: Adam's learning rate, on logits, at the first and at the last step, of
            these.
        weight: λ, the weight of the push.
        clip: logits beyond ± this are not pushed further.
        clip_norm: longest gradient.
        seeds: how many fits, with the seeds `seed`, `seed` + 1, …; each decides the gates at the
            beginning and the order of the samples.
    """

    steps: Annotated[int, Option("Steps of each of the three fits.", min=1, default=None)] = 500
    pushed_steps: int = 500
    batch_size: Annotated[
        int, Option("Samples of a step.", flag="--batch", min=1, default=None)
    ] = 64
    rates: tuple[float, float] = (0.1, 0.01)
    pushed_rates: tuple[float, float] = (0.5, 0.1)
    weight: Annotated[float, Option("Weight of the push towards 1 or 0.")] = 0.1
    clip: float = 4.0
    clip_norm: float = 1.0
    seeds: Annotated[
        int, Option("How often to train, each time with another seed.", min=1, default=None)
    ] = 10
    seed: options.Seed = 0
    checkpointing: options.Checkpointing = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pushed_steps < 1:
            raise InputError(f"pushed_steps is {self.pushed_steps}; it must be at least 1")
        for name in ("weight", "clip", "clip_norm"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0")
        for first, last in (self.rates, self.pushed_rates):
            Optimizer(first)
            Optimizer(last)

    @classmethod
    def small(cls, **changes: Any) -> CausalGating:
        """For models of fewer than 256 heads: shorter fits, fewer of them."""
        return replace(cls(steps=150, pushed_steps=150, batch_size=16, seeds=3), **changes)


@dataclass(frozen=True, eq=False)
class CausalGates:
    """The gates of one seed, float32 (L, W) each, 1 where the model has no head.

    `losses` holds for each fit the mean loss of every step's samples, before the step, in nats.
    """

    free: Floats
    keep: Floats
    remove: Floats
    losses: dict[str, NDArray[np.float64]]


def fit_causal_gates(
    lm: LanguageModel,
    samples: Sequence[Answered],
    config: CausalGating,
    seed: int,
    run: Run | None = None,
    progress: Callable[[int, int], None] | None = None,
    every: int = 25,
) -> CausalGates:
    """Fit gates over all heads without a push, then towards keeping and towards removing.

    With a run, the fit is kept in it every so many steps and goes on from there. Raises
    `InputError` if there is no sample, or naming the one whose loss is no finite number.
    """
    import torch

    if not samples:
        raise InputError("there is no example to fit gates on; give at least one")
    geometry = lm.geometry
    total = config.steps + 2 * config.pushed_steps
    fits: dict[Push, Descent] = {}
    place = gate_maker(geometry, np.flatnonzero(geometry.mask()))

    def make(logits: torch.Tensor) -> torch.Tensor:
        return place(torch.sigmoid(logits))

    done = 0
    for push in PUSHES:
        steps = config.steps if push == "none" else config.pushed_steps
        batches = _batches(len(samples), steps, config.batch_size, f"{seed} {push}")
        start = _begin(geometry, seed) if push == "none" else fits["none"].values
        first, last = config.rates if push == "none" else config.pushed_rates
        optimizer = Optimizer(first, 0.0, config.clip_norm, last, steps)
        file = f"parts/fits/{push}-{seed}.safetensors"
        kept = run is not None and (run.path / file).exists()
        at = Descent.of(run.read_written(file)) if run and kept else Descent.begin(start)
        while at.steps < steps:
            at = descend(
                lm,
                samples,
                batches[at.steps : at.steps + every],
                make,
                optimizer,
                at,
                _push(push, config),
                config.checkpointing,
            )
            if run is not None:
                run.write_tensors(file, at.arrays())
            if progress:
                progress(done + at.steps, total)
        fits[push] = at
        done += steps
    gates = {push: make(torch.from_numpy(at.values)).numpy() for push, at in fits.items()}
    losses: dict[str, NDArray[np.float64]] = {push: at.losses for push, at in fits.items()}
    return CausalGates(gates["none"], gates["keep"], gates["remove"], losses)


def role_scores(keep: NDArray[Any], remove: NDArray[Any]) -> dict[Role, NDArray[np.float64]]:
    """The scores of the three roles (table 1 of the paper) from G+ and G−, each in [0, 1].

    Arrays of any one shape. A head may score high in two: G+ and G− are fitted apart.
    """
    kept, removed = np.asarray(keep, dtype=np.float64), np.asarray(remove, dtype=np.float64)
    return {
        "facilitating": removed,
        "interfering": 1 - kept,
        "irrelevant": kept * (1 - removed),
    }


def _push(push: Push, config: CausalGating) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if push == "none":
        return None
    weight = config.weight if push == "keep" else -config.weight

    def term(logits: torch.Tensor) -> torch.Tensor:
        return -weight * logits.clamp(-config.clip, config.clip).mean()

    return term


def _begin(geometry: Geometry, seed: int) -> Floats:
    drawn = np.random.default_rng([seed, geometry.total]).uniform(1e-4, 1 - 1e-4, geometry.total)
    return np.log(drawn / (1 - drawn)).astype(np.float32)


def _batches(count: int, steps: int, size: int, name: str) -> list[list[int]]:
    """Which samples each step learns from: all of them in turn, in a new order every time."""
    rng = random.Random(f"causal gating {name}")
    size = min(size, count)
    waiting: list[int] = []
    batches = []
    for _ in range(steps):
        while len(waiting) < size:
            order = list(range(count))
            rng.shuffle(order)
            waiting += order
        batches.append(waiting[:size])
        waiting = waiting[size:]
    return batches
