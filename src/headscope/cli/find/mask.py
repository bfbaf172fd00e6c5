"""`headscope find mask`: train which heads to keep, so that a task needs no instruction."""

from __future__ import annotations

from headscope.results.mask import FoundMask
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.study import Study


def _table(result: FoundMask) -> str:
    """How many heads were kept in each layer, what became of them, and how the loss moved."""
    lines = ["layer  kept  dropped"]
    for layer, heads in result.layers.items():
        dropped = [str(head.head) for head in heads if not head.selected]
        lines.append(f"{layer:<6}{len(heads) - len(dropped):>5}  {' '.join(dropped) or '-'}")
    fates = ", ".join(f"{count} {name}" for name, count in sorted(result.fates.items()))
    lines.append(
        f"{result.selected} of {len(result.heads)} heads kept ({result.kept_share:.1%}): {fates}"
    )
    if result.feed_forward is not None:
        gone = ", ".join(map(str, result.feed_forward_dropped))
        lines.append(f"feed-forward layers dropped: {gone or 'none'}")
    part, (first, last) = result.twentieth, result.loss_ends
    lines.append(
        f"loss without instruction, nats a token: {first:.4f} in the first {part} steps, "
        f"{last:.4f} in the last {part}"
    )
    lines += [f"note: {note}" for note in result.notes]
    lines.append(f"run: {result.run}")
    return "\n".join(lines)


command = Study(FindMask, find_mask, _table)
