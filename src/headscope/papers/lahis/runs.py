"""The paper's runs as configurations of the studies, each with the setting's counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.data.question_prompts import QuestionTemplate
from headscope.find.importance import Lahis
from headscope.find.trained_gates import SoftGate
from headscope.heads import Head
from headscope.papers.lahis.documents import choice
from headscope.papers.lahis.scale import (
    HEADS,
    MOVING,
    astray,
    codes,
    directions_given,
    general_in,
    scale,
    written_share,
)
from headscope.papers.lahis.work import EPOCHS, PAIRS, STOP, gradient_batch, loss_batch
from headscope.papers.paper import Setting
from headscope.runs import encode
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate
from headscope.studies.inputs import PairsChoice, Progress
from headscope.studies.questions import QuestionsChoice
from headscope.studies.use.steering import Steer, steer
from headscope.studies.use.steering_prompts import astray_files
from headscope.studies.verify.layers import VerifyLayers, verify_layers
from headscope.studies.verify.off_target import Ask, VerifyOffTarget, verify_off_target
from headscope.studies.verify.perplexity import VerifyPerplexity, verify_perplexity
from headscope.studies.verify.summaries import VerifySummaries, verify_summaries
from headscope.studies.verify.transfer import VerifyTransfer, verify_transfer
from headscope.verify.languages.conditions import LanguageRemoval
from headscope.verify.languages.sets import default_count

#: The bundled model answers what it was trained on as well as it can; in an order of question and
#: context that it never saw there is something to be gained.
ASKED = "Question: {question}\n{context}\nAnswer:"

Result = Mapping[str, Any]


def score_heads(
    setting: Setting, folder: Path, progress: Progress | None, moving: bool = False
) -> Result:
    """Importance, specific and general heads, on the documents to find on.

    `moving`: the gate takes a step after every document, as in the published code.
    """
    config = FindLahis(
        model=setting.model,
        documents=choice(setting, "found"),
        score=Lahis(moving, seed=setting.seed, batch_tokens=gradient_batch(setting)),
        general_in=general_in(setting),
    )
    result: Result = encode(find_lahis(config, folder, progress))
    return result


def read_text(
    setting: Setting, folder: Path, progress: Progress | None, moving: bool = False
) -> Result:
    """Each language's documents to test on, without each language's heads.

    `moving`: the specific heads by the moving gate alone, with fewer draws.
    """
    one = scale(setting)
    heads: tuple[str, ...] = (str(setting.at(HEADS)),)
    if moving:
        k = default_count(setting.geometry)
        heads = tuple(
            f"{code}={','.join(str(Head(head['layer'], head['head'])) for head in own)}"
            for code, found in (setting.result(MOVING) or {})["languages"].items()
            if (own := found["specific"][:k])
        )
    amount = None if moving else setting.steering.k
    config = VerifyPerplexity(
        heads,
        () if amount is None else (amount,),
        model=setting.model,
        documents=choice(setting, "tested"),
        removal=_removal(setting, one.layer_draws if moving else one.draws, layer_matched=True),
        rank="score",
    )
    found: Result = encode(verify_perplexity(config, folder, progress))
    return found


def read_without_layers(setting: Setting, folder: Path, progress: Progress | None) -> Result:
    """Each language's documents to test on, without whole layers."""
    config = VerifyLayers(
        str(setting.at(HEADS)),
        model=setting.model,
        documents=choice(setting, "tested"),
        removal=_removal(setting, scale(setting).layer_draws, layer_matched=False),
    )
    found: Result = encode(verify_layers(config, folder, progress))
    return found


def _removal(setting: Setting, draws: int, layer_matched: bool) -> LanguageRemoval:
    return LanguageRemoval(
        draws=draws,
        layer_matched=layer_matched,
        seed=setting.seed,
        batch_tokens=loss_batch(setting),
    )


def summarise(setting: Setting, folder: Path, progress: Progress | None) -> Result:
    """Summaries, of the bundled model repeated sentences, without general heads."""
    one = scale(setting)
    # Only the bundled model is sure to have so many.
    limit = one.summaries if setting.pocket else None
    config = VerifySummaries(
        str(setting.at(HEADS)),
        k=written_share(setting),
        model=setting.model,
        texts=DocumentsChoice(data=setting.data.summaries, limit=limit),
        draws=one.writing_draws,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
        rank="score",
    )
    return encode(verify_summaries(config, folder, progress))


def translate(setting: Setting, folder: Path, progress: Progress | None) -> Result:
    """Translations without the heads of the target language."""
    limit = scale(setting).sentences
    given = directions_given(setting)
    if given:
        pairs = PairsChoice(data=given, limit=limit)
    else:
        pairs = PairsChoice(pair=("all",), limit=limit)
    return _off_target(setting, folder, progress, "translate", pairs=pairs)


def go_on(setting: Setting, folder: Path, progress: Progress | None) -> Result:
    """Documents to test on are continued without the heads of their language."""
    documents = choice(setting, "tested", scale(setting).beginnings)
    return _off_target(setting, folder, progress, "continue", documents=documents)


def _off_target(
    setting: Setting,
    folder: Path,
    progress: Progress | None,
    ask: Ask,
    pairs: PairsChoice | None = None,
    documents: DocumentsChoice | None = None,
) -> Result:
    config = VerifyOffTarget(
        str(setting.at(HEADS)),
        k=written_share(setting),
        model=setting.model,
        ask=ask,
        pairs=pairs or PairsChoice(),
        documents=documents or DocumentsChoice(),
        draws=scale(setting).writing_draws,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
        rank="score",
    )
    return encode(verify_off_target(config, folder, progress))


def lead_back(setting: Setting, folder: Path, progress: Progress | None) -> Result:
    """Translations asked for behind a text in another language, with heads of either changed."""
    one, (source, ways) = scale(setting), astray(setting)
    heads = (setting.result(HEADS) or {})["languages"]
    own = setting.pocket
    pairs = PairsChoice(ways if own else (), () if own else ways, limit=one.steered)
    documents = choice(setting, "tested", one.steered)
    place, model = setting.folder / "prompts", setting.model.model
    files = {
        code: file
        for code, file in astray_files(place, pairs, documents, source, model, setting.seed).items()
        if heads[code]["specific"]
    }
    config = Steer(
        tuple(files),
        str(setting.at(HEADS)),
        k=written_share(setting),
        factors=(3.0,),
        away=source,
        data=tuple(f"{code}={file}" for code, file in files.items()),
        model=setting.model,
        draws=one.steering_draws,
        max_new_tokens=2 * one.output,
        one_line=True,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
        rank="score",
    )
    return encode(steer(config, folder, progress))


def answer_contradictions(
    setting: Setting, folder: Path, progress: Progress | None, pair: str | None = None
) -> Result:
    """Contradictions, of one file where `pair` names it."""
    one = scale(setting)
    config = VerifyTransfer(
        str(setting.at(HEADS)),
        k=written_share(setting),
        model=setting.model,
        data=None if pair is None else _file(setting.data.statements, pair),
        limit=one.statements,
        draws=one.writing_draws,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )
    return encode(verify_transfer(config, folder, progress))


def train_gates(
    setting: Setting, folder: Path, progress: Progress | None, code: str | None = None
) -> Result:
    """Gates of the first heads, on the questions of the language `code` where it is given."""
    one = scale(setting)
    ranked = setting.at(HEADS)
    own = ranked / "scores" / (code or "mean")
    config = FindSoftGate(
        str(own if code and own.is_dir() else ranked),
        k=None,
        model=setting.model,
        questions=QuestionsChoice(
            data=None if code is None else _file(setting.data.questions, code),
            language=code,
            train=PAIRS,
            stop=STOP,
            test=one.questions,
        ),
        template=QuestionTemplate(ASKED) if code is None else QuestionTemplate(),
        training=SoftGate(epochs=EPOCHS, batch_tokens=setting.batch_tokens),
        seeds=one.seeds,
        seed=setting.seed,
        rank="score",
    )
    result: Result = encode(find_soft_gate(config, folder, progress))
    return result


def _file(given: tuple[str, ...], name: str) -> str:
    place = dict(zip(codes(given), given, strict=True))[name]
    return place.partition("=")[2] or place
