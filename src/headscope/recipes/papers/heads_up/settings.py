"""Tables 9, 10 and 11: the model, the data and the settings, ours beside the paper's."""

from __future__ import annotations

from typing import Any

from headscope.find.mask import MaskTraining, preset
from headscope.recipes.papers.heads_up.asked import Asked, chosen, directions, word_tasks
from headscope.recipes.papers.heads_up.beside import MAIN, NAME
from headscope.recipes.papers.heads_up.steps import mask_name, proof_name, slug, training_changes
from headscope.recipes.papers.heads_up.words import instructions, same_task
from headscope.recipes.papers.paper import Experiment, Missing, Setting, Step
from headscope.recipes.papers.published import ANY, paper_model, source, value
from headscope.recipes.papers.told import Cell, Reference, Row, Table, Told

__all__ = ["TABLE_9"]

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
SHAPE = ("parameters", "layers", "heads per layer", "key-value heads per layer", "heads")


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    """None: everything here is known before anything is run, and so is whether it can be meant."""
    for translation in (True, False):
        _training(setting, translation)
    return ()


def _settings_reference(table: str, model: str, why: str) -> Reference:
    return Reference(source(NAME, table), model, False, why)


def _tell(setting: Setting) -> Told:
    tables = (_model(setting), _data(setting), _hyper(setting))
    size = "small-model" if setting.small else "paper's"
    found = f"Masks are trained by the {size} settings"
    if setting.small:
        found += (
            f", because the model has {setting.geometry.total} heads: a tenth of the paper's steps "
            "at ten times its learning rates, so that weights can move as far"
        )
    return Told(tables, found=f"{found}.", sure="Settings are no measurements.")


def _model(setting: Setting) -> Table:
    """Table 9: the model's shape."""
    theirs = paper_model(NAME, setting.model.model) or MAIN
    geometry = setting.geometry
    about = _about(setting)
    per_layer = sorted(set(geometry.counts))
    keys = about.get("key_value_heads")
    ours: dict[str, float | str | None] = {
        "parameters": about.get("parameters"),
        "layers": geometry.layers,
        "heads per layer": per_layer[0] if len(per_layer) == 1 else _span(per_layer),
        "key-value heads per layer": None if not keys else _one(sorted(set(keys))),
        "heads": geometry.total,
    }
    return Table(
        f"The model ({slug(setting.model.model)})",
        ("number",),
        tuple(
            Row(
                name,
                (
                    Cell(
                        ours[name],
                        published=value(
                            NAME,
                            "Table 9",
                            model=theirs,
                            row="model",
                            column=name,
                            measure="count",
                        ),
                        why=None if ours[name] is not None else "known once a mask was tested",
                        digits=0,
                    ),
                ),
            )
            for name in SHAPE
        ),
        _settings_reference("Table 9", theirs, "shapes of models, not results"),
    )


def _about(setting: Setting) -> dict[str, Any]:
    """What a finished proof says about the model, if there is one."""
    for task in (*directions(setting), *word_tasks(setting)):
        result = setting.result(proof_name(task))
        if result is not None:
            found: dict[str, Any] = result["model"]
            return found
    return {}


def _one(numbers: list[int]) -> float | str:
    return numbers[0] if len(numbers) == 1 else _span(numbers)


def _span(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}"


def _data(setting: Setting) -> Table:
    """Table 10: examples of each task, and its prompts."""
    tasks = (*chosen(directions(setting)), *chosen(word_tasks(setting)))
    return Table(
        "The data",
        ("examples trained on", "held out", "bare prompt", "instructed prompt"),
        tuple(Row(task.name, _data_cells(setting, task)) for task in tasks),
        _settings_reference("Table 10", ANY, "of word tasks all examples, not those trained on"),
        f"{instructions(setting)} The paper holds out 100 examples of each task, of which the "
        "bundled model's word tasks have fewer.",
    )


def _data_cells(setting: Setting, task: Asked) -> tuple[Cell, ...]:
    trained = setting.result(mask_name(task))
    tested = setting.result(proof_name(task))
    theirs = value(
        NAME,
        "Table 10",
        model=ANY,
        row="dataset",
        column=same_task(setting, task),
        measure="samples",
    )
    if task.translation:
        theirs = value(NAME, "Section A", model=ANY, row="XNLI", column=SAMPLES, measure="count")
    held = None if tested is None else tested["tasks"][task.name]
    return (
        Cell(
            None if trained is None else trained["examples"],
            published=theirs,
            why=None if trained is not None else "not run",
            digits=0,
        ),
        Cell(
            None if held is None else held["examples"],
            why=None if held is not None else "not run",
            digits=0,
        ),
        Cell(None if held is None else held["bare"], why=None if held is not None else "not run"),
        Cell(
            None if held is None else held["instruction"],
            why=None if held is not None and held["instruction"] else "not run",
        ),
    )


def _hyper(setting: Setting) -> Table:
    """Table 11: the settings of a training, and those of a negative start."""
    rows = []
    for name in HYPER:
        cells = []
        for translation in (True, False):
            cells.append(_hyper_cell(setting, name, translation))
        rows.append(Row(name, tuple(cells)))
    return Table(
        "The training of a mask",
        ("directions", "word tasks"),
        tuple(rows),
        _settings_reference("Table 11", ANY, "settings, not results"),
        "Weights begin around -3 for a negative start, as in the paper. Noise and order follow "
        f"from the seed, {setting.seed}.",
    )


def _training(setting: Setting, translation: bool) -> MaskTraining:
    """How masks are trained; InputError for so few steps that no weight can change its side."""
    changes = training_changes(setting, translation)
    return preset(None, setting.geometry.total, seed=setting.seed, **changes)


def _hyper_cell(setting: Setting, name: str, translation: bool) -> Cell:
    one = _training(setting, translation)
    theirs = value(
        NAME,
        "Table 11",
        model=ANY,
        row="translation" if translation else "word task",
        column=name,
        measure="setting",
    )
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
)
