"""Continue one prompt greedily under many gates, each row as if it were alone.

All rows begin with the same tokens, so none is padded. Heads removed step after step end in rows of
all kinds, some silent after a word, some babbling up to their limit: rows that have ended leave the
batch, with their part of the cache, as soon as enough of them have.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headscope.errors import InputError
from headscope.lm.generation.greedy import Generation, RowStop
from headscope.lm.inputs import evaluating, leaves_out_logits
from headscope.lm.model import LanguageModel
from headscope.lm.positions import answers_at

#: Rows leave when at least this share of those in the batch has ended.
_LEAVE = 0.15


def continue_rows(
    lm: LanguageModel,
    ids: Sequence[int],
    gates: torch.Tensor,
    limit: int,
    stop_at_newline: bool = True,
    means: npt.NDArray[np.floating[Any]] | None = None,
) -> list[Generation]:
    """Continue one prompt under each gate, in one batch.

    The same as `headscope.lm.generation.greedy.generate` of one copy of the prompt a gate, but for
    rounding.

    Args:
        lm: the model.
        ids: the tokens of the prompt, at least one.
        gates: shape (n, L, W), one gate a row.
        limit: new tokens a row may get; no more than the context has room for are taken.
        stop_at_newline: end a row at the first newline that follows some text.
        means: what takes the place of what gates remove (see `headscope.lm.gates.gated`); None:
            zero.

    Raises:
        InputError: if the prompt is empty or fills the context.
    """
    limit = min(limit, lm.context_length - len(ids))
    if not ids or limit < 1:
        raise InputError(
            f"The prompt has {len(ids)} tokens; it needs at least 1 and fewer than the model's "
            f"context of {lm.context_length}."
        )
    done: dict[int, list[int]] = {}
    rows = torch.arange(len(gates))
    written = torch.zeros((len(gates), 0), dtype=torch.long, device=lm.device)
    tokens = torch.tensor([list(ids)] * len(gates), dtype=torch.long, device=lm.device)
    stop = RowStop(lm.stop_table, stop_at_newline, [limit] * len(gates), 0, lm.device)
    ended = torch.zeros(len(gates), dtype=torch.bool, device=lm.device)
    cache: Any = None
    cached = 0
    with evaluating(lm.model), torch.no_grad():
        while len(rows):
            ablate = "zero" if means is None else "mean"
            with lm.gated(gates[rows], ablate, means), answers_at([len(ids)] * len(rows)):
                while float(ended.float().mean()) < _LEAVE:
                    output = lm.model(**_inputs(lm, tokens, cached, cache))
                    cache = output.past_key_values
                    cached += tokens.shape[1]
                    tokens = output.logits[:, -1].float().argmax(dim=-1, keepdim=True)
                    written = torch.cat([written, tokens], dim=1)
                    ended |= stop(written, None)
            stay = (~ended).nonzero()[:, 0]
            gone = ended.nonzero()[:, 0].tolist()
            done.update({int(rows[at]): written[at].tolist() for at in gone})
            rows, written, tokens, ended = (
                rows[stay.cpu()],
                written[stay],
                tokens[stay],
                ended[stay],
            )
            stop.seen, stop.limits = stop.seen[stay], stop.limits[stay]
            if len(rows):
                cache.reorder_cache(stay)
    return [_generation(lm, ids, done[row][:limit], stop_at_newline) for row in range(len(gates))]


def _inputs(lm: LanguageModel, tokens: torch.Tensor, cached: int, cache: Any) -> dict[str, Any]:
    """Arguments of a pass over ``tokens`` (n, T), which follow ``cached`` tokens."""
    inner = lm.model.get_base_model() if hasattr(lm.model, "get_base_model") else lm.model
    known = inspect.signature(inner.forward).parameters
    rows, width = tokens.shape
    inputs: dict[str, Any] = {
        "input_ids": tokens,
        "attention_mask": torch.ones(
            (rows, cached + width), dtype=torch.long, device=tokens.device
        ),
        "past_key_values": cache,
        "use_cache": True,
    }
    if "position_ids" in known:
        positions = torch.arange(cached, cached + width, device=tokens.device)
        inputs["position_ids"] = positions.expand(rows, width)
    if leaves_out_logits(inner):
        inputs["logits_to_keep"] = 1
    return inputs


def _generation(
    lm: LanguageModel, ids: Sequence[int], new: list[int], stop_at_newline: bool
) -> Generation:
    length, why = lm.stop_table.cut(new, stop_at_newline)
    text = lm.tokenizer.decode(new[:length], skip_special_tokens=True).lstrip()
    if stop_at_newline:
        text = text.split("\n", 1)[0]
    return Generation(tuple(ids), tuple(new[:length]), text, why)
