"""Prompts for questions: a template with the context and the question, in the wording of ours.

The wording follows the question's language where there is one for it, since a prompt in another
language would ask for two things at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter

from headscope.data.questions import Question
from headscope.errors import InputError

#: What stands before a question and before its answer, by language.
WORDINGS = {
    "ar": ("السؤال:", "الجواب:"),
    "de": ("Frage:", "Antwort:"),
    "el": ("Ερώτηση:", "Απάντηση:"),
    "en": ("Question:", "Answer:"),
    "es": ("Pregunta:", "Respuesta:"),
    "fr": ("Question :", "Réponse :"),
    "hi": ("प्रश्न:", "उत्तर:"),
    "it": ("Domanda:", "Risposta:"),
    "ja": ("質問:", "答え:"),
    "ko": ("질문:", "답:"),
    "nl": ("Vraag:", "Antwoord:"),
    "pl": ("Pytanie:", "Odpowiedź:"),
    "pt": ("Pergunta:", "Resposta:"),
    "ro": ("Întrebare:", "Răspuns:"),
    "ru": ("Вопрос:", "Ответ:"),
    "th": ("คำถาม:", "คำตอบ:"),
    "tr": ("Soru:", "Cevap:"),
    "vi": ("Câu hỏi:", "Trả lời:"),
    "zh": ("问题:", "答案:"),
}
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
_PLACEHOLDERS = ("context", "question")


@dataclass(frozen=True)
class QuestionTemplate:
    """The prompt up to where the answer begins, with `{context}` and `{question}`.

    `text` None stands for the wording of the question's language, or of English where there is
    none: the context, then a line each with the question and the beginning of the answer. Literal
    braces are doubled. InputError for another placeholder, an open brace, or no `{question}`.
    """

    text: str | None = None

    def __post_init__(self) -> None:
        if self.text is not None:
            self._parts(self.text)

    @classmethod
    def from_option(cls, text: str | None) -> QuestionTemplate:
        r"""A template given on a command line, where `\n`, `\t` and `\\` are escapes."""
        if text is None:
            return cls()
        return cls(re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], text))

    def render(self, question: Question, context: str | None = None) -> str:
        """The prompt for a question; `context` replaces its own, such as a part of it.

        A question without a context leaves out the line it would stand on.
        """
        asked = " ".join(question.question.split())
        said = question.context if context is None else context
        text = self.text
        if text is None:
            code = (question.language or "en").split("-")[0].split("_")[0]
            before, answer = WORDINGS.get(code, WORDINGS["en"])
            text = f"{{context}}\n{before} {{question}}\n{answer}"
            if not said:
                text = text.removeprefix("{context}\n")
        values = {"context": said, "question": asked}
        return "".join(
            literal + ("" if name is None else values[name]) for literal, name in self._parts(text)
        )

    @staticmethod
    def _parts(text: str) -> list[tuple[str, str | None]]:
        """Literal text and the placeholder that follows it, in order."""
        known = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
        try:
            fields = list(Formatter().parse(text))
        except ValueError as error:
            raise InputError(
                f"the template {text!r} is malformed ({error}); placeholders are {known}, and a "
                "literal brace is doubled"
            ) from None
        for _, name, form, conversion in fields:
            if name is not None and (name not in _PLACEHOLDERS or form or conversion):
                raise InputError(
                    f"the template {text!r} has the placeholder {{{name}}}; known are {known}, "
                    "without format or conversion"
                )
        if not any(name == "question" for _, name, _, _ in fields):
            raise InputError(f"the template {text!r} lacks {{question}}; say where it stands")
        return [(literal, name) for literal, name, _, _ in fields]
