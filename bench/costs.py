"""What recipes take on the bundled model, beside what the cost model says before, as JSON.

    python bench/costs.py --threads 1 --clock process --out bench/results/costs-pocket.json
    python bench/costs.py --real FOLDER --threads 2 --clock wall --rounds 3

With --real the models and the data are those that `bench/real_models.py` made in FOLDER. Every
recipe runs on a small share of its data, first while the tokens that go through the model are
counted at each layer's output projection and at the output embedding (padding included, since it
is computed), then --rounds times for its seconds, of which the median counts. Predicted are the
seconds of the counted work on this machine, measured as `headscope reproduce` measures
it; ratios are measured / predicted, the larger the worse the promise. `passes_alone` is what the
passes of each kind are predicted to take by themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from machine import machine, tell
from timing import CLOCKS, load, moment, say
from torch.nn.modules.module import register_module_forward_pre_hook

import headscope
from headscope.measure.baseline import Rules
from headscope.pocket.sample import sample_documents
from headscope.studies.costs.estimate import Machine, Work, estimate_seconds
from headscope.studies.costs.measuring import measure_machine
from headscope.studies.costs.shapes import LOGITS_AT_ONCE, Shape, shape_of
from headscope.studies.documents import DocumentsChoice
from headscope.studies.find.lahis import FindLahis, find_lahis
from headscope.studies.find.mask import FindMask, find_mask
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.models import ModelChoice, kept_model
from headscope.studies.pairs import PairsChoice
from headscope.studies.tasks import TaskChoice
from headscope.studies.use.rate import UseRate, use_rate
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal

AIM = 1.5
WORDS = (
    "book",
    "house",
    "car",
    "tree",
    "river",
    "garden",
    "teacher",
    "letter",
    "window",
    "table",
    "road",
    "dog",
    "cat",
    "bird",
    "hand",
    "lamp",
    "coat",
    "chair",
    "door",
    "hill",
    "lake",
    "farm",
)
PAIRS = ("en-de", "ru-es", "tr-en", "de-ru")


@dataclass
class Counted:
    """Rows and columns of every pass that went through one layer, by what was done to them."""

    layers: int
    forward: list[tuple[int, float]] = field(default_factory=list)
    backward: list[tuple[int, float]] = field(default_factory=list)
    generated: list[tuple[int, float]] = field(default_factory=list)
    logits: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _context: float = 0.0

    def shares(self, works: dict[str, Work], vocabulary: int) -> dict[str, float]:
        """The share of the tokens of each kind whose logits are made."""
        found = dict.fromkeys(works, 1.0)
        if "forward" in works:
            rest = self.logits[False] - works.get("generated", Work()).generated
            found["forward"] = max(0.0, rest / works["forward"].tokens)
        if "backward" in works:
            work = works["backward"]
            share = self.logits[True] / work.tokens
            # Logits that do not fit at once are made again on the way back.
            again = work.rows * work.length * share * vocabulary > 2 * LOGITS_AT_ONCE
            found["backward"] = share / 2 if again else share
        return found

    def see(self, rows: int, width: int) -> None:
        """A pass of so many rows and columns; a column alone continues the pass before."""
        if width == 1:
            self._context += 1 / self.layers
            self.generated.append((rows, self._context))
            return
        self._context = width
        (self.backward if torch.is_grad_enabled() else self.forward).append((rows, width))

    def works(self) -> dict[str, Work]:
        """The work of each kind; every pass was seen once in each layer that it ran through."""
        found = {}
        for name in ("forward", "backward", "generated"):
            seen = getattr(self, name)
            if not seen:
                continue
            calls = len(seen) / self.layers
            whole = sum(rows * width for rows, width in seen)
            all_rows = sum(rows for rows, _ in seen)
            tokens = all_rows if name == "generated" else whole
            found[name] = Work(
                **{name: tokens / self.layers},
                length=whole / all_rows,
                rows=all_rows / len(seen),
                calls=calls,
            )
        return found


@contextmanager
def counted(shape: Shape) -> Iterator[Counted]:
    """Count what goes through the output projections of any model of this shape."""
    width, hidden = shape.query_heads * shape.head_dim, shape.hidden
    # Where both are the same, queries are projected by a map of the same shape.
    found = Counted(shape.layers * (2 if width == hidden else 1))

    def see(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not isinstance(module, torch.nn.Linear):
            return
        if (module.in_features, module.out_features) == (width, hidden) and args[0].dim() == 3:
            found.see(int(args[0].shape[0]), int(args[0].shape[1]))
        elif (module.in_features, module.out_features) == (hidden, shape.vocabulary):
            found.logits[torch.is_grad_enabled()] += args[0].numel() // hidden

    handle = register_module_forward_pre_hook(see)
    try:
        yield found
    finally:
        handle.remove()


def recipes(folder: Path, size: int) -> dict[str, Callable[[Path], Any]]:
    """The recipes that are timed, each given a run folder; sizes grow with `size`."""
    pairs = PairsChoice(pair=PAIRS, limit=10 * size)
    heads = folder / "heads"
    find_translation(FindTranslation(pairs=PairsChoice(pair=PAIRS[:1], limit=20)), heads)
    corpus = folder / "corpus.jsonl"
    documents = [
        document.text
        for code in ("en", "de", "es", "ru", "tr")
        for document in sample_documents(code, "dev", 40 * size, 3).documents
    ]
    corpus.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in documents),
        encoding="utf-8",
    )
    asked = TaskChoice(task=("plural-en",), bare="Word: {input}\nAnswer:")
    return {
        "find translation-score": lambda out: find_translation(
            FindTranslation(pairs=replace(pairs, limit=40 * size)), out
        ),
        "find lahis": lambda out: find_lahis(
            FindLahis(documents=DocumentsChoice(limit=30 * size)), out
        ),
        "verify removal": lambda out: removal.run(
            VerifyRemoval(
                heads=str(heads),
                pairs=replace(pairs, pair=PAIRS[:2]),
                draws=3,
                controls=("random",),
            ),
            out,
        ),
        "find mask": lambda out: find_mask(
            FindMask(task=asked, changes={"steps": 40 * size, "learning_rate": 0.5}), out
        ),
        "use rate": lambda out: use_rate(UseRate(data=(str(corpus),), heads=str(heads)), out),
    }


def real_recipes(folder: Path, model: Path, data: Path) -> dict[str, Callable[[Path], Any]]:
    """Scores, losses, LAHIS and a mask of a real model."""
    name = ModelChoice(str(model), dtype="float32")
    pairs = PairsChoice(("en-es",), (str(data / "en-es.test.tsv"),), limit=24, shots=3)
    documents = tuple(f"{code}={data / code}.find.txt" for code in ("de", "ru"))
    task = data / "plural.tsv"
    task.write_text("input\toutput\n" + "".join(f"{word}\t{word}s\n" for word in WORDS), "utf-8")
    return {
        "find translation-score": lambda out: find_translation(FindTranslation(name, pairs), out),
        "verify removal --measure loss": lambda out: removal.run(
            VerifyRemoval(
                heads="5.1,10.2,11.2",
                model=name,
                pairs=replace(pairs, limit=6),
                draws=5,
                loss_draws=5,
                measure=("loss",),
                baseline=Rules(examples=1),
            ),
            out,
        ),
        "find lahis": lambda out: find_lahis(
            FindLahis(model=name, documents=DocumentsChoice(data=documents, limit=3)), out
        ),
        "find mask": lambda out: find_mask(
            FindMask(
                model=name,
                task=TaskChoice(task=(str(task),), held_out=4),
                changes={"steps": 12, "learning_rate": 0.8},
                baseline=Rules(examples=1),
            ),
            out,
        ),
    }


def row(
    recipe: Callable[[Path], Any],
    folder: Path,
    shape: Shape,
    here: Machine,
    clock: Callable[[], float],
    rounds: int,
) -> dict[str, Any]:
    """A recipe's work, its predicted and its measured seconds."""
    with counted(shape) as seen:
        recipe(folder / "counted")
    works = seen.works()
    shares = seen.shares(works, shape.vocabulary)
    bare = replace(here, start=0.0, text=0.0)
    parts = {
        name: estimate_seconds(work, shape, bare, shares[name]) for name, work in works.items()
    }
    beside = replace(here, start=0.0)
    texts = sum(estimate_seconds(work, shape, beside) for work in works.values())
    texts -= sum(estimate_seconds(work, shape, bare) for work in works.values())
    predicted = here.start + texts + sum(parts.values())
    measured = []
    for number in range(rounds):
        began = clock()
        recipe(folder / f"timed {number}")
        measured.append(clock() - began)
    return {
        "work": {name: asdict(work) for name, work in works.items()},
        "logits": shares,
        "passes_alone": parts,
        "predicted": predicted,
        "rounds": measured,
        "measured": median(measured),
        "ratio": median(measured) / predicted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="process")
    parser.add_argument("--size", type=int, default=1, help="1: under a minute in all")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--real", type=Path, help="folder of bench/real_models.py")
    parser.add_argument("--model", choices=("gemma3", "smollm2"), default="gemma3")
    parser.add_argument("--only", action="append", default=[], help="names of recipes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    before, clock = machine("cpu"), CLOCKS[given.clock]
    model = "pocket" if given.real is None else str(given.real / f"{given.model}.gguf")
    lm = replace(headscope.load(model, dtype="float32"), name=Path(model).name)
    shape = shape_of(lm)
    began = clock()
    here = measure_machine(lm, clock=clock)
    took = clock() - began
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, kept_model():
        folder = Path(name)
        chosen = (
            recipes(folder, given.size)
            if given.real is None
            else real_recipes(folder, Path(model), given.real / "data")
        )
        for title, recipe in chosen.items():
            if given.only and title not in given.only:
                continue
            place = folder / title.replace(" ", "-").replace(",", "")
            rows[title] = row(recipe, place, shape, here, clock, given.rounds)
            one = rows[title]
            say(f"{title}: {one['measured']:.2f} of {one['predicted']:.2f}: {one['ratio']:.2f}")
    result = {
        "command": "bench/costs.py",
        "model": Path(model).name,
        "date": moment(),
        "clock": given.clock,
        "machine": before | {"load_after": load()},
        "measured_machine": asdict(here),
        "calibration_seconds": took,
        "aim": AIM,
        "recipes": rows,
        "worst_ratio": max(max(row["ratio"], 1 / row["ratio"]) for row in rows.values()),
    }
    tell(result, given.out)


if __name__ == "__main__":
    main()
