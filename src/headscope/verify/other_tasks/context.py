"""What holds while lm-evaluation-harness is at work: quiet, seeded, and put back afterwards."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from headscope.errors import need
from headscope.measure.answers import normalize_answer


@contextlib.contextmanager
def quiet(allow_code: bool = True) -> Iterator[None]:
    """Keep the harness's remarks and bars away, and undo what importing and running it leaves.

    Unless `allow_code`, templates are filled in a sandbox: one of a task file could else reach
    any Python function.
    """
    environment = dict(os.environ)
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    need("lm_eval", "verify tasks", "tasks")
    import datasets
    import lm_eval.api.task
    import lm_eval.utils
    from jinja2.sandbox import SandboxedEnvironment

    bars = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    task_module: Any = lm_eval.api.task
    utils: Any = lm_eval.utils
    bar, templates = task_module.tqdm, utils.env
    task_module.tqdm = functools.partial(bar, disable=True)
    if not allow_code:
        utils.env = SandboxedEnvironment(
            undefined=templates.undefined, keep_trailing_newline=templates.keep_trailing_newline
        )
        utils.env.filters.update(templates.filters)
    try:
        with standing_in():
            yield
    finally:
        task_module.tqdm, utils.env = bar, templates
        logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()
        os.environ.clear()
        os.environ.update(environment)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every generator that tasks draw from, and give each its state back."""
    import numpy as np
    import torch

    plain, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)


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
    """Let tasks import `transformers.data.metrics.squad_metrics`, which transformers 5 lacks.

    Exact match and F1 of SQuAD (Rajpurkar et al. 2016, section 6.1) compare answers in lower case,
    without punctuation, the English articles and surplus white space.
    """
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
