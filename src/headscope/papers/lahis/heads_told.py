"""What the scores show: importance of every head for each language, general and specific heads."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.lahis.scale import HEADS
from headscope.papers.lahis.words import span, table_of
from headscope.papers.paper import Setting
from headscope.shown.blocks import Bars, Cell, Claim, Findings, Heatmap


def tell_importance(setting: Setting) -> Findings:
    """Heatmaps of importance, and how alike languages and halves of documents are."""
    found = setting.result(HEADS)
    if found is None:
        return Findings()
    languages = found["languages"]
    halves = {code: one["halves"] for code, one in languages.items() if one["halves"]}
    table = table_of(
        "Importance by language",
        languages,
        {
            "documents": lambda one: Cell(one["documents"], digits=0),
            "tokens": lambda one: Cell(one["tokens"], digits=0),
            "loss": lambda one: Cell(one["loss"]),
            "important heads": lambda one: Cell(one["important"], digits=0),
            "threshold, thousandths": lambda one: Cell(1000 * one["threshold"], digits=2),
            "most important head": lambda one: Cell(_best(one)),
            "halves, Jaccard": lambda one: _halves(one, "jaccard", 2),
            "by chance": lambda one: _halves(one, "expected_exact", 3),
        },
        "Importance, and so the threshold, is in thousandths of a nat a token.",
    )
    figures = [_map(setting, code, one) for code, one in languages.items()]
    pairs = [one["jaccard"] for one in found["overlap"]]
    if pairs:
        figures.append(_alike(found))
    return Findings(
        (table,), tuple(figures), _importance_found(found, pairs), _importance_sure(found, halves)
    )


def tell_sets(setting: Setting) -> Findings:
    """General and specific heads, and the layers they lie in."""
    found = setting.result(HEADS)
    if found is None:
        return Findings()
    languages = found["languages"]
    tables = [
        table_of(
            "Heads of each language",
            languages,
            {
                "important": lambda one: Cell(one["important"], digits=0),
                "general among them": lambda one: Cell(
                    one["important"] - len(one["specific"]), digits=0
                ),
                "specific": lambda one: Cell(len(one["specific"]), digits=0),
                "specific heads, best first": lambda one: Cell(
                    _listed(one["specific"]) or None, why="no head is specific"
                ),
            },
        )
    ]
    if found["general_in"] is not None:
        shared = {_listed([one]): one for one in found["general"]}
        note = (
            f"Important in at least {found['general_in']} of {len(languages)} languages; by chance "
            f"{found['general_expected']:.2g} heads would be."
        )
        column = {"languages": lambda one: Cell(one["languages"], digits=0)}
        tables.append(table_of("General heads", shared, column, note))
    return Findings(
        tuple(tables),
        (_profile(found),),
        _sets_found(found),
        _sets_sure(found),
        with_claims(*_sets_claims(found)),
    )


def _sets_claims(found: Mapping[str, Any]) -> list[Claim]:
    """That there are heads of both kinds, which is described: what they do is tested elsewhere."""
    sizes = [len(one["specific"]) for one in found["languages"].values()]
    taken = (
        f"{span(sizes, 0)} each, which a quantile makes, so that this is no finding; what they do "
        "is tested"
    )
    claims = [Claim("every language has heads specific to it", min(sizes) > 0, taken)]
    if found["general_in"] is not None:
        by = (
            f"{len(found['general'])} in at least {found['general_in']} of {len(sizes)} languages, "
            f"where chance gives {found['general_expected']:.2g}"
        )
        claims.append(Claim("some heads are general", bool(found["general"]), by))
    return claims


def _best(one: Mapping[str, Any]) -> str:
    top = max(one["heads"], key=lambda head: float(head["score"]))
    return f"{top['layer']}.{top['head']}"


def _halves(one: Mapping[str, Any], key: str, digits: int) -> Cell:
    agree = one["halves"]
    return Cell(agree[key], digits=digits) if agree else Cell(why="one document")


def _listed(heads: list[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['layer']}.{one['head']}" for one in heads)


def _map(setting: Setting, code: str, one: Mapping[str, Any]) -> Heatmap:
    counts = setting.geometry.counts
    values: list[list[float | None]] = [[None] * max(counts) for _ in counts]
    for head in one["heads"]:
        values[head["layer"]][head["head"]] = 1000 * float(head["score"])
    return Heatmap(
        f"Importance for {code}",
        tuple(map(str, range(len(counts)))),
        tuple(map(str, range(max(counts)))),
        tuple(map(tuple, values)),
        "importance, thousandths of a nat a token",
        "layer",
        "head",
        low=0.0,
    )


def _alike(found: Mapping[str, Any]) -> Heatmap:
    codes = list(found["languages"])
    values: list[list[float | None]] = [[None] * len(codes) for _ in codes]
    for one in found["overlap"]:
        a, b = codes.index(one["a"]), codes.index(one["b"])
        values[a][b] = values[b][a] = one["jaccard"]
    for at in range(len(codes)):
        values[at][at] = 1.0
    expected = mean(one["expected_exact"] for one in found["overlap"])
    return Heatmap(
        "Important heads that two languages share",
        tuple(codes),
        tuple(codes),
        tuple(map(tuple, values)),
        "Jaccard index",
        low=0.0,
        high=1.0,
        note=f"By chance {expected:.3f}. A language shares all heads with itself (1).",
    )


def _profile(found: Mapping[str, Any]) -> Bars:
    """By layer: specific and general heads, as shares of the layer's heads."""
    languages = found["languages"]
    layers = next(iter(languages.values()))["layers"]
    values = []
    for at, layer in enumerate(layers):
        specific = {
            one["head"]
            for language in languages.values()
            for one in language["specific"]
            if one["layer"] == at
        }
        general = sum(one["layer"] == at for one in found["general"])
        count = layer["heads"]
        shares = (len(specific), general) if count else (None, None)
        values.append(tuple(None if one is None else 100 * one / count for one in shares))
    return Bars(
        "Heads by layer",
        tuple(f"layer {one['layer']}" for one in layers),
        ("specific to a language", "general"),
        tuple(values),
        "% of the layer's heads",
        note="A head that is specific to several languages is counted once.",
    )


def _importance_found(found: Mapping[str, Any], pairs: list[float]) -> str:
    sizes = [one["important"] for one in found["languages"].values()]
    total = len(next(iter(found["languages"].values()))["heads"])
    text = (
        f"{span(sizes, 0)} of {total} heads lie above the {found['quantile']:g} quantile of "
        "each language."
    )
    if not pairs:
        return f"{text} With one language nothing can be said of what languages share."
    expected = mean(one["expected_exact"] for one in found["overlap"])
    largest = max(one["p_value"] for one in found["overlap"])
    if largest < 0.05:
        verdict = "Every two languages share more of them than random sets would"
    elif mean(pairs) > expected:
        verdict = (
            "On average, but not in every pair (p), languages share more than random sets would"
        )
    else:
        verdict = "Two languages share no more of them on average than random sets would"
    return (
        f"{text} {verdict}: Jaccard {span(pairs, 2)}, by chance {expected:.3f} (largest p "
        f"{largest:.2g})."
    )


def _importance_sure(found: Mapping[str, Any], halves: Mapping[str, Mapping[str, float]]) -> str:
    if not halves:
        return "With one document a language there is no second half to compare with."
    agree = [one["jaccard"] for one in halves.values()]
    chance = mean(one["expected_exact"] for one in halves.values())
    text = (
        f"Sets from the two halves of a language's documents, each found on half as many, agree "
        f"to a Jaccard index of {span(agree, 2)} (chance {chance:.3f})."
    )
    pairs = [one["jaccard"] for one in found["overlap"]]
    if pairs and mean(pairs) >= min(agree):
        text += (
            " Two languages are about as alike as two halves of one language's documents, so part "
            "of what differs between languages is the sample."
        )
    return text


def _sets_found(found: Mapping[str, Any]) -> str:
    specific = {code: len(one["specific"]) for code, one in found["languages"].items()}
    without = [code for code, number in specific.items() if not number]
    own = f"Specific to a language are {span(list(specific.values()), 0)} heads"
    own += f"; none to {', '.join(without)}." if without else "."
    if found["general_in"] is None:
        return f"{own} With one language no head can be called general."
    number, expected = len(found["general"]), found["general_expected"]
    if not number:
        return f"No head is general to these languages. {own}"
    listed = _listed(found["general"][:10])
    are = "head is" if number == 1 else "heads are"
    return f"{number} {are} general ({listed}); by chance {expected:.2g} would be. {own}"


def _sets_sure(found: Mapping[str, Any]) -> str:
    agree = [one["halves"]["jaccard"] for one in found["languages"].values() if one["halves"]]
    halves = f"Halves of the documents agree to {span(agree, 2)} (Jaccard). " if agree else ""
    return (
        f"{halves}The numbers follow from the quantile, and from how many languages there are. "
        "Whether a set does anything is tested elsewhere (ppl, general-head)."
    )
