"""A pool of rows that are continued together: rows that end leave it, waiting ones enter.

All rows of a pool end in the same column, so padding stands on the left alone, whatever a row was
padded with before is trimmed when rows leave, and the masks, positions and windows of a model mean
what they mean in any batch padded on the left. Keys and values of all tokens are kept, also by
layers with a window, which its mask applies.

Where prompts begin alike (the examples of a few-shot prompt, a system turn), that beginning is read
once under each gate, and every row continues from its keys and values.

By default a step's cache grows by a column. With ``decode`` "static" it reads and writes buffers
of one shape at one place, and with "graph" a GPU repeats it from a record, without Python.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import prod
from operator import eq
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer

from headscope.errors import caution, clause, out_of_memory
from headscope.lm.batching import MOST_MASKED, UNBOUNDED, Batch, memory_errors, release_memory
from headscope.lm.generation.stopping import NewlineStop, RowStop
from headscope.lm.hooks import once_a_model
from headscope.lm.inputs import evaluating, parameters_of, probe_batch
from headscope.lm.owners import inner_model
from headscope.lm.positions import answers_at
from headscope.lm.prefix import Prefix, can_share, record_prefix, replay_prefix
from headscope.lm.selfcheck import Noise

if TYPE_CHECKING:
    from headscope.lm.generation.settings import Followed
    from headscope.lm.generation.texts import Observer
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement

#: How a step is made; see the head of this file.
Decode = Literal["plain", "static", "graph"]

#: Rows leave a pool, and others enter, when at least this share of them has ended.
_LEAVE = 0.15
#: The share of its limit that a text is expected to take, until rows had to begin again; and the
#: steps for which rows that stay have room.
_EXPECTED, _STEPS = 0.5, 8
#: Columns that a cache grows by.
_ROOM = 32
#: Rows and columns that buffers of one shape are multiples of, and steps before one is recorded.
_ROWS, _COLUMNS, _WARM = 8, 64, 2
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
        decode: how steps are made; what is not "plain" needs a model for which `can_pool` says so.
        followed: what generation settings make of the logits of these prompts; None: nothing.
    """

    ids: Sequence[Sequence[int]]
    limits: Sequence[int]
    gates: torch.Tensor | None
    gate_of: NDArray[np.intp]
    replacement: Replacement | None
    stop_at_newline: NewlineStop
    decode: Decode = "plain"
    followed: Followed | None = None

    def likeliest(
        self, lm: LanguageModel, batch: Batch, rows: Sequence[int], new: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """The likeliest next token of these prompts, which have got the tokens ``new``, (B, 1)."""
        logits: torch.Tensor = lm.forward(batch, logits=False).logits[:, -1].float()
        if self.followed is not None:
            logits = self.followed(rows, new, logits)
        return logits.argmax(dim=-1, keepdim=True).to(lm.device)

    def applied(
        self, lm: LanguageModel, rows: Sequence[int], buffer: torch.Tensor | None = None
    ) -> contextlib.ExitStack:
        """The model with a batch of these prompts under their gates, which ``buffer`` holds if it
        is given: what is written there later counts, in all layers that any gate changes."""
        stack = contextlib.ExitStack()
        stack.enter_context(answers_at([len(self.ids[row]) for row in rows]))
        if self.gates is not None:
            own = self.gates[torch.from_numpy(self.gate_of[list(rows)])]
            if buffer is None:
                stack.enter_context(lm.gated(own, self.replacement))
            else:
                buffer.copy_((self.gates == 1).all(dim=0))
                stack.enter_context(lm.gated(buffer, self.replacement))
                buffer.copy_(own)
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

    No more than ``batch_tokens`` (rows × tokens of the longest) are in the pool, but for a single
    row: rows enter as if texts took half of their limits, and where they take more, the last ones
    leave and begin again, and room is kept for whole limits from there on. Where memory does not
    suffice, the rows of the pool begin again in half of it. Needs a model for which `can_pool` is
    true, and prompts that stay within its `longest_shared`.
    """
    prefix = SharedPrefix(lm, requests)
    waiting = deque(_order(requests, prefix.tokens, batch_tokens))
    pool = _Pool(lm, requests, prefix, observe)
    with evaluating(lm.model), torch.no_grad():
        while True:
            entering: list[int] = []
            stay, begin = pool.give_way(batch_tokens)
            waiting.extendleft(reversed(begin))
            if not stay and not waiting:
                return
            sizes = [pool.size(pool.rows[at]) for at in stay]
            while waiting:
                longest = max([*sizes, pool.size(waiting[0])])
                if sizes and (len(sizes) + 1) * longest > batch_tokens:
                    break
                entering.append(waiting.popleft())
                sizes.append(pool.size(entering[-1]))
            rows = [pool.rows[at] for at in stay] + entering
            try:
                with memory_errors():
                    pool.change(stay, entering)
                    pool.run(_LEAVE, batch_tokens)
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
        self._stop = RowStop(lm.stop_table, requests.stop_at_newline, [], lm.device)
        #: The last token of each row, which no pass has read, (B, 1), and how many it has read.
        self._tokens = torch.zeros((0, 1), dtype=torch.long, device=lm.device)
        self._lengths: list[int] = []
        self._cache: Any = None
        self._buffers: _Buffers | None = None
        #: The share of its limit that a row is likely to need.
        self._expected = _EXPECTED if requests.decode == "plain" else 1.0
        #: New tokens of each row; those of the steps that are being made, (B, 1) each.
        self._written: dict[int, list[int]] = {}
        self._made: list[torch.Tensor] = []

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
                tokens.append(requests.likeliest(self._lm, batch, bucket, [[]] * len(bucket)))
            own = [len(requests.ids[row]) for row in bucket]
            parts.append(_Part(batch.cache, [*range(len(bucket))], slice(-max(own), None)))
            rows += bucket
            lengths += own
        self._cache = _joined(parts, _ROOM, release=True)
        self.rows, self._lengths, self._tokens = rows, lengths, torch.cat(tokens)
        stop = self._stop.of([requests.limits[row] for row in rows[len(stay) :]])
        new = self._tokens[len(stay) :]
        self.ended = torch.cat([self.ended[places], stop(new)])
        self._stop.change(places, stop)
        for row, token in zip(rows[len(stay) :], new[:, 0].tolist(), strict=True):
            self._written[row] = [token]

    def size(self, row: int) -> int:
        """Columns that a row is expected to need."""
        least = len(self._written.get(row, ())) + 1
        new = max(least, math.ceil(self._expected * self._requests.limits[row]))
        return len(self._requests.ids[row]) + new

    def give_way(self, most: int) -> tuple[list[int], list[int]]:
        """The places of rows that have not ended and fit in so many tokens for some steps, and the
        other rows that have not ended, the last that entered, which are to begin again."""
        stay = [at for at, ended in enumerate(self.ended.tolist()) if not ended]
        soon = [
            min(length + _STEPS, self._requests.size(row))
            for length, row in zip(self._lengths, self.rows, strict=True)
        ]
        begin: list[int] = []
        while len(stay) > 1 and len(stay) * max(soon[at] for at in stay) > most:
            begin.insert(0, self.rows[stay.pop()])
            del self._written[begin[0]]
            self._expected = 1.0  # texts are longer than they were taken to be
        return stay, begin

    def run(self, leave: float, most: int) -> None:
        """Continue the rows until this share of them has ended, or they no longer fit in so many
        tokens."""
        if self._enough(leave):
            return
        self._made = made = list[torch.Tensor]()
        width = max(self._lengths)
        left = (self._requests.limits[row] - len(self._written[row]) for row in self.rows)
        longest = width + max(left)
        plain = self._requests.decode == "plain"
        way = self._growing(width, longest) if plain else self._still(width, longest)
        with way as step:
            columns = most // len(self.rows) if len(self.rows) > 1 else longest
            while not self._enough(leave) and width + len(made) < columns:
                self._tokens = step()
                made.append(self._tokens)
                self.ended |= self._stop(self._tokens)
        self._lengths = [length + len(made) for length in self._lengths]
        if self._buffers is not None:
            self._cache = self._buffers.taken(len(self.rows), max(self._lengths))
        for row, tokens in zip(self.rows, torch.cat(made, dim=1).tolist(), strict=True):
            self._written[row] += tokens

    @contextlib.contextmanager
    def _growing(self, width: int, longest: int) -> Iterator[Callable[[], torch.Tensor]]:
        """What makes the next tokens (B, 1) of all rows, again and again."""
        lengths = torch.tensor(self._lengths, device=self._tokens.device)[:, None]
        # Columns that are yet to come belong to every row.
        columns = torch.arange(longest, device=self._tokens.device)
        mask = (columns >= width - lengths).long()
        steps = itertools.count()

        def batch(step: int = 0) -> Batch:
            end = width + step + 1
            return Batch(self._tokens, mask[:, :end], lengths + step, self._cache)

        watching = self._watching(self.rows, batch(), False)
        with self._requests.applied(self._lm, self.rows), watching:
            yield lambda: self._requests.likeliest(
                self._lm, batch(next(steps)), self.rows, self._so_far()
            )

    def _so_far(self) -> list[list[int]]:
        """The new tokens of each row, where somebody asks for them."""
        if self._requests.followed is None:
            return []
        before = [self._written[row] for row in self.rows]
        made = torch.cat([self._tokens[:, :0], *self._made], dim=1).tolist()
        return [[*first, *then] for first, then in zip(before, made, strict=True)]

    @contextlib.contextmanager
    def _still(self, width: int, longest: int) -> Iterator[Callable[[], torch.Tensor]]:
        """What `_growing` gives, from buffers whose shape stays while it fits."""
        rows = -(-len(self.rows) // _ROWS) * _ROWS
        columns = -(-longest // _COLUMNS) * _COLUMNS
        held = self._buffers.shape if self._buffers else (0, 0)
        fits = rows <= held[0] and columns <= held[1] and 2 * rows * columns >= prod(held)
        if not self._buffers or not fits:
            self._buffers = None  # given up before others are made
            self._buffers = _Buffers(self._lm, self._requests, self._cache, rows, columns)
        self._buffers.begin(self.rows, self._tokens, self._lengths, self._cache)
        with self._buffers.steps() as step:
            yield step

    def finished(self) -> Iterator[tuple[int, list[int]]]:
        """The prompts that have ended since, with their new tokens."""
        for row, ended in zip(self.rows, self.ended.tolist(), strict=True):
            if ended:
                yield row, self._written.pop(row)[: self._requests.limits[row]]

    def _enough(self, leave: float) -> bool:
        return float(self.ended.float().mean()) >= leave

    def _watching(
        self, rows: list[int], batch: Batch, fresh: bool
    ) -> contextlib.AbstractContextManager[Any]:
        return self._observe(rows, batch, fresh) if self._observe else contextlib.nullcontext()


def _cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """The kernels that a step gives to a GPU, to be repeated without the Python that gave them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


#: What records a step on a kind of device.
RECORDERS = {"cuda": _cuda_graph}


class _Buffers:
    """All that the steps of a pool read and write, in one shape and place.

    A step asks the device for nothing, so it can be recorded. Rows beyond those of the pool begin
    empty, and nobody reads what they get.

    Attributes:
        shape: how many rows and columns.
    """

    def __init__(
        self, lm: LanguageModel, requests: Requests, cache: Any, rows: int, columns: int
    ) -> None:
        self._lm, self._requests, self.shape = lm, requests, (rows, columns)
        #: The mask, the last token of each row, its position, and the column that it is read into.
        self._mask = torch.zeros(self.shape, dtype=torch.long, device=lm.device)
        self._tokens = self._mask.new_zeros((rows, 1))
        self._places = torch.zeros_like(self._tokens)
        self._column = self._mask.new_zeros(1)
        self._gates: torch.Tensor | None = None
        if requests.gates is not None:
            shape = (rows, *lm.geometry.shape)
            self._gates = torch.ones(shape, dtype=lm.dtype, device=lm.device)

        def held(part: torch.Tensor) -> torch.Tensor:
            return part.new_zeros((rows, part.shape[1], columns, part.shape[3]))

        self._cache = _mapped(
            cache, lambda keys, values: _FixedLayer(held(keys), held(values), self._column)
        )
        self._rows: list[int] = []
        self._count = 0
        recorded = requests.decode == "graph" and requests.replacement is None
        self._record = RECORDERS.get(lm.device.type) if recorded else None
        self._repeat: Callable[[], None] | None = None

    def begin(
        self, rows: Sequence[int], tokens: torch.Tensor, lengths: Sequence[int], cache: Any
    ) -> None:
        """Take over the rows of a pool; its cache is given up layer by layer."""
        self._count, empty = len(rows), self.shape[0] - len(rows)
        self._rows = [*rows, *[rows[0]] * empty]
        read = torch.tensor([*lengths, *[0] * empty], device=self._mask.device)[:, None]
        columns, width = torch.arange(self.shape[1], device=read.device), max(lengths)
        self._mask.copy_((columns >= width - read) & (columns < width))
        self._places.copy_(read)
        self._column.fill_(width)
        self._tokens[: len(rows)] = tokens
        for at, layer in enumerate(self._cache.layers):
            if layer.keys is not None:
                layer.keys[: len(rows), :, :width] = cache.layers[at].keys
                layer.values[: len(rows), :, :width] = cache.layers[at].values
                cache.layers[at] = DynamicLayer()

    @contextlib.contextmanager
    def steps(self) -> Iterator[Callable[[], torch.Tensor]]:
        """What makes the next tokens (B, 1) of the pool's rows, again and again."""
        steps = itertools.count()
        with self._applied() as applied:

            def step() -> torch.Tensor:
                if self._record and not self._repeat and next(steps) == _WARM:
                    # What hooks keep from earlier steps is made anew in the one that is recorded.
                    applied.close()
                    applied.enter_context(self._applied())
                    self._repeat = self._recorded(self._record)
                (self._repeat or self._step)()
                return self._tokens[: self._count].clone()

            yield step

    def _recorded(self, record: Callable[..., Callable[[], None]]) -> Callable[[], None] | None:
        try:
            return record(self._step)
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            self._record = None
            why = f"{self._lm.name} decodes without a recorded step ({clause(error)})"
            caution(why)
            return None

    def taken(self, rows: int, width: int) -> Any:
        """A cache of the first rows and columns, which still lie here."""
        return _mapped(self._cache, lambda keys, values: _Layer(keys[:rows], values[:rows], width))

    def _applied(self) -> contextlib.ExitStack:
        return self._requests.applied(self._lm, self._rows, self._gates)

    def _step(self) -> None:
        self._mask.index_fill_(1, self._column, 1)
        batch = Batch(self._tokens, self._mask, self._places, self._cache)
        self._tokens.copy_(self._requests.likeliest(self._lm, batch, (), ()))
        self._places.add_(1)
        self._column.add_(1)


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
        self._caches = {gate: kept for gate, kept in self._caches.items() if gate in needed}

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


class _FixedLayer(_Layer):
    """Keys and values of one shape and place; a tensor holds the column that comes next."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, column: torch.Tensor) -> None:
        _Layer.__init__(self, keys, values, keys.shape[2])
        self._column = column

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the key and value of a new token, and give those of all columns."""
        for held, new in zip(self._held, (key_states, value_states), strict=True):
            held.index_copy_(2, self._column, new)
        return self._held

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """All columns, from the first."""
        return self._width, 0

    def get_seq_length(self) -> Any:
        """The column that comes next, as a tensor: to read it a GPU would be waited for."""
        return self._column[0]


def _mapped(cache: Any, make: Callable[[torch.Tensor, torch.Tensor], DynamicLayer]) -> Any:
    """A cache of layers made of the keys and values of those of another."""
    made = DynamicCache()
    for layer in cache.layers:  # one without keys reads those of another
        made.layers.append(DynamicLayer() if layer.keys is None else make(layer.keys, layer.values))
    return made


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
    for tensor, part, index, tensor_width in zip(tensors, parts, places, widths, strict=True):
        taken = tensor[:, :, part.columns].index_select(0, index)
        joined[row : row + len(index), :, width - tensor_width : width] = taken
        row += len(index)
    return joined


@once_a_model
def can_pool(lm: LanguageModel, decode: Decode = "plain") -> bool:
    """Whether rows can enter and leave a batch of this model, tried on a few tokens.

    True for a model whose cache holds the keys and values of tokens and nothing else, and whose
    rows are continued as if each were alone: every token that the pool writes is the likeliest of
    one pass over the whole text. A state that runs along (Mamba, linear attention) can be neither
    padded nor cut. With another `decode` than "plain" the tokens are those that buffers of one
    shape give, which have to lie on one device.
    """
    model = inner_model(lm.model)
    if "past_key_values" not in parameters_of(model):
        return False
    layers = DynamicCache(config=model.config).layers
    if {type(layer).__name__ for layer in layers} - _PLAIN_LAYERS:
        return False
    if max(_PROBE) + _PROBE_TOKENS > lm.longest_shared:
        return False
    if decode != "plain" and (
        lm.longest_shared < UNBOUNDED
        or {parameter.device for parameter in model.parameters()} != {lm.device}
    ):
        return False
    batch = probe_batch(model, lm.tokenizer_or_none, _PROBE)
    rows = zip(batch.input_ids.tolist(), batch.padding, strict=True)
    ids = [row[padding:] for row, padding in rows]
    gates = np.zeros(len(ids), dtype=np.intp)
    requests = Requests(ids, [_PROBE_TOKENS] * len(ids), None, gates, None, False, decode)
    written: dict[int, list[int]] = {}
    # Two rows at a time.
    most = 2 * (max(_PROBE) + _PROBE_TOKENS)
    try:
        write_pooled(lm, requests, most, written.__setitem__)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, RuntimeError) and (decode == "plain" or out_of_memory(error)):
            raise
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
