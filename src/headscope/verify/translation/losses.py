"""Losses of the reference translations under every condition, by kind of token.

A reference is teacher-forced: the model reads it and is asked for each of its tokens. A token is
the first one of a linked word, a later one of such a word (which follows from the first, and so
says little about the source), or belongs to no linked word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headscope.data.align import Alignment, AlignWords, align_words
from headscope.data.pairs import PairFile
from headscope.data.prompts import translation_prompts
from headscope.data.words import membership, within
from headscope.errors import InputError
from headscope.progress import Progress
from headscope.verify.translation.conditions import Condition, Removal

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.shared_losses import AnswerRow
    from headscope.runs import Run

#: The kinds of tokens, in the order of the arrays.
CLASSES = ("linked", "linked_later", "unlinked")


@dataclass(frozen=True, eq=False)
class ReferenceLosses:
    """The losses of one direction.

    Attributes:
        sums: float64 (C, S, 3): nats over the tokens of each kind, by condition and sentence.
        tokens: int64 (S, 3): how many tokens of each kind a sentence has; at least one in all.
    """

    sums: NDArray[np.float64]
    tokens: NDArray[np.int64]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays as a file holds them."""
        return {"nll": self.sums, "nll_tokens": self.tokens.astype(np.int32)}


def reference_alignment(pairs: PairFile, run: Run) -> Alignment:
    """The links of the references: those of the data, else eflomal's, computed once a run."""
    name = f"{pairs.source_language}-{pairs.target_language}"
    kept = run.read_part("reference-links").get(name)
    if kept is not None:
        return Alignment.from_dict(kept)
    alignment = align_words(pairs.pairs, AlignWords())
    run.append_part("reference-links", name, alignment.as_dict())
    return alignment


def answer_rows(
    lm: LanguageModel, pairs: PairFile, alignment: Alignment, config: Removal
) -> tuple[list[AnswerRow], list[NDArray[np.intp]]]:
    """Each prompt with its reference as tokens, and the kind of each of the reference's tokens.

    Raises `InputError` if one is longer than the context or has no token of its own.
    """
    from headscope.lm.prompting import chat_writer
    from headscope.lm.shared_losses import AnswerRow
    from headscope.lm.tokens import encode

    writer = chat_writer(lm, config.chat, config.template.text)
    prompts = translation_prompts(pairs, config.template, writer, lm.tokenizer.bos_token or "")
    rows, kinds = [], []
    for number, (pair, prompt) in enumerate(zip(pairs.pairs, prompts, strict=True)):
        full = prompt.with_target(pair.target)
        text = encode(lm.tokenizer, full.text, full.special)
        places = np.flatnonzero(within(text.spans, *full.target_span))
        if len(text.ids) > lm.context_length:
            raise pairs.too_long(number, len(text.ids), lm.context_length)
        if not len(places) or places[0] < 1:
            where = f"pair {number + 1}" if pair.line is None else f"line {pair.line}"
            raise InputError(
                f"{pairs.path}, {where}: has {len(text.ids)} tokens with its prompt, "
                f"{len(places)} of them in the translation, and the model's context holds "
                f"{lm.context_length}; leave the pair out"
            )
        links = alignment.links[number] or frozenset()
        of_word = membership(text.spans[places], alignment.target_words[number], full.target_start)
        of_word = of_word[:, sorted({word for _, word in links})]
        first = of_word & (of_word.cumsum(axis=0) == 1)
        kinds.append(np.where(first.any(axis=1), 0, np.where(of_word.any(axis=1), 1, 2)))
        rows.append(AnswerRow(text.ids, places))
    return rows, kinds


def reference_losses(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    alignments: Mapping[str, Alignment],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    means: NDArray[np.float32] | None = None,
    progress: Progress | None = None,
) -> dict[str, ReferenceLosses]:
    """The losses of every direction's references under every condition.

    Each condition is kept in `run`, and a run that was stopped goes on there. Conditions with the
    same gate are read once. `means` are the heads' mean outputs, for mean ablation.
    """
    from headscope.lm.shared_losses import answer_losses

    kept: dict[str, Any] = run.read_part("losses")
    passes = {condition.key: condition.on((), means) for condition in planned}
    found = {}
    for number, (name, pairs) in enumerate(directions.items()):
        rows, kinds = answer_rows(lm, pairs, alignments[name], config)
        left = [key for key in passes if f"{name} {key}" not in kept]
        made = answer_losses(
            lm,
            rows,
            [passes[key].gate for key in left],
            [passes[key].means for key in left],
            config.batch_tokens,
        )
        done = len(passes) * (number + 1) - len(left)
        for at, losses in made:
            sums = [
                np.bincount(kind, weights=one, minlength=3).tolist()
                for kind, one in zip(kinds, losses, strict=True)
            ]
            run.append_part("losses", f"{name} {left[at]}", sums)
            kept[f"{name} {left[at]}"] = sums
            done += 1
            if progress:
                progress("reading references", done, len(passes) * len(directions))
        found[name] = ReferenceLosses(
            np.array([kept[f"{name} {one.key}"] for one in planned], dtype=np.float64),
            np.stack([np.bincount(kind, minlength=3) for kind in kinds]),
        )
    return found
