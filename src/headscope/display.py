"""How heads and results show themselves in Python and in notebooks.

Values know nothing of drawing: whoever draws sets a hook, as the package does for its reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from itertools import islice
from typing import Any, Protocol


class Renderer(Protocol):
    """What draws values: a module with these functions."""

    def frames(self, value: Any) -> Any: ...
    def figure(self, value: Any, title: str, ax: Any) -> Any: ...
    def framed(self, value: Any) -> str: ...
    def concluded(self, value: Any) -> Any: ...


_found: Callable[[], Renderer] | None = None


def set_renderer(find: Callable[[], Renderer]) -> None:
    """What is called for the renderer whenever a value is shown, so that it loads at first use."""
    global _found
    _found = find


def _renderer() -> Renderer:
    if _found is None:
        raise RuntimeError("nothing has been set that draws values")
    return _found()


#: Lines of a `repr`, characters of one, and heads that are named in it.
LINES, WIDTH, HEADS = 10, 100, 12


def brief(value: Any) -> str:
    """The fields of a dataclass that hold something, one a line, in at most `LINES` lines."""
    held = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
    lines = [
        f"  {name}={_short(content)}"
        for name, content in held.items()
        if not (content is None or (isinstance(content, Collection) and not len(content)))
    ]
    more = [line.partition("=")[0].strip() for line in lines[LINES - 3 :]]
    if len(more) > 1:
        lines[LINES - 3 :] = [f"  … {', '.join(more)}"[:WIDTH]]
    return "\n".join([f"{type(value).__name__}(", *lines, ")"])


def _short(content: Any) -> str:
    """One line of a value, of many values their number."""
    text = " ".join(repr(content).split())
    if len(text) > WIDTH - 20 and isinstance(content, Collection) and not isinstance(content, str):
        return f"<{len(content)} entries>"
    return text if len(text) <= WIDTH - 20 else f"{text[: WIDTH - 21]}…"


def some(heads: Collection[str]) -> str:
    """The first `HEADS` of some heads."""
    return ", ".join([*islice(heads, HEADS), *(["…"] if len(heads) > HEADS else [])])


def concluded(value: Any) -> Any:
    """A result with the answer and the cautions that it shows; as it is where nothing draws it."""
    return value if _found is None else _renderer().concluded(value)


class Displayed:
    """A value that shows itself; its `repr` has at most `LINES` lines."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass gets a `repr` with every field, unless its own body has one.
        if "__repr__" not in vars(cls):
            type.__setattr__(cls, "__repr__", Displayed.__repr__)

    def __repr__(self) -> str:
        return brief(self)

    def to_frame(self) -> Any:
        """Its numbers as a tidy pandas frame; of several tables a dictionary of frames: `levels`
        and `tests` of a comparison, `scores` of a command that scores heads, others by title."""
        return _renderer().frames(self)

    def figure(self, title: str = "", *, ax: Any = None) -> Any:
        """A picture of it as a matplotlib figure: the first, or the one of this title.

        `ax`: the axes to draw it in, of a picture of several panels as many; their figure is
        returned. Raises `InputError` if there is no such picture, or another number of panels.
        """
        return _renderer().figure(self, title, ax)

    def _repr_html_(self) -> str:
        return _renderer().framed(self)
