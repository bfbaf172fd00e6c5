"""What heads removed one by one show: ranks, texts and hidden states by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from headscope.evidence.headline import Case
from headscope.evidence.rows import Evidence
from headscope.heads.geometry import spelled
from headscope.results.one_by_one import (
    ExampleText,
    OneByOneDetails,
    OneByOneResult,
    RandomOrder,
    State,
)
from headscope.shown.blocks import (
    Block,
    Cell,
    Heatmap,
    Lines,
    Section,
    Series,
    Table,
    Text,
    table_of,
)
from headscope.shown.words import count, enumeration, number
from headscope.studies.comparison_page import Extras, Words

#: Points of a line and columns of a map; more are left out evenly.
POINTS = 120
#: Steps and texts of a table; the run's steps.jsonl holds all.
ROWS = 60
ORDERS = {
    "given": "as given",
    "ascending": "lowest first",
    "descending": "highest first",
    "pass": "by the change of the target's rank in one pass",
    "alone": "by the change of the target's rank when removed alone",
}
BAND = "the range of random orders"

Item = TypeVar("Item")


WORDS = Words(
    "Heads one by one",
    "How does the next token change as heads are removed one after another?",
    "prompt",
    "Ranks are among all tokens that could come next; rank 1: the token that the model would "
    "write. Random orders remove as many heads as this one.",
    "--random-orders",
)


def extras(result: OneByOneResult, run: Path) -> Extras:
    """The steps at which something changes, ranks and texts by step, and layers."""
    details = result.details
    by, first, ranks = compared_by(details), _first(details), _ranks(details)
    figure = first if first and by == "target_first" else ranks
    lines = [block for block in (first, ranks, _last(details)) if block and block is not figure]
    return Extras(
        statistics=[by],
        heads={"in this order": details.heads} if details.heads else {},
        facts=[
            ("heads removed", str(len(details.steps))),
            ("order", ORDERS.get(details.order, details.order)),
            ("gate", "" if details.gate == 0 else number(details.gate)),
            ("the mask removes", _mask(details)),
        ],
        sections=[
            Section("Steps", [_steps(details)], brief=True),
            Section("By step", [*lines, *_texts(details)]),
            Section("One prompt", _example(details)),
            Section("Similarity by layer", [_layers(details)]),
        ],
        figure=figure,
    )


def _mask(details: OneByOneDetails) -> str:
    """How many heads a mask removes, and whether exactly these are gone at some step."""
    mask = details.mask
    if mask is None:
        return ""
    exact = "" if mask.cut_step is not None else ", in no step exactly these"
    return f"{mask.removed} of {mask.removed + mask.kept}{exact}"


def compared_by(details: OneByOneDetails) -> str:
    """The statistic that decides whether an order does more than random ones."""
    return "target_rank" if details.mask is None else "target_first"


def cases(table: Evidence, details: OneByOneDetails) -> list[Case]:
    """The heads of all steps together."""
    main = table.main
    cut = details.mask and details.mask.cut_step == main.k
    lead = f"Without the {main.k} heads outside the mask" if cut and details.gate == 0 else ""
    return [Case(compared_by(details), main, lead=lead)]


def cautions(table: Evidence, details: OneByOneDetails) -> Iterator[str]:
    """What weakens the finding."""
    if details.order in ("pass", "alone"):
        yield (
            "The order was chosen by the ranks on these same prompts; on others its effect will be "
            "smaller."
        )


def _steps(details: OneByOneDetails) -> Table:
    """The original model, and the steps at which something changes; always the last."""
    last, changed = details.states[0], [details.states[0]]
    for state in details.states[1:]:
        if _differs(state, last) or state is details.states[-1]:
            changed.append(state)
            last = state
    shown = [*changed[: ROWS - 1], *changed[ROWS - 1 :][-1:]]
    columns: dict[str, Callable[[State], Cell | float | str | None]] = {
        "head": lambda state: state.last or "none",
        "target's rank": lambda state: _rank(state.target_rank),
        "rank of the original first token": lambda state: _rank(state.top5_ranks[0]),
    }
    if details.sentences > 1:
        columns["median"] = lambda state: _rank(state.target_rank_median)
    if details.baseline.texts_changed is not None:
        columns["texts changed"] = lambda state: state.texts_changed
        columns["chrF++"] = lambda state: Cell(state.chrf, digits=1)
    if details.sentences == 1 and any(state.text is not None for state in shown):
        columns["text"] = lambda state: _text(state.text)
    whole = len(shown) == len(details.states)
    title = "Heads removed" if whole else (
        f"Where something changes: {len(shown) - 1} of {count(len(details.steps), 'step')}"
    )  # fmt: skip
    note = "Rank 1: the token that the model would write next"
    note += "" if whole else ". All steps are in steps.jsonl of the run"
    return table_of(title, [(str(state.at), state) for state in shown], columns, note)


def _differs(state: State, last: State) -> bool:
    if state.texts_changed is None:
        return state.target_rank != last.target_rank
    return state.texts_changed > 0


def _rank(value: float | None) -> Cell:
    """A rank; means may lie between whole ones."""
    return Cell(None if value is None else int(value) if value == int(value) else value, digits=1)


def _text(text: str | None) -> str | None:
    return None if text is None else text.strip() or "(nothing)"


def _first(details: OneByOneDetails) -> Lines | None:
    """The share of prompts whose target comes first; None where no order changes it."""
    first = details.target_first
    orders = [order.target_first for order in details.random_orders]
    if first is None or len({share for own in (first.share, *orders) for share in own}) < 2:
        return None
    middle = "never" if first.median is None else number(first.median)
    return Lines(
        "Prompts whose target's first token is the likeliest",
        (
            *_series(
                [100 * share for share in first.share],
                details,
                lambda order: [100 * share for share in order.target_first],
            ),
            *_cut(details, 0.0, 100.0),
        ),
        "heads removed",
        "prompts, %",
        note=f"The first such step, median over {count(details.sentences, 'prompt')}: {middle}",
        band=BAND,
    )


def _last(details: OneByOneDetails) -> Lines | None:
    """The similarity of the last layer beside random orders; None without them."""
    if not details.random_orders:
        return None
    last = [state.similarity[-1] for state in details.states]
    series = _series(last, details, lambda order: order.last_similarity)
    return Lines(
        "The last layer's output",
        tuple(series),
        "heads removed",
        "cosine",
        note=f"Cosine with that of the original model{_reference(details)} at the last input token",
        band=BAND,
    )


def _series(
    own: Sequence[float],
    details: OneByOneDetails,
    pick: Callable[[RandomOrder], Sequence[float]],
    name: str = "this order",
) -> list[Series]:
    """This order, and random ones by their mean with the range as a band."""
    lines = [Series(name, tuple(_points(own)))]
    if details.random_orders:
        by_step = list(zip(*map(pick, details.random_orders), strict=True))
        mean = _points([fmean(values) for values in by_step])
        ends = [(min(by_step[round(x)]), max(by_step[round(x)])) for x, _ in mean]
        low, high = zip(*ends, strict=True)
        lines.append(Series("random orders, mean", tuple(mean), low, high))
    return lines


def _points(values: Sequence[float]) -> list[tuple[float, float]]:
    return [(float(x), values[x]) for x in _thinned(range(len(values))) if isfinite(values[x])]


def _thinned(items: Sequence[Item]) -> list[Item]:
    """At most about `POINTS` at even distances, the first and the last among them."""
    if len(items) <= POINTS:
        return list(items)
    return [items[at] for at in sorted({round(at * (len(items) - 1) / (POINTS - 1))
                                        for at in range(POINTS)})]  # fmt: skip


def _cut(details: OneByOneDetails, low: float, high: float) -> list[Series]:
    """An upright line where exactly the mask's heads are left, if there is such a step."""
    if details.mask is None or details.mask.cut_step is None:
        return []
    at = float(details.mask.cut_step)
    return [Series("the mask's own heads are left", ((at, low), (at, high)))]


def _ranks(details: OneByOneDetails) -> Lines:
    tokens = details.baseline.top5_tokens or ("",) * len(details.baseline.top5_ranks)
    token = "" if details.baseline.target_token is None else _plain(details.baseline.target_token)
    series = _series(
        [state.target_rank for state in details.states],
        details,
        lambda order: order.target_rank,
        f"this order, target {token}".strip(),
    )
    for place, each in enumerate(tokens):
        points = _points([state.top5_ranks[place] for state in details.states])
        name = f"originally rank {place + 1} {_plain(each) if each else ''}".strip()
        series.append(Series(name, tuple(points)))
    worst = max(y for line in series for _, y in line.points)
    note = "The target's first token, and the five likeliest tokens of the original model"
    if details.sentences > 1:
        prompts = f"{details.sentences} prompts"
        note += f". Means of ranks over {prompts}, which a few prompts can raise a lot"
    return Lines(
        "Rank among all tokens that could come next",
        (*series, *_cut(details, 1.0, worst)),
        "heads removed" if details.gate == 0 else "heads changed",
        "rank",
        note=note,
        logarithmic_y=True,
        band=BAND,
    )


def _texts(details: OneByOneDetails) -> list[Block]:
    """chrF++ by step; of one prompt its texts stand in the table of steps."""
    points = [(state.at, state.chrf) for state in details.states if state.chrf is not None]
    if details.sentences == 1 or not points:
        return []
    line = Series("chrF++", tuple((float(x), y) for x, y in _thinned(points)))
    return [
        Lines(
            "chrF++ of the texts against the targets",
            (line,),
            "heads removed" if details.gate == 0 else "heads changed",
            "chrF++",
            note=f"Greedy continuations of {count(details.sentences, 'prompt')}"
            + (
                f", mean over {enumeration(list(details.directions))}" if details.directions else ""
            ),
        )
    ]


def _example(details: OneByOneDetails) -> list[Block]:
    """One prompt in full, and its texts where they change."""
    example = details.example
    if example is None or details.sentences == 1 or not example.texts:
        return []
    rows = [(str(text.step), text) for text in example.texts[:ROWS]]
    left = len(example.texts) - len(rows)
    columns: dict[str, Callable[[ExampleText], Cell | float | str | None]] = {
        "head": lambda text: spelled([text.head] if text.head else []) or "none",
        "target's rank": lambda text: example.target_ranks[text.step],
        "text": lambda text: _text(text.text),
    }
    note = f"{left} further changes are in result.json" if left else ""
    return [
        Text("The prompt", (("prompt", example.prompt), ("target", example.target))),
        table_of("Its continuation where it changes", rows, columns, note),
    ]


def _layers(details: OneByOneDetails) -> Heatmap:
    states, steps = _thinned(details.states), len(details.states)
    layers = range(len(details.baseline.similarity))
    return Heatmap(
        "Similarity of each layer's output to the reference",
        tuple(str(layer) for layer in reversed(layers)),
        tuple(str(state.at) for state in states),
        tuple(tuple(_finite(state.similarity[layer] for state in states))
              for layer in reversed(layers)),
        "cosine",
        "layer",
        "step",
        low=0.0,
        high=1.0,
        note=f"Hidden state at the last input token, against the original model"
        f"{_reference(details)}"
        + (f"; {len(states)} of {len(details.states)} steps" if len(states) < steps else ""),
    )  # fmt: skip


def _finite(values: Iterable[float]) -> list[float | None]:
    return [value if isfinite(value) else None for value in values]


def _reference(details: OneByOneDetails) -> str:
    return " under the reference prompt" if details.reference else ""


def _plain(token: str) -> str:
    return token.strip() or repr(token)
