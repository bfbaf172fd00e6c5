"""Every study by its command, in its module, of which none is read before it is asked for.

A line of `BY_PANEL` is all that a new study needs. One of `find` that says what it measures is a
method: `headscope methods` lists it, and a survey runs it if it has a `survey`.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from headscope.errors import InputError, clause, nearest
from headscope.find import registry
from headscope.find.registry import Method
from headscope.installed import cannot_load, doubled, registered
from headscope.studies.study import Study

#: The module of each study by the words of its command, under the panel of its group's help and in
#: the order of help; its study is the module's `command`.
BY_PANEL = {
    "Start": {
        "check": "headscope.studies.check",
        "atlas": "headscope.studies.atlas",
        "explore": "headscope.live.command",
        "survey": "headscope.studies.survey",
    },
    "Translation": {
        "find translation-score": "headscope.studies.find.translation_score",
        "find key-tokens": "headscope.studies.find.key_tokens",
        "find language-name": "headscope.studies.find.language_name",
        "verify removal": "headscope.studies.verify.removal",
        "verify failures": "headscope.studies.verify.failures",
        "verify one-by-one": "headscope.studies.verify.one_by_one",
        "verify alignment": "headscope.studies.verify.alignment",
        "verify measure": "headscope.studies.verify.measure",
    },
    "Any task": {
        "find attribution": "headscope.studies.find.attribution",
        "find patching": "headscope.studies.find.patching",
        "find knockouts": "headscope.studies.find.knockouts",
        "find causal-gating": "headscope.studies.find.causal_gating",
        "verify circuit": "headscope.studies.verify.circuit",
        "verify heads": "headscope.studies.verify.heads",
        "verify tasks": "headscope.studies.verify.tasks",
    },
    "Repeating and copying": {
        "find induction": "headscope.studies.find.induction",
        "find retrieval": "headscope.studies.find.retrieval",
    },
    "LAHIS: heads of languages": {
        "find lahis": "headscope.studies.find.lahis",
        "find first-order": "headscope.studies.find.first_order",
        "find soft-gate": "headscope.studies.find.soft_gate",
        "verify perplexity": "headscope.studies.verify.perplexity",
        "verify layers": "headscope.studies.verify.layers",
        "verify summaries": "headscope.studies.verify.summaries",
        "verify off-target": "headscope.studies.verify.off_target",
        "verify transfer": "headscope.studies.verify.transfer",
    },
    "Sets and scores": {
        "compare overlap": "headscope.studies.compare.overlap",
        "compare methods": "headscope.studies.compare.methods",
        "compare classes": "headscope.studies.compare.classes",
        "compare formation": "headscope.studies.compare.formation",
        "compare release": "headscope.studies.compare.release",
    },
    "Heads Up!: masks of heads": {
        "find mask": "headscope.studies.find.mask",
        "verify mask": "headscope.studies.verify.mask",
        "verify scaling": "headscope.studies.verify.scaling",
        "verify families": "headscope.studies.verify.families",
        "verify attention": "headscope.studies.verify.attention",
        "compare masks": "headscope.studies.compare.masks",
        "compare states": "headscope.studies.compare.states",
    },
    "Models": {
        "use adapt": "headscope.studies.use.adapt",
        "use export": "headscope.studies.use.export",
        "use simultaneous": "headscope.studies.use.simultaneous",
        "serve-check": "headscope.studies.serve_check",
    },
    "Corpora": {
        "use rate": "headscope.studies.use.rate",
        "use mix": "headscope.studies.use.mix",
    },
    "Steps": {
        "align": "headscope.studies.align",
        "methods": "headscope.studies.methods",
    },
    "Papers": {
        "reproduce": "headscope.papers.command",
    },
    "Runs": {
        "report": "headscope.studies.report",
        "heads": "headscope.studies.heads",
    },
    "Upkeep": {
        "cache": "headscope.studies.cache",
    },
    "The bundled model": {
        "pocket sample": "headscope.studies.pocket.sample",
        "pocket tasks": "headscope.studies.pocket.tasks",
        "pocket train": "headscope.studies.pocket.train",
        "pocket trater": "headscope.papers.trater.experiment",
    },
}
COMMANDS = {command: module for part in BY_PANEL.values() for command, module in part.items()}
PANEL_OF = {command: panel for panel, part in BY_PANEL.items() for command in part}
#: The panel of the commands of installed packages.
INSTALLED = "Installed packages"


#: Verbs under which installed packages may register commands.
VERBS = ("find", "compare", "verify", "use")
_INSTALLED = {
    name: point
    for name, point in registered("methods").items()
    if name not in COMMANDS and re.fullmatch(rf"({'|'.join(VERBS)}) [a-z][a-z0-9-]*", name)
}
COMMANDS |= {name: point.module for name, point in _INSTALLED.items()}
#: What installed packages register that is no command, in sentences.
MISNAMED = (*doubled(), *(
    str(cannot_load(point, f"a command is called VERB NAME, with a verb of {', '.join(VERBS)}, "
                           "and as none that headscope has"))
    for name, point in registered("methods").items()
    if name not in _INSTALLED
))  # fmt: skip


def command_in(command: str) -> Any:
    """What the module of a command calls `command`: a study, or a function that Typer can read.

    Raises `InputError`, naming the package, where an installed one brings it and it cannot be read.
    """
    try:
        if command in _INSTALLED and _INSTALLED[command].attr:
            return _INSTALLED[command].load()
        return importlib.import_module(COMMANDS[command]).command
    except Exception as error:  # a stranger's module may raise anything
        if command not in _INSTALLED:
            raise
        raise cannot_load(_INSTALLED[command], clause(error)) from error


def study_of(command: str) -> Study:
    """The study of a command such as `find lahis`; InputError if there is none."""
    if command.startswith("reproduce "):
        module = importlib.import_module(COMMANDS["reproduce"])
        reproduced: Study = module.papers if command == "reproduce all" else module.paper
        return reproduced
    if command not in COMMANDS:
        hint = nearest(command, COMMANDS).rstrip()
        raise InputError(f"no study is called '{command}'" + (hint and f"; {hint}"))
    study: Study = command_in(command)
    return study


def methods() -> dict[str, Method]:
    """Every method of finding heads by name: the registered ones, then studies of `find`."""
    by_name = {method.name: method for method in registry.methods()}
    for command, module in COMMANDS.items():
        verb, _, name = command.partition(" ")
        if verb == "find" and name not in by_name and (study := study_of(command)).measures:
            by_name[name] = Method(
                name, module, study.settings.__name__, study.run.__name__, study.needs,
                study.measures,
            )  # fmt: skip
    return by_name
