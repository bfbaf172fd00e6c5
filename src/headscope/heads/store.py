"""How head artifacts lie on disk: safetensors, config.json and a model card."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headscope.errors import InputError, placed, refuse_pipes
from headscope.heads.geometry import Geometry

FORMAT = 1
#: The format of results, which they and DONE.json say; older runs said none.
RUN_FORMAT = 2
#: The kinds of artifacts; of each its title, its class and its content, for the card.
KINDS = {
    "scores": ("Attention head scores", "HeadScores", "one score for every query head"),
    "heads": ("A set of attention heads", "HeadSet", "a list of query heads"),
    "gate": ("A gate over attention heads", "Gate", "one multiplier for every query head"),
}

#: What is written here is nested far less; code that looks into a value calls itself for a level.
_DEEPEST = 100

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Origin:
    """What made an artifact: the method, the run's signature, its configuration, provenance.

    `config` and `provenance` are JSON objects.
    """

    method: str = ""
    signature: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """An artifact as read from disk, before its kind's own checks."""

    directory: Path
    kind: str
    geometry: Geometry
    tensors: dict[str, NDArray[Any]]
    origin: Origin

    def tensor(self, name: str, dtype: DTypeLike, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The tensor `name`; InputError unless it has the dtype and shape (None: any length)."""
        file = self.directory / f"{self.kind}.safetensors"
        if name not in self.tensors:
            raise InputError(f"{file}: the tensor '{name}' is missing; save the artifact again")
        tensor = self.tensors[name]
        fits = len(tensor.shape) == len(shape) and all(
            want is None or want == have for want, have in zip(shape, tensor.shape, strict=True)
        )
        if not fits or tensor.dtype != np.dtype(dtype):
            raise InputError(
                f"{file}: the tensor '{name}' is {tensor.dtype} of shape {tensor.shape}, where "
                f"{np.dtype(dtype)} of shape {shape} is expected; save the artifact again"
            )
        return tensor


def installed_version() -> str:
    """The installed version of headscope; `0+unknown` when it runs from a bare source tree."""
    try:
        return version("headscope")
    except PackageNotFoundError:
        return "0+unknown"


def kind_of(directory: str | PathLike[str]) -> str | None:
    """The kind of the head artifact in a folder, or None if the folder holds none; `InputError` if
    its config.json cannot be read as JSON."""
    path = Path(directory) / "config.json"
    config = _json(path) if path.is_file() else None
    if not isinstance(config, dict) or config.get("library") != "headscope":
        return None
    return str(config.get("kind"))


def check_format(run: Path) -> None:
    """Raise `InputError` if the finished run in a folder is of a version that wrote other runs."""
    if read_json(run / "DONE.json").get("format") != RUN_FORMAT:
        raise InputError(
            f"{run}: was written by an older version of headscope, whose runs are no longer read; "
            "run the same command again into another folder"
        )


def with_details(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the JSON of a result holds, what stands in its `details` beside all else."""
    details = result.get("details")
    return {**(details if isinstance(details, Mapping) else {}), **result}


def check_finished(folder: Path) -> None:
    """Raise `InputError` if the folder is that of a run that has not ended, or lies in one; also
    as `check_format` does."""
    resolved = folder.resolve()
    for place in (resolved, *resolved.parents[:2]):
        if (place / "run.json").exists():
            if not (place / "DONE.json").exists():
                shown = folder if place == resolved else place
                raise InputError(
                    f"{shown}: this run is not finished; run the same command again to finish it"
                )
            check_format(folder if place == resolved else place)
            return


def place_in(folder: Path, kind: str) -> Path:
    """Where a folder holds its artifact of a kind: the folder itself, or that of a finished run.

    Of scores in several directions it is their mean. InputError for a run that is not finished.
    """
    if kind_of(folder) == kind:
        return folder
    for place in (folder / kind, folder / kind / "mean"):
        if kind_of(place) == kind:
            check_finished(folder)
            return place
    return folder


def save(
    directory: str | PathLike[str],
    kind: str,
    geometry: Geometry,
    tensors: Mapping[str, NDArray[Any]],
    origin: Origin,
) -> None:
    """Write an artifact folder so that a reader never takes a half-written one for whole.

    Files are written beside the folder first and moved in one by one, config.json last; it holds
    the digest of the tensors, so that a mixture of old and new is noticed on loading. A folder
    that holds another kind of artifact, or a model, raises InputError and is left untouched.
    """
    target = Path(directory)
    _check_free(target, kind)
    # One entry: safetensors writes several in random order.
    blob = packed(tensors, {"headscope": kind})
    config = {
        "library": "headscope",
        "kind": kind,
        "format": FORMAT,
        "headscope_version": installed_version(),
        "geometry": geometry.as_dict(),
        "method": origin.method,
        "signature": origin.signature,
        "sha256": hashlib.sha256(blob).hexdigest(),
        "config": dict(origin.config),
        "provenance": dict(origin.provenance),
    }
    text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    target.mkdir(parents=True, exist_ok=True)
    write_bytes(target / f"{kind}.safetensors", blob)
    write_bytes(target / "README.md", model_card(kind, geometry, origin).encode())
    write_bytes(target / "config.json", text.encode())


def load(directory: str | PathLike[str], kind: str) -> Saved:
    """Read an artifact folder; InputError if it is missing, of another kind or damaged."""
    folder = Path(directory)
    config = _read_config(folder, kind)
    file = folder / f"{kind}.safetensors"
    tensors = read_tensors(file, "save the artifact again")
    if hashlib.sha256(file.read_bytes()).hexdigest() != config.get("sha256"):
        raise InputError(
            f"{file}: its content does not match the digest in config.json, so the folder is "
            "damaged or half-written; save the artifact again"
        )
    try:
        geometry = Geometry.from_dict(config.get("geometry", {}))
    except InputError as error:
        raise InputError(f"{folder / 'config.json'}: {error}") from error
    records = {name: config.get(name) or {} for name in ("config", "provenance")}
    for name, value in records.items():
        if not isinstance(value, dict):
            raise InputError(
                f"{folder / 'config.json'}: {name!r} is no JSON object; save the artifact again"
            )
    origin = Origin(str(config.get("method", "")), str(config.get("signature", "")), **records)
    return Saved(folder, kind, geometry, tensors, origin)


def packed(tensors: Mapping[str, NDArray[Any]], metadata: dict[str, str] | None = None) -> bytes:
    """Arrays as the content of a safetensors file."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, metadata)


def read_tensors(file: Path, fix: str) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; InputError, which says what to do, if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    refuse_pipes(file)
    try:
        return load(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); {fix}") from error
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{file}: is damaged; {fix}") from error


def parsed(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if it is none, RecursionError if it is nested too deeply
    to be looked into."""
    value = json.loads(text)
    level = [value]
    for _ in range(_DEEPEST):
        level = [value for value in level if isinstance(value, dict | list)]
        if not level:
            return value
        items = (value.values() if isinstance(value, dict) else value for value in level)
        level = [item for inside in items for item in inside]
    raise RecursionError(f"is nested more than {_DEEPEST} deep")


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; InputError, which says what to do, if there is no such object.

    Raises `FileNotFoundError` if there is no such file.
    """
    refuse_pipes(file)
    try:
        value = parsed(file.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is damaged; run the same command again") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: is damaged; run the same command again")
    return value


def held(folder: Path, kind: str) -> Path | None:
    """Where a folder, or that of a run, has its artifact of a kind; None if it has none."""
    return next((place for place in (folder, folder / kind) if kind_of(place) == kind), None)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that other readers see either the old content or the new, whole."""
    with writing(path) as file:
        file.write(data)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name when the block ends, whole and on disk.

    After an error in the block all is as it was; that of a full disk gets the file's name.
    InputError if there is a device or a pipe of this name, which a file would take the place of.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path}: is no ordinary file, so it is not replaced; name another file")
    with placed(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-", suffix=path.suffix)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes files private; an artifact is as readable as any other new file.
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check_free(target: Path, kind: str) -> None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target}: is a file; name a folder to save to")
    if (target / "config.json").exists() and kind_of(target) != kind:
        raise InputError(
            f"{target}: holds the config.json of something else ({kind_of(target) or 'a model'}), "
            f"so the {kind} are not saved there; name an empty or new folder"
        )


def _read_config(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise InputError(f"{folder}: holds no config.json; name a folder of saved {kind}")
    config = _json(path)
    if not isinstance(config, dict) or config.get("library") != "headscope":
        raise InputError(f"{path}: was not written by headscope; name a folder of saved {kind}")
    if config.get("kind") != kind:
        raise InputError(f"{path}: holds '{config.get('kind')}', but '{kind}' is needed here")
    if config.get("format") != FORMAT:
        raise InputError(
            f"{path}: has format {config.get('format')!r}, but this version of headscope reads "
            f"format {FORMAT}; install the version that wrote it or save the artifact again"
        )
    return config


def _json(path: Path) -> Any:
    refuse_pipes(path)
    try:
        return parsed(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(
            f"{path}{line}: is not valid JSON; save the artifact again elsewhere"
        ) from error


def model_card(
    kind: str, geometry: Geometry, origin: Origin, place: str = '"path/to/this/folder"'
) -> str:
    """README.md of an artifact: Hugging Face front matter, what it is, how to load it, origin.

    `place` is what `from_pretrained` is called with to load it, as Python.
    """
    title, class_name, content = KINDS[kind]
    model = str(origin.provenance.get("model") or "")
    lines = [*_front(origin, kind), f"# {title}", ""]
    lines += [f"This folder holds {content} of a decoder language model with {geometry}."]
    if model:
        lines += [f"The model is {_code(model)}."]
    if origin.method:
        lines += [f"Made by the method {_code(origin.method)}."]
    lines += [
        "",
        "```python",
        f"from headscope.heads import {class_name}",
        "",
        f"{kind} = {class_name}.from_pretrained({place})",
        "```",
        "",
    ]
    if origin.signature:
        lines += [f"Signature: {_code(origin.signature)}", ""]
    lines += _table("Configuration", origin.config)
    lines += _table("Provenance", origin.provenance)
    return "\n".join(lines)


def folder_card(origin: Origin) -> str:
    """README.md of a repository whose artifacts lie in subfolders, the first of this origin."""
    lines = [*_front(origin), "# Attention heads", ""]
    lines += [
        "The subfolders hold scores, sets or gates; each has a card that says how to load it."
    ]
    return "\n".join([*lines, ""])


def _front(origin: Origin, *tags: str) -> list[str]:
    """The YAML from which the Hub knows the library, the tags and the base model."""
    lines = ["---", "library_name: headscope", "tags:"]
    lines += [f"- {tag}" for tag in ("headscope", "attention-heads", "interpretability", *tags)]
    model = str(origin.provenance.get("model") or "")
    # A model of the Hub has a commit; one without, though its name looks alike, is a folder.
    if _HUB_ID.fullmatch(model) and origin.provenance.get("revision", True):
        # A JSON string is a YAML string as well, whatever it holds.
        lines += [f"base_model: {json.dumps(model)}"]
    return [*lines, "---", ""]


def _table(title: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    rows = [f"| {_cell(key)} | {_code(_text(value))} |" for key, value in values.items()]
    return [f"## {title}", "", "| name | value |", "|---|---|", *rows, ""]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    return f"`{_cell(text)}`".replace("``", "` `")


def _cell(text: str) -> str:
    return str(text).replace("`", "'").replace("|", "\\|").replace("\n", " ")
