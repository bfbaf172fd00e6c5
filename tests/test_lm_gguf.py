"""GGUF files: the same model as in a folder, the same tokens as the vocabulary says, refusals."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import os
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import pre_tokenizers

import headscope
from conftest import json_of
from headscope import scratch
from headscope.errors import Caution, InputError
from headscope.lm import gguf as reading
from headscope.lm import loading, proofs
from headscope.lm.gguf import dequantised, open_gguf, read_gguf_config, read_gguf_tokenizer
from headscope.studies.models import ModelChoice, about_model, model_inputs, model_provenance
from lm_helpers import logits, sample_batch, saved

gguf = pytest.importorskip("gguf")
from gguf_helpers import MERGES, SPACED, TOKENS, rounded, tiny, write  # noqa: E402  (needs gguf)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny()


@pytest.fixture(scope="module")
def file(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "tiny.gguf", model)


def test_a_file_is_the_model_it_was_written_from(model: Any, file: Path, tmp_path: Path) -> None:
    lm = headscope.load(file, device="cpu")
    assert torch.equal(logits(lm.model, sample_batch()), logits(model, sample_batch()))
    assert (lm.geometry.counts, lm.dtype, lm.revision) == ((4, 4), torch.float32, None)
    assert lm.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (lm.quantised, lm.dequantised, lm.eos_token_ids) == (None, None, (2,))
    assert not lm.model.training

    # Saved as a folder it is the same again, for signatures too.
    model.save_pretrained(tmp_path)
    lm.tokenizer.save_pretrained(tmp_path)
    folder = headscope.load(tmp_path, device="cpu")
    mine, theirs = model_inputs(lm), model_inputs(folder)
    assert mine.pop("model") != theirs.pop("model")
    assert mine == theirs


def test_a_file_replaced_at_the_same_size_and_time_is_read_again(
    model: Any, tmp_path: Path
) -> None:
    for sort, place in enumerate((tmp_path / "own.gguf", tmp_path / "other.gguf")):
        ends = {"tokenizer.ggml.eot_token_id": 3 - sort}
        os.utime(write(place, model, fields=ends), ns=(10**18, 10**18))
    assert open_gguf(place.with_stem("own"), "own").metadata["tokenizer.ggml.eot_token_id"] == 3
    assert place.stat().st_size == place.with_stem("own").stat().st_size
    place.replace(place.with_stem("own"))
    assert open_gguf(place.with_stem("own"), "own").metadata["tokenizer.ggml.eot_token_id"] == 2


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_quantised_weights_are_those_that_gguf_itself_reads_back(
    model: Any, tmp_path: Path, kind: str
) -> None:
    lm = headscope.load(write(tmp_path / "tiny.gguf", model, kind), device="cpu")
    found, moved = lm.model.state_dict(), 0
    for name, tensor in model.state_dict().items():
        # Blocks run along a row, and q and k change places by rows, so rounding is the same.
        assert torch.equal(found[name], rounded(tensor, kind)), name
        moved += not torch.equal(found[name], tensor)
    assert moved == 16  # every matrix
    assert (lm.dequantised, lm.quantised) == (kind, None)
    assert not hasattr(lm.model.config, "quantization_config")
    assert not getattr(lm.model, "is_quantized", False)
    assert not hasattr(lm.model, "hf_quantizer")
    told = ModelChoice(str(tmp_path / "tiny.gguf"), device="cpu").load()
    assert told.dequantised == kind


def test_blocks_of_every_kind_are_those_of_the_whole_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_AT_ONCE", 768)  # so that a tensor has several and a rest
    random, wholes = np.random.default_rng(0), {}
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "llama")
    for kind, (values, size) in gguf.GGML_QUANT_SIZES.items():
        blocks = random.integers(0, 256, (5, 512 // values * size), dtype=np.uint8)
        with contextlib.suppress(NotImplementedError), np.errstate(all="ignore"):
            wholes[kind.name] = gguf.dequantize(blocks, kind)
            writer.add_tensor(kind.name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(tmp_path / "kinds.gguf", "kinds")
    assert len(wholes) >= 25 and set(file.tensors) == set(wholes)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for kind, tensor in file.tensors.items():
            with np.errstate(all="ignore"):
                made = dequantised(file, tensor, dtype)
            whole = torch.from_numpy(np.array(wholes[kind])).to(dtype)
            torch.testing.assert_close(made, whole, rtol=0, atol=0, equal_nan=True, msg=kind)


@pytest.mark.parametrize(("dtype", "tied"), [("float32", False), ("bfloat16", True)])
def test_a_kept_conversion_is_the_model_of_the_file(
    dtype: str, tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "cached_assets_path", lambda *_, **__: tmp_path)
    ends = {"tokenizer.ggml.eot_token_id": 3}
    path = write(tmp_path / "it.gguf", tiny(tie_word_embeddings=tied), "Q4_0", fields=ends)

    def set_in(settings: Any) -> dict[str, Any]:
        return {key: value for key, value in settings.to_dict().items() if value}

    plain = headscope.load(path, device="cpu", dtype=dtype)
    assert (plain.model.lm_head.weight is plain.model.model.embed_tokens.weight) is tied
    folder = loading.keep_converted(str(path), dtype)
    assert loading.keep_converted(str(path), dtype) == folder

    monkeypatch.setattr(loading, "lazily", lambda *_: pytest.fail("dequantised again"))
    kept = headscope.load(path, device="cpu", dtype=dtype)
    assert (kept.model.lm_head.weight is kept.model.model.embed_tokens.weight) is tied
    assert kept.dtype == plain.dtype and (kept.digest, kept.dequantised) == (plain.digest, "Q4_0")
    assert kept.model.state_dict().keys() == plain.model.state_dict().keys()
    assert all(
        torch.equal(tensor, kept.model.state_dict()[name])
        for name, tensor in plain.model.state_dict().items()
    )
    assert model_inputs(kept) == model_inputs(plain)
    assert set_in(kept.model.generation_config) == set_in(plain.model.generation_config)
    os.utime(path, (1, 1))  # the same file at another time
    headscope.load(path, device="cpu", dtype=dtype)
    about, content = path.stat(), bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))  # another file of the same time
    with pytest.raises(pytest.fail.Exception, match="dequantised again"):
        headscope.load(path, device="cpu", dtype=dtype)


def test_a_conversion_that_was_touched_is_not_used(
    model: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "cached_assets_path", lambda *_, **__: tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    folder = loading.keep_converted(str(file))
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 255
    weights.write_bytes(content)
    with pytest.warns(Caution, match="headscope cache"):
        loaded = headscope.load(file, device="cpu", check="never")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor), name
    assert loading.keep_converted(str(file)) == folder
    assert proofs.kept_conversion(file, torch.float32) == folder


_CONVERTS = (
    "import sys\n"
    "from headscope.lm import loading\n"
    "real = loading.scratch\n"
    "def told(*args):\n    print('converts', flush=True)\n    return real(*args)\n"
    "loading.scratch = told\n"
    "print(loading.keep_converted(sys.argv[1]))\n"
)


def test_processes_that_convert_at_once_convert_once(file: Path, tmp_path: Path) -> None:
    env = {**os.environ, "HF_ASSETS_CACHE": str(tmp_path / "assets"), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, "-c", _CONVERTS, str(file)], env=env, text=True,
                         stdout=subprocess.PIPE)
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=300)[0].split("\n") for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sum("converts" in lines for lines in said) == 1
    assert len({lines[-2] for lines in said}) == 1 and Path(said[0][-2]).is_dir()


def test_what_a_killed_conversion_left_is_told_and_swept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    env = {**os.environ, "HF_ASSETS_CACHE": str(tmp_path / "assets"), "OMP_NUM_THREADS": "1"}
    stops = (
        "from transformers import PreTrainedModel\nimport time\n"
        "save = PreTrainedModel.save_pretrained\n"
        "def slow(*args, **kwargs):\n"
        "    save(*args, **kwargs)\n    print('half', flush=True)\n    time.sleep(600)\n"
        "PreTrainedModel.save_pretrained = slow\n"
    )
    process = subprocess.Popen([sys.executable, "-c", stops + _CONVERTS, str(file)], env=env,
                               text=True, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    while process.stdout.readline() != "half\n":
        assert process.poll() is None
    there = functools.partial(proofs.cached_assets_path, assets_dir=tmp_path / "assets")
    monkeypatch.setattr(proofs, "cached_assets_path", there)
    monkeypatch.setattr(scratch, "_BEING_MADE", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def told(*options: str) -> dict[str, Any]:
        said: dict[str, Any] = json_of(command("cache", "--json", *options).out)
        return said

    assert told("--sweep")["left"] == {}  # another process is at it
    process.kill()
    process.wait()
    ((place, size),) = told()["left"].items()
    assert size > 1000 and told()["kept"] == {}
    assert "killed (1)" in command("cache").out
    assert told("--sweep")["left"] == {place: size} and told()["left"] == {}
    assert not Path(place).exists()
    assert list(told()["kept"]) == [] and len(told("--clear", str(file))["kept"]) == 1


def test_what_is_kept_is_told_with_its_size_and_deleted(
    model: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    monkeypatch.setattr(proofs, "cached_assets_path", lambda *_, **__: tmp_path)
    assert json_of(command("cache", "--json").out)["kept"] == {}
    told = json_of(command("cache", file, "--dtype", "bfloat16", "--json").out)
    ((name, size),) = told["kept"].items()
    assert name.startswith("tiny.gguf bfloat16 ") and told["folder"] == str(tmp_path)
    assert 0 < size - sum(2 * one.numel() for one in model.state_dict().values()) < 20_000
    assert name in command("cache").out
    assert json_of(command("cache", "--clear", "--json").out)["kept"] == {}
    assert command("cache", "pocket").code == 2


def test_placement_and_dtype_are_as_for_any_model(model: Any, file: Path) -> None:
    batch = sample_batch()
    spread = headscope.load(file, device_map="auto", max_memory={"cpu": "100KB"})
    assert "disk" in spread.model.hf_device_map.values()
    assert torch.equal(logits(spread.model, batch), logits(model, batch))
    half = headscope.load(file, device="cpu", dtype="bfloat16", check=False)
    assert half.dtype == torch.bfloat16
    for name, tensor in model.state_dict().items():
        assert torch.equal(half.model.state_dict()[name], tensor.bfloat16())


def test_a_file_of_the_hub_is_named_behind_the_id(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []

    def download(name: str, revision: str | None, noun: str, patterns: list[str]) -> Path:
        asked.append((name, revision, *patterns))
        return file.parent

    monkeypatch.setattr("headscope.lm.checkpoints.download", download)
    lm = headscope.load(f"some-org/tiny-GGUF/{file.name}", "v1", "cpu")
    assert asked == [("some-org/tiny-GGUF", "v1", file.name)]
    assert lm.revision == file.parent.name and lm.digest == headscope.load(file).digest
    with pytest.raises(InputError, match=r"holds no file other\.gguf"):
        headscope.load("some-org/tiny-GGUF/other.gguf")


@pytest.mark.parametrize(
    ("split", "tokens"),
    [
        ("gpt-2", ["Ġthe", "Ġ", "12", "Ġ", "c", "a", "t", "<turn>", "c", "a", "t"]),
        ("smollm", ["Ġthe", "Ġ", "1", "2", "Ġ", "c", "a", "t", "<turn>", "c", "a", "t"]),
        ("llama-bpe", ["<s>", "Ġthe", "Ġ", "12", "Ġ", "c", "a", "t", "<turn>", "cat"]),
    ],
)
def test_text_is_split_as_the_file_says(
    model: Any, tmp_path: Path, split: str, tokens: list[str]
) -> None:
    lm = headscope.load(write(tmp_path / "tiny.gguf", model, split=split), device="cpu")
    text = " the 12 cat<turn>cat"
    ids = lm.encode(text)
    assert [TOKENS[index] for index in ids] == tokens
    assert lm.tokenizer.decode(lm.encode(text, special=False)) == text
    for other in ("Zażółć 3.14\n\n  x", "ありがとう 🙂", "e\u0301 \u200f\u00a0"):
        assert lm.tokenizer.decode(lm.encode(other, special=False)) == other


@pytest.mark.parametrize(
    ("prefix", "tokens"),
    [
        (True, ["<s>", "▁a", "▁b", "c", "</s>", "▁a", "<0xC3>", "<0xA9>"]),
        (False, ["<s>", "a", "▁b", "c", "</s>", "a", "<0xC3>", "<0xA9>"]),
    ],
)
def test_a_space_is_put_before_a_text_where_the_file_says_so(
    model: Any, tmp_path: Path, prefix: bool, tokens: list[str]
) -> None:
    lm = headscope.load(write(tmp_path / "tiny.gguf", model, prefix=prefix), device="cpu")
    assert [SPACED[index] for index in lm.encode("a bc</s>aé")] == tokens
    for text in ("a bc", " a  b", "ba\né"):
        assert lm.tokenizer.decode(lm.encode(text, special=False)) == text


#: Sentences in twelve languages, numbers, contractions, and characters in two parts.
TEXTS = (
    "The dog sees the old house; it doesn't bark 12 times.",
    "Der Hund schläft früh.",
    "¿Dónde está el niño?",
    "Où est l'élève, à 3 h 45?",
    "Собака видит 1234 дома, йод.",
    "Köpek eski evi görüyor.",
    "狗看到河边的老房子。",
    "犬は川の近くの古い家を見る。ガ",
    "개는 강가의 오래된 집을 본다.",
    "หมาเห็นบ้านเก่า",
    "कुत्ता पुराना घर देखता है। क़लम",
    "Con chó nhìn thấy ngôi nhà cũ.",
    "الكلب يرى البيت القديم، مُؤَذِّن",
)


def _own(name: str) -> Any:
    """An architecture's own tokenizer in `transformers`, of the vocabulary in the files."""
    bytewise = {token: index for index, token in enumerate(TOKENS)}
    pairs = [tuple(merge.split(" ")) for merge in MERGES]
    pieces = {token: index for index, token in enumerate(SPACED)}
    if name in ("LlamaTokenizer", "GemmaTokenizer"):
        given: dict[str, Any] = {"vocab": pieces, "merges": [("▁", end) for end in "ab▁"]}
        if name == "GemmaTokenizer":  # the names of the special tokens in this vocabulary
            given |= dict.fromkeys(("pad_token", "mask_token", "unk_token"), "<unk>")
            given |= {"bos_token": "<s>", "eos_token": "</s>"}
    else:
        given = {"vocab": bytewise, "merges": pairs}
        given |= dict.fromkeys(("unk_token", "pad_token", "eos_token", "bos_token"), "</s>")
    own = getattr(transformers, name.removesuffix(" digits"))(**given)
    if name.endswith(" digits"):
        apart = pre_tokenizers.Digits(individual_digits=True)
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
        own.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([apart, plain])
    return own


@pytest.mark.parametrize(
    ("architecture", "split", "own"),
    [
        ("qwen2", "qwen2", "Qwen2Tokenizer"),
        ("qwen2moe", "deepseek-r1-qwen", "Qwen2Tokenizer"),
        ("qwen3", "qwen2", "Qwen2Tokenizer"),
        ("llama", "qwen2", "Qwen2Tokenizer"),
        ("stablelm", "stablelm2", "Qwen2Tokenizer"),
        ("qwen35", "qwen35", "Qwen3_5Tokenizer"),
        ("stablelm", "gpt-2", "GPTNeoXTokenizer"),
        ("llama", "olmo", "GPTNeoXTokenizer"),
        ("gpt2", "gpt-2", "GPT2Tokenizer"),
        ("starcoder2", "starcoder", "GPT2Tokenizer digits"),
        ("llama", "smollm", "GPT2Tokenizer digits"),
        ("llama", None, "LlamaTokenizer"),
        ("phi3", None, "LlamaTokenizer"),
        ("gemma3", None, "GemmaTokenizer"),
    ],
)
def test_ids_are_those_of_the_architectures_own_tokenizer(
    tmp_path: Path, architecture: str, split: str | None, own: str
) -> None:
    path = tmp_path / "it.gguf"
    prefix = None if split else architecture != "gemma3"
    write(path, None, split=split, architecture=architecture, prefix=prefix)
    made, theirs = read_gguf_tokenizer(open_gguf(path, "it"), "it"), _own(own)
    composed = 0
    for text in (*TEXTS, *(unicodedata.normalize("NFD", text) for text in TEXTS)):
        ids = made(text, add_special_tokens=False)["input_ids"]
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
        assert made.decode(ids) == theirs.decode(ids)
        composed += made.decode(ids) != text
    assert bool(composed) == (own in ("Qwen2Tokenizer", "Qwen3_5Tokenizer", "GPTNeoXTokenizer"))


def test_a_result_tells_where_llama_cpp_reads_other_ids(model: Any, tmp_path: Path) -> None:
    told = {}
    for split in ("qwen2", "gpt-2"):
        lm = headscope.load(write(tmp_path / "it.gguf", model, split=split), check=False)
        told[split] = model_provenance(lm).get("characters"), about_model(lm).get("characters")
    assert told["gpt-2"] == (None, None)
    assert all(said and "llama.cpp" in said for said in told["qwen2"])


def test_special_tokens_of_phi3_take_in_the_space_behind_them(tmp_path: Path) -> None:
    ids = {}
    for architecture in ("phi3", "llama"):
        path = write(tmp_path / "it.gguf", None, architecture=architecture, prefix=True)
        tokenizer = read_gguf_tokenizer(open_gguf(path, "it"), "it")
        ids[architecture] = tokenizer("</s>\n a<s> b", add_special_tokens=False)["input_ids"]
    # As in Phi-3's own tokenizer.json, but for <s>, <unk> and <|endoftext|>.
    tokens = {name: [SPACED[index] for index in own] for name, own in ids.items()}
    assert tokens["phi3"] == ["</s>", "▁a", "<s>", "▁", "▁b"]
    assert tokens["llama"] == ["</s>", "▁", "<0x0A>", "▁a", "<s>", "▁", "▁b"]


def test_every_end_of_a_turn_ends_a_text_and_the_template_is_there(
    model: Any, tmp_path: Path
) -> None:
    template = "{{ messages[0].content }}"
    fields = {"tokenizer.ggml.eot_token_id": 3, "tokenizer.chat_template": template}
    lm = headscope.load(write(tmp_path / "tiny.gguf", model, fields=fields), device="cpu")
    assert lm.eos_token_ids == (2, 3)
    said = [{"role": "user", "content": "in"}]
    assert lm.tokenizer.apply_chat_template(said, tokenize=False) == "in"


def test_another_tokenizer_can_be_named(model: Any, file: Path, tmp_path: Path) -> None:
    bare = write(tmp_path / "bare.gguf", model, split=None)
    with pytest.raises(InputError, match=r"bare.gguf has no tokenizer.*--tokenizer"):
        headscope.load(bare, device="cpu")
    named = headscope.load(bare, device="cpu", tokenizer=file)
    assert named.encode("the") == headscope.load(file, device="cpu").encode("the")
    folder = saved(tmp_path / "folder", "llama")
    other = headscope.load(bare, device="cpu", tokenizer=folder)
    assert other.encode("the") != named.encode("the")
    # What it reads is in the signature, where it lies is not.
    assert model_inputs(other)["tokenizer"] != model_inputs(named)["tokenizer"]
    with pytest.raises(InputError, match=r"knows 96 tokens.*has 266"):
        headscope.load(folder, device="cpu", tokenizer=file)


def test_a_file_cut_anywhere_is_refused(file: Path, tmp_path: Path) -> None:
    content = file.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in (*range(4, len(content), len(content) // 40), len(content) - 1):
        cut.write_bytes(content[:size])
        with pytest.raises(InputError, match=r"cut.gguf is cut short"):
            open_gguf(cut, "cut.gguf")


def test_what_is_not_the_files_model_is_refused(model: Any, file: Path, tmp_path: Path) -> None:
    def refused(path: Path, **options: Any) -> str:
        with pytest.raises(InputError) as told:
            headscope.load(path, device="cpu", **options)
        assert path.name in str(told.value) and "\n" not in str(told.value)
        return str(told.value)

    other = tmp_path / "other.gguf"
    other.write_text("weights")
    assert "no GGUF file" in refused(other)
    assert "no file" in refused(tmp_path / "missing.gguf")
    assert f"{tmp_path}/other.gguf" in refused(tmp_path)
    assert "revision" in refused(file, revision="main")
    assert "always dequantised" in refused(file, quantise="8bit")
    assert "'nonesuch'" in refused(write(other, model, architecture="nonesuch"))
    assert "encoder" in refused(write(other, model, architecture="t5"))
    assert "'falcon'" in refused(write(other, model, split="falcon"))
    assert "llama-gguf-split" in refused(write(other, model, fields={"split.count": 2}))
    # A Llama with biases, or positions scaled in a way that would be left out, is another model.
    bias = {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    assert "blk.0.attn_q.bias" in refused(write(other, model, tensors=bias))
    factors = {"rope_freqs.weight": np.arange(1, 9, dtype=np.float32)}
    assert "rope_freqs.weight" in refused(write(other, model, tensors=factors))
    few = tiny(vocab_size=100)
    assert "knows 100 tokens. Its tokenizer has" in refused(write(other, few))
    scaled = {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}
    assert "longrope" in refused(write(other, model, fields=scaled))
    long = {"rope_factors_long.weight": np.full(8, 2, np.float32)}
    assert "rope_factors_long.weight" in refused(write(other, model, tensors=long))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("split.count", "2"),
        ("tokenizer.ggml.eot_token_id", [3]),
        ("tokenizer.ggml.eot_token_id", "3"),
        ("llama.block_count", 4_000_000_000),
        ("llama.block_count", "2"),
        ("llama.attention.layer_norm_rms_epsilon", None),
    ],
)
def test_entries_of_another_kind_are_one_sentence(
    key: str, value: Any, model: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "tiny.gguf", model, fields={key: value})
    for way in (lambda: headscope.load(path, device="cpu"), ModelChoice(str(path)).load_for):
        with pytest.raises(InputError) as told:
            way()
        assert key.rpartition(".")[2] in str(told.value) or "part of 2" in str(told.value)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["tiny.gguf", "model.safetensors", "tokenizer.json"])
def test_a_pipe_named_as_weights_is_told(model: Any, file: Path, tmp_path: Path, name: str) -> None:
    headscope.load(file, device="cpu").tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"{name} is a pipe or a device"):
        headscope.load(tmp_path / name if name.endswith(".gguf") else tmp_path, device="cpu")


LORA = {f"blk.0.attn_q.weight.lora_{one}": np.zeros((4, 64), np.float32) for one in "ab"}
VECTOR = {"direction.1": np.zeros(64, np.float32)}


@pytest.mark.parametrize(
    ("architecture", "fields", "tensors", "held"),
    [
        ("llama", {"general.type": "adapter", "adapter.type": "lora"}, LORA, "LoRA"),
        ("llama", {}, LORA, "LoRA"),
        ("clip", {"general.type": "mmproj"}, VECTOR, "images"),
        ("clip", {}, VECTOR, "images"),
        ("llama", {"general.type": "imatrix"}, VECTOR, "importance matrix"),
        ("controlvector", {}, VECTOR, "control vector"),
        ("llama", {"general.type": "model"}, {}, "--tokenizer"),
    ],
)
def test_a_file_that_holds_no_model_is_refused_for_what_it_holds(
    tmp_path: Path, architecture: str, fields: dict[str, Any], tensors: Any, held: str
) -> None:
    path = tmp_path / "other.gguf"
    write(path, None, architecture=architecture, fields=fields, tensors=tensors)
    with pytest.raises(InputError) as told:
        headscope.load(path, device="cpu")
    assert str(told.value).startswith(f"{path} holds") and held in str(told.value)


def test_a_part_is_refused_with_the_parts_that_are_not_there(tmp_path: Path) -> None:
    names = [f"big-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    for number in (1, 0, 2):
        path = tmp_path / names[number]
        write(path, None, fields={"split.no": number, "split.count": 3}, tensors=VECTOR)
        with pytest.raises(InputError, match=f"part {number + 1} of 3.*--merge {names[0]}") as told:
            headscope.load(path, device="cpu")
        missing = [name for name in names if not (tmp_path / name).exists()]
        shown = {name for name in names[1:] if f"{name} " in str(told.value).split("; ")[1]}
        assert shown == set(missing[:1]) - {names[0]}
        assert ("fetch" in str(told.value)) == bool(missing)


def test_lists_of_another_length_than_the_vocabulary_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "pieces.gguf", None, prefix=True)
    count = len(SPACED).to_bytes(8, "little")
    for key, kind, width in (("scores", 6, 4), ("token_type", 5, 4)):
        content = bytearray(path.read_bytes())
        head = b"tokenizer.ggml." + key.encode() + (9).to_bytes(4, "little")
        at = content.index(head) + len(head)
        assert content[at : at + 12] == kind.to_bytes(4, "little") + count
        content[at + 4 : at + 12] = (len(SPACED) - 1).to_bytes(8, "little")
        del content[at + 12 : at + 12 + width]
        short = tmp_path / "short.gguf"
        short.write_bytes(bytes(content))
        with pytest.raises(InputError, match=f"{len(SPACED)} tokens have {len(SPACED) - 1} {key}"):
            read_gguf_tokenizer(open_gguf(short, "short"), "short")


def test_a_tensor_that_begins_in_another_is_refused(file: Path, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    name = b"blk.1.attn_q.weight"
    # Behind the name: the number of dimensions, two of them, the type, and where it begins.
    at = content.index(name) + len(name) + 4 + 16 + 4
    begin = int.from_bytes(content[at : at + 8], "little")
    content[at : at + 8] = (begin - 32).to_bytes(8, "little")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"blk\.1\.attn_q\.weight does not begin"):
        open_gguf(damaged, "damaged.gguf")


def test_scaled_positions_are_those_of_the_file(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "scaled.gguf"
    scaled = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = read_gguf_config(open_gguf(write(path, model, fields=scaled), "it"), "it")
    assert config.rope_parameters == {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    config = read_gguf_config(open_gguf(write(path, model), "it"), "it")
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}

    # Llama 3: the file holds by how much each frequency is divided.
    wanted = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    longer = tiny(rope_parameters=wanted, max_position_embeddings=131072)
    theta, width = 500000.0, longer.config.head_dim
    plain = theta ** -(torch.arange(0, width, 2) / width)
    divisors = plain / longer.model.rotary_emb.inv_freq
    assert divisors[0] == 1 and math.isclose(float(divisors[-1]), 32, rel_tol=1e-5)
    write(path, longer, tensors={"rope_freqs.weight": divisors.numpy()})
    lm = headscope.load(path, device="cpu")
    assert lm.model.config.rope_parameters == wanted
    assert torch.equal(logits(lm.model, sample_batch()), logits(longer, sample_batch()))
