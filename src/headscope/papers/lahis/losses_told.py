"""What removals do to text: each language's own heads, and those of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean
from typing import Any

from headscope.papers.claims import LEVEL, OPPOSITE, of_removal, with_claims
from headscope.papers.lahis.scale import step_name
from headscope.papers.lahis.words import (
    capital,
    cell,
    documents_said,
    draws_limit,
    mean_known,
    names,
    several,
    sign,
    span,
    table_of,
)
from headscope.papers.paper import Setting
from headscope.shown.blocks import Cell, Claim, Findings, Heatmap, Table, p_cell

NO_HEADS = "no head is specific to this language"
NO_DRAWS = Cell(why="no draws")


def tell_perplexity(setting: Setting) -> Findings:
    """Each language's text without its own heads, without random ones, and as it is."""
    found = setting.result(step_name(setting, "perplexity"))
    if found is None:
        return Findings()
    chosen = {code: removed(found, code, "chosen") for code in found["languages"]}
    known = {code: one for code, one in chosen.items() if one is not None}
    claims = [_needed(code, one, found["data"][code]["examples"]) for code, one in known.items()]
    return Findings(
        (losses_table(found, chosen), _perplexities(found, chosen)),
        (),
        _perplexity_found(known, len(chosen)),
        _perplexity_sure(found, known),
        with_claims(*claims),
    )


def _needed(code: str, one: Mapping[str, Any], documents: int) -> Claim:
    """That a language's text needs the heads specific to it."""
    by = (
        f"{one['change']['value']:+.3f} nats a token, {one['random']['mean']:+.3f} without random "
        f"heads; {documents} documents"
    )
    name = f"text in {code} needs the heads specific to it"
    return of_removal(name, one, by, change=one["change"], sign=1)


def tell_cross(setting: Setting) -> Findings:
    """Heads of one language, text of another."""
    found = setting.result(step_name(setting, "perplexity"))
    if found is None:
        return Findings()
    matrix = next((one for one in found["matrices"] if one["role"] == "chosen"), None)
    if matrix is None:
        return Findings(
            found="No language has heads of its own here, so there is nothing to cross.",
            sure=documents_said(found),
        )
    texts = matrix["text_of"]
    random = [[None if one is None else one["value"] for one in row] for row in matrix["random"]]
    figure = Heatmap(
        "Heads of one language removed, text of another",
        (*matrix["heads_of"], "random"),
        tuple(texts),
        (
            *(tuple(one["value"] for one in row) for row in matrix["change"]),
            tuple(mean_known([row[at] for row in random]) for at in range(len(texts))),
        ),
        "change of NLL, nats a token",
        "heads of",
        "text of",
        diverging=True,
        digits=3,
        note="Random: the mean of the free draws beside all rows.",
    )
    own = matrix["own"]
    note = (
        "Difference: the own text's change less that of the other text which rises most, chosen "
        "anew in every bootstrap draw."
    )
    columns = {
        "own text": lambda one: Cell(one["own"]),
        "most harmed other text": lambda one: Cell(one["largest_other"]["language"]),
        "its change": lambda one: Cell(one["largest_other"]["change"]),
        "difference": lambda one: cell(one["own_minus_largest_other"]),
        "p over draws": lambda one: p_cell(one["p_draws"]) if "p_draws" in one else NO_DRAWS,
    }
    table = table_of("Own text against other text", own, columns, note)
    if not own:
        return Findings(
            (),
            (figure,),
            "With text of one language nothing can be crossed.",
            documents_said(found),
        )
    return Findings(
        (table,),
        (figure,),
        _cross_found(own),
        f"{documents_said(found)} {capital(draws_limit(found['draws']))}.",
        with_claims(_own_most(found, matrix)),
    )


def _most(own: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """By how much the text suffers most of those that do; a loss that falls less is no harm."""
    margins = {code: one["own_minus_largest_other"] for code, one in own.items()}
    return {code: one for code, one in margins.items() if one["value"] > 0 and own[code]["own"] > 0}


def _own_most(found: Mapping[str, Any], matrix: Mapping[str, Any]) -> Claim:
    """That every language's own text suffers, and most, each by tests of its own.

    As all of them have to hold, none is corrected.
    """
    own, n = matrix["own"], len(matrix["own"])
    changes = dict(zip(matrix["heads_of"], matrix["change"], strict=True))
    signs = [
        {sign(one["own_minus_largest_other"]), sign(changes[code][matrix["text_of"].index(code)])}
        for code, one in own.items()
    ]
    both, refuted = signs.count({1}), any(-1 in each for each in signs)
    drawn = [one["p_draws"] for one in own.values() if "p_draws" in one]
    documents = span([one["examples"] for one in found["data"].values()], 0)
    by = (
        f"{several(len(_most(own)), n)}, in {both} with both intervals above zero; {documents} "
        "documents each"
    )
    needed = ["more documents"] if both < n else []
    if len(drawn) < n or max(drawn) > LEVEL:
        needed.append("more random sets")
    if drawn:
        by += f"; p over draws {span(drawn, 2)}"
    name = "every language's own text suffers most from the loss of its heads"
    if refuted:
        return Claim(name, False, by, OPPOSITE)
    tested = "every language's interval beside no removal and beside other text, and random sets"
    return Claim(name, None if needed else True, by, tested, decides="; ".join(needed))


def removed(found: Mapping[str, Any], code: str, role: str) -> Mapping[str, Any] | None:
    """What the removal of a language's heads in this role cost its own text, None if none was."""
    return next(
        (
            one
            for one in found["languages"][code]["conditions"]
            if (one["of"], one["role"], one["kind"]) == (code, role, "removed")
        ),
        None,
    )


def losses_table(
    found: Mapping[str, Any], chosen: Mapping[str, Mapping[str, Any] | None], by: str = ""
) -> Table:
    """What the removal of each language's heads costs its own text; `by`: which heads, in words."""

    def of(key: str, make: Callable[[Any], Cell] = cell) -> Callable[[Any], Cell]:
        def column(row: tuple[Mapping[str, Any] | None, Any]) -> Cell:
            one, _ = row
            why = NO_HEADS if one is None else "not drawn"
            return make(one[key]) if one and key in one else Cell(why=why)

        return column

    rows = {code: (one, removed(found, code, "full")) for code, one in chosen.items()}
    columns = {
        "heads": of("size", lambda size: Cell(size, digits=0)),
        "specific heads removed": of("change"),
        "random, mean": of("random", lambda draws: Cell(draws["mean"])),
        "random, most": of("random", lambda draws: Cell(draws["high"])),
        "same layers, mean": of("random_layer_matched", lambda draws: Cell(draws["mean"])),
        "same layers, most": of("random_layer_matched", lambda draws: Cell(draws["high"])),
        "above random": of("against_random"),
        "above same layers": of("against_random_layer_matched"),
        "p over draws": of("p_draws", p_cell),
        "p over draws, same layers": of("p_draws_layer_matched", p_cell),
        "as many by importance": lambda row: (
            cell(row[1]["change"]) if row[1] else Cell(why="no heads were scored")
        ),
    }
    if by:  # of which the most important heads were not removed
        del columns["as many by importance"]
    return table_of(f"Change of NLL of a language's own text{by}, nats a token", rows, columns)


def _perplexities(
    found: Mapping[str, Any], chosen: Mapping[str, Mapping[str, Any] | None]
) -> Table:
    """As published, the mean over documents of exp of a document's mean NLL; and our own."""
    rows = {}
    for code, one in chosen.items():
        language = found["languages"][code]
        drawn = [
            row["published_perplexity"]["value"]
            for row in language["conditions"]
            if (row["of"], row["role"], row["kind"]) == (code, "chosen", "random")
        ]
        rows[code] = (language["baseline"], one, mean(drawn) if drawn else None)

    def of(at: int, key: str) -> Callable[[Any], Cell]:
        return lambda row: cell(row[at][key], 2) if row[at] else Cell(why=NO_HEADS)

    columns = {
        "as is, mean of exp": of(0, "published_perplexity"),
        "specific removed, mean of exp": of(1, "published_perplexity"),
        "random removed, mean of exp": lambda row: Cell(row[2], why=NO_HEADS, digits=2),
        "as is, exp of mean": of(0, "perplexity"),
        "specific removed, exp of mean": of(1, "perplexity"),
    }
    note = (
        "Mean of exp, over documents, is the perplexity of the published code; perplexities of "
        "different languages are no common scale."
    )
    return table_of("Perplexity of a language's own text", rows, columns, note)


def _perplexity_found(known: Mapping[str, Mapping[str, Any]], languages: int) -> str:
    if not known:
        return "No language has heads of its own here, so none could be removed."
    rows = list(known.values())
    without = languages - len(known)
    lacking = f" ({without} have no specific head)" if without else ""
    margins = [one["against_random"] for one in rows]
    text = (
        f"Without the heads specific to it the loss of a language's text changes by "
        f"{span([one['change']['value'] for one in rows])} nats a token, without as many random "
        f"heads by {span([one['random']['mean'] for one in rows])} on average{lacking}: by "
        f"{span([one['value'] for one in margins])} more, intervals within "
        f"{span([one[end] for one in margins for end in ('low', 'high')])}. P over draws is "
        f"{span([one['p_draws'] for one in rows])}"
    )
    matched = [one["p_draws_layer_matched"] for one in rows if "p_draws_layer_matched" in one]
    return f"{text}, of the same layers {span(matched)}." if matched else f"{text}."


def _perplexity_sure(found: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str:
    text = documents_said(found)
    if known:
        text += (
            " These intervals are of the mean over the draws, and say nothing of single draws; "
            f"{draws_limit(found['draws'])}."
        )
    return text


def _cross_found(own: Mapping[str, Any]) -> str:
    most = _most(own)
    if not most:
        return "No language's own text suffers most from the loss of its heads."
    text = (
        f"A language's own text suffers most from the loss of its heads "
        f"{several(len(most), len(own))} (by {span([one['value'] for one in most.values()])} nats "
        f"a token over the text that comes next), with the whole interval above zero in "
        f"{sum(sign(one) > 0 for one in most.values())}."
    )
    others = [code for code in own if code not in most]
    return f"{text} For the heads of {names(others)} it does not." if others else text
