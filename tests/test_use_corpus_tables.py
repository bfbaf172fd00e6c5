"""`use rate` from and to tables: Parquet files and datasets, with a stand-in for the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headscope.errors import InputError
from headscope.hub import transport
from headscope.studies.use.rate import UseRate, use_rate
from headscope.use.corpus import steps
from headscope.use.corpus.records import ADDED
from headscope.use.corpus.writing import Written
from use_corpus_helpers import documents, rate_by_hash, rated_records, rejects, write_jsonl

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture(autouse=True)
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's part is another test's subject."""
    monkeypatch.setattr(steps, "rate_texts", rate_by_hash)


def rate(out: Path, *data: object, format: Any = "jsonl", **more: Any) -> dict[str, Any]:
    """Rate in chunks of 10."""
    places = tuple(map(str, data))
    return use_rate(UseRate(places, "5.3", written=Written(format, chunk=10), **more), out)


def flat(number: int) -> list[dict[str, Any]]:
    """Records that fit into columns."""
    some = [{k: v for k, v in one.items() if k not in ("big", "meta")} for one in documents(number)]
    return [
        {**one, "at": at, "text": None if at == 4 else one["text"]} for at, one in enumerate(some)
    ]


def rows(out: Path) -> list[dict[str, Any]]:
    """All rows of a run's Parquet files."""
    files = sorted((out / "documents").iterdir())
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_formats_agree(tmp_path: Path) -> None:
    records = flat(25)
    lines = write_jsonl(tmp_path / "c.jsonl", records)
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "c.parquet", row_group_size=8)
    rate(tmp_path / "ll", lines)
    expected = rated_records(tmp_path / "ll")
    assert len(expected) == 24 and set(expected[0]) == {*records[0], *ADDED}
    rate(tmp_path / "tl", tmp_path / "c.parquet")
    assert rated_records(tmp_path / "tl") == expected
    for name, data in (("lt", lines), ("tt", tmp_path / "c.parquet")):
        result = rate(tmp_path / name, data, format="parquet")
        assert rows(tmp_path / name) == expected
        assert (result.figures.documents, result.figures.rejected) == (24, 1)
        (wrong,) = rejects(tmp_path / name)
        assert wrong["line"] == 5 and wrong["record"]["at"] == 4


def test_a_mixed_corpus_is_refused_as_parquet_before_anything_is_written(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", [{"text": "a b", "x": 1}, {"text": "c d", "x": "1"}])
    with pytest.raises(InputError, match=r"c\.jsonl: 'x' is a text in line 2 but a number"):
        rate(tmp_path / "run", data, format="parquet")
    assert not (tmp_path / "run").exists()
    rate(tmp_path / "run", data)
    assert [one["x"] for one in rated_records(tmp_path / "run")] == [1, "1"]


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"c\.parquet is not a readable Parquet file"):
        rate(tmp_path / "run", tmp_path / "c.parquet")


def test_a_dataset_in_a_folder(tmp_path: Path) -> None:
    import datasets

    records = flat(25)
    whole = datasets.Dataset.from_list(records)
    whole.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"dev": whole, "test": whole}).save_to_disk(tmp_path / "two")
    lines = write_jsonl(tmp_path / "one.jsonl", records)
    rate(tmp_path / "lines", lines)
    rate(tmp_path / "run", tmp_path / "one")
    assert rated_records(tmp_path / "run") == rated_records(tmp_path / "lines")
    with pytest.raises(InputError, match="has several splits; name one of dev, test"):
        rate(tmp_path / "split", tmp_path / "two")
    with pytest.raises(InputError, match="is one table and has no split 'test'"):
        rate(tmp_path / "other", tmp_path / "one", split="test")
    rate(tmp_path / "split", tmp_path / "two", split="test", format="parquet")
    assert rows(tmp_path / "split") == rated_records(tmp_path / "lines")


def test_a_hub_dataset_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is handed to `datasets` with its configuration; what it loads is rated."""
    import datasets

    whole = datasets.Dataset.from_list(flat(12))
    asked: list[tuple[Any, ...]] = []

    def load(*arguments: Any, **_: Any) -> Any:
        asked.append(arguments)
        return datasets.DatasetDict({"train": whole})

    monkeypatch.setattr(datasets, "load_dataset", load)
    result = rate(tmp_path / "run", "de=someone/texts:small")
    assert set(asked) == {("someone/texts", "small")}
    assert result.figures.documents == 11
    names = [path.name for path in sorted((tmp_path / "run" / "documents").iterdir())]
    assert names == ["texts_small-000000.jsonl", "texts_small-000001.jsonl"]

    def gone(*_: Any, **__: Any) -> Any:
        raise transport()("the line is dead")

    monkeypatch.setattr(datasets, "load_dataset", gone)
    with pytest.raises(InputError, match=r"no dataset of that name can be loaded \(the line is"):
        rate(tmp_path / "again", "someone/texts")
