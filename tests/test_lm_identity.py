"""A model is what it computes now: its files, what lies beside them, and what was done to it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM

import headscope
from conftest import json_of
from headscope.errors import Caution, InputError
from headscope.lm.checkpoints import digest_of_files, weight_files
from headscope.lm.identity import identity, sums
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel
from headscope.studies.models import ModelChoice, kept_model, model_inputs
from lm_helpers import (
    CHANGING,
    adapted,
    build,
    changing,
    logits,
    sample_batch,
    saved,
    tokenizer,
)

Command = Callable[..., Any]

DOCUMENTS = [
    {"text": text, "language": "en"}
    for text in ("the dog sleeps", "a cat eats fish", "rain falls", "we sing now")
]


def with_adapter(folder: Path, seed: int = 0) -> Path:
    """A folder of a tiny model with an adapter beside its weights."""
    saved(folder)
    adapted("default", seed=seed).save_pretrained(folder)
    return folder


def own_load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapter_beside_weights_is_applied_as_transformers_does(
    tmp_path: Path, dtype: str
) -> None:
    folder = with_adapter(tmp_path / "model")
    with pytest.warns(Caution, match=r"adapter beside its weights, LORA \(rank 2, alpha 8\)"):
        lm = load(folder, device="cpu", dtype=dtype)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    assert torch.equal(logits(lm.model, sample_batch()), logits(plain, sample_batch()))
    without = logits(build("llama").to(lm.dtype), sample_batch())
    assert not torch.allclose(logits(lm.model, sample_batch()), without, atol=1e-2)


def test_other_adapters_are_other_models_and_are_named(tmp_path: Path, command: Command) -> None:
    results = []
    for seed in (0, 1):
        folder = with_adapter(tmp_path / str(seed), seed)
        data = tmp_path / "documents.txt"
        data.write_text("the dog sleeps\na cat eats fish\nrain falls\nwe sing now\n")
        said = command(
            "find", "first-order", "--model", folder, "--data", f"en={data}", "--json",
            "--out", tmp_path / f"run{seed}",
        )  # fmt: skip
        assert said.code == 0, said.err
        results.append(json_of(said.out))
        assert results[-1]["model"]["adapter"] == "LORA (rank 2, alpha 8)"
        page = command("report", tmp_path / f"run{seed}", "--out", tmp_path / "page.html")
        assert page.code == 0, page.err
        assert "adapter beside its weights" in (tmp_path / "page.html").read_text("utf-8")
    assert results[0]["signature"] != results[1]["signature"]
    assert results[0]["model"]["digest"] != results[1]["model"]["digest"]
    assert ModelChoice(str(tmp_path / "0")).load_for().digest == results[0]["model"]["digest"]


def test_settings_of_an_adapter_count(tmp_path: Path) -> None:
    folder = with_adapter(tmp_path)
    before, file = digest_of_files(folder), folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "lora_alpha": 16}))
    assert digest_of_files(folder) != before


def test_an_adapter_that_is_in_the_weights_already_is_refused(tmp_path: Path) -> None:
    adapted("default").merge_and_unload().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    adapted("default").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="merged"), warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        load(tmp_path, device="cpu")


@pytest.mark.parametrize("fault", ["weights", "adapter", "configuration", "gone", "of another"])
def test_a_damaged_model_with_an_adapter_is_refused(tmp_path: Path, fault: str) -> None:
    """What the adapter lacks does not hide what the weights lack, and the other way round."""
    folder = with_adapter(tmp_path)
    file = folder / ("model.safetensors" if fault == "weights" else "adapter_model.safetensors")
    tensors = load_file(file)
    name = next(name for name in sorted(tensors) if "q_proj" in name)
    if fault == "of another":
        tensors[name.replace("layers.0", "layers.7")] = tensors[name].clone()
    else:
        del tensors[name]
    save_file(tensors, file, {"format": "pt"})
    if fault == "configuration":
        (folder / "adapter_config.json").write_text("[")
    if fault == "gone":
        file.unlink()
    with pytest.raises(InputError), warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        load(folder, device="cpu", check="never")


def test_an_export_of_a_model_with_an_adapter_is_refused(tmp_path: Path, command: Command) -> None:
    folder = with_adapter(tmp_path / "model")
    for form in ("checkpoint", "lora", "ia3", "pruned"):
        said = command(
            "use", "export", "--model", folder, "--heads", "0.1", "--as", form,
            "--out", tmp_path / "run",
        )  # fmt: skip
        assert said.code == 2 and "adapter beside its weights" in said.err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("named", ["own.safetensors", "own.safetensors.index.json", None])
def test_weights_are_those_that_the_loader_opens(tmp_path: Path, named: str | None) -> None:
    """Files that config.json or an index names otherwise; others beside them do not count."""
    model = build("llama", seed=3)
    model.save_pretrained(tmp_path, max_shard_size="60KB" if named != "own.safetensors" else "1GB")
    tokenizer().save_pretrained(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    if named == "own.safetensors":
        (tmp_path / "model.safetensors").rename(tmp_path / named)
    else:
        known = json.loads(index.read_text())
        for file in set(known["weight_map"].values()):
            (tmp_path / file).rename(tmp_path / f"weights-{file}")
        known["weight_map"] = {k: f"weights-{v}" for k, v in known["weight_map"].items()}
        index.write_text(json.dumps(known))
    if named is not None:
        if named.endswith(".json"):
            index.rename(tmp_path / named)
        build("llama", seed=4).save_pretrained(tmp_path / "other")
        shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path)
        config = tmp_path / "config.json"
        content = json.loads(config.read_text()) | {"transformers_weights": named}
        config.write_text(json.dumps(content))
    batch = sample_batch()
    lm = load(tmp_path, device="cpu")
    assert torch.equal(logits(lm.model, batch), logits(own_load(tmp_path), batch))
    assert torch.equal(logits(lm.model, batch), logits(model, batch))
    files, before = weight_files(tmp_path), digest_of_files(tmp_path)
    (tmp_path / "model-of-nothing.safetensors").write_bytes(b"x")
    assert digest_of_files(tmp_path) == before
    tensors = load_file(files[-1])
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, files[-1], {"format": "pt"})
    assert digest_of_files(tmp_path) != before


@pytest.mark.parametrize("named", ["../other.safetensors", "weights.bin", "none.safetensors", 5])
def test_weights_named_badly_are_refused(tmp_path: Path, named: object) -> None:
    folder = saved(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"transformers_weights": named}))
    (folder / "weights.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"other|weights|none|5"):
        load(folder, device="cpu")


@given(
    st.sampled_from(["float32", "bfloat16", "int8"]),
    st.integers(1, 40_000),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_sums_tell_one_changed_number_and_two_that_change_places(
    dtype: str, size: int, data: st.DataObject
) -> None:
    tensor = torch.randn(size).mul(9).to(getattr(torch, dtype))
    model = torch.nn.Module()
    before = sums(model, "", tensor)
    assert sums(model, "", tensor.clone()) == before
    first, second = (data.draw(st.integers(0, size - 1)) for _ in range(2))
    other = tensor.clone()
    other[first], other[second] = tensor[second], tensor[first]
    assert (sums(model, "", other) == before) == torch.equal(other, tensor)
    changed = tensor.clone()
    changed[first] = changed[first] + 2
    assert (sums(model, "", changed) == before) == torch.equal(changed, tensor)
    if dtype != "int8":  # signs, and masks of as many places with the same sum
        signs = tensor.clone()
        signs[[first, second]] *= -1
        assert (sums(model, "", signs) == before) == torch.equal(signs, tensor)
        masks = [torch.ones(size + 8, dtype=tensor.dtype) for _ in range(2)]
        masks[0][[first, first + 3]] = 0
        masks[1][[first + 1, first + 2]] = 0
        assert sums(model, "", masks[0]) != sums(model, "", masks[1])


# What a user may do to a model between two calls; each is undone by leaving its context.
Deed = Callable[[Any], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def done(do: Callable[[], Any], undo: Callable[[], Any]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


def exchanged(place: Any, name: str, value: Any) -> contextlib.AbstractContextManager[None]:
    """Another attribute of an object's own, which it may not have had."""
    there, own = name in vars(place), vars(place).get(name)
    return done(
        lambda: setattr(place, name, value),
        lambda: setattr(place, name, own) if there else vars(place).pop(name),
    )


def layer(model: Any) -> Any:
    return model.base_model.model.model.layers[1]


def first_layer(model: Any) -> Any:
    return model.base_model.model.model.layers[0]


def of_adapter(name: str) -> Deed:
    return lambda model: done(
        lambda: model.set_adapter(name), lambda: model.set_adapter(model.first)
    )


def scaled(model: Any) -> contextlib.AbstractContextManager[None]:
    part = layer(model).self_attn.q_proj
    own = dict(part.scaling)
    return done(lambda: part.scaling.update(a=own["a"] * 2), lambda: part.scaling.update(own))


def hooked(factor: float) -> Deed:
    def hook(module: Any, arguments: Any, output: Any) -> Any:
        return output * factor

    return lambda model: layer(model).mlp.register_forward_hook(hook)


def patched(model: Any) -> contextlib.AbstractContextManager[None]:
    part = layer(model).mlp
    own = part.forward
    return exchanged(part, "forward", lambda states: -own(states))


def in_place(model: Any) -> contextlib.AbstractContextManager[None]:
    """Past autograd's counters, which `.data` does not touch."""
    weight = first_layer(model).mlp.up_proj.weight.data
    own = weight.clone()
    return done(lambda: weight.mul_(1.5), lambda: weight.copy_(own))


def replaced(model: Any) -> contextlib.AbstractContextManager[None]:
    part = first_layer(model).mlp.down_proj
    own = part.weight
    return done(
        lambda: setattr(part, "weight", torch.nn.Parameter(own.detach().roll(1, 0))),
        lambda: setattr(part, "weight", own),
    )


def attribute(model: Any) -> contextlib.AbstractContextManager[None]:
    norm = layer(model).input_layernorm
    own = norm.variance_epsilon
    return done(
        lambda: setattr(norm, "variance_epsilon", 3.0),
        lambda: setattr(norm, "variance_epsilon", own),
    )


def buffer(model: Any) -> contextlib.AbstractContextManager[None]:
    """Of rotations, which no state dict has."""
    rotary = model.base_model.model.model.rotary_emb
    own = rotary.inv_freq.clone()
    return done(lambda: rotary.inv_freq.mul_(0.5), lambda: rotary.inv_freq.copy_(own))


def tensors(model: Any) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def training(model: Any) -> contextlib.AbstractContextManager[None]:
    return done(model.train, model.eval)


def halved(model: Any) -> contextlib.AbstractContextManager[None]:
    """In bfloat16 and back, which rounds the weights."""
    own = {name: tensor.detach().clone() for name, tensor in tensors(model)}

    def back() -> None:
        model.float()
        for name, tensor in tensors(model):
            tensor.data.copy_(own[name])

    return done(model.bfloat16, back)


DEEDS: dict[str, Deed] = {
    "adapter b": of_adapter("b"),
    "no adapter": lambda model: model.disable_adapter(),
    "scale": scaled,
    "hook": hooked(1.5),
    "other hook": hooked(0.5),
    "patched": patched,
    "in place": in_place,
    "replaced": replaced,
    "attribute": attribute,
    "buffer": buffer,
    "training": training,
    "bfloat16": halved,
}
#: What leaves the numbers as they are.
HARMLESS = {"training"}


def two_adapters() -> Any:
    model = adapted("a", "b")
    model.first = "a"
    return model


def scores(lm: LanguageModel) -> list[float]:
    found = headscope.find.first_order(lm, DOCUMENTS, progress=False)
    return [head.score for head in sorted(found.scored, key=lambda head: (head.layer, head.head))]


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """A folder without runs."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def anew(deeds: Sequence[str]) -> list[float]:
    """The scores of a model to which nothing else was ever done, where no run is kept."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(elsewhere())
        model = two_adapters()
        for name in deeds:
            stack.enter_context(DEEDS[name](model))
        return scores(headscope.load(model, tokenizer()))


@pytest.fixture(scope="module")
def expected() -> dict[tuple[str, ...], list[float]]:
    return {}


def attribute_set(of: Callable[[Any], Any], name: str, value: Any) -> Deed:
    return lambda model: exchanged(of(model), name, value)


def named_as_theirs(model: Any) -> contextlib.AbstractContextManager[None]:
    """A forward that copies the name and the place of the one it replaces."""
    part = layer(model).mlp
    own = part.forward

    @functools.wraps(own)
    def forward(states: torch.Tensor) -> torch.Tensor:
        return own(states) * 2.0

    return exchanged(part, "forward", forward)


def of_the_file(model: Any) -> contextlib.AbstractContextManager[None]:
    """A function beside the modules of a model's file."""
    from transformers.models.llama import modeling_llama

    own = modeling_llama.apply_rotary_pos_emb

    def turned(q: Any, k: Any, *arguments: Any, **more: Any) -> Any:
        return own(k.repeat_interleave(q.shape[1] // k.shape[1], 1), k, *arguments, **more)

    return done(
        lambda: setattr(modeling_llama, "apply_rotary_pos_emb", turned),
        lambda: setattr(modeling_llama, "apply_rotary_pos_emb", own),
    )


def of_the_class(model: Any) -> contextlib.AbstractContextManager[None]:
    kind = type(layer(model).mlp)
    own = kind.forward

    @functools.wraps(own)
    def forward(self: Any, states: torch.Tensor) -> torch.Tensor:
        return own(self, states) * 3.0

    return done(lambda: setattr(kind, "forward", forward), lambda: setattr(kind, "forward", own))


class Scaled(torch.nn.Module):
    """A module of a user's own around another."""

    def __init__(self, inner: torch.nn.Module, factors: Any) -> None:
        super().__init__()
        self.inner, self.factors = inner, factors

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(states)
        for factor in self.factors:
            out = out * factor
        return out


def wrapped_in(factors: Any) -> Deed:
    def deed(model: Any) -> contextlib.AbstractContextManager[None]:
        place = layer(model)
        own = place.mlp
        return done(
            lambda: setattr(place, "mlp", Scaled(own, factors)), lambda: setattr(place, "mlp", own)
        )

    return deed


def shared(model: Any) -> contextlib.AbstractContextManager[None]:
    place = layer(model)
    own, other = place.mlp, first_layer(model).mlp
    return done(lambda: setattr(place, "mlp", other), lambda: setattr(place, "mlp", own))


DEEDS |= {
    "zeros": attribute_set(lambda model: layer(model).mlp, "forward", torch.zeros_like),
    "partial": attribute_set(
        lambda model: layer(model).mlp, "forward", functools.partial(torch.mul, other=0.5)
    ),
    "named as theirs": named_as_theirs,
    "of the file": of_the_file,
    "of the class": of_the_class,
    "own module": wrapped_in([2.0, 1.5]),
    "own module with tensors": wrapped_in([torch.tensor(2.0), torch.tensor(0.5)]),
    "own module with numpy": wrapped_in([np.float32(0.25)]),
    "shared": shared,
    "scale as a tensor": lambda model: (
        lambda part, own: done(
            lambda: part.scaling.update(a=torch.tensor(7.0)), lambda: part.scaling.update(own)
        )
    )(layer(model).self_attn.q_proj, dict(layer(model).self_attn.q_proj.scaling)),
}


@given(st.lists(st.lists(st.sampled_from(sorted(DEEDS)), max_size=3, unique=True), min_size=2,
                max_size=4))  # fmt: skip
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_that_of_the_model_as_it_is_then(
    expected: dict[tuple[str, ...], list[float]], calls: list[list[str]]
) -> None:
    with elsewhere():
        model = two_adapters()
        lm = headscope.load(model, tokenizer())
        for deeds in calls:
            with contextlib.ExitStack() as stack:
                for name in deeds:
                    stack.enter_context(DEEDS[name](model))
                got = scores(lm)
            key = tuple(deeds)
            if key not in expected:
                expected[key] = anew(deeds)
            # Sums in another order of memory; the deeds change scores by hundredths.
            assert got == pytest.approx(expected[key], rel=1e-4, abs=1e-5), deeds


@pytest.mark.parametrize("name", sorted(DEEDS))
def test_every_deed_is_told_from_the_model_without_it(name: str) -> None:
    """And is gone from the digest as soon as it is gone from the model."""
    model = two_adapters()
    lm = headscope.load(model, tokenizer(), check=False)
    before = lm.digest
    with DEEDS[name](model):
        assert (lm.digest == before) == (name in HARMLESS)
    assert lm.digest == before


def test_a_model_from_files_has_their_digest_until_it_is_changed(tmp_path: Path) -> None:
    lm = load(saved(tmp_path), device="cpu")
    assert lm.digest == digest_of_files(tmp_path)
    logits(lm.model, sample_batch())
    lm.generate(["abc"], max_new_tokens=3)
    assert lm.digest == digest_of_files(tmp_path)
    weight = lm.model.model.layers[0].mlp.up_proj.weight.data
    weight.mul_(2)
    changed = lm.digest
    assert changed != digest_of_files(tmp_path)
    weight.mul_(0.5)
    assert lm.digest == digest_of_files(tmp_path)
    weight.mul_(2)
    assert lm.digest == changed


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_next", "gemma2", "deepseek_v3"])
def test_passes_leave_the_identity_as_it_is(name: str) -> None:
    lm, again = (
        LanguageModel.wrap(build(name), tokenizer(), name=name, check=check)
        for check in (True, False)
    )
    lm.generate(["abc def", "a"], max_new_tokens=4)
    assert lm.identity == again.identity
    assert lm.identity != identity(build(name, seed=1))


class Mode(TorchFunctionMode):
    """A user's, which changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_open_contexts_and_modes_are_refused() -> None:
    lm = headscope.load(build("llama"), tokenizer())
    contexts = [
        lm.gated(torch.zeros(lm.geometry.shape)),
        lm.attention_peaks(),
        torch.autocast("cpu", torch.bfloat16),
        Mode(),
    ]
    with elsewhere():
        for context in contexts:
            with pytest.raises(InputError, match="leave the"), context:
                scores(lm)
        assert not any(Path("runs").glob("*/DONE.json"))
        assert scores(lm) == pytest.approx(scores(headscope.load(build("llama"), tokenizer())))


def test_a_hook_around_the_model_inside_of_adapters_is_refused() -> None:
    model = two_adapters()
    lm = headscope.load(model, tokenizer())
    handle = model.register_forward_hook(lambda module, arguments, output: output)
    with elsewhere():
        with pytest.raises(InputError, match="a hook stands at"):
            scores(lm)
        handle.remove()
        scores(lm)


@pytest.mark.parametrize("changed", ["a function", "an attribute", "a helper"])
def test_a_class_of_the_users_counts_with_its_code(changed: str) -> None:
    """Under the same name, as a cell of a notebook defines it anew."""

    def of_class(source: str) -> Any:
        place: dict[str, Any] = {"torch": torch, "__name__": "__main__"}
        exec(source, place)
        model = build("llama")
        model.model.layers[1].mlp = place["Own"](model.model.layers[1].mlp)
        return model

    source = (
        "class Own(torch.nn.Module):\n"
        "    factor = 2.0\n"
        "    def __init__(self, inner):\n"
        "        super().__init__()\n"
        "        self.inner = inner\n"
        "    def helped(self, states):\n"
        "        return states * self.factor\n"
        "    def forward(self, states):\n"
        "        return self.helped(self.inner(states)) * 1.0\n"
    )
    edits = {
        "a function": ("* 1.0", "* 1.5"),
        "an attribute": ("factor = 2.0", "factor = 3.0"),
        "a helper": ("states * self", "states + self"),
    }
    before = identity(of_class(source))
    assert identity(of_class(source)) == before
    assert identity(of_class(source.replace(*edits[changed]))) != before


def test_modules_in_containers_count_and_ways_back_end() -> None:
    """A list hides modules from torch, as ways back to a parent, and as parts of one's own."""
    found = []
    for factor in (1.0, 2.0):
        model = build("llama")
        place = model.model.layers[0]
        place.mlp.parent, place.itself = [place, model], [place]
        hidden = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        hidden[0][0].weight.data.fill_(factor)
        hidden[0][0].bias.data.fill_(0)
        hidden[0].back = [hidden]
        place.mlp.kept = [hidden]
        found.append(identity(model))
        assert identity(model) == found[-1]
        hidden[0][0].bias.data.add_(5)
        assert identity(model) != found[-1]
    assert len(set(found)) == 2


def test_rotations_that_grow_with_a_text_are_no_change() -> None:
    for kind in CHANGING:
        lm = changing(kind)
        before = lm.identity
        logits(lm.model, sample_batch((40,)))
        assert lm.identity == before, kind


@pytest.mark.parametrize("when", ["before the digest", "after it"])
def test_a_model_outlives_its_files(tmp_path: Path, when: str) -> None:
    """Weights that were read keep their digest, and never get that of files that came later."""
    lm = load(saved(tmp_path / "model"), device="cpu", check=False)
    # What is read may lie in the file itself.
    before = digest_of_files(tmp_path / "model")
    if when == "after it":
        assert lm.digest == before
    build("llama", seed=5).save_pretrained(tmp_path / "other")
    os.replace(tmp_path / "other" / "model.safetensors", tmp_path / "model" / "model.safetensors")
    later = digest_of_files(tmp_path / "model")
    assert lm.digest != later
    assert (lm.digest == before) == (when == "after it")


def test_files_that_change_between_signature_and_loading_are_told(tmp_path: Path) -> None:
    lm = ModelChoice(str(saved(tmp_path / "model"))).load_for()
    _ = lm.digest
    build("llama", seed=5).save_pretrained(tmp_path / "other")
    os.replace(tmp_path / "other" / "model.safetensors", tmp_path / "model" / "model.safetensors")
    with pytest.raises(InputError, match="were changed"):
        _ = lm.model
    with kept_model():
        first = ModelChoice(str(tmp_path / "model")).load()
        assert ModelChoice(str(tmp_path / "model")).load() is first
        build("llama", seed=6).save_pretrained(tmp_path / "other")
        os.replace(
            tmp_path / "other" / "model.safetensors", tmp_path / "model" / "model.safetensors"
        )
        assert ModelChoice(str(tmp_path / "model")).load() is not first


def test_ends_of_texts_that_are_changed_end_texts() -> None:
    lm = headscope.load(build("llama"), tokenizer())
    text = lm.generate(["abc def"], max_new_tokens=6)[0]
    lm.model.generation_config.eos_token_id = int(text.output_ids[2])
    again = lm.generate(["abc def"], max_new_tokens=6)[0]
    assert len(again.output_ids) < len(text.output_ids)


def test_a_tokenizer_counts_with_what_was_made_of_it() -> None:
    own = tokenizer()
    kinds = [type("Own", (type(own),), {"added": added}) for added in (1, 2)]
    digests = []
    for kind in kinds:
        other = tokenizer()
        other.__class__ = kind
        digests.append(model_inputs(headscope.load(build("llama"), other))["tokenizer"])
    patched = tokenizer()
    patched.encode = lambda *arguments, **more: [5]
    digests += [
        model_inputs(headscope.load(build("llama"), each, check=False))["tokenizer"]
        for each in (own, patched)
    ]
    assert len(set(digests)) == 4


def test_a_model_whose_modules_were_exchanged_is_refused() -> None:
    model = two_adapters()
    lm = headscope.load(model, tokenizer())
    model.merge_and_unload()
    with elsewhere(), pytest.raises(InputError, match=r"headscope\.load"):
        scores(lm)


def test_a_study_looks_three_times_at_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, as a whole and without functions, and behind it."""
    from headscope.lm import model as models

    lm, own, looks = headscope.load(build("llama"), tokenizer()), models.identity, list[bool]()

    def counted(model: Any, functions: bool = True) -> str:
        looks.append(functions)
        return own(model, functions)

    monkeypatch.setattr(models, "identity", counted)
    with elsewhere():
        scores(lm)
    assert looks == [True, False, False]


def test_a_model_that_is_changed_meanwhile_is_no_finished_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headscope.studies.find import first_order

    model = build("llama")
    lm, own = headscope.load(model, tokenizer()), first_order.first_order

    def changing(*arguments: Any, **more: Any) -> Any:
        result = own(*arguments, **more)
        model.model.layers[0].mlp.up_proj.weight.data.mul_(2)
        return result

    monkeypatch.setattr(first_order, "first_order", changing)
    with elsewhere():
        with pytest.raises(InputError, match="was changed while"):
            scores(lm)
        assert not any(Path("runs").glob("*/DONE.json"))


FRESH = """
import sys
sys.path[:0] = {path!r}
import contextlib, test_lm_identity as own
with contextlib.ExitStack() as stack:
    model = own.two_adapters()
    for name in {deeds!r}:
        stack.enter_context(own.DEEDS[name](model))
    print(own.json.dumps(own.scores(own.headscope.load(model, own.tokenizer()))))
"""


def test_a_fresh_process_agrees(tmp_path: Path) -> None:
    deeds = ["adapter b", "in place", "hook"]
    done = subprocess.run(
        [sys.executable, "-c", FRESH.format(path=sys.path, deeds=deeds)],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(anew(deeds), abs=1e-6)
