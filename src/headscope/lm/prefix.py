"""Share the layers below the first difference between passes over the same tokens.

Two passes that differ from layer l on, by a gate for example, have the same hidden states below it.
So the first one keeps whatever layer l - 1 returned, and in the second the layers below l return
that instead of computing anything::

    with record_prefix(lm, 5) as recording:
        full = lm.model(**inputs).logits
    with replay_prefix(lm, recording.prefix()), lm.gated(gate):  # the gate is 1 below layer 5
        removed = lm.model(**inputs).logits

The object itself is kept, a tensor or a tuple, whatever the architecture hands from layer to layer,
and everything outside the layers (embeddings, masks, positions) runs as always, so the logits are
bit for bit those of the whole pass. Copies of a row can stand for a batch of several gates:
`Prefix.select`. Passes have to run with ``use_cache=False``; hidden states of the layers below l
are the replayed ones, and no gradient reaches gates below l.

One prompt under many gates (`last_token`) runs its lower layers on distinct rows
alone. With heads removed one after another in any order that spares about half of the work: of n
rows at most 1 + (heads of the first l layers) are distinct below layer l.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.lm.geometry import hidden_states_of
from headscope.lm.hooks import hooked, kept_output, replaced_forwards
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch
from headscope.lm.positions import answers_at
from headscope.lm.selfcheck import Noise

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel
    from headscope.lm.replacement import Replacement


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix:
    """What the layers below `layer` made of a batch.

    Attributes:
        layer: the first layer that still computes, 1 to L - 1.
        output: what layer `layer` - 1 returned: a tensor (B, T, D), or a tuple that begins with it.
        rows: B, the rows of the batch.
    """

    layer: int
    output: Any
    rows: int

    def select(self, rows: Sequence[int] | torch.Tensor) -> Prefix:
        """The prefix of a batch made of the rows ``rows`` of this one, repeated as they are named.

        Tensors whose first dimension is B are indexed, everything else is kept as it is. Raises
        `InputError` if there is no such row, or none is named.
        """
        index = torch.as_tensor(rows, dtype=torch.long)
        if not len(index) or int(index.min()) < 0 or int(index.max()) >= self.rows:
            raise InputError(
                f"A prefix of {self.rows} rows has no rows {index.tolist()}; name rows from 0 to "
                f"{self.rows - 1}, at least one."
            )
        return Prefix(self.layer, _select(self.output, index, self.rows), len(index))


@dataclasses.dataclass(eq=False)
class Recording:
    """What a pass inside `record_prefix` leaves behind."""

    layer: int
    outputs: list[Any]

    def prefix(self) -> Prefix:
        """The prefix of the last pass; raises `InputError` if none ran."""
        if not self.outputs:
            raise InputError(
                "No pass ran inside record_prefix, so there is no prefix; call the model in it."
            )
        rows = int(hidden_states_of(self.outputs[0]).shape[0])
        return Prefix(self.layer, self.outputs[0], rows)


@contextlib.contextmanager
def record_prefix(lm: LanguageModel, layer: int, stop: bool = False) -> Iterator[Recording]:
    """Keep what layer ``layer`` - 1 returns in the passes inside the context; the last one counts.

    `layer`, 1 to L - 1, is the first in which later passes may differ. `stop` ends the pass right
    before it, and with it the block; for passes whose logits nobody needs. Raises `InputError` if
    there is no such layer.
    """
    layers = lm.decoder_layers
    _check_layer(layer, len(layers))
    with kept_output(lm.model, layers[layer - 1], stop) as outputs:
        yield Recording(layer, outputs)


@contextlib.contextmanager
def replay_prefix(lm: LanguageModel, prefix: Prefix, last: bool = False) -> Iterator[None]:
    """Let the layers below ``prefix.layer`` return what was recorded, inside the context.

    Token ids, masks and positions of the passes inside have to be those of the recorded pass (of
    the selected rows). Every layer gets its own ``forward`` back at the end. With `last` a cache of
    the passes is not used again, so that it may lack their tokens. Raises `InputError` if there is
    no such layer, or, in the forward pass, if the batch has another shape than the recorded one, or
    a cache is in use without `last`.
    """
    layers = lm.decoder_layers
    _check_layer(prefix.layer, len(layers))
    shape = tuple(hidden_states_of(prefix.output).shape[:2])

    def replay(*args: Any, **kwargs: Any) -> Any:
        hidden = args[0] if args else kwargs.get("hidden_states")
        if isinstance(hidden, torch.Tensor) and tuple(hidden.shape[:2]) != shape:
            raise InputError(
                f"A prefix of (rows, tokens) {shape} was replayed in a pass over "
                f"{tuple(hidden.shape[:2])}; select its rows to fit the batch."
            )
        cached = kwargs.get("past_key_values") is not None or kwargs.get("layer_past") is not None
        if cached and not last:
            raise InputError(
                "A prefix was replayed in a pass with a cache, which would lack the keys of the "
                "replayed layers; pass use_cache=False."
            )
        return prefix.output

    with replaced_forwards(lm.model, layers[: prefix.layer], lambda _: replay):
        yield


def can_share(lm: LanguageModel, layer: int | None = None) -> bool:
    """Whether replayed layers change nothing in this model, tried on a few tokens.

    True for a model whose logits are bit for bit the same with its lower layers replayed: those
    below ``layer``, by default the lower half, and then all but the last (within the noise of plain
    passes, where they do not repeat their bits). A model whose upper layers read more of the lower
    ones than the hidden states (keys that layers share, for example) gives False, and so does one
    whose layers hand on several states a token (Gemma 3n), or that has a single layer. Raises
    `InputError` if ``layer`` is given and there is none such that one is shared and one computes.
    """
    last = lm.geometry.layers - 1
    if layer is None:
        return last > 0 and can_share(lm, (last + 1) // 2) and can_share(lm, last)
    if layer < 1 and last == 0:
        return False
    first = probe_batch(lm.model, lm.tokenizer_or_none, (7,))
    ids = first.input_ids[0].tolist()
    inputs = forward_inputs(lm.model, lm.collate([ids, ids]))
    with evaluating(lm.model), torch.no_grad():
        with record_prefix(lm, layer) as recording:
            whole = lm.model(**inputs).logits
        hidden = hidden_states_of(recording.outputs[0])
        if hidden.dim() != 3 or hidden.shape[:2] != inputs["input_ids"].shape:
            return False
        try:
            with replay_prefix(lm, recording.prefix()):
                replayed = lm.model(**inputs).logits
        except (KeyError, IndexError, AttributeError, TypeError):
            # Upper layers looked for something that lower ones would have left behind.
            return False
        if torch.equal(whole, replayed):
            return True
        passes = [whole, *(lm.model(**inputs).logits for _ in range(2))]
    noise = Noise.of([logits.flatten(0, 1) for logits in passes])
    return noise.explains(whole.flatten(0, 1), replayed.flatten(0, 1))


def _check_layer(layer: int, layers: int) -> None:
    if not 1 <= layer < layers:
        raise InputError(
            f"A prefix ends below layer {layer}, but this model has layers 0 to {layers - 1}; "
            f"choose a layer from 1 to {layers - 1}, so that one is shared and one computes."
        )


def _select(value: Any, index: torch.Tensor, rows: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != rows:
            return value
        return value.index_select(0, index.to(value.device))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_select(part, index, rows) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(_select(part, index, rows) for part in value)
    if isinstance(value, dict):
        return type(value)((name, _select(part, index, rows)) for name, part in value.items())
    return value


#: A pass is cut below a layer if that spares at least this share of the rows below it.
_WORTH = 0.25


@dataclasses.dataclass(frozen=True, eq=False)
class LastToken:
    """What a model makes of the last token of a prompt, under each of n gates.

    Attributes:
        logits: float32, shape (n, V).
        states: float32, shape (n, L, D): what each decoder layer hands on, before any final norm.
    """

    logits: torch.Tensor
    states: torch.Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class _Kinds:
    """Rows that are the same below a layer: the first row of each kind, and each row's kind."""

    first: NDArray[np.intp]
    of_row: NDArray[np.intp]


def last_token(
    lm: LanguageModel,
    ids: Sequence[int],
    gates: torch.Tensor,
    share: bool = True,
    replacement: Replacement | None = None,
) -> LastToken:
    """Logits and hidden states at the last token of one prompt, under each gate (n, L, W).

    With `share` lower layers are computed only for gates that differ there, which needs a model for
    which `can_share` is true; logits then differ by rounding, as they do between batches of
    different sizes. `replacement` stands in the place of what gates remove; all tokens are those of
    a prompt.
    """
    layers = lm.decoder_layers
    numbers = np.arange(len(gates))
    kinds = _kinds(gates) if share else [_Kinds(numbers, numbers)] * len(layers)
    ends = [*_cuts(kinds), len(layers)]
    states: list[torch.Tensor] = []
    below: tuple[Prefix, _Kinds] | None = None
    began = 0
    seen: dict[int, torch.Tensor] = {}
    keepers = (layer.register_forward_hook(_keeper(seen, at)) for at, layer in enumerate(layers))
    with evaluating(lm.model), torch.no_grad(), hooked(lm.model, keepers):
        for end in ends:
            now = kinds[end - 1]
            batch = lm.collate([ids] * len(now.first))
            with contextlib.ExitStack() as stack:
                mine = gates[torch.from_numpy(now.first)]
                stack.enter_context(lm.gated(mine, replacement))
                stack.enter_context(answers_at([len(ids)] * len(now.first)))
                if below is not None:
                    prefix, before = below
                    rows = torch.from_numpy(before.of_row[now.first])
                    stack.enter_context(replay_prefix(lm, prefix.select(rows)))
                if end < len(layers):
                    recording = stack.enter_context(record_prefix(lm, end, stop=True))
                logits = lm.forward(batch, logits=False).logits[:, -1]
            if end < len(layers):
                below = recording.prefix(), now
            states += [_spread(seen[layer], now) for layer in range(began, end)]
            began = end
    first = states[0].device
    stacked = torch.stack([state.to(first) for state in states], dim=1)
    return LastToken(_spread(logits, kinds[-1]), stacked)


def _keeper(seen: dict[int, torch.Tensor], layer: int) -> Callable[..., None]:
    def keep(_: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        seen[layer] = hidden_states_of(output)[:, -1]

    return keep


def _spread(values: torch.Tensor, kinds: _Kinds) -> torch.Tensor:
    """A row for each row of the whole batch, from one for each kind."""
    return values.float().index_select(0, torch.from_numpy(kinds.of_row).to(values.device))


def _kinds(gates: torch.Tensor) -> list[_Kinds]:
    """For each layer l, which rows have the same gates in the layers 0 to l."""
    values = gates.detach().cpu().numpy()
    of_row: NDArray[np.intp] = np.zeros(len(values), dtype=np.intp)
    kinds = []
    for layer in range(values.shape[1]):
        keys = np.concatenate([of_row[:, None].astype(np.float64), values[:, layer]], axis=1)
        _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        of_row = inverse.reshape(-1)
        kinds.append(_Kinds(first, of_row))
    return kinds


def _cuts(kinds: Sequence[_Kinds]) -> list[int]:
    """Below which layers to cut the pass, ascending; each part runs on its own distinct rows."""
    cuts: list[int] = []
    rows = len(kinds[-1].first)
    for layer in range(len(kinds) - 1, 0, -1):
        fewer = len(kinds[layer - 1].first)
        if fewer <= (1 - _WORTH) * rows:
            cuts.append(layer)
            rows = fewer
    return cuts[::-1]
