"""Training a mask: one weight a head, moved by what the gates it makes do to the loss."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.find.gate_descent import adam_after, answer_losses, check_finite
from headscope.find.mask_config import History, MaskTraining
from headscope.find.scoring import Arrays
from headscope.heads import Gate, HeadSet
from headscope.lm.batching import in_halves
from headscope.lm.feed_forward import feed_forward_gated, feed_forward_sites
from headscope.lm.losses import checkpointed, frozen
from headscope.lm.queries import check_queries, query_gated
from headscope.progress import Progress

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

# Streams of random numbers that have nothing to do with each other.
_START, _ORDER, _NOISE = 0, 1, 2


def starting_weights(seed: int, count: int, mean: float, spread: float) -> NDArray[np.float32]:
    """Weights before the first step: normal, float32 (count,)."""
    rng = np.random.default_rng((seed, _START))
    return rng.normal(mean, spread, count).astype(np.float32)


def rows_of_step(seed: int, step: int, batch: int, samples: int) -> list[int]:
    """The samples of a step: all samples in a random order, then all in another, and so on."""
    first = step * batch
    rows: list[int] = []
    for epoch in range(first // samples, (first + batch - 1) // samples + 1):
        order = np.random.default_rng((seed, _ORDER, epoch)).permutation(samples)
        begin, end = first - epoch * samples, first + batch - epoch * samples
        rows += order[max(0, begin) : max(0, end)].tolist()
    return rows


def gumbel_noise(seed: int, step: int, batch: int, count: int) -> NDArray[np.float32]:
    """Left-tailed Gumbel noise G = log(-log U), float32 (batch, count): each sample has its own U.

    U is uniform between 0 and 1, both excluded.  The mean of G is -0.5772 (Euler's constant).
    """
    uniform = np.random.default_rng((seed, _NOISE, step)).random((batch, count))
    tiny = np.finfo(np.float64).tiny
    return np.log(-np.log(np.maximum(uniform, tiny))).astype(np.float32)


def straight_through(
    weights: torch.Tensor, noise: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Gates that are 0 or 1 forward and soft backward (Heads Up!, equation 3).

    With p = σ((M + G) / τ), M the weights, G the noise (of the same shape, or with further
    dimensions in front) and τ the temperature, the value is exactly 1 where p ≥ 0.5 and 0
    elsewhere; the gradient is that of p.
    """
    soft = torch.sigmoid((weights + noise) / temperature)
    hard = (soft.detach() >= 0.5).to(soft.dtype)
    # The bracket is exactly 0, so the value is exactly `hard`.
    return hard + (soft - soft.detach())


PART = "training"


@dataclass(eq=False)
class TrainingState:
    """Where a training stands, kept so that it can go on at any step as if nothing had happened.

    Attributes:
        numbers: the weights, float32 (n,), a leaf that requires grad.
        optimizer: Adam over them.
        losses: loss of every step done.
        steps, history: steps at which the weights were kept, and the weights then.
    """

    numbers: torch.Tensor
    optimizer: torch.optim.AdamW
    losses: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    history: list[NDArray[np.float32]] = field(default_factory=list)
    _written: tuple[int, int] = (0, 0)

    @classmethod
    def resume(
        cls, run: Run | None, count: int, config: MaskTraining, device: torch.device
    ) -> TrainingState:
        """As the run's last kept part has it, or with `count` weights before the first step.

        Raises `InputError` if a part in between is missing or of another training.
        """
        parts = [] if run is None else list(run.read_tensors(PART).values())
        if not parts:
            values = starting_weights(config.seed, count, config.mean, config.spread)
            zeros = np.zeros_like(values)
            parts = [{"weights": values, "first": zeros, "second": zeros}]
        last, losses = parts[-1], [loss for part in parts for loss in part.get("losses", ())]
        if len(losses) != int(last.get("step", [0])[0]) or last["weights"].shape != (count,):
            raise InputError(
                f"{run and run.path / 'parts' / PART}: its files do not follow one another; delete "
                "this folder to train from the beginning"
            )
        numbers = torch.from_numpy(last["weights"].copy()).to(device).requires_grad_()
        adam = adam_after(numbers, len(losses), last["first"], last["second"])
        state = cls(numbers, adam, [float(loss) for loss in losses])
        for part in parts:
            state.steps += [int(step) for step in part.get("steps", ())]
            state.history += list(part.get("history", ()))
        state._written = (len(state.losses), len(state.steps))
        if not state.steps:
            state.keep()
        return state

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.losses)

    def keep(self) -> None:
        """Add the weights as they are now to the history."""
        self.steps.append(self.step)
        self.history.append(self.numbers.detach().cpu().numpy().copy())

    def write(self, run: Run) -> None:
        """Add what happened since the last time to the run, with all that is needed to go on."""
        losses, steps = self._written
        if len(self.losses) == losses and len(self.steps) == steps:
            return
        moments = self.optimizer.state[self.numbers]
        values = self.numbers.detach().cpu().numpy()
        tensors: Arrays = {
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


#: Steps, and seconds, after which a training is written down.
_EVERY, _SECONDS = 50, 60.0
#: Steps that `seconds_a_step` takes the mean over.
_TIMED = 3


@dataclass(frozen=True, eq=False)
class TrainedMask:
    """A trained mask.

    Attributes:
        weights: M, float32 (L, W); what lies where there is no head means nothing.
        mask: the gate 1[σ(M) ≥ 0.5]: 1 for a selected head, 0 for any other.
        history: the weights on the way.
        losses: float64 (steps,), each step's loss, penalty included, before the step.
        feed_forward: weights of the feed-forward gates, float32 (L,), or None.
    """

    weights: NDArray[np.float32]
    mask: Gate
    history: History
    losses: NDArray[np.float64]
    feed_forward: NDArray[np.float32] | None = None

    @property
    def selected(self) -> HeadSet:
        """The heads of the mask, highest weight first, ties by layer, then head."""
        geometry = self.mask.geometry
        kept = [head for head in geometry.heads() if self.mask[head] == 1]
        kept.sort(key=lambda head: -float(self.weights[head.layer, head.head]))
        return HeadSet(geometry, tuple(kept))


def train_mask(
    lm: LanguageModel,
    answered: Sequence[Answered],
    config: MaskTraining,
    run: Run | None = None,
    progress: Progress | None = None,
    names: Sequence[str] | None = None,
) -> TrainedMask:
    """Train a mask on prompts with their answers (Heads Up!, section 3.2).

    The loss of a sample is the mean negative log-likelihood of its answer's tokens, that of a step
    the mean over its samples, plus the penalty. Steps draw from the samples by their order. The
    model's weights are as before. A run keeps the state: a training that was interrupted goes on
    there and ends with the same weights, bit for bit. `names` are what messages call each sample.
    Raises `InputError` if there is no sample; a sample is longer than the model's context or has no
    answer; the model does not allow query or feed-forward gates that were asked for; or a loss or
    gradient is not finite, naming the sample; and `torch.OutOfMemoryError` if memory does not
    suffice for a single one. What is done so far is kept.
    """
    step = _step(lm, answered, config, names)
    state = TrainingState.resume(run, step.count, config, lm.device)
    written = time.monotonic()
    with frozen(lm.model), checkpointed(lm) if config.checkpointing else contextlib.nullcontext():
        while state.step < config.steps:
            try:
                loss, gradient = step.gradient(state.numbers, state.step)
            except (InputError, torch.OutOfMemoryError):
                if run is not None:
                    state.write(run)
                raise
            state.numbers.grad = gradient
            state.optimizer.param_groups[0]["lr"] = config.learning_rate_at(state.step)
            state.optimizer.step()
            state.losses.append(loss)
            if state.step % config.keep_every == 0 or state.step == config.steps:
                state.keep()
            due = state.step % _EVERY == 0 or time.monotonic() - written > _SECONDS
            if run is not None and (due or state.step == config.steps):
                state.write(run)
                written = time.monotonic()
            if progress is not None:
                progress("training", state.step, config.steps)
    return _trained(lm, state, config)


def seconds_a_step(
    lm: LanguageModel,
    answered: Sequence[Answered],
    config: MaskTraining,
    names: Sequence[str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """What a step of this training takes here: the mean of the first three, after one to warm up.

    Nothing is trained by it. Arguments and errors are those of `train_mask`.
    """
    step = _step(lm, answered, config, names)
    numbers = TrainingState.resume(None, step.count, config, lm.device).numbers
    with frozen(lm.model), checkpointed(lm) if config.checkpointing else contextlib.nullcontext():
        step.gradient(numbers, 0)
        began = clock()
        for number in range(_TIMED):
            step.gradient(numbers, number)
        return (clock() - began) / _TIMED


def _step(
    lm: LanguageModel,
    answered: Sequence[Answered],
    config: MaskTraining,
    names: Sequence[str] | None,
) -> _Step:
    """How steps are taken, of samples and a model that allow what is asked for."""
    if not answered:
        raise InputError("there is no sample to train a mask on; give at least one")
    called = names or [f"sample {at + 1}" for at in range(len(answered))]
    if len(called) != len(answered):
        raise InputError(
            f"{len(called)} names were given for {len(answered)} samples; give one each"
        )
    samples = [replace(row, name=name) for row, name in zip(answered, called, strict=True)]
    for sample in samples:
        if len(sample.ids) > lm.context_length:
            raise InputError(
                f"{sample.name}: prompt and answer have {len(sample.ids)} tokens, but the model's "
                f"context holds {lm.context_length}; shorten or leave it out"
            )
        if not 1 <= sample.start < len(sample.ids):
            raise InputError(
                f"{sample.name}: its answer begins at token {sample.start} of {len(sample.ids)}; "
                "there must be a token before it and one in it"
            )
    if config.on == "query":
        check_queries(lm)
    if config.feed_forward:
        feed_forward_sites(lm)
    return _Step(lm, samples, config)


def _trained(lm: LanguageModel, state: TrainingState, config: MaskTraining) -> TrainedMask:
    geometry = lm.geometry
    heads = geometry.layers * geometry.width
    kept = np.stack(state.history)
    shape = (len(kept), *geometry.shape)
    ways = kept[:, heads:] if config.feed_forward else None
    history = History(np.array(state.steps, np.int64), kept[:, :heads].reshape(shape), ways)
    final = state.numbers.detach().cpu().numpy().copy()
    weights = final[:heads].reshape(geometry.shape)
    # σ(M) ≥ 0.5 is M ≥ 0.
    mask = np.where((weights >= 0) | ~geometry.mask(), np.float32(1), np.float32(0))
    return TrainedMask(
        weights,
        Gate(geometry, mask),
        history,
        np.array(state.losses),
        final[heads:] if config.feed_forward else None,
    )


class _Step:
    """One step's gradient with respect to all weights: heads, then feed-forward parts."""

    def __init__(
        self, lm: LanguageModel, samples: Sequence[Answered], config: MaskTraining
    ) -> None:
        self._lm, self._samples, self._config = lm, samples, config
        self._heads = lm.geometry.layers * lm.geometry.width
        self.count = self._heads + (lm.geometry.layers if config.feed_forward else 0)
        exists = np.ones(self.count, dtype=np.float32)
        exists[: self._heads] = lm.geometry.mask().reshape(-1)
        self._exists = torch.from_numpy(exists).to(lm.device)

    def gradient(self, numbers: torch.Tensor, step: int) -> tuple[float, torch.Tensor]:
        """Loss and gradient (n,) at the weights `numbers` (n,); InputError if not finite."""
        config = self._config
        rows = rows_of_step(config.seed, step, config.batch, len(self._samples))
        samples = [self._samples[row] for row in rows]
        noise = torch.from_numpy(gumbel_noise(config.seed, step, len(rows), self.count))
        temperature = config.temperature_at(step)

        def work(places: list[int]) -> tuple[float, torch.Tensor]:
            own = noise[places].to(numbers.device)
            gates = straight_through(numbers, own, temperature)
            some = [samples[place] for place in places]
            with self._gated(gates):
                losses = answer_losses(self._lm, some)
                total = (losses.sum() + config.penalty * (gates * self._exists).sum()) / len(rows)
                (found,) = torch.autograd.grad(total, numbers)
            check_finite(some, losses, found)
            return float(total.detach()), found

        lengths = [len(sample.ids) for sample in samples]
        loss, gradient = 0.0, torch.zeros_like(numbers)
        most = config.at_once(self._lm.device.type)
        # Parts of the size that `at_once` chose for the device, and no more than needed.
        for _, (part, part_gradient) in in_halves(self._lm.buckets(lengths, most, most), work):
            loss += part
            gradient += part_gradient
        return loss, gradient

    @contextlib.contextmanager
    def _gated(self, gates: torch.Tensor) -> Iterator[None]:
        geometry = self._lm.geometry
        heads = gates[:, : self._heads].reshape(-1, *geometry.shape)
        with contextlib.ExitStack() as stack:
            if self._config.on == "query":
                stack.enter_context(query_gated(self._lm, heads))
            else:
                stack.enter_context(self._lm.gated(heads))
            if self._config.feed_forward:
                stack.enter_context(feed_forward_gated(self._lm, gates[:, self._heads :]))
            yield
