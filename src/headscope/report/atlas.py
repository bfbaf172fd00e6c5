"""The report of an atlas run, top to bottom."""

from __future__ import annotations

from headscope.report.page import Page
from headscope.report.record import AtlasRecord
from headscope.report.sections.caveats import caveats_section
from headscope.report.sections.classes import classes_section
from headscope.report.sections.examples import examples_section
from headscope.report.sections.heads import head_values, heads_section, scale_of
from headscope.report.sections.overlap import overlap_section
from headscope.report.sections.provenance import origin_section, provenance_section
from headscope.report.sections.ranking import ranking_section
from headscope.report.sections.removal import removal_section
from headscope.report.sections.summary import masthead, summary_section
from headscope.report.words import MEAN, arrow

__all__ = ["atlas_page"]


def atlas_page(record: AtlasRecord) -> Page:
    """All parts of the report; those the run holds nothing for are left out."""
    parts = [
        ("summary", "", summary_section(record)),
        ("origin", "", origin_section(record)),
        ("heads", "Heads", heads_section(record)),
        ("classes", "Classes", classes_section(record)),
        ("scores", "Scores", ranking_section(record)),
        ("overlap", "Directions", overlap_section(record)),
        ("removal", "Removal", removal_section(record)),
        ("examples", "Sentences", examples_section(record)),
        ("caveats", "Caveats", caveats_section(record)),
        ("provenance", "Provenance", provenance_section(record)),
    ]
    many = len(record.directions)
    scores = record.scores[record.main]
    return Page(
        title=f"{record.model.get('name') or 'model'} \u00b7 headscope atlas",
        masthead=masthead(record),
        sections=[(name, title, html) for name, title, html in parts if html is not None],
        choices=[
            (name, f"mean of {many}" if name == MEAN else arrow(name)) for name in record.scores
        ],
        data={
            "heads": [[head.layer, head.head] for head in scores.geometry.heads()],
            "layers": scores.geometry.layers,
            "threshold": record.threshold,
            "scale": scale_of(record),
            "values": {name: head_values(part) for name, part in record.scores.items()},
        },
    )
