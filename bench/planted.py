"""Which methods find heads that are known to matter: 20 tiny transformers, as JSON.

    python bench/planted.py --runs runs/planted --out bench/results/planted.json

Five models for each of four tasks. A model of 24 heads is trained while all but a planted set are
held at zero; a planted head without which the loss rises by less than 0.1 nats is taken out of the
set, and training goes on without it. Then the others get random values (queries, keys, values and
their part of W_O, which stay as they are), and all other weights are trained a little more: on the
task with all heads and with random subsets of the others, and on a penalty on what the others do to
the log-probabilities. So they write into the residual stream and change nothing. What was planted
is proved for each model: `loss` with all heads, the planted ones alone, and the others alone;
`effect`, the rise of the loss without a head alone; `norm`, the mean length of what a head writes.

Every method of `METHODS` ranks the heads by the package's own command; its figure is the average
precision of the planted set. Models and rankings are kept in --runs, and an interrupted run goes on
there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine, tell, write
from timing import say

import headscope
from headscope.errors import Caution
from headscope.heads import read_scores
from headscope.lm import LanguageModel, load
from headscope.measure.intervals import t_interval

LAYERS, HEADS, WIDTH, HIDDEN = 2, 12, 8, 64
#: Different words of a language, and words of a sentence.
WORDS, LENGTH = 32, 8
#: Heads that are planted, and steps of the first training, by task.
TASKS = {
    "copy": (3, 150),
    "translation": (3, 150),
    "previous token": (3, 150),
    "induction": (4, 400),
}
#: Nats that a planted head's removal must cost, and how loud the others are beside a usual start.
NEEDED, LOUD = 0.1, 0.2
#: Steps of a round of the second training, the loss at which it ends, and rounds at most.
FURTHER, LEARNED, ROUNDS = 100, 0.2, 5
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "=")


class Task:
    """Sentences of one task and seed: a source, an answer, and how a prompt is written."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.table = random.Random(f"table {seed}").sample(range(WORDS), WORDS)
        self.template = "{source} =" if name in ("copy", "translation") else "{source}"

    def pair(self, draw: random.Random) -> tuple[str, str]:
        """A source and its answer, words a0 … a31 and b0 … b31."""
        words = draw.sample(range(WORDS), LENGTH)
        if self.name == "copy":
            return _text("a", words), _text("a", words)
        if self.name == "translation":
            return _text("a", words), _text("b", [self.table[word] for word in words])
        if self.name == "induction":  # the second reading begins anywhere in the first half
            start = draw.randrange(1, LENGTH // 2)
            return _text("a", [*words, words[start]]), _text("a", words[start + 1 :])
        said = list(words)  # each word follows from the one before the last
        for _ in range(LENGTH):
            said.append(self.table[said[-2]])
        return _text("a", words), _text("a", said[LENGTH:])

    def pairs(self, number: int, seed: str) -> list[tuple[str, str]]:
        """Different sentences, as many as asked for."""
        draw = random.Random(f"{self.name} {seed}")
        return [self.pair(draw) for _ in range(number)]

    def batch(self, tokenizer: Any, pairs: list[tuple[str, str]]) -> tuple[torch.Tensor, ...]:
        """Token ids and labels (B, T); labels are -100 where nothing is learned."""
        prompts = [self.template.format(source=source) for source, _ in pairs]
        known = tokenizer.get_vocab()
        rows = [
            [known["<s>"], *(known[word] for word in f"{prompt} {answer}".split())]
            for prompt, (_, answer) in zip(prompts, pairs, strict=True)
        ]
        ids = torch.zeros((len(rows), max(map(len, rows))), dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for at, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
            start = 1 + len(prompt.split())
            ids[at, : len(row)] = torch.tensor(row)
            labels[at, start : len(row)] = torch.tensor(row[start:])
        return ids, labels


def _text(language: str, words: list[int]) -> str:
    return " ".join(f"{language}{word}" for word in words)


def new_model(seed: int) -> LanguageModel:
    """An untrained model of 24 heads, each with keys and values of its own; words are tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = [*SPECIAL, *(f"{language}{word}" for language in "ab" for word in range(WORDS))]
    inner = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, head_dim=WIDTH,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=HEADS,
        max_position_embeddings=256, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
        pad_token_id=0,
    )  # fmt: skip
    return load(Qwen3ForCausalLM(config), tokenizer, check=False)


def losses(lm: LanguageModel, ids: torch.Tensor, labels: torch.Tensor, gate: Any) -> Any:
    """Mean loss of learned tokens under a gate, and log-probabilities at each (B, T, V)."""
    with lm.gated(gate):
        log_p = lm.model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    return torch.nn.functional.nll_loss(log_p.flatten(0, 1), labels[:, 1:].flatten()), log_p


def train(
    lm: LanguageModel, task: Task, planted: torch.Tensor, steps: int, seed: str, fixed: Any = None
) -> None:
    """Train with the planted heads alone or, where others are `fixed`, beside the others.

    `fixed` says of each parameter by what its gradient is multiplied.
    """
    rate, size = (3e-3, 64) if fixed is None else (1e-3, 32)
    optimizer = torch.optim.AdamW(lm.model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.0)
    lm.model.train()
    for step in range(steps):
        left = min(1.0, (step + 1) / 50, max(0.02, (steps - step) / (0.4 * steps)))
        optimizer.param_groups[0]["lr"] = rate * left
        ids, labels = task.batch(lm.tokenizer, task.pairs(size, f"{seed} {step}"))
        if fixed is None:
            loss, _ = losses(lm, ids, labels, planted)
        else:
            some = torch.where(torch.rand(size, LAYERS, HEADS) < 0.5, torch.ones(()), planted)
            gates = torch.cat([torch.ones_like(some), planted.expand_as(some), some])
            loss, log_p = losses(lm, ids.repeat(3, 1), labels.repeat(3, 1), gates)
            every, alone, with_some = log_p.split(size)
            learned = labels[:, 1:] >= 0
            for compared in (every, with_some):
                loss = loss + (compared[learned] - alone[learned]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter, factor in (fixed or {}).items():
            parameter.grad.mul_(factor)
        torch.nn.utils.clip_grad_norm_(lm.model.parameters(), 1.0)
        optimizer.step()
    lm.model.eval()


def random_others(lm: LanguageModel, planted: torch.Tensor) -> dict[Any, torch.Tensor]:
    """Give all but the planted heads random values; what keeps these as they are (see `train`)."""
    fixed = {}
    with torch.no_grad():
        for at, layer in enumerate(lm.model.model.layers):
            other, own = planted[at].repeat_interleave(WIDTH) == 0, layer.self_attn
            for part in (own.q_proj, own.k_proj, own.v_proj, own.o_proj):
                last = part is own.o_proj
                new = torch.randn_like(part.weight) / HIDDEN**0.5 * (LOUD if last else 1)
                where = (other if last else other[:, None]).expand_as(part.weight)
                part.weight.copy_(torch.where(where, new, part.weight))
                fixed[part.weight] = (~where).float()
    return fixed


def planted_model(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Make one model, save it, and say what is planted in it and what each head does."""
    from headscope.evidence.controls.equal_norm import output_norms

    number, steps = TASKS[name]
    task, draw, lm = Task(name, seed), random.Random(f"planted {name} {seed}"), new_model(seed)
    places = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    if name == "induction":  # half of them in the first layer, since one kind feeds the other
        first, later = places[:HEADS], places[HEADS:]
        drawn = draw.sample(first, number // 2) + draw.sample(later, number - number // 2)
    else:
        drawn = draw.sample(places, number)
    gate = torch.zeros(LAYERS, HEADS)
    for place in drawn:
        gate[place] = 1
    ids, labels = task.batch(lm.tokenizer, task.pairs(256, "held out"))

    @torch.no_grad()
    def loss(kept: torch.Tensor) -> float:
        return float(losses(lm, ids, labels, kept)[0])

    def without(kept: torch.Tensor, place: tuple[int, int]) -> float:
        less = kept.clone()
        less[place] = 0
        return loss(less) - loss(kept)

    train(lm, task, gate, steps, f"{seed}")
    while idle := [place for place in places if gate[place] and without(gate, place) < NEEDED]:
        gate[min(idle, key=partial(without, gate))] = 0
        train(lm, task, gate, steps // 2, f"{seed} {int(gate.sum())}")
    fixed, every, rounds = random_others(lm, gate), torch.ones_like(gate), 0
    while loss(every) > LEARNED and rounds < ROUNDS:
        train(lm, task, gate, FURTHER, f"{seed} others {rounds}", fixed)
        rounds += 1
    rows = [row[row != 0].tolist() for row in ids]
    norms = output_norms(lm, rows) / sum(map(len, rows))
    lm.model.save_pretrained(folder / "model")
    lm.tokenizer.save_pretrained(folder / "model")
    model_files = {
        "task": name,
        "seed": seed,
        "drawn": [f"{layer}.{head}" for layer, head in sorted(drawn)],
        "planted": [f"{layer}.{head}" for layer, head in places if gate[layer, head]],
        "rounds": rounds,
        "loss": {"all": loss(every), "planted": loss(gate), "others": loss(1 - gate)},
        "effect": {f"{p[0]}.{p[1]}": round(without(every, p), 5) for p in places},
        "norm": {f"{p[0]}.{p[1]}": round(float(norms[p]), 3) for p in places},
    }
    write(model_files, folder / "planted.json")
    return model_files


class Case:
    """A model with the data that methods get: sentences that it was not trained on."""

    def __init__(self, told: dict[str, Any], folder: Path) -> None:
        self.folder, self.task = folder, Task(told["task"], told["seed"])
        self.lm = load(folder / "model")
        self.number = 0

    def scores(self, command: Callable[..., Any], *data: Any, **options: Any) -> Any:
        """The scores of a run of a command. All sentences are linked alike, so a translation score
        has no chance to be compared with: `values` rank, not what is above chance."""
        out = self.folder / f"{command.__name__}"
        made = command(self.lm, *data, out=out, progress=False, **options)
        return read_scores(made.run)["mean"]

    def on_pairs(self, command: Callable[..., Any], **options: Any) -> Any:
        """Of a command on 60 sentence pairs, whose words are linked in their order."""
        rows = [
            {"source": source, "target": target, "links": " ".join(f"{n}-{n}" for n in range(LENGTH)
             if n < min(len(source.split()), len(target.split())))}
            for source, target in self.task.pairs(80, "pairs")
        ]  # fmt: skip
        return self.scores(
            command, rows, pair="en-de", template=self.task.template, chat=False, **options
        )

    def on_documents(self, command: Callable[..., Any]) -> Any:
        """Of a command on prompts with their answers as 200 documents."""
        pairs = self.task.pairs(200, "documents")
        texts = [f"{self.task.template.format(source=s)} {t}" for s, t in pairs]
        return self.scores(command, {"en": texts})

    def on_task(self, command: Callable[..., Any], corrupted: bool = False, **options: Any) -> Any:
        """Of a command on 200 prompts with their answers, each beside the prompt of another; 100
        more are held out."""
        pairs = self.task.pairs(300, "task")
        rows = [
            {"input": self.task.template.format(source=source), "output": answer}
            for source, answer in pairs
        ]
        if corrupted:
            other = [rows[at - 1]["input"] for at in range(len(rows))]
            rows = [{**row, "corrupted": text} for row, text in zip(rows, other, strict=True)]
        file = self.folder / "task.json"
        file.write_text(json.dumps(rows), "utf-8")
        return self.scores(command, task=[str(file)], **options)


def _previous(case: Case) -> Any:
    """The share of peaks on the token before, which `find induction` gives beside its score."""
    return case.scores(headscope.find.induction, block=20).extra["previous_token"]


#: How each method ranks the heads of a case, and the tasks that have what it needs; None: all.
METHODS: dict[str, tuple[Callable[[Case], Any], tuple[str, ...] | None]] = {
    "translation score": (
        lambda case: case.on_pairs(headscope.find.translation_score),
        ("copy", "translation"),
    ),
    "induction score": (
        lambda case: case.scores(headscope.find.induction, block=20),
        ("induction",),
    ),
    "previous-token score": (_previous, ("previous token", "induction")),
    "LAHIS": (lambda case: case.on_documents(headscope.find.lahis), None),
    "first-order importance": (lambda case: case.on_documents(headscope.find.first_order), None),
    "single removal": (lambda case: case.on_pairs(headscope.verify.heads), None),
    "knockouts, 96 gates": (lambda case: case.on_pairs(headscope.find.knockouts), None),
    "attribution": (lambda case: case.on_task(headscope.find.attribution, corrupted=True), None),
    "learned mask": (
        lambda case: case.on_task(headscope.find.mask, steps=300, learning_rate=0.2),
        None,
    ),
}


def average_precision(values: np.ndarray, planted: np.ndarray, draws: int = 1000) -> float:
    """The mean precision at each planted head of a ranking; equal values in any order."""
    draw, found = np.random.default_rng(0), []
    for _ in range(draws if len(np.unique(values)) < len(values) else 1):
        hits = planted[np.lexsort((draw.random(len(values)), -values))]
        found.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return float(np.mean(found))


def judged(told: dict[str, Any], folder: Path, methods: list[str]) -> dict[str, float]:
    """The average precision of every method that a model's task allows."""
    case, places = None, [f"{at}.{head}" for at in range(LAYERS) for head in range(HEADS)]
    planted = np.array([place in told["planted"] for place in places])
    found = {"chance": average_precision(np.zeros(len(places)), planted, 10_000)}
    for name in methods:
        rank, tasks = METHODS[name]
        if tasks is not None and told["task"] not in tasks:
            continue
        kept = folder / f"{name}.json"
        if not kept.exists():
            case = case or Case(told, folder)
            ranked = rank(case)
            values = np.asarray(getattr(ranked, "values", ranked)).ravel().tolist()
            write(dict(zip(places, values, strict=True)), kept)
        scores = json.loads(kept.read_text("utf-8"))
        found[name] = average_precision(np.array([scores[place] for place in places]), planted)
    return found


def summary(models: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over the models of each task, and over all, with Student's interval."""
    parts = {**{task: [m for m in models if m["task"] == task] for task in TASKS}, "all": models}
    made: dict[str, Any] = {}
    for task, some in parts.items():
        for name in ("chance", *METHODS):
            own = [m["average_precision"][name] for m in some if name in m["average_precision"]]
            if len(own) > 1:
                ends = t_interval(own)
                low, high = max(0.0, float(ends.low)), min(1.0, float(ends.high))
                made.setdefault(task, {})[name] = {
                    "mean": float(np.mean(own)), "low": low, "high": high, "least": min(own),
                    "models": len(own),
                }  # fmt: skip
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=5, help="of each task")
    parser.add_argument("--method", action="append", choices=METHODS, help="without it all")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-planted"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", Caution)  # these models do not translate between languages
    before, out = machine("cpu"), given.out and given.out.resolve()
    given.runs.mkdir(parents=True, exist_ok=True)
    os.chdir(given.runs)  # what methods are given in memory is written beside their runs
    models = []
    for seed in range(given.models):
        for name in TASKS:
            folder = Path(f"{name}-{seed}".replace(" ", "-"))
            kept = folder / "planted.json"
            planted = json.loads(kept.read_text()) if kept.exists() else None
            planted = planted or planted_model(name, seed, folder)
            models.append(
                {
                    **planted,
                    "average_precision": judged(planted, folder, given.method or [*METHODS]),
                }
            )
            say(f"{folder}: {models[-1]['average_precision']}")
    tell(
        {
            "command": "bench/planted.py",
            "machine": before,
            "heads": LAYERS * HEADS,
            "average_precision": summary(models),
            "models": models,
        },
        out,
    )


if __name__ == "__main__":
    main()
