"""The model card of an export: what was done to which base, and under which licence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from headscope.errors import InputError, first_line
from headscope.heads import Gate, Head
from headscope.heads.store import installed_version
from headscope.hub import download
from headscope.lm.gguf import is_gguf, open_gguf
from headscope.results.export import PrunedHeads
from headscope.use.exporting.checkpoint import LEGAL

ExportKind = Literal["checkpoint", "pruned", "ia3", "lora"]
_ADAPTERS = {"ia3": "An (IA)³ adapter", "lora": "A LoRA adapter"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: What a base's card says that stays true of a model made from it.
CARRIED = ("license", "license_name", "license_link", "language", "pipeline_tag")
_CARD = "README.md"
_MOST = 12


@dataclass(frozen=True)
class Base:
    """The base of an export.

    `hub` is its id on the Hub, with `revision` its commit; None for a folder. `name` is what a
    reader is told: the id, or the folder's own name without its path. `carried` holds fields of
    its card's front matter as they stand there, `listed` the base models that the card names in
    turn. `unread` says why there is no card to read from; None if there is one.
    """

    name: str
    hub: str | None = None
    revision: str | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    unread: str | None = None

    @property
    def licence(self) -> str | None:
        """The licence as the base's card names it; None if it names none."""
        name = self.carried.get("license_name") or self.carried.get("license")
        return None if name is None else str(name)

    @property
    def base_models(self) -> tuple[str, ...]:
        """What `base_model` of an export's card says: Hub ids, or nothing."""
        return (self.hub,) if self.hub is not None else self.listed


def read_base(name: str, folder: Path, revision: str | None = None) -> Base:
    """Read what the card beside a checkpoint says; for a model of the Hub it is fetched.

    A card that is missing or damaged is no error: the result tells so, and has no licence. The
    bundled model is part of this package and has its licence.
    """
    if name == "pocket":
        return Base(name, carried=_own_licence())
    if is_gguf(folder):  # which needs no card
        metadata = open_gguf(folder, name).metadata
        fields = {key: metadata.get(f"general.{key.replace('_', '.')}") for key in CARRIED[:3]}
        carried = {key: value for key, value in fields.items() if value}
        unread = None if carried else "the file names none"
        origin = None if revision is None else "/".join(name.split("/")[:2])
        return Base(folder.name, origin, revision, carried, unread=unread)
    hub = name if revision is not None and _HUB_ID.fullmatch(name) else None
    shown = hub or (name if "/" not in name and "\\" not in name else folder.name)
    missing = None
    if hub is not None:
        try:  # card and licence are brought to where its files are
            download(hub, revision, "model", [_CARD, *LEGAL], ignore=["*/*"])
        except InputError as error:
            missing = f"its card could not be fetched ({first_line(error.__cause__ or error)})"
    card = folder / _CARD
    if not card.is_file():
        return Base(shown, hub, revision, unread=missing or "it has no card")
    front, damage = _front_matter(card)
    listed = front.get("base_model")
    several = listed if isinstance(listed, list) else [listed]
    return Base(
        shown,
        hub,
        revision,
        {key: front[key] for key in CARRIED if front.get(key) is not None},
        tuple(name for name in several if isinstance(name, str) and _HUB_ID.fullmatch(name)),
        damage,
    )


def _own_licence() -> dict[str, str]:
    """The licence of headscope as its installed metadata names it, in the Hub's spelling."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        licence = metadata("headscope").json.get("license_expression")
    except PackageNotFoundError:
        licence = None  # run from a bare source tree
    return {"license": str(licence).lower()} if licence else {}


def _front_matter(card: Path) -> tuple[dict[str, Any], str | None]:
    """The YAML at the head of a card, and what is wrong with it."""
    import yaml
    from huggingface_hub import metadata_load

    try:
        front = metadata_load(card)
    except (ValueError, OSError, yaml.YAMLError) as error:
        return {}, f"its card cannot be read ({first_line(error)})"
    return (front, None) if isinstance(front, dict) else ({}, "its card has no front matter")


@dataclass(frozen=True)
class Export:
    """What a card says of an export.

    `gate` is what was exported, with its origin; `feed_forward` one number a layer, or None;
    `signature` that of the export itself; `found` words on where heads or gate come from; `dtype`
    says how numbers are stored; `dequantised` the method that the base was quantised by; `rank`
    is that of a LoRA adapter; `pruned` says which heads were taken out;
    `same_weights` whether the heads were found on these very weights, or None.
    """

    kind: ExportKind
    base: Base
    gate: Gate
    signature: str
    found: str
    dtype: str
    feed_forward: NDArray[Any] | None = None
    dequantised: str | None = None
    same_weights: bool | None = None
    rank: int | None = None
    pruned: PrunedHeads | None = None


def export_card(export: Export) -> str:
    """README.md of an exported checkpoint or adapter, with the front matter that the Hub reads."""
    base = export.base
    adapter = export.kind in _ADAPTERS
    front: dict[str, Any] = dict(base.carried)
    front["library_name"] = "peft" if adapter else "transformers"
    front["tags"] = ["headscope", "attention-heads", *([export.kind] if adapter else [])]
    if base.base_models:
        front["base_model"] = list(base.base_models)
        if adapter:
            front["base_model_relation"] = "adapter"
    changed = export.gate.changed_heads()
    what = _ADAPTERS.get(export.kind, "A checkpoint")
    # What JSON writes is YAML as well, whatever it holds.
    yaml = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    lines = ["---", *yaml, "---", ""]
    lines += [f"# {_plain(base.name)} with {_heads(len(changed))} gated", ""]
    lines += [
        f"{what} of {_code(base.name)}"
        + (f" at commit {_code(base.revision)}" if base.revision else "")
        + f", written by headscope {installed_version()}. {_done(export)}",
        "",
        "## What was done",
        "",
        *_values(export.gate, changed.heads),
    ]
    if export.feed_forward is not None:
        lines += _layers(export.feed_forward)
    if export.pruned is not None:
        lines += _pruned(export.pruned)
    lines += ["", f"Where the heads come from: {_plain(export.found)}."]
    origin = export.gate.origin
    if origin.method:
        lines += ["", f"Found by the method {_code(origin.method)}."]
    if origin.signature:
        lines += ["", f"Signature of the run that found them: {_code(origin.signature)}"]
    if export.same_weights is False:
        lines += ["", "They were found on other weights of the same shape, not on these."]
    lines += ["", f"Signature of this export: {_code(export.signature)}", "", f"{export.dtype}"]
    if export.dequantised and export.kind == "lora":
        lines += [
            "",
            f"The base is quantised ({_code(export.dequantised)}), and the adapter was made from "
            "its dequantised weights: it is the gate on that base, not on the original weights.",
        ]
    elif export.dequantised:
        lines += ["", f"The base was quantised ({_code(export.dequantised)}) and was dequantised."]
    return "\n".join([*lines, "", "## Licence", "", _licence(base), ""])


def _done(export: Export) -> str:
    parts = export.feed_forward is not None and bool((export.feed_forward != 1).any())
    if export.kind == "ia3":
        also = ", and what feed-forward parts add" if parts else ""
        return (
            "Its vectors multiply what single attention heads hand to their layer's output "
            f"projection{also}; the base model's weights are not changed."
        )
    also = ", and so are the last projections of feed-forward parts" if parts else ""
    if export.kind == "lora":
        return (
            "It adds (g - 1) times W_O of single attention heads to their layer's output "
            "projection W_O, so that these heads are multiplied by g; the base model's weights and "
            f"biases are not changed. Rank and alpha are {export.rank}, so its scale is 1; at "
            "scale s the heads are multiplied by 1 + s (g - 1)."
        )
    as_base = "dequantised" if export.dequantised else "byte by byte"
    left = " that are left" if export.pruned else ""
    return (
        "The slices of the attention output projections that belong to single heads are multiplied "
        f"by numbers{also}; all other weights{left} are those of the base model, {as_base}."
    )


def _values(gate: Gate, heads: Sequence[Head]) -> list[str]:
    """The heads by the number that they are multiplied by, or each with its own."""
    if not heads:
        return ["Every head is multiplied by 1, so nothing is changed."]
    by_value: dict[float, list[Head]] = {}
    for head in heads:
        by_value.setdefault(gate[head], []).append(head)
    total = gate.geometry.total
    lines = [f"{_heads(len(heads))} of {total} (L5.H1 is head 1 of layer 5, both from 0):", ""]
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
    factors = ", ".join(f"{layer} (× {value:.6g})" for layer, value in changed)
    return ["", f"What the feed-forward part of these layers adds is multiplied too: {factors}."]


def _pruned(pruned: PrunedHeads) -> list[str]:
    groups, heads = pruned.groups_before, pruned.heads_before
    return [
        "",
        f"{pruned.groups_dropped} of {groups} key-value groups, each with {heads // groups} of "
        f"{heads} query heads, are taken out of every layer with attention: their rows of W_Q, W_K "
        f"and W_V, and their columns of W_O. Of {pruned.parameters_before:,} parameters "
        f"{pruned.parameters:,} are left. Groups and heads are counted anew from 0. By their "
        "numbers in the base model, these groups are left, in this order:",
        "",
        *(f"- layer {layer}: {', '.join(map(str, kept))}" for layer, kept in pruned.kept.items()),
    ]


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


def _heads(count: int) -> str:
    return "1 attention head" if count == 1 else f"{count} attention heads"


def _code(text: str) -> str:
    return f"`{_plain(text)}`"


def _plain(text: str) -> str:
    return " ".join(str(text).replace("`", "'").split())
