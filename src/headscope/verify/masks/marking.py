"""Marks for outputs: right or not, and how much of the reference they hold."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headscope.data.tasks import Task
from headscope.data.words import plain_words
from headscope.errors import MissingExtra
from headscope.measure.metrics import bleu, chrf
from headscope.measure.rouge import rouge_l
from headscope.verify.masks.published import paragraph_bleu

Floats = NDArray[np.float64]


def right(text: str, answer: str, at_start: bool) -> bool:
    """Whether an output holds the answer, or begins with it (Heads Up!, appendix B).

    Capitals count. An answer of one letter is held by any word that begins with it; see
    `right_as_words`.
    """
    text, answer = text.strip(), answer.strip()
    return text.startswith(answer) if at_start else answer in text


def right_as_words(text: str, answer: str, at_start: bool) -> bool:
    """Like `right`, but no letter or digit may stand next to the answer.

    So a model that repeats a word has not named the letter it begins with.
    """
    pattern = re.compile(rf"(?<!\w){re.escape(answer.strip())}(?!\w)")
    text = text.strip()
    return bool(pattern.match(text) if at_start else pattern.search(text))


def first_line(text: str) -> str:
    """What an output says before its first line break."""
    return text.strip().split("\n", 1)[0]


def marks(task: Task, texts: Sequence[str]) -> dict[str, Floats]:
    """Statistics of each output, (examples, features) by measure; sums of them give the scores.

    `rouge_l` holds F1 (0 to 100) of the whole output and 1. Of translations `chrf` and `bleu` hold
    sacrebleu's counts of its first line, where sacrebleu (and what it needs for the language) is
    installed, and `bleu_published` the score of `published` (0 to 100) and 1; of other tasks
    `accuracy` and `accuracy_words` hold 0 or 1, and 1.
    """
    references = [example.output for example in task.examples]
    lines = [first_line(text) for text in texts]
    ones = np.ones(len(texts))
    rouge = rouge_l([plain_words(one) for one in texts], [plain_words(one) for one in references])
    found: dict[str, Floats] = {"rouge_l": np.stack([rouge.texts, ones], axis=1)}
    if task.is_translation:
        # Without sacrebleu these are left out; the outputs are kept and can be scored later.
        with contextlib.suppress(MissingExtra):
            found["chrf"] = chrf(lines, references).statistics.astype(np.float64)
            assert task.language is not None  # translations have one
            found["bleu"] = bleu(lines, references, task.language).statistics.astype(np.float64)
        found["bleu_published"] = np.stack([100 * paragraph_bleu(texts, references), ones], axis=1)
        return found
    for name, rule in (("accuracy", right), ("accuracy_words", right_as_words)):
        hits = [
            rule(text, example.output, task.at_start)
            for text, example in zip(texts, task.examples, strict=True)
        ]
        found[name] = np.stack([np.asarray(hits, dtype=np.float64), ones], axis=1)
    return found
