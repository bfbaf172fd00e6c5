"""How much attention a head pays to the aligned source word, whether or not it peaks there.

The Translation Score asks where the largest weight lies (Token Alignment Heads, section 2.2). Its
neighbour here takes the weight itself: the softmax weights on the tokens of the aligned source
word, at the step that predicts the target token, summed; the mean over such tokens of a sentence,
then over sentences. A head that spreads its attention around the right word has much mass and few
peaks; one whose small weights happen to be largest there has many peaks and little mass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.find.capture import Part, Progress
from headscope.find.decoding import Given, given_texts
from headscope.find.hits import Sentence, allowed_keys, similar_sentences
from headscope.find.translation import rate
from headscope.find.translation_config import TranslationScore
from headscope.heads import HeadScores
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.batching import collate, in_halves, length_buckets
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.measure.intervals import bootstrap_interval
from headscope.runs.plain import plain

if TYPE_CHECKING:
    from headscope.data.pairs import PairFile
    from headscope.lm import LanguageModel
    from headscope.runs import Run

METHOD = "attention-mass"
Floats = NDArray[np.float64]
#: Padded tokens of a batch, at most: weights are kept for rows × heads × source tokens.
MOST_TOKENS = 4096
DEFAULT = TranslationScore()


def attention_mass(
    lm: LanguageModel,
    pairs: PairFile,
    config: TranslationScore = DEFAULT,
    run: Run | None = None,
    progress: Progress | None = None,
) -> HeadScores:
    """Attention on the aligned source word, of every head, on one direction's references.

    Args:
        lm: the model.
        pairs: sentences and translations, with or without word links.
        config: as for `translation_score`, with `decode="reference"` and `average="macro"`; `scope`
            has no meaning here, since weights are those over all keys.
        run: a run folder, where the links are kept.
        progress: called with (sentences done, sentences in all).

    Returns:
        Scores in [0, 1] with bootstrap bounds over sentences. `extra`: `chance`, the same under the
        links of other pairs of similar lengths. `statistics`: `mass` and `chance`, (S, L, W), of
        the sentences that have an aligned target token. `config` tells `examples`, `left_out`,
        `tokens`, `units`, `aligner` and `links_digest`.

    Raises:
        InputError: for another `decode` or `average`, if no sentence has an aligned target token,
            or as `attention_weights`.
    """
    if config.decode != "reference" or config.average != "macro":
        raise InputError("attention mass is of reference translations, as a mean over sentences")
    part = Part(run, f"{pairs.source_language}-{pairs.target_language}")
    given, alignment = given_texts(lm, pairs, config, part)
    words = [one.words for one in given]
    drawn = similar_sentences([one.lengths for one in words], config.chance_draws, config.seed)
    tables = [
        _tables(one, [words[at] for at in others]) for one, others in zip(words, drawn, strict=True)
    ]
    kept = [at for at, (own, _) in enumerate(tables) if own.any()]
    if not kept:
        raise InputError(f"no target token of {pairs.path} has an aligned source word")
    found: dict[int, tuple[Floats, Floats]] = {}
    tokens = min(config.batch_tokens, MOST_TOKENS)
    shift = 1 if config.query == "predict" else 0
    buckets = length_buckets([len(given[at].ids) for at in kept], tokens, lm.pass_overhead)
    for places, masses in in_halves(
        [[kept[place] for place in bucket] for bucket in buckets],
        lambda some: _masses(lm, [given[at] for at in some], [tables[at] for at in some], shift),
    ):
        found.update(zip(places, masses, strict=True))
        if progress:
            progress(len(found), len(kept))
    mass, chance = (np.stack([found[at][number] for at in kept]) for number in (0, 1))
    ones, known = np.ones(len(kept)), np.isfinite(chance[:, lm.geometry.mask()]).all(axis=1)
    low, high = bootstrap_interval(
        mass, ones, draws=config.bootstrap_draws, seed=config.seed, level=config.level
    )
    digest = hashlib.sha256(alignment.digest.encode()).hexdigest()[:12]
    return HeadScores(
        lm.geometry,
        mass.mean(axis=0),
        METHOD,
        low,
        high,
        extra={"chance": rate(chance, known.astype(float), "macro")},
        statistics={"mass": mass, "chance": chance},
        config={
            **plain(config),
            "pair": part.name,
            "examples": len(kept),
            "left_out": len(given) - len(kept),
            "tokens": int(sum(own.any(axis=1).sum() for own, _ in tables)),
            "units": alignment.units,
            "aligner": alignment.aligner,
            "links_digest": alignment.digest,
        },
        provenance=dict(run.provenance) if run is not None else {},
        signature=f"{run.signature}|links:{digest}" if run is not None else "",
    )


def _tables(sentence: Sentence, others: Sequence[Sentence]) -> tuple[Floats, Floats]:
    """What a weight on each key counts for each target token, (n, T): own links, and others'.

    Both sum to a mean over target tokens; the second is NaN where no other links fit.
    """
    tables = [allowed_keys(sentence, links) for links in (o.links for o in (sentence, *others))]
    means = [one / max(1, one.any(axis=1).sum()) for one in tables]
    fitting = [mean for mean, one in zip(means[1:], tables[1:], strict=True) if one.any()]
    return means[0], np.mean(fitting, axis=0) if fitting else np.full(means[0].shape, np.nan)


def _masses(
    lm: LanguageModel,
    given: Sequence[Given],
    tables: Sequence[tuple[Floats, Floats]],
    shift: int,
) -> list[tuple[Floats, Floats]]:
    """The mass of each head, (L, W), by own links and by others', from one pass."""
    batch = collate([one.ids for one in given], lm.pad_token_id)
    places = [np.flatnonzero(one.source) for one in given]
    keys = torch.full((len(given), max(map(len, places))), -1, dtype=torch.int64)
    wanted = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for row, (one, own, before) in enumerate(zip(given, places, batch.padding, strict=True)):
        keys[row, : len(own)] = torch.from_numpy(own + before)
        wanted[row, torch.from_numpy(one.rows + before - shift)] = True
    request = WeightRequest(keys, rows=wanted)
    inputs = forward_inputs(lm.model, batch, logits=False)
    with evaluating(lm.model), torch.no_grad(), lm.attention_weights(request) as found:
        lm.model(**inputs)
    of_row, weights = found.rows[:, 0].numpy(), found.weights.cpu().double().numpy()
    mask, made = lm.geometry.mask(), []
    for row, (pair_of, of_keys) in enumerate(zip(tables, places, strict=True)):
        seen = weights[of_row == row][..., : len(of_keys)]
        pair: list[Any] = []
        for table in pair_of:
            over_heads = np.full(lm.geometry.shape, np.nan)
            over_heads[mask] = np.einsum("nhk,nk->h", seen, table[:, of_keys])
            pair.append(over_heads)
        made.append((pair[0], pair[1]))
    return made
