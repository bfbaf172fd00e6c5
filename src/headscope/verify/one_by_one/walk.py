"""Remove heads one after another, and watch what the model is about to say.

After each head (Heads Up!, ICML 2025, section 4 and appendix C.3.1; figures 2, 5, 8 and 9): the
rank of the target's first token, the ranks of the five tokens that were the likeliest before, the
text the model writes, and how similar the hidden states at the last input token are to those of a
reference pass, layer by layer.

A rank is 1 + the number of tokens with a strictly larger logit, so 1 is the likeliest token and
equal logits share the better rank. All steps are rows of a few batches, one gate a row; the layers
below the first difference between rows are computed once (`headscope.lm.many_gates`).
Kernels round differently in batches of other sizes, so against a loop over single passes a rank
can differ where two logits agree to about the last digit; `bench/one_by_one.py` counts how often.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError
from headscope.verify.one_by_one.orders import cumulative_gates

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel

TOP = 5
"""How many of the likeliest tokens of the untouched model are followed."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A prompt, and the text the model comes to give when heads are gone (or ceases to give).

    Attributes:
        id: names the subject in results.
        prompt: what the model is given, under every gate.
        target: the text whose first token's rank is followed.
        reference_prompt: the prompt of the pass that hidden states are compared with, by the
            untouched model; None: `prompt` itself.
        max_new_tokens: tokens of a text; None: twice the prompt's and 32.
        special: whether the tokenizer adds its special tokens; not to prompts that hold them, as
            those of a chat template do.
        first_token: the first token of the target, where it is known what stands between it and
            the prompt; None: as `prepare` finds it.
    """

    id: str
    prompt: str
    target: str
    reference_prompt: str | None = None
    max_new_tokens: int | None = None
    special: bool = True
    first_token: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
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


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class Walk:
    """How steps are computed.

    Attributes:
        text: whether texts are generated.
        batch_tokens: upper bound of rows × tokens of a batch; a batch that does not fit into
            memory is tried again in halves.
        share: whether the layers below the first difference are computed once (see
            `headscope.lm.prefix.can_share`).
        means: what takes the place of what gates remove (see `headscope.lm.gates.gated`); None:
            zero.
    """

    text: bool = True
    batch_tokens: int = 16384
    share: bool = True
    means: NDArray[np.float32] | None = None


def joined(prompt: str, target: str) -> str:
    """Prompt and target as one text: by one space, unless the prompt ends in white space."""
    return f"{prompt}{target}" if prompt[-1:].isspace() else f"{prompt} {target}"


def prepare(lm: LanguageModel, subject: Subject) -> Prepared:
    """Tokens of a subject, and one pass (or two) of the untouched model over it.

    The first token of the target is the one that follows the prompt's tokens when both are
    tokenised as one text; where the tokenizer merges across the border, or makes a token of the
    space alone, it is the first token of the target by itself.

    Raises:
        InputError: if prompt or target is empty, or a prompt is longer than the context.
    """
    from headscope.lm.many_gates import last_token

    if not subject.target.strip():
        raise InputError(
            f"{subject.id}: the target is empty, so it has no first token to rank; give the text "
            "that is to be followed, such as the translation"
        )
    special = subject.special
    ids = _ids(lm, subject.prompt, f"{subject.id}: the prompt", special)
    reference = subject.reference_prompt
    full = cumulative_gates(lm.geometry, (), 0.0)
    as_is = last_token(lm, ids, full)
    compared = as_is
    if reference is not None and reference != subject.prompt:
        told = _ids(lm, reference, f"{subject.id}: the reference prompt", special)
        compared = last_token(lm, told, full)
    # Stable, so that of equal logits the lower id comes first.
    order = as_is.logits[0].sort(descending=True, stable=True).indices
    top = tuple(int(index) for index in order[:TOP])
    first = subject.first_token
    if first is None:
        whole = lm.encode(joined(subject.prompt, subject.target), special)
        first = _first_token(lm, ids, whole, subject.target)
    return Prepared(subject, tuple(ids), first, top, compared.states[0])


def walk(
    lm: LanguageModel,
    prepared: Prepared,
    gates: Callable[[range], torch.Tensor],
    steps: int,
    how: Walk,
    kept: Mapping[int, Step] | None = None,
    keep: Callable[[dict[int, Step]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Step]:
    """What is seen under each of ``steps`` gates.

    Args:
        lm: the model.
        prepared: prompt and target.
        gates: makes the gates (n, L, W) of a range of steps.
        steps: how many gates there are.
        how: texts or not, and how much at once.
        kept: steps that are known already; they are not computed again.
        keep: called with the steps of each finished batch.
        progress: called with the number of known steps, and ``steps``.

    Raises:
        InputError: if the logits under a gate are not finite.
    """
    import torch

    found = dict(kept or {})
    waiting = _runs([index for index in range(steps) if index not in found])
    length = len(prepared.ids) + (_new_tokens(prepared) if how.text else 0)
    room = max(1, how.batch_tokens // length)
    while waiting:
        part = waiting.pop(0)
        if len(part) > room:
            waiting[:0] = [part[:room], part[room:]]
            continue
        try:
            seen = _observe(lm, prepared, gates(part), how, part)
        except torch.OutOfMemoryError:
            if len(part) == 1:
                raise
            torch.cuda.empty_cache()
            room = len(part) // 2
            waiting.insert(0, part)
            continue
        found.update(seen)
        if keep:
            keep(seen)
        if progress:
            progress(len(found), steps)
    return [found[index] for index in range(steps)]


def _new_tokens(prepared: Prepared) -> int:
    given = prepared.subject.max_new_tokens
    return 2 * len(prepared.ids) + 32 if given is None else given


def _observe(
    lm: LanguageModel, prepared: Prepared, gates: torch.Tensor, how: Walk, part: range
) -> dict[int, Step]:
    """The steps of one batch."""
    import torch

    from headscope.lm.many_gates import last_token

    seen = last_token(lm, prepared.ids, gates, how.share, how.means)
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
    from headscope.lm.many_gates import continue_rows

    # An answer of a chat ends as its template ends it.
    newline = prepared.subject.special
    made = continue_rows(lm, prepared.ids, gates, _new_tokens(prepared), newline, how.means)
    return [one.text for one in made]


def _ranks(logits: torch.Tensor, tokens: Sequence[int]) -> list[list[int]]:
    """1 + the number of tokens with a larger logit, for each row (n, V) and each of ``tokens``."""
    import torch

    columns = [1 + (logits > logits[:, [token]]).sum(dim=1) for token in tokens]
    found: list[list[int]] = torch.stack(columns, dim=1).tolist()
    return found


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
            if lm.tokenizer.decode([token]).strip():
                return token
    alone: list[int] = lm.tokenizer(target.lstrip(), add_special_tokens=False)["input_ids"]
    if not alone:
        raise InputError(f"the target {target!r} has no token; give a text this model can write")
    # SentencePiece puts a space before any text, a token of its own before Chinese for example.
    with_text = (token for token in alone if lm.tokenizer.decode([token]).strip())
    return next(with_text, alone[0])


def _runs(indices: Sequence[int]) -> list[range]:
    """Ascending numbers as ranges without gaps."""
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


def as_record(step: Step) -> dict[str, Any]:
    """A step as JSON for the parts of a run; `from_record` reads it again."""
    return dataclasses.asdict(step)


def from_record(record: Mapping[str, Any]) -> Step:
    """What `as_record` wrote."""
    return Step(
        int(record["target_rank"]),
        tuple(record["top5_ranks"]),
        tuple(record["similarity"]),
        record["text"],
    )
