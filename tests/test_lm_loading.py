"""Loading: folders, the Hub's cache without network, devices, dtypes, and clear refusals."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from headscope.errors import InputError, MissingExtra
from headscope.lm import loading
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel
from headscope.lm.tokens import encode
from headscope.studies.models import ModelChoice
from lm_helpers import build, logits, sample_batch, saved, tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "tiny")


def edit(path: Path, **fields: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **fields}), encoding="utf-8")


def test_a_folder_gives_the_saved_model(folder: Path) -> None:
    lm = load(folder, device="cpu")
    batch = sample_batch()
    assert torch.equal(logits(lm.model, batch), logits(build("llama"), batch))
    assert (lm.name, lm.revision, lm.device.type) == (str(folder), None, "cpu")
    assert lm.geometry.counts == (4, 4)
    assert lm.encode("ab") == tokenizer()("ab")["input_ids"]
    assert not lm.model.training
    assert not any(p.requires_grad for p in lm.model.parameters())


def test_a_model_that_is_loaded_is_taken_as_it_is(folder: Path) -> None:
    model, own = build("llama"), tokenizer()
    for lm in (load(model, own), load(model, tokenizer=own, check=False)):
        assert lm.model is model
        assert lm.tokenizer is own
        assert lm.encode("ab") == own("ab")["input_ids"]
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert load(model).tokenizer_or_none is None
    with pytest.raises(InputError, match="leave device"):
        load(model, own, device="cpu")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="twice"):
        load(model, own, tokenizer=own)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="not int"):
        load(5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "content", ['{"eos', "", "[1]", "[" * 100_000, '{"eos_token_id": "2"}', '{"eos_token_id": 2.0}']
)
def test_settings_for_texts_that_cannot_be_read_are_refused(tmp_path: Path, content: str) -> None:
    place = saved(tmp_path) / "generation_config.json"
    place.write_text(content, encoding="utf-8")
    for way in (lambda: load(tmp_path, device="cpu"), ModelChoice(str(tmp_path)).load_for):
        with pytest.raises(InputError, match=r"generation_config\.json"):
            way()
    place.write_text('{"eos_token_id": [5, 2]}', encoding="utf-8")
    assert load(tmp_path, device="cpu").eos_token_ids == (2, 5)
    assert ModelChoice(str(tmp_path)).load_for().eos_token_ids == (2, 5)


def test_dtype_is_float32_on_cpu_unless_asked(tmp_path: Path) -> None:
    build("llama").to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    assert load(tmp_path, device="cpu").dtype == torch.float32
    assert load(tmp_path, device="cpu", dtype="bfloat16").dtype == torch.bfloat16


def test_shards_and_digest(tmp_path: Path, folder: Path) -> None:
    build("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    tokenizer().save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    lm = load(tmp_path, device="cpu")
    digest = lm.digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert load(tmp_path, device="cpu", check=False).digest == digest
    assert load(folder, device="cpu", check=False).digest != digest
    content = bytearray(shards[0].read_bytes())
    content[-1] ^= 1
    shards[0].unlink()  # what is loaded may lie in the file itself
    shards[0].write_bytes(bytes(content))
    assert load(tmp_path, device="cpu", check=False).digest != digest
    assert lm.digest == digest


def test_digest_of_a_wrapped_model_follows_its_weights() -> None:
    def digest(seed: int, dtype: torch.dtype = torch.float32) -> str:
        return LanguageModel.wrap(build("gpt2", seed).to(dtype), check=False).digest

    assert digest(0) == digest(0)
    assert len({digest(0), digest(1), digest(0, torch.bfloat16)}) == 3


def test_device_map_needs_no_device(folder: Path) -> None:
    pytest.importorskip("accelerate")
    lm = load(folder, device_map={"": "cpu"})
    batch = sample_batch()
    assert torch.equal(logits(lm.model, batch), logits(build("llama"), batch))
    with pytest.raises(InputError, match="only one of them"):
        load(folder, device="cpu", device_map="auto")


def test_device_map_without_accelerate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'headscope\[device-map\]'"):
        load(folder, device_map="auto")


def test_a_model_that_hides_its_attention_is_loaded_with_eager(tmp_path: Path) -> None:
    """Falcon's modules return no weights under sdpa, so nothing could be seen of its heads."""
    saved(tmp_path, "falcon")
    lm = load(tmp_path)
    with lm.attention_peaks() as peaks:
        lm.model(input_ids=torch.tensor([[5, 6, 7, 8]], device=lm.device))
    assert (peaks.keys >= 0).all()


def test_multimodal_models_are_loaded_whole(tmp_path: Path) -> None:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
    text = {"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 96}
    vision = {"num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(
        text_config={**shape, **text},
        vision_config={**shape, **vision},
        mm_tokens_per_image=4,
        image_token_index=90,
        boi_token_index=91,
        eoi_token_index=92,
    )
    Gemma3ForConditionalGeneration._from_config(config).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    lm = load(tmp_path, device="cpu")
    assert type(lm.model).__name__ == "Gemma3ForConditionalGeneration"
    assert lm.geometry.counts == (4, 4)


# The Hub's client reads its settings when it is imported, so these run in processes of their own.

ASK = """
import json, sys
from headscope.errors import InputError
from headscope.lm.loading import load
answers = []
for name, revision in json.loads(sys.argv[1]):
    try:
        lm = load(name, revision=revision, device="cpu")
    except InputError as error:
        answers.append(f"refused: {error}")
    else:
        answers.append(f"loaded: {lm.name} {lm.revision} {lm.geometry.counts}")
print(json.dumps(answers))
"""

Question = tuple[str, str | None]


def ask(home: Path, *questions: Question, **environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(questions)],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("HF_")},
            "HF_HOME": str(home),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answers: list[str] = json.loads(result.stdout)
    return answers


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hub cache as a download leaves it: blobs, a snapshot of links to them, and a branch."""
    home = tmp_path_factory.mktemp("huggingface")
    repository = home / "hub" / "models--some-org--tiny"
    snapshot, blobs = repository / "snapshots" / COMMIT, repository / "blobs"
    saved(snapshot, "gpt2")
    blobs.mkdir()
    for number, file in enumerate(sorted(snapshot.iterdir())):
        blob = blobs / f"{number:040x}"
        file.rename(blob)
        file.symlink_to(Path("..", "..", "blobs", blob.name))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    return home


LOADED = f"loaded: some-org/tiny {COMMIT} (4, 4)"


def test_a_cached_hub_model_loads_offline_and_others_are_refused(cache: Path) -> None:
    default, commit, other, tag = ask(
        cache,
        ("some-org/tiny", None),
        ("some-org/tiny", COMMIT),
        ("some-org/other", None),
        ("some-org/tiny", "v2"),
        HF_HUB_OFFLINE="1",
    )
    assert default == commit == LOADED
    assert other.startswith("refused: There is no folder some-org/other, and the Hub model")
    assert tag.startswith("refused: There is no folder some-org/tiny, and the Hub model")
    assert "at revision v2" in tag
    assert "HF_HUB_OFFLINE" in tag


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does where it has nothing to give."""

    codes: ClassVar = {
        "gone": (404, "RepoNotFound"),
        "gated": (403, "GatedRepo"),
        "tags": (404, "RevisionNotFound"),
        "broken": (418, ""),
    }

    def do_GET(self) -> None:
        status, code = self.codes[self.path.split("/")[4]]
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


def test_what_the_hub_does_not_give_is_refused(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        gone, gated, tags, broken = ask(
            tmp_path,
            ("some-org/gone", None),
            ("some-org/gated", None),
            ("some-org/tags", "v9"),
            ("some-org/broken", None),
            HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}",
            NO_PROXY="127.0.0.1",
        )
        server.shutdown()
    assert gone.startswith("refused: There is neither a folder some-org/gone nor a Hub model")
    assert gated.startswith("refused: The Hub model some-org/gated is gated")
    assert tags.startswith("refused: The Hub model some-org/tags has no revision v9")
    assert broken.startswith("refused: ")
    assert "some-org/broken" in broken


# Refusals


def test_names_that_cannot_be_models(tmp_path: Path, folder: Path) -> None:
    for name, words in [
        (tmp_path / "missing", "There is no folder"),
        ("./missing", "There is no folder"),
        ("a/b/c", "There is no folder"),
        ("no such--model", "neither a folder nor a possible Hub id"),
        (folder / "config.json", "is a file"),
        (tmp_path, "no config.json"),
    ]:
        with pytest.raises(InputError, match=words):
            load(name, device="cpu")
    with pytest.raises(InputError, match="has no revisions"):
        load(folder, revision="main")


def test_folders_without_weights_or_with_pickled_ones(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="holds no weights"):
        load(tmp_path, device="cpu")
    torch.save(build("llama").state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="only pickled weights") as caught:
        load(tmp_path, device="cpu")
    # The advice works as it stands.
    advice = re.search(r"with (Auto\S+)", str(caught.value))
    assert advice is not None
    from transformers import AutoModelForCausalLM

    call = advice[1].rstrip(";.").replace("FOLDER", "folder")
    eval(call, {"AutoModelForCausalLM": AutoModelForCausalLM, "folder": tmp_path})
    assert load(tmp_path, device="cpu").geometry.counts == (4, 4)


def test_damaged_and_incomplete_weights(tmp_path: Path) -> None:
    saved(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    for damaged in (content[: len(content) // 2], b"version https://git-lfs.github.com/spec/v1\n"):
        weights.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            load(tmp_path, device="cpu")


def test_weights_of_another_shape_or_with_parts_missing(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.self_attn.o_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks .*layers\.1\.self_attn\.o_proj\.weight"):
        load(tmp_path, device="cpu")
    saved(tmp_path)
    edit(tmp_path / "config.json", intermediate_size=80)
    with pytest.raises(InputError, match="do not have the shapes that config"):
        load(tmp_path, device="cpu")


def test_adapters_are_not_models(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="merge_and_unload"):
        load(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("{}", "no model_type"),
        ("[]", "no model_type"),
        ('{"model_type": "bert"}', "not a decoder language model"),
        ('{"model_type": "distilbert"}', "not a decoder language model"),
        ('{"model_type": "t5"}', "encoder-decoder"),
        ('{"model_type": "bart"}', "encoder-decoder"),
        ('{"model_type": "vit"}', "not a decoder language model"),
        ('{"model_type": "unheard_of"}', "cannot read a configuration of type 'unheard_of'"),
        (
            '{"model_type": "own", "auto_map": {"AutoConfig": "configuration.Own"}}',
            "needs code of its own, which headscope never runs",
        ),
    ],
)
def test_configurations_of_other_models(tmp_path: Path, content: str, words: str) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    (tmp_path / "configuration.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    with pytest.raises(InputError, match=words):
        load(tmp_path, device="cpu")


def test_pocket_is_the_bundled_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headscope.pocket import weights

    monkeypatch.setattr(weights, "path", lambda: folder)
    lm = load("pocket", device="cpu")
    assert (lm.name, lm.folder, lm.geometry.counts) == ("pocket", folder, (4, 4))
    with pytest.raises(InputError, match="no revisions"):
        load("pocket", revision="main")


@pytest.mark.parametrize(("name", "key"), [("gemma2", "num_hidden_layers"), ("gpt2", "n_layer")])
@pytest.mark.parametrize("value", [10**9, 0, "2", None])
def test_numbers_of_layers_are_looked_at_before_lists_are_made_of_them(
    name: str, key: str, value: object, tmp_path: Path
) -> None:
    content = json.loads((saved(tmp_path, name) / "config.json").read_text(encoding="utf-8"))
    content[key] = value
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=key if value is not None else "config.json"):
        load(tmp_path, device="cpu")


def test_an_empty_name_is_no_model() -> None:
    with pytest.raises(InputError, match="name of the model is empty"):
        load(" ")


def test_a_tokenizer_without_a_vocabulary_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    saved(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE())).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="its vocabulary is empty"):
        load(tmp_path)


# Tokenizers that raise


def _changed(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "tokenizer.json"
        settings = json.loads(file.read_text("utf-8"))
        change(settings)
        file.write_text(json.dumps(settings), "utf-8")

    return edit


def _written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, "utf-8") and None


def _words(settings: dict[str, Any]) -> None:
    # A bare Exception of tokenizers at the first word that is not known.
    settings["model"] = {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1}, "unk_token": "[none]"}
    settings["added_tokens"] = settings["post_processor"] = None
    settings["added_tokens"] = []


def _pieces(settings: dict[str, Any]) -> None:
    settings["model"] = {"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": None}
    settings |= {"added_tokens": [], "post_processor": None, "pre_tokenizer": None}


def _lacking(settings: dict[str, Any]) -> None:
    settings["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[gone]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [],
        "special_tokens": {},
    }


HOSTILE_FILES: dict[str, Callable[[Path], None]] = {
    "no JSON": _written("tokenizer.json", "{"),
    "empty": _written("tokenizer.json", "{}"),
    "a list": _written("tokenizer.json", "[]"),
    "nested": _written("tokenizer.json", "[" * 100_000),
    "no settings": _written("tokenizer_config.json", "nothing"),
    "settings are a list": _written("tokenizer_config.json", "[1]"),
    "unknown word": _changed(_words),
    "unknown piece": _changed(_pieces),
    "lacking special token": _changed(_lacking),
    "unknown model": _changed(lambda s: s.update(model={"type": "NoSuch"})),
    "unknown merge": _changed(lambda s: s["model"].update(merges=[["never", "seen"]])),
    "bad expression": _changed(
        lambda s: s.update(normalizer={"type": "Replace", "pattern": {"Regex": "("}, "content": ""})
    ),
    "damaged character map": _changed(
        lambda s: s.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA////"})
    ),
    "unknown decoder": _changed(lambda s: s.update(decoder={"type": "NoSuch"})),
}


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_a_tokenizer_that_fails_is_one_sentence(tmp_path: Path, name: str) -> None:
    HOSTILE_FILES[name](saved(tmp_path))
    with pytest.raises(InputError) as refused:
        lm = load(str(tmp_path))
        lm.encode("What no tokenizer knows: żółć 你好")
    said = str(refused.value)
    assert "tokenizer" in said and len(said.splitlines()) == 1 and len(said) < 600


class _Raises:
    """A tokenizer of a user's own, of which one part raises."""

    def __init__(self, part: str, error: BaseException) -> None:
        self._part, self._error, self._own = part, error, tokenizer()

    def __getattr__(self, name: str) -> Any:
        if name == self._part:
            raise self._error
        return getattr(self._own, name)

    def __len__(self) -> int:
        return len(self._own)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._part == "()":
            raise self._error
        return self._own(*args, **kwargs)


@pytest.mark.parametrize(
    "error", [Exception("bare"), KeyError("x"), RecursionError(), OverflowError("o")]
)
@pytest.mark.parametrize("part", ["()", "convert_ids_to_tokens", "all_special_ids"])
def test_whatever_a_users_tokenizer_raises_is_one_sentence(part: str, error: Exception) -> None:
    model = build("llama")
    with pytest.raises(InputError, match="tokenizer"):
        lm = LanguageModel.wrap(model, _Raises(part, error), check=False)
        encode(lm.tokenizer, "a text")


def test_a_check_names_special_tokens_without_an_embedding(tmp_path: Path) -> None:
    from headscope.studies.check import Check, check, command
    from headscope.studies.models import ModelChoice

    build("llama").save_pretrained(tmp_path)
    beyond = tokenizer(pad=False)
    beyond.add_special_tokens({"pad_token": "[PAD]"})
    beyond.save_pretrained(tmp_path)
    result = check(Check(ModelChoice(str(tmp_path), dtype="float32")), lambda *_: None)
    assert result.passed
    assert result.unknown_tokens == ("[PAD]",)
    assert command.show is not None
    shown = command.show(result, tmp_path)
    assert any("[PAD]" in str(caution) for caution in shown.cautions)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 0),
        ("num_key_value_heads", 0),
        ("head_dim", 0),
        ("head_dim", 10**30),
        ("hidden_size", 0),
        ("vocab_size", 0),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**12),
        ("rope_parameters", {"rope_type": "yarn", "factor": 0, "rope_theta": 0}),
    ],
)
def test_a_configuration_that_no_model_has_is_one_sentence(
    field: str, value: object, tmp_path: Path
) -> None:
    saved(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(InputError) as told:
        load(tmp_path)
    assert "\n" not in str(told.value) and str(told.value).endswith(".")


class PanicException(BaseException):
    """As the libraries in Rust raise it."""


FAILURES = (ZeroDivisionError, OverflowError, RecursionError, LookupError, Exception)


@pytest.mark.parametrize("kind", [*FAILURES, PanicException])
def test_whatever_other_libraries_raise_is_one_sentence(
    kind: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    def fails(*_: object, **__: object) -> None:
        raise kind("on purpose\nand more")

    lm = LanguageModel.wrap(build("llama"), tokenizer(), check=False)
    monkeypatch.setattr(type(lm.tokenizer), "_encode_plus", fails)
    for way in (lm.encode, lm.encoded, lambda text: lm.generate([text])):
        with pytest.raises(InputError, match=r"'ab' \(.*on purpose\)"):
            way("ab")
    saved(tmp_path)
    for part in ("AutoTokenizer", "AutoConfig"):
        with monkeypatch.context() as patched:
            patched.setattr(getattr(transformers, part), "from_pretrained", fails)
            with pytest.raises(InputError, match=r"on purpose\)") as told:
                load(tmp_path)
            assert "and more" not in str(told.value)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interruption_is_no_fault_of_a_tokenizer(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*_: object, **__: object) -> None:
        raise kind

    lm = LanguageModel.wrap(build("llama"), tokenizer(), check=False)
    monkeypatch.setattr(type(lm.tokenizer), "_encode_plus", stops)
    with pytest.raises(kind):
        lm.encode("ab")
