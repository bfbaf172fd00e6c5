"""What trained gates of a few heads do to the share of questions that are answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.measure.statistics import least_p, p_draws
from headscope.papers.claims import of_removal, with_claims
from headscope.papers.lahis.scale import codes, step_name
from headscope.papers.lahis.words import MODELS, capital, cell, count, empty, spread
from headscope.papers.paper import Setting
from headscope.papers.published import source, value
from headscope.shown.blocks import Cell, Claim, Findings, Reference, Row, Table

ABSTRACT = "Abstract"

COLUMNS = ("gates trained", "answered, %", "change", "loss of the answer", "its change")
CONDITIONS = {
    "untouched": "as is",
    "trained": "gates trained",
    "random": "gates of random heads trained",
    "random-layer-matched": "the same, of the same layers",
    "removed": "these heads removed",
    "random-removed": "random heads removed",
}
#: How many gates move, and which conditions have them.
TRAINED = ("trained", "random", "random-layer-matched")
AGAINST = (("trained", "random"), ("trained", "random-layer-matched"))


def gates() -> float | None:
    """How many gates the paper trains."""
    return value(
        "lahis", ABSTRACT, model="any", row="soft head mask", column="parameters", measure="count"
    )


def parts(setting: Setting) -> dict[str, str]:
    """The steps by language; the bundled model's own questions have no name."""
    if setting.pocket:
        return {"": step_name(setting, "soft-gate")}
    return {code: step_name(setting, f"soft-gate-{code}") for code in codes(setting.data.questions)}


def tell_gates(setting: Setting) -> Findings:
    """Trained gates beside random heads trained alike, and beside the same heads removed."""
    results = {code: setting.result(step) for code, step in parts(setting).items()}
    known = {code: one for code, one in results.items() if one is not None}
    if not known:
        return Findings()
    tables, claims = [], []
    for code, found in results.items():
        title = f"Questions answered{f', {code}' if code else ''}"
        reference = Reference(
            source("lahis", ABSTRACT),
            MODELS,
            False,
            "not comparable: the abstract does not say of which model",
        )
        if found is None:
            rows = tuple(Row(name, empty(len(COLUMNS))) for name in CONDITIONS.values())
            tables.append(Table(title, COLUMNS, rows, reference))
            continue
        changes = {(one["condition"], one["minus"]): one for one in found["differences"]}
        rows = tuple(
            _condition(kind, name, found, changes.get((kind, "untouched")))
            for kind, name in CONDITIONS.items()
            if kind in found["accuracy"]
        )
        rows += tuple(
            Row(
                f"{CONDITIONS[one]}, against {_other(other)}",
                (
                    *empty(2, "a difference"),
                    cell(changes[one, other]["accuracy"], 1, 100),
                    Cell(why="a difference"),
                    cell(changes[one, other]["nll"]),
                ),
            )
            for one, other in AGAINST
            if (one, other) in changes
        )
        pairs = found["pairs"]
        note = (
            f"Trained on {pairs['train']} pairs, stopped on {pairs['stop']}, tested on "
            f"{pairs['test']}; {count(len(found['seeds']), 'training')}. A question is "
            "answered where an answer occurs in the first ten tokens."
        )
        tables.append(Table(title, COLUMNS, rows, reference, note))
        tables.append(_gates(found, code))
        claims.append(_claim(found, changes, code))
    texts = " ".join(f"{capital(one.by)}." for one in claims)
    return Findings(tuple(tables), (), texts, _sure(setting, known), with_claims(*claims))


def _condition(
    kind: str, name: str, found: Mapping[str, Any], change: Mapping[str, Any] | None
) -> Row:
    one = found["accuracy"][kind]

    def measured(measure: str, digits: int, factor: float) -> Cell:
        made = {**one[measure], "value": one[measure]["mean"]}
        return cell(made, digits, factor)

    trained = kind in TRAINED
    return Row(
        name,
        (
            Cell(found["selected"], published=gates() if kind == "trained" else None, digits=0)
            if trained
            else Cell(0, digits=0),
            measured("accuracy", 1, 100),
            cell(change["accuracy"], 1, 100) if change else Cell(why="nothing is changed"),
            measured("nll", 3, 1),
            cell(change["nll"]) if change else Cell(why="nothing is changed"),
        ),
    )


def _other(kind: str) -> str:
    return {"random": "random heads", "random-layer-matched": "random heads of the same layers"}[
        kind
    ]


def _gates(found: Mapping[str, Any], code: str) -> Table:
    """The gate of every head under every training."""
    seeds = found["seeds"]
    rows = [
        Row(
            f"{head['layer']}.{head['head']}",
            tuple(Cell(one["trained"]["heads"][at]["gate"], digits=2) for one in seeds),
        )
        for at, head in enumerate(seeds[0]["trained"]["heads"])
    ]
    return Table(
        f"Trained gates{f', {code}' if code else ''}",
        tuple(f"seed {one['seed']}" for one in seeds),
        tuple(rows),
        note="1: as the model has it, 0: removed.",
    )


def _claim(
    found: Mapping[str, Any], changes: Mapping[tuple[str, str], Mapping[str, Any]], code: str
) -> Claim:
    """That trained gates answer more; a training has its own random heads, each one draw."""
    shares = {kind: one["accuracy"] for kind, one in found["accuracy"].items()}
    change, beside = (changes["trained", one]["accuracy"] for one in ("untouched", "random"))
    drawn = shares["random"]["by_seed"]

    def told(interval: Mapping[str, Any]) -> str:
        return spread({end: 100 * interval[end] for end in ("value", "low", "high")}, 1)

    where = f" in {code}" if code else ""
    by = (
        f"{count(found['selected'], 'trained gate')}: {100 * shares['untouched']['mean']:.1f} % of "
        f"{found['pairs']['test']} questions answered{where} as is, "
        f"{100 * shares['trained']['mean']:.1f} % with them (change {told(change)}), "
        f"{100 * shares['random']['mean']:.1f} % with gates of random heads trained alike "
        f"(difference {told(beside)})"
    )
    if "removed" in shares:
        by += f", {100 * shares['removed']['mean']:.1f} % without these heads"
    row = {
        "against_random": beside,
        "p_draws": p_draws(-shares["trained"]["mean"], [-one for one in drawn]),
        "least_p": least_p(len(drawn)),
        "distinct_draws": len(drawn),
    }
    name = f"trained gates answer more questions{where} than gates of random heads"
    return of_removal(name, row, by, change=change, sign=1)


def _sure(setting: Setting, known: Mapping[str, Mapping[str, Any]]) -> str:
    seeds = min(len(one["seeds"]) for one in known.values())
    text = (
        "Intervals are over questions, those on one context drawn together; behind each figure "
        f"{'stands' if seeds == 1 else 'stand'} {count(seeds, 'training')} with other pairs and "
        "other random heads, whose scatter is not in the intervals. Test questions are on "
        "contexts that nothing was trained on."
    )
    if setting.pocket:
        text += (
            " The questions are of the bundled model's own world, in a prompt whose order it never "
            "saw; with the prompt it was trained with there is nothing to be gained "
            "(docs/negative-results.md)."
        )
    return text
