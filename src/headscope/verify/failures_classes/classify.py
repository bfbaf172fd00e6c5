"""How a translation fails: not translated, made up, or incomplete.

The kinds are those of Token Alignment Heads (ICLR 2026), appendix A.4, which sorted them by eye.
Here the words of an output are held against what is known to be right, the reference and a good
translation made before, and against the source through word links: what no word backs may be made
up, what backs no word is missing. Shares decide, since one or two words may be put otherwise, and
words of the one sort offset those of the other. So a kind comes with the words that speak for it.
What these rules cannot see is meaning: one wrong word among right ones counts as put otherwise,
and a sentence put otherwise throughout looks made up, which is what the judge beside them is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headscope.data.languages import is_known, language_tag
from headscope.data.pairs import Links, Units
from headscope.measure.metrics import sentence_chrf, source_copies
from headscope.results.failures import KINDS, Evidence, Kind
from headscope.verify.failures_classes.backing import Sentences, back, learn

#: A sentence is good from this sentence chrF++ on, and fails where it loses this much of it.
GOOD = 50.0
LOSS = 20.0


@dataclass(frozen=True)
class Row:
    """A source, its reference, a translation before and the output after something was done.

    Language codes may be unknown (None). `links` are those of source and reference, between
    white-space pieces or `units`, made by `aligner`, None: given. `id` is unique within a
    `direction`.
    """

    id: str
    source: str
    reference: str
    before: str
    after: str
    direction: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    links: Links | None = None
    units: Units | None = None
    aligner: str | None = None


@dataclass(frozen=True)
class Rules:
    """From which shares on an output is of a kind; the shares are those of `Backing`.

    `foreign` is `unsupported` where the output was identified as of the source language. An output
    is made up from `unsupported` or `added` on, and lacks details from `dropped` or `left_out` on.
    The first three have the fewest errors on 60 labelled rows in five languages, 4, and as few from
    0.8 to 0.85, 0.25 to 0.5 and 0.35 to 0.5 (`bench/failure_rows.py`); `left_out`, which decides
    none of these rows, is one word in sixteen: an output that is a translation otherwise, word by
    word, is no paraphrase.
    """

    copied: float = 0.5
    foreign: float = 0.5
    unsupported: float = 0.8
    added: float = 0.35
    dropped: float = 0.35
    left_out: float = 0.06


@dataclass(frozen=True)
class Case:
    """A row with its kind; `selected`: good before and bad after.

    `links` says what linked the words of its direction: `given`, an aligner, or None.
    """

    row: Row
    kind: Kind
    selected: bool
    evidence: Evidence
    links: str | None = None


def failed(rows: Sequence[Row]) -> list[bool]:
    """Which rows are good before and bad after."""
    references = [row.reference for row in rows]
    before = sentence_chrf([row.before for row in rows], references)
    after = sentence_chrf([row.after for row in rows], references)
    return [bool(at) for at in (before >= GOOD) & (before - after >= LOSS)]


def classify(
    rows: Sequence[Row],
    languages: Sequence[str | None] | None = None,
    rules: Rules = Rules(),
    align: bool = True,
) -> list[Case]:
    """The kind of every row, in their order.

    `languages`: those identified in the outputs, None where undecided. Where the rows of a
    direction have no links and `align` is set, eflomal links them if it is installed; it has no
    seed, so two calls may differ in a few words.
    """
    if not rows:
        return []
    codes = list(languages) if languages is not None else [None] * len(rows)
    sources, references = [row.source for row in rows], [row.reference for row in rows]
    afters = [row.after for row in rows]
    before = sentence_chrf([row.before for row in rows], references)
    after = sentence_chrf(afters, references)
    to_source = sentence_chrf(afters, sources, word_order=0)
    copies = source_copies(afters, sources, references)
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for number, row in enumerate(rows):
        key = (row.direction, row.source_language, row.target_language)
        groups.setdefault(key, []).append(number)
    cases: dict[int, Case] = {}
    for numbers in groups.values():
        sentences = [
            Sentences(
                rows[number].source,
                rows[number].reference,
                rows[number].before if before[number] >= GOOD else None,
                rows[number].links,
                rows[number].units,
                rows[number].aligner,
            )
            for number in numbers
        ]
        known = learn(sentences, align)
        for place, number in enumerate(numbers):
            links = known.links[place] if known.links is not None else None
            row = rows[number]
            evidence = Evidence(
                empty=not any(map(str.isalnum, row.after)),
                language=codes[number],
                chrf_source=float(to_source[number]),
                chrf_before=float(before[number]),
                chrf_after=float(after[number]),
                repeats_source=bool(copies[number]),
                backing=back(sentences[place], links, row.after, known),
            )
            kind, because = _judge(row, evidence, rules)
            selected = bool(before[number] >= GOOD and before[number] - after[number] >= LOSS)
            evidence = replace(evidence, because=because)
            cases[number] = Case(row, kind, selected, evidence, known.linked_by)
    return [cases[number] for number in range(len(rows))]


def shares(cases: Sequence[Case], selected_only: bool) -> dict[Kind, float | None]:
    """The share of each kind among the cases, or among the selected ones; None without any."""
    kinds = [case.kind for case in cases if case.selected or not selected_only]
    return {kind: kinds.count(kind) / len(kinds) if kinds else None for kind in KINDS}


def _judge(row: Row, evidence: Evidence, rules: Rules) -> tuple[Kind, str]:
    """The first kind that the evidence speaks for, and why."""
    backing = evidence.backing
    if evidence.empty:
        return "no translation", "the output is empty"
    if evidence.repeats_source:
        return "no translation", f"it repeats the source (chrF {evidence.chrf_source:.0f} to it)"
    copied = backing.copied or 0.0
    if copied >= rules.copied:
        return "no translation", f"{_percent(copied)} of its words stand in the source alone"
    unsupported, added = backing.unsupported or 0.0, backing.added or 0.0
    if _in_source_language(row, evidence.language) and unsupported >= rules.foreign:
        return "no translation", f"it is in the source language ({evidence.language})"
    if unsupported >= rules.unsupported or added >= rules.added:
        return "hallucination", f"nothing backs {_listed(backing.unsupported_words)}"
    if (backing.dropped or 0.0) >= rules.dropped:
        return "missing details", f"it lacks {_listed(backing.missing_words)}"
    if (backing.left_out or 0.0) >= rules.left_out:
        return "missing details", f"it leaves out {_listed(backing.left_out_words)}"
    if backing.unsupported_words:
        few = _listed(backing.unsupported_words)
        return "other", f"nothing backs {few}, which may be other words for the same"
    if backing.missing_words:
        return "other", f"it lacks {_listed(backing.missing_words)} at most"
    return "other", "its words are backed, and none of weight is missing"


def _in_source_language(row: Row, language: str | None) -> bool:
    return _same(language, row.source_language) and not _same(language, row.target_language)


def _same(code: str | None, other: str | None) -> bool:
    """Whether two codes may mean one language, whatever the script."""
    if code is None or other is None or not (is_known(code) and is_known(other)):
        return False
    first, two = language_tag(code), language_tag(other)
    return first.language == two.language or first.macro == two.macro


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _listed(words: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"“{word}”" for word in words[:most])
    return shown + (f" and {len(words) - most} more" if len(words) > most else "")
