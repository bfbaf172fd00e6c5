"""GGUF files, the form in which llama.cpp keeps models: read by ``transformers``, dequantised.

A file holds configuration, tokenizer and weights. ``transformers`` rebuilds all three; what it
leaves out, so that the model would compute something else than the file says, is put right here
where the file says enough, and refused otherwise. Weights are dequantised by the package ``gguf``,
one parameter at a time and block by block, and the model is an ordinary one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headscope.errors import InputError, OptionalPart, check_parts, first_line, refuse_pipes
from headscope.lm.gguf_metadata import ADVICE, DIVISORS, LONG, SHORT, complete
from headscope.lm.owners import LIBRARY

# What numpy and others' readers raise where bytes are missing or mean nothing.
_UNREADABLE = (ValueError, IndexError, KeyError, TypeError, AttributeError)
#: Ids that end a text or a turn; ``transformers`` reads the first alone.
_ENDS = ("eos", "eot", "eom")
#: Byte-level vocabularies beside those that `transformers` splits text for, by the name that
#: llama.cpp gives their way of splitting: as GPT-2, as GPT-2 with every digit apart, as Qwen 2.
_AS_GPT2 = frozenset(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion"))
_DIGITS_APART = frozenset(
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
)
_AS_QWEN2 = frozenset(("stablelm2", "hunyuan", "solar-open", "grok-2"))
#: Those that take a word of the vocabulary whole, whatever the merges would make of it, and begin
#: with BOS where the file does not say.
_LLAMA3_ALIKE = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2")
_WHOLE_WORDS = frozenset((*_LLAMA3_ALIKE, "midm-2.0", "tekken"))
#: Those whose own tokenizers compose characters (NFC) before they split, which no file says and
#: llama.cpp leaves out; and architectures whose byte-level tokenizers all do.
_COMPOSED = frozenset(
    ("qwen2", "qwen35", "deepseek-r1-qwen", "f2llmv2", "stablelm2", "mpt", "olmo")
)
_COMPOSING = frozenset(
    ("qwen2", "qwen2moe", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "stablelm")
)
#: Special tokens of Phi-3 that leave the space after them; its others take it in.
_LEAVE_SPACE = frozenset(("<unk>", "<s>", "<|endoftext|>"))
#: What files hold that are no models, by what they call themselves (`general.type`, or for want of
#: that the architecture), and what to name instead.
_BASE = "name the GGUF file of the model it is for"
_NO_MODELS = {
    "adapter": f"an adapter (LoRA); {_BASE}, or of both, merged by llama.cpp's llama-export-lora",
    "mmproj": f"what makes images or sound readable for a model; {_BASE}",
    "clip": f"what makes images or sound readable for a model; {_BASE}",
    "imatrix": f"an importance matrix, for quantising a model; {_BASE}",
    "controlvector": f"a control vector, which steers a model; {_BASE}",
    "vocab": "a tokenizer; name it by --tokenizer, and a model with weights",
}
#: How many numbers are dequantised in one go: what comes between stays in a core's cache. A
#: multiple of every kind's block.
_AT_ONCE = 1 << 17
_MOST_LAYERS = 10_000
#: Parts of a model are numbered in 16 bits.
_MOST_PARTS = 1 << 16
#: Longer lists are of tokens, not of layers.
_LONG = 4096


def is_gguf(name: str | Path) -> bool:
    """Whether a name is that of a GGUF file."""
    return Path(name).suffix.lower() == ".gguf"


def gguf_part(name: str | Path) -> OptionalPart:
    """What reading such a file needs: transformers asks for both packages."""
    return OptionalPart(f"reading {name}", "gguf", ("gguf", "accelerate"))


@dataclass(frozen=True)
class GgufFile:
    """What the head of a file says.

    `metadata` has every entry but the tokenizer's lists; `tensors` all tensors by name, mapped;
    `quantised` how the weights are stored, as llama.cpp calls it (``Q4_K_M``), or None if they are
    plain numbers; `has_tokenizer` whether there is a vocabulary.
    """

    path: Path
    architecture: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Any]
    quantised: str | None
    has_tokenizer: bool

    def of_model(self, name: str) -> Any:
        """An entry under the architecture's own prefix, or None."""
        return self.metadata.get(f"{self.architecture}.{name}")


def open_gguf(path: Path, name: str) -> GgufFile:
    """Read a file's head and make sure that all of its tensors are there; `name` is for messages.

    Raises `InputError` if it is no GGUF file, cut short, one part of several, or a package is
    missing.
    """
    check_parts([gguf_part(name)])
    refuse_pipes(path)
    status = path.stat()
    state = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return _opened(path, name, state)


@functools.lru_cache(maxsize=2)
def _opened(path: Path, name: str, _state: tuple[int, ...]) -> GgufFile:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise InputError(f"{name} is no GGUF file (it does not begin with GGUF); check it.")
    try:
        reader = _reader_class()(path)
        metadata = {
            key: field.contents()
            for key, field in reader.fields.items()
            if len(field.data) == 1 or not key.startswith("tokenizer.")
        }
        size = path.stat().st_size
        ends = [tensor.data_offset + tensor.n_bytes for tensor in reader.tensors]
        starts = [reader.data_offset, *(end + -end % reader.alignment for end in ends)]
    except (*_UNREADABLE, OverflowError, struct.error) as error:
        raise InputError(
            f"{name} is cut short or damaged ({first_line(error)}); copy or download it again."
        ) from error
    if max(ends, default=0) > size:
        raise InputError(
            f"{name} is cut short ({size:,} of {max(ends):,} bytes); copy or download it again."
        )
    for tensor, start in zip(reader.tensors, starts, strict=False):
        if tensor.data_offset != start:  # llama.cpp refuses this, too
            raise InputError(
                f"{name} is damaged (its tensor {tensor.name} does not begin where the one before "
                "ends); copy or download it again."
            )
    if metadata.get("split.count", 1) not in (0, 1):
        raise _one_of_several(path, name, metadata)
    if "general.architecture" not in metadata:
        raise InputError(f"{name} names no general.architecture, so it holds no model; {ADVICE}.")
    return GgufFile(
        path,
        str(metadata["general.architecture"]),
        metadata,
        {tensor.name: tensor for tensor in reader.tensors},
        _stored_as(metadata, reader.tensors),
        "tokenizer.ggml.tokens" in reader.fields and "tokenizer.ggml.model" in reader.fields,
    )


def _one_of_several(path: Path, name: str, metadata: Mapping[str, Any]) -> InputError:
    """The error of one part of a model, which names the parts that are not beside it."""
    number, parts = metadata.get("split.no"), metadata["split.count"]
    if not (type(number) is type(parts) is int and 0 <= number < parts <= _MOST_PARTS):
        return InputError(
            f"{name} is one part of {parts!s:.40}; join them with llama.cpp's llama-gguf-split "
            "--merge."
        )
    own = f"-{number + 1:05d}-of-{parts:05d}"
    every = [f"-{part:05d}-of-{parts:05d}.gguf" for part in range(1, parts + 1)]
    names = [f"{path.stem.removesuffix(own)}{ending}" for ending in every]
    missing = [part_name for part_name in names if not (path.parent / part_name).is_file()]
    if not path.stem.endswith(own) or not missing:
        fix = "join them"
    else:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        fix = f"{missing[0]}{more} is not beside it: fetch all parts and join them"
    return InputError(
        f"{name} is part {number + 1} of {parts} of a model; {fix} with llama.cpp's "
        f"llama-gguf-split --merge {names[0]} WHOLE.gguf."
    )


def _refuse_no_model(file: GgufFile, name: str) -> None:
    """Raises `InputError` for a file that holds something else than a model."""
    kind = file.metadata.get("general.type")
    if all(tensor.endswith((".lora_a", ".lora_b")) for tensor in file.tensors):
        kind = "adapter" if file.tensors else "vocab"
    for kind_of_file in map(str, (kind, file.architecture)):
        if kind_of_file in _NO_MODELS:
            raise InputError(f"{name} holds {_NO_MODELS[kind_of_file]}.")


def _stored_as(metadata: Mapping[str, Any], tensors: Any) -> str | None:
    """The name of the file's mixture of types, or its commonest quantised type."""
    from gguf import LlamaFileType

    sizes: dict[str, int] = {}
    for tensor in tensors:
        kind = tensor.tensor_type.name
        if kind not in ("F64", "F32", "F16", "BF16"):
            sizes[kind] = sizes.get(kind, 0) + int(tensor.n_elements)
    if not sizes:
        return None
    with contextlib.suppress(KeyError, ValueError):
        kind = LlamaFileType(metadata["general.file_type"]).name
        if kind.startswith("MOSTLY_") and kind not in ("MOSTLY_F16", "MOSTLY_BF16"):
            return kind.removeprefix("MOSTLY_")
    return max(sizes, key=sizes.__getitem__)


def read_gguf_config(file: GgufFile, name: str) -> Any:
    """The configuration that `transformers` makes of a file, completed
    (see `headscope.lm.gguf_metadata`).

    Raises `InputError` if the file holds no model, or `transformers` cannot read files of this
    architecture.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    _refuse_no_model(file, name)
    check_layers(file.of_model("block_count"), f"{name}: its entry block_count")
    try:
        with lean_reader():
            config = AutoConfig.from_pretrained(file.path.parent, gguf_file=file.path.name)
            if not config.is_encoder_decoder:
                complete(config, file, name)
    except InputError:
        raise
    except (
        *_UNREADABLE,  # entries that are absent or of another type
        ArithmeticError,  # widths that it divides by, and that are 0
        NotImplementedError,  # architectures that it has no mapping of
        StrictDataclassError,  # values that its configuration refuses
    ) as error:
        reason = " ".join(str(error).split()) or first_line(error)
        raise InputError(
            f"{name}: this version of transformers cannot read a GGUF file of the architecture "
            f"{file.architecture!r} ({reason.rstrip('.')}); {ADVICE}."
        ) from error
    config.dtype = torch.float32  # what is dequantised has no dtype of its own
    return config


def check_layers(layers: object, what: str) -> None:
    """Refuse a number of layers with a slip, of which a configuration makes lists, and a model is
    built, until memory is full."""
    if layers is not None and not (type(layers) is int and 0 < layers <= _MOST_LAYERS):
        raise InputError(
            f"{what} is {layers!r:.60}; correct it, a model has 1 to {_MOST_LAYERS:,} layers."
        )


def read_gguf_tokenizer(file: GgufFile, name: str) -> Any:
    """The tokenizer that a file describes, made from the file alone.

    Ids are those of the architecture's own tokenizer in `transformers`; llama.cpp's are others
    where that one composes characters. Raises `InputError` if there is none, or it cannot be made.
    """
    advice = "name the model's own by --tokenizer (tokenizer= in Python), a folder or a Hub id"
    if not file.has_tokenizer:
        raise InputError(f"{name} has no tokenizer in it; {advice}.")
    import transformers
    from tokenizers import decoders, normalizers, pre_tokenizers

    make: Any = transformers.PreTrainedTokenizerFast
    ways = importlib.import_module("transformers.integrations.gguf.gguf_tokenizer_mapping")
    try:
        architecture, described, settings = ways.get_gguf_tokenizer(str(file.path))
        split = described.get("pre_tokenizer_type")
        for kind in ("scores", "token_type"):
            values = described.get(kind)
            if values is not None and len(values) != len(described["tokens"]):
                raise ValueError(f"its {len(described['tokens'])} tokens have {len(values)} {kind}")
        if described.get("tokenizer_type") == "gpt2":
            if split in _AS_QWEN2:
                described["pre_tokenizer_type"] = "qwen2"
            elif split not in {*_AS_GPT2, *_DIGITS_APART, *ways.GGUF_PRE_TOKENIZER_SPLITS}:
                raise ValueError(f"it splits text in a way, {split!r}, that is not known here")
            if split in _WHOLE_WORDS:
                settings.setdefault("add_bos_token", True)
        backend, more = ways.convert_gguf_tokenizer(architecture, described)
        if described.get("tokenizer_type") == "gpt2" and (
            split in _COMPOSED or architecture in _COMPOSING
        ):
            backend.normalizer = normalizers.NFC()
        if split in _WHOLE_WORDS:
            backend.model.ignore_merges = True
        if split in _DIGITS_APART:
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            )
        plain = architecture not in ways.GGUF_SENTENCEPIECE_BUILDERS
        if described.get("tokenizer_type") == "llama" and plain:
            # A space is put before the text, and before what follows a token matched whole,
            # unless the file says no, which transformers does not read.
            space = normalizers.Replace(" ", "▁")
            backend.pre_tokenizer = None
            if described.get("add_prefix_space", True):
                backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), space])
            else:
                backend.normalizer = space
                backend.decoder = decoders.Sequence(
                    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
                )
        if described.get("tokenizer_type") == "llama" and architecture == "phi3":
            backend = _taking_space(backend)
        return make(tokenizer_object=backend, **settings, **more)
    except Exception as error:  # `tokenizers` raises nothing more special
        raise InputError(
            f"{name}: its tokenizer cannot be made ({first_line(error)}); {advice}."
        ) from error


def _taking_space(backend: Any) -> Any:
    """A tokenizer whose special tokens take in the white space after them."""
    state = json.loads(backend.to_str())
    for token in state["added_tokens"]:
        token["rstrip"] = token["special"] and token["content"] not in _LEAVE_SPACE
    return type(backend).from_str(json.dumps(state))


def ends_of_text(file: GgufFile) -> list[int]:
    """Ids that end a text or a turn, as the file names them; `InputError` where it names none."""
    ids = set()
    for key in (f"tokenizer.ggml.{end}_token_id" for end in _ENDS):
        token = file.metadata.get(key)
        if token is not None and type(token) is not int:
            raise InputError(
                f"{file.path}: its entry {key} is {token!r:.60}, not the id of a token; {ADVICE}."
            )
        ids |= set() if token is None else {token}
    return sorted(ids)


def check_all_read(file: GgufFile, unexpected: Sequence[str], name: str) -> None:
    """Make sure that every tensor of a file becomes part of the model; `unexpected` do not.

    Raises `InputError` naming the first tensor that was passed over, such as a bias that the
    architecture usually has not: the model would compute something else than the file.
    """
    if unexpected:
        more = f" and {len(unexpected) - 1} more" if len(unexpected) > 1 else ""
        raise InputError(
            f"{name}: transformers does not read its tensor {unexpected[0]}{more}, so the model "
            f"would not be the file's; {ADVICE}."
        )


@contextlib.contextmanager
def lazily(file: GgufFile, name: str) -> Iterator[dict[str, int]]:
    """Let `transformers` take each tensor of a file when it is due inside, instead of all at once;
    gives the bytes of all by name, also of what they become.

    Raises `InputError` as `check_all_read`.
    """
    from unittest import mock

    import gguf

    sizes = {tensor.name: int(tensor.n_bytes) for tensor in file.tensors.values()}

    def due(*_: Any, model_to_load: Any, **__: Any) -> dict[str, dict[str, _Due]]:
        kind = loader.TENSOR_PROCESSORS.get(file.architecture, loader.TensorProcessor)
        processor, own = kind(config=model_to_load.config.to_dict()), model_to_load.state_dict()
        names = loader.get_gguf_hf_weights_map(model_to_load, processor)
        parts: dict[str, _Due] = {}
        unexpected = []
        for place, tensor in file.tensors.items():
            # Stacked experts are known by the name without `.weight`.
            target = names.get(place) or names.get(place.removesuffix(".weight"))
            if place == "output.weight" and model_to_load.config.tie_word_embeddings:
                continue
            if target is None:
                unexpected += [place] if place not in (DIVISORS, LONG, SHORT) else []
                continue
            made = parts.setdefault(target, _Due(target, own[target], file, processor, names, []))
            made.sources.append(tensor)
            sizes[target] = own[target].nbytes
        check_all_read(file, unexpected, name)
        return {"tensors": parts}

    loader, maps = _loader(), functools.cache(gguf.get_tensor_name_map)  # asked of every module
    with (
        LIBRARY,
        mock.patch.object(loader, "load_gguf_checkpoint", due),
        mock.patch.object(gguf, "get_tensor_name_map", maps),
    ):
        yield sizes


@dataclass(frozen=True)
class _Due:
    """A parameter that is read and dequantised when it is sliced, as those of safetensors are.

    `sources` are the tensors that it is made of by `processor`, of a model whose parameters have
    `names`; `like` has its shape and dtype.
    """

    name: str
    like: torch.Tensor
    file: GgufFile
    processor: Any
    names: Mapping[str, str]
    sources: list[Any]

    def get_dtype(self) -> str:
        return "F32"

    def get_shape(self) -> list[int]:
        return list(self.like.shape)

    def __getitem__(self, index: Any) -> torch.Tensor:
        import numpy as np

        made: dict[str, torch.Tensor] = {}
        for tensor in self.sources:
            zeros = np.broadcast_to(np.float32(0), tensor.shape[::-1])
            if tensor.name in self.names and self._processed(tensor, zeros, {}).weights is zeros:
                made[self.name] = dequantised(self.file, tensor, self.like.dtype)
                continue
            values = dequantised(self.file, tensor, torch.float32).numpy()
            result = self._processed(tensor, values, made)
            if result.name is not None:
                made[self.name] = torch.from_numpy(np.ascontiguousarray(result.weights))
        return made[self.name].to(self.like.dtype)[index]

    def _processed(self, tensor: Any, weights: Any, made: dict[str, torch.Tensor]) -> Any:
        """What `transformers` makes of numbers; of experts, of which several tensors become one
        parameter, it sets that in `made` and gives no name."""
        return self.processor.process(
            weights=weights,
            name=tensor.name,
            tensor_key_mapping=self.names,
            parsed_parameters={"tensors": made},
        )


def dequantised(file: GgufFile, tensor: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor's numbers, as the package makes them of its blocks in 32 bits, in a dtype.

    They are read from the file block by block: what is mapped would count as memory in use.
    """
    import gguf
    import numpy as np

    values, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
    made = torch.empty(tensor.shape[::-1].tolist(), dtype=dtype)
    flat = made.view(-1)
    with file.path.open("rb") as opened:
        opened.seek(tensor.data_offset)
        for start in range(0, len(flat), _AT_ONCE):
            part = flat[start : start + _AT_ONCE]
            blocks = np.fromfile(opened, np.uint8, part.numel() // values * size)
            numbers = gguf.dequantize(blocks.reshape(1, -1), tensor.tensor_type)
            part.copy_(torch.from_numpy(numbers).view(-1))
    return made


def _loader() -> Any:
    """Where `transformers` has its loader of all other architectures."""
    return importlib.import_module("transformers.modeling_gguf_pytorch_utils")


@contextlib.contextmanager
def lean_reader() -> Iterator[None]:
    """Let `transformers` read a file's head without its vocabulary inside.

    The package's own reader makes an object of every entry of a list: a minute for the 262,144
    tokens of Gemma.
    """
    from unittest import mock

    import gguf

    with LIBRARY, mock.patch.object(gguf, "GGUFReader", _reader_class()):
        yield


@functools.cache
def _reader_class() -> Any:
    import gguf
    import numpy as np

    text, array = gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY

    class LeanReader(gguf.GGUFReader):
        """A reader that steps over strings, shown as empty, and over long lists of numbers."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != array:
                return super()._get_field_parts(orig_offs, raw_type)
            kind = gguf.GGUFValueType(self._get(orig_offs, np.uint32)[0])
            count = int(self._get(orig_offs + 4, np.uint64)[0])
            place = orig_offs + 12
            if kind == text:
                data: Any = self.data.data
                for _ in range(count):
                    place += 8 + struct.unpack_from("<Q", data, place)[0]
                return place - orig_offs, [np.zeros(0, np.uint8)], [0] * count, [array, kind]
            if kind not in self.gguf_scalar_to_np or count <= _LONG:
                return super()._get_field_parts(orig_offs, raw_type)
            width = np.dtype(self.gguf_scalar_to_np[kind]).itemsize
            return 12 + count * width, [], [], [array, kind]

    return LeanReader
