"""Which method ranks the right heads: judged surveys of one model on several tasks, as JSON.

    python bench/judge.py --out bench/results/judge-pocket.json
    python bench/judge.py --no-translation --task plural-de --task past-en \
        --out bench/results/judge-pocket-tasks.json
    python bench/judge.py --model gemma3 --dtype bfloat16 --pair en-es --data en-es.tsv \
        --documents en=eng.txt --documents es=spa.txt --first 200 --shots 4 --judged 30 \
        --method translation-score --method lahis --method knockouts \
        --out bench/results/judge-gemma3-translation.json

Translation is judged, then each --task: `headscope survey MODEL --judge`. DATA is a file of tabs
without names of columns: source, target, and links if there are any. Of it, of a file of a task and
of each of --documents (`en=english.txt`, a document a line) the --first are taken (of `ioi` all),
of sentences half to find on and half to judge by. All methods take part but `soft-gate`, whose
heads another one found. Runs are kept in --runs, and an interrupted one goes on there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from machine import asked, machine, tell

from headscope.estimates import Estimate
from headscope.results.methods import SurveyResult
from headscope.studies.bars import progress
from headscope.studies.models import ModelChoice
from headscope.studies.registry import methods
from headscope.studies.survey import Survey, survey
from headscope.studies.survey_plans import SurveyData

COLUMNS = ("source", "target", "links")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--dtype")
    parser.add_argument("--data", type=Path, help="sentence pairs; pocket has its own")
    parser.add_argument("--pair", default="en-de")
    parser.add_argument("--documents", action="append", default=[], help="repeatable")
    parser.add_argument("--first", type=int, help="examples of a file; without it all")
    parser.add_argument("--task", action="append", default=[], help="repeatable")
    parser.add_argument("--shots", type=int, default=0, help="before a sentence or an input")
    parser.add_argument("--no-chat", action="store_true", help="prompts as plain text")
    parser.add_argument("--no-translation", action="store_true", help="judge the tasks alone")
    parser.add_argument("--method", action="append", default=[], help="repeatable; else all")
    parser.add_argument("--judged", type=int, help="examples")
    parser.add_argument("--draws", type=int, help="random rankings")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-judge"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    folder = given.runs / Path(given.model).stem
    model = ModelChoice(given.model, **({"dtype": given.dtype} if given.dtype else {}))
    pairs = (f"{given.pair}={_pairs(given, folder)}",) if given.data else ()
    texts = tuple(_documents(source, given.first, folder) for source in given.documents)
    judged = {}
    with progress() as update:
        for task in [*([] if given.no_translation else [given.pair]), *given.task]:
            named = () if task == given.pair else (_task(task, given.first, folder),)
            chat = False if given.no_chat else None
            data = SurveyData(
                pairs=pairs, documents=texts, task=named, shots=given.shots, chat=chat
            )
            every = tuple(given.method) or tuple(name for name in methods() if name != "soft-gate")
            config = Survey(
                model, data, every, given.quick, judge=True, judged=given.judged, draws=given.draws
            )
            judged[Path(task).stem] = told(survey(config, folder / Path(task).stem, update))
    result = {
        "command": "bench/judge.py",
        "machine": before,
        "given": asked(given),
        "judged": judged,
    }
    tell(result, given.out)


def _pairs(given: argparse.Namespace, folder: Path) -> Path:
    """The first sentences of the data, with the names of their columns."""
    rows = given.data.read_text("utf-8").splitlines()[: given.first]
    names = "\t".join(COLUMNS[: rows[0].count("\t") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    file: Path = folder / f"{given.pair}.tsv"
    file.write_text("\n".join([names, *rows, ""]), "utf-8")
    return file


def _documents(named: str, first: int | None, folder: Path) -> str:
    """The first documents of a language."""
    language, place = named.split("=", 1)
    rows = Path(place).read_text("utf-8").splitlines()[:first]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{language}.txt"
    file.write_text("\n".join([*rows, ""]), "utf-8")
    return f"{language}={file}"


def _task(task: str, first: int | None, folder: Path) -> str:
    """The first examples of a file, which is a JSON list; another task is its name."""
    if not Path(task).is_file():
        return task
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / Path(task).name
    file.write_text(json.dumps(json.loads(Path(task).read_text("utf-8"))[:first]), "utf-8")
    return str(file)


def told(result: SurveyResult) -> dict[str, Any]:
    """By judge what it says of each method (value, interval, p over random rankings; of areas the
    difference from these), the best first, and of random rankings (mean and range); what each
    method cost."""
    found = result.judges
    assert found is not None
    random = {
        name: [estimate.mean, estimate.low, estimate.high]
        for name, estimate in found.random.items()
    }
    return {
        "measure": found.measure,
        "examples": found.examples,
        "model_does_the_task": found.baseline_works,
        "draws": found.draws,
        "sets": found.sets,
        "heads_of_a_set": found.size,
        "judges": {
            judge: {
                "methods": {
                    name: [
                        _short(number)
                        for number in (
                            estimate.value,
                            estimate.low,
                            estimate.high,
                            estimate.p_draws,
                        )
                    ]
                    + [_short(number) for number in _gap(estimate.difference)]
                    for name, estimate in found.of(judge).items()
                },
                "random": [_short(number) for number in random[judge]],
            }
            for judge in random
        },
        "first_minus_second": found.ahead
        and [_short(number) for number in (found.ahead.value, found.ahead.low, found.ahead.high)],
        "unjudged": [*found.unjudged],
        "left_out": {row.method: row.why for row in result.runs if row.run is None},
        "costs": {
            row.method: {
                "seconds": row.seconds and round(row.seconds, 1),
                "forward_tokens": row.forward_tokens,
                "gradient_tokens": row.gradient_tokens,
            }
            for row in result.runs
            if row.run is not None
        },
        "seconds_of_judging": round(found.seconds, 1),
    }


def _gap(difference: Estimate | None) -> list[float | None]:
    return [] if difference is None else [difference.value, difference.low, difference.high]


def _short(number: float | None) -> float | None:
    return None if number is None or number != number else round(number, 4)


if __name__ == "__main__":
    main()
