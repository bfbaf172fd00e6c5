"""`headscope find mask`: train which heads to keep, so that a task needs no instruction."""

from __future__ import annotations

from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.find.mask import FindMask, find_mask


def _table(result: dict[str, Any]) -> str:
    """How many heads were kept in each layer, what became of them, and how the loss moved."""
    lines = ["layer  kept  dropped"]
    layers: dict[int, list[dict[str, Any]]] = {}
    for one in result["heads"]:
        layers.setdefault(one["layer"], []).append(one)
    for layer in sorted(layers):
        kept = sorted(one["head"] for one in layers[layer] if one["selected"])
        gone = sorted(one["head"] for one in layers[layer] if not one["selected"])
        dropped = " ".join(str(head) for head in gone) or "-"
        lines.append(f"{layer:<6}{len(kept):>5}  {dropped}")
    fates = ", ".join(f"{count} {name}" for name, count in sorted(result["fates"].items()))
    lines.append(
        f"{result['selected']} of {len(result['heads'])} heads kept ({result['kept_share']:.1%}): "
        f"{fates}"
    )
    if result["feed_forward"] is not None:
        gone = [one["layer"] for one in result["feed_forward"] if not one["selected"]]
        lines.append(f"feed-forward layers dropped: {', '.join(map(str, gone)) or 'none'}")
    losses = result["loss"]
    part = max(1, len(losses) // 20)
    first, last = (sum(some) / len(some) for some in (losses[:part], losses[-part:]))
    lines.append(
        f"loss without instruction, nats a token: {first:.4f} in the first {part} steps, "
        f"{last:.4f} in the last {part}"
    )
    lines += [f"note: {note}" for note in result["notes"]]
    lines.append(f"run: {result['run']}")
    return "\n".join(lines)


command = Study(FindMask, find_mask, _table)
