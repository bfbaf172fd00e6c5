"""Operations, memory and seconds of work, in tokens, with a model of some shape on some machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headscope.studies.costs.shapes import LOGITS_AT_ONCE, Shape


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


@dataclass(frozen=True)
class Rate:
    """How fast one kind of pass runs.

    Attributes:
        operations: multiplications and additions a second that are attained.
        layer: seconds that each layer of each pass takes beside its operations.
        call: seconds that each pass takes beside its layers.
    """

    operations: float
    layer: float = 0.0
    call: float = 0.0


@dataclass(frozen=True)
class Machine:
    """A machine that models run on.

    Attributes:
        name: how it is called.
        forward: passes without gradients.
        backward: passes with gradients, of which operations are those both ways.
        generation: steps of generation.
        bandwidth: bytes a second at which weights and cached keys are read.
        memory: bytes.
        measured: what rates were measured with, or None where they are assumed.
        overlaps: whether operations run while further ones are being launched, as on a GPU; the
            longer of the two then counts, else their sum.
        mixtures: share of the attained operations that mixtures of experts reach.
        start: seconds that a run takes before and after its passes.
        text: seconds that each text takes beside its passes: drawn, encoded, counted.
        logits: operations a second at which the output embedding and the log-softmax behind it are
            computed; None: as those of the layers.
        busy: why the rates may be too low, as a sentence; None: nothing else seems to work here.
    """

    name: str
    forward: Rate
    backward: Rate
    generation: Rate
    bandwidth: float
    memory: float
    measured: str | None = None
    overlaps: bool = False
    mixtures: float = 1.0
    start: float = 0.0
    text: float = 0.0
    logits: float | None = None
    busy: str | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes at the fullest moment.

    Attributes:
        weights: of all parameters.
        cache: keys and values of a batch that is being written.
        activations: what passes hold, or keep for the way back.
        gates: gates of each row, their gradients and an optimizer's state.
    """

    weights: float
    cache: float
    activations: float
    gates: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.cache + self.activations + self.gates


def operations(work: Work, shape: Shape, logits: float = 1.0) -> float:
    """Multiplications and additions of all matrix products; `logits` as in `Shape.forward`."""
    length = work.length
    batch = work.rows * length
    return (
        work.forward * shape.forward(length, logits)
        + work.backward * shape.backward(length, logits, batch)
        + work.training * shape.training(length)
        + work.generated * shape.forward(length)
    )


def steps_of(work: Work) -> tuple[float, float]:
    """Passes over whole rows, and steps of generation; together the work's calls, if it has any."""
    steps = work.generated / max(1.0, work.rows)
    whole = work.forward + work.backward + work.training
    if not work.calls:
        return whole / max(1.0, work.rows * work.length), steps
    if not whole:
        return 0.0, work.calls
    if not steps:
        return work.calls, 0.0
    return max(0.0, work.calls - steps), min(work.calls, steps)


def estimate_seconds(work: Work, shape: Shape, machine: Machine, logits: float = 1.0) -> float:
    """Seconds of the work: what each pass costs by itself, and what its operations take.

    Beside these a run's start, and what each text that is read takes, where that was measured; no
    tokens take no time.

    A step of generation takes its operations or reading the weights and the cached keys and
    values, whichever is longer.
    """
    if not work.tokens:
        return 0.0
    whole = work.forward + work.backward + work.training
    passes, steps = steps_of(work)
    length, batch = work.length, work.rows * work.length
    slower = 1 / machine.mixtures if shape.experts else 1.0
    seconds = machine.start
    if length:
        seconds += machine.text * work.forward / length
    # By token: the operations of its layers, and those of its logits.
    for tokens, each, last, rate in (
        (
            work.forward,
            *_apart(lambda share: shape.forward(length, share), logits),
            machine.forward,
        ),
        (
            work.backward,
            *_apart(lambda share: shape.backward(length, share, batch), logits),
            machine.backward,
        ),
        (work.training, shape.training(length), 0.0, machine.backward),
    ):
        if tokens:
            times = passes * tokens / whole
            done = slower * tokens * each / rate.operations
            done += tokens * last / (machine.logits or rate.operations / slower)
            seconds += _together(machine, rate, times, shape, done)
    if steps:
        rate = machine.generation
        read = steps * (shape.read_by(work.rows) + work.rows * length * shape.cache)
        done = slower * work.generated * shape.forward(length) / rate.operations
        seconds += _together(machine, rate, steps, shape, max(done, read / machine.bandwidth))
    return seconds


def _apart(operations: Callable[[float], float], logits: float) -> tuple[float, float]:
    """Of the operations with a share of logits those without any, and the rest."""
    layers = operations(0.0)
    return layers, operations(logits) - layers


def _together(machine: Machine, rate: Rate, times: float, shape: Shape, work: float) -> float:
    """Seconds of so many passes that work for `work` seconds in all."""
    launching = times * (rate.call + rate.layer * shape.layers)
    return max(launching, work) if machine.overlaps else launching + work


def peak_memory(work: Work, shape: Shape) -> Memory:
    """Bytes that the work needs at its fullest moment, in batches of `work.rows` rows."""
    tokens = work.rows * work.length
    pieces = min(tokens * shape.vocabulary, LOGITS_AT_ONCE)
    # Logits in the model's dtype and in 32 bits, and once more the log-softmax or its gradient.
    held = tokens * shape.held() + pieces * (8.0 + shape.dtype_bytes)
    if work.backward:
        held += tokens * shape.kept(work.length)
    if work.training:
        held += tokens * shape.kept(work.length) * 2 + shape.parameters * 12.0
    gates = 0.0
    if work.backward:
        gates = 4.0 * shape.layers * shape.query_heads * (2 * work.rows + 3)
    cache = tokens * shape.cache if work.generated else 0.0
    return Memory(shape.all_weights, cache, held, gates)
