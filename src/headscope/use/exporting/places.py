"""Which tensors of a checkpoint become which parameters of a model.

Checkpoints and models name their tensors differently: a base model has no prefix, families have
been renamed, experts that lie apart are loaded as one tensor. The answer here is that of
`transformers`' own loader, key by key, so that what is scaled in the file is what the model reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headscope.errors import InputError
from headscope.use.exporting.tensors import Stored


@dataclass(frozen=True)
class Loaded:
    """From parameters of a model to the tensors of a checkpoint.

    `tensors` holds those that are loaded as they are, `converted` the names of those that the
    loader computes something with; both by the parameter's qualified name.
    """

    tensors: Mapping[str, tuple[Stored, ...]]
    converted: Mapping[str, tuple[str, ...]]

    def one(self, name: str, shape: tuple[int, ...], what: str) -> Stored:
        """The one tensor that becomes the parameter `name`.

        InputError unless there is exactly one, of this shape, loaded as it is; `what` says in the
        message what is sought.
        """
        if name in self.converted:
            raise InputError(
                f"{what}: the checkpoint stores {name} in another form "
                f"({', '.join(self.converted[name][:3])}), so it cannot be folded tensor by tensor;"
                " load the model, save it with save_pretrained(FOLDER, "
                "save_original_format=False) and export that"
            )
        found = self.tensors.get(name, ())
        if len(found) != 1:
            raise InputError(
                f"{what}: {len(found)} tensors of the checkpoint become {name} "
                f"({', '.join(one.name for one in found) or 'none'}) instead of one; save or "
                "download the checkpoint again, as the architecture that config.json names"
            )
        if found[0].shape != shape:
            raise InputError(
                f"{found[0].file}: the tensor {found[0].name} has the shape {found[0].shape}, but "
                f"config.json asks for {shape}; save or download both from one model"
            )
        return found[0]


def loaded_as(model: Any, tensors: Sequence[Stored]) -> Loaded:
    """What `from_pretrained` makes of a checkpoint's tensors for this model.

    Follows `transformers.core_model_loading.convert_and_load_state_dict_in_model`; tensors that
    the model does not read are left out.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    natural: Any = dot_natural_key
    state = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [one for one in mapping if isinstance(one, WeightRenaming)]
    converters = [one for one in mapping if isinstance(one, WeightConverter)]
    prefix = model.base_model_prefix
    plain: dict[str, list[Stored]] = {}
    converted: dict[str, list[str]] = {}
    for tensor in sorted(tensors, key=lambda one: natural(one.name)):
        name, pattern = rename_source_key(tensor.name, renamings, converters, prefix, state)
        if name not in state and tensor.name in state:
            name, pattern = rename_source_key(tensor.name, [], [], prefix, state)
        if name not in state:
            continue
        if pattern is None:
            plain.setdefault(name, []).append(tensor)
        else:
            converted.setdefault(name, []).append(tensor.name)
    return Loaded(
        {name: tuple(found) for name, found in plain.items()},
        {name: tuple(found) for name, found in converted.items()},
    )
