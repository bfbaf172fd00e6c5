"""Putting on a model whatever gates an adaptation holds: of heads, queries, feed-forward parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from headscope.errors import naming
from headscope.heads.adaptation import Adaptation
from headscope.heads.geometry import check_geometry
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.queries import query_gated

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

__all__ = ["adapted"]


@contextlib.contextmanager
def adapted(lm: LanguageModel, adaptation: Adaptation) -> Iterator[None]:
    """Apply an adaptation to a model inside the context; contexts nest, and numbers multiply.

    Raises `InputError` if it is of another geometry, or the model's feed-forward parts or queries
    cannot be gated.
    """
    gate, parts = adaptation.gate, adaptation.feed_forward
    with naming(adaptation.name):
        check_geometry(gate, lm.geometry, "the gate")
    with contextlib.ExitStack() as stack:
        if adaptation.place == "query":
            stack.enter_context(query_gated(lm, torch.from_numpy(gate.values.copy())))
        else:
            stack.enter_context(lm.gated(gate))
        if parts is not None:
            stack.enter_context(feed_forward_gated(lm, torch.from_numpy(parts.copy())))
        yield
