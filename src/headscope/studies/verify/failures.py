"""How translations fail, in a run folder: of a removal run, or of a file of outputs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope import options
from headscope.ablations import AblateName
from headscope.data.align.outputs import REFERENCE
from headscope.data.chat import ChatModel, default_cache
from headscope.data.compared import Compared, read_compared
from headscope.data.languages import Direction, parse_direction, settled_direction
from headscope.data.pairs import Links, Units, linked_words, spans_of
from headscope.errors import InputError, MissingExtra, caution, naming
from headscope.evidence.controls import control_named
from headscope.evidence.rows import ORIGINAL, SELECTED, Condition
from headscope.heads.store import check_finished, with_details
from headscope.progress import Progress, steps_of
from headscope.results.atlas import AtlasResult
from headscope.results.failures import (
    KINDS,
    FailedCase,
    FailedText,
    FailuresResult,
    Judged,
    Judging,
    Selected,
    Sorted,
    Subject,
    Verdict,
)
from headscope.results.removal import RemovalResult
from headscope.runs import Run, carry_out, decode, encode, file_digest
from headscope.runs.reading import damaged_line, read_result, read_rows
from headscope.settings import UNSIGNED, MadeBy, Option, Settings
from headscope.studies.study import Study
from headscope.studies.verify.failures_show import show
from headscope.verify.failures_classes.classify import (
    GOOD,
    LOSS,
    Case,
    Row,
    Rules,
    classify,
    failed,
    shares,
)
from headscope.verify.failures_classes.judge import Verdicts, judge
from headscope.verify.removal_translations.measures import Translations, read_outputs

COMMAND = "verify failures"
UNSEGMENTED = (
    "characters stand for the words of scripts without spaces, which makes kinds less sure; "
    "install the segmenter with: pip install 'headscope[segmentation]'"
)


def _judge(
    judge: Annotated[
        Literal["llm"] | None, Option("llm: a language model sorts them too, beside the rules.")
    ] = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    cache: options.Cache = None,
) -> ChatModel | None:
    if judge is None:
        return None
    if llm_model is None:
        raise InputError("--judge llm needs the name of a model; add --llm-model NAME")
    return ChatModel(llm_model, base_url, cache or default_cache("failures"))


@dataclass(frozen=True)
class Choice(Settings):
    """Which outputs of a removal run are judged; None: the largest k, its first gate and its
    first kind of ablation.

    The first gate is 0, removal, where the run has it. `draw` is that of random heads.
    """

    condition: Annotated[
        str,
        Option("Which heads of RUN were removed: selected, or a control's name.", metavar="NAME"),
    ] = SELECTED
    k: Annotated[int | None, Option("How many; without it the most.", min=1)] = None
    gate: Annotated[float | None, Option("The gate put on them; without it 0, else the first.")] = (
        None
    )
    draw: Annotated[int, Option("Which draw of random heads.", min=0)] = 0
    ablate: Annotated[
        AblateName | None,
        Option("What removed heads gave; without it what RUN names first."),
    ] = None

    def __post_init__(self) -> None:
        if self.condition != SELECTED:
            object.__setattr__(self, "condition", control_named(self.condition))
        super().__post_init__()


@dataclass(frozen=True)
class Rows:
    """Rows to judge and where they are from.

    `condition` is that of a run, None for a file; `random` are the rows of each draw of as many
    random heads, where it is of selected ones. `inputs` are digests of what was read. `subject` is
    the run's model with the condition's heads, `ranked` what these are ranked by.
    """

    rows: tuple[Row, ...]
    path: Path
    condition: Condition | None
    inputs: Mapping[str, str]
    subject: Subject | None = None
    ranked: Mapping[str, Any] = field(default_factory=dict)
    random: tuple[tuple[Row, ...], ...] = ()


@dataclass(frozen=True)
class VerifyFailures(Settings):
    """Sort failed translations: no translation, hallucination, missing details, other.

    Of a removal run, sentences count whose chrF++ was at least 50 before and fell by at least 20.
    """

    run: Annotated[
        Path | None,
        Option("The folder of a `verify removal` run.", metavar="RUN", argument=True),
    ] = field(default=None, metadata=UNSIGNED)
    outputs: Annotated[
        Path | None,
        Option(
            "Instead of RUN: a file with id, source, reference, before and after, and "
            "direction and links (0-0 1-2) where known, with units and aligner as headscope align "
            "writes them. Every row is sorted.",
            metavar="FILE",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    # The languages are those of the file.
    pair: options.Pair = None
    source_language: Annotated[str | None, Option("Instead of --pair.", metavar="CODE")] = None
    target_language: Annotated[str | None, Option("Instead of --pair.", metavar="CODE")] = None
    choice: Choice = field(default_factory=Choice)
    rules: Rules = field(default_factory=Rules)
    llm: Annotated[ChatModel | None, MadeBy(_judge)] = None


def verify_failures(
    config: VerifyFailures, out: Path | None = None, progress: Progress | None = None
) -> FailuresResult:
    """Sort every row, keep the cases in the run folder, and return the result.

    Of a removal run the shares are over the selected rows (good before, bad after), of a file
    over all, and the judge is asked about the same rows. Its answers are cached, so that a run
    that was stopped asks for none twice.
    """
    began = time.monotonic()
    read = _read(config)
    identifier, segmenter = _identifier(), _segmenter(read.rows)
    settings = {"settings": config, "identifier": identifier, "segmenter": segmenter}
    about = {"data": str(read.path)}

    def compute(run: Run) -> FailuresResult:
        languages = _identified(read.rows, identifier, progress)
        cases = classify(read.rows, languages, config.rules)
        of_run = read.condition is not None
        counted = [case for case in cases if case.selected or not of_run]
        verdicts = None
        if config.llm is not None:
            rows_to_judge = [case.row for case in counted]
            verdicts = judge(rows_to_judge, config.llm, steps_of(progress, "judging"))
        judged = dict(zip(map(id, counted), verdicts.verdicts if verdicts else (), strict=False))
        rows = [_case(case, judged.get(id(case)), verdicts is not None) for case in cases]
        texts = (
            FailedText(
                **vars(row),
                source=case.row.source,
                reference=case.row.reference,
                before=case.row.before,
                after=case.row.after,
            )
            for row, case in zip(rows, cases, strict=True)
        )
        run.write_jsonl("cases.jsonl", map(encode, texts))
        return FailuresResult(
            **vars(_sorted(cases, of_run)) | {"unknown": read.ranked},
            of=str(read.path),
            subject=read.subject,
            condition=read.condition,
            rule=Selected(GOOD, LOSS),
            rules=asdict(config.rules),
            identifier=identifier,
            segmenter=segmenter,
            links=next((case.links for case in cases if case.links is not None), None),
            directions={
                name or "": _sorted([case for case in cases if case.row.direction == name], of_run)
                for name in dict.fromkeys(case.row.direction for case in cases)
            },
            judge=None if verdicts is None else _about_judge(config, counted, verdicts),
            cases=tuple(rows),
            random=_random(read, identifier, config.rules) or None,
        )

    return carry_out(
        COMMAND, out, settings, read.inputs, compute, began, about, kind=FailuresResult
    )


def _read(config: VerifyFailures) -> Rows:
    if config.outputs is not None and config.run is None:
        languages = config.pair, config.source_language, config.target_language
        return rows_of_file(config.outputs, *languages)
    if config.run is not None and config.outputs is None:
        if config.pair or config.source_language or config.target_language:
            raise InputError(
                f"{config.run} knows its languages; give --pair and the languages with --outputs"
            )
        return rows_of_run(config.run, config.choice)
    raise InputError(
        "give either the folder of a 'verify removal' run, or a file with --outputs FILE"
    )


def _identifier() -> str | None:
    """The language identifier, None where it is not installed."""
    from headscope.measure.identify import identifier_name

    try:
        return identifier_name()
    except MissingExtra:
        return None


def _segmenter(rows: Sequence[Row]) -> str | None:
    """What found the words of scripts without spaces; None where there are none to find.

    Where nothing is installed that could, characters stand for words, and it warns (`Caution`).
    """
    from headscope.data.words import CHARACTERS, has_unspaced, segmenter_name

    texts = (
        (row.source, row.reference) for row in rows if row.links is None or row.units is not None
    )
    if not any(map(has_unspaced, (text for both in texts for text in both))):
        return None
    if segmenter_name() == CHARACTERS:
        caution(UNSEGMENTED)
    return segmenter_name()


def _identified(
    rows: Sequence[Row], identifier: str | None, progress: Progress | None
) -> list[str | None]:
    from headscope.measure.identify import identify

    if identifier is None:
        return [None] * len(rows)
    languages = identify([row.after for row in rows])
    if progress:
        progress("identifying languages", len(rows), len(rows))
    return languages


def _case(case: Case, verdict: Verdict | None, judged: bool) -> FailedCase:
    return FailedCase(
        id=case.row.id,
        direction=case.row.direction,
        kind=case.kind,
        selected=case.selected,
        evidence=case.evidence,
        judged=Judged(verdict) if judged else None,
    )


def _sorted(cases: Sequence[Case], selected_only: bool) -> Sorted:
    counted = [case for case in cases if case.selected or not selected_only]
    return Sorted(
        rows=len(cases),
        selected=sum(case.selected for case in cases),
        shares=shares(cases, selected_only),
        counts={kind: sum(case.kind == kind for case in counted) for kind in KINDS},
    )


def _random(read: Rows, identifier: str | None, rules: Rules) -> tuple[Sorted, ...]:
    """What every draw of random heads makes fail, sorted with the words of all sentences known."""
    lost = [[row for row, bad in zip(rows, failed(rows), strict=True) if bad]
            for rows in read.random]  # fmt: skip
    every = [*read.rows, *(row for rows in lost for row in rows)]
    cases = classify(every, _identified(every, identifier, None), rules) if read.random else []
    left = iter(cases[len(read.rows) :])
    sorted_ = (_sorted(list(islice(left, len(rows))), True) for rows in lost)
    return tuple(replace(own, rows=len(read.rows)) for own in sorted_)


def _about_judge(config: VerifyFailures, cases: Sequence[Case], verdicts: Verdicts) -> Judging:
    """The judge's shares, and how often the rules agree with it, over the rows it answered."""
    both = [
        (case.kind, verdict.kind)
        for case, verdict in zip(cases, verdicts.verdicts, strict=True)
        if verdict is not None
    ]
    chosen = [kind for _, kind in both]
    return Judging(
        model=config.llm.model if config.llm else None,
        shares={k: chosen.count(k) / len(both) if both else None for k in KINDS},
        agreement=sum(a == other for a, other in both) / len(both) if both else None,
        rules_and_judge={
            ours: {theirs: sum(pair == (ours, theirs) for pair in both) for theirs in KINDS}
            for ours in KINDS
        },
        **dict[str, Any](verdicts.stats),
    )


def rows_of_file(
    path: Path,
    pair: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Rows:
    """The rows of a file; languages apply to all rows that name no direction.

    Without any the language identified in an output says nothing about the kind.
    """
    given = settled_direction(pair, source_language, target_language)
    compared, digest = read_compared(path)
    known: dict[str | None, Direction | None] = {None: given}
    for row in compared:
        if row.direction not in known and row.direction is not None:
            with naming(path):
                known[row.direction] = parse_direction(row.direction)
    rows = tuple(_row(row, known[row.direction]) for row in compared)
    return Rows(rows, path, None, {"outputs": digest})


def rows_of_run(path: Path, choice: Choice = Choice()) -> Rows:
    """The rows of a finished run that removed heads: its baseline is what was before.

    Where the run linked outputs by the data's own links, those of the references are used. Raises
    `InputError` if the run is unfinished or damaged, or has no such condition.
    """
    check_finished(path)
    written = read_result(path)
    kind = AtlasResult if "overlap" in with_details(written) else RemovalResult
    try:
        result: AtlasResult | RemovalResult = decode(kind, written)
    except (KeyError, ValueError) as error:
        raise _no_removal(path) from error
    removed = result.details.removed
    if not removed.directions or "text" not in result.details.measures:
        raise _no_removal(path)
    ids, made = read_outputs(path / "outputs.jsonl", removed.directions)
    conditions = [each for each in result.evidence.conditions if each.id in ids]
    condition = _chosen(path, conditions, choice)
    if result.evidence.original.id not in ids:
        raise InputError(f"{path / 'outputs.jsonl'}: holds no outputs of the model as it is")
    before, after = ids.index(result.evidence.original.id), ids.index(condition.id)
    inputs = {"outputs": file_digest(path / "outputs.jsonl")}
    links: Mapping[tuple[str, str], tuple[Links, Units]] = {}
    linked = removed.links
    if linked and linked.method == REFERENCE and (path / "links.jsonl").is_file():
        links = _reference_links(path / "links.jsonl")
        inputs["links"] = file_digest(path / "links.jsonl")
    aligner = None if linked is None else linked.aligner

    def rows_after(after: int) -> tuple[Row, ...]:
        return tuple(
            Row(
                identifier,
                texts_of.sources[at],
                texts_of.references[at],
                texts_of.texts[before][at],
                texts_of.texts[after][at],
                name,
                removed.directions[name].source,
                removed.directions[name].target,
                *_between(links.get((name, identifier)), texts_of, at),
                aligner,
            )
            for name, texts_of in made.items()
            for at, identifier in enumerate(texts_of.ids)
        )

    random = tuple(
        rows_after(ids.index(each.id))
        for each in conditions
        if condition.kind == SELECTED and each.kind == "random" and each.case == condition.case
    )
    subject = Subject(result.model, condition.heads)
    ranked: dict[str, Any] = {"rank": None}  # random heads are the top of nothing
    if condition.kind == SELECTED:
        ranked = {"rank": result.details.rank, "rank_note": result.details.rank_note}
    return Rows(rows_after(after), path, condition, inputs, subject, ranked, random)


def _no_removal(path: Path) -> InputError:
    return InputError(
        f"{path / 'result.json'}: is not the result of a run that removes heads; name the "
        "folder of a 'verify removal' run"
    )


def _row(compared: Compared, languages: Direction | None) -> Row:
    if languages is None:
        return Row(**vars(compared))
    return Row(
        **{**vars(compared), "direction": compared.direction or str(languages)},
        source_language=languages.source,
        target_language=languages.target,
    )


def _chosen(path: Path, conditions: Sequence[Condition], choice: Choice) -> Condition:
    """The condition asked for; InputError naming those that the run has."""

    def narrowed(
        named: Sequence[Condition], what: str, has: Iterable[object]
    ) -> Sequence[Condition]:
        if not named:
            known = ", ".join(dict.fromkeys(map(str, has))) or "none"
            raise InputError(f"{path}: has no {what}; it has {known}")
        return named

    kind, others = choice.condition, [row.kind for row in conditions if row.kind != ORIGINAL]
    kinds = narrowed([row for row in conditions if row.kind == kind], f"condition {kind!r}", others)
    k = choice.k if choice.k is not None else max(row.k for row in kinds)
    sizes = sorted(row.k for row in kinds)
    sized = narrowed([row for row in kinds if row.k == k], f"{kind} condition with k {k}", sizes)
    gates = [row.gate for row in sized]
    gate = choice.gate if choice.gate is not None else 0.0 if 0.0 in gates else gates[0]
    gated = narrowed(
        [row for row in sized if row.gate == gate],
        f"condition with the gate {gate:g}",
        (f"{gate:g}" for gate in gates),
    )
    ablate = choice.ablate or gated[0].replacement
    ablated = narrowed(
        [row for row in gated if row.replacement == ablate],
        f"condition by {ablate} ablation",
        (row.replacement for row in gated),
    )
    draws = [row for row in ablated if row.draw in (None, choice.draw)]
    most = max(row.draw or 0 for row in ablated)
    return narrowed(draws, f"draw {choice.draw}", [f"0 to {most}"])[0]


def _between(
    known: tuple[Links, Units] | None, texts: Translations, at: int
) -> tuple[Links | None, Units | None]:
    """Links of a source and its reference, and their units, None for white-space pieces."""
    links, units = known or (None, None)
    pieces = spans_of(linked_words(texts.sources[at], texts.references[at]))
    return links, None if units == pieces else units


def _reference_links(path: Path) -> dict[tuple[str, str], tuple[Links, Units]]:
    """Links of sources and references with their units, by direction and id."""
    links: dict[tuple[str, str], tuple[Links, Units]] = {}
    for number, row in read_rows(path):
        try:
            if row["condition"] == "reference":
                pairs = ((int(i), int(j)) for i, j in row["links"])
                source, target = (
                    tuple((int(start), int(end)) for start, end in row[side])
                    for side in ("source_spans", "output_spans")
                )
                key = str(row["direction"]), str(row["id"])
                links[key] = frozenset(pairs), (source, target)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_line(path, number) from error
    return links


command = Study(
    VerifyFailures,
    verify_failures,
    result=FailuresResult,
    show=show,
    loads=False,
    usage="runs/removal",
)
