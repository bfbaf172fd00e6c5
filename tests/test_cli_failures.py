"""`headscope verify failures` on files of outputs and on removal runs, and its report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import json_of
from headscope.data.pairs import PairFile
from headscope.evidence.rows import Condition
from headscope.pocket.sample import sample_pairs
from headscope.results.common import ModelFacts
from headscope.results.failures import KINDS
from headscope.results.removal import (
    Languages,
    OutputLinks,
    RemovalDetails,
    RemovalResult,
    Removed,
)
from headscope.runs import encode, file_digest, open_run
from headscope.studies.verify.failures import rows_of_run
from headscope.studies.verify.removal import described
from headscope.verify.removal_translations.measures import Translations, output_rows

Command = Callable[..., Any]
GOOD = {
    "id": "a",
    "source": "The dog sleeps.",
    "reference": "Der Hund schläft.",
    "before": "Der Hund schläft.",
    "after": "",
}


def write(path: Path, *rows: object) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def spoilt(pairs: PairFile) -> dict[str, list[str]]:
    """Outputs of every kind, one after the other."""
    texts = []
    for number, pair in enumerate(pairs.pairs):
        other = pairs.pairs[number - 1].target
        texts.append(
            [pair.source, other, " ".join(pair.target.split()[:-2]), pair.target][number % 4]
        )
    return {"before": [pair.target for pair in pairs.pairs], "after": texts}


def test_a_file_has_all_its_rows_sorted(command: Command, tmp_path: Path) -> None:
    pairs = sample_pairs("en-tr", "dev", 40, 5)
    outputs = spoilt(pairs)
    rows = [
        {"id": pair.id, "source": pair.source, "reference": pair.target, "before": b, "after": a}
        for pair, b, a in zip(pairs.pairs, outputs["before"], outputs["after"], strict=True)
    ]
    file = write(tmp_path / "o.jsonl", *rows)
    out = tmp_path / "run"
    given = ("verify", "failures", "--outputs", file, "--pair", "en-tr", "--out", out)
    said = command(*given, "--json")
    assert said.code == 0, said.err
    result = json_of(said.out)
    assert [case["id"] for case in result["cases"]] == [pair.id for pair in pairs.pairs]
    kinds = [case["kind"] for case in result["cases"]]
    expected = [("no translation", "hallucination", "missing details", "other")[n % 4]
                for n in range(40)]  # fmt: skip
    assert sum(one == other for one, other in zip(kinds, expected, strict=True)) >= 36
    assert set(result["shares"]) == set(KINDS)
    assert sum(result["shares"].values()) == pytest.approx(1)
    assert result["counts"] == {kind: kinds.count(kind) for kind in KINDS}
    assert {"signature", "run", "seconds", "selected", "identifier"} <= set(result)
    assert set(result["cases"][0]) == {"id", "direction", "kind", "selected", "evidence"}
    stored = [json.loads(line) for line in (out / "cases.jsonl").read_text("utf-8").splitlines()]
    assert [row["after"] for row in stored] == outputs["after"]
    again = json_of(command(*given, "--json").out)
    assert again == result


def test_a_removal_run_counts_what_was_good_and_is_bad(command: Command, tmp_path: Path) -> None:
    folder = removal_run(tmp_path / "removal")
    out = tmp_path / "failures"
    said = command("verify", "failures", folder, "--out", out, "--json")
    assert said.code == 0, said.err
    result = json_of(said.out)
    assert result["condition"]["id"] == "selected 4"
    assert result["rows"] == 16 and result["selected"] == 12
    counted = [case for case in result["cases"] if case["selected"]]
    for kind in KINDS:
        share = sum(case["kind"] == kind for case in counted) / 12
        assert result["shares"][kind] == pytest.approx(share)
    assert set(result["directions"]) == {"en-de", "ru-es"}
    assert result["model"]["name"] == "small" and result["rank"] == "score"
    assert result["heads"] == ["0.1", "0.2", "1.0", "1.1"]
    # The draw of as many random heads is sorted as if it had been asked for.
    drawn = command("verify", "failures", folder, "--condition", "random", "--out",
                    tmp_path / "drawn", "--json")  # fmt: skip
    alone = json_of(drawn.out)
    assert "random" not in alone
    own = {name: alone[name] for name in ("rows", "selected", "shares", "counts")}
    assert result["random"] == [own]
    small = command("verify", "failures", folder, "--k", 2, "--out", tmp_path / "two", "--json")
    two = json_of(small.out)
    assert two["selected"] == 0 and set(two["shares"].values()) == {None}
    for wrong, words in (
        (("--k", 3), "no selected condition with k 3; it has 2, 4"),
        (("--gate", 2), "no condition with the gate 2; it has 0"),
        (("--ablate", "mean"), "no condition by mean ablation"),
        (("--condition", "same-layers"), "it has selected, random"),
        (("--condition", "random", "--draw", 7), "no draw 7; it has 0 to 0"),
        (("--pair", "en-de"), "knows its languages"),
    ):
        refused = command("verify", "failures", folder, *wrong)
        assert refused.code == 2 and words in refused.err, refused.err


def removal_run(path: Path) -> Path:
    """A finished run as `verify removal` writes it, with outputs made by hand."""
    heads = ("0.1", "0.2", "1.0", "1.1")
    top = Condition("selected", k=4, gate=0.0, heads=heads)
    conditions = [
        Condition(),
        replace(top, k=2, heads=heads[:2]),
        top,
        replace(top, kind="random", draw=0),
    ]
    made = {}
    for direction in ("en-de", "ru-es"):
        pairs = sample_pairs(direction, "dev", 8, 0)
        outputs = spoilt(pairs)
        texts = [outputs[name] for name in ("before", "before", "after", "before")]
        made[direction] = Translations.of(pairs, texts)
        # Two lost words are no loss of 20 everywhere; an empty output is.
        last = [a if n % 4 != 2 else "" for n, a in enumerate(made[direction].texts[2])]
        texts[2] = last
        made[direction] = Translations.of(pairs, texts)
    with open_run(path, "verify removal", {}, {}) as run:
        run.write_jsonl("outputs.jsonl", output_rows(conditions, made))
        removed = Removed(
            directions={name: Languages(*name.split("-")) for name in made}, links=OutputLinks()
        )
        evidence, removed = described(run, conditions, removed, 1, made, None, 0)
        details = RemovalDetails(k=(2, 4), heads=heads, rank="score", removed=removed)
        model = ModelFacts(name="small")
        run.finish(encode(RemovalResult(model=model, evidence=evidence, details=details)))
    return path


def test_links_of_a_run_come_with_their_units_and_aligner(tmp_path: Path) -> None:
    folder = removal_run(tmp_path / "removal")
    pairs = {way: sample_pairs(way, "dev", 8, 0).pairs for way in ("en-de", "ru-es")}
    lines = [
        {
            "direction": way,
            "id": pair.id,
            "condition": "reference",
            # In one direction white-space pieces, in the other without the last sign.
            "source_spans": [[m.start(), m.end()] for m in re.finditer(form, pair.source)],
            "output_spans": [[m.start(), m.end()] for m in re.finditer(form, pair.target)],
            "links": [[0, 0]],
        }
        for way, form in (("en-de", r"\S+"), ("ru-es", r"\w+"))
        for pair in pairs[way]
    ]
    write(folder / "links.jsonl", *lines)
    result = json.loads((folder / "result.json").read_text())
    result["details"]["removed"]["links"] = {"method": "reference", "aligner": "eflomal"}
    (folder / "result.json").write_text(json.dumps(result))
    done = {"format": 2, "result": file_digest(folder / "result.json")}
    (folder / "DONE.json").write_text(json.dumps(done))
    rows = rows_of_run(folder).rows
    assert len(rows) == 16
    for row, line in zip(rows, lines, strict=True):
        spans = tuple(tuple(map(tuple, line[side])) for side in ("source_spans", "output_spans"))
        assert row.units == (None if row.direction == "en-de" else spans)
        assert (row.links, row.aligner) == (frozenset({(0, 0)}), "eflomal")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "is empty"),
        ([GOOD, {**GOOD, "id": "b", "after": 3}], "line 2: 'after' is no text"),
        ([{"id": 1, "source": "a"}], "line 1 has no 'reference' and no 'before' and no 'after'"),
        ([GOOD, GOOD], "line 2: the id 'a' stands on line 1 already"),
        (["{"], "line 1 is not valid JSON"),
        (["[]"], "line 1 is no JSON object"),
        ([{**GOOD, "source": " "}], "line 1: 'source' is empty"),
        ([{**GOOD, "id": None}], "line 1: the id is no text"),
        ([{**GOOD, "links": "0-9"}], "line 1: the link 0-9 lies outside"),
        ([{**GOOD, "links": "", "units": "0:900 | 0:1"}], "line 1: the unit 0:900 lies outside"),
        ([{**GOOD, "direction": "nowhere"}], "'nowhere'"),
        ([{**GOOD, "after": "\ud800"}], "half of a surrogate pair"),
    ],
)
def test_a_bad_file_is_named_with_its_line(
    command: Command, tmp_path: Path, rows: list[object], words: str
) -> None:
    file = tmp_path / "o.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    said = command("verify", "failures", "--outputs", file, "--out", tmp_path / "run")
    assert said.code == 2 and said.out == ""
    assert words in said.err and "o.jsonl" in said.err and "Traceback" not in said.err


def test_what_is_no_run_is_told(command: Command, tmp_path: Path) -> None:
    assert "give either the folder" in command("verify", "failures").err
    assert "not a finished run" in command("verify", "failures", tmp_path).err
    (tmp_path / "result.json").write_text("{}")
    done = {"format": 2, "result": file_digest(tmp_path / "result.json")}
    (tmp_path / "DONE.json").write_text(json.dumps(done))
    assert "no result" not in command("verify", "failures", tmp_path).err
    assert "removes heads" in command("verify", "failures", tmp_path).err
    one = command("verify", "failures", "--outputs", tmp_path / "x", "--source-language", "en")
    assert one.code == 2 and "one language alone" in one.err
