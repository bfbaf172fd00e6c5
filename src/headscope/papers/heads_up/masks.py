"""Masks of directions and word tasks, and what models do under them; scaled masks.

Tables 1 to 3, 12 to 35, 39, 40, 43 and 44, and Figure 6 with Tables 8 and 42.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headscope.papers.cells import cell
from headscope.papers.claims import with_claims
from headscope.papers.heads_up import runs
from headscope.papers.heads_up.cells import (
    ANOTHER,
    CONDITIONS,
    MAIN,
    MEASURES,
    NAME,
    ONCE,
    Case,
    Place,
    as_instructed,
    case_of,
    listed,
    named,
    of_masks,
    outcome_cell,
    outcomes,
    partner,
    place_of,
    said,
    samples,
    shown_blocks,
    text_table,
    with_measure,
)
from headscope.papers.heads_up.tasks import (
    EN_ZH,
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
from headscope.papers.published import paper_model
from headscope.results.mask import FoundMask
from headscope.results.mask_tests import (
    MaskTests,
    Measure,
    ScaledTask,
    ScalingTests,
    TaskOutcomes,
)
from headscope.shown.blocks import Cell, Claim, Figure, Findings, Row, Table, grid
from headscope.studies.costs.shapes import heads_of
from headscope.verify.masks.evidence import paragraph_bleu

_WITH_BASE = ("Llama-3.1-8B-Instruct", "Llama-3.1-8B", "Qwen2.5-7B-Instruct", "Qwen2.5-7B")
_MODELS = (
    *_WITH_BASE,
    "Qwen2.5-0.5B-Instruct",
    "Qwen2.5-1.5B-Instruct",
    "Qwen2.5-3B-Instruct",
    "Qwen2.5-14B-Instruct",
    "Phi-3.5-mini-instruct",
    "Mistral-7B-Instruct-v0.3",
)
#: Which table is of which model, by measure.
TABLES: Mapping[Measure, Mapping[str, str]] = {
    "nll": {model: f"Table {number}" for number, model in enumerate(_MODELS, 12)},
    "rouge_l": {model: f"Table {number}" for number, model in enumerate(_MODELS, 22)},
    "accuracy": {model: f"Table {number}" for number, model in enumerate(_WITH_BASE, 32)},
}
TITLES: Mapping[Measure, str] = {"nll": "NLL", "rouge_l": "ROUGE-L", "accuracy": "accuracy"}
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
        swapped: under the mask of the model `other`, if given.
        kept: how many heads its own mask keeps.
    """

    column: str
    own: TaskOutcomes | None = None
    swapped: TaskOutcomes | None = None
    other: str | None = None
    kept: int | None = None

    def cell(self, place: Place, name: str, measure: Measure) -> Cell:
        """A measure under the condition of the paper's name, with the published figure."""
        if name != ANOTHER:
            theirs = place.value(name, self.column, measure)
            return outcome_cell(outcomes(self.own, CONDITIONS[name]), measure, theirs)
        row = partner(place, self.other)
        theirs = None if row is None else place.value(row, self.column, measure)
        why = {} if self.other else {"why": "no other model"}
        return outcome_cell(outcomes(self.swapped, "foreign 1"), measure, theirs, **why)


def results_of(setting: Setting, task: Task, step: str) -> TaskOutcomes | None:
    """What the run of a step says of a task; None where it was not made."""
    result = setting.read(step, MaskTests)
    return None if result is None else result.tasks.get(task.name)


def proof_of(setting: Setting, task: Task, kind: runs.Kind = "") -> Proof:
    """The tests of a task's mask of a kind; of the first kind also that of another model."""
    mask = setting.read(runs.mask_name(task, kind), FoundMask)
    other = next(iter(_others_tested(setting, task)), None)
    return Proof(
        same_task(setting, task),
        results_of(setting, task, runs.proof_name(task, kind)),
        results_of(setting, task, runs.swap_name(task, other)) if other and not kind else None,
        other,
        None if mask is None else mask.selected,
    )


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
    if not tasks:
        return missing
    found = list(runs.trained(setting, tasks))
    for other in _others_tested(setting, tasks[0]):
        for task in tasks:
            found += [
                runs.mask_step(setting, task, other=other),
                runs.swap_step(setting, task, other),
            ]
    return tuple(found)


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
    measures: Sequence[Measure],
    note: str = "",
    heads: bool = False,
    conditions: Sequence[str] = (*CONDITIONS, ANOTHER),
) -> Table:
    """Tasks in rows, and their conditions by one measure after the other; first heads kept."""
    rows = []
    for name, proof in proofs.items():
        cells = [proof.cell(place, each, measure) for measure in measures for each in conditions]
        if heads:
            theirs = place.value("mask", proof.column, "heads")
            cells.insert(0, cell(proof.kept, published=theirs, digits=0))
        rows.append(Row(name, tuple(cells)))
    columns = [f"{TITLES[measure]}, {each}" for measure in measures for each in conditions]
    columns = [*(["heads in the mask"] if heads else ()), *columns]
    return Table(title, tuple(columns), tuple(rows), place.reference, note)


def _masks_shown(
    setting: Setting,
    tasks: Sequence[Task],
    main: Place,
    full: Sequence[Place],
    measures: Sequence[Measure],
    words: tuple[str, str],
    note: str,
) -> Findings:
    """The tables of the default tasks and of all, and the claims of masks without an instruction.

    `words` are what masks bring out, and what a task is called.
    """
    default = [task.name for task in defaults(tasks)]
    proofs = {task.name: proof_of(setting, task) for task in tasks}
    other = next((proof.other for proof in proofs.values() if proof.other), None)
    note += (
        f" The other model is {runs.slug(other)}."
        if other
        else " For the mask of another model give --others MODEL and files of the data."
    )
    what, kind = words
    shown = {name: proofs[name] for name in default}
    tables = [conditions_table(f"Masks of {kind}s", main, shown, measures, note, heads=True)]
    tables += [
        conditions_table(f"{TITLES[measure]} of every {kind}", place, proofs, (measure,))
        for place, measure in zip(full, measures, strict=True)
    ]
    claims: list[Claim] = []
    found = []
    for measure in measures:
        cases = with_measure((case_of(proof.own) for proof in shown.values()), measure)
        if cases:
            claims += without_instruction(cases, measure, what, kind)
            found.append(words_of(cases, measure, kind))
    left = [name for name, proof in proofs.items() if named(proof.own, "masked") is None]
    sure = ONCE if claims else ""
    more = {"not_run": left, **with_claims(*claims)}
    return Findings(tuple(tables), (), " ".join([*found, said(claims)]).strip(), sure, more)


def without_instruction(
    cases: Sequence[Case], measure: Measure, what: str, task: str
) -> list[Claim]:
    """That masks bring `what` out in every task, and do at least as well as an instruction.

    A claim by loss and a claim by what the model writes are two claims.
    """
    end = ", by loss" if measure == "nll" else ""
    out = f"masks bring {what} out without an instruction{end}"
    reached = f"masks do at least as well as an instruction in every {task}{end}"
    return [
        of_masks(out, cases, measure, task, MEASURES[measure][1]),
        *as_instructed(reached, cases, measure, task),
    ]


def words_of(cases: Sequence[Case], measure: Measure, task: str) -> str:
    """How many masks are better than none, and how far they go where an instruction helps.

    That is the share of the difference it makes which masks make together. Empty without cases.
    """
    if not cases:
        return ""
    word, sign = MEASURES[measure]
    ways = []
    for case in cases:
        plain, mask, instructed = (
            case.mean(name, measure) for name in ("as is", "masked", "instructed")
        )
        if plain is not None and mask is not None and instructed is not None:
            ways.append((sign * (mask - plain), sign * (instructed - plain)))
    changes = [case.mask.changed(measure).value for case in cases]
    better = sum(sign * change > 0 for change in changes)
    words = f"The {word} is better under the mask than as it is in {better} of {len(cases)} {task}s"
    helped = [way for way in ways if way[1] > 0]
    if not helped:
        return f"{words}; an instruction helps in none."
    share = sum(way[0] for way in helped) / sum(way[1] for way in helped)
    far = "more than twice" if share > 2 else f"{share:.0%} of"
    return f"{words}; where an instruction helps ({len(helped)}), masks go {far} its way."


def _translation(setting: Setting) -> Findings:
    whose = (
        "Instructions are worded by us."
        if setting.pocket
        else "The instruction is the paper's; what it puts between that and the sentence is not "
        "printed."
    )
    note = (
        "NLL is the mean over sentences of the mean over the output's tokens, in nats, which the "
        "paper calls PPL; lower is better. Random masks keep as many heads, mean of the draws. "
    )
    measures: tuple[Measure, ...] = ("nll", "rouge_l")
    full = [place_of(setting, TABLES[measure], "XNLI") for measure in measures]
    main, words = place_of(setting, "Table 1", "XNLI"), ("translation", "direction")
    return _masks_shown(setting, directions(setting), main, full, measures, words, note + whose)


def _translation_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few = too_few(setting, EN_ZH if element in TABLES["rouge_l"].values() else ())
    tables = (TABLES["nll"], TABLES["rouge_l"])
    return of_tasks(setting, element, steps, tables, few, too_few(setting, TABLE_1))


MASKS = Experiment(
    "table-1",
    ("Table 1", *(f"Table {number}" for number in range(12, 32))),
    "Masks that make the model translate without an instruction",
    lambda setting: _mask_steps(setting, directions(setting), NO_PAIRS),
    _translation,
    _translation_needs,
)


def whose_words(setting: Setting) -> str:
    """Whose words the instructions of word tasks are."""
    if setting.pocket and not setting.data.tasks:
        return "The instructions of word tasks are the bundled model's."
    return (
        "The instructions of word tasks of the paper are its own (Table 10), those of others ours."
    )


def _words(setting: Setting) -> Findings:
    note = (
        "An answer counts as right where it stands among ten tokens that are written, as in the "
        f"paper (of some tasks only at the start). {whose_words(setting)}"
    )
    if setting.pocket and not setting.data.tasks:
        pairs = ", ".join(f"{own} and {theirs}" for own, theirs in SAME.items())
        note += f" The bundled model's tasks and the paper's of the same kind: {pairs}."
    main, full = place_of(setting, "Table 2"), place_of(setting, TABLES["accuracy"])
    words = ("answers", "word task")
    return _masks_shown(setting, word_tasks(setting), main, [full], ("accuracy",), words, note)


def _words_needs(setting: Setting, element: str, steps: Sequence[Step]) -> Needed:
    few, first = (too_few(setting, names, words=True) for names in ((), TABLE_2))
    return of_tasks(setting, element, steps, (TABLES["accuracy"],), few, first)


WORD_MASKS = Experiment(
    "table-2",
    ("Table 2", *(f"Table {number}" for number in range(32, 36))),
    "Masks that make the model do word tasks without an instruction",
    lambda setting: _mask_steps(setting, word_tasks(setting), NO_TASKS),
    _words,
    _words_needs,
)


def _shots_steps(setting: Setting) -> Steps:
    every = word_tasks(setting)
    if not every:
        return NO_TASKS
    hybrid = hybrid_of(every)
    plain: list[Step] = []
    behind: list[Step] = []
    both = None if hybrid is None else runs.mask_name(hybrid, "shots")
    for task in defaults(every):
        shots, title = with_shots(task), f"{task.name} behind five examples, mask"
        plain += [
            runs.mask_step(setting, task),
            runs.mask_test_step(setting, f"shots-{task.name}", f"{title} without examples", shots,
                      runs.mask_name(task)),
            runs.mask_step(setting, shots, "shots"),
        ]  # fmt: skip
        name, mask = f"shots-{task.name}-masked", runs.mask_name(task, "shots")
        title += " with examples"
        behind.append(
            runs.mask_test_step(setting, name, title, shots, mask, hybrid=both, extended=True)
        )
    mixed = () if hybrid is None else (runs.mask_step(setting, hybrid, "shots"),)
    return (*plain, *mixed, *behind)


#: The rows of Table 3: whether the mask was trained behind examples, and our condition. The third
#: is not in the paper: the mask of Table 2, trained without examples.
_SHOTS = {
    "original, 5-shot": (False, "as is"),
    "instructed, 5-shot": (False, "instructed"),
    "mask without examples, 5-shot": (False, "masked"),
    "mask, 5-shot": (True, "masked"),
    "mask of hybrid, 5-shot": (True, "hybrid"),
}


def _shots(setting: Setting) -> Findings:
    every = word_tasks(setting)
    shown, hybrid, place = defaults(every), hybrid_of(every), place_of(setting, "Table 3")
    tests = {
        (task.name, masked): results_of(setting, task, f"shots-{task.name}{'-masked' * masked}")
        for task in shown
        for masked in (False, True)
    }

    def accuracy(name: str, task: str) -> Cell:
        masked, own = _SHOTS[name]
        theirs: float | str | None = place.value(name, task, "accuracy")
        # Of other tasks than the paper's hybrid: shown as text, since it may not be compared.
        if own == "hybrid" and theirs is not None:
            theirs = f"{theirs:.2f}"
        return outcome_cell(outcomes(tests[task, masked], own), "accuracy", theirs)

    note = "The third row is not in the paper: the mask of Table 2, trained without examples."
    if hybrid is not None:
        note += (
            f" The hybrid mixes {len(hybrid.choice.task)} tasks, that of the paper 32 of its 35; "
            "of the three left out it names one (product-company)."
        )
    names, title = [task.name for task in shown], "Accuracy behind five examples"
    table = grid(title, _SHOTS, names, accuracy, place.reference, note)
    cases = with_measure((case_of(tests[task.name, True]) for task in shown), "accuracy")
    named_ = "masks made behind five examples do at least as well there as an instruction in every"
    claims = as_instructed(f"{named_} word task", cases, "accuracy", "word task") if cases else []
    known = with_measure((case_of(tests[task.name, False]) for task in shown), "accuracy")
    found = said(claims)
    if known:
        better = sum(case.mask.changed("accuracy").value > 0 for case in known)
        found = (
            f"Behind five examples the mask trained without them helps in {better} of {len(known)} "
            f"word tasks. {found}"
        ).strip()
    sure = "Intervals are Wilson's over the held-out words." if known else ""
    if known and not cases:
        sure += " The paper's own comparison, masks trained on prompts with examples, was not run."
    return Findings((table,), (), found, sure, with_claims(*claims))


SHOTS = Experiment(
    "table-3",
    ("Table 3",),
    "Masks behind five examples, and one mask for many tasks",
    _shots_steps,
    _shots,
    # Its last row is of a mask of nearly all of them.
    needs=needing(words=True),
)


def _kind_steps(kind: runs.Kind, first: bool) -> Callable[[Setting], Steps]:
    """The masks of a kind and those of heads; of the first direction alone, or of all."""

    def steps(setting: Setting) -> Steps:
        tasks = defaults(directions(setting))
        kinds: tuple[runs.Kind, ...] = ("", kind)
        every = tasks[:1] if first else directions(setting)
        made = (runs.trained(setting, (task,), each) for task in every for each in kinds)
        return tuple(step for steps in made for step in steps) if tasks else NO_PAIRS

    return steps


def _kinds(
    setting: Setting, tasks: Sequence[Task], kind: runs.Kind, name: str, place: Place
) -> tuple[Table, str]:
    """Masks of a kind, and how often the loss is lower under them than under those of heads."""
    proofs = {task.name: proof_of(setting, task, kind) for task in tasks}
    both = [
        (own[0].nll, other[0].nll)
        for task in tasks
        if (own := outcomes(results_of(setting, task, runs.proof_name(task)), "masked"))
        and (other := outcomes(proofs[task.name].own, "masked"))
    ]
    table = conditions_table(
        f"Each {name}; Table 1 has those of heads",
        place,
        proofs,
        ("nll", "rouge_l"),
        heads=True,
        conditions=tuple(CONDITIONS),
    )
    lower = sum(other < own for own, other in both)
    found = (
        f"The loss under the {name} is lower than under that of heads in {lower} of {len(both)}."
    )
    return table, found if both else ""


def _queries(setting: Setting) -> Findings:
    (task,) = defaults(directions(setting))[:1]
    place = place_of(setting, "Table 39", "XNLI")
    table, found = _kinds(setting, (task,), "query", "mask of queries", place)
    made = samples(setting, runs.proof_name(task, "query"), task.name).get("masked", [])
    wrong = [row for row in made if row["output"].strip() != row["reference"].strip()]
    examples = text_table(
        "Outputs under the mask of queries that are not the reference",
        ("output", "right"),
        {row["input"]: (row["output"], row["reference"]) for row in wrong[:5]},
        f"The first of {len(wrong)} among {len(made)} outputs of {task.name}."
        if made
        else "Not run: left to --full.",
    )
    return Findings((table, examples), found=found)


QUERIES = Experiment(
    "table-39",
    ("Table 39",),
    "Masks of queries: removed heads attend evenly",
    _kind_steps("query", first=True),
    _queries,
    needs=needing("en-zh"),
)


def _layers(setting: Setting) -> Findings:
    tasks, place = directions(setting), place_of(setting, "Table 40", "XNLI")
    name = "mask of heads and feed-forward layers"
    table, found = _kinds(setting, tasks, "feed-forward", name, place)
    masks = (setting.read(runs.mask_name(task, "feed-forward"), FoundMask) for task in tasks)
    dropped = [len(mask.feed_forward_dropped) for mask in masks if mask and mask.feed_forward]
    if dropped:
        found = (
            f"{dropped.count(0)} of {len(dropped)} masks keep every feed-forward layer, the others "
            f"drop up to {max(dropped)}. {found}"
        ).strip()
    return Findings((table,), found=found, sure=ONCE if dropped else "")


LAYERS = Experiment(
    "table-40",
    ("Table 40",),
    "Masks with gates of feed-forward layers, too",
    _kind_steps("feed-forward", first=False),
    _layers,
    needs=needing(),
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
    tasks = _expert_tasks(setting)
    return runs.trained(setting, tasks) if tasks else NO_PAIRS


def _experts(setting: Setting) -> Findings:
    proofs = {task.name: proof_of(setting, task) for task in _expert_tasks(setting)}
    tables = []
    numbers: Mapping[Measure, int] = {"nll": 43, "rouge_l": 44}
    for measure, table in numbers.items():
        # The paper has one such model, with which any other is compared.
        place = place_of(setting, f"Table {table}", "XNLI", "Phi-3.5-MoE-instruct")
        title = f"{TITLES[measure]} of a model with a mixture of experts"
        names = ("instructed", "mask")
        tables.append(conditions_table(title, place, proofs, (measure,), conditions=names))
    cases = with_measure((case_of(proof.own) for proof in proofs.values()), "nll")
    # The claims about these masks are Table 1's.
    found = words_of(cases, "nll", "direction")
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
    f"FOLDER, of {listed(TABLE_8)}",
)
SCALED = "scaled and instructed"
#: The rows of Table 8, and a control that the paper has not.
_SCALED = {
    "instructed": "instructed",
    "mask": "masked and instructed",
    "scaled mask": SCALED,
    "scaled random masks": "shuffled",
}


def _scaled_tasks(setting: Setting) -> tuple[Task, ...]:
    """The default directions, and those of Table 8 that a folder has besides."""
    return tuple(task for task in directions(setting) if task.default or task.name in TABLE_8)


def _scaled_steps(setting: Setting) -> Steps:
    tasks = _scaled_tasks(setting)
    if not tasks:
        why, give = (f"{getattr(NO_PAIRS, name)}; {getattr(_NO_CHECK, name)}"
                     for name in ("why", "give"))  # fmt: skip
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
    tasks = {name: result.tasks.get(name) if result else None for name, result in results.items()}
    ran = {name: task for name, task in tasks.items() if task is not None}
    draws = next((result.draws for result in results.values() if result), runs.draws_of(setting))
    place = place_of(setting, "Figure 6", "XNLI")
    ends = [place.value("scaled mask", f"best, {end}", "alpha") for end in ("least", "most")]
    theirs = None if None in ends else " or ".join(f"{end:g}" for end in ends)

    def best(name: str, column: str) -> Cell:
        task = tasks[name]
        return cell(None if task is None else task.best, published=theirs, digits=1)

    title = "The best α by the loss of the instructed task"
    tables = [_bleu(setting, tasks, draws), grid(title, names, ("best α",), best, place.reference)]
    figures: list[Figure] = []
    for name in ran:
        more, lines = shown_blocks(setting, f"scaling-{name}", f"{name}: loss by α")
        tables += more
        figures += lines
    if ran:
        tables.append(_changed_outputs(setting, ran))
    claims = _scaled_claims(ran) if ran else []
    sure = "Where the loss is flat in α, the best one depends on the sentences it was chosen on."
    lower = sum(task.alphas[0].nll < task.alphas[-1].nll for task in ran.values())
    between = sum(0 < task.best < 1 for task in ran.values())
    found = (
        f"Under the instruction the mask lowers the loss in {lower} of {len(ran)} directions; an α "
        f"between 0 and 1 is best in {between}. {said(claims)}"
    )
    if not ran:
        found = sure = ""
    return Findings(tuple(tables), tuple(figures), found, sure, with_claims(*claims))


def _bleu(setting: Setting, tasks: Mapping[str, ScaledTask | None], draws: int) -> Table:
    """Table 8. Masks and α come from XNLI in the paper, BLEU from the second files."""
    other = "words of Chinese not set apart, as the published code sets them"
    place = place_of(setting, "Table 8", "XNLI and IWSLT2017", other=other)

    def bleu(name: str, task: str) -> Cell:
        own = outcomes(tasks[task], _SCALED[name])
        return outcome_cell(own, "bleu_published", place.value(name, task, "bleu"))

    note = (
        "BLEU over characters as the published code has it, a mean over outputs. α was chosen by "
        "the loss on other sentences than these. Random masks, which the paper does not have, keep "
        f"as many heads and have the same α: mean of {draws} draws."
    )
    if left := sum(task.left_out or 0 for task in tasks.values() if task):
        note += f" {left} sentences were left out, which masks or α were made with."
    title = "BLEU of instructed translations"
    return grid(title, _SCALED, tasks, bleu, place.reference, note)


def _changed_outputs(setting: Setting, names: Iterable[str]) -> Table:
    """Table 42: some outputs, instructed and under the scaled mask, each with its BLEU."""
    other = "other sentences than the paper's three"
    place = place_of(setting, "Table 42", "IWSLT2017", other=other)
    changed, counts = {}, []
    for name in names:
        made = samples(setting, f"scaling-{name}", name)
        pairs = list(zip(made.get("instructed", []), made.get(SCALED, []), strict=False))
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
    note = f"The first of those that differ; by direction: {', '.join(counts)}." if counts else (
        "The outputs are not at hand."
    )  # fmt: skip
    return Table(title, columns, tuple(rows), place.reference, note)


def _scaled_claims(ran: Mapping[str, ScaledTask]) -> list[Claim]:
    """That the scaled mask helps an instructed model, where an α below 1 was chosen."""
    words = {"instructed": "instructed", SCALED: "scaled"}
    words["shuffled"] = "with random masks scaled"
    own = [case_of(task, SCALED, words) for task in ran.values() if task.best < 1]
    cases = [case for case in own if case is not None]
    claims = []
    gains: Mapping[Measure, str] = {"bleu_published": "higher BLEU", "nll": "lower loss"}
    for measure, gain in gains.items():
        name = f"instructed translation has a {gain} with the other heads turned down"
        claims.append(
            of_masks(name, cases, measure, "direction", MEASURES[measure][1])
            if cases
            else Claim(name, None, "α = 1 is best in every direction", decides="more examples")
        )
    return claims


SCALING = Experiment(
    "figure-6",
    ("Figure 6", "Table 8", "Table 42"),
    "Heads outside the mask turned down instead of removed",
    _scaled_steps,
    _scaled,
    _scaled_needs,
)
