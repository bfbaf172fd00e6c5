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

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.tasks import Task, prompt
from headscope.errors import InputError, naming
from headscope.find.scoring import NOWHERE, Resampled, RunPart, scored
from headscope.heads import HeadScores
from headscope.progress import Steps
from headscope.settings import UNSIGNED, Option

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.runs import Run

Contrasting = Literal["loss", "difference"]


@dataclass(frozen=True)
class Attribution(Resampled):
    """How heads are attributed.

    Attributes:
        steps: points at which gradients are taken: input embeddings at i / steps of the way from
            clean to corrupted, i = 1 to steps; 0: at the clean input alone.
        measure: `loss` of the answer in nats a token, or the `difference` of two logits; None:
            `difference` where the data name wrong answers.
        patch: so many examples are patched head by head beside it.
    """

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
            "(difference), by default where the data name wrong answers."
        ),
    ] = None
    patch: Annotated[
        int, Option("Examples on which each head is also patched by itself, to compare.", min=0)
    ] = 0
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=2048, metadata=UNSIGNED)


class Contrast(NamedTuple):
    """A clean and a corrupted row of as many tokens.

    `right` and `wrong` are tokens that may follow, or None where the rows end in the answer.
    """

    clean: Answered
    corrupted: Answered
    right: int | None = None
    wrong: int | None = None


def corrupted(lm: LanguageModel, task: Task, instructed: bool = False, seed: int = 0) -> Task:
    """The task with corrupted inputs: where an example has none, another one's input whose prompt
    has as many tokens, and its output as the wrong one; examples without such another stay so."""
    texts = [prompt(task, example, instructed) for example in task.examples]
    lengths = [len(lm.encode(text)) for text in texts]
    alike: dict[int, list[int]] = {}
    for at, length in enumerate(lengths):
        alike.setdefault(length, []).append(at)
    examples = []
    for example, length in zip(task.examples, lengths, strict=True):
        others = [
            other
            for other in (task.examples[at] for at in alike[length])
            if other.input != example.input and other.output != example.output
        ]
        if others and not example.corrupted:
            other = random.Random(f"corrupted {seed} {example.input}").choice(others)
            wrong = example.wrong or other.output
            example = replace(example, corrupted=other.input, wrong=wrong)
        examples.append(example)
    return replace(task, examples=tuple(examples))


def contrasts(
    lm: LanguageModel, task: Task, measure: Contrasting, instructed: bool = False
) -> tuple[list[Contrast], dict[str, int]]:
    """The examples as tokens, and how many are left out for each reason.

    Raises `InputError` if none is left, or a difference is asked for and no wrong answer named.
    """
    from headscope.lm.prompting import encode_answers, parting

    known = [example for example in task.examples if example.corrupted]
    if measure == "difference" and not all(example.wrong for example in known):
        raise InputError(
            f"{task.path}: names no wrong answers; add a column 'wrong', or use --measure loss"
        )

    def rows(inputs: Sequence[str], outputs: Sequence[str]) -> list[Answered]:
        texts = [
            prompt(task, replace(example, input=text), instructed)
            for example, text in zip(known, inputs, strict=True)
        ]
        with naming(task.path):
            made = encode_answers(lm, texts, outputs, task.chat, task.answer_end)
        names = (f"{task.path}, line {example.line}" for example in known)
        return [replace(row, name=name) for row, name in zip(made, names, strict=True)]

    inputs, right = [each.input for each in known], [each.output for each in known]
    clean, other = rows(inputs, right), rows([each.corrupted for each in known], right)
    wrong = rows(inputs, [each.wrong for each in known]) if measure == "difference" else clean
    made, left_out = [], {"no_counterfactual": len(task.examples) - len(known)}
    for own, changed, false in zip(clean, other, wrong, strict=True):
        reason = ""
        if changed.start != own.start or changed.ids[own.start :] != own.ids[own.start :]:
            reason = "other_length"
        elif measure == "loss":
            made.append(Contrast(own, changed))
        else:
            end = parting(own, false)
            if end is None:
                reason = "same_tokens"
            else:
                cut = (replace(row, ids=row.ids[:end], start=0) for row in (own, changed))
                made.append(Contrast(*cut, own.ids[end], false.ids[end]))
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
    if not made:
        why = ", ".join(f"{name.replace('_', ' ')}: {number}" for name, number in left_out.items())
        raise InputError(
            f"{task.path}: no example has a corrupted input of as many tokens and an answer that "
            f"begins otherwise ({why}); give other or more examples"
        )
    return made, left_out


def attribution(
    lm: LanguageModel,
    task: Task,
    config: Attribution = Attribution(),
    instructed: bool = False,
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """How far m would rise if a head's output were that of the corrupted input, to first order.

    For each example one forward and backward pass a step gives the score of all heads. Raises
    `InputError` as `contrasts` does, or where m is no finite number.

    Returns:
        Scores in nats (`loss`: a token) or logits, with bootstrap bounds over examples: means over
            examples of (a_corrupted - a_clean) · ∂m/∂a, a the head's output before W_O, summed over
            tokens and channels. `statistics`, by example: `products` (E, L, W), `losses` (E,), m of
            the corrupted input minus that of the clean one, and of the first `patch` examples
            `patched` (P, L, W), how far m rises with each head patched alone.
    """
    from headscope.find.gate_gradients import kept_gradients

    measure = config.measure or ("difference" if task.names_wrong else "loss")
    task = corrupted(lm, task, instructed, config.seed)
    examples, left_out = contrasts(lm, task, measure, instructed)
    part = RunPart(run, task.name)
    found = kept_gradients(
        lm,
        [example.clean for example in examples],
        lambda some: _attributed(lm, [examples[at] for at in some], config.steps),
        config.batch_tokens,
        part,
        progress,
    )
    statistics = {"products": found.products, "losses": found.losses}
    if config.patch:
        statistics["patched"] = _patched(lm, examples[: config.patch], config, part)
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

    if some[0].right is None:
        return row_losses(lm, *answer_batch(lm, [(row.ids, row.start) for row in rows]))
    logits = lm.forward(lm.collate([row.ids for row in rows]), logits=False).logits[:, -1].float()
    tokens = torch.tensor([[each.wrong, each.right] for each in some], device=logits.device)
    wrong, right = logits.gather(1, tokens).unbind(1)
    return wrong - right


def _outputs(
    lm: LanguageModel, some: Sequence[Contrast]
) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """How much higher m is of corrupted inputs (B,), and by layer how far every head's output
    lies from the clean one, float32 (B, T, H, D); zero at padding."""
    import torch

    from headscope.lm.losses import applies_apart
    from headscope.lm.patching import all_outputs

    rows, harms, outputs = [each.clean for each in some], [], []
    # Whether logits can be made apart is tried in a pass of its own, which is not watched.
    applies_apart(lm, lm.collate([row.ids for row in rows]))
    for side in (rows, [each.corrupted for each in some]):
        with torch.no_grad(), all_outputs(lm) as seen:
            harms.append(_harm(lm, side, some))
        outputs.append(seen)
    real = lm.collate([each.clean.ids for each in some]).attention_mask.bool()
    clean, other = outputs
    return harms[1] - harms[0], {
        layer: (other[layer].float() - own.float()).where(
            real.to(own.device)[..., None, None], torch.zeros((), device=own.device)
        )
        for layer, own in clean.items()
    }


def _attributed(
    lm: LanguageModel, some: Sequence[Contrast], steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of some examples m of the corrupted input minus m of the clean one (B,), and the first-order
    effects (B, L, W)."""
    import torch

    from headscope.lm.patching import between_inputs, moved_outputs

    higher, directions = _outputs(lm, some)
    rows = [each.clean for each in some]
    other = lm.collate([each.corrupted.ids for each in some]).input_ids
    moved = torch.zeros(len(some), *lm.geometry.shape, device=lm.device, requires_grad=True)
    total = torch.zeros_like(moved, requires_grad=False)
    for share in [step / steps for step in range(1, steps + 1)] or [0.0]:
        with (
            torch.enable_grad(),
            between_inputs(lm, other, share),
            moved_outputs(lm, moved, directions),
        ):
            harm = _harm(lm, rows, some)
            total += torch.autograd.grad(harm.sum(), moved)[0] / max(1, steps)
    return higher, total


def _patched(
    lm: LanguageModel, examples: Sequence[Contrast], config: Attribution, part: RunPart = NOWHERE
) -> NDArray[np.float32]:
    """How far m rises with each head's corrupted output in its place, one at a time, (P, L, W)."""
    import torch

    from headscope.lm.batching import in_halves
    from headscope.lm.losses import frozen
    from headscope.lm.patching import moved_outputs

    done = {int(own["example"][0]): own["effects"] for own in part.tensors("patched")}
    heads = list(lm.geometry.heads())
    for at, example in enumerate(examples):
        if at in done:
            continue
        size = max(1, config.batch_tokens // len(example.clean.ids))
        batches = [range(len(heads))[begin : begin + size] for begin in range(0, len(heads), size)]
        effects = np.zeros(lm.geometry.shape, np.float32)
        with frozen(lm.model), torch.no_grad():
            clean, (_, directions) = _harm(lm, [example.clean], [example]), _outputs(lm, [example])

            def read(
                places: list[int],
                example: Contrast = example,
                directions: dict[int, torch.Tensor] = directions,
            ) -> torch.Tensor:
                moved = torch.zeros(len(places), *lm.geometry.shape, device=lm.device)
                for row, place in enumerate(places):
                    moved[row, heads[place].layer, heads[place].head] = 1
                rows, some = [example.clean] * len(places), [example] * len(places)
                with moved_outputs(lm, moved, directions):
                    return _harm(lm, rows, some)

            for places, harm in in_halves(batches, read):
                for place, value in zip(places, (harm - clean).tolist(), strict=True):
                    effects[heads[place].layer, heads[place].head] = value
        done[at] = effects
        part.keep_tensors("patched", f"{at:06d}", {"example": np.array([at]), "effects": effects})
    return np.stack([done[at] for at in range(len(examples))])
