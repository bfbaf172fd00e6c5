"""Key words of a prompt: which characters they are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headscope.data.words import split_words
from headscope.errors import InputError

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
    found = []
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
        found.append(KeyWord(name, tuple(spans)))
    return found


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
