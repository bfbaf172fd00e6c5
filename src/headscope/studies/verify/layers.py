"""Each language's text without the heads of one layer at a time, in a run folder."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope.errors import InputError
from headscope.heads import HeadSet, check_geometry, read_scores
from headscope.heads.resolve import check_finished, place_of
from headscope.results.language_texts import TextWithoutLayers
from headscope.runs import Run
from headscope.settings import UNSIGNED, Option, Part, Settings
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.inputs import ModelChoice, Progress, run_with_model
from headscope.studies.verify.language_texts import about_documents, read_rows, set_apart
from headscope.studies.verify.perplexity import store_texts
from headscope.verify.languages.conditions import LanguageRemoval, read_texts
from headscope.verify.languages.evidence import text_trials
from headscope.verify.languages.layers import describe_layers, plan_layers, profile
from headscope.verify.languages.sets import NAMED, language_heads

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

__all__ = ["COMMAND", "VerifyLayers", "verify_layers"]

COMMAND = "verify layers"


_LayerRemoval = partial(LanguageRemoval, layer_matched=False)


@dataclass(frozen=True)
class VerifyLayers(Settings):
    """Measure how each language's text suffers when all heads of one layer are removed.

    Beside every layer stand as many random heads of all layers. With --heads, the share of a
    language's important heads that lie in each layer is told too.
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
        Part(without=("layer_matched", "pool", "threshold"), make=_LayerRemoval),
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
    lm = config.model.load_for(out)
    important = _important(config.heads, list(files), lm)
    documents, left_out = read_rows(lm, files)
    planned = plan_layers(lm.geometry, list(documents), removal.draws, removal.seed)
    settings = {
        "settings": config,
        "important": {name: [str(head) for head in heads] for name, heads in important.items()},
        "reference text": None if reference is None else reference.digest,
    }
    data = {name: one.digest for name, one in files.items()}

    def compute(run: Run) -> TextWithoutLayers:
        texts = read_texts(
            lm,
            documents,
            planned,
            removal,
            run,
            None if reference is None else lambda: reference.means(lm, removal.batch_tokens),
            progress,
        )
        store_texts(run, documents, planned, texts)
        if progress:
            progress("comparing", 0, 1)
        languages = describe_layers(planned, text_trials(planned, texts, removal.seed))
        if progress:
            progress("comparing", 1, 1)
        return TextWithoutLayers(
            draws=removal.draws,
            ablate=removal.ablate,
            reference_text=None if reference is None else reference.facts,
            seed=removal.seed,
            languages=languages,
            profile={name: profile(heads) for name, heads in important.items()},
            data=about_documents(files, left_out),
        )

    return run_with_model(
        lm,
        COMMAND,
        out,
        settings,
        data,
        compute,
        began,
        kind=TextWithoutLayers,
        seed=removal.seed,
    )


def _important(spec: str | None, languages: Sequence[str], lm: LanguageModel) -> dict[str, HeadSet]:
    """The sets to count by layer: of a LAHIS run each language's heads above its quantile.

    They are what the run told apart into specific and general heads. Any other set is one entry,
    called `NAMED`.
    """
    from headscope.find.lahis import language_sets

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
    for name, one in wanted.items():
        check_geometry(one, lm.geometry, f"{spec} ({name})")
    return language_sets(wanted, _quantile(place)).important


def _quantile(folder: Path) -> float:
    """The quantile that a finished run says its heads lie above."""
    try:
        value = json.loads((folder / "result.json").read_bytes())["quantile"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / 'result.json'}: is damaged; find the heads again") from error
    if not isinstance(value, float):
        raise InputError(f"{folder / 'result.json'}: is damaged; find the heads again")
    return value
