"""The experiment as one run: corpus, heads, rating, mixtures, trainings, and what they show."""

from __future__ import annotations

import sys
import time
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.papers.trater.evidence import describe
from headscope.papers.trater.mixtures import (
    Mixture,
    TraterExperiment,
    check_size,
    mixtures_of,
    prepare,
    write_corpus,
)
from headscope.papers.trater.result import TraterResult
from headscope.papers.trater.show import show
from headscope.papers.trater.training import Training, progress_of, train_and_measure
from headscope.runs import Run, carry_out, decode, plain
from headscope.studies.inputs import Progress, about_model, model_inputs, model_provenance
from headscope.studies.study import Study

COMMAND = "pocket trater"
#: Seconds between looks at how far the trainings are.
LOOK = 2.0
#: How a process ends that was interrupted, as in a shell.
INTERRUPTED = 130


def trater_experiment(
    config: TraterExperiment,
    out: Path | None = None,
    progress: Progress | None = None,
) -> TraterResult:
    """Run the experiment, as far as it has not been run, and return the command's result.

    `config.workers` trainings run at a time, each in a process of its own with one thread (with one
    worker: in as many threads as torch takes). Everything is below `out`: `find/`, `rated/`, a
    folder for each mixture and one for each training, each resumable by itself.
    """
    from headscope.lm import load

    began = time.monotonic()
    lm = load("pocket")
    model, provenance, inputs = about_model(lm), model_provenance(lm), model_inputs(lm, {})

    def compute(run: Run) -> TraterResult:
        nonlocal lm
        check_size(config, write_corpus(config, run.path, progress), lm)
        del lm  # the commands below load it by themselves
        prepared = prepare(config, run.path, progress)
        mixtures = mixtures_of(config, prepared, run.path, progress)
        measured = _train(config, mixtures, run, progress)
        found = {"model": model, "corpus": prepared.about, **describe(mixtures, measured)}
        result: TraterResult = decode(TraterResult, plain(found))
        return result

    settings = {"settings": config}
    return carry_out(COMMAND, out, settings, inputs, compute, began, provenance, kind=TraterResult)


def _train(
    config: TraterExperiment,
    mixtures: list[Mixture],
    run: Run,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Train and measure one model a mixture; what is there already is read."""
    trainings = [
        Training(
            mixture=one.folder,
            digest=one.digest,
            prompt_tokens=round(config.tokens * config.prompts),
            seed=one.seed,
            batch_tokens=config.batch_tokens,
            evaluation=config.evaluation,
        )
        for one in mixtures
    ]
    places = [run.path / "trainings" / one.name for one in mixtures]
    if config.workers == 1:
        found = []
        for training, place in zip(trainings, places, strict=True):
            found.append(train_and_measure(training, place))
            if progress:
                progress("trainings", len(found), len(trainings))
        return found
    _in_processes(trainings, places, config.workers, progress)
    return [train_and_measure(one, place) for one, place in zip(trainings, places, strict=True)]


def _train_alone(training: Training, place: Path) -> None:
    """A training in a process of its own; errors that can be told are a line, no traceback."""
    try:
        train_and_measure(training, place, threads=1)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # the process that began this one is told too, and says so
        sys.exit(INTERRUPTED)


def _in_processes(
    trainings: list[Training], places: list[Path], workers: int, progress: Progress | None
) -> None:
    """Run the trainings, `workers` at a time; those that run when this is ended end too."""
    # Forked children would inherit torch's threads, which do not survive a fork.
    context = get_context("spawn")
    waiting = list(zip(trainings, places, strict=True))
    running: dict[SpawnProcess, Path] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                training, place = waiting.pop(0)
                process = context.Process(target=_train_alone, args=(training, place))
                process.start()
                running[process] = place
            for process in [one for one in running if one.exitcode is not None]:
                place = running.pop(process)
                if process.exitcode:
                    raise InputError(
                        f"the training in {place} ended with exit code {process.exitcode}, see "
                        "above; mend it and run the same command again to go on"
                    )
            if progress:
                share = sum(progress_of(place) for place in places) / len(places)
                progress("trainings, per mille", round(1000 * share), 1000)
            time.sleep(LOOK if running else 0)
    finally:
        for process in running:
            process.terminate()  # it goes on from its last state another time
            process.join()


command = Study(TraterExperiment, trater_experiment, result=TraterResult, show=show)
