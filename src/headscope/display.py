"""How heads and results show themselves in Python and in notebooks.

Values know nothing of drawing: whoever draws sets a hook, as the package does for its reports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Renderer(Protocol):
    """What draws values: a module with these functions."""

    def frames(self, value: Any) -> Any: ...
    def figure(self, value: Any, title: str) -> Any: ...
    def framed(self, value: Any) -> str: ...


_found: Callable[[], Renderer] | None = None


def set_renderer(find: Callable[[], Renderer]) -> None:
    """What is called for the renderer whenever a value is shown, so that it loads at first use."""
    global _found
    _found = find


def _renderer() -> Renderer:
    if _found is None:
        raise RuntimeError("nothing has been set that draws values")
    return _found()


class Displayed:
    """A value that shows itself."""

    def to_frame(self) -> Any:
        """Its numbers as a tidy pandas frame; of several tables a dictionary of frames: of a
        comparison `levels`, `tests` and `scores`, else by title."""
        return _renderer().frames(self)

    def figure(self, title: str = "") -> Any:
        """A picture of it as a matplotlib figure: the first, or the one of this title."""
        return _renderer().figure(self, title)

    def _repr_html_(self) -> str:
        return _renderer().framed(self)
