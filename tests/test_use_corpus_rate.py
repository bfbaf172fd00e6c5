"""`use rate` on whole corpora, with a stand-in for the model's part: nothing is lost or changed."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from headscope.errors import InputError
from headscope.heads import store
from headscope.hub import transport
from headscope.results.rate import RatedCorpus
from headscope.studies.use.rate import UseRate, use_rate
from headscope.studies.use.rate import command as use_rate_study
from headscope.use.corpus import steps
from headscope.use.corpus.files import find_files
from headscope.use.corpus.reading import read_records, survey
from headscope.use.corpus.records import ADDED, Columns, Written
from headscope.use.mixing import MixPlan, mix
from use_corpus_helpers import (
    contents,
    documents,
    rate_by_hash,
    rated_records,
    rejects,
    write_jsonl,
)

pytestmark = pytest.mark.usefixtures("loaded")
HEADS = "5.3,4.2"


@pytest.fixture(autouse=True)
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's part is another test's subject."""
    monkeypatch.setattr(steps, "rate_texts", rate_by_hash)


def plan(*data: object, chunk: int = 20, **more: Any) -> UseRate:
    return UseRate(tuple(map(str, data)), HEADS, written=Written(chunk=chunk), **more)


def rated_corpus(config: UseRate, out: Path) -> RatedCorpus:
    result = use_rate(config, out)
    assert isinstance(result, RatedCorpus)
    return result


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_every_record_comes_back_as_it_was_with_its_figures(tmp_path: Path, ending: str) -> None:
    corpus = documents(45)
    data = write_jsonl(tmp_path / f"c{ending}", corpus)
    result = rated_corpus(plan(data), tmp_path / "run")
    rated = rated_records(tmp_path / "run")
    assert [{k: v for k, v in one.items() if k not in ADDED} for one in rated] == corpus
    expected = rate_by_hash(None, [one["text"] for one in corpus], None)
    assert [(one["nll_full"], one["nll_removed"], one["tokens"]) for one in rated] == [
        (one.nll_full, one.nll_removed, one.tokens) for one in expected
    ]
    assert all(one["score"] == one["nll_removed"] - one["nll_full"] for one in rated)
    names = sorted(path.name for path in (tmp_path / "run" / "documents").iterdir())
    assert names == [f"c-00000{number}.jsonl" for number in range(3)]
    assert result.figures.documents == 45 and result.figures.rejected == 0
    assert result.figures.tokens == sum(one["tokens"] for one in rated)
    assert (tmp_path / "run" / "rejects.jsonl").read_bytes() == b""


def test_what_cannot_be_rated_goes_to_the_rejects_with_its_reason(tmp_path: Path) -> None:
    good = json.dumps(documents(1)[0])
    lines = [
        (good, None),
        ("{broken", "not valid JSON"),
        ('{"id": 1}', "no field 'text'"),
        ('{"id": 2, "text": null}', "null"),
        ('{"id": 3, "text": ""}', "empty"),
        ('{"id": 4, "text": 7}', "a number, not a text"),
        ('{"id": 5, "text": ["a b"]}', "a list, not a text"),
        ('{"id": 6, "text": "word"}', "none is predicted"),
        ('{"id": 7, "text": "a NAN b"}', "not finite"),
        ('{"id": 8, "text": "a b", "score": 1}', "'score' already"),
        ("[1, 2]", "no JSON object"),
        ('{"id": 9, "text": "a b", "x": NaN}', "NaN is no number"),
        ('{"id": 9, "text": "a b", "text": "c"}', "the key 'text' is there twice"),
        ("[" * 100_000, "not valid JSON"),
        ('{"id": 11, "text": "a b"}', None),
    ]
    data = tmp_path / "c.jsonl"
    data.write_bytes("\n\n".join(line for line, _ in lines).encode() + b'\n{"text": "a \xff"}\n')
    result = rated_corpus(plan(data, chunk=4), tmp_path / "run")
    out = rejects(tmp_path / "run")
    wrong = [(2 * at + 1, line, why) for at, (line, why) in enumerate(lines) if why is not None]
    assert [one["line"] for one in out] == [number for number, _, _ in wrong] + [30]
    for one, (_, line, why) in zip(out, wrong, strict=False):
        assert why in one["reason"] and one["file"] == str(data)
        if "raw" in one:
            assert one["raw"] == line
        else:
            assert one["record"] == json.loads(line)
    assert "UTF-8 at byte 13" in out[-1]["reason"] and out[-1]["raw"] == '{"text": "a \\xff"}'
    assert [one["id"] for one in rated_records(tmp_path / "run")] == ["doc-0", 11]
    assert (result.figures.documents, result.figures.rejected) == (2, 14)
    assert sum(result.figures.reasons.values()) == 14


def test_a_corpus_of_many_places(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a" / "x.jsonl", documents(3))
    write_jsonl(tmp_path / "a" / "deep" / "x.jsonl.gz", [{"text": "no id here", "a": 1}])
    (tmp_path / "a" / "README.md").write_text("no data")
    pq.write_table(pa.table({"text": ["drei vier"], "at": [1]}), tmp_path / "t.parquet")
    one = plan(tmp_path / "a", f"fr={tmp_path / '*.parquet'}")
    result = rated_corpus(one, tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "documents").iterdir())
    assert names == ["t-000000.jsonl", "x-000000.jsonl", "x.2-000000.jsonl"]
    by_file = {name[:-13]: rated_records(tmp_path / "run") for name in names}
    assert len(by_file) == 3
    records = {one["id"]: one for one in rated_records(tmp_path / "run")}
    assert records["t/1"]["language"] == "fr" and records["t/1"]["at"] == 1
    assert "language" not in records["x/1"] and records["x/1"]["a"] == 1
    assert set(result.languages) == {"de", "en", "tr", "fr", ""}


def test_halves_of_characters_are_kept_and_shown_as_such(tmp_path: Path) -> None:
    record = {"text": "a b", "id": "\ud800", "language": "x\udfff", "more": "\ud801"}
    data = tmp_path / "c.jsonl"
    data.write_text(json.dumps(record))
    result = rated_corpus(plan(data), tmp_path / "run")
    (found,) = rated_records(tmp_path / "run")
    assert {name: found[name] for name in record} == record
    assert list(result.languages) == ["x?"]


def test_the_summary_agrees_with_the_documents(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", documents(150))
    use_rate(plan(data), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_bytes())
    rated = rated_records(tmp_path / "run")
    assert sum(one["documents"] for one in summary["languages"].values()) == 150
    for code, one in summary["languages"].items():
        some = [record for record in rated if record["language"] == code]
        scores = [record["score"] for record in some]
        assert one["documents"] == len(some)
        assert one["tokens"] == sum(record["tokens"] for record in some)
        assert one["mean"] == pytest.approx(np.mean(scores))
        assert one["deviation"] == pytest.approx(np.std(scores))
        error = 1.96 * np.std(scores) / len(scores) ** 0.5
        assert (one["low"], one["high"]) == pytest.approx(
            (one["mean"] - error, one["mean"] + error), rel=1e-3
        )
        best = sorted(some, key=lambda record: -record["score"])[:20]
        assert [top["id"] for top in one["top"]] == [record["id"] for record in best]
        assert one["top"][0]["text"] == best[0]["text"][:400]
        edges = np.array(one["histogram"]["edges"])
        assert 2 <= len(edges) <= 61
        assert one["histogram"]["counts"] == np.histogram(scores, edges)[0].tolist()


def test_a_finished_run_comes_back_and_another_configuration_is_refused(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", documents(30))
    first = use_rate(plan(data), tmp_path / "run")
    before = contents(tmp_path / "run")
    assert use_rate(plan(data), tmp_path / "run") == first
    for other in (
        plan(data, chunk=10),
        plan(data, limit=7),
        plan(f"de={data}"),
        replace(plan(data), heads="5.3"),
        replace(plan(data), written=Written("jsonl", "gzip", 20)),
    ):
        with pytest.raises(InputError, match="another configuration"):
            use_rate(other, tmp_path / "run")
    write_jsonl(data, [*documents(29), *documents(1, offset=99)])
    with pytest.raises(InputError, match=r"another configuration.*inputs\.data/c"):
        use_rate(plan(data), tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_a_damaged_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl.gz", documents(400))
    whole = data.read_bytes()
    data.write_bytes(whole[:-100])
    with pytest.raises(InputError, match=r"c\.jsonl\.gz cannot be read to its end"):
        use_rate(plan(data), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    data.write_bytes(whole)
    assert rated_corpus(plan(data), tmp_path / "run").figures.documents == 400


def test_a_disk_that_fills_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", documents(100))
    use_rate(plan(data), tmp_path / "whole")
    room = [4]
    write = store.write_bytes

    def full(path: Path, content: bytes) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    arguments = ("use", "rate", "--data", data, "--heads", HEADS, "--chunk", 20)
    arguments += ("--out", tmp_path / "run", "--json")
    with monkeypatch.context() as patched:
        patched.setattr("headscope.use.corpus.plan.write_bytes", full)
        said = command(*arguments)
    assert said.code == 2 and said.out == ""
    assert said.err.count("\n") == 1 and "No space left" in said.err and "c-000002" in said.err
    kept = {path.name for path in (tmp_path / "run" / "documents").iterdir()}
    assert kept == {"c-000000.jsonl", "c-000001.jsonl"}
    assert command(*arguments).code == 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_files_that_were_tampered_with_are_made_again(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", [*documents(59), {"text": ""}])
    run = tmp_path / "run"
    use_rate(plan(data), run)
    whole = contents(run)
    for name in ("DONE.json", "documents/c-000001.jsonl", "parts/chunks/c-000002.jsonl"):
        (run / name).unlink()
    use_rate(plan(data), run)
    assert contents(run) == whole
    for name, damaged in (
        ("documents/c-000000.jsonl", lambda content: content + b"x"),
        ("parts/chunks/c-000002.jsonl", lambda content: content[:-9]),
    ):
        (run / "DONE.json").unlink()
        (run / name).write_bytes(damaged((run / name).read_bytes()))
        with pytest.raises(InputError, match="not as it was written"):
            use_rate(plan(data), run)
        use_rate(plan(data), run)
        assert contents(run) == whole


@pytest.mark.parametrize("table", [False, True])
def test_a_number_that_is_none_names_no_record(tmp_path: Path, table: bool) -> None:
    if table:
        data = tmp_path / "c.parquet"
        pq.write_table(pa.table({"text": ["a b"], "key": [float("nan")]}), data)
    else:
        data = tmp_path / "c.jsonl"
        data.write_text('{"text": "a b", "key": 1e999}')
    use_rate(plan(data, columns=Columns(id="key")), tmp_path / "run")
    (record,) = rated_records(tmp_path / "run")
    assert record["id"] == "c/1"


def test_a_corpus_is_read_once_unless_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", documents(30))
    first = use_rate(plan(data), tmp_path / "run")

    def never(*arguments: Any) -> Any:
        raise AssertionError("the corpus was read again")

    with monkeypatch.context() as patched:
        patched.setattr("headscope.use.corpus.reading.open_plain", never)
        assert use_rate(plan(data), tmp_path / "run") == first
        with pytest.raises(AssertionError, match="read again"):
            use_rate(plan(data, limit=2), tmp_path / "run")
    known = tmp_path / "run" / "parts" / "survey.json"
    for damaged in ("{", known.read_text().replace(": 30}", ': "30"}')):
        known.write_text(damaged)
        assert use_rate(plan(data), tmp_path / "run") == first
    write_jsonl(data, documents(31))
    with pytest.raises(InputError, match="another configuration"):
        use_rate(plan(data), tmp_path / "run")


@pytest.mark.parametrize(("compression", "ending"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_compressed_output(tmp_path: Path, compression: Any, ending: str) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", documents(30))
    use_rate(plan(data), tmp_path / "plain")
    packed = replace(plan(data), written=Written("jsonl", compression, 20))
    use_rate(packed, tmp_path / "packed")
    unpack = {".gz": gzip.decompress, ".zst": zstandard.decompress}[ending]
    for number in range(2):
        name = f"documents/c-00000{number}.jsonl"
        found = unpack((tmp_path / "packed" / f"{name}{ending}").read_bytes())
        assert found == (tmp_path / "plain" / name).read_bytes()


def test_limits_count_the_records_of_each_file(tmp_path: Path) -> None:
    one = write_jsonl(tmp_path / "a.jsonl", documents(30))
    other = write_jsonl(tmp_path / "b.jsonl", documents(5))
    result = rated_corpus(plan(one, other, chunk=4, limit=9), tmp_path / "run")
    assert result.figures.documents == 9 + 5
    with one.open("a") as file:
        file.write("what stands behind the limit does not count")
    assert use_rate(plan(one, other, chunk=4, limit=9), tmp_path / "run") == result
    ids = [record["id"] for record in rated_records(tmp_path / "run")]
    assert ids == [f"doc-{n}" for n in range(9)] + [f"doc-{n}" for n in range(5)]


def unfinished(run: Path, chunk: str) -> None:
    """Make a run one that was killed before one of its chunks."""
    for name in ("DONE.json", "result.json", f"parts/chunks/{chunk}.jsonl"):
        (run / name).unlink()


def pack(path: Path, records: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        table = pa.table({"text": [one["text"] for one in records]})
        pq.write_table(table, path, row_group_size=7, compression="none")
        return path
    return write_jsonl(path, records)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_a_run_is_of_one_corpus(tmp_path: Path, ending: str) -> None:
    records = [{"text": f"eins zwei {number:03d}"} for number in range(50)]
    data, out = pack(tmp_path / f"c{ending}", records), tmp_path / "run"
    first = rated_corpus(plan(data), out)
    whole = contents(out)
    about = data.stat()
    unfinished(out, "c-000001")
    changed = [{"text": f"vier zwei {number:03d}"} for number in range(50)]
    pack(data, changed)
    if ending in (".jsonl", ".parquet"):
        assert data.stat().st_size == about.st_size
    os.utime(data, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(InputError, match="another configuration"):
        use_rate(plan(data), out)
    # Where size, times and number lie, the digests of what was read do not.
    survey = json.loads((out / "parts" / "survey.json").read_bytes())
    state = data.stat()
    stamp = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    survey[str(data)]["stamp"][:4] = map(str, stamp)
    (out / "parts" / "survey.json").write_text(json.dumps(survey))
    with pytest.raises(InputError, match="changed while it was rated"):
        use_rate(plan(data), out)
    # A copy elsewhere is the same corpus.
    (tmp_path / "elsewhere").mkdir()
    copy = pack(tmp_path / "elsewhere" / data.name, records)
    again = rated_corpus(plan(copy), out)
    assert again.figures.documents == first.figures.documents == 50
    assert contents(out) == whole


def test_empty_files_are_counted(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", documents(3))
    (tmp_path / "in" / "b.jsonl").write_bytes(b"")
    (tmp_path / "in" / "c.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "in" / "d.jsonl").write_bytes(b"\n \n\r\n")
    pq.write_table(pa.table({"other": pa.array([], pa.string())}), tmp_path / "in" / "e.parquet")
    (tmp_path / "in" / "f.parquet").write_bytes(b"")
    (tmp_path / "in" / "g.jsonl.zst").write_bytes(b"")
    result = rated_corpus(plan(tmp_path / "in"), tmp_path / "run")
    assert {name: file["records"] for name, file in result.files.items()} == {
        "a": 3, "b": 0, "c": 0, "d": 0, "e": 0, "f": 0, "g": 0
    }  # fmt: skip
    shown = use_rate_study.show(result, tmp_path / "run")
    (said,) = [caution for caution in shown.cautions if "No records" in caution]
    assert "6 of 7" in said and "b.jsonl" in said
    assert result.figures.documents == 3
    (tmp_path / "in" / "a.jsonl").unlink()
    with pytest.raises(InputError, match="holds no records"):
        use_rate(plan(tmp_path / "in"), tmp_path / "other")


def test_control_characters_and_long_lines_are_rejected(tmp_path: Path) -> None:
    good = ["eins zwei\r", "drei\r\n vier\t\f", "f\u00fcnf sechs\u202e\x85"]
    texts = [*good, "a b\0", "a\x1b b", "a b\x7f", "a b\x92", "a \ud800b", "\r"]
    lines = "".join(f"{json.dumps({'text': text, 'language': 'de' + end})}\n"
                    for text, end in zip(texts, ["\r", *[""] * 8], strict=True))  # fmt: skip
    long = b'{"text": "' + b"a b " * ((1 << 24) + 9) + b'"}\n'
    data = tmp_path / "c.jsonl.gz"
    data.write_bytes(gzip.compress(lines.encode() + long + b'{"text": "zuletzt kam"}\n', 1))
    result = rated_corpus(plan(data), tmp_path / "run")
    rated = rated_records(tmp_path / "run")
    assert [one["text"] for one in rated] == [*good, "zuletzt kam"]
    clean = ["eins zwei", *good[1:], "zuletzt kam"]
    expected = rate_by_hash(None, clean, None)
    assert [one["nll_full"] for one in rated] == [one.nll_full for one in expected]
    assert [one["reason"].partition(":")[0] for one in rejects(tmp_path / "run")] == [
        *["its 'text' holds a control character"] * 4,
        "its 'text' holds half of a surrogate pair, which is no character",
        "its 'text' is empty",
        "it is longer than 64 MiB",
    ]
    assert [one["line"] for one in rejects(tmp_path / "run")] == list(range(4, 11))
    assert set(result.languages) == {"de", ""}


# ---- tables: Parquet files and datasets ----------------------------------------------------------
def rate(out: Path, *data: object, format: Any = "jsonl", **more: Any) -> RatedCorpus:
    """Rate in chunks of 10."""
    return rated_corpus(replace(plan(*data, **more), written=Written(format, chunk=10)), out)


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


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("limit", [None, 1, 9, 50])
@pytest.mark.parametrize("group", [3, 7, 100])
@pytest.mark.parametrize("dataset", [False, True])
def test_every_row_of_a_table_has_one_reader(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tasks: int,
    limit: int | None,
    group: int,
    dataset: bool,
) -> None:
    monkeypatch.setattr("headscope.use.corpus.reading._ROWS", 4)
    table = pa.table({"text": [f"eins {number}" for number in range(50)]})
    place = tmp_path / ("c" if dataset else "c.parquet")
    if dataset:
        datasets.Dataset(table).save_to_disk(str(place))
    else:
        pq.write_table(table, place, row_group_size=group)
    files = survey(find_files([str(place)]), Columns(), limit)
    for chunk in (1, 5, 20):
        for left_out in ((), (0,), (1, 2)):
            whole = range(min(50, limit or 50))
            read: list[int] = []
            for rank in range(tasks):

                def wanted(place: int, rank: int = rank) -> bool:
                    number = place // chunk  # noqa: B023 (called before the next chunk)
                    return number % tasks == rank and number not in left_out  # noqa: B023

                for record in read_records(files[0], wanted):
                    assert record.field("text") == f"eins {record.place}"
                    read.append(record.place)
            assert sorted(read) == [at for at in whole if at // chunk not in left_out]


def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pa.table([["a b"], [1.0], [2.0]], names=["text", "score", "score"])
    pq.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(InputError, match="several columns 'score'"):
        rate(tmp_path / "run", tmp_path / "c.parquet")
    with pytest.raises(InputError, match="several columns 'score'"):
        mix([tmp_path / "c.parquet"], tmp_path / "out", MixPlan(language_column=None))


def test_a_row_that_python_cannot_hold_is_rejected(tmp_path: Path) -> None:
    at = pa.array([0, 1 << 60, 5], pa.timestamp("us"))
    pq.write_table(pa.table({"text": ["a b", "c d", "e f"], "at": at}), tmp_path / "c.parquet")
    result = rate(tmp_path / "run", tmp_path / "c.parquet")
    assert result.figures.documents == 2
    (reject,) = rejects(tmp_path / "run")
    assert reject["line"] == 2 and "cannot be read" in reject["reason"]


def test_a_mixed_corpus_is_refused_as_parquet_before_anything_is_written(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "c.jsonl", [{"text": "a b", "x": 1}, {"text": "c d", "x": "1"}])
    with pytest.raises(InputError, match=r"c\.jsonl: 'x' is a text in line 2 but a number"):
        rate(tmp_path / "run", data, format="parquet")
    assert not (tmp_path / "run").exists()
    rate(tmp_path / "run", data)
    assert [one["x"] for one in rated_records(tmp_path / "run")] == [1, "1"]


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


def test_kills_at_any_point_change_no_file(tmp_path: Path) -> None:
    records = documents(300)
    for at in range(0, 300, 9):
        records[at]["text"] = "NAN"
    data = write_jsonl(tmp_path / "c.jsonl.gz", records)
    script = Path(__file__).with_name("corpus_kill_script.py")
    ended = subprocess.run(
        [sys.executable, script, data, tmp_path, "3"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 5
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert len(contents(tmp_path / "whole")) == 16
    assert not list((tmp_path / "killed").rglob(".tmp-*"))
