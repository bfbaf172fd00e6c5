"""The runs that the experiments need: each a recipe with the paper's settings, and its work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headscope.papers.heads_up.asked import Asked
from headscope.papers.heads_up.beside import NAME
from headscope.papers.paper import Setting, Step
from headscope.papers.published import paper_model
from headscope.runs import encode
from headscope.studies.costs.work import Work
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.inputs import ModelChoice, Progress
from headscope.studies.verify.mask import VerifyMask, verify_mask
from headscope.verify.masks.asking import Asking

#: How a mask is trained: as in the main text, from hardly any head, on queries, with gates of
#: feed-forward layers, or on prompts with five examples.
Kind = Literal["", "negative", "query", "feed-forward", "shots"]
_CHANGES: Mapping[Kind, Mapping[str, Any]] = {
    "": {},
    "negative": {"start": "negative"},
    "query": {"on": "query"},
    "feed-forward": {"feed_forward": True},
    "shots": {},
}
_TITLES: Mapping[Kind, str] = {
    "": "mask for {}",
    "negative": "mask for {}, begun with hardly any head",
    "query": "mask of queries for {}",
    "feed-forward": "mask of heads and feed-forward layers for {}",
    "shots": "mask for {} with five examples",
}
#: Steps of a translation task and of a word task (Table 11); other settings are the preset's.
PAPER_STEPS = {True: 6190, False: 6250}
#: Of the largest model the paper trains directions in smaller batches, twice as many (appendix B).
SMALLER_BATCHES = {"Qwen2.5-14B-Instruct": {"steps": 12370, "batch": 8}}
#: Steps and padded tokens at once of a training by the small-model and the paper's preset.
_SMALL_STEPS, _BATCH, _AT_ONCE = 600, 16, 256
#: What a masked model writes is longer than the right output: it may go on to the limit.
_WRITTEN = 1.4


def slug(model: str) -> str:
    """A model's name as part of a folder's."""
    return re.sub(r"[^\w.-]+", "-", model.rstrip("/").rpartition("/")[2]).strip("-")


def mask_name(task: Asked, kind: Kind = "", other: str | None = None) -> str:
    """The step that trains a task's mask, of another model if one is named."""
    name = f"mask-{task.name}" + (f"-{kind}" if kind else "")
    return f"{name}-of-{slug(other)}" if other else name


def proof_name(task: Asked, kind: Kind = "", other: str | None = None) -> str:
    """The step that tests it on held-out examples."""
    return mask_name(task, kind, other).replace("mask-", "proof-", 1)


def swap_name(task: Asked, other: str) -> str:
    """The step that tests the mask of another model on this one."""
    return f"swap-{task.name}-of-{slug(other)}"


def model_of(setting: Setting, other: str | None) -> ModelChoice:
    """The setting's model, or another one, loaded likewise."""
    return setting.model if other is None else replace(setting.model, model=other, revision=None)


def training_changes(
    setting: Setting, translation: bool, kind: Kind = "", other: str | None = None
) -> dict[str, Any]:
    """What differs from the preset: the paper's steps where the model is not small, and the kind.

    The preset is `paper` or, below 256 heads, `small`, which `find mask` chooses by itself.
    """
    if setting.steering.steps is not None:
        return {"steps": setting.steering.steps, **_CHANGES[kind]}
    steps: Mapping[str, int] = {} if setting.small else {"steps": PAPER_STEPS[translation]}
    if translation and not setting.small:
        named = paper_model(NAME, other or setting.model.model)
        steps = SMALLER_BATCHES.get(named or "", steps)
    return {**steps, **_CHANGES[kind]}


def draws_of(setting: Setting, text: bool = True) -> int:
    """Random sets of each kind, of which the paper has one: enough for a p over draws of 0.05.

    Of the bundled model no more than that; of others more where the model writes, and most where
    losses alone are taken.
    """
    return setting.steering.draws or (19 if setting.pocket else 39 if text else 99)


def _train(
    task: Asked, kind: Kind, other: str | None,
    setting: Setting, place: Path, progress: Progress | None,
) -> Mapping[str, Any]:  # fmt: skip
    changes = training_changes(setting, task.translation, kind, other)
    model = model_of(setting, other)
    config = FindMask(model, task.choice, changes=changes, seed=setting.seed)
    return encode(find_mask(config, place, progress))


def _prove(
    task: Asked, mask: str, setting: Setting, place: Path, progress: Progress | None, *,
    other: str | None = None, foreign: tuple[str, ...] = (), hybrid: str | None = None,
    drawn: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """A mask on held-out examples, beside random ones where `drawn`.

    `foreign` and `hybrid` name the steps of other masks.
    """
    config = VerifyMask(
        (str(setting.at(mask)),),
        task.choice,
        model_of(setting, other),
        tuple(str(setting.at(one)) for one in foreign),
        None if hybrid is None else str(setting.at(hybrid)),
        draws_of(setting) if drawn else 0,
        setting.seed,
        # The paper's ROUGE-L sees what follows a translation, too.
        Asking(paragraphs=not setting.pocket, batch_tokens=setting.batch_tokens),
    )
    return encode(verify_mask(config, place, progress))


def mask_step(setting: Setting, task: Asked, kind: Kind = "", other: str | None = None) -> Step:
    """Train a mask; all but those of the default tasks, begun with all heads, are extended."""
    return Step(
        mask_name(task, kind, other),
        _TITLES[kind].format(task.name) + (f", of {slug(other)}" if other else ""),
        partial(_train, task, kind, other),
        training_work(setting, task),
        extended=bool(kind) or not task.default,
    )


def proof_step(setting: Setting, task: Asked, kind: Kind = "", other: str | None = None) -> Step:
    """Test a mask: as is, instructed, masked, and under shuffled masks of both kinds."""
    mask = mask_name(task, kind, other)
    return Step(
        proof_name(task, kind, other),
        f"{mask} on held-out examples",
        partial(_prove, task, mask, other=other, drawn=True),
        asking_work(setting, task, 1 + 1 + 1 + 2 * draws_of(setting)),
        (mask,),
        extended=bool(kind) or not task.default,
    )


def trained(
    setting: Setting, tasks: Iterable[Asked], kind: Kind = "", other: str | None = None
) -> tuple[Step, ...]:
    """The masks of tasks, each with its test."""
    made = (mask_step, proof_step)
    return tuple(step(setting, task, kind, other) for task in tasks for step in made)


def swap_step(setting: Setting, task: Asked, other: str) -> Step:
    """Test another model's mask on this model."""
    own, foreign = mask_name(task), mask_name(task, other=other)
    return Step(
        swap_name(task, other),
        f"mask of {slug(other)} for {task.name} on this model",
        partial(_prove, task, own, foreign=(foreign,)),
        asking_work(setting, task, 4),
        (own, foreign),
        extended=not task.default,
    )


def prove(
    setting: Setting,
    name: str,
    title: str,
    task: Asked,
    mask: str,
    hybrid: str | None = None,
    extended: bool = False,
    other: str | None = None,
) -> Step:
    """Test a mask on other examples than its own, or beside one of several tasks."""
    after = (mask,) if hybrid is None else (mask, hybrid)
    return Step(
        name,
        title,
        partial(_prove, task, mask, other=other, hybrid=hybrid),
        asking_work(setting, task, 3 + (hybrid is not None)),
        after,
        extended,
    )


def training_work(setting: Setting, task: Asked) -> Work:
    """Steps x batch x tokens, each passed with a gradient for the gates."""
    usual = _SMALL_STEPS if setting.small else PAPER_STEPS[task.translation]
    steps = setting.steering.steps or usual
    length = task.size.bare + task.size.answer
    tokens = steps * _BATCH * length
    rows = max(1.0, _AT_ONCE // length)
    return Work(backward=tokens, length=length, rows=rows, calls=tokens / (rows * length))


def asking_work(
    setting: Setting, task: Asked, conditions: float, told: float = 1, write: bool = True
) -> Work:
    """Losses of the right outputs and, unless `write` is False, outputs, once a condition.

    `told` of the conditions have the instructed prompt, which is longer.
    """
    size = task.size
    prompt = size.bare + (size.told - size.bare) * told / conditions
    length = prompt + size.answer
    rows = min(float(size.tested), max(1.0, setting.batch_tokens // length))
    forward = conditions * size.tested * length
    work = Work(forward=forward, length=length, rows=rows, calls=forward / (rows * length))
    if not write:
        return work
    # A batch goes on until its last text ends: a sentence at its limit, a word after ten tokens.
    most = 2 * prompt + 32 if task.translation else 10
    written = conditions * size.tested * (_WRITTEN * size.answer if task.translation else most)
    return work + Work(
        forward=conditions * size.tested * prompt,
        generated=written,
        length=length,
        rows=rows,
        calls=conditions * most * max(1.0, size.tested / rows),
    )
