"""The page of every command that compares a model with and without heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from headscope.evidence.blocks import forest, forests_by_unit, named_part, tables
from headscope.evidence.headline import Case, examples_words, uncertainty, unmoved
from headscope.evidence.rows import Condition, Evidence
from headscope.results.common import ComparedResult
from headscope.shown.blocks import Block, HeadSets, NotMeasured, Section, Shown, method_section
from headscope.shown.words import capitalised, enumeration, sentence_of
from headscope.studies.shows import ablation_facts, model_facts, named_places

#: A figure of more statistics does not name them in its title.
FEW_TITLES = 2


@dataclass(frozen=True)
class Words:
    """What the page of a command says of every result.

    Attributes:
        title: of the page.
        question: what is asked, in a sentence.
        example: what an example is called, in the singular.
        method: how it was measured.
        option: what gives more random sets.
        case, joint: what one of several cases is called, and the word before their names.
    """

    title: str
    question: str
    example: str
    method: str
    option: str = "--draws"
    case: str = "case"
    joint: str = "in"


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What the page of a result says that does not follow from its table.

    Attributes:
        evidence: what of the table is compared, where other blocks show the rest.
        statistics: those of which the verdict is, in one unit; without them the first.
        conditions: selected heads that the figure compares, of the first of which the sentence
            speaks; without them the main ones.
        sentences: what follows the verdict.
        rests_on: what intervals are over, instead of the number of examples.
        heads: the selected heads by name, instead of those of the conditions.
        facts: names and words next to the title.
        sections: of outputs, charts and tables of numbers that are not in the table.
        missing: why a measure was not taken, by its name.
        figure: instead of the difference from random heads.
        sides: what lies left and right of no difference, where neither is worse.
    """

    evidence: Evidence | None = None
    statistics: Sequence[str] = ()
    conditions: Sequence[Condition] = ()
    sentences: Sequence[str] = ()
    rests_on: str = ""
    heads: Mapping[str, Iterable[str]] | None = None
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    figure: Block | None = None
    sides: tuple[str, str] | None = None


def page(result: ComparedResult, words: Words, extras: Extras, cases: Sequence[Case]) -> Shown:
    """The page of a result: verdict of these cases, figure and numbers of its table, and what else
    it has."""
    found, several = extras.evidence or result.evidence, f"{words.example}s"
    names = [*found.statistics]
    # What the verdict is of may not have been measured.
    decisive = [name for name in extras.statistics if name in names] or names[:1]
    first = decisive[0] if decisive else ""
    compared = tuple(extras.conditions) or (found.main,)
    same = {name: line for name in names if (line := unmoved(found, name, words.example))}
    others = [name for name in names if name not in (*decisive, *same)]
    titles = [found.statistics[name].words for name in decisive]
    named = len(titles) <= FEW_TITLES  # of more every row says which
    effect = forest(
        found,
        _rows(found, decisive, compared),
        f"{capitalised(enumeration(titles))}: selected minus random heads"
        if named
        else "Selected minus random heads",
        "Parts share heads, so they are no independent tests" if len(found.single) > 1 else "",
        several,
    )
    if effect and extras.sides:
        effect = replace(effect, sides=extras.sides)
    beside: list[Block] = [effect] if extras.figure and effect else []
    beside += forests_by_unit(found, others, compared, several)
    beside += [NotMeasured(name, why) for name, why in extras.missing.items()]
    rests_on = extras.rests_on or examples_words(found, first, words.example)
    constant = " ".join(line for name, line in same.items() if name not in decisive)
    heads = HeadSets("Selected heads", _heads(found, extras))
    sections = [
        Section("Heads", [heads] if heads.sets else []),
        Section("Beside random heads", beside, constant, brief=True),
        *extras.sections,
        tables(found, [*decisive, *others], compared, several),
        method_section(words.method),
    ]
    return Shown(
        words.title,
        words.question,
        [sentence_of(result.verdict), *extras.sentences],
        uncertainty(result.evidence, cases, rests_on, result.verdict),
        cautions=result.cautions,
        facts=[
            *model_facts(result.model_name, result.model.heads if result.model else None),
            *ablation_facts(result.details),
            *extras.facts,
        ],
        sections=[section for section in sections if section.blocks or section.lead],
        figure=extras.figure or effect,
        next=result.next,
    )


def _rows(
    found: Evidence, statistics: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[tuple[str, str, Condition, str]]:
    """The rows of the figure: parts by statistics and conditions, the mean over parts first."""
    for part, name, each in product(found.parts, statistics, conditions):
        words = [found.statistics[name].words] if len(statistics) > 1 else []
        words += [each.named()] if len(conditions) > 1 else []
        if len(found.parts) > 1 or not words:
            words.insert(0, named_part(found, part))
        yield ", ".join(words), name, each, part


def _heads(found: Evidence, extras: Extras) -> dict[str, Sequence[tuple[int, int]]]:
    """The selected heads by name; the same ones under several gates once."""
    if extras.heads is not None:
        return {name: named_places(heads) for name, heads in extras.heads.items()}
    names: dict[tuple[str, ...], str] = {}
    for each in found.selected:
        names.setdefault(each.heads, each.named())
    return {name: named_places(heads) for heads, name in names.items() if heads}
