"""Watching one forward pass: where attention takes place, and which linear maps run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from headscope.errors import InputError
from headscope.lm.batching import Batch
from headscope.lm.inputs import evaluating, forward_inputs


def is_linear(module: nn.Module) -> bool:
    """Whether ``module`` maps channels linearly: Linear, GPT-2's Conv1D, or a relative of them.

    Quantised layers and adapters around a layer (LoRA) are no subclasses of ``nn.Linear`` in every
    library, but all of them carry ``in_features`` and ``out_features``.
    """
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, (nn.Linear, Conv1D)):
        return True
    widths = (getattr(module, "in_features", None), getattr(module, "out_features", None))
    return all(isinstance(width, int) for width in widths)


@dataclasses.dataclass(frozen=True)
class Event:
    """One thing seen during the probe: an attention, a linear map, or the end of a module."""

    kind: str
    module: str
    heads: int = 0
    width: int = 0


class _Watch(TorchFunctionMode):
    """Records attention computations together with the module they happen in."""

    def __init__(self, events: list[Event], stack: list[str], rows: int) -> None:
        super().__init__()
        self.events, self.stack, self.rows = events, stack, rows
        self._pending: int | None = None  # heads of a softmax whose values are yet to be seen

    def _saw(self, heads: int, width: int) -> None:
        self.events.append(Event("attention", self.stack[-1] if self.stack else "", heads, width))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            query = args[0] if args else kwargs["query"]
            value = args[2] if len(args) > 2 else kwargs["value"]
            if query.dim() == 4:
                self._saw(int(query.shape[1]), int(value.shape[-1]))
        elif name == "softmax" and isinstance(result, torch.Tensor):
            self._pending = self._heads_of_weights(result)
        elif name in ("matmul", "__matmul__", "bmm") and self._pending is not None:
            self._saw(self._pending, int(result.shape[-1]))
            self._pending = None
        return result

    def _heads_of_weights(self, weights: torch.Tensor) -> int | None:
        """Heads of attention weights (rows, H, T, S) or (rows * H, T, S); None for anything else,
        such as the router of a mixture of experts."""
        if weights.dim() < 3 or weights.shape[-1] < weights.shape[-2]:
            return None
        if weights.dim() == 4 and weights.shape[0] == self.rows:
            return int(weights.shape[1])
        if weights.dim() == 3 and weights.shape[0] % self.rows == 0:
            heads = int(weights.shape[0]) // self.rows
            return heads if heads > 1 else None
        return None


@contextlib.contextmanager
def _watched(model: Any, events: list[Event], stack: list[str], rows: int) -> Iterator[None]:
    """Record attentions: by torch's own functions, or by the table of attention kernels.

    Flash and flex attention are not torch functions that a mode can see, but they are called
    through a table, whose entry is replaced for the time of the probe.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    table: Any = ALL_ATTENTION_FUNCTIONS
    config = model.config.get_text_config(decoder=True)
    implementation = getattr(config, "_attn_implementation", None)
    if implementation in (None, "sdpa", "eager") or implementation not in table:
        with _Watch(events, stack, rows):
            yield
        return
    original = table[implementation]
    replaced = implementation in table._local_mapping
    ours = {id(module) for module in model.modules()}

    def kernel(module: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if id(module) in ours:
            heads, width = int(query.shape[1]), int(value.shape[-1])
            events.append(Event("attention", stack[-1], heads, width))
        return original(module, query, key, value, *args, **kwargs)

    table[implementation] = kernel
    try:
        yield
    finally:
        if replaced:
            table[implementation] = original
        else:
            del table[implementation]


def watch_forward(model: Any, batch: Batch) -> list[Event]:
    """Run the model once and return what happened, in order."""
    events: list[Event] = []
    stack: list[str] = []
    handles = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: stack.append(name)

    def leave(name: str, linear: bool) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            stack.pop()
            if linear and args and isinstance(args[0], torch.Tensor):
                events.append(Event("linear", name, width=int(args[0].shape[-1])))
            events.append(Event("end", name))

        return hook

    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(name)))
            handles.append(module.register_forward_hook(leave(name, is_linear(module))))
        rows = int(batch.input_ids.shape[0])
        with evaluating(model), torch.no_grad(), _watched(model, events, stack, rows):
            model(**forward_inputs(model, batch, logits=False))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"{type(model).__name__} failed on a padded batch of a few tokens ({error}); headscope "
            "needs a decoder language model that reads input_ids and attention_mask."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    return events
