"""What whole layers do for each language, and where its important heads lie."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from headscope.papers.lahis.scale import step_name
from headscope.papers.lahis.words import (
    count,
    documents_said,
    draws_limit,
    mean_known,
    several,
    sign,
    span,
    table_of,
)
from headscope.papers.paper import Setting
from headscope.shown.blocks import Cell, Findings, Heatmap


def tell_layers(setting: Setting) -> Findings:
    """Each language's text without whole layers, and where its important heads lie."""
    found = setting.result(step_name(setting, "layers"))
    if found is None:
        return Findings()
    languages = found["languages"]
    first = next(iter(languages.values()))["layers"]
    profile = found["profile"]
    layers = [one["layer"] for one in first]
    shares = {
        layer: mean_known([_share(one, layer) for one in profile.values()]) for layer in layers
    }
    even = {
        one["layer"]: one["even"] for each in list(profile.values())[:1] for one in each["layers"]
    }
    rows = {
        str(layer): (layer, [one["layers"][at] for one in languages.values()])
        for at, layer in enumerate(layers)
    }
    unscored = "no heads were scored"
    table = table_of(
        "Whole layers",
        rows,
        {
            "heads": lambda row: Cell(row[1][0]["heads"], digits=0),
            "share of important heads, %": lambda row: Cell(
                _percent(shares[row[0]]), why=unscored, digits=1
            ),
            "if spread evenly, %": lambda row: Cell(
                _percent(even.get(row[0])), why=unscored, digits=1
            ),
            "change of NLL, mean over languages": lambda row: Cell(
                mean(one["change"]["value"] for one in row[1])
            ),
            "lowest interval end": lambda row: Cell(min(one["change"]["low"] for one in row[1])),
            "highest interval end": lambda row: Cell(max(one["change"]["high"] for one in row[1])),
            "as many random heads": lambda row: Cell(mean(one["random"]["mean"] for one in row[1])),
            "languages with the interval above random": lambda row: Cell(
                sum(sign(one["against_random"]) > 0 for one in row[1]), digits=0
            ),
        },
        "Shares are means over languages.",
    )
    changes_map = Heatmap(
        "Change of NLL without a layer's heads",
        tuple(map(str, layers)),
        tuple(languages),
        tuple(
            tuple(one["layers"][at]["change"]["value"] for one in languages.values())
            for at in range(len(layers))
        ),
        "nats a token",
        "layer",
        "text of",
        low=0.0,
    )
    figures = [changes_map]
    if profile:
        figures.append(
            Heatmap(
                "Share of each language's important heads in a layer",
                tuple(map(str, layers)),
                tuple(profile),
                tuple(tuple(_share(one, layer) for one in profile.values()) for layer in layers),
                "share",
                "layer",
                "heads of",
                low=0.0,
                high=1.0,
            )
        )
    return Findings(
        (table,),
        tuple(figures),
        _layers_found(languages, shares, even),
        f"{documents_said(found)} Beside every layer stand as many random heads, "
        f"{count(found['draws'], 'draw')} from all layers; {draws_limit(found['draws'])}. Removing "
        "a whole layer is a large intervention, which says little of its single heads.",
        {"worst": _worst(languages)},
    )


def _layers_found(
    languages: Mapping[str, Any], shares: Mapping[int, float | None], even: Mapping[int, float]
) -> str:
    worst = _worst(languages)
    top = max(set(worst.values()), key=list(worst.values()).count)
    most = [code for code, layer in worst.items() if layer == top]
    at = next(
        number
        for number, one in enumerate(next(iter(languages.values()))["layers"])
        if one["layer"] == top
    )
    changes = [languages[code]["layers"][at]["change"]["value"] for code in most]
    cells = [(one["layer"], one["against_random"]) for each in languages.values()
             for one in each["layers"]]  # fmt: skip
    above = sum(sign(one) > 0 for _, one in cells)
    text = (
        f"Layer {top} costs most {several(len(most), len(worst))}: {span(changes)} nats a token. "
        f"Beside as many random heads the interval lies above zero for {above} of {len(cells)} "
        "layers, counted by language."
    )
    known = {layer: share for layer, share in shares.items() if share is not None}
    if known:
        dense = max(known, key=known.__getitem__)
        if known[dense] > even[dense]:
            where = "the layer that costs most" if dense == top else "not the one that costs most"
            text += (
                f" Layer {dense} has the largest share of the important heads "
                f"({100 * known[dense]:.0f} %; evenly spread {100 * even[dense]:.0f} %); it is "
                f"{where}."
            )
        else:
            text += " Important heads are spread evenly over the layers."
    return text


def _worst(languages: Mapping[str, Any]) -> dict[str, int]:
    """The layer whose loss costs a language most."""
    return {
        code: max(one["layers"], key=lambda layer: layer["change"]["value"])["layer"]
        for code, one in languages.items()
    }


def _share(profile: Mapping[str, Any], layer: int) -> float | None:
    return next((one["share"] for one in profile["layers"] if one["layer"] == layer), None)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
