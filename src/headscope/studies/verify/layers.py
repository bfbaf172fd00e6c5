"""Each language's text without the heads of one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope import options
from headscope.data.documents import DocumentFile
from headscope.errors import InputError
from headscope.estimates import Draws, Estimate
from headscope.evidence.controls import MATCHED
from headscope.evidence.headline import Case, spoken_of
from headscope.evidence.rows import Condition, Evidence
from headscope.heads import HeadSet, check_geometry, read_scores
from headscope.heads.geometry import keys_of
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished
from headscope.results.lahis import LahisResult
from headscope.results.language_texts import LayerDetails, Profile, TextWithoutLayers
from headscope.runs.reading import result_of
from headscope.settings import UNSIGNED, Option
from headscope.shown.blocks import Block, Cell, Lines, Section, Series, grid
from headscope.shown.words import enumeration
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
    Removing,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import ModelChoice
from headscope.studies.shows import layer_labels
from headscope.studies.verify.language_texts import (
    PERPLEXITIES,
    about_documents,
    few_documents,
    language_examples,
    measured,
    read_documents,
    text_facts,
)
from headscope.verify.language_texts.conditions import (
    LAYER,
    NAMED,
    language_heads,
    layer_sets,
    plan_layers,
)
from headscope.verify.language_texts.evidence import profile

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, kw_only=True)
class VerifyLayers(Removing):
    """Measure how the loss of each language's text changes without the heads of one layer.

    Every layer is compared with as many random heads of all layers. With --heads, the share of a
    language's important heads that lie in each layer is reported too.
    """

    # The important heads themselves, which the result holds, not their place.
    heads: Annotated[
        str | None,
        Option(
            "Count these by layer: a run folder of find lahis (each language's important heads), "
            "a saved set, a CSV or JSON of layer and head, or a list: 5.3,7.11.",
            held="heads",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    draws: options.Draws = 10
    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    controls: Annotated[
        tuple[str, ...],
        replace(
            options.CONTROL,
            help="How random heads are drawn: random (any heads, the default), outside (heads of "
            "other layers), equal norm (whose outputs are as large); repeatable. A layer has no "
            "other heads, so same layers is none.",
        ),
    ] = ("random",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if none := [name for name in self.controls if name in MATCHED]:
            raise InputError(
                f"the control {none[0]!r} has no other heads than those of a layer that is removed "
                "whole; use random, outside or equal norm"
            )


def _read(config: VerifyLayers) -> Examples[DocumentFile]:
    # Layers are not chosen by any data, so it does not matter what heads were found on.
    return language_examples(config.documents, config, None, False)


def _heads(lm: LanguageModel, config: VerifyLayers, examples: Examples[DocumentFile]) -> Chosen:
    important = _important(config.heads, list(examples.parts), lm)
    signed = {"important": {name: [*keys_of(heads)] for name, heads in important.items()}}
    return Chosen({ALL_PARTS: layer_sets(lm.geometry)}, signed=signed, known=important)


def _measure(bench: Bench[VerifyLayers, DocumentFile]) -> Measured:
    important: dict[str, HeadSet] = bench.chosen.known
    about = {
        "profile": {name: profile(heads) for name, heads in important.items()},
        "data": about_documents(bench),
    }
    return Measured(measured(bench)[1], about)


def _lead(layer: Condition) -> str:
    removed = layer.replacement == "zero"
    return f"Without {layer.of}'s heads" if removed else f"With {layer.of}'s heads {layer.done}"


def _cases(found: Evidence) -> list[Case]:
    """Every layer with every language."""
    return [
        Case("nll", each, part, f"{part}, {each.of}", _lead(each))
        for part, each in product(found.parts, found.selected)
    ]


def _important(spec: str | None, languages: Sequence[str], lm: LanguageModel) -> dict[str, HeadSet]:
    """The sets to count by layer: of a LAHIS run each language's heads above its quantile.

    They are what the run told apart into specific and general heads. Any other set is one entry,
    called `NAMED`.
    """
    from headscope.find.lahis_scores import language_sets

    if spec is None:
        return {}
    place = place_of(spec)
    if place is None or not (place / "specific").is_dir():
        (named,) = language_heads(spec, None, (), None, lm.geometry)
        return {NAMED: named.chosen}
    check_finished(place)
    scores = read_scores(place)
    if len(scores) == 1:  # of a single language, whose name its set has
        (name,) = (path.name for path in (place / "specific").iterdir())
        scores = {name: next(iter(scores.values()))}
    wanted = {name: scores[name] for name in languages if name in scores}
    if not wanted:
        raise InputError(
            f"{spec}: holds heads of {', '.join(sorted(scores))}; the documents are in "
            f"{', '.join(languages)}; give documents of the languages of the run"
        )
    for name, heads in wanted.items():
        check_geometry(heads, lm.geometry, f"{spec} ({name})")
    quantile = result_of(place, LahisResult, "find lahis").quantile
    return language_sets(wanted, quantile).important


#: Most languages that are drawn as lines; all are in the tables.
DRAWN = 8


def _extras(result: TextWithoutLayers, run: Path) -> Extras:
    """The change of loss by layer, and where important heads lie."""
    found = result.evidence
    return Extras(
        conditions=[spoken_of(found, _cases(found)).condition],
        heads={},
        facts=[*text_facts(result), ("layers", str(len(found.selected)))],
        sections=[
            Section("Where important heads lie", _profile(result.details.profile), brief=True)
        ],
        figure=_lines(found),
    )


def _changes(found: Evidence, part: str) -> list[tuple[Condition, Estimate]]:
    """Each layer with the change of a language's loss without it."""
    rows = ((each, found.level("nll", each, part)) for each in found.selected)
    return [(each, row.change) for each, row in rows if row is not None and row.change is not None]


def _control(found: Evidence) -> str:
    """The control of which the figure speaks, one with p if there is; tables have all."""
    ranked = (name for name, control in found.controls.items() if control.null)
    return next(ranked, next(iter(found.controls)))


def _lines(found: Evidence) -> Lines:
    layers = [float(each.of.removeprefix(LAYER)) for each in found.selected]
    series = [
        Series.of(part, zip(layers, (change for _, change in _changes(found, part)), strict=True))
        for part in found.parts[:DRAWN]
    ]
    random = [_random(found, each) for each in found.selected]
    words = found.controls[_control(found)].words
    series.append(Series.of(words, zip(layers, random, strict=True)))
    values = [y for line in series for y in (*(y for _, y in line.points), *line.low)]
    return Lines(
        "Change of loss without the heads of one layer",
        tuple(series),
        "layer removed",
        "change of NLL, nats a token",
        labels=layer_labels(list(map(int, layers))),
        logarithmic_y=min(values) > 0 and max(values) > 20 * min(values),
        note=f"The first {DRAWN} languages" if len(found.parts) > DRAWN else "",
        band="95\u00a0% intervals (languages) and the range of draws over all languages (random)",
    )


def _random(found: Evidence, condition: Condition) -> Draws:
    """The changes of loss without as many heads of the control, in every language."""
    rows = (
        found.level("nll", draw, part)
        for draw in found.of_control(condition, _control(found)) for part in found.parts
    )  # fmt: skip
    return Draws.of([row.change.value for row in rows if row is not None and row.change])


def _profile(profiles: Mapping[str, Profile]) -> list[Block]:
    """Shares and numbers of the important heads in each layer."""
    if not profiles:
        return []
    every = next(iter(profiles.values())).layers
    series = [
        Series(name, tuple((float(row.layer), 100 * row.share) for row in own.layers))
        for name, own in profiles.items()
    ][:DRAWN]
    even = Series("even share", tuple((float(row.layer), 100 * row.even) for row in every))
    totals = enumeration([f"{name} {own.important}" for name, own in profiles.items()])
    shares = Lines(
        "Share of the important heads that lie in a layer",
        (*series, even),
        "layer",
        "% of the important heads",
        labels=layer_labels([row.layer for row in every]),
        note=f"Important heads: {totals}. One head more or less moves a share by a whole step",
    )
    by_name = {name: [row.important for row in own.layers] for name, own in profiles.items()}
    by_name["heads of the layer"] = [row.heads for row in every]
    rows = {f"layer {row.layer}": at for at, row in enumerate(every)}
    numbers = grid("Number of important heads", rows, by_name,
                   lambda layer, name: Cell(by_name[name][rows[layer]]))  # fmt: skip
    return [shares, numbers]


WORDS = Words(
    "Text without whole layers",
    "How much worse is text of each language predicted without the heads of one layer?",
    "document",
    "The heads of one layer at a time are removed; its other parts stay in place. Beside them: as "
    f"many random heads. A case is a layer and a language. {PERPLEXITIES}",
)

comparison = Comparison(
    command="verify layers",
    settings=VerifyLayers,
    result=TextWithoutLayers,
    details=LayerDetails,
    read=_read,
    ready=read_documents,
    heads=_heads,
    plan=lambda layers, config, basis: plan_layers(layers, config, basis, config.ablate),
    measure=_measure,
    cases=lambda found, details: _cases(found),
    cautions=lambda found, details: few_documents(details.data),
    words=WORDS,
    extras=_extras,
    examples="documents",
    usage="--language de --limit 20",
)
command = comparison.study
