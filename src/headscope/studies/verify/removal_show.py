"""What a removal shows: its verdict beside random heads, what weakens it, and its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headscope.evidence.blocks import dose_lines
from headscope.evidence.headline import beyond
from headscope.evidence.rows import WHOLE, Evidence
from headscope.results.removal import RemovalDetails, RemovalResult
from headscope.shown.blocks import (
    Section,
)
from headscope.shown.words import (
    enumeration,
    fixed,
    languages_of,
    number,
    p_value,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.sentences import sentences_of
from headscope.verify.removal_translations.evidence import STATISTICS, TEXTS

#: chrF++ below which a model hardly translates, so that there is little to be lost.
POOR = 25.0
#: Ways to swap sentences below which p over sentences cannot be small.
FEW = 200


WORDS = Words(
    "Removal of selected heads",
    "How much worse does the model translate without the selected heads than without as many "
    "random ones?",
    "sentence",
    "Removing many heads harms a model whichever heads they are; as many random heads are the "
    "control for that. Harm under zero ablation but not under others comes from states that the "
    "model never saw in training. chrF++ and BLEU, from 0 to 100, count character and word "
    "sequences shared with one reference: they measure form, so read the outputs. Off target: in "
    "another language than the target, or empty; source copied: close to the source and far from "
    "the reference. NLL, in nats a token, says how likely the reference is, word by word, given "
    "all words before: the mean over sentences of each one's mean over its tokens. Heads that "
    "align are needed at the first token of a linked word; its later tokens follow from it. First "
    "tokens are harder than others, so any greater harm may widen the difference between first and "
    "unlinked tokens.",
)


def extras(result: RemovalResult, run: Path) -> Extras:
    """Doses, sentences, and what was not measured."""
    found, details = result.evidence, result.details
    texts, (first,) = "text" in details.measures, leads(found)
    languages = {code for name in details.removed.directions for code in languages_of(name) if code}
    links = details.removed.links
    sentences = [Section("Sentences", [sentences_of(run, found, found.main, links)])]
    measuring = details.removed.measuring
    return Extras(
        statistics=[first],
        heads={"selected": details.heads},
        facts=[
            ("directions", str(len(details.removed.directions))),
            ("languages", str(len(languages))),
            *([("languages by", measuring.identifier)]
              if measuring and measuring.identifier else []),
            *_tokens(details),
        ],
        sections=[Section("Doses", [*dose_lines(found, first)]), *(sentences if texts else [])],
        missing=not_measured(found, details) if texts else {},
    )  # fmt: skip


def leads(found: Evidence) -> list[str]:
    """The measure that a page speaks of."""
    return ["chrf" if found.level("chrf") else "nll"]


def not_measured(evidence: Evidence, details: RemovalDetails) -> dict[str, str]:
    """Why measures of texts are missing, by their names."""
    measuring = details.removed.measuring
    reasons = measuring.not_measured if measuring else {}
    return {
        STATISTICS[name].words: reasons.get(name) or "the run does not say why"
        for name in TEXTS
        if evidence.level(name) is None
    }


def _tokens(details: RemovalDetails) -> list[tuple[str, str]]:
    """How many tokens of the references were read, and how many are of linked words."""
    tokens = (details.removed.reference_tokens or {}).values()
    kinds = {"linked": "first of a linked word", "linked_later": "later ones",
             "unlinked": "unlinked"}  # fmt: skip
    counts = [f"{number(sum(getattr(own, kind) for own in tokens))} {words}"
              for kind, words in kinds.items()]  # fmt: skip
    total = number(sum(own.total for own in tokens))
    return [("tokens", f"{total}: {enumeration(counts)}")] if tokens else []


def cautions(evidence: Evidence, details: RemovalDetails) -> Iterator[str]:
    """Few sentences, depth that may explain the effect, a model that hardly translates."""
    main = evidence.main
    yield from few_sentences(evidence)
    if evidence.controls and "same layers" not in evidence.controls:
        yield "No random heads of the same layers were drawn: depth may explain the difference."
    for name in ("chrf", "nll"):
        tests = evidence.against(name, main)
        free, same = tests.get("random"), tests.get("same layers")
        if free and same and same.difference.bounded and beyond(free) and not beyond(same):
            yield (
                f"{evidence.statistics[name].words}: the difference to random heads of the same "
                "layers is not significant; the layers may explain the effect."
            )
    yield from weak_baseline(evidence)


def few_sentences(evidence: Evidence) -> Iterator[str]:
    """That p over sentences cannot be small, where few sentences can be swapped in few ways."""
    levels = [row for row in evidence.levels if row.condition == evidence.original.id]
    # Directions of equal length are swapped alike: they may be of the same sentences.
    lengths = {row.examples for row in levels if row.part != WHOLE}
    ways = 2 ** min(sum(lengths), 64)
    if ways < FEW:
        yield (
            f"Outputs of so few sentences can be swapped in only {number(ways)} ways, so p over "
            f"sentences is hardly below {p_value(1 / ways)}."
        )


def weak_baseline(evidence: Evidence) -> Iterator[str]:
    """That there is little to be lost where the original model hardly translates."""
    whole = evidence.level("chrf")
    if whole is not None and whole.value < POOR:
        yield (
            f"The original model hardly translates (chrF++ {fixed(whole.value, 1)}): there is "
            "little to lose, and little can be read from what is lost."
        )
    levels = {part: evidence.level("chrf", None, part) for part in evidence.single}
    weak = [part for part, row in levels.items() if row is not None and row.value < POOR]
    if weak and len(levels) > len(weak):
        yield f"The original model is below chrF++ {POOR:g} in {enumeration(weak)}."
