"""Whether trained gates of a few heads let the bundled model answer more questions, as JSON.

    python bench/soft_gate.py --out bench/results/soft-gate-pocket.json

Questions are on a fact that is told in another language than the question's (`translated`), or on
one of two facts (`two-languages`), which the bundled model gets wrong most; prompts are the one it
was trained with, and one in an order it has never seen. Which heads are taken (10 % of all) is
chosen on the dev split, among those that language heads, translation scores and first-order
importance put first, the latter for documents and for the answers to such questions: gates are
trained on facts of dev and looked at on other facts of it. Then the command is run and tested on
the test split. The runs are kept in --runs and go on where they were.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from machine import machine, tell

from headscope.data.questions import QuestionTemplate
from headscope.find.soft_gate_training import SoftGate, answer, ask, train_soft_gate
from headscope.heads import Gate, HeadScores, resolve_heads
from headscope.lm import LanguageModel, load
from headscope.lm.batching import collate
from headscope.lm.losses import frozen, row_losses
from headscope.lm.prompting import Answered
from headscope.pocket.facts import KINDS, TEMPLATE, QuestionKind
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.first_order import FindFirstOrder, find_first_order
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.soft_gate import FindSoftGate, comparison, default_heads
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.studies.questions import QuestionsChoice, read_sides

SOURCES = ["lahis", "first-order", "translation-score", "answers"]
#: Seed of what heads are chosen on; the command's own seeds begin at 0.
CHOOSING = 1000


#: The prompts: the one the model was trained with, and one with the question before the context.
PROMPTS = {"trained": TEMPLATE, "question-first": "Question: {question}\n{context}\nAnswer:"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default=KINDS[0], choices=KINDS)
    parser.add_argument("--prompt", default="question-first", choices=PROMPTS)
    parser.add_argument("--sources", nargs="+", default=SOURCES, choices=SOURCES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-soft-gate"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    template = QuestionTemplate(PROMPTS[given.prompt])
    with progress() as update:
        sources = found(given.runs, given.sources, update)
        chosen = choice(sources, given.kind, template, update)
        best = max(chosen, key=lambda name: chosen[name]["loss_lowered"])
        config = FindSoftGate(
            heads=str(sources[best]),
            # Scores of a bare folder say of no run how many heads to take.
            k="10%",
            questions=QuestionsChoice(kind=given.kind, test=given.test),
            template=template,
            seeds=given.seeds,
        )
        result = comparison.run(config, given.runs / f"{given.kind}-{given.prompt}", update)
    told = {
        "command": "bench/soft_gate.py",
        "machine": before,
        "kind": given.kind,
        "prompt": PROMPTS[given.prompt],
        "chosen_on_dev": chosen,
        "heads_of": best,
        "result": brief(encode(result)),
    }
    tell(told, given.out)


def found(runs: Path, names: list[str], update: Any) -> dict[str, Path]:
    """The searches whose heads are tried, with their run folders; `answers` is made later."""
    folders = {name: runs / name for name in names}
    few = DocumentsChoice(limit=60)
    if "lahis" in folders:
        find_lahis(FindLahis(documents=few), folders["lahis"], update)
    if "first-order" in folders:
        find_first_order(FindFirstOrder(documents=few), folders["first-order"], update)
    if "translation-score" in folders:
        pairs = PairsChoice(pair=("all",), limit=10)
        find_translation(FindTranslation(pairs=pairs), folders["translation-score"], update)
    return folders


def choice(
    runs: dict[str, Path], kind: QuestionKind, template: QuestionTemplate, update: Any
) -> dict[str, dict[str, Any]]:
    """For the heads of every search, what trained gates do on facts of dev.

    The scores of `answers`, first-order importance for the answers, are made here.
    """
    lm = load("pocket")
    config = SoftGate(chat=False)
    questions = QuestionsChoice(kind=kind, train=400, stop=200)
    sides = read_sides(questions, "pocket", CHOOSING)
    learned, held = sides.draw(questions, CHOOSING)
    pairs, looked_at = (ask(lm, part, template, "dev", 10) for part in (learned, held))
    samples = [pair.sample for pair in pairs]
    half = len(samples) // 2
    if "answers" in runs:
        importance(lm, samples[:half]).save_pretrained(runs["answers"])
    as_is = answer(lm, looked_at, Gate.identity(lm.geometry), config)
    results = {}
    for name, folder in runs.items():
        heads = resolve_heads(str(folder), None, lm.geometry, default=default_heads(lm.geometry))
        trained = train_soft_gate(
            lm,
            heads,
            samples[:half],
            samples[half:],
            config,
            CHOOSING,
            progress=partial(update, f"choosing: {name}"),
        )
        after = answer(lm, looked_at, trained.gate, config)
        results[name] = {
            "heads": [head.key for head in heads],
            "questions": len(looked_at),
            "answered": [float(as_is.right.mean()), float(after.right.mean())],
            "loss_lowered": float((as_is.losses - after.losses).mean()),
            "best_step": trained.step,
        }
    return results


def importance(lm: LanguageModel, samples: list[Answered]) -> HeadScores:
    """First-order importance for answers: the mean of |dL/dg| at g = 1 over the samples."""
    gate = torch.ones(lm.geometry.shape, requires_grad=True)
    total = torch.zeros(lm.geometry.shape)
    with frozen(lm.model), lm.gated(gate):
        for sample in samples:
            batch = collate([sample.ids], lm.pad_token_id)
            learned = torch.zeros(batch.input_ids.shape, dtype=torch.bool)
            learned[0, sample.start :] = True
            (gradient,) = torch.autograd.grad(row_losses(lm, batch, learned).sum(), gate)
            total += gradient.abs() / len(samples)
    return HeadScores(lm.geometry, total.double().numpy(), "first-order importance for answers")


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """A run's figures without its losses and its untrained heads."""
    whole = ("signature", "seconds", "model", "verdict", "conditions", "levels", "tests")
    kept = ("heads", "steps", "best_step")
    details = result["details"]
    seeds = [
        {
            "seed": seed_row["seed"],
            **{
                kind: {key: part[key] for key in kept}
                for kind, part in {"selected": seed_row["trained"], **seed_row["controls"]}.items()
            },
        }
        for seed_row in details["seeds"]
    ]
    about = {name: details[name] for name in ("by_seed", "pairs")} | {"seeds": seeds}
    return {name: result[name] for name in whole} | {"details": about}


if __name__ == "__main__":
    main()
