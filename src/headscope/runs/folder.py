"""A run folder: opened by configuration, resumed where it stopped, finished once.

Partial results survive that the process is killed at any moment.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from glob import escape
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote, unquote

from numpy.typing import NDArray

from headscope.errors import InputError, placed
from headscope.heads.store import (
    RUN_FORMAT,
    check_format,
    packed,
    parsed,
    read_tensors,
    write_bytes,
)
from headscope.progress import Report
from headscope.runs.codec import Result, encode
from headscope.runs.kept import KeptNumbers
from headscope.runs.plain import dump_json, dump_jsonl, file_digest
from headscope.runs.reading import SO_FAR, read_object, read_result
from headscope.runs.signature import Signature, collect_provenance, now
from headscope.scratch import scratch

RUN, DONE, RESULT, PROVENANCE, LOCK = (
    "run.json",
    "DONE.json",
    "result.json",
    "provenance.json",
    ".lock",
)

_log = logging.getLogger(__name__)

#: What a run tells of its making beside what is found, or what gives it when it is due.
Provenance = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None

T = TypeVar("T")
Item = TypeVar("Item")
#: What stands before a worker's number in the names of its files, and where workers count units.
_OF_WORKER, _COUNTS = ".worker-", "workers"


class Elsewhere(Exception):
    """What the work would go on with is computed by other processes."""


class Pace(Protocol):
    """Told how long the units of a part take; it may end the work by an exception."""

    def begin(self, title: str, done: float, total: float) -> None:
        """Units of so much in all are computed from here on, those done left out."""
        ...

    def reached(self, done: float) -> None:
        """So much is computed now."""
        ...


class Share(NamedTuple):
    """The units of a run that a worker computes, by part and name, and its number among workers."""

    worker: int
    units: frozenset[tuple[str, str]]


#: The run folder of which this process computes a share, and the share; None: it computes runs.
_SHARE: ContextVar[tuple[Path, Share] | None] = ContextVar("share of a run", default=None)


@contextmanager
def sharing(folder: Path, share: Share) -> Iterator[None]:
    """Open the run in the folder as a worker: it computes its share and writes nothing else.

    The work ends with `Elsewhere`.
    """
    before = _SHARE.set((folder, share))
    try:
        yield
    finally:
        _SHARE.reset(before)


class Group(NamedTuple):
    """Processes that carry out one command together: whether this is the first of them, and what
    waits for all of them."""

    first: bool
    wait: Callable[[], object]


#: The processes that this one works with; the first alone writes into run folders.
_GROUP: list[Group] = []


def working_in(group: Group) -> None:
    """Let this process work in a group from now on: others than the first keep copies of runs."""
    _GROUP[:] = [group]


@cache
def _copies() -> Path:
    held = ExitStack()
    atexit.register(held.close)
    return held.enter_context(scratch("runs")).resolve()


def _own(folder: Path) -> Path:
    """Where this process keeps the run of a folder, once all of its group are here: as it is then,
    so that all of them find the same units done."""
    for group in _GROUP:
        place = folder.resolve()
        if not group.first and not place.is_relative_to(_copies()):
            folder = _copies() / place.relative_to(place.anchor)
            if place.is_dir() and not folder.exists():
                shutil.copytree(place, folder, ignore=shutil.ignore_patterns(LOCK, ".tmp-*"))
        group.wait()
    return folder


#: Where `whole` keeps what is begun inside it; None outside.
_BEGUN: ContextVar[set[Path] | None] = ContextVar("folders begun", default=None)


@contextmanager
def whole(begun: set[Path]) -> Iterator[None]:
    """Runs begun inside are finished, or their folders are gone afterwards.

    Meanwhile `begun` holds these folders, and what else is said to be of use to them alone.
    """
    before = _BEGUN.set(begun)
    try:
        yield
    finally:
        _BEGUN.reset(before)
        for folder in begun:
            shutil.rmtree(folder, ignore_errors=True)
        begun.clear()


def begins(folder: Path) -> None:
    """Say that a folder is made for a run that is begun inside `whole`, if it is."""
    if (begun := _BEGUN.get()) is not None:
        begun.add(folder)


@dataclass(eq=False)
class Run:
    """One run folder, held by this process until `finish` or `close` (or the end of `with`).

    Attributes:
        path: the folder.
        key: what the run is known by.
        provenance: what it tells of its making.
        divide: lets workers compute units, named by part and name, while it counts by calling its
            second argument; None: this process computes all itself.
        share: of a worker, which holds no lock: what it computes.
        beside: numbers that are kept for other runs, too; None: there are none.
        pace: told how long units take; None: nobody asks.
    """

    path: Path
    key: Signature
    provenance: dict[str, Any]
    _lock: int | None = field(default=None, repr=False)
    _passing: set[str] = field(default_factory=set, repr=False)
    divide: Callable[[Sequence[tuple[str, str]], Callable[[], None]], None] | None = None
    share: Share | None = None
    beside: KeptNumbers | None = None
    pace: Pace | None = None
    _left: list[tuple[str, str]] | None = field(default=None, repr=False)

    @property
    def hash(self) -> str:
        """12 hexadecimal digits that stand for command, configuration, inputs and version."""
        return self.key.hash

    @property
    def signature(self) -> str:
        """Such as `headscope-0.1.0|find translation-score|0f3a…`."""
        return str(self.key)

    @property
    def finished(self) -> bool:
        """Whether the run has its completion marker."""
        return (self.path / DONE).exists()

    def result(self) -> dict[str, Any]:
        """The stored result of a finished run; InputError if it does not match the marker."""
        if not self.finished:
            raise RuntimeError(f"{self.path}: this run is not finished and has no result yet")
        return read_result(self.path)

    @contextmanager
    def units(
        self,
        part: str,
        left: Callable[[], Iterable[str]],
        reread: Callable[[], None],
        report: Report | None = None,
        cost: Callable[[str], float] | None = None,
    ) -> Iterator[list[str]]:
        """The units of a part that this process computes and keeps inside the block.

        Without workers they are what `left` gives: the names of all that are not kept, in an order
        that follows from the run. With workers these compute them before the block begins; then
        `reread` reads what is kept, and what is left is usually nothing. A worker gets its share,
        and after the block the work ends with `Elsewhere`. `report` is told how far workers are;
        `cost` of a unit, by which workers get equally much, is equal where it is None.
        """
        names = list(left())
        if self.share is not None:
            yield [name for name in names if (part, name) in self.share.units]
            if names or self._left is not None:
                raise Elsewhere
            return
        if names and self.divide is not None:
            if cost is not None:
                names.sort(key=cost, reverse=True)
            units = [(part, name) for name in names]
            if self._left is not None:
                self._left += units
                raise Elsewhere
            self._divided(units, report)
            reread()
            names = list(left())
        yield names

    def each(
        self, items: Iterable[Item], work: Callable[[Item], T], report: Report | None = None
    ) -> list[T]:
        """What `work` makes of every item, where none needs what is computed of another.

        The units of all items go to workers together, and a worker ends here.
        """
        if self.divide is None and self.share is None:
            return [work(item) for item in items]
        several, made = list(items), list[T]()
        self._left = []
        for item in several:
            try:
                made.append(work(item))
            except Elsewhere:
                continue
        left, self._left = self._left, None
        if self.share is not None:
            raise Elsewhere
        if not left:
            return made
        self._divided(left, report)
        return [work(item) for item in several]

    def _divided(self, units: Sequence[tuple[str, str]], report: Report | None) -> None:
        """Let workers compute units, and tell how many of them they have done."""
        assert self.divide is not None
        counts = self.part(_COUNTS)
        shutil.rmtree(counts, ignore_errors=True)
        counts.mkdir()

        def watch() -> None:
            done = sum(file.stat().st_size for file in counts.iterdir())
            if report is not None:
                report(min(1.0, done / len(units)))

        self.divide(units, watch)
        shutil.rmtree(counts, ignore_errors=True)

    def _count(self, part: str, name: str) -> None:
        """Say that a unit of this worker is done: a byte for each."""
        if self.share is not None and (part, name) in self.share.units:
            with self.part(f"{_COUNTS}/{self.share.worker}").open("ab") as file:
                file.write(b".")

    def part(self, name: str) -> Path:
        """A path under `parts/` for partial results of the caller's own making."""
        path = self._inside(f"parts/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def append_part(self, name: str, key: str, record: Any) -> None:
        """Add the JSON record of one finished batch to the part `name`."""
        self._writable()
        # Two processes never append to one file.
        own = "" if self.share is None else f"{_OF_WORKER}{self.share.worker}"
        append_record(self.part(f"{name}{own}.jsonl"), key, record)
        self._count(name, key)

    def read_part(self, name: str) -> dict[str, Any]:
        """The records of the part `name` by key, in the order added; empty if there are none."""
        own = self.part(f"{name}.jsonl")
        of_workers = sorted(own.parent.glob(f"{escape(own.stem)}{_OF_WORKER}*.jsonl"))
        return {
            key: record for file in (own, *of_workers) for key, record in read_records(file).items()
        }

    def append_tensors(self, name: str, key: str, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Add the arrays of one finished batch to the part `name`."""
        self._writable()
        write_shard(self.part(name), key, tensors)
        self._count(name, key)

    def read_tensors(self, name: str) -> dict[str, dict[str, NDArray[Any]]]:
        """The arrays of the part `name` by key, sorted by key; empty if there are none."""
        return read_shards(self.part(name))

    def drop_when_finished(self, name: str) -> None:
        """Remove the arrays of the part `name` once the completion marker is written."""
        self._passing.add(name)

    def write_text(self, name: str, text: str) -> Path:
        """Write a text into the run, whole or not at all."""
        return self._write(name, text.encode())

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file into the run, whole or not at all."""
        return self._write(name, f"{dump_json(value, indent=2)}\n".encode())

    def write_jsonl(self, name: str, rows: Iterable[Any]) -> Path:
        """Write one JSON text a line into a file of the run, whole or not at all."""
        return self._write(name, dump_jsonl(rows).encode())

    def write_tensors(self, name: str, tensors: Mapping[str, NDArray[Any]]) -> Path:
        """Write arrays as a safetensors file of the run, whole or not at all."""
        return self._write(name, packed(tensors))

    def read_written(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of a safetensors file of the run; InputError if it is damaged."""
        return read_tensors(self._inside(name), "delete it and run the same command again")

    def tell(self, result: Result) -> None:
        """Write what there is of the result so far, for whoever looks before the run ends."""
        if self.share is None:
            self.write_json(SO_FAR, encode(result))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, the end of the provenance and, last of all, the completion marker."""
        self._writable()
        if self.share is not None:
            raise Elsewhere
        self.provenance["ended"] = now()
        self.write_json(PROVENANCE, self.provenance)
        file = self.write_json(RESULT, result)
        done = {"format": RUN_FORMAT, "hash": self.hash, "result": file_digest(file)}
        self.write_json(DONE, {**done, "ended": now()})
        for part in map(self.part, self._passing):
            if part.is_dir():  # under its name there is the whole part or nothing
                aside = part.with_name(f".dropped-{part.name}")
                shutil.rmtree(aside, ignore_errors=True)
                part.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
        (self.path / SO_FAR).unlink(missing_ok=True)
        (_BEGUN.get() or set()).clear()
        self.close()

    def close(self) -> None:
        """Let other processes have the folder; the run can be opened again and continued."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and (self.path / SO_FAR).exists():
            error.add_note(f"`headscope report {self.path}` shows what there is so far")
        self.close()

    def __del__(self) -> None:
        self.close()

    def _write(self, name: str, data: bytes) -> Path:
        self._writable()
        path = self._inside(name)
        if self.share is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, data)
        return path

    def _inside(self, name: str) -> Path:
        path = self.path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} is not inside the run folder {self.path}")
        try:
            place = path.resolve()
        except (OSError, RuntimeError) as error:  # links in a circle
            raise _linked(path) from error
        if not place.is_relative_to(self.path.resolve()):
            raise _linked(path)
        return path

    def _writable(self) -> None:
        if self._lock is None and self.share is None:
            raise RuntimeError(f"{self.path}: this run is finished or closed and is not written to")


class Kept(dict[str, Any]):
    """The records of a part of a run by key, to which others are added; without a run its own."""

    def __init__(self, run: Run | None, part: str) -> None:
        super().__init__({} if run is None else run.read_part(part))
        self._run, self._part = run, part

    def reread(self) -> None:
        """Take up what other processes have kept."""
        if self._run is not None:
            self.update(self._run.read_part(self._part))

    def add(self, key: str, record: Any) -> None:
        """Keep one more record."""
        self[key] = record
        if self._run is not None:
            self._run.append_part(self._part, key, record)

    def made(self, key: str, compute: Callable[[], Any]) -> Any:
        """The record of a key, computed and kept if it is not there."""
        if key not in self:
            self.add(key, compute())
        return self[key]


def open_run(
    out: str | PathLike[str] | None,
    command: str,
    config: Any,
    inputs: Mapping[str, str],
    *,
    provenance: Provenance = None,
) -> Run:
    """Open the run folder of `command` under `config`, a dataclass or a mapping.

    `inputs` maps names (`data`, `model`) to content hashes; `provenance` adds to what
    `collect_provenance` finds; a function that gives it is called once the folder is held and
    there is something to compute, and where it fails, a folder that was not there is gone again.
    `out` defaults to `runs/<command>-<hash>`. An empty or missing folder begins a run; an
    unfinished run of the same configuration continues, a finished one comes back as `finished`.
    InputError, with the folder untouched, if it holds a run of another configuration or other
    files, or if another process is working in it.
    """
    key = Signature.of(command, config, inputs)
    folder = Path(out) if out is not None else Path("runs") / f"{_slug(command)}-{key.hash}"
    if (shared := _SHARE.get()) is not None and folder == shared[0]:
        stored = read_object(folder / RUN)
        if stored.get("hash") != key.hash:
            raise InputError(
                f"{folder}: a worker that loads the model by name comes to another run "
                f"({_differences(stored, key)}); give --dtype and the other options of the model, "
                "or take one worker"
            )
        return Run(folder, key, read_object(folder / PROVENANCE), share=shared[1])
    _check_folder(folder, key)
    folder = _own(folder)
    if (folder / DONE).exists():
        return Run(folder, key, read_object(folder / PROVENANCE))
    if new := not folder.exists():
        begins(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder, key, {}, _lock_folder(folder))
    try:
        _check_folder(folder, key)  # another process may have begun or finished a run meanwhile
        if run.finished:
            run.close()
            return Run(folder, key, read_object(folder / PROVENANCE))
        for place in folder.iterdir():
            if place.is_symlink():
                run._inside(place.name)
        for left in folder.rglob(".tmp-*"):  # by a process killed while it wrote
            left.unlink()
        earlier = read_object(folder / PROVENANCE) if (folder / PROVENANCE).exists() else {}
        more = provenance() if callable(provenance) else provenance or {}
        known = collect_provenance(**{"inputs": key.inputs, **more})
        run.provenance = {**known, "started": [*earlier.get("started", []), now()]}
        run.write_json(PROVENANCE, run.provenance)
        stored = {"hash": key.hash, "signature": str(key), **key.as_dict()}
        run.write_json(RUN, stored)
    except BaseException:
        if new:
            (folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # something was written
                folder.rmdir()
        run.close()
        raise
    return run


def reopen_run(path: str | PathLike[str]) -> Run:
    """Open a finished run, to work its result out again from what the run stores.

    `Run.finish` then replaces the result, and until then the run is as it was. InputError if the
    folder holds no finished run, or if another process is working in it.
    """
    folder = Path(path)
    if not (folder / RUN).is_file() or not (folder / DONE).is_file():
        raise InputError(f"{folder}: is not the folder of a finished run; name one")
    check_format(folder)
    stored = read_object(folder / RUN)
    try:
        key = Signature(stored["command"], stored["config"], stored["inputs"], stored["version"])
    except KeyError as error:
        raise InputError(f"{folder / RUN}: is damaged; start the run again") from error
    if stored.get("hash") != key.hash:
        raise InputError(f"{folder / RUN}: is damaged; start the run again")
    return Run(folder, key, read_object(folder / PROVENANCE), _lock_folder(folder))


def _check_folder(folder: Path, key: Signature) -> None:
    """InputError unless a run with this key may be begun or continued in the folder."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the run")
    if (folder / RUN).exists():
        stored = read_object(folder / RUN)
        if stored.get("hash") == key.hash:
            return
        if stored.get("version") != key.version:
            state = "a finished" if (folder / DONE).exists() else "an unfinished"
            raise InputError(
                f"{folder}: holds {state} run of headscope {stored.get('version')}, which "
                f"{key.version} does not continue; it is left untouched: name another folder"
            )
        command = stored.get("command")
        if isinstance(command, str) and command != key.command:
            raise InputError(
                f"{folder}: holds a run of {command}, which is left untouched; name another folder"
            )
        why = _differences(stored, key) or "it was written in another format"
        raise InputError(
            f"{folder}: holds a run of another configuration, which is left untouched: {why}; "
            "name another folder, or repeat the run that is there"
        )
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in (LOCK, PROVENANCE) and not path.name.startswith(".tmp-")
    )
    if others:
        raise InputError(
            f"{folder}: holds other files ({', '.join(others[:3])}) and no run; "
            "name an empty or new folder"
        )


def _differences(stored: Mapping[str, Any], key: Signature) -> str:
    return ", ".join(key.differences({name: stored.get(name) for name in key.as_dict()}))


def _lock_folder(folder: Path) -> int:
    """Hold the folder's lock; the system releases it when this process ends, however it ends."""
    import fcntl

    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise InputError(
            f"{folder}: another process is working on this run; wait for it or name another folder"
        ) from error
    except BaseException:
        os.close(handle)
        raise
    return handle


def _linked(path: Path) -> InputError:
    """The error for a place in a run folder that links lead out of: runs that share it would take
    each other's parts for their own."""
    return InputError(
        f"{path}: is a link, or lies behind one, to a place outside the run folder, so it is not "
        "used; move what it links to into the folder, or link the run folder itself"
    )


def _slug(command: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", command).strip("-")


def read_records(path: Path) -> dict[str, Any]:
    """The records of an append-only file, by key, in the order written.

    A last line that was not written to its end is dropped, with a warning in the log; a damaged
    line before it raises InputError. Of two records with one key the later counts.
    """
    data = path.read_bytes() if path.exists() else b""
    whole = data[: _whole_length(data)]
    if len(whole) < len(data):
        _log.warning(
            "%s, line %d: was not written to its end and is computed again",
            path,
            whole.count(b"\n") + 1,
        )
    records: dict[str, Any] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = parsed(line)
            records[entry["key"]] = entry["record"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: is damaged; delete this file to compute its part again"
            ) from error
    return records


def append_record(path: Path, key: str, record: Any) -> None:
    """Append one record by one write call; a half-written last line is cut off before."""
    line = (dump_json({"key": key, "record": record}) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with placed(path), path.open("ab+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(_whole_length(file.read()))
        written = file.write(line)
        if written != len(line):
            why = f"only {written} of {len(line)} bytes could be written"
            raise OSError(errno.ENOSPC, why, str(path))


def write_shard(folder: Path, key: str, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of one batch as a safetensors file of their own, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / f"{quote(key, safe='')}.safetensors", packed(tensors))


def read_shards(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """The arrays of all finished batches, sorted by key; a damaged file is an InputError."""
    return dict(
        sorted(
            (unquote(path.stem), read_tensors(path, "delete this file to compute its part again"))
            for path in folder.glob("*.safetensors")
            if not path.name.startswith(".")
        )
    )


def _whole_length(data: bytes) -> int:
    return data.rfind(b"\n") + 1
