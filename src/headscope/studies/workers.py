"""Several processes on one run: each carries out the study itself, but computes its share alone.

The parts that a run keeps are the units (`headscope.runs.Run.units`). This process holds the run;
where it comes to units that are not kept it lets workers compute them, through the executors of
datatrove, and goes on with what they kept. A worker loads the model, finds what came before kept,
computes its share, and ends.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headscope.errors import Caution
from headscope.executors import Execution, Launched, execute
from headscope.results.common import ClusterJob
from headscope.runs import Elsewhere, Run, Share, sharing

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


class Divided(Protocol):
    """The settings of a study whose work can be divided."""

    @property
    def model(self) -> Any: ...  # a `ModelChoice`, which knows this module
    @property
    def execution(self) -> Execution: ...


class _Submitted(Exception):
    """A cluster works on units of the run; how many there are."""

    def __init__(self, launched: Launched, units: int) -> None:
        super().__init__(launched.job)
        self.launched, self.units = launched, units


@dataclass(frozen=True)
class _Work:
    """What each worker does, as a step of datatrove's pipeline; can be pickled."""

    command: str
    config: Any = field(repr=False)
    folder: Path
    place: Path
    units: Sequence[tuple[str, str]] = field(repr=False)

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Compute the share of one worker of so many."""
        from transformers.utils import logging

        library: Any = logging  # its functions carry no types
        library.disable_progress_bar()
        os.chdir(self.place)  # settings may name files from there
        share = Share(rank, frozenset(self.units[rank::world_size]))
        with warnings.catch_warnings(), sharing(self.folder, share), suppress(Elsewhere):
            warnings.simplefilter("ignore", Caution)  # the command itself says it
            # By name: studies run by way of this module.
            registry = import_module("headscope.studies.registry")
            registry.study_of(self.command).run(self.config, out=self.folder)


def divided(
    compute: Callable[[Run], Any], command: str, config: Divided, lm: LanguageModel
) -> Callable[[Run], Any]:
    """`compute`, in a run whose units the workers of the settings compute.

    Its result is a `ClusterJob` where a cluster works on them.
    """
    model, execution = config.model, config.execution
    # A device that was named is meant for every worker; otherwise each gets a GPU of its own.
    free = model.device in (None, "cuda") and model.device_map is None

    def divide(run: Run, units: Sequence[tuple[str, str]], watch: Callable[[], None]) -> None:
        if execution.executor == "local" and len(units) == 1:
            return  # this process has loaded the model already
        folder = run.path.resolve()
        alone: Any = config  # what each carries out has no workers of its own
        alone = replace(alone, execution=Execution())
        work = _Work(command, alone, folder, Path.cwd(), units)
        workers = min(execution.workers, len(units))
        how = replace(execution, workers=workers, share_gpus=free)
        with _set_aside(lm):
            launched = execute([work], how, folder / "logs", watch)
        if launched is not None:
            raise _Submitted(launched, len(units))

    def with_workers(run: Run) -> Any:
        if run.share is None:
            run.divide = lambda units, watch: divide(run, units, watch)
        try:
            return compute(run)
        except _Submitted as submitted:
            job = submitted.launched
            return ClusterJob(
                job=job.job,
                submitted=job.new,
                logs=str(job.logs),
                workers=execution.workers,
                units_left=submitted.units,
            )

    return with_workers if execution.elsewhere else compute


@contextmanager
def _set_aside(lm: LanguageModel) -> Iterator[None]:
    """Leave the GPU to workers inside the block: two copies of a model may not fit into it."""
    loaded = getattr(lm, "loaded", True)
    if not loaded or lm.device.type == "cpu" or lm.quantised or hasattr(lm.model, "hf_device_map"):
        yield
        return
    import torch

    device = lm.device
    lm.model.to("cpu")
    torch.cuda.empty_cache()
    try:
        yield
    finally:
        lm.model.to(device)
