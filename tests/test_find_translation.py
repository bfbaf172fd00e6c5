"""Translation Score: equal to a naive twin on several architectures, and the laws it obeys."""

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

import find_helpers
import lm_helpers
from headscope.data.pairs import PairFile, PairSource, SentencePair, read_pairs, write_pairs
from headscope.data.prompts import Template
from headscope.errors import InputError
from headscope.evidence.runner import prompts_of
from headscope.find import capture
from headscope.find.capture import capture_greedy
from headscope.find.hits import similar_sentences
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import translation_score
from headscope.heads import HeadScores
from headscope.lm.generation.pool import can_pool
from headscope.lm.model import LanguageModel
from headscope.studies.align import Align, align
from naive_translation_score import Naive, naive_translation_score

ENGLISH = {"en": "English", "de": "German", "ru": "Russian", "tr": "Turkish", "es": "Spanish"}
OPTIONS = list(
    itertools.product(("all", "source"), ("predict", "read"), ("macro", "micro"), (False, True))
)


def borrowed(pairs: PairFile, config: TranslationScore) -> list[list[Any]]:
    """The links each sentence borrows: which ones is free, so the choice is taken from the code."""
    lengths = [(len(p.source.split()), len(p.target.split())) for p in pairs.pairs]
    drawn = similar_sentences(lengths, config.chance_draws, config.seed)
    return [[pairs.pairs[other].links for other in others] for others in drawn]


def naive(eager: Any, tokenizer: Any, pairs: PairFile, config: TranslationScore) -> Naive:
    return naive_translation_score(
        eager,
        tokenizer,
        pairs.pairs,
        ENGLISH[pairs.source_language],
        ENGLISH[pairs.target_language],
        template=config.template.text,
        scope=config.scope,
        query=config.query,
        average=config.average,
        skip_identical=config.skip_identical,
        others=borrowed(pairs, config),
    )


def assert_same(ours: HeadScores, theirs: Naive) -> None:
    np.testing.assert_array_equal(ours.statistics["totals"], theirs.totals)
    np.testing.assert_array_equal(ours.statistics["hits"], theirs.hits)
    np.testing.assert_array_equal(ours.statistics["identical_totals"], theirs.identical_totals)
    np.testing.assert_array_equal(ours.statistics["identical_hits"], theirs.identical_hits)
    for mine, other in (
        (ours.values, theirs.score),
        (ours.extra["identical"], theirs.identical),
        (ours.extra["different"], theirs.different),
        (ours.extra["chance"], theirs.chance),
    ):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-6)
    assert ours.config["left_out"] == theirs.left_out
    assert ours.config["examples"] == len(theirs.totals) - theirs.left_out
    assert ours.config["tokens"] == theirs.totals.sum()


def with_copies(pairs: PairFile) -> PairFile:
    """The same with a name copied in one sentence, and one sentence without links."""
    first, second, *rest = pairs.pairs
    size = len(first.source.split()), len(first.target.split())
    copied = SentencePair(
        first.id,
        f"{first.source} Qaro 17",
        f"{first.target} Qaro 17",
        (first.links or frozenset()) | {size, (size[0] + 1, size[1] + 1)},
        first.line,
    )
    bare = dataclasses.replace(second, links=frozenset())
    return dataclasses.replace(pairs, pairs=(copied, bare, *rest))


@functools.cache
def sentences(direction: str) -> PairFile:
    return with_copies(find_helpers.pairs(direction, 5, seed=len(direction)))


@pytest.mark.parametrize("name", find_helpers.MODELS)
@pytest.mark.parametrize(("scope", "query", "average", "skip"), OPTIONS)
def test_equals_the_naive_twin(name: str, scope: Any, query: Any, average: Any, skip: bool) -> None:
    """Every combination of options, on four architectures, a direction for each."""
    lm, eager = _models(name)
    directions = ("en-de", "de-tr", "ru-en", "tr-ru")
    pairs = sentences(directions[list(find_helpers.MODELS).index(name)])
    config = TranslationScore(
        scope=scope, query=query, average=average, skip_identical=skip, batch_tokens=300
    )
    assert_same(translation_score(lm, pairs, config), naive(eager, lm.tokenizer, pairs, config))


@functools.cache
def _models(name: str, kind: str = "bytes") -> tuple[LanguageModel, Any]:
    return find_helpers.wrapped(name, kind), find_helpers.model(name, "eager")


@pytest.mark.parametrize("kind", ["metaspace", "wordpiece"])
def test_equals_the_naive_twin_under_other_tokenizers_and_templates(kind: str) -> None:
    lm, eager = _models("pocket-like", kind)
    template = Template("{target_language} for «{source}» ({source_language}):")
    config = TranslationScore(template=template)
    pairs = sentences("ru-en")
    assert_same(translation_score(lm, pairs, config), naive(eager, lm.tokenizer, pairs, config))


def test_the_bundled_model_equals_the_naive_twin() -> None:
    from transformers import AutoModelForCausalLM

    from headscope.lm import load
    from headscope.pocket import weights

    folder = weights.path()
    lm = load(folder, device="cpu")
    eager = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype="float32"
    ).eval()
    for direction, scope in (("en-de", "all"), ("ru-en", "source")):
        pairs = find_helpers.pairs(direction, 6, seed=1)
        config = TranslationScore(scope=scope)
        assert_same(translation_score(lm, pairs, config), naive(eager, lm.tokenizer, pairs, config))


def mixed_lengths() -> PairFile:
    """Short sentences, and two that are many times as long."""
    pairs = find_helpers.pairs("en-de", 9, seed=2)
    long = [
        dataclasses.replace(one, source=" ".join([one.source] * 7)) for one in pairs.pairs[3:9:5]
    ]
    rest = [one for at, one in enumerate(pairs.pairs) if at not in (3, 8)]
    return dataclasses.replace(pairs, pairs=(*rest[:3], long[0], *rest[3:], long[1]))


@contextmanager
def shapes_read(lm: LanguageModel) -> Iterator[list[tuple[int, int]]]:
    """Rows and width of every batch that the model reads, single new tokens aside."""
    shapes: list[tuple[int, int]] = []

    def watch(_: Any, args: Any, options: Any) -> None:
        rows, width = options["input_ids"].shape
        shapes.extend([(rows, width)] if width > 1 else [])

    hook = lm.model.register_forward_pre_hook(watch, with_kwargs=True)
    try:
        yield shapes
    finally:
        hook.remove()


def test_short_and_long_sentences_are_not_padded_to_one_length() -> None:
    lm, _ = _models("qwen3")
    pairs = mixed_lengths()
    found, padded = [], []
    for tokens in (8192, 1):
        with shapes_read(lm) as shapes:
            found.append(translation_score(lm, pairs, TranslationScore(batch_tokens=tokens)))
        padded.append(sum(rows * width for rows, width in shapes))
    longest = max(width for _, width in shapes)
    assert padded[1] <= padded[0] < 0.6 * len(pairs.pairs) * longest
    np.testing.assert_array_equal(found[0].values, found[1].values)


@pytest.mark.parametrize("name", find_helpers.MODELS)
@pytest.mark.parametrize("scope", ["all", "source"])
def test_what_all_prompts_begin_with_is_read_once(
    name: str, scope: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, _ = _models(name)
    assert can_pool(lm)  # found out here, before passes are counted
    pairs, config = mixed_lengths(), TranslationScore(scope=scope)
    with shapes_read(lm) as shapes:
        shared = translation_score(lm, pairs, config)
    begin = next(width for rows, width in shapes if rows == 1)
    assert begin > 20
    monkeypatch.setattr(capture, "LEAST_SHARED", 1)
    with shapes_read(lm) as whole:
        alone = translation_score(lm, pairs, config)
    spared = sum(rows * width for rows, width in whole) - sum(
        rows * width for rows, width in shapes
    )
    assert spared >= begin * (len(pairs.pairs) - 1) // 2
    for key, values in alone.statistics.items():
        np.testing.assert_array_equal(shared.statistics[key], values)


def test_texts_that_are_all_the_same_are_read_as_far_as_nothing_is_wanted() -> None:
    lm, _ = _models("pocket-like")
    ids = [[5, *range(20, 60)]] * 40
    rows = [np.arange(12, 41)] * 40
    config = TranslationScore(query="predict")
    several = capture.capture_reference(lm, ids, rows, None, config)
    (single,) = capture.capture_reference(lm, ids[:1], rows[:1], None, config)
    for captured in several:
        np.testing.assert_array_equal(captured.peaks, single.peaks)


@pytest.mark.parametrize("limit", [1, 60])
def test_outputs_do_not_depend_on_what_is_written_together(limit: int) -> None:
    lm, _ = _models("qwen3")
    pairs = mixed_lengths()
    outputs = []
    for tokens in (8192, 400, 1):
        config = TranslationScore(decode="greedy", max_new_tokens=limit, batch_tokens=tokens)
        prompts = prompts_of(lm, pairs, config.template, config.chat)
        source = [np.ones(len(lm.encode(one.text)), dtype=np.bool_) for one in prompts]
        outputs.append(capture_greedy(lm, prompts, source, None, config))
    for first, *others in zip(*outputs, strict=True):
        for other in others:
            assert first.output_ids == other.output_ids
            np.testing.assert_array_equal(first.peaks, other.peaks)


def everything_linked(pairs: PairFile) -> PairFile:
    return dataclasses.replace(
        pairs,
        pairs=tuple(
            dataclasses.replace(
                pair,
                links=frozenset(
                    itertools.product(
                        range(len(pair.source.split())), range(len(pair.target.split()))
                    )
                ),
            )
            for pair in pairs.pairs
        ),
    )


@pytest.mark.parametrize("name", ["pocket-like", "gpt2"])
def test_with_every_word_linked_a_source_peak_always_hits(name: str) -> None:
    """Models without a window, whose heads always see the source."""
    lm, _ = _models(name)
    pairs = everything_linked(find_helpers.pairs("en-de", 5))
    scores = translation_score(lm, pairs, TranslationScore(scope="source"))
    assert np.all(scores.values == 1)
    assert scores.low is not None and np.all(scores.low < 1) and np.all(scores.high == 1)
    assert scores.classes() == {
        "token_alignment": lm.geometry.total,
        "low_activity": 0,
        "inactive": 0,
    }


def test_identical_and_different_tokens_are_the_two_halves() -> None:
    """Skipping identical ones leaves exactly what `different` counts."""
    lm, _ = _models("pocket-like")
    pairs = sentences("en-de")
    for average in ("macro", "micro"):
        whole = translation_score(lm, pairs, TranslationScore(average=average))
        rest = translation_score(lm, pairs, TranslationScore(average=average, skip_identical=True))
        np.testing.assert_array_equal(rest.values, whole.extra["different"])
        stats = whole.statistics
        np.testing.assert_array_equal(
            stats["identical_hits"] + rest.statistics["hits"], stats["hits"]
        )
        np.testing.assert_array_equal(
            stats["identical_totals"] + rest.statistics["totals"], stats["totals"]
        )
        assert rest.statistics["identical_totals"].sum() == 0


def test_macro_is_micro_where_sentences_count_alike() -> None:
    lm, _ = _models("qwen3")
    pair = find_helpers.pairs("en-de", 1).pairs[0]
    # The same target tokens after different words: as many tokens that count, other hits.
    others = find_helpers.pairs("en-de", 4, seed=3).pairs
    same = tuple(
        SentencePair(str(n), one.source, pair.target, frozenset({(0, 0), (1, 1)}), n)
        for n, one in enumerate(others, 2)
    )
    pairs = PairFile(same, "en", "de", "memory", "0")
    macro, micro = (
        translation_score(lm, pairs, TranslationScore(average=a)) for a in ("macro", "micro")
    )
    totals = macro.statistics["totals"]
    assert len(set(totals.tolist())) == 1 and len({p.source for p in same}) == 4
    np.testing.assert_allclose(macro.values, micro.values, rtol=0, atol=1e-15)


def test_sentences_without_linked_tokens_are_left_out_and_counted() -> None:
    lm, _ = _models("pocket-like")
    pairs = find_helpers.pairs("en-de", 4)
    bare = tuple(dataclasses.replace(pair, links=frozenset()) for pair in pairs.pairs)
    config = TranslationScore(chance_draws=0)
    alone = translation_score(lm, pairs, config)
    mixed = dataclasses.replace(pairs, pairs=(bare[1], *pairs.pairs, bare[0]))
    scores = translation_score(lm, mixed, config)
    np.testing.assert_array_equal(scores.values, alone.values)
    assert (scores.config["left_out"], scores.config["examples"]) == (2, 4)
    with pytest.raises(InputError, match="no target token of"):
        translation_score(lm, dataclasses.replace(pairs, pairs=bare), config)


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_sentence_longer_than_the_context_is_named(
    decode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headscope.data.align.check_aligner", lambda *a: None)
    lm = find_helpers.wrapped("gpt2", n_positions=40)
    pairs = find_helpers.pairs("en-de", 3)
    with pytest.raises(InputError, match=r"line \d+: has \d+ tokens .* context holds (40|39)"):
        translation_score(lm, pairs, TranslationScore(decode=decode))


UNSPACED = {
    "zh": ["我们在家。", "他2024年去了 New York。", "你好吗？", "猫 睡了，狗也睡了"],
    "ja": ["私は家にいる。", "彼はニューヨークへ行った", "元気ですか？", "犬も寝た"],
    "th": ["เราอยู่ที่บ้าน", "เขาไปนิวยอร์ก 2024", "สบายดีไหม", "แมวหลับ สุนัขก็หลับ"],
}
SAID = ["We are at home.", "He went to New York in 2024.", "How are you?", "The cat sleeps."]


@pytest.mark.parametrize("language", UNSPACED)
@pytest.mark.parametrize("turned", [False, True])
def test_a_file_with_links_gives_what_the_aligner_gives(
    language: str, turned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stand_in in find_helpers.ALIGNER.items():
        monkeypatch.setattr(name, stand_in)
    direction = f"{language}-en" if turned else f"en-{language}"
    both = list(zip(SAID, UNSPACED[language], strict=True))
    both = [(b, a) for a, b in both] if turned else both
    plain, linked = tmp_path / "plain.tsv", tmp_path / "linked.tsv"
    plain.write_text("".join(f"{a}\t{b}\n" for a, b in [("source", "target"), *both]), "utf-8")
    align(Align(PairSource(str(plain), direction), "eflomal"), linked)
    lm, config = find_helpers.wrapped("qwen3"), TranslationScore(chance_draws=2)
    files = [read_pairs(PairSource(str(path), direction)) for path in (plain, linked)]
    inline, read = (translation_score(lm, pairs, config) for pairs in files)
    for name in inline.statistics:
        np.testing.assert_array_equal(inline.statistics[name], read.statistics[name])
    np.testing.assert_array_equal(inline.values, read.values)
    np.testing.assert_array_equal(inline.extra["chance"], read.extra["chance"])
    assert inline.config["fitted_on"] == 4
    for name in ("aligner", "units", "tokens", "links_digest"):
        assert inline.config[name] == read.config[name]
    # The model reads the text as it was.
    for pair, said in zip(files[1].pairs, both, strict=True):
        assert (pair.source, pair.target) == said
        assert lm.tokenizer(pair.target).input_ids == lm.tokenizer(said[1]).input_ids


@pytest.mark.parametrize("decode", ["reference", "greedy"])
def test_a_limit_does_not_limit_what_the_aligner_is_fitted_on(
    decode: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[tuple[int, int]] = []

    def recorded(texts: Any, extra: Any, options: Any) -> Any:
        fitted.append((len(texts), len(extra)))
        return find_helpers.align_by_rule(texts, extra, options)

    monkeypatch.setattr("headscope.data.align.check_eflomal", find_helpers.eflomal_is_there)
    monkeypatch.setattr("headscope.data.align.align_eflomal", recorded)
    plain = tmp_path / "plain.tsv"
    pairs = find_helpers.pairs("en-de", 9).pairs
    write_pairs(plain, [pair.unlinked for pair in pairs])
    config = TranslationScore(chance_draws=2, decode=decode, max_new_tokens=4)
    limited = read_pairs(PairSource(str(plain), "en-de", limit=3))
    scores = translation_score(find_helpers.wrapped("qwen3"), limited, config)
    outputs = len(limited.pairs) if decode == "greedy" else 0
    assert [own + more for own, more in fitted] == [9 + outputs]
    assert scores.config["fitted_on"] == 9 + outputs
    assert scores.config["examples"] + scores.config["left_out"] == 3


def test_the_annotator_links_the_models_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer here: each target token with the source token at the same place, if any."""
    from headscope.data.align import LlmAligner
    from headscope.data.align.llm import LlmLinks

    asked: list[Any] = []

    def answer(texts: Any, *_: Any) -> LlmLinks:
        asked.extend(texts)
        links = [frozenset((n, n) for n in range(min(map(len, two)))) for two in texts]
        return LlmLinks(tuple(links), {})

    monkeypatch.setattr("headscope.data.align.align_llm", answer)
    monkeypatch.setenv("HEADSCOPE_API_KEY", "any")
    lm, _ = _models("pocket-like")
    said = [
        ("The dog sleeps.", "Der Hund schlief."),
        ("We see Ann, too.", "Wir sahen Ann gestern."),
    ]
    given = tuple(SentencePair(str(n), *two, None, n) for n, two in enumerate(said, 1))
    pairs = PairFile(given, "en", "de", "said.tsv", "")
    config = TranslationScore(aligner="llm", llm=LlmAligner("some-model"), chance_draws=2)
    scores = translation_score(lm, pairs, config)
    assert scores.config["units"] == "tokens"
    totals = []
    for pair, two in zip(pairs.pairs, asked, strict=True):
        for text, units in zip((pair.source, pair.target), two, strict=True):
            ids = lm.tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
            pieces = [lm.tokenizer.decode([one]).strip() for one in ids]
            assert units == [piece for piece in pieces if piece]
        totals.append(min(map(len, two)))
    assert scores.statistics["totals"].tolist() == totals


@pytest.mark.parametrize("kind", lm_helpers.CHANGING)
def test_peaks_do_not_depend_on_longer_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, generator = lm_helpers.changing(kind), torch.Generator().manual_seed(2)
    monkeypatch.setattr(capture, "LEAST_SHARED", 1000)
    common = torch.randint(3, 96, (12,), generator=generator).tolist()
    ids = [
        [*common, *torch.randint(3, 96, (n,), generator=generator).tolist()]
        for n in (3, 30, 12, 13, 6, 30)
    ]
    rows = [np.arange(13, len(text)) for text in ids]
    captured = capture.capture_reference(lm, ids, rows, None, TranslationScore(query="read"))
    for text, places, found in zip(ids, rows, captured, strict=True):
        eager = lm_helpers.fresh(lm)
        eager.set_attn_implementation("eager")
        with torch.no_grad():
            weights = eager(torch.tensor([text]), output_attentions=True).attentions
        expected = torch.stack([layer[0, :, places].argmax(-1).T for layer in weights], dim=1)
        np.testing.assert_array_equal(found.peaks, expected.numpy())
