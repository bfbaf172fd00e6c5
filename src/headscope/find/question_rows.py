"""Questions as a model reads them: prompts, rows of tokens, and contexts that have to be cut."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.data.question_prompts import QuestionTemplate
from headscope.data.questions import Question
from headscope.errors import InputError, naming
from headscope.find.gate_fitting import Sample

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True)
class Asked:
    """A question with its prompt and the row of prompt and first answer; `cut`: see `ask`."""

    question: Question
    prompt: str
    sample: Sample
    cut: bool


def ask(
    lm: LanguageModel,
    questions: Sequence[Question],
    template: QuestionTemplate,
    path: str,
    new_tokens: int,
    chat: bool | None = None,
) -> list[Asked]:
    """The prompts and rows of questions, in order; `path` is the file's, for messages.

    A context too long for the model, with the answer or `new_tokens` generated ones after it, is
    cut to a window around the first place of an answer. Where in the window the answer lies is
    drawn from the question's id, so that its place tells nothing. Without an answer in it a
    context is cut at its end.

    Raises `InputError` if a question does not even fit with the answer as its whole context.
    """
    from headscope.lm.prompting import encode_answers

    reader = _Reader(lm, template, new_tokens, chat)
    asked = []
    for question in questions:
        name = f"{path}, {question.place}"
        context, cut = reader.context(question, name)
        prompt = template.render(question, context)
        with naming(name):
            (row,) = encode_answers(lm, [prompt], [question.answers[0]], chat)
        asked.append(Asked(question, prompt, Sample(row.ids, row.start, name), cut))
    return asked


@dataclass(frozen=True)
class _Reader:
    lm: LanguageModel
    template: QuestionTemplate
    new_tokens: int
    chat: bool | None

    def context(self, question: Question, name: str) -> tuple[str, bool]:
        """As much of the context as fits, and whether that is less than all."""
        if self._fits(question, question.context):
            return question.context, False
        context = question.context
        found = next(
            ((context.index(one), one) for one in question.answers if one in context), (0, "")
        )
        shortest, longest = len(found[1]), len(context)
        if not self._fits(question, _window(question, *found, shortest)):
            raise InputError(
                f"{name}: question and answer alone have more tokens than the model's context of "
                f"{self.lm.context_length} holds; leave it out or take a model with a longer one"
            )
        while longest - shortest > 1:  # `shortest` fits and `longest` does not
            middle = (shortest + longest) // 2
            if self._fits(question, _window(question, *found, middle)):
                shortest = middle
            else:
                longest = middle
        return _window(question, *found, shortest), True

    def _fits(self, question: Question, context: str) -> bool:
        from headscope.lm.prompting import uses_chat, wrap_prompts

        prompt = self.template.render(question, context)
        (wrapped,) = wrap_prompts(self.lm, [prompt], self.chat)
        special = not uses_chat(self.lm, self.chat)
        # The space is what joins them at most; an answer is never less than one new token.
        answered = len(self.lm.encode(f"{wrapped} {question.answers[0]}", special))
        generated = len(self.lm.encode(wrapped, special)) + self.new_tokens
        return max(answered, generated) <= self.lm.context_length


def _window(question: Question, start: int, answer: str, size: int) -> str:
    """`size` characters of the context around the answer, without words that are cut in two."""
    context = question.context
    digest = hashlib.sha256(f"{question.id} {question.question}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    before = int(share * (size - len(answer) + 1)) if answer else 0
    first = max(0, min(start - before, len(context) - size))
    last = first + size
    if 0 < first < start and not context[first - 1].isspace():
        first = next((at for at in range(first, start) if context[at].isspace()), first)
    ending = start + len(answer)
    if ending < last < len(context) and not context[last].isspace():
        last = next((at for at in range(last, ending, -1) if context[at - 1].isspace()), last)
    return context[first:last].strip()
