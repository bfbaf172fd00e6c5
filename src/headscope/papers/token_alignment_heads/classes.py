"""How many heads align tokens, and where they lie (Figures 3, 4 and 13 to 18)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.heads import count_words
from headscope.papers.claims import with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.published import paper_model, reference, value
from headscope.papers.token_alignment_heads.cells import (
    cell,
    hundred,
    percent,
    sentence,
    text,
)
from headscope.papers.token_alignment_heads.setting import NAME, THRESHOLD, bound, differs
from headscope.papers.token_alignment_heads.steps import other_scores, score_steps
from headscope.runs import encode
from headscope.shown.blocks import Bars, Claim, Findings, Heatmap, Reference, Row, Table
from headscope.studies.compare.classes import CompareClasses, compare_classes
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress

KINDS = ("token_alignment", "low_activity", "inactive")
NAMES = ("token alignment heads", "low activity", "inactive")
#: The groups of models of Figures 13 to 15, of 16 to 18, and of 19 to 21.
GROUPS = ("small", "medium", "large")
#: The paper's families and the size that follows: Llama-3.2-1B, Qwen3-30B-A3B, Mixtral-8x7B-v0.1.
FAMILIES = re.compile(
    r"(?:(?:meta-)?llama-?3(?:\.\d)?|qwen3|mistral(?:-[\w.]+)*?|mixtral|gemma-?2)"
    r"-(?:\d+x)?(\d+(?:\.\d+)?)b(?![a-z])",
    re.IGNORECASE,
)
THIRDS = ("lowest third", "middle third", "highest third")


def of_group(
    setting: Setting, element: str, others: Sequence[str], flags: str = "--pairs"
) -> Missing | None:
    """Figures 13 to 21 are of three groups of models; the figures before them of any.

    `others` are those that are run beside, which asks for `flags`.
    """
    number = int(element.partition(" ")[2])
    group = GROUPS[(number - 13) % 3]
    if number < 13 or group in map(group_of, (setting.model.model, *others)):
        return None
    why = f"a {group} model of the paper's families (Llama 3, Qwen3, Mistral, Gemma 2), by its name"
    return Missing(why, f"--others MODEL with {flags}, or --model MODEL", "needs MODEL")


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Missing | None:
    return of_group(setting, element, setting.data.others if setting.data.pairs else ())


def group_of(model: str) -> str | None:
    """The paper's group of a model by its name (appendix A.5); of a mixture by one expert's size.

    Its small models have 1 or 2 billion parameters, its medium ones 8 or 9, its large ones over 13.
    None for a model of another family than the four of the paper.
    """
    found = FAMILIES.match(model.rpartition("/")[2])
    if found is None:
        return None
    billions = float(found[1])
    return GROUPS[0 if billions < 5 else 1 if billions < 13 else 2]


def _class_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    others = other_scores(setting)
    before = ("scores", *(one.name for one in others))
    own = Step("classes", "shares of the classes of heads", _classes, Work(), before)
    return score_steps(setting, *others, own)


def _classes(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    places = [setting.at(name) for name in ("scores", *(one.name for one in other_scores(setting)))]
    return dict(encode(compare_classes(CompareClasses(tuple(map(str, places)), THRESHOLD), out)))


def bounds(scores: Mapping[str, Any]) -> tuple[float, float] | None:
    """Shares of heads whose whole interval lies above the threshold, and whose upper end does.

    Over several directions the means of their shares; None where a head has no interval.
    """
    found = []
    for part in (scores.get("directions") or {"": scores}).values():
        heads = part["heads"]
        if not heads or any(one.get("low") is None or one.get("high") is None for one in heads):
            return None
        found.append([fmean(one[end] > THRESHOLD for one in heads) for end in ("low", "high")])
    low, high = map(fmean, zip(*found, strict=True))
    return low, high


def _tell_classes(setting: Setting) -> Findings:
    found = setting.result("classes")
    if found is None:
        return Findings()
    scores = setting.result("scores")
    own = bounds(scores) if scores is not None else None
    most = _told("any", "token alignment heads", "all models, below")
    theirs, cited, published = _beside(setting, most)
    rows, bars = [], []
    for number, one in enumerate(found["models"]):
        low, high = own if own is not None and number == 0 else (None, None)
        shares, above = one["shares"], one["shares_above_chance"] or {}
        best = one["highest"]
        rows.append(
            Row(
                one["model"] or one["name"],
                (
                    cell(one["total"], digits=0),
                    replace(
                        hundred(shares["token_alignment"], low, high),
                        published=theirs if number == 0 else None,
                    ),
                    hundred(shares["low_activity"]),
                    hundred(shares["inactive"]),
                    hundred(above.get("token_alignment"), why="no chance known at every head"),
                    cell(best["score"], best.get("low"), best.get("high")),
                    text(f"{best['layer']}.{best['head']}"),
                ),
            )
        )
        bars.append(tuple(percent(shares[kind]) for kind in KINDS))
    names = tuple(row.name for row in rows)
    table = Table(
        "Classes of heads by translation score",
        (
            "heads",
            "token alignment %",
            "low activity %",
            "inactive %",
            "0.1 above chance %",
            "highest score",
            "its head",
        ),
        tuple(rows),
        cited,
        sentence(
            "Over several directions shares, and the ends of an interval of a score, are means of "
            "those in each.",
            published,
            _rest(),
            "The interval runs from heads whose whole interval lies above the threshold to those "
            "whose interval reaches it.",
        ),
    )
    figure = Bars(
        "Share of heads in each class", names, NAMES, tuple(bars), "share of heads, %", digits=1
    )
    said, sure = class_words(found["models"], own, most)
    return Findings((table,), (figure,), said, sure, class_claims(found["models"][0], own, most))


def _told(model: str, row: str, column: str) -> float | None:
    """A share that the paper tells of its models' heads."""
    return value(NAME, "Section 3.1", model=model, row=row, column=column, measure="share")


def _beside(setting: Setting, most: float | None) -> tuple[float | str | None, Reference, str]:
    """The paper's share of this very model, %, where it tells one, else the bound over all."""
    model = paper_model(NAME, setting.model.model)
    own = None if model is None else _told(model, "token alignment heads", "of all heads")
    if model is None or own is None:
        note = "The published figure is the bound that all models of the paper lie below."
        return None if most is None else f"< {100 * most:g}", bound(setting, "Section 3.1"), note
    cited = reference(NAME, "Section 3.1", model, default=model, differs=differs(setting))
    return percent(own), cited, "The published figure is this model's."


def _rest() -> str:
    """What the paper tells of the other classes."""
    low = _told("any", "infrequently activated heads", "of all heads")
    ends = [_told("any", "inactive heads", end) for end in ("least", "most")]
    if low is None or None in ends:
        return ""
    least, most = (f"{one:.0%}" for one in ends if one is not None)
    return (
        f"In the paper's models nearly {low:.0%} of the heads have low activity and {least} to "
        f"{most} are almost never active."
    )


#: What decides a claim about how many heads align tokens.
MORE = "more sentences a direction"


def class_claims(
    one: Mapping[str, Any], own: tuple[float, float] | None, most: float | None
) -> dict[str, Any]:
    """That there are such heads, and that they are few."""
    count, total = one["counts"]["token_alignment"], one["total"]
    above = one["counts_above_chance"]
    chance = None if above is None else above["token_alignment"]
    beside = "" if chance is None else f", {count_words(chance)} above chance by as much"
    tested = "" if own is None else "intervals of single heads over sentences"
    some: bool | None = count > 0 and chance != 0
    if some and own is not None and own[0] == 0:
        some = None
    there = Claim(
        "some heads align tokens",
        some,
        f"{count_words(count)} of {total} score above {THRESHOLD}{beside}",
        tested,
        decides=MORE,
    )
    if most is None:
        return with_claims(there)
    low, high = own if own is not None else (count / total, count / total)
    few = True if high < most else False if low >= most else None
    told = f"{count / total:.1%} of all heads; below {most:.0%} in the paper"
    name = "token alignment heads are few"
    return with_claims(there, Claim(name, few, told, tested, decides=MORE))


def class_words(
    models: Sequence[Mapping[str, Any]], own: tuple[float, float] | None, most: float | None
) -> tuple[str, str]:
    """How many heads of the first model align tokens, and how sure that is."""
    first = models[0]
    share, count = first["shares"]["token_alignment"], first["counts"]["token_alignment"]
    said = (
        f"{count_words(count)} of {first['total']} heads ({share:.1%}) score above {THRESHOLD}."
        if count
        else f"No head of {first['total']} scores above {THRESHOLD}."
    )
    compared = "" if most is None else f"All models of the paper are below {most:.0%}."
    above = first["counts_above_chance"]
    chance = (
        f"Above chance by as much are {count_words(above['token_alignment'])} ("
        f"{above['token_alignment'] / first['total']:.1%})."
        if above is not None
        else ""
    )
    with_heads = sum(one["counts"]["token_alignment"] > 0 for one in models)
    others = f"{with_heads} of {len(models)} models have such heads." if len(models) > 1 else ""
    sure = (
        f"Of {own[0]:.1%} the whole interval lies above the threshold, of {own[1]:.1%} part of it."
        if own is not None
        else "Single heads have no intervals here."
    )
    alone = "" if len(models) > 1 else "One model says nothing about all models."
    return sentence(said, compared, chance, others), sentence(sure, alone)


def thirds(counts: Sequence[float]) -> tuple[float, float, float]:
    """Numbers of the lowest, the middle and the highest third of layers, in this order."""
    layers = len(counts)
    lower, upper = layers / 3, 2 * layers / 3
    found = [0.0, 0.0, 0.0]
    for layer, number in enumerate(counts):
        middle = layer + 0.5
        found[0 if middle < lower else 1 if middle < upper else 2] += number
    return found[0], found[1], found[2]


def _position_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    return score_steps(setting, *other_scores(setting))


def _map(found: Mapping[str, Any], model: str) -> Heatmap:
    """The translation score of every head, by layer and head."""
    profile = found["layer_profile"]
    width = max(one["heads"] for one in profile)
    field: list[list[float | None]] = [[None] * width for _ in profile]
    for one in found["heads"]:
        field[one["layer"]][one["head"]] = one["score"]
    return Heatmap(
        f"Translation score of every head{model}",
        tuple(str(one["layer"]) for one in profile),
        tuple(map(str, range(width))),
        tuple(map(tuple, field)),
        "translation score",
        "layer",
        "head",
        low=0.0,
    )


def _tell_positions(setting: Setting) -> Findings:
    found = setting.result("scores")
    if found is None:
        return Findings()
    profile = found["layer_profile"]
    figures = [_map(found, "")]
    for name in setting.data.others if setting.data.pairs else ():
        other = setting.of(name).result("scores")
        if other is not None:
            figures.append(_map(other, f", {name}"))
    aligned = thirds([one["token_alignment"] for one in profile])
    heads = thirds([one["heads"] for one in profile])
    whole = all(there == int(there) for there in aligned)
    rows = tuple(
        Row(
            name,
            (
                cell(number, digits=0),
                cell(there, digits=0 if whole else 1),
                hundred(there / number if number else None, why="no heads"),
            ),
        )
        for name, number, there in zip(THIRDS, heads, aligned, strict=True)
    )
    table = Table(
        "Heads above the threshold by depth",
        ("heads", "token alignment heads", "share %"),
        rows,
        note="The paper shows its distribution as pictures alone.",
    )
    total = sum(aligned)
    if not total:
        return Findings((table,), figures, f"No head scores above {THRESHOLD}.", "")
    most = max(range(3), key=lambda at: aligned[at])
    agrees = (
        f"{'as' if most == 1 else 'unlike'} in the paper's models, where they lie in the middle"
    )
    said = (
        f"{count_words(aligned[most])} of {count_words(total)} token alignment heads "
        f"({aligned[most] / total:.0%}) lie in the {THIRDS[most]} of the layers, {agrees}."
    )
    few = f"With {len(profile)} layers a third is {len(profile) / 3:.0f} of them."
    by = f"{count_words(aligned[1])} of {count_words(total)} lie in the middle third"
    claim = Claim("token alignment heads lie in the middle layers", most == 1, by)
    return Findings((table,), figures, said, few, with_claims(claim))


CLASSES = Experiment(
    "figure-3",
    ("Figure 3", "Figure 13", "Figure 14", "Figure 15"),
    "Which share of the heads aligns tokens",
    _class_steps,
    _tell_classes,
    _needs,
)
POSITIONS = Experiment(
    "figure-4",
    ("Figure 4", "Figure 16", "Figure 17", "Figure 18"),
    "In which layers these heads lie",
    _position_steps,
    _tell_positions,
    _needs,
)
