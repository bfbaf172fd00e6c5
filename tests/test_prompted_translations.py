"""Shots, chat templates and language names in the prompts of translations."""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import find_helpers
from conftest import json_of
from headscope.data.pairs import PairFile, SentencePair, write_pairs
from headscope.data.prompts import Template, translation_prompts
from headscope.data.split import draw_shots, sentence_digest, with_shots
from headscope.errors import InputError
from headscope.evidence.runner import prompts_of
from headscope.find.retrieval_scores import Retrieval, hide
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import translation_score
from headscope.lm import tokens
from headscope.lm.generation import Generation
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import uses_chat
from headscope.lm.tokens import ChatWriter, encode, end_of_turn, tokenise
from headscope.pocket.facts import sample_needles
from headscope.studies.models import ModelChoice, given_model
from headscope.studies.pairs import PairsChoice, find_and_check, read_directions
from headscope.studies.report import write_report
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal
from verify_helpers import scores

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEMPLATE = Template("Translate from {source_language} to {target_language}: {source} =>")


def chat_model(name: str = "qwen3", template: str | None = CHATML) -> LanguageModel:
    """A tiny model whose tokenizer has a chat template."""
    import copy

    tokenizer = copy.deepcopy(find_helpers.tokenizer())
    tokenizer.chat_template = template
    return LanguageModel.wrap(find_helpers.model(name), tokenizer, name=name, check=False)


def as_a_turn(lm: LanguageModel, text: str) -> list[int]:
    """The tokens of a user's turn and the beginning of its answer, as the tokenizer puts them."""
    ids: list[int] = lm.tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True, tokenize=True, return_dict=False,
    )  # fmt: skip
    return ids


def few_shot(number: int, direction: str = "en-de", size: int = 8) -> PairFile:
    pairs = find_helpers.pairs(direction, size)
    return dataclasses.replace(pairs, pairs=pairs.pairs[number:], shots=pairs.pairs[:number])


# Prompts


@given(
    st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=3),
    st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), max_size=3),
    st.sampled_from(["", "<s>"]),
)
def test_the_source_stands_where_the_prompt_says(
    sources: list[str], shots: list[tuple[str, str]], bos: str
) -> None:
    pairs = PairFile(
        tuple(SentencePair("1", source, "x") for source in sources),
        "en",
        "de",
        "file",
        "",
        tuple(SentencePair("s", source, target) for source, target in shots),
    )
    template = Template(f"{bos}{TEMPLATE.text}")
    for source, prompt in zip(sources, translation_prompts(pairs, template, bos=bos), strict=True):
        start, end = prompt.source_span
        assert prompt.text[start:end] == source
        full = prompt.with_target("target")
        assert full.text[slice(*full.target_span)] == "target"
        assert full.text[slice(*full.source_span)] == source
        # The template's own wording, shot after shot, and the text's beginning once.
        written = [
            TEMPLATE.render(shot, "English", "German").text + f" {target}\n\n"
            for shot, target in shots
        ]
        assert (
            prompt.text
            == bos + "".join(written) + TEMPLATE.render(source, "English", "German").text
        )


def test_shots_of_a_chat_are_earlier_turns() -> None:
    lm, pairs = chat_model(), few_shot(2)
    config = TranslationScore(template=TEMPLATE)
    for pair, prompt in zip(
        pairs.pairs, prompts_of(lm, pairs, config.template, config.chat), strict=True
    ):
        turns: list[dict[str, str]] = []
        for one in (*pairs.shots, pair):
            asked = TEMPLATE.render(one.source, "English", "German").text
            turns.append({"role": "user", "content": asked})
            turns.append({"role": "assistant", "content": one.target})
        whole = lm.tokenizer.apply_chat_template(turns, tokenize=False)
        begun = lm.tokenizer.apply_chat_template(
            turns[:-1], add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert lm.encode(prompt.text, prompt.special) == begun
        assert prompt.text[slice(*prompt.source_span)] == pair.source
        assert whole.startswith(prompt.with_target(pair.target).text)


@pytest.mark.parametrize(
    ("template", "wording", "chat"),
    [
        (CHATML, "Translate {source}", True),
        (CHATML, "<s>Translate {source}", False),
        (CHATML, "", True),
        ("{{ messages[-1]['content'] }}\nAnswer:", "Translate {source}", True),
        ("{{ messages[-1]['content'] }}\nAnswer:", "Translate {source}\nAnswer:", False),
    ],
)
def test_a_template_written_out_is_not_wrapped_again(
    template: str, wording: str, chat: bool
) -> None:
    lm = chat_model(template=template)
    assert uses_chat(lm, None, wording) is chat
    assert uses_chat(lm, True, wording) and not uses_chat(lm, False, wording)


def test_a_chat_ends_by_the_mark_that_its_template_writes() -> None:
    template = CHATML.replace("</s>", "<unk>")  # a special token that is no end of text
    lm = chat_model(template=template)
    mark = lm.tokenizer.convert_tokens_to_ids("<unk>")
    assert end_of_turn(lm.tokenizer) == mark
    assert mark in lm.eos_token_ids
    assert end_of_turn(chat_model(template=None).tokenizer) is None


def test_needles_are_asked_for_through_the_chat_template() -> None:
    lm, needles = chat_model(), sample_needles("dev", 2, 0)
    plain, chat = (hide(lm, needles, Retrieval(lengths=(40,), chat=one)) for one in (False, True))
    for before, one in zip(plain, chat, strict=True):
        assert list(one.ids) == as_a_turn(lm, before.prompt.text)
        for ids, hidden in ((before.ids, before), (one.ids, one)):
            written = lm.tokenizer.decode([ids[at] for at in hidden.needle])
            needle = needles.needles[one.number].needle
            assert needle.replace(" ", "") in written.replace(" ", "")


@pytest.mark.parametrize("chat", [True, False])
def test_key_words_are_found_behind_the_chat_template(
    chat: bool, command: Callable[..., Any], tmp_path: Path
) -> None:
    lm, prompt = chat_model(), "Sentence: the camp and the fire.\nAnswer:"
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    said = command(
        "find", "key-tokens", "--model", tmp_path / "model", "--prompt", prompt, "--word", "camp",
        "--heads", "1.0", "--answer", "Feuer", "--chat" if chat else "--no-chat", "--json",
        "--out", tmp_path / "run",
    )  # fmt: skip
    rows = [json.loads(row) for row in (tmp_path / "run" / "tokens.jsonl").open()]
    ids = as_a_turn(lm, prompt) if chat else lm.encode(prompt)
    assert len([row for row in rows if row["part"] == "prompt"]) == len(ids)
    told = json_of(said.out)["details"]
    (place,) = told["words"][0]["spans"]
    assert told["prompt"][slice(*place)] == "camp" and prompt in told["prompt"]


def test_a_chat_template_that_changes_the_prompt_is_refused() -> None:
    writer = ChatWriter(chat_model(template="{{ messages[-1]['content'] | upper }}").tokenizer)
    with pytest.raises(InputError, match="changes the text of a prompt"):
        writer.write(["some words"])


# Special tokens


@pytest.mark.parametrize("kind", ["bytes", "metaspace"])
def test_no_special_token_is_doubled(kind: str) -> None:
    tokenizer = find_helpers.tokenizer(kind)
    lm = LanguageModel.wrap(find_helpers.model("qwen3"), tokenizer, check=False)
    bos = tokenizer.bos_token_id
    for text in ("the house", "<s>the house", "<s><s>the house"):
        ids = lm.encode(text)
        assert ids[0] == bos
        assert ids.count(bos) == max(1, text.count("<s>"))
        assert tokenise(tokenizer, text).ids == tuple(ids)
        assert lm.encode(text, special=False).count(bos) == text.count("<s>")


def test_a_pasted_beginning_of_text_changes_no_peak() -> None:
    lm, pairs = chat_model(template=None), few_shot(2)
    plain, pasted = (
        translation_score(lm, pairs, TranslationScore(template=Template(f"{bos}{TEMPLATE.text}")))
        for bos in ("", "<s>")
    )
    for name, array in plain.statistics.items():
        np.testing.assert_array_equal(array, pasted.statistics[name])


# Scores


@pytest.mark.parametrize("chat", [True, False])
def test_scores_equal_a_loop_over_returned_attention(chat: bool) -> None:
    """Each sentence alone, whole attention matrices, tokens from the template's own characters."""
    lm, pairs = chat_model(), few_shot(2, size=6)
    eager = find_helpers.model("qwen3", "eager")
    config = TranslationScore(template=TEMPLATE, chat=chat)
    scores = translation_score(lm, pairs, config)
    for number, (pair, prompt) in enumerate(
        zip(pairs.pairs, prompts_of(lm, pairs, config.template, config.chat), strict=True)
    ):
        full = prompt.with_target(pair.target)
        tokens = encode(lm.tokenizer, full.text, full.special)
        with torch.no_grad():
            weights = eager(torch.tensor([tokens.ids]), output_attentions=True).attentions
        peaks = np.stack([layer[0].argmax(-1).numpy() for layer in weights])  # (L, H, T)
        words = _places(pair.source, full.source_start), _places(pair.target, full.target_start)
        hits, total = np.zeros(lm.geometry.shape), 0
        for at, (start, end) in enumerate(tokens.spans.tolist()):
            target = [j for j, (first, last) in enumerate(words[1]) if start < last and end > first]
            linked = {i for i, j in pair.links or () if j in target}
            if start >= end or not linked:
                continue
            total += 1
            right = [
                key
                for key, (first, last) in enumerate(tokens.spans.tolist())
                if first < last
                and first < full.source_end
                and last > full.source_start
                and any(first < words[0][i][1] and last > words[0][i][0] for i in linked)
            ]
            hits += np.isin(peaks[:, :, at - 1], right)
        assert scores.statistics["totals"][number] == total
        np.testing.assert_array_equal(scores.statistics["hits"][number], hits)


def _places(text: str, offset: int) -> list[tuple[int, int]]:
    """Where the white-space pieces of a text stand."""
    found, at = [], 0
    for piece in text.split():
        at = text.index(piece, at)
        found.append((offset + at, offset + at + len(piece)))
        at += len(piece)
    return found


# Drawing shots


@given(st.integers(0, 20), st.integers(0, 3))
def test_more_shots_extend_fewer_and_order_does_not_count(number: int, seed: int) -> None:
    pairs = [SentencePair(str(i), f"source {i}", f"target {i}") for i in range(20)]
    drawn = draw_shots(pairs, number, seed, "file")
    assert len({one.source for one in drawn}) == number
    assert draw_shots(pairs, 20, seed, "file")[:number] == drawn
    assert draw_shots(pairs[::-1], number, seed, "file") == drawn


def files(folder: Path, size: int = 24) -> PairsChoice:
    """Two directions over the same sentences: the sources of one are the targets of the other."""
    pairs = find_helpers.pairs("en-de", size).pairs
    write_pairs(folder / "en-de.tsv", pairs)
    turned = [
        SentencePair(
            one.id, one.target, one.source, frozenset((j, i) for i, j in one.links or ()), one.line
        )
        for one in pairs
    ]
    write_pairs(folder / "de-en.tsv", turned)
    return PairsChoice(data=tuple(f"{p}={folder / p}.tsv" for p in ("en-de", "de-en")))


def sentences(pairs: tuple[SentencePair, ...]) -> set[str]:
    return {sentence_digest(text) for one in pairs for text in (one.source, one.target)}


def test_shots_are_used_for_nothing_else(tmp_path: Path) -> None:
    choice = dataclasses.replace(files(tmp_path), shots=3)
    found, checked = find_and_check(choice, "model", 5)
    shots = set().union(*(sentences(one.shots) for one in found.values()))
    for one in (*found.values(), *checked.values()):
        assert len(one.shots) == 3
        assert not shots & sentences(one.pairs)
    assert [one.shots for one in found.values()] == [one.shots for one in checked.values()]
    # The limit does not change the shots, and is kept where there are enough sentences.
    limited = read_directions(dataclasses.replace(choice, limit=7), "model", "dev")
    assert [one.shots for one in limited.values()] == [one.shots for one in found.values()]
    assert [len(one.pairs) for one in limited.values()] == [7, 7]


def test_shots_from_a_file_of_their_own(tmp_path: Path) -> None:
    choice = PairsChoice(("en-de",), files(tmp_path).data[:1], shots=2)
    write_pairs(tmp_path / "shots.tsv", find_helpers.pairs("en-de", 5, seed=9).pairs)
    own = (f"en-de={tmp_path / 'shots.tsv'}",)
    given = read_directions(dataclasses.replace(choice, shots_data=own), "model", "test")["en-de"]
    plain = read_directions(dataclasses.replace(choice, shots=0), "model", "test")["en-de"]
    assert given.pairs == plain.pairs and len(given.shots) == 2
    with pytest.raises(InputError, match="with a sentence of the shots"):
        read_directions(dataclasses.replace(choice, shots_data=choice.data), "model", "test")
    with pytest.raises(InputError, match="too few for 6 shots"):
        read_directions(dataclasses.replace(choice, shots=6, shots_data=own), "model", "test")


def test_names_of_languages_reach_every_prompt_that_they_belong_to(tmp_path: Path) -> None:
    choice = dataclasses.replace(
        files(tmp_path), language_names=("deu=Simplified German", "en = Plain English ")
    )
    for pair, one in read_directions(choice, "model", "dev").items():
        names = {"de": "Simplified German", "en": "Plain English"}
        source, target = (names[code] for code in pair.split("-"))
        assert one.language_names == (source, target)
        for prompt in translation_prompts(one, TEMPLATE):
            assert prompt.text.startswith(f"Translate from {source} to {target}: ")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shots": 25}, "too few for 25 shots"),
        ({"shots": 24}, "no sentences left"),
        ({"shots_data": ("en-de=x.tsv",)}, "needs --shots N"),
        ({"language_names": ("zh=Chinese",)}, "no direction has the language zh"),
        ({"language_names": ("de",)}, "write CODE=NAME"),
        ({"language_names": ("de=A", "de=B")}, "names de twice"),
        ({"data": (), "split": "dev"}, "is for --data"),
    ],
)
def test_choices_that_cannot_be(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    choice = dataclasses.replace(files(tmp_path), **changes)
    with pytest.raises(InputError, match=says):
        read_directions(choice, "model", "dev")


def test_shots_in_python_are_those_of_the_command(tmp_path: Path) -> None:
    choice = PairsChoice(("en-de",), files(tmp_path).data[:1], shots=3)
    commanded = read_directions(choice, "model", "dev", seed=4)["en-de"]
    plain = read_directions(dataclasses.replace(choice, shots=0), "model", "dev")["en-de"]
    assert with_shots(plain, 3, seed=4) == commanded


def test_the_pocket_model_takes_shots_of_its_training_sentences() -> None:
    choice = PairsChoice(("en-de",), limit=4, shots=2)
    one = read_directions(choice, "pocket", "test")["en-de"]
    assert len(one.pairs) == 4 and len(one.shots) == 2
    assert not sentences(one.shots) & sentences(one.pairs)


# Runs


def test_answers_alone_are_measured_and_the_whole_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, pairs = chat_model(), find_helpers.pairs("en-de", 3)
    data = tmp_path / "pairs.tsv"
    write_pairs(data, pairs.pairs)
    said = {
        pair.source: f'Hier ist die Übersetzung:\n\n"{pair.target}"\n\nHinweis: wörtlich.'
        for pair in pairs.pairs
    }
    seen: list[Any] = []

    def generate(self: Any, prompts: list[str], config: Any, *_: Any, **more: Any) -> list[Any]:
        seen.append(config.stop_at_newline)
        texts = [next(said[s] for s in said if s in prompt) for prompt in prompts]
        if more.get("progress"):
            more["progress"](len(prompts), len(prompts))
        return [Generation((0,), (0,), text, "eos") for text in texts]

    monkeypatch.setattr(LanguageModel, "generate", generate)
    made = {}
    for name, only in (("whole", None), ("answers", True)):
        with given_model(lm) as named:
            config = VerifyRemoval(
                heads="0.0",
                model=ModelChoice(**named),
                pairs=PairsChoice(("en-de",), (str(data),)),
                chat=False,
                draws=1,
                controls=("random",),
                answer_only=only,
            )
            made[name] = removal.run(config, tmp_path / name)
    chrf = {name: scores(own)["original"]["chrf"] for name, own in made.items()}
    assert chrf["answers"] == pytest.approx(100)
    assert chrf["whole"] < 90
    rows = [
        json.loads(line)
        for line in (tmp_path / "answers" / "outputs.jsonl").read_text("utf-8").splitlines()
    ]
    assert all(row["whole"] == said[row["source"]] for row in rows)
    assert all(row["output"] == row["reference"] for row in rows)
    assert "whole" not in (tmp_path / "whole" / "outputs.jsonl").read_text("utf-8")
    assert {True, "after preamble"} == set(seen)
    assert made["answers"].signature != made["whole"].signature
    assert made["whole"].baseline_check.judged["en-de"].counts["preamble"] == 3
    assert "preamble" not in made["answers"].baseline_check.judged["en-de"].counts


@pytest.mark.parametrize(
    "words",
    [
        "find translation-score --pair en-de --decode greedy --shots 2",
        "verify removal --pair en-de --pair de-en --heads 5.1 --measure text --shots 2 --draws 1",
        "verify circuit --task plural-de --heads 5.1,4.3 --k 1 --k 2 --shots 2 --draws 1",
        "verify off-target --heads 5.1 --language de --draws 1",
    ],
)
def test_the_first_prompts_of_a_result_are_what_the_model_was_given(
    words: str, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    tokenized = tokens.tokenized

    def reading(tokenizer: Any, text: str, *more: Any, **options: Any) -> Any:
        read.add(text)
        return tokenized(tokenizer, text, *more, **options)

    monkeypatch.setattr(tokens, "tokenized", reading)
    run = tmp_path / "run"
    said = command(*words.split(), "--limit", 3, "--out", run, "--json")
    assert said.code == 0, said.err
    prompts = json_of(said.out)["first_prompts"]
    assert prompts and all(any(text.startswith(own) for text in read) for own in prompts.values())
    page = write_report(run).read_text("utf-8")
    assert all(html.escape(text, quote=False) in page for text in prompts.values())
