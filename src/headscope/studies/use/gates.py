"""What commands put on a model or write into one: a gate by name, or heads and a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from headscope import options
from headscope.data.files import parse_json
from headscope.data.rows import ID, Field, read_fields
from headscope.errors import InputError, naming
from headscope.heads import Amount, Gate, Geometry, Head, resolve_heads
from headscope.heads.adaptation import LARGEST, Adaptation, heads_scaled, read_adaptation
from headscope.results.adapt import AppliedGate, GateNumbers
from headscope.results.common import ModelFacts
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import Block, HeadMap, HeadMaps, HeadSets, Section, one_column
from headscope.shown.words import number
from headscope.studies.shows import named_places

#: So many different factors are shown as sets of heads, more as a table.
FEW = 8


@dataclass(frozen=True)
class GateChoice(Settings):
    """What is applied: a gate by name, or heads with a number; its values count in the signature.

    Without `scale` heads are multiplied by 0, or by 1 where `outside` is given.
    """

    gate: Annotated[
        str | None,
        Option("A run that found a mask or soft gates, or a saved gate.", metavar="RUN"),
    ] = field(default=None, metadata=UNSIGNED)
    heads: Annotated[
        str | None,
        Option(
            "Instead of --gate, heads to multiply by --scale: a run, a saved set, a file of heads, "
            "or a list: 5.3,7.11.",
            held="heads",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    k: Annotated[
        Amount | None,
        Option(
            "Heads: a number, or a share such as 2%. By default a set whole, of scores 20 (15% "
            "below 256).",
            metavar="K",
            typed=str,
        ),
    ] = field(default=None, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    scale: Annotated[
        float | None, Option("Multiply --heads by this; without it 0, removal.", metavar="X")
    ] = None
    outside: Annotated[
        float | None,
        Option(
            "Put this in place of a mask's 0; with --heads, multiply all others by it.",
            metavar="ALPHA",
            panel="Expert",
        ),
    ] = None

    def check(self) -> None:
        """Raises `InputError` unless it says one thing to apply."""
        if (self.gate is None) == (self.heads is None):
            raise InputError(
                "what is to be applied is not clear; give either --gate RUN, or --heads, with "
                "--scale or --outside"
            )
        if self.gate is not None and (self.scale is not None or self.k is not None):
            raise InputError(
                "--scale and --k go with --heads; a gate says by itself which heads it multiplies "
                "by what, and --outside puts another number in place of a mask's 0"
            )

    def read(self, geometry: Geometry, model: str = "") -> Adaptation:
        """The numbers for a model of this geometry and name; `InputError` as its parts are read."""
        self.check()
        if self.gate is not None:
            adaptation = read_adaptation(self.gate, geometry)
            return adaptation if self.outside is None else adaptation.outside(self.outside)
        heads = resolve_heads(str(self.heads), self.k, geometry, by=self.rank, model=model)
        scale, outside = self.scale, self.outside
        if scale is None:
            scale = 0.0 if outside is None else 1.0
        return heads_scaled(heads, scale, 1.0 if outside is None else outside)


def read_gates(path: str, ids: Sequence[str], geometry: Geometry) -> tuple[list[Gate], str]:
    """The gates of prompts by their ids, each in a row of a file, and the file's digest.

    Column `heads` of a row holds what heads are multiplied by, `{"5.3": 0, "7.11": 0.5}`; all
    others are multiplied by 1. A row may name its prompt in `id`; the order is that of the prompts.
    Raises `InputError`, naming file and line, unless there is one gate a prompt.
    """

    def gate(cell: Any, place: str, column: str) -> Gate:
        name = f"{place}: column {column!r}"
        if isinstance(cell, str):  # in a text table
            cell = parse_json(cell, name, 'write {"5.3": 0, "7.11": 0.5}')
        if not isinstance(cell, Mapping):
            raise InputError(f'{name} is no JSON object; write {{"5.3": 0, "7.11": 0.5}}')
        values = np.ones(geometry.shape, dtype=np.float32)
        heads: set[Head] = set()
        for text, factor in cell.items():
            with naming(name):
                head = Head.parse(text)
                geometry.check(head)
            if head in heads:
                raise InputError(f"{name} names head {head} twice; name it once")
            heads.add(head)
            known = isinstance(factor, int | float) and not isinstance(factor, bool)
            if not known or not abs(factor) <= LARGEST:
                raise InputError(
                    f"{name} multiplies {text} by {repr(factor)[:20]}; give a finite number"
                )
            values[head.layer, head.head] = factor
        return Gate(geometry, values)

    factors = Field("heads", gate)
    rows, digest = read_fields(path, (factors, ID))
    if len(rows) != len(ids):
        raise InputError(
            f"{path} holds {len(rows)} gates for {len(ids)} prompts; give one each, in their order"
        )
    for row, own in zip(rows, ids, strict=True):
        if row[ID] not in (None, own):
            raise InputError(
                f"{row.place} is for the prompt {row.id!r}, but prompt {own!r} stands there; put "
                "gates and prompts into one order"
            )
    return [row[factors] for row in rows], digest


def about(adaptation: Adaptation) -> AppliedGate:
    """What a result says about what was applied."""
    gate, parts = adaptation.gate, adaptation.feed_forward
    return AppliedGate(
        name=adaptation.name,
        on=adaptation.place,
        mask=adaptation.is_mask,
        heads=len(gate.changed_heads()),
        removed=len(gate.removed_heads()),
        of=gate.geometry.total,
        feed_forward=0 if parts is None else int((parts != 1).sum()),
        applied=GateNumbers(**adaptation.as_dict()),
    )


def about_gates(name: str, gates: Sequence[Gate]) -> AppliedGate:
    """What a result says about gates of single prompts."""
    changed = {head for gate in gates for head in gate.changed_heads()}
    removed = {head for gate in gates for head in gate.removed_heads()}
    return AppliedGate(
        name=name,
        on="output",
        heads=len(changed),
        removed=len(removed),
        of=gates[0].geometry.total,
        feed_forward=0,
        different=len({gate.values.tobytes() for gate in gates}),
    )


def factors_of(gate: Gate) -> dict[str, float]:
    """What single heads are multiplied by, where it is not 1."""
    return {head.key: gate[head] for head in gate.changed_heads()}


def factors_section(model: ModelFacts | None, applied: GateNumbers) -> list[Section]:
    """What heads and feed-forward parts are multiplied by, where it is not 1."""
    blocks: list[Block] = []
    by_factor = _by_factor(applied.heads)
    if applied.heads and model is not None and model.geometry is not None:
        known = dict(zip(named_places(applied.heads), applied.heads.values(), strict=True))
        values = tuple(
            tuple(known.get((layer, head), 1.0) for head in range(heads))
            for layer, heads in enumerate(model.geometry["counts"])
        )
        maps = (HeadMap("factor", values, tuple(known)),)
        marked = "a factor other than 1"
        blocks.append(HeadMaps("Factor of every head", maps, "factor", marked=marked))
    if len(by_factor) <= FEW:
        sets = {f"times {number(of)}": named_places(heads) for of, heads in by_factor.items()}
        blocks += [HeadSets("Heads by factor", sets)] if sets else []
    else:
        rows = (
            (str(Head.parse(head)), number(of)) for of, heads in by_factor.items() for head in heads
        )
        blocks.append(one_column("Heads by factor", "factor", rows))
    if applied.feed_forward:
        layers = _by_factor(applied.feed_forward).items()
        rows = ((f"times {number(of)}", ", ".join(names)) for of, names in layers)
        blocks.append(one_column("Feed-forward parts by factor", "layers", rows))
    lead = "All other parts are multiplied by 1."
    return [Section("What was applied", blocks, lead)] if blocks else []


def _by_factor(factors: Mapping[str, float]) -> dict[float, list[str]]:
    """Places by their factor, the factors ascending."""
    places: dict[float, list[str]] = {factor: [] for factor in sorted(factors.values())}
    for place, factor in factors.items():
        places[factor].append(place)
    return places
