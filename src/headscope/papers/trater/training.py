"""One training of the experiment, and what the model can do then.

Translation is measured under the default prompt, and in the form that the documents of the corpus
have themselves: a text, a new line, and then the model goes on. Nothing there says into which
language, so what it writes counts against the best of the references; and the loss of the
true translation, of each language, is compared with that of another text's translation. Word tasks
and questions are answered by the choice with the lowest loss, as multiple-choice benchmarks are.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, permutations
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.pocket.facts import TEMPLATE, possible_answers, sample_questions
from headscope.pocket.tasks import word_choices
from headscope.settings import Option, Settings

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.pocket.mixture import Document

#: What a training leaves behind when it has been measured, and its last weights.
MEASURED, WEIGHTS = "measured.json", "final"
#: The word tasks; questions are about two facts stated in their own language.
WORD_TASKS = ("translate", "plural", "past", "first_letter", "capital")

#: Tokens that a model may go on with after a text.
LONGEST = 96


def distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    """Each value once, in the order given."""
    return tuple(dict.fromkeys(values))


@dataclass(frozen=True)
class Evaluation(Settings):
    """On what is evaluated: so many test sentences (of each direction) and test documents."""

    languages: Annotated[
        tuple[str, ...],
        Option(
            "Only these languages; repeatable.",
            flag="--language",
            metavar="CODE",
            read=distinct,
            panel="Data",
        ),
    ] = ("en", "de")
    sentences: Annotated[int, Option("Test sentences of each direction.", min=2, panel="Data")] = (
        100
    )
    documents: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        from headscope.pocket.world.languages import CODES

        unknown = [code for code in self.languages if code not in CODES]
        if unknown or len(set(self.languages)) < 2:
            raise InputError(
                f"the languages are {', '.join(self.languages) or 'none'}; give two or more of "
                f"{', '.join(CODES)}"
            )
        super().__post_init__()


@dataclass(frozen=True)
class Training:
    """One model to train from scratch.

    `mixture` is a folder that `use mix` wrote, and `digest` what it holds. `prompt_tokens` tokens
    of translation prompts are added, the same for the same seed whatever the mixture is, so that
    the model can be prompted for translations at all; documents are read once, those of the
    mixture as often as they stand there. `seed` decides weights, order and prompts.
    """

    mixture: Path
    digest: str
    prompt_tokens: int
    seed: int
    batch_tokens: int
    evaluation: Evaluation = field(default_factory=Evaluation)


def train_and_measure(training: Training, out: Path, threads: int | None = None) -> dict[str, Any]:
    """Train a pocket model in `out`, measure it, and return what was measured.

    Resumable at any point: the training from its last saved state, and what has been measured is
    read again. `threads`: of torch, in a process that does nothing else.
    """
    import torch
    from transformers import PreTrainedTokenizerFast

    from headscope.lm import load
    from headscope.pocket.mixture import Document
    from headscope.pocket.train import PocketTraining, corpus_batches, train_pocket
    from headscope.pocket.weights import path

    done = out / MEASURED
    if done.exists():
        return _measured(done, training)
    if threads:
        torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(path())
    if not (out / "tokenizer").exists():
        partial = out / "tokenizer.partial"
        shutil.rmtree(partial, ignore_errors=True)
        tokenizer.save_pretrained(partial)
        os.replace(partial, out / "tokenizer")
    mixture = [Document("corpus", "", record["text"]) for record in records_of(training.mixture)]
    if not mixture:
        raise InputError(f"{training.mixture} holds no documents; mix them again")
    documents = [*mixture, *_prompts(tokenizer, training)]
    batches = corpus_batches(tokenizer, documents, training.batch_tokens, training.seed)
    config = PocketTraining(
        steps=len(batches),
        batch_tokens=training.batch_tokens,
        seed=training.seed,
        decay_share=0.6,
        checkpoints=(),
        dropout_steps=0,
        corpus=training.digest,
    )
    if not (out / WEIGHTS).exists():
        train_pocket(out, config, given=batches, quiet=True)
    measured = {
        "documents": len(documents),
        "steps": len(batches),
        "tokens": sum(int(batch.input_ids.numel()) for batch in batches),
        **evaluate(load(out / WEIGHTS, device="cpu"), training.evaluation),
        "training": asdict(config),
    }
    write_bytes(done, json.dumps(measured).encode())
    shutil.rmtree(out / "state", ignore_errors=True)
    return measured


def _measured(path: Path, training: Training) -> dict[str, Any]:
    """What was measured before; InputError if its file is damaged, or of another mixture."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    needed = {"prompt", "document", "plain", "training"}
    if not isinstance(found, dict) or not needed <= found.keys():
        raise InputError(f"{path} is damaged; delete it and run the same command again")
    if found["training"]["corpus"] != training.digest:
        raise InputError(
            f"{path} is of a model that was trained on another mixture; name another --out, or "
            "delete its folder to train again"
        )
    return found


def progress_of(out: Path) -> float:
    """How much of a training in `out` is done, 0 to 1, from what it has logged."""
    if (out / MEASURED).exists():
        return 1.0
    try:
        steps = json.loads((out / "training.json").read_text(encoding="utf-8"))["steps"]
        last = (out / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1]
        return min(0.99, float(json.loads(last)["step"]) / float(steps))
    except (OSError, IndexError, ValueError, KeyError, TypeError):
        return 0.0  # it has not begun, or is being written at this moment


def _prompts(tokenizer: Any, training: Training) -> Iterator[Document]:
    """Translation prompts of the training's seed, until their tokens are enough."""
    from headscope.data.prompts import DEFAULT_TEMPLATE
    from headscope.pocket.mixture import translation_document

    rng = random.Random(f"prompts {training.seed}")
    languages = training.evaluation.languages
    tokens = 0
    while tokens < training.prompt_tokens:
        some = [
            translation_document(rng, "train", DEFAULT_TEMPLATE.text, languages) for _ in range(64)
        ]
        texts = [f"{document.prompt} {document.target}" for document in some]
        for document, ids in zip(some, tokenizer(texts)["input_ids"], strict=True):
            if tokens < training.prompt_tokens:
                tokens += len(ids)
                yield document


def records_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a rating's or a mixture's documents in the order of their files."""
    for path in sorted((folder / "documents").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def evaluate(lm: LanguageModel, config: Evaluation) -> dict[str, Any]:
    """Measure a model on test sentences and documents of the pocket world.

    Returns:
        `prompt`: `chrf` (mean chrF++ over all directions), `directions`, and `statistics`,
        chrF's counts per sentence of each direction. `document`: `chrf`, the mean chrF++ of each
        continuation against the best of its references, `scores` per sentence, and `shares`,
        how often the best reference is of which language; `nll` and `nll_unrelated`, the mean loss
        (nats a token) of the true translation after a text and after another text, and `per_text`
        their difference for each text, averaged over languages. `plain`: `nll` of documents in one
        language, by language and `mean`. `choices`: for each of `WORD_TASKS` and `questions`
        whether each item was answered right (`right`), and the share that guessing gets (`chance`);
        the answer is the choice with the lowest summed loss.
    """
    return {
        "prompt": _under_prompt(lm, config),
        "document": _in_documents(lm, config),
        "plain": _plain(lm, config),
        "choices": _choices(lm, config),
    }


def _under_prompt(lm: LanguageModel, config: Evaluation) -> dict[str, Any]:
    from headscope.heads import HeadSet
    from headscope.measure.metrics import chrf
    from headscope.pocket.sample import sample_pairs
    from headscope.verify.removal_translations import translate

    directions = ["-".join(pair) for pair in permutations(config.languages, 2)]
    files = [sample_pairs(name, "test", config.sentences, config.seed) for name in directions]
    outputs = translate(lm, files, HeadSet(lm.geometry, ()))
    scores = [
        chrf(made, [pair.target for pair in file.pairs])
        for made, file in zip(outputs, files, strict=True)
    ]
    return {
        "chrf": fmean(score.value for score in scores),
        "directions": {d: score.value for d, score in zip(directions, scores, strict=True)},
        "statistics": {
            d: score.statistics.tolist() for d, score in zip(directions, scores, strict=True)
        },
        "examples": [
            {"source": file.pairs[0].source, "target": file.pairs[0].target, "output": made[0]}
            for made, file in zip(outputs, files, strict=True)
        ],
    }


def _in_documents(lm: LanguageModel, config: Evaluation) -> dict[str, Any]:
    import numpy as np

    from headscope.lm import GenerateConfig
    from headscope.measure.metrics import sentence_chrf
    from headscope.pocket.mixture import say
    from headscope.pocket.world.sampling import sentences

    drawn = list(islice(sentences("test", config.seed), config.sentences))
    said = {code: [say(sentence, code) for sentence in drawn] for code in config.languages}
    texts = [(code, at) for code in config.languages for at in range(len(drawn))]
    made = lm.generate([said[code][at] + "\n" for code, at in texts], GenerateConfig(LONGEST))
    outputs = [output.text.strip() for output in made]
    against = np.stack(
        [
            np.where(
                [code == language for code, _ in texts],
                -1.0,  # its own language is no translation
                sentence_chrf(outputs, [said[language][at] for _, at in texts]),
            )
            for language in config.languages
        ]
    )
    best = [config.languages[index] for index in against.argmax(axis=0)]
    own = _continuations(lm, said, shift=0)
    other = _continuations(lm, said, shift=1)
    gained = [theirs - ours for ours, theirs in zip(own, other, strict=True)]
    return {
        "chrf": float(against.max(axis=0).mean()),
        "scores": against.max(axis=0).tolist(),
        "shares": {code: best.count(code) / len(best) for code in config.languages},
        "nll": fmean(own),
        "nll_unrelated": fmean(other),
        "per_text": gained,
        "examples": [
            {"source": said[code][at], "output": outputs[row]}
            for row, (code, at) in enumerate(texts)
            if at == 0
        ],
    }


def _continuations(lm: LanguageModel, said: dict[str, list[str]], shift: int) -> list[float]:
    """For each text of each language the mean loss of its translations, nats a token.

    With `shift` the translations of another text follow it, in the same languages: what knowing
    the languages' sentences alone is worth.
    """
    from headscope.lm.losses import token_losses

    rows: list[list[int]] = []
    starts: list[int] = []
    for code, texts in said.items():
        for at, text in enumerate(texts):
            begins = len(lm.encode(text + "\n"))
            for into, translated in said.items():
                if into != code:
                    follows = translated[(at + shift) % len(texts)]
                    rows.append(lm.encode(f"{text}\n{follows}"))
                    starts.append(begins)
    losses = [float(loss.mean()) for loss in token_losses(lm, rows, starts)]
    others = len(said) - 1
    return [fmean(losses[at : at + others]) for at in range(0, len(losses), others)]


def _plain(lm: LanguageModel, config: Evaluation) -> dict[str, Any]:
    from headscope.lm.losses import token_losses
    from headscope.pocket.sample import sample_documents

    found = {}
    for code in config.languages:
        file = sample_documents(code, "test", config.documents, config.seed)
        losses = token_losses(
            lm, [lm.encode(document.text, closed=True) for document in file.documents]
        )
        found[code] = fmean(loss for tokens in losses for loss in tokens.tolist())
    return {"nll": found, "mean": fmean(found.values())}


def _choices(lm: LanguageModel, config: Evaluation) -> dict[str, Any]:
    items_of: dict[str, list[tuple[str, Sequence[str], int]]] = {}
    for task in WORD_TASKS:
        rows = islice(word_choices(task, "test", config.seed, config.languages), config.sentences)
        items_of[task] = [(row["prompt"], row["choices"], row["answer"]) for row in rows]
    file = sample_questions("test", config.sentences, config.seed, "one-language", config.languages)
    items_of["questions"] = []
    for question in file.questions:
        values = possible_answers(question)
        prompt = TEMPLATE.format(context=question.context, question=question.question)
        items_of["questions"].append((prompt, values, values.index(question.answers[0])))
    return {
        task: {
            "right": _chosen_right(lm, items),
            "chance": fmean(1 / len(choices) for _, choices, _ in items),
        }
        for task, items in items_of.items()
        if items
    }


def _chosen_right(lm: LanguageModel, items: Sequence[tuple[str, Sequence[str], int]]) -> list[bool]:
    """Of each prompt with choices whether the one with the lowest summed loss is the answer."""
    from headscope.lm.losses import token_losses

    rows = [lm.encode(f"{prompt} {choice}") for prompt, choices, _ in items for choice in choices]
    starts = [len(lm.encode(prompt)) for prompt, choices, _ in items for _ in choices]
    losses = iter(float(loss.sum()) for loss in token_losses(lm, rows, starts))
    found = []
    for _, choices, answer in items:
        own = list(islice(losses, len(choices)))
        found.append(own.index(min(own)) == answer)
    return found
