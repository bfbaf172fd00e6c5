"""What a language model is asked about word links, and how its answer is read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

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

RESPONSE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "word_links",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["links"],
            "properties": {
                "links": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["target", "source", "confidence"],
                        "properties": {
                            "target": {"type": "integer"},
                            "source": {"type": ["integer", "null"]},
                            "confidence": {"type": "number"},
                        },
                    },
                }
            },
        },
    },
}


@dataclass(frozen=True)
class UnitLink:
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
    found: dict[int, UnitLink] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        target, source = entry.get("target"), entry.get("source", "missing")
        confidence = entry.get("confidence")
        if not _index(target, target_length) or target in found:
            return None
        if source is not None and not _index(source, source_length):
            return None
        if not isinstance(confidence, int | float) or isinstance(confidence, bool):
            return None
        if not math.isfinite(confidence) or not 0 <= confidence <= 1:
            return None
        found[target] = UnitLink(target, source, float(confidence))
    if len(found) != target_length:
        return None
    return tuple(found[position] for position in range(target_length))


def _index(value: object, length: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def _listed(units: Sequence[str]) -> str:
    """Numbered units, one a line, quoted so that spaces within them can be seen."""
    return "\n".join(
        f"{number}: {json.dumps(unit, ensure_ascii=False)}" for number, unit in enumerate(units)
    )
