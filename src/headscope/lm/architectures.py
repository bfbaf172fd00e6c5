"""Tiny models of many architectures, built from configurations alone.

They are randomly initialised, so they need no network and say nothing; but they are *hard*: grouped
keys and values where the family has them, a head dimension that is not ``hidden / heads`` where the
family allows it, sliding windows of six tokens, soft caps that bite, sinks and biases that are not
zero, norms whose weights differ by channel, and attention that is far from uniform.  What holds for
single heads on all of them can be expected to hold on their large relatives.
"""

from __future__ import annotations

import difflib
import functools
import operator
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError

#: Vocabulary of every tiny model; ids 0, 1 and 2 are padding, begin and end of text.
VOCABULARY = 96
#: Length of every sliding window, in tokens.
WINDOW = 6


_TABLES = tomllib.loads((Path(__file__).parent / "architectures.toml").read_text(encoding="utf-8"))
_RECIPES: dict[str, dict[str, Any]] = _TABLES["architectures"]

#: The architectures that headscope is checked against, by the ``model_type`` of their family.
ARCHITECTURES: tuple[str, ...] = tuple(_RECIPES)


def build(
    name: str,
    seed: int = 0,
    attn_implementation: str | None = None,
    layers: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Any:
    """Build one tiny causal language model in evaluation mode, on the CPU and in float32.

    ``name`` is one of :data:`ARCHITECTURES`.  The weights follow from ``seed`` alone: the global
    random state is left as it was, and ``attn_implementation`` does not change them, so two models
    of one name and seed are the same function under two attention kernels.  ``layers`` sets the
    number of decoder layers (two to four by default) and ``overrides`` sets further fields of the
    configuration.  Raises :class:`~headscope.errors.InputError` for an unknown name.
    """
    import transformers

    recipe = _RECIPES.get(name)
    if recipe is None:
        close = difflib.get_close_matches(name, ARCHITECTURES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InputError(
            f"unknown architecture {name!r}: {hint}known are {', '.join(ARCHITECTURES)}"
        )
    count = recipe.get("layers", 2) if layers is None else layers
    groups = [_TABLES["groups"][name] for name in recipe.get("with", ())]
    fields: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "use_cache": True,
        **functools.reduce(operator.or_, groups, {}),
        **recipe.get("set", {}),
        recipe.get("depth", "num_hidden_layers"): count,
    }
    if cycle := recipe.get("cycle"):
        fields["layer_types"] = [cycle[at % len(cycle)] for at in range(count)]
    fields.update(overrides or {})
    stem = recipe["stem"]
    config = getattr(transformers, recipe.get("config", f"{stem}Config"))(**fields)
    model_class = getattr(transformers, recipe.get("model", f"{stem}ForCausalLM"))
    return finished(model_class, config, attn_implementation, seed)


def finished(model_class: Any, config: Any, attn_implementation: str | None, seed: int) -> Any:
    """A model of ``model_class`` in evaluation mode, on the CPU and in float32, with weights that
    follow from ``seed`` alone; see `build`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class._from_config(config, attn_implementation=attn_implementation)
    model = model.to(dtype=torch.float32).eval()
    _spread_weights(model, seed)
    return model


def _spread_weights(model: nn.Module, seed: int) -> None:
    """Draw weights that make a fault visible.

    Matrices get a standard deviation of 1.5 over the root of their input width: query-key products
    then spread by about two, so attention is far from uniform without being a single spike.
    Vectors (norms, biases, sinks, decay rates) keep their initial value and move by 0.3, so that
    norms around 0 (Gemma) and around 1 both stay norms.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            for weight in module.parameters(recurse=False):
                noise = torch.randn(weight.shape, generator=generator)
                if isinstance(module, nn.Embedding):
                    weight.copy_(noise)
                elif weight.dim() < 2:
                    weight.add_(0.3 * noise)
                else:
                    width = weight.shape[-1] if isinstance(module, nn.Linear) else weight.shape[-2]
                    weight.copy_(noise * (1.5 / max(width, 1) ** 0.5))
