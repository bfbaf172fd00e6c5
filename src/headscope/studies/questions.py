"""From what people name (files, kinds of questions) to pairs to learn from, to stop on, to test on.

Questions on one context never fall on two sides. What is tested on is the same for every seed;
what is learned from and stopped on is drawn anew from the rest for each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from headscope import options
from headscope.data.languages import language_name
from headscope.data.questions import Question, QuestionFile, read_questions
from headscope.errors import InputError
from headscope.pocket.facts import KINDS, QuestionKind, sample_questions
from headscope.pocket.world.languages import CODES
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.models import POCKET


@dataclass(frozen=True)
class QuestionsChoice(Settings):
    """Which questions.

    Attributes:
        data: file of questions; None for the pocket model: questions of its own world, facts of
            its dev split to learn from and of its test split to test on.
        test_data: another file, to test on; None: a part of `data`.
        language: code of the questions' language, where the file does not say it; of the pocket
            model's own questions those in it alone.
        kind: of the pocket model's own questions.
        train, stop, test: pairs to learn from, to stop on, to test on, as far as there are so
            many: of one file at most half are tested on, and of what is left a third stopped on.
        limit: read the first so many questions of each file.
    """

    data: Annotated[
        str | None,
        Option(
            "Questions with contexts and answers: SQuAD or XQuAD JSON, or records (JSON Lines, "
            "Parquet, CSV, …) with context, question and answers. May be left out for pocket.",
            metavar="FILE",
            held="pairs",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    test_data: Annotated[
        str | None,
        Option("Test on this file instead of a part of --data.", metavar="FILE", panel="Data"),
    ] = field(default=None, metadata=UNSIGNED)
    language: Annotated[
        str | None,
        Option("Language of the questions, for the prompt's words.", metavar="CODE", panel="Data"),
    ] = None
    kind: Annotated[
        QuestionKind,
        Option(
            "Of pocket's own questions: the fact asked for is told alone, in another language; or "
            "beside another fact, in the question's language, in another one, or half of each.",
            panel="Data",
        ),
    ] = KINDS[0]
    train: Annotated[int, Option("Pairs to learn from.", min=1, panel="Data")] = 200
    stop: Annotated[
        int, Option("Other pairs, on which training is stopped.", min=1, panel="Data")
    ] = 100
    test: Annotated[int, Option("Questions tested on, of neither.", min=1, panel="Data")] = 500
    limit: options.Limit = None


@dataclass(frozen=True)
class QuestionSides:
    """What there is to learn from, and what is tested on.

    Attributes:
        rest: what `draw` draws pairs to learn from and to stop on from.
        test: what is tested on.
        path, test_path: where they come from.
        unanswerable: questions without an answer, left out.
        shared: questions of `data` left out since their context is in the test file too.
        digests: of what was read, by name, for a run's signature.
    """

    rest: tuple[Question, ...]
    test: tuple[Question, ...]
    path: str
    test_path: str
    unanswerable: int
    shared: int
    digests: dict[str, str]

    def draw(
        self, choice: QuestionsChoice, seed: int
    ) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
        """The pairs to learn from and to stop on under one seed."""
        groups = _groups(self.rest, f"questions to learn {seed}")
        stopped, left = _take(groups, min(choice.stop, len(self.rest) // 3 or 1))
        learned, _ = _take(left, choice.train, leave=0)
        return learned, stopped


def read_sides(choice: QuestionsChoice, model: str, seed: int = 0) -> QuestionSides:
    """The questions of both sides.

    Raises `InputError` if a model other than pocket has no data, or if there are too few different
    contexts for the sides to be apart.
    """
    if choice.data is None:
        if model != POCKET:
            raise InputError(
                f"no data given for the model {model}; add --data FILE with questions and answers "
                "(SQuAD, XQuAD or records)"
            )
        if choice.test_data is not None:
            raise InputError("--test-data without --data; name the file to learn from as well")
        spoken = CODES if choice.language is None else (choice.language,)
        rest = sample_questions("dev", 2 * (choice.train + choice.stop), seed, choice.kind, spoken)
        test = sample_questions("test", choice.test, seed, choice.kind, spoken)
        return _sides(choice, rest, rest.questions, test, test.questions, 0)
    if choice.kind != KINDS[0]:
        raise InputError("--kind is for the pocket model's own questions; leave out --data")
    rest = _read(choice.data, choice)
    if choice.test_data is None:
        if len({question.group for question in rest.questions}) < 3:
            raise InputError(
                f"{choice.data} holds questions on fewer than 3 different contexts, so what is "
                "learned, stopped on and tested on cannot be kept apart; give more"
            )
        groups = _groups(rest.questions, f"questions to test {seed}")
        tested, left = _take(groups, min(choice.test, len(rest.questions) // 2), 2)
        learned = tuple(question for group in left for question in group)
        return _sides(choice, rest, learned, rest, tested, 0)
    test = _read(choice.test_data, choice)
    tested, _ = _take(_groups(test.questions, f"questions to test {seed}"), choice.test, 0)
    known = {question.group for question in test.questions}
    kept = tuple(question for question in rest.questions if question.group not in known)
    return _sides(choice, rest, kept, test, tested, len(rest.questions) - len(kept))


def _sides(
    choice: QuestionsChoice,
    rest: QuestionFile,
    learned: tuple[Question, ...],
    test: QuestionFile,
    tested: tuple[Question, ...],
    shared: int,
) -> QuestionSides:
    if len({question.group for question in learned}) < 2:
        raise InputError(
            f"{rest.path}: fewer than 2 contexts are left to learn from and to stop on; give more "
            "questions, or test on fewer"
        )
    digests = {"questions": rest.digest}
    if test.path != rest.path:
        digests["test questions"] = test.digest
    unanswerable = rest.unanswerable + (test.unanswerable if choice.test_data else 0)
    return QuestionSides(learned, tested, rest.path, test.path, unanswerable, shared, digests)


def _read(path: str, choice: QuestionsChoice) -> QuestionFile:
    """A file whose questions know their language where anybody does."""
    if choice.language is not None:
        language_name(choice.language)  # says what is wrong with a code
    read = read_questions(path, choice.limit)
    spoken = tuple(
        question if question.language else replace(question, language=choice.language)
        for question in read.questions
    )
    return replace(read, questions=spoken)


def _groups(questions: Sequence[Question], name: str) -> list[list[Question]]:
    """The questions by group, groups in an order drawn from `name`."""
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.group, []).append(question)
    order = sorted(groups)
    random.Random(name).shuffle(order)
    return [groups[group] for group in order]


def _take(
    groups: list[list[Question]], wanted: int, leave: int = 1
) -> tuple[tuple[Question, ...], list[list[Question]]]:
    """The first groups, up to `wanted` questions, and the groups not touched, `leave` at least."""
    taken: list[Question] = []
    at = 0
    while at < len(groups) - leave and len(taken) < wanted:
        taken += groups[at]
        at += 1
    return tuple(taken[:wanted]), groups[at:]
