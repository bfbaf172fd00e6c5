"""Where the tokens of a pass stand in their rows.

The first token, the rest of the prompt and the answer are told apart, since heads write something
else in each (many look at the first token where there is nothing to look at). The class of a token
follows from the attention mask of a pass, padding and tokens in a cache included, and from where
the answer of each row begins, which whoever makes the pass
says::

    with lm.gated(gate, replacement), answers_at([len(prompt) for prompt in prompts]):
        lm.model(**inputs)

`lm.generate` and `headscope.lm.losses.token_losses` say it themselves.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.hooks import hooked

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: The classes by number. Documents have the first two alone.
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
        self._model, self._decoder = lm.model, lm.decoder
        self._outer: dict[str, Any] = {}
        self._ids: torch.Tensor | None = None
        self._pass: tuple[torch.Tensor | None, Any, tuple[int, ...] | None] | None = None
        self._known: dict[tuple[Any, ...], torch.Tensor] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at what each pass inside is given."""
        looks = ((self._model, self._look), (self._decoder, self._begin))
        hooks = (part.register_forward_pre_hook(look, with_kwargs=True) for part, look in looks)
        with hooked(self._model, hooks):
            try:
                yield
            finally:
                self._pass, self._outer = None, {}
                self._known.clear()

    def _look(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._outer = _named(model, args, kwargs)

    def _begin(self, decoder: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = _named(decoder, args, kwargs)
        # A model of images and text gives its decoder masks that are made already.
        if isinstance(mask := given.get("attention_mask"), dict):
            mask = self._outer.get("attention_mask")
        ids = given.get("input_ids")
        self._ids = self._outer.get("input_ids") if ids is None else ids
        # Without padding a generation gives no mask; then positions, or the cache, tell the place.
        cache, places = given.get("past_key_values"), given.get("position_ids")
        if not isinstance(places, torch.Tensor) or places.dim() != 2:
            places = 0 if cache is None else int(cache.get_seq_length())
        self._pass = mask, 0 if cache is None else places, _starts.get()
        self._outer = {}
        self._known.clear()

    def classes(self, x: torch.Tensor, number: int) -> torch.Tensor:
        """The classes (B, T) of the tokens of a tensor (B, T, …) of this pass, 0 to number - 1.

        With two classes, those of documents, answers are part of the rest. Padding has class 0.
        Raises `InputError` if it cannot be told which token of its row each is, or, with three
        classes, where answers begin.
        """
        key = (x.shape[:2], x.device, number)
        if key not in self._known:
            self._known[key] = self._compute(self.index(x), number)
        return self._known[key]

    def index(self, x: torch.Tensor) -> torch.Tensor:
        """Which token of its row each token of a tensor (B, T, …) of this pass is, (B, T).

        Those in a cache count, padding does not: it has -1 on the left of a row. Raises
        `InputError` if this cannot be told.
        """
        if self._pass is None or x.dim() != 3:
            raise InputError(
                "What replaces heads depends on where each token stands, so passes have to be of "
                "the whole decoder over rows of tokens; call the model itself, or replace by zero."
            )
        (rows, width), (mask, places, _) = x.shape[:2], self._pass
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[0] == rows:
            return mask.to(x.device).long().cumsum(dim=1)[:, -width:] - 1
        if mask is None and isinstance(places, torch.Tensor):
            return places.to(x.device).expand(rows, width)
        if mask is None:
            return torch.arange(places, places + width, device=x.device).expand(rows, width)
        raise InputError(
            "It cannot be told where tokens stand in this pass, on which it depends what replaces "
            "heads; give it an attention mask of shape (rows, tokens), those in the cache included."
        )

    def drawn(self, x: torch.Tensor, counts: tuple[int, ...], seed: int) -> torch.Tensor:
        """A random place (B, T) among so many of each class, one class behind the other.

        It follows from the seed, the token's id and its place in its row alone, so that it is the
        same in any batch, with a cache and without, and in all rows that begin alike.
        """
        key = (x.shape[:2], x.device, counts, seed)
        if key not in self._known:
            index, of_class = self.index(x), torch.tensor(counts, device=x.device)
            if self._ids is None or self._ids.shape != index.shape:
                raise InputError("Outputs are drawn by token ids; give passes those.")
            mixed = _mixed(self._ids.to(x.device) + _mixed(index + _mixed(torch.tensor(seed))))
            classes = self.classes(x, len(counts))
            self._known[key] = (of_class.cumsum(0) - of_class)[classes] + mixed % of_class[classes]
        return self._known[key]

    def _compute(self, index: torch.Tensor, number: int) -> torch.Tensor:
        classes = (index > 0).long()
        if number == len(CLASSES):
            starts = None if self._pass is None else self._pass[2]
            if starts is None:
                raise InputError(
                    "The replacement tells prompts and answers apart, but this pass does not say "
                    "where answers begin; run it inside headscope.lm.answers_at(starts)."
                )
            if len(starts) != len(index):
                raise InputError(
                    f"{len(starts)} beginnings of answers were given for {len(index)} rows; give "
                    "one each."
                )
            begin = torch.tensor(starts, device=index.device)[:, None]
            classes[(index >= begin) & (index > 0)] = 2
        return classes


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a module is called with, by the names of its parameters."""
    # An instance's own forward, as placement over devices sets it, names no parameters.
    return dict(zip(_names(type(module).forward), args, strict=False)) | kwargs


@functools.cache
def _names(forward: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """Numbers of 64 bits, scattered (splitmix64: logical shifts, products that wrap)."""
    x = x + -7046029254386353131
    x = (x ^ (x >> 30 & (1 << 34) - 1)) * -4658895280553007687
    x = (x ^ (x >> 27 & (1 << 37) - 1)) * -7723592293110705685
    return x ^ (x >> 31 & (1 << 33) - 1)
