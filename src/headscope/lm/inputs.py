"""What goes into a forward pass, and the mode a model is in meanwhile."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headscope.lm.batching import Batch, collate
from headscope.lm.hooks import outermost, text_config
from headscope.lm.owners import inner_model
from headscope.lm.weights import input_device

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel


@outermost
@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode, and give each its own mode back at the end.

    Meanwhile the output embedding gets contiguous states. Where only the last tokens' logits are
    wanted it would get a slice of all states, for which PyTorch's `linear` copies the weights of
    the embedding once a row: gigabytes with a large vocabulary.
    """
    training = [module for module in model.modules() if module.training]
    causal: Any = model
    embedding = causal.get_output_embeddings() if hasattr(causal, "get_output_embeddings") else None
    try:
        for module in training:
            module.training = False
        with contextlib.ExitStack() as stack:
            if embedding is not None:
                stack.enter_context(embedding.register_forward_pre_hook(_contiguous))
            yield
    finally:
        for module in training:
            module.training = True


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    # `contiguous` alone would leave a single row of a slice with the strides of the whole.
    return tuple(
        value.contiguous().view(-1, value.shape[-1]).view(value.shape)
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    )


def generated(
    lm: LanguageModel,
    batch: Batch,
    stop: Sequence[Any] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> Any:
    """What ``generate`` returns for a batch by these settings alone, in evaluation mode.

    The model's own settings would fill whatever they leave open. ``stop`` are stopping criteria,
    ``more`` are further arguments of ``generate``.
    """
    import transformers

    make: Any = transformers.GenerationConfig
    model, chosen, there = inner_model(lm.model), make(num_beams=1, **settings), batch.to(lm.device)
    with evaluating(lm.model), torch.no_grad():
        own = model.generation_config
        lm.forget_lengths()
        model.generation_config = chosen
        try:
            return lm.model.generate(
                input_ids=there.input_ids,
                attention_mask=there.attention_mask,
                generation_config=chosen,
                stopping_criteria=transformers.StoppingCriteriaList(stop),
                **_without_routing(model),
                **more,
            )
        finally:
            model.generation_config = own


def forward_inputs(model: Any, batch: Batch, logits: bool = True) -> dict[str, Any]:
    """Arguments of ``model.forward`` for ``batch``, on the device of the model's embeddings.

    Position ids go along wherever the model knows them: with padding on the left, models with
    learned positions would otherwise count the padding. Without `logits` only those of the last
    position are computed where the model can leave the others out (`leaves_out_logits`).
    """
    inner = inner_model(model)
    batch = batch.to(input_device(inner))
    known = parameters_of(inner)
    inputs: dict[str, Any] = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "use_cache": batch.cache is not None,
    }
    if batch.cache is not None:
        inputs["past_key_values"] = batch.cache
    if "position_ids" in known:
        inputs["position_ids"] = batch.position_ids
    if not logits and leaves_out_logits(inner):
        inputs["logits_to_keep"] = 1
    return inputs | _without_routing(inner)


def _without_routing(model: Any) -> dict[str, bool]:
    """What keeps a mixture of experts from computing the balance of its experts, as some
    configurations want: it fails where only the last logits are kept, or tokens are cached."""
    name = "output_router_logits"
    return {name: False} if name in parameters_of(model) else {}


def parameters_of(module: nn.Module) -> frozenset[str]:
    """The names of what a module's ``forward`` takes."""
    if "forward" in vars(module):  # its own, as placement over devices sets it
        return frozenset(inspect.signature(module.forward).parameters)
    return _parameters(type(module).forward)


@functools.cache
def _parameters(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def leaves_out_logits(model: Any) -> bool:
    """Whether a model can be asked for the last position's logits alone, and still computes every
    layer for all positions.

    Gemma 4's decoder takes the number itself: its upper layers, which read the keys of lower ones,
    then compute nothing for the other positions.
    """
    if "logits_to_keep" not in parameters_of(model):
        return False
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    return decoder is model or "logits_to_keep" not in parameters_of(decoder)


def ordinary_tokens(model: Any, tokenizer: Any = None) -> list[int]:
    """The ids of a model's vocabulary that stand for text, in ascending order.

    Ids that mean something special (padding, end of text, places of images) are left out.
    """
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    for config in (model.config, text_config(model)):
        for key, value in config.to_dict().items():
            if key.endswith(("_token_id", "_token_index")):
                special.update(value if isinstance(value, list) else [value])
    return [index for index in range(_vocabulary(model, tokenizer)) if index not in special]


def _vocabulary(model: Any, tokenizer: Any) -> int:
    size = int(text_config(model).vocab_size)
    return size if tokenizer is None else min(size, len(tokenizer))


def probe_batch(model: Any, tokenizer: Any = None, lengths: tuple[int, ...] = (7, 4)) -> Batch:
    """A few ordinary tokens in rows of unlike lengths, padded on the left."""
    wanted = sum(lengths)
    step = max(1, _vocabulary(model, tokenizer) // (wanted + 1))
    ordinary = [index for index in ordinary_tokens(model, tokenizer) if index >= step]
    # Evenly spaced; a vocabulary smaller than the probe repeats itself.
    ids = iter([ordinary[(i * step) % len(ordinary)] if ordinary else 0 for i in range(wanted)])
    rows = [list(itertools.islice(ids, length)) for length in lengths]
    return collate(rows, pad_id=0)


def probe_pass(lm: LanguageModel, lengths: tuple[int, ...] = (7, 4)) -> Any:
    """What the model makes of `probe_batch`, in evaluation mode and without gradients."""
    batch = probe_batch(lm.model, lm.tokenizer_or_none, lengths)
    with evaluating(lm.model), torch.no_grad():
        return lm.forward(batch)
