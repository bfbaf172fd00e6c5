"""Training mixtures of a rated corpus, from the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.results.mixture import MixedCorpus
from headscope.settings import Option, Settings
from headscope.studies.inputs import Progress
from headscope.use.mixing import MixPlan
from headscope.use.mixing.mixture import mix_in_run
from headscope.use.mixing.plan import Amount
from headscope.use.mixing.reading import LANGUAGE, rated_paths, read_lines

__all__ = ["UseMix", "use_mix"]


@dataclass(frozen=True)
class UseMix(Settings):
    """Make a training mixture of rated documents in which every language keeps its share.

    Selected are the documents of each language with the highest scores. The mixture lies shuffled
    in documents/, manifest.json proves its shares. The same command goes on where it was stopped.
    """

    rated: Annotated[
        tuple[str, ...],
        Option(
            "A run of headscope use rate; or JSON Lines or Parquet files, or a folder of them, "
            "whose records have text, score and tokens.",
            metavar="RATED...",
            argument=True,
        ),
    ]
    plan: MixPlan
    size: Annotated[
        tuple[str, ...],
        Option(
            "How much of each language the mixture is made of, a number or a share such as 50%; "
            "the rest is the reserve that removed documents are replaced from. Without it all. "
            "With CODE for one language; repeatable.",
            metavar="[CODE=]AMOUNT",
        ),
    ] = ()
    language_column: options.LanguageColumn = None


def use_mix(
    config: UseMix, out: Path | None = None, progress: Progress | None = None
) -> MixedCorpus:
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
