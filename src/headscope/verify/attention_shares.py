"""Does a mask pick heads that look at the answer: attention on the right one of several candidates.

After Heads Up! (ICML 2025), table 7: the attention of the last input token on the candidates'
tokens, normalised over them, summed over the tokens of the target. Weights are exact, and no
attention matrix is formed (`headscope.lm.attention.weights`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.tasks import PLACEHOLDER, Example, Task, prompt
from headscope.errors import InputError, naming
from headscope.evidence.rows import SHARE, Statistic
from headscope.heads.scores import mean_of_defined
from headscope.results.attention import RandomSets

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Floats = NDArray[np.floating[Any]]
#: Random sets of as many heads as the mask keeps, against which its heads are held.
SETS = 999


@dataclass(frozen=True)
class Placed:
    """A prompt as tokens, and which of them are the candidates'.

    Attributes:
        ids: tokens up to the last input token, which predicts the answer.
        target: places of the tokens of the right candidate.
        others: places of the tokens of the other candidates.
    """

    ids: tuple[int, ...]
    target: tuple[int, ...]
    others: tuple[int, ...]

    @property
    def uniform(self) -> float:
        """The target's share of the candidates' tokens."""
        return len(self.target) / (len(self.target) + len(self.others))


def place_candidates(
    lm: LanguageModel, task: Task, example: Example, instructed: bool = False
) -> Placed:
    """Tokenise the prompt of an example and find its candidates in it.

    A token belongs to a candidate if its characters, leading white space aside, intersect it.
    Raises `InputError` naming file and line, if the example has no two candidates, the answer is
    none of them, or one cannot be found in the prompt or has no token of its own.
    """
    from headscope.lm.prompting import chat_writer, encode_answers
    from headscope.lm.tokens import tokenise

    where = f"{task.path}, example {example.id} (line {example.line})"
    if len(example.candidates) < 2 or example.output not in example.candidates:
        raise InputError(
            f"{where}: has no candidates among which the answer could be looked at; use a task "
            'whose inputs are words such as "a, b, c" with one of them as the output, or add a '
            "column `candidates`"
        )
    text = prompt(task, example, instructed)
    template = task.instruction if instructed and task.instruction is not None else task.bare
    begin = template.index(PLACEHOLDER)
    spans = _within(text, begin, begin + len(example.input), example.candidates, where)
    writer = chat_writer(lm, task.chat)
    wrapped, offset = text, 0
    if writer is not None:
        with naming(where):
            wrapped, offset = writer.write([text])
        # White space around the prompt is left out.
        offset -= len(text) - len(text.lstrip())
    (row,) = encode_answers(lm, [text], [example.output], task.chat)
    ids = row.ids[: row.start]
    own = tokenise(lm.tokenizer, wrapped, special=writer is None)
    right: set[int] = set()
    every: set[int] = set()
    for word, (start, end) in zip(example.candidates, spans, strict=True):
        covered = {
            place
            for place, (token, (first, last)) in enumerate(zip(own.ids, own.spans, strict=True))
            if first < end + offset and last > start + offset and ids[place : place + 1] == (token,)
        }
        if not covered:
            raise InputError(
                f"{where}: the candidate {text[start:end]!r} has no token of its own in the prompt"
            )
        every |= covered
        right |= covered if word == example.output else set()
    return Placed(ids, tuple(sorted(right)), tuple(sorted(every - right)))


def _within(
    text: str, begin: int, end: int, words: Sequence[str], where: str
) -> list[tuple[int, int]]:
    """The characters of each word in ``text[begin:end]``, one after another where they can be.

    A word of its own is meant rather than a part of another one: art, not that of cart.
    """
    spans = []
    at = begin
    for word in words:
        patterns = (rf"(?<!\w){re.escape(word)}(?!\w)", re.escape(word))
        tries = (
            re.compile(pattern).search(text, start, end)
            for pattern in patterns
            for start in (at, begin)
        )
        match = next((match for match in tries if match), None)
        if match is None:
            raise InputError(f"{where}: the candidate {word!r} is not in the input; correct one")
        at = match.end()
        spans.append(match.span())
    return spans


def target_shares(
    lm: LanguageModel, prompts: Sequence[Placed], batch_tokens: int = 8192
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Shares on the target, and attention on all candidates, under whatever gates are active:
    float32 (n, L, W) each.

    The first is NaN where there is no head, or where a head's attention on all candidates is 0 (a
    sliding window that ends before them, for example). Raises `InputError` as
    `headscope.lm.attention.weights.attention_weights`.
    """
    shape = (len(prompts), *lm.geometry.shape)
    share = np.full(shape, np.nan, dtype=np.float32)
    mass = np.full(shape, np.nan, dtype=np.float32)
    heads = tuple(lm.geometry.heads())
    layers = np.array([head.layer for head in heads])
    places = np.array([head.head for head in heads])
    lengths = [len(placed.ids) for placed in prompts]
    for rows, (target, on_candidates) in lm.in_batches(
        lengths, batch_tokens, lambda rows: _masses(lm, [prompts[row] for row in rows])
    ):
        at = np.array(rows)[:, None]
        mass[at, layers, places] = on_candidates
        with np.errstate(invalid="ignore", divide="ignore"):
            share[at, layers, places] = np.where(on_candidates > 0, target / on_candidates, np.nan)
    return share, mass


def _masses(
    lm: LanguageModel, prompts: Sequence[Placed]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Attention on the target and on all candidates, float64 (B, N), from one pass."""
    import torch

    from headscope.lm.attention.weights import WeightRequest, weights_in

    batch = lm.collate([placed.ids for placed in prompts])
    widest = max(len(placed.target) + len(placed.others) for placed in prompts)
    keys = torch.full((len(prompts), widest), -1, dtype=torch.int64)
    right = np.zeros((len(prompts), 1, widest))
    for row, (placed, before) in enumerate(zip(prompts, batch.padding, strict=True)):
        own = [before + place for place in (*placed.target, *placed.others)]
        keys[row, : len(own)] = torch.tensor(own)
        right[row, 0, : len(placed.target)] = 1
    read = weights_in(lm, batch, WeightRequest(keys, rows="last"))
    weights = read.weights.cpu().double().numpy()
    return (weights * right).sum(axis=-1), weights.sum(axis=-1)


#: Which heads a mean is over, in words.
GROUPS = {"in": "heads in the mask", "all": "all heads", "out": "heads outside the mask"}
STATISTICS = {
    **{
        f"share_{group}": Statistic(f"right word, {words}", unit=SHARE, digits=1)
        for group, words in GROUPS.items()
    },
    "in_minus_out": Statistic("right word, in the mask \u2212 outside", unit=SHARE, digits=1),
    "above_uniform": Statistic("right word, all heads \u2212 even", unit=SHARE, digits=1),
    "uniform": Statistic("right word, even attention", unit=SHARE, digits=1),
    **{
        f"attention_{group}": Statistic(f"attention on words, {words}", unit=SHARE, digits=1)
        for group, words in GROUPS.items()
    },
    "undefined": Statistic("heads without attention on words", "lower", SHARE, digits=1),
}


def numbers_of(
    share: Floats,
    mass: Floats,
    uniform: Sequence[float],
    kept: NDArray[np.bool_],
    pooled: bool = False,
) -> dict[str, NDArray[np.float64] | None]:
    """The numbers of every sample by statistic, (n, 2): means over heads, and whether defined.

    `share` (n, L, W) is that of `target_shares`, `mass` (n, L, W) attention on all candidates,
    `uniform` for each sample the share of even attention, and `kept`, bool (L, W), the heads in the
    mask. `pooled`: the share of several heads is that of their summed attention, not the mean of
    their shares. None where no sample has such a head.
    """
    share, mass = share.astype(np.float64), mass.astype(np.float64)
    there = ~np.isnan(mass[0])
    members = {"all": there, "in": there & kept, "out": there & ~kept}
    shares = {
        group: shares_of(share[:, heads], mass[:, heads] if pooled else None)
        for group, heads in members.items()
    }
    even = np.asarray(uniform, dtype=np.float64)
    values = {
        **{f"share_{group}": numbers for group, numbers in shares.items()},
        "in_minus_out": shares["in"] - shares["out"],
        "above_uniform": shares["all"] - even,
        "uniform": even,
        **{
            f"attention_{group}": mean_of_defined(mass[:, heads], axis=1)
            for group, heads in members.items()
        },
        "undefined": np.isnan(share[:, there]).mean(axis=1),
    }
    defined = {name: ~np.isnan(numbers) for name, numbers in values.items()}
    return {
        name: np.stack([np.where(defined[name], numbers, 0.0), defined[name]], axis=1)
        if defined[name].any()
        else None
        for name, numbers in values.items()
    }


def shares_of(share: Floats, mass: Floats | None = None) -> NDArray[np.float64]:
    """The share of several heads in each sample, (n,), of those of each, (n, heads), NaN left out:
    their mean, or that of their summed attention, of which each has `mass`."""
    if mass is None:
        return mean_of_defined(share, axis=1)
    with np.errstate(invalid="ignore"):
        pooled: NDArray[np.float64] = (np.nan_to_num(share) * mass).sum(axis=1) / mass.sum(axis=1)
    return pooled


def beside_random_sets(
    share: Floats,
    kept: NDArray[np.bool_],
    there: NDArray[np.bool_],
    seed: int = 0,
    mass: Floats | None = None,
) -> RandomSets:
    """The mean share of the kept heads beside random sets of as many of the heads of the model.

    `share` (n, L, W) as in `numbers_of`, and `mass` where it is `pooled`; `there`, bool (L, W), the
    heads of the model. p is two-sided: that such a set lies as far from their mean as the mask's
    heads do.
    """
    of_heads = share[:, there].astype(np.float64)
    means = mean_of_defined(of_heads.T, axis=1)
    defined = np.flatnonzero(~np.isnan(means))
    inside = kept[there][defined]
    if not inside.any():
        return RandomSets()

    def of(heads: NDArray[np.intp]) -> float:
        if mass is None:
            return float(means[heads].mean())
        weights = mass[:, there].astype(np.float64)[:, heads]
        return float(mean_of_defined(shares_of(of_heads[:, heads], weights)))

    own, size = of(defined[inside]), int(inside.sum())
    random = np.random.default_rng([seed, len(defined)])
    drawn = np.array([of(random.choice(defined, size, replace=False)) for _ in range(SETS)])
    middle = float(drawn.mean())
    # Equal sums may differ in their last bits: a tie counts as at least as far.
    as_far = np.abs(drawn - middle) >= abs(own - middle) - 1e-12
    low, high = np.quantile(drawn, [0.025, 0.975])
    p_value = float((1 + as_far.sum()) / (1 + len(drawn)))
    return RandomSets(len(drawn), middle, float(low), float(high), p_value)
