"""Remove heads one after another, and watch what the model is about to say.

After each head (Heads Up!, ICML 2025, section 4 and appendix C.3.1; figures 2, 5, 8 and 9): the
rank of the target's first token, the ranks of the five tokens that were the likeliest before, the
text the model writes, and how similar the hidden states at the last input token are to those of a
reference pass, layer by layer.

A rank is 1 + the number of tokens with a strictly larger logit, so 1 is the likeliest token and
equal logits share the better rank. All steps are rows of a few batches, one gate a row; the layers
below the first difference between rows are computed once (`headscope.lm.prefix`).
Kernels round differently in batches of other sizes, so against a loop over single passes a rank
can differ where two logits agree to about the last digit; `bench/one_by_one.py` counts how often.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from headscope.errors import InputError
from headscope.evidence.rows import SHARE, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.heads import Geometry, Head
from headscope.heads.geometry import keys_of
from headscope.measure.statistics import counted
from headscope.results import one_by_one as results
from headscope.results.one_by_one import MeanTrajectory, Removed, State, Untouched

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.lm.replacement import Replacement


TOP = 5
"""How many of the likeliest tokens of the untouched model are followed."""


@dataclass(frozen=True)
class Subject:
    """A prompt, and the text the model comes to give when heads are gone (or ceases to give).

    Attributes:
        target: the text whose first token's rank is followed.
        reference_prompt: the prompt of the pass that hidden states are compared with, by the
            untouched model; None: `prompt` itself.
        max_new_tokens: tokens of a text; None: twice the prompt's and 32.
        special: whether the tokenizer adds its special tokens; not to prompts that hold them, as
            those of a chat template do.
        first_token: the first token of the target, where it is known what stands between it and the
            prompt; None: as `prepare` finds it.
    """

    id: str
    prompt: str
    target: str
    reference_prompt: str | None = None
    max_new_tokens: int | None = None
    special: bool = True
    first_token: int | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """A subject as tokens, with what the untouched model makes of it.

    Attributes:
        subject: what it was made from.
        ids: tokens of the prompt.
        target_token: first token of the target, as it follows the prompt.
        top: the five likeliest tokens of the untouched model, likeliest first, ties by id.
        reference: (L, D) float32, hidden states after each layer at the last token of the
            reference prompt.
    """

    subject: Subject
    ids: tuple[int, ...]
    target_token: int
    top: tuple[int, ...]
    reference: torch.Tensor


@dataclass(frozen=True)
class Step:
    """What was seen under one gate.

    Attributes:
        target_rank: rank of the target's first token; 1 is the likeliest.
        top5_ranks: ranks of the five tokens that were the likeliest under no gate.
        similarity: for each decoder layer the cosine, -1 to 1, between its output at the last
            input token and that of the reference pass.
        text: the greedy continuation, or None where none was asked for.
    """

    target_rank: int
    top5_ranks: tuple[int, ...]
    similarity: tuple[float, ...]
    text: str | None = None


@dataclass(frozen=True)
class Walk:
    """How steps are computed.

    Attributes:
        text: whether texts are generated.
        batch_tokens: upper bound of rows × tokens of a batch, halved where memory does not suffice.
        share: whether the layers below the first difference are computed once (see
            `headscope.lm.prefix.can_share`).
        replacement: what stands in the place of what gates remove (see
            `headscope.lm.gates.gated`); None: zero.
    """

    text: bool = True
    batch_tokens: int = 16384
    share: bool = True
    replacement: Replacement | None = None


def joined(prompt: str, target: str) -> str:
    """Prompt and target as one text: by one space, unless the prompt ends in white space."""
    return f"{prompt}{target}" if prompt[-1:].isspace() else f"{prompt} {target}"


def prepare(lm: LanguageModel, subject: Subject) -> Prepared:
    """Tokens of a subject, and one pass (or two) of the untouched model over it.

    The first token of the target is the one that follows the prompt's tokens when both are
    tokenised as one text; where the tokenizer merges across the border, or makes a token of the
    space alone, it is the first token of the target by itself. Raises `InputError` if prompt or
    target is empty, or a prompt is longer than the context.
    """
    from headscope.lm.prefix import last_token

    if not subject.target.strip():
        raise InputError(
            f"{subject.id}: the target is empty, so it has no first token to rank; give the text "
            "that is to be followed, such as the translation"
        )
    special = subject.special
    ids = _ids(lm, subject.prompt, f"{subject.id}: the prompt", special)
    reference = subject.reference_prompt
    full = order_gates(lm.geometry, (), 0.0)
    as_is = last_token(lm, ids, full)
    compared = as_is
    if reference is not None and reference != subject.prompt:
        wrapped = _ids(lm, reference, f"{subject.id}: the reference prompt", special)
        compared = last_token(lm, wrapped, full)
    # Stable, so that of equal logits the lower id comes first.
    order = as_is.logits[0].sort(descending=True, stable=True).indices
    top = tuple(int(index) for index in order[:TOP])
    first = subject.first_token
    if first is None:
        whole = lm.encode(joined(subject.prompt, subject.target), special)
        first = _first_token(lm, ids, whole, subject.target)
    return Prepared(subject, tuple(ids), first, top, compared.states[0])


def batches(prepared: Prepared, steps: int, how: Walk) -> list[range]:
    """Which of so many steps are computed together."""
    size = _steps_at_once(prepared, how)
    return [range(begin, min(begin + size, steps)) for begin in range(0, steps, size)]


def walk(
    lm: LanguageModel,
    prepared: Prepared,
    gates: Callable[[range], torch.Tensor],
    steps: Sequence[int],
    how: Walk,
    keep: Callable[[dict[int, Step]], None],
) -> None:
    """See what there is under the gates of these steps, which ascend.

    ``gates`` gives those (n, L, W) of a range of steps; ``keep`` is called with what was seen in
    each finished batch. Raises `InputError` if the logits under a gate are not finite.
    """
    import torch

    from headscope.lm.batching import memory_errors, release_memory

    waiting = _runs(steps)
    size = _steps_at_once(prepared, how)
    while waiting:
        part = waiting.pop(0)
        if len(part) > size:
            waiting[:0] = [part[:size], part[size:]]
            continue
        try:
            with memory_errors():
                seen = _observe(lm, prepared, gates(part), how, part)
        except torch.OutOfMemoryError:
            if len(part) == 1:
                raise
            size = len(part) // 2
            waiting.insert(0, part)
        else:
            keep(seen)
            continue
        release_memory()


def _steps_at_once(prepared: Prepared, how: Walk) -> int:
    """How many steps a batch holds."""
    length = len(prepared.ids) + (_new_tokens(prepared) if how.text else 0)
    return max(1, how.batch_tokens // length)


def _new_tokens(prepared: Prepared) -> int:
    given = prepared.subject.max_new_tokens
    return 2 * len(prepared.ids) + 32 if given is None else given


def _observe(
    lm: LanguageModel, prepared: Prepared, gates: torch.Tensor, how: Walk, part: range
) -> dict[int, Step]:
    import torch

    from headscope.lm.prefix import last_token

    seen = last_token(lm, prepared.ids, gates, how.share, how.replacement)
    if not bool(torch.isfinite(seen.logits).all()):
        bad = (~torch.isfinite(seen.logits)).any(dim=1).nonzero()[0]
        raise InputError(
            f"{prepared.subject.id}: the logits are not finite after step {part[int(bad)]}; use a "
            "gate nearer to 1 or --dtype float32"
        )
    ranks = _ranks(seen.logits, [prepared.target_token, *prepared.top])
    reference = prepared.reference.to(seen.states.device).double()
    cosines = torch.cosine_similarity(seen.states.double(), reference[None], dim=-1).tolist()
    texts = _texts(lm, prepared, gates, how) if how.text else [None] * len(part)
    return {
        step: Step(row[0], tuple(row[1:]), tuple(cosine), text)
        for step, row, cosine, text in zip(part, ranks, cosines, texts, strict=True)
    }


def _texts(
    lm: LanguageModel, prepared: Prepared, gates: torch.Tensor, how: Walk
) -> list[str | None]:
    from headscope.lm.generation import GenerateConfig

    subject = prepared.subject
    # An answer of a chat ends as its template ends it.
    settings = GenerateConfig(_new_tokens(prepared), how.batch_tokens, subject.special)
    prompts = [subject.prompt] * len(gates)
    made = lm.generate(
        prompts, settings, special=subject.special, gates=gates, replacement=how.replacement
    )
    return [generation.text for generation in made]


def _ranks(logits: torch.Tensor, tokens: Sequence[int]) -> list[list[int]]:
    """1 + the number of tokens with a larger logit, for each row (n, V) and each of ``tokens``."""
    import torch

    columns = [1 + (logits > logits[:, [token]]).sum(dim=1) for token in tokens]
    ranks: list[list[int]] = torch.stack(columns, dim=1).tolist()
    return ranks


def _ids(lm: LanguageModel, prompt: str, name: str, special: bool) -> list[int]:
    ids = lm.encode(prompt, special)
    if not ids:
        raise InputError(f"{name} is empty; give at least one word")
    if len(ids) >= lm.context_length:
        raise InputError(
            f"{name} has {len(ids)} tokens, but the model reads at most {lm.context_length} and "
            "needs room for the target; give a shorter one"
        )
    return ids


def _first_token(lm: LanguageModel, ids: Sequence[int], whole: Sequence[int], target: str) -> int:
    if list(whole[: len(ids)]) == list(ids):
        for token in whole[len(ids) : len(ids) + 1]:
            if lm.decode([token], special=True).strip():
                return token
    alone = lm.encode(target.lstrip(), special=False)
    if not alone:
        raise InputError(f"the target {target!r} has no token; give a text this model can write")
    # SentencePiece puts a space before any text, a token of its own before Chinese for example.
    with_text = (token for token in alone if lm.decode([token], special=True).strip())
    return next(with_text, alone[0])


def _runs(indices: Sequence[int]) -> list[range]:
    """The whole numbers, which ascend, as ranges."""
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


Order: TypeAlias = Literal["given", "ascending", "descending", "pass", "alone"]
"""As they are given; by score; by the change of rank each head caused in a pass; or alone."""


def order_gates(
    geometry: Geometry,
    order: Sequence[Head],
    gate: float,
    steps: range | None = None,
    alone: bool = False,
) -> torch.Tensor:
    """The gates (n, L, W) of ``steps`` (default: all): in step s the first s heads are at ``gate``,
    or the s-th ``alone``.

    Step 0 is the untouched model.
    """
    import torch

    wanted = range(len(order) + 1) if steps is None else steps
    values = np.ones((len(wanted), *geometry.shape), dtype=np.float32)
    for step, head in enumerate(order, 1):
        geometry.check(head)
        row = step - wanted.start
        rows = slice(max(0, row), max(0, row + 1) if alone else None)
        values[rows, head.layer, head.head] = gate
    return torch.from_numpy(values)


def rank_changes(ranks: Sequence[Sequence[int]], alone: bool = False) -> list[float]:
    """What removing each head did to the target's rank, mean over walks.

    ``ranks`` holds the ranks of each walk by step, step 0 first. A change is rank before minus rank
    after: positive where the target became likelier. Heads were removed one after another, or each
    ``alone``.
    """
    return [
        fmean(row[0 if alone else step - 1] - row[step] for row in ranks)
        for step in range(1, len(ranks[0]))
    ]


def reordered(order: Sequence[Head], changes: Sequence[float]) -> list[Head]:
    """The first ``len(changes)`` heads by falling change (ties: as they were), then the others."""
    first = sorted(range(len(changes)), key=lambda place: -changes[place])
    return [order[place] for place in first] + list(order[len(changes) :])


@dataclass(frozen=True, eq=False)
class Seen:
    """A prompt and what was seen at each step; step 0 is the untouched model."""

    prepared: Prepared
    steps: Sequence[Step]


#: What is compared with random orders, of every prompt.
MEASURES = {
    "target_first": Statistic(
        "the share of prompts whose target comes first", unit=SHARE, digits=1
    ),
    "target_rank": Statistic("the rank of the target's first token", "lower", digits=1),
    "similarity": Statistic("cosine of the last layer's output", bounds=(-1.0, 1.0)),
}
#: Orders that are said to make the target likelier.
HELPING: tuple[Order, ...] = ("ascending", "pass", "alone")


def compared_step(order: Sequence[Head], geometry: Geometry, cut: int | None = None) -> int:
    """The step that is compared with random orders: `cut`, or the last, or the middle of all
    heads, whose last step is the same in every order."""
    return cut or (len(order) if len(order) < geometry.total else len(order) // 2)


def compared(
    groups: Mapping[str, Sequence[Seen]],
    selected: Condition,
    random: Sequence[Sequence[Head]],
    others: Sequence[Sequence[Sequence[Step]]],
    helps: bool,
    seed: int = 0,
) -> Evidence:
    """The model without its first heads beside random ones, the first of `random` orders.

    `others` are the steps of every prompt in each of them.
    """
    step = selected.k
    draws = [
        replace(selected, kind="random", draw=number, heads=keys_of(order[:step]))
        for number, order in enumerate(random)
    ]
    parts, start = {}, 0
    for name, many in groups.items():
        walks = [walks[start : start + len(many)] for walks in others]
        start += len(many)
        rows = [[seen.steps[at] for seen in many] for at in (0, step)]
        rows += [[steps[step] for steps in walk_] for walk_ in walks]
        numbers = {
            "target_first": [[float(seen.target_rank == 1) for seen in row] for row in rows],
            "target_rank": [[float(seen.target_rank) for seen in row] for row in rows],
            "similarity": [[seen.similarity[-1] for seen in row] for row in rows],
        }
        parts[name or "prompt"] = {
            measure: list(counted(np.array(values))) for measure, values in numbers.items()
        }
    conditions = [Condition(), selected, *draws]
    return evidence(conditions, parts, MEASURES, seed, helps=lambda _: helps)


def describe(
    lm: LanguageModel, groups: Mapping[str, Sequence[Seen]], order: Sequence[Head]
) -> MeanTrajectory:
    """A walk over all prompts and, of several directions, each.

    Ranks are whole numbers for one prompt and else means over a direction's sentences, then over
    directions; so is `similarity`. The texts of several sentences are in `steps.jsonl`.
    """
    everyone = [seen for many in groups.values() for seen in many]
    shown = _tokens(lm, everyone[0]) if len(everyone) == 1 else {}
    if len(groups) == 1:
        return _walk(MeanTrajectory, _direction(everyone), order, **shown)
    directions = {name: _direction(many) for name, many in groups.items()}
    rows = [
        _over_directions(states, [seen.steps[step].target_rank for seen in everyone])
        for step, states in enumerate(zip(*directions.values(), strict=True))
    ]
    parts = {name: _walk(results.Trajectory, states, order) for name, states in directions.items()}
    return replace(_walk(MeanTrajectory, rows, order, **shown), directions=parts)


AnyTrajectory = TypeVar("AnyTrajectory", bound=results.Trajectory)


def _walk(
    kind: type[AnyTrajectory], states: Sequence[State], order: Sequence[Head], **shown: Any
) -> AnyTrajectory:
    steps = [
        Removed(**vars(state), step=step, layer=head.layer, head=head.head)
        for step, (head, state) in enumerate(zip(order, states[1:], strict=True), 1)
    ]
    return kind(baseline=Untouched(**vars(states[0]), **shown), steps=tuple(steps))


def _direction(many: Sequence[Seen]) -> list[State]:
    alone = len(many) == 1
    states = []
    for step in range(len(many[0].steps)):
        now = [seen.steps[step] for seen in many]
        before = [seen.steps[step - 1] for seen in many] if step else None
        changed = before is None or now[0].text != before[0].text
        states.append(
            State(
                target_rank=_mean([row.target_rank for row in now]),
                target_rank_median=median(row.target_rank for row in now),
                top5_ranks=_means(_mean, [row.top5_ranks for row in now]),
                text=now[0].text if alone and changed else None,
                texts_changed=_changes(now, before),
                chrf=_chrf(many, now),
                similarity=_means(fmean, [row.similarity for row in now]),
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
    return tuple(mean(column) for column in zip(*rows, strict=True))


def _mean(ranks: Sequence[int]) -> float | int:
    return ranks[0] if len(ranks) == 1 else fmean(ranks)


def _changes(now: Sequence[Step], before: Sequence[Step] | None) -> int | None:
    if any(row.text is None for row in now):
        return None
    if before is None:
        return 0
    return sum(row.text != last.text for row, last in zip(now, before, strict=True))


def _chrf(many: Sequence[Seen], now: Sequence[Step]) -> float | None:
    from headscope.measure.metrics import chrf

    texts = [row.text for row in now if row.text is not None]
    if len(texts) < len(now):
        return None
    return float(chrf(texts, [seen.prepared.subject.target for seen in many]).value)


def _tokens(lm: LanguageModel, seen: Seen) -> dict[str, Any]:
    """The tokens that are followed, as the tokenizer writes them out."""
    decode = functools.partial(lm.decode, special=True)
    return {
        "target_token": decode([seen.prepared.target_token]),
        "top5_tokens": [decode([token]) for token in seen.prepared.top],
    }
