"""Word links from a language model behind an OpenAI-compatible endpoint.

For each target unit the model names the source unit it translates, or none, with a confidence;
links above a threshold are kept (Token Alignment Heads, ICLR 2026, uses 0.9). Answers are kept on
disk, so that a run that is repeated or continued asks for nothing twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from headscope.data.chat import ALIGNING, Chat, ChatModel, object_schema, response_format
from headscope.data.pairs import Links

# Part of the cache key: change it with any change of the prompt or of the schema.
PROMPT_VERSION = "1"

_INSTRUCTIONS = (
    "You link the units of a translation to the units of its source. Units are words or pieces of "
    "words and are numbered from 0. For every target unit give one entry: its number, the number "
    "of the one source unit whose meaning it renders, or null if no source unit does (as for an "
    "article or particle that only one language needs), and your confidence from 0 to 1 that "
    "this is right. Judge by meaning in context, not by position. Where several source units "
    "together are rendered, choose the one that carries most of the meaning."
)

RESPONSE_FORMAT = response_format(
    "word_links",
    links={
        "type": "array",
        "items": object_schema(
            target={"type": "integer"},
            source={"type": ["integer", "null"]},
            confidence={"type": "number"},
        ),
    },
)


class UnitLink(NamedTuple):
    """The source unit of one target unit (None: none), positions from 0, confidence 0 to 1."""

    target: int
    source: int | None
    confidence: float


def messages(
    source: Sequence[str], target: Sequence[str], source_language: str, target_language: str
) -> list[dict[str, str]]:
    """The conversation that asks for the links of one sentence pair."""
    question = "\n".join(
        (
            f"Source ({source_language}):",
            _listed(source),
            f"Target ({target_language}):",
            _listed(target),
            f"Give {len(target)} entries, target 0 to {len(target) - 1}.",
        )
    )
    return [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": question},
    ]


def read_answer(text: str, source_length: int, target_length: int) -> tuple[UnitLink, ...] | None:
    """The links of an answer in target order, or None if it is not as asked.

    Every target unit must have exactly one entry, indices must lie within the sentences, and
    confidences between 0 and 1.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = answer.get("links") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        return None
    links: dict[int, UnitLink] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        target, source = entry.get("target"), entry.get("source", "missing")
        confidence = entry.get("confidence")
        if not _index(target, target_length) or target in links:
            return None
        if source is not None and not _index(source, source_length):
            return None
        if not isinstance(confidence, int | float) or isinstance(confidence, bool):
            return None
        if not math.isfinite(confidence) or not 0 <= confidence <= 1:
            return None
        links[target] = UnitLink(target, source, float(confidence))
    if len(links) != target_length:
        return None
    return tuple(links[position] for position in range(target_length))


def _index(value: object, length: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def _listed(units: Sequence[str]) -> str:
    """Numbered units, one a line, quoted so that spaces within them can be seen."""
    return "\n".join(
        f"{number}: {json.dumps(unit, ensure_ascii=False)}" for number, unit in enumerate(units)
    )


Units = Sequence[str]


@dataclass(frozen=True)
class LlmAligner(ChatModel):
    """Which model to ask and how (see ``ChatModel``).

    ``threshold``: confidence above which a link is kept.
    """

    threshold: float = 0.9


@dataclass(frozen=True)
class LlmLinks:
    """Links of each pair, None where the answer was malformed, and what happened on the way.

    ``stats`` counts ``cached`` and ``answered`` pairs, ``malformed`` answers, ``retries``, and
    links ``kept`` and ``dropped`` for low confidence.
    """

    links: tuple[Links | None, ...]
    stats: Mapping[str, int]


def align_llm(
    pairs: Sequence[tuple[Units, Units]],
    options: LlmAligner,
    source_language: str,
    target_language: str,
) -> LlmLinks:
    """Links of each pair, a source and a target sentence as sequences of units.

    Languages are given by their English names. Each target unit gets one link at most. An answer
    that is not as asked (no JSON, an index outside the sentence, a unit missing or twice) is
    counted and skipped, and not cached. Raises ``InputError`` where the environment holds no
    key, ``EndpointError`` where requests are refused or still fail after all retries.
    """
    chat = Chat(options, ALIGNING)
    languages = source_language, target_language

    def answer(pair: tuple[Units, Units]) -> tuple[UnitLink, ...] | None:
        """The links of one pair, from the cache or the endpoint; None if malformed."""
        source, target = pair
        if not source or not target:
            return ()
        links = chat.answer(
            [PROMPT_VERSION, *languages, list(source), list(target)],
            messages(source, target, *languages),
            RESPONSE_FORMAT,
            "align a sentence",
            lambda text: read_answer(text, len(source), len(target)),
            lambda links: {"links": [link._asdict() for link in links]},
        )
        if links is None:
            chat.count("malformed")
        return links

    aligned: list[Links | None] = []
    for links in chat.each(answer, pairs):
        if links is None:
            aligned.append(None)
            continue
        linked = [
            (link.source, link.target, link.confidence) for link in links if link.source is not None
        ]
        kept = frozenset((i, j) for i, j, confidence in linked if confidence > options.threshold)
        chat.count("kept", len(kept))
        chat.count("dropped", len(linked) - len(kept))
        aligned.append(kept)
    counted = ("cached", "answered", "malformed", "retries", "kept", "dropped")
    return LlmLinks(tuple(aligned), chat.stats(*counted))
