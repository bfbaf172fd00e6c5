"""Exact match and F1 of SQuAD (Rajpurkar et al. 2016, section 6.1), for tasks that ask for them.

Tasks of lm-evaluation-harness take both from a module of transformers that version 5 no longer has;
`standing_in` gives them these under its name. Answers are compared in lower case, without
punctuation, the English articles and surplus white space.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

from headscope.measure.answers import normalize_answer

MODULE = "transformers.data.metrics"


def compute_exact(gold: str, answer: str) -> int:
    """1 if two answers are the same, else 0."""
    return int(normalize_answer(gold) == normalize_answer(answer))


def compute_f1(gold: str, answer: str) -> float:
    """Harmonic mean of precision and recall of the words of an answer, 0 to 1.

    Two answers without a word, such as "", agree.
    """
    wanted, given = normalize_answer(gold).split(), normalize_answer(answer).split()
    if not wanted or not given:
        return float(wanted == given)
    same = (Counter(wanted) & Counter(given)).total()
    return 2 * same / (len(wanted) + len(given))


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """Let tasks import `transformers.data.metrics.squad_metrics` where transformers lacks it."""
    # Already there in a context within a context.
    if MODULE in sys.modules or importlib.util.find_spec(MODULE) is not None:
        yield
        return
    package, module = ModuleType(MODULE), ModuleType(f"{MODULE}.squad_metrics")
    functions = (normalize_answer, compute_exact, compute_f1)
    vars(module).update({function.__name__: function for function in functions})
    vars(package).update(squad_metrics=module)
    sys.modules |= {MODULE: package, module.__name__: module}
    try:
        yield
    finally:
        for name in (MODULE, module.__name__):
            sys.modules.pop(name, None)
