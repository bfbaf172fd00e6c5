"""An aligner's word links beside those that people made, in a run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope import options
from headscope.data.align import EFLOMAL, Alignment, AlignWords, align_file, check_aligner
from headscope.errors import InputError, OptionalPart, naming
from headscope.evidence.blocks import by_part, forest, tables
from headscope.evidence.controls import DEFAULT, Controlled, Draws, drawn
from headscope.evidence.headline import (
    NOT_SHOWN,
    SHOWN,
    Case,
    few_sets,
    ranked,
    resolution,
    turned,
    uncertainty,
    verdict_of,
)
from headscope.evidence.rows import SELECTED, Basis, Condition, Evidence
from headscope.evidence.runner import Within, kept_units
from headscope.find.translation_score_config import (
    NOT_LINKING,
    HeadLinks,
    TranslationScore,
    by_heads,
)
from headscope.heads import HeadSet
from headscope.heads.geometry import keys_of
from headscope.progress import Progress
from headscope.results.common import ComparedResult, Leakage
from headscope.runs import Kept, Record, Run, encode
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import Forest, Gap, HeadSets, Section, Shown, method_section
from headscope.shown.words import count, enumeration, sentence_of
from headscope.studies.going_on import Spent, going_on
from headscope.studies.leakage import check_leakage
from headscope.studies.models import TEMPLATED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_cautions, pair_inputs, read_directions
from headscope.studies.shows import leakage_caution, model_facts, named_places
from headscope.studies.study import Study
from headscope.verify.alignment_evidence import (
    AER,
    BESIDE,
    F1,
    PRECISION,
    RECALL,
    counted,
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

    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: Annotated[
        TranslationScore,
        Nested(
            without=NOT_LINKING,
            changed={"aligner": Option("Whose links: heads (the default), eflomal, or llm.")},
            make=by_heads,
        ),
    ] = field(default_factory=by_heads)
    draws: options.Draws = 99
    controls: options.Controls = DEFAULT
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)

    def parts(self) -> Iterator[OptionalPart]:
        """What the links are compared with, too."""
        yield from super().parts()
        yield EFLOMAL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score.aligner in (None, "links"):
            raise InputError("name the aligner whose links are compared: heads, eflomal or llm")


@dataclass(frozen=True, kw_only=True)
class AlignmentDetails(Record):
    """Whose links were compared with how many that people were `sure` of or found `possible`; of
    heads which, how they link words, and whether they were `found` on the pairs."""

    aligner: str = ""
    heads: tuple[str, ...] = ()
    links_by: HeadLinks | None = None
    found: bool = False
    sure: int = 0
    possible: int = 0
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
    from headscope.find.head_links import HeadLinker, links_of
    from headscope.find.translation_scores import with_heads

    began, seed = time.monotonic(), config.score.seed
    directions = read_directions(config.pairs, config.model.model, "test", seed=seed)
    wanted = {}
    for name, pairs in directions.items():
        with naming(pairs.path):
            wanted[name] = gold(pairs.pairs)
            check_aligner(pairs, BESIDE)
    named = config.score.head_links and config.score.head_links.heads
    leakage = check_leakage(named, directions, config.allow_overlap) if named else None
    lm, aligner = config.model.load_for(), str(config.score.aligner)
    heads_link = aligner == "heads"
    score = with_heads(lm, (), resolved_chat(lm, config.score)) if heads_link else config.score

    def compute(run: Run) -> AlignmentResult:
        kept = Kept(run, "aligned")

        def linked(name: str, whose: str) -> Alignment:
            """Links by an aligner without a seed, made once."""
            asked = AlignWords(whose, llm=score.llm)
            made = kept.made(
                f"{whose} {name}", lambda: align_file(directions[name], asked).as_dict()
            )
            return Alignment.from_dict(made)

        def counts(name: str, whose: str) -> Any:
            rows = zip(linked(name, whose).links, wanted[name], strict=True)
            return np.array([counted(links, *own) for links, own in rows])

        def counts_of_heads(name: str, own: Sequence[Condition], how: TranslationScore) -> Any:
            """Counts (conditions, sentences, 4) from one pass in each direction."""
            sets = [[*each.in_model(lm.geometry)] for each in own]
            heads = list(dict.fromkeys(head for each in sets for head in each))
            places = [[heads.index(head) for head in each] for each in sets]
            made, linker = linked(name, BESIDE), HeadLinker(lm, directions[name], how)
            by = how.head_links or HeadLinks()
            words = list(zip(made.source_words, made.target_words, strict=True))

            def compute(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
                for at, first, second in linker.attention(words, heads, list(map(int, mine))):
                    links = (links_of(first[own], second[own], by) for own in places)
                    yield str(at), [counted(each, *wanted[name][at]) for each in links]

            units = {str(number): 1 for number in range(len(words))}
            done = kept_units(run, f"links {name}", f"linking: {name}", units, compute, progress)
            return np.array([done[number] for number in units]).transpose(1, 0, 2)

        ready = time.monotonic()
        conditions, how = [Condition(of=BESIDE)], score
        parts: dict[str, list[Any]] = {name: [counts(name, BESIDE)] for name in directions}
        if heads_link:
            files = list(directions.values())
            found = kept.made("heads", lambda: encode(with_heads(lm, files, score).head_links))
            how = replace(score, head_links=HeadLinks(**found))
            heads = HeadSet.parse(found["heads"], lm.geometry)
            selected = Condition(SELECTED, k=len(heads), heads=keys_of(heads))
            texts = [[pair.source for pair in pairs.pairs] for pairs in files]
            drawing = Draws(config.draws, config.controls, seed)
            conditions += [selected, *drawn(selected, heads, drawing, Basis.on(lm, texts))]
            for name, own in parts.items():
                own.extend(counts_of_heads(name, conditions[1:], how))
        elif aligner != BESIDE:
            conditions.append(Condition(SELECTED, of=aligner))
            for name, own in parts.items():
                own.append(counts(name, aligner))
        evidence = links_evidence(conditions, parts, seed)
        links = [pair for own in wanted.values() for pair in own]
        details = AlignmentDetails(
            aligner=aligner,
            heads=conditions[1].heads if heads_link else (),
            links_by=how.head_links,
            found=heads_link and not named,
            sure=sum(len(sure) for sure, _ in links),
            possible=sum(len(possible) for _, possible in links),
            leakage=leakage,
        )
        asked = replace(evidence, asked=config.draws)
        cases = [Case(F1, evidence.main)] if evidence.main.heads else []
        spent = Spent.by(run, evidence, began, ready)
        return AlignmentResult(
            evidence=evidence,
            details=details,
            verdict=_verdict(asked),
            next=going_on(COMMAND, run, VerifyAlignment, asked, cases, spent),
            cautions=(
                *few_sets(evidence, config.draws),
                *resolution(evidence, cases, "sentence"),
                *(leakage_caution(leakage) if named else ()),
            ),
        )

    return run_with_model(
        lm, COMMAND, out, {"settings": replace(config, score=score)}, pair_inputs(directions),
        compute, began, seed=seed, kind=AlignmentResult, cautions=pair_cautions(directions),
    )  # fmt: skip


def _verdict(evidence: Evidence) -> str:
    """What is shown against eflomal, and of heads against random ones."""
    level = evidence.level(F1, evidence.selected[0]) if evidence.selected else None
    if level is None or level.change is None:
        return f"no other aligner stands beside {BESIDE}"
    own, gap = evidence.statistics[F1], evidence.statistics[F1].shown(level.change)
    side, turn = ("above", 1) if gap.value >= 0 else ("below", -1)
    found = SHOWN if gap.low > 0 or gap.high < 0 else NOT_SHOWN
    by = turned(own, gap, turn, f" {own.points}")
    words = f"{own.words} is {own.number(level)}, {by} {side} {BESIDE}: {found}"
    if not evidence.main.heads:
        return words
    case = Case(F1, evidence.main)
    tested = [evidence.controls[test.control].words for test in ranked(evidence, case)]
    against = f" against {enumeration(tested)}" if tested else ""
    return f"{words};{against} {verdict_of(evidence, case)}"


def _show(result: AlignmentResult, run: Path) -> Shown:
    evidence, details, by = result.evidence, result.details, result.details.links_by
    main = evidence.selected[0] if evidence.selected else evidence.original
    sentences = count(sum(own.examples for own in (evidence.level(F1, None, part)
                          for part in evidence.single) if own), "sentence")  # fmt: skip
    said = []
    for name in (AER,):
        own, (level, base) = evidence.statistics[name], (evidence.level(name, each)
                                                         for each in (main, None))  # fmt: skip
        beside = f", {BESIDE} {own.number(base)}" if evidence.selected else ""
        said.append(f"{own.words[:1].upper()}{own.words[1:]}: {own.number(level)}{beside}.")
    sections = [tables(evidence, [F1, PRECISION, RECALL, AER], [main], "sentences")]
    asked = ""
    if details.heads and by is not None:
        sets = HeadSets("The heads that link words", {SELECTED: named_places(details.heads)})
        sections.insert(0, Section("Heads", [sets]))
        asked = (
            f"Heads {'chosen by eflomal in these pairs' if details.found else 'given'}; attention: "
            f"{by.weights}, rows: {by.rows}, prompts: {by.prompts}, joined by {by.join}. "
        )
    over = uncertainty(evidence, [Case(F1, main)], sentences, result.verdict)
    return Shown(
        "Word links",
        "Are the word links of this aligner those that people made?",
        [sentence_of(result.verdict), *said],
        over,
        cautions=result.cautions,
        facts=[
            *(model_facts(result.model_name, len(details.heads)) if details.heads else ()),
            ("sentences", sentences.partition(" ")[0]),
            ("links that people made", str(details.sure + details.possible)),
        ],
        sections=[
            *sections,
            method_section(
                f"{asked}The original condition is {BESIDE}, fitted on all of the same files, both "
                "directions intersected. Precision: share of an aligner's links that people made "
                "or found possible; recall: share of people's sure links; F1: their harmonic mean; "
                "AER = 1 \u2212 (|A\u2229S| + |A\u2229P|) / (|A| + |S|). Counts are summed over "
                "sentences; of several directions the plain mean."
            ),
        ],
        figure=_figure(evidence) if evidence.selected else None,
        next=result.next,
    )


def _figure(evidence: Evidence) -> Forest:
    """By part the F1 of the aligner minus that of eflomal and of random heads."""
    title, rows = "F1 of word links: selected minus others", by_part(evidence, F1, evidence.main)
    tested = forest(evidence, rows, title, examples="sentences")
    beside: Mapping[str, tuple[Gap, ...]] = dict(tested.rows) if tested else {}
    gaps = []
    for name, *_, part in rows:
        level = evidence.level(F1, evidence.main, part)
        if level is not None and level.change is not None:
            value, *ends = (100 * end for end in vars(level.change).values())
            gaps.append((name, (Gap(BESIDE, value, *ends), *beside.get(name, ()))))
    sides = "selected worse", "selected better"
    return Forest(title, tuple(gaps), "Difference in pp", sides, 1, over="sentences")


command = Study(
    VerifyAlignment,
    verify_alignment,
    result=AlignmentResult,
    show=_show,
    usage="--pair en-de --limit 50 --align-heads 5.3",
)
