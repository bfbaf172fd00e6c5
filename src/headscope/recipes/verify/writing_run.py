"""What the commands that let a model write have in common: prompts, outputs, a run around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError
from headscope.recipes.inputs import about_model, model_inputs, model_provenance
from headscope.runs import Run, open_run
from headscope.verify.writing.arms import Arm
from headscope.verify.writing.evidence import Numbers

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["arms_settings", "fitted", "run_of", "statistics", "token_count", "write_prompts"]

STATISTICS = "statistics.safetensors"


def run_of(
    command: str,
    lm: LanguageModel,
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    seed: int,
    out: Path | None,
    make: Callable[[Run], dict[str, Any]],
) -> dict[str, Any]:
    """The result of a run: the stored one if it is finished, else what `make` returns.

    `settings` and `data` (names to content hashes) decide the run; to the result are added its
    signature, place, time and model.
    """
    began = time.monotonic()
    computed = {**settings, "computed_in": str(lm.dtype).removeprefix("torch.")}
    inputs = {**model_inputs(lm, {}), **data}
    about = {**model_provenance(lm), "seed": seed}
    with open_run(out, command, computed, inputs, provenance=about) as run:
        if run.finished:
            return {**run.result(), "run": str(run.path)}  # the folder may have been moved
        made = make(run)
        result = {
            "signature": run.signature,
            "run": str(run.path),
            "seconds": time.monotonic() - began,
            "model": about_model(lm),
            **made,
        }
        run.finish(result)
        return result


def arms_settings(groups: Iterable[tuple[str, Sequence[Arm]]]) -> dict[str, list[str]]:
    """The gates of each group in a run's configuration: the heads themselves, not their place."""
    return {name: [arm.key for arm in arms] for name, arms in groups}


def statistics(run: Run, numbers: Mapping[str, Numbers]) -> None:
    """Keep the numbers of every prompt, as `GROUP.MEASURE`: arrays (arms, prompts, features)."""
    run.write_tensors(
        STATISTICS,
        {
            f"{group}.{measure}": array
            for group, one in numbers.items()
            for measure, array in one.values.items()
            if array is not None
        },
    )


def write_prompts(run: Run, rows: Iterable[Mapping[str, Any]]) -> None:
    """Keep what the model was given, once for all arms."""
    run.write_jsonl("prompts.jsonl", list(rows))


def token_count(lm: LanguageModel, text: str) -> int:
    """Tokens of a text by itself."""
    return len(lm.encode(text, special=False))


def fitted(
    lm: LanguageModel, text: str, limit: int, render: Callable[[str], str], place: str
) -> tuple[str, bool]:
    """The prompt of a text, cut at its end until `limit` new tokens have room behind the prompt.

    Returns the prompt and whether the text was cut. Raises `InputError`, beginning with `place`,
    if not even a prompt without text leaves the room.
    """
    room = lm.context_length - limit

    def fits(length: int) -> bool:
        return len(lm.encode(render(text[:length]))) <= room

    if fits(len(text)):
        return render(text), False
    if not fits(0):
        raise InputError(
            f"{place}: {limit} new tokens behind the prompt do not fit the model's context of "
            f"{lm.context_length}; use fewer with --max-new-tokens"
        )
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return render(text[:low]), True
