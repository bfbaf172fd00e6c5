"""What steps of a walk say together: one prompt's own, or means over sentences and directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.heads import Head
from headscope.results.one_by_one import Removed, State, Untouched, Walk, Walks
from headscope.verify.one_by_one.walk import Prepared, Step

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


@dataclass(frozen=True, eq=False)
class Seen:
    """A prompt and what was seen at each step; step 0 is the untouched model."""

    prepared: Prepared
    steps: Sequence[Step]


def describe(
    lm: LanguageModel, groups: Mapping[str, Sequence[Seen]], order: Sequence[Head]
) -> Walks:
    """A walk over all prompts and, of several directions, each.

    Ranks are whole numbers for one prompt and else means over a direction's sentences, then over
    directions; so is `similarity`. The texts of several sentences are in `steps.jsonl`.
    """
    everyone = [one for many in groups.values() for one in many]
    shown = _tokens(lm, everyone[0]) if len(everyone) == 1 else {}
    if len(groups) == 1:
        return _walk(Walks, _direction(everyone), order, **shown)
    directions = {name: _direction(many) for name, many in groups.items()}
    rows = [
        _over_directions(states, [one.steps[step].target_rank for one in everyone])
        for step, states in enumerate(zip(*directions.values(), strict=True))
    ]
    parts = {name: _walk(Walk, states, order) for name, states in directions.items()}
    return replace(_walk(Walks, rows, order, **shown), directions=parts)


AnyWalk = TypeVar("AnyWalk", bound=Walk)


def _walk(
    kind: type[AnyWalk], states: Sequence[State], order: Sequence[Head], **shown: Any
) -> AnyWalk:
    steps = [
        Removed(**vars(state), step=step, layer=head.layer, head=head.head)
        for step, (head, state) in enumerate(zip(order, states[1:], strict=True), 1)
    ]
    ranks = [state.target_rank for state in states]
    return kind(
        baseline=Untouched(**vars(states[0]), **shown),
        steps=tuple(steps),
        first_at_top=next((step for step, rank in enumerate(ranks) if rank == 1), None),
        first_below_top=next((step for step, rank in enumerate(ranks) if rank > 1), None),
    )


def _direction(many: Sequence[Seen]) -> list[State]:
    """The states over the sentences of one direction."""
    alone = len(many) == 1
    states = []
    for step in range(len(many[0].steps)):
        now = [one.steps[step] for one in many]
        before = [one.steps[step - 1] for one in many] if step else None
        changed = before is None or now[0].text != before[0].text
        states.append(
            State(
                target_rank=_mean([one.target_rank for one in now]),
                target_rank_median=median(one.target_rank for one in now),
                top5_ranks=_means(_mean, [one.top5_ranks for one in now]),
                text=now[0].text if alone and changed else None,
                texts_changed=_changes(now, before),
                chrf=_chrf(many, now),
                similarity=_means(fmean, [one.similarity for one in now]),
            )
        )
    return states


def _over_directions(states: Sequence[State], ranks: Sequence[int]) -> State:
    """Plain means over directions of what is a mean, sums of what is a count."""
    changed = [state.texts_changed for state in states if state.texts_changed is not None]
    scores = [state.chrf for state in states if state.chrf is not None]
    return State(
        target_rank=fmean(state.target_rank for state in states),
        target_rank_median=median(ranks),
        top5_ranks=_means(fmean, [state.top5_ranks for state in states]),
        text=None,
        texts_changed=sum(changed) if len(changed) == len(states) else None,
        chrf=fmean(scores) if len(scores) == len(states) else None,
        similarity=_means(fmean, [state.similarity for state in states]),
    )


def _means(mean: Callable[[Any], float], rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean of each column."""
    return tuple(mean(column) for column in zip(*rows, strict=True))


def _mean(ranks: Sequence[int]) -> float | int:
    return ranks[0] if len(ranks) == 1 else fmean(ranks)


def _changes(now: Sequence[Step], before: Sequence[Step] | None) -> int | None:
    if any(one.text is None for one in now):
        return None
    if before is None:
        return 0
    return sum(one.text != last.text for one, last in zip(now, before, strict=True))


def _chrf(many: Sequence[Seen], now: Sequence[Step]) -> float | None:
    from headscope.measure.metrics import chrf

    texts = [one.text for one in now if one.text is not None]
    if len(texts) < len(now):
        return None
    return float(chrf(texts, [one.prepared.subject.target for one in many]).value)


def _tokens(lm: LanguageModel, one: Seen) -> dict[str, Any]:
    """The tokens that are followed, as the tokenizer writes them out."""
    decode = lm.tokenizer.decode
    return {
        "target_token": decode([one.prepared.target_token]),
        "top5_tokens": [decode([token]) for token in one.prepared.top],
    }
