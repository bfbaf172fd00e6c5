"""The prompt of a translation, with the exact place of the source sentence in it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any, Generic, Protocol, TypeVar, cast

from headscope.data.pairs import PairFile
from headscope.data.rows import unusable
from headscope.errors import InputError, telling
from headscope.own import OwnFunction
from headscope.settings import Option

_PLACEHOLDERS = ("source", "source_language", "target_language")
T = TypeVar("T")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def unescaped(text: str) -> str:
    r"""A template given on a command line, where `\n`, `\t` and `\\` are escapes."""
    lines = text.replace("\r\n", "\n")  # of a file with such line ends
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], lines)


def template_parts(text: str, placeholders: Sequence[str]) -> list[tuple[str, str | None]]:
    """Literal text and the placeholder that follows it, in order.

    Raises ``InputError`` if a brace is left open, or another placeholder or a control character
    occurs.
    """
    if reason := unusable(text, lines=True):
        raise InputError(f"the template {text!r} holds {reason}; take it out")
    known = ", ".join(f"{{{name}}}" for name in placeholders)
    try:
        fields = list(Formatter().parse(text))
    except ValueError as error:
        raise InputError(
            f"the template {text!r} is malformed ({error}); placeholders are {known}, and a "
            "literal brace is doubled"
        ) from None
    for _, name, form, conversion in fields:
        if name is not None and (name not in placeholders or form or conversion):
            shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            raise InputError(
                f"the template {text!r} has the placeholder {{{shown}}}; known are {known}, "
                "without format or conversion, and a literal brace is doubled"
            )
    return [(literal, name) for literal, name, _, _ in fields]


@dataclass(frozen=True)
class FullPrompt:
    """Prompt and target as one string; spans are half-open character ranges of ``text``.

    ``special``: whether the tokenizer adds its special tokens.
    """

    text: str
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    special: bool = True

    @property
    def source_span(self) -> tuple[int, int]:
        """Where the source sentence stands."""
        return self.source_start, self.source_end

    @property
    def target_span(self) -> tuple[int, int]:
        """Where the target sentence stands."""
        return self.target_start, self.target_end


@dataclass(frozen=True)
class Prompt:
    """A prompt up to where the target begins; ``text[source_start:source_end]`` is the source.

    ``joint`` stands between prompt and target. ``special``: whether the tokenizer adds its special
    tokens; not to what a chat template wrote.
    """

    text: str
    source_start: int
    source_end: int
    joint: str = " "
    special: bool = True

    @property
    def source_span(self) -> tuple[int, int]:
        """Where the source sentence stands."""
        return self.source_start, self.source_end

    def in_chat(self, chat: ChatWriter, before: Sequence[str] = ()) -> Prompt:
        """The prompt as a user's turn, after turns of user and assistant."""
        text, start = chat.write([*before, self.text])
        # White space around a turn is left out.
        start -= len(self.text) - len(self.text.lstrip())
        return Prompt(
            text, start + self.source_start, start + self.source_end, chat.joint, special=False
        )

    def with_target(self, target: str) -> FullPrompt:
        """Prompt, what stands between, and target as one string."""
        start = len(self.text) + len(self.joint)
        text = f"{self.text}{self.joint}{target}"
        return FullPrompt(text, self.source_start, self.source_end, start, len(text), self.special)


@dataclass(frozen=True)
class Template:
    """A prompt with ``{source}`` and, optionally, ``{source_language}``, ``{target_language}``.

    Literal braces are doubled. Raises ``InputError`` if ``{source}`` is missing or occurs twice,
    if another placeholder occurs, or if a brace is left open.
    """

    text: str

    def __post_init__(self) -> None:
        self._parts()

    @classmethod
    def from_option(cls, text: str) -> Template:
        """A template given on a command line, where ``\\n``, ``\\t`` and ``\\\\`` are escapes."""
        return cls(unescaped(text))

    def render(self, source: str, source_language: str, target_language: str) -> Prompt:
        """The prompt for one sentence; languages are given by their English names.

        The sentence is inserted as it is: braces in it have no meaning.
        """
        values = {
            "source": source,
            "source_language": source_language,
            "target_language": target_language,
        }
        text, start = "", 0
        for literal, name in self._parts():
            text += literal
            if name == "source":
                start = len(text)
            if name is not None:
                text += values[name]
        return Prompt(text, start, start + len(source))

    def _parts(self) -> list[tuple[str, str | None]]:
        parts = template_parts(self.text, _PLACEHOLDERS)
        count = sum(name == "source" for _, name in parts)
        if count != 1:
            raise InputError(
                f"the template {self.text!r} has {{source}} {count} times; put it once where the "
                "sentence to translate belongs"
            )
        return parts


@dataclass(frozen=True)
class WrittenTemplate(Template):
    """A prompt that a function of the user's writes, of the source sentence or of it and the
    English names of both languages.

    It must put the sentence in once, as it is, and depend on its arguments alone: a run is found
    again by the function's code (see `headscope.own`). ``text`` is what it makes of ``{source}``.
    """

    function: OwnFunction

    @classmethod
    def by(cls, function: Callable[..., str]) -> WrittenTemplate:
        """The template of a function."""
        own = OwnFunction.of(function)
        return cls(_written(own, "{source}", "{source_language}", "{target_language}"), own)

    def __post_init__(self) -> None:
        if self.text.count("{source}") != 1:
            raise InputError(
                f"the template function {self.function.name} puts the sentence in "
                f"{self.text.count('{source}')} times; put it in once, as it is"
            )

    def render(self, source: str, source_language: str, target_language: str) -> Prompt:
        languages = (source_language, target_language)
        text = _written(self.function, source, *languages)
        # Beside a sentence that no prompt holds, its place is certain.
        start = _written(self.function, _NOWHERE, *languages).find(_NOWHERE)
        if not text.startswith(source, start) or start < 0:
            start = text.find(source)
        if start < 0:
            raise InputError(
                f"the template function {self.function.name} does not put the sentence "
                f"{source[:40]!r} into its prompt; put it in once, as it is"
            )
        return Prompt(text, start, start + len(source))


#: A sign for private use, which stands in no text.
_NOWHERE = "\ue0f1"


def _written(own: OwnFunction, source: str, *languages: str) -> str:
    """What a template function makes of a sentence; `InputError` where that is no prompt."""
    try:
        takes = [*inspect.signature(own.function).parameters.values()]
    except ValueError:  # of a function in C
        takes = []
    required = [taken for taken in takes if taken.kind in (taken.POSITIONAL_ONLY,
                taken.POSITIONAL_OR_KEYWORD) and taken.default is taken.empty]  # fmt: skip
    given = (source, *languages) if len(required) == 3 else (source,)
    with telling(lambda why: f"the template function {own.name} fails on {source[:40]!r} ({why})"):
        text = own.function(*given)
    if not isinstance(text, str):
        raise InputError(f"the template function {own.name} gives {text!r:.40}; give a text")
    if reason := unusable(text, lines=True):
        raise InputError(f"the prompt {text[:40]!r} holds {reason}; take it out")
    return text


class ChatWriter(Protocol):
    """Writes conversations by a chat template (see ``headscope.lm.prompting.chat_writer``)."""

    @property
    def joint(self) -> str:
        """What stands between a written conversation and the answer."""
        ...

    def write(self, turns: Sequence[str]) -> tuple[str, int]:
        """Turns of user and assistant, the user's last, up to where the answer begins; and where
        the last turn stands in it, white space around it aside."""
        ...


def translation_prompts(
    pairs: PairFile, template: Template, chat: ChatWriter | None = None, bos: str = ""
) -> list[Prompt]:
    """The prompt of every pair, after the shots of its direction.

    Shots have the template's own wording, each with its translation and followed by an empty line;
    with a chat template they are earlier turns. A template that begins with ``bos``, the
    tokenizer's beginning of text, has it once, before the first shot.
    """
    shots = [
        (template.render(shot.source, *pairs.language_names).text, shot.target)
        for shot in pairs.shots
    ]
    prompts = [template.render(pair.source, *pairs.language_names) for pair in pairs.pairs]
    if chat is not None:
        turns = [turn for shot in shots for turn in shot]
        return [prompt.in_chat(chat, turns) for prompt in prompts]
    before = "".join(f"{question.removeprefix(bos)} {answer}\n\n" for question, answer in shots)
    if not shots:
        return prompts
    begun = bos if bos and shots[0][0].startswith(bos) else ""
    moved = len(before)
    return [
        replace(
            prompt,
            text=begun + before + prompt.text.removeprefix(bos),
            source_start=prompt.source_start + moved,
            source_end=prompt.source_end + moved,
        )
        for prompt in prompts
    ]


DEFAULT_TEMPLATE = Template(
    "Translate this sentence from {source_language} to {target_language}\n"
    "Sentence: {source}\n"
    "Answer:"
)


#: How settings take a template from the command line.
TEMPLATE_OPTION = Option(
    "Prompt up to the target, with {source}, {source_language} and {target_language}.",
    typed=str,
    read=Template.from_option,
    held="template",
    panel="Prompt",
)


class TemplateField(Generic[T]):
    """A field of settings that holds a template and is given one, or its text.

    `read` makes a template of a text, and raises where it cannot be one. A prompt of translations
    may be written by a function, too (see `WrittenTemplate`).
    """

    def __init__(self, default: T, read: Callable[[str], T]) -> None:
        self._default, self._read = default, read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, settings: Any, owner: type | None = None) -> T:
        if settings is None:
            return self._default
        value: T = vars(settings)[self._name]
        return value

    def __set__(self, settings: Any, value: T | str) -> None:
        # Settings are frozen dataclasses: only their `__init__` reaches this.
        made: Any = value
        if isinstance(value, str):
            made = self._read(value)
        elif callable(value):
            if cast(Any, self._read) is not Template:
                raise InputError("the template is a text here, with placeholders; give one")
            made = WrittenTemplate.by(value)
        vars(settings)[self._name] = made
