"""Corpora: where they lie, and the command that rates them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import zstandard

from conftest import json_of
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.pocket.sample import sample_documents
from headscope.use.corpus.files import find_files, numbered_lines, open_plain
from headscope.use.corpus.reading import read_records, survey
from headscope.use.corpus.records import Columns
from use_corpus_helpers import documents, rated_records, write_jsonl

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


def texts(*data: object) -> list[Any]:
    files = survey(find_files(list(map(str, data))), Columns())
    return [one.field("text") for file in files for one in read_records(file, lambda place: True)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "in" / "b.jsonl.zst", [{"text": "b"}])
    write_jsonl(tmp_path / "in" / "a.jsonl.gz", [{"text": "a"}])
    write_jsonl(tmp_path / "in" / "sub" / "c.json", [{"text": "c"}])
    pq.write_table(pa.table({"text": ["d"]}), tmp_path / "in" / "sub" / "d.parquet")
    (tmp_path / "in" / ".hidden.jsonl").write_text("{")
    (tmp_path / "in" / "notes.txt").write_text("no data")
    return tmp_path / "in"


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{web.server_address[1]}"
    web.shutdown()
    web.server_close()


def test_folders_patterns_and_addresses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts(folder) == ["a", "b", "c", "d"]
    assert texts(f"{folder}/*.jsonl.*") == ["a", "b"]
    assert texts(f"file://{folder}/sub") == ["c", "d"]
    assert texts(f"{folder}/**/c.json", folder / "a.jsonl.gz") == ["c", "a"]
    monkeypatch.chdir(folder)
    assert texts("a.jsonl.gz", "sub/d.parquet") == ["a", "d"]


def test_other_file_systems(folder: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in folder.rglob("[a-d].*"):
        memory.pipe(f"/headscope-corpus/{path.relative_to(folder)}", path.read_bytes())
    try:
        assert texts("memory://headscope-corpus") == ["a", "b", "c", "d"]
        assert texts("memory://headscope-corpus/sub/*.parquet") == ["d"]
        with pytest.raises(InputError, match=r"memory://headscope-corpus/x\.jsonl does not exist"):
            texts("memory://headscope-corpus/x.jsonl")
    finally:
        memory.rm("/headscope-corpus", recursive=True)


def test_a_web_server(server: str) -> None:
    assert texts(f"{server}/a.jsonl.gz", f"{server}/b.jsonl.zst") == ["a", "b"]
    assert texts(f"{server}/sub/") in (["c"], ["c", "d"])


def test_names_are_safe_and_never_shared(tmp_path: Path) -> None:
    for name in ("a/x y.jsonl", "b/x y.jsonl.gz", "c/x_y.parquet"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    names = [one.name for one in find_files([str(tmp_path)])]
    assert names == ["x_y", "x_y.2", "x_y.3"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no corpus is given"),
        (["{folder}/none.jsonl"], "does not exist"),
        (["{folder}/none.jsonl.zst"], "does not exist"),
        (["{folder}/pipe.jsonl"], "is no ordinary file"),
        (["{folder}/*.doc"], "holds no files of records; name JSON"),
        (["{folder}/notes.txt"], "holds no records by its name"),
        (["{folder}/a.jsonl.gz", "{folder}/*.gz"], "named twice"),
        (["xx9={folder}/a.jsonl.gz"], "unknown language code"),
        (["nosuch://there/a.jsonl"], "nosuch"),
        (["http://127.0.0.1:9/a.jsonl"], "http://127.0.0.1:9/a.jsonl"),
        (["nobody/no-such-dataset"], "no dataset of that name"),
    ],
)
def test_places_that_are_not_there(folder: Path, data: list[str], message: str) -> None:
    os.mkfifo(folder / "pipe.jsonl")
    with pytest.raises(InputError, match=message) as caught:
        texts(*(one.format(folder=folder) for one in data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no records"),
        (b"\n \n", "holds no records"),
        (b'[{"text": "a"},\n{"text": "b"}]', "line 1 begins a JSON array"),
        (b'{"body": "a"}\n', "no field 'text'; found: body"),
        (b'{"text": "a", "score": 1}\n', "field 'score' already"),
    ],
)
def test_files_that_cannot_be_rated(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "c.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        texts(tmp_path / "c.jsonl")


def _zstd(data: bytes) -> bytes:
    return zstandard.compress(data[:999]) + zstandard.compress(data[999:])


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data[:999]) + gzip.compress(data[999:])


@pytest.mark.parametrize("pack", [_gzip, _zstd, bz2.compress, lzma.compress])
def test_compressed_files_are_read_whole_or_refused(tmp_path: Path, pack: Any) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", documents(200))
    plain = path.read_bytes()
    whole = pack(plain)
    path.write_bytes(whole)
    with open_plain(str(path)) as (handle, _):
        assert b"".join(line + b"\n" for _, line in numbered_lines(handle)) == plain
    cuts = (12, len(whole) // 3, len(whole) * 2 // 3, len(whole) - 1)
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"c\.jsonl cannot be read to its end"):
            texts(path)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 255
    path.write_bytes(bytes(broken))
    with pytest.raises(InputError, match=r"c\.jsonl"):
        texts(path)


def test_only_what_is_wanted_is_parsed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", documents(50))
    (file,) = survey(find_files([str(path)]), Columns())
    some = list(read_records(file, lambda place: 20 <= place < 30))
    assert [one.line for one in some] == list(range(21, 31))
    table = pa.Table.from_pylist([{"text": str(n)} for n in range(50)])
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7)
    (file,) = survey(find_files([str(tmp_path / "t.parquet")]), Columns(), limit=29)
    some = list(read_records(file, lambda place: place // 10 != 1))
    assert [one.field("text") for one in some] == [str(n) for n in (*range(10), *range(20, 29))]


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", documents(5))
    (file,) = survey(find_files([str(path)]), Columns())
    write_jsonl(path, documents(4))
    with pytest.raises(InputError, match="changed while it was rated"):
        list(read_records(file, lambda place: True))


HEADS = "4.3,5.1,5.3,5.11,4.2"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Documents of two languages, a short one, and two that cannot be rated."""
    made = [
        {"id": one.id, "text": one.text, "language": code}
        for code in ("de", "en")
        for one in sample_documents(code, "test", 5, 3).documents
    ]
    odd = [{"id": "short", "text": "Ja"}, {"id": "empty", "text": ""}, {"text": 1}]
    return write_jsonl(tmp_path / "c.jsonl.zst", [*made, *odd])


def naive(lm: LanguageModel, text: str, heads: HeadSet | None) -> tuple[float, int]:
    """Mean NLL of the tokens after the first, from plain logits."""
    ids = torch.tensor([lm.encode(text)])
    with torch.no_grad():
        if heads is None:
            logits = lm.model(ids).logits[0]
        else:
            with lm.gated(heads.removed()):
                logits = lm.model(ids).logits[0]
    losses = torch.log_softmax(logits[:-1].double(), -1).gather(1, ids[0, 1:, None])
    return -float(losses.mean()), ids.shape[1] - 1


def test_the_figures_are_the_models_own(
    corpus: Path, tmp_path: Path, pocket: LanguageModel, command: Callable[..., Any], loaded: None
) -> None:
    said = command(
        *("use", "rate", "--data", corpus, "--heads", HEADS, "--chunk", 4),
        *("--out", tmp_path / "run", "--json"),
    )
    assert said.code == 0, said.err
    result = json_of(said.out)
    assert {"signature", "run", "seconds", "tokens_per_second"} <= result.keys()
    heads = HeadSet.parse(HEADS, pocket.geometry)
    rated = rated_records(tmp_path / "run")
    assert result["documents"] == len(rated) and result["documents"] + result["rejected"] == 13
    assert result["tokens"] == sum(one["tokens"] for one in rated)
    for one in rated:
        full, tokens = naive(pocket, one["text"], None)
        removed, _ = naive(pocket, one["text"], heads)
        assert one["tokens"] == tokens
        assert math.isclose(one["nll_full"], full, abs_tol=2e-5)
        assert math.isclose(one["nll_removed"], removed, abs_tol=2e-5)
        assert one["score"] == one["nll_removed"] - one["nll_full"]
    assert {path.name for path in tmp_path.iterdir()} == {"c.jsonl.zst", "run"}
