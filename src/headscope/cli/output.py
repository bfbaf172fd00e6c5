"""What a command says: results on stdout, errors on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headscope.errors import Caution, bounded

if TYPE_CHECKING:
    from headscope.runs import Result
    from headscope.studies.study import Study

#: The exit code of a command whose output nobody reads on: 128 and SIGPIPE.
BROKEN_PIPE = 141


def emit(result: Mapping[str, Any] | Result, as_json: bool, text: str | Iterable[str]) -> None:
    """Print a command's result: `result` as one JSON object, or else `text`.

    Of a text that comes in pieces each is printed as it comes; `result` is complete with the last.
    """
    from headscope.runs import dump_json, encode

    if as_json and not isinstance(text, str):
        deque(text, maxlen=0)
    _print(dump_json(encode(result)) if as_json else text)


def print_result(study: Study, result: Any, as_json: bool, full: bool) -> None:
    """Print the result of a study: as one JSON object, or what it shows, `full` all of it."""
    if study.show is None:
        text = study.text(result)
    elif not as_json:
        from headscope.report.terminal import WIDTH, text_of
        from headscope.studies.study import shown_of

        shown = shown_of(study, result, Path(result.run or "."))
        report = getattr(result, "report", None) or result.unknown.get("report")
        width = shutil.get_terminal_size((WIDTH, 0)).columns
        text = text_of(shown, result.run, report if isinstance(report, str) else None, width, full)
    emit(result, as_json, "" if as_json else text)


def _print(text: str | Iterable[str]) -> None:
    for piece in [f"{text}\n"] if isinstance(text, str) else text:
        try:
            sys.stdout.write(piece)
            sys.stdout.flush()
        except OSError as error:
            # No second error when Python empties its buffer.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):  # nobody reads on (`| head`): no error
                raise typer.Exit(BROKEN_PIPE) from None
            raise OSError(error.errno, error.strerror, "stdout") from error


def fail(message: str) -> None:
    """Print an error as one line on stderr, neither wrapped nor coloured."""
    print(f"error: {bounded(one_line(message))}", file=sys.stderr, flush=True)


def note(message: str) -> None:
    """Print a sentence on stderr, of what is about to be done."""
    print(bounded(one_line(message)), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """`text` without line breaks, and with what could steer a terminal spelt out."""
    joined = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii")
        for sign in joined
    )


def caution(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Print what a result does not show as one line on stderr; other warnings stay unsaid."""
    if issubclass(category, Caution):
        print(f"warning: {bounded(one_line(str(message)))}", file=sys.stderr, flush=True)
