"""Heads that carry the language asked for from its name to the answer, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope.find.language_name_scores import LanguageName, language_name, others_of
from headscope.heads import HeadScores
from headscope.progress import Progress, Steps
from headscope.results.head_scores import LanguageNameResult
from headscope.runs import Run
from headscope.runs.kept import digest
from headscope.settings import Settings
from headscope.shown.blocks import Column, Section, Shown, method_section
from headscope.shown.words import arrow, count, percent
from headscope.studies.find.head_scores import CLEAR, Scored, scores_run
from headscope.studies.find.translation_score import write_found_on
from headscope.studies.models import POCKET, TEMPLATED, ModelChoice, resolved_chat
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.shows import (
    FEW,
    by_rank,
    few_caution,
    head_sets,
    head_table,
    model_facts,
    more_examples,
    significant,
    spread,
    top_heads,
)
from headscope.studies.study import Study

COMMAND = "find language-name"
#: Sentences of each direction where no limit is given.
SENTENCES = 20
#: Directions of the pocket model where none is named.
POCKET_PAIRS = ("en-de", "en-es", "en-ru", "en-tr")


@dataclass(frozen=True)
class FindLanguageName(Settings):
    """Find heads that carry the language asked for from its name in the prompt to the answer.

    Prompts ask for translations into two languages at least. Each head's output is put into the
    prompt that names another language, and its attention to the name is read. Of each direction 20
    sentences are read unless --limit says otherwise.
    """

    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    measure: LanguageName = field(default_factory=LanguageName)


def find_language_name(
    config: FindLanguageName, out: Path | None = None, progress: Progress | None = None
) -> LanguageNameResult:
    """Score every head and return the command's result; what is done already is kept."""
    choice, model = config.pairs, config.model.model
    if model == POCKET and not choice.data:
        choice = replace(choice, pair=choice.pair or POCKET_PAIRS)
        if config.measure.chat is None:
            # Pocket's prompts are complete; its template would ask for the answer once more.
            config = replace(config, measure=replace(config.measure, chat=False))
    choice = replace(choice, limit=choice.limit or SENTENCES)
    directions = read_directions(choice, model, "dev", choice.limit, config.measure.seed)
    for name in directions:
        others_of(name, directions)
    lm = config.model.load_for()
    config = replace(config, pairs=choice, measure=resolved_chat(lm, config.measure))

    def score(run: Run, steps: Steps | None) -> HeadScores:
        write_found_on(run, directions)
        return language_name(lm, directions, config.measure, run, steps)

    data = {
        name: {
            "path": pairs.path,
            "digest": digest([pairs.digest, pairs.shots_digest]) if pairs.shots else pairs.digest,
            "examples": len(pairs.pairs),
        }
        for name, pairs in directions.items()
    }
    return scores_run(
        COMMAND,
        config,
        lm,
        data,
        out,
        score,
        progress,
        LanguageNameResult,
        _with_languages,
        config.measure.seed,
    )


def _with_languages(result: LanguageNameResult, scores: Scored) -> LanguageNameResult:
    assert isinstance(scores, HeadScores)
    config = scores.config
    return replace(result, languages=config["languages"], sentences=config["sentences"])


def _show(result: LanguageNameResult, run: Path) -> Shown:
    heads, examples = result.scored, result.examples or 0
    sentences = result.sentences
    above = significant(heads)
    clear = [head for head in above if by_rank(head) > CLEAR and sentences >= FEW]
    best = max(heads, key=by_rank)
    verb = "carries" if len(clear) == 1 else "carry"
    many = f"{len(clear)} of {count(len(heads), 'head')}" if clear else "No head clearly"
    sets = {
        "carry the language": clear,
        "candidates": [head for head in above if head not in clear],
    }
    cautions = few_caution(sentences, "sentence")
    if left := result.left_out_in_all:
        cautions.append(
            f"{count(left, 'prompt')} left out, whose answer begins alike where another language "
            "is asked for."
        )
    cautions.append(
        "Intervals are per head and not corrected for the number of heads. One head is moved, at "
        "the last token alone, and first tokens are compared, whatever language they are of: "
        "whether whole answers change, verify off-target tests."
    )
    columns = (
        Column("attention", "Attention", "share of its attention on the name"),
        Column("even", "Even", "that share, were attention spread evenly"),
        Column("apart", "Told apart", "share of sentences whose language its output tells"),
    )
    score = Column("score", "Moved", "share of the way to the other language")
    return Shown(
        "Heads of the language's name",
        "Which attention heads carry the language asked for from its name to the answer?",
        [
            f"{many} {verb if clear else 'carries'} the language of the answer.",
            f"Strongest: {best.place}, {percent(by_rank(best))} of the way; "
            f"{percent(best.number('attention'))} of its attention is on the name.",
        ],
        spread(heads, count(sentences, "sentence")),
        more_examples(min(data.examples or 0 for data in result.data.values()), run, 50),
        cautions,
        [
            *model_facts(result.model_name, len(heads)),
            ("directions", ", ".join(map(arrow, result.data))),
            ("prompts", f"{examples:,}"),
            ("different sentences", f"{sentences:,}"),
        ],
        [
            Section("Heads", [head_sets("Heads above the control, best first", sets)])
            if above
            else Section("Heads", [top_heads(heads)]),
            method_section(
                "Two prompts ask for the translation of one sentence into two languages. At the "
                "last token of the first, the output of one head is replaced by the one it has in "
                "the second. Moved: what this adds to the log-odds of the first tokens that the "
                "model writes after the two prompts, as a share of what the whole second prompt "
                "adds. Chance, the control: the same with the output from another sentence that "
                "asks for the first language. Attention: the share on the tokens of the language's "
                "name, at the last token. Told apart: the share of sentences whose language is "
                "that of the nearest mean output, over the other half of the sentences; by chance "
                f"{percent(1 / max(result.languages, 1))}. A head carries the language where its "
                f"interval lies above the control and Moved \u2212 control above {CLEAR}, over at "
                f"least {FEW} sentences; where only the interval does, it is a candidate. A "
                "sentence that is asked for in several languages counts once."
            ),
        ],
        head_table(
            "Every head, strongest first",
            {"language": heads},
            columns,
            score,
            significant=True,
            signed=True,
        ),
    )


command = Study(
    FindLanguageName,
    find_language_name,
    result=LanguageNameResult,
    show=_show,
    usage="--limit 10",
)
