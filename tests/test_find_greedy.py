"""Scores of the model's own outputs, and what a finished run keeps of its peaks."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import find_helpers
from headscope.data.pairs import PairFile
from headscope.data.prompts import Prompt
from headscope.data.words import within
from headscope.errors import InputError
from headscope.evidence.runner import prompts_of
from headscope.find import capture
from headscope.find.capture import BATCHES, Captured, capture_greedy
from headscope.find.hits import count_hits, decoded, similar_sentences
from headscope.find.scoring import NOWHERE
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import translation_score
from headscope.lm import LanguageModel
from headscope.lm.attention.peaks import PeakRequest
from headscope.lm.generation import GenerateConfig, generate
from headscope.lm.tokens import encode
from headscope.runs import Run, open_run
from naive_translation_score import naive_translation_score, write

OPTIONS = list(itertools.product(("all", "source"), ("predict", "read")))


@pytest.fixture(autouse=True)
def aligner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that follow from the words, in place of a statistical aligner's, which has no seed."""
    monkeypatch.setattr(
        "headscope.data.align.align_eflomal",
        lambda texts, extra, options: tuple(find_helpers.links_by_rule(*one) for one in texts),
    )
    monkeypatch.setattr("headscope.data.align.check_eflomal", lambda: None)


@functools.cache
def _models(name: str) -> tuple[LanguageModel, Any]:
    """A model and its eager likeness, which end some outputs by an end mark and some by length."""
    # This seed's models do not say one word over and over.
    made = [find_helpers.model(name, kind, seed=2) for kind in (None, "eager")]
    lm = LanguageModel.wrap(made[0], find_helpers.tokenizer("metaspace"), name=name, check=False)
    prompts, source = masks(lm, sentences())
    limits = [2 * int(one.sum()) + 32 for one in source]
    texts = [one.text for one in prompts]
    outputs = [one.output_ids for one in generate(lm, texts, None, limits)]
    # A token that comes late in the first output, and not in every one, becomes an end mark.
    latest = sorted(set(outputs[0][:40]), key=outputs[0].index, reverse=True)
    mark = next(one for one in latest if not all(one in other for other in outputs[1:]))
    for one in made:
        one.generation_config.eos_token_id = [2, mark]
    return LanguageModel.wrap(made[0], lm.tokenizer, name=name, check=False), made[1]


def sentences() -> PairFile:
    return find_helpers.pairs("en-de", 3, seed=3)


def masks(lm: LanguageModel, pairs: PairFile) -> tuple[list[Prompt], list[Any]]:
    config = TranslationScore()
    prompts = prompts_of(lm, pairs, config.template, config.chat)
    found = [within(encode(lm.tokenizer, one.text).spans, *one.source_span) for one in prompts]
    return prompts, found


@pytest.mark.parametrize("name", find_helpers.MODELS)
@pytest.mark.parametrize(
    ("scope", "query", "average"), [*((*one, "macro") for one in OPTIONS), (*OPTIONS[0], "micro")]
)
def test_equals_the_naive_twin(
    name: str, scope: Any, query: Any, average: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin writes token by token without a cache, one sentence at a time."""
    lm, _ = _models(name)
    pairs = sentences()
    config = TranslationScore(
        decode="greedy", scope=scope, query=query, average=average, batch_tokens=400
    )
    ours = translation_score(lm, pairs, config)
    theirs = _naive(name, scope, query, average, monkeypatch)
    np.testing.assert_array_equal(ours.statistics["totals"], theirs.totals)
    np.testing.assert_array_equal(ours.statistics["hits"], theirs.hits)
    np.testing.assert_allclose(ours.values, theirs.score, rtol=0, atol=1e-6)
    for part in ("identical", "different", "chance"):
        np.testing.assert_allclose(ours.extra[part], getattr(theirs, part), rtol=0, atol=1e-6)
    assert ours.config["units"] == "words" and ours.config["tokens"] > 20


def _naive(name: str, scope: Any, query: Any, average: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    lm, eager = _models(name)
    monkeypatch.setattr("naive_translation_score.write", functools.partial(_written, name))
    pairs = sentences().pairs
    options = {"decode": "greedy", "scope": scope, "query": query, "average": average}

    def score(others: Any) -> Any:
        return naive_translation_score(
            eager,
            lm.tokenizer,
            pairs,
            "English",
            "German",
            aligner=find_helpers.links_by_rule,
            others=others,
            **options,
        )

    said = score(None).sentences
    drawn = similar_sentences([(len(s.source_words), len(s.target_words)) for s in said], 20, 0)
    return score([[said[other].links for other in others] for others in drawn])


_WRITTEN: dict[tuple[str, tuple[int, ...]], Any] = {}


def _written(name: str, eager: Any, tokenizer: Any, ids: list[int], limit: int) -> Any:
    """What the twin writes, which is slow and the same under all options, is kept."""
    key = name, tuple(ids)
    if key not in _WRITTEN:
        _WRITTEN[key] = write(eager, tokenizer, ids, limit)
    return _WRITTEN[key]


def test_the_outputs_end_in_several_ways() -> None:
    """What the twin is compared on holds ends of text as well as ends by length."""
    for name in find_helpers.MODELS:
        lm, _ = _models(name)
        prompts, source = masks(lm, sentences())
        limits = [2 * int(one.sum()) + 32 for one in source]
        outputs = generate(lm, [one.text for one in prompts], None, limits)
        assert {one.stop for one in outputs} == {"eos", "length"}
        assert len(outputs[0].output_ids) > 10


@contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """The lengths of the inputs of a model's forward calls."""
    calls: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append((kwargs.get("input_ids", *args)).shape[1]),
        with_kwargs=True,
    )
    try:
        yield calls
    finally:
        handle.remove()


@pytest.mark.parametrize("name", find_helpers.MODELS)
@pytest.mark.parametrize("batch_tokens", [1, 100_000])
def test_capture_takes_no_pass_of_its_own(name: str, batch_tokens: int) -> None:
    """As many forward calls, of the same lengths, and the same outputs as plain generation."""
    lm, _ = _models(name)
    prompts, source = masks(lm, sentences())
    limits = [2 * int(one.sum()) + 32 for one in source]
    config = TranslationScore(decode="greedy", batch_tokens=batch_tokens)
    capture_greedy(lm, prompts, source, None, config)  # tries the model out, once
    with counted(lm.model) as plain:
        texts = [one.text for one in prompts]
        outputs = generate(lm, texts, GenerateConfig(batch_tokens=batch_tokens), limits)
    with counted(lm.model) as watched:
        captured = capture_greedy(lm, prompts, source, None, config)
    assert watched == plain and len(plain) > 30
    assert [one.output_ids for one in captured] == [one.output_ids for one in outputs]
    for one in captured:
        assert one.peaks.shape == (len(one.output_ids), *lm.geometry.shape)


@pytest.mark.parametrize("name", find_helpers.MODELS)
@pytest.mark.parametrize("query", ["predict", "read"])
def test_peaks_are_those_of_one_pass_over_prompt_and_output(name: str, query: Any) -> None:
    lm, _ = _models(name)
    prompts, source = masks(lm, sentences())
    config = TranslationScore(decode="greedy", query=query)
    captured = capture_greedy(lm, prompts, source, None, config)
    for prompt, one in zip(prompts, captured, strict=True):
        ids = [*lm.encode(prompt.text), *one.output_ids]
        with torch.no_grad(), lm.attention_peaks(PeakRequest("all")) as peaks:
            lm.model(input_ids=torch.tensor([ids]))
        first = len(ids) - len(one.output_ids) - (query == "predict")
        whole = peaks.keys.numpy()[first : first + len(one.peaks)]
        np.testing.assert_array_equal(one.peaks, whole)


def test_empty_outputs_are_left_out() -> None:
    """A model that ends every text at once, but for one sentence's."""
    lm, _ = _models("qwen3")
    pairs = find_helpers.pairs("en-de", 3)
    config = TranslationScore()
    wanted = lm.encode(prompts_of(lm, pairs, config.template, config.chat)[0].text)
    end = lm.eos_token_ids[0]

    def silence(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        ids = kwargs["input_ids"]
        if ids.shape[1] > 1:
            for row, one in enumerate(ids.tolist()):
                output.logits[row, -1, end] = -1e9 if one[-len(wanted) :] == wanted else 1e9
        return output

    handle = lm.model.register_forward_hook(silence, with_kwargs=True)
    try:
        scores = translation_score(lm, pairs, TranslationScore(decode="greedy"))
    finally:
        handle.remove()
    assert (scores.config["left_out"], scores.config["examples"]) == (2, 1)


def test_links_of_the_data_do_not_cover_the_models_own_output() -> None:
    lm, _ = _models("qwen3")
    config = TranslationScore(decode="greedy", aligner="links")
    with pytest.raises(InputError, match="use --aligner eflomal or llm, or --decode reference"):
        translation_score(lm, sentences(), config)


CONFIG = TranslationScore(batch_tokens=120, bootstrap_draws=20, chance_draws=2)
NAME = "en-de"


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return find_helpers.wrapped("qwen3")


def scored(lm: LanguageModel, out: Path, **changes: Any) -> Any:
    """The scores of six pairs and their run, not finished yet."""
    config = dataclasses.replace(CONFIG, **changes)
    run = open_run(out, "find", config, {})
    return translation_score(lm, find_helpers.pairs(NAME, 6), config, run), run


def stored(run: Run) -> list[Captured]:
    """The peaks of all heads and the output of every text, as a run's batches hold them."""
    found = {}
    for part in (run.read_tensors(f"{NAME}/{name}") for name in BATCHES):
        for batch in part.values():
            peaks = np.split(batch["peaks"], np.cumsum(batch["rows"])[:-1])
            outputs = np.split(batch["output_ids"], np.cumsum(batch["lengths"])[:-1])
            made = (
                Captured(own, tuple(ids.tolist())) for own, ids in zip(peaks, outputs, strict=True)
            )
            found.update(zip(batch["index"].tolist(), made, strict=True))
    return [found[index] for index in range(len(found))]


def batches(run: Run) -> list[Path]:
    return sorted((run.path / "parts").rglob("*.safetensors"))


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_finished_run_keeps_the_peaks_of_few_heads_on_few_sentences(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decode: Any
) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)
    monkeypatch.setattr(capture, "KEPT_HEADS", 2)
    monkeypatch.setattr(capture, "KEPT_SENTENCES", 4)
    options = {"decode": decode, "max_new_tokens": 8}
    scores, run = scored(lm, tmp_path / "few", **options)
    assert batches(run)  # a run that is not finished goes on from these
    everything = stored(run)
    run.finish({})
    assert not batches(run)

    _, whole = scored(lm, tmp_path / "all", **options, keep_peaks=True)
    whole.finish({})
    kept = load_file(tmp_path / "few" / "peaks" / f"{NAME}.safetensors")
    heads = [tuple(head) for head in kept["heads"].tolist()]
    assert heads[:2] == [(head.layer, head.head) for head in scores.top(2)]
    assert len(set(heads)) == 4 and set(heads) <= {(h.layer, h.head) for h in lm.geometry.heads()}
    assert kept["peaks"].dtype == np.int16 and kept["index"].tolist() == [0, 1, 2, 3]
    ends = np.cumsum(kept["rows"])
    assert len(kept["peaks"]) == ends[-1]
    for own, one, given in zip(
        np.split(kept["peaks"], ends[:-1]), stored(whole), everything, strict=False
    ):
        np.testing.assert_array_equal(one.peaks, given.peaks)
        for column, (layer, head) in enumerate(heads):
            np.testing.assert_array_equal(own[:, column], one.peaks[:, layer, head])
    # Outputs are kept of every sentence.
    outputs = np.split(kept["output_ids"], np.cumsum(kept["lengths"])[:-1])
    assert [tuple(ids) for ids in outputs] == [one.output_ids for one in everything]


def test_all_peaks_give_the_hits_again_and_few_say_that_they_cannot(
    lm: LanguageModel, tmp_path: Path
) -> None:
    scores, run = scored(lm, tmp_path / "all", keep_peaks=True)
    run.finish({})
    found = stored(run)
    assert len(found) == 6
    pairs = find_helpers.pairs(NAME, 6)
    sentences = decoded(lm, pairs, CONFIG, NOWHERE)[0]
    for number, (sentence, one) in enumerate(zip(sentences, found, strict=True)):
        counts = count_hits(sentence, one.peaks, [], "macro", False)
        np.testing.assert_array_equal(counts.hits, scores.statistics["hits"][number])
    _, few = scored(lm, tmp_path / "few")
    few.finish({})
    assert not stored(few)
    capture.check_peaks(run.path, True)
    capture.check_peaks(few.path, False)
    with pytest.raises(InputError, match="few heads alone"):
        capture.check_peaks(few.path, True)


def test_a_kill_at_the_end_loses_nothing(
    lm: LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, run = scored(lm, tmp_path)
    before = batches(run)
    run.close()  # the peaks of few heads are written, the completion marker is not

    def none(*_: object) -> None:
        raise AssertionError("a sentence was read again")

    with monkeypatch.context() as patch:
        patch.setattr(capture, "_read_batch", none)
        # Whether all are kept is not part of what is computed, so it can still be said.
        again, run = scored(lm, tmp_path, keep_peaks=True)
    for name, values in whole.statistics.items():
        np.testing.assert_array_equal(values, again.statistics[name])
    run.finish({})
    assert batches(run) == before
    capture.check_peaks(run.path, True)


def test_what_was_not_kept_is_computed_again_and_said(
    lm: LanguageModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, run = scored(lm, tmp_path)
    run.finish({})
    assert not caplog.records
    (tmp_path / "DONE.json").unlink()
    again, _ = scored(lm, tmp_path)
    assert "--keep-peaks" in caplog.text
    np.testing.assert_array_equal(first.values, again.values)


@pytest.mark.parametrize(("largest", "bits"), [(2**15 - 1, 16), (2**15, 32)])
def test_peaks_take_16_bits_where_the_text_allows(largest: int, bits: int) -> None:
    peaks = np.array([[[-1, 0], [largest, 7]]], dtype=np.int32)
    packed = capture._pack([3], [Captured(peaks, (5, 6))])
    assert packed["peaks"].dtype.itemsize * 8 == bits
    ((index, found),) = capture._unpack(packed).items()
    assert index == 3 and found.output_ids == (5, 6) and found.peaks.dtype == np.int32
    np.testing.assert_array_equal(found.peaks, peaks)


# Answers alone


PREAMBLE = "Here is the translation:\n\n"


def _said(lm: LanguageModel, texts: list[str]) -> list[capture.Captured]:
    """Outputs with these texts, with peaks that no test looks at."""
    made = []
    for text in texts:
        ids = tuple(lm.encode(text, special=False))
        peaks = np.full((len(ids), *lm.geometry.shape), -1, dtype=np.int32)
        made.append(capture.Captured(peaks, ids))
    return made


def test_the_answer_in_an_output_is_what_is_aligned(
    lm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = find_helpers.pairs("en-de", 4)
    plain = [pair.target for pair in pairs.pairs]
    found = {}
    for name, texts, only in (
        ("plain", plain, None),
        ("wrapped", [f'{PREAMBLE}"{text}"\n\nNote: literal.' for text in plain], True),
    ):
        monkeypatch.setattr("headscope.find.hits.capture_greedy", lambda *_, t=texts: _said(lm, t))
        config = TranslationScore(decode="greedy", answer_only=only)
        found[name] = decoded(lm, pairs, config, NOWHERE)
    for own, whole, text, captured in zip(
        found["plain"][0], found["wrapped"][0], plain, found["wrapped"][1], strict=True
    ):
        assert own.text == whole.text == text and own.links == whole.links
        # Every token of the answer stands where its characters are, and no other has any.
        pieces = [lm.tokenizer.decode([token]) for token in captured.output_ids]
        places = [slice(*span) for span in whole.spans]
        assert all(text[place] in piece for piece, place in zip(pieces, places, strict=True))
        assert "".join(text[place] for place in places).split() == "".join(text.split()).split()
        for sentence in (whole, own):
            assert set(sentence.target[1]) == set(range(sentence.lengths[1]))
        inside = [piece for at, piece in enumerate(pieces) if at in whole.target[0]]
        assert "translation" not in "".join(inside) and "literal" not in "".join(inside)
