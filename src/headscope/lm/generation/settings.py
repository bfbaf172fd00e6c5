"""The generation settings of a checkpoint, for texts that are to follow them.

Texts are greedy: by default each token is the likeliest one, and of `generation_config.json` only
the ends of a text count. Some of its settings change what is likeliest (a penalty of repetitions,
tokens that are suppressed). A model of `LanguageModel.with_generation_config` follows these: its
texts are those of transformers' `generate(do_sample=False)` for each prompt alone. How a token is
drawn (sampling, beams), lengths and `stop_strings` are never followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from headscope.errors import InputError, telling
from headscope.lm.hooks import text_config
from headscope.lm.inputs import generated

if TYPE_CHECKING:
    from headscope.lm.model import LanguageModel

#: What changes the likeliest token, each with the value by which it changes nothing.
_CHANGING: dict[str, Any] = {
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": [],
    "sequence_bias": [],
    "min_length": 0,
    "min_new_tokens": 0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "remove_invalid_values": False,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
}
#: The same of what needs more than a row's own logits.
_BEYOND: dict[str, Any] = {"guidance_scale": 1, "watermarking_config": None}


def text_settings(lm: LanguageModel) -> dict[str, Any]:
    """The settings of a model's checkpoint that change greedy texts, by name."""
    own = getattr(lm.shell, "generation_config", None)
    named = ((name, getattr(own, name, None), none) for name, none in (_CHANGING | _BEYOND).items())
    return {name: value for name, value, none in named if value is not None and value != none}


def check_followed(lm: LanguageModel) -> None:
    """`InputError` if the settings cannot be followed."""
    settings = text_settings(lm)
    if beyond := [name for name in settings if name in _BEYOND]:
        raise InputError(
            f"the generation settings of {lm.name!r} hold {beyond[0]}, which needs further passes "
            "or sampling and cannot be followed; leave --generation-config out"
        )
    # Told before they index logits, which a GPU does not survive.
    size = int(text_config(lm.model).vocab_size)
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        ids = settings.get(name, [])
        for index in ids if isinstance(ids, list | tuple) else [ids]:
            if type(index) is not int or not 0 <= index < size:
                why = f"{name} has {index!r:.40}, which is no token id from 0 to {size - 1}"
                raise InputError(_cannot_follow(lm, why))


def _cannot_follow(lm: LanguageModel, why: str) -> str:
    return (
        f"the generation settings of {lm.name!r} cannot be followed ({why}); correct "
        "generation_config.json, or leave --generation-config out"
    )


def refuse_followed(lm: LanguageModel, what: str) -> None:
    """`InputError` if a model follows its settings where tokens are chosen without them."""
    if lm.generation_config:
        raise InputError(
            f"{what} chooses tokens one by one and cannot follow generation settings; leave "
            "--generation-config out (with_generation_config(False))"
        )


class Followed:
    """What the settings make of logits, row by row, as if each prompt were alone.

    Args:
        ids: tokens of each prompt.
        limits: new tokens of each.
    """

    def __init__(
        self, lm: LanguageModel, ids: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> None:
        check_followed(lm)
        self._lm, self._ids, self._limits = lm, ids, limits
        self._settings = text_settings(lm)  # while a text is generated the model has none
        self._processors: dict[int, Any] = {}

    def __call__(
        self, rows: Sequence[int], new: Sequence[Sequence[int]], logits: torch.Tensor
    ) -> torch.Tensor:
        """Logits (B, V) of the next token of these prompts, which have got the tokens `new`."""
        changed, device = [], self._lm.device
        for row, tokens, row_logits in zip(rows, new, logits, strict=True):
            ids = torch.tensor([[*self._ids[row], *tokens]], device=device)
            with telling(partial(_cannot_follow, self._lm)):
                changed.append(self._of(row)(ids, row_logits[None].to(device, copy=True)))
        return torch.cat(changed)

    def _of(self, row: int) -> Any:
        """What transformers' `generate` would do to the logits of this prompt."""
        if row not in self._processors:
            lm, found = self._lm, []

            def take(model: Any, input_ids: torch.Tensor, logits_processor: Any, **_: Any) -> Any:
                found.append(logits_processor)
                return input_ids

            generated(
                lm,
                lm.collate([self._ids[row]]),
                more={"custom_generate": take},
                do_sample=False,
                max_new_tokens=self._limits[row],
                eos_token_id=list(lm.eos_token_ids) or None,
                pad_token_id=lm.pad_token_id,
                **self._settings,
            )
            [self._processors[row]] = found
        return self._processors[row]
