"""One thread at a time owns a model: what others compute meanwhile is what they compute alone."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import build

import headscope
from headscope.errors import Caution, InputError
from headscope.heads import Gate
from headscope.heads.adaptation import Adaptation
from headscope.lm import owners
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.feed_forward import feed_forward_gated
from headscope.lm.hooks import kept_output, replaced_forwards
from headscope.lm.inputs import evaluating
from headscope.lm.losses import frozen
from headscope.lm.model import LanguageModel
from headscope.lm.patching import head_outputs
from headscope.lm.prefix import record_prefix
from headscope.lm.queries import query_gated
from headscope.lm.weights import changeable_weights
from headscope.use.adapting import adapted, attach
from lm_helpers import hooks_of, logits, sample_batch, tokenizer, wrapped

Open = Callable[[LanguageModel], AbstractContextManager[Any]]


def silent(lm: LanguageModel) -> Gate:
    """A gate that removes all heads."""
    return Gate(lm.geometry, np.zeros(lm.geometry.shape))


@contextlib.contextmanager
def zeroed(lm: LanguageModel) -> Iterator[None]:
    with changeable_weights(lm) as weights:
        held = [(weight, weight.clone()) for weight in weights.values()]
        for weight, _ in held:
            weight.zero_()
        try:
            yield
        finally:
            for weight, before in held:
                weight.copy_(before)


#: Whatever can be opened on a model; what can be seen in its passes comes first.
CONTEXTS: dict[str, Open] = {
    "gate": lambda lm: lm.gated(silent(lm)),
    "adaptation": lambda lm: lm.adapted(Adaptation(silent(lm))),
    "queries": lambda lm: query_gated(lm, torch.zeros(lm.geometry.shape)),
    "feed-forward gate": lambda lm: feed_forward_gated(lm, torch.zeros(lm.geometry.layers)),
    "weights": zeroed,
    "forwards": lambda lm: replaced_forwards(
        lm.model, lm.decoder_layers, lambda own: lambda *args, **kwargs: args[0]
    ),
    "adapted": lambda lm: adapted(lm, silent(lm)),
    "peaks": lambda lm: lm.attention_peaks(),
    "attention": lambda lm: lm.attention_weights(WeightRequest(torch.arange(1)[None].expand(3, 1))),
    "outputs": head_outputs,
    "output": lambda lm: kept_output(lm.model, lm.decoder_layers[0], stop=True),
    "prefix": lambda lm: record_prefix(lm, 1, stop=True),
    "evaluating": lambda lm: evaluating(lm.model),
    "frozen": lambda lm: frozen(lm.model),
}


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread at work, and what it has found: a value, or an error."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def waits(thread: threading.Thread) -> bool:
    """Whether a thread comes to wait for a model, rather than to an end."""
    while thread.is_alive():
        with owners._changed:
            if thread in owners._awaited:
                return True
    return False


@pytest.mark.parametrize("name", CONTEXTS)
def test_another_thread_waits_until_a_context_is_closed(name: str) -> None:
    lm = wrapped("llama")
    batch, other = sample_batch(), LanguageModel.wrap(lm.model, tokenizer(), check=False)
    plain = lm.forward(batch).logits
    with CONTEXTS[name](lm) as seen:
        works = [
            in_thread(lambda: lm.forward(batch).logits),
            in_thread(lambda: other.with_system("Be brief.").forward(batch).logits),
            in_thread(lambda: lm.next_logits([[5, 6, 7]])),
        ]
        assert all(waits(thread) for thread, _ in works)
    for thread, _ in works:
        thread.join(60)
    assert all(torch.equal(found[0], plain) for _, found in works[:2])
    assert torch.equal(works[2][1][0], lm.next_logits([[5, 6, 7]]))
    assert not getattr(seen, "steps", ())
    assert not hooks_of(lm.model)


@pytest.mark.parametrize("name", list(CONTEXTS)[:12])
def test_a_pass_of_the_model_itself_in_another_thread_is_refused(name: str) -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    plain = logits(lm.model, batch)
    with CONTEXTS[name](lm):
        thread, found = in_thread(lambda: logits(lm.model, batch))
        thread.join(60)
    assert isinstance(found[0], InputError) and "\n" not in str(found[0])
    assert torch.equal(logits(lm.model, batch), plain)


def test_other_models_do_not_wait() -> None:
    lm, other = wrapped("llama"), wrapped("llama", 1)
    alone = other.next_logits([[5, 6, 7]])
    with lm.gated(silent(lm)):
        thread, found = in_thread(lambda: other.next_logits([[5, 6, 7]]))
        thread.join(60)
    assert torch.equal(found[0], alone)


def test_many_threads_have_what_each_has_alone() -> None:
    lm = wrapped("llama")
    generator = torch.Generator().manual_seed(0)
    gates = [torch.randint(0, 2, lm.geometry.shape, generator=generator).float() for _ in range(12)]
    rows = [[5, 6, 7], [8, 9, 10, 11]]

    def under(gate: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        with lm.gated(gate):
            with lm.attention_peaks() as peaks:
                one = lm.next_logits(rows)
            texts = [each.output_ids for each in lm.generate(["ab", "c"], max_new_tokens=5)]
            return one, peaks.keys, texts

    alone = [under(gate) for gate in gates]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(under, gates))
    for first, second in zip(alone, at_once, strict=True):
        assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
        assert first[2] == second[2]
    assert not torch.equal(alone[0][0], alone[1][0])


def test_gradients_are_those_of_the_own_gate() -> None:
    """Also where layers are computed again in the backward pass, while others wait."""
    from headscope.find.gate_gradients import batch_gradients

    lm = wrapped("llama")
    gates = [torch.full((1, *lm.geometry.shape), value) for value in (0.3, 0.6, 0.9, 1.2)]

    def gradients(gate: torch.Tensor) -> torch.Tensor:
        return batch_gradients(lm, [[5, 6, 7, 8, 9]], gate, True)[1]

    alone = [gradients(gate) for gate in gates]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(gradients, gates))
    assert all(map(torch.equal, alone, at_once))


def test_two_studies_at_once_have_the_results_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lm = headscope.load("pocket", check="never")
    rows = {"en-de": 2, "de-en": 3}

    def study(pair: str, out: str, progress: Any = False) -> Any:
        return headscope.find.translation_score(
            lm, pair=pair, limit=rows[pair], batch_tokens=64, out=out, progress=progress
        )

    alone = [study(pair, f"alone {pair}") for pair in rows]
    begun: list[tuple[threading.Thread, list[Any]]] = []

    def begin(*_: Any) -> None:
        if not begun:
            begun.append(in_thread(lambda: study("de-en", "second")))
            assert waits(begun[0][0])

    first = study("en-de", "first", begin)
    thread, second = begun[0]
    thread.join(300)
    for before, now in zip(alone, [first, *second], strict=True):
        assert now.signature == before.signature
        one, two = (json.loads(Path(each.run, "result.json").read_text()) for each in (before, now))
        for name in ("run", "seconds"):
            assert one.pop(name) != two.pop(name)
        assert one == two
        arrays = [sorted(Path(each.run).rglob("*.safetensors")) for each in (before, now)]
        assert arrays[0]
        for kept, made in zip(*arrays, strict=True):
            assert kept.name == made.name and kept.read_bytes() == made.read_bytes()


def test_a_thread_that_ends_with_an_open_gate_is_named() -> None:
    lm = wrapped("llama")
    opened: list[Any] = []

    def leaves_it_open() -> None:
        opened.append(lm.gated(silent(lm)))
        opened[0].__enter__()

    thread, _ = in_thread(leaves_it_open)
    thread.join(60)
    with pytest.raises(InputError, match=re.escape(thread.name)):
        lm.next_logits([[5, 6, 7]])
    opened[0].__exit__(None, None, None)
    assert torch.isfinite(lm.next_logits([[5, 6, 7]])).all()
    assert not hooks_of(lm.model)


def test_a_generator_that_holds_a_gate_may_be_closed_in_another_thread() -> None:
    lm = wrapped("llama")
    plain = lm.next_logits([[5, 6, 7]])

    def gated() -> Iterator[torch.Tensor]:
        with lm.gated(silent(lm)):
            while True:
                yield lm.next_logits([[5, 6, 7]])

    steps: Any = gated()
    under = next(steps)
    assert not torch.equal(under, plain)
    waiting, found = in_thread(lambda: lm.next_logits([[5, 6, 7]]))
    assert waits(waiting)
    closing, _ = in_thread(steps.close)
    closing.join(60)
    waiting.join(60)
    assert torch.equal(found[0], plain) and torch.equal(lm.next_logits([[5, 6, 7]]), plain)


def test_two_threads_that_want_each_others_model_do_not_wait_for_ever() -> None:
    first, second = wrapped("llama"), wrapped("llama", 1)
    both = threading.Barrier(2)

    def work(own: LanguageModel, other: LanguageModel) -> torch.Tensor:
        with own.gated(silent(own)):
            both.wait(60)
            return other.next_logits([[5, 6, 7]])

    works = [in_thread(lambda: work(first, second)), in_thread(lambda: work(second, first))]
    for thread, _ in works:
        thread.join(60)
        assert not thread.is_alive()
    refused = [isinstance(found[0], InputError) for _, found in works]
    assert any(refused)
    assert first.next_logits([[5]]) is not None and second.next_logits([[5]]) is not None


def test_who_waits_for_the_thread_that_holds_a_gate_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("LOOK_EVERY", 0.01), ("WORD_AFTER", 0.02), ("IDLE_AFTER", 0.1)):
        monkeypatch.setattr(owners, name, seconds)
    lm = wrapped("llama")
    with lm.gated(silent(lm)), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lm.next_logits, [[5, 6, 7]])
        with pytest.warns(Caution, match="MainThread"):
            refused = answer.exception(60)
        assert isinstance(refused, InputError) and "MainThread" in str(refused)
        # With a copy of the context it is part of the block, and gated.
        inside = pool.submit(contextvars.copy_context().run, lm.next_logits, [[5, 6, 7]])
        assert torch.equal(inside.result(60), lm.next_logits([[5, 6, 7]]))


def test_a_study_may_wait_for_its_workers_while_others_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (("LOOK_EVERY", 0.01), ("IDLE_AFTER", 0.05)):
        monkeypatch.setattr(owners, name, seconds)
    lm = wrapped("llama")
    plain = lm.next_logits([[5, 6, 7]])
    with owners.owned(lm.model, owners.STUDY), lm.gated(silent(lm)):
        thread, found = in_thread(lambda: lm.next_logits([[5, 6, 7]]))
        assert waits(thread)
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(60)
    assert torch.equal(found[0], plain)


def test_tasks_of_one_event_loop_are_apart() -> None:
    lm = wrapped("llama")
    plain = lm.next_logits([[5, 6, 7]])
    with lm.gated(silent(lm)):
        under = lm.next_logits([[5, 6, 7]])

    async def main() -> tuple[Any, ...]:
        opened, tried = asyncio.Event(), asyncio.Event()

        async def holds() -> tuple[torch.Tensor, torch.Tensor]:
            with lm.gated(silent(lm)):
                opened.set()
                await tried.wait()
                # A thread that carries this task's context is inside of its block.
                there = await asyncio.to_thread(lm.next_logits, [[5, 6, 7]])
                return lm.next_logits([[5, 6, 7]]), there

        async def tries() -> Any:
            await opened.wait()
            try:
                return lm.next_logits([[5, 6, 7]])
            except InputError as error:
                return error
            finally:
                tried.set()

        return (*await asyncio.gather(holds(), tries()), lm.next_logits([[5, 6, 7]]))

    (inside, there), other, after = asyncio.run(main())
    assert torch.equal(inside, under) and torch.equal(there, under)
    assert isinstance(other, InputError) and torch.equal(after, plain)


def test_attached_gates_are_there_for_all_threads() -> None:
    lm = wrapped("llama")
    plain = lm.next_logits([[5, 6, 7]])
    attached = attach(lm, silent(lm))
    under = lm.next_logits([[5, 6, 7]])
    with ThreadPoolExecutor(2) as pool:
        of_threads = list(pool.map(lambda _: lm.next_logits([[5, 6, 7]]), range(4)))
        batch = sample_batch()
        raw = pool.submit(logits, lm.model, batch).result(60)
        pool.submit(attached.remove).result(60)
    assert all(torch.equal(each, under) for each in of_threads)
    assert not torch.equal(under, plain)
    assert not torch.equal(raw, logits(lm.model, batch))
    assert torch.equal(lm.next_logits([[5, 6, 7]]), plain)


def test_a_copy_of_a_model_is_another_model() -> None:
    import copy

    lm = wrapped("llama")
    with lm.gated(silent(lm)):
        other = copy.deepcopy(lm.model)
        thread, found = in_thread(lambda: logits(other, sample_batch()))
        thread.join(60)
    assert isinstance(found[0], torch.Tensor)


def test_an_adapter_shares_its_base_models_owner() -> None:
    peft = pytest.importorskip("peft")
    base = build("llama")
    plain = LanguageModel.wrap(base, tokenizer(), check=False)
    config = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=True)
    around = LanguageModel.wrap(peft.get_peft_model(base, config), tokenizer(), check=False)
    alone = around.next_logits([[5, 6, 7]])
    with plain.gated(silent(plain)):
        thread, found = in_thread(lambda: around.next_logits([[5, 6, 7]]))
        assert waits(thread)
    thread.join(60)
    assert torch.equal(found[0], alone)


def test_threads_that_load_at_once_leave_the_process_as_it_was(tmp_path: Path) -> None:
    from headscope.lm.loading import load
    from lm_helpers import saved

    folders = [saved(tmp_path / str(number)) for number in range(3)]
    kinds = ("float32", "bfloat16", "float16")
    from transformers import core_model_loading

    bar, dtype = core_model_loading.tqdm, torch.get_default_dtype()
    with ThreadPoolExecutor(3) as pool:
        loaded = list(
            pool.map(lambda f, d: load(f, device="cpu", dtype=d, check="never"), folders, kinds)
        )
    assert [str(lm.dtype) for lm in loaded] == [f"torch.{kind}" for kind in kinds]
    assert (core_model_loading.tqdm, torch.get_default_dtype()) == (bar, dtype)
