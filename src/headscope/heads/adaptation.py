"""What is applied to a model: gates on its heads and, of some masks, on its feed-forward parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError, naming
from headscope.heads.geometry import Geometry, check_geometry, without_gradients
from headscope.heads.resolve import place_of
from headscope.heads.sets import Gate, HeadSet
from headscope.heads.store import check_finished, kind_of, read_json, read_tensors, with_details

#: What the gates multiply: what heads write, or their queries.
Place = Literal["output", "query"]
#: Gates are numbers of 32 bits, in which a larger one is infinite.
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Adaptation:
    """Numbers by which parts of a model are multiplied while it runs.

    Attributes:
        gate: a number for each head; 1 keeps it, 0 removes it, anything else scales it.
        feed_forward: a number for each decoder layer's feed-forward part, float32 (L,), or None:
            all are kept. `InputError` for another shape, or one that is not finite.
        place: whether the gates multiply what heads write, or their queries, so that a head with
            gate 0 attends evenly.
    """

    gate: Gate
    feed_forward: NDArray[np.float32] | None = None
    place: Place = "output"
    name: str = "gate"

    def __post_init__(self) -> None:
        if self.feed_forward is None:
            return
        parts = np.array(without_gradients(self.feed_forward), dtype=np.float32)
        layers = self.gate.geometry.layers
        if parts.shape != (layers,) or not np.isfinite(parts).all():
            raise InputError(
                f"feed-forward gates of {layers} layers are {layers} finite numbers, not an array "
                f"of shape {parts.shape}" + ("" if parts.shape != (layers,) else " with NaN")
            )
        parts.flags.writeable = False
        object.__setattr__(self, "feed_forward", parts)

    @property
    def is_mask(self) -> bool:
        """Whether all its numbers are 0 or 1."""
        parts = self.feed_forward
        own = bool(np.isin(self.gate.values, (0, 1)).all())
        return own and (parts is None or bool(np.isin(parts, (0, 1)).all()))

    def outside(self, alpha: float) -> Self:
        """A mask with `alpha` in place of 0: heads outside it keep a part of their strength.

        1 is the model as it is, 0 the mask itself (Heads Up!, section 5); feed-forward gates
        likewise. Raises `InputError` for gates that are no mask.
        """
        _check_number(alpha, "α")
        if not self.is_mask:
            raise InputError(
                f"{self.name}: holds other numbers than 0 and 1, so it is no mask that heads are "
                "outside of; leave α (--outside) away, or name a run of headscope find mask"
            )
        values = np.where(self.gate.values == 1, 1, np.float32(alpha))
        gate = Gate(self.gate.geometry, values, self.gate.origin)
        parts = self.feed_forward
        if parts is not None:
            parts = np.where(parts == 1, 1, alpha).astype(np.float32)
        return replace(self, gate=gate, feed_forward=parts)

    @property
    def removed(self) -> HeadSet:
        """The heads whose gate is not 1, by layer, then head; of a mask those outside it."""
        return HeadSet.from_mask(self.gate.geometry, self.gate.values != 1)

    @property
    def kept(self) -> HeadSet:
        """The heads whose gate is 1, by layer, then head; of a mask those inside it."""
        return self.removed.complement()

    def as_dict(self) -> dict[str, Any]:
        """All its numbers but 1, as a JSON object: what decides its effect."""
        parts = self.feed_forward
        return {
            "on": self.place,
            "heads": {head.key: self.gate[head] for head in self.gate.changed_heads()},
            "feed_forward": {}
            if parts is None
            else {str(layer): float(parts[layer]) for layer in np.flatnonzero(parts != 1)},
        }


def heads_scaled(heads: HeadSet, scale: float, outside: float = 1.0) -> Adaptation:
    """The heads of a set times `scale`, and all other heads times `outside`.

    Raises `InputError` for numbers that are not finite in 32 bits.
    """
    _check_number(scale, "the factor of the heads")
    _check_number(outside, "α")
    inside = heads.mask()
    rest = heads.geometry.mask() & ~inside
    values = np.ones(heads.geometry.shape, dtype=np.float32)
    values[inside], values[rest] = scale, outside
    return Adaptation(
        Gate(heads.geometry, values, heads.origin), name=f"{len(heads)} heads × {scale:g}"
    )


def read_adaptation(folder: str | PathLike[str], geometry: Geometry | None = None) -> Adaptation:
    """The gate of a finished run (a mask or soft gates), or a saved gate.

    `folder` may also be a repository of the Hub, as for `--heads`. A run of `headscope find mask`
    brings its feed-forward gates, if it learned some, and says whether its gates are for queries.
    Raises `InputError` if there is no gate, the run is not finished or damaged, or the gate is for
    another geometry than `geometry`.
    """
    if not str(folder).strip():
        raise InputError("no gate is named; name a run that found one, or a saved gate")
    path = place_of(folder)
    if path is None or not path.is_dir():
        raise InputError(
            f"{folder}: is no folder; name a run that found a mask or soft gates, or a saved gate"
        )
    check_finished(path)
    place = next((option for option in (path / "gate", path) if kind_of(option) == "gate"), None)
    if place is None:
        raise InputError(
            f"{folder}: holds no gate; name a run that found a mask or soft gates, or a saved "
            "gate (heads and scores become one by --heads and --scale)"
        )
    folder, gate = path, Gate.from_pretrained(place)
    if geometry is not None:
        with naming(place):
            check_geometry(gate, geometry, "the gate")
    # A gate by itself, as it lies on the Hub, says it too.
    found = with_details(read_object(folder / "result.json"))
    on = found.get("on", gate.origin.config.get("on", "output"))
    if on not in get_args(Place):
        raise InputError(f"{folder / 'result.json'}: is damaged; run the same command again")
    file = folder / "feed_forward.safetensors"
    with naming(file):
        return Adaptation(gate, _feed_forward(file), on, folder.name or str(folder))


def _check_number(value: float, what: str) -> None:
    if not abs(value) <= LARGEST:
        raise InputError(f"{what} is {value}; give a finite number of 32 bits: 0 removes, 1 keeps")


def _feed_forward(file: Path) -> NDArray[np.float32] | None:
    if not file.exists():
        return None
    tensors = read_tensors(file, "find the mask again")
    if "mask" not in tensors:
        raise InputError(f"{file}: is damaged; find the mask again")
    return np.asarray(tensors["mask"], dtype=np.float32)


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file of a run; empty if there is no such file, InputError if damaged."""
    return read_json(file) if file.exists() else {}
