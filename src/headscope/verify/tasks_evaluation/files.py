"""Task files in the format of lm-evaluation-harness: read without running code that is not ours.

A task file is YAML: a prompt and an answer as templates over the fields of a dataset. The harness
would look up its data files from the working folder and import any Python a `!function` names;
here data files are looked up from the task file, and Python is imported only where that is allowed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headscope.data.files import Unread, files_below, parse_object, raw_lines
from headscope.errors import InputError, nearest, refuse_pipes

#: Keys beside those of a task's own configuration.
STRUCTURE = ("include", "tag", "group", "class", "group_alias", "aggregate_metric_list")
MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class TaskFile:
    """A task (`members` None) or a group of tasks, as its file and those it includes say."""

    path: Path
    name: str
    config: dict[str, Any]
    members: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Function:
    """A `!function` of a task file, not yet imported."""

    name: str
    path: Path
    line: int


def read_folder(folder: Path, allow_code: bool = False) -> list[TaskFile]:
    """Every task and group file in a folder and those below, sorted by path.

    Files that hold neither (they are there to be included) are passed over. InputError if there
    is no task at all.
    """
    files = []
    for path in (file for file in files_below(folder) if file.suffix == ".yaml"):
        config = _read(path, allow_code, set())
        if "task" in config or "group" in config:
            files.append(_checked(path, config))
    if not any(file.members is None for file in files):
        raise InputError(
            f"{folder}: holds no task file; a task file ends in .yaml and names its task, as in "
            "task: my_task"
        )
    return files


def read_task_file(path: Path, allow_code: bool = False) -> list[TaskFile]:
    """The task of one file; of a group's file the group and, from its folder, its tasks."""
    file = _checked(path, _read(path, allow_code, set()))
    if file.members is None:
        return [file]
    others = {task.name: task for task in read_folder(path.parent, allow_code)}
    for name in file.members:
        if name not in others:
            raise InputError(
                f"{path}: the group {file.name} names the task {name}, which no file in "
                f"{path.parent} holds; {nearest(name, others, 0.7)}put its file there"
            )
    return [file, *(others[name] for name in file.members if others[name].members is None)]


def _checked(path: Path, config: dict[str, Any]) -> TaskFile:
    from lm_eval.config.task import TaskConfig

    members, name = config.get("task"), config.get("group")
    if name is not None:
        if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
            raise InputError(
                f"{path}: the group {name} must list the names of its tasks, as in task: [a, b]"
            )
        return TaskFile(path, str(name), config, tuple(members))
    if not isinstance(members, str) or not members:
        raise InputError(f"{path}: names no task; add a line such as task: my_task")
    known = [field.name for field in fields(TaskConfig)] + list(STRUCTURE)
    for key in config:
        if key not in known:
            raise _unknown(path, str(key), key, "no key of a task file", known)
    _check_metrics(path, config)
    kept = {key: value for key, value in config.items() if key not in ("tag", "group")}
    return TaskFile(path, members, kept)


def _check_metrics(path: Path, config: dict[str, Any]) -> None:
    """InputError for a metric the harness would look for on the Hub, where it is Python code."""
    from lm_eval.api import metrics
    from lm_eval.api.registry import AGGREGATION_REGISTRY, METRIC_REGISTRY

    del metrics  # imported for what it registers
    listed = config.get("metric_list")
    for entry in listed if isinstance(listed, list) else ():
        name = entry.get("metric") if isinstance(entry, dict) else None
        if callable(name) or config.get("process_results") is not None:
            continue
        if not isinstance(name, str) or name not in METRIC_REGISTRY or entry.get("hf_evaluate"):
            what = (
                "no metric of the harness itself, and metrics of the Hub are code that is not run "
                "here"
            )
            raise _unknown(path, "metric_list", name, what, sorted(METRIC_REGISTRY))
        way = entry.get("aggregation")
        if not callable(way) and way is not None and way not in AGGREGATION_REGISTRY:
            what = "no aggregation of the harness"
            raise _unknown(path, "aggregation", way, what, sorted(AGGREGATION_REGISTRY))


def _unknown(path: Path, place: str, name: object, what: str, known: Sequence[str]) -> InputError:
    """That a name on the line of `place` is not one of those known."""
    return InputError(
        f"{path}:{_line_of(path, place)}: {name!r} is {what}; {nearest(str(name), known, 0.7)}"
        f"known: {', '.join(known)}"
    )


def _read(path: Path, allow_code: bool, seen: set[Path]) -> dict[str, Any]:
    import yaml

    if path.resolve() in seen:
        raise InputError(f"{path}: includes itself; take that include out")
    seen = seen | {path.resolve()}
    refuse_pipes(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not valid UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a task file") from error
    try:
        config = yaml.load(text, Loader=_loader(path))
        json.dumps(config, default=str, skipkeys=True)  # an anchor may lead back to itself
    except (RecursionError, ValueError) as error:
        raise InputError(
            f"{path}: is nested without end or has an unknown value; write it plainly"
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"{path}{line}: is not valid YAML ({why}); put that right") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: holds no keys and values; a task file has lines like task: name")
    config = {key: _functions(value, allow_code) for key, value in config.items()}
    _settle_paths(path, config)
    merged: dict[str, Any] = {}
    includes = config.pop("include", [])
    for name in includes if isinstance(includes, list) else [includes]:
        merged |= _read(path.parent / str(name), allow_code, seen)
    return merged | config


def _loader(path: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain YAML, and a `!function` as what it names."""

    def function(loader: Any, node: Any) -> _Function:
        return _Function(str(loader.construct_scalar(node)), path, node.start_mark.line + 1)

    Loader.add_constructor("!function", function)
    return Loader


def _functions(value: Any, allow_code: bool) -> Any:
    """A configuration with its functions imported, or an InputError where that is not allowed."""
    if isinstance(value, dict):
        return {key: _functions(part, allow_code) for key, part in value.items()}
    if isinstance(value, list):
        return [_functions(part, allow_code) for part in value]
    if not isinstance(value, _Function):
        return value
    if not allow_code:
        raise InputError(
            f"{value.path}:{value.line}: !function {value.name} would run Python code that comes "
            "with the task file; read that code, and if you trust it add --allow-task-code"
        )
    return _import(value)


def _import(function: _Function) -> Any:
    """The function: of a module beside the file, or of an installed one."""
    where, _, name = function.name.rpartition(".")
    file = function.path.parent / f"{where.replace('.', '/')}.py"
    try:
        if file.is_file():
            spec = importlib.util.spec_from_file_location(f"{file.resolve().with_suffix('')}", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        return getattr(module, name)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise InputError(
            f"{function.path}:{function.line}: !function {function.name} cannot be imported "
            f"({error}); put {file.name} with {name} beside the task file"
        ) from error


def _settle_paths(path: Path, config: dict[str, Any]) -> None:
    """Make data files and folders absolute, looked up from the task file, then from here."""
    kwargs = config.get("dataset_kwargs")
    if isinstance(kwargs, dict):
        kwargs = dict(kwargs)
        for key in ("data_files", "data_dir"):
            if key in kwargs:
                kwargs[key] = _settled(path, kwargs[key])
        config["dataset_kwargs"] = kwargs
    place = config.get("dataset_path")
    if isinstance(place, str) and (place.startswith((".", "/")) or (path.parent / place).exists()):
        config["dataset_path"] = _settled(path, place)


def _settled(path: Path, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _settled(path, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_settled(path, part) for part in value]
    name = str(value)
    if "://" in name:
        return name
    for folder in (path.parent, Path()):
        if (folder / name).exists() or (MAGIC & set(name) and any(folder.glob(name))):
            file = (folder / name).absolute()
            refuse_pipes(file)
            _check_lines(file)
            return str(file)
    raise InputError(
        f"{path}:{_line_of(path, name)}: the data file {name} is not there; put it beside the "
        "task file, from where its place is looked up"
    )


def _check_lines(file: Path) -> None:
    """InputError for the first line of a JSON Lines file that is no object, or for no line."""
    if file.suffix != ".jsonl" or not file.is_file():
        return
    filled = 0
    with file.open("rb") as lines:
        for number, line in enumerate(raw_lines(lines), start=1):
            if isinstance(line, Unread):
                raise InputError(f"{file}:{number}: the line {line.why}; leave it out")
            if line.strip():
                parse_object(line, f"{file}:{number}:")
                filled += 1
    if not filled:
        raise InputError(f"{file}: holds no examples; write one JSON object a line")


def _line_of(path: Path, text: str) -> int:
    """The first line of a file that holds `text` (1 where an included file has it)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, start=1) if text in line), 1)
