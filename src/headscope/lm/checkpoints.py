"""What a model's folder holds: found on disk or downloaded, looked through, read; digests of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headscope.errors import InputError, first_line, nearest, refuse_pipes, telling
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
#: What safetensors allows for the names and places of tensors, in bytes.
_LONGEST_HEADER = 100_000_000
#: How configurations call their number of layers.
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
_ADVICE = "use a decoder language model such as Llama, Qwen or GPT-2"
_CONVERT = (
    "convert them once with AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
# What a decoder needs: its configuration, its weights and its tokenizer, top level only.
_PATTERNS = ("*.json", "model*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken")

_OF_TOKENIZERS = tuple(pattern for pattern in _PATTERNS if "safetensors" not in pattern)


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
    return folder, folder.name


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
            check_weights(folder, name)
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


def check_weights(folder: Path, name: str) -> None:
    if is_gguf(folder) or any(folder.glob("model*.safetensors")):
        return
    pickled = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))
    if pickled:
        raise InputError(
            f"{name} holds only pickled weights ({pickled[0].name}), which headscope does not "
            f"read because they can run code; {_CONVERT}."
        )
    files = sorted(path.name for path in folder.glob("*.gguf"))
    if files:
        raise InputError(f"{name} holds GGUF files; name one of them: {name}/{files[0]}.")
    raise InputError(
        f"{name} holds no weights (model.safetensors or its shards); save the model there, or if "
        f"the Hub has only pickled weights, {_CONVERT}."
    )


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


def digest_of_files(place: Path) -> str:
    """SHA-256 (hexadecimal) of a folder's weight files: names and contents, by name; of a GGUF
    file its content's."""
    if place.is_file():
        return _digest_of_file(place)
    digest = hashlib.sha256()
    for path in sorted(place.glob("model*.safetensors")):
        digest.update(f"{path.name} {_digest_of_file(path)}\n".encode())
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str:
    digest, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        starts = range(0, size, _AT_ONCE)
        for start in by_size(DIGESTING, starts, lambda start: min(_AT_ONCE, size - start)):
            digest.update(file.read(min(_AT_ONCE, size - start)))
    return digest.hexdigest()


def sizes_of_tensors(folder: Path) -> dict[str, int]:
    """The bytes of all tensors in a folder's weight files, by name."""
    sizes = {}
    for path in folder.glob("model*.safetensors"):
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
    flat = value.cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().tobytes())
