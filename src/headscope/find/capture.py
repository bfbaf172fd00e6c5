"""Recording peaks for the target tokens of many sentences, in batches, resumably."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.prompts import Prompt
from headscope.lm.attention.peaks import PeakRequest, Peaks
from headscope.lm.batching import Batch, collate, length_buckets
from headscope.lm.generation import GenerateConfig, Generation, generate
from headscope.lm.geometry import evaluating, forward_inputs

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

Keys = Sequence[NDArray[np.bool_]] | None
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Part:
    """A named place in a run for finished batches; without a run nothing is kept."""

    run: Run | None = None
    name: str = ""

    def record(self, name: str) -> Any:
        """A kept record, or None."""
        return None if self.run is None else self.run.read_part(self._at(name)).get(name)

    def keep_record(self, name: str, record: Any) -> None:
        if self.run is not None:
            self.run.append_part(self._at(name), name, record)

    def tensors(self, name: str) -> list[dict[str, NDArray[Any]]]:
        """The arrays of all kept batches."""
        return [] if self.run is None else list(self.run.read_tensors(self._at(name)).values())

    def keep_tensors(self, name: str, key: str, tensors: dict[str, NDArray[Any]]) -> None:
        if self.run is not None:
            self.run.append_tensors(self._at(name), key, tensors)

    def _at(self, name: str) -> str:
        return f"{self.name}/{name}"


class Settings(Protocol):
    """The part of a scoring configuration that capturing needs."""

    @property
    def query(self) -> str: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def max_new_tokens(self) -> int | None: ...


@dataclass(frozen=True, eq=False)
class Captured:
    """The peaks of one sentence: int32 (n, L, W), indices into its unpadded tokens, -1 for none.

    `output_ids` are the generated tokens (empty for a given translation). With `query="read"` an
    output that no end of text closes has no row for its last token, which was never read.
    """

    peaks: NDArray[np.int32]
    output_ids: tuple[int, ...] = ()


def capture_reference(
    lm: LanguageModel,
    ids: Sequence[Sequence[int]],
    rows: Sequence[NDArray[np.intp]],
    keys: Keys,
    config: Settings,
    part: Part = Part(),
    progress: Progress | None = None,
) -> list[Captured]:
    """Peaks of given texts: one forward pass a batch, the chosen rows only.

    Args:
        ids: tokens of each text.
        rows: places of each text's target tokens.
        keys: for each text the tokens that may be a peak, or None for all.
        part: where finished batches are kept and read from.
    """
    found = _stored(part, "peaks")
    waiting = _unfinished([len(one) for one in ids], config.batch_tokens, found)
    while waiting:
        some = waiting.pop()
        batch = collate([ids[i] for i in some], lm.pad_token_id)
        try:
            captured = _read_batch(lm, batch, [rows[i] for i in some], keys, some, config.query)
        except torch.OutOfMemoryError:
            if len(some) == 1:
                raise
            torch.cuda.empty_cache()
            half = len(some) // 2
            waiting += [some[half:], some[:half]]
            continue
        _keep(part, "peaks", some, captured, found)
        if progress:
            progress(len(found), len(ids))
    return [found[index] for index in range(len(ids))]


def capture_greedy(
    lm: LanguageModel,
    prompts: Sequence[Prompt],
    source: Sequence[NDArray[np.bool_]],
    keys: Keys,
    config: Settings,
    part: Part = Part(),
    progress: Progress | None = None,
) -> list[Captured]:
    """Peaks of the model's own greedy outputs, recorded while they are generated.

    `source` marks each prompt's source tokens: an output is limited to twice as many and 32. It
    ends at the first newline after text, but for prompts of a chat template, whose answers end as
    the template ends them. All prompts are of a chat template, or none.
    """
    special = all(prompt.special for prompt in prompts)
    settings = GenerateConfig(batch_tokens=config.batch_tokens, stop_at_newline=special)
    limits = [config.max_new_tokens or 2 * int(one.sum()) + 32 for one in source]
    lengths = [len(one) + limit for one, limit in zip(source, limits, strict=True)]
    found = _stored(part, "outputs")
    waiting = _unfinished(lengths, config.batch_tokens, found)
    while waiting:
        some = waiting.pop()
        seen: dict[int, NDArray[np.int32]] = {}
        made = generate(
            lm,
            [prompts[i].text for i in some],
            settings,
            [limits[i] for i in some],
            partial(_watch, lm, keys, some, seen),
            special,
        )
        captured = [_of_output(one, seen[row], config.query) for row, one in enumerate(made)]
        _keep(part, "outputs", some, captured, found)
        if progress:
            progress(len(found), len(prompts))
    return [found[index] for index in range(len(prompts))]


@contextmanager
def _watch(
    lm: LanguageModel,
    keys: Keys,
    some: Sequence[int],
    seen: dict[int, NDArray[np.int32]],
    rows: list[int],
    batch: Batch,
) -> Iterator[None]:
    """Record the last row of every step of one generation batch; fills `seen` by prompt."""
    request = PeakRequest("last", _padded_keys(keys, [some[i] for i in rows], batch))
    with lm.attention_peaks(request) as peaks:
        yield
    steps = _stack(peaks)
    for row, (prompt, padding) in enumerate(zip(rows, batch.padding, strict=True)):
        seen[prompt] = _unpadded(steps[:, row], padding)


def _stack(peaks: Peaks) -> NDArray[np.int32]:
    """All steps as one array (steps, B, L, W)."""
    stacked: NDArray[np.int32] = torch.stack([step.keys for step in peaks.steps]).cpu().numpy()
    return stacked


def _of_output(made: Generation, steps: NDArray[np.int32], query: str) -> Captured:
    # Step s predicts output token s and reads output token s - 1. Steps that follow the output's
    # end are due to other rows of the batch and must not count.
    predicted = len(made.output_ids) + (made.stop == "eos")
    chosen = steps[: len(made.output_ids)] if query == "predict" else steps[1:predicted]
    return Captured(chosen, made.output_ids)


def _read_batch(
    lm: LanguageModel,
    batch: Batch,
    rows: Sequence[NDArray[np.intp]],
    keys: Keys,
    some: Sequence[int],
    query: str,
) -> list[Captured]:
    """One forward pass; the rows of each text are its target tokens, or the ones before."""
    shift = 1 if query == "predict" else 0
    wanted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for row, (places, padding) in enumerate(zip(rows, batch.padding, strict=True)):
        wanted[row, torch.from_numpy(places + padding - shift)] = True
    request = PeakRequest(wanted, _padded_keys(keys, some, batch))
    with evaluating(lm.model), torch.inference_mode(), lm.attention_peaks(request) as peaks:
        lm.model(**forward_inputs(lm.model, batch, logits=False))
    of_row, values = peaks.rows[:, 0].numpy(), peaks.keys.cpu().numpy()
    return [
        Captured(_unpadded(values[of_row == row], padding))
        for row, padding in enumerate(batch.padding)
    ]


def _unpadded(keys: NDArray[np.int32], padding: int) -> NDArray[np.int32]:
    return np.where(keys < 0, np.int32(-1), keys - np.int32(padding)).astype(np.int32)


def _padded_keys(keys: Keys, some: Sequence[int], batch: Batch) -> torch.Tensor | None:
    if keys is None:
        return None
    padded = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for row, (index, padding) in enumerate(zip(some, batch.padding, strict=True)):
        padded[row, padding : padding + len(keys[index])] = torch.from_numpy(keys[index])
    return padded


def _stored(part: Part, name: str) -> dict[int, Captured]:
    """What an earlier process of the same run has captured."""
    found: dict[int, Captured] = {}
    for tensors in part.tensors(name):
        found.update(_unpack(tensors))
    return found


def _unfinished(
    lengths: Sequence[int], batch_tokens: int, found: dict[int, Captured]
) -> list[list[int]]:
    """The batches still to do, as a stack whose top is the longest."""
    buckets = length_buckets(lengths, batch_tokens)
    left = [[index for index in bucket if index not in found] for bucket in buckets]
    return [bucket for bucket in reversed(left) if bucket]


def _keep(
    part: Part,
    name: str,
    some: Sequence[int],
    captured: Sequence[Captured],
    found: dict[int, Captured],
) -> None:
    found.update(zip(some, captured, strict=True))
    # A sentence is in one batch only, so its number names the batch whatever their size.
    part.keep_tensors(name, f"{some[0]:09d}", _pack(some, captured))


def _pack(some: Sequence[int], captured: Sequence[Captured]) -> dict[str, NDArray[Any]]:
    return {
        "index": np.array(some, dtype=np.int64),
        "rows": np.array([len(one.peaks) for one in captured], dtype=np.int64),
        "peaks": np.concatenate([one.peaks for one in captured]),
        "lengths": np.array([len(one.output_ids) for one in captured], dtype=np.int64),
        "output_ids": np.array([i for one in captured for i in one.output_ids], dtype=np.int64),
    }


def _unpack(tensors: dict[str, NDArray[Any]]) -> dict[int, Captured]:
    peaks = np.split(tensors["peaks"], np.cumsum(tensors["rows"])[:-1])
    outputs = np.split(tensors["output_ids"], np.cumsum(tensors["lengths"])[:-1])
    return {
        int(index): Captured(one, tuple(int(i) for i in ids))
        for index, one, ids in zip(tensors["index"], peaks, outputs, strict=True)
    }
