"""Which heads carry the language that is asked for from its name to the answer.

Two prompts ask for a translation of one sentence into two languages; they differ in the language's
name alone (and in their examples, if there are any). Three numbers of every head, at the last
token, which predicts the first of the answer: its attention to the name; how well its output tells
the languages asked for apart; and how far its output in the other prompt, put in the place of its
own, moves the answer to the other language. The last is activation patching (Todd et al. 2024,
section 2; see `headscope.find.patching_scores`), here of log-odds: with $`a`$ and $`b`$ the first
tokens that the model writes after the two prompts, $`m = \\log p(b) - \\log p(a)`$, and the score
of a head the sum over examples of what the patch adds to $`m`$, over that of what the other prompt
adds: 0 where it moves nothing, 1 where it does what the other prompt does.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.data.words import Word, membership
from headscope.errors import InputError
from headscope.evidence.runner import prompts_of
from headscope.find.key_tokens_attention import locate_words
from headscope.find.scoring import Resampled, RunPart, rate, scored
from headscope.heads import HeadScores
from headscope.progress import Steps

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.runs import Run


@dataclass(frozen=True)
class LanguageName(Resampled):
    """How the languages are asked for.

    Attributes:
        template, chat: the wording of a prompt; it must name the target language.
        seed: of drawing the other languages and sentences, and of the bootstrap over examples.
        batch_tokens: upper bound of rows × tokens of a batch.
    """

    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = 8192


@dataclass(frozen=True)
class NamedPrompt:
    """A prompt as tokens, and the places of those that hold the name of the language asked for."""

    ids: tuple[int, ...]
    name: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LastTokens:
    """What a model makes of P prompts at their last tokens.

    Attributes:
        outputs: (P, L, W, D) in the model's dtype, on the CPU: every head's output.
        attention, even: float32 (P, L, W): the share of attention on the language's name, and what
            it would be were it spread evenly.
        first: int64 (P,), the likeliest next token.
    """

    outputs: torch.Tensor
    attention: NDArray[np.float32]
    even: NDArray[np.float32]
    first: NDArray[np.int64]


@dataclass(frozen=True)
class _Example:
    """Places of three prompts: the one that is patched, the one with the other language's name, and
    one of another sentence with the same name; the numbers of the language asked for and of the
    sentence, which directions may share."""

    clean: int
    other: int
    unrelated: int
    asked: int
    sentence: int


def others_of(name: str, directions: Mapping[str, PairFile]) -> list[str]:
    """The directions into another language out of the same one.

    Raises `InputError` if there is none, or the direction has a single sentence.
    """
    pairs = directions[name]
    others = [
        other
        for other, its in directions.items()
        if its.source_language == pairs.source_language
        and its.language_names[1] != pairs.language_names[1]
    ]
    if not others:
        raise InputError(
            f"{name} is the only direction out of {pairs.source_language}, and prompts are "
            "compared that ask for another language; give two, such as --data en-de=FILE "
            "--data en-fr=FILE"
        )
    if len({pair.source for pair in pairs.pairs}) < 2:
        raise InputError(f"{pairs.path} has one sentence for {name}; give two at least")
    return others


def named_prompts(
    lm: LanguageModel, pairs: PairFile, template: Template, chat: bool | None
) -> list[NamedPrompt]:
    """The prompt of every pair, with the places of its language's name outside of the sentence.

    Raises `InputError` if a prompt does not hold it.
    """
    source_name, name = pairs.language_names
    prompts = []
    for number, prompt in enumerate(prompts_of(lm, pairs, template, chat)):
        encoded = lm.encoded(prompt.text, prompt.special)
        if len(encoded.ids) >= lm.context_length:
            raise pairs.too_long(number, len(encoded.ids), lm.context_length)
        # A name within the sentence, or within that of the source language, is none.
        others = [prompt.source_span]
        if name in source_name and source_name in prompt.text:
            others += locate_words(prompt.text, [source_name])[0].spans
        spans = locate_words(prompt.text, [name])[0].spans if name in prompt.text else ()
        places = [
            Word(name, start, end)
            for start, end in spans
            if not any(first <= start and end <= last for first, last in others)
        ]
        tokens = np.flatnonzero(membership(encoded.spans, places).any(axis=1))
        if not len(tokens):
            raise InputError(
                f"the prompt {prompt.text[:60]!r} does not hold the name {name!r}; give a "
                "--template with {target_language}, or the name that it has by --language-name"
            )
        prompts.append(NamedPrompt(tuple(encoded.ids), tuple(tokens.tolist())))
    return prompts


def last_tokens(
    lm: LanguageModel, prompts: Sequence[NamedPrompt], batch_tokens: int = 8192
) -> LastTokens:
    """Read prompts, each once, in batches of similar length."""
    import torch

    from headscope.lm.attention.weights import WeightRequest
    from headscope.lm.inputs import evaluating
    from headscope.lm.patching import head_outputs

    shape = (len(prompts), *lm.geometry.shape)
    attention, even = np.zeros((2, *shape), dtype=np.float32)
    first = np.zeros(len(prompts), dtype=np.int64)
    outputs = torch.zeros(0)
    layers, numbers = np.array([(head.layer, head.head) for head in lm.geometry.heads()]).T

    def read(some: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        batch = lm.collate([prompts[at].ids for at in some])
        keys = torch.full((len(some), max(len(prompts[at].name) for at in some)), -1)
        for row, (at, padding) in enumerate(zip(some, batch.padding, strict=True)):
            places = torch.tensor(prompts[at].name)
            keys[row, : len(places)] = places + padding
        request = WeightRequest(keys, rows="last")
        with head_outputs(lm) as seen, lm.attention_weights(request) as looked:
            logits = lm.forward(batch, logits=False).logits[:, -1]
        weights, uniform = (part.sum(dim=-1).cpu() for part in (looked.weights, looked.uniform))
        return seen.values.cpu(), weights, uniform, logits.argmax(dim=-1).cpu()

    lengths = [len(prompt.ids) for prompt in prompts]
    with evaluating(lm.model), torch.no_grad():
        for some, (values, weights, uniform, likeliest) in lm.in_batches(
            lengths, batch_tokens, read
        ):
            if not len(outputs):
                outputs = values.new_zeros((len(prompts), *values.shape[1:]))
            outputs[some] = values
            for whole, part in ((attention, weights), (even, uniform)):
                whole[np.array(some)[:, None], layers, numbers] = part.numpy()
            first[some] = likeliest.numpy()
    return LastTokens(outputs, attention, even, first)


def language_name(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    config: LanguageName = LanguageName(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> HeadScores:
    """How far every head's output moves the answer to the other language.

    Args:
        directions: sentences to be translated into at least two languages out of one, by direction.

    Returns:
        Scores with bootstrap bounds over sentences. `extra`: `chance`, the same when the output
            comes from another sentence with the same language's name; `attention` to the name and
            `even`, what it would be were it spread evenly; `apart`, the share of sentences whose
            language the output tells (nearest mean of the other half), of which 1 / `languages` is
            chance. `statistics`, by example: `moved`, `control`, `attention` and `even` (N, L, W),
            `whole` (N,), what the other prompt moves, and `sentence` (N,), its number. `config`
            tells `examples`, `sentences`, `left_out` by reason, and `languages`.

    Raises `InputError` as `others_of` and `named_prompts` do, and if the answers of no example
    begin with different tokens.
    """
    prompts, examples = _examples(lm, directions, config)
    read = last_tokens(lm, prompts, config.batch_tokens)
    kept = [
        at for at, each in enumerate(examples) if read.first[each.clean] != read.first[each.other]
    ]
    if not kept:
        raise InputError(
            f"none of {len(examples)} answers of {lm.name} begins otherwise where another language "
            "is asked for, so there is nothing to move; give other languages or wording "
            "(--template, --chat, --shots)"
        )
    part = RunPart(run, "language-name")
    done = {int(row["example"][0]): row for row in part.tensors("examples")}
    for number, at in enumerate(kept, 1):
        if at not in done:
            done[at] = _moved(lm, prompts, examples[at], read, config)
            part.keep_tensors("examples", f"{at:06d}", done[at] | {"example": np.array([at])})
        if progress:
            progress(number, len(kept))
    rows = [done[at] for at in kept]
    moved, control = (np.stack([row[name] for row in rows]) for name in ("moved", "control"))
    whole = np.concatenate([row["whole"] for row in rows])
    clean = [examples[at].clean for at in kept]
    # One sentence may be asked for in several languages: these examples are drawn together.
    numbers = np.array([examples[at].sentence for at in kept])
    sentences, place = np.unique(numbers, return_inverse=True)
    moved_of, whole_of = np.zeros((len(sentences), *moved.shape[1:])), np.zeros(len(sentences))
    np.add.at(moved_of, place, moved)
    np.add.at(whole_of, place, whole)
    statistics = {
        "moved": moved,
        "control": control,
        "whole": whole,
        "attention": read.attention[clean],
        "even": read.even[clean],
        "sentence": numbers,
    }
    extra = {name: statistics[name].mean(axis=0) for name in ("attention", "even")}
    asked = read.outputs[[each.clean for each in examples]].float().numpy()
    apart = _told_apart(asked, [each.asked for each in examples])
    extra["apart"] = np.where(np.isnan(moved[0]), np.nan, apart)
    about = {
        "examples": len(kept),
        "sentences": len(sentences),
        "tokens": len(kept),
        "left_out": {"same_first_token": len(examples) - len(kept)},
        "languages": len({each.asked for each in examples}),
    }
    return scored(
        lm,
        "language-name",
        config,
        run,
        moved_of,
        whole_of,
        {"chance": rate(control, whole, "micro"), **extra},
        statistics,
        about,
        average="micro",
        counts=False,
    )


def _examples(
    lm: LanguageModel, directions: Mapping[str, PairFile], config: LanguageName
) -> tuple[list[NamedPrompt], list[_Example]]:
    """Every sentence with its own language, with another one, and another sentence with its own."""
    rng = random.Random(f"language name {config.seed}")
    places: dict[NamedPrompt, int] = {}
    sentences: dict[str, int] = {}

    def placed(pairs: PairFile) -> list[int]:
        prompts = named_prompts(lm, pairs, config.template, config.chat)
        return [places.setdefault(prompt, len(places)) for prompt in prompts]

    own = {name: placed(pairs) for name, pairs in directions.items()}
    examples = []
    names = [*dict.fromkeys(pairs.language_names[1] for pairs in directions.values())]
    for name, pairs in directions.items():
        asked = names.index(pairs.language_names[1])
        others = others_of(name, directions)
        drawn = [rng.choice(others) for _ in pairs.pairs]
        for other in dict.fromkeys(drawn):
            some = [at for at, its in enumerate(drawn) if its == other]
            swapped = replace(directions[other], pairs=tuple(pairs.pairs[at] for at in some))
            for at, place in zip(some, placed(swapped), strict=True):
                unrelated = rng.choice([place for place in own[name] if place != own[name][at]])
                sentence = sentences.setdefault(pairs.pairs[at].source, len(sentences))
                examples.append(_Example(own[name][at], place, unrelated, asked, sentence))
    return [*places], examples


def _moved(
    lm: LanguageModel,
    prompts: Sequence[NamedPrompt],
    example: _Example,
    read: LastTokens,
    config: LanguageName,
) -> dict[str, NDArray[np.float64]]:
    """What the other prompt's outputs, one head at a time, add to the log-odds of its answer;
    likewise those of the unrelated prompt; and what the whole other prompt adds."""
    from headscope.lm.patching import patched_one_by_one

    tokens = [int(read.first[example.clean]), int(read.first[example.other])]
    clean, other = prompts[example.clean].ids, prompts[example.other].ids
    added = {}
    for name, source in (("moved", example.other), ("control", example.unrelated)):
        plain, changed = patched_one_by_one(
            lm, clean, read.outputs[source].to(lm.device), tokens, config.batch_tokens
        )
        change = changed - plain
        added[name] = change[..., 1] - change[..., 0]
    odds = lm.next_logits([clean, other])[:, tokens]
    both = odds.diff(dim=1)[:, 0].double().cpu().numpy()
    return added | {"whole": both[1:] - both[:1]}


def _told_apart(outputs: NDArray[np.float32], languages: Sequence[int]) -> NDArray[np.float64]:
    """The share (L, W) of prompts whose language each head's output tells: that of the nearest mean
    over the other half of the prompts. `outputs` are (N, L, W, D)."""
    known = np.array(languages)
    half = np.zeros(len(known), dtype=np.intp)
    for language in dict.fromkeys(languages):
        own = np.flatnonzero(known == language)
        half[own] = np.arange(len(own)) % 2
    right = np.zeros(outputs.shape[:3], dtype=bool)
    codes = np.unique(known)
    for tested in (0, 1):
        means = np.stack(
            [outputs[(known == code) & (half != tested)].mean(axis=0) for code in codes]
        )
        for at in np.flatnonzero(half == tested):
            distances = ((means - outputs[at]) ** 2).sum(axis=-1)
            right[at] = codes[distances.argmin(axis=0)] == known[at]
    shares: NDArray[np.float64] = right.mean(axis=0)
    return shares
