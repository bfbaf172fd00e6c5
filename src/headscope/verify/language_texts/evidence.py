"""What removals do to each language's text, from stored losses of documents.

Effects are changes of the mean negative log-likelihood (NLL) in nats a token, each token counting
the same: perplexities of languages start from different heights, and their ratios are these
differences. The cross-language matrix, whose loss rises when a language's heads are removed, and
the removal of whole layers are those of LAHIS (Liu et al. 2025, arXiv 2511.07498).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp

import numpy as np

from headscope.estimates import Estimate
from headscope.evidence.rows import ORIGINAL, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.heads import HeadSet
from headscope.measure.sequence import Rule, until_first
from headscope.measure.statistics import counted, p_draws
from headscope.measure.trial import Group
from headscope.progress import Progress
from headscope.results.language_texts import LayerCount, OwnText, Profile
from headscope.verify.language_texts.conditions import FULL, Text, language_of

#: `published_perplexity` is the mean over documents of exp of each one's own mean NLL (the code of
#: LAHIS); the other is exp of the NLL.
STATISTICS = {
    "nll": Statistic("NLL", "lower", unit="nats a token", digits=4),
    "perplexity": Statistic("perplexity", "lower"),
    "published_perplexity": Statistic("perplexity, published", "lower"),
}


def text_evidence(
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    seed: int = 0,
    progress: Progress | None = None,
) -> Evidence:
    """Losses and perplexities of each language's text under every condition it was read under.

    Languages with equally many documents, which may be translations of each other, are resampled
    alike. There is no mean over languages.
    """
    parts = {}
    for name, (nll, tokens) in texts.items():
        read = [None if np.isnan(losses).any() else losses for losses in nll]
        parts[name] = {
            "nll": [
                None if losses is None else np.stack([losses, tokens], axis=-1) for losses in read
            ],
            "published_perplexity": [
                None if losses is None else counted(np.exp(losses / tokens)) for losses in read
            ],
        }
    found = evidence(planned, parts, STATISTICS, seed, ("nll",), STATISTICS, progress=progress)
    perplexities = tuple(
        replace(
            row,
            statistic="perplexity",
            change=None,
            value=exp(row.value),
            low=exp(row.low),
            high=exp(row.high),
        )
        for row in found.levels
        if row.statistic == "nll"
    )
    return replace(found, statistics=STATISTICS, levels=(*found.levels, *perplexities))


def own_view(found: Evidence) -> Evidence:
    """Each language's text without its own heads alone: the table with a row for all languages'.

    Conditions are those of `own` heads; heads that belong to no language are every language's.
    """
    conditions: dict[str, Condition] = {}
    for removal in found.conditions:
        if removal.kind == ORIGINAL or language_of(removal) in ("", *found.parts):
            full = FULL if removal.of.endswith(FULL) else ""
            of = f"own{full}" if language_of(removal) else removal.of
            conditions[removal.id] = replace(removal, of=of, heads=() if of else removal.heads)
    whose = {condition.id: language_of(condition) for condition in found.conditions}

    def about(part: str, condition: str) -> bool:
        return condition in conditions and whose[condition] in ("", part)

    return replace(
        found,
        conditions=tuple({condition.id: condition for condition in conditions.values()}.values()),
        levels=tuple(
            replace(row, condition=conditions[row.condition].id)
            for row in found.levels
            if about(row.part, row.condition)
        ),
        tests=tuple(
            replace(row, condition=conditions[row.condition].id)
            for row in found.tests
            if about(row.part, row.condition)
        ),
    )


def matrix(
    found: Evidence, conditions: Sequence[Condition], control: str = ""
) -> dict[str, dict[str, Estimate]]:
    """Heads of one language, by `of`, and text of another: the change of NLL, or that above a
    control, as far as it was read."""
    cells: dict[str, dict[str, Estimate]] = {condition.of: {} for condition in conditions}
    for condition in conditions:
        for part in found.parts:
            row, test = found.level("nll", condition, part), found.against("nll", condition, part)
            if not control and row is not None and row.change is not None:
                cells[condition.of][part] = row.change
            elif control in test:
                cells[condition.of][part] = test[control].difference
    return cells


def own_texts(
    found: Evidence,
    planned: Sequence[Condition],
    texts: Mapping[str, Text],
    seed: int = 0,
    rule: Rule | None = None,
) -> tuple[OwnText, ...]:
    """Each language's own text against the other text that rises most without its heads.

    The other is found anew in every bootstrap draw; for p over draws each different set is counted
    once. `rule` "first": p is that of the first which does as much, valid whatever ended the draws.
    """
    tops = [planned.index(condition) for condition in found.selected]
    rises = {}
    for name, (nll, tokens) in texts.items():
        rows = [np.stack([nll[at], tokens], axis=-1) for at in (0, *tops)]
        estimates = Group(rows, seed=seed).estimates
        rises[name] = estimates[:, 1:] - estimates[:, :1]
    made = []
    for at, condition in enumerate(found.selected):
        name = language_of(condition)
        others = [language for language in texts if language != name]
        if name not in texts or not others:
            continue

        def change(part: str, condition: Condition) -> float:
            row = found.level("nll", condition, part)
            return np.nan if row is None or row.change is None else row.change.value

        def margin(condition: Condition, name: str = name, others: Sequence[str] = others) -> float:
            return float(
                change(name, condition)
                - np.max([change(language, condition) for language in others])
            )

        largest = max(others, key=lambda language: change(language, condition))
        top = np.max([rises[language][:, at] for language in others], axis=0)
        ranks, drawn, as_far = {}, {}, {}
        for control, about in found.controls.items():
            draws = {
                frozenset(draw.heads): own
                for draw in found.of_control(condition, control)
                if not np.isnan(own := margin(draw))
            }
            if draws and about.null:
                own, beside = margin(condition), np.array(list(draws.values()))
                in_order = rule == "first"
                drawn[control], as_far[control] = len(beside), int((beside >= own).sum())
                ranks[control] = (
                    until_first(beside >= own).p if in_order else p_draws(-own, -beside)
                )
        made.append(
            OwnText(
                condition=condition.id,
                language=name,
                other=largest,
                difference=Estimate.of(margin(condition), rises[name][:, at] - top),
                p_draws=ranks,
                draws=drawn,
                at_least_as_harmful=as_far,
            )
        )
    return tuple(made)


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
