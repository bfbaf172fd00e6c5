"""How a survey runs each method: with which data, and with which defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from headscope import options
from headscope.runs import Result
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.documents import DocumentsChoice
from headscope.studies.inputs import POCKET, ModelChoice, PairsChoice, Progress
from headscope.studies.questions import QuestionsChoice
from headscope.studies.tasks import TaskChoice

#: The method itself, given its folder; one from elsewhere may return a dictionary.
Runner = Callable[[Path, Progress | None], Result | Mapping[str, Any]]
#: Given the model, the data, whether it shall be quick, and the folder of all the runs.
Plan = Callable[[ModelChoice, "SurveyData", bool, Path], Runner | str]

#: Sentences, documents, facts and pairs of prompts of a quick survey.
QUICK = 20
#: The direction that masks and gates are trained on where no task is named, for the pocket model.
POCKET_PAIR = "en-de"


@dataclass(frozen=True)
class SurveyData(Settings):
    """The data for all methods; what is empty is the pocket model's own, or leaves methods out."""

    pairs: options.PairFiles = field(default=(), metadata=UNSIGNED)
    documents: options.DocumentFiles = field(default=(), metadata=UNSIGNED)
    task: options.Tasks = field(default=(), metadata=UNSIGNED)
    questions: Annotated[
        str | None, Option("Questions with contexts and answers.", metavar="FILE")
    ] = field(default=None, metadata=UNSIGNED)
    needles: Annotated[
        str | None, Option("Facts with a question and a text to hide them in.", metavar="FILE")
    ] = field(default=None, metadata=UNSIGNED)
    words: Annotated[
        str | None, Option("Words, a meaning a row and a language a column.", metavar="FILE")
    ] = field(default=None, metadata=UNSIGNED)
    seed: options.Seed = 0
    rank: options.Rank = "above-chance"
    shots: Annotated[int, Option("Examples put before each sentence to be translated.", min=0)] = 0
    shots_data: options.ShotsData = field(default=(), metadata=UNSIGNED)
    chat: options.Chat = None
    language_names: options.LanguageNames = ()

    def places(self) -> tuple[str, ...]:
        """Everything that was named."""
        single = (self.questions, self.needles, self.words)
        several = (*self.pairs, *self.shots_data, *self.documents, *self.task)
        return (*several, *(one for one in single if one))


def _missing(model: ModelChoice, given: object, flag: str) -> str | None:
    """Why a method cannot be run, if its data is neither given nor of the pocket model."""
    if given or model.model == POCKET:
        return None
    return f"no data for it was given; add {flag}"


def _pairs(data: SurveyData, quick: bool) -> PairsChoice:
    return PairsChoice(
        data=data.pairs,
        limit=QUICK if quick else None,
        shots=data.shots,
        shots_data=data.shots_data,
        language_names=data.language_names,
    )


def _translation(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.translation_config import TranslationScore
    from headscope.studies.find.translation import FindTranslation, find_translation

    score = TranslationScore(seed=data.seed, chat=data.chat)
    config = FindTranslation(model, _pairs(data, quick), score, rank=data.rank)
    return _missing(model, data.pairs, "--pairs en-de=FILE") or (
        lambda out, progress: find_translation(config, out, progress)
    )


def _single_removal(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.studies.verify.heads import VerifyHeads, verify_heads
    from headscope.verify.removal import Removal

    if quick:
        return "it reads the sentences twice for every head: without --quick it is run"
    pairs = _pairs(data, quick)
    if not data.pairs:  # twenty directions, each sentence read 193 times
        pairs = replace(pairs, limit=QUICK // 2)
    config = VerifyHeads(model, pairs, Removal(seed=data.seed, chat=data.chat))
    return _missing(model, data.pairs, "--pairs en-de=FILE") or (
        lambda out, progress: verify_heads(config, out, progress)
    )


def _documents(data: SurveyData, quick: bool) -> DocumentsChoice:
    return DocumentsChoice(data=data.documents, limit=QUICK if quick else None)


def _lahis(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.lahis import Lahis
    from headscope.studies.find.lahis import FindLahis, find_lahis

    config = FindLahis(model, _documents(data, quick), Lahis(seed=data.seed))
    return _missing(model, data.documents, "--documents LANG=FILE") or (
        lambda out, progress: find_lahis(config, out, progress)
    )


def _first_order(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.first_order import FirstOrder
    from headscope.studies.find.first_order import FindFirstOrder, find_first_order

    config = FindFirstOrder(model, _documents(data, quick), FirstOrder(seed=data.seed))
    return _missing(model, data.documents, "--documents LANG=FILE") or (
        lambda out, progress: find_first_order(config, out, progress)
    )


def _task(model: ModelChoice, data: SurveyData) -> TaskChoice:
    pair = (POCKET_PAIR,) if not data.task and model.model == POCKET else ()
    return TaskChoice(task=data.task, pair=pair)


def _mask(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.studies.find.mask import FindMask, find_mask

    if quick:
        return "a mask needs its steps: without --quick it is trained"
    config = FindMask(model, _task(model, data), seed=data.seed)
    return _missing(model, data.task, "--task FILE") or (
        lambda out, progress: find_mask(config, out, progress)
    )


def _causal_gating(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.studies.find.causal_gating import FindCausalGating, find_causal_gating

    changes: dict[str, Any] = {"seed": data.seed}
    if quick:
        changes |= {"steps": 20, "pushed_steps": 20, "batch_size": 8, "seeds": 1}
    config = FindCausalGating(model, _task(model, data), changes=changes)
    return _missing(model, data.task, "--task FILE") or (
        lambda out, progress: find_causal_gating(config, out, progress)
    )


def _soft_gate(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.studies.find.soft_gate import FindSoftGate, find_soft_gate

    if quick:
        return "several trainings take their time: without --quick they are made"
    heads = runs / "translation-score"
    if not (heads / "DONE.json").exists():
        return "it needs heads that another method found, those of translation-score"
    config = FindSoftGate(
        str(heads),
        model=model,
        questions=QuestionsChoice(data=data.questions),
        seed=data.seed,
        rank=data.rank,
    )
    return _missing(model, data.questions, "--questions FILE") or (
        lambda out, progress: find_soft_gate(config, out, progress)
    )


def _induction(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.repeated import Induction
    from headscope.studies.find.induction import FindInduction, find_induction

    measure = Induction(QUICK if quick else Induction.sequences, seed=data.seed)
    return lambda out, progress: find_induction(FindInduction(model, measure), out, progress)


def _retrieval(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.retrieval import Retrieval
    from headscope.studies.find.retrieval import FindRetrieval, NeedlesChoice, find_retrieval

    depths = (0.0, 0.5, 1.0) if quick else Retrieval.depths
    needles = NeedlesChoice(data.needles, limit=QUICK // 2 if quick else None)
    config = FindRetrieval(model, needles, Retrieval(depths=depths, seed=data.seed))
    return _missing(model, data.needles, "--needles FILE") or (
        lambda out, progress: find_retrieval(config, out, progress)
    )


def _patching(model: ModelChoice, data: SurveyData, quick: bool, runs: Path) -> Runner | str:
    from headscope.find.patching import Patching
    from headscope.studies.find.patching import FindPatching, WordsChoice, find_patching

    measure = Patching(QUICK if quick else Patching.pairs, control=not quick, seed=data.seed)
    config = FindPatching(model, WordsChoice(data.words), measure)
    return _missing(model, data.words, "--words FILE") or (
        lambda out, progress: find_patching(config, out, progress)
    )


#: By the names of the registry.
PLANS: dict[str, Plan] = {
    "translation-score": _translation,
    "lahis": _lahis,
    "first-order": _first_order,
    "mask": _mask,
    "soft-gate": _soft_gate,
    "causal-gating": _causal_gating,
    "induction": _induction,
    "retrieval": _retrieval,
    "single-removal": _single_removal,
    "patching": _patching,
}
