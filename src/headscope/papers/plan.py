"""What a reproduction will run before it does: steps in order, with their state and costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from headscope.errors import InputError
from headscope.papers.paper import Experiment, Missing, Setting, Step, Word
from headscope.studies.costs.estimate import Work, estimate_seconds, peak_memory
from headscope.studies.costs.shapes import shape_of

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: `done`: its run is finished; `stored`: a result of the package stands for it; `due`: it will be
#: run; `left out`: only `--full` runs it; `blocked`: a step that it needs is left out.
State = Literal["done", "stored", "due", "left out", "blocked"]

#: What becomes of a table or figure: it is measured, it needs what is not there, or only `--full`
#: measures it.
Coverage = Literal["measured", Word, "--full"]

#: Seconds or bytes that some work takes.
Estimate = Callable[[Work], float]


@dataclass(frozen=True)
class PlannedStep:
    """A step, what will be done about it, and the seconds and bytes it is thought to take."""

    step: Step
    state: State
    seconds: float | None = None
    memory: float | None = None

    @property
    def available(self) -> bool:
        """Whether there is a result of it."""
        return self.state in ("done", "stored")

    @property
    def left(self) -> bool:
        """Whether only `--full` would run it."""
        return self.state in ("left out", "blocked")


@dataclass(frozen=True)
class Planned:
    """An experiment with its steps in order, or with why it cannot be run.

    `coverage` says what becomes of each of its elements, and what is missing where it needs
    something. A step that is due counts as measured: the planned run measures it.
    """

    experiment: Experiment
    steps: tuple[PlannedStep, ...] = ()
    missing: Missing | None = None
    coverage: Mapping[str, tuple[Coverage, Missing | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """All requested experiments; steps that they share are run once."""

    experiments: tuple[Planned, ...]

    @property
    def steps(self) -> tuple[PlannedStep, ...]:
        """Every step once, in an order in which they can be run."""
        return tuple(
            {
                entry.step.name: entry
                for experiment in self.experiments
                for entry in experiment.steps
            }.values()
        )

    @property
    def due(self) -> tuple[PlannedStep, ...]:
        """The steps that will be run."""
        return tuple(entry for entry in self.steps if entry.state == "due")

    def seconds(self, states: Iterable[State] = ("due",)) -> float | None:
        """The seconds that steps in these states take together; None where one is not known."""
        known = [entry.seconds for entry in self.steps if entry.state in tuple(states)]
        return None if None in known else sum(seconds or 0.0 for seconds in known)

    @property
    def memory(self) -> float | None:
        """The bytes of the fullest step that will be run; None where none is known."""
        return max(
            (entry.memory for entry in self.due if entry.memory is not None),
            default=None,
        )


def costs_here(lm: LanguageModel) -> tuple[Estimate | None, Estimate | None]:
    """Estimates of the seconds of work with this model here, by a few passes, and of peak bytes.

    Neither for a model whose configuration does not give its costs: its runs have no estimate.
    """
    try:
        shape = shape_of(lm)
    except InputError:
        return None, None
    from headscope.studies.costs.measuring import measure_machine

    machine = measure_machine(lm)
    return (
        lambda work: estimate_seconds(work, shape, machine),
        lambda work: peak_memory(work, shape).total,
    )


def make_plan(
    experiments: Iterable[Experiment],
    setting: Setting,
    seconds: Estimate | None = None,
    memory: Estimate | None = None,
) -> Plan:
    """The plan of these experiments; `seconds` and `memory` estimate what work takes here.

    Raises:
        ValueError: if a step needs one that does not come before it, or if two different steps
            have one name; these are mistakes of a paper's own code.
    """
    known: dict[str, PlannedStep] = {}
    planned = []
    for experiment in experiments:
        steps = experiment.steps(setting)
        missing = steps if isinstance(steps, Missing) else None
        own = []
        for step in () if isinstance(steps, Missing) else steps:
            if step.name not in known:
                if behind := [name for name in step.after if name not in known]:
                    raise ValueError(
                        f"{step.name} needs {behind[0]}, which no step before it makes"
                    )
                state = _state(step, setting, any(known[name].left for name in step.after))
                time = None if seconds is None else seconds(step.work)
                held = None if memory is None else memory(step.work)
                known[step.name] = PlannedStep(step, state, time, held)
            elif known[step.name].step != step:
                raise ValueError(f"{experiment.name}: two different steps are {step.name!r}")
            own.append(known[step.name])
        covered = _covered(experiment, setting, own, missing)
        planned.append(Planned(experiment, tuple(own), missing, covered))
    return Plan(tuple(planned))


def _covered(
    experiment: Experiment,
    setting: Setting,
    steps: Sequence[PlannedStep],
    missing: Missing | None,
) -> dict[str, tuple[Coverage, Missing | None]]:
    """What becomes of each element of an experiment; `missing` is why it cannot be run.

    No element is measured by another experiment than the paper's; another model comes before data.
    """
    if experiment.apart and missing is None:
        give = f"apart from the paper: --only {experiment.name}"
        other = Missing(experiment.title, give, "needs MODEL")
        return dict.fromkeys(experiment.elements, (other.coverage, other))
    later = {entry.step.name for entry in steps if entry.left}
    own = [entry.step for entry in steps]
    found: dict[str, tuple[Coverage, Missing | None]] = {}
    for element in experiment.elements:
        needed = experiment.needs(setting, element, own)
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
