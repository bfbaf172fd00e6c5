"""Each language's text without the heads of one layer at a time, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from headscope.errors import InputError
from headscope.heads import HeadSet, check_geometry, read_scores
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished
from headscope.progress import Progress
from headscope.results.lahis import LahisResult
from headscope.results.language_texts import Profile, TextWithoutLayers
from headscope.runs import Run
from headscope.runs.reading import result_of
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import Cell, Lines, Row, Section, Series, Shown, Table, grid
from headscope.shown.words import confidence, enumeration, signed
from headscope.studies.comparison import (
    Compared,
    Comparison,
    clear,
    draws_remedy,
    draws_words,
    tests_words,
)
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import ModelChoice, run_with_model
from headscope.studies.shows import layer_labels
from headscope.studies.study import Study
from headscope.studies.verify.language_texts import (
    CHANGE,
    about_documents,
    documents_words,
    few_documents,
    levels_table,
    measured,
    read_rows,
    set_apart,
    text_facts,
)
from headscope.verify.languages.conditions import (
    NAMED,
    LanguageRemoval,
    language_heads,
    plan_layers,
)
from headscope.verify.languages.evidence import describe_layers, profile

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify layers"


_LayerRemoval = partial(LanguageRemoval, layer_matched=False)


@dataclass(frozen=True)
class VerifyLayers(Settings):
    """Measure how the loss of each language's text changes without the heads of one layer.

    Every layer is compared with as many random heads of all layers. With --heads, the share of a
    language's important heads that lie in each layer is reported too.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: Annotated[
        str | None,
        Option(
            "Count these by layer: a run folder of find lahis (each language's important heads), "
            "a saved set, a CSV or JSON of layer and head, or a list: 5.3,7.11."
        ),
    ] = field(default=None, metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    documents: DocumentsChoice = field(default_factory=DocumentsChoice)
    # The random heads of a layer come from the whole model.
    removal: Annotated[
        LanguageRemoval,
        Nested(without=("layer_matched", "pool", "threshold"), make=_LayerRemoval),
    ] = field(default_factory=_LayerRemoval)


def verify_layers(
    config: VerifyLayers, out: Path | None = None, progress: Progress | None = None
) -> TextWithoutLayers:
    """Read every language's documents without each layer's heads; the command's result.

    A run that was stopped goes on where it was. Layers are not chosen by any data, so that it does
    not matter whether heads were found on the same documents.
    """
    began = time.monotonic()
    removal = config.removal
    files = read_languages(config.documents, config.model.model, "test", removal.seed)
    files, reference = set_apart(
        config.documents, config.model.model, removal.seed, files, removal.ablate
    )
    lm = config.model.load_for()
    important = _important(config.heads, list(files), lm)
    documents, left_out = read_rows(lm, files)
    planned = plan_layers(lm.geometry, list(documents), removal.draws, removal.seed)
    settings = {
        "settings": config,
        "important": {name: [str(head) for head in heads] for name, heads in important.items()},
        "reference text": reference.digest,
    }
    data = {name: file.digest for name, file in files.items()}

    def compute(run: Run) -> TextWithoutLayers:
        trials = measured(lm, run, documents, planned, removal, reference, progress)
        languages = describe_layers(planned, trials)
        if progress:
            progress("comparing", 1, 1)
        return TextWithoutLayers(
            draws=removal.draws,
            ablate=removal.ablate,
            reference_text=reference.facts,
            seed=removal.seed,
            languages=languages,
            profile={name: profile(heads) for name, heads in important.items()},
            data=about_documents(files, left_out),
        )

    kind, seed = TextWithoutLayers, removal.seed
    return run_with_model(lm, COMMAND, out, settings, data, compute, began, kind=kind, seed=seed)


def _important(spec: str | None, languages: Sequence[str], lm: LanguageModel) -> dict[str, HeadSet]:
    """The sets to count by layer: of a LAHIS run each language's heads above its quantile.

    They are what the run told apart into specific and general heads. Any other set is one entry,
    called `NAMED`.
    """
    from headscope.find.importance import language_sets

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


def _show(result: TextWithoutLayers, run: Path) -> Shown:
    """The change of loss by layer, where important heads lie, and every number."""
    languages = result.languages
    rows = [row for text in languages.values() for row in text.layers]
    differences = [row.against_random.difference for row in rows]
    draws = min((row.against_random.distinct for row in rows), default=0)
    highest = {
        name: max(text.layers, key=lambda row: row.change.value) for name, text in languages.items()
    }
    where = [
        f"{name} layer {row.layer} ({signed(row.change.value, 3)}, "
        f"{confidence(row.change.low, row.change.high, 3)}; random heads "
        f"{signed(row.random.mean, 3)})"
        for name, row in list(highest.items())[:DRAWN]
    ]
    sections = [
        Section("Change of loss by layer", [_changes(result)], brief=True),
        Section("Layers and random heads", [_lines(result)]),
        Section("Where important heads lie", _profile(result.profile), brief=True),
        Section("Every layer and language", [_numbers(result), levels_table(languages)]),
    ]
    return Shown(
        "Text without whole layers",
        "How much worse is text of each language predicted without the heads of one layer?",
        [
            f"Largest change of loss, nats a token: {'; '.join(where)}.",
            "The change is larger than with as many random heads of all layers in "
            f"{clear(differences, 'case')}, layer by layer and language by language.",
        ],
        f"{documents_words(languages)}; {draws_words(draws)}.",
        draws_remedy(draws),
        few_documents(languages),
        text_facts(result, ("layers", str(max(len(text.layers) for text in languages.values())))),
        [section for section in sections if section.blocks],
    )


def _changes(result: TextWithoutLayers) -> Table:
    """Layers by languages; last the mean of random draws of each layer's size."""
    texts = result.languages.values()
    rows = [
        (f"layer {layers[0].layer}", [layer.change.value for layer in layers])
        for layers in zip(*(text.layers for text in texts), strict=True)
    ]
    rows += [
        (f"random, {size} heads", [fmean(text.draws[size]) for text in texts])
        for size in next(iter(texts)).draws
    ]
    cells = tuple(Row(name, tuple(Cell(v, digits=4) for v in values)) for name, values in rows)
    note = "Random heads are spread over all layers: mean of the draws"
    title = "Change of loss without the heads of a layer, nats a token"
    return Table(title, tuple(result.languages), cells, note=note)


def _lines(result: TextWithoutLayers) -> Lines:
    shown = list(result.languages.items())[:DRAWN]
    series = [
        Series(
            name,
            tuple((float(row.layer), row.change.value) for row in text.layers),
            tuple(row.change.low for row in text.layers),
            tuple(row.change.high for row in text.layers),
        )
        for name, text in shown
    ]
    texts = list(result.languages.values())
    random = tuple(
        (float(rows[0].layer), fmean(row.random.mean for row in rows))
        for rows in zip(*(text.layers for text in texts), strict=True)
    )
    values = [y for line in series for y in (*(y for _, y in line.points), *line.low)]
    return Lines(
        "Change of loss without the heads of one layer",
        (*series, Series("random, mean over languages", random)),
        "layer removed",
        "change of NLL, nats a token",
        labels=layer_labels([row.layer for row in texts[0].layers]),
        logarithmic_y=min(values) > 0 and max(values) > 20 * min(values),
        note="The layer's other parts stay in place",
    )


def _profile(profiles: Mapping[str, Profile]) -> list[Table]:
    """Shares and numbers of the important heads in each layer."""
    if not profiles:
        return []
    every = next(iter(profiles.values())).layers
    layers = {f"layer {row.layer}": at for at, row in enumerate(every)}

    def share(layer: str, name: str) -> Cell:
        at = layers[layer]
        return Cell.share(profiles[name].layers[at].share if name in profiles else every[at].even)

    def number(layer: str, name: str) -> Cell:
        at = layers[layer]
        return Cell(profiles[name].layers[at].important if name in profiles else every[at].heads)

    totals = enumeration([f"{name} {profile.important}" for name, profile in profiles.items()])
    note = f"Important heads: {totals}. One head more or less moves a share by a whole step"
    columns = (*profiles, "even share")
    return [
        grid("Share of the important heads that lie in a layer", layers, columns, share, note=note),
        grid("Number of important heads", layers, (*profiles, "heads of the layer"), number),
    ]


def _numbers(result: TextWithoutLayers) -> Table:
    rows = {
        f"{name}, layer {row.layer}": Compared(
            CHANGE,
            row.change,
            selected=row.nll,
            random=(row.random, None),
            tests=(row.against_random, None),
            more={"heads": Cell(row.heads)},
        )
        for name, text in result.languages.items()
        for row in text.layers
    }
    note = tests_words("documents", "a larger change")
    title = "Loss without the heads of a layer, nats a token (random: change)"
    return Comparison(rows, "documents").table(title, note)


command = Study(VerifyLayers, verify_layers, result=TextWithoutLayers, show=_show)
