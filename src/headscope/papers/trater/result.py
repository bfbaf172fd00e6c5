"""The result of `pocket trater`: what models trained on each mixture can do, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headscope.evidence.blocks import verdicts
from headscope.papers.trater.evidence import published_selection
from headscope.results.common import ModelResult
from headscope.runs import Record, entry
from headscope.shown.blocks import Bars, Cell, Row, Section, Shown, Table
from headscope.shown.words import (
    confidence,
    count,
    fixed,
    percent,
    signed,
)

#: What is shown of every mixture: its name in results, its heading, its digits.
MEASURES = (
    ("chrf_prompt", "chrF++, prompt", 1),
    ("chrf_document", "chrF++, document", 1),
    ("words_across", "words translated %", 1),
    ("words_within", "word tasks %", 1),
    ("questions", "questions %", 1),
    ("gain", "gain, nats", 2),
    ("plain_nll", "NLL of plain text", 2),
)
#: Nats are small.
_MEASURES = tuple((key, heading, digits + (digits > 1)) for key, heading, digits in MEASURES)
HEADINGS = tuple(heading for _, heading, _ in MEASURES)
#: Fewer trainings of a mixture than this tell little about another training.
FEW = 5
CHANGED = ("remove", "enhance")


@dataclass(frozen=True)
class Measured(Record):
    """What is measured of a model, means over several, or standard deviations.

    chrF++ from 0 to 100, `gain` in nats a token by which the true translation is likelier after its
    own text than after another one, `nll` of the true translation, `plain_nll` of documents in one
    language, and per cent of items answered right.
    """

    chrf_prompt: float | None = None
    chrf_document: float | None = None
    gain: float | None = None
    nll: float | None = None
    plain_nll: float | None = None
    words_across: float | None = None
    words_within: float | None = None
    questions: float | None = None


@dataclass(frozen=True, kw_only=True)
class _OfMixture(Record):
    """The kind of a mixture, and the share of every language's tokens that was selected for it."""

    kind: str
    share: float | None

    @property
    def named(self) -> str:
        """Such as `random, remove 1.3 %`."""
        kind = self.kind.removesuffix(" random")
        words = kind if kind == self.kind else f"random, {kind}"
        return words if self.share is None else f"{words} {percent(self.share, 1)}"


@dataclass(frozen=True, kw_only=True)
class Trained(_OfMixture):
    """One training: what its mixture holds, and what the model can do."""

    seed: int
    documents: int
    tokens: int
    bilingual_documents: int | None = entry(absent=True)
    bilingual_share_of_tokens: float
    languages: Mapping[str, float] | None = entry(absent=True)
    largest_difference_of_shares: float
    steps: int
    measured: Measured = entry(Measured(), flat="")


@dataclass(frozen=True, kw_only=True)
class Difference(Record):
    """Between models of the same seeds, with a 95 % interval over sentences or items, if any."""

    value: float
    low: float | None = entry(absent=True)
    high: float | None = entry(absent=True)
    by_seed: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition(_OfMixture):
    """One kind of mixture: means and standard deviations over seeds, and differences.

    Those to the corpus as it is, and of selections by score those to random ones.
    """

    seeds: tuple[int, ...]
    bilingual: float | None = None
    mean: Measured = entry(Measured(), flat="")
    sd: Measured = entry(Measured(), flat="_sd")
    differences: Mapping[str, Difference] | None = entry(absent=True)
    against_random: Mapping[str, Difference] | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class Corpus(Record):
    """How many documents and tokens of each kind there are, and the rating."""

    documents: Mapping[str, int]
    tokens: Mapping[str, int] | None = entry(absent=True)
    bilingual_share_of_tokens: float
    heads: tuple[str, ...] | None = entry(absent=True)
    signature: str | None = entry(absent=True)


@dataclass(frozen=True)
class Power(Record):
    """What as many trainings at the paper's share could show: a change of chrF++."""

    kind: str
    change: float
    sd: float
    power: float
    enough: bool


@dataclass(frozen=True)
class PublishedTable(Record):
    """Table 1 of the paper: its measures, and their figures by kind of mixture."""

    source: str
    measures: tuple[str, ...]
    baseline: tuple[float, ...] = ()
    remove: tuple[float, ...] = ()
    enhance: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TraterResult(ModelResult):
    """The result of `pocket trater`."""

    corpus: Corpus
    models: tuple[Trained, ...]
    conditions: tuple[Condition, ...]
    chance: Mapping[str, float] = field(default_factory=dict)
    power: tuple[Power, ...] = ()
    paper: PublishedTable


def show(result: TraterResult, run: Path) -> Shown:
    """Means by mixture, differences to the corpus and to random selections, and every model."""
    seeds = len({model.seed for model in result.models})
    documents = result.corpus.documents
    bilingual = percent(result.corpus.bilingual_share_of_tokens, 1)
    differences = _differences(
        result,
        "Differences",
        lambda each, digits: Cell(each.value, each.low, each.high, digits=digits),
        note="To the baseline, and to random selections of the same size and seeds",
    )
    by_seed = _differences(
        result,
        "Differences, seed by seed",
        lambda each, digits: Cell(", ".join(fixed(own, digits) for own in each.by_seed) or None),
    )
    figure, *others = _bars(result)
    return Shown(
        "TRater experiment",
        "Do models learn translation from the documents that need the token alignment heads?",
        _finding(result),
        f"Intervals are over test sentences; {count(seeds, 'training')} of each mixture.",
        "--seeds 10" if seeds < 10 else "",
        _cautions(result, seeds),
        [
            ("model", result.model_name),
            ("models trained", str(len(result.models))),
            ("seeds", str(seeds)),
            ("documents", f"{sum(documents.values()):,}"),
            ("with a translation", f"{documents.get('bilingual', 0):,}"),
            ("tokens that carry a translation", bilingual),
        ],
        [
            *([Section("Translation by mixture", others)] if others else []),
            Section("Values and tests", [differences, by_seed, _means(result)], brief=True),
            Section("Mixtures and models", [_models(result)]),
            Section("The paper", [_paper(result), *([_power(result)] if result.power else [])]),
        ],
        figure,
    )


def _finding(result: TraterResult) -> list[str]:
    changes = {
        row.named: row.against_random["chrf_prompt"]
        for row in result.conditions
        if row.kind in CHANGED and row.against_random
    }
    if not changes:
        return ["Cannot tell: no random documents were selected to compare with."]
    name, change = next(iter(changes.items()))
    words = {name: _moved(change) for name, change in changes.items()}
    return [
        f"Translation is {verdicts(words, 'for')}.",
        f"chrF++ {signed(change.value)} beside random documents ({name}; "
        f"{confidence(change.low, change.high, 1)}).",
    ]


def _moved(change: Difference) -> str:
    """How translation differs from that of random selections, where every seed says so."""
    sure = change.low is not None and change.high is not None and change.low * change.high > 0
    if not sure or any(own * change.value <= 0 for own in change.by_seed):
        return "not shown to differ from that with random documents"
    return f"{'better' if change.value > 0 else 'worse'} than with random documents"


def _cautions(result: TraterResult, seeds: int) -> list[str]:
    cautions = ["Pocket models on a made-up world: only the order of the mixtures can be compared "
                "with the paper."]  # fmt: skip
    if seeds < FEW:
        cautions.append(f"Only {count(seeds, 'training')} of each mixture.")
    for row in result.conditions:
        change = (row.differences or {}).get("chrf_prompt")
        if change and row.kind in CHANGED and any(x * change.value < 0 for x in change.by_seed):
            cautions.append(f"The seeds disagree on the sign of the change: {row.named}.")
    if result.power and not all(each.enough for each in result.power):
        cautions.append(
            "At the share that the paper selects, as many trainings have too little power."
        )
    return cautions


def _cells(measured: Measured) -> tuple[Cell, ...]:
    return tuple(Cell(getattr(measured, key), digits=digits) for key, _, digits in _MEASURES)


def _means(result: TraterResult) -> Table:
    rows = [
        Row(row.named, (Cell.share(row.bilingual), *_cells(row.mean))) for row in result.conditions
    ]
    if result.chance:
        chance = (Cell(result.chance.get(key), digits=digits) for key, _, digits in MEASURES)
        rows.append(Row("guessing", (Cell(), *chance)))
    note = (
        "Means over seeds. Prompt: greedy translations under the default prompt. Document: the "
        "model goes on after a sentence and a new line, and its output counts against the best of "
        "its references. Gain: how much likelier, in nats a token, the true translation is after "
        "its own source than after another sentence"
    )
    return Table("Models by mixture", ("bilingual", *HEADINGS), tuple(rows), note=note)


def _differences(
    result: TraterResult, title: str, cell: Callable[[Difference, int], Cell], note: str = ""
) -> Table:
    """What is compared: a mixture with the corpus as it is, and with random selections."""
    rows = []
    for row in result.conditions:
        compared = {"baseline": row.differences, "random": row.against_random}
        for than, changes in compared.items():
            if changes:
                cells = (
                    cell(changes[key], digits) if key in changes else Cell()
                    for key, _, digits in _MEASURES
                )
                rows.append(Row(f"{row.named} \u2212 {than}", tuple(cells)))
    return Table(title, HEADINGS, tuple(rows), note=note)


def _bars(result: TraterResult) -> list[Bars]:
    """What models translate after selections and random ones, beside the corpus as it is."""
    base = [row for row in result.conditions if row.kind == "baseline"]
    groups: dict[str, dict[str, Condition]] = {}
    for row in result.conditions:
        if row not in base:
            name = row.named.removeprefix("random, ")
            series = "selected" if name == row.named else "random"
            groups.setdefault(name, {"original": base[0]})[series] = row
    groups = groups or {base[0].named: {"original": base[0]}}
    names = list(dict.fromkeys(name for rows in groups.values() for name in rows))
    made = []
    for key, heading, digits in _MEASURES:
        if key not in ("chrf_prompt", "chrf_document", "gain"):
            continue
        rate = key.startswith("chrf")
        rows = [[own.get(name) for name in names] for own in groups.values()]
        made.append(
            Bars(
                heading,
                tuple(groups),
                tuple(names),
                tuple(
                    tuple(getattr(row.mean, key) if row else None for row in own) for own in rows
                ),
                heading,
                digits=digits,
                draws=tuple(tuple(_each(result, row, key) for row in own) for own in rows),
                note="Draws are models of one seed. Original: trained on the corpus as it is",
                start=0.0 if rate else None,
                end=100.0 if rate else None,
            )
        )
    return made


def _each(result: TraterResult, row: Condition | None, key: str) -> tuple[float, ...]:
    """A measure of every model of a mixture."""
    own = (each for each in result.models if row and each.named == row.named)
    return tuple(value for each in own if (value := getattr(each.measured, key)) is not None)


def _models(result: TraterResult) -> Table:
    rows = tuple(
        Row(
            f"{model.named}, seed {model.seed}",
            (
                Cell(model.documents),
                Cell(model.tokens),
                Cell.share(model.bilingual_share_of_tokens),
                Cell(100 * model.largest_difference_of_shares, unit="pp"),
                Cell(model.steps),
                *_cells(model.measured),
            ),
        )
        for model in result.models
    )
    columns = ("documents", "tokens", "bilingual", "languages off by", "steps", *HEADINGS)
    note = (
        "Every model read its mixture once, with the same translation prompts. The mixtures have "
        "one budget of tokens, which whole documents miss by a little; the shares of languages "
        "differ from those of the baseline by at most the percentage points given"
    )
    return Table("Mixtures and models", columns, rows, note=note)


def _paper(result: TraterResult) -> Table:
    paper = result.paper
    rows = tuple(
        Row(kind, tuple(Cell(value, digits=2) for value in values))
        for kind in ("baseline", "remove", "enhance")
        if (values := getattr(paper, kind))
    )
    note = (
        f"{paper.source}. The paper selected {percent(published_selection(), 1)} of each language. "
        "chrF++ on FLORES, then accuracies in %. Model, data and measures are others, so only the "
        "order of the rows can be compared"
    )
    return Table("Table 1 of the paper", paper.measures, rows, note=note)


def _power(result: TraterResult) -> Table:
    rows = []
    for each in result.power:
        numbers = (Cell(value, digits=2) for value in (each.change, each.sd, each.power))
        rows.append(Row(each.kind, (*numbers, Cell("yes" if each.enough else "no"))))
    note = "Along the flatter and the steeper side of the trained mixtures; a paired t test at 0.05"
    columns = ("change of chrF++ expected", "standard deviation", "power", "enough")
    return Table("What trainings at the paper's share could show", columns, tuple(rows), note=note)
