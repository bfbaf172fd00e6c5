"""Table 7: attention on the right one of several words, by heads in and out of the mask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.heads_up.asked import CHOICES, Asked, too_few, word_tasks
from headscope.papers.heads_up.beside import beside, listed, not_run
from headscope.papers.heads_up.steps import mask_name, mask_step
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Cell, Claim, Findings, grid
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress
from headscope.studies.verify.attention import VerifyAttention, verify_attention

DRAWS = 3
#: Rows of Table 7 by the paper's names: our condition, and which heads.
ROWS = {
    "original, all heads": ("as is", "all"),
    "instructed, all heads": ("instructed", "all"),
    "instructed, heads in the mask": ("instructed", "in"),
    "instructed, heads outside the mask": ("instructed", "out"),
    "mask, heads in the mask": ("masked", "in"),
    "mask, heads outside the mask": ("masked", "out"),
}


def _draws(setting: Setting) -> int:
    """Shuffled masks: few, because the p-values are of random sets of heads."""
    return setting.steering.draws or DRAWS


def _attend(
    task: Asked, setting: Setting, place: Path, progress: Progress | None
) -> Mapping[str, Any]:
    masks, draws = (str(setting.at(mask_name(task))),), _draws(setting)
    config = VerifyAttention(
        masks, setting.model, task.choice, draws, setting.seed, setting.batch_tokens
    )
    result: Mapping[str, Any] = encode(verify_attention(config, place, progress))
    return result


def _tasks(setting: Setting) -> tuple[Asked, ...]:
    """The paper's tasks that choose one of several words, as far as their files are there."""
    found = {task.name: task for task in word_tasks(setting)}
    return tuple(found[name] for name in CHOICES if name in found)


def _name(task: Asked) -> str:
    return f"attention-{task.name}"


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    tasks = _tasks(setting)
    if not tasks:
        return Missing(
            f"word tasks that choose one of several words ({listed(CHOICES)} of Todd et al., "
            "2024)" + ("; the bundled model has learned none" if setting.pocket else ""),
            "--tasks FOLDER with their files"
            + (" and another --model that can do them" if setting.pocket else ""),
            "needs MODEL" if setting.pocket else "needs DATA",
        )
    found, draws = [], _draws(setting)
    for task in tasks:
        tokens = task.size.tested * ((2 + draws) * task.size.bare + 2 * task.size.told)
        rows = min(float(task.size.tested), max(1.0, setting.batch_tokens // task.size.told))
        work = Work(forward=tokens, length=task.size.told, rows=rows, calls=4.0 + draws)
        title = f"attention on the right word, {task.name}"
        found += [
            mask_step(setting, task),
            Step(_name(task), title, partial(_attend, task), work, (mask_name(task),),
                 not task.default),
        ]  # fmt: skip
    return tuple(found)


def _tell(setting: Setting) -> Findings:
    tasks = _tasks(setting)
    place = beside(setting, "Table 7")
    by = {task.name: _conditions(setting, task) for task in tasks}

    def shown(name: str, task: str) -> Cell:
        if name == "uniform":
            even = by[task].get("as is")
            return not_run() if even is None else Cell(even["uniform"]["mean"])
        own, heads = ROWS[name]
        return _cell(by[task].get(own), heads, place.value(name, task, "attention"))

    table = grid(
        "Attention on the right word, as a share of that on all words to choose from",
        (*ROWS, "uniform"),
        by,
        shown,
        place.reference,
        "Attention of the last token of the prompt, mean over heads and held-out samples.",
    )
    ran = {name: own for name, own in by.items() if own}
    if not ran:
        return Findings((table,))
    claim = _claim(ran)
    found = f"Attention on the right word by heads in the mask, beside that by others: {claim.by}."
    return Findings((table,), (), found, _sure(ran), with_claims(claim))


def _conditions(setting: Setting, task: Asked) -> dict[str, Mapping[str, Any]]:
    result = setting.result(_name(task))
    if result is None:
        return {}
    return {one["condition"]: one for one in result["tasks"][task.name]["conditions"]}


def _cell(one: Mapping[str, Any] | None, heads: str, published: float | None) -> Cell:
    if one is None:
        return not_run(published)
    found = one["heads"].get(heads)
    if found is None or found["mean"] is None:
        return not_run(published, "no such heads")
    return Cell(found["mean"], found.get("low"), found.get("high"), published)


def _claim(ran: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Claim:
    """That a mask is no choice of heads that look at the right word, which is described."""
    told, signs = [], []
    for name, words in (("instructed", "instructed"), ("masked", "under the mask")):
        both = [own[name]["in_minus_out"]["mean"] for own in ran.values() if name in own]
        more = [value > 0 for value in both if value is not None]
        told.append(f"{words} in {sum(more)} of {len(more)}")
        signs += more
    named = "heads in the mask do not look at the right word more than heads outside it"
    return Claim(named, sum(signs) <= len(signs) / 2, f"more {', '.join(told)} tasks")


def _sure(ran: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    low = sum(
        own["masked"]["random"].get("p_value", 1.0) < 0.05
        for own in ran.values()
        if "masked" in own
    )
    return (
        "Beside random sets of as many heads, those of the mask lie apart (p below 0.05, "
        f"two-sided) in {low} of {len(ran)} tasks."
    )


TABLE_7 = Experiment(
    "table-7",
    ("Table 7",),
    "Whether heads of the mask look at the right word more than others",
    _steps,
    _tell,
    needs=lambda setting, element, steps: too_few(setting, CHOICES, words=True),
)
