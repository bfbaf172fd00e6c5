"""The papers' figures hold the laws that the papers themselves state, so no misreading stays."""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.papers.published import (
    NAMES,
    Published,
    paper_model,
    paper_tasks,
    published,
    reference,
    source,
    value,
)

SEEDS = Path(
    os.environ.get("HEADSCOPE_SEEDS", Path(__file__).resolve().parents[2] / "shared" / "seeds")
)
INSTRUCT, BASE = "Llama-3.1-8B-Instruct", "Llama-3.1-8B"
OURS = f"meta-llama/{BASE}"
QWEN, QWEN_BASE = "Qwen2.5-7B-Instruct", "Qwen2.5-7B"
LANGUAGES = ("en", "zh", "fr", "es", "de", "ru", "ar")
DIRECTIONS = [f"{a}-{b}" for a, b in itertools.permutations(LANGUAGES, 2)]
LOSSES = [f"Table {number}" for number in (*range(12, 22), 40, 43)]
OVERLAPS = (("Table 37", INSTRUCT, BASE, 1024), ("Table 38", QWEN, QWEN_BASE, 784))

#: How far a figure printed with so many decimals may be from the true one.
HALF = {2: 0.005 + 1e-9, 3: 0.0005 + 1e-9}


def heads_up(table: str, measure: str | None = None) -> list[Published]:
    wanted = [one for one in published("heads-up") if one.table == table]
    return [one for one in wanted if measure in (None, one.measure)]


def get(table: str, model: str, row: str, column: str, measure: str) -> float:
    found = value("heads-up", table, model=model, row=row, column=column, measure=measure)
    assert found is not None, (table, model, row, column, measure)
    return found


def printed(paper: str) -> list[dict[str, str]]:
    """The lines of the data file, read by another reader."""
    text = resources.files("headscope.papers").joinpath("data", f"{paper}.tsv").read_text()
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))


def doubtful(paper: str, table: str = "") -> list[dict[str, str]]:
    """Where the printed figures are doubtful, and why; those of one table, or of all."""
    return [line for line in printed("notes")
            if line["paper"] == paper and table in ("", line["table"])]  # fmt: skip


def kept_places(table: str) -> set[str]:
    """The doubtful places of Heads Up! whose figures are given as printed."""
    lines = doubtful("heads-up", table)
    return {line["place"] for line in lines if line["kept"] == "as printed"}


@pytest.mark.parametrize("paper", NAMES)
def test_the_reader_gives_every_line_and_no_place_twice(paper: str) -> None:
    lines = printed(paper)
    figures = published(paper)
    assert len(lines) == len(figures) > 0
    for line, one in zip(lines, figures, strict=True):
        number = float(line.pop("value"))
        assert math.isfinite(number) and number == one.value
        assert all(text and text == text.strip() for text in line.values())
        assert list(line.values()) == [one.table, one.model, one.row, one.column, one.measure]
        assert value(paper, **line) == number
    assert max(Counter(tuple(line.values()) for line in lines).values()) == 1


@pytest.mark.parametrize("table", [*LOSSES, *(f"Table {number}" for number in range(22, 32))])
def test_every_block_of_directions_is_whole(table: str) -> None:
    two = table in ("Table 43", "Table 44") or "Table 22" <= table <= "Table 31"
    expected = {one for one in DIRECTIONS if not two or one[:2] in ("en", "zh")}
    blocks = defaultdict(set)
    for one in heads_up(table):
        blocks[one.row].add(one.column)
    if table == "Table 15":
        assert expected - blocks["random mask"] == {"zh-ar"}
        del blocks["random mask"]
    assert blocks and all(columns == expected for columns in blocks.values())


def test_table_1_is_the_english_rows_of_the_full_tables() -> None:
    same = 0
    for one in [*heads_up("Table 1", "nll"), *heads_up("Table 1", "rouge_l")]:
        number = (12 if one.measure == "nll" else 22) + (one.model == BASE)
        whole = value(
            "heads-up",
            f"Table {number}",
            model=one.model,
            row=one.row,
            column=one.column,
            measure=one.measure,
        )
        left_out = number == 12 and one.row == f"mask of {BASE}"
        assert whole == (None if left_out else one.value), one
        same += whole is not None
    assert same == 102


@pytest.mark.parametrize(("model", "table"), [(INSTRUCT, "Table 32"), (BASE, "Table 33")])
def test_table_2_and_the_sizes_are_rows_of_the_full_tables(model: str, table: str) -> None:
    chosen = [one for one in heads_up("Table 2", "accuracy") if one.model == model]
    assert len(chosen) == 24
    for one in chosen:
        assert get(table, model, one.row, one.column, "accuracy") == one.value
    sizes = [*heads_up("Table 1", "heads"), *heads_up("Table 2", "heads")]
    sizes = [one for one in sizes if one.model == model]
    assert len(sizes) == 12
    row = "mask" if model == INSTRUCT else f"mask of {BASE}"
    for one in sizes:
        assert get("Table 37", INSTRUCT, row, one.column, "heads") == one.value


def test_table_5_is_rows_of_table_37() -> None:
    for one in heads_up("Table 5"):
        assert get("Table 37", one.model, one.row, one.column, one.measure) == one.value


@pytest.mark.parametrize("table", ["Table 32", "Table 33", "Table 34", "Table 35"])
def test_averages_are_those_of_the_35_tasks_of_table_10(table: str) -> None:
    tasks = {one.column for one in heads_up("Table 10")}
    blocks: dict[str, dict[str, float]] = defaultdict(dict)
    for one in heads_up(table):
        blocks[one.row][one.column] = one.value
    assert len(blocks) == 4 and len(tasks) == 35
    misses = 0
    for columns in blocks.values():
        average = columns.pop("Average")
        assert set(columns) - tasks == {"commonsense_qa"} and tasks < set(columns)
        assert fmean(columns[task] for task in tasks) == pytest.approx(average, abs=HALF[2])
        misses += abs(fmean(columns.values()) - average) > HALF[2]
    assert misses > 0, "the odd task would not be odd"


@pytest.mark.parametrize(("table", "model", "base", "heads"), OVERLAPS)
def test_overlaps_follow_from_sizes_and_recall(
    table: str, model: str, base: str, heads: int
) -> None:
    columns = {one.column for one in heads_up(table)}
    tasks = {one.column for one in heads_up("Table 10")}
    assert columns == tasks | set(DIRECTIONS)
    other = f"mask of {base}"
    equal = set()
    for column in columns:
        first, second = (get(table, model, row, column, "heads") for row in ("mask", other))
        recall, jaccard, expected = (
            get(table, model, other, column, name) for name in ("recall", "jaccard", "expected")
        )
        common = first * second / heads  # equation 4
        assert common / (first + second - common) == pytest.approx(expected, abs=HALF[3]), column
        shared = [n for n in range(int(second) + 1) if abs(n / second - recall) <= HALF[3]]
        found = [n / (first + second - n) for n in shared]
        assert any(abs(one - jaccard) <= HALF[3] for one in found), column
        assert second <= first < heads and jaccard > expected
        equal |= {column} if second == first else set()
    noted = {line["place"] for line in doubtful("heads-up", table)}
    assert {f"sizes, {column}" for column in equal} == noted


def test_values_are_within_their_range_and_have_their_digits() -> None:
    shares = {"rouge_l", "accuracy", "recall", "jaccard", "expected", "bleu", "attention", "share"}
    digits = {"nll": 3, "rouge_l": 3, "accuracy": 2, "recall": 3, "jaccard": 3, "expected": 3}
    for line in printed("heads-up"):
        number = float(line["value"])
        if line["measure"] in digits:
            assert len(line["value"].partition(".")[2]) == digits[line["measure"]], line
        if line["measure"] in shares:
            assert 0 <= number <= 1, line
        if line["measure"] == "nll":
            assert 0 < number < 15, line
        if line["measure"] in ("heads", "samples", "count"):
            assert number == int(number) > 0, line


@pytest.mark.parametrize("table", LOSSES[:10])
def test_a_loss_is_what_its_source_and_its_target_make_of_it(table: str) -> None:
    """By medians of logarithms; a shifted column or a leading digit misread would stand out."""
    odd = set()
    for row in {one.row for one in heads_up(table)} - {"random mask"}:
        logs = np.full((7, 7), np.nan)
        for one in heads_up(table):
            if one.row == row:
                at = (LANGUAGES.index(one.column[:2]), LANGUAGES.index(one.column[3:]))
                logs[at] = math.log(one.value)
        before = logs.copy()
        for _ in range(30):
            logs -= np.nanmedian(logs, axis=1, keepdims=True)
            logs -= np.nanmedian(logs, axis=0, keepdims=True)
        odd |= {
            f"{row}, {LANGUAGES[a]}-{LANGUAGES[b]}"
            for a, b in zip(*np.where(np.abs(logs) > 0.35), strict=True)
        }
        if row == "original":  # the target makes more of the loss than the source does
            assert np.nanmean(before, axis=0).std() > 1.2 * np.nanmean(before, axis=1).std()
    known = {
        "Table 13": {"mask, en-ar"},  # printed in Table 1 as well
        "Table 16": {"mask, ar-en"},
        "Table 20": {"mask, ar-ru"},
        "Table 21": {"mask, es-fr"},  # its whole block is noted
    }
    assert odd == known.get(table, set())
    assert table == "Table 13" or not odd or kept_places(table) & {*odd, "mask"}


def test_what_token_alignment_heads_tells_fits_together() -> None:
    figures = published("token-alignment-heads")

    def of(table: str, row: str) -> dict[str, float]:
        return {one.column: one.value for one in figures if (one.table, one.row) == (table, row)}

    assert sum(of("Section A.4", "failures").values()) == pytest.approx(1)
    tokens = of("Section 5.3", "training")
    assert tokens["English tokens"] + tokens["other tokens"] == tokens["tokens"]
    steps = list(of("Section A.1", "checkpoints").values())
    assert steps == sorted(set(steps)) and len(steps) == 12 and 10_000 not in steps
    french, german = (
        of(table, f"Hellaswag in {language}")
        for table, language in (("Figure 22", "French"), ("Figure 23", "German"))
    )
    assert min(*french.values(), *german.values()) > 0.1 and len(french) == len(german) == 4
    both = set(french) & set(german)
    assert both == {"L40-H14", "L26-H2"}
    assert all(french[head] == pytest.approx(german[head], abs=HALF[2]) for head in both)
    shares = of("Figure 6", "token alignment heads")
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    table = [one for one in figures if one.table == "Table 1"]
    assert len(table) == 30 and all(20 < one.value < 80 for one in table)


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the papers' texts are not at hand")
def test_prompts_are_those_of_table_10() -> None:
    text = (SEEDS / "heads-up.paper.txt").read_text("utf-8")
    rows = re.findall(r"^([\w-]+)\t\d+\t(.*Output:\\n\\n)$", text, re.MULTILINE)
    theirs = {name: prompt.replace("\\n", "\n") for name, prompt in rows}
    assert theirs == {name: task.prompt for name, task in paper_tasks().items()}


@pytest.mark.parametrize("paper", NAMES)
def test_what_was_left_out_is_not_there_and_what_was_kept_is(paper: str) -> None:
    given = {one.table for one in published(paper)}
    for line in doubtful(paper):
        assert line["why"] and line["place"]
        if line["kept"] == "as printed":
            assert line["table"].split(" to ")[0].replace("Tables", "Table") in given, line
    gone: tuple[tuple[str, Callable[[Published], bool]], ...] = (
        ("Table 4", lambda one: True),
        ("Table 12", lambda one: one.row == f"mask of {BASE}"),
        ("Table 15", lambda one: (one.row, one.column) == ("random mask", "zh-ar")),
    )
    for table, part in gone:
        assert not any(one.table == table and part(one) for one in published("heads-up"))
        assert len(doubtful("heads-up", table)) > len(kept_places(table))


@pytest.mark.parametrize(
    ("change"),
    [
        {"table": "Table 99"},
        {"model": "pocket"},
        {"row": "masked"},
        {"column": "en-pt"},
        {"measure": "bleu"},
    ],
)
def test_a_figure_that_is_absent_is_none(change: dict[str, str]) -> None:
    place = {"table": "Table 12", "model": INSTRUCT, "row": "mask", "column": "en-zh"}
    place["measure"] = "nll"
    assert value("heads-up", **place) == 1.017
    assert value("heads-up", **{**place, **change}) is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("heads_up", "did you mean heads-up?"),
        ("LAHIS", "did you mean lahis?"),
        ("xyz", "there are token-alignment-heads, lahis, heads-up"),
        ("", "there are token-alignment-heads, lahis, heads-up"),
    ],
)
def test_an_unknown_paper_is_named_with_a_guess(name: str, hint: str) -> None:
    for call in (
        lambda: published(name),
        lambda: source(name, "Table 1"),
        lambda: paper_model(name, "pocket"),
        lambda: reference(name, "Table 1", "pocket", default="pocket"),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert hint in str(caught.value) and repr(name) in str(caught.value)


#: The papers' models by their owners' ids, and a former id of each that had one.
OWNED = {
    f"meta-llama/{INSTRUCT}": INSTRUCT,
    f"meta-llama/Meta-{INSTRUCT}": INSTRUCT,
    f"meta-llama/{BASE}": BASE,
    f"meta-llama/Meta-{BASE}": BASE,
    f"Qwen/{QWEN}": QWEN,
    "microsoft/Phi-3.5-MoE-instruct": "Phi-3.5-MoE-instruct",
}


@pytest.mark.parametrize("case", [str, str.lower, str.upper])
@pytest.mark.parametrize("model", OWNED)
def test_a_model_is_known_by_its_owners_id(case: Callable[[str], str], model: str) -> None:
    assert paper_model("heads-up", case(model)) == OWNED[model]


@pytest.mark.parametrize(
    "model",
    [
        f"someone/{QWEN}",
        f"Qwen/{INSTRUCT}",
        QWEN,
        f"./{QWEN}/",
        f"/cache/hub/models--Qwen--{QWEN}/snapshots/0123abcd",
        "Meta-Llama-3.1-8B",
        "meta-llama/Llama-3.1-70B",
        "someone/Llama-3.1-8B-finetuned",
        "Llama-3.1-8B/checkpoint-100",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "pocket",
        "any",
        "",
    ],
)
def test_a_model_that_only_looks_alike_is_another(model: str) -> None:
    assert paper_model("heads-up", model) is None
    told = reference("heads-up", "Table 14", model, default=QWEN)
    assert (told.comparable, told.why) == (False, "not comparable: other model")


def test_a_folder_called_like_an_id_is_no_model_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert paper_model("heads-up", f"Qwen/{QWEN}") == QWEN
    (tmp_path / "Qwen" / QWEN).mkdir(parents=True)
    assert paper_model("heads-up", f"Qwen/{QWEN}") is None


def test_names_of_every_paper() -> None:
    assert paper_model("token-alignment-heads", "Qwen/Qwen3-30B-A3B") == "Qwen3-30B-A3B"
    assert paper_model("token-alignment-heads", f"meta-llama/{INSTRUCT}") is None
    assert paper_model("lahis", "CohereForAI/aya-23-8B") == "Aya-23-8B"
    assert paper_model("lahis", "CohereLabs/aya-23-8B") == "Aya-23-8B"
    owners = ("meta-llama", "Qwen", "mistralai", "microsoft", "google", "CohereLabs")
    for paper in NAMES:
        for name in {one.model for one in published(paper)}:
            found = {paper_model(paper, f"{owner}/{name}") for owner in owners} - {None}
            assert name == "any" or " " in name or found == {name}


def test_a_reference_is_comparable_only_for_the_same_model_and_data() -> None:
    same = reference("heads-up", "Table 12", f"meta-llama/{INSTRUCT}", default=INSTRUCT)
    assert (same.model, same.comparable, same.why) == (INSTRUCT, True, "")
    assert same.source == "Heads Up! (ICML 2025), Table 12"
    own = reference("heads-up", "Table 13", f"meta-llama/{BASE}", default=INSTRUCT)
    assert (own.model, own.comparable) == (BASE, True)
    for asked, table in (("pocket", "Table 12"), (OURS, "Table 12"), (OURS, "Figure 6")):
        other = reference("heads-up", table, asked, default=INSTRUCT)
        assert (other.model, other.comparable) == (INSTRUCT, False)
        assert other.why == "not comparable: other model"
    differs = ("other sentences", "our prompt")
    data = reference("heads-up", "Table 1", OURS, default=BASE, differs=differs)
    assert (data.comparable, data.why) == (False, "not comparable: other sentences; our prompt")
    both = reference("heads-up", "Table 12", "pocket", default=INSTRUCT, differs=differs)
    assert both.why == "not comparable: other model; other sentences; our prompt"
    for asked, told in ((OURS, True), ("pocket", False), (f"meta-llama/{INSTRUCT}", False)):
        whole = reference("token-alignment-heads", "Section 5.1", asked, default="any")
        assert (whole.model, whole.comparable) == ("any", told)
    with pytest.raises(ValueError, match="no model 'Llama-3'"):
        reference("heads-up", "Table 1", BASE, default="Llama-3")


@pytest.mark.parametrize(
    "text", ["task\texamples\n", "task\texamples\tdigest\tinstruction\na\t1\n", "\n"]
)
def test_a_broken_data_file_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "heads-up-tasks.tsv").write_text(text, encoding="utf-8")
    monkeypatch.setattr("headscope.papers.published.resources.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="every line must have the fields"):
        paper_tasks.__wrapped__()
