"""What the bundled model can do without its token alignment heads, as JSON.

    python bench/tasks.py --out bench/results/tasks-pocket.json

Heads are found on sentences of the dev split and removed, the top 15 %, on tasks made from items
of the test split: some need a mapping from one language to another, some do not. Beside them as
many random heads, any and of the same layers. The runs are kept in --runs and go on where they
were.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from machine import machine, table, tell

from headscope.pocket.tasks import CROSS_LINGUAL, write_tasks
from headscope.runs import encode
from headscope.studies.bars import progress
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.studies.verify.tasks import VerifyTasks
from headscope.studies.verify.tasks import comparison as tasks

CROSS = {task.name for task in CROSS_LINGUAL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100, help="most items of a task")
    parser.add_argument("--sentences", type=int, default=50, help="of each direction, to find on")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-tasks"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    write_tasks(given.runs / "tasks", "test", given.items, given.seed)
    with progress() as update:
        pairs = PairsChoice(pair=("all",), limit=given.sentences)
        find_translation(FindTranslation(pairs=pairs), given.runs / "heads", update)
        config = VerifyTasks(
            task=(str(given.runs / "tasks"),),
            heads=str(given.runs / "heads"),
            draws=given.draws,
            seed=given.seed,
        )
        result = encode(tasks.run(config, given.runs / "verify", update))
    details = result["details"]
    told = {
        "command": "bench/tasks.py",
        "machine": before,
        **{name: result[name] for name in ("signature", "model")},
        **{name: details[name] for name in ("heads", "k", "draws", "harness")},
        "items": given.items,
        "sentences": given.sentences,
        "seed": given.seed,
        "seconds": result["seconds"],
        "tasks": {
            name: {"cross_lingual": name in CROSS} | task for name, task in details["tasks"].items()
        },
        **table(result),
    }
    tell(told, given.out)


if __name__ == "__main__":
    main()
