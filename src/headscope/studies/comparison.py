"""The procedure of every command that compares a model with and without heads.

A command is a `Comparison`: its settings, and what it reads, which heads it changes, what it
measures of every example, and what the answer is. Everything between is here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

from headscope import options
from headscope.errors import InputError
from headscope.evidence.controls import Beside, Changing, Draws, SelectedHeads, planned
from headscope.evidence.headline import OPEN, Case, few_sets, headline, resolution
from headscope.evidence.pace import OutOfTime, Pacing, Planned
from headscope.evidence.rows import LEVEL, Basis, Condition, Evidence, Statistic
from headscope.evidence.sequence import decided, in_its_round
from headscope.evidence.table import Numbers, evidence_of_parts
from headscope.executors import Execution
from headscope.heads import Geometry, HeadSet, about_rank
from headscope.progress import Progress
from headscope.results.common import (
    ComparedDetails,
    ComparedResult,
    ModelFacts,
    PlannedWork,
    TableResult,
)
from headscope.runs import decode, encode
from headscope.settings import UNSIGNED
from headscope.shown.blocks import Shown
from headscope.shown.words import count, sentence_of
from headscope.studies.comparison_page import Extras, Words, page
from headscope.studies.examples import Examples as Examples
from headscope.studies.going_on import Spent, going_on
from headscope.studies.models import PROMPTED, ModelChoice, about_model, run_with_model
from headscope.studies.shows import leakage_caution
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.evidence.runner import Replacements
    from headscope.lm import LanguageModel
    from headscope.runs import Run

#: The key of heads that are changed in every part alike.
ALL_PARTS = ""


@dataclass(frozen=True, kw_only=True)
class Comparing(Beside):
    """Settings of every comparison: the model, and the controls."""

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    alpha: options.Alpha = LEVEL


@dataclass(frozen=True, kw_only=True)
class Removing(Comparing, Changing):
    """Settings of a comparison that says what stands in the place of removed heads."""


@dataclass(frozen=True, kw_only=True)
class Selecting(Comparing):
    """Settings of a comparison whose heads are said by `--heads`."""

    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)


@dataclass(frozen=True, kw_only=True)
class InWorkers(Comparing):
    """Settings of a comparison whose parts several processes can compute."""

    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


Config = TypeVar("Config", bound=Comparing)
Part = TypeVar("Part")
AnyResult = TypeVar("AnyResult", bound=ComparedResult)


class Selected(Protocol):
    """Heads, and all that `plan` has to know of them."""

    @property
    def heads(self) -> HeadSet: ...


@dataclass(frozen=True)
class Chosen:
    """The heads that a command changes.

    Attributes:
        sets: by part, or under `ALL_PARTS` for every one: `SelectedHeads`, or what `plan` takes.
        avoid: what the control `outside` leaves out besides; None: nothing.
        note: why that is not known, a clause.
        signed: what else counts in the run's signature.
        known: what else the command has found out about them, for its details.
        gone: heads that another gate has removed already, which no control may draw.
    """

    sets: Mapping[str, Sequence[Selected]]
    avoid: HeadSet | None = None
    note: str | None = None
    signed: Mapping[str, Any] = field(default_factory=dict)
    known: Any = None
    gone: HeadSet | None = None

    def every(self) -> Iterable[HeadSet]:
        """All sets of heads."""
        return (selected.heads for sets in self.sets.values() for selected in sets)


@dataclass(frozen=True)
class Bench(Generic[Config, Part]):
    """All that `measure` is given: the model, what it is asked, and under which conditions.

    `plans` is what `plan` returned, by part; of a mapping its keys are the conditions.
    """

    lm: LanguageModel
    config: Config
    examples: Examples[Part]
    chosen: Chosen
    conditions: Mapping[str, tuple[Condition, ...]]
    plans: Mapping[str, Any]
    basis: Basis
    replaced: Callable[[], Replacements]
    run: Run
    progress: Progress | None

    @property
    def parts(self) -> Mapping[str, Part]:
        """What is measured, by part."""
        return self.examples.parts

    @property
    def prompted(self) -> Mapping[str, Any]:
        """What the model is given of each part, where it is known before `measure`."""
        return self.examples.prompted

    def of(self, part: str) -> tuple[Condition, ...]:
        """The conditions of a part, the model as it is first."""
        return self.conditions[part if part in self.conditions else ALL_PARTS]

    @property
    def replacements(self) -> Replacements:
        """What stands in the place of removed heads, by the kind of ablation."""
        return self.replaced()

    def under(self, wanted: Callable[[Condition], bool]) -> Bench[Config, Part]:
        """The same under those conditions alone that are wanted."""
        plans = {part: _only(plan, wanted) for part, plan in self.plans.items()}
        conditions = {part: tuple(filter(wanted, own)) for part, own in self.conditions.items()}
        return replace(self, conditions=conditions, plans=plans)

    def table(
        self, numbers: Mapping[str, Numbers], statistics: Mapping[str, Statistic], **how: Any
    ) -> Evidence:
        """The table of numbers of examples by part, statistic and condition; `how` goes to
        `evidence`."""
        conditions = {part: self.of(part) for part in numbers}
        return evidence_of_parts(
            conditions, numbers, statistics, self.config.seed, progress=self.progress, **how
        )


class Measured(NamedTuple):
    """The table, and the entries of the details and of the result that only this command has."""

    evidence: Evidence
    about: Mapping[str, Any] = MappingProxyType({})
    beside: Mapping[str, Any] = MappingProxyType({})


def beside_controls(
    sets: Sequence[SelectedHeads], config: Comparing, basis: Basis
) -> tuple[Condition, ...]:
    """The model as it is, and every set at each gate and ablation, with its controls."""
    how = Draws(config.most_draws, config.controls, config.seed)
    return planned(sets, how, basis, config.ablate)


@dataclass(frozen=True, kw_only=True)
class Comparison(Generic[Config, Part]):
    """A command that compares a model with and without heads.

    Attributes:
        command: such as `verify tasks`.
        settings, result, details: types of its own; the docstring of the settings is its help.
        read: settings to examples; what cannot be used is told before the model is loaded.
        ready: settings and examples as this model takes them.
        heads: which heads are changed, by part.
        measure: the numbers of every example under every condition, as a table.
        leads: the statistics of which the verdict is, without it the first: they decide when draws
            end.
        cases: table and details to the cases of which the headline is; without it the first of
            `leads` under the main condition.
        answer: table and details to what stands instead of the headline, empty where nothing does.
        words: what its page says of every result.
        worded: details to other such words, where what is asked differs.
        extras: what the page of a result says that does not follow from its table, such as outputs
            of its run folder.
        examples: what an example is called, in the plural; empty: `cautions` tell of leakage.
        cautions: what weakens the answer, beside what weakens any, in sentences.
        sign: what the details add to the run's signature, such as links that have no seed.
        plan: heads to conditions, the model as it is first.
        usage: arguments as an example, as of a `Study`.
    """

    command: str
    settings: type[Config]
    result: type[ComparedResult] = TableResult
    details: type[ComparedDetails] = ComparedDetails
    read: Callable[[Config], Examples[Part]]
    heads: Callable[[LanguageModel, Config, Examples[Part]], Chosen]
    measure: Callable[[Bench[Config, Part]], Measured]
    leads: Callable[[Evidence], Sequence[str]] = lambda found: [*found.statistics][:1]
    cases: Callable[[Evidence, Any], Sequence[Case]] | None = None
    answer: Callable[[Evidence, Any], str] = lambda found, details: ""
    words: Words
    worded: Callable[[Any], Words] | None = None
    extras: Callable[[Any, Path], Extras] = lambda result, run: Extras()
    examples: str = "texts"
    ready: Callable[[LanguageModel, Config, Examples[Part]], tuple[Config, Examples[Part]]] = (
        lambda lm, config, examples: (config, examples)
    )
    cautions: Callable[[Evidence, Any], Iterable[str]] = lambda found, details: ()
    sign: Callable[[Any], str] = lambda details: ""
    plan: Callable[[Sequence[Any], Config, Basis], Iterable[Condition]] = beside_controls
    usage: str | None = None

    @property
    def study(self) -> Study:
        """Its command, page and function."""
        return Study(self.settings, self.run, result=self.result, show=self.page, usage=self.usage)

    def page(self, result: ComparedResult, run: Path) -> Shown:
        """The page of a result in its run folder."""
        words = self.words if self.worded is None else self.worded(result.details)
        return page(result, words, self.extras(result, run), self.cases_of(result))

    def run(
        self,
        config: Config,
        out: Path | None = None,
        progress: Progress | None = None,
        tell: Callable[[str], object] = lambda words: None,
    ) -> ComparedResult:
        """Compare, and return the command's result; a run that was stopped goes on where it was.

        `tell` is given sentences about the time that it takes. With `minutes` the result is that
        so far where these are over; with `plan` the time alone (`PlannedWork`). Raises `InputError`
        if the heads were found on the examples, unless that is allowed, or if there is no result so
        far.
        """
        began = time.monotonic()
        examples = self.read(config)
        divided = config if isinstance(config, InWorkers) and not config.plan else None
        if divided and divided.execution.elsewhere and config.minutes is not None:
            raise InputError(
                "--minutes is kept by one process, which measures itself; leave --workers out"
            )
        lm = config.model.load_for(divided.execution if divided else None)
        config, examples = self.ready(lm, config, examples)
        reference = examples.reference(lm, config)
        sent = examples.sent(lm, config) or None
        chosen = self.heads(lm, config, examples)
        basis = Basis.on(lm, examples.texts.values(), avoid=chosen.avoid, gone=chosen.gone)
        plans = {part: self.plan(sets, config, basis) for part, sets in chosen.sets.items()}
        if config.in_sequence:
            plans = {part: _in_rounds(plan) for part, plan in plans.items()}
        conditions = {part: tuple(of_part) for part, of_part in plans.items()}
        ranking = about_rank(*chosen.every())
        settings = {
            "settings": config,
            "conditions": {
                part: [f"{condition.id}: {condition.key}" for condition in of_part]
                for part, of_part in conditions.items()
            },
            "rank": ranking["rank"],
            "outside": None if chosen.avoid is None else sorted(chosen.avoid.keys),
            "leakage": encode(examples.leakage),
            **examples.signed,
            **chosen.signed,
            **reference.given,
        }

        pacing = Pacing(
            list(chain.from_iterable(conditions.values())),
            config.alpha if config.in_sequence == "bet" else None,
            count(sum(map(len, examples.texts.values())), self.words.example),
            tell,
            config.minutes,
            config.plan,
        )
        told: list[ComparedResult] = []

        def compute(run: Run) -> Any:
            try:
                return measured(run)
            except Planned:
                return PlannedWork(plan=tuple(pacing.told.values()), first_prompts=sent)
            except OutOfTime as error:
                if not told:
                    raise OutOfTime(
                        f"{error}; no random set is measured yet, so give more minutes or a "
                        "smaller --limit"
                    ) from error
                return replace(told[-1], pending=True)

        def measured(run: Run) -> ComparedResult:
            replaced = cache(lambda: reference.replacements(lm, config))
            bench = Bench(
                lm, config, examples, chosen, conditions, plans, basis, replaced, run, progress
            )
            works = examples.works(lm, config, run, progress)
            run.pace, ready = pacing, time.monotonic()

            def result_of(found: Evidence, made: Measured) -> ComparedResult:
                details = self.details(
                    **ranking,
                    draws=config.most_draws,
                    seed=config.seed,
                    ablate=config.ablate[0],
                    reference_text=reference.facts,
                    leakage=examples.leakage,
                    outside_note=chosen.note,
                    **made.about,
                )
                result = self.result(
                    signature="|".join(filter(None, [run.signature, self.sign(details)])),
                    evidence=replace(found, alpha=config.alpha),
                    details=details,
                    first_prompts=sent,
                    **works,
                    **made.beside,
                )
                spent = Spent.by(run, found, began, ready, pacing)
                return self.with_next(self.concluded(result), run, spent, lm.geometry)

            def so_far(found: Evidence, made: Measured) -> None:
                result = replace(result_of(found, made), model=decode(ModelFacts, about_model(lm)))
                told[:] = [replace(result, command=self.command, run=str(run.path))]
                run.tell(told[0])
                if progress:
                    drawn = 1 + max(each.draw or 0 for each in found.conditions)
                    progress("draws until decided, at most", drawn, config.most_draws)

            return result_of(*self._measured(bench, so_far, pacing))

        return run_with_model(
            lm,
            self.command,
            out,
            settings,
            examples.digests,
            compute,
            began,
            kind=self.result,
            kept=config.kept,
            config=divided,
            chat=examples.chat,
            cautions=examples.cautions,
            seed=config.seed,
            **examples.provenance,
        )

    def _measured(
        self,
        bench: Bench[Config, Part],
        so_far: Callable[[Evidence, Measured], None],
        pacing: Pacing,
    ) -> tuple[Evidence, Measured]:
        """What is measured under all conditions, or, in sequence, under as many as decide."""

        def measure(wanted: Callable[[Condition], bool]) -> tuple[Evidence, Measured]:
            now = bench.under(wanted)
            pacing.measuring(chain.from_iterable(now.conditions.values()))
            made = self.measure(now)
            return made.evidence, made

        config = bench.config
        return decided(
            bench.conditions, measure, self.leads, config.alpha, config.in_sequence, so_far,
            config.claims or (),
        )  # fmt: skip

    def concluded(self, result: AnyResult) -> AnyResult:
        """The result with its verdict and what weakens it, which follow from table and details."""
        details = result.details
        found = replace(result.evidence, asked=details.draws)
        result = replace(result, evidence=found)
        cases, words = self.cases_of(result), self.words
        answer = self.answer(found, details)
        note, leakage = details.outside_note, details.leakage if self.examples else None
        cautions = (
            *(leakage_caution(leakage, self.examples) if leakage else ()),
            *([sentence_of(note)] if note else []),
            *self.cautions(found, details),
            *few_sets(found, details.draws),
            *([] if answer else resolution(found, cases, words.example)),
        )
        answer = answer or headline(found, cases, words.example, words.joint, words.case)
        return replace(result, verdict=answer, cautions=cautions)

    def cases_of(self, result: ComparedResult) -> Sequence[Case]:
        """The cases of which the headline is."""
        found = result.evidence
        if self.cases is not None:
            return self.cases(found, result.details)
        return [Case(name, found.main) for name in [*self.leads(found)][:1]]

    def with_next(
        self, result: AnyResult, run: Run, spent: Spent, geometry: Geometry | None = None
    ) -> AnyResult:
        """The result with the command that decides what its verdict leaves open."""
        if OPEN not in result.verdict:
            return result
        following = going_on(
            self.command, run, self.settings, result.evidence, self.cases_of(result), spent,
            self.words.option, geometry,
        )  # fmt: skip
        return replace(result, next=following)


def _in_rounds(plan: Any) -> Any:
    """What `plan` made, with each draw in its round."""
    if isinstance(plan, Mapping):
        return {in_its_round(condition): how for condition, how in plan.items()}
    return tuple(map(in_its_round, plan))


def _only(plan: Any, wanted: Callable[[Condition], bool]) -> Any:
    """Of what `plan` made that of the conditions that are wanted."""
    if isinstance(plan, Mapping):
        return {condition: how for condition, how in plan.items() if wanted(condition)}
    return tuple(filter(wanted, plan))
