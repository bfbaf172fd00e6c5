"""A finished command that is given again is answered from its run folder, and little is imported.

What a run computes follows from its signature, but working that out reads a model's configuration
and data. So a finished run also keeps the settings of its commands, with the state (size,
times, number) of every file that they name and the sizes of its own files. Where all of that is the
same, so is the answer. Otherwise, and for every text that may stand for something else than a file
here (a name of the Hub, a pattern, a task by its name) or names a file that names others (a task in
YAML), the command goes its usual way.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from headscope.installed import packages
from headscope.studies.study import RUN_FOLDER, Study

#: In a run folder: fingerprints of the commands that it answers, the last ones first.
REPEATS = "commands.json"
_MOST = 16
#: Files that come and go in a run folder and say nothing about its run.
_PASSING = {REPEATS, "report.html", ".lock"}
#: A folder of more files is not looked through.
_MOST_FILES = 4096
#: Texts that are no more than they say: words, codes, numbers, lists of heads.
_WORDS = re.compile(r"[a-z]+(-[a-z]+)*|[a-z]{2,3}([-_][A-Za-z]+)*|[\d.,%]+")
#: Fields in which a word, too, may name something elsewhere; what is bundled is part of a version.
_NAMING = re.compile(r"model|models|tokenizer|checkpoints|task|tasks|benchmarks|.*data")
_BUNDLED = "pocket"
#: Endings of files whose content names further files.
_NAME_OTHERS = {".yaml", ".yml"}


def finished(study: Study, key: str | None, given: Mapping[str, Any]) -> Any:
    """The result of the finished run that answered a command of this fingerprint, or None."""
    if key is None:
        return None
    out = given.get("out")
    for folder in [Path(out)] if out else sorted(Path("runs").glob("*")):
        known = _kept(folder) if (folder / "DONE.json").is_file() else []
        if not known or _with_files(key, folder) not in known:
            continue
        from headscope.runs.reading import result_of

        result = result_of(folder, study.result, "this command")
        if not hasattr(result, "report"):
            return replace(result, run=str(folder))
        report = folder / "report.html"
        if report.is_file():
            return replace(result, run=str(folder), report=str(report.resolve()))
    return None


def remember(key: str | None, result: Any) -> None:
    """Keep in the folder of a finished run the fingerprint that its command had before and after
    it."""
    from headscope.heads.store import write_bytes

    run = getattr(result, "run", None)
    if run is None or not (Path(run) / "DONE.json").is_file() or not os.access(run, os.W_OK):
        return
    own = None if key is None else _with_files(key, Path(run))
    known = _kept(Path(run))
    if own is not None and own not in known:
        # The run is finished; without this file the command only takes longer the next time.
        with suppress(OSError):
            write_bytes(Path(run) / REPEATS, json.dumps([own, *known][:_MOST]).encode())


def _kept(folder: Path) -> list[str]:
    file = folder / REPEATS
    if not file.is_file():
        return []
    try:
        known = json.loads(file.read_bytes())
    except (ValueError, RecursionError):  # damaged: the usual way replaces it
        return []
    return [key for key in known if isinstance(key, str)] if isinstance(known, list) else []


def _with_files(key: str, folder: Path) -> str | None:
    """A fingerprint that also stands for the names and sizes of the files of a run folder."""
    rows = _files(folder)
    if rows is None:
        return None
    sizes = [[str(file.relative_to(folder)), file.stat().st_size] for file in rows]
    return hashlib.sha256(json.dumps([key, sizes]).encode()).hexdigest()


def fingerprint(study: Study, settings: Any) -> str | None:
    """SHA-256 of the settings of a command and of what they name; None if files here do not decide
    its answer."""
    from headscope.heads.store import installed_version

    if study.out is not RUN_FOLDER or study.result is None:
        return None
    # Commands that compare share one function: the settings' class tells them apart.
    kind = type(settings)
    state: list[Any] = [installed_version(), packages(), study.run.__module__]
    state += [f"{kind.__module__}.{kind.__qualname__}", repr(settings)]
    # What --dtype auto means depends on the device.
    state += [os.environ.get("CUDA_VISIBLE_DEVICES"), os.path.exists("/dev/nvidiactl")]
    for field, text in _texts(settings):
        if Path(text).suffix in _NAME_OTHERS:
            return None
        left, _, right = text.rpartition("=")  # PAIR=FILE
        stamp = _state(text) or (_state(right) if _WORDS.fullmatch(left) else None)
        word = text == _BUNDLED if _NAMING.fullmatch(field) else _WORDS.fullmatch(text)
        if not (stamp or word):
            return None
        state.append(stamp)
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _state(name: str) -> list[Any] | None:
    """Size, times and number of a file, or of all files of a folder; None: there is none, or more
    than are looked through."""
    try:
        path = Path(name).resolve()
        files = _files(path) if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # no name of a file, or folders without end
        return None
    if files is None:
        return None
    rows: list[Any] = [str(path)]
    for file in files:
        known = file.stat()
        rows.append([str(file), known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino])
    return rows


def _files(place: Path) -> list[Path] | None:
    """A file, or all files of a folder that say something; None where there are too many, or a
    folder elsewhere is linked, which is not looked through."""
    files = [place] if place.is_file() else list(islice(place.rglob("*"), _MOST_FILES + 1))
    if len(files) > _MOST_FILES or any(file.is_symlink() and file.is_dir() for file in files):
        return None
    return sorted(file for file in files if file.is_file() and file.name not in _PASSING)


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """All texts and paths in settings, also in those that they hold, behind their field's name;
    but for those that a field has by default."""
    if isinstance(value, str | Path):
        yield field, str(value)
    elif is_dataclass(value):
        for field_ in fields(value):
            own = getattr(value, field_.name)
            factory = field_.default_factory
            if own != (field_.default if factory is MISSING else factory()):
                yield from _texts(own, field_.name)
    elif isinstance(value, Mapping):
        yield from _texts([*value, *value.values()], field)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _texts(part, field)
