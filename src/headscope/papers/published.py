"""Numbers that three papers published, with their places, for comparison with our own.

The numbers lie in `data/<paper>.tsv`, one a line, as they are printed; the models that a paper
names in `data/models.tsv`, by their owners' ids on the Hub. What was left out because
the printed text contradicts itself, and what was kept although it looks odd, lies in
`data/notes.tsv` with the reason. The claims that are tested lie in `data/claims.tsv`, in words of
ours.

Every function that is given a paper raises `InputError` where there is no such paper.

Rows are conditions (`original`, `instructed`, `mask`, `mask of Llama-3.1-8B`), columns are
directions (`en-zh`), tasks (`capitalize_first_letter`) or what a single figure is about. Figures
that belong to no single model are filed under the model `any`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from headscope.errors import InputError
from headscope.shown.blocks import Reference

#: The model of figures that belong to none alone.
ANY = "any"

#: How the papers are cited with their figures.
NAMES: Mapping[str, str] = {
    "token-alignment-heads": "Token Alignment Heads (ICLR 2026)",
    "lahis": "LAHIS (arXiv 2511.07498)",
    "heads-up": "Heads Up! (ICML 2025)",
}

#: Ids under which the same weights lay before, and lie still.
_FORMERLY = (("meta-llama/meta-llama-", "meta-llama/llama-"), ("cohereforai/", "coherelabs/"))

_COLUMNS = ("table", "model", "row", "column", "measure", "value")
_CLAIM_COLUMNS = ("paper", "key", "short", "name", "says", "place", "changes", "experiments")
_TASK_COLUMNS = ("task", "examples", "digest", "instruction")


@dataclass(frozen=True)
class Published:
    """One published figure and its place.

    Attributes:
        table: the table, figure or section, such as `Table 12`, `Figure 6`, `Section 3.1`.
        model: short Hub name of the model, or `any`.
        row: the condition, or what a single figure is of.
        column: the direction or task, or which figure of the row it is.
        measure: what was measured: `nll` (Heads Up! calls it PPL), `rouge_l`, `accuracy`, `heads`,
            `jaccard`, `expected`, `recall`, `bleu`, `chrf`, `attention`, `share`, `count`, ...
        value: the figure, in the paper's unit.
    """

    table: str
    model: str
    row: str
    column: str
    measure: str
    value: float


@dataclass(frozen=True)
class PublishedClaim:
    """A claim of a paper; see `headscope.shown.blocks.Claim`."""

    paper: str
    key: str
    short: str
    name: str
    says: str
    place: str
    changes: str
    experiments: tuple[str, ...]


@dataclass(frozen=True)
class PaperTask:
    """A word task of Heads Up! (Table 10).

    Attributes:
        examples: how many it has.
        digest: `examples_digest` of them, in the data of Todd et al. (2024) that the paper names.
        instruction: the paper's words, without input and output.
    """

    examples: int
    digest: str
    instruction: str

    @property
    def prompt(self) -> str:
        """The instructed prompt up to where the output begins."""
        return f"{self.instruction}\n\nInput:\n\n{{input}}\n\nOutput:\n\n"


@cache
def published(paper: str) -> tuple[Published, ...]:
    """Every published figure of a paper, in the order of its tables, figures and sections."""
    return tuple(
        Published(table, model, row, column, measure, float(number))
        for table, model, row, column, measure, number in _lines(f"{_known(paper)}.tsv", _COLUMNS)
    )


def value(
    paper: str, table: str, *, model: str, row: str, column: str, measure: str
) -> float | None:
    """One published figure, or None if the paper has no such figure."""
    return _values(paper).get((table, model, row, column, measure))


def figure(paper: str, table: str, *, model: str, row: str, column: str, measure: str) -> float:
    """One published figure that the paper has; KeyError for any other."""
    return _values(paper)[table, model, row, column, measure]


@cache
def published_claims(paper: str) -> Mapping[str, PublishedClaim]:
    """The claims of a paper that are tested, by their keys, in the order in which they are read.

    Their number is that of the family over which verdicts are corrected.
    """
    known = _known(paper)
    return {
        key: PublishedClaim(of, key, short, name, says, place, changes, tuple(experiments.split()))
        for of, key, short, name, says, place, changes, experiments in _lines(
            "claims.tsv", _CLAIM_COLUMNS
        )
        if of == known
    }


@cache
def paper_tasks() -> Mapping[str, PaperTask]:
    """The word tasks of Heads Up!, by name."""
    return {
        name: PaperTask(int(examples), digest, instruction)
        for name, examples, digest, instruction in _lines("heads-up-tasks.tsv", _TASK_COLUMNS)
    }


def examples_digest(examples: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of the (input, output) of a task in any order, without white space around them."""
    texts = sorted("\t".join(side.strip() for side in example) for example in examples)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def paper_model(paper: str, model: str) -> str | None:
    """The paper's own name of a model, or None if the paper does not have it.

    Args:
        model: its owner's id on the Hub; capitals do not matter. Anybody else's model of that name
            is another one, and so is a local folder, whose name says nothing of its weights.
    """
    known = {name.casefold(): name for name in _models(_known(paper))}
    name = model.casefold()
    for before, now in _FORMERLY:
        name = now + name.removeprefix(before) if name.startswith(before) else name
    found = None if Path(model).exists() else known.get(name)
    return found and found.rpartition("/")[2]


def source(paper: str, table: str) -> str:
    """How a figure's place is cited: `Heads Up! (ICML 2025), Table 12`."""
    return f"{NAMES[_known(paper)]}, {table}"


def reference(
    paper: str, table: str, model: str, *, default: str, differs: Sequence[str] = ()
) -> Reference:
    """The published values that a table of ours shows, and whether they may be compared.

    Args:
        model: the model that was run.
        default: the paper's model whose values are shown where the table has none of this one;
            `any` for what the paper says of all its models, each of which is then comparable.
        differs: what else is not the paper's: data, prompt, decoding, measure or its tokenisation,
            each in a few words such as `our prompt`.

    Raises:
        ValueError: the paper has no model called `default`.
    """
    figures = published(paper)
    named = {name.rpartition("/")[2] for name in _models(paper)}
    if default not in {ANY, *named, *(figure.model for figure in figures)}:
        raise ValueError(f"{NAMES[paper]} has no model {default!r}")
    own = paper_model(paper, model)
    here = {figure.model for figure in figures if figure.table == table}
    shown = own if own in here else default
    if own is None or shown not in (own, ANY) or shown not in here:
        shown, differs = default, ("other model", *differs)
    why = f"not comparable: {'; '.join(dict.fromkeys(differs))}" if differs else ""
    return Reference(source(paper, table), shown, not differs, why)


def _known(paper: str) -> str:
    if paper in NAMES:
        return paper
    close = difflib.get_close_matches(paper.lower().replace("_", "-"), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
    raise InputError(f"there is no paper {paper!r}; {hint}")


@cache
def _models(paper: str) -> tuple[str, ...]:
    """The models that a paper names, by their owners' ids on the Hub."""
    return tuple(model for name, model in _lines("models.tsv", ("paper", "model")) if name == paper)


@cache
def _values(paper: str) -> Mapping[tuple[str, str, str, str, str], float]:
    return {(value.table, value.model, value.row, value.column, value.measure): value.value
            for value in published(paper)}  # fmt: skip


def _lines(name: str, columns: tuple[str, ...]) -> list[list[str]]:
    """The lines of a data file below its heading, split into as many fields as it has columns."""
    text = resources.files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    head, *rest = [line.split("\t") for line in text.splitlines()]
    if head != list(columns) or any(len(line) != len(columns) for line in rest):
        raise ValueError(f"{name}: every line must have the fields {', '.join(columns)}")
    return rest
