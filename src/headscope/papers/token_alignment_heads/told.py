"""What the experiments show: blocks of their studies, published figures with ours, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import comb
from statistics import fmean
from typing import Any

from headscope.estimates import Estimate
from headscope.heads import Head, count_of, count_words
from headscope.measure.intervals import t_interval, wilson_interval
from headscope.measure.statistics import p_draws
from headscope.papers.cells import cell, hundred, less, range_of
from headscope.papers.claims import LEVEL, of_removal, with_claims
from headscope.papers.paper import Setting
from headscope.papers.published import figure, paper_model, published, reference, value
from headscope.papers.study_steps import joined, of_run, shown_by, titled, with_blocks
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
from headscope.papers.trater.evidence import TRAINED, published_selection
from headscope.papers.trater.result import MEASURES, Condition, Difference, TraterResult
from headscope.pocket.tasks import CROSS_LINGUAL
from headscope.results.classes import ClassesResult, ClassShares
from headscope.results.failures import FailuresResult, Kind
from headscope.results.formation import CheckpointRow, FormationResult
from headscope.results.key_tokens import KeyTokensResult
from headscope.results.overlap import OverlapResult, PairOverlap
from headscope.results.rating import RatedCorpus
from headscope.results.removal import RemovalResult
from headscope.results.tasks import TasksResult, tops
from headscope.results.translation import TranslationResult
from headscope.runs import encode
from headscope.runs.reading import read_rows
from headscope.shown.blocks import Bars, Cell, Claim, Findings, Reference, Row, Table

LLAMA = "Llama-3.1-8B"
SCRATCH = "8B trained from scratch"
THIRDS = ("lowest third", "middle third", "highest third")
#: The directions that the paper compares.
FIGURES = {"Figure 5": FIGURE_5, "Figure 28": FIGURE_28, **GROUPS}
MORE_SENTENCES = "more sentences a direction"
#: Characters of a text that are shown.
SHOWN = 240


def _with_published(
    title: str, rows: Mapping[str, Cell], cited: Reference, note: str = "", what: str = "here"
) -> Table:
    """Our figures and the published ones, a row each."""
    made = tuple(Row(name, (own,)) for name, own in rows.items())
    return Table(title, (what,), made, cited, note)


def _published(
    table: str, row: str, column: str, measure: str = "share", model: str = "any"
) -> float | None:
    return value(NAME, table, model=model, row=row, column=column, measure=measure)


def _figure(table: str, row: str, column: str, measure: str = "share", model: str = "any") -> float:
    return figure(NAME, table, model=model, row=row, column=column, measure=measure)


# Figure 2


def show_links(setting: Setting) -> Findings:
    """One sentence with its links, and how many words have one."""
    found = setting.result("links")
    if found is None or found["example"] is None:
        return Findings()
    example = found["example"]
    rows = tuple(
        Row(word["target"], (cell(" ".join(word["source"]) or None, why="none"),))
        for word in example["words"]
    )
    by = "a language model" if found["aligner"] == "llm" else found["aligner"]
    how = (
        "The links come with the data."
        if by == "links"
        else f"The links are those of {by}, which makes mistakes that were not counted here."
    )
    confidence = _figure("Section 2.1", "links", "confidence, above", "threshold")
    note = (
        f"{how} The paper takes links of GPT-4.1 with a confidence above {confidence:g} and shows "
        "an English sentence with its Chinese translation."
    )
    title = f"{example['source']} ({found['direction']})"
    share = found["linked"] / found["words"] if found["words"] else 0.0
    counted_in = (
        "scores count those"
        if decoded(setting) == "reference"
        else "scores count those of the model's own translations, which are linked in the same way"
    )
    said = f"{share:.0%} of {found['words']} target words have a source word; {counted_in}."
    return Findings((Table(title, ("source word",), rows, note=note),), (), said, how)


# Figures 3 and 4


@of_run("classes", ClassesResult, "Shares of heads", "Classes")
def show_classes(setting: Setting, found: ClassesResult, shown: Findings) -> Findings:
    """Which share of the heads aligns tokens."""
    first, scores = found.models[0], setting.read("scores", TranslationResult)
    own = None if scores is None else bounds(scores)
    most = _figure("Section 3.1", "token alignment heads", "all models, below")
    theirs: float | str = f"< {100 * most:g}"
    cited, model = bound(setting, "Section 3.1"), paper_model(NAME, setting.model.model)
    if model is not None:
        of_all = _published("Section 3.1", "token alignment heads", "of all heads", model=model)
        if of_all is not None:
            theirs = 100 * of_all
            cited = reference(NAME, "Section 3.1", model, default=model, differs=differs(setting))
    low, high = own or (None, None)
    share = hundred(first.shares.token_alignment, low, high)
    table = _with_published(
        "Token alignment heads",
        {first.model or first.name: replace(share, published=theirs)},
        cited,
        "The interval runs from heads whose whole interval lies above the threshold to those whose "
        "interval reaches it.",
        "% of all heads",
    )
    return with_blocks(shown, table, claims=class_claims(first, own, most))


def bounds(scores: TranslationResult) -> tuple[float, float] | None:
    """Shares of heads whose whole interval lies above the threshold, and whose upper end does.

    Over several directions the means of their shares; None where a head has no interval.
    """
    ends = []
    for part in (scores.directions or {"": scores}).values():
        spans = [
            (head.low, head.high)
            for head in part.heads
            if head.low is not None and head.high is not None
        ]
        if not spans or len(spans) < len(part.heads):
            return None
        ends.append([fmean(end > THRESHOLD for end in each) for each in zip(*spans, strict=True)])
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
    sections = ("Token alignment heads", "Every head")
    shown = joined(
        [
            shown_by(setting, "scores", *sections),
            *(titled(shown_by(setting.of(name), "scores", *sections), name) for name in others),
        ]
    )
    aligned = thirds([layer["token_alignment"] for layer in profile])
    total = sum(aligned)
    if not total:
        return shown
    most = max(range(3), key=lambda at: aligned[at])
    as_there = "as" if most == 1 else "unlike"
    said = (
        f"{count_words(aligned[most])} of {count_words(total)} token alignment heads "
        f"({aligned[most] / total:.0%}) lie in the {THIRDS[most]} of the layers, {as_there} in the "
        "paper's models, where they lie in the middle."
    )
    by = f"{count_words(aligned[1])} of {count_words(total)} lie in the middle third"
    claim = Claim("token alignment heads lie in the middle layers", most == 1, by)
    return replace(shown, found=said, more=with_claims(claim))


def thirds(counts: Sequence[float]) -> tuple[float, float, float]:
    """Numbers of the lowest, the middle and the highest third of layers, in this order."""
    layers, found = len(counts), [0.0, 0.0, 0.0]
    for layer, number in enumerate(counts):
        found[min(2, int(3 * (layer + 0.5) / layers))] += number
    return found[0], found[1], found[2]


# Figures 5 and 28


@of_run("overlap", OverlapResult, "Groups of directions", "Map of the overlap")
def show_overlap(setting: Setting, found: OverlapResult, shown: Findings) -> Findings:
    """Whether the same heads translate in all directions."""
    theirs = {name: among(found.pairs, own) for name, own in FIGURES.items()}
    least = _figure(
        "Section 3.2", "token alignment heads", "all pairs, not below", "jaccard", LLAMA
    )

    def lowest(name: str, pairs: Sequence[PairOverlap]) -> Cell:
        in_paper = f"\u2265 {least:g}" if name == "Figure 5" else None
        return cell(min(pair.jaccard for pair in pairs), published=in_paper)

    rows = {name: lowest(name, pairs) for name, pairs in theirs.items() if pairs}
    table = _with_published(
        "Lowest Jaccard index of the best heads of two directions",
        rows,
        bound(setting, "Section 3.2", LLAMA),
        "Published: the lower bound that the paper gives for the ten directions of Figure 5.",
    )
    claims = [
        figure_5_claim(theirs["Figure 5"], least),
        *figure_28_claim(theirs["from English"], theirs["into English"]),
    ]
    return with_blocks(shown, *([table] if rows else []), claims=claims)


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


@of_run("formation", FormationResult, "Checkpoints", "Over training")
def show_formation(setting: Setting, found: FormationResult, shown: Findings) -> Findings:
    """How these heads form during training."""
    rows = found.checkpoints
    peak, last = max(rows, key=lambda row: row.shares.token_alignment), rows[-1]

    def published_cells(row: CheckpointRow, column: str) -> dict[str, Cell]:
        name = f"{row.name} (paper: {column})"
        overlap = _figure("Figure 7", "token alignment heads", column, "overlap", SCRATCH)
        share = _figure("Figure 6", "token alignment heads", column, model=SCRATCH)
        return {
            f"{name}, token alignment %": hundred(row.shares.token_alignment, published=share),
            f"{name}, overlap with the last": cell(row.overlap_with_last, published=overlap),
        }

    inactive = _figure("Section 4", "inactive heads", "end", model=SCRATCH)
    cited = reference(
        NAME, "Figure 6", setting.model.model, default=SCRATCH, differs=differs(setting)
    )
    table = _with_published(
        "Compared with the paper's training",
        {
            **published_cells(peak, "step 8000"),
            **published_cells(last, "end"),
            "at the end, inactive %": hundred(last.shares.inactive, published=inactive),
        },
        cited,
        "The first checkpoint is that with the largest share. The paper's share of inactive heads "
        "is from section 4, its overlap from Figure 7.",
    )
    above = [row.above_chance.token_alignment for row in rows if row.above_chance is not None]
    shares = [row.shares.token_alignment for row in rows]
    heads = sum(rows[0].counts.each)
    claim = formation_claim(shares, above if len(above) == len(rows) else None, heads)
    return replace(shown, tables=(*shown.tables, table), more=with_claims(claim))


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


@of_run("removal", RemovalResult, "Effect", "Measures", "Tests", "Loss")
def show_removal(setting: Setting, found: RemovalResult, shown: Findings) -> Findings:
    """What translation is without these heads."""
    tables = [*shown.tables]
    if "text" in found.measures:
        without, base = found.main_case.top, found.baseline
        drops = {
            key: f"< \u2212{_figure('Section 5.1', 'removal', 'largest drop, above', key):g}"
            for key in ("bleu", "chrf")
        }
        texts = (without.text, base.text)
        bleu = less(*(None if text is None else text.bleu for text in texts))
        rows = {
            "change of chrF++": _estimate(without.change.chrf, drops["chrf"]),
            "change of BLEU": cell(bleu, published=drops["bleu"], digits=1, why="not measured"),
        }
        note = "Published: the largest drops over the paper's models exceed these."
        title, cited = "Translation without the heads", bound(setting, "Section 5.1")
        tables.insert(0, _with_published(title, rows, cited, note, f"top {without.label.k}"))
        tables += example(setting)
    return replace(shown, tables=tables, more=with_claims(*removal_claims(found)))


def _estimate(
    estimate: Estimate | None, published: float | str | None = None, factor: float = 1.0
) -> Cell:
    return replace(Cell.of(estimate, 1, "", factor), published=published)


def removal_claims(found: RemovalResult) -> list[Claim]:
    """That the model needs these heads to translate, more than others; by loss a claim of ours."""
    case = found.main_case
    removed, claims, both = case.top, [], len(found.measures) > 1
    n = len(found.directions)
    for measure, change, ending, name in (
        ("text", removed.change.chrf, "", "translation needs the heads"),
        (
            "loss",
            removed.change.nll,
            "_loss" if both else "",
            "reference translations cost more without the heads (by loss)",
        ),
    ):
        if measure not in found.measures or change is None:
            continue
        words, digits, sign = ("chrF++", 1, -1) if measure == "text" else ("nats a token", 3, 1)
        drawn = case.chrf("random") if measure == "text" else case.nll("random")
        base, without = (
            (found.chrf, removed.chrf) if measure == "text" else (found.baseline.nll, removed.nll)
        )
        random = f", {fmean(drawn):.{digits}f} without random ones" if drawn else ""
        by = (
            f"{words} {base:.{digits}f} as it is, {without:.{digits}f} without the top "
            f"{removed.label.k}{random}; {found.sentences} sentences of {n} "
            f"direction{'' if n == 1 else 's'}"
        )
        row, of = encode(removed), change.record()
        claims.append(of_removal(name, row, by, change=of, ending=ending, sign=sign))
    return claims


def example(setting: Setting) -> list[Table]:
    """One sentence as in Figure 1: the first that is right as it is and fails without the heads."""
    rows = [row for _, row in read_rows(setting.at("removal") / "outputs.jsonl")]
    k = max((row["k"] for row in rows if row["condition"] == "top"), default=None)
    made: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        kind = row["condition"]
        if kind == "baseline" or (row["k"] == k and row["gate"] == 0 and not row["draw"]):
            about = made.setdefault((row["direction"], row["id"]), {})
            about |= {"source": row["source"], "reference": row["reference"], kind: row["output"]}
    titles = {
        "source": "source",
        "baseline": "no heads removed",
        "top": f"top {k} removed",
        "random": f"{k} random heads removed",
        "random-layer-matched": f"{k} random heads of the same layers removed",
    }
    for (direction, _), about in made.items():
        right = about["reference"].strip()
        if about.get("baseline", "").strip() == right != about.get("top", right).strip():
            shown = tuple(Row(name, (cell(about.get(key)),)) for key, name in titles.items())
            note = (
                "The first test sentence that the model translates exactly as the reference, and "
                "otherwise without the heads; so it shows how, not how often."
            )
            return [Table(f"An example ({direction})", ("text",), shown, note=note)]
    return []


# Figures 10 to 12


@of_run("failures", FailuresResult, "First cases of each kind", "Kinds of failure")
def show_failures(setting: Setting, found: FailuresResult, shown: Findings) -> Findings:
    """How translations fail without these heads."""
    rows = {}
    for kind in ("no translation", "missing details", "hallucination", "other"):
        count, total = found.counts[kind], found.selected
        low, high = wilson_interval(count, total) if total else (None, None)
        share = count / total if total else None
        theirs = _published("Section A.4", "failures", kind)
        rows[kind] = hundred(share, low, high, published=theirs, why="no translation failed")
    note = (
        f"Of {found.rows} sentences those that are good as they are (chrF++ of at least "
        f"{found.rule.good:g}) and lose at least {found.rule.loss:g} points. Sorted by rules over "
        "words and links; how the paper sorted it does not say."
    )
    cited = bound(setting, "Section A.4")
    table = _with_published("Kinds of failure", rows, cited, note, "share of failures %")
    return with_blocks(shown, table, claims=failure_claim(found.counts, found.selected))


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


@of_run("tasks", TasksResult, "Tasks", "What is lost")
def _tasks_of(setting: Setting, found: TasksResult, tasks: Findings) -> Findings:
    changes = {
        name: max(tops(task.conditions), key=lambda condition: condition.label.k).change
        for name, task in found.tasks.items()
    }
    worst = min(changes, key=lambda name: changes[name].value)
    most = _figure("Section 5.2", "removal", "largest drop", "accuracy")
    table = _with_published(
        "The largest loss of a task",
        {worst: _estimate(changes[worst], -most, 100)},
        bound(setting, "Section 5.2"),
        "Published: the largest loss of accuracy in the paper."
        + ("" if setting.data.benchmarks else " The tasks are made from the pocket world."),
        "change, points",
    )
    removal = replace(shown_by(setting, "removal", "Measures"), found="", sure="")
    claims = task_claim(changes)
    shown = with_blocks(joined([tasks, removal]), table, claims=claims)
    return shown if claims else replace(shown, more={})


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
    scores = {head.place: head.score or 0.0 for head in scored.heads}
    k = count_of(top(setting), setting.geometry.total)
    rows, bars, looking = [], [], list[tuple[bool, bool]]()
    for prompt in prompts(setting):
        found = setting.read(f"key-words-{prompt.name}", KeyTokensResult)
        if found is None:
            continue
        attention = {head.place: head.score for head in found.heads}
        chosen, others, share = looked(attention, scores, k)
        most = max(attention, key=lambda head: attention[head])
        looking.append((others is None or chosen > others, prompt.mapping))
        columns = {
            "key words": cell(", ".join(prompt.words)),
            f"top {k}": cell(chosen),
            "other heads": cell(others, why="no other heads"),
            "even": cell(found.uniform),
            "others as high %": hundred(share, why="no other heads"),
            "head that looks most": cell(str(most)),
            "its attention": cell(attention[most]),
            "its translation score": cell(scores[most]),
        }
        rows.append(Row(prompt.name, tuple(columns.values())))
        bars.append((chosen, others, found.uniform))
    if not rows:
        return Findings()
    whose = (
        "Prompts and their longest words are of the pocket world and stand for none of the "
        "paper's, which are of HellaSwag, XNLI and XWinograd."
        if setting.pocket
        else "The prompts are ours. Key words of the French ending are the paper's, those of the "
        "German one translate them (Figure 23 prints the French ones with its German prompt). For "
        "inferences (XNLI) and pronouns (XWinograd) the paper gives none, so these are ours, too."
    )
    note = (
        "Mean attention on the key words while the right answer is predicted. Even: were attention "
        f"spread over all visible tokens alike. {whose}"
    )
    title, names = "Attention on key words", tuple(row.name for row in rows)
    series = (f"top {k}", "other heads", "even")
    figure = Bars(title, names, series, tuple(bars), "attention", digits=2)
    said = (
        f"In {sum(more for more, _ in looking)} of {len(rows)} prompts the best heads look "
        "at the key words more than the other heads do."
    )
    cases = "Single prompts, as in the paper: they show cases and have no intervals."
    claims = key_word_claim([more for more, mapping in looking if not mapping])
    table = Table(title, tuple(columns), tuple(rows), note=note)
    return Findings((table,), (figure,), said, cases, with_claims(*claims))


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
    theirs, best = published_selection(), best_documents(rows, share)
    random = (setting.result("rated-random") or {"draws": []})["draws"]
    known = any("kind" in row for row in rows)
    selected = []
    for name, own in best.items() if known else ():
        every = [row for row in rows if str(row.get("language") or "") == name]
        kinds = [kind for draw in random for kind in draw["kinds"].get(name, ())]
        drawn = kinds.count("bilingual") / len(kinds) if kinds else None
        cells = (
            cell(len(own), digits=0),
            hundred(*bilingual(own)),
            hundred(drawn),
            hundred(bilingual(every)[0]),
        )
        selected.append(Row(name or "-", cells))
    columns = ("selected", "with translation %", "by random heads %", "of all %")
    note = (
        f"Selected: the {share:.1%} of each language with the highest scores (nats a token that "
        "the heads are worth)."
        + ("" if share == theirs else f" The paper selects {theirs:.1%}.")
        + (f" Random heads: the mean of {len(random)} sets." if random else "")
    )
    examples = Table(
        "The document of each language with the highest score",
        ("score", "text"),
        tuple(
            Row(name, (cell(own[0]["score"]), cell(_cut(str(own[0]["text"])))))
            for name, own in best.items()
        ),
        note="The paper's examples are mostly texts with their translation behind them, in "
        "seven languages.",
    )
    translations = Table("Selected documents", columns, tuple(selected), note=note)
    tables = (*([translations] if selected else []), *shown.tables, examples)
    return replace(shown, tables=tables, more=with_claims(*rated_claim(best, rows, random)))


def rated_claim(
    best: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    random: Sequence[Mapping[str, Any]],
) -> list[Claim]:
    """That the texts which need the heads carry translations; none where no text says so.

    It holds where the interval of their share lies above that of all texts, and p over random
    heads is at most 0.05.
    """
    chosen = [row for own in best.values() for row in own]
    if not chosen or not any("kind" in row for row in rows):
        return []
    (share, low, high), every = bilingual(chosen), bilingual(rows)[0]
    holds = True if low > every else False if high < every else None
    by = f"{share:.0%} of the {len(chosen)} selected carry one, {every:.0%} of all"
    decides = "" if holds is not None else "more texts"
    kinds = [[kind for own in draw["kinds"].values() for kind in own] for draw in random]
    shares = [own.count("bilingual") / len(own) for own in kinds if own]
    p = p_draws(-share, [-other for other in shares]) if shares else 1.0
    if shares:
        by += f", {fmean(shares):.0%} of those that random heads select"
        by += f"; p over {len(shares)} draws {p:.2g}"
    if holds and p > LEVEL:
        holds, decides = None, "more random sets" if shares else "documents rated by random heads"
    name = "texts that need the heads carry translations"
    return [Claim(name, holds, by, "an interval of a share and random sets", decides=decides)]


def bilingual(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """The share of documents that carry their translation, with its interval."""
    number = sum(row.get("kind") == "bilingual" for row in rows)
    return number / len(rows), *wilson_interval(number, len(rows))


def _cut(words: str) -> str:
    plain = " / ".join(words.splitlines())
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 1].rstrip()}…"


# Table 1

MIXTURES = {"remove": "without the selected texts", "enhance": "with three times as many of them"}
#: All mixtures in words, and which way the paper's scores go.
NAMED = {
    "baseline": "the corpus as it is",
    **MIXTURES,
    "remove random": "without as many random ones",
    "enhance random": "with three times as many random ones",
}
WAYS = {"remove": -1, "enhance": 1}
#: The column of Table 1 that is measured here.
COLUMN = "flores_chrF++"


@of_run("trater", TraterResult)
def show_trainings(setting: Setting, found: TraterResult, _: Findings) -> Findings:
    """What models learn from texts that need these heads."""
    conditions = {condition.kind: condition for condition in found.conditions}
    rows = {
        f"{kind}: {words}": cell(
            conditions[kind].mean.chrf_prompt if kind in conditions else None,
            published=_trained(kind),
            digits=2,
        )
        for kind, words in NAMED.items()
        if kind in conditions or kind in ("baseline", *MIXTURES)
    }
    other = ("other data", "our mixtures")
    cited = reference(NAME, "Table 1", setting.model.model, default=TRAINED, differs=other)
    columns = dict.fromkeys(
        row.column for row in published(NAME) if (row.table, row.row) == ("Table 1", "baseline")
    )
    left = ", ".join(name for name in columns if name != COLUMN)
    note = (
        "Another experiment than the paper's: models of the pocket world's two languages, on a "
        f"corpus that is {found.corpus.bilingual_share_of_tokens:.0%} bilingual. Ours: chrF++ of "
        f"held-out sentences by the translation prompt. The paper's other benchmarks ({left}) do "
        f"not exist for this world. {found.unknown.get('note') or ''}".strip()
    )
    table = _with_published("Models trained on mixtures", rows, cited, note, "chrF++")
    differences = [
        Row(name, tuple(_difference(given.get(key), digits) for key, _, digits in MEASURES))
        for kind, condition in conditions.items()
        for name, given in (
            (f"{kind}: {NAMED.get(kind, kind)}", condition.differences),
            (f"{kind}, less random", condition.against_random),
        )
        if given
    ]
    own = Table(
        "Differences to the corpus as it is, and to random selections",
        tuple(heading for _, heading, _ in MEASURES),
        tuple(differences),
        note="Means of differences between trainings of the same seed. Intervals are over test "
        "sentences and items alone. The gain is what the source before a translation is worth "
        f"in nats a token. {_power(found)}",
    )
    claims = trater_claim(conditions)
    base = conditions.get("baseline")
    said = "" if base is None else (
        f"The corpus as it is gives chrF++ {base.mean.chrf_prompt:.1f}. "
        + "".join(f"{claim.by[:1].upper()}{claim.by[1:]}." for claim in claims)
    ).strip()  # fmt: skip
    sure = "Intervals are over sentences; each mixture was trained with several seeds."
    return Findings((table, own), (), said, sure if said else "", with_claims(*claims))


def trater_claim(conditions: Mapping[str, Condition]) -> list[Claim]:
    """That translation falls without the selected texts and rises with more of them."""
    if any(kind not in conditions for kind in ("baseline", *MIXTURES)):
        return []
    random = all(conditions[kind].against_random is not None for kind in MIXTURES)
    measured = {
        kind: ((condition.against_random if random else condition.differences) or {})["chrf_prompt"]
        for kind, condition in conditions.items()
        if kind in MIXTURES
    }
    by = ", ".join(
        f"chrF++ {range_of(vars(measured[kind]))} {words}"
        + (
            ""
            if (theirs := less(_trained(kind), _trained("baseline"))) is None
            else f" (paper {theirs:+.1f})"
        )
        for kind, words in MIXTURES.items()
    )
    by += ", compared with random selections" if random else ""
    sides = [_side(difference) * WAYS[kind] for kind, difference in measured.items()]
    holds = False if -1 in sides else True if random and set(sides) == {1} else None
    decides = "more trainings" if random else "models trained on random selections of the same size"
    return [
        Claim(
            "texts that need the heads teach translation",
            holds,
            f"{by}; the direction alone is compared",
            f"{len(conditions['baseline'].seeds)} trainings of each and intervals over sentences "
            "and over trainings",
            decides="" if holds is not None else decides,
        )
    ]


def _side(change: Difference) -> int:
    """1 or -1 where the intervals over sentences and over trainings both lie there, else 0."""
    if change.low is None or change.high is None or len(change.by_seed) < 2:
        return 0
    ends = [change.low, change.high, *map(float, t_interval(change.by_seed))]
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0


def _difference(difference: Difference | None, digits: int) -> Cell:
    return cell(None) if difference is None else Cell.of(difference, digits)


def _power(found: TraterResult) -> str:
    """Whether trainings at the paper's share could show anything."""
    if not found.power:
        return ""
    each = "; ".join(
        f"{case.kind} {case.change:+.1f} chrF++, power {case.power:.2f}" for case in found.power
    )
    enough = all(case.enough for case in found.power)
    return (
        "At the share that the paper selects as many trainings would be expected to show "
        f"{each}, along the flatter and the steeper side of the trained mixtures: "
        f"{'enough' if enough else 'too little, so none was trained'}."
    )


def _trained(kind: str) -> float | None:
    """The paper's chrF++ of a mixture; it has no random ones."""
    return _published("Table 1", kind, COLUMN, "chrf", TRAINED)
