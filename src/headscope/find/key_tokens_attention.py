"""Key-token attention: how much of their attention chosen heads pay to key words of a prompt.

After the case studies of Token Alignment Heads, appendix A.7: whether heads look at the words on
which a task turns, while the model writes its answer. For every step that predicts a token of the
answer, the softmax weights on the tokens of each key word are summed; beside them stands what
attention spread evenly over all visible keys would give, and what random other heads give.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.prompts import Prompt
from headscope.data.words import Word, membership, split_words
from headscope.errors import InputError
from headscope.evidence.controls import DEFAULT, Controlled, Drawing, Draws, SelectedHeads, planned
from headscope.evidence.rows import SHARE, Basis, Condition, Evidence, Statistic
from headscope.evidence.table import evidence
from headscope.heads import Head, HeadSet, check_geometry
from headscope.heads.geometry import keys_of
from headscope.settings import Option

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.tokens import Spans

_NUMBERED = re.compile(r"(.+)#([0-9]+)", re.DOTALL)


@dataclass(frozen=True)
class KeyWord:
    """A key word: `name` as it was asked for, and its half-open character spans in the prompt."""

    name: str
    spans: tuple[tuple[int, int], ...]

    def moved(self, by: int) -> KeyWord:
        """The same word in a text that has so many characters before the prompt."""
        return KeyWord(self.name, tuple((start + by, end + by) for start, end in self.spans))


def locate_words(prompt: str, names: Sequence[str]) -> list[KeyWord]:
    """Find each key word in a prompt.

    A name is a word or several (`feu de camp`), with the prompt's upper and lower case; it stands
    for all its occurrences, `word#2` for the second alone (unless `word#2` itself is in the
    prompt). Only whole words count, so `fire` is not found in `campfire`; characters of scripts
    written without spaces are words of their own.

    Raises `InputError` for no names, an empty one, one given twice, or one that is not there.
    """
    if not names:
        raise InputError("no key words were given; name words of the prompt with --word")
    edges = _edges(prompt)
    words = []
    for name in dict.fromkeys(names):
        text = name.strip()
        spans = _occurrences(prompt, text, edges)
        numbered = _NUMBERED.fullmatch(text)
        if not spans and numbered is not None:
            text, number = numbered[1], int(numbered[2])
            every = _occurrences(prompt, text, edges)
            if every and not 1 <= number <= len(every):
                times = "once" if len(every) == 1 else f"{len(every)} times"
                raise InputError(
                    f"the key word {name!r} asks for number {number} of {text!r}, which the "
                    f"prompt holds {times}; use {text}#1 to {text}#{len(every)}, or {text} for all"
                )
            spans = every[number - 1 : number]
        if not spans:
            raise InputError(_missing(prompt, name, text))
        words.append(KeyWord(name, tuple(spans)))
    return words


def _edges(prompt: str) -> list[bool]:
    """For each place between two characters, whether no word of the prompt runs across it."""
    edges = [True] * (len(prompt) + 1)
    for word in split_words(prompt, links_given=False):
        for place in range(word.start + 1, word.end):
            edges[place] = False
    return edges


def _occurrences(prompt: str, text: str, edges: list[bool]) -> list[tuple[int, int]]:
    """Where `text` stands in the prompt as whole words, without overlaps, in order."""
    spans: list[tuple[int, int]] = []
    start = prompt.find(text) if text else -1
    while start >= 0:
        end = start + len(text)
        whole = edges[start] and edges[end]
        if whole:
            spans.append((start, end))
        start = prompt.find(text, end if whole else start + 1)
    return spans


def _missing(prompt: str, name: str, text: str) -> str:
    """The message for a key word that is not in the prompt, with those that are most like it."""
    if not text:
        return "a key word is empty; name a word of the prompt"
    words = list(dict.fromkeys(word.text for word in split_words(prompt, links_given=False)))
    if not words:
        return f"the prompt holds no words, so {name!r} is not among them; give one that has it"
    by_fold = {word.casefold(): word for word in reversed(words)}
    near = difflib.get_close_matches(text.casefold(), by_fold, n=3, cutoff=0.5)
    near += [fold for fold in by_fold if text.casefold() in fold and fold not in near][:3]
    if near:
        listed = ", ".join(by_fold[fold] for fold in near)
        return (
            f"the key word {name!r} is not in the prompt as a whole word with these capitals; the "
            f"nearest there: {listed}"
        )
    shown = " ".join(words[:8]) + (" …" if len(words) > 8 else "")
    return (
        f"the key word {name!r} is not in the prompt as a whole word; name one that is, such as "
        f"those of its beginning: {shown}"
    )


PART, ATTENTION = "prompt", "attention"
DrawsOrNone = Annotated[int, Option("Draws of random heads.", min=0)]
MEASURES = {ATTENTION: Statistic("attention to the key words", unit=SHARE, digits=1)}


@dataclass(frozen=True)
class KeyTokens(Controlled):
    """What is measured.

    Attributes:
        words: key words of the prompt, see `locate_words`.
        answer: the answer whose tokens are predicted, joined to the prompt by one space where
            neither has white space there; `None`: the model's own greedy continuation.
        steps: `answer`: every step that predicts a token of the answer; `last`: the last token of
            the prompt alone, which predicts the first token of any answer.
        max_new_tokens: longest greedy continuation; `None`: twice the prompt and 32.
        stop_at_newline: whether the continuation ends at the first newline that follows text.
        chat: whether the prompt goes through the chat template; `None`: where the tokenizer has one
            and the prompt holds no special token of its own.
        draws: how many different sets of as many random heads are measured beside, or all there
            are if those are fewer; none where all heads are chosen.
        controls: how they are drawn (see `headscope.evidence.controls`).
    """

    words: Annotated[
        tuple[str, ...],
        Option(
            "A key word of the prompt, with its capitals: all its occurrences, or WORD#2 for the "
            "second; repeatable.",
            flag="--word",
            metavar="WORD",
            panel="Data",
        ),
    ]
    answer: Annotated[
        str | None, Option("An answer; without it the model's own, greedily.", metavar="TEXT")
    ] = None
    steps: Annotated[
        Literal["answer", "last"],
        Option(
            "Look from every step that predicts a token of the answer, or from the last token of "
            "the prompt alone."
        ),
    ] = "answer"
    max_new_tokens: options.MaxNewTokens = None
    stop_at_newline: bool = True
    chat: options.Chat = None
    draws: DrawsOrNone = 10
    controls: options.Controls = DEFAULT
    seed: options.Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer is not None and not self.answer.strip():
            raise InputError("the answer is empty; give its text, or none for the model's own")
        if self.answer is not None and self.steps == "last":
            raise InputError(
                'an answer was given, but steps="last" looks at the prompt alone; leave one out'
            )


@dataclass(frozen=True, eq=False)
class KeyTokenAttention:
    """Attention on key words, for T steps, N heads and W words; arrays are float32.

    Attributes:
        word_tokens: for each word the places of its tokens.
        prompt, prompt_spans: the prompt as the model reads it, and the characters of its tokens,
            (P, 2).
        answer, answer_spans: likewise of the answer, whose spans count from its own beginning; it
            has one token a step, or none where the last token of the prompt was looked at.
        attention, even: (T, N, W), summed over the tokens of each word, and the same for attention
            spread evenly over all the keys a step sees.
        mass, even_mass: (T, N), summed over the tokens of all words, each token once.
        evidence: the mean share of attention, of these heads and of as many random ones. Of one
            prompt there is no interval.
        generated: whether the answer is the model's own.
    """

    heads: tuple[Head, ...]
    words: tuple[KeyWord, ...]
    word_tokens: tuple[tuple[int, ...], ...]
    prompt: str
    prompt_spans: Spans
    answer: str
    answer_spans: Spans
    attention: NDArray[np.float32]
    even: NDArray[np.float32]
    mass: NDArray[np.float32]
    even_mass: NDArray[np.float32]
    evidence: Evidence
    generated: bool

    @property
    def scores(self) -> NDArray[np.float64]:
        """(N,): the mean over steps of a head's attention on all key words."""
        means: NDArray[np.float64] = self.mass.mean(axis=0, dtype=np.float64)
        return means


def key_tokens(
    lm: LanguageModel, prompt: str, heads: HeadSet, config: KeyTokens
) -> KeyTokenAttention:
    """Measure how much attention `heads` pay to the key words of one prompt.

    One forward pass over prompt and answer, after the answer has been generated unless it is given.

    Raises `InputError` if a key word is not in the prompt or has no token, if prompt and answer do
    not fit the model's context, or if the model ends without an answer.
    """
    check_geometry(heads, lm.geometry, "the heads")
    basis = Basis.on(lm, [[worded(lm, prompt, config.chat).text]])
    return key_attention(lm, prompt, conditions_of(heads, config, basis), config)


def worded(lm: LanguageModel, prompt: str, chat: bool | None) -> Prompt:
    """The prompt as the model reads it."""
    from headscope.lm.prompting import chat_writer

    wording = Prompt(prompt, 0, len(prompt))
    writer = chat_writer(lm, chat, prompt)
    return wording if writer is None else wording.in_chat(writer)


def conditions_of(heads: HeadSet, how: Drawing, basis: Basis) -> tuple[Condition, ...]:
    """The heads, which nothing is done to, and random ones where some are wanted and there are
    others."""
    if not heads.heads:
        raise InputError("no heads were chosen; name at least one")
    others = how.draws and len(heads) < heads.geometry.total
    how = Draws(how.draws, how.controls if others else (), how.seed)
    return planned([SelectedHeads(heads, gates=(1.0,))], how, basis)


def key_attention(
    lm: LanguageModel, prompt: str, conditions: Sequence[Condition], config: KeyTokens
) -> KeyTokenAttention:
    """`key_tokens` with the `conditions_of` the heads."""
    wording = worded(lm, prompt, config.chat)
    words = [word.moved(wording.source_start) for word in locate_words(prompt, config.words)]
    text = _read(lm, wording, config)
    member, word_tokens = _tokens_of(words, text.prompt_spans)
    keys = np.flatnonzero(member.any(axis=1))
    _, selected, *random = conditions
    heads = selected.in_model(lm.geometry).heads
    others = (head for draw in random for head in draw.in_model(lm.geometry))
    everyone = tuple(dict.fromkeys([*heads, *others]))
    weights, even = _attention(lm, text, keys, everyone)
    chosen = len(heads)
    mass = weights.sum(axis=2)
    paid = mass.mean(axis=0, dtype=np.float64).tolist()
    means = dict(zip(keys_of(everyone), paid, strict=True))
    by_word = member[keys].astype(np.float32)
    return KeyTokenAttention(
        heads=heads,
        words=tuple(words),
        word_tokens=word_tokens,
        prompt=wording.text,
        prompt_spans=text.prompt_spans,
        answer=text.answer,
        answer_spans=text.answer_spans,
        attention=weights[:, :chosen] @ by_word,
        even=even[:, :chosen] @ by_word,
        mass=mass[:, :chosen],
        even_mass=even[:, :chosen].sum(axis=2),
        evidence=_evidence(conditions, means),
        generated=config.answer is None and config.steps == "answer",
    )


@dataclass(frozen=True)
class _Text:
    """Prompt and answer as tokens; `rows` are the places of the steps that are looked at."""

    ids: tuple[int, ...]
    rows: tuple[int, ...]
    prompt_spans: Spans
    answer: str
    answer_spans: Spans


def _read(lm: LanguageModel, wording: Prompt, config: KeyTokens) -> _Text:
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.tokens import encode_output

    prompt, special = wording.text, wording.special
    encoded = lm.encoded(prompt, special)
    if not encoded.ids:
        raise InputError("the prompt holds no token; give it some text")
    nothing = np.zeros((0, 2), dtype=np.int64)
    length = len(encoded.ids)
    if config.steps == "last":
        _check_length(lm, length)
        return _Text(encoded.ids, (length - 1,), encoded.spans, "", nothing)
    if config.answer is None:
        _check_length(lm, length + 1)
        # An answer of a chat ends as the template ends it.
        newline = config.stop_at_newline and special
        settings = GenerateConfig(config.max_new_tokens, stop_at_newline=newline)
        output = lm.generate([prompt], settings, special=special)[0].output_ids
        if not output:
            raise InputError(
                "the model ends its text right after the prompt, so there is no answer; give one "
                "with --answer, or look at the last token of the prompt with --steps last"
            )
        answer, spans = encode_output(lm.tokenizer, output)
        rows = tuple(range(length - 1, length - 1 + len(output)))
        return _Text((*encoded.ids, *output), rows, encoded.spans, answer, spans)
    answer = config.answer
    if not special:
        answer = wording.joint + answer.lstrip()
    elif not prompt[-1].isspace() and not answer[0].isspace():
        answer = f" {answer}"
    whole = lm.encoded(prompt + answer, special)
    _check_length(lm, len(whole.ids))
    # Bare white space, a token of its own in some tokenizers, is of the answer, too; what a
    # tokenizer puts after a text is not.
    behind = np.flatnonzero(whole.spans[:, 1] > len(prompt))
    if not behind.size or behind[0] < 1:
        which = "prompt" if behind.size else "answer"
        raise InputError(f"the {which} holds no token of its own; give it some text")
    first, last = int(behind[0]), int(behind[-1])
    return _Text(
        whole.ids[: last + 1],
        tuple(range(first - 1, last)),
        whole.spans[:first],
        answer,
        np.maximum(whole.spans[first : last + 1] - len(prompt), 0),
    )


def _check_length(lm: LanguageModel, length: int) -> None:
    if length > lm.context_length:
        raise InputError(
            f"prompt and answer have {length} tokens and the model's context holds "
            f"{lm.context_length}; shorten them"
        )


def _tokens_of(
    words: Sequence[KeyWord], spans: Spans
) -> tuple[NDArray[np.bool_], tuple[tuple[int, ...], ...]]:
    """Which token of the prompt belongs to which key word, bool (P, W), and its places."""
    member = np.zeros((len(spans), len(words)), dtype=bool)
    for at, word in enumerate(words):
        pieces = [Word(word.name, start, end) for start, end in word.spans]
        member[:, at] = membership(spans, pieces).any(axis=1)
        if not member[:, at].any():
            raise InputError(
                f"the key word {word.name!r} has no token of its own in this prompt; the model's "
                "tokenizer drops it"
            )
    return member, tuple(tuple(np.flatnonzero(column).tolist()) for column in member.T)


def _evidence(conditions: Sequence[Condition], means: Mapping[str, float]) -> Evidence:
    """From the mean attention of every head; of the model as a whole there is none."""
    _, *sets = conditions
    scores = [nan, *(fmean(means[head] for head in chosen.heads) for chosen in sets)]
    return evidence(
        conditions,
        {PART: {ATTENTION: [None] * len(scores)}},
        MEASURES,
        helps=lambda _: True,
        given={PART: {ATTENTION: scores}},
    )


def _attention(
    lm: LanguageModel, text: _Text, keys: NDArray[np.intp], heads: tuple[Head, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights and even shares, float32 (steps, heads, keys), from one forward pass."""
    import torch

    from headscope.lm.attention.weights import WeightRequest, weights_in

    batch = lm.collate([text.ids])
    rows = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
    rows[0, list(text.rows)] = True
    request = WeightRequest(torch.from_numpy(keys.astype(np.int64))[None], heads, rows)
    attended = weights_in(lm, batch, request)
    return attended.weights.cpu().numpy(), attended.uniform.cpu().numpy()
