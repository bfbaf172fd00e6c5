"""What models write under several conditions: evidence, ranks, and the three commands' runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import process_helpers
from find_helpers import model, tokenizer, wrapped
from headscope.data.pairs import PairFile, SentencePair
from headscope.data.split import text_digests
from headscope.data.transfer import Answer, TransferPrompt, written
from headscope.data.words import plain_words
from headscope.errors import InputError
from headscope.evidence import runner
from headscope.evidence.controls import Draws, planned
from headscope.evidence.headline import unmoved
from headscope.evidence.rows import SELECTED, SHARE, Condition, Statistic
from headscope.evidence.table import evidence_of_parts, own_heads
from headscope.heads import Geometry, HeadSet
from headscope.lm import LanguageModel, load
from headscope.lm.generation import GenerateConfig, Generation
from headscope.measure import external, rouge_l
from headscope.measure.external import External
from headscope.measure.intervals import wilson_interval
from headscope.measure.statistics import counted, counted_mean, p_sentences
from headscope.runs import open_run
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.off_target import (
    VerifyOffTarget,
    _asked_and_given,
    _asked_once,
)
from headscope.studies.verify.off_target import comparison as off_target
from headscope.studies.verify.summaries import VerifySummaries, general_heads
from headscope.studies.verify.summaries import comparison as summaries
from headscope.studies.verify.transfer import VerifyTransfer, given_prompt
from headscope.studies.verify.transfer import comparison as transfer
from headscope.studies.verify.writing import fitted, run_languages, writing_heads
from headscope.verify.writing.measures import (
    BY_LANGUAGE,
    measure_answers,
    own_sets,
    statement_sets,
)
from headscope.verify.writing.ranks import first_tokens, kept_ranks
from headscope.verify.writing.texts import Group, Prompt, passes, write
from verify_helpers import rows_of
from writing_helpers import language_run

GEOMETRY = Geometry((6, 6, 6))
SPECIFIC = {"de": "0.1,1.2", "en": "0.3,1.4", "ru": ""}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a tokenizer that writes `<s>` in front, and heads for it."""
    folder = tmp_path_factory.mktemp("writing")
    model("pocket-like").save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    lm = load(str(folder / "model"))
    language_run(folder / "run", lm.geometry, SPECIFIC, "0.2,1.1,1.5")
    return folder


def text_file(folder: Path, code: str, text: str) -> Path:
    path = folder / f"{code}.txt"
    path.write_text(f"{text}\n{text} {text}\n", encoding="utf-8")
    return path


def heads(text: str) -> HeadSet:
    return HeadSet.parse(text, GEOMETRY)


# Conditions


DRAWS = Draws(4, ("random", "same layers"))


def ids(conditions: Sequence[Condition]) -> list[str]:
    return [each.id for each in conditions if each.draw is None]


def test_either_statements_heads_have_controls_under_their_gate() -> None:
    a, b, nothing = heads("0.1,1.2,1.3"), heads("0.2,0.3"), HeadSet(GEOMETRY, ())
    conditions = planned(statement_sets(a, b, 3, (3.0, 0.0)), DRAWS)
    assert ids(conditions) == ["original", "selected A 3 \u00d73", "selected B 3"]
    for own in conditions:
        if own.kind != SELECTED:
            continue
        for control in DRAWS.controls:
            drawn = [each for each in conditions if each.kind == control and each.controls(own)]
            assert drawn and {each.gate for each in drawn} == {own.gate}
            for each in drawn:
                assert len(each.heads) == len(own.heads) and set(each.heads) != set(own.heads)
                if control == "same layers":
                    layers = [sorted(head[0] for head in row.heads) for row in (each, own)]
                    assert layers[0] == layers[1]
    none = planned(statement_sets(nothing, nothing, 3, (3.0, 0.0)), DRAWS)
    assert ids(none) == ["original"]


def test_heads_of_a_language(place: Path) -> None:
    lm = load(str(place / "model"))
    assert run_languages(str(place / "run")) == ["de", "en", "ru"]
    found = writing_heads(str(place / "run"), None, ["de", "ru", "fr"], lm)
    assert list(found) == ["de", "ru"]
    own = found["de"]
    assert own.chosen.keys == (own.full or own.chosen).keys == ("0.1",)  # 1 %, at least one
    assert len(found["ru"].chosen) == 0 and len(found["ru"].full or ()) == 1
    # A language without specific heads is not filled up: only the most important are removed.
    assert ids(planned(own_sets(found["ru"]), DRAWS)) == [
        "original", "selected own, most important 1"
    ]  # fmt: skip
    named = writing_heads("0.1,0.2,1.1", None, ["de", "fr"], lm)
    assert [len(one.chosen) for one in named.values()] == [3, 3]
    assert ids(planned(own_sets(named["de"]), DRAWS)) == ["original", "selected 3"]


def test_equal_gates_of_all_groups_are_one_pass() -> None:
    prompts = tuple(Prompt(str(n), "x", "", 1) for n in range(3))
    one, other = (Condition(SELECTED, of, 1, 0.0, heads=("0.1",)) for of in "ab")
    same = Condition(SELECTED, "c", 1, 1.0, heads=("1.1",))
    groups = [Group("g", prompts, (Condition(), one, other)), Group("h", prompts[:2], (same, one))]
    found = passes(groups, GEOMETRY)
    assert {key: list(own.rows) for key, own in found.items()} == {
        "as is": [0, 1, 2, 3, 4],
        one.key: [0, 1, 2, 3, 4],
    }


# Evidence

STATISTICS = {
    "up": Statistic("up", "lower"), "down": Statistic("down"), "absent": Statistic("absent")
}  # fmt: skip


def under(own: str = "0.1", draws: int = 3, only: int | None = None) -> tuple[Condition, ...]:
    """The model as it is, a head removed, and random ones."""
    conditions = (
        Condition(),
        Condition(SELECTED, "own", 1, 0.0, heads=(own,)),
        *(Condition("random", "own", 1, 0.0, draw=n, heads=(f"2.{n}",)) for n in range(draws)),
    )
    return conditions[:only]


def numbers(seed: int, prompts: int, rows: int = 5) -> dict[str, Any]:
    values = counted(np.random.default_rng(seed).random((5, prompts)))[:rows]
    return {"up": values, "down": values}


def test_evidence_against_plain_means() -> None:
    parts = {"a": numbers(1, 9), "b": numbers(2, 5)}
    conditions = {"a": under(), "b": under("1.1")}
    found = evidence_of_parts(conditions, parts, STATISTICS, seed=4)
    (own,) = found.selected
    assert own.heads == () and own_heads(conditions, found) == {
        "a": {own.id: ("0.1",)}, "b": {own.id: ("1.1",)}
    }  # fmt: skip
    by_group = []
    for name, part in parts.items():
        values = part["up"]
        means = [fmean(row) for row in values[..., 0].tolist()]
        by_group.append(means)
        level = found.level("up", own, name)
        assert level is not None and level.change is not None
        assert level.value == pytest.approx(means[1])
        assert level.change.value == pytest.approx(means[1] - means[0])
        assert level.change.low <= level.change.value <= level.change.high
        assert found.draws("up", own, "random", name).each == pytest.approx(means[2:])
        test, below = (found.against(each, own, name)["random"] for each in ("up", "down"))
        assert test.difference.value == pytest.approx(means[1] - fmean(means[2:]))
        assert test.p_draws == (1 + sum(mean >= means[1] for mean in means[2:])) / 4
        assert below.p_draws == (1 + sum(mean <= means[1] for mean in means[2:])) / 4
        assert below.p_examples == p_sentences(values[1], values[2:], counted_mean, seed=4)
        assert found.level("absent", None, name) is None
    level = found.level("up", own)
    assert level is not None and level.examples == 14
    assert level.value == pytest.approx(fmean(means[1] for means in by_group))
    helped = evidence_of_parts(
        conditions, parts, STATISTICS, 4, helps=lambda condition: True, harmed=("down",)
    )
    sides = {test.statistic: test.side for test in helped.tests}
    assert sides == {"up": "lower", "down": "lower"}


def test_a_condition_that_some_groups_lack_counts_where_it_is() -> None:
    parts = {"a": numbers(1, 9), "b": numbers(2, 5, 1)}
    found = evidence_of_parts({"a": under(), "b": under(only=1)}, parts, STATISTICS)
    (own,) = found.selected
    whole, single = found.level("up", own), found.level("up", own, "a")
    assert whole is not None and single is not None and whole.examples == 9
    assert replace(whole, part="a") == single
    assert (
        replace(found.against("up", own)["random"], part="a")
        == (found.against("up", own, "a")["random"])
    )
    assert found.level("up", own, "b") is None


def test_what_no_condition_changes_is_one_sentence_with_its_bound() -> None:
    share = {"up": Statistic("empty", "lower", SHARE, 1), "down": Statistic("down")}
    none, same = counted(np.zeros((5, 200))), numbers(1, 200)["up"]
    found = evidence_of_parts({"a": under()}, {"a": {"up": none, "down": same}}, share)
    assert "0 of 200 outputs" in unmoved(found, "up")
    assert f"{100 * wilson_interval(0, 200)[1]:.1f}" in unmoved(found, "up")
    assert unmoved(found, "down") == ""
    every = evidence_of_parts({"a": under()}, {"a": {"up": counted(np.ones((5, 200)))}}, share)
    assert f"{100 * wilson_interval(200, 200)[0]:.1f}" in unmoved(every, "up")
    alone = evidence_of_parts({"a": under()}, {"a": {"up": none[:, :1]}}, share)
    assert "0 of 1 output" in unmoved(alone, "up") and "bound" not in unmoved(alone, "up")


# Ranks


@pytest.mark.parametrize("kind", ["bytes", "metaspace"])
def test_first_tokens_are_those_of_the_whole_string(kind: str) -> None:
    lm = wrapped("pocket-like", kind)
    prompts = written("de-ru", 6).prompts
    for one, forms in zip(prompts, first_tokens(lm, prompts), strict=True):
        texts = [*one.answer_a.forms, *one.answer_b.forms]
        assert [form.text for form in forms] == texts
        assert [form.side for form in forms].count("a") == len(one.answer_a.forms)
        for form in forms:
            whole = lm.encode(f"{one.prompt} {one.stem} {form.text}")
            assert tuple(whole[: len(form.before) + 1]) == (*form.before, form.token)
            # Nothing of the answer stands before its first token.
            before = lm.tokenizer.decode(form.before, skip_special_tokens=True)
            assert before.strip().endswith(one.stem)
            said = lm.tokenizer.decode([form.token]).strip()
            assert said and (form.text.startswith(said) or "\ufffd" in said)


CHAT = (
    "{% for turn in messages %}"
    "{{ '<|bot|>' if turn.role == 'assistant' else '<|user|>' }}{{ turn.content }}</s>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|bot|>{% endif %}"
)


@pytest.mark.parametrize("chat", [False, True])
def test_ranks_follow_what_the_model_is_given(chat: bool) -> None:
    lm = wrapped("pocket-like")
    if chat:
        lm.tokenizer.chat_template = CHAT
    prompts = written("de-sw", 8).prompts
    for one, forms in zip(prompts, first_tokens(lm, prompts, chat), strict=True):
        given = given_prompt(lm, one, chat, 3).text
        assert ("<|bot|>" in given) is chat
        ids = tuple(lm.encode(given, special=not chat))
        for form in forms:
            assert form.before[: len(ids)] == ids
            assert not lm.tokenizer.decode(form.before[len(ids) :]).strip()  # a space of its own


def test_ranks_are_those_of_single_passes(tmp_path: Path) -> None:
    lm = wrapped("pocket-like")
    prompts = written("de-en", 5).prompts
    forms = first_tokens(lm, prompts)
    up = Condition(SELECTED, "A", 2, 3.0, heads=("0.1", "1.2"))
    prompted = tuple(Prompt(one.id, one.prompt, "", 1) for one in prompts)
    gated = passes([Group("de-en", prompted, (Condition(), up))], lm.geometry)
    with open_run(tmp_path / "run", "x", {}, {}) as run:
        found = kept_ranks(lm, forms, gated, 300, run)
        assert kept_ranks(lm, forms, gated, 300, run) == found
    for key, gate in (("as is", 1.0), (up.key, 3.0)):
        for at, row in enumerate(forms):
            for form, rank in zip(row, found[key][at], strict=True):
                heads = HeadSet.parse("0.1,1.2", lm.geometry)
                with lm.gated(heads.scaled(gate)), torch.no_grad():
                    logits = lm.model(torch.tensor([form.before])).logits[0, -1]
                assert rank == 1 + int((logits > logits[form.token]).sum())
    assert found["as is"] != found[up.key]


def test_a_run_goes_on_where_as_many_texts_fit_as_never_before(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """As on another kind of device: what is kept in other portions is not taken for these."""
    lm = wrapped("pocket-like")
    prompts = tuple(Prompt(str(at), "a b c d e"[: 2 * at + 1], "", 4) for at in range(5))
    selected = Condition(SELECTED, "A", 2, 0.0, heads=("0.1", "1.2"))
    groups = [Group("de", prompts, (Condition(), selected))]
    made = []
    for folder, at_once in (("a", 100), ("b", 2), ("b", 3), ("b", 100)):
        monkeypatch.setattr(runner, "rows_at_once", lambda *_, at_once=at_once: at_once)
        with open_run(tmp_path / folder, "x", {}, {}) as run:
            made.append(write(lm, groups, GenerateConfig(), run, "writing"))
    assert all(texts == made[0] for texts in made)


def test_what_an_answer_follows() -> None:
    asked = [TransferPrompt("1", "de", "en", "?", "", Answer("red", ("rot",)),
                            Answer("blue", ("blue",)))] * 4  # fmt: skip
    group = Group("de-en", tuple(Prompt("1", "?", "", 1) for _ in asked), (Condition(),))
    texts = [[["it is Rot", "blue", "red, not blue", "green"]]]
    ranks = [[[{"a": 1, "b": 5}, {"a": 9, "b": 2}, {"a": 3, "b": 3}, {"a": 2, "b": 1}]]]
    found = measure_answers([group], {"de-en": asked}, texts, ranks)["de-en"]
    shares = {name: value[0, :, 0].tolist() for name, value in found.items()}
    assert shares == {
        "follows_a": [1, 0, 0, 0],
        "follows_b": [0, 1, 0, 0],
        "both": [0, 0, 1, 0],
        "neither": [0, 0, 0, 1],
        "ranked_a": [1, 0, 0.5, 0],
    }


# Runs


def test_summaries_measure_what_was_written(place: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = [
        {"language": code, "text": f"{text} " * times, "summary": text}
        for times in (1, 400)
        for code, text in (("de", "der Hund sieht die Katze"), ("ru", "собака видит кошку"))
    ]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = VerifySummaries(
        heads=str(place / "run"), k=2, model=ModelChoice(str(place / "model")),
        texts=DocumentsChoice((str(data),)), draws=2, max_new_tokens=8,
    )  # fmt: skip
    result = summaries.run(config, tmp_path / "out")
    details, found = result.details, result.evidence
    assert (details.task, details.heads) == ("summarise", ("0.2", "1.1"))
    assert details.cut == {"de": 1, "ru": 1}  # the long ones do not fit the context
    assert "bert_score" in details.not_measured and "bert_score" not in found.statistics
    made = rows_of(tmp_path / "out" / "outputs.jsonl")
    assert len(made) == 2 * 2 * (2 + 2 * 2)
    for code in ("de", "ru"):
        for each in found.conditions:
            own = [
                (one["output"], one["reference"])
                for one in made
                if (one["language"], one["condition"]) == (code, each.id)
            ]
            words = [[plain_words(text) for text in part] for part in zip(*own, strict=True)]
            expected = sacrebleu.corpus_chrf(
                [o for o, _ in own], [[r for _, r in own]], word_order=2
            )
            values = {"rouge_l": rouge_l(*words).value, "chrf": expected.score}
            for name, value in values.items():
                level = found.level(name, each, code)
                assert level is not None and level.value == pytest.approx(value)
    kept = load_file(tmp_path / "out" / "statistics.safetensors")
    assert kept["de.rouge_l"].shape == (6, 2, 2) and kept["ru.chrf"].shape == (6, 2, 24)
    with pytest.raises(InputError, match="another configuration"):  # other heads, another run
        summaries.run(replace(config, heads="0.0", k=None), tmp_path / "out")


def test_general_heads_that_are_not_there(place: Path, tmp_path: Path) -> None:
    lm = load(str(place / "model"))
    empty = language_run(tmp_path / "empty", lm.geometry, SPECIFIC)
    with pytest.raises(InputError, match="no head is general"):
        general_heads(str(empty), None, lm)
    assert general_heads(str(place / "run"), None, lm).keys == ("0.2",)
    assert general_heads(str(place / "run"), 3, lm).keys == ("0.2", "1.1", "1.5")
    assert general_heads("1.0,0.0", None, lm).keys == ("1.0", "0.0")


def test_a_text_is_cut_to_fit() -> None:
    lm = wrapped("pocket-like")

    def render(text: str) -> str:
        return f"Text: {text}\nSummary:"

    assert fitted(lm, "short", 5, render, "x") == ("Text: short\nSummary:", False)
    long = "many words " * 2000
    prompt, cut = fitted(lm, long, 5, render, "x")
    assert cut and prompt.startswith("Text: many") and prompt.endswith("\nSummary:")
    room = lm.context_length - 5
    assert len(lm.encode(prompt)) <= room < len(lm.encode(render(long[: len(prompt) + 20])))
    with pytest.raises(InputError, match=r"file, line 3: .* --max-new-tokens"):
        fitted(lm, long, lm.context_length, render, "file, line 3")


def test_off_target_rates(place: Path, tmp_path: Path) -> None:
    config = VerifyOffTarget(
        heads=str(place / "run"), k=2, model=ModelChoice(str(place / "model")), ask="continue",
        documents=DocumentsChoice(tuple(
            f"{code}={text_file(tmp_path, code, text)}"
            for code, text in (("de", "der Hund sieht die Katze im Garten"),
                               ("ru", "собака видит кошку в саду"), ("fr", "le chien voit le chat"))
        )),
        start_tokens=4, draws=2, max_new_tokens=6,
    )  # fmt: skip
    result = off_target.run(config, tmp_path / "out")
    details, found = result.details, result.evidence
    assert details.without_heads == ("fr",)
    assert found.single == ("de", "ru")
    specific, full = found.selected
    assert (specific.of, full.of) == ("own", "own, most important")
    assert found.level("off_target", specific, "ru") is None  # it has none
    sizes = [level.examples for each in found.selected if (level := found.level("empty", each))]
    assert sizes == [details.data["de"]["prompts"], sum(
        int(details.data[code]["prompts"]) for code in ("de", "ru"))]  # fmt: skip
    made = rows_of(tmp_path / "out" / "outputs.jsonl")
    for code in ("de", "ru"):
        own = [one for one in made if (one["language"], one["condition"]) == (code, "original")]
        level = found.level("off_target", None, code)
        assert level is not None
        assert level.value == pytest.approx(fmean(one["identified"] != code for one in own))
        assert sum(details.written[code]["original"].values()) == len(own) == level.examples
    given = rows_of(tmp_path / "out" / "prompts.jsonl")
    lm = load(str(place / "model"))
    assert all(len(lm.encode(one["prompt"], special=False)) <= 4 for one in given)


def test_each_sentence_is_asked_for_once_by_target_language(place: Path, tmp_path: Path) -> None:
    """Five sentences in English from two languages are five prompts, not ten."""
    files = []
    for pair in ("de-en", "fr-en", "en-de"):
        path = tmp_path / f"{pair}.tsv"
        rows = [f"{pair} {word}\ta {word}" for word in ("dog", "cat", "house", "tree", "boat")]
        path.write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")
        files.append(f"{pair}={path}")
    config = VerifyOffTarget(
        heads=str(place / "run"), model=ModelChoice(str(place / "model")),
        pairs=PairsChoice((), tuple(files), limit=2), draws=1, max_new_tokens=3,
    )  # fmt: skip
    for limit, prompts in ((1, [2, 1]), (2, [4, 2]), (None, [5, 5])):
        some = replace(config, pairs=replace(config.pairs, limit=limit))
        result = off_target.run(some, tmp_path / f"out {limit}")
        levels = [result.evidence.level("empty", None, code) for code in ("en", "de")]
        assert [level and level.examples for level in levels] == prompts
    for path in tmp_path.glob("*.tsv"):  # one sentence: the second direction has none left
        path.write_text("source\ttarget\nein Hund\ta dog\n", encoding="utf-8")
    result = off_target.run(config, tmp_path / "out of one")
    assert result.details.data["en"]["prompts"] == result.details.data["de"]["prompts"] == 1


@given(
    files=st.dictionaries(
        st.sampled_from(
            [f"{one}-{other}" for one in ("en", "es", "tr") for other in ("de", "fr", "ru")]
        ),
        st.lists(st.tuples(st.text(max_size=2), st.sampled_from("klmnop")), max_size=8),
        min_size=1,
    )
)
def test_a_sentence_of_several_directions_is_kept_in_one(
    files: dict[str, list[tuple[str, str]]],
) -> None:
    directions = {
        name: PairFile(
            tuple(SentencePair(str(at), *row) for at, row in enumerate(rows)),
            name[:2], name[3:], "memory", "",
        )
        for name, rows in files.items()
    }  # fmt: skip
    once = _asked_once(directions, 100)
    assert [*once] == [name for name in directions if name in once]
    assert all(file.pairs for file in once.values())
    for target in ("de", "fr", "ru"):
        into = [name for name in directions if name.endswith(target)]
        before, after = (
            [{pair.target for pair in of[name].pairs} if name in of else set() for name in into]
            for of in (directions, once)
        )
        # All sentences are left, each in one direction, with every row that it has there.
        assert set().union(*before) == set().union(*after)
        assert sum(map(len, after)) == len(set().union(*after))
        for name, own in zip(into, after, strict=True):
            rows = tuple(pair for pair in directions[name].pairs if pair.target in own)
            assert (once[name].pairs if name in once else ()) == rows
        if before and all(own == before[0] for own in before):  # taken in turn
            assert max(map(len, after)) - min(map(len, after)) <= 1


def parallel(folder: Path, *pairs: str) -> tuple[str, ...]:
    """Files of 16 sentences that differ in their translations alone, as `PAIR=FILE`."""
    words = [("dog", "Hund"), ("cat", "Katze"), ("tree", "Baum"), ("house", "Haus")]
    files = []
    for pair in pairs:
        rows = (f"a {a} {c}\tein {b} {d} {pair}" for a, b in words for c, d in words)
        path = folder / f"{pair}.tsv"
        path.write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")
        files.append(f"{pair}={path}")
    return tuple(files)


def test_heads_write_their_mean_output_in_answers_in_the_language_given(
    place: Path, tmp_path: Path
) -> None:
    config = VerifyOffTarget(
        heads="0.1,1.2", model=ModelChoice(str(place / "model")), give="es", draws=2,
        pairs=PairsChoice((), parallel(tmp_path, "en-de", "en-es", "en-ru")), max_new_tokens=6,
    )  # fmt: skip
    result = off_target.run(config, tmp_path / "out")
    found = result.evidence
    assert (result.details.give, found.single) == ("es", ("de", "ru"))
    assert next(iter(found.statistics)) == "given" and found.main.replacement == "mean"
    made = rows_of(tmp_path / "out" / "outputs.jsonl")
    for condition in found.conditions:
        own = [each for each in made if each["condition"] == condition.id]
        shares = [
            fmean(each["identified"] == "es" for each in own if each["language"] == code)
            for code in ("de", "ru")
        ]
        level = found.level("given", condition)
        assert level is not None and level.value == pytest.approx(fmean(shares))

    # The naive twin: at every token the two heads write what they do on average in answers.
    prompts = rows_of(tmp_path / "out" / "prompts.jsonl")
    asked = {each["prompt"] for each in prompts}
    lm = load(str(place / "model"))
    outputs: list[tuple[str, str]] = []
    lines = [line.split("\t") for line in (tmp_path / "en-es.tsv").read_text().splitlines()[1:]]
    apart = [
        (config.template.render(source, "English", "Spanish").text, answer)
        for source, answer in lines
        if not any(source in prompt for prompt in asked)
    ]
    assert len(apart) == 4  # a quarter
    values: dict[int, list[torch.Tensor]] = {0: [], 1: []}
    for text, answer in apart:
        before = len(lm.encode(text))
        ids = lm.encode(f"{text} {answer}")
        hooks = [
            lm.sites[layer].projection.register_forward_pre_hook(
                lambda _, args, layer=layer, before=before: values[layer].append(
                    args[0][0, before:]
                )
            )
            for layer in (0, 1)
        ]
        with torch.no_grad():
            lm.model(torch.tensor([ids]))
        for hook in hooks:
            hook.remove()
    means = {layer: torch.cat(rows).mean(dim=0) for layer, rows in values.items()}

    def replaced(layer: int, head: int) -> Any:
        width = lm.sites[layer].head_width
        place = slice(head * width, (head + 1) * width)

        def hook(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            entered = args[0].clone()
            entered[..., place] = means[layer][place]
            return (entered,)

        return lm.sites[layer].projection.register_forward_pre_hook(hook)

    hooks = [replaced(0, 1), replaced(1, 2)]
    texts = {each["id"]: each["prompt"] for each in prompts if each["language"] == "de"}
    for row in made:
        if row["language"] == "de" and row["condition"] == found.main.id:
            ids = lm.encode(texts[row["id"]])
            for _ in range(6):
                with torch.no_grad():
                    ids.append(int(lm.model(torch.tensor([ids])).logits[0, -1].argmax()))
            outputs.append((lm.decode(ids[-6:]), row["output"]))
    for hook in hooks:
        hook.remove()
    assert len(outputs) == 12
    assert [naive.split("\n")[0].strip() for naive, _ in outputs] == [own for _, own in outputs]
    plain = [
        each["output"]
        for each in made
        if (each["language"], each["condition"]) == ("de", "original")
    ]
    assert plain != [own for _, own in outputs]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"give": "fr"}, "needs sentences in French"),
        ({"give": "xx-yy"}, "xx"),
        ({"give": "zu"}, "does not know"),
        ({"give": "ms", "pairs": ("en-id", "en-ms")}, "cannot be told from Malay"),
        ({"ablate": ("resample",)}, "leave --ablate away"),
        ({"ask": "continue"}, "leave --ask"),
    ],
)
def test_what_cannot_be_given(
    place: Path, tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    given = {"give": "es", "pairs": ("en-de", "en-es"), **changed}
    files = parallel(tmp_path, *given.pop("pairs"))
    with pytest.raises(InputError, match=reason):
        off_target.run(
            VerifyOffTarget(
                heads="0.1", model=ModelChoice(str(place / "model")),
                pairs=PairsChoice((), files), **given,
            ),
            tmp_path / "out",
        )  # fmt: skip


def test_sentences_of_the_language_given_are_set_aside_and_no_heads_were_found_on_them(
    place: Path, tmp_path: Path
) -> None:
    (asked,), given = parallel(tmp_path, "en-de"), tmp_path / "others.tsv"
    others = [(f"the {each} birds", f"los {each} pajaros") for each in ("two", "ten", "six", "few")]
    rows = ["\t".join(row) for row in [("source", "target"), *others]]
    given.write_text("\n".join(rows) + "\n", encoding="utf-8")
    config = VerifyOffTarget(
        heads="0.1", model=ModelChoice(str(place / "model")), give="es", draws=1, max_new_tokens=3,
        pairs=PairsChoice((), (asked, f"en-es={given}")),
    )  # fmt: skip
    result = off_target.run(config, tmp_path / "out")
    reference = result.details.reference_text
    assert reference is not None and (reference.texts, reference.everywhere) == (1, True)
    assert result.details.data["de"]["prompts"] == 16  # no sentence is shared, so none is lost

    lm = load(str(place / "model"))
    HeadSet.parse("0.1", lm.geometry).save_pretrained(tmp_path / "found")
    known = {"en-es": text_digests([SentencePair("1", *row) for row in others])}
    (tmp_path / "found" / "found_on.json").write_text(json.dumps(known))
    (tmp_path / "found" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="reference texts are among those"):
        off_target.run(replace(config, heads=str(tmp_path / "found")), tmp_path / "leak")


def test_directions_into_the_language_given_keep_their_order() -> None:
    """The digest of the reference texts depends on it, and by it the signature."""
    names = [f"{code}-es" for code in ("ru", "en", "de", "fr", "tr", "zh", "it", "ja")]
    files = {name: PairFile((), name[:2], name[3:], "memory", "") for name in (*names, "en-de")}
    asked, given = _asked_and_given(files, "es")
    assert ([*asked], [*given]) == (["en-de"], names)


def test_mended_and_broken_outputs_are_counted(place: Path, tmp_path: Path) -> None:
    config = VerifyOffTarget(
        heads="0.1,1.2,1.5", model=ModelChoice(str(place / "model")), draws=2, max_new_tokens=6,
        pairs=PairsChoice((), parallel(tmp_path, "en-de", "en-es")),
    )  # fmt: skip
    result = off_target.run(config, tmp_path / "out")
    wrong = {
        (row["language"], row["condition"], row["id"]): row["identified"] != row["language"]
        for row in rows_of(tmp_path / "out" / "outputs.jsonl")
    }
    for code, counts in result.details.mended.items():
        assert [*counts] == [each.id for each in result.evidence.conditions]
        for condition, own in counts.items():
            both = [
                (before, wrong[code, condition, name])
                for (language, kind, name), before in wrong.items()
                if (language, kind) == (code, "original")
            ]
            assert (own.wrong, own.right) == (sum(b for b, _ in both), sum(not b for b, _ in both))
            assert own.mended == sum(before and not now for before, now in both)
            assert own.broken == sum(now and not before for before, now in both)
    page = off_target.page(result, tmp_path / "out")
    (table,) = next(each for each in page.sections if each.title == BY_LANGUAGE).blocks
    assert len(table.rows) == 2 * (2 + len(result.evidence.controls))


def test_translations_are_checked_first_and_heads_may_give_their_means(
    place: Path, tmp_path: Path
) -> None:
    def table(name: str, *rows: tuple[str, str]) -> str:
        lines = ["source\ttarget", *("\t".join(row) for row in rows)]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(tmp_path / name)

    words = [("Hund", "dog"), ("Katze", "cat"), ("Baum", "tree"), ("Haus", "house")]
    data = table("data", *((f"ein {a} {c}", f"a {b} {d}") for a, b in words for c, d in words))
    shots = table("shots", ("ein Auto", "a car"))
    config = VerifyOffTarget(
        heads="0.1,1.2", model=ModelChoice(str(place / "model")),
        pairs=PairsChoice(("de-en",), (data,), shots=1, shots_data=(shots,)), draws=1,
        max_new_tokens=6,
    )  # fmt: skip
    result = off_target.run(config, tmp_path / "out")
    check = result.baseline_check
    assert check is not None and "de-en" in check.judged
    assert result.baseline_works is False and result.details.reference_text is None
    mean = off_target.run(replace(config, ablate=("mean",)), tmp_path / "mean")
    reference, level = mean.details.reference_text, mean.evidence.level("empty", None, "en")
    assert reference is not None and reference.texts == 4  # a quarter of the data is set aside
    assert level is not None and level.examples == 12
    chosen = [
        {one["id"]: one["output"] for one in rows_of(tmp_path / name / "outputs.jsonl")
         if one["draw"] is None and one["condition"].startswith("selected")}
        for name in ("out", "mean")
    ]  # fmt: skip
    assert any(chosen[0][name] != output for name, output in chosen[1].items())
    table("shots", ("ein Rad", "a bike"))
    with pytest.raises(InputError, match="another configuration"):
        off_target.run(config, tmp_path / "out")


@pytest.mark.parametrize("chat", [True, False])
def test_only_a_plain_translation_ends_at_a_line_break(
    chat: bool, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = load(str(place / "model"))
    monkeypatch.setattr(lm.tokenizer, "chat_template", "{{ messages[0]['content'] }}")
    monkeypatch.setattr(ModelChoice, "load_for", lambda self, *_: lm)
    asked: list[tuple[bool, bool]] = []

    def generate(_: Any, prompts: Any, how: Any, *__: Any, special: bool, **___: Any) -> Any:
        asked.append((how.stop_at_newline, special))
        return [Generation((1,), (2,), "x", "end")] * len(prompts)

    monkeypatch.setattr(LanguageModel, "generate", generate)
    path = tmp_path / "de-en.tsv"
    path.write_text("source\ttarget\nein Hund\ta dog\n", encoding="utf-8")
    config = VerifyOffTarget(
        heads="0.1", model=ModelChoice(str(place / "model")),
        pairs=PairsChoice((), (f"de-en={path}",)), draws=1, chat=chat, max_new_tokens=6,
    )  # fmt: skip
    off_target.run(config, tmp_path / "out")
    assert set(asked) == {(not chat, not chat)}


def both_orders(place: Path) -> VerifyTransfer:
    """Both orders of two languages, and a draw of each kind beside each gate."""
    return VerifyTransfer(
        heads=str(place / "run"), k=2, model=ModelChoice(str(place / "model")),
        pair=("de-en", "en-de"), limit=3, draws=1, max_new_tokens=3,
    )  # fmt: skip


def test_transfer_runs_are_resumed(place: Path, tmp_path: Path) -> None:
    titles = ("answering", "ranking answers")
    # All outputs are there by then, and the ranks of the first gate.
    whole, kept = process_helpers.resumed(
        "verify transfer", both_orders(place), tmp_path, 2 + 44, titles
    )
    assert set(kept) == {"outputs.jsonl", "ranks.jsonl"}
    assert whole.evidence.single == ("de-en", "en-de")
    lens = whole.details.lens
    names = ["original", *(each.id for each in whole.evidence.selected)]
    assert [one.condition for one in lens.conditions] == names
    assert {test.side for test in whole.evidence.tests if test.statistic == "follows_a"} == {
        "higher"
    }
    first = rows_of(tmp_path / "killed" / "outputs.jsonl")[0]
    last = lens.conditions[0].layers[-1]
    # The lens of the last layer is the model's own next token.
    assert (last.rank_a, last.rank_b) == (first["rank_a"], first["rank_b"])


def test_transfer_with_mean_outputs(place: Path, tmp_path: Path) -> None:
    text = text_file(tmp_path, "other", "der Hund sieht die Katze im Garten")
    zero = both_orders(place)
    mean = replace(zero, ablate=("mean",), reference=str(text))
    found = [transfer.run(one, tmp_path / one.ablate[0]) for one in (zero, mean)]
    references = [one.details.reference_text for one in found]
    assert [each and each.texts for each in references] == [None, 2]
    as_is, up, _ = zip(*(one.details.lens.conditions for one in found), strict=True)
    assert as_is[0] == as_is[1] and up[0] != up[1]
    ranks = [
        [one["rank_a"] for one in rows_of(tmp_path / name / "outputs.jsonl")
         if one["condition"].startswith("selected A")] for name in ("zero", "mean")
    ]  # fmt: skip
    assert ranks[0] != ranks[1]
    with pytest.raises(InputError, match="--reference FILE"):
        transfer.run(replace(mean, reference=None), tmp_path / "none")
    with pytest.raises(InputError, match="which heads belong to which language"):
        transfer.run(replace(zero, heads="0.1,0.2"), tmp_path / "none")
    with pytest.raises(InputError, match="no pair of languages"):
        transfer.run(replace(zero, heads="0.1,0.2", pair=()), tmp_path / "none")


def test_bert_score_is_taken_where_it_is(monkeypatch: Any, place: Path, tmp_path: Path) -> None:
    def scored(outputs: Any, references: Any, language: str) -> External:
        return External(0.5, (0.5,) * len(outputs), "")

    monkeypatch.setattr(external, "bert_score", scored)
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps({"text": "ein Hund", "summary": "Hund"}) + "\n", encoding="utf-8")
    config = VerifySummaries(
        heads=str(place / "run"), k=1, model=ModelChoice(str(place / "model")),
        texts=DocumentsChoice((f"de={data}",)), draws=1, max_new_tokens=2,
    )  # fmt: skip
    result = summaries.run(config, tmp_path / "out")
    level = result.evidence.level("bert_score")
    assert level is not None and level.value == 50
    assert "bert_score" not in result.details.not_measured
