"""Induction score: heads that look at what followed the same token before.

A block of random tokens is given to the model twice. A head is an induction head as far as its
peak, seen from a token of the second block, is the token that came after the same token in the
first block (Olsson et al. 2022; random repeated tokens as in their per-head measure). Beside it
stands the previous-token score: how often a head looks at the token just before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError
from headscope.find.scoring import Arrays, Resampled, RunPart, rate, scored
from headscope.heads import HeadScores
from headscope.progress import Steps
from headscope.settings import Option

if TYPE_CHECKING:
    from headscope.find.capture import Captured
    from headscope.lm import LanguageModel
    from headscope.runs import Run

#: The first place whose token before is not the first of all, at which many heads look anyway.
FROM = 2
#: Tokens of a natural text that are read at most.
TEXT_TOKENS = 256


@dataclass(frozen=True)
class Induction(Resampled):
    """How repeated blocks are made and read.

    Attributes:
        sequences: how many blocks.
        length: tokens of a block, n; the model reads 2 n of them.
        seed: of the tokens and of the bootstrap.
        batch_tokens: padded tokens of a batch.
    """

    sequences: Annotated[int, Option("Blocks of random tokens.", min=1)] = 50
    length: Annotated[
        int, Option("Tokens of a block, which is read twice.", flag="--block", min=2)
    ] = 50
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = 8192

    # Read by `capture_reference`: the row of a token is the one that reads it.
    query = "read"
    max_new_tokens = None


def induction(
    lm: LanguageModel,
    config: Induction = Induction(),
    run: Run | None = None,
    progress: Steps | None = None,
    texts: Sequence[str] = (),
) -> HeadScores:
    """The share of second-block queries whose peak is the token after the earlier occurrence.

    Of the tokenizer only special ids and what opens a text are asked for. `texts` are natural ones
    to read too, as far as they have three tokens; of each at most `TEXT_TOKENS`. Raises
    `InputError` if two blocks do not fit the context, or there are too few ordinary tokens.

    Returns:
        Scores in [0, 1] with bootstrap bounds over sequences. `extra`: `chance`, the mean over all
            n shifts of the places that would count (a head that looks anywhere into the block
            scores 1 / n), `duplicate`, the share of peaks on the earlier occurrence itself, and
            `previous_token`, the share of queries in the first block, from place 2 on, whose peak
            is the token before; with `texts` also `previous_token_text`, the same over these.
            `statistics`, by sequence: `hits`, `totals` (n each), `block` (peaks on any place that
            could count), `duplicates`, `previous` and `previous_totals`; by text `text_previous`
            and `text_previous_totals`.
    """
    from headscope.find.capture import capture_reference, keep_peaks

    opening, blocks = repeated_blocks(lm, config)
    n, first = config.length, len(opening)
    ids = [[*opening, *block, *block] for block in blocks]
    before = np.arange(FROM, first + n)
    rows = [np.concatenate([before, np.arange(first + n, first + 2 * n)]) for _ in ids]
    part = RunPart(run, "induction and previous tokens")
    every = capture_reference(lm, ids, rows, None, config, part, progress)
    captured = [replace(text, peaks=text.peaks[len(before) :]) for text in every]
    # Token i of the second block occurred at `first + i`; what followed stands one further on.
    statistics: Arrays = {
        "hits": _stacked(captured, np.arange(n) + first + 1),
        "duplicates": _stacked(captured, np.arange(n) + first),
        "block": np.stack(
            [((text.peaks > first) & (text.peaks <= first + n)).sum(axis=0) for text in captured]
        ).astype(np.uint16),
        "totals": np.full(len(ids), n, dtype=np.int32),
        "previous": _on_previous(every, [before] * len(ids)),
        "previous_totals": np.full(len(ids), len(before), dtype=np.int32),
    }
    if texts:
        statistics |= _over_texts(lm, texts, config, run)
    totals = statistics["totals"]
    means = {
        "chance": rate(statistics["block"], totals) / n,
        "duplicate": rate(statistics["duplicates"], totals),
        "previous_token": rate(statistics["previous"], statistics["previous_totals"]),
    }
    if texts:
        means["previous_token_text"] = rate(
            statistics["text_previous"], statistics["text_previous_totals"]
        )
    about = {"examples": len(ids), "tokens": int(totals.sum())}
    scores = scored(
        lm, "induction", config, run, statistics["hits"], totals, means, statistics, about
    )
    keep_peaks(part, captured, scores, config.seed)
    return scores


def _over_texts(
    lm: LanguageModel, texts: Sequence[str], config: Induction, run: Run | None
) -> Arrays:
    from headscope.find.capture import capture_reference

    ids = [lm.encode(text, most=TEXT_TOKENS) for text in texts]
    ids = [text for text in ids if len(text) > FROM]
    if not ids:
        raise InputError(
            f"none of the {len(texts)} texts has more than {FROM} tokens, so no token has another "
            "before it to look at; give longer ones"
        )
    rows = [np.arange(FROM, len(text)) for text in ids]
    captured = capture_reference(lm, ids, rows, None, config, RunPart(run, "texts"))
    return {
        "text_previous": _on_previous(captured, rows),
        "text_previous_totals": np.array([len(text) for text in rows], dtype=np.int32),
    }


def _on_previous(
    captured: Sequence[Captured], rows: Sequence[NDArray[np.intp]]
) -> NDArray[np.uint16]:
    """How many peaks of each text's first rows fall on the token before, (S, L, W)."""
    return np.stack(
        [
            (text.peaks[: len(places)] == places[:, None, None] - 1).sum(axis=0)
            for text, places in zip(captured, rows, strict=True)
        ]
    ).astype(np.uint16)


def repeated_blocks(
    lm: LanguageModel, config: Induction
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """What opens a text of this model (a begin mark, or nothing), and the blocks.

    The tokens of a block are ordinary ones of the vocabulary, all different, so that each has one
    earlier occurrence.
    """
    from headscope.lm.inputs import ordinary_tokens

    tokenizer = lm.tokenizer_or_none
    added = set(getattr(tokenizer, "added_tokens_decoder", None) or ())
    known = [index for index in ordinary_tokens(lm.model, tokenizer) if index not in added]
    if len(known) < config.length:
        raise InputError(
            f"a block of {config.length} different tokens needs more than the {len(known)} "
            f"ordinary tokens of {lm.name}; make it shorter with --block"
        )
    opening = _opening(lm)
    whole = len(opening) + 2 * config.length
    if whole > lm.context_length:
        raise InputError(
            f"two blocks of {config.length} tokens make {whole} and the context of {lm.name} "
            f"holds {lm.context_length}; make them shorter with --block"
        )
    rng = random.Random(f"induction {config.seed}")
    return opening, [tuple(rng.sample(known, config.length)) for _ in range(config.sequences)]


def _opening(lm: LanguageModel) -> tuple[int, ...]:
    """The special tokens that the tokenizer itself puts in front of a text."""
    if lm.tokenizer_or_none is None:
        return ()
    special = set(lm.tokenizer.all_special_ids)
    ids = lm.encode("a")
    count = next((at for at, token in enumerate(ids) if token not in special), len(ids))
    return tuple(ids[:count])


def _stacked(captured: list[Captured], places: NDArray[np.intp]) -> NDArray[np.uint16]:
    """How many peaks of each text fall on the place that belongs to their row, (S, L, W)."""
    return np.stack(
        [(text.peaks == places[:, None, None]).sum(axis=0) for text in captured]
    ).astype(np.uint16)
