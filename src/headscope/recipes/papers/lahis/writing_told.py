"""What the model writes without general heads, without a language's heads, with them turned up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.data.languages import language_name
from headscope.recipes.papers.lahis.scale import codes, step_name
from headscope.recipes.papers.lahis.words import (
    capital,
    cell,
    count,
    draws_limit,
    empty,
    names,
    sign,
    spread,
    table_of,
)
from headscope.recipes.papers.paper import Setting
from headscope.recipes.papers.told import Cell, Row, Table, Told, p_cell

__all__ = ["tell_general", "tell_mitigation", "tell_off_target", "tell_transfer"]

COLUMNS = (
    "as is",
    "changed",
    "change",
    "random, mean",
    "against random",
    "against same layers",
    "p over prompts",
    "p over draws",
)
PROMPTS = "Intervals are over prompts, and beside the random sets that were drawn"


def tell_general(setting: Setting) -> Told:
    """Summaries, or repeated sentences, without the heads that languages share."""
    found = setting.result(step_name(setting, "summaries"))
    if found is None:
        return Told()
    measures = found["effects"]["general"]
    repeats = found["task"] == "repeat"
    what = "repeats a sentence" if repeats else "summarises a text"
    table = Table(
        f"A model that {what}, without {count(found['k'], 'general head')}",
        COLUMNS,
        tuple(_row(NAMES[key][0], one, NAMES[key][1]) for key, one in measures.items()),
        note=f"Not measured: {_missing(found)}.",
    )
    by_language = Table(
        "ROUGE-L by language",
        COLUMNS,
        tuple(
            _row(code, one["effects"]["general"].get("rouge_l"))
            for code, one in found["languages"].items()
        ),
    )
    rouge = measures["rouge_l"]
    direction = sign(rouge["change"])
    surely = sign(rouge["against_random"])
    heads = count(found["k"], "general head")
    if direction < 0:
        text = f"Without {heads} ROUGE-L falls by {_size(rouge['change'])}"
    elif direction > 0:
        text = f"Without {heads} ROUGE-L rises by {_size(rouge['change'])}"
    else:
        text = f"Without {heads} ROUGE-L does not surely change: {spread(rouge['change'], 1)}"
    text += (
        f", {_beside(surely, 'lower', 'higher')} without as many random heads (mean "
        f"{rouge['random']['mean']:.1f}, with general heads removed {rouge['value']:.1f})."
    )
    sure = f"{PROMPTS}; {draws_limit(found['draws'])}."
    if repeats:
        sure += (
            " The bundled model cannot summarise; it repeats sentences, which copying heads do, so "
            "this says nothing about summaries."
        )
    return Told(
        (table, by_language),
        (),
        text,
        sure,
        {"direction": direction, "against_random": surely, "repeats": repeats},
    )


def tell_off_target(setting: Setting) -> Told:
    """Whether the model leaves a language without its heads."""
    tables, texts, more, draws = [], [], {}, 0
    for ask, title in (("translate", "Translations"), ("continue", "Continued documents")):
        found = setting.result(step_name(setting, f"off-target-{ask}"))
        if found is None:
            continue
        draws = found["draws"]
        kinds = {kind: one["off_target"] for kind, one in found["effects"].items()
                 if "off_target" in one}  # fmt: skip
        if not kinds:
            why = found["not_measured"].get("off_target", "no text was identified")
            tables.append(_unmeasured(title, why))
            continue
        rows = [_row(f"{kind}, all languages", one, 100) for kind, one in kinds.items()]
        rows += [
            _row(f"{kind}, {code}", one["effects"].get(kind, {}).get("off_target"), 100)
            for code, one in found["languages"].items()
            for kind in kinds
        ]
        note = (
            "Share of outputs in another language than asked for, %. Specific: the heads specific "
            "to it; full: as many by importance alone."
        )
        tables.append(Table(f"{title} in another language", COLUMNS, tuple(rows), note=note))
        told = {kind: _off(title, kind, one) for kind, one in kinds.items()}
        texts += list(told.values())
        if "specific" not in kinds and "chosen" not in kinds:
            texts.append("No language has heads specific to it, so these could not be removed.")
        more[ask] = {
            kind: {"change": sign(one["change"]), "against_random": sign(one["against_random"])}
            for kind, one in kinds.items()
        }
    if not tables:
        return Told()
    sure = (
        f"{PROMPTS}; {draws_limit(draws)}. The language of an output is identified from its text, "
        "which errs on few words; the share as is, which holds these errors, stands beside."
        if texts
        else ""
    )
    return Told(tuple(tables), (), " ".join(texts), sure, more)


def tell_mitigation(setting: Setting) -> Told:
    """Whether fewer answers are in the wrong language with the heads of either language changed."""
    found = setting.result(step_name(setting, "mitigation"))
    if found is None or "off_target" in found["not_measured"]:
        return Told()
    away = language_name(found["away"])
    kinds = {
        "x3": "the heads of the language asked for times 3",
        "away x0": f"{away} heads removed",
    }
    parts = {"": found, **{f", {code}": one for code, one in found["languages"].items()}}
    rows = [
        _row(f"{kinds[kind]}{part}: {NAMES[key][0]}", one, NAMES[key][1])
        for kind in kinds
        for part, each in parts.items()
        for key, one in each["effects"].get(kind, {}).items()
        if not part or key == "off_target"
    ]
    n = found["prompts"]
    strayed = sum(
        one["written"][0]["languages"].get(found["away"], 0) for one in found["languages"].values()
    )
    note = (
        f"{n} requests to translate from {away}, each behind a text in {away}, "
        f"{n // len(found['languages'])} into each of {names(found['steer'])}. Empty answers "
        "are in no language and count as in another one."
    )
    effects = {kind: one["off_target"] for kind, one in found["effects"].items()}
    helps = {
        kind: sign(one["change"]) < 0
        and sign(one["against_random"]) < 0
        and max(one["p_sentences"], one["p_draws"]) <= 0.05
        for kind, one in effects.items()
    }
    texts = [
        f"{capital(kinds[kind])}: {100 * one['value']:.1f} % (change "
        f"{spread({key: 100 * end for key, end in one['change'].items()}, 1)}; random heads "
        f"{100 * one['random']['mean']:.1f} %, p over prompts {one['p_sentences']:.2g}, over draws "
        f"{one['p_draws']:.2g}), which {_verdict(helps[kind], one)}."
        for kind, one in effects.items()
    ]
    return Told(
        (Table("Answers in another language than asked for", COLUMNS, tuple(rows), note=note),),
        (),
        f"Behind a text in {away} {100 * found['baseline']['off_target']:.1f} % of {n} answers are "
        f"in another language than asked for, {strayed} of them in {away}. {' '.join(texts)}",
        f"{PROMPTS}; {draws_limit(found['draws'])}. A change helps if its interval and that "
        "against random heads lie below zero and both p, each one-sided, are at most 0.05, "
        "uncorrected. The wrong language is provoked; how often it comes by itself is not told.",
        helps,
    )


def _verdict(helps: bool, one: Mapping[str, Any]) -> str:
    if helps:
        return "mitigates it"
    worse = "makes it worse" if sign(one["change"]) > 0 else "is not shown to help"
    return f"{worse}, more than random heads do" if sign(one["against_random"]) > 0 else worse


def tell_transfer(setting: Setting) -> Told:
    """Which of two contradicting statements is believed, with a language turned up or down."""
    given = codes(setting.data.statements)
    parts = [""] if setting.pocket or not given else [f"-{pair}" for pair in given]
    results = {
        part: found
        for part in parts
        if (found := setting.result(step_name(setting, f"transfer{part}"))) is not None
    }
    if not results:
        return Told()
    tables, texts, more = [], [], {}
    for part, found in results.items():
        pair = f", {part[1:]}" if part else ""
        rows = [
            _row(f"{GATES[kind].format(**found)}: {ANSWERS[measure]}", one, 100)
            for kind, measures in found["effects"].items()
            for measure, one in measures.items()
        ]
        note = (
            "% of answers. A is the language of the first statement, B that of the second. Ranked: "
            "the better rank of the English or native first token of either answer."
        )
        tables.append(Table(f"Answers to contradictions{pair}", COLUMNS, tuple(rows), note=note))
        for kind, measures in found["effects"].items():
            texts.append(_transferred(kind, measures["follows_a"], found, pair))
        more[part[1:] or "all"] = {
            kind: {
                "change": sign(measures["follows_a"]["change"]),
                "against_random": sign(measures["follows_a"]["against_random"]),
            }
            for kind, measures in found["effects"].items()
        }
        if "pairs" in found and len(found["pairs"]) > 1:
            tables.append(_by_pair(found))
    if not texts:
        texts.append("No language of these pairs has heads of its own, so nothing was changed.")
    draws = next(iter(results.values()))["draws"]
    sure = (
        f"{PROMPTS}; {draws_limit(draws)}. Random heads stand under the same gate, since turning "
        "up any heads changes answers."
    )
    return Told(tuple(tables), (), " ".join(texts), sure, more)


#: What measures are called, and the factor that makes them per cent.
NAMES = {
    "rouge_l": ("ROUGE-L", 1.0),
    "chrf": ("chrF++", 1.0),
    "bert_score": ("BERTScore", 1.0),
    "off_target": ("in another language, %", 100.0),
    "empty": ("empty, %", 100.0),
}
GATES = {"up": "A's heads times {up:g}", "down": "B's heads times {down:g}"}
ANSWERS = {
    "follows_a": "as A's statement says",
    "follows_b": "as B's statement says",
    "both": "both",
    "neither": "neither",
    "ranked_a": "A's answer ranked first",
}


def _row(name: str, one: Mapping[str, Any] | None, factor: float = 1.0) -> Row:
    if one is None:
        return Row(name, empty(len(COLUMNS), "not measured"))
    matched = "against_random_layer_matched" in one
    return Row(
        name,
        (
            Cell(factor * one["baseline"], digits=1),
            Cell(factor * one["value"], digits=1),
            cell(one["change"], 1, factor),
            Cell(factor * one["random"]["mean"], digits=1),
            cell(one["against_random"], 1, factor),
            cell(one["against_random_layer_matched"], 1, factor)
            if matched
            else Cell(why="not drawn"),
            p_cell(one["p_sentences"]),
            p_cell(one["p_draws"]),
        ),
    )


def _by_pair(found: Mapping[str, Any]) -> Table:
    def column(kind: str, key: str) -> Callable[[Any], Cell]:
        return lambda one: (
            cell(one["effects"][kind]["follows_a"][key], 1, 100)
            if kind in one["effects"]
            else Cell(why="no heads of its own")
        )

    return table_of(
        "Answers as A's statement says, by pair (A-B)",
        found["pairs"],
        {
            f"{name}, {what}": column(kind, key)
            for kind, name in (("up", "A up"), ("down", "B down"))
            for key, what in (("change", "change"), ("against_random", "against random"))
        },
        "In % of answers; few prompts a pair, so single rows say little.",
    )


def _unmeasured(title: str, why: str) -> Table:
    return Table(
        f"{title} in another language",
        COLUMNS,
        (Row("all languages", empty(len(COLUMNS), "not measured")),),
        note=f"Not measured: {why}",
    )


def _off(title: str, kind: str, one: Mapping[str, Any]) -> str:
    heads = {
        "specific": "the heads specific to the language",
        "full": "as many heads by importance alone",
    }.get(kind, "the named heads")
    return _moved(f"{title} in another language", f"without {heads}", "without random heads", one)


def _transferred(kind: str, one: Mapping[str, Any], found: Mapping[str, Any], pair: str) -> str:
    gate = f"With {GATES[kind].format(**found)}{pair} answers by A's statement"
    return _moved(gate, "", "with random heads under that gate", one)


def _moved(what: str, how: str, random: str, one: Mapping[str, Any]) -> str:
    verb = {1: "rise", -1: "fall", 0: "do not surely change"}[sign(one["change"])]
    return (
        f"{what} {verb}{how and f' {how}'}: from {100 * one['baseline']:.1f} to "
        f"{100 * one['value']:.1f} %, {_beside(sign(one['against_random']), 'less', 'more')} "
        f"{random} ({100 * one['random']['mean']:.1f} %)."
    )


def _beside(surely: int, lower: str, higher: str) -> str:
    """How a figure stands to the random one: `surely more than`."""
    return {
        1: f"surely {higher} than",
        -1: f"surely {lower} than",
        0: "not surely different from what it is",
    }[surely]


def _size(change: Mapping[str, Any]) -> str:
    """A change without its sign."""
    ends = sorted(abs(float(change[key])) for key in ("low", "high"))
    return f"{abs(float(change['value'])):.1f} ({ends[0]:.1f} to {ends[1]:.1f})"


def _missing(found: Mapping[str, Any]) -> str:
    left = {NAMES.get(key, (key,))[0]: why for key, why in found["not_measured"].items()}
    return "; ".join(f"{name} ({why})" for name, why in left.items()) or "nothing"
