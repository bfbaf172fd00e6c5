"""The controls by name: ways to draw sets of heads beside selected ones, one file each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple, Protocol

from headscope import options
from headscope.ablations import KINDS, AblateName
from headscope.errors import InputError, nearest
from headscope.evidence.controls.equal_norm import EQUAL_NORM
from headscope.evidence.controls.foreign import FOREIGN
from headscope.evidence.controls.instructed import INSTRUCTED
from headscope.evidence.controls.local_agreement import LOCAL_AGREEMENT
from headscope.evidence.controls.mask_alone import MASK_ALONE
from headscope.evidence.controls.outside import OUTSIDE
from headscope.evidence.controls.random import RANDOM
from headscope.evidence.controls.same_layers import SAME_LAYERS
from headscope.evidence.controls.shuffled import SHUFFLED
from headscope.evidence.controls.shuffled_same_layers import SHUFFLED_SAME_LAYERS
from headscope.evidence.controls.wait_k import WAIT_K
from headscope.evidence.rows import NOTHING, SELECTED, Basis, Condition, Control
from headscope.heads import HeadSet
from headscope.heads.geometry import keys_of
from headscope.installed import Parts
from headscope.measure.sequence import MOST_DRAWS, Rule
from headscope.settings import GIVEN, UNSIGNED, Settings

#: In the order in which they are shown, those of installed packages last.
CONTROLS: Parts[Control] = Parts({
    "random": RANDOM,
    "same layers": SAME_LAYERS,
    "outside": OUTSIDE,
    "equal norm": EQUAL_NORM,
    "shuffled": SHUFFLED,
    "shuffled same layers": SHUFFLED_SAME_LAYERS,
    "foreign": FOREIGN,
    "instructed": INSTRUCTED,
    "mask alone": MASK_ALONE,
    "wait-k": WAIT_K,
    "local agreement": LOCAL_AGREEMENT,
}, "controls", Control)  # fmt: skip
#: Those that every command draws if nothing else is asked for, and those of commands about masks.
DEFAULT = ("random", "same layers")
SHUFFLES = ("shuffled", "shuffled same layers")
#: Any sets of the size, and those that depth cannot tell from the selected ones.
FREE, MATCHED = ("random", "shuffled"), ("same layers", "shuffled same layers")


def control_named(name: str) -> str:
    """The name of a control as the registry has it; `same-layers` is `same layers`.

    Raises `InputError` for a name that is not registered, or of what is not drawn.
    """
    wanted = name.strip().replace("-", " ").replace("_", " ").casefold()
    known = [control_name for control_name, control in CONTROLS.items() if control.draw is not None]
    if wanted not in known:
        raise InputError(
            f"the control {name!r} is not known; {nearest(wanted, known)}There are "
            f"{', '.join(known)}"
        )
    return wanted


class Controlled(Settings):
    """Settings with `controls`, which get the names of the registry, each once.

    Raises `InputError` as `control_named` does.
    """

    controls: tuple[str, ...]

    def __post_init__(self) -> None:
        named = tuple(dict.fromkeys(map(control_named, self.controls)))
        object.__setattr__(self, "controls", named)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Beside(Controlled):
    """What stands beside selected heads: `draws` sets of every control.

    "auto": one after another until they decide (see `headscope.measure.sequence`). `claims`: where
    the verdict is one of a family's claims, whose heads they are about (empty: all); then there are
    `draws` at most, and no more after the first that does as much, with p = 1/t at draw t.
    """

    draws: options.DrawsOrAuto = "auto"
    claims: tuple[str, ...] | None = field(default=None, metadata=GIVEN)
    controls: options.Controls = DEFAULT
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    kept: options.KeptIn = field(default=None, metadata=UNSIGNED)
    minutes: options.Minutes = field(default=None, metadata=UNSIGNED)
    plan: options.Plan = field(default=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        if isinstance(self.draws, str) and self.draws != "auto":
            raise InputError(f"--draws is {self.draws!r}; give a number from 1, or auto")
        super().__post_init__()

    @property
    def ablate(self) -> tuple[AblateName, ...]:
        """What stands in the place of removed heads: nothing, where settings do not say."""
        return ("zero",)

    @property
    def in_sequence(self) -> Rule | None:
        """By what draws one after another end; None where their number is fixed."""
        if self.draws == "auto":
            return "bet"
        return None if self.claims is None else "first"

    @property
    def most_draws(self) -> int:
        """The draws of what is measured under most of them."""
        return MOST_DRAWS if self.draws == "auto" else self.draws


@dataclass(frozen=True, kw_only=True)
class Changing(Beside):
    """What is done to heads, and what stands beside them.

    `ablate` says what stands in the place of what is removed, "zero" or of reference examples (see
    `headscope.lm.replacement`); several are conditions of their own, of the same heads.
    """

    ablate: options.Ablations = ("zero",)

    def __post_init__(self) -> None:
        if sorted(set(self.ablate) & {*KINDS}) != sorted(self.ablate) or not self.ablate:
            raise InputError(
                f"--ablate is {', '.join(self.ablate) or 'empty'}; give "
                f"{', '.join(KINDS)}, or several, each once"
            )
        super().__post_init__()


def one_ablation(ablate: Sequence[AblateName]) -> AblateName:
    """What stands in the place of heads, where it can be one thing alone."""
    if len(ablate) != 1:
        raise InputError("--ablate is given twice; one thing stands in the place of heads")
    return ablate[0]


class Drawing(Protocol):
    """Settings that say which controls stand beside selected heads: `draws` sets of each."""

    @property
    def draws(self) -> int: ...
    @property
    def controls(self) -> tuple[str, ...]: ...
    @property
    def seed(self) -> int: ...


class Draws(NamedTuple):
    """The same where no settings say so."""

    draws: int
    controls: tuple[str, ...]
    seed: int = 0


def drawn(
    selected: Condition, heads: HeadSet, how: Drawing, basis: Basis = NOTHING
) -> Iterator[Condition]:
    """The controls of selected heads, under what is done to these.

    Draws follow from the seed: selected sets of one size, such as those of several languages, stand
    beside the same random sets.

    Raises `InputError` as `headscope.heads.draws.draw_sets` does.
    """
    for name in how.controls:
        for number, drawn in enumerate(sets_of(name, heads, how.draws, how.seed, basis)):
            yield replace(selected, kind=name, draw=number, heads=keys_of(drawn))


@dataclass(frozen=True)
class SelectedHeads:
    """Heads to be changed, and how.

    Attributes:
        heads: best first; without any there is no condition.
        of: whose heads they are (see `Condition`).
        k: how many were asked for; None: as many as there are.
        gates: what their outputs are multiplied by, each a condition of its own.
        avoid: what the control `outside` leaves out beside them; None: what the basis says.
    """

    heads: HeadSet
    of: str = ""
    k: int | None = None
    gates: tuple[float, ...] = (0.0,)
    avoid: HeadSet | None = None


def planned(
    selected: Sequence[SelectedHeads],
    how: Drawing,
    basis: Basis = NOTHING,
    ablate: Sequence[str] = ("zero",),
) -> tuple[Condition, ...]:
    """The model as it is; then every set at each of its gates and with each replacement of what
    gates remove, with its controls.

    The draws of a set are the same at every gate and replacement. Raises `InputError` as
    `draw_sets` does.
    """
    conditions = [Condition()]
    for chosen in selected:
        if not len(chosen.heads):
            continue
        k = len(chosen.heads) if chosen.k is None else chosen.k
        named = keys_of(chosen.heads)
        alone = Condition(SELECTED, chosen.of, k, 0.0, heads=named)
        beside = basis if chosen.avoid is None else replace(basis, avoid=chosen.avoid)
        together = (alone, *drawn(alone, chosen.heads, how, beside))
        conditions += [
            replace(condition, gate=gate, replacement=replacement)
            for gate, replacement, condition in product(chosen.gates, ablate, together)
        ]
    return tuple(conditions)


def sets_of(
    name: str, heads: HeadSet, draws: int, seed: int = 0, basis: Basis = NOTHING
) -> Sequence[HeadSet]:
    """The sets of a control.

    Raises `InputError` for a control that only the command which has it can draw.
    """
    draw = CONTROLS[name].draw
    if draw is None:
        raise InputError(f"the control {name!r} cannot be drawn here; use random or same layers")
    return draw(heads, draws, seed, basis)
