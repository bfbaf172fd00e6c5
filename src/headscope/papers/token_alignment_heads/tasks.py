"""What other tasks lose without the heads (Figures 9 and 19 to 21)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.token_alignment_heads.classes import of_group
from headscope.papers.token_alignment_heads.removal import texts_of
from headscope.papers.token_alignment_heads.setting import THRESHOLD, amounts, ranked_by
from headscope.papers.token_alignment_heads.steps import (
    elsewhere,
    other_scores,
    removal_steps,
)
from headscope.papers.token_alignment_heads.task_tables import (
    change_bars,
    measures_table,
    task_claim,
    task_words,
    tasks_table,
)
from headscope.pocket.tasks import write_tasks
from headscope.runs import Run, carry_out, encode
from headscope.shown.blocks import Findings
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress
from headscope.studies.verify.tasks import VerifyTasks, verify_tasks
from headscope.verify.removal import Removal

#: Most items of a task of the pocket world, and of anybody's.
POCKET_ITEMS, ITEMS = 100, 500
#: Random sets of heads of each kind beside the chosen ones: the fewest by which p over draws can be
#: 0.05.
DRAWS = 19
#: Tokens of all tasks of the pocket world once: read, of one row, and written.
POCKET_READ, POCKET_ROW, POCKET_WRITTEN = 70_000, 28, 3_400
#: Of anybody's: tasks of a name, tokens of a question with one of its choices, and choices.
TASKS_OF_A_NAME, TOKENS, CHOICES = 10, 120, 4


#: The paper's kinds of tasks: one of lm-evaluation-harness, and what names of this kind hold
#: (hellaswag, arc_easy, arc_challenge and mmlu are English).
KINDS = {
    "hellaswag_multilingual": "hellaswag_",
    "arc_multilingual": r"\warc_|arc_(?!easy$|challenge$)",
    **{name: name for name in ("xwinograd", "xstorycloze", "xnli", "xcopa")},
    "cmmlu": r"\wmmlu|vmlu",
}


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Missing | None:
    """Every figure is of all kinds of tasks, Figures 19 to 21 of one group of models each."""
    flags = "--pairs and --benchmarks"
    if setting.pocket and element == "Figure 9":
        why = "the paper's tasks are in languages that the bundled model does not know"
        return Missing(why, f"--model MODEL with {flags}", "needs MODEL")
    return of_group(setting, element, _others(setting), flags) or _lacking(setting)


def _lacking(setting: Setting) -> Missing | None:
    """What is missing of the paper's kinds of tasks, by the names of tasks and of their files."""
    places = [Path(one) for one in setting.data.benchmarks]
    names = [file.stem for one in places for file in (one, *one.rglob("*.y*ml"))]
    left = [
        f"--benchmarks {kind}"
        for kind, own in KINDS.items()
        if not any(re.search(own, one, re.IGNORECASE) for one in names)
    ]
    why = (
        "the paper takes translated HellaSwag and ARC (MuBench), XWinograd, XStoryCloze, XNLI, "
        "XCOPA and local versions of MMLU"
    )
    give = f"tasks of lm-evaluation-harness, or folders of such, of each kind: {', '.join(left)}"
    return Missing(why, give) if left else None


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    lacking = _lacking(setting)
    if lacking and not (setting.pocket or setting.data.benchmarks):
        return lacking
    removal = removal_steps(setting)
    if isinstance(removal, Missing):
        return removal
    files: tuple[Step, ...] = ()
    if not setting.data.benchmarks:
        files = (Step("task-files", "tasks of the pocket world", _files, Work()),)
    work = _work(setting)
    before = ("scores", *(one.name for one in files))
    tasks = Step("tasks", "other tasks without the heads", _tasks, work, before)
    found = [*removal, *files, tasks]
    for other, scores in zip(_others(setting), other_scores(setting), strict=False):
        found.append(scores)
        for step in (removal[-1], tasks):
            name, title = f"{step.name}{setting.of(other).suffix}", f"{step.title}, {other}"
            run = partial(elsewhere, step.run, other)
            found.append(Step(name, title, run, step.work, (scores.name,)))
    return tuple(found)


def _others(setting: Setting) -> tuple[str, ...]:
    """The other models; those of the bundled model's own tasks and sentences cannot be asked."""
    return setting.data.others if setting.data.pairs and setting.data.benchmarks else ()


def _work(setting: Setting) -> Work:
    """Every task as it is, without the heads, and without each random set."""
    names, draws = len(setting.data.benchmarks), setting.steering.draws or DRAWS
    if not names:
        rows = max(1.0, setting.batch_tokens / POCKET_ROW)
        calls = POCKET_READ / POCKET_ROW / rows
        once = Work(
            POCKET_READ, generated=POCKET_WRITTEN, length=POCKET_ROW, rows=rows, calls=calls
        )
        return once * (2 + 2 * draws)
    rows = max(1.0, setting.batch_tokens / TOKENS)
    number = names * TASKS_OF_A_NAME * ITEMS * CHOICES * (2 + 2 * draws)
    return Work(number * TOKENS, length=TOKENS, rows=rows, calls=number / rows)


def _files(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    settings = {"items": POCKET_ITEMS, "seed": setting.seed}

    def write(run: Run) -> Mapping[str, Any]:
        return {"tasks": write_tasks(run.path / "files", "test", POCKET_ITEMS, setting.seed)}

    return carry_out("reproduce task files", out, settings, {}, write)


def _tasks(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    own = setting.data.benchmarks
    config = VerifyTasks(
        own or (str(setting.at("task-files") / "files"),),
        str(setting.at("scores")),
        amounts(setting)[-1:],
        setting.model,
        limit=setting.steering.limit or (ITEMS if own else None),
        removal=Removal(
            draws=setting.steering.draws or DRAWS,
            threshold=THRESHOLD,
            seed=setting.seed,
            batch_tokens=setting.batch_tokens,
        ),
        rank=ranked_by(setting),
    )
    return encode(verify_tasks(config, out, progress))


def _tell(setting: Setting) -> Findings:
    told = _told(setting)
    tables, figures, found = [*told.tables], [*told.figures], [told.found]
    for other in _others(setting):
        own = _told(setting.of(other))
        tables += [replace(one, title=f"{one.title}, {other}") for one in own.tables]
        figures += [replace(one, title=f"{one.title}, {other}") for one in own.figures]
        found += [f"{other}: {own.found}"] if own.found else []
    return replace(told, tables=tables, figures=figures, found=" ".join(filter(None, found)))


def _told(setting: Setting) -> Findings:
    """What one model shows."""
    removal, found = texts_of(setting), setting.result("tasks")
    tables = [
        table for table in (tasks_table(setting, found), measures_table(setting, removal)) if table
    ]
    if found is None:
        return Findings(tuple(tables))
    said, sure = task_words(found, removal)
    return Findings(tuple(tables), (change_bars(found, removal),), said, sure, task_claim(found))


OTHER_TASKS = Experiment(
    "figure-9",
    ("Figure 9", "Figure 19", "Figure 20", "Figure 21"),
    "What other tasks lose without these heads",
    _steps,
    _tell,
    _needs,
)
