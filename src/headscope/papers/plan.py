"""What a reproduction will run before it does: steps in order, with their state and time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from headscope.papers.paper import Experiment, Missing, Setting, Step, Word
from headscope.studies.costs.work import Work

#: `done`: its run is finished; `stored`: a result of the package stands for it; `due`: it will be
#: run; `left out`: only `--full` runs it; `blocked`: a step that it needs is left out.
State = Literal["done", "stored", "due", "left out", "blocked"]

#: What becomes of a table or figure: it is measured, it needs what is not there, or only `--full`
#: measures it.
Coverage = Literal["measured", Word, "--full"]


@dataclass(frozen=True)
class PlannedStep:
    """A step, what will be done about it, and the seconds and bytes it is thought to take."""

    step: Step
    state: State
    seconds: float | None = None
    memory: float | None = None


@dataclass(frozen=True)
class Planned:
    """An experiment with its steps in order, or with why it cannot be run.

    `coverage` tells what becomes of each of its elements, and what is missing where it needs
    something. A step that is due counts as measured: the planned run measures it.
    """

    experiment: Experiment
    steps: tuple[PlannedStep, ...] = ()
    missing: Missing | None = None
    coverage: Mapping[str, tuple[Coverage, Missing | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All experiments that were asked for; steps that they share are run once."""

    experiments: tuple[Planned, ...]

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """Every step once, in an order in which they can be run."""
        found = {one.step.name: one for each in self.experiments for one in each.steps}
        return tuple(found.values())

    @property
    def due(self) -> tuple[PlannedStep, ...]:
        """The steps that will be run."""
        return tuple(one for one in self.steps if one.state == "due")

    def seconds(self, states: Iterable[State] = ("due",)) -> float | None:
        """The seconds that steps in these states take together; None where one is not known."""
        known = [one.seconds for one in self.steps if one.state in tuple(states)]
        return None if None in known else sum(one or 0.0 for one in known)

    @property
    def memory(self) -> float | None:
        """The bytes of the fullest step that will be run; None where none is known."""
        return max((one.memory for one in self.due if one.memory is not None), default=None)


def make_plan(
    experiments: Iterable[Experiment],
    setting: Setting,
    seconds: Callable[[Work], float] | None = None,
    memory: Callable[[Work], float] | None = None,
) -> Plan:
    """The plan of these experiments.

    `seconds` and `memory` tell what work takes on this machine; without them nothing is estimated.

    Raises:
        ValueError: if a step needs one that does not come before it, or if two different steps
            have one name; these are mistakes of a paper's own code.
    """
    known: dict[str, PlannedStep] = {}
    planned = []
    for experiment in experiments:
        steps = experiment.steps(setting)
        if isinstance(steps, Missing):
            planned.append(Planned(experiment, (), steps, _covered(experiment, setting, (), steps)))
            continue
        for step in steps:
            before = known.get(step.name)
            if before is not None:
                if before.step != step:
                    raise ValueError(f"{experiment.name}: two different steps are {step.name!r}")
                continue
            states = {}
            for name in step.after:
                if name not in known:
                    raise ValueError(f"{step.name} needs {name}, which no step before it makes")
                states[name] = known[name].state
            blocked = any(state in ("left out", "blocked") for state in states.values())
            state = _state(step, setting, blocked)
            time = None if seconds is None else seconds(step.work)
            held = None if memory is None else memory(step.work)
            known[step.name] = PlannedStep(step, state, time, held)
        own = tuple(known[step.name] for step in steps)
        planned.append(Planned(experiment, own, None, _covered(experiment, setting, own)))
    return Plan(tuple(planned))


def _covered(
    one: Experiment, setting: Setting, steps: Sequence[PlannedStep], missing: Missing | None = None
) -> dict[str, tuple[Coverage, Missing | None]]:
    """What becomes of each element of an experiment; `missing` is why it cannot be run.

    No element is measured by another experiment than the paper's; another model comes before data.
    """
    if one.apart and missing is None:
        other = Missing(one.title, f"beside the paper: --only {one.name}", "needs MODEL")
        return dict.fromkeys(one.elements, (other.coverage, other))
    later = {step.step.name for step in steps if step.state in ("left out", "blocked")}
    own = [step.step for step in steps]
    found: dict[str, tuple[Coverage, Missing | None]] = {}
    for element in one.elements:
        needed = one.needs(setting, element, own)
        for_another = isinstance(needed, Missing) and needed.coverage == "needs MODEL"
        if missing is not None and not (for_another and missing.coverage == "needs DATA"):
            needed = missing
        if isinstance(needed, Missing):
            found[element] = (needed.coverage, needed)
        else:
            full = any(step.name in later for step in (own if needed is None else needed))
            found[element] = ("--full" if full else "measured", None)
    return found


def stored_result(step: Step, setting: Setting) -> dict[str, Any] | None:
    """The result that comes with the package for this step and exactly these weights, or None."""
    if step.stored is None or setting.retrain:
        return None
    file = files("headscope.papers") / "data" / "stored" / f"{step.stored}.json"
    if not file.is_file():
        return None
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found if found.get("model", {}).get("digest") == setting.digest else None


def _state(step: Step, setting: Setting, blocked: bool) -> State:
    if setting.done(step.name):
        return "done"
    if stored_result(step, setting) is not None:
        return "stored"
    if step.extended and not setting.full:
        return "left out"
    return "blocked" if blocked else "due"
