"""Every study as a Python function: `headscope.verify.removal(lm, pairs, heads, draws=20)`.

Its options are keyword arguments, its subject, data and heads may also be named by their place,
and may be held in memory: what is given so is written below `runs/inputs`, so that a run
can be made again from its folder.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, is_dataclass, replace
from dataclasses import fields as fields_of
from decimal import Decimal
from functools import partial
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from headscope.data.tables import arrow_rows
from headscope.errors import InputError, naming, nearest
from headscope.heads import Geometry, Head, HeadScores, HeadSet
from headscope.heads.geometry import LIST, head_rows, heads_in, is_mask, is_pair, keys_of
from headscope.heads.hub import Artifact
from headscope.heads.published import json_text
from headscope.heads.resolve import save_scores
from headscope.heads.store import write_bytes
from headscope.own import OwnMeasure
from headscope.progress import Progress
from headscope.runs import Result, begins, file_digest
from headscope.scratch import scratch
from headscope.settings import Final, GivenOption, Held, build, options_in, plain_type
from headscope.studies.bars import chosen
from headscope.studies.models import given_geometry, given_model
from headscope.studies.named_data import check_parts_of
from headscope.studies.registry import study_of

_SIDES = ("source_language", "target_language")
#: Where data and heads in memory are written.
INPUTS = Path("runs", "inputs")
_OF_INPUTS = re.compile(rf"{re.escape(str(INPUTS))}[/\\\\][0-9a-f]{{16}}(?:\.jsonl?)?")
_KINDS = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
}


def function_of(command: str) -> Callable[..., Any]:
    """The study of a command such as `verify removal` as a function that returns its result.

    Besides the command's options the function takes `out`, the run folder, and `progress`: True for
    a bar on stderr, False for silence, or what is called with a title, how much is done, and of how
    much. Model, arguments, data and heads, those that the
    command has, may be given by place in this order; comparisons of runs begin with the runs.

    A model is a loaded one, or what `--model` takes. Data are what `--data` takes, or in memory a
    `PairFile`, a data frame, an Arrow table, a `Dataset`, a mapping of columns, or rows (mappings,
    tuples of source and target, sentence pairs or documents); of several languages or directions a
    mapping of names to any of these, or to texts. A cell without a value (None, NaN, NA, NaT) is
    what null is in a file. Heads are what `--heads` takes, or `HeadScores`, a `HeadSet`, a `Gate`,
    or the result that found them.
    """
    study = study_of(command)
    options: dict[str, GivenOption] = {}
    for option in options_in(study.settings):
        options.setdefault(option.name, option)
    names = _places(command, options)
    takes = inspect.signature(study.run).parameters

    def call(*values: Any, **given: Any) -> Any:
        if len(values) > len(names):
            raise InputError(f"by place come {', '.join(names)}; name the rest, as in draws=20")
        if doubled := [name for name in names[: len(values)] if name in given]:
            raise InputError(f"{doubled[0]} is given twice, by place and by name")
        given = {**dict(zip(names, values, strict=False)), **given}
        out, wanted = given.pop("out", None), given.pop("progress", True)
        known = sorted([*options, *({"out", "progress"} & takes.keys())])
        for name in given:
            if name not in known:
                raise InputError(
                    f"there is no {name}; {nearest(name, known)}known: {', '.join(known)}"
                )
        loads = bool(study.loads) and "progress" in takes
        typed = dict[str, Any]()
        with (
            _in_python(options, typed),
            _with_gradients(),
            chosen(wanted, loads) as progress,
            given_model(_held(options, given, "model")) as model,
        ):
            typed.update(_typed(options, {**given, **model}))
            settings = build(study.settings, typed)
            check_parts_of(settings)
            functions = [
                name
                for name, value in given.items()
                if name in options
                and options[name].option.held in ("template", "measure")
                and _has_functions(value)
            ]
            if functions and getattr(getattr(settings, "execution", None), "elsewhere", False):
                raise InputError(
                    f"{functions[0]} is a function, which other processes do not have; take one "
                    "worker"
                )
            helpers = {
                "out": out and Path(out),
                "progress": progress,
                "tell": _tell_beside(progress),
            }
            return study.run(settings, **{name: helpers[name] for name in helpers if name in takes})

    described: Any = call
    described.__name__ = described.__qualname__ = command.rpartition(" ")[2].replace("-", "_")
    about = {name: _said(option).about or option.option.help for name, option in options.items()}
    about |= {name: said.about for name, said in _OF_RUN.items() if name in takes}
    described.__doc__ = _as_python(
        f"{inspect.cleandoc(study.settings.__doc__ or '')}\n\nArgs:\n"
        + "\n".join(f"    {name}: {words}" for name, words in about.items())
    )
    described.__signature__ = _signature(options, names, takes)
    return call


@contextmanager
def _in_python(options: Mapping[str, GivenOption], typed: Mapping[str, Any]) -> Iterator[None]:
    """Errors inside speak of arguments: not of flags, nor of files that hold what is in memory."""
    try:
        yield
    except InputError as error:
        message = str(error)
        for name, value in typed.items():
            for file in _OF_INPUTS.findall(str(value)):
                message = re.sub(rf"{re.escape(file)}, line (?=\d)", f"{name}, row ", message)
                message = message.replace(file, name)
        # Between backticks stand commands.
        parts = message.split("`")
        known = "|".join(sorted(map(_flag, options), key=len, reverse=True))
        flags = re.compile(rf"--(no-)?({known})(?![a-z-])( (?=\d))?")
        parts[::2] = [flags.sub(_argument, part) for part in parts[::2]]
        error.args = ("`".join(parts),)
        raise


def _argument(flag: re.Match[str]) -> str:
    """A flag as the argument that it stands for, before a number with its sign."""
    return _keyword(flag[2]) + ("=False" if flag[1] else "=" if flag[3] else "")


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _tell_beside(progress: Progress | None) -> Callable[[str], object]:
    """What sentences about the work go to: where its progress is shown, or nowhere."""
    return (lambda words: None) if progress is None else partial(print, file=sys.stderr)


@contextmanager
def _with_gradients() -> Iterator[None]:
    """Gradients can be taken inside, whatever the caller has switched off, as in a command."""
    torch = sys.modules.get("torch")
    if torch is None:  # then nothing of it is switched off
        yield
        return
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _as_python(text: str) -> str:
    """Help with the names of keywords instead of flags."""
    text = re.sub(r"--no-([a-z][a-z-]*)", lambda flag: f"{_keyword(flag[1])}=False", text)
    text = re.sub(r"--([a-z][a-z-]*)", lambda flag: _keyword(flag[1]), text)
    return text.replace("repeatable", "or a list")


def _keyword(flag: str) -> str:
    return flag.replace("-", "_")


def _places(command: str, options: Mapping[str, GivenOption]) -> list[str]:
    """The names that may be given by place."""

    def holding(*kinds: Held) -> list[str]:
        return [name for name, option in options.items() if option.option.held in kinds]

    arguments = [name for name, each in options.items() if each.option.argument]
    runs_first = command.startswith("compare ") and arguments
    model = holding("model")
    order = [*arguments, *model] if runs_first else [*model, *arguments]
    return list(dict.fromkeys((*order, *holding("pairs", "documents"), *holding("heads"))))


def _held(options: Mapping[str, GivenOption], given: Mapping[str, Any], kind: Held) -> Any:
    """The value of the option that may hold this, or None."""
    names = (name for name, option in options.items() if option.option.held == kind)
    return given.get(next(names, ""))


class _Words(str):
    """A type in words, as `help` shows it."""

    def __repr__(self) -> str:
        return str(self)


class _Said(NamedTuple):
    """What `help` says of a value: its type, and what it may be where an option's help does not."""

    type: Any
    about: str = ""


_DATA = _Said(
    _Words("Data"),
    "A path; rows in memory: a data frame, a Dataset, a list of tuples (source, target) or "
    "of mappings, a mapping of columns; a mapping of languages or directions to any of these.",
)
#: Of options that take more than the command line does.
_HELD: dict[Held | None, _Said] = {
    "model": _Said(_Words("str | LanguageModel | PreTrainedModel")),
    "heads": _Said(
        _Words("Heads"),
        "A run or its result, HeadScores, a HeadSet, a Gate, or heads by name: 'L5.H1,L4.H3', "
        "['5.1', (4, 3)], (5, 1), {'L5': [1, 3]}; a frame of layer and head; a mask of bools, "
        "layers by heads.",
    ),
    "pairs": _DATA,
    "documents": _DATA,
    "direction": _Said(_Words("str | tuple[str, str] | Sequence")),
    "template": _Said(_Words("str | Callable[[str], str]")),
    "measure": _Said(_Words("str | Callable | Sequence")),
}
_OF_RUN = {
    "out": _Said(_Words("str | Path | None"), "The run folder; without it runs/COMMAND-HASH."),
    "progress": _Said(
        _Words("bool | Callable"),
        "True: a bar on stderr; False: none; or what is called with a title, how much is done, "
        "and of how much.",
    ),
}


def _said(option: GivenOption) -> _Said:
    return _HELD.get(option.option.held, _Said(option.hint))


def _signature(
    options: Mapping[str, GivenOption], names: Iterable[str], takes: Iterable[str]
) -> inspect.Signature:
    def parameter(name: str, kind: Any) -> inspect.Parameter:
        default, hint = _default(options[name]), _said(options[name]).type
        default = None if default is MISSING else getattr(default, "text", default)
        return inspect.Parameter(name, kind, default=default, annotation=hint)

    only = inspect.Parameter.KEYWORD_ONLY
    placed = [parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    named = [parameter(name, only) for name in options if name not in names]
    own = [
        inspect.Parameter(name, only, default=default, annotation=_OF_RUN[name].type)
        for name, default in (("out", None), ("progress", True))
        if name in takes
    ]
    return inspect.Signature([*placed, *named, *own])


def _default(option: GivenOption) -> Any:
    return option.default if option.option.default is ... else option.option.default


def _typed(options: Mapping[str, GivenOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every option as the command line has it; `InputError` for those that lack."""
    given = _with_direction(options, given)
    if lacking := [
        n for n, each in options.items() if _default(each) is MISSING and n not in given
    ]:
        raise InputError(f"{lacking[0]} is missing: {options[lacking[0]].option.help}")
    left_out = {
        name: None if each.option.default is ... else each.option.default
        for name, each in options.items()
    }
    read = _Reading.of(options, given)
    return left_out | {name: _value(options[name], value, read) for name, value in given.items()}


@dataclass(frozen=True)
class _Reading:
    """What is in memory is read as: names of columns and of the members of tuples, and the shape of
    a mask, where the model is in memory too."""

    columns: frozenset[str] = frozenset({"text", "source", "target"})
    members: tuple[str, ...] = ("source", "target", "links")
    geometry: Geometry | None = None

    @classmethod
    def of(cls, options: Mapping[str, GivenOption], given: Mapping[str, Any]) -> _Reading:
        """As the options of a command say; columns of pairs may be called after their languages."""
        named = {
            str(given.get(name) or _default(option) or "").partition(".")[0]
            for name, option in options.items()
            if name.endswith("_column")
        }
        held = {option.option.held for option in options.values()}
        documents = "documents" in held
        if "pairs" in held:
            direction = _with_directions(_held(options, given, "direction"))
            directions = [direction] if isinstance(direction, str) else direction or ()
            codes = [code for each in directions for code in str(each).split("-")]
            named |= {"translation", *codes}
            named |= {str(given[side]) for side in _SIDES if given.get(side)}
        members = ("text", "language") if documents else cls.members
        return cls(cls.columns | named - {""}, members, given_geometry())


def _value(option: GivenOption, value: Any, read: _Reading) -> Any:
    """A value as the command line has it, or `Final` where it is the field's own."""
    kind = plain_type(option.hint)
    several = get_origin(kind) is tuple and not option.option.single
    held = option.option.held
    data = held in ("pairs", "documents")
    if value is None:
        return None
    if held == "heads":
        value = _heads_in_memory(value, several, read.geometry)
    elif held == "direction":
        value = _with_directions(value)
    elif held == "examples":
        read = replace(read, members=("input", "output"))
    elif data and not several and type(value) is dict:
        value = _columns_as_rows(value)
    value = _named(value, read)
    if several:
        single = isinstance(value, (str, bytes)) or not isinstance(value, Iterable)
        values = [value] if single else list(value)
        if not values and data:  # which is not the same as none given
            raise InputError(f"{option.name} is empty; give at least one row")
        kept = (_named(each) if isinstance(each, Artifact | Result) else each for each in values)
        return [_plain(option, get_args(kind)[0], each) for each in kept]
    return _plain(option, kind, value)


def _heads_in_memory(value: Any, several: bool, geometry: Geometry | None = None) -> Any:
    """Heads by themselves, alone or listed, as the command line has them; all else as it is.

    Rows with scores become a file, since these rank the heads; a mask becomes a set. Where
    `several` sets can be given, a list of anything but heads is such.
    """
    if isinstance(value, str | Artifact | Result | PathLike):
        return value
    if is_mask(value):
        return HeadSet.of(geometry or Geometry.uniform(*value.shape), value)
    listed = _listed(value)
    if several and listed is not None and not all(map(_is_head, listed)):
        return [_heads_in_memory(each, False, geometry) for each in listed]
    value = value if listed is None else listed
    heads = heads_in(value)
    if heads is None:
        if not isinstance(value, Mapping):
            return value
        named = {}
        for name, each in value.items():
            with naming(f"heads of {name!r}"):
                named[name] = _heads_in_memory(each, False, geometry)
        return named
    rows = head_rows(value)
    scores = [_cell(row.get("score")) for row in rows or ()]
    if not rows or None in scores or len({*heads}) < len(heads):
        return ",".join(keys_of(heads))
    return _stored(json_text(zip(heads, scores, strict=True)), ".json")


def _is_head(value: Any) -> bool:
    """Whether a member of a list is a head, or a number, which is refused as one."""
    named = isinstance(value, str) and LIST.fullmatch(value) is not None
    return named or isinstance(value, Head | Real) or is_pair(value)


def _plain(option: GivenOption, kind: Any, value: Any) -> Any:
    """One value as it is typed: `read` is given what the command line would give it."""
    if option.option.held == "measure" and callable(value):
        return OwnMeasure.of(value)
    typed = option.option.typed or kind
    if typed in _KINDS:
        wanted, words = _KINDS[typed]
        if not isinstance(value, wanted) or (typed is not bool and isinstance(value, bool)):
            raise InputError(f"{option.name} is {value!r}; it is {words}")
        return value
    if not isinstance(value, (str, Real)):
        if kind in (str, Path):
            raise InputError(
                f"{option.name} takes nothing of type {type(value).__name__}: {option.option.help}"
            )
        return Final(value)
    if isinstance(value, str) and "\0" in value:  # which no command line can hold
        raise InputError(f"{option.name} is {value[:40]!r}, which holds a NUL character; remove it")
    return Path(str(value)) if typed is Path else str(value) if typed is str else value


def _named(value: Any, read: _Reading = _Reading()) -> Any:
    """Data and heads in memory as the names of files; a mapping as `NAME=VALUE`, several."""
    if isinstance(value, Result):
        if value.run is None:
            raise InputError("this result has no run folder; name a run")
        return value.run
    if isinstance(value, Mapping):
        scores = all(isinstance(each, HeadScores) for each in value.values())
        if scores and value:
            return _stored_heads(partial(save_scores, scores=dict(value)))
        if hasattr(value, "column_names"):  # a `DatasetDict`
            if len(value) > 1:
                raise InputError(f"data has the splits {', '.join(value)}; give one of them")
            return _named(next(iter(value.values())), read)
        if read.columns & value.keys():
            return _stored_rows(_columns_as_rows(value))
        value = {"-".join(n) if isinstance(n, tuple) else n: each for n, each in value.items()}
        named = {name: _named(_texts(name, each), read) for name, each in value.items()}
        for name, each in named.items():
            if not isinstance(each, (str, Real)):
                kind = type(value[name]).__name__
                raise InputError(f"{name!r} is empty, or of type {kind}, which holds no data")
        return [f"{name}={each}" for name, each in named.items()]
    if isinstance(value, Artifact):
        return _stored_heads(value.save_pretrained)
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Iterator):
        value = list(value)
    rows = _rows(value, read.members)
    return value if rows is None else _stored_rows(rows)


def _texts(name: str, value: Any) -> Any:
    """Plain texts of a language as rows."""
    texts = _listed(value)
    if texts and all(_cell(text) is None or isinstance(text, str) for text in texts):
        return [{"text": text, "language": name} for text in texts]
    return texts if isinstance(value, Iterator) else value


def _listed(value: Any) -> list[Any] | None:
    """The members of a list, a series, an array or an iterator; None of anything else."""
    if hasattr(value, "tolist") and getattr(value, "ndim", None) == 1:
        value = value.tolist()
    elif hasattr(value, "to_pylist") and not hasattr(value, "schema"):  # an array of Arrow
        value = arrow_rows(value, "the data")
    listed = isinstance(value, (Sequence, Iterator)) and not isinstance(value, (str, bytes))
    return list(value) if listed else None


def _columns_as_rows(columns: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """The rows of columns by name."""
    listed = {name: _listed(column) for name, column in columns.items()}
    if other := [name for name, column in listed.items() if column is None]:
        kind = type(columns[other[0]]).__name__
        raise InputError(f"the column {other[0]!r} is of type {kind}; give the list of its cells")
    cells = [column for column in listed.values() if column is not None]
    lengths = {name: len(column) for name, column in zip(listed, cells, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise InputError(f"the columns differ in length ({shown}); give every row all its cells")
    return [dict(zip(listed, row, strict=True)) for row in zip(*cells, strict=True)]


def _rows(value: Any, members: Sequence[str]) -> list[dict[str, Any]] | None:
    """The rows of data in memory; None if it is none."""
    arrow = hasattr(value, "to_pylist") and hasattr(value, "schema")
    frame = hasattr(value, "to_dict") and hasattr(value, "columns")
    names = [*value.schema.names] if arrow else [*value.columns] if frame else []
    if doubled := [name for name in names if names.count(name) > 1]:
        raise InputError(f"the table has several columns {doubled[0]!r}; name each column once")
    if arrow:
        value = arrow_rows(value, "the table")
    elif frame:  # of Polars, or of pandas
        value = value.to_dicts() if hasattr(value, "to_dicts") else value.to_dict("records")
    elif hasattr(value, "column_names") and hasattr(value, "features"):  # a Dataset
        rows = list(value)
        # Formatted as frames or tables, its rows are such of one row.
        value = rows if all(isinstance(row, Mapping) for row in rows) else [*value.with_format()]
    if getattr(value, "shots", None):
        raise InputError("shots are not taken from sentence pairs; give shots= and shots_data=")
    for part in ("pairs", "documents"):
        value = getattr(value, part, value)
    if not isinstance(value, (list, tuple)):
        return None
    if all(isinstance(row, tuple) and 2 <= len(row) <= 3 for row in value) and all(
        isinstance(text, str) or _cell(text) is None for row in value for text in row[:2]
    ):
        return [dict(zip(members, row, strict=False)) for row in value]
    if not all(isinstance(row, Mapping) or is_dataclass(row) for row in value):
        return None
    return [dict(row) if isinstance(row, Mapping) else _row(row) for row in value]


def _row(record: Any) -> dict[str, Any]:
    """A sentence pair, a document or the like by the names of its columns."""
    row = {each.name: getattr(record, each.name) for each in fields_of(record)}
    if row.get("links") is not None:
        row["links"] = " ".join(f"{source}-{target}" for source, target in sorted(row["links"]))
    return {name: cell for name, cell in row.items() if cell is not None and name != "line"}


def _cell(value: Any) -> Any:
    """A cell of data in memory as files of JSON Lines hold it: what is missing is null.

    Missing are None, NaN, and the NA and NaT of pandas. What JSON cannot hold becomes an object
    with the name of its type, which is refused as a text and does no harm in other columns.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if hasattr(value, "tolist"):  # of numpy
        return _cell(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _cell(cell) for name, cell in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cell(cell) for cell in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value
    kind = type(value).__name__
    missing = kind in ("NAType", "NaTType") or (isinstance(value, Decimal) and value.is_nan())
    return None if missing else {kind: str(value)}


def _stored_rows(rows: list[dict[str, Any]]) -> str | list[Any]:
    """The file that holds the rows, or for no rows nothing to name."""
    if not rows:
        return []
    try:
        lines = [json.dumps(_cell(row), ensure_ascii=False) for row in rows]
    except RecursionError:
        raise InputError("the data hold lists or objects within each other without end") from None
    return _stored("".join(f"{line}\n" for line in lines), ".jsonl")


def _stored(text: str, suffix: str) -> str:
    """The file that holds a text, named after it."""
    content = text.encode("utf-8", "backslashreplace")
    file = INPUTS / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    INPUTS.mkdir(parents=True, exist_ok=True)
    write_bytes(file, content)
    return str(file)


def _stored_heads(save: Callable[[Path], None]) -> str:
    INPUTS.mkdir(parents=True, exist_ok=True)
    with scratch("heads", INPUTS) as folder:
        place = folder / "heads"
        place.mkdir()
        save(place)
        digests = [file_digest(file) for file in sorted(place.rglob("*")) if file.is_file()]
        target = INPUTS / hashlib.sha256("".join(digests).encode()).hexdigest()[:16]
        if not target.exists():
            begins(target)
            shutil.move(place, target)
    return str(target)


def _has_functions(value: Any) -> bool:
    return callable(value) or (
        isinstance(value, Iterable) and not isinstance(value, str) and any(map(callable, value))
    )


def _with_directions(value: Any) -> Any:
    """Directions as the command line has them: `("en", "de")` is `en-de`, also in a list."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    pairs = list(value)
    if len(pairs) == 2 and all(isinstance(each, str) for each in pairs):
        return pairs if all("-" in each for each in pairs) else "-".join(pairs)
    return [each if isinstance(each, str) else "-".join(map(str, each)) for each in pairs]


def _with_direction(options: Mapping[str, GivenOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of sentence pairs in memory the direction, where none is named."""
    data = _held(options, given, "pairs")
    names = [name for name, option in options.items() if option.option.held == "direction"]
    direction = {name: str(data.direction) for name in names if hasattr(data, "direction")}
    return {**direction, **given}
