"""The part of a run in which heads are removed: outputs, their links, statistics, evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headscope.data.pairs import PairFile
from headscope.recipes.inputs import Progress
from headscope.runs import Run
from headscope.verify.removal import Condition, Removal, generate
from headscope.verify.removal.evidence import evidence, statistics
from headscope.verify.removal.measures import kept_from, measure
from headscope.verify.removal.outputs import Label, Translations, output_rows, translations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel

__all__ = ["describe_conditions", "removal_run"]

STATISTICS = "statistics.safetensors"


def removal_run(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    means: NDArray[np.float32] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Translate under every condition, keep it in `run`, and say what it shows.

    Writes `outputs.jsonl`, `links.jsonl` and `statistics.safetensors`. The result is that of
    `describe_conditions`, with `links` beside it.
    """
    made = generate(lm, list(directions.values()), planned, config, run, means, progress)
    labels = [condition.label for condition in planned]
    table = {
        name: translations(pairs, [texts[at] for texts in made])
        for at, (name, pairs) in enumerate(directions.items())
    }
    run.write_jsonl("outputs.jsonl", output_rows(labels, table))
    method = _write_links(run, directions, labels, table)
    heads = [
        {"heads": [str(head) for head in one.heads], "filled_up": one.filled_up}
        for one in planned[1:]
    ]
    shown = describe_conditions(run, labels, table, heads, config.seed, progress)
    return {**shown, "links": {"method": method}}


def describe_conditions(
    run: Run,
    labels: Sequence[Label],
    made: Mapping[str, Translations],
    heads: Sequence[Mapping[str, Any]],
    seed: int,
    progress: Progress | None = None,
    identifier: str | None = None,
) -> dict[str, Any]:
    """The evidence in outputs, with `heads` and `filled_up` of each condition after the first.

    Writes `statistics.safetensors` into `run`: the numbers of every sentence. What cannot be
    measured now, but was before, is kept; `identifier` identified languages then.
    """
    if progress:
        progress("measuring", 0, 1)
    measures = measure(made)
    if (run.path / STATISTICS).exists():
        measures = kept_from(run.read_written(STATISTICS), measures, identifier)
    if progress:
        progress("measuring", 1, 1)
    run.write_tensors(STATISTICS, statistics(measures))
    sets = [(), *(tuple(one["heads"]) for one in heads)]
    shown = evidence(labels, sets, measures, seed, progress)
    shown["conditions"] = [
        {**row, **more} for row, more in zip(shown["conditions"], heads, strict=True)
    ]
    for name, one in shown["directions"].items():
        one["source_language"] = made[name].source_language
        one["target_language"] = made[name].target_language
    return shown


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
