"""Generation, and prompts for it."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import find_helpers
import lm_helpers
from headscope.errors import Caution, InputError
from headscope.heads import Gate, HeadSet
from headscope.lm.batching import Batch, collate
from headscope.lm.generation import GenerateConfig, RowStop, generate, pool
from headscope.lm.generation.pool import can_pool
from headscope.lm.generation.texts import generation_of
from headscope.lm.hooks import hooked
from headscope.lm.losses import token_losses
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import can_share
from headscope.lm.prompting import encode_answers, uses_chat, wrap_prompts
from headscope.lm.tokens import tokenise
from headscope.studies.models import ModelChoice, about_model, given_model, model_inputs
from headscope.use.rating import Rated, Unrated, rate_texts
from headscope.verify.tasks_evaluation.harness import HarnessModel
from lm_helpers import CHANGING, VARIED, build, changing, fresh, logits, tokenizer, wrapped

LLAMA = wrapped("llama")
#: Architectures with windows.
WINDOWS = ("gemma3", "mistral", "gpt_oss", "cohere2")
PROMPTS = ["Translate: a", "b", "a much longer prompt, with more to read", "short", "cde fgh", "b"]
PLAIN = GenerateConfig(max_new_tokens=12, stop_at_newline=False)


def naive(lm: LanguageModel, prompt: str, new: int) -> tuple[int, ...]:
    """One prompt, no cache, no padding: arg max of the last logits, over and over."""
    ids = lm.encode(prompt)
    start = len(ids)
    while len(ids) < start + new:
        ids.append(int(logits(lm.model, collate([ids], 0))[0, -1].argmax()))
        if ids[-1] in lm.eos_token_ids:
            return tuple(ids[start:-1])
    return tuple(ids[start:])


@pytest.mark.parametrize("name", VARIED)
def test_each_prompt_is_continued_as_if_alone(name: str) -> None:
    lm = wrapped(name)
    expected = [naive(lm, prompt, 12) for prompt in PROMPTS]
    for batch_tokens in (8192, 120, 1):
        config = GenerateConfig(12, batch_tokens, stop_at_newline=False)
        done = generate(lm, PROMPTS, config)
        assert [one.output_ids for one in done] == expected
        assert [one.prompt_ids for one in done] == [tuple(lm.encode(p)) for p in PROMPTS]
        assert [one.text for one in done] == [
            lm.tokenizer.decode(ids, skip_special_tokens=True).lstrip() for ids in expected
        ]


def test_settings_of_the_model_do_not_leak_in_and_are_kept() -> None:
    lm = wrapped("llama")
    plain = generate(lm, PROMPTS, PLAIN)
    own = lm.model.generation_config
    own.update(
        do_sample=True,
        temperature=5.0,
        top_k=3,
        repetition_penalty=9.0,
        no_repeat_ngram_size=1,
        min_new_tokens=12,
        suppress_tokens=[plain[0].output_ids[0]],
        num_beams=3,
        num_return_sequences=2,
        max_length=7,
        return_dict_in_generate=True,
    )
    before = own.to_dict()
    assert generate(lm, PROMPTS, PLAIN) == plain
    assert lm.model.generation_config is own
    assert own.to_dict() == before


FOLLOWED: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.7},
    "penalty of the prompt": {"encoder_repetition_penalty": 1.5},
    "n-grams": {"no_repeat_ngram_size": 2},
    "suppressed": {"suppress_tokens": [*range(20, 80)]},
    "suppressed at the beginning": {"begin_suppress_tokens": [*range(10, 90)]},
    "bad words": {"bad_words_ids": [[index] for index in range(30, 80)]},
    "bias": {"sequence_bias": [[[index], 5.0] for index in range(7, 40)]},
    "least": {"min_new_tokens": 5, "suppress_tokens": [*range(3, 60)]},
    "last": {"forced_eos_token_id": 2},
    "several": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [5, 6]},
}


@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "lfm2"])
def test_texts_follow_the_settings_of_a_checkpoint_as_transformers_does(
    name: str, architecture: str
) -> None:
    """Pooled and not: every prompt as plain `generate` continues it alone."""
    lm = wrapped(architecture)
    plain = generate(lm, PROMPTS, PLAIN)
    lm.model.generation_config.update(**FOLLOWED[name])
    limits = [4 + 3 * (at % 3) for at in range(len(PROMPTS))]
    followed = generate(lm.with_generation_config(), PROMPTS, PLAIN, limits)
    for prompt, limit, one in zip(PROMPTS, limits, followed, strict=True):
        ids = torch.tensor([lm.encode(prompt)])
        whole = lm.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
            max_new_tokens=limit, pad_token_id=0, eos_token_id=[*lm.eos_token_ids],
        )[0, ids.shape[1] :].tolist()  # fmt: skip
        assert list(one.output_ids) == whole[: len(one.output_ids)]
        assert len(one.output_ids) == len(whole) or whole[len(one.output_ids)] in lm.eos_token_ids
    assert generate(lm, PROMPTS, PLAIN) == plain
    cut = [one.output_ids[:limit] for one, limit in zip(plain, limits, strict=True)]
    assert [one.output_ids for one in followed] != cut


def test_settings_under_gates_are_those_of_each_gated_model() -> None:
    lm = wrapped("llama")
    lm.model.generation_config.update(repetition_penalty=1.7)
    followed, gates = lm.with_generation_config(), [Gate.identity(lm.geometry)] * 2
    gates[1] = Gate.of(lm.geometry, {(0, 1): 0.0, (1, 0): 0.0})
    both = generate(followed, PROMPTS[:1] * 2, PLAIN, gates=gates)
    for gate, one in zip(gates, both, strict=True):
        with followed.gated(gate):
            assert generate(followed, PROMPTS[:1], PLAIN) == [one]


def test_settings_that_cannot_be_followed_are_refused() -> None:
    lm = wrapped("llama")
    lm.model.generation_config.update(guidance_scale=2.0)
    with pytest.raises(InputError, match="guidance_scale"):
        lm.with_generation_config()
    lm.model.generation_config.update(guidance_scale=None, bad_words_ids=[[-5]])
    with pytest.raises(InputError, match="generation_config"):
        generate(lm.with_generation_config(), PROMPTS, PLAIN)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("forced_bos_token_id", value) for value in (5000, 96, -1, "a", 1.5, [1, 2.0])],
        *[("forced_eos_token_id", value) for value in (9999, 96, -1, "a", 2.5, [2, 96])],
        *[("bad_words_ids", value) for value in ([[5000]], [[3, 96]], [["a"]], [3])],
        *[("sequence_bias", value) for value in ([[[5000], 1.0]], [[["a"], 1.0]], [3])],
        *[("suppress_tokens", value) for value in (["a"], "a", 3)],
        *[("begin_suppress_tokens", value) for value in (["a"], "a", 3)],
    ],
)
@pytest.mark.parametrize("prompt", ["x", "The dog"])
def test_a_setting_that_names_no_token_is_told_in_one_sentence(
    setting: str, value: Any, prompt: str
) -> None:
    """The first and the last token of a text are those that some settings are about."""
    lm = wrapped("llama")
    setattr(lm.model.generation_config, setting, value)
    with pytest.raises(InputError, match="generation_config") as refused:
        generate(lm.with_generation_config(), [prompt], PLAIN, [1])
    assert len(str(refused.value).splitlines()) == 1


def test_settings_are_signed_where_they_are_followed_and_told_where_there_are_any() -> None:
    lm = wrapped("llama")
    before = model_inputs(lm)
    assert "generation_settings" not in about_model(lm)
    lm.model.generation_config.update(repetition_penalty=1.7)
    assert model_inputs(lm) == before
    assert "left out" in about_model(lm)["generation_settings"]
    followed = lm.with_generation_config()
    signed = model_inputs(followed)
    assert {name: signed[name] for name in before} == before and signed != before
    assert "followed: repetition_penalty=1.7" in about_model(followed)["generation_settings"]
    lm.model.generation_config.update(repetition_penalty=1.8)
    assert model_inputs(followed) != signed
    with given_model(lm) as named:
        assert ModelChoice(**named, generation_config=True).load().generation_config
        assert not ModelChoice(**named).load().generation_config


def test_end_of_text_ids_come_from_the_models_settings_too() -> None:
    lm = wrapped("llama")
    (free,) = generate(lm, PROMPTS[:1], PLAIN)
    assert free.stop == "length"
    assert len(free.output_ids) == 12
    end = free.output_ids[5]
    lm.model.generation_config.eos_token_id = [2, end]
    again = LanguageModel.wrap(lm.model, lm.tokenizer, check=False)
    assert again.eos_token_ids == tuple(sorted({2, end}))
    (ended, other) = generate(again, [PROMPTS[0], PROMPTS[2]], PLAIN)
    assert ended.output_ids == free.output_ids[: free.output_ids.index(end)]
    assert ended.stop == "eos"
    assert other.output_ids == naive(again, PROMPTS[2], 12)


def test_stops_at_the_first_newline_after_text() -> None:
    model = build("llama")
    lm = LanguageModel.wrap(model, tokenizer(), check=False)
    (free,) = generate(lm, PROMPTS[:1], PLAIN)
    ids = free.output_ids
    line, text = ids[0], next(index for index in ids if index != ids[0])
    # The same ids now mean a newline, and a token that holds text, a newline and text.
    names = {line: "\r\n", text: "x\ny"}
    lm = LanguageModel.wrap(model, tokenizer(names), check=False)
    assert not set(lm.encode(PROMPTS[0])) & {line, text}
    (cut,) = generate(lm, PROMPTS[:1], GenerateConfig(12))
    assert cut.stop == "newline"
    assert cut.output_ids == ids[: ids.index(text) + 1]
    assert cut.text == "x"
    (whole,) = generate(lm, PROMPTS[:1], PLAIN)
    assert whole.output_ids == ids
    assert whole.text.startswith("x\ny")


def test_limits_of_single_prompts() -> None:
    lm = wrapped("gpt2")
    limits = [3, 1, 9, 4, 2, 7]
    done = generate(lm, PROMPTS, GenerateConfig(stop_at_newline=False), limits)
    assert [one.output_ids for one in done] == [
        naive(lm, prompt, limit) for prompt, limit in zip(PROMPTS, limits, strict=True)
    ]
    (default,) = generate(lm, ["ab"], GenerateConfig(stop_at_newline=False))
    assert len(default.output_ids) == 2 * 2 + 32 or default.stop == "eos"
    long = "x" * (lm.context_length - 3)
    (bounded,) = generate(lm, [long], PLAIN)
    assert len(bounded.output_ids) == 3 or bounded.stop == "eos"


def ending(row: list[int], lm: LanguageModel, limit: int) -> int:
    """Tokens until the end by decoding everything at every step."""
    for length in range(1, limit + 1):
        if row[length - 1] in lm.eos_token_ids:
            return length
        text = lm.tokenizer.decode(row[:length], skip_special_tokens=True)
        if "\n" in text.lstrip():
            return length
    return limit


LINES = LanguageModel.wrap(
    build("llama"), tokenizer({5: "\n\n", 6: "a\n", 7: "\nb", 8: " \n", 9: "b\n "}), check=False
)
ids = st.lists(st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 9, 40, 94]), min_size=8, max_size=8)


@settings(deadline=None)
@given(st.lists(ids, min_size=1, max_size=4), st.data())
def test_rows_stop_where_decoding_every_prefix_would(rows: list[list[int]], data) -> None:
    limits = data.draw(st.lists(st.integers(1, 8), min_size=len(rows), max_size=len(rows)))
    stop = RowStop(LINES.stop_table, True, limits, torch.device("cpu"))
    tokens = torch.tensor([[4, 4, *row] for row in rows])
    ended = [None] * len(rows)
    for length in range(1, 9):
        for index, done in enumerate(stop(tokens[:, : 2 + length], None).tolist()):
            if done and ended[index] is None:
                ended[index] = length
    assert ended == [ending(row, LINES, n) for row, n in zip(rows, limits, strict=True)]
    for row, limit, length in zip(rows, limits, ended, strict=True):
        kept, why = LINES.stop_table.cut(row[:limit], at_newline=True)
        assert kept == length - (why == "eos")


def test_a_limit_can_be_given_beside_or_without_a_configuration() -> None:
    lm = wrapped("llama")
    expected = generate(lm, PROMPTS, GenerateConfig(5, stop_at_newline=False))
    assert lm.generate(PROMPTS, PLAIN, max_new_tokens=5) == expected
    assert lm.generate(PROMPTS, max_new_tokens=5) == generate(lm, PROMPTS, GenerateConfig(5))
    with pytest.raises(InputError, match="at least 1"):
        lm.generate(PROMPTS, max_new_tokens=0)


def gates_of(lm: LanguageModel, rows: int) -> torch.Tensor:
    """Three gates in turn, the second of ones; none changes the first layer."""
    some = torch.ones(3, *lm.geometry.shape)
    some[0, 1:, ::2], some[2, 1:, 1:] = 0.0, -0.5
    return some[torch.arange(rows) % 3]


def each_alone(
    lm: LanguageModel, prompts: list[str], limits: list[int], gates: torch.Tensor
) -> list[tuple[int, ...]]:
    made = []
    for prompt, limit, gate in zip(prompts, limits, gates, strict=True):
        with lm.gated(gate):
            made.append(naive(lm, prompt, limit))
    return made


@pytest.mark.parametrize("name", [*VARIED, "bloom", "opt", "gemma3", "gemma4", "lfm2"])
def test_each_prompt_is_continued_under_its_own_gate(name: str) -> None:
    lm = wrapped(name)
    gates, limits = gates_of(lm, len(PROMPTS)), [9, 2, 5, 9, 1, 7]
    expected = each_alone(lm, PROMPTS, limits, gates)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for batch_tokens in (8192, 90, 1):
            for decode in ("plain", "static"):
                settings = GenerateConfig(None, batch_tokens, False, decode)
                done = generate(lm, PROMPTS, settings, limits, gates=gates)
                assert [text.output_ids for text in done] == expected
    # A state that runs along cannot be cut, and the models whose cache has one say so.
    assert can_pool(lm) is can_pool(lm, "static") is not (name in ("qwen3_next", "lfm2"))
    assert any(isinstance(each.message, Caution) for each in warned) is not can_pool(lm)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_mean_the_same_in_a_pool(name: str) -> None:
    lm = wrapped(name, overrides={"sliding_window": 5})
    with lm.gated(torch.ones(lm.geometry.shape)):
        expected = [naive(lm, prompt, 9) for prompt in PROMPTS]
    for batch_tokens in (8192, 90):
        for decode in ("plain", "static"):
            done = generate(lm, PROMPTS, GenerateConfig(9, batch_tokens, False, decode))
            assert [text.output_ids for text in done] == expected
    assert can_pool(lm) and can_pool(lm, "static")


def traced(step: Callable[[], None]) -> Callable[[], None]:
    """A twin of a CUDA graph: the operations of a step on the tensors that it met, without the
    Python around them; whatever reads a value of a tensor raises `RuntimeError`."""
    buffers = step.__self__
    tensors = [value for value in vars(buffers).values() if isinstance(value, torch.Tensor)]
    for layer in buffers._cache.layers:
        tensors += [] if layer.keys is None else [layer.keys, layer.values]
    before = [tensor.clone() for tensor in tensors]
    # Transformers leaves out masks that mask nothing, but not where a step is recorded.
    with mock.patch("transformers.utils.import_utils.is_cuda_stream_capturing", return_value=True):
        operations = make_fx(lambda *_: step())(*tensors)
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(value)
    return lambda: operations(*tensors)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt_oss", "deepseek_v3", "bloom"])
def test_a_recorded_step_needs_no_python_and_has_the_logits_of_the_pool(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped(name)
    gates, limits = gates_of(lm, len(PROMPTS)), [12, 7, 7, 12, 5, 12]
    assert can_pool(lm) and can_pool(lm, "static")
    real, steps = LanguageModel.forward, dict[str, list[torch.Tensor]]()
    recorded: list[int] = []

    def keep(lm: LanguageModel, batch: Batch, *args: Any, **options: Any) -> Any:
        output = real(lm, batch, *args, **options)
        steps[decode].append(output.logits[: len(PROMPTS), -1])
        return output

    def record(step: Callable[[], None]) -> Callable[[], None]:
        repeat = traced(step)

        def counted() -> None:
            recorded.append(1)
            repeat()

        return counted

    made = {}
    for decode in ("plain", "static"):
        steps[decode] = []
        with monkeypatch.context() as patch:
            patch.setattr(LanguageModel, "forward", keep)
            config = GenerateConfig(12, stop_at_newline=False, decode=decode)
            made[decode] = generate(lm, PROMPTS, config, gates=gates)
    assert made["plain"] == made["static"]
    for one, other in zip(*steps.values(), strict=True):
        torch.testing.assert_close(one, other[: len(one)], rtol=1e-4, atol=1e-4)
    monkeypatch.setitem(pool.RECORDERS, "cpu", record)
    for batch_tokens in (8192, 120):
        config = GenerateConfig(None, batch_tokens, stop_at_newline=False)
        graph = dataclasses.replace(config, decode="graph")
        plain = generate(lm, PROMPTS, config, limits, gates=gates)
        assert generate(lm, PROMPTS, graph, limits, gates=gates) == plain
    # Rows leave and others enter between steps of one record.
    assert len(recorded) > 12


def test_what_cannot_be_recorded_or_kept_in_shape_is_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = changing("longrope")
    config = GenerateConfig(6, stop_at_newline=False)
    still, graph = (dataclasses.replace(config, decode=way) for way in ("static", "graph"))
    with pytest.warns(Caution, match="shapes that grow"):
        assert generate(lm, PROMPTS, still) == generate(lm, PROMPTS, config)

    def refuse(step: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setitem(pool.RECORDERS, "cpu", refuse)
    with pytest.warns(Caution, match="without a recorded step"):
        assert generate(LLAMA, PROMPTS, graph) == generate(LLAMA, PROMPTS, config)
    with pytest.raises(InputError, match="decode is 'fast'"):
        GenerateConfig(decode="fast")  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.text("abc d", max_size=30), st.integers(1, 12)), min_size=1, max_size=12),
    st.text("xyz", max_size=90),
    st.sampled_from([1, 100, 400, 8192]),
    st.booleans(),
)
def test_neither_pool_nor_shared_beginning_changes_a_text(
    rows: list[tuple[str, int]], shared: str, batch_tokens: int, gated: bool
) -> None:
    lm = LLAMA
    prompts, limits = [f"{shared}.{text}" for text, _ in rows], [limit for _, limit in rows]
    gates = gates_of(lm, len(rows)) if gated else torch.ones(len(rows), *lm.geometry.shape)
    progress: list[tuple[int, int]] = []
    done = generate(
        lm,
        prompts,
        GenerateConfig(None, batch_tokens, stop_at_newline=False),
        limits,
        gates=gates if gated else None,
        progress=lambda *state: progress.append(state),
    )
    assert [text.output_ids for text in done] == each_alone(lm, prompts, limits, gates)
    assert [text.prompt_ids for text in done] == [tuple(lm.encode(prompt)) for prompt in prompts]
    assert progress == [(at + 1, len(rows)) for at in range(len(rows))]


def passes_of(lm: LanguageModel, work: Callable[[], Any]) -> list[list[tuple[int, int]]]:
    """Rows and tokens of every pass through each decoder layer."""
    seen: list[list[tuple[int, int]]] = [[] for _ in lm.decoder_layers]

    def count(layer: int) -> Any:
        def hook(_: Any, args: tuple[Any, ...]) -> None:
            seen[layer].append(tuple(args[0].shape[:2]))

        return hook

    hooks = (site.projection.register_forward_pre_hook(count(site.layer)) for site in lm.sites)
    with hooked(lm.model, hooks):
        work()
    return seen


def test_rows_that_end_leave_and_waiting_ones_enter() -> None:
    lm = wrapped("llama")
    limits = [12, 1, 1, 1, 12, 1, 2, 2]
    prompts = ["abcd"] * 8
    settings = GenerateConfig(None, 4 * (len(lm.encode("abcd")) + 12), stop_at_newline=False)
    expected = [naive(lm, "abcd", limit) for limit in limits]
    assert can_pool(lm)
    seen = passes_of(lm, lambda: generate(lm, prompts, settings, limits))[0]
    made = generate(lm, prompts, settings, limits)
    assert [text.output_ids for text in made] == expected
    assert max(rows for rows, _ in seen) <= 8
    # Two rows go on for the eleven tokens that two rows have left, never with ended ones beside.
    steps = [rows for rows, tokens in seen if tokens == 1]
    assert sum(steps) == sum(limit - 1 for limit in limits)


def test_a_shared_beginning_is_read_once_a_gate_and_once_below_the_first_gated_layer() -> None:
    lm = wrapped("llama")
    shared = "the same beginning of every prompt, longer than what a pass costs by itself. " * 2
    prompts = [f"{shared}{text}" for text in ("ab", "c", "defg", "h") for _ in range(3)]
    gates = gates_of(lm, len(prompts))
    length = len(lm.encode(shared))
    can_pool(lm), can_share(lm, 1)
    seen = passes_of(lm, lambda: generate(lm, prompts, PLAIN, gates=gates))
    long = [[rows for rows, tokens in layer if tokens >= length] for layer in seen]
    assert long == [[1], [3]]


@pytest.mark.parametrize("new", [12, 40])
def test_where_texts_take_their_limits_the_last_rows_give_way_and_begin_again(
    new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped("llama")
    prompts = [f"{'abcd' * (1 + at % 3)} {at}" for at in range(12)]
    expected = [tuple(naive(lm, prompt, new)) for prompt in prompts]
    most = 4 * (max(len(lm.encode(prompt)) for prompt in prompts) + new)
    real, held, begun = LanguageModel.forward, list[tuple[int, int]](), list[int]()

    def forward(lm: LanguageModel, batch: Batch, *args: Any, **kwargs: Any) -> Any:
        held.append(tuple(batch.attention_mask.shape))
        return real(lm, batch, *args, **kwargs)

    @contextlib.contextmanager
    def observe(rows: list[int], batch: Batch, begins: bool) -> Iterator[None]:
        begun.extend(rows if begins else [])
        yield

    assert can_pool(lm)
    monkeypatch.setattr(LanguageModel, "forward", forward)
    made = generate(lm, prompts, GenerateConfig(new, most, False), observe=observe)
    assert [tuple(text.output_ids) for text in made] == expected
    assert max(rows * columns for rows, columns in held) <= most
    assert max(rows for rows, _ in held) > 4
    # Few do: after the first that begin again rows enter only where their whole limits fit.
    assert set(begun) == set(range(12))
    assert 12 < len(begun) <= 12 + 4


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_a_pool_that_does_not_fit_into_memory_begins_again_in_half(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = wrapped("llama")
    expected = generate(lm, PROMPTS, PLAIN)
    real, sizes = LanguageModel.forward, []
    most = 2

    def scarce(lm: LanguageModel, batch: Batch, *args: Any, **kwargs: Any) -> Any:
        rows, width = batch.attention_mask.shape
        sizes.append(rows)
        # Some tokens fit at first, so that it is a later pass that fails.
        if rows > most and width > 12:
            lm_helpers.no_memory(where)
        return real(lm, batch, *args, **kwargs)

    monkeypatch.setattr(LanguageModel, "forward", scarce)
    begun: list[int] = []
    seen: dict[int, int] = {}

    @contextlib.contextmanager
    def observe(rows: list[int], batch: Batch, begins: bool) -> Iterator[None]:
        assert batch.input_ids.shape[0] == len(rows)
        before = len(sizes)
        yield
        for row in rows:
            seen[row] = (0 if begins else seen[row]) + len(sizes) - before
        begun.extend(rows if begins else [])

    assert generate(lm, PROMPTS, PLAIN, observe=observe) == expected
    assert max(sizes) > most
    assert set(begun) == set(range(6))
    assert len(begun) > 6
    assert all(seen[row] >= len(text.output_ids) for row, text in enumerate(expected))
    most = 0
    with pytest.raises(torch.OutOfMemoryError):
        generate(lm, PROMPTS, PLAIN)


def test_gates_that_do_not_fit_are_refused() -> None:
    lm = wrapped("llama")
    with pytest.raises(InputError, match="2 gates were given for 1 prompts"):
        generate(lm, ["a"], gates=gates_of(lm, 2))
    with pytest.raises(InputError, match="geometry"):
        generate(lm, ["a"], gates=torch.ones(1, 2, 2))
    with pytest.raises(InputError, match="not finite"):
        generate(lm, ["a"], gates=torch.full((1, *lm.geometry.shape), torch.nan))


def test_training_mode_is_put_aside_and_given_back() -> None:
    lm = wrapped("gpt2", overrides={"resid_pdrop": 0.5})
    expected = generate(lm, PROMPTS, PLAIN)
    lm.model.train()
    assert generate(lm, PROMPTS, PLAIN) == expected
    assert lm.model.training


def test_what_does_not_fit_is_refused() -> None:
    lm = wrapped("gpt2")
    with pytest.raises(InputError, match="Prompt 1 has 0 tokens"):
        generate(lm, ["a", ""])
    with pytest.raises(InputError, match="fewer than the model's context of 256"):
        generate(lm, ["a" * 256])
    with pytest.raises(InputError, match="2 limits were given for 1 prompts"):
        generate(lm, ["a"], limits=[1, 2])
    with pytest.raises(InputError, match="limit of prompt 0 is 0"):
        generate(lm, ["a"], limits=[0])
    with pytest.raises(InputError, match="batch_tokens is 0"):
        GenerateConfig(batch_tokens=0)
    assert generate(lm, []) == []


CHATML = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
#: The answer follows a space, as with Mistral.
BRACKETS = (
    "<s>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %} {{ m['content'] }}</s>{% endif %}{% endfor %}"
)
#: Thinks aloud unless told not to, and shows no thoughts of earlier turns.
THINKING = (
    "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}{% if add_generation_prompt %}"
    "<s>{% if enable_thinking is defined and not enable_thinking %}(none)\n{% endif %}{% endif %}"
)


def words_tokenizer(template: str | None = None) -> Any:
    """Byte-level pieces with a few whole words, `<s>` put before every text by itself."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["the answer is Haus and Maus, Haus Maus Haus"] * 4, trainer)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
    )
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    made.chat_template = template
    return made


def model(template: str | None = None, context: int | None = None) -> LanguageModel:
    from small_models import build

    tokenizer = words_tokenizer(template)
    if context is not None:
        tokenizer.model_max_length = context
    built = build("llama")
    built.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    if context is not None:
        built.config.max_position_embeddings = context
    return LanguageModel.wrap(built, tokenizer, check=False)


def text_of(lm: LanguageModel, ids: tuple[int, ...]) -> str:
    return str(lm.tokenizer.decode(list(ids)))


@pytest.mark.parametrize(
    ("prompt", "answer", "whole"),
    [
        ("word\nAnswer:", "Haus", "word\nAnswer: Haus"),
        ("word\n", "Haus", "word\nHaus"),
        ("word ", "Maus Haus", "word Maus Haus"),
        ("x", "  ümlaut", "x   ümlaut"),
    ],
)
def test_plain_prompts_and_answers_are_one_string(prompt: str, answer: str, whole: str) -> None:
    lm = model()
    [row] = encode_answers(lm, [prompt], [answer])
    assert list(row.ids) == lm.encode(whole)
    # The first token whose decoded prefix reaches into the answer's first character.
    target = len(whole) - len(answer.lstrip())
    grown = [text_of(lm, row.ids[1 : n + 1]) for n in range(len(row.ids))]
    naive = next(n for n, text in enumerate(grown) if len(text.rstrip("\ufffd")) > target)
    # A first character of several bytes begins with the first of them.
    assert row.start <= naive
    assert text_of(lm, row.ids[row.start :]).strip() == answer.strip()
    assert answer.strip()[0] not in text_of(lm, row.ids[1 : row.start])[target - 1 :]


@pytest.mark.parametrize("template", [CHATML, BRACKETS, THINKING])
def test_a_chat_template_wraps_the_prompt_and_adds_nothing_twice(template: str) -> None:
    lm = model(template)
    assert uses_chat(lm)
    [wrapped] = wrap_prompts(lm, ["  the answer\n"])
    [row] = encode_answers(lm, ["  the answer\n"], ["Haus"])
    ids = list(row.ids)
    assert ids[0] == lm.tokenizer.bos_token_id
    assert ids.count(lm.tokenizer.bos_token_id) == wrapped.count("<s>")
    assert text_of(lm, row.ids[row.start :]).strip() == "Haus"
    assert "Haus" not in text_of(lm, row.ids[: row.start])
    gap = "" if wrapped[-1].isspace() else " "
    assert ids == lm.encode(wrapped + gap + "Haus", special=False)


def test_with_a_template_the_row_is_that_of_the_whole_conversation() -> None:
    for template in (CHATML, BRACKETS):
        lm = model(template)
        turns = [
            {"role": "user", "content": "the answer"},
            {"role": "assistant", "content": "Haus"},
        ]
        whole: str = lm.tokenizer.apply_chat_template(turns, tokenize=False)
        [row] = encode_answers(lm, ["the answer"], ["Haus"])
        assert list(row.ids) == lm.encode(whole, special=False)[: len(row.ids)]
        [ended] = encode_answers(lm, ["the answer"], ["Haus"], ended=True)
        assert list(ended.ids) == lm.encode(whole, special=False)[: len(row.ids) + 1]
        assert ended.start == row.start


def test_without_a_template_an_answer_ends_with_the_end_of_the_text() -> None:
    lm = model()
    [row] = encode_answers(lm, ["a "], ["Haus"])
    [ended] = encode_answers(lm, ["a "], ["Haus"], ended=True)
    assert ended.ids == (*row.ids, lm.tokenizer.eos_token_id)
    lm.tokenizer.eos_token = None
    with pytest.raises(InputError, match="--answer-end"):
        encode_answers(lm, ["a "], ["Haus"], ended=True)


def test_what_cannot_be_asked_is_refused() -> None:
    lm = model(context=12)
    with pytest.raises(InputError, match=r"example 2 has .* tokens with its answer"):
        encode_answers(lm, ["a", "the answer " * 9], ["Haus", "Maus"])
    with pytest.raises(InputError, match="answer is empty"):
        encode_answers(lm, ["a"], [" "])
    with pytest.raises(InputError, match="give one for each"):
        encode_answers(lm, ["a"], [])
    bare = lm_helpers.wrapped("llama")
    with pytest.raises(InputError, match="which no token predicts"):
        encode_answers(bare, [""], ["b"])


@pytest.mark.parametrize(
    ("text", "one_line", "after_preamble"),
    [
        ("Der Hund\nmore", "Der Hund", "Der Hund"),
        ("Here it is:\n\nDer Hund\nmore", "Here it is:", "Here it is:\n\nDer Hund"),
        ("**Answer:**\nDer Hund\nmore", "**Answer:**", "**Answer:**\nDer Hund"),
        ("# Answer:\nDer Hund\nmore", "# Answer:", "# Answer:\nDer Hund"),
        ("\n\nOf: dog\nmore", "Of: dog", "Of: dog"),
    ],
)
def test_an_output_goes_past_a_line_that_comes_before_the_answer(
    text: str, one_line: str, after_preamble: str
) -> None:
    lm = find_helpers.wrapped("qwen3")
    ids = lm.encode(text, special=False)
    for stop, expected in ((True, one_line), ("after preamble", after_preamble)):
        made = generation_of(lm, [0], ids, stop)
        assert made.text.rstrip() == expected and made.stop == "newline"
        # Row by row, while it is written, as in the whole afterwards.
        rows = RowStop(lm.stop_table, stop, [len(ids)], torch.device("cpu"))
        ended = [bool(rows(torch.tensor([ids[: at + 1]]))[0]) for at in range(len(ids))]
        assert ended.index(True) + 1 == len(made.output_ids)


@pytest.mark.parametrize("kind", CHANGING)
def test_texts_that_outgrow_a_bound_are_written_as_if_alone(kind: str) -> None:
    lm, length = changing(kind), 20
    prompts = ["abcd", "a longer one to go on", "x" * 23, "bc" * 15, "abcd", "dcba" * 8]
    heads = list(lm.geometry.heads())
    gates = [HeadSet(lm.geometry, tuple(heads[at : at + 2])).removed() for at in range(6)]
    config = GenerateConfig(length, stop_at_newline=False)
    for own in (None, gates):
        watched: dict[int, list[int]] = {}

        @contextlib.contextmanager
        def observe(
            rows: list[int], batch: Batch, begins: bool, watched: dict[int, list[int]] = watched
        ) -> Iterator[None]:
            def keep(_: Any, args: Any, output: Any) -> None:
                for row, token in zip(rows, output.logits[:, -1].argmax(-1).tolist(), strict=True):
                    watched.setdefault(row, []).append(token)

            with hooked(lm.model, [lm.model.register_forward_hook(keep)]):
                yield

        done = generate(lm, prompts, config, observe=observe, gates=own)
        for at, (prompt, made) in enumerate(zip(prompts, done, strict=True)):
            ids = torch.tensor([lm.encode(prompt)])
            alone = fresh(lm)
            gated = LanguageModel.wrap(alone, lm.tokenizer, check=False)
            with contextlib.nullcontext() if own is None else gated.gated(own[at]):
                text = alone.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=length,
                    do_sample=False,
                    eos_token_id=2,
                    pad_token_id=0,
                )[0, ids.shape[1] :].tolist()
            text = text[: text.index(2)] if 2 in text else text
            assert list(made.output_ids) == text
            assert watched[at][: len(text)] == text


def test_an_end_that_the_tokenizer_adds_closes_no_prompt() -> None:
    from tokenizers import processors

    ending = tokenizer()
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    with pytest.warns(Caution, match="</s>"):
        lm = LanguageModel.wrap(build("llama"), ending, name="ending")
    plain = tokenizer()
    ids = {text: [1, *plain(text)["input_ids"]] for text in ("Translate: a", "Translate: a bc")}
    prompt, whole = ids["Translate: a"], ids["Translate: a bc"]
    assert lm.encode("Translate: a") == prompt
    assert lm.encode("") == [1]
    assert lm.encode("ab</s>")[-2:] == [plain("b")["input_ids"][0], 2]
    assert lm.encode("Translate: a", closed=True) == [*prompt, 2]
    made = lm.model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=8,
        do_sample=False,
        eos_token_id=2,
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    (done,) = generate(lm, ["Translate: a"], GenerateConfig(8, stop_at_newline=False))
    assert list(done.output_ids) == (made[: made.index(2)] if 2 in made else made)
    (row,) = encode_answers(lm, ["Translate: a"], ["bc"])
    assert (list(row.ids), row.start) == (whole, len(prompt) + 1)
    with torch.no_grad():
        found = lm.model(torch.tensor([whole])).logits[0].log_softmax(-1)
    own = [-float(found[at - 1, whole[at]]) for at in range(row.start, len(whole))]
    assert token_losses(lm, [row.ids], [row.start])[0].tolist() == pytest.approx(own, abs=1e-5)
    # What belongs to a document as a whole is scored with its end.
    (rated,) = rate_texts(lm, ["Translate: a bc"], lm_gate(lm))
    assert isinstance(rated, Rated)
    assert rated.tokens == len(whole)


@pytest.mark.parametrize("special", [True, False])
def test_an_end_that_is_not_among_the_named_special_tokens(special: bool) -> None:
    from tokenizers import AddedToken, processors

    ending, plain = tokenizer(), tokenizer()
    end = ending.convert_tokens_to_ids("b")
    if special:  # an added special token, which has no name such as eos_token
        ending.backend_tokenizer.add_special_tokens([AddedToken("b", special=True)])
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A b", special_tokens=[("<s>", 1), ("b", end)]
    )
    assert end not in ending.all_special_ids
    for text in ("Translate: a", "a"):
        ids = [1, *plain(text)["input_ids"]]
        assert list(tokenise(ending, text).ids) == ids
        assert ending(text)["input_ids"] == [*ids, end]


def lm_gate(lm: LanguageModel) -> Any:
    return HeadSet(lm.geometry, (next(iter(lm.geometry.heads())),)).removed()


def test_a_token_without_an_embedding_pads_nothing_and_is_refused_by_name() -> None:
    beyond = tokenizer(pad=False)
    beyond.add_special_tokens({"pad_token": "[PAD]"})
    lm = LanguageModel.wrap(build("llama"), beyond, name="beyond", check=False)
    assert beyond.pad_token_id == lm.vocabulary == 96
    assert lm.pad_token_id == 2
    assert lm.unknown_tokens == ("[PAD]",)
    rows = [lm.encode("ab"), lm.encode("a longer row")]
    for row, losses in zip(rows, token_losses(lm, rows), strict=True):
        with torch.no_grad():
            found = lm.model(torch.tensor([row])).logits[0].log_softmax(-1)
        own = [-float(found[at - 1, row[at]]) for at in range(1, len(row))]
        assert losses.tolist() == pytest.approx(own, abs=1e-5)
    ways: list[Callable[[], Any]] = [
        lambda: lm.encode("a[PAD]"),
        lambda: lm.encoded("a[PAD]"),
        lambda: generate(lm, ["b", "a[PAD]"]),
        lambda: encode_answers(lm, ["a"], ["b[PAD]"]),
        lambda: HarnessModel(lm).pair("a", " [PAD]"),
    ]
    for way in ways:
        with pytest.raises(InputError, match=r"'\[PAD\]' \(id 96"):
            way()
    good, bad = rate_texts(lm, ["a text", "a [PAD] text"], lm_gate(lm))
    assert isinstance(good, Rated)
    assert isinstance(bad, Unrated)
    assert "[PAD]" in bad.reason
    for wrong in (-1, 96, 4000):
        lm.model.generation_config.eos_token_id = [wrong, 2]
        assert lm.pad_token_id == 2
        assert -1 not in lm.eos_token_ids
    lm.model.generation_config.eos_token_id = 2


def test_decoding_takes_no_white_space_out() -> None:
    cleaning = tokenizer()
    cleaning.clean_up_tokenization_spaces = True
    lm = LanguageModel.wrap(build("llama"), cleaning, check=False)
    text = "a , b . c 's ?"
    ids = cleaning(text)["input_ids"]
    assert "".join(cleaning.convert_ids_to_tokens(ids)) == text
    assert lm.decode(ids) == text
    assert generation_of(lm, [3], ids, True).text == text
    assert lm.decode([*ids, 2]) == text
    assert lm.decode([*ids, 2], special=True) == f"{text}</s>"


def test_a_single_text_is_one_prompt_and_rows_are_token_ids() -> None:
    plain = GenerateConfig(4, stop_at_newline=False)
    assert LLAMA.generate("ab cd", plain) == LLAMA.generate(["ab cd"], plain)
    assert encode_answers(LLAMA, "ab", "cd") == encode_answers(LLAMA, ["ab"], ["cd"])
    assert wrap_prompts(LLAMA, "ab", chat=False) == ["ab"]
    gate = lm_gate(LLAMA)
    assert rate_texts(LLAMA, "ab cd", gate) == rate_texts(LLAMA, ["ab cd"], gate)
    row: Any = LLAMA.encode("ab cd")
    arrays = (row, tuple(row), torch.tensor(row), np.array(row))
    expected = LLAMA.next_logits([row])
    for given_row in arrays:
        assert torch.equal(LLAMA.next_logits([given_row]), expected)
    for wrong in (
        "ab cd",
        ["ab cd"],
        row,
        [[3.5, 4.0]],
        [["a", "b"]],
        [[5, 96]],
        [[5, -1]],
        [[row, row]],
    ):
        for way in (LLAMA.next_logits, lambda rows: token_losses(LLAMA, rows)):
            with pytest.raises(InputError):
                way(wrong)
    for texts in ([["a"]], [None], [b"ab"], [3]):
        with pytest.raises(InputError, match="not a text"):
            LLAMA.generate(texts, plain)
    with pytest.raises(InputError, match="text is wanted"):
        LLAMA.encode(["ab"])


@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen3_next"])
def test_a_configuration_that_wants_the_balance_of_experts_changes_no_text(name: str) -> None:
    lm = wrapped(name)
    lm.model.config.output_router_logits = True
    config = GenerateConfig(max_new_tokens=4, stop_at_newline=False)
    written = lm.generate(["abcdef", "abc", "abcdefgh"], config)
    plain = build(name)
    for text in written:
        row = list(text.prompt_ids)
        for token in text.output_ids:
            with torch.no_grad():
                assert int(plain(torch.tensor([row])).logits[0, -1].argmax()) == token
            row.append(token)
