"""Experiments that no paper has: how far the findings about alignment heads depend on choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from headscope.papers.beside import tell
from headscope.papers.beside.steps import steps_of
from headscope.papers.paper import Experiment, Paper, Setting
from headscope.shown.blocks import Findings

ASKED = {  # title, what tells it, the runs it needs
    "threshold": ("The heads by other thresholds and numbers", tell.threshold, ("links", "sizes")),
    "links": ("The heads by other word links", tell.links, ("links",)),
    "mass": ("Peaks, and attention on the aligned word", tell.mass, ("links", "mass")),
    "single": ("Score, and cost of each head alone", tell.single, ("links", "mass", "single")),
    "pairs": ("Two heads removed together", tell.pairs, ("links", "pairs")),
    "copying": ("Copying without the heads", tell.copying, ("links", "copy-loss", "copies")),
}  # fmt: skip


def _told(tell: Callable[[Setting], Findings], runs: tuple[str, ...], setting: Setting) -> Findings:
    return tell(setting) if all(map(setting.done, runs)) else Findings()


def answer(setting: Setting, told: Mapping[str, Findings]) -> tuple[str, str]:
    """What each experiment found, a line each."""
    said = [f"\u2013 {ASKED[name][0]}: {one.found}" for name, one in told.items() if one.found]
    return "\n".join(said), "p-values are corrected within experiments alone." if said else ""


PAPER = Paper(
    "beside",
    "Experiments beside the papers",
    "asked for by a review; no table or figure of a paper",
    "How far do findings about token alignment heads depend on the threshold, the word links, the "
    "peak as measure and the removal of one head at a time, and is copying left when they go?",
    (
        "Heads are scored on reference translations by the data's word links and by others.",
        "Heads are removed alone, in pairs and in sets, beside random ones.",
        "What is measured is the loss of references and of copies, and copies that are written.",
    ),
    tuple(
        Experiment(name, (), title, partial(steps_of, runs), partial(_told, tell, runs))
        for name, (title, tell, runs) in ASKED.items()
    ),
    answer,
    frozenset(("limit", "draws", "shots", "chat")),
)
