"""Induction scores from random repeated tokens, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from headscope.find.induction_scores import Induction, induction
from headscope.progress import Progress
from headscope.results.head_scores import ScoresResult
from headscope.settings import GIVEN, Nested, Option, Settings
from headscope.shown.blocks import Column, Section, Shown, method_section
from headscope.shown.words import count
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.find.head_scores import CANDIDATES, LOOKING, looking, scores_run
from headscope.studies.models import ModelChoice
from headscope.studies.shows import few_caution, head_table, model_facts, spread
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyPlan

COMMAND = "find induction"
#: Natural texts of each language where no limit is given.
TEXTS = 50


def _documents(**values: Any) -> DocumentsChoice | None:
    """Documents that `--data` names; other options alone do not ask for any."""
    return DocumentsChoice(**values) if values.get("data") else None


@dataclass(frozen=True)
class FindInduction(Settings):
    """Score every head by how often it looks at the token that followed the same one before.

    Needs no data: blocks of random tokens are repeated. Also reports how often a head looks at the
    token just before, in these tokens and in natural text: documents of --data, or else a few
    English ones that come with headscope.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
    measure: Induction = field(default_factory=Induction)
    documents: Annotated[
        DocumentsChoice | None,
        Nested(
            changed={
                "limit": Option(
                    "Read the first so many documents of each language, and insist on them; "
                    f"without it {TEXTS}.",
                    min=1,
                    panel="Data",
                )
            },
            make=_documents,
        ),
    ] = field(default=None, metadata=GIVEN)


def find_induction(
    config: FindInduction, out: Path | None = None, progress: Progress | None = None
) -> ScoresResult:
    """Score every head and return the command's result; what is done already is kept."""
    data, texts = _texts(config)
    lm = config.model.load_for()
    return scores_run(
        COMMAND,
        config,
        lm,
        data,
        out,
        lambda run, steps: induction(lm, config.measure, run, steps, texts),
        progress,
        ScoresResult,
        seed=config.measure.seed,
    )


def _texts(config: FindInduction) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """What a run tells about the natural texts that were asked for, by language; and the texts."""
    if config.documents is None:
        from headscope.pocket.sample import sample_documents

        return {}, [document.text for document in sample_documents("en", "dev", TEXTS, 0).documents]
    files = read_languages(
        config.documents, config.model.model, "dev", default_limit=TEXTS, pocket_limit=TEXTS
    )
    data = {
        code: {"path": file.path, "examples": len(file.documents), "digest": file.digest}
        for code, file in files.items()
    }
    return data, [document.text for file in files.values() for document in file.documents]


def _show(result: ScoresResult, run: Path) -> Shown:
    heads, blocks = result.scored, result.examples or 0
    columns = (
        Column("duplicate", "Same token", "peak on the same token in the first reading"),
        Column("previous_token", "Token before", "peak on the token before, random tokens"),
        Column("previous_token_text", "Token before, text", "peak on the token before, in text"),
    )
    finding, sets = looking("induction", heads, blocks)
    return Shown(
        "Induction heads",
        "Which attention heads look at what followed the same token before?",
        finding,
        spread(heads, count(blocks, "block")),
        "--sequences 200" if blocks < 200 else "",
        [*few_caution(blocks, "block"), LOOKING],
        [*model_facts(result.model_name, len(heads)), ("blocks", f"{blocks:,}")],
        [
            Section("Heads", [sets]),
            method_section(
                "Blocks of random tokens are read twice. Score: share of tokens of the second "
                "reading from which the head looks most at the token that followed the same one "
                "in the first reading. Chance: the mean of this share over all places of the "
                f"block, so a head that looks anywhere into the block scores no more. {CANDIDATES}"
            ),
        ],
        head_table("Every head, highest first", {"induction": heads}, columns, significant=True),
    )


def _survey(plan: SurveyPlan) -> FindInduction | str:
    sequences = QUICK if plan.quick else Induction.sequences
    return FindInduction(plan.model, Induction(sequences, seed=plan.data.seed))


command = Study(
    FindInduction,
    find_induction,
    result=ScoresResult,
    show=_show,
    survey=_survey,
    usage="--sequences 20",
)
