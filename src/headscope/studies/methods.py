"""`headscope methods`: every method of finding heads, what it measures and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.find.registry import Method
from headscope.runs import Result, Signature
from headscope.settings import Settings
from headscope.studies.registry import methods
from headscope.studies.study import Study


@dataclass(frozen=True)
class Methods(Settings):
    """List the methods of finding heads: what each measures, and what data it needs."""


@dataclass(frozen=True, kw_only=True)
class MethodsList(Result):
    """Every method."""

    methods: tuple[Method, ...]


def _methods(config: Methods) -> MethodsList:
    by_name = methods()
    key = Signature.of("methods", {"methods": list(by_name)}, {})
    return MethodsList(signature=str(key), methods=tuple(by_name.values()))


def _text(result: MethodsList) -> str:
    width = max(len(method.name) for method in result.methods)
    return "\n".join(
        f"{method.name:<{width}}  {method.measures}\n{'':<{width}}  needs: {method.needs}"
        for method in result.methods
    )


command = Study(Methods, _methods, _text, out=None, usage="")
