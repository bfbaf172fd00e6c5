"""How much worse a model predicts each text without some of its heads (TRater).

Token Alignment Heads (ICLR 2026), TRater: score(x) is the mean over the predicted tokens of x of
NLL(heads removed) - NLL(full model). Where the removed heads are those that align translations, a
text that holds its own translation scores high.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np

from headscope import options
from headscope.errors import InputError
from headscope.heads import check_geometry
from headscope.settings import Option, Settings

if TYPE_CHECKING:
    from headscope.heads import Gate
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement
    from headscope.use.rating.passes import Losses

#: Longest row where the configuration names none, and the model's context is no shorter.
LONGEST = 2048
#: Tokens of the largest batch tried: larger ones save nothing, since these keep any device busy.
MOST = 32768


@dataclasses.dataclass(frozen=True)
class Rating(Settings):
    """How texts are rated.

    Attributes:
        overlap: tokens of context that a window takes from the one before; None for a quarter of
            ``max_tokens``.
        share: run the layers below the first changed head once for both passes; changes time
            alone.
    """

    batch_tokens: options.BatchTokens = 8192
    max_tokens: Annotated[
        int | None,
        Option("Longest row; without it 2048, or the model's context if less.", min=2),
    ] = None
    windows: Annotated[
        bool, Option("Take longer documents whole, in windows; else they are cut.")
    ] = False
    overlap: int | None = None
    share: bool = True


@dataclasses.dataclass(frozen=True)
class Rated:
    """The losses of one text.

    Attributes:
        nll_full: mean negative log-likelihood of a predicted token by the model as it is, in nats.
        nll_removed: the same under the gate.
        tokens: predicted tokens, at least one.
    """

    nll_full: float
    nll_removed: float
    tokens: int

    @property
    def score(self) -> float:
        """What the gate costs, in nats a predicted token: ``nll_removed`` - ``nll_full``."""
        return self.nll_removed - self.nll_full


@dataclasses.dataclass(frozen=True)
class Unrated:
    """A text that cannot be rated, and why."""

    reason: str


class RatedRow(NamedTuple):
    """The tokens ``begin`` to ``end`` - 1 of a text, of which those from ``first`` on count.

    ``first`` is above ``begin``, since nothing predicts the first token of a row.
    """

    begin: int
    end: int
    first: int


def rate_texts(
    lm: LanguageModel,
    texts: Sequence[str] | str,
    gate: Gate,
    config: Rating | None = None,
    progress: Callable[[int, int], None] | None = None,
    replacement: Replacement | None = None,
) -> list[Rated | Unrated]:
    """Rate texts by what a gate costs on them.

    Texts are tokenised by the tokenizer's own defaults. Rows of similar length share a batch, and
    batches depend on the texts of the call alone, so the same texts give the same numbers.

    Args:
        lm: the model.
        texts: the texts; what is not a text is `Unrated`.
        gate: the gate, 0 at removed heads.
        config: the configuration.
        progress: called with how many texts of how many are done.
        replacement: made of documents, what stands in the place of what the gate removes (see
            `headscope.lm.replacement_of`); None: zero.

    Returns:
        For each text, in order, its losses; or why there are none: no token is predicted, or the
        model's loss is not finite.

    Raises:
        InputError: if the gate or the configuration does not fit the model.
        torch.OutOfMemoryError: if memory does not suffice for a single row.
    """
    import torch

    from headscope.lm.inputs import evaluating
    from headscope.use.rating.passes import row_losses_with_and_without, shared_layers

    config = config or Rating()
    check_geometry(gate, lm.geometry, "the gate")
    longest, overlap = row_lengths(lm, config)
    done: dict[int, Rated | Unrated] = {}
    owners: list[int] = []
    rows: list[list[int]] = []
    firsts: list[int] = []
    texts = [texts] if isinstance(texts, str) else texts
    for number, text in enumerate(texts):
        tokens = _tokens(lm, text)
        if isinstance(tokens, Unrated):
            done[number] = tokens
            continue
        for begin, end, first in rows_of(len(tokens), longest, overlap):
            owners.append(number)
            rows.append(tokens[begin:end])
            firsts.append(first - begin)
    if progress:
        progress(len(done), len(texts))
    if rows:
        missing = Counter(owners)
        losses: dict[int, list[Losses]] = {number: [] for number in missing}
        shared = shared_layers(lm, gate, config.share)
        batches = row_losses_with_and_without(
            lm, rows, firsts, gate, config.batch_tokens, shared, replacement
        )
        with evaluating(lm.model), torch.no_grad():
            for places, values in batches:
                for place, row in zip(places, values, strict=True):
                    number = owners[place]
                    losses[number].append(row)
                    missing[number] -= 1
                    if not missing[number]:
                        done[number] = _rated(losses.pop(number))
                if progress:
                    progress(len(done), len(texts))
    return [done[number] for number in range(len(texts))]


def fitted(lm: LanguageModel, gate: Gate, config: Rating | None = None, most: int = MOST) -> Rating:
    """The configuration with the largest batches that memory holds, found by trying.

    A batch of ``most`` tokens in rows of the longest kind is rated; where it does not fit, half of
    it, and so on. Call it once for a model on a device, before `rate_texts`. Rounding differs
    between batches of different sizes, so results of devices with unlike memory may differ by it.

    Raises:
        InputError: if ``most`` does not hold a single row.
        torch.OutOfMemoryError: if memory does not suffice for a single row.
    """
    import torch

    from headscope.lm.batching import in_halves
    from headscope.lm.inputs import evaluating, ordinary_tokens
    from headscope.use.rating.passes import batch_losses, shared_layers

    config = config or Rating()
    longest, _ = row_lengths(lm, config)
    if most < longest:
        raise InputError(
            f"A batch of {most} tokens does not hold a row of {longest}; let it be larger, or "
            "lower max_tokens."
        )
    ordinary = ordinary_tokens(lm.model, lm.tokenizer_or_none) or [0]
    row = [ordinary[place % len(ordinary)] for place in range(longest)]
    shared = shared_layers(lm, gate, config.share)

    def work(places: list[int]) -> None:
        batch_losses(lm, [row] * len(places), [1] * len(places), gate, shared)

    with evaluating(lm.model), torch.no_grad():
        places, _ = next(in_halves([range(most // longest)], work))
    return dataclasses.replace(config, batch_tokens=len(places) * longest)


def row_lengths(lm: LanguageModel, config: Rating) -> tuple[int, int | None]:
    """Tokens of the longest row, and by how many windows overlap; None if texts are cut."""
    context = lm.context_length
    longest = min(LONGEST, context) if config.max_tokens is None else config.max_tokens
    if not 2 <= longest <= context:
        raise InputError(
            f"max_tokens is {longest}; it must be at least 2, since nothing predicts the first "
            f"token, and at most {context}, which the model's context holds. Longer texts can be "
            "taken in windows."
        )
    overlap = config.overlap
    if not config.windows and overlap is not None:
        raise InputError("An overlap was given, but texts are cut; ask for windows with it.")
    if config.windows and overlap is None:
        overlap = max(1, longest // 4)
    rows_of(0, longest, overlap)  # raises where they do not fit together
    return longest, overlap


def rows_of(tokens: int, longest: int, overlap: int | None = None) -> list[RatedRow]:
    """The rows in which each predicted token of a text of so many `tokens` counts exactly once.

    A text of fewer than two has no predicted token and gives no row. `overlap` None cuts the text
    at `longest` tokens, at least 2. A number, 1 to `longest` - 1 (else InputError), takes all of it
    in windows: each begins with as many tokens of the one before, read again as context.
    """
    if overlap is not None and not 1 <= overlap < longest:
        raise InputError(
            f"Windows of {longest} tokens cannot overlap by {overlap}; choose 1 to {longest - 1}."
        )
    if tokens < 2:
        return []
    rows = [RatedRow(0, min(tokens, longest), 1)]
    while overlap is not None and rows[-1].end < tokens:
        known = rows[-1].end
        begin = known - overlap
        rows.append(RatedRow(begin, min(tokens, begin + longest), known))
    return rows


def _tokens(lm: LanguageModel, text: object) -> list[int] | Unrated:
    """The tokens of a text, at least two; or why there are none."""
    if not isinstance(text, str):
        return Unrated(f"the text is of type {type(text).__name__}, not a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return Unrated(f"the text is not valid Unicode at character {error.start}")
    try:
        tokens = lm.encode(text, closed=True)
    except InputError as error:
        return Unrated(str(error))
    if len(tokens) < 2:
        what = "one token" if tokens else "no token"
        return Unrated(f"the text has {what}, so none is predicted from one before it")
    return tokens


def _rated(rows: Sequence[Losses]) -> Rated | Unrated:
    means = []
    count = sum(len(row.full) for row in rows)
    for at, name in enumerate(("of the whole model", "under the gate")):
        losses = np.concatenate([row[at] for row in rows])
        if not np.isfinite(losses).all():
            return Unrated(f"the loss {name} is not finite on this text")
        # Rounded once, so that the order in which windows were done does not matter.
        means.append(math.fsum(losses.tolist()) / count)
    return Rated(means[0], means[1], count)
