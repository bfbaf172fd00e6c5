"""The model's own way from hidden states to logits, applied to some positions at a time.

Logits are by far the largest thing a pass over a text makes: positions × vocabulary.  What stands
between the last decoder layer and the logits (the output embedding, a scale, a soft cap) is
code of each architecture, so it is not written again here: the model runs once more with its
decoder replaced by one that returns the hidden states wanted.
"""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import torch
from torch import nn

from headscope.lm.batching import Batch, collate
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import kept_output, replaced_forwards
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.model import LanguageModel

#: Whether a model's logits can be made apart, found out once for each.
_known: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()
#: Largest difference allowed in that try-out, relative to the largest logit: other shapes may be
#: summed in another order.
_SAME = {torch.float32: 1e-4, torch.float64: 1e-9}
_SAME_IN_HALF = 2e-2
_TRIED = 8


def _causal(lm: LanguageModel) -> Any:
    """The model with the output embedding, inside of adapters."""
    return lm.model.get_base_model() if hasattr(lm.model, "get_base_model") else lm.model


def _decoder(causal: Any) -> Any:
    """The part that makes the hidden states; the model itself where it names no such part."""
    return causal.get_decoder() if hasattr(causal, "get_decoder") else causal.base_model


def applies_apart(lm: LanguageModel, batch: Batch) -> bool:
    """Whether `vocabulary_logits` of `hidden_states` are the model's logits, tried on a few tokens.

    The answer is kept; the first call costs three passes over the last tokens of each row of
    ``batch`` (all its rows, since a gate that is active may have one part a row).
    """
    causal = _causal(lm)
    if causal not in _known:
        _known[causal] = _try_out(lm, batch)
    return _known[causal]


def _try_out(lm: LanguageModel, batch: Batch) -> bool:
    causal = _causal(lm)
    if (
        _decoder(causal) is causal
        or "logits_to_keep" not in inspect.signature(causal.forward).parameters
    ):
        return False
    ends = [row[-_TRIED:] for row in batch.input_ids.tolist()]
    batch = collate(ends, lm.pad_token_id)
    with evaluating(lm.model), torch.no_grad():
        whole = lm.model(**forward_inputs(lm.model, batch)).logits
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
    apart, whole = apart[numbers], whole[numbers]
    difference = (apart.float() - whole.float()).abs().max()
    allowed = _SAME.get(whole.dtype, _SAME_IN_HALF) * whole.float().abs().max()
    return bool(difference <= allowed)


def hidden_states(lm: LanguageModel, batch: Batch) -> tuple[torch.Tensor, Any]:
    """What the decoder hands to the output embedding for a batch, and the object it came in.

    Gradients are kept where they are switched on.

    Returns:
        Hidden states of shape (B, T, D) after the final norm, and the decoder's whole output, for
        `vocabulary_logits`.
    """
    # Logits, even of one position a row, would be rows × vocabulary.
    with kept_output(_decoder(_causal(lm)), stop=True) as outputs:
        lm.model(**forward_inputs(lm.model, batch, logits=False))
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
    causal = _causal(lm)
    rows = hidden.unsqueeze(0)
    if isinstance(output, dict):
        fields = {**output, "last_hidden_state": rows}
        replaced: Any = type(output)(**fields)
    else:
        replaced = (rows, *output[1:]) if isinstance(output, tuple) else rows
    with replaced_forwards([_decoder(causal)], lambda _: lambda *args, **kwargs: replaced):
        # The ids are not read by the decoder that is replaced; only their shape has to fit.
        ids = torch.zeros(rows.shape[:2], dtype=torch.long, device=lm.device)
        logits: torch.Tensor = causal(input_ids=ids, use_cache=False).logits
    return logits[0]
