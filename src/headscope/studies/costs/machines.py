"""Machines as rates: what a pass costs beside its operations, and how fast those are done."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
        attained: shares of the peak that are assumed: the lowest, that of `forward`, the highest.
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
    attained: tuple[float, ...] | None = None


#: NVIDIA's figures for one H200 SXM: dense bfloat16 products, memory bandwidth, memory.
H200 = {"operations": 989e12, "bandwidth": 4.8e12, "memory": 141e9}
#: Share of the peak that passes attain: assumed, as lowest, middle and highest.
ATTAINED = (0.3, 0.4, 0.5)
#: Assumed: share of the bandwidth that steps of generation attain, and seconds that a layer's
#: kernels take to be launched from Python, once forwards.
_READING, _LAUNCHING = 0.6, 0.6e-3
#: Assumed: how much of that a mixture of experts attains, whose products are many and small.
_MIXTURES = 0.5


def h200(attained: float = ATTAINED[1]) -> Machine:
    """One H200 that attains this share of its peak in passes; nothing of it is measured.

    Loading the model and what runs beside it on the processor are left out.
    """
    rate = attained * H200["operations"]
    forward = Rate(rate, _LAUNCHING)
    return Machine(
        "h200",
        forward,
        replace(forward, layer=2.5 * _LAUNCHING),
        forward,
        _READING * H200["bandwidth"],
        H200["memory"],
        overlaps=True,
        mixtures=_MIXTURES,
        attained=ATTAINED,
    )
