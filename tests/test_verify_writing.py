"""What models write under several gates: arms, evidence, ranks, and the three commands' runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from safetensors.numpy import load_file

import process_helpers
from find_helpers import model, tokenizer, wrapped
from headscope.data.transfer import Answer, TransferPrompt, written
from headscope.data.words import plain_words
from headscope.errors import InputError
from headscope.heads import Geometry, HeadSet
from headscope.lm import LanguageModel, load
from headscope.lm.generation import Generation
from headscope.measure import rouge_l
from headscope.measure.external import External
from headscope.measure.statistics import counted, counted_mean, p_sentences
from headscope.runs import open_run
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.off_target import VerifyOffTarget, verify_off_target
from headscope.studies.verify.summaries import VerifySummaries, general_heads, verify_summaries
from headscope.studies.verify.transfer import VerifyTransfer, given_prompt, verify_transfer
from headscope.studies.verify.writing import fitted, run_languages, writing_heads
from headscope.verify.writing import measures
from headscope.verify.writing.measures import (
    DOWN,
    UP,
    Measure,
    Numbers,
    evidence,
    general_arms,
    language_arms,
    measure_answers,
    transfer_arms,
)
from headscope.verify.writing.ranks import first_tokens, kept_ranks
from headscope.verify.writing.texts import (
    MATCHED,
    RANDOM,
    Arm,
    Group,
    Name,
    Prompt,
    as_is,
    beside,
    passes,
)
from verify_helpers import rows_of
from writing_helpers import language_run

GEOMETRY = Geometry((6, 6, 6))
SPECIFIC = {"de": "0.1,1.2", "en": "0.3,1.4", "ru": ""}


Command = Callable[..., Any]


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


# Arms


def test_arms_of_every_question() -> None:
    kinds = [arm.name.kind for arm in general_arms(heads("0.1"), 0.0, 2, 0)]
    assert kinds == ["baseline", "general", RANDOM, RANDOM, MATCHED, MATCHED]
    a, b, nothing = heads("0.1,1.2,1.3"), heads("0.2,0.3"), HeadSet(GEOMETRY, ())
    arms = transfer_arms(a, b, 3.0, 0.0, 4, 0)
    chosen = {arm.name.kind: (arm.heads, arm.gate) for arm in arms if arm.name.draw is None}
    assert chosen == {"baseline": (nothing, 1.0), UP: (a, 3.0), DOWN: (b, 0.0)}
    for kind, own, gate, layers in ((UP, a, 3.0, [0, 1, 1]), (DOWN, b, 0.0, [0, 0])):
        for random in (RANDOM, MATCHED):
            drawn = [arm for arm in arms if arm.name.kind == f"{kind}-{random}"]
            # Outside both, layer 0 has three heads, and so three sets of two.
            assert len(drawn) == (3 if (kind, random) == (DOWN, MATCHED) else 4)
            for arm in drawn:
                assert arm.gate == gate and len(arm.heads) == len(own)
                assert not set(arm.heads) & {*a, *b}
                if random == MATCHED:
                    assert sorted(head.layer for head in arm.heads) == layers
    none = transfer_arms(nothing, nothing, 3.0, 0.0, 1, 0)
    assert [arm.name.kind for arm in none] == ["baseline"]


def test_heads_of_a_language(place: Path) -> None:
    lm = load(str(place / "model"))
    assert run_languages(str(place / "run")) == ["de", "en", "ru"]
    found = writing_heads(str(place / "run"), None, ["de", "ru", "fr"], lm)
    assert list(found) == ["de", "ru"]
    assert str(found["de"].chosen) == str(found["de"].full) == "0.1"  # 1 %, at least one
    assert len(found["ru"].chosen) == 0 and len(found["ru"].full or ()) == 1
    # A language without specific heads is not filled up: only the most important are removed.
    kinds = {arm.name.kind for arm in language_arms(found["ru"], 1, 0)}
    assert kinds == {"baseline", "full", RANDOM, MATCHED}
    named = writing_heads("0.1,0.2,1.1", None, ["de", "fr"], lm)
    assert [len(one.chosen) for one in named.values()] == [3, 3]
    kinds = {arm.name.kind for arm in language_arms(named["de"], 1, 0)}
    assert kinds == {"baseline", "chosen", RANDOM, MATCHED}


def test_equal_gates_of_all_groups_are_one_pass() -> None:
    prompts = tuple(Prompt(str(n), "x", "", 1) for n in range(3))
    one, other = (Arm(Name(kind), heads("0.1"), 0.0) for kind in ("a", "b"))
    base = as_is(heads("0.1"))
    same = Arm(Name("c"), heads("1.1"), 1.0)
    found = passes([Group("g", prompts, (base, one, other)), Group("h", prompts[:2], (same, one))])
    assert {key: list(one.rows) for key, one in found.items()} == {
        "as is": [0, 1, 2, 3, 4],
        one.key: [0, 1, 2, 3, 4],
    }


# Evidence


def numbers(seed: int, prompts: int, own: str = "0.1", draws: int = 3) -> Numbers:
    rng = np.random.default_rng(seed)
    arms = (
        as_is(heads(own)),
        Arm(Name("top"), heads(own), 0.0),
        *beside(heads(own), 0.0, draws, seed)[:draws],
    )
    values = rng.random((len(arms), prompts))
    return Numbers(arms, {"up": counted(values), "down": counted(values), "absent": None})


MEASURES = {
    "up": Measure(counted_mean, raises=True),
    "down": Measure(counted_mean),
    "absent": Measure(counted_mean),
}
CONTROLS = {"top": ""}


def test_evidence_against_plain_means() -> None:
    parts = {"a": numbers(1, 9), "b": numbers(2, 5, "1.1")}
    whole, groups = evidence(parts, MEASURES, CONTROLS, seed=4)
    by_group = []
    for name, part in parts.items():
        values = part.values["up"]
        assert values is not None
        means = [fmean(row) for row in values[..., 0].tolist()]
        by_group.append(means)
        effect = groups[name].effects["top"]["up"]
        assert effect.value == pytest.approx(means[1])
        assert effect.change.value == pytest.approx(means[1] - means[0])
        assert effect.change.low <= effect.change.value <= effect.change.high
        assert effect.free is not None
        assert effect.free.draws.mean == pytest.approx(fmean(means[2:]))
        assert groups[name].draws("top", RANDOM, "up") == pytest.approx(means[2:])
        against = effect.free.against
        assert against.difference.value == pytest.approx(means[1] - fmean(means[2:]))
        higher = sum(mean >= means[1] for mean in means[2:])
        lower = sum(mean <= means[1] for mean in means[2:])
        assert against.p_draws == (1 + higher) / 4
        below = groups[name].effects["top"]["down"].free
        assert below is not None and below.against.p_draws == (1 + lower) / 4
        p_prompts = p_sentences(values[1], values[2:], counted_mean, seed=4)
        assert below.against.p_examples == p_prompts
        assert groups[name].effect("top", "absent") is None
        assert groups[name].baseline["absent"] is None
    effect = whole.effects["top"]["up"]
    assert effect.value == pytest.approx(fmean(means[1] for means in by_group))
    assert effect.groups == 2 and whole.prompts == 14
    rows = [(row.kind, row.draw) for row in whole.conditions]
    assert rows == [("top", None), *((RANDOM, n) for n in range(3))]


def test_a_kind_that_some_groups_lack_counts_where_it_is() -> None:
    one, other = numbers(1, 9), numbers(2, 5)
    without = Numbers(
        other.arms[:1],
        {name: None if value is None else value[:1] for name, value in other.values.items()},
    )
    whole, groups = evidence({"a": one, "b": without}, MEASURES, CONTROLS)
    assert whole.effects["top"]["up"] == groups["a"].effects["top"]["up"]
    assert whole.effects["top"]["up"].groups == 1
    assert groups["b"].effects == {}


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
    "{% for turn in messages %}<|user|>{{ turn.content }}</s>{% endfor %}"
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
    group = Group("de-en", tuple(Prompt(one.id, one.prompt, "", 1) for one in prompts), (
        as_is(HeadSet(lm.geometry, ())), Arm(Name(UP), HeadSet.parse("0.1,1.2", lm.geometry), 3.0),
    ))  # fmt: skip
    with open_run(tmp_path / "run", "x", {}, {}) as run:
        found = kept_ranks(lm, forms, passes([group]), 300, run)
        assert kept_ranks(lm, forms, passes([group]), 300, run) == found
    for arm in group.arms:
        for at, row in enumerate(forms):
            for form, rank in zip(row, found[arm.key][at], strict=True):
                with lm.gated(arm.heads.scaled(arm.gate)), torch.no_grad():
                    logits = lm.model(torch.tensor([form.before])).logits[0, -1]
                assert rank == 1 + int((logits > logits[form.token]).sum())
    assert found[group.arms[0].key] != found[group.arms[1].key]


def test_what_an_answer_follows() -> None:
    asked = [TransferPrompt("1", "de", "en", "?", "", Answer("red", ("rot",)),
                            Answer("blue", ("blue",)))] * 4  # fmt: skip
    group = Group("de-en", tuple(Prompt("1", "?", "", 1) for _ in asked), (as_is(heads("0.1")),))
    texts = [[["it is Rot", "blue", "red, not blue", "green"]]]
    ranks = [[[{"a": 1, "b": 5}, {"a": 9, "b": 2}, {"a": 3, "b": 3}, {"a": 2, "b": 1}]]]
    found = measure_answers([group], {"de-en": asked}, texts, ranks)["de-en"].values
    shares = {name: value[0, :, 0].tolist() for name, value in found.items() if value is not None}
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
        str(place / "run"), 2, ModelChoice(str(place / "model")), DocumentsChoice((str(data),)),
        draws=2, max_new_tokens=8,
    )  # fmt: skip
    result = verify_summaries(config, tmp_path / "out")
    assert (result.task, result.k, result.heads) == ("summarise", 2, ("0.2", "1.1"))
    assert result.cut == {"de": 1, "ru": 1}  # the long ones do not fit the context
    assert "bert_score" in result.not_measured
    assert result.whole.baseline["bert_score"] is None
    made = rows_of(tmp_path / "out" / "outputs.jsonl")
    assert len(made) == 2 * 2 * (2 + 2 * 2)
    for code in ("de", "ru"):
        part = result.groups[code]
        for kind, draw, scores in [
            ("baseline", None, part.baseline),
            *((row.kind, row.draw, row.scores) for row in part.conditions),
        ]:
            own = [
                (one["output"], one["reference"])
                for one in made
                if (one["language"], one["condition"], one["draw"]) == (code, kind, draw)
            ]
            words = [[plain_words(text) for text in part] for part in zip(*own, strict=True)]
            assert scores["rouge_l"] == pytest.approx(rouge_l(*words).value)
            expected = sacrebleu.corpus_chrf(
                [o for o, _ in own], [[r for _, r in own]], word_order=2
            )
            assert scores["chrf"] == pytest.approx(expected.score)
    kept = load_file(tmp_path / "out" / "statistics.safetensors")
    assert kept["de.rouge_l"].shape == (6, 2, 2) and kept["ru.chrf"].shape == (6, 2, 24)
    with pytest.raises(InputError, match="another configuration"):  # other heads, another run
        verify_summaries(replace(config, heads="0.0", k=None), tmp_path / "out")


def test_general_heads_that_are_not_there(place: Path, tmp_path: Path) -> None:
    lm = load(str(place / "model"))
    empty = language_run(tmp_path / "empty", lm.geometry, SPECIFIC)
    with pytest.raises(InputError, match="no head is general"):
        general_heads(str(empty), None, lm)
    assert str(general_heads(str(place / "run"), None, lm)) == "0.2"
    assert str(general_heads(str(place / "run"), 3, lm)) == "0.2,1.1,1.5"
    assert str(general_heads("1.0,0.0", None, lm)) == "1.0,0.0"


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
        str(place / "run"), 2, ModelChoice(str(place / "model")), "continue",
        documents=DocumentsChoice(tuple(
            f"{code}={text_file(tmp_path, code, text)}"
            for code, text in (("de", "der Hund sieht die Katze im Garten"),
                               ("ru", "собака видит кошку в саду"), ("fr", "le chien voit le chat"))
        )),
        start_tokens=4, draws=2, max_new_tokens=6,
    )  # fmt: skip
    result = verify_off_target(config, tmp_path / "out")
    assert result.without_heads == ("fr",)
    assert list(result.groups) == ["de", "ru"]
    assert "specific" not in result.groups["ru"].effects  # it has none
    assert result.whole.effects["specific"]["off_target"].groups == 1
    assert result.whole.effects["full"]["off_target"].groups == 2
    made = rows_of(tmp_path / "out" / "outputs.jsonl")
    for code in ("de", "ru"):
        own = [one for one in made if (one["language"], one["condition"]) == (code, "baseline")]
        off = fmean(one["identified"] != code for one in own)
        part = result.groups[code]
        assert part.baseline["off_target"] == pytest.approx(off)
        base = (part.written or ())[0]
        assert base.kind == "baseline" and sum(base.languages.values()) == len(own)
    given = rows_of(tmp_path / "out" / "prompts.jsonl")
    lm = load(str(place / "model"))
    assert all(len(lm.encode(one["prompt"], special=False)) <= 4 for one in given)


def test_translations_are_asked_for_by_target_language(place: Path, tmp_path: Path) -> None:
    files = []
    for pair in ("de-en", "fr-en", "en-de"):
        path = tmp_path / f"{pair}.tsv"
        path.write_text("source\ttarget\nein Hund\ta dog\n", encoding="utf-8")
        files.append(f"{pair}={path}")
    config = VerifyOffTarget(
        str(place / "run"), None, ModelChoice(str(place / "model")), "translate",
        PairsChoice((), tuple(files)), draws=1, max_new_tokens=3,
    )  # fmt: skip
    result = verify_off_target(config, tmp_path / "out")
    assert {code: one.prompts for code, one in result.groups.items()} == {"en": 2, "de": 1}


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
        "0.1,1.2", None, ModelChoice(str(place / "model")), "translate",
        PairsChoice(("de-en",), (data,), shots=1, shots_data=(shots,)), draws=1, max_new_tokens=6,
    )  # fmt: skip
    result = verify_off_target(config, tmp_path / "out")
    assert result.checked is not None and "de-en" in result.checked.baseline_check.judged
    assert result.checked.baseline_works is False and result.reference_text is None
    mean = verify_off_target(replace(config, ablate="mean"), tmp_path / "mean")
    assert mean.reference_text is not None
    assert mean.reference_text.texts == 4  # a quarter of the data is set aside
    assert mean.groups["en"].prompts == 12
    chosen = [
        {one["id"]: one["output"] for one in rows_of(tmp_path / name / "outputs.jsonl")
         if one["condition"] == "chosen"} for name in ("out", "mean")
    ]  # fmt: skip
    assert any(chosen[0][name] != output for name, output in chosen[1].items())
    table("shots", ("ein Rad", "a bike"))
    with pytest.raises(InputError, match="another configuration"):
        verify_off_target(config, tmp_path / "out")


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
        "0.1", None, ModelChoice(str(place / "model")), "translate",
        PairsChoice((), (f"de-en={path}",)), draws=1, chat=chat, max_new_tokens=6,
    )  # fmt: skip
    verify_off_target(config, tmp_path / "out")
    assert set(asked) == {(not chat, not chat)}


def transfer(place: Path) -> VerifyTransfer:
    """Both orders of two languages, and a draw of each kind beside each gate."""
    return VerifyTransfer(
        str(place / "run"), 2, ModelChoice(str(place / "model")), ("de-en", "en-de"),
        limit=3, draws=1, max_new_tokens=3,
    )  # fmt: skip


def test_transfer_runs_are_resumed(place: Path, tmp_path: Path) -> None:
    titles = ("answering", "ranking answers")
    # All outputs are there by then, and the ranks of the first gate.
    whole, kept = process_helpers.resumed(verify_transfer, transfer(place), tmp_path, 44, titles)
    assert set(kept) == {"outputs.jsonl", "ranks.jsonl"}
    assert list(whole.groups) == ["de-en", "en-de"]
    lens = whole.lens
    assert [one.kind for one in lens.conditions] == ["baseline", "up", "down"]
    first = rows_of(tmp_path / "killed" / "outputs.jsonl")[0]
    last = lens.conditions[0].layers[-1]
    # The lens of the last layer is the model's own next token.
    assert (last.rank_a, last.rank_b) == (first["rank_a"], first["rank_b"])


def test_transfer_with_mean_outputs(place: Path, tmp_path: Path) -> None:
    text = text_file(tmp_path, "other", "der Hund sieht die Katze im Garten")
    zero = transfer(place)
    mean = replace(zero, ablate="mean", reference=str(text))
    found = [verify_transfer(one, tmp_path / one.ablate) for one in (zero, mean)]
    assert [one.reference_text and one.reference_text.texts for one in found] == [None, 2]
    as_is, up, _ = zip(*(one.lens.conditions for one in found), strict=True)
    assert as_is[0] == as_is[1] and up[0] != up[1]
    ranks = [
        [one["rank_a"] for one in rows_of(tmp_path / name / "outputs.jsonl")
         if one["condition"] == "up"] for name in ("zero", "mean")
    ]  # fmt: skip
    assert ranks[0] != ranks[1]
    with pytest.raises(InputError, match="--reference FILE"):
        verify_transfer(replace(mean, reference=None), tmp_path / "none")
    with pytest.raises(InputError, match="which heads belong to which language"):
        verify_transfer(replace(zero, heads="0.1,0.2"), tmp_path / "none")
    with pytest.raises(InputError, match="no pair of languages"):
        verify_transfer(replace(zero, heads="0.1,0.2", pair=()), tmp_path / "none")


def test_bert_score_is_taken_where_it_is(monkeypatch: Any, place: Path, tmp_path: Path) -> None:
    def scored(outputs: Any, references: Any, language: str) -> External:
        return External(0.5, (0.5,) * len(outputs), "")

    monkeypatch.setattr(measures, "bert_score", scored)
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps({"text": "ein Hund", "summary": "Hund"}) + "\n", encoding="utf-8")
    config = VerifySummaries(
        str(place / "run"), 1, ModelChoice(str(place / "model")),
        DocumentsChoice((f"de={data}",)), draws=1, max_new_tokens=2,
    )  # fmt: skip
    result = verify_summaries(config, tmp_path / "out")
    assert result.whole.baseline["bert_score"] == 50 and "bert_score" not in result.not_measured


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summaries", "--heads", "0.1"], "no data given for the model"),
        (["transfer", "--heads", "0.1", "--pair", "de-fi"], "no sentences in Finnish"),
        (["transfer", "--heads", "0.1", "--pair", "de-en", "--up", "nan"], "not a finite number"),
        (["off-target", "--heads", "0.1"], "no data given for the model"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, place: Path, command: Command
) -> None:
    name, *rest = arguments
    said = command("verify", name, "--model", place / "model", *rest)
    assert said.code == 2 and said.out == ""
    assert message in said.err and said.err.count("\n") == 1
