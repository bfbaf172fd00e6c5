"""The help of commands and groups: panels of names and what each is for, at any width."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import Any, get_args

import typer
from typer.core import TyperCommand

from headscope.settings import Panel

#: The panel of what has none.
OPTIONS = "Options"
PANELS: tuple[Panel, ...] = get_args(Panel)
#: Columns of a terminal of unknown width, and the fewest and the most that are used.
WIDTH, NARROWEST, WIDEST = 80, 40, 100
#: Columns of names and the space behind them; words begin right after a name that is longer.
_NAMES = 24
_INDENT = " " * _NAMES
#: Flags are not cut at their dashes.
_WHOLE: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
#: That a number is at least 0 or 1, which goes without saying.
_BOUND = re.compile(r"  \[x>=[01](\.0)?\]$|; x>=[01](\.0)?(?=\]$)")
#: By panel the names and the words of its lines.
Panels = Mapping[str, Iterable[tuple[str, str]]]


def panels_of(command: Any) -> dict[str, list[tuple[str, str]]]:
    """The names and the words of every parameter of a command, by panel."""
    context = typer.Context(command, info_name=command.name)
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        if (record := parameter.get_help_record(context)) is not None:
            names = record[0].partition(" <")[0]  # of an argument its type
            words = _BOUND.sub("", record[1])
            panels.setdefault(parameter.rich_help_panel or OPTIONS, []).append((names, words))
    return panels


class Command(TyperCommand):
    """A command whose options stand in panels, `epilog` being an example of its use."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, what the command does, an example, and the panels."""
        formatter.write(help_text(self.get_usage(ctx), self.help, self.epilog, panels_of(self)))


def help_text(usage: str, about: str | None, example: str | None, panels: Panels) -> str:
    """Help in lines that fit the terminal."""
    width = max(NARROWEST, min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDEST))
    lines = [typer.style(usage, bold=True), ""]
    for paragraph in filter(None, (about or "").split("\n\n")):
        lines += [*wrap(paragraph, width), ""]
    if example:
        lines += [*wrap(f"Example: {example}", width, subsequent_indent="  ", **_WHOLE), ""]
    for panel, told in panels.items():
        lines.append(typer.style(f"{panel} ".ljust(width, "─"), bold=True))
        for names, words in told:
            first = f"{names}  ".ljust(_NAMES)
            beside = wrap(words, width, initial_indent=first, subsequent_indent=_INDENT, **_WHOLE)
            first, *rest = beside or [first]
            lines += [typer.style(names, fg="cyan") + first[len(names) :], *rest]
    return "\n".join(lines) + "\n"
