"""The page's first lines: what was found, in words made from the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headscope.heads import count_words
from headscope.report.html import Html, join, tag
from headscope.report.records.atlas import AtlasRecord
from headscope.report.sections.evidence import doing
from headscope.report.sections.removal import verdict
from headscope.shown.words import count, fixed, languages_of, p_value, percent, ranges, sentence_of

__all__ = ["masthead", "summary_section"]


def masthead(record: AtlasRecord, more: str = "") -> Html:
    """The title with the model, and facts on the run; `more` is one of them."""
    many = len(record.directions)
    languages = {part for name in record.directions for part in languages_of(name) if part}
    when = str(record.provenance.get("ended") or "")[:10]
    facts = [count(many, "direction"), count(len(languages), "language"), when, more]
    return tag(
        "header",
        tag("p", "headscope atlas", class_="kicker"),
        tag("h1", tag("bdi", str(record.model.get("name") or "model"))),
        tag(
            "p",
            "Which attention heads find the source word while the model translates, and what "
            "happens without them.",
            class_="lead",
        ),
        tag("p", " \u00b7 ".join(fact for fact in facts if fact), class_="facts"),
        class_="masthead",
    )


def summary_section(record: AtlasRecord) -> Html:
    """The plain-words summary: how many heads, where, what removal did, how sure."""
    tiles = [tile for tile in _tiles(record) if tile]
    words = [_found(record), _removed(record), _shared(record), _sure(record)]
    return tag(
        "section",
        tag("h2", "In short", id="summary-title", class_="unseen"),
        tag("dl", tiles, class_="tiles"),
        [tag("p", text) for text in words if text],
        id="summary",
        aria_labelledby="summary-title",
    )


def _tiles(record: AtlasRecord) -> list[Html]:
    aligned, beside = _aligned(record)
    tiles = [
        (
            f"{count_words(aligned)} of {record.scores[record.main].geometry.total}",
            f"token alignment heads{f'; {beside}' if beside else ''}{_mean(record)}",
        )
    ]
    effect = record.removal.whole if record.removal else None
    if effect and record.removal:
        tiles += [
            (
                f"{fixed(effect.baseline, 1)} \u2192 {fixed(effect.top, 1)}",
                f"chrF++ without the {record.removal.k} highest",
            ),
            (
                f"{fixed(effect.baseline, 1)} \u2192 {fixed(effect.random_mean, 1)}",
                f"chrF++ without {record.removal.k} random heads",
            ),
        ]
    if record.overlap:
        mean = sum(pair.jaccard for pair in record.overlap) / len(record.overlap)
        tiles.append((fixed(mean, 2), f"Jaccard of the top {record.top_k} between directions"))
    return [tag("div", tag("dt", words), tag("dd", number)) for number, words in tiles]


def _aligned(record: AtlasRecord) -> tuple[float, str]:
    """How many heads are token alignment heads by what ranks them, and by the other measure."""
    plain = record.counts[record.main].token_alignment
    above = record.counts_above_chance.get(record.main)
    if above is None:
        return plain, ""
    if record.rank == "score":
        return plain, f"corrected for chance {count_words(above.token_alignment)}"
    return above.token_alignment, f"by TS alone, as in the paper, {count_words(plain)}"


def _mean(record: AtlasRecord) -> str:
    many = record.counted_over
    return f" (mean of {many} directions)" if many > 1 else ""


def _found(record: AtlasRecord) -> Html:
    scores, (number, beside) = record.scores[record.main], _aligned(record)
    total, corrected = scores.geometry.total, record.rank == "above-chance"
    ranked = scores.ranked(record.rank)
    head = ranked[0][0]
    entry: Mapping[str, Any] = next(one for one in scores.records(record.rank) if one["rank"] == 1)
    where = ""
    layers = [one.layer for one, value in ranked if value > record.threshold]
    if layers:
        # Of several directions the number of heads is a mean, and these are counts on the mean.
        most = max(map(layers.count, layers))
        fullest = {layer for layer in layers if layers.count(layer) == most}
        each = f" ({most}{' each' if len(fullest) > 1 else ''})" if record.counted_over == 1 else ""
        where = f" They lie in {_layers(layers)}" + (
            f", most of them in {_layers(fullest)}{each}." if fullest != set(layers) else "."
        )
    beyond = f" {sentence_of(f'{beside} exceed {fixed(record.threshold, 2)}')}" if beside else ""
    interval = (
        ""
        if entry["low"] is None
        else f" (95\u00a0% interval {fixed(entry['low'], 2)} to {fixed(entry['high'], 2)})"
    )
    chance = (
        "" if entry.get("chance") is None else f", against {fixed(entry['chance'], 2)} by chance"
    )
    return join(
        tag(
            "strong",
            f"{count_words(number)} of the {total} attention heads ({percent(number / total)}) are "
            "token alignment heads",
        ),
        _mean(record),
        ": while the model writes a translation, the place they look at most is, for more than "
        f"{percent(record.threshold)} of the tokens"
        f"{' (corrected for chance)' if corrected else ''}, the source word that the token "
        f"translates.{where}{beyond} The strongest is head {head}: "
        f"{fixed(entry['score'], 2)}{interval}{chance}.",
    )


def _layers(numbers: Iterable[int]) -> str:
    known = set(numbers)
    return f"{'layer' if len(known) == 1 else 'layers'}\u00a0{ranges(known)}"


def _removed(record: AtlasRecord) -> Html | None:
    removal = record.removal
    effect = None if removal is None else removal.whole
    if removal is None or effect is None:
        return None
    beaten = sum(part.at_least_as_harmful == 0 for part in removal.single.values())
    many = len(removal.single)
    across = (
        f" That holds in {beaten} of {many} directions taken one by one."
        if many > 1 and effect.at_least_as_harmful == 0
        else ""
    )
    return join(verdict(effect, removal.k, doing(0.0, removal.ablate)), across)


def _shared(record: AtlasRecord) -> Html | None:
    if not record.overlap:
        return None
    pairs = record.overlap
    mean = sum(pair.jaccard for pair in pairs) / len(pairs)
    chance = sum(pair.expected_exact for pair in pairs) / len(pairs)
    lowest = min(pairs, key=lambda pair: pair.jaccard)
    verb = "share" if mean > 2 * chance else "hardly share"
    average = f", mean of {len(pairs)} pairs" if len(pairs) > 1 else ""
    least = f", at the least by {fixed(lowest.jaccard, 2)}" if len(pairs) > 1 else ""
    return join(
        f"The directions {verb} their heads: two top-{record.top_k} sets overlap by "
        f"{fixed(mean, 2)} (Jaccard{average}; {fixed(chance, 2)} would be chance){least} "
        f"(p\u00a0{p_value(lowest.p_value)}).",
    )


def _sure(record: AtlasRecord) -> Html:
    data = dict(record.result.get("data") or {})
    found = sum(int(part.get("found_on") or 0) for part in data.values())
    verified = sum(int(part.get("verified_on") or 0) for part in data.values())
    draws = len(record.removal.random) if record.removal else 0
    parts = [f"Scores rest on {count(found, 'sentence pair')}"]
    if record.removal and verified:
        parts.append(f"the removal on {verified:,} others".replace(",", "\u202f"))
    text = ", ".join(parts) + "."
    if draws:
        text += (
            f" With {count(draws, 'random draw')} the removal is a quick check, not a proof; "
            "its p-value over draws could not be lower than "
            f"{p_value(1 / (1 + draws))}."
        )
    return tag("span", f"How sure: {text[0].lower()}{text[1:]}", class_="sure")
