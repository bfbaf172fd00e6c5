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

from headscope.measure.statistics import counted
from headscope.measure.trial import Group, Trial
from headscope.verify.languages.conditions import Condition, Text
from headscope.verify.removal.outputs import CONTROLS

__all__ = [
    "TextTrial",
    "against_random",
    "describe_languages",
    "random_rows",
    "text_trials",
]


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

    def level(self, at: int) -> dict[str, Any]:
        """NLL and both perplexities under one condition, with intervals."""
        nll = self.nll.level(at)
        return {
            "nll": nll.record(),
            "perplexity": {name: math.exp(value) for name, value in vars(nll).items()},
            "published_perplexity": self.published.level(at).record(),
        }

    def about(self) -> dict[str, Any]:
        """How much text it is, and its levels as the model is."""
        tokens = self.text.tokens
        return {
            "documents": int(tokens.size),
            "tokens": int(tokens.sum()),
            "baseline": self.level(0),
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
) -> dict[str, Any]:
    """For each language its text under the removals that are about it, as JSON.

    `baseline` and every one of `conditions` have `nll`, `perplexity` (its exponential) and
    `published_perplexity` (the mean over documents of exp of each one's own mean NLL), each with
    its 95 % bootstrap interval over documents, and conditions their `change` of NLL. Heads that
    are removed for themselves have `random` (mean, lowest and highest change of the free draws),
    `against_random` (their change less the mean of the draws'), `p_documents` (approximate
    randomisation that swaps single documents with those under a random draw) and `p_draws`, over
    the `distinct_draws`, never below `least_p`, all with `_layer_matched` too; both p are small
    where they hurt more than random heads. A set that belongs to no language is told for every
    language.
    """
    return {
        name: {
            **trial.about(),
            "conditions": [
                _condition(at, planned, name, trial)
                for at, one in enumerate(planned)
                if at and name in one.texts and (one.of == name or one.of not in trials)
            ],
        }
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


def against_random(at: int, rows: Sequence[int], nll: Trial, suffix: str = "") -> dict[str, Any]:
    """What a removal has over random draws; the names of the figures end in `suffix`."""
    return {
        f"random{suffix}": nll.changes(rows).record(),
        **nll.against(at, rows, "higher").record("documents", suffix),
    }


def _condition(
    at: int, planned: Sequence[Condition], name: str, trial: TextTrial
) -> dict[str, Any]:
    change = trial.nll.difference(at).record()
    row = {**planned[at].as_dict(), **trial.level(at), "change": change}
    if planned[at].kind == "removed":
        for kind, suffix in CONTROLS.items():
            if rows := random_rows(at, planned, kind, name):
                row |= against_random(at, rows, trial.nll, suffix)
    return row
