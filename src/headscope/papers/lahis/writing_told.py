"""What the model writes without general heads, without a language's heads, with them turned up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headscope.data.languages import language_name
from headscope.papers.claims import of_removal, with_claims
from headscope.papers.lahis.scale import codes, step_name
from headscope.papers.lahis.words import (
    capital,
    cell,
    count,
    draws_limit,
    empty,
    names,
    spread,
    table_of,
)
from headscope.papers.paper import Setting
from headscope.shown.blocks import Cell, Claim, Findings, Row, Table, p_cell

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


def tell_general(setting: Setting) -> Findings:
    """Summaries, or repeated sentences, without the heads that languages share."""
    found = setting.result(step_name(setting, "summaries"))
    if found is None:
        return Findings()
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
    claim = _claim(
        f"general heads are needed for {'repeating sentences' if repeats else 'summaries'}",
        "ROUGE-L",
        f"without {count(found['k'], 'general head')}",
        found,
        ("general", "rouge_l"),
        sign=-1,
    )
    sure = f"{PROMPTS}; {draws_limit(found['draws'])}."
    if repeats:
        sure += (
            " The bundled model cannot summarise; it repeats sentences, which copying heads do, so "
            "this says nothing about summaries."
        )
    return Findings((table, by_language), (), f"{capital(claim.by)}.", sure, with_claims(claim))


def tell_off_target(setting: Setting) -> Findings:
    """Whether the model leaves a language without its heads."""
    tables, texts, claims, draws = [], [], [], 0
    for ask, title in LEAVING.items():
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
        told = {
            kind: _claim(
                f"without a language's own heads {title.lower()} leave it",
                f"{title.lower()} in another language",
                f"without {WITHOUT.get(kind, 'the named heads')}",
                found,
                (kind, "off_target"),
                sign=1,
            )
            for kind in kinds
        }
        texts += [f"{capital(one.by)}." for one in told.values()]
        claims += [one for kind, one in told.items() if kind == "specific"]
        if "specific" not in kinds and "chosen" not in kinds:
            texts.append("No language has heads specific to it, so these could not be removed.")
    if not tables:
        return Findings()
    sure = (
        f"{PROMPTS}; {draws_limit(draws)}. The language of an output is identified from its text, "
        "which errs on few words; the share as is, which holds these errors, stands beside."
        if texts
        else ""
    )
    return Findings(tuple(tables), (), " ".join(texts), sure, with_claims(*claims))


def tell_mitigation(setting: Setting) -> Findings:
    """Whether fewer answers are in the wrong language with the heads of either language changed."""
    found = setting.result(step_name(setting, "mitigation"))
    if found is None or "off_target" in found["not_measured"]:
        return Findings()
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
        "are in no language and count as in another one; their own p asks whether there are more."
    )
    doing = {
        "x3": "turning up the heads of the language asked for leads answers back to it",
        "away x0": f"removing {away} heads leads answers back to the language asked for",
    }
    claims = [
        _claim(
            doing[kind],
            "answers in another language than asked for",
            f"with {kinds[kind]}",
            found,
            (kind, "off_target"),
            sign=-1,
        )
        for kind in found["effects"]
    ]
    return Findings(
        (Table("Answers in another language than asked for", COLUMNS, tuple(rows), note=note),),
        (),
        f"Behind a text in {away} {100 * found['baseline']['off_target']:.1f} % of {n} answers are "
        f"in another language than asked for, {strayed} of them in {away}. "
        f"{' '.join(f'{capital(one.by)}.' for one in claims)}",
        f"{PROMPTS}; {draws_limit(found['draws'])}. The wrong language is provoked; how often it "
        "comes by itself is not told.",
        with_claims(*claims),
    )


def tell_transfer(setting: Setting) -> Findings:
    """Which of two contradicting statements is believed, with a language turned up or down."""
    given = codes(setting.data.statements)
    parts = [""] if setting.pocket or not given else [f"-{pair}" for pair in given]
    results = {
        part: found
        for part in parts
        if (found := setting.result(step_name(setting, f"transfer{part}"))) is not None
    }
    if not results:
        return Findings()
    tables, claims = [], []
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
        claims += [
            _claim(
                f"{BELIEVED[kind]} believed more often{pair}",
                f"answers by A's statement{pair}",
                f"with {GATES[kind].format(**found)}",
                found,
                (kind, "follows_a"),
                sign=1,
            )
            for kind in found["effects"]
        ]
        if "pairs" in found and len(found["pairs"]) > 1:
            tables.append(_by_pair(found))
    texts = " ".join(f"{capital(one.by)}." for one in claims)
    if not claims:
        texts = "No language of these pairs has heads of its own, so nothing was changed."
    draws = next(iter(results.values()))["draws"]
    sure = (
        f"{PROMPTS}; {draws_limit(draws)}. Random heads stand under the same gate, since turning "
        "up any heads changes answers."
    )
    return Findings(tuple(tables), (), texts, sure, with_claims(*claims))


#: What measures are called, and the factor that makes them per cent.
NAMES = {
    "rouge_l": ("ROUGE-L", 1.0),
    "chrf": ("chrF++", 1.0),
    "bert_score": ("BERTScore", 1.0),
    "off_target": ("in another language, %", 100.0),
    "empty": ("empty, %", 100.0),
}
#: Which heads are removed while the language of outputs is read, and what is then written.
WITHOUT = {
    "specific": "the heads specific to the language",
    "full": "as many heads by importance alone",
}
LEAVING = {"translate": "Translations", "continue": "Continued documents"}
#: Whose heads are changed where statements contradict each other.
BELIEVED = {
    "up": "turning up a language's heads makes its statement",
    "down": "removing the heads of the other language makes a statement",
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


def _claim(
    name: str, what: str, how: str, found: Mapping[str, Any], at: tuple[str, str], *, sign: int
) -> Claim:
    """A claim about what is written with some heads changed, by figures that are told as well.

    `at`: the kind of heads and the measure, which the claim lowers (`sign` -1) or raises (1).
    """
    kind, measure = at
    one, (_, factor) = found["effects"][kind][measure], NAMES.get(measure, ("", 100.0))
    unit = " %" if factor == 100 else ""
    parts = (found.get("pairs") or found["languages"]).values()
    prompts = [each["prompts"] for each in parts if measure in each["effects"].get(kind, {})]
    asked = count(sum(prompts), "prompt")
    if len(prompts) > 1 and len(set(prompts)) == 1:
        of = "pairs" if "pairs" in found else "languages"
        asked += f", {prompts[0]} in each of {len(prompts)} {of}"
    change = {end: factor * value for end, value in one["change"].items()}
    by = (
        f"{what}: {factor * one['baseline']:.1f}{unit} as is, {factor * one['value']:.1f}{unit} "
        f"{how} (change {spread(change, 1)}), {factor * one['random']['mean']:.1f}{unit} with "
        f"random ones instead; {asked}"
    )
    return of_removal(name, one, by, change=change, sign=sign)


def _missing(found: Mapping[str, Any]) -> str:
    left = {NAMES.get(key, (key,))[0]: why for key, why in found["not_measured"].items()}
    return "; ".join(f"{name} ({why})" for name, why in left.items()) or "nothing"
