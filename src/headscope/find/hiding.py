"""Hiding needles in haystacks: prompts whose tokens are known to be the needle's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from headscope.data.needles import Needle, NeedleFile
from headscope.data.prompts import Prompt
from headscope.data.words import within
from headscope.errors import InputError
from headscope.lm.prompting import chat_writer
from headscope.lm.tokens import encode

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
#: Room that question, answer and template are given where lengths follow from the context.
_ROOM = 128


class HowHidden(Protocol):
    """The part of a configuration that says how needles are hidden."""

    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def depths(self) -> tuple[float, ...]: ...
    @property
    def template(self) -> str: ...
    @property
    def chat(self) -> bool | None: ...


@dataclass(frozen=True, eq=False)
class Hidden:
    """One prompt: its tokens, and which of them are the needle's and the haystack's.

    `number` is that of the needle, from 0; `needle` are places; `context` is the half-open span of
    places of the haystack with its needle, which is the source of the prompt.
    """

    id: str
    number: int
    prompt: Prompt
    ids: tuple[int, ...]
    needle: NDArray[np.intp]
    context: tuple[int, int]
    length: int
    depth: float
    answer: str | None


def hide(lm: LanguageModel, needles: NeedleFile, config: HowHidden) -> list[Hidden]:
    """Every needle in its haystack, at every length and depth."""
    rooms = [len(encode(lm.tokenizer, one.haystack).ids) for one in needles.needles]
    most = max(8, lm.context_length - _ROOM)
    shortest = min(*rooms, most) if len(rooms) > 1 else min(rooms[0], most)
    lengths = config.lengths or tuple(sorted({max(8, shortest // part) for part in (4, 2, 1)}))
    found = []
    for length in lengths:
        for depth in config.depths:
            for at, (one, room) in enumerate(zip(needles.needles, rooms, strict=True)):
                if room < length and config.lengths:
                    raise InputError(
                        f"{needles.path}, line {one.line}: the haystack has {room} tokens and "
                        f"--length asks for {length}; give longer texts or a smaller length"
                    )
                found.append(_hidden(lm, one, at, length, depth, config, needles.path))
    return found


def _hidden(
    lm: LanguageModel,
    one: Needle,
    number: int,
    length: int,
    depth: float,
    config: HowHidden,
    path: str,
) -> Hidden:
    """One prompt; the needle stands at the end of a sentence, nearest to where it should."""
    size = len(encode(lm.tokenizer, one.needle).ids)
    hay = _cut(lm, one.haystack, max(1, length - size))
    ends = [0, *(match.end() for match in _SENTENCE.finditer(hay)), len(hay)]
    at = min(ends, key=lambda end: (abs(end - depth * len(hay)), end))
    before, after = hay[:at].rstrip(), hay[at:].lstrip()
    context = " ".join(part for part in (before, one.needle, after) if part)
    head, _, tail = config.template.partition("{context}")
    # What is asked may hold braces, which mean nothing.
    head, tail = (part.replace("{question}", one.question) for part in (head, tail))
    prompt = Prompt(f"{head}{context}{tail}", len(head), len(head) + len(context))
    writer = chat_writer(lm, config.chat, config.template)
    if writer is not None:
        prompt = prompt.in_chat(writer)
    start, end = prompt.source_span
    place = start + (len(before) + 1 if before else 0)
    text = encode(lm.tokenizer, prompt.text, prompt.special)
    if len(text.ids) >= lm.context_length:
        raise InputError(
            f"{path}, line {one.line}: the prompt has {len(text.ids)} tokens and the context of "
            f"{lm.name} holds {lm.context_length}; make it shorter with --length"
        )
    inside = np.flatnonzero(within(text.spans, start, end))
    needle = np.flatnonzero(within(text.spans, place, place + len(one.needle)))
    if not needle.size:
        raise InputError(
            f"{path}, line {one.line}: no token of the needle {one.needle!r} is left in the "
            "prompt; the model's tokenizer drops it"
        )
    span = int(inside[0]), int(inside[-1]) + 1
    return Hidden(one.id, number, prompt, text.ids, needle, span, length, depth, one.answer)


def _cut(lm: LanguageModel, text: str, tokens: int) -> str:
    """The first `tokens` tokens of a text, cut back to a whole sentence, else to a whole word."""
    spans = encode(lm.tokenizer, text).spans
    ends = spans[spans[:, 1] > spans[:, 0], 1]
    if len(ends) <= tokens:
        return text.strip()
    limit = int(ends[tokens - 1])
    sentences = [m.start() for m in _SENTENCE.finditer(text) if m.start() <= limit]
    if sentences and sentences[-1]:
        return text[: sentences[-1]].strip()
    words = [m.start() for m in re.finditer(r"\s", text) if 0 < m.start() <= limit]
    return text[: words[-1] if words else limit].strip()
