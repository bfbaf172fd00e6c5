"""What long work calls to say how far it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

#: Called with a title, how much is done, and of how much.
Progress = Callable[[str, int, int], None]
#: Of work that knows no title: called with how much is done, and of how much.
Steps = Callable[[int, int], None]
#: Called with the share, 0 to 1, of some work that is done.
Report = Callable[[float], None]


def further(progress: Progress | None, title: str, done: int, total: int) -> Report | None:
    """What work beyond `done` calls with its share that is done; None where nobody listens."""
    if progress is None:
        return None
    return lambda share: progress(title, done + round(share * (total - done)), total)


def steps_of(progress: Progress | None, title: str) -> Steps | None:
    """What a method that knows no title calls; None where nobody listens."""
    if progress is None:
        return None
    return lambda done, total: progress(title, done, total)


def by_size(title: str, items: Collection[T], size: Callable[[T], int]) -> Iterator[T]:
    """Iterate over items with a bar of `transformers` that counts their bytes, not the items."""
    from transformers.utils import logging

    sizes = [size(item) for item in items]  # before an item is used up
    total: Any = sum(sizes)
    with logging.tqdm(total=total, desc=title, unit="B", unit_scale=True, leave=False) as bar:
        for item, more in zip(items, sizes, strict=True):
            yield item
            bar.update(more)
