"""Results and blocks as tidy pandas frames: a row an observation, numbers as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, assert_never

from headscope.errors import need
from headscope.estimates import Estimate
from headscope.results.common import ComparedResult
from headscope.runs import Result, encode
from headscope.shown.blocks import (
    AS_MUCH,
    Bars,
    Block,
    Cell,
    Forest,
    HeadMaps,
    HeadSentences,
    HeadSets,
    HeadTable,
    Heatmap,
    Histograms,
    KeyText,
    Lines,
    NotMeasured,
    Section,
    Sentences,
    Shown,
    Table,
    Text,
    Values,
)

#: The columns of the rows of evidence: words, numbers and counts.
_LEVEL = dict.fromkeys(("part", "condition", "statistic"), str) | {
    "value": float, "low": float, "high": float, "examples": int,
    "change": float, "change_low": float, "change_high": float,
}  # fmt: skip
_TESTED = dict.fromkeys(("part", "condition", "statistic", "control"), str) | {
    "difference": float, "low": float, "high": float, "p_examples": float, "p_draws": float,
    "draws": int, "at_least_as_harmful": float, "ended": str, "at_most": float, "least_p": float,
    "shared": float, "side": str,
}  # fmt: skip

#: The columns of a cell besides its value, where any cell of its column has one.
_EXTRA = ("low", "high", "published", "difference")


def tables_of(result: Result) -> dict[str, Any]:
    """The rows that results have as frames: `levels` and `tests` of a comparison, `scores` of a
    command that scores heads; numbers that are not known are NaN."""
    scored = [encode(head) for head in getattr(result, "scored", ())]
    scores = {"scores": _framed(scored)} if scored else {}
    if not isinstance(result, ComparedResult):
        return scores
    levels = ({**encode(row), **_ends(row.change, "change", "change_")} for row in result.levels)
    tests = ({**encode(row), **_ends(row.difference, "difference")} for row in result.tests)
    return {"levels": _typed(levels, _LEVEL), "tests": _typed(tests, _TESTED), **scores}


def _ends(estimate: Estimate | None, name: str, joint: str = "") -> dict[str, float | None]:
    """The columns of a difference."""
    known = estimate or Estimate()
    return {name: known.value, f"{joint}low": known.low, f"{joint}high": known.high}


def _typed(rows: Iterable[dict[str, Any]], columns: Mapping[str, type]) -> Any:
    pandas = need("pandas", "a data frame", "plot")
    return pandas.DataFrame(list(rows), columns=list(columns)).astype(
        {name: kind for name, kind in columns.items() if kind is not str}
    )


def frames_of(shown: Shown) -> dict[str, Any]:
    """Every block of numbers or sentences as a frame, by title."""
    frames: dict[str, Any] = {}
    for section in [Section("", [shown.figure] if shown.figure else []), *shown.sections]:
        for block in section.blocks:
            if (rows := list(_rows(block))) or isinstance(block, Table):
                title = str(getattr(block, "title", ""))
                name = f"{section.title}: {title}" if title in frames else title
                frames[name] = _framed(rows)
    return frames


def _framed(rows: list[dict[str, Any]]) -> Any:
    return need("pandas", "a data frame", "plot").DataFrame(rows)


def _rows(block: Block) -> Iterator[dict[str, Any]]:
    cells: dict[str, Any]
    match block:
        case Table():
            yield from _table(block)
        case HeadTable():
            for part, numbers in block.parts.items():
                for at, (layer, head) in enumerate(block.heads):
                    yield {"part": part, "layer": layer, "head": head} | {
                        key: values[at] for key, values in numbers.items()
                    }
        case HeadMaps():
            for head_map in block.maps:
                for layer, row in enumerate(head_map.values):
                    for head, value in enumerate(row):
                        yield {
                            "map": head_map.name,
                            "layer": layer,
                            "head": head,
                            block.scale: value,
                        }
        case HeadSets():
            for name, heads in block.sets.items():
                for rank, (layer, head) in enumerate(heads, 1):
                    yield {"set": name, "rank": rank, "layer": layer, "head": head}
        case Heatmap():
            fields = {block.scale: block.values, "low": block.lowest, "high": block.highest}
            yield from _grid({"row": block.rows, "column": block.columns}, fields)
        case Bars():
            fields = {block.y: block.values, "low": block.low, "high": block.high}
            yield from _grid({"group": block.groups, "series": block.series}, fields)
        case Forest():
            for name, gaps in block.rows:
                for gap in gaps:
                    cells = {"row": name, "control": gap.control, block.x: gap.value}
                    ends = {"low": gap.low, "high": gap.high}
                    yield cells | ends | ({AS_MUCH: gap.as_far} if gap.as_far else {})
        case Lines():
            for line in block.series:
                known = {n: v for n, v in (("low", line.low), ("high", line.high)) if v}
                for at, (x, y) in enumerate(line.points):
                    cells = {"series": line.name, block.x: x, block.y: y}
                    yield cells | {name: values[at] for name, values in known.items()}
            for name, value in block.references:
                yield {"series": name, block.x: None, block.y: value}
        case Histograms():
            for panel in block.panels:
                edges = zip(panel.edges, panel.edges[1:], panel.counts, strict=False)
                for low, high, count in edges:
                    yield {"panel": panel.name, "from": low, "to": high, "count": count}
        case Sentences():
            for sentence in block.sentences:
                about = ("direction", "id", "source", "reference")
                cells = {name: getattr(sentence, name) for name in about}
                scores = {f"{name} chrF++": score for name, score in sentence.chrf.items()}
                yield cells | dict(sentence.outputs) | scores
        case HeadSentences():
            for (layer, head), best in block.heads.items():
                for pair in best:
                    cells = {"layer": layer, "head": head}
                    names = ("part", "id", "source", "target", "hits", "of")
                    yield cells | {name: getattr(pair, name) for name in names}
        case KeyText() | Text() | NotMeasured():
            return
        case _:
            assert_never(block)


def _grid(
    axes: Mapping[str, Sequence[str]], fields: Mapping[str, Values]
) -> Iterator[dict[str, Any]]:
    """A row for each pair of names, with its number of every field that is known."""
    for row, column in product(*(list(enumerate(names)) for names in axes.values())):
        names = dict(zip(axes, (row[1], column[1]), strict=True))
        yield names | {name: known[row[0]][column[0]] for name, known in fields.items() if known}


def _table(table: Table) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        cells: dict[str, Any] = {"name": row.name}
        for at, column in enumerate(table.columns):
            cells[column] = row.cells[at].value
            for part in _EXTRA:
                if any(_has(row.cells[at], part) for row in table.rows):
                    cells[f"{column} {part}"] = getattr(row.cells[at], part)
        yield cells


def _has(cell: Cell, part: str) -> bool:
    return getattr(cell, part) is not None
