"""Prompts and answers as tokens: through the tokenizer's chat template where it has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from headscope.errors import InputError
from headscope.lm.model import LanguageModel
from headscope.lm.tokens import (
    ChatWriter,
    end_of_turn,
    joint_after,
    special_tokens,
    texts_of,
    tokenise,
)


@dataclasses.dataclass(frozen=True)
class Answered:
    """A prompt and its answer as one row of tokens.

    Attributes:
        ids: all tokens, those that the tokenizer or the chat template adds included.
        start: index of the first token that has a character of the answer, leading white space
            aside; at least 1.
        name: what messages call it.
    """

    ids: tuple[int, ...]
    start: int
    name: str = ""


def uses_chat(lm: LanguageModel, chat: bool | None = None, wording: str = "") -> bool:
    """Whether prompts go through the chat template: as told, by default where there is one.

    A `wording` of prompts that holds special tokens, or ends as the template ends a prompt, is such
    a template written out already, and by default left as it is. Raises `InputError` if a template
    is wanted and there is none, or a system message and there is no template for it.
    """
    has = bool(getattr(lm.tokenizer, "chat_template", None))
    if chat and not has:
        raise InputError(
            f"the tokenizer of {lm.name!r} has no chat template; use plain prompts (--no-chat)"
        )
    used = has if chat is None else chat
    if chat is None and has and wording:
        writer = ChatWriter(lm.tokenizer)
        wrapped, start = writer.write(["x"])
        place = writer.place
        endings = [wrapped[start + 1 :], place.begun, place.unswitched]
        written_out = any(ending.strip() and wording.rstrip().endswith(ending.strip())
                          for ending in endings)  # fmt: skip
        used = not written_out and not any(
            token in wording for token in special_tokens(lm.tokenizer).values()
        )
    if lm.system and not used:  # without a template there is no message to leave out
        raise InputError(
            "--system is for the chat template, and these prompts do not go through one; leave "
            "--system out, or add --chat where the tokenizer has a template"
        )
    return used


def chat_writer(
    lm: LanguageModel, chat: bool | None = None, wording: str = ""
) -> ChatWriter | None:
    """The chat template of a model where prompts go through it, as `uses_chat` says."""
    return ChatWriter(lm.tokenizer, lm.system) if uses_chat(lm, chat, wording) else None


def wrap_prompts(
    lm: LanguageModel, prompts: Sequence[str] | str, chat: bool | None = None
) -> list[str]:
    """Prompts as a model is to be given them for generation.

    With a chat template each becomes a user's turn and the beginning of the model's answer, without
    white space around it. Such prompts hold their special tokens: tokenise them without adding any
    (`lm.generate(…, special=False)`). Raises `InputError` if a template is wanted and there is
    none.
    """
    writer, prompts = chat_writer(lm, chat), texts_of(prompts)
    return prompts if writer is None else [writer.write([prompt])[0] for prompt in prompts]


def joints(lm: LanguageModel, wrapped: Sequence[str], chat: bool | None = None) -> list[str]:
    """What stands between each prompt, as `wrap_prompts` writes it, and the answer to it."""
    writer = chat_writer(lm, chat)
    return [joint_after(prompt) if writer is None else writer.joint for prompt in wrapped]


def encode_answers(
    lm: LanguageModel,
    prompts: Sequence[str] | str,
    answers: Sequence[str] | str,
    chat: bool | None = None,
    ended: bool = False,
) -> list[Answered]:
    """Tokenise every prompt and its answer as one string, `ended` by the token that ends a turn or,
    without a chat template, a text.

    A prompt that ends in white space is followed by the answer directly, any other by one space;
    with a chat template the template decides, where it says what it puts before an answer, and no
    special tokens are added to those that it writes. Raises `InputError` if a row is longer than
    the model's context, an answer is empty or stands at the very beginning, the tokenizer cannot
    tell which tokens the answer is in, or its chat template is faulty.
    """
    prompts, answers = texts_of(prompts), texts_of(answers, "answer")
    if len(prompts) != len(answers):
        raise InputError(f"{len(prompts)} prompts and {len(answers)} answers; give one for each.")
    writer = chat_writer(lm, chat)
    wrapped = wrap_prompts(lm, prompts, chat)
    rows, last = [], ending(lm, writer is not None) if ended else ()
    for number, (prompt, joint, answer) in enumerate(
        zip(wrapped, joints(lm, wrapped, chat), answers, strict=True), 1
    ):
        which = f" {number}" if len(prompts) > 1 else ""
        if not answer.strip():
            raise InputError(f"answer{which} is empty; give a text")
        start = len(prompt) + len(joint) + len(answer) - len(answer.lstrip())
        row = encode_answer(lm, prompt + joint + answer, start, writer is None)
        row = dataclasses.replace(row, ids=(*row.ids, *last))
        if row.start < 1:
            raise InputError(
                f"answer{which} begins with the first token, which no token predicts; give a "
                "prompt before it"
            )
        if len(row.ids) > lm.context_length:
            raise InputError(
                f"example{which} has {len(row.ids)} tokens with its answer, more than the "
                f"model's context of {lm.context_length}; leave it out or shorten it"
            )
        rows.append(row)
    return rows


def parting(own: Answered, other: Answered) -> int | None:
    """The first token in which two answers to one prompt differ, be it the white space before one
    of them; None where one begins the other, or the prompts differ."""
    pairs = enumerate(zip(own.ids, other.ids, strict=False))
    at = next((at for at, (first, two) in pairs if first != two), 0)
    return at if at >= min(own.start, other.start) else None


def ending(lm: LanguageModel, chat: bool) -> tuple[int]:
    """The token that ends an answer; `InputError` where the tokenizer has none."""
    token = end_of_turn(lm.tokenizer) if chat else lm.tokenizer.eos_token_id
    if token is None:
        of = "turn" if chat else "text"
        raise InputError(
            f"the tokenizer of {lm.name!r} names no token that ends a {of}; leave --answer-end out"
        )
    lm.known([token])
    return (token,)


def encode_answer(lm: LanguageModel, text: str, answer: int, special: bool) -> Answered:
    """Tokens of a text, and the first of them that has a character from `answer` on.

    Raises `InputError` if there is none, or the model does not know a token.
    """
    tokens = tokenise(lm.tokenizer, text, special)
    lm.known(tokens.ids)
    for index, (start, end) in enumerate(tokens.spans):
        # A token of white space alone may reach up to the answer: it holds nothing of it.
        if text[max(start, answer) : end].strip():
            return Answered(tokens.ids, index)
    raise InputError(
        f"the tokenizer gives the answer {text[answer : answer + 40]!r} no tokens of its own; "
        "its tokenizer.json may be faulty"
    )
