"""Where a continuation ends: an end of text, a newline after text, or its length."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from headscope.answers import MARKS, goes_on

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: What ended a continuation.
Stop = Literal["eos", "newline", "length"]
#: Whether a newline after text ends it: yes, no, or unless its line comes before an answer.
NewlineStop = bool | Literal["after preamble"]


def newline_stop(one_line: bool, answer_only: bool | None) -> NewlineStop:
    """What ends an output that is one line, or of which the answer alone counts."""
    return "after preamble" if one_line and answer_only else one_line


class StopTable:
    """For each token id, (V,) bool, what it means for the question "has the text ended?".

    Decided from the text of single tokens, so that no step of generation has to decode anything:
    `ends` a text; holds `text`, something other than white space; a `newline`; text and a newline
    after it (`text_newline`). A line that ends in a `label`, a colon or a fence, comes before an
    answer, whatever `marks` stand behind.
    """

    def __init__(self, lm: LanguageModel) -> None:
        size = lm.vocabulary
        self.ends, self.text, self.newline, self.text_newline = np.zeros((4, size), dtype=bool)
        self.label, self.marks = np.zeros((2, size), dtype=bool)
        self.ends[[index for index in lm.eos_token_ids if index < size]] = True
        # Special tokens decode to nothing; a lone byte of a longer character decodes to U+FFFD,
        # which counts as text, as the whole character would.
        pieces = (lm.decode([index]) for index in range(min(size, len(lm.tokenizer))))
        for index, piece in enumerate(pieces):
            self.text[index] = bool(piece.strip())
            self.newline[index] = "\n" in piece
            self.text_newline[index] = "\n" in piece.lstrip()
            self.label[index] = bool(piece.strip()) and goes_on(piece)
            self.marks[index] = bool(piece.strip()) and not piece.strip().strip(MARKS)

    def cut(self, row: Sequence[int], at_newline: NewlineStop) -> tuple[int, Stop]:
        """How many tokens of ``row`` belong to the output, and why it ends there."""
        seen = before = False
        for at, index in enumerate(row):
            if self.ends[index]:
                return at, "eos"
            if at_newline == "after preamble" and self.text[index]:
                before = bool(self.label[index] or (before and self.marks[index]))
            ended = self.text_newline[index] or (seen and self.newline[index])
            if at_newline and ended and not before:
                return at + 1, "newline"
            seen = seen or bool(self.text[index])
        return len(row), "length"


class RowStop:
    """Which rows have ended, each by its own end mark, newline and limit of new tokens.

    Called after every token, also as a stopping criterion of ``generate``.
    """

    def __init__(
        self, table: StopTable, at_newline: NewlineStop, limits: Sequence[int], device: torch.device
    ) -> None:
        def place(values: Any) -> torch.Tensor:
            return torch.from_numpy(values).to(device)

        self.ends, self.text = place(table.ends), place(table.text)
        self.newline, self.text_newline = place(table.newline), place(table.text_newline)
        self.label, self.marks = place(table.label), place(table.marks)
        self.at_newline = at_newline
        self._begin(limits)

    def _begin(self, limits: Sequence[int]) -> None:
        self.left = torch.tensor(limits, dtype=torch.long, device=self.ends.device)
        self.seen = torch.zeros_like(self.left, dtype=torch.bool)
        self.before = torch.zeros_like(self.seen)

    def of(self, limits: Sequence[int]) -> RowStop:
        """The same for other rows."""
        other = copy.copy(self)
        other._begin(limits)
        return other

    def __call__(self, input_ids: torch.Tensor, scores: Any = None, **_: Any) -> torch.Tensor:
        """Which rows end with the last of these tokens, (B,) bool."""
        last = input_ids[:, -1]
        self.left -= 1
        done = self.ends[last] | (self.left <= 0)
        if self.at_newline:
            if self.at_newline == "after preamble":
                now = self.label[last] | (self.before & self.marks[last])
                self.before = torch.where(self.text[last], now, self.before)
            ended = self.text_newline[last] | (self.seen & self.newline[last])
            done |= ended & ~self.before
            self.seen |= self.text[last]
        return done

    def change(self, stay: torch.Tensor, new: RowStop) -> None:
        """Go on with the rows at these places, and with those of another one behind them."""
        self.left = torch.cat([self.left[stay], new.left])
        self.seen = torch.cat([self.seen[stay], new.seen])
        self.before = torch.cat([self.before[stay], new.before])
