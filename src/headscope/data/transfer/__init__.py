"""Prompts in which two languages contradict each other about a person.

A statement in language A, an English sentence about something else, a statement in language B that
says otherwise, and an English question with the beginning of its answer; which of the two the
answer follows is what is looked at (LAHIS, Liu et al. 2025, arXiv 2511.07498: attention transfer).

The sentences lie in `sentences/`, one file a language, and are this project's own; `written` makes
prompts of them. Prompts of the user's own are read from a JSON Lines file by `read_prompts`.
"""

from __future__ import annotations

from headscope.data.transfer.own import read_prompts
from headscope.data.transfer.prompts import Answer, TransferFile, TransferPrompt
from headscope.data.transfer.written import LANGUAGES, written

__all__ = ["LANGUAGES", "Answer", "TransferFile", "TransferPrompt", "read_prompts", "written"]
