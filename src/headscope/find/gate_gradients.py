"""Gradients of every document's loss with respect to every head's gate.

The gate has one part a row of the batch, so a single backward pass over a batch gives the gradient
of each document's own loss: as if every document had been alone, and much faster.  Gradients are
taken at gate 1 (`gate_gradients`), or at a gate that moves on after every document
(`moving_gate_gradients`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.data.documents import LONGEST, DocumentFile
from headscope.errors import InputError
from headscope.find.scoring import NOWHERE, Arrays, RunPart
from headscope.lm.batching import in_halves, memory_errors, release_memory
from headscope.lm.losses import answer_batch, checkpointed, frozen, losses_at
from headscope.lm.prompting import Answered
from headscope.progress import Steps

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Documents after which a moving gate is written down.
KEPT_EVERY = 16


@dataclass(frozen=True, eq=False)
class GateGradients:
    """What single documents say about every head.

    Attributes:
        products: float32 (documents, L, W): g · ∂loss/∂g, in nats; 0 where there is no head.
        losses: float32 (documents,): the mean loss of each document, in nats a token.
        tokens: int32 (documents,): how many tokens were predicted.
    """

    products: NDArray[np.float32]
    losses: NDArray[np.float32]
    tokens: NDArray[np.int32]

    def about(self, documents: DocumentFile) -> dict[str, Any]:
        """What was counted of the documents that were read."""
        return {
            "language": documents.language,
            "examples": len(self.tokens),
            "left_out": len(documents.documents) - len(self.tokens),
            "tokens": int(self.tokens.sum()),
            "loss": float(self.losses.mean(dtype=np.float64)),
        }


def texts_of(lm: LanguageModel, file: DocumentFile) -> list[Answered]:
    """The documents as tokens, cut at `LONGEST` or the context; those with one token left out.

    Raises `InputError` if no document is left, in which nothing could be predicted.
    """
    texts = [
        Answered(
            tuple(lm.encode(document.text, most=LONGEST, closed=True)),
            1,
            f"{file.path}, line {document.line}",
        )
        for document in file.documents
    ]
    found = [text for text in texts if len(text.ids) > 1]
    if not found:
        raise InputError(
            f"no document of {file.path} has two tokens of this model, so there is nothing to "
            "predict; give longer texts"
        )
    return found


def gate_gradients(
    lm: LanguageModel,
    texts: Sequence[Answered],
    batch_tokens: int = 2048,
    checkpoint: bool = False,
    part: RunPart = NOWHERE,
    progress: Steps | None = None,
) -> GateGradients:
    """∂loss/∂g of every document of at least two tokens at gate 1, where it is g · ∂loss/∂g.

    With `checkpoint` each layer's input alone is kept and the layer computed again in the backward
    pass; a single document that does not fit into memory is tried so in any case. Raises
    `InputError` if a loss or a gradient is no finite number; it names the document, and all that
    was computed before is kept.
    """

    def work(some: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        rows = [texts[index].ids for index in some]
        return _fitting_gradients(lm, rows, ones_gate(lm, len(some)), checkpoint)

    return kept_gradients(lm, texts, work, batch_tokens, part, progress)


def kept_gradients(
    lm: LanguageModel,
    texts: Sequence[Answered],
    work: Callable[[list[int]], tuple[torch.Tensor, torch.Tensor]],
    batch_tokens: int,
    part: RunPart = NOWHERE,
    progress: Steps | None = None,
) -> GateGradients:
    """What `work` makes of every text: of some, by their numbers, a number (B,) and what it says of
    heads (B, L, W); the model is frozen meanwhile. Errors are those of `gate_gradients`.
    """
    found = _Found(part, "gradients", texts)
    buckets = lm.buckets([len(text.ids) for text in texts], batch_tokens)
    units = part.units("gradients", buckets, found.losses, found.reread, progress)
    with frozen(lm.model), units as mine:
        for some, made in in_halves(mine, work):
            losses, products = map(_array, made)
            fine = [at for at in range(len(some)) if _finite(losses[at], products[at])]
            found.keep([some[at] for at in fine], losses[fine], products[fine])
            for at in range(len(some)):
                if at not in fine:
                    raise _not_finite(lm, texts[some[at]], float(losses[at]))
            if progress:
                progress(len(found.losses), len(texts))
    return found.all()


def moving_gate_gradients(
    lm: LanguageModel,
    texts: Sequence[Answered],
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-2,
    checkpoint: bool = False,
    part: RunPart = NOWHERE,
    progress: Steps | None = None,
) -> GateGradients:
    """g · ∂loss/∂g of every document at a gate that takes one step of AdamW after each.

    As the published code of LAHIS does it, but with a gate in 32 bits: the gate begins at 1, each
    document is scored at the gate as it is, and then AdamW lowers that document's loss.  Documents
    come in their order, one at a time; arguments and errors are those of `gate_gradients`.
    """
    found = _Found(part, "moving", texts)
    # Every document moves the gate for the next, so that all of them are one unit.
    with part.units("moving", [range(len(texts))], found.losses, found.reread, progress) as mine:
        if mine:
            _move(lm, texts, found, learning_rate, weight_decay, checkpoint, progress)
    return found.all()


def _move(
    lm: LanguageModel,
    texts: Sequence[Answered],
    found: _Found,
    learning_rate: float,
    weight_decay: float,
    checkpoint: bool,
    progress: Steps | None,
) -> None:
    """Score the documents after those that are known, and move the gate."""
    done = len(found.losses)
    ones = _array(ones_gate(lm, 1)[0])
    state = found.state or dict(zip(_STATE, (ones, 0 * ones, 0 * ones), strict=True))
    state = {name: values.copy() for name, values in state.items()}
    gate = state["gate"]
    waiting: list[tuple[float, NDArray[np.float32]]] = []

    def keep(end: int) -> None:
        if waiting:
            some = list(range(end - len(waiting), end))
            losses = np.array([loss for loss, _ in waiting], dtype=np.float32)
            found.keep(some, losses, np.stack([products for _, products in waiting]), state)
            waiting.clear()

    with frozen(lm.model):
        for index in range(done, len(texts)):
            rows, before = [texts[index].ids], torch.from_numpy(gate)[None].to(lm.device)
            losses, gradients = _fitting_gradients(lm, rows, before, checkpoint)
            loss, gradient = float(losses), _array(gradients[0])
            products = gate * gradient
            if not _finite(np.float32(loss), products):
                keep(index)
                raise _not_finite(lm, texts[index], loss)
            waiting.append((loss, products))
            _adam_step(state, gradient, index + 1, learning_rate, weight_decay)
            if len(waiting) == KEPT_EVERY or index + 1 == len(texts):
                keep(index + 1)
            if progress:
                progress(index + 1, len(texts))


def batch_gradients(
    lm: LanguageModel, rows: Sequence[Sequence[int]], gate: torch.Tensor, checkpoint: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's loss (B,), and its gradient (B, L, W) with respect to its part of the gate."""
    # Every token is predicted but the first of each row.
    batch, learned = answer_batch(lm, [(row, 1) for row in rows])
    own = gate.detach().clone().requires_grad_(True)
    again = checkpointed(lm) if checkpoint else contextlib.nullcontext()
    with torch.enable_grad(), frozen(lm.model), lm.gated(own), again:
        flat = losses_at(lm, batch, learned)
        parts = torch.split(flat, [len(row) - 1 for row in rows])
        losses = torch.stack([part.mean() for part in parts])
        (gradients,) = torch.autograd.grad(losses.sum(), own)
    return losses.detach(), gradients


def _fitting_gradients(
    lm: LanguageModel, rows: Sequence[Sequence[int]], gate: torch.Tensor, checkpoint: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """`batch_gradients`; a single row that does not fit into memory is tried with checkpointing."""
    try:
        with memory_errors():
            return batch_gradients(lm, rows, gate, checkpoint)
    except torch.OutOfMemoryError:
        if len(rows) > 1 or checkpoint:
            raise
    release_memory()
    return batch_gradients(lm, rows, gate, True)


def ones_gate(lm: LanguageModel, rows: int) -> torch.Tensor:
    """A gate of ones for each row, in 32 bits whatever the model computes in."""
    shape = (rows, lm.geometry.layers, lm.geometry.width)
    return torch.ones(shape, dtype=torch.float32, device=lm.device)


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return values


def _finite(loss: NDArray[np.float32] | np.float32, products: NDArray[np.float32]) -> bool:
    return bool(np.isfinite(loss).all() and np.isfinite(products).all())


def _not_finite(lm: LanguageModel, text: Answered, loss: float) -> InputError:
    dtype = str(lm.dtype).removeprefix("torch.")
    half = "; --dtype float32 may help" if lm.dtype in (torch.float16, torch.bfloat16) else ""
    what = "its gradient is not finite" if np.isfinite(loss) else f"its loss is {loss}"
    return InputError(
        f"{text.name}: the model cannot be scored on this document in {dtype} ({what}){half}; "
        "leave the document out, or check the model (what was computed before it is kept, and the "
        "same command goes on from there)"
    )


class _Found:
    """What is known of documents so far, by their number; kept in a part of the run."""

    def __init__(self, part: RunPart, name: str, texts: Sequence[Answered]) -> None:
        self._part, self._name, self._texts = part, name, texts
        self.losses: dict[int, float] = {}
        self.products: dict[int, NDArray[np.float32]] = {}
        self.state: Arrays = {}
        self.reread()

    def reread(self) -> None:
        """Take up what is kept."""
        for stored in self._part.tensors(self._name):
            self._take(stored["index"].tolist(), stored["losses"], stored["products"])
            self.state = {key: stored[key] for key in _STATE if key in stored}

    def _take(
        self, some: Sequence[int], losses: NDArray[np.float32], products: NDArray[np.float32]
    ) -> None:
        self.losses.update(zip(some, losses.tolist(), strict=True))
        self.products.update(zip(some, products, strict=True))

    def keep(
        self,
        some: Sequence[int],
        losses: NDArray[np.float32],
        products: NDArray[np.float32],
        state: Arrays | None = None,
    ) -> None:
        """Add finished documents; a document is in one batch, so its number names the batch."""
        if not some:
            return
        self._take(some, losses, products)
        index = np.array(some, dtype=np.int64)
        arrays: Arrays = {"index": index, "losses": losses, "products": products}
        arrays |= state or {}
        self._part.keep_tensors(self._name, f"{some[0]:09d}", arrays)

    def all(self) -> GateGradients:
        order = range(len(self._texts))
        return GateGradients(
            np.stack([self.products[index] for index in order]),
            np.array([self.losses[index] for index in order], dtype=np.float32),
            np.array([len(text.ids) - 1 for text in self._texts], dtype=np.int32),
        )


#: A moving gate, and AdamW's running means of its gradient and of the square of it.
_STATE = ("gate", "exp_avg", "exp_avg_sq")


def _adam_step(
    state: Arrays, gradient: NDArray[np.float32], step: int, rate: float, decay: float
) -> None:
    """A step of AdamW (Loshchilov & Hutter 2019), from 1, on the arrays themselves.

    With the betas and the epsilon of PyTorch, whose optimizer takes as long for so few numbers as
    three layers of a small model.
    """
    gate, first, second = (state[name] for name in _STATE)
    first += (1 - 0.9) * (gradient - first)
    second += (1 - 0.999) * (gradient * gradient - second)
    gate *= 1 - rate * decay
    gate -= rate / (1 - 0.9**step) * first / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
