"""One training of the experiment: a mixture, prompts beside it, and what the model can do then."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.papers.trater.evaluation import Evaluation, evaluate
from headscope.papers.trater.mixtures import records_of

if TYPE_CHECKING:
    from headscope.pocket.mixture import Document

#: What a training leaves behind when it has been measured, and its last weights.
MEASURED, WEIGHTS = "measured.json", "final"


@dataclass(frozen=True)
class Training:
    """One model to train from scratch.

    `mixture` is a folder that `use mix` wrote, and `digest` what it holds. `prompt_tokens` tokens
    of translation prompts come beside it, the same for the same seed whatever the mixture is, so
    that the model can be asked for translations at all; documents are read once, those of the
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
    mixture = [Document("corpus", "", one["text"]) for one in records_of(training.mixture)]
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
        "tokens": sum(int(one.input_ids.numel()) for one in batches),
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
        lengths = tokenizer([f"{one.prompt} {one.target}" for one in some])["input_ids"]
        for one, ids in zip(some, lengths, strict=True):
            if tokens < training.prompt_tokens:
                tokens += len(ids)
                yield one
