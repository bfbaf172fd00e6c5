"""A small run of every command that has a result: what goldens and pages are made of."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from find_helpers import ALIGNER
from headscope.measure.metrics import chrf
from headscope.papers.trater import COMMAND
from headscope.papers.trater.evidence import describe
from headscope.papers.trater.experiment import Mixture
from headscope.papers.trater.result import TraterResult
from headscope.papers.trater.training import WORD_TASKS
from headscope.pocket.tasks import write_tasks
from headscope.runs import carry_out, decode, plain
from language_helpers import write_documents
from lm_helpers import saved
from paper_run_helpers import write_paper, write_papers
from verify_helpers import write_data


class CommandRun(NamedTuple):
    """A command, the folder of its run, what it printed, and its arguments."""

    command: str
    folder: Path
    terminal: str
    arguments: tuple[str, ...] = ()


def tiny_runs(folder: Path, run: Callable[..., Any]) -> Iterator[CommandRun]:
    """Runs of a tiny model, one after the other by `run`, a command line."""
    model = saved(folder / "model")
    documents = write_documents(folder)
    files = [f"{code}={path}" for code, path in documents.items()]
    texts = [word for one in files for word in ("--data", one)]
    rows = [
        {"input": f"{at}, {at + 3}", "output": f"{at + 3}", "candidates": [f"{at}", f"{at + 3}"]}
        for at in range(10, 30)
    ]
    (folder / "next.json").write_text(json.dumps(rows), "utf-8")
    told = ("--instruction", "Add three to {input}:")
    task = ("--task", folder / "next.json", "--held-out", 4, *told)
    written = {
        "questions": [
            {"context": f"Room {at} is at {at + 7}.", "question": "Where?", "answers": [f"{at}"]}
            for at in range(18)
        ],
        "summaries": [
            {"language": code, "text": "a dog and a cat", "summary": "pets", "id": code}
            for code in ("de", "en")
        ],
        "statements": [
            {"a": "de", "b": "en", "prompt": "It is red. Is it?", "answers_a": "red",
             "answers_b": "blue", "id": "1"},
        ],
        "asked": [
            {"id": f"{at}", "text": f"Say {at} in German:", "reference": "Das Haus."}
            for at in range(4)
        ],
    }  # fmt: skip
    for name, lines in written.items():
        write_jsonl(folder / f"{name}.jsonl", lines)

    def made(name: str, *arguments: object, model_too: bool = True, to: str = "") -> CommandRun:
        own = ("--model", model) if model_too else ()
        return _made(folder, run, name, *own, *arguments, to=to)

    few = ("--draws", 2)
    short = ("--max-new-tokens", 3)
    lahis = made("find lahis", *texts, "--quantile", 0.5)
    yield lahis
    by_language = ("--heads", lahis[1])
    yield made("verify perplexity", *by_language, *texts, "--k", 1, *few, "--allow-overlap")
    yield made("verify layers", *by_language, *texts, *few)
    yield made("verify summaries", "--heads", "0.1", "--data", folder / "summaries.jsonl",
               *few, *short)  # fmt: skip
    yield made("verify off-target", *by_language, "--ask", "continue", *texts, "--k", 1,
               "--start-tokens", 4, *few, *short, "--allow-overlap")  # fmt: skip
    yield made("verify transfer", *by_language, "--data", folder / "statements.jsonl", "--k", 1,
               *few, *short)  # fmt: skip
    yield (plain := made("find first-order", *texts))
    yield (induction := made("find induction", "--sequences", 2, "--block", 8))
    pairs = ("--data", write_data(folder / "pairs.tsv"), "--pair", "en-de")
    yield made("find translation-score", *pairs)
    yield made("verify removal", *pairs, "--heads", "0.1", "--measure", "loss", *few)
    yield made("verify heads", *pairs, "--beside", induction[1])
    yield made("find knockouts", *pairs, "--random-gates", 6, "--remove", 2)
    yield made("use rate", "--heads", "0.1,1.2", "--data", folder / "summaries.jsonl")
    mixed = ("use mix", folder / "use-rate", "--kind", "baseline")
    yield made(*mixed, model_too=False)
    asked = ("--data", folder / "asked.jsonl", *short)
    yield made("use adapt", "--heads", "0.1,1.2", "--scale", 3, *asked)
    yield made("use adapt", "--steer", "de", *by_language, "--k", 1, "--factor", 2, "--factor", 4,
               "--away", "en", *few, *asked, to="steered")  # fmt: skip
    yield made("use export", "--heads", "0.1,1.2", "--scale", 0.5)
    yield made("find attribution", *task, "--steps", 2, "--patch", 2)
    yield made("find causal-gating", *task, "--steps", 3, "--seeds", 1, "--batch", 2)
    yield made("find soft-gate", "--heads", "1.2,0.1", "--data", folder / "questions.jsonl",
               "--train", 4, "--stop", 3, "--test", 4, "--seeds", 1, "--epochs", 1,
               *short)  # fmt: skip
    training = ("--steps", 4, "--batch", 2, "--learning-rate", 30)
    yield (mask := made("find mask", *task, *training))
    (folder / "more.json").write_text(json.dumps(rows[::-1]), "utf-8")
    more = ("--task", folder / "more.json", "--held-out", 4, *told)
    other = made("find mask", *more, *training, "--seed", 1, to="other")
    ours = ("--heads", mask[1], *task, *few)
    yield made("verify mask", *ours, *short)
    yield made("verify scaling", *ours, *short, "--alpha", 0.5, "--alpha", 1)
    masks = ("--heads", f"next={mask[1]}", "--heads", f"more={other[1]}")
    yield made("verify families", *masks, *task, *few, "--allow-overlap")
    yield made("compare masks", mask[1], other[1], model_too=False)
    yield made("verify attention", *ours)
    yield made("compare states", "--heads", mask[1], *task, *few)
    yield made("verify one-by-one", "--heads", mask[1], *task, "--examples", 2, "--steps", 4,
               "--random-orders", 1, *short)  # fmt: skip
    yield CommandRun("pocket trater", _trater(folder / "trater"), "")
    yield CommandRun("reproduce heads-up", write_paper(folder / "paper"), "")
    yield CommandRun("reproduce all", write_papers(folder / "papers"), "")
    for step in (1, 2):
        saved(folder / "trained" / f"step-{step}")
    yield made("compare formation", folder / "trained", *pairs, "--verify-limit", 2, *short,
               model_too=False)  # fmt: skip
    found = (lahis[1], plain[1], induction[1], mask[1])
    yield made("compare methods", *found, "--k", 2, model_too=False)


def pocket_runs(folder: Path, run: Callable[..., Any]) -> Iterator[CommandRun]:
    """Runs of the bundled model, and of commands that take no model."""

    made = partial(_made, folder, run)
    few = ("--draws", 2)
    pair = ("--pair", "en-de")
    heads = ("--heads", "5.3,5.1,4.3,2.0")
    yield made("find translation-score", *pair, "--pair", "de-tr", "--limit", 10)
    scores = folder / "find-translation-score"
    yield made("verify removal", *pair, "--pair", "de-en", "--heads", scores, "--k", 3,
               "--measure", "text", "--measure", "loss", *few, "--limit", 4)  # fmt: skip
    removal = folder / "verify-removal"
    yield made("verify failures", removal)
    yield made("verify circuit", *pair, "--heads", scores, *few, "--limit", 4, "--inside", 3)
    with contextlib.ExitStack() as stack:  # eflomal has no seed
        for place, stand_in in ALIGNER.items():
            stack.enter_context(mock.patch(place, stand_in))
        linked = made("verify alignment", *pair, "--align-heads", "5.3,5.1", "--align-rows",
                      "predict", *few, "--limit", 4)  # fmt: skip
    yield linked
    yield made("use simultaneous", *pair, "--heads", scores, *few, "--limit", 4, "--frontier", 1,
               "--frontier", 3, "--wait", 1, "--wait", 4, "--agreement", 2)  # fmt: skip
    write_tasks(folder / "tasks", "test", 4)
    yield made("verify tasks", "--task", folder / "tasks" / "pocket_capitals.yaml", "--task",
               folder / "tasks" / "pocket_repeat_generated.yaml", *heads,
               *few)  # fmt: skip
    yield made("find patching", "--prompts", 4)
    yield made("find language-name", *pair, "--pair", "en-tr", "--limit", 4)
    yield made("find retrieval", "--limit", 3, "--length", 60)
    yield made("find key-tokens", "--word", "house", "--prompt", "en: the house is old", *heads,
               *few)  # fmt: skip
    yield made("compare overlap", scores, "5.3,5.1,4.3,2.0", "--k", 4)
    yield made("compare classes", scores)
    yield made("compare release", "pocket", "pocket:step-06400", "--limit", 4, ends=3)
    yield made("find mask", "--task", "plural", "--held-out", 6, "--steps", 6, "--batch", 4,
               "--learning-rate", 15)  # fmt: skip
    yield made("find lahis", "--limit", 6)
    yield made("verify perplexity", "--heads", folder / "find-lahis", "--limit", 2, *few)
    corpus = [{"id": code, "text": text} for code, text in
              (("en", "The house is old.\nThe dog sees a cat."),
               ("both", "The house is old.\nDas Haus ist alt."))]  # fmt: skip
    write_jsonl(folder / "corpus.jsonl", corpus)
    yield made("use rate", *heads, "--data", folder / "corpus.jsonl")
    yield made("survey", "pocket", "--quick", "--method", "induction", "--method", "lahis")
    yield made("survey", "pocket", "--quick", "--method", "induction", "--method", "attribution",
               "--judge", "--judged", 4, *few, to="judged")  # fmt: skip
    yield made("atlas", "pocket", *pair, "--limit", 6, "--verify-limit", 2, *few)


def write_jsonl(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write a row a line."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _made(
    folder: Path,
    run: Callable[..., Any],
    name: str,
    *arguments: object,
    to: str = "",
    ends: int = 0,
) -> CommandRun:
    out = folder / (to or name.replace(" ", "-"))
    said = run(*name.split(), *arguments, "--out", out)
    assert said.code == ends, f"{name}: {said.err}"
    return CommandRun(name, out, said.out, tuple(map(str, arguments)))


def _trater(out: Path) -> Path:
    """A run of the training experiment whose figures are made up: a real one takes seconds."""
    mixtures, measured = [], []
    for seed in (0, 1):
        for kind, share, worth in (("baseline", None, 0.3), ("remove", 0.3, 0.1),
                                   ("enhance", 0.3, 0.6), ("remove random", 0.3, 0.28),
                                   ("enhance random", 0.3, 0.32)):  # fmt: skip
            about = {"kind": kind, "share": share, "seed": seed, "documents": 90, "tokens": 1000,
                     "bilingual_share_of_tokens": worth,
                     "largest_difference_of_shares": 0.0012}  # fmt: skip
            mixtures.append(Mixture(f"seed-{seed}-{kind}", kind, share, seed, out, "", about))
            said = ["the cat sees a dog"[: int(20 * worth) + seed + 3], "a house"]
            prompt = chrf(said, ["the cat sees a dog", "a big house"])
            gains = [worth - 0.2, worth + 0.1 * seed]
            measured.append({
                "steps": 12,
                "prompt": {"chrf": prompt.value,
                           "statistics": {"en-de": prompt.statistics.tolist()}},
                "document": {"chrf": 50 * worth, "scores": [45 * worth, 55 * worth],
                             "shares": {"en": 0.5, "de": 0.5}, "nll": 3.0,
                             "nll_unrelated": 3.0 + sum(gains) / 2,
                             "per_text": gains},
                "plain": {"mean": 2.5 + seed / 10},
                "choices": {
                    task: {"right": [worth > 0.3, seed > 0], "chance": 0.25}
                    for task in (*WORD_TASKS, "questions")
                },
            })  # fmt: skip
    corpus = {"documents": {"plain": 70, "bilingual": 30}, "bilingual_share_of_tokens": 0.3}
    described = {"corpus": corpus, **describe(mixtures, measured)}
    result: TraterResult = decode(TraterResult, plain(described))
    carry_out(
        COMMAND, out, {"settings": {}}, {"model": "made up"}, lambda run: result, kind=TraterResult
    )
    return out
