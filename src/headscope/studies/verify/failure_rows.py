"""The rows that failures are looked for in: of a file of outputs, or of a removal run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope import options
from headscope.data.align.outputs import REFERENCE
from headscope.data.compared import Compared, read_compared
from headscope.data.languages import Direction, parse_direction, settled_direction
from headscope.data.links import Links
from headscope.errors import InputError, naming
from headscope.results.failures import Subject
from headscope.results.removal import Label
from headscope.runs import decode, file_digest
from headscope.runs.reading import naming as told
from headscope.settings import Option, Settings
from headscope.verify.failures.classify import Row
from headscope.verify.removal.measures import read_outputs


@dataclass(frozen=True)
class Choice(Settings):
    """Which outputs of a removal run are judged; None: the largest k, its first gate and its
    first kind of ablation.

    The first gate is 0, removal, where the run has it. `draw` is that of random heads.
    """

    condition: Annotated[
        Literal["top", "random", "random-layer-matched"],
        Option("Which heads of RUN were removed."),
    ] = "top"
    k: Annotated[int | None, Option("How many; without it the most.", min=1)] = None
    gate: Annotated[float | None, Option("The gate put on them; without it 0, else the first.")] = (
        None
    )
    draw: Annotated[int, Option("Which draw of random heads.", min=0)] = 0
    ablate: Annotated[
        options.AblateName | None,
        Option("What removed heads gave; without it what RUN names first."),
    ] = None


@dataclass(frozen=True)
class Rows:
    """Rows to judge and where they are from.

    `label` is the condition of a run, None for a file. `inputs` are digests of what was read.
    `subject` is the run's model with the condition's heads, `ranked` what these are ranked by.
    """

    rows: tuple[Row, ...]
    path: Path
    label: Label | None
    inputs: Mapping[str, str]
    subject: Subject | None = None
    ranked: Mapping[str, Any] = field(default_factory=dict)


def rows_of_file(
    path: Path,
    pair: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Rows:
    """The rows of a JSON Lines file; languages apply to all rows that name no direction.

    Without any the language identified in an output says nothing about the kind.
    """
    given = settled_direction(pair, source_language, target_language)
    read = read_compared(path)
    known: dict[str | None, Direction | None] = {None: given}
    for one in read.rows:
        if one.direction not in known and one.direction is not None:
            with naming(path):
                known[one.direction] = parse_direction(one.direction)
    rows = tuple(_row(one, known[one.direction]) for one in read.rows)
    return Rows(rows, path, None, {"outputs": read.digest})


def rows_of_run(path: Path, choice: Choice = Choice()) -> Rows:
    """The rows of a finished run that removed heads: its baseline is what was before.

    Where the run linked outputs by the data's own links, those of the references are used. Raises
    `InputError` if the run is unfinished or damaged, or has no such condition.
    """
    result = _object(path / "result.json", path)
    if not (path / "DONE.json").is_file():
        raise InputError(f"{path}: is not finished; run the verification again, it goes on")
    shown = result.get("removal") if "outputs" not in result and "removal" in result else result
    try:
        shown = dict(shown or {})
        languages = {
            name: (one["source_language"], one["target_language"])
            for name, one in shown["directions"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path / 'result.json'}: is not the result of a run that removes heads; name the "
            "folder of a 'verify removal' run"
        ) from error
    ablate = str(shown.get("ablate", "zero"))
    labels, made = read_outputs(path / "outputs.jsonl", languages, ablate)
    label = _chosen(path, labels, choice)
    before = next((at for at, one in enumerate(labels) if one.kind == "baseline"), None)
    if before is None:
        raise InputError(f"{path / 'outputs.jsonl'}: holds no outputs of the model as it is")
    inputs = {"outputs": file_digest(path / "outputs.jsonl")}
    links: Mapping[tuple[str, str], Links] = {}
    if _method(shown) == REFERENCE and (path / "links.jsonl").is_file():
        links = _reference_links(path / "links.jsonl")
        inputs["links"] = file_digest(path / "links.jsonl")
    rows = tuple(
        Row(
            identifier,
            one.sources[at],
            one.references[at],
            one.texts[before][at],
            one.texts[labels.index(label)][at],
            name,
            one.source_language,
            one.target_language,
            links.get((name, identifier)),
        )
        for name, one in made.items()
        for at, identifier in enumerate(one.ids)
    )
    with told(path / "result.json", "a removal"):
        about = {"model": result.get("model"), "heads": _heads(shown, label)}
        subject = decode(Subject, about)
    ranked: dict[str, Any] = {"rank": None}  # random heads are the top of nothing
    if label.kind == "top":
        ranked = {name: result[name] for name in ("rank", "rank_note") if name in result}
    return Rows(rows, path, label, inputs, subject, ranked)


def _heads(shown: Mapping[str, Any], label: Label) -> Any:
    """The heads of a condition; an atlas tells its removal apart, and has no list of conditions."""
    like = {"kind": label.kind, "k": label.k, "gate": label.gate, "draw": label.draw}
    rows = [
        one
        for one in shown.get("conditions") or ()
        if all(one.get(name) == value for name, value in like.items())
    ]
    if rows:
        return rows[0].get("heads")
    return (shown.get("heads") or [])[: label.k] if label.kind == "top" else None


def _row(one: Compared, languages: Direction | None) -> Row:
    return Row(
        one.id,
        one.source,
        one.reference,
        one.before,
        one.after,
        one.direction or (None if languages is None else str(languages)),
        None if languages is None else languages.source,
        None if languages is None else languages.target,
        one.links,
    )


def _chosen(path: Path, labels: Sequence[Label], choice: Choice) -> Label:
    """The condition asked for; InputError naming those that the run has."""
    kinds = [one for one in labels if one.kind == choice.condition]
    if not kinds:
        known = dict.fromkeys(one.kind for one in labels if one.kind != "baseline")
        raise InputError(
            f"{path}: has no condition {choice.condition!r}; it has {', '.join(known) or 'none'}"
        )
    k = choice.k if choice.k is not None else max(one.k for one in kinds)
    sized = [one for one in kinds if one.k == k]
    if not sized:
        known_k = ", ".join(str(k) for k in sorted({one.k for one in kinds}))
        raise InputError(
            f"{path}: has no {choice.condition} condition with k {k}; it has {known_k}"
        )
    gates = list(dict.fromkeys(one.gate for one in sized))
    gate = choice.gate if choice.gate is not None else 0.0 if 0.0 in gates else gates[0]
    gated = [one for one in sized if one.gate == gate]
    if not gated:
        known_gates = ", ".join(f"{gate:g}" for gate in gates)
        raise InputError(f"{path}: has no condition with the gate {gate:g}; it has {known_gates}")
    ablate = choice.ablate or gated[0].ablate
    gated = [one for one in gated if one.ablate == ablate]
    if not gated:
        raise InputError(f"{path}: has no condition by {ablate} ablation; leave --ablate out")
    found = next((one for one in gated if one.draw in (None, choice.draw)), None)
    if found is None:
        raise InputError(
            f"{path}: has no draw {choice.draw}; it has 0 to {max(one.draw or 0 for one in gated)}"
        )
    return found


def _method(result: Mapping[str, Any]) -> str | None:
    links = result.get("links")
    method = links.get("method") if isinstance(links, Mapping) else None
    return method if isinstance(method, str) else None


def _reference_links(path: Path) -> dict[tuple[str, str], Links]:
    """Links of sources and references, by direction and id."""
    found: dict[tuple[str, str], Links] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if row["condition"] == "reference":
                pairs = ((int(i), int(j)) for i, j in row["links"])
                found[str(row["direction"]), str(row["id"])] = frozenset(pairs)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: is damaged; run the verification again"
            ) from error
    return found


def _object(file: Path, folder: Path) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(f"{folder}: is not the folder of a finished run; name one")
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: is damaged; run the verification again") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: is damaged; run the verification again")
    return value
