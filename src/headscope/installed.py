"""What installed packages bring to headscope, by entry points: methods, controls, measures and
readers.

A package registers them in its `pyproject.toml`::

    [project.entry-points."headscope.methods"]
    "find reach" = "my_package.reach"            # a module with a study, `command`
    [project.entry-points."headscope.controls"]
    neighbours = "my_package.controls:NEIGHBOURS"  # a `Control`
    [project.entry-points."headscope.measures"]
    wer = "my_package.measures:word_errors"      # a function of outputs and references
    [project.entry-points."headscope.readers"]
    toml = "my_package.formats:TOML"             # a `Format` of data files

Nothing of a package is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from headscope.errors import InputError, caution, clause

Part = TypeVar("Part")
GROUPS = ("methods", "controls", "measures", "readers")


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of a group such as `controls`, by name; of one name the first package's."""
    return {point.name: point for point in reversed(_sorted(group))}


def package_of(command: str) -> str | None:
    """The package and version that bring a command, which count in its runs' signatures."""
    point = registered("methods").get(command)
    return None if point is None else _package(point)


def packages() -> list[str]:
    """All packages that register something, with their versions."""
    return sorted({_package(point) for group in GROUPS for point in _sorted(group)})


def doubled() -> list[str]:
    """The entry points whose name another package has taken already, in sentences."""
    return [
        str(cannot_load(point, "another package has registered that name"))
        for group in GROUPS
        for point in _sorted(group)
        if registered(group)[point.name] != point
    ]


def _sorted(group: str) -> list[EntryPoint]:
    points = set(entry_points(group=f"headscope.{group}"))  # a path may be searched twice
    return sorted(points, key=lambda point: (point.name, _package(point)))


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "a package"


def cannot_load(point: EntryPoint, why: str) -> InputError:
    """Why what a package registers cannot be used, naming the package."""
    return InputError(
        f"{_package(point)} registers {point.name!r} under {point.group}, which cannot be used "
        f"({why}); update the package, or remove it"
    )


class Parts(MutableMapping[str, Part], Generic[Part]):
    """Parts of headscope by name, and behind them those of installed packages.

    The latter are loaded when they are first asked for. One that cannot be is refused by its name
    (`InputError`), and left out of the others with a `Caution`; a name of headscope's own stays
    what it is.
    """

    def __init__(self, own: Mapping[str, Part], group: str, kind: type[Part] | None = None) -> None:
        self._known: dict[str, Part] = dict(own)
        self._group, self._kind = group, kind
        self._left_out: set[str] = set()

    def _load(self, name: str) -> Part:
        point = registered(self._group)[name]
        try:
            part = point.load()
        except Exception as error:  # a stranger's module may raise anything
            raise cannot_load(point, clause(error)) from error
        if not (callable(part) if self._kind is None else isinstance(part, self._kind)):
            wanted = "function" if self._kind is None else self._kind.__name__
            raise cannot_load(point, f"it is of type {type(part).__name__}, not a {wanted}")
        loaded: Part = part
        return loaded

    def __getitem__(self, name: str) -> Part:
        if name not in self._known and name in registered(self._group):
            self._known[name] = self._load(name)
        return self._known[name]

    def __setitem__(self, name: str, part: Part) -> None:
        self._known[name] = part

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: Any) -> bool:
        return name in self._known or name in registered(self._group)

    def __iter__(self) -> Iterator[str]:
        for name in registered(self._group):
            if name in self._known or name in self._left_out:
                continue
            try:
                _ = self[name]
            except InputError as error:
                self._left_out.add(name)
                caution(str(error))
        return iter(list(self._known))

    def __len__(self) -> int:
        return len(list(iter(self)))
