"""That gates are exact in this engine: before it serves, beside the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

import torch

from headscope_vllm.gates import Factors

#: Prompts of the proof, in tokens, of which one has no gate in the same batch.
LENGTHS = (7, 5, 9)
#: The largest difference of logits that is rounding, as a share of the largest logit: of sums in 32
#: bits, and in 16 bits (eight roundings of bfloat16).
ROUNDING = {torch.float32: 1e-4}
ROUNDING_16 = 8 * 2.0**-8


def prove(runner: Any, attention: Mapping[int, Any], told: str) -> None:
    """Compare three requests of one batch, two of them gated, with the definition.

    The definition: the channels of a head in the input of its layer's output projection times its
    factor, which is the projection with the head's columns times the factor. The model computes it
    layer by layer, not compiled, and without this package's rows.

    Raises `RuntimeError` if logits differ by more than rounding, or the gates have no effect.
    """
    from vllm.logger import init_logger

    layer = [*attention][len(attention) // 2]
    heads, width = attention[layer].num_heads, attention[layer].head_size_v
    start = runner.headscope_rows.heads.start
    # Of all processes each removes its own: the definition does the same.
    every = range(heads * runner.vllm_config.parallel_config.tensor_parallel_size)
    gates: list[Factors] = [
        (),
        tuple((layer, head, 0.0) for head in every if head % heads),
        tuple((layer, head, 0.5 if head % 2 else -1.0) for head in every),
    ]
    projection = output_projection(runner.get_model(), attention[layer], layer)
    without, with_rows = (logits_of(runner, batch, told) for batch in ([()] * len(gates), gates))
    rows = list[torch.Tensor]()
    for at, gate in enumerate(gates):
        factors = torch.ones(heads)
        for _, head, factor in gate:
            if start <= head < start + heads:
                factors[head - start] = factor
        with _layer_by_layer(runner), _times(projection, factors.repeat_interleave(width)):
            rows.append(logits_of(runner, [()] * len(gates), told)[at])
    if with_rows.numel() == 0:
        return  # another process has the logits
    expected = torch.stack(rows)
    largest = float(expected.abs().max())
    rounding = largest * ROUNDING.get(runner.model_config.dtype, ROUNDING_16)
    difference = float((with_rows - expected).abs().max())
    effect = float((expected - without)[1:].abs().amax(dim=1).min())
    if not difference <= rounding:
        raise RuntimeError(
            f"headscope-vllm: gates are not exact in this engine (logits differ by "
            f'{difference:.3g} of {largest:.3g}); VLLM_PLUGINS="" serves without gates'
        )
    if not effect > 2 * rounding:
        raise RuntimeError(
            f"headscope-vllm: the heads of layer {layer} change no logit by more than rounding "
            f"({effect:.3g}), so that gates cannot be proved here; use --dtype float32 or bfloat16"
        )
    init_logger("vllm.headscope").info(
        "headscope: gates are exact here: logits of gated requests differ from the definition by "
        "at most %.2g, gates change them by %.2g.", difference, effect,
    )  # fmt: skip


def output_projection(model: Any, attention: Any, layer: int) -> Any:
    """What takes what the heads of a layer wrote.

    Raises `RuntimeError` unless there is one that fits.
    """
    from vllm.model_executor.layers.linear import RowParallelLinear

    channels = attention.num_heads * attention.head_size_v
    found = [
        module
        for name, module in model.named_modules()
        if isinstance(module, RowParallelLinear)
        and str(layer) in name.split(".")
        and "att" in name.rpartition(".")[0].rpartition(".")[2]
        and module.input_size_per_partition == channels
    ]
    if len(found) != 1:
        raise RuntimeError(
            f"headscope-vllm: layer {layer} has {len(found)} projections of {channels} channels of "
            'heads, so that gates cannot be proved; VLLM_PLUGINS="" serves without gates'
        )
    return found[0]


@contextmanager
def _times(projection: Any, factors: torch.Tensor) -> Iterator[None]:
    """The input of a projection times factors of its channels."""

    def multiplied(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
        return (args[0] * factors.to(args[0]), *args[1:])

    handle = projection.register_forward_pre_hook(multiplied)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _layer_by_layer(runner: Any) -> Iterator[None]:
    """The model as it was written: not compiled, and without recorded graphs."""
    wrapped, model = runner.model, runner.get_model()
    compiled = [part for part in model.modules() if getattr(part, "do_not_compile", None) is False]
    runner.model = model
    for part in compiled:
        part.do_not_compile = True
    try:
        yield
    finally:
        runner.model = wrapped
        for part in compiled:
            part.do_not_compile = False


def logits_of(runner: Any, gates: Sequence[Factors], told: str) -> torch.Tensor:
    """The logits of the next token of a batch of prompts with these gates, (requests, tokens),
    float32; of a process that has none, empty."""
    from vllm import SamplingParams
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

    words = min(1000, runner.model_config.get_vocab_size() - 1)
    groups, blocks, new = runner.kv_cache_config.kv_cache_groups, 1, list[Any]()
    for at, (gate, length) in enumerate(zip(gates, LENGTHS, strict=True)):
        own = list[list[int]]()
        for group in groups:
            # Blocks that no request has yet; the first is the engine's own.
            number = ceil(length / group.kv_cache_spec.block_size)
            own.append([*range(blocks, blocks + number)])
            blocks += number
        params = SamplingParams(temperature=0.0, max_tokens=1)
        params.extra_args = {told: gate} if gate else None
        new.append(
            NewRequestData(
                req_id=f"headscope-{at}",
                prompt_token_ids=[1 + (97 * at + 31 * place) % words for place in range(length)],
                mm_features=[], sampling_params=params, pooling_params=None,
                block_ids=tuple(own), num_computed_tokens=0, lora_request=None,
            )
        )  # fmt: skip
    names = [each.req_id for each in new]
    step = SchedulerOutput.make_empty()
    step.scheduled_new_reqs = new
    step.scheduled_cached_reqs = CachedRequestData.make_empty()
    step.num_scheduled_tokens = dict(zip(names, LENGTHS, strict=True))
    step.total_num_scheduled_tokens = sum(LENGTHS)
    step.num_common_prefix_blocks = [0] * len(groups)
    runner.execute_model(step)
    state = runner.execute_model_state
    order = [runner.input_batch.req_ids.index(name) for name in names]
    logits = torch.empty(0) if state.logits is None else state.logits[order].float().cpu()
    runner.sample_tokens(None)
    over = SchedulerOutput.make_empty()
    over.finished_req_ids = set(names)
    runner.execute_model(over)
    return logits
