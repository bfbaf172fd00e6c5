"""Key-token attention of one prompt, in a run folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headscope import options
from headscope.errors import InputError
from headscope.find.key_tokens import KeyTokenAttention, KeyTokens, key_tokens
from headscope.find.key_words import locate_words
from headscope.heads import HeadSet, about_rank, resolve_heads
from headscope.results.common import ModelFacts
from headscope.results.key_tokens import (
    HeadAttention,
    KeyTokensResult,
    KeyWord,
    WordAttention,
)
from headscope.runs import Run
from headscope.settings import UNSIGNED, MadeBy, Option, Settings
from headscope.studies.inputs import ModelChoice, Progress, run_with_model

__all__ = ["COMMAND", "FindKeyTokens", "find_key_tokens"]

COMMAND = "find key-tokens"


def _prompt(
    prompt: Annotated[
        str | None, Option("The prompt, as the model reads it.", metavar="TEXT")
    ] = None,
    prompt_file: Annotated[
        Path | None,
        Option(
            "A UTF-8 file that holds the prompt; a line break at its end is left out.",
            metavar="FILE",
        ),
    ] = None,
) -> str:
    """The text that one of both gives."""
    if prompt_file is None and prompt is not None:
        return prompt
    if prompt_file is None or prompt is not None:
        raise InputError("give the prompt as --prompt TEXT or as --prompt-file FILE, one of both")
    try:
        return prompt_file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except OSError as error:
        raise InputError(
            f"{prompt_file}: cannot be read ({error.strerror}); check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{prompt_file}: is not UTF-8 (byte {error.start}); save it as UTF-8 text"
        ) from error


@dataclass(frozen=True)
class FindKeyTokens(Settings):
    """Measure the attention that heads pay to key words of a prompt while an answer is predicted.

    Beside it stands what even attention over all visible tokens would give, and random other heads.
    """

    prompt: Annotated[str, MadeBy(_prompt)]
    # What counts is which heads these are, not where they are written down.
    heads: options.Heads = field(metadata=UNSIGNED)
    measure: KeyTokens
    k: Annotated[
        str | None, Option("Number of heads, or a share such as 0.15 or 15%.", metavar="K")
    ] = field(default=None, metadata=UNSIGNED)
    model: ModelChoice = field(default_factory=ModelChoice)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)


def find_key_tokens(
    config: FindKeyTokens, out: Path | None = None, progress: Progress | None = None
) -> KeyTokensResult:
    """Measure, write the run and return the command's result.

    Beside the result the run holds `steps.safetensors` (`attention` and `even` by step, head and
    word, `mass` and `even_mass` by step and head; heads in the result's order), `tokens.jsonl` (the
    characters of every token of prompt and answer) and the heads as a saved set.
    """
    from headscope.lm.prompting import uses_chat

    began = time.monotonic()
    locate_words(config.prompt, config.measure.words)  # a slip is told before a model is loaded
    lm = config.model.load_for(out)
    chat = uses_chat(lm, config.measure.chat, config.prompt)
    config = replace(config, measure=replace(config.measure, chat=chat))
    heads = resolve_heads(config.heads, config.k, lm.geometry, by=config.rank)
    rank = about_rank(heads)
    settings = {
        "settings": config,
        "chosen": [str(head) for head in heads],
        "rank": rank["rank"],
    }

    def compute(run: Run) -> KeyTokensResult:
        if progress:
            progress("key tokens", 0, 1)
        found = key_tokens(lm, config.prompt, heads, config.measure)
        if progress:
            progress("key tokens", 1, 1)
        # Best first, as every command of this kind lists heads.
        order = sorted(range(len(found.heads)), key=lambda at: (-found.scores[at], found.heads[at]))
        ranked = HeadSet(lm.geometry, tuple(found.heads[at] for at in order), heads.origin)
        ranked.save_pretrained(run.path / "heads")
        _write(run, found, order)
        model = ModelFacts(lm.name, lm.revision, heads=lm.geometry.total)
        described = _describe(found, order)
        return replace(described, model=model, rank=rank["rank"], rank_note=rank["rank_note"])

    seed = config.measure.seed
    return run_with_model(
        lm, COMMAND, out, settings, {}, compute, began, kind=KeyTokensResult, seed=seed
    )


def _write(run: Run, found: KeyTokenAttention, order: list[int]) -> None:
    run.write_tensors(
        "steps.safetensors",
        {
            "attention": found.attention[:, order],
            "even": found.even[:, order],
            "mass": found.mass[:, order],
            "even_mass": found.even_mass[:, order],
        },
    )
    rows: list[dict[str, Any]] = []
    for place, (start, end) in enumerate(found.prompt_spans.tolist()):
        words = [at for at, tokens in enumerate(found.word_tokens) if place in tokens]
        rows.append({"part": "prompt", "start": start, "end": end, "words": words})
    for start, end in found.answer_spans.tolist():
        rows.append({"part": "answer", "start": start, "end": end, "words": []})
    run.write_jsonl("tokens.jsonl", rows)


def _describe(found: KeyTokenAttention, order: list[int]) -> KeyTokensResult:
    """The result but for the ranking and the model; its heads in this order."""
    scores = found.scores
    means, even = (array.mean(axis=0, dtype=np.float64) for array in (found.attention, found.even))
    even_mass = found.even_mass.mean(axis=0, dtype=np.float64)
    steps = [found.answer[start:end] for start, end in found.answer_spans.tolist()]

    def word_of(at: int, index: int) -> WordAttention:
        highest = int(found.attention[:, at, index].argmax())
        return WordAttention(
            word=found.words[index].name,
            mean=float(means[at, index]),
            uniform=float(even[at, index]),
            max=float(found.attention[highest, at, index]),
            step=highest,
            token=steps[highest] if steps else None,
        )

    return KeyTokensResult(
        heads=tuple(
            HeadAttention(
                layer=found.heads[at].layer,
                head=found.heads[at].head,
                score=float(scores[at]),
                uniform=float(even_mass[at]),
                words=tuple(word_of(at, index) for index in range(len(found.words))),
            )
            for at in order
        ),
        tokens=int(found.mass.shape[0]),
        score=float(scores.mean()),
        uniform=float(even_mass.mean()),
        words=tuple(
            KeyWord(
                word=word.name,
                spans=tuple(word.spans),
                tokens=len(tokens),
                mean=float(means[:, index].mean()),
                uniform=float(even[:, index].mean()),
            )
            for index, (word, tokens) in enumerate(zip(found.words, found.word_tokens, strict=True))
        ),
        control=found.controls,
        prompt=found.prompt,
        answer=found.answer,
        generated=found.generated,
    )
