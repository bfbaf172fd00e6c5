"""Activation patching between word translations, in a run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.words import ConceptFile, read_concepts
from headscope.errors import InputError
from headscope.find.patching_scores import EFFECTS, Patching, patching
from headscope.heads import HeadScores
from headscope.progress import Progress
from headscope.results.common import ScoredHead
from headscope.results.head_scores import PatchingResult
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import (
    Column,
    HeadTable,
    Section,
    Shown,
    Table,
    method_section,
    one_column,
)
from headscope.shown.words import count, enumeration, number
from headscope.studies.find.head_scores import Scored, scores_run
from headscope.studies.models import POCKET, TEMPLATED, ModelChoice, resolved_chat
from headscope.studies.shows import (
    by_luck,
    by_rank,
    candidates,
    few_caution,
    head_sets,
    head_table,
    model_facts,
    significant,
    spread,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import QUICK, SurveyPlan

COMMAND = "find patching"
#: The answers whose probability changes.
ANSWERS = {
    "language": "word in the other language",
    "concept": "other word",
    "both": "other word in the other language",
    "kept": "own answer",
}
LEFT_OUT = {
    "not_known": "not answered right by the original model",
    "same_first_token": "whose answers begin alike",
}


@dataclass(frozen=True)
class WordsChoice(Settings):
    """Which words: a table with one meaning a row and one language a column."""

    data: Annotated[
        str | None,
        Option(
            "A file of words (TSV, CSV, Parquet, …), one meaning a row, columns named by language "
            "codes (en, de, es…). May be left out for pocket.",
            metavar="FILE",
            held="pairs",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    limit: options.Limit = None

    def read(self, model: str) -> ConceptFile:
        """The words; of the pocket model without data those of its own world."""
        if self.data is not None:
            return read_concepts(self.data, self.limit)
        if model != POCKET:
            raise InputError(
                f"no data given for the model {model}; add --data FILE with a column of words for "
                "each of three or more languages, such as en, de and es"
            )
        from headscope.pocket.sample import word_table

        return word_table()


@dataclass(frozen=True)
class FindPatching(Settings):
    """Patch each head's output from one word translation into another (activation patching).

    Effects on the target language and on the meaning are reported apart. Without --data the bundled
    model's own words are used.
    """

    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    words: WordsChoice = field(default_factory=WordsChoice)
    measure: Patching = field(default_factory=Patching)


def find_patching(
    config: FindPatching, out: Path | None = None, progress: Progress | None = None
) -> PatchingResult:
    """Patch every head and return the command's result; what is done already is kept.

    The run holds `scores/language`, `scores/concept` and their mean.
    """
    words = config.words.read(config.model.model)
    if config.model.model == POCKET and config.measure.chat is None:
        # Pocket's prompts are complete; its template would ask for the answer once more.
        config = replace(config, measure=replace(config.measure, chat=False))
    lm = config.model.load_for()
    config = replace(config, measure=resolved_chat(lm, config.measure))
    about = {"path": words.path, "digest": words.digest, "examples": len(words.concepts)}
    return scores_run(
        COMMAND,
        config,
        lm,
        {"words": about},
        out,
        lambda run, steps: dict(patching(lm, words, config.measure, run, steps)),
        progress,
        PatchingResult,
        _with_clean,
        config.measure.seed,
    )


def _with_clean(result: PatchingResult, scores: Scored) -> PatchingResult:
    """With how sure the model is of each answer without a patch."""
    assert not isinstance(scores, HeadScores)  # `patching` tells effects apart
    clean = next(iter(scores.values())).statistics["clean"].mean(axis=0)
    names = ("kept", *EFFECTS[:3])  # the answers as `WordPair.answers` lists them
    return replace(result, clean=dict(zip(names, map(float, clean), strict=True)))


def _show(result: PatchingResult, run: Path) -> Shown:
    pairs = result.examples or 0
    parts = {name: part.scored for name, part in result.parts.items()}
    cautions = few_caution(pairs, "pair", "pairs of prompts")
    out = result.left_out
    left = [f"{out[why]} {words}" for why, words in LEFT_OUT.items() if out.get(why)]
    if left:
        cautions.append(f"Pairs left out: {', '.join(left)}.")
    if without := out.get("without_control"):
        cautions.append(f"{count(without, 'pair has', 'pairs have')} no unrelated prompt, so the "
                        "control is of the others alone.")  # fmt: skip
    cautions.append(
        "Intervals are per head and not corrected for the number of heads; one head at the last "
        "token is patched, so effects of several heads together are not seen."
    )
    above = {name: significant(heads) for name, heads in parts.items()}
    found = enumeration([f"{len(own)} for {name}" for name, own in above.items()])
    weak = [name for name, heads in parts.items() if candidates(heads, pairs)]
    only = f"; candidates for {enumeration(weak)}" if weak else ""
    best = [(name, max(heads, key=by_rank)) for name, heads in parts.items()]
    most = [f"{head.place} ({number(by_rank(head))}) for {name}" for name, head in best]
    return Shown(
        "Activation patching",
        "Which attention heads carry the target language, and which the meaning of the word?",
        [
            f"Above the control: {found} ({by_luck(result.scored)}{only}).",
            f"Strongest: {enumeration(most)}.",
        ],
        spread(result.scored, count(pairs, "pair", "pairs of prompts")),
        "--prompts 300" if pairs < 300 else "",
        cautions,
        [*model_facts(result.model_name, len(result.scored)), ("pairs of prompts", f"{pairs:,}")],
        [
            Section("Heads", [head_sets("Heads above the control, best first", above)]),
            Section("Without a patch", [_clean(result)], brief=True),
            method_section(
                "At the last token of a prompt for a word translation, the output of one head is "
                "replaced by the one it has in a prompt for another word into another language. "
                "Language: change in the probability of the same word in that other language. "
                "Concept: change in the probability of the other word in the prompt's language. "
                "Chance, the control: the same change when the output comes from an unrelated "
                "prompt; above it is a head whose whole 95\u00a0% interval is. --heads "
                "ranks this run by the mean of both effects."
            ),
        ],
        _every_head(parts, result),
    )


def _every_head(parts: Mapping[str, Sequence[ScoredHead]], result: PatchingResult) -> HeadTable:
    means = {head.place: head.score for head in result.scored}
    with_mean = {
        name: [replace(head, unknown={**head.unknown, "mean": means[head.place]}) for head in heads]
        for name, heads in parts.items()
    }
    columns = (
        Column("both", "Both", f"change in the probability of the {ANSWERS['both']}"),
        Column("kept", "Own answer", f"change in the probability of the {ANSWERS['kept']}"),
        Column("mean", "Mean effect", "mean of language and concept, which --heads ranks by"),
    )
    score = Column("score", "Effect", "change in the probability of the patched answer")
    return head_table(
        "Every head, strongest first", with_mean, columns, score, significant=True, signed=True
    )


def _clean(result: PatchingResult) -> Table:
    # A word, since three decimals would call a rare answer's probability 0.
    rows = ((ANSWERS.get(name, name), number(p)) for name, p in result.clean.items())
    return one_column("Probability of the answers without a patch", "mean", rows)


def _survey(plan: SurveyPlan) -> FindPatching | str:
    pairs = QUICK if plan.quick else Patching.pairs
    measure = Patching(pairs, control=not plan.quick, seed=plan.data.seed)
    config = FindPatching(plan.model, WordsChoice(plan.data.words), measure)
    return plan.missing(plan.data.words, "--words FILE") or config


command = Study(
    FindPatching,
    find_patching,
    result=PatchingResult,
    show=_show,
    survey=_survey,
    usage="--prompts 20",
)
