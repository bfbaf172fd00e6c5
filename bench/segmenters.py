"""How well segmenters find the words of scripts without spaces, as JSON.

    python bench/segmenters.py > bench/results/segmenters.json

`data/segmented.txt` holds 20 sentences of ours in Chinese, Japanese and Thai with a space between
any two words. A candidate is given them without spaces. `f1` is the harmonic mean of precision and
recall of the boundaries within sentences, signs aside (a boundary beside a sign is nobody's merit);
`words` is that of whole words. Both are over all sentences of a language. A candidate that is not
installed is told as absent. Left out are those without a wheel (jieba, PyICU), whose dictionary has
none (MeCab with unidic-lite, Lindera from 3 on), and that load a model as they start
(spacy-pkuseg).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from machine import machine

from headscope.data.words import split_words

DATA = Path(__file__).parent / "data" / "segmented.txt"
Cut = Callable[[str], Iterable[str]]


class Candidate(NamedTuple):
    """A way to cut: its languages, the distributions it needs, and how to make the function."""

    languages: Sequence[str]
    needs: Sequence[str]
    make: Callable[[str], Cut]


def _icu(language: str) -> Cut:
    from icu4py.breakers import WordBreaker

    return lambda text: WordBreaker(text, language)


def _budoux(language: str) -> Cut:
    import budoux

    parser = {
        "zh": budoux.load_default_simplified_chinese_parser,
        "ja": budoux.load_default_japanese_parser,
        "th": budoux.load_default_thai_parser,
    }[language]()
    return parser.parse


def _rjieba(language: str) -> Cut:
    import rjieba

    return rjieba.cut


def _sudachi(mode: str) -> Callable[[str], Cut]:
    def make(language: str) -> Cut:
        from sudachipy import Dictionary, SplitMode

        tokenizer = Dictionary().create(mode=getattr(SplitMode, mode))
        return lambda text: [token.surface() for token in tokenizer.tokenize(text)]

    return make


def _janome(language: str) -> Cut:
    from janome.tokenizer import Tokenizer

    tokenizer = Tokenizer(wakati=True)
    return lambda text: [str(token) for token in tokenizer.tokenize(text)]


def _newmm(language: str) -> Cut:
    from pythainlp.tokenize import word_tokenize

    return lambda text: word_tokenize(text, engine="newmm")


CANDIDATES = {
    "characters": Candidate(
        ("zh", "ja", "th"), (), lambda _: lambda text: [w.text for w in split_words(text, False)]
    ),
    "icu4py": Candidate(("zh", "ja", "th"), ("icu4py",), _icu),
    "budoux": Candidate(("zh", "ja", "th"), ("budoux",), _budoux),
    "rjieba": Candidate(("zh",), ("rjieba",), _rjieba),
    "sudachipy, mode A": Candidate(("ja",), ("SudachiPy", "sudachidict-core"), _sudachi("A")),
    "sudachipy, mode C": Candidate(("ja",), ("SudachiPy", "sudachidict-core"), _sudachi("C")),
    "janome": Candidate(("ja",), ("Janome",), _janome),
    "pythainlp, newmm": Candidate(("th",), ("pythainlp",), _newmm),
}


def sentences(path: Path = DATA) -> dict[str, list[list[str]]]:
    """The words of every sentence, by language."""
    found: dict[str, list[list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            found[heading[1]] = []
        elif line and not line.startswith("#"):
            found[next(reversed(found))].append(line.split())
    return found


def spans(words: Iterable[str]) -> set[tuple[int, int]]:
    """Where words lie in their sentence, those of signs alone aside."""
    found, start = set(), 0
    for word in words:
        if any(map(str.isalnum, word)):
            found.add((start, start + len(word)))
        start += len(word)
    return found


def boundaries(words: Sequence[str]) -> set[int]:
    """Boundaries between two words that are no signs."""
    found = spans(words)
    return {end for _, end in found} & {start for start, _ in found}


def f1(pairs: Sequence[tuple[set[Any], set[Any]]]) -> dict[str, float]:
    """Precision, recall and their harmonic mean, over (right ones, found ones) of all sentences."""
    shared = sum(len(right & guessed) for right, guessed in pairs)
    precision = shared / max(1, sum(len(guessed) for _, guessed in pairs))
    recall = shared / max(1, sum(len(right) for right, _ in pairs))
    both = precision + recall
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / both if both else 0.0,
    }


def measure(candidate: Candidate, language: str, gold: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The agreement of a candidate with the sentences of a language."""
    began = time.perf_counter()
    cut = candidate.make(language)
    list(cut("".join(gold[0])))
    loaded = time.perf_counter()
    made = [list(cut("".join(words))) for words in gold]
    seconds = time.perf_counter() - loaded
    for words, guessed in zip(gold, made, strict=True):
        assert "".join(words) == "".join(guessed), guessed
    return {
        "boundaries": f1([(boundaries(a), boundaries(b)) for a, b in zip(gold, made, strict=True)]),
        "words": f1([(spans(a), spans(b)) for a, b in zip(gold, made, strict=True)]),
        "load_seconds": loaded - began,
        "seconds": seconds,
    }


def _about(names: Sequence[str]) -> dict[str, Any] | None:
    """Versions, licences and installed bytes of what a candidate needs; None if one is absent."""
    found = {}
    for name in names:
        try:
            package = distribution(name)
        except PackageNotFoundError:
            return None
        files = [Path(str(package.locate_file(file))) for file in package.files or ()]
        found[name] = {
            "version": package.version,
            "licence": package.metadata.get("License-Expression")
            or package.metadata.get("License"),
            "bytes": sum(file.stat().st_size for file in files if file.is_file()),
        }
    return found


def main() -> None:
    """Measure every candidate that is installed and print the figures."""
    gold = sentences()
    result: dict[str, Any] = {
        "command": "bench/segmenters.py",
        "machine": machine("cpu"),
        "sentences": {language: len(texts) for language, texts in gold.items()},
        "words": {language: sum(map(len, texts)) for language, texts in gold.items()},
        "candidates": {},
    }
    for name, candidate in CANDIDATES.items():
        about = _about(candidate.needs)
        result["candidates"][name] = (
            "absent"
            if about is None
            else {
                "needs": about,
                **{
                    language: measure(candidate, language, gold[language])
                    for language in candidate.languages
                },
            }
        )
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
