"""The papers by name, and their experiments by name or by table and figure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType

from headscope.errors import InputError
from headscope.papers.paper import Experiment, Paper

#: The name that stands for all papers.
ALL = "all"

#: The modules that hold the papers, loaded at first use.
PAPERS: Mapping[str, str] = MappingProxyType(
    {
        "token-alignment-heads": "headscope.papers.token_alignment_heads.paper",
        "lahis": "headscope.papers.lahis.paper",
        "heads-up": "headscope.papers.heads_up.paper",
    }
)


def paper_named(name: str) -> Paper:
    """The paper of this name; InputError, with what there is, if there is none."""
    if name not in PAPERS:
        raise InputError(
            f"{name!r} is no paper{_near(name, PAPERS)}; there are {', '.join(PAPERS)}, and {ALL}"
        )
    found = import_module(PAPERS[name]).PAPER
    if not isinstance(found, Paper):
        raise TypeError(f"{PAPERS[name]}.PAPER is no Paper")
    return found


def experiments_named(paper: Paper, names: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments of these names, in the paper's order; without names all but those `apart`.

    A table or figure that an experiment stands for names it too: `figure-28`, `Table 3`.
    """
    known = paper.experiments
    by_name = {
        _slug(element): experiment.name for experiment in known for element in experiment.elements
    }
    by_name |= {experiment.name: experiment.name for experiment in known}
    wanted = set()
    for name in names:
        if _slug(name) not in by_name:
            raise InputError(
                f"{paper.name} has no experiment {name!r}{_near(_slug(name), by_name)}; "
                f"`headscope reproduce {paper.name} --list` shows all"
            )
        wanted.add(by_name[_slug(name)])
    return tuple(
        experiment
        for experiment in known
        if experiment.name in wanted or not (wanted or experiment.apart)
    )


def _slug(text: str) -> str:
    words = re.sub(r"[\s_.-]+", "-", text.strip().lower())
    return re.sub(r"^(fig|tab)-(?=\d)", lambda match: _LONG[match[1]], words)


_LONG = {"fig": "figure-", "tab": "table-"}


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
