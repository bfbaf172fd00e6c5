"""One record of a corpus: as it was read, whether it can be rated, and as it is written.

Nothing of a record may change on its way. A line of JSON Lines is kept as text and the new fields
are put at its end, so that large numbers, the order of fields and escapes stay as they are; a row
of a table stays a row.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.data.tables import descend
from headscope.settings import Option, Settings
from headscope.use.corpus.files import CorpusFile

if TYPE_CHECKING:
    from headscope.use.rating import Rated

#: The fields that rating adds; a record that has one already is not overwritten but rejected.
ADDED = ("nll_full", "nll_removed", "score", "tokens")
_MISSING = object()


@dataclass(frozen=True)
class Columns(Settings):
    """Which fields hold what; a dot names a field within a field (``meta.text``)."""

    text: options.TextColumn = "text"
    language: Annotated[
        str,
        Option(
            "Likewise; without it language, if there.",
            flag="--language-column",
            metavar="COLUMN",
            default=None,
        ),
    ] = "language"
    id: Annotated[
        str,
        Option("What names a record; without it id.", flag="--id-column", metavar="COLUMN"),
    ] = "id"


@dataclass(frozen=True)
class Record:
    """A record of a corpus.

    Attributes:
        file: where it was read.
        line: its line or row there, from 1.
        place: how many records stand before it in its file.
        value: its fields; None if the line holds none.
        raw: its line, of JSON Lines; None for a row of a table.
        row: a table of this one row; None for a line.
        problem: why it cannot be rated, if that is known from reading alone.
    """

    file: CorpusFile
    line: int
    place: int
    value: Mapping[str, Any] | None
    raw: str | None = None
    row: Any = None
    problem: str | None = None

    def text(self, columns: Columns) -> str:
        """The text to be rated."""
        return str(self.field(columns.text))

    def field(self, column: str) -> Any:
        """A field, or None if it is not there."""
        found = _find(self.value, column)
        return None if found is _MISSING else found

    def identity(self, columns: Columns) -> str | int | float:
        """What names the record: its id, else its file and line."""
        value = self.field(columns.id)
        if isinstance(value, str) and value:
            return valid_unicode(value)
        # JSON has no infinity, which 1e999 is read as, and tables hold NaN where there is no id.
        number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        return value if number else f"{self.file.name}/{self.line}"

    def language(self, columns: Columns) -> str:
        """Its language, else that of its file, else the empty text."""
        found = _find(self.value, columns.language)
        if found is _MISSING:
            return self.file.language or ""
        return valid_unicode(found) if isinstance(found, str) else ""

    def why_not(self, columns: Columns) -> str | None:
        """Why the record cannot be rated; None if it can be handed to the model."""
        if self.problem is not None:
            return self.problem
        if not isinstance(self.value, Mapping):
            return "it is no JSON object"
        for name in ADDED:
            if name in self.value:
                return f"it has a field {name!r} already; rename it"
        text = _find(self.value, columns.text)
        if text is _MISSING:
            return f"it has no field {columns.text!r}"
        if text is None:
            return f"its {columns.text!r} is null"
        if not isinstance(text, str):
            return f"its {columns.text!r} is {_kind(text)}, not a text"
        return f"its {columns.text!r} is empty" if not text else None

    def missing(self, columns: Columns) -> dict[str, Any]:
        """Fields that the output has beside the record's own: an id, the language of the file."""
        there = self.value or {}
        added = {} if "id" in there else {"id": self.identity(columns)}
        if self.file.language and _find(there, columns.language) is _MISSING:
            added[columns.language] = self.file.language
        return added

    def rated(self, rated: Rated, columns: Columns) -> str:
        """The record and its rating as a line of JSON."""
        added = {**self.missing(columns), **{name: getattr(rated, name) for name in ADDED}}
        inside = self._as_json().rstrip()[:-1].rstrip()
        comma = "" if inside.endswith("{") else ", "
        return inside + comma + json.dumps(added, ensure_ascii=False, allow_nan=False)[1:]

    def rejected(self, reason: str) -> str:
        """The record, or its line where that is no record, with the reason, as a line of JSON."""
        about = {"file": self.file.path, "line": self.line, "reason": reason}
        if self.value is None:
            return json.dumps({**about, "raw": self.raw}, ensure_ascii=True)
        return f'{json.dumps(about)[:-1]}, "record": {self._as_json()}}}'

    def _as_json(self) -> str:
        if self.raw is not None:
            # Line ends that other readers know may stand between fields, but nowhere else.
            return self.raw.replace("\r", " ")
        return json.dumps(_plain(self.value), ensure_ascii=False, allow_nan=False)


def parse_line(file: CorpusFile, line: int, place: int, data: bytes) -> Record:
    """The record on a line of JSON Lines; one with a problem where it holds none."""
    value, problem = None, None
    raw = data.decode("utf-8", "backslashreplace")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        if not isinstance(value, dict):
            value, problem = None, "it is no JSON object"
    except UnicodeDecodeError as error:
        problem = f"it is not valid UTF-8 at byte {error.start + 1}"
    except (ValueError, RecursionError) as error:
        # Beside ill-formed JSON: nested too deeply, or a number of too many digits.
        said = getattr(error, "msg", str(error).partition(";")[0])
        at = f" at character {error.pos + 1}" if hasattr(error, "pos") else ""
        problem = f"it is not valid JSON: {said}{at}"
    return Record(file, line, place, value, raw, problem=problem)


def _find(value: Mapping[str, Any] | None, column: str) -> Any:
    try:
        return descend(value, column)
    except KeyError:
        return _MISSING


def valid_unicode(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return kinds.get(type(value), "an object" if isinstance(value, Mapping) else "something else")


def _plain(value: Any) -> Any:
    """A value of a table as JSON has it: times as ISO 8601, exact decimals as text, bytes as
    base64; NaN and infinity, which JSON lacks, as null."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, Decimal) else repr(value)
