"""Recording peaks for the target tokens of many sentences, in batches, resumably."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.prompts import Prompt
from headscope.errors import InputError
from headscope.find.scoring import NOWHERE, Arrays, RunPart
from headscope.lm.attention.peaks import PeakRequest, attention_peaks
from headscope.lm.batching import Batch, in_halves
from headscope.lm.generation import GenerateConfig, Generation, generate, newline_stop
from headscope.lm.generation.pool import Requests, SharedPrefix, can_pool
from headscope.lm.inputs import evaluating
from headscope.progress import Steps

if TYPE_CHECKING:
    from headscope.heads import HeadScores
    from headscope.lm import LanguageModel

_log = logging.getLogger(__name__)

#: Outputs that are written together and kept as one.
AT_ONCE = 256
#: Texts are read behind what they all begin with where that is at least one part in so many.
LEAST_SHARED = 8
#: Parts of a run: the batches of given texts, and those of the model's own outputs.
BATCHES = ("peaks", "outputs")
#: A finished run keeps the peaks of so many best and so many other heads, on so many sentences.
KEPT, KEPT_HEADS, KEPT_SENTENCES = "peaks", 20, 200

Keys = Sequence[NDArray[np.bool_]] | None


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
    part: RunPart = NOWHERE,
    progress: Steps | None = None,
) -> list[Captured]:
    """Peaks of given texts: one forward pass a batch, the chosen rows only.

    What all texts begin with is read once, where it is long enough and the model allows it.

    Args:
        ids: tokens of each text.
        rows: places of each text's target tokens.
        keys: for each text the tokens that may be a peak, or None for all.
    """
    found = _stored(part, "peaks")
    prefix = shared_prefix(lm, ids, rows)
    lengths, most = [len(text) for text in ids], config.batch_tokens
    if prefix:
        lengths = [length - prefix.tokens for length in lengths]
        # Keys and values of the prefix are held for every row.
        most = max(1, most * max(lengths) // (max(lengths) + prefix.tokens))
    buckets = lm.buckets(lengths, most)

    def reread() -> None:
        found.update(_stored(part, "peaks"))

    def work(some: list[int]) -> list[Captured]:
        with evaluating(lm.model), torch.inference_mode():
            batch = prefix.batch(some) if prefix else lm.collate([ids[i] for i in some])
            return _read_batch(lm, batch, [rows[i] for i in some], keys, some, config.query)

    with part.units("peaks", buckets, found, reread, progress) as mine:
        for some, captured in in_halves(mine, work):
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
    part: RunPart = NOWHERE,
    progress: Steps | None = None,
    answer_only: bool = False,
) -> list[Captured]:
    """Peaks of the model's own greedy outputs, recorded while they are generated.

    `source` marks each prompt's source tokens: an output is limited to twice as many and 32. It
    ends at the first newline after text, but for prompts of a chat template, whose answers end as
    the template ends them; with `answer_only` it goes on after a line that comes before an answer,
    and may be 64 tokens longer. All prompts are of a chat template, or none.
    """
    special = all(prompt.special for prompt in prompts)
    newline, room = newline_stop(special, answer_only), 64 if answer_only else 0
    settings = GenerateConfig(batch_tokens=config.batch_tokens, stop_at_newline=newline)
    limits = [config.max_new_tokens or 2 * int(marks.sum()) + 32 + room for marks in source]
    found = _stored(part, "outputs")
    by_length = sorted(range(len(prompts)), key=lambda at: -len(source[at]) - limits[at])
    units = [by_length[at : at + AT_ONCE] for at in range(0, len(by_length), AT_ONCE)]

    def reread() -> None:
        found.update(_stored(part, "outputs"))

    with part.units("outputs", units, found, reread, progress) as mine:
        for some in mine:
            seen: dict[int, list[NDArray[np.int32]]] = {}
            made = generate(
                lm,
                [prompts[i].text for i in some],
                settings,
                [limits[i] for i in some],
                partial(_watch, lm, keys, some, seen),
                special,
            )
            captured = [
                _of_output(output, np.concatenate(seen[row]), config.query)
                for row, output in enumerate(made)
            ]
            _keep(part, "outputs", some, captured, found)
            if progress:
                progress(len(found), len(prompts))
    return [found[index] for index in range(len(prompts))]


def keep_peaks(part: RunPart, captured: Sequence[Captured], scores: HeadScores, seed: int) -> None:
    """Let a finished run keep the peaks of few heads instead of all.

    These are written now; the batches, from which a run that was stopped goes on, are removed when
    the run is finished. The file `peaks/<part>.safetensors` holds `heads` (n, 2): layer and head of
    the `KEPT_HEADS` best ones and then of as many others, drawn by the seed; `index`: the first
    `KEPT_SENTENCES` sentences; `rows`: target tokens of each; `peaks` (all their rows, n), as in
    `Captured`; and of all sentences the `lengths` of the outputs with their `output_ids`.
    """
    if part.run is None:
        return
    best = scores.top(min(KEPT_HEADS, scores.geometry.total))
    others = [head for head in scores.geometry.heads() if head not in best]
    drawn = random.Random(f"peaks {seed}").sample(others, min(KEPT_HEADS, len(others)))
    heads = np.array([(head.layer, head.head) for head in (*best, *sorted(drawn))])
    few = [Captured(text.peaks[:, heads[:, 0], heads[:, 1]]) for text in captured[:KEPT_SENTENCES]]
    tensors = {"heads": heads, **_pack(range(len(few)), few), **_pack_outputs(captured)}
    file = _kept(part.run.path, part.name)
    part.run.write_tensors(str(file.relative_to(part.run.path)), tensors)
    for name in BATCHES:
        part.run.drop_when_finished(f"{part.name}/{name}")


def check_peaks(folder: str | Path, wanted: bool) -> None:
    """Raise `InputError` if all peaks are wanted of a finished run that kept those of few heads."""
    few = (Path(folder) / KEPT).glob("*.safetensors")
    parts = [Path(folder) / "parts" / file.stem for file in few]
    if wanted and not all(any((part / name).is_dir() for name in BATCHES) for part in parts):
        raise InputError(
            f"{folder}: is finished and kept the peaks of few heads alone; name another folder, "
            "or delete this one, to keep all of them with --keep-peaks"
        )


@contextmanager
def _watch(
    lm: LanguageModel,
    keys: Keys,
    some: Sequence[int],
    seen: dict[int, list[NDArray[np.int32]]],
    rows: list[int],
    batch: Batch,
    begins: bool,
) -> Iterator[None]:
    """Record the last row of every pass over a batch; adds (passes, L, W) to `seen` by prompt."""
    request = PeakRequest("last", _padded_keys(keys, [some[i] for i in rows], batch))
    with lm.attention_peaks(request) as peaks:
        yield
    # (passes, B, L, W)
    steps = torch.stack([step.keys for step in peaks.steps]).cpu().numpy()
    for row, (prompt, padding) in enumerate(zip(rows, batch.padding, strict=True)):
        before = [] if begins else seen[prompt]
        seen[prompt] = [*before, _unpadded(steps[:, row], padding)]


def _of_output(made: Generation, steps: NDArray[np.int32], query: str) -> Captured:
    # Step s predicts output token s and reads output token s - 1. Steps that follow the output's
    # end are due to other rows of the batch and must not count.
    predicted = len(made.output_ids) + (made.stop == "eos")
    chosen = steps[: len(made.output_ids)] if query == "predict" else steps[1:predicted]
    return Captured(chosen, made.output_ids)


def shared_prefix(
    lm: LanguageModel, ids: Sequence[Sequence[int]], rows: Sequence[NDArray[np.intp]]
) -> SharedPrefix | None:
    """What the texts have in common before the first row that is wanted, if it pays to read it
    apart."""
    first = min((int(places[0]) for places in rows if len(places)), default=0)
    requests = Requests(ids, [1] * len(ids), None, np.zeros(len(ids), np.intp), None, False)
    prefix = SharedPrefix(lm, requests, first - 1)
    # A pass with keys and values before its tokens takes longer.
    pays = prefix.tokens * len(ids) > sum(map(len, ids)) // LEAST_SHARED
    return prefix if pays and can_pool(lm) else None


def _read_batch(
    lm: LanguageModel,
    batch: Batch,
    rows: Sequence[NDArray[np.intp]],
    keys: Keys,
    some: Sequence[int],
    query: str,
) -> list[Captured]:
    """One forward pass; the rows of each text are its target tokens, or the ones before."""
    wanted = rows_before(batch, rows, 1 if query == "predict" else 0)
    request = PeakRequest(wanted, _padded_keys(keys, some, batch))
    with attention_peaks(lm, request, stop=True) as peaks:
        lm.forward(batch, logits=False)
    of_row, values = peaks.rows[:, 0].numpy(), peaks.keys.cpu().numpy()
    return [
        Captured(_unpadded(values[of_row == row], padding))
        for row, padding in enumerate(batch.padding)
    ]


def rows_before(batch: Batch, rows: Sequence[NDArray[np.intp]], shift: int) -> torch.Tensor:
    """The queries `shift` places before these places of each text, bool (B, T)."""
    wanted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    shift += batch.attention_mask.shape[1] - wanted.shape[1]  # what the cache holds
    for row, (places, padding) in enumerate(zip(rows, batch.padding, strict=True)):
        wanted[row, torch.from_numpy(places + padding - shift)] = True
    return wanted


def _unpadded(keys: NDArray[np.int32], padding: int) -> NDArray[np.int32]:
    return np.where(keys < 0, np.int32(-1), keys - np.int32(padding)).astype(np.int32)


def _padded_keys(keys: Keys, some: Sequence[int], batch: Batch) -> torch.Tensor | None:
    if keys is None:
        return None
    padded = torch.zeros(batch.attention_mask.shape, dtype=torch.bool)
    for row, (index, padding) in enumerate(zip(some, batch.padding, strict=True)):
        padded[row, padding : padding + len(keys[index])] = torch.from_numpy(keys[index])
    return padded


def _kept(folder: Path, name: str) -> Path:
    return folder / KEPT / f"{name}.safetensors"


def _stored(part: RunPart, name: str) -> dict[int, Captured]:
    found: dict[int, Captured] = {}
    for tensors in part.tensors(name):
        found.update(_unpack(tensors))
    if not found and part.run is not None and _kept(part.run.path, part.name).is_file():
        _log.warning(
            "%s: kept the peaks of few heads alone, so the model reads the texts of %s again; "
            "--keep-peaks keeps them all",
            part.run.path,
            part.name,
        )
    return found


def _keep(
    part: RunPart,
    name: str,
    some: Sequence[int],
    captured: Sequence[Captured],
    found: dict[int, Captured],
) -> None:
    found.update(zip(some, captured, strict=True))
    # A sentence is in one batch only, so its number names the batch whatever their size.
    part.keep_tensors(name, f"{some[0]:09d}", _pack(some, captured))


def _pack(some: Sequence[int], captured: Sequence[Captured]) -> Arrays:
    peaks = np.concatenate([text.peaks for text in captured])
    return {
        "index": np.array(some, dtype=np.int64),
        "rows": np.array([len(text.peaks) for text in captured], dtype=np.int64),
        # In 16 bits, where the texts are short enough for it.
        "peaks": peaks.astype(np.int16) if peaks.max(initial=0) < 1 << 15 else peaks,
        **_pack_outputs(captured),
    }


def _pack_outputs(captured: Sequence[Captured]) -> Arrays:
    return {
        "lengths": np.array([len(text.output_ids) for text in captured], dtype=np.int64),
        "output_ids": np.array([i for text in captured for i in text.output_ids], dtype=np.int64),
    }


def _unpack(tensors: Arrays) -> dict[int, Captured]:
    peaks = np.split(tensors["peaks"].astype(np.int32), np.cumsum(tensors["rows"])[:-1])
    outputs = np.split(tensors["output_ids"], np.cumsum(tensors["lengths"])[:-1])
    return {
        int(index): Captured(rows, tuple(int(i) for i in ids))
        for index, rows, ids in zip(tensors["index"], peaks, outputs, strict=True)
    }
