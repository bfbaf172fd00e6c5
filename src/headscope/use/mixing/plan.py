"""What a training mixture of a rated corpus is to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from headscope import options
from headscope.errors import InputError
from headscope.heads.geometry import read_amount
from headscope.settings import Option, Settings
from headscope.use.corpus.records import Compression

Amount = int | float | str
"""A number of documents or tokens (`2000`, `"2000"`) or a share (`0.013`, `"0.013"`, `"1.3%"`)."""
MixtureKind = Literal["remove", "enhance", "baseline"]
By = Literal["documents", "tokens"]
Quantile = Literal["exact", "streaming"]
Select = Literal["top", "random"]

MOST_TIMES = 255


@dataclass(frozen=True)
class MixPlan(Settings):
    """A mixture of rated documents in which every language keeps its share.

    The baseline is a seeded draw of `size`; the rest of the corpus is the reserve.  Selected are
    the documents of the baseline with the highest scores, language by language.

    Attributes:
        kind: `baseline` is the draw as it is; `remove` puts documents of the reserve in the place
            of the selected ones; `enhance` has the selected ones `times` times and fewer others.
        share: of each language's baseline; one document at least.
        by: what `share`, `size` and the budgets count, documents or tokens.  Tokens are met up to
            one document.
        size: of each language's baseline: a number, or a share of the language's corpus, for all
            languages alike or by language.  None: the whole corpus, without a reserve.
        quantile: `exact` cuts between two documents; `streaming` reads the scores once and cuts
            between two of its narrow classes, see `headscope.use.mixing.choose.streaming_cut`.
        select: `top` the documents with the highest scores; `random` as many drawn by the seed, the
            control of the same size.
        seed: of the draws and of the order of the documents.
        language_column: the field that tells the language; None: all documents are of one, and
            no record has a field `language`.
        text_column: the field that tells copies of a text apart from other texts.
        file_bytes: about how many bytes of records, uncompressed, one written file holds.
    """

    kind: Annotated[
        MixtureKind,
        Option(
            "Replace the documents with the highest scores, repeat them, or leave all as it is.",
            panel="Data",
        ),
    ] = "remove"
    share: Annotated[
        Amount,
        Option(
            "How much of each language is selected: a share such as 1.3% or 0.013, or a number.",
            metavar="AMOUNT",
            typed=str,
            default="1.3%",
        ),
    ] = 0.013
    by: Annotated[By, Option("What --share, --size and the budgets count.")] = "documents"
    size: Amount | Mapping[str, Amount] | None = None
    times: Annotated[
        int, Option("How often enhance has each selected document.", min=1, max=MOST_TIMES)
    ] = 3
    quantile: Annotated[
        Quantile,
        Option(
            "Cut between two documents, or, reading the scores once, between two narrow classes of "
            "scores."
        ),
    ] = "exact"
    seed: options.Seed = 0
    language_column: str | None = "language"
    text_column: options.TextColumn = "text"
    select: Annotated[
        Select,
        Option("The documents with the highest scores, or as many at random, as a control."),
    ] = "top"
    compression: Annotated[Compression, Option("Of the files written.", panel="Expert")] = "none"
    file_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        super().__post_init__()
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
        return min(total, max(1, _amount_of(self.share, total, "share")))

    def size_of(self, language: str, total: int) -> int:
        """How many documents or tokens of the `total` of a language make the baseline.

        InputError if there are not as many, or nothing says how many.
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
        wanted = _amount_of(size, total, "size")
        if wanted > total:
            raise InputError(
                f"the baseline is to have {wanted} {self.by} of {language!r}, and the corpus has "
                f"only {total}; ask for fewer, or add to the corpus"
            )
        return wanted


def _amount_of(amount: Amount, total: int, name: str) -> int:
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
