"""Prove an export: its logits beside those of the gated model.

The export is loaded as anybody would load it, by plain `transformers` or by stock PEFT, after the
model itself has been let go, so that only one of the two is in memory at a time.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from headscope.errors import InputError, OptionalPart, check_parts
from headscope.heads import Gate
from headscope.lm.batching import collate
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.hollow import loader_of
from headscope.lm.hooks import hooked
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.weights import changeable_weights, dequantised_weight
from headscope.results.export import ExportProof
from headscope.use.exporting.scaling import channel_factors
from headscope.use.exporting.tensors import reads_rows

if TYPE_CHECKING:
    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

#: What the logits are compared on, beginning to end.
TEXTS = (
    "The river runs past the old mill, and in winter the wheel stands still.",
    "Morgen fahren wir mit dem Zug ans Meer, wenn es nicht regnet.",
    "def area(width, height):\n    return width * height\n",
    "7 + 5 = 12, 12 + 9 = 21, 21 + 4 =",
)
_MOST_TOKENS = 64
# Largest difference allowed, as a share of the largest logit: rounding of the folded weights to
# their dtype and of sums in another order.
_LEAST_EXACT = 1e-1
_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-2}
# A low-rank change is added to what the model computes: sums in another order.
_LOW_RANK = 1e-5
# Two products of the same numbers in 32 bits, as a share of the largest factor.
_SAME_NUMBERS = 1e-6
# How many times the measured noise of rounding a difference may be.
_SLACK = 4
# Between models with the very same numbers as weights, of sums in another order alone: in half.
_SAME_WEIGHTS_HALF = 2e-2
#: What a model needs, as a multiple of its weights: buffers, activations of a few tokens, logits.
_MARGIN = 1.1


@dataclass(frozen=True)
class ProofReference:
    """Logits of the model itself, float32 on the CPU, one (T, V) tensor a text.

    `gated` under the gate, `untouched` without; `tokens` the ids, which the export reads too;
    `attention` the kernel, by the name that `transformers` gives it. `folded` those with the gate
    in the weights, rounded as in the checkpoint: what its logits have to be. Rounding half of the
    bits away can change logits by more than a head does, so `gated` alone would let a wrong
    checkpoint pass. None where weights are not folded, or not known before rounding.
    """

    tokens: tuple[tuple[int, ...], ...]
    gated: tuple[torch.Tensor, ...]
    untouched: tuple[torch.Tensor, ...]
    dtype: torch.dtype
    device: torch.device
    attention: str | None = None
    folded: tuple[torch.Tensor, ...] | None = None
    added: tuple[torch.Tensor, ...] | None = None

    @classmethod
    def of(
        cls,
        lm: LanguageModel,
        gate: Gate,
        feed_forward: NDArray[np.float32] | None = None,
        texts: Sequence[str] = TEXTS,
        rounded: torch.dtype | None = None,
        low_rank: bool = False,
    ) -> ProofReference:
        """Run a loaded model on the texts, each by itself, with and without the gate.

        `rounded` is the dtype of a checkpoint's folded weights; None for an adapter. With
        `low_rank` the noise of a LoRA adapter is measured too.
        """
        tokens = tuple(tuple(lm.encode(text)[:_MOST_TOKENS]) for text in texts)
        tokens = tuple(ids for ids in tokens if ids)
        if not tokens:
            raise InputError(f"the tokenizer of {lm.name} makes no tokens of any text")
        untouched = logits_of(lm.model, tokens)
        with lm.gated(gate), _parts_gated(lm, feed_forward):
            gated = logits_of(lm.model, tokens)
        folded = None if rounded is None else _folded(lm, gate, feed_forward, rounded, tokens)
        added = None
        if low_rank:
            with _change_added(lm, gate):
                added = logits_of(lm.model, tokens)
        config = lm.model.config.get_text_config(decoder=True)
        kernel = getattr(config, "_attn_implementation", None)
        return cls(tokens, gated, untouched, lm.dtype, lm.device, kernel, folded, added)


def compare(reference: ProofReference, model: Any, rounded: torch.dtype) -> ExportProof:
    """Compare an export with the gated model.

    `rounded` is the dtype that folded weights were rounded to. InputError if the two differ by
    more than rounding explains: for a LoRA adapter 1e-5 of the largest logit, one rounding of it,
    or a few times the noise that was measured.
    """
    logits = logits_of(model, reference.tokens)
    largest = max(float(logits.abs().max()) for logits in reference.gated)
    if not 0 < largest < math.inf:  # a norm divides by a square that is infinite, for example
        raise InputError(
            f"logits of the gated model reach {largest:.3g}, so its factors are too large for "
            f"{str(reference.dtype).removeprefix('torch.')} and no export can be compared; use "
            "smaller ones"
        )
    noise = None
    if reference.added is not None:
        noise = largest_difference(reference.added, reference.gated)
        exact = max(_LOW_RANK, torch.finfo(reference.dtype).eps)
        allowed = max(exact * largest, _SLACK * noise)
        off = largest_difference(logits, reference.gated)
    elif reference.folded is not None:
        allowed = _TOLERANCE.get(reference.dtype, _SAME_WEIGHTS_HALF) * largest
        off = largest_difference(logits, reference.folded)
    else:
        dtypes = (reference.dtype, rounded)
        allowed = max(_TOLERANCE.get(dtype, _LEAST_EXACT) for dtype in dtypes) * largest
        off = largest_difference(logits, reference.gated)
    same = [
        int((mine.argmax(-1) == theirs.argmax(-1)).sum())
        for mine, theirs in zip(logits, reference.gated, strict=True)
    ]
    positions = sum(map(len, reference.tokens))
    proof = ExportProof(
        largest_difference=largest_difference(logits, reference.gated),
        untouched_difference=largest_difference(logits, reference.untouched),
        largest_logit=largest,
        same_choice=sum(same) / positions,
        positions=positions,
        dtype=str(reference.dtype).removeprefix("torch."),
        allowed=allowed,
        rounded_to=str(rounded).removeprefix("torch."),
        noise=noise,
    )
    # Written so that NaN fails too.
    if not off <= allowed:
        raise InputError(
            f"the exported model differs from the gated one by up to {off:.3g}"
            f" (logits reach {proof.largest_logit:.3g}), which is more than rounding, so it is not "
            "written; apply the gate with `headscope use adapt` instead"
        )
    return proof


def read_checkpoint(folder: Path, reference: ProofReference, device_map: str | None = None) -> Any:
    """Load a checkpoint by plain `transformers`, in the reference's dtype and on its device.

    With a `device_map` it is placed by that instead.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    _quieten()
    quantised = getattr(config, "quantization_config", None) is not None
    if device_map is None and quantised and importlib.util.find_spec("accelerate") is not None:
        device_map = str(reference.device)  # some quantised weights cannot be moved
    model, report = loader_of(config).from_pretrained(
        folder,
        dtype=reference.dtype,
        device_map=device_map,
        attn_implementation=reference.attention,
        output_loading_info=True,
        trust_remote_code=False,
    )
    for kind in ("missing_keys", "mismatched_keys"):
        if report.get(kind):
            raise InputError(f"{folder}: {kind.replace('_', ' ')} on loading: {report[kind]}")
    return model.eval() if device_map is not None else model.to(reference.device).eval()


@contextlib.contextmanager
def lora_loaded(
    base: Any, folder: Path, gate: Gate, sites: Sequence[AttentionSite]
) -> Iterator[Any]:
    """A base model under a LoRA adapter by stock PEFT, as it was before outside of the context.

    Raises `InputError` unless PEFT adds W_O times (gate - 1) to W_O of every layer with a changed
    head, and leaves every weight of the base untouched. In 16 bits rounding alone may change logits
    by more than a head does, so they would let a wrong adapter pass.
    """
    factors = {site.projection_name: channel_factors(site, gate) for site in sites}
    projections = {name for name, values in factors.items() if bool((values != 1).any())}
    before = _weights(base)
    model = read_adapter(base, folder)
    found = {name for name, module in base.named_modules() if hasattr(module, "lora_A")}
    try:
        if found != projections:
            others = sorted(found.symmetric_difference(projections))
            raise InputError(
                f"PEFT puts the adapter on other modules than the gated ones ({others[0]}), so it "
                "is not written; export with --as checkpoint"
            )
        for name in sorted(projections):
            layer = base.get_submodule(name)
            added = layer.get_delta_weight("default").detach().float()
            added = added.T if reads_rows(layer.base_layer) else added
            weight = dequantised_weight(layer.base_layer)
            off = float((added - weight * (factors[name] - 1).to(weight.device)).abs().max())
            if not off <= _SAME_NUMBERS * float(weight.abs().max()):
                raise InputError(
                    f"the adapter changes {name} by up to {off:.3g} otherwise than the gate, so it "
                    "is not written; export with --as checkpoint"
                )
        yield model
    finally:
        model.unload()
    if _weights(base) != before:
        raise InputError(
            "weights of the base model were changed under the adapter, so it is not written; "
            "export with --as checkpoint"
        )


def _weights(model: Any) -> dict[str, tuple[int, int]]:
    """Of every parameter which object it is, and how often it was written to."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {name: (id(parameter), parameter._version) for name, parameter in parameters}


def read_adapter(base: Any, folder: Path) -> Any:
    """Load an adapter around its base model by stock PEFT."""
    check_parts([PEFT])
    _quieten()
    from peft import PeftModel

    with warnings.catch_warnings():
        # It asks the model by names that transformers is about to change.
        warnings.simplefilter("ignore", FutureWarning)
        return PeftModel.from_pretrained(base, str(folder)).eval()


PEFT = OptionalPart("comparing an adapter (--no-prove leaves it out)", "adapters", ("peft",))


def _quieten() -> None:
    """Let bitsandbytes, which others import where it is installed, not tell how it rounds."""
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def let_go() -> None:
    """Give memory of models that nothing refers to any more back to the system."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def logits_of(model: Any, tokens: Sequence[Sequence[int]]) -> tuple[torch.Tensor, ...]:
    """Logits behind every token of each text by itself, float32 (T, V) on the CPU."""
    logits = []
    with evaluating(model), torch.no_grad():
        for ids in tokens:
            inputs = forward_inputs(model, collate([list(ids)], 0))
            logits.append(model(**inputs).logits[0].float().cpu())
    return tuple(logits)


def _folded(
    lm: LanguageModel,
    gate: Gate,
    feed_forward: NDArray[np.float32] | None,
    rounded: torch.dtype,
    tokens: Sequence[Sequence[int]],
) -> tuple[torch.Tensor, ...] | None:
    """Logits with every W_O of the loaded model multiplied and rounded, which is then undone.

    Projections are those that the gate finds, so names of tensors have no part in it. None if the
    model does not hold the checkpoint's numbers, or those of a feed-forward gate would be rounded.
    """
    masked = feed_forward is None or bool(np.isin(feed_forward, (0, 1)).all())
    wide = (torch.float32, torch.float64)
    if lm.quantised is not None or not masked or lm.dtype not in (*wide, rounded):
        return None
    held = []
    with changeable_weights(lm) as weights, _parts_gated(lm, feed_forward):
        try:
            for site in lm.sites:
                weight, factors = weights[site.layer], channel_factors(site, gate)
                if bool((factors == 1).all()):
                    continue
                if not torch.equal(weight.to(rounded).to(weight.dtype), weight):
                    return None  # this one is stored in a finer dtype
                held.append((weight, weight.clone()))
                exact = torch.promote_types(rounded, torch.float32)
                product = weight.to(exact) * factors.to(weight.device, exact)
                weight.copy_(product.to(rounded))
            return logits_of(lm.model, tokens)
        finally:
            for weight, before in held:
                weight.copy_(before)


@contextlib.contextmanager
def _change_added(lm: LanguageModel, gate: Gate) -> Iterator[None]:
    """Inside, W_O's output has W_O times (gate - 1) times its input added, computed in 32 bits."""

    def hooks() -> Iterator[Any]:
        for site in lm.sites:
            change = channel_factors(site, gate) - 1
            if bool((change != 0).any()):
                yield site.projection.register_forward_hook(adding(change))

    def adding(change: torch.Tensor) -> Callable[..., torch.Tensor]:
        def add(projection: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
            states = args[0].float() * change.to(args[0].device)
            product = functional.linear(states, dequantised_weight(projection).to(states.device))
            return (output.float() + product).to(output.dtype)

        return add

    with hooked(lm.model, hooks()):
        yield


def _parts_gated(
    lm: LanguageModel, feed_forward: NDArray[np.float32] | None
) -> contextlib.AbstractContextManager[Any]:
    if feed_forward is None:
        return contextlib.nullcontext()
    return feed_forward_gated(lm, torch.from_numpy(np.array(feed_forward, dtype=np.float32)))


def largest_difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """The largest absolute difference; NaN if there is one anywhere."""
    differences = [(a - b).abs().max() for a, b in zip(first, second, strict=True)]
    return float(torch.stack(differences).max())


def room_for(lm: LanguageModel, device: str | None = None, dtype: str = "auto") -> str | None:
    """Why a hollow model is too large for the device's free memory; None if it is not, or unknown.

    `device` and `dtype` are as for `headscope.load`; `auto` is float32 on the CPU.
    """
    cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
    held = getattr(torch, dtype) if dtype != "auto" else lm.dtype if cuda else torch.float32
    if not cuda:
        free = _free_memory()
    elif torch.cuda.is_available():
        free = int(torch.cuda.mem_get_info(torch.device(device) if device else 0)[0])
    else:
        free = None
    elements: int = sum(parameter.numel() for parameter in lm.model.parameters())
    need = elements * held.itemsize * _MARGIN
    if free is None or need <= free:
        return None
    where = "the GPU" if cuda else "memory"
    return (
        f"too large to load for a comparison: it needs {need / 1e9:.1f} GB of {where}, and "
        f"{free / 1e9:.1f} GB are free"
    )


def _free_memory() -> int | None:
    """Bytes that the system could give; None where it does not tell."""
    table = Path("/proc/meminfo")
    lines = table.read_text().splitlines() if table.is_file() else []
    available = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(kilobytes) * 1024 for kilobytes in available), None)
