"""Experiments of our own: how far the findings about alignment heads depend on choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from headscope.compare.agreement import Choice, links_agreement, scores_agreement, stability
from headscope.find.translation_config import TranslationScore
from headscope.heads import Amount
from headscope.heads.resolve import read_parts, read_scores
from headscope.measure.statistics import holm
from headscope.papers.cells import range_of, table
from headscope.papers.paper import Experiment, Missing, Paper, Setting, Steps
from headscope.papers.study_steps import study_step
from headscope.papers.token_alignment_heads import setting as papers
from headscope.papers.token_alignment_heads.setting import THRESHOLD, top
from headscope.papers.token_alignment_heads.steps import score_steps, sentences_of
from headscope.shown.blocks import Cell, Findings, p_cell
from headscope.studies.find.links import (
    FindAttentionMass,
    FindByLinks,
    find_attention_mass,
    find_by_links,
)
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.heads import VerifyHeads, verify_heads
from headscope.studies.verify.loss_experiments import (
    VerifyCopying,
    VerifyTogether,
    copies_written,
    verify_copying,
    verify_together,
)
from headscope.studies.verify.removal import VerifyRemoval, verify_removal
from headscope.verify.translation import Removal

#: Directions of the pocket world in which every language is once the source and once the target.
RING = ("en-de", "de-es", "es-ru", "ru-tr", "tr-en")
#: The most sentences of a direction of other data.
MOST = 100
#: Random sets for each set by text, with which p can fall to 0.025, and by loss.
TEXT_DRAWS, LOSS_DRAWS = 39, 99
#: How many of the best heads make pairs, and of how many sizes copies are looked at.
PAIRED, COPIED = 6, 2
SMALL, LARGE = ("5%", "15%", "25%"), (10, 20, 30, 50)


def sizes(setting: Setting) -> tuple[Amount, ...]:
    """How many heads are chosen and removed: shares of few heads, numbers of many."""
    return SMALL if setting.small else LARGE


def draws_of(setting: Setting) -> tuple[int, int]:
    """Random sets of heads whose texts are written, and whose losses are read."""
    own = setting.steering.draws
    return (TEXT_DRAWS, LOSS_DRAWS) if own is None else (own, own)


def sentences(setting: Setting, check: bool) -> PairsChoice:
    """The sentences that heads are found on, or others that they are checked on."""
    choice = papers.checked_on(setting) if check else papers.found_on(setting)
    if setting.pocket and not setting.data.pairs:
        return replace(choice, pair=RING)
    return replace(choice, limit=min(choice.limit or MOST, MOST))


def steps_of(names: tuple[str, ...], setting: Setting) -> Steps:
    """These runs, in this order, behind those that make their sentences; or what is missing."""
    scores = score_steps(setting)
    if isinstance(scores, Missing):
        return scores
    work, written = (sentences_of(setting, 10, MOST, generate=text) for text in (False, True))
    share = len(RING) / 20 if setting.pocket and not setting.data.pairs else 1.0
    model, heads, k = setting.model, str(setting.at("links")), sizes(setting)
    chat, (texts, losses) = papers.in_chat(setting), draws_of(setting)
    score = TranslationScore(chat=chat, seed=setting.seed, batch_tokens=setting.batch_tokens)
    removal = Removal(draws=texts, chat=chat, seed=score.seed, batch_tokens=score.batch_tokens)
    loss = replace(removal, measure=("loss",), loss_draws=losses)
    copied, free = replace(loss, layer_matched=False), replace(removal, layer_matched=False)
    each, some = 1 + 2 * losses, k[:COPIED]
    both = (heads, str(setting.at("mass")))

    def on(setting: Setting) -> PairsChoice:
        return sentences(setting, check=True)

    def found(setting: Setting) -> PairsChoice:
        return sentences(setting, check=False)

    # In words, how often the references are read, the study, and its settings.
    runs: dict[str, tuple[str, int, Callable[..., Any], Callable[[Setting], Any]]] = {
        "links": ("scores by several word links", 2, find_by_links,
                  lambda at: FindByLinks(model, found(at), score, llm=at.linker)),
        "mass": ("attention on the aligned word", 1, find_attention_mass,
                 lambda at: FindAttentionMass(model, found(at), score)),
        "sizes": ("loss without few or many heads", 1 + len(k) * each, verify_removal,
                  lambda at: VerifyRemoval(heads, k, model, on(at), loss, rank="score")),
        "single": ("loss without each head", 1 + 2 * setting.geometry.total, verify_heads,
                   lambda at: VerifyHeads(model, on(at), removal, both)),
        "pairs": ("loss without two heads", 3 * PAIRED + 2 * each, verify_together,
                  lambda at: VerifyTogether(heads, PAIRED, model, on(at), loss, "score")),
        "copy-loss": ("loss of copies", 2 + 2 * COPIED * (1 + losses), verify_copying,
                      lambda at: VerifyCopying(heads, some, model, on(at), copied, "score")),
        "copies": ("what is written", 1 + COPIED * (1 + texts), verify_removal,
                   lambda at: VerifyRemoval(heads, some, model, on(at), free, rank="score")),
    }  # fmt: skip
    made = list(scores[:-1])
    sources = {*(step.name for step in made), "links", "mass"}
    for name in names:
        title, times, study, settings = runs[name]
        cost = (written if name == "copies" else work) * (times * share)
        before = tuple(step.name for step in made if step.name in sources)
        full = name == "single" and not setting.small
        made.append(study_step(study, settings, name, title, cost, before, full))
    return tuple(made)


THRESHOLDS = (0.05, 0.075, THRESHOLD, 0.15, 0.2, 0.3)
RANKED = ("translation_score", "translation_score_above_chance", "attention_mass")
BEYOND = "Intervals are over sentences; p within layers permutes heads there (9,999 times)."


def threshold(setting: Setting) -> Findings:
    """How many heads other thresholds and sizes choose, how stably, and what they cost."""
    removed = setting.result("sizes") or {}
    parts, seed = list(read_parts(setting.at("links")).values()), setting.seed
    found = {f"above {level:g}": stability(parts, Choice(level), seed) for level in THRESHOLDS}
    found |= {f"best {size}": stability(parts, Choice(k=size), seed) for size in sizes(setting)}
    names = ("heads", "in 95% of resamples", "halves", "by chance", "directions", "by chance")
    rows = {name: (row["heads"], row["firm"], *_both(row["halves"]), *_both(row["directions"]))
            for name, row in found.items()}  # fmt: skip
    note = "Jaccard: heads of 100 random halves of the sentences, and of every two directions."
    chosen = table("Heads chosen by threshold and by number", names, rows, note)
    best = [row for row in removed["conditions"] if row["kind"] == "top" and row["gate"] == 0]
    lost = dict[str, Any]()
    for row, p in zip(best, holm([row["p_sentences"] for row in best]), strict=True):
        matched = f"{row['p_draws_layer_matched']:.2g}, {row['distinct_draws_layer_matched']} sets"
        lost[f"best {row['k']}"] = (
            row["change"]["nll"], row["against_random"], p_cell(p), p_cell(row["p_draws"]),
            row["against_random_layer_matched"], Cell(matched))  # fmt: skip
    title, note = "Rise of the NLL without them, nats a token", "p over sentences is Holm's."
    names = ("rise", "minus random", "p, sentences", "p, draws", "minus same layers", "p, draws")
    usual, low, high = (found[f"above {level:g}"] for level in (THRESHOLD, 0.05, 0.2))
    cost = [f"best {row['k']} {range_of(row['against_random'], 2)}, p {row['p_draws']:.2g}"
            for row in best]  # fmt: skip
    said = (
        f"Above {THRESHOLD:g} there are {usual['heads']} heads, {usual['firm']} of them in at "
        f"least 95% of resamples; above 0.05 {low['heads']}, above 0.2 {high['heads']}. Rise of "
        f"the NLL minus that without random heads, p over draws: {'; '.join(cost)}."
    )
    return Findings((chosen, table(title, names, lost, note)), (), said, _over(removed))


def links(setting: Setting) -> Findings:
    """The same heads by given links, by fits of eflomal, by a language model."""
    found = setting.result("links") or {}
    folder, k, of = setting.at("links"), top(setting), found["links"]
    others = {name: read_parts(folder / "links" / name) for name in of if name != "own"}
    agreed = links_agreement(read_parts(folder), others, THRESHOLD, k, setting.seed)
    by = of["own"]["aligner"]
    own = {"links": "the data's links", "eflomal": "one more fit of eflomal"}.get(
        by, f"the data's links by {by}"
    )
    rows: dict[str, Any] = {own: (of["own"]["tokens"], agreed["heads"], *(None,) * 7)}
    for name, other in agreed["links"].items():
        cells = other["heads"], *_both(other["above"]), *_both(other["best"])
        p = p_cell(other["best"]["p_value"])
        rows[name] = (of[name]["tokens"], *cells, p, other["furthest"], other["difference"])
    both = (f"above {THRESHOLD:g}", "Jaccard", "by chance", f"best {k}, Jaccard", "by chance", "p")
    names = ("tokens", *both, "largest distance", f"best {k}, difference")
    near = [agreed["links"][name]["best"]["jaccard"] for name in of if "eflomal" in name]
    apart = [f"{name} {range_of(other['difference'], 3)}"
             for name, other in agreed["links"].items() if other["difference"]]  # fmt: skip
    said = (
        f"Between {len(near)} fits of eflomal a head's score differs by up to "
        f"{agreed['spread']:.3f} (in one direction {agreed['spread_direction']:.3f}). The best {k} "
        f"heads by a fit and by {own} have a Jaccard index of {min(near):.2f} to {max(near):.2f}. "
        f"Of the best {k} by {own} on one half of the sentences the mean score on the other half, "
        f"minus that by {own}: {'; '.join(apart) or 'too few sentences'}."
    )
    missing = "" if "llm" in of else " No language model was used; --llm-model names one."
    note = (
        f"Jaccard, p: with {own}. Difference: mean score of the best {k} by these links minus by "
        f"{own}, by which they were chosen on the other half of the sentences; mean of both halves."
    )
    shown = table("Heads by other word links", names, rows, note)
    return Findings((shown,), (), said, f"eflomal was fitted on these sentences alone.{missing}")


def mass(setting: Setting) -> Findings:
    """Peaks compared with the attention on the aligned word."""
    peaks, masses = (read_scores(setting.at(name))["mean"] for name in ("links", "mass"))
    chance, k, rows = masses.extra["chance"], top(setting), {}
    for head in peaks.top(k, "score") | masses.top(k, "score"):
        rows[str(head)] = (peaks[head], masses[head], float(chance[head.layer, head.head]))
    names = ("translation score", "attention on the word", "under other sentences' links")
    note = "Attention: a head's weights on the aligned word; mean over tokens, then sentences."
    title = "The best heads by peaks or by attention"
    found = _agreement(setting, "mass")
    said = (
        f"By peaks and by attention {_shared(found)}. Rank correlation over all heads "
        f"{range_of(found['all'], 2)}, within layers {range_of(found['within_layers'], 2)}, p "
        f"{found['p_within_layers']:.2g}."
    )
    return Findings((table(title, names, rows, note),), (), said, BEYOND)


def single(setting: Setting) -> Findings:
    """The translation score compared with the cost of each head alone."""
    found = setting.result("single") or {}
    known = [row for row in found["correlations"] if row["with"] in RANKED]
    ps = holm([row["p_within_layers"] for row in known])
    rows = {}
    for row, p in zip(known, ps, strict=True):
        cells = row["all"], row["within_layers"], p_cell(row["p_within_layers"]), p_cell(p)
        rows[f"{row['with'].replace('_', ' ')}, {row['ablate']} ablation"] = cells
    names = ("over all heads", "within layers", "p", "p, Holm")
    said = (
        "Translation score and cost of a head alone (zero ablation): rank correlation within "
        f"layers {range_of(known[0]['within_layers'], 2)}, Holm's p {ps[0]:.2g}. By "
        f"score and by cost {_shared(_agreement(setting, 'single'))}."
    )
    title = "Rank correlation with what each head costs alone"
    return Findings((table(title, names, rows),), (), said, BEYOND)


def pairs(setting: Setting) -> Findings:
    """The cost of two heads removed together, minus the sum of what each costs alone."""
    found = setting.result("pairs") or {}
    rows = {}
    for pair in found["pairs"]:
        harms = *pair["harms"], pair["together"], pair["interaction"]
        rows[" and ".join(pair["heads"])] = *harms, p_cell(pair["p_holm"]), p_cell(pair["p_draws"])
    title = "Two heads removed together, rise of the NLL in nats a token"
    names = ("one", "the other", "together", "more than the sum", "p, Holm", "p, random pairs")
    sure = [pair for pair in found["pairs"] if max(pair["p_holm"], pair["p_draws"]) <= 0.05]
    more = sum(pair["interaction"]["value"] > 0 for pair in sure)
    drawn = [pair["interaction"] for pair in found["random"]]
    said = (
        f"Of {len(found['pairs'])} pairs of the best heads {more} cost more together than the sum "
        f"of each alone and {len(sure) - more} less (Holm's p over sentences, and p over random "
        f"pairs). Mean of these pairs minus that of random ones: {range_of(found['difference'], 3)}"
        f" nats. {len(drawn)} random pairs (any layers): {min(drawn):+.3f} to {max(drawn):+.3f}."
    )
    return Findings((table(title, names, rows),), (), said, _over(found))


def copying(setting: Setting) -> Findings:
    """Whether copies become likelier, or are written, without the heads."""
    loss = setting.result("copy-loss") or {}
    written = copies_written(setting.at("copies"), setting.seed)
    rows, said = dict[str, Any](), []
    for tests, wrote in zip(loss["tests"], written, strict=True):
        k, copy, change = tests["k"], tests["copy"], wrote["against_random"]
        for name in ("copies written", "copy", "reference", "preference"):
            row = tests.get(name, wrote)
            parts = (row[key] for key in ("as_is", "without", "random", "against_random"))
            rows[f"{name}, best {k}"] = (*parts, p_cell(row["against_random"]["p_draws"]))
        said.append(
            f"Without the best {k} heads {wrote['without']:.0%} of outputs copy the source (as it "
            f"is {wrote['as_is']:.0%}; minus random heads {range_of(change, 2)}, p over draws "
            f"{change['p_draws']:.2g}). The copy's NLL changes by {range_of(copy['change'], 2)} "
            f"(minus random heads {range_of(copy['against_random'], 2)}), the reference's by "
            f"{range_of(tests['reference']['change'], 2)}."
        )
    names = ("as it is", "without them", "random heads", "difference", "p, draws")
    note = (
        "Copies written: a share; else NLL in nats; preference (does it fall?): copy − reference."
    )
    shown = table("Copies without the heads", names, rows, note)
    return Findings((shown,), (), " ".join(said), _over(loss))


def _both(found: Mapping[str, float] | None) -> list[float | None]:
    return [None if found is None else found[name] for name in ("jaccard", "expected")]


def _agreement(setting: Setting, step: str) -> dict[str, Any]:
    parts = [read_parts(setting.at(name)) for name in ("links", step)]
    return scores_agreement(parts[0], parts[1], top(setting), setting.seed)


def _shared(found: Mapping[str, Any]) -> str:
    jaccard = f"Jaccard {found['jaccard']:.2f}, by chance {found['expected']:.2f}"
    p = f"p {found['p_value']:.2g}"
    return f"{found['shared']} of the best {found['size']} heads are the same ({jaccard}, {p})"


def _over(found: Mapping[str, Any]) -> str:
    which = f"{found['sentences']} sentences that the heads were not found on"
    pool = "random heads, as far as there are others no token alignment heads"
    return f"Intervals are over {which}; p over draws is over {pool}."


EXPERIMENTS: dict[str, tuple[str, Callable[[Setting], Findings], tuple[str, ...]]] = {
    "threshold": ("The heads by other thresholds and numbers", threshold, ("links", "sizes")),
    "links": ("The heads by other word links", links, ("links",)),
    "mass": ("Peaks, and attention on the aligned word", mass, ("links", "mass")),
    "single": ("Score, and cost of each head alone", single, ("links", "mass", "single")),
    "pairs": ("Two heads removed together", pairs, ("links", "pairs")),
    "copying": ("Copying without the heads", copying, ("links", "copy-loss", "copies")),
}


def _found(name: str, setting: Setting) -> Findings:
    _, show, runs = EXPERIMENTS[name]
    return show(setting) if all(map(setting.done, runs)) else Findings()


def _answer(setting: Setting, findings: Mapping[str, Findings]) -> tuple[str, str]:
    """What each experiment found, a line each."""
    lines = [f"\u2013 {EXPERIMENTS[name][0]}: {shown.found}"
             for name, shown in findings.items() if shown.found]  # fmt: skip
    return "\n".join(lines), "p-values are corrected within experiments alone." if lines else ""


PAPER = Paper(
    "beside",
    "Experiments beside the papers",
    "no table or figure of a paper",
    "How far do findings about token alignment heads depend on the threshold, the word links, the "
    "peak as measure and the removal of single heads, and is copying left without them?",
    (
        "Heads are scored on reference translations by the data's word links and by others.",
        "Heads are removed alone, in pairs and in sets, and compared with random ones.",
        "Measured are the loss of references and of copies, and the share of copies written.",
    ),
    tuple(
        Experiment(name, (), title, partial(steps_of, runs), partial(_found, name))
        for name, (title, _, runs) in EXPERIMENTS.items()
    ),
    _answer,
    frozenset(("limit", "draws", "shots", "chat")),
)
