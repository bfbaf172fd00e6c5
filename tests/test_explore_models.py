"""The explorer's numbers for small models of many kinds, against transformers alone."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import sacrebleu
import torch
from small_models import build, build_registered

from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.heads import Gate, Head
from headscope.live import explorer as explorer_module
from headscope.live.explorer import Directions, Explorer
from headscope.live.inputs import Growing, pieces
from headscope.live.reading import Reading
from headscope.lm import LanguageModel, losses
from headscope.lm.generation.pool import can_pool
from headscope.lm.prefix import can_share
from headscope.lm.tokens import decode
from lm_helpers import tokenizer, wrapped

#: Where W_O is, and where not at `model.layers.N.self_attn.o_proj`.
W_O = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "falcon": "transformer.h.{}.self_attention.dense",
    "bloom": "transformer.h.{}.self_attention.dense",
}
SENTENCE = {"sentence": "The good king planted 3 flowers.", "pair": "en-de",
            "reference": "Der gute Konig pflanzte 3 Blumen."}  # fmt: skip
PROMPT = {"prompt": "Hello: a b", "reference": "c dog"}
#: Grouped keys; Conv1D and biases; windows; one matrix for queries, keys and values; attention
#: that is hidden; experts; layers that share keys; layers without heads and a running state.
MODELS = ("llama", "gpt2", "gemma3", "phi3", "falcon", "bloom", "mixtral", "gemma4", "bamba")

Events = list[dict[str, Any]]
Gates = dict[str, float]


def loaded(name: str) -> LanguageModel:
    if name == "bamba":
        return LanguageModel.wrap(build_registered(name), tokenizer(), name=name, check=False)
    return wrapped(name, layers=4, attn_implementation="eager" if name == "falcon" else None)


def explorer_of(lm: LanguageModel) -> Explorer:
    return Explorer(lm, DEFAULT_TEMPLATE, directions=Directions(("en-de",)))


def answer(explorer: Explorer, **body: Any) -> Events:
    events: Events = []
    explorer.compute("run", body, events.append, lambda: False)
    return events


def one(events: Events, name: str, **has: Any) -> dict[str, Any]:
    (event,) = [each for each in events if each["event"] == name and has.items() <= each.items()]
    return event


class Plain:
    """A model of its own, with slices of W_O times numbers; rows are read whole, one at a time."""

    def __init__(self, lm: LanguageModel, gates: Gates, kernel: str | None = None) -> None:
        self.model, self.tokenizer = copy.deepcopy(lm.model), lm.tokenizer
        if kernel:
            self.model.set_attn_implementation(kernel)
        for name, factor in gates.items():
            layer, head = map(int, name.split("."))
            place = W_O.get(lm.name, "model.layers.{}.self_attn.o_proj").format(layer)
            weight = self.model.get_submodule(place).weight.data
            weight = weight if lm.name == "gpt2" else weight.T  # one row for each input channel
            width = len(weight) // 4
            weight[head * width : (head + 1) * width] *= factor

    def read(self, ids: list[int], **more: Any) -> Any:
        with torch.no_grad():
            return self.model(input_ids=torch.tensor([ids]), use_cache=False, **more)

    def log_probabilities(self, ids: list[int], start: int) -> Any:
        logits = self.read(ids).logits[0, start - 1 : -1].double()
        logits = logits - logits.logsumexp(-1, keepdim=True)
        return logits[torch.arange(len(ids) - start), torch.tensor(ids[start:])].numpy()

    def written(self, ids: list[int], most: int) -> tuple[list[int], list[float], str]:
        """The output, by how much each token is the likeliest, and what ended it."""
        output: list[int] = []
        margins: list[float] = []
        while len(output) < most:
            likeliest = self.read([*ids, *output]).logits[0, -1].topk(2)
            margins.append(float(likeliest.values[0] - likeliest.values[1]))
            if int(likeliest.indices[0]) == 2:
                return output, margins, "eos"
            output.append(int(likeliest.indices[0]))
            if "\n" in self.text(output, whole=True):
                return output, margins, "newline"
        return output, margins, "limit"

    def text(self, output: list[int], whole: bool = False) -> str:
        text = self.tokenizer.decode(output, skip_special_tokens=True).lstrip()
        return text if whole else text.split("\n")[0]


def first_difference(a: list[int], b: list[int]) -> int | None:
    unlike = [at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    return None if a == b else (unlike or [min(len(a), len(b))])[0]


@pytest.mark.filterwarnings("ignore::headscope.errors.Caution")
@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_scaled_weights(name: str) -> None:
    lm = loaded(name)
    counts = lm.geometry.counts
    first, last = counts.index(4), len(counts) - 1
    assert (can_pool(lm), can_share(lm)) == (name != "bamba", name != "gemma4")
    explorer = explorer_of(lm)
    asked: list[tuple[dict[str, str], Gates, str]] = [
        (SENTENCE, {f"{first}.1": 0.5, f"{last}.2": 5.0}, f"{last}.3"),
        (PROMPT, {f"{first}.3": 0.0}, f"{first}.0"),
        (PROMPT, {f"{last}.0": -1.0}, f"{first}.0"),
    ]
    for given, gates, pinned in asked:
        events = answer(explorer, input=given, gates=gates, pinned=pinned, new_tokens=6, draw=1)
        prompt = one(events, "prompt")
        ids = lm.tokenizer(prompt["text"])["input_ids"]
        referred = lm.tokenizer(f"{prompt['text']} {given['reference']}")["input_ids"]
        start = len(ids) + 1  # a token a character: the space is one of its own
        plain = Plain(lm, {})
        original, *_ = plain.written(ids, 6)
        before = plain.log_probabilities([*ids, *original], len(ids))
        base = plain.log_probabilities(referred, start).sum()
        lanes: dict[str, Gates] = {
            "original": {}, "gated": gates, "random": prompt["control_gates"],
        }  # fmt: skip
        assert sorted(lanes["random"].values()) == sorted(gates.values())
        assert lanes["random"].keys() != gates.keys()
        for lane, changed in lanes.items():
            scaled = Plain(lm, changed)
            reference = scaled.log_probabilities(referred, start).sum()
            line = one(events, "lane", lane=lane)
            assert line["reference_logprob"] == pytest.approx(reference, abs=2e-5)
            if lane != "original":
                shift = one(events, "shift", lane=lane)
                change = scaled.log_probabilities([*ids, *original], len(ids)) - before
                assert shift["change"] == pytest.approx(change.tolist(), abs=1e-5)
                assert shift["total"] == pytest.approx(change.sum(), abs=2e-5)
                assert shift["reference"] == pytest.approx(reference - base, abs=2e-5)
            output, margins, ended = scaled.written(ids, 6)
            text = scaled.text(output)
            if line["text"] != text:
                wrong = first_difference(list(line["text"]), list(text))
                assert wrong is not None and min(margins[: wrong + 1]) < 1e-4
                continue
            assert line["ended"] == ended and line["diverges"] == first_difference(output, original)
            after = scaled.read([*ids, *output]).logits[0, len(ids) - 1 : -1].softmax(-1).topk(5)
            for likeliest, values in zip(line["candidates"], after.values, strict=True):
                assert [share for _, share in likeliest] == pytest.approx(values.tolist(), abs=1e-5)
            measure = sacrebleu.CHRF(word_order=2)
            assert line["chrf"] == pytest.approx(
                measure.sentence_score(text, [given["reference"]]).score
            )
            attention = Plain(lm, changed, "eager").read([*ids, *output], output_attentions=True)
            layer, head = map(int, pinned.split("."))
            of_layer = dict(zip(
                [at for at, count in enumerate(counts) if count],
                [each for each in attention.attentions if each is not None], strict=True,
            ))  # fmt: skip
            rows = of_layer[layer][0, head, len(ids) - 1 : -1].double()
            looks = one(events, "attention", lane=lane, head=pinned)
            assert list(looks["peaks"]) == rows.argmax(-1).tolist()
            for row, weights, every in zip(rows, looks["weights"], looks["every"], strict=True):
                own = [
                    sum(float(row[at]) for at, (a, b) in enumerate(prompt["tokens"])
                        if a < end and b > begin and a < b)
                    for begin, end in prompt["words"]
                ]  # fmt: skip
                assert every == pytest.approx(own, abs=1e-5)
                best = sorted(own, reverse=True)[:5]
                assert [weight for _, weight in weights] == pytest.approx(best, abs=1e-5)
                assert [own[word] for word, _ in weights] == pytest.approx(best, abs=1e-5)
        alone = one(events, "head", head=pinned)["alone"]
        removed = Plain(lm, {pinned: 0.0}).log_probabilities([*ids, *original], len(ids))
        assert alone["change"] == pytest.approx((removed - before).tolist(), abs=1e-5)


@pytest.mark.filterwarnings("ignore::headscope.errors.Caution")
@pytest.mark.parametrize("name", ["llama", "bamba"])
def test_effects_are_those_of_single_removed_heads(name: str) -> None:
    """Told layer by layer, also of a model whose layers have no heads; kept for the next time."""
    lm = loaded(name)
    explorer, body = explorer_of(lm), {"input": PROMPT, "new_tokens": 3, "effects": True}
    events = [each for each in answer(explorer, **body) if each["event"] == "effects"]
    assert len(events) == sum(count > 0 for count in lm.geometry.counts)
    known = [sum(value is not None for value in each["values"]) for each in events]
    assert known == sorted(set(known)) and known[-1] == lm.geometry.total
    last = events[-1]
    referred = lm.tokenizer(f"{PROMPT['prompt']} {PROMPT['reference']}")["input_ids"]
    start = len(lm.tokenizer(PROMPT["prompt"])["input_ids"]) + 1
    base = Plain(lm, {}).log_probabilities(referred, start).sum()
    changes = [
        Plain(lm, {head.key: 0.0}).log_probabilities(referred, start).sum() - base
        for head in lm.geometry.heads()
    ]
    assert last["of"] == "reference" and last["values"] == pytest.approx(changes, abs=2e-5)
    assert last["high"] == max(map(abs, last["values"]))
    again = [each for each in answer(explorer, **body) if each["event"] == "effects"]
    assert again == events[-1:]
    other = answer(explorer, **{**body, "input": {"prompt": "Hello: a b"}})
    assert [each for each in other if each["event"] == "effects"][-1]["values"] != last["values"]


def test_streams_are_texts_whatever_ends_them() -> None:
    lm = loaded("llama")
    explorer, endings = explorer_of(lm), set()
    for letter in "abcdefgh":
        gates = {"1.2": 0.0, "2.1": 3.0}
        events = answer(explorer, input={"prompt": f"{letter}:"}, gates=gates, new_tokens=14)
        original = one(events, "lane", lane="original")
        for lane in ("original", "gated", "random"):
            line = one(events, "lane", lane=lane)
            streamed = [
                each for each in events if each["event"] == "token" and each["lane"] == lane
            ]
            assert "".join(line["tokens"]) == line["text"] and "\n" not in line["text"]
            assert [each["text"] for each in streamed] == line["tokens"]
            assert [each["at"] for each in streamed] == [*range(len(streamed))]
            marked = [each["at"] for each in streamed if each["diverges"]]
            differs = line["diverges"]
            assert marked == ([] if differs in (None, len(streamed)) else [differs])
            if differs is None:
                assert line["tokens"] == original["tokens"]
            endings.add(line["ended"])
    assert endings == {"eos", "newline", "limit"}


def test_tokens_are_told_once_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = loaded("llama")
    body = {"input": {"prompt": "f:"}, "gates": {"1.2": 0.0}, "new_tokens": 8}
    expected = answer(explorer_of(lm), **body)
    forward, passes = LanguageModel.forward, 0

    def short(self: LanguageModel, batch: Any, *args: Any, **more: Any) -> Any:
        nonlocal passes
        if batch.cache is not None and len(batch.input_ids) == 2:
            passes += 1
            if passes == 3:
                raise torch.OutOfMemoryError
        return forward(self, batch, *args, **more)

    monkeypatch.setattr(LanguageModel, "forward", short)
    events = answer(explorer_of(lm), **body)
    assert passes == 3
    for lane in ("gated", "random"):
        told, wanted = (
            [each for each in some if each["event"] == "token" and each["lane"] == lane]
            for some in (events, expected)
        )
        assert told == wanted


@pytest.mark.parametrize(("shares", "padded"), [(True, 4096), (False, 4096), (True, 6)])
def test_gates_that_are_read_together_are_read_as_if_alone(
    shares: bool, padded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the longer row is too long to share a batch."""
    monkeypatch.setattr("headscope.live.reading.LONGEST_PADDED", padded)
    lm = loaded("llama")
    rows = [([5, 9, 40, 33, 21, 60, 7], 3), ([8, 9, 10], 2)]
    reading = Reading(lm, rows, lambda layer: shares)
    gates = [{"3.1": 0.0}, {"0.0": 5.0}, {"2.2": -1.0, "3.3": 0.5}, {"1.0": 1.0}]
    made = [Gate.of(lm.geometry, {Head.parse(k): v for k, v in g.items()}) for g in gates]
    # More rows than are read at once.
    together = reading.under(made * 40)
    for at, changes in enumerate(together):
        (alone,) = reading.under([made[at % 4]])
        scaled = Plain(lm, gates[at % 4]) if at < 4 else None
        for (ids, start), change, own, base in zip(
            rows, changes, alone, reading.log_probabilities, strict=True
        ):
            assert change == pytest.approx(own, abs=1e-5)
            if scaled is not None:
                assert change + base == pytest.approx(
                    scaled.log_probabilities(ids, start), abs=1e-5
                )


def test_answers_of_one_question_are_not_those_of_another() -> None:
    lm = loaded("llama")
    questions: list[dict[str, Any]] = [
        {"input": given, "gates": gates, "new_tokens": most, "pinned": "2.0"}
        for given in (SENTENCE, PROMPT, {"prompt": "Hello: a b", "reference": "cats"},
                      {"prompt": "Hello: a b", "reference": "c dog", "chat": False})
        for gates, most in (({"2.1": 0.0}, 3), ({"2.1": 5.0}, 3), ({"2.1": 0.0}, 6))
    ]  # fmt: skip

    def told(explorer: Explorer, question: dict[str, Any]) -> Events:
        events = answer(explorer, **question)
        return [each for each in events if each["event"] not in ("token", "done")]

    shared = explorer_of(lm)
    for question in [*questions, *questions[::5]]:
        assert told(shared, question) == told(explorer_of(lm), question)


def test_a_full_cache_forgets_what_was_not_used_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explorer_module, "KEPT", 12)
    explorer = explorer_of(loaded("llama"))
    body = {"input": PROMPT, "gates": {"2.1": 0.0}, "pinned": "3.1", "new_tokens": 6}
    shown = {}
    for number in range(24):
        draw = number % 7 if number % 3 else 0
        events = answer(explorer, **body, draw=draw)
        written = {each["lane"] for each in events if each["event"] == "token"}
        assert written <= ({"original", "gated", "random"} if number == 0 else {"random"})
        # Candidates of a text are read anew, in other company, so their last digits may differ.
        lines = [
            {name: value for name, value in each.items() if name != "candidates"}
            for each in events
            if each["event"] == "lane"
        ]
        assert lines == shown.setdefault(draw, lines)


def test_draws_of_a_short_prompt_and_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether logits can be made apart is tried on a batch of its own, with no layer replayed."""
    lm = wrapped("qwen3", 4, layers=4)
    body = {
        "input": {"prompt": "ab"},
        "gates": {"2.1": 0.0},
        "control": "same layers",
        "new_tokens": 60,
    }
    expected = one(answer(explorer_of(lm), **body), "place")["random"]
    monkeypatch.setattr(losses, "CHUNK", 96 * 100)  # as with 335,000 tokens
    lm = wrapped("qwen3", 4, layers=4)
    events = answer(explorer_of(lm), **body)
    assert one(events, "place")["random"] == pytest.approx(expected, abs=1e-5)
    assert one(events, "lane", lane="original")["ended"] == "limit"


def controls_of(explorer: Explorer, draws: int, **body: Any) -> list[Gates]:
    prompts = [
        one(answer(explorer, input=PROMPT, new_tokens=1, draw=draw, **body), "prompt")
        for draw in range(draws)
    ]
    return [prompt["control_gates"] for prompt in prompts]


@pytest.mark.parametrize("control", ["random", "same layers"])
def test_the_place_is_among_the_controls_that_are_shown(control: str) -> None:
    lm = loaded("llama")
    explorer, gates = explorer_of(lm), {"1.0": 5.0, "3.1": -1.0}
    place = one(answer(explorer, input=PROMPT, gates=gates, control=control), "place")
    referred = lm.tokenizer("Hello: a b c dog")["input_ids"]
    base = Plain(lm, {}).log_probabilities(referred, 11).sum()
    shown = controls_of(explorer, 21, gates=gates, control=control)
    # A head of layer 1 and one of layer 3 are 15 other sets of these layers, which come again.
    among = 16 if control == "same layers" else 21
    assert 1 + len(place["random"]) == among
    if control == "same layers":
        assert shown[15:] == shown[:6]
    changes = [
        Plain(lm, gates_of).log_probabilities(referred, 11).sum() - base
        for gates_of in shown[: among - 1]
    ]
    assert place["random"] == pytest.approx(changes, abs=2e-5)
    sign = -1 if place["selected"] < 0 else 1
    assert place["as_much"] == sum(
        sign * value >= sign * place["selected"] for value in place["random"]
    )


def test_numbers_go_to_heads_of_a_layer_by_chance() -> None:
    gates = {"0.0": 5.0, "0.3": 0.0}
    lm = wrapped("llama", layers=2, overrides={"num_attention_heads": 12, "num_key_value_heads": 4})
    lowest = [
        gates_of[min(gates_of, key=Head.parse)]
        for control in ("random", "same layers")
        for gates_of in controls_of(explorer_of(lm), 20, gates=gates, control=control)
    ]
    for some in (lowest[:20], lowest[20:]):
        assert 4 <= some.count(5.0) <= 16  # of 20 fair coins fewer or more come in 1 of 400 cases


def test_a_layer_without_other_heads_has_no_control() -> None:
    explorer, gates = explorer_of(loaded("llama")), {f"1.{head}": 0.0 for head in range(4)}
    body = {"input": PROMPT, "gates": gates, "control": "same layers", "new_tokens": 1}
    assert "no other heads" in one(answer(explorer, **body), "prompt")["control_note"]


def test_all_random_sets_do_as_much_as_heads_that_do_nothing() -> None:
    model = build("llama", layers=4)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
    lm = LanguageModel.wrap(model, tokenizer(), check=False)
    events = answer(explorer_of(lm), input=PROMPT, gates={"1.0": 0.0})
    place = one(events, "place")
    assert set(place["random"]) == {0.0} and place["as_much"] == len(place["random"]) == 15


def byte_tokens(text: str) -> tuple[Any, list[int]]:
    """A token a byte, as in GPT-2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return as_fast(inner, text)


def sentence_pieces(text: str) -> tuple[Any, list[int]]:
    """Characters where they are in the vocabulary, else bytes, and a space before the text."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    letters = [*(f"<0x{byte:02X}>" for byte in range(256)), *"▁abcdefghijklmnopqrstuvwxyz.世é"]
    inner = Tokenizer(
        models.BPE(vocab={p: i for i, p in enumerate(letters)}, merges=[], byte_fallback=True)
    )
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    inner.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return as_fast(inner, text)


def as_fast(inner: Any, text: str) -> tuple[Any, list[int]]:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(tokenizer_object=inner)
    return made, made(text)["input_ids"]


@pytest.mark.parametrize("make", [byte_tokens, sentence_pieces])
@pytest.mark.parametrize(
    "text",
    [
        "good 😀 dogs 👨\u200d👩\u200d👧.",
        "你好，世界。",
        "สวัสดีชาวโลก",
        "  two  spaces",
        "\n\nfirst line\nsecond",
        "e\u0301 é \ufffd x",
    ],
)
def test_pieces_are_the_text_wherever_it_ends(
    make: Callable[[str], tuple[Any, list[int]]], text: str
) -> None:
    made, ids = make(text)

    class Holder:
        tokenizer = made
        decode = functools.partial(decode, made)

    lm: Any = Holder()
    for end in range(1, len(ids) + 1):
        whole = made.decode(
            ids[:end], skip_special_tokens=True, clean_up_tokenization_spaces=False
        ).lstrip()
        for one_line, wanted in ((False, whole), (True, whole.split("\n")[0])):
            parts = pieces(lm, ids[:end], one_line)
            assert len(parts) == end and "".join(parts) == wanted
    growing = Growing(lm, False)
    assert "".join(growing.add(index) for index in ids) == text.lstrip()
