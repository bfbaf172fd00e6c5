"""Asking a server that applies gates for texts, and comparing them with those of the model here.

A vLLM with headscope's plugin takes a gate as a text, and llama.cpp's llama-server a LoRA adapter
with a scale; both get and give token ids. `HEADSCOPE_API_KEY` of the environment is sent to the
server as its key, and written nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.client import HTTPException
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np

from headscope.data.chat import key_in
from headscope.errors import InputError, clause
from headscope.heads import Gate
from headscope.runs import Record

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel

KEY = "HEADSCOPE_API_KEY"
#: Seconds that a server has for one answer, and the most of it that is read.
TIMEOUT, LARGEST = 300.0, 2**26
#: Requests that are under way at once.
AT_ONCE = 16
#: What the order of sums changes in 32 bits, as a share of the largest logit.
_SUMS = 1e-5

Item = TypeVar("Item")
Made = TypeVar("Made")
#: What a text is made of: its token ids, and None where it ended by itself.
Tokens = tuple[int | None, ...]


@dataclass(frozen=True)
class Agreement(Record):
    """How a server's text compares with the one that is made here.

    Attributes:
        texts: `rounding`: equal up to `token`, where rounding may order two tokens otherwise.
        token: the first place where they differ.
        ours, theirs: the token ids there; None: the text ends.
        gap: how far apart their logits are here; None: the model has no such token.
        allowed: the largest gap that rounding explains.
    """

    texts: Literal["equal", "rounding", "different"]
    token: int | None = None
    ours: int | None = None
    theirs: int | None = None
    gap: float | None = None
    allowed: float | None = None


class Refused(InputError):
    """The server answered with a status that is an error."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Vllm:
    """A vLLM, which is asked for `model` and told a `gate` in words."""

    url: str
    version: str
    model: str
    gate: str = ""
    kind: Literal["vLLM"] = "vLLM"

    def written(self, prompt: Sequence[int], limit: int, gated: bool) -> list[int]:
        """The token ids that it writes greedily behind a prompt, its end of text included."""
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": limit,
            "temperature": 0,
            "repetition_penalty": 1,  # a checkpoint may set another
            "return_token_ids": True,
        }
        if gated:
            body["vllm_xargs"] = {"heads": self.gate}
        answer = asked(self.url, "/v1/completions", body)
        choices = answer.get("choices") if isinstance(answer, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        return _ids(choice, "token_ids", f"{self.url}/v1/completions")

    def refusal(self, prompt: Sequence[int], gate: str) -> int:
        """The status of its answer to another gate."""
        try:
            replace(self, gate=gate).written(prompt, 1, True)
        except Refused as error:
            return error.status
        return 200


@dataclass(frozen=True)
class LlamaCpp:
    """A server of llama.cpp with these `adapters`, of which one is applied at a `scale`."""

    url: str
    version: str
    adapters: tuple[int, ...]
    adapter: int = 0
    scale: float = 1.0
    kind: Literal["llama.cpp"] = "llama.cpp"

    def written(self, prompt: Sequence[int], limit: int, gated: bool) -> list[int]:
        """The token ids that it writes greedily behind a prompt, its end of text included."""
        on = self.adapter if gated else None
        body = {
            "prompt": list(prompt),
            "n_predict": limit,
            "temperature": 0,
            "top_k": 1,
            "return_tokens": True,
            "cache_prompt": False,
            "lora": [
                {"id": adapter, "scale": self.scale if adapter == on else 0.0}
                for adapter in self.adapters
            ],
        }
        return _ids(asked(self.url, "/completion", body), "tokens", f"{self.url}/completion")


def found(url: str) -> Vllm | LlamaCpp:
    """The server at an address, by what it says of itself.

    Raises `InputError`, in a sentence, for what is no address of a server, for one that does not
    answer, or one of another kind.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    if not fits or parts.username is not None or parts.query or parts.fragment:
        raise InputError(
            f"{url.rpartition('@')[2]!r} is no address of a server; write http://HOST:PORT, and a "
            f"key in the environment ({KEY})"
        )
    url = url.rstrip("/").removesuffix("/v1")
    models = _rows(_if_there(url, "/v1/models"), "data")
    served = [str(row["id"]) for row in models if row.get("owned_by") == "vllm" and row.get("id")]
    if served:
        version = _if_there(url, "/version")
        told = version.get("version") if isinstance(version, dict) else None
        return Vllm(url, str(told or "of unknown version"), served[0])
    adapters = _if_there(url, "/lora-adapters")
    if isinstance(adapters, list):
        about = _if_there(url, "/props")
        told = about.get("build_info") if isinstance(about, dict) else None
        numbers = [row["id"] for row in _rows({"adapters": adapters}, "adapters") if "id" in row]
        whole = tuple(number for number in numbers if isinstance(number, int))
        return LlamaCpp(url, str(told or "of unknown version"), whole)
    raise InputError(
        f"{url} answers, but neither as vLLM nor as llama.cpp's llama-server; give the address of "
        "one of these"
    )


def gate_words(gate: Gate) -> str:
    """A gate in the words of the plugin: `-17.2, 5.1*0.5`; heads that are not named keep theirs."""
    heads = []
    for head in gate.changed_heads():
        factor = gate.values[head.layer, head.head]
        times = np.format_float_positional(factor, trim="-")
        heads.append(f"-{head.key}" if factor == 0 else f"{head.key}*{times}")
    return ", ".join(heads)


def at_once(work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """What `work` makes of each item, many at a time; an error ends what has not begun."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def asked(url: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """The JSON that a server answers; `Refused`, or `InputError` where it does not answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data, {"Content-Type": "application/json"})
    key = key_in([KEY])
    if key is not None:  # not for another place that it leads to
        request.add_unredirected_header("Authorization", f"Bearer {key}")
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            text = answer.read(LARGEST)
    except HTTPError as error:
        said = _said(error).replace(key or "\0", "[key]")
        hint = f"; put its key into {KEY}" if error.code in (401, 403) else ""
        refused = Refused(
            f"{url}{path} answers with status {error.code}{said and f': {said}'}{hint}", error.code
        )
        raise refused from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", error)  # of an error of urllib, another
        why = clause(why) if isinstance(why, Exception) else str(why)
        raise InputError(
            f"{url}{path} does not answer ({why}); see whether the server runs there"
        ) from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            f"{url}{path} answers with something else than JSON; give the address of the server "
            "itself"
        ) from None


def rounding_of(dtypes: Sequence[torch.dtype]) -> float:
    """How far apart the logits of two tokens may lie that another program orders otherwise, as a
    share of the largest logit: each is off by one rounding in the coarsest of these dtypes, in 32
    bits by what another order of sums changes (1e-5)."""
    import torch

    return 2 * max(_SUMS, *(torch.finfo(dtype).eps for dtype in dtypes))


def ended(tokens: Sequence[int], limit: int, ends: Sequence[int]) -> Tokens:
    """A text of at most so many tokens, cut where it ends by itself: there stands None."""
    length = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
    return (*tokens[:length], None)[:limit]


def agreement(
    lm: LanguageModel, prompt: Sequence[int], ours: Tokens, theirs: Tokens, rounding: float
) -> Agreement:
    """Whether two texts behind a prompt are equal, and if not, whether rounding explains it.

    It does where the logits of both tokens, of the model as it stands, are closer than `rounding`
    of the largest logit at the first place where the texts differ. What follows is not compared.
    """
    pairs = enumerate(zip_longest(ours, theirs))
    at = next((at for at, (own, other) in pairs if own != other), None)
    if at is None:
        return Agreement("equal")
    logits = lm.next_logits([[*prompt, *(token for token in ours[:at] if token is not None)]])[0]
    own, other = (text[at] if at < len(text) else None for text in (ours, theirs))
    levels = [_logit(logits, token, lm.eos_token_ids) for token in (own, other)]
    allowed = rounding * float(logits.abs().max())
    known = [level for level in levels if level is not None]
    gap = abs(known[0] - known[1]) if len(known) == 2 else None
    explained = gap is not None and gap <= allowed
    return Agreement("rounding" if explained else "different", at, own, other, gap, allowed)


def _logit(logits: torch.Tensor, token: int | None, ends: Sequence[int]) -> float | None:
    """The logit of a token, of the end the largest of its tokens; None: the model has no such."""
    known = [each for each in (ends if token is None else (token,)) if 0 <= each < len(logits)]
    return max((float(logits[each]) for each in known), default=None)


def _if_there(url: str, path: str) -> Any:
    """What a server answers; None where it has no such page."""
    try:
        return asked(url, path)
    except Refused as error:
        if error.status in (401, 403):
            raise
        return None


def _rows(answer: Any, name: str) -> list[dict[str, Any]]:
    """The objects that an answer lists under a name."""
    rows = answer.get(name) if isinstance(answer, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _ids(answer: Any, name: str, place: str) -> list[int]:
    ids = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise InputError(
            f"{place} answers without the token ids of what was written ({name}); take a newer "
            "version of the server (vLLM from 0.10.2)"
        )
    return ids


def _said(error: HTTPError) -> str:
    """What a server says of an error, in one short line."""
    try:
        text = error.read(4096).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return ""
    try:
        answer = json.loads(text)
        inner = answer.get("error", answer)
        text = str(inner.get("message", text) if isinstance(inner, dict) else inner)
    except (ValueError, AttributeError, RecursionError):
        pass
    return " ".join(text.split())[:200]
