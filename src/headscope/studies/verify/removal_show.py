"""What a removal shows: its verdict beside random heads, what weakens it, and its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headscope.evidence.blocks import (
    beyond,
    by_part,
    dose_lines,
    forest,
    moved,
    tables,
    uncertainty,
    verdict,
)
from headscope.evidence.rows import WHOLE, Evidence
from headscope.results.removal import RemovalDetails, RemovalResult
from headscope.shown.blocks import (
    METHOD,
    Block,
    Forest,
    HeadSets,
    NotMeasured,
    Section,
    Shown,
)
from headscope.shown.words import (
    count,
    enumeration,
    fixed,
    languages_of,
    number,
    p_value,
    sentence_of,
)
from headscope.studies.sentences import sentences_of
from headscope.studies.shows import ablation_facts, model_facts, named_places
from headscope.verify.removal_translations.evidence import GAP, KINDS, STATISTICS, TEXTS

#: chrF++ below which a model hardly translates, so that there is little to be lost.
POOR = 25.0
#: Ways to swap sentences below which p over sentences cannot be small.
FEW = 200


def show_removal(result: RemovalResult, run: Path) -> Shown:
    """Quality and loss under every condition, tests, doses, directions, heads and sentences."""
    evidence, details, main = result.evidence, result.details, result.evidence.main
    texts = "text" in details.measures
    first = "chrf" if evidence.level("chrf") else "nll"
    own = [name for name in evidence.statistics if name not in STATISTICS]
    heads = HeadSets(f"Heads {main.done}, best first", {"selected": named_places(details.heads)})
    sections = [
        Section("Heads", [heads]),
        tables(
            evidence,
            [*TEXTS, *own],
            [main],
            "sentences",
        )
        if texts
        else None,
        Section("Not measured", missing, brief=True)
        if texts and (missing := not_measured(evidence, details))
        else None,
        losses(evidence, details) if details.removed.reference_tokens is not None else None,
        Section("Doses", doses) if (doses := [*dose_lines(evidence, first)]) else None,
        Section("Sentences", [sentences_of(run, evidence, main, details.removed.links)])
        if texts
        else None,
        Section(METHOD, [], after=_method(evidence, details)),
    ]
    languages = {code for name in details.removed.directions for code in languages_of(name) if code}
    level = evidence.level(first)
    return Shown(
        "Removal of selected heads",
        f"How much worse {'are translations' if texts else 'is the reference predicted'} with "
        f"{_the(main.k)} {main.done} than with {'a' if main.k == 1 else 'as many'} random "
        f"{'head' if main.k == 1 else 'heads'}?",
        [f"{sentence_of(result.verdict)}", *said_of(evidence, first)],
        *uncertainty(evidence, first, [main], count(level.examples if level else 0, "sentence")),
        result.cautions,
        [
            *model_facts(result.model_name),
            ("directions", str(len(details.removed.directions))),
            ("languages", str(len(languages))),
            ("sentences", str(level.examples if level else "")),
            *ablation_facts(details),
        ],
        [section for section in sections if section is not None],
        effect(evidence, first),
    )


def effect(evidence: Evidence, statistic: str) -> Forest | None:
    """The difference from every control in the main condition, by direction."""
    words = evidence.statistics[statistic].words
    note = (
        "Directions share heads and subjects, so they are no independent tests"
        if len(evidence.single) > 1
        else ""
    )
    rows = by_part(evidence, statistic, evidence.main)
    return forest(evidence, rows, f"{words}: selected minus random heads", note)


def answer(evidence: Evidence, details: RemovalDetails) -> str:
    """The verdict by the measure that a page speaks of."""
    return verdict(evidence, "chrf" if evidence.level("chrf") else "nll")


# ---- the finding -------------------------------------------------------------------------------
def said_of(evidence: Evidence, statistic: str) -> list[str]:
    """What the selected heads do to a statistic, in a sentence."""
    main = evidence.main
    return moved(evidence, statistic, main, f"With {_the(main.k)} {main.done}")


def _the(k: int) -> str:
    return "the selected head" if k == 1 else f"the {k} selected heads"


# ---- tables ------------------------------------------------------------------------------------
def _texts_note(details: RemovalDetails) -> str:
    measuring = details.removed.measuring
    by = f" (by {measuring.identifier})" if measuring and measuring.identifier else ""
    return (
        "chrF++ and BLEU from 0 to 100, intervals over sentences. Shares are of outputs: off "
        f"target, in another language than the target{by} or empty; source copied, close to the "
        "source and far from the reference"
    )


def not_measured(evidence: Evidence, details: RemovalDetails) -> list[Block]:
    """Why measures of texts are missing."""
    measuring = details.removed.measuring
    reasons = measuring.not_measured if measuring else {}
    return [
        NotMeasured(STATISTICS[name].words, reasons.get(name) or "the run does not say why")
        for name in TEXTS
        if evidence.level(name) is None
    ]


def losses(evidence: Evidence, details: RemovalDetails) -> Section:
    """The loss of references under every condition, and of each kind of token beside random."""
    rows = [(own.words, name, evidence.main, None)
            for name, own in evidence.statistics.items() if name in (*KINDS, GAP)]  # fmt: skip
    kinds = forest(evidence, rows, "Loss of the reference: selected minus random heads")
    numbers_of = tables(evidence, [*KINDS, GAP], [evidence.main], "sentences").blocks
    return Section("Loss", [*([kinds] if kinds else []), *numbers_of], brief=True)


_TOKENS = ("linked", "linked_later", "unlinked")


# ---- what weakens it ---------------------------------------------------------------------------
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


def _method(evidence: Evidence, details: RemovalDetails) -> list[str]:
    """How to read it, in a few sentences."""
    words = [
        "Removing many heads harms a model whichever heads they are; as many random heads are the "
        "control for that.",
    ]
    kinds = dict.fromkeys(each.replacement for each in evidence.selected)
    if "zero" in kinds and len(kinds) > 1:
        others = enumeration([kind for kind in kinds if kind != "zero"])
        words.append(
            f"Harm under zero ablation but not under {others} ablation comes from states that the "
            "model never saw in training."
        )
    if "text" in details.measures:
        words.append(
            "chrF++ counts character and word sequences shared with one reference: it measures "
            "form, so read the outputs."
        )
    if "loss" in details.measures:
        words.append(
            "The loss says how likely the reference is, word by word, given all words before; it "
            "does not measure the quality of translations."
        )
    return words
