"""Translation scores of one or several directions, in a run folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.split import text_digests
from headscope.errors import OptionalPart
from headscope.executors import Execution
from headscope.find.translation_score_config import TranslationScore, check_aligner
from headscope.find.translation_scores import translation_score, with_heads
from headscope.heads import (
    HeadScores,
    Rank,
    check_thresholds,
    save_scores,
)
from headscope.measure.baseline import Rules
from headscope.progress import Progress, further, steps_of
from headscope.results.classes import Classes
from headscope.results.common import ScoredHead
from headscope.results.head_scores import LayerScores
from headscope.results.translation_score import TranslationResult, TranslationScores, best_sentences
from headscope.runs import Run
from headscope.runs.reading import read_object
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Cell,
    Column,
    HeadSentences,
    HeadSets,
    HeadTable,
    Heatmap,
    Row,
    Section,
    Shown,
    Table,
    method_section,
)
from headscope.shown.words import (
    MEAN,
    arrow,
    count,
    direction_label,
    enumeration,
    fixed,
    ranges,
)
from headscope.studies.baseline import check_translations
from headscope.studies.find.head_scores import parts_of
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import PROMPTED, ModelChoice, resolved_chat, run_with_model
from headscope.studies.pairs import (
    PairsChoice,
    aligner_parts,
    first_prompts,
    pair_cautions,
    pair_inputs,
    read_directions,
)
from headscope.studies.shows import (
    few_caution,
    head_table,
    model_facts,
    more_examples,
    places,
    spread,
)
from headscope.studies.study import Study
from headscope.studies.survey_plans import SurveyPlan

COMMAND = "find translation-score"
#: What results call links that were not made by an aligner.
GIVEN = {"links": "given with the data"}
#: Sentence pairs from which eflomal links words well.
ENOUGH = 500
#: Heads of which a page shows sentences.
HEADS_SHOWN = 5


@dataclass(frozen=True)
class FindTranslation(Settings):
    """Score every head by how often its peak falls on the aligned source word.

    Without --data the bundled model is scored on its own development sentences.
    """

    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    pairs: PairsChoice = field(default_factory=PairsChoice)
    score: TranslationScore = field(default_factory=TranslationScore)
    threshold: options.Threshold = 0.1
    rank: Annotated[
        options.RankName,
        Option(
            "What heads are listed by: the score minus chance, or the score (as in the paper). "
            "Scores without chance are listed by score.",
            panel="Expert",
        ),
    ] = "above-chance"
    inactive: options.Inactive = 0.0
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    execution: Execution = field(default_factory=Execution, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_thresholds(self.threshold, self.inactive)

    def parts(self) -> Iterator[OptionalPart]:
        """What links words, too."""
        yield from super().parts()
        yield from aligner_parts(
            self.pairs, self.model.model, lambda pairs: check_aligner(pairs, self.score)
        )


def find_translation(
    config: FindTranslation, out: Path | None = None, progress: Progress | None = None
) -> TranslationResult:
    """Score every direction and return the command's result; what is done already is kept."""
    from headscope.find.capture import check_peaks

    began = time.monotonic()
    directions = checked_directions(config.pairs, config.model.model, config.score)
    lm = config.model.load_for(config.execution)
    config = replace(config, score=with_heads(lm, (), resolved_chat(lm, config.score)))

    def compute(run: Run) -> TranslationResult:
        works = check_translations(lm, directions, config.score, run, config.baseline, progress)

        def scored(pair: str) -> HeadScores:
            steps = steps_of(progress, pair)
            return translation_score(lm, directions[pair], config.score, run, steps)

        sentences = sum(len(pairs.pairs) for pairs in directions.values())
        report = further(progress, "sentence pairs", 0, sentences)
        scores = dict(zip(directions, run.each(directions, scored, report), strict=True))
        write_found_on(run, directions)
        save_scores(run.path, parts_of(scores))
        how = config.threshold, config.rank, config.inactive
        parts = {pair: describe(part, *how) for pair, part in scores.items()}
        together = vars(describe_all(scores, *how))
        return TranslationResult(
            **together,
            **works,
            directions=parts if len(parts) > 1 else None,
            first_prompts=first_prompts(lm, directions, config.score),
        )

    settings, data = {"settings": config}, pair_inputs(directions)
    kind, seed = TranslationResult, config.score.seed
    result = run_with_model(
        lm, COMMAND, out, settings, data, compute, began, kind=kind, config=config, seed=seed,
        cautions=pair_cautions(directions),
    )  # fmt: skip
    check_peaks(str(result.run), config.score.keep_peaks)
    return result


def checked_directions(
    choice: PairsChoice, model: str, *ways: TranslationScore
) -> dict[str, PairFile]:
    """The directions that heads are found on; InputError for pairs that cannot be aligned so."""
    directions = read_directions(choice, model, "dev", seed=ways[0].seed)
    for pairs in directions.values():
        for way in ways:
            check_aligner(pairs, way)
    return directions


def write_found_on(run: Run, directions: Mapping[str, PairFile]) -> None:
    """Digests of the sentences that heads are found on, by which leakage is counted."""
    digests = {pair: text_digests(pairs.all_pairs) for pair, pairs in directions.items()}
    run.write_json(FOUND_ON, digests)


def describe_all(
    scores: Mapping[str, HeadScores], threshold: float, rank: Rank, inactive: float
) -> TranslationScores:
    """What a run finds: of its direction, or the mean over several with what they counted."""
    if len(scores) == 1:
        return describe(next(iter(scores.values())), threshold, rank, inactive)
    sums = {
        name: sum(part.config[name] for part in scores.values())
        for name in ("examples", "left_out", "tokens")
    }
    return replace(describe(HeadScores.mean(scores), threshold, rank, inactive), **sums)


def describe(
    scores: HeadScores, threshold: float, rank: Rank, inactive: float
) -> TranslationScores:
    """One set of scores: heads, classes, layers, and what was counted."""
    ranking, above = scores.ranking(rank), scores.classes_above_chance(threshold, inactive)
    kept = ("examples", "left_out", "tokens", "units", "aligner", "links_digest", "fitted_on")
    return TranslationScores(
        signature=scores.signature,
        threshold=threshold,
        inactive=inactive,
        rank=ranking["rank"],
        rank_note=ranking["rank_note"],
        scored=ScoredHead.all_of(scores, rank),
        counted_over=scores.counted_over,
        counts=Classes(**scores.classes(threshold, inactive)),
        counts_above_chance=Classes(**above) if above else None,
        layer_profile=tuple(
            LayerScores(**vars(layer)) for layer in scores.layer_profile(threshold)
        ),
        **{name: scores.config[name] for name in kept if name in scores.config},
    )


def _show(result: TranslationResult, run: Path) -> Shown:
    parts: dict[str, TranslationScores] = dict(result.directions or {})
    if not parts:
        parts = {next(iter(read_object(run / "found_on.json")), MEAN): result}
    elif len(parts) > 1:
        parts = {MEAN: result, **parts}
    directions = {name: part for name, part in parts.items() if name != MEAN}
    by = "above_chance" if result.rank == "above-chance" else "score"
    aligned = {
        direction_label(name, len(directions)): places(
            head.place
            for head in sorted(part.scored, key=lambda head: head.rank or 0)
            if (head.number(by) or 0.0) > result.threshold
        )
        for name, part in parts.items()
    }
    aligners = {part.aligner for part in directions.values() if part.aligner}
    units = {part.units for part in directions.values() if part.units}
    fewest = min(part.examples or 0 for part in directions.values())
    of = " a direction" if len(directions) > 1 else ""
    cautions = few_caution(fewest, "sentence pair", "sentence pairs", of)
    if left := result.left_out_in_all:
        cautions.append(f"{count(left, 'sentence pair')} without an aligned token left out.")
    cautions += links_caution(directions.values())
    if result.counts_above_chance is None:
        cautions.append(
            "Chance is not known at every head, so a head that merely looks at the usual place "
            "counts as a token alignment head."
        )
    cautions.append(
        "A score says where a head looks, not whether the model needs it: verify removal tests "
        "that. The highest of many scores are biased upwards."
    )
    facts = [
        *model_facts(result.model_name, len(result.scored)),
        ("directions", ", ".join(map(arrow, directions))),
        ("sentence pairs", f"{result.examples or 0:,}"),
        ("target tokens", f"{result.tokens or 0:,}"),
        ("word links", enumeration(sorted(GIVEN.get(aligner, aligner) for aligner in aligners))),
        ("units", enumeration(sorted(units))),
    ]
    return Shown(
        "Translation scores",
        "Which attention heads find the source word while the model translates?",
        alignment_finding(result, by),
        _uncertainty(result, by),
        more_examples(fewest, run),
        cautions,
        facts,
        [
            Section(
                "Token alignment heads",
                [HeadSets("Token alignment heads, best first", aligned)],
            ),
            Section("Layers", [layers_map(parts, by, result.threshold)]),
            Section("Classes of heads", [classes_table(parts, result)], brief=True),
            *sentences_section(result.scored, result.run or run),
            method_section(
                "Translation Score (TS): share of target tokens for which the key that the head "
                "weighs most, at the step that predicts the token, belongs to the source word "
                "aligned with it. Chance: the same peaks against the word links of other "
                "sentences of similar length; in short sentences it is high. Same form and other "
                "form: TS where the source word is spelled like the target word (names, digits), "
                "and where it is not. Tokens without a link are not counted. For several "
                "directions, scores and intervals are means, and a head counts by its mean."
            ),
        ],
        every_head(parts, result, by),
    )


def links_caution(directions: Iterable[TranslationScores]) -> list[str]:
    """That links which an aligner made hold errors, more of them if it was fitted on few pairs."""
    parts = list(directions)
    made = sorted({part.aligner or "given" for part in parts} - {*GIVEN, "given"})
    if not made:
        return []
    fewest = min((part.fitted_on for part in parts if part.fitted_on is not None), default=ENOUGH)
    small = f"; fewer than {ENOUGH} sentence pairs ({fewest}) give more of them"
    more = small if fewest < ENOUGH else ""
    return [f"Word links were made by {enumeration(made)}, whose errors lower scores{more}."]


def alignment_finding(result: TranslationScores, by: str) -> list[str]:
    """How many heads align tokens, by what they are ranked by, and the strongest of them."""
    ranked = sorted(result.scored, key=lambda head: head.rank or 0)
    above = [head for head in ranked if (head.number(by) or 0.0) > result.threshold]
    score = "TS \u2212 chance" if by == "above_chance" else "TS"
    many = f"{len(above)} of {count(len(ranked), 'head')}" if above else "No head"
    verb = "align" if len(above) > 1 else "aligns"
    answer = f"{many} {verb} tokens ({score} above {fixed(result.threshold, 2)})."
    best = ranked[0]
    where = f"; they lie in layers {ranges(h.layer for h in above)}" if above else ""
    return [answer, f"Strongest: {best.place} ({fixed(best.number(by), 2)}){where}."]


def _uncertainty(result: TranslationResult, by: str) -> str:
    """How wide intervals are, and how many heads may change their class."""
    open_heads = 0
    for head in result.scored:
        shift = (head.number("chance") or 0.0) if by == "above_chance" else 0.0
        if head.low is not None and head.high is not None:
            open_heads += head.low - shift <= result.threshold < head.high - shift
    examples = count(result.examples or 0, "sentence pair")
    more = f" Those of {count(open_heads, 'head')} include the threshold." if open_heads else ""
    return f"{spread(result.scored, examples)}{more}"


def sentences_section(heads: Iterable[ScoredHead], run: str | Path) -> list[Section]:
    """The best sentences of the best heads, with their peaks; nothing where the run has none."""
    ranked = sorted(heads, key=lambda head: head.rank or 0)
    found = ((head.place, best_sentences(run, head.place.key)) for head in ranked)
    known = (((place.layer, place.head), rows) for place, rows in found if rows)
    shown = dict(islice(known, HEADS_SHOWN))
    if not shown:
        return []
    model = str(read_object(Path(run, "provenance.json")).get("model"))
    command = shlex.join(["headscope", "explore", model, "--heads", str(run), "--pin"])
    block = HeadSentences(
        "Sentences of the best heads",
        shown,
        command,
        "An arc leads from each target token to the source word of the head's peak. These are the "
        "sentences with the highest share of hits, so they are not typical; the run folder holds "
        "ten of each of the 20 best heads of a direction",
    )
    return [Section("Peaks", [block])]


def layers_map(parts: Mapping[str, TranslationScores], by: str, threshold: float) -> Heatmap:
    """The token alignment heads of each layer, of the mean and each direction."""
    directions = len(parts) - (MEAN in parts)
    layers = sorted({head.layer for part in parts.values() for head in part.scored})
    counts = tuple(
        tuple(
            float(sum(head.layer == layer and (head.number(by) or 0.0) > threshold
                      for head in part.scored))
            for layer in layers
        )
        for part in parts.values()
    )  # fmt: skip
    return Heatmap(
        "Token alignment heads by layer",
        tuple(direction_label(name, directions) for name in parts),
        tuple(map(str, layers)),
        counts,
        "heads",
        "",
        "layer",
        low=0.0,
        digits=0,
    )


def classes_table(parts: Mapping[str, TranslationScores], result: TranslationScores) -> Table:
    """Heads of each class, of the mean of several directions and of each."""
    rows = []
    for name, part in parts.items():
        label = direction_label(name, max(len(parts) - 1, result.counted_over))
        counted = Cell(part.examples), Cell(part.tokens)
        mean = "mean of counts, " if name == MEAN else ""
        for score, counts in ("TS \u2212 chance", part.counts_above_chance), ("TS", part.counts):
            if counts is not None:
                cells = (Cell(number, digits=1) for number in counts.each)
                rows.append(Row(f"{label}, {mean}{score}", (*cells, *counted)))
    threshold, inactive = fixed(result.threshold, 2), fixed(result.inactive, 2)
    return Table(
        "Heads in each class, by direction",
        ("token alignment", "low activity", "inactive", "sentence pairs", "tokens"),
        tuple(rows),
        note=f"token alignment: above {threshold}; low activity: above {inactive}; inactive: the "
        "others. The paper counts by TS alone. A mean of counts is not the count by mean scores "
        "above",
    )


def every_head(
    parts: Mapping[str, TranslationScores], result: TranslationScores, by: str
) -> HeadTable:
    """Every head with its score, chance, and score on words of the same and of another form."""
    columns = (
        Column("identical", "Same form", "TS where source and target word are spelled alike"),
        Column("different", "Other form", "TS where source and target word differ"),
    )
    most = max(head.number(by) or 0.0 for part in parts.values() for head in part.scored)
    return head_table(
        "Every head, highest first",
        {name: part.scored for name, part in parts.items()},
        columns,
        Column("score", "TS", "Translation Score"),
        ranked_by=by,
        threshold=result.threshold,
        classes=(
            ("token alignment", result.threshold),
            ("low activity", result.inactive),
            ("inactive", None),
        ),
        high=max(ceil(most * 10 - 1e-9) / 10, 2 * result.threshold, 0.1),
    )


def _survey(plan: SurveyPlan) -> FindTranslation | str:
    score = TranslationScore(seed=plan.data.seed, chat=plan.data.chat)
    config = FindTranslation(plan.model, plan.pairs(), score, rank=plan.data.rank)
    return plan.missing(plan.data.pairs, "--pairs en-de=FILE") or config


command = Study(
    FindTranslation,
    find_translation,
    result=TranslationResult,
    show=_show,
    survey=_survey,
    usage="--pair en-de --out runs/found",
)
