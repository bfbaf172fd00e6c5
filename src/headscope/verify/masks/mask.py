"""Masks as they are read from runs, scaled, shuffled and put on a model."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError, naming
from headscope.heads import Gate, HeadSet, check_geometry
from headscope.heads.geometry import Geometry
from headscope.heads.resolve import check_finished

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["Mask", "Place", "read_mask", "shuffled"]

#: What the gates of a mask multiply: what heads write, or their queries.
Place = Literal["output", "query"]


@dataclasses.dataclass(frozen=True, eq=False)
class Mask:
    """A mask over a model's heads.

    Attributes:
        name: what results call it: the folder it was read from.
        gate: 1 for heads that are kept, 0 for those that are removed; `scaled` puts another
            number in place of the 0.
        feed_forward: 1 or 0 for each layer's feed-forward part, float32 (L,), or None: all kept.
        place: what the gates multiply.
        tasks: names of the tasks it was trained on, as far as its run tells.
        model: name of the model it was trained on, as far as its run tells.
    """

    name: str
    gate: Gate
    feed_forward: NDArray[np.float32] | None = None
    place: Place = "output"
    tasks: tuple[str, ...] = ()
    model: str | None = None

    @property
    def removed(self) -> HeadSet:
        """The heads outside the mask, by layer, then head."""
        return HeadSet.from_mask(self.gate.geometry, self.gate.values != 1)

    @property
    def kept(self) -> HeadSet:
        """The heads inside the mask, by layer, then head."""
        return self.removed.complement()

    def scaled(self, alpha: float) -> Mask:
        """The mask with `alpha` in place of 0: 1 is the model as it is, 0 the mask itself.

        Heads Up!, section 5: 1[σ(M) ≥ 0.5] + α · 1[σ(M) < 0.5]. Feed-forward gates likewise.
        """
        gate = Gate(self.gate.geometry, np.where(self.gate.values == 1, 1, np.float32(alpha)))
        parts = self.feed_forward
        if parts is not None:
            parts = np.where(parts == 1, 1, alpha).astype(np.float32)
        return dataclasses.replace(self, gate=gate, feed_forward=parts)

    @contextlib.contextmanager
    def on(self, lm: LanguageModel) -> Iterator[None]:
        """Put the mask on a model inside the context."""
        import torch

        from headscope.lm.feed_forward import feed_forward_gated
        from headscope.lm.queries import query_gated

        with contextlib.ExitStack() as stack:
            if self.place == "query":
                stack.enter_context(query_gated(lm, torch.from_numpy(self.gate.values.copy())))
            else:
                stack.enter_context(lm.gated(self.gate))
            if self.feed_forward is not None:
                stack.enter_context(feed_forward_gated(lm, torch.from_numpy(self.feed_forward)))
            yield

    def as_dict(self) -> dict[str, Any]:
        """What a result says about the mask."""
        total = self.gate.geometry.total
        return {
            "name": self.name,
            "tasks": list(self.tasks),
            "model": self.model,
            "kept": len(self.kept),
            "removed": len(self.removed),
            "kept_share": len(self.kept) / total,
            "on": self.place,
            "feed_forward_removed": (
                0 if self.feed_forward is None else int((self.feed_forward != 1).sum())
            ),
        }


def read_mask(folder: str | Path, geometry: Geometry) -> Mask:
    """The mask of a finished run of `headscope find mask`, or a saved gate, for a model.

    Raises `InputError` if there is none, the run is not finished, it holds other numbers than 0
    and 1, or it was made for another geometry.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; name a run of headscope find mask, or a gate")
    check_finished(folder)
    place = folder / "gate" if (folder / "gate").is_dir() else folder
    gate = Gate.from_pretrained(place)
    with naming(place):
        check_geometry(gate, geometry, "the mask")
    if not np.isin(gate.values, (0, 1)).all():
        raise InputError(
            f"{place}: holds other numbers than 0 and 1, so it is no mask; name a run of "
            "headscope find mask"
        )
    result = _object(folder / "result.json")
    on = result.get("on", "output")
    if on not in ("output", "query"):
        raise InputError(f"{folder / 'result.json'}: is damaged; find the mask again")
    model = result.get("model")
    return Mask(
        name=folder.name,
        gate=gate,
        feed_forward=_feed_forward(folder / "feed_forward.safetensors", geometry),
        place=on,
        tasks=tuple(_object(folder / "found_on.json")),
        model=str(model["name"]) if isinstance(model, dict) and "name" in model else None,
    )


def shuffled(mask: Mask, draws: int, seed: int = 0, layer_matched: bool = False) -> list[Mask]:
    """Masks that keep as many heads as this one, drawn at random from all of the model's heads.

    Heads Up!, section 3.4: the task's mask, shuffled. `layer_matched` shuffles within each layer.
    Draw i is the same however many there are. Feed-forward gates stay as they are. Raises
    `InputError` if the mask keeps or removes every head, since then there is nothing to shuffle.
    """
    geometry = mask.gate.geometry
    if draws and not 0 < len(mask.removed) < geometry.total:
        what = "keeps" if len(mask.kept) else "removes"
        raise InputError(
            f"the mask {mask.name} {what} all {geometry.total} heads, so there is no other of its "
            "size to compare it with; train it otherwise"
        )
    name = "layer-matched" if layer_matched else "free"
    found = []
    for number in range(draws):
        stream = random.Random(f"{name} masks {seed} {number}")
        heads = list(geometry.heads())
        values = np.ones(geometry.shape, dtype=np.float32)
        groups = (
            [[head for head in heads if head.layer == layer] for layer in range(geometry.layers)]
            if layer_matched
            else [heads]
        )
        for group in groups:
            lost = sum(mask.gate[head] != 1 for head in group)
            for head in stream.sample(group, lost):
                values[head.layer, head.head] = 0
        found.append(
            dataclasses.replace(mask, name=f"{name} {number}", gate=Gate(geometry, values))
        )
    return found


def _feed_forward(file: Path, geometry: Geometry) -> NDArray[np.float32] | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not file.exists():
        return None
    try:
        values = np.asarray(load(file.read_bytes())["mask"], dtype=np.float32)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{file}: is damaged; find the mask again") from error
    if values.shape != (geometry.layers,) or not np.isin(values, (0, 1)).all():
        raise InputError(
            f"{file}: holds no mask of {geometry.layers} layers; find the mask for this model"
        )
    return values


def _object(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: is damaged; find the mask again") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: is damaged; find the mask again")
    return value
