"""Key-token attention of one prompt, in a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from headscope import options
from headscope.data.files import decoded, open_bytes, whole_text
from headscope.data.rows import clean_text
from headscope.errors import InputError
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.headline import Case
from headscope.evidence.rows import Evidence
from headscope.find.key_tokens_attention import (
    ATTENTION,
    PART,
    DrawsOrNone,
    KeyTokenAttention,
    KeyTokens,
    conditions_of,
    key_attention,
    locate_words,
    worded,
)
from headscope.heads import HeadSet, resolve_heads
from headscope.heads.geometry import keys_of
from headscope.results.common import ModelFacts
from headscope.results.key_tokens import (
    HeadAttention,
    KeyTokensDetails,
    KeyTokensResult,
    KeyWord,
    WordAttention,
)
from headscope.runs import Run
from headscope.runs.reading import damaged_line, mixed_up, read_arrays, read_rows
from headscope.settings import UNSIGNED, MadeBy, Option
from headscope.shown.blocks import (
    Cell,
    Heatmap,
    KeyText,
    Row,
    Section,
    Table,
)
from headscope.shown.words import count, enumeration, percent
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparing,
    Comparison,
    Examples,
    Measured,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.shows import places

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Stands for a token that cannot be seen.
NOTHING = "\u00b7"


def _prompt(
    prompt: Annotated[
        str | None, Option("The prompt, as the model reads it.", metavar="TEXT", panel="Prompt")
    ] = None,
    prompt_file: Annotated[
        Path | None,
        Option(
            "A UTF-8 file that holds the prompt; a line break at its end is left out.",
            metavar="FILE",
            panel="Prompt",
        ),
    ] = None,
) -> str:
    """The text that one of both gives."""
    if prompt_file is None and prompt is not None:
        return clean_text(prompt, "the prompt", lines=True)
    if prompt_file is None or prompt is not None:
        raise InputError("give the prompt as --prompt TEXT or as --prompt-file FILE, one of both")
    with open_bytes(prompt_file) as handle:
        text = decoded(whole_text(handle, prompt_file), prompt_file)
    text = text.replace("\r\n", "\n").removesuffix("\n")
    return clean_text(text, str(prompt_file), lines=True)


@dataclass(frozen=True, kw_only=True)
class FindKeyTokens(Comparing, KeyTokens):
    """Measure the attention that heads pay to key words of a prompt while an answer is predicted.

    Compared with even attention over all visible tokens and with random heads.
    """

    prompt: Annotated[str, MadeBy(_prompt)]
    # What counts is which heads these are, not where they are written down.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        str | None, Option("Number of heads, or a share such as 0.15 or 15%.", metavar="K")
    ] = field(default=None, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    draws: DrawsOrNone = 10
    # One prompt is one batch.
    batch_tokens: int = field(default=8192, init=False, metadata=UNSIGNED)


def _read(config: FindKeyTokens) -> Examples[str]:
    locate_words(config.prompt, config.words)  # a slip is told before a model is loaded
    return Examples({PART: config.prompt}, {}, {})


def _ready(
    lm: LanguageModel, config: FindKeyTokens, examples: Examples[str]
) -> tuple[FindKeyTokens, Examples[str]]:
    from headscope.lm.prompting import uses_chat

    config = replace(config, chat=uses_chat(lm, config.chat, config.prompt))
    wording = worded(lm, config.prompt, config.chat)
    return config, replace(examples, texts={PART: [wording.text]})


def _heads(lm: LanguageModel, config: FindKeyTokens, examples: Examples[str]) -> Chosen:
    heads = resolve_heads(config.heads, config.k, lm.geometry, by=config.rank, model=lm.name)
    # Conditions that change nothing do not tell of which heads they are.
    signed = {"chosen": [*keys_of(heads)]}
    return Chosen({ALL_PARTS: [SelectedHeads(heads)]}, signed=signed)


def _measure(bench: Bench[FindKeyTokens, str]) -> Measured:
    """Beside the result the run holds `steps.safetensors` (`attention` and `even` by step, head and
    word, `mass` and `even_mass` by step and head; heads in the result's order), `tokens.jsonl` (the
    characters of every token of prompt and answer) and the heads as a saved set."""
    lm, run, (heads,) = bench.lm, bench.run, bench.chosen.every()
    if bench.progress:
        bench.progress("key tokens", 0, 1)
    attention = key_attention(lm, bench.parts[PART], bench.of(PART), bench.config)
    if bench.progress:
        bench.progress("key tokens", 1, 1)
    # Best first, as every command of this kind lists heads.
    order = sorted(
        range(len(attention.heads)), key=lambda at: (-attention.scores[at], attention.heads[at])
    )
    ranked = HeadSet(lm.geometry, tuple(attention.heads[at] for at in order), heads.origin)
    ranked.save_pretrained(run.path / "heads")
    _write(run, attention, order)
    model = ModelFacts(lm.name, lm.revision, heads=lm.geometry.total)
    about, told = _described(attention, order)
    return Measured(attention.evidence, about, {"scored": told, "model": model})


def _write(run: Run, keys: KeyTokenAttention, order: list[int]) -> None:
    run.write_tensors(
        "steps.safetensors",
        {
            "attention": keys.attention[:, order],
            "even": keys.even[:, order],
            "mass": keys.mass[:, order],
            "even_mass": keys.even_mass[:, order],
        },
    )
    rows: list[dict[str, Any]] = []
    for place, (start, end) in enumerate(keys.prompt_spans.tolist()):
        words = [at for at, tokens in enumerate(keys.word_tokens) if place in tokens]
        rows.append({"part": "prompt", "start": start, "end": end, "words": words})
    for start, end in keys.answer_spans.tolist():
        rows.append({"part": "answer", "start": start, "end": end, "words": []})
    run.write_jsonl("tokens.jsonl", rows)


def _described(
    keys: KeyTokenAttention, order: list[int]
) -> tuple[dict[str, Any], tuple[HeadAttention, ...]]:
    """What the details tell of the words, and the heads in this order."""
    scores = keys.scores
    means, even = (array.mean(axis=0, dtype=np.float64) for array in (keys.attention, keys.even))
    even_mass = keys.even_mass.mean(axis=0, dtype=np.float64)
    steps = [keys.answer[start:end] for start, end in keys.answer_spans.tolist()]

    def word_of(at: int, index: int) -> WordAttention:
        highest = int(keys.attention[:, at, index].argmax())
        return WordAttention(
            word=keys.words[index].name,
            mean=float(means[at, index]),
            uniform=float(even[at, index]),
            max=float(keys.attention[highest, at, index]),
            step=highest,
            token=steps[highest] if steps else None,
        )

    about = {
        "tokens": int(keys.mass.shape[0]),
        "uniform": float(even_mass.mean()),
        "words": tuple(
            KeyWord(
                word=word.name,
                spans=tuple(word.spans),
                tokens=len(tokens),
                mean=float(means[:, index].mean()),
                uniform=float(even[:, index].mean()),
            )
            for index, (word, tokens) in enumerate(zip(keys.words, keys.word_tokens, strict=True))
        ),
        "prompt": keys.prompt,
        "answer": keys.answer,
        "generated": keys.generated,
    }
    heads = tuple(
        HeadAttention(
            layer=keys.heads[at].layer,
            head=keys.heads[at].head,
            score=float(scores[at]),
            uniform=float(even_mass[at]),
            words=tuple(word_of(at, index) for index in range(len(keys.words))),
        )
        for at in order
    )
    return about, heads


def _cautions(found: Evidence, details: KeyTokensDetails) -> Iterator[str]:
    yield "One prompt: no interval is known, and other prompts may give other numbers."
    if not found.controls:
        yield "There are no random heads, so there is no control."


def _cases(found: Evidence, details: KeyTokensDetails) -> list[Case]:
    return [Case(ATTENTION, found.main, lead=f"In {count(found.main.k, 'head')}")]


def _extras(result: KeyTokensResult, run: Path) -> Extras:
    """Heads by word, and where they look step by step."""
    found, details = result.evidence, result.details
    whose = "written by the model, greedy" if details.generated else "given"
    text, words = _text(result, run), _words(result)
    return Extras(
        sentences=[f"Even attention would give {percent(details.uniform, 1)}."],
        rests_on=f"One prompt, {count(details.tokens, 'step')}",
        facts=[
            ("key words", enumeration(details.names)),
            ("answer", whose if text.steps else "none; the last token of the prompt was read"),
        ],
        sections=[
            *([Section("Heads and words", [words], brief=True)] if found.controls else []),
            Section("Where the heads look", [text]),
            Section("Highest attention", [_peaks(result)]),
        ],
        figure=None if found.controls else words,
        sides=("selected less", "selected more"),
    )


def _words(result: KeyTokensResult) -> Heatmap:
    names = result.details.names
    several = len(names) > 1
    return Heatmap(
        "Mean attention of each head to each word",
        tuple(str(head.place) for head in result.scored),
        (*["all words"] * several, *names),
        tuple(
            tuple(100 * share for share in (*[head.score] * several, *(w.mean for w in head.words)))
            for head in result.scored
        ),
        "% of attention",
        "head",
        low=0.0,
        digits=1,
    )


def _peaks(result: KeyTokensResult) -> Table:
    def cell(word: WordAttention) -> Cell:
        at = "" if word.token is None else f", at \u201c{word.token.strip() or NOTHING}\u201d"
        return Cell(f"{percent(word.max, 1)}{at}")

    rows = tuple(Row(str(head.place), tuple(map(cell, head.words))) for head in result.scored)
    return Table(
        "Highest attention in any step",
        result.details.names,
        rows,
        note="with the token it predicts",
    )


def _text(result: KeyTokensResult, run: Path) -> KeyText:
    """Prompt and answer with their attention; InputError if the files are not of one run."""
    arrays = read_arrays(run / "steps.safetensors", ("attention", "mass", "even_mass"))
    spans = _answer_spans(run / "tokens.jsonl")
    shape = result.details.tokens, len(result.scored), len(result.details.words)
    if (
        arrays["attention"].shape != shape
        or arrays["mass"].shape != shape[:2]
        or arrays["even_mass"].shape != shape[:2]
        or len(spans) not in (0, shape[0])
    ):
        raise mixed_up(run)
    return KeyText(
        "Where the heads look, step by step",
        result.details.prompt,
        tuple((word.word, word.spans) for word in result.details.words),
        result.details.answer,
        spans,
        places(head.place for head in result.scored),
        arrays["attention"],
        arrays["mass"],
        arrays["even_mass"],
    )


def _answer_spans(path: Path) -> tuple[tuple[int, int], ...]:
    spans = []
    for line, row in read_rows(path):
        try:
            if row["part"] == "answer":
                spans.append((int(row["start"]), int(row["end"])))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(path, line) from error
    return tuple(spans)


WORDS = Words(
    "Key tokens",
    "How much of their attention do heads pay to key words of a prompt?",
    "prompt",
    "At each step, before it predicts a token, a head spreads a weight of 100\u00a0% over the "
    "tokens so far; the weights on the tokens of a key word are added up and averaged over steps. "
    "All words: a token that belongs to several words counts once. Even: what all words would get "
    "if a head gave every token the same weight. The weights are exact, from the queries and keys "
    "of the model.",
)

comparison = Comparison(
    command="find key-tokens",
    settings=FindKeyTokens,
    result=KeyTokensResult,
    details=KeyTokensDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    plan=lambda sets, config, basis: conditions_of(sets[0].heads, config, basis),
    measure=_measure,
    cases=_cases,
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="prompts",
    usage="--heads 5.3 --prompt 'The dog sleeps.' --word dog",
)
command = comparison.study
