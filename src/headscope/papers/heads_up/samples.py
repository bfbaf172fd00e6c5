"""What models wrote in a run, sample by sample."""

from __future__ import annotations

import json
from typing import Any

from headscope.errors import InputError
from headscope.papers.paper import Setting


def outputs(setting: Setting, step: str, task: str) -> dict[str, list[dict[str, Any]]]:
    """The samples of a finished run by condition, in the order of the examples.

    Each has `input`, `reference` and `output`. Empty where the run itself is not at hand.
    """
    file = setting.at(step) / "samples" / f"{task}.jsonl"
    if not setting.done(step) or not file.is_file():
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found.setdefault(row["condition"], []).append(row)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file}: is damaged; delete {file.parent.parent} and run the same command again"
        ) from error
    return found
