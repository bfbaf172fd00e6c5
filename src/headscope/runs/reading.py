"""What is read of a finished run folder; whatever is missing or damaged is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from headscope.errors import InputError, refuse_pipes
from headscope.heads.store import check_format, parsed, read_json, read_tensors
from headscope.runs.codec import Result, decode
from headscope.runs.plain import file_digest

AnyResult = TypeVar("AnyResult", bound=Result)

#: What a run tells of its result before it ends.
SO_FAR = "so-far.json"
#: What drawing an entry of another shape or size than expected ends in.
_MISSHAPEN = (TypeError, ValueError, AttributeError, ArithmeticError, IndexError, StopIteration)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run; InputError if it is missing or damaged."""
    try:
        return read_json(path)
    except FileNotFoundError as error:
        raise InputError(
            f"{path.parent}: holds no {path.name}, so it is not a finished run; "
            "name the folder of a finished run"
        ) from error


def read_result(path: Path) -> dict[str, Any]:
    """The result of a finished run; InputError if it is not the one the run was finished with, or
    of an older version."""
    done = read_object(path / "DONE.json")
    check_format(path)
    file = path / "result.json"
    if file.is_file() and done.get("result") != file_digest(file):
        raise InputError(
            f"{file}: is not the result that DONE.json stands for; "
            "delete DONE.json and run the same command again"
        )
    return read_object(file)


def result_of(path: Path, kind: type[AnyResult], what: str) -> AnyResult:
    """The typed result of a finished run; `what` names it in errors, such as `an atlas`.

    InputError if it is missing, damaged, or of another kind.
    """
    value = read_result(path)
    with naming(path / "result.json", what):
        result: AnyResult = decode(kind, value)
    return result


def result_so_far(path: Path, kind: type[AnyResult], what: str) -> AnyResult | None:
    """What a run that has not ended has told of its result; None if nothing.

    InputError if it is damaged, or of an older version.
    """
    file = path / SO_FAR
    if not file.is_file():
        return None
    with naming(file, what):
        told: AnyResult = decode(kind, read_object(file))
    return told


def read_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a JSON Lines file of a run with their line numbers from 1.

    Nothing if there is no such file; InputError naming the line that is no JSON object.
    """
    if not path.exists():
        return
    refuse_pipes(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = parsed(line)
            except (ValueError, RecursionError) as error:
                raise damaged_line(path, number) from error
            if not isinstance(row, dict):
                raise damaged_line(path, number)
            yield number, row


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a safetensors file of a run; InputError if one is missing or the file damaged."""
    arrays = read_tensors(path, "run the same command again")
    if not set(names) <= arrays.keys():
        raise InputError(f"{path}: is damaged; run the same command again")
    return {name: arrays[name] for name in names}


def mixed_up(path: Path) -> InputError:
    """The error for a run folder whose files do not fit together."""
    return InputError(
        f"{path}: its files are not of one run; run the same command again into a new folder"
    )


def damaged_line(path: Path, number: int) -> InputError:
    """The error for a line that cannot be understood."""
    return InputError(f"{path}, line {number}: is damaged; run the same command again")


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Turn a missing or misshapen entry into an InputError that names the file.

    `what` names the kind of run, such as `an atlas`.
    """
    try:
        yield
    except KeyError as error:
        raise InputError(
            f"{path}: holds no {error}, which the report of {what} needs; "
            "run the same command again with this version of headscope"
        ) from error
    except _MISSHAPEN as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: is not the result of {what} ({str(error) or 'an entry is missing'}); "
            "run the same command again"
        ) from error
