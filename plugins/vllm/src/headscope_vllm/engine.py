"""What is changed in vLLM: where requests come in, where a batch is made, and what heads write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import torch

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope_vllm.gates import Catalogue, Factors, catalogue, geometry_of, salted
from headscope_vllm.proof import prove
from headscope_vllm.rows import GateRows

#: What requests ask by, and what the processes are told: no client may write the latter.
ASKED, TOLD = "heads", "headscope_factors"
#: Of `--additional-config`: {"headscope": {"gates": {NAME: FOLDER}}}.
CONFIG = "headscope"
ATTENTION = "vllm.model_executor.layers.attention.attention"
PROCESSOR, RUNNER = "vllm.v1.engine.input_processor", "vllm.v1.worker.gpu_model_runner"
WORKERS = ("vllm.v1.worker.gpu_worker", "Worker"), ("vllm.v1.worker.cpu_worker", "CPUWorker")
WITHOUT = 'VLLM_PLUGINS="" serves without gates'


def install() -> None:
    """Wrap the engine's classes once in a process; everything is looked up before anything is."""
    processor = _needed(PROCESSOR, "InputProcessor", "__init__", "process_inputs")
    runner = _needed(RUNNER, "GPUModelRunner", "initialize_kv_cache", "_prepare_inputs")
    _needed(ATTENTION, "Attention", "forward")
    workers = [_needed(*worker, "compile_or_warm_up_model") for worker in _there(WORKERS)]
    if hasattr(processor, "headscope_gates"):
        return
    processor.headscope_gates = None
    _wrap(processor, "__init__", _with_catalogue)
    _wrap(processor, "process_inputs", _with_gate)
    _wrap(runner, "initialize_kv_cache", _with_rows)
    _wrap(runner, "_prepare_inputs", _with_batch)
    for worker in workers:
        if "compile_or_warm_up_model" in vars(worker):
            _wrap(worker, "compile_or_warm_up_model", _with_proof)


def _needed(module: str, name: str, *methods: str) -> Any:
    """A class of the engine with methods; `RuntimeError`, which names what is missing."""
    import vllm

    try:
        found = getattr(import_module(module), name)
        missing = next((method for method in methods if not hasattr(found, method)), "")
    except (ImportError, AttributeError):
        found, missing = None, "all"
    if missing:
        what = f"{module}.{name}" + ("" if missing == "all" else f".{missing}")
        raise RuntimeError(
            f"headscope-vllm needs {what}, which vLLM {vllm.__version__} has not; install a "
            f"release that was tried (0.32); {WITHOUT}"
        )
    return found


def _there(workers: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The workers that can be loaded here; a build without CUDA may lack that of GPUs."""
    for module, name in workers:
        try:
            import_module(module)
        except ImportError:
            continue
        yield module, name


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(original, self), self, *args, **kwargs)

    setattr(owner, name, method)


# Where requests come in


def _with_catalogue(original: Callable[..., None], self: Any, vllm_config: Any, *args: Any,
                    **kwargs: Any) -> None:  # fmt: skip
    original(vllm_config, *args, **kwargs)
    self.headscope_gates = served(vllm_config)


def served(vllm_config: Any) -> Catalogue | None:
    """The gates that an engine serves; None for one that writes no text.

    Raises `RuntimeError` for settings under which gates would not be exact, or were not tried.
    """
    model = vllm_config.model_config
    if model.runner_type != "generate":
        return None
    _refuse(vllm_config)
    given = (vllm_config.additional_config or {}).get(CONFIG, {})
    try:
        if not isinstance(given, dict) or set(given) - {"gates"}:
            raise InputError(f"--additional-config: {CONFIG} holds other than gates")
        return catalogue(given.get("gates", {}), geometry(vllm_config))
    except InputError as error:
        raise RuntimeError(f"headscope-vllm: {error}") from error


def geometry(vllm_config: Any) -> Geometry:
    """The heads of an engine's model, by its configuration."""
    model = vllm_config.model_config
    known = model.model_arch_config
    return geometry_of(
        model.hf_text_config, known.total_num_hidden_layers, known.total_num_attention_heads
    )


def _refuse(vllm_config: Any) -> None:
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    settings = {
        "model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 takes the other)": (
            vllm_config.use_v2_model_runner
        ),
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "microbatches": parallel.use_ubatching,
        "context parallelism": max(
            parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size
        ) > 1,
        "kv_sharing_fast_prefill": cache.kv_sharing_fast_prefill,
        "fuse_attn_quant": vllm_config.compilation_config.pass_config.fuse_attn_quant,
    }  # fmt: skip
    for name, there in settings.items():
        if there:
            raise RuntimeError(
                f"headscope-vllm does not work with {name}; leave it away; {WITHOUT}"
            )


def _with_gate(original: Callable[..., Any], self: Any, request_id: str, prompt: Any, params: Any,
               *args: Any, **kwargs: Any) -> Any:  # fmt: skip
    """A request with its gate as numbers, and the salt of its keys and values.

    Raises the engine's error of bad requests, which is HTTP 400, and leaves the other requests.
    """
    asked = getattr(params, "extra_args", None) or {}
    gate: Factors = ()
    try:
        if TOLD in asked:
            raise InputError(f"{TOLD} is not for requests; write {ASKED}")
        if ASKED in asked and self.headscope_gates is not None:
            gate = self.headscope_gates.read(asked[ASKED])
    except InputError as error:
        from vllm.exceptions import VLLMValidationError

        raise VLLMValidationError(str(error), parameter="vllm_xargs") from error
    request = original(request_id, prompt, params, *args, **kwargs)
    if gate:
        request.sampling_params.extra_args = {**asked, TOLD: gate}
        request.cache_salt = salted(gate, request.cache_salt)
    return request


# Where the model runs


def _with_rows(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """Rows of gates, and every head of the model multiplied by them.

    What the layers' kernels are called by is no part of a compiled model, so that this may come
    after it was compiled; recorded graphs are made later.
    """
    original(*args, **kwargs)
    if getattr(self, "headscope_rows", None) is not None:
        return
    if self.vllm_config.model_config.runner_type != "generate":
        return
    from vllm.distributed import get_tensor_model_parallel_rank

    known, layers = geometry(self.vllm_config), _attention(self.vllm_config)
    counts = {layer: own.num_heads for layer, own in layers.items()}
    processes = self.vllm_config.parallel_config.tensor_parallel_size
    expected = {layer: heads // processes for layer, heads in enumerate(known.counts) if heads}
    if counts != expected:
        different = sorted(set(counts.items()) ^ set(expected.items()))[:3]
        raise RuntimeError(
            f"headscope-vllm does not reach the heads of this model: layers and their heads differ "
            f"from its configuration, first {different} (latent attention has no heads of this "
            f"kind); {WITHOUT}"
        )
    own = next(iter(expected.values()))
    start = own * get_tensor_model_parallel_rank()
    graphs = self.vllm_config.compilation_config.max_cudagraph_capture_size or 0
    rows = GateRows(known.layers, range(start, start + own), max(self.max_num_tokens, graphs),
                    self.max_num_reqs, self.device)  # fmt: skip
    for layer, attention in layers.items():
        multiply_after(attention.impl, layer, rows)
    self.headscope_rows = rows


def _attention(vllm_config: Any) -> dict[int, Any]:
    """The model's attention by layer; `RuntimeError` where a layer has several."""
    from vllm.model_executor.layers.attention.attention import Attention
    from vllm.model_executor.models.utils import extract_layer_index
    from vllm.v1.attention.backend import AttentionType

    found = dict[int, Any]()
    for name, layer in vllm_config.compilation_config.static_forward_context.items():
        if isinstance(layer, Attention) and layer.attn_type == AttentionType.DECODER:
            number = extract_layer_index(name)
            if number in found:
                raise RuntimeError(
                    f"headscope-vllm: layer {number} has two attentions, of which {name} is one; "
                    f"{WITHOUT}"
                )
            found[number] = layer
    return dict(sorted(found.items()))


def multiply_after(kernel: Any, layer: int, rows: GateRows) -> None:
    """Have what a layer's kernel writes multiplied by the rows of a step's tokens.

    Where a graph is recorded it is always multiplied: the graph runs with later steps' rows.
    """
    forward = kernel.forward

    @functools.wraps(forward)
    def gated(*args: Any, **kwargs: Any) -> Any:
        result = forward(*args, **kwargs)
        if rows.active or _recorded():
            rows.multiply(layer, kwargs["output"])
        return result

    kernel.forward = gated


def _recorded() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _with_batch(original: Callable[..., Any], self: Any, scheduler_output: Any, tokens: Any,
                *args: Any, **kwargs: Any) -> Any:  # fmt: skip
    """Rows of the batch, whose order is known once its inputs are prepared."""
    prepared = original(scheduler_output, tokens, *args, **kwargs)
    rows = getattr(self, "headscope_rows", None)
    if rows is not None:
        names = self.input_batch.req_ids
        rows.fill([gate_of(self.requests[name]) for name in names], [*map(int, tokens)])
    return prepared


def gate_of(request: Any) -> Factors:
    """The gate of a request, which comes from another process as lists; tuples are kept in it."""
    told = getattr(request.sampling_params, "extra_args", None) or {}
    gate = told.get(TOLD, ())
    if not isinstance(gate, tuple) or not all(isinstance(each, tuple) for each in gate[:1]):
        gate = told[TOLD] = tuple((int(layer), int(head), float(f)) for layer, head, f in gate)
    return gate


def _with_proof(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    if self.model_config.runner_type == "generate":
        prove(self.model_runner, _attention(self.vllm_config), TOLD)
    return result
