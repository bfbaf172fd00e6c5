"""Removal with controls, in a run folder: outputs, measures, tests."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.align import check_aligner
from headscope.data.pairs import PairFile
from headscope.errors import InputError, naming
from headscope.executors import Execution
from headscope.heads import (
    Amount,
    HeadScores,
    HeadSet,
    Rank,
    about_rank,
    read_scores,
    resolve_heads,
)
from headscope.heads.resolve import place_of
from headscope.heads.scores import TRANSLATION_SCORE
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.removal import (
    BASELINE,
    Condition,
    Controls,
    Label,
    Measuring,
    OutputLinks,
    ReferenceLinks,
    RemovalResult,
    Shown,
)
from headscope.runs import Run, encode
from headscope.settings import UNSIGNED, Nested, Settings
from headscope.studies.baseline import check_translations
from headscope.studies.leakage import check_leakage
from headscope.studies.models import POCKET, PROMPTED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import PairsChoice, pair_inputs, read_directions
from headscope.studies.study import Study
from headscope.studies.verify.reference import Reference, reference_number, translations
from headscope.studies.verify.removal_show import show_removal
from headscope.verify.translation import Condition as Planned
from headscope.verify.translation import Removal, conditions, generate
from headscope.verify.translation.conditions import (
    ZERO,
    ReferenceLosses,
    Replacements,
    reference_alignment,
    reference_losses,
)
from headscope.verify.translation.evidence import evidence, loss_evidence, statistics
from headscope.verify.translation.measures import Translations, kept_from, measure, output_rows

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


COMMAND = "verify removal"
#: Sentences of the pocket model's own test split, over all directions and of one, if no limit is
#: given: so that all directions take a few minutes on two cores.
POCKET_SENTENCES, POCKET_AT_MOST, POCKET_AT_LEAST = 1000, 200, 10


def _removal(**values: Any) -> Removal:
    """`--draws` is the number of random sets of whatever is measured."""
    if "loss" in values.get("measure", ()):
        values["loss_draws"] = values.get("draws")
    if "measure" in values:
        values["measure"] = tuple(dict.fromkeys(values["measure"]))
    return Removal(**values)


@dataclass(frozen=True)
class VerifyRemoval(Settings):
    """Translate without selected heads and without random ones, of all and of the same layers.

    With --measure loss the model reads the reference translations instead; the loss is reported
    apart for linked words (first and later tokens) and other tokens. --draws is 10 for texts and 99
    for losses by default.

    Without --data the bundled model is tested on its own test sentences: 1,000 in all, at most 200
    of a direction; --limit N takes N of each.
    """

    # The heads themselves, not their place, count in the run's signature.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.Amounts = field(default=(), metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    removal: Annotated[
        Removal,
        Nested(
            without=("layer_matched",),
            changed={"draws": options.DRAWS_OF_MEASURE},
            make=_removal,
        ),
    ] = field(default_factory=Removal)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)


class Opened(NamedTuple):
    """What a removal begins with: sentences, model, settings with chat decided, the heads of each
    k from few to many, and the token alignment heads, which random draws leave out.

    `signed` counts in the run's signature beside settings and heads, `controls` are told in its
    result.
    """

    directions: dict[str, PairFile]
    lm: LanguageModel
    removal: Removal
    sets: list[HeadSet]
    avoid: HeadSet | None
    signed: dict[str, Any]
    controls: Controls


def opened(
    config: VerifyRemoval, out: Path | None, reference: int = 0, linked: bool = False
) -> Opened:
    """Read sentences, model and heads; `reference` sentences of each direction are set aside.

    `linked`: their links are needed, and what they lack is told before the model is loaded.
    """
    seed = config.removal.seed
    directions = read_test_directions(config.pairs, config.model.model, seed, reference)
    leakage = check_leakage(config.heads, directions, config.allow_overlap)
    for pairs in directions.values() if linked else ():
        with naming(pairs.path):
            check_aligner(pairs)
    lm = config.model.load_for(config.execution)
    removal = resolved_chat(lm, config.removal)
    sets = head_sets(config.heads, config.k, lm, config.rank)
    avoid, note = alignment_heads(config.heads, removal, lm)
    signed = {
        "token alignment heads": None if avoid is None else sorted(map(str, avoid)),
        "leakage": encode(leakage),
    }
    pool = "outside" if avoid is None else "non-alignment"
    controls = Controls(pool=pool, pool_note=note, leakage=leakage)
    return Opened(directions, lm, removal, sets, avoid, signed, controls)


def verify_removal(
    config: VerifyRemoval, out: Path | None = None, progress: Progress | None = None
) -> RemovalResult:
    """Remove heads, and as many random ones, and return what that did to translations.

    A run that was stopped goes on where it was. Raises `InputError` if the heads were found on
    sentences of the test data, unless `allow_overlap`.
    """
    began = time.monotonic()
    apart, linked = reference_number(*config.removal.ablate), "loss" in config.removal.all_draws
    inputs = opened(config, out, apart, linked)
    lm, removal, directions = inputs.lm, inputs.removal, inputs.directions
    planned = conditions(inputs.sets, removal, inputs.avoid)
    reference = translations(lm, directions, removal) if apart else Reference()
    settings = {
        "settings": replace(config, removal=removal),
        "sets": [[str(head) for head in heads] for heads in inputs.sets],
        "rank": about_rank(*inputs.sets)["rank"],
        "reference text": reference.digest,
        **inputs.signed,
    }

    def compute(run: Run) -> RemovalResult:
        works = check_translations(lm, directions, removal, run, config.baseline, progress)
        replacements = reference.replacements(lm, removal)
        shown = removal_run(lm, directions, planned, removal, run, replacements, progress)
        draws = removal.all_draws
        told = {
            **vars(inputs.controls),
            **vars(shown),
            **about_rank(*inputs.sets),
            **works,
            "k": tuple(map(len, inputs.sets)),
            "gates": removal.gates,
            "measures": tuple(draws),
            "draws": next(iter(draws.values())),
            "draws_loss": draws["loss"] if len(draws) > 1 else None,
        }
        return RemovalResult(
            **told,
            signature="|".join([run.signature, *_links(shown)]),
            threshold=removal.threshold,
            ablate=removal.ablate[0],
            reference_text=reference.facts,
            seed=removal.seed,
            heads=tuple(map(str, inputs.sets[-1])),
        )

    data, seed = pair_inputs(directions), removal.seed
    return run_with_model(
        lm, COMMAND, out, settings, data, compute, began, seed=seed, kind=RemovalResult,
        config=config,
    )  # fmt: skip


def read_test_directions(
    choice: PairsChoice, model: str, seed: int, reference: int = 0
) -> dict[str, PairFile]:
    """The sentences to verify on: the data given, or a few hundred of pocket's test split.

    `reference`: so many of each direction are set aside for what replaces heads.
    """
    if choice.data or model != POCKET:
        return read_directions(choice, model, "test", seed=seed, reference=reference)
    asked = read_directions(replace(choice, limit=1), model, "test", seed=seed)
    limit = max(POCKET_AT_LEAST, min(POCKET_AT_MOST, POCKET_SENTENCES // len(asked)))
    return read_directions(choice, model, "test", limit=limit, seed=seed, reference=reference)


def head_sets(
    spec: str, k: tuple[Amount, ...], lm: LanguageModel, rank: Rank = "above-chance"
) -> list[HeadSet]:
    """The heads for each k, from few to many, each number once."""
    wanted: tuple[Amount | None, ...] = k or (None,)
    resolved = [resolve_heads(spec, amount, lm.geometry, by=rank) for amount in wanted]
    found = {len(heads): heads for heads in resolved}
    if 0 in found:
        raise InputError(f"{spec}: holds no heads, so there is nothing to remove; name some")
    return [found[size] for size in sorted(found)]


def alignment_heads(
    spec: str, config: Removal, lm: LanguageModel
) -> tuple[HeadSet | None, str | None]:
    """The token alignment heads, to be left out of random draws; or why they are not known."""
    if config.pool == "outside":
        return None, None
    scores = _translation_scores(spec)
    if scores is None:
        return None, (
            f"{spec} holds no translation scores, so random heads are drawn from all heads outside "
            "the set, token alignment heads among them"
        )
    if scores.geometry != lm.geometry:  # a list of heads fits any model, scores do not
        raise InputError(
            f"{spec} was made for a model of {scores.geometry}, but this model has {lm.geometry}"
        )
    return scores.select(config.threshold), None


def _translation_scores(spec: str) -> HeadScores | None:
    place = place_of(spec)
    scores = read_scores(place).get("mean") if place is not None and place.is_dir() else None
    return scores if scores is not None and scores.method == TRANSLATION_SCORE else None


def _links(shown: Shown) -> list[str]:
    """What the links of the references add to a signature: aligners have no seed."""
    digests = [links.digest for links in (shown.reference_links or {}).values()]
    together = hashlib.sha256("".join(digests).encode()).hexdigest()
    return [f"links:{together[:12]}"] if digests else []


command = Study(VerifyRemoval, verify_removal, result=RemovalResult, show=show_removal)


STATISTICS = "statistics.safetensors"


def removal_run(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    planned: Sequence[Planned],
    config: Removal,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> Shown:
    """Measure every condition, keep it in `run`, and say what it shows.

    Writes `statistics.safetensors`, and for texts `outputs.jsonl` and `links.jsonl`.
    """
    draws = config.all_draws
    losses = table = found = links = None
    if "loss" in draws:
        found = {name: reference_alignment(pairs, run) for name, pairs in directions.items()}
        losses = reference_losses(
            lm, directions, found, planned, config, run, replacements, progress
        )
    if "text" in draws:
        wanted = [condition for condition in planned if (condition.label.draw or 0) < draws["text"]]
        labels = [condition.label for condition in wanted]
        made = generate(lm, list(directions.values()), wanted, config, run, replacements, progress)
        table = {
            name: Translations.of(pairs, [texts[at] for texts in made], bool(config.answer_only))
            for at, (name, pairs) in enumerate(directions.items())
        }
        run.write_jsonl("outputs.jsonl", output_rows(labels, table))
        links = _write_links(run, directions, labels, table)
    conditions = [
        Condition(
            label=each.label, heads=tuple(map(str, each.heads)), filled_up=each.filled_up
        )
        for each in planned[1:]
    ]  # fmt: skip
    languages = {
        name: (pairs.source_language, pairs.target_language) for name, pairs in directions.items()
    }
    shown = describe_conditions(
        run, conditions, languages, draws.get("text", 0), table, losses, config.seed, progress
    )
    if found is not None:
        told = {n: ReferenceLinks(v.aligner, v.units, v.digest) for n, v in found.items()}
        shown = replace(shown, reference_links=told)
    return replace(shown, links=links)


def describe_conditions(
    run: Run,
    conditions: Sequence[Condition],
    languages: Mapping[str, tuple[str, str]],
    text_draws: int,
    made: Mapping[str, Translations] | None,
    losses: Mapping[str, ReferenceLosses] | None,
    seed: int,
    progress: Progress | None = None,
    before: Measuring | None = None,
) -> Shown:
    """The evidence in texts, of the first `text_draws`, and in losses, of all draws.

    `conditions` are those after the model as it is, of which labels and heads count. Writes
    `statistics.safetensors` into `run`: the numbers of every sentence. What cannot be measured now,
    but was before, is kept; `before` is what was told then.
    """
    kept = dict[str, NDArray[Any]]()
    heads = {condition.label: condition.heads or () for condition in conditions}
    text = loss = None
    if made is not None:
        if progress:
            progress("measuring", 0, 1)
        measures = measure(made)
        if (run.path / STATISTICS).exists():
            measures = kept_from(run.read_written(STATISTICS), measures, before or Measuring())
        if progress:
            progress("measuring", 1, 1)
        kept |= statistics(measures)
        labels = [label for label in heads if (label.draw or 0) < text_draws]
        sets = [(), *(heads[label] for label in labels)]
        text = evidence([BASELINE, *labels], sets, measures, seed, progress)
    if losses is not None:
        kept |= {f"{name}.{key}": array for name, made in losses.items()
                 for key, array in made.tensors().items()}  # fmt: skip
        loss = loss_evidence([BASELINE, *heads], [(), *heads.values()], losses, seed)
    run.write_tensors(STATISTICS, kept)
    shown = _together(text, loss)
    rows = zip(shown.conditions, conditions, strict=True)
    return replace(
        shown,
        conditions=tuple(
            replace(row, heads=own.heads, filled_up=own.filled_up) for row, own in rows
        ),
        directions={
            name: replace(shown.directions[name], source_language=source, target_language=target)
            for name, (source, target) in languages.items()
        },
    )


def _together(text: Shown | None, loss: Shown | None) -> Shown:
    """What texts and losses show of the same conditions."""
    if text is None or loss is None:
        shown = text or loss
        assert shown is not None
        return shown
    parts = text.directions.items()
    directions = {name: part.with_losses(loss.directions[name]) for name, part in parts}
    return replace(text.with_losses(loss), directions=directions)


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
    labels: Sequence[Label],
    made: Mapping[str, Translations],
) -> OutputLinks:
    """Write `links.jsonl`, for reading outputs beside their sources; how they were linked."""
    from headscope.data.align.outputs import REFERENCE, align_conditions
    from headscope.data.pairs import GIVEN, links_by

    shown = _shown(labels)
    methods: list[str | None] = []

    def rows() -> Iterator[dict[str, Any]]:
        for name, pairs in directions.items():
            texts = {kind: made[name].texts[at] for kind, at in shown.items()}
            texts["reference"] = made[name].references
            for kind, linked in align_conditions(pairs, texts).items():
                for pair, output in zip(pairs.pairs, linked, strict=True):
                    methods.append(output.method)
                    yield {
                        "direction": name,
                        "id": pair.id,
                        "condition": kind,
                        "source_spans": output.source_spans,
                        "output_spans": output.output_spans,
                        "links": output.links,
                    }

    run.write_jsonl("links.jsonl", rows())
    method = next((method for method in methods if method is not None), None)
    by = links_by(pair for pairs in directions.values() for pair in pairs.pairs)
    return OutputLinks(method, by if method == REFERENCE and by != GIVEN else None)


def _shown(labels: Sequence[Label]) -> dict[str, int]:
    """Where the conditions stand that a page shows side by side.

    The model as it is, the largest set at its first gate, and the first random draw beside it.
    """
    largest = max(label.k for label in labels)
    top = next(at for at, label in enumerate(labels) if label.kind == "top" and label.k == largest)
    random = next(
        (at for at, own in enumerate(labels) if own == replace(labels[top], kind="random", draw=0)),
        None,
    )
    return {"baseline": 0, "top": top} | ({} if random is None else {"random": random})
