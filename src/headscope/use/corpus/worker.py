"""What a process that rates holds: its model, loaded once, and how far its chunk is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["ModelLoader", "holding", "inside_chunk", "model_of", "told"]


class ModelLoader(Protocol):
    """What loads a model; can be pickled, compared and hashed."""

    def load(self) -> LanguageModel:
        """The model."""


_held: dict[ModelLoader, LanguageModel] = {}
_inside = 0


def model_of(loader: ModelLoader) -> LanguageModel:
    """The model of this process; loaded when it is first asked for."""
    if loader not in _held:
        _held.clear()
        _held[loader] = loader.load()
    return _held[loader]


@contextmanager
def holding(loader: ModelLoader, lm: LanguageModel) -> Iterator[None]:
    """Let work in this process take a model that is loaded already, for as long as the block."""
    _held.clear()
    _held[loader] = lm
    try:
        yield
    finally:
        _held.clear()


@contextmanager
def told() -> Iterator[Callable[[int, int], None]]:
    """A progress for the texts of one chunk; `inside_chunk` says how far it is."""

    def update(done: int, total: int) -> None:
        global _inside
        _inside = done

    try:
        yield update
    finally:
        update(0, 0)


def inside_chunk() -> int:
    """Documents of the chunk that this process is at which the model has done with."""
    return _inside
