"""Which heads masks keep: compared with other masks, in families, and by what they look at.

Tables 5, 6, 7, 37 and 38, and Figure 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from statistics import fmean

from headscope.estimates import Estimate
from headscope.evidence.rows import ORIGINAL, SELECTED
from headscope.papers.claims import LEVEL, Effect, claimed, of_effects, of_heads
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import (
    FOREIGN,
    MAIN,
    RANDOM,
    Case,
    case_in,
    cell_of,
    change,
    interval_words,
    levels_words,
    partner,
    place_of,
)
from headscope.papers.heads_up.masks import case_of, of_tasks, others_of
from headscope.papers.heads_up.tasks import (
    DIRECTIONS,
    NAME,
    NO_PAIRS,
    TABLE_1,
    TABLE_2,
    Task,
    defaults,
    directions,
    needing,
    too_few,
    word_tasks,
)
from headscope.papers.paper import AnyResult, Experiment, Missing, Needed, Setting, Step, Steps
from headscope.papers.published import published_claims
from headscope.papers.study_steps import shown_by
from headscope.results.attention import AttentionResult
from headscope.results.masked_tasks import FamilyTests
from headscope.results.masks import BasePair, MasksResult
from headscope.shown.blocks import NOT_RUN, Cell, Claim, Findings, Table, grid
from headscope.shown.words import count, enumeration
from headscope.studies.models import kin
from headscope.verify.masked_tasks.conditions import ALL, UNUSED

#: Of which base model the paper compares the masks of an instructed one.
SIMILARITY = {MAIN: "Table 37", "Llama-3.1-8B": "Table 37"}
SIMILARITY |= {"Qwen2.5-7B-Instruct": "Table 38", "Qwen2.5-7B": "Table 38"}
NO_PARTNER = Missing(
    "the paper compares the masks of an instructed model with those of its base model",
    "--others MODEL with --pairs and --tasks, MODEL being the other one of these two",
    "needs MODEL",
)
_COMPARED = "masks-compared"
#: Columns of a comparison with another model's masks: our name, the paper's measure, decimals.
_PAIR = {
    "heads": ("size_a", "heads", 0),
    "heads of the other": ("size_b", "heads", 0),
    "Jaccard": ("jaccard", "jaccard", 3),
    "expected": ("expected", "expected", 3),
    "recall": ("recall", "recall", 3),
}


def _widest(setting: Setting, name: str, kind: type[AnyResult]) -> AnyResult | None:
    """The result over all masks, else that over the default ones."""
    return setting.read(f"{name}-every", kind) or setting.read(name, kind)


def _of_others(setting: Setting) -> tuple[Task, ...]:
    """The tasks whose files other models can be tested on, too."""
    found = directions(setting) if setting.data.pairs else ()
    return (*found, *(word_tasks(setting) if setting.data.tasks else ()))


def _base_steps(setting: Setting) -> Steps:
    tasks, others = _of_others(setting), others_of(setting)
    if not tasks or not others:
        return NO_PARTNER
    own = [runs.mask_step(setting, task) for task in tasks]
    for model in others:
        own += runs.compared_steps(setting, f"masks-of-{runs.slug(model)}", tasks, model)
        own += [runs.swap_step(setting, task, model) for task in defaults(tasks)]
    return tuple(own)


def _base_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """Table 5 the default masks of both models; of Tables 37 and 38 this model's all masks."""
    if not kin(setting.model.model, others_of(setting), r"-(instruct|it|chat|base)\b"):
        return NO_PARTNER
    every = too_few(setting) or too_few(setting, words=True)
    first = too_few(setting, TABLE_1) or too_few(setting, TABLE_2, words=True)
    return of_tasks(setting, element, steps, (SIMILARITY,), every, first)


def _base(setting: Setting) -> Findings:
    """Tables 5, 37 and 38: each task's mask of this model compared with the other model's; and what
    the first other model's masks do to this one."""
    tables, found = list[Table](), list[str]()
    for model in others_of(setting):
        result = _widest(setting, f"masks-of-{runs.slug(model)}", MasksResult)
        base = None if result is None else result.base
        tables.append(_base_table(setting, model, base.pairs if base else ()))
        if base is None:
            continue
        above = base.above_chance
        jaccard, chance = base.mean["jaccard"], base.mean["expected_exact"]
        over = sum(pair.jaccard > pair.expected_exact for pair in base.pairs)
        found.append(
            f"The Jaccard index with the masks of {runs.slug(model)} is {jaccard.mean:.3f} on "
            f"average, by chance {chance.mean:.3f}, above by {above.mean:.3f} ({above.low:.3f} to "
            f"{above.high:.3f}); it is above chance in {over} of {len(base.pairs)} tasks."
        )
    told = Findings(found=" ".join(found), sure="The interval is over tasks." if found else "")
    return claimed(told, *_swapped(setting), tables=tables, in_words=True)


def _swapped(setting: Setting) -> list[Claim]:
    """That masks of another model, the first given, lower the loss of tasks without instruction."""
    model, tasks = next(iter(others_of(setting)), ""), defaults(_of_others(setting))
    tests = (case_of(setting, task, runs.swap_name(task, model)) for task in tasks)
    cases = [case for case in tests if case and case.value("nll", FOREIGN) is not None]
    if not cases:
        return []
    words = {ORIGINAL: "as is", FOREIGN: f"under masks of {runs.slug(model)}"}
    lower = change(cases, "nll", FOREIGN)
    return [
        of_effects(
            published_claims(NAME)["swap"],
            f"{levels_words(cases, 'nll', words)}; change {interval_words(lower)}",
            [Effect(lower, sign=-1)],
            sure="the change in loss under the other model's masks",
        )
    ]


def _base_table(setting: Setting, other: str, pairs: Sequence[BasePair]) -> Table:
    place = place_of(setting, SIMILARITY, "XNLI" if directions(setting) else None)
    theirs, by_task = partner(place, other), {pair.task: pair for pair in pairs}

    def shown(task: str, column: str) -> Cell:
        key, measure, digits = _PAIR[column]
        row = "mask" if column == "heads" else theirs
        published = None if row is None else place.value(row, task, measure)
        value = getattr(by_task.get(task), key, None)
        return Cell(value, published=published, why="not run", digits=digits)

    tasks = [task.name for task in _of_others(setting) if task.default or task.name in by_task]
    note = (
        "Expected is the paper's ratio (equation 4) for random masks of these sizes; recall is the "
        "share of the other model's heads that this model's mask keeps."
    )
    title = f"Masks compared with those of {runs.slug(other)}"
    return grid(title, tasks, _PAIR, shown, place.reference, note)


BASE = Experiment(
    "table-5",
    ("Table 5", "Table 37", "Table 38"),
    "Masks of an instructed model compared with those of its base model",
    _base_steps,
    _base,
    _base_needs,
)


def _map_steps(setting: Setting) -> Steps:
    """The masks of directions, as in the paper, and of the bundled model's words."""
    tasks = (*directions(setting), *(word_tasks(setting) if setting.pocket else ()))
    if len(defaults(tasks)) < 2:
        return NO_PAIRS
    return runs.compared_steps(setting, _COMPARED, tasks)


def _maps(setting: Setting) -> Findings:
    """Where masks keep heads, and how many of them the masks of two directions share."""
    result = _widest(setting, _COMPARED, MasksResult)
    if result is None:
        return Findings()
    step = f"{_COMPARED}-every" if setting.done(f"{_COMPARED}-every") else _COMPARED
    shown = shown_by(setting, step, "Masks", "Where heads are kept")
    pairs = [pair for pair in result.pairs if pair.relation is not None]
    if not pairs:
        return shown
    jaccard, chance = (
        fmean(getattr(pair, key) for pair in pairs) for key in ("jaccard", "expected_exact")
    )
    low = sum(pair.p_value <= LEVEL for pair in pairs)
    found = (
        f"The masks of two directions have a Jaccard index of {jaccard:.2f} on average, "
        f"{chance:.2f} by chance; p is at most {LEVEL} in {low} of {count(len(pairs), 'pair')} "
        "(hypergeometric, over the heads of all layers)."
    )
    return replace(shown, found=" ".join(filter(None, [shown.found, found])))


MAPS = Experiment(
    "figure-7",
    ("Figure 7",),
    "Where the heads of masks lie, and whether key-value groups go as a whole",
    _map_steps,
    _maps,
    needs=needing(),
)


def _family_steps(setting: Setting) -> Steps:
    tasks = defaults(directions(setting))
    if not tasks:
        return NO_PAIRS
    if len(tasks) < 2:
        return Missing("sentence pairs of more than one direction", NO_PAIRS.give)
    return tuple(step for run in runs.families_of(setting) for step in run.steps(setting))


def _families(setting: Setting) -> Findings:
    tasks = [task.name for task in defaults(directions(setting))]
    tables, shown = list[Table](), Findings()
    for run in runs.families_of(setting):
        result = setting.read(run.name, FamilyTests)
        tables.append(_family_table(setting, tasks, run, result))
        if result is not None:  # the last is the paper's
            told = Findings(found=_without(result, tasks), sure=_family_sure(result, run))
            shown = claimed(told, *_shared(setting, result), in_words=True)
    return replace(shown, tables=tables)


#: The column of how many heads are left.
_LEFT = "heads left"


def _family_table(
    setting: Setting, tasks: Sequence[str], run: runs.Families, result: FamilyTests | None
) -> Table:
    other = f"heads shared by {len(run.masks)} masks, in the paper by {len(DIRECTIONS)}"
    if not run.kind:
        other = "in the paper of masks begun with hardly any head"
    same = run.kind and len(run.masks) == len(DIRECTIONS)
    place = place_of(setting, "Table 6", "XNLI", other="" if same else other)
    families = {family.name: family for family in (result.details.families if result else ())}
    rows = {
        f"without {'random ' if random else ''}{name}": (name, random)
        for name in families or ("all", "en", "unused")
        for random in (False, True)
    }

    def shown(row: str, column: str) -> Cell:
        name, random = rows.get(row, ("", False))
        family = families.get(name)
        if column == _LEFT:
            total = setting.geometry.total if not name and result else None
            kept = total if family is None else family.kept
            theirs = place.value(row, "heads", "heads")
            return Cell(kept, published=theirs, why="not run", digits=0)
        if family is not None and not family.tested:
            return Cell(why="all heads" if family.removed else "no heads")
        if result is None:
            return Cell(why=NOT_RUN)
        case = Case(result.evidence, column, name)
        return case.cell("nll", RANDOM if random else SELECTED if name else ORIGINAL)

    draws = str(runs.draws_of(setting, text=False))
    if result:
        drawn = [test.draws for test in result.evidence.tests]
        draws = " to ".join(dict.fromkeys(str(end(drawn, default=0)) for end in (min, max)))
    how = "hardly any head, as in the paper" if run.kind else "all heads, as in Table 1"
    title = (
        f"NLL of instructed directions without the heads that {len(run.masks)} masks share, begun "
        f"with {how}"
    )
    note = (
        f"All: of the heads that every mask keeps those {runs.shared_heads(setting)} (or fewer) "
        "whose smallest weight over the masks is the largest; a language: those that every mask of "
        "its directions keeps; unused: those that none keeps. Random: as many others, mean of "
        f"{draws} draws."
    )
    return place.grid(title, ("instructed", *rows), (_LEFT, *tasks), shown, "nll", note)


def _shared(setting: Setting, result: FamilyTests) -> list[Claim]:
    """That instructed translation needs the heads that all masks keep.

    Open where the loss without as many random heads is not below that without an instruction: the
    task is gone then, whatever is removed.
    """
    evidence, family = result.evidence, result.details.families[0]
    own = next((condition for condition in evidence.selected if condition.of == ALL), None)
    if own is None:
        return []
    ways = [task for task in directions(setting) if task.name in result.details.tasks]
    plain = [case_of(setting, task, runs.proof_name(task)) for task in ways]
    known = [loss for case in plain if case and (loss := case.value("nll", ORIGINAL)) is not None]
    bare = fmean(known) if known and len(known) == len(ways) else None

    def by(now: float, loss: Estimate, random: float) -> str:
        instructed = evidence.level("nll")
        return (
            f"loss {instructed.value if instructed else nan:.3f} instructed, {now:.3f} without "
            f"{family.removed} heads that all {len(family.tasks)} masks keep, {random:.3f} without "
            "as many random ones"
            + ("" if bare is None else f", {bare:.3f} with all heads and no instruction")
            + f" ({count(len(result.details.tasks), 'direction')}); change {interval_words(loss)}"
        )

    claim = of_heads(published_claims(NAME)["shared"], evidence, "nll", own, by)
    random = evidence.draws("nll", own, RANDOM).mean
    why = ""
    if bare is None:
        why = "the loss without an instruction, which the control is held against, was not measured"
    elif not random < bare:
        why = "random removal of this size does more than a missing instruction: no control"
    return [replace(claim, p=1.0, p_against=1.0, decides=why) if why else claim]


def _without(result: FamilyTests, tasks: Sequence[str]) -> str:
    """What removing the heads of a language, and those that no mask keeps, does, in sentences."""
    found, of = list[str](), result.details.families
    for family in (family for family in of if family.tested and family.name != ALL):
        name = (
            "that no mask keeps" if family.name == UNUSED else f"that masks of {family.name} share"
        )
        cases = [
            case
            for task in tasks
            if task in family.tasks and (case := case_in(result, task, family.name))
        ]
        words = {ORIGINAL: "with all heads", SELECTED: f"without the {family.removed} {name}"}
        told = levels_words(cases, "nll", words | {RANDOM: "without random ones"}) if cases else ""
        found += [f"{told[:1].upper()}{told[1:]}."] if told else []
    return " ".join(found)


def _family_sure(result: FamilyTests, run: runs.Families) -> str:
    words = "As in the paper, masks begin with hardly any head."
    if not run.kind:
        words = (
            "The paper takes masks begun with hardly any head, which are smaller; those were not "
            "run."
        )
    large = [
        family.name
        for family in result.details.families
        if family.tested and family.removed > family.kept
    ]
    if large:
        words += (
            f" {enumeration(large)} {'has' if len(large) == 1 else 'have'} more than half of all "
            "heads, so random heads overlap with them and any such removal is harmful."
        )
    leakage = result.details.leakage
    if leakage and leakage.overlap:
        words += f" Of {leakage.of} tested sentences masks were trained on {leakage.overlap}."
    return words


FAMILIES = Experiment(
    "table-6",
    ("Table 6",),
    "Heads that all masks share, those of one language, and heads that no mask keeps",
    _family_steps,
    _families,
    needs=needing(),
)

#: The tasks of Table 7, each of which chooses one of several words.
CHOICES = ("adjective_v_verb_3", "object_v_concept_3", "verb_v_adjective_3", "fruit_v_animal_3")
#: Its rows by the paper's names: our condition, and which heads.
_ATTENTION = {
    "original, all heads": ("original", "share_all"),
    "instructed, all heads": ("instructed", "share_all"),
    "instructed, heads in the mask": ("instructed", "share_in"),
    "instructed, heads outside the mask": ("instructed", "share_out"),
    "mask, heads in the mask": ("selected", "share_in"),
    "mask, heads outside the mask": ("selected", "share_out"),
    "uniform": ("original", "uniform"),
}


def _choices(setting: Setting) -> tuple[Task, ...]:
    """The paper's tasks that choose one of several words, as far as their files are there."""
    found = {task.name: task for task in word_tasks(setting)}
    return tuple(found[name] for name in CHOICES if name in found)


def _attention_steps(setting: Setting) -> Steps:
    tasks = _choices(setting)
    if not tasks:
        return Missing(
            f"word tasks that choose one of several words ({enumeration(CHOICES)} of Todd et al., "
            "2024)" + ("; the bundled model has learned none" if setting.pocket else ""),
            "--tasks FOLDER with their files"
            + (" and another --model that can do them" if setting.pocket else ""),
            "needs MODEL" if setting.pocket else "needs DATA",
        )
    made = (runs.mask_step, runs.attention_step)
    return tuple(step(setting, task) for task in tasks for step in made)


def _attention(setting: Setting) -> Findings:
    results = {
        task.name: setting.read(f"attention-{task.name}", AttentionResult)
        for task in _choices(setting)
    }
    cases = {name: case_in(result, name) for name, result in results.items()}

    def shown(name: str, column: str) -> Cell:
        kind, share = _ATTENTION[name]
        cell = cell_of(cases[column], share, kind, "no such heads" if cases[column] else NOT_RUN)
        return replace(cell, low=None, high=None) if share == "uniform" else cell

    title = "Attention on the right word, as a share of that on all words to choose from"
    note = "Attention of the last token of the prompt, mean over heads and held-out samples."
    place = place_of(setting, "Table 7")
    table = place.grid(title, _ATTENTION, results, shown, "attention", note)
    ran = [case for case in cases.values() if case is not None]
    if not ran:
        return Findings((table,))
    random = [
        test
        for name, result in results.items()
        if result is not None
        and (case := cases[name]) is not None
        and case.condition
        and (test := result.details.tasks[name].random.get(case.condition.id)) is not None
    ]
    low = sum(test.p_value is not None and test.p_value < LEVEL for test in random)
    sure = (
        "The heads of the mask differ from random sets of as many heads (p below 0.05, two-sided) "
        f"in {low} of {len(ran)} tasks."
    )
    return Findings((table,), found=_looks(ran), sure=sure)


def _looks(ran: Sequence[Case]) -> str:
    """In how many tasks heads of the mask look at the right word more than the others."""
    words = []
    for kind, where in (("instructed", "instructed"), ("selected", "under the mask")):
        gaps = [gap for case in ran if (gap := case.value("in_minus_out", kind)) is not None]
        words.append(f"{where} in {sum(gap > 0 for gap in gaps)} of {count(len(gaps), 'task')}")
    return (
        f"Heads in the mask look at the right word more than heads outside it {', '.join(words)}."
    )


ATTENTION = Experiment(
    "table-7",
    ("Table 7",),
    "Whether heads of the mask look at the right word more than others",
    _attention_steps,
    _attention,
    needs=needing(*CHOICES, words=True),
)
