"""Training a mask: one weight a head, moved by what the gates it makes do to the loss."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.find.mask.config import MaskTraining
from headscope.find.mask.history import History
from headscope.find.mask.sampling import gumbel_noise, rows_of_step, straight_through
from headscope.find.mask.state import TrainingState
from headscope.heads import Gate, HeadSet
from headscope.lm.batching import Batch, collate, in_halves, length_buckets
from headscope.lm.feed_forward import feed_forward_gated, feed_forward_sites
from headscope.lm.losses import checkpointed, frozen, row_losses
from headscope.lm.queries import check_queries, query_gated

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

Progress = Callable[[str, int, int], None]
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
    the mean over its samples, plus the penalty.  The model is frozen; its weights are as before.

    Args:
        lm: the model.
        answered: the samples; the order does not matter to the method, but to the result, since
            steps draw from it.
        config: the schedule.
        run: where the state is kept on the way; a training that was interrupted goes on there and
            ends with the same weights, bit for bit.
        progress: told the steps done.
        names: what messages call each sample, such as its file and line.

    Raises:
        InputError: if there is no sample; a sample is longer than the model's context or has no
            answer; the model does not allow query or feed-forward gates that were asked for; or a
            loss or gradient is not finite, naming the sample. What is done so far is kept.
        torch.OutOfMemoryError: if memory does not suffice for a single sample.
    """
    step = _step(lm, answered, config, names)
    state = (
        TrainingState.begin(step.count, config, lm.device)
        if run is None
        else TrainingState.resume(run, step.count, config, lm.device)
    )
    written = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.enter_context(frozen(lm))
        if config.checkpointing:
            stack.enter_context(checkpointed(lm))
        while state.step < config.steps:
            try:
                loss, gradient = step.gradient(state.numbers, state.step)
            except (InputError, torch.OutOfMemoryError):
                if run is not None:
                    state.write(run)
                raise
            state.numbers.grad = gradient
            for group in state.optimizer.param_groups:
                group["lr"] = config.learning_rate_at(state.step)
            state.optimizer.step()
            state.step += 1
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
    numbers = TrainingState.begin(step.count, config, lm.device).numbers
    with contextlib.ExitStack() as stack:
        stack.enter_context(frozen(lm))
        if config.checkpointing:
            stack.enter_context(checkpointed(lm))
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
    called = (
        list(names) if names is not None else [f"sample {at + 1}" for at in range(len(answered))]
    )
    _check_samples(lm, answered, called)
    if config.on == "query":
        check_queries(lm)
    if config.feed_forward:
        feed_forward_sites(lm)
    return _Step(lm, answered, called, config)


def _check_samples(lm: LanguageModel, answered: Sequence[Answered], names: Sequence[str]) -> None:
    if not answered:
        raise InputError("there is no sample to train a mask on; give at least one")
    if len(names) != len(answered):
        raise InputError(
            f"{len(names)} names were given for {len(answered)} samples; give one each"
        )
    for one, name in zip(answered, names, strict=True):
        if len(one.ids) > lm.context_length:
            raise InputError(
                f"{name}: prompt and answer have {len(one.ids)} tokens, but the model's context "
                f"holds {lm.context_length}; shorten or leave it out"
            )
        if not 1 <= one.start < len(one.ids):
            raise InputError(
                f"{name}: its answer begins at token {one.start} of {len(one.ids)}; there must be "
                "a token before it and one in it"
            )


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
        self,
        lm: LanguageModel,
        answered: Sequence[Answered],
        names: Sequence[str],
        config: MaskTraining,
    ) -> None:
        self._lm, self._answered, self._names, self._config = lm, answered, names, config
        self._heads = lm.geometry.layers * lm.geometry.width
        self.count = self._heads + (lm.geometry.layers if config.feed_forward else 0)
        exists = np.ones(self.count, dtype=np.float32)
        exists[: self._heads] = lm.geometry.mask().reshape(-1)
        self._exists = torch.from_numpy(exists).to(lm.device)

    def gradient(self, numbers: torch.Tensor, step: int) -> tuple[float, torch.Tensor]:
        """Loss and gradient (n,) at the weights `numbers` (n,); InputError if not finite."""
        config = self._config
        rows = rows_of_step(config.seed, step, config.batch, len(self._answered))
        noise = torch.from_numpy(gumbel_noise(config.seed, step, len(rows), self.count))
        temperature = config.temperature_at(step)

        def work(places: list[int]) -> tuple[float, torch.Tensor]:
            own = noise[places].to(numbers.device)
            gates = straight_through(numbers, own, temperature)
            samples = [self._answered[rows[place]] for place in places]
            with self._gated(gates):
                losses = row_losses(self._lm, *self._batch(samples))
                total = (losses.sum() + config.penalty * (gates * self._exists).sum()) / len(rows)
                self._check_losses(losses, [rows[place] for place in places], step)
                (found,) = torch.autograd.grad(total, numbers)
            self._check_gradient(found, [rows[place] for place in places], step)
            return float(total.detach()), found

        lengths = [len(self._answered[row].ids) for row in rows]
        loss, gradient = 0.0, torch.zeros_like(numbers)
        most = config.at_once(self._lm.device.type)
        # Parts of the size that `at_once` chose for the device, and no more than needed.
        for _, (part, found) in in_halves(length_buckets(lengths, most, most), work):
            loss += part
            gradient += found
        return loss, gradient

    @contextlib.contextmanager
    def _gated(self, gates: torch.Tensor) -> Iterator[None]:
        """Apply gates (B, n), one row a sample."""
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

    def _batch(self, samples: Sequence[Answered]) -> tuple[Batch, torch.Tensor]:
        batch = collate([one.ids for one in samples], self._lm.pad_token_id)
        learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
        for at, one in enumerate(samples):
            learned[at, learned.shape[1] - len(one.ids) + one.start :] = True
        return batch, learned

    def _check_losses(self, losses: torch.Tensor, rows: Sequence[int], step: int) -> None:
        for row, loss in zip(rows, losses.detach().tolist(), strict=True):
            if not np.isfinite(loss):
                raise InputError(
                    f"{self._names[row]}: at step {step + 1} its loss is {loss}; leave it out, or "
                    "compute in another --dtype; what is done so far is kept"
                )

    def _check_gradient(self, gradient: torch.Tensor, rows: Sequence[int], step: int) -> None:
        if not bool(torch.isfinite(gradient).all()):
            named = ", ".join(self._names[row] for row in rows)
            raise InputError(
                f"at step {step + 1} the gradient is not finite, for one of {named}; leave that "
                "out, or compute in another --dtype; what is done so far is kept"
            )
