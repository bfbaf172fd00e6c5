"""The run folder around any method that gives every head a score."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.data.documents import DocumentFile
from headscope.data.split import sentence_digest
from headscope.heads import HeadScores, save_scores
from headscope.progress import Progress, Steps, further, steps_of
from headscope.results.common import DataRead, ScoredHead
from headscope.results.head_scores import HeadsResult, LayerScores, ScoredHeads, ScoresResult
from headscope.results.lahis import LanguageScores
from headscope.runs import Run, decode, plain
from headscope.shown.blocks import Column, HeadSets, HeadTable
from headscope.shown.words import MEAN, count, enumeration
from headscope.studies.documents import DEFAULT_LIMIT, DocumentsChoice, read_languages
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import run_with_model
from headscope.studies.shows import (
    FEW,
    SCORE,
    by_rank,
    head_sets,
    head_table,
    more_examples,
    significant,
    strongest,
    top_heads,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.studies.workers import Divided

Scored = HeadScores | dict[str, HeadScores]
AnyHeads = TypeVar("AnyHeads", bound=ScoredHeads)
AnyResult = TypeVar("AnyResult", bound=ScoresResult)


def scores_run(
    command: str,
    settings: Any,
    lm: LanguageModel,
    data: Mapping[str, Mapping[str, Any]],
    out: Path | None,
    score: Callable[[Run, Steps | None], Scored],
    progress: Progress | None,
    kind: type[AnyResult],
    complete: Callable[[AnyResult, Scored], AnyResult] = lambda result, scores: result,
    seed: int = 0,
    divided: Divided | None = None,
) -> AnyResult:
    """Score inside a run folder and return the command's result; a finished run comes back.

    Args:
        command: such as `find induction`.
        settings: the configuration, which makes the signature.
        lm: the model.
        data: what was read, by name; each tells its `digest`, and `path` and `examples` if it has.
        out: the run folder; None: of the command's and the signature's name.
        score: computes the scores; given the run and a call for (done, in all).
        progress: called with (command, done, in all).
        kind: the type of the result.
        complete: the result with what it tells beside, from the scores.
        seed: noted in the provenance.
        divided: the settings of a study whose units workers may compute.
    """

    read = {name: decode(DataRead, plain(each)) for name, each in data.items()}

    def compute(run: Run) -> AnyResult:
        scores = score(run, steps_of(progress, command))
        save_scores(run.path, scores)
        if isinstance(scores, HeadScores):
            result = replace(describe(kind, scores), data=read)
        else:
            parts = {name: describe(ScoredHeads, part) for name, part in scores.items()}
            result = replace(describe(kind, HeadScores.mean(scores)), parts=parts, data=read)
        return complete(result, scores)

    digests = {name: str(read["digest"]) for name, read in data.items()}
    config = {"settings": settings}
    return run_with_model(
        lm, command, out, config, digests, compute, kind=kind, config=divided, seed=seed
    )


#: Score − chance above which a head is said to look at a token, as in the literature on retrieval.
CLEAR = 0.1
#: What a score of where a head looks does not say.
LOOKING = (
    "Intervals are per head and not corrected for the number of heads; looking at a token does not "
    "prove that the model uses it (verify heads removes each head)."
)
#: What they are called.
CANDIDATES = (
    "A head is said to look there where its interval lies above chance and its score \u2212 "
    f"chance above {CLEAR}, over at least {FEW} examples; where only the interval does, it is a "
    "candidate."
)


def looking(name: str, heads: Sequence[ScoredHead], examples: int) -> tuple[list[str], HeadSets]:
    """How many heads are called `name`, the strongest, and the sets: heads that are clearly above
    chance over enough examples, and candidates, of which only the interval is."""
    above = significant(heads)
    clear = [head for head in above if by_rank(head) > CLEAR and examples >= FEW]
    known = {f"{name} head": clear, "candidate": [head for head in above if head not in clear]}
    words = [count(len(own), word) for word, own in known.items() if own]
    answer = (
        f"{enumeration(words) or 'No head is shown to be'} above chance among {len(heads)} heads."
    )
    sets = head_sets("Heads above chance, best first", {f"{w}s": own for w, own in known.items()})
    return [answer, strongest(heads)], sets if above else top_heads(heads)


def parts_of(scores: Mapping[str, HeadScores]) -> Scored:
    """Scores by part, or those of the only one."""
    return dict(scores) if len(scores) > 1 else next(iter(scores.values()))


def describe(kind: type[AnyHeads], scores: HeadScores, **more: Any) -> AnyHeads:
    """What a result says of one set of scores; `more` are its other fields."""
    kept = ("examples", "left_out", "tokens")
    return kind(
        scored=ScoredHead.all_of(scores),
        # The classes of a profile are those of translation scores, and say nothing here.
        layer_profile=tuple(
            LayerScores(row.layer, row.heads, row.mean, row.highest)
            for row in scores.layer_profile()
        ),
        **{name: scores.config[name] for name in kept if name in scores.config},
        **more,
    )


#: Scores the heads of a model on documents of one language, keeping batches in a run.
Score = Callable[["LanguageModel", DocumentFile, Run, Steps | None], HeadScores]
AnyHeadsResult = TypeVar("AnyHeadsResult", bound=HeadsResult)


def score_languages(
    command: str,
    config: Divided,
    documents: DocumentsChoice,
    seed: int,
    score: Score,
    kind: type[AnyHeadsResult],
    describe: Callable[[Run, Mapping[str, HeadScores]], AnyHeadsResult],
    check: Callable[[int], None] | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> AnyHeadsResult:
    """Score every language and return the command's result; what is done already is kept.

    `config` is the command's whole configuration, for the signature; `describe` makes the result,
    of type `kind`, but for what was counted in all; `check` is told the number of languages before
    a model is loaded. The run gets the scores of each language and their mean, and the digests of
    the documents.
    """
    began = time.monotonic()
    languages = read_languages(documents, config.model.model, "dev", seed)
    if check:
        check(len(languages))
    lm = config.model.load_for(config.execution)
    digests = {code: file.digest for code, file in languages.items()}

    def compute(run: Run) -> AnyHeadsResult:
        def scored(code: str) -> HeadScores:
            return score(lm, languages[code], run, steps_of(progress, code))

        report = further(progress, "documents", 0, sum(map(_size, languages.values())))
        scores = dict(zip(languages, run.each(languages, scored, report), strict=True))
        run.write_json(
            FOUND_ON,
            {
                code: {
                    "documents": sorted(
                        {sentence_digest(document.text) for document in file.documents}
                    )
                }
                for code, file in languages.items()
            },
        )
        save_scores(run.path, parts_of(scores))
        configs = [part.config for part in scores.values()]
        return replace(
            describe(run, scores),
            examples=sum(counted["examples"] for counted in configs),
            tokens=sum(counted["tokens"] for counted in configs),
        )

    settings = {"settings": config}
    return run_with_model(
        lm, command, out, settings, digests, compute, began, kind=kind, config=config, seed=seed
    )


def _size(file: DocumentFile) -> int:
    return len(file.documents)


def describe_language(scores: HeadScores, choice: DocumentsChoice) -> LanguageScores:
    """One language: heads, and what was counted; `choice` says what was asked for."""
    documents = scores.config["examples"] + scores.config["left_out"]
    insisted = choice.limit is not None or not choice.data
    return LanguageScores(
        scored=ScoredHead.all_of(scores),
        documents=scores.config["examples"],
        left_out=scores.config["left_out"],
        fewer_than_usual=not insisted and documents < DEFAULT_LIMIT,
        tokens=scores.config["tokens"],
        loss=scores.config["loss"],
    )


def document_cautions(languages: Mapping[str, LanguageScores]) -> list[str]:
    """What it means that there were few documents, or some of a single token."""
    fewer = [code for code, language in languages.items() if language.fewer_than_usual]
    left = sum(language.left_out for language in languages.values())
    cautions = []
    if fewer:
        cautions.append(f"Fewer documents than the usual 1,000: {enumeration(fewer)}.")
    if left:
        cautions.append(f"{count(left, 'document')} of a single token left out.")
    return cautions


def document_remedy(languages: Mapping[str, LanguageScores], run: Path) -> str:
    """The option for as many documents as usual, where a limit kept them out."""
    fewest = min(language.documents for language in languages.values())
    return more_examples(fewest, run, 1000)


def languages_table(
    title: str,
    mean: Sequence[ScoredHead],
    languages: Mapping[str, LanguageScores],
    columns: Sequence[Column],
    score: Column = SCORE,
) -> HeadTable:
    """Every head in each language, and the mean of several."""
    parts = {code: language.scored for code, language in languages.items()}
    if len(parts) > 1:
        parts = {MEAN: tuple(mean), **parts}
    return head_table(title, parts, columns, score)
