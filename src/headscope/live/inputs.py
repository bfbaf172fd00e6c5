"""What the page asks, checked, and the prompts it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from headscope.data.rows import clean_text
from headscope.data.words import Word, running_words, split_words
from headscope.errors import InputError
from headscope.evidence.controls import control_named
from headscope.heads import Gate, Geometry, Head, HeadSet
from headscope.lm.prompting import encode_answer, encode_answers, wrap_prompts
from headscope.lm.tokens import agreement
from headscope.use.simultaneous_translation import Policy, align_att, wait_k

if TYPE_CHECKING:
    from headscope.data.prompts import Prompt
    from headscope.lm import LanguageModel

#: Characters of a prompt or a reference, new tokens, and draws of a control, at most.
LONGEST, MOST_TOKENS, MOST_DRAWS = 400_000, 512, 1_000
#: What heads may be multiplied by.
GATE_BOUNDS = (-1.0, 5.0)
#: Words of a source that arrives one by one, at most.
MOST_WORDS = 100
#: What decides when a translation waits for more of its source, and the least number of each.
POLICIES: Mapping[str, tuple[Callable[[int], Policy], int]] = {
    "alignatt": (align_att, 0),
    "wait-k": (wait_k, 1),
}

_REQUIRED: Any = object()


@dataclass(frozen=True)
class Wanted:
    """What the model is to read: a sentence to translate, or a prompt as it is.

    Attributes:
        text: the sentence, or the prompt.
        pair: the direction of a sentence, such as `en-de`; None: `text` is a prompt.
        reference: the output hoped for, or None.
        language: code of the language hoped for, or None.
        chat: whether a prompt goes through the chat template as a user's turn.
    """

    text: str
    _: KW_ONLY
    pair: str | None = None
    reference: str | None = None
    language: str | None = None
    chat: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """The same as the page holds it."""
        if self.pair is not None:
            return {"sentence": self.text, "pair": self.pair, "reference": self.reference}
        more = {"reference": self.reference, "language": self.language, "chat": self.chat}
        return {"prompt": self.text, **more}


@dataclass(frozen=True)
class Asked:
    """A question of the page: what the model writes from a prompt under a gate.

    Attributes:
        draw: which random draw is the control, from 0; `control` is its name.
        pinned: the head that the page looks at closely, or None.
        new_tokens: longest output.
        effects: whether every head is to be removed by itself, too.
    """

    wanted: Wanted
    gate: Gate
    draw: int = 0
    control: str = "random"
    pinned: Head | None = None
    new_tokens: int = 64
    effects: bool = False


@dataclass(frozen=True)
class Arriving:
    """A question of the page: the translation of a sentence whose words arrive one by one.

    Attributes:
        heads: those whose attention is looked at.
        policy: decides when to wait, of `POLICIES` with a number.
    """

    wanted: Wanted
    heads: HeadSet
    policy: Policy


def read_asked(body: Any, geometry: Geometry) -> Asked:
    """A question from a JSON object; `InputError` for whatever is missing, unknown or too large."""
    known = {"input", "gates", "draw", "control", "pinned", "new_tokens", "scores", "effects"}
    fields = _object(body, "the question", known)
    pinned = _of(fields, "pinned", str, None)
    return Asked(
        wanted=read_wanted(fields.get("input")),
        gate=read_gate(fields.get("gates", {}), geometry),
        draw=_whole(fields, "draw", 0, 0, MOST_DRAWS),
        control=control_named(_of(fields, "control", str, "random")),
        pinned=None if pinned is None else geometry.check(Head.parse(pinned)),
        new_tokens=_whole(fields, "new_tokens", 64, 1, MOST_TOKENS),
        effects=_of(fields, "effects", bool, False),
    )


def read_arriving(body: Any, geometry: Geometry) -> Arriving:
    """A question from a JSON object; `InputError` for whatever is missing, unknown or too large."""
    fields = _object(body, "the question", {"input", "heads", "policy", "number"})
    wanted, heads = read_wanted(fields.get("input")), _of(fields, "heads", str, "")
    name = _of(fields, "policy", str, "alignatt")
    if wanted.pair is None:
        raise InputError("a prompt as it is has no source; give a sentence with a direction")
    if (words := len(running_words(wanted.text))) > MOST_WORDS:
        raise InputError(f"the sentence has {words} words; at most {MOST_WORDS} can arrive here")
    if not heads:
        raise InputError("there are no heads to look at; select some on the map")
    if name not in POLICIES:
        raise InputError(f"there is no policy {name[:20]!r}; there are {', '.join(POLICIES)}")
    policy, least = POLICIES[name]
    number = policy(_whole(fields, "number", 2, least, LONGEST))
    return Arriving(wanted, HeadSet.parse(heads, geometry), number)


def read_wanted(value: Any) -> Wanted:
    """What the model is to read, from a JSON object; `InputError` if it is nothing to read."""
    known = {"sentence", "pair", "reference", "prompt", "language", "chat"}
    fields = _object(value, "input", known)
    name = "sentence" if "sentence" in fields else "prompt"
    texts = {key: _of(fields, key, str, None) for key in (name, "reference", "pair", "language")}
    for key, text in list(texts.items()):
        if text is not None and len(text) > LONGEST:
            raise InputError(f"the {key} has {len(text)} characters; give at most {LONGEST}")
        if text is not None:
            texts[key] = clean_text(text, f"the {key}", lines=name == "prompt", fix="remove it")
    text = texts[name]
    if text is None or not text.strip():
        raise InputError(f"the {name} is empty; give a text")
    if name == "sentence" and texts["pair"] is None:
        raise InputError("a sentence needs a direction, such as en-de, in pair")
    reference = texts["reference"]
    return Wanted(
        text,
        pair=texts["pair"] if name == "sentence" else None,
        reference=reference if reference and reference.strip() else None,
        language=texts["language"],
        chat=_of(fields, "chat", bool, False),
    )


def read_gate(value: Any, geometry: Geometry) -> Gate:
    """A gate from what single heads are multiplied by, `{"5.3": 0}`; `InputError` if it is none."""
    if not isinstance(value, Mapping):
        raise InputError('gates are a JSON object of heads and numbers, such as {"5.3": 0}')
    low, high = GATE_BOUNDS
    factors: dict[Head, float] = {}
    for name, factor in value.items():
        head = geometry.check(Head.parse(name))
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if not number or not low <= factor <= high:
            raise InputError(
                f"head {head} is multiplied by {repr(factor)[:20]}; give a number from {low:g} to "
                f"{high:g}"
            )
        factors[head] = float(factor)
    return Gate.of(geometry, factors)


def _object(value: Any, what: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be a JSON object")
    if unknown := sorted(set(map(str, value)) - known):
        raise InputError(f"{what} has the unknown entry {unknown[0][:40]!r}")
    return value


def _of(fields: Mapping[str, Any], name: str, kind: type, default: Any = _REQUIRED) -> Any:
    value = fields.get(name, default)
    if value is default or isinstance(value, kind):
        return value
    raise InputError(f"{name} is {repr(value)[:20]}; it must be a {kind.__name__}")


def _whole(fields: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(
            f"{name} is {repr(value)[:20]}; it must be a whole number from {least} to {most}"
        )
    return value


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A prompt as tokens.

    Attributes:
        text: the whole prompt.
        ids: its tokens; `spans` (T, 2) the characters of each.
        source: the characters of the sentence to translate, or None.
        words: the words that attention is told of, with their places in the prompt.
        special: whether the tokenizer adds its special tokens.
        language: code of the language hoped for, or None.
        source_text: what an output may have copied from: the sentence, else the prompt.
        reference: the reference, or None; with its prompt as tokens, and where it begins there.
    """

    text: str
    ids: tuple[int, ...]
    spans: np.ndarray[Any, np.dtype[np.int64]]
    source: tuple[int, int] | None
    words: tuple[Word, ...]
    special: bool
    language: str | None
    source_text: str
    reference: str | None = None
    reference_row: tuple[tuple[int, ...], int] | None = field(default=None, repr=False)

    @property
    def one_line(self) -> bool:
        """Whether an output ends at its first newline: not where a chat template ends it."""
        return self.special


def prepare(lm: LanguageModel, wanted: Wanted, translation: Prompt | None) -> Prepared:
    """A prompt as tokens; ``translation`` is the one that holds the sentence, if there is one.

    Raises `InputError` if the prompt fills the context, or the tokenizer cannot tell which
    characters its tokens stand for.
    """
    if translation is not None:
        text, special, joint = translation.text, translation.special, translation.joint
        source: tuple[int, int] | None = translation.source_span
    else:
        text = wrap_prompts(lm, [wanted.text], True)[0] if wanted.chat else wanted.text
        special, joint, source = not wanted.chat, None, None
    tokens = lm.encoded(text, special)
    if not 0 < len(tokens.ids) < lm.context_length:
        raise InputError(
            f"the prompt has {len(tokens.ids)} tokens; it needs at least 1 and fewer than the "
            f"model's context of {lm.context_length}"
        )
    start, end = source or (0, len(text))
    words = tuple(
        Word(word.text, word.start + start, word.end + start)
        for word in split_words(text[start:end], links_given=False)
        if any(sign.isalnum() for sign in word.text)
    )
    language = wanted.language
    if wanted.pair is not None:
        language = wanted.pair.partition("-")[2]
    return Prepared(
        text=text,
        ids=tokens.ids,
        spans=tokens.spans,
        source=source,
        words=words,
        special=special,
        language=language,
        source_text=text[start:end],
        reference=wanted.reference,
        reference_row=_reference_row(lm, wanted, text, special, joint),
    )


def _reference_row(
    lm: LanguageModel, wanted: Wanted, text: str, special: bool, joint: str | None
) -> tuple[tuple[int, ...], int] | None:
    """Prompt and reference as one row of tokens, and the first token of the reference in it."""
    if wanted.reference is None:
        return None
    if joint is None:
        row = encode_answers(lm, [wanted.text], [wanted.reference], wanted.chat)[0]
    else:
        start = len(text) + len(joint)
        row = encode_answer(lm, text + joint + wanted.reference, start, special)
    if len(row.ids) > lm.context_length:
        raise InputError(
            f"prompt and reference have {len(row.ids)} tokens, more than the model's context of "
            f"{lm.context_length}; shorten them"
        )
    return row.ids, row.start


def output_text(lm: LanguageModel, ids: Sequence[int], one_line: bool) -> str:
    """An output's text, without white space before it, up to its first newline if `one_line`."""
    text: str = lm.decode(ids).lstrip()
    return text.split("\n", 1)[0] if one_line else text


class Growing:
    """An output as it grows: what each new token adds to its `output_text`.

    A character that several tokens make is added by the last of them.
    """

    def __init__(self, lm: LanguageModel, one_line: bool) -> None:
        self._lm, self._one_line = lm, one_line
        self._ids: list[int] = []
        self._shown = 0

    def add(self, token: int) -> str:
        """What this token adds."""
        self._ids.append(token)
        text = output_text(self._lm, self._ids, self._one_line)
        if text.endswith("\ufffd"):
            return ""
        added, self._shown = text[self._shown :], len(text)
        return added


def pieces(lm: LanguageModel, ids: Sequence[int], one_line: bool, start: int = 0) -> list[str]:
    """What each token of an output, from one on, adds to its `output_text`; all together are it.

    A token that takes back what was there before, as the first byte of a character may, adds
    nothing.
    """
    before, *grown = (output_text(lm, ids[:end], one_line) for end in range(start, len(ids) + 1))
    added, settled = [], agreement(before, grown[-1]) if grown else 0
    for text in grown:
        end = max(settled, agreement(text, grown[-1]))
        added.append(grown[-1][settled:end])
        settled = end
    return added


def token_text(lm: LanguageModel, token: int) -> str:
    """What a token stands for by itself; where that is no text, its name in the vocabulary."""
    text: str = lm.decode([token])
    if text and "\ufffd" not in text:
        return text
    return str(lm.tokenizer.convert_ids_to_tokens(token))
