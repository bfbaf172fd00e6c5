"""Translation Score: how often a head looks at the right source word while translating.

Token Alignment Heads (ICLR 2026), section 2.2, equation 1: for every target token that has an
aligned source token, a head scores a hit if its largest attention weight, at the step that
predicts the token, falls on the aligned source token. The score of a sentence is hits over such
tokens; a head's score is the mean over sentences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment, AlignWords, Linker, Sides, align_file, linked_pairs
from headscope.data.pairs import Links, PairFile, SentencePair
from headscope.errors import InputError
from headscope.find.scoring import RunPart, rate, scored
from headscope.find.translation_score_config import HeadLinks, TranslationScore, check_aligner
from headscope.heads import HeadScores, HeadSet, count_of, resolve_heads
from headscope.heads.geometry import keys_of
from headscope.options import QueryName
from headscope.progress import Steps

#: Heads that link words are found on so many pairs of a file at most.
LINKED = 60
#: How many link words, but at most a quarter of a model's.
LINKING = 10

if TYPE_CHECKING:
    from headscope.find.hits import Counts
    from headscope.lm import LanguageModel
    from headscope.runs import Run


def translation_score(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore = TranslationScore(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """Score every head on sentence pairs of one direction, with or without word links.

    Raises `InputError` if no sentence has an aligned target token, or a prompt exceeds the context.

    Returns:
        Scores in [0, 1] with bounds. `extra`: `chance`, and `identical` and `different`,
            the score on target tokens whose aligned word has the same or another surface form (NaN
            without such tokens). `statistics`, by sentence: `hits`, `totals`, `identical_hits`,
            `identical_totals`, `chance`, `chance_totals`; from them every figure follows again
            without the model. `config` also tells `examples` (sentences scored), `left_out`
            (without an aligned token), `tokens`, `units`, `aligner`, `links_digest` and, where
            eflomal linked the words, `fitted_on`, the number of sentence pairs it was fitted on.
    """
    from headscope.find.best_sentences import keep_sentences
    from headscope.find.capture import keep_peaks
    from headscope.find.hits import count_hits, decoded, similar_sentences

    if not pairs.pairs:
        raise InputError(f"{pairs.path} holds no sentence pairs")
    check_aligner(pairs, config)
    part = RunPart(run, f"{pairs.source_language}-{pairs.target_language}")
    sentences, captured, alignment = decoded(
        lm,
        pairs,
        config,
        part,
        progress,
        linker(lm, pairs, config),
    )
    drawn = similar_sentences([s.lengths for s in sentences], config.chance_draws, config.seed)
    counts = [
        count_hits(
            sentence,
            capture.peaks,
            [sentences[place].links for place in others],
            config.average,
            config.skip_identical,
        )
        for sentence, capture, others in zip(sentences, captured, drawn, strict=True)
    ]
    statistics = _statistics(counts)
    hits, totals = statistics["hits"], statistics["totals"]
    if not totals.any():
        raise InputError(
            f"no target token of {pairs.path} has an aligned source word; check the links, the "
            "languages and the template"
        )
    same, same_totals = statistics["identical_hits"], statistics["identical_totals"]
    # Chance is over the sentences that count.
    drawn_totals = np.where(totals > 0, statistics["chance_totals"], 0)
    scores = scored(
        lm,
        "translation-score",
        config,
        run,
        hits,
        totals,
        {
            "chance": rate(statistics["chance"], drawn_totals, config.average),
            "identical": rate(same, same_totals, config.average),
            "different": rate(hits - same, totals - same_totals, config.average),
        },
        statistics,
        _about(part, alignment, totals),
        config.average,
    )
    scores = _signed(scores, alignment)
    if not config.keep_peaks:
        keep_peaks(part, captured, scores, config.seed)
    keep_sentences(part, pairs.pairs, sentences, captured, alignment, scores, config.skip_identical)
    return scores


def with_heads(
    lm: LanguageModel, files: Sequence[PairFile], config: TranslationScore
) -> TranslationScore:
    """The configuration with the heads that link words by their names, as a signature has to say,
    and, where it leaves heads or rows open, as the links that eflomal finds in the pairs decide: no
    hand-made link and no other model is asked. Without files they are left open.

    Heads are those with the highest `linking_scores` over files and, where pairs are read both
    ways, directions; rows those under which the best of them scores higher. InputError for heads,
    or a number of them, that the model lacks.
    """
    how, total = config.head_links or HeadLinks(), lm.geometry.total
    k = count_of(how.k or max(1, min(LINKING, total // 4)), total)
    given = how.heads and resolve_heads(how.heads, how.k, lm.geometry, default=k, model=lm.name)
    if files and (not given or how.rows is None):
        parts = linked_parts(files, both=how.prompts != "one")
        best = dict[QueryName, tuple[float, HeadSet]]()
        tried: tuple[QueryName, ...] = (how.rows,) if how.rows else ("read", "predict")
        for rows in tried:
            scores = linking_scores(lm, parts, config, rows)
            heads = given or scores.top(k)
            best[rows] = max(scores[head] for head in heads), heads
        rows = max(best, key=lambda rows: best[rows][0])
        how, given = replace(how, rows=rows), best[rows][1]
    if config.aligner != "heads" or not given:
        return config
    return replace(config, head_links=replace(how, heads=",".join(keys_of(given))))


def linked_parts(files: Sequence[PairFile], both: bool = True) -> list[PairFile]:
    """At most `LINKED` pairs of every file with the links that eflomal finds in all of it, and
    where `both`, turned round."""
    from headscope.find.head_links import turned

    parts = list[PairFile]()
    for file in files:
        fitted = align_file(file, AlignWords("eflomal"))
        parts.append(replace(file, pairs=linked_pairs(file.pairs, fitted)[:LINKED]))
        if not any(pair.links for pair in parts[-1].pairs):
            raise InputError(
                f"{file.path}: eflomal links no words, so neither heads nor rows can be chosen by "
                "its links; give more pairs, or name both (--align-heads, --align-rows)"
            )
        parts += [turned(parts[-1])] * both
    return parts


def linking_scores(
    lm: LanguageModel, parts: Sequence[PairFile], config: TranslationScore, rows: QueryName
) -> HeadScores:
    """Translation scores among the source's tokens minus chance (known of several pairs), in the
    mean over parts."""
    score = replace(
        config, decode="reference", scope="source", query=rows, aligner="links", head_links=None,
        llm=None, average="macro", skip_identical=False, chance_draws=20, keep_peaks=True,
    )  # fmt: skip
    made = {str(at): translation_score(lm, part, score) for at, part in enumerate(parts)}
    scores = HeadScores.mean(made)
    return scores.above_chance() if scores.chance_known else scores


def linker(lm: LanguageModel, pairs: PairFile, config: TranslationScore) -> Linker:
    """What the aligner `heads` asks; heads are found, and weights read, when words are linked."""

    def link(some: Sequence[SentencePair], words: Sequence[Sides]) -> tuple[str, Sequence[Links]]:
        from headscope.find.head_links import HeadLinker

        return HeadLinker(lm, pairs, with_heads(lm, [pairs], config))(some, words)

    return link


def _statistics(counts: Sequence[Counts]) -> dict[str, NDArray[Any]]:
    return {
        "hits": np.stack([count.hits for count in counts]).astype(np.uint16),
        "totals": np.array([count.total for count in counts], dtype=np.int32),
        "identical_hits": np.stack([count.identical_hits for count in counts]).astype(np.uint16),
        "identical_totals": np.array([count.identical_total for count in counts], dtype=np.int32),
        "chance": np.stack([count.chance for count in counts]).astype(np.float32),
        "chance_totals": np.array([count.chance_total for count in counts], dtype=np.float64),
    }


def _about(part: RunPart, alignment: Alignment, totals: NDArray[Any]) -> dict[str, Any]:
    """What was counted: the linked target tokens of each sentence, and how they were linked."""
    return {
        "pair": part.name,
        "examples": int((totals > 0).sum()),
        "left_out": int((totals == 0).sum()),
        "tokens": int(totals.sum()),
        "units": alignment.units,
        "aligner": alignment.aligner,
        "links_digest": alignment.digest,
        **{name: number for name, number in alignment.stats.items() if name == "fitted_on"},
    }


def _signed(scores: HeadScores, alignment: Alignment) -> HeadScores:
    """With the links in the signature: a statistical aligner gives others every time."""
    if not scores.signature:
        return scores
    digest = hashlib.sha256(alignment.digest.encode()).hexdigest()[:12]
    return replace(scores, signature=f"{scores.signature}|links:{digest}")
