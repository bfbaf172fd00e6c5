"""What the TRater experiment shows: what models trained on each mixture can do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headscope.papers.trater.evidence import published_selection
from headscope.papers.trater.result import MEASURES, Condition, Difference, Trained, TraterResult
from headscope.shown.blocks import Bars, Cell, Row, Section, Shown, Table
from headscope.shown.words import between, count, fixed, percent, signed

#: Fewer trainings of a mixture than this tell little about another training.
FEW = 5
CHANGED = {
    "remove": "without the selected documents",
    "enhance": "with three times as many of them",
}


def show(result: TraterResult, run: Path) -> Shown:
    """Means by mixture, differences to the corpus and to random selections, and every model."""
    seeds = len({model.seed for model in result.models})
    documents = result.corpus.documents
    sections = [
        Section("What the models can do", [_means(result)], brief=True),
        Section("Differences", [_differences(result), _by_seed(result)]),
        Section("Translation by mixture", _bars(result)),
        Section("Mixtures and models", [_models(result)]),
        Section("The paper", [_paper(result), *([_power(result)] if result.power else [])]),
    ]
    return Shown(
        "TRater experiment",
        "Do models learn translation from the documents that need the token alignment heads?",
        _finding(result),
        "Intervals are over test sentences, those of all seeds drawn together. How much another "
        f"training would differ is seen by seed ({count(seeds, 'seed')}).",
        "--seeds 10" if seeds < 10 else "",
        _cautions(result, seeds),
        [
            ("model", result.model_name),
            ("models trained", str(len(result.models))),
            ("seeds", str(seeds)),
            ("documents", f"{sum(documents.values()):,}"),
            ("with a translation", f"{documents.get('bilingual', 0):,}"),
            ("tokens that carry a translation",
             percent(result.corpus.bilingual_share_of_tokens, 1)),
        ],
        sections,
    )  # fmt: skip


def _name(kind: str, share: float | None) -> str:
    words = "random, " + kind.removesuffix(" random") if kind.endswith("random") else kind
    return words if share is None else f"{words} {percent(share, 1)}"


def _named(row: Condition | Trained) -> str:
    return _name(row.kind, row.share)


def _digits(digits: int) -> int:
    """Of single numbers; nats are small."""
    return digits + (digits > 1)


def _cell(difference: Difference | None, digits: int) -> Cell:
    if difference is None:
        return Cell()
    return Cell(difference.value, difference.low, difference.high, digits=_digits(digits))


def _finding(result: TraterResult) -> list[str]:
    base = next(row for row in result.conditions if row.kind == "baseline")
    words = []
    for row in result.conditions:
        if row.kind not in CHANGED or not row.differences:
            continue
        change, random = row.differences["chrf_prompt"], (row.against_random or {})
        against = "" if not random else f"; against random ones {_told(random['chrf_prompt'])}"
        words.append(
            f"{CHANGED[row.kind].capitalize()} ({percent(row.share, 1)} of the tokens selected) "
            f"chrF++ under the prompt changes by {_told(change)}{against}."
        )
    return [
        *words,
        f"Trained on the corpus itself: chrF++ {fixed(base.mean.chrf_prompt, 1)}, mean of "
        f"{count(len(base.seeds), 'training')}.",
    ]


def _told(change: Difference) -> str:
    ends = between(change.low, change.high, 1)
    return f"{signed(change.value)} (95\u00a0% CI {ends})"


def _cautions(result: TraterResult, seeds: int) -> list[str]:
    cautions = ["Pocket models on a made-up world: only the order of the mixtures can be compared "
                "with the paper."]  # fmt: skip
    if seeds < FEW:
        cautions.append(f"Only {count(seeds, 'training')} of each mixture.")
    for row in result.conditions:
        change = (row.differences or {}).get("chrf_prompt")
        if change and row.kind in CHANGED and any(x * change.value < 0 for x in change.by_seed):
            cautions.append(f"The seeds disagree on the sign of the change: {_named(row)}.")
    if result.power and not all(each.enough for each in result.power):
        cautions.append(
            "At the share that the paper selects, as many trainings have too little power."
        )
    return cautions


def _means(result: TraterResult) -> Table:
    rows = [
        Row(
            _named(row),
            (
                Cell.share(row.bilingual),
                *(Cell(row.mean.value(key), digits=_digits(d)) for key, _, d in MEASURES),
            ),
        )
        for row in result.conditions
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
    columns = ("bilingual", *(heading for _, heading, _ in MEASURES))
    return Table("Models by mixture", columns, tuple(rows), note=note)


def _compared(result: TraterResult) -> list[tuple[str, Mapping[str, Difference]]]:
    """What is compared: a mixture with the corpus as it is, and with random selections."""
    found = []
    for row in result.conditions:
        for than, differences in (
            ("baseline", row.differences),
            ("random", row.against_random),
        ):
            if differences:
                found.append((f"{_named(row)} \u2212 {than}", differences))
    return found


def _differences(result: TraterResult) -> Table:
    rows = tuple(
        Row(name, tuple(_cell(differences.get(key), digits) for key, _, digits in MEASURES))
        for name, differences in _compared(result)
    )
    note = "To the baseline, and to random selections of the same size and seeds"
    return Table("Differences", tuple(heading for _, heading, _ in MEASURES), rows, note=note)


def _by_seed(result: TraterResult) -> Table:
    def cell(difference: Difference | None, digits: int) -> Cell:
        seeds = () if difference is None else difference.by_seed
        return Cell(", ".join(fixed(each, _digits(digits)) for each in seeds) or None)

    rows = tuple(
        Row(name, tuple(cell(differences.get(key), digits) for key, _, digits in MEASURES))
        for name, differences in _compared(result)
    )
    return Table("Differences, seed by seed", tuple(heading for _, heading, _ in MEASURES), rows)


def _bars(result: TraterResult) -> list[Bars]:
    made = []
    for key, heading, digits in MEASURES:
        if key not in ("chrf_prompt", "chrf_document", "gain"):
            continue
        draws = tuple(
            (
                tuple(
                    value
                    for model in result.models
                    if (model.kind, model.share) == (row.kind, row.share)
                    and (value := model.measured.value(key)) is not None
                ),
            )
            for row in result.conditions
        )
        rate = key.startswith("chrf")
        made.append(
            Bars(
                heading,
                tuple(map(_named, result.conditions)),
                (heading,),
                tuple((row.mean.value(key),) for row in result.conditions),
                heading,
                digits=_digits(digits),
                draws=draws,
                note="Rings are models",
                start=0.0 if rate else None,
                end=100.0 if rate else None,
            )
        )
    return made


def _models(result: TraterResult) -> Table:
    rows = tuple(
        Row(
            f"{_named(model)}, seed {model.seed}",
            (
                Cell(model.documents),
                Cell(model.tokens),
                Cell.share(model.bilingual_share_of_tokens),
                Cell(100 * model.largest_difference_of_shares, unit="pp"),
                Cell(model.steps),
                *(Cell(model.measured.value(key), digits=_digits(d)) for key, _, d in MEASURES),
            ),
        )
        for model in result.models
    )
    columns = ("documents", "tokens", "bilingual", "languages off by", "steps",
               *(heading for _, heading, _ in MEASURES))  # fmt: skip
    note = (
        "Every model read its mixture once, with the same translation prompts. The mixtures have "
        "one budget of tokens, which whole documents miss by a little; the shares of languages "
        "differ from those of the baseline by at most the percentage points given"
    )
    return Table("Mixtures and models", columns, rows, note=note)


def _paper(result: TraterResult) -> Table:
    paper, selected = result.paper, published_selection()
    kinds = {"baseline": paper.baseline, "remove": paper.remove, "enhance": paper.enhance}
    rows = tuple(
        Row(kind, tuple(Cell(value, digits=2) for value in values))
        for kind, values in kinds.items()
        if values
    )
    note = (
        f"{paper.source}. The paper selected {percent(selected, 1)} of each language. chrF++ on "
        "FLORES, then accuracies in %. Model, data and measures are others, so only the order of "
        "the rows can be compared"
    )
    return Table("Table 1 of the paper", paper.measures, rows, note=note)


def _power(result: TraterResult) -> Table:
    rows = tuple(
        Row(
            each.kind,
            (
                Cell(each.change, digits=2),
                Cell(each.sd, digits=2),
                Cell(each.power, digits=2),
                Cell("yes" if each.enough else "no"),
            ),
        )
        for each in result.power
    )
    note = "Along the flatter and the steeper side of the trained mixtures; a paired t test at 0.05"
    columns = ("change of chrF++ expected", "standard deviation", "power", "enough")
    return Table("What trainings at the paper's share could show", columns, rows, note=note)
