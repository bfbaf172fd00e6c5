"""What the commands that let a model write have in common: prompts, outputs, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.runs import Run
from headscope.verify.writing.arms import Arm
from headscope.verify.writing.evidence import Numbers
from headscope.verify.writing.texts import Group

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

STATISTICS = "statistics.safetensors"


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


def write_prompts(run: Run, groups: Iterable[Group]) -> None:
    """Keep what the model was given, once for all arms."""
    rows = [
        {"language": group.name, "id": prompt.id, "prompt": prompt.text}
        for group in groups
        for prompt in group.prompts
    ]
    run.write_jsonl("prompts.jsonl", rows)


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
