"""The columns of a Parquet file that hold what records of JSON Lines hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headscope.data.extras import need
from headscope.errors import InputError

_WORDS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
}
_EXACT = 1 << 53  # up to here every whole number is a double


@dataclass
class _Type:
    """What was seen at one place of the records: nothing but null as long as ``kind`` is None."""

    kind: str | None = None
    line: int = 0
    large: int = 0
    items: _Type | None = None
    fields: dict[str, _Type] = field(default_factory=dict)


@dataclass
class ColumnTypes:
    """Collects the types of records; a field that is missing somewhere is null there."""

    path: str
    _top: _Type = field(default_factory=lambda: _Type("dict"))

    def add(self, value: Mapping[str, Any], line: int) -> None:
        """Take in a record; InputError if it does not fit together with those before it."""
        self._add(self._top, value, line, "")

    def schema(self) -> Any:
        """The columns as an Arrow schema."""
        pa = need("pyarrow", "writing Parquet", "corpus")
        return pa.schema([(name, self._arrow(one, name)) for name, one in self._top.fields.items()])

    def _add(self, seen: _Type, value: Any, line: int, name: str) -> None:
        if value is None:
            return
        kind = type(value).__name__
        if seen.kind is None:
            seen.kind, seen.line = kind, line
        elif seen.kind != kind:
            if {seen.kind, kind} != {"int", "float"}:
                raise self._unfit(
                    f"{name!r} is {_WORDS[kind]} in line {line} but {_WORDS[seen.kind]} in line "
                    f"{seen.line}"
                )
            seen.kind = "float"
        if kind == "int":
            if not -(1 << 63) <= value < 1 << 63:
                raise self._unfit(f"{name!r} is too large a number in line {line}")
            seen.large = max(seen.large, abs(value))
        if seen.kind == "float" and seen.large > _EXACT:
            raise self._unfit(
                f"{name!r} mixes fractions with whole numbers too large for them (line {line})"
            )
        if kind == "str" and not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise self._unfit(f"{name!r} is not valid Unicode in line {line}") from None
        if kind == "list":
            seen.items = seen.items or _Type()
            for one in value:
                self._add(seen.items, one, line, f"{name}[]")
        if kind == "dict":
            for key, one in value.items():
                inner = seen.fields.setdefault(key, _Type())
                self._add(inner, one, line, f"{name}.{key}" if name else key)

    def _arrow(self, seen: _Type, name: str) -> Any:
        import pyarrow as pa

        plain = {
            None: pa.null(),
            "bool": pa.bool_(),
            "int": pa.int64(),
            "float": pa.float64(),
            "str": pa.string(),
        }
        if seen.kind == "list":
            return pa.list_(self._arrow(seen.items or _Type(), f"{name}[]"))
        if seen.kind != "dict":
            return plain[seen.kind]
        if not seen.fields:
            raise self._unfit(f"{name!r} is an object without fields in line {seen.line}")
        return pa.struct(
            [(key, self._arrow(one, f"{name}.{key}")) for key, one in seen.fields.items()]
        )

    def _unfit(self, what: str) -> InputError:
        return InputError(
            f"{self.path}: {what}, which one column of a Parquet file cannot hold; write JSON "
            "Lines (--format jsonl), which keep each record as it is"
        )
