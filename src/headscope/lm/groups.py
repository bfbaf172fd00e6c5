"""How many query heads share keys and values: the groups of grouped-query attention."""

from __future__ import annotations

import torch

from headscope.errors import InputError
from headscope.lm.attention.interpose import observing
from headscope.lm.inputs import evaluating, forward_inputs, probe_batch
from headscope.lm.model import LanguageModel

#: Where configurations of models that hide their attention say how many key heads they have.
_NAMES = ("num_kv_heads", "num_key_value_heads")


def key_value_heads(lm: LanguageModel) -> tuple[int, ...]:
    """The number of heads of keys and values of each decoder layer; 0 where there is no attention.

    Query head h of a layer with H query heads and G key heads reads key head h // (H / G). Counted
    in the keys that the attention kernel is given in a pass over a few tokens; for architectures
    whose attention cannot be watched (Bloom, Falcon, MPT, XGLM) read from the configuration.

    Raises:
        InputError: if a layer's query heads do not divide evenly over its key heads.
    """
    sites = {site.attention: site for site in lm.sites}
    found: dict[int, int] = {}

    def look(module: torch.nn.Module, call: object) -> None:
        key = getattr(call, "key", None)
        if isinstance(key, torch.Tensor) and key.dim() == 4:
            found[sites[module].layer] = int(key.shape[1])

    with evaluating(lm.model), torch.no_grad(), observing(list(sites), look):
        batch = probe_batch(lm.model, lm.tokenizer_or_none)
        lm.model(**forward_inputs(lm.model, batch, logits=False))
    for site in lm.sites:
        if site.layer not in found:
            found[site.layer] = _configured(lm, site.heads)
        if not found[site.layer] or site.heads % found[site.layer]:
            raise InputError(
                f"{type(lm.model).__name__}: layer {site.layer} has {site.heads} query heads and "
                f"{found[site.layer]} key heads, which is no even grouping; groups of heads are "
                "not known for this model"
            )
    return tuple(found.get(layer, 0) for layer in range(lm.geometry.layers))


def _configured(lm: LanguageModel, heads: int) -> int:
    config = lm.model.config.get_text_config(decoder=True)
    if getattr(config, "multi_query", False) and not getattr(
        config, "new_decoder_architecture", False
    ):
        return 1
    numbers = (getattr(config, name, None) for name in _NAMES)
    return next((number for number in numbers if isinstance(number, int)), heads)
