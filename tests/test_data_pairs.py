"""Sentence pairs: formats, columns, links, errors that name file, line and fix, and round trips."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.files import files_below
from headscope.data.link_readings import Linked, Reading, doubt, remedy
from headscope.data.pairs import (
    PairSource,
    SentencePair,
    carried_links,
    check_links,
    format_links,
    further_pairs,
    linked_words,
    parse_links,
    read_pairs,
    write_pairs,
)
from headscope.data.words import read_concepts
from headscope.errors import Caution, InputError
from headscope.pocket.sample import sample_pairs


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return str(path)


def read(path: str | Path, **options: Any) -> list[SentencePair]:
    return list(read_pairs(PairSource(str(path), "en-de", **options)).pairs)


def failure(path: str | Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- links ---------------------------------------------------------------------------------------

READINGS_ASKED: list[dict[str, Any]] = [
    {},
    {"links_swapped": True},
    {"links_from": 1},
    {"links_from": 1, "links_swapped": True},
]


def written_so(
    path: Path, pairs: Sequence[SentencePair], reading: Mapping[str, Any], fitting: bool = False
) -> str:
    """A file whose links count and stand so; `fitting`: without those that do not fit from 0."""
    lines = ["source\ttarget\tlinks\n"]
    for pair in pairs:
        sizes, start = [len(side) for side in pair.words], reading.get("links_from", 0)
        links = [(i + start, j + start) for i, j in sorted(pair.links or ())]
        links = [(j, i) for i, j in links] if reading.get("links_swapped") else links
        links = [(i, j) for i, j in links if not fitting or (i < sizes[0] and j < sizes[1])]
        cell = " ".join(f"{i}-{j}" for i, j in links)
        lines.append(f"{pair.source}\t{pair.target}\t{cell}\n")
    return write(path, "".join(lines))


@pytest.mark.parametrize("reading", READINGS_ASKED)
@pytest.mark.parametrize("direction", ["en-de", "tr-en"])
def test_links_are_read_as_they_count_and_stand(
    tmp_path: Path, reading: dict[str, Any], direction: str
) -> None:
    """Otherwise they are refused by name of the option, or warned of where they happen to fit."""
    pairs = sample_pairs(direction, "test", 100, 0).pairs
    path = written_so(tmp_path / "whole.tsv", pairs, reading)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Caution)
        assert [pair.links for pair in read(path, **reading)] == [pair.links for pair in pairs]
    names = {"links_from": "--links-from 1", "links_swapped": "--links-swapped"}
    wanted = " ".join(names[name] for name in reading)
    for other in READINGS_ASKED:
        if other == reading:
            continue
        told = failure(path, **other)
        fix = f"with {wanted}" if wanted else "without " + " ".join(names[name] for name in other)
        assert told.endswith(f"all links fit {fix}")
    path = written_so(tmp_path / "fitting.tsv", pairs, reading, fitting=True)
    with warnings.catch_warnings(record=True) as told_of:
        warnings.simplefilter("always", Caution)
        cautions = read_pairs(PairSource(path, direction)).cautions
    assert [str(each.message) for each in told_of] == [*cautions]
    found = [each for each in names.values() if any(each in words for words in cautions)]
    assert len(cautions) == bool(wanted) and " ".join(sorted(found)) == wanted


@given(st.permutations(range(12)), st.integers(1, 12))
def test_few_links_or_words_that_no_link_touches_elsewhere_are_no_sign(
    order: list[int], many: int
) -> None:
    """A mark before every sentence, and links of a few pairs."""
    rows = [
        Linked(frozenset({(1, 1), (2, 2)}), ["<de>", f"a{n}", "b", "c"], ["-", f"x{n}", "y", "z"])
        for n in order[:many]
    ]
    assert doubt(rows, Reading()) is None
    assert doubt([Linked(frozenset({(1, 1)}), ["a", "b", "c"], ["x", "y", "z"])], Reading()) is None
    assert doubt([], Reading()) is None


@settings(max_examples=8, deadline=None)
@given(data=st.data(), swapped=st.booleans())
def test_links_of_no_word_hide_no_reading(data: st.DataObject, swapped: bool) -> None:
    """As links from 1 may be written, with a 0 on one side for a word that stands for none."""
    reading, rows = Reading(1, swapped), list[Linked]()
    for pair in sample_pairs("en-de", "test", 60, 0).pairs:
        source, target = pair.source.split(), pair.target.split()
        links = {(j, i) if swapped else (i, j) for i, j in pair.links or ()}
        fitting = {
            (i + 1, j + 1) for i, j in links if max(i, j) + 1 < min(len(source), len(target))
        }
        rows.append(Linked(frozenset(fitting), source, target))
    rows = [row for row in rows if row.links]
    some = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=2, unique=True))
    sides = [data.draw(st.sampled_from([{(0, 1)}, {(1, 0)}, {(0, 1), (2, 0)}])) for _ in some]
    null = dict(zip(some, sides, strict=True))
    with_null = [row._replace(links=row.links | null.get(at, set())) for at, row in enumerate(rows)]
    said = doubt(with_null, Reading())
    assert said is not None and reading.options in said and f" {len(some)} pairs" in said
    # A link between both first words counts from 0, and so do links of first words in many pairs.
    both = with_null[some[0]]
    with_null[some[0]] = both._replace(links=both.links | {(0, 0)})
    assert doubt(with_null, Reading()) is None
    right = [row._replace(links=reading.read(row.links)) for row in rows]
    assert doubt(right, Reading()) is None
    # Where some links are beyond their sentences, the reading in which they fit is named as well.
    beyond = [row._replace(links=row.links | {(len(row.source), len(row.target))}) for row in rows]
    if not swapped:
        beyond = [
            row._replace(links=row.links | null.get(at, set())) for at, row in enumerate(beyond)
        ]
        assert remedy(beyond, Reading()).endswith("on one side fit with --links-from 1")


def test_one_wrong_link_names_no_option(tmp_path: Path) -> None:
    pairs = [*sample_pairs("en-de", "test", 40, 0).pairs]
    pairs[7] = replace(pairs[7], links=(pairs[7].links or frozenset()) | {(99, 99)})
    assert "--links" not in failure(written_so(tmp_path / "wrong.tsv", pairs, {}))
    one = written_so(tmp_path / "one.tsv", pairs, {"links_from": 1})
    assert failure(one).endswith("the links of all but 1 pairs fit with --links-from 1")


links_strategy = st.frozensets(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=20)


@settings(deadline=None)
@given(links_strategy)
def test_links_survive_their_text(links: frozenset[tuple[int, int]]) -> None:
    assert parse_links(format_links(links)) == links


@pytest.mark.parametrize("text", ["0", "1_5", "1-", "-1-2", "a-b", "0-0,1-1", "1-2-3", "²-1"])
def test_malformed_links_are_named(text: str) -> None:
    with pytest.raises(InputError, match="malformed") as caught:
        parse_links(f"0-0 {text}")
    assert repr(text) in str(caught.value)


def test_links_must_lie_inside() -> None:
    check_links(frozenset({(1, 2)}), "a b", "c d e")
    for link in ((2, 0), (0, 3)):
        with pytest.raises(InputError, match=f"{link[0]}-{link[1]}.* 2 and 3 words"):
            check_links(frozenset({link}), "a b", "c d e")


# --- units ---------------------------------------------------------------------------------------

ZH = "source\ttarget\tlinks\tunits\taligner\n"


def test_units_say_what_links_point_at(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", ZH + "我们 好。\tWe go\t0-0 1-1\t0:2 3:4 | 0:2 3:5\teflomal\n")
    (pair,) = read(path)
    assert pair.units == (((0, 2), (3, 4)), ((0, 2), (3, 5)))
    assert [[word.text for word in side] for side in pair.words] == [["我们", "好"], ["We", "go"]]
    assert pair.aligner == "eflomal"
    copy = tmp_path / "copy.tsv"
    write_pairs(copy, [pair])
    assert copy.read_bytes() == Path(path).read_bytes()
    # A side may have none, and a name may be missing.
    path = write(tmp_path / "b.tsv", ZH + "\u200b\tgo\t\t | 0:2\t\n")
    assert (read(path)[0].units, read(path)[0].aligner) == (((), ((0, 2),)), None)


def test_units_of_json_lines_and_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    units = [[[0, 1], [1, 2]], [[0, 2]]]
    row = {"source": "我们", "target": "We", "links": "1-0", "units": units, "aligner": "eflomal"}
    lists = write(tmp_path / "a.jsonl", json.dumps(row) + "\n")
    texts = write(tmp_path / "b.jsonl", json.dumps(row | {"units": "0:1 1:2 | 0:2"}) + "\n")
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "c.parquet")
    expected = SentencePair(
        "1", "我们", "We", frozenset({(1, 0)}), 1, (((0, 1), (1, 2)), ((0, 2),)), "eflomal"
    )
    for path in (lists, texts, tmp_path / "c.parquet"):
        assert read(path) == [expected]


@pytest.mark.parametrize(
    ("links", "units", "said"),
    [
        ("0-0", "0:1 1:3 | 0:2", "1:3 lies outside the source, which has 2 characters"),
        ("0-0", "0:1 | 0:3", "0:3 lies outside the target"),
        ("0-0", "0:2 1:2 | 0:2", "1:2 of the source begins before"),
        ("0-0", "1:2 0:1 | 0:2", "0:1 of the source begins before"),
        ("0-0", "0:1 1:1 | 0:2", "1:1 of the source is empty"),
        ("2-0", "0:1 1:2 | 0:2", "2-0 lies outside its sentences of 2 and 1 units"),
        ("0-0", "", "malformed"),
        ("0-0", "0:1", "malformed"),
        ("0-0", "0:1 | 0:2 | 0:2", "malformed"),
        ("0-0", "0-1 | 0:2", "'0-1' is malformed"),
    ],
)
def test_wrong_units_are_named(tmp_path: Path, links: str, units: str, said: str) -> None:
    good = "我们\tWe\t0-0\t0:1 | 0:2\t\n"
    path = write(tmp_path / "bad.tsv", f"{ZH}{good}我们\tWe\t{links}\t{units}\t\n")
    message = failure(path)
    assert message.startswith(f"{path}, line 3")
    assert said in message
    row = {"source": "我们", "target": "We", "links": links, "units": units}
    assert said in failure(write(tmp_path / "bad.jsonl", json.dumps(row) + "\n"))


def test_links_go_over_to_the_words_that_share_characters() -> None:
    units = linked_words("我们好 go", "we", (((0, 1), (1, 2), (2, 3), (4, 6)), ((0, 2),)))
    words = linked_words("我们好 go", "we", (((0, 2), (2, 6)), ((0, 1), (1, 2))))
    links = frozenset({(0, 0), (3, 0)})
    assert carried_links(links, units, words) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert carried_links(links, units, units) == links


def test_what_a_file_has_beside_its_pairs(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tsv", "source\ttarget\n" + "".join(f"a{n}\tb{n}\n" for n in range(9))
    )
    limited = read_pairs(PairSource(path, "en-de", limit=3))
    rest = further_pairs(limited)
    assert [pair.source for pair in rest] == [f"a{n}" for n in range(3, 9)]
    half = replace(limited, pairs=limited.pairs[1:2])
    assert [pair.line for pair in further_pairs(half)] == [2, *range(4, 11)]
    whole = read_pairs(PairSource(path, "en-de"))
    assert further_pairs(whole) == ()
    Path(path).write_text("source\ttarget\na0\tanother\n")
    with pytest.raises(InputError, match="changed"):
        further_pairs(limited)


# --- TSV -----------------------------------------------------------------------------------------


def test_tsv_with_header(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tsv",
        "note\ttarget\tsource\tlinks\nx\tDer Hund\tThe dog\t0-0 1-1\ny\tJa\tYes\t\n",
    )
    assert read(path) == [
        SentencePair("2", "The dog", "Der Hund", frozenset({(0, 0), (1, 1)}), 2),
        SentencePair("3", "Yes", "Ja", frozenset(), 3),
    ]


def test_absent_links_are_not_empty_links(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\nYes\tJa\n")
    assert read(path)[0].links is None
    assert not read_pairs(PairSource(path, "en-de")).has_links


def test_columns_by_number_mean_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "Yes\tJa\t0-0\nNo\tNein\t\n")
    pairs = read(path, source_column="0", target_column="1", links_column="2")
    assert [(one.source, one.links, one.line) for one in pairs] == [
        ("Yes", frozenset({(0, 0)}), 1),
        ("No", frozenset(), 2),
    ]
    assert read(path, source_column="1", target_column="0")[0].source == "Ja"
    assert read(path, source_column="1", target_column="0")[0].links is None


def test_quotes_and_spaces_are_ordinary(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'source\ttarget\n "Yes\t Ja" \nA\u2028b\x85c\tx\\ty\n')
    pairs = read(path)
    assert (pairs[0].source, pairs[0].target) == (' "Yes', ' Ja" ')
    assert (pairs[1].source, pairs[1].target) == ("A\u2028b\x85c", "x\\ty")


def test_line_ends_and_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.tsv", "source\ttarget\tlinks\nYes\tJa\t0-0\n")
    windows = write(
        tmp_path / "b.tsv", b"\xef\xbb\xbfsource\ttarget\tlinks\r\nYes\tJa\t0-0\r\n\r\n"
    )
    no_end = write(tmp_path / "c.tsv", "source\ttarget\tlinks\nYes\tJa\t0-0")
    assert read(plain) == read(windows) == read(no_end)


def every_format(folder: Path, source: str, target: str) -> list[Path]:
    """Two sentence pairs, the second of these texts, in every format that can hold them."""
    columns = {"source": ["Yes", source], "target": ["Ja", target]}
    files = [folder / name for name in ("a.jsonl", "a.parquet", "dataset")]
    write(
        files[0],
        "".join(
            json.dumps({"source": one, "target": other}) + "\n"
            for one, other in zip(*columns.values(), strict=True)
        ),
    )
    table = pa.table(columns)
    pq.write_table(table, files[1])
    datasets.Dataset(table).save_to_disk(str(files[2]))
    if not set("\t\n") & set(source + target):
        files += [folder / name for name in ("a.tsv", "b.tsv", "flores")]
        rows = f"Yes\tJa{{end}}{source}\t{target}{{end}}"
        write(files[-3], "source\ttarget\n" + rows.format(end="\n"))
        write(files[-2], "source\ttarget\r\n" + rows.format(end="\r\n"))
        files[-1].mkdir(exist_ok=True)
        write(files[-1] / "eng.dev", f"Yes\r\n{source}\r\n")
        write(files[-1] / "deu.dev", f"Ja\n{target}\n")
    return files


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_the_end_of_a_line_is_no_part_of_a_sentence(tmp_path: Path, end: str) -> None:
    for path in every_format(tmp_path, " A\u00a0b " + end, "\u202ec\u200b d" + end):
        pair = read(path)[1]
        assert (pair.source, pair.target) == (" A\u00a0b ", "\u202ec\u200b d"), path


@pytest.mark.parametrize(
    "sign", ["\0", "\x07", "\x0b", "\x1b", "\x1f", "\x7f", "\x80", "\x9f", "\r", "\n", "\t"]
)
def test_a_control_character_is_refused_with_its_row(tmp_path: Path, sign: str) -> None:
    for path in every_format(tmp_path, "a b", f"c{sign}d"):
        said = failure(path)
        row = r"(line|row) 3" if path.suffix == ".tsv" else r"(line|row) 2"
        assert re.search(row, said), (path, said)
        assert "line break" in said if sign in "\r\n" else f"U+{ord(sign):04X}" in said, path


def test_a_number_is_spelt_out_and_what_is_none_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"source": 1.5, "target": -2}\n')
    assert (read(path)[0].source, read(path)[0].target) == ("1.5", "-2")
    path = write(tmp_path / "a.tsv", "source\ttarget\nnan\tNone\n")
    assert (read(path)[0].source, read(path)[0].target) == ("nan", "None")
    for cell, what in (("NaN", "no number"), ("-Infinity", "no number"), ("null", "nothing")):
        said = failure(write(tmp_path / "a.jsonl", f'{{"source": "a", "target": {cell}}}\n'))
        assert f"line 1: column 'target' holds {what}" in said
    table = pa.table({"source": ["a", "b"], "target": ["c", None], "links": ["0-0", None]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert "row 2: column 'target' holds nothing" in failure(tmp_path / "a.parquet")
    pq.write_table(table.set_column(1, "target", [["c", "d"]]), tmp_path / "a.parquet")
    assert [pair.links for pair in read(tmp_path / "a.parquet")] == [{(0, 0)}, set()]


def test_a_line_without_end_is_refused_while_it_is_read(tmp_path: Path) -> None:
    member = gzip.compress(b"a" * (1 << 24))
    head = gzip.compress(b"source\ttarget\nYes\tJa\n")
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(head + member * 64)  # a line of 1 GiB
    code = (
        "import resource, sys\n"
        "from headscope.data.pairs import PairSource, read_pairs\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        "    read_pairs(PairSource(sys.argv[1], 'en-de'))\n"
        "except ValueError as error:\n"
        "    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "    print(grown, error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    ).stdout
    grown, _, message = said.partition(" ")
    assert "line 3 is longer than 64 MiB" in message
    assert int(grown) < 300 * 1024  # KiB


def test_a_file_that_does_not_fit_in_memory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(text: str, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(json, "loads", full)
    said = failure(write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n'))
    assert "a.jsonl needs more memory" in said


def test_columns_of_one_name_and_values_beyond_python(tmp_path: Path) -> None:
    table = pa.table([["a"], ["b"], ["c"]], names=["source", "source", "target"])
    pq.write_table(table, tmp_path / "a.parquet")
    assert "several columns 'source'" in failure(tmp_path / "a.parquet")
    pq.write_table(table.rename_columns(["source", "other", "other"]), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", target_column="0")[0].target == "a"
    far = pa.array([1 << 62], pa.timestamp("us"))
    pq.write_table(pa.table({"source": far, "target": ["b"]}), tmp_path / "a.parquet")
    assert "cannot be read" in failure(tmp_path / "a.parquet")
    odd = pa.table({"source": pa.array(["a"]).dictionary_encode(), "target": ["b"], "at": far})
    pq.write_table(odd, tmp_path / "a.parquet")
    assert [pair.source for pair in read(tmp_path / "a.parquet")] == ["a"]
    many = json.dumps(dict.fromkeys(map(str, range(10**5)), 1))
    assert len(failure(write(tmp_path / "a.jsonl", many + "\n"))) < 1000


def test_more_that_only_a_hostile_file_holds(tmp_path: Path) -> None:
    twice = b'{"source": "a", "source": "b", "target": "c"}\n'
    assert "the key 'source' is there twice" in failure(write(tmp_path / "a.jsonl", twice))
    thrift = b"PAR1" + bytes(20) + b"PAR1"
    assert "cannot be read to its end" in failure(write(tmp_path / "a.parquet", thrift))
    deep = '{"source": "a", "target": ' + "[" * 10**5 + "]" * 10**5 + "}\n"
    assert "recursion" in failure(write(tmp_path / "a.jsonl", deep))
    digits = f'{{"source": {"9" * 10**4}, "target": "b"}}\n'
    assert "digits" in failure(write(tmp_path / "a.jsonl", digits))
    assert read(write(tmp_path / "a.jsonl", f'{{"source": {"9" * 400}, "target": "b"}}\n'))
    wide = "source\ttarget".encode("utf-16-le")
    assert "no column 'source'" in failure(write(tmp_path / "a.tsv", wide + b"\n"))
    with pytest.raises(InputError, match="name at least three"):
        read_concepts(write(tmp_path / "a.tsv", wide + b"\n"))
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "dataset_dict.json", '{"splits": null}')
    assert "cannot be loaded as a dataset" in failure(tmp_path / "folder")


def test_folders_in_folders_and_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x")
    (tmp_path / "up").symlink_to(tmp_path)
    write(tmp_path / "a.tsv", "")
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        Path("b.tsv").write_text("")
        os.chdir(here)
        assert files_below(tmp_path) == [tmp_path / "a.tsv", Path(tmp_path, *["d"] * 1500, "b.tsv")]
        assert failure(tmp_path / "up")
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)  # too deep for shutil


def test_compressed_files_read_the_same_whatever_their_name(tmp_path: Path) -> None:
    text = "source\ttarget\nYes\tJa\n"
    plain = write(tmp_path / "a.tsv", text)
    packed = write(tmp_path / "b.tsv.gz", gzip.compress(text.encode()))
    hidden = write(tmp_path / "c.tsv", gzip.compress(text.encode()))
    files = [read_pairs(PairSource(path, "en-de")) for path in (plain, packed, hidden)]
    assert files[0].pairs == files[1].pairs == files[2].pairs
    assert files[0].digest == files[1].digest == files[2].digest


def test_limit_and_digest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\n" + "Yes\tJa\n" * 5)
    other = write(tmp_path / "b.tsv", "source\ttarget\n" + "Yes\tJa\n" * 4 + "Yes\tDoch\n")
    limited = read_pairs(PairSource(path, "en-de", limit=2))
    assert len(limited.pairs) == 2
    assert limited.digest == read_pairs(PairSource(path, "en-de")).digest
    assert limited.digest != read_pairs(PairSource(other, "en-de", limit=2)).digest
    assert "limit is 0" in failure(path, limit=0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ["is empty"]),
        ("\n\n", ["is empty"]),
        ("source\ttarget\n", ["no records"]),
        ("source\ttranslation\nYes\tJa\n", ["'target'", "source, translation", "--target-column"]),
        ("Yes\tJa\n", ["'source'", "Yes, Ja", "by number"]),
        ("source\ttarget\nYes\n", ["line 2", "1 cell", "the header has 2"]),
        ("source\ttarget\nYes\tJa\tx\n", ["line 2", "3 cells"]),
        ("source\ttarget\nYes\tJa\n\nNo\tNein\n", ["line 3", "blank"]),
        ("source\ttarget\nYes\tJa\nNo\t \n", ["line 3", "'target'", "empty"]),
        ("source\ttarget\n\tJa\n", ["line 2", "'source'", "empty"]),
        ("source\tsource\ttarget\na\tb\tc\n", ["'source' 2 times"]),
        ("source\ttarget\tlinks\na b\tc d\t0-0 1-5\n", ["line 2", "1-5", "2 and 2 words"]),
        ("source\ttarget\tlinks\na\tb\t0-0\na\tb\t0:0\n", ["line 3", "'0:0'"]),
        (b"source\ttarget\nYes\tJa\nNo\tN\xffn\n", ["line 3", "byte 5", "UTF-8"]),
    ],
)
def test_bad_tsv_is_named(tmp_path: Path, content: str | bytes, said: list[str]) -> None:
    path = write(tmp_path / "bad.tsv", content)
    message = failure(path)
    for part in [path, *said]:
        assert part in message


def test_bad_columns_and_places_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\nYes\tJa\n")
    assert "'alignment'" in failure(path, links_column="alignment")
    assert "no column 7" in failure(path, source_column="0", target_column="7")
    assert "(target)" in failure(path, source_column="0")
    assert "does not exist" in failure(tmp_path / "none.tsv")
    assert "no split" in failure(path, split="dev")
    text = write(tmp_path / "a.text", "Yes\nNo\n")
    assert "TSV" in failure(text)
    cut = write(tmp_path / "cut.tsv.gz", gzip.compress(b"source\ttarget\nYes\tJa\n")[:20])
    assert "cannot be read to its end" in failure(cut)


def test_languages_are_needed_and_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\nYes\tJa\n")
    assert read_pairs(PairSource(path, source_language="en", target_language="de")).pairs
    for source, said in [
        (PairSource(path), "--pair"),
        (PairSource(path, "xx-de"), "'xx'"),
        (PairSource(path, "en-de", target_language="fr"), "contradicts"),
        (PairSource(path, source_language="en", target_language="german"), "de (German)"),
    ]:
        with pytest.raises(InputError) as caught:
            read_pairs(source)
        assert said in str(caught.value)


# --- JSON Lines and Parquet ----------------------------------------------------------------------

rows = [
    {"translation": {"en": "The dog", "de": "Der Hund"}, "links": "0-0 1-1"},
    {"translation": {"en": "Yes", "de": "Ja"}, "links": ""},
]
nested = {"source_column": "translation.en", "target_column": "translation.de"}


def test_json_lines_with_nested_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    pairs = read(path, **nested)
    assert [(one.source, one.target) for one in pairs] == [("The dog", "Der Hund"), ("Yes", "Ja")]
    assert [one.links for one in pairs] == [frozenset({(0, 0), (1, 1)}), frozenset()]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tsv", "nested", "dataset"])
def test_columns_may_be_called_after_the_languages(tmp_path: Path, kind: str) -> None:
    records = rows if kind == "nested" else [row["translation"] for row in rows]
    path = tmp_path / f"a.{'jsonl' if kind == 'nested' else kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif kind == "dataset":
        datasets.Dataset.from_list(records).save_to_disk(str(path))
    elif kind == "tsv":
        write(path, "en\tde\nThe dog\tDer Hund\nYes\tJa\n")
    else:
        write(path, "".join(json.dumps(record) + "\n" for record in records))
    pairs = read(path)
    assert [(one.source, one.target) for one in pairs] == [("The dog", "Der Hund"), ("Yes", "Ja")]
    back = read_pairs(PairSource(str(path), "de-en"))
    assert [one.source for one in back.pairs] == ["Der Hund", "Ja"]
    with pytest.raises(InputError, match="no column 'source'"):
        read_pairs(PairSource(str(path), "en-fr"))


def test_json_links_as_lists(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        '{"source": "a b", "target": "c", "links": [[1, 0]]}\n'
        '{"source": "a b", "target": "c", "links": ["0-0"]}\n'
        '{"source": "a b", "target": 5, "links": null}\n',
    )
    pairs = read(path)
    assert [one.links for one in pairs] == [{(1, 0)}, {(0, 0)}, frozenset()]
    assert pairs[2].target == "5"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"source": "a"\n', ["line 1", "JSON"]),
        ('{"source": "a", "target": "b"}\n3\n', ["line 2", "object"]),
        ('{"source": "a", "goal": "b"}\n', ["'target'", "source, goal"]),
        ('{"source": "a", "target": "b"}\n{"source": "a"}\n', ["line 2", "'target'"]),
        ('{"source": "a", "target": "b"}\n{"source": "a", "target": "b", "links": ""}\n',
         ["line 2", "'links'"]),
        ('{"source": "a", "target": null}\n', ["line 1", "'target'", "null"]),
        ('{"source": ["a"], "target": "b"}\n', ["line 1", "'source'", "list"]),
        ('{"source": "a", "target": "b", "links": [[0, 4]]}\n', ["line 1", "0-4"]),
        ('{"source": "a", "target": "b", "links": [[0]]}\n', ["line 1", "malformed"]),
        ('{"source": "a", "target": "b", "links": {"a": 1}}\n', ["line 1", "an object"]),
    ],
)  # fmt: skip
def test_bad_json_is_named(tmp_path: Path, content: str, said: list[str]) -> None:
    path = write(tmp_path / "bad.jsonl", content)
    message = failure(path)
    for part in [path, *said]:
        assert part in message


def test_parquet_with_struct_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), path)
    pairs = read(path, **nested)
    assert [(one.source, one.links, one.line) for one in pairs] == [
        ("The dog", frozenset({(0, 0), (1, 1)}), 1),
        ("Yes", frozenset(), 2),
    ]
    assert read(path, limit=1, **nested) == pairs[:1]
    message = failure(path, source_column="translation.fr", target_column="translation.de")
    assert "translation.en, translation.de" in message
    flat = tmp_path / "b.parquet"
    parquet.write_table(pa.table({"x": ["Yes"], "y": ["Ja"]}), flat)
    assert read(flat, source_column="1", target_column="0")[0].source == "Ja"
    broken = write(tmp_path / "c.parquet", b"PAR1 nothing of the kind PAR1")
    assert "Parquet" in failure(broken)
    assert "is empty" in failure(write(tmp_path / "d.parquet", ""))
    parquet.write_table(pa.table({"source": ["a"], "target": pa.array([None], pa.string())}), flat)
    assert "row 1" in failure(flat)


def test_formats_are_told_from_content_where_the_name_says_nothing(tmp_path: Path) -> None:
    tsv = write(tmp_path / "first", "source\ttarget\nYes\tJa\n")
    lines = write(tmp_path / "second", '{"source": "Yes", "target": "Ja"}\n')
    assert read(tsv)[0].source == read(lines)[0].source == "Yes"


# --- FLORES --------------------------------------------------------------------------------------


def flores(folder: Path, files: dict[str, list[str]]) -> Path:
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(line + "\n" for line in lines), "utf-8")
    return folder


@pytest.mark.parametrize("names", [("eng", "deu"), ("eng_Latn", "deu_Latn")])
@pytest.mark.parametrize("inside", ["", "{split}/"])
def test_flores_names(tmp_path: Path, names: tuple[str, str], inside: str) -> None:
    files = {}
    for split, count in (("dev", 2), ("devtest", 3)):
        for name in names:
            files[inside.format(split=split) + f"{name}.{split}"] = [
                f"{name} {n}" for n in range(count)
            ]
    folder = flores(tmp_path, files)
    found = read_pairs(PairSource(str(folder), "en-de"))
    assert [(one.source, one.target, one.line) for one in found.pairs] == [
        (f"{names[0]} {n}", f"{names[1]} {n}", n + 1) for n in range(2)
    ]
    assert len(read(folder, split="devtest")) == 3
    assert len(read(folder, split="devtest", limit=1)) == 1
    by_name = PairSource(str(folder), f"{names[1]}-{names[0]}")
    assert read_pairs(by_name).pairs[0].source == f"{names[1]} 0"


def test_flores_spellings_and_scripts(tmp_path: Path) -> None:
    names = ["arb_Arab", "ary_Arab", "zho_Hans", "zho_Hant", "eng_Latn", "hrv_Latn"]
    folder = flores(tmp_path, {f"dev/{name}.dev": [name] for name in names})

    def source(code: str) -> str:
        pair = PairSource(str(folder), source_language=code, target_language="en")
        return read_pairs(pair).pairs[0].source

    assert source("ar") == source("arb") == "arb_Arab"
    assert source("zh") == source("zh-Hans") == "zho_Hans"
    assert source("zh-Hant") == "zho_Hant"
    with pytest.raises(InputError, match="no file for sr"):
        source("sr")


def test_flores_errors(tmp_path: Path) -> None:
    folder = flores(tmp_path, {"eng.dev": ["a", "b", "c"], "deu.dev": ["x", "y"]})
    message = failure(folder)
    for part in ("eng.dev has 3 lines", "deu.dev has 2"):
        assert part in message
    assert "found: dev" in failure(folder, split="devtest")
    with pytest.raises(InputError, match=r"French.*found: deu, eng"):
        read_pairs(PairSource(str(folder), "en-fr"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no FLORES files" in failure(empty)


# --- datasets ------------------------------------------------------------------------------------


def test_dataset_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = datasets.Dataset.from_list(rows)
    data.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": data, "test": data.select([1])}).save_to_disk(
        str(tmp_path / "two")
    )
    assert [one.source for one in read(tmp_path / "one", **nested)] == ["The dog", "Yes"]
    assert read(tmp_path / "two", split="test", **nested)[0].source == "Yes"
    assert "train, test" in failure(tmp_path / "two", **nested)
    assert "'dev'" in failure(tmp_path / "two", split="dev", **nested)
    other = {"source_column": "first", "target_column": "second"}
    assert "translation.en, translation.de, links" in failure(tmp_path / "one", **other)
    assert len(read(tmp_path / "one", limit=1, **nested)) == 1


# --- writing -------------------------------------------------------------------------------------

word = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=5)
sentence = st.lists(word, min_size=1, max_size=6).map(" ".join)


@st.composite
def linked(draw: st.DrawFn) -> SentencePair:
    source, target = draw(sentence), draw(sentence)
    places = [(i, j) for i in range(len(source.split())) for j in range(len(target.split()))]
    return SentencePair("x", source, target, frozenset(draw(st.sets(st.sampled_from(places)))))


@settings(deadline=None)
@given(st.lists(linked(), min_size=1, max_size=5))
def test_written_pairs_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[SentencePair]
) -> None:
    path = tmp_path_factory.mktemp("pairs") / "a.tsv"
    write_pairs(path, pairs)
    back = read(path)
    assert [(a.source, a.target, a.links) for a in back] == [
        (a.source, a.target, a.links) for a in pairs
    ]


def test_writing_refuses_what_it_could_not_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    write_pairs(path, [SentencePair("1", "Yes", "Ja")])
    before = path.read_bytes()
    for bad in (
        [SentencePair("1", "a\tb", "c")],
        [SentencePair("1", "a", "c\nd")],
        [SentencePair("1", "a\0", "c")],
        [SentencePair("1", "a", "c\x9f")],
        [SentencePair("1", "a", "b", frozenset(), aligner="c\x1b")],
        [SentencePair("1", "a", " ")],
        [SentencePair("1", "a", "b", frozenset({(0, 1)}))],
        [SentencePair("1", "a", "b", frozenset()), SentencePair("2", "a", "b")],
    ):
        with pytest.raises(InputError):
            write_pairs(path, bad)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.tsv"]


def test_source_and_target_are_two_columns_and_two_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "source\ttarget\nYes\tJa\n")
    assert "both the column 'source'" in failure(path, target_column="source")
    for pair in ("en-en", "en-eng_Latn"):
        with pytest.raises(InputError, match="are one language"):
            read_pairs(PairSource(path, pair))
    assert read_pairs(PairSource(path, "zho_Hans-zho_Hant")).pairs  # one language, two scripts


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pairs = [SentencePair("1", "Yes", "Ja")]
    write(tmp_path / "file", "mine")
    for place in (tmp_path, tmp_path / "file" / "a.tsv"):
        with pytest.raises(InputError, match="is a f"):
            write_pairs(place, pairs)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
