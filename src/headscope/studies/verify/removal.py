"""Removal with controls: outputs, measures, tests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.align import check_aligner
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.errors import InputError, OptionalPart
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.rows import Condition, Evidence, Statistic
from headscope.evidence.runner import ZERO, Replacements
from headscope.evidence.texts import (
    TEXT_MEASURES,
    measured_texts,
    own_measured,
    own_statistics,
)
from headscope.heads import (
    Amount,
    HeadSet,
    Rank,
    named_scores,
    resolve_heads,
)
from headscope.heads.geometry import keys_of
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.measure.baseline import Rules
from headscope.own import OwnMeasure
from headscope.progress import Progress
from headscope.results.removal import (
    Languages,
    Measuring,
    OutputLinks,
    ReferenceLinks,
    RemovalDetails,
    RemovalResult,
    Removed,
    Tokens,
)
from headscope.runs import Run
from headscope.settings import UNSIGNED, Nested
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
from headscope.studies.models import resolved_chat
from headscope.studies.pairs import PairsChoice, aligner_parts, pair_examples, read_test_directions
from headscope.studies.sentences import shown_conditions
from headscope.studies.verify.reference import reference_number
from headscope.studies.verify.removal_show import WORDS, cautions, extras, leads
from headscope.verify.removal_translations.conditions import (
    ReferenceLosses,
    Removal,
    generate,
    reference_alignment,
    reference_losses,
)
from headscope.verify.removal_translations.evidence import (
    LOSSES,
    TEXTS,
    has_texts,
    mixed,
    of_kinds,
    removal_evidence,
)
from headscope.verify.removal_translations.evidence import STATISTICS as KNOWN
from headscope.verify.removal_translations.measures import (
    Translations,
    kept_from,
    output_rows,
    tensors,
)

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, kw_only=True)
class VerifyRemoval(Removal, Selecting, InWorkers):
    """Translate without selected heads and without random ones, of all and of the same layers.

    With --measure loss the model reads the reference translations instead; the loss is reported
    apart for linked words (first and later tokens) and other tokens.

    Without --data the bundled model is tested on its own test sentences: 1,000 in all, at most 200
    of a direction; --limit N takes N of each.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.Amounts = field(default=(), metadata=UNSIGNED)
    # Again, since mypy takes what is given to an inherited descriptor for what it gives.
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    pairs: PairsChoice = field(default_factory=PairsChoice)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, too, where losses are told by them."""
        yield from super().parts()
        if "loss" in self.all_draws:
            yield from aligner_parts(self.pairs, self.model.model, check_aligner)

    @classmethod
    def of_options(cls, **values: Any) -> VerifyRemoval:
        """`--draws` is the number of random sets of whatever is measured."""
        if "loss" in values.get("measure", ()) and values.get("draws", "auto") != "auto":
            values["loss_draws"] = values["draws"]
        if "measure" in values:
            values["measure"] = tuple(dict.fromkeys(values["measure"]))
        return cls(**values)


def _read(config: VerifyRemoval) -> Examples[PairFile]:
    apart = reference_number(*config.ablate)
    directions = read_test_directions(config.pairs, config.model.model, config.seed, apart)
    examples = pair_examples(directions, config)
    for pairs in directions.values() if "loss" in config.all_draws else ():
        check_aligner(pairs)
    return examples


def _measure(bench: Bench[VerifyRemoval, PairFile]) -> Measured:
    evidence, removed = removal_run(
        bench.lm, bench.parts, bench.conditions[ALL_PARTS], bench.config, bench.run,
        bench.replacements, bench.progress,
    )  # fmt: skip
    return Measured(evidence, about_removal([*bench.chosen.every()], bench.config, removed))


def about_sets(sets: Sequence[HeadSet], gates: tuple[float, ...]) -> dict[str, Any]:
    """What a removal of these sets, from few to many, tells of them."""
    return {"k": tuple(map(len, sets)), "gates": gates, "heads": keys_of(sets[-1])}


def about_removal(sets: Sequence[HeadSet], removal: Removal, removed: Removed) -> dict[str, Any]:
    """What it tells beside its rows."""
    return {
        **about_sets(sets, removal.gates),
        "measures": tuple(removal.all_draws),
        "text_draws": removal.all_draws.get("text", 0),
        "threshold": removal.threshold,
        "removed": removed,
    }


def head_sets(
    spec: str, k: tuple[Amount, ...], lm: LanguageModel, rank: Rank = "above-chance"
) -> list[HeadSet]:
    """The heads for each k, from few to many, each number once."""
    wanted: tuple[Amount | None, ...] = k or (None,)
    resolved = [
        resolve_heads(spec, amount, lm.geometry, by=rank, model=lm.name) for amount in wanted
    ]
    found = {len(heads): heads for heads in resolved}
    if 0 in found:
        raise InputError(f"{spec}: holds no heads, so there is nothing to remove; name some")
    return [found[size] for size in sorted(found)]


class WithThreshold(Protocol):
    """Settings that say which heads align tokens, and what controls there are."""

    @property
    def controls(self) -> tuple[str, ...]: ...
    @property
    def threshold(self) -> float: ...


class RemovingSets(WithThreshold, Protocol):
    """The same of a command that removes as many heads as each `k` says, at each gate."""

    @property
    def heads(self) -> str: ...
    @property
    def k(self) -> tuple[Amount, ...]: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def gates(self) -> tuple[float, ...]: ...


def removed_heads(lm: LanguageModel, config: RemovingSets, examples: Examples[Any]) -> Chosen:
    """The heads for each `k`, at each gate."""
    sets = head_sets(config.heads, config.k, lm, config.rank)
    selected = [SelectedHeads(heads, gates=config.gates) for heads in sets]
    return Chosen({ALL_PARTS: selected}, *alignment_heads(config.heads, config, lm))


def alignment_heads(
    spec: str, config: WithThreshold, lm: LanguageModel
) -> tuple[HeadSet | None, str | None]:
    """The token alignment heads, to be left out of random draws; or why they are not known."""
    if "outside" not in config.controls:
        return None, None
    scores = named_scores(spec, lm.geometry)
    if scores is None or scores.method != TRANSLATION_SCORE:
        return None, (
            f"{spec} holds no translation scores, so the control outside draws from all heads that "
            "are not selected, token alignment heads among them"
        )
    if scores.geometry != lm.geometry:  # a list of heads fits any model, scores do not
        raise InputError(
            f"{spec} was made for a model of {scores.geometry}, but this model has {lm.geometry}"
        )
    return scores.select(config.threshold), None


def _links(details: RemovalDetails) -> str:
    """What the links of the references add to a signature: aligners have no seed."""
    digests = [links.digest for links in (details.removed.reference_links or {}).values()]
    together = hashlib.sha256("".join(digests).encode()).hexdigest()
    return f"links:{together[:12]}" if digests else ""


comparison = Comparison(
    command="verify removal",
    settings=VerifyRemoval,
    result=RemovalResult,
    details=RemovalDetails,
    read=_read,
    ready=lambda lm, config, examples: (resolved_chat(lm, config), examples),
    heads=removed_heads,
    measure=_measure,
    leads=leads,
    cautions=cautions,
    words=WORDS,
    extras=extras,
    examples="sentence pairs",
    sign=_links,
    usage="--heads 5.3,5.1,4.3 --pair en-de --limit 20",
)
command = comparison.study


STATISTICS = "statistics.safetensors"


def removal_run(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> tuple[Evidence, Removed]:
    """Measure every condition, keep it in `run`, and say what it shows.

    Writes `statistics.safetensors`, and for texts `outputs.jsonl` and `links.jsonl`.
    """
    own = own_statistics(config.own_measures, KNOWN)
    draws = config.all_draws
    losses = table = alignments = links = None
    if "loss" in draws:
        alignments = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(
            lm, directions, alignments, planned, config, run, replacements, progress
        )
    if "text" in draws:
        wanted = [condition for condition in planned if has_texts(condition, draws["text"])]
        made = generate(lm, list(directions.values()), wanted, config, run, replacements, progress)
        table = {
            name: Translations.of(pairs, [texts[at] for texts in made], bool(config.answer_only))
            for at, (name, pairs) in enumerate(directions.items())
        }
        run.write_jsonl("outputs.jsonl", output_rows(wanted, table))
        links = _write_links(run, directions, wanted, table)
    removed = Removed(
        directions={
            name: Languages(pairs.source_language, pairs.target_language)
            for name, pairs in directions.items()
        },
        reference_links={
            name: ReferenceLinks(each.aligner, each.units, each.digest)
            for name, each in alignments.items()
        }
        if alignments
        else None,
        links=links,
    )
    return described(
        run, planned, removed, draws.get("text", 0), table, losses, config.seed, progress,
        own, config.own_measures,
    )  # fmt: skip


def measured_alone(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> tuple[str, Statistic, dict[str, list[NDArray[Any]]]]:
    """The one measure that is asked for: its name, what it is, and by direction and condition the
    numbers (S, F) of every sentence. The run keeps what is computed."""
    if "loss" in config.all_draws:
        links = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(
            lm, directions, links, planned, config, run, replacements, progress
        )
        parts = {part: [*of_kinds(own, False)[..., :2]] for part, own in losses.items()}
        return "nll", LOSSES["nll"], parts
    made = generate(lm, list(directions.values()), planned, config, run, replacements, progress)
    outputs = {
        part: Translations.of(
            pairs, [texts[at] for texts in made], bool(config.answer_only)
        ).outputs
        for at, (part, pairs) in enumerate(directions.items())
    }
    for name, own in own_statistics(config.own_measures, KNOWN).items():
        (measure,) = config.own_measures
        return name, own, {part: [*own_measured(each, measure)] for part, each in outputs.items()}
    texts = measured_texts(outputs, ("chrf",))
    if "chrf" in texts.missing:
        raise InputError(texts.missing["chrf"])
    statistic = TEXT_MEASURES["chrf"].statistic
    return "chrf", statistic, {part: [*own["chrf"]] for part, own in texts.parts.items()}


def described(
    run: Run,
    conditions: Sequence[Condition],
    removed: Removed,
    text_draws: int,
    made: Mapping[str, Translations] | None,
    losses: Mapping[str, ReferenceLosses] | None,
    seed: int,
    progress: Progress | None = None,
    own: Mapping[str, Statistic] = MappingProxyType({}),
    measures: Sequence[OwnMeasure] = (),
) -> tuple[Evidence, Removed]:
    """The table of texts, of the first `text_draws`, and of losses, of all draws.

    `own` are statistics of the user's functions, which are measured by `measures` where these are
    at hand, and else kept.

    Writes `statistics.safetensors` into `run`: the numbers of every sentence. What cannot be
    measured now, but was before, is kept; `removed` tells what was measured then.
    """
    kept = dict[str, NDArray[Any]]()
    texts = None
    if made is not None:
        if progress:
            progress("measuring", 0, 1)
        texts = measured_texts({name: each.outputs for name, each in made.items()}, TEXTS)
        if (run.path / STATISTICS).exists():
            before = removed.measuring or Measuring()
            texts = kept_from(run.read_written(STATISTICS), texts, before, own)
        parts = {
            name: {**texts.parts[name], **{m.name: own_measured(each.outputs, m) for m in measures}}
            for name, each in made.items()
        }
        texts = replace(texts, parts=parts)
        if progress:
            progress("measuring", 1, 1)
        kept |= tensors(texts)
        missing = {**texts.missing, **mixed(texts.bleu_tokenizers)}
        measuring = Measuring(texts.identifier, missing, dict(texts.bleu_tokenizers))
        removed = replace(removed, measuring=measuring)
    if losses is not None:
        kept |= {f"{name}.{key}": array for name, loss in losses.items()
                 for key, array in loss.tensors().items()}  # fmt: skip
        tokens = {name: loss.tokens.sum(axis=0).tolist() for name, loss in losses.items()}
        tokens_of = {name: Tokens(*counts) for name, counts in tokens.items()}
        removed = replace(removed, reference_tokens=tokens_of)
    run.write_tensors(STATISTICS, kept)
    return removal_evidence(conditions, texts, losses, text_draws, seed, progress, own), removed


def read_losses(run: Run, directions: Iterable[str]) -> dict[str, ReferenceLosses]:
    """The stored losses of a finished run; `InputError` if they are damaged."""
    stored = run.read_written(STATISTICS)
    try:
        return {
            name: ReferenceLosses(
                stored[f"{name}.nll"], stored[f"{name}.nll_tokens"].astype(np.int64)
            )
            for name in directions
        }
    except KeyError as error:
        raise InputError(
            f"{run.path / STATISTICS}: holds no losses; run the verification again"
        ) from error


def _write_links(
    run: Run,
    directions: Mapping[str, PairFile],
    conditions: Sequence[Condition],
    made: Mapping[str, Translations],
) -> OutputLinks:
    """Write `links.jsonl`, for reading outputs beside their sources; how they were linked."""
    from headscope.data.align.outputs import REFERENCE, align_conditions
    from headscope.data.pairs import GIVEN, links_by

    side_by_side = [conditions.index(each) for each in shown_conditions(conditions)]
    methods: list[str | None] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, pairs in directions.items():
            texts = {conditions[at].id: made[name].texts[at] for at in side_by_side}
            texts["reference"] = made[name].references
            for condition, linked in align_conditions(pairs, texts).items():
                for pair, output in zip(pairs.pairs, linked, strict=True):
                    methods.append(output.method)
                    yield {
                        "direction": name,
                        "id": pair.id,
                        "condition": condition,
                        "source_spans": output.source_spans,
                        "output_spans": output.output_spans,
                        "links": output.links,
                    }

    run.write_jsonl("links.jsonl", rows())
    method = next((method for method in methods if method is not None), None)
    by = links_by(pair for pairs in directions.values() for pair in pairs.pairs)
    return OutputLinks(method, by if method == REFERENCE and by != GIVEN else None)
