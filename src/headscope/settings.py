"""Settings say all about their options: help, bounds and reader stand on the field itself.

A command's options, the check of its values and the defaults follow from its settings class::

    @dataclass(frozen=True)
    class Removal(Settings):
        draws: Annotated[int, Option("Draws of random heads.", min=1)] = 10

    @dataclass(frozen=True, kw_only=True)
    class VerifyTasks(Settings):
        removal: Annotated[Removal, Nested(without=("measure",))] = field(default_factory=Removal)

Fields without an `Option`, and with a type that is no settings class, have no option.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from headscope.errors import InputError, OptionalPart, nearest

#: Of a field that does not decide what is computed, and so is not in a run's signature.
UNSIGNED = {"signature": False}
#: Of a field that counts in the signature unless it is None.
GIVEN = {"signature": "given"}


#: What a value in Python may be besides what is typed, if it is held in memory: a loaded model,
#: heads in any form, rows of sentence pairs, of documents, or of inputs and outputs, a direction as
#: two names, a function that writes prompts or one that measures outputs.
Held = Literal[
    "model", "heads", "pairs", "documents", "examples", "direction", "template", "measure"
]

#: The parts of a command's help, in their order.
Panel = Literal["What", "Data", "Prompt", "Test", "Model loading", "Running", "Expert"]


@dataclass(frozen=True)
class Option:
    """How a field is given on the command line.

    Attributes:
        help: one or two sentences.
        flag: such as `--language` or `--chat/--no-chat`; empty: the field's name with dashes.
        metavar: what stands for the value in help; None: its type.
        min, max: bounds of a number, both allowed.
        read: from what is typed (of a repeatable option all of it, a tuple) to the field's value.
        typed: the type that is typed where it is not the field's, such as `str` with `read`.
        default: what holds on the command line; `...`: the field's own default.
        argument: whether it is named by its place and has no flag.
        checked: whether the bounds hold for values given in Python, too.
        single: whether only one can be given of a field that holds several.
        held: what functions of Python take in memory, besides what is typed.
        panel: where it stands in help: `What` for what a command is about, `Expert` for what few
            need.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    read: Callable[[Any], Any] | None = None
    typed: Any = None
    default: Any = ...
    argument: bool = False
    checked: bool = True
    single: bool = False
    held: Held | None = None
    panel: Panel = "What"


@dataclass(frozen=True)
class Nested:
    """How settings inside others show: which of their options a command lacks, and which differ.

    Attributes:
        without: fields that have no option here.
        changed: options of fields that are said otherwise here, by the fields' names.
        make: what is called with the fields' values, those that are given, instead of the class.
        of: the settings whose options show, where the field's own type is none.
    """

    without: tuple[str, ...] = ()
    changed: Mapping[str, Option] = field(default_factory=dict)
    make: Callable[..., Any] | None = None
    of: type | None = None


@dataclass(frozen=True)
class MadeBy:
    """A field that a function makes from options of its own: its parameters, each with `Option`."""

    function: Callable[..., Any]


class Settings:
    """A frozen dataclass whose values are checked when it is made."""

    @classmethod
    def of_options(cls, **values: Any) -> Any:
        """The settings where these options are given, those of the command line or of Python."""
        return cls(**values)

    def __post_init__(self) -> None:
        """`InputError` for a value outside the bounds or the choices of its field."""
        owner: Any = type(self)
        for name, (hint, mark) in marked(owner).items():
            value = getattr(self, name)
            if isinstance(mark, Option) and mark.checked:
                for each in value if isinstance(value, (tuple, list)) else (value,):
                    _check(name, each, hint, mark)

    def parts(self) -> Iterator[OptionalPart]:
        """The optional parts of headscope that these settings need, those inside them included."""
        owner: Any = type(self)
        for value in (getattr(self, name) for name in marked(owner)):
            if isinstance(value, Settings):
                yield from value.parts()


def _check(name: str, value: Any, hint: Any, option: Option) -> None:
    choices = _choices(hint)
    if choices and value not in choices:
        names = ", ".join(str(choice) for choice in choices if choice is not None)
        hint = nearest(str(value), names.split(", "))
        raise InputError(f"{name} is {value!r}; {hint}it is one of {names}")
    numeric = isinstance(value, Real)  # numpy's numbers too
    if numeric and option.min is not None and not value >= option.min:
        raise InputError(f"{name} is {value}; it must be at least {option.min}")
    if numeric and option.max is not None and not value <= option.max:
        raise InputError(f"{name} is {value}; it must be at most {option.max}")


def _choices(hint: Any) -> tuple[Any, ...]:
    """What a value, or each of several, may be, where its type lists that."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is tuple:
        return _choices(get_args(hint)[0])
    inside = get_args(hint)
    listed = [_choices(each) for each in inside if each is not type(None)]
    return (*listed[0], None) if len(inside) == 2 and len(listed) == 1 and listed[0] else ()


#: How a field shows on the command line; None: not at all, or as its own type says.
Mark = Option | Nested | MadeBy | None


@cache
def marked(owner: Any) -> Mapping[str, tuple[Any, Mark]]:
    """The fields of a settings class, or parameters of a function: type, and how it is shown."""
    hints = get_type_hints(owner, include_extras=True)
    names = [each.name for each in fields(owner)] if isinstance(owner, type) else hints
    by_name: dict[str, tuple[Any, Mark]] = {}
    for name in names:
        hint, mark = hints[name], None
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            mark = next((extra for extra in extras if isinstance(extra, Mark)), None)
        by_name[name] = (hint, mark)
    return by_name


class GivenOption(NamedTuple):
    """An option of some settings: its name, its type, how it is given, and the field's default."""

    name: str
    hint: Any
    option: Option
    default: Any


def options_in(owner: Any, part: Nested = Nested()) -> Iterator[GivenOption]:
    """The options of a settings class or of a function, in their order; names may come twice."""
    for name, hint, mark, default in _members(owner, part):
        if isinstance(mark, MadeBy):
            yield from options_in(mark.function)
        elif isinstance(mark, Option):
            yield GivenOption(_option_name(name, mark), hint, mark, default)
        elif is_dataclass(kind := _settings(hint, mark)):
            yield from options_in(kind, mark if isinstance(mark, Nested) else Nested())


def build(owner: Any, given: Mapping[str, Any], part: Nested = Nested()) -> Any:
    """Settings, or what a function makes, from the values of their options.

    Values are what a command line gives, texts and numbers for the option's reader; `Final` ones
    are the field's own.
    """
    values = {}
    for name, hint, mark, default in _members(owner, part):
        if isinstance(mark, MadeBy):
            values[name] = build(mark.function, given)
        elif isinstance(mark, Option):
            value = given[_option_name(name, mark)]
            if isinstance(value, Final):
                values[name] = value.value
                continue
            if isinstance(value, list):
                value = tuple(value) or None
            elif mark.single and value is not None:
                value = (value,)
            if value is not None:
                values[name] = value if mark.read is None else mark.read(value)
            elif default is MISSING:
                values[name] = None
        elif is_dataclass(kind := _settings(hint, mark)):
            inside = mark if isinstance(mark, Nested) else Nested()
            if next(options_in(kind, inside), None) is not None:
                values[name] = build(kind, given, inside)
    return (part.make or getattr(owner, "of_options", owner))(**values)


class Final(NamedTuple):
    """The value of a field as it is, not as it is typed."""

    value: Any


def _members(owner: Any, part: Nested) -> Iterator[tuple[str, Any, Mark, Any]]:
    """The fields of a class or the parameters of a function: name, type, mark and default.

    Fields of the class itself come before those of its bases, which other settings have, too.
    """
    hints = marked(owner)
    if isinstance(owner, type):
        own = vars(owner).get("__annotations__", {})
        defaults = {
            each.name: each.default if each.default_factory is MISSING else ()
            for each in sorted(fields(owner), key=lambda each: each.name not in own)
            if each.init
        }
    else:
        defaults = {
            each.name: MISSING if each.default is each.empty else each.default
            for each in inspect.signature(owner).parameters.values()
        }
    if gone := {*part.without, *part.changed} - defaults.keys():
        raise TypeError(f"{owner.__name__} has no {', '.join(sorted(gone))}")
    for name, default in defaults.items():
        if name not in part.without:
            hint, mark = hints[name]
            yield name, hint, part.changed.get(name, mark), default


def _option_name(field: str, option: Option) -> str:
    """The name under which the value of an option is given."""
    name = option.flag.partition("/")[0].lstrip("-").replace("-", "_") or field
    return f"{name}_" if keyword.iskeyword(name) else name


def _settings(hint: Any, mark: Nested | None) -> Any:
    """The settings that a field holds, or those whose options it shows."""
    return mark.of if mark is not None and mark.of is not None else plain_type(hint)


def plain_type(hint: Any) -> Any:
    """A type without `None`."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [each for each in get_args(hint) if each is not NoneType]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
