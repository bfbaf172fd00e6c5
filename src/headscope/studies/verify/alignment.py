"""An aligner's word links beside those that people made, in a run folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from headscope import options
from headscope.data.align import Alignment, AlignWords, LlmAligner, align_file, check_aligner
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.errors import naming
from headscope.evidence.blocks import (
    by_part,
    few_sets,
    forest,
    tables,
    uncertainty,
    verdict,
)
from headscope.evidence.controls import DEFAULT, Controlled, drawn
from headscope.evidence.rows import SELECTED, Basis, Condition, Evidence
from headscope.find.translation_config import (
    HEAD_LINKS,
    HeadLinks,
    TranslationScore,
    check_head_links,
    llm_aligner,
)
from headscope.heads import HeadSet
from headscope.progress import Progress
from headscope.results.common import ComparedResult, Leakage
from headscope.runs import Kept, Record, Run, encode
from headscope.settings import GIVEN, UNSIGNED, MadeBy
from headscope.shown.blocks import Forest, Gap, HeadSets, Section, Shown, method_section
from headscope.shown.words import count, sentence_of
from headscope.studies.leakage import check_leakage
from headscope.studies.models import PROMPTED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_inputs, read_directions
from headscope.studies.shows import leakage_caution, model_facts, named_places
from headscope.studies.study import Study
from headscope.verify.links import (
    AER,
    BESIDE,
    F1,
    PRECISION,
    RECALL,
    counted,
    counts_of,
    gold,
    links_evidence,
)

COMMAND = "verify alignment"


@dataclass(frozen=True)
class VerifyAlignment(Controlled):
    """Compare an aligner's word links with links that people made, and with those of eflomal.

    Precision, recall, F1 and AER (sure links are written 1-2, possible ones 1p2). Heads also stand
    beside random ones; without --align-heads they are found by eflomal's links of the same pairs.
    """

    aligner: Annotated[
        Literal["heads", "eflomal", "llm"], options.Option("Whose links are compared.")
    ] = "heads"
    head_links: Annotated[HeadLinks | None, HEAD_LINKS] = None
    llm: Annotated[LlmAligner | None, MadeBy(llm_aligner)] = field(default=None, metadata=GIVEN)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    draws: options.Draws = 99
    controls: options.Controls = DEFAULT
    seed: options.Seed = 0
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_head_links(self.aligner, self.head_links)


@dataclass(frozen=True, kw_only=True)
class AlignmentDetails(Record):
    """Whose links were compared with how many `sure` and `possible` ones that people made, by
    direction; of heads which, and how they link words."""

    aligner: str = ""
    heads: tuple[str, ...] = ()
    links_by: HeadLinks | None = None
    found: bool = False
    sure: dict[str, int] = field(default_factory=dict)
    possible: dict[str, int] = field(default_factory=dict)
    leakage: Leakage | None = None


@dataclass(frozen=True, kw_only=True)
class AlignmentResult(ComparedResult):
    """The result of `verify alignment`; the original condition is eflomal, fitted on the pairs."""

    details: AlignmentDetails = field(default_factory=AlignmentDetails)


def verify_alignment(
    config: VerifyAlignment, out: Path | None = None, progress: Progress | None = None
) -> AlignmentResult:
    """Link the words, count, and compare; a run that was stopped goes on.

    The run keeps the links of eflomal, which has no seed, and the counts of every sentence under
    every set of heads. Raises `InputError` for pairs without links that people made.
    """
    from headscope.find.head_links import HeadLinker
    from headscope.find.translation import with_heads, with_named_heads

    began = time.monotonic()
    directions = read_directions(config.pairs, config.model.model, "test", seed=config.seed)
    wanted = {}
    for name, pairs in directions.items():
        with naming(pairs.path):
            wanted[name] = gold(pairs.pairs)
            check_aligner(pairs, "eflomal")
    how, by_heads = config.head_links or HeadLinks(), config.aligner == "heads"
    leakage = None
    if by_heads and how.heads is not None:
        leakage = check_leakage(how.heads, directions, config.allow_overlap)
    lm = config.model.load_for()
    score = TranslationScore(
        aligner=config.aligner, head_links=config.head_links, template=config.template,
        chat=config.chat, seed=config.seed, batch_tokens=config.batch_tokens,
    )  # fmt: skip
    score = with_named_heads(lm, resolved_chat(lm, score) if by_heads else score)
    signed = replace(config, head_links=score.head_links, chat=score.chat)

    def compute(run: Run) -> AlignmentResult:
        kept = Kept(run, "aligned")

        def linked(name: str, pairs: PairFile, aligner: str) -> Alignment:
            """Links by an aligner without a seed, made once."""
            asked = AlignWords(aligner, llm=config.llm)
            return Alignment.from_dict(
                kept.made(f"{aligner} {name}", lambda: align_file(pairs, asked).as_dict())
            )

        def counts(name: str, made: Alignment) -> Any:
            rows = zip(made.links, wanted[name], strict=True)
            return np.array([counted(links, *own) for links, own in rows])

        beside = {name: linked(name, pairs, BESIDE) for name, pairs in directions.items()}
        parts = {name: [counts(name, own)] for name, own in beside.items()}
        conditions, settled = [Condition(of=BESIDE)], score
        if by_heads:
            files = list(directions.values())
            named = kept.made("heads", lambda: encode(with_heads(lm, files, score).head_links))
            settled = replace(score, head_links=HeadLinks(**named))
            heads = HeadSet.parse(named["heads"], lm.geometry)
            selected = Condition(SELECTED, k=len(heads), heads=tuple(map(str, heads)))
            texts = [[pair.source for pair in pairs.pairs] for pairs in files]
            conditions += [selected, *drawn(selected, heads, config, Basis.on(lm, texts))]
            for name, pairs in directions.items():
                own = beside[name]
                words = list(zip(own.source_words, own.target_words, strict=True))
                linker = HeadLinker(lm, pairs, settled)
                parts[name] += [*counts_of(linker, words, conditions[1:], run, name, progress)]
        elif config.aligner != BESIDE:
            conditions.append(Condition(SELECTED, of=config.aligner))
            for name, pairs in directions.items():
                parts[name].append(counts(name, linked(name, pairs, config.aligner)))
        evidence = links_evidence(conditions, parts, config.seed)
        result = AlignmentResult(
            evidence=evidence,
            details=AlignmentDetails(
                aligner=config.aligner,
                heads=conditions[1].heads if by_heads else (),
                links_by=settled.head_links,
                found=by_heads and how.heads is None,
                sure={name: sum(len(sure) for sure, _ in own) for name, own in wanted.items()},
                possible={name: sum(len(more) for _, more in own) for name, own in wanted.items()},
                leakage=leakage,
            ),
        )
        return replace(
            result, verdict=_verdict(evidence), cautions=tuple(few_sets(evidence, config.draws))
        )

    return run_with_model(
        lm, COMMAND, out, {"settings": signed}, pair_inputs(directions), compute, began,
        seed=config.seed, kind=AlignmentResult,
    )  # fmt: skip


def _verdict(evidence: Evidence) -> str:
    """What is shown against eflomal, and of heads against random ones."""
    if not evidence.selected:
        level = evidence.level(F1)
        return f"F1 {evidence.statistics[F1].number(level)}; no other aligner beside it"
    main = evidence.selected[0]
    level = evidence.level(F1, main)
    change = level.change if level else None
    words = f"no difference from {BESIDE} shown"
    if change is not None and change.bounded and (change.low > 0 or change.high < 0):
        words = f"{'better' if change.low > 0 else 'worse'} links than {BESIDE}"
    return f"{words}; {verdict(evidence, F1, main)}" if main.heads else words


def _show(result: AlignmentResult, run: Path) -> Shown:
    evidence, details = result.evidence, result.details
    main = evidence.selected[0] if evidence.selected else evidence.original
    base = evidence.level(F1)
    sentences = sum(own.examples for own in evidence.levels
                    if own.condition == evidence.original.id and own.statistic == F1
                    and own.part in evidence.single)  # fmt: skip
    said = []
    for name in (F1, AER) if evidence.selected else (PRECISION, RECALL):
        own, level = evidence.statistics[name], evidence.level(name, main)
        before = evidence.level(name) if evidence.selected else None
        words = f"{own.words[:1].upper()}{own.words[1:]}: {own.number(level)}"
        said.append(f"{words}, {BESIDE} {own.number(before)}." if before else f"{words}.")
    over, remedy = f"Intervals are over {count(sentences, 'sentence')}.", ""
    if details.heads:
        over, remedy = uncertainty(evidence, F1, main, count(sentences, "sentence"))
    by, cautions = details.links_by, list(result.cautions)
    if details.heads and not details.found:
        cautions += leakage_caution(details.leakage)
    sections = [tables(evidence, [F1, PRECISION, RECALL, AER], main, "sentences")]
    if details.heads:
        sets = HeadSets("The heads that link words", {SELECTED: named_places(details.heads)})
        sections.insert(0, Section("Heads", [sets]))
    asked = (
        f"Heads link words by {by.weights} on the source, rows {by.rows}, prompts {by.prompts}, "
        f"directions joined by {by.join}; those and their rows "
        + ("chosen by eflomal's links of these pairs. " if details.found else "given. ")
        if by is not None and by.rows is not None
        else ""
    )
    return Shown(
        "Word links",
        "Are the word links of this aligner those that people made?",
        [sentence_of(result.verdict), *said],
        over,
        remedy,
        cautions,
        [
            *(model_facts(result.model_name, len(details.heads)) if details.heads else ()),
            ("sentences", str(sentences)),
            ("links that people made", str(sum(details.sure.values()))),
        ],
        [
            *sections,
            method_section(
                f"{asked}The original condition is {BESIDE}, fitted on all pairs of the same "
                "files, both directions intersected. Precision: share of the aligner's links that "
                "people made or found possible; recall: share of people's sure links; F1: their "
                "harmonic mean; AER = 1 \u2212 (|A\u2229S| + |A\u2229P|) / (|A| + |S|). Counts "
                "are summed over sentences; of several directions the plain mean."
            ),
        ],
        _figure(evidence, main) if evidence.selected and base else None,
    )


def _figure(evidence: Evidence, main: Condition) -> Forest:
    """By part the F1 of the aligner minus that of eflomal and of random heads."""
    title = "F1 of word links: selected minus others"
    rows = by_part(evidence, F1, main)
    tested = forest(evidence, rows, title)
    beside = dict(tested.rows) if tested else {}
    drawn_rows = []
    for name, *_, part in rows:
        level = evidence.level(F1, main, part)
        change = None if level is None else level.change
        if change is not None:
            value, low, high = (100 * end for end in (change.value, change.low, change.high))
            drawn_rows.append((name, (Gap(BESIDE, value, low, high), *beside.get(name, ()))))
    return Forest(
        title, tuple(drawn_rows), "Difference in pp", ("selected worse", "selected better"), 1
    )


command = Study(VerifyAlignment, verify_alignment, result=AlignmentResult, show=_show)
