"""Where the bundled model lies: its final weights and the checkpoints of its training."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from headscope.errors import InputError

FINAL = "final"


def path(checkpoint: str | None = None) -> Path:
    """The folder of the final weights, or of a checkpoint by its name.

    InputError if this copy of headscope has none of that name.
    """
    paths = checkpoints()
    name = FINAL if checkpoint is None else checkpoint
    if name in paths:
        return paths[name]
    if not paths:
        raise InputError(
            f"{_root()} holds no weights of the model pocket; install headscope again, or train "
            "the model with `headscope pocket train --out DIR` and name DIR/final as the model"
        )
    raise InputError(f"the model pocket has no checkpoint {name!r}; known: {', '.join(paths)}")


def checkpoints() -> dict[str, Path]:
    """The folders of all bundled checkpoints by name, from the first steps to `final`."""
    root = _root()
    if not root.is_dir():
        return {}
    folders = [folder for folder in root.iterdir() if (folder / "config.json").is_file()]
    # Names are step-00032 and so on, so they sort by step.
    ordered = sorted(folders, key=lambda folder: (folder.name == FINAL, folder.name))
    return {folder.name: folder for folder in ordered}


def scores_path() -> Path:
    """The folder with scores of the heads of the final weights, as a run keeps them."""
    return _package() / "scores"


def _root() -> Path:
    return _package() / "weights"


def _package() -> Path:
    return Path(str(resources.files(__package__)))
