"""What translation is without the heads (Figures 1 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headscope.papers.claims import of_removal, with_claims
from headscope.papers.paper import Experiment, Setting
from headscope.papers.published import value
from headscope.papers.token_alignment_heads.cells import (
    cell,
    change,
    hundred,
    less,
    lines_of,
    random_mean,
    range_of,
    sentence,
    sets_of,
    text,
    tops,
)
from headscope.papers.token_alignment_heads.setting import NAME, bound
from headscope.papers.token_alignment_heads.steps import removal_steps
from headscope.shown.blocks import Bars, Cell, Findings, Row, Table

#: Random heads of any layer, and as many of each layer as the chosen ones have.
CONTROLS = {"random": "random heads", "random-layer-matched": "random heads of the same layers"}
MEASURES = ("chrf", "bleu", "off_target", "source_copy")
NOT_MEASURED = "not measured"


def _tell_removal(setting: Setting) -> Findings:
    found = setting.result("removal")
    if found is None:
        return Findings()
    claims = removal_claims(found)
    losses = (_loss_table(found),) if "loss" in _measures(found) else ()
    if "text" not in _measures(found):
        said = "The loss of reference translations was measured, and no text was written."
        return Findings(losses, (), said, "", claims)
    shown = _example_table(setting)
    figures = tuple(
        _bars(found, key, label)
        for key, label in (("bleu", "BLEU"), ("chrf", "chrF++"))
        if found["baseline"][key] is not None
    )
    tables = (_removal_table(setting, found), *losses, *((shown,) if shown else ()))
    said, sure = removal_words(found)
    return Findings(tables, figures, said, sure, claims)


def _measures(found: Mapping[str, Any]) -> Sequence[str]:
    measures: Sequence[str] = found.get("measures", ("text",))
    return measures


def texts_of(setting: Setting) -> dict[str, Any] | None:
    """The result of the removal, if it was measured by what the model writes."""
    found = setting.result("removal")
    return found if found is not None and "text" in _measures(found) else None


def removal_claims(found: Mapping[str, Any]) -> dict[str, Any]:
    """That the model needs these heads to translate, more than others; by loss a claim of ours."""
    removed = tops(found)
    if not removed:
        return {}
    one = max(removed, key=lambda row: int(row["k"]))
    claims = []
    both = len(_measures(found)) > 1
    for measure, key, digits, name in (
        ("text", "chrf", 1, "translation needs the heads"),
        ("loss", "nll", 3, "reference translations cost more without the heads (by loss)"),
    ):
        if measure not in _measures(found):
            continue
        drawn = random_mean(found, "random", one["k"], key)
        beside = "" if drawn is None else f", {drawn:.{digits}f} without random ones"
        by = (
            f"{'chrF++' if key == 'chrf' else 'nats a token'} "
            f"{found['baseline'][key]:.{digits}f} as it is, {one[key]:.{digits}f} without the top "
            f"{one['k']}{beside}; {found['sentences']} sentences of {len(found['directions'])} "
            f"direction{'' if len(found['directions']) == 1 else 's'}"
        )
        sign, ending = (-1, "") if measure == "text" else (1, "_loss" if both else "")
        change = one["change"][key]
        claims.append(of_removal(name, one, by, change=change, ending=ending, sign=sign))
    return with_claims(*claims)


def _loss_table(found: Mapping[str, Any]) -> Table:
    """Losses of the reference translations, of which the paper has none."""
    rows = [Row("as it is", (cell(found["baseline"]["nll"]), cell(0.0)))]
    for one in tops(found):
        changed = change(one["change"]["nll"], 3)
        rows.append(Row(f"without the top {one['k']}", (cell(one["nll"]), changed)))
        for kind, words in CONTROLS.items():
            drawn = random_mean(found, kind, one["k"], "nll")
            less_base = less(drawn, found["baseline"]["nll"])
            rows.append(Row(f"without {one['k']} {words}", (cell(drawn), cell(less_base))))
    return Table(
        "Loss of reference translations without the heads",
        ("nats a token", "its change"),
        tuple(rows),
        note="Random heads: means of the draws. The paper measures no loss.",
    )


def _bars(found: Mapping[str, Any], key: str, label: str) -> Bars:
    """The change of one measure without the chosen heads, and without random ones."""
    base, removed = found["baseline"][key], tops(found)
    values = tuple(
        (
            less(one[key], base),
            *(less(random_mean(found, kind, one["k"], key), base) for kind in CONTROLS),
        )
        for one in removed
    )
    bounded = key == "chrf"
    none = (None,) * len(CONTROLS)
    return Bars(
        f"Change of {label} without the heads",
        tuple(f"top {one['k']}" for one in removed),
        ("the chosen heads", *CONTROLS.values()),
        values,
        f"change of {label}",
        tuple((one["change"]["chrf"]["low"], *none) for one in removed) if bounded else (),
        tuple((one["change"]["chrf"]["high"], *none) for one in removed) if bounded else (),
    )


def _removal_table(setting: Setting, found: Mapping[str, Any]) -> Table:
    base = found["baseline"]
    drops = {
        key: value(
            NAME,
            "Section 5.1",
            model="any",
            row="removal",
            column="largest drop, above",
            measure=key,
        )
        for key in ("bleu", "chrf")
    }
    none = cell(None, why="nothing was removed")
    as_it_is = cell(base["chrf"], base["low"], base["high"], digits=1)
    rows = [Row("as it is", _outputs(base, as_it_is, none, none))]
    for one in tops(found):
        largest = one["k"] == max(other["k"] for other in tops(found))
        below = {key: _exceeding(drop) if largest else None for key, drop in drops.items()}
        lost = cell(
            less(one["bleu"], base["bleu"]), published=below["bleu"], digits=1, why=NOT_MEASURED
        )
        changed = change(one["change"]["chrf"], published=below["chrf"])
        own = _outputs(one, cell(one["chrf"], digits=1), changed, lost)
        rows.append(Row(f"without the top {one['k']}", own))
        for kind, words in CONTROLS.items():
            means = {key: random_mean(found, kind, one["k"], key) for key in MEASURES}
            changed = cell(less(means["chrf"], base["chrf"]), digits=1)
            lost = cell(less(means["bleu"], base["bleu"]), digits=1, why=NOT_MEASURED)
            own = _outputs(means, cell(means["chrf"], digits=1), changed, lost)
            rows.append(Row(f"without {one['k']} {words}", own))
    filled = [
        one.get("filled_up") or 0
        for one in found["conditions"]
        if one["kind"] == "random-layer-matched"
    ]
    note = sentence(
        f"{found['sentences']} sentences over {len(found['directions'])} directions; plain means "
        f"of directions. Random heads: means of {sets_of(found)}, none of them token alignment "
        "heads where there are enough others.",
        f"Of those of the same layers {max(filled)} come from the nearest layers, since the layers "
        "have too few others."
        if any(filled)
        else "",
        _cut(found),
        "Published: the largest drops over the paper's models exceed these.",
    )
    columns = ("chrF++", "its change", "BLEU", "its change", "wrong language %", "source copied %")
    cited = bound(setting, "Section 5.1")
    return Table("Translation without the heads", columns, tuple(rows), cited, note)


def _outputs(
    one: Mapping[str, Any], chrf: Cell, chrf_change: Cell, bleu_change: Cell
) -> tuple[Cell, ...]:
    """A row of the removal's table."""
    return (
        chrf,
        chrf_change,
        cell(one["bleu"], digits=1, why=NOT_MEASURED),
        bleu_change,
        hundred(one["off_target"], why=NOT_MEASURED),
        hundred(one["source_copy"], why=NOT_MEASURED),
    )


def _cut(found: Mapping[str, Any]) -> str:
    """What BLEU was cut into words by, and why it has no mean."""
    cut: dict[str, list[str]] = {}
    for direction, name in found.get("bleu_tokenizers", {}).items():
        cut.setdefault(name, []).append(direction)
    if not cut:
        return ""
    if len(cut) == 1:
        return f"BLEU is cut by {next(iter(cut))}."
    parts = (f"{name} ({', '.join(own)})" for name, own in cut.items())
    return f"BLEU is cut by {'; '.join(parts)}, and has no mean over different units."


def _exceeding(drop: float | None) -> str | None:
    """A change below that of a published drop, which is told as a bound."""
    return None if drop is None else f"< \u2212{drop:g}"


def _example_table(setting: Setting) -> Table | None:
    """One sentence as in Figure 1: the first that is right as it is and fails without the heads."""
    rows = list(lines_of(setting.at("removal") / "outputs.jsonl"))
    sizes = [one["k"] for one in rows if one["condition"] == "top"]
    if not sizes:
        return None
    k = max(sizes)
    made: dict[tuple[str, str], dict[str, str]] = {}
    for one in rows:
        kind = one["condition"]
        if kind == "baseline" or (one["k"] == k and one["gate"] == 0 and not one["draw"]):
            about = made.setdefault((one["direction"], one["id"]), {})
            about |= {"source": one["source"], "reference": one["reference"], kind: one["output"]}
    chosen = next(
        (
            (direction, about)
            for (direction, _), about in made.items()
            if about.get("baseline", "").strip() == about["reference"].strip()
            and about.get("top") is not None
            and about["top"].strip() != about["reference"].strip()
        ),
        None,
    )
    if chosen is None:
        return None
    direction, about = chosen
    titles = {
        "source": "source",
        "baseline": "no heads removed",
        "top": f"top {k} removed",
        "random": f"{k} random heads removed",
        "random-layer-matched": f"{k} random heads of the same layers removed",
    }
    shown = tuple(Row(name, (text(about.get(key)),)) for key, name in titles.items())
    return Table(
        f"An example ({direction})",
        ("text",),
        shown,
        note="The first test sentence that the model translates exactly as the reference, and "
        "otherwise without the heads; so it shows how, not how often.",
    )


def removal_words(found: Mapping[str, Any]) -> tuple[str, str]:
    """What the removal shows at the largest number of heads, and how sure that is."""
    removed = tops(found)
    if not removed:
        return "", ""
    one = max(removed, key=lambda row: int(row["k"]))
    base, k = found["baseline"], one["k"]
    against = one["against_random"]
    drawn = random_mean(found, "random", k, "chrf")
    beside = "" if drawn is None else f"; without as many random ones it is {drawn:.1f}"
    said = (
        f"chrF++ is {base['chrf']:.1f} as it is and {one['chrf']:.1f} without the top {k} heads "
        f"(change {range_of(one['change']['chrf'])}){beside}."
    )
    p = one.get("p_sentences")
    verdict = "Nothing random was removed, so the loss may be that of any heads."
    if against["value"] is not None:
        high = one["change"]["chrf"]["high"]
        lost = "" if high is not None and high < 0 else ", where the change as such includes zero"
        verdict = f"Beside random ones that is {range_of(against)} points{lost}."
    copied = one["source_copy"]
    copies = (
        "" if copied is None else f"Of the outputs without the heads {copied:.1%} copy the source."
    )
    matched = one["against_random_layer_matched"]
    layers = (
        f"Beside random heads of the same layers: {range_of(matched)}."
        if matched["value"] is not None
        else ""
    )
    tested = "" if p is None else f"p over sentences {p:.2g}, p over draws {one['p_draws']:.2g}."
    singles = [
        row["chrf"]
        for row in found["conditions"]
        if row["kind"] == "random" and row["k"] == k and row["gate"] == 0
    ]
    sets = int(one.get("distinct_draws") or len(singles))
    spread = (
        f"{sets} different random sets give {min(singles):.1f} to {max(singles):.1f}, and no p "
        f"over draws below {1 / (sets + 1):.2g}."
        if singles
        else ""
    )
    found_on = found.get("leakage") or {}
    apart = "Heads were found on other sentences." if found_on.get("overlap") == 0 else ""
    over = "Intervals are over sentences, beside the random sets that were drawn."
    return sentence(said, verdict, copies), sentence(over, tested, spread, layers, apart)


REMOVAL = Experiment(
    "figure-1",
    ("Figure 1", "Figure 8"),
    "What translation is without these heads",
    removal_steps,
    _tell_removal,
)
