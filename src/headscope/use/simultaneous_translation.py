"""Simultaneous translation: the source arrives word by word, and what is written stays.

A policy decides after every step how much of what the model drafts is written. AlignAtt (Papi et
al. 2023, arXiv 2305.11408, here of text by chosen heads): a token is written while the arg max over
source words of the heads' mean attention is none of the last words read. When all is read the
draft is written to its end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import DEFAULT_TEMPLATE, Template, translation_prompts
from headscope.data.words import begins_word, is_unspaced, membership, running_words, within
from headscope.errors import caution
from headscope.evidence.runner import room_for
from headscope.heads import HeadSet
from headscope.lm.attention.maps import attention_to_words
from headscope.lm.attention.weights import WeightRequest
from headscope.lm.batching import Batch
from headscope.lm.generation import Generation, newline_stop
from headscope.lm.generation.pool import can_pool
from headscope.lm.generation.settings import refuse_followed
from headscope.lm.generation.texts import generation_of
from headscope.lm.inputs import evaluating
from headscope.lm.prompting import chat_writer
from headscope.lm.tokens import Encoded, encode_output

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Tokens of a line that arrives, with its prompt and its translation, in a longer context: much of
#: them is read again with each word.
LONGEST_LINE = 8192
#: After how many characters without a further word a line is asked whether it still fits, and how
#: many of white space before its first word are kept.
_LOOKED_AT, _BEFORE_WORDS = 1024, 64


class Drafted(NamedTuple):
    """A token that the model would write next.

    `focus`: of each set of heads the word of the source (from 0) with most of their mean attention
    at the position that predicts the token; `words`: of the text with the token; `ends`: whether
    the text ends with it.
    """

    token: int
    focus: tuple[int, ...]
    words: int
    ends: bool


#: From how many words are read, the tokens that are written, and those that the model drafts behind
#: them up to the end of the text, to those of the draft that are written now.
Policy = Callable[[int, Sequence[int], Iterator[Drafted]], list[int]]


def align_att(frontier: int, heads: int = 0) -> Policy:
    """Write while the attention of a set of heads, by its place, is not on the last words."""

    return _while(lambda read, proposal: proposal.focus[heads] < read - frontier)


def wait_k(k: int) -> Policy:
    """Write the first word when k words are read, and a further one for each word read then (Ma et
    al. 2019)."""
    return _while(lambda read, proposal: read >= k and proposal.words <= read - k + 1)


def _while(may: Callable[[int, Drafted], bool]) -> Policy:
    return lambda read, _, draft: [
        d.token for d in takewhile(lambda proposal: may(read, proposal), draft)
    ]


def local_agreement(drafts: int) -> Policy:
    """Write what so many drafts in a row have in common (Liu et al. 2020); for one text alone."""
    earlier: deque[tuple[int, ...]] = deque(maxlen=drafts - 1)

    def written(read: int, before: Sequence[int], draft: Iterator[Drafted]) -> list[int]:
        whole = (*before, *(proposal.token for proposal in draft))
        agreed = len(whole) if len(earlier) == drafts - 1 else len(before)
        for draft_before in earlier:
            agreed = min(agreed, _alike(whole, draft_before))
        earlier.append(whole)
        return list(whole[len(before) : agreed])

    return written


class _Source(NamedTuple):
    """A part of a source: the tokens of its prompt, which of them are of the source, the words of
    each of these, and the most tokens of a translation."""

    ids: tuple[int, ...]
    places: NDArray[np.intp]
    member: NDArray[np.bool_]
    limit: int


class _Prompted(NamedTuple):
    """A part of a source in its prompt: by itself, as tokens with their characters, which of these
    are of the source, and its first character there."""

    alone: PairFile
    encoded: Encoded
    places: NDArray[np.intp]
    start: int


class Drafts:
    """What a model drafts behind parts of a source and of its translation; nothing is read twice.

    Tokens that a pass shares with the one before keep their keys and values: those before the last
    words of the source, in the middle of the prompt, and all of them where only a token was added.

    Args:
        pairs: the languages, and the examples before the source.
        sets: sets of heads whose attention is looked at.
        most: new tokens of a translation; None: twice the tokens of its source and 32.
        cached: False reads every text from its beginning.
        line: where the source stands, for errors.
        forget: keep nothing of a part of the source when another is asked about, as where it only
            grows.
    """

    def __init__(
        self,
        lm: LanguageModel,
        pairs: PairFile,
        sets: Sequence[HeadSet],
        template: Template = DEFAULT_TEMPLATE,
        chat: bool | None = None,
        most: int | None = None,
        cached: bool = True,
        line: int | None = None,
        forget: bool = False,
    ) -> None:
        refuse_followed(lm, "simultaneous translation")
        self.lm, self._pairs, self._template, self._most = lm, pairs, template, most
        self._line, self._forget = line, forget
        self._writer = chat_writer(lm, chat, template.text)
        self._newline = newline_stop(self._writer is None, False)
        self._heads = tuple(dict.fromkeys(head for heads in sets for head in heads))
        self._sets = [[self._heads.index(head) for head in heads] for heads in sets]
        self._cache: Any = DynamicCache() if cached and can_pool(lm) else None
        #: The tokens whose keys and values the cache holds.
        self._read: tuple[int, ...] = ()
        self._sources: dict[str, _Source] = {}
        self._known: dict[tuple[str, tuple[int, ...]], Drafted] = {}
        #: What `_prompted` gave last.
        self._prompt: _Prompted | None = None

    @property
    def longest(self) -> int:
        """Tokens of a source that arrives, with its prompt and its translation."""
        return min(self.lm.context_length, LONGEST_LINE)

    def fits(self, text: str) -> bool:
        """Whether a source that arrives leaves room for its translation: half of what the prompt
        leaves beside it, if its longest translation does not need less."""
        _, encoded, places, _ = self._prompted(text)
        tokens, most = len(places), self.longest
        room = (most - len(encoded.ids) + tokens) // 2
        return len(encoded.ids) + min(room, 2 * tokens + 32, self._most or room) <= most

    def after(self, text: str, before: Sequence[int]) -> Iterator[Drafted]:
        """The tokens that follow `before` in the translation of a source, one after the other, the
        one that ends it among them."""
        written, ends = tuple(before), False
        while not ends and len(written) < self._source(text).limit:
            key = text, written
            if key not in self._known:
                self._known[key] = self._next(*key)
            drafted = self._known[key]
            written, ends = (*written, drafted.token), drafted.ends
            yield drafted

    def made(self, written: Sequence[int]) -> Generation:
        """The translation of these tokens, as `lm.generate` gives it but for the prompt."""
        return generation_of(self.lm, (), written, self._newline)

    def _source(self, text: str) -> _Source:
        if text not in self._sources:
            lm = self.lm
            if self._forget:
                self._sources.clear()
                self._known.clear()
            alone, encoded, places, start = self._prompted(text)
            room = lm.context_length - len(encoded.ids)
            if room < 1:
                raise alone.too_long(0, len(encoded.ids), lm.context_length)
            words = running_words(text)
            member = membership(encoded.spans[places], words, start)
            most = self._most or room_for(lm, text)
            self._sources[text] = _Source(encoded.ids, places, member, min(most, room))
        return self._sources[text]

    def _prompted(self, text: str) -> _Prompted:
        if self._prompt is None or self._prompt.alone.pairs[0].source != text:
            alone = replace(self._pairs, pairs=(SentencePair("", text, "", line=self._line),))
            bos = self.lm.tokenizer.bos_token or ""
            (prompt,) = translation_prompts(alone, self._template, self._writer, bos)
            encoded = self.lm.encoded(prompt.text, prompt.special)
            places = np.flatnonzero(within(encoded.spans, *prompt.source_span))
            self._prompt = _Prompted(alone, encoded, places, prompt.source_start)
        return self._prompt

    def _next(self, text: str, written: tuple[int, ...]) -> Drafted:
        source = self._source(text)
        logits, weights = self._pass((*source.ids, *written), source.places)
        token = int(logits.argmax())
        focus = (attention_to_words(weights, source.member, heads) for heads in self._sets)
        ends = self.lm.stop_table.cut([*written, token], self._newline)[1] != "length"
        words = len(running_words(self.lm.decode([*written, token])))
        return Drafted(token, tuple(int(shares.argmax()) for shares in focus), words, ends)

    def _pass(
        self, ids: tuple[int, ...], places: NDArray[np.intp]
    ) -> tuple[torch.Tensor, NDArray[np.float32]]:
        """Logits (V,) behind these tokens, and the weights (1, N, K) of the last on K places."""
        lm, common = self.lm, 0
        # Longer texts compute otherwise what they begin with.
        cache = self._cache if len(ids) <= lm.longest_shared else None
        if cache is not None:
            common = min(_alike(ids, self._read), len(ids) - 1)
            self._read = ids[:common]
            for layer in cache.layers:
                if layer.keys is not None:  # else it reads those of another
                    layer.keys = layer.keys[:, :, :common]
                    layer.values = layer.values[:, :, :common]
        batch = Batch(
            torch.tensor([ids[common:]]),
            torch.ones((1, len(ids)), dtype=torch.long),
            torch.arange(common, len(ids))[None],
            cache,
        )
        request = WeightRequest(torch.from_numpy(places)[None], self._heads, "last")
        with evaluating(lm.model), torch.no_grad(), lm.attention_weights(request) as seen:
            logits = lm.forward(batch, logits=False).logits[0, -1].float()
        self._read = ids if cache is not None else self._read
        return logits, seen.weights.cpu().numpy()


def written(
    drafts: Drafts, beginnings: Iterable[str], policy: Policy, step: int = 1
) -> Iterator[tuple[int, int]]:
    """The tokens of a translation as they are written, and how many words were read by then.

    `beginnings` are the source as far as it is read, after each word, the whole of it at last;
    after every `step` of them, and when there are no more, something may be written.
    """
    tokens: list[int] = []
    read, text = 0, ""
    for read, text in enumerate(beginnings, 1):
        if read % step == 0:
            draft = takewhile(lambda proposal: not proposal.ends, drafts.after(text, tokens))
            for token in policy(read, tokens, draft):
                tokens.append(token)
                yield token, read
    for proposal in drafts.after(text, tokens) if read else ():
        yield proposal.token, read


def beginnings_of(source: str) -> list[str]:
    """A source as far as it is read, after each of its words."""
    return [*(source[: word.end] for word in running_words(source)[:-1]), source]


class Interpreted(NamedTuple):
    """A translation, and of each of its words how many of the source had been read."""

    text: str
    delays: tuple[int, ...]


def interpreted(drafts: Drafts, source: str, policy: Policy, step: int = 1) -> Interpreted:
    """What a policy makes of a source; a word is complete with its last token."""
    tokens, reads = zip(*written(drafts, beginnings_of(source), policy, step), strict=True)
    made = drafts.made(tokens)
    text, spans = encode_output(drafts.lm.tokenizer, made.output_ids)
    member = membership(spans, running_words(made.text), len(text) - len(text.lstrip()))
    known = np.array(reads[: len(made.output_ids)], dtype=np.int64)[:, None]
    delays = np.maximum.accumulate((member * known).max(axis=0, initial=0))
    return Interpreted(made.text, tuple(delays.tolist()))


def interpret(
    lm: LanguageModel,
    pairs: PairFile,
    heads: HeadSet,
    chunks: Iterable[str],
    frontier: int = 2,
    step: int = 1,
    **options: Any,
) -> Iterator[str]:
    """Translate text as it comes, in chunks of any size, a sentence a line, by AlignAtt.

    A line that does not fit into the context, or `LONGEST_LINE`, is cut behind a word, with a
    `Caution`, and what follows is translated as a sentence of its own in the same line.

    Yields what is added to the translation, as soon as it is written, and the end of each line.
    `options` are those of `Drafts`.
    """
    characters = chain.from_iterable(chunks)
    for line, first in enumerate(characters, 1):
        arriving = _Line(takewhile(lambda char: char != "\n", chain(first, characters)))
        rest, cut = "", False
        while arriving.goes_on():
            drafts = Drafts(lm, pairs, [heads], line=line, forget=True, **options)
            said, tokens = "", list[int]()
            part = arriving.part(drafts.fits)
            for token, _ in written(drafts, part, align_att(frontier), step):
                tokens.append(token)
                text = drafts.made(tokens).text
                if not text.endswith("\ufffd"):  # a character that lacks a byte
                    yield text[len(said) :]
                    said = text
            text = drafts.made(tokens).text
            rest = text[len(said) :]
            if arriving.goes_on():
                if not cut:
                    caution(
                        f"{pairs.path}, line {line}: does not fit into {drafts.longest:,} "
                        "tokens with its prompt and translation, so it is cut, and what "
                        "follows is translated by itself; end each sentence with a line end"
                    )
                cut = True
                yield rest if is_unspaced(text[-1:]) else f"{rest} "
        yield f"{rest}\n"


class _Line(Iterator[str]):
    """The characters of a line as they arrive, and its parts that fit."""

    def __init__(self, characters: Iterator[str]) -> None:
        self._characters = characters
        #: Those that were read and are of the next part.
        self._ahead = deque[str]()

    def __next__(self) -> str:
        return self._ahead.popleft() if self._ahead else next(self._characters)

    def goes_on(self) -> bool:
        """Whether something other than white space is left; reads on to it."""
        ahead = deque[str](maxlen=_BEFORE_WORDS)
        for char in self:
            ahead.append(char)
            if not char.isspace():
                self._ahead.extendleft(reversed(ahead))
                return True
        return False

    def part(self, fits: Callable[[str], bool]) -> Iterator[str]:
        """The next part as far as its words are complete, after each of them, up to its end."""
        text, end, looked_at = "", 0, _LOOKED_AT
        for char in chain(self, "\n"):
            text += char
            before = text[-2:-1]
            complete = bool(before.strip()) and (char.isspace() or begins_word(before, char))
            if not complete and len(text) - end < looked_at:
                continue
            whole = text[:-1] if complete else text
            if fits(whole):
                if complete:
                    end, looked_at = len(whole), _LOOKED_AT
                    yield whole
                else:
                    looked_at *= 2
            elif text[end:].isspace():
                text = f"{text[:end]} "
            else:
                if not end:  # a word that is too long by itself
                    text = text.lstrip()
                    every = range(1, len(text))
                    end = 1 + bisect_left(every, True, key=lambda at: not fits(text[: at + 1]))
                    yield text[:end].rstrip()
                self._ahead.extendleft(reversed(text[end:].lstrip().rstrip("\n")))
                return


def _alike(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    return sum(takewhile(bool, map(eq, first, second)))
