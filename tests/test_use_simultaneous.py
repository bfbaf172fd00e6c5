"""Simultaneous translation: equal to naive loops without a cache, whole sentences and `generate`
where it must be; latencies by their definitions; what stdin brings, and runs that go on."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import repeat
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omnisteval import scoring
from omnisteval.data import Instance

from conftest import Said, json_of
from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import DEFAULT_TEMPLATE, translation_prompts
from headscope.data.words import is_unspaced, running_words
from headscope.errors import Caution, InputError
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.rows import CURVE, SELECTED
from headscope.heads import Head, HeadSet
from headscope.live.command import Explore, explorer_of
from headscope.live.explorer import KEPT_READINGS, Explorer
from headscope.live.inputs import pieces
from headscope.live.writing import Stopped
from headscope.lm import LanguageModel
from headscope.lm.attention.maps import attention_to_words
from headscope.measure.latency import (
    LATENCIES,
    READ_AT,
    average_lagging,
    curve_statistics,
    differentiable_lagging,
    quality_between,
)
from headscope.measure.statistics import counted_mean
from headscope.pocket.sample import sample_pairs
from headscope.studies.use.simultaneous import (
    UseSimultaneous,
    at_latency,
    plan,
    sets_of,
)
from headscope.use.simultaneous_translation import (
    Drafts,
    Policy,
    align_att,
    beginnings_of,
    interpret,
    interpreted,
    local_agreement,
    wait_k,
    written,
)
from lm_helpers import full_weights, logits, wrapped

ENDLESS = 10**9
HEADS = ("3.1", "4.2", "5.7")


# ---- latency -----------------------------------------------------------------------------------
def test_latencies_are_those_of_an_independent_package() -> None:
    stream = random.Random(0)
    for _ in range(50):
        source, reference = stream.randint(1, 40), stream.randint(1, 40)
        delays = sorted(stream.choices(range(1, source + 1), k=stream.randint(1, 50)))
        of_output, of_reference = (
            [Instance(reference="w" + " w" * (words - 1), source_length=source, emission_cu=delays)]
            for words in (len(delays), reference)
        )
        known = {
            "al": scoring.ALScorer()(of_output),
            "laal": scoring.LAALScorer()(of_reference),
            "dal": scoring.DALScorer()(of_reference),
        }
        for name, (_, latency) in LATENCIES.items():
            assert latency(delays, source, reference) == pytest.approx(known[name], abs=1e-9)
        by_reference = average_lagging(delays, source, reference)
        assert by_reference == pytest.approx(scoring.ALScorer()(of_reference), abs=1e-9)


@given(st.integers(1, 9), st.integers(1, 30))
def test_a_wait_k_schedule_lags_by_k(k: int, words: int) -> None:
    """Of sources and outputs of one length the lag of wait-k is k (Ma et al. 2019)."""
    delays = [min(k + at, words) for at in range(words)]
    lag = min(k, words)
    assert average_lagging(delays, words) == pytest.approx(lag)
    assert differentiable_lagging(delays, words) == pytest.approx(lag)
    # Twice as many words in the end are no gain.
    longer = [*delays, *[words] * words]
    assert LATENCIES["laal"][1](longer, words, words) >= lag
    assert LATENCIES["laal"][1]([], words, words) == words


@given(
    st.dictionaries(st.integers(0, 20), st.floats(0, 100), min_size=1, max_size=6),
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_curves_are_read_as_straight_lines(points: dict[int, float], ends: tuple[int, int]) -> None:
    low, high = sorted(ends)
    x, y = zip(*sorted(points.items()), strict=True)
    wanted = np.interp(np.linspace(low, high, READ_AT), x, y).mean()
    quality = [np.array([[value, 1.0], [value, 1.0]]) for value in points.values()]
    lag = np.array([[at - 0.5, at + 0.5] for at in points])
    sums = curve_statistics(quality, lag, (low, high)).sum(axis=0)
    scored = quality_between(counted_mean, len(points))
    assert float(scored(sums)) == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    # Of many sums at once, too, and whatever the number of examples.
    assert scored(np.stack([sums, 3 * sums])) == pytest.approx([wanted] * 2, rel=1e-6, abs=1e-6)


# ---- words -------------------------------------------------------------------------------------
@given(st.text("ab'é 中文，。\n"))
def test_words_that_have_arrived_stay(text: str) -> None:
    words = running_words(text)
    assert "".join(word.text for word in words) == "".join(text.split())
    for at, word in enumerate(words):
        assert text[word.start : word.end] == word.text
        assert running_words(text[: word.end]) == words[: at + 1]


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert [word.text for word in running_words("see GDP增长 now.")] == [
        "see", "GDP", "增", "长", "now.",
    ]  # fmt: skip


# ---- policies ----------------------------------------------------------------------------------
def one_pair(source: str) -> PairFile:
    return PairFile((SentencePair("1", source, "x"),), "en", "de", "test", "")


def naive(
    lm: LanguageModel, source: str, heads: Sequence[Head], frontier: int, most: int, step: int
) -> list[tuple[int, int]]:
    """AlignAtt by the words of its definition: every token from a pass over the whole text, and
    the attention of an eager copy of the model."""
    tokens: list[tuple[int, int]] = []
    words = source.split()
    order = [each for n, text in enumerate(lm.geometry.heads()) for each in [(text, n)]]
    place = dict(order)
    for read in range(1, len(words) + 1):
        last = read == len(words)
        if read % step and not last:
            continue
        text = " ".join(words[:read])
        (prompt,) = translation_prompts(one_pair(text), DEFAULT_TEMPLATE, None, "")
        encoded = lm.encoded(prompt.text)
        for final in [False, True] if last else [False]:
            while len(tokens) < most:
                ids = [*encoded.ids, *(token for token, _ in tokens)]
                batch = lm.collate([ids])
                token = int(logits(lm.model, batch)[0, -1].argmax())
                made = [*(token for token, _ in tokens), token]
                ends = lm.stop_table.cut(made, True)[1] != "length"
                if final:
                    tokens.append((token, read))
                    if ends:
                        return tokens
                    continue
                rows = full_weights(lm, batch)[0, :, -1]
                mean = rows[[place[head] for head in heads]].mean(dim=0)
                start, sums = prompt.source_start, []
                for word in words[:read]:
                    end = start + len(word)
                    own = [at for at, (a, b) in enumerate(encoded.spans) if a < end and b > start]
                    sums.append(float(mean[own].sum()))
                    start = end + 1
                if ends or sums.index(max(sums)) >= read - frontier:
                    break
                tokens.append((token, read))
    return tokens


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_next"])
@pytest.mark.parametrize(("frontier", "step"), [(1, 1), (2, 2)])
def test_align_att_is_what_its_definition_says(name: str, frontier: int, step: int) -> None:
    lm = wrapped(name, seed=3)
    layer = lm.geometry.layers - 1  # one that attends, in a model of mixed layers
    heads = [head for head in lm.geometry.heads() if head.layer == layer][:2]
    own, source = HeadSet.of(lm.geometry, heads), "a cat or two in Rome"
    wanted = naive(lm, source, heads, frontier, 8, step)
    for cached in (True, False):
        drafts = Drafts(lm, one_pair(source), [own], most=8, cached=cached)
        found = written(drafts, beginnings_of(source), align_att(frontier), step)
        assert list(found) == wanted


def policies(lm: LanguageModel) -> dict[str, Callable[[], Policy]]:
    return {
        "align 0": lambda: align_att(0),
        "align 1": lambda: align_att(1),
        "align 3": lambda: align_att(3),
        "wait 1": lambda: wait_k(1),
        "wait 4": lambda: wait_k(4),
        "agree 2": lambda: local_agreement(2),
        "agree 3": lambda: local_agreement(3),
    }


@cache
def sentences() -> PairFile:
    return sample_pairs("en-de", "test", 4, 0)


def heads_of(lm: LanguageModel) -> HeadSet:
    return HeadSet.of(lm.geometry, HEADS)


def test_whole_sentences_are_those_of_generate(pocket: LanguageModel) -> None:
    """With an endless frontier, and where all is read at once."""
    pairs = sentences()
    texts = [prompt.text for prompt in translation_prompts(pairs, DEFAULT_TEMPLATE)]
    limits = [2 * len(pocket.encode(pair.source, special=False)) + 32 for pair in pairs.pairs]
    plain = pocket.generate(texts, limits=limits)
    for pair, made in zip(pairs.pairs, plain, strict=True):
        drafts = Drafts(pocket, pairs, [heads_of(pocket)])
        every = beginnings_of(pair.source)
        runs = {"endless": written(drafts, every, align_att(ENDLESS))}
        for name, make in policies(pocket).items():
            runs[name] = written(drafts, every, make(), len(every))
        for run in runs.values():
            tokens, reads = zip(*run, strict=True)
            assert drafts.made(tokens).output_ids == made.output_ids
            assert drafts.made(tokens).text == made.text
            assert set(reads) == {len(every)}


def test_results_do_not_depend_on_what_is_kept(pocket: LanguageModel) -> None:
    """Neither on the cache, nor on what other policies have drafted before."""
    pairs = sentences()
    for pair in pairs.pairs[:2]:
        shared = Drafts(pocket, pairs, [heads_of(pocket)])
        for make in policies(pocket).values():
            together = interpreted(shared, pair.source, make())
            for cached in (True, False):
                alone = Drafts(pocket, pairs, [heads_of(pocket)], cached=cached)
                assert interpreted(alone, pair.source, make()) == together


def test_what_is_kept_is_not_read_again(
    pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, read, forward = sentences(), dict[bool, int](), LanguageModel.forward

    def counted(self: LanguageModel, batch: Any, *more: Any, **named: Any) -> Any:
        read[cached] = read.get(cached, 0) + batch.input_ids.numel()
        return forward(self, batch, *more, **named)

    monkeypatch.setattr(LanguageModel, "forward", counted)
    for cached in (True, False):
        drafts = Drafts(pocket, pairs, [heads_of(pocket)], cached=cached)
        for pair in pairs.pairs[:2]:
            interpreted(drafts, pair.source, align_att(2))
    assert 0 < 3 * read[True] < read[False]


def test_policies_keep_their_laws(pocket: LanguageModel) -> None:
    for pair in sentences().pairs:
        drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
        words, first = len(running_words(pair.source)), []
        for frontier in (0, 1, 2, 4, ENDLESS):
            delays = interpreted(drafts, pair.source, align_att(frontier)).delays
            assert list(delays) == sorted(delays) and delays[-1] <= words
            assert delays[0] >= min(frontier + 1, words)
            first.append(delays[0])
        assert first == sorted(first)  # who waits for more words begins later
        for k in (1, 2, 5):
            made = interpreted(drafts, pair.source, wait_k(k))
            assert len(made.delays) == len(running_words(made.text))
            assert all(read >= min(k + at, words) for at, read in enumerate(made.delays))


@pytest.mark.parametrize(("k", "step"), [(1, 1), (3, 1), (2, 2)])
def test_wait_k_writes_a_word_for_each_word(pocket: LanguageModel, k: int, step: int) -> None:
    source = sentences().pairs[1].source
    drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
    beginnings, made, wanted = beginnings_of(source), list[int](), list[tuple[int, int]]()
    for read in range(step, len(beginnings) + 1, step):
        for each in drafts.after(beginnings[read - 1], tuple(made)):
            words = len(pocket.decode([*made, each.token]).split())
            if each.ends or words > max(0, read - k + 1):
                break
            made.append(each.token)
            wanted.append((each.token, read))
    found = list(written(drafts, beginnings, wait_k(k), step))
    assert found[: len(wanted)] == wanted and len({read for _, read in wanted}) > 2
    assert {read for _, read in found[len(wanted) :]} == {len(beginnings)}


def test_agreement_is_what_drafts_begin_with(pocket: LanguageModel) -> None:
    source, last = sentences().pairs[1].source, 2
    drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
    beginnings, made, before = beginnings_of(source), list[int](), list[list[int]]()
    wanted = []
    for read, text in enumerate(beginnings, 1):
        draft = [each.token for each in drafts.after(text, made) if not each.ends]
        before.append([*made, *draft])
        if len(before) >= last:
            alike = 0
            while len({tuple(each[: alike + 1]) for each in before[-last:]}) == 1 and all(
                len(each) > alike for each in before[-last:]
            ):
                alike += 1
            wanted += [(token, read) for token in before[-1][len(made) : alike]]
            made = before[-1][:alike]
    found = list(written(drafts, beginnings, local_agreement(last)))
    assert found[: len(wanted)] == wanted and wanted


def test_attention_to_words_is_the_mean_of_heads_and_the_sum_of_tokens() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    member = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool)
    assert attention_to_words(weights, member).tolist() == [[9, 6]]
    assert attention_to_words(weights, member, [0, 2]).tolist() == [[9, 6]]
    assert attention_to_words(weights, member, [2]).tolist() == [[17, 10]]


# ---- text as it comes --------------------------------------------------------------------------
@given(st.integers(1, 7))
def test_chunks_of_any_size_are_translated_alike(pocket: LanguageModel, size: int) -> None:
    lines = [pair.source for pair in sentences().pairs[:2]]
    text = f"{lines[0]}\n\n{lines[1]}"
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    pieces = list(interpret(pocket, sentences(), heads_of(pocket), chunks, 1))
    drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
    first, second = (interpreted(drafts, line, align_att(1)).text for line in lines)
    assert "".join(pieces) == f"{first}\n\n{second}\n"


def test_what_is_written_does_not_wait_for_more_than_it_needs(pocket: LanguageModel) -> None:
    """A piece is there before the next word is asked for, and a line before the next line is."""
    source = sentences().pairs[1].source
    given_so_far = ""

    def characters() -> Iterator[str]:
        nonlocal given_so_far
        for char in f"{source}\nNever":
            given_so_far += char
            yield char

    drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
    beginnings = beginnings_of(source)
    reads = [read for _, read in written(drafts, beginnings, align_att(1))]
    pieces = interpret(pocket, sentences(), heads_of(pocket), characters(), 1)
    for read, _ in zip(reads, pieces, strict=False):
        # Only the white space behind the word says that it is complete.
        assert given_so_far[:-1] == beginnings[read - 1]
    assert len(set(reads)) > 2
    assert next(pieces).endswith("\n") and given_so_far == f"{source}\n"


def cut_by_hand(lm: LanguageModel, source: str, longest: int, most: int) -> list[str]:
    """The parts of a line, each as many words (of one too long by itself: characters) as leave room
    for a translation of at most so many tokens."""

    def fits(text: str) -> bool:
        (prompt,) = translation_prompts(one_pair(text), DEFAULT_TEMPLATE, None, "")
        start, end = prompt.source_span
        encoded = lm.encoded(prompt.text)
        own = sum(a < end and b > start for a, b in encoded.spans.tolist())
        room = longest - (len(encoded.ids) - own)
        return own + min(room // 2, 2 * own + 32, most) <= room

    parts = []
    while source:
        beginnings = beginnings_of(source)
        fitting = [each for each in beginnings if fits(each)]
        if not fitting:
            fitting = [source[:1], *(source[:at] for at in range(2, len(source)))]
            fitting = [each for each in fitting if len(each) == 1 or fits(each)]
        parts.append(fitting[-1])
        source = source[len(parts[-1]) :].lstrip()
    return parts


@settings(max_examples=3)
@example(["a" * 90, *["planted", "猫狗猫", "king"] * 4])
@given(
    st.lists(
        st.sampled_from(("the", "king", "planted", "猫狗猫", "a" * 90)), min_size=8, max_size=12
    )
)
def test_a_line_is_cut_where_it_fits_no_more(pocket: LanguageModel, words: list[str]) -> None:
    source, most = " ".join(words), 3
    parts = cut_by_hand(pocket, source, 64, most)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        patch.setattr("headscope.use.simultaneous_translation.LONGEST_LINE", 64)
        pairs, heads = one_pair(""), heads_of(pocket)
        given_ = f"{source}\n{words[0]}"
        made = "".join(interpret(pocket, pairs, heads, given_, 1, most=most))
    assert [each.category for each in told] == [Caution] * (
        (len(parts) > 1) + (len(cut_by_hand(pocket, words[0], 64, most)) > 1)
    )
    wanted = ""
    for part in parts:
        drafts = Drafts(pocket, pairs, [heads], most=most)
        wanted += interpreted(drafts, part, align_att(1)).text
        wanted += "" if part is parts[-1] or is_unspaced(wanted[-1:]) else " "
    assert made.split("\n")[0] == wanted and made.count("\n") == 2


def test_a_source_is_read_no_further_than_it_fits(pocket: LanguageModel) -> None:
    """Without a space, without an end, without a word."""
    read = 0

    def endless(char: str) -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield char

    pieces = interpret(pocket, sentences(), heads_of(pocket), endless("a"), most=2)
    with pytest.warns(Caution, match="line 1"):
        assert [next(pieces) for _ in range(8)]
    assert read <= 8 * 2048
    pieces = interpret(pocket, sentences(), heads_of(pocket), repeat(" \n", 50_000))
    assert "".join(pieces) == "\n" * 50_000


def streamed(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, given_: bytes, *more: object
) -> Said:
    # As Python opens it where the locale is C.
    stdin = io.TextIOWrapper(io.BytesIO(given_), "utf-8", "surrogateescape")
    return translated_from(stdin, command, monkeypatch, *more)


def translated_from(
    stdin: io.TextIOWrapper, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch,
    *more: object,
) -> Said:  # fmt: skip
    monkeypatch.setattr("sys.stdin", stdin)
    words = ("use", "simultaneous", "--heads", ",".join(HEADS), "--frontier", 1, "--stream")
    return command(*words, *more)


def test_stdin_is_translated_line_by_line(
    loaded: None, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch,
    pocket: LanguageModel,
) -> None:  # fmt: skip
    lines = [pair.source for pair in sentences().pairs[:2]]
    typed = "\n".join(lines).encode()
    said = streamed(command, monkeypatch, typed, "--pair", "en-de")
    drafts = Drafts(pocket, sentences(), [heads_of(pocket)])
    wanted = [interpreted(drafts, line, align_att(1)).text for line in lines]
    assert said.code == 0 and said.out == "".join(f"{line}\n" for line in wanted)
    told = json_of(streamed(command, monkeypatch, typed, "--pair", "en-de", "--json").out)
    assert told["lines"] == wanted and told["words"] == sum(len(line.split()) for line in lines)
    assert told["cpu_seconds_a_word"] > 0
    assert streamed(command, monkeypatch, b"", "--pair", "en-de").out == ""
    marked = streamed(command, monkeypatch, b"\xef\xbb\xbf" + typed, "--pair", "en-de")
    assert marked.out == said.out  # a mark of the byte order is no character of the text


def test_a_line_that_fits_no_context_ends_no_stream() -> None:
    """In a process of its own, which writes a part of the line before the line has ended."""
    words = ["use", "simultaneous", "--heads", ",".join(HEADS), "--pair", "en-de", "--stream"]
    call = [sys.executable, "-m", "headscope", *words, "--max-new-tokens", "3"]
    with subprocess.Popen(
        call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"dog\n" + b"a" * 2048)
        first = process.stdout.readline()
        begun = process.stdout.read(1)
        process.stdin.write(b"\ndog\n\n")
        process.stdin.close()
        rest = (begun + process.stdout.read()).split(b"\n")
        said = process.stderr.read().decode()
    assert process.returncode == 0
    assert first.strip() and [line + b"\n" for line in rest[1:]] == [first, b"\n", b"\n"]
    assert rest[0].count(b" ") >= 2 and "stdin, line 2" in said and "1,024" in said


class Endless(io.BytesIO):
    """What a user ends, having waited for more."""

    def read1(self, size: int | None = -1, /) -> bytes:
        if read := super().read1(size):
            return read
        raise KeyboardInterrupt


def test_a_source_without_an_end_is_ended_by_its_user(
    loaded: None, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = sentences().pairs[0].source
    whole = json.loads(
        streamed(command, monkeypatch, f"{line}\n".encode(), "--pair", "en-de", "--json").out
    )
    for typed in (f"{line}\n", f"{line}\nThe wise"):
        stdin = io.TextIOWrapper(Endless(typed.encode()), "utf-8")
        said = translated_from(stdin, command, monkeypatch, "--pair", "en-de", "--json")
        told = json_of(said.out)
        assert said.code == 0 and told["lines"] == whole["lines"]
        assert told["words"] == len(typed.split()) and told["cpu_seconds_a_word"] > 0


@pytest.mark.parametrize(
    ("typed", "more"),
    [
        (b"a dog\n", ()),  # of which direction?
        (b"a dog\n", ("--pair", "en-de", "--pair", "de-en")),
        (b"a dog\n", ("--pair", "en-de", "--data", "x.tsv")),
        (b"dog\na \x00 dog\n", ("--pair", "en-de")),
        (b"dog\na \xff\xfe dog\n", ("--pair", "en-de")),
        (b"a dog\n", ("--pair", "en-de", "--out", "run")),
        (b"a dog\n", ("--pair", "en-de", "--frontier", "-1")),
        (b"a dog\n", ("--pair", "en-de", "--agreement", "1")),
    ],
)
def test_what_cannot_be_translated_is_told_in_one_line(
    loaded: None, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch,
    typed: bytes, more: tuple[str, ...],
) -> None:  # fmt: skip
    said = streamed(command, monkeypatch, typed, *more)
    assert said.code == 2 and len(said.err.splitlines()) == 1
    assert ("UTF-8" in said.err) == (b"\xff" in typed)
    assert ("stdin, line 2" in said.err) == typed.startswith(b"dog\n")
    assert ("character 3" in said.err) == (b"\x00" in typed)
    # What came before it is written.
    assert bool(said.out) == any(sign in typed for sign in (b"\x00", b"\xff"))


def test_python_is_told_where_text_as_it_comes_goes(loaded: None) -> None:
    import headscope.use

    with pytest.raises(InputError, match="interpret"):
        headscope.use.simultaneous("pocket", heads="3.1", pair="en-de", stream=True)


# ---- in the explorer ---------------------------------------------------------------------------
def arrived(explorer: Explorer, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the explorer tells after each word of the source, and in the end."""
    events: list[dict[str, Any]] = []
    explorer.compute("interpret", body, events.append, lambda: False)
    source, *steps, made, done = events
    assert [each["event"] for each in (source, made, done)] == ["source", "interpreted", "done"]
    spans = [source["text"][start:end] for start, end in source["words"]]
    assert spans == [word.text for word in running_words(body["input"]["sentence"])]
    return steps, made


@pytest.mark.parametrize("pair", ["en-de", "de-ru", "ru-es"])
def test_the_explorer_writes_what_interpret_writes(pocket: LanguageModel, pair: str) -> None:
    """Token by token, each at the same word; and shows why the next one waits."""
    pairs, explorer = sample_pairs(pair, "test", 1, 0), explorer_of(Explore(), pocket)
    rules = (("alignatt", 0), ("alignatt", 1), ("alignatt", 2), ("alignatt", 9_999), ("wait-k", 2))
    for source in (pairs.pairs[0].source, " Ein Kind  <b>schläft</b>. "):
        drafts = Drafts(pocket, pairs, [heads_of(pocket)])
        beginnings = beginnings_of(source.rstrip())
        for policy, number in rules:
            rule = {"alignatt": align_att, "wait-k": wait_k}[policy](number)
            tokens, reads = zip(*written(drafts, beginnings, rule), strict=True)
            ids = drafts.made(tokens).output_ids
            question = {"input": {"sentence": source, "pair": pair}, "heads": ",".join(HEADS)}
            steps, made = arrived(explorer, **question, policy=policy, number=number)
            shown = [
                (text, read)
                for read, each in enumerate(steps, 1)
                for text in each["tokens"][: each["written"]]
            ]
            assert shown == list(zip(pieces(pocket, ids, True), reads, strict=False))
            assert (made["text"], made["delays"]) == interpreted(drafts, source.rstrip(), rule)
            assert "".join(text for text, _ in shown) == made["text"]
            if (policy, number) == ("alignatt", 1):
                streamed = interpret(pocket, pairs, heads_of(pocket), [source], number)
                assert "".join(streamed) == made["text"] + "\n"
            before = 0
            for read, each in enumerate(steps, 1):
                count, looks = each["written"], each["looks"]
                every = drafts.after(beginnings[read - 1], ids[:before])
                draft = [drafted for drafted in every if not drafted.ends]
                assert looks == [drafted.focus[0] for drafted in draft][: len(each["tokens"])]
                before += count
                if policy == "alignatt" and read < len(steps):
                    # What is written looks back, the next one does not; else the draft ends there.
                    assert all(look < read - number for look in looks[:count])
                    assert all(look >= read - number for look in looks[count : count + 1])
                    assert count < len(looks) or len(draft) == count


def test_the_explorer_writes_what_the_command_streams(
    loaded: None, command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch,
    pocket: LanguageModel,
) -> None:  # fmt: skip
    source = sentences().pairs[1].source
    said = streamed(command, monkeypatch, source.encode(), "--pair", "en-de")
    question = {"input": {"sentence": source, "pair": "en-de"}, "heads": ",".join(HEADS)}
    _, made = arrived(explorer_of(Explore(), pocket), **question, number=1)
    assert said.out == made["text"] + "\n"


def test_an_answer_that_was_ended_changes_none_that_follows(pocket: LanguageModel) -> None:
    """The keys and values of a pass that did not come to its end are not used."""
    source = sentences().pairs[1].source
    question = {"input": {"sentence": source, "pair": "en-de"}, "heads": ",".join(HEADS)}
    wanted = arrived(explorer_of(Explore(), pocket), **question)
    explorer = explorer_of(Explore(), pocket)
    for most in (2, 9, 50, 300):
        stop = partial(next, iter([False] * most), True)
        with pytest.raises(Stopped):
            explorer.compute("interpret", question, lambda _: None, stop)
    assert arrived(explorer, **question) == wanted
    for number in range(2 * KEPT_READINGS):  # of few sentences what is drafted is kept
        arrived(explorer, **{**question, "input": {"sentence": f"A {number}", "pair": "en-de"}})
    assert len(explorer._drafts) == KEPT_READINGS


# ---- runs --------------------------------------------------------------------------------------
def test_a_run_says_what_its_outputs_say(
    loaded: None, command: Callable[..., Said], tmp_path: Path
) -> None:
    words = (
        *("use", "simultaneous", "--heads", ",".join(HEADS), "--pair", "en-de", "--limit", 4),
        *("--draws", 2, "--frontier", 1, "--frontier", 3, "--wait", 2, "--agreement", 2),
        *("--baseline-examples", 2, "--out", tmp_path / "run", "--json"),
    )
    first = json_of(command(*words).out)
    rows = [json.loads(line) for line in (tmp_path / "run" / "outputs.jsonl").open()]
    levels = {(row["condition"], row["statistic"]): row["value"] for row in first["levels"]}
    by_condition: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_condition.setdefault(row["condition"], []).append(row)
    points = {}
    for condition, own in by_condition.items():
        texts, references = ([row[name] for row in own] for name in ("output", "reference"))
        chrf = sacrebleu.corpus_chrf(texts, [references], word_order=2).score
        lags = [
            LATENCIES["laal"][1](
                row["delays"], len(row["source"].split()), len(row["reference"].split())
            )
            for row in own
        ]
        points[condition] = fmean(lags), chrf
        assert levels[condition, "chrf"] == pytest.approx(chrf)
        assert levels[condition, "laal"] == pytest.approx(fmean(lags))
    kinds = {row["id"]: row for row in first["conditions"]}
    low, high = first["details"]["latency"]["en-de"]
    frontiers = [points[name][0] for name in points if kinds[name]["kind"] == SELECTED]
    assert (low, high) == pytest.approx((min(frontiers), max(frontiers)))
    curves = [row for row in first["conditions"] if row["of"] == CURVE]
    assert len(curves) == 1 + 2 * 2 + 2
    for curve in curves:
        own_points = sorted(
            [points["original"]]
            + [
                points[name]
                for name, row in kinds.items()
                if name in points and (row["kind"], row["draw"]) == (curve["kind"], curve["draw"])
            ]
        )
        x, y = zip(*own_points, strict=True)
        wanted = np.interp(np.linspace(low, high, READ_AT), x, y).mean()
        assert levels[curve["id"], at_latency("chrf")] == pytest.approx(wanted)
    tested = {
        row["control"]: row for row in first["tests"] if row["statistic"] == at_latency("chrf")
    }
    assert tested.keys() == {"random", "same layers", "wait-k", "local agreement"}
    assert all(row["side"] == "higher" for row in tested.values())
    assert tested["random"]["least_p"] == pytest.approx(1 / 3)
    assert tested["wait-k"]["p_draws"] is None and tested["wait-k"]["p_examples"] is not None
    # A run that was killed in the middle goes on, and one whose sentences are there is only told.
    (tmp_path / "run" / "DONE.json").unlink()
    again = json_of(command(*words).out)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}


def test_a_killed_run_goes_on_with_the_sentence_that_was_left(
    loaded: None, command: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.use import simultaneous_translation as interpreting

    def words(name: str) -> tuple[object, ...]:
        return (
            *("use", "simultaneous", "--heads", "3.1", "--pair", "en-de", "--limit", 3),
            *("--draws", 1, "--frontier", 1, "--wait", 2, "--agreement", 2, "--step", 3),
            *("--baseline-examples", 2, "--out", tmp_path / name, "--json"),
        )

    whole = json_of(command(*words("whole")).out)
    began = list[str]()
    own = interpreting.interpreted

    def counted(drafts: Drafts, source: str, policy: Policy, step: int) -> Any:
        began.append(source)
        if len(set(began)) == 3:
            raise KeyboardInterrupt
        return own(drafts, source, policy, step)

    monkeypatch.setattr(interpreting, "interpreted", counted)
    assert command(*words("killed")).code == 130
    monkeypatch.setattr(interpreting, "interpreted", own)
    after = json_of(command(*words("killed")).out)
    for name in ("levels", "tests", "conditions", "verdict"):
        assert after[name] == whole[name]


def test_random_heads_are_drawn_once_for_all_frontiers() -> None:
    from headscope.heads import Geometry

    geometry = Geometry.uniform(4, 4)
    heads = HeadSet.of(geometry, ["1.1", "2.2"])
    config = UseSimultaneous(heads="1.1", draws=3, frontier=(1, 2), wait=(1,), agreement=(2,))
    conditions = plan([SelectedHeads(heads, gates=(1.0,))], config)
    assert len({each.id for each in conditions}) == len(conditions) == 1 + 2 * 7 + 2
    sets: dict[tuple[str, int | None], set[tuple[str, ...]]] = {}
    for each in conditions:
        sets.setdefault((each.kind, each.draw), set()).add(each.heads)
    assert all(len(own) == 1 for own in sets.values())
    assert len(sets_of(conditions)) == len({own for some in sets.values() for own in some} - {()})
