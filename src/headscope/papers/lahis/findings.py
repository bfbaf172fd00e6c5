"""What the experiments show: blocks of their studies, and the paper's claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from headscope.data.languages import language_name
from headscope.estimates import Estimate
from headscope.evidence.rows import SHARE, Condition, Evidence
from headscope.papers.cells import table, with_published
from headscope.papers.claims import LEVEL, OPPOSITE, claimed, of_heads
from headscope.papers.lahis.scale import (
    HEADS,
    PAPER_SCALE,
    parts,
    settings_said,
    step_name,
    step_of,
)
from headscope.papers.lahis.steps import LOSSES, LOSSES_MOVING
from headscope.papers.paper import Setting
from headscope.papers.published import ANY, source, value
from headscope.papers.study_steps import joined, of_run, shown_by, titled
from headscope.results.lahis import LahisResult
from headscope.results.language_texts import OwnText, TextWithoutHeads, TextWithoutLayers
from headscope.results.soft_gate import SoftGateResult
from headscope.results.writing import OffTarget, Steering, Summaries, Transfer
from headscope.shown.blocks import Cell, Claim, Findings, Reference, p_cell
from headscope.shown.words import count
from headscope.verify.writing.measures import OWN, A, B

#: What no interval of an experiment holds.
SAMPLE = (
    "Which heads are specific depends on the documents they are found on: with the bundled model, "
    "other samples of the same languages gave partly other heads (docs/languages.md), and no "
    "interval here holds that uncertainty."
)
MODELS = "Aya-23-8B, Llama-3.2-3B, Mistral-7B-v0.1"


def notes(setting: Setting) -> tuple[str, ...]:
    """What holds for every experiment: settings, published figures, documents."""
    said = [
        settings_said(setting),
        # Our sources have the paper's abstract and the published code's description, and no table.
        "No published figure is at hand but the numbers of documents that a language is scored on "
        f"({PAPER_SCALE.found:,}) and of trained gates; the paper's models are {MODELS}.",
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
    """General and specific heads, which is described: what they do is tested elsewhere."""
    sizes = [len(language.specific) for language in found.languages.values()]
    by = (
        f"{_span(sizes, 0)} each, which a quantile makes, so that this is no finding; what they do "
        "is tested"
    )
    claims = [Claim("every language has heads specific to it", min(sizes) > 0, by)]
    if found.general_in is not None:
        by = (
            f"{len(found.general)} in at least {found.general_in} of {len(sizes)} languages, "
            f"where chance gives {found.general_expected:.2g}"
        )
        claims.append(Claim("some heads are general", bool(found.general), by))
    return claimed(shown, *claims)


# Losses of text


@of_run(_step(LOSSES), TextWithoutHeads, "Values and tests")
def show_perplexity(setting: Setting, found: TextWithoutHeads, shown: Findings) -> Findings:
    """Each language's text without its own heads, without random ones, and as it is."""
    table = found.evidence
    claims = [
        _needed(code, table, condition)
        for code in table.parts
        for condition in table.selected
        if condition.of == code
    ]
    none = "No language has heads of its own here, so none could be removed."
    return claimed(replace(shown, found=shown.found if table.selected else none), *claims)


def _needed(code: str, table: Evidence, condition: Condition) -> Claim:
    """That a language's text needs the heads specific to it."""

    def by(value: float, change: Estimate, random: float) -> str:
        base = table.level("nll", None, code)
        return (
            f"{change.value:+.3f} nats a token, {random - (base.value if base else 0.0):+.3f} "
            f"without random heads; {base.examples if base else 0} documents"
        )

    name = f"text in {code} needs the heads specific to it"
    return of_heads(name, table, "nll", condition, by, code)


@of_run(_step(LOSSES), TextWithoutHeads, "Heads and texts", "Heads and texts, minus random heads")
def show_cross(setting: Setting, found: TextWithoutHeads, shown: Findings) -> Findings:
    """Heads of one language, text of another."""
    conditions = {
        condition.id
        for condition in found.evidence.selected
        if condition.of in found.evidence.parts
    }
    if not conditions:
        none = "No language has heads of its own here, so there is nothing to cross."
        return Findings(found=none)
    own = [loss for loss in found.details.own if loss.condition in conditions]
    if not own:
        return replace(shown, found="With text of one language nothing can be crossed.")
    return claimed(shown, own_most(found.evidence, own))


def own_most(table: Evidence, own: Sequence[OwnText]) -> Claim:
    """That every language's own text suffers, and most, each by tests of its own.

    As all of them have to hold, none is corrected. A loss that falls less is no harm.
    """
    by_id = {condition.id: condition for condition in table.conditions}
    changes, n = {}, len(own)
    for row in own:
        level = table.level("nll", by_id[row.condition], row.language)
        changes[row.language] = level.change if level and level.change else Estimate()
    signs = [{_sign(row.difference), _sign(changes[row.language])} for row in own]
    most = sum(row.difference.value > 0 and changes[row.language].value > 0 for row in own)
    both = signs.count({1})
    drawn = [row.p_draws["random"] for row in own if "random" in row.p_draws]
    levels = [table.level("nll", None, part) for part in table.parts]
    documents = _span([level.examples for level in levels if level], 0)
    by = (
        f"in {most} of {n} languages, in {both} with both intervals above zero; {documents} "
        "documents each"
    )
    needed = ["more documents"] if both < n else []
    if len(drawn) < n or max(drawn) > LEVEL:
        needed.append("more random sets")
    if drawn:
        by += f"; p over draws {_span(drawn, 2)}"
    name = "every language's own text suffers most from the loss of its heads"
    if any(-1 in row for row in signs):
        return Claim(name, False, by, OPPOSITE)
    tested = "every language's interval against no removal and other text, and random sets"
    return Claim(name, None if needed else True, by, tested, decides="; ".join(needed))


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
#: Whose heads are changed where statements contradict each other.
BELIEVED = {
    A: "turning up a language's heads makes its statement",
    B: "removing the heads of the other language makes a statement",
}


@of_run(_step("summaries"), Summaries, *WRITTEN, "Beside random heads")
def show_general(setting: Setting, found: Summaries, shown: Findings) -> Findings:
    """Summaries, or repeated sentences, without the heads that languages share."""
    repeats, table = found.details.task == "repeat", found.evidence
    name = f"general heads are needed for {'repeating sentences' if repeats else 'summaries'}"
    how = f"without {count(table.main.k, 'general head')}"
    claim = written_claim(name, "ROUGE-L", how, table, table.main, "rouge_l")
    if repeats:
        no_summaries = (
            "The bundled model cannot summarise; it repeats sentences, which copying heads do, so "
            "this says nothing about summaries."
        )
        shown = replace(shown, sure=f"{shown.sure} {no_summaries}")
    return claimed(shown, claim)


def show_off_target(setting: Setting) -> Findings:
    """Whether the model leaves a language without its heads."""
    every, claims = list[Findings](), []
    for ask, title in (("translate", "translations"), ("continue", "continued documents")):
        step = step_name(setting, f"off-target-{ask}")
        found = setting.read(step, OffTarget)
        if found is None:
            continue
        table = found.evidence
        shown = shown_by(setting, step, *WRITTEN, "In which language instead")
        known = "off_target" in table.statistics
        every.append(titled(shown if known else replace(shown, found=""), title.capitalize()))
        own = next((condition for condition in table.selected if condition.of == OWN), None)
        if known and own is not None:
            name = f"without a language's own heads {title} leave it"
            what, how = f"{title} in another language", "without the heads specific to the language"
            claims.append(written_claim(name, what, how, table, own, "off_target"))
    return claimed(joined(every), *claims)


@of_run(_step("mitigation"), Steering, *WRITTEN, "Beside random heads")
def show_mitigation(setting: Setting, found: Steering, shown: Findings) -> Findings:
    """Whether fewer answers are in the wrong language with the heads of either language changed."""
    table, away = found.evidence, found.details.away
    if away is None or "off_target" not in table.statistics:
        return Findings()
    name = language_name(away)
    words = {
        OWN: (
            "turning up the heads of the language asked for leads answers back to it",
            "with the heads of the language asked for times 3",
        ),
        away: (
            f"removing {name} heads leads answers back to the language asked for",
            f"with {name} heads removed",
        ),
    }
    what = "answers in another language than asked for"
    claims = [
        written_claim(
            words[condition.of][0], what, words[condition.of][1], table, condition, "off_target"
        )
        for condition in table.selected
    ]
    provoked = (
        f"The requests follow a text in {name}: the wrong language is provoked, and how often it "
        "occurs by itself is not measured."
    )
    return claimed(replace(shown, sure=f"{shown.sure} {provoked}"), *claims)


def show_transfer(setting: Setting) -> Findings:
    """Which of two contradicting statements is believed, with a language turned up or down."""
    shown, claims = list[Findings](), []
    for pair in parts(setting, setting.data.statements):
        step = step_name(setting, step_of("transfer", pair))
        found, of = setting.read(step, Transfer), f", {pair}" if pair else ""
        if found is None:
            continue
        for condition in found.evidence.selected:
            name = f"{BELIEVED[condition.of]} believed more often{of}"
            what = f"answers by A's statement{of}"
            how = f"with {condition.of}'s heads times {condition.gate:g}"
            claims.append(
                written_claim(name, what, how, found.evidence, condition, "follows_a", "pairs")
            )
        shown.append(titled(shown_by(setting, step, *WRITTEN, "Beside random heads"), pair))
    every = joined(shown)
    none = "No language of these pairs has heads of its own, so nothing was changed."
    return claimed(replace(every, found=none) if shown and not claims else every, *claims)


def written_claim(
    name: str,
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
            f" {how} (change {_spread(change, factor)}), {factor * random:.1f}{unit} with random "
            f"ones instead; {counted}"
        )

    return of_heads(name, table, statistic, condition, by)


# Trained gates


def show_gates(setting: Setting) -> Findings:
    """Trained gates against random heads trained alike, and against the same heads removed."""
    languages, claims, rows = list[Findings](), [], {}
    theirs = value("lahis", "Abstract", model=ANY, row="soft head mask", column="parameters",
                   measure="count")  # fmt: skip
    for code in parts(setting, setting.data.questions):
        step = step_name(setting, step_of("soft-gate", code))
        found = setting.read(step, SoftGateResult)
        selected = None if found is None else found.evidence.main.k
        rows[code or "questions"] = Cell(selected, None, None, theirs, "not run", 0)
        if found is not None:
            shown = shown_by(setting, step, "Values and tests", "Gates")
            languages.append(titled(shown, code))
            claims.append(gates_claim(found, code))
    if not languages:
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
        shown, *claims, tables=[with_published("Gates trained", "gates", rows, reference)]
    )


def gates_claim(found: SoftGateResult, code: str) -> Claim:
    """That trained gates answer more; a training has its own random heads, each one draw."""
    evidence, trained = found.evidence, found.evidence.main
    where, number = f" in {code}" if code else "", evidence.statistics["accuracy"].number

    def by(value: float, change: Estimate, random: float) -> str:
        words = (
            f"{count(trained.k, 'trained gate')}: {number(evidence.level('accuracy'))} of "
            f"{found.details.pairs.test} questions answered{where} as is, {number(value)} with "
            f"them (change {_spread(change)})"
        )
        if (test := evidence.against("accuracy", trained).get("random")) is not None:
            words += (
                f", {number(random)} with gates of random heads trained alike "
                f"(difference {_spread(test.difference)})"
            )
        silent = (condition for condition in evidence.selected if condition.gate == 0)
        return words + "".join(
            f", {number(evidence.level('accuracy', condition))} without these heads"
            for condition in silent
        )

    name = f"trained gates answer more questions{where} than gates of random heads"
    return of_heads(name, evidence, "accuracy", trained, by)


# What they have in common


def _sign(estimate: Estimate) -> int:
    """1 if the whole interval lies above zero, -1 if below, 0 if zero is in it."""
    return int(estimate.low > 0) - int(estimate.high < 0)


def _spread(estimate: Estimate, factor: float = 100.0) -> str:
    """`4.7, 1.0 to 8.8`."""
    value, low, high = (factor * end for end in (estimate.value, estimate.low, estimate.high))
    return f"{value:.1f}, {low:.1f} to {high:.1f}"


def _span(values: Sequence[float], digits: int) -> str:
    """`0.079 to 0.100`, or the one value."""
    low, high = (f"{end:.{digits}f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
