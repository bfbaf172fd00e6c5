"""A pool of rows that are continued together: rows that end leave it, waiting ones enter.

All rows of a pool end in the same column, so padding stands on the left alone, whatever a row was
padded with before is trimmed when rows leave, and the masks, positions and windows of a model mean
what they mean in any batch padded on the left. Keys and values of all tokens are kept, also by
layers with a window, which its mask applies.

Where prompts begin alike (the examples of a few-shot prompt, a system turn), that beginning is read
once under each gate, and every row continues from its keys and values.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer

from headscope.lm.batching import MOST_MASKED, Batch, memory_errors, release_memory
from headscope.lm.generation.stopping import NewlineStop, RowStop
from headscope.lm.hooks import inner_model, once_a_model
from headscope.lm.inputs import evaluating, parameters_of, probe_batch
from headscope.lm.positions import answers_at
from headscope.lm.prefix import Prefix, can_share, record_prefix, replay_prefix
from headscope.lm.selfcheck import Noise

if TYPE_CHECKING:
    from headscope.lm.generation.texts import Observer
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement

#: Rows leave a pool, and others enter, when at least this share of them has ended.
_LEAVE = 0.15
#: Columns that a cache grows by.
_ROOM = 32
#: Layers of a cache that hold keys and values alone, or are those of another layer.
_PLAIN_LAYERS = {"DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer"}
#: Lengths of the rows by which a model is tried, and how many tokens each gets.
_PROBE, _PROBE_TOKENS = (9, 7, 6, 4, 3), 6


@dataclass(frozen=True, eq=False)
class Requests:
    """Prompts to be continued.

    Attributes:
        ids: tokens of each prompt.
        limits: new tokens of each, at least 1.
        gates: the different gates (G, L, W), or None for none.
        gate_of: which of them each prompt has, int (n,).
        replacement: what stands in the place of what gates remove (see `headscope.lm.replacement`).
        stop_at_newline: end at the first newline that follows some text.
    """

    ids: Sequence[Sequence[int]]
    limits: Sequence[int]
    gates: torch.Tensor | None
    gate_of: NDArray[np.intp]
    replacement: Replacement | None
    stop_at_newline: NewlineStop

    def applied(self, lm: LanguageModel, rows: Sequence[int]) -> contextlib.ExitStack:
        """The model with a batch of these prompts under their gates."""
        stack = contextlib.ExitStack()
        stack.enter_context(answers_at([len(self.ids[row]) for row in rows]))
        if self.gates is not None:
            gates = self.gates[torch.from_numpy(self.gate_of[list(rows)])]
            stack.enter_context(lm.gated(gates, self.replacement))
        return stack

    def size(self, row: int) -> int:
        """Tokens of a prompt and of its longest continuation."""
        return len(self.ids[row]) + self.limits[row]


def write_pooled(
    lm: LanguageModel,
    requests: Requests,
    batch_tokens: int,
    finish: Callable[[int, list[int]], None],
    observe: Observer | None = None,
) -> None:
    """Continue every prompt greedily; ``finish`` gets its number and new tokens when it has ended.

    No more than ``batch_tokens`` (rows × the longest prompt with its longest continuation) are in
    the pool, but for a single row. Where memory does not suffice, the rows of the pool begin again
    in half of it. Needs a model for which `can_pool` is true, and prompts that stay within its
    `longest_shared`.
    """
    prefix = SharedPrefix(lm, requests)
    waiting = deque(_order(requests, prefix.tokens, batch_tokens))
    pool = _Pool(lm, requests, prefix, observe)
    with evaluating(lm.model), torch.no_grad():
        while True:
            entering: list[int] = []
            stay = [at for at, ended in enumerate(pool.ended.tolist()) if not ended]
            if not stay and not waiting:
                return
            sizes = [requests.size(pool.rows[at]) for at in stay]
            while waiting:
                longest = max([*sizes, requests.size(waiting[0])])
                if sizes and (len(sizes) + 1) * longest > batch_tokens:
                    break
                entering.append(waiting.popleft())
                sizes.append(requests.size(entering[-1]))
            rows = [pool.rows[at] for at in stay] + entering
            try:
                with memory_errors():
                    pool.change(stay, entering)
                    pool.run(_LEAVE)
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
                pool = _Pool(lm, requests, prefix, observe)
            else:
                for row, tokens in pool.finished():
                    finish(row, tokens)
                prefix.keep([*pool.rows, *waiting])
                continue
            release_memory()
            batch_tokens = max(1, len(rows) // 2) * max(sizes)
            waiting.extendleft(reversed(rows))


def _order(requests: Requests, prefix: int, batch_tokens: int) -> list[int]:
    """Prompts from the longest to the shortest; with a prefix for some gates after the others.

    Every second time from the shortest, so that neighbours are of similar length. Prefixes of so
    many gates are held at once as take a quarter of a pool.
    """
    gates = len(requests.limits)
    if prefix:
        gates = max(1, batch_tokens // (4 * prefix))

    def place(row: int) -> tuple[int, int, int]:
        block = int(requests.gate_of[row]) // gates
        size = requests.size(row)
        return block, size if block % 2 else -size, row

    return sorted(range(len(requests.ids)), key=place)


class _Pool:
    """The rows that are continued now.

    Attributes:
        rows: number of the prompt of each row.
        ended: which rows have ended, bool (B,).
    """

    def __init__(
        self, lm: LanguageModel, requests: Requests, prefix: SharedPrefix, observe: Observer | None
    ) -> None:
        self._lm, self._requests, self._prefix, self._observe = lm, requests, prefix, observe
        self.rows: list[int] = []
        self.ended = torch.zeros(0, dtype=torch.bool, device=lm.device)
        self._stop = self._stopping([])
        #: The last token of each row, which no pass has read, (B, 1), and how many it has read.
        self._tokens = torch.zeros((0, 1), dtype=torch.long, device=lm.device)
        self._lengths: list[int] = []
        self._cache: Any = None
        self._written: dict[int, list[int]] = {}

    def change(self, stay: Sequence[int], entering: Sequence[int]) -> None:
        """Drop all rows but those at the places ``stay``, and read prompts behind them."""
        if len(stay) == len(self.rows) and not entering:
            return
        requests = self._requests
        places = torch.tensor(stay, dtype=torch.long, device=self.ended.device)
        lengths = [self._lengths[at] for at in stay]
        parts = [_Part(self._cache, [*stay], slice(-max(lengths), None))] if stay else []
        tokens = [self._tokens[places]]
        rows = [self.rows[at] for at in stay]
        for bucket in self._prefix.buckets(entering):
            batch = self._prefix.batch(bucket)
            with requests.applied(self._lm, bucket), self._watching(bucket, batch, True):
                tokens.append(self._next(batch))
            own = [len(requests.ids[row]) for row in bucket]
            parts.append(_Part(batch.cache, [*range(len(bucket))], slice(-max(own), None)))
            rows += bucket
            lengths += own
        self._cache = _joined(parts, _ROOM, release=True)
        self.rows, self._lengths, self._tokens = rows, lengths, torch.cat(tokens)
        stop = self._stopping([requests.limits[row] for row in rows[len(stay) :]])
        new = self._tokens[len(stay) :]
        self.ended = torch.cat([self.ended[places], stop(new)])
        self._stop.change(places, stop)
        for row, token in zip(rows[len(stay) :], new[:, 0].tolist(), strict=True):
            self._written[row] = [token]

    def run(self, leave: float) -> None:
        """Continue the rows until this share of them has ended."""
        if self._enough(leave):
            return
        steps = []
        lengths = torch.tensor(self._lengths, device=self._tokens.device)[:, None]
        width = max(self._lengths)
        # Columns that are yet to come belong to every row.
        longest = width + max(self._requests.limits[row] for row in self.rows)
        columns = torch.arange(longest, device=self._tokens.device)
        mask = (columns >= width - lengths).long()
        batch = Batch(self._tokens, mask[:, : width + 1], lengths, self._cache)
        with self._requests.applied(self._lm, self.rows), self._watching(self.rows, batch, False):
            while True:
                self._tokens = self._next(batch)
                steps.append(self._tokens)
                self.ended |= self._stop(self._tokens)
                if self._enough(leave):
                    break
                end, places = width + len(steps) + 1, lengths + len(steps)
                batch = Batch(self._tokens, mask[:, :end], places, self._cache)
        self._lengths = [length + len(steps) for length in self._lengths]
        for row, tokens in zip(self.rows, torch.cat(steps, dim=1).tolist(), strict=True):
            self._written[row] += tokens

    def finished(self) -> Iterator[tuple[int, list[int]]]:
        """The prompts that have ended since, with their new tokens."""
        for row, ended in zip(self.rows, self.ended.tolist(), strict=True):
            if ended:
                yield row, self._written.pop(row)[: self._requests.limits[row]]

    def _enough(self, leave: float) -> bool:
        return float(self.ended.float().mean()) >= leave

    def _stopping(self, limits: Sequence[int]) -> RowStop:
        newline = self._requests.stop_at_newline
        return RowStop(self._lm.stop_table, newline, limits, self._lm.device)

    def _watching(
        self, rows: list[int], batch: Batch, fresh: bool
    ) -> contextlib.AbstractContextManager[Any]:
        return self._observe(rows, batch, fresh) if self._observe else contextlib.nullcontext()

    def _next(self, batch: Batch) -> torch.Tensor:
        """The likeliest next token of every row, (B, 1)."""
        logits: torch.Tensor = self._lm.forward(batch, logits=False).logits[:, -1]
        return logits.float().argmax(dim=-1, keepdim=True).to(self._lm.device)


class SharedPrefix:
    """The tokens that all prompts begin with, read once under each gate.

    Below the first layer that any gate changes they are read once for all. ``most`` bounds them, so
    that what is wanted of the tokens after so many can be had. For a model for which `can_pool` is
    true.

    Attributes:
        tokens: how many; 0 where reading them apart spares nothing.
    """

    def __init__(self, lm: LanguageModel, requests: Requests, most: int | None = None) -> None:
        self._lm, self._requests = lm, requests
        #: For each gate a cache of several gates, and the row of it that is the gate's.
        self._caches: dict[int, tuple[Any, int]] = {}
        self._below: tuple[Any, Prefix] | None = None
        # The least and the greatest prompt have in common what all have.
        least, greatest = min(map(list, requests.ids)), max(map(list, requests.ids))
        alike = sum(takewhile(bool, map(eq, least, greatest)))
        self.tokens = min([alike, *(len(ids) - 1 for ids in requests.ids)])
        if most is not None:
            self.tokens = min(self.tokens, most)
        rows, gates = len(requests.ids), len(set(requests.gate_of.tolist()))
        # It takes a pass of its own for every gate.
        if self.tokens * (rows - gates) <= gates * lm.pass_overhead:
            self.tokens = 0
        longest = max(map(len, requests.ids))
        # What a short row makes of the prefix is not what a long one makes of it.
        if longest > lm.longest_shared or (longest - self.tokens) * longest > MOST_MASKED:
            self.tokens = 0
        self._first = 0
        if self.tokens and requests.gates is not None and gates > 1:
            changed = (requests.gates != 1).any(dim=-1).any(dim=0)
            first = int(changed.nonzero()[0]) if bool(changed.any()) else 0
            self._first = first if first and can_share(lm, first) else 0

    def buckets(self, rows: Sequence[int]) -> list[list[int]]:
        """Prompts whose rest is read together."""
        left = [len(self._requests.ids[row]) - self.tokens for row in rows]
        buckets = self._lm.buckets(left, max(1, sum(left)))
        return [[rows[at] for at in bucket] for bucket in buckets]

    def batch(self, rows: Sequence[int]) -> Batch:
        """What is yet to be read of these prompts, of every one as many of its last tokens.

        What stands before them is in the batch's cache, from the prefix under the prompt's gate.
        """
        ids = [self._requests.ids[row] for row in rows]
        read = max(len(row) for row in ids) - self.tokens
        batch = self._lm.collate([row[-read:] for row in ids]).to(self._lm.device)
        past = [max(0, len(row) - read) for row in ids]
        if not any(past):
            return dataclasses.replace(batch, cache=DynamicCache())
        own = [int(gate) for gate in self._requests.gate_of[list(rows)]]
        self._read([gate for gate in dict.fromkeys(own) if gate not in self._caches])
        parts: list[_Part] = []
        for gate, length in zip(own, past, strict=True):
            cache, row = self._caches[gate]
            if parts and (parts[-1].cache, parts[-1].columns.stop) == (cache, length):
                parts[-1].rows.append(row)
            else:
                parts.append(_Part(cache, [row], slice(0, length)))
        ends = torch.tensor(past, device=self._lm.device)[:, None]
        before = torch.arange(max(past), device=self._lm.device) >= max(past) - ends
        return Batch(
            batch.input_ids,
            torch.cat([before.long(), batch.attention_mask], dim=1),
            batch.position_ids + ends,
            _joined(parts, read),
        )

    def keep(self, rows: Sequence[int]) -> None:
        """Forget the gates that none of these prompts has."""
        needed = set(self._requests.gate_of[list(rows)].tolist())
        self._caches = {gate: own for gate, own in self._caches.items() if gate in needed}

    def _read(self, gates: Sequence[int]) -> None:
        """Read the prefix under each of these gates."""
        if not gates:
            return
        lm, requests = self._lm, self._requests
        ids = [requests.ids[0][: self.tokens]]
        batch = dataclasses.replace(lm.collate(ids * len(gates)), cache=DynamicCache())
        with contextlib.ExitStack() as stack:
            stack.enter_context(answers_at([self.tokens] * len(gates)))
            if self._first:
                if self._below is None:
                    alone = dataclasses.replace(lm.collate(ids), cache=DynamicCache())
                    with record_prefix(lm, self._first, stop=True) as recording:
                        lm.forward(alone, logits=False)
                    self._below = alone.cache, recording.prefix()
                below = self._below[1].select([0] * len(gates))
                stack.enter_context(replay_prefix(lm, below, last=True))
            if requests.gates is not None:
                stack.enter_context(lm.gated(requests.gates[list(gates)], requests.replacement))
            lm.forward(batch, logits=False)
        if self._below is not None:
            shared = _joined([_Part(self._below[0], [0] * len(gates), slice(None))], 0)
            batch.cache.layers[: self._first] = shared.layers[: self._first]
        self._caches.update({gate: (batch.cache, row) for row, gate in enumerate(gates)})


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of a cache, and which of its columns count."""

    cache: Any
    rows: list[int]
    columns: slice


class _Layer(DynamicLayer):
    """Keys and values with room to grow, so that a pass copies its own columns alone."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, width: int) -> None:
        DynamicLayer.__init__(self)
        self.lazy_initialization(keys, values)
        self._held, self._width = (keys, values), width
        self.keys, self.values = (held[:, :, :width] for held in self._held)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the keys and values of new tokens, and give all."""
        begin, end = self._width, self._width + int(key_states.shape[2])
        keys, values = self._held
        if end > keys.shape[2]:
            more = end + _ROOM - int(keys.shape[2])
            keys, values = pad(keys, (0, 0, 0, more)), pad(values, (0, 0, 0, more))
        keys[:, :, begin:end], values[:, :, begin:end] = key_states, value_states
        self._held, self._width = (keys, values), end
        self.keys, self.values = shown = keys[:, :, :end], values[:, :, :end]
        return shown


def _joined(parts: Sequence[_Part], room: int, release: bool = False) -> Any:
    """A cache of the rows of all parts, which end in one column, with room for so many more.

    With `release` the caches of the parts are given up layer by layer.
    """
    cache = DynamicCache()
    widths = [len(range(part.cache.get_seq_length())[part.columns]) for part in parts]
    width = max(widths)
    # Once for all layers: a GPU is waited for whenever numbers are brought to it.
    places: dict[torch.device, list[torch.Tensor]] = {}
    for at in range(max(len(part.cache.layers) for part in parts)):
        layers = [part.cache.layers[at] for part in parts]
        if layers[0].keys is None:  # reads the keys of another layer
            cache.layers.append(DynamicLayer())
            continue
        device = layers[0].keys.device
        if device not in places:
            places[device] = [torch.tensor(part.rows, device=device) for part in parts]
        keys, values = (
            _side_by_side(
                [getattr(layer, name) for layer in layers], parts, places[device], widths, room
            )
            for name in ("keys", "values")
        )
        cache.layers.append(_Layer(keys, values, width))
        if release:
            for part in parts:
                part.cache.layers[at] = DynamicLayer()
    return cache


def _side_by_side(
    tensors: Sequence[torch.Tensor],
    parts: Sequence[_Part],
    places: Sequence[torch.Tensor],
    widths: Sequence[int],
    room: int,
) -> torch.Tensor:
    """Rows (B, H, S, D) of tensors of unlike lengths, aligned at their last columns; 0 elsewhere,
    and in as many columns of room behind them. ``places`` are the parts' rows, on the device."""
    _, heads, _, channels = tensors[0].shape
    width, rows = max(widths), sum(len(part.rows) for part in parts)
    joined = tensors[0].new_zeros((rows, heads, width + room, channels))
    row = 0
    for tensor, part, index, own in zip(tensors, parts, places, widths, strict=True):
        taken = tensor[:, :, part.columns].index_select(0, index)
        joined[row : row + len(index), :, width - own : width] = taken
        row += len(index)
    return joined


@once_a_model
def can_pool(lm: LanguageModel) -> bool:
    """Whether rows can enter and leave a batch of this model, tried on a few tokens.

    True for a model whose cache holds the keys and values of tokens and nothing else, and whose
    rows are continued as if each were alone: every token that the pool writes is the likeliest of
    one pass over the whole text. A state that runs along (Mamba, linear attention) can be neither
    padded nor cut.
    """
    model = inner_model(lm.model)
    if "past_key_values" not in parameters_of(model):
        return False
    layers = DynamicCache(config=model.config).layers
    if {type(layer).__name__ for layer in layers} - _PLAIN_LAYERS:
        return False
    if max(_PROBE) + _PROBE_TOKENS > lm.longest_shared:
        return False
    batch = probe_batch(model, lm.tokenizer_or_none, _PROBE)
    rows = zip(batch.input_ids.tolist(), batch.padding, strict=True)
    ids = [row[padding:] for row, padding in rows]
    gates = np.zeros(len(ids), dtype=np.intp)
    requests = Requests(ids, [_PROBE_TOKENS] * len(ids), None, gates, None, False)
    written: dict[int, list[int]] = {}
    # Two rows at a time.
    most = 2 * (max(_PROBE) + _PROBE_TOKENS)
    try:
        write_pooled(lm, requests, most, written.__setitem__)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        # The model looked for something else in its cache.
        return False
    whole = lm.collate([[*ids[row], *written[row]] for row in range(len(ids))])
    starts = answers_at([len(row) for row in ids])
    with evaluating(lm.model), torch.no_grad(), starts:
        logits = lm.forward(whole).logits.float()
    allowed = (lm.noise or Noise()).allowed(0.25 if lm.dtype.itemsize < 4 else 1e-2)
    for row, tokens in written.items():
        made = logits[row, -len(tokens) - 1 : -1]
        chosen = made.gather(1, torch.tensor(tokens, device=made.device)[:, None])[:, 0]
        if float((made.amax(dim=1) - chosen).max()) > allowed * float(made.std()):
            return False
    return True
