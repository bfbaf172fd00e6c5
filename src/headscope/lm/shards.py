"""A model whose heads are divided among processes, by the tensor parallelism of transformers.

Each process (`torchrun` starts them) runs the same command and holds as many heads of every layer
as the others. The attention sees those alone; whatever stands before W_O sees all heads, which are
gathered for it, so that gates, replacements and outputs are those of one process, gradients too.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib.util
import os
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from headscope.errors import InputError
from headscope.lm.interpose import Call
from headscope.lm.owners import leaves_numbers

#: The numbers of the processes that this one joined by `begin`.
_JOINED: list[int] = []


def shared() -> bool:
    """Whether several processes share this one's model, and have to call it in the same order."""
    return len(_JOINED) > 1


def begin(config: Any, name: str) -> torch.device:
    """Join the processes that `torchrun` started; the device of this one.

    Raises `InputError` if there are none, or the model's heads cannot be divided among them.
    """
    distributed: Any = torch.distributed
    size, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    if "RANK" not in os.environ or size < 2:
        raise InputError(
            "A tp_plan divides a model among processes; start them: torchrun --nproc-per-node 2 "
            "-m headscope and the command."
        )
    if importlib.util.find_spec("transformers.distributed.tensor_parallel") is None:
        raise InputError("A tp_plan needs a newer transformers; pip install -U transformers.")
    text = config.get_text_config(decoder=True)
    if not text.base_model_tp_plan:
        raise InputError(
            f"{name}: transformers has no tp_plan for {text.model_type}; use device_map instead."
        )
    known = text.to_dict()
    for count in filter(None, map(known.get, ("num_attention_heads", "num_key_value_heads"))):
        if count % size:
            raise InputError(
                f"{name} has layers of {count} heads, which {size} processes cannot share evenly; "
                f"start a number of processes that divides {count}."
            )
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(local)
    if not distributed.is_initialized():
        # Processes may wait for each other as long as weights are read.
        kind, patience = "cpu:gloo,cuda:nccl" if gpu else "gloo", timedelta(hours=2)
        distributed.init_process_group(kind, timeout=patience)
        atexit.register(distributed.destroy_process_group)
    _JOINED[:] = range(size)
    return torch.device("cuda", local) if gpu else torch.device("cpu")


def first() -> bool:
    """Whether this is the first of the processes that share a model, which alone writes."""
    return not shared() or torch.distributed.get_rank() == 0


def all_true(here: bool) -> bool:
    """Whether something holds in all processes that share a model."""
    distributed: Any = torch.distributed
    answers = [here for _ in _JOINED]
    if shared():
        distributed.all_gather_object(answers, here)
    return all(answers or [here])


def mesh_of(projection: nn.Module, width: int) -> Any:
    """The processes that share the heads before this W_O, whose input here has so many channels;
    None where it has all of them."""
    mesh = getattr(getattr(projection, "weight", None), "device_mesh", None)
    whole = getattr(projection, "in_features", width)
    return None if mesh is None or whole != width * mesh.size() else mesh


def whole(part: torch.Tensor, mesh: Any, dim: int) -> torch.Tensor:
    """The tensor whose parts along a dimension the processes hold, in each of them."""
    from torch.distributed.tensor import DTensor, Shard

    there: Any = DTensor.from_local(part, mesh, [Shard(dim)], run_check=False)
    gathered: torch.Tensor = there.full_tensor()
    return gathered


def own(tensor: torch.Tensor, mesh: Any, dim: int) -> torch.Tensor:
    """This process' part of a tensor that all hold; gradients are of the whole."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    there: Any = DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)
    part: torch.Tensor = there.redistribute(placements=[Shard(dim)]).to_local()
    return part


def whole_call(call: Call, mesh: Any) -> Call:
    """A call of an attention kernel with the heads of all processes."""
    sink = call.options.get("s_aux")
    options = call.options if sink is None else {**call.options, "s_aux": whole(sink, mesh, 0)}
    query, key, value = (whole(part, mesh, 1) for part in (call.query, call.key, call.value))
    output = whole(call.output, mesh, 2)
    return dataclasses.replace(
        call, query=query, key=key, value=value, output=output, options=options
    )


def show_all_heads(projection: Any, mesh: Any) -> None:
    """Let the hooks of a W_O see the channels of all heads, where it has any but this one.

    The module then takes its own part of what they give; called with all channels, likewise.
    """
    multiply, channels = projection.forward, projection.in_features
    if hasattr(multiply, "all_heads"):
        return

    @leaves_numbers
    def gather(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        looked_at = len(module._forward_pre_hooks) > 1 or module._forward_hooks
        if not looked_at or args[0].shape[-1] == channels:
            return None
        return (whole(args[0], mesh, -1), *args[1:])

    @leaves_numbers
    def divided(x: torch.Tensor) -> Any:
        return multiply(own(x, mesh, -1) if x.shape[-1] == channels else x)

    forward: Any = divided
    forward.all_heads = True
    projection.forward = forward
    projection.register_forward_pre_hook(gather)
