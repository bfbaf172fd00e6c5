"""Simultaneous translation by chosen heads, measured in a run folder or of what stdin brings."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.data.rows import unusable
from headscope.data.words import begins_word, running_words
from headscope.errors import InputError
from headscope.evidence.controls import SelectedHeads, planned
from headscope.evidence.headline import Case
from headscope.evidence.rows import CURVE, NOTHING, SELECTED, Basis, Condition, Evidence, Statistic
from headscope.evidence.runner import Within, kept_units
from headscope.evidence.table import evidence as table
from headscope.evidence.texts import TEXT_MEASURES, Outputs, measured_texts
from headscope.heads import Head, HeadSet
from headscope.heads.geometry import keys_of
from headscope.measure.baseline import Rules
from headscope.measure.latency import LATENCIES, curve_statistics, quality_between
from headscope.measure.statistics import counted, counted_mean
from headscope.results.common import ComparedDetails, ComparedResult
from headscope.settings import UNSIGNED, Nested, Option, build
from headscope.shown.blocks import Lines, Series
from headscope.shown.words import count, fixed, signed
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    InWorkers,
    Measured,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.models import TEMPLATED, ModelChoice, resolved_chat, template_inputs
from headscope.studies.pairs import (
    PairsChoice,
    pair_examples,
    read_direction,
    read_test_directions,
)
from headscope.studies.verify.removal import alignment_heads, head_sets
from headscope.verify.removal_translations.conditions import prompts_with_limits

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.use.simultaneous_translation import Policy

#: Before the number of words, in whose heads those are that wait.
FRONTIER = "frontier "
WAIT_K, LOCAL_AGREEMENT = "wait-k", "local agreement"
#: The frontier of who waits for whole sentences.
WHOLE = 1 << 62
#: What ends a sentence of a stream.
END = "\n"
Numbers = tuple[int, ...]
#: Measures whose mean over latencies is tested.
QUALITIES = ("chrf", "bleu")


@dataclass(frozen=True, kw_only=True)
class UseSimultaneous(Selecting, InWorkers):
    """Translate while the source arrives word by word; where heads look says when to wait.

    AlignAtt with the --heads, at each --frontier, beside wait-k, local agreement and random heads:
    quality by latency. With --stream lines from stdin are translated as their words arrive, at the
    first --frontier.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.Amounts = field(default=(), metadata=UNSIGNED)
    # Drafts do not follow generation settings.
    model: Annotated[ModelChoice, TEMPLATED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    draws: options.Draws = 19
    chat: options.Chat = None
    max_new_tokens: options.MaxNewTokens = None
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    frontier: Annotated[
        Numbers, Option("AlignAtt: wait while heads look at so many last words; repeatable.", min=0)
    ] = (1, 2, 4)
    wait: Annotated[
        Numbers, Option("wait-k: words read before the first one is written; repeatable.", min=1)
    ] = (1, 3, 5, 7)
    agreement: Annotated[
        Numbers,
        Option(
            "Local agreement: drafts in a row that must agree; repeatable.", min=2, panel="Expert"
        ),
    ] = (2, 3)
    step: Annotated[int, Option("Words read at a time.", min=1)] = 1
    stream: Annotated[bool, Option("Translate stdin to stdout, a sentence a line.")] = field(
        default=False, metadata=UNSIGNED
    )
    # Drafts are measured as they are.
    answer_only: bool | None = field(default=None, init=False, metadata=UNSIGNED)
    # From which score a head aligns tokens, so that `outside` leaves it out.
    threshold: float = field(default=0.1, init=False)

    def __post_init__(self) -> None:
        if not self.frontier or len(self.k) > 1:
            raise InputError("give one --frontier or several, and one --k or none")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class SimultaneousDetails(ComparedDetails):
    """AlignAtt of `heads` and the other policies, in words read `step` at a time.

    `latency` is the range of LAAL, by direction, in which qualities are compared;
    `cpu_seconds_a_word` is what a word of the source takes at the first frontier, with all heads of
    the comparison watched.
    """

    heads: tuple[str, ...] = ()
    step: int = 1
    latency: dict[str, tuple[float, float]] = field(default_factory=dict)
    cpu_seconds_a_word: float | None = None


@dataclass(frozen=True, kw_only=True)
class SimultaneousResult(ComparedResult):
    """The result of `use simultaneous`; `original` is the translation of whole sentences."""

    details: SimultaneousDetails = field(default_factory=SimultaneousDetails)


def _read(config: UseSimultaneous) -> Examples[PairFile]:
    if config.stream:
        raise InputError(
            "stream is for the command line; in Python iterate over "
            "headscope.use.simultaneous_translation.interpret"
        )
    directions = read_test_directions(config.pairs, config.model.model, config.seed)
    return pair_examples(directions, config, answer_only=False)


def _ready(
    lm: LanguageModel, config: UseSimultaneous, examples: Examples[PairFile]
) -> tuple[UseSimultaneous, Examples[PairFile]]:
    config = resolved_chat(lm, config)
    prompts_with_limits(lm, [*examples.parts.values()], config)  # what is too long is told now
    return config, examples


def _heads(lm: LanguageModel, config: UseSimultaneous, examples: Examples[PairFile]) -> Chosen:
    heads = head_sets(config.heads, config.k, lm, config.rank)[-1]
    avoid, note = alignment_heads(config.heads, config, lm)
    # Conditions that change nothing do not tell of which heads they are.
    signed = {"heads": [*keys_of(heads)]}
    return Chosen({ALL_PARTS: [SelectedHeads(heads, gates=(1.0,))]}, avoid, note, signed)


def _measure(bench: Bench[UseSimultaneous, PairFile]) -> Measured:
    """Translate every sentence by every policy.

    Writes `outputs.jsonl`: every translation, with the words read at each of its words.
    """
    conditions, (heads,) = bench.of(ALL_PARTS), bench.chosen.every()
    units = interpretations(bench)
    evidence, latency = simultaneous_evidence(conditions, bench.parts, units, bench.config.seed)
    known = [
        (name, pair, unit)
        for name, file in bench.parts.items()
        for pair, unit in zip(file.pairs, units[name], strict=True)
    ]
    rows = (
        {"direction": name, "id": pair.id, "source": pair.source, "reference": pair.target,
         "condition": condition.id, "output": text, "delays": delays}
        for name, pair, unit in known
        for condition, (text, delays) in zip(conditions, unit["outputs"], strict=True)
    )  # fmt: skip
    bench.run.write_jsonl("outputs.jsonl", rows)
    words = sum(len(running_words(pair.source)) for _, pair, _ in known)
    about = {
        "heads": keys_of(heads),
        "step": bench.config.step,
        "latency": latency,
        "cpu_seconds_a_word": sum(unit["seconds"] for *_, unit in known) / words,
    }
    return Measured(evidence, about)


def at_latency(measure: str) -> str:
    """The name of a measure's mean over latencies."""
    return f"{measure}_at_latency"


def plan(
    sets: Sequence[SelectedHeads], config: UseSimultaneous, basis: Basis = NOTHING
) -> tuple[Condition, ...]:
    """Whole sentences, AlignAtt of the heads and of random ones at each frontier, and the other
    policies."""
    whole, *aligned = planned(sets, config, basis)
    return (
        whole,
        *(
            replace(heads, of=f"{FRONTIER}{number}")
            for number, heads in product(config.frontier, aligned)
        ),
        *(Condition(WAIT_K, of=str(number)) for number in config.wait),
        *(Condition(LOCAL_AGREEMENT, of=str(number)) for number in config.agreement),
    )


def policies(conditions: Sequence[Condition]) -> dict[Condition, Callable[[], Policy]]:
    """What makes the policy of each condition; sets of heads go by their place in `sets_of`."""
    from headscope.use.simultaneous_translation import align_att, local_agreement, wait_k

    place = sets_of(conditions).index

    def policy(condition: Condition) -> Callable[[], Policy]:
        if condition.kind == WAIT_K:
            return partial(wait_k, int(condition.of))
        if condition.kind == LOCAL_AGREEMENT:
            return partial(local_agreement, int(condition.of))
        if not condition.heads:
            return partial(align_att, WHOLE)
        frontier = int(condition.of.removeprefix(FRONTIER))
        return partial(align_att, frontier, place(condition.heads))

    return {condition: policy(condition) for condition in conditions}


def sets_of(conditions: Iterable[Condition]) -> list[tuple[str, ...]]:
    """The different sets of heads of conditions, in their order."""
    return list(dict.fromkeys(each.heads for each in conditions if each.heads))


def interpretations(bench: Bench[UseSimultaneous, PairFile]) -> dict[str, list[dict[str, Any]]]:
    """Of each sentence of a direction `outputs`, text and delays by condition, and the CPU
    `seconds` of the first frontier. All policies share what the model drafts."""
    from headscope.use.simultaneous_translation import Drafts, interpreted

    lm, config, directions = bench.lm, bench.config, bench.parts
    points = policies(bench.of(ALL_PARTS))
    sets = [HeadSet(lm.geometry, tuple(map(Head.parse, heads))) for heads in sets_of(points)]
    units = {
        f"{name} {at:06d}": (pairs, pair.source)
        for name, pairs in directions.items()
        for at, pair in enumerate(pairs.pairs)
    }
    first, *rest = sorted(points, key=lambda each: each.kind != SELECTED)

    def compute(mine: Sequence[str], within: Within) -> Iterator[tuple[str, Any]]:
        for name in mine:
            pairs, source = units[name]
            drafts = Drafts(lm, pairs, sets, **_options(config))
            began = time.process_time()
            made = {first: interpreted(drafts, source, points[first](), config.step)}
            seconds = time.process_time() - began
            for each in rest:
                made[each] = interpreted(drafts, source, points[each](), config.step)
                within.report(len(made) / len(points))
            yield name, {"seconds": seconds, "outputs": [made[each] for each in points]}

    kept = kept_units(
        bench.run, "outputs", "translating", dict.fromkeys(units, 1), compute, bench.progress
    )
    return {
        name: [kept[f"{name} {at:06d}"] for at in range(len(pairs.pairs))]
        for name, pairs in directions.items()
    }


def _options(config: UseSimultaneous) -> dict[str, Any]:
    most = config.max_new_tokens
    return {"template": config.template, "chat": config.chat, "most": most}


def simultaneous_evidence(
    points: Sequence[Condition],
    directions: Mapping[str, PairFile],
    units: Mapping[str, Sequence[Mapping[str, Any]]],
    seed: int = 0,
) -> tuple[Evidence, dict[str, tuple[float, float]]]:
    """Quality and latency under every condition, and the mean quality of curves over the latencies
    that AlignAtt of the selected heads has; and these, by direction."""
    curves = list(dict.fromkeys(replace(each, of=CURVE) for each in points[1:]))
    # Every curve ends with whole sentences, once or more, so that all have as many points.
    own = [
        [at for at, each in enumerate(points) if replace(each, of=CURVE) == curve]
        for curve in curves
    ]
    most = 1 + max(map(len, own))
    own = [[*places, *[0] * (most - len(places))] for places in own]
    texts = measured_texts(
        {
            name: Outputs(
                pairs.target_language,
                [[unit["outputs"][at][0] for unit in units[name]] for at in range(len(points))],
                [pair.target for pair in pairs.pairs],
            )
            for name, pairs in directions.items()
        },
        QUALITIES,
    )
    counts: dict[str, dict[str, list[NDArray[Any] | None]]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for name, quality in texts.parts.items():
        lengths = [
            [len(running_words(text)) for text in (pair.source, pair.target)]
            for pair in directions[name].pairs
        ]
        lags = {
            key: np.array(
                [[of(delays, *length) for length, (_, delays) in zip(lengths, row, strict=True)]
                 for row in zip(*(unit["outputs"] for unit in units[name]), strict=True)]
            )
            for key, (_, of) in LATENCIES.items()
        }  # fmt: skip
        laal = lags["laal"]
        means = [laal[at].mean() for at, each in enumerate(points) if each.kind == SELECTED]
        ranges[name] = float(min(means)), float(max(means))
        arrays = {**quality, **{key: counted(array) for key, array in lags.items()}}
        counts[name] = {key: [*array, *[None] * len(curves)] for key, array in arrays.items()}
        for key, array in quality.items():
            counts[name][at_latency(key)] = [
                *[None] * len(points),
                *(curve_statistics(array[some], laal[some], ranges[name]) for some in own),
            ]
    known = {name: TEXT_MEASURES[name].statistic for name in QUALITIES}
    between = {
        at_latency(name): replace(
            each,
            words=f"{each.words} at equal latency",
            score=quality_between(each.score or counted_mean, most),
        )
        for name, each in known.items()
    }
    lagging = {
        key: Statistic(words, "lower", "words", digits=2) for key, (words, _) in LATENCIES.items()
    }
    found = table(
        [*points, *curves], counts, {**known, **lagging, **between}, seed, tuple(between),
        helps=lambda condition: True,
    )  # fmt: skip
    return found, ranges


def _extras(result: SimultaneousResult, run: Path) -> Extras:
    """Quality by latency, and beside that of wait-k."""
    found, details = result.evidence, result.details
    curve, main = found.curve, at_latency("chrf")
    sentences = []
    if test := found.against(main, curve).get(WAIT_K):
        gap = test.difference
        ends = f" ({fixed(gap.low, 1)} to {fixed(gap.high, 1)})" if gap.bounded else ""
        sentences = [f"Minus wait-k: {signed(gap.value)}{ends}."]
    return Extras(
        statistics=[main],
        conditions=[curve],
        sentences=sentences,
        heads={SELECTED: details.heads},
        facts=[
            ("words read at a time", str(details.step)),
            *(
                (f"latencies compared, {name}", f"LAAL {fixed(low, 2)} to {fixed(high, 2)} words")
                for name, (low, high) in details.latency.items()
            ),
            ("CPU time a source word", f"{fixed(details.cpu_seconds_a_word or 0.0, 3)}\u00a0s"),
        ],
        figure=_figure(found),
    )


WORDS = Words(
    "Simultaneous translation",
    "Do the heads say when to wait for more of the source?",
    "sentence",
    "AlignAtt (Papi et al. 2023): a drafted token is written while the arg max over source words "
    "of the heads' mean attention is none of the last words read. wait-k: Ma et al. 2019; local "
    "agreement: Liu et al. 2020. LAAL: Papi et al. 2022; AL: Ma et al. 2019; DAL: Cherry and "
    "Foster 2019; in words, a character in scripts without spaces. At equal latency: the mean over "
    "the LAAL of the selected heads' frontiers, straight lines between points, the last of which "
    "is whole sentences.",
)


def _figure(evidence: Evidence) -> Lines:
    """Quality over latency, a line a policy; of random heads the mean of their draws."""
    base, lines = evidence.level("chrf"), dict[str, list[tuple[float, Any]]]()
    for each in evidence.conditions[1:]:
        lag, level = (evidence.level(name, each) for name in ("laal", "chrf"))
        if lag is None or level is None or each.draw is not None:
            continue
        lines.setdefault(each.kind, []).append((lag.value, level))
        for control in evidence.controls if each.kind == SELECTED else ():
            lags, draws = (evidence.draws(name, each, control) for name in ("laal", "chrf"))
            if lags.each:
                lines.setdefault(control, []).append((lags.mean, draws))
    return Lines(
        "Quality by latency",
        tuple(Series.of(kind, sorted(own, key=lambda p: p[0])) for kind, own in lines.items()),
        "LAAL, words",
        evidence.statistics["chrf"].axis,
        band="95\u00a0% intervals, of random heads ranges of draws",
        references=(("whole sentences", base.value),) if base else (),
    )


def _streamed(given: Mapping[str, Any]) -> tuple[Mapping[str, Any], Iterator[str]] | None:
    """With --stream what stdin brings, translated as it comes; no run is made."""
    if not given["stream"]:
        return None
    from headscope.lm.prompting import uses_chat
    from headscope.use.simultaneous_translation import interpret

    if given.get("out") is not None:
        raise InputError("--stream writes to stdout and makes no run; leave --out out")
    config: UseSimultaneous = build(UseSimultaneous, given)
    if isinstance(sys.stdin, io.TextIOWrapper):  # where the locale would read bytes otherwise
        # A byte that is none of UTF-8 stands where it is, so that what is before it is written.
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    pairs = read_direction(config.pairs, config.model.model, config.seed)
    lm = config.model.load()
    heads = head_sets(config.heads, config.k, lm, config.rank)[-1]
    if uses_chat(lm, config.chat, config.template.text):
        template_inputs(lm)  # warns of a template that contradicts itself
    told: dict[str, Any] = {"model": lm.name, "heads": [*keys_of(heads)]}
    words, made = 0, list[str]()

    def characters() -> Iterator[str]:
        nonlocal words
        line, at, before = 1, 0, ""
        while char := sys.stdin.read(1) if sys.stdin else "":  # closed by the shell (`<&-`)
            at += 1
            if char not in (END, "\r") and unusable(char):
                if "\udc80" <= char <= "\udcff":
                    raise InputError(f"stdin, line {line}: is not valid UTF-8; convert it")
                raise InputError(
                    f"stdin, line {line}: character {at} is a control character, "
                    f"U+{ord(char):04X}; remove it"
                )
            words += begins_word(before, char)
            before = char
            if char == END:
                line, at = line + 1, 0
            yield char

    def pieces() -> Iterator[str]:
        began, (frontier, *_) = time.process_time(), config.frontier
        translated = interpret(
            lm, pairs, heads, characters(), frontier, config.step, **_options(config)
        )
        with suppress(KeyboardInterrupt):  # how a source without an end (`tail -f`) is ended
            for piece in translated:
                if given["json"]:
                    made.append(piece)
                yield piece
        seconds = (time.process_time() - began) / words if words else None
        told.update(words=words, lines="".join(made).split("\n")[:-1], cpu_seconds_a_word=seconds)
        each = "" if seconds is None else f", {fixed(seconds, 3)} CPU seconds each"
        print(f"{count(words, 'word')}{each}", file=sys.stderr)

    return told, pieces()


comparison = Comparison(
    command="use simultaneous",
    settings=UseSimultaneous,
    result=SimultaneousResult,
    details=SimultaneousDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    plan=plan,
    measure=_measure,
    cases=lambda found, details: [
        Case(at_latency("chrf"), found.curve, lead="With the heads' attention")
    ],
    words=WORDS,
    extras=_extras,
    examples="sentences",
    usage="--heads 5.3,5.1 --pair en-de --limit 5",
)
command = replace(comparison.study, instead=_streamed)
