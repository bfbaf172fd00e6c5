"""What a model is given to write from, texts and conversations, and what it writes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.data.files import check_limit, plain_name
from headscope.data.rows import ID, Field, clean_text, open_rows, text_cell
from headscope.data.tables import ABSENT
from headscope.errors import InputError, check_unicode, naming
from headscope.heads import Gate
from headscope.progress import Progress
from headscope.settings import UNSIGNED, Option, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.runs import Run

#: A turn of a conversation: its `role` and `content`.
Message = Mapping[str, str]

OneLine = Annotated[bool, Option("End an output at the first newline after text.", panel="Prompt")]


@dataclass(frozen=True)
class PromptsChoice(Settings):
    """What the model is given: texts, or a file of texts or conversations.

    `data` is read as `read_prompts` says.
    """

    prompt: Annotated[
        tuple[str, ...], Option("A text to go on from; repeatable.", metavar="TEXT", panel="Prompt")
    ] = field(default=(), metadata=UNSIGNED)
    data: str | None = field(default=None, metadata=UNSIGNED)
    column: options.TextColumn = field(default="text", metadata=UNSIGNED)
    reference: Annotated[
        str | None,
        Option(
            "The expected output, likewise; without it reference, if there.",
            flag="--reference-column",
            metavar="COLUMN",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    limit: options.Limit = field(default=None, metadata=UNSIGNED)
    chat: Annotated[
        bool,
        Option(
            "Put texts through the chat template as a user's turn; chat messages always go.",
            flag="--chat/--no-chat",
            panel="Prompt",
        ),
    ] = False

    def read(self) -> list[GivenPrompt]:
        """The prompts; `InputError` if there are none, or both kinds."""
        if bool(self.prompt) == (self.data is not None):
            raise InputError(
                "what the model is to go on from is not clear; give either --prompt TEXT, once or "
                "more often, or --data FILE"
            )
        if self.data is None:
            return _typed(self.prompt)[: self.limit]
        return read_prompts(self.data, self.column, self.reference, self.limit)


@dataclass(frozen=True)
class GivenPrompt:
    """One prompt: a text, or the turns of a conversation.

    Attributes:
        id: the record's own, else its line.
        given: the text, or the messages.
        place: where it stands, for messages of errors.
        reference: what was hoped for, where the file says it.
    """

    id: str
    given: str | tuple[Message, ...]
    place: str
    reference: str | None = None

    @property
    def plain(self) -> str | list[dict[str, str]]:
        """What was given, as JSON holds it."""
        return self.given if isinstance(self.given, str) else [dict(turn) for turn in self.given]


@dataclass(frozen=True)
class Rendered:
    """A prompt as the tokenizer gets it; `special`: whether special tokens are to be added."""

    prompt: GivenPrompt
    text: str
    special: bool


def _typed(texts: Sequence[str]) -> list[GivenPrompt]:
    """Prompts given one by one; InputError for one without anything but white space."""
    prompts = []
    for number, text in enumerate(texts, 1):
        place = f"--prompt {number}" if len(texts) > 1 else "--prompt"
        if not text.strip():
            raise InputError(f"{place} is empty; give a text to go on from")
        prompts.append(GivenPrompt(str(number), text, place))
    return prompts


def read_prompts(
    path: str | Path, column: str = "text", reference: str | None = None, limit: int | None = None
) -> list[GivenPrompt]:
    """The first `limit` prompts of a file, in its order.

    A `.txt` file holds one a line. Files of records hold them in `column`: texts, or conversations
    as lists of messages with `role` and `content`; `id` and the column `reference` (`reference`, if
    there, where it is None) go along. A conversation that ends with a message of the assistant is
    continued in that message.

    Raises `InputError`, naming file and line, for a file that cannot be read or holds no prompts, a
    column that is missing, an empty prompt, or something that is no conversation.
    """
    path = Path(path)
    check_limit(limit)
    given = Field(column, _given)
    answer = Field(
        reference or "reference",
        text_cell("give a text", lines=True),
        ABSENT if reference else None,
    )
    plain = plain_name(path).suffix.lower() == ".txt"
    prompts: list[GivenPrompt] = []
    with open_rows(path, (given, answer, ID), plain=plain) as rows:
        for row in rows:
            prompt = row[given]
            check_unicode(row.id, f"{row.place}: column 'id'")
            prompts.append(GivenPrompt(row.id, prompt, row.place, None if plain else row[answer]))
            if len(prompts) == limit:
                break
    if not prompts:
        raise InputError(f"{path} holds no prompts; give a file with at least one")
    return prompts


def prompts_digest(prompts: Sequence[GivenPrompt]) -> str:
    """SHA-256 of prompts and references in their order."""
    hasher = hashlib.sha256()
    for prompt in prompts:
        row = [prompt.id, prompt.plain, prompt.reference]
        hasher.update(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return hasher.hexdigest()


def rendered(
    lm: LanguageModel, prompts: Sequence[GivenPrompt], chat: bool = False
) -> list[Rendered]:
    """Prompts as strings; conversations, and with `chat` texts too, by the chat template.

    The template begins the assistant's answer, writes its own special tokens, and is told not to
    think aloud where it can. Raises `InputError`, naming the prompt, if there is no template, it is
    faulty or does not take the conversation, or if a prompt has no token or leaves the context no
    room for a new one.
    """
    from headscope.lm.prompting import uses_chat, wrap_prompts

    rows = []
    for prompt in prompts:
        with naming(prompt.place):
            if isinstance(prompt.given, tuple):
                uses_chat(lm, True)  # says so where there is no template
                row = Rendered(prompt, _templated(lm, prompt.given), special=False)
            elif chat:
                row = Rendered(prompt, wrap_prompts(lm, [prompt.given], True)[0], special=False)
            else:
                uses_chat(lm, False)  # says so where a system message is given
                row = Rendered(prompt, prompt.given, special=True)
            size = len(lm.encode(row.text, row.special))
            if not 0 < size < lm.context_length:
                raise InputError(
                    f"the prompt has {size} tokens; it needs at least 1 and fewer than the "
                    f"model's context of {lm.context_length}, so shorten it or leave it out"
                )
        rows.append(row)
    return rows


def _templated(lm: LanguageModel, messages: Sequence[Message]) -> str:
    from headscope.lm.tokens import ChatWriter, render_conversation

    begun, writer = messages[-1]["role"] == "assistant", ChatWriter(lm.tokenizer, lm.system)
    rows = writer.with_system(messages)
    text = render_conversation(
        lm.tokenizer,
        rows,
        "this conversation",
        "correct the messages or the template",
        add_generation_prompt=not begun,
        continue_final_message=begun,
    )
    return text if begun else writer.placed(text, rows)


def written(
    lm: LanguageModel,
    rows: Sequence[Rendered],
    name: str,
    how: GenerateConfig,
    limit: int,
    run: Run,
    progress: Progress | None = None,
    gates: Sequence[Gate] | None = None,
) -> list[str]:
    """What the model writes as it stands, kept in the run under `name` as it comes.

    `gates` are on the model too, one for each row.
    """
    from headscope.evidence.runner import Pass, kept_texts

    made: dict[int, str] = {}
    every = [Gate.identity(lm.geometry)] * len(rows) if gates is None else gates
    # Whether the tokenizer adds its special tokens holds for a whole pass.
    for special, kind in ((True, "texts"), (False, "chats")):
        places = [at for at, row in enumerate(rows) if row.special is special]
        if not places:
            continue
        of_gate: dict[bytes, list[int]] = {}
        for number, at in enumerate(places):
            of_gate.setdefault(every[at].values.tobytes(), []).append(number)
        key = f"{name}, {kind}"
        passes = {
            key if gates is None else f"{key} {number}": Pass(every[places[own[0]]], own)
            for number, own in enumerate(of_gate.values())
        }
        texts = [rows[at].text for at in places]
        texts_made = kept_texts(
            lm, texts, [limit] * len(places), passes, how, run, f"writing {key}", progress, special
        )
        for of_pass in texts_made.values():
            made.update({places[number]: text for number, text in of_pass.items()})
    return [made[at] for at in range(len(rows))]


def _given(cell: Any, place: str, column: str) -> str | tuple[Message, ...]:
    if not isinstance(cell, list):
        return text_cell("give a text or a list of messages", lines=True)(cell, place, column)
    if not cell:
        raise InputError(f"{place}: column {column!r} holds no message; give one, or remove it")
    messages: list[Message] = []
    for number, turn in enumerate(cell, 1):
        name = f"{place}: message {number} of column {column!r}"
        message: dict[str, str] = {}
        for key in ("role", "content"):
            text = turn.get(key) if isinstance(turn, dict) else None
            if not isinstance(text, str):
                raise InputError(
                    f'{name} is no message; write {{"role": "user", "content": "..."}} with texts '
                    "alone"
                )
            if not text.strip():
                raise InputError(f"{name} has an empty role or content; fill it or remove it")
            message[key] = clean_text(text, name, lines=True)
        messages.append(message)
    return tuple(messages)
