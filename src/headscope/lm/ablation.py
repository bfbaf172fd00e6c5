"""Mean ablation: where a token stands in its row, and heads' mean outputs at such places.

The first token, the rest of the prompt and the answer are told apart, since heads write something
else in each (many look at the first token where there is nothing to look at). The class of a token
follows from the attention mask of a pass, padding and tokens in a cache included, and from where
the answer of each row begins, which whoever makes the pass
says::

    with lm.gated(gate, "mean", means), answers_at([len(prompt) for prompt in prompts]):
        lm.model(**inputs)

`lm.generate` and `headscope.lm.losses.token_losses` say it themselves. `head_means` takes the means
over reference texts.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

#: The classes by number. Means of documents have the first two alone.
CLASSES = ("first token", "rest of the prompt", "answer")

_starts: ContextVar[tuple[int, ...] | None] = ContextVar("where answers begin", default=None)


@contextlib.contextmanager
def answers_at(starts: Sequence[int]) -> Iterator[None]:
    """Say for the passes inside where the answer of each row begins.

    Args:
        starts: for each row of the batch the number of tokens before its answer, those in a cache
            included and padding left out, at least 1; for a row without an answer its length.
    """
    before = _starts.set(tuple(starts))
    try:
        yield
    finally:
        _starts.reset(before)


class Positions:
    """The class of every token of a pass, for hooks inside of it."""

    def __init__(self, lm: LanguageModel) -> None:
        self._decoder = lm.decoder
        # An instance's own forward, as placement over devices sets it, names no parameters.
        names = list(inspect.signature(type(self._decoder).forward).parameters)[1:]
        self._places = {name: at for at, name in enumerate(names)}
        self._pass: tuple[torch.Tensor | None, Any, tuple[int, ...] | None] | None = None
        self._classes_of: dict[tuple[Any, ...], torch.Tensor] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at what each pass inside is given."""
        with self._decoder.register_forward_pre_hook(self._begin, with_kwargs=True):
            try:
                yield
            finally:
                self._pass = None
                self._classes_of.clear()

    def _begin(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        def given(name: str) -> Any:
            at = self._places.get(name, len(args))
            return args[at] if at < len(args) else kwargs.get(name)

        # Without padding a generation gives no mask; then positions, or the cache, tell the place.
        cache, places = given("past_key_values"), given("position_ids")
        if not isinstance(places, torch.Tensor) or places.dim() != 2:
            places = 0 if cache is None else int(cache.get_seq_length())
        self._pass = given("attention_mask"), 0 if cache is None else places, _starts.get()
        self._classes_of.clear()

    def classes(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """The classes (B, T) of the tokens of a tensor (B, T, …) of this pass, 0 to number - 1.

        With two classes, those of documents, answers are part of the rest. Padding has class 0.
        Raises `InputError` if it cannot be told which token of its row each is, or, with three
        classes, where answers begin.
        """
        key = (x.shape[:2], x.device, number)
        if key not in self._classes_of:
            self._classes_of[key] = self._compute(x, number)
        return self._classes_of[key]

    def _compute(self, x: torch.Tensor, number: int) -> torch.Tensor:
        if self._pass is None or x.dim() != 3:
            raise InputError(
                "Mean ablation needs passes of the whole decoder over rows of tokens, to know "
                "where each token stands; call the model itself, or use ablate='zero'."
            )
        (rows, width), (mask, places, starts) = x.shape[:2], self._pass
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[0] == rows:
            index = mask.to(x.device).long().cumsum(dim=1)[:, -width:] - 1
        elif mask is None and isinstance(places, torch.Tensor):
            index = places.to(x.device).expand(rows, width)
        elif mask is None:
            index = places + torch.arange(width, device=x.device).expand(rows, width)
        else:
            raise InputError(
                "Mean ablation cannot tell where tokens stand in this pass; give it an attention "
                "mask of shape (rows, tokens), tokens in the cache included."
            )
        classes = (index > 0).long()
        if number == len(CLASSES):
            if starts is None:
                raise InputError(
                    "The means tell prompts and answers apart, but this pass does not say where "
                    "answers begin; run it inside headscope.lm.ablation.answers_at(starts)."
                )
            if len(starts) != rows:
                raise InputError(
                    f"{len(starts)} beginnings of answers were given for {rows} rows; give one "
                    "each."
                )
            begin = torch.tensor(starts, device=x.device)[:, None]
            classes[(index >= begin) & (index > 0)] = 2
        return classes


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
    begins = [len(row) for row in rows] if starts is None else list(starts)
    kept = [at for at, row in enumerate(rows) if len(row)]
    classes = len(CLASSES) - (starts is None)
    positions = Positions(lm)
    shape = (classes, *lm.geometry.shape, max(site.head_width for site in lm.sites))
    # Layers may lie on different devices; the small sums are kept in one place, in 64 bits. Those
    # of a batch are apart until it is read, since memory may not suffice for all of it.
    total, sums = torch.zeros((2, *shape), dtype=torch.float64, device=lm.device)
    counted, tokens = np.zeros((2, classes), dtype=np.int64)
    real = torch.zeros(0, dtype=torch.bool)

    def adding(site: AttentionSite) -> Any:
        def add(_: nn.Module, args: tuple[Any, ...]) -> None:
            x = args[0]
            of_token = positions.classes(x, classes)
            for number in range(classes):
                chosen = (of_token == number) & real.to(x.device)
                summed = x[chosen].sum(dim=0, dtype=torch.float64).to(sums.device)
                own = summed.view(site.heads, site.head_width)
                sums[number, site.layer, : site.heads, : site.head_width] += own
                if site is lm.sites[0]:
                    tokens[number] += int(chosen.sum())

        return add

    def read(places: list[int]) -> None:
        nonlocal real
        sums.zero_()
        tokens.fill(0)
        some = [kept[place] for place in places]
        batch = lm.collate([rows[at] for at in some])
        real = batch.attention_mask.bool()
        with answers_at([begins[at] for at in some]):
            lm.forward(batch, logits=False)

    hooks = (site.projection.register_forward_pre_hook(adding(site)) for site in lm.sites)
    with hooked(hooks), evaluating(lm.model), torch.no_grad(), positions.watched():
        for _ in lm.in_batches([len(rows[at]) for at in kept], batch_tokens, read):
            total += sums
            counted += tokens
    if not counted.all():
        missing = CLASSES[int(np.flatnonzero(counted == 0)[0])]
        raise InputError(
            f"The reference texts for mean ablation hold no token of the class {missing!r}; give "
            "at least one text of two tokens, with an answer where answers are told apart."
        )
    means: npt.NDArray[np.float64] = total.cpu().numpy() / counted[:, None, None, None]
    return means.astype(np.float32)
