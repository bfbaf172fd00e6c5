"""The runs of the paper's experiments: studies with its settings, and their work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from headscope.data.files import packaged_rows
from headscope.data.questions import QuestionTemplate
from headscope.find.lahis_scores import Lahis
from headscope.find.soft_gate_training import SoftGate
from headscope.heads.geometry import keys_of
from headscope.papers.lahis.scale import (
    HEADS,
    MOVING,
    astray,
    codes,
    directions_given,
    documents,
    general_in,
    languages,
    question_parts,
    scale,
    statements,
    step_name,
    written_share,
)
from headscope.papers.paper import Setting, Step
from headscope.papers.study_steps import study_step
from headscope.papers.work import read, written
from headscope.results.lahis import LahisResult
from headscope.studies.compare.overlap import CompareImportance, compare_importance
from headscope.studies.costs.estimate import Work
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.soft_gate import FindSoftGate
from headscope.studies.pairs import PairsChoice
from headscope.studies.questions import QuestionsChoice
from headscope.studies.use.steering import Steer, astray_files
from headscope.studies.verify.layers import VerifyLayers
from headscope.studies.verify.off_target import Ask, VerifyOffTarget
from headscope.studies.verify.perplexity import VerifyPerplexity
from headscope.studies.verify.summaries import VerifySummaries
from headscope.studies.verify.transfer import VerifyTransfer
from headscope.verify.language_texts.conditions import OWN, default_count

LOSSES, LOSSES_MOVING = "perplexity", "perplexity-moving"
#: Padded tokens of a batch with gradients, and of losses on a small model, where more is slower.
BATCH = 2048
#: Pairs of questions and answers that gates are trained on and stopped on, and epochs (METHODS).
PAIRS, STOP, EPOCHS = 200, 100, 2
#: The bundled model answers what it was trained on as well as it can; in an order of question and
#: context that it never saw there is something to be gained.
PROMPT = "Question: {question}\n{context}\nAnswer:"
#: The prompts of the published code, by language.
PUBLISHED = dict(packaged_rows("headscope.papers", "data/lahis-questions.tsv"))

AnySettings = TypeVar("AnySettings")


# Importance, and text without heads


def heads(setting: Setting, moving: bool = False) -> Step:
    """Importance of every head for every language, specific and general heads.

    `moving`: the gate takes a step after every document, as in the published code, so that
    documents go alone.
    """
    counts, batch = scale(setting), _gradient_batch(setting)
    documents_read = languages(setting) * counts.found
    work = read(documents_read, counts.document, batch, 1 if moving else counts.found, True)
    title = "importance of every head for each language"
    if moving:
        title = "importance with the gate that the published code moves"

    def settings(setting: Setting) -> FindLahis:
        return FindLahis(
            model=setting.model,
            documents=documents(setting, "found"),
            score=Lahis(moving, seed=setting.seed, batch_tokens=batch),
            general_in=general_in(setting),
        )

    return study_step(find_lahis, settings, MOVING if moving else HEADS, title, work)


def read_text(setting: Setting, moving: bool = False) -> VerifyPerplexity:
    """Each language's documents to test on, without each language's heads.

    `moving`: the specific heads by the moving gate alone, with fewer draws.
    """
    counts, amount = scale(setting), setting.steering.k
    given: tuple[str, ...] = (str(setting.at(HEADS)),)
    if moving:
        k, scored = default_count(setting.geometry), setting.read(MOVING, LahisResult)
        given = tuple(
            f"{code}={','.join(keys_of(own))}"
            for code, language in (scored.languages if scored else {}).items()
            if (own := language.specific_heads[:k])
        )
    return VerifyPerplexity(
        heads=given,
        k=() if amount is None or moving else (amount,),
        model=setting.model,
        documents=documents(setting, "tested"),
        draws=counts.layer_draws if moving else counts.draws,
        seed=setting.seed,
        batch_tokens=_loss_batch(setting),
        rank="score",
    )


def perplexity(setting: Setting) -> Step:
    """Every language's text without every language's heads."""
    draws, n = scale(setting).draws, languages(setting)
    # As is, the specific and the most important heads on every text, free draws on every text (the
    # same for all sets of a size), draws of the same layers of either kind on their own text.
    texts = n + 2 * n * n + draws * n + 2 * draws * n
    title = "text of each language without the heads of each"
    return _step(setting, "verify perplexity", read_text, LOSSES, title, _read(setting, texts))


def moving(setting: Setting) -> tuple[Step, ...]:
    """Scores by the moving gate, texts without its heads, and both gates compared."""
    n, draws = languages(setting), scale(setting).layer_draws
    names = tuple(step_name(setting, name) for name in (LOSSES, LOSSES_MOVING))

    def both(setting: Setting) -> CompareImportance:
        still, moved = map(setting.at, names)
        scored = (setting.at(HEADS), setting.at(MOVING))
        return CompareImportance(scored, (still, moved), setting.seed)

    text, work = partial(read_text, moving=True), _read(setting, n + n * n + 2 * draws * n)
    title = "text of each language without its heads by the moving gate"
    compared = "heads by the moving gate compared with those by the still one"
    after = (HEADS, MOVING, *names)
    return (
        heads(setting, moving=True),
        perplexity(setting),
        _step(setting, "verify perplexity", text, LOSSES_MOVING, title, work, (MOVING,)),
        _step(setting, compare_importance, both, "gates", compared, _read(setting, 1), after),
    )


def layers(setting: Setting) -> Step:
    """Every language's text without the heads of one layer at a time."""
    draws, counts = scale(setting).layer_draws, list(filter(None, setting.geometry.counts))

    def settings(setting: Setting) -> VerifyLayers:
        return VerifyLayers(
            heads=str(setting.at(HEADS)),
            model=setting.model,
            documents=documents(setting, "tested"),
            draws=draws,
            seed=setting.seed,
            batch_tokens=_loss_batch(setting),
        )

    work = _read(setting, languages(setting) * (1 + len(counts) + draws * len(set(counts))))
    title = "text of each language without whole layers"
    return _step(setting, "verify layers", settings, "layers", title, work)


def _step(
    setting: Setting,
    study: str | Callable[..., Any],
    settings: Callable[[Setting], Any],
    name: str,
    title: str,
    work: Work,
    after: tuple[str, ...] = (HEADS,),
    claims: bool = False,
) -> Step:
    """A step; `claims`: whose draws end where the paper's claims have failed."""
    at_most = claims and setting.ends_early
    return study_step(
        study, settings, step_name(setting, name), title, work, after, at_most=at_most
    )


def _read(setting: Setting, texts: int) -> Work:
    """The documents to test on, read so many times, each time those of a language."""
    counts = scale(setting)
    return read(texts * counts.tested, counts.document, _loss_batch(setting), counts.tested)


def _gradient_batch(setting: Setting) -> int:
    """Padded tokens of a batch with gradients."""
    return min(BATCH, setting.batch_tokens)


def _loss_batch(setting: Setting) -> int:
    """Padded tokens of a batch whose losses are read."""
    return _gradient_batch(setting) if setting.small else setting.batch_tokens


# What is written under changed heads


def summaries(setting: Setting) -> Step:
    """Summaries, of the bundled model repeated sentences, without general heads."""
    counts, data = scale(setting), setting.data.summaries
    # Only the bundled model is sure to have so many.
    texts = DocumentsChoice(data=data, limit=counts.summaries if setting.pocket else None)
    settings = partial(_changed, VerifySummaries, texts=texts, rank="score")
    groups = languages(setting) if setting.pocket else len(data)
    title = f"{'repeated sentences' if setting.pocket else 'summaries'} without general heads"
    work = _written(setting, groups * (2 + 2 * counts.writing_draws), counts.summaries)
    return _step(setting, "verify summaries", settings, "summaries", title, work, claims=True)


def off_target(setting: Setting, ask: Ask) -> Step:
    """The language of translations, or of continued documents, without the heads of it."""
    counts, given = scale(setting), directions_given(setting)
    groups, prompts = languages(setting), counts.beginnings
    title = "language of continued documents without its heads"
    if ask == "translate":
        groups, prompts = 20 if setting.pocket else len(given), counts.sentences
        title = "language of translations without the target language's heads"

    def settings(setting: Setting) -> VerifyOffTarget:
        own = partial(
            _changed, VerifyOffTarget, setting, ask=ask, rank="score", claims=setting.claims(OWN)
        )
        if ask == "translate":
            return own(pairs=PairsChoice(() if given else ("all",), given, limit=prompts))
        return own(documents=documents(setting, "tested", prompts))

    # Free draws are the same for specific and most important heads.
    work = _written(setting, groups * (3 + 3 * counts.writing_draws), prompts)
    return _step(
        setting, "verify off-target", settings, f"off-target-{ask}", title, work, claims=True
    )


def lead_back(setting: Setting) -> Steer:
    """Translations requested after a text in another language, with heads of either changed."""
    counts, (source, ways) = scale(setting), astray(setting)
    pairs = PairsChoice(
        ways if setting.pocket else (), () if setting.pocket else ways, limit=counts.steered
    )
    texts = documents(setting, "tested", counts.steered)
    place, model = setting.folder / "prompts", setting.model.model
    scored = setting.read(HEADS, LahisResult)
    files = {
        code: file
        for code, file in astray_files(place, pairs, texts, source, model, setting.seed).items()
        if scored is not None and scored.languages[code].specific
    }
    return _changed(
        partial(Steer, languages=tuple(files)),
        setting,
        factors=(3.0,),
        away=source,
        data=tuple(f"{code}={file}" for code, file in files.items()),
        draws=counts.steering_draws,
        max_new_tokens=2 * counts.output,
        one_line=True,
        rank="score",
    )


def mitigation(setting: Setting) -> Step:
    """Answers in the wrong language, with that language's heads or those asked for changed."""
    counts, (_, ways) = scale(setting), astray(setting)
    conditions = len(ways) * (1 + 2 * (1 + 2 * counts.steering_draws))
    work = _written(setting, conditions, counts.steered, passes=2)
    title = "answers led back to the language asked for"
    return _step(setting, "use adapt", lead_back, "mitigation", title, work, claims=True)


def transfer(setting: Setting) -> Step:
    """Contradicting statements with one language's heads turned up or the other's removed."""
    counts, n, given = scale(setting), languages(setting), setting.data.statements
    pairs = len(given) or n * (n - 1)
    conditions = pairs * (1 + 2 * (1 + 2 * counts.steering_draws))
    work = _written(setting, conditions, counts.statements, passes=2)

    def settings(setting: Setting) -> VerifyTransfer:
        return _changed(
            VerifyTransfer,
            setting,
            data=str(statements(setting)) if given else None,
            limit=counts.statements,
            draws=counts.steering_draws,
        )

    title = "answers to statements that contradict each other"
    return _step(setting, "verify transfer", settings, "transfer", title, work, claims=True)


def _changed(kind: Callable[..., AnySettings], setting: Setting, **own: Any) -> AnySettings:
    """Settings of a study whose model writes with the scored heads changed."""
    given = {
        "heads": str(setting.at(HEADS)),
        "k": written_share(setting),
        "model": setting.model,
        "draws": scale(setting).writing_draws,
        "claims": setting.claims(),
        "seed": setting.seed,
        "batch_tokens": setting.batch_tokens,
    }
    return kind(**(given | own))


def _written(setting: Setting, conditions: int, prompts: int, passes: int = 1) -> Work:
    """Under every condition prompts are read so many times, and answered once."""
    counts, rows = scale(setting), conditions * prompts
    return written(rows, counts.prompt, counts.output, setting.batch_tokens, prompts, passes=passes)


# Trained gates


def train_gates(code: str, setting: Setting) -> FindSoftGate:
    """Gates of the first heads, on the questions of a language.

    Of a language of the documents its own scores are taken, of another the mean of all.
    """
    counts, ranked = scale(setting), setting.at(HEADS)
    own = ranked / "scores" / code
    questions = QuestionsChoice(
        data=None if setting.pocket else _file(setting.data.questions, code),
        language=code,
        train=PAIRS,
        stop=STOP,
        test=counts.questions,
    )
    theirs = PUBLISHED.get(code) if setting.as_published else None
    return FindSoftGate(
        heads=str(own if own.is_dir() else ranked),
        k=None,
        model=setting.model,
        questions=questions,
        template=QuestionTemplate(PROMPT if setting.pocket else theirs),
        training=SoftGate(epochs=EPOCHS, batch_tokens=setting.batch_tokens),
        seeds=counts.seeds,
        seed=setting.seed,
        rank="score",
    )


def gates(setting: Setting) -> tuple[Step, ...]:
    """Trained gates of the first heads, language by language.

    Three kinds of heads are trained a seed; pairs held out are looked at every 25 steps; then all
    questions are answered.
    """
    counts = scale(setting)
    trainings, steps = 3 * counts.seeds, EPOCHS * PAIRS
    looks = 1 + steps // SoftGate().check_every
    work = read(trainings * steps, counts.prompt, setting.batch_tokens, 1, gradients=True)
    work += read(trainings * looks * STOP, counts.prompt, setting.batch_tokens, STOP)
    # As is, the heads removed, random ones of every seed removed, and every trained gate.
    conditions = 2 + counts.seeds + trainings
    work += _written(setting, conditions, counts.questions, passes=2)
    title = "gates of a few heads trained on questions"

    def step(code: str) -> Step:
        settings, name = partial(train_gates, code), f"soft-gate-{code}"
        return _step(setting, "find soft-gate", settings, name, f"{title} in {code}", work)

    return tuple(map(step, question_parts(setting)))


def _file(given: tuple[str, ...], name: str) -> str:
    place = dict(zip(codes(given), given, strict=True))[name]
    return place.partition("=")[2] or place
