"""Each language's text without the heads of one layer at a time, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

from headscope.errors import InputError
from headscope.estimates import Estimate
from headscope.evidence.blocks import (
    clear,
    draws_remedy,
    draws_words,
    few_sets,
    parts_table,
    verdict,
    verdicts,
)
from headscope.evidence.rows import Basis, Condition, Evidence
from headscope.heads import HeadSet, check_geometry, read_scores
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished
from headscope.progress import Progress
from headscope.results.lahis import LahisResult
from headscope.results.language_texts import LayerDetails, Profile, TextWithoutLayers
from headscope.runs import Run
from headscope.runs.reading import result_of
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import Cell, Lines, Row, Section, Series, Shown, Table, grid
from headscope.shown.words import confidence, enumeration, signed
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import ModelChoice, run_with_model
from headscope.studies.shows import layer_labels
from headscope.studies.study import Study
from headscope.studies.verify.language_texts import (
    about_documents,
    documents_words,
    few_documents,
    level_rows,
    measured,
    read_rows,
    set_apart,
    text_facts,
)
from headscope.verify.languages.conditions import (
    LAYER,
    NAMED,
    LayerRemoval,
    language_heads,
    plan_layers,
)
from headscope.verify.languages.evidence import profile

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "verify layers"


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
    removal: LayerRemoval = field(default_factory=LayerRemoval)


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
    texts = ([document.text for document in file.documents] for file in files.values())
    planned = plan_layers(lm.geometry, removal, Basis.on(lm, texts))
    settings = {
        "settings": config,
        "important": {name: [str(head) for head in heads] for name, heads in important.items()},
        "reference text": reference.digest,
    }
    data = {name: file.digest for name, file in files.items()}

    def compute(run: Run) -> TextWithoutLayers:
        _, found = measured(lm, run, documents, planned, removal, reference, progress)
        data = about_documents(files, documents, left_out)
        return TextWithoutLayers(
            verdict=verdicts(
                {
                    f"{part}, {each.of}": verdict(found, "nll", each, part)
                    for part in found.parts
                    for each in found.selected
                }
            ),
            cautions=(*few_documents(data), *few_sets(found, removal.draws)),
            evidence=found,
            details=LayerDetails(
                draws=removal.draws,
                ablate=removal.ablate,
                reference_text=reference.facts,
                seed=removal.seed,
                profile={name: profile(heads) for name, heads in important.items()},
                data=data,
            ),
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
    found = result.evidence
    control = _control(found)
    tests = [test for test in found.tests if (test.statistic, test.control) == ("nll", control)]
    draws = min((test.draws for test in tests), default=0)
    words = found.controls[control].words + (" of all layers" if control == "random" else "")
    where = []
    for part in found.parts[:DRAWN]:
        condition, change = max(_changes_of(found, part), key=lambda row: row[1].value)
        random = _random(found, condition, part)
        where.append(
            f"{part} {condition.of} ({signed(change.value, 3)}, "
            f"{confidence(change.low, change.high, 3)}; random heads {signed(random, 3)})"
        )
    gaps = [test.difference for test in tests]
    sections = [
        Section("Change of loss by layer", [_changes(found)], brief=True),
        Section("Layers and random heads", [_lines(found)]),
        Section("Where important heads lie", _profile(result.details.profile), brief=True),
        Section(
            "Every layer and language",
            [
                *(
                    parts_table(
                        found, "nll", each, f"NLL, nats a token, without {each.of}", "documents"
                    )
                    for each in found.selected
                ),
                level_rows(found, result.details.data),
            ],
        ),
    ]
    return Shown(
        "Text without whole layers",
        "How much worse is text of each language predicted without the heads of one layer?",
        [
            f"{result.verdict[:1].upper()}{result.verdict[1:]}.",
            f"Largest change of loss, nats a token: {'; '.join(where)}.",
            f"The change is larger than with as many {words} in "
            f"{clear(gaps, 'case')}, layer by layer and language by language.",
        ],
        f"{documents_words(found)}; {draws_words(draws)}.",
        draws_remedy(draws),
        result.cautions,
        text_facts(result, ("layers", str(len(found.selected)))),
        [section for section in sections if section.blocks],
    )


def _changes_of(found: Evidence, part: str) -> list[tuple[Condition, Estimate]]:
    """Each layer with the change of a language's loss without it."""
    rows = ((each, found.level("nll", each, part)) for each in found.selected)
    return [(each, row.change) for each, row in rows if row is not None and row.change is not None]


def _control(found: Evidence) -> str:
    """The control of which sentences and figures speak, one with p if there is; tables have all."""
    ranked = (name for name, control in found.controls.items() if control.null)
    return next(ranked, next(iter(found.controls)))


def _random(found: Evidence, condition: Condition, part: str) -> float:
    """The mean change of a language's loss without as many random heads."""
    draws = found.of_control(condition, _control(found))
    rows = (found.level("nll", draw, part) for draw in draws)
    return fmean(row.change.value for row in rows if row is not None and row.change is not None)


def _changes(found: Evidence) -> Table:
    """Layers by languages; last the mean of random draws of each layer's size."""
    shared = _control(found) == "random"
    by_part = {part: dict(_changes_of(found, part)) for part in found.parts}
    rows = [(each.of, [by_part[part][each].value for part in found.parts])
            for each in found.selected]  # fmt: skip
    rows += [
        (f"random, {size} heads", [_random(found, each, part) for part in found.parts])
        for size, each in {each.k: each for each in found.selected}.items()
        if shared  # draws of other controls are a layer's own
    ]
    cells = tuple(Row(name, tuple(Cell(v, digits=4) for v in values)) for name, values in rows)
    note = "Random heads are spread over all layers: mean of the draws" if shared else ""
    title = "Change of loss without the heads of a layer, nats a token"
    return Table(title, found.parts, cells, note=note)


def _lines(found: Evidence) -> Lines:
    layers = [int(each.of.removeprefix(LAYER)) for each in found.selected]
    by_part = {part: [change for _, change in _changes_of(found, part)] for part in found.parts}
    series = [
        Series.of(part, zip(map(float, layers), by_part[part], strict=True))
        for part in found.parts[:DRAWN]
    ]
    random = tuple(
        (float(layer), fmean(_random(found, each, part) for part in found.parts))
        for layer, each in zip(layers, found.selected, strict=True)
    )
    values = [y for line in series for y in (*(y for _, y in line.points), *line.low)]
    return Lines(
        "Change of loss without the heads of one layer",
        (*series, Series("random, mean over languages", random)),
        "layer removed",
        "change of NLL, nats a token",
        labels=layer_labels(layers),
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


command = Study(VerifyLayers, verify_layers, result=TextWithoutLayers, show=_show)
