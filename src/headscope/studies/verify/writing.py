"""What the commands that let a model write share: heads, prompts, outputs, what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headscope.errors import InputError
from headscope.evidence.headline import UNTESTED, Case
from headscope.evidence.rows import ORIGINAL, Condition, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import Amount, Rank
from headscope.heads.resolve import place_of
from headscope.results.writing import (
    Mended,
    OffTarget,
    Steering,
    WritingDetails,
    WritingResult,
)
from headscope.runs import Run
from headscope.runs.reading import damaged_line, read_rows
from headscope.shown.blocks import (
    Block,
    Cell,
    Row,
    Section,
    Table,
    Text,
    table_of,
)
from headscope.shown.words import arrow, fixed
from headscope.studies.comparison import ALL_PARTS, Bench
from headscope.studies.comparison_page import Extras
from headscope.studies.shows import few_parts
from headscope.verify.language_texts.conditions import (
    FULL,
    OWN,
    SPECIFIC,
    LanguageHeads,
    language_heads,
)
from headscope.verify.writing.measures import BY_LANGUAGE, A, B, Numbers
from headscope.verify.writing.texts import Group, Prompt, write

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation import NewlineStop

#: How many heads of a language are changed where nobody says: 1 %, as in LAHIS, at least one.
SHARE = "1%"
#: Conditions that a verdict names; of more it says in how many it holds.
FEW = 2
#: Prompts whose outputs are shown, those that stand open, and the letters of a text there.
EXAMPLES, OPEN, LETTERS = 12, 3, 300
CHANGED = (
    "The first prompts of each group whose output changes: examples, no sample to count in. All "
    "outputs are in outputs.jsonl of the run folder"
)


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


class PromptsFile(Protocol):
    """What prompts are made from."""

    @property
    def path(self) -> str: ...
    @property
    def digest(self) -> str: ...


AnyFile = TypeVar("AnyFile", bound=PromptsFile)


def about_prompts(bench: Bench[Any, AnyFile]) -> dict[str, dict[str, str | int]]:
    """What a result says of the prompts of each part."""
    return {
        part: {"path": file.path, "digest": file.digest, "prompts": len(bench.prompted[part])}
        for part, file in bench.parts.items()
    }


def sent_of(
    prompts: Mapping[str, Sequence[Prompt]],
) -> Callable[[LanguageModel, Any], Mapping[str, str]]:
    """What `Examples` says was sent, of the prompts of each part."""
    first = {part: of_part[0].text for part, of_part in prompts.items()}
    return lambda lm, config: first


def groups_of(bench: Bench[Any, Any]) -> list[Group]:
    """The prompts of every part that has conditions, with these."""
    with_heads = [part for part in bench.parts if {part, ALL_PARTS} & bench.conditions.keys()]
    return [Group(part, bench.prompted[part], bench.of(part)) for part in with_heads]


def keep_numbers(run: Run, numbers: Mapping[str, Numbers]) -> None:
    """Keep the numbers of every prompt, as `GROUP.STATISTIC`: (conditions, prompts, features)."""
    arrays = {f"{group}.{name}": array
              for group, own in numbers.items() for name, array in own.items()}  # fmt: skip
    run.write_tensors("statistics.safetensors", arrays)


def written(
    bench: Bench[Any, Any], groups: Sequence[Group], stop_at_newline: NewlineStop, special: bool
) -> list[list[list[str]]]:
    """The outputs by group, condition and prompt; the run keeps what the model was given, once."""
    from headscope.lm.generation import GenerateConfig

    how = GenerateConfig(batch_tokens=bench.config.batch_tokens, stop_at_newline=stop_at_newline)
    texts = write(
        bench.lm, groups, how, bench.run, "writing", bench.progress, special, bench.replacements
    )
    rows = [
        {"language": group.name, "id": prompt.id, "prompt": prompt.text}
        for group in groups
        for prompt in group.prompts
    ]
    bench.run.write_jsonl("prompts.jsonl", rows)
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
    OWN: "own heads",
    OWN + FULL: "most important heads",
    A: "A's heads",
    B: "B's heads",
}


def in_words(condition: Condition) -> str:
    """Selected heads and what is done to them, such as `A's heads at 3 \u00d7 strength`."""
    return f"{WHOSE.get(condition.of, f'heads of {condition.of}')} {condition.done}"


def writing_cases(found: Evidence, statistic: str) -> list[Case]:
    """Selected heads under every condition in one statistic, where it is known."""
    known = [each for each in found.selected if found.level(statistic, each)]
    return [
        Case(statistic, each, name=in_words(each), lead=f"With {in_words(each)}") for each in known
    ]


def unmeasured(found: Evidence, statistic: str) -> str:
    """Why a statistic is not known; empty where it is."""
    if statistic not in found.statistics:
        return f"{UNTESTED} ({TEXT_MEASURES[statistic].statistic.words} was not measured)"
    if found.selected and not writing_cases(found, statistic):
        words = found.statistics[statistic].words
        return f"{UNTESTED} ({words} is not known of every language)"
    return ""


def mended(groups: Sequence[Group], numbers: Mapping[str, Numbers]) -> dict[str, dict[str, Mended]]:
    """What each condition mends and breaks, by part; parts whose languages are not known have
    none."""
    counts: dict[str, dict[str, Mended]] = {}
    for group in groups:
        if "off_target" not in numbers[group.name]:
            continue
        wrong = numbers[group.name]["off_target"][..., 0] > 0
        before = wrong[[each.kind for each in group.conditions].index(ORIGINAL)]
        counts[group.name] = {
            condition.id: Mended(
                wrong=int(before.sum()),
                mended=int((before & ~now).sum()),
                right=int((~before).sum()),
                broken=int((~before & now).sum()),
            )
            for condition, now in zip(group.conditions, wrong, strict=True)
        }
    return counts


@dataclass(frozen=True)
class _Arm:
    """One language's outputs under a condition, or under all sets of a control, each counted."""

    sets: Sequence[Mended]
    languages: Mapping[str, int]

    def mean(self, number: Callable[[Mended], int]) -> str:
        """The mean of a number over the sets."""
        return fixed(fmean(map(number, self.sets)), int(len(self.sets) > 1)) if self.sets else ""

    def share(self, number: Callable[[Mended], int], of: Callable[[Mended], int]) -> str:
        """The same `of` so many."""
        return f"{self.mean(number)} of {of(self.sets[0])}" if self.sets else ""


def _conditions(found: Evidence) -> Iterator[tuple[str, list[Condition]]]:
    """The original model, and every selected set with each control beside it, in words."""
    yield "original", [found.original]
    for selected in found.selected:
        yield in_words(selected), [selected]
        for kind, control in found.controls.items():
            if drawn := found.of_control(selected, kind):
                words = f"{control.words} beside {in_words(selected)}"
                yield f"{words}, mean of {len(drawn)}", drawn


def languages_section(result: OffTarget | Steering) -> list[Section]:
    """By language asked for: how many outputs are in it, mended and broken, of the original model,
    with selected heads changed and on average over random sets; and in which language instead."""
    found, details = result.evidence, result.details
    rows = []
    for code, written in details.written.items():
        counts = details.mended.get(code, {})
        for words, conditions in _conditions(found):
            sets = [counts[each.id] for each in conditions if each.id in counts]
            alone = conditions[0].draw is None
            arm = _Arm(sets, written.get(conditions[0].id, {}) if alone else {})
            if arm.sets or arm.languages:
                rows.append((f"{code}, {words}", arm))
    table = table_of(
        "Outputs by language asked for",
        rows,
        {
            "in it": lambda arm: arm.share(
                lambda own: own.right - own.broken + own.mended, lambda own: own.right + own.wrong
            ),
            "mended": lambda arm: arm.share(lambda own: own.mended, lambda own: own.wrong),
            "broken": lambda arm: arm.share(lambda own: own.broken, lambda own: own.right),
            "in which language": lambda arm: ", ".join(
                f"{c} {n}" for c, n in arm.languages.items()
            ),
        },
        "Mended: in the language asked for, where the original output is not; broken: the reverse. "
        "Outputs without a letter are in none. The identifier errs on short texts",
    )
    return [Section(BY_LANGUAGE, [table])] if rows else []


def few_prompts(found: Evidence, details: WritingDetails) -> list[str]:
    """The parts with few prompts, in a sentence."""
    sizes = {part: int(details.data[part]["prompts"]) for part in found.single}
    return few_parts(sizes, "prompts", listed=EXAMPLES)


def writing_extras(
    result: WritingResult,
    run: Path,
    statistic: str,
    group: str = "language",
    heads: Mapping[str, Sequence[str]] | None = None,
    facts: Sequence[tuple[str, str]] = (),
    sections: Sequence[Section] = (),
) -> Extras:
    """What the page of a result has beside its table: outputs that change, by `group`, what a part
    is called. Of many conditions the best by `statistic` is spoken of."""
    found, parts = result.evidence, result.evidence.single
    outputs = shown_outputs(_outputs(run / "outputs.jsonl", found, group), CHANGED)
    return Extras(
        conditions=found.selected,
        heads=heads,
        facts=[
            (f"{group}s", ", ".join(parts) if len(parts) <= EXAMPLES else str(len(parts))),
            *facts,
        ],
        sections=[*sections, Section("Outputs", outputs)],
        missing={
            TEXT_MEASURES[name].statistic.words: why
            for name, why in result.details.not_measured.items()
        },
    )


def shown_outputs(rows: Sequence[tuple[str, Mapping[str, str]]], note: str) -> list[Block]:
    """Texts of prompts, each under its words: the first ones to be read, and all as a table."""
    words = dict.fromkeys(word for _, texts in rows for word in texts)
    first = [
        Text(name, tuple((word, shorten(text, LETTERS, placeholder="\u2026"))
                         for word, text in texts.items()))
        for name, texts in rows[:OPEN]
    ]  # fmt: skip
    cells = tuple(
        Row(name, tuple(Cell(texts.get(word) or None) for word in words)) for name, texts in rows
    )
    return [*first, Table("Outputs", tuple(words), cells, note=note)] if rows else []


def _outputs(path: Path, found: Evidence, group: str) -> list[tuple[str, Mapping[str, str]]]:
    """Outputs by condition, of the first prompts of each part where selected heads change them.

    InputError if the file is damaged.
    """
    kinds = {found.original.id: "original", **{each.id: in_words(each) for each in found.selected}}
    texts: dict[str, dict[str, dict[str, str]]] = {}
    references: dict[tuple[str, str], str] = {}
    for number, row in read_rows(path):
        try:
            part, name, kind = str(row[group]), str(row["id"]), kinds.get(row["condition"])
            if kind and row["draw"] is None:
                texts.setdefault(part, {}).setdefault(name, {})[kind] = str(row["output"])
            references[part, name] = row.get("reference") or ""
        except (KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    changed = {
        part: [(name, own) for name, own in several.items() if len({*own.values()}) > 1]
        for part, several in texts.items()
    }
    each = max(1, EXAMPLES // max(1, sum(map(bool, changed.values()))))
    rows = [(part, *row) for part, several in changed.items() for row in several[:each]]
    right = {key: {"reference": text} for key, text in references.items() if text}
    return [
        (f"{arrow(part)}, {name}", own | right.get((part, name), {}))
        for part, name, own in rows[:EXAMPLES]
    ]
