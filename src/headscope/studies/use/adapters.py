"""Which LoRA adapters an export writes: one, one a head, or one a set of heads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from headscope.errors import InputError
from headscope.heads import Gate, Geometry
from headscope.heads.adaptation import Adaptation
from headscope.heads.resolve import place_of
from headscope.heads.store import kind_of
from headscope.studies.use.gates import GateChoice

_NAME = re.compile(r"[A-Za-z0-9][\w-]*")


def read_sets(
    named: Sequence[str], choice: GateChoice, geometry: Geometry, model: str = ""
) -> dict[str, Adaptation]:
    """The gate of each `NAME=HEADS`, where HEADS is read as `--heads` or, of a gate, as `--gate`.

    `choice` has the numbers for all of them; without one heads are removed. `InputError` for a name
    that is no name of a folder or comes twice, and as the gates are read.
    """
    gates: dict[str, Adaptation] = {}
    for text in named:
        name, equals, source = text.partition("=")
        if not equals or not source or not _NAME.fullmatch(name):
            raise InputError(
                f"--set {text!r} is not NAME=HEADS; write letters, digits, - or _ as the name, "
                "such as --set spanish=runs/lahis"
            )
        if name in gates:
            raise InputError(f"--set names {name!r} twice; give each adapter a name of its own")
        place = place_of(source)
        holds = place is not None and any(
            kind_of(folder) == "gate" for folder in (place / "gate", place)
        )
        own = replace(choice, gate=source) if holds else replace(choice, heads=source)
        gates[name] = removing(own).read(geometry, model)
    return gates


def one_a_head(adaptation: Adaptation) -> dict[str, Adaptation]:
    """A gate for each head that is not multiplied by 1, by a name for its folder."""
    gates = {}
    for head in adaptation.gate.changed_heads():
        values = np.ones_like(adaptation.gate.values)
        values[head.layer, head.head] = adaptation.gate[head]
        gate = Gate(adaptation.gate.geometry, values, adaptation.gate.origin)
        gates[f"head-{head.layer}-{head.head}"] = Adaptation(gate, name=f"head {head}")
    return gates


def together(adaptations: Mapping[str, Adaptation]) -> Adaptation:
    """What several adapters do at once, each at scale 1: what they add is summed."""
    gates = [adaptation.gate for adaptation in adaptations.values()]
    changes = reduce(np.add, (gate.values - 1 for gate in gates))
    return Adaptation(Gate(gates[0].geometry, 1 + changes), name=", ".join(adaptations))


def removing(choice: GateChoice) -> GateChoice:
    """The choice, with heads that come without a number removed."""
    if choice.heads is not None and choice.scale is None and choice.outside is None:
        return replace(choice, scale=0.0)
    return choice
