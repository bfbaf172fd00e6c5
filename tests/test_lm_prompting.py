"""Prompts and answers as tokens, with and without a chat template."""

from __future__ import annotations

from typing import Any

import pytest

import lm_helpers
from headscope.errors import InputError
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import encode_answers, uses_chat, wrap_prompts

CHATML = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
#: The answer follows a space, as with Mistral.
BRACKETS = (
    "<s>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
)
#: Thinks aloud unless told not to, and shows no thoughts of earlier turns.
THINKING = (
    "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}"
    "<s>{% if enable_thinking is defined and not enable_thinking %}(none)\n{% endif %}{% endif %}"
)


def words_tokenizer(template: str | None = None) -> Any:
    """Byte-level pieces with a few whole words, `<s>` put before every text by itself."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["the answer is Haus and Maus, Haus Maus Haus"] * 4, trainer)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
    )
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    made.chat_template = template
    return made


def model(template: str | None = None, context: int | None = None) -> LanguageModel:
    from headscope.lm.architectures import build

    tokenizer = words_tokenizer(template)
    if context is not None:
        tokenizer.model_max_length = context
    built = build("llama")
    built.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    if context is not None:
        built.config.max_position_embeddings = context
    return LanguageModel.wrap(built, tokenizer, check=False)


def text_of(lm: LanguageModel, ids: tuple[int, ...]) -> str:
    return str(lm.tokenizer.decode(list(ids)))


@pytest.mark.parametrize(
    ("prompt", "answer", "whole"),
    [
        ("word\nAnswer:", "Haus", "word\nAnswer: Haus"),
        ("word\n", "Haus", "word\nHaus"),
        ("word ", "Maus Haus", "word Maus Haus"),
        ("x", "  ümlaut", "x   ümlaut"),
    ],
)
def test_plain_prompts_and_answers_are_one_string(prompt: str, answer: str, whole: str) -> None:
    lm = model()
    [row] = encode_answers(lm, [prompt], [answer])
    assert list(row.ids) == lm.encode(whole)
    # The first token whose decoded prefix reaches into the answer's first character.
    target = len(whole) - len(answer.lstrip())
    grown = [text_of(lm, row.ids[1 : n + 1]) for n in range(len(row.ids))]
    naive = next(n for n, text in enumerate(grown) if len(text.rstrip("\ufffd")) > target)
    # A first character of several bytes begins with the first of them.
    assert row.start <= naive
    assert text_of(lm, row.ids[row.start :]).strip() == answer.strip()
    assert answer.strip()[0] not in text_of(lm, row.ids[1 : row.start])[target - 1 :]


@pytest.mark.parametrize("template", [CHATML, BRACKETS, THINKING])
def test_a_chat_template_wraps_the_prompt_and_adds_nothing_twice(template: str) -> None:
    lm = model(template)
    assert uses_chat(lm)
    [wrapped] = wrap_prompts(lm, ["  the answer\n"])
    [row] = encode_answers(lm, ["  the answer\n"], ["Haus"])
    ids = list(row.ids)
    assert ids[0] == lm.tokenizer.bos_token_id
    assert ids.count(lm.tokenizer.bos_token_id) == wrapped.count("<s>")
    assert text_of(lm, row.ids[row.start :]).strip() == "Haus"
    assert "Haus" not in text_of(lm, row.ids[: row.start])
    gap = "" if wrapped[-1].isspace() else " "
    assert ids == lm.encode(wrapped + gap + "Haus", special=False)


def test_with_a_template_the_row_is_that_of_the_whole_conversation() -> None:
    for template in (CHATML, BRACKETS):
        lm = model(template)
        turns = [
            {"role": "user", "content": "the answer"},
            {"role": "assistant", "content": "Haus"},
        ]
        whole: str = lm.tokenizer.apply_chat_template(turns, tokenize=False)
        [row] = encode_answers(lm, ["the answer"], ["Haus"])
        assert list(row.ids) == lm.encode(whole, special=False)[: len(row.ids)]


def test_thinking_is_switched_off() -> None:
    assert wrap_prompts(model(THINKING), ["a"]) == ["<s>a</s><s>(none)\n"]


def test_whoever_wants_no_template_gets_none() -> None:
    lm = model(CHATML)
    assert wrap_prompts(lm, ["a "], chat=False) == ["a "]
    [row] = encode_answers(lm, ["a "], ["Haus"], chat=False)
    assert list(row.ids) == lm.encode("a Haus")
    with pytest.raises(InputError, match="has no chat template"):
        wrap_prompts(model(), ["a"], chat=True)


def test_generation_takes_wrapped_prompts_as_they_are() -> None:
    lm = model(CHATML)
    [wrapped] = wrap_prompts(lm, ["the answer"])
    [made] = lm.generate([wrapped], special=False)
    assert list(made.prompt_ids) == lm.tokenizer(wrapped, add_special_tokens=False)["input_ids"]
    # The template wrote a beginning of text, which is not added a second time.
    [again] = lm.generate([wrapped])
    assert again.prompt_ids == made.prompt_ids


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0].no.such }}",
        "{{ raise_exception('no turns') }}",
        "{% for %}",
        "{{ 1 + 'a' }}",
    ],
)
def test_a_faulty_chat_template_is_named(template: str) -> None:
    with pytest.raises(InputError, match=r"chat template cannot put .*--no-chat"):
        wrap_prompts(model(template), ["a"])


def test_what_cannot_be_asked_is_refused() -> None:
    lm = model(context=12)
    with pytest.raises(InputError, match=r"example 2 has .* tokens with its answer"):
        encode_answers(lm, ["a", "the answer " * 9], ["Haus", "Maus"])
    with pytest.raises(InputError, match="answer is empty"):
        encode_answers(lm, ["a"], [" "])
    with pytest.raises(InputError, match="give one for each"):
        encode_answers(lm, ["a"], [])
    bare = lm_helpers.wrapped("llama")
    with pytest.raises(InputError, match="which no token predicts"):
        encode_answers(bare, [""], ["b"])
