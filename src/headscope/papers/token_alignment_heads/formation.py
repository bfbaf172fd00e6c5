"""How the heads form during training (Figures 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import has_magic
from itertools import pairwise
from pathlib import Path
from typing import Any

from headscope.papers.claims import with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.published import reference, value
from headscope.papers.token_alignment_heads.cells import cell, hundred, sentence
from headscope.papers.token_alignment_heads.setting import (
    NAME,
    POCKET_FOUND,
    THRESHOLD,
    decoded,
    differs,
    directions,
    halved,
    named,
    needs_pairs,
    ranked_by,
    top,
)
from headscope.papers.token_alignment_heads.steps import FLORES, scoring, sentences_of
from headscope.runs import encode
from headscope.shown.blocks import Claim, Findings, Lines, Row, Series, Table
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.formation import Formation, formation
from headscope.studies.inputs import POCKET, PairsChoice, Progress

SCRATCH = "8B trained from scratch"
#: Sentences of each direction that every checkpoint translates: of the pocket world, and of others.
POCKET_CHECKED, CHECKED = 20, 50
NO_LAST = "the last checkpoint has no such heads"


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    checkpoints = _checkpoints(setting)
    if not checkpoints:
        return Missing(
            "the paper follows the checkpoints of an 8B model that it trained from nothing, which "
            "are not published, and this model brings none",
            "revisions or folders of this model's checkpoints, each by --checkpoints",
            "needs MODEL",
        )
    missing = needs_pairs(setting)
    if missing is not None:
        return missing
    number = 8 if checkpoints == (POCKET,) else len(checkpoints)
    own = decoded(setting) == "greedy"
    score = sentences_of(setting, POCKET_FOUND, FLORES[0] // 2, generate=own)
    check = sentences_of(setting, POCKET_CHECKED, CHECKED, generate=True)
    return (
        Step(
            "formation", "heads over the checkpoints of a training", _run, (score + check) * number
        ),
    )


def _checkpoints(setting: Setting) -> tuple[str, ...]:
    return setting.data.checkpoints or ((POCKET,) if setting.pocket else ())


def _run(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    names = _checkpoints(setting)
    own = [f"{setting.model.model}@{one}" if _revision(one) else one for one in names]
    pairs = PairsChoice(pair=("all",)) if not setting.data.pairs else _given(setting)
    steering = setting.steering
    pairs = replace(pairs, limit=steering.limit or pairs.limit, shots=steering.shots or pairs.shots)
    config = Formation(
        checkpoint_series(own, model=setting.model),
        pairs,
        scoring(setting),
        threshold=THRESHOLD,
        k=top(setting),
        check=POCKET_CHECKED if not setting.data.pairs else CHECKED,
        rank=ranked_by(setting),
    )
    result: dict[str, Any] = encode(formation(config, out, progress))
    return result


def _revision(name: str) -> bool:
    """Whether a checkpoint is named by a revision alone."""
    if name == POCKET or name.startswith(f"{POCKET}:") or has_magic(name):
        return False
    return "@" not in name and "/" not in name and not Path(name).exists()


def _given(setting: Setting) -> PairsChoice:
    pair = () if halved(setting) else directions(setting)
    return named(PairsChoice(pair, setting.data.pairs))


def _tell(setting: Setting) -> Findings:
    found = setting.result("formation")
    if found is None:
        return Findings()
    rows = found["checkpoints"]
    steps = [one for one in rows if one["step"] is not None]
    table = Table(
        "Heads and translations over the training",
        (
            "token alignment %",
            "0.1 above chance %",
            "low activity %",
            "inactive %",
            "overlap with last",
            "by chance",
            "chrF++",
        ),
        tuple(_row(one) for one in rows),
        note=sentence(
            "Overlap is the share of the last checkpoint's token alignment heads that this one "
            "has already (equation 3 of the paper)."
        ),
    )
    beside = Table(
        "Beside the paper's training",
        ("token alignment %", "inactive %", "overlap with last"),
        _beside(rows),
        reference(NAME, "Figure 6", setting.model.model, default=SCRATCH, differs=differs(setting)),
        "Shares of all heads in per cent; the paper's share of inactive heads is from section 4, "
        "its overlap from Figure 7. Over several directions shares are means of those in "
        "each.",
    )
    left = len(rows) - len(steps)
    note = ""
    if left:
        are = "checkpoint without a step is" if left == 1 else "checkpoints without a step are"
        note = f"{left} {are} in the table alone."
    figures = (_shares(steps, note), _overlap(steps, note), _quality(steps, note)) if steps else ()
    said, sure = formation_words(rows)
    return Findings((table, beside), figures, said, sure, formation_claim(rows))


def formation_claim(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """That the heads multiply at first and thin out later; open where chance says otherwise."""
    shares, over = [float(one["token_alignment"]) for one in rows], _above(rows)
    told = [_three(shares)]
    heads = sum(rows[0]["counts"].values())
    verdicts = {_rises_and_falls(shares, heads)}
    if over is not None:
        told.append(f"above chance by {THRESHOLD}: {_three(over)}")
        verdicts.add(_rises_and_falls(over, heads))
    holds = verdicts.pop() if len(verdicts) == 1 else None
    name = "token alignment heads multiply in training and thin out later"
    decides = "more sentences at each checkpoint"
    return with_claims(Claim(name, holds, "; ".join(told), decides=decides))


def _three(shares: Sequence[float]) -> str:
    return f"{shares[0]:.1%} at first, {max(shares):.1%} at most, {shares[-1]:.1%} at the end"


def _rises_and_falls(shares: Sequence[float], heads: int) -> bool:
    """Whether shares of so many heads rise and fall again, each by a whole head or more."""
    return max(shares) - max(shares[0], shares[-1]) >= 1 / heads


def _above(rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """The shares of heads that are above chance by the threshold; None where one is not known."""
    if not all(one["above_chance"] for one in rows):
        return None
    return [float(one["above_chance"]["token_alignment"]) for one in rows]


def _row(one: Mapping[str, Any]) -> Row:
    above = one["above_chance"] or {}
    return Row(
        one["name"],
        (
            hundred(one["token_alignment"]),
            hundred(above.get("token_alignment"), why="no chance known"),
            hundred(one["low_activity"]),
            hundred(one["inactive"]),
            cell(one["overlap_with_last"], why=NO_LAST),
            cell(one["overlap_with_last_expected"]),
            cell(one["chrf"], one["chrf_low"], one["chrf_high"], digits=1),
        ),
    )


def _published(table: str, column: str, measure: str, row: str = "token alignment heads") -> Any:
    return value(NAME, table, model=SCRATCH, row=row, column=column, measure=measure)


def _beside(rows: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    peak = max(rows, key=lambda one: float(one["token_alignment"]))
    inactive = _published("Section 4", "end", "share", "inactive heads")
    kinds = (
        (
            f"largest share ({peak['name']}; paper: step 8000)",
            peak,
            "step 8000",
            cell(None, why="asked of the end alone"),
        ),
        ("at the end", rows[-1], "end", hundred(rows[-1]["inactive"], published=inactive)),
    )
    return tuple(
        Row(
            name,
            (
                hundred(one["token_alignment"], published=_published("Figure 6", step, "share")),
                silent,
                cell(
                    one["overlap_with_last"],
                    published=_published("Figure 7", step, "overlap"),
                    why=NO_LAST,
                ),
            ),
        )
        for name, one, step, silent in kinds
    )


def _line(name: str, rows: Sequence[Mapping[str, Any]], key: str, times: float = 1.0) -> Series:
    known = [one for one in rows if one[key] is not None]
    return Series(name, tuple((float(one["step"]), times * one[key]) for one in known))


def _shares(rows: Sequence[Mapping[str, Any]], note: str) -> Lines:
    kinds = ("token_alignment", "low_activity", "inactive")
    names = ("token alignment heads", "low activity", "inactive")
    lines = [_line(name, rows, key, 100.0) for key, name in zip(kinds, names, strict=True)]
    above = [
        {"step": one["step"], "share": one["above_chance"]["token_alignment"]}
        for one in rows
        if one["above_chance"]
    ]
    if above:
        lines.append(_line("above chance by 0.1", above, "share", 100.0))
    return Lines("Classes of heads", tuple(lines), "step", "share of heads, %", True, note)


def _overlap(rows: Sequence[Mapping[str, Any]], note: str) -> Lines:
    lines = (
        _line("token alignment heads", rows, "overlap_with_last"),
        _line("by chance", rows, "overlap_with_last_expected"),
        _line("top heads", rows, "top_overlap_with_last"),
    )
    return Lines("Share of the last checkpoint's heads", lines, "step", "overlap", True, note)


def _quality(rows: Sequence[Mapping[str, Any]], note: str) -> Lines:
    line = Series(
        "chrF++",
        tuple((float(one["step"]), one["chrf"]) for one in rows),
        tuple(one["chrf_low"] for one in rows),
        tuple(one["chrf_high"] for one in rows),
    )
    return Lines("Quality of the translations", (line,), "step", "chrF++", True, note)


def formation_words(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Shares of heads and translations over the checkpoints, and how sure they are."""
    key = "token_alignment"
    first, last = rows[0], rows[-1]
    peak = max(rows, key=lambda one: float(one[key]))
    shares = (
        f"The share of token alignment heads is {first[key]:.1%} at {first['name']}, "
        f"{peak[key]:.1%} at its highest ({peak['name']}) and {last[key]:.1%} at the end."
    )
    chance = ""
    over = _above(rows)
    if over is not None:
        highest = over.index(max(over))
        chance = (
            f"By 0.1 above chance are {over[0]:.1%} at first, {over[highest]:.1%} at their highest "
            f"({rows[highest]['name']}) and {over[-1]:.1%} at the end."
        )
    rise = max(pairwise(rows), key=lambda two: two[1]["chrf"] - two[0]["chrf"])
    step = rise[1]["chrf"] - rise[0]["chrf"]
    largest = (
        f"; its largest rise is between {rise[0]['name']} and {rise[1]['name']} ({step:+.1f})"
        if step > 0
        else ", and never rises"
    )
    quality = f"chrF++ goes from {first['chrf']:.1f} to {last['chrf']:.1f}{largest}."
    kept = next(
        (
            one["name"]
            for at, one in enumerate(rows)
            if all((each["overlap_with_last"] or 0.0) >= 0.8 for each in rows[at:])
        ),
        None,
    )
    settled = (
        ""
        if last["overlap_with_last"] is None
        else f"From {kept} on at least 80 % of the last checkpoint's heads are there."
        if kept is not None and kept != last["name"]
        else "Before the end fewer than 80 % of the last checkpoint's heads are there throughout."
    )
    apart = first["chrf_high"] < last["chrf_low"] or last["chrf_high"] < first["chrf_low"]
    sure = (
        "The intervals of chrF++ at the first and the last checkpoint "
        f"{'lie apart' if apart else 'overlap'}. It is one training; shares of heads have no "
        "interval here."
    )
    return sentence(shares, chance, quality, settled), sure


FORMATION = Experiment(
    "figure-6", ("Figure 6", "Figure 7"), "How these heads form during training", _steps, _tell
)
