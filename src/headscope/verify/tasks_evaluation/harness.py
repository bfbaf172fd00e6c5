"""A model that is already loaded, as lm-evaluation-harness asks for one.

The harness (Gao et al. 2024, doi 10.5281/zenodo.12608602, release 0.4) calls three methods:
log-likelihoods of continuations, of whole texts, and greedy or sampled continuations. What they
mean is the harness's own convention, as its class `HFLM` carries it out: white space at the end of
a prompt moves to the continuation, a prompt that is too long loses its beginning, an empty prompt
is replaced by the token that begins (or ends) a text. Unlike that class this one changes neither
the model nor the tokenizer, sizes its batches by tokens, and takes every softmax in 32 bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel

#: The harness's requests; of each only `args` is read.
Requests = Sequence[Any]

#: Tokens that a continuation gets where a task sets no limit (the harness's default).
MAX_NEW_TOKENS = 256
#: Settings of generation that a task may make, beside where it stops and its length.
SAMPLING = ("temperature", "top_p", "top_k", "min_p")


class HarnessModel:
    """Answers the harness's requests by a model as it is now, gates included.

    A padded batch is bounded by `batch_tokens`, and halved where memory does not suffice; `report`
    is called with the number of requests answered by each. `truncated` counts the prompts of which
    the beginning was cut off.
    """

    rank = 0
    world_size = 1

    def __init__(
        self,
        lm: LanguageModel,
        batch_tokens: int = 8192,
        report: Callable[[int], None] | None = None,
    ) -> None:
        self.lm = lm
        self.batch_tokens = batch_tokens
        self.report = report or (lambda done: None)
        self.truncated = 0

    @property
    def first_token_id(self) -> int:
        """What stands before a text that has nothing before it: begin of text, or end of text."""
        begin = getattr(self.lm.tokenizer, "bos_token_id", None)
        if isinstance(begin, int):
            return begin
        if not self.lm.eos_token_ids:
            raise InputError(
                f"the model {self.lm.name} knows neither a begin nor an end of text, which a task "
                "with an empty prompt needs; choose a task with prompts"
            )
        return self.lm.eos_token_ids[0]

    def encode(self, text: str, special: bool | None = None) -> list[int]:
        """Token ids; the tokenizer's own special tokens unless the text begins with the first."""
        if special is None:
            begin = getattr(self.lm.tokenizer, "bos_token", None)
            special = not (begin and text.startswith(begin))
        return self.lm.encode(text, special)

    def pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of a prompt and of what follows it, cut where the prompt's own tokens end."""
        if not context:
            ids = self.encode(continuation, special=False)
            if ids and ids[0] == self.first_token_id:
                return ids[:1], ids[1:]
            return [self.first_token_id], ids
        whole = self.encode(context + continuation)
        # Of white space alone nothing is left but what the tokenizer itself puts in front.
        before = self.encode(context.rstrip())
        return before or [self.first_token_id], whole[len(before) :]

    def loglikelihood(self, requests: Requests) -> list[tuple[float, bool]]:
        """Of each (prompt, continuation): ln P(continuation | prompt), and if it is greedy."""
        return self._score([self.pair(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: Requests) -> list[float]:
        """ln P of each whole text, in windows of the model's context that do not overlap."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        windows: list[tuple[list[int], list[int]]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            (text,) = request.args
            rolling = get_rolling_token_windows(
                token_list=self.encode(text),
                prefix_token=self.first_token_id,
                max_seq_len=self.lm.context_length,
                context_len=1,
            )
            for window in map(make_disjoint_window, rolling):
                windows.append((list(window[0]), list(window[1])))
                owners.append(number)
        totals = [0.0] * len(requests)
        for owner, (value, _) in zip(owners, self._score(windows), strict=True):
            totals[owner] += value
        return totals

    def generate_until(self, requests: Requests) -> list[str]:
        """Continue each (prompt, settings) up to the first of the task's stop texts."""
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            key = json.dumps(request.args[1], sort_keys=True, default=str)
            groups.setdefault(key, []).append(number)
        texts: dict[int, str] = {}
        for numbers in groups.values():
            settings = dict(requests[numbers[0]].args[1])
            prompts = [requests[number].args[0] for number in numbers]
            made = self._continue(prompts, settings)
            texts.update(zip(numbers, made, strict=True))
        return [texts[number] for number in range(len(requests))]

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """Log-likelihoods of the second of each pair of rows after the first.

        Requests that read the same tokens (choices of one token each, such as A to D) share a row.
        """
        import torch

        from headscope.lm.inputs import evaluating, leaves_out_logits
        from headscope.lm.owners import inner_model

        rows: dict[tuple[int, ...], list[int]] = {}
        for number, (context, continuation) in enumerate(pairs):
            if not continuation:
                raise InputError(
                    "a continuation holds no token of its own; give choices that are not empty"
                )
            read = (*context, *continuation[:-1])
            if len(continuation) > self.lm.context_length:
                raise InputError(
                    f"a continuation of {len(continuation)} tokens does not fit into the model's "
                    f"context of {self.lm.context_length}; use a task with shorter choices"
                )
            self.truncated += len(read) > self.lm.context_length
            rows.setdefault(read[-self.lm.context_length :], []).append(number)
        results: dict[int, tuple[float, bool]] = {}
        keys, model = list(rows), inner_model(self.lm.model)

        def work(bucket: list[int]) -> dict[int, tuple[float, bool]]:
            batch = self.lm.collate([keys[i] for i in bucket])
            longest = max(len(pairs[n][1]) for i in bucket for n in rows[keys[i]])
            kept = {"logits_to_keep": longest} if leaves_out_logits(model) else {}
            logits = self.lm.forward(batch, logits=False, **kept).logits[:, -longest:]
            return {
                number: _likelihood(row, pairs[number][1])
                for row, i in zip(logits, bucket, strict=True)
                for number in rows[keys[i]]
            }

        lengths = [len(key) for key in keys]
        with evaluating(self.lm.model), torch.no_grad():
            for _, answered in self.lm.in_batches(lengths, self.batch_tokens, work):
                results |= answered
                self.report(len(answered))
        return [results[number] for number in range(len(pairs))]

    def _continue(self, prompts: Sequence[str], settings: dict[str, Any]) -> list[str]:
        from headscope.lm.batching import in_halves
        from headscope.lm.inputs import generated

        until, limit, sampling = _settings(settings, self.lm.context_length)
        most = self.lm.context_length - limit
        rows = []
        for prompt in prompts:
            ids = self.encode(prompt) or [self.first_token_id]
            self.truncated += len(ids) > most
            rows.append(ids[-most:])
        texts: dict[int, str] = {}

        def work(bucket: list[int]) -> list[list[int]]:
            batch = self.lm.collate([rows[i] for i in bucket])
            width = int(batch.input_ids.shape[1])
            sequences = generated(
                self.lm,
                batch,
                [_Until(self.lm.tokenizer, until, width)],
                max_new_tokens=limit,
                eos_token_id=list(self.lm.eos_token_ids) or None,
                pad_token_id=self.lm.pad_token_id,
                **sampling,
            )
            new: list[list[int]] = sequences[:, width:].tolist()
            return new

        lengths = [len(row) + limit for row in rows]
        buckets = self.lm.buckets(lengths, self.batch_tokens, self.lm.pass_overhead * limit)
        for bucket, made in in_halves(buckets, work):
            texts |= {i: self._text(new, until) for i, new in zip(bucket, made, strict=True)}
            self.report(len(bucket))
        return [texts[i] for i in range(len(rows))]

    def _text(self, new: list[int], until: Sequence[str]) -> str:
        ends = [at for at, index in enumerate(new) if index in self.lm.eos_token_ids]
        text: str = self.lm.decode(new[: ends[0]] if ends else new)
        for stop in until:
            text = text.split(stop)[0]
        return text


class _Until:
    """Stopping criterion: each row ends with the first of the stop texts it has written."""

    def __init__(self, tokenizer: Any, until: Sequence[str], prompt: int) -> None:
        self.tokenizer, self.until, self.prompt = tokenizer, until, prompt
        # A stop text may be spread over as many tokens as it has bytes, and share its last one.
        self.window = 2 * max((len(stop.encode()) for stop in until), default=0) + 4

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        import torch

        from headscope.lm.tokens import decode

        new = input_ids[:, self.prompt :][:, -self.window :].tolist()
        texts = [decode(self.tokenizer, row) for row in new] if self.until else new
        ended = [any(stop in text for stop in self.until) for text in texts]
        return torch.tensor(ended, device=input_ids.device)


def _likelihood(logits: torch.Tensor, continuation: list[int]) -> tuple[float, bool]:
    import torch

    target = torch.tensor(continuation, device=logits.device)
    used = logits[-len(continuation) :].float()
    chosen = used.log_softmax(-1).gather(1, target[:, None])
    return float(chosen.sum()), bool((used.argmax(-1) == target).all())


def _settings(given: dict[str, Any], context: int) -> tuple[list[str], int, dict[str, Any]]:
    from lm_eval.models.utils import normalize_gen_kwargs

    kwargs = dict(normalize_gen_kwargs(given, MAX_NEW_TOKENS))
    until = kwargs.pop("until", None) or []
    stops = [until] if isinstance(until, str) else [str(stop) for stop in until if stop]
    limit = int(kwargs.pop("max_gen_toks"))
    if limit >= context:
        raise InputError(
            f"the task generates up to {limit} tokens and the model's context has {context}; set "
            "max_gen_toks in the task's generation_kwargs to less"
        )
    sample = bool(kwargs.pop("do_sample", False))
    known = {name: kwargs.pop(name) for name in SAMPLING if name in kwargs}
    if kwargs:
        raise InputError(
            f"the task's generation_kwargs hold {', '.join(sorted(kwargs))}, which is not known "
            f"here; known: until, max_gen_toks, do_sample, {', '.join(SAMPLING)}"
        )
    return stops, limit, {"do_sample": True, **known} if sample else {"do_sample": False}
