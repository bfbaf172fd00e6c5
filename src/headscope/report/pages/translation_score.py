"""The report of `find translation-score`: which heads look at the word they translate."""

from __future__ import annotations

from pathlib import Path

from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead
from headscope.report.records.atlas import read_scores_run
from headscope.report.sections.caveats import caveats_section
from headscope.report.sections.classes import classes_section
from headscope.report.sections.heads import direction_choices, heads_section, scores_data
from headscope.report.sections.ranking import ranking_section
from headscope.report.sections.summary import summary_section
from headscope.shown.words import count

__all__ = ["page"]


def page(path: Path) -> Page:
    """The report of the run in this folder: the scores of an atlas, without a removal."""
    record = read_scores_run(path)
    name = str(record.model.get("name") or "model")
    found = sum(int(part.get("examples") or 0) for part in record.result["directions"].values())
    head = masthead(
        name,
        "Which attention heads find the source word while the model translates.",
        [
            ("", count(len(record.directions), "direction")),
            ("", count(found, "sentence pair")),
            ("", str(record.provenance.get("ended") or "")[:10]),
        ],
        kicker="headscope find translation-score",
    )
    return Page(
        title=f"{name} \u00b7 translation scores \u00b7 headscope",
        masthead=head,
        sections=[
            ("summary", "", summary_section(record)),
            ("heads", "Heads", heads_section(record)),
            ("classes", "Classes", classes_section(record)),
            ("scores", "Scores", ranking_section(record)),
            ("caveats", "Caveats", caveats_section(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        choices=direction_choices(record),
        data=scores_data(record),
        scripts=("atlas.js",),
    )
