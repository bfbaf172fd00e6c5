"""What stands in the place of removed heads: means by class of position, or drawn outputs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np
import pytest
import torch

import headscope.lm.replacement as replacements
import headscope.lm.shared_losses as shared_losses
import lm_helpers
from headscope import ablations, options
from headscope.errors import InputError
from headscope.evidence.rows import Condition
from headscope.heads import Gate, Head, HeadSet
from headscope.lm import GenerateConfig, LanguageModel
from headscope.lm.batching import collate
from headscope.lm.generation.pool import Requests, SharedPrefix
from headscope.lm.inputs import forward_inputs
from headscope.lm.losses import token_losses
from headscope.lm.positions import answers_at
from headscope.lm.prefix import last_token, record_prefix, replay_prefix
from headscope.lm.replacement import (
    MAKERS,
    Mean,
    Replacement,
    Resample,
    head_means,
    replacement_of,
)
from headscope.lm.shared_losses import AnswerRow, answer_losses, losses_with_and_without
from headscope.results.common import Ablation
from headscope.studies.shows import ablation_facts
from lm_helpers import VARIED, logits, multimodal, sample_batch, wrapped

#: Rows of unlike lengths, and where their answers begin: one has none, one is all answer.
ROWS = [[5, 9, 40, 41, 42, 7, 77], [], [30, 31, 32, 33, 90, 8, 15, 16, 17, 18, 19], [88, 60, 61]]
STARTS = [4, 0, 11, 1]


@contextmanager
def naively(
    lm: LanguageModel, change: Callable[[int, torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Let ``change`` see what enters each projection as (T, H, D), of passes over a single row."""

    def replace(site: Any) -> Callable[..., Any]:
        def hook(_: Any, args: tuple[Any, ...]) -> Any:
            (row,) = args[0].unflatten(-1, (site.heads, site.head_width))
            return (change(site.layer, row).flatten(-2)[None],)

        return hook

    handles = [site.projection.register_forward_pre_hook(replace(site)) for site in lm.sites]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def class_of(place: int, start: int, classes: int) -> int:
    if place == 0:
        return 0
    return 2 if classes == 3 and place >= start else 1


#: What stands in the place of heads, by hand: means (C, L, W, D); or for the token at a place of a
#: row, its class, a layer and a head, an output.
ByHand = np.ndarray | Callable[[Sequence[int], int, int, int], torch.Tensor]


def naive_logits(
    lm: LanguageModel,
    row: Sequence[int],
    start: int,
    gate: np.ndarray,
    by_hand: ByHand,
    classes: int = 3,
) -> torch.Tensor:
    """One row alone, without padding, cache or batch: every head by hand, (T, V)."""

    def change(layer: int, parts: torch.Tensor) -> torch.Tensor:
        parts = parts.clone()
        for place in range(len(parts)):
            if callable(by_hand):
                outputs = by_hand(row, place, class_of(place, start, classes), layer)
            else:
                group = class_of(place, start, len(by_hand))
                outputs = torch.from_numpy(by_hand[group, layer, :, : parts.shape[2]])
            for head in range(parts.shape[1]):
                g = float(gate[layer, head])
                parts[place, head] = g * parts[place, head] + (1 - g) * outputs[head]
        return parts

    with naively(lm, change), torch.no_grad():
        found: torch.Tensor = lm.model(input_ids=torch.tensor([list(row)]), use_cache=False).logits
    return found[0]


def naive_losses(lm: LanguageModel, row: Sequence[int], *how: Any) -> np.ndarray:
    """The loss of each token but the first."""
    every = naive_logits(lm, row, *how).double().log_softmax(-1)
    return np.array([-float(every[at - 1, row[at]]) for at in range(1, len(row))])


Kept = dict[tuple[int, int], list[torch.Tensor]]


def naive_outputs(lm: LanguageModel, starts: Sequence[int] | None) -> Kept:
    """What enters each layer's projection, (H, D), at every token of a class, row by row."""
    classes = 2 if starts is None else 3
    kept: Kept = {}
    for at, row in enumerate(ROWS):
        if row:

            def keep(layer: int, parts: torch.Tensor, at: int = at) -> torch.Tensor:
                for place, vector in enumerate(parts):
                    group = class_of(place, STARTS[at], classes)
                    kept.setdefault((group, layer), []).append(vector)
                return parts

            with naively(lm, keep), torch.no_grad():
                lm.model(input_ids=torch.tensor([row]), use_cache=False)
    return kept


def naive_means(lm: LanguageModel, starts: Sequence[int] | None) -> np.ndarray:
    """One row at a time, all vectors kept, averaged at the end."""
    classes, kept = 2 if starts is None else 3, naive_outputs(lm, starts)
    widest = max(site.head_width for site in lm.sites)
    means = np.zeros((classes, *lm.geometry.shape, widest))
    for (group, layer), vectors in kept.items():
        mean = torch.stack(vectors).double().mean(0)
        means[group, layer, : mean.shape[0], : mean.shape[1]] = mean.numpy()
    return means


def mixed(number: int) -> int:
    """The finaliser of splitmix64, as it is published (Steele, Lea and Flood 2014)."""
    whole = (1 << 64) - 1
    number = (number + 0x9E3779B97F4A7C15) & whole
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & whole
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & whole
    return number ^ number >> 31


def naive_draws(lm: LanguageModel, starts: Sequence[int] | None, seed: int) -> ByHand:
    """Outputs drawn by hand: of all heads those at one token, by the seed, the id and its place."""
    kept, chance = naive_outputs(lm, starts), np.random.default_rng(seed)
    counts = [len(kept[group, lm.sites[0].layer]) for group in range(2 + (starts is not None))]
    orders = [chance.permutation(count) for count in counts]

    def drawn(row: Sequence[int], place: int, group: int, layer: int) -> torch.Tensor:
        number = mixed((row[place] + mixed((place + mixed(seed)) % 2**64)) % 2**64)
        signed = number - 2**64 if number >= 2**63 else number
        order = orders[group]
        return kept[group, layer][order[signed % len(order)]]

    return drawn


def both_ways(
    lm: LanguageModel, kind: str, starts: Sequence[int] | None = STARTS, seed: int = 5
) -> tuple[ByHand, Replacement]:
    """What stands in the place of heads, by hand and as it is made."""
    made = replacement_of(kind, lm, ROWS, starts, 30, seed)
    assert made is not None
    if kind == "mean":
        return head_means(lm, ROWS, starts), made
    return naive_draws(lm, starts, seed), made


KINDS = pytest.mark.parametrize("kind", ["mean", "resample"])


def test_every_kind_has_a_name_words_and_a_maker() -> None:
    """Only zero gives nothing, needs no reference text and is what a condition does not name."""
    assert [*ablations.KINDS] == [*MAKERS] == [*get_args(ablations.AblateName)]
    for kind, words in ablations.KINDS.items():
        condition = Condition("selected", k=1, gate=0.0, replacement=kind, heads=("0.1",))
        assert (kind == "zero") == (not words.gives) == (condition.id == "selected 1")
        assert (kind == "zero") == (condition.done == "removed")
        assert words.gives in condition.done
        assert [name for name, _ in ablation_facts(Ablation(ablate=kind))] == (
            ["removed heads give"] if words.gives else []
        )
        assert words.option in options.ABLATE.help and kind in options.ABLATE.help


def uneven_gate(lm: LanguageModel, first: int = 0, seed: int = 0) -> np.ndarray:
    """Some heads removed, some halved, one doubled, from layer ``first`` on."""
    chance = np.random.default_rng(seed)
    gate = chance.choice([0.0, 0.5, 1.0, 2.0], size=lm.geometry.shape).astype(np.float32)
    gate[:first] = 1
    gate[-1, 0] = 0
    gate[~lm.geometry.mask()] = 1
    return gate


@pytest.mark.parametrize("name", VARIED)
def test_means_and_losses_equal_one_row_at_a_time(name: str) -> None:
    lm = wrapped(name)
    for starts in (STARTS, None):
        expected = naive_means(lm, starts)
        assert float(np.abs(expected[0] - expected[1]).max()) > 0.1
        for batch_tokens in (1, 30, 4096):
            means = head_means(lm, ROWS, starts, batch_tokens)
            assert means.dtype == np.float32
            np.testing.assert_allclose(means, expected, rtol=1e-3, atol=2e-5)
        gate = uneven_gate(lm)
        rows = [row for row in ROWS if row]
        begins = [start for row, start in zip(ROWS, STARTS, strict=True) if row]
        for row, start in zip(rows, begins, strict=True):
            plain = naive_losses(lm, row, start, gate, np.zeros_like(means))
            expected = naive_losses(lm, row, start, gate, means)
            assert float(np.abs(expected - plain).max()) > 1e-3
        draws = both_ways(lm, "resample", starts)
        for by_hand, replacement in ((means, Mean(means)), draws):
            with lm.gated(Gate(lm.geometry, gate), replacement), answers_at(begins):
                batch = collate(rows, lm.pad_token_id)
                found = logits(lm.model, batch).log_softmax(-1)
            for at, (row, start) in enumerate(zip(rows, begins, strict=True)):
                expected = naive_losses(lm, row, start, gate, by_hand, len(means))
                own = found[at, -len(row) :]
                losses = [-float(own[place - 1, row[place]]) for place in range(1, len(row))]
                np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@KINDS
def test_losses_of_answers_say_where_these_begin(kind: str) -> None:
    lm = wrapped("llama")
    (by_hand, replacement), gate = both_ways(lm, kind), uneven_gate(lm)
    rows, starts = [ROWS[0], ROWS[3], ROWS[2]], [4, 1, 6]
    for batch_tokens in (1, 15, 4096):
        with lm.gated(Gate(lm.geometry, gate), replacement):
            found = token_losses(lm, rows, starts, batch_tokens)
        for losses, row, start in zip(found, rows, starts, strict=True):
            expected = naive_losses(lm, row, start, gate, by_hand)[start - 1 :]
            np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_generation_equals_whole_passes_over_single_rows(name: str, kind: str) -> None:
    lm = wrapped(name)
    (by_hand, replacement), gate = both_ways(lm, kind), uneven_gate(lm)
    prompts = ["a first prompt", "b", "one that is longer", "and"]
    steps = 8
    rows = [lm.encode(prompt) for prompt in prompts]
    expected, scores = [], []
    for row in rows:
        written: list[int] = []
        for _ in range(steps):
            last = naive_logits(lm, [*row, *written], len(row), gate, by_hand)[-1]
            written.append(int(last.argmax()))
            scores.append(last)
        expected.append(tuple(written))
    settings = GenerateConfig(max_new_tokens=steps, stop_at_newline=False)
    batch = collate(rows, lm.pad_token_id)
    with lm.gated(Gate(lm.geometry, gate), replacement):
        made = lm.generate(prompts, settings)
        with answers_at([len(row) for row in rows]):
            out = lm.model.generate(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                max_new_tokens=steps,
                do_sample=False,
                eos_token_id=None,
                return_dict_in_generate=True,
                output_logits=True,
            )
        # Without padding transformers gives the passes no mask.
        made += [lm.generate([prompt], settings)[0] for prompt in prompts]
    for one, ids in zip(made, expected * 2, strict=True):
        cut, _ = lm.stop_table.cut(ids, at_newline=False)
        assert one.output_ids == ids[:cut]
    found = torch.stack(out.logits, dim=1).flatten(0, 1)
    torch.testing.assert_close(found, torch.stack(scores), rtol=1e-5, atol=1e-5)
    # Another class of the answer would show.
    whole = [*rows[0], *expected[0]]
    other = naive_logits(lm, whole, len(whole), gate, by_hand)
    same = naive_logits(lm, whole, len(rows[0]), gate, by_hand)
    assert float((other[-1] - same[-1]).abs().max()) > 1e-3


@KINDS
def test_a_decoder_inside_of_a_model_of_images_and_text_keeps_the_classes(kind: str) -> None:
    lm = multimodal()
    (by_hand, replacement), gate = both_ways(lm, kind), uneven_gate(lm)
    rows, starts = [ROWS[0], ROWS[2]], [4, 6]
    for batch_tokens in (1, 4096):
        with lm.gated(Gate(lm.geometry, gate), replacement):
            found = token_losses(lm, rows, starts, batch_tokens)
        for losses, row, start in zip(found, rows, starts, strict=True):
            expected = naive_losses(lm, row, start, gate, by_hand)[start - 1 :]
            np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("share", [True, False])
def test_one_prompt_under_many_gates_equals_each_alone(share: bool, kind: str) -> None:
    lm = wrapped("llama")
    by_hand, replacement = both_ways(lm, kind)
    gates = np.ones((4, *lm.geometry.shape), dtype=np.float32)
    gates[1], gates[2] = uneven_gate(lm), uneven_gate(lm, 1)
    gates[3, -1, 1] = 0
    ids = ROWS[2]
    found = last_token(lm, ids, torch.from_numpy(gates), share, replacement)
    for at, gate in enumerate(gates):
        expected = naive_logits(lm, ids, len(ids), gate, by_hand)[-1]
        torch.testing.assert_close(found.logits[at], expected, rtol=1e-5, atol=1e-5)
    prompt = "".join(lm.tokenizer.convert_ids_to_tokens(ids))
    assert lm.encode(prompt, special=False) == ids
    prompts, each = [prompt] * 4, torch.from_numpy(gates)
    for gate, one, still in zip(
        gates,
        *(
            lm.generate(
                prompts,
                GenerateConfig(6, stop_at_newline=False, decode=decode),
                special=False,
                gates=each,
                replacement=replacement,
            )
            for decode in ("plain", "static")
        ),
        strict=True,
    ):
        written: list[int] = []
        for _ in range(6):
            row = [*ids, *written]
            written.append(int(naive_logits(lm, row, len(ids), gate, by_hand)[-1].argmax()))
        assert one.output_ids == tuple(written[: lm.stop_table.cut(written, False)[0]])
        assert still == one


@KINDS
def test_shared_layers_and_a_cache_keep_the_classes(kind: str) -> None:
    lm = wrapped("llama")
    rows, starts = [ROWS[0], ROWS[2]], [4, 6]
    batch = collate(rows, lm.pad_token_id)
    (by_hand, replacement), gate = both_ways(lm, kind), uneven_gate(lm, 1)
    expected = [naive_logits(lm, *one, gate, by_hand) for one in zip(rows, starts, strict=True)]
    with record_prefix(lm, 1) as recording:
        logits(lm.model, batch)
    how = lm.gated(Gate(lm.geometry, gate), replacement)
    with replay_prefix(lm, recording.prefix()), how, answers_at(starts):
        found = logits(lm.model, batch)
    for at, row in enumerate(rows):
        torch.testing.assert_close(found[at, -len(row) :], expected[at], rtol=1e-5, atol=1e-5)
    # The first five columns in a pass of their own, the others behind its cache.
    inputs = forward_inputs(lm.model, batch) | {"use_cache": True}
    parts, cache = [], None
    with lm.gated(Gate(lm.geometry, gate), replacement), answers_at(starts), torch.no_grad():
        for begin, end in ((0, 5), (5, 11)):
            one = {
                "input_ids": inputs["input_ids"][:, begin:end],
                "position_ids": inputs["position_ids"][:, begin:end],
                "attention_mask": inputs["attention_mask"][:, :end],
            }
            out = lm.model(**one, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            parts.append(out.logits)
    found = torch.cat(parts, dim=1)
    for at, row in enumerate(rows):
        torch.testing.assert_close(found[at, -len(row) :], expected[at], rtol=1e-5, atol=1e-5)


@KINDS
@pytest.mark.parametrize("shared", [0, 1])
def test_documents_have_two_classes(shared: int, kind: str) -> None:
    lm = wrapped("llama")
    rows = [ROWS[0], ROWS[2], ROWS[3]]
    (by_hand, replacement), gate = both_ways(lm, kind, None), uneven_gate(lm, shared)
    batch = collate(rows, lm.pad_token_id)
    learned = batch.attention_mask.bool() & (batch.position_ids > 0)
    with torch.no_grad():
        _, removed = losses_with_and_without(
            lm, batch, learned, Gate(lm.geometry, gate), shared, replacement
        )
    expected = np.concatenate([naive_losses(lm, row, 0, gate, by_hand, 2) for row in rows])
    np.testing.assert_allclose(removed.numpy(), expected, rtol=1e-5, atol=1e-5)


def test_removal_puts_the_mean_in_the_heads_place() -> None:
    lm = wrapped("llama")
    batch = sample_batch()
    means = head_means(lm, ROWS)
    heads = HeadSet(lm.geometry, (Head(0, 2), Head(1, 1)))
    seen: dict[int, torch.Tensor] = {}
    with lm.gated(heads.removed(), Mean(means)):
        handles = [
            site.projection.register_forward_pre_hook(
                lambda _, args, layer=site.layer: seen.update({layer: args[0]})
            )
            for site in lm.sites
        ]
        logits(lm.model, batch)
    for handle in handles:
        handle.remove()
    for head in heads:
        parts = seen[head.layer].unflatten(-1, (lm.sites[0].heads, -1))[:, :, head.head]
        for row, padding in zip(parts, batch.padding, strict=True):
            own = torch.from_numpy(means[:, head.layer, head.head])
            assert torch.equal(row[padding], own[0])
            assert torch.equal(row[padding + 1 :], own[1].expand(len(row) - padding - 1, -1))


def test_what_does_not_fit_is_refused() -> None:
    lm = wrapped("llama")
    gate = torch.zeros(lm.geometry.shape)
    means = head_means(lm, ROWS, STARTS)
    for wrong in (means[:, :1], means[:1]):
        with (
            pytest.raises(InputError, match="compute them with this model"),
            lm.gated(gate, Mean(wrong)),
        ):
            pass
    with pytest.raises(InputError, match="'zero' or 'mean'"):
        replacement_of("median", lm, ROWS, STARTS)
    with pytest.raises(InputError, match="no token of the class 'first token'"):
        head_means(lm, [[], []])
    with pytest.raises(InputError, match="no token of the class 'answer'"):
        head_means(lm, [[3, 4]], [2])


def test_a_pass_whose_classes_are_unknown_is_refused() -> None:
    lm = wrapped("llama")
    batch = sample_batch((5, 3))
    gate = torch.zeros(lm.geometry.shape)
    means = head_means(lm, ROWS, STARTS)
    with lm.gated(gate, Mean(means)):
        with pytest.raises(InputError, match="where answers begin"):
            logits(lm.model, batch)
        with pytest.raises(InputError, match="3 beginnings of answers"), answers_at([1, 1, 1]):
            logits(lm.model, batch)
        inputs = forward_inputs(lm.model, batch) | {"attention_mask": torch.ones(2, 1, 5, 5).bool()}
        with pytest.raises(InputError, match="attention mask"), answers_at([1, 1]):
            lm.model(**inputs)
        part = lm.sites[0].projection
        with pytest.raises(InputError, match="passes have to be of the whole decoder"):
            part(torch.zeros(2, part.in_features))
    logits(lm.model, batch)


def test_rows_without_padding_need_no_mask() -> None:
    lm = wrapped("llama")
    means = head_means(lm, ROWS, STARTS)
    ids = torch.tensor([ROWS[0], ROWS[0][::-1]])
    with lm.gated(torch.zeros(lm.geometry.shape), Mean(means)), answers_at([4, 2]):
        masked = lm.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(lm.model(input_ids=ids).logits, masked)


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_means_of_halved_batches_count_no_token_twice(where: str) -> None:
    lm, generator = lm_helpers.wrapped("llama"), torch.Generator().manual_seed(0)
    rows = [torch.randint(3, 96, (n,), generator=generator).tolist() for n in (9, 5, 7, 9, 6)]
    expected = head_means(lm, rows)
    last, failed = lm.sites[-1].projection, []

    def late(_: Any, args: tuple[Any, ...], output: Any) -> None:
        if len(output) > 2:  # every layer has been seen by then
            failed.append(len(output))
            lm_helpers.no_memory(where)

    with last.register_forward_hook(late):
        found = head_means(lm, rows)
    assert failed == [5, 3]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_beginning_that_is_read_once_has_the_draws_of_every_row() -> None:
    """Losses under several gates, and texts of rows with gates of their own, after one beginning;
    what each row gets is what it gets alone."""
    lm = wrapped("llama", layers=3)
    by_hand, replacement = both_ways(lm, "resample")
    gates = [Gate(lm.geometry, uneven_gate(lm, first)) for first in (0, 1)]
    begin = [(7 * at) % 90 + 3 for at in range(40)]
    rows = [[*begin, *ROWS[0]], [*begin, *ROWS[3]], [*begin, *ROWS[2]]]
    wanted = [AnswerRow(tuple(row), np.arange(42, len(row))) for row in rows]
    with torch.no_grad():
        assert shared_losses._Passes(lm, wanted, 4096).begin == 40
    for at, losses in answer_losses(lm, wanted, gates, [replacement] * 2, 120):
        for row, own in zip(rows, losses, strict=True):
            expected = naive_losses(lm, row, 42, gates[at].values, by_hand)[41:]
            np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)
    prompts = ["".join(lm.tokenizer.convert_ids_to_tokens(row)) for row in rows] * 2
    assert [lm.encode(prompt, special=False) for prompt in prompts] == rows * 2
    each = [gates[0]] * 3 + [gates[1]] * 3
    both, of_row = torch.stack([torch.tensor(gate.values) for gate in gates]), np.arange(6) // 3
    requests = Requests(rows * 2, [4] * 6, both, of_row, replacement, False)
    assert SharedPrefix(lm, requests).tokens == 40
    settings = GenerateConfig(4, batch_tokens=150, stop_at_newline=False)
    made = lm.generate(prompts, settings, special=False, gates=each, replacement=replacement)
    for row, gate, one in zip(rows * 2, each, made, strict=True):
        written: list[int] = []
        for _ in range(4):
            whole = naive_logits(lm, [*row, *written], len(row), gate.values, by_hand)
            written.append(int(whole[-1].argmax()))
        assert one.output_ids == tuple(written[: lm.stop_table.cut(written, False)[0]])


def test_a_draw_is_of_its_class_and_every_token_is_drawn_alike() -> None:
    lm = wrapped("llama")
    kept = naive_outputs(lm, STARTS)
    # Every token once in every place.
    ids = torch.stack([torch.arange(3, 93).roll(at) for at in range(90)])
    drawn: list[torch.Tensor] = []
    for seed in (0, 1):
        replacement = replacement_of("resample", lm, ROWS, STARTS, seed=seed)
        with (
            lm.gated(torch.zeros(lm.geometry.shape), replacement),
            answers_at([50] * 90),
            lm.sites[0].projection.register_forward_pre_hook(
                lambda _, args: drawn.append(args[0].double())
            ),
            torch.no_grad(),
        ):
            lm.model(input_ids=ids, use_cache=False)
    assert not torch.equal(*drawn)
    for group, places in enumerate((slice(0, 1), slice(1, 50), slice(50, 90))):
        sources = torch.stack(kept[group, 0]).flatten(1).double()
        outputs = drawn[0][:, places].flatten(0, 1)
        distances = torch.cdist(outputs, sources)
        assert float(distances.min(dim=1).values.max()) < 1e-4
        counts = torch.bincount(distances.argmin(dim=1), minlength=len(sources)).double()
        even = len(outputs) / len(sources)
        # Of a fair draw the statistic is never six standard deviations beyond its mean.
        chi2, free = float(((counts - even) ** 2 / even).sum()), len(sources) - 1
        assert chi2 < free + 6 * (2 * free) ** 0.5, group


def test_outputs_to_draw_from_are_bounded_and_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = wrapped("llama")
    kept = naive_outputs(lm, STARTS)
    size = sum(site.heads * site.head_width for site in lm.sites) * 4
    monkeypatch.setattr(replacements, "_BYTES", 3 * 5 * size)
    made = replacement_of("resample", lm, ROWS, STARTS, seed=2)
    assert isinstance(made, Resample)
    assert made.counts == tuple(min(5, len(kept[group, 0])) for group in range(3))
    for layer in (0, 1):
        for group, part in enumerate(made.outputs[layer].flatten(1).split(made.counts)):
            sources = torch.stack(kept[group, layer]).flatten(1).double()
            distances = torch.cdist(part.double(), sources)
            assert float(distances.min(dim=1).values.max()) < 1e-4
            assert len(set(distances.argmin(dim=1).tolist())) == made.counts[group]
    found = []
    gate, ids = torch.zeros(lm.geometry.shape), torch.tensor([ROWS[0]])
    for replacement in (made, pickle.loads(pickle.dumps(made))):
        with lm.gated(gate, replacement), answers_at([4]), torch.no_grad():
            found.append(lm.model(input_ids=ids).logits)
    assert torch.equal(*found)


def test_draws_that_cannot_be_are_refused() -> None:
    lm, other = wrapped("llama"), wrapped("gpt2")
    made = replacement_of("resample", lm, ROWS, STARTS)
    zeros = torch.zeros(other.geometry.shape)
    with pytest.raises(InputError, match="another model"), other.gated(zeros, made):
        pass
    for rows in ([[3, 4]], [[]], []):
        with pytest.raises(InputError, match="no token of the class"):
            replacement_of("resample", lm, rows, [2][: len(rows)])
    embedded = lm.model.get_input_embeddings()(torch.tensor([ROWS[0]]))
    zeros = torch.zeros(lm.geometry.shape)
    with lm.gated(zeros, made), answers_at([4]), pytest.raises(InputError, match="token ids"):
        lm.model(inputs_embeds=embedded)
