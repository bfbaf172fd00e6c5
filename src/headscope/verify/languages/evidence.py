"""What removals do to each language's own text, from stored losses of documents.

Effects are changes of the mean negative log-likelihood (NLL) in nats a token, each token counting
the same: perplexities of languages start from different heights, and their ratios are these
differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headscope.estimates import Estimate
from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Trial
from headscope.results.language_texts import LanguageText, Level, WithoutHeads
from headscope.results.removal import CONTROLS
from headscope.verify.languages.conditions import Condition, Text


@dataclass(frozen=True, eq=False)
class TextTrial:
    """The text of one language under all conditions.

    Attributes:
        text: its documents.
        nll: the token-weighted mean NLL, nats a token.
        published: the published perplexity, the mean over documents of exp of each one's own mean
            NLL (the code of LAHIS, arXiv 2511.07498).
    """

    text: Text
    nll: Trial
    published: Trial

    def levels(self, at: int) -> dict[str, Any]:
        """The fields of a `Level` under one condition."""
        nll = self.nll.level(at)
        return {
            "nll": nll,
            "perplexity": Estimate(*map(math.exp, (nll.value, nll.low, nll.high))),
            "published_perplexity": self.published.level(at),
        }

    def about(self) -> dict[str, Any]:
        """How much text it is, and its levels as the model is: the fields of a `Text`."""
        tokens = self.text.tokens
        return {
            "documents": int(tokens.size),
            "tokens": int(tokens.sum()),
            "baseline": Level(**self.levels(0)),
        }


def text_trials(
    planned: Sequence[Condition], texts: Mapping[str, Text], seed: int = 0
) -> dict[str, TextTrial]:
    """Each language's text as a trial.

    Languages with equally many documents, which may be translations of each other, are resampled
    alike.
    """
    removed = [condition.key for condition in planned]
    found = {}
    for name, text in texts.items():
        read = [None if np.isnan(losses).any() else losses for losses in text.nll]
        sums = [None if one is None else np.stack([one, text.tokens], axis=-1) for one in read]
        own = [None if one is None else counted(np.exp(one / text.tokens)) for one in read]
        found[name] = TextTrial(
            text,
            *(Trial([Group(one, sets=removed, seed=seed)]) for one in (sums, own)),
        )
    return found


def describe_languages(
    planned: Sequence[Condition], trials: Mapping[str, TextTrial]
) -> dict[str, LanguageText]:
    """For each language its text under the removals that are about it.

    Heads that are removed for themselves stand beside random ones: p over documents is by
    approximate randomisation that swaps single documents with those under a random draw, p over
    draws by the distinct ones. A set that belongs to no language is told for every language.
    """
    return {
        name: LanguageText(
            **trial.about(),
            conditions=tuple(
                _condition(at, planned, name, trial)
                for at, one in enumerate(planned)
                if at and name in one.texts and (one.of == name or one.of not in trials)
            ),
        )
        for name, trial in trials.items()
    }


def random_rows(at: int, planned: Sequence[Condition], kind: str, language: str) -> list[int]:
    """The random draws of one kind beside a removal that this language's text was read under."""
    like = planned[at]
    return [
        place
        for place, one in enumerate(planned)
        if (one.of, one.role, one.k, one.kind) == (like.of, like.role, like.k, kind)
        and language in one.texts
    ]


def beside_random(at: int, rows: Sequence[int], nll: Trial, suffix: str = "") -> dict[str, Any]:
    """What random draws do, and what a removal has over them: fields of a result's row."""
    against = nll.against(at, rows, "higher")
    return {f"random{suffix}": nll.changes(rows), f"against{suffix or '_random'}": against}


def _condition(at: int, planned: Sequence[Condition], name: str, trial: TextTrial) -> WithoutHeads:
    random: dict[str, Any] = {}
    if planned[at].kind == "removed":
        for kind, suffix in CONTROLS.items():
            if rows := random_rows(at, planned, kind, name):
                random |= beside_random(at, rows, trial.nll, suffix)
    change = trial.nll.difference(at)
    return WithoutHeads(**planned[at].as_dict(), **trial.levels(at), change=change, **random)
