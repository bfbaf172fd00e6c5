"""What an atlas shows: heads, classes, directions, and what removing the best heads does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headscope.ablations import gives
from headscope.compare.overlap_sets import group_overlaps
from headscope.evidence.blocks import by_part, forest, tables
from headscope.evidence.headline import Case, headline, uncertainty
from headscope.evidence.rows import Evidence
from headscope.results.atlas import AtlasOverlap, AtlasResult
from headscope.results.translation_score import TranslationScores
from headscope.shown.blocks import METHOD, HeadSets, NotMeasured, Section, Shown
from headscope.shown.words import MEAN, count, enumeration, languages_of, sentence_of
from headscope.studies.find.translation_score import (
    alignment_finding,
    classes_table,
    every_head,
    layers_map,
    links_caution,
    sentences_section,
)
from headscope.studies.sentences import sentences_of
from headscope.studies.shows import ablation_facts, few_caution, model_facts, overlap_blocks, places
from headscope.studies.verify.removal_show import leads


def show_atlas(result: AtlasResult, run: Path) -> Shown:
    """The heads first, then their removal, every head, directions, sentences."""
    directions, evidence = result.directions, result.evidence
    several: dict[str, TranslationScores] = {MEAN: result} if len(directions) > 1 else {}
    parts = {**several, **directions}
    by = "above_chance" if result.rank == "above-chance" else "score"
    k = evidence.main.k
    ranked = sorted(result.scored, key=lambda head: (head.rank or 0, -(head.number(by) or 0.0)))
    best = HeadSets(f"The {k} best heads", {"best": places(head.place for head in ranked[:k])})
    rows = by_part(evidence, "chrf", evidence.main) if evidence.level("chrf") else []
    removal = forest(evidence, rows, "chrF++: selected minus random heads", examples="sentences")
    missing = NotMeasured("chrF++", "it has not been computed for this run")
    sections = [
        Section("Heads", [best]),
        Section("Removal", [removal or missing], brief=True),
        tables(evidence, ["chrf"], [evidence.main], "sentences"),
        Section("Layers", [layers_map(parts, by, result.threshold)]),
        Section("Classes of heads", [classes_table(parts, result)]),
        *sentences_section(result.scored, result.run or run),
        *([_overlap(result.overlap, list(directions))] if result.overlap.pairs else []),
        Section(
            "Sentences",
            [sentences_of(run, evidence, evidence.main, result.details.removed.links)],
        ),
        Section(METHOD, [], after=_method(result)),
    ]
    languages = {code for name in directions for code in languages_of(name) if code}
    finding = _finding(result, by)
    return Shown(
        "Atlas of attention heads",
        "Which heads find the source word while the model translates, and what happens without "
        "them?",
        finding,
        uncertainty(evidence, [removal_case(evidence)], _examples(result), " ".join(finding)),
        cautions=list(_cautions(result)),
        facts=[
            *model_facts(result.model_name, len(result.scored)),
            ("directions", str(len(directions))),
            ("languages", str(len(languages))),
            *ablation_facts(result.details),
        ],
        sections=sections,
        figure=every_head(parts, result, by),
        next=result.next,
    )


def _finding(result: AtlasResult, by: str) -> list[str]:
    answer, _ = alignment_finding(result, by)
    evidence = replace(result.evidence, asked=result.details.draws)
    removal = headline(evidence, [removal_case(evidence)], "sentence")
    return [sentence_of(removal), answer]


def removal_case(evidence: Evidence) -> Case:
    """The removal of the best heads."""
    best, main = f"the {evidence.main.k} best heads", evidence.main
    lead = f"With {best} {main.done}" if gives(main.replacement) else f"Without {best}"
    return Case(leads(evidence)[0], main, lead=lead)


def _examples(result: AtlasResult) -> str:
    scored, checked = (
        sum(getattr(read, name) for read in result.data.values())
        for name in ("found_on", "verified_on")
    )
    return f"{count(checked, 'sentence')} ({count(scored, 'other')} scored)"


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
