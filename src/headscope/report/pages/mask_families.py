"""The report of `verify families`: heads that several masks share, removed."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Child, Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import figure, scroll, section, table
from headscope.report.sections.mask_tests import gap_words
from headscope.results.mask_tests import FamilyHeads, FamilyTests, mean_of
from headscope.runs.reading import result_of
from headscope.shown.words import count, enumeration, fixed, p_value

__all__ = ["page"]

CONTROLS = {"random": "random heads", "random-layer-matched": "random heads of the same layers"}


def page(path: Path) -> Page:
    """The report of the run of `verify families` in this folder."""
    result = result_of(path, FamilyTests, "tests of a mask")
    lead = (
        f"What {result.model_name}, told what to do, loses without the heads that "
        f"{len(result.masks)} learned masks have in common, and without those that none of them "
        "keeps."
    )
    facts = [
        ("tasks", str(len(result.tasks))),
        ("draws of random heads", str(result.draws)),
    ]
    return simple_page(
        f"{result.model_name} \u00b7 shared heads",
        masthead("Shared heads", lead, facts, kicker="headscope verify families"),
        [
            ("summary", "", _summary(result)),
            ("losses", "Losses", _losses(result)),
            ("sets", "Sets of heads", _sets(result)),
            ("provenance", "Provenance", about_run(path)),
        ],
    )


def _words(family: FamilyHeads) -> str:
    if family.name == "unused":
        return "in no mask"
    if family.name == "all":
        return "in every mask"
    return f"in every mask of {family.name}"


def _summary(result: FamilyTests) -> Html:
    parts: list[Child] = [
        tag(
            "p",
            "Every mask keeps the heads that one task was found to need. Removing heads that all "
            "masks keep, and heads that none keeps, shows whether they matter to tasks the model "
            "is told to do: the loss says how unlikely the right outputs are, in nats a token.",
        )
    ]
    for family in result.families:
        if not family.tested:
            which = "no head" if not family.removed else "every head"
            parts.append(tag("p", f"There is {which} {_words(family)}, so nothing was tested."))
            continue
        removed = [task.of_kind("removed", family.name)[0] for task in result.tasks.values()]
        worse = [
            each.random_draws.against["nll"].value > 0 for each in removed if each.random_draws
        ]
        parts.append(
            tag(
                "p",
                tag("strong", f"{count(family.removed, 'head')} {_words(family)}"),
                f": without them the loss is higher than without as many random heads in "
                f"{sum(worse)} of {count(len(worse), 'task')}.",
            )
        )
    parts.append(
        tag(
            "p",
            "Masks are outcomes of single training runs; which heads they share may differ from "
            "seed to seed.",
            class_="sure",
        )
    )
    return section("summary", "In short", *parts)


def _losses(result: FamilyTests) -> Html:
    header: list[Child] = ["condition", "heads left", *(tag("bdi", name) for name in result.tasks)]

    def row(words: Child, left: int, kind: str, name: str | None = None) -> list[Child]:
        means = [mean_of(task.of_kind(kind, name), "nll") for task in result.tasks.values()]
        return [words, str(left), *(fixed(mean, 3) for mean in means)]

    every = result.families[0]
    rows = [row("model as it is", every.kept + every.removed, "instructed")]
    for family in result.families:
        if not family.tested:
            continue
        without = join("without heads ", _words(family))
        rows.append(row(without, family.kept, "removed", family.name))
        for kind, words in CONTROLS.items():
            rows.append(row(f"without {words}, mean", family.kept, kind, family.name))
    grid = table("Loss of the instructed tasks", header, rows, class_="numbers")
    caption = join(
        tag("strong", "Loss of instructed tasks without shared heads. "),
        "Nats a token, the mean over held-out examples of the mean over tokens; random heads are "
        f"means over {count(result.draws, 'draw')} of as many.",
    )
    tests = table(
        "Differences",
        ["heads", "task", "to the model as it is", "to random heads", "p over draws"],
        _tests(result),
        said=(1,),
        class_="numbers",
    )
    words = (
        "Intervals are 95\u00a0%, over examples. p is (1 + draws of random heads that do at least "
        "as much harm) / (1 + draws); for heads in no mask, draws that do at most as much."
    )
    return section(
        "losses",
        "Losses",
        figure("losses-table", caption, scroll("Losses", grid)),
        scroll("Differences", tests),
        tag("p", words),
    )


def _tests(result: FamilyTests) -> list[list[Child]]:
    rows: list[list[Child]] = []
    for family in result.families:
        for name, task in result.tasks.items():
            for removed in task.of_kind("removed", family.name):
                draws = removed.random_draws
                rows.append(
                    [
                        _words(family),
                        tag("bdi", name),
                        gap_words(removed.changed("nll")),
                        "\u2013" if draws is None else gap_words(draws.against["nll"]),
                        p_value(None if draws is None else draws.p_draws["nll"]),
                    ]
                )
    return rows


def _sets(result: FamilyTests) -> Html:
    pools = {"outside": "heads outside the set", "all": "all heads of the model"}
    rows = [
        [
            _words(family),
            str(family.removed),
            enumeration(family.tasks) if family.name not in ("all", "unused") else "all",
            pools[family.pool],
        ]
        for family in result.families
    ]
    grid = table(
        "Sets of heads",
        ["heads", "number", "masks", "random ones come from"],
        rows,
        said=(2, 3),
        class_="numbers",
    )
    return section("sets", "Sets of heads", scroll("Sets of heads", grid))
