"""The Translation Score written down a second time, slowly, from its definition alone.

One sentence at a time, no batch, no padding, no cache, whole attention matrices from the eager
attention, plain loops. Nothing here comes from ``headscope.find``: the tests compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Links = frozenset[tuple[int, int]]
Span = tuple[int, int]
Words = Callable[[str], list[Span]]
Aligner = Callable[[Sequence[str], Sequence[str]], Links]

DEFAULT_TEMPLATE = (
    "Translate this sentence from {source_language} to {target_language}\n"
    "Sentence: {source}\n"
    "Answer:"
)


@dataclass
class Sentence:
    """What the definition asks of one sentence: its peaks and the words its tokens stand in."""

    peaks: dict[
        int, np.ndarray
    ]  # target token position -> (L, W) token index of the largest weight
    target_words_of: dict[int, set[int]]  # target token position -> target words it intersects
    source_tokens_of: dict[int, set[int]]  # source word -> token positions that intersect it
    source_words: list[str]
    target_words: list[str]
    links: Links
    output: str
    shape: tuple[int, int]  # layers, heads
    ids: list[int] = field(default_factory=list)  # the target token ids (greedy: generated ones)


@dataclass
class Naive:
    score: np.ndarray
    identical: np.ndarray
    different: np.ndarray
    chance: np.ndarray | None
    hits: np.ndarray  # (sentences, L, W), identical ones included unless skipped
    totals: np.ndarray  # (sentences,)
    identical_hits: np.ndarray
    identical_totals: np.ndarray
    left_out: int
    sentences: list[Sentence]


def naive_translation_score(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[Any],
    source_language: str,
    target_language: str,
    *,
    template: str = DEFAULT_TEMPLATE,
    decode: str = "reference",
    scope: str = "all",
    query: str = "predict",
    average: str = "macro",
    skip_identical: bool = False,
    aligner: Aligner | None = None,
    others: Sequence[Sequence[Links]] | None = None,
    words: Words | None = None,
) -> Naive:
    """``model`` must attend eagerly; sentence s borrows the links ``others[s]`` for its chance."""
    words = words or (pieces if decode == "reference" else rule_words)
    sentences = []
    for pair in pairs:
        prompt = template.replace("{source_language}", source_language)
        prompt = prompt.replace("{target_language}", target_language)
        start = prompt.index("{source}")
        prompt = prompt.replace("{source}", pair.source)
        span = (start, start + len(pair.source))
        if decode == "reference":
            sentence = _reference(model, tokenizer, pair, prompt, span, scope, query, words)
        else:
            sentence = _greedy(model, tokenizer, pair, prompt, span, scope, query, words, aligner)
        sentences.append(sentence)

    counts = [count(sentence, sentence.links) for sentence in sentences]
    same = [count(sentence, sentence.links, only="identical") for sentence in sentences]
    rest = [count(sentence, sentence.links, only="different") for sentence in sentences]
    if skip_identical:
        counts, same = rest, [(np.zeros_like(hits), 0) for hits, _ in same]

    chance = None
    if others is not None:
        only = "different" if skip_identical else "all"
        shares = []
        for sentence, borrowed, (_, own_total) in zip(sentences, others, counts, strict=True):
            draws = [count(sentence, _inside(sentence, links), only=only) for links in borrowed]
            draws = [(hits, total) for hits, total in draws if total > 0]
            if draws and own_total > 0:
                shares.append(draws)
        if average == "macro":
            chance = mean([mean(draws, "macro") for draws in shares])
        else:
            chance = mean([draw for draws in shares for draw in draws], "micro")

    return Naive(
        score=mean(counts, average),
        identical=mean(same, average),
        different=mean(rest, average),
        chance=chance,
        hits=np.array([hits for hits, _ in counts]),
        totals=np.array([total for _, total in counts]),
        identical_hits=np.array([hits for hits, _ in same]),
        identical_totals=np.array([total for _, total in same]),
        left_out=sum(total == 0 for _, total in counts),
        sentences=sentences,
    )


def _inside(sentence: Sentence, links: Links) -> Links:
    sources, targets = len(sentence.source_words), len(sentence.target_words)
    return frozenset((i, j) for i, j in links if i < sources and j < targets)


def pieces(text: str) -> list[tuple[int, int]]:
    """White-space pieces."""
    return [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]


def rule_words(text: str) -> list[tuple[int, int]]:
    """Words by rule, for texts without combining marks."""
    spans = []
    for match in re.finditer(r"\w+|[^\w\s]", text):
        start = match.start()
        for at in range(match.start(), match.end()):
            if _alone(text[at]):
                spans += [(start, at)] if at > start else []
                spans.append((at, at + 1))
                start = at + 1
        spans += [(start, match.end())] if start < match.end() else []
    return spans


def _alone(char: str) -> bool:
    return "\u4e00" <= char <= "\u9fff" or "\u3041" <= char <= "\u30ff"


def mean(counts: Sequence[Any], average: str = "plain") -> np.ndarray:
    """Mean of sentence scores (macro), of target tokens (micro), or of given arrays."""
    if average == "plain":
        return sum(counts) / len(counts)
    kept = [(hits, total) for hits, total in counts if total > 0]
    if not kept:
        return np.full(counts[0][0].shape, np.nan)
    if average == "macro":
        return sum(hits / total for hits, total in kept) / len(kept)
    return sum(hits for hits, _ in kept) / sum(total for _, total in kept)


def count(sentence: Sentence, links: Links, only: str = "all") -> tuple[np.ndarray, int]:
    """Hits (L, W), and target tokens with an aligned source token.

    `only`: those whose own link joins two words of the same surface form, or all but those.
    """
    hits, total = np.zeros(sentence.shape), 0
    for token, peaks in sentence.peaks.items():
        if only != "all" and _copied(sentence, token) != (only == "identical"):
            continue
        aligned: set[int] = set()
        for i, j in links:
            if j in sentence.target_words_of[token]:
                aligned |= sentence.source_tokens_of[i]
        if aligned:
            hits = hits + np.isin(peaks, sorted(aligned))
            total += 1
    return hits, total


def _copied(sentence: Sentence, token: int) -> bool:
    return any(
        sentence.source_words[i] == sentence.target_words[j]
        and j in sentence.target_words_of[token]
        and sentence.source_tokens_of[i]
        for i, j in sentence.links
    )


def _reference(
    model: Any,
    tokenizer: Any,
    pair: Any,
    prompt: str,
    span: Span,
    scope: str,
    query: str,
    words: Words,
) -> Sentence:
    text = prompt + " " + pair.target
    encoded = tokenizer(text, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    spans = [stripped(text, *offsets) for offsets in encoded["offset_mapping"]]
    target_start = len(prompt) + 1
    source_words = [(a + span[0], b + span[0]) for a, b in words(pair.source)]
    target_words = [(a + target_start, b + target_start) for a, b in words(pair.target)]
    rows, _ = _attend(model, ids)
    source = [k for k, s in enumerate(spans) if intersects(s, span)]
    target = [k for k, s in enumerate(spans) if intersects(s, (target_start, len(text)))]
    return Sentence(
        peaks={k: _peak(rows, k - (query == "predict"), scope, source) for k in target},
        target_words_of={k: _words_at(spans[k], target_words) for k in target},
        source_tokens_of=_tokens_at(spans, source, source_words),
        source_words=[text[a:b] for a, b in source_words],
        target_words=[text[a:b] for a, b in target_words],
        links=pair.links or frozenset(),
        output=pair.target,
        shape=(len(rows), len(rows[0])),
        ids=[ids[k] for k in target],
    )


def _greedy(
    model: Any,
    tokenizer: Any,
    pair: Any,
    prompt: str,
    span: Span,
    scope: str,
    query: str,
    words: Words,
    aligner: Aligner,
) -> Sentence:
    encoded = tokenizer(prompt, return_offsets_mapping=True)
    ids = list(encoded["input_ids"])
    spans = [stripped(prompt, *offsets) for offsets in encoded["offset_mapping"]]
    source = [k for k, s in enumerate(spans) if intersects(s, span)]
    first = len(ids)
    ids, ended = write(model, tokenizer, ids, 2 * len(source) + 32)
    output = _text(tokenizer, ids[first:])
    lead = len(output) - len(output.lstrip())
    end = output.find("\n", lead)
    output = output if end < 0 else output[:end]

    generated = {}  # token position -> its characters in the output
    for k in range(first, len(ids)):
        before = _whole(_text(tokenizer, ids[first:k]))
        now = _text(tokenizer, ids[first : k + 1])
        after = _whole(now) + (1 if now.endswith("�") else 0)
        generated[k] = stripped(output, min(before, len(output)), min(after, len(output)))
    generated = {k: s for k, s in generated.items() if s[1] > s[0]}
    if query == "read" and not ended:
        # Nothing came after the last token, so generation never read it.
        generated.pop(len(ids) - 1, None)
    source_words = [(a + span[0], b + span[0]) for a, b in words(pair.source)]
    target_words = words(output)
    rows, _ = _attend(model, ids)
    return Sentence(
        peaks={k: _peak(rows, k - (query == "predict"), scope, source) for k in generated},
        target_words_of={k: _words_at(s, target_words) for k, s in generated.items()},
        source_tokens_of=_tokens_at(spans, source, source_words),
        source_words=[prompt[a:b] for a, b in source_words],
        target_words=[output[a:b] for a, b in target_words],
        links=aligner(
            [prompt[a:b] for a, b in source_words], [output[a:b] for a, b in target_words]
        ),
        output=output,
        shape=(len(rows), len(rows[0])),
        ids=ids[first:],
    )


def write(model: Any, tokenizer: Any, ids: list[int], limit: int) -> tuple[list[int], bool]:
    """The prompt's tokens with the greedy output behind them, and whether an end mark came next."""
    ids, first, ends = list(ids), len(ids), _ends(model, tokenizer)
    while len(ids) - first < limit:
        token = int(_attend(model, ids)[1][-1].argmax())
        if token in ends:
            return ids, True
        ids.append(token)
        if "\n" in _text(tokenizer, ids[first:]).lstrip():
            break
    return ids, False


def _attend(model, ids) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Per layer the attention (H, T, T), and the logits (T, V)."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    return [layer[0] for layer in out.attentions], out.logits[0]


def _peak(rows, query, scope, source) -> np.ndarray:
    """(L, H) token index of the largest weight of one query; -1 where it sees none in scope."""
    keys = source if scope == "source" else range(query + 1)
    peaks = []
    for layer in rows:
        line = []
        for weights in layer[:, query].tolist():
            best, largest = -1, 0.0
            for key in keys:
                if key <= query and weights[key] > largest:
                    best, largest = key, weights[key]
            line.append(best)
        peaks.append(line)
    return np.array(peaks)


def _ends(model, tokenizer) -> set[int]:
    ends = {tokenizer.eos_token_id}
    for config in (model.config, model.generation_config):
        value = getattr(config, "eos_token_id", None)
        ends |= set(value) if isinstance(value, list) else {value}
    return {end for end in ends if end is not None}


def _text(tokenizer, ids) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _whole(text: str) -> int:
    return len(text.rstrip("�"))


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without its leading white space."""
    while start < end and text[start].isspace():
        start += 1
    return start, end


def intersects(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return max(a[0], b[0]) < min(a[1], b[1])


def _words_at(span, words) -> set[int]:
    return {index for index, word in enumerate(words) if intersects(span, word)}


def _tokens_at(spans, source, words) -> dict[int, set[int]]:
    return {
        index: {k for k in source if intersects(spans[k], word)} for index, word in enumerate(words)
    }
