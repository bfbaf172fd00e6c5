"""A model whose weights are read when they are first needed.

Which heads it has, what its configuration and its tokenizer are, and the digest of its weights
are known from its files. That is all it takes to see that a run is finished already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from headscope.errors import InputError
from headscope.lm.checkpoints import check_weights, read_config, resolve, tokenizer_of
from headscope.lm.gguf import is_gguf, open_gguf
from headscope.lm.hollow import hollow_model
from headscope.lm.loading import complete_from_gguf, dtype_of, place_of
from headscope.lm.model import LanguageModel


class WaitingModel(LanguageModel):
    """A `LanguageModel` that calls `load` when its model or its modules are first asked for."""

    def __init__(
        self,
        hollow: LanguageModel,
        dtype: torch.dtype,
        device: torch.device,
        load: Callable[[], LanguageModel],
    ) -> None:
        # As a frozen dataclass sets its fields, but for `model` and `sites`: see `__getattr__`.
        for name in ("tokenizer_or_none", "geometry", "name", "revision", "folder"):
            vars(self)[name] = getattr(hollow, name)
        vars(self).update(_hollow=hollow, _dtype=dtype, _device=device, _load=load)

    def __getattr__(self, name: str) -> Any:
        """`model` and `sites`, which are not there before the weights are."""
        if name not in ("model", "sites"):
            raise AttributeError(name)
        loaded = self._load()
        if loaded.geometry != self.geometry:
            raise InputError(
                f"{self.name} shows {loaded.geometry} with its weights and {self.geometry} without "
                "them; name another --out, so that it is loaded at once"
            )
        vars(self).update(model=loaded.model, sites=loaded.sites)
        return vars(self)[name]

    @property
    def loaded(self) -> bool:
        """Whether the weights have been read."""
        return "model" in vars(self)

    @property
    def shell(self) -> Any:
        return self.model if self.loaded else self._hollow.model

    @property
    def dtype(self) -> torch.dtype:
        return super().dtype if self.loaded else self._dtype

    @property
    def device(self) -> torch.device:
        return super().device if self.loaded else self._device

    @property
    def quantised(self) -> str | None:
        return super().quantised if self.loaded else None


def waiting_model(
    name: str,
    revision: str | None,
    device: str | None,
    dtype: str,
    load: Callable[[], LanguageModel],
    tokenizer: str | None = None,
) -> LanguageModel | None:
    """The model of these settings (see `headscope.load`) without its weights, until `load` is due.

    None where the files alone do not say how it will be loaded: a quantised checkpoint, one whose
    dtype nothing names, or a model that cannot be built without weights.
    """
    folder, commit = resolve(name, revision)
    config = read_config(folder, name)
    check_weights(folder, name)
    target = place_of(device)
    wanted: Any = dtype_of(dtype, target.type == "cpu")
    if wanted == "auto":
        wanted = getattr(config.get_text_config(decoder=True), "dtype", None)
    if not isinstance(wanted, torch.dtype) or getattr(config, "quantization_config", None):
        return None
    try:
        reading = tokenizer_of(folder, name, tokenizer)
        hollow = hollow_model(name, folder, config, reading, commit)
    except InputError:
        return None
    if is_gguf(folder):
        complete_from_gguf(hollow.model, open_gguf(folder, name))
    elif (folder / "generation_config.json").is_file():
        from transformers import GenerationConfig

        hollow.model.generation_config = GenerationConfig.from_pretrained(folder)
    return WaitingModel(hollow, wanted, target, load)
