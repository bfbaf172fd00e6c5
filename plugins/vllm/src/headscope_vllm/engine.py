"""What is changed in vLLM: where requests come in, where a batch is made, and what heads write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from secrets import token_hex
from typing import Any

import torch

from headscope.errors import InputError
from headscope.heads import Geometry
from headscope_vllm.gates import (
    SALT,
    Catalogue,
    Factors,
    catalogue,
    digest_of,
    geometry_of,
    salted,
)
from headscope_vllm.peaks import LONGEST, Answers, Found, Part, Peaks
from headscope_vllm.proof import prove
from headscope_vllm.rows import Asked, GateRows

#: What requests ask by, and what the processes are told: no client may write the latter.
ASKED, TOLD = "heads", "headscope_factors"
#: The same of peaks, whose answer is told with what a request's transfer of keys would tell.
PEAKS, TOLD_PEAKS = "peaks", "headscope_peaks"
#: Of `--additional-config`: {"headscope": {"gates": {NAME: FOLDER}}}.
CONFIG = "headscope"
#: Caches whose keys are those that kernels get.
WHOLE = ("auto", "float16", "bfloat16", "float32")
#: What the engine asks all its workers by, which other processes, or machines, may run.
CORE, PROVED = "vllm.v1.engine.core", "headscope_proved"
SCHEDULER = "vllm.v1.core.sched.scheduler"
PROCESSOR, RUNNER = "vllm.v1.engine.input_processor", "vllm.v1.worker.gpu_model_runner"
NO_GATE = Asked()
BEAMS = (
    ("vllm.entrypoints.openai.completion.protocol", "CompletionRequest"),
    ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),
    ("vllm.entrypoints.speech_to_text.transcription.protocol", "TranscriptionRequest"),
    ("vllm.entrypoints.speech_to_text.translation.protocol", "TranslationRequest"),
)
WORKERS = ("vllm.v1.worker.gpu_worker", "Worker"), ("vllm.v1.worker.cpu_worker", "CPUWorker")
WITHOUT = 'VLLM_PLUGINS="" serves without gates'


def install() -> None:
    """Wrap the engine's classes once in a process; everything is looked up before anything is."""
    processor = _needed(PROCESSOR, "InputProcessor", "__init__", "process_inputs")
    runner = _needed(RUNNER, "GPUModelRunner", "initialize_kv_cache", "_prepare_inputs",
                     "sample_tokens")  # fmt: skip
    scheduler = _needed(SCHEDULER, "Scheduler", "update_from_output", "_free_request")
    # An engine process loads this while its core is being made.
    core = _needed(CORE, "EngineCore", "_initialize_kv_caches", "preprocess_add_request")
    workers = [_needed(*worker, "compile_or_warm_up_model") for worker in _there(WORKERS)]
    if hasattr(processor, "headscope_gates"):
        return
    processor.headscope_gates = runner.headscope_rows = scheduler.headscope_answers = None
    _wrap(processor, "__init__", _with_catalogue)
    _wrap(processor, "process_inputs", _with_gate)
    _wrap(runner, "initialize_kv_cache", _with_rows)
    _wrap(runner, "_prepare_inputs", _with_batch)
    _wrap(runner, "sample_tokens", _with_news)
    _wrap(scheduler, "update_from_output", _with_found)
    _wrap(scheduler, "_free_request", _with_answer)
    _wrap(core, "_initialize_kv_caches", _with_workers)
    _wrap(core, "preprocess_add_request", _read_before)
    for worker in workers:
        setattr(worker, PROVED, _proved)
        if "compile_or_warm_up_model" in vars(worker):
            _wrap(worker, "compile_or_warm_up_model", _with_proof)


def _lacking(what: str) -> RuntimeError:
    import vllm

    return RuntimeError(
        f"headscope-vllm needs {what}, which vLLM {vllm.__version__} has not; install a release "
        f"that was tried (0.32); {WITHOUT}"
    )


@contextmanager
def _of_the_engine() -> Iterator[None]:
    """Names that the engine lacks are told so at the start."""
    try:
        yield
    except (AttributeError, ImportError) as error:
        raise _lacking(error.name or str(error)) from error


def _needed(module: str, name: str, *methods: str) -> Any:
    """A class of the engine with methods; `RuntimeError`, which names what is missing."""
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _lacking(f"{module}.{name}") from error
    for method in methods:
        if not hasattr(found, method):
            raise _lacking(f"{module}.{name}.{method}")
    return found


def _there(classes: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those that can be loaded here: a build without CUDA may lack workers of GPUs, one without
    audio what reads it."""
    for module, name in classes:
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
    for module, name in _there(BEAMS):
        protocol = _needed(module, name, "to_beam_search_params")
        if not hasattr(protocol.to_beam_search_params, "__wrapped__"):
            _wrap(protocol, "to_beam_search_params", _without_beams)


def _without_beams(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """A beam search makes requests of its own, which would have no gate."""
    with _bad_request():
        if set(self.vllm_xargs or ()) & {ASKED, PEAKS}:
            raise InputError("a beam search can have no gate and no peaks")
    return original(*args, **kwargs)


@_of_the_engine()
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


@_of_the_engine()
def _refuse(vllm_config: Any) -> None:
    from vllm import envs

    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    settings = {
        "model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 takes the other)": (
            vllm_config.use_v2_model_runner
        ),
        "the front end in Rust, which reads no gates": envs.VLLM_USE_RUST_FRONTEND,
        # An engine on another machine may lack the plugin.
        "data parallelism over several machines": (
            parallel.data_parallel_size > parallel.data_parallel_size_local
        ),
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "microbatches": parallel.use_ubatching,
        "speculative decoding": vllm_config.speculative_config is not None,
        "LoRA": vllm_config.lora_config is not None,
        # Connectors know keys and values by their tokens alone.
        "transfer of keys": vllm_config.kv_transfer_config is not None,
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
    with _bad_request():
        gate, peaks = _read(self, asked, params)
        if (gate or peaks) and kwargs.get("resumable"):
            raise InputError("a session whose input goes on can have no gate and no peaks")
    request = original(request_id, prompt, params, *args, **kwargs)
    if {ASKED, PEAKS} & {*asked}:
        with _bad_request():
            if peaks and request.prompt_token_ids is None:
                raise InputError("peaks cannot be had of prompts that are embeddings")
            if peaks and len(request.prompt_token_ids) >= LONGEST:
                raise InputError(f"peaks cannot be had of prompts of {LONGEST} tokens and more")
        digest = digest_of(gate) if gate else ""
        told = {TOLD: [digest, gate], TOLD_PEAKS: peaks}
        request.sampling_params.extra_args = {**asked, **told}
        # All keys of a request for peaks must pass by, so that it shares with none.
        if own := digest + (token_hex() if peaks else ""):
            request.cache_salt = salted(own, request.cache_salt)
    return request


@contextmanager
def _bad_request() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        from vllm.exceptions import VLLMValidationError

        raise VLLMValidationError(str(error), parameter="vllm_xargs") from error


def _read(
    processor: Any, asked: dict[str, Any], params: Any
) -> tuple[Factors, tuple[tuple[int, int], ...]]:
    """The gate of a request, and the heads whose peaks it asks for."""
    gate: Factors = ()
    peaks: tuple[tuple[int, int], ...] = ()
    served = processor.headscope_gates
    for told, name in ((TOLD, ASKED), (TOLD_PEAKS, PEAKS)):
        if told in asked:
            raise InputError(f"{told} is not for requests; write {name}")
    if ASKED in asked and served is not None:
        gate = served.read(asked[ASKED])
    if PEAKS in asked and served is not None:
        peaks = served.read_peaks(asked[PEAKS])
        if why := without_peaks(processor.vllm_config, params):
            raise InputError(f"peaks cannot be had {why}")
    return gate, peaks


def without_peaks(vllm_config: Any, params: Any) -> str:
    """Why a request gets no peaks; empty where it does."""
    mode = vllm_config.compilation_config.cudagraph_mode
    reasons = {
        "under tensor parallelism": vllm_config.parallel_config.tensor_parallel_size > 1,
        "of quantised keys": vllm_config.cache_config.cache_dtype not in WHOLE,
        "with stop strings, which end a text elsewhere": bool(params.stop),
        "for n above 1": params.n > 1,
        "in a stream": params.output_kind.name == "DELTA",
        "where whole steps are recorded; start with -cc.cudagraph_mode=PIECEWISE": (
            mode is not None and mode.has_full_cudagraphs()
        ),
    }
    return next((why for why, there in reasons.items() if there), "")


# Where the model runs


def _with_rows(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """Rows of gates, and every head of the model multiplied by them.

    What the layers' kernels are called by is no part of a compiled model, so that this may come
    after it was compiled; recorded graphs are made later.
    """
    original(*args, **kwargs)
    if self.headscope_rows is None:
        self.headscope_rows = _rows(self)


@_of_the_engine()
def _rows(runner: Any) -> GateRows | None:
    config = runner.vllm_config
    if config.model_config.runner_type != "generate":
        return None
    from vllm.distributed import get_tensor_model_parallel_rank

    known, layers = geometry(config), _attention(config)
    counts = {layer: own.num_heads for layer, own in layers.items()}
    processes = config.parallel_config.tensor_parallel_size
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
    graphs = config.compilation_config.max_cudagraph_capture_size or 0
    runner.headscope_peaks = Peaks()
    rows = GateRows(known.layers, range(start, start + own), max(runner.max_num_tokens, graphs),
                    runner.max_num_reqs, runner.device)  # fmt: skip
    for layer, attention in layers.items():
        multiply_after(attention, layer, rows, runner.headscope_peaks)
    return rows


def _attention(vllm_config: Any) -> dict[int, Any]:
    """The model's attention by layer; `RuntimeError` where a layer has several."""
    from vllm.model_executor.layers.attention.attention import Attention
    from vllm.v1.attention.backend import AttentionType

    found = dict[int, Any]()
    for name, layer in vllm_config.compilation_config.static_forward_context.items():
        if isinstance(layer, Attention) and layer.attn_type == AttentionType.DECODER:
            numbers = [int(part) for part in name.split(".") if part.isdigit()]
            if len(numbers) != 1 or numbers[0] in found:
                raise RuntimeError(
                    f"headscope-vllm: {name} is not the one attention of a layer; {WITHOUT}"
                )
            found[numbers[0]] = layer
    return dict(sorted(found.items()))


def multiply_after(attention: Any, layer: int, rows: GateRows, peaks: Peaks) -> None:
    """Have what a layer's kernel writes multiplied by the rows of a step's tokens, and what it gets
    looked at for peaks.

    Where a graph is recorded it is always multiplied: the graph runs with later steps' rows.
    """
    forward = attention.impl.forward
    recorded = torch.cuda.is_current_stream_capturing if torch.cuda.is_available() else bool

    @functools.wraps(forward)
    def gated(own: Any, query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        result = forward(own, query, key, *args, **kwargs)
        if peaks.parts:
            peaks.look(layer, attention, query, key)
        if rows.active or recorded():
            rows.multiply(layer, kwargs["output"])
        return result

    attention.impl.forward = gated


def _with_batch(original: Callable[..., Any], self: Any, scheduler_output: Any, tokens: Any,
                *args: Any, **kwargs: Any) -> Any:  # fmt: skip
    """Rows of the batch, whose order is known once its inputs are prepared."""
    prepared = original(scheduler_output, tokens, *args, **kwargs)
    if self.headscope_rows is not None:
        names, counts = self.input_batch.req_ids, [*map(int, tokens)]
        self.headscope_rows.fill([gate_of(self.requests[name]) for name in names], counts)
        self.headscope_peaks.begin([*parts_of(self, names, counts)], self.requests)
    return prepared


def parts_of(runner: Any, names: Sequence[str], counts: Sequence[int]) -> Iterator[Part]:
    """What a step computes of the requests that ask for peaks."""
    start = 0
    for at, (name, tokens) in enumerate(zip(names, counts, strict=True)):
        request = runner.requests[name]
        told = getattr(request.sampling_params, "extra_args", None) or {}
        if asked := told.get(TOLD_PEAKS):
            heads: dict[int, tuple[int, ...]] = {}
            for layer, head in asked:
                heads[layer] = (*heads.get(layer, ()), head)
            position = int(runner.input_batch.num_computed_tokens_cpu[at])
            yield Part(name, heads, start, position, tokens, len(request.prompt_token_ids))
        start += tokens


def _with_news(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """What a step found goes to the scheduler with its tokens, also where these come later."""
    output = original(*args, **kwargs)
    if self.headscope_rows is None:
        return output
    news = self.headscope_peaks.news()
    self.headscope_peaks.parts = []  # what runs between two steps is of no request
    if news and hasattr(output, "get_output"):
        later = output.get_output

        def get_output() -> Any:
            return _telling(later(), news)

        output.get_output = get_output
    elif news:
        _telling(output, news)
    return output


def _telling(output: Any, news: dict[str, Found]) -> Any:
    output.headscope_news = news
    return output


def _with_found(original: Callable[..., Any], self: Any, scheduler_output: Any, output: Any,
                *args: Any, **kwargs: Any) -> Any:  # fmt: skip
    """What a step found is kept until its request ends; of one that was given up it is not."""
    news = getattr(output, "headscope_news", {})
    if news:
        self.headscope_answers = self.headscope_answers or Answers()
        self.headscope_answers.add(
            {name: found for name, found in news.items() if name in self.requests}
        )
    return original(scheduler_output, output, *args, **kwargs)


def _with_answer(original: Callable[..., Any], self: Any, request: Any, *args: Any,
                **kwargs: Any) -> Any:  # fmt: skip
    """What a request that ends tells besides its tokens: its peaks."""
    transfer, more = original(request, *args, **kwargs)
    answers = self.headscope_answers
    found = answers and answers.take(request.request_id, request.num_output_tokens)
    return ({**(transfer or {}), PEAKS: found} if found is not None else transfer), more


def gate_of(request: Any) -> Asked:
    """The gate of a request, which comes from another process as lists, and is kept as used."""
    told = getattr(request.sampling_params, "extra_args", None) or {}
    gate = told.get(TOLD)
    if gate is None:
        return NO_GATE
    if not isinstance(gate, Asked):
        digest, factors = gate
        gate = Asked(digest, tuple((layer, head, factor) for layer, head, factor in factors))
        told[TOLD] = gate
    return gate


def _with_workers(original: Callable[..., Any], self: Any, vllm_config: Any, *args: Any,
                  **kwargs: Any) -> Any:  # fmt: skip
    """An engine starts only where every worker has proved its gates, so that none ignores them."""
    generates = vllm_config.model_config.runner_type == "generate"
    if generates:
        _refuse(vllm_config)
    made = original(vllm_config, *args, **kwargs)
    if generates:
        try:
            self.model_executor.collective_rpc(PROVED)
        except Exception as error:  # each executor raises its own
            raise RuntimeError(
                "headscope-vllm is not in every worker; install it on all machines of the server, "
                f"and let VLLM_PLUGINS name it; {WITHOUT}"
            ) from error
    return made


def _proved(worker: Any) -> None:
    if not worker.headscope_served:
        raise RuntimeError("this worker has proved no gates")


def _read_before(original: Callable[..., Any], self: Any, request: Any) -> Any:
    """A request whose gate was not read where it came in would have none, so it is refused."""
    asked = getattr(request.sampling_params, "extra_args", None) or {}
    if {ASKED, PEAKS, TOLD, TOLD_PEAKS} & {*asked}:
        digest, _ = asked.get(TOLD) or (None, ())
        salt = request.cache_salt or ""
        changes = digest or asked.get(TOLD_PEAKS)
        if digest is None or (changes and not salt.startswith(SALT)):
            raise RuntimeError("headscope-vllm: this request's gate was not read where it came in")
    return original(request)


def _with_proof(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    self.headscope_served = self.model_runner.headscope_rows is not None
    if self.headscope_served:
        prove(self.model_runner, _attention(self.vllm_config), TOLD)
    return result
