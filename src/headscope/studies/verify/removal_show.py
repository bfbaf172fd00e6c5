"""What a removal shows: its finding beside random heads, what weakens it, and its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from headscope.results.removal import Case, Condition, Part, RemovalResult, shared_heads
from headscope.results.removal import Shown as Removed
from headscope.shown.blocks import HeadSets, Section, Shown
from headscope.shown.words import (
    count,
    enumeration,
    fixed,
    languages_of,
    number,
    p_value,
)
from headscope.studies.comparison import Comparison, draws_remedy
from headscope.studies.sentences import sentences_of
from headscope.studies.shows import (
    ablation_facts,
    interval,
    leakage_caution,
    model_facts,
    named_places,
)
from headscope.studies.verify.removal_blocks import (
    CHRF,
    DRAWN,
    NLL,
    Measure,
    broken_outputs,
    chrf_bars,
    curves,
    direction_blocks,
    doing,
    draws_table,
    losses,
    not_measured,
    tests_table,
    texts_table,
)

#: chrF++ below which a model hardly translates, so that there is little to be lost.
POOR = 25.0
#: Ways to swap sentences below which p over sentences cannot be small.
FEW = 200


def show_removal(result: RemovalResult, run: Path) -> Shown:
    """Quality and loss under every condition, tests, doses, directions, heads and sentences."""
    result = result.named()
    case, done = result.main_case, doing(*result.main[1:])
    texts = "text" in result.measures
    measures = [*([CHRF] if texts else []), *([NLL] if result.reference_tokens else [])]
    sections = []
    if texts:
        bars = [
            chrf_bars("Quality of translations", {"chrF++": result}, result.main),
            *broken_outputs(result),
        ]
        sections += [
            Section("Effect", bars),
            Section("Measures", [texts_table(result), *not_measured(result)], brief=True),
        ]
    if any(case.drawn for case in result.cases):
        sections.append(Section("Tests", [tests_table(result, measures)], brief=True))
    if result.reference_tokens is not None:
        blocks = losses(result, result.reference_tokens)
        sections.append(Section("Loss", blocks, brief=True))
    if texts:
        if doses := curves(result):
            sections.append(Section("Doses", doses))
        if len(result.directions) > 1:
            shown, lead = direction_blocks(result, result.main)
            sections.append(Section("Directions", shown, lead))
    heads = HeadSets(f"Heads {done}, best first", {"selected": named_places(result.heads)})
    drawn = [draws_table(case)] if case.drawn else []
    sections.append(Section("Heads", [heads, *drawn]))
    if texts:
        outputs = sentences_of(run, result, case.top.label, done)
        sections.append(Section("Sentences", [outputs]))
    sections.append(Section("Method", [], after=_method(result)))
    than = measures[0].than(case.top, "random") if measures else None
    sets = 0 if than is None else than.distinct
    languages = {code for name in result.directions for code in languages_of(name) if code}
    return Shown(
        "Removal of selected heads",
        f"How much worse {'are translations' if texts else 'is the reference predicted'} with "
        f"{_the(result.main[0])} {done} than with as many random heads?",
        [words for measure in measures for words in said(result, case, measure)],
        _uncertainty(result, sets),
        draws_remedy(sets, 99),
        [*_cautions(result, case, sets), *leakage_caution(result.leakage)],
        [
            *model_facts(result.model_name),
            ("directions", str(len(result.directions))),
            ("languages", str(len(languages))),
            ("sentences", str(result.sentences or "")),
            *ablation_facts(result),
        ],
        sections,
    )


# ---- the finding -------------------------------------------------------------------------------
def said(part: Part, case: Case, measure: Measure) -> list[str]:
    """What the selected heads do to a measure, beside random ones, in a few sentences."""
    label, top = case.top.label, measure.value(case.top)
    if measure.value(part.baseline) is None or top is None:
        return [f"{measure.scale.words} has not been computed for this run."]
    row = measure.compared(part, case)
    lead = f"With {_the(label.k)} {doing(label.gate, label.ablate)}"
    sentences = count(part.sentences, "sentence") if part.sentences else ""
    lines = Comparison({lead: row}).said(lead, lead, over=sentences)
    random = measure.draws(case, "random")
    kinds = case.top.kinds_than("random")
    if measure is NLL and kinds is not None and kinds.linked_minus_unlinked.known:
        gap = interval(kinds.linked_minus_unlinked)
        lines.append(f"First tokens of linked words minus unlinked tokens: {gap}.")
    if random:
        worse = measure.worse(case, "random")
        if measure.harm * (fmean(random) - top) >= 0:
            lines.append("The selected heads matter less than random ones here.")
        elif worse:
            lines.append(
                f"{worse} of {count(len(random), 'random draw')} did as much harm, so this shows "
                "no special role of the selected heads."
            )
    return lines


def _the(k: int) -> str:
    return "the selected head" if k == 1 else f"the {k} selected heads"


def _uncertainty(result: RemovalResult, sets: int) -> str:
    words = count(result.sentences, "sentence") if result.sentences else "Sentences of the run"
    if not sets:
        return f"{words}, and no random heads: nothing says that these heads are special."
    more = ", so it cannot show that these heads are special" if sets < 19 else ""
    return (
        f"{words}, {count(sets, 'random set')}: p over draws is at least "
        f"{p_value(1 / (1 + sets))}{more}."
    )


# ---- what weakens it ---------------------------------------------------------------------------
def _cautions(result: RemovalResult, case: Case, sets: int) -> Iterator[str]:
    random, matched = case.draws("random"), case.draws("random-layer-matched")
    yield from few_sentences(result)
    if sets and not matched:
        yield "No random heads of the same layers were drawn: depth may explain the difference."
    for measure in (CHRF, NLL):
        free, same = (measure.than(case.top, kind) for kind in DRAWN)
        if free is None or same is None or not same.difference.bounded:
            continue
        decided = [not test.difference.low <= 0 <= test.difference.high for test in (free, same)]
        if decided == [True, False]:
            yield (
                f"{measure.scale.words}: the difference to random heads of the same "
                "layers is not significant; the layers may explain the effect."
            )
    if result.pool_note:
        yield f"{result.pool_note[:1].upper()}{result.pool_note[1:].rstrip('.')}."
    elif result.pool == "outside":
        yield (
            "Random heads are drawn from all heads outside the selected ones, token alignment "
            "heads among them, so the difference may be smaller than it would be otherwise."
        )
    if filled := _filled(random):
        yield (
            f"There were too few other heads: {filled}, are token alignment heads, which makes "
            f"these draws more harmful.{_alike(random)}"
        )
    counted = case.counted("random-layer-matched")
    if counted < len(matched):
        yield (
            f"Only {counted} of {count(len(matched), 'draw')} of the same layers are different "
            f"sets; p over draws counts each once.{_alike(matched)}"
        )
    if filled := _filled(matched):
        yield (
            f"Some layers had too few heads to draw from: {filled} of the same layers, come from "
            "the nearest layers or are token alignment heads."
            + (_alike(matched) if counted == len(matched) else "")
        )
    yield from weak_baseline(result)


def few_sentences(part: Removed) -> Iterator[str]:
    """That p over sentences cannot be small, where few sentences can be swapped in few ways."""
    lengths = {row.sentences or 0 for row in part.directions.values()}
    ways = 2 ** min(sum(lengths), 64)
    if 0 not in lengths and ways < FEW:
        yield (
            f"Outputs of so few sentences can be swapped in only {number(ways)} ways, so p over "
            f"sentences is hardly below {p_value(1 / ways)}."
        )


def weak_baseline(part: Removed) -> Iterator[str]:
    """That there is little to be lost where the original model hardly translates."""
    if part.chrf is not None and part.chrf < POOR:
        yield (
            f"The original model hardly translates (chrF++ {fixed(part.chrf, 1)}): there is little "
            "to lose, and little can be read from what is lost."
        )
    weak = [name for name, row in part.directions.items() if (row.chrf or POOR) < POOR]
    if weak and len(part.directions) > len(weak):
        yield f"The original model is below chrF++ {POOR:g} in {enumeration(weak)}."


def _filled(draws: Sequence[Condition]) -> str:
    """Which draws hold heads from elsewhere than asked for, as the begin of a sentence."""
    filled = [draw.filled_up for draw in draws if draw.filled_up]
    if not filled:
        return ""
    most = count(max(filled), "head")
    return f"up to {most} of a draw, in {len(filled)} of {count(len(draws), 'draw')}"


def _alike(draws: Sequence[Condition]) -> str:
    return f" All {len(draws)} share {shared_heads(draws)}." if len(draws) > 1 else ""


def _method(result: RemovalResult) -> list[str]:
    """How to read it, in a few sentences."""
    words = [
        "Removing many heads harms a model whichever heads they are; as many random heads are the "
        "control for that.",
    ]
    if "zero" in result.ablations and len(result.ablations) > 1:
        others = enumeration([kind for kind in result.ablations if kind != "zero"])
        words.append(
            f"Harm under zero ablation but not under {others} ablation comes from states that the "
            "model never saw in training."
        )
    if "text" in result.measures:
        words.append(
            "chrF++ counts character and word sequences shared with one reference: it measures "
            "form, so read the outputs."
        )
    if "loss" in result.measures:
        words.append(
            "The loss says how likely the reference is, word by word, given all words before; it "
            "does not measure the quality of translations."
        )
    return words
