"""Heads Up! as a recipe: its experiments, its settings, and what they answer together."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.find.masking import MaskTraining, preset
from headscope.papers.cells import cell
from headscope.papers.claims import answering
from headscope.papers.heads_up import heads, masks, prompts
from headscope.papers.heads_up.cells import MAIN, NAME
from headscope.papers.heads_up.masks import results_of, same_task, whose_words
from headscope.papers.heads_up.runs import mask_name, proof_name, slug, training_changes
from headscope.papers.heads_up.tasks import (
    Task,
    default_tasks,
    directions,
    too_few,
    word_tasks,
)
from headscope.papers.paper import Experiment, Paper, Setting, Step
from headscope.papers.published import ANY, paper_model, reference, source, value
from headscope.results.mask import FoundMask
from headscope.results.mask_tests import MaskedTask, MaskTests
from headscope.shown.blocks import Cell, Findings, Reference, Row, Table, grid

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
    size = "small-model" if setting.small else "paper's"
    found = f"Masks are trained by the {size} settings"
    if setting.small:
        found += (
            f", because the model has {setting.geometry.total} heads: a tenth of the paper's steps "
            "at ten times its learning rates, so that weights can move as far"
        )
    tables = (_model(setting), _data(setting), _training(setting))
    return Findings(tables, found=f"{found}.", sure="Settings are no measurements.")


def _cited(table: str, model: str, why: str) -> Reference:
    return Reference(source(NAME, table), model, False, why)


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

    def shown(name: str, _: str) -> Cell:
        published = value(NAME, "Table 9", model=theirs, row="model", column=name, measure="count")
        return Cell(ours[name], published=published, why="known once a mask was tested", digits=0)

    where = _cited("Table 9", theirs, "shapes of models, not results")
    return grid(f"The model ({slug(setting.model.model)})", ours, ("number",), shown, where)


def _span(numbers: Sequence[int]) -> int | str:
    """The number of every layer, or the least and the most."""
    least, most = min(numbers), max(numbers)
    return least if least == most else f"{least} to {most}"


def _data(setting: Setting) -> Table:
    """Table 10: examples of each task, and its prompts."""

    def cells(task: Task) -> tuple[Cell, ...]:
        mask = setting.read(mask_name(task), FoundMask)
        test = results_of(setting, task, proof_name(task))
        theirs = value(NAME, "Table 10", model=ANY, row="dataset", measure="samples",
                       column=same_task(setting, task))  # fmt: skip
        if task.translation:  # of word tasks the paper gives the number of all examples
            theirs = value(NAME, "Section A", model=ANY, row="XNLI", column="training samples",
                           measure="count")  # fmt: skip
        return (
            cell(mask.examples if mask else None, published=theirs, digits=0),
            cell(test.examples if test else None, digits=0),
            cell(test.bare if isinstance(test, MaskedTask) else None),
            cell(test.instruction if test else None),
        )

    return Table(
        "The data",
        ("examples trained on", "held out", "bare prompt", "instructed prompt"),
        tuple(Row(task.name, cells(task)) for task in default_tasks(setting)),
        _cited("Table 10", ANY, "of word tasks all examples; of directions appendix A"),
        f"{whose_words(setting)} The paper holds out 100 examples of each task, of which the "
        "bundled model's word tasks have fewer.",
    )


def _training(setting: Setting) -> Table:
    """Table 11: the settings of a training, and those of a negative start."""

    def shown(name: str, tasks: str) -> Cell:
        translation = tasks == "directions"
        row = "translation" if translation else "word task"
        place = {"row": row, "column": name, "measure": "setting"}
        model = paper_model(NAME, setting.model.model) or ANY
        theirs = value(NAME, "Section B", model=model, **place)
        theirs = theirs or value(NAME, "Table 11", model=ANY, **place)
        ours: float = getattr(_changed(setting, translation), _TRAINING[name])
        # As many decimals as either needs: counts of steps have none.
        texts = (f"{known:.4f}".rstrip("0") for known in (ours, theirs) if known is not None)
        digits = max(len(text.partition(".")[2]) for text in texts)
        return cell(ours, published=theirs, digits=digits)

    return grid(
        "The training of a mask",
        _TRAINING,
        ("directions", "word tasks"),
        shown,
        _cited("Table 11", ANY, "settings, not results"),
        "Weights begin around -3 for a negative start, as in the paper. Noise and order follow "
        f"from the seed, {setting.seed}.",
    )


SETTINGS = Experiment(
    "table-9",
    ("Table 9", "Table 10", "Table 11"),
    "Models, data and settings, ours and the paper's",
    _steps,
    _settings,
    needs=lambda setting, name, steps: too_few(setting, words=True) if name == "Table 10" else (),
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
    answer=answering(EXPERIMENTS),
    steered=frozenset(("limit", "draws", "shots", "chat", "instruction", "steps")),
    notes=lambda setting: (
        "Figures of several directions or tasks are means; claims are tested in each of them, by "
        "the tests of the weakest.",
    ),
)
