"""Declared fields of rows: one meaning in every format, refused or given where they are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.data.rows import ID, Field, language_code, open_rows, read_rows, text_cell
from headscope.errors import InputError

TEXT = Field("text", text_cell("give a text"))
LANGUAGE = Field("language", language_code, "en")
ROWS = [{"text": "one", "language": "de"}, {"text": "two", "language": " fr "}]


def in_every_format(folder: Path, rows: list[dict[str, str]]) -> list[Path]:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows)
    data.to_parquet(folder / "a.parquet")
    data.save_to_disk(str(folder / "dataset"))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    (folder / "a.tsv").write_text("\n".join(lines), "utf-8")
    return [folder / name for name in ("a.parquet", "dataset", "a.jsonl", "a.tsv")]


def test_fields_mean_the_same_in_every_format(tmp_path: Path) -> None:
    for path in in_every_format(tmp_path, ROWS):
        fields, dataset = (TEXT, LANGUAGE, ID), path.is_dir()
        rows, _ = read_rows(path, fields, dataset=dataset)
        assert [(row[TEXT], row[LANGUAGE]) for row in rows] == [("one", "de"), ("two", "fr")]
        assert [row.id for row in rows] == (["2", "3"] if path.suffix == ".tsv" else ["1", "2"])
        with open_rows(path, fields, dataset=dataset) as lazily:
            assert list(lazily) == rows
        assert read_rows(path, fields, 1, dataset=dataset)[0] == rows[:1]


def test_a_missing_column_is_refused_unless_there_is_a_default(tmp_path: Path) -> None:
    for path in in_every_format(tmp_path, [{"text": "one"}]):
        rows, _ = read_rows(path, (TEXT, LANGUAGE), dataset=path.is_dir())
        assert rows[0][LANGUAGE] == "en"
        required = Field("language", language_code)
        with pytest.raises(InputError, match=r"no column 'language'; found: text"):
            read_rows(path, (TEXT, required), dataset=path.is_dir())
