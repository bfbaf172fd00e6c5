"""What a training mixture of a rated corpus is to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from headscope.errors import InputError
from headscope.heads.amounts import read_amount

__all__ = ["Amount", "By", "Compression", "Kind", "MixPlan", "Quantile", "Select", "amount_of"]

Amount = int | float | str
"""A number of documents or tokens (`2000`, `"2000"`) or a share (`0.013`, `"0.013"`, `"1.3%"`)."""
Kind = Literal["baseline", "remove", "enhance"]
By = Literal["documents", "tokens"]
Quantile = Literal["exact", "streaming"]
Select = Literal["top", "random"]
Compression = Literal["none", "gzip", "zstd"]

MOST_TIMES = 255


@dataclass(frozen=True)
class MixPlan:
    """A mixture of rated documents in which every language keeps its share.

    The baseline is a seeded draw of `size`; the rest of the corpus is the reserve.  Selected are
    the documents of the baseline with the highest scores, language by language.

    Attributes:
        kind: `baseline` is the draw as it is; `remove` puts documents of the reserve in the place
            of the selected ones; `enhance` has the selected ones `times` times and fewer others.
        share: how much of each language's baseline is selected: a share or a number; one document
            at least.
        by: what `share`, `size` and the budgets count, documents or tokens.  Tokens are met up to
            one document.
        size: of each language's baseline: a number, or a share of the language's corpus, for all
            languages alike or by language.  None: the whole corpus, without a reserve.
        times: how often `enhance` has each selected document.
        quantile: `exact` cuts between two documents; `streaming` reads the scores once and cuts
            between two of its narrow classes, see `headscope.use.mixing.streaming`.
        select: `top` the documents with the highest scores; `random` as many drawn by the seed, the
            control of the same size.
        seed: of the draws and of the order of the documents.
        language_column: the field that tells the language; None: all documents are of one, and
            no record has a field `language`.
        text_column: the field that tells copies of a text apart from other texts.
        compression: of the written files.
        file_bytes: about how many bytes of records, uncompressed, one written file holds.
    """

    kind: Kind = "remove"
    share: Amount = 0.013
    by: By = "documents"
    size: Amount | Mapping[str, Amount] | None = None
    times: int = 3
    quantile: Quantile = "exact"
    seed: int = 0
    language_column: str | None = "language"
    text_column: str = "text"
    select: Select = "top"
    compression: Compression = "none"
    file_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        for name, value, known in (
            ("kind", self.kind, ("baseline", "remove", "enhance")),
            ("by", self.by, ("documents", "tokens")),
            ("quantile", self.quantile, ("exact", "streaming")),
            ("select", self.select, ("top", "random")),
            ("compression", self.compression, ("none", "gzip", "zstd")),
        ):
            if value not in known:
                raise InputError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        if not 1 <= self.times <= MOST_TIMES:
            raise InputError(f"times is {self.times}; it must lie between 1 and {MOST_TIMES}")
        if self.file_bytes < 1:
            raise InputError(f"file_bytes is {self.file_bytes}; it must be 1 or more")
        share, is_share = _read(self.share, "share")
        if self.kind == "enhance" and is_share and self.times * share > 1:
            raise InputError(
                f"{self.times} times {self.share} of each language is more than the language has "
                f"place for; select at most {float(Fraction(1, self.times)):.4g}, or take the "
                "selected documents fewer times"
            )
        sizes = self.size.items() if isinstance(self.size, Mapping) else [("", self.size)]
        for language, size in sizes:
            if size is not None:
                _read(size, f"size of {language}" if language else "size")

    def selected_of(self, total: int) -> int:
        """How many documents or tokens of a baseline of `total` are to be selected."""
        return min(total, max(1, amount_of(self.share, total, "share")))

    def size_of(self, language: str, total: int) -> int:
        """How many documents or tokens of the `total` of a language make the baseline.

        Raises:
            InputError: if there are not as many, or nothing says how many.
        """
        size = self.size
        if isinstance(size, Mapping):
            if language not in size:
                raise InputError(
                    f"the corpus has documents of {language!r}, for which there is no size (there "
                    f"is one for {', '.join(map(repr, size))}); give a size for every language, "
                    "or leave the language out of the corpus"
                )
            size = size[language]
        if size is None:
            return total
        wanted = amount_of(size, total, "size")
        if wanted > total:
            raise InputError(
                f"the baseline is to have {wanted} {self.by} of {language!r}, and the corpus has "
                f"only {total}; ask for fewer, or add to the corpus"
            )
        return wanted


def amount_of(amount: Amount, total: int, name: str) -> int:
    """The number that `amount` stands for: itself, or that share of `total`, halves to even."""
    number, is_share = _read(amount, name)
    return round(number * total) if is_share else int(number)


def _read(amount: Amount, name: str) -> tuple[Fraction, bool]:
    """The number that is written, and whether it is a share."""
    known = read_amount(amount)
    if known is None:
        raise InputError(
            f"the {name} is {amount}, which is no amount; write a whole number from 1 (2000), a "
            "share between 0 and 1 (0.013) or a percentage (1.3%)"
        )
    return known
