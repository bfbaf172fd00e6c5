"""A package of somebody else's: a method, a control, a measure and a reader for headscope."""

import json
from dataclasses import dataclass, field

import numpy as np

from headscope import options
from headscope.data.formats import Format
from headscope.evidence.rows import Control
from headscope.heads import HeadScores
from headscope.heads.draws import sets_within
from headscope.results.head_scores import ScoresResult
from headscope.settings import Settings
from headscope.shown.blocks import Shown
from headscope.studies.find.head_scores import scores_run
from headscope.studies.models import ModelChoice
from headscope.studies.shows import head_table, strongest
from headscope.studies.study import Study


@dataclass(frozen=True)
class FindDepth(Settings):
    """Score every head by how deep it lies."""

    model: ModelChoice = field(default_factory=ModelChoice)
    power: options.Shots = 1


def find_depth(config, out=None, progress=None):
    """Score all heads."""
    lm = config.model.load_for()
    depth = np.arange(lm.geometry.layers)[:, None] ** float(config.power)
    values = np.broadcast_to(depth, lm.geometry.shape).astype(np.float32)
    scores = HeadScores(lm.geometry, values, "depth", config={"examples": 1})
    return scores_run(
        "find depth", config, lm, {}, out, lambda run, steps: scores, progress, ScoresResult
    )


def show(result, run):
    """The deepest heads."""
    table = head_table("Every head, deepest first", {"mean": result.scored})
    return Shown("Depth", "Which heads lie deep?", [strongest(result.scored)], figure=table)


command = Study(FindDepth, find_depth, result=ScoresResult, show=show, measures="depth")


def drawn(heads, draws, seed, basis):
    """Random heads of odd or even layers, as many of each."""
    every = basis.left(heads.geometry)
    groups = [[head for head in every if head.layer % 2 == odd] for odd in (0, 1)]
    sizes = tuple(sum(head in heads for head in group) for group in groups)
    name, chosen = f"parity {seed}", frozenset(heads)
    return sets_within(groups, sizes, heads.geometry, draws, name, chosen, basis.watch)


PARITY = Control("random heads of layers of the same parity", "any heads of these layers", drawn)


def length_ratio(outputs, references):
    """How long each output is, beside its reference."""
    return [len(a) / max(1, len(b)) for a, b in zip(outputs, references, strict=True)]


def _records(lines, path):
    for at, line in lines:
        if line.strip():
            source, _, target = line.strip().partition(" ||| ")
            yield at, json.dumps({"source": source, "target": target})


BARS = Format("bars", (".bars",), objects=_records)
