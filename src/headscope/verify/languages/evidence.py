"""What removals do to each language's text, from stored losses of documents.

Effects are changes of the mean negative log-likelihood (NLL) in nats a token, each token counting
the same: perplexities of languages start from different heights, and their ratios are these
differences. The cross-language matrix, whose loss rises when a language's heads are removed, and
the removal of whole layers are those of LAHIS (Liu et al. 2025, arXiv 2511.07498).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Estimate
from headscope.heads import HeadSet
from headscope.measure.statistics import counted, p_draws
from headscope.measure.trial import Group, Trial
from headscope.results.language_texts import (
    Answer,
    LanguageLayers,
    LanguageText,
    LayerCount,
    Level,
    Matrix,
    OtherText,
    OwnText,
    Profile,
    Role,
    WithoutHeads,
    WithoutLayer,
)
from headscope.results.removal import CONTROLS
from headscope.verify.languages.conditions import Text, TextCondition


@dataclass(frozen=True, eq=False)
class TextTrial:
    """The text of one language under all conditions.

    Attributes:
        tokens: int64 (D,), the predicted tokens of each document.
        nll: the token-weighted mean NLL, nats a token.
        published: the published perplexity, the mean over documents of exp of each one's own mean
            NLL (the code of LAHIS, arXiv 2511.07498).
    """

    tokens: NDArray[np.int64]
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
        return {
            "documents": int(self.tokens.size),
            "tokens": int(self.tokens.sum()),
            "baseline": Level(**self.levels(0)),
        }


def text_trials(
    planned: Sequence[TextCondition], texts: Mapping[str, Text], seed: int = 0
) -> dict[str, TextTrial]:
    """Each language's text as a trial.

    Languages with equally many documents, which may be translations of each other, are resampled
    alike.
    """
    removed = [condition.key for condition in planned]
    trials = {}
    for name, (nll, tokens) in texts.items():
        read = [None if np.isnan(losses).any() else losses for losses in nll]
        sums = [None if losses is None else np.stack([losses, tokens], axis=-1) for losses in read]
        own = [None if losses is None else counted(np.exp(losses / tokens)) for losses in read]
        weighted, published = (
            Trial([Group(each, sets=removed, seed=seed)]) for each in (sums, own)
        )
        trials[name] = TextTrial(tokens, weighted, published)
    return trials


def describe_languages(
    planned: Sequence[TextCondition], trials: Mapping[str, TextTrial]
) -> dict[str, LanguageText]:
    """For each language its text under the removals that are about it.

    Heads that are removed for themselves stand beside random ones: p over documents is by
    approximate randomisation that swaps single documents with those under a random draw, p over
    draws by the distinct ones. A set that belongs to no language is told for every language.
    """

    def row(at: int, name: str, trial: TextTrial) -> WithoutHeads:
        random: dict[str, Any] = {}
        if planned[at].kind == "removed":
            for kind, suffix in CONTROLS.items():
                if draws := _random_rows(at, planned, kind, name):
                    random |= _beside_random(at, draws, trial.nll, suffix)
        change = trial.nll.difference(at)
        return WithoutHeads(**planned[at].as_dict(), **trial.levels(at), change=change, **random)

    return {
        name: LanguageText(
            **trial.about(),
            conditions=tuple(
                row(at, name, trial)
                for at, condition in enumerate(planned)
                if at
                and name in condition.texts
                and (condition.of == name or condition.of not in trials)
            ),
        )
        for name, trial in trials.items()
    }


def _random_rows(at: int, planned: Sequence[TextCondition], kind: str, language: str) -> list[int]:
    """The random draws of one kind beside a removal that this language's text was read under."""
    removal = planned[at]
    alike = (removal.of, removal.role, removal.k, kind)
    return [
        place
        for place, other in enumerate(planned)
        if (other.of, other.role, other.k, other.kind) == alike and language in other.texts
    ]


def _beside_random(at: int, draws: Sequence[int], nll: Trial, suffix: str = "") -> dict[str, Any]:
    """What random draws do, and what a removal has over them: fields of a result's row."""
    against = nll.against(at, draws, "higher")
    return {f"random{suffix}": nll.changes(draws), f"against{suffix or '_random'}": against}


def describe_layers(
    planned: Sequence[TextCondition], trials: Mapping[str, TextTrial]
) -> dict[str, LanguageLayers]:
    """For each language its text as it is and without each layer, beside as many random heads."""
    draws: dict[int, list[int]] = {}
    for at, condition in enumerate(planned):
        if condition.kind == "random":
            draws.setdefault(condition.k, []).append(at)
    return {
        name: LanguageLayers(
            **trial.about(),
            layers=tuple(
                WithoutLayer(
                    layer=int(condition.of),
                    heads=len(condition.heads),
                    **trial.levels(at),
                    change=trial.nll.difference(at),
                    **_beside_random(at, draws[condition.k], trial.nll),
                )
                for at, condition in enumerate(planned)
                if condition.kind == "removed"
            ),
            draws={str(size): trial.nll.changes(places).each for size, places in draws.items()},
        )
        for name, trial in trials.items()
    }


def profile(heads: HeadSet) -> Profile:
    """How many of a set's heads lie in each layer."""
    counts = Counter(head.layer for head in heads)
    total, every = max(1, len(heads)), heads.geometry
    return Profile(
        len(heads),
        tuple(
            LayerCount(layer, size, counts[layer], counts[layer] / total, size / every.total)
            for layer, size in enumerate(every.counts)
        ),
    )


def matrices(planned: Sequence[TextCondition], trials: Mapping[str, TextTrial]) -> list[Matrix]:
    """One matrix for each role of heads and each k: heads of one language, text of another.

    A language's own text is compared with the other that rises most, which is chosen anew in every
    bootstrap draw; for p over draws each different set is counted once.
    """
    nll = {name: trial.nll for name, trial in trials.items()}
    removed = [condition for condition in planned if condition.kind == "removed"]
    roles: tuple[Role, ...] = ("chosen", "full")
    return [
        _matrix(role, k, planned, nll)
        for role in roles
        for k in sorted({condition.k for condition in removed if condition.role == role})
    ]


def _matrix(
    role: Role, k: int, planned: Sequence[TextCondition], trials: Mapping[str, Trial]
) -> Matrix:
    rows = {
        condition.of: at
        for at, condition in enumerate(planned)
        if (condition.role, condition.k, condition.kind) == (role, k, "removed")
    }

    def cell(at: int, name: str, kind: str, above: bool) -> Estimate | None:
        """What random draws do to a text, or with `above` how much more the heads do."""
        draws = _random_rows(at, planned, kind, name)
        if not draws:
            return None
        return trials[name].difference(at, draws) if above else trials[name].difference(draws)

    random: dict[str, Any] = {
        f"{field}{suffix}": tuple(
            tuple(cell(at, name, kind, above) for name in trials) for at in rows.values()
        )
        for kind, suffix in CONTROLS.items()
        for field, above in (("random", False), ("above_random", True))
    }
    own: dict[str, OwnText] = {}
    if len(trials) > 1:
        own = {name: _own(name, at, planned, trials) for name, at in rows.items() if name in trials}
    compared = {"own_rises_most": [text.own_minus_largest_other for text in own.values()]}
    texts = list(trials)
    for suffix in CONTROLS.values():
        cells = random[f"above_random{suffix}"]
        diagonal = [cells[at][texts.index(name)] for at, name in enumerate(rows) if name in own]
        compared[f"above_random{suffix}"] = [cell for cell in diagonal if cell is not None]
    answer: dict[str, Any] = {}
    for name, changes in compared.items():
        if changes:
            answer[name] = sum(change.value > 0 for change in changes)
            answer[f"{name}_surely"] = sum(change.low > 0 for change in changes)
    return Matrix(
        role=role,
        k=k,
        heads_of=tuple(rows),
        text_of=tuple(trials),
        sizes=tuple(len(planned[at].heads) for at in rows.values()),
        change=tuple(
            tuple(trial.difference(at) for trial in trials.values()) for at in rows.values()
        ),
        **random,
        own=own,
        answer=Answer(languages=len(own), **answer) if own else None,
    )


def _own(
    name: str, at: int, planned: Sequence[TextCondition], trials: Mapping[str, Trial]
) -> OwnText:
    """A language's own text against the text of another language that rises most."""
    others = [other for other in trials if other != name]
    rises = {other: trial.scores - trial.scores[0] for other, trial in trials.items()}
    margins = rises[name] - np.max([rises[other] for other in others], axis=0)
    largest = max(others, key=lambda other: float(rises[other][at]))
    estimates = {
        other: trial.estimates[:, at] - trial.estimates[:, 0] for other, trial in trials.items()
    }
    top = np.max([estimates[other] for other in others], axis=0)
    random: dict[str, Any] = {}
    for kind, suffix in CONTROLS.items():
        places = [
            place
            for place in _random_rows(at, planned, kind, name)
            if all(other in planned[place].texts for other in others)
        ]
        if places:
            random[f"random{suffix}"] = tuple(margins[places].tolist())
            different = trials[name].distinct(places)
            random[f"p_draws{suffix}"] = p_draws(-margins[at], -margins[different])
    return OwnText(
        own=float(rises[name][at]),
        largest_other=OtherText(largest, float(rises[largest][at])),
        own_minus_largest_other=Estimate.of(margins[at], estimates[name] - top),
        **random,
    )
