"""The HTML report: one self-contained file from one finished run folder.

`record` reads the folder into frozen values, each module under `sections` turns one part of them
into HTML, `page` puts the parts into a document, `write` is the door. Figures are SVG and CSS
written here: they need no library, print, reflow on a phone and stay small, where an embedded
charting library would add several megabytes to every report and leave nothing to read without
scripts. The script only re-colours what the page already shows.
"""

from headscope.report.write import write_report

__all__ = ["write_report"]
