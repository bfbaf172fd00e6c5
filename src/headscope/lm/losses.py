"""Losses of texts: negative log-likelihoods of tokens, with and without gradients.

Everything here runs under whatever gates and observers are active around it.  Losses are in nats,
from a log-softmax in 32 bits, and logits are made for some positions at a time, so that positions
× vocabulary is never held for a whole batch (where the architecture allows it).  What stands
between the last decoder layer and the logits (the output embedding, a scale, a soft cap) is code of
each architecture, so it is not written again here: the model runs once more with its decoder
replaced by one that returns the hidden states wanted.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from headscope.errors import InputError, out_of_memory
from headscope.lm.batching import Batch, Batches
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import (
    kept_output,
    outermost,
    replaced_forwards,
    text_config,
)
from headscope.lm.inputs import evaluating, parameters_of
from headscope.lm.model import LanguageModel
from headscope.lm.owners import inner_model
from headscope.lm.positions import answers_at

#: Logits held at once: 32 million numbers, 128 MB in 32 bits.
CHUNK = 1 << 25
#: Of these, so many are normalised at once on a CPU.
_CACHED = 1 << 22
#: There a vocabulary of so many tokens is read piece by piece, of so many positions at a time:
#: pieces of weights and logits stay in its caches.
_LARGE, _PIECE, _POSITIONS = 1 << 15, 2048, 512
#: Whether a model's logits can be made apart, found out once for each.
_known: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
#: And whether those of pieces of the vocabulary can.
_in_pieces: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
#: Largest difference allowed in that try-out, relative to the largest logit: other shapes may be
#: summed in another order.
_SAME = {torch.float32: 1e-4, torch.float64: 1e-9}
_SAME_IN_HALF = 2e-2
_TRIED = 8
#: Where so many positions a learned token or fewer fit a chunk, their logits are made in one pass.
_MOST = 1.25
#: A target that has no loss.
_NONE = -100


def token_losses(
    lm: LanguageModel,
    rows: Sequence[Sequence[int]],
    starts: Sequence[int] | None = None,
    batch_tokens: int = 8192,
    progress: Callable[[int, int], None] | None = None,
    reduce: Callable[[int, NDArray[np.float32]], Any] = lambda row, losses: losses,
    batches: Batches | None = None,
) -> list[Any]:
    """The negative log-likelihood of each token of each row, given those before it; no gradient.

    Rows of similar length share a batch; where memory does not suffice a batch is halved. Raises
    `InputError` if a row is longer than the context, or a start is below 1.

    Args:
        starts: for each row the first token whose loss is wanted; by default 1, since nothing
            predicts the first token. Where they are given, answers begin there (see
            `headscope.lm.positions`).
        progress: told after each batch how many rows of how many are done.
        reduce: makes of a row, by its place, and its losses what is wanted of them.
        batches: keeps what batches give, and says what is there already, under one gate, 0.

    Returns:
        For each row a float32 array of len(row) - start losses in nats, empty where there is none;
        reduced.
    """
    first = [1] * len(rows) if starts is None else list(starts)
    if len(first) != len(rows):
        raise InputError(f"{len(first)} starts were given for {len(rows)} rows; give one each.")
    lm.check_lengths(rows)
    for index, start in enumerate(first):
        if start < 1:
            raise InputError(
                f"The start of row {index} is {start}; it must be at least 1, since nothing "
                "predicts the first token."
            )
    losses = [reduce(row, np.zeros(0, dtype=np.float32)) for row in range(len(rows))]
    wanted = [index for index, row in enumerate(rows) if len(row) > first[index]]
    lengths = [len(rows[index]) for index in wanted]
    done = len(rows) - len(wanted)

    def batch_losses(places: list[int]) -> list[Any]:
        some = [wanted[place] for place in places]
        named = [(0, row) for row in some]
        if batches and (known := batches.kept(named)) is not None:
            return known
        batch, learned = answer_batch(lm, [(rows[i], first[i]) for i in some])
        said = contextlib.nullcontext() if starts is None else answers_at([first[i] for i in some])
        with said:
            flat = losses_at(lm, batch, learned).cpu().numpy()
        counts = [len(rows[index]) - first[index] for index in some]
        split = np.split(flat, np.cumsum(counts)[:-1])
        made = [reduce(row, of_row) for row, of_row in zip(some, split, strict=True)]
        if batches:
            batches.keep(named, made)
        return made

    with evaluating(lm.model), torch.no_grad():
        for places, part_losses in lm.in_batches(lengths, batch_tokens, batch_losses):
            for place, values in zip(places, part_losses, strict=True):
                losses[wanted[place]] = values
            done += len(places)
            if progress:
                progress(done, len(rows))
    return losses


def answer_batch(
    lm: LanguageModel, rows: Sequence[tuple[Sequence[int], int]]
) -> tuple[Batch, torch.Tensor]:
    """Rows with where their answers begin as a batch, and their tokens in it, bool (B, T)."""
    batch = lm.collate([ids for ids, _ in rows])
    learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    for at, (ids, start) in enumerate(rows):
        learned[at, learned.shape[1] - len(ids) + start :] = True
    return batch, learned


def row_losses(lm: LanguageModel, batch: Batch, learned: torch.Tensor) -> torch.Tensor:
    """The mean negative log-likelihood (B,) of each row's marked tokens, float32, with gradients.

    Gradients reach whatever gates are active around the call; run the backward pass inside the same
    contexts. The model computes as in evaluation, whatever mode it is in; see `frozen` for leaving
    its parameters out of the graph. `learned` (B, T) marks the tokens that count, each predicted
    from those before it. Raises `InputError` if a row has no marked token, or one that nothing
    predicts (padding, or the first token of a row).
    """
    learned = learned.cpu()
    if learned.shape != batch.input_ids.shape or learned.dtype != torch.bool:
        raise InputError(
            f"The marks of learned tokens are {learned.dtype} of shape {tuple(learned.shape)}; "
            f"they must be bool of shape {tuple(batch.input_ids.shape)}."
        )
    real = batch.attention_mask.cpu().bool()
    predicted = real & functional.pad(real[:, :-1], (1, 0), value=False)
    counts = learned.sum(dim=1)
    wrong, empty = (learned & ~predicted).any(dim=1).int(), (counts == 0).int()
    if bool(wrong.any()):
        raise InputError(
            f"Row {int(wrong.argmax())} of a batch marks padding or its first token, which nothing "
            "predicts; mark later tokens."
        )
    if bool(empty.any()):
        raise InputError(
            f"Row {int(empty.argmax())} of a batch marks no token, so its loss has no meaning."
        )
    with evaluating(lm.model):
        flat = losses_at(lm, batch, learned)
    owner = learned.nonzero()[:, 0].to(flat.device)
    sums = torch.zeros(len(learned), dtype=flat.dtype, device=flat.device)
    return sums.index_add(0, owner, flat) / counts.to(flat.device)


def losses_at(lm: LanguageModel, batch: Batch, learned: torch.Tensor) -> torch.Tensor:
    """The negative log-likelihoods (N,) of the marked tokens, float32, row by row.

    Gradients are kept where they are switched on; the caller sees to the model's mode. `learned`,
    bool (B, T), marks none in column 0, and none that is padding or the first token of its row.
    """
    vocabulary = int(text_config(lm.model).vocab_size)
    size = max(1, CHUNK // vocabulary)
    if learned.numel() <= min(size, _MOST * int(learned.sum())) or not applies_apart(lm, batch):
        targets = batch.input_ids.cpu().where(learned, _NONE).roll(-1, dims=1)
        logits = lm.forward(batch).logits
        flat = _entropy(logits.flatten(0, 1), targets.flatten())
        return flat[learned.roll(-1, dims=1).flatten()]
    places = learned.nonzero(as_tuple=True)
    targets = batch.input_ids.cpu()[places]
    hidden, output = hidden_states(lm, batch)
    # Without waiting, else a GPU has nothing to do while the next pieces are launched.
    row, column, targets = (
        indices.to(hidden.device, non_blocking=True)
        for indices in (places[0], places[1] - 1, targets)
    )
    chosen = hidden[row, column]
    causal = inner_model(lm.model)
    # The embedding may have been adapted or hooked since it was tried.
    if _in_pieces.get(causal) and _has_pieces(causal) and not chosen.requires_grad:
        starts = range(0, max(1, len(targets)), _POSITIONS)
        several = [slice(start, start + _POSITIONS) for start in starts]
        return torch.cat([_by_pieces(lm, chosen[at], output, targets[at]) for at in several])

    def losses(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return _entropy(vocabulary_logits(lm, part, output), wanted)

    parts = []
    for start in range(0, max(1, len(targets)), size):
        part, wanted = chosen[start : start + size], targets[start : start + size]
        if part.requires_grad and len(targets) > size:
            # Logits are made again in the backward pass instead of being kept for it.
            made: Any = checkpoint(
                losses, part, wanted, use_reentrant=False, preserve_rng_state=False
            )
            parts.append(made)
        else:
            parts.append(losses(part, wanted))
    return torch.cat(parts)


def _entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    targets = targets.to(logits.device)
    rows = max(1, _CACHED // logits.shape[1])
    if logits.device.type == "cpu" and not logits.requires_grad and len(logits) > rows:
        # Some rows at a time, whose normalised logits need no new pages of memory each time.
        starts = range(0, len(logits), rows)
        parts = [_entropy(logits[at : at + rows], targets[at : at + rows]) for at in starts]
        return torch.cat(parts)
    return functional.cross_entropy(logits.float(), targets, reduction="none")


def _by_pieces(
    lm: LanguageModel, hidden: torch.Tensor, output: Any, targets: torch.Tensor
) -> torch.Tensor:
    """Negative log-likelihoods (N,), by a log-sum-exp that goes through the vocabulary."""
    total = torch.full((len(hidden),), -math.inf)
    picked = total.clone()
    for first, piece in _vocabulary_pieces(lm, hidden, output):
        logits = piece.float()
        total = torch.logaddexp(total, logits.logsumexp(dim=1))
        own = ((targets >= first) & (targets < first + logits.shape[1])).nonzero()[:, 0]
        picked[own] = logits[own, targets[own] - first]
    return total - picked


@outermost
@contextlib.contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter of a model requires a gradient inside, and it is in evaluation mode; all is as
    before afterwards.

    Raises `InputError` for weights through which no gradient can be taken.
    """
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise InputError(
            f"the weights of {type(model).__name__} were made in torch.inference_mode, so no "
            "gradients can be taken through them; load the model outside of it"
        )
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        with evaluating(model):
            yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


@contextlib.contextmanager
def checkpointed(lm: LanguageModel) -> Iterator[None]:
    """Keep what enters each decoder layer alone, and compute the layer again in the backward pass.

    For texts too long for memory: each layer's forward pass runs twice.  The non-reentrant kind of
    checkpointing, around each layer's own ``forward``: unlike the switch of ``transformers`` it
    needs no training mode, so that dropout, layer dropout and router noise stay asleep; the model
    is in evaluation mode inside, also while layers are computed again.  The backward pass has to
    run inside, too.  Every layer gets its own ``forward`` back at the end, also after an exception.
    """
    with evaluating(lm.model), replaced_forwards(lm.model, lm.decoder_layers, _twice):
        yield


def _twice(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return run


def _decoder(causal: Any) -> Any:
    """The part that makes the hidden states; the model itself where it names no such part."""
    return causal.get_decoder() if hasattr(causal, "get_decoder") else causal.base_model


def applies_apart(lm: LanguageModel, batch: Batch) -> bool:
    """Whether `vocabulary_logits` of `hidden_states` are the model's logits, tried on a few tokens.

    The answer is kept; the first call costs three passes over the last tokens of each row of
    ``batch`` (all its rows, since a gate that is active may have one part a row).
    """
    causal = inner_model(lm.model)
    if causal not in _known:
        _known[causal] = _try_out(lm, batch)
    return _known[causal]


def _try_out(lm: LanguageModel, batch: Batch) -> bool:
    causal = inner_model(lm.model)
    if _decoder(causal) is causal or "logits_to_keep" not in parameters_of(causal):
        return False
    ends = [row[-_TRIED:] for row in batch.input_ids.tolist()]
    batch = lm.collate(ends)
    with evaluating(lm.model), torch.no_grad():
        whole = lm.forward(batch).logits
        try:
            hidden, output = hidden_states(lm, batch)
        except LookupError:
            return False
        if hidden.shape[:2] != whole.shape[:2]:
            return False
        flat = hidden.reshape(-1, hidden.shape[-1])
        apart = vocabulary_logits(lm, flat, output)
    whole = whole.reshape(-1, whole.shape[-1])
    if apart.shape != whole.shape:
        return False
    # A logit may be no number by design or by a fault of the model; then it has to be both ways.
    numbers = torch.isfinite(whole)
    if not bool(numbers.any()) or not torch.equal(torch.isfinite(apart), numbers):
        return False
    allowed = _SAME.get(whole.dtype, _SAME_IN_HALF) * whole[numbers].float().abs().max()

    def same(logits: torch.Tensor) -> bool:
        difference = (logits[numbers].float() - whole[numbers].float()).abs().max()
        return bool(difference <= allowed)

    if _has_pieces(causal):
        _in_pieces[causal] = False
        try:
            with evaluating(lm.model), torch.no_grad():
                parts = [piece for _, piece in _vocabulary_pieces(lm, flat, output)]
                _in_pieces[causal] = same(torch.cat(parts, dim=1))
        except (IndexError, RuntimeError, ValueError, TypeError) as error:
            if out_of_memory(error):
                raise
            # a model that does more with its logits than token by token
    return same(apart)


def _has_pieces(causal: Any) -> bool:
    """Whether the vocabulary of a model is large, and a matrix on a CPU with nothing around it."""
    output = causal.get_output_embeddings()
    return (
        type(output) is nn.Linear
        and output.weight.device.type == "cpu"
        and len(output.weight) >= _LARGE
        # What is done to its input is done to that of every piece.
        and not (output._forward_hooks or "forward" in vars(output))
    )


def hidden_states(lm: LanguageModel, batch: Batch) -> tuple[torch.Tensor, Any]:
    """What the decoder hands to the output embedding, (B, T, D) after the final norm, and the whole
    output it came in, for `vocabulary_logits`.

    Gradients are kept where they are switched on.
    """
    # Logits, even of one position a row, would be rows × vocabulary.
    with kept_output(lm.model, _decoder(inner_model(lm.model)), stop=True) as outputs:
        lm.forward(batch, logits=False)
    if not outputs:
        raise LookupError("the model goes round the part that it calls its decoder")
    return hidden_states_of(outputs[0]), outputs[0]


def vocabulary_logits(lm: LanguageModel, hidden: torch.Tensor, output: Any) -> torch.Tensor:
    """The model's logits (N, V) for hidden states (N, D), in the model's dtype.

    Args:
        lm: a model for which `applies_apart` is true.
        hidden: rows of what `hidden_states` gave.
        output: the second thing it gave, whose other fields the model may read.
    """
    with _logits_of(lm, hidden, output) as logits:
        return logits()


def _vocabulary_pieces(
    lm: LanguageModel, hidden: torch.Tensor, output: Any
) -> Iterator[tuple[int, torch.Tensor]]:
    """`vocabulary_logits` of some tokens after the other, (N, at most `_PIECE`), with the first."""
    embedding = inner_model(lm.model).get_output_embeddings()
    weight, bias, first = embedding.weight, embedding.bias, 0

    def of_piece(x: torch.Tensor) -> torch.Tensor:
        end = first + _PIECE
        return functional.linear(x, weight[first:end], None if bias is None else bias[first:end])

    with (
        _logits_of(lm, hidden, output) as logits,
        replaced_forwards(lm.model, [embedding], lambda _: of_piece),
    ):
        for first in range(0, len(weight), _PIECE):
            yield first, logits()


@contextlib.contextmanager
def _logits_of(
    lm: LanguageModel, hidden: torch.Tensor, output: Any
) -> Iterator[Callable[[], torch.Tensor]]:
    """What makes the logits (N, V) of hidden states (N, D) as `vocabulary_logits` does."""
    causal = inner_model(lm.model)
    rows = hidden.unsqueeze(0)
    if isinstance(output, dict):
        fields = {**output, "last_hidden_state": rows}
        replaced: Any = type(output)(**fields)
    else:
        replaced = (rows, *output[1:]) if isinstance(output, tuple) else rows
    with replaced_forwards(causal, [_decoder(causal)], lambda _: lambda *args, **kwargs: replaced):
        # The ids are not read by the decoder that is replaced; only their shape has to fit.
        ids = torch.zeros(rows.shape[:2], dtype=torch.long, device=lm.device)
        yield lambda: causal(input_ids=ids, use_cache=False).logits[0]
