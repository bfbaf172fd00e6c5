"""Heads Up! as a recipe: its experiments, its settings, and what they answer together."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.find.mask_config import MaskTraining, preset
from headscope.papers.cells import Place
from headscope.papers.claims import answering
from headscope.papers.heads_up import heads, masks, prompts
from headscope.papers.heads_up.cells import MAIN
from headscope.papers.heads_up.masks import SAME, results_of, same_task
from headscope.papers.heads_up.runs import (
    mask_name,
    paper_training,
    proof_name,
    slug,
    training_changes,
)
from headscope.papers.heads_up.tasks import NAME, default_tasks, directions, too_few, word_tasks
from headscope.papers.paper import Experiment, Paper, Setting, Step
from headscope.papers.published import ANY, paper_model, reference, source, value
from headscope.results.mask import FoundMask
from headscope.results.masked_tasks import MaskTests
from headscope.shown.blocks import Cell, Findings, Reference, Row, Table

#: The rows of Table 11 and what they are called in our training.
_TRAINING = {
    "initial mean": "mean",
    "initial standard deviation": "spread",
    "batch size": "batch",
    "steps": "steps",
    "first learning rate": "learning_rate",
    "last learning rate": "final_learning_rate",
    "warm-up ratio": "warmup",
    "first temperature": "temperature",
    "last temperature": "final_temperature",
    "temperature decrease ratio": "cooling",
}


def _steps(setting: Setting) -> tuple[Step, ...]:
    """None: all is known before anything is run, and so is whether masks can be trained so."""
    for translation in (True, False):
        _changed(setting, translation)
    return ()


def _changed(setting: Setting, translation: bool) -> MaskTraining:
    """How masks are trained; InputError for so few steps that no weight can change its side."""
    changes = training_changes(setting, translation)
    return preset(None, setting.geometry.total, seed=setting.seed, **changes)


def _settings(setting: Setting) -> Findings:
    found = "Masks are trained by the paper's settings."
    if setting.small:
        found = (
            "Masks are trained by the small-model settings, because the model has "
            f"{setting.geometry.total} heads: a tenth of the paper's steps at ten times its "
            "learning rates, so that weights can move as far."
        )
    tables = (_model(setting), _data(setting), _training(setting))
    return Findings(tables, found=found, sure="Settings are no measurements.")


def _place(table: str, model: str, why: str) -> Place:
    return Place(NAME, table, Reference(source(NAME, table), model, False, why))


def _model(setting: Setting) -> Table:
    """Table 9: the model's shape; part of it is known once a mask was tested."""
    theirs = reference(NAME, "Table 9", setting.model.model, default=MAIN).model
    geometry, tasks = setting.geometry, (*directions(setting), *word_tasks(setting))
    results = (setting.read(proof_name(task), MaskTests) for task in tasks)
    model = next((result.model for result in results if result), None)
    keys = None if model is None else model.unknown.get("key_value_heads")
    ours: dict[str, float | str | None] = {
        "parameters": None if model is None else model.parameters,
        "layers": geometry.layers,
        "heads per layer": _span(geometry.counts),
        "key-value heads per layer": _span(keys) if keys else None,
        "heads": geometry.total,
    }
    place = _place("Table 9", theirs, "shapes of models, not results")

    def number(name: str, _: str) -> Cell:
        published = place.value("model", name, "count")
        return Cell(ours[name], None, None, published, "known once a mask was tested", 0)

    return place.grid(f"The model ({slug(setting.model.model)})", ours, ("number",), number)


def _span(numbers: Sequence[int]) -> int | str:
    """The number of every layer, or the least and the most."""
    least, most = min(numbers), max(numbers)
    return least if least == most else f"{least} to {most}"


def _data(setting: Setting) -> Table:
    """Table 10: examples of each task, and its prompts."""
    why = "of word tasks all examples; of directions appendix A"
    place, rows = _place("Table 10", ANY, why), []
    for task in default_tasks(setting):
        mask = setting.read(mask_name(task), FoundMask)
        test = results_of(setting, task, proof_name(task))
        theirs = place.value("dataset", same_task(setting, task), "samples")
        if task.translation:  # of word tasks the paper gives the number of all examples
            theirs = value(NAME, "Section A", model=ANY, row="XNLI", column="training samples",
                           measure="count")  # fmt: skip
        cells = (
            Cell(mask.examples if mask else None, published=theirs, why="not run", digits=0),
            Cell(test.examples if test else None, why="not run", digits=0),
            Cell(test.bare if test else None, why="not run"),
            Cell(test.instruction if test else None, why="not run"),
        )
        rows.append(Row(task.name, cells))
    columns = ("examples trained on", "held out", "bare prompt", "instructed prompt")
    return Table("The data", columns, tuple(rows), place.reference)


def _training(setting: Setting) -> Table:
    """Table 11: the settings of a training."""
    place = _place("Table 11", ANY, "settings, not results")
    model = paper_model(NAME, setting.model.model)

    def shown(name: str, tasks: str) -> Cell:
        translation = tasks == "directions"
        theirs = paper_training(name, translation, model)
        ours: float = getattr(_changed(setting, translation), _TRAINING[name])
        # As many decimals as either needs: counts of steps have none.
        texts = (f"{known:.4f}".rstrip("0") for known in (ours, theirs) if known is not None)
        digits = max(len(text.partition(".")[2]) for text in texts)
        return Cell(ours, published=theirs, digits=digits)

    return place.grid("The training of a mask", _TRAINING, ("directions", "word tasks"), shown)


SETTINGS = Experiment(
    "table-9",
    ("Table 9", "Table 10", "Table 11"),
    "Models, data and settings, ours and the paper's",
    _steps,
    _settings,
    needs=lambda setting, name, steps: too_few(setting, words=True) if name == "Table 10" else (),
)


def _notes(setting: Setting) -> tuple[str, ...]:
    """What holds for several experiments."""
    words = (
        "The instructions of word tasks of the paper are its own (Table 10), those of others ours."
    )
    if setting.pocket and not setting.data.tasks:
        pairs = ", ".join(f"{ours} and {theirs}" for ours, theirs in SAME.items())
        words = (
            "The instructions of word tasks are the bundled model's; its tasks and the paper's of "
            f"the same kind: {pairs}."
        )
    directed = (
        "Instructions of directions are worded by us."
        if setting.pocket
        else "The instruction of directions is the paper's; what it puts between that and the "
        "sentence is not printed."
    )
    return (
        "Figures of several directions or tasks are means, and claims are about these. Directions "
        "may be of the same sentences, so their intervals are as wide on average as those of one. "
        "NLL is the mean over sentences of the mean over the output's tokens, in nats, which the "
        "paper calls PPL. Random masks keep as many heads, mean of the draws. An answer counts as "
        "right where it stands among ten tokens that are written, as in the paper (of some tasks "
        "only at the start).",
        f"{words} {directed}",
        f"Weights of a negative start begin around -3; noise and order follow from the seed, "
        f"{setting.seed}.",
    )


EXPERIMENTS = (
    prompts.FIRSTS,
    masks.MASKS,
    masks.WORD_MASKS,
    masks.SHOTS,
    prompts.SIZES,
    heads.BASE,
    prompts.REMOVED,
    heads.FAMILIES,
    prompts.TRAINING,
    prompts.HIDDEN,
    heads.ATTENTION,
    masks.SCALING,
    SETTINGS,
    heads.MAPS,
    *prompts.ORDERS,
    masks.QUERIES,
    masks.LAYERS,
    masks.EXPERTS,
)

PAPER = Paper(
    name="heads-up",
    title="Heads up! Large Language Models Can Perform Tasks Without Your Instruction via "
    "Selective Attention Head Masking",
    source="Han, Zeng, Yu and Chen, ICML 2025",
    question="Which heads must be silent for a model to do a task without an instruction?",
    method=(
        "Every head has a weight, and a noisy gate of 0 or 1 drawn from it multiplies what the "
        "head writes while the model is given inputs without an instruction.",
        "The weights alone are trained, on the loss of the right outputs, with noise that cools "
        "down.",
        "At the end a head is kept where its weight is zero or more, and the mask is tested on "
        "held-out examples against the model as it is, the instructed model and random masks of "
        "the same size.",
    ),
    experiments=EXPERIMENTS,
    answer=answering("heads-up", EXPERIMENTS),
    steered=frozenset(("limit", "draws", "shots", "chat", "instruction", "steps", "protocol")),
    notes=_notes,
)
