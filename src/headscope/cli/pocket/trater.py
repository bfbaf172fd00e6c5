"""`headscope pocket trater`: small models trained on mixtures of a corpus that was rated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.cli.output import cell
from headscope.papers.trater import TraterExperiment, trater_experiment
from headscope.studies.study import Study


def _table(result: Mapping[str, Any]) -> str:
    names = {"chrf_prompt": ".1f", "chrf_document": ".1f", "gain": ".3f", "plain_nll": ".3f"}
    lines = ["\t".join(("mixture", "share", *names))]
    for one in result["conditions"]:
        told = [cell(one[name], form) for name, form in names.items()]
        lines.append("\t".join([one["kind"], cell(one["share"], ".1%"), *told]))
    return "\n".join([*lines, f"run: {result['run']}"])


command = Study(TraterExperiment, trater_experiment, _table)
