"""Training mixtures of a rated corpus, from the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.recipes.inputs import Progress
from headscope.use.mixing import MixPlan
from headscope.use.mixing.mixture import mix_in_run
from headscope.use.mixing.plan import Amount
from headscope.use.mixing.reading import LANGUAGE, rated_paths, read_lines

__all__ = ["UseMix", "use_mix"]


@dataclass(frozen=True)
class UseMix:
    """A whole run of the command.

    `rated` are runs of `headscope use rate`, files or folders. `size` holds one amount for all
    languages, or `CODE=AMOUNT` for each. `language_column` None: `language`, if the first record
    has it.
    """

    rated: tuple[str, ...]
    plan: MixPlan
    size: tuple[str, ...] = ()
    language_column: str | None = None


def use_mix(
    config: UseMix, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Make a mixture and return the command's result; see `headscope.use.mixing.mix`."""
    column = config.language_column
    if column is None and _has_language(config.rated):
        column = LANGUAGE
    plan = dataclasses.replace(config.plan, size=_size(config.size), language_column=column)
    return mix_in_run(config.rated, out, plan, progress)


def _size(words: Sequence[str]) -> Amount | dict[str, Amount] | None:
    if not words:
        return None
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    sizes: dict[str, Amount] = {}
    for word in words:
        code, equals, amount = word.partition("=")
        if not equals or code in sizes:
            raise InputError(
                f"--size {word} does not say one language's size, as the others do; give one "
                "amount for all languages, or CODE=AMOUNT once for each"
            )
        sizes[code] = amount
    return sizes


def _has_language(sources: Sequence[str]) -> bool:
    """Whether the first record tells its language; whatever is wrong with it is told later."""
    for path in rated_paths(sources):
        for _, line in read_lines(path):
            try:
                first = json.loads(line)
            except (ValueError, RecursionError):
                return True
            return not isinstance(first, dict) or LANGUAGE in first
    return False
