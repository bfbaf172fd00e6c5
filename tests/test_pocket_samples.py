"""The pocket world: sentences, documents, questions, tasks, corpora, and the bundled weights."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast

from conftest import json_of
from headscope.data.pairs import PairSource, read_pairs, write_pairs
from headscope.data.transfer import follows
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.lm.losses import token_losses
from headscope.measure.metrics import chrf
from headscope.pocket import weights
from headscope.pocket.facts import KINDS, sample_questions, transfer_prompts
from headscope.pocket.mixture import (
    MONOLINGUAL_SENTENCES,
    Document,
    corpus_documents,
    fact_stated,
    fact_value,
    items_of,
    monolingual_sentences,
    person,
)
from headscope.pocket.sample import TASKS, sample_pairs, task_items
from headscope.pocket.tasks import TASKS as TASK_FILES
from headscope.pocket.tasks import write_tasks
from headscope.pocket.train import corpus_batches
from headscope.pocket.weights import path
from headscope.pocket.world.knowledge import CAPITALS, RELATIONS, item_split, spelled, word_items
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.pocket.world.sampling import SPLITS, split_of
from headscope.runs import file_digest
from headscope.verify.removal_translations import translate

few = settings(max_examples=15)
directions = st.sampled_from(DIRECTIONS)
seeds = st.integers(0, 5)


@few
@given(directions, st.sampled_from(SPLITS), st.integers(1, 12), seeds)
def test_a_sample_is_so_many_distinct_sentences_with_links_inside_them(
    direction: str, split: str, n: int, seed: int
) -> None:
    sample = sample_pairs(direction, split, n, seed)
    assert len(sample.pairs) == n == len({pair.source for pair in sample.pairs})
    assert f"{sample.source_language}-{sample.target_language}" == direction
    for pair in sample.pairs:
        assert pair.links
        for i, j in pair.links:
            assert i < len(pair.source.split())
            assert j < len(pair.target.split())


@few
@given(directions, seeds, st.integers(1, 10), st.integers(0, 10))
def test_a_smaller_sample_is_the_beginning_of_a_larger_one(
    direction: str, seed: int, n: int, more: int
) -> None:
    larger = sample_pairs(direction, "dev", n + more, seed)
    assert larger.pairs[:n] == sample_pairs(direction, "dev", n, seed).pairs


def test_the_other_direction_has_the_same_sentences_and_links_turned_round() -> None:
    there = sample_pairs("de-ru", "dev", 30, 3)
    back = {pair.source: pair for pair in sample_pairs("ru-de", "dev", 30, 3).pairs}
    shared = [pair for pair in there.pairs if pair.target in back]
    assert len(shared) >= 25
    for pair in shared:
        other = back[pair.target]
        assert other.target == pair.source
        assert pair.links is not None
        assert other.links == {(j, i) for i, j in pair.links}


def test_a_sample_is_the_same_data_as_the_file_written_of_it(tmp_path: Path) -> None:
    sample = sample_pairs("tr-es", "test", 20, 1)
    file = tmp_path / "sample.tsv"
    write_pairs(file, sample.pairs)
    read = read_pairs(PairSource(str(file), "tr-es"))
    assert read.pairs == sample.pairs
    assert read.digest == sample.digest == file_digest(file)


@pytest.mark.parametrize("code", CODES)
def test_splits_share_no_sentence(code: str) -> None:
    other = "de" if code == "en" else "en"
    sources = [
        {pair.source for pair in sample_pairs(f"{code}-{other}", split, 60, 0).pairs}
        for split in SPLITS
    ]
    assert len(set.union(*sources)) == 180


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("en-fr", "dev", 1, 0), "no direction 'en-fr'; known: en-de, "),
        (("en-en", "dev", 1, 0), "'en-en'"),
        (("ende", "dev", 1, 0), "'ende' is not of the form SOURCE-TARGET"),
        (("en-de", "tests", 1, 0), "no split 'tests'; did you mean test? known: train, dev, test"),
        (("en-de", "dev", 0, 0), "n is 0"),
    ],
)
def test_what_the_world_lacks_is_told(arguments: tuple[str, str, int, int], said: str) -> None:
    with pytest.raises(InputError) as caught:
        sample_pairs(*arguments)
    assert said in str(caught.value)


def test_word_tasks_fall_apart_into_languages_and_splits_without_a_rest() -> None:
    found = []
    for task in TASKS:
        for code in CODES:
            others = [to for to in CODES if to != code] if task == "translate" else [""]
            for to in others:
                for split in SPLITS:
                    found += task_items(task, code, split, to)
    assert len(found) == len(set(found))
    assert set(found) == set(word_items())
    assert all(task_items(task, "de", "test") for task in TASKS if task != "translate")


def test_without_weights_the_error_says_how_to_get_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights.resources, "files", lambda _: tmp_path)
    assert weights.checkpoints() == {}
    with pytest.raises(InputError, match="headscope pocket train --out DIR"):
        weights.path()


def test_every_sentence_is_of_the_split_and_documents_have_a_length() -> None:
    few, many = MONOLINGUAL_SENTENCES
    for split in SPLITS:
        for some in islice(monolingual_sentences(split, "x"), 5):
            assert few <= len(some) <= many
            assert {split_of(one) for one in some} == {split}


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fact_asked_for_is_told_once_and_is_of_the_split(split: str, kind: str) -> None:
    found = sample_questions(split, 60, 3, kind)
    assert len({(one.context, one.question) for one in found.questions}) == 60
    abroad = 0
    for one in found.questions:
        assert one.language in CODES
        relation, name, value = one.group.split()
        assert item_split(f"{relation} {name} {value}") == split
        asked = RELATIONS[relation][one.language].question.format(a=person(name, one.language))
        assert one.question == asked
        assert one.answers == (fact_value(relation, value, one.language),)
        told = [
            code
            for code in CODES
            if fact_stated(relation, code, person(name, code), fact_value(relation, value, code))
            in one.context
        ]
        assert told
        abroad += one.language not in told
    always = {"one-language": 0, "two-languages": 60, "translated": 60}
    assert abroad == always.get(kind, abroad)
    if kind == "translated":
        values = [*CAPITALS, *(spelled(name, "ru") for name in CAPITALS)]
        assert all(sum(one in q.context for one in values) <= 1 for q in found.questions)
    assert kind != "any" or 15 <= abroad <= 45


def test_a_seed_decides_and_fewer_are_the_first_ones() -> None:
    many, few = (sample_questions("dev", n, 5) for n in (20, 8))
    assert many.questions[:8] == few.questions and many.digest != few.digest
    assert many == sample_questions("dev", 20, 5)
    assert many.questions != sample_questions("dev", 20, 6).questions
    assert many.path == "pocket:dev" and many.unanswerable == 0


def test_what_the_world_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="n is 0"):
        sample_questions("dev", 0, 0)
    with pytest.raises(InputError, match="no kind of question"):
        sample_questions("dev", 1, 0, "three-languages")
    with pytest.raises(InputError, match="no language 'fr'"):
        sample_questions("dev", 1, 0, "any", ("fr",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_tasks(made, "test", 12, seed=3)
    return made


def rows(folder: Path, task: str) -> list[dict[str, Any]]:
    text = (folder / f"{task}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("task", [task for task in TASK_FILES if not task.generated])
def test_every_item_has_four_different_choices_and_one_answer(folder: Path, task: Any) -> None:
    found = rows(folder, task.name)
    assert len(found) == 12
    for row in found:
        assert len(set(row["choices"])) == 4
        assert 0 <= row["answer"] < 4
    # Naming one place all the time does not pay.
    assert len({row["answer"] for row in found}) > 1


def test_sentences_are_those_of_the_split_and_their_translations_right(folder: Path) -> None:
    for row in rows(folder, "pocket_translate_sentences")[:3]:
        direction = f"{row['language']}-{row['to']}"
        known = {p.source: p.target for p in sample_pairs(direction, "test", 25, 3).pairs}
        right = row["choices"][row["answer"]]
        assert known[row["source"]] == right
        assert row["source"] in row["prompt"]


@pytest.mark.parametrize(
    ("task", "of"),
    [("pocket_plurals", "plural"), ("pocket_past_forms", "past")],
)
def test_word_answers_are_held_out_items(folder: Path, task: str, of: str) -> None:
    known = {(item.language, item.output) for item in items_of("test")[of]}
    for row in rows(folder, task):
        assert (row["language"], row["choices"][row["answer"]]) in known


def test_the_same_seed_writes_the_same_files_and_another_one_others(
    folder: Path, tmp_path: Path
) -> None:
    write_tasks(tmp_path / "same", "test", 12, seed=3)
    write_tasks(tmp_path / "other", "test", 2, seed=4)
    for file in sorted(folder.iterdir()):
        assert (tmp_path / "same" / file.name).read_bytes() == file.read_bytes()
    name = "pocket_translate_sentences.jsonl"
    assert (tmp_path / "other" / name).read_text() not in (folder / name).read_text()


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="no task file of pocket"):
        write_tasks(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(InputError, match="at least one item"):
        write_tasks(tmp_path / "new", n=0)
    with pytest.raises(InputError, match="at most 1000000 items"):
        write_tasks(tmp_path / "new", n=10**22)


def test_the_command_writes_the_tasks(command: Any, tmp_path: Path) -> None:
    done = command("pocket", "tasks", "--out", str(tmp_path / "t"), "--n", "2", "--json")
    assert done.code == 0
    result = json_of(done.out)
    assert result["tasks"] == {task.name: 2 for task in TASK_FILES}
    assert {"signature", "run", "seconds"} <= result.keys()


def test_a_corpus_has_the_share_of_translations_it_was_asked_for() -> None:
    drawn = list(islice(corpus_documents("train", 3, share=0.25), 800))
    bilingual = [one for one in drawn if one.kind == "bilingual"]
    # Four standard deviations of a binomial.
    assert abs(len(bilingual) / 800 - 0.25) < 4 * (0.25 * 0.75 / 800) ** 0.5
    assert all(one.text.count("\n") == 1 and one.to != one.language for one in bilingual)
    assert all("\n" not in one.text for one in drawn if one.kind == "monolingual")
    assert len({one.text for one in drawn}) == len({one.id for one in drawn}) == 800
    again = corpus_documents("train", 3, share=0.25)
    assert list(islice(again, 800)) == drawn


def test_both_kinds_have_as_many_sentences() -> None:
    drawn = list(islice(corpus_documents("dev", 0, 0.5, ("en",), ("de",), (2, 2)), 200))
    ends = Counter((one.kind, sum(one.text.count(mark) for mark in ".?!")) for one in drawn)
    assert set(ends) == {("bilingual", 4), ("monolingual", 4)}
    assert {one.to for one in drawn} == {"", "de"} and {one.language for one in drawn} == {"en"}


def test_a_translation_says_the_same(pocket: LanguageModel) -> None:
    """The bundled model knows the language pair: the true second line costs it far less."""
    drawn = [d for d in islice(corpus_documents("test", 1, 0.9), 30) if d.to]
    lines = [one.text.split("\n") for one in drawn]
    swapped = [lines[(at + 1) % len(lines)][1] for at in range(len(lines))]

    def cost(seconds: list[str]) -> float:
        rows = [pocket.encode(f"{a}\n{b}") for (a, _), b in zip(lines, seconds, strict=True)]
        starts = [len(pocket.encode(f"{a}\n")) for a, _ in lines]
        return float(sum(one.mean() for one in token_losses(pocket, rows, starts)) / len(rows))

    assert cost([b for _, b in lines]) < cost(swapped) - 1.0


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    loaded: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(path())
    return loaded


def test_batches_of_a_corpus_hold_every_document_once(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [one.text for one in islice(corpus_documents("train", 5, 0.3), 300)]
    documents = [Document("corpus", "", text) for text in [*texts, texts[0], texts[0]]]
    batches = corpus_batches(tokenizer, documents, 512, seed=1)
    rows = Counter(
        tokenizer.decode(row[row != tokenizer.pad_token_id], skip_special_tokens=True)
        for batch in batches
        for row in batch.input_ids
    )
    assert rows == Counter(one.target for one in documents)
    assert all(batch.input_ids.numel() <= 512 or len(batch.input_ids) == 1 for batch in batches)
    again = corpus_batches(tokenizer, documents, 512, seed=1)
    assert all((a.input_ids == b.input_ids).all() for a, b in zip(batches, again, strict=True))
    other = corpus_batches(tokenizer, documents, 512, seed=2)
    assert any(
        a.input_ids.shape != b.input_ids.shape or (a.input_ids != b.input_ids).any()
        for a, b in zip(batches, other, strict=False)
    )


def test_final_weights_and_six_checkpoints_in_half_precision() -> None:
    found = weights.checkpoints()
    assert list(found)[-1] == "final"
    assert len(found) >= 7
    files = [folder / "model.safetensors" for folder in found.values()]
    assert sum(file.stat().st_size for file in files) <= 45_000_000
    for file in files:
        with safe_open(file, "pt") as stored:
            kinds = {stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118 - not a mapping
        assert kinds == {"BF16"}
    assert len({file.read_bytes() for file in files}) == len(files)


def test_it_translates_sentences_it_has_not_seen(pocket: LanguageModel) -> None:
    """Five test sentences of each direction; bench/pocket.py measures on many more."""
    files = [sample_pairs(direction, "test", 5, seed=11) for direction in DIRECTIONS]
    made = translate(pocket, files, HeadSet(pocket.geometry, ()))
    scores = [
        chrf(outputs, [pair.target for pair in file.pairs]).value
        for file, outputs in zip(files, made, strict=True)
    ]
    assert fmean(scores) >= 85


def test_each_statement_holds_its_own_answer() -> None:
    for pair in ("de-ru", "en-tr", "es-de"):
        for one in transfer_prompts(pair, "test", 40, 1).prompts:
            first, question = one.prompt.split("\n", 1)
            assert follows(first, one.answer_a) and follows(first, one.answer_b)
            assert not follows(question, one.answer_a) and not follows(question, one.answer_b)
            assert first.index(one.answer_a.native[0]) < first.index(one.answer_b.native[0])
            assert question.endswith("\nAnswer:") and question.startswith("Question: W")


def test_facts_are_held_out_and_the_same_in_every_pair() -> None:
    one, other = transfer_prompts("de-ru", "test", 50, 3), transfer_prompts("tr-en", "test", 50, 3)
    said = [(p.answer_a.english, p.answer_b.english) for p in one.prompts]
    assert said == [(p.answer_a.english, p.answer_b.english) for p in other.prompts]
    assert len({p.prompt for p in one.prompts}) == 50
    for prompt in transfer_prompts("en-de", "test", 50, 3).prompts:
        if prompt.id.endswith("origin"):
            name = prompt.prompt.split(" ")[0].casefold()
            for value in (prompt.answer_a.english, prompt.answer_b.english):
                assert item_split(f"origin {name} {value}") != "train"


@pytest.mark.parametrize("pair", ["de-fr", "de", "de-de", ""])
def test_pairs_the_world_lacks(pair: str) -> None:
    with pytest.raises(InputError, match="no contradictions"):
        transfer_prompts(pair, "test", 5, 0)
