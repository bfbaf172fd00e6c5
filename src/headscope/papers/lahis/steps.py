"""The runs of the paper's experiments: studies with its settings, and their work."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from headscope.data.questions import QuestionTemplate
from headscope.find.importance import Lahis
from headscope.find.trained_gates import SoftGate
from headscope.papers.lahis.scale import (
    HEADS,
    MOVING,
    astray,
    codes,
    directions_given,
    documents,
    general_in,
    languages,
    scale,
    step_name,
    written_share,
)
from headscope.papers.paper import Setting, Step
from headscope.papers.study_steps import study_step
from headscope.results.lahis import LahisResult
from headscope.studies.compare.overlap import CompareImportance, compare_importance
from headscope.studies.costs.estimate import Work
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate
from headscope.studies.pairs import PairsChoice
from headscope.studies.questions import QuestionsChoice
from headscope.studies.use.steering import Steer, astray_files, steer
from headscope.studies.verify.layers import VerifyLayers, verify_layers
from headscope.studies.verify.off_target import VerifyOffTarget, verify_off_target
from headscope.studies.verify.perplexity import VerifyPerplexity, verify_perplexity
from headscope.studies.verify.summaries import VerifySummaries, verify_summaries
from headscope.studies.verify.transfer import VerifyTransfer, verify_transfer
from headscope.verify.languages.conditions import LanguageRemoval, LayerRemoval, default_count

LOSSES, LOSSES_MOVING = "perplexity", "perplexity-moving"
#: Padded tokens of a batch with gradients, and of losses on a small model, where more is slower.
BATCH = 2048
#: Pairs of questions and answers that gates are trained on and stopped on, and epochs (METHODS).
PAIRS, STOP, EPOCHS = 200, 100, 2
#: The bundled model answers what it was trained on as well as it can; in an order of question and
#: context that it never saw there is something to be gained.
PROMPT = "Question: {question}\n{context}\nAnswer:"

AnySettings = TypeVar("AnySettings")
AnyRemoval = TypeVar("AnyRemoval", bound=LanguageRemoval)


# Importance, and text without heads


def heads(setting: Setting, moving: bool = False) -> Step:
    """Importance of every head for every language, specific and general heads.

    `moving`: the gate takes a step after every document, as in the published code, so that
    documents go alone.
    """
    counts, n = scale(setting), languages(setting)
    together = 1 if moving else max(1, _gradient_batch(setting) // counts.document)
    work = Work(
        backward=n * counts.found * counts.document,
        length=counts.document,
        rows=min(counts.found, together),
        calls=n * math.ceil(counts.found / together),
    )
    title = (
        "importance with the gate that the published code moves"
        if moving
        else "importance of every head for each language"
    )

    def settings(setting: Setting) -> FindLahis:
        batch = _gradient_batch(setting)
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
            f"{code}={','.join(map(str, own))}"
            for code, language in (scored.languages if scored else {}).items()
            if (own := language.specific_heads[:k])
        )
    return VerifyPerplexity(
        given,
        () if amount is None or moving else (amount,),
        model=setting.model,
        documents=documents(setting, "tested"),
        removal=_removal(setting, counts.layer_draws if moving else counts.draws, LanguageRemoval),
        rank="score",
    )


def perplexity(setting: Setting) -> Step:
    """Every language's text without every language's heads."""
    draws, n = scale(setting).draws, languages(setting)
    # As is, the specific and the most important heads on every text, free draws on every text (the
    # same for all sets of a size), draws of the same layers of either kind on their own text.
    texts = n + 2 * n * n + draws * n + 2 * draws * n
    title = "text of each language without the heads of each"
    return _reading(setting, verify_perplexity, read_text, LOSSES, title, texts)


def moving(setting: Setting) -> tuple[Step, ...]:
    """Scores by the moving gate, texts without its heads, and both gates compared."""
    n, draws = languages(setting), scale(setting).layer_draws
    names = tuple(step_name(setting, name) for name in (LOSSES, LOSSES_MOVING))

    def both(setting: Setting) -> CompareImportance:
        still, moved = map(setting.at, names)
        scored = (setting.at(HEADS), setting.at(MOVING))
        return CompareImportance(scored, (still, moved), setting.seed)

    texts, title = (
        n + n * n + 2 * draws * n,
        "text of each language without its heads by the moving gate",
    )
    read = partial(read_text, moving=True)
    compared = "heads by the moving gate compared with those by the still one"
    after = (HEADS, MOVING, *names)
    return (
        heads(setting, moving=True),
        perplexity(setting),
        _reading(setting, verify_perplexity, read, LOSSES_MOVING, title, texts, (MOVING,)),
        _reading(setting, compare_importance, both, "gates", compared, 1, after),
    )


def layers(setting: Setting) -> Step:
    """Every language's text without the heads of one layer at a time."""
    draws, counts = scale(setting).layer_draws, list(filter(None, setting.geometry.counts))
    texts = languages(setting) * (1 + len(counts) + draws * len(set(counts)))

    def settings(setting: Setting) -> VerifyLayers:
        return VerifyLayers(
            str(setting.at(HEADS)),
            model=setting.model,
            documents=documents(setting, "tested"),
            removal=_removal(setting, draws, LayerRemoval),
        )

    title = "text of each language without whole layers"
    return _reading(setting, verify_layers, settings, "layers", title, texts)


def _reading(
    setting: Setting,
    study: Callable[..., Any],
    settings: Callable[[Setting], Any],
    name: str,
    title: str,
    texts: int,
    after: tuple[str, ...] = (HEADS,),
) -> Step:
    """A step that reads the documents to test on so many times, each time those of a language."""
    counts = scale(setting)
    rows = texts * counts.tested
    together = max(1, min(counts.tested, _loss_batch(setting) // counts.document))
    work = Work(
        forward=rows * counts.document,
        length=counts.document,
        rows=together,
        calls=math.ceil(rows / together),
    )
    return study_step(study, settings, step_name(setting, name), title, work, after)


def _removal(setting: Setting, draws: int, kind: type[AnyRemoval]) -> AnyRemoval:
    return kind(
        draws=draws,
        seed=setting.seed,
        batch_tokens=_loss_batch(setting),
    )


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
    conditions = groups * (2 + 2 * counts.writing_draws)
    return _writing(
        setting, verify_summaries, settings, "summaries", title, conditions, counts.summaries
    )


def translating(setting: Setting) -> Step:
    """The language of translations without the heads of the target language."""
    limit, given = scale(setting).sentences, directions_given(setting)
    pairs = PairsChoice(() if given else ("all",), given, limit=limit)
    title = "language of translations without the target language's heads"
    texts = 20 if setting.pocket else len(given)
    return _off_target(setting, "translate", lambda _: {"pairs": pairs}, title, texts, limit)


def continuing(setting: Setting) -> Step:
    """The language of continued documents without the heads of it."""
    limit, n = scale(setting).beginnings, languages(setting)
    title = "language of continued documents without its heads"

    def data(setting: Setting) -> dict[str, Any]:
        return {"documents": documents(setting, "tested", limit)}

    return _off_target(setting, "continue", data, title, n, limit)


def _off_target(
    setting: Setting,
    ask: str,
    data: Callable[[Setting], dict[str, Any]],
    title: str,
    groups: int,
    prompts: int,
) -> Step:
    def settings(setting: Setting) -> VerifyOffTarget:
        return _changed(VerifyOffTarget, setting, ask=ask, rank="score", **data(setting))

    # Free draws are the same for specific and most important heads.
    conditions, name = groups * (3 + 3 * scale(setting).writing_draws), f"off-target-{ask}"
    return _writing(setting, verify_off_target, settings, name, title, conditions, prompts)


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
        partial(Steer, tuple(files)),
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
    title = "answers led back to the language asked for"
    return _writing(
        setting, steer, lead_back, "mitigation", title, conditions, counts.steered, passes=2
    )


def transfers(setting: Setting) -> tuple[Step, ...]:
    """Contradicting statements with one language's heads turned up or the other's removed.

    One run for the statements that there are, or one for each file of one's own.
    """
    counts, n = scale(setting), languages(setting)

    def step(pair: str, pairs: int) -> Step:
        data = _file(setting.data.statements, pair) if pair else None
        settings = partial(_changed, VerifyTransfer, data=data, limit=counts.statements)
        title = "answers to statements that contradict each other" + (f", {pair}" if pair else "")
        name = f"transfer-{pair}" if pair else "transfer"
        conditions = pairs * (1 + 2 * (1 + 2 * counts.writing_draws))
        return _writing(
            setting, verify_transfer, settings, name, title, conditions, counts.statements, passes=2
        )

    if setting.pocket or not setting.data.statements:
        return (step("", n * (n - 1)),)
    return tuple(step(pair, 1) for pair in codes(setting.data.statements))


def _changed(kind: Callable[..., AnySettings], setting: Setting, **own: Any) -> AnySettings:
    """Settings of a study whose model writes with the scored heads changed."""
    given = {
        "heads": str(setting.at(HEADS)),
        "k": written_share(setting),
        "model": setting.model,
        "draws": scale(setting).writing_draws,
        "seed": setting.seed,
        "batch_tokens": setting.batch_tokens,
    }
    return kind(**(given | own))


def _writing(
    setting: Setting,
    study: Callable[..., Any],
    settings: Callable[[Setting], Any],
    name: str,
    title: str,
    conditions: int,
    prompts: int,
    passes: int = 1,
) -> Step:
    work = _written(setting, conditions, prompts, passes)
    return study_step(study, settings, step_name(setting, name), title, work, (HEADS,))


def _written(setting: Setting, conditions: int, prompts: int, passes: int) -> Work:
    """Under every condition prompts are read so many times, and answered once."""
    counts = scale(setting)
    together = max(1, min(prompts, setting.batch_tokens // (counts.prompt + counts.output)))
    return Work(
        forward=conditions * prompts * passes * counts.prompt,
        generated=conditions * prompts * counts.output,
        length=counts.prompt + counts.output / 2,
        rows=together,
        calls=conditions * math.ceil(prompts / together) * (passes + counts.output),
    )


# Trained gates


def train_gates(code: str, setting: Setting) -> FindSoftGate:
    """Gates of the first heads, on the questions of the language `code` where it is given.

    Of a language of the documents its own scores are taken, of another the mean of all.
    """
    counts, ranked = scale(setting), setting.at(HEADS)
    own = ranked / "scores" / (code or "mean")
    questions = QuestionsChoice(
        data=_file(setting.data.questions, code) if code else None,
        language=code or None,
        train=PAIRS,
        stop=STOP,
        test=counts.questions,
    )
    return FindSoftGate(
        str(own if code and own.is_dir() else ranked),
        k=None,
        model=setting.model,
        questions=questions,
        template=QuestionTemplate() if code else QuestionTemplate(PROMPT),
        training=SoftGate(epochs=EPOCHS, batch_tokens=setting.batch_tokens),
        seeds=counts.seeds,
        seed=setting.seed,
        rank="score",
    )


def gates(setting: Setting) -> tuple[Step, ...]:
    """Trained gates of the first heads: on the bundled model's questions, or language by language.

    Three kinds of heads are trained a seed; pairs held out are looked at every 25 steps; then all
    questions are answered.
    """
    counts = scale(setting)
    trainings, steps = 3 * counts.seeds, EPOCHS * PAIRS
    looks = 1 + steps // SoftGate().check_every
    together = max(1, setting.batch_tokens // counts.prompt)
    learned = Work(
        backward=trainings * steps * counts.prompt, length=counts.prompt, calls=trainings * steps
    )
    looked = Work(
        forward=trainings * looks * STOP * counts.prompt,
        length=counts.prompt,
        rows=min(STOP, together),
        calls=trainings * looks * math.ceil(STOP / together),
    )
    # As is, the heads removed, random ones of every seed removed, and every trained gate.
    conditions = 2 + counts.seeds + trainings
    work = learned + looked + _written(setting, conditions, counts.questions, passes=2)
    title = "gates of a few heads trained on questions"
    return tuple(
        study_step(
            find_soft_gate,
            partial(train_gates, code),
            step_name(setting, f"soft-gate-{code}" if code else "soft-gate"),
            f"{title} in {code}" if code else title,
            work,
            (HEADS,),
        )
        for code in (("",) if setting.pocket else codes(setting.data.questions))
    )


def _file(given: tuple[str, ...], name: str) -> str:
    place = dict(zip(codes(given), given, strict=True))[name]
    return place.partition("=")[2] or place
