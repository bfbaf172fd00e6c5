"""What a survey tells its methods: the model, the data, and whether it is to be quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.documents import DocumentsChoice
from headscope.studies.models import POCKET, ModelChoice
from headscope.studies.pairs import PairsChoice
from headscope.studies.tasks import TaskChoice

#: Sentences, documents, facts and pairs of prompts of a quick survey.
QUICK = 20
#: The direction that masks and gates are trained on where no task is named, for the pocket model,
#: and that methods are judged on; they then find on so many of its sentences.
POCKET_PAIR, POCKET_SENTENCES = "en-de", 100


@dataclass(frozen=True)
class SurveyData(Settings):
    """The data for all methods; what is empty is the pocket model's own, or leaves methods out."""

    pairs: options.PairFiles = field(default=(), metadata=UNSIGNED)
    documents: options.DocumentFiles = field(default=(), metadata=UNSIGNED)
    task: options.Tasks = field(default=(), metadata=UNSIGNED)
    questions: Annotated[
        str | None, Option("Questions with contexts and answers.", metavar="FILE", panel="Data")
    ] = field(default=None, metadata=UNSIGNED)
    needles: Annotated[
        str | None,
        Option("Facts with a question and a text to hide them in.", metavar="FILE", panel="Data"),
    ] = field(default=None, metadata=UNSIGNED)
    words: Annotated[
        str | None,
        Option("Words, a meaning a row and a language a column.", metavar="FILE", panel="Data"),
    ] = field(default=None, metadata=UNSIGNED)
    seed: options.Seed = 0
    rank: options.Rank = "above-chance"
    shots: Annotated[
        int, Option("Examples put before each sentence to be translated.", min=0, panel="Prompt")
    ] = 0
    shots_data: options.ShotsData = field(default=(), metadata=UNSIGNED)
    chat: options.Chat = None
    language_names: options.LanguageNames = ()

    def places(self) -> tuple[str, ...]:
        """Everything that was named."""
        single = filter(None, (self.questions, self.needles, self.words))
        return (*self.pairs, *self.shots_data, *self.documents, *self.task, *single)


@dataclass(frozen=True)
class SurveyPlan:
    """What a method is told of the survey it is to be a part of.

    `quick`: little data, no long trainings; `runs` is the folder of the runs made so far. `judged`:
    on how many examples methods are judged, which none of them is to find on; None: they are not.
    """

    model: ModelChoice
    data: SurveyData
    quick: bool
    runs: Path
    judged: int | None = None

    @property
    def by_pairs(self) -> bool:
        """Whether methods are judged by how sentence pairs are translated."""
        return self.judged is not None and not self.data.task

    def missing(self, given: object, flag: str) -> str | None:
        """Why a method cannot be run, if its data is neither given nor of the pocket model."""
        if given or self.model.model == POCKET:
            return None
        return f"no data for it was given; add {flag}"

    def pairs(self, split: str = "find") -> PairsChoice:
        """The sentence pairs, few of them if it is to be quick; where methods are judged by them
        those of one half."""
        own = self.by_pairs and not self.data.pairs and self.model.model == POCKET
        return PairsChoice(
            pair=(POCKET_PAIR,) if own else (),
            data=self.data.pairs,
            split=split if self.by_pairs else None,
            limit=QUICK if self.quick else POCKET_SENTENCES if own else None,
            shots=self.data.shots,
            shots_data=self.data.shots_data,
            language_names=self.data.language_names,
        )

    def documents(self) -> DocumentsChoice:
        """The documents, few of them if it is to be quick."""
        return DocumentsChoice(data=self.data.documents, limit=QUICK if self.quick else None)

    def task(self, pairs: bool = False) -> TaskChoice:
        """The task that masks and gates are trained on; with `pairs`, and where methods are judged
        by them, sentence pairs if none is named."""
        given = self.data.pairs if (pairs or self.by_pairs) and not self.data.task else ()
        own = not self.data.task and not given and self.model.model == POCKET
        held_out = TaskChoice.held_out if self.judged is None else self.judged
        return TaskChoice(
            task=self.data.task,
            pair=(POCKET_PAIR,) if own else (),
            data=given,
            chat=self.data.chat,
            split="find" if given and self.by_pairs else None,  # the other half is judged by
            held_out=1 if given and self.by_pairs else held_out,
        )

    def untasked(self, pairs: bool = False) -> str | None:
        """Why a method cannot be run that needs such a task."""
        flag = "--task FILE" + " or --pairs en-de=FILE" * pairs
        return self.missing(self.data.task or self.task(pairs).data, flag)
