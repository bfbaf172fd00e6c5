"""Language codes, their names, suggestions, and directions."""

from __future__ import annotations

import sys

import pytest

from headscope.data import languages
from headscope.data.languages import (
    Direction,
    is_known,
    language_name,
    parse_direction,
    same_language,
)
from headscope.errors import InputError


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("de", "German"),
        ("deu", "German"),
        ("deu_Latn", "German"),
        ("eng_Latn", "English"),
        ("zh", "Chinese"),
        ("zh-Hans", "Simplified Chinese"),
        ("zho_Hans", "Simplified Chinese"),
        ("zho_simpl", "Simplified Chinese"),
        ("zh-Hant", "Traditional Chinese"),
        ("cmn_Hant", "Traditional Chinese"),
        ("yue_Hant", "Cantonese"),
        ("srp_Cyrl", "Serbian"),
        ("sr-Latn", "Serbian (Latin)"),
        ("pt-BR", "Portuguese (Brazil)"),
        ("npi_Deva", "Nepali"),
        ("arb_Arab", "Standard Arabic"),
        ("tr", "Turkish"),
    ],
)
def test_names(code: str, name: str) -> None:
    assert language_name(code) == name


def test_names_without_langcodes_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {code: language_name(code) for code in languages._NAMES}
    monkeypatch.setitem(sys.modules, "langcodes", None)
    assert {code: language_name.__wrapped__(code) for code in named} == named
    with pytest.raises(InputError, match="zho_Hans has no name; install it with: pip install lang"):
        language_name.__wrapped__("zho_Hans")


@pytest.mark.parametrize(
    ("code", "suggestion"),
    [
        ("german", "de (German)"),
        ("English", "en (English)"),
        ("jp", "ja (Japanese)"),
        ("cz", "cs (Czech)"),
        ("xx", "xh (Xhosa)"),
    ],
)
def test_unknown_codes_get_a_suggestion_that_is_known(code: str, suggestion: str) -> None:
    assert not is_known(code)
    with pytest.raises(InputError, match="did you mean") as caught:
        language_name(code)
    assert repr(code) in str(caught.value)
    assert suggestion in str(caught.value)
    assert is_known(suggestion.split()[0])


@pytest.mark.parametrize("code", ["", "und", "mul", "qaa", "e", "en-de-", "eng-Foob", "en de", "1"])
def test_codes_of_no_language(code: str) -> None:
    with pytest.raises(InputError):
        language_name(code)


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("en-de", "en", "de"),
        ("eng_Latn-deu_Latn", "eng_Latn", "deu_Latn"),
        ("zh-Hans-de", "zh-Hans", "de"),
        ("de-zh-Hans", "de", "zh-Hans"),
        ("zh-Hans-zh-Hant", "zh-Hans", "zh-Hant"),
        ("en-pt-BR", "en", "pt-BR"),
        ("pt-BR-en", "pt-BR", "en"),
        ("kmr-ckb", "kmr", "ckb"),
    ],
)
def test_directions(text: str, source: str, target: str) -> None:
    assert parse_direction(text) == Direction(source, target)
    assert str(parse_direction(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ende", "en-de"),
        ("en-", "en-de"),
        ("", "en-de"),
        ("xx-de", "'xx'"),
        ("en-german", "de (German)"),
        ("en-pt-br", "--source-language"),
        ("a-b-c", "two known language codes"),
    ],
)
def test_bad_directions(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_direction(text)
    assert said in str(caught.value)


def test_spellings_of_one_language() -> None:
    assert same_language("de", "deu_Latn")
    assert same_language("zh", "zho_Hans")
    assert not same_language("zh", "zho_Hant")
    assert not same_language("sr", "hr")
