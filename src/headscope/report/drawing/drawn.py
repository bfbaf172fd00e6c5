"""What a drawn block is: its HTML, and what its scripts need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.report.html import Html


@dataclass(frozen=True)
class Drawn:
    """A block as HTML.

    `data` is what its scripts read, by the identifier of the block; `scripts` name files among the
    assets; `parts` are what the page's choice can change in it, such as directions.
    """

    html: Html
    data: Mapping[str, Any] = field(default_factory=dict)
    scripts: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
