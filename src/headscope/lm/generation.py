"""Greedy continuation of many prompts, each exactly as if it were alone.

A continuation ends at an end of text, a newline after text, or its length.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from headscope.errors import InputError
from headscope.lm.ablation import answers_at
from headscope.lm.batching import Batch, in_halves, length_buckets
from headscope.lm.inputs import generated

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: Called before a batch with the indices of its prompts and the padded batch; what it returns is
#: entered around the batch's generation (a batch that ran out of memory is tried again in halves,
#: each with a context of its own).
Observer = Callable[[list[int], Batch], AbstractContextManager[Any]]

#: What ended a continuation.
Stop = Literal["eos", "newline", "length"]


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """How prompts are continued.

    Attributes:
        max_new_tokens: tokens a prompt may get; None: twice its own length and 32.
        batch_tokens: upper bound of rows × (longest prompt + its new tokens) of a batch.
        stop_at_newline: end at the first newline that follows some text.
    """

    max_new_tokens: int | None = None
    batch_tokens: int = 8192
    stop_at_newline: bool = True

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1.")


@dataclasses.dataclass(frozen=True)
class Generation:
    """What a model made of one prompt.

    Attributes:
        prompt_ids: tokens of the prompt.
        output_ids: tokens that follow, without the end of text; with the token that holds the
            closing newline, if it stopped there (it may hold text too).
        text: the output decoded without special tokens, cut before the first newline that follows
            text, without white space before it.
        stop: what ended it.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    stop: Stop


def generate(
    lm: LanguageModel,
    prompts: Sequence[str],
    config: GenerateConfig | None = None,
    limits: Sequence[int] | None = None,
    observe: Observer | None = None,
    special: bool = True,
) -> list[Generation]:
    """Continue prompts greedily, in batches of similar length padded on the left.

    Of the model's generation settings only the end-of-text ids take part. Gates and peaks act by
    the contexts this is called in. Raises `InputError` if a prompt holds no token or fills the
    context, or limits do not fit.

    Args:
        limits: new tokens for each prompt, instead of ``config.max_new_tokens``.
        observe: gives a context to enter around each batch; see `Observer`.
        special: whether the tokenizer adds its special tokens; False for prompts that hold them
            already, such as those a chat template made.
    """
    config = config or GenerateConfig()
    ids = [lm.encode(prompt, special) for prompt in prompts]
    allowed = _limits(lm, ids, config, limits)
    results: dict[int, Generation] = {}
    lengths = [len(row) + limit for row, limit in zip(ids, allowed, strict=True)]

    def work(rows: list[int]) -> list[Generation]:
        batch = lm.collate([ids[i] for i in rows])
        context = observe(rows, batch) if observe is not None else contextlib.nullcontext()
        with context:
            return generate_batch(lm, batch, [allowed[i] for i in rows], config.stop_at_newline)

    # Every new token is a pass.
    overhead = lm.pass_overhead * max(allowed, default=0)
    for rows, done in in_halves(length_buckets(lengths, config.batch_tokens, overhead), work):
        results.update(zip(rows, done, strict=True))
    return [results[i] for i in range(len(ids))]


def _limits(
    lm: LanguageModel,
    ids: list[list[int]],
    config: GenerateConfig,
    limits: Sequence[int] | None,
) -> list[int]:
    """New tokens each prompt may get, never beyond the model's context."""
    if limits is not None and len(limits) != len(ids):
        raise InputError(f"{len(limits)} limits were given for {len(ids)} prompts; give one each.")
    allowed = []
    for index, row in enumerate(ids):
        room = lm.context_length - len(row)
        if not row or room < 1:
            raise InputError(
                f"Prompt {index} has {len(row)} tokens; it needs at least 1 and fewer than the "
                f"model's context of {lm.context_length}."
            )
        wanted = config.max_new_tokens if limits is None else limits[index]
        if wanted is None:
            wanted = 2 * len(row) + 32
        if wanted < 1:
            raise InputError(f"The limit of prompt {index} is {wanted}; it must be at least 1.")
        allowed.append(min(wanted, room))
    return allowed


def generate_batch(
    lm: LanguageModel, batch: Batch, limits: Sequence[int], stop_at_newline: bool = True
) -> list[Generation]:
    """Continue one padded batch greedily; ``limits`` are the new tokens of each row.

    The first forward pass reads the prompts, each further one a single token of every row, also
    of rows that have ended (their output is dropped) until all have.
    """
    width = int(batch.input_ids.shape[1])
    stop = RowStop(lm.stop_table, stop_at_newline, limits, width, lm.device)
    with answers_at([width - padding for padding in batch.padding]):
        sequences = generated(
            lm,
            batch,
            [stop],
            do_sample=False,
            max_new_tokens=max(limits),
            eos_token_id=list(lm.eos_token_ids) or None,
            pad_token_id=lm.pad_token_id,
        )
    results = []
    for row, limit, padding in zip(sequences.tolist(), limits, batch.padding, strict=True):
        new = row[width : width + limit]
        results.append(generation_of(lm, row[padding:width], new, stop_at_newline))
    return results


def generation_of(
    lm: LanguageModel, prompt: Sequence[int], new: Sequence[int], stop_at_newline: bool
) -> Generation:
    """What a model made of a prompt, from all the new tokens that it wrote."""
    length, why = lm.stop_table.cut(new, stop_at_newline)
    text = lm.tokenizer.decode(new[:length], skip_special_tokens=True).lstrip()
    if stop_at_newline:
        text = text.split("\n", 1)[0]
    return Generation(tuple(prompt), tuple(new[:length]), text, why)


class StopTable:
    """For each token id, (V,) bool, what it means for the question "has the text ended?".

    Decided from the text of single tokens, so that no step of generation has to decode anything:
    `ends` a text; holds `text`, something other than white space; a `newline`; text and a newline
    after it (`text_newline`).
    """

    def __init__(self, lm: LanguageModel) -> None:
        size = int(lm.model.get_input_embeddings().weight.shape[0])
        self.ends, self.text, self.newline, self.text_newline = np.zeros((4, size), dtype=bool)
        self.ends[[index for index in lm.eos_token_ids if index < size]] = True
        # Special tokens decode to nothing; a lone byte of a longer character decodes to U+FFFD,
        # which counts as text, as the whole character would.
        pieces = lm.tokenizer.batch_decode(
            [[index] for index in range(min(size, len(lm.tokenizer)))],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        for index, piece in enumerate(pieces):
            self.text[index] = bool(piece.strip())
            self.newline[index] = "\n" in piece
            self.text_newline[index] = "\n" in piece.lstrip()

    def cut(self, row: Sequence[int], at_newline: bool) -> tuple[int, Stop]:
        """How many tokens of ``row`` belong to the output, and why it ends there."""
        seen = False
        for at, index in enumerate(row):
            if self.ends[index]:
                return at, "eos"
            if at_newline and (self.text_newline[index] or (seen and self.newline[index])):
                return at + 1, "newline"
            seen = seen or bool(self.text[index])
        return len(row), "length"


class RowStop:
    """Stopping criterion for `generate`: each row by its own end mark, newline and limit of new
    tokens; `prompt` is the padded length of the prompts.
    """

    def __init__(
        self,
        table: StopTable,
        at_newline: bool,
        limits: Sequence[int],
        prompt: int,
        device: torch.device,
    ) -> None:
        def place(values: Any) -> torch.Tensor:
            return torch.from_numpy(values).to(device)

        self.ends, self.text = place(table.ends), place(table.text)
        self.newline, self.text_newline = place(table.newline), place(table.text_newline)
        self.at_newline, self.prompt = at_newline, prompt
        self.limits = torch.tensor(limits, device=device)
        self.seen = torch.zeros(len(limits), dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Which rows end with the token just written, (B,) bool."""
        last = input_ids[:, -1]
        done = self.ends[last] | (input_ids.shape[1] - self.prompt >= self.limits)
        if self.at_newline:
            done |= self.text_newline[last] | (self.seen & self.newline[last])
            self.seen |= self.text[last]
        return done
