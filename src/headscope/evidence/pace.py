"""How long a comparison takes: told once something of it is measured, and ended in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from headscope.errors import InputError
from headscope.estimates import PlannedPart
from headscope.evidence.rows import Condition
from headscope.measure.sequence import draws_to_win
from headscope.shown.words import count, duration

#: Seconds of work from which on the time of all of it is told, and without a second condition.
ENOUGH, LONG = 1.0, 30.0


class OutOfTime(InputError):
    """The minutes that a comparison may take are over; what is measured is kept."""


class Planned(Exception):
    """The time that a comparison takes is known, and nothing else was asked for."""


@dataclass(eq=False)
class Pacing:
    """Reckons how long the conditions of a comparison take from those that were measured.

    Attributes:
        conditions: all that there may be.
        level: of the bet on draws one after another; None: their number is fixed.
        examples: what is measured under each, such as `60 sentences`.
        tell: is given a sentence about each part of the work, once.
        minutes: after which the work ends with `OutOfTime`; None: when it is done.
        plan: end with `Planned` once the time is known.
        now: how many conditions are measured now.
        told: what was told, by part of the work.
        told_of: seconds of a condition in each part that units are computed of; None: none yet.
    """

    conditions: Iterable[Condition]
    level: float | None
    examples: str
    tell: Callable[[str], object]
    minutes: float | None = None
    plan: bool = False
    now: int = 1
    told: dict[str, PlannedPart] = field(default_factory=dict)
    told_of: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        every = {each.key: each for each in self.conditions}.values()
        drawn = {
            (each.kind, each.of, each.case, each.draw) for each in every if each.draw is not None
        }
        numbers = [draw for *_, draw in drawn if draw is not None]
        self._kinds = len({kind for kind, *_ in drawn})
        most = max(numbers, default=-1) + 1
        few = most if self.level is None else min(most, draws_to_win(self.level))
        self._draws = few, most
        least = sum(each.draw is None or each.draw < few for each in every)
        self._conditions = least, len(every)

    def measuring(self, conditions: Iterable[Condition]) -> None:
        """These conditions are measured from here on, those that are there left out."""
        self.now = max(1, len({each.key for each in conditions}))

    def begin(self, title: str, done: float, total: float) -> None:
        """See `headscope.runs.folder.Pace`."""
        self._title, self._total = title, total
        self._since, self._once = (time.monotonic(), done), False
        self.told_of.setdefault(title, None)

    @property
    def seconds(self) -> float | None:
        """Of one condition, over all parts of the work that units were told of; None where one has
        none that was computed."""
        known = [each for each in self.told_of.values() if each is not None]
        return sum(known) if known and len(known) == len(self.told_of) else None

    def reached(self, done: float) -> None:
        """See `headscope.runs.folder.Pace`."""
        title, now = self._title, time.monotonic()
        seconds, more = now - self._since[0], done - self._since[1]
        whole = self._total / self.now  # a condition, in the sizes of units
        # Batches of one condition differ: the first reads the examples that all prompts begin with.
        ended, slow = more >= whole, more > 0 and seconds >= LONG
        if ended or slow:
            self.told_of[title] = each = seconds / more * whole
            # What is done once, such as trials of the model, is over with the first condition.
            known = self._once or slow or self._total - done < whole
            if title not in self.told and known and seconds >= ENOUGH:
                low, high = (each * number for number in self._conditions)
                self.told[title] = PlannedPart(
                    title, self._draws, self._conditions, (low, high), self._words(title, low, high)
                )
                if self.plan:
                    raise Planned
                self.tell(self.told[title].words)
        if ended and not self._once:
            self._once, self._since = True, (now, done)
        if self.minutes is not None and now - self._began > 60 * self.minutes:
            raise OutOfTime(
                f"the {self.minutes:g} minutes are over; what is measured is kept, and the same "
                "command goes on"
            )

    def _words(self, title: str, low: float, high: float) -> str:
        few, most = self._draws
        draws = count(most, "draw") if few == most else f"{few} to {count(most, 'draw')}"
        kinds = f" of {count(self._kinds, 'kind')}" if self._kinds > 1 else ""
        return f"{title}: {draws}{kinds} × {self.examples}: {duration(low, high)} at this pace"
