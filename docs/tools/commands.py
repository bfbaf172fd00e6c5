"""The reference of the command line: every command and option, as the command itself has them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from headscope.cli.app import app
from headscope.cli.commands import commands_of
from headscope.cli.help import panels_of

__all__ = ["pages", "walk"]

_INTRODUCTION = """# Commands

Every command and every option, as `--help` tells them. `headscope COMMAND --help` gives the same
in the terminal. Input that cannot be used ends with one sentence and the exit code 2, an
interruption with 130; with `--json` one JSON object stands on standard output and nothing else.
"""


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be run, with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, one in commands_of(command).items():
        yield from walk(one, (*path, name))


def pages() -> dict[str, str]:
    """File name to page: one for each group of commands, `index.md` for the others and the list."""
    root = get_command(app)
    groups = {name: one for name, one in commands_of(root).items() if hasattr(one, "commands")}
    single = [(path, one) for path, one in walk(root) if len(path) == 1]
    made = {
        f"{name}.md": "\n".join(
            [f"# headscope {name}", "", _plain(group.help), ""]
            + [_section(path, one) for path, one in walk(group, (name,))]
        )
        for name, group in groups.items()
    }
    listed = ["| command | what it does |", "|---|---|"]
    for path, one in walk(root):
        page = f"{path[0]}.md" if len(path) > 1 else ""
        listed.append(f"| [`{' '.join(path)}`]({page}#{_anchor(path)}) | {_first(one.help)} |")
    made["index.md"] = "\n".join(
        [_INTRODUCTION, *listed, "", *(_section(path, one) for path, one in single)]
    )
    return made


def _section(path: tuple[str, ...], command: Any) -> str:
    name = " ".join(("headscope", *path))
    context = typer.Context(command, info_name=name)
    usage = " ".join((name, *command.collect_usage_pieces(context)))
    lines = [
        f"## headscope {' '.join(path)} {{ #{_anchor(path)} }}",
        "",
        f"```text\n{usage}\n```",
        "",
        _plain(command.help),
        "",
    ]
    if command.epilog:
        lines += [f"```bash\n{command.epilog}\n```", ""]
    for panel, told in panels_of(command).items():
        lines += [f"### {panel} {{ #{_anchor(path)}-{panel.lower().replace(' ', '-')} }}", ""]
        for names, words in told:
            lines += [f"<code>{html.escape(names)}</code>", f":   {_plain(words)}", ""]
    return "\n".join(lines)


def _anchor(path: tuple[str, ...]) -> str:
    return "-".join(path)


def _first(text: str | None) -> str:
    """The first paragraph in one line, for a cell of a table."""
    return _plain(text).partition("\n\n")[0].replace("\n", " ")


def _plain(text: str | None) -> str:
    """Help as Markdown that shows it as it is: stars, brackets and the like are no markup in it."""
    return re.sub(r"([*_<>\[\]#|])", r"\\\1", text or "")
