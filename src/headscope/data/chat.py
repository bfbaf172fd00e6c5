"""Asking a language model behind an OpenAI-compatible endpoint, and keeping its answers.

The key is read from the environment, sent in the request header, and written nowhere. Requests
that fail in a way that may pass are repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headscope.data.files import write_text_atomically
from headscope.errors import InputError, OptionalPart, check_parts, need

T = TypeVar("T")
Item = TypeVar("Item")

KEY_VARIABLES = ("HEADSCOPE_API_KEY", "OPENAI_API_KEY")
URL_VARIABLES = ("HEADSCOPE_BASE_URL", "OPENAI_BASE_URL")

# What reading a reply's body raises where it is no JSON.
_NOT_JSON = (json.JSONDecodeError, UnicodeDecodeError)


class EndpointError(InputError):
    """No key or address is given, or the endpoint refused or stayed unreachable.

    Answers until then are cached.
    """


@dataclass(frozen=True)
class ChatModel:
    """Which model to ask and how.

    ``base_url`` None means the environment's (``HEADSCOPE_BASE_URL``, ``OPENAI_BASE_URL``), else
    the client's default. ``retries`` after a failed request wait ``first_delay`` seconds, doubled
    each time up to ``longest_delay`` and shortened by up to a quarter at random, or as long as the
    server asks. ``timeout`` is that of one request in seconds. ``temperature`` None leaves the
    endpoint's default. ``cache`` None keeps no answers.
    """

    model: str
    base_url: str | None = None
    # What changes no answer is left out of signatures.
    cache: Path | None = field(default=None, metadata={"signature": False})
    workers: int = field(default=4, metadata={"signature": False})
    retries: int = field(default=6, metadata={"signature": False})
    first_delay: float = field(default=0.5, metadata={"signature": False})
    longest_delay: float = field(default=60.0, metadata={"signature": False})
    timeout: float = field(default=120.0, metadata={"signature": False})
    temperature: float | None = None


def default_cache(purpose: str) -> Path:
    """Where answers of one purpose are kept unless told otherwise: the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "headscope" / purpose


def cache_file(options: ChatModel, key: Sequence[Any]) -> Path | None:
    """Where the answer to a question is kept; ``key`` tells all that decides it but the model."""
    if options.cache is None:
        return None
    text = json.dumps([options.model, options.temperature, *key], ensure_ascii=True)
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return options.cache / digest[:2] / f"{digest}.json"


#: What a language model is asked for where words are linked, as errors say it.
ALIGNING = "word alignment by a language model"


def chat_part(purpose: str) -> OptionalPart:
    """What asking a language model needs."""
    return OptionalPart(purpose, "llm", ("openai",))


def check_endpoint(options: ChatModel, purpose: str) -> None:
    """Raise what the first request would: `MissingExtra` without the package, ``EndpointError``
    for an address or a key that cannot be used, or for no key where no answer is cached."""
    check_parts([chat_part(purpose)])
    _url(options.base_url)
    cached = options.cache is not None and any(options.cache.glob("*/*.json"))
    if not cached or _first(KEY_VARIABLES) is not None:
        _key()


def object_schema(**properties: Any) -> dict[str, Any]:
    """The JSON schema of an object with these properties, all of them and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def response_format(name: str, **properties: Any) -> dict[str, Any]:
    """What asks an endpoint for answers that are an object with these properties."""
    schema = {"name": name, "strict": True, "schema": object_schema(**properties)}
    return {"type": "json_schema", "json_schema": schema}


class Chat:
    """One client, its cache and counts; used from several threads.

    ``purpose`` says in errors what needs the package.
    """

    def __init__(self, options: ChatModel, purpose: str) -> None:
        self._options = options
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._openai = need("openai", purpose, "llm")
        self._client: Any = None

    def count(self, name: str, by: int = 1) -> None:
        """Add to what `stats` tells under a name."""
        with self._lock:
            self._counts[name] += by

    def stats(self, *names: str) -> dict[str, int]:
        """What was counted under each name; ``retries`` are those of requests and answers."""
        return {name: self._counts[name] for name in names}

    def each(
        self,
        work: Callable[[Item], T],
        items: Sequence[Item],
        progress: Callable[[int, int], None] | None = None,
    ) -> list[T]:
        """What ``work`` makes of each item, several at once; an error ends what has not begun."""
        with ThreadPoolExecutor(max_workers=max(1, self._options.workers)) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for number, done in enumerate(as_completed(futures), 1):
                    done.result()
                    if progress:
                        progress(number, len(items))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return [future.result() for future in futures]

    def answer(
        self,
        key: Sequence[Any],
        messages: Sequence[Mapping[str, str]],
        response_format: Any,
        what: str,
        read: Callable[[str], T | None],
        plain: Callable[[T], Any],
        tries: int = 1,
    ) -> T | None:
        """What ``read`` makes of the answer to a question; None if it can read none of so many.

        Counts ``cached`` or ``answered``. An answer is kept as the JSON that ``plain`` makes, under
        ``key``, which tells all that decides it but the model. ``what`` is what was to be done.
        Raises ``EndpointError`` where the environment holds no key, or the request is refused or
        still fails after all retries.
        """
        path = cache_file(self._options, key)
        if path is not None and path.exists():
            # A damaged entry holds no answer and is replaced by a new one.
            stored = read(path.read_bytes().decode("utf-8", "replace"))
            if stored is not None:
                self.count("cached")
                return stored
        for attempt in range(tries):
            if attempt:
                self.count("retries")
            value = read(self._request(messages, response_format, what))
            if value is not None:
                self.count("answered")
                if path is not None:
                    write_text_atomically(path, json.dumps(plain(value)) + "\n")
                return value
        return None

    def _request(
        self, messages: Sequence[Mapping[str, str]], response_format: Any, what: str
    ) -> str:
        """The text of the model's answer, empty where the reply holds none."""
        options = self._options
        arguments: dict[str, Any] = {
            "model": options.model,
            "messages": list(messages),
            "response_format": response_format,
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
                    f"the endpoint did not {what}{tries}: {problem}; check the model "
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
            raise EndpointError(
                "the base URL of the endpoint is malformed; write it like http://127.0.0.1:8000/v1"
            )
    return url


def _key() -> str:
    key = key_in(KEY_VARIABLES)
    if key is None:
        raise EndpointError(
            f"no API key in the environment; set {' or '.join(KEY_VARIABLES)} (any text for an "
            "endpoint that asks for none)"
        )
    return key


def key_in(variables: Sequence[str]) -> str | None:
    """The key that the first of these environment variables holds; ``EndpointError`` for what is
    none."""
    key = _first(variables)
    if key is not None and (not key.isascii() or not key.isprintable() or " " in key):
        raise EndpointError(
            "the API key in the environment holds a space or a sign that no key has; set it again"
        )
    return key
