"""Loading a decoder language model: from the Hub, a folder, a GGUF file, or the bundled one.

A `WaitingModel` is one whose weights are read when they are first needed. Which heads it has, what
its configuration and its tokenizer are, and the digest of its weights are known from its files,
which is all it takes to refuse unusable heads, data or folders, and to see that a run is finished
already.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import statistics
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, overload

import torch

from headscope.errors import (
    InputError,
    OptionalPart,
    caution,
    check_parts,
    first_line,
    out_of_memory,
)
from headscope.lm.attention.recording import capture_way
from headscope.lm.checkpoints import (
    ADAPTER,
    about_adapter,
    adapter_of,
    adapter_part,
    read_config,
    read_generation_config,
    resolve,
    sizes_of_tensors,
    state_of_files,
    tokenizer_of,
    weight_files,
)
from headscope.lm.gguf import (
    GgufFile,
    check_all_read,
    ends_of_text,
    gguf_part,
    is_gguf,
    lazily,
    open_gguf,
)
from headscope.lm.hollow import hollow_model, loader_of, without_products
from headscope.lm.hooks import kernel_name
from headscope.lm.model import LanguageModel
from headscope.lm.owners import LIBRARY
from headscope.lm.proofs import (
    PATIENCE,
    Check,
    alone,
    conversion,
    is_whole,
    kept_conversion,
    proven,
    seal,
)
from headscope.lm.shards import begin
from headscope.lm.weights import (
    computes_on_cpu,
    is_plain,
    keep_gradients,
    quantisation,
    quantised_part,
)
from headscope.progress import by_size
from headscope.scratch import scratch

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

#: How far from 1 the factor of an adapter's change in the weights may lie where they hold it.
MERGED = 0.2
#: What the bar of weights that are read is called.
LOADING = "Loading weights"


@overload
def load(
    name: str | os.PathLike[str],
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    check: Check | bool = "once",
    *,
    tp_plan: Literal["auto"] | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    quantise: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> LanguageModel: ...
@overload
def load(
    name: torch.nn.Module, tokenizer: Any = None, /, *, check: bool = True
) -> LanguageModel: ...
@overload
def load(name: torch.nn.Module, *, tokenizer: Any = None, check: bool = True) -> LanguageModel: ...
def load(
    name: str | os.PathLike[str] | torch.nn.Module,
    revision: Any = None,
    device: str | torch.device | None = None,
    dtype: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    check: Check | bool = "once",
    *,
    tp_plan: Literal["auto"] | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    quantise: str | None = None,
    tokenizer: Any = None,
) -> LanguageModel:
    """Load a decoder language model, find its heads and let it prove itself.

    A model of ``transformers`` that is loaded already is taken as it is, with its tokenizer:
    ``load(model, tokenizer)``; see `LanguageModel.wrap`. Without one the tokenizer is that of the
    folder or Hub id that the model was loaded from (its ``name_or_path``); a model that was made
    in memory has none then, and reads no texts.

    No remote code is run and no pickled weights are read. Models of the Hub are downloaded once and
    then read from the cache, also without network. The parameters are frozen, so that a backward
    pass reaches gates alone. Raises `InputError` if the model cannot be found or is not one that
    headscope can handle.

    Args:
        name: a loaded model, ``"pocket"`` (the bundled model), a folder, a Hub id such as
            ``Qwen/Qwen3-1.7B``, or a GGUF file (one of the Hub as ``owner/name/FILE.gguf``), whose
            weights are dequantised (needs ``gguf`` and ``accelerate``).
        revision: branch, tag or commit of a Hub id.
        device: by default the first CUDA device if there is one, else the CPU.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: float32 on CPU, else the
            checkpoint's own (float32 for a GGUF file).
        device_map: placement over several devices as ``transformers`` knows it, instead of
            ``device`` (needs ``accelerate``). ``auto`` fills GPUs, then memory, and leaves the rest
            in files, from which each layer is read in every forward pass.
        tp_plan: ``auto`` divides every layer's heads among the processes that ``torchrun`` started,
            each of which calls this, on its own GPU (or on the CPU), as ``transformers`` does; for
            ordinary checkpoints. Every process has the numbers of the whole.
        check: when the self-check is run: ``once`` a model as it is loaded here (its verdict is
            kept in the cache of the Hugging Face client), ``always`` (True), or ``never`` (False).
        max_memory: with a ``device_map``: weights that each device takes at most, such as ``{0:
            "20GiB", "cpu": "64GiB"}``; devices that are not named are not used.
        offload_folder: where a folder is made, as long as the model lives, for weights that wait on
            disk and cannot be read from the checkpoint as they are; by default the system's for
            temporary files.
        quantise: ``8bit`` or ``4bit``, to quantise an ordinary checkpoint while it is loaded (needs
            ``bitsandbytes``); those that are quantised already are loaded as they are.
        tokenizer: where to take the tokenizer from (a folder, a Hub id or a GGUF file), if not from
            the model itself; of a loaded model the tokenizer itself.
    """
    if not isinstance(name, str | os.PathLike):
        chosen = (device, device_map, tp_plan, max_memory, offload_folder, quantise)
        if dtype != "auto" or any(option is not None for option in chosen):
            raise InputError(
                "A model that is loaded already stays as it is; leave device, dtype and the like "
                "out, or give its name."
            )
        if revision is not None and tokenizer is not None:
            raise InputError("The tokenizer is given twice, by place and by name; give it once.")
        own = revision if tokenizer is None else tokenizer
        called = str(getattr(name, "name_or_path", None) or "")
        if own is None and called and isinstance(name, torch.nn.Module):
            own = _tokenizer_by_name(called)
            _check_fits(own, None, name, called)
        return LanguageModel.wrap(name, own, called or "model", check=check not in (False, "never"))
    way = _KNOWN.get() or way_of(
        str(name), revision, device, dtype, device_map, tp_plan=tp_plan, max_memory=max_memory,
        offload_folder=offload_folder, quantise=quantise, tokenizer=tokenizer,
    )  # fmt: skip
    folder, config, reading, target, settings = (
        way.folder, way.config, way.tokenizer, way.target, way.settings,
    )  # fmt: skip

    def prepare(attention: str | None) -> LanguageModel:
        # Weights that are made in inference mode would give no gradients ever.
        with torch.inference_mode(False):
            model = _model(folder, config, str(name), settings, offload_folder, attention)
        placed = settings["device_map"] is not None or tp_plan is not None
        if not placed and next(model.parameters()).device != target:
            model.to(target)
        keep_gradients(model)
        model.requires_grad_(False)
        if reading is not None:
            _check_fits(reading, tokenizer, model, str(name))
        return LanguageModel.wrap(
            model,
            reading,
            str(name),
            revision=way.commit,
            folder=folder,
            check=check not in (False, "never"),
            within_reach=_KNOWN.get() is None,  # what commands load is out of it
            prove=lambda lm: proven(lm, "always" if check is True else check or "never", settings),
        )

    lm = prepare(None)
    if check not in (False, "never") and not _shows_its_attention(lm):
        # Falcon, for one, hides its attention under sdpa and cannot be switched once it is built.
        lm = prepare("eager")
    if way.files != state_of_files(folder):
        raise InputError(
            f"the weight files of {name} were changed while it was loaded; load it again"
        )
    return dataclasses.replace(lm, files=way.files)


def _tokenizer_by_name(name: str) -> Any:
    """The tokenizer of the folder or Hub id that a loaded model came from."""
    try:
        return tokenizer_of(Path(), name, name)
    except InputError as error:
        raise InputError(
            f"The tokenizer of the loaded model is not found by its name {name!r} ({error}); give "
            "it: headscope.load(model, tokenizer)."
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """How a model is loaded, as its files and the settings of `load` say.

    Attributes:
        folder: of its files, or a GGUF file; `commit` of the Hub, or None.
        config: the configuration of `transformers`; tokenizer: None where there is none.
        generation: its settings for texts, of `transformers`; None where no file has them.
        target: the device that it is moved to.
        settings: what `transformers` is given to load it.
        files: the state of its weight files (see `headscope.lm.checkpoints.state_of_files`).
        plain: whether its dtype and its device are those of its files and settings, with no
            quantisation and on one device.
    """

    folder: Path
    commit: str | None
    config: Any
    tokenizer: Any
    generation: Any
    target: torch.device
    settings: dict[str, Any]
    files: tuple[Any, ...]
    plain: bool


#: What a `WaitingModel` whose weights are read knows already; None outside.
_KNOWN: ContextVar[Way | None] = ContextVar("known", default=None)


def way_of(
    name: str,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    *,
    tp_plan: Literal["auto"] | None = None,
    max_memory: Mapping[int | str, int | str] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    quantise: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Way:
    """All that is known of a model before its weights are read; arguments and errors of `load`."""
    dtype_of(dtype, on_cpu=False)  # a wrong name is told before all else
    folder, commit = resolve(name, revision)
    config = read_config(folder, name)
    generation = read_generation_config(folder, name)
    weight_files(folder, name)
    files = state_of_files(folder)
    if adapter := adapter_of(folder):
        caution(about_adapter(name, adapter))
    target = place_of(device, device_map)
    carried = getattr(config, "quantization_config", None)
    if tp_plan is not None:
        if device or device_map or quantise or carried or is_gguf(folder):
            raise InputError(
                "A tp_plan divides an ordinary checkpoint over the devices of its processes; leave "
                "device, device_map and quantise out, and give no GGUF file."
            )
        target = begin(config, name)
    if device_map is None and (max_memory is not None or offload_folder is not None):
        raise InputError(
            "max_memory and offload_folder say how a model is spread over devices; give a "
            "device_map with them, such as auto."
        )
    reading = tokenizer_of(folder, name, tokenizer)
    on_cpu = target.type == "cpu" if device_map is None else computes_on_cpu(device_map, max_memory)
    wanted = dtype_of(dtype, on_cpu)
    settings: dict[str, Any] = {"dtype": wanted, "device_map": device_map}
    if max_memory is not None:
        settings["max_memory"] = dict(max_memory)
    if tp_plan is not None:
        from transformers.distributed.configuration_utils import DistributedConfig

        settings["distributed_config"] = DistributedConfig(tp_plan=tp_plan)
    if quantise is not None:
        if is_gguf(folder):
            raise InputError(
                f"{name} is a GGUF file, which is always dequantised; leave quantise out, or "
                "quantise the ordinary checkpoint that it was made from."
            )
        if carried is not None:
            raise InputError(
                f"The checkpoint {name} is quantised already; leave quantise out, or load the "
                "ordinary checkpoint that it was made from."
            )
        own = getattr(config.get_text_config(decoder=True), "dtype", None)
        compute = own if wanted == "auto" else wanted
        settings["quantization_config"] = quantisation(
            quantise, compute if isinstance(compute, torch.dtype) else torch.bfloat16
        )
    with_accelerate = importlib.util.find_spec("accelerate") is not None
    if device_map is None and (quantise or (carried is not None and with_accelerate)):
        # Quantised weights are made where they stay; some cannot be moved.
        settings["device_map"] = {"": str(target)}

    plain = not (device_map or quantise or carried)
    return Way(
        folder=folder,
        commit=commit,
        config=config,
        tokenizer=reading,
        generation=generation,
        target=target,
        settings=settings,
        files=files,
        plain=plain,
    )


def _shows_its_attention(lm: LanguageModel) -> bool:
    """Whether peaks can be taken from the model as it is, or not under eager attention either."""
    if kernel_name(lm.model) == "eager":
        return True
    try:
        capture_way(lm)
    except InputError:
        return False
    return True


def dtype_of(name: str, on_cpu: bool) -> torch.dtype | Literal["auto"]:
    """The dtype that a `dtype` of `load` stands for; "auto": the checkpoint's own.

    Raises `InputError` for any other name.
    """
    if name != "auto" and name not in _DTYPES:
        raise InputError(f"dtype is {name!r}; it must be auto, {', '.join(_DTYPES)}.")
    if name == "auto":
        return torch.float32 if on_cpu else "auto"
    return _DTYPES[name]


DEVICE_MAP = OptionalPart("device_map", "device-map", ("accelerate",))


def parts_of(
    name: str, device_map: str | None, quantise: str | None, tokenizer: str | None
) -> Iterator[OptionalPart]:
    """The optional parts of headscope that `load` needs with these arguments."""
    yield from (gguf_part(file) for file in (name, tokenizer) if file and is_gguf(file))
    if all((Path(name) / file).is_file() for file in ADAPTER):
        yield adapter_part(Path(name))
    if device_map is not None:
        yield DEVICE_MAP
    if quantise is not None:
        yield quantised_part(quantise)


def place_of(
    device: str | torch.device | None, device_map: str | Mapping[str, Any] | None = None
) -> torch.device:
    """The device that a `device` of `load` stands for; `InputError` where it cannot be used."""
    if device_map is not None:
        if device is not None:
            raise InputError("device and device_map were both given; give only one of them.")
        check_parts([DEVICE_MAP])
    if device is None:
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        target = torch.device(device)
        if target.type == "cuda" and target.index is None:
            target = torch.device("cuda", 0)
        torch.empty(0, device=target)
    # What torch raises for a device it does not know, was not built for, or cannot allocate on.
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {str(device)!r} cannot be used here ({first_line(error)}); use cpu"
            f"{', cuda' if torch.cuda.is_available() else ''}."
        ) from error
    return target


def _model(
    folder: Path,
    config: Any,
    name: str,
    settings: dict[str, Any],
    offload_folder: str | os.PathLike[str] | None,
    attention: str | None,
) -> Any:
    from safetensors import SafetensorError

    settings = {**settings, "attn_implementation": attention}
    with contextlib.ExitStack() as undo:
        try:
            if settings["device_map"] is not None:
                aside = undo.enter_context(scratch("offload", offload_folder))
                settings["offload_folder"] = str(aside)
            if is_gguf(folder):
                model, report = _from_gguf(folder, config, settings, name)
            else:
                sizes = sizes_of_tensors(folder)
                model, report = _from_pretrained(folder, config, settings, sizes)
                if adapter_of(folder):
                    _add_adapter(model, folder, name)
        except InputError:
            raise
        except SafetensorError as error:
            raise InputError(
                f"{name}: a weight file is damaged ({first_line(error)}); copy or download it "
                "again."
            ) from error
        except Exception as error:  # whatever a configuration makes the model's code raise
            if out_of_memory(error):
                raise
            raise _not_loaded(name, error, offload_folder) from error
        # What waits on disk is needed as long as the model lives, and not a moment longer.
        weakref.finalize(model, undo.pop_all().close)
    # transformers would draw at random what a checkpoint lacks.
    missing = sorted(report["missing_keys"])
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        as_what = "" if is_gguf(folder) else ", as the architecture that config.json names"
        raise InputError(
            f"The checkpoint {name} lacks {missing[0]}{more}, so the model would be partly random; "
            f"save or download it again{as_what}."
        )
    model.eval()
    return model


def _check_fits(tokenizer: Any, given: object, model: Any, name: str) -> None:
    """Refuse a tokenizer, the model's own or one given, with more tokens than the model knows."""
    embedding = model.get_input_embeddings()  # PEFT may stand around it
    rows = getattr(embedding, "num_embeddings", None) or embedding.weight.shape[0]
    if tokenizer.vocab_size > rows:
        which = f"The tokenizer {given}" if given else "Its tokenizer"
        raise InputError(
            f"{name} knows {rows:,} tokens. {which} has {tokenizer.vocab_size:,}; give the "
            "tokenizer that the model was trained with by --tokenizer, or convert it again."
        )


def _from_gguf(
    path: Path, config: Any, settings: dict[str, Any], name: str
) -> tuple[Any, dict[str, Any]]:
    """The model of a GGUF file as an ordinary one, which nothing marks as quantised."""
    from transformers import GgufConfig

    file = open_gguf(path, name)
    wanted = settings["dtype"] if isinstance(settings["dtype"], torch.dtype) else torch.float32
    if (kept := kept_conversion(path, wanted)) is not None:
        model, report = _from_pretrained(kept, config, settings, sizes_of_tensors(kept))
        complete_from_gguf(model, file)
        return model, report
    dequantised = {"gguf_file": path.name, "quantization_config": GgufConfig(dequantize=True)}
    with lazily(file, name) as sizes:
        model, report = _from_pretrained(path.parent, config, settings | dequantised, sizes)
    check_all_read(file, sorted(report["unexpected_keys"]), name)
    complete_from_gguf(model, file)
    return model, report


def complete_from_gguf(model: Any, file: GgufFile) -> None:
    """Set what `transformers` leaves out beside the weights: the class, and all ends of a text."""
    model.config.architectures = [type(model).__name__]
    ends = ends_of_text(file)
    if len(ends) > 1:
        model.generation_config.eos_token_id = ends


def keep_converted(name: str, dtype: str = "auto") -> Path:
    """Keep the weights of a GGUF file as `load` dequantises them into a dtype; it then reads them
    from the folder that is returned, as long as file, packages and code are the same.

    Of several processes that convert a file at once one does, and the others wait for it. Raises
    `InputError` as `load`, where there is no room, and where another takes too long.
    """
    path, _ = resolve(name, None)
    if not is_gguf(path):
        raise InputError(f"{name} is no GGUF file; other weights are read as they are.")
    wanted = dtype_of(dtype, on_cpu=True)
    assert isinstance(wanted, torch.dtype)
    open_gguf(path, name)  # what it cannot be read for is told before its bytes are digested
    kept = conversion(path, wanted)
    if kept is None:
        raise InputError(
            "the cache cannot be written to; set HF_ASSETS_CACHE to a folder that can be"
        )
    with alone(kept.with_name(f"{kept.name}.lock"), f"converts {name}") as ours:
        if is_whole(kept):
            return kept
        if not ours:
            raise InputError(
                f"{name} is still being converted by another process after {PATIENCE / 60:.0f} "
                "minutes; wait for it, or end it, and run this again"
            )
        shutil.rmtree(kept, ignore_errors=True)  # what is there has been changed
        model = load(name, device="cpu", dtype=dtype, check="never").model
        need = model.get_memory_footprint()
        if need > shutil.disk_usage(kept.parent).free:
            raise InputError(
                f"{name} takes {need / 1e9:.1f} GB in this dtype, and the cache has no room for "
                "it; set HF_ASSETS_CACHE to a folder that has."
            )
        if conversion(path, wanted) != kept:
            raise InputError(f"{name} was changed while it was converted; run this again")
        with scratch("conversion", kept.parent) as aside:
            made = aside / "model"
            model.save_pretrained(made)
            (made / "generation_config.json").unlink(missing_ok=True)  # it follows from the file
            seal(made)
            made.rename(kept)
    return kept


def _from_pretrained(
    folder: Path, config: Any, settings: dict[str, Any], sizes: Mapping[str, int]
) -> tuple[Any, dict[str, Any]]:
    """`sizes` are the bytes of the stored tensors by name, which the bar counts."""
    from unittest import mock

    from transformers import core_model_loading, modeling_utils

    def size(part: tuple[str, Any]) -> int:
        _, made = part
        sources: set[str] = set().union(*made.layer_targets.values())
        return sum(sizes.get(source, 0) for source in sources)

    def bar(parts: Collection[tuple[str, Any]], **_: Any) -> Iterator[tuple[str, Any]]:
        return by_size(LOADING, parts, size)

    def weights_alone(place: Any, *_: Any, **more: Any) -> tuple[None, Any, dict[str, Any]]:
        # What an adapter lacks would take the place of what the weights lack in the report.
        return None, place, {}

    with (
        LIBRARY,
        mock.patch.object(core_model_loading, "tqdm", bar),
        mock.patch.object(modeling_utils, "maybe_load_adapters", weights_alone),
    ):
        loaded: tuple[Any, dict[str, Any]] = loader_of(config).from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **settings,
        )
    return loaded


def _add_adapter(model: Any, folder: Path, name: str) -> None:
    """Apply the adapter beside a folder's weights, as `transformers` does.

    InputError if it is not of this model, or if the weights have it in them already.
    """
    info = model.load_adapter(str(folder), use_safetensors=True)
    if lost := sorted([*info.missing_keys, *info.unexpected_keys, *info.mismatched_keys]):
        raise InputError(
            f"{name}: the adapter beside its weights is not of this model ({lost[0]}); move "
            f"{' and '.join(ADAPTER)} elsewhere, or take the model that they were made for."
        )
    shares = _shares_of_adapter(model)
    if len(shares) > 1 and abs(statistics.median(shares) - 1) < MERGED:
        raise InputError(
            f"{name}: its weights have the adapter beside them merged into them already (they hold "
            f"{statistics.median(shares):.2f} times its change), and it would be applied twice; "
            f"move {' and '.join(ADAPTER)} elsewhere."
        )


def _shares_of_adapter(model: Any) -> list[float]:
    """How often the weights hold the change that LoRA makes, of every linear map that it changes:
    the least-squares factor of s·BA in W. Weights that do not know the adapter hold it about 0
    times, since two matrices of many numbers are nearly orthogonal; merged ones once more.
    """
    shares = []
    for module in model.modules():
        down, up = getattr(module, "lora_A", None), getattr(module, "lora_B", None)
        if down is None or up is None or "default" not in down:
            continue
        a, b, base = down["default"].weight, up["default"].weight, module.get_base_layer()
        if a.dim() != 2 or not is_plain(base) or base.weight.is_meta:
            continue
        weight = base.weight.T if getattr(module, "fan_in_fan_out", False) else base.weight
        a, b, weight = a.float(), b.float(), weight.float()
        change = module.scaling["default"] * float(((b.T @ b) * (a @ a.T)).sum())
        if change:
            shares.append(float(((b.T @ weight) * a).sum()) / change)
    return shares


def _not_loaded(
    name: str, error: Exception, offload_folder: str | os.PathLike[str] | None
) -> InputError:
    """What a user can do about an error of `transformers`."""
    message = str(error)
    if "ignore_mismatched_sizes" in message:  # it points to a table in its log
        asks = "its entries ask" if is_gguf(name) else "config.json asks"
        return InputError(
            f"{name}: the weights do not have the shapes that {asks} for; save or download "
            "the checkpoint again, both from one model."
        )
    if "dispatched on the CPU or the disk" in message:
        return InputError(
            f"{name}: quantised weights do not fit into the memory they were given, and they "
            "cannot wait in memory or on disk beside it; give more by max_memory or another "
            "device_map, quantise further, or leave quantise out."
        )
    if offload_folder is not None and not os.path.isdir(offload_folder):
        return InputError(
            f"There is no folder {offload_folder} for weights that wait on disk; make it "
            "or give another offload_folder."
        )
    fix = "; correct its configuration" if isinstance(error, ArithmeticError | LookupError) else ""
    return InputError(f"{name} could not be loaded: {first_line(error)}{fix}.")


class WaitingModel(LanguageModel):
    """A `LanguageModel` that calls `load` when its model or its modules are first asked for.

    Without a `dtype` its files do not say how it will be loaded; then its configuration, dtype and
    device are asked of the loaded model, too.
    """

    def __init__(
        self,
        hollow: LanguageModel,
        dtype: torch.dtype | None,
        device: torch.device,
        load: Callable[[], LanguageModel],
    ) -> None:
        # As a frozen dataclass sets its fields, but for `model` and `sites`: see `__getattr__`.
        for name in ("tokenizer_or_none", "geometry", "name", "revision", "folder", "files"):
            vars(self)[name] = getattr(hollow, name)
        vars(self).update(_hollow=hollow, _dtype=dtype, _device=device, _load=load)
        vars(self)["_loading"] = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        """`model` and `sites`, which are not there before the weights are."""
        if name not in ("model", "sites"):
            raise AttributeError(name)
        with self._loading:
            if not self.loaded:  # by another thread meanwhile
                loaded = self._load()
                if loaded.geometry != self.geometry:
                    raise InputError(
                        f"{self.name} shows {loaded.geometry} with its weights and {self.geometry} "
                        "without them; load it by headscope.load, and give the model itself to "
                        "this command's function in Python"
                    )
                vars(self).update(
                    model=loaded.model, sites=loaded.sites, noise=loaded.noise, proved=loaded.proved
                )
        return vars(self)[name]

    @property
    def loaded(self) -> bool:
        """Whether the weights have been read."""
        return "model" in vars(self)

    @property
    def key_value_heads(self) -> tuple[int, ...]:
        if self.loaded:
            return super().key_value_heads
        with without_products():
            counts: tuple[int, ...] = self._hollow.key_value_heads
        return counts

    @property
    def _waits(self) -> bool:
        """Whether the files still answer for the model."""
        return not self.loaded and self._dtype is not None

    @property
    def shell(self) -> Any:
        return self._hollow.model if self._waits else self.model

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype if self._waits else super().dtype

    @property
    def device(self) -> torch.device:
        return self._device if self._waits else super().device

    @property
    def quantised(self) -> str | None:
        return None if self._waits else super().quantised


def waiting_model(
    name: str,
    load: Callable[[], LanguageModel],
    **settings: Any,
) -> LanguageModel | None:
    """The model that `load` gives, without its weights until these are due; `settings` are those
    of `headscope.load`, whose errors it raises.

    Of a quantised model, one on several devices, or one whose dtype nothing names, only heads and
    tokenizer are known without the weights. None for a model that cannot be built without them.
    """
    way = way_of(name, **settings)
    try:
        hollow = hollow_model(name, way.folder, way.config, way.tokenizer, way.commit)
    except InputError:
        return None
    hollow = dataclasses.replace(hollow, files=way.files)
    if way.tokenizer is not None:
        _check_fits(way.tokenizer, settings.get("tokenizer"), hollow.model, name)
    if is_gguf(way.folder):
        complete_from_gguf(hollow.model, open_gguf(way.folder, name))
    elif way.generation is not None:
        hollow.model.generation_config = way.generation
    dtype = way.settings["dtype"]
    if dtype == "auto":
        dtype = getattr(way.config.get_text_config(decoder=True), "dtype", None)
    known = dtype if way.plain and isinstance(dtype, torch.dtype) else None

    def due() -> LanguageModel:
        before = _KNOWN.set(way)
        try:
            return load()
        finally:
            _KNOWN.reset(before)

    return WaitingModel(hollow, known, way.target, due)
