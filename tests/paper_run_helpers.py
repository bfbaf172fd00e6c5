"""Made-up runs of papers: every kind of table, figure and state, without a model."""

from __future__ import annotations

from math import sin
from pathlib import Path
from typing import Any

from headscope.papers.show import PaperResult, PapersResult
from headscope.runs import carry_out, decode, encode, plain
from headscope.shown.blocks import (
    Bars,
    Cell,
    Figure,
    Heatmap,
    Lines,
    Reference,
    Row,
    Series,
    Table,
)

LANGUAGES = ("en", "es", "fr", "zh", "ru", "tr", "de")
OTHER = Reference("Heads Up!, Table 12", "Llama-3.1-8B-Instruct", False,
                  "not comparable: other model")  # fmt: skip
SAME = Reference("Heads Up!, Table 3", "pocket", True)


def plain_table(table: Table) -> dict[str, Any]:
    """A table as a result holds it."""
    shown = encode(table)
    for row in shown["rows"]:
        for cell in row["cells"]:
            pair = cell["value"], cell["published"]
            known = all(isinstance(one, (int, float)) for one in pair)
            compared = table.reference is not None and table.reference.comparable and known
            cell["difference"] = cell["value"] - cell["published"] if compared else None
    return shown


def pairs_table(reference: Reference = OTHER) -> Table:
    """Languages by languages; most directions were not run."""

    def cell(at: int, to: int) -> Cell:
        if at == to:
            return Cell(None, why="")
        value = 1.5 + 0.1 * ((at * 5 + to * 3) % 7)
        if (at + to) % 3:
            return Cell(None, published=value + 0.31, why="not run")
        return Cell(value, value - 0.08, value + 0.09, published=value + 0.31, digits=2)

    rows = [
        Row(name, tuple(cell(at, to) for to in range(len(LANGUAGES))))
        for at, name in enumerate(LANGUAGES)
    ]
    note = "Mean loss in nats a token under the mask; rows are source languages, 64 sentences each."
    return Table("Loss of every direction under its mask", LANGUAGES, tuple(rows), reference, note)


def accuracy_table(rows: int = 36) -> Table:
    """Many tasks, two columns, compared with the same model."""
    made = []
    for at in range(rows):
        value = 0.3 + 0.6 * abs(sin(at))
        cells = (
            Cell(value, value - 0.06, value + 0.05, published=value - 0.02 * sin(3 * at)),
            Cell(14 + at, published=15, digits=0),
        )
        made.append(Row(f"task_number_{at:02}", cells))
    return Table("Accuracy on every word task", ("accuracy", "heads kept"), tuple(made), SAME)


def words_table() -> Table:
    """Words instead of numbers, and no published values."""
    rows = (
        Row("en-de", (Cell("Der Hund schl\u00e4ft."), Cell(12, digits=0), Cell("de"))),
        Row("en-zh", (Cell(None, why="not run"), Cell(None, why="not run"), Cell("zh"))),
    )
    return Table("What is written", ("output", "tokens", "language"), rows)


def heatmap(rows: int, columns: int, *, empty: int = 0, diverging: bool = False) -> Heatmap:
    """A field of made-up numbers, every `empty`th of them not run."""

    def value(at: int, across: int) -> float | None:
        if empty and (at * columns + across) % empty == 0:
            return None
        return sin(at * 0.7) * sin(across * 0.9) if diverging else abs(sin(at + across * 0.3))

    field = tuple(tuple(value(at, across) for across in range(columns)) for at in range(rows))
    return Heatmap(
        f"Scores of {rows} layers by {columns} heads",
        tuple(map(str, range(rows))),
        tuple(map(str, range(columns))),
        field,
        "Translation Score",
        "layer",
        "head",
        diverging=diverging,
        note="Mean over 20 directions, 20 sentences each.",
    )


def overlap_map() -> Heatmap:
    """A small map with names and values in its cells."""
    field = tuple(
        tuple(1.0 if a == b else 0.2 + 0.1 * ((a + b) % 5) for b in range(7)) for a in range(7)
    )
    return Heatmap("Overlap of the masks", LANGUAGES, LANGUAGES, field, "Jaccard index",
                   "source", "target", low=0.0, high=1.0)  # fmt: skip


def lines() -> Lines:
    """Two lines with intervals, one without, one that was not run."""
    steps = (1.0, 4.0, 16.0, 64.0, 256.0)
    best = tuple((x, 90 - 5 * at) for at, x in enumerate(steps))
    series = (
        Series("highest heads", best, tuple(y - 3 for _, y in best), tuple(y + 2 for _, y in best)),
        Series("random heads", tuple((x, 91.0 - at) for at, x in enumerate(steps))),
        Series("layer 3", ()),
    )
    return Lines("chrF++ while heads are removed", series, "heads removed", "chrF++", True,
                 "160 sentences.")  # fmt: skip


def bars(groups: int, *, signs: bool = False) -> Bars:
    """Two conditions a group, one of them not run in the last group."""
    values: list[tuple[float | None, float | None]] = [
        (4.0 * sin(at) if signs else 40 + 3 * at, 20.0 - at) for at in range(groups)
    ]
    values[-1] = (values[-1][0], None)
    ends = [[tuple(None if v is None else v + by for v in row) for row in values] for by in (-2, 2)]
    return Bars(
        "Change of the loss" if signs else "BLEU by direction",
        tuple(f"en-{LANGUAGES[at % 7]} {at}" for at in range(groups)),
        ("without the heads", "without random heads"),
        tuple(values),
        "change of mean loss, nats" if signs else "BLEU",
        tuple(ends[0]),
        tuple(ends[1]),
        note="64 sentences a direction.",
    )


def single_bars() -> Bars:
    """One value a group."""
    return Bars("Heads kept by each mask", LANGUAGES, ("mask",),
                tuple((float(20 + 3 * at),) for at in range(7)), "heads", digits=0)  # fmt: skip


def experiment(name: str, *elements: str, state: str = "run", **more: Any) -> dict[str, Any]:
    """An experiment with nothing in it but what is given."""
    tables: list[Table] = more.pop("tables", [])
    figures: list[Figure] = more.pop("figures", [])
    shown = state in ("run", "part", "stored")
    return {
        "name": name,
        "elements": list(elements),
        "title": f"What {name} is about",
        "state": state,
        "why": None,
        "give": None,
        "runs": [run_of(f"step-{name}", state if state in ("run", "stored") else "not run")],
        "found": "Without the 14 heads chrF++ falls from 96.2 to 11.7." if shown else "",
        "sure": "95 % intervals over sentences; ten random draws beside it." if shown else "",
        "more": {},
        **more,
        "tables": [plain_table(one) for one in tables],
        "figures": [encode(one) for one in figures],
    }


def run_of(step: str, state: str = "run") -> dict[str, Any]:
    """A run behind an experiment."""
    done = state != "not run"
    return {
        "step": step,
        "title": f"the run {step}",
        "run": f"runs/{step}" if state == "run" else None,
        "signature": f"headscope-0.1.0|find mask|{sum(map(ord, step)):012x}" if done else None,
        "seconds": 41.2 if done else None,
        "state": state,
        "note": "made with seed 0" if state == "stored" else None,
    }


def experiments() -> list[dict[str, Any]]:
    """One of every kind."""
    masks = [run_of(f"mask-{a}-{b}", "run" if a == "en" else "not run")
             for a in LANGUAGES for b in LANGUAGES if a != b]  # fmt: skip
    return [
        experiment("table-1", "Table 1", "Figure 3", tables=[accuracy_table()],
                   figures=[heatmap(6, 16), heatmap(32, 32, empty=9)]),
        experiment("table-12", "Table 12", state="part", why="left to --full: 36 masks",
                   tables=[pairs_table()], figures=[overlap_map()], runs=masks),
        experiment("figure-5", "Figure 5", figures=[lines(), bars(3), bars(4, signs=True)]),
        experiment("figure-6", "Figure 6", "Figure 7", state="stored", tables=[words_table()],
                   figures=[single_bars(), heatmap(6, 16, diverging=True, empty=11), bars(15)]),
        experiment("table-20", "Table 20", state="not run", why="it was not asked for"),
        experiment("table-21", "Table 21", state="missing",
                   why="XQuAD is not part of the package",
                   give="questions with answers in six languages: "
                        "--questions de=FILE, --questions en=FILE"),
    ]  # fmt: skip


MODEL = {"name": "pocket", "parameters": 2_200_000, "dtype": "float32",
         "geometry": {"counts": [16] * 6}}  # fmt: skip


CLAIMS = [
    {"key": "few", "name": "Few heads do it", "short": "few heads", "says": "Very few do.",
     "place": "Abstract", "changes": "a larger model", "experiments": ["table-1"],
     "holds": True, "by": "21 of 96; of one model", "sure": "random sets"},
    {"key": "early", "name": "They lie early", "by": "3 of 21", "decides": "more heads"},
    {"key": "old", "name": "They are old", "holds": False, "by": "0 of 21"},
    {"key": "large", "name": "Larger models have more"},
]  # fmt: skip


def write_paper(out: Path, **more: Any) -> Path:
    """A finished run of Heads Up!"""
    result = {
        "paper": {
            "name": "heads-up",
            "title": "Heads Up! Masks of single tasks",
            "source": "A. Author and B. Author, 2026",
            "question": "Do few attention heads hold what a model needs for one task?",
            "method": ["One gate a head is trained.", "The rest is frozen.", "Then it is tested."],
        },
        "command_line": "headscope reproduce heads-up --model pocket",
        "model": MODEL,
        "answer": {"found": "1 of 2 holds.", "sure": "One training a mask.", "claims": CLAIMS},
        "experiments": experiments(),
        "totals": {"runs": 45, "run": 9, "stored": 1, "not_run": 36, "seconds": 371.0},
        "seconds": 371.0,
        "failed": {},
        **more,
    }
    return _finished(out, "reproduce heads-up", PaperResult, result)


def write_papers(out: Path, **more: Any) -> Path:
    """A finished run of all papers."""
    totals = {"runs": 45, "run": 9, "stored": 1, "not_run": 35, "seconds": 371.0}
    papers = [
        {
            "name": name,
            "title": f"The paper called {name}",
            "question": "Do few heads do it?",
            "answer": {"found": "Yes: 21 of 96 heads do.", "sure": "One training a mask."},
            "totals": totals,
            "signature": f"headscope-0.1.0|reproduce {name}|{at:08}",
            "run": name,
            "report": f"{name}/report.html",
            "failed": {},
        }
        for at, name in enumerate(("token-alignment-heads", "lahis", "heads-up"))
    ]
    result = {
        "command_line": "headscope reproduce all --model pocket",
        "model": MODEL,
        "papers": papers,
        "totals": {key: 3 * value for key, value in totals.items()},
        "failed": {},
        "seconds": 1234.5,
        **more,
    }
    return _finished(out, "reproduce all", PapersResult, result)


def _finished(
    out: Path, command: str, kind: type[PaperResult | PapersResult], result: dict[str, Any]
) -> Path:
    made = decode(kind, plain(result))
    carry_out(command, out, {"settings": {}}, {"model": "made up"}, lambda run: made, kind=kind)
    return out
