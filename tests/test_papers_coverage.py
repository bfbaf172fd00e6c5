"""Every table and figure of the papers' texts is covered once, by one of five words."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from headscope.cli.app import app
from headscope.cli.commands import commands_of
from headscope.errors import InputError
from headscope.papers.command import listing
from headscope.papers.heads_up.tasks import directions
from headscope.papers.paper import Missing, PaperData
from headscope.papers.plan import Coverage, make_plan
from headscope.papers.published import paper_tasks, published
from headscope.papers.registry import PAPERS, paper_named
from headscope.papers.reproduce import Reproduce
from headscope.papers.show import Answer, coverage_words
from headscope.shown.blocks import Findings
from paper_helpers import setting_of, words_of

ROOT = Path(__file__).resolve().parents[1]
SEEDS = next(
    (one / "shared" / "seeds" for one in ROOT.parents if (one / "shared" / "seeds").is_dir()), None
)
#: What each paper has: its tables and figures, and of LAHIS (whose readme alone is known) what its
#: code can be asked for.
ELEMENTS = {
    "token-alignment-heads": [
        *(f"Table {number}" for number in range(1, 4)),
        *(f"Figure {number}" for number in range(1, 29)),
    ],
    "lahis": [
        "attn_matrix.py",
        "language_heads.py",
        "lan_head_mask.py",
        *(
            f"multilingual_exps.py {name}"
            for name in ("ppl", "ppl-cross", "general_head", "off_target_lan")
        ),
        *(f"multilingual_exps.py {name}" for name in ("attn_transfer", "head_mask")),
    ],
    "heads-up": [
        *(f"Table {number}" for number in range(1, 45)),
        *(f"Figure {number}" for number in range(1, 10)),
    ],
}
FILES = PaperData(
    pairs=("en-zh=a.tsv", "zh-en=b.tsv"),
    documents=("de=de.txt", "fr=fr.txt"),
    benchmarks=("xnli",),
    checkpoints=("a", "b"),
    others=("google/gemma-2-2b-it",),
)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("data", [PaperData(), FILES], ids=["nothing", "files"])
@pytest.mark.parametrize("model", ["pocket", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct"])
@pytest.mark.parametrize("paper", PAPERS)
def test_every_element_once_and_five_words(
    paper: str, model: str, data: PaperData, full: bool, tmp_path: Path
) -> None:
    setting = setting_of(tmp_path, model, data=data, full=full)
    every = make_plan(paper_named(paper).experiments, setting).experiments
    named = [name for one in every for name in one.coverage]
    assert Counter(named) == Counter(ELEMENTS[paper])  # each exactly once
    words = words_of(paper, setting)
    assert set(words.values()) <= {*get_args(Coverage)}
    assert get_args(Coverage) == (
        "measured",
        "needs DATA",
        "needs MODEL",
        "needs ENDPOINT",
        "--full",
    )
    if full:  # nothing is left to what was asked for
        assert "--full" not in words.values()
    if data == PaperData() and model != "pocket":
        settings = {f"Table {number}" for number in (9, 10, 11)}
        for name, word in words.items():
            assert word != "measured" or (paper == "heads-up" and name in settings)


@pytest.mark.parametrize("paper", ["token-alignment-heads", "heads-up"])
def test_experiments_are_called_by_their_first_element(paper: str) -> None:
    for one in paper_named(paper).experiments:
        assert one.name == one.elements[0].lower().replace(" ", "-")
    tables = {one.table for one in published(paper)}
    assert {one for one in tables if not one.startswith("Section")} <= {*ELEMENTS[paper]}


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_missing_is_named_with_flags_that_exist(paper: str, tmp_path: Path) -> None:
    command = commands_of(get_command(app))["reproduce"]
    flags = {name for option in command.params for name in option.opts}
    bare = setting_of(tmp_path, LLAMA)
    for one in paper_named(paper).experiments:
        missing = one.steps(bare)
        if one.name == "table-9":  # settings are told without data
            continue
        assert isinstance(missing, Missing) and missing.why, one.name
        named = set(re.findall(r"--[a-z-]+", missing.give))
        # Trainings from nothing are the only thing that no file replaces.
        assert named <= flags and bool(named) == (
            (paper, one.name) != ("token-alignment-heads", "table-1")
        )


@pytest.mark.parametrize("model", ["pocket", "meta-llama/Llama-3.1-8B"])
@pytest.mark.parametrize("paper", ["token-alignment-heads", "lahis"])
def test_nothing_run_is_nothing_told(paper: str, model: str, tmp_path: Path) -> None:
    found = paper_named(paper)
    data = replace(FILES, questions=("de=q.json",), statements=("en-de=t.jsonl",))
    setting = setting_of(tmp_path, model, data=data)
    shown = {one.name: one.show(setting) for one in found.experiments}
    assert all(one == Findings() for one in shown.values())
    assert found.answer(setting, shown) == Answer()


def test_what_is_in_name_only_is_not_called_measured(tmp_path: Path) -> None:
    pocket = setting_of(tmp_path)
    words = words_of("heads-up", pocket)
    left = {name for name, word in words.items() if word == "--full"}
    assert left == {
        *("Table 3", "Table 6", "Table 12", "Table 22", "Table 32", "Table 39", "Table 40"),
        *("Figure 7", "Figure 9"),
    }
    for number in (4, 5, 7, *range(13, 22), *range(23, 32), 33, 34, 35, 36, 37, 38, 43, 44):
        assert words[f"Table {number}"] == "needs MODEL"
    assert words["Table 1"] == words["Table 2"] == words["Figure 2"] == "measured"
    whole = words_of("heads-up", replace(pocket, full=True))
    assert {whole[name] for name in left} == {"measured"}
    heads = words_of("token-alignment-heads", pocket)
    # Groups of models; directions, tasks and prompts that its world has not; other trainings.
    other = {f"Figure {number}" for number in (5, 9, *range(13, 29))} | {"Table 1"}
    assert {name for name, word in heads.items() if word == "needs MODEL"} == other
    assert [name for name, word in heads.items() if word == "needs ENDPOINT"] == ["Figure 2"]


LANGUAGES = ("en", "zh", "fr", "es", "de", "ru", "ar")


DIRECTIONS = tuple(f"{a}-{b}=x" for a in LANGUAGES for b in LANGUAGES if a != b)
TASKS = tuple(f"{name}.json" for name in paper_tasks())
LLAMA, BASE = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"
LARGE, QWEN = "meta-llama/Llama-3.1-70B-Instruct", "Qwen/Qwen2.5-7B"
ONE_WAY = ("Figure 2", "Figure 4", "Figure 5", "Figure 8", "Table 41")


@pytest.mark.parametrize(
    ("model", "data", "found"),
    [
        # Masks of another geometry fit no model, and another size is no partner.
        (LLAMA, {"others": (LARGE,)}, {"needs MODEL": ("Table 5", "Table 37"),
                                       "measured": ("Table 1", "Table 4", "Table 36")}),
        (LLAMA, {"others": (QWEN,)}, {"needs MODEL": ("Table 4", "Table 5", "Table 37")}),
        # Either of a pair is the other one's partner.
        (LLAMA, {"others": (BASE,)}, {"measured": ("Table 5", "Table 37"),
                                      "needs MODEL": ("Table 4", "Table 36")}),
        (BASE, {"others": (LLAMA,)}, {"measured": ("Table 5", "Table 37")}),
        (QWEN, {"others": (f"{QWEN}-Instruct",)}, {"measured": ("Table 5", "Table 38"),
                                                   "needs MODEL": ("Table 37",)}),
        # What is of other models needs them before any data.
        (LLAMA, {"pairs": (), "tasks": ()}, {
            "needs MODEL": ("Table 13", "Table 23", "Table 33"),
            "needs DATA": ("Table 12", "Table 32", "Table 10"),
        }),
        # Examples and figures of one direction of the paper.
        (LLAMA, {"pairs": ("en-de=x",)}, {"needs DATA": ONE_WAY}),
        (LLAMA, {"pairs": ("en-de=x", "en-zh=x")}, {"measured": ONE_WAY}),
        (LLAMA, {"pairs": ("en-zh=x", "en-zh=y")}, {"needs DATA": ("Table 42",)}),
        (LLAMA, {"pairs": ("zh-en=x", "zh-en=x")}, {"needs DATA": ("Table 42",)}),
        (LLAMA, {"pairs": ("zh-en=x", "zh-en=y")}, {"measured": ("Table 42",)}),
    ],
)  # fmt: skip
def test_what_is_given_decides_what_is_measured(
    model: str,
    data: dict[str, tuple[str, ...]],
    found: dict[str, tuple[str, ...]],
    tmp_path: Path,
) -> None:
    given = replace(PaperData(DIRECTIONS, tasks=TASKS), **data)
    words = words_of("heads-up", setting_of(tmp_path, model, data=given))
    for word, elements in found.items():
        assert {name: words[name] for name in elements} == dict.fromkeys(elements, word)


def test_folders_have_the_languages_of_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "flores"
    folder.mkdir()
    for code in ("eng_Latn", "zho_Hans", "deu_Latn"):
        (folder / f"{code}.dev").write_text("a\n", "utf-8")
    setting = setting_of(tmp_path, LLAMA, data=PaperData((str(folder),)))
    assert {one.name for one in directions(setting)} == {
        *("en-zh", "en-de", "zh-en", "zh-de", "de-en", "de-zh")
    }
    assert words_of("heads-up", setting)["Table 1"] == "needs DATA"
    (tmp_path / "words").mkdir()
    with pytest.raises(InputError, match="no files of the split"):
        directions(replace(setting, data=PaperData((str(tmp_path / "words"),))))


@pytest.mark.skipif(SEEDS is None, reason="the papers' texts are not at hand")
@pytest.mark.parametrize("paper", ["token-alignment-heads", "heads-up"])
def test_the_list_is_that_of_the_text(paper: str) -> None:
    assert SEEDS is not None
    text = (SEEDS / f"{paper}.paper.txt").read_text("utf-8")
    found = {f"{kind} {number}" for kind, number in re.findall(r"(Table|Figure)s? (\d+)", text)}
    for kind, low, high in re.findall(r"(Table|Figure)s? (\d+)[-\u2013](\d+)", text):
        found |= {f"{kind} {number}" for number in range(int(low), int(high) + 1)}
    missing = set(ELEMENTS[paper]) - found
    # The caption of Figure 26 is not in this text, between those of Figures 25 and 27.
    assert missing == ({"Figure 26"} if paper == "token-alignment-heads" else set())
    assert found <= set(ELEMENTS[paper])


def test_the_table_of_the_documentation_is_what_the_command_lists() -> None:
    shown = (ROOT / "docs" / "papers" / "index.md").read_text("utf-8")
    names = {"token-alignment-heads": "Token Alignment Heads", "lahis": "LAHIS"}
    for paper in PAPERS:
        found: dict[str, str] = {}
        for row in listing(Reproduce(paper)):
            found |= row["coverage"]
        for words in coverage_words(found):
            word, _, elements = words.partition(": ")
            assert f"| {names.get(paper, 'Heads Up!')} | {word} | {elements} |" in shown
