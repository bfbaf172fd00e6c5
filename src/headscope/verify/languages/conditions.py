"""What is removed and what is read: each language's heads, as many by importance, random ones.

LAHIS (Liu et al. 2025, arXiv 2511.07498) removes 2 % of the heads and compares the perplexity of
each language's text. Its published random control always has 9 heads; here each control has the
size of what it controls.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.heads.draws import draw_heads
from headscope.results.language_texts import Role
from headscope.settings import UNSIGNED, Settings
from headscope.verify.languages.sets import LanguageHeads

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

Kind = Literal["baseline", "removed", "random", "random-layer-matched"]
Progress = Callable[[str, int, int], None]
Means = NDArray[np.float32]
PART = "losses"


@dataclass(frozen=True)
class LanguageRemoval(Settings):
    """How heads are removed and what they are compared with.

    Attributes:
        draws: random sets of each kind beside every set of heads.
        layer_matched: draw also sets with as many heads of each layer.
        pool: "non-alignment", random heads that are no token alignment heads, or any "outside".
        threshold: translation score above which a head is a token alignment head.
        ablate: "zero", or "mean", which puts a head's mean output over a reference text in the
            place of what is removed.
        seed: of the draws and the tests.
        batch_tokens: padded tokens of a batch.
    """

    draws: options.Draws = 10
    layer_matched: bool = True
    pool: options.Pool = "non-alignment"
    threshold: options.Threshold = 0.1
    ablate: options.Ablate = "zero"
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)


@dataclass(frozen=True)
class Condition:
    """Heads that are removed together, and the languages whose documents are read meanwhile.

    Attributes:
        of: the language (or set, or layer) that this is about; "" for the model as it is.
        role: which heads of it: the "chosen" ones, or as many by importance, "full".
        kind: those heads "removed", or a random draw of as many.
        k: how many heads were asked for; `heads` may hold fewer.
        draw: number of a random draw, from 0.
        heads: what is removed.
        filled_up: of a random draw, heads that come from elsewhere than asked for (see `Draw`).
        texts: languages whose documents are read.
    """

    of: str
    role: Role
    kind: Kind
    k: int
    draw: int | None
    heads: HeadSet
    filled_up: int
    texts: tuple[str, ...]

    @property
    def key(self) -> str:
        """Equal for conditions that remove the same heads."""
        return ",".join(map(str, sorted(self.heads))) or "as is"

    def as_dict(self) -> dict[str, Any]:
        """Its name and its heads, as a JSON object."""
        return {
            "of": self.of,
            "role": self.role,
            "kind": self.kind,
            "k": self.k,
            "size": len(self.heads),
            "draw": self.draw,
            "heads": tuple(map(str, self.heads)),
            "filled_up": self.filled_up,
        }


@dataclass(frozen=True)
class Documents:
    """The documents of one language as the model reads them: token ids, each two or more.

    `places` says in messages where each stands: its file and line.
    """

    ids: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    places: tuple[str, ...]

    @property
    def tokens(self) -> NDArray[np.int64]:
        """How many tokens of each document are predicted: all but the first."""
        return np.array([len(row) - 1 for row in self.rows], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Text:
    """The documents of one language, read under every condition.

    Attributes:
        nll: float64 (C, D), the summed negative log-likelihood in nats of each document's
            predicted tokens under each condition; a row of NaN where a condition was not run on
            this language. Row 0 is the model as it is.
        tokens: int64 (D,), how many tokens of each document are predicted, each at least 1.
    """

    nll: NDArray[np.float64]
    tokens: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.nll.ndim != 2 or self.tokens.shape != self.nll.shape[1:] or not self.tokens.size:
            raise InputError(
                f"losses of shape {self.nll.shape} and token counts of shape {self.tokens.shape} "
                "do not belong together; give both for the same documents, at least one"
            )
        if (self.tokens < 1).any():
            raise InputError("a document has no predicted token; leave it out")


def plan(
    sized: Sequence[LanguageHeads],
    languages: Sequence[str],
    config: LanguageRemoval,
    avoid: HeadSet | None = None,
) -> list[Condition]:
    """The model as it is; each language's chosen heads, and its `full` ones, with random draws.

    Chosen heads and their free draws are read on the text of every language, so that random heads
    have a row of the matrix too. These draws avoid the chosen heads of every language, and so are
    the same for all languages with as many chosen heads. `full` heads are read on every text;
    their draws, and those of the same layers, on that of their own language. A set that holds no
    heads is left out. `avoid` are the token alignment heads.
    """
    if not sized:
        raise InputError("there is no set of heads to remove; name at least one head")
    every = tuple(languages)
    nothing = HeadSet(sized[0].chosen.geometry, ())
    chosen = functools.reduce(operator.or_, (one.chosen for one in sized))
    planned = [Condition("", "chosen", "baseline", 0, None, nothing, 0, every)]
    for one in sized:
        own = (one.language,) if one.language in every else every
        if len(one.chosen):
            draws: list[tuple[Kind, HeadSet | None, tuple[str, ...]]] = [
                ("random", chosen if avoid is None else avoid | chosen, every),
                ("random-layer-matched", avoid, own),
            ]
            planned += _removal(one, "chosen", one.chosen, every, draws, config)
        if one.full is not None and len(one.full):
            draws = [("random", avoid, own), ("random-layer-matched", avoid, own)]
            planned += _removal(one, "full", one.full, every, draws, config)
    return planned


def _removal(
    one: LanguageHeads,
    role: Role,
    heads: HeadSet,
    texts: tuple[str, ...],
    draws: Sequence[tuple[Kind, HeadSet | None, tuple[str, ...]]],
    config: LanguageRemoval,
) -> Iterator[Condition]:
    """Some heads of a language, and the random draws beside them: their kind, what they avoid, and
    the texts they are read on."""
    yield Condition(one.language, role, "removed", one.wanted, None, heads, 0, texts)
    for kind, avoid, read in draws:
        matched = kind == "random-layer-matched"
        if matched and not config.layer_matched:
            continue
        found = draw_heads(heads, config.draws, config.seed, avoid, matched)
        for number, drawn in enumerate(found):
            yield Condition(
                one.language, role, kind, one.wanted, number, drawn.heads, drawn.filled_up, read
            )


def read_texts(
    lm: LanguageModel,
    documents: Mapping[str, Documents],
    planned: Sequence[Condition],
    config: LanguageRemoval,
    run: Run,
    means: Callable[[], Means] | None = None,
    progress: Progress | None = None,
) -> dict[str, Text]:
    """The losses of every language's documents under every condition, by language.

    Conditions that remove the same heads are run once. Each language under each of them is kept in
    `run` as soon as it is read, so that a run that was stopped goes on there. `means` gives the
    heads' mean outputs, and is asked once where `config.ablate` is "mean".
    """
    kept = run.read_part(PART)
    asked: dict[str, tuple[HeadSet, set[str]]] = {}
    for one in planned:
        asked.setdefault(one.key, (one.heads, set()))[1].update(one.texts)
    total = sum(len(documents[name].rows) for _, names in asked.values() for name in names)
    done = 0
    replacing: Means | None = None
    for key, (heads, names) in asked.items():
        missing = [name for name in documents if name in names and f"{name} {key}" not in kept]
        if missing and len(heads) and config.ablate == "mean" and replacing is None:
            replacing = means() if means is not None else None
        with _without(lm, heads, config.ablate, replacing) if missing else _as_is():
            for name in documents:
                if name in missing:
                    found = _losses(lm, name, documents[name], config, progress, done, total)
                    kept[f"{name} {key}"] = found
                    run.append_part(PART, f"{name} {key}", found)
                if name in names:
                    done += len(documents[name].rows)
                    if progress:
                        progress("reading documents", done, total)
    return {name: _text(name, one, planned, kept) for name, one in documents.items()}


def _losses(
    lm: LanguageModel,
    name: str,
    documents: Documents,
    config: LanguageRemoval,
    progress: Progress | None,
    before: int,
    total: int,
) -> list[float]:
    """The summed loss of each document in nats."""
    from headscope.lm.losses import token_losses

    def report(done: int, _: int) -> None:
        if progress and done < len(documents.rows):
            progress("reading documents", before + done, total)

    losses = token_losses(lm, documents.rows, None, config.batch_tokens, report)
    sums = [float(one.sum(dtype=np.float64)) for one in losses]
    for place, value in zip(documents.places, sums, strict=True):
        if not np.isfinite(value):
            raise InputError(
                f"{place}: the loss of this document ({name}) is {value}, so no mean can be told; "
                "try --dtype float32, or leave the document out"
            )
    return sums


def _text(
    name: str, documents: Documents, planned: Sequence[Condition], kept: Mapping[str, Any]
) -> Text:
    missing = [float("nan")] * len(documents.rows)
    rows = [kept[f"{name} {one.key}"] if name in one.texts else missing for one in planned]
    return Text(np.array(rows, dtype=np.float64), documents.tokens)


def _without(
    lm: LanguageModel, heads: HeadSet, ablate: options.AblateName, means: Means | None
) -> contextlib.AbstractContextManager[None]:
    return lm.gated(heads.removed(), ablate, means) if len(heads) else _as_is()


def _as_is() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()
