"""Ranks of the first tokens of answers among all tokens a model could go on with.

A rank is 1 + the number of tokens with a strictly larger logit. An answer may have several forms
(English, native), of which the best counts. Where a tokenizer writes the space before a form as a
token of its own, which tells nothing, the rank is that of the token after it, the space given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from headscope.data.transfer import TransferPrompt
from headscope.lm.batching import collate, in_halves, length_buckets
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.prompting import encode_answers
from headscope.verify.removal.conditions import Pass

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

Progress = Callable[[str, int, int], None]

#: Prompts whose ranks are kept together: what a killed run can lose.
KEPT_AT_ONCE = 512
PART = "ranks"


@dataclass(frozen=True)
class Form:
    """One form of an answer: whose it is ("a" or "b"), its text, and its first token as it follows
    the prompt, which is to be predicted from the tokens `before`."""

    side: str
    text: str
    english: bool
    before: tuple[int, ...]
    token: int


Forms = tuple[Form, ...]


def first_tokens(
    lm: LanguageModel, prompts: Sequence[TransferPrompt], chat: bool = False
) -> list[Forms]:
    """The first token of every form of both answers of each prompt, each form tokenised with its
    prompt as one string. Tokens of white space alone belong to no answer.

    Raises `InputError` as `headscope.lm.prompting.encode_answers` does.
    """
    asked = [
        (at, side, form, form == answer.english)
        for at, one in enumerate(prompts)
        for side, answer in (("a", one.answer_a), ("b", one.answer_b))
        for form in answer.forms
    ]
    texts = [prompts[at].prompt for at, *_ in asked]
    stems = [prompts[at].stem for at, *_ in asked]
    whole = [f"{stem} {form}".lstrip() for stem, (_, _, form, _) in zip(stems, asked, strict=True)]
    rows = encode_answers(lm, texts, whole, chat)
    begun = {
        stem: at for at, stem in enumerate(dict.fromkeys(zip(texts, stems, strict=True))) if stem[1]
    }
    stemmed = encode_answers(lm, [text for text, _ in begun], [stem for _, stem in begun], chat)
    places = {key: stemmed[number] for number, key in enumerate(begun)}
    found: list[list[Form]] = [[] for _ in prompts]
    for (at, side, form, english), text, stem, row in zip(asked, texts, stems, rows, strict=True):
        start = row.start
        if stem:
            given = places[text, stem].ids
            same = (one == other for one, other in zip(row.ids, given, strict=False))
            # Where the stem's last token changes with what follows, the answer begins there.
            start = next(
                (n for n, one in enumerate(same) if not one), min(len(given), len(row.ids) - 1)
            )
        while start < len(row.ids) - 1 and not lm.tokenizer.decode([row.ids[start]]).strip():
            start += 1
        found[at].append(Form(side, form, english, row.ids[:start], row.ids[start]))
    return [tuple(forms) for forms in found]


def kept_ranks(
    lm: LanguageModel,
    forms: Sequence[Forms],
    passes: Mapping[str, Pass],
    batch_tokens: int,
    run: Run,
    progress: Progress | None = None,
) -> dict[str, dict[int, list[int]]]:
    """The rank of every form in every pass: by pass and place of the prompt, in the forms' order.

    Ranks are kept in `run` some hundred prompts at a time, so that a stopped run goes on there.
    """
    kept = run.read_part(PART)
    total, done = sum(len(one.rows) for one in passes.values()), 0
    found: dict[str, dict[int, list[int]]] = {}
    for key, one in passes.items():
        found[key] = {}
        for place, start in enumerate(range(0, len(one.rows), KEPT_AT_ONCE)):
            block, part = one.rows[start : start + KEPT_AT_ONCE], f"{place} {key}"
            if part not in kept:
                with one.applied(lm):
                    kept[part] = _ranks(lm, [forms[at] for at in block], batch_tokens)
                run.append_part(PART, part, kept[part])
            found[key].update(zip(block, kept[part], strict=True))
            done += len(block)
            if progress:
                progress("ranking answers", done, total)
    return found


def _ranks(lm: LanguageModel, forms: Sequence[Forms], batch_tokens: int) -> list[list[int]]:
    """Ranks of the forms of each prompt; forms that follow the same tokens share a row."""
    wanted: dict[tuple[int, ...], dict[int, int]] = {}
    for one in forms:
        for form in one:
            wanted.setdefault(form.before, {})[form.token] = 0
    rows = list(wanted)

    def work(batch: list[int]) -> torch.Tensor:
        inputs = forward_inputs(
            lm.model, collate([rows[at] for at in batch], lm.pad_token_id), False
        )
        logits: torch.Tensor = lm.model(**inputs).logits[:, -1].float()
        return logits

    with evaluating(lm.model), torch.no_grad():
        for batch, logits in in_halves(
            length_buckets([len(row) for row in rows], batch_tokens, lm.pass_overhead), work
        ):
            for at, row in zip(batch, logits, strict=True):
                for token in wanted[rows[at]]:
                    wanted[rows[at]][token] = 1 + int((row > row[token]).sum())
    return [[wanted[form.before][form.token] for form in one] for one in forms]
