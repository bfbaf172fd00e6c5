"""What mixing reads, what it refuses, and that it survives being killed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.use.mixing import MixPlan, mix, verify_manifest, writing
from headscope.use.mixing import index as indexing
from mixing_helpers import corpus, write, written
from process_helpers import killed_at

ROW = {"id": 1, "text": "a", "language": "en", "score": 0.5, "tokens": 3}
ROWS = corpus(300)


def content(out: Path) -> dict[str, bytes]:
    """The files of a mixture, but for its paths and times."""
    files = {path.name: path.read_bytes() for path in (out / "documents").iterdir()}
    return {**files, "summary": (out / "summary.json").read_bytes()}


def test_all_formats_give_the_same_mixture(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zstd = pytest.importorskip("zstandard")
    plain = write(tmp_path / "a.jsonl", ROWS)
    data = plain.read_bytes()
    packed = tmp_path / "zstd" / "a.jsonl.zst"
    packed.parent.mkdir()
    cut = data.index(b"\n", len(data) // 2) - 3
    packer = zstd.ZstdCompressor()
    packed.write_bytes(packer.compress(data[:cut]) + packer.compress(data[cut:]))  # two frames
    table = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    crlf = tmp_path / "crlf.jsonl"
    crlf.write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n").rstrip() + b"\r\n\r\n")
    sources = [plain, write(tmp_path / "a.jsonl.gz", ROWS), packed, packed.parent, table, crlf]
    plan = MixPlan("enhance", size="80%")
    digests = [
        mix([one], tmp_path / f"out-{number}", plan).digest for number, one in enumerate(sources)
    ]
    assert len(set(digests)) == 1


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_written_files_can_be_compressed_and_mixed_again(tmp_path: Path, compression: Any) -> None:
    pytest.importorskip("zstandard")
    source = write(tmp_path / "a.jsonl", ROWS)
    plain = mix([source], tmp_path / "plain", MixPlan())
    packed = mix([source], tmp_path / "packed", MixPlan(compression=compression))
    assert packed.files[0].bytes < plain.files[0].bytes
    verify_manifest(tmp_path / "packed", [source])
    again = [
        mix([tmp_path / name], tmp_path / f"{name}-again", MixPlan("baseline")).digest
        for name in ("plain", "packed")
    ]
    assert again[0] == again[1]


def broken(**change: Any) -> str:
    return json.dumps({**ROW, **change})


def without(name: str) -> str:
    return json.dumps({key: value for key, value in ROW.items() if key != name})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (without("score"), "line 3 has no number as its 'score'; rate the documents first"),
        (broken(score=None), "line 3 has no number as its 'score'"),
        (broken(score=float("nan")), "line 3: the score is nan"),
        (broken(score=float("-inf")), "line 3: the score is -inf"),
        (
            '{"text": "a", "language": "en", "score": 1' + 400 * "0" + "}",
            "line 3: the score is 1000",
        ),
        (broken(language="\ud800"), "line 3: the language in 'language' is empty or no name"),
        (broken(score=True), "line 3 has no number as its 'score'"),
        (without("language"), "line 3 has no field 'language' for the language; found: id, text"),
        (broken(language=None), "line 3: the language in 'language' is no text"),
        (broken(language=" "), "line 3: the language in 'language' is empty"),
        (without("text"), "line 3 has no field 'text' for the text"),
        (without("tokens"), "line 3 has no 'tokens', unlike the records before it"),
        (broken(tokens=1.5), "line 3: 'tokens' is no whole number"),
        (broken(tokens=-1), "line 3: there cannot be -1 tokens"),
        ("[1]", "line 3 is no JSON object"),
        ('{"id": 1', "line 3 is not valid JSON"),
    ],
)
def test_a_record_that_cannot_be_used(tmp_path: Path, line: str, said: str) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text(f"{json.dumps(ROW)}\n{json.dumps({**ROW, 'id': 2})}\n{line}\n", "utf-8")
    out = tmp_path / "out"
    with pytest.raises(InputError) as caught:
        mix([source], out, MixPlan())
    message = str(caught.value)
    assert message.startswith(f"{source}, ") and said in message and "\n" not in message
    assert not out.exists()
    # The folder is free for the corrected file.
    source.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    mix([source], out, MixPlan())


@pytest.mark.parametrize("ending", [".jsonl.gz", ".jsonl.zst", ".parquet"])
def test_a_file_that_was_cut_off(tmp_path: Path, ending: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zstd = pytest.importorskip("zstandard")
    source = tmp_path / f"a{ending}"
    if ending == ".parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), source)
    elif ending == ".jsonl.gz":
        write(source, ROWS)
    else:
        data = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
        source.write_bytes(zstd.ZstdCompressor().compress(data))
    source.write_bytes(source.read_bytes()[:-40])
    with pytest.raises(InputError, match="fetch or write it again") as caught:
        mix([source], tmp_path / "out", MixPlan())
    assert str(source) in str(caught.value) and not (tmp_path / "out").exists()


def test_sources_that_are_none(tmp_path: Path) -> None:
    source = write(tmp_path / "rated" / "documents" / "a.jsonl", ROWS)
    (tmp_path / "rated" / "run.json").write_text('{"command": "use rate"}', "utf-8")
    (tmp_path / "empty").mkdir()
    nothing = tmp_path / "nothing.jsonl"
    nothing.touch()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for given, said in (
        ([tmp_path / "pipe.jsonl"], "is no ordinary file"),
        ([tmp_path / "missing"], "does not exist"),
        ([tmp_path / "rated"], "a rating that is not finished"),
        ([tmp_path / "empty"], "holds no JSON list"),
        ([source, source.parent], "is given twice"),
        ([nothing], "holds no records"),
        ([], "no rated documents are given"),
    ):
        with pytest.raises(InputError, match=said):
            mix(given, tmp_path / "out", MixPlan())
        assert not (tmp_path / "out").exists()
    (tmp_path / "rated" / "DONE.json").write_text("{}", "utf-8")
    with pytest.raises(InputError, match="written by an older version"):
        mix([tmp_path / "rated"], tmp_path / "out", MixPlan())
    (tmp_path / "rated" / "DONE.json").write_text('{"format": 2}', "utf-8")
    (tmp_path / "rated" / "result.json").write_text('{"details": {"documents": 301}}', "utf-8")
    with pytest.raises(InputError, match="holds 300 documents, of 301 that were rated"):
        mix([tmp_path / "rated"], tmp_path / "out", MixPlan())
    (tmp_path / "rated" / "result.json").write_text("[]", "utf-8")
    with pytest.raises(InputError, match=r"result\.json is damaged"):
        mix([tmp_path / "rated"], tmp_path / "out", MixPlan())
    assert not (tmp_path / "out").exists()
    (tmp_path / "rated" / "result.json").write_text('{"details": {"documents": 300}}', "utf-8")
    # A chunk without a single rated document is an empty file.
    (source.parent / "b.jsonl").touch()
    assert mix([tmp_path / "rated"], tmp_path / "out", MixPlan()).documents > 200


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MixPlan("enhance", share="40%"), "3 times 40% of each language is more than"),
        (lambda: MixPlan(share=0), "the share is 0, which is no amount"),
        (lambda: MixPlan(share="130%"), "the share is 130%, which is no amount"),
        (lambda: MixPlan(size={"en": "many"}), "the size of en is many"),
        (lambda: MixPlan(times=0), "times is 0"),
        (lambda: MixPlan(kind="double"), "kind is 'double'; it is one of remove"),
    ],
)
def test_a_plan_that_cannot_be(make: Callable[[], MixPlan], said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (MixPlan(size=10_000), "is to have 10000 documents of '"),
        (MixPlan(size={"en": 10}), "documents of 'de', for which there is no size"),
        (MixPlan("enhance", share=20, size=50), "3 times the 2"),
        (MixPlan(share="100%"), "nothing would be left in the mixture"),
        (MixPlan(language_column=None), "line 1 has a field 'language', which the first"),
    ],
)
def test_a_plan_that_the_corpus_cannot_keep(tmp_path: Path, plan: MixPlan, said: str) -> None:
    with pytest.raises(InputError) as caught:
        mix([write(tmp_path / "a.jsonl", ROWS)], tmp_path / "out", plan)
    assert said in str(caught.value) and not (tmp_path / "out").exists()


def test_a_run_of_another_plan_is_left_as_it_is(tmp_path: Path) -> None:
    source, out = write(tmp_path / "a.jsonl", ROWS), tmp_path / "out"
    first = mix([source], out, MixPlan())
    before = content(out)
    with pytest.raises(InputError, match="another configuration"):
        mix([source], out, MixPlan(seed=1))
    write(source, ROWS[:-1])
    with pytest.raises(InputError, match="another configuration"):
        mix([source], out, MixPlan())
    write(source, ROWS)
    assert mix([source], out, MixPlan()) == first
    assert content(out) == before


def test_a_mixture_is_not_written_among_its_sources(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(InputError, match="whose files the mixture is made of"):
        mix([tmp_path], tmp_path / "out", MixPlan())
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_half_of_a_surrogate_pair_passes_through(tmp_path: Path) -> None:
    rows = [{**ROW, "id": f"\ud800{n}", "text": f"{n} \udc00", "score": n} for n in range(9)]
    mix([write(tmp_path / "a.jsonl", rows)], tmp_path / "out", MixPlan("baseline"))
    assert sorted(one["id"] for one in written(tmp_path / "out")) == [one["id"] for one in rows]


@pytest.mark.parametrize("title", ["reading", "dealing out"])
@pytest.mark.parametrize("rows", [ROWS[:-5], [ROWS[1], ROWS[0], *ROWS[2:]]])
def test_a_file_that_changes_meanwhile(tmp_path: Path, title: str, rows: list[Any]) -> None:
    source = write(tmp_path / "a.jsonl", ROWS)

    def progress(name: str, done: int, total: int) -> None:
        if name == title and done == 0:
            write(source, rows)

    with pytest.raises(InputError, match="was changed while it was read"):
        mix([source], tmp_path / "out", MixPlan(), progress)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "a.jsonl", ROWS), tmp_path / "out"

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def nameless(*arguments: object) -> None:  # as writing to an open file tells it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(indexing, "_flush", nameless)
        with pytest.raises(OSError, match=f"No space left.*{out}"):
            mix([source], out, MixPlan())
    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            mix([source], out, MixPlan())
    assert not list((out / "documents").glob("*")) and not (out / "manifest.json").exists()
    done = mix([source], out, MixPlan())
    assert done.digest == mix([source], tmp_path / "other", MixPlan()).digest
    assert not (out / "work").exists()


@pytest.mark.parametrize(
    ("title", "steps"),
    [("reading", 0), ("reading", 2), ("dealing out", 2), ("writing", 0), ("writing", 3)],
)
def test_a_killed_mixture_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str, steps: int
) -> None:
    rated = tmp_path / "rated"
    for number in range(4):
        write(rated / f"{number}.jsonl", ROWS[number::4])
    out = tmp_path / "out"
    plan = MixPlan("remove", share=0.05, size="70%", file_bytes=4000)
    # What is done is noted after every file, and nothing kept back.
    changes = {"index.KEPT": 1, "writing.KEPT": 1, "writing.SAVED": 1}
    there = {f"headscope.use.mixing.{name}": value for name, value in changes.items()}
    killed_at(steps + 1, mix, [rated], out, plan, titles=(title,), changes=there)
    assert not (out / "manifest.json").exists()
    for name, value in there.items():
        monkeypatch.setattr(name, value)
    said: list[tuple[str, int]] = []
    done = mix([rated], out, plan, lambda name, at, total: said.append((name, at)))
    # What was noted as done is not done again.
    begun = [at for name, at in said if name == "reading"]
    assert begun[0] == (4 if title != "reading" else steps)
    whole = mix([rated], tmp_path / "whole", plan)
    assert content(out) == content(tmp_path / "whole")
    assert done == whole and len(written(out)) == done.documents
    assert not (out / "work").exists()
