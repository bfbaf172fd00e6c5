"""`headscope atlas`: find, verify and compare in one go, and report."""

from __future__ import annotations

from typing import Any

from headscope.cli.output import cell
from headscope.estimates import Against, Estimate
from headscope.heads import count_words
from headscope.results.atlas import AtlasCheck
from headscope.results.translation import TranslationScores
from headscope.runs import decode
from headscope.studies.atlas import Atlas, atlas
from headscope.studies.study import Study


def _summary(result: dict[str, Any]) -> str:
    """What was found, in a few lines; the last one is where to read on."""
    removal: AtlasCheck = decode(AtlasCheck, result["removal"])
    than = next(removal.cases).top.free or Against(Estimate(), None, None, 0)
    first = sorted(result["heads"], key=lambda one: int(one["rank"]))[:10]
    top = ", ".join(f"{one['layer']}.{one['head']}" for one in first)
    without = "with the mean output of" if removal.ablate == "mean" else "without"
    scores = {
        "as it is": removal.chrf,
        f"{without} its top {removal.k} heads": removal.top.chrf,
        f"{without} {removal.k} random heads": removal.random_mean.chrf,
    }
    chrf = ", ".join(f"{value:.1f} {name}" for name, value in scores.items() if value is not None)
    return "\n".join(
        [
            f"{result['model']['name']}: {len(result['heads'])} heads, "
            f"{len(result['directions'])} directions",
            *_class_lines(decode(TranslationScores, result)),
            f"best: {top}",
            f"chrF++ of its translations: {chrf}",
            "selected against random: p "
            f"{cell(than.p_examples, '.2g')} over {removal.sentences} sentences, "
            f"{cell(than.p_draws, '.2g')} over {removal.draws} draws",
            f"signature: {result['signature']}",
            f"report: {result['report']}",
        ]
    )


def _class_lines(scores: TranslationScores) -> list[str]:
    """How many heads are in each class: by score minus chance, then by score as in the paper."""
    many = scores.counted_over
    mean = f" (mean of {many} directions)" if many > 1 else ""
    lines = []
    for by, counts in (
        ("score minus chance", scores.counts_above_chance),
        ("score, as in the paper", scores.counts),
    ):
        if counts is not None:
            aligned, low, idle = map(count_words, counts.each)
            lines.append(
                f"{aligned} token alignment heads by {by}, {low} of low activity, "
                f"{idle} inactive{mean}"
            )
    return lines


command = Study(Atlas, atlas, _summary)
