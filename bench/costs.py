"""What recipes take on the bundled model, beside what the cost model says before, as JSON.

    python bench/costs.py --threads 1 --clock process --out bench/results/costs-pocket.json

Every recipe runs twice, on a small share of its data: once while the tokens that go through the
model are counted at each layer's output projection (padding included, since it is computed), and
once for its seconds. Predicted are the seconds of the counted work on this machine, measured as
`headscope reproduce` measures it, in a second or two; ratios are measured / predicted, the larger
the worse the promise. `passes_alone` is what the passes of each kind are predicted to take by
themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from machine import machine, tell
from timing import CLOCKS, load, moment, say
from torch.nn.modules.module import register_module_forward_pre_hook

import headscope
from headscope.pocket.sample import sample_documents
from headscope.recipes.costs.estimate import estimate_seconds
from headscope.recipes.costs.machines import Machine
from headscope.recipes.costs.measuring import measure_machine
from headscope.recipes.costs.reading import shape_of
from headscope.recipes.costs.shapes import Shape
from headscope.recipes.costs.work import Work
from headscope.recipes.documents import DocumentsChoice
from headscope.recipes.find.lahis import FindLahis, find_lahis
from headscope.recipes.find.mask import FindMask, find_mask
from headscope.recipes.find.translation import FindTranslation, find_translation
from headscope.recipes.inputs import PairsChoice
from headscope.recipes.tasks import TaskChoice
from headscope.recipes.use.rate import UseRate, use_rate
from headscope.recipes.verify.removal import VerifyRemoval, verify_removal
from headscope.verify.removal import Removal

AIM = 1.5
PAIRS = ("en-de", "ru-es", "tr-en", "de-ru")


@dataclass
class Counted:
    """Rows and columns of every pass that went through one layer, by what was done to them."""

    layers: int
    forward: list[tuple[int, float]] = field(default_factory=list)
    backward: list[tuple[int, float]] = field(default_factory=list)
    generated: list[tuple[int, float]] = field(default_factory=list)
    _context: float = 0.0

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
    found = Counted(shape.layers)
    width, hidden = shape.query_heads * shape.head_dim, shape.hidden

    def see(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if not isinstance(module, torch.nn.Linear):
            return
        if (module.in_features, module.out_features) == (width, hidden) and args[0].dim() == 3:
            found.see(int(args[0].shape[0]), int(args[0].shape[1]))

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
        one.text
        for code in ("en", "de", "es", "ru", "tr")
        for one in sample_documents(code, "dev", 40 * size, 3).documents
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
        "verify removal": lambda out: verify_removal(
            VerifyRemoval(
                str(heads),
                pairs=replace(pairs, pair=PAIRS[:2]),
                removal=Removal(draws=3, layer_matched=False),
            ),
            out,
        ),
        "find mask": lambda out: find_mask(
            FindMask(task=asked, changes={"steps": 40 * size, "learning_rate": 0.5}), out
        ),
        "use rate": lambda out: use_rate(UseRate(data=(str(corpus),), heads=str(heads)), out),
    }


def row(
    recipe: Callable[[Path], Any],
    folder: Path,
    shape: Shape,
    here: Machine,
    clock: Callable[[], float],
) -> dict[str, Any]:
    """A recipe's work, its predicted and its measured seconds."""
    with counted(shape) as seen:
        recipe(folder / "counted")
    works = seen.works()
    bare = replace(here, start=0.0, text=0.0)
    parts = {name: estimate_seconds(work, shape, bare) for name, work in works.items()}
    total = sum(works.values(), Work())
    predicted = estimate_seconds(total, shape, here)
    began = clock()
    recipe(folder / "timed")
    measured = clock() - began
    return {
        "work": {name: asdict(work) for name, work in works.items()},
        "passes_alone": parts,
        "predicted": predicted,
        "measured": measured,
        "ratio": measured / predicted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="process")
    parser.add_argument("--size", type=int, default=1, help="1: under a minute in all")
    parser.add_argument("--only", action="append", default=[], help="names of recipes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    before, clock = machine("cpu"), CLOCKS[given.clock]
    lm = headscope.load("pocket")
    shape = shape_of(lm)
    began = clock()
    here = measure_machine(lm, clock=clock)
    took = clock() - began
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, recipe in recipes(folder, given.size).items():
            if given.only and title not in given.only:
                continue
            place = folder / title.replace(" ", "-").replace(",", "")
            rows[title] = row(recipe, place, shape, here, clock)
            one = rows[title]
            say(f"{title}: {one['measured']:.2f} of {one['predicted']:.2f}: {one['ratio']:.2f}")
    told = {
        "command": "bench/costs.py",
        "date": moment(),
        "clock": given.clock,
        "machine": before | {"load_after": load()},
        "measured_machine": asdict(here),
        "calibration_seconds": took,
        "aim": AIM,
        "recipes": rows,
        "worst_ratio": max(max(one["ratio"], 1 / one["ratio"]) for one in rows.values()),
    }
    tell(told, given.out)


if __name__ == "__main__":
    main()
