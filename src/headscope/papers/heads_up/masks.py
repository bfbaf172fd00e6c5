"""Masks of directions and word tasks, and what models do under them; scaled masks.

Tables 1 to 3, 12 to 35, 39, 40, 43 and 44, and Figure 6 with Tables 8 and 42.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headscope.papers.cells import Place, with_published
from headscope.papers.claims import Effect, claimed, of_effects
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import (
    ANOTHER,
    CONDITIONS,
    FOREIGN,
    MAIN,
    ONCE,
    RANDOM,
    Case,
    brought,
    case_in,
    cell_of,
    change,
    interval_words,
    levels_words,
    partner,
    place_of,
    samples,
    with_measure,
)
from headscope.papers.heads_up.tasks import (
    EN_ZH,
    NAME,
    NO_PAIRS,
    NO_TASKS,
    TABLE_1,
    TABLE_2,
    Task,
    check_file,
    defaults,
    directions,
    hybrid_of,
    needing,
    too_few,
    with_shots,
    word_tasks,
)
from headscope.papers.paper import Experiment, Missing, Needed, Setting, Step, Steps
from headscope.papers.published import paper_model, published_claims
from headscope.papers.study_steps import joined, shown_by
from headscope.results.mask import FoundMask
from headscope.results.masked_tasks import MaskedTask, MaskTests, ScaledTask, ScalingTests
from headscope.shown.blocks import Cell, Claim, Findings, Row, Table
from headscope.shown.words import enumeration
from headscope.studies.costs.shapes import heads_of
from headscope.verify.masked_tasks.conditions import HYBRID
from headscope.verify.masked_tasks.evidence import paragraph_bleu

_WITH_BASE = ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", "Qwen2.5-7B-Instruct", "Qwen2.5-7B")
_MODELS = (
    *_WITH_BASE,
    *(f"Qwen2.5-{size}B-Instruct" for size in ("0.5", "1.5", "3", "14")),
    "Phi-3.5-mini-instruct",
    "Mistral-7B-Instruct-v0.3",
)
#: Which table is of which model, by measure.
TABLES: Mapping[str, Mapping[str, str]] = {
    "nll": {model: f"Table {number}" for number, model in enumerate(_MODELS, 12)},
    "rouge_l": {model: f"Table {number}" for number, model in enumerate(_MODELS, 22)},
    "accuracy": {model: f"Table {number}" for number, model in enumerate(_WITH_BASE, 32)},
}
TITLES: Mapping[str, str] = {"nll": "NLL", "rouge_l": "ROUGE-L", "accuracy": "accuracy"}
#: The bundled model's tasks that are the paper's under another name.
SAME = {
    "plural-en": "singular-plural",
    "translate-en-de": "english-german",
    "past-en": "present-past",
    "capital": "country-capital",
}


@dataclass(frozen=True)
class Proof:
    """The tests of a task's masks: its own, and that of another model.

    Attributes:
        column: the paper's name of the task.
        own: under its own mask, which keeps so many heads (`kept`).
        swapped: under the mask of the model `other`, if given.
    """

    column: str
    own: Case | None
    swapped: Case | None
    other: str | None
    kept: int | None


def results_of(setting: Setting, task: Task, step: str) -> MaskedTask | None:
    """What the run of a step tells of a task; None where it was not made."""
    result = setting.read(step, MaskTests)
    return None if result is None else result.details.tasks.get(task.name)


def case_of(setting: Setting, task: Task, step: str, of: str = "") -> Case | None:
    """The test of a task's mask in the run of a step; None where it was not made."""
    return case_in(setting.read(step, MaskTests), task.name, of, task.translation)


def proofs_of(setting: Setting, tasks: Iterable[Task], kind: runs.Kind = "") -> dict[str, Proof]:
    """The tests of masks of a kind; of the first kind also those of another model's."""
    found = {}
    for task in tasks:
        mask = setting.read(runs.mask_name(task, kind), FoundMask)
        other = next(iter(_others_tested(setting, task)), None)
        found[task.name] = Proof(
            same_task(setting, task),
            case_of(setting, task, runs.proof_name(task, kind)),
            case_of(setting, task, runs.swap_name(task, other)) if other and not kind else None,
            other,
            None if mask is None else mask.selected,
        )
    return found


def same_task(setting: Setting, task: Task) -> str:
    """What the paper calls a task; other names are the bundled model's own tasks alone."""
    return task.name if setting.data.tasks else SAME.get(task.name, task.name)


def others_of(setting: Setting) -> tuple[str, ...]:
    """The other models whose masks fit this one's heads."""
    fitting = (None, setting.geometry)
    return tuple(model for model in setting.data.others if heads_of(model) in fitting)


def _others_tested(setting: Setting, task: Task) -> tuple[str, ...]:
    """The other models that are tested on tasks of this kind."""
    given = setting.data.pairs if task.translation else setting.data.tasks
    return others_of(setting) if given else ()


def _mask_steps(setting: Setting, tasks: Sequence[Task], missing: Missing) -> Steps:
    """The masks of tasks with their tests, and other models' masks tested on this one."""
    swaps = (
        step
        for model in (_others_tested(setting, tasks[0]) if tasks else ())
        for task in tasks
        for step in (
            runs.mask_step(setting, task, other=model),
            runs.swap_step(setting, task, model),
        )
    )
    return (*runs.trained(setting, tasks), *swaps) if tasks else missing


def of_tasks(
    setting: Setting,
    element: str,
    steps: Sequence[Step],
    tables: Iterable[Mapping[str, str]],
    few: Missing | None,
    few_default: Missing | None,
) -> Needed:
    """What a table needs: all tasks if it is this model's own among tables of single models.

    Every other table needs the default tasks alone. `few` and `few_default` say what is missing
    where all the paper's tasks, or those of that table, are not given.
    """
    for by_model in tables:
        if element in by_model.values():
            own = by_model.get(paper_model(NAME, setting.model.model) or MAIN, by_model[MAIN])
            models = ", ".join(f"{model} ({table})" for model, table in by_model.items())
            why = "the table is of another model of the paper"
            return few if element == own else Missing(why, f"--model: {models}", "needs MODEL")
    return few_default or [step for step in steps if not step.extended]


def conditions_table(
    title: str,
    place: Place,
    proofs: Mapping[str, Proof],
    measures: Sequence[str],
    note: str = "",
    heads: bool = False,
    conditions: Sequence[str] = (*CONDITIONS, ANOTHER),
) -> Table:
    """Tasks in rows, and their conditions by one measure after the other; first heads kept."""

    def cell(proof: Proof, measure: str, condition: str) -> Cell:
        row: str | None = condition
        if condition == ANOTHER:
            row, why = partner(place, proof.other), "not run" if proof.other else "no other model"
            own = cell_of(proof.swapped, measure, FOREIGN, why)
        else:
            own = cell_of(proof.own, measure, CONDITIONS[condition])
        return replace(own, published=row and place.value(row, proof.column, measure))

    rows = []
    for name, proof in proofs.items():
        theirs = place.value("mask", proof.column, "heads")
        kept = Cell(proof.kept, published=theirs, why="not run", digits=0)
        cells = [
            cell(proof, measure, condition) for measure in measures for condition in conditions
        ]
        rows.append(Row(name, (*([kept] if heads else ()), *cells)))
    columns = [
        f"{TITLES[measure]}, {condition}" for measure in measures for condition in conditions
    ]
    columns = [*(["heads in the mask"] if heads else ()), *columns]
    return Table(title, tuple(columns), tuple(rows), place.reference, note)


def _masks(
    key: str,
    main: str,
    tasks_of: Callable[[Setting], tuple[Task, ...]],
    measures: tuple[str, ...],
    kind: str,
    data: str | None,
) -> Callable[[Setting], Findings]:
    """The tables of the default tasks and of all, and the claim of masks without an instruction.

    `main` is the paper's table of default tasks; the last of the measures is that of the claim, the
    others are described; `kind` is what a task is called.
    """

    def show(setting: Setting) -> Findings:
        tasks = tasks_of(setting)
        proofs = proofs_of(setting, tasks)
        shown = {task.name: proofs[task.name] for task in defaults(tasks)}
        other = next((proof.other for proof in proofs.values() if proof.other), None)
        note = f"The other model is {runs.slug(other)}." if other else ""
        first = place_of(setting, main, data)
        tables = [conditions_table(f"Masks of {kind}s", first, shown, measures, note, heads=True)]
        found, claims = list[str](), list[Claim]()
        for measure in measures:
            place = place_of(setting, TABLES[measure], data)
            title = f"{TITLES[measure]} of every {kind}"
            tables.append(conditions_table(title, place, proofs, (measure,)))
            cases = with_measure((proof.own for proof in shown.values()), measure)
            if cases and measure == measures[-1]:
                claims = [brought(key, cases, measure)]
            elif cases:
                words = levels_words(cases, measure)
                found.append(f"{words[:1].upper()}{words[1:]}.")
        told = Findings(found=" ".join(found), sure=ONCE if found or claims else "")
        return claimed(told, *claims, tables=tables, in_words=True)

    return show


def _translation_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few = too_few(setting, EN_ZH if element in TABLES["rouge_l"].values() else ())
    tables = (TABLES["nll"], TABLES["rouge_l"])
    return of_tasks(setting, element, steps, tables, few, too_few(setting, TABLE_1))


def _words_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few, first = (too_few(setting, names, words=True) for names in ((), TABLE_2))
    return of_tasks(setting, element, steps, (TABLES["accuracy"],), few, first)


MASKS = Experiment(
    "table-1",
    ("Table 1", *(f"Table {number}" for number in range(12, 32))),
    "Masks that make the model translate without an instruction",
    lambda setting: _mask_steps(setting, directions(setting), NO_PAIRS),
    _masks("translate", "Table 1", directions, ("nll", "rouge_l"), "direction", "XNLI"),
    _translation_needs,
)
WORD_MASKS = Experiment(
    "table-2",
    ("Table 2", *(f"Table {number}" for number in range(32, 36))),
    "Masks that make the model do word tasks without an instruction",
    lambda setting: _mask_steps(setting, word_tasks(setting), NO_TASKS),
    _masks("words", "Table 2", word_tasks, ("accuracy",), "word task", None),
    _words_needs,
)


def _shots_steps(setting: Setting) -> Steps:
    every = word_tasks(setting)
    if not every:
        return NO_TASKS
    hybrid = hybrid_of(every)
    plain, behind = list[Step](), list[Step]()
    both = None if hybrid is None else runs.mask_name(hybrid, "shots")
    for task in defaults(every):
        shots, title = with_shots(task), f"{task.name} behind five examples, mask"
        own, mask = runs.mask_name(task), runs.mask_name(task, "shots")
        name = f"shots-{task.name}"
        plain += [
            runs.mask_step(setting, task),
            runs.mask_test_step(setting, name, f"{title} without examples", shots, own),
            runs.mask_step(setting, shots, "shots"),
        ]
        name, title = f"{name}-masked", f"{title} with examples"
        behind.append(
            runs.mask_test_step(setting, name, title, shots, mask, hybrid=both, extended=True)
        )
    mixed = () if hybrid is None else (runs.mask_step(setting, hybrid, "shots"),)
    return (*plain, *mixed, *behind)


#: The rows of Table 3: whether the mask was trained behind examples, and our condition. The third
#: is not in the paper: the mask of Table 2, trained without examples.
_SHOTS = {
    "original, 5-shot": (False, "original", ""),
    "instructed, 5-shot": (False, "instructed", ""),
    "mask without examples, 5-shot": (False, "selected", ""),
    "mask, 5-shot": (True, "selected", ""),
    "mask of hybrid, 5-shot": (True, "selected", HYBRID),
}


def _shots(setting: Setting) -> Findings:
    every = word_tasks(setting)
    shown, hybrid, place = defaults(every), hybrid_of(every), place_of(setting, "Table 3")
    tests = {
        (task.name, masked, of): case_of(
            setting, task, f"shots-{task.name}{'-masked' * masked}", of
        )
        for task in shown
        for masked, _, of in _SHOTS.values()
    }

    def accuracy(name: str, task: str) -> Cell:
        masked, kind, of = _SHOTS[name]
        return cell_of(tests[task, masked, of], "accuracy", kind)

    note = "The third row is not in the paper: the mask of Table 2, trained without examples."
    if hybrid is not None:
        note += (
            f" The hybrid mixes {len(hybrid.choice.task)} tasks, that of the paper 32 of its 35; "
            "of the three left out it names one (product-company)."
        )
    names, title = [task.name for task in shown], "Accuracy behind five examples"
    table = place.grid(title, _SHOTS, names, accuracy, "accuracy", note)
    # Of other tasks than the paper's hybrid: shown as text, since it may not be compared.
    *rows, last = table.rows
    cells = (
        replace(cell, published=f"{cell.published:.2f}" if cell.published is not None else None)
        for cell in last.cells
    )
    table = replace(table, rows=(*rows, replace(last, cells=tuple(cells))))
    plain, behind = (
        with_measure((tests[task.name, masked, ""] for task in shown), "accuracy")
        for masked in (False, True)
    )
    if not plain:
        return claimed(Findings(), tables=[table])
    better = sum(
        (case.value("accuracy") or 0.0) > (case.value("accuracy", "original") or 0.0)
        for case in plain
    )
    found = (
        f"Behind five examples the mask trained without them helps in {better} of {len(plain)} "
        "word tasks."
    )
    if behind:
        found += f" Masks trained behind five examples: {levels_words(behind, 'accuracy')}."
    sure = "Intervals are Wilson's over the held-out words."
    return claimed(Findings((), (), found, sure), tables=[table])


SHOTS = Experiment(
    "table-3",
    ("Table 3",),
    "Masks behind five examples, and one mask for many tasks",
    _shots_steps,
    _shots,
    # Its last row is of a mask of nearly all of them.
    needs=needing(words=True),
)


def _of_kind(number: int, kind: runs.Kind, of: str, title: str, first: bool) -> Experiment:
    """Masks of another kind beside those of heads; of the first direction alone, or of all."""

    def tasks_of(setting: Setting) -> tuple[Task, ...]:
        every = directions(setting)
        return defaults(every)[:1] if first else every

    def steps(setting: Setting) -> Steps:
        kinds: tuple[runs.Kind, ...] = ("", kind)
        made = (
            step
            for task in tasks_of(setting)
            for kind in kinds
            for step in runs.trained(setting, (task,), kind)
        )
        return tuple(made) or NO_PAIRS

    def show(setting: Setting) -> Findings:
        tasks, place = tasks_of(setting), place_of(setting, f"Table {number}", "XNLI")
        proofs, masks = proofs_of(setting, tasks, kind), proofs_of(setting, tasks)
        losses = [
            [result.own.value("nll") if result.own else None for result in (masks[name], proof)]
            for name, proof in proofs.items()
        ]
        both = [
            (ours, theirs) for ours, theirs in losses if ours is not None and theirs is not None
        ]
        name, conditions = f"Each mask of {of}; Table 1 has those of heads", tuple(CONDITIONS)
        table = conditions_table(
            name, place, proofs, ("nll", "rouge_l"), heads=True, conditions=conditions
        )
        found = list[str]()
        read = (setting.read(runs.mask_name(task, kind), FoundMask) for task in tasks)
        dropped = [len(mask.feed_forward_dropped) for mask in read if mask and mask.feed_forward]
        if dropped:
            found.append(
                f"{dropped.count(0)} of {len(dropped)} masks keep every feed-forward layer, the "
                f"others drop up to {max(dropped)}."
            )
        if both:
            lower = sum(theirs < ours for ours, theirs in both)
            found.append(
                f"The loss under the mask of {of} is lower than under that of heads in {lower} of "
                f"{len(both)}."
            )
        outputs = [
            replace(table, rows=table.rows[:5])
            for task in tasks[:1]
            for table in shown_by(setting, runs.proof_name(task, kind), "Outputs").tables
        ]
        return Findings((table, *outputs), found=" ".join(found), sure=ONCE if found else "")

    needs = needing("en-zh") if first else needing()
    return Experiment(f"table-{number}", (f"Table {number}",), title, steps, show, needs)


QUERIES = _of_kind(
    39, "query", "queries", "Masks of queries: removed heads attend evenly", first=True
)
LAYERS = _of_kind(
    40,
    "feed-forward",
    "heads and feed-forward layers",
    "Masks with gates of feed-forward layers, too",
    first=False,
)

#: The names of models with experts.
_EXPERTS = re.compile(r"moe|mixtral|-a\d+(\.\d+)?b\b|olmoe|deepseek-v[23]", re.IGNORECASE)


def _expert_tasks(setting: Setting) -> tuple[Task, ...]:
    """The paper's rows: directions from English and from Chinese."""
    return tuple(task for task in directions(setting) if task.name.startswith(("en-", "zh-")))


def _expert_steps(setting: Setting) -> Steps:
    if not _EXPERTS.search(setting.model.model):
        return Missing(
            "a model with a mixture of experts (recognised by its name), and sentence pairs",
            "--model microsoft/Phi-3.5-MoE-instruct (or another one) with --pairs en-zh=FILE for "
            f"each of {', '.join(EN_ZH)}, or --pairs FOLDER",
            "needs MODEL",
        )
    return runs.trained(setting, _expert_tasks(setting)) or NO_PAIRS


def _experts(setting: Setting) -> Findings:
    proofs = proofs_of(setting, _expert_tasks(setting))
    tables, numbers = [], (("nll", 43), ("rouge_l", 44))
    for measure, table in numbers:
        # The paper has one such model, with which any other is compared.
        place = place_of(setting, f"Table {table}", "XNLI", "Phi-3.5-MoE-instruct")
        title = f"{TITLES[measure]} of a model with a mixture of experts"
        names = ("instructed", "mask")
        tables.append(conditions_table(title, place, proofs, (measure,), conditions=names))
    cases = with_measure((proof.own for proof in proofs.values()), "nll")
    # The claims about these masks are Table 1's.
    found = f"Masks: {levels_words(cases, 'nll')}." if cases else ""
    return Findings(tuple(tables), (), found, ONCE if found else "")


EXPERTS = Experiment(
    "table-43",
    ("Table 43", "Table 44"),
    "Masks of a model with a mixture of experts",
    _expert_steps,
    _experts,
    needs=needing(*EN_ZH),
)

#: The directions of Table 8.
TABLE_8 = ("en-zh", "en-fr", "en-de", "zh-en", "fr-en", "de-en")
_NO_CHECK = Missing(
    "IWSLT2017's sentences to measure BLEU on",
    "a second --pairs en-zh=FILE of the same direction to measure on, or one besides a --pairs "
    f"FOLDER, of {enumeration(TABLE_8)}",
)
#: The rows of Table 8, and a control that the paper has not.
_SCALED = {
    "instructed": "original",
    "mask": "mask alone",
    "scaled mask": "selected",
    "scaled random masks": RANDOM,
}


def _scaled_tasks(setting: Setting) -> tuple[Task, ...]:
    """The default directions, and those of Table 8 that a folder has besides."""
    return tuple(task for task in directions(setting) if task.default or task.name in TABLE_8)


def _scaled_steps(setting: Setting) -> Steps:
    tasks = _scaled_tasks(setting)
    if not tasks:
        why, give = f"{NO_PAIRS.why}; {_NO_CHECK.why}", f"{NO_PAIRS.give}; {_NO_CHECK.give}"
        return Missing(why, give)
    made = (runs.mask_step, runs.scaling_step)
    return tuple(step(setting, task) for task in tasks for step in made)


def _scaled_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    """BLEU is of other sentences than the masks; the bundled model's halves are such."""
    if setting.pocket and not setting.data.pairs:
        return None
    # The examples of Table 42 are of one direction, which its caption has the other way round.
    wanted = {f"scaling-{name}" for name in (("zh-en",) if element == "Table 42" else TABLE_8)}
    own = [step for step in steps if step.name in wanted]
    if element == "Figure 6":  # the α of Table 8's directions are its
        return too_few(setting, TABLE_8) or own
    tasks = _scaled_tasks(setting)
    checked = {f"scaling-{task.name}" for task in tasks if check_file(setting, task.name)}
    return _NO_CHECK if wanted - checked else own


def _scaled(setting: Setting) -> Findings:
    names = [task.name for task in _scaled_tasks(setting)]
    results = {name: setting.read(f"scaling-{name}", ScalingTests) for name in names}
    tasks = {
        name: result.details.tasks.get(name) if result else None for name, result in results.items()
    }
    cases = {name: case_in(result, name) for name, result in results.items()}
    ran = {name: task for name, task in tasks.items() if task is not None}
    draws = next(
        (result.details.draws for result in results.values() if result), runs.draws_of(setting)
    )
    place = place_of(setting, "Figure 6", "XNLI")
    ends = [place.value("scaled mask", f"best, {end}", "alpha") for end in ("least", "most")]
    theirs = None if None in ends else " or ".join(f"{end:g}" for end in ends)

    best = {
        name: Cell(None if task is None else task.best, None, None, theirs, "not run", 1)
        for name, task in tasks.items()
    }
    title = "The best α by the loss of the instructed task"
    alphas = with_published(title, "best α", best, place.reference)
    tables = [_bleu(setting, tasks, cases, draws), alphas]
    if not ran:
        return claimed(Findings(), tables=tables)
    tables.append(_changed_outputs(setting, ran))
    curves = joined(shown_by(setting, f"scaling-{name}", f"{name}: loss by α") for name in ran)
    known = with_measure((cases[name] for name in ran), "bleu_published")
    claims = [_silenced(known)] if known else []
    return claimed(replace(curves, found=""), *claims, tables=tables, in_words=True)


def _bleu(
    setting: Setting,
    tasks: Mapping[str, ScaledTask | None],
    cases: Mapping[str, Case | None],
    draws: int,
) -> Table:
    """Table 8. Masks and α come from XNLI in the paper, BLEU from the second files."""
    other = "words of Chinese not set apart, as the published code sets them"
    place = place_of(setting, "Table 8", "XNLI and IWSLT2017", other=other)
    note = (
        "BLEU over characters as the published code has it, a mean over outputs. α was chosen by "
        "the loss on other sentences than these. Random masks, which the paper does not have, keep "
        f"as many heads and have the same α: mean of {draws} draws."
    )
    if left := sum(task.left_out or 0 for task in tasks.values() if task):
        note += f" {left} sentences were left out, which masks or α were made with."
    title = "BLEU of instructed translations"

    def bleu(name: str, task: str) -> Cell:
        return cell_of(cases[task], "bleu_published", _SCALED[name])

    return place.grid(title, _SCALED, tasks, bleu, "bleu", note)


def _changed_outputs(setting: Setting, names: Iterable[str]) -> Table:
    """Table 42: some outputs, instructed and under the scaled mask, each with its BLEU."""
    other = "other sentences than the paper's three"
    place = place_of(setting, "Table 42", "IWSLT2017", other=other)
    changed, counts = {}, []
    for name in names:
        made = samples(setting, f"scaling-{name}", name)
        pairs = list(zip(made.get("original", []), made.get("selected", []), strict=False))
        changed[name] = [(a, b) for a, b in pairs if a["output"] != b["output"]]
        counts += [f"{name} {len(changed[name])} of {len(pairs)}"] if pairs else []
    shown = next((name for name in ("zh-en", *changed) if changed.get(name)), "")
    rows = []
    for at, pair in enumerate(changed[shown][:3] if shown else (), 1):
        cells = [Cell(pair[0]["reference"])]
        for name, row in zip(("instructed", "scaled mask"), pair, strict=True):
            (bleu,) = paragraph_bleu([row["output"]], [row["reference"]])
            theirs = place.value(name, f"example {at}", "bleu")
            cells += [Cell(row["output"]), Cell(float(bleu), published=theirs)]
        rows.append(Row(pair[0]["input"], tuple(cells)))
    title = "Outputs that the scaled mask changes" + (f" ({shown})" if shown else "")
    columns = ("right", "instructed", "its BLEU", "with the scaled mask", "its BLEU, scaled")
    note = "The outputs are not at hand."
    if counts:
        note = f"The first of those that differ; by direction: {', '.join(counts)}."
    return Table(title, columns, tuple(rows), place.reference, note)


def _silenced(cases: Sequence[Case]) -> Claim:
    """That an instructed model gains from the heads outside the mask at 0; what it gains with them
    at the best α, which may be 1, is described."""
    words = {"original": "instructed", _SCALED["mask"]: "with the other heads at 0"}
    words["selected"] = "with the other heads at the best α"
    measure, gain = "bleu_published", change(cases, "bleu_published", _SCALED["mask"])
    return of_effects(
        published_claims(NAME)["silenced"],
        f"{levels_words(cases, measure, words)}; at 0 against instructed {interval_words(gain)}",
        [Effect(gain)],
        sure="the change in BLEU of the instructed model with the other heads removed",
    )


SCALING = Experiment(
    "figure-6",
    ("Figure 6", "Table 8", "Table 42"),
    "Heads outside the mask turned down instead of removed",
    _scaled_steps,
    _scaled,
    _scaled_needs,
)
