"""Greedy continuation of many prompts: what is asked for, and what comes back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from transformers import LogitsProcessorList

from headscope.errors import InputError, caution
from headscope.heads import Gate
from headscope.lm.batching import Batch, in_halves
from headscope.lm.gates import gate_tensor
from headscope.lm.generation.pool import Decode, Requests, can_pool, write_pooled
from headscope.lm.generation.settings import Followed, text_settings
from headscope.lm.generation.stopping import NewlineStop, RowStop, Stop, StopTable
from headscope.lm.inputs import generated
from headscope.lm.positions import answers_at
from headscope.lm.tokens import texts_of
from headscope.progress import Steps

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement

#: Called with the indices of some prompts, a padded batch of them and whether they begin; what it
#: returns is entered around passes that continue these prompts, each by a token. The batch is the
#: first of them; the next have one column more each. What was seen of prompts that begin again,
#: because memory ran out, no longer counts.
Observer = Callable[[list[int], Batch, bool], AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """How prompts are continued.

    Attributes:
        max_new_tokens: tokens a prompt may get; None: twice its own length and 32.
        batch_tokens: upper bound of rows × (longest prompt + its new tokens) of a batch.
        stop_at_newline: end at the first newline that follows some text; "after preamble": unless
            its line ends in a colon, or opens a fence, and so comes before an answer.
        decode: "static" keeps rows and cache of the pool in one shape, padded, and "graph" lets a
            GPU repeat a recorded step (CUDA graph; hooks of others do not see it). Texts are the
            same but for rounding.
    """

    max_new_tokens: int | None = None
    batch_tokens: int = 8192
    stop_at_newline: NewlineStop = True
    decode: Decode = "plain"

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1.")
        if self.decode not in get_args(Decode):
            kinds = ", ".join(map(repr, get_args(Decode)))
            raise InputError(f"decode is {self.decode!r}; it must be one of {kinds}.")


@dataclasses.dataclass(frozen=True)
class Generation:
    """What a model made of one prompt.

    Attributes:
        prompt_ids: tokens of the prompt.
        output_ids: tokens that follow, without the end of text; with the token that holds the
            closing newline, if it stopped there (it may hold text too).
        text: the output decoded without special tokens, cut before the first newline that follows
            text (unless that is after a preamble), without white space before it.
        stop: what ended it.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    stop: Stop


def generate(
    lm: LanguageModel,
    prompts: Sequence[str] | str,
    config: GenerateConfig | None = None,
    limits: Sequence[int] | None = None,
    observe: Observer | None = None,
    special: bool = True,
    *,
    gates: Sequence[Gate] | torch.Tensor | None = None,
    replacement: Replacement | None = None,
    progress: Steps | None = None,
) -> list[Generation]:
    """Continue prompts greedily, each under a gate of its own if there are any.

    Rows that end leave the batch and waiting ones enter (`headscope.lm.generation.pool`); a model
    whose cache does not allow that gets batches of similar length, and a `Caution` says so. Texts
    are those of every prompt alone, but for rounding. Of the model's generation settings only the
    end-of-text ids take part, unless it follows them (`headscope.lm.generation.settings`). Gates
    by the contexts this is called in multiply; what is to be observed goes through ``observe``.
    Raises `InputError` if a prompt holds no token or fills the context, or limits or gates do not
    fit.

    Args:
        limits: new tokens for each prompt, instead of ``config.max_new_tokens``.
        observe: gives a context to enter around each batch; see `Observer`.
        special: whether the tokenizer adds its special tokens; False for prompts that hold them
            already, such as those a chat template made.
        gates: a gate for each prompt; a tensor is (prompts, L, W).
        replacement: what stands in the place of what ``gates`` remove (see
            `headscope.lm.replacement`); None: zero.
        progress: called with how many prompts have ended, and of how many.
    """
    config = config or GenerateConfig()
    wordings = texts_of(prompts)
    # The same prompts come under many gates.
    encoded = {prompt: lm.encode(prompt, special) for prompt in dict.fromkeys(wordings)}
    ids = [encoded[prompt] for prompt in wordings]
    if not ids:
        return []
    requests = Requests(
        ids,
        _limits(lm, ids, config, limits),
        *_distinct(lm, gates, len(ids)),
        replacement,
        config.stop_at_newline,
    )
    if lm.generation_config and text_settings(lm):
        requests = dataclasses.replace(requests, followed=Followed(lm, ids, requests.limits))
    results: dict[int, Generation] = {}
    table = lm.stop_table

    def finish(row: int, new: Sequence[int]) -> None:
        results[row] = generation_of(lm, ids[row], new, config.stop_at_newline, table)
        if progress:
            progress(len(results), len(ids))

    pooled = can_pool(lm)
    # Who observes is given batches that grow.
    if config.decode != "plain" and pooled and observe is None:
        if requests.followed is not None:
            why = f"{lm.name} decodes with shapes that grow: it follows its settings row by row"
            caution(why)
        elif can_pool(lm, config.decode):
            requests = dataclasses.replace(requests, decode=config.decode)
        else:
            why = f"{lm.name} decodes with shapes that grow: it does not write alike in fixed ones"
            caution(why)
    # Where a model's cache outgrows what it computes alike, only its own `generate` knows the way.
    long = [row for row in range(len(ids)) if requests.size(row) > lm.longest_shared]
    if pooled and long:
        short = sorted({*range(len(ids))} - {*long})
        for rows, write in ((short, write_pooled), (long, _write_plainly)):
            if rows:
                _write_some(lm, requests, rows, write, config.batch_tokens, finish, observe)
    elif pooled:
        write_pooled(lm, requests, config.batch_tokens, finish, observe)
    else:
        caution(f"{lm.name} writes batch by batch, which takes longer: rows cannot leave its cache")
        _write_plainly(lm, requests, config.batch_tokens, finish, observe)
    return [results[row] for row in range(len(ids))]


def _distinct(
    lm: LanguageModel, gates: Sequence[Gate] | torch.Tensor | None, prompts: int
) -> tuple[torch.Tensor | None, npt.NDArray[np.intp]]:
    """The different gates (G, L, W), and which of them each prompt has."""
    if gates is None:
        return None, np.zeros(prompts, dtype=np.intp)
    if len(gates) != prompts:
        raise InputError(f"{len(gates)} gates were given for {prompts} prompts; give one each.")
    if not isinstance(gates, torch.Tensor):
        gates = torch.stack([gate_tensor(lm.geometry, gate) for gate in gates])
    different, gate_of = torch.unique(gates.detach().cpu(), dim=0, return_inverse=True)
    return different, gate_of.numpy()


def _write_some(
    lm: LanguageModel,
    requests: Requests,
    rows: list[int],
    write: Callable[..., None],
    batch_tokens: int,
    finish: Callable[[int, list[int]], None],
    observe: Observer | None,
) -> None:
    """Let `write` continue these prompts alone."""

    def watch(some: list[int], batch: Batch, begins: bool) -> AbstractContextManager[Any]:
        assert observe is not None
        return observe([rows[at] for at in some], batch, begins)

    chosen = dataclasses.replace(
        requests,
        ids=[requests.ids[row] for row in rows],
        limits=[requests.limits[row] for row in rows],
        gate_of=requests.gate_of[rows],
    )
    if chosen.followed is not None:
        chosen = dataclasses.replace(chosen, followed=Followed(lm, chosen.ids, chosen.limits))
    write(
        lm,
        chosen,
        batch_tokens,
        lambda at, new: finish(rows[at], new),
        watch if observe else None,
    )


def _write_plainly(
    lm: LanguageModel,
    requests: Requests,
    batch_tokens: int,
    finish: Callable[[int, list[int]], None],
    observe: Observer | None = None,
) -> None:
    """What `write_pooled` does, in batches of similar length that stay together to their end."""

    def work(rows: list[int]) -> list[list[int]]:
        batch = lm.collate([requests.ids[row] for row in rows])
        watching = observe(rows, batch, True) if observe else contextlib.nullcontext()
        with requests.applied(lm, rows), watching:
            limits = [requests.limits[row] for row in rows]
            width = int(batch.input_ids.shape[1])

            def follow(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
                assert requests.followed is not None
                return requests.followed(rows, ids[:, width:].tolist(), logits)

            processors = [] if requests.followed is None else [follow]
            return generate_batch(lm, batch, limits, requests.stop_at_newline, processors)

    sizes = [requests.size(row) for row in range(len(requests.ids))]
    # Every new token is a pass.
    overhead = lm.pass_overhead * max(requests.limits)
    widths = [len(row) for row in requests.ids]
    for rows, made in in_halves(lm.buckets(sizes, batch_tokens, overhead, widths), work):
        for row, new in zip(rows, made, strict=True):
            finish(row, new)


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
    lm: LanguageModel,
    batch: Batch,
    limits: Sequence[int],
    stop_at_newline: NewlineStop = True,
    processors: Sequence[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = (),
) -> list[list[int]]:
    """The new tokens of each row of one padded batch, by the ``generate`` of transformers.

    ``limits`` are the new tokens of each row; ``processors`` make logits (B, V) of all tokens (B,
    T) and of such logits. The first forward pass reads the prompts, each
    further one a single token of every row, also of rows that have ended (what they get is dropped
    by `generation_of`) until all have.
    """
    width = int(batch.input_ids.shape[1])
    stop = RowStop(lm.stop_table, stop_at_newline, limits, lm.device)
    with answers_at([width - padding for padding in batch.padding]):
        sequences = generated(
            lm,
            batch,
            [stop],
            {"logits_processor": LogitsProcessorList(processors)},
            do_sample=False,
            max_new_tokens=max(limits),
            eos_token_id=list(lm.eos_token_ids) or None,
            pad_token_id=lm.pad_token_id,
        )
    rows = zip(sequences.tolist(), limits, strict=True)
    return [row[width : width + limit] for row, limit in rows]


def generation_of(
    lm: LanguageModel,
    prompt: Sequence[int],
    new: Sequence[int],
    stop_at_newline: NewlineStop,
    table: StopTable | None = None,
) -> Generation:
    """What a model made of a prompt, from all the new tokens that it wrote; `table` is its
    `stop_table`, if that is at hand."""
    length, why = (table or lm.stop_table).cut(new, stop_at_newline)
    text = lm.decode(new[:length]).lstrip()
    if stop_at_newline is True:
        text = text.split("\n", 1)[0]
    return Generation(tuple(prompt), tuple(new[:length]), text, why)
