"""HTML by functions: what goes in as text comes out as that text, and as nothing else."""

from __future__ import annotations

import json
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.report.html import Html, embed_json, escape, join, tag
from headscope.shown.words import between, enumeration, fixed, languages_of, number, p_value, ranges

PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


class Reader(HTMLParser):
    """Collects the elements, attributes and text that a parser sees."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(name)
        self.attributes += attributes

    def handle_data(self, data: str) -> None:
        self.text += data


@given(PLAIN, PLAIN)
def test_text_and_attributes_are_read_back_as_they_were(text: str, attribute: str) -> None:
    seen = Reader(tag("p", text, title=attribute))
    assert seen.elements == ["p"]
    assert seen.text == text
    assert seen.attributes == [("title", attribute)]


@given(st.text())
def test_whatever_the_text_it_can_be_written_and_holds_no_markup(text: str) -> None:
    written = escape(text)
    written.encode()
    assert not set('<>"') & set(written)
    assert len(unescape(written)) == len(text)


def test_what_html_cannot_hold_is_shown_by_a_picture() -> None:
    assert escape("a\x00b\x1b\x7f\ud800\n\t") == "a\u2400b\u241b\u2421\ufffd\n\t"


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists))
def test_embedded_json_ends_only_where_its_element_ends(value: object) -> None:
    element = embed_json("data", {"value": value})
    body = element.removeprefix('<script type="application/json" id="data">')
    body = body.removesuffix("</script>")
    assert not set("<>&\u2028\u2029") & set(body)
    assert json.loads(body) == {"value": value}


def test_html_is_not_escaped_twice_and_nothing_is_left_out() -> None:
    inner = tag("b", "1 < 2")
    assert join("a & b", inner, None, 3, [inner, "c"]) == (
        "a &amp; b<b>1 &lt; 2</b>3<b>1 &lt; 2</b>c"
    )
    assert isinstance(join(inner), Html)


def test_attributes_that_are_off_are_left_out() -> None:
    assert tag("td", hidden=True, title=None, class_="x", data_i=0, aria_hidden=False) == (
        '<td hidden class="x" data-i="0"></td>'
    )
    assert tag("meta", name="a", charset="utf-8") == '<meta name="a" charset="utf-8">'


def test_numbers_in_words() -> None:
    assert fixed(-0.004, 2) == "0.00"
    assert fixed(-0.5, 1) == "\u22120.5"
    assert fixed(None, 3) == "\u2013"
    assert between(None, 1.0, 2) == "\u2013"
    assert between(0.1, 0.25, 2) == "0.10\u2009\u2013\u20090.25"
    assert between(-0.1, 0.25, 1) == "\u22120.1\u00a0to\u00a00.2"
    assert [p_value(p) for p in (0.0421, 3.2e-9, 0.0)] == ["0.042", "3e\u22129", "0"]
    assert ranges([4, 2, 3, 6, 3, 9]) == "2\u20134, 6 and 9"
    assert [enumeration(list(parts)) for parts in ("", "a", "ab")] == ["", "a", "a and b"]


@pytest.mark.parametrize(
    ("direction", "languages"),
    [
        ("en-de", ("en", "de")),
        ("pt-BR-en", ("pt-BR", "en")),
        ("en-zh-Hans", ("en", "zh-Hans")),
        ("eng_Latn-deu_Latn", ("eng_Latn", "deu_Latn")),
        ("es-419-en", ("es-419", "en")),
        ("mine", ("mine", "")),
    ],
)
def test_a_direction_is_read_as_two_languages(direction: str, languages: tuple[str, str]) -> None:
    assert languages_of(direction) == languages


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (5.04e-7, "5e\u22127"),
        (-5.3e-7, "\u22125.3e\u22127"),
        (9.99e-5, "1e\u22124"),
        (0.000714, "0.000714"),
        (0, "0"),
    ],
)
def test_very_small_numbers_are_said_in_few_characters(value: float, words: str) -> None:
    assert number(value) == words
