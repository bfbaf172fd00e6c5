"""Figure 2: heads removed one by one in the order of the weights; other walks go alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from headscope.papers.heads_up.asked import NO_PAIRS, Asked, first_task, of_printed, too_few
from headscope.papers.heads_up.beside import Beside, beside
from headscope.papers.heads_up.steps import Kind, mask_name, mask_step
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.runs import encode
from headscope.shown.blocks import Cell, Findings, Lines, Row, Series, Table
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress
from headscope.studies.verify.one_by_one import OneByOne, verify_one_by_one
from headscope.verify.one_by_one import Order

WALK, INFLUENTIAL, NEGATIVE = "walk", "walk-influential", "walk-negative"
#: Heads that the paper removes by influence, and of how many.
LOOKED_AT, OF = 320, 1024
#: Prompts that are walked over; the paper has one. Random orders beside, without texts.
PROMPTS = {True: 10, False: 1}
RANDOM_ORDERS = 2
#: The row of the switch: prompts that begin with the target, such as names, have none.
SWITCH = "target comes first, median over prompts where it is not at the start"
#: Why the paper's numbers of heads are no measure for ours, whatever the model.
ONE_PROMPT = "the paper's are of one prompt of its own, English to Chinese"
#: The share of a walk's work that is left, since steps share the layers below what they change.
SHARED = 0.6
#: Texts that Figure 2 shows.
TEXTS = 16
_TITLES = {
    WALK: "heads go one by one, lowest weight first",
    INFLUENTIAL: "heads go one by one, the most influential first",
    NEGATIVE: "heads go one by one, by a mask begun with hardly any head",
}


def _walk(
    task: Asked, mask: str, order: Order, random_orders: int,
    setting: Setting, place: Path, progress: Progress | None,
) -> Mapping[str, Any]:  # fmt: skip
    config = OneByOne(
        str(setting.at(mask)),
        model=setting.model,
        order=order,
        reorder=looked_at(setting),
        steps=looked_at(setting) if order == "pass" else None,
        tasks=task.choice,
        examples=PROMPTS[setting.small],
        random_orders=random_orders,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
        rank="score",
    )
    return encode(verify_one_by_one(config, place, progress))


def looked_at(setting: Setting) -> int:
    """How many heads are removed by influence: 320, or that share of a small model's heads."""
    total = setting.geometry.total
    return min(total, LOOKED_AT) if not setting.small else max(1, round(total * LOOKED_AT / OF))


def _printed(setting: Setting, task: Asked | None) -> bool:
    """Whether the one prompt that is walked over is the paper's."""
    return task is not None and task.name == "en-zh" and PROMPTS[setting.small] == 1


def beside_walk(setting: Setting, figure: str) -> Beside:
    """What the paper has of its prompt, which is ours where the direction is its own."""
    if _printed(setting, first_task(setting)):
        return beside(setting, figure, "XNLI")
    return beside(setting, figure, other=ONE_PROMPT)


def walk_step(setting: Setting, task: Asked, name: str) -> Step:
    """Remove the heads one by one under a task's mask."""
    kind: Kind = "negative" if name == NEGATIVE else ""
    order: Order = "pass" if name == INFLUENTIAL else "ascending"
    random = RANDOM_ORDERS if name == WALK else 0
    mask = mask_name(task, kind)
    task = of_printed(task) if _printed(setting, task) else task
    steps = setting.geometry.total if order != "pass" else 2 * looked_at(setting)
    return Step(
        name,
        _TITLES[name],
        partial(_walk, task, mask, order, random),
        _work(setting, task, steps, random, order),
        (mask,),
        extended=bool(kind),
    )


def _work(setting: Setting, task: Asked, steps: int, random: int, order: Order) -> Work:
    """A pass and a text for each prompt and step; random orders and the first look have none."""
    size, prompts = task.size, PROMPTS[setting.small]
    passes = prompts * (steps + random * setting.geometry.total)
    texts = prompts * (steps / 2 if order == "pass" else steps)
    rows = max(1.0, setting.batch_tokens // (size.bare + size.answer))
    most = 2 * size.bare + 32 if task.translation else 10.0
    whole = Work(
        forward=(passes + texts) * size.bare,
        generated=texts * most,
        length=size.bare + size.answer,
        rows=rows,
        calls=(passes + texts * most) / rows,
    )
    return whole * SHARED


def walk_steps(name: str) -> Callable[[Setting], tuple[Step, ...] | Missing]:
    """The walk of this name with what it needs, and beside it that of Figure 2."""

    def steps(setting: Setting) -> tuple[Step, ...] | Missing:
        task = first_task(setting)
        if task is None:
            return Missing(*NO_PAIRS)
        kind: Kind = "negative" if name == NEGATIVE else ""
        needed = [mask_step(setting, task, kind), walk_step(setting, task, name)]
        if name != WALK:
            needed = [mask_step(setting, task), walk_step(setting, task, WALK), *needed]
        return tuple({step.name: step for step in needed}.values())

    return steps


def _line(name: str, values: list[float]) -> Series:
    return Series(name, tuple((float(step), value) for step, value in enumerate(values)))


def rank_lines(result: Mapping[str, Any], title: str) -> Lines:
    """The target's rank, and those of the tokens that came first, by heads removed."""
    rows = (result["baseline"], *result["steps"])
    series = [_line("target", [float(row["target_rank_median"]) for row in rows])]
    series += [
        _line(f"first {place + 1} at the start", [float(row["top5_ranks"][place]) for row in rows])
        for place in range(len(result["baseline"]["top5_ranks"]))
    ]
    series += [
        _line(f"target, random order {number + 1}", [float(v) for v in one["target_rank_median"]])
        for number, one in enumerate(result["random_orders"])
    ]
    return Lines(
        title,
        tuple(series),
        "heads removed",
        "rank",
        note="Of the target the median over prompts, of the tokens that came first means.",
    )


def text_table(result: Mapping[str, Any], title: str) -> Table:
    """What is written for the first prompt: the texts that stay longest, in order."""
    example = result["example"]
    texts = example["texts"]
    ends = [*(one["step"] for one in texts[1:]), len(result["heads"]) + 1]
    lasts = {one["step"]: end - one["step"] for one, end in zip(texts, ends, strict=True)}
    kept = sorted(lasts, key=lambda step: (-lasts[step], step))[:TEXTS]
    shown = [one for one in texts if one["step"] in kept]
    return Table(
        title,
        ("output", "for so many removals"),
        tuple(
            Row(f"{step} removed", (Cell(text or ""), Cell(lasts[step], digits=0)))
            for step, text in ((one["step"], one["text"]) for one in shown)
        ),
        note=f"Prompt: {example['prompt']!r}; right is {example['target']!r}. "
        f"{len(shown)} of {len(texts)} texts, those that stay longest.",
    )


def target_first(result: Mapping[str, Any]) -> tuple[int, int, float | None]:
    """Prompts in which the target never comes first, prompts, and the median first step.

    The median is of the prompts whose target is not first with all heads, which have nothing to
    switch to; None if it never comes first in half of them, or there are none.
    """
    found = result["target_first"]["first_steps"]
    later = [inf if step is None else float(step) for step in found if step != 0]
    middle = median(later) if later else inf
    return sum(step is None for step in found), len(found), None if middle == inf else middle


def _walk_tell(setting: Setting) -> Findings:
    result = setting.result(WALK)
    if result is None:
        return Findings()
    place = beside_walk(setting, "Figure 2")
    cut = (result["mask"] or {}).get("cut_step")
    never, prompts, middle = target_first(result)
    total = len(result["heads"])
    share = result["target_first"]["share"]
    chrf = [row["chrf"] for row in (result["baseline"], *result["steps"])]
    best = max(range(len(share)), key=lambda step: share[step])
    row = "removal in order of weight"
    table = Table(
        "When the task takes over",
        ("heads removed", "share of heads"),
        (
            _when(SWITCH, middle, total, place.value(row, "behaviour switches", "heads")),
            _when("most prompts with the target first", best, total),
            _when("exactly the mask's heads are left", cut, total),
        ),
        place.reference,
    )
    found = (
        f"As heads go by rising weight, the target is the likeliest first token in "
        f"{share[0]:.0%} of {prompts} prompts with all heads, and in {share[best]:.0%} when {best} "
        f"of {total} are gone"
    )
    if cut is not None:
        found += f"; with exactly the mask's heads left ({cut} gone) it is {share[cut]:.0%}"
        if chrf[cut] is not None:
            found += f", and chrF++ of the texts {chrf[cut]:.1f} after {chrf[0]:.1f}"
    found += "."
    random = [max(one["target_first"]) for one in result["random_orders"]]
    sure = f"{prompts} prompts"
    if random:
        sure += (
            f"; in {len(random)} random orders the target is first in at most "
            f"{max(random):.0%} of them"
        )
    if never:
        sure += f"; in {never} prompts the target never comes first"
    return Findings(
        (table, text_table(result, "What is written for the first prompt")),
        (rank_lines(result, "Rank of the target as heads go by rising weight"),),
        found,
        f"{sure}. The paper shows one prompt.",
        {"cut_step": cut, "share": list(share)},
    )


def _when(name: str, step: float | None, total: int, published: float | None = None) -> Row:
    if step is None:
        return Row(name, (Cell(published=published, why="never", digits=0), Cell(why="never")))
    return Row(name, (Cell(step, published=published, digits=0), Cell(step / total, digits=2)))


FIGURE_2 = Experiment(
    "figure-2",
    ("Figure 2",),
    "Heads removed one by one by rising weight: when the task takes over",
    walk_steps(WALK),
    _walk_tell,
    needs=lambda setting, element, steps: too_few(setting, ("en-zh",)),
)
