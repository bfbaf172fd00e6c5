"""The Python reference: what a module makes public.

Modules are read, not imported, so that building the documentation needs no model library.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

__all__ = ["expanded", "names", "studies"]

SOURCE = Path(__file__).resolve().parents[2] / "src"
_STUDIES = "<!-- studies -->"
_PUBLIC = re.compile(r"^<!-- public ([\w.]+)(?: without ([\w, ]+))? -->$", re.MULTILINE)


def expanded(text: str) -> str:
    """The page with the reference of every module that it asks for, and of all studies."""
    if _STUDIES in text:
        text = text.replace(_STUDIES, "\n\n".join(f"::: {name}" for name in studies()))
    return _PUBLIC.sub(
        lambda found: "\n\n".join(
            f"::: {found[1]}.{name}"
            for name in names(found[1])
            if name not in (found[2] or "").split(", ")
        ),
        text,
    )


def names(module: str) -> tuple[str, ...]:
    """The names in a package's `__all__`, or the functions and classes that a module defines."""
    path = SOURCE / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    defined = []
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return tuple(ast.literal_eval(value))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not name.startswith("_"):
                defined.append(name)
    return tuple(defined)


def studies() -> tuple[str, ...]:
    """Every recipe, after its configuration: what takes a `config` and the folder `out`."""
    found = []
    for file in sorted((SOURCE / "headscope" / "studies").rglob("*.py")):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            match statement:
                case ast.FunctionDef(
                    name=name,
                    args=ast.arguments(
                        args=[ast.arg("config", ast.Name(id=config)), ast.arg("out"), *_]
                    ),
                ) if not name.startswith("_"):
                    found += [f"{module}.{config}", f"{module}.{name}"]
    return tuple(dict.fromkeys(found))
