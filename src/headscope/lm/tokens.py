"""Texts, conversations and outputs as tokens: what a tokenizer alone decides.

Tokens carry the characters that they cover; conversations go through the chat template.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError, telling

if TYPE_CHECKING:
    from headscope.lm.rendering import Rendering

Spans = NDArray[np.int64]
Given = ParamSpec("Given")
Made = TypeVar("Made")

#: How SentencePiece writes a space.
_SPACE = "▁"
#: Stands for an answer while the template is asked what it puts around one.
_PROBE = "HEADSCOPE"
#: Stands for an answer between two turns, or for the turn that is answered.
_ANSWER = "EPOCSDAEH"
#: The first character of those that have no meaning, for what must be told from all others.
_PRIVATE = 0xF0000
_CORRECT = "correct it, or use plain prompts (--no-chat)"
_NO_SYSTEM = "leave --system out"
#: What a tag looks like, such as `<think>`, `[/INST]` or `<|im_start|>`, and one that closes:
#: `</think>`, `<|end_of_thought|>`, `<|think_end|>`, `<|inner_suffix|>`, `<channel|>` (to
#: `<|channel>`), or one that says that there is no thought, such as `<|nothink|>`.
_TAG = re.compile(r"[<\[◁][^<>\[\]◁▷\n]{1,60}[>\]▷]")
_CLOSING_TAG = re.compile(
    r"[<\[◁][|｜]?(/|end|no[-_ ]?think)"
    r"|.*[-_.:▁ ](end|stop|close|suffix|off)[|｜]?[>\]▷]$"
    r"|[<\[◁][^|｜]+[|｜][>\]▷]$",
    re.IGNORECASE,
)
#: What was found out about a template with these special tokens. It is asked once, since it is a
#: stranger's program, which may take its time.
_FOUND: WeakKeyDictionary[Any, tuple[tuple[str, str], dict[str, Any]]] = WeakKeyDictionary()


def by_tokenizer(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """A function whose first argument is a tokenizer, or has one; what that raises is `InputError`.

    A tokenizer may raise anything, from a bare `Exception` to a panic of its Rust part.
    """

    @functools.wraps(function)
    def guarded(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        first: Any = args[0]
        tokenizer = getattr(first, "tokenizer_or_none", first)
        name = getattr(tokenizer, "name_or_path", None)
        which = f" of {name}" if isinstance(name, str) and name else ""
        with telling(
            lambda why: (
                f"the tokenizer{which} ({type(tokenizer).__name__}) cannot be used ({why}); save "
                "it again, or name another by --tokenizer"
            )
        ):
            return function(*args, **kwargs)

    return guarded


@by_tokenizer
def check_tokenizer(tokenizer: Any) -> None:
    """Raises `InputError` for a tokenizer that does not know its own vocabulary."""
    _ = len(tokenizer), getattr(tokenizer, "all_special_ids", None)


def texts_of(texts: Sequence[str] | str, what: str = "prompt") -> list[str]:
    """A list of texts, of a single text too; `InputError` where one is something else."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            raise InputError(
                f"{what} {number} is {text!r:.60} ({type(text).__name__}), not a text; give strings"
            )
    return listed


@dataclass(frozen=True)
class Encoded:
    """A text as tokens: `ids`, and for each the half-open character span it covers, (T, 2).

    A span leaves out white space in front; it is empty (start = end) for tokens that cover no
    other characters, such as special tokens and bare white space.
    """

    ids: tuple[int, ...]
    spans: Spans


@by_tokenizer
def tokenise(tokenizer: Any, text: str, special: bool = True) -> Encoded:
    """Tokenise `text` by the tokenizer's own defaults, with the characters of each token.

    A beginning of text that the text brings itself is not added a second time, and an end is not
    added at all; without `special` neither is. Raises `InputError` if the tokenizer cannot tell the
    characters of its tokens.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"the tokenizer {type(tokenizer).__name__} does not say which characters a token "
            "stands for; load the model's fast tokenizer (tokenizer.json)"
        )
    encoding = tokenized(tokenizer, text, special, return_offsets_mapping=True)
    kept = own_tokens(tokenizer, text, encoding["input_ids"]) if special else slice(None)
    ids = encoding["input_ids"][kept]
    spans = []
    for piece, (start, end) in zip(
        tokenizer.convert_ids_to_tokens(ids), encoding["offset_mapping"][kept], strict=True
    ):
        # The space that SentencePiece puts before a text is given the first character's place.
        begin = end if piece.strip(_SPACE) == "" else start
        while begin < end and text[begin].isspace():
            begin += 1
        spans.append((begin, end))
    return Encoded(tuple(ids), np.array(spans, dtype=np.int64).reshape(-1, 2))


@by_tokenizer
def tokenized(tokenizer: Any, text: str, special: bool = True, **options: Any) -> Any:
    """What a tokenizer makes of a text; `InputError` where it fails over it, by any error."""
    with telling(
        lambda why: (
            f"the tokenizer cannot read the text {text[:40]!r} ({why}); correct the text, or the "
            "tokenizer's files"
        )
    ):
        return tokenizer(text, add_special_tokens=special, **options)


def own_tokens(tokenizer: Any, text: str, ids: Sequence[int], closed: bool = False) -> slice:
    """The part of a text's tokens without a special token added to one that the text brings, and,
    unless it is `closed`, without the end that the tokenizer puts behind every text."""
    end = () if closed or not ids else added_end(tokenizer)
    if end and tuple(ids[-len(end) :]) == end:
        begin = own_tokens(tokenizer, text, ids, closed=True).start
        return slice(begin, len(ids) - len(end))
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    first = bos is not None and text.startswith(tokenizer.bos_token) and [*ids[1:2]] == [bos]
    last = eos is not None and text.endswith(tokenizer.eos_token) and [*ids[-2:-1]] == [eos]
    if first or last:  # rare; the text may also bring two, and the tokenizer add none
        plain = tokenized(tokenizer, text, special=False)["input_ids"]
        first = first and _run_of(bos, ids) > _run_of(bos, plain)
        last = last and _run_of(eos, ids[::-1]) > _run_of(eos, plain[::-1])
    return slice(int(first), len(ids) - int(last))


def added_end(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that a tokenizer puts behind every text, for most none.

    They are found by trial, since a tokenizer need not name the end that it adds among its special
    tokens.
    """
    for text in ("a", "1", "."):
        plain = tokenized(tokenizer, text, special=False)["input_ids"]
        whole = tokenized(tokenizer, text)["input_ids"]
        for end in range(len(whole), len(plain) - 1, -1):
            if plain and whole[end - len(plain) : end] == plain:
                return tuple(whole[end:])
    return ()


def _run_of(token: int, ids: Sequence[int]) -> int:
    """How often a token stands at the beginning, one after the other."""
    return sum(1 for _ in takewhile(lambda index: index == token, ids))


def encode(tokenizer: Any, text: str, special: bool = True) -> Encoded:
    """Tokenise `text` as `tokenise` does.

    Raises `InputError` if the tokenizer cannot tell the characters of its tokens, or leaves
    characters of the text out: a score would then be credited to the wrong word.
    """
    tokens = tokenise(tokenizer, text, special)
    covered = np.zeros(len(text) + 1, dtype=bool)
    for start, end in tokens.spans:
        covered[start:end] = True
    # Accents and a few signs (a byte order mark, control characters) are dropped by some
    # tokenizers' own normalisation; more than that means that the spans are wrong.
    lost = [at for at, char in enumerate(text) if not covered[at] and _counts(char)]
    if len(lost) > max(2, len(text) // 10):
        at = lost[0]
        raise InputError(
            f"the tokenizer's character positions leave out {len(lost)} of {len(text)} characters "
            f"(first at {at}: {text[at : at + 20]!r}); its tokenizer.json is faulty or too old"
        )
    return tokens


def decode(tokenizer: Any, ids: Sequence[int], special: bool = False) -> str:
    """The text of tokens as they are: no white space is taken out, as some tokenizers would before
    punctuation. Special tokens are written where `special` says so."""
    with telling(lambda why: f"the tokenizer cannot write tokens as text ({why}); correct it"):
        text: str = tokenizer.decode(
            list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
    return text


def encode_output(tokenizer: Any, ids: Sequence[int]) -> tuple[str, Spans]:
    """The text of generated tokens, and the characters each of them adds to it, (n, 2).

    Decoding grows token by token, so the spans hold for any tokenizer; a character spread over
    several tokens belongs to each of them, as in `encode`.
    """
    grown = [decode(tokenizer, ids[:count]) for count in range(1, len(ids) + 1)]
    text = grown[-1] if grown else ""
    spans: list[tuple[int, int]] = []
    settled = 0  # characters of the text that are there for good
    special = frozenset(tokenizer.all_special_ids)  # they add none, also amid a character's bytes
    for token, part in zip(ids, grown, strict=True):
        if token in special:
            end = spans[-1][1] if spans else 0
            spans.append((end, end))
            continue
        start = settled
        settled = max(settled, agreement(part, text))
        # What else the part ends with stands for a character whose last byte has not come yet.
        end = settled + (len(part) > settled and settled < len(text))
        while start < end and text[start].isspace():
            start += 1
        spans.append((start, end))
    return text, np.array(spans, dtype=np.int64).reshape(-1, 2)


def _counts(char: str) -> bool:
    return not char.isspace() and not unicodedata.category(char).startswith("M")


def agreement(a: str, b: str) -> int:
    """How many characters two texts have in common at their beginning."""
    unlike = (at for at, (first, second) in enumerate(zip(a, b, strict=False)) if first != second)
    return next(unlike, min(len(a), len(b)))


@by_tokenizer
def special_tokens(tokenizer: Any) -> dict[int, str]:
    """The special tokens of a tokenizer, by id."""
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    added = tokenizer.added_tokens_decoder.items()
    return {**dict(named), **{index: str(token) for index, token in added if token.special}}


@dataclass(frozen=True)
class AnswerPlace:
    """Where prompts end, and answers begin, behind a user's turn.

    A template says twice what stands before an answer: where it ends a generation prompt, and where
    it writes an answered turn. Mostly both are the same, and prompts are generation prompts. Where
    they are not (a generation prompt that opens a thought, a channel or header that it lacks),
    prompts go up to where an answered turn has its answer, for references and for new texts alike.
    A generation prompt that closes the thought it opened is followed too, and any whose template
    does not show where answers stand.

    Attributes:
        begun: what the generation prompt has behind the user's words; "" where it does not show.
        ends: what prompts have there.
        joint: the white space between a prompt and its answer.
        switch: a variable that the template is told, and its value; None: none is needed.
        unswitched: what `begun` would be without that, where it contradicts the template; else "".
    """

    begun: str
    ends: str
    joint: str
    switch: tuple[str, bool | int | str] | None = None
    unswitched: str = ""

    @property
    def moved(self) -> bool:
        """Whether prompts end otherwise than the template's generation prompt."""
        return self.begun != self.ends

    @property
    def told(self) -> str | None:
        """The switch as it is written, such as `thinking=false`."""
        return None if self.switch is None else f"{self.switch[0]}={json.dumps(self.switch[1])}"


@dataclass(frozen=True)
class ChatWriter:
    """Writes conversations by a chat template; one that can think aloud is told not to.

    What a template is told is `enable_thinking=False`, and another of its variables, if by that
    alone its generation prompt ends where its answered turns have their answers (see
    `AnswerPlace`), and nothing else becomes another. The template writes its own special tokens:
    tokenise what it wrote without adding any.

    Attributes:
        tokenizer: whose template it is.
        system: the system message before every conversation; "" for none, where the template would
            write one of its own; None: as the template has it.
    """

    tokenizer: Any
    system: str | None = None

    @property
    def place(self) -> AnswerPlace:
        """Where prompts end and answers begin; `InputError` for a template that cannot be used."""
        return _found(self.tokenizer, f"place {self.system!r}", self._find_place)

    @property
    def joint(self) -> str:
        """The white space that the template puts between a conversation and the answer.

        Where it does not show: nothing after white space, else one space.
        """
        return self.place.joint

    def write(self, turns: Sequence[str]) -> tuple[str, int]:
        """Turns of user and assistant, the user's last, up to where the answer begins.

        Returns:
            The text, and where the last turn stands in it. White space around a user's turn is
            left out.

        Raises `InputError` if the template is faulty, changes the last turn, or does not take the
        system message.
        """
        text = self._begun(turns)
        words, ends = turns[-1].strip(), self.place.ends
        # What an answer stands behind may have the user's words too.
        start = text.rfind(words, 0, len(text) - len(ends)) if text.endswith(ends) else -1
        start = text.rfind(words) if start < 0 else start
        if start < 0:
            raise InputError(
                "the tokenizer's chat template changes the text of a prompt, so its words cannot "
                "be found in it; use plain prompts (--no-chat)"
            )
        return text, start

    def placed(self, text: str, messages: Sequence[Mapping[str, str]]) -> str:
        """The generation prompt `text` of a conversation, up to where an answer begins.

        Raises `InputError` if it ends otherwise than others do, and not where an answer to this
        conversation stands, so that the place of one is not known.
        """
        place = self.place
        if text.endswith(place.begun):
            return text.removesuffix(place.begun) + place.ends
        if not self._ends_before_answer(text, messages):
            raise InputError(
                f"the tokenizer's chat template ends this prompt in {text[-40:]!r}, others in "
                f"{place.begun[-40:]!r}, so the place of an answer is not known; {_CORRECT}"
            )
        return text

    def _ends_before_answer(self, text: str, messages: Sequence[Mapping[str, str]]) -> bool:
        """Whether the template writes an answer to this conversation right behind `text`."""
        answer = _PROBE
        while answer in str(messages):
            answer += _PROBE
        answered = [*messages, {"role": "assistant", "content": answer}]
        try:
            whole = render_conversation(
                self.tokenizer, answered, "an answer", _CORRECT, add_generation_prompt=False
            )
        except InputError:  # it takes no answers
            return False
        return whole.startswith(text + self.joint + answer)

    def _find_place(self) -> AnswerPlace:
        from headscope.lm.rendering import Unrenderable

        before = self.with_system([])
        try:
            switch = _switch(self.tokenizer)
            place = _place_of(self.tokenizer, before, switch)
            without = place if switch is None else _place_of(self.tokenizer, before, None)
        except Unrenderable as error:
            raise _cannot_put("a user's turn", error, _CORRECT) from error
        unswitched = without.begun if switch is not None and without.moved else ""
        return dataclasses.replace(place, unswitched=unswitched)

    @property
    def contradiction(self) -> str | None:
        """What the template says against itself, and what prompts here do; None: nothing."""
        place = self.place
        begun = place.unswitched or place.begun
        if begun == place.ends:
            return None
        # From the last tag or line that both have.
        common = begun[: agreement(begun, place.ends)].rstrip()
        start = max(0, *map(common.rfind, "<[◁\n"))
        begun, ends = begun[start:], place.ends[start:]
        said = f"the chat template ends a generation prompt in {begun!r}"
        if place.unswitched:
            return (
                f"{said}, which stands before no answer of its own; it is told {place.told} here, "
                "by which prompts end where answers stand"
            )
        remedy = _found(self.tokenizer, "remedy", self._find_remedy) if self.system is None else ""
        return (
            f"{said}, but puts answers behind {ends!r}; prompts end there, for references and for "
            "new texts, which therefore are not those of plain generation"
        ) + (f"; --system {shlex.quote(remedy)} makes both the same" if remedy else "")

    def _find_remedy(self) -> str:
        """A system message by which the template does not contradict itself: one of its own texts,
        found by trial; "" for none."""
        from headscope.lm.rendering import Ended, Unrenderable, switches

        try:
            texts = switches(self.tokenizer).texts
        except Unrenderable:
            return ""
        for text in texts:
            try:
                if not ChatWriter(self.tokenizer, text).place.moved:
                    return text
            except InputError as error:
                if isinstance(error.__cause__, Ended):
                    break
        return ""

    def with_system(self, messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """Messages after the system message; `InputError` if they have one, or none is taken."""
        rows = [dict(message) for message in messages]
        if self.system is None:
            return rows
        if rows and rows[0].get("role") == "system":
            raise InputError(
                "the conversation has a system message of its own; leave --system out, or take the "
                "message out"
            )
        given = self._checked_system
        return rows if given is None else [{"role": "system", "content": given}, *rows]

    @functools.cached_property
    def _checked_system(self) -> str | None:
        """What the system message must hold; None where there must be none."""
        plain = ChatWriter(self.tokenizer)
        if not self.system:
            if plain.system_turn is None:
                return None
            left = self._before_user("")
            if left is not None:
                raise InputError(
                    f"the tokenizer's chat template always writes a system turn ({left[:50]!r}), "
                    "so --system none cannot be followed; give a text, or leave --system out"
                )
            return ""
        rows = [{"role": "system", "content": self.system}, *self._messages([_PROBE])]
        # Some templates write it before the last turn, and not before the first.
        alone = render_conversation(
            self.tokenizer, rows, "a system message", _NO_SYSTEM, add_generation_prompt=True
        )
        if self.system.strip() not in alone:
            raise InputError(
                "the tokenizer's chat template leaves the system message out; leave --system out, "
                "or write it into the prompt"
            )
        return self.system

    @property
    def system_turn(self) -> str | None:
        """What stands before the user's first turn and before no later one, or the system message
        where it stands elsewhere; None: no text.

        Special tokens and the name of the role are left out.
        """
        given = None if self.system is None else self._checked_system
        before = self._before_user(given)
        return before if not given or given.strip() in (before or "") else given.strip()

    def _before_user(self, system: str | None) -> str | None:
        messages = self._messages([_PROBE, _ANSWER, _PROBE])
        if system is not None:
            messages = [{"role": "system", "content": system}, *messages]
        try:
            text = render_conversation(
                self.tokenizer, messages, "a system message", _NO_SYSTEM, add_generation_prompt=True
            )
        except InputError:
            if system is not None:
                raise
            return None  # a template of one turn says nothing about others
        special = sorted(special_tokens(self.tokenizer).values(), key=len, reverse=True)
        for number, token in enumerate(special):  # so that no two share a part
            text = text.replace(token, chr(_PRIVATE + number)) if token else text
        # Such marks are special tokens where the tokenizer is the model's own.
        text = re.sub(r"<\|[^<>|]*\|>", chr(_PRIVATE + len(special)), text)
        first, probe, rest = text.partition(_PROBE)
        if not probe:
            return None  # a template that changes a turn shows none
        between = rest.partition(_ANSWER)[2].partition(_PROBE)[0]
        own = first[: len(first) - agreement(first[::-1], between[::-1])]
        plain = "".join("\n" if ord(char) >= _PRIVATE else char for char in own).strip()
        label, _, content = plain.partition("\n")
        return (content if label.casefold() == "system" else plain).strip() or None

    @property
    def probes(self) -> list[str | None]:
        """What the template makes of three short conversations, which tell one rendering from
        another: a prompt, one after a turn, and an answered one; None of what it does not take.

        Raises `InputError` for a template that does not take a prompt, or writes something else the
        second time.
        """
        turns = [_PROBE, _ANSWER, _PROBE]
        first: list[str | None] = [self._begun(turns[:1])]
        again: list[str | None] = [self._begun(turns[:1])]
        for made in (first, again):
            for count in (3, 2):
                try:
                    made.append(self._begun(turns[:count]))
                except InputError:
                    made.append(None)
        if first != again:
            raise InputError(
                "the tokenizer's chat template writes something else every time, so no number "
                "could be repeated; correct it, or use plain prompts (--no-chat)"
            )
        # These do not say the joint where an answered conversation begins otherwise than a prompt.
        prompt, answered = first[0] or "", first[2] or ""
        between = answered.removeprefix(prompt).partition(_ANSWER)[0]
        shows = answered.startswith(prompt) and not between.strip()
        said = between if shows else joint_after(prompt)
        return first if self.joint == said else [*first, self.joint]

    @property
    def dated(self) -> bool:
        """Whether the template writes the date, which is a fixed one (`PROMPT_DATE`)."""
        rows = self.with_system(self._messages([_PROBE]))
        return _told_rendering(self.tokenizer, rows, add_generation_prompt=True).dated

    def _begun(self, turns: Sequence[str]) -> str:
        """A conversation, up to where the answer begins if the last turn is the user's."""
        text = self._rendered(turns)
        return self.placed(text, self._rows(turns)) if len(turns) % 2 else text

    def _rows(self, turns: Sequence[str]) -> list[dict[str, str]]:
        return self.with_system(self._messages(turns))

    def _rendered(self, turns: Sequence[str]) -> str:
        return render_conversation(
            self.tokenizer,
            self._rows(turns),
            "a user's turn",
            _CORRECT,
            add_generation_prompt=bool(len(turns) % 2),
        )

    @staticmethod
    def _messages(turns: Sequence[str]) -> list[dict[str, str]]:
        return [
            {"role": "assistant", "content": turn}
            if number % 2
            else {"role": "user", "content": turn.strip()}
            for number, turn in enumerate(turns)
        ]


def _place_of(
    tokenizer: Any,
    before: Sequence[Mapping[str, str]],
    switch: tuple[str, bool | int | str] | None,
) -> AnswerPlace:
    """Where answers begin if the template is told this, after messages `before`.

    Raises `Unrenderable` for a template that does not write a user's turn, or is ended.
    """
    from headscope.lm.rendering import Ended, Unrenderable, render

    variables = {} if switch is None else {switch[0]: switch[1]}
    asked = [*before, {"role": "user", "content": _ANSWER}]
    answer = {"role": "assistant", "content": _PROBE}
    prompt = render(tokenizer, asked, add_generation_prompt=True, **variables).text
    try:
        whole = render(tokenizer, [*asked, answer], add_generation_prompt=False, **variables).text
    except Ended:
        raise
    except Unrenderable:  # it takes no answers
        whole = ""
    _, turn, begun = prompt.rpartition(_ANSWER)
    answered, probe, _ = whole.partition(_PROBE)
    _, same_turn, placed = answered.rpartition(_ANSWER)
    known = bool(turn and probe and same_turn)
    if known and placed.startswith(begun) and not placed[len(begun) :].strip():
        return AnswerPlace(begun, begun, placed[len(begun) :], switch)
    if not known or "".join(placed.split()) == "".join(begun.split()) or _closed(begun, placed):
        begun = begun if turn else ""
        return AnswerPlace(begun, begun, joint_after(prompt), switch)
    ends = placed.rstrip(" ")  # a token begins with a space rather than after it
    return AnswerPlace(begun, ends, placed[len(ends) :], switch)


def _closed(begun: str, placed: str) -> bool:
    """Whether a generation prompt goes on behind the place of answers, or before what an answer
    begins with, and leaves nothing open there: words without a tag, or such that the last tag
    closes and nothing follows."""
    placed = placed.rstrip()
    if begun.startswith(placed):
        more = begun[len(placed) :]
        return not _TAG.search(more) or _leaves_nothing_open(more)
    # A thought of its own turn: what stands before an answer comes once more behind it.
    begun = begun.rstrip()
    same = agreement(begun[::-1], placed[::-1])
    begins = (tag.start() for tag in _TAG.finditer(placed, len(placed) - same))
    return any(
        begun.startswith(placed[:at])
        and _leaves_nothing_open(begun[at : len(begun) - len(placed) + at])
        for at in begins
    )


def _leaves_nothing_open(text: str) -> bool:
    """Whether the last tag of a text closes and nothing follows."""
    tags = [*_TAG.finditer(text)]
    return bool(tags and _CLOSING_TAG.match(tags[-1][0])) and not text[tags[-1].end() :].strip()


def _switch(tokenizer: Any) -> tuple[str, bool | int | str] | None:
    """What a template is told so that it does not contradict itself (see `AnswerPlace`): the first
    of its own variables, and of the values that it may compare it with, by which it does not, and
    by which nothing but the end of a prompt changes.

    They are found by trial, since no name is common to all templates; one that leaves what stands
    before an answer as it is goes before others.
    """
    from headscope.lm.rendering import Ended, Unrenderable, switches

    def find() -> tuple[str, bool | int | str] | None:
        try:
            plain = _place_of(tokenizer, [], None)
            known = switches(tokenizer).variables if plain.moved else {}
        except Ended:
            raise
        except Unrenderable:
            return None  # said where the template is used
        others = []
        for variable in ((name, value) for name, values in known.items() for value in values):
            try:
                place = _place_of(tokenizer, [], variable)
                if place.moved or not _changes_the_end_alone(tokenizer, variable):
                    continue
            except Ended:
                break
            except Unrenderable:
                continue
            if place.ends == plain.ends:
                return variable
            others.append(variable)
        return others[0] if others else None

    return _found(tokenizer, "switch", find)


def _changes_the_end_alone(tokenizer: Any, switch: tuple[str, bool | int | str]) -> bool:
    """Whether conversations are the same with and without what a template is told, but for what it
    writes where an answer is to come. Otherwise it may ask for a thought elsewhere."""
    asked, answered = {"role": "user", "content": _ANSWER}, {"role": "assistant", "content": _PROBE}
    variables = dict([switch])
    for rows in ([asked], [{"role": "system", "content": _PROBE}, asked], [asked, answered, asked]):
        plain, plain_prompt = (_or_none(tokenizer, rows, add) for add in (False, True))
        other, other_prompt = (_or_none(tokenizer, rows, add, **variables) for add in (False, True))
        if plain == plain_prompt:  # it always ends in a generation prompt
            plain, other = (text and text.rpartition(_ANSWER)[0] for text in (plain, other))
        begins = [text and text.rpartition(_ANSWER)[0] for text in (plain_prompt, other_prompt)]
        if plain != other or begins[0] != begins[1]:
            return False
    return True


def _or_none(
    tokenizer: Any, rows: Sequence[Mapping[str, str]], prompt: bool, **told: bool | int | str
) -> str | None:
    """A conversation as the template writes it; None: it does not take it."""
    from headscope.lm.rendering import Ended, Unrenderable, render

    try:
        return render(tokenizer, rows, add_generation_prompt=prompt, **told).text
    except Ended:
        raise
    except Unrenderable:
        return None


def _found(tokenizer: Any, what: str, find: Callable[[], Made]) -> Made:
    """What `find` finds out about a tokenizer's chat template, kept while that stays as it is."""
    template = getattr(tokenizer, "chat_template", None)
    written = (str(template), str(getattr(tokenizer, "special_tokens_map", None)))
    if tokenizer not in _FOUND or _FOUND[tokenizer][0] != written:
        _FOUND[tokenizer] = written, {}
    known = _FOUND[tokenizer][1]
    if what not in known:
        known[what] = find()
    made: Made = known[what]
    return made


def render_conversation(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], what: str, fix: str, **options: bool
) -> str:
    """A conversation as the chat template writes it; one that can think aloud is told not to (see
    `ChatWriter`).

    `options` are those of `apply_chat_template`. Raises `InputError` where the template fails;
    `what` says what was to be written, `fix` what to do.
    """
    from headscope.lm.rendering import Unrenderable

    try:
        return _told_rendering(tokenizer, messages, **options).text
    except Unrenderable as error:
        raise _cannot_put(what, error, fix) from error


def _told_rendering(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: bool
) -> Rendering:
    from headscope.lm.rendering import render

    switch = _switch(tokenizer)
    return render(tokenizer, messages, **({} if switch is None else dict([switch])), **options)


def _cannot_put(what: str, error: Exception, fix: str) -> InputError:
    return InputError(
        f"the tokenizer's chat template cannot put {what} into words ({error}); {fix}"
    )


@by_tokenizer
def end_of_turn(tokenizer: Any) -> int | None:
    """The special token by which the chat template ends an answer, if it has one.

    Some models' settings name their end of text alone, at which a chat never ends.
    """
    if not getattr(tokenizer, "chat_template", None):
        return None

    def find() -> str:
        try:
            return ChatWriter(tokenizer)._rendered(["x", _PROBE]).rpartition(_PROBE)[2]
        except InputError:
            return ""  # said where the template is used

    ids = tokenized(tokenizer, _found(tokenizer, "closing", find), special=False)["input_ids"]
    special = special_tokens(tokenizer)
    return next((index for index in ids if index in special), None)


def joint_after(prompt: str) -> str:
    """What joins an answer to a text: nothing after white space, else one space."""
    return "" if not prompt or prompt[-1].isspace() else " "
