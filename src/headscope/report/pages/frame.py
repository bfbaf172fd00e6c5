"""What every page has: its title, where its numbers come from, and the page around the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.report.html import Child, Html, tag
from headscope.report.page import Page
from headscope.report.parts import section
from headscope.report.sections.provenance import (
    configuration,
    data_table,
    facts_list,
    model_facts,
    run_facts,
    software_facts,
)
from headscope.results.common import Ablation, ReferenceText
from headscope.runs import decode
from headscope.runs.reading import read_object, read_result
from headscope.shown.words import count

__all__ = ["ablated", "about_run", "masthead", "simple_page"]


def masthead(
    title: str, lead: Child, facts: Sequence[tuple[str, str]] = (), kicker: str = "headscope"
) -> Html:
    """The head of a page: what was looked at, a sentence on it, and facts as (name, words)."""
    line = [
        tag("span", tag("span", f"{name}: ") if name else None, tag("bdi", words))
        for name, words in facts
        if words
    ]
    between: list[Child] = [part for one in line for part in (" \u00b7 ", one)]
    return tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", tag("bdi", title)),
        tag("p", lead, class_="lead"),
        tag("p", between[1:], class_="facts") if line else None,
        class_="masthead",
    )


def ablated(result: Ablation | Mapping[str, Any]) -> tuple[str, str]:
    """A fact for the head of a page: what removed heads give, where that is not zero."""
    how = result if isinstance(result, Ablation) else decode(Ablation, result)
    if how.ablate != "mean":
        return "", ""
    reference = how.reference_text or ReferenceText()
    over = f" over {count(reference.texts, 'text')}" if reference.texts else ""
    source = f", {reference.source}" if reference.source else ""
    return "removed heads give", f"their mean output by class of position{over}{source}"


def about_run(path: Path) -> Html:
    """Where the numbers of any run come from: run, model, data, software, configuration.

    InputError if the files of the run are missing or damaged.
    """
    run, provenance = read_object(path / "run.json"), read_object(path / "provenance.json")
    result = read_result(path)
    model = result.get("model")
    described = dict(model) if isinstance(model, Mapping) else {"name": model}
    for name, key in (("name", "model"), ("digest", "weights")):
        described[name] = described.get(name) or provenance.get(key)
    for name in ("revision", "dtype", "device"):
        described[name] = described.get(name) or provenance.get(name)
    data = data_table(result.get("data"))
    inputs = run.get("inputs")
    return section(
        "provenance",
        "Where the numbers come from",
        tag(
            "div",
            facts_list("Run", run_facts(result, provenance, path)),
            facts_list("Model", model_facts(described)),
            class_="facts-grid",
        ),
        data,
        tag(
            "div",
            facts_list("Software", software_facts(provenance)),
            facts_list("What was read (SHA-256)", inputs if isinstance(inputs, Mapping) else {}),
            class_="facts-grid",
        ),
        configuration(_config(run, result)),
    )


def simple_page(
    title: str,
    head: Html,
    sections: Sequence[tuple[str, str, Html | None]],
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
) -> Page:
    """A page of these sections, (identifier, words in the navigation or empty, HTML).

    A section that is None is left out. An identifier is that of the section's element. The first
    is `summary`, what was found in a few sentences; the last is `about_run`, as `provenance`.
    """
    return Page(
        title=f"{title} \u00b7 headscope",
        masthead=head,
        sections=[(name, words, html) for name, words, html in sections if html is not None],
        data=data or {},
        scripts=scripts,
        styles=styles,
    )


def _config(run: Mapping[str, Any], result: Mapping[str, Any]) -> Any:
    """The configuration the run was keyed by; where that is lacking, what its result says."""
    return run.get("config") or result.get("config")
