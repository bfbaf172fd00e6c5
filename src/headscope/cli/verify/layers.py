"""`headscope verify layers`: each language's text without the heads of one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.commands import Study
from headscope.recipes.verify.layers import VerifyLayers, verify_layers

__all__ = ["command", "layers_table"]


def layers_table(result: Mapping[str, Any]) -> str:
    """The change of NLL by layer and language, random heads, and important heads by layer."""
    languages = result["languages"]
    width = 8 + 9 * len(languages)
    lines = [
        "change of NLL without the heads of a layer",
        f"{'layer':<8}" + "".join(f"{name:>9}" for name in languages),
    ]
    count = max(len(one["layers"]) for one in languages.values())
    for at in range(count):
        rows = [one["layers"][at] for one in languages.values()]
        cells = "".join(f"{row['change']['value']:>9.4f}" for row in rows)
        lines.append(f"{rows[0]['layer']:<8}{cells}")
    for size in next(iter(languages.values()))["draws"]:
        means = [sum(one["draws"][size]) / len(one["draws"][size]) for one in languages.values()]
        lines.append(
            f"{'random':<8}" + "".join(f"{mean:>9.4f}" for mean in means) + f"  {size} heads"
        )
    profiles = result["profile"]
    if profiles:
        lines += ["-" * width, "share of the important heads that lie in a layer"]
        lines.append(f"{'layer':<8}" + "".join(f"{name:>9}" for name in profiles) + f"{'even':>9}")
        for spot in zip(*(one["layers"] for one in profiles.values()), strict=True):
            cells = "".join(f"{row['share']:>9.3f}" for row in spot)
            lines.append(f"{spot[0]['layer']:<8}{cells}{spot[0]['even']:>9.3f}")
        counts = ", ".join(f"{name} {one['important']}" for name, one in profiles.items())
        lines.append(f"important heads: {counts}")
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(VerifyLayers, verify_layers, layers_table)
