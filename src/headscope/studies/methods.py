"""`headscope methods`: every method of finding heads, what it measures and what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.find.registry import Method, methods
from headscope.runs import Result, Signature
from headscope.settings import Settings
from headscope.studies.study import Study


@dataclass(frozen=True)
class Methods(Settings):
    """List the methods of finding heads: what each measures, and what data it needs."""


@dataclass(frozen=True, kw_only=True)
class MethodsList(Result):
    """Every method."""

    methods: tuple[Method, ...]


def _methods(config: Methods) -> MethodsList:
    found = methods()
    key = Signature.of("methods", {"methods": [one.name for one in found]}, {})
    return MethodsList(signature=str(key), methods=found)


def _text(result: MethodsList) -> str:
    width = max(len(one.name) for one in result.methods)
    return "\n".join(
        f"{one.name:<{width}}  {one.measures}\n{'':<{width}}  needs: {one.needs}"
        for one in result.methods
    )


command = Study(Methods, _methods, _text, out=None)
