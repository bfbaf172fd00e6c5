"""Activation patching between word translations, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.concepts import ConceptFile, read_concepts
from headscope.errors import InputError
from headscope.find.patching import EFFECTS, Patching, patching
from headscope.heads import HeadScores
from headscope.results.head_scores import PatchingResult
from headscope.settings import UNSIGNED, Option, Settings
from headscope.studies.find.head_scores import Scored, scores_run
from headscope.studies.inputs import POCKET, ModelChoice, Progress, resolved_chat

__all__ = ["COMMAND", "FindPatching", "WordsChoice", "find_patching"]

COMMAND = "find patching"


@dataclass(frozen=True)
class WordsChoice(Settings):
    """Which words: a table with one meaning a row and one language a column."""

    data: Annotated[
        str | None,
        Option(
            "TSV, JSON Lines or Parquet of words, one meaning a row, columns named by language "
            "codes (en, de, es…). May be left out for pocket.",
            metavar="FILE",
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
        from headscope.pocket.words import word_table

        return word_table()


@dataclass(frozen=True)
class FindPatching(Settings):
    """Put each head's output from one word translation into another; see what comes over.

    The other target language and the other meaning are reported apart. Without --data the words of
    the bundled model's world.
    """

    model: ModelChoice = field(default_factory=ModelChoice)
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
    lm = config.model.load_for(out)
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
