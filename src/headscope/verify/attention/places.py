"""Where the candidates of an example stand in its prompt, as tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.data.tasks import Example, Task, prompt
from headscope.data.tasks.task import PLACEHOLDER
from headscope.errors import InputError, naming

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True)
class Placed:
    """A prompt as tokens, and which of them are the candidates'.

    Attributes:
        ids: tokens up to the last input token, which predicts the answer.
        target: places of the tokens of the right candidate.
        others: places of the tokens of the other candidates.
    """

    ids: tuple[int, ...]
    target: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def uniform(self) -> float:
        """The target's share of the candidates' tokens."""
        return len(self.target) / (len(self.target) + len(self.others))


def place_candidates(
    lm: LanguageModel, task: Task, example: Example, instructed: bool = False
) -> Placed:
    """Tokenise the prompt of an example and find its candidates in it.

    A token belongs to a candidate if its characters, leading white space aside, intersect it.

    Raises:
        InputError: naming file and line, if the example has no two candidates, the answer is none
            of them, or one cannot be found in the prompt or has no token of its own.
    """
    from headscope.lm.prompting import chat_writer, encode_answers
    from headscope.lm.tokens import tokenise

    where = f"{task.path}, example {example.id} (line {example.line})"
    if len(example.candidates) < 2 or example.output not in example.candidates:
        raise InputError(
            f"{where}: has no candidates among which the answer could be looked at; use a task "
            'whose inputs are words such as "a, b, c" with one of them as the output, or add a '
            "column `candidates`"
        )
    text = prompt(task, example, instructed)
    template = task.instruction if instructed and task.instruction is not None else task.bare
    begin = template.index(PLACEHOLDER)
    spans = _within(text, begin, begin + len(example.input), example.candidates, where)
    writer = chat_writer(lm, task.chat)
    wrapped, offset = text, 0
    if writer is not None:
        with naming(where):
            wrapped, offset = writer.write([text])
        # White space around the prompt is left out.
        offset -= len(text) - len(text.lstrip())
    (row,) = encode_answers(lm, [text], [example.output], task.chat)
    ids = row.ids[: row.start]
    own = tokenise(lm.tokenizer, wrapped, special=writer is None)
    covered: list[tuple[int, ...]] = []
    for start, end in spans:
        inside = tuple(
            place
            for place, (token, (first, last)) in enumerate(zip(own.ids, own.spans, strict=True))
            if first < end + offset and last > start + offset and ids[place : place + 1] == (token,)
        )
        if not inside:
            raise InputError(
                f"{where}: the candidate {text[start:end]!r} has no token of its own in the prompt"
            )
        covered.append(inside)
    right = {
        place
        for word, places in zip(example.candidates, covered, strict=True)
        for place in places
        if word == example.output
    }
    every = {place for places in covered for place in places}
    return Placed(ids, tuple(sorted(right)), tuple(sorted(every - right)))


def _within(
    text: str, begin: int, end: int, words: Sequence[str], where: str
) -> list[tuple[int, int]]:
    """The characters of each word in ``text[begin:end]``, one after another where they can be.

    A word of its own is meant rather than a part of another one: art, not that of cart.
    """
    spans = []
    at = begin
    for word in words:
        whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        match = whole.search(text, at, end) or whole.search(text, begin, end)
        found = match.start() if match else text.find(word, at, end)
        if found < 0:
            found = text.find(word, begin, end)
        if found < 0:
            raise InputError(f"{where}: the candidate {word!r} is not in the input; correct one")
        at = found + len(word)
        spans.append((found, at))
    return spans
