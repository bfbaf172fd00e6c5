"""Masks as they are read from runs, scaled, shuffled and put on a model."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

from headscope.errors import InputError
from headscope.heads import Geometry, Head, HeadSet
from headscope.heads.adaptation import Adaptation, read_adaptation, read_object
from headscope.heads.draws import Choices, distinct_sets
from headscope.heads.resolve import place_of
from headscope.results.mask_tests import MaskFacts


@dataclasses.dataclass(frozen=True, eq=False)
class Mask(Adaptation):
    """A mask over a model's heads: 1 for those that are kept, 0 for those that are removed.

    Attributes:
        tasks: names of the tasks it was trained on, as far as its run tells.
        model: name of the model it was trained on, as far as its run tells.
    """

    tasks: tuple[str, ...] = ()
    model: str | None = None

    def unseen(self, task: str) -> bool | None:
        """Whether the task is none of those that the mask was trained on; None if not known."""
        return task not in self.tasks if self.tasks else None

    def about(self) -> MaskFacts:
        """What a result says about the mask."""
        parts = self.feed_forward
        return MaskFacts(
            name=self.name,
            tasks=self.tasks,
            model=self.model,
            kept=len(self.kept),
            removed=len(self.removed),
            kept_share=len(self.kept) / self.gate.geometry.total,
            on=self.place,
            feed_forward_removed=0 if parts is None else int((parts != 1).sum()),
        )


def read_mask(folder: str | Path, geometry: Geometry) -> Mask:
    """The mask of a finished run of `headscope find mask`, or a saved gate, for a model.

    Raises `InputError` if there is none, the run is not finished, it holds other numbers than 0
    and 1, or it was made for another geometry.
    """
    read = read_adaptation(folder, geometry)
    if not read.is_mask:
        raise InputError(
            f"{folder}: holds other numbers than 0 and 1, so it is no mask; name a run of "
            "headscope find mask"
        )
    place = place_of(folder) or Path(folder)
    model = read_object(place / "result.json").get("model")
    return Mask(
        read.gate,
        read.feed_forward,
        read.place,
        read.name,
        tasks=tuple(read_object(place / "found_on.json")),
        model=str(model["name"]) if isinstance(model, dict) and "name" in model else None,
    )


def shuffled(mask: Mask, draws: int, seed: int = 0, layer_matched: bool = False) -> list[Mask]:
    """Different masks that keep as many heads as this one, drawn from all of the model's heads.

    Heads Up!, section 3.4: the task's mask, shuffled, and never the mask itself. `layer_matched`
    shuffles within each layer. Draw i is the same however many there are; where fewer such masks
    exist than asked for (within layers perhaps none), each is drawn once. Feed-forward gates stay
    as they are. Raises
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
    heads = list(geometry.heads())
    groups = (
        [[head for head in heads if head.layer == layer] for layer in range(geometry.layers)]
        if layer_matched
        else [heads]
    )
    lost = [sum(mask.gate[head] != 1 for head in group) for group in groups]

    def draw(stream: random.Random) -> Iterator[Head]:
        for group, count in zip(groups, lost, strict=True):
            yield from stream.sample(group, count)

    found = distinct_sets(
        Choices(groups, [tuple(lost)]),
        draw,
        draws,
        f"{name} masks {seed}",
        without=[frozenset(mask.removed)],
    )
    return [
        dataclasses.replace(mask, name=f"{name} {number}", gate=HeadSet(geometry, one).removed())
        for number, one in enumerate(found)
    ]
