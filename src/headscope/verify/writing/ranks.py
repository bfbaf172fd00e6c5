"""Ranks of the first tokens of answers, at the end of the model and layer by layer (logit lens).

A rank is 1 + the number of tokens with a strictly larger logit. An answer may have several forms
(English, native), of which the best counts. Where a tokenizer writes the space before a form as a
token of its own, which tells nothing, the rank is that of the token after it, the space given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.data.transfer import TransferPrompt
from headscope.evidence.rows import Condition
from headscope.evidence.runner import ZERO, Pass, Replacements, kept_rows, pass_of
from headscope.lm.lens import lens, token_ranks
from headscope.lm.prompting import encode_answers
from headscope.lm.states import states
from headscope.progress import Progress
from headscope.results.writing import LensCondition, LensLayer

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

#: Tokens shown of each layer under the lens.
SHOWN = 5


@dataclass(frozen=True)
class Form:
    """One form of an answer: whose it is ("a" or "b"), its text, and its first token as it follows
    the prompt, which is to be predicted from the tokens `before`."""

    side: str
    text: str
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
    forms = [
        (at, side, form)
        for at, prompt in enumerate(prompts)
        for side, answer in (("a", prompt.answer_a), ("b", prompt.answer_b))
        for form in answer.forms
    ]
    begun = [(prompts[at].prompt, prompts[at].stem) for at, *_ in forms]
    wholes = [f"{stem} {form}".lstrip() for (_, stem), (*_, form) in zip(begun, forms, strict=True)]
    rows = encode_answers(lm, [text for text, _ in begun], wholes, chat)
    stems = [key for key in dict.fromkeys(begun) if key[1]]
    given = encode_answers(lm, [text for text, _ in stems], [stem for _, stem in stems], chat)
    stemmed = dict(zip(stems, given, strict=True))
    by_prompt: list[list[Form]] = [[] for _ in prompts]
    for (at, side, form), key, row in zip(forms, begun, rows, strict=True):
        start = row.start
        if key in stemmed:
            ids = stemmed[key].ids
            differ = (a != b for a, b in zip(row.ids, ids, strict=False))
            # Where the stem's last token changes with what follows, the answer begins there.
            start = next(
                (n for n, new in enumerate(differ) if new), min(len(ids), len(row.ids) - 1)
            )
        while start < len(row.ids) - 1 and not lm.decode([row.ids[start]], special=True).strip():
            start += 1
        by_prompt[at].append(Form(side, form, row.ids[:start], row.ids[start]))
    return [tuple(forms) for forms in by_prompt]


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

    def ranked(block: Sequence[int]) -> list[list[int]]:
        return _ranks(lm, [forms[at] for at in block], batch_tokens)

    def decides(block: Sequence[int]) -> list[Forms]:
        return [forms[at] for at in block]

    return kept_rows(lm, passes, ranked, run, "ranks", "ranking answers", progress, decides)


def _ranks(lm: LanguageModel, forms: Sequence[Forms], batch_tokens: int) -> list[list[int]]:
    """Ranks of the forms of each prompt; forms that follow the same tokens share a row."""
    wanted: dict[tuple[int, ...], dict[int, int]] = {}
    for answers in forms:
        for form in answers:
            wanted.setdefault(form.before, {})[form.token] = 0
    rows = list(wanted)
    for batch, logits in lm.in_batches(
        map(len, rows), batch_tokens, lambda batch: lm.next_logits([rows[at] for at in batch])
    ):
        for at, row in zip(batch, logits, strict=True):
            for token in wanted[rows[at]]:
                wanted[rows[at]][token] = 1 + int((row > row[token]).sum())
    return [[wanted[form.before][form.token] for form in answers] for answers in forms]


def example_lens(
    lm: LanguageModel,
    conditions: Sequence[Condition],
    forms: Forms,
    replacements: Replacements = ZERO,
) -> tuple[LensCondition, ...]:
    """What each layer would say at the last token of a prompt, for every condition that is no draw.

    Ranks are those of the forms that follow the same tokens as the first form does; None where an
    answer has no such form. `replacements` stand in the place of what gates remove.
    """
    before = forms[0].before
    known = [form for form in forms if form.before == before]

    def best(side: str, ranks: Sequence[float]) -> int | None:
        own = (int(rank) for form, rank in zip(known, ranks, strict=True) if form.side == side)
        return min(own, default=None)

    lenses = []
    for condition in conditions:
        if condition.draw is not None:
            continue
        with pass_of(condition, lm.geometry, [0], replacements).applied(lm):
            layers = states(lm, [before]).after_layer[0]
        top = lens(lm, layers, SHOWN)
        ranks = token_ranks(lm, layers, [form.token for form in known]).tolist()
        rows = [
            LensLayer(
                layer,
                tuple(lm.decode([int(token)], special=True) for token in tokens),
                tuple(logits.tolist()),
                best("a", ranks[layer]),
                best("b", ranks[layer]),
            )
            for layer, (tokens, logits) in enumerate(zip(top.tokens, top.logits, strict=True))
        ]
        lenses.append(LensCondition(condition.id, tuple(rows)))
    return tuple(lenses)
