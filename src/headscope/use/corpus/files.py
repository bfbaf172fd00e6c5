"""The files of a corpus: found by path, folder, pattern, address or dataset name.

Local and remote places go through the file systems of ``fsspec``, as datatrove takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any, Literal

from headscope.data.extras import need
from headscope.data.hub import is_hub_name
from headscope.data.languages import language_name
from headscope.errors import InputError

_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
#: What `datasets` leaves beside tables it saved itself.
_SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")

Kind = Literal["jsonl", "parquet", "dataset"]


@dataclass(frozen=True)
class CorpusFile:
    """One file of a corpus, or one dataset.

    Attributes:
        name: begins the names of its output files; no two files of a corpus share one.
        path: the path, address or dataset name.
        kind: ``jsonl`` (compressed or not), ``parquet`` or ``dataset``.
        language: of all its records that do not say theirs; None where nothing was said.
        split: of a dataset.
        digest: SHA-256 of its content (decompressed, for JSON Lines); made by `survey`.
        records: how many there are, or as many as are wanted; counted by `survey`.
        types: the columns of a Parquet file to be written, where the input does not say them.
        stamp: size and time of change of a local file when it was surveyed, and what was asked.
    """

    name: str
    path: str
    kind: Kind
    language: str | None = None
    split: str | None = None
    digest: str = ""
    records: int = 0
    types: Any = None
    stamp: tuple[str, ...] | None = None


def find_files(data: Sequence[str], split: str | None = None) -> tuple[CorpusFile, ...]:
    """The files that each of ``data`` names, in the order given, those of a folder by name.

    Each is a file, a folder, a pattern (``*``), an address (``s3://…``, ``hf://…``, ``https://…``)
    of one of these, or a dataset of the Hub (``name`` or ``name:config``), alone or as
    ``LANG=PLACE``. InputError if a place holds nothing, or no kind of file that is read.
    """
    if not data:
        raise InputError("no corpus is given; add --data FILE, repeatable, or --data LANG=FILE")
    found: list[CorpusFile] = []
    taken: dict[str, str] = {}
    for one in data:
        language, place = _language(one)
        for path, kind in _places(place):
            if path in taken.values():
                raise InputError(f"{path} is named twice by --data; name each file once")
            name = _free_name(path, taken)
            taken[name] = path
            dataset = kind == "dataset"
            found.append(CorpusFile(name, path, kind, language, split if dataset else None))
    if split is not None and not any(one.kind == "dataset" for one in found):
        raise InputError("--split is for datasets, but --data names files; leave it out")
    return tuple(found)


@contextmanager
def reachable(path: str) -> Iterator[None]:
    """Turn what a file system raises when it is asked for a place into one sentence naming it.

    Each file system has errors of its own, so none is left out here; their text is kept.
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be reached ({said}); check the place") from error


def open_place(path: str) -> tuple[Any, str]:
    """The file system of a place, and what the place is called there."""
    core = need("fsspec.core", f"reading {path}", "corpus")
    if Path(path).exists():
        local = need("fsspec.implementations.local", f"reading {path}", "corpus")
        return local.LocalFileSystem(), str(Path(path).resolve())
    try:
        system, inner = core.url_to_fs(path)
    except ValueError as error:
        raise InputError(f"{path} is no address that can be read ({error})") from None
    return system, inner


def _language(one: str) -> tuple[str | None, str]:
    code, equals, place = one.partition("=")
    if not equals or "/" in code or ":" in code or Path(one).exists():
        return None, one
    language_name(code)
    return code, place


def _places(place: str) -> Iterable[tuple[str, Kind]]:
    """Each file or dataset at a place, with its kind."""
    path = Path(place)
    if path.is_dir() and any((path / name).exists() for name in _SAVED):
        return [(place, "dataset")]
    pattern = has_magic(place) and not path.exists()
    remote = "://" in place
    if not (pattern or remote or path.exists() or _kind_or_none(place)) and is_hub_name(place):
        return [(place, "dataset")]
    with reachable(place):
        system, inner = open_place(place)
        # A web server cannot tell a file from a folder, but the name can.
        if not pattern and system.isfile(inner) and (_kind_or_none(place) or not remote):
            return [(place, _kind(place))]
        if pattern:
            inside = [name for name in system.glob(inner) if not system.isdir(name)]
        elif system.isdir(inner):
            inside = system.find(inner)
        elif path.exists():
            raise InputError(
                f"{place} is no ordinary file, and a corpus is read more than once; write it into "
                "a file"
            )
        else:
            raise FileNotFoundError(place)
    shown = _shower(system, place)
    known = [(shown(name), kind) for name in sorted(inside) if (kind := _kind_or_none(name))]
    if not known:
        raise InputError(
            f"{place} holds no JSON Lines or Parquet files; name one of .jsonl, .jsonl.gz, "
            ".jsonl.zst or .parquet"
        )
    return known


def _shower(system: Any, place: str) -> Callable[[str], str]:
    """How a file found in a file system is written as an address or path."""
    return str if "://" not in place else lambda name: str(system.unstrip_protocol(name))


def _kind_or_none(path: str) -> Kind | None:
    name = path.rsplit("/", 1)[-1].partition("?")[0].lower()
    if name.startswith("."):
        return None
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    kind = next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)
    return "jsonl" if kind == "jsonl" else "parquet" if kind == "parquet" else None


def _kind(path: str) -> Kind:
    kind = _kind_or_none(path)
    if kind is None:
        raise InputError(
            f"{path} is neither JSON Lines nor Parquet by its name; a corpus is read from .jsonl, "
            ".jsonl.gz, .jsonl.zst and .parquet files"
        )
    return kind


def _free_name(path: str, taken: Iterable[str]) -> str:
    """The file's name without its endings, in letters that every file system takes."""
    name = path.rstrip("/").rsplit("/", 1)[-1].partition("?")[0]
    for ending in (*_COMPRESSED, *_KINDS):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    name = re.sub(r"[^A-Za-z0-9._+=-]+", "_", name).strip(".")[:100] or "file"
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}.{number}"
    return free
