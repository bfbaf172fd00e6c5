"""How long a paper's runs will take on the machine at hand, and in how much memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.studies.costs.estimate import estimate_seconds, peak_memory
from headscope.studies.costs.reading import shape_of
from headscope.studies.costs.work import Work

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


def seconds_here(lm: LanguageModel) -> Callable[[Work], float] | None:
    """What tells the seconds of some work with this model here, by measuring a few passes.

    None for a model whose costs its configuration does not tell: its runs have no estimate.
    """
    try:
        shape = shape_of(lm)
    except InputError:
        return None
    from headscope.studies.costs.measuring import measure_machine

    machine = measure_machine(lm)
    return lambda work: estimate_seconds(work, shape, machine)


def bytes_here(lm: LanguageModel) -> Callable[[Work], float] | None:
    """What tells the bytes of memory of some work with this model at its fullest moment.

    None for a model whose costs its configuration does not tell.
    """
    try:
        shape = shape_of(lm)
    except InputError:
        return None
    return lambda work: peak_memory(work, shape).total
