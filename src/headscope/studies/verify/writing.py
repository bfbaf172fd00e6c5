"""What the commands that let a model write share: heads, prompts, outputs, what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import InputError
from headscope.evidence.blocks import (
    bars,
    draws_remedy,
    draws_words,
    few_sets,
    moved,
    parts_table,
    verdict,
    verdicts,
)
from headscope.evidence.rows import Condition, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import Amount, Rank
from headscope.heads.resolve import place_of
from headscope.progress import Progress
from headscope.results.writing import WritingDetails, WritingResult
from headscope.runs import Run
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import Cell, NotMeasured, Row, Section, Shown, Table
from headscope.shown.words import count, enumeration
from headscope.studies.shows import ablation_facts, few_parts, model_facts
from headscope.verify.languages.conditions import FULL, SPECIFIC, LanguageHeads, language_heads
from headscope.verify.writing.measures import OWN, A, B, Numbers
from headscope.verify.writing.texts import Group, write

if TYPE_CHECKING:
    from headscope.evidence.runner import Replacements
    from headscope.lm import LanguageModel
    from headscope.lm.generation import NewlineStop

#: How many heads of a language are changed where nobody says: 1 %, as in LAHIS, at least one.
SHARE = "1%"
#: Conditions that are each said in sentences.
FEW = 2
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


def conditions_settings(groups: Iterable[Group]) -> dict[str, list[str]]:
    """The gates of each group in a run's configuration: the heads themselves, not their place."""
    return {group.name: [f"{each.id}: {each.key}" for each in group.conditions] for group in groups}


def keep_numbers(run: Run, numbers: Mapping[str, Numbers]) -> None:
    """Keep the numbers of every prompt, as `GROUP.STATISTIC`: (conditions, prompts, features)."""
    arrays = {f"{group}.{name}": array
              for group, own in numbers.items() for name, array in own.items()}  # fmt: skip
    run.write_tensors("statistics.safetensors", arrays)


def written(
    lm: LanguageModel,
    groups: Sequence[Group],
    run: Run,
    stop_at_newline: NewlineStop,
    special: bool,
    batch_tokens: int,
    replacements: Replacements,
    progress: Progress | None,
) -> list[list[list[str]]]:
    """The outputs by group, condition and prompt; the run keeps what the model was given, once."""
    from headscope.lm.generation import GenerateConfig

    how = GenerateConfig(batch_tokens=batch_tokens, stop_at_newline=stop_at_newline)
    texts = write(lm, groups, how, run, "writing", progress, special, replacements)
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


#: Whose heads are changed, in words.
WHOSE = {
    "": "selected heads",
    OWN: "a language's own heads",
    OWN + FULL: "a language's most important heads",
    A: "A's heads",
    B: "B's heads",
}


def in_words(condition: Condition) -> str:
    """Selected heads and what is done to them, such as `A's heads at 3 \u00d7 strength`."""
    return f"{WHOSE.get(condition.of, f'heads of {condition.of}')} {condition.done}"


def writing_verdict(found: Evidence, statistic: str) -> str:
    """What selected heads do more than random ones, by one statistic, condition by condition."""
    if statistic not in found.statistics:
        return f"cannot tell: {TEXT_MEASURES[statistic].statistic.words} was not measured"
    known = [each for each in found.selected if found.level(statistic, each)]
    if found.selected and not known:
        return f"cannot tell: {found.statistics[statistic].words} is not known of every language"
    words = {in_words(each): verdict(found, statistic, each) for each in known}
    return verdicts(words, "with")


def writing_cautions(found: Evidence, details: WritingDetails) -> list[str]:
    """Few prompts, and few sets of random heads."""
    few = {code: int(own["prompts"]) for code, own in details.data.items()}
    few = {code: few[code] for code in found.single}
    return [*few_parts(few, "prompts", listed=EXAMPLES), *few_sets(found, details.draws)]


def writing_shown(
    result: WritingResult,
    run: Path,
    title: str,
    lead: str,
    first: Sequence[str],
    rest: Sequence[str],
    finding: Sequence[str] = (),
    sections: Sequence[Section] = (),
    facts: Sequence[tuple[str, str]] = (),
    group: str = "language",
) -> Shown:
    """How a result is shown: the statistics `first` in words and in the terminal, then the `rest`;
    `sections` stand between these and the outputs. `group` is what a part is called.
    """
    found, details = result.evidence, result.details
    parts, whole = found.single, found.level(next(iter(found.statistics)))
    over = f", mean over {len(parts)} {group}s" if len(parts) > 1 else ""
    listed = ", ".join(parts) if len(parts) <= EXAMPLES else str(len(parts))
    draws = min((test.draws for test in found.tests), default=0)
    left = [NotMeasured(TEXT_MEASURES[name].statistic.words, why)
            for name, why in details.not_measured.items()]  # fmt: skip
    known = [name for name in first if name in found.statistics]
    measures = [
        Section(
            "Selected and random heads",
            [*(table for name in known for table in _tables(found, name)), *left],
            brief=True,
        ),
        Section(
            "Single draws",
            [bars(found, name, each, f"{found.statistics[name].words}: {in_words(each)}")
             for name in known for each in found.selected],
        ),
        Section("Other measures", [table for name in rest for table in _tables(found, name)]),
    ]  # fmt: skip
    outputs = _outputs(run / "outputs.jsonl", found, group)
    words = _said(found, known[0]) if known else []
    return Shown(
        title,
        lead,
        [f"{result.verdict[:1].upper()}{result.verdict[1:]}.", *words, *finding],
        f"{count(whole.examples if whole else 0, 'prompt')}{over}; {draws_words(draws)}.",
        draws_remedy(draws),
        result.cautions,
        [
            *model_facts(result.model_name, result.model.heads if result.model else None),
            (f"{group}s", listed),
            *facts,
            *ablation_facts(details),
        ],
        [
            *(section for section in measures if section.blocks),
            *sections,
            *([Section("Outputs", [outputs])] if outputs.rows else []),
        ],
    )


def _begun(words: str) -> str:
    """Words at the beginning of a line; names such as chrF++ stay as they are."""
    return f"{words[:1].upper()}{words[1:]}" if words.split()[0].islower() else words


def _tables(found: Evidence, statistic: str) -> list[Table]:
    """A statistic by part, a table for each condition of selected heads."""
    if statistic not in found.statistics:
        return []
    title = _begun(found.statistics[statistic].title)
    return [
        parts_table(found, statistic, each, f"{title}, {in_words(each)}", "prompts")
        for each in found.selected
    ]


def _said(found: Evidence, statistic: str) -> list[str]:
    """A statistic with selected heads changed; of many conditions all scores, and the lowest."""
    rows = [(each, level) for each in found.selected if (level := found.level(statistic, each))]
    own, base = found.statistics[statistic], found.level(statistic)
    many = []
    if len(rows) > FEW:
        scores = [f"{own.number(level)} with {in_words(each)}" for each, level in rows]
        many = [f"{_begun(own.words)}: {own.number(base)} originally, {enumeration(scores)}."]
        rows = [min(rows, key=lambda row: row[1].value)]
    return [
        *many,
        *(
            line
            for each, _ in rows
            for line in moved(found, statistic, each, f"With {in_words(each)}")
        ),
    ]


def _outputs(path: Path, found: Evidence, group: str) -> Table:
    """Outputs beside each other, of the first prompts where selected heads change them.

    InputError if the file is damaged.
    """
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for number, row in read_rows(path):
        try:
            if row["draw"] is None:
                outputs = texts.setdefault((str(row[group]), str(row["id"])), {})
                outputs[str(row["condition"])] = str(row["output"])
                outputs["reference"] = row.get("reference") or ""
        except (KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    kinds = {found.original.id: "original", **{each.id: in_words(each) for each in found.selected},
             "reference": "reference"}  # fmt: skip
    changed: dict[str, list[Row]] = {}
    for (part, name), outputs in texts.items():
        if len({text for kind, text in outputs.items() if kind != "reference"}) > 1:
            cells = (Cell(name), *(Cell(outputs.get(kind) or None) for kind in kinds))
            changed.setdefault(part, []).append(Row(part, cells))
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
