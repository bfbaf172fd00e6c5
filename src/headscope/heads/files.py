"""The files in which people and other tools keep heads, recognised by what they hold.

Reading needs no geometry: an entry is what a line says. `published` makes scores or a set of them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, isfinite
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from headscope.errors import InputError, check_unicode, naming, refuse_pipes
from headscope.heads.geometry import LAYER, LIST, Geometry, Head, heads_in
from headscope.heads.hub import exists
from headscope.heads.store import parsed

#: The lists of scores in the files of dual-route induction; the first is read unless one is named.
NEXT_TOKEN = "next_tok_attn"
#: The files of AlignAtt4LLM: where they have the scores of all heads, where those written here have
#: chance, their heads, best first, and what a configuration of translation scores says.
ALIGNATT, MATRIX, CHANCE = "alignatt", "ts_matrix", "chance_matrix"
#: Under what an object lists heads without its scores counting: their order does.
_LISTS = ("scores", "heads")
ALIGNMENT, RANKED = "token_alignment_heads", "all_heads_ranked"
ABOUT = {"pair": "direction", "examples": "used_pairs", "tokens": "used_target_tokens"}
#: What their scores are called in them, and in a configuration of ours; and the longest such name.
SCORE_NAME, _LONGEST_NAME = "score_name", 200
#: Where they say how many layers and heads there are, which is no model's above the largest.
_SIZES, _LARGEST = ("num_layers", "num_heads"), 9999
#: What lists of heads call a score.
_SCORES = ("score", "ts")
#: What a file may hold, for whoever named another.
FORMATS = (
    "heads such as L5.H3, a table with the columns layer and head, a JSON list of heads, "
    '{"L5": [3]}, {"LAYER-HEAD": [scores]}, '
    f"an object with {NEXT_TOKEN}, {MATRIX}, {ALIGNMENT} or important_heads, "
    "numbers separated by tabs (layers by key-value heads), a line attn_head_set: in "
    "YAML, or tuples (layer, head, score)"
)
_WRITE = 'write a list such as [{"layer": 5, "head": 3}]'
#: What names the model of the heads, in YAML, and in JSON alone or as `name` of an object.
_MODEL = re.compile(r"\s*model_name_or_path\s*:(?P<value>.*)")
_YAML = re.compile(r"\s*(['\"]?)attn_head_set\1\s*:(?P<value>.*)")
_QUOTED = re.compile(r"\s*(?:\"([^\"]*)\"|'([^']*)'|([^#\"']*?))\s*(?:\s#.*)?")
_DASHED = re.compile(r"\s*([0-9]{1,9})-([0-9]{1,9})\s*")
_IMPORTANT = re.compile(r'"important_heads"\s*:\s*(?=\[)')
_SPACE = re.compile(r"[ \t\n\r]*")


class Entry(NamedTuple):
    """What a file says of one head, and on which line.

    `score` is None where the file gives none, and the mean where it gives several, `measured` of
    them. `layer` and `head` are as they were read, so that they may be no heads at all.
    """

    line: int
    layer: Any
    head: Any
    score: float | None = None
    measured: int = 1


@dataclass(frozen=True)
class HeadsFile:
    """A file of heads, in the order of its lines.

    Attributes:
        place: the file as it was named, with `#PART` where one was.
        format: `csv`, `json`, `tuples`, `retrieval`, `duo-attention`, `yaml`, `important_heads`,
            `alignatt` or the name of a list of scores such as `next_tok_attn`.
        entries: the heads; of `duo-attention` key-value heads.
        model: the model that the file names; None where it names none.
        config: what `alignatt` says of the scores, as the configuration of ours would.
        score_name: what `alignatt` calls the scores; None where it does not say.
        matrix: whether the entries are those of a matrix of scores.
        counts: of a file with such a matrix, how many heads each layer has; else empty.
        sizes: how many layers, and heads in each, `alignatt` names; None where it does not.
        chance: of a matrix of scores that has one beside it, what chance gives the same heads.
        lists: all lists of `alignatt`, by name, in their order.
    """

    place: str
    format: str
    entries: tuple[Entry, ...]
    model: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    score_name: str | None = None
    matrix: bool = False
    counts: tuple[int, ...] = ()
    sizes: tuple[int | None, int | None] = (None, None)
    chance: tuple[Entry, ...] = ()
    lists: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)

    def heads(self, geometry: Geometry | None = None) -> tuple[Head, ...]:
        """The heads in the file's order; InputError with the line for what is no head (with
        `geometry`, of such a model), for a head that is listed twice, and for none at all."""
        lines: dict[Head, int] = {}
        for entry in self.entries:
            where = f"{self.place}, line {entry.line}"
            try:
                head = Head(_whole(entry.layer), _whole(entry.head))
                if geometry is not None:
                    geometry.check(head)
            except InputError as error:
                raise InputError(f"{where}: {error}; correct or delete the line") from error
            if head in lines:
                raise InputError(
                    f"{where}: head {head} is already on line {lines[head]}; delete one of the two"
                )
            lines[head] = entry.line
        if not lines:
            raise InputError(f"{self.place}: lists no heads; add at least one")
        return tuple(lines)

    @property
    def scored(self) -> bool:
        """Whether every head has a score."""
        return all(entry.score is not None for entry in self.entries)


def split_part(spec: str | PathLike[str]) -> tuple[Path, str]:
    """The file that `FILE` or `FILE#PART` names, and the part; empty where none is named."""
    path, part = Path(spec), ""
    if "#" in str(spec) and not exists(path):
        place, _, part = str(spec).rpartition("#")
        path = Path(place)
    return path, part


def read_heads_file(spec: str | PathLike[str]) -> HeadsFile:
    """The heads in a file, of whatever format (see `FORMATS`).

    `FILE#PART` names one of several lists of scores in it, such as `end_tok_attn`. Raises
    `InputError` with the line for a file that cannot be read or has none of the formats.
    """
    path, part = split_part(spec)
    text = _read_text(path)
    start = text.lstrip()[:1]
    if part and start != "{":
        raise InputError(f"{path}: holds a single list, so there is no {part!r}; leave #{part} out")
    if start in ("{", "["):
        kind, entries = _of_json(path, text, part)
    elif start == "(":
        kind, entries = _of_json(path, f"[{text}]", "")
    elif any(map(_YAML.fullmatch, text.split("\n"))):
        kind, entries = "yaml", _yaml_entries(path, text)
    elif _is_numbers(text):
        kind, entries = "duo-attention", _number_entries(path, text)
    elif re.search("[,Ll]", text) and LIST.fullmatch(",".join(text.replace(",", " ").split())):
        kind, entries = "csv", _named_entries(text)
    elif path.suffix == ".json":
        kind, entries = _of_json(path, text, part)
    else:
        kind, entries = "csv", _csv_entries(path, text)
    if kind == ALIGNATT:
        return _alignatt(HeadsFile(str(spec), kind, tuple(entries)), path, text, part)
    return HeadsFile(str(spec), kind, tuple(entries), model=_model(kind, text))


def _model(kind: str, text: str) -> str | None:
    """The model that a file of heads names, in JSON as commands print it."""
    if kind == "yaml":
        named = (match for line in text.split("\n") if (match := _MODEL.fullmatch(line)))
        match = next((_QUOTED.fullmatch(match["value"]) for match in named), None)
        return match and next((part for part in match.groups() if part), None)
    said = json.loads(text) if text.lstrip()[:1] == "{" else {}
    model = said.get("model")
    name = model.get("name") if isinstance(model, dict) else model
    return name if isinstance(name, str) else None


def _named_entries(text: str) -> Iterator[Entry]:
    """Heads by name, in lines or separated by commas."""
    for line, row in enumerate(text.split("\n"), 1):
        for name in row.replace(",", " ").split():
            head = Head.parse(name)
            yield Entry(line, head.layer, head.head)


def _alignatt(file: HeadsFile, path: Path, text: str, part: str) -> HeadsFile:
    """A file of AlignAtt4LLM with what it says of its scores beside them."""
    about = json.loads(text)
    theirs = {"model": "model", SCORE_NAME: SCORE_NAME, **ABOUT}
    said = {name: about.get(their) for name, their in theirs.items()}
    for name, value in said.items():
        text_wanted = name in ("model", "pair", SCORE_NAME)
        check_unicode(str(value), f"{path}: {theirs[name]!r}")
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if value is not None and not (isinstance(value, str) if text_wanted else is_count):
            wanted = "a text" if text_wanted else "a count"
            raise InputError(f"{path}: {theirs[name]!r} is {_shown(value)}; give {wanted}")
    model, score_name = said.pop("model"), said.pop(SCORE_NAME)
    if score_name is not None:
        short = 0 < len(score_name) <= _LONGEST_NAME
        if not (short and score_name.isprintable() and score_name.strip() == score_name):
            raise InputError(
                f"{path}: {SCORE_NAME!r} is {_shown(score_name)}; give a name in one line of at "
                f"most {_LONGEST_NAME} characters"
            )
    config = {name: value for name, value in said.items() if value is not None}
    at = {key: position for _, key, position in _members(text, _skip(text, 0))}
    rows = Counter(e.layer for e in _matrix_entries(path, text, at, MATRIX)) if MATRIX in at else {}
    matrix = bool(rows) and not part
    return replace(
        file,
        model=model,
        config=config,
        score_name=score_name,
        matrix=matrix,
        counts=tuple(rows[layer] for layer in range(len(about[MATRIX]))) if rows else (),
        sizes=_sizes(path, text, at),
        chance=tuple(_chance_entries(path, text)) if matrix and CHANCE in at else (),
        lists={
            name: tuple(_named_list(path, text, at, name)[1])
            for name in (ALIGNMENT, RANKED)
            if name in at
        },
    )


def _csv_entries(file: Path, text: str) -> Iterator[Entry]:
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = [name.strip() for name in next(reader, [])]
        for name in ("layer", "head"):
            if name not in header:
                raise InputError(
                    f"{file}, line 1: there is no column '{name}'; let the first line name the "
                    f"columns layer and head, or write one of the other formats: {FORMATS}"
                )
        layer, head = header.index("layer"), header.index("head")
        score = header.index("score") if "score" in header else None
        for row in reader:
            chosen = dict(zip(header, row, strict=False)).get("selected", "")
            if not row or chosen.strip().casefold() == "false":
                continue
            if len(row) <= max(layer, head):
                raise InputError(
                    f"{file}, line {reader.line_num}: has {len(row)} cells, but the header "
                    f"names {len(header)}; give every line a layer and a head"
                )
            value = row[score].strip() if score is not None and score < len(row) else ""
            yield _entry(file, reader.line_num, row[layer], row[head], value or None)
    except csv.Error as error:
        raise InputError(
            f"{file}, line {reader.line_num}: is no line of a table ({error}); correct it"
        ) from error


def _is_numbers(text: str) -> bool:
    """Whether the first line that is not empty holds numbers separated by tabs, or one of many."""
    first, *more = [line for line in text.split("\n") if line.strip()] or [""]
    cells = first.split("\t")
    return len(cells) + len(more) > 1 and any(_number(cell) is not None for cell in cells)


def _number_entries(file: Path, text: str) -> Iterator[Entry]:
    width = layer = 0
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        cells = row.rstrip("\r").split("\t")
        width = width or len(cells)
        if len(cells) != width:
            raise InputError(
                f"{file}, line {line}: has {len(cells)} numbers and the first line {width}; give "
                "every layer one number a key-value head"
            )
        for head, cell in enumerate(cells):
            yield _entry(file, line, layer, head, cell)
        layer += 1


def _yaml_entries(file: Path, text: str) -> Iterator[Entry]:
    """The heads on the one line that counts: no YAML beyond it is read, so none is carried out."""
    named = [
        (line, match["value"])
        for line, row in enumerate(text.split("\n"), 1)
        if (match := _YAML.fullmatch(row))
    ]
    (line, written), *others = named
    where, fix = f"{file}, line {line}", 'write attn_head_set: "14-22,13-16"'
    if others:
        raise InputError(f"{where}: attn_head_set stands on line {others[0][0]} too; delete one")
    if (value := _QUOTED.fullmatch(written)) is None:
        raise InputError(f"{where}: {written.strip()!r} is no text on this line; {fix}")
    listed = next(part for part in value.groups() if part is not None)
    for part in listed.split(",") if listed.strip() else ():
        if (head := _DASHED.fullmatch(part)) is None:
            raise InputError(f"{where}: {part!r} is not a head LAYER-HEAD; {fix}")
        yield _entry(file, line, int(head[1]), int(head[2]), None)


def _of_json(file: Path, text: str, part: str) -> tuple[str, Iterable[Entry]]:
    """The format of a JSON text, or of Python's lists of tuples, and its entries."""
    tuples = re.match(r"[\s\[]*\(", text) is not None
    if tuples:  # the same but for parentheses and a comma at the end
        text = re.sub(r"\)(\s*)\(", r"),\1(", text).translate({ord("("): "[", ord(")"): "]"})
        text = re.sub(r",(\s*\])", r"\1", text)
    fix = "write tuples such as [(5, 3, 0.7), (7, 11, 0.6)]" if tuples else _WRITE
    try:
        parsed(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{file}, line {error.lineno}: is not valid JSON ({error.msg}); {fix}"
        ) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(f"{file}: is not valid JSON ({error}); {fix}") from error
    except RecursionError as error:
        raise InputError(f"{file}: is nested too deeply to be a list of heads") from error
    if text[_skip(text, 0)] == "[":
        items = list(_items(text, _skip(text, 0)))
        triples = bool(items) and all(isinstance(i, list) and len(i) == 3 for _, i in items)
        return "tuples" if tuples or triples else "json", _list_entries(file, items)
    members = list(_members(text, _skip(text, 0))) if text[_skip(text, 0)] == "{" else []
    at = {key: position for _, key, position in members}
    if MATRIX in at and not part:
        return ALIGNATT, _matrix_entries(file, text, at, MATRIX)
    by_name = part or next((name for name in (ALIGNMENT, RANKED) if name in at), None)
    if by_name in (ALIGNMENT, RANKED):
        return ALIGNATT, _named_list(file, text, at, by_name)[1]
    listed = next((name for name in _LISTS if name in at and text[at[name]] == "["), None)
    if part or (NEXT_TOKEN in at and listed is None):
        return _named_list(file, text, at, part or NEXT_TOKEN)
    if listed:
        # As commands print them, all heads in the order of their ranking; or those selected.
        entries = _list_entries(file, _items(text, at[listed]))
        return "json", (entry._replace(score=None) for entry in entries)
    if important := _IMPORTANT.search(text):  # at any depth; no text of JSON looks like it
        return "important_heads", _list_entries(file, _items(text, important.end()))
    if at and all(map(_DASHED.fullmatch, at)):
        return "retrieval", _retrieval_entries(file, text, members)
    layers = [member for member in members if member[1] != "model"]
    if layers and all(LAYER.fullmatch(key) for _, key, _ in layers):
        return "json", _layer_entries(file, text, layers)
    raise InputError(
        f"{file}, line 1: holds neither a list of heads nor an object with the list 'heads', nor "
        f"one of the other formats: {FORMATS}"
    )


def _named_list(
    file: Path, text: str, at: dict[str, int], name: str
) -> tuple[str, Iterable[Entry]]:
    lists = [key for key, position in at.items() if text[position] == "["]
    if name not in lists:
        known = " or ".join(f"#{key}" for key in lists)
        raise InputError(
            f"{file}: holds no list {name!r}; "
            + (f"name {known}" if known else f"leave #{name} out")
        )
    items = list(_items(text, at[name]))
    for line, item in items:
        if not isinstance(item, dict) or _numeric(_one_of(file, line, item, *_SCORES)) is None:
            raise InputError(
                f"{file}, line {line}: {_shown(item)} is not a head with a score; write "
                '{"layer": 5, "head_idx": 3, "score": 0.7}'
            )
    return name, _list_entries(file, items)


def _chance_entries(file: Path, text: str) -> Iterator[Entry]:
    """What chance gives the heads of the matrix of scores, all of them."""
    at = {key: position for _, key, position in _members(text, _skip(text, 0))}
    scores, chance = (list(_matrix_entries(file, text, at, name)) for name in (MATRIX, CHANCE))
    if [entry[1:3] for entry in scores] != [entry[1:3] for entry in chance]:
        raise InputError(f"{file}: {CHANCE} and {MATRIX} have other heads; give both the same")
    yield from chance


def _matrix_entries(file: Path, text: str, at: dict[str, int], name: str) -> Iterator[Entry]:
    """The shares of layers × heads, as many as the file says that there are."""
    said = _sizes(file, text, at)
    rows = list(_items(text, at[name])) if text[at[name]] == "[" else []
    first = rows[0][1] if rows else None
    width = said[1] if said[1] is not None else len(first) if isinstance(first, list) else 0
    if width < 1 or said[0] not in (None, len(rows)) or not rows:
        raise InputError(
            f"{file}: {name} has {len(rows)} layers, but num_layers and num_heads say "
            f"{said[0]} and {said[1]}; correct the one that is wrong"
        )
    for layer, (line, row) in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            raise InputError(
                f"{file}, line {line}: layer {layer} of {name} has no list of {width} numbers, as "
                f"{'the first layer has' if said[1] is None else 'num_heads says'}; correct it"
            )
        for head, score in enumerate(row):
            if score is None and any(cell is not None for cell in row[head:]):
                raise InputError(
                    f"{file}, line {line}: head L{layer}.H{head} of {name} is null, but the layer "
                    "has heads behind it; give its score"
                )
            if score is not None:  # the model has no such head
                yield _entry(file, line, layer, head, score)


def _sizes(file: Path, text: str, at: dict[str, int]) -> tuple[int | None, int | None]:
    """How many layers, and heads in each, a file says that its model has; None where it does not.

    InputError for what is no such number.
    """
    said = [_DECODE(text, at[key])[0] if key in at else None for key in _SIZES]
    for key, value in zip(_SIZES, said, strict=True):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (whole and 0 < value <= _LARGEST):
            raise InputError(
                f"{file}: {key!r} is {_shown(value)}; give a whole number from 1 to {_LARGEST}"
            )
    layers, width = said
    return layers, width


def _retrieval_entries(
    file: Path, text: str, members: Iterable[tuple[int, str, int]]
) -> Iterator[Entry]:
    for line, key, position in members:
        value, _ = _DECODE(text, position)
        scores = value if isinstance(value, list) else [value]
        if not scores or any(_numeric(score) is None for score in scores):
            raise InputError(
                f"{file}, line {line}: head {key} has {_shown(value)}, which is no list of finite "
                f'numbers; write "{key}": [0.5, 0.25]'
            )
        layer, _, head = key.partition("-")
        mean = fsum(score / len(scores) for score in scores)
        yield Entry(line, int(layer), int(head), mean, len(scores))


def _layer_entries(
    file: Path, text: str, members: Iterable[tuple[int, str, int]]
) -> Iterator[Entry]:
    """Heads by layer, `{"L11": [2]}`."""
    for line, key, position in members:
        listed, _ = _DECODE(text, position)
        with naming(f"{file}, line {line}"):
            heads = heads_in({key: listed})
        yield from (Entry(line, head.layer, head.head) for head in heads or ())


def _list_entries(file: Path, items: Iterable[tuple[int, Any]]) -> Iterator[Entry]:
    for line, item in items:
        match item:
            case {"selected": False}:
                continue
            case {"layer": layer, "head": _} | {"layer": layer, "head_idx": _}:
                head = _one_of(file, line, item, "head", "head_idx")
                yield _entry(file, line, layer, head, _one_of(file, line, item, *_SCORES))
            case [layer, head]:
                yield _entry(file, line, layer, head, None)
            case [layer, head, score]:
                yield _entry(file, line, layer, head, score)
            case str():
                with naming(f"{file}, line {line}"):
                    named = Head.parse(item)
                yield Entry(line, named.layer, named.head)
            case _:
                raise InputError(
                    f'{file}, line {line}: {_shown(item)} is not a head; write {{"layer": 5, '
                    '"head": 3}'
                )


def _one_of(file: Path, line: int, item: Mapping[str, Any], *names: str) -> Any:
    """What an item has under one of several names; InputError where two of them differ."""
    given = [(name, item[name]) for name in names if item.get(name) is not None]
    for name, value in given[1:]:
        if value != given[0][1]:
            raise InputError(
                f"{file}, line {line}: {given[0][0]!r} is {_shown(given[0][1])}, but {name!r} "
                f"{_shown(value)}; delete one of the two"
            )
    return given[0][1] if given else None


def _entry(file: Path, line: int, layer: Any, head: Any, score: Any) -> Entry:
    value = _number(score) if isinstance(score, str) else _numeric(score)
    if score is not None and value is None:
        raise InputError(
            f"{file}, line {line}: the score of head L{layer}.H{head} is {_shown(score)}, which is "
            "no finite number; correct it"
        )
    return Entry(line, layer, head, value)


def _numeric(value: Any) -> float | None:
    """A JSON number as a float; None for anything else, and for what is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if isfinite(number) else None


def _number(text: str) -> float | None:
    """A number that is written; None for anything else, and for what is not finite."""
    if "_" in text or not text.isascii():  # which Python alone reads, as 1_0 for 10
        return None
    try:
        return _numeric(float(text))
    except ValueError:
        return None


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _whole(cell: Any) -> Any:
    if isinstance(cell, str):
        digits = cell.strip()
        short = digits.isascii() and digits.isdigit() and len(digits) < 10
        return int(digits) if short else cell
    return cell


def _read_text(file: Path) -> str:
    refuse_pipes(file)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {line}: is not valid UTF-8; save the file in UTF-8"
        ) from error


_DECODE = json.JSONDecoder().raw_decode


def _items(text: str, start: int) -> Iterator[tuple[int, Any]]:
    """The items of the list that begins at `start` of a valid JSON text, each with its line."""
    line, last = 1, 0
    position = _skip(text, start + 1)
    while text[position] != "]":
        line, last = line + text.count("\n", last, position), position
        item, position = _DECODE(text, position)
        yield line, item
        position = _next(text, position)


def _members(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """The members of the object that begins at `start`: line, key, and where the value begins."""
    line, last = 1, 0
    position = _skip(text, start + 1)
    while text[position] != "}":
        line, last = line + text.count("\n", last, position), position
        key, position = _DECODE(text, position)
        position = _skip(text, _skip(text, position) + 1)  # over the colon
        yield line, key, position
        _, position = _DECODE(text, position)
        position = _next(text, position)


def _next(text: str, position: int) -> int:
    """Where the next item begins, or its list or object ends, after a value."""
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position] == "," else position


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
