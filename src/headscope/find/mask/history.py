"""What happened to the weights on the way: which heads wavered (Heads Up!, Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headscope.heads import Geometry, Head
from headscope.results.mask import Fate


@dataclass(frozen=True)
class Course:
    """One head's way through the training.

    Attributes:
        head: the head.
        selected: whether it is in the mask at the end.
        fate: see `Fate`.
        changes: the steps at which it entered or left the mask, stretches that were too short left
            out.
        share: share of the steps at which it was selected.
    """

    head: Head
    selected: bool
    fate: Fate
    changes: tuple[int, ...]
    share: float


@dataclass(frozen=True, eq=False)
class History:
    """Weights at some steps of a training.

    Attributes:
        steps: int64 (S,), how many steps had been done; ascending, from 0 to the last.
        weights: float32 (S, L, W), the weights then; a head is selected where its weight is at
            least 0.
        feed_forward: float32 (S, L), those of feed-forward gates, or None.
    """

    steps: NDArray[np.int64]
    weights: NDArray[np.float32]
    feed_forward: NDArray[np.float32] | None = None

    def selected_counts(self, geometry: Geometry) -> NDArray[np.int64]:
        """int64 (S,): how many heads are selected at each kept step."""
        counts: NDArray[np.int64] = (self.weights >= 0)[:, geometry.mask()].sum(axis=1)
        return counts

    def courses(self, geometry: Geometry, least: int | None = None) -> list[Course]:
        """Every head's course, by layer, then head.

        A stretch of fewer than `least` steps (by default 1 % of them) between two changes is taken
        for jitter around 0 and left out.
        """
        if least is None:
            least = max(1, int(self.steps[-1]) // 100)
        return [
            self._course(head, self.weights[:, head.layer, head.head] >= 0, least)
            for head in geometry.heads()
        ]

    def _course(self, head: Head, selected: NDArray[np.bool_], least: int) -> Course:
        begins = bool(selected[0])
        changes = _lasting_changes(self.steps, selected, least)
        ends = bool(selected[-1])
        fate: Fate
        if len(changes) >= 2:
            fate = "regained" if ends else "tried"
        elif len(changes) == 1:
            fate = "added" if ends else "dropped"
        else:
            fate = "kept" if ends else "never"
        assert (len(changes) % 2 == 1) == (begins != ends)
        lengths = np.diff(self.steps)
        total = int(self.steps[-1] - self.steps[0])
        share = float((lengths * selected[:-1]).sum() / total) if total else float(ends)
        return Course(head, ends, fate, changes, share)


def _lasting_changes(
    steps: NDArray[np.int64], selected: NDArray[np.bool_], least: int
) -> tuple[int, ...]:
    """Steps at which a head changed sides, without stretches shorter than `least`.

    A short stretch joins what is around it; the state at the end always counts, since it is the
    mask.
    """
    changes = [int(steps[at]) for at in range(1, len(steps)) if selected[at] != selected[at - 1]]
    while True:
        short = [at for at in range(len(changes) - 1) if changes[at + 1] - changes[at] < least]
        if not short:
            return tuple(changes)
        del changes[short[0] : short[0] + 2]
