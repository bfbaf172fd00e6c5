"""The command `headscope`: its tree of commands, and what every error becomes."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Annotated

import typer
from typer.main import get_command

from headscope.cli import output
from headscope.cli.commands import group_of
from headscope.errors import Caution, InputError, caution, out_of_memory
from headscope.studies.registry import MISNAMED

INTERRUPTED = 130
#: Errors of a place that is full or may not be written, also where it has no name.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

app = typer.Typer(
    name="headscope",
    pretty_exceptions_enable=False,
    help="Find, prove, compare and use single attention heads of decoder language models.",
    cls=group_of(""),
)
GROUPS = {
    "find": "Score heads: one method a command.",
    "compare": "Compare sets of heads, methods, checkpoints and models.",
    "verify": "Prove heads: what the model does without them, against controls.",
    "use": "Put heads to use: rate and mix a corpus, apply gates, export them.",
    "pocket": "The bundled model and its world.",
}
for _name, _help in GROUPS.items():
    app.add_typer(
        typer.Typer(help=_help, cls=group_of(_name)),
        name=_name,
        rich_help_panel="Upkeep" if _name == "pocket" else "Steps",
    )


def _version(wanted: bool) -> None:
    if wanted:
        import headscope

        typer.echo(f"headscope {headscope.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The options of the command itself, which has a single one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 2: input that cannot be used, with one sentence on stderr. 130: interrupted. Anything
    else is an error of headscope's own and keeps its traceback.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # A terminal that cannot show a letter gets its code, and no traceback.
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Remarks of the libraries beneath are no part of a command's output, nor are download bars
    # where nobody watches; whoever sets these variables gets what they ask for.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("DATASETS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    command = get_command(app)
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        for argument in arguments:
            if not argument.isascii() and any("\ud800" <= sign <= "\udfff" for sign in argument):
                raise InputError(f"{argument!r} is not valid UTF-8; rename it or give it as UTF-8")
        with warnings.catch_warnings():
            warnings.simplefilter("default", Caution)  # each once
            warnings.showwarning = output.caution
            for words in MISNAMED:
                caution(words)
            with _unsaid(arguments):
                code = command.main(arguments, prog_name="headscope", standalone_mode=False)
    except InputError as error:
        output.fail(str(error))
        return error.exit_code
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "headscope"
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        output.fail(f"{message}; `{path} --help` lists what there is")
        return error.exit_code
    except OSError as error:
        # A place that cannot be used, where nothing more exact could be said before.
        if error.errno in _FULL:
            where = f"{error.filename}: " if error.filename else ""
            fix = "make room or name another place; what is written so far is kept"
            output.fail(f"{where}{error.strerror}; {fix}")
        elif error.filename is not None:
            output.fail(f"{error.filename}: {error.strerror}; check the path and its permissions")
        else:
            raise
        return InputError.exit_code
    except typer.Abort:
        return _interrupted()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        output.fail(
            "memory does not suffice, not even for one text at a time; give shorter texts (such as "
            "--max-tokens), --dtype bfloat16, --quantise or --device-map auto; what is done so far "
            "is kept"
        )
        return InputError.exit_code
    return _interrupted() if code == INTERRUPTED else int(code or 0)


@contextmanager
def _unsaid(arguments: Sequence[str]) -> Iterator[None]:
    """Of the processes that share a model only the first says anything, but for errors."""
    divided = any(argument.startswith("--tp-plan") for argument in arguments)
    if not divided or os.environ.get("RANK", "0") == "0":
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _interrupted() -> int:
    output.fail("interrupted; if a run had begun, the same command goes on where it stopped")
    return INTERRUPTED
