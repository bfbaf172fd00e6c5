"""What a learned mask shows: the heads it keeps, its training, and the courses of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, nextafter
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores
from headscope.results.mask import Fate, FoundMask, MaskHead
from headscope.shown.blocks import (
    Cell,
    Column,
    HeadSets,
    HeadTable,
    Lines,
    Row,
    Section,
    Series,
    Shown,
    Table,
)
from headscope.shown.words import count, fixed, percent, sentence_of
from headscope.studies.shows import model_facts, places

#: Points of a line, and lines of single heads.
POINTS, LINES = 100, 4
#: A head is kept where its weight M is 0 or above, which is 0.5 or above in σ(M).
KEPT = nextafter(0.5, 0)
FATES: dict[Fate, str] = {
    "kept": "kept from beginning to end",
    "dropped": "kept at first, then dropped for good",
    "tried": "dropped, but kept again for a while",
    "regained": "kept, but dropped for a while",
    "added": "dropped at first, then kept for good",
    "never": "dropped from beginning to end",
}


@dataclass(frozen=True, eq=False)
class History:
    """The weights (S, L, W) after so many steps (S,)."""

    geometry: Geometry
    steps: NDArray[np.int64]
    weights: NDArray[np.float32]

    @classmethod
    def read(cls, path: Path, found: FoundMask) -> History:
        """Of a finished run; InputError if it is damaged or not that of this result."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        file = path / "history.safetensors"
        geometry = HeadScores.from_pretrained(path / "scores").geometry
        try:
            arrays = load(file.read_bytes())
            steps, weights, losses = (arrays[name] for name in ("steps", "weights", "losses"))
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from error
        except (SafetensorError, KeyError, ValueError) as error:
            raise InputError(f"{file}: is damaged; run the same command again") from error
        if (
            sorted(head.place for head in found.heads) != list(geometry.heads())
            or weights.shape != (len(steps), *geometry.shape)
            or len(steps) < 2
            or not int(steps[-1]) == len(losses) == len(found.loss)
        ):
            raise InputError(
                f"{path}: its files are not of one run; run the same command again into a new "
                "folder"
            )
        at = np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))
        return cls(geometry, steps[at], weights[at])

    def line(self, name: str, heads: Sequence[MaskHead]) -> Series:
        """The mean weight of these heads over steps, with the lowest and the highest."""
        weights = np.array([self.weights[:, head.layer, head.head] for head in heads])
        points = zip(self.steps.tolist(), weights.mean(axis=0).tolist(), strict=True)
        if len(heads) == 1:
            return Series(name, tuple(points))
        ends = (tuple(weights.min(axis=0).tolist()), tuple(weights.max(axis=0).tolist()))
        return Series(name, tuple(points), *ends)


def show(found: FoundMask, run: Path) -> Shown:
    """The heads kept by layer, every head, the loss, and heads that changed sides."""
    history = History.read(run, found)
    first, last = found.loss_ends
    dropped = "attends evenly: its queries are 0" if found.on == "query" else "writes nothing"
    cautions = [
        "The loss is of training: on the examples trained on, with gates drawn at random. "
        "headscope verify mask tests the mask on held-out examples, against random masks."
    ]
    if last >= first:
        cautions.append("The loss did not fall: the mask may not do the task.")
    cautions += map(sentence_of, found.notes)
    return Shown(
        "Learned mask",
        f"Which heads does {found.model_name} keep when it learns to do {found.task} without an "
        "instruction?",
        _finding(found),
        "One training run with one seed: another seed can keep other heads. Train again with",
        f"--seed {int(found.training.get('seed', 0)) + 1}",
        cautions,
        [
            *model_facts(found.model_name, len(found.heads)),
            ("task", found.task),
            ("examples", str(found.examples)),
            *([("shots", str(found.shots))] if found.shots else []),
            ("steps", str(len(found.loss))),
            ("start", "nearly all heads kept" if found.start == "positive" else "nearly none kept"),
            ("gates on", "queries" if found.on == "query" else "outputs"),
        ],
        [
            Section("Heads kept by layer", [_layers(found)], brief=True),
            Section(
                "Every head",
                [_heads(found), _kept(found)],
                "The model is frozen; one weight M a head is trained, and heads with M \u2265 0 at "
                f"the end are the mask. A dropped head {dropped}.",
            ),
            Section("Training", _training(found, history)),
            Section("Heads that switched", _courses(found, history)),
        ],
    )


def _finding(found: FoundMask) -> list[str]:
    first, last = found.loss_ends
    shares = {
        at: sum(head.selected for head in heads) / len(heads) for at, heads in found.layers.items()
    }
    fewest = min(shares, key=shares.__getitem__)
    heads = found.layers[fewest]
    gone = found.feed_forward_dropped
    parts = f" It drops the feed-forward part of layer {', '.join(map(str, gone))}." if gone else ""
    if found.feed_forward is not None and not gone:
        parts = " It keeps every feed-forward part."
    wavered = sum(head.wavered for head in found.heads)
    steps = found.twentieth
    ends = "first and last step" if steps == 1 else f"means of the first and the last {steps} steps"
    return [
        f"The mask keeps {found.selected} of {len(found.heads)} heads "
        f"({percent(found.kept_share, 1)}); layer {fewest} keeps the fewest, "
        f"{sum(head.selected for head in heads)} of {len(heads)}.{parts}",
        f"The loss of the answers without an instruction went from {fixed(first, 3)} to "
        f"{fixed(last, 3)} nats a token ({ends}). {count(wavered, 'head')} switched between kept "
        "and dropped more than once during training.",
    ]


def _layers(found: FoundMask) -> Table:
    rows = []
    for layer, heads in found.layers.items():
        dropped = [str(head.head) for head in heads if not head.selected]
        kept = len(heads) - len(dropped)
        cells = (Cell(kept), Cell(len(heads)), Cell.share(kept / len(heads)),
                 Cell(" ".join(dropped) or "none"))  # fmt: skip
        rows.append(Row(f"layer {layer}", cells))
    columns = ("kept", "heads", "share kept", "heads dropped")
    return Table("Heads kept by layer", columns, tuple(rows))


def _heads(found: FoundMask) -> HeadTable:
    heads = sorted(found.heads, key=lambda head: head.place)
    columns = (
        Column("open", "\u03c3(M)", "how open the gate is; kept from 0.5 on"),
        Column("weight", "Weight M", "kept from 0 on"),
        Column("changes", "Changes of side", "how often it was kept or dropped anew", 0),
    )
    values = {
        "open": [1 / (1 + exp(-head.score)) for head in heads],
        "weight": [head.score for head in heads],
        "changes": [float(len(head.changes)) for head in heads],
    }
    return HeadTable(
        "Every head by its weight",
        places(head.place for head in heads),
        columns,
        {found.task: values},
        ranked_by="open",
        threshold=KEPT,
        classes=(("kept", KEPT), ("dropped", None)),
        high=1.0,
        note="The nearer \u03c3(M) is to 0.5, the less certain is the head's place",
    )


def _kept(found: FoundMask) -> HeadSets:
    kept = [head.place for head in found.heads if head.selected]
    return HeadSets("Heads kept, highest weight first", {found.task: places(kept)})


def _training(found: FoundMask, history: History) -> list[Lines]:
    width = max(1, len(found.loss) // POINTS)
    blocks = {at: found.loss[at : at + width] for at in range(0, len(found.loss), width)}
    loss = tuple((at + len(part) / 2, fmean(part)) for at, part in blocks.items())
    kept = (history.weights >= 0)[:, history.geometry.mask()].sum(axis=1)
    size = tuple(
        zip(history.steps.astype(float).tolist(), kept.astype(float).tolist(), strict=True)
    )
    return [
        Lines(
            "Loss of the answers",
            (Series("loss", loss),),
            "step",
            "nats a token",
            note=f"Means of {count(width, 'step')}, with any penalty on kept heads",
        ),
        Lines("Size of the mask", (Series("heads with M \u2265 0", size),), "step", "heads kept"),
    ]


def _courses(found: FoundMask, history: History) -> list[Lines | Table]:
    wavered = [head for head in found.heads if head.wavered]
    groups = {
        "selected heads, mean": [head for head in found.heads if head.selected],
        "dropped heads, mean": [head for head in found.heads if not head.selected],
    }
    groups |= {f"head {head.place}": [head] for head in wavered[:LINES]}
    fates = tuple(
        Row(words, (Cell(found.fates[fate]),))
        for fate, words in FATES.items()
        if found.fates.get(fate)
    )
    listed = tuple(
        Row(
            str(head.place),
            (Cell(FATES[head.fate]), Cell(", ".join(map(str, head.changes)))),
        )
        for head in wavered
    )
    columns = ("course", "switched after steps")
    more = (Table("Heads that switched more than once", columns, listed),) if listed else ()
    return [
        Lines(
            "Weights during training",
            tuple(history.line(name, heads) for name, heads in groups.items() if heads),
            "step",
            "weight M",
            note="A head is kept while its weight M is 0 or above. Single heads: the first that "
            "changed sides more than once"
            if wavered
            else "A head is kept while its weight M is 0 or above",
            band="the range over heads",
        ),
        Table(
            "Courses of heads",
            ("heads",),
            fates,
            note="Stretches of less than 1\u00a0% of the steps are left out",
        ),
        *more,
    ]
