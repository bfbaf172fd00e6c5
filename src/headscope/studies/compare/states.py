"""Hidden states of a masked and an instructed model beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.compare.states_similarity import (
    CONDITIONS,
    Sample,
    describe,
    observe,
    states_evidence,
)
from headscope.data.tasks import Task
from headscope.errors import InputError
from headscope.estimates import Mean
from headscope.evidence.headline import Case
from headscope.evidence.rows import Evidence
from headscope.results.states import (
    ByPlace,
    ComparedStates,
    KeptHeads,
    Lens,
    LensRow,
    StatesDetails,
    StatesFound,
)
from headscope.runs import decode, encode
from headscope.runs.reading import read_arrays
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import (
    Cell,
    Lines,
    Row,
    Section,
    Series,
    Table,
)
from headscope.shown.words import arrow, percent
from headscope.studies.comparison import Bench, Chosen, Comparison, Examples, Measured
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.masked_tasks import (
    OnTasks,
    TaskForMask,
    chosen_masks,
    examples_of,
    place_of_example,
    read_task_for_mask,
    with_chat,
)
from headscope.studies.tasks import TaskChoice, answers
from headscope.verify.masked_tasks.asking import Mask, Planned
from headscope.verify.masked_tasks.conditions import TaskMasks, mask_conditions

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Samples that are looked at, and written down, at once.
_AT_ONCE = 16
#: Samples below which the finding is weak.
_SAMPLES = 30

#: How conditions are called.
_WORDS = {"as is": "original"}


@dataclass(frozen=True, kw_only=True)
class CompareStates(OnTasks):
    """Compare hidden states: original, instructed, masked (only --heads kept) and both, by layer.

    Without --task and --pair a mask run of the bundled model is tested on its own task.

    The run keeps `states.safetensors`, the cosines, lens tokens and ranks of every sample.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    tasks: Annotated[TaskChoice, Nested(without=("shots",))] = field(default_factory=TaskChoice)
    example: options.Example = None
    top: Annotated[int, Option("Tokens that the logit lens shows.", min=1)] = 5


def _read(config: CompareStates) -> Examples[TaskForMask]:
    if config.tasks.shots:
        raise InputError("states are compared in prompts without examples; leave --shots out")
    chosen = read_task_for_mask(
        config.heads, config.tasks, config.model, config.seed, config.allow_overlap
    )
    _shown(chosen.test, config.example)  # what is not there is told before a model is loaded
    return examples_of({chosen.name: chosen}, signed=chosen.signed)


def _heads(lm: LanguageModel, config: CompareStates, examples: Examples[TaskForMask]) -> Chosen:
    return chosen_masks(
        {name: TaskMasks(chosen.mask(lm.geometry)) for name, chosen in examples.parts.items()}
    )


def _measure(bench: Bench[CompareStates, TaskForMask]) -> Measured:
    ((name, chosen),) = bench.parts.items()
    task, mask = chosen.test, bench.chosen.known[name].mask
    tensors = _observed(bench, task, mask, bench.plans[name])
    bench.run.write_tensors("states.safetensors", tensors)
    about = {
        "task": name,
        "prompts": {"bare": task.bare, "instructed": task.instruction},
        "data": chosen.data(),
        "mask": decode(KeptHeads, {**encode(mask.about()), "place": bench.config.heads}),
        "states": describe(tensors, bench.config.controls),
        "lens": _lens(bench.lm, task, _shown(task, bench.config.example), tensors),
    }
    return Measured(states_evidence(tensors, name, bench.of(name)), about)


def _shown(task: Task, example: str | None) -> int:
    """Which sample is shown through the lens."""
    return 0 if example is None else place_of_example(task, example)


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
    bench: Bench[CompareStates, TaskForMask], task: Task, mask: Mask, planned: Planned
) -> dict[str, NDArray[Any]]:
    """What `observe` keeps of all samples; those of an earlier try from the run's parts."""
    lm, config, run = bench.lm, bench.config, bench.run
    samples = _samples(lm, task)
    controls = {
        name: [way.mask for condition, way in planned.items()
               if condition.kind == name and way.mask]
        for name in config.controls
    }  # fmt: skip
    kept = run.read_tensors("states")
    parts: list[Mapping[str, NDArray[Any]]] = []
    for start in range(0, len(samples), _AT_ONCE):
        key = f"{start:08d}"
        if key not in kept:
            some = samples[start : start + _AT_ONCE]
            kept[key] = observe(lm, some, mask, controls, config.top, config.batch_tokens)
            run.append_tensors("states", key, kept[key])
        parts.append(kept[key])
        if bench.progress:
            bench.progress("comparing states", min(start + _AT_ONCE, len(samples)), len(samples))
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


def _cautions(table: Evidence, details: StatesDetails) -> Iterator[str]:
    if details.states.samples < _SAMPLES:
        yield f"Few samples ({details.states.samples}): the intervals are wide or unreliable."
    if not table.tests:
        yield "Without random masks, any mask of this size may have the same effect."


def _extras(result: ComparedStates, run: Path) -> Extras:
    """Cosines by layer beside random masks, and the lens."""
    details = result.details
    states, mask = details.states, details.mask
    pairs = {_pair_name(pair.a, pair.b): pair for pair in states.pairs} | {
        f"{name} \u2013 instructed": rows for name, rows in states.controls.items()
    }
    nearer = {f"than {name}": rows for name, rows in states.nearer.items()}
    shared = {_pair_name(pair.a, pair.b): pair.layers[1:] for pair in states.shared_top}
    top = len(next(iter(details.lens.conditions.values()))[0].tokens)
    return Extras(
        facts=[
            ("task", arrow(details.task)),
            ("heads kept", f"{mask.kept} ({percent(mask.kept_share)})"),
            ("layers", str(states.layers)),
        ],
        sections=[
            Section("Through the lens", [_ranks(details), _lens_table(details.lens)]),
            Section(
                "Layers in numbers",
                [
                    _layers(
                        "Cosine after each layer",
                        {name: rows.after_layer for name, rows in pairs.items()},
                    ),
                    _layers(
                        "Cosine after each attention",
                        {name: rows.after_attention for name, rows in pairs.items()},
                    ),
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
        ],
        figure=_by_layer(states, run),
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


WORDS = Words(
    "Hidden states",
    "Does the masked model pass through the same hidden states as the instructed one?",
    "sample",
    "Cosines of states at the last input token, mean over samples; 1 is the same direction. "
    "Original, masked and random masks read the input without its instruction. Random masks keep "
    "as many heads. After attention: the state with what the layer\u2019s attention wrote, before "
    "its feed-forward part. The verdict is on the mean over the later half of the layers.",
)

comparison = Comparison(
    command="compare states",
    settings=CompareStates,
    result=ComparedStates,
    details=StatesDetails,
    read=_read,
    ready=with_chat,
    heads=_heads,
    plan=lambda masks, config, basis: mask_conditions(masks[0], config, basis, of=""),
    measure=_measure,
    cases=lambda table, details: [Case("cosine", table.main, lead="Under the mask")],
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="samples",
    usage="--heads runs/plural --task plural-en",
)
command = comparison.study
