"""What the experiments show: blocks of their studies, published figures with ours, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import comb, isnan
from statistics import fmean
from typing import Any

from headscope.estimates import Estimate
from headscope.evidence.rows import ORIGINAL, SELECTED, Evidence
from headscope.heads import Head, count_of, count_words
from headscope.measure.intervals import t_interval, wilson_interval
from headscope.measure.statistics import p_draws
from headscope.papers.cells import hundred, table, with_published
from headscope.papers.claims import LEVEL, claimed, of_heads
from headscope.papers.paper import Setting
from headscope.papers.published import ANY, figure, paper_model, reference, value
from headscope.papers.study_steps import joined, of_run, shown_by, titled
from headscope.papers.token_alignment_heads.setting import (
    FIGURE_5,
    FIGURE_28,
    GROUPS,
    NAME,
    THRESHOLD,
    bound,
    decoded,
    differs,
    top,
)
from headscope.papers.token_alignment_heads.steps import (
    best_documents,
    other_models,
    prompts,
    rated_documents,
    selected_share,
)
from headscope.papers.trater import result as trater
from headscope.papers.trater.evidence import TRAINED
from headscope.papers.trater.result import Change, Difference, TraterResult
from headscope.pocket.tasks import CROSS_LINGUAL
from headscope.results.classes import ClassesResult, ClassShares
from headscope.results.failures import FailuresResult, Kind
from headscope.results.formation import FormationResult
from headscope.results.key_tokens import KeyTokensResult
from headscope.results.overlap import OverlapResult, PairOverlap
from headscope.results.rate import RatedCorpus
from headscope.results.removal import RemovalResult
from headscope.results.tasks import TasksResult
from headscope.results.translation_score import TranslationResult
from headscope.shown.blocks import Cell, Claim, Findings, Table, one_column, table_of
from headscope.studies.sentences import read_sentences, shown_conditions

LLAMA = "Llama-3.1-8B"
SCRATCH = "8B trained from scratch"
#: The directions that the paper compares.
FIGURES = {"Figure 5": FIGURE_5, "Figure 28": FIGURE_28, **GROUPS}
MORE_SENTENCES = "more sentences a direction"
#: Characters of a text that are shown.
SHOWN = 240


def _figure(table: str, row: str, column: str, measure: str = "share", model: str = ANY) -> float:
    return figure(NAME, table, model=model, row=row, column=column, measure=measure)


# Figure 2


def show_links(setting: Setting) -> Findings:
    """One sentence with its links, and how many words have one."""
    found = setting.result("links")
    if found is None or found["example"] is None:
        return Findings()
    example, by = found["example"], found["aligner"]
    words = ((word["target"], " ".join(word["source"]) or "none") for word in example["words"])
    how = "The links come with the data."
    if by != "links":
        by = f"the language model {by.removeprefix('llm ')}" if by.startswith("llm ") else by
        how = f"The links are those of {by}, which makes mistakes that were not counted here."
    confidence = _figure("Section 2.1", "links", "confidence, above", "threshold")
    note = f"The paper takes links of GPT-4.1 with a confidence above {confidence:g}."
    compared = one_column(f"{example['source']} ({found['direction']})", "source word", words, note)
    share = found["linked"] / found["words"] if found["words"] else 0.0
    counted_in = "those"
    if decoded(setting) != "reference":
        counted_in += " of the model's own translations, which are linked in the same way"
    said = f"{share:.0%} of {found['words']} target words have a source word; scores count"
    return Findings((compared,), (), f"{said} {counted_in}.", how)


# Figures 3 and 4


@of_run("classes", ClassesResult, "Heads in each class")
def show_classes(setting: Setting, found: ClassesResult, shown: Findings) -> Findings:
    """Which share of the heads aligns tokens."""
    first, scores = found.models[0], setting.read("scores", TranslationResult)
    own = None if scores is None else bounds(scores)
    row, most = "token alignment heads", _figure("Section 3.1", "token alignment heads",
                                                 "all models, below")  # fmt: skip
    theirs: float | str = f"< {100 * most:g}"
    cited, model = bound(setting, "Section 3.1"), paper_model(NAME, setting.model.model)
    if model is not None:
        of_all = value(NAME, "Section 3.1", model=model, row=row, column="of all heads",
                       measure="share")  # fmt: skip
        if of_all is not None:
            theirs = 100 * of_all
            cited = reference(NAME, "Section 3.1", model, default=model, differs=differs(setting))
    share = replace(hundred(first.shares.token_alignment, *(own or ())), published=theirs)
    note = (
        "The interval runs from heads whose whole interval lies above the threshold to those whose "
        "interval reaches it."
    )
    rows = {first.model or first.name: share}
    compared = with_published("Token alignment heads", "% of all heads", rows, cited, note)
    return claimed(shown, *class_claims(first, own, most), tables=[compared])


def bounds(scores: TranslationResult) -> tuple[float, float] | None:
    """Shares of heads whose whole interval lies above the threshold, and whose upper end does.

    Over several directions the means of their shares; None where a head has no interval.
    """
    ends = []
    for part in (scores.directions or {"": scores}).values():
        spans = [
            (head.low, head.high)
            for head in part.scored
            if head.low is not None and head.high is not None
        ]
        if not spans or len(spans) < len(part.scored):
            return None
        ends.append(
            [
                fmean(end > THRESHOLD for end in ends_of_head)
                for ends_of_head in zip(*spans, strict=True)
            ]
        )
    low, high = map(fmean, zip(*ends, strict=True))
    return low, high


def class_claims(classes: ClassShares, own: tuple[float, float] | None, most: float) -> list[Claim]:
    """That there are such heads, and that they are few."""
    counted, total = classes.counts.token_alignment, classes.total
    above = classes.counts_above_chance
    chance = None if above is None else above.token_alignment
    by_chance = "" if chance is None else f", {count_words(chance)} above chance by as much"
    tested = "" if own is None else "intervals of single heads over sentences"
    some: bool | None = counted > 0 and chance != 0
    if some and own is not None and own[0] == 0:
        some = None
    by = f"{count_words(counted)} of {total} score above {THRESHOLD}{by_chance}"
    there = Claim("some heads align tokens", some, by, tested, decides=MORE_SENTENCES)
    low, high = own or (counted / total, counted / total)
    few = True if high < most else False if low >= most else None
    by = f"{counted / total:.1%} of all heads; below {most:.0%} in the paper"
    name = "token alignment heads are few"
    return [there, Claim(name, few, by, tested, decides=MORE_SENTENCES)]


def show_positions(setting: Setting) -> Findings:
    """In which layers these heads lie, also of other models."""
    profile = (setting.result("scores") or {}).get("layer_profile")
    if profile is None:
        return Findings()
    others = setting.data.others if setting.data.pairs else ()
    sections = ("Layers",)
    elsewhere = (titled(shown_by(setting.of(name), "scores", *sections), name) for name in others)
    shown = joined([shown_by(setting, "scores", *sections), *elsewhere])
    aligned = thirds([layer["token_alignment"] for layer in profile])
    if not sum(aligned):
        return shown
    by = f"{count_words(aligned[1])} of {count_words(sum(aligned))} lie in the middle third"
    name = "token alignment heads lie in the middle layers"
    claim = Claim(name, max(range(3), key=lambda at: aligned[at]) == 1, by)
    return claimed(replace(shown, found=""), claim, in_words=True)


def thirds(counts: Sequence[float]) -> tuple[float, float, float]:
    """Numbers of the lowest, the middle and the highest third of layers, in this order."""
    layers, found = len(counts), [0.0, 0.0, 0.0]
    for layer, number in enumerate(counts):
        found[min(2, int(3 * (layer + 0.5) / layers))] += number
    return found[0], found[1], found[2]


# Figures 5 and 28


@of_run("overlap", OverlapResult, "Groups of pairs of directions")
def show_overlap(setting: Setting, found: OverlapResult, shown: Findings) -> Findings:
    """Whether the same heads translate in all directions."""
    theirs = {name: among(found.pairs, figure) for name, figure in FIGURES.items()}
    least = _figure(
        "Section 3.2", "token alignment heads", "all pairs, not below", "jaccard", LLAMA
    )
    rows = {
        name: Cell(
            min(pair.jaccard for pair in pairs),
            published=f"\u2265 {least:g}" if name == "Figure 5" else None,
        )
        for name, pairs in theirs.items()
        if pairs
    }
    title = "Lowest Jaccard index of the best heads of two directions"
    note = "Published: the lower bound that the paper gives for the ten directions of Figure 5."
    compared = with_published(title, "here", rows, bound(setting, "Section 3.2", LLAMA), note)
    claims = [
        figure_5_claim(theirs["Figure 5"], least),
        *figure_28_claim(theirs["from English"], theirs["into English"]),
    ]
    return claimed(shown, *claims, tables=[compared] if rows else [])


def among(pairs: Sequence[PairOverlap], own: Sequence[str]) -> list[PairOverlap]:
    """The pairs of which both directions are among these."""
    return [pair for pair in pairs if {pair.a, pair.b} <= set(own)]


def figure_5_claim(pairs: Sequence[PairOverlap], least: float) -> Claim:
    """That the heads of Figure 5's directions are the same; one pair that is not speaks against it.

    Open where directions of the figure are missing and the others agree.
    """
    of = comb(len(FIGURE_5), 2)
    name = "the same heads align tokens in the ten directions of Figure 5"
    missing = "the other directions of Figure 5, of sentences in their languages"
    if not pairs:
        return Claim(name, None, f"none of its {of} pairs is here", decides=missing)
    values, largest = [pair.jaccard for pair in pairs], max(pair.p_value for pair in pairs)
    by = (
        f"{len(pairs)} of its {of} pairs: Jaccard index {fmean(values):.2f} on average, "
        f"{min(values):.2f} at the lowest, {fmean(pair.expected_exact for pair in pairs):.2f} by "
        f"chance, largest p {largest:.2g}; {least:g} is the lowest in the paper"
    )
    # That a pair lies below the paper's lowest is no test.
    if min(values) < least:
        return Claim(name, False, by)
    tested = "random sets of as many heads (hypergeometric)"
    if len(pairs) == of and largest < LEVEL:
        return Claim(name, True, by, tested)
    return Claim(name, None, by, tested, decides=missing if len(pairs) < of else MORE_SENTENCES)


def figure_28_claim(out_of: Sequence[PairOverlap], into: Sequence[PairOverlap]) -> list[Claim]:
    """That directions from English are more alike than those into it; none without both."""
    if not out_of or not into:
        return []
    means = [fmean(pair.jaccard for pair in group) for group in (out_of, into)]
    by = (
        f"Jaccard index {means[0]:.2f} and {means[1]:.2f} on average, of {len(out_of)} and "
        f"{len(into)} of {comb(len(GROUPS['from English']), 2)} pairs each"
    )
    name = "directions from English share more heads than those into English (Figure 28)"
    return [Claim(name, means[0] > means[1], by)]


# Figures 6 and 7


@of_run("formation", FormationResult, "Every checkpoint", "Over training")
def show_formation(setting: Setting, found: FormationResult, shown: Findings) -> Findings:
    """How these heads form during training."""
    checkpoints, row = found.checkpoints, "token alignment heads"
    peak, last = (
        max(checkpoints, key=lambda checkpoint: checkpoint.shares.token_alignment),
        checkpoints[-1],
    )
    rows = dict[str, Cell]()
    for checkpoint, column in ((peak, "step 8000"), (last, "end")):
        name = f"{checkpoint.name} (paper: {column})"
        share = _figure("Figure 6", row, column, model=SCRATCH)
        theirs = _figure("Figure 7", row, column, "overlap", SCRATCH)
        rows[f"{name}, token alignment %"] = hundred(
            checkpoint.shares.token_alignment, published=share
        )
        rows[f"{name}, overlap with the last"] = Cell(
            checkpoint.overlap_with_last, published=theirs
        )
    inactive = _figure("Section 4", "inactive heads", "end", model=SCRATCH)
    rows["at the end, inactive %"] = hundred(last.shares.inactive, published=inactive)
    model = setting.model.model
    cited = reference(NAME, "Figure 6", model, default=SCRATCH, differs=differs(setting))
    note = (
        "The first checkpoint is that with the largest share. The paper's share of inactive heads "
        "is from section 4, its overlap from Figure 7."
    )
    compared = with_published("Compared with the paper's training", "here", rows, cited, note)
    above = [
        checkpoint.above_chance.token_alignment
        for checkpoint in checkpoints
        if checkpoint.above_chance
    ]
    shares = [checkpoint.shares.token_alignment for checkpoint in checkpoints]
    heads = sum(checkpoints[0].counts.each)
    claim = formation_claim(shares, above if len(above) == len(checkpoints) else None, heads)
    return claimed(replace(shown, tables=(*shown.tables, compared)), claim)


def formation_claim(shares: Sequence[float], above: Sequence[float] | None, heads: float) -> Claim:
    """That the heads multiply at first and thin out later, each by a whole head or more.

    Open where the shares above chance say otherwise.
    """

    def three(shares: Sequence[float]) -> str:
        return f"{shares[0]:.1%} at first, {max(shares):.1%} at most, {shares[-1]:.1%} at the end"

    by, every = three(shares), [shares]
    if above is not None:
        by, every = f"{by}; above chance by {THRESHOLD}: {three(above)}", [shares, above]
    verdicts = {max(curve) - max(curve[0], curve[-1]) >= 1 / heads for curve in every}
    holds = verdicts.pop() if len(verdicts) == 1 else None
    name = "token alignment heads multiply in training and thin out later"
    return Claim(name, holds, by, decides="more sentences at each checkpoint")


# Figures 1 and 8


@of_run("removal", RemovalResult, "Values and tests", "Beside random heads")
def show_removal(setting: Setting, found: RemovalResult, shown: Findings) -> Findings:
    """What translation is without these heads."""
    tables, evidence = list[Table](), found.evidence
    if "text" in found.details.measures:
        main = evidence.main
        rows = {}
        for name, words in (("chrf", "chrF++"), ("bleu", "BLEU")):
            drop = _figure("Section 5.1", "removal", "largest drop, above", name)
            level = evidence.level(name, main)
            cell = Cell.of(level.change if level else None, 1)
            rows[f"change of {words}"] = replace(
                cell, published=f"< \u2212{drop:g}", why="not measured"
            )
        note = "Published: the largest drops over the paper's models exceed these."
        title, cited = "Translation without the heads", bound(setting, "Section 5.1")
        tables = [with_published(title, f"top {main.k}", rows, cited, note)]
        shown = replace(shown, tables=(*shown.tables, *example(setting, evidence)))
    return claimed(shown, *removal_claims(found), tables=tables)


def example(setting: Setting, evidence: Evidence) -> list[Table]:
    """One sentence as in Figure 1: the first that is right as it is and fails without the heads."""
    shown = shown_conditions(evidence.conditions)
    titles = {
        condition.kind: f"{condition.k} {condition.kind} heads removed"
        if condition.k
        else "no heads removed"
        for condition in shown
    }
    for sentence in read_sentences(
        setting.at("removal"), {condition.id: condition.kind for condition in shown}
    ):
        right = sentence.reference.strip()
        before, after = (sentence.outputs[kind].strip() for kind in (ORIGINAL, SELECTED))
        if before == right != after:
            texts = {"source": sentence.source, **sentence.outputs}
            rows = ((titles.get(kind, kind), text) for kind, text in texts.items())
            return [one_column(f"An example ({sentence.direction})", "text", rows)]
    return []


def removal_claims(found: RemovalResult) -> list[Claim]:
    """That the model needs these heads to translate, more than others; by loss a claim of ours."""
    evidence, main, claims = found.evidence, found.evidence.main, list[Claim]()
    for statistic, name in (
        ("chrf", "translation needs the heads"),
        ("nll", "reference translations cost more without the heads (by loss)"),
    ):
        if evidence.level(statistic) and evidence.level(statistic, main):
            grounds = partial(_removal_grounds, evidence, statistic)
            claims.append(of_heads(name, evidence, statistic, main, grounds))
    return claims


def _removal_grounds(
    evidence: Evidence, statistic: str, value: float, change: Estimate, random: float
) -> str:
    own, base, n = evidence.statistics[statistic], evidence.level(statistic), len(evidence.single)
    drawn = "" if isnan(random) else f", {own.number(random)} without random ones"
    return (
        f"{own.title} {own.number(base)} as it is, {own.number(value)} without the top "
        f"{evidence.main.k}{drawn}; {base.examples if base else 0} sentences of {n} "
        f"direction{'' if n == 1 else 's'}"
    )


# Figures 10 to 12


@of_run("failures", FailuresResult, "First cases of each kind")
def show_failures(setting: Setting, found: FailuresResult, shown: Findings) -> Findings:
    """How translations fail without these heads."""
    rows, total = {}, found.selected
    for kind in ("no translation", "missing details", "hallucination", "other"):
        ends = wilson_interval(found.counts[kind], total) if total else ()
        share = found.counts[kind] / total if total else None
        theirs = value(NAME, "Section A.4", model=ANY, row="failures", column=kind, measure="share")
        rows[kind] = hundred(share, *ends, published=theirs, why="no translation failed")
    note = (
        f"Of {found.rows} sentences those that are good as they are (chrF++ of at least "
        f"{found.rule.good:g}) and lose at least {found.rule.loss:g} points. Sorted by rules over "
        "words and links; how the paper sorted it does not say."
    )
    cited = bound(setting, "Section A.4")
    compared = with_published("Kinds of failure", "share of failures %", rows, cited, note)
    return claimed(shown, *failure_claim(found.counts, total), tables=[compared])


def failure_claim(counts: Mapping[Kind, int], total: int) -> list[Claim]:
    """That most failures are translations that were not made."""
    if not total:
        return []
    order: tuple[Kind, ...] = ("no translation", "missing details", "hallucination", "other")
    own, *others = (counts[kind] for kind in order)
    most = max(order, key=lambda kind: counts[kind])
    by = f"{own / total:.0%} of {total} failures; most frequent: {most}, {counts[most] / total:.0%}"
    # Of the failures of this kind and the most frequent other one, more than half are of this one.
    low, high = wilson_interval(own, own + max(others))
    holds = True if low > 0.5 else False if high < 0.5 else None
    name = "without the heads the source is repeated more often than anything else"
    tested = "an interval of its share among its failures and those of the next kind"
    return [Claim(name, holds, by, tested, decides="more failing translations")]


# Figures 9 and 19 to 21


def show_tasks(setting: Setting) -> Findings:
    """What other tasks lose without these heads, also in other models."""
    parts = [_tasks_of(setting)]
    parts += [titled(_tasks_of(setting.of(name)), name) for name in other_models(setting)]
    return replace(joined(parts), more=parts[0].more)


@of_run("tasks", TasksResult, "Tasks", "Beside random heads", "Values and tests")
def _tasks_of(setting: Setting, found: TasksResult, tasks: Findings) -> Findings:
    evidence, changes = found.evidence, dict[str, Estimate]()
    for name, task in found.details.tasks.items():
        level = evidence.level(task.metric, evidence.main, name)
        changes[name] = (level.change if level else None) or Estimate()
    worst = min(changes, key=lambda name: changes[name].value)
    most = _figure("Section 5.2", "removal", "largest drop", "accuracy")
    rows = {worst: replace(Cell.of(changes[worst], 1, factor=100), published=-most)}
    title, cited = "The largest loss of a task", bound(setting, "Section 5.2")
    compared = with_published(title, "change, points", rows, cited)
    removal = replace(shown_by(setting, "removal", "Under every condition"), found="", sure="")
    return claimed(joined([tasks, removal]), *task_claim(changes), tables=[compared])


def task_claim(changes: Mapping[str, Estimate]) -> list[Claim]:
    """That tasks within one language need the heads less; none where no task needs a mapping.

    By the means of the bounds, which is more careful than an interval of the mean. Random heads are
    in the table alone: no test of the families includes them.
    """
    cross = {task.name for task in CROSS_LINGUAL}
    over = [change for name, change in changes.items() if name in cross]
    within = [change for name, change in changes.items() if name not in cross]
    if not over or not within:
        return []
    holds: bool | None = None
    if all(change.bounded for change in changes.values()):
        if fmean(change.high for change in over) < fmean(change.low for change in within):
            holds = True
        elif fmean(change.low for change in over) > fmean(change.high for change in within):
            holds = False
    means = [100 * fmean(change.value for change in family) for family in (over, within)]
    by = f"tasks across languages {means[0]:+.1f} points, within one {means[1]:+.1f}"
    name = "other tasks need the heads less"
    return [Claim(name, holds, by, decides="more examples of each task")]


# Figures 22 to 27


@of_run("scores", TranslationResult)
def show_key_words(setting: Setting, scored: TranslationResult, _: Findings) -> Findings:
    """Whether these heads look at the words on which a prompt turns."""
    scores = {head.place: head.score or 0.0 for head in scored.scored}
    k = count_of(top(setting), setting.geometry.total)
    rows = dict[str, tuple[Any, ...]]()
    plain, looking = list[bool](), list[bool]()
    for prompt in prompts(setting):
        found = setting.read(f"key-words-{prompt.name}", KeyTokensResult)
        if found is None:
            continue
        attention = {head.place: head.score for head in found.scored}
        chosen, others, share = looked(attention, scores, k)
        looking.append(others is None or chosen > others)
        plain += [] if prompt.mapping else looking[-1:]
        words = ", ".join(prompt.words)
        rows[prompt.name] = (words, chosen, others, hundred(share), found.details.uniform)
    if not rows:
        return Findings()
    names = ("key words", f"top {k}", "other heads", "others as high %", "even")
    note = (
        "Mean attention on the key words while the right answer is predicted; even: were attention "
        "spread over all visible tokens alike. "
    )
    note += (
        "Prompts are of the pocket world and stand for none of the paper's."
        if setting.pocket
        else "The prompts are ours, key words of endings the paper's (the German ones translated)."
    )
    shown = table("Attention on key words", names, rows, note)
    said = (
        f"In {sum(looking)} of {len(rows)} prompts the best heads look at the key words more than "
        "the other heads do."
    )
    cases = "Single prompts, as in the paper: they show cases and have no intervals."
    return claimed(Findings((shown,), (), said, cases), *key_word_claim(plain))


def looked(
    attention: Mapping[Head, float], scores: Mapping[Head, float], k: int
) -> tuple[float, float | None, float | None]:
    """Mean attention of the k heads that score best, that of the others, and their share.

    The share is of other heads that look as much as the mean of the chosen ones.
    """
    order = sorted(scores, key=lambda head: (-scores[head], head))
    chosen = fmean(attention[head] for head in order[:k])
    others = [attention[head] for head in order[k:]]
    if not others:
        return chosen, None, None
    return chosen, fmean(others), fmean(attended >= chosen for attended in others)


def key_word_claim(plain: Sequence[bool]) -> list[Claim]:
    """That the heads look away where no mapping is needed; `plain` are prompts that need none."""
    if not plain:
        return []
    holds = True if not any(plain) else False if all(plain) else None
    by = f"the best heads look at the key words in {sum(plain)} of {len(plain)} prompts"
    name = "token alignment heads look away from words that need no mapping"
    return [Claim(name, holds, by, decides="more prompts that need no mapping")]


# Tables 2 and 3


@of_run("rated", RatedCorpus, "Scores by language")
def show_rated(setting: Setting, _: RatedCorpus, shown: Findings) -> Findings:
    """Which texts need these heads."""
    rows, share = rated_documents(setting.at("rated")), selected_share(setting)
    best = best_documents(rows, share)
    random = (setting.result("rated-random") or {"draws": []})["draws"]
    tables = list[Table]()
    if any("kind" in row for row in rows):
        selected = dict[str, tuple[Any, ...]]()
        for name, documents in best.items():
            every = [row for row in rows if str(row.get("language") or "") == name]
            kinds = [kind for draw in random for kind in draw["kinds"].get(name, ())]
            drawn = kinds.count("bilingual") / len(kinds) if kinds else None
            parts = hundred(*bilingual(documents)), hundred(drawn), hundred(bilingual(every)[0])
            selected[name or "-"] = (len(documents), *parts)
        names = ("selected", "with translation %", "by random heads %", "of all %")
        note = (
            f"Selected: the {share:.1%} of each language with the highest scores (nats a token "
            f"that the heads are worth). Random heads: the mean of {len(random)} sets."
        )
        tables = [table("Selected documents", names, selected, note)]
    first = (
        (name, {**documents[0], "text": _cut(str(documents[0]["text"]))})
        for name, documents in best.items()
    )
    columns = {"score": lambda row: row["score"], "text": lambda row: row["text"]}
    examples = table_of("The document of each language with the highest score", first, columns)
    shown = replace(shown, tables=(*shown.tables, examples))
    return claimed(shown, *rated_claim(best, rows, random), tables=tables)


def _cut(words: str) -> str:
    plain = " / ".join(words.splitlines())
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 1].rstrip()}…"


def rated_claim(
    best: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    random: Sequence[Mapping[str, Any]],
) -> list[Claim]:
    """That the texts which need the heads carry translations; none where no text says so.

    It holds where the interval of their share lies above that of all texts, and p over random
    heads is at most 0.05.
    """
    chosen = [row for documents in best.values() for row in documents]
    if not chosen or not any("kind" in row for row in rows):
        return []
    (share, low, high), every = bilingual(chosen), bilingual(rows)[0]
    holds = True if low > every else False if high < every else None
    by = f"{share:.0%} of the {len(chosen)} selected carry one, {every:.0%} of all"
    decides = "" if holds is not None else "more texts"
    kinds = [
        [kind for language_kinds in draw["kinds"].values() for kind in language_kinds]
        for draw in random
    ]
    shares = [
        language_kinds.count("bilingual") / len(language_kinds)
        for language_kinds in kinds
        if language_kinds
    ]
    p = p_draws(-share, [-drawn_share for drawn_share in shares]) if shares else 1.0
    if shares:
        by += f", {fmean(shares):.0%} of those that random heads select"
        as_much = sum(drawn_share >= share for drawn_share in shares)
        by += f"; {as_much} of {len(shares)} random sets do as much (p {p:.2g})"
    if holds and p > LEVEL:
        holds, decides = None, "more random sets" if shares else "documents rated by random heads"
    name = "texts that need the heads carry translations"
    return [Claim(name, holds, by, "an interval of a share and random sets", decides=decides)]


def bilingual(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """The share of documents that carry their translation, with its interval."""
    number = sum(row.get("kind") == "bilingual" for row in rows)
    return number / len(rows), *wilson_interval(number, len(rows))


# Table 1

#: Mixtures in words, and which way the paper's scores go.
MIXTURES = {"remove": "without the selected texts", "enhance": "with three times as many of them"}
WAYS = {"remove": -1, "enhance": 1}


@of_run("trater", TraterResult)
def show_trainings(setting: Setting, found: TraterResult, _: Findings) -> Findings:
    """What models learn from texts that need these heads."""
    rows = {
        models[0].kind: Cell(
            fmean(model.measured.chrf_prompt or 0.0 for model in models),
            published=_trained(models[0].kind),
            digits=2,
        )
        for models in found.by_mixture().values()
    }
    other = ("other data", "our mixtures")
    cited = reference(NAME, "Table 1", setting.model.model, default=TRAINED, differs=other)
    note = (
        "Another experiment than the paper's: models of the pocket world's two languages, on a "
        f"corpus that is {found.corpus.bilingual_share_of_tokens:.0%} bilingual. Ours: chrF++ of "
        f"held-out sentences by the translation prompt. {found.unknown.get('note') or ''}".strip()
    )
    compared = with_published("Models trained on mixtures", "chrF++", rows, cited, note)
    shown = trater.show(found, setting.at("trater"))
    own = [
        block
        for part in shown.sections
        if part.title in ("Values and tests", "The paper")
        for block in part.blocks
        if isinstance(block, Table)
    ]
    findings = Findings((compared, *own), (), " ".join(shown.finding), shown.uncertainty)
    return claimed(findings, *trater_claim(found.changes, found.seeds))


def trater_claim(changes: Sequence[Change], seeds: int) -> list[Claim]:
    """That translation falls without the selected texts and rises with more of them."""
    by_than = {
        than: {
            row.kind: row.figures["chrf_prompt"]
            for row in changes
            if row.than == than and row.kind in MIXTURES
        }
        for than in ("random", "baseline")
    }
    random = len(by_than["random"]) == len(MIXTURES)
    measured = by_than["random" if random else "baseline"]
    if len(measured) < len(MIXTURES):
        return []
    parts = []
    for kind, words in MIXTURES.items():
        own, theirs, base = measured[kind], _trained(kind), _trained("baseline")
        ends = "" if own.low is None else f" ({own.low:+.1f} to {own.high:+.1f})"
        paper = "" if theirs is None or base is None else f" (paper {theirs - base:+.1f})"
        parts.append(f"chrF++ {own.value:+.1f}{ends} {words}{paper}")
    by = ", ".join([*parts, *(["compared with random selections"] if random else [])])
    sides = [_side(measured[kind]) * way for kind, way in WAYS.items()]
    holds = False if -1 in sides else True if random and set(sides) == {1} else None
    decides = "more trainings" if random else "models trained on random selections of the same size"
    return [
        Claim(
            "texts that need the heads teach translation",
            holds,
            f"{by}; the direction alone is compared",
            f"{seeds} trainings of each and intervals over sentences and over trainings",
            decides="" if holds is not None else decides,
        )
    ]


def _side(change: Difference) -> int:
    """1 or -1 where the intervals over sentences and over trainings both lie there, else 0."""
    if change.low is None or change.high is None or len(change.by_seed) < 2:
        return 0
    ends = [change.low, change.high, *map(float, t_interval(change.by_seed))]
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0


def _trained(kind: str) -> float | None:
    """The paper's chrF++ of a mixture; it has no random ones."""
    place = {"row": kind, "column": "flores_chrF++", "measure": "chrf"}
    return value(NAME, "Table 1", model=TRAINED, **place)
