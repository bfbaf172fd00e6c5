"""Tasks of inputs and outputs: what is read, held out, and put into prompts."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.tasks import (
    DEFAULT_BARE,
    Example,
    Task,
    few_shot,
    filled,
    hybrid,
    prompt,
    read_task,
    split_task,
    translation_task,
)
from headscope.errors import InputError


def write(path: Path, items: object) -> Path:
    path.write_text(json.dumps(items, indent=1), "utf-8")
    return path


def task(count: int = 12, name: str = "upper") -> Task:
    examples = tuple(Example(str(n), f"word{n}", f"WORD{n}", n) for n in range(1, count + 1))
    return Task(name, examples, "Shout.\nInput: {input}\nAnswer:", "{input}\nAnswer:", "en")


def test_a_list_is_read_with_lines_candidates_and_what_its_name_tells(tmp_path: Path) -> None:
    items = [
        {"input": "owl, plum, crow", "output": "plum"},
        {"input": "fig, hen, cat\n", "output": ["fig\n"]},
    ]
    found = read_task(write(tmp_path / "fruit_v_animal_3.json", items))
    assert found.name == "fruit_v_animal_3"
    assert found.at_start
    assert found.language == "en"
    assert found.bare == DEFAULT_BARE
    assert [example.line for example in found.examples] == [2, 6]
    assert found.examples[1] == Example("2", "fig, hen, cat", "fig", 6, ("fig", "hen", "cat"))


def test_other_formats_say_the_same(tmp_path: Path) -> None:
    rows = [("un {été}", "one"), ("deux", "2")]
    items = [{"a": a, "b": b} for a, b in rows]
    places = [write(tmp_path / "t.json", items)]
    for name, text in {
        "t.jsonl": "".join(json.dumps(one) + "\n" for one in items),
        "t.tsv": "a\tb\n" + "".join(f"{a}\t{b}\n" for a, b in rows),
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
        places.append(tmp_path / name)
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(places[0].read_bytes()))
    for place in (*places, packed):
        found = read_task(place, input_column="a", output_column="b")
        assert found.name == "t"
        assert [(one.input, one.output) for one in found.examples] == rows, place
        assert found.instruction is None
        assert len(read_task(place, input_column="a", output_column="b", limit=1).examples) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"input": "a", "output": "b"},\n {"input": "c"}]', "line 2 has no field 'output'"),
        ('[{"input": "a", "output": ""}]', "item 1 (line 1): 'output' is empty"),
        ('[{"input": ["a", "b"], "output": "c"}]', "'input' holds a list of several"),
        ('[{"input": "a", "output": null}]', "'output' holds nothing (null)"),
        ('[{"input": "a", "output": "b"} {"input"]', "line 1: the JSON list is not closed"),
        ('[{"input": "a", "output": "b"},\n{"input": ]', "line 2 is not valid JSON"),
        ('[{"input": "a", "output": "b"}', "the JSON list is not closed"),
        ('["a"]', "line 1 is a JSON array; write one JSON object"),
        ("[]", "holds no records"),
        ('[{"input": "a\\ud800", "output": "b"}]', "half of a surrogate pair"),
        ('[{"input": "a", "output": "b", "candidates": ["c"]}]', "is none of the candidates"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    place = tmp_path / "t.json"
    place.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        read_task(place)
    assert str(place) in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_list_that_was_cut_off_is_named(tmp_path: Path, pack: Any) -> None:
    place = tmp_path / "t.json.gz"
    place.write_bytes(pack(b'[{"input": "a", "output": "b"}]')[:-12])
    with pytest.raises(InputError, match=r"t\.json\.gz cannot be read to its end"):
        read_task(place)
    place.write_bytes(pack(b"x" * 5000)[:30] + b"damage" * 9)
    with pytest.raises(InputError, match=r"t\.json\.gz cannot be read to its end"):
        read_task(place)


@pytest.mark.parametrize("template", ["no place", "{input} and {input}"])
def test_a_template_has_one_place_for_the_input(template: str) -> None:
    with pytest.raises(InputError, match="put it once"):
        Task("t", task().examples, template, DEFAULT_BARE)


@given(st.text(), st.text(), st.text())
def test_filling_a_template_changes_nothing_else(before: str, text: str, after: str) -> None:
    if "{input}" not in before + after and (before + "{input}" + after).count("{input}") == 1:
        assert filled(before + "{input}" + after, text) == before + text + after


def test_prompts_with_and_without_instruction_and_shots() -> None:
    one = task()
    first, second, third = one.examples[:3]
    assert prompt(one, first) == "word1\nAnswer:"
    assert prompt(one, first, instructed=True) == "Shout.\nInput: word1\nAnswer:"
    shown = prompt(one, first, shots=[second, third])
    assert shown == "word2\nAnswer: WORD2\n\nword3\nAnswer: WORD3\n\nword1\nAnswer:"
    lined = Task("t", one.examples, None, "{input}\n")
    assert prompt(lined, first, shots=[second]) == "word2\nWORD2\n\nword1\n"
    with pytest.raises(InputError, match="has no instruction"):
        prompt(lined, first, instructed=True)


@given(st.integers(1, 11), st.integers(0, 5), st.randoms())
def test_held_out_examples_do_not_depend_on_the_order(
    held_out: int, seed: int, random: object
) -> None:
    one = task()
    train, test = split_task(one, held_out, seed)
    assert len(test) == held_out
    assert {e.input for e in train} | {e.input for e in test} == {e.input for e in one.examples}
    assert not {e.input for e in train} & {e.input for e in test}
    turned = Task("upper", one.examples[::-1], None, DEFAULT_BARE)
    assert set(split_task(turned, held_out, seed)[1]) == set(test)


def test_the_last_inputs_can_be_held_out() -> None:
    doubled = (*task(6).examples, Example("7", "word2", "other", 7))
    train, test = split_task(Task("t", doubled, None, DEFAULT_BARE), 2, last=True)
    assert [example.input for example in test] == ["word2", "word6"]
    assert [example.input for example in train] == ["word1", "word3", "word4", "word5"]


def test_no_input_is_on_both_sides_and_too_few_are_refused() -> None:
    doubled = (*task(6).examples, Example("7", " word1 ", "other", 7))
    one = Task("t", doubled, None, DEFAULT_BARE)
    for seed in range(8):
        train, test = split_task(one, 3, seed)
        assert len(test) == 3
        assert not {e.input.strip() for e in train} & {e.input.strip() for e in test}
    with pytest.raises(InputError, match="has 6 different inputs"):
        split_task(one, 6)


def test_shots_are_others_and_depend_on_the_example_alone() -> None:
    one = task()
    made = few_shot(one, shots=3)
    for before, after in zip(one.examples, made.examples, strict=True):
        blocks = after.input.split("\n\n")
        assert len(blocks) == 4
        assert blocks[-1] == f"{before.input}\nAnswer:"
        assert all(f"{before.input}\n" not in block for block in blocks[:3])
        assert after.output == before.output
    fewer = Task("upper", one.examples[:2], one.instruction, one.bare)
    assert few_shot(fewer, one.examples, 3).examples == made.examples[:2]
    assert few_shot(one, shots=3, seed=1).examples != made.examples
    assert "Shout." in few_shot(one, shots=1, instructed=True).examples[0].input
    with pytest.raises(InputError, match="to draw 12 shots from"):
        few_shot(one, shots=12)


def test_a_hybrid_mixes_as_many_examples_of_each_task() -> None:
    one, other = task(12, "one"), task(7, "other")
    mixed = hybrid([one, other], shots=2)
    counts = [sum(e.id.startswith(f"{name}/") for e in mixed.examples) for name in ("one", "other")]
    assert counts == [7, 7]
    assert mixed.bare == "{input}"
    assert all(e.input.count("\n\n") == 2 for e in mixed.examples)
    assert mixed.examples == hybrid([one, other], shots=2).examples
    bare = hybrid([one, other], shots=0)
    every = {prompt(task, example) for task in (one, other) for example in task.examples}
    assert len(bare.examples) == 14 and {e.input for e in bare.examples} <= every
    with pytest.raises(InputError, match="at least 2 tasks"):
        hybrid([one])
    with pytest.raises(InputError, match="names of their own"):
        hybrid([one, one])


def test_sentence_pairs_are_a_task() -> None:
    pairs = PairFile((SentencePair("9", "a b", "c d ", None, 9),), "en", "de", "f.tsv", "0" * 64)
    made = translation_task(pairs)
    assert made.is_translation
    assert (made.name, made.language, made.source_language) == ("en-de", "de", "en")
    assert made.examples == (Example("9", "a b", "c d", 9),)
    asked = prompt(made, made.examples[0], instructed=True)
    assert asked == "Translate this sentence from English to German\nSentence: a b\nAnswer:"
