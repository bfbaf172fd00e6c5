"""Activation patching: heads whose output carries a target language, or a meaning, over.

A prompt asks for a word in one language; another prompt asks for another word in another language.
At the last token of the first prompt, one head's output from the second is put in. What happens to
the first word in the second language (the language came over) and to the second word in the first
language (the meaning came over) is measured apart, after Todd et al. 2024 (causal indirect effect
of a head's output at the last token) and Lasnier et al. 2026 (language and meaning apart).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.data.languages import language_name
from headscope.data.prompts import TEMPLATE_OPTION, Template, TemplateField
from headscope.data.words import ConceptFile
from headscope.errors import InputError
from headscope.find.scoring import Arrays, Resampled, RunPart, rate, scored
from headscope.heads import HeadScores
from headscope.progress import Steps
from headscope.settings import Option

if TYPE_CHECKING:
    import torch

    from headscope.lm import LanguageModel
    from headscope.runs import Run

WORD_TEMPLATE = Template(
    "Translate this word from {source_language} to {target_language}\nWord: {source}\nAnswer:"
)


@dataclass(frozen=True)
class WordPair:
    """A clean prompt and another one.

    Attributes:
        source, target, other_target: language codes; both prompts translate out of `source`.
        concepts: ids of the clean and the other meaning.
        words: their words in `source`.
        answers: of the clean and the other meaning, in `target` and in `other_target`: (clean in
            target, clean in other, other in target, other in other).
    """

    source: str
    target: str
    other_target: str
    concepts: tuple[str, str]
    words: tuple[str, str]
    answers: tuple[str, str, str, str]


@dataclass(frozen=True)
class ReadyPair:
    """A pair as tokens: both prompts, and the first token of each of the four answers."""

    pair: WordPair
    clean: tuple[int, ...]
    other: tuple[int, ...]
    firsts: tuple[int, int, int, int]


def word_pairs(concepts: ConceptFile, count: int, seed: int) -> list[WordPair]:
    """Pairs of prompts drawn at random: two meanings, a source and two target languages.

    No pair is drawn twice; there may be fewer where the words do not suffice.
    """
    rng = random.Random(f"patching {seed}")
    drawn: dict[tuple[Any, ...], WordPair] = {}
    able = [concept for concept in concepts.concepts if len(concept.words) >= 3]
    if len(able) < 2 or len(concepts.languages) < 3:
        raise InputError(
            f"{concepts.path} has {len(able)} meanings with words in three languages; patching "
            "needs at least two"
        )
    for _ in range(20 * count):
        first, second = rng.sample(able, 2)
        both = [code for code in concepts.languages if code in first.words and code in second.words]
        if len(both) < 3:
            continue
        source, target, other = rng.sample(both, 3)
        answers = (
            first.words[target], first.words[other], second.words[target], second.words[other]
        )  # fmt: skip
        words = (first.words[source], second.words[source])
        if len(set(answers)) < 4 or words[0] == words[1]:
            continue
        pair = WordPair(source, target, other, (first.id, second.id), words, answers)
        drawn.setdefault((source, target, other, first.id, second.id), pair)
        if len(drawn) == count:
            break
    if not drawn:
        raise InputError(
            f"no two meanings of {concepts.path} have different words in the same three "
            "languages; give more words"
        )
    return list(drawn.values())


def encoded_pairs(
    lm: LanguageModel, pairs: Sequence[WordPair], template: Template, chat: bool | None
) -> list[ReadyPair]:
    """The pairs whose four answers begin with four tokens after one and the same prompt."""
    from headscope.lm.prompting import encode_answers

    prompts, answers = [], []
    for pair in pairs:
        names = language_name(pair.source), language_name(pair.target)
        clean = template.render(pair.words[0], *names).text
        names = language_name(pair.source), language_name(pair.other_target)
        other = template.render(pair.words[1], *names).text
        prompts += [clean] * 4 + [other]
        answers += [*pair.answers, pair.answers[3]]
    encoded = encode_answers(lm, prompts, answers, chat)
    ready = []
    for at, pair in enumerate(pairs):
        *four, other_one = encoded[5 * at : 5 * at + 5]
        heads = {row.ids[: row.start] for row in four}
        firsts = tuple(row.ids[row.start] for row in four)
        same = other_one.ids[other_one.start] == firsts[3]
        if len(heads) == 1 and len(set(firsts)) == 4 and same:
            (clean_ids,) = heads
            other_ids = tuple(other_one.ids[: other_one.start])
            first = (firsts[0], firsts[1], firsts[2], firsts[3])
            ready.append(ReadyPair(pair, tuple(clean_ids), other_ids, first))
    return ready


#: What is measured, by the place of the answer whose probability changes: the clean word in the
#: other language, the other word in the clean language, the other word in the other language, and
#: the clean answer itself.
EFFECTS = ("language", "concept", "both", "kept")


@dataclass(frozen=True)
class Patching(Resampled):
    """How prompts are made and patched.

    Attributes:
        pairs: how many pairs of prompts are drawn.
        template: the prompt for one word, up to where the answer begins.
        known_only: only pairs count of which the model answers both prompts right by itself, by the
            first token: what a model does not know cannot be carried over.
        control: whether each head is also patched from a prompt that has nothing to do with the
            pair, which tells how much any foreign output changes.
        seed: of the drawing and of the bootstrap over pairs.
    """

    pairs: Annotated[
        int, Option("Pairs of prompts that are drawn.", flag="--prompts", min=1, panel="Data")
    ] = 100
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        WORD_TEMPLATE, Template
    )
    known_only: options.OnlyKnown = True
    control: Annotated[
        bool,
        Option(
            "Patch every head also from an unrelated prompt, which takes as long again.",
            flag="--control/--no-control",
            panel="Test",
        ),
    ] = True
    chat: options.Chat = None
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = 8192


def patching(
    lm: LanguageModel,
    concepts: ConceptFile,
    config: Patching = Patching(),
    run: Run | None = None,
    progress: Steps | None = None,
) -> dict[str, HeadScores]:
    """The change of probability that one head's output brings over, for every head.

    Probabilities are those of the first token of an answer, right after the prompt. `concepts` are
    words of the same meanings in at least three languages. Raises `InputError` if the words do not
    suffice for a pair, or no pair is left.

    Returns:
        Scores `language` (the clean word in the other prompt's language becomes more likely) and
            `concept` (the other prompt's word in the clean language does), each in [-1, 1] with
            bootstrap bounds over pairs. `extra` of both: `chance`, the same change when the output
            comes from an unrelated prompt (NaN without one), `both` (the other prompt's own answer)
            and `kept` (the clean prompt's own answer). `statistics`, by pair: each of `EFFECTS` and
            `control_language`, `control_concept`, (P, L, W), and `clean`, (P, 4), the probabilities
            without a patch. `config` tells `examples`, and `left_out` by reason.
    """
    drawn = word_pairs(concepts, config.pairs, config.seed)
    ready = encoded_pairs(lm, drawn, config.template, config.chat)
    if not ready:
        raise InputError(
            f"in none of {len(drawn)} pairs of {concepts.path} do the four answers begin with "
            "different tokens; give other words or languages"
        )
    plain_probabilities, outputs, known = _unpatched(lm, ready, config)
    kept = np.flatnonzero(known) if config.known_only else np.arange(len(ready))
    if not kept.size:
        raise InputError(
            f"{lm.name} answers no pair of {len(ready)} right by itself, so nothing it knows can "
            "be carried over; give words it knows, other wording (--template, --chat), or count "
            f"all pairs with --all (answers: {_answers(lm, ready[:3])})"
        )
    chosen = [ready[i] for i in kept]
    donors = _unrelated(chosen, config.seed) if config.control else [None] * len(chosen)
    part = RunPart(run, "patching")
    done = {int(kept["pair"][0]): kept["effects"] for kept in part.tensors("pairs")}
    rows = []
    for at, pair in enumerate(chosen):
        if at not in done:
            donor = donors[at]
            borrowed = None if donor is None else outputs[kept[donor]]
            done[at] = _effects(lm, pair, outputs[kept[at]], borrowed, config)
            part.keep_tensors("pairs", f"{at:06d}", {"pair": np.array([at]), "effects": done[at]})
        rows.append(done[at])
        if progress:
            progress(at + 1, len(chosen))
    left_out = {
        "same_first_token": len(drawn) - len(ready),
        "not_known": len(ready) - len(chosen),
        "without_control": sum(donor is None for donor in donors) if config.control else 0,
    }
    return _scores(lm, config, np.stack(rows), plain_probabilities[kept], left_out, run)


def _answers(lm: LanguageModel, ready: Sequence[ReadyPair]) -> str:
    """What the model goes on with after a few prompts, beside what would be right."""
    parts = []
    for pair in ready:
        token = int(lm.next_logits([pair.clean])[0].argmax())
        prompt, output, right = (
            lm.decode(ids) for ids in (list(pair.clean), [token], [pair.firsts[0]])
        )
        parts.append(f"{prompt[-40:]!r} gives {output!r}, right begins with {right!r}")
    return "; ".join(parts)


def _unpatched(
    lm: LanguageModel, ready: Sequence[ReadyPair], config: Patching
) -> tuple[NDArray[np.float64], list[torch.Tensor], NDArray[np.bool_]]:
    """Probabilities of the four answers (P, 4), the other prompts' head outputs, what is known."""
    import torch

    from headscope.lm.patching import head_outputs

    probabilities = np.zeros((len(ready), 4))
    outputs: list[torch.Tensor] = [torch.empty(0)] * len(ready)
    known = np.ones(len(ready), dtype=bool)
    texts = [(at, side) for at in range(len(ready)) for side in ("clean", "other")]
    ids = [ready[at].clean if side == "clean" else ready[at].other for at, side in texts]

    def read(some: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        with head_outputs(lm) as seen:
            return lm.next_logits([ids[i] for i in some]).softmax(dim=-1), seen.values

    for some, (chances, values) in lm.in_batches(map(len, ids), config.batch_tokens, read):
        for row, index in enumerate(some):
            at, side = texts[index]
            right = ready[at].firsts[0 if side == "clean" else 3]
            known[at] &= int(chances[row].argmax()) == right
            if side == "clean":
                probabilities[at] = chances[row, list(ready[at].firsts)].double().cpu().numpy()
            else:
                outputs[at] = values[row]
    return probabilities, outputs, known


def _unrelated(chosen: Sequence[ReadyPair], seed: int) -> list[int | None]:
    """For each pair another one whose other prompt shares neither meaning nor target language."""
    rng = random.Random(f"patching control {seed}")
    donors: list[int | None] = []
    for taker in chosen:
        able = [
            at
            for at, donor in enumerate(chosen)
            if donor.pair.other_target not in (taker.pair.target, taker.pair.other_target)
            and donor.pair.concepts[1] not in taker.pair.concepts
        ]
        donors.append(rng.choice(able) if able else None)
    return donors


def _effects(
    lm: LanguageModel,
    pair: ReadyPair,
    outputs: torch.Tensor,
    borrowed: torch.Tensor | None,
    config: Patching,
) -> NDArray[np.float32]:
    """Changes of probability, (6, L, W): `EFFECTS`, then language and concept of the control."""
    from headscope.lm.patching import patched_one_by_one

    effects = np.full((6, *lm.geometry.shape), np.nan, dtype=np.float32)
    # The clean answer is the first of four; the effects name it last.
    for place, source, columns in (
        (slice(0, 4), outputs, [1, 2, 3, 0]),
        (slice(4, 6), borrowed, [1, 2]),
    ):
        if source is not None:
            plain, changed = patched_one_by_one(
                lm, pair.clean, source, pair.firsts, config.batch_tokens
            )
            changes = np.exp(changed) - np.exp(plain)
            effects[place] = np.moveaxis(changes[..., columns], -1, 0)
    return effects


def _scores(
    lm: LanguageModel,
    config: Patching,
    effects: NDArray[np.float32],
    clean: NDArray[np.float64],
    left_out: dict[str, int],
    run: Run | None,
) -> dict[str, HeadScores]:
    names = (*EFFECTS, "control_language", "control_concept")
    statistics: Arrays = {name: effects[:, at].astype(np.float32) for at, name in enumerate(names)}
    # A pair without a control counts in no mean of controls.
    means = {
        name: rate(values, np.asarray(~np.isnan(values).all(axis=(1, 2))))
        for name, values in statistics.items()
    }
    statistics["clean"] = clean
    about = {"examples": len(effects), "tokens": len(effects), "left_out": left_out}
    return {
        name: scored(
            lm,
            "patching",
            config,
            run,
            statistics[name],
            np.ones(len(effects), dtype=np.int32),
            {"chance": means[f"control_{name}"], "both": means["both"], "kept": means["kept"]},
            statistics,
            {"effect": name, **about},
            counts=False,
        )
        for name in ("language", "concept")
    }
