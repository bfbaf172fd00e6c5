"""What is shown of a model that writes under several gates: scores, tests, bars and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headscope.estimates import Against
from headscope.results.common import Ablation
from headscope.results.writing import MEAN, Comparison, Effect, WritingResult
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Bars, Block, Cell, NotMeasured, Row, Section, Table, p_cell
from headscope.shown.words import between, count, enumeration, fixed, p_value, signed
from headscope.studies.shows import (
    ablation_facts,
    against_table,
    draws_words,
    model_facts,
    tests_words,
)

__all__ = [
    "Scale",
    "Writing",
    "distinct_draws",
    "examples",
    "few_prompts",
    "said",
    "uncertainty",
    "writing_facts",
]

KINDS = ("random", "random-layer-matched")
#: Prompts whose outputs are shown, and the fewest of a group that intervals are reliable for.
EXAMPLES, FEW = 12, 30


@dataclass(frozen=True)
class Scale:
    """What a measure is called in titles and, in a sentence, `said`; shares are in per cent."""

    words: str
    said: str = ""
    share: bool = True

    @property
    def unit(self) -> str:
        """What follows a number."""
        return "%" if self.share else ""

    @property
    def factor(self) -> float:
        """What a score is multiplied by."""
        return 100.0 if self.share else 1.0

    def number(self, value: float) -> str:
        """A score in words."""
        return f"{fixed(value * self.factor, 1)}{self.unit and chr(0xA0) + self.unit}"


@dataclass(frozen=True)
class Writing:
    """A result as blocks.

    `kinds` are words for what is done to the selected heads, `expected` says what is tested.
    """

    result: WritingResult
    kinds: Mapping[str, str]
    expected: str

    def sections(
        self, first: Mapping[str, Scale], rest: Mapping[str, Scale], missing: Mapping[str, str]
    ) -> list[Section]:
        """Tables of the first measures, for the terminal too, their bars, and the rest."""
        known = [block for key, scale in first.items() for block in self.tables(key, scale)]
        every = {**first, **rest}
        left = [NotMeasured(every[name].words, why) for name, why in missing.items()]
        bars = [block for key, scale in first.items() for block in self.bars(key, scale)]
        more = [block for key, scale in rest.items() for block in self.tables(key, scale)]
        sections = [
            Section(
                "Selected and random heads",
                [*known, *left],
                tests_words("prompts", self.expected),
                brief=True,
            ),
            Section("Single draws", bars),
            Section("Other measures", more),
        ]
        return [section for section in sections if section.blocks]

    def effects(self, measure: str) -> dict[str, tuple[Comparison, str, Effect]]:
        """The effects by a measure, by words for the group and for what is done."""
        several = len({kind for part in self.result.parts.values() for kind in part.effects}) > 1
        found = {}
        for name, part in self.result.parts.items():
            title = f"mean of {len(self.result.groups)}" if name == MEAN else name
            for kind, words in self.kinds.items():
                if (effect := part.effect(kind, measure)) is not None:
                    found[f"{title}, {words}" if several else title] = part, kind, effect
        return found

    def size(self, part: Comparison, kind: str) -> Cell:
        """How many heads a kind changes; of the mean, in any of its groups."""
        parts = [part] if kind in part.sizes else self.result.groups.values()
        sizes = sorted({each.sizes[kind] for each in parts if kind in each.sizes})
        return Cell(sizes[0] if len(sizes) == 1 else ", ".join(map(str, sizes)) or None)

    def tables(self, measure: str, scale: Scale) -> list[Table]:
        """Scores, and what selected heads have over random ones; none if not measured."""
        found = self.effects(measure)
        tested = any(effect.p_change is not None for _, _, effect in found.values())

        def cell(value: float | None) -> Cell:
            return Cell(None if value is None else value * scale.factor, digits=1, unit=scale.unit)

        def row(part: Comparison, kind: str, effect: Effect) -> tuple[Cell, ...]:
            return (
                Cell(part.prompts),
                self.size(part, kind),
                cell(effect.baseline),
                cell(effect.value),
                Cell.of(effect.change, 1, scale.unit, scale.factor),
                *([p_cell(effect.p_change)] if tested else []),
                *(cell(c and c.draws.mean) for c in (effect.free, effect.matched)),
            )

        if not found:
            return []
        columns = ("prompts", "heads", "original", "selected", "change",
                   *(["p of change"] if tested else []), "random",
                   "random, same layers")  # fmt: skip
        rows = tuple(Row(name, row(*effect)) for name, effect in found.items())
        tests = against_table(
            f"{scale.words}: selected minus random heads",
            {name: _against(effect) for name, (_, _, effect) in found.items()},
            "prompts",
            1,
            scale.unit,
            scale.factor,
        )
        return [Table(scale.words, columns, rows), *([tests] if tests else [])]

    def bars(self, measure: str, scale: Scale) -> list[Block]:
        """Original, selected and random heads with every draw; none if not measured."""
        found = self.effects(measure)
        values, low, high, draws = [], [], [], []
        for part, kind, effect in found.values():
            ends = [min(100.0, max(0.0, end * scale.factor)) for end in effect.span]
            controls = [effect.free, effect.matched]
            means = [None if one is None else one.draws.mean * scale.factor for one in controls]
            values.append((effect.baseline * scale.factor, effect.value * scale.factor, *means))
            low.append((None, ends[0], None, None))
            high.append((None, ends[1], None, None))
            single = (part.draws(kind, control, measure) for control in KINDS)
            draws.append(((), (), *(tuple(v * scale.factor for v in each) for each in single)))
        if not found:
            return []
        return [
            Bars(
                scale.words,
                tuple(found),
                ("original", "selected", "random", "random, same layers"),
                tuple(values),
                "per cent" if scale.share else "score",
                tuple(low),
                tuple(high),
                draws=tuple(draws),
                start=0.0,
                end=100.0,
                note="The interval is that of the change, over prompts",
            )
        ]


def _against(effect: Effect) -> tuple[Against | None, Against | None]:
    free, matched = effect.free, effect.matched
    return free and free.against, matched and matched.against


def said(what: str, effect: Effect | None, scale: Scale) -> list[str]:
    """An effect in a sentence: selected, original and random heads, with intervals and tests."""
    if effect is None:
        return []
    change, by = effect.change, scale.factor
    words = (
        f"{what}, {scale.said or scale.words} is {scale.number(effect.value)} (original "
        f"{scale.number(effect.baseline)}; change {signed(change.value * by)}, "
        f"95\u00a0% CI {between(change.low * by, change.high * by, 1)})."
    )
    beside = [
        f"{kind} {scale.number(control.draws.mean)} (p\u00a0=\u00a0"
        f"{p_value(control.against.p_examples)} over prompts, "
        f"{p_value(control.against.p_draws)} over draws)"
        for control, kind in ((effect.free, "random heads"), (effect.matched, "of the same layers"))
        if control is not None
    ]
    return [f"{words} For comparison: {', '.join(beside)}." if beside else words]


def distinct_draws(result: WritingResult) -> int:
    """The fewest different random draws that any effect stands against."""
    effects = [effect for kinds in result.whole.effects.values() for effect in kinds.values()]
    tests = [test for effect in effects for test in _against(effect) if test is not None]
    return min((test.distinct for test in tests), default=0)


def uncertainty(result: WritingResult, groups: str = "languages") -> str:
    """Prompts and draws in a line."""
    words = count(result.whole.prompts, "prompt")
    if len(result.groups) > 1:
        words += f", mean over {len(result.groups)} {groups}"
    return f"{words}; {draws_words(distinct_draws(result))}."


def few_prompts(result: WritingResult) -> list[str]:
    """The groups with few prompts, in a sentence."""
    few = [f"{name} {part.prompts}" for name, part in result.groups.items() if part.prompts < FEW]
    if not few:
        return []
    listed = enumeration(few if len(few) <= EXAMPLES else [*few[:EXAMPLES], "\u2026"])
    return [f"Few prompts ({listed}): intervals of so few are unreliable."]


def writing_facts(
    result: WritingResult, ablation: Ablation | None, groups: str = "languages"
) -> list[tuple[str, str]]:
    """The model, the groups, and what removed heads give."""
    names = list(result.groups)
    listed = ", ".join(names) if len(names) <= EXAMPLES else str(len(names))
    heads = result.model.heads if result.model else None
    facts = [*model_facts(result.model_name, heads), (groups, listed)]
    return [*facts, *(ablation_facts(ablation) if ablation else [])]


def examples(path: Path, kinds: Mapping[str, str], group: str = "language") -> list[Section]:
    """Outputs of the run beside each other, of prompts where selected heads change them.

    `group` is what a group is called in the file of outputs. InputError if that is damaged.
    """
    found = list(_changed(path / "outputs.jsonl", group))
    there = {
        kind: words
        for kind, words in {"baseline": "original", **kinds}.items()
        if any(kind in texts for _, _, _, texts in found)
    }
    referenced = any(reference for _, _, reference, _ in found)
    rows = []
    for at, (name, identifier, reference, texts) in enumerate(found, 1):
        cells = [Cell(name), Cell(identifier), *(Cell(texts.get(kind)) for kind in there)]
        rows.append(Row(str(at), (*cells, *([Cell(reference)] if referenced else []))))
    if not rows:
        return []
    columns = (group, "prompt", *there.values(), *(["reference"] if referenced else []))
    note = (
        "The first prompts of each group whose output changes: examples, no sample to count in. "
        "All outputs are in outputs.jsonl of the run folder"
    )
    return [Section("Outputs", [Table("Outputs that change", columns, tuple(rows), note=note)])]


def _changed(path: Path, group: str) -> Iterable[tuple[str, str, str | None, Mapping[str, str]]]:
    """Group, identifier, reference and outputs by kind of the first prompts that change."""
    texts: dict[tuple[str, str], dict[str, str]] = {}
    references: dict[tuple[str, str], str | None] = {}
    for number, row in read_rows(path):
        try:
            if row["draw"] is None:
                key = str(row[group]), str(row["id"])
                texts.setdefault(key, {})[str(row["condition"])] = str(row["output"])
                references[key] = row.get("reference")
        except (KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    changed: dict[str, list[str]] = {}
    for (name, identifier), outputs in texts.items():
        if len(set(outputs.values())) > 1:
            changed.setdefault(name, []).append(identifier)
    each = max(1, EXAMPLES // max(1, len(changed)))
    keys: Sequence[tuple[str, str]] = [
        (name, one) for name, several in changed.items() for one in several[:each]
    ]
    return ((*key, references[key], texts[key]) for key in keys[:EXAMPLES])
