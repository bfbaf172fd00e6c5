"""`headscope find key-tokens`: how much attention heads pay to key words of a prompt."""

from __future__ import annotations

from headscope.results.key_tokens import KeyTokensResult
from headscope.studies.find.key_tokens import FindKeyTokens, find_key_tokens
from headscope.studies.study import Study


def _table(result: KeyTokensResult) -> str:
    """Heads and words, the controls, and where the rest is."""
    widths = [max(8, len(name)) + 2 for name in result.names]
    columns = "".join(f"{name:>{width}}" for name, width in zip(result.names, widths, strict=True))
    lines = [f"head       all    even{columns}"]
    for head in result.heads:
        cells = "".join(
            f"{word.mean:>{width}.4f}" for word, width in zip(head.words, widths, strict=True)
        )
        lines.append(f"{head.place!s:<6}{head.score:>8.4f}{head.uniform:>8.4f}{cells}")
    lines.append(
        f"mean attention on all key words: {result.score:.4f}; "
        f"were it spread evenly: {result.uniform:.4f}"
    )
    named = {"random": "random heads", "random-layer-matched": "random heads of the same layers"}
    for kind, control in result.control.items():
        lines.append(
            f"{named[kind]}: {control.mean:.4f} ({control.low:.4f} to {control.high:.4f} "
            f"in {len(control.draws)} draws)"
        )
    if result.answer:
        whose = "the model's answer" if result.generated else "the given answer"
        lines.append(f"{whose}, {result.tokens} tokens: {result.answer.strip()}")
    lines.append(f"run: {result.run}")
    return "\n".join(lines)


command = Study(FindKeyTokens, find_key_tokens, _table)
