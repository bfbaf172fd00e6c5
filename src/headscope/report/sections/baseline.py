"""The warning above a page whose model does not do the task that the page is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.report.html import Html, tag
from headscope.report.parts import scroll, section, table

__all__ = ["baseline_section"]


def baseline_section(result: Mapping[str, Any]) -> Html | None:
    """What speaks against each direction or task, with three outputs; None where all work."""
    check = result.get("baseline_check")
    if result.get("baseline_works") is not False or not isinstance(check, Mapping):
        return None
    parts: list[Html] = []
    for name, judged in check.items():
        if not isinstance(judged, Mapping) or judged.get("works") is not False:
            continue
        reasons = "; ".join(map(str, judged.get("reasons") or ()))
        parts.append(tag("p", tag("strong", tag("bdi", name)), ": ", tag("bdi", reasons), "."))
        rows = [
            [tag("bdi", str(one.get(key) or "(empty)")) for key in ("input", "output", "reference")]
            for one in judged.get("shown") or ()
        ]
        if rows:
            header = ("Input", "Output of the original model", "Reference")
            title = f"Outputs, {name}"
            parts.append(scroll(title, table(title, header, rows)))
    return section(
        "warning",
        "Warning: the model does not do this task",
        tag(
            "p", "What follows says little about the task. Try ", tag("bdi", check.get("try")), "."
        ),
        parts,
        class_="warning",
    )
