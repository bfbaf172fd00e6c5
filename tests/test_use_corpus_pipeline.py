"""Who does which chunk, how far the whole is, and which model a worker holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import InputError
from headscope.executors import Execution
from headscope.heads import Geometry, HeadSet
from headscope.use.corpus import plan as planning
from headscope.use.corpus import steps
from headscope.use.corpus.files import CorpusFile, find_files
from headscope.use.corpus.plan import Plan
from headscope.use.corpus.rate_left import rate_left
from headscope.use.corpus.reading import survey
from headscope.use.corpus.records import Columns, Written
from headscope.use.rating import Rating
from use_corpus_helpers import documents, rate_by_hash, write_jsonl

GATE = HeadSet.parse("0.1", Geometry((4, 4))).removed()


@dataclass(frozen=True)
class Loader:
    """Loads nothing, and counts how often."""

    name: str

    def load(self) -> Any:
        loaded.append(self.name)
        return self.name


loaded: list[str] = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(steps, "rate_texts", rate_by_hash)
    loaded.clear()
    yield
    planning._held.clear()


def plan(folder: Path, files: tuple[CorpusFile, ...], chunk: int) -> Plan:
    return Plan(folder, files, Columns(), Loader("m"), GATE, Rating(), Written(chunk=chunk))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 9), st.integers(1, 12))
def test_every_chunk_has_one_task(sizes: list[int], tasks: int, chunk: int) -> None:
    files = tuple(
        CorpusFile(f"f{at}", f"f{at}.jsonl", "jsonl", records=size) for at, size in enumerate(sizes)
    )
    one = plan(Path("/no/such/folder"), files, chunk)
    given_out = [
        f"{file.name}-{number:06d}"
        for rank in range(tasks)
        for file, numbers in one.left(rank, tasks)
        for number in numbers
    ]
    assert Counter(given_out) == Counter(one.chunks().keys())
    assert sum(one.chunks().values()) == sum(sizes)


def test_one_file_keeps_all_tasks_busy() -> None:
    files = (CorpusFile("f", "f.jsonl", "jsonl", records=1000),)
    one = plan(Path("/no/such/folder"), files, 10)
    assert [sum(len(n) for _, n in one.left(rank, 8)) for rank in range(8)] == [13] * 4 + [12] * 4


def surveyed(folder: Path) -> tuple[CorpusFile, ...]:
    write_jsonl(folder / "a.jsonl", documents(95))
    write_jsonl(folder / "b.jsonl.gz", documents(33, 500))
    return survey(find_files([str(folder / "*.jsonl*")]), Columns())


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "documents").iterdir()}


def test_files_do_not_depend_on_who_makes_them(tmp_path: Path) -> None:
    files = surveyed(tmp_path)
    whole = plan(tmp_path / "whole", files, 10)
    rate_left(whole, Execution(), tmp_path / "logs")
    shared = plan(tmp_path / "shared", files, 10)
    for rank, tasks in ((2, 3), (1, 5), (0, 2), (0, 1)):
        data: Any = None
        for step in steps.steps(shared):
            data = step(data, rank, tasks)
        list(data)
    assert files_of(shared.folder) == files_of(whole.folder)
    assert loaded == ["m"]  # once in this process
    assert rate_left(shared, Execution(), tmp_path / "logs") is None  # nothing is left


def test_a_chunk_made_twice_is_there_once(tmp_path: Path) -> None:
    one = plan(tmp_path / "run", surveyed(tmp_path), 10)
    first, second = (steps.steps(one) for _ in range(2))
    both: list[Any] = []
    for pipeline in (first, second):
        data: Any = None
        for step in pipeline:
            data = step(data, 0, 1)
        both.append(iter(data))
    while both:  # in turns, each thinking that nothing is done
        both = [data for data in both if next(data, None) is not None]
    counts = [one.counts(chunk)["documents"] for chunk in one.chunks()]
    assert sum(counts) == 128 and len(files_of(one.folder)) == 14


def test_an_error_leaves_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan(tmp_path / "run", surveyed(tmp_path), 10)
    calls: list[int] = []

    def failing(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise InputError("the model says no")
        return rate_by_hash(*arguments)

    monkeypatch.setattr(steps, "rate_texts", failing)
    with pytest.raises(InputError, match="the model says no"):
        rate_left(one, Execution(), tmp_path / "logs")
    assert len(one.done()) == 3
    rate_left(one, Execution(), tmp_path / "logs")
    assert len(one.done()) == 14 and len(calls) == 4 + 11


def test_a_worker_holds_one_model() -> None:
    first, second = Loader("one"), Loader("two")
    assert planning.model_of(first) == planning.model_of(replace(first)) == "one"
    assert planning.model_of(second) == "two"
    assert loaded == ["one", "two"]
    model: Any = "given"
    with planning.holding(first, model):
        assert planning.model_of(first) == "given"
    assert planning.model_of(first) == "one" and loaded == ["one", "two", "one"]
