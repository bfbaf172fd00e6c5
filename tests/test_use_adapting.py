"""Gates on a model of transformers: for a block, until removed, in pipelines, in any generation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, HeadSet, Origin
from headscope.heads.adaptation import Adaptation, heads_scaled, read_adaptation
from headscope.lm import LanguageModel
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.generation import GenerateConfig
from headscope.lm.queries import query_gated
from headscope.studies.use.prompts import PromptsChoice, prompts_digest, read_prompts, rendered
from headscope.use.adapting import adapted, attach
from lm_helpers import folded, hooks_of, logits, sample_batch, wrapped

SOFT = {"0.1": 0.3, "1.2": 2.0, "1.0": -0.5, "0.3": 0.0}
PROMPTS = (
    "Translate this sentence from English to German\nSentence: the dog sees a house\nAnswer:",
    "Ein Hund",
    "The cat",
)


def soft(geometry: Geometry) -> Gate:
    values = np.ones(geometry.shape, dtype=np.float32)
    for place, value in SOFT.items():
        layer, head = map(int, place.split("."))
        values[layer, head] = value
    return Gate(geometry, values)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "bitnet", "qwen3_next"])
def test_a_plain_model_in_a_block_is_the_gated_one(name: str) -> None:
    lm = wrapped(name)
    # Before any hook: a hybrid model has layers without heads, whose gate stays 1.
    values = soft(Geometry((4,) * lm.geometry.layers)).values
    gate = Gate(lm.geometry, np.where(lm.geometry.mask(), values[:, : lm.geometry.width], 1))
    batch = sample_batch()
    as_is = logits(lm.model, batch)
    with lm.gated(gate):
        wanted = logits(lm.model, batch)
    assert not torch.equal(wanted, as_is)
    with adapted(lm.model, gate) as model:
        assert model is lm.model
        assert torch.equal(logits(model, batch), wanted)
    assert torch.equal(logits(lm.model, batch), as_is)
    assert hooks_of(lm.model) == 0


def test_it_is_taken_off_after_an_exception_and_nests() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    one, other = soft(lm.geometry), HeadSet.parse("0.0,0.1", lm.geometry).scaled(0.5)
    as_is = logits(lm.model, batch)
    with lm.gated(one * other):
        both = logits(lm.model, batch)
    with pytest.raises(ZeroDivisionError), adapted(lm.model, one), adapted(lm.model, other):
        assert torch.allclose(logits(lm.model, batch), both, atol=1e-6)
        raise ZeroDivisionError
    assert hooks_of(lm.model) == 0
    assert torch.equal(logits(lm.model, batch), as_is)


def test_attached_gates_come_off_in_any_order_and_only_once() -> None:
    lm, batch = wrapped("llama"), sample_batch()
    one, other = soft(lm.geometry), HeadSet.parse("0.0,0.1", lm.geometry).scaled(0.5)
    with lm.gated(other):
        wanted = logits(lm.model, batch)
    first, second = attach(lm.model, one), attach(lm.model, other)
    first.remove()
    first.remove()
    assert torch.equal(logits(lm.model, batch), wanted)
    with second as model:
        assert model is lm.model
    assert hooks_of(lm.model) == 0


def test_a_gate_of_queries_is_one_without_its_run_too(tmp_path: Path) -> None:
    """As it lies on the Hub: on outputs it would be another intervention."""
    lm = wrapped("llama")
    origin = Origin("mask", config={"on": "query"})
    Gate(lm.geometry, soft(lm.geometry).values, origin).save_pretrained(tmp_path)
    assert read_adaptation(tmp_path, lm.geometry).place == "query"


def test_a_gate_that_removes_a_head_does_not_spoil_the_next_look() -> None:
    """Heads are found by trying, which a removed head would not pass."""
    lm = wrapped("llama")
    with adapted(lm.model, HeadSet(lm.geometry, tuple(lm.geometry.heads())).removed()):
        before = hooks_of(lm.model)
        with adapted(lm.model, soft(lm.geometry)):
            assert hooks_of(lm.model) > before
        assert hooks_of(lm.model) == before > lm.geometry.layers


def test_a_projection_that_was_replaced_is_found_again() -> None:
    """As adapters do, which put a layer of their own in its place."""
    lm, batch = wrapped("llama"), sample_batch()
    gate = HeadSet.parse("0.1", lm.geometry).scaled(0.0)
    with adapted(lm.model, gate):
        pass
    projection = lm.sites[0].projection
    fresh = torch.nn.Linear(projection.in_features, projection.out_features, bias=False)
    parent = lm.model.get_submodule(lm.sites[0].projection_name.rpartition(".")[0])
    parent.o_proj = fresh
    with LanguageModel.wrap(lm.model, check=False).gated(gate):
        wanted = logits(lm.model, batch)
    with adapted(lm.model, gate):
        assert torch.equal(logits(lm.model, batch), wanted)


@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": False, "use_cache": False},
        {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "num_return_sequences": 3, "temperature": 1.3},
        {"do_sample": False, "cache_implementation": "static", "disable_compile": True},
    ],
    ids=["greedy", "without a cache", "beams", "sampling", "static cache"],
)
def test_any_generation_is_that_of_folded_weights(how: dict[str, Any]) -> None:
    lm = wrapped("llama")
    gate = soft(lm.geometry)
    twin = folded(lm, torch.from_numpy(gate.values.copy()))
    batch = sample_batch((6, 6))

    def made(model: Any) -> list[list[int]]:
        torch.manual_seed(0)
        return model.generate(
            input_ids=batch.input_ids, max_new_tokens=6, pad_token_id=0, eos_token_id=None, **how
        ).tolist()

    as_is = made(lm.model)
    with adapted(lm.model, gate):
        assert made(lm.model) == made(twin) != as_is
    assert made(lm.model) == as_is


def test_one_gate_a_row_is_refused_and_so_are_strangers() -> None:
    lm = wrapped("llama")
    rows = torch.ones(2, *lm.geometry.shape)
    for what, said in (
        (rows, "one Gate for all rows"),
        (HeadSet.parse("0.1", lm.geometry), r"heads\.removed"),
        (3, "not int"),
        (Gate.identity(Geometry((4, 4, 4))), "but this model has 2 layers"),
    ):
        with pytest.raises(InputError, match=said), adapted(lm.model, what):
            pass
    with pytest.raises(InputError, match="transformers model"):
        attach("model", soft(lm.geometry))
    assert hooks_of(lm.model) == 0


def test_numbers_that_are_not_finite_are_refused() -> None:
    geometry = Geometry((2, 2))
    heads = HeadSet.parse("0.1", geometry)
    for scale in (float("nan"), float("inf"), 1e39):
        with pytest.raises(InputError, match="finite"):
            heads_scaled(heads, scale)
        with pytest.raises(InputError, match="finite"):
            heads_scaled(heads, 1.0, scale)
        with pytest.raises(InputError, match="finite"):
            Adaptation(heads.removed()).outside(scale)
    for parts in (np.array([np.nan, 1], np.float32), np.ones(3, np.float32)):
        with pytest.raises(InputError, match="feed-forward gates of 2 layers"):
            Adaptation(heads.removed(), parts)


def test_heads_inside_and_outside_get_their_own_number() -> None:
    geometry = Geometry((3, 2))
    found = heads_scaled(HeadSet.parse("0.2,1.0", geometry), 3.0, 0.25).gate.values
    assert found.tolist() == [[0.25, 0.25, 3.0], [3.0, 0.25, 1.0]]
    mask = Adaptation(HeadSet.parse("0.2", geometry).removed(), np.array([0, 1], np.float32))
    part = mask.outside(0.5)
    assert part.feed_forward is not None
    assert part.gate == HeadSet.parse("0.2", geometry).scaled(0.5)
    assert part.feed_forward.tolist() == [0.5, 1.0]
    assert mask.outside(0.0).gate == mask.gate
    with pytest.raises(InputError, match="no mask"):
        part.outside(0.5)


def test_a_run_brings_its_feed_forward_gates_and_queries(tmp_path: Path) -> None:
    lm, batch = wrapped("llama"), sample_batch()
    gate = HeadSet.parse("0.1,1.3", lm.geometry).removed()
    gate.save_pretrained(tmp_path / "gate")
    parts = np.array([0, 1], np.float32)
    save_file({"mask": parts}, tmp_path / "feed_forward.safetensors")
    with lm.gated(gate), feed_forward_gated(lm, torch.from_numpy(parts)):
        wanted = logits(lm.model, batch)
    with adapted(lm.model, tmp_path) as model:
        assert torch.equal(logits(model, batch), wanted)
    assert hooks_of(lm.model) == 0
    (tmp_path / "feed_forward.safetensors").unlink()
    (tmp_path / "result.json").write_text('{"on": "query"}')
    with query_gated(lm, torch.from_numpy(gate.values.copy())):
        wanted = logits(lm.model, batch)
    with adapted(lm.model, str(tmp_path)) as model:
        assert torch.equal(logits(model, batch), wanted)
    assert read_adaptation(tmp_path / "gate", lm.geometry).place == "output"


def test_a_folder_without_a_usable_gate_is_refused(tmp_path: Path) -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match="is no folder"):
        read_adaptation(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match="no gate is named"):
        read_adaptation("")
    with pytest.raises(InputError, match="holds no gate"):
        read_adaptation(tmp_path)
    Gate.identity(Geometry((9, 9))).save_pretrained(tmp_path / "gate")
    with pytest.raises(InputError, match="but this model has 2 layers"):
        read_adaptation(tmp_path, lm.geometry)
    HeadSet.parse("0.1", lm.geometry).removed().save_pretrained(tmp_path / "gate")
    for content in (b"{}", b"\xff", b"[]"):
        (tmp_path / "feed_forward.safetensors").write_bytes(content)
        with pytest.raises(InputError, match=r"feed_forward\.safetensors: is damaged"):
            read_adaptation(tmp_path, lm.geometry)
    (tmp_path / "feed_forward.safetensors").unlink()
    for content in (b"{", b"[]", b'{"on": "keys"}'):
        (tmp_path / "result.json").write_bytes(content)
        with pytest.raises(InputError, match=r"result\.json: is damaged"):
            read_adaptation(tmp_path, lm.geometry)
    (tmp_path / "result.json").unlink()
    broken = np.full(lm.geometry.shape, np.nan, np.float32)
    save_file({"values": broken}, tmp_path / "gate" / "gate.safetensors")
    with pytest.raises(InputError, match="does not match the digest"), adapted(lm.model, tmp_path):
        pass
    assert hooks_of(lm.model) == 0
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="not finished"):
        read_adaptation(tmp_path, lm.geometry)


@pytest.fixture(scope="module")
def changing(pocket: LanguageModel) -> Gate:
    """A gate under which the bundled model writes something else."""
    return HeadSet.parse("1.5,1.8,0.0,3.6,2.2,4.4", pocket.geometry).scaled(0.3)


def written(lm: LanguageModel, prompts: tuple[str, ...], special: bool = True) -> list[str]:
    how = GenerateConfig(max_new_tokens=10, stop_at_newline=False)
    return [one.text for one in lm.generate(prompts, how, special=special)]


def pipe(model: Any, pocket: LanguageModel) -> Callable[..., Any]:
    # A pipeline sets the padding side of its tokenizer.
    tokenizer = copy.deepcopy(pocket.tokenizer)
    made = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)

    def run(*arguments: Any, **more: Any) -> Any:
        return made(*arguments, do_sample=False, max_new_tokens=10, return_full_text=False, **more)

    return run


def test_a_pipeline_writes_what_the_gated_model_writes(
    pocket: LanguageModel, changing: Gate
) -> None:
    as_is = written(pocket, PROMPTS)
    chat = [{"role": "user", "content": PROMPTS[0].removesuffix("\nAnswer:")}]
    template = pocket.tokenizer.apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True
    )
    with pocket.gated(changing):
        wanted, answer = written(pocket, PROMPTS), written(pocket, (template,), special=False)
    assert wanted != as_is
    with adapted(pocket.model, changing, pocket.tokenizer) as model:
        run = pipe(model, pocket)
        assert [run(one)[0]["generated_text"].strip() for one in PROMPTS] == [
            one.strip() for one in wanted
        ]
        batch = run(list(PROMPTS), batch_size=3)
        assert [one[0]["generated_text"].strip() for one in batch] == [
            one.strip() for one in wanted
        ]
        assert run(chat)[0]["generated_text"].strip() == answer[0].strip()
    assert written(pocket, PROMPTS) == as_is


def test_a_pipeline_itself_is_adapted(pocket: LanguageModel, changing: Gate) -> None:
    made = transformers.pipeline(
        "text-generation", model=pocket.model, tokenizer=copy.deepcopy(pocket.tokenizer)
    )
    with adapted(made, changing) as model:
        assert model is pocket.model
        assert hooks_of(model) > 0
    assert hooks_of(pocket.model) == 0


def test_an_adapted_model_is_saved_as_it_was(tmp_path: Path) -> None:
    lm, batch = wrapped("llama"), sample_batch()
    as_is = logits(lm.model, batch)
    with adapted(lm.model, soft(lm.geometry)) as model:
        model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(again, batch), as_is)


def test_prompts_are_read_from_texts_and_tables(tmp_path: Path) -> None:
    plain = tmp_path / "p.txt"
    plain.write_text("One  two\nÜber, {x}\n", "utf-8")
    assert [(one.id, one.given) for one in read_prompts(plain)] == [
        ("1", "One  two"),
        ("2", "Über, {x}"),
    ]
    table = tmp_path / "p.jsonl"
    table.write_text(
        '{"id": "a", "q": "Why?", "reference": "So."}\n'
        '{"id": 7, "q": [{"role": "user", "content": "Hi"}], "reference": "Hello"}\n',
        "utf-8",
    )
    first, second = read_prompts(table, "q")
    assert (first.id, first.given, first.reference) == ("a", "Why?", "So.")
    assert (second.id, second.plain) == ("7", [{"role": "user", "content": "Hi"}])
    assert [one.id for one in read_prompts(table, "q", limit=1)] == ["a"]
    assert prompts_digest([first]) != prompts_digest([second])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": ""}', "line 1: column 'text' is empty"),
        ('{"text": "a"}\n{"text": null}', "line 2: column 'text' holds nothing"),
        ('{"text": []}', "line 1: column 'text' holds no message"),
        ('{"text": ["Hi"]}', "line 1: message 1 of column 'text' is no message"),
        ('{"text": [{"role": "user"}]}', "message 1 of column 'text' is no message"),
        ('{"text": [{"role": "user", "content": 3}]}', "is no message"),
        ('{"text": [{"role": "user", "content": " "}]}', "empty role or content"),
        ('{"other": "a"}', "no column 'text'"),
        (r'{"text": "a", "id": "\ud800"}', "line 1: column 'id' holds half of a surrogate pair"),
        (
            r'{"text": [{"role": "user", "content": "a \udfff"}]}',
            "line 1: message 1 of column 'text' holds half",
        ),
        ("", "empty"),
    ],
)
def test_a_prompt_that_is_none_names_its_line(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(content, "utf-8")
    with pytest.raises(InputError, match=said):
        read_prompts(file)


def test_prompts_become_strings_as_a_pipeline_makes_them(pocket: LanguageModel) -> None:
    turn = {"role": "user", "content": "Hello"}
    begun = {"role": "assistant", "content": "Good"}
    file_prompts = [
        *PromptsChoice(("Hello",)).read(),
        *(one for one in map(_chat, ([turn], [turn, begun]))),
    ]
    plain, asked, going_on = rendered(pocket, file_prompts)
    assert (plain.text, plain.special) == ("Hello", True)
    assert (asked.text, asked.special) == ("<bos>Hello\nAnswer:", False)
    assert going_on.text.endswith("Good") and not going_on.special
    assert rendered(pocket, PromptsChoice(("Hello",)).read(), chat=True)[0].text == asked.text


def _chat(messages: list[dict[str, str]]) -> Any:
    from headscope.studies.use.prompts import GivenPrompt

    return GivenPrompt("1", tuple(messages), "here")


def test_a_prompt_that_does_not_fit_names_its_place(pocket: LanguageModel) -> None:
    with pytest.raises(InputError, match=r"--prompt 2: the prompt has 2[0-9]{3} tokens"):
        rendered(pocket, PromptsChoice(("a", "Haus " * 1200)).read())
    with pytest.raises(InputError, match="--prompt is empty"):
        PromptsChoice((" ",)).read()
    lm = wrapped("llama")
    with pytest.raises(InputError, match=r"here: .*no chat template"):
        rendered(lm, [_chat([{"role": "user", "content": "Hi"}])])
