"""Under which gates a model writes: as it is, with chosen heads changed, with random ones changed.

An arm is one way to run the model on the prompts of one group (a language, or a pair of them).
Groups have the same arms by name, with heads of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headscope.heads import HeadSet
from headscope.heads.draws import draw_heads
from headscope.results.writing import Condition
from headscope.verify.removal.conditions import gate_key

BASELINE, RANDOM, MATCHED = "baseline", "random", "random-layer-matched"


@dataclass(frozen=True)
class Name:
    """What an arm is called in every group: its kind and, of a random one, the draw from 0."""

    kind: str
    draw: int | None = None


@dataclass(frozen=True)
class Arm:
    """The output of `heads` times `gate`; `filled_up` of random heads come from elsewhere than
    asked for (see `headscope.heads.draws.Draw`)."""

    name: Name
    heads: HeadSet
    gate: float
    filled_up: int = 0

    @property
    def key(self) -> str:
        """What decides the outputs: arms with one key are the same gate."""
        return gate_key(self.heads, self.gate)

    def scored(self, scores: Mapping[str, float | None]) -> Condition:
        """What a result says of it, with its scores by measure."""
        return Condition(
            kind=self.name.kind,
            k=len(self.heads),
            gate=self.gate,
            draw=self.name.draw,
            heads=tuple(map(str, self.heads)),
            filled_up=self.filled_up,
            unknown=scores,
        )


def as_is(heads: HeadSet) -> Arm:
    """The untouched model, of the geometry of `heads`."""
    return Arm(Name(BASELINE), HeadSet(heads.geometry, ()), 1.0)


def beside(
    heads: HeadSet,
    gate: float,
    draws: int,
    seed: int,
    avoid: HeadSet | None = None,
    layer_matched: bool = True,
    prefix: str = "",
) -> list[Arm]:
    """Random sets of as many heads under the same gate: free draws, then layer-matched ones.

    They hold none of `heads` and, as far as possible, none of `avoid`. The kinds are `random` and
    `random-layer-matched` behind `prefix`. Raises `InputError` as `draw_heads` does.
    """
    kinds: Sequence[tuple[str, bool]] = [(RANDOM, False), (MATCHED, True)][: 1 + layer_matched]
    return [
        Arm(Name(prefix + kind, number), one.heads, gate, one.filled_up)
        for kind, matched in kinds
        for number, one in enumerate(draw_heads(heads, draws, seed, avoid, matched))
    ]
