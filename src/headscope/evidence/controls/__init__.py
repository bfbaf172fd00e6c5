"""The controls by name: ways to draw sets of heads beside selected ones, one file each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from difflib import get_close_matches

from headscope.errors import InputError
from headscope.evidence.controls.outside import OUTSIDE
from headscope.evidence.controls.random import RANDOM
from headscope.evidence.controls.same_layers import SAME_LAYERS
from headscope.evidence.rows import Condition, Control
from headscope.heads import HeadSet

#: In the order in which they are shown.
CONTROLS: dict[str, Control] = {
    "random": RANDOM,
    "same layers": SAME_LAYERS,
    "outside": OUTSIDE,
}
#: Those that every command draws if nothing else is asked for.
DEFAULT = ("random", "same layers")


def control_named(name: str) -> str:
    """The name of a control as the registry has it; `same-layers` is `same layers`.

    Raises `InputError` for a name that is not registered.
    """
    wanted = name.strip().replace("-", " ").replace("_", " ").casefold()
    if wanted not in CONTROLS:
        near = get_close_matches(wanted, CONTROLS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InputError(
            f"the control {name!r} is not known; {hint}There are {', '.join(CONTROLS)}"
        )
    return wanted


def controls_named(names: Collection[str]) -> tuple[str, ...]:
    """Controls by their names in the registry, each once."""
    return tuple(dict.fromkeys(map(control_named, names)))


def drawn(
    selected: Condition,
    heads: HeadSet,
    controls: Collection[str],
    draws: int,
    seed: int = 0,
    avoid: HeadSet | None = None,
) -> Iterator[Condition]:
    """The conditions of selected heads' controls: `draws` different sets of each, or all there are.

    `avoid` are heads, such as token alignment heads, that `outside` leaves out. Raises `InputError`
    as `headscope.heads.draws.draw_sets` does.
    """
    for name in controls:
        draw = CONTROLS[name].draw
        for number, own in enumerate(draw(heads, draws, seed, avoid) if draw else ()):
            yield replace(selected, kind=name, draw=number, heads=tuple(map(str, own)))
