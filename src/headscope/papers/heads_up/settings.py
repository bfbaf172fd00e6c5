"""Tables 9, 10 and 11: the model, the data and the settings, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscope.find.masking import MaskTraining, preset
from headscope.papers.heads_up.asked import Asked, chosen, directions, too_few, word_tasks
from headscope.papers.heads_up.beside import MAIN, NAME, task_of
from headscope.papers.heads_up.steps import mask_name, proof_name, slug, training_changes
from headscope.papers.heads_up.words import instructions, same_task
from headscope.papers.paper import Experiment, Setting, Step
from headscope.papers.published import ANY, paper_model, reference, source, value
from headscope.shown.blocks import NOT_RUN, Cell, Findings, Reference, Row, Table, grid

#: The rows of Table 11 and what they are called in our training.
HYPER = {
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
#: What a mask of a direction is trained on; of word tasks the paper tells all examples together.
SAMPLES = "training samples"


def _steps(setting: Setting) -> tuple[Step, ...]:
    """None: all is known before anything is run, and so is whether masks can be trained so."""
    for translation in (True, False):
        _training(setting, translation)
    return ()


def _reference(table: str, model: str, why: str) -> Reference:
    return Reference(source(NAME, table), model, False, why)


def _tell(setting: Setting) -> Findings:
    tables = (_model(setting), _data(setting), _hyper(setting))
    size = "small-model" if setting.small else "paper's"
    found = f"Masks are trained by the {size} settings"
    if setting.small:
        found += (
            f", because the model has {setting.geometry.total} heads: a tenth of the paper's steps "
            "at ten times its learning rates, so that weights can move as far"
        )
    return Findings(tables, found=f"{found}.", sure="Settings are no measurements.")


def _model(setting: Setting) -> Table:
    """Table 9: the model's shape."""
    theirs = reference(NAME, "Table 9", setting.model.model, default=MAIN).model
    geometry = setting.geometry
    about = _about(setting)
    keys = about.get("key_value_heads")
    ours: dict[str, float | str | None] = {
        "parameters": about.get("parameters"),
        "layers": geometry.layers,
        "heads per layer": _span(geometry.counts),
        "key-value heads per layer": _span(keys) if keys else None,
        "heads": geometry.total,
    }

    def number(name: str, _: str) -> Cell:
        place = {"model": theirs, "row": "model", "column": name, "measure": "count"}
        published = value(NAME, "Table 9", **place)
        why = None if ours[name] is not None else "known once a mask was tested"
        return Cell(ours[name], published=published, why=why, digits=0)

    where = _reference("Table 9", theirs, "shapes of models, not results")
    return grid(f"The model ({slug(setting.model.model)})", ours, ("number",), number, where)


def _about(setting: Setting) -> dict[str, Any]:
    """What a finished proof says about the model, if there is one."""
    for task in (*directions(setting), *word_tasks(setting)):
        result = setting.result(proof_name(task))
        if result is not None:
            found: dict[str, Any] = result["model"]
            return found
    return {}


def _span(numbers: Sequence[int]) -> int | str:
    """The number of every layer, or the least and the most."""
    least, most = min(numbers), max(numbers)
    return least if least == most else f"{least} to {most}"


def _data(setting: Setting) -> Table:
    """Table 10: examples of each task, and its prompts."""
    tasks = (*chosen(directions(setting)), *chosen(word_tasks(setting)))
    return Table(
        "The data",
        ("examples trained on", "held out", "bare prompt", "instructed prompt"),
        tuple(Row(task.name, _data_cells(setting, task)) for task in tasks),
        _reference("Table 10", ANY, "of word tasks all examples; of directions appendix A"),
        f"{instructions(setting)} The paper holds out 100 examples of each task, of which the "
        "bundled model's word tasks have fewer.",
    )


def _data_cells(setting: Setting, task: Asked) -> tuple[Cell, ...]:
    trained = setting.result(mask_name(task)) or {}
    held = task_of(setting.result(proof_name(task)), task.name)
    own = same_task(setting, task)
    theirs = value(NAME, "Table 10", model=ANY, row="dataset", column=own, measure="samples")
    if task.translation:
        theirs = value(NAME, "Section A", model=ANY, row="XNLI", column=SAMPLES, measure="count")

    def shown(known: Any, published: float | None = None, digits: int = 3) -> Cell:
        return Cell(known, published=published, why=None if known else NOT_RUN, digits=digits)

    return (
        shown(trained.get("examples"), theirs, digits=0),
        shown(held.get("examples"), digits=0),
        shown(held.get("bare")),
        shown(held.get("instruction")),
    )


def _hyper(setting: Setting) -> Table:
    """Table 11: the settings of a training, and those of a negative start."""
    return grid(
        "The training of a mask",
        HYPER,
        ("directions", "word tasks"),
        lambda name, tasks: _hyper_cell(setting, name, tasks == "directions"),
        _reference("Table 11", ANY, "settings, not results"),
        "Weights begin around -3 for a negative start, as in the paper. Noise and order follow "
        f"from the seed, {setting.seed}.",
    )


def _training(setting: Setting, translation: bool) -> MaskTraining:
    """How masks are trained; InputError for so few steps that no weight can change its side."""
    changes = training_changes(setting, translation)
    return preset(None, setting.geometry.total, seed=setting.seed, **changes)


def _hyper_cell(setting: Setting, name: str, translation: bool) -> Cell:
    one = _training(setting, translation)
    row = "translation" if translation else "word task"
    place = {"row": row, "column": name, "measure": "setting"}
    theirs = value(NAME, "Section B", model=paper_model(NAME, setting.model.model) or ANY, **place)
    theirs = theirs or value(NAME, "Table 11", model=ANY, **place)
    ours: float = getattr(one, HYPER[name])
    # As many decimals as either needs: counts of steps have none.
    shown = (f"{number:.4f}".rstrip("0") for number in (ours, theirs) if number is not None)
    return Cell(ours, published=theirs, digits=max(len(text.partition(".")[2]) for text in shown))


TABLE_9 = Experiment(
    "table-9",
    ("Table 9", "Table 10", "Table 11"),
    "Models, data and settings, ours beside the paper's",
    _steps,
    _tell,
    needs=lambda setting, name, steps: too_few(setting, words=True) if name == "Table 10" else (),
)
