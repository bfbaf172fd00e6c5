"""What an atlas shows: heads, classes, directions, and what removing the best heads does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from headscope.compare.sets import group_overlaps
from headscope.evidence.blocks import draws_table
from headscope.results.atlas import AtlasOverlap, AtlasResult
from headscope.results.translation import TranslationScores
from headscope.shown.blocks import Block, HeadSets, NotMeasured, Section, Shown
from headscope.shown.words import MEAN, count, enumeration, fixed, languages_of, p_value
from headscope.studies.find.translation import (
    alignment_finding,
    classes_table,
    every_head,
    layers_map,
    links_caution,
    sentences_section,
)
from headscope.studies.sentences import sentences_of
from headscope.studies.shows import ablation_facts, few_caution, model_facts, overlap_blocks, places
from headscope.studies.verify.removal_show import effect, remedy_of, said_of, uncertainty


def show_atlas(result: AtlasResult, run: Path) -> Shown:
    """The heads first, then their removal, every head, directions, sentences."""
    directions, evidence = result.directions, result.evidence
    several: dict[str, TranslationScores] = {MEAN: result} if len(directions) > 1 else {}
    parts = {**several, **directions}
    by = "above_chance" if result.rank == "above-chance" else "score"
    k = evidence.main.k
    ranked = sorted(result.heads, key=lambda head: (head.rank or 0, -(head.number(by) or 0.0)))
    best = HeadSets(f"The {k} best heads", {"best": places(head.place for head in ranked[:k])})
    classes = classes_table(several or parts, result)
    sections = [
        Section("Classes of heads", [classes, best], brief=True),
        Section("Every head", [every_head(parts, result, by)]),
        *sentences_section(result.heads, result.run or run),
    ]
    sections.insert(
        1, Section("Removal", [*_effect(result), draws_table(evidence, ["chrf"], evidence.main)])
    )
    layers = layers_map(parts, result)
    if several:
        sections.append(Section("Classes by direction", [classes_table(parts, result), layers]))
    else:
        sections.append(Section("Layers", [layers]))
    if result.overlap.pairs:
        sections.append(_overlap(result.overlap, list(directions)))
    outputs = sentences_of(run, evidence, evidence.main, result.details.removed.links)
    sections.append(Section("Sentences", [outputs]))
    sections.append(Section("Method", [], after=_method(result)))
    languages = {code for name in directions for code in languages_of(name) if code}
    return Shown(
        "Atlas of attention heads",
        "Which heads find the source word while the model translates, and what happens without "
        "them?",
        _finding(result, by),
        _uncertainty(result),
        *remedy_of(evidence, "chrf"),
        list(_cautions(result)),
        [
            *model_facts(result.model_name, len(result.heads)),
            ("directions", str(len(directions))),
            ("languages", str(len(languages))),
            *ablation_facts(result.details),
        ],
        sections,
    )


def _effect(result: AtlasResult) -> list[Block]:
    """chrF++ of all directions and of each, beside random heads."""
    if result.evidence.level("chrf") is None:
        return [NotMeasured("chrF++", "it has not been computed for this run")]
    return effect(result.evidence, "chrf")


def _finding(result: AtlasResult, by: str) -> list[str]:
    sentences = [*alignment_finding(result, by), *said_of(result.evidence, "chrf")]
    if pairs := result.overlap.pairs:
        mean, chance = (fmean(getattr(p, name) for p in pairs) for name in _JACCARD)
        lowest = min(pairs, key=lambda pair: pair.jaccard)
        sentences.append(
            f"The {result.overlap.k} best heads of two directions have a Jaccard index of "
            f"{fixed(mean, 2)} (mean of {count(len(pairs), 'pair')}; {fixed(chance, 2)} by "
            f"chance), at least {fixed(lowest.jaccard, 2)} (p\u00a0=\u00a0"
            f"{p_value(lowest.p_value)})."
        )
    return sentences


_JACCARD = ("jaccard", "expected_exact")


def _uncertainty(result: AtlasResult) -> str:
    scored, checked = (
        sum(getattr(read, name) for read in result.data.values())
        for name in ("found_on", "verified_on")
    )
    words = uncertainty(result.evidence, "chrf")
    return (
        f"Scores: {count(scored, 'sentence pair')}; removal: {count(checked, 'other sentence')}. "
        f"{words}"
    )


def _cautions(result: AtlasResult) -> Iterator[str]:
    fewest = min((part.examples or 0 for part in result.directions.values()), default=0)
    yield from few_caution(fewest, "sentence pair", "sentence pairs")
    if result.counts_above_chance is None:
        yield "Chance is not known at every head, so heads are not corrected for it."
    yield from links_caution(result.directions.values())
    yield from result.cautions


def _overlap(overlap: AtlasOverlap, directions: list[str]) -> Section:
    clear, many = sum(pair.p_value < 0.05 for pair in overlap.pairs), len(overlap.pairs)
    lead = (
        f"In {clear} of {count(many, 'pair')} the {overlap.k} best heads overlap more than "
        f"random sets would in 5\u00a0% of cases (about {round(0.05 * many)} expected by chance)."
    )
    groups = group_overlaps(overlap.pairs, {name: name for name in directions})
    return Section("Directions", overlap_blocks(overlap.pairs, groups), lead)


def _method(result: AtlasResult) -> list[str]:
    words = [
        "Translation Score (TS): share of target tokens for which the key that the head weighs "
        "most, at the step that predicts the token, belongs to the source word aligned with it. "
        "Chance: the same peaks against the word links of other sentences of similar length. Same "
        "form and other form: TS where the source word is spelled like the target word (names, "
        "digits), and where it is not.",
        "Chance is high where sentences are short and word orders alike, since a head that looks "
        "at a fixed distance then often hits the right word. The highest of many noisy scores are "
        "biased upwards; intervals do not correct for that.",
    ]
    units = sorted({read.units for read in result.data.values() if read.units})
    if units:
        words.append(
            f"Words are split by {enumeration(units)}; tokens without a link are not counted."
        )
    words.append(
        "A score says where a head looks; only its removal says whether the model needs it. "
        "Removal is measured on sentences that were not used to find the heads. "
        "chrF++ counts character and word sequences shared with one reference: it measures "
        "form, so read the outputs."
    )
    return words
