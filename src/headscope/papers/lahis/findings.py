"""What the experiments show: blocks of their studies, and the paper's claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum
from statistics import fmean
from typing import Any

from headscope.data.languages import language_name
from headscope.estimates import Estimate
from headscope.evidence.rows import SHARE, Condition, Evidence
from headscope.find.lahis_scores import expected_general
from headscope.heads import Geometry
from headscope.papers.cells import table, with_published
from headscope.papers.claims import (
    Effect,
    claimed,
    either,
    of_count,
    of_effects,
    of_heads,
)
from headscope.papers.lahis.scale import (
    HEADS,
    PAPER_SCALE,
    question_parts,
    settings_said,
    step_name,
)
from headscope.papers.lahis.steps import LOSSES, LOSSES_MOVING
from headscope.papers.paper import Setting
from headscope.papers.published import ANY, PublishedClaim, published_claims, source, value
from headscope.papers.study_steps import joined, of_run, shown_by, titled
from headscope.results.lahis import LahisResult
from headscope.results.language_texts import TextWithoutHeads, TextWithoutLayers
from headscope.results.soft_gate import SoftGateResult
from headscope.results.writing import OffTarget, Steering, Summaries, Transfer
from headscope.shown.blocks import Cell, Claim, Findings, Forest, Reference, p_cell
from headscope.shown.words import count
from headscope.verify.language_texts.conditions import OWN
from headscope.verify.language_texts.evidence import CONTRAST
from headscope.verify.writing.measures import BY_LANGUAGE, A, B

#: What no interval of an experiment holds.
SAMPLE = (
    "Which heads are specific depends on the documents they are found on: with the bundled model, "
    "other samples of the same languages gave partly other heads (docs/languages.md), and no "
    "interval here holds that uncertainty."
)
MODELS = "Aya-23-8B, Llama-3.2-3B, Mistral-7B-v0.1"
CLAIMS = published_claims("lahis")


def notes(setting: Setting) -> tuple[str, ...]:
    """What holds for every experiment: settings, published figures, documents."""
    said = [
        settings_said(setting),
        # Our sources have the paper's abstract and the published code's description, and no table.
        "No published figure is at hand but the numbers of documents that a language is scored on "
        f"({PAPER_SCALE.found:,}) and of trained gates; the paper's models are {MODELS}.",
        "Results are stated in the abstract alone. The names of experiments are those of the "
        "readme, which has no outcomes; what is done to how many heads is from the published code. "
        "The gate that stays, repeated sentences, sets of the same layers and trained gates of "
        "random heads are ours.",
    ]
    heads = setting.read(HEADS, LahisResult)
    if heads is not None:
        where = (
            "the bundled model's dev split, and tested on its test split"
            if setting.pocket
            else "one half of the files, and tested on the other"
        )
        scored = _span([language.documents for language in heads.languages.values()], 0)
        said.append(
            f"Heads are found on {scored} documents a language of {where}; no text that "
            "they are found on is tested on."
        )
    return *said, SAMPLE


def _step(name: str) -> Callable[[Setting], str]:
    """The folder of a step, whose name depends on its counts."""
    return lambda setting: step_name(setting, name)


# Heads of languages


def show_importance(setting: Setting) -> Findings:
    """Importance of every head, and how alike halves of the documents are."""
    return shown_by(setting, HEADS, "Languages", "Every head")


@of_run(HEADS, LahisResult, "Shared heads")
def show_sets(setting: Setting, found: LahisResult, shown: Findings) -> Findings:
    """Specific heads, which are described, and whether general ones are more than by chance."""
    sizes = [len(language.specific) for language in found.languages.values()]
    described = (
        f"{_span(sizes, 0)} heads are specific to each language, which the quantile makes, so that "
        "this is no finding."
    )
    shown = replace(shown, found=f"{shown.found} {described}")
    if found.general_in is None:
        return shown
    chance = general_by_chance(found, found.general_in, setting.geometry)
    by = (
        f"{count(len(found.general), 'head')} in at least {found.general_in} of {len(sizes)} "
        f"languages, where chance gives {chance:.2g} in the layers of each language's heads, and "
        f"{found.general_expected:.2g} in any"
    )
    tested = (
        "the number of heads against random sets of the languages' sizes in their layers (Poisson)"
    )
    claim = of_count(CLAIMS["general"], by, len(found.general), chance, sure=tested)
    return claimed(shown, claim)


def general_by_chance(found: LahisResult, needed: int, geometry: Geometry) -> float:
    """How many heads would be important in `needed` languages, had each language as many important
    ones in every layer, drawn at random there."""
    layers = [
        Counter(each.place.layer for each in language.scored[: language.important])
        for language in found.languages.values()
    ]
    return fsum(
        expected_general([sizes[layer] for sizes in layers], heads, needed)
        for layer, heads in enumerate(geometry.counts)
        if heads
    )


# Losses of text


@of_run(_step(LOSSES), TextWithoutHeads, "Values and tests")
def show_perplexity(setting: Setting, found: TextWithoutHeads, shown: Findings) -> Findings:
    """Each language's text without its own heads, without random ones, and as it is."""
    table, own = found.evidence, _own(found)
    if not table.selected:
        none = "No language has heads of its own here, so none could be removed."
        return replace(shown, found=none)
    if own is None:
        return shown
    rows = [(table.level("nll", each, each.of), each) for each in table.selected]
    alone = [row.change for row, each in rows if row and row.change and each.k == own.k]

    def by(value: float, change: Estimate, random: float) -> str:
        return (
            f"own text {_nats(change)}, {random - (value - change.value):+.3f} without random "
            f"heads; {_above(alone)}; {_documents(table)}"
        )

    return claimed(shown, of_heads(CLAIMS["own"], found.details.together, "nll", own, by))


@of_run(_step(LOSSES), TextWithoutHeads, "Heads and texts", "Heads and texts, minus random heads")
def show_cross(setting: Setting, found: TextWithoutHeads, shown: Findings) -> Findings:
    """Heads of one language, text of another."""
    table, together, own = found.evidence, found.details.together, _own(found)
    heads = [each for each in table.selected if each.of in table.parts]
    if not heads:
        none = "No language has heads of its own here, so there is nothing to cross."
        return Findings(found=none)
    if not found.details.own:
        return replace(shown, found="With text of one language nothing can be crossed.")
    contrast = together.level(CONTRAST, own) if own else None
    if own is None or contrast is None or contrast.change is None:
        return shown
    same = {each.id for each in heads if each.k == own.k}
    alone = [row.mean_difference for row in found.details.own if row.condition in same]
    by = (
        f"own text minus the mean of others {_nats(contrast.change)}; {_above(alone)}; "
        f"{_documents(table)}"
    )
    # The contrasts of one random set over all languages add up to zero, so that the change is also
    # that beyond random heads.
    tested = "the difference, and its rank among random sets that are dealt to the languages"
    draws = together.against(CONTRAST, own).get("random")
    claim = of_effects(CLAIMS["specific"], by, [Effect(contrast.change)], draws, sure=tested)
    # The study's finding and its forest are of own text alone, and stand there.
    maps = tuple(figure for figure in shown.figures if not isinstance(figure, Forest))
    return claimed(replace(shown, figures=maps, found=""), claim, in_words=True)


def _own(found: TextWithoutHeads) -> Condition | None:
    """The specific heads of all languages, the most of them; None in runs of old versions."""
    own = [each for each in found.details.together.selected if each.of == OWN]
    return max(own, key=lambda each: each.k, default=None)


def _nats(change: Estimate) -> str:
    return f"{change.value:+.3f} nats a token ({change.low:+.3f} to {change.high:+.3f})"


def _above(alone: Sequence[Estimate]) -> str:
    """In how many languages an interval lies above zero."""
    above = sum(estimate.low > 0 for estimate in alone)
    return f"above zero by itself in {above} of {count(len(alone), 'language')}"


def _documents(table: Evidence) -> str:
    levels = [table.level("nll", None, part) for part in table.parts]
    return f"{_span([level.examples for level in levels if level], 0)} documents each"


@of_run(
    _step("layers"),
    TextWithoutLayers,
    "Where important heads lie",
)
def show_layers(setting: Setting, found: TextWithoutLayers, shown: Findings) -> Findings:
    """Each language's text without whole layers, and where its important heads lie."""
    large = "Removing a whole layer is a large intervention, which says little of its single heads."
    return replace(shown, sure=f"{shown.sure} {large}")


#: Columns of both gates compared: of an estimate with its decimals, and what they hold.
_GATES = {"rank correlation": ("all", 2), "within layers": ("within_layers", 2)}
_GATES |= {"NLL, moving less still": ("costs_more", 3)}


def show_moving(setting: Setting) -> Findings:
    """How far both gates take the same heads, and what these cost each language's text."""
    step = step_name(setting, LOSSES_MOVING)
    found = setting.result(step_name(setting, "gates"))
    if found is None or not setting.done(step):
        return Findings()
    by_code: Mapping[str, Any] = found["languages"]
    rows = {}
    for code, row in by_code.items():
        estimates = [
            Cell.of(Estimate(**row[key]), digits)
            if row[key]
            else Cell(why="no head is specific to this language")
            for key, digits in _GATES.values()
        ]
        counts = row["important"][1], row["shared"], row["jaccard"], row["expected_exact"]
        rows[code] = (*counts, p_cell(row["p_value"]), *estimates, p_cell(row["p_within_layers"]))
    names = ("important", "shared", "Jaccard", "by chance", "p", *_GATES, "p within layers")
    note = (
        "Rank correlation: Spearman's, of the importance of all heads; within layers ranks are "
        "centred in each layer and heads permuted inside it. Documents are drawn anew for the "
        "intervals; the gate's path, which depends on their order, is not."
    )
    compared = table("Heads by the moving gate and by the still one", names, rows, note)
    agree = _span([row["jaccard"] for row in by_code.values()], 2)
    chance = fmean(row["expected_exact"] for row in by_code.values())
    shown = shown_by(setting, step, "Values and tests")
    said = (
        "The important heads by the published, moving gate and by the still one have a Jaccard "
        f"index of {agree} ({chance:.3f} by chance). By the moving gate: {shown.found}"
    )
    return replace(shown, tables=(compared, *shown.tables), found=said)


# What is written under changed heads

#: The tables and pictures of a study that lets the model write.
WRITTEN = ("Under every condition", "Selected minus random")


@of_run(_step("summaries"), Summaries, *WRITTEN, "Beside random heads")
def show_general(setting: Setting, found: Summaries, shown: Findings) -> Findings:
    """Summaries, or repeated sentences, without the heads that languages share."""
    if found.details.task == "repeat":
        no_summaries = (
            "The bundled model cannot summarise; it repeats sentences, which copying heads do, so "
            "this says nothing about summaries."
        )
        shown = replace(shown, sure=f"{shown.sure} {no_summaries}")
    return _described(shown)


def show_off_target(setting: Setting) -> Findings:
    """Whether the model leaves a language without its heads."""
    every = list[Findings]()
    for ask, title in (("translate", "translations"), ("continue", "continued documents")):
        step = step_name(setting, f"off-target-{ask}")
        found = setting.read(step, OffTarget)
        if found is not None:
            shown = shown_by(setting, step, BY_LANGUAGE)
            known = "off_target" in found.evidence.statistics
            every.append(titled(shown if known else replace(shown, found=""), title.capitalize()))
    return _described(joined(every))


def _described(shown: Findings) -> Findings:
    """What the readme and the published code have, and the abstract does not say."""
    if not shown.found:
        return shown
    word = "This is an experiment of the readme and of no claim of the abstract."
    return replace(shown, sure=f"{shown.sure} {word}")


@of_run(_step("mitigation"), Steering, *WRITTEN, "Beside random heads")
def show_mitigation(setting: Setting, found: Steering, shown: Findings) -> Findings:
    """Whether fewer answers are in the wrong language with the heads of either language changed."""
    table, away = found.evidence, found.details.away
    if away is None or "off_target" not in table.statistics:
        return Findings()
    name = language_name(away)
    how = {OWN: "the heads of the language asked for times 3", away: f"{name} heads removed"}
    what = "answers in another language than asked for"
    ways = [
        _written(CLAIMS["mitigate"], what, how[condition.of], table, condition, "off_target")
        for condition in table.selected
    ]
    provoked = (
        f"The requests follow a text in {name}: the wrong language is provoked, and how often it "
        "occurs by itself is not measured."
    )
    shown = replace(shown, sure=f"{shown.sure} {provoked}")
    return claimed(shown, *([either(*ways)] if ways else []))


@of_run(_step("transfer"), Transfer, *WRITTEN, "Beside random heads")
def show_transfer(setting: Setting, found: Transfer, shown: Findings) -> Findings:
    """Which of two contradicting statements is believed, with a language turned up or down."""
    table, details = found.evidence, found.details
    if not table.selected:
        none = "No language of these pairs has heads of its own, so nothing was changed."
        return replace(shown, found=none)
    gates, what = {A: details.up, B: details.down}, "answers by A's statement"
    ways = [
        _written(
            CLAIMS["transfer"], what, f"{each.of}'s heads times {gates[each.of]:g}", table, each,
            "follows_a", "pairs",
        )
        for each in table.selected
    ]  # fmt: skip
    return claimed(shown, either(*ways))


def _written(
    claim: PublishedClaim,
    what: str,
    how: str,
    table: Evidence,
    condition: Condition,
    statistic: str,
    groups: str = "languages",
) -> Claim:
    """A claim about what is written with some heads changed, in the parts that have them."""
    own = table.statistics[statistic]
    factor, unit = own.factor, " %" if own.unit == SHARE else ""
    rows = (table.level(statistic, condition, part) for part in table.single)
    prompts = [row.examples for row in rows if row is not None]
    counted = count(sum(prompts), "prompt")
    if len(prompts) > 1 and len(set(prompts)) == 1:
        counted += f", {prompts[0]} in each of {len(prompts)} {groups}"

    def by(value: float, change: Estimate, random: float) -> str:
        return (
            f"{what}: {factor * (value - change.value):.1f}{unit} as is, {factor * value:.1f}{unit}"
            f" with {how} (change {_spread(change, factor)}), {factor * random:.1f}{unit} with "
            f"random ones instead; {counted}"
        )

    return of_heads(claim, table, statistic, condition, by)


# Trained gates


def show_gates(setting: Setting) -> Findings:
    """Trained gates against the original model; those of random heads trained alike are ours."""
    found, languages, rows = dict[str, SoftGateResult](), list[Findings](), {}
    theirs = value("lahis", "Abstract", model=ANY, row="soft head mask", column="parameters",
                   measure="count")  # fmt: skip
    for code in question_parts(setting):
        step = step_name(setting, f"soft-gate-{code}")
        result = setting.read(step, SoftGateResult)
        trained = None if result is None else result.evidence.main.k
        rows[code] = Cell(trained, None, None, theirs, "not run", 0)
        if result is not None:
            found[code] = result
            own = replace(shown_by(setting, step), tables=())  # the tables are in the runs' reports
            languages.append(titled(own, code))
    if not found:
        return Findings()
    why = "not comparable: the abstract does not say of which model"
    reference = Reference(source("lahis", "Abstract"), MODELS, False, why)
    shown = joined(languages)
    if setting.pocket:
        world = (
            "The questions are of the bundled model's own world, in a prompt whose order it never "
            "saw; with the prompt it was trained with there is nothing to be gained "
            "(docs/negative-results.md)."
        )
        shown = replace(shown, sure=f"{shown.sure} {world}")
    return claimed(
        shown,
        _gates_claim(found),
        tables=[with_published("Gates trained", "gates", rows, reference)],
    )


def _gates_claim(found: Mapping[str, SoftGateResult]) -> Claim:
    """That trained gates answer more questions than the original model, of all languages."""
    tables = [result.evidence for result in found.values()]
    change = _mean(_change(table, table.main) for table in tables)
    as_is = fmean(level.value for table in tables if (level := table.level("accuracy")))
    gates = [table.main.k for table in tables]
    questions = [result.details.pairs.test for result in found.values()]
    by = (
        f"{100 * as_is:.1f} % of the questions answered as is, {100 * (as_is + change.value):.1f} "
        f"% with {_span(gates, 0)} trained gates (change {_spread(change)}); {_span(questions, 0)} "
        f"questions in each of {count(len(found), 'language')}"
    )
    beside = [
        test.difference
        for table in tables
        if (test := table.against("accuracy", table.main).get("random"))
    ]
    silent = [_change(table, each) for table in tables for each in table.selected if each.gate == 0]
    note = "; ".join(
        f"ours: {words} {_spread(_mean(known))}"
        for words, known in (
            ("gates minus those of random heads trained alike", beside),
            ("change without these heads", silent),
        )
        if known
    )
    sure = (
        "its change; the interval is over questions, not over trainings, and holds if those of all "
        "languages are the same ones"
    )
    return of_effects(CLAIMS["gates"], by, [Effect(change)], sure=sure, note=note)


def _change(table: Evidence, condition: Condition) -> Estimate:
    level = table.level("accuracy", condition)
    return (level and level.change) or Estimate()


def _mean(estimates: Iterable[Estimate]) -> Estimate:
    """The mean of estimates that may be of the same examples, such as translations of each other:
    as far as their intervals reach on average."""
    each = [(estimate.value, estimate.low, estimate.high) for estimate in estimates]
    return Estimate(*map(fmean, zip(*each, strict=True)))


# What they have in common


def _spread(estimate: Estimate, factor: float = 100.0) -> str:
    """`4.7, 1.0 to 8.8`."""
    value, low, high = (factor * end for end in (estimate.value, estimate.low, estimate.high))
    return f"{value:.1f}, {low:.1f} to {high:.1f}"


def _span(values: Sequence[float], digits: int) -> str:
    """`0.079 to 0.100`, or the one value."""
    low, high = (f"{end:.{digits}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
