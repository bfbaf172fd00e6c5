"""The model card of an export: what was done to which base, and under which licence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from headscope.heads import Gate, Head
from headscope.heads.store import installed_version
from headscope.use.exporting.base import Base

Kind = Literal["checkpoint", "ia3"]
_MOST = 12


@dataclass(frozen=True)
class Told:
    """What a card says of an export.

    `gate` is what was exported, with its origin; `feed_forward` one number a layer, or None;
    `signature` that of the export itself; `found` words on where heads or gate come from; `dtype`
    says how numbers are stored; `dequantised` the method that the base was quantised by;
    `same_weights` whether the heads were found on these very weights, or None.
    """

    kind: Kind
    base: Base
    gate: Gate
    signature: str
    found: str
    dtype: str
    feed_forward: NDArray[Any] | None = None
    dequantised: str | None = None
    same_weights: bool | None = None


def export_card(told: Told) -> str:
    """README.md of an exported checkpoint or adapter, with the front matter that the Hub reads."""
    base = told.base
    adapter = told.kind == "ia3"
    front: dict[str, Any] = dict(base.carried)
    front["library_name"] = "peft" if adapter else "transformers"
    front["tags"] = ["headscope", "attention-heads", *(["ia3"] if adapter else [])]
    if base.base_models:
        front["base_model"] = list(base.base_models)
        if adapter:
            front["base_model_relation"] = "adapter"
    changed = told.gate.changed_heads()
    what = "An (IA)³ adapter" if adapter else "A checkpoint"
    lines = ["---", *_yaml(front), "---", ""]
    lines += [f"# {_plain(base.name)} with {_heads(len(changed))} gated", ""]
    lines += [
        f"{what} of {_code(base.name)}"
        + (f" at commit {_code(base.revision)}" if base.revision else "")
        + f", written by headscope {installed_version()}. {_done(told)}",
        "",
        "## What was done",
        "",
        *_values(told.gate, changed.heads),
    ]
    if told.feed_forward is not None:
        lines += _layers(told.feed_forward)
    lines += ["", f"Where the heads come from: {_plain(told.found)}."]
    origin = told.gate.origin
    if origin.method:
        lines += ["", f"Found by the method {_code(origin.method)}."]
    if origin.signature:
        lines += ["", f"Signature of the run that found them: {_code(origin.signature)}"]
    if told.same_weights is False:
        lines += ["", "They were found on other weights of the same shape, not on these."]
    lines += ["", f"Signature of this export: {_code(told.signature)}", "", f"{told.dtype}"]
    if told.dequantised:
        lines += ["", f"The base was quantised ({_code(told.dequantised)}) and was dequantised."]
    return "\n".join([*lines, "", "## Licence", "", _licence(base), ""])


def _done(told: Told) -> str:
    parts = told.feed_forward is not None and bool((told.feed_forward != 1).any())
    if told.kind == "ia3":
        also = ", and what feed-forward parts add" if parts else ""
        return (
            "Its vectors multiply what single attention heads hand to their layer's output "
            f"projection{also}; the base model's weights are not changed."
        )
    also = ", and so are the last projections of feed-forward parts" if parts else ""
    as_base = (
        "all other weights are those of the base model, dequantised"
        if told.dequantised
        else "all other weights are those of the base model, byte by byte"
    )
    return (
        "The slices of the attention output projections that belong to single heads are multiplied "
        f"by numbers{also}; {as_base}."
    )


def _values(gate: Gate, heads: Sequence[Head]) -> list[str]:
    """The heads by the number that they are multiplied by, or each with its own."""
    if not heads:
        return ["Every head is multiplied by 1, so nothing is changed."]
    by_value: dict[float, list[Head]] = {}
    for head in heads:
        by_value.setdefault(gate[head], []).append(head)
    total = gate.geometry.total
    lines = [f"{_heads(len(heads))} of {total} (written LAYER.HEAD, both from 0):", ""]
    if len(by_value) > _MOST:
        return lines + [f"- {head} × {gate[head]:.6g}" for head in heads]
    for value, members in sorted(by_value.items()):
        done = "removed (× 0)" if value == 0 else f"× {value:.6g}"
        lines.append(f"- {done}: {', '.join(map(str, sorted(members)))}")
    return lines


def _layers(values: NDArray[Any]) -> list[str]:
    changed = [(layer, float(value)) for layer, value in enumerate(values) if value != 1]
    if not changed:
        return []
    told = ", ".join(f"{layer} (× {value:.6g})" for layer, value in changed)
    return ["", f"What the feed-forward part of these layers adds is multiplied too: {told}."]


def _licence(base: Base) -> str:
    name = _code(base.name)
    if base.licence is not None:
        return (
            f"As {name}, whose card names the licence {_code(base.licence)}; its terms hold for "
            "this model too."
        )
    why = base.unread or "its card names none"
    return (
        f"No licence of {name} is known here: {_plain(why)}. Whoever passes this model on has to "
        "find out the base model's terms, which hold for it too."
    )


def _yaml(values: dict[str, Any]) -> Iterable[str]:
    # What JSON writes is YAML as well, whatever it holds.
    return (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())


def _heads(count: int) -> str:
    return "1 attention head" if count == 1 else f"{count} attention heads"


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _plain(text: str) -> str:
    return " ".join(str(text).replace("`", "'").split())
