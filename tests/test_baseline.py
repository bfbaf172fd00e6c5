"""Whether the model does the task at all: the rules, and where a run says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import find_helpers
from conftest import json_of
from headscope.answers import LINE, QUOTES, answer_of, answer_span
from headscope.cli import main
from headscope.data.pairs import PairFile, SentencePair, write_pairs
from headscope.lm.generation import Generation
from headscope.measure.baseline import (
    Rules,
    answers_right,
    choices_above_chance,
    translates,
    with_other_shots,
)
from headscope.measure.identify import off_targets
from headscope.measure.metrics import chrf
from headscope.studies.baseline import other_shots
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.studies.report import write_report
from mask_helpers import write_mask_run
from test_verify_tasks import write as write_task

SOURCES = [pair.source for pair in find_helpers.pairs("en-de", 16).pairs]
TARGETS = [pair.target for pair in find_helpers.pairs("en-de", 16).pairs]
NEVER = [False] * 16


def test_translations_work_and_copies_do_not() -> None:
    right = translates(SOURCES, TARGETS, TARGETS, NEVER, "de")
    assert right.works and not right.reasons and right.counts["chrf"] == pytest.approx(100)
    assert right.counts["gain"]["low"] > 0
    copied = translates(SOURCES, TARGETS, SOURCES, NEVER, "de")
    assert not copied.works
    assert copied.counts["gain"] == {"value": 0, "low": None, "high": None}
    assert copied.counts["off_target"] == 16
    assert len(copied.reasons) == 2
    assert copied.shown[0].output in SOURCES


@given(st.integers(0, 16), st.integers(0, 16))
def test_empty_and_cut_outputs_count_once(empty: int, cut: int) -> None:
    outputs = [""] * empty + TARGETS[empty:]
    ended = [at < cut for at in range(16)]
    judged = translates(SOURCES, TARGETS, outputs, ended, "de", Rules(off_target=1.0))
    assert judged.counts["empty"] == empty
    assert judged.counts["empty_or_cut"] == max(empty, cut)
    told = any("empty or cut off" in reason for reason in judged.reasons)
    assert told == (max(empty, cut) > 8)


def test_too_few_to_tell_is_not_cannot() -> None:
    # One of two sentences is the same in both languages, so the interval reaches down to zero.
    few = ["Anton.", TARGETS[1]]
    judged = translates(["Anton.", SOURCES[1]], few, few, [False] * 2, "de")
    assert judged.counts["gain"]["low"] <= 0 < judged.counts["gain"]["value"]
    assert judged.works is None and "too few to tell" in judged.reasons[0]
    # As many as are enough decide: half of them names, half not translated.
    wrong = translates(SOURCES[:8], TARGETS[:8], SOURCES[:8], [False] * 8, "de")
    assert wrong.works is False and not any("too few" in reason for reason in wrong.reasons)
    # Worse than the copies for certain, on two.
    worse = translates(TARGETS[:2], TARGETS[:2], ["x", "y"], [False] * 2, "de")
    assert worse.counts["gain"]["value"] < 0 and worse.works is False
    # Two or three do not say that it works either: their interval is too narrow to be above zero.
    for number, works in ((2, None), (3, None), (4, True)):
        texts = SOURCES[:number], TARGETS[:number], TARGETS[:number]
        perfect = translates(*texts, [False] * number, "de")
        assert perfect.counts["gain"]["low"] > 0 and perfect.works is works
    single = translates(SOURCES[:1], TARGETS[:1], TARGETS[:1], [False], "de")
    assert single.works is None
    assert single.counts["gain"] == {
        "value": pytest.approx(single.counts["chrf"] - single.counts["chrf_of_copies"]),
        "low": None,
        "high": None,
    }


@pytest.mark.parametrize(
    ("sources", "references", "fault", "fix"),
    [
        (TARGETS, SOURCES, ["references", "sources"], "--pair de-en"),
        (SOURCES, SOURCES, ["references"], "correct --pair"),
        (TARGETS, TARGETS, ["sources"], "correct --pair"),
    ],
)
def test_data_of_another_language_are_at_fault_and_not_the_model(
    sources: list[str], references: list[str], fault: list[str], fix: str
) -> None:
    judged = translates(sources, references, TARGETS, NEVER, "de", source_language="en")
    assert judged.works is None and judged.counts["data_at_fault"] is True
    assert [
        what for what in ("references", "sources") if f" {what} are not" in str(judged.reasons)
    ] == fault
    assert fix in judged.reasons[-1]
    right = translates(SOURCES, TARGETS, TARGETS, NEVER, "de", source_language="en")
    assert right.works and "data_at_fault" not in right.counts


def test_data_that_may_be_of_another_language_blame_no_model() -> None:
    # Two sentences are too few to be sure of the data, and so of the model.
    judged = translates(SOURCES[:2], SOURCES[:2], TARGETS[:2], NEVER[:2], "de")
    assert judged.works is None and "data_at_fault" not in judged.counts
    assert any("2 of 2 references are not in de" in reason for reason in judged.reasons)
    assert any("too few" in reason for reason in judged.reasons)


def test_words_that_look_like_another_language_are_no_fault() -> None:
    english = ["dog", "house", "cat", "tree", "water", "sun", "moon", "hand"]
    german = ["Hund", "Haus", "Katze", "Baum", "Wasser", "Sonne", "Mond", "Hand"]
    assert off_targets(german, "de").sum() > 4  # of single words many are taken for another's
    right = translates(english, german, german, NEVER[:8], "de", source_language="en")
    assert right.works and "data_at_fault" not in right.counts
    assert translates(english, german, english, NEVER[:8], "de").works is False
    swapped = translates(german, english, german, NEVER[:8], "de", source_language="en")
    assert swapped.works is None and swapped.counts["data_at_fault"] is True
    figures = ["1", "22", "333", "4444", "5", "6", "7", "8"]
    assert "data_at_fault" not in translates(figures, figures, figures, NEVER[:8], "de").counts


def test_preambles_are_counted_and_change_no_score() -> None:
    said = ["Hier ist die Übersetzung:\n\n" + target for target in TARGETS[:4]]
    outputs = [*said, f"\u201e{TARGETS[4]}\u201c", *TARGETS[5:]]
    judged = translates(SOURCES, TARGETS, outputs, NEVER, "de")
    assert judged.counts["preamble"] == 5
    assert judged.counts["preamble_kinds"] == [LINE, QUOTES]
    assert judged.counts["chrf"] == pytest.approx(chrf(outputs, TARGETS).value)
    assert "preamble" not in translates(SOURCES, TARGETS, TARGETS, NEVER, "de").counts


@pytest.mark.parametrize(
    ("output", "source", "answer"),
    [
        ('Aquí tienes la traducción al español:\n\n"El perro."', "The dog.", "El perro."),
        ("El perro ve la casa.", "The dog sees the house.", "El perro ve la casa."),
        ("这是翻译：\n狗看见房子。", "The dog sees the house.", "狗看见房子。"),
        ("「犬は家を見る。」", "The dog sees the house.", "犬は家を見る。"),
        ("**Translation:** El perro", "The dog", "El perro"),
        ("**Translation**: El perro", "The dog", "El perro"),
        ("```text\nEl perro\n```", "The dog", "El perro"),
        ("Here it is:\n```\nEl perro\n```\nNote: x", "The dog", "El perro"),
        ("Sure!\nHere it is:\nEl perro", "The dog", "El perro"),
        ("El perro.\n\nNote: literal.", "The dog.", "El perro."),
        ("Er sagte:", "He said:", "Er sagte:"),
        ("Übersetzung:\nEr sagte:", "He said:", "Er sagte:"),
        ('"Ja", sagte er, "nein"', "Yes, he said, no", '"Ja", sagte er, "nein"'),
        ('"Ja"', '"Yes"', '"Ja"'),
        ("**El perro**", "The dog", "El perro"),
        ("'It's here'", "Hier ist es", "It's here"),
        ("Eins\nZwei", "One\nTwo", "Eins\nZwei"),
        ("Er sagte:\nIch komme.", "He said:\nI come.", "Er sagte:\nIch komme."),
        ("Hier:\nEr sagte:\nIch komme.", "He said:\nI come.", "Er sagte:\nIch komme."),
        ("Er sagte:\n\nAnmerkung: x", "He said:", "Er sagte:"),
        # A sentence out of a quotation, whose translation closes it.
        ("„Und er?“", '"And he?', "„Und er?“"),
        ("« Je crois. »", '"I think," he said.', "« Je crois. »"),
        ("„Ich war es nicht.“", "It wasn't me.\"", "„Ich war es nicht.“"),
        ("**„Und er?“**", '"And he?', "„Und er?“"),
        ("", "The dog", ""),
    ],
)
def test_the_answer_in_an_output(output: str, source: str, answer: str) -> None:
    start, end = answer_span(output, source)
    assert output[start:end] == answer == answer_of(output, source)
    assert answer_of(answer, source) == answer


def test_a_language_nobody_can_tell_is_no_reason() -> None:
    judged = translates(SOURCES, TARGETS, TARGETS, NEVER, "qaa")
    assert judged.works and judged.counts["off_target"] is None


def test_answers_that_are_never_right() -> None:
    inputs, references = ["a", "b"], ["A", "B"]
    assert answers_right(inputs, references, ["A", "x"], [True, False], True).works
    never = answers_right(inputs, references, ["x", "x"], [False, False], True)
    assert not never.works and never.counts == {"right": 0}


def test_choices_have_to_lie_above_guessing() -> None:
    # 25 % ± 2 × sqrt(0.25 × 0.75 / 100) ends at 33.66 %.
    assert not choices_above_chance(0.33, 0.25, 100).works
    assert choices_above_chance(0.34, 0.25, 100).works
    assert choices_above_chance(0.33, 0.25, 100, Rules(errors=1.0)).works
    assert choices_above_chance(0.1, 0.25, 100).counts["standard_error"] == pytest.approx(0.0433013)


def test_one_draw_of_shots_decides_nothing_against_a_model() -> None:
    right, wrong = (
        translates(SOURCES, TARGETS, texts, NEVER, "de") for texts in (TARGETS, SOURCES)
    )
    assert with_other_shots(wrong, None) == wrong and with_other_shots(right, None) == right
    both = with_other_shots(wrong, wrong)
    assert both.works is False and both.reasons == wrong.reasons and not both.swayed
    either = with_other_shots(wrong, right)
    assert either.works is None and either.swayed and either.reasons[:-1] == wrong.reasons


def test_other_shots_give_no_answer_away() -> None:
    def pair(line: int, source: str, target: str) -> SentencePair:
        return SentencePair(str(line), source, target, None, line)

    asked, shot = [pair(n, f"a {n}", f"b {n}") for n in range(3)], pair(9, "s", "t")
    again = [pair(4, "a 1", "else"), pair(5, "c", "b 2")]
    more = [pair(6, "d", "e"), pair(7, "f", "g")]
    own = PairFile((*asked, *again, *more), "en", "de", "memory", "0", shots=(shot,))
    rules = Rules(examples=3)
    assert {other_shots(own, rules, seed) for seed in range(20)} == {(each,) for each in more}
    assert other_shots(replace(own, pairs=(*asked, *again)), rules, 0) == ()
    assert other_shots(replace(own, shots=()), rules, 0) == ()


@pytest.mark.parametrize("helped", [True, False])
def test_a_model_that_fails_behind_its_shots_is_asked_behind_others(
    helped: bool, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PairFile] = []

    def answers(lm: Any, directions: Sequence[PairFile], *_: Any) -> list[list[Generation]]:
        asked.extend(directions)
        right = helped and len(asked) > 1
        texts = (
            [pair.target if right else pair.source for pair in own.pairs] for own in directions
        )
        return [[Generation((0,), (0,), text, "eos") for text in own] for own in texts]

    monkeypatch.setattr("headscope.studies.baseline.continuations", answers)
    words = "find translation-score --pair en-de --limit 12 --shots 2 --baseline-examples 8"
    said = command(*words.split(), "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    first, other = asked
    assert other.pairs == first.pairs and len(other.shots) == len(first.shots) == 2
    assert not {*other.shots} & {*first.shots, *first.pairs}
    told = json_of(said.out)
    assert told["baseline_works"] is (None if helped else False)
    assert told["baseline_check"]["en-de"]["counts"]["works_behind_other_shots"] is helped
    assert "--seed 1" in told["baseline_check"]["try"] and "--seed 1" in said.err


@pytest.mark.parametrize(
    ("right", "sentences", "advised"), [(4, 20, True), (0, 20, False), (2, 12, False)]
)
def test_more_examples_are_advised_where_they_may_decide(
    right: int,
    sentences: int,
    advised: bool,
    command: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answers(lm: Any, directions: Sequence[PairFile], *_: Any) -> list[list[Generation]]:
        texts = (
            [pair.target if at < right else pair.source[::-1] for at, pair in enumerate(own.pairs)]
            for own in directions
        )
        return [[Generation((0,), (0,), text, "eos") for text in own] for own in texts]

    monkeypatch.setattr("headscope.studies.baseline.continuations", answers)
    words = f"find translation-score --pair en-de --limit {sentences} --baseline-off-target 1"
    told = json_of(command(*words.split(), "--out", tmp_path / "run", "--json").out)
    check = told["baseline_check"]
    gain = check["en-de"]["counts"]["gain"]
    assert check["en-de"]["works"] is False and (gain["high"] > 0) is (right > 0)
    assert ("--baseline-examples 64" in check["try"]) is advised


def test_what_is_written_behind_other_shots_is_asked_for(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    # The bundled model has no examples in its training, so few shots lead it astray.
    words = "verify removal --pair en-de --heads 5.1 --measure loss --limit 24 --shots 2 --draws 1"
    told = json_of(command(*words.split(), "--out", tmp_path / "run", "--json").out)
    check = told["baseline_check"]["en-de"]
    assert check["works"] is False and "works_behind_other_shots" in check["counts"]
    rows = [
        json.loads(line)["record"][1]
        for part in ("baseline", "baseline, other shots")
        for line in (tmp_path / "run" / "parts" / f"{part}.jsonl").open()
    ]
    first, other = rows
    assert [row[:2] for row in first] == [row[:2] for row in other]
    assert [row[2] for row in first] != [row[2] for row in other]


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that learned nothing, and sentence pairs whose text a page has to escape."""
    folder = tmp_path_factory.mktemp("untrained")
    find_helpers.model("qwen3").save_pretrained(folder / "model")
    find_helpers.tokenizer().save_pretrained(folder / "model")
    pairs = find_helpers.pairs("en-de", 12).pairs
    marked = [replace(pair, source=f"<b>{pair.source}</b>") for pair in pairs]
    write_pairs(folder / "pairs.tsv", marked)
    return folder / "model", folder / "pairs.tsv"


@pytest.mark.parametrize(
    "words",
    [
        "use simultaneous --heads 5.3 --frontier 1 --wait 1 --draws 1",
        "verify heads",
        "find knockouts --random-gates 4 --measure text",
    ],
)
def test_no_option_is_advised_that_the_command_lacks(
    words: str, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def around(lm: Any, directions: Sequence[PairFile], *_: Any) -> list[list[Generation]]:
        texts = ([f'Here it is:\n\n"{pair.target}"' for pair in own.pairs] for own in directions)
        return [[Generation((0,), (0,), text, "eos") for text in own] for own in texts]

    monkeypatch.setattr("headscope.studies.baseline.continuations", around)
    name = words.split()[:2]
    said = command(*words.split(), "--pair", "en-de", "--limit", 2, "--out", tmp_path / "run")
    assert said.code == 0 and "preamble" in said.err
    assert ("--answer-only" in said.err) == ("--answer-only" in command(*name, "--help").out)


def test_the_command_line_warns_once_and_keeps_its_json(
    untrained: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # so that no cell is wrapped
    command = ["find", "translation-score", "--model", str(untrained[0]), "--pair", "en-de"]
    command += ["--data", str(untrained[1]), "--max-new-tokens", "3", "--limit", "4"]
    assert main([*command, "--json", "--out", str(tmp_path / "json")]) == 0
    said = capsys.readouterr()
    assert json_of(said.out)["baseline_works"] is False
    assert [line for line in said.err.splitlines() if line.startswith("warning: ")] == [
        line for line in said.err.splitlines() if "does not do this task" in line
    ]
    # Finished: it is told from the run.
    assert main([*command, "--out", str(tmp_path / "json"), "--full"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Warning: The original model does not do this task")
    check = json_of(said.out)["baseline_check"]
    assert all(one["input"] in text for one in check["en-de"]["shown"])
    assert check["try"] in " ".join(text.split())


ON_PAIRS = "--pair en-de --data {pairs} --limit 4"
ON_WORDS = "--task {folder}/odd.json --held-out 4 --instruction Say:{{input}}="
ON_MASKS = f"--heads {{mask}} {ON_PAIRS} --draws 1 --max-new-tokens 2"
CHECKED = {
    "verify tasks --task {folder}/small.yaml --heads 0.0 --draws 1": "small",
    f"verify heads {ON_PAIRS}": "en-de",
    f"verify one-by-one --heads 0.0 --max-new-tokens 3 {ON_PAIRS}": "en-de",
    "compare formation {folder}/first {model} --pair en-de --data {pairs} "
    "--verify-limit 6": "en-de",
    f"verify mask {ON_MASKS}": "en-de",
    f"verify scaling {ON_MASKS} --alpha 0 --alpha 1": "en-de",
    f"verify families --heads other={{mask}} {ON_MASKS}": "en-de",
    f"verify one-by-one --heads {{mask}} --max-new-tokens 2 --steps 2 {ON_WORDS}": "odd",
    f"verify attention --heads {{mask}} --draws 1 {ON_WORDS}": "odd",
    f"compare states --heads {{mask}} --draws 1 {ON_WORDS}": "odd",
    f"find causal-gating --steps 1 --seeds 1 --batch 2 {ON_WORDS}": "odd",
}


@pytest.mark.parametrize(
    ("words", "name"),
    CHECKED.items(),
    ids=["-".join(one.split()[:2]) + "-" + CHECKED[one] for one in CHECKED],
)
def test_every_check_of_heads_says_that_the_model_does_not_do_the_task(
    words: str, name: str, untrained: tuple[Path, Path], command: Callable[..., Any], tmp_path: Path
) -> None:
    model, pairs = untrained
    geometry = find_helpers.wrapped("qwen3").geometry
    weights = np.where(np.arange(geometry.width) % 2, 1.0, -1.0) * np.ones(geometry.shape)
    mask = write_mask_run(tmp_path / "mask", geometry, weights)
    shutil.copytree(model, tmp_path / "first")
    write_task(tmp_path, [{"q": "Say A.", "c": ["A", "B"], "a": 0}] * 4)
    rare = [f"{letter}xq" * 3 for letter in "abcdefgh"]
    odd = [{"input": f"dog, {n}", "output": n, "candidates": ["dog", n]} for n in rare]
    (tmp_path / "odd.json").write_text(json.dumps(odd), "utf-8")
    spoken = words.format(folder=tmp_path, pairs=pairs, mask=mask, model=model).split()
    if spoken[:2] != ["compare", "formation"]:
        spoken += ["--model", str(model)]
    said = command(*spoken, "--out", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    told = json_of(said.out)
    assert told["baseline_works"] is False
    check = told["baseline_check"]
    assert check[name]["works"] is False and check[name]["reasons"]
    (line,) = [one for one in said.err.splitlines() if one.startswith("warning: ")]
    assert check["try"] and line.endswith(f"try {check['try']}")


def test_the_bundled_model_does_its_task(tmp_path: Path) -> None:
    choice = PairsChoice(("en-de", "ru-tr"), limit=6)
    found = find_translation(FindTranslation(pairs=choice), tmp_path / "found")
    assert found.baseline_works is True
    assert "does not do this task" not in write_report(tmp_path / "found").read_text()
