"""A task: inputs, each with the one output that is wanted, and how a model is asked for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headscope.errors import InputError

#: Where the input of an example goes in a template.
PLACEHOLDER = "{input}"
#: The prompt without an instruction: the input, and the output after a blank line, as Heads Up!'s
#: published code has it for models without a chat template.
DEFAULT_BARE = "{input}\n\n"

_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


@dataclass(frozen=True)
class Example:
    """An input and its output.

    Attributes:
        id: unique within its task.
        input: what the model is given.
        output: what it should answer; no white space around it.
        line: where the example stands in its file, from 1.
        candidates: where the output is one of several words of the input, those words.
    """

    id: str
    input: str
    output: str
    line: int
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """Examples of one task, and how to ask for it with and without an instruction.

    `instruction` and `bare` are templates with `{input}` once: the text up to where the output
    begins. A prompt that ends in white space is followed by the output directly, any other by one
    space. Braces other than `{input}` mean nothing.

    Attributes:
        name: what results call it.
        examples: in the order of the file.
        instruction: the prompt that says what to do, or None where there is none.
        bare: the prompt that does not.
        language: code of the language of the outputs, or None if unknown.
        at_start: whether an answer counts only at the start of what a model says (letters, items
            of a sequence, extracted words), since the input may hold it too.
        path: where the examples come from.
        digest: SHA-256 of that content.
        source_language: code of the language of the inputs, of translation tasks alone.
        chat: whether prompts go through the tokenizer's chat template; None: where it has one.
            Prompts that are complete already say False.
    """

    name: str
    examples: tuple[Example, ...]
    instruction: str | None
    bare: str
    language: str | None = None
    at_start: bool = False
    path: str = field(default="", metadata={"signature": False})
    digest: str = ""
    source_language: str | None = None
    chat: bool | None = None

    def __post_init__(self) -> None:
        for what, template in (("instruction", self.instruction), ("bare prompt", self.bare)):
            if template is not None:
                check_template(what, template)
        if not self.examples:
            raise InputError(f"the task {self.name!r} has no examples; give at least one")

    @property
    def is_translation(self) -> bool:
        """Whether outputs translate the inputs, so that chrF++ and BLEU have a meaning."""
        return self.source_language is not None


def check_template(what: str, template: str) -> None:
    """Raises `InputError` unless the input has one place in the template."""
    count = template.count(PLACEHOLDER)
    if count != 1:
        raise InputError(
            f"the {what} {template!r} has {PLACEHOLDER} {count} times; put it once where the "
            "input belongs"
        )


def filled(template: str, text: str) -> str:
    """A template with the input in its place; braces in the input have no meaning."""
    before, _, after = template.partition(PLACEHOLDER)
    return f"{before}{text}{after}"


def from_option(template: str) -> str:
    """A template given on a command line, where ``\\n``, ``\\t`` and ``\\\\`` are escapes."""
    return re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], template)
