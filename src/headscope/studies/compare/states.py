"""Hidden states of a masked and an instructed model beside each other, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.compare.hidden_states import (
    CONDITIONS,
    Sample,
    describe,
    observe,
    states_evidence,
)
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Mean
from headscope.evidence.blocks import moved, tables, uncertainty, verdict
from headscope.evidence.controls import SHUFFLES, Controlled
from headscope.evidence.rows import Basis, Condition
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.states import (
    ByPlace,
    ComparedStates,
    KeptHeads,
    Lens,
    LensRow,
    StatesDetails,
    StatesFound,
)
from headscope.runs import Run, decode, encode
from headscope.runs.reading import read_arrays
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import (
    Cell,
    HeadSets,
    Lines,
    Row,
    Section,
    Series,
    Shown,
    Table,
    method_section,
)
from headscope.shown.words import arrow, percent, sentence_of
from headscope.studies.baseline import check_tasks
from headscope.studies.masked_tasks import read_task_for_mask
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import leakage_caution, model_facts, named_places
from headscope.studies.study import Study
from headscope.studies.tasks import TaskChoice, TaskSides, answers, resolved_tasks
from headscope.verify.masks.asking import Mask, Way
from headscope.verify.masks.conditions import beside_controls, condition_of

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "compare states"

#: Samples that are looked at, and written down, at once.
_AT_ONCE = 16
#: Samples below which the finding is weak.
_SAMPLES = 30

#: How conditions are called.
_WORDS = {"as is": "original"}


@dataclass(frozen=True)
class CompareStates(Controlled):
    """Compare hidden states: original, instructed, masked (only --heads kept) and both, by layer.

    Without --task and --pair a mask run of the bundled model is tested on its own task.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    tasks: Annotated[TaskChoice, Nested(without=("shots",))] = field(default_factory=TaskChoice)
    example: options.Example = None
    # Random masks of the same size, of each kind.
    draws: options.Draws = 5
    seed: options.Seed = 0
    top: Annotated[int, Option("Tokens that the logit lens shows.", min=1)] = 5
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    controls: options.MaskControls = SHUFFLES


def compare_states(
    config: CompareStates, out: Path | None = None, progress: Progress | None = None
) -> ComparedStates:
    """Compare states and return the command's result; a run that was stopped goes on.

    The run keeps `states.safetensors`, the cosines, lens tokens and ranks of every sample.
    """
    began = time.monotonic()
    if config.tasks.shots:
        raise InputError("states are compared in prompts without examples; leave --shots out")
    chosen = read_task_for_mask(
        config.heads, config.tasks, config.model, config.seed, config.allow_overlap
    )
    task = chosen.task
    shown = _shown(task, config.example)
    lm = config.model.load_for()
    config = replace(config, tasks=resolved_tasks(lm, config.tasks, config.model.model))
    mask = chosen.mask(lm.geometry)
    samples = _samples(lm, task)
    settings = {"settings": config, **chosen.signature(mask), "computed_in": str(lm.dtype)}

    def compute(run: Run) -> ComparedStates:
        sides = {task.name: TaskSides(None, task)}
        works = check_tasks(lm, sides, 0, config.seed, run, config.baseline, progress)
        own = condition_of(mask, "")
        basis = Basis.on(lm, [[example.input for example in task.examples]])
        planned = beside_controls(own, Way(mask), config, basis)
        tensors = _observed(lm, samples, mask, planned, config, run, progress)
        run.write_tensors("states.safetensors", tensors)
        kept = {**encode(mask.about()), "place": config.heads}
        result = ComparedStates(
            baseline_works=works["baseline_works"],
            evidence=states_evidence(tensors, task.name, [Condition(), *planned]),
            details=StatesDetails(
                task=task.name,
                prompts={"bare": task.bare, "instructed": task.instruction},
                data=chosen.data(),
                mask=decode(KeptHeads, kept),
                leakage=chosen.leakage,
                draws=config.draws,
                states=describe(tensors, config.controls),
                lens=_lens(lm, task, shown, tensors),
                baseline_check=works["baseline_check"],
            ),
        )
        cautions = tuple(_cautions(result))
        return replace(result, verdict=verdict(result.evidence, "cosine"), cautions=cautions)

    return run_with_model(
        lm, COMMAND, out, settings, chosen.inputs, compute, began, kind=ComparedStates
    )


def _shown(task: Task, example: str | None) -> int:
    """Which sample is shown through the lens."""
    ids = [each.id for each in task.examples]
    if example is None:
        return 0
    if example not in ids:
        raise InputError(
            f"--example {example} is none of the {len(ids)} held-out examples of {task.name!r}; "
            f"there are {', '.join(ids[:8])}{' …' if len(ids) > 8 else ''}"
        )
    return ids.index(example)


def _samples(lm: LanguageModel, task: Task) -> list[Sample]:
    rows = zip(task.examples, answers(lm, task), answers(lm, task, instructed=True), strict=True)
    return [
        Sample(
            bare.ids[: bare.start],
            instructed.ids[: instructed.start],
            bare.ids[bare.start],
            f"{task.path}, example {example.id} (line {example.line})",
        )
        for example, bare, instructed in rows
    ]


def _observed(
    lm: LanguageModel,
    samples: Sequence[Sample],
    mask: Mask,
    planned: Mapping[Condition, Way],
    config: CompareStates,
    run: Run,
    progress: Progress | None,
) -> dict[str, NDArray[Any]]:
    """What `observe` keeps of all samples; those of an earlier try from the run's parts."""
    controls = {
        name: [way.mask for each, way in planned.items() if each.kind == name and way.mask]
        for name in config.controls
    }
    kept = run.read_tensors("states")
    parts: list[Mapping[str, NDArray[Any]]] = []
    for start in range(0, len(samples), _AT_ONCE):
        key = f"{start:08d}"
        if key not in kept:
            some = samples[start : start + _AT_ONCE]
            kept[key] = observe(lm, some, mask, controls, config.top, config.batch_tokens)
            run.append_tensors("states", key, kept[key])
        parts.append(kept[key])
        if progress:
            progress("comparing states", min(start + _AT_ONCE, len(samples)), len(samples))
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _lens(lm: LanguageModel, task: Task, shown: int, tensors: Mapping[str, NDArray[Any]]) -> Lens:
    """What each layer would say about the sample shown, the embedding first."""
    example = task.examples[shown]
    own = [tensors[name][:, shown].tolist() for name in ("lens_tokens", "lens_logits", "ranks")]
    conditions = {
        name: tuple(
            LensRow(
                layer - 1 if layer else None,
                tuple(lm.decode([token], special=True) for token in tokens),
                tuple(logits),
                rank,
            )
            for layer, (tokens, logits, rank) in enumerate(zip(*rows, strict=True))
        )
        for name, *rows in zip(CONDITIONS, *own, strict=True)
    }
    return Lens(example.id, example.input, example.output, conditions)


def _cautions(result: ComparedStates) -> Iterator[str]:
    evidence, details = result.evidence, result.details
    yield from leakage_caution(details.leakage, "samples")
    if details.states.samples < _SAMPLES:
        yield f"Few samples ({details.states.samples}): the intervals are wide or unreliable."
    if not evidence.tests:
        yield "Without random masks, any mask of this size may have the same effect."


def _show(result: ComparedStates, run: Path) -> Shown:
    """Cosines by layer beside random masks, the rank of the answer, and all numbers."""
    evidence, details = result.evidence, result.details
    states, mask, main = details.states, details.mask, result.evidence.main
    removed = HeadSets("Heads that the mask removes", {details.task: named_places(main.heads)})
    pairs = {_pair_name(pair.a, pair.b): pair for pair in states.pairs} | {
        f"{name} \u2013 instructed": rows for name, rows in states.controls.items()
    }
    nearer = {f"than {name}": rows for name, rows in states.nearer.items()}
    shared = {_pair_name(pair.a, pair.b): pair.layers[1:] for pair in states.shared_top}
    after = {name: rows.after_layer for name, rows in pairs.items()}
    attention = {name: rows.after_attention for name, rows in pairs.items()}
    top = len(next(iter(details.lens.conditions.values()))[0].tokens)
    return Shown(
        "Hidden states",
        "Does the masked model pass through the same hidden states as the instructed one?",
        [
            sentence_of(result.verdict),
            *moved(evidence, "cosine", main, "In the later half of the layers, under the mask"),
        ],
        *uncertainty(evidence, "cosine", main, f"{states.samples} samples"),
        result.cautions,
        [
            *model_facts(result.model_name),
            ("task", arrow(details.task)),
            ("heads kept", f"{mask.kept} ({percent(mask.kept_share)})"),
            ("layers", str(states.layers)),
        ],
        [
            Section("Heads", [removed]),
            tables(evidence, ["cosine"], main, "samples"),
            Section("Through the lens", [_ranks(details), _lens_table(details.lens)]),
            Section(
                "Layers in numbers",
                [
                    _layers("Cosine after each layer", after),
                    _layers("Cosine after each attention", attention),
                    _layers(
                        "How much nearer the masked model is to the instructed one",
                        {name: rows.after_layer for name, rows in nearer.items()},
                        "Differences of cosines. With many layers some intervals exclude 0 by "
                        "chance",
                    ),
                    _layers(
                        f"Share of the {top} likeliest tokens that two conditions have in common",
                        shared,
                    ),
                ],
            ),
            method_section(
                "Cosines of states at the last input token, mean over samples; 1 is the same "
                "direction. Original, masked and random masks read the input without its "
                "instruction. Random masks keep as many heads. After attention: the state with "
                "what the layer\u2019s attention wrote, before its feed-forward part. The verdict "
                "is on the mean over the later half of the layers."
            ),
        ],
        _by_layer(states, run),
    )


def _by_layer(states: StatesFound, run: Path) -> Lines:
    """Cosines with the instructed model after each layer; random masks with their range."""
    drawn = read_arrays(run / "states.safetensors", list(states.controls))
    own = {"original": ("as is", "instructed"), "masked": ("instructed", "masked")}
    series = [_line(name, _pair(states, *pair).after_layer) for name, pair in own.items()]
    for name, rows in states.controls.items():
        each = drawn[name][:, :, 1].astype(np.float64).mean(axis=1)  # (draws, L)
        ends = zip(rows.after_layer, each.min(axis=0), each.max(axis=0), strict=True)
        series.append(_line(name, (Mean(row.mean, *map(float, both)) for row, *both in ends)))
    return Lines(
        "Cosine with the instructed model after each layer",
        tuple(series),
        "layer",
        "cosine",
        band="95\u00a0% intervals, of random masks the range of draws",
    )


def _layers(title: str, shown: Mapping[str, Sequence[Mean]], note: str = "") -> Table:
    """Means after each layer, a row a layer."""
    rows = tuple(
        Row(f"layer {layer}", tuple(map(Cell.of, means)))
        for layer, means in enumerate(zip(*shown.values(), strict=True))
    )
    return Table(title, tuple(shown), rows, note=note)


def _pair(states: StatesFound, a: str, b: str) -> ByPlace:
    return next(pair for pair in states.pairs if (pair.a, pair.b) == (a, b))


def _pair_name(a: str, b: str) -> str:
    return f"{_WORDS.get(a, a)} \u2013 {_WORDS.get(b, b)}"


def _line(name: str, rows: Iterable[Mean], first: int = 0) -> Series:
    return Series.of(name, ((float(at), row) for at, row in enumerate(rows, first)))


def _lens_table(lens: Lens) -> Table:
    def words(row: LensRow) -> Cell:
        tokens = " \u00b7 ".join(token.strip() or repr(token) for token in row.tokens)
        return Cell(f"{tokens} ({row.target_rank})")

    rows = tuple(
        Row(
            "embedding" if row[0].layer is None else f"layer {row[0].layer}",
            tuple(map(words, row)),
        )
        for row in zip(*lens.conditions.values(), strict=True)
    )
    columns = tuple(_WORDS.get(name, name) for name in lens.conditions)
    note = (
        "The likeliest next tokens if the layer were the last, and the rank of the answer\u2019s "
        f"first token. One sample, others can differ. Input: {lens.input}. Right answer: "
        f"{lens.output}"
    )
    return Table("Likeliest tokens by layer", columns, rows, note=note)


def _ranks(details: StatesDetails) -> Lines:
    ranks = (
        _line(_WORDS.get(name, name), [Mean(r.geometric_mean, r.low, r.high) for r in rows], -1)
        for name, rows in details.states.target_ranks.items()
    )
    return Lines(
        "Rank of the answer\u2019s first token in the lens",
        tuple(ranks),
        "layer (\u22121: embedding)",
        "rank (1: the likeliest)",
        note="Geometric mean over samples",
        logarithmic_y=True,
    )


command = Study(CompareStates, compare_states, result=ComparedStates, show=_show)
