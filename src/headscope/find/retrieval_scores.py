"""Retrieval score: heads that look at a hidden fact's token while it is being copied out.

A fact (the needle) stands somewhere in a longer text (the haystack), a question follows, and the
model answers greedily. A generated token that occurs in the needle is retrieved by a head if the
head's peak, at the step that predicts it, is that same token in the needle (Wu et al. 2025,
"Retrieval Head Mechanistically Explains Long-Context Factuality", section 2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.prompts import Prompt
from headscope.data.questions import Needle, NeedleFile
from headscope.data.words import within
from headscope.errors import InputError
from headscope.find.scoring import Arrays, Resampled, RunPart, rate, scored
from headscope.heads import HeadScores
from headscope.progress import Steps
from headscope.results.head_scores import NeedlePlace
from headscope.settings import Option

if TYPE_CHECKING:
    from headscope.find.capture import Captured
    from headscope.lm import LanguageModel
    from headscope.runs import Run

TEMPLATE = "{context}\nQuestion: {question}\nAnswer:"


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(values)))


@dataclass(frozen=True)
class Retrieval(Resampled):
    """How facts are hidden and answers read.

    Attributes:
        lengths: tokens of a haystack with its needle; empty: a quarter, half and all of the
            shortest haystack, or of what the context has room for.
        depths: where the needle stands, as a share of the haystack before it.
        template: `{context}` (haystack with needle) and `{question}`, up to the answer.
        share_of: `generated` counts the tokens of the needle that were generated; `needle` gives
            the share of all different tokens of the needle that a head hit at least once, as
            published, so that short answers score low.
        answered_only: leave out prompts whose known answer is not in what was generated: there was
            nothing to copy (prompts without a known answer always count).
        max_new_tokens: longest answer; None: twice the needle and 32.
        seed: of the random heads whose peaks are kept.
    """

    lengths: Annotated[
        tuple[int, ...],
        Option(
            "Tokens of a haystack with its needle; repeatable. Without it a quarter, half and all "
            "of the shortest.",
            flag="--length",
            min=1,
            read=_ascending,
        ),
    ] = ()
    depths: Annotated[
        tuple[float, ...],
        Option(
            "Share of the haystack before the needle; repeatable; without it 0, 0.25, 0.5, 0.75, "
            "1.",
            flag="--depth",
            min=0.0,
            max=1.0,
            read=_ascending,
        ),
    ] = (0.0, 0.25, 0.5, 0.75, 1.0)
    template: str = TEMPLATE
    chat: options.Chat = None
    share_of: Annotated[
        Literal["generated", "needle"],
        Option("Of the needle's tokens generated, or of all of the needle's."),
    ] = "generated"
    answered_only: options.OnlyKnown = True
    max_new_tokens: options.MaxNewTokens = None
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = 8192

    # Read by `capture_greedy`: the step that predicts a token is looked at.
    query = "predict"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.depths:
            raise InputError("a depth is a share of the haystack, from 0 to 1; give at least one")
        for name in ("context", "question"):
            if self.template.count(f"{{{name}}}") != 1:
                raise InputError(
                    f"the template has {{{name}}} {self.template.count(f'{{{name}}}')} times; "
                    "put it once"
                )


def retrieval(
    lm: LanguageModel,
    needles: NeedleFile,
    config: Retrieval = Retrieval(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """Of the needle's tokens that are generated, the share whose peak is that token there.

    Returns:
        Scores in [0, 1], the mean over needles of the share at all their lengths and depths, with
        bootstrap bounds over needles. `extra`: `chance`, the same peaks with
        the needle at every place of its haystack, and `elsewhere`, the share of peaks on the
        same token outside the needle. `statistics`, by prompt: `hits`, `chance`, `elsewhere`,
        `totals` (tokens that could be hit, see `share_of`; 0: the prompt is left out), `needles`
        (which one), `lengths`, `depths` and `answered` (1, 0, or -1 where no answer is given).
        `config` tells `examples`, `left_out` and `tokens`.

    Raises `InputError` if a haystack is too short or too long, or no token of any needle is
    generated.
    """
    from headscope.find.capture import capture_greedy, keep_peaks

    hidden = hide(lm, needles, config)
    marked = []
    for row in hidden:
        mark = np.zeros(len(row.ids), dtype=bool)
        mark[row.needle] = True
        marked.append(mark)
    part = RunPart(run, "retrieval")
    captured = capture_greedy(
        lm, [row.prompt for row in hidden], marked, None, config, part, progress
    )
    counts = [_count(row, seen, config) for row, seen in zip(hidden, captured, strict=True)]
    texts = [lm.decode(list(seen.output_ids)) for seen in captured]
    statistics: Arrays = {
        "hits": np.stack([row[0] for row in counts]).astype(np.uint16),
        "chance": np.stack([row[1] for row in counts]).astype(np.float32),
        "elsewhere": np.stack([row[2] for row in counts]).astype(np.uint16),
        "totals": np.array([row[3] for row in counts], dtype=np.int32),
        "needles": np.array([row.number for row in hidden], dtype=np.int32),
        "lengths": np.array([row.length for row in hidden], dtype=np.int32),
        "depths": np.array([row.depth for row in hidden], dtype=np.float32),
        "answered": np.array(
            [
                -1 if row.answer is None else int(row.answer.casefold() in text.casefold())
                for row, text in zip(hidden, texts, strict=True)
            ],
            dtype=np.int8,
        ),
    }
    if config.answered_only:
        statistics["totals"][statistics["answered"] == 0] = 0
    totals = statistics["totals"]
    if not totals.any():
        raise InputError(
            f"{lm.name} found no needle of {needles.path}, so no head can have retrieved one; "
            "give facts it can find, or shorter haystacks with --length"
        )
    # The prompts of one needle are not independent of each other.
    hits, chance, elsewhere, sizes = (
        _by_needle(statistics, name) for name in ("hits", "chance", "elsewhere", "totals")
    )
    scores = scored(
        lm,
        "retrieval",
        config,
        run,
        hits,
        sizes,
        {"chance": rate(chance, sizes), "elsewhere": rate(elsewhere, sizes)},
        statistics,
        {
            "examples": int((totals > 0).sum()),
            "left_out": int((totals == 0).sum()),
            "tokens": int(totals.sum()),
        },
    )
    keep_peaks(part, captured, scores, config.seed)
    return scores


def _count(
    row: Hidden, seen: Captured, config: Retrieval
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]:
    """Hits, chance and same tokens elsewhere, (L, W), and the tokens that could be hit."""
    ids = np.array(row.ids)
    of_needle = set(ids[row.needle].tolist())
    shape = seen.peaks.shape[1:]
    hits, elsewhere = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    chance = np.zeros(shape)
    offsets = _offsets(row)
    generated = np.array(seen.output_ids, dtype=np.int64)
    total = 0
    for token in sorted(of_needle.intersection(seen.output_ids)):
        peaks = seen.peaks[generated == token]
        right = row.needle[ids[row.needle] == token]
        others = np.setdiff1d(np.flatnonzero(ids == token), right)
        # A head that is not there has the place -1, which is none of these.
        if config.share_of == "needle":
            hits += np.isin(peaks, right).any(axis=0)
            elsewhere += np.isin(peaks, others).any(axis=0)
            for offset in offsets:
                chance += np.isin(peaks, right + offset).any(axis=0) / len(offsets)
            continue
        total += len(peaks)
        hits += np.isin(peaks, right).sum(axis=0)
        elsewhere += np.isin(peaks, others).sum(axis=0)
        there = np.zeros(len(ids) + len(generated) + 1, dtype=np.float64)
        for place in right:
            there[place + offsets] += 1 / len(offsets)
        chance += there[peaks].sum(axis=0)
    if config.share_of == "needle" and not of_needle.isdisjoint(seen.output_ids):
        total = len(of_needle)
    return hits, chance, elsewhere, total


def _offsets(row: Hidden) -> NDArray[np.intp]:
    """By how many places the needle can be moved within its haystack, its own place included."""
    first, last = int(row.needle[0]), int(row.needle[-1])
    return np.arange(row.context[0] - first, row.context[1] - last)


def _by_needle(statistics: Arrays, name: str) -> NDArray[Any]:
    """The sum of a statistic over the prompts that count of each needle, by needle."""
    values, needles = statistics[name], statistics["needles"]
    counted = (statistics["totals"] > 0).reshape(-1, *[1] * (values.ndim - 1))
    sums = np.zeros((int(needles.max()) + 1, *values.shape[1:]), dtype=np.float64)
    np.add.at(sums, needles, np.where(counted, values, 0))
    return sums


def by_place(scores: HeadScores) -> tuple[NeedlePlace, ...]:
    """How much was found at each length and depth: prompts, tokens of needles, right answers."""
    lengths, depths = scores.statistics["lengths"], scores.statistics["depths"]
    answered, totals = scores.statistics["answered"], scores.statistics["totals"]
    places = []
    cells = sorted(set(zip(lengths.tolist(), depths.tolist(), strict=True)))
    for length, depth in cells:
        own = (lengths == length) & (depths == np.float32(depth))
        known = answered[own][answered[own] >= 0]
        right = float(known.mean()) if known.size else None
        places.append(NeedlePlace(length, depth, int(own.sum()), int(totals[own].sum()), right))
    return tuple(places)


_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
#: Room that question, answer and template are given where lengths follow from the context.
_ROOM = 128


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


def hide(lm: LanguageModel, needles: NeedleFile, config: Retrieval) -> list[Hidden]:
    """Every needle in its haystack, at every length and depth."""

    sizes = [len(lm.encoded(needle.haystack).ids) for needle in needles.needles]
    most = max(8, lm.context_length - _ROOM)
    shortest = min(*sizes, most) if len(sizes) > 1 else min(sizes[0], most)
    lengths = config.lengths or tuple(sorted({max(8, shortest // part) for part in (4, 2, 1)}))
    hidden = []
    for length in lengths:
        for depth in config.depths:
            for at, (needle, tokens) in enumerate(zip(needles.needles, sizes, strict=True)):
                if tokens < length and config.lengths:
                    raise InputError(
                        f"{needles.path}, line {needle.line}: the haystack has {tokens} tokens and "
                        f"--length asks for {length}; give longer texts or a smaller length"
                    )
                hidden.append(_hidden(lm, needle, at, length, depth, config, needles.path))
    return hidden


def _hidden(
    lm: LanguageModel,
    needle: Needle,
    number: int,
    length: int,
    depth: float,
    config: Retrieval,
    path: str,
) -> Hidden:
    """One prompt; the needle stands at the end of a sentence, nearest to where it should."""
    from headscope.lm.prompting import chat_writer

    size = len(lm.encoded(needle.needle).ids)
    hay = _cut(lm, needle.haystack, max(1, length - size))
    ends = [0, *(match.end() for match in _SENTENCE.finditer(hay)), len(hay)]
    at = min(ends, key=lambda end: (abs(end - depth * len(hay)), end))
    before, after = hay[:at].rstrip(), hay[at:].lstrip()
    context = " ".join(part for part in (before, needle.needle, after) if part)
    head, _, tail = config.template.partition("{context}")
    # What is asked may hold braces, which mean nothing.
    head, tail = (part.replace("{question}", needle.question) for part in (head, tail))
    prompt = Prompt(f"{head}{context}{tail}", len(head), len(head) + len(context))
    writer = chat_writer(lm, config.chat, config.template)
    if writer is not None:
        prompt = prompt.in_chat(writer)
    start, end = prompt.source_span
    place = start + (len(before) + 1 if before else 0)
    text = lm.encoded(prompt.text, prompt.special)
    if len(text.ids) >= lm.context_length:
        raise InputError(
            f"{path}, line {needle.line}: the prompt has {len(text.ids)} tokens and the context of "
            f"{lm.name} holds {lm.context_length}; make it shorter with --length"
        )
    inside = np.flatnonzero(within(text.spans, start, end))
    places = np.flatnonzero(within(text.spans, place, place + len(needle.needle)))
    if not places.size:
        raise InputError(
            f"{path}, line {needle.line}: no token of the needle {needle.needle!r} is left in the "
            "prompt; the model's tokenizer drops it"
        )
    span = int(inside[0]), int(inside[-1]) + 1
    return Hidden(needle.id, number, prompt, text.ids, places, span, length, depth, needle.answer)


def _cut(lm: LanguageModel, text: str, tokens: int) -> str:
    """The first `tokens` tokens of a text, cut back to a whole sentence, else to a whole word."""

    spans = lm.encoded(text).spans
    ends = spans[spans[:, 1] > spans[:, 0], 1]
    if len(ends) <= tokens:
        return text.strip()
    limit = int(ends[tokens - 1])
    sentences = [m.start() for m in _SENTENCE.finditer(text) if m.start() <= limit]
    if sentences and sentences[-1]:
        return text[: sentences[-1]].strip()
    words = [m.start() for m in re.finditer(r"\s", text) if 0 < m.start() <= limit]
    return text[: words[-1] if words else limit].strip()
