"""What of an output is the answer: chat models put a preamble before it, and quotes around it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

#: Colons of all scripts: ASCII, full width, small, vertical, Ethiopic, Mongolian, modifier, ratio.
COLONS = ":\uff1a\ufe55\ufe13\u1365\u1366\u1804\ua789\u2236"
#: Marks of Markdown that may stand before and after the words of a line.
MARKS = "*_#>"
#: Opening and closing quotes that hold a whole text, of all scripts, one pair after the other.
_QUOTES = "\"\"''``＂＂””“”„“„”‘’‚‘‚’«»»«‹››‹「」『』《》〈〉〝〞〝〟"
_PAIRS = [_QUOTES[at : at + 2] for at in range(0, len(_QUOTES), 2)]
_EDGES = frozenset(_QUOTES)
_CLOSINGS = {pair[0]: {each[1] for each in _PAIRS if each[0] == pair[0]} for pair in _PAIRS}
_FENCE = re.compile(r"\s*(```|~~~)")
#: A label in bold type at the beginning of a line, its colon before or after the last mark.
_LABEL = re.compile(rf"\s*(\*\*|__)[^*_\n]{{1,80}}(?:[{COLONS}]\1|\1\s*[{COLONS}])[ \t]*")
_LINE = re.compile(r"[^\n]*\n?")
_BREAK, _EMPTY = re.compile(r"\n"), re.compile(r"\n[ \t]*\n")

#: What is found around answers, in words.
LINE, LABEL, FENCE = "a first line that ends in a colon", "a label", "a Markdown fence"
QUOTES, BOLD = "quotes around the whole", "bold type around the whole"
PARAGRAPHS = "several paragraphs"


def answer_of(text: str, source: str = "") -> str:
    """The answer in an output, as `answer_span` finds it."""
    start, end = answer_span(text, source)
    return text[start:end]


def answer_span(text: str, source: str = "") -> tuple[int, int]:
    """Where the answer stands in an output: half-open characters, white space around it aside.

    Taken off are first lines that end in a colon, where something follows; a label in bold type; a
    Markdown fence; what follows the first line, or the first empty one where the source has several
    lines; and quotes or bold marks around the whole. What the source itself has, a colon at the end
    of its first line, several paragraphs, or a quote at an end, is left in the answer.
    """
    start, end, _ = _found(text, source)
    return start, end


def preambles(outputs: Sequence[str], sources: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """How many outputs hold more than an answer, and what, the most frequent first."""
    every = [_found(text, source)[2] for text, source in zip(outputs, sources, strict=True)]
    kinds = Counter(kind for kinds in every for kind in kinds)
    return sum(map(bool, every)), tuple(kind for kind, _ in kinds.most_common())


def goes_on(line: str) -> bool:
    """Whether a line is no answer, but comes before one: it ends in a colon or opens a fence."""
    return line.strip().rstrip(MARKS)[-1:] in (*COLONS,) or bool(_FENCE.match(line))


def _found(text: str, source: str) -> tuple[int, int, list[str]]:
    kinds: list[str] = []
    start, end = _stripped(text, 0, len(text))
    asked = source.strip()
    lines = asked.splitlines()
    colon = bool(lines) and lines[0].strip().rstrip(MARKS)[-1:] in (*COLONS,)
    fenced = False

    def own_of(rest: int) -> str:
        """What must end in a colon, as the source's first line does, if it is not before `rest`."""
        return text[rest:end].partition("\n")[0] if len(lines) > 1 else text[rest:end]

    while start < end:
        line = _LINE.match(text, start, end)
        assert line is not None
        rest, _ = _stripped(text, line.end(), end)
        if _FENCE.match(line[0]) and rest < end and not _FENCE.match(asked):
            closing = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE).search(text, rest, end)
            end = closing.start() if closing else end
            kinds.append(FENCE)
            fenced = True
        elif goes_on(line[0]) and rest < end and not (colon and not goes_on(own_of(rest))):
            kinds.append(LINE)
        elif not colon and len(lines) < 2 and (after := _after_colon(text, rest, end)):
            kinds.append(LINE)  # "Sure!", and then "Here it is:"
            rest = after
        else:
            break
        start, end = _stripped(text, rest, end)
    if not _LABEL.match(asked) and (label := _LABEL.match(text, start, end)) and label.end() < end:
        kinds.append(LABEL)
        start = label.end()
    if not fenced and not _EMPTY.search(asked):
        paragraph = (_EMPTY if "\n" in asked else _BREAK).search(text, start, end)
        if paragraph:
            kinds.append(PARAGRAPHS)
            end = paragraph.start()
    start, end = _stripped(text, start, end)
    bold = _inside(asked, 0, len(asked)) is not None
    # A sentence out of a longer quotation has a quote at one end alone; its translation may close.
    quoted = bold or bool(_EDGES & {*asked[:1], *asked[-1:]})
    while inner := _inside(text, start, end):
        marks = text[start] in MARKS + "_"
        if bold if marks else quoted:
            break
        kinds.append(BOLD if marks else QUOTES)
        start, end = _stripped(text, *inner)
    return start, end, list(dict.fromkeys(kinds))


def _after_colon(text: str, start: int, end: int) -> int | None:
    """Where the text goes on after a line that ends in a colon."""
    line = _LINE.match(text, start, end)
    if line is None or not goes_on(line[0]) or _FENCE.match(line[0]):
        return None
    rest, _ = _stripped(text, line.end(), end)
    return rest if rest < end else None


def _inside(text: str, start: int, end: int) -> tuple[int, int] | None:
    """What stands within one pair of quotes, or marks of bold type, that hold the whole."""
    for mark in ("**", "__"):
        if end - start > 4 and text.startswith(mark, start) and text.startswith(mark, end - 2):
            return (start + 2, end - 2) if mark not in text[start + 2 : end - 2] else None
    opening, closing = text[start : start + 1], text[max(start, end - 1) : end]
    if end - start < 3 or closing not in _CLOSINGS.get(opening, ()):
        return None
    inner = text[start + 1 : end - 1]
    # Two quotations, such as "Yes", he said, "no", are no single one; an apostrophe closes none.
    within = re.sub(r"(?<=\w)['\u2019](?=\w)", "", inner)
    return (start + 1, end - 1) if not {opening, closing} & {*within} else None


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
