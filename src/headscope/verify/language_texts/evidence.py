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
from itertools import chain
from math import exp, perm

import numpy as np
from numpy.typing import NDArray

from headscope.estimates import Estimate
from headscope.evidence.rows import (
    ORIGINAL,
    WHOLE,
    Condition,
    Evidence,
    Level,
    Statistic,
    Tested,
)
from headscope.evidence.table import evidence, evidence_of_parts
from headscope.heads import HeadSet
from headscope.measure.statistics import TIE, counted, p_draws
from headscope.measure.trial import Group, Trial
from headscope.progress import Progress
from headscope.results.language_texts import LayerCount, OwnText, Profile
from headscope.verify.language_texts.conditions import FULL, OWN, Text, language_of

#: `published_perplexity` is the mean over documents of exp of each one's own mean NLL (the code of
#: LAHIS); the other is exp of the NLL.
STATISTICS = {
    "nll": Statistic("NLL", "lower", unit="nats a token", digits=4),
    "perplexity": Statistic("perplexity", "lower"),
    "published_perplexity": Statistic("perplexity, published", "lower"),
}
#: The change of the NLL of a language's text minus the mean change of other languages' text.
CONTRAST = "contrast"
TOGETHER = {
    "nll": STATISTICS["nll"],
    CONTRAST: Statistic("change of own text minus that of others", "lower", "nats a token", 4),
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
            of = f"{OWN}{full}" if language_of(removal) else removal.of
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


def together(planned: Sequence[Condition], texts: Mapping[str, Text], seed: int = 0) -> Evidence:
    """Text without the heads of its own language, the mean over all languages that have some;
    conditions are those of `OWN` heads.

    `nll` is that of their own text, `contrast` its change minus the mean change of the other
    languages' text without the same heads. Every language has other heads, but the same random
    sets, so that no draw is what the selected heads are: p over draws is that of `p_dealt`.
    """
    own = {
        name: {
            replace(each, of=each.of and OWN + each.of.removeprefix(name)): at
            for at, each in enumerate(planned)
            if each.kind == ORIGINAL or language_of(each) == name
        }
        for name in texts
    }
    own = {name: conditions for name, conditions in own.items() if len(conditions) > 1}
    if not own:
        return Evidence()
    found = evidence_of_parts(
        {name: list(conditions) for name, conditions in own.items()},
        {
            name: {"nll": [_counted(texts[name], at) for at in conditions.values()]}
            for name, conditions in own.items()
        },
        {"nll": TOGETHER["nll"]},
        seed,
    )
    whole = WHOLE if len(own) > 1 else next(iter(own))
    levels = [row for row in found.levels if row.part == whole]
    tests = [row for row in found.tests if row.part == whole]
    places = {name: {each.id: at for each, at in of_name.items()} for name, of_name in own.items()}
    losses = {name: text.nll.sum(axis=1) / text.tokens.sum() for name, text in texts.items()}
    values = {"nll": losses}
    if len(texts) > 1:
        others = {name: [each for other, each in losses.items() if other != name] for name in texts}
        values[CONTRAST] = {name: losses[name] - np.mean(others[name], axis=0) for name in texts}
        for selected in found.selected:
            more, against = _contrast(found, selected, places, texts, seed)
            levels.append(replace(more, part=whole))
            tests += [replace(row, part=whole) for row in against]
    ids = {each.id: each for each in found.conditions}

    def dealt(test: Tested) -> Tested:
        if test.p_draws is None:
            return test
        drawn = [each.id for each in found.of_control(ids[test.condition], test.control)]
        series = {
            name: [of_name[key] for key in (test.condition, *drawn) if key in of_name]
            for name, of_name in places.items()
            if test.condition in of_name
        }
        sets = {name: [planned[at].heads for at in of_name] for name, of_name in series.items()}
        p, least = p_dealt(values[test.statistic], series, sets, seed)
        return replace(test, p_draws=p, least_p=least, at_least_as_harmful=None)

    return replace(
        found,
        statistics={name: TOGETHER[name] for name in values},
        levels=tuple(levels),
        tests=tuple(map(dealt, tests)),
    )


def p_dealt(
    values: Mapping[str, NDArray[np.float64]],
    series: Mapping[str, Sequence[int]],
    sets: Mapping[str, Sequence[Sequence[str]]],
    seed: int = 0,
    times: int = 9999,
) -> tuple[float, float]:
    """p that the selected sets of several languages are random sets like the others, by the mean
    over languages, and the least that it could be.

    If they are, all sets of languages that stand beside the same random ones might as well be dealt
    to these languages in any other way (a permutation test, Fisher 1935; of some of all ways,
    Phipson and Smyth 2010).

    Args:
        values: by language what each condition does to it, (conditions,).
        series: by language the places of its selected set and of the random ones beside it.
        sets: the heads of each of these.
    """
    beside: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for name, of_name in sets.items():
        beside.setdefault(tuple(map(tuple, of_name[1:])), []).append(name)
    random, sums, ways = np.random.default_rng(seed), np.zeros(times), 1
    for names in beside.values():
        own = [series[name][0] for name in names]
        table = np.array([values[name][[*own, *series[name][1:]]] for name in names])
        orders = random.permuted(np.tile(np.arange(table.shape[1]), (times, 1)), axis=1)
        sums += table[np.arange(len(names)), orders[:, : len(names)]].sum(axis=1)
        ways *= perm(table.shape[1], len(names))
    selected = sum(float(values[name][of_name[0]]) for name, of_name in series.items())
    as_far = int((sums >= selected - TIE * max(1.0, abs(selected))).sum())
    return (1 + as_far) / (1 + times), max(1 / ways, 1 / (1 + times))


def _counted(text: Text, at: int) -> NDArray[np.float64]:
    """The losses of each document under a condition, and its tokens, (documents, 2)."""
    return np.stack([text.nll[at], text.tokens], axis=-1)


def _contrast(
    found: Evidence,
    selected: Condition,
    places: Mapping[str, Mapping[str, int]],
    texts: Mapping[str, Text],
    seed: int,
) -> tuple[Level, list[Tested]]:
    """The contrast of some heads, and beyond that of their draws, where these were read on all
    texts; `places` are those of conditions, by language and id."""
    known = {name: of_name for name, of_name in places.items() if selected.id in of_name}

    def everywhere(draw: Condition) -> bool:
        return all(
            draw.id in of_name and not np.isnan(text.nll[of_name[draw.id]]).any()
            for of_name in known.values()
            for text in texts.values()
        )

    drawn = {
        control: sets
        for control, about in found.controls.items()
        if about.null
        and (sets := found.of_control(selected, control))
        and all(map(everywhere, sets))
    }
    ids = [each.id for each in (found.original, selected, *chain.from_iterable(drawn.values()))]
    mine, others = list[Group](), list[Group]()
    for name, of_name in known.items():
        for other, text in texts.items():
            group = Group([_counted(text, of_name[key]) for key in ids], seed=seed)
            (mine if other == name else others).append(group)
    own, rest = Trial(mine), Trial(others)
    scores, estimates = own.scores - rest.scores, own.estimates - rest.estimates

    def beyond(at: Sequence[int]) -> Estimate:
        value = float(scores[1] - scores[at].mean())
        return Estimate.of(value, estimates[:, 1] - estimates[:, at].mean(axis=1))

    change, start, tests = beyond([0]), 2, list[Tested]()
    for control, sets in drawn.items():
        at = list(range(start, start := start + len(sets)))
        tests.append(
            Tested(
                part=WHOLE, statistic=CONTRAST, condition=selected.id, control=control,
                difference=beyond(at), p_draws=1.0, draws=len(sets), side="higher",
            )
        )  # fmt: skip
    level = Level(
        **vars(change), part=WHOLE, statistic=CONTRAST, condition=selected.id, change=change,
        examples=sum(group.examples for group in mine),
    )  # fmt: skip
    return level, tests


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
) -> tuple[OwnText, ...]:
    """Each language's own text against the other text that rises most without its heads.

    The other is found anew in every bootstrap draw; for p over draws each different set is counted
    once.
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
        rest = [rises[language][:, at] for language in others]
        ranks, drawn, as_far = {}, {}, {}
        for control, about in found.controls.items():
            draws = {
                frozenset(draw.heads): own
                for draw in found.of_control(condition, control)
                if not np.isnan(own := margin(draw))
            }
            if draws and about.null:
                own, beside = margin(condition), np.array(list(draws.values()))
                drawn[control], as_far[control] = len(beside), int((beside >= own).sum())
                ranks[control] = p_draws(-own, -beside)
        made.append(
            OwnText(
                condition=condition.id,
                language=name,
                other=largest,
                difference=Estimate.of(
                    margin(condition), rises[name][:, at] - np.max(rest, axis=0)
                ),
                mean_difference=Estimate.of(
                    change(name, condition)
                    - float(np.mean([change(language, condition) for language in others])),
                    rises[name][:, at] - np.mean(rest, axis=0),
                ),
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
