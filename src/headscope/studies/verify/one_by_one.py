"""Heads removed one by one: from prompts or sentence pairs to steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.prompts import (
    DEFAULT_TEMPLATE,
    TEMPLATE_OPTION,
    Template,
    TemplateField,
)
from headscope.errors import InputError
from headscope.evidence.controls import SelectedHeads, one_ablation
from headscope.evidence.rows import SELECTED, Condition
from headscope.evidence.runner import prompts_of, room_for
from headscope.heads import Amount, Head, HeadSet, named_scores, resolve_heads
from headscope.heads.geometry import keys_of
from headscope.measure.baseline import Rules
from headscope.progress import further
from headscope.results.one_by_one import Change, OneByOneDetails, OneByOneResult
from headscope.settings import GIVEN, UNSIGNED, MadeBy, Nested, Option
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    InWorkers,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.examples import parts_of
from headscope.studies.masked_tasks import (
    TaskForMask,
    mask_result,
    place_of_example,
    read_task_for_mask,
)
from headscope.studies.models import resolved_chat
from headscope.studies.pairs import PairsChoice, pair_examples, read_test_directions
from headscope.studies.tasks import TaskChoice, resolved_tasks, task_examples
from headscope.studies.verify.one_by_one_show import WORDS, cases, cautions, extras
from headscope.studies.verify.reference import (
    Reference,
    documents_for,
    reference_number,
    translations_or_documents,
)
from headscope.studies.verify.walks import (
    about_cut,
    about_random,
    first_example,
    first_steps,
    random_orders,
    step_rows,
    task_subjects,
    walk_all,
)
from headscope.verify.one_by_one_steps import (
    HELPING,
    Order,
    Seen,
    Step,
    Subject,
    Walk,
    compared,
    compared_step,
    describe,
    prepare,
    rank_changes,
    reordered,
)
from headscope.verify.removal_translations.conditions import check_gate

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Sentences of the pocket model's own test split over all directions, if no limit is given.
POCKET_SENTENCES = 20
TITLE = "removing heads"


def _order(
    heads: options.Heads,
    order: Annotated[
        Order | None,
        Option(
            "As given (scores: highest first), by rank, or by the change of the target's "
            "rank each head caused in one pass or when removed alone; without it as given, and "
            "of a mask run all heads by rising weight.",
            panel="Expert",
        ),
    ] = None,
) -> Order:
    return order or ("given" if mask_result(heads) is None else "ascending")


def _random_orders(
    heads: options.Heads,
    random_orders: Annotated[
        int | None,
        Option(
            "Also remove heads in this many random orders; by default 3 for a mask run, else none.",
            min=0,
            panel="Expert",
        ),
    ] = None,
) -> int:
    if random_orders is not None:
        return random_orders
    return 0 if mask_result(heads) is None else 3


@dataclass(frozen=True, kw_only=True)
class OneByOne(Removing, Selecting, InWorkers):
    """Remove heads one by one; follow ranks of the target and of the top five tokens, and texts.

    Without --prompt and --data the bundled model reads 20 of its own test sentences. A mask run
    reads the held-out examples of its task, without their instruction.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        Amount | None,
        Option("Only the first so many: a number or a share such as 15%.", metavar="K", typed=str),
    ] = field(default=None, metadata=UNSIGNED)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    order: Annotated[Order, MadeBy(_order)] = "given"
    # The heads with the lowest scores or, without scores, the first given; the others follow.
    reorder: Annotated[
        int, Option("Heads that --order pass and alone order anew.", min=1, panel="Expert")
    ] = 320
    steps: Annotated[
        int | None, Option("Remove the first so many heads; none: all.", min=1, panel="Expert")
    ] = None
    gate: Annotated[float, Option("Gate of a removed head.", metavar="G")] = 0.0
    prompt: Annotated[
        str | None, Option("A prompt of your own, instead of sentence pairs.", panel="Prompt")
    ] = None
    target: Annotated[str | None, Option("The text to follow: its first token is ranked.")] = None
    reference: Annotated[
        str | None,
        Option(
            "Compare hidden states with those of the whole model under this prompt (an "
            "instruction, say); with sentence pairs a template with {source}.",
            flag="--reference-prompt",
            panel="Expert",
        ),
    ] = None
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    # Of sentence pairs: a task has its own, and a `prompt` is used as it is.
    chat: options.Chat = None
    # Of the check of the original model; texts are shown whole.
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    text: Annotated[bool, Option("Generate the text at every step.", flag="--text/--no-text")] = (
        True
    )
    max_new_tokens: options.MaxNewTokens = None
    batch_tokens: options.BatchTokens = field(default=16384, metadata=UNSIGNED)
    # Held-out examples of a task take the place of sentence pairs; a mask run without a prompt
    # reads those of its own task.
    tasks: TaskChoice = field(default_factory=TaskChoice, metadata=UNSIGNED)
    examples: Annotated[
        int, Option("Held-out examples of a task to walk over.", min=1, panel="Expert")
    ] = field(default=POCKET_SENTENCES, metadata=UNSIGNED)
    example: options.Example = field(default=None, metadata=UNSIGNED)
    # Random orders of all heads.
    draws: Annotated[int, MadeBy(_random_orders)] = 0
    ablate: options.OneAblation = ("zero",)
    controls: tuple[str, ...] = ("random",)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    reference_texts: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        check_gate(self.gate)
        super().__post_init__()


#: What heads are removed for: the pairs of a direction, the examples of a task, or, None, a prompt
#: of one's own.
Walked = PairFile | TaskForMask | None


def _read(config: OneByOne) -> Examples[Walked]:
    if chosen := _task(config):
        examples = task_examples({chosen.name: chosen}, chosen.leakage, signed=chosen.signed)
        return replace(examples, reference=_documents)
    directions = _directions(config)
    if not directions:
        return Examples({"": None}, {}, {}, reference=_documents)
    return pair_examples(directions, config, translations_or_documents)


def _documents(lm: LanguageModel, config: OneByOne) -> Reference:
    return documents_for(config, config.reference_texts)


def _ready(
    lm: LanguageModel, config: OneByOne, examples: Examples[Walked]
) -> tuple[OneByOne, Examples[Walked]]:
    if parts_of(TaskForMask, examples.parts):
        config = replace(config, chat=resolved_tasks(lm, config.tasks, config.model.model).chat)
    directions = parts_of(PairFile, examples.parts)
    return resolved_chat(lm, config) if directions else config, examples


def _heads(lm: LanguageModel, config: OneByOne, examples: Examples[Walked]) -> Chosen:
    base = starting_order(config, lm)
    signed = {"heads": [*keys_of(base)]}
    return Chosen({ALL_PARTS: [SelectedHeads(base)]}, signed=signed, known=base)


def starting_order(config: OneByOne, lm: LanguageModel) -> HeadSet:
    """The heads in the order of their removal, or in which they are tried before they are ordered.

    Raises `InputError` where an order needs scores and there are none.
    """
    total = lm.geometry.total
    # The weights of a mask order all heads; the heads it selects are its given order.
    whole = config.k is None and config.order != "given" and mask_result(config.heads) is not None
    wanted = total if whole else config.k
    given = resolve_heads(
        config.heads, wanted, lm.geometry, default=total, by=config.rank, model=lm.name
    )
    if not len(given):
        raise InputError(f"{config.heads}: holds no heads, so there is nothing to remove")
    if config.order == "given":
        return given
    scores = named_scores(config.heads, lm.geometry)
    if scores is None:
        if config.order in ("pass", "alone"):
            return given
        raise InputError(
            f"{config.heads} holds no scores, which the order '{config.order}' goes by; name a run "
            "that scored heads, or use --order given"
        )
    # `given` checked the geometry where scores were read; a saved set beside them may be smaller.
    ranked = [(head, value) for head, value in scores.ranked(config.rank) if head in given]
    if config.order != "descending":
        ranked.sort(key=lambda entry: (entry[1], entry[0]))
    origin = scores.top(1, config.rank).origin  # a saved set is ordered by the scores beside it
    return HeadSet(lm.geometry, tuple(head for head, _ in ranked), origin)


def _task(config: OneByOne) -> TaskForMask | None:
    """The task that is named, or of a mask run without a prompt its own, cut to what is walked."""
    asked = config.tasks
    if config.prompt is not None or config.target is not None:
        if asked.task:
            raise InputError("give either --prompt and --target, or --task, not both")
        return None
    if not asked.task and mask_result(config.heads) is None:
        return None
    chosen = read_task_for_mask(
        config.heads, asked, config.model, config.seed, config.allow_overlap
    )
    task, first = chosen.test, slice(config.examples)
    if config.example is not None:
        at = place_of_example(task, config.example)
        first = slice(at, at + 1)
    return replace(chosen, test=replace(task, examples=task.examples[first]))


def _directions(config: OneByOne) -> dict[str, PairFile]:
    """The sentence pairs to read; none if a prompt is given instead."""
    asked = config.pairs
    apart = 0 if config.reference_texts else reference_number(one_ablation(config.ablate))
    if config.prompt is None:
        if config.target is not None:
            raise InputError("--target needs --prompt; sentence pairs bring their own targets")
        model, seed = config.model.model, config.seed
        return read_test_directions(
            asked, model, seed, apart, lambda of: max(1, POCKET_SENTENCES // of)
        )
    if config.target is None:
        raise InputError("--prompt needs --target, the text whose first token is ranked")
    if asked.pair or asked.data:
        raise InputError("give either --prompt and --target, or --pair and --data, not both")
    return {}


def _subjects(
    config: OneByOne, directions: Mapping[str, PairFile], lm: LanguageModel
) -> dict[str, list[Subject]]:
    """The prompts of each direction; a prompt of its own stands under the empty name."""
    if config.prompt is not None and config.target is not None:
        subject = Subject(
            "prompt", config.prompt, config.target, config.reference, config.max_new_tokens
        )
        return {"": [subject]}
    from headscope.lm.prompting import encode_answer

    reference = None if config.reference is None else Template.from_option(config.reference)
    subjects: dict[str, list[Subject]] = {}
    for name, pairs in directions.items():
        prompts = prompts_of(lm, pairs, config.template, config.chat)
        references = prompts_of(lm, pairs, reference or config.template, config.chat)
        subjects[name] = []
        for pair, prompt, other in zip(pairs.pairs, prompts, references, strict=True):
            full = prompt.with_target(pair.target)
            row = encode_answer(lm, full.text, full.target_start, full.special)
            begun = list(row.ids[: row.start]) == lm.encode(prompt.text, prompt.special)
            subjects[name].append(
                Subject(
                    f"{name} {pair.id}",
                    prompt.text,
                    pair.target,
                    None if reference is None else other.text,
                    config.max_new_tokens or room_for(lm, pair.source),
                    prompt.special,
                    row.ids[row.start] if begun else None,
                )
            )
    return subjects


def _measure(bench: Bench[OneByOne, Walked]) -> Measured:
    from headscope.lm.prefix import can_share

    lm, config, run, progress = bench.lm, bench.config, bench.run, bench.progress
    base: HeadSet = bench.chosen.known
    tasks, directions = parts_of(TaskForMask, bench.parts), parts_of(PairFile, bench.parts)
    if tasks:
        most = config.max_new_tokens
        subjects = {name: task_subjects(lm, own.test, most) for name, own in tasks.items()}
    else:
        subjects = _subjects(config, directions, lm)
    share, replacement = can_share(lm), bench.replacements[one_ablation(config.ablate)]
    prepared = {name: [prepare(lm, subject) for subject in many] for name, many in subjects.items()}
    prompts = [prompt for many in prepared.values() for prompt in many]

    def walks_of(
        heads: Sequence[Head], part: str, title: str, text: bool = False, alone: bool = False
    ) -> list[list[Step]]:
        how = Walk(text, config.batch_tokens, share, replacement)
        return walk_all(lm, prompts, heads, config.gate, how, run, part, title, progress, alone)

    order, changed = base.heads, None
    if config.order in ("pass", "alone"):
        first, alone = order[: config.reorder], config.order == "alone"
        title = "each head alone" if alone else "first pass"
        seen = walks_of(first, "order", title, alone=alone)
        caused = rank_changes([[step.target_rank for step in steps] for steps in seen], alone)
        pairs = zip(first, caused, strict=True)
        changed = tuple(Change(head.layer, head.head, change) for head, change in pairs)
        order = tuple(reordered(order, caused))
    order = order[: config.steps]
    drawn = random_orders(lm.geometry, config.draws, config.seed)
    random = [other[: len(order)] for other in drawn]

    def walked(number: int) -> list[list[Step]]:
        if number == 0:
            return walks_of(order, "steps", TITLE, config.text)
        return walks_of(random[number - 1], f"random {number - 1}", f"random order {number}")

    report = further(progress, TITLE, 0, len(prompts) * (len(order) + 1) * (1 + len(random)))
    walks, *others = run.each(range(1 + len(random)), walked, report)
    left = iter(walks)
    groups = {name: [Seen(seen, next(left)) for seen in many] for name, many in prepared.items()}
    run.write_jsonl("steps.jsonl", step_rows(groups, order))
    mask = None
    if mask_result(config.heads) is not None:
        mask = about_cut(resolve_heads(config.heads, None, lm.geometry), order)
    step = compared_step(order, lm.geometry, mask.cut_step if mask else None)
    selected = Condition(
        SELECTED,
        "",
        step,
        config.gate,
        one_ablation(config.ablate),
        heads=keys_of(order[:step]),
    )
    table = compared(groups, selected, random, others, config.order in HELPING, config.seed)
    data: dict[str, Any] = {
        name: {"path": pairs.path, "digest": pairs.digest, "sentences": len(pairs.pairs)}
        for name, pairs in directions.items()
    }
    for chosen in tasks.values():
        data |= chosen.data()
    about = {
        **vars(describe(lm, groups, order)),
        "data": data,
        "order": config.order,
        "gate": config.gate,
        "heads": keys_of(order),
        "base_order": keys_of(base),
        "changes": changed,
        "sentences": len(prompts),
        # Of a task the reference prompt of the first example stands for all.
        "reference": config.reference or prompts[0].subject.reference_prompt,
        "layers_shared": share,
        "mask": mask,
        "target_first": first_steps(walks),
        "random_orders": tuple(map(about_random, random, others)),
        "example": first_example(prompts[0], walks[0], order),
    }
    return Measured(table, about)


comparison = Comparison(
    command="verify one-by-one",
    settings=OneByOne,
    result=OneByOneResult,
    details=OneByOneDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    # Which heads go first may follow from the model, and so `measure` makes the conditions.
    plan=lambda heads, config, basis: [Condition()],
    measure=_measure,
    cases=cases,
    cautions=cautions,
    words=WORDS,
    extras=extras,
    examples="examples",
    usage="--heads 5.3,5.1,4.3 --pair en-de --limit 5",
)
command = comparison.study
