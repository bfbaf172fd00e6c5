"""Which of two contradicting statements an answer follows, with a language turned up or down.

Attention transfer (LAHIS, Liu et al. 2025, arXiv 2511.07498): the heads of language A, the first
statement's, times 3, or those of language B, the second one's, times 0, should move answers from
B's statement to A's. Beside either stand as many random heads under the same gate.

An answer is read in two ways: from the text (it holds an answer of A and none of B, in English or
as the language says it), and from ranks (the better of the English and native first tokens of A's
answer against that of B's; equal ranks count half for each).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headscope.data.transfer import TransferPrompt
from headscope.data.transfer.prompts import follows
from headscope.heads import HeadSet
from headscope.measure.statistics import counted
from headscope.verify.writing.arms import Arm, Name, as_is, beside
from headscope.verify.writing.evidence import Measure, Numbers
from headscope.verify.writing.texts import Group, output_rows

UP, DOWN = "up", "down"
#: What is to be proved: A's share rises, B's falls. Nothing is expected of the other two.
MEASURES = {
    "follows_a": Measure(raises=True),
    "follows_b": Measure(),
    "both": Measure(),
    "neither": Measure(),
    "ranked_a": Measure(raises=True),
}
CONTROLS = {UP: f"{UP}-", DOWN: f"{DOWN}-"}


def transfer_arms(
    a: HeadSet, b: HeadSet, up: float, down: float, draws: int, seed: int
) -> tuple[Arm, ...]:
    """The model as it is, with A's heads times `up`, with B's heads times `down`, and with as many
    random heads, free and layer-matched, under either gate. An empty set has no arms.

    Random heads are outside both sets as far as possible.
    """
    arms = [as_is(a)]
    for kind, heads, gate, other in ((UP, a, up, b), (DOWN, b, down, a)):
        if len(heads):
            arms.append(Arm(Name(kind), heads, gate))
            arms += beside(heads, gate, draws, seed, avoid=other, prefix=f"{kind}-")
    return tuple(arms)


def best_ranks(forms: Sequence[Any], ranks: Sequence[int]) -> dict[str, int]:
    """The best rank of each side's forms, as `a` and `b`."""
    return {
        side: min(rank for form, rank in zip(forms, ranks, strict=True) if form.side == side)
        for side in ("a", "b")
    }


def measure_answers(
    groups: Sequence[Group],
    prompts: Mapping[str, Sequence[TransferPrompt]],
    texts: Sequence[Sequence[Sequence[str]]],
    ranks: Sequence[Sequence[Sequence[Mapping[str, int]]]],
) -> dict[str, Numbers]:
    """The numbers of each answer by pair of languages.

    `texts` and `ranks` (see `best_ranks`) are by group, arm and prompt.
    """
    found: dict[str, Numbers] = {}
    for group, by_arm, ranked in zip(groups, texts, ranks, strict=True):
        asked = prompts[group.name]
        a, b = (
            np.array(
                [
                    [follows(text, answer) for text, answer in zip(arm, answers, strict=True)]
                    for arm in by_arm
                ]
            )
            for answers in ([one.answer_a for one in asked], [one.answer_b for one in asked])
        )
        above = np.array([[one["b"] - one["a"] for one in arm] for arm in ranked])
        found[group.name] = Numbers(
            group.arms,
            {
                "follows_a": counted(a & ~b),
                "follows_b": counted(b & ~a),
                "both": counted(a & b),
                "neither": counted(~a & ~b),
                "ranked_a": counted((np.sign(above) + 1) / 2),
            },
        )
    return found


def transfer_rows(
    groups: Sequence[Group],
    texts: Sequence[Sequence[Sequence[str]]],
    ranks: Sequence[Sequence[Sequence[Mapping[str, int]]]],
) -> Iterator[dict[str, Any]]:
    """One row a pair, arm and prompt: the output, and the best ranks of either answer."""
    flat = (one for group in ranks for arm in group for one in arm)
    for row, one in zip(output_rows(groups, texts, "pair"), flat, strict=True):
        del row["reference"]
        yield {**row, "rank_a": one["a"], "rank_b": one["b"]}
