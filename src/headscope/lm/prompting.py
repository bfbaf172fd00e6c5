"""Prompts and answers as tokens: through the tokenizer's chat template where it has one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = [
    "Answered",
    "ChatWriter",
    "Tokens",
    "chat_writer",
    "encode_answer",
    "encode_answers",
    "end_of_turn",
    "render_conversation",
    "tokenise",
    "uses_chat",
    "wrap_prompts",
]

#: How SentencePiece writes a space.
_SPACE = "▁"
#: Stands for an answer while the template is asked what it puts around one.
_PROBE = "HEADSCOPE"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """A text as tokens.

    Attributes:
        ids: the tokens.
        spans: for each the half-open range of characters that it covers, white space in front
            aside; empty for special tokens that the tokenizer added and for bare white space.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def tokenise(tokenizer: Any, text: str, special: bool = True) -> Tokens:
    """Tokenise `text` by the tokenizer's own defaults, with the characters of each token.

    A beginning or end of text that the text brings itself is not added a second time; without
    `special` none is added at all. Raises `InputError` if the tokenizer cannot tell the characters
    of its tokens.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters a token "
            "stands for; load the model's fast tokenizer (tokenizer.json)"
        )
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=special)
    kept = without_doubles(tokenizer, text, encoding["input_ids"]) if special else slice(None)
    ids = encoding["input_ids"][kept]
    spans = []
    for piece, (start, end) in zip(
        tokenizer.convert_ids_to_tokens(ids), encoding["offset_mapping"][kept], strict=True
    ):
        # The space that SentencePiece puts before a text is given the first character's place.
        begin = end if piece.strip(_SPACE) == "" else start
        while begin < end and text[begin].isspace():
            begin += 1
        spans.append((begin, end))
    return Tokens(tuple(ids), tuple(spans))


def without_doubles(tokenizer: Any, text: str, ids: Sequence[int]) -> slice:
    """The part of a text's tokens without a special token added to one that the text brings."""
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    first = bos is not None and text.startswith(tokenizer.bos_token) and [*ids[1:2]] == [bos]
    last = eos is not None and text.endswith(tokenizer.eos_token) and [*ids[-2:-1]] == [eos]
    if first or last:  # rare; the text may also bring two, and the tokenizer add none
        plain = tokenizer(text, add_special_tokens=False)["input_ids"]
        first = first and _run_of(bos, ids) > _run_of(bos, plain)
        last = last and _run_of(eos, ids[::-1]) > _run_of(eos, plain[::-1])
    return slice(int(first), len(ids) - int(last))


def _run_of(token: int, ids: Sequence[int]) -> int:
    """How often a token stands at the beginning, one after the other."""
    return sum(1 for _ in takewhile(lambda index: index == token, ids))


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


def uses_chat(lm: LanguageModel, chat: bool | None = None, wording: str = "") -> bool:
    """Whether prompts go through the chat template: as told, by default where there is one.

    A `wording` of prompts that holds special tokens, or ends as the template ends a prompt, is such
    a template written out already, and by default left as it is. Raises `InputError` if a template
    is wanted and there is none.
    """
    has = bool(getattr(lm.tokenizer, "chat_template", None))
    if chat and not has:
        raise InputError(
            f"the tokenizer of {lm.name!r} has no chat template; use plain prompts (--no-chat)"
        )
    if chat is not None or not has or not wording:
        return has if chat is None else chat
    asked, start = ChatWriter(lm.tokenizer).write(["x"])
    ending = asked[start + 1 :].strip()
    written_out = bool(ending) and wording.rstrip().endswith(ending)
    return not written_out and not any(
        token in wording for token in _special(lm.tokenizer).values()
    )


def _special(tokenizer: Any) -> dict[int, str]:
    """The special tokens of a tokenizer, by id."""
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    added = tokenizer.added_tokens_decoder.items()
    return {**dict(named), **{index: str(token) for index, token in added if token.special}}


@dataclasses.dataclass(frozen=True)
class ChatWriter:
    """Writes conversations by a chat template; one that can think aloud is told not to.

    The template writes its own special tokens: tokenise what it wrote without adding any.

    Attributes:
        tokenizer: whose template it is.
    """

    tokenizer: Any

    @property
    def joint(self) -> str:
        """The white space that the template puts between a conversation and the answer.

        Where it does not show: nothing after white space, else one space.
        """
        asked, _ = self.write(["x"])
        whole = self._rendered(["x", _PROBE])
        between, probe, _ = whole.removeprefix(asked).partition(_PROBE)
        if whole.startswith(asked) and probe and not between.strip():
            return between
        return _join(asked)

    def write(self, turns: Sequence[str]) -> tuple[str, int]:
        """Turns of user and assistant, the user's last, up to where the answer begins.

        Returns:
            The text, and where the last turn stands in it. White space around a user's turn is
            left out.

        Raises:
            InputError: if the template is faulty or changes the last turn.
        """
        text = self._rendered(turns)
        start = text.rfind(turns[-1].strip())
        if start < 0:
            raise InputError(
                "the tokenizer's chat template changes the text of a prompt, so its words cannot "
                "be found in it; use plain prompts (--no-chat)"
            )
        return text, start

    def _rendered(self, turns: Sequence[str]) -> str:
        messages = [
            {"role": "assistant", "content": turn}
            if number % 2
            else {"role": "user", "content": turn.strip()}
            for number, turn in enumerate(turns)
        ]
        return render_conversation(
            self.tokenizer,
            messages,
            "a user's turn",
            "correct it, or use plain prompts (--no-chat)",
            add_generation_prompt=bool(len(turns) % 2),
        )


def render_conversation(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], what: str, fix: str, **options: bool
) -> str:
    """A conversation as the chat template writes it; one that can think aloud is told not to.

    `options` are those of `apply_chat_template`. Raises `InputError` where the template fails;
    `what` says what was to be written, `fix` what to do.
    """
    from jinja2 import TemplateError

    try:
        text: str = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            enable_thinking=False,
            **options,
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(
            f"the tokenizer's chat template cannot put {what} into words ({error}); {fix}"
        ) from error
    return text


def chat_writer(
    lm: LanguageModel, chat: bool | None = None, wording: str = ""
) -> ChatWriter | None:
    """The chat template of a model where prompts go through it, as `uses_chat` says."""
    return ChatWriter(lm.tokenizer) if uses_chat(lm, chat, wording) else None


def end_of_turn(tokenizer: Any) -> int | None:
    """The special token by which the chat template ends an answer, if it has one.

    Some models' settings name their end of text alone, at which a chat never ends.
    """
    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        whole = ChatWriter(tokenizer)._rendered(["x", _PROBE])
    except InputError:
        return None  # said where the template is used
    ids = tokenizer(whole.rpartition(_PROBE)[2], add_special_tokens=False)["input_ids"]
    special = _special(tokenizer)
    return next((index for index in ids if index in special), None)


def wrap_prompts(lm: LanguageModel, prompts: Sequence[str], chat: bool | None = None) -> list[str]:
    """Prompts as a model is to be given them for generation.

    With a chat template each becomes a user's turn and the beginning of the model's answer; white
    space around the prompt is left out. Such prompts hold their special tokens: tokenise them
    without adding any (`lm.generate(…, special=False)`). Without a template prompts stay as they
    are.

    Raises `InputError` if a template is wanted and there is none.
    """
    writer = chat_writer(lm, chat)
    return list(prompts) if writer is None else [writer.write([one])[0] for one in prompts]


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
    writer = chat_writer(lm, chat)
    joint = None if writer is None else writer.joint
    rows = []
    for number, (prompt, answer) in enumerate(
        zip(wrap_prompts(lm, prompts, chat), answers, strict=True), 1
    ):
        which = f" {number}" if len(prompts) > 1 else ""
        if not answer.strip():
            raise InputError(f"answer{which} is empty; give a text")
        between = _join(prompt) if joint is None else joint
        start = len(prompt) + len(between) + len(answer) - len(answer.lstrip())
        row = encode_answer(lm.tokenizer, prompt + between + answer, start, writer is None)
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


def encode_answer(tokenizer: Any, text: str, answer: int, special: bool) -> Answered:
    """Tokens of a text, and the first of them that has a character from `answer` on.

    Raises `InputError` if there is none.
    """
    tokens = tokenise(tokenizer, text, special)
    for index, (start, end) in enumerate(tokens.spans):
        # A token of white space alone may reach up to the answer: it holds nothing of it.
        if text[max(start, answer) : end].strip():
            return Answered(tokens.ids, index)
    raise InputError(
        f"the tokenizer gives the answer {text[answer : answer + 40]!r} no tokens of its own; "
        "its tokenizer.json may be faulty"
    )
