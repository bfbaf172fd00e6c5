"""That gates are exact in this engine: before it serves, beside the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil
from typing import Any

import torch

from headscope_vllm.gates import Factors

#: Tokens of the prompts of the proof.
LENGTHS = (6, 4, 7)
#: A difference of logits that is rounding: so many times that of two ways of computing the model as
#: it is; and as a share of the largest logit, in 32 bits, and in spacings of numbers of 16 bits.
TIMES, SUMS, SPACINGS = 8.0, 1e-5, 2.0


def prove(runner: Any, attention: Mapping[int, Any], told: str) -> None:
    """Compare requests of one batch, all but one gated in all layers, with the definition.

    The definition: the channels of each head in the input of its layer's output projection times
    its factor, which is the projection with the head's columns times the factor. The model computes
    it layer by layer, not compiled, and without this package's rows. Logits are compared after a
    prompt is read in part, and after one token more.

    Raises `RuntimeError` if logits differ by more than rounding, or the gates have no effect.
    """
    from vllm.logger import init_logger

    model, start = runner.get_model(), runner.headscope_rows.heads.start
    heads = next(iter(attention.values())).num_heads
    every = heads * runner.vllm_config.parallel_config.tensor_parallel_size
    gates: list[Factors] = [
        (),
        tuple(
            (layer, head, factor_of(layer, head)) for layer in attention for head in range(every)
        ),
        tuple((layer, head, 0.0) for layer in attention for head in range(layer % 3, every, 3)),
    ]
    projections = {layer: output_projection(model, own, layer) for layer, own in attention.items()}
    none: list[Factors] = [()] * len(gates)
    plain, gated = (logits_of(runner, batch, told) for batch in (none, gates))
    expected = list[torch.Tensor]()
    for gate in gates:
        factors = torch.ones(max(attention) + 1, every)
        for layer, head, factor in gate:
            factors[layer, head] = factor
        with _layer_by_layer(runner), ExitStack() as hooks:
            for layer, projection in projections.items():
                own = factors[layer, start : start + heads]
                width = attention[layer].head_size_v
                hooks.enter_context(_times(projection, own.repeat_interleave(width)))
            expected.append(logits_of(runner, none, told))
    if gated.numel() == 0:
        return  # another process has the logits
    right = torch.stack([logits[:, at] for at, logits in enumerate(expected)], dim=1)
    largest, eps = float(right.abs().max()), torch.finfo(runner.model_config.dtype).eps
    measured = float((plain - expected[0]).abs().max())
    rounding = max(TIMES * measured, largest * max(SUMS, SPACINGS * eps if eps > SUMS else 0.0))
    difference = float((gated - right).abs().max())
    effect = float((right - expected[0])[:, 1:].abs().amax(dim=2).min())
    if not difference <= rounding:
        raise RuntimeError(
            f"headscope-vllm: gates are not exact in this engine (logits differ by "
            f'{difference:.3g} of {largest:.3g}); VLLM_PLUGINS="" serves without gates'
        )
    if not effect > 2 * rounding:
        raise RuntimeError(
            f"headscope-vllm: gates of all heads change logits by {effect:.3g}, where rounding "
            f"does by {rounding:.3g}, so that they cannot be proved; a dtype of more bits may help"
        )
    init_logger("vllm.headscope").info(
        "headscope: gates are exact here: logits of gated requests differ from the definition by "
        "at most %.2g, gates change them by %.2g.", difference, effect,
    )  # fmt: skip


def factor_of(layer: int, head: int) -> float:
    """Another factor for each head, from 0.25 to 1.75."""
    return 0.25 + 1.5 * ((0.618034 * (head + 1) + 0.414214 * layer) % 1)


def output_projection(model: Any, attention: Any, layer: int) -> Any:
    """What takes what the heads of a layer wrote.

    Raises `RuntimeError` unless there is one that fits.
    """
    from vllm.model_executor.layers.linear import RowParallelLinear

    channels, modules = attention.num_heads * attention.head_size_v, dict(model.named_modules())
    parent = attention.layer_name.rpartition(".")[0]

    def beside(name: str) -> bool:
        if parent in modules:
            return name.startswith(f"{parent}.")
        # Attention that is no part of the model's own modules has a layer's number alone.
        return str(layer) in name.split(".") and "att" in name.rpartition(".")[0].split(".")[-1]

    found = [
        module
        for name, module in modules.items()
        if isinstance(module, RowParallelLinear)
        and module.input_size_per_partition == channels
        and beside(name)
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
    """The logits behind all tokens but the last of prompts with these gates, and behind all:
    (2, requests, tokens), float32; of a process that has none, empty.

    All are in one batch, where the engine takes as many.
    """
    together = len(gates)
    if runner.max_num_reqs < together or runner.max_num_tokens < sum(LENGTHS):
        together = 1
    parts = [
        _logits(runner, range(at, at + together), gates[at : at + together], told)
        for at in range(0, len(gates), together)
    ]
    return torch.cat(parts, dim=1) if parts[0].numel() else parts[0]


def _logits(runner: Any, numbers: range, gates: Sequence[Factors], told: str) -> torch.Tensor:
    from vllm import SamplingParams
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

    words = min(1000, runner.model_config.get_vocab_size() - 1)
    blocks, new = 1, list[Any]()  # blocks that no request has yet; the first is the engine's own
    for at, gate in zip(numbers, gates, strict=True):
        own = list[list[int]]()
        for group in runner.kv_cache_config.kv_cache_groups:
            number = ceil(LENGTHS[at] / group.kv_cache_spec.block_size)
            own.append([*range(blocks, blocks + number)])
            blocks += number
        params = SamplingParams(temperature=0.0, max_tokens=1)
        params.extra_args = {told: [f"proof {at}", gate]} if gate else None
        tokens = [1 + (97 * at + 31 * place) % words for place in range(LENGTHS[at])]
        new.append(
            NewRequestData(
                req_id=f"headscope-{at}", prompt_token_ids=tokens, mm_features=[],
                sampling_params=params, pooling_params=None, block_ids=tuple(own),
                num_computed_tokens=0, lora_request=None,
            )
        )  # fmt: skip
    names, before = [each.req_id for each in new], [LENGTHS[at] - 1 for at in numbers]
    read = CachedRequestData.make_empty()
    read.req_ids, read.num_computed_tokens = names, before
    read.new_block_ids, read.num_output_tokens = [None] * len(names), [0] * len(names)
    logits = list[torch.Tensor]()
    for arrived, known, counts in (
        (new, CachedRequestData.make_empty(), before), ([], read, [1] * len(names)),
    ):  # fmt: skip
        step = SchedulerOutput.make_empty()
        step.scheduled_new_reqs, step.scheduled_cached_reqs = arrived, known
        step.num_scheduled_tokens = dict(zip(names, counts, strict=True))
        step.total_num_scheduled_tokens = sum(counts)
        step.num_common_prefix_blocks = [0] * len(runner.kv_cache_config.kv_cache_groups)
        runner.execute_model(step)
        found = runner.execute_model_state.logits
        if found is not None:
            order = [runner.input_batch.req_ids.index(name) for name in names]
            logits.append(found[order].float().cpu())
        runner.sample_tokens(None)
    over = SchedulerOutput.make_empty()
    over.finished_req_ids = set(names)
    runner.execute_model(over)
    return torch.stack(logits) if logits else torch.empty(0)
