"""The logit lens of one contradiction: layer by layer, which answer is nearer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headscope.lm.lens import lens, token_ranks
from headscope.lm.states import states
from headscope.results.writing import LensCondition, LensLayer
from headscope.verify.removal.conditions import Pass
from headscope.verify.writing.arms import Arm
from headscope.verify.writing.ranks import Forms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel

#: Tokens shown of each layer.
SHOWN = 5


def example_lens(
    lm: LanguageModel,
    arms: Sequence[Arm],
    forms: Forms,
    means: NDArray[np.float32] | None = None,
) -> tuple[LensCondition, ...]:
    """What each layer would say at the last token of a prompt, for every arm that is no draw.

    Ranks are those of the forms that follow the same tokens as the first form does; None where an
    answer has no such form. `means` are those of mean ablation.
    """
    before = forms[0].before
    known = [one for one in forms if one.before == before]

    def best(side: str, ranks: Sequence[float]) -> int | None:
        own = (int(rank) for form, rank in zip(known, ranks, strict=True) if form.side == side)
        return min(own, default=None)

    found = []
    for arm in arms:
        if arm.name.draw is not None:
            continue
        with Pass(arm.heads.scaled(arm.gate), [0], means).applied(lm):
            layers = states(lm, [before]).after_layer[0]
        top = lens(lm, layers, SHOWN)
        ranks = token_ranks(lm, layers, [one.token for one in known]).tolist()
        rows = [
            LensLayer(
                layer,
                tuple(lm.tokenizer.decode([int(token)]) for token in tokens),
                tuple(logits.tolist()),
                best("a", ranks[layer]),
                best("b", ranks[layer]),
            )
            for layer, (tokens, logits) in enumerate(zip(top.tokens, top.logits, strict=True))
        ]
        found.append(LensCondition(arm.name.kind, tuple(rows)))
    return tuple(found)
