"""What a model's folder holds: found on disk or downloaded, looked through, read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.errors import InputError, first_line
from headscope.hub import download

__all__ = ["check_weights", "read_config", "read_tokenizer", "resolve"]

# What reading a configuration with impossible values raises.
_UNREADABLE = (ValueError, OSError, KeyError, TypeError, AttributeError, ArithmeticError)
_ADVICE = "use a decoder language model such as Llama, Qwen or GPT-2"
_CONVERT = (
    "convert them once with AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
# What a decoder needs: its configuration, its weights and its tokenizer, top level only.
_PATTERNS = ("*.json", "model*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken")


def resolve(
    name: str, revision: str | None, patterns: Sequence[str] = _PATTERNS
) -> tuple[Path, str | None]:
    """The folder that holds the model's files, and its commit if it came from the Hub.

    Of a Hub model only files that match `patterns` are brought into the cache.
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
        return path.resolve(), None
    if path.exists():
        raise InputError(f"{name} is a file; give the model's folder or its Hub id.")
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise InputError(f"There is no folder {name}; give a model's folder or its Hub id.")
    # "*/*" leaves out what lies in subfolders: exports to other formats, training states.
    folder = download(name, revision, "model", patterns, ignore=["*/*"])
    return folder, folder.name


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def read_config(folder: Path, name: str) -> Any:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    file = folder / "config.json"
    if not file.is_file():
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
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (*_UNREADABLE, StrictDataclassError) as error:
        if isinstance(raw, dict) and "auto_map" in raw:
            raise InputError(
                f"{name} ({kind}) needs code of its own, which headscope never runs; {_ADVICE}."
            ) from error
        raise InputError(
            f"{name}: this version of transformers cannot read a configuration of type {kind!r} "
            f"({_one_line(error)}); correct config.json, update transformers or {_ADVICE}."
        ) from error
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
    return config


def check_weights(folder: Path, name: str) -> None:
    if any(folder.glob("model*.safetensors")):
        return
    pickled = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))
    if pickled:
        raise InputError(
            f"{name} holds only pickled weights ({pickled[0].name}), which headscope does not "
            f"read because they can run code; {_CONVERT}."
        )
    raise InputError(
        f"{name} holds no weights (model.safetensors or its shards); save the model there, or if "
        f"the Hub has only pickled weights, {_CONVERT}."
    )


def read_tokenizer(folder: Path, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise InputError(
            f"{name} has no tokenizer that can be read ({first_line(error)}); save one there "
            "with tokenizer.save_pretrained(FOLDER)."
        ) from error
    if not len(tokenizer):
        raise InputError(
            f"{name} has no tokenizer (its vocabulary is empty); save one there with "
            "tokenizer.save_pretrained(FOLDER)."
        )
    return tokenizer
