"""What stands in the place of what a gate removes.

Without a replacement a removed head writes zero. A `Replacement` is made from reference texts, and
adds (1 - g) times an output ``A V`` from there wherever a gate g stands, to each token by the class
of its position (see `headscope.lm.positions`)::

    mean = replacement_of("mean", lm, rows, starts)
    with lm.gated(heads.removed(), mean):
        lm.generate(prompts)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.batching import Batch
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating
from headscope.lm.positions import CLASSES, Positions, answers_at

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

#: Makes, of what enters a projection (B, T, H·D), what is added to the gated heads, (B, T, H, D).
Adding = Callable[[torch.Tensor], torch.Tensor]


class Replacement(Protocol):
    """What stands in the place of what a gate removes; None, wherever one is taken: zero."""

    def check(self, lm: LanguageModel) -> None:
        """Raises `InputError` if it was made from another model."""

    def adding(self, site: AttentionSite, gate: torch.Tensor, positions: Positions) -> Adding:
        """What a gate (H,), or (B, H) with one a row, adds in one layer."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hexadecimal) of all that it adds follows from beside gate and rows."""
        ...


@dataclass(frozen=True, eq=False)
class Mean:
    """Each head's mean output by class of position.

    Attributes:
        means: shape (C, L, W, D), from `head_means`. With C = 3 passes have to say where answers
            begin; with C = 2, the means of documents, an answer is part of the rest.
    """

    means: npt.NDArray[np.floating[Any]]

    def check(self, lm: LanguageModel) -> None:
        """Raises `InputError` if the means are not of this model's shape."""
        shape = (*lm.geometry.shape, max(site.head_width for site in lm.sites))
        given = tuple(np.shape(self.means))
        if given[1:] != shape or given[0] not in (len(CLASSES) - 1, len(CLASSES)):
            raise InputError(
                f"The means have shape {given}, but this model needs {(len(CLASSES), *shape)} "
                f"(classes of position, layers, heads, channels), or {len(CLASSES) - 1} classes of "
                "documents; compute them with this model."
            )

    def adding(self, site: AttentionSite, gate: torch.Tensor, positions: Positions) -> Adding:
        """(1 - g) × the mean of each token's class."""
        own = self.means[:, site.layer, : site.heads, : site.head_width]
        # Kept in 64 bits until it is cast beside the activations it is added to.
        means = torch.from_numpy(np.array(own, dtype=np.float64))
        ready: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

        def offset(x: torch.Tensor) -> torch.Tensor:
            """What is added to each class, (C, H, D), or (B, C, H, D) with a gate a row."""
            key = (x.device, x.dtype)
            if key in ready:
                return ready[key]
            kept = gate.to(x.device, torch.float64)[..., None, :, None]
            made = ((1 - kept) * means.to(x.device)).to(x.dtype)
            if not gate.requires_grad:
                ready[key] = made
            return made

        def add(x: torch.Tensor) -> torch.Tensor:
            classes = positions.classes(x, len(means))
            if gate.dim() == 2:
                return offset(x)[torch.arange(len(x), device=x.device)[:, None], classes]
            return offset(x)[classes]

        return add

    @cached_property
    def digest(self) -> str:
        """Of the means."""
        return hashlib.sha256(np.ascontiguousarray(self.means).tobytes()).hexdigest()


#: Outputs to draw from take so much memory at most, on the CPU and where each layer lies.
_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class Resample:
    """Each head's output at a token of the reference texts, of the same class of position.

    All heads write what they wrote at one and the same token, so that what they write together does
    occur. It is drawn as `headscope.lm.positions.Positions.drawn` says.

    Attributes:
        outputs: by layer the outputs ``A V`` at the tokens to draw from, (N, H, D), by class.
        counts: how many tokens each class has.
    """

    outputs: dict[int, torch.Tensor]
    counts: tuple[int, ...]
    seed: int

    def check(self, lm: LanguageModel) -> None:
        """Raises `InputError` if the outputs are not of this model's shape."""
        shapes = {site.layer: (site.heads, site.head_width) for site in lm.sites}
        if {layer: (*output.shape[1:],) for layer, output in self.outputs.items()} != shapes:
            raise InputError("The outputs to draw from are of another model; use this one's.")

    def adding(self, site: AttentionSite, gate: torch.Tensor, positions: Positions) -> Adding:
        """(1 - g) × the output that is drawn for each token."""

        def add(x: torch.Tensor) -> torch.Tensor:
            # They stay where the layer lies.
            own = self.outputs[site.layer] = self.outputs[site.layer].to(x.device)
            drawn = own[positions.drawn(x, self.counts, self.seed)].to(x.dtype)
            removed = 1 - gate.to(x.device, x.dtype)[..., None]
            return drawn * (removed[:, None] if gate.dim() == 2 else removed)

        return add

    @cached_property
    def digest(self) -> str:
        """Of the outputs to draw from, and of how they are drawn."""
        total = hashlib.sha256(f"{self.counts} {self.seed}".encode())
        for _, outputs in sorted(self.outputs.items()):
            total.update(outputs.cpu().float().numpy().tobytes())
        return total.hexdigest()


def replacement_of(
    kind: str,
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int] | None = None,
    batch_tokens: int = 4096,
    seed: int = 0,
) -> Replacement | None:
    """What `kind` puts in the place of removed heads, made from the rows of reference texts.

    "zero" is None. See `head_means` for `starts`; `seed` is that of what is drawn at random. Raises
    `InputError` if there is no such kind, or a class has no token.
    """
    if kind not in MAKERS:
        raise InputError(f"ablate is {kind!r}; it must be {' or '.join(map(repr, MAKERS))}.")
    return MAKERS[kind](lm, rows, starts, batch_tokens, seed)


def head_means(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int] | None = None,
    batch_tokens: int = 4096,
) -> npt.NDArray[np.float32]:
    """Mean of every head's output ``A V`` (before W_O) by class of position, float32 (C, L, W, D).

    Each token counts once, padding does not. D is the widest head; zero where there is no head or
    channel. `starts` say where the answer of each row begins, as for `answers_at`; without them the
    rows are documents, and C is 2 instead of 3 (see `CLASSES`). Empty rows are left out. Raises
    `InputError` if a class has no token.
    """
    classes = len(CLASSES) - (starts is None)
    positions = Positions(lm)
    shape = (classes, *lm.geometry.shape, max(site.head_width for site in lm.sites))
    # Layers may lie on different devices; the small sums are kept in one place, in 64 bits. Those
    # of a batch are apart until it is read, since memory may not suffice for all of it.
    total, sums = torch.zeros((2, *shape), dtype=torch.float64, device=lm.device)
    counted, tokens = np.zeros((2, classes), dtype=np.int64)
    real = torch.zeros(0, dtype=torch.bool)

    def look(site: AttentionSite, x: torch.Tensor) -> None:
        of_token = positions.classes(x, classes)
        for number in range(classes):
            chosen = (of_token == number) & real.to(x.device)
            summed = x[chosen].sum(dim=0, dtype=torch.float64).to(sums.device)
            own = summed.view(site.heads, site.head_width)
            sums[number, site.layer, : site.heads, : site.head_width] += own
            if site is lm.sites[0]:
                tokens[number] += int(chosen.sum())

    def begin(_: list[int], batch: Batch) -> None:
        nonlocal real
        sums.zero_()
        tokens.fill(0)
        real = batch.attention_mask.bool()

    with positions.watched():
        for _ in _passes(lm, rows, starts, batch_tokens, begin, look):
            total += sums
            counted += tokens
    _check_classes(counted)
    means: npt.NDArray[np.float64] = total.cpu().numpy() / counted[:, None, None, None]
    return means.astype(np.float32)


def _resample(lm: LanguageModel, rows: Any, starts: Any, batch_tokens: int, seed: int) -> Resample:
    """Outputs at as many tokens of each class as `_BYTES` hold, drawn by the seed."""
    lengths, classes = [len(row) for row in rows], len(CLASSES) - (starts is None)
    place = np.array([at for length in lengths for at in range(length)], dtype=np.intp)
    answer = place >= np.repeat(lengths if starts is None else starts, lengths)
    size = sum(site.heads * site.head_width for site in lm.sites) * lm.dtype.itemsize
    most, chance = max(1, _BYTES // (size * classes)), np.random.default_rng(seed)
    groups = [np.flatnonzero((place > 0) * (1 + answer) == number) for number in range(classes)]
    chosen = [chance.permutation(group)[:most] for group in groups]
    counts = np.array([len(group) for group in chosen])
    _check_classes(counts)
    # Where the output at each token is kept, by row; -1: nowhere.
    kept = np.full(len(place), -1)
    kept[np.concatenate(chosen)] = np.arange(counts.sum())
    by_row = np.split(kept, np.cumsum(lengths)[:-1])
    outputs: dict[int, torch.Tensor] = {}
    wanted = torch.zeros(0, dtype=torch.long)

    def begin(some: list[int], batch: Batch) -> None:
        nonlocal wanted
        wanted = torch.full(batch.input_ids.shape, -1)
        for at, (row, padding) in enumerate(zip(some, batch.padding, strict=True)):
            wanted[at, padding:] = torch.from_numpy(by_row[row])

    def look(site: AttentionSite, x: torch.Tensor) -> None:
        own = x[(wanted >= 0).to(x.device)].cpu().view(-1, site.heads, site.head_width)
        outputs.setdefault(site.layer, own.new_empty(counts.sum(), *own.shape[1:]))
        outputs[site.layer][wanted[wanted >= 0]] = own

    for _ in _passes(lm, rows, starts, batch_tokens, begin, look):
        pass
    return Resample(outputs, tuple(counts.tolist()), seed)


def _passes(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int] | None,
    batch_tokens: int,
    begin: Callable[[list[int], Batch], None],
    look: Callable[[AttentionSite, torch.Tensor], None],
) -> Iterator[None]:
    """Read the rows batch by batch: `begin` gets the numbers of a batch's rows and the batch,
    `look` what enters each projection, (B, T, H·D).

    A batch for which memory does not suffice begins again as its halves.
    """
    begins = [len(row) for row in rows] if starts is None else list(starts)
    kept = [at for at, row in enumerate(rows) if len(row)]

    def read(places: list[int]) -> None:
        some = [kept[place] for place in places]
        batch = lm.collate([rows[at] for at in some])
        begin(some, batch)
        with answers_at([begins[at] for at in some]):
            lm.forward(batch, logits=False)

    def looking(site: AttentionSite) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
            look(site, args[0])

        return hook

    hooks = (site.projection.register_forward_pre_hook(looking(site)) for site in lm.sites)
    with hooked(lm.model, hooks), evaluating(lm.model), torch.no_grad():
        for _ in lm.in_batches([len(rows[at]) for at in kept], batch_tokens, read):
            yield


def _check_classes(tokens: npt.NDArray[np.int64]) -> None:
    if not tokens.all():
        missing = CLASSES[int(np.flatnonzero(tokens == 0)[0])]
        raise InputError(
            f"The reference texts hold no token of the class {missing!r}; give "
            "at least one text of two tokens, with an answer where answers are told apart."
        )


#: What makes each of `headscope.ablations.KINDS`, as `replacement_of` is called.
MAKERS: dict[str, Callable[..., Replacement | None]] = {
    "zero": lambda *_: None,
    "mean": lambda lm, *texts_and_size: Mean(head_means(lm, *texts_and_size[:3])),
    "resample": _resample,
}
