"""The result of `pocket trater`: what models trained on each mixture can do, and what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Literal

from headscope.evidence.headline import verdicts
from headscope.papers.published import published, source
from headscope.papers.trater.evidence import PAPER, published_selection
from headscope.results.common import ModelResult
from headscope.runs import Record, entry
from headscope.shown.blocks import Cell, Forest, Gap, Row, Section, Shown, Table, grid
from headscope.shown.words import confidence, count, percent, signed

#: What is shown of every mixture: its name in results, its heading, its digits.
MEASURES = (
    ("chrf_prompt", "chrF++, prompt", 1),
    ("chrf_document", "chrF++, document", 1),
    ("words_across", "words translated %", 1),
    ("words_within", "word tasks %", 1),
    ("questions", "questions %", 1),
    ("gain", "gain, nats", 3),
    ("plain_nll", "NLL of plain text", 3),
)
HEADINGS = tuple(heading for _, heading, _ in MEASURES)
#: Fewer trainings of a mixture than this tell little about another training.
FEW = 5


@dataclass(frozen=True)
class Measured(Record):
    """What is measured of a model.

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
class Change(_OfMixture):
    """A mixture minus the corpus as it is, or a selection by score minus a random one."""

    than: Literal["baseline", "random"]
    figures: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True)
class Corpus(Record):
    """How many documents and tokens of each kind there are, and the rating."""

    documents: Mapping[str, int]
    tokens: Mapping[str, int] | None = entry(absent=True)
    bilingual_share_of_tokens: float
    heads: tuple[str, ...] | None = entry(absent=True)
    signature: str | None = entry(absent=True)


@dataclass(frozen=True, kw_only=True)
class TraterResult(ModelResult):
    """The result of `pocket trater`."""

    corpus: Corpus
    models: tuple[Trained, ...]
    changes: tuple[Change, ...]
    chance: Mapping[str, float] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """How many models there are of each mixture."""
        return len({model.seed for model in self.models})

    def by_mixture(self) -> dict[str, list[Trained]]:
        """The models of every mixture."""
        named = dict.fromkeys(model.named for model in self.models)
        return {
            name: [trained_model for trained_model in self.models if trained_model.named == name]
            for name in named
        }


def show(result: TraterResult, run: Path) -> Shown:
    """Differences to the corpus and to random selections, every model, and the paper's table."""
    seeds, documents = result.seeds, result.corpus.documents
    bilingual = percent(result.corpus.bilingual_share_of_tokens, 1)
    return Shown(
        "TRater experiment",
        "Do models learn translation from the documents that need the token alignment heads?",
        _finding(result),
        f"Intervals are over test sentences; {count(seeds, 'training')} of each mixture.",
        "--seeds 10" if seeds < 10 else "",
        _cautions(result),
        [
            ("model", result.model_name),
            ("models trained", str(len(result.models))),
            ("seeds", str(seeds)),
            ("documents", f"{sum(documents.values()):,}"),
            ("with a translation", f"{documents.get('bilingual', 0):,}"),
            ("tokens that carry a translation", bilingual),
        ],
        [
            Section("Values and tests", [_differences(result)], brief=True),
            Section("Mixtures and models", [_models(result)]),
            Section("The paper", [_paper()]),
        ],
        _forest(result),
    )


def _finding(result: TraterResult) -> list[str]:
    changes = {
        row.named: row.figures["chrf_prompt"] for row in result.changes if row.than == "random"
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
    if not sure or any(difference * change.value <= 0 for difference in change.by_seed):
        return "not shown to differ from that with random documents"
    return f"{'better' if change.value > 0 else 'worse'} than with random documents"


def _cautions(result: TraterResult) -> list[str]:
    cautions = ["Pocket models on a made-up world: only the order of the mixtures can be compared "
                "with the paper."]  # fmt: skip
    if result.seeds < FEW:
        cautions.append(f"Only {count(result.seeds, 'training')} of each mixture.")
    for row in result.changes:
        change, selected = row.figures["chrf_prompt"], not row.kind.endswith("random")
        if selected and row.than == "baseline" and min(change.by_seed) < 0 < max(change.by_seed):
            cautions.append(f"The seeds disagree on the sign of the change: {row.named}.")
    return cautions


def _forest(result: TraterResult) -> Forest:
    """How far mixtures change translation under the prompt, each seed as a stroke."""
    rows: dict[str, list[Gap]] = {}
    for row in result.changes:
        change, name = row.figures["chrf_prompt"], row.named.removeprefix("random, ")
        than = "original" if row.than == "baseline" else "random"
        if not row.kind.endswith("random"):
            gap = Gap(than, change.value, change.low, change.high, change.by_seed)
            rows.setdefault(name, []).append(gap)
    return Forest(
        "Translation under the prompt: trained on a mixture minus on others",
        tuple((name, tuple(gaps)) for name, gaps in rows.items()),
        "Difference in chrF++",
        ("worse", "better"),
        note="Strokes are seeds. Original: trained on the corpus as it is",
        over="sentences",
    )


def _differences(result: TraterResult) -> Table:
    """What is compared: a mixture with the corpus as it is, and with random selections."""
    rows = []
    for row in result.changes:
        known = (row.figures.get(key) for key, *_ in MEASURES)
        cells = (
            Cell() if change is None else Cell(change.value, change.low, change.high, digits=digits)
            for change, (*_, digits) in zip(known, MEASURES, strict=True)
        )
        rows.append(Row(f"{row.named} \u2212 {row.than}", tuple(cells)))
    note = "To the baseline, and to random selections of the same size and seeds"
    return Table("Differences", HEADINGS, tuple(rows), note=note)


def _models(result: TraterResult) -> Table:
    """Every model, and of several seeds the means of a mixture."""

    def row(name: str, own: list[Trained]) -> Row:
        def cell(values: Iterable[float | None], digits: int = 0) -> Cell:
            known = [value for value in values if value is not None]
            return Cell(fmean(known) if known else None, digits=digits)

        return Row(
            name,
            (
                cell(model.documents for model in own),
                cell(model.tokens for model in own),
                cell((100 * model.bilingual_share_of_tokens for model in own), 1),
                cell((100 * model.largest_difference_of_shares for model in own), 3),
                cell(model.steps for model in own),
                *(
                    cell((getattr(model.measured, key) for model in own), digits)
                    for key, _, digits in MEASURES
                ),
            ),
        )

    rows = []
    for name, models in result.by_mixture().items():
        rows += [row(f"{name}, mean", models)] * (result.seeds > 1)
        rows += [row(f"{name}, seed {model.seed}", [model]) for model in models]
    chance = (Cell(result.chance.get(key), digits=digits) for key, _, digits in MEASURES)
    rows += [Row("guessing", (*[Cell()] * 5, *chance))] * bool(result.chance)
    columns = ("documents", "tokens", "bilingual %", "languages off by, pp", "steps", *HEADINGS)
    note = (
        "Every model read its mixture once, with the same translation prompts. The mixtures have "
        "one budget of tokens, which whole documents miss by a little; the shares of languages "
        "differ from those of the baseline by at most the percentage points given. Prompt: greedy "
        "translations under the default prompt. Document: the model goes on after a sentence and a "
        "new line, and its output counts against the best of its references. Gain: how much "
        "likelier, in nats a token, the true translation is after its own source than after "
        "another sentence"
    )
    return Table("Mixtures and models", columns, tuple(rows), note=note)


def _paper() -> Table:
    cells = {(c.row, c.column): c.value for c in published(PAPER) if c.table == "Table 1"}
    rows, columns = (dict.fromkeys(place[at] for place in cells) for at in (0, 1))
    note = (
        f"{source(PAPER, 'Table 1')}: a model of 1.5 billion parameters, 1T tokens, of which "
        f"{percent(published_selection(), 1)} of each language were selected. chrF++ on FLORES, "
        "then accuracies in %. Model, data and measures are others, so only the order of the rows "
        "can be compared"
    )
    return grid("Table 1 of the paper", rows, columns,
                lambda *place: Cell(cells[place], digits=2), note=note)  # fmt: skip
