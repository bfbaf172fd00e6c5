"""What the model would say if a layer were its last.

`lens` sends any hidden state (see `headscope.lm.states`) through everything that follows the last
layer: the final norm, the head, its scale and its soft cap. None of these is looked up by name: the
model itself runs, with layers that hand on the given states, and proves at the first use that the
states of its own last layer give its own logits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from headscope.errors import InputError
from headscope.lm.batching import Batch
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import kept_output, once_a_model, replaced_forwards
from headscope.lm.inputs import evaluating, probe_batch, probe_pass
from headscope.lm.model import LanguageModel

#: States that go through the head at once; times the vocabulary, this bounds the memory.
_ROWS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Top:
    """The likeliest tokens of each state.

    Attributes:
        tokens: int64, (…, k), likeliest first; of equal logits the lower id comes first.
        logits: float32, (…, k).
    """

    tokens: torch.Tensor
    logits: torch.Tensor


def lens(lm: LanguageModel, states: torch.Tensor, k: int = 10) -> Top:
    """The k likeliest next tokens if each state (…, D) were what the last layer handed on.

    Raises `InputError` if k is not 1 or more, the states are of another width, or the model does
    not give its own logits for its own last states.
    """
    if k < 1:
        raise InputError(f"k is {k}; the lens shows at least 1 token.")
    tokens, logits = [], []
    for part in _logits(lm, states):
        # Stable, so that of equal logits the lower id comes first.
        best = part.sort(dim=-1, descending=True, stable=True)
        tokens.append(best.indices[:, :k].cpu())
        logits.append(best.values[:, :k].cpu())
    shape = (*states.shape[:-1], -1)
    return Top(torch.cat(tokens).reshape(shape), torch.cat(logits).reshape(shape))


def token_ranks(
    lm: LanguageModel, states: torch.Tensor, token_ids: Sequence[int] | torch.Tensor
) -> torch.Tensor:
    """Ranks of tokens in the lens of states (…, D): 1 + the number of tokens with a larger logit.

    `token_ids` are the m tokens looked for, the same for every state; or int64 (…, m), its own for
    each state. Gives int64 (…, m). Raises `InputError` as `lens`; or if the tokens do not fit the
    states or the vocabulary.
    """
    wanted = torch.as_tensor(token_ids, dtype=torch.long)
    if wanted.dim() == 1:
        wanted = wanted.expand(*states.shape[:-1], len(wanted))
    if wanted.shape[:-1] != states.shape[:-1]:
        raise InputError(
            f"Tokens of shape {tuple(wanted.shape)} do not fit states of shape "
            f"{tuple(states.shape)}; give one list of ids, or one for each state."
        )
    rows = wanted.reshape(-1, wanted.shape[-1])
    ranks, done = [], 0
    for logits in _logits(lm, states):
        own = rows[done : done + len(logits)].to(logits.device)
        if own.numel() and not 0 <= int(own.min()) <= int(own.max()) < logits.shape[1]:
            raise InputError(
                f"Token ids {int(own.min())} to {int(own.max())} were asked for, but this model "
                f"has {logits.shape[1]} tokens."
            )
        done += len(logits)
        mine = logits.gather(1, own)
        columns = [(logits > mine[:, [at]]).sum(dim=1) + 1 for at in range(own.shape[1])]
        ranks.append(torch.stack(columns, dim=1).cpu() if columns else own.cpu())
    return torch.cat(ranks).reshape(wanted.shape)


def _logits(lm: LanguageModel, states: torch.Tensor) -> Iterator[torch.Tensor]:
    like = _proved(lm)
    width = int(hidden_states_of(like).shape[-1])
    if states.dim() < 1 or states.shape[-1] != width or not states.numel():
        raise InputError(
            f"The lens was given states of shape {tuple(states.shape)}; this model's are (…, "
            f"{width}), at least one."
        )
    flat = states.reshape(-1, width)
    for start in range(0, len(flat), _ROWS):
        yield _headed(lm, flat[start : start + _ROWS], like)


def _headed(lm: LanguageModel, states: torch.Tensor, like: Any) -> torch.Tensor:
    """Logits of states (n, D): the model run on n single tokens whose layers hand the states on."""
    rows = len(states)
    own = hidden_states_of(like)
    hidden = states.to(own.device, own.dtype).unsqueeze(1)
    output = hidden if isinstance(like, torch.Tensor) else (hidden, *like[1:])
    token = int(probe_batch(lm.model, lm.tokenizer_or_none, (1,)).input_ids[0, 0])
    ones = torch.ones((rows, 1), dtype=torch.long)
    batch = Batch(ones * token, ones, ones * 0)
    with (
        evaluating(lm.model),
        torch.no_grad(),
        replaced_forwards(lm.model, lm.decoder_layers, lambda _: lambda *args, **kwargs: output),
    ):
        logits: torch.Tensor = lm.forward(batch).logits[:, -1]
    return logits.float()


@once_a_model
def _proved(lm: LanguageModel) -> Any:
    """What the last layer returned, after its own states have given the model's own logits."""
    with kept_output(lm.model, lm.decoder_layers[-1]) as outputs:
        own = probe_pass(lm, (7,)).logits[0].float()
    (like,) = outputs
    try:
        given = _headed(lm, hidden_states_of(like)[0], like)
    except (KeyError, IndexError, AttributeError, TypeError, RuntimeError) as error:
        raise _unproved(lm, f"it stops with {type(error).__name__}: {error}") from error
    # Kernels round differently in batches of other shapes; halves round to 3 digits or fewer.
    off = float((given - own).abs().max() / own.abs().max().clamp_min(1e-30))
    if not off <= (1e-4 if lm.dtype == torch.float32 else 2e-2):  # also not-a-number
        raise _unproved(lm, f"its logits are off by {off:.2g} of the largest")
    return like


def _unproved(lm: LanguageModel, what: str) -> InputError:
    return InputError(
        f"{type(lm.model).__name__}: given its own last hidden states again, {what}, so a lens on "
        "other states would not show what this model would say; use another model."
    )
