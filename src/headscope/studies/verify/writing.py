"""What the commands that let a model write share: heads, prompts, outputs, what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.estimates import Draws
from headscope.heads import Amount, Rank
from headscope.heads.resolve import place_of
from headscope.progress import Progress
from headscope.results.common import Ablation
from headscope.results.writing import MEAN, WritingEffects, WritingResult
from headscope.runs import Run
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Cell, NotMeasured, Row, Section, Shown, Table, p_cell
from headscope.shown.words import count
from headscope.studies.comparison import Compared, Comparison, Scale, draws_remedy, draws_words
from headscope.studies.shows import ablation_facts, few_parts, model_facts
from headscope.verify.languages.conditions import SPECIFIC, LanguageHeads, language_heads
from headscope.verify.writing.measures import Numbers
from headscope.verify.writing.texts import Group, write

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation import NewlineStop
    from headscope.lm.replacement import Replacement

#: How many heads of a language are changed where nobody says: 1 %, as in LAHIS, at least one.
SHARE = "1%"
CONTROLS = ("random", "random-layer-matched")
#: Prompts whose outputs are shown.
EXAMPLES = 12


def run_languages(spec: str) -> list[str]:
    """The languages that a run holds heads of, by name; empty for any other set."""
    place = _folder(spec)
    return [] if place is None else sorted(path.parent.name for path in place.glob("*/config.json"))


def writing_heads(
    spec: str,
    k: Amount | None,
    languages: Sequence[str],
    lm: LanguageModel,
    rank: Rank = "above-chance",
) -> dict[str, LanguageHeads]:
    """The heads of each language that has some, by its code; a named set stands for every one.

    Of a run of LAHIS 1 % of all heads unless `k` says otherwise, of a named set all of it.
    """
    wanted = SHARE if k is None and _folder(spec) is not None else k
    rows = language_heads(spec, wanted, languages, None, lm.geometry, rank)
    own = {row.language: row for row in rows}
    if not any(code in own for code in languages):
        return dict.fromkeys(languages, rows[0])
    return {code: own[code] for code in languages if code in own}


def _folder(spec: str) -> Path | None:
    """Where a run keeps the heads specific to each language."""
    place = place_of(spec)
    folder = None if place is None else place / SPECIFIC
    return folder if folder is not None and folder.is_dir() else None


def arms_settings(groups: Iterable[Group]) -> dict[str, list[str]]:
    """The gates of each group in a run's configuration: the heads themselves, not their place."""
    return {group.name: [arm.key for arm in group.arms] for group in groups}


def statistics(run: Run, numbers: Mapping[str, Numbers]) -> None:
    """Keep the numbers of every prompt, as `GROUP.MEASURE`: arrays (arms, prompts, features)."""
    arrays = {
        f"{group}.{measure}": array
        for group, own in numbers.items()
        for measure, array in own.values.items()
        if array is not None
    }
    run.write_tensors("statistics.safetensors", arrays)


def written(
    lm: LanguageModel,
    groups: Sequence[Group],
    run: Run,
    stop_at_newline: NewlineStop,
    special: bool,
    batch_tokens: int,
    replacement: Replacement | None,
    progress: Progress | None,
) -> list[list[list[str]]]:
    """The outputs by group, arm and prompt; the run keeps what the model was given, once."""
    from headscope.lm.generation import GenerateConfig

    how = GenerateConfig(batch_tokens=batch_tokens, stop_at_newline=stop_at_newline)
    texts = write(lm, groups, how, run, "writing", progress, special, replacement)
    rows = [
        {"language": group.name, "id": prompt.id, "prompt": prompt.text}
        for group in groups
        for prompt in group.prompts
    ]
    run.write_jsonl("prompts.jsonl", rows)
    return texts


def fitted(
    lm: LanguageModel, text: str, limit: int, render: Callable[[str], str], place: str
) -> tuple[str, bool]:
    """The prompt of a text, cut at its end until `limit` new tokens have room behind the prompt.

    Returns the prompt and whether the text was cut. Raises `InputError`, beginning with `place`,
    if not even a prompt without text leaves the room.
    """
    longest = lm.context_length - limit

    def fits(length: int) -> bool:
        return len(lm.encode(render(text[:length]))) <= longest

    if fits(len(text)):
        return render(text), False
    if not fits(0):
        raise InputError(
            f"{place}: {limit} new tokens behind the prompt do not fit the model's context of "
            f"{lm.context_length}; use fewer with --max-new-tokens"
        )
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return render(text[:low]), True


@dataclass(frozen=True)
class Writing:
    """How a result is shown.

    Attributes:
        result: what is shown.
        kinds: words for what is done to the selected heads, by kind.
        first: the measures that are shown first, and in the terminal.
        rest: the others.
        expected: what is tested, such as `more such outputs`.
        missing: why measures were not taken.
        group: what a group of prompts is called.
    """

    result: WritingResult
    kinds: Mapping[str, str]
    first: Mapping[str, Scale]
    rest: Mapping[str, Scale]
    expected: str
    missing: Mapping[str, str]
    group: str = "language"

    def shown(
        self,
        run: Path,
        title: str,
        lead: str,
        finding: Sequence[str],
        cautions: Sequence[str],
        sections: Sequence[Section],
        facts: Sequence[tuple[str, str]] = (),
    ) -> Shown:
        """All of it; `sections` stand between the measures and the outputs."""
        result, groups = self.result, list(self.result.groups)
        listed = ", ".join(groups) if len(groups) <= EXAMPLES else str(len(groups))
        whole = [each for kinds in result.whole.effects.values() for each in kinds.values()]
        controls = [control for effect in whole for control in effect.controls.values()]
        draws = min((control.against.distinct for control in controls), default=0)
        over = f", mean over {len(groups)} {self.group}s" if len(groups) > 1 else ""
        few = {name: part.prompts for name, part in result.groups.items()}
        cautions = [*cautions, *few_parts(few, "prompts", listed=EXAMPLES)]
        words = {key: scale.words for key, scale in {**self.first, **self.rest}.items()}
        left = [NotMeasured(words.get(name, name), why) for name, why in self.missing.items()]
        measures = [
            Section("Selected and random heads", [*self.tables(self.first), *left], brief=True),
            Section(
                "Single draws",
                [
                    comparison.bars(
                        f"{title}: single draws",
                        note="The interval is that of the change, over prompts",
                    )
                    for title, comparison in self.comparisons(self.first)
                ],
            ),
            Section("Other measures", list(self.tables(self.rest))),
        ]
        changed = self.outputs(run / "outputs.jsonl")
        return Shown(
            title,
            lead,
            finding,
            f"{count(result.whole.prompts, 'prompt')}{over}; {draws_words(draws)}.",
            draws_remedy(draws),
            cautions,
            [
                *model_facts(result.model_name, result.model.heads if result.model else None),
                (f"{self.group}s", listed),
                *facts,
                *(ablation_facts(result) if isinstance(result, Ablation) else []),
            ],
            [
                *(section for section in measures if section.blocks),
                *sections,
                *([Section("Outputs", [changed])] if changed.rows else []),
            ],
        )

    def comparisons(self, measures: Mapping[str, Scale]) -> Iterator[tuple[str, Comparison]]:
        """What was measured, by its title: a row for each group and what is done to heads."""
        several = len({kind for part in self.result.parts.values() for kind in part.effects}) > 1
        for measure, scale in measures.items():
            rows = {}
            for name, part in self.result.parts.items():
                title = f"mean of {len(self.result.groups)}" if name == MEAN else name
                for kind, words in self.kinds.items():
                    if (row := _compared(part, kind, measure, scale)) is not None:
                        rows[f"{title}, {words}" if several else title] = row
            if rows:
                yield scale.words, Comparison(rows, "prompts")

    def tables(self, measures: Mapping[str, Scale]) -> Iterator[Table]:
        """Scores, and what selected heads have over random ones, of what was measured."""
        expected = self.expected
        for title, comparison in self.comparisons(measures):
            yield from comparison.tables(title, expected)
            expected = ""  # the first table says it

    def outputs(self, path: Path) -> Table:
        """Outputs beside each other, of the first prompts where selected heads change them.

        InputError if the file is damaged.
        """
        texts: dict[tuple[str, str], dict[str, str]] = {}
        for number, row in read_rows(path):
            try:
                if row["draw"] is None:
                    kinds = texts.setdefault((str(row[self.group]), str(row["id"])), {})
                    kinds[str(row["condition"])] = str(row["output"])
                    kinds["reference"] = row.get("reference") or ""
            except (KeyError, TypeError) as error:
                raise damaged_line(path, number) from error
        kinds = {"baseline": "original", **self.kinds, "reference": "reference"}
        changed: dict[str, list[Row]] = {}
        for (group, name), outputs in texts.items():
            if len({text for kind, text in outputs.items() if kind != "reference"}) > 1:
                cells = (Cell(name), *(Cell(outputs.get(kind) or None) for kind in kinds))
                changed.setdefault(group, []).append(Row(group, cells))
        each = max(1, EXAMPLES // max(1, len(changed)))
        rows = [row for several in changed.values() for row in several[:each]][:EXAMPLES]
        there = [at for at in range(len(kinds) + 1) if any(row.cells[at].value for row in rows)]
        columns = ("prompt", *kinds.values())
        return Table(
            "Outputs that change",
            tuple(columns[at] for at in there),
            tuple(Row(row.name, tuple(row.cells[at] for at in there)) for row in rows),
            note="The first prompts of each group whose output changes: examples, no sample to "
            "count in. All outputs are in outputs.jsonl of the run folder",
        )


def _compared(part: WritingEffects, kind: str, measure: str, scale: Scale) -> Compared | None:
    """A chosen kind by a measure; None where that was not measured."""
    effect = part.effect(kind, measure)
    if effect is None:
        return None
    controls = [effect.controls.get(control) for control in CONTROLS]
    free, matched = (Draws.of(part.draws(kind, control, measure)) for control in CONTROLS)
    tests = [None if control is None else control.against for control in controls]
    size, p = part.sizes.get(kind), effect.p_change
    return Compared(
        scale,
        effect.change,
        effect.baseline,
        effect.value,
        (free, matched),
        (tests[0], tests[1]),
        more={"prompts": Cell(part.prompts), "heads": Cell(size), "p of change": p_cell(p)},
    )


def said(part: WritingEffects, what: str, kind: str, measure: str, scale: Scale) -> list[str]:
    """An effect in words: selected, original and random heads, with intervals and tests."""
    row = _compared(part, kind, measure, scale)
    return [] if row is None else Comparison({kind: row}, "prompts").said(kind, what)
