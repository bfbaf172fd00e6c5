"""The HTML report: one self-contained file from one finished run folder.

`write` is the door and knows the page of each command. A module under `pages` puts one page
together: a module under `records` reads the folder into frozen values, those under `sections` turn
parts of them into HTML, `page` makes a document of the parts. Figures are SVG and CSS written here
(`charts`, `matrix`): they need no library, print, reflow on a phone and stay small, where an
embedded charting library would add several megabytes to every report and leave nothing to read
without scripts. Scripts only re-colour, refill and highlight what the page already shows.
"""

from headscope.report.write import write_report

__all__ = ["write_report"]
