"""What the reports of summaries, off-target rates and attention transfer read of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.runs.reading import damaged_line, naming, read_result, read_rows

__all__ = ["Effect", "Example", "Part", "WritingRecord", "read_writing"]

MEAN = "mean"
CONTROLS = {"random": "", "random-layer-matched": "_layer_matched"}
#: Prompts whose outputs are shown beside each other.
EXAMPLES = 12


@dataclass(frozen=True)
class Effect:
    """One kind of chosen heads by one measure: as is, changed, and random heads by kind.

    `change` and `against` (by kind of random heads) are (value, low, high); `tests` holds p-values
    and the number of different draws by kind.
    """

    baseline: float
    value: float
    change: tuple[float, float, float]
    random: Mapping[str, float]
    draws: Mapping[str, tuple[float, ...]]
    against: Mapping[str, tuple[float, float, float]]
    tests: Mapping[str, tuple[float, float, int]]


@dataclass(frozen=True)
class Part:
    """One group of prompts, or the mean over all: effects by chosen kind and measure."""

    prompts: int
    effects: Mapping[str, Mapping[str, Effect]]


@dataclass(frozen=True)
class Example:
    """What was written of one prompt as it is and with each chosen kind changed."""

    group: str
    id: str
    reference: str | None
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class WritingRecord:
    """A finished run; `parts` holds the groups, and under `mean` all of them if there are several.

    `sizes` says how many heads each chosen kind changes, by group.
    """

    result: Mapping[str, Any]
    model: str
    parts: Mapping[str, Part]
    sizes: Mapping[str, Mapping[str, int]]
    examples: tuple[Example, ...]

    @property
    def whole(self) -> Part:
        """The mean over groups, or the only group."""
        return self.parts.get(MEAN) or next(iter(self.parts.values()))


def read_writing(path: Path, groups: str, group: str, what: str) -> WritingRecord:
    """Read a finished run; InputError if the folder holds none of this kind or is damaged.

    `groups` names the groups in the result (`languages`, `pairs`), `group` one of them in the file
    of outputs, and `what` the kind of run, for messages.
    """
    result = read_result(path)
    with naming(path / "result.json", what):
        parts = {str(name): _part(one) for name, one in result[groups].items()}
        sizes = {
            str(name): {
                str(row["kind"]): int(row["k"]) for row in one["conditions"] if row["draw"] is None
            }
            for name, one in result[groups].items()
        }
        if len(parts) > 1:
            parts[MEAN] = _part(result)
        model = str(result["model"]["name"])
    if not parts:
        raise InputError(f"{path}: holds no {groups}; run the same command again")
    return WritingRecord(result, model, parts, sizes, _examples(path / "outputs.jsonl", group))


def _part(one: Mapping[str, Any]) -> Part:
    drawn: dict[str, list[Mapping[str, Any]]] = {}
    for row in one["conditions"]:
        if row["draw"] is not None:
            drawn.setdefault(str(row["kind"]), []).append(row)
    return Part(
        int(one["prompts"]),
        {
            str(kind): {
                str(measure): _effect(effect, drawn, str(kind), str(measure))
                for measure, effect in measures.items()
            }
            for kind, measures in one["effects"].items()
        },
    )


def _effect(
    effect: Mapping[str, Any], drawn: Mapping[str, list[Mapping[str, Any]]], kind: str, measure: str
) -> Effect:
    there = {name: end for name, end in CONTROLS.items() if f"random{end}" in effect}
    return Effect(
        baseline=float(effect["baseline"]),
        value=float(effect["value"]),
        change=_estimate(effect["change"]),
        random={name: float(effect[f"random{end}"]["mean"]) for name, end in there.items()},
        draws={
            name: tuple(
                float(row[measure])
                for row in drawn.get(name) or drawn.get(f"{kind}-{name}") or ()
                if row[measure] is not None
            )
            for name in there
        },
        against={name: _estimate(effect[f"against_random{end}"]) for name, end in there.items()},
        tests={
            name: (
                float(effect[f"p_sentences{end}"]),
                float(effect[f"p_draws{end}"]),
                int(effect[f"distinct_draws{end}"]),
            )
            for name, end in there.items()
        },
    )


def _estimate(one: Mapping[str, Any]) -> tuple[float, float, float]:
    return float(one["value"]), float(one["low"]), float(one["high"])


def _examples(path: Path, group: str) -> tuple[Example, ...]:
    """The first prompts of each group whose output a chosen kind changes; at most `EXAMPLES`."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    references: dict[tuple[str, str], str | None] = {}
    for number, row in read_rows(path):
        try:
            if row["draw"] is not None:
                continue
            key = str(row[group]), str(row["id"])
            found.setdefault(key, {})[str(row["condition"])] = str(row["output"])
            references[key] = row.get("reference")
        except (KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    changed = {key: texts for key, texts in found.items() if len(set(texts.values())) > 1}
    by_group: dict[str, list[Example]] = {}
    for key, texts in changed.items():
        by_group.setdefault(key[0], []).append(Example(*key, references[key], texts))
    each = max(1, EXAMPLES // max(1, len(by_group)))
    return tuple(one for several in by_group.values() for one in several[:each])[:EXAMPLES]
