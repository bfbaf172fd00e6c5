"""`headscope verify layers`: each language's text without the heads of one layer at a time."""

from __future__ import annotations

from statistics import fmean

from headscope.results.language_texts import TextWithoutLayers
from headscope.studies.study import Study
from headscope.studies.verify.layers import VerifyLayers, verify_layers

__all__ = ["command"]


def _table(result: TextWithoutLayers) -> str:
    """The change of NLL by layer and language, random heads, and important heads by layer."""
    languages = result.languages
    width = 8 + 9 * len(languages)
    lines = [
        "change of NLL without the heads of a layer",
        f"{'layer':<8}" + "".join(f"{name:>9}" for name in languages),
    ]
    for rows in zip(*(text.layers for text in languages.values()), strict=True):
        cells = "".join(f"{row.change.value:>9.4f}" for row in rows)
        lines.append(f"{rows[0].layer:<8}{cells}")
    for size in next(iter(languages.values())).draws:
        means = [fmean(text.draws[size]) for text in languages.values()]
        lines.append(
            f"{'random':<8}" + "".join(f"{mean:>9.4f}" for mean in means) + f"  {size} heads"
        )
    profiles = result.profile
    if profiles:
        lines += ["-" * width, "share of the important heads that lie in a layer"]
        lines.append(f"{'layer':<8}" + "".join(f"{name:>9}" for name in profiles) + f"{'even':>9}")
        for counts in zip(*(profile.layers for profile in profiles.values()), strict=True):
            cells = "".join(f"{count.share:>9.3f}" for count in counts)
            lines.append(f"{counts[0].layer:<8}{cells}{counts[0].even:>9.3f}")
        numbers = ", ".join(f"{name} {profile.important}" for name, profile in profiles.items())
        lines.append(f"important heads: {numbers}")
    return "\n".join([*lines, f"run: {result.run}"])


command = Study(VerifyLayers, verify_layers, _table)
