"""TRater: losses with and without heads, against a twin that knows neither batches nor gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import build
from torch.utils._python_dispatch import TorchDispatchMode

from headscope.errors import InputError
from headscope.heads import Gate, Head, HeadSet
from headscope.lm import losses
from headscope.lm.model import LanguageModel
from headscope.lm.prefix import can_share
from headscope.lm.shared_losses import first_changed_layer
from headscope.use.rating import Rated, Rating, Unrated, fitted, passes, rate_texts, rows_of
from lm_helpers import folded, tokenizer

#: Grouped keys, a tied head and learned positions, soft caps and windows, layers without heads,
#: a norm before W_O, experts.
KINDS = ("llama", "gpt2", "gemma2", "qwen3_next", "bitnet", "mixtral")
TEXTS = [
    "a hedge of words",
    "12345",
    "The gate keeps one head and drops another; the loss tells.",
    "zz",
    "<s>hedge</s> again",
    "short",
]


def model(name: str = "llama", layers: int = 4, **overrides: Any) -> LanguageModel:
    """A tiny model whose head may be tied to its embedding, with the character tokenizer."""
    made = build(name, layers=layers, overrides=overrides or None)
    return LanguageModel.wrap(made, tokenizer(), name=name, check=False)


def last_heads(lm: LanguageModel, layer: int | None = None) -> Gate:
    """Removes one head of the last layer with heads, or of ``layer``, and scales another."""
    layer = lm.sites[-1].layer if layer is None else layer
    return Gate.of(lm.geometry, {Head(layer, 0): 0.0, Head(layer, 2): 0.5})


def nll(plain: Any, ids: list[int], begin: int = 0) -> list[float]:
    """The losses of the tokens after ``begin``, one text, one pass, all logits."""
    with torch.no_grad():
        logits = plain(input_ids=torch.tensor([ids[begin:]]), use_cache=False).logits[0]
    chances = torch.log_softmax(logits.double(), dim=-1)
    return [-float(chances[at, token]) for at, token in enumerate(ids[begin + 1 :])]


def twin(lm: LanguageModel, gate: Gate, text: str, cut: int = 2048) -> tuple[float, float, int]:
    """Both means by two plain passes, the second with the gate folded into the weights."""
    ids = lm.tokenizer(text)["input_ids"][:cut]
    full = nll(lm.model, ids)
    removed = nll(folded(lm, torch.tensor(gate.values)), ids)
    return sum(full) / len(full), sum(removed) / len(removed), len(full)


def rated(found: list[Rated | Unrated]) -> list[Rated]:
    assert all(isinstance(one, Rated) for one in found), found
    return [one for one in found if isinstance(one, Rated)]


def close(one: Rated, other: Rated | tuple[float, float, int], within: float = 1e-5) -> bool:
    """Whether both losses agree, and the numbers of tokens."""
    full, removed, tokens = (
        (other.nll_full, other.nll_removed, other.tokens) if isinstance(other, Rated) else other
    )
    return (
        one.tokens == tokens
        and abs(one.nll_full - full) < within
        and abs(one.nll_removed - removed) < within
    )


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return model()


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_two_plain_passes_one_text_at_a_time(name: str) -> None:
    lm = model(name)
    gate = last_heads(lm)
    assert first_changed_layer(gate) == lm.sites[-1].layer
    shared, apart = (
        rated(rate_texts(lm, TEXTS, gate, Rating(batch_tokens=64, share=share)))
        for share in (True, False)
    )
    assert shared == apart
    for text, one in zip(TEXTS, shared, strict=True):
        assert close(one, twin(lm, gate, text)), (text, one, twin(lm, gate, text))
        assert one.score == one.nll_removed - one.nll_full
    # The gate is felt, so that equality says something.
    assert max(abs(one.score) for one in shared) > 1e-3


def test_a_tied_head_and_heads_removed_in_the_first_layer() -> None:
    lm = model(tie_word_embeddings=True)
    assert lm.model.lm_head.weight is lm.model.get_input_embeddings().weight
    gate = last_heads(lm, layer=0)
    assert first_changed_layer(gate) == 0
    for text, one in zip(TEXTS, rated(rate_texts(lm, TEXTS, gate)), strict=True):
        assert close(one, twin(lm, gate, text))


def test_removing_nothing_scores_exactly_nothing(lm: LanguageModel) -> None:
    ones = Gate.identity(lm.geometry)
    assert first_changed_layer(ones) == lm.geometry.layers
    for share in (True, False):
        found = rated(rate_texts(lm, TEXTS, ones, Rating(share=share)))
        assert [one.score for one in found] == [0.0] * len(TEXTS)


@pytest.mark.parametrize(
    ("first", "share", "expected"),
    # With sharing, half of it is the try-out that every call makes anew.
    [(2, True, [2, 2, 4, 4]), (2, False, [2, 2, 2, 2]), (0, True, [2, 2, 2, 2])],
)
def test_layers_below_the_first_removed_head_run_once(
    lm: LanguageModel, first: int, share: bool, expected: list[int]
) -> None:
    gate = HeadSet(lm.geometry, (Head(first, 1),)).removed()
    rate_texts(lm, TEXTS[:1], gate)  # try-outs that are made once are done with
    ran = [0] * lm.geometry.layers
    handles = [
        layer.mlp.register_forward_hook(counting(ran, at))
        for at, layer in enumerate(lm.model.model.layers)
    ]
    try:
        rate_texts(lm, TEXTS[:1], gate, Rating(share=share))
    finally:
        for handle in handles:
            handle.remove()
    assert ran == expected


def counting(ran: list[int], at: int) -> Callable[..., None]:
    def count(_: Any, args: Any, output: Any) -> None:
        ran[at] += 1

    return count


def test_a_model_whose_upper_layers_read_lower_ones_takes_two_whole_passes(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = lm.model.model.layers
    seen: dict[str, torch.Tensor] = {}

    def keep(_: Any, args: tuple[Any, ...], output: torch.Tensor) -> None:
        seen["inside"] = output

    def read(_: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        return output + 0.1 * seen.pop("inside")

    # Computed inside layer 1, which a replayed layer never is.
    handles = [
        layers[1].mlp.register_forward_hook(keep),
        layers[-1].register_forward_hook(read),
    ]
    try:
        gate = last_heads(lm, layer=2)
        assert not can_share(lm, 2)
        assert passes.shared_layers(lm, gate) == 0
        shared, apart = (
            rate_texts(lm, TEXTS, gate, Rating(share=share)) for share in (True, False)
        )
        assert shared == apart
        # Layer 1 itself still computes where only layer 0 is shared.
        assert passes.shared_layers(lm, last_heads(lm, layer=1)) == 1
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize(("longest", "overlap"), [(12, None), (12, 1), (9, 8)])
def test_windows_give_each_token_the_context_of_its_window(
    lm: LanguageModel, longest: int, overlap: int | None
) -> None:
    gate = last_heads(lm)
    config = Rating(max_tokens=longest, windows=True, overlap=overlap)
    kept = longest // 4 if overlap is None else overlap
    step = longest - kept
    without = folded(lm, torch.tensor(gate.values))
    texts = TEXTS[2:4]
    for text, one in zip(texts, rated(rate_texts(lm, texts, gate, config)), strict=True):
        ids = lm.tokenizer(text)["input_ids"]
        sums = [0.0, 0.0]
        for token in range(1, len(ids)):
            # The number of the window in which a token is new, by arithmetic alone.
            window = max(0, -(-(token - longest + 1) // step))
            for at, plain in enumerate((lm.model, without)):
                sums[at] += nll(plain, ids[: token + 1], window * step)[-1]
        count = len(ids) - 1
        assert close(one, (sums[0] / count, sums[1] / count, count))


def test_the_longest_row_is_2048_tokens_or_the_context() -> None:
    for context, expected in ((64, 64), (4096, 2048)):
        lm = model(layers=2, max_position_embeddings=context)
        found = rate_texts(lm, ["x" * 5000], last_heads(lm))
        assert rated(found)[0].tokens == expected - 1


def test_what_cannot_be_rated_says_why_and_stays_in_its_place(lm: LanguageModel) -> None:
    given: list[Any] = ["", "a", "ab", 5, None, "\ud800", b"bytes", "</s>", "<s>ab"]
    found = rate_texts(lm, given, last_heads(lm))
    reasons = [one.reason if isinstance(one, Unrated) else one.tokens for one in found]
    assert reasons == [
        "the text has no token, so none is predicted from one before it",
        "the text has one token, so none is predicted from one before it",
        1,
        "the text is of type int, not a string",
        "the text is of type NoneType, not a string",
        "the text is not valid Unicode at character 0",
        "the text is of type bytes, not a string",
        "the text has one token, so none is predicted from one before it",
        2,
    ]
    assert rate_texts(lm, [], last_heads(lm)) == []
    assert rate_texts(lm, given[:1], last_heads(lm)) == found[:1]


@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("windows", [False, True])
def test_a_text_with_a_loss_that_is_no_number_harms_no_other(
    lm: LanguageModel, spreads: bool, windows: bool
) -> None:
    poison = lm.encode("%")[0]

    def spoil(_: Any, args: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        found = args[0] == poison
        if spreads:  # as an operation over a whole batch would
            return output * float("nan") if bool(found.any()) else output
        return output.masked_fill(found.unsqueeze(-1), float("nan"))

    gate = last_heads(lm)
    config = Rating(max_tokens=8, windows=windows)
    texts = [*TEXTS[:3], "a text with % in it %", *TEXTS[3:], "%%"]
    healthy = rate_texts(lm, TEXTS, gate, config)
    handle = lm.model.get_input_embeddings().register_forward_hook(spoil)
    try:
        found = rate_texts(lm, texts, gate, config)
    finally:
        handle.remove()
    if not windows:  # the first % is the 13th token: it is cut off
        assert isinstance(found[3], Rated)
    else:
        assert found[3] == Unrated("the loss of the whole model is not finite on this text")
    assert isinstance(found[-1], Unrated)
    others = rated([one for one in found if one not in (found[3], found[-1])])
    for one, other in zip(others, rated(healthy), strict=True):
        assert close(one, other)


def test_a_loss_that_is_not_finite_under_the_gate_alone_is_named(lm: LanguageModel) -> None:
    gate = Gate.of(lm.geometry, {Head(3, head): 3e38 for head in range(lm.geometry.width)})
    found = rate_texts(lm, TEXTS[:1], gate)
    assert found == [Unrated("the loss under the gate is not finite on this text")]


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """A device that holds batches of 40 tokens; what was tried, and whether it went through."""
    tried: list[tuple[int, bool]] = []
    whole = passes.losses_with_and_without

    def bounded(lm: LanguageModel, batch: Any, *rest: Any) -> Any:
        size = batch.input_ids.numel()
        tried.append((size, size <= 40))
        if size > 40:
            raise torch.OutOfMemoryError("no memory")
        return whole(lm, batch, *rest)

    monkeypatch.setattr(passes, "losses_with_and_without", bounded)
    return tried


def test_batches_shrink_to_the_memory_there_is_once_for_the_call(
    lm: LanguageModel, small_memory: list[tuple[int, bool]]
) -> None:
    texts = [chr(97 + at) * 8 for at in range(26)] * 2
    gate = last_heads(lm)
    found = rated(rate_texts(lm, texts, gate, Rating(batch_tokens=208)))
    failed = [size for size, through in small_memory if not through]
    # 26 rows of 8 tokens do not fit, nor do 13 or 7 of them; 4 do, and no more is tried later on.
    assert failed == [208, 104, 56]
    small_memory.clear()
    again = rated(rate_texts(lm, texts, gate, Rating(batch_tokens=32)))
    assert all(through for _, through in small_memory)
    assert all(close(one, other) for one, other in zip(found, again, strict=True))


def test_a_row_that_does_not_fit_alone_is_an_error(
    lm: LanguageModel, small_memory: list[tuple[int, bool]]
) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        rate_texts(lm, ["x" * 41], last_heads(lm))


def test_a_batch_is_fitted_to_memory_by_trying(
    lm: LanguageModel, small_memory: list[tuple[int, bool]]
) -> None:
    config = Rating(max_tokens=10, share=False)
    found = fitted(lm, last_heads(lm), config, most=129)
    # 12 rows, 6, 3 of ten tokens.
    assert found == Rating(batch_tokens=30, max_tokens=10, share=False)
    assert [size for size, _ in small_memory] == [120, 60, 30]
    with pytest.raises(InputError, match="does not hold a row of 10"):
        fitted(lm, last_heads(lm), config, most=9)


class Largest(TorchDispatchMode):
    """The most rows over the vocabulary that any operation made, views of weights left out."""

    def __init__(self, lm: LanguageModel, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.rows = vocabulary, 0
        self.weights = {one.untyped_storage().data_ptr() for one in lm.model.parameters()}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if (
            isinstance(made, torch.Tensor)
            and made.shape[-1:] == (self.vocabulary,)
            and made.untyped_storage().data_ptr() not in self.weights
        ):
            self.rows = max(self.rows, made.numel() // self.vocabulary)
        return made


def test_logits_of_a_whole_batch_are_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model(vocab_size=1009)
    gate = last_heads(lm)
    texts = [text * 3 for text in TEXTS] * 4
    monkeypatch.setattr(losses, "CHUNK", 20 * 1009)
    rate_texts(lm, texts[:1], gate)  # the try-out, of a few tokens, makes them whole
    rows = []
    for batch_tokens in (256, 4096):
        with Largest(lm, 1009) as largest:
            rate_texts(lm, texts, gate, Rating(batch_tokens=batch_tokens))
        rows.append(largest.rows)
    assert rows == [20, 20]


def test_the_same_texts_give_the_same_numbers_and_progress_reaches_the_end(
    lm: LanguageModel,
) -> None:
    gate, seen = last_heads(lm), []
    texts = ["", *TEXTS]
    config = Rating(batch_tokens=40)
    once = rate_texts(lm, texts, gate, config, lambda done, total: seen.append((done, total)))
    assert once == rate_texts(lm, texts, gate, config)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0] == (1, len(texts)) and seen[-1] == (len(texts), len(texts))


def test_the_model_is_as_it_was_also_after_an_exception(lm: LanguageModel) -> None:
    def stop(done: int, total: int) -> None:
        if done > 1:
            raise KeyboardInterrupt

    hooks = hooks_of(lm)
    lm.model.train()
    try:
        with pytest.raises(KeyboardInterrupt):
            rate_texts(lm, TEXTS, last_heads(lm), Rating(batch_tokens=20), stop)
        assert all(part.training for part in lm.model.modules())
        assert torch.is_grad_enabled()
        assert hooks_of(lm) == hooks
        assert not any("forward" in vars(part) for part in lm.model.modules())
    finally:
        lm.model.eval()


def hooks_of(lm: LanguageModel) -> list[tuple[int, int]]:
    """How many hooks stand before and behind each part."""
    parts = lm.model.modules()
    return [(len(part._forward_pre_hooks), len(part._forward_hooks)) for part in parts]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_tokens": 1}, "max_tokens is 1"),
        ({"max_tokens": 1 << 29}, "in windows"),
        ({"overlap": 4}, "texts are cut"),
        ({"max_tokens": 8, "windows": True, "overlap": 8}, "cannot overlap by 8"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    lm: LanguageModel, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        rate_texts(lm, [], last_heads(lm), Rating(**config))


def test_values_between_and_above_scale_heads(lm: LanguageModel) -> None:
    draw = np.random.default_rng(0)
    values = draw.uniform(-1, 2, lm.geometry.shape).astype(np.float32)
    gate = Gate(lm.geometry, values)
    for text, one in zip(TEXTS, rated(rate_texts(lm, TEXTS, gate)), strict=True):
        assert close(one, twin(lm, gate, text))


@given(tokens=st.integers(0, 300), longest=st.integers(2, 40), data=st.data())
def test_windows_count_each_predicted_token_once_with_the_context_asked_for(
    tokens: int, longest: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(1, longest - 1))
    rows = rows_of(tokens, longest, overlap)
    counted = [token for row in rows for token in range(row.first, row.end)]
    assert counted == list(range(1, tokens))
    for place, row in enumerate(rows):
        assert 2 <= row.end - row.begin <= longest
        assert row.first - row.begin == (overlap if place else 1)


@given(tokens=st.integers(0, 300), longest=st.integers(2, 40))
def test_a_cut_text_is_one_row_of_its_first_tokens(tokens: int, longest: int) -> None:
    assert rows_of(tokens, longest) == ([(0, min(tokens, longest), 1)] if tokens > 1 else [])


@pytest.mark.parametrize("overlap", [0, 8, -1])
def test_windows_that_could_not_move_on_are_refused(overlap: int) -> None:
    with pytest.raises(InputError, match="8"):
        rows_of(0, 8, overlap)
