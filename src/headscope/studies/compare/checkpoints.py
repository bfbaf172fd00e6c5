"""A series of checkpoints of one model: what people name, in training order."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Annotated

from headscope.errors import InputError
from headscope.heads.files import split_part
from headscope.settings import Nested, Option
from headscope.studies.models import POCKET, PROMPTED, ModelChoice

# step1000 (Pythia), step1000-tokens4B (OLMo), stage2-ingredient3-step12000-tokens26B (OLMo 2 and
# 3), checkpoint-500 (transformers' Trainer), global_step100, iter_0005000.
_STEP = re.compile(r"(?:step|checkpoint|ckpt|iter(?:ation)?)[-_]?([0-9]+)", re.IGNORECASE)
_STAGE = re.compile(r"stage[-_]?([0-9]+)", re.IGNORECASE)
#: What the end of a training is called.
_LAST = ("final", "last", "main", "latest")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: its name in results, how it is loaded, and what its name tells.

    `step` is the optimiser step and `stage` the stage of training, None where the name has none.
    `bundled`: one of the checkpoints of the pocket model. `scores` names its scores where these are
    all that is known of it, so that no model is loaded.
    """

    name: str
    model: ModelChoice
    step: int | None = None
    stage: int | None = None
    bundled: bool = False
    scores: str = ""

    @property
    def label(self) -> str:
        """What results call the model: a bundled checkpoint has a name, not a place."""
        return f"{POCKET}:{self.name}" if self.bundled else self.scores or self.model.model

    @property
    def is_last(self) -> bool:
        """Whether the name says that training ends here (`final`, `main`)."""
        return _own_name(self.name).lower() in _LAST


def checkpoint_series(
    names: Sequence[str], revisions: Sequence[str] = (), model: ModelChoice | None = None
) -> tuple[Checkpoint, ...]:
    """The checkpoints that are named, in training order.

    A name is `pocket` (all bundled checkpoints) or `pocket:step-00800`, a folder of a checkpoint
    or of several, a pattern such as `ckpt/step-*`, or `NAME@REVISION` on the Hub; `revisions` are
    of `model.model`. From `model` all take device, dtype and device map.

    Where every name tells its step, they are sorted by stage and step (`final` and `main` last);
    otherwise they stay in the order given.

    Raises:
        InputError: for fewer than two checkpoints, a name that matches nothing, or one named twice.
    """
    model = model or ModelChoice()
    series: list[Checkpoint] = []
    for name in names:
        series += _expand(name, model)
    for revision in revisions:
        if Path(model.model).exists() or model.model == POCKET:
            raise InputError(
                f"--revision {revision} needs --model with the name of a Hub model, which "
                f"{model.model} is not; name the folders of the checkpoints instead"
            )
        series.append(_make(f"{model.model}@{revision}", model, model.model, revision))
    if not series:
        raise InputError(
            "no checkpoints are named; give pocket, folders, a pattern such as 'ckpt/step-*', "
            "NAME@REVISION, or --model NAME with --revision, repeatable"
        )
    places = [(artifact.model.model, artifact.model.revision) for artifact in series]
    for place, checkpoint in zip(places, series, strict=True):
        if places.count(place) > 1:
            raise InputError(f"{checkpoint.name}: this checkpoint is named twice; name each once")
    if len(series) < 2:
        raise InputError(f"{series[0].name} is a single checkpoint; name at least two of a series")
    return tuple(_in_order(_with_own_names(series)))


def single_checkpoint(name: str, model: ModelChoice) -> ModelChoice:
    """The one checkpoint of a name, loaded as `model` says: one that `checkpoint_series` takes, or
    `pocket` for the bundled model itself. Raises `InputError` if it names several."""
    if name == POCKET:
        return replace(model, model=POCKET)
    path = Path(os.path.expanduser(name))
    if path.is_file() or (path / "adapter_config.json").is_file():
        return replace(model, model=str(path), revision=None)
    series = _expand(name, model)
    if len(series) > 1:
        raise InputError(f"{name} names {len(series)} checkpoints; name one of them")
    return series[0].model


def score_series(specs: Sequence[str]) -> tuple[Checkpoint, ...]:
    """Checkpoints of which there are scores alone: files (see `read_heads_file`), runs, folders.

    Where every name but one at most tells its step they are sorted by it, the other one last: the
    end of a training has the model's own name. Otherwise they stay in the order given. InputError
    for fewer than two, or one named twice.
    """
    if len(set(specs)) < max(len(specs), 2):
        raise InputError("--scores needs files of two checkpoints or more; name each once")
    places = [split_part(spec) for spec in specs]
    names = [(path.name if path.is_dir() else path.stem) + (f"#{part}" if part else "")
             for path, part in places]  # fmt: skip
    own = names if len(set(names)) == len(names) else specs
    steps = map(step_of, names)
    series = [
        Checkpoint(name, ModelChoice(), step, stage, scores=spec)
        for name, spec, (stage, step) in zip(own, specs, steps, strict=True)
    ]
    last = sum(checkpoint.step is None for checkpoint in series) < 2
    return tuple(sorted(series, key=_by_step) if last else series)


def named_checkpoints(
    checkpoints: Annotated[
        tuple[str, ...],
        Option(
            "pocket (all its checkpoints), folders, a pattern such as 'ckpt/step-*', or "
            "NAME@REVISION on the Hub; with --scores files of scores.",
            metavar="CHECKPOINT...",
            argument=True,
        ),
    ] = (),
    model: Annotated[
        str | None, Option("Hub model that --revision is of.", metavar="NAME", held="model")
    ] = None,
    revisions: Annotated[
        tuple[str, ...],
        Option("Revision of --model; repeatable.", flag="--revision", metavar="STEP"),
    ] = (),
    scores: Annotated[
        bool,
        Option(
            "The checkpoints are files with scores of all heads, or runs: no model is loaded, so "
            "there are no classes and no chrF++."
        ),
    ] = False,
    loading: Annotated[ModelChoice | None, Nested(("model", "revision"), PROMPTED.changed)] = None,
) -> tuple[Checkpoint, ...]:
    """The series from what is typed (see `checkpoint_series` and `score_series`)."""
    if scores and not (model or revisions):
        return score_series(checkpoints)
    if scores:
        raise InputError(
            "--scores takes files, which need no --model and --revision; leave one out"
        )
    if bool(revisions) != bool(model):
        raise InputError(
            "--model and --revision belong together: name the Hub model and each of its revisions"
        )
    where = replace(loading or ModelChoice(), model=model or POCKET)
    return checkpoint_series(checkpoints, revisions, where)


def step_of(name: str) -> tuple[int | None, int | None]:
    """The stage and the step that a checkpoint's name tells.

    Read from a revision or the last part of a path alone: the numbers in the name of a model
    (`OLMo-2-1124-7B`) are no steps.
    """
    own = _own_name(name)
    stage, step = _STAGE.search(own), _STEP.search(own)
    return (int(stage[1]) if stage else None), (int(step[1]) if step else None)


def _own_name(name: str) -> str:
    _, at, revision = name.rpartition("@")
    return revision if at else name.rstrip("/").rpartition("/")[2]


def _expand(name: str, model: ModelChoice) -> list[Checkpoint]:
    if name == POCKET or name.startswith(f"{POCKET}:"):
        return _bundled(name, model)
    path = Path(os.path.expanduser(name))  # as pathlib does, but without an error
    if path.is_dir():
        if (path / "config.json").exists():
            return [_make(str(path), model, str(path))]
        inner = [folder for folder in path.iterdir() if folder.is_dir() and _is_checkpoint(folder)]
        # A checkpoint that lost its configuration is told as unreadable when it is opened.
        return [_make(str(folder), model, str(folder)) for folder in _naturally(inner or [path])]
    if has_magic(name) and not path.exists():
        matches = [Path(match) for match in glob(str(path)) if Path(match).is_dir()]
        if not matches:
            raise InputError(f"{name} matches no folder; check the pattern")
        return [_make(str(folder), model, str(folder)) for folder in _naturally(matches)]
    repository, at, revision = name.rpartition("@")
    if at and repository and revision:
        return [_make(name, model, repository, revision)]
    return [_make(name, model, name)]


def _bundled(name: str, model: ModelChoice) -> list[Checkpoint]:
    from headscope.pocket import weights

    _, colon, wanted = name.partition(":")
    known = {wanted: weights.path(wanted)} if colon else weights.checkpoints()
    if not known:
        weights.path()  # says what is missing
    return [replace(_make(own, model, str(place)), bundled=True) for own, place in known.items()]


def _is_checkpoint(folder: Path) -> bool:
    return (folder / "config.json").exists() or step_of(folder.name)[1] is not None


def _make(name: str, model: ModelChoice, place: str, revision: str | None = None) -> Checkpoint:
    stage, step = step_of(name)
    return Checkpoint(name, replace(model, model=place, revision=revision), step, stage)


def _naturally(paths: Sequence[Path]) -> list[Path]:
    def key(path: Path) -> list[tuple[int, int, str]]:
        pieces = re.split(r"([0-9]+)", path.name)
        return [(0, int(piece), "") if piece.isdigit() else (1, 0, piece) for piece in pieces]

    return sorted(paths, key=key)


def _with_own_names(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Names as short as they can be: the folder or revision alone if that tells them apart."""
    short = [_own_name(artifact.name) for artifact in checkpoints]
    if len(set(short)) < len(short):
        return list(checkpoints)
    return [replace(each, name=name) for each, name in zip(checkpoints, short, strict=True)]


def _in_order(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    if any(artifact.step is None and not artifact.is_last for artifact in checkpoints):
        return list(checkpoints)
    return sorted(checkpoints, key=_by_step)


def _by_step(checkpoint: Checkpoint) -> tuple[bool, int, int]:
    return checkpoint.step is None, checkpoint.stage or 0, checkpoint.step or 0
