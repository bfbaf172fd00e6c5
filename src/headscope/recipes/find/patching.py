"""Activation patching between word translations, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headscope.data.concepts import ConceptFile, read_concepts
from headscope.errors import InputError
from headscope.find.patching import EFFECTS, Patching, patching
from headscope.heads import HeadScores
from headscope.recipes.find.head_scores import Scored, scores_run
from headscope.recipes.inputs import POCKET, ModelChoice, Progress, resolved_chat

__all__ = ["COMMAND", "FindPatching", "WordsChoice", "find_patching"]

COMMAND = "find patching"


@dataclass(frozen=True)
class WordsChoice:
    """Which words: a table with one meaning a row and one language a column."""

    data: str | None = field(default=None, metadata={"signature": False})
    limit: int | None = None

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
class FindPatching:
    """A whole run of the command."""

    model: ModelChoice = field(default_factory=ModelChoice)
    words: WordsChoice = field(default_factory=WordsChoice)
    measure: Patching = field(default_factory=Patching)


def find_patching(
    config: FindPatching, out: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
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
        _about_pairs,
        config.measure.seed,
    )


def _about_pairs(scores: Scored) -> dict[str, Any]:
    """The pairs that count, those that do not, and how sure the model is without a patch."""
    assert not isinstance(scores, HeadScores)  # `patching` tells effects apart
    one = next(iter(scores.values()))
    clean = one.statistics["clean"].mean(axis=0)
    names = ("kept", *EFFECTS[:3])  # the answers as `WordPair.answers` lists them
    return {
        "examples": one.config["examples"],
        "left_out": one.config["left_out"],
        "clean": {name: float(value) for name, value in zip(names, clean, strict=True)},
    }
