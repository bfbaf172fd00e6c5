"""How translations fail, in a run folder: of a removal run, or of a file of outputs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from headscope import options
from headscope.data.chat import ChatModel, default_cache
from headscope.errors import Caution, InputError, MissingExtra
from headscope.results.failures import (
    KINDS,
    FailedCase,
    FailedText,
    FailuresResult,
    Judged,
    Judging,
    Selected,
    Sorted,
    Verdict,
)
from headscope.runs import Run, carry_out, encode
from headscope.settings import UNSIGNED, MadeBy, Option, Settings
from headscope.studies.inputs import Progress, steps_of
from headscope.studies.study import Study
from headscope.studies.verify.failure_rows import Choice, Rows, rows_of_file, rows_of_run
from headscope.studies.verify.failures_show import show
from headscope.verify.failures.classify import GOOD, LOSS, Case, Row, Rules, classify, shares
from headscope.verify.failures.judge import Verdicts, judge

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
class VerifyFailures(Settings):
    """Sort failed translations: no translation, hallucination, missing details, other.

    Of a removal run those sentences count that were good before (chrF++ of 50) and lost 20 of it.
    """

    run: Annotated[
        Path | None,
        Option("The folder of a `verify removal` run.", metavar="RUN", argument=True),
    ] = field(default=None, metadata=UNSIGNED)
    outputs: Annotated[
        Path | None,
        Option(
            "Instead of RUN: JSON Lines with id, source, reference, before and after, and "
            "direction and links (0-0 1-2) where known. Every row is sorted.",
            metavar="FILE",
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
        of_run = read.label is not None
        counted = [case for case in cases if case.selected or not of_run]
        verdicts = _judged(config, [case.row for case in counted], progress)
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
            condition=read.label,
            rule=Selected(GOOD, LOSS),
            rules=asdict(config.rules),
            identifier=identifier,
            segmenter=segmenter,
            links=_links(cases),
            directions=_by_direction(cases, of_run),
            judge=None if verdicts is None else _about_judge(config, counted, verdicts),
            cases=tuple(rows),
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
        "give either the folder of a 'verify removal' run, or a file with --outputs FILE.jsonl"
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
    from headscope.data.segmenters import CHARACTERS, has_unspaced, segmenter_name

    texts = ((row.source, row.reference) for row in rows if row.links is None)
    if not any(map(has_unspaced, (text for both in texts for text in both))):
        return None
    if segmenter_name() == CHARACTERS:
        warnings.warn(Caution(UNSEGMENTED), stacklevel=2)
    return segmenter_name()


def _identified(
    rows: Sequence[Row], identifier: str | None, progress: Progress | None
) -> list[str | None]:
    from headscope.measure.identify import identify

    if identifier is None:
        return [None] * len(rows)
    found = identify([row.after for row in rows])
    if progress:
        progress("identifying languages", len(rows), len(rows))
    return found


def _judged(
    config: VerifyFailures, rows: Sequence[Row], progress: Progress | None
) -> Verdicts | None:
    if config.llm is None:
        return None
    return judge(rows, config.llm, steps_of(progress, "judging"))


def _case(case: Case, verdict: Verdict | None, judged: bool) -> FailedCase:
    return FailedCase(
        id=case.row.id,
        direction=case.row.direction,
        kind=case.kind,
        selected=case.selected,
        evidence=case.evidence,
        judged=Judged(verdict) if judged else None,
    )


def _links(cases: Sequence[Case]) -> str | None:
    """What linked words: the data, eflomal, or nothing (of several directions the first)."""
    return next((case.links for case in cases if case.links is not None), None)


def _sorted(cases: Sequence[Case], selected_only: bool) -> Sorted:
    counted = [case for case in cases if case.selected or not selected_only]
    return Sorted(
        rows=len(cases),
        selected=sum(case.selected for case in cases),
        shares=shares(cases, selected_only),
        counts={kind: sum(case.kind == kind for case in counted) for kind in KINDS},
    )


def _by_direction(cases: Sequence[Case], selected_only: bool) -> dict[str, Sorted]:
    directions = dict.fromkeys(case.row.direction for case in cases)
    return {
        direction or "": _sorted(
            [case for case in cases if case.row.direction == direction], selected_only
        )
        for direction in directions
    }


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
        agreement=sum(one == other for one, other in both) / len(both) if both else None,
        rules_and_judge={
            ours: {theirs: sum(one == (ours, theirs) for one in both) for theirs in KINDS}
            for ours in KINDS
        },
        **dict[str, Any](verdicts.stats),
    )


command = Study(VerifyFailures, verify_failures, result=FailuresResult, show=show, loads=False)
