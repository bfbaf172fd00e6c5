"""The runs that the experiments need: each a study with the paper's settings, and its work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from headscope.measure.sequence import draws_for
from headscope.papers.claims import LEVEL
from headscope.papers.heads_up.tasks import (
    NAME,
    Task,
    check_file,
    defaults,
    directions,
    first_task,
    of_printed,
)
from headscope.papers.paper import Setting, Step
from headscope.papers.published import ANY, paper_model, published_claims, value
from headscope.papers.study_steps import study_step
from headscope.papers.work import read, written
from headscope.studies.compare.masks import CompareMasks
from headscope.studies.compare.states import CompareStates
from headscope.studies.costs.estimate import Work
from headscope.studies.find.mask import FindMask
from headscope.studies.models import ModelChoice
from headscope.studies.verify.attention import VerifyAttention
from headscope.studies.verify.families import VerifyFamilies
from headscope.studies.verify.mask import VerifyMask
from headscope.studies.verify.one_by_one import OneByOne
from headscope.studies.verify.scaling import VerifyScaling
from headscope.verify.masked_tasks.conditions import ALL
from headscope.verify.one_by_one_steps import Order

#: How a mask is trained: as in the main text, from hardly any head, on queries, with gates of
#: feed-forward layers, or on prompts with five examples.
Kind = Literal["", "negative", "query", "feed-forward", "shots"]
#: What each kind changes of a training, and its title.
_KINDS: Mapping[Kind, tuple[Mapping[str, Any], str]] = {
    "": ({}, "mask for {}"),
    "negative": ({"start": "negative"}, "mask for {}, begun with hardly any head"),
    "query": ({"on": "query"}, "mask of queries for {}"),
    "feed-forward": ({"feed_forward": True}, "mask of heads and feed-forward layers for {}"),
    "shots": ({}, "mask for {} with five examples"),
}
#: Steps and padded tokens at once of a training by the small-model and the paper's preset.
_SMALL_STEPS, _BATCH, _AT_ONCE = 600, 16, 256
#: What a masked model writes is longer than the right output: it may go on to the limit.
_WRITTEN = 1.4

STATES = "states"
RISING, INFLUENTIAL, NEGATIVE = "walk", "walk-influential", "walk-negative"
_ORDERS = {
    RISING: "heads go one by one, lowest weight first",
    INFLUENTIAL: "heads go one by one, the most influential first",
    NEGATIVE: "heads go one by one, by a mask begun with hardly any head",
}
#: Heads that the paper removes by influence, and of how many.
_REMOVED, _OF = 320, 1024
#: Prompts whose heads are removed one by one; the paper has one. Random orders, without texts.
PROMPTS = {True: 10, False: 1}
_RANDOM_ORDERS = 2
#: The share of the work that is left, since steps share the layers below what they change.
_SHARED = 0.6
#: The claims of the paper, and the draws after which one of them can hold.
CLAIMS = len(published_claims(NAME))
DRAWS = draws_for(CLAIMS, LEVEL)
#: Random masks where no claim rests on them, as many as the least p of 0.05 takes.
_NOTED_DRAWS = 19
#: Shuffled masks that are scaled likewise for Figure 6, which only shows them; the paper has none.
_GRID_DRAWS = 2
#: The share of all heads that every mask keeps in the paper (section 4), and which of those are
#: removed here, the surest: of few and large masks all are so many that any removal is harmful.
SHARED = 177 / 1024
#: Shuffled masks of Table 7: few, because the p-values are of random sets of heads.
_ATTENTION_DRAWS = 3


def slug(model: str) -> str:
    """A model's name as part of a folder's."""
    return re.sub(r"[^\w.-]+", "-", model.rstrip("/").rpartition("/")[2]).strip("-")


def mask_name(task: Task, kind: Kind = "", other: str | None = None) -> str:
    """The step that trains a task's mask, of another model if one is named."""
    name = f"mask-{task.name}" + (f"-{kind}" if kind else "")
    return f"{name}-of-{slug(other)}" if other else name


def proof_name(task: Task, kind: Kind = "", other: str | None = None) -> str:
    """The step that tests it on held-out examples."""
    return mask_name(task, kind, other).replace("mask-", "proof-", 1)


def swap_name(task: Task, other: str) -> str:
    """The step that tests the mask of another model on this one."""
    return f"swap-{task.name}-of-{slug(other)}"


def paper_training(name: str, translation: bool, model: str | None) -> float | None:
    """A setting of a training that the paper prints (appendix B for one model, else Table 11)."""
    place = {"row": "translation" if translation else "word task", "column": name}
    own = value(NAME, "Section B", model=model or ANY, measure="setting", **place)
    return own or value(NAME, "Table 11", model=ANY, measure="setting", **place)


def training_changes(
    setting: Setting, translation: bool, kind: Kind = "", other: str | None = None
) -> dict[str, Any]:
    """What differs from the preset: the paper's steps where the model is not small, and the kind.

    The preset is `paper` or, below 256 heads, `small`, which `find mask` chooses by itself.
    """
    steps: dict[str, Any] = {}
    if setting.steering.steps is not None:
        steps = {"steps": setting.steering.steps}
    elif not setting.small:
        model = paper_model(NAME, other or setting.model.model)
        steps = {"steps": _whole("steps", translation, model)}
        if (batch := _whole("batch size", translation, model)) != _BATCH:
            steps["batch"] = batch
    return {**steps, **_KINDS[kind][0]}


def _whole(name: str, translation: bool, model: str | None = None) -> int:
    return int(paper_training(name, translation, model) or 0)


def draws_of(setting: Setting, text: bool = True) -> int:
    """Random sets of each kind for a claim; the paper has one.

    Of the bundled model as many as let one of the paper's claims hold; of others fewer where the
    model writes than where losses alone are taken.
    """
    return setting.steering.draws or (DRAWS if setting.pocket else 39 if text else 99)


def noted_draws(setting: Setting) -> int:
    """Random sets of each kind that are only shown."""
    return setting.steering.draws or _NOTED_DRAWS


def shared_heads(setting: Setting) -> int:
    """How many of the heads that all masks keep are removed at most."""
    return round(SHARED * setting.geometry.total)


def mask_step(setting: Setting, task: Task, kind: Kind = "", other: str | None = None) -> Step:
    """Train a mask; all but those of the default tasks, begun with all heads, are extended."""
    changes = training_changes(setting, task.translation, kind, other)

    def settings(setting: Setting) -> FindMask:
        model = _model(setting, other)
        return FindMask(model, task.choice, changes=changes, seed=setting.seed)

    title = _KINDS[kind][1].format(task.name) + (f", of {slug(other)}" if other else "")
    work, extended = training_work(setting, task), bool(kind) or not task.default
    name = mask_name(task, kind, other)
    return study_step("find mask", settings, name, title, work, extended=extended)


def mask_test_step(
    setting: Setting,
    name: str,
    title: str,
    task: Task,
    mask: str,
    *,
    foreign: str | None = None,
    hybrid: str | None = None,
    other: str | None = None,
    draws: int = 0,
    extended: bool = False,
) -> Step:
    """Test the mask of a step on a task, and so many random ones of each kind.

    `foreign` and `hybrid` name the steps of other masks, `other` is the model where it is another.
    Draws are not ended early: a claim is about several tasks, which have the same draws.
    """
    others = [step for step in (foreign, hybrid) if step is not None]

    def settings(setting: Setting) -> VerifyMask:
        return VerifyMask(
            masks=(str(setting.at(mask)),),
            tasks=task.choice,
            model=_model(setting, other),
            draws=draws,
            seed=setting.seed,
            foreign=() if foreign is None else (str(setting.at(foreign)),),
            hybrid=None if hybrid is None else str(setting.at(hybrid)),
            # The paper's ROUGE-L sees what follows a translation, too.
            paragraphs=not setting.pocket,
            batch_tokens=setting.batch_tokens,
        )

    work = evaluation_work(setting, task, 3 + len(others) + 2 * draws)
    return study_step("verify mask", settings, name, title, work, (mask, *others), extended)


def proof_step(setting: Setting, task: Task, kind: Kind = "", other: str | None = None) -> Step:
    """Test a mask: as is, instructed, masked, and under shuffled masks of both kinds.

    Claims are about this model's masks of the default tasks.
    """
    mask, name = mask_name(task, kind, other), proof_name(task, kind, other)
    title, extended = f"{mask} on held-out examples", bool(kind) or not task.default
    draws = noted_draws(setting) if extended or other else draws_of(setting)
    return mask_test_step(
        setting, name, title, task, mask, other=other, draws=draws, extended=extended
    )


def trained(
    setting: Setting, tasks: Iterable[Task], kind: Kind = "", other: str | None = None
) -> tuple[Step, ...]:
    """The masks of tasks, each with its test."""
    made = (mask_step, proof_step)
    return tuple(step(setting, task, kind, other) for task in tasks for step in made)


def swap_step(setting: Setting, task: Task, other: str) -> Step:
    """Test another model's mask on this model."""
    title = f"mask of {slug(other)} for {task.name} on this model"
    own, foreign = mask_name(task), mask_name(task, other=other)
    name, extended = swap_name(task, other), not task.default
    return mask_test_step(setting, name, title, task, own, foreign=foreign, extended=extended)


def scaling_step(setting: Setting, task: Task) -> Step:
    """Scale the heads outside a mask by values from 0 to 1."""
    draws = noted_draws(setting)
    grid_draws = min(_GRID_DRAWS, draws)
    values = 11 + 10 * grid_draws + 2
    # Half of the examples each; all are instructed but the last two of the values.
    work = evaluation_work(setting, task, values / 2, values / 2 - 1, write=False)
    work += evaluation_work(setting, task, (3 + 2 * draws) / 2, (3 + 2 * draws) / 2)
    own = partial(
        VerifyScaling,
        check_data=check_file(setting, task.name),
        grid_draws=grid_draws,
        batch_tokens=setting.batch_tokens,
    )
    name, title = f"scaling-{task.name}", f"heads outside the mask for {task.name} scaled"
    return _on_mask(setting, "verify scaling", own, task, draws, name, title, work)


def _on_mask(
    setting: Setting,
    study: str,
    kind: Callable[..., Any],
    task: Task,
    draws: int,
    name: str,
    title: str,
    work: Work,
) -> Step:
    """A study of the mask of a task, against so many shuffled masks."""
    mask = mask_name(task)

    def settings(setting: Setting) -> Any:
        masks = (str(setting.at(mask)),)
        return kind(
            masks=masks,
            tasks=task.choice,
            model=_model(setting),
            draws=draws,
            seed=setting.seed,
        )

    return study_step(study, settings, name, title, work, (mask,), not task.default)


@dataclass(frozen=True)
class Families:
    """The masks of some directions, whose shared heads are removed from instructed ones."""

    name: str
    masks: tuple[Task, ...]
    tasks: tuple[Task, ...]
    kind: Kind = ""

    def settings(self, setting: Setting) -> VerifyFamilies:
        """Those of `verify families`: all tasks in one choice, held out as their masks were."""
        masks = tuple(f"{t.name}={setting.at(mask_name(t, self.kind))}" for t in self.masks)
        data = tuple(dict.fromkeys(place for task in self.tasks for place in task.choice.data))
        pairs = tuple(task.choice.pair[0] for task in self.tasks)
        return VerifyFamilies(
            masks=masks,
            tasks=replace(self.tasks[0].choice, pair=pairs, data=data),
            model=_model(setting),
            k=shared_heads(setting),
            draws=draws_of(setting, text=False),
            claims=setting.claims(ALL),
            seed=setting.seed,
            batch_tokens=setting.batch_tokens,
            # Directions of one parallel corpus share sentences: what one holds out is among what
            # another's mask was trained on. The result counts these.
            allow_overlap=bool(setting.data.pairs),
        )

    def steps(self, setting: Setting) -> tuple[Step, ...]:
        """The masks, and what is removed."""
        masks = tuple(mask_step(setting, task, self.kind) for task in self.masks)
        spoken = Counter(code for task in self.masks for code in set(task.name.split("-")))
        # All masks, the languages of some but not all of at least two, and unused heads.
        families = 2 + sum(2 <= count < len(self.masks) for count in spoken.values())
        # Of each direction the whole model, and each family's heads with two kinds of draws.
        conditions = 1 + families * (1 + 2 * draws_of(setting, text=False))
        measured = len(self.tasks) * conditions
        title = f"heads shared by {len(self.masks)} masks, by those of a language, and by none"
        title += ", begun with hardly any head" if self.kind else ""
        work = evaluation_work(setting, self.tasks[0], measured, measured, write=False)
        needed, extended = tuple(mask.name for mask in masks), self.name != "families"
        tested = study_step(
            "verify families", self.settings, self.name, title, work, needed, extended,
            setting.ends_early,
        )  # fmt: skip
        return *masks, tested


def families_of(setting: Setting) -> tuple[Families, ...]:
    """The masks of the default directions; and those of all, begun with all heads and with few.

    Both are tested on the default directions, as the paper tests those of its Table 1.
    """
    every = directions(setting)
    tested = defaults(every)
    whole = (Families("families-every", every, tested),) if len(every) > len(tested) else ()
    negative = Families("families-negative", every, tested, "negative")
    return Families("families", tested, tested), *whole, negative


def attention_step(setting: Setting, task: Task) -> Step:
    """Attention on the right one of several words, under a task's mask."""
    draws = setting.steering.draws or _ATTENTION_DRAWS
    pooled = True if setting.as_published else None
    own = partial(VerifyAttention, pooled=pooled, batch_tokens=setting.batch_tokens)
    work = evaluation_work(setting, task, 4 + draws, 2, write=False)
    name, title = f"attention-{task.name}", f"attention on the right word, {task.name}"
    return _on_mask(setting, "verify attention", own, task, draws, name, title, work)


def compared_steps(
    setting: Setting, name: str, tasks: Sequence[Task], other: str | None = None
) -> tuple[Step, ...]:
    """The default masks, and all of them, compared with each other or with another model's."""

    def compared(part: Sequence[Task], ending: str) -> Step:
        own = tuple(mask_name(task) for task in part)
        base = tuple(mask_name(task, other=other) for task in part) if other else ()
        partner = f"those of {slug(other)}" if other else "each other"

        def settings(setting: Setting) -> CompareMasks:
            ours, theirs = (tuple(str(setting.at(mask)) for mask in masks) for masks in (own, base))
            return CompareMasks(ours, theirs)

        title, after = f"{len(part)} masks compared with {partner}", (*own, *base)
        step = f"{name}{ending}"
        return study_step("compare masks", settings, step, title, Work(), after, bool(ending))

    default = defaults(tasks)
    masks = [mask_step(setting, task, other=other) for task in tasks]
    every = [compared(tasks, "-every")] if len(tasks) > len(default) else []
    return (*masks, compared(default, ""), *every)


def states_name(setting: Setting, task: Task) -> str:
    """The step of a task's states; the first task's are those of Figure 4."""
    first = first_task(setting)
    return STATES if first is None or first.name == task.name else f"{STATES}-{task.name}"


def states_steps(setting: Setting, task: Task) -> tuple[Step, ...]:
    """The mask of a task, and the states under it."""
    name = states_name(setting, task)
    printed = bool(setting.data.pairs) and name != STATES  # Table 4's own
    mask, draws = mask_step(setting, task), noted_draws(setting)

    def settings(setting: Setting) -> CompareStates:
        return CompareStates(
            heads=str(setting.at(mask.name)),
            model=_model(setting),
            tasks=of_printed(task).choice if printed else task.choice,
            example="3" if printed else None,  # by its line
            draws=draws,
            seed=setting.seed,
            batch_tokens=setting.batch_tokens,
        )

    # Four conditions, two of them instructed, and the bare prompt under shuffled masks.
    work = evaluation_work(setting, task, 4 + 2 * draws, 2, write=False)
    title = "hidden states and the instructed model's"
    return mask, study_step("compare states", settings, name, title, work, (mask.name,))


def order_steps(setting: Setting, task: Task, name: str) -> tuple[Step, ...]:
    """A task's mask, and its heads removed one by one in the order of that name."""
    kind: Kind = "negative" if name == NEGATIVE else ""
    order: Order = "pass" if name == INFLUENTIAL else "ascending"
    random, prompts = _RANDOM_ORDERS if name == RISING else 0, PROMPTS[setting.small]
    total, mask = setting.geometry.total, mask_step(setting, task, kind)
    removed = max(1, round(total * _REMOVED / _OF)) if setting.small else min(total, _REMOVED)
    task = of_printed(task) if on_printed(setting, task) else task
    # A pass and a text for each prompt and step; random orders and the first look have none.
    some = replace(task, size=replace(task.size, tested=prompts))
    answered = removed if order == "pass" else total
    work = evaluation_work(setting, some, answered, 0)
    if silent := random * total + (removed if order == "pass" else 0):
        work += evaluation_work(setting, some, silent, 0, write=False)

    def settings(setting: Setting) -> OneByOne:
        return OneByOne(
            heads=str(setting.at(mask.name)),
            model=_model(setting),
            order=order,
            reorder=removed,
            steps=removed if order == "pass" else None,
            tasks=task.choice,
            examples=prompts,
            draws=random,
            seed=setting.seed,
            batch_tokens=setting.batch_tokens,
            rank="score",
        )

    title, work, after = _ORDERS[name], work * _SHARED, (mask.name,)
    return mask, study_step("verify one-by-one", settings, name, title, work, after, bool(kind))


def on_printed(setting: Setting, task: Task | None) -> bool:
    """Whether the one prompt whose heads are removed is the paper's."""
    return task is not None and task.name == "en-zh" and PROMPTS[setting.small] == 1


def training_work(setting: Setting, task: Task) -> Work:
    """Steps x batch x tokens, each passed with a gradient for the gates."""
    usual = _SMALL_STEPS if setting.small else _whole("steps", task.translation)
    rows = (setting.steering.steps or usual) * _BATCH
    return read(rows, task.size.bare + task.size.answer, _AT_ONCE, gradients=True)


def evaluation_work(
    setting: Setting, task: Task, conditions: float, instructed: float = 1, write: bool = True
) -> Work:
    """Losses of the right outputs and, unless `write` is False, outputs, once a condition.

    `instructed` of the conditions have the longer prompt.
    """
    size, batch = task.size, setting.batch_tokens
    prompt = size.bare + (size.instructed - size.bare) * instructed / conditions
    rows = conditions * size.tested
    work = read(rows, prompt + size.answer, batch, size.tested)
    if not write:
        return work
    # A batch goes on until its last text ends: a sentence at its limit, a word after ten tokens.
    most = 2 * prompt + 32 if task.translation else 10
    answer = _WRITTEN * size.answer if task.translation else most
    return work + written(rows, prompt, answer, batch, size.tested, steps=most)


def _model(setting: Setting, other: str | None = None) -> ModelChoice:
    """The setting's model, or another one, loaded likewise; as published without a system turn."""
    model = setting.model
    if setting.as_published and model.system is None:
        model = replace(model, system="none")
    return model if other is None else replace(model, model=other, revision=None)
