"""Simultaneous translation by chosen heads, measured in a run folder or of what stdin brings."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.data.rows import clean_text
from headscope.data.words import running_words
from headscope.errors import InputError
from headscope.evidence.blocks import levels_table, tables, uncertainty, verdict
from headscope.evidence.controls import DEFAULT, Controlled, drawn
from headscope.evidence.rows import ORIGINAL, SELECTED, Condition, Evidence, Statistic
from headscope.evidence.runner import Within, kept_units
from headscope.evidence.table import evidence as table
from headscope.evidence.texts import TEXT_MEASURES, Outputs, measured_texts
from headscope.executors import Execution
from headscope.heads import HeadSet, about_rank, resolve_heads
from headscope.measure.baseline import Rules
from headscope.measure.latency import LATENCIES, curve_statistics, quality_between
from headscope.measure.statistics import counted, counted_mean
from headscope.progress import Progress
from headscope.results.common import BaselineCheck, ComparedResult, Leakage, Ranking
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Nested, Option, Settings, build
from headscope.shown.blocks import HeadSets, Lines, Section, Series, Shown, method_section
from headscope.shown.words import count, fixed, sentence_of
from headscope.studies.baseline import check_translations
from headscope.studies.leakage import check_leakage
from headscope.studies.models import PROMPTED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_inputs, read_direction, read_directions
from headscope.studies.shows import leakage_caution, model_facts, named_places
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.use.interpreting import Policy

COMMAND = "use simultaneous"
WAIT_K, LOCAL_AGREEMENT = "wait-k", "local agreement"
#: A policy at all its settings together; and how a setting of each is called.
CURVE, FRONTIER = "curve", "frontier"
#: Measures whose mean over latencies is tested.
QUALITIES = ("chrf", "bleu")


@dataclass(frozen=True)
class Policies(Controlled):
    """When something is written, and what the heads are compared with.

    Each number of `frontier`, `wait` and `agreement` is a point of a policy's curve.
    """

    frontier: Annotated[
        tuple[int, ...],
        Option(
            "AlignAtt: a token waits while its heads' attention is on so many last words; "
            "repeatable.",
            min=0,
        ),
    ] = (1, 2, 4)
    wait: Annotated[
        tuple[int, ...],
        Option("wait-k: words read before the first one is written; repeatable.", min=1),
    ] = (1, 3, 5, 7)
    agreement: Annotated[
        tuple[int, ...],
        Option("Local agreement: drafts in a row that must agree; repeatable.", min=2),
    ] = (2, 3)
    step: Annotated[int, Option("Words read at a time.", min=1)] = 1
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    max_new_tokens: options.MaxNewTokens = None
    draws: options.Draws = 19
    controls: options.Controls = DEFAULT
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    answer_only: bool | None = None

    def __post_init__(self) -> None:
        for name in (FRONTIER, "wait", "agreement"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise InputError(f"--{name} is {values or 'empty'}; give numbers, each once")
        super().__post_init__()


@dataclass(frozen=True)
class UseSimultaneous(Settings):
    """Translate while the source arrives word by word; where heads look says when to wait.

    AlignAtt with the --heads, at each --frontier, beside wait-k, local agreement and random heads:
    quality by latency. With --stream lines from stdin are translated as their words arrive, at the
    first --frontier.
    """

    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        options.Amount | None,
        Option(
            "Number of heads, or a share such as 2%; without it a set is used whole, and of "
            "scores 20 heads, or 15% in a model of fewer than 256.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=None, metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    policies: Policies = field(default_factory=Policies)
    stream: Annotated[bool, Option("Translate stdin to stdout, a sentence a line.")] = field(
        default=False, metadata=UNSIGNED
    )
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


@dataclass(frozen=True, kw_only=True)
class SimultaneousDetails(Ranking):
    """What was compared: AlignAtt of `heads` and the others, in words read `step` at a time.

    `latency` is the range of LAAL, by direction, in which qualities are compared;
    `cpu_seconds_a_word` is what a word of the source takes at the first frontier, with all heads of
    the comparison watched.
    """

    heads: tuple[str, ...] = ()
    frontier: tuple[int, ...] = ()
    wait: tuple[int, ...] = ()
    agreement: tuple[int, ...] = ()
    step: int = 1
    draws: int = 0
    latency: dict[str, tuple[float, float]] = field(default_factory=dict)
    cpu_seconds_a_word: float | None = None
    leakage: Leakage | None = None
    baseline_check: BaselineCheck = field(default_factory=BaselineCheck)


@dataclass(frozen=True, kw_only=True)
class SimultaneousResult(ComparedResult):
    """The result of `use simultaneous`; `original` is the translation of whole sentences."""

    details: SimultaneousDetails = field(default_factory=SimultaneousDetails)


def use_simultaneous(
    config: UseSimultaneous, out: Path | None = None, progress: Progress | None = None
) -> SimultaneousResult:
    """Translate every sentence by every policy; a run that was stopped goes on.

    Writes `outputs.jsonl`: every translation, with the words read at each of its words.
    """
    began = time.monotonic()
    if config.stream:
        raise InputError(
            "stream is for the command line; in Python iterate over "
            "headscope.use.interpreting.interpret"
        )
    seed = config.policies.seed
    directions = read_directions(config.pairs, config.model.model, "test", seed=seed)
    leakage = check_leakage(config.heads, directions, config.allow_overlap)
    lm = config.model.load_for(config.execution)
    policies = resolved_chat(lm, config.policies)
    heads = resolve_heads(config.heads, config.k, lm.geometry, by=config.rank)
    if not len(heads):
        raise InputError(f"{config.heads}: holds no heads, so none can look; name some")
    conditions = planned(heads, policies)
    settings = {
        "settings": replace(config, policies=policies),
        "heads": list(map(str, heads)),
        "leakage": encode(leakage),
    }

    def compute(run: Run) -> SimultaneousResult:
        works = check_translations(lm, directions, policies, run, config.baseline, progress)
        units = interpretations(lm, directions, conditions, policies, run, progress)
        evidence, latency = simultaneous_evidence(conditions, directions, units, seed)
        run.write_jsonl("outputs.jsonl", _rows(conditions, directions, units))
        words = sum(
            len(running_words(pair.source)) for each in directions.values() for pair in each.pairs
        )
        seconds = sum(unit["seconds"] for each in units.values() for unit in each)
        result = SimultaneousResult(
            baseline_works=works["baseline_works"],
            evidence=evidence,
            details=SimultaneousDetails(
                **about_rank(heads),
                heads=tuple(map(str, heads)),
                frontier=policies.frontier,
                wait=policies.wait,
                agreement=policies.agreement,
                step=policies.step,
                draws=policies.draws,
                latency=latency,
                cpu_seconds_a_word=seconds / words,
                leakage=leakage,
                baseline_check=works["baseline_check"],
            ),
        )
        return replace(result, verdict=verdict(evidence, between("chrf"), curve_of(evidence)))

    return run_with_model(
        lm, COMMAND, out, settings, pair_inputs(directions), compute, began, seed=seed,
        kind=SimultaneousResult, config=config,
    )  # fmt: skip


def between(measure: str) -> str:
    """The name of a measure's mean over latencies."""
    return f"{measure}_at_latency"


def planned(heads: HeadSet, policies: Policies) -> list[Condition]:
    """Whole sentences; then AlignAtt of the heads and of random ones at each frontier, and the
    other policies at theirs; and each policy as a curve."""
    selected = Condition(SELECTED, k=len(heads), heads=tuple(map(str, heads)))
    aligned = [selected, *drawn(selected, heads, policies)]
    at = [
        *(replace(each, of=f"{FRONTIER} {f}") for f in policies.frontier for each in aligned),
        *(Condition(WAIT_K, of=str(k)) for k in policies.wait),
        *(Condition(LOCAL_AGREEMENT, of=str(drafts)) for drafts in policies.agreement),
    ]
    fixed_ = [Condition(WAIT_K, of=CURVE), Condition(LOCAL_AGREEMENT, of=CURVE)]
    return [Condition(), *at, *(replace(each, of=CURVE) for each in aligned), *fixed_]


def interpretations(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    conditions: Sequence[Condition],
    policies: Policies,
    run: Run,
    progress: Progress | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Of each sentence of a direction `outputs`, text and delays under every condition that is no
    curve, and the CPU `seconds` of the first frontier.

    All policies share what the model drafts, so that each text is read once.
    """
    from headscope.use.interpreting import Drafts, align_att, interpreted, local_agreement, wait_k

    measured = [each for each in conditions if each.of != CURVE]
    sets = {each.heads: each.in_model(lm.geometry) for each in measured if each.heads}
    places = {heads: at for at, heads in enumerate(sets)}

    def policy(condition: Condition) -> Policy:
        number = condition.of.rpartition(" ")[2]
        if condition.kind == ORIGINAL:
            return lambda read, before, draft: []
        if condition.kind == WAIT_K:
            return wait_k(lm, int(number))
        if condition.kind == LOCAL_AGREEMENT:
            return local_agreement(int(number))
        return align_att(int(number), places[condition.heads])

    units = {
        f"{name} {at:06d}": (pairs, pair.source)
        for name, pairs in directions.items()
        for at, pair in enumerate(pairs.pairs)
    }
    first = next(at for at, each in enumerate(measured) if each.kind == SELECTED)
    order = [first, *(at for at in range(len(measured)) if at != first)]

    def compute(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
        for name in mine:
            pairs, source = units[name]
            drafts = Drafts(
                lm, pairs, list(sets.values()), policies.template, policies.chat,
                policies.max_new_tokens,
            )  # fmt: skip
            made: dict[int, Any] = {}
            began, seconds = time.process_time(), 0.0
            for at in order:
                made[at] = interpreted(drafts, source, policy(measured[at]), policies.step)
                seconds = seconds or time.process_time() - began
                within(len(made) / len(order))
            yield name, {"seconds": seconds, "outputs": [made[at] for at in range(len(order))]}

    kept = kept_units(run, "outputs", "translating", dict.fromkeys(units, 1), compute, progress)
    return {
        name: [kept[f"{name} {at:06d}"] for at in range(len(pairs.pairs))]
        for name, pairs in directions.items()
    }


def simultaneous_evidence(
    conditions: Sequence[Condition],
    directions: Mapping[str, PairFile],
    units: Mapping[str, Sequence[Mapping[str, Any]]],
    seed: int = 0,
) -> tuple[Evidence, dict[str, tuple[float, float]]]:
    """Quality and latency under every condition, and the mean quality of curves over the latencies
    that AlignAtt of the selected heads has; and these, by direction."""
    measured = [each for each in conditions if each.of != CURVE]
    curves = len(conditions) - len(measured)
    outputs, lags = dict[str, Outputs](), dict[str, dict[str, NDArray[Any]]]()
    for name, pairs in directions.items():
        rows = [unit["outputs"] for unit in units[name]]
        outputs[name] = Outputs(
            pairs.target_language,
            [[row[at][0] for row in rows] for at in range(len(measured))],
            [pair.target for pair in pairs.pairs],
        )
        lengths = [
            (len(running_words(pair.source)), len(running_words(pair.target)))
            for pair in pairs.pairs
        ]
        lags[name] = {
            latency: np.array(
                [
                    [of(row[at][1], *length) for row, length in zip(rows, lengths, strict=True)]
                    for at in range(len(measured))
                ]
            )
            for latency, (_, of) in LATENCIES.items()
        }
    texts = measured_texts(outputs, QUALITIES)
    points = {
        at: [*(number for number, each in enumerate(measured)
               if (each.kind, each.draw) == (curve.kind, curve.draw)), 0]
        for at, curve in enumerate(conditions) if curve.of == CURVE
    }  # fmt: skip
    most = max(map(len, points.values()))
    counts: dict[str, dict[str, list[NDArray[Any] | None]]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for name, own in texts.parts.items():
        laal = lags[name]["laal"]
        at_frontiers = [laal[at].mean() for at, c in enumerate(measured) if c.kind == SELECTED]
        ranges[name] = float(min(at_frontiers)), float(max(at_frontiers))
        none: list[NDArray[Any] | None] = [None] * curves
        counts[name] = {key: [*array, *none] for key, array in own.items()}
        counts[name] |= {key: [*counted(array), *none] for key, array in lags[name].items()}
        for key, array in own.items():
            counts[name][between(key)] = [
                curve_statistics(
                    # Every curve ends with whole sentences.
                    [array[place] for place in (*points[at], *[0] * (most - len(points[at])))],
                    [laal[place] for place in (*points[at], *[0] * (most - len(points[at])))],
                    ranges[name],
                )
                if at in points
                else None
                for at in range(len(conditions))
            ]
    known = {name: TEXT_MEASURES[name].statistic for name in QUALITIES}
    latencies = {
        key: Statistic(words, "lower", "words", digits=2) for key, (words, _) in LATENCIES.items()
    }
    means = {
        between(name): replace(
            own,
            words=f"{own.words} at equal latency",
            score=quality_between(own.score or counted_mean, most),
        )
        for name, own in known.items()
    }
    found = table(
        conditions, counts, {**known, **latencies, **means}, seed, tuple(means),
        helps=lambda condition: True,
    )  # fmt: skip
    return found, ranges


def _rows(
    conditions: Sequence[Condition],
    directions: Mapping[str, PairFile],
    units: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[dict[str, Any]]:
    for name, pairs in directions.items():
        for pair, unit in zip(pairs.pairs, units[name], strict=True):
            for condition, (text, delays) in zip(conditions, unit["outputs"], strict=False):
                yield {
                    "direction": name, "id": pair.id, "source": pair.source,
                    "reference": pair.target, "condition": condition.id, "output": text,
                    "delays": delays,
                }  # fmt: skip


def curve_of(evidence: Evidence) -> Condition:
    """AlignAtt of the selected heads at all frontiers."""
    return next(each for each in evidence.selected if each.of == CURVE)


def _show(result: SimultaneousResult, run: Path) -> Shown:
    evidence, details = result.evidence, result.details
    curve, main = curve_of(evidence), between("chrf")
    level, base = evidence.level(main, curve), evidence.level("chrf")
    said = [sentence_of(result.verdict)]
    tests = evidence.against(main, curve)
    if level is not None and WAIT_K in tests:
        gap = tests[WAIT_K].difference
        said.append(
            f"chrF++ at equal latency {fixed(level.value, 1)}, "
            f"{fixed(level.value - gap.value, 1)} by wait-k "
            f"(difference {fixed(gap.low, 1)} to {fixed(gap.high, 1)})."
        )
    examples = count(base.examples if base else 0, "sentence")
    names = [*QUALITIES, *LATENCIES]
    return Shown(
        "Simultaneous translation",
        "Do the heads say when to wait for more of the source?",
        said,
        *uncertainty(evidence, main, curve, examples),
        [*result.cautions, *leakage_caution(details.leakage)],
        [
            *model_facts(result.model_name, len(details.heads)),
            ("sentences", str(base.examples if base else "")),
            ("words read at a time", str(details.step)),
            *(
                (f"latencies compared, {name}", f"LAAL {fixed(low, 2)} to {fixed(high, 2)} words")
                for name, (low, high) in details.latency.items()
            ),
            ("CPU time a source word", f"{fixed(details.cpu_seconds_a_word or 0.0, 3)}\u00a0s"),
        ],
        [
            Section("Heads", [HeadSets("Heads that say when to wait",
                                       {SELECTED: named_places(details.heads)})]),
            tables(evidence, [main, between("bleu")], curve, "sentences"),
            Section("Points of the curves", [
                levels_table(evidence, names, "Quality and latency", "original: whole sentences")
            ]),
            method_section(
                "AlignAtt (Papi et al. 2023), of text: a drafted token is written while the arg "
                "max over source words of the heads' mean attention is none of the last words "
                "read; what is written stays. wait-k: Ma et al. 2019; local agreement: Liu et al. "
                "2020. LAAL: Papi et al. 2022; AL: Ma et al. 2019; DAL: Cherry and Foster 2019; "
                "in words (characters in scripts without spaces), a target word when its last "
                "token is written. At equal latency: the mean over the latencies (LAAL) of the "
                "selected heads' frontiers, straight lines between points, the last of which is "
                "the translation of whole sentences."
            ),
        ],
        _figure(evidence),
    )  # fmt: skip


def _figure(evidence: Evidence) -> Lines | None:
    """Quality over latency, a line a policy."""
    series = []
    for kind in (SELECTED, *evidence.controls):
        points: list[tuple[float, Any]] = []
        if kind in (SELECTED, WAIT_K, LOCAL_AGREEMENT):
            for each in evidence.conditions:
                lag, level = (evidence.level(name, each) for name in ("laal", "chrf"))
                if each.kind == kind and lag is not None and level is not None:
                    points.append((lag.value, level))
        else:
            for each in evidence.selected:
                lags, drawn_ = (evidence.draws(name, each, kind) for name in ("laal", "chrf"))
                if lags.each and drawn_.each:
                    points.append((lags.mean, drawn_))
        if points:
            series.append(Series.of(kind, sorted(points, key=lambda point: point[0])))
    base = evidence.level("chrf")
    return Lines(
        "Quality by latency",
        tuple(series),
        "LAAL, words",
        evidence.statistics["chrf"].axis,
        band="95\u00a0% intervals, of random heads ranges of draws",
        references=(("whole sentences", base.value),) if base else (),
    )


def _streamed(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Iterator[str]] | None:
    """With --stream what stdin brings, translated as it comes; no run is made."""
    if not given["stream"]:
        return None
    from headscope.use.interpreting import interpret

    config: UseSimultaneous = build(UseSimultaneous, given)
    pairs = read_direction(config.pairs, config.model.model, config.policies.seed)
    lm = config.model.load()
    heads = resolve_heads(config.heads, config.k, lm.geometry, by=config.rank)
    told: dict[str, Any] = {"command": COMMAND, "model": lm.name, "heads": list(map(str, heads))}
    policies = config.policies

    def pieces() -> Iterator[str]:
        words, began, lines = 0, time.process_time(), [""]

        def characters() -> Iterator[str]:
            nonlocal words
            line, number = "", 1
            while char := _read(number):
                line += char if char == "\n" else clean_text(char, f"stdin, line {number}")
                if char == "\n":
                    words, line, number = words + len(running_words(line)), "", number + 1
                yield char
            words += len(running_words(line))

        for piece in interpret(
            lm, pairs, heads, characters(), policies.frontier[0], policies.step,
            policies.template, policies.chat, policies.max_new_tokens,
        ):  # fmt: skip
            lines[-1] += piece.removesuffix("\n")
            lines += [""] * piece.endswith("\n")
            yield piece
        seconds = time.process_time() - began
        told.update(lines=lines[:-1], words=words, cpu_seconds=seconds)
        told["cpu_seconds_a_word"] = seconds / words if words else None
        print(f"{count(words, 'word')} read, {fixed(seconds / max(words, 1), 3)} CPU seconds each",
              file=sys.stderr)  # fmt: skip

    return told, pieces()


def _read(line: int) -> str:
    try:
        return sys.stdin.read(1) if sys.stdin else ""  # closed by the shell (`<&-`)
    except UnicodeDecodeError as error:
        raise InputError(f"stdin, line {line}: is not UTF-8; convert it") from error


command = Study(
    UseSimultaneous, use_simultaneous, result=SimultaneousResult, show=_show, instead=_streamed
)
