"""Masks looked at closely: single outputs, training, hidden states, heads removed one by one.

Figures 1 to 5, 8 and 9, and Tables 4, 36 and 41.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean, median
from typing import Any

from headscope.data.words import plain_words
from headscope.estimates import Estimate, Floats
from headscope.evidence.headline import beside_random
from headscope.measure import bootstrap_mean
from headscope.measure.metrics import rouge_l
from headscope.papers.cells import Place, with_published
from headscope.papers.claims import Effect, claimed, of_effects, same_layers
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import (
    Case,
    exact,
    interval_words,
    levels_words,
    over_tasks,
    place_of,
    pooled,
    samples,
    scaled,
)
from headscope.papers.heads_up.masks import case_of
from headscope.papers.heads_up.tasks import (
    NAME,
    NO_MASKS,
    NO_PAIRS,
    Task,
    default_tasks,
    defaults,
    directions,
    first_task,
    needing,
    of_printed,
    too_few,
)
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step, Steps
from headscope.papers.published import published_claims
from headscope.papers.study_steps import joined, shown_by
from headscope.results.mask import FoundMask
from headscope.results.masked_tasks import MaskTests
from headscope.results.one_by_one import OneByOneDetails, OneByOneResult
from headscope.results.states import ComparedStates
from headscope.shown.blocks import Cell, Claim, Findings, Row, Table
from headscope.shown.words import count
from headscope.studies.models import kin

#: By how much a mask may do worse than an instruction and still does as well, or nearly, in ROUGE-L
#: and accuracy (0 to 1): as much as separates those of the paper's models that it calls alike in
#: Tables 22 to 31, whose means are -0.08 to +0.21, but -0.11 and -0.21 of two. It gives no number.
MARGIN = 0.10
CONDITIONS = {"original": "as is", "instructed": "instructed", "selected": "masked"}
#: The directions of Table 4, and that of Table 36.
TABLE_4, TABLE_36 = ("en-zh", "en-fr", "en-es", "en-de"), "zh-en"
#: The section of hidden states that Table 4 and Figure 4 show, and that of a walk in Figure 5.
LIKELIEST = "Likeliest tokens by layer"
MAPS = "Similarity of each layer's output to the reference"


def _outputs(setting: Setting, step: str, name: str, first: int) -> Findings:
    """The first outputs that the test of a mask shows."""
    tables = shown_by(setting, step, "Outputs").tables
    title = f"{name}: the same input under each condition"
    return Findings([replace(table, title=title, rows=table.rows[:first]) for table in tables])


def _first_steps(setting: Setting) -> Steps:
    tasks = default_tasks(setting)
    return runs.trained(setting, tasks) if tasks else NO_MASKS


def _firsts(setting: Setting) -> Findings:
    """The first held-out examples of every task, not chosen ones."""
    steps = {task.name: runs.proof_name(task) for task in default_tasks(setting)}
    shown = joined(_outputs(setting, step, name, 1) for name, step in steps.items())
    made = [samples(setting, step, name) for name, step in steps.items()]
    right = {
        name: [exact(answers[name])[0] for answers in made if answers.get(name)]
        for name in CONDITIONS
    }
    claims = _as_instructed(setting)
    if not right["original"]:
        return claimed(shown, *claims, in_words=True)
    counts = ", ".join(f"{sum(known)} {CONDITIONS[name]}" for name, known in right.items() if known)
    found = (
        f"Of the first held-out example of {len(right['original'])} tasks exactly the reference is "
        f"written for: {counts}."
    )
    shown = replace(shown, found=found, sure="Single examples; Tables 1 and 2 have the shares.")
    return claimed(shown, *claims, in_words=True)


def _as_instructed(setting: Setting) -> list[Claim]:
    """That under masks tasks are done as well as instructed, or nearly: what is written, over all
    directions and word tasks whose masks are trained by default."""
    tests = (case_of(setting, task, runs.proof_name(task)) for task in default_tasks(setting))
    cases = [case for case in tests if case and "instructed" in case.tests(case.written)]
    if not cases:
        return []
    gap, own = over_tasks(cases, _gap), dict[str, list[Case]]()
    for case in cases:
        own.setdefault(case.written, []).append(case)
    words = {"selected": CONDITIONS["selected"], "instructed": CONDITIONS["instructed"]}
    parts = [levels_words(of, measure, words) for measure, of in own.items()]
    return [
        of_effects(
            published_claims(NAME)["instructed"],
            f"masked against instructed {interval_words(gap)} on average over tasks; "
            + "; ".join(parts),
            [Effect(gap, least=-MARGIN)],
            sure=f"the difference from the instructed model, with a margin of {MARGIN:.2f}",
        )
    ]


def _gap(case: Case) -> Estimate | None:
    """What is written, masked against instructed."""
    return scaled(case.tests(case.written)["instructed"].difference, case.written)


FIRSTS = Experiment(
    "figure-1", ("Figure 1",), "The same input with and without the mask", _first_steps, _firsts
)


def _size_tasks(setting: Setting) -> tuple[Task, ...]:
    """The default directions, and Table 36's, which a folder has besides."""
    return tuple(task for task in directions(setting) if task.default or task.name == TABLE_36)


def _sizes(setting: Setting) -> tuple[str | None, ...]:
    """The model, None, and the other sizes of its family, by their names."""
    others = setting.data.others if setting.data.pairs else ()
    return (None, *kin(setting.model.model, others, r"\d+(\.\d+)?[bm]\b"))


def _on_sentence(setting: Setting, task: Task) -> bool:
    """Whether the paper's sentence is tested: of the directions that Table 4 has."""
    return bool(setting.data.pairs) and task.name in TABLE_4


def _printed_name(task: Task, other: str | None) -> str:
    return runs.proof_name(task, other=other).replace("proof-", "printed-", 1)


def _probed(setting: Setting) -> Task | None:
    """Whose first tokens Table 4 shows: English to German, else the first direction."""
    every = defaults(directions(setting))
    return next((task for task in every if task.name == "en-de"), next(iter(every), None))


def _size_steps(setting: Setting) -> Steps:
    tasks, probed = _size_tasks(setting), _probed(setting)
    if not tasks:
        give = f"{NO_PAIRS.give}; --others MODEL for each size of its family"
        return Missing(NO_PAIRS.why, give)
    found: list[Step] = []
    for size in _sizes(setting):
        found += runs.trained(setting, tasks, other=size)
        for task in tasks:
            if _on_sentence(setting, task):
                name, mask = _printed_name(task, size), runs.mask_name(task, other=size)
                title, printed = f"{task.name} on the paper's sentences", of_printed(task)
                found.append(runs.mask_test_step(setting, name, title, printed, mask, other=size))
    found += runs.states_steps(setting, probed) if probed else ()
    return tuple({step.name: step for step in found}.values())


def _size_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    if _sizes(setting) == (None,):
        give = "--others MODEL for each size, with --pairs"
        return Missing("the table compares sizes of one family", give, "needs MODEL")
    own = (TABLE_36,) if element == "Table 36" else TABLE_4
    return too_few(setting, own) or [
        step for step in steps if any(f"-{name}" in step.name for name in own)
    ]


def _by_size(setting: Setting) -> Findings:
    """Outputs on the paper's sentences where its directions are given, else on held-out ones."""
    parts, right = list[Findings](), dict[str, list[bool]]()
    for size in _sizes(setting):
        model = runs.slug(size or setting.model.model)
        for task in _size_tasks(setting):
            step = runs.proof_name(task, other=size)
            shown = _printed_name(task, size) if _on_sentence(setting, task) else step
            parts.append(_outputs(setting, shown, f"{model}, {task.name}", 2))
            if masked := samples(setting, step, task.name).get("selected"):
                right.setdefault(model, []).extend(exact(masked))
    probed = _probed(setting)
    states = runs.states_name(setting, probed) if probed else runs.STATES
    # The first direction's states stand at Figure 4.
    again = states == runs.STATES
    shown_all = joined([*parts, *([] if again else [shown_by(setting, states, LIKELIEST)])])
    if not right:
        return replace(shown_all, found="", sure="")
    counts = ", ".join(f"{model} {sum(marks)} of {len(marks)}" for model, marks in right.items())
    found = f"Masked outputs that are exactly the reference: {counts}."
    sure = "Exact outputs over all held-out sentences, without intervals."
    if len(right) == 1:
        found += " There is one model here, so nothing is said about sizes."
        sure = "For other sizes of a family give --others MODEL with --pairs."
    told = replace(shown_all, found=found, sure=sure)
    return claimed(told, *_larger(setting), in_words=True)


def _larger(setting: Setting) -> list[Claim]:
    """That the largest of the models does better with masks than the smallest, by ROUGE-L of the
    same sentences."""
    tasks, sizes = defaults(directions(setting)), dict[str | None, int]()
    for size in _sizes(setting):
        for task in tasks:
            result = setting.read(runs.proof_name(task, other=size), MaskTests)
            if result and result.model and result.model.parameters:
                sizes[size] = result.model.parameters
    if len(set(sizes.values())) < 2:
        return []
    large, small = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
    scores = list[tuple[Floats, Floats]]()
    for task in tasks:
        ours, theirs = (
            samples(setting, runs.proof_name(task, other=size), task.name).get("selected", [])
            for size in (large, small)
        )
        if ours and [row["input"] for row in ours] == [row["input"] for row in theirs]:
            scores.append((_rouge_l(ours), _rouge_l(theirs)))
    if not scores:
        return []
    gap = pooled([bootstrap_mean(a - b, setting.seed) for a, b in scores])
    means = (fmean(pair[at].mean() for pair in scores) for at in (0, 1))
    names = (runs.slug(size or setting.model.model) for size in (large, small))
    levels = ", ".join(f"{mean:.3f} of {name}" for mean, name in zip(means, names, strict=True))
    return [
        of_effects(
            published_claims(NAME)["size"],
            f"ROUGE-L {levels}, masked ({count(len(scores), 'direction')}); difference "
            f"{interval_words(gap)}",
            [Effect(gap)],
            sure="the difference between the largest and the smallest model on the same sentences",
        )
    ]


def _rouge_l(rows: Sequence[Mapping[str, Any]]) -> Floats:
    """Of each output, from 0 to 1."""
    texts = ([plain_words(row[name]) for row in rows] for name in ("output", "reference"))
    return rouge_l(*texts).texts / 100


SIZES = Experiment(
    "table-4",
    ("Table 4", "Table 36"),
    "What masked models of several sizes write",
    _size_steps,
    _by_size,
    _size_needs,
)


def _training_steps(setting: Setting) -> Steps:
    task = first_task(setting)
    return NO_MASKS if task is None else (runs.mask_step(setting, task),)


def _training(setting: Setting) -> Findings:
    task = first_task(setting)
    result = None if task is None else setting.read(runs.mask_name(task), FoundMask)
    if task is None or result is None:
        return Findings()
    found = (
        f"Of {len(result.scored)} heads {result.fates.get('regained', 0)} are dropped and taken "
        f"back before the end, and {result.fates.get('tried', 0)} are dropped, taken back and "
        "dropped again."
    )
    sure = "One training with one seed; noise alone moves weights across zero."
    titles = ("Weights during training", "Courses of heads")
    return replace(shown_by(setting, runs.mask_name(task), *titles), found=found, sure=sure)


TRAINING = Experiment(
    "figure-3",
    ("Figure 3",),
    "How the weights of heads move during training",
    _training_steps,
    _training,
)


def _order_steps(*names: str) -> Callable[[Setting], Steps]:
    """The successive removals of these names with the masks that they need."""

    def steps(setting: Setting) -> Steps:
        task = first_task(setting)
        if task is None:
            return NO_PAIRS
        needed = [step for name in names for step in runs.order_steps(setting, task, name)]
        return tuple({step.name: step for step in needed}.values())

    return steps


def place_of_order(setting: Setting, figure: str) -> Place:
    """The published values of the paper's prompt, which is ours where the direction is its own."""
    if runs.on_printed(setting, first_task(setting)):
        return place_of(setting, figure, "XNLI")
    other = "the paper's are of one prompt of its own, English to Chinese"
    return place_of(setting, figure, other=other)


def _one_by_one(setting: Setting, step: str) -> OneByOneDetails | None:
    """A finished removal of heads one by one, step by step."""
    result = setting.read(step, OneByOneResult)
    return None if result is None else result.details


def target_first(result: OneByOneDetails) -> tuple[int, int, float | None]:
    """Prompts in which the target never comes first, prompts, and the median first step.

    The median is of the prompts whose target is not first with all heads, which have nothing to
    switch to; None if it never comes first in half of them, or there are none.
    """
    found = result.target_first.first_steps if result.target_first else ()
    later = [inf if step is None else float(step) for step in found if step != 0]
    middle = median(later) if later else inf
    return sum(step is None for step in found), len(found), None if middle == inf else middle


#: The row of the switch: prompts that begin with the target, such as names, have none.
SWITCH = "target comes first, median over prompts where it is not at the start"
_ORDER_BLOCKS = (
    "Rank among all tokens that could come next",
    "Prompts whose target's first token is the likeliest",
    "Its continuation where it changes",
)


def _order_table(
    title: str,
    results: Mapping[str, OneByOneDetails | None],
    place: Place,
    row: str,
    more: Sequence[Row] = (),
) -> Table:
    """When the target comes first in each order, and in how many prompts never.

    The first order is compared with the paper's, which is its `row`.
    """
    switch, never = list[Cell](), list[Cell]()
    theirs = place.value(row, "behaviour switches", "heads")
    for result in results.values():
        none, _, middle = (None, 0, None) if result is None else target_first(result)
        why, published = "not run" if result is None else "never", None if switch else theirs
        switch.append(Cell(middle, published=published, why=why, digits=0))
        never.append(Cell(none, why="not run", digits=0))
    rows = (Row(SWITCH, tuple(switch)), Row("prompts with the target never first", tuple(never)))
    return Table(title, tuple(results), (*rows, *more), place.reference)


def _removed(setting: Setting) -> Findings:
    result = _one_by_one(setting, runs.RISING)
    if result is None or result.target_first is None:
        return Findings()
    share, (_, prompts, _) = result.target_first.share, target_first(result)
    best = max(range(len(share)), key=lambda step: share[step])
    cut = None if result.mask is None else result.mask.cut_step
    steps = {"most prompts with the target first": best, "exactly the mask's heads are left": cut}
    rows = [Row(name, (Cell(step, why="never", digits=0),)) for name, step in steps.items()]
    place, row = place_of_order(setting, "Figure 2"), "removal in order of weight"
    results = {"heads removed": result}
    table = _order_table("When the task takes over", results, place, row, rows)
    found = (
        f"The target is the likeliest first token in {share[0]:.0%} of {prompts} prompts with all "
        f"heads, and in {share[best]:.0%} when {best} of {len(result.heads)} are gone"
    )
    if cut is not None:
        found += f"; with exactly the mask's heads left ({cut} gone) it is {share[cut]:.0%}"
    if random := [max(order.target_first) for order in result.random_orders]:
        found += f"; in {len(random)} random orders at most {max(random):.0%}"
    shown = shown_by(setting, runs.RISING, *_ORDER_BLOCKS)
    shown = replace(shown, found=f"{found}.", sure="The paper shows one prompt.")
    return claimed(shown, tables=[table])


def _order(number: int, name: str, title: str, row: str, about: str) -> Experiment:
    """The removal in another order, compared with that of Figure 2; `about` is its table's."""

    def show(setting: Setting) -> Findings:
        result, plain = (_one_by_one(setting, step) for step in (name, runs.RISING))
        orders = {"this order": result, "rising weight": plain}
        place = place_of_order(setting, f"Figure {number}")
        table = _order_table(f"{about}, of {setting.geometry.total} heads", orders, place, row)
        if result is None or result.target_first is None:
            return Findings((table,))
        shown = shown_by(setting, name, *_ORDER_BLOCKS)
        found = shown.found
        if plain is not None and plain.target_first is not None:
            found = _later(*(_firsts_of(order, len(result.heads)) for order in (result, plain)))
        sure = "There are no random orders, and the paper shows one prompt."
        return claimed(replace(shown, found=found, sure=sure), tables=[table])

    element, steps = f"Figure {number}", _order_steps(runs.RISING, name)
    return Experiment(f"figure-{number}", (element,), title, steps, show, needing("en-zh"))


def _firsts_of(result: OneByOneDetails, within: int) -> list[float]:
    """For each prompt the first step with the target first; later than all if there is none."""
    found = result.target_first.first_steps if result.target_first else ()
    return [inf if at is None or at > within else float(at) for at in found]


def _later(own: Sequence[float], plain: Sequence[float]) -> str:
    """In how many prompts the task comes later in this order, as in the paper, or sooner."""
    later = sum(step > usual for step, usual in zip(own, plain, strict=True))
    sooner = sum(step < usual for step, usual in zip(own, plain, strict=True))
    return (
        f"The target comes first later than by rising weight in {later}, and sooner in {sooner}, "
        f"of {count(len(own), 'prompt')}."
    )


ORDERS = (
    _order(
        8,
        runs.INFLUENTIAL,
        "Heads removed in the order of what each does to the target's rank",
        "removal in order of rank gained",
        "Heads gone by influence",
    ),
    _order(
        9,
        runs.NEGATIVE,
        "Heads removed by the weights of a mask begun with hardly any head",
        "removal in order of weight, negative start",
        "Heads gone by weights of a negative start",
    ),
)
REMOVED = Experiment(
    "figure-2",
    ("Figure 2",),
    "Heads removed one by one by rising weight: when the task takes over",
    _order_steps(runs.RISING),
    _removed,
    needs=needing("en-zh"),
)


def _states_steps(setting: Setting) -> Steps:
    task = first_task(setting)
    if task is None:
        return NO_PAIRS
    return (*runs.states_steps(setting, task), runs.order_steps(setting, task, runs.RISING)[1])


def _states(setting: Setting) -> Findings:
    result = setting.read(runs.STATES, ComparedStates)
    removal = _one_by_one(setting, runs.RISING)
    titles = ("Cosine after each layer", "Cosine after each attention", LIKELIEST)
    shown, tables = shown_by(setting, runs.STATES, *titles), list[Table]()
    if removal is not None:
        cut = None if removal.mask is None else removal.mask.cut_step
        step, place = (
            len(removal.heads) // 2 if cut is None else cut,
            place_of_order(setting, "Figure 5"),
        )
        stable = place.value("removal in order of weight", "similarity is stable", "heads")
        title = "Removed when the mask's heads are left, and the cosine with the instructed model"
        note = "The paper's number of heads is that after which the cosine stays as it is."
        own = {"heads removed": Cell(step, published=stable, digits=0)}
        tables.append(with_published(title, "the mask's heads", own, place.reference, note))
        along = shown_by(setting, runs.RISING, MAPS)
        # The figure of the walk is Figure 2's.
        maps = tuple(figure for figure in along.figures if figure.title == MAPS)
        shown = joined([shown, replace(along, figures=maps, found="", sure="")])
    claims = [] if result is None else [_nearer(result)]
    return claimed(replace(shown, found=""), *claims, tables=tables, in_words=True)


def _nearer(result: ComparedStates) -> Claim:
    """That the masked model is nearer to the instructed one than the model as it is."""
    evidence, details = result.evidence, result.details
    now, tests = evidence.level("cosine", evidence.main), evidence.against("cosine", evidence.main)
    nearer = (now and now.change) or Estimate()
    random, matched = beside_random(tests)
    notes = [] if matched is None else [same_layers({"same layers": matched})]
    if random is not None:
        words = f"{interval_words(random.difference)} against random masks"
        notes.insert(0, words + (f" (p {random.p_draws:.2g})" if random.p_draws else ""))
    return of_effects(
        published_claims(NAME)["nearer"],
        "cosine with the instructed model, over the later half of the layers, masked against as "
        f"is {interval_words(nearer)}; {count(details.states.samples, 'prompt')} of {details.task}",
        [Effect(nearer)],
        sure="the change of the cosine from the model as it is",
        note="; ".join(filter(None, notes)),
    )


HIDDEN = Experiment(
    "figure-4",
    ("Figure 4", "Figure 5", "Table 41"),
    "Whether the masked model passes through the states of the instructed one",
    _states_steps,
    _states,
    needs=needing("en-zh"),
)
