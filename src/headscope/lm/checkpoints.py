"""What a model's folder holds: found on disk or downloaded, looked through, read; digests of it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.errors import (
    InputError,
    OptionalPart,
    check_parts,
    first_line,
    nearest,
    refuse_pipes,
    telling,
)
from headscope.hub import download
from headscope.lm.gguf import (
    check_layers,
    is_gguf,
    open_gguf,
    read_gguf_config,
    read_gguf_tokenizer,
)
from headscope.lm.weights import stored_tensor
from headscope.progress import by_size

#: What the bar of a digest is called, and how many bytes are digested between its steps.
DIGESTING = "Digesting weights"
_AT_ONCE = 1 << 24
#: Nanoseconds after which a further change of a file has another time.
_REST = 2_000_000_000
#: What safetensors allows for the names and places of tensors, in bytes.
_LONGEST_HEADER = 100_000_000
#: How configurations call their number of layers.
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
_ADVICE = "use a decoder language model such as Llama, Qwen or GPT-2"
_CONVERT = (
    "convert them once with AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
_AGAIN = "copy or download it again"
#: Weights in one file, and the index that names the files of several.
SINGLE = "model.safetensors"
INDEX = f"{SINGLE}.index.json"
#: An adapter: its configuration and its weights.
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
#: The entry of config.json that names another file of weights, or another index.
_NAMED = "transformers_weights"
# What a decoder needs: its configuration, its weights and its tokenizer, top level only.
_OF_TOKENIZERS = ("*.json", "*.model", "*.txt", "*.jinja", "*.tiktoken")
_PATTERNS = (*_OF_TOKENIZERS, "model*.safetensors", ADAPTER[1])


def resolve(
    name: str, revision: str | None, patterns: Sequence[str] = _PATTERNS
) -> tuple[Path, str | None]:
    """The folder that holds the model's files, or its GGUF file; its commit if it is of the Hub.

    Of a Hub model only files that match `patterns` are brought into the cache, or the GGUF file
    that is named behind the id (``owner/name/FILE.gguf``).
    """
    if name == "pocket":
        if revision is not None:
            raise InputError("The bundled model 'pocket' has no revisions; leave revision out.")
        from headscope.pocket import weights

        return Path(weights.path()), None
    if not name.strip():
        raise InputError("The name of the model is empty; give pocket, a folder or a Hub id.")
    path = Path(os.path.expanduser(name))  # as pathlib does, but without an error
    if path.is_dir():
        if revision is not None:
            raise InputError(f"{name} is a folder and has no revisions; leave revision out.")
        for pattern in _PATTERNS:
            for file in path.glob(pattern):
                refuse_pipes(file)
        return path.resolve(), None
    if path.exists():
        if not is_gguf(path):
            raise InputError(f"{name} is a file; give a model's folder, Hub id or GGUF file.")
        if revision is not None:
            raise InputError(f"{name} is a file and has no revisions; leave revision out.")
        return path.absolute(), None
    of_hub = not path.is_absolute() and not name.startswith((".", "~"))
    if is_gguf(name):
        owner, _, rest = name.partition("/")
        title, _, inside = rest.partition("/")
        if not (of_hub and inside):
            raise InputError(
                f"There is no file {name}; give a GGUF file, or owner/name/FILE.gguf for one of "
                "the Hub."
            )
        folder = download(f"{owner}/{title}", revision, "model", [inside])
        if not (folder / inside).is_file():
            raise InputError(f"The Hub model {owner}/{title} holds no file {inside}; check it.")
        return folder / inside, folder.name
    if not of_hub or name.count("/") > 1:
        raise InputError(f"There is no folder {name}; give a model's folder or its Hub id.")
    # "*/*" leaves out what lies in subfolders: exports to other formats, training states.
    try:
        folder = download(name, revision, "model", patterns, ignore=["*/*"])
    except InputError as error:
        if not (hint := nearest(name, ["pocket"], 0.7)):
            raise
        raise InputError(f"{hint}{error}") from error
    if patterns is _PATTERNS and (further := _other_names(folder)):
        download(name, folder.name, "model", further)
    return folder, folder.name


def _other_names(folder: Path) -> list[str]:
    """Weight files that are named otherwise than is usual and are not in a Hub model's folder."""
    opened = opened_first(folder)
    if opened is None or not opened.is_file():
        return [] if opened is None else [opened.name]
    files = set(weight_map(opened).values()) if opened.suffix == ".json" else set[str]()
    return sorted(file for file in files if not (folder / file).is_file())


def read_config(place: Path, name: str) -> Any:
    """The configuration of a folder or GGUF file; InputError if it is not that of a decoder."""
    if is_gguf(place):
        config = read_gguf_config(open_gguf(place, name), name)
    else:
        config = _read_config(place, name)
    _check_decoder(config, name)
    return config


def _read_config(folder: Path, name: str) -> Any:
    from transformers import AutoConfig

    file = folder / "config.json"
    if not file.is_file():
        if any(folder.glob("*.gguf")):
            weight_files(folder, name)
        if (folder / "adapter_config.json").is_file():
            raise InputError(
                f"{name} holds an adapter, not a model (no config.json); merge it into its base "
                "model with PEFT's merge_and_unload() and save that."
            )
        raise InputError(f"{name} has no config.json, so it is no model folder; check the path.")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not valid JSON ({first_line(error)}); repair it.") from error
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise InputError(f"{file} names no model_type, so the architecture is unknown; add it.")

    def unread(why: str) -> str:
        if "auto_map" in raw:
            return f"{name} ({kind}) needs code of its own, which headscope never runs; {_ADVICE}."
        return (
            f"{name}: this version of transformers cannot read a configuration of type {kind!r} "
            f"({why}); correct config.json, update transformers or {_ADVICE}."
        )

    for part in (raw, raw.get("text_config")):
        for key in set(part if isinstance(part, dict) else ()) & set(_DEPTHS):
            check_layers(part[key], f"{file}: {key}")
    with telling(unread):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        own = config.get_text_config(decoder=True)
    check_layers(getattr(own, "num_hidden_layers", None), f"{file}: num_hidden_layers")
    return config


def read_generation_config(place: Path, name: str) -> Any:
    """The settings for texts that a folder has, or None; InputError where they cannot be read.

    transformers' loader takes defaults for a damaged file, with other ends of a text.
    """
    from transformers import GenerationConfig

    if not (place / "generation_config.json").is_file():
        return None
    with telling(
        lambda why: (
            f"{name}: its generation_config.json cannot be read ({why}); correct it, or take it "
            "out, and the settings of config.json are used."
        )
    ):
        settings = GenerationConfig.from_pretrained(place)
        ends = settings.eos_token_id
        for end in ends if isinstance(ends, list) else [ends]:
            if end is not None and type(end) is not int:
                raise ValueError(f"its eos_token_id is {ends!r:.60}, not ids of tokens")
    return settings


def _check_decoder(config: Any, name: str) -> None:
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    kind = config.model_type
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    multimodal = kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(f"{name} ({kind}) is an encoder-decoder, not a decoder; {_ADVICE}.")
    # BERT and its kin exist as encoders and as decoders, and say by is_decoder which one this is
    # (decoders of other families leave that field as it happens to be).
    encoder = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", True)
    if encoder or not (causal or multimodal):
        raise InputError(
            f"{name} ({kind}) is not a decoder language model (an encoder, or another kind of "
            f"model); {_ADVICE}."
        )


def weight_files(place: Path, name: str | None = None) -> list[Path]:
    """The weight files that `transformers` reads of a folder, in the order in which it does; of a
    GGUF file that file. Whatever else lies there is not read, but for an adapter (`adapter_of`).

    `name` is what messages call the folder. InputError if there are none, only pickled ones, or
    others than the index names.
    """
    if place.is_file():
        return [place]
    called, opened = name or place, opened_first(place)
    if opened is not None:
        if not opened.is_file():
            raise InputError(f"{opened}: is missing, but config.json names it; {_AGAIN}")
        several = sorted(set(weight_map(opened).values())) if opened.suffix == ".json" else []
        files = [place / file for file in several] or [opened]
        for file in files:
            if file.suffix != ".safetensors":
                raise InputError(
                    f"{called} names the weights {file.name}, which is no safetensors file, and "
                    f"others can run code; {_CONVERT}."
                )
            if not file.is_file():
                raise InputError(f"{file}: is missing, but {opened.name} names it; {_AGAIN}")
        return files
    shards = sorted(set(place.glob("*.safetensors")) - {place / ADAPTER[1]})
    if shards:
        raise InputError(
            f"{called} holds {shards[0].name} but neither {SINGLE} nor {INDEX}, so it is not "
            "known which files make the model; save it with save_pretrained."
        )
    pickled = sorted([*place.glob("*.bin"), *place.glob("*.pt*")])
    if pickled:
        raise InputError(
            f"{called} holds only pickled weights ({pickled[0].name}), which headscope does not "
            f"read because they can run code; {_CONVERT}."
        )
    converted = sorted(file.name for file in place.glob("*.gguf"))
    if converted:
        raise InputError(f"{called} holds GGUF files; name one of them: {called}/{converted[0]}.")
    raise InputError(
        f"{called} holds no weights ({SINGLE} or its shards); save the model there, or if "
        f"the Hub has only pickled weights, {_CONVERT}."
    )


def opened_first(folder: Path) -> Path | None:
    """The file of weights, or the index of several, that `transformers` opens in a folder; None
    where there is neither."""
    try:
        named = json.loads((folder / "config.json").read_bytes()).get(_NAMED)
    except (OSError, ValueError, AttributeError, RecursionError):
        named = None  # who reads the configuration says what is wrong with it
    if named is not None:
        if not isinstance(named, str) or Path(named).name != named:
            raise InputError(
                f"{folder / 'config.json'}: its {_NAMED} is {named!r:.60}; it names a file there"
            )
        return folder / named
    return next((file for name in (SINGLE, INDEX) if (file := folder / name).is_file()), None)


def weight_map(index: Path) -> dict[str, str]:
    """The file of every tensor, as the index of a checkpoint in several files has it."""
    try:
        names = json.loads(index.read_bytes())["weight_map"]
    except OSError as error:
        raise InputError(f"{index}: cannot be read ({error.strerror}); {_AGAIN}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        names = None
    if not isinstance(names, dict) or not names:
        raise InputError(f"{index}: has no weight_map, which says where tensors lie; {_AGAIN}")
    for name in names.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise InputError(f"{index}: names the file {name!r:.60} outside its folder; {_AGAIN}")
    return names


def adapter_of(place: Path) -> str | None:
    """The adapter that lies beside a folder's weights, in words (see `adapter_words`), which
    `transformers` applies to them when it loads the folder; None where there is none.

    InputError if it cannot be read, `MissingExtra` without PEFT, where `transformers` leaves it out
    without a word.
    """
    file, weights = (place / name for name in ADAPTER)
    if place.is_file() or not file.is_file():
        return None
    try:
        settings = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: cannot be read ({first_line(error)}); {_AGAIN}") from error
    if not isinstance(settings, dict) or not isinstance(settings.get("peft_type"), str):
        raise InputError(f"{file}: names no peft_type, so the kind of adapter is unknown; {_AGAIN}")
    if not weights.is_file():
        raise InputError(
            f"{weights}: is missing, but {file.name} lies beside the model's weights; put the "
            "adapter's weights there (not pickled ones), or move its configuration elsewhere"
        )
    check_parts([adapter_part(place)])
    return adapter_words(settings)


def adapter_part(place: Path) -> OptionalPart:
    """What applying the adapter beside a folder's weights needs."""
    return OptionalPart(f"applying the adapter in {place}", "adapters", ("peft",))


def about_adapter(name: str, adapter: str) -> str:
    """What is to be known of any number of a model with an adapter beside its weights."""
    return (
        f"{name} has an adapter beside its weights, {adapter}, which is applied, as transformers "
        "does: numbers are of both together"
    )


def adapter_words(settings: Mapping[str, Any]) -> str:
    """What the settings of an adapter call it, such as ``LORA (rank 4, alpha 48)``."""
    kind = str(getattr(settings["peft_type"], "value", settings["peft_type"]))
    numbers = {"rank": settings.get("r"), "alpha": settings.get("lora_alpha")}
    said = ", ".join(f"{name} {value}" for name, value in numbers.items() if value is not None)
    return f"{kind} ({said})" if said else kind


def read_tokenizer(place: Path, name: str) -> Any:
    """The tokenizer of a folder or GGUF file; InputError if there is none that can be read."""
    if is_gguf(place):
        return read_gguf_tokenizer(open_gguf(place, name), name)
    from transformers import AutoTokenizer

    with telling(
        lambda why: (
            f"{name} has no tokenizer that can be read ({why}); save one there with "
            "tokenizer.save_pretrained(FOLDER)."
        )
    ):
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        size = len(tokenizer)
    if not size:
        raise InputError(
            f"{name} has no tokenizer (its vocabulary is empty); save one there with "
            "tokenizer.save_pretrained(FOLDER)."
        )
    return tokenizer


def tokenizer_of(place: Path, name: str, given: str | os.PathLike[str] | None) -> Any:
    """The tokenizer that is given by a name of its own, else that of the model."""
    if given is None:
        return read_tokenizer(place, name)
    return read_tokenizer(resolve(str(given), None, _OF_TOKENIZERS)[0], str(given))


def state_of_files(place: Path) -> tuple[tuple[Any, ...], ...]:
    """Name, size, times and number of each file that `digest_of_files` reads, which other content
    does not keep."""
    files = [place] if place.is_file() else [*weight_files(place), *(place / a for a in ADAPTER)]
    known = [(file.name, file.stat()) for file in files if file.exists()]
    return tuple((name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for name, s in known)


def digest_of_files(place: Path) -> str:
    """SHA-256 (hexadecimal) of all files that a model's numbers are read from: names and contents,
    by name, of the weights and of an adapter beside them; of a GGUF file its content's."""
    if place.is_file():
        return _digest_of_file(place)
    digest = hashlib.sha256()
    beside = [place / name for name in ADAPTER] if adapter_of(place) else []
    for path in sorted([*weight_files(place), *beside]):
        digest.update(f"{path.name} {_digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str:
    """A kept conversion asks for the digest of a GGUF file that the signature asked for already, so
    it is remembered for a file that has been at rest: times of change have a grain."""
    known = path.stat()
    state = (known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino)
    rested = time.time_ns() - known.st_ctime_ns > _REST
    return (_digested if rested else _digested.__wrapped__)(path, state)


@functools.lru_cache(maxsize=64)
def _digested(path: Path, state: tuple[int, ...]) -> str:
    digest, size = hashlib.sha256(), state[0]
    with path.open("rb") as file:
        starts = range(0, size, _AT_ONCE)
        for start in by_size(DIGESTING, starts, lambda start: min(_AT_ONCE, size - start)):
            digest.update(file.read(min(_AT_ONCE, size - start)))
    return digest.hexdigest()


def sizes_of_tensors(folder: Path) -> dict[str, int]:
    """The bytes of all tensors in a folder's weight files, by name."""
    sizes = {}
    for path in weight_files(folder):
        with path.open("rb") as file:
            try:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(min(length, _LONGEST_HEADER)))
                for name, tensor in header.items():
                    if name != "__metadata__":
                        start, end = tensor["data_offsets"]
                        sizes[name] = end - start
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # the loader says in which way a file is damaged
    return sizes


def digest_of_state(model: torch.nn.Module) -> str:
    """SHA-256 (hexadecimal) of a state dict: names, dtypes, shapes and bytes, by name.

    Of quantised weights the parts they are stored as; of weights that wait in a file or on another
    device what waits there.
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, torch.Tensor):
            _add(digest, name, stored_tensor(model, name, value))
        else:
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def _add(digest: Any, name: str, value: torch.Tensor) -> None:
    digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
    value = value.detach()
    if hasattr(value, "__tensor_flatten__"):  # a tensor made of several
        parts, _ = value.__tensor_flatten__()
        for part in sorted(parts):
            inside = getattr(value, part)
            if isinstance(inside, torch.Tensor):
                _add(digest, f"{name}.{part}", inside)
        return
    flat = value.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().tobytes())
