"""Every study by its command, in its module, of which none is read before it is asked for."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from headscope.errors import InputError
from headscope.studies.study import Study

__all__ = ["COMMANDS", "study_of"]

#: The module of each study by the words of its command; its study is the module's `command`.
COMMANDS = {
    "atlas": "headscope.studies.atlas",
    "align": "headscope.cli.align",
    "survey": "headscope.cli.survey",
    "reproduce": "headscope.papers.command",
    "methods": "headscope.cli.methods",
    "report": "headscope.studies.report",
    "check": "headscope.cli.check",
    "costs": "headscope.cli.costs",
    "architectures": "headscope.cli.architectures",
    "find translation-score": "headscope.studies.find.translation",
    "find key-tokens": "headscope.studies.find.key_tokens",
    "find soft-gate": "headscope.cli.find.soft_gate",
    "find causal-gating": "headscope.cli.find.causal_gating",
    "find lahis": "headscope.studies.find.lahis",
    "find first-order": "headscope.studies.find.first_order",
    "find mask": "headscope.cli.find.mask",
    "find induction": "headscope.studies.find.induction",
    "find retrieval": "headscope.studies.find.retrieval",
    "find patching": "headscope.studies.find.patching",
    "compare overlap": "headscope.cli.compare.overlap",
    "compare methods": "headscope.cli.compare.methods",
    "compare formation": "headscope.cli.compare.formation",
    "compare classes": "headscope.cli.compare.classes",
    "compare masks": "headscope.cli.compare.masks",
    "compare states": "headscope.cli.compare.states",
    "verify removal": "headscope.studies.verify.removal",
    "verify heads": "headscope.studies.verify.heads",
    "verify tasks": "headscope.cli.verify.tasks",
    "verify attention": "headscope.cli.verify.attention",
    "verify one-by-one": "headscope.cli.verify.one_by_one",
    "verify perplexity": "headscope.cli.verify.perplexity",
    "verify layers": "headscope.cli.verify.layers",
    "verify summaries": "headscope.cli.verify.summaries",
    "verify off-target": "headscope.cli.verify.off_target",
    "verify transfer": "headscope.cli.verify.transfer",
    "verify measure": "headscope.studies.verify.measure",
    "verify failures": "headscope.cli.verify.failures",
    "verify mask": "headscope.cli.verify.mask",
    "verify scaling": "headscope.cli.verify.scaling",
    "verify families": "headscope.cli.verify.families",
    "use adapt": "headscope.cli.use.adapt",
    "use export": "headscope.cli.use.export",
    "use rate": "headscope.cli.use.rate",
    "use mix": "headscope.cli.use.mix",
    "pocket sample": "headscope.cli.pocket.sample",
    "pocket tasks": "headscope.cli.pocket.tasks",
    "pocket train": "headscope.cli.pocket.train",
    "pocket trater": "headscope.cli.pocket.trater",
}


def study_of(command: str) -> Study:
    """The study of a command such as `find lahis`; InputError if there is none."""
    if command.startswith("reproduce "):
        module = importlib.import_module(COMMANDS["reproduce"])
        reproduced: Study = module.papers if command == "reproduce all" else module.paper
        return reproduced
    if command not in COMMANDS:
        near = get_close_matches(command, COMMANDS, 1)
        raise InputError(
            f"no study is called '{command}'" + (f"; is it {near[0]}?" if near else "")
        )
    study: Study = importlib.import_module(COMMANDS[command]).command
    return study
