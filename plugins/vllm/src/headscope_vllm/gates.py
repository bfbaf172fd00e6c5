"""What requests ask for: gates by name, or written out; and the salt of the prefix cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, Head, resolve_heads
from headscope.heads.adaptation import Adaptation, heads_scaled, read_adaptation
from headscope.heads.store import held

#: A gate: its heads whose factor is not 1, by layer, then head.
Factors = tuple[tuple[int, int, float], ...]
#: What a request may write out, in characters; longer than all heads of any model.
LONGEST = 65_536
#: No request can know it; and how salts of gated requests begin.
SECRET, SALT = token_bytes(32), "headscope-"
#: Factors of requests, at most: far larger ones make infinite numbers, and their keys and values
#: lie where those of others come to lie.
GREATEST = 1000.0
#: Names of gates. A head, such as 5.1, is none.
NAME = re.compile(r"[A-Za-z_][\w.+-]{0,63}")
#: Heads whose peaks a request may ask for.
MOST = 32
NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?\s*")
#: How a gate is given at the start, besides as a folder.
OPTIONS = ("heads", "k", "factor")


@dataclass(frozen=True)
class Catalogue:
    """The gates that requests may name, for a model of this geometry."""

    geometry: Geometry
    named: Mapping[str, Factors] = field(default_factory=dict)

    def read(self, asked: Any) -> Factors:
        """The gate that a request asks for: a name, or such as `-17.2, 5.1*0.5`.

        No file is opened. Raises `InputError` for anything else, and for heads that the model has
        not.
        """
        if not isinstance(asked, str):
            raise InputError(
                f"heads is a text, the name of a gate or such as '-17.2, 5.1*0.5', not "
                f"{type(asked).__name__}"
            )
        if len(asked) > LONGEST:
            raise InputError(f"heads has {len(asked)} characters; at most {LONGEST} are read")
        asked = asked.strip()
        if asked in self.named:
            return self.named[asked]
        parts = [part.strip() for part in asked.split(",")]
        if len(parts) > self.geometry.total:
            raise InputError(
                f"heads names {len(parts)} heads, and the model has {self.geometry.total}"
            )
        if not all(part.startswith("-") or "*" in part for part in parts):
            names = ", ".join(sorted(self.named)) or "none"
            raise InputError(
                f"{asked[:60]!r} is no gate: write -5.1 for a head that is removed, 5.1*0.5 for "
                f"one that is multiplied, or a name that the server has ({names:.200})"
            )
        gate = dict(_factor(part) for part in parts)
        for head in gate:
            self.geometry.check(head)
        if len(gate) < len(parts):
            raise InputError("a head is given twice; write each once")
        return _sorted(gate)

    def read_peaks(self, asked: Any) -> tuple[tuple[int, int], ...]:
        """The heads whose peaks a request asks for: a list such as `["5.1", "L7.H2"]`.

        Raises `InputError` for anything else, for more than `MOST`, and as `read` does.
        """
        if not isinstance(asked, list | tuple) or not all(isinstance(one, str) for one in asked):
            raise InputError('peaks is a list of heads, such as ["5.1", "7.2"]')
        if not 0 < len(asked) <= MOST:
            raise InputError(f"peaks names {len(asked)} heads; name 1 to {MOST}")
        heads = [Head.parse(one) for one in asked]
        for head in heads:
            self.geometry.check(head)
        return tuple((head.layer, head.head) for head in sorted(set(heads)))


def _factor(part: str) -> tuple[Head, float]:
    """One head and its factor, of `-17.2` or `5.1*0.5`."""
    head, times, factor = part.partition("*")
    if part.startswith("-"):
        if times:
            raise InputError(f"{part[:60]!r} both removes and multiplies; write one of both")
        return Head.parse(part[1:].strip()), 0.0
    value = float(factor) if NUMBER.fullmatch(factor) else float("nan")
    if not abs(value) <= GREATEST:
        raise InputError(
            f"{part[:60]!r}: {factor.strip()[:20]!r} is no number from -{GREATEST:g} to "
            f"{GREATEST:g}"
        )
    return Head.parse(head.strip()), value


def _sorted(gate: Mapping[Head, float]) -> Factors:
    """As numbers of 32 bits, in which they are multiplied."""
    rounded = {head: float(np.float32(gate[head])) for head in sorted(gate)}
    return tuple((at.layer, at.head, factor) for at, factor in rounded.items() if factor != 1)


def factors_of(gate: Gate) -> Factors:
    """The heads of a gate that it changes."""
    return _sorted({head: float(gate[head]) for head in gate.changed_heads()})


def catalogue(given: Any, geometry: Geometry) -> Catalogue:
    """The gates of a configuration: by name a folder, or `{"heads": …, "k": …, "factor": …}`.

    A folder is a run that found heads or gates, or holds saved ones, as `--heads` takes it. Heads
    are multiplied by `factor` (0 without it: removed); of scores the best `k` are taken.

    Raises `InputError` for anything else, and for gates that are of another model.
    """
    if not isinstance(given, Mapping):
        raise InputError(
            f"gates are given by name, such as {{'es': 'runs/es'}}, not as {type(given).__name__}"
        )
    named = dict[str, Factors]()
    for name, source in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InputError(
                f"{str(name)[:60]!r} is no name of a gate: letters, digits and ._+-, a letter first"
            )
        named[name] = factors_of(_adaptation(name, source, geometry).gate)
    return Catalogue(geometry, named)


def _adaptation(name: str, source: Any, geometry: Geometry) -> Adaptation:
    options = source if isinstance(source, Mapping) else {"heads": source}
    unknown = [str(key) for key in options if key not in OPTIONS]
    heads, k, factor = (options.get(key) for key in OPTIONS)
    if (
        unknown
        or not isinstance(heads, str)
        or isinstance(factor, bool)
        or not isinstance(factor, int | float | None)
    ):
        raise InputError(
            f"gate {name}: give a folder, or an object of {', '.join(OPTIONS)}, of which heads is "
            "a folder or a list of heads and factor a number"
        )
    folder = Path(heads)
    if k is None and factor is None and folder.is_dir() and held(folder, "gate") is not None:
        adaptation = read_adaptation(folder, geometry)
        if adaptation.place != "output":
            raise InputError(f"gate {name}: multiplies {adaptation.place}, not what heads write")
        parts = adaptation.feed_forward
        if parts is not None and not np.all(parts == 1):
            raise InputError(
                f"gate {name}: has gates of feed-forward parts, which are no heads; find the mask "
                "without them, or serve a folded checkpoint"
            )
        return adaptation
    return heads_scaled(resolve_heads(heads, k, geometry), 0.0 if factor is None else factor)


def digest_of(gate: Factors) -> str:
    """What a gate is known by: equal gates, equal digests."""
    return hashlib.sha256(json.dumps(gate).encode()).hexdigest()[:32]


def salted(digest: str, own: str | None) -> str:
    """The salt of a gated request's keys and values in the prefix cache: its own, with its gate.

    Keys and values above a gated head are other ones than without the gate. Requests without a gate
    keep their salt, and so share as always. What a request may write as its own salt is no other
    request's: the secret of this process is in all of these.
    """
    mixed = hashlib.blake2b(json.dumps([digest, own]).encode(), key=SECRET, digest_size=24)
    return f"{SALT}{mixed.hexdigest()}"


def layers_of(config: Any, layers: int) -> Iterator[int]:
    """The decoder layers that have softmax attention, by a configuration's `layer_types`; all
    `layers` where it has none."""
    types = getattr(config, "layer_types", None) or ["full_attention"] * layers
    for layer, kind in enumerate(types[:layers]):
        if "attention" in kind and "linear" not in kind:
            yield layer


def geometry_of(config: Any, layers: int, heads: int) -> Geometry:
    """The geometry of a model by its configuration: as many heads in each layer with attention.

    Raises `InputError` where it says of several numbers of heads.
    """
    own = getattr(config, "num_attention_heads", heads)
    if not isinstance(own, int):
        raise InputError(
            "layers of this model have different numbers of heads, which is not served"
        )
    with_attention = set(layers_of(config, layers))
    return Geometry(tuple(heads if layer in with_attention else 0 for layer in range(layers)))
