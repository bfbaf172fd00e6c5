"""Word links from a language model behind an OpenAI-compatible endpoint.

For each target unit the model names the source unit it translates, or none, with a confidence;
links above a threshold are kept (Token Alignment Heads, ICLR 2026, uses 0.9). Answers are kept on
disk, so that a run that is repeated or continued asks for nothing twice. The key is read from the
environment, sent in the request header, and written nowhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Any, cast
from urllib.parse import urlsplit

from headscope.data.align.answers import (
    PROMPT_VERSION,
    RESPONSE_FORMAT,
    UnitLink,
    messages,
    read_answer,
)
from headscope.data.extras import need
from headscope.data.files import write_text_atomically
from headscope.data.links import Links
from headscope.errors import InputError

KEY_VARIABLES = ("HEADSCOPE_API_KEY", "OPENAI_API_KEY")
URL_VARIABLES = ("HEADSCOPE_BASE_URL", "OPENAI_BASE_URL")

Units = Sequence[str]

# What reading a reply's body raises where it is no JSON.
_NOT_JSON = (json.JSONDecodeError, UnicodeDecodeError)


class EndpointError(InputError):
    """The endpoint refused a request or stayed unreachable; answers until then are cached."""


@dataclass(frozen=True)
class LlmAligner:
    """Which model to ask and how.

    ``base_url`` None means the environment's (``HEADSCOPE_BASE_URL``, ``OPENAI_BASE_URL``), else
    the client's default. ``threshold``: confidence above which a link is kept. ``retries`` after
    a failed request wait ``first_delay`` seconds, doubled each time up to ``longest_delay`` and
    shortened by up to a quarter at random, or as long as the server asks. ``timeout`` is that of
    one request in seconds. ``temperature`` None leaves the endpoint's default. ``cache`` None
    keeps no answers.
    """

    model: str
    base_url: str | None = None
    threshold: float = 0.9
    # What changes no answer is left out of signatures.
    cache: Path | None = field(default=None, metadata={"signature": False})
    workers: int = field(default=4, metadata={"signature": False})
    retries: int = field(default=6, metadata={"signature": False})
    first_delay: float = field(default=0.5, metadata={"signature": False})
    longest_delay: float = field(default=60.0, metadata={"signature": False})
    timeout: float = field(default=120.0, metadata={"signature": False})
    temperature: float | None = None


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
    """Where answers are kept unless told otherwise: the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "headscope" / "align"


class _Session:
    """One client, the cache and the counts; used from several threads."""

    _counted = ("cached", "answered", "malformed", "retries", "kept", "dropped")

    def __init__(self, options: LlmAligner, source_language: str, target_language: str) -> None:
        self._options = options
        self._languages = (source_language, target_language)
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._openai = need("openai", "word alignment by a language model", "llm")
        self._client: Any = None

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self._counts[name] += by

    def stats(self) -> dict[str, int]:
        return {name: self._counts[name] for name in self._counted}

    def answer(self, source: Units, target: Units) -> tuple[UnitLink, ...] | None:
        """The links of one pair, from the cache or the endpoint; None if malformed."""
        if not source or not target:
            return ()
        path = self._cache_path(source, target)
        if path is not None and path.exists():
            # A damaged entry holds no answer and is replaced by a new one.
            text = path.read_bytes().decode("utf-8", "replace")
            stored = read_answer(text, len(source), len(target))
            if stored is not None:
                self.count("cached")
                return stored
        text = self._ask(source, target)
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

    def _cache_path(self, source: Units, target: Units) -> Path | None:
        options = self._options
        if options.cache is None:
            return None
        key = [options.model, options.temperature, PROMPT_VERSION, *self._languages]
        text = json.dumps([*key, list(source), list(target)], ensure_ascii=True)
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()
        return options.cache / digest[:2] / f"{digest}.json"

    def _ask(self, source: Units, target: Units) -> str:
        """The text of the model's answer; failures that may pass are tried again."""
        options = self._options
        arguments: dict[str, Any] = {
            "model": options.model,
            "messages": messages(source, target, *self._languages),
            "response_format": RESPONSE_FORMAT,
        }
        if options.temperature is not None:
            arguments["temperature"] = options.temperature
        client = self._connected()
        for attempt in range(options.retries + 1):
            try:
                return _content(client.chat.completions.create(**arguments))
            except (self._openai.APIResponseValidationError, *_NOT_JSON):
                return ""  # a reply of another kind, such as a proxy's page: a malformed answer
            except self._openai.APIError as error:
                problem, passing = self._describe(error)
                wait = _retry_after(error)
            # Raised outside the handler: the client's exceptions hold the request's headers.
            if not passing or attempt == options.retries:
                tries = f" after {attempt + 1} tries" if attempt else ""
                raise EndpointError(
                    f"the endpoint did not align a sentence{tries}: {problem}; check the model "
                    "name, the base URL and the key, then run again (answers so far are cached)"
                )
            self.count("retries")
            backoff = min(options.first_delay * 2.0**attempt, options.longest_delay)
            time.sleep(wait or backoff * (1 - 0.25 * random.random()))
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> Any:
        """The client, made at the first request, so that a full cache needs no key."""
        with self._lock:
            if self._client is None:
                self._client = self._openai.OpenAI(
                    api_key=_key(),
                    base_url=_url(self._options.base_url),
                    timeout=self._options.timeout,
                    max_retries=0,
                )
            return self._client

    def _describe(self, error: Any) -> tuple[str, bool]:
        """What went wrong, without the key, and whether it may pass."""
        status = getattr(error, "status_code", None)
        if status is None:
            passing = isinstance(error, self._openai.APIConnectionError)
            return type(error).__name__, passing
        text = " ".join(str(error.message).split()).replace(_key(), "[key]")
        if len(text) > 200:
            text = text[:199] + "…"
        ruling = error.response.headers.get("x-should-retry")
        passing = status in (408, 409, 429) or status >= 500
        return f"status {status}, {text}", (ruling == "true") or (passing and ruling != "false")


def _content(completion: Any) -> str:
    """The text of an answer; nothing where the model refused or the server's reply has none."""
    choices = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    content = getattr(message, "content", None)
    return content if isinstance(content, str) else ""


def _retry_after(error: Any) -> float:
    """Seconds that the server asks to wait, at most two minutes, or 0."""
    response = getattr(error, "response", None)
    value = response.headers.get("retry-after", "") if response is not None else ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(seconds, 120.0) if seconds > 0 else 0.0


def _first(variables: Sequence[str]) -> str | None:
    """The first of these environment variables that holds anything."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


def _url(given: str | None) -> str | None:
    url = given or _first(URL_VARIABLES)
    if url is not None:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise InputError(
                "the base URL of the endpoint is malformed; write it like http://127.0.0.1:8000/v1"
            )
    return url


def _key() -> str:
    key = _first(KEY_VARIABLES)
    if key is None:
        raise InputError(
            f"no API key in the environment; set {' or '.join(KEY_VARIABLES)} (any text for an "
            "endpoint that asks for none)"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            "the API key in the environment holds a space or a sign that no key has; set it again"
        )
    return key
