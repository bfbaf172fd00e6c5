"""From a settings class to a command: its options, the settings built from them, and the run."""

from __future__ import annotations

import importlib.util
import inspect
import re
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from headscope.cli.help import PANELS, Command, help_text, panels_of
from headscope.cli.output import emit, note, print_result
from headscope.cli.repeat import fingerprint, finished, remember
from headscope.errors import InputError
from headscope.settings import GivenOption, Option, build, options_in, plain_type
from headscope.studies.bars import hide_loading_bars, progress
from headscope.studies.registry import COMMANDS, INSTALLED, PANEL_OF, command_in
from headscope.studies.study import Study

SHOWN_IN_FULL = "shown_in_full"
IN_FULL = Option(
    "Print all tables; without it the verdict, one table and what to do next.",
    flag="--full",
    panel="Running",
)
#: What stands for a value in help by its type.
_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
AS_JSON = Option("Print one JSON object on stdout and nothing else.", panel="Running")


class _Typed(NamedTuple):
    """An option as the command line has it: its name, its type and default there."""

    name: str
    annotation: Any
    default: Any


def command_of(study: Study, command: str) -> Callable[..., None]:
    """A function that Typer can read: the options of the settings, `--out`, `--full` and `--json`,
    by panel.

    Of options with the same name the first one counts. In their panel arguments and the model come
    first.
    """
    given: dict[str, GivenOption] = {}
    for option in options_in(study.settings):
        given.setdefault(option.name, option)
    if study.out is not None:
        given["out"] = GivenOption("out", Path, study.out, MISSING)
    if study.show is not None and "full" not in given:
        given[SHOWN_IN_FULL] = GivenOption(SHOWN_IN_FULL, bool, IN_FULL, False)
    given["json"] = GivenOption("json", bool, AS_JSON, False)

    def place(each: GivenOption) -> tuple[int, bool, bool]:
        option = each.option
        return PANELS.index(option.panel), not option.argument, option.held != "model"

    typed = {each.name: _typed(*each) for each in sorted(given.values(), key=place)}

    def call(**given: Any) -> None:
        _run(study, command, given)

    described: Any = call
    described.__doc__ = study.settings.__doc__
    described.__annotations__ = {name: argument.annotation for name, argument in typed.items()}
    described.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY,
                default=argument.default, annotation=argument.annotation,
            )
            for name, argument in typed.items()
        ]
    )  # fmt: skip
    return call


def _run(study: Study, command: str, given: Mapping[str, Any]) -> None:
    """Run a study with the values of the options, and print its result."""
    from headscope.runs import Result
    from headscope.studies.named_data import check_parts_of

    if (listed := study.instead(given)) is not None:
        emit(listed[0], given["json"], listed[1])
        return
    settings = build(study.settings, given)
    key = fingerprint(study, settings)
    if (before := finished(study, key, given)) is not None:
        print_result(study, before, given["json"], given.get(SHOWN_IN_FULL, True))
        _check(study, before)
        return
    check_parts_of(settings)
    takes = inspect.signature(study.run).parameters
    began = time.monotonic()
    loads = study.loads
    if loads(settings) if callable(loads) else loads and "progress" in takes:
        hide_loading_bars()
    with progress() as update:
        helpers = {"out": given.get("out"), "progress": update, "tell": note}
        given_helpers = {name: helpers[name] for name in helpers if name in takes}
        try:
            result = study.run(settings, **given_helpers)
        except KeyboardInterrupt as error:
            for words in getattr(error, "__notes__", ()):  # what a run says of where it stands
                note(words)
            raise
    if isinstance(result, Result):
        taken = result.seconds or time.monotonic() - began
        result = replace(result, command=result.command or command, seconds=taken)
    # What was changed while it worked may have been read before or after.
    if key == fingerprint(study, settings):
        remember(key, result)
    print_result(study, result, given["json"], given.get(SHOWN_IN_FULL, True))
    _check(study, result)


def _check(study: Study, result: Any) -> None:
    if (why := study.failure(result)) is not None:
        raise InputError(why)
    if code := study.ends(result):
        raise typer.Exit(code)


def _typed(name: str, hint: Any, option: Option, default: Any = MISSING) -> _Typed:
    kind = plain_type(hint)
    several = get_origin(kind) is tuple
    typed: Any = option.typed or (get_args(kind)[0] if several else kind)
    if option.single:
        several, default = False, default[0]
    shown = default if option.default is ... else option.default
    if shown is not MISSING and (several or option.read is not None):
        shown = None if option.default is ... else option.default
    metavar = option.metavar
    if metavar is None and not option.argument:
        choices = get_args(typed) if get_origin(typed) is Literal else ()
        metavar = "|".join(choices) or _METAVARS.get(typed)
    if several:
        typed = types.GenericAlias(list, typed)
    if shown is None:
        typed = typed | None
    bounds = {
        name: value for name in ("min", "max") if (value := getattr(option, name)) is not None
    }
    about: dict[str, Any] = {"metavar": metavar, "rich_help_panel": option.panel, **bounds}
    about["help"] = option.help
    flag = option.flag or f"--{name.rstrip('_').replace('_', '-')}"
    mark = typer.Argument(**about) if option.argument else typer.Option(flag, **about)
    return _Typed(
        name, Annotated[typed, mark], inspect.Parameter.empty if shown is MISSING else shown
    )


def _summary(command: str) -> str | None:
    """The help of a study as its module's source has it, to list it without importing the study;
    None where it is not found there."""
    try:
        spec = importlib.util.find_spec(COMMANDS[command]) if command in COMMANDS else None
    except ImportError:  # of a package; why is said where the command is read
        spec = None
    if spec is None or spec.origin is None:
        return None
    source = Path(spec.origin).read_text("utf-8")
    made = re.search(
        r"^command = Study\(\s*(\w+)|^comparison = Comparison\([^)]*?^    settings=(\w+)",
        source,
        re.MULTILINE,
    )
    if made is None:
        return None
    named = rf"^(?:class|def) {made[1] or made[2]}\b[^\"]*?:\n    \"\"\"(.+?)(?:\n\n|\"\"\")"
    about = re.search(named, source, re.MULTILINE | re.DOTALL)
    return about and about[1]


def commands_of(group: Any) -> dict[str, Any]:
    """The commands and groups of a group by name, all of them read."""
    return {name: group.get_command(None, name) for name in group.list_commands(None)}


def group_of(verb: str) -> type[TyperGroup]:
    """A group of commands, each in the module that `COMMANDS` names, imported at first use.

    Their order is that of `COMMANDS`. A module's `command` is a `Study` or a function that Typer
    can read.
    """

    class Commands(TyperGroup):
        listing = False

        def format_help(self, ctx: Any, formatter: Any) -> None:
            self.listing = True
            try:
                listed = commands_of(self)
            finally:
                self.listing = False
            panels: dict[str, list[tuple[str, str]]] = {}
            for name, command in listed.items():
                words = (command.help or "").partition("\n\n")[0]
                panels.setdefault(command.rich_help_panel, []).append((name, words))
            panels |= panels_of(self)
            formatter.write(help_text(self.get_usage(ctx), self.help, None, panels))

        def list_commands(self, ctx: Any) -> list[str]:
            inside = len(verb.split())
            words = [command.split() for command in COMMANDS]
            names = [
                command_words[inside]
                for command_words in words
                if command_words[:inside] == verb.split()
            ]
            unread: dict[str, Any] = dict.fromkeys(names)
            self.commands = {**unread, **self.commands}
            return list(self.commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name not in self.list_commands(ctx):
                return None
            words = f"{verb} {cmd_name}".strip()
            listed = _summary(words) if self.listing else None
            panel = PANEL_OF.get(words, INSTALLED)
            if self.commands[cmd_name] is None and listed is not None:
                return Command(cmd_name, help=listed, rich_help_panel=panel)
            if self.commands[cmd_name] is None:
                try:
                    command = command_in(words)
                except InputError as error:
                    if not self.listing:
                        raise
                    return Command(cmd_name, help=str(error), rich_help_panel=panel)
                usage = getattr(command, "usage", None)
                if isinstance(command, Study):
                    command = command_of(command, words)
                self.commands[cmd_name] = get_command_from_info(
                    CommandInfo(
                        name=cmd_name,
                        cls=Command,
                        callback=command,
                        epilog=None if usage is None else f"headscope {words} {usage}".rstrip(),
                        rich_help_panel=panel,
                    ),
                    pretty_exceptions_short=False,
                    rich_markup_mode=self.rich_markup_mode,
                )
            return self.commands[cmd_name]

    return Commands
