"""Prompts and answers as tokens: through the tokenizer's chat template where it has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = ["Answered", "encode_answers", "uses_chat", "wrap_prompts"]

#: How SentencePiece writes a space.
_SPACE = "▁"
#: Stands for an answer while the template is asked what it puts in front of one.
_PROBE = "HEADSCOPE"


@dataclasses.dataclass(frozen=True)
class Answered:
    """A prompt and its answer as one row of tokens.

    Attributes:
        ids: all tokens, those that the tokenizer or the chat template adds included.
        start: index of the first token that has a character of the answer, leading white space
            aside; at least 1.
    """

    ids: tuple[int, ...]
    start: int


def uses_chat(lm: LanguageModel, chat: bool | None = None) -> bool:
    """Whether prompts go through the chat template: as told, by default where there is one.

    Raises `InputError` if that is wanted of a tokenizer without a template.
    """
    has = bool(getattr(lm.tokenizer, "chat_template", None))
    if chat and not has:
        raise InputError(
            f"the tokenizer of {lm.name!r} has no chat template; use plain prompts (--no-chat)"
        )
    return has if chat is None else chat


def wrap_prompts(lm: LanguageModel, prompts: Sequence[str], chat: bool | None = None) -> list[str]:
    """Prompts as a model is to be given them for generation.

    With a chat template each becomes a user's turn and the beginning of the model's answer; white
    space around the prompt is left out, and a template that can think aloud is told not to. The
    template writes its own special tokens: tokenise such prompts without adding any
    (`lm.generate(…, special=False)`). Without a template prompts stay as they are.

    Raises `InputError` if a template is wanted and there is none.
    """
    if not uses_chat(lm, chat):
        return list(prompts)
    return [_rendered(lm.tokenizer, [_turn(prompt)], begin=True) for prompt in prompts]


def encode_answers(
    lm: LanguageModel,
    prompts: Sequence[str],
    answers: Sequence[str],
    chat: bool | None = None,
) -> list[Answered]:
    """Tokenise every prompt and its answer as one string.

    A prompt that ends in white space is followed by the answer directly, any other by one space;
    with a chat template the template decides, where it says what it puts before an answer.

    Args:
        lm: the model, whose tokenizer tells the characters of its tokens (a fast one).
        prompts: texts up to where the answers begin.
        answers: one for each prompt; not empty.
        chat: whether prompts go through the chat template; None: where the tokenizer has one.
            Then no special tokens are added to those that the template writes.

    Raises:
        InputError: if a row is longer than the model's context, an answer is empty or stands at
            the very beginning, the tokenizer cannot tell which tokens the answer is in, or its
            chat template is faulty.
    """
    if len(prompts) != len(answers):
        raise InputError(f"{len(prompts)} prompts and {len(answers)} answers; give one for each.")
    tokenizer = lm.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters a token "
            "stands for; load the model's fast tokenizer (tokenizer.json)"
        )
    templated = uses_chat(lm, chat)
    gap = _gap(tokenizer) if templated else None
    rows = []
    for number, (prompt, answer) in enumerate(
        zip(wrap_prompts(lm, prompts, chat), answers, strict=True), 1
    ):
        which = f" {number}" if len(prompts) > 1 else ""
        if not answer.strip():
            raise InputError(f"answer{which} is empty; give a text")
        between = gap if gap is not None else _join(prompt)
        start = len(prompt) + len(between) + len(answer) - len(answer.lstrip())
        row = _encoded(tokenizer, prompt + between + answer, start, not templated)
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


def _join(prompt: str) -> str:
    return "" if not prompt or prompt[-1].isspace() else " "


def _turn(prompt: str) -> dict[str, str]:
    return {"role": "user", "content": prompt.strip()}


def _rendered(tokenizer: Any, turns: list[dict[str, str]], begin: bool) -> str:
    from jinja2 import TemplateError

    try:
        text: str = tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=begin, enable_thinking=False
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(
            f"the tokenizer's chat template cannot put a user's turn into words ({error}); correct "
            "it, or use plain prompts (--no-chat)"
        ) from error
    return text


def _gap(tokenizer: Any) -> str | None:
    """The white space that the template puts between its prompt and an answer, if it shows."""
    asked = [_turn("x")]
    begun = _rendered(tokenizer, asked, begin=True)
    whole = _rendered(tokenizer, [*asked, {"role": "assistant", "content": _PROBE}], begin=False)
    if not whole.startswith(begun):
        return None
    between, found, _ = whole[len(begun) :].partition(_PROBE)
    return between if found and not between.strip() else None


def _encoded(tokenizer: Any, text: str, answer: int, special: bool) -> Answered:
    """Tokens of a text, and the first that has a character from `answer` on."""
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
    ids = tuple(int(one) for one in encoding["input_ids"])
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    for index, (piece, (start, end)) in enumerate(
        zip(pieces, encoding["offset_mapping"], strict=True)
    ):
        # SentencePiece's space before a text is given the first character's place, and a token of
        # white space alone may reach up to the answer: neither holds any of it.
        blank = start >= end or piece.strip(_SPACE) == ""
        if not blank and text[max(start, answer) : end].strip():
            return Answered(ids, index)
    raise InputError(
        f"the tokenizer gives the answer {text[answer : answer + 40]!r} no tokens of its own; "
        "its tokenizer.json may be faulty"
    )
