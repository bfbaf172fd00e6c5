"""The report of causal head gating: maps of the roles, how stable they are, and their test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.errors import InputError
from headscope.heads import Head, HeadScores
from headscope.report.charts import BarRow, Series, bar_rows, line_chart
from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.head_scores import SHOWN, head_map
from headscope.results.causal_gating import CausalGatingResult, Fit, RolesCheck
from headscope.runs.reading import result_of
from headscope.shown.words import between, count, enumeration, fixed

__all__ = ["page"]

ROLES = {
    "facilitating": "The gate stays open even when it is pushed shut: the task needs the head.",
    "interfering": "The gate stays shut even when it is pushed open: the head is in the way.",
    "irrelevant": "The gate goes wherever it is pushed: the head does nothing for the task.",
}
CONDITIONS = {
    "untouched": ("Untouched model", "key-base"),
    "gates free": ("Gates fitted without a push", "key-s14"),
    "gates keep": ("Gates pushed open (G+)", "key-s9"),
    "gates remove": ("Gates pushed shut (G\u2212)", "key-s4"),
    "without facilitating": ("Facilitating heads removed", "key-top"),
    "random beside facilitating": ("as many random heads", "key-random"),
    "without interfering": ("Interfering heads removed", "key-top"),
    "random beside interfering": ("as many random heads", "key-random"),
    "without irrelevant": ("Irrelevant heads removed", "key-top"),
    "random beside irrelevant": ("as many random heads", "key-random"),
}
PUSHES = {
    "none": ("without a push", "key-base"),
    "keep": ("pushed open", "key-top"),
    "remove": ("pushed shut", "key-random"),
}


def page(path: Path) -> Page:
    """The report of the run of `find causal-gating` in this folder."""
    result = result_of(path, CausalGatingResult, "causal head gating")
    scores = HeadScores.from_pretrained(path / "scores")
    if not set(ROLES) <= set(scores.extra):
        raise InputError(
            f"{path / 'scores'}: lacks the scores of a role; run the same command again"
        )
    lead = (
        f"Which attention heads of {result.model_name} help with the task \u201c{result.task}"
        "\u201d, "
        "which are in its way, and which do nothing for it?"
    )
    facts = [
        ("heads", str(scores.geometry.total)),
        ("examples learned from", str(result.examples)),
        ("held out", str(result.check.examples)),
        ("seeds", str(len(result.fits))),
    ]
    return simple_page(
        f"{result.model_name} \u00b7 causal head gating",
        masthead("Causal head gating", lead, facts, kicker="headscope find causal-gating"),
        [
            ("summary", "", _summary(result)),
            ("heads", "Heads", _maps(scores)),
            ("roles", "Roles", _roles(result)),
            ("check", "Test", _check(result.check)),
            ("scores", "Scores", _scores(scores)),
            ("fits", "Fits", _fits(result.fits)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _summary(result: CausalGatingResult) -> Html:
    helping, hindering, idle = (result.roles[role].mean for role in ROLES)
    lines: list[Child] = [
        tag(
            "p",
            "Every head was given a gate between 0 (removed) and 1 (kept). The gates were fitted "
            "to the task twice: once with a push towards 1, once with a push towards 0. ",
            tag("strong", f"Of {len(result.heads)} heads {helping} help"),
            f", {hindering} are in the way and {idle} do nothing, on average over "
            f"{count(len(result.fits), 'seed')}.",
        )
    ]
    check = result.check
    without, beside = (
        check.conditions.get(f"{name} facilitating") for name in ("without", "random beside")
    )
    if without is not None and beside is not None:
        change = without.change
        lines.append(
            tag(
                "p",
                f"On examples that nothing was fitted to, removing "
                f"{count(len(check.removed['facilitating']), 'facilitating head')} changes the "
                f"loss of the answer by {_signed(change.value)} nats a token (95\u00a0% interval "
                f"{between(change.low, change.high, 3)}), removing as many random heads by "
                f"{_signed(beside.change.value)}.",
                class_="sure",
            )
        )
    return section("summary", "In short", *lines)


def _maps(scores: HeadScores) -> Html:
    figures = [
        figure(
            f"map-{role}",
            join(
                tag("strong", f"{role.capitalize()}. "),
                words,
                " The further along the ramp, the more; means over seeds.",
            ),
            head_map(HeadScores(scores.geometry, scores.extra[role], role), role.capitalize(), 460),
        )
        for role, words in ROLES.items()
    ]
    return section("heads", "The three roles", tag("div", figures, class_="pair"))


def _roles(result: CausalGatingResult) -> Html:
    rows: list[list[Child]] = [
        [role, heads.mean, heads.always, heads.any] for role, heads in result.roles.items()
    ]
    caption = join(
        tag("strong", "How many heads have each role. "),
        f"A head has a role where its score for it is at least {result.threshold:g}. Fits that "
        "begin elsewhere may end with other heads that do the same together: where few heads have "
        "a role in every seed and many in at least one, single heads can stand in for each other.",
    )
    header = ("Role", "Mean over seeds", "In every seed", "In at least one")
    body = scroll("Roles", table("Heads by role", header, rows, class_="numbers"))
    return section("roles", "How stable the roles are", figure("roles-figure", caption, body))


def _check(check: RolesCheck) -> Html:
    shown = {
        name: (*words, check.conditions[name])
        for name, words in CONDITIONS.items()
        if name in check.conditions
    }
    rows = [
        BarRow(words, loss.nll.value, mark, loss.each if len(loss.each) > 1 else ())
        for words, mark, loss in shown.values()
    ]
    tops = [value for row in rows for value in (row.value or 0.0, *row.points)]
    changes = [
        [
            words,
            fixed(loss.nll.value, 3),
            _signed(loss.change.value),
            between(loss.change.low, loss.change.high, 3),
        ]
        for name, (words, _, loss) in shown.items()
        if name != "untouched"
    ]
    nobody = [role for role, heads in check.removed.items() if not heads]
    caption = join(
        tag("strong", "Loss of the answers on held-out examples, in nats a token. "),
        "Less is better. Of each role the heads of highest score are removed; that should raise "
        "the loss for facilitating heads, lower it for interfering ones and leave it for "
        "irrelevant ones. Rings are single seeds, or single draws of random heads, and the bar "
        "their mean. Intervals of the changes are over examples.",
        f" No head is {enumeration(nobody)} enough to be removed." if nobody else "",
    )
    header = ("", "loss", "change", "95\u00a0% interval")
    detail = scroll(
        "Changes", table("Changes from the untouched model", header, changes, class_="numbers")
    )
    return section(
        "check",
        "What the roles predict, put to the test",
        figure("check-figure", caption, bar_rows(rows, max(tops) or 1.0, 3), detail),
    )


def _scores(scores: HeadScores) -> Html:
    def row(head: Head) -> list[Child]:
        at = head.layer, head.head
        low, high = (None if one is None else float(one[at]) for one in (scores.low, scores.high))
        extra = [fixed(float(scores.extra[name][at]), 3) for name in (*ROLES, "keep", "remove")]
        return [str(head), *extra[:1], between(low, high, 3), *extra[1:]]

    header = (
        "Head", "Facilitating", "Over seeds", "Interfering", "Irrelevant", "Pushed open (G+)",
        "Pushed shut (G\u2212)",
    )  # fmt: skip
    rows = [row(head) for head, _ in scores.ranked()]
    first = table("Heads by facilitation", header, rows[:SHOWN], class_="numbers")
    more = None
    if len(rows) > SHOWN:
        rest = table("The other heads", header, rows[SHOWN:], class_="numbers")
        summary = tag("summary", f"The other {count(len(rows) - SHOWN, 'head')}")
        more = tag("details", summary, scroll("The other heads", rest))
    caption = join(
        tag("strong", "Every head, most facilitating first. "),
        "Facilitating is the gate pushed shut, interfering is 1 minus the gate pushed open, "
        "irrelevant is the gate pushed open times 1 minus the gate pushed shut (Nam et al. 2025, "
        "table 1); means over seeds. \u201cOver seeds\u201d is the lowest and the highest "
        "facilitation of a seed, not a confidence interval.",
    )
    return section(
        "scores",
        "The scores",
        figure("ranking", caption, scroll("Heads by facilitation", first), more),
    )


def _fits(fits: Sequence[Fit]) -> Html:
    series = []
    for push, (words, mark) in PUSHES.items():
        losses = [fit.nll[push] for fit in fits]
        step = max(1, len(losses[0]) // 40)
        before = 0 if push == "none" else len(fits[0].nll["none"])
        points = []
        for at in range(0, len(losses[0]), step):
            some = [value for one in losses for value in one[at : at + step]]
            points.append((float(before + at), sum(some) / len(some)))
        series.append(Series(words, points, mark))
    chart = line_chart(
        series,
        "step",
        "loss of the answers",
        "The mean loss of the answers over the steps of the three fits, the mean over seeds.",
    )
    caption = join(
        tag("strong", "How the fits went. "),
        "Loss of the answers on the examples learned from, in nats a token, without the push; the "
        "mean over seeds and over a few steps each. Gates begin anywhere between 0 and 1, so the "
        "loss begins high. The two pushed fits both go on from the end of the first.",
    )
    return section("fits", "The fits", figure("fits-figure", caption, chart))


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{fixed(value, 3)}"
