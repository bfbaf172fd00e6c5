"""Language codes, their English names, and directions such as ``en-de``.

Codes are BCP 47 tags (``de``, ``zh-Hans``, ``pt-BR``), ISO 639-3 codes (``deu``) and the FLORES
spelling of both (``deu_Latn``). Names come from the Unicode CLDR through ``langcodes``.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from headscope.errors import InputError

if TYPE_CHECKING:
    from langcodes import Language

# Scripts whose adjective goes before the language in English: "Simplified Chinese".
_HAN_FORMS = {"Hans": "Simplified", "Hant": "Traditional"}
# Names that CLDR qualifies although one language alone has the name in everyday English.
_QUALIFIER = re.compile(r" \((individual language|macrolanguage)\)$")
# ISO 639 codes that stand for no single language.
_NO_LANGUAGE = {"mul", "mis", "zxx"}
# Names for where langcodes is not installed: generating must do without it.
_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bangla", "ca": "Catalan", "cs": "Czech",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew",
    "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
_TAG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")


@dataclass(frozen=True)
class Direction:
    """A translation direction: codes as they were written, ``str`` gives ``en-de``."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class LanguageTag:
    """A code in standard form.

    ``language`` is the shortest standard subtag (``eng`` becomes ``en``), ``script`` the one that
    was written, else the language's usual one; ``macro`` is the macrolanguage (``arb`` has
    ``ar``), or the language itself.
    """

    language: str
    script: str
    macro: str


@lru_cache(maxsize=1024)
def language_name(code: str) -> str:
    """The English name of a language: ``de`` is German, ``zho_Hans`` Simplified Chinese.

    A script is only named where it is not the language's usual one. Raises ``InputError`` with a
    suggestion if the code is not known. Without ``langcodes`` the names of some codes are known.
    """
    try:
        from langcodes import Language
    except ImportError:
        if code in _NAMES:
            return _NAMES[code]
        raise InputError(
            f"without the package langcodes the language {code} has no name; install it with: pip "
            f"install langcodes language-data, or write one of {', '.join(_NAMES)}"
        ) from None
    tag = _parse(code)
    name = _QUALIFIER.sub("", Language.make(language=tag.language).display_name())
    form = _HAN_FORMS.get(tag.script or "")
    usual = Language.make(language=tag.language).maximize().script
    if form and (tag.language in ("zh", "cmn") or tag.script != usual):
        name = f"{form} {'Chinese' if tag.language == 'cmn' else name}"
    details = []
    if tag.script and not form and tag.script != usual:
        details.append(tag.script_name())
    if tag.territory:
        details.append(tag.territory_name())
    return f"{name} ({', '.join(details)})" if details else name


@lru_cache(maxsize=1024)
def language_tag(code: str) -> LanguageTag:
    """The code in standard form, to tell whether two spellings mean the same language."""
    from langcodes import Language
    from langcodes.data_dicts import MACROLANGUAGES, NORMALIZED_MACROLANGUAGES

    parsed = _parse(code)
    language = parsed.language or ""
    script = parsed.script or Language.make(language=language).maximize().script or ""
    # Where a macrolanguage has a standard member (ar: arb), only that one stands for it.
    macro = NORMALIZED_MACROLANGUAGES.get(language, "")
    wider = MACROLANGUAGES.get(language, language)
    if not macro:
        macro = language if wider in NORMALIZED_MACROLANGUAGES.values() else wider
    return LanguageTag(language, script, macro)


def same_language(a: str, b: str) -> bool:
    """Whether two codes mean one language in one script (``de``, ``deu``, ``deu_Latn``)."""
    first, second = language_tag(a), language_tag(b)
    return (first.language, first.script) == (second.language, second.script)


def parse_direction(pair: str) -> Direction:
    """Reads ``en-de``, ``eng_Latn-deu_Latn``, ``zh-Hans-de``, ``en-pt-BR``.

    A hyphen both separates the two codes and occurs within a code. Of the splits into two known
    codes those are preferred whose subtags are spelt as usual (language lower case, script
    capitalised, region upper case). Raises ``InputError`` if none or several remain.
    """
    pieces = pair.strip().split("-")
    splits = [
        Direction("-".join(pieces[:cut]), "-".join(pieces[cut:])) for cut in range(1, len(pieces))
    ]
    if not splits or "" in pieces:
        raise InputError(f"the pair {pair!r} is not of the form SOURCE-TARGET; write it like en-de")
    known = [split for split in splits if is_known(split.source) and is_known(split.target)]
    usual = [split for split in known if _usual(split.source) and _usual(split.target)]
    candidates = usual or known
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        readings = " or ".join(f"{split.source} to {split.target}" for split in candidates)
        raise InputError(
            f"the pair {pair!r} can be read as {readings}; "
            "give --source-language and --target-language instead"
        )
    if len(splits) == 1:
        for code in (splits[0].source, splits[0].target):
            language_name(code)
    raise InputError(
        f"the pair {pair!r} does not hold two known language codes; write it like en-de, "
        "or give --source-language and --target-language"
    )


def settled_direction(
    pair: str | None, source: str | None, target: str | None, of: str = ""
) -> Direction | None:
    """The direction that a pair such as `en-de`, or two language codes, name; None if nothing does.

    `of` says in errors what it is the direction of. InputError if a language is unknown, if one
    alone is given, if pair and codes contradict each other, or if both are one language.
    """
    given = parse_direction(pair) if pair else None
    first = source or (given.source if given else None)
    second = target or (given.target if given else None)
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise InputError(
            f"one language alone is given{of}; add --pair en-de, or both --source-language and "
            "--target-language"
        )
    direction = Direction(first, second)
    if given and direction != given:
        raise InputError(
            f"--pair {pair} contradicts the languages {first} and {second}; give one of them"
        )
    for code in (first, second):
        language_name(code)
    if same_language(first, second):
        raise InputError(
            f"{first} and {second} are one language{of}; name the language of the sentences and "
            "that of their translations"
        )
    return direction


def is_known(code: str) -> bool:
    """Whether a code names a language."""
    try:
        _parse(code)
    except InputError:
        return False
    return True


@lru_cache(maxsize=4096)
def _parse(code: str) -> Language:
    """The code as a ``langcodes`` language; raises ``InputError`` where it names none."""
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    # FLORES-101 spells the two forms of written Chinese in its own way.
    spelling = code.replace("_simpl", "_Hans").replace("_trad", "_Hant")
    if _TAG.fullmatch(spelling):
        try:
            parsed = Language.get(spelling)
        except LanguageTagError:
            raise _unknown(code) from None
        language = parsed.language or ""
        # Private-use codes are valid but have no name.
        private = re.fullmatch("q[a-t][a-z]", language)
        if parsed.is_valid() and language and language not in _NO_LANGUAGE and not private:
            return parsed
    raise _unknown(code)


def _usual(code: str) -> bool:
    """Whether the subtags of a code are in their usual letter case."""
    first, *rest = re.split("[-_]", code)
    for subtag in rest:
        if len(subtag) == 4 and subtag.isalpha() and subtag != subtag.capitalize():
            return False
        if len(subtag) == 2 and subtag != subtag.upper():
            return False
    return first == first.lower()


def _unknown(code: str) -> InputError:
    if not code.strip():
        return InputError("the language code is empty; give one like en or de")
    known = ", ".join(f"{known} ({language_name(known)})" for known in _suggestions(code))
    hint = f"did you mean {known}?" if known else "codes are those of ISO 639 or BCP 47, like en"
    shown = code if len(code) <= 40 else f"{code[:39]}…"
    return InputError(f"unknown language code {shown!r}; {hint}")


def _suggestions(code: str) -> list[str]:
    """At most three known codes: of the language or country so called, else those spelt alike."""
    from langcodes import Language
    from langcodes import find as find_by_name
    from langcodes.data_dicts import LANGUAGE_ALPHA3
    from langcodes.language_lists import CLDR_LANGUAGES

    first = re.split("[-_]", code.strip())[0].lower()
    if len(first) > 3 and "\0" not in code:
        try:
            tag = find_by_name(code).to_tag()
        except LookupError:
            tag = ""
        if tag and is_known(tag):
            return [tag]
    spoken = None
    if len(first) == 2 and first.isascii() and first.isalpha():
        # Country codes are the usual mix-up: jp for Japanese, cz for Czech.
        spoken = Language.make(territory=first.upper()).maximize().language
    # Two-letter codes are so close to one another that much used languages go first.
    common = sorted({code for code in map(str, CLDR_LANGUAGES) if len(code) == 2})
    others = sorted({*LANGUAGE_ALPHA3, *LANGUAGE_ALPHA3.values()})
    close = difflib.get_close_matches(first, common, n=3, cutoff=0.5)
    close = close or difflib.get_close_matches(first, others, n=3, cutoff=0.3)
    if spoken and spoken != "en":
        close.insert(0, spoken)
    return [known for known in dict.fromkeys(close) if is_known(known)][:3]
