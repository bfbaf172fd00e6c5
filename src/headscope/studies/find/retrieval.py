"""Retrieval scores from facts hidden in longer texts, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.documents import DocumentSource, read_documents
from headscope.data.questions import NeedleFile, read_needles
from headscope.errors import InputError
from headscope.find.retrieval_scores import Retrieval, by_place, retrieval
from headscope.heads import HeadScores
from headscope.progress import Progress
from headscope.results.head_scores import RetrievalResult
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import Cell, Column, Section, Shown, Table, method_section, table_of
from headscope.shown.words import count
from headscope.studies.find.head_scores import CANDIDATES, LOOKING, Scored, looking, scores_run
from headscope.studies.models import POCKET, PROMPTED, ModelChoice
from headscope.studies.shows import (
    few_caution,
    head_table,
    model_facts,
    more_examples,
    spread,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyPlan

COMMAND = "find retrieval"
#: Facts of the bundled model's world, where no data is given.
POCKET_NEEDLES = 20


@dataclass(frozen=True)
class NeedlesChoice(Settings):
    """Which facts: a file of them, texts to hide them in, and how many."""

    data: Annotated[
        str | None,
        Option(
            "A file (JSON Lines, CSV, Parquet, …) with needle, question, haystack and, if known, "
            "answer. May be left out for pocket.",
            metavar="FILE",
            held="pairs",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    haystack: Annotated[
        tuple[str, ...],
        Option(
            "Documents to hide needles in that bring no haystack of their own; repeatable.",
            metavar="DATA",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    limit: options.Limit = None

    def read(self, model: str, seed: int) -> NeedleFile:
        """The facts; of the pocket model without data those of its own world."""
        if self.data is None:
            if model != POCKET:
                raise InputError(
                    f"no data given for the model {model}; add --data FILE with needle, question "
                    "and haystack in every record"
                )
            if self.haystack:
                raise InputError("--haystack has no needles to hide; add --data FILE with them")
            from headscope.pocket.facts import sample_needles

            return sample_needles("dev", self.limit or POCKET_NEEDLES, seed)
        texts = [
            document.text
            for path in self.haystack
            for file in read_documents(DocumentSource(path))
            for document in file.documents
        ]
        return read_needles(self.data, texts, self.limit)


@dataclass(frozen=True)
class FindRetrieval(Settings):
    """Score every head by how often it looks at the next token of a hidden fact.

    Without --data facts of the bundled model's world are hidden in its held-out sentences.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    needles: NeedlesChoice = field(default_factory=NeedlesChoice)
    measure: Retrieval = field(default_factory=Retrieval)


def find_retrieval(
    config: FindRetrieval, out: Path | None = None, progress: Progress | None = None
) -> RetrievalResult:
    """Score every head and return the command's result; what is done already is kept."""
    from headscope.lm.prompting import uses_chat

    needles = config.needles.read(config.model.model, config.measure.seed)
    lm = config.model.load_for()
    chat = uses_chat(lm, config.measure.chat, config.measure.template)
    config = replace(config, measure=replace(config.measure, chat=chat))
    about = {
        "path": needles.path,
        "digest": needles.digest,
        "examples": len(needles.needles),
    }
    return scores_run(
        COMMAND,
        config,
        lm,
        {"needles": about},
        out,
        lambda run, steps: retrieval(lm, needles, config.measure, run, steps),
        progress,
        RetrievalResult,
        _with_places,
        config.measure.seed,
    )


def _with_places(result: RetrievalResult, scores: Scored) -> RetrievalResult:
    assert isinstance(scores, HeadScores)  # `retrieval` has no parts
    return replace(result, places=by_place(scores))


def _show(result: RetrievalResult, run: Path) -> Shown:
    heads, prompts, left = result.scored, result.examples or 0, result.left_out_in_all
    facts = sum(read.examples or 0 for read in result.data.values())
    elsewhere = Column("elsewhere", "Elsewhere", "peak on the same token outside the fact")
    finding, sets = looking("retrieval", heads, facts)
    cautions = few_caution(facts, "fact")
    if left:
        cautions.append(
            f"{count(left, 'prompt')} of {prompts + left} left out, since the model did not answer "
            "them right or copied nothing: the scores hold for the others alone."
        )
    return Shown(
        "Retrieval heads",
        "Which attention heads look at a hidden fact while the model copies it out?",
        finding,
        spread(heads, count(facts, "fact")),
        more_examples(facts, run, 100),
        [*cautions, LOOKING],
        [
            *model_facts(result.model_name, len(heads)),
            ("facts", f"{facts:,}"),
            ("prompts", f"{prompts:,}"),
            ("copied tokens", f"{result.tokens or 0:,}"),
        ],
        [
            Section("Heads", [sets]),
            Section("Hidden facts by place", [_places(result)], brief=True),
            method_section(
                "A fact is hidden in a longer text and asked for. Score: of the tokens of the fact "
                "that the model generates (with --share-of needle: of all its different tokens), "
                "the share at which the head looks most at that same token of the hidden fact. "
                "Chance: the same looks, were the fact hidden at every other place of its text. "
                + CANDIDATES
            ),
        ],
        head_table(
            "Every head, highest first", {"retrieval": heads}, [elsewhere], significant=True
        ),
    )


def _places(result: RetrievalResult) -> Table:
    return table_of(
        "Does the model find the fact?",
        ((f"{place.length} tokens, depth {place.depth:g}", place) for place in result.places),
        {
            "prompts": lambda place: place.examples,
            "copied tokens": lambda place: place.tokens,
            "answered right": lambda place: Cell.share(place.answered, 0),
        },
        "depth: share of the text before the fact",
    )


def _survey(plan: SurveyPlan) -> FindRetrieval | str:
    depths = (0.0, 0.5, 1.0) if plan.quick else Retrieval.depths
    needles = NeedlesChoice(plan.data.needles, limit=QUICK // 2 if plan.quick else None)
    config = FindRetrieval(plan.model, needles, Retrieval(depths=depths, seed=plan.data.seed))
    return plan.missing(plan.data.needles, "--needles FILE") or config


command = Study(
    FindRetrieval,
    find_retrieval,
    result=RetrievalResult,
    show=_show,
    survey=_survey,
    usage="--limit 20",
)
