"""The report of a paper's experiments on a model: it reads like a short paper."""

from __future__ import annotations

from pathlib import Path

from headscope.report.html import Html, join, tag
from headscope.report.page import Page
from headscope.report.pages.frame import about_run, masthead, simple_page
from headscope.report.parts import section
from headscope.report.records.paper import PaperRecord, read_paper, slugs
from headscope.report.sections.paper_parts import (
    answer_section,
    experiment_section,
    experiments_table,
    method_section,
    not_run_section,
    runs_section,
    span,
)
from headscope.report.sections.paper_repeat import left_section
from headscope.report.sections.provenance import facts_list, model_facts

__all__ = ["page"]

STYLES = ("paper.css",)
OWN = ("summary", "origin", "method", "experiments", "not-run", "runs", "repeat", "provenance",
       "data", "tip")  # fmt: skip


def page(path: Path) -> Page:
    """The report of the run of `reproduce PAPER` in this folder."""
    record = read_paper(path)
    names = [one.name for one in record.experiments]
    steps = [run.step for run in record.runs]
    made = slugs([*names, *(f"run-{step}" for step in steps)], OWN)
    at = dict(zip(names, made, strict=False))
    places = dict(zip(steps, made[len(names) :], strict=True))
    model = str(record.model.get("name") or "model")
    shown = [one for one in record.experiments if one.shown]
    return simple_page(
        record.title,
        masthead(
            record.title,
            join("What the paper measured, measured again on ", tag("bdi", model), "."),
            [
                ("", record.source),
                ("experiments", f"{len(shown)} of {len(names)}"),
                ("runs", f"{sum(run.state != 'not run' for run in record.runs)} of {len(steps)}"),
                ("time", span(record.seconds)),
            ],
            kicker=f"headscope reproduce {record.name}",
        ),
        [
            ("summary", "Answer", answer_section(record)),
            ("origin", "", _origin(record)),
            ("method", "Method", method_section(record)),
            ("experiments", "Experiments", experiments_table(record, at)),
            *((at[one.name], "", experiment_section(one, at[one.name], places)) for one in shown),
            ("not-run", "Not run", not_run_section(record, at)),
            ("runs", "Runs", runs_section(record, places)),
            ("repeat", "How to repeat it", left_section(record)),
            ("provenance", "Provenance", about_run(path)),
        ],
        styles=STYLES,
    )


def _origin(record: PaperRecord) -> Html:
    model = model_facts(record.model)
    few = {key: model.get(key) for key in ("name", "revision", "parameters", "geometry", "dtype")}
    run = {"signature": record.result.get("signature"), "run folder": record.result.get("run")}
    return section(
        "origin",
        "Model and run",
        facts_list("Model", few),
        facts_list("Run", run),
        tag("p", tag("a", "Software and configuration", href="#provenance")),
        class_="box",
    )
