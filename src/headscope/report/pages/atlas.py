"""The report of an atlas run, top to bottom."""

from __future__ import annotations

from pathlib import Path

from headscope.report.drawing.sentences import SCRIPT, STYLE, Browser, browser, browser_section
from headscope.report.html import Html
from headscope.report.page import Page
from headscope.report.pages.frame import ablated
from headscope.report.records.atlas import AtlasRecord, read_atlas
from headscope.report.records.outputs import BASELINE, RANDOM, TOP
from headscope.report.sections.caveats import caveats_section
from headscope.report.sections.classes import classes_section
from headscope.report.sections.heads import direction_choices, heads_section, scores_data
from headscope.report.sections.overlap import overlap_section
from headscope.report.sections.provenance import origin_section, provenance_section
from headscope.report.sections.ranking import ranking_section
from headscope.report.sections.removal import removal_section
from headscope.report.sections.summary import masthead, summary_section

__all__ = ["page"]

LABELS = {BASELINE: "As is", TOP: "Highest removed", RANDOM: "Random removed"}


def page(path: Path) -> Page:
    """The report of the atlas run in this folder."""
    return _page(read_atlas(path))


def _page(record: AtlasRecord) -> Page:
    """All parts of the report; those the run holds nothing for are left out."""
    sentences = browser(record.sentences, LABELS)
    parts = [
        ("summary", "", summary_section(record)),
        ("origin", "", origin_section(record)),
        ("heads", "Heads", heads_section(record)),
        ("classes", "Classes", classes_section(record)),
        ("scores", "Scores", ranking_section(record)),
        ("overlap", "Directions", overlap_section(record)),
        ("removal", "Removal", removal_section(record)),
        ("examples", "Sentences", _sentences(record, sentences)),
        ("caveats", "Caveats", caveats_section(record)),
        ("provenance", "Provenance", provenance_section(record)),
    ]
    return Page(
        title=f"{record.model.get('name') or 'model'} \u00b7 headscope atlas",
        masthead=masthead(record, " ".join(ablated(record.removal or {})).strip()),
        sections=[(name, title, html) for name, title, html in parts if html is not None],
        choices=direction_choices(record),
        data=scores_data(record) | {"sentences": sentences.data if sentences else None},
        scripts=("atlas.js", SCRIPT),
        styles=(STYLE,),
    )


def _sentences(record: AtlasRecord, shown: Browser | None) -> Html | None:
    links = record.removal.linked_by if record.removal else None
    return browser_section(shown, links) if shown else None
