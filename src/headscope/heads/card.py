"""The model cards that go with saved artifacts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headscope.heads.geometry import Geometry

if TYPE_CHECKING:
    from headscope.heads.hub import Repository
    from headscope.heads.store import Origin

__all__ = ["folder_card", "model_card"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

_KINDS = {
    "scores": ("Attention head scores", "HeadScores", "one score for every query head"),
    "heads": ("A set of attention heads", "HeadSet", "a list of query heads"),
    "gate": ("A gate over attention heads", "Gate", "one multiplier for every query head"),
}


def model_card(
    kind: str, geometry: Geometry, origin: Origin, place: Repository | None = None
) -> str:
    """README.md of an artifact: Hugging Face front matter, what it is, how to load it, origin.

    `place` is where on the Hub it will lie; None for a folder.
    """
    title, class_name, content = _KINDS[kind]
    model = str(origin.provenance.get("model") or "")
    lines = [*_front(origin, kind), f"# {title}", ""]
    lines += [f"This folder holds {content} of a decoder language model with {geometry}."]
    if model:
        lines += [f"The model is {_code(model)}."]
    if origin.method:
        lines += [f"Made by the method {_code(origin.method)}."]
    lines += [
        "",
        "```python",
        f"from headscope.heads import {class_name}",
        "",
        f"{kind} = {class_name}.from_pretrained({_arguments(place)})",
        "```",
        "",
    ]
    if origin.signature:
        lines += [f"Signature: {_code(origin.signature)}", ""]
    lines += _table("Configuration", origin.config)
    lines += _table("Provenance", origin.provenance)
    return "\n".join(lines)


def folder_card(origin: Origin) -> str:
    """README.md of a repository whose artifacts lie in subfolders, the first of this origin."""
    lines = [*_front(origin), "# Attention heads", ""]
    lines += [
        "The subfolders hold scores, sets or gates; each has a card that says how to load it."
    ]
    return "\n".join([*lines, ""])


def _front(origin: Origin, *tags: str) -> list[str]:
    """The YAML from which the Hub knows the library, the tags and the base model."""
    lines = ["---", "library_name: headscope", "tags:"]
    lines += [f"- {tag}" for tag in ("headscope", "attention-heads", "interpretability", *tags)]
    model = str(origin.provenance.get("model") or "")
    # A model of the Hub has a commit; one without, though its name looks alike, is a folder.
    if _HUB_ID.fullmatch(model) and origin.provenance.get("revision", True):
        # A JSON string is a YAML string as well, whatever it holds.
        lines += [f"base_model: {json.dumps(model)}"]
    return [*lines, "---", ""]


def _arguments(place: Repository | None) -> str:
    """What `from_pretrained` is called with, as Python."""
    if place is None:
        return '"path/to/this/folder"'
    named = {"revision": place.revision, "subfolder": place.subfolder}
    given = [f"{name}={json.dumps(value)}" for name, value in named.items() if value]
    return ", ".join([json.dumps(place.name), *given])


def _table(title: str, values: Mapping[str, Any]) -> list[str]:
    if not values:
        return []
    rows = [f"| {_cell(key)} | {_code(_text(value))} |" for key, value in values.items()]
    return [f"## {title}", "", "| name | value |", "|---|---|", *rows, ""]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    return f"`{_cell(text)}`".replace("``", "` `")


def _cell(text: str) -> str:
    return str(text).replace("`", "'").replace("|", "\\|").replace("\n", " ")
