"""Whether the model does the task at all, told before and above what is found about it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from headscope.data.pairs import PairFile
from headscope.errors import Caution, MissingExtra
from headscope.estimates import Baseline
from headscope.measure.baseline import Rules, answers_right, translates
from headscope.progress import Progress
from headscope.results.common import BaselineCheck
from headscope.verify.translation.conditions import Translating, continuations

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run
    from headscope.studies.tasks import TaskSides

TITLE = "does the model do the task"


class Works(TypedDict):
    """The fields of a `Checked`."""

    baseline_works: bool | None
    baseline_check: BaselineCheck


def check_translations(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    settings: Translating,
    run: Run,
    rules: Rules,
    progress: Progress | None = None,
) -> Works:
    """Let the untouched model translate the first sentences of each direction, and judge it.

    What it wrote is kept in `run`. Returns `baseline_works` and `baseline_check` (see
    `about_baseline`; both None where sacrebleu is not installed), and warns (`Caution`) where it
    does not translate.
    """
    if not run.read_part("baseline"):
        if progress:
            progress(TITLE, 0, 1)
        few = {
            name: replace(pairs, pairs=pairs.pairs[: rules.examples])
            for name, pairs in directions.items()
        }
        made = continuations(lm, list(few.values()), settings)
        for (name, pairs), outputs in zip(few.items(), made, strict=True):
            rows = [
                (pair.source, pair.target, output.text, output.stop == "length")
                for pair, output in zip(pairs.pairs, outputs, strict=True)
            ]
            run.append_part("baseline", name, [pairs.target_language, rows])
        if progress:
            progress(TITLE, 1, 1)
    # What has not been tried is worth trying.
    tries = [] if any(pairs.shots for pairs in directions.values()) else ["--shots 3"]
    if getattr(lm.tokenizer, "chat_template", None):
        tries.append("--no-chat" if settings.chat else "--chat")
    return judge_translations(
        run, rules, settings.seed, " or ".join([*tries, "another --template"])
    )


def judge_translations(run: Run, rules: Rules, seed: int, tries: str) -> Works:
    """Judge what `check_translations` kept in `run`; as it returns and warns."""
    judged = {}
    for name, (language, rows) in run.read_part("baseline").items():
        sources, targets, texts, cut = zip(*rows, strict=True)
        try:
            judged[name] = translates(sources, targets, texts, cut, language, rules, seed)
        except MissingExtra:  # no chrF++ can be counted here
            return {"baseline_works": None, "baseline_check": BaselineCheck(tries)}
    return about_baseline(judged, tries)


def check_tasks(
    lm: LanguageModel,
    tasks: Mapping[str, TaskSides],
    shots: int,
    seed: int,
    run: Run,
    rules: Rules,
    progress: Progress | None = None,
) -> Works:
    """Ask the untouched model a few held-out examples of each task, bare and instructed.

    Translations are judged as translations, under the instruction where there is one; other tasks
    by whether an answer is ever right. Returns and warns as `check_translations` does.
    """
    from headscope.verify.masks.asking import Asking, Masking, ask, asked
    from headscope.verify.masks.evidence import first_line, right

    judged = {}
    for name, sides in tasks.items():
        task = replace(sides.test, examples=sides.test.examples[: rules.examples])
        question = asked(task, sides.pool, shots, seed)
        instructed = task.instruction is not None
        conditions = [Masking("as-is", "baseline check, as is")]
        if instructed:
            conditions.append(Masking("instructed", "baseline check, instructed", instructed=True))
        made = [
            ask(lm, question, condition, Asking(), run, progress=progress)
            for condition in conditions
        ]
        best = made[-1].texts
        inputs = [example.input for example in task.examples]
        references = [example.output for example in task.examples]
        if task.language is not None and task.is_translation:
            lines = [first_line(text) for text in best]
            cut = made[-1].cut
            judged[name] = translates(inputs, references, lines, cut, task.language, rules, seed)
            continue
        ever = [
            any(right(output.texts[at], answer, task.at_start) for output in made)
            for at, answer in enumerate(references)
        ]
        judged[name] = answers_right(inputs, references, best, ever, instructed)
    return about_baseline(judged, "another --instruction, --shots N, or a larger model")


def about_baseline(judged: Mapping[str, Baseline], tries: str) -> Works:
    """`baseline_works` (of every direction or task) and `baseline_check`: of each what was judged.

    Warns once where one of them fails; `tries` says what may help.
    """
    failed = {name: check for name, check in judged.items() if not check.works}
    if failed:
        reasons = "; ".join(f"{name}: {', '.join(check.reasons)}" for name, check in failed.items())
        warnings.warn(
            Caution(
                f"the model does not do this task as it is ({reasons}), so what follows says "
                f"little about it; try {tries}"
            ),
            stacklevel=2,
        )
    return {"baseline_works": not failed, "baseline_check": BaselineCheck(tries, judged)}
