"""Word links from a language model behind an OpenAI-compatible endpoint.

For each target unit the model names the source unit it translates, or none, with a confidence;
links above a threshold are kept (Token Alignment Heads, ICLR 2026, uses 0.9). Answers are kept on
disk, so that a run that is repeated or continued asks for nothing twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import cast

from headscope.data import chat
from headscope.data.align.answers import (
    PROMPT_VERSION,
    RESPONSE_FORMAT,
    UnitLink,
    messages,
    read_answer,
)
from headscope.data.chat import Chat, ChatModel, cache_file
from headscope.data.files import write_text_atomically
from headscope.data.links import Links

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
    session = _Session(options, source_language, target_language)
    with ThreadPoolExecutor(max_workers=max(1, options.workers)) as pool:
        futures = [pool.submit(session.answer, source, target) for source, target in pairs]
        try:
            answers = [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    links: list[Links | None] = []
    for answer in answers:
        if answer is None:
            links.append(None)
            continue
        linked = [one for one in answer if one.source is not None]
        kept = [one for one in linked if one.confidence > options.threshold]
        session.count("kept", len(kept))
        session.count("dropped", len(linked) - len(kept))
        links.append(frozenset((cast("int", one.source), one.target) for one in kept))
    return LlmLinks(tuple(links), session.stats())


def default_cache() -> Path:
    """Where answers are kept unless told otherwise."""
    return chat.default_cache("align")


class _Session:
    """One client, the cache and the counts; used from several threads."""

    _counted = ("cached", "answered", "malformed", "retries", "kept", "dropped")

    def __init__(self, options: LlmAligner, source_language: str, target_language: str) -> None:
        self._options = options
        self._languages = (source_language, target_language)
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._chat = Chat(
            options, "word alignment by a language model", lambda: self.count("retries")
        )

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    def stats(self) -> dict[str, int]:
        return {name: self._counts[name] for name in self._counted}

    def answer(self, source: Units, target: Units) -> tuple[UnitLink, ...] | None:
        """The links of one pair, from the cache or the endpoint; None if malformed."""
        if not source or not target:
            return ()
        key = [PROMPT_VERSION, *self._languages, list(source), list(target)]
        path = cache_file(self._options, key)
        if path is not None and path.exists():
            # A damaged entry holds no answer and is replaced by a new one.
            text = path.read_bytes().decode("utf-8", "replace")
            stored = read_answer(text, len(source), len(target))
            if stored is not None:
                self.count("cached")
                return stored
        asked = messages(source, target, *self._languages)
        text = self._chat.ask(asked, RESPONSE_FORMAT, "align a sentence")
        links = read_answer(text, len(source), len(target))
        if links is None:
            self.count("malformed")
            return None
        self.count("answered")
        if path is not None:
            rows = [
                {"target": one.target, "source": one.source, "confidence": one.confidence}
                for one in links
            ]
            write_text_atomically(path, json.dumps({"links": rows}) + "\n")
        return links
