"""Attribution: what a head's output in a corrupted input would do to the answer, by gradients.

Clean and corrupted input have as many tokens, so that every head's output at every token has a
counterpart. Let m be the loss of the answer, or by how much the logit of a wrong answer lies above
that of the right one. The effect on m of putting a head's corrupted output in place of its clean
one is, to first order, their difference times the gradient of m: node attribution patching (Nanda
2023; Syed et al. 2023). Gradients may be the mean over points on the way from the clean input's
embeddings to the corrupted ones (EAP-IG, Hanna et al. 2024, at nodes). The effect itself is that of
patching each head alone (`patch`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.split import places_by_text
from headscope.data.tasks import Example, Task, example_keys, few_shot, prompt
from headscope.errors import InputError, naming
from headscope.find.scoring import Resampled, RunPart, scored
from headscope.heads import HeadScores
from headscope.progress import Steps
from headscope.settings import UNSIGNED, Option

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

Contrasting = Literal["loss", "difference"]
#: How far m may lie apart, of the corrupted input and of the clean one moved there wholly.
_SAME, _SAME_IN_HALF = 1e-3, 0.25


@dataclass(frozen=True)
class Attribution(Resampled):
    """How heads are attributed: with gradients at i / `steps` of the way from the clean to the
    corrupted embeddings, i = 1 to `steps`."""

    steps: Annotated[
        int,
        Option(
            "Points between clean and corrupted input at which gradients are taken (EAP-IG); 0: at "
            "the clean input alone (attribution patching).",
            min=0,
        ),
    ] = 5
    measure: Annotated[
        Contrasting | None,
        Option(
            "The loss of the answer, or the logit of the answer minus that of the wrong one "
            "(difference), by default where the data name wrong answers.",
            held="measure",
        ),
    ] = None
    patch: Annotated[
        int, Option("Examples on which each head is also patched by itself, to compare.", min=0)
    ] = 0
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=2048, metadata=UNSIGNED)


class Contrast(NamedTuple):
    """A clean and a corrupted row of as many tokens, with their answer; or without it, and the
    wrong and the right token that may follow."""

    clean: Answered
    corrupted: Answered
    tokens: tuple[int, int] | None = None


def corrupted(
    lm: LanguageModel,
    task: Task,
    pool: Sequence[Example] = (),
    shots: int = 0,
    seed: int = 0,
    others: Sequence[Example] | None = None,
) -> tuple[Task, bool]:
    """The task, behind shots from `pool`, with corrupted inputs, and if its prompts are instructed:
    where they can be and without shots, which hold the instruction.

    Where an example has no corrupted input, another one's of `others` (default: the task's own)
    whose prompt has as many tokens, and its output as the wrong one; examples without such another
    stay so. It is drawn by a hash of the seed and both texts, so it does not depend on where they
    stand, nor on what else the task holds.
    """
    instructed = task.instruction is not None
    others = task.examples if others is None else tuple(others)
    if not all(example.corrupted for example in task.examples):
        partners = _partners(lm, task, instructed, others, f"corrupted {seed}")
        task = replace(task, examples=tuple(map(partners, task.examples)))
    return (few_shot(task, pool, shots, seed, instructed), False) if shots else (task, instructed)


def _partners(
    lm: LanguageModel, task: Task, instructed: bool, others: Sequence[Example], name: str
) -> Callable[[Example], Example]:
    """Gives an example the counterfactual that it is to have, if there is one."""

    @cache
    def length(text: str) -> int:
        return len(lm.encode(prompt(task, Example("", text, "", 0), instructed)))

    lengths = np.array([length(example.input) for example in others])
    keys = example_keys(others)
    inputs, outputs = (np.array(side, dtype=object) for side in _sides(others))

    def changed(example: Example) -> Example:
        if example.corrupted:
            return example
        able = (lengths == length(example.input)) & (inputs != example.input)
        able &= outputs != example.output
        if not able.any():
            return example
        (known,) = np.nonzero(able)
        own = f"{name} {example.input}\0{example.output}"
        other = others[known[places_by_text(own, keys[known]).argmin()]]
        return replace(example, corrupted=other.input, wrong=example.wrong or other.output)

    return changed


def _sides(examples: Sequence[Example]) -> tuple[list[str], list[str]]:
    return [example.input for example in examples], [example.output for example in examples]


def contrasts(
    lm: LanguageModel, task: Task, measure: Contrasting, instructed: bool, alone: bool = False
) -> tuple[list[Contrast], dict[str, int]]:
    """The examples as tokens, and how many are left out for each reason.

    With `alone` no corrupted input is needed; the clean one stands for it. Raises `InputError` if
    none is left, or a difference is asked for and no wrong answer named.
    """
    from headscope.lm.prompting import encode_answers, parting

    known = [
        example for example in task.examples if (example.wrong if alone else example.corrupted)
    ]
    if measure == "difference" and not (
        known if alone else all(example.wrong for example in known)
    ):
        raise InputError(
            f"{task.path}: names no wrong answers; add a column 'wrong', or use --measure loss"
        )

    def rows(examples: Sequence[Example]) -> list[Answered]:
        texts = [prompt(task, example, instructed) for example in examples]
        outputs = [example.output for example in examples]
        with naming(task.path):
            made = encode_answers(lm, texts, outputs, task.chat, task.answer_end)
        names = (f"{task.path}, line {example.line}" for example in examples)
        return [replace(row, name=name) for row, name in zip(made, names, strict=True)]

    clean = other = wrong = rows(known)
    if not alone:
        other = rows([replace(example, input=example.corrupted) for example in known])
    if measure == "difference":
        wrong = rows([replace(example, output=example.wrong) for example in known])
    made, left_out = [], Counter(no_counterfactual=len(task.examples) - len(known))
    for right, changed, false in zip(clean, other, wrong, strict=True):
        end = parting(right, false)
        if changed.start != right.start or changed.ids[right.start :] != right.ids[right.start :]:
            left_out["other_length"] += 1
        elif measure == "loss":
            made.append(Contrast(right, changed))
        elif end is None:
            left_out["same_tokens"] += 1
        else:
            before, other_before = (replace(row, ids=row.ids[:end]) for row in (right, changed))
            made.append(Contrast(before, other_before, (false.ids[end], right.ids[end])))
    if not made:
        why = ", ".join(f"{name.replace('_', ' ')}: {many}" for name, many in left_out.items())
        raise InputError(
            f"{task.path}: no example has a corrupted input of as many tokens and an answer that "
            f"begins otherwise ({why}); give other or more examples"
        )
    return made, dict(left_out)


def attribution(
    lm: LanguageModel,
    task: Task,
    config: Attribution = Attribution(),
    pool: Sequence[Example] = (),
    shots: int = 0,
    run: Run | None = None,
    progress: Steps | None = None,
    others: Sequence[Example] | None = None,
) -> HeadScores:
    """How far m would rise if a head's output were that of the corrupted input, to first order.

    `others` are what counterfactuals are drawn from (see `corrupted`). For each example one forward
    and backward pass a step gives the score of all heads. Raises
    `InputError` as `contrasts` does, or where m is no finite number.

    Returns:
        Scores in nats (`loss`: a token) or logits, with bootstrap bounds over examples: means over
            examples of (a_corrupted - a_clean) · ∂m/∂a, a the head's output before W_O, summed over
            tokens and channels. `statistics`, by example: `products` (E, L, W), `corruption` (E,),
            m of the corrupted input minus that of the clean one, and of the first `patch` examples
            `patched` (P, L, W), how far m rises with each head patched alone.
    """
    from headscope.find.gate_gradients import kept_gradients

    measure = config.measure or ("difference" if task.names_wrong else "loss")
    task, instructed = corrupted(lm, task, pool, shots, config.seed, others)
    examples, left_out = contrasts(lm, task, measure, instructed)
    found = kept_gradients(
        lm,
        [example.clean for example in examples],
        lambda some: _attributed(lm, [examples[at] for at in some], config.steps),
        config.batch_tokens,
        RunPart(run, task.name),
        progress,
    )
    statistics = {"products": found.products, "corruption": found.losses}
    if config.patch:
        statistics["patched"] = _patched(lm, examples[: config.patch], config.batch_tokens)
    about = {
        "examples": len(examples),
        "left_out": left_out,
        "tokens": sum(len(example.clean.ids) for example in examples),
        "measure": measure,
        "corruption": float(found.losses.mean(dtype=np.float64)),
    }
    ones = np.ones(len(examples))
    return scored(
        lm, "attribution", config, run, found.products, ones, {}, statistics, about, counts=False
    )


def _harm(lm: LanguageModel, rows: Sequence[Answered], some: Sequence[Contrast]) -> torch.Tensor:
    """m of rows (B,), float32: the clean ones of `some`, or their corrupted ones."""
    import torch

    from headscope.lm.losses import answer_batch, row_losses

    if some[0].tokens is None:
        return row_losses(lm, *answer_batch(lm, [(row.ids, row.start) for row in rows]))
    logits = lm.forward(lm.collate([row.ids for row in rows]), logits=False).logits[:, -1].float()
    tokens = torch.tensor([contrast.tokens for contrast in some], device=logits.device)
    wrong, right = logits.gather(1, tokens).unbind(1)
    difference: torch.Tensor = wrong - right
    return difference


def _both(
    lm: LanguageModel, some: Sequence[Contrast]
) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
    """m of clean and of corrupted inputs, (B,) each, and by layer how far every head's corrupted
    output lies from the clean one, float32 (B, T, H, D); zero at padding."""
    import torch

    from headscope.lm.losses import applies_apart
    from headscope.lm.patching import all_outputs

    batch, harms, outputs = lm.collate([contrast.clean.ids for contrast in some]), [], []
    applies_apart(lm, batch)  # tried in a pass of its own, which is not to be watched
    for rows in ([contrast.clean for contrast in some], [contrast.corrupted for contrast in some]):
        with torch.no_grad(), all_outputs(lm) as seen:
            harms.append(_harm(lm, rows, some))
        outputs.append(seen)
    padding = ~batch.attention_mask.bool()[..., None, None]
    return harms, {
        layer: (outputs[1][layer].float() - output.float()).masked_fill(
            padding.to(output.device), 0
        )
        for layer, output in outputs[0].items()
    }


def _attributed(
    lm: LanguageModel, some: Sequence[Contrast], steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """m of the corrupted inputs minus m of the clean ones (B,), and the scores (B, L, W)."""
    import torch

    from headscope.lm.patching import between_inputs, moved_outputs

    (clean, there), directions = _both(lm, some)
    other = lm.collate([contrast.corrupted.ids for contrast in some]).input_ids
    moved = torch.zeros(len(some), *lm.geometry.shape, device=lm.device, requires_grad=True)
    scores = torch.zeros_like(moved, requires_grad=False)
    for share in [step / steps for step in range(1, steps + 1)] or [0.0]:
        inputs = between_inputs(lm, other, share)
        with torch.enable_grad(), inputs, moved_outputs(lm, moved, directions):
            harm = _harm(lm, [contrast.clean for contrast in some], some)
            scores += torch.autograd.grad(harm.sum(), moved)[0] / max(1, steps)
        allowed = _SAME if lm.dtype == torch.float32 else _SAME_IN_HALF
        if share == 1 and bool(((harm.detach() - there).abs() > allowed).any()):
            raise InputError(
                f"{lm.name!r} reads its tokens elsewhere than in its input embeddings too, so "
                "nothing lies between two inputs; use --steps 0"
            )
    return there - clean, scores


def _patched(
    lm: LanguageModel, examples: Sequence[Contrast], batch_tokens: int
) -> NDArray[np.float32]:
    """How far m rises with each head's corrupted output in its place, one at a time, (P, L, W)."""
    import torch

    from headscope.lm.losses import frozen
    from headscope.lm.patching import moved_outputs

    heads = torch.tensor([[head.layer, head.head] for head in lm.geometry.heads()])
    effects = torch.zeros(len(examples), *lm.geometry.shape)
    for at, example in enumerate(examples):
        with frozen(lm.model), torch.no_grad():
            (clean, _), directions = _both(lm, [example])
            for some in torch.split(heads, max(1, batch_tokens // len(example.clean.ids))):
                moved = torch.zeros(len(some), *lm.geometry.shape, device=lm.device)
                moved[torch.arange(len(some)), some[:, 0], some[:, 1]] = 1
                with moved_outputs(lm, moved, directions):
                    harm = _harm(lm, [example.clean] * len(some), [example] * len(some))
                effects[at, some[:, 0], some[:, 1]] = (harm - clean).cpu()
    return effects.numpy()
