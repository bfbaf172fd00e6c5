"""The part of a run in which heads are removed: texts, losses, statistics, evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.pairs import PairFile
from headscope.errors import InputError
from headscope.results.removal import (
    BASELINE,
    Condition,
    Label,
    Measuring,
    OutputLinks,
    ReferenceLinks,
    Shown,
)
from headscope.runs import Run
from headscope.studies.inputs import Progress
from headscope.verify.removal import Condition as Planned
from headscope.verify.removal import Removal, generate
from headscope.verify.removal.evidence import evidence, loss_evidence, statistics
from headscope.verify.removal.losses import (
    ReferenceLosses,
    reference_alignment,
    reference_losses,
)
from headscope.verify.removal.measures import (
    Translations,
    kept_from,
    measure,
    output_rows,
    translations,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

STATISTICS = "statistics.safetensors"


def removal_run(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    planned: Sequence[Planned],
    config: Removal,
    run: Run,
    means: NDArray[np.float32] | None = None,
    progress: Progress | None = None,
) -> Shown:
    """Measure every condition, keep it in `run`, and say what it shows.

    Writes `statistics.safetensors`, and for texts `outputs.jsonl` and `links.jsonl`.
    """
    draws = config.all_draws
    losses = table = found = links = None
    if "loss" in draws:
        found = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(lm, directions, found, planned, config, run, means, progress)
    if "text" in draws:
        wanted = [one for one in planned if (one.label.draw or 0) < draws["text"]]
        labels = [one.label for one in wanted]
        made = generate(lm, list(directions.values()), wanted, config, run, means, progress)
        table = {
            name: translations(pairs, [texts[at] for texts in made])
            for at, (name, pairs) in enumerate(directions.items())
        }
        run.write_jsonl("outputs.jsonl", output_rows(labels, table))
        links = OutputLinks(_write_links(run, directions, labels, table))
    conditions = [
        Condition(
            label=one.label, heads=tuple(map(str, one.heads)), filled_up=one.filled_up
        )
        for one in planned[1:]
    ]  # fmt: skip
    languages = {
        name: (one.source_language, one.target_language) for name, one in directions.items()
    }
    shown = describe_conditions(
        run, conditions, languages, draws.get("text", 0), table, losses, config.seed, progress
    )
    if found is not None:
        told = {n: ReferenceLinks(one.aligner, one.units, one.digest) for n, one in found.items()}
        shown = replace(shown, reference_links=told)
    return replace(shown, links=links)


def describe_conditions(
    run: Run,
    conditions: Sequence[Condition],
    languages: Mapping[str, tuple[str, str]],
    text_draws: int,
    made: Mapping[str, Translations] | None,
    losses: Mapping[str, ReferenceLosses] | None,
    seed: int,
    progress: Progress | None = None,
    before: Measuring | None = None,
) -> Shown:
    """The evidence in texts, of the first `text_draws`, and in losses, of all draws.

    `conditions` are those after the model as it is, of which labels and heads count. Writes
    `statistics.safetensors` into `run`: the numbers of every sentence. What cannot be measured now,
    but was before, is kept; `before` is what was told then.
    """
    kept = dict[str, NDArray[Any]]()
    heads = {one.label: one.heads or () for one in conditions}
    text = loss = None
    if made is not None:
        if progress:
            progress("measuring", 0, 1)
        measures = measure(made)
        if (run.path / STATISTICS).exists():
            measures = kept_from(run.read_written(STATISTICS), measures, before or Measuring())
        if progress:
            progress("measuring", 1, 1)
        kept |= statistics(measures)
        labels = [label for label in heads if (label.draw or 0) < text_draws]
        sets = [(), *(heads[label] for label in labels)]
        text = evidence([BASELINE, *labels], sets, measures, seed, progress)
    if losses is not None:
        kept |= {f"{name}.{key}": array for name, one in losses.items()
                 for key, array in one.tensors().items()}  # fmt: skip
        loss = loss_evidence([BASELINE, *heads], [(), *heads.values()], losses, seed)
    run.write_tensors(STATISTICS, kept)
    shown = _together(text, loss)
    rows = zip(shown.conditions, conditions, strict=True)
    return replace(
        shown,
        conditions=tuple(
            replace(row, heads=one.heads, filled_up=one.filled_up) for row, one in rows
        ),
        directions={
            name: replace(shown.directions[name], source_language=source, target_language=target)
            for name, (source, target) in languages.items()
        },
    )


def _together(text: Shown | None, loss: Shown | None) -> Shown:
    """What texts and losses show of the same conditions."""
    if text is None or loss is None:
        shown = text or loss
        assert shown is not None
        return shown
    parts = text.directions.items()
    directions = {name: part.with_losses(loss.directions[name]) for name, part in parts}
    return replace(text.with_losses(loss), directions=directions)


def read_losses(run: Run, directions: Iterable[str]) -> dict[str, ReferenceLosses]:
    """The stored losses of a finished run; `InputError` if they are damaged."""
    stored = run.read_written(STATISTICS)
    try:
        return {
            name: ReferenceLosses(
                stored[f"{name}.nll"], stored[f"{name}.nll_tokens"].astype(np.int64)
            )
            for name in directions
        }
    except KeyError as error:
        raise InputError(
            f"{run.path / STATISTICS}: holds no losses; run the verification again"
        ) from error


def _write_links(
    run: Run,
    directions: Mapping[str, PairFile],
    labels: Sequence[Label],
    made: Mapping[str, Translations],
) -> str | None:
    """Write `links.jsonl`, for reading outputs beside their sources; how they were linked."""
    from headscope.data.align.outputs import align_conditions

    shown = _shown(labels)
    methods: list[str | None] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, pairs in directions.items():
            texts = {kind: made[name].texts[at] for kind, at in shown.items()}
            texts["reference"] = made[name].references
            for kind, linked in align_conditions(pairs, texts).items():
                for pair, one in zip(pairs.pairs, linked, strict=True):
                    methods.append(one.method)
                    yield {
                        "direction": name,
                        "id": pair.id,
                        "condition": kind,
                        "source_spans": one.source_spans,
                        "output_spans": one.output_spans,
                        "links": one.links,
                    }

    run.write_jsonl("links.jsonl", rows())
    return next((method for method in methods if method is not None), None)


def _shown(labels: Sequence[Label]) -> dict[str, int]:
    """Where the conditions stand that a page shows side by side.

    The model as it is, the largest set at its first gate, and the first random draw beside it.
    """
    largest = max(label.k for label in labels)
    top = next(at for at, one in enumerate(labels) if one.kind == "top" and one.k == largest)
    random = next(
        (at for at, one in enumerate(labels) if one == replace(labels[top], kind="random", draw=0)),
        None,
    )
    return {"baseline": 0, "top": top} | ({} if random is None else {"random": random})
