"""Learned head masks: which heads a model keeps to do a task that nobody tells it.

After Heads Up! (ICML 2025), section 3.2: every head has a weight, trained by gradient descent on a
task's inputs and outputs without instruction while the model is frozen; the heads whose weight ends
at 0 or above are the mask.  Here stand what is trained and by which schedule, and what happened on
the way; `mask_training` takes the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError
from headscope.heads import Geometry, Head
from headscope.results.mask import Fate
from headscope.settings import UNSIGNED, Option, Settings

Start = Literal["positive", "negative"]
Place = Literal["output", "query"]
PresetName = Literal["paper", "small"]

#: Where the weights begin on average: all heads kept, or none (Table 11).
MEANS: dict[Start, float] = {"positive": 4.0, "negative": -3.0}
#: Adam moves a weight by at most about the sum of the learning rates, and by much less where
#: gradients change sign: this many times the distance to 0 is enough (15 for a start at 4).
ENOUGH = 3.75


@dataclass(frozen=True)
class MaskTraining(Settings):
    """How a mask is trained; the defaults are those of Heads Up!, Table 11.

    Attributes:
        start: `positive`: weights begin around 4, so that nearly all heads are kept; `negative`:
            around -3, so that nearly none is.
        spread: standard deviation of the weights at the start.
        learning_rate, final_learning_rate: of Adam, at its highest, after the warm-up, and at the
            last step.
        warmup: share of the steps over which the learning rate rises, linearly; then it falls like
            half a cosine.
        temperature, final_temperature: at the first step; and reached, linearly, after the share
            `cooling` of the steps.
        penalty: what each kept head adds to the loss, in nats.
        feed_forward: train a gate of each layer's feed-forward part, too (appendix C.3.3).
        on: what a gate multiplies: a head's `output`, or its `query`, so that a removed head
            attends evenly (appendix C.3.2).
        seed: of the start, the order of the samples and the noise.
        keep_every: steps between two states of the weights that are kept as history.
        batch_tokens: padded tokens that are computed at once, a step's batch in parts where it has
            more. None: see `at_once`.
    """

    start: Annotated[
        Start, Option("Begin with nearly all heads kept, or with nearly none.", panel="Expert")
    ] = "positive"
    spread: float = 0.02
    steps: Annotated[int, Option("Steps, instead of those of the preset.", min=1, default=None)] = (
        6200
    )
    batch: Annotated[int, Option("Samples of a step.", min=1, panel="Expert")] = 16
    learning_rate: Annotated[
        float, Option("How far a step goes.", default=None, panel="Expert")
    ] = 1e-2
    final_learning_rate: float = 1e-4
    warmup: float = 0.1
    temperature: float = 4.0
    final_temperature: float = 0.05
    cooling: float = 0.4
    penalty: Annotated[
        float, Option("What each kept head adds to the loss, in nats.", panel="Expert")
    ] = 0.0
    feed_forward: Annotated[
        bool, Option("Train a gate of each feed-forward layer, too.", panel="Expert")
    ] = False
    on: Annotated[
        Place, Option("Gate what a head writes, or its queries (it then attends evenly).")
    ] = "output"
    seed: int = 0
    keep_every: int = 10
    batch_tokens: options.BatchTokensByDevice = field(default=None, metadata=UNSIGNED)
    checkpointing: options.Checkpointing = field(default=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_every < 1:
            raise InputError(f"keep_every is {self.keep_every}; it must be at least 1")
        for name in ("learning_rate", "temperature", "final_temperature"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise InputError(f"{name} is {value}; it must be a number above 0")
        for name in ("spread", "final_learning_rate"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; it must be 0 or more")
        for name in ("warmup", "cooling"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; it is a share, from 0 to 1")
        if not math.isfinite(self.penalty):
            raise InputError(f"penalty is {self.penalty}; it must be a finite number")
        if self.travel < abs(self.mean):
            raise InputError(
                f"the learning rates of {self.steps} steps add up to {self.travel:.3g}, and Adam "
                f"moves a weight by no more than about that, so none can get from {self.mean:g} to "
                f"0; train more steps or raise the learning rate (about {self.enough:g} is enough)"
            )

    def at_once(self, device: str) -> int:
        """Padded tokens that are computed at once on a device of this type, such as `cpu`.

        If nothing is said, 256 on a CPU, where small parts take less time, and else 8,192, since a
        small pass leaves a GPU waiting.
        """
        if self.batch_tokens is not None:
            return self.batch_tokens
        return 256 if device == "cpu" else 8192

    @property
    def mean(self) -> float:
        """Where the weights begin on average."""
        return MEANS[self.start]

    @property
    def travel(self) -> float:
        """The sum of the learning rates: about how far a weight can get."""
        return math.fsum(self.learning_rate_at(step) for step in range(self.steps))

    @property
    def enough(self) -> float:
        """A sum of the learning rates that lets weights decide either way."""
        return ENOUGH * abs(self.mean)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        rising = round(self.warmup * self.steps)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        falling = max(1, self.steps - 1 - rising)
        share = 0.5 * (1 + math.cos(math.pi * (step - rising) / falling))
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * share

    def temperature_at(self, step: int) -> float:
        """The temperature of a step, from 0."""
        cooling = self.cooling * self.steps
        if step >= cooling:
            return self.final_temperature
        share = step / cooling
        return self.temperature + (self.final_temperature - self.temperature) * share


#: `paper`: Table 11. `small`: for models of fewer than 256 heads, in a tenth of the steps with ten
#: times the learning rate, so that weights can get as far.
PRESETS: dict[PresetName, MaskTraining] = {
    "paper": MaskTraining(),
    "small": MaskTraining(steps=600, learning_rate=0.1, final_learning_rate=1e-3, keep_every=2),
}


def preset(name: PresetName | None, heads: int, **changes: Any) -> MaskTraining:
    """A preset with changes; without a name that for the number of heads of the model.

    Changes that are None are none. Another learning rate takes the final one along, in proportion.
    """
    chosen = name or ("small" if heads < 256 else "paper")
    if chosen not in PRESETS:
        raise InputError(f"there is no preset {chosen!r}; known: {', '.join(PRESETS)}")
    base = PRESETS[chosen]
    given = {key: value for key, value in changes.items() if value is not None}
    if "learning_rate" in given and "final_learning_rate" not in given:
        share = base.final_learning_rate / base.learning_rate
        given["final_learning_rate"] = given["learning_rate"] * share
    return replace(base, **given)


@dataclass(frozen=True)
class Course:
    """One head's way through the training.

    Attributes:
        head: the head.
        selected: whether it is in the mask at the end.
        fate: see `Fate`.
        changes: the steps at which it entered or left the mask, stretches that were too short left
            out.
        share: share of the steps at which it was selected.
    """

    head: Head
    selected: bool
    fate: Fate
    changes: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class History:
    """Weights at some steps of a training.

    Attributes:
        steps: int64 (S,), how many steps had been done; ascending, from 0 to the last.
        weights: float32 (S, L, W), the weights then; a head is selected where its weight is at
            least 0.
        feed_forward: float32 (S, L), those of feed-forward gates, or None.
    """

    steps: NDArray[np.int64]
    weights: NDArray[np.float32]
    feed_forward: NDArray[np.float32] | None = None

    def courses(self, geometry: Geometry, least: int | None = None) -> list[Course]:
        """Every head's course, by layer, then head.

        A stretch of fewer than `least` steps (by default 1 % of them) between two changes is taken
        for jitter around 0 and left out.
        """
        if least is None:
            least = max(1, int(self.steps[-1]) // 100)
        return [
            self._course(head, self.weights[:, head.layer, head.head] >= 0, least)
            for head in geometry.heads()
        ]

    def _course(self, head: Head, selected: NDArray[np.bool_], least: int) -> Course:
        begins = bool(selected[0])
        changes = _lasting_changes(self.steps, selected, least)
        ends = bool(selected[-1])
        fate: Fate
        if len(changes) >= 2:
            fate = "regained" if ends else "tried"
        elif len(changes) == 1:
            fate = "added" if ends else "dropped"
        else:
            fate = "kept" if ends else "never"
        assert (len(changes) % 2 == 1) == (begins != ends)
        lengths = np.diff(self.steps)
        total = int(self.steps[-1] - self.steps[0])
        share = float((lengths * selected[:-1]).sum() / total) if total else float(ends)
        return Course(head, ends, fate, changes, share)


def _lasting_changes(
    steps: NDArray[np.int64], selected: NDArray[np.bool_], least: int
) -> tuple[int, ...]:
    """Steps at which a head changed sides, without stretches shorter than `least`.

    A short stretch joins what is around it; the state at the end always counts, since it is the
    mask.
    """
    changes = [int(steps[at]) for at in range(1, len(steps)) if selected[at] != selected[at - 1]]
    while True:
        short = [at for at in range(len(changes) - 1) if changes[at + 1] - changes[at] < least]
        if not short:
            return tuple(changes)
        del changes[short[0] : short[0] + 2]
