"""Rating the documents of a corpus by what some heads are worth on them, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError, OptionalPart
from headscope.estimates import Estimate
from headscope.executors import Execution, Launched
from headscope.heads import Amount, about_rank, resolve_heads
from headscope.heads.geometry import keys_of
from headscope.progress import Progress, steps_of
from headscope.results.common import ModelFacts, Ranking
from headscope.results.rate import (
    RatedCorpus,
    RatedFigures,
    RatedLanguage,
    RatingJob,
    RatingResult,
    RatingSummary,
)
from headscope.runs import Run, carry_out, decode, encode
from headscope.runs.reading import naming, read_object
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import (
    Cell,
    HeadSets,
    Histogram,
    Histograms,
    Section,
    Shown,
    Table,
    Text,
    method_section,
    one_column,
    table_of,
)
from headscope.shown.words import confidence, count, enumeration, fixed, number, percent
from headscope.studies.models import (
    ModelChoice,
    about_loaded,
    about_model,
    dtype_name,
    model_inputs,
)
from headscope.studies.shows import ablation_facts, model_facts, named_places
from headscope.studies.study import Study
from headscope.studies.verify.reference import Reference, documents
from headscope.use.corpus.files import find_files
from headscope.use.corpus.plan import Plan, add_up, holding
from headscope.use.corpus.rate_left import rate_left
from headscope.use.corpus.reading import remember, remembered, survey
from headscope.use.corpus.records import Columns, Written
from headscope.use.rating import Rating

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "use rate"
SUMMARY = "summary.json"
SURVEY = "parts/survey.json"
#: Decimals of scores; fewer documents of a language than the second are few.
DIGITS, FEW = 4, 30
#: Languages whose documents a page shows, how many stand open, and characters of each.
WITH_TEXTS, OPEN, EXCERPT = 40, 8, 400


@dataclass(frozen=True)
class UseRate(Settings):
    """Rate every document of a corpus by how much worse the model predicts it without some heads.

    Documents that hold their own translation lose most without translation heads. Records keep all
    their fields and get nll_full, nll_removed, score and tokens; what cannot be rated goes to
    rejects.jsonl with the reason. The same command resumes a stopped run.
    """

    # Of data, heads and reference what they hold counts in the signature, not their places.
    data: Annotated[
        tuple[str, ...],
        Option(
            "JSON Lines, Parquet, CSV, … (compressed or not): a file, a folder, a pattern, an "
            "address such as s3://…, hf://… or https://…, or the name of a Hub dataset; "
            "repeatable. LANG is the language of records that do not say theirs.",
            metavar="[LANG=]DATA",
            held="documents",
            panel="Data",
        ),
    ] = field(metadata=UNSIGNED)
    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        Amount | None,
        Option(
            "Number of heads removed, or a share such as 0.15 or 15%. Without it a set is used "
            "whole, and of scores 20 heads, or 15% in a model of fewer than 256.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=None, metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    columns: Columns = field(default_factory=Columns)
    split: Annotated[str | None, Option("Split of a dataset.", panel="Data")] = None
    limit: Annotated[
        int | None,
        Option("Rate the first so many records of each file; without it all.", min=1, panel="Data"),
    ] = None
    rating: Rating = field(default_factory=Rating)
    written: Written = field(default_factory=Written)
    # The same files come out wherever it runs.
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)
    threads: Annotated[
        int | None,
        Option(
            "Threads of each worker; without it the cores are shared evenly.", min=1, panel="Expert"
        ),
    ] = field(default=None, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    ablate: options.Ablate = "zero"
    reference: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """The engine for corpora, too."""
        yield from super().parts()
        yield OptionalPart("rating a corpus", "corpus", ("datatrove",))


def use_rate(
    config: UseRate, out: Path | None = None, progress: Progress | None = None
) -> RatingResult:
    """Rate what is not rated yet and return the command's result.

    The run holds `documents/`, `rejects.jsonl` and, when all is done, `summary.json`. Where the
    work was handed to a cluster the result says so (`job`), and the same call later adds up.
    """
    began = time.monotonic()
    config.execution.check()
    reference = Reference()
    if config.ablate != "zero":
        reference = documents(config.reference, config.model.model, config.heads)
    files = survey(
        find_files(config.data, config.split),
        config.columns,
        config.limit,
        config.written.format == "parquet",
        steps_of(progress, "reading the corpus once"),
        None if out is None else remembered(Path(out) / SURVEY),
    )
    config.model.whole_for("use rate")
    lm = config.model.load_for()
    heads = resolve_heads(config.heads, config.k, lm.geometry, by=config.rank, model=lm.name)
    if not len(heads):
        raise InputError(f"{config.heads} holds no heads, so there is nothing to remove")
    ranking = decode(Ranking, about_rank(heads))
    settings = {
        "settings": config,
        "heads": sorted(keys_of(heads)),
        "rank": ranking.rank,
        "languages": {file.name: file.language for file in files},
        "computed_in": dtype_name(lm),
        **reference.given,
    }
    digests = {f"data/{file.name}": f"{file.digest} {file.records}" for file in files}
    inputs = {**model_inputs(lm), **digests}

    def compute(run: Run) -> RatingResult:
        nonlocal lm
        run.write_json(SURVEY, remember(files))
        facts = decode(ModelFacts, about_model(lm))
        plan = Plan(
            run.path.resolve(),
            files,
            config.columns,
            config.model,
            heads.removed(),
            config.rating,
            config.written,
            config.threads,
            reference.replacement(lm, config.ablate, config.rating.batch_tokens),
        )
        here = config.execution.executor == "local" and config.execution.workers == 1
        own = lm if here else None
        del lm  # other processes load it themselves; on a GPU it would lie beside theirs
        launched = _rate(config, plan, own, run, progress)
        result = RatingResult(
            model=facts,
            heads=keys_of(heads),
            ranked=ranking,
            ablate=config.ablate,
            reference_text=reference.facts,
            workers=config.execution.workers,
            executor=config.execution.executor,
        )
        if launched is not None:
            return RatingJob(
                **{**vars(result), "pending": True},
                job=launched.job,
                submitted=launched.new,
                logs=str(launched.logs),
                chunks=len(plan.chunks()),
                chunks_done=len(plan.done()),
            )
        totals = add_up(plan, run.path / "rejects.jsonl", steps_of(progress, "adding up"))
        summary = RatingSummary(
            figures=totals.figures,
            scoring_seconds=totals.seconds,
            heads=result.heads,
            ranked=ranking,
            format=config.written.format,
            languages=totals.languages(),
        )
        run.write_json(SUMMARY, encode(summary))
        return RatedCorpus(
            **vars(result),
            figures=summary.figures,
            languages={code: language.scores for code, language in summary.languages.items()},
            files={
                file.name: {"path": file.path, "records": file.records, "digest": file.digest}
                for file in files
            },
        )

    def about() -> dict[str, Any]:
        return about_loaded(lm)

    stored: type[RatingResult] = RatedCorpus
    return carry_out(COMMAND, out, settings, inputs, compute, began, about, kind=stored)


def _rate(
    config: UseRate, plan: Plan, lm: LanguageModel | None, run: Run, progress: Progress | None
) -> Launched | None:
    """Do what is left: with `lm` in this process, without it in others, which load their own."""
    logs = plan.folder / "logs" / run.hash
    watch = None if progress is None else _Watch(progress)
    # A device that was named is meant for every worker; otherwise each gets a GPU of its own.
    free = config.model.device in (None, "cuda") and config.model.device_map is None
    execution = replace(config.execution, share_gpus=free)
    with nullcontext() if lm is None else holding(config.model, lm):
        return rate_left(plan, execution, logs, watch)


class _Watch:
    """Two lines of progress: documents, and tokens, whose number in all is reckoned."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._first: tuple[int, int] | None = None

    def __call__(self, documents: int, total: int, tokens: int) -> None:
        self._progress("documents", documents, total)
        if documents and tokens:
            self._progress("tokens", tokens, max(tokens, round(tokens / documents * total)))


def _show(result: RatingResult, run: Path) -> Shown:
    facts = [
        *model_facts(result.model_name, result.model.heads if result.model else None),
        ("heads removed", str(len(result.heads))),
        *ablation_facts(result),
    ]
    title = "A rated corpus"
    lead = "Which documents does the model predict worse without these heads?"
    if isinstance(result, RatingJob):
        state = "was submitted" if result.submitted else "is still at work"
        done = f"{result.chunks_done} of {count(result.chunks, 'chunk')} done; logs: {result.logs}"
        again = "Run the same command again when the job has ended."
        return Shown(title, lead, [f"Job {result.job} {state}: {done}", again], facts=facts)
    assert isinstance(result, RatedCorpus)
    with naming(run / SUMMARY, "a rated corpus"):
        summary: RatingSummary = decode(RatingSummary, read_object(run / SUMMARY), "summary")
    rated = sorted(summary.languages.items(), key=lambda item: (-item[1].scores.documents, item[0]))
    languages = {_named(code): language for code, language in rated}
    few = [code for code, each in languages.items() if each.scores.documents < FEW]
    cautions = [
        "No control: removing any heads raises some losses. Rate a sample with as many random "
        "heads (--heads) and compare the rankings."
    ]
    if len(languages) > 1:
        cautions.append("Compare scores within a language only: languages differ anyway.")
    cautions += empty_files((file["path"], file["records"]) for file in result.files.values())
    if few:
        cautions.append(f"Fewer than {FEW} documents: {enumeration(few)}.")
    figures, spread = result.figures, _spread(languages)
    facts += [
        ("documents", number(figures.documents)),
        ("tokens", number(figures.tokens)),
        ("records rejected", number(figures.rejected)),
    ]
    if figures.tokens_per_second is not None:
        facts.append(("", f"{number(figures.tokens_per_second)} tokens a second"))
    if result.workers is not None:
        facts.append(("workers", f"{result.workers} ({result.executor})"))
    return Shown(
        title,
        lead,
        _finding(languages),
        "Intervals are over documents.",
        cautions=cautions,
        facts=facts,
        sections=[
            Section("Heads removed", [HeadSets("Heads", {"removed": named_places(result.heads)})]),
            *([Section("Scores by language", [_scores(languages)], brief=True)] if spread else []),
            *_highest(languages),
            *_rejects(result.figures, summary.figures.reasons),
            method_section(
                "A document\u2019s score is the change of its loss without the heads, the mean "
                "over its predicted tokens. A high score does not mean that a document is good, "
                "true or well written: lists, tables and boilerplate may need the heads too. Nor "
                "does it say what the heads do; headscope verify removal tests that. The score of "
                "a short document is a mean over few tokens, so the highest scores hold more short "
                "documents than the corpus."
            ),
        ],
        figure=spread,
    )


def empty_files(records: Iterable[tuple[object, object]]) -> list[str]:
    """What there is to say of the files of a corpus that hold nothing, from how many they hold."""
    files = [*records]
    if not (empty := [str(path) for path, number in files if not number]):
        return []
    shown = f"{', '.join(empty[:5])}{', …' if len(empty) > 5 else '.'}"
    return [f"No records in {len(empty)} of {count(len(files), 'file')}: {shown}"]


def _named(code: str) -> str:
    return code or "no language given"


def _finding(languages: Mapping[str, RatedLanguage]) -> list[str]:
    if not languages:
        return ["No document was rated."]
    means = {code: _mean(language) for code, language in languages.items()}
    worse = sum(mean.bounded and mean.low > 0 for mean in means.values())
    better = sum(mean.bounded and mean.high < 0 for mean in means.values())
    lead = "Without the removed heads, documents are"
    if len(means) > 1:
        also = f", better in {better}" if better else ""
        answer = f"{lead} predicted worse in {worse or 'none'} of {len(means)} languages{also}."
    elif worse or better:
        answer = f"{lead} predicted {'worse' if worse else 'better'} on average."
    else:
        answer = f"{lead} not shown to be predicted worse on average."
    low, high = (pick(means, key=lambda code: means[code].value) for pick in (min, max))
    values = [fixed(means[code].value, DIGITS) for code in (low, high)]
    if values[0] != values[1]:
        change = f"{values[0]} ({low}) to {values[1]} ({high}) nats a token"
    else:
        change = f"{values[0]} nats a token"
        if len(means) == 1 and means[low].bounded:
            change += f" ({confidence(means[low].low, means[low].high, DIGITS)})"
    return [answer, f"Their mean loss changes by {change}."]


def _mean(language: RatedLanguage) -> Estimate:
    """The mean score with its interval, which a single document has not."""
    scores = language.scores
    if scores.documents < 2 or scores.low is None or scores.high is None:
        return Estimate(scores.mean)
    return Estimate(scores.mean, scores.low, scores.high)


def _scores(languages: Mapping[str, RatedLanguage]) -> Table:
    return table_of(
        "Scores by language, nats a token",
        languages.items(),
        {
            "documents": lambda language: language.scores.documents,
            "tokens": lambda language: language.scores.tokens,
            "mean score": lambda language: Cell.of(_mean(language), DIGITS),
            "highest score": lambda language: Cell(
                language.top[0].score if language.top else None, digits=DIGITS
            ),
        },
    )


def _spread(languages: Mapping[str, RatedLanguage]) -> Histograms | None:
    panels = (
        Histogram(
            code,
            each.histogram.edges,
            each.histogram.counts,
            f"{count(each.scores.documents, 'document')}, mean {fixed(each.scores.mean, DIGITS)}",
            0.0,
        )
        for code, each in languages.items()
        if sum(each.histogram.counts)
    )
    note = "To the right of the upright line the model predicts documents worse without the heads"
    return histograms("Scores of all documents", panels, note)


def histograms(title: str, panels: Iterable[Histogram], note: str) -> Histograms | None:
    """The scores of documents, a panel a language; None without panels."""
    shown = Histograms(title, tuple(panels), "score, nats a token", note=note)
    return shown if shown.panels else None


def _highest(languages: Mapping[str, RatedLanguage]) -> list[Section]:
    texts = {
        code: [(f"{fixed(top.score, DIGITS)} \u00b7 {top.id}", cut(top.text)) for top in each.top]
        for code, each in languages.items()
    }
    lead = (
        f"The highest scores of each language, at most 20, with the first {EXCERPT} characters of "
        "the text. They are extremes, not typical documents."
    )
    return texts_section("Highest scores", texts, WITH_TEXTS, lead)


def texts_section(
    heading: str, texts: Mapping[str, Sequence[tuple[str, str]]], most: int, lead: str
) -> list[Section]:
    """Named texts of at most so many languages; nothing without texts."""
    held = {code: tuple(several) for code, several in texts.items() if several}
    blocks = [
        Text(code, several, folded=at >= OPEN)
        for at, (code, several) in enumerate(list(held.items())[:most])
    ]
    if left := len(held) - len(blocks):
        lead += f" {count(left, 'more language')}: see summary.json of the run."
    return [Section(heading, blocks, lead)] if blocks else []


def cut(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}\u2026"


def _rejects(figures: RatedFigures, reasons: Mapping[str, int]) -> list[Section]:
    if not figures.rejected:
        return []
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    share = figures.rejected / (figures.rejected + figures.documents)
    note = (
        f"{percent(share, 1)} of all records; each is in rejects.jsonl with its file, line and "
        "reason"
    )
    table = one_column("Reasons", "records", ordered, note)
    return [Section("Rejected records", [table], brief=True)]


command = Study(
    UseRate,
    use_rate,
    result=RatedCorpus,
    show=_show,
    usage="--data corpus.jsonl --heads runs/found --out rated",
)
