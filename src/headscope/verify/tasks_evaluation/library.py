"""Tasks by name from the installed lm-evaluation-harness, or from task files.

The groups that Token Alignment Heads (ICLR 2026) looks at are `GROUPS`; any other task, tag or
group of the harness can be named too, also by a pattern such as `global_mmlu_full_*`.

While the harness is at work it is quiet and seeded, and everything is put back afterwards.
"""

from __future__ import annotations

import atexit
import contextlib
import fnmatch
import functools
import hashlib
import importlib.util
import inspect
import json
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from headscope.errors import InputError, nearest, need
from headscope.measure.metrics import normalize_answer
from headscope.scratch import scratch
from headscope.verify.tasks_evaluation.files import TaskFile, read_folder, read_task_file

#: Multilingual groups of the harness and what they ask for.
GROUPS = {
    "xnli": "does a sentence follow from another? 15 languages",
    "xcopa": "the more plausible cause or effect; 11 languages",
    "xwinograd": "what a pronoun refers to; 6 languages",
    "xstorycloze": "the right end of a story; 11 languages",
    "hellaswag_multilingual": "the right continuation; 30 languages, machine-translated",
    "arc_multilingual": "school science questions; 31 languages, machine-translated",
    "mmmlu": "MMLU in 14 languages, translated by people",
    "cmmlu": "exam questions of 67 subjects in Chinese",
    "arabicmmlu": "exam questions of 40 subjects in Arabic",
    "global_mmlu_full_*": "Global-MMLU, the whole of it, one group a language",
    "belebele": "reading comprehension in 122 language variants",
    "xquad": "answers taken from a text; 12 languages; generation",
}


#: Keys of a task that decide, beside its prompts and choices, what an answer is worth.
JUDGING = (
    "output_type",
    "generation_kwargs",
    "filter_list",
    "metric_list",
    "process_results",
    "repeats",
)


#: What setting up a task ends in where its file or its data are wrong.
SETUP_ERRORS = (AssertionError, AttributeError, ImportError, LookupError, TypeError, ValueError,
                RuntimeError)  # fmt: skip


@dataclass(frozen=True)
class HarnessExample:
    """One item as the model reads it; `choices` is empty where the answer is generated."""

    id: int
    prompt: str
    choices: tuple[str, ...]
    target: str
    fields: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of prompt, choices and target."""
        text = json.dumps([self.prompt, self.choices, self.target], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class LoadedTask:
    """A task with its examples; `groups` are the asked-for groups it is in, `task` the harness's.

    `chance` is the accuracy of guessing among the choices; None where there are none.
    """

    name: str
    groups: tuple[str, ...]
    task: Any
    examples: tuple[HarnessExample, ...]
    digest: str
    shots: int
    chance: float | None


@functools.cache
def _index() -> Any:
    """The harness's own tasks by name; reading them takes some seconds."""
    with quiet():
        from lm_eval.tasks import TaskManager

        return TaskManager()


def resolve(name: str) -> tuple[str, ...]:
    """The task, tag or groups of the harness that a name or pattern stands for.

    What belongs to another match of the pattern is left out. InputError if there is none.
    """
    index = _index().task_index
    if name in index:
        return (name,)
    matches = fnmatch.filter(index, name) if "*" in name or "?" in name else []
    within = {member for match in matches for member in _members(index, match)}
    if not matches:
        raise InputError(
            f"there is no task named {name!r}; {nearest(name, [*GROUPS, *index], 0.7)}"
            f"known groups: {', '.join(GROUPS)}; or name a task file"
        )
    return tuple(sorted(set(matches) - within))


def _members(index: Any, name: str) -> set[str]:
    entry = index[name]
    inner = set(entry.tags) if entry.kind.name == "TAG" else set()
    listed = (entry.cfg or {}).get("task") if entry.kind.name == "GROUP" else None
    for task in listed if isinstance(listed, list) else ():
        inner.add(str(task if isinstance(task, str) else task.get("task") or task.get("group")))
    return inner.union(*(_members(index, task) for task in inner if task in index and task != name))


def load_tasks(
    names: Sequence[str],
    shots: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    allow_code: bool = False,
) -> list[LoadedTask]:
    """The tasks that names and paths stand for, each once, with their first `limit` examples.

    `shots`: worked examples in front of each prompt (None: as the task says, else 0). InputError
    for an unknown name, a task file that cannot be used, or data that cannot be loaded.
    """
    need("lm_eval", "verify tasks", "tasks")
    loaded: dict[str, LoadedTask] = {}
    with quiet(allow_code), seeded(seed):
        tables = str(_scratch_folder())
        for name in names:
            for task, groups in _build(name, allow_code, tables):
                if task.task_name not in loaded:
                    loaded[task.task_name] = _examine(task, groups, shots, limit, seed)
    if not loaded:
        raise InputError("no task is named; add --task NAME or --task FILE, or see --list")
    return list(loaded.values())


def _build(name: str, allow_code: bool, tables: str) -> Iterator[tuple[Any, tuple[str, ...]]]:
    path = Path(name)
    if path.is_dir() or path.is_file() or path.suffix in (".yaml", ".yml"):
        files = (read_folder if path.is_dir() else read_task_file)(path, allow_code)
        groups = [file for file in files if file.members is not None]
        for file in files:
            if file.members is None:
                within = tuple(g.name for g in groups if file.name in (g.members or ()))
                yield _build_file(file, tables), within
        return
    manager = _index()
    for title in resolve(name):
        with _explained(title):
            tasks = list(manager.load([title])["tasks"].values())
        for task in tasks:
            yield task, (title,) if len(tasks) > 1 else ()


def _build_file(file: TaskFile, scratch: str) -> Any:
    from lm_eval.api.task import ConfigurableTask

    config = dict(file.config)
    python = config.pop("class", None)
    if python is not None:
        return python(config=config)
    kwargs = config.get("dataset_kwargs") or {}
    if "data_files" in kwargs or "data_dir" in kwargs:
        # Tables made of local files are not left in the cache of the Hub's datasets.
        config["dataset_kwargs"] = {**kwargs, "cache_dir": scratch}
    with _explained(file.name, str(file.path)):
        return ConfigurableTask(config=config)


def _examine(
    task: Any, groups: tuple[str, ...], shots: int | None, limit: int | None, seed: int
) -> LoadedTask:
    if getattr(task, "UNSAFE_CODE", False):
        raise InputError(f"the task {task.task_name} runs code that a model wrote; choose another")
    if getattr(task, "MULTIMODAL", False):
        raise InputError(f"the task {task.task_name} needs images or sound; choose one of text")
    # A task that says 0 worked examples means it, as in the harness.
    if shots is not None and task.get_config("num_fewshot") != 0:
        task.set_config(key="num_fewshot", value=shots)
    elif task.get_config("num_fewshot") is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=seed)
    with _explained(task.task_name):
        if not len(task.eval_docs):
            raise InputError(f"the task {task.task_name} has no examples; give it some")
        task.build_all_requests(limit=limit)
    by_doc: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_doc.setdefault(instance.doc_id, []).append(instance)
    examples = tuple(_example(task, number, calls) for number, calls in sorted(by_doc.items()))
    choices = [len(example.choices) for example in examples]
    guess = sum(1 / n for n in choices) / len(choices) if all(choices) else None
    judged = [_told(task.get_config(name)) for name in JUDGING]
    total = hashlib.sha256(json.dumps(judged, sort_keys=True).encode())
    for example in examples:
        total.update(example.digest.encode())
    return LoadedTask(
        task.task_name,
        groups,
        task,
        examples,
        total.hexdigest(),
        int(task.get_config("num_fewshot") or 0),
        guess,
    )


def _told(value: Any) -> Any:
    """A setting as JSON; a function as its source."""
    if isinstance(value, dict):
        return {str(key): _told(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_told(part) for part in value]
    return inspect.getsource(value) if inspect.isfunction(value) else str(value)


def _example(task: Any, number: int, instances: Sequence[Any]) -> HarnessExample:
    doc = instances[0].doc
    calls = [instance.args for instance in instances]
    texts = 2 if task.OUTPUT_TYPE in ("loglikelihood", "multiple_choice") else 1
    for text in (part for args in calls for part in args[:texts]):
        if not isinstance(text, str):
            raise InputError(
                f"the task {task.task_name}, item {number}: {text!r} is no text; let doc_to_text "
                "and doc_to_target give texts"
            )
    with _explained(task.task_name):
        target = task.doc_to_target(doc)
        # After the choices some metrics ask how likely each is without the prompt: none more.
        count = len(task.doc_to_choice(doc)) if task.OUTPUT_TYPE == "multiple_choice" else 0
    choices = tuple(args[1] for args in calls[:count])
    fields = tuple(value for value in doc.values() if isinstance(value, str))
    return HarnessExample(number, str(calls[0][0]), choices, str(target), fields)


@contextlib.contextmanager
def _explained(name: str, place: str | None = None) -> Iterator[None]:
    """Errors of the harness and of its data as an InputError that says what to do."""
    from datasets.exceptions import DatasetsError
    from jinja2 import TemplateError

    where = f"{place}: the task {name}" if place else f"the task {name}"
    try:
        yield
    except InputError:
        raise
    except (DatasetsError, OSError) as error:
        raise InputError(
            f"{where} cannot load its data ({_line(error)}); load it once with a connection to "
            "the Hub, so that it lies in the cache (HF_HOME), or write a task file with your own "
            "data_files"
        ) from error
    except TemplateError as error:
        raise InputError(
            f"{where} has a template that cannot be filled from its data ({_line(error)}); "
            "correct the template or the data"
        ) from error
    except SETUP_ERRORS as error:
        if "script" in str(error).lower():
            raise InputError(
                f"{where} has data that a Python script of its own loads, which the installed "
                f"datasets does not run ({_line(error)}); convert it to Parquet or JSON Lines and "
                "write a task file for that"
            ) from error
        raise InputError(
            f"{where} cannot be set up ({type(error).__name__}: {_line(error)}); correct it"
        ) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")


@functools.cache
def _scratch_folder() -> Path:
    """Where `datasets` puts tables made of local files; read from there while a task is used."""
    held = contextlib.ExitStack()
    atexit.register(held.close)
    return held.enter_context(scratch("tasks"))


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
