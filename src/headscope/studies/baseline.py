"""Whether the model does the task at all, told before and above what is found about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.split import (
    draw_shots,
    known_digests,
    leakage,
    sentence_digest,
    text_digests,
)
from headscope.data.tasks import TaskSides
from headscope.errors import MissingExtra, caution
from headscope.estimates import Baseline
from headscope.evidence.rows import Condition
from headscope.measure.baseline import (
    SHOWN,
    Rules,
    answers_right,
    translates,
    with_other_shots,
)
from headscope.progress import Progress
from headscope.results.common import BaselineCheck
from headscope.shown.words import enumeration
from headscope.verify.removal_translations.conditions import Translating, answers_of, continuations

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

TITLE = "trial texts of the original model"
#: What is kept of the check: outputs behind the shots of the run, and behind others.
FIRST, OTHERS = "baseline", "baseline, other shots"
#: Shots from which on more of them are not advised, and how many times the examples are, where
#: their interval includes zero.
MANY_SHOTS, MORE = 6, 4


class Works(TypedDict):
    """The fields of a `Checked`."""

    baseline_works: bool | None
    baseline_check: BaselineCheck | None


#: Where the model is not asked.
UNTRIED: Works = {"baseline_works": None, "baseline_check": None}


def check_translations(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    settings: Translating,
    run: Run,
    rules: Rules,
    progress: Progress | None = None,
    answer_only: bool = True,
) -> Works:
    """Let the untouched model translate the first sentences of each direction, and judge it.

    What it wrote is kept in `run`. Returns `baseline_works` and `baseline_check` (see
    `about_baseline`; both None where sacrebleu is not installed), and warns (`Caution`) where it
    does not translate. `answer_only`: whether `--answer-only` is worth a try.
    """
    few = {
        name: replace(pairs, pairs=pairs.pairs[: rules.examples])
        for name, pairs in directions.items()
    }

    def ask(part: str, asked: Mapping[str, PairFile], *unit: str) -> None:
        kept = run.read_part(part)
        asked = {name: pairs for name, pairs in asked.items() if name not in kept}
        if not asked:
            return
        made = continuations(lm, list(asked.values()), settings, run, TITLE, progress, *unit)
        for (name, pairs), outputs in zip(asked.items(), made, strict=True):
            texts = [output.text for output in outputs]
            answers = answers_of(pairs, texts) if settings.answer_only else texts
            rows = [
                (pair.source, pair.target, answer, output.stop == "length", output.text)
                for pair, answer, output in zip(pairs.pairs, answers, outputs, strict=True)
            ]
            languages = [pairs.target_language, pairs.source_language]
            run.append_part(part, name, [languages, rows])

    ask(FIRST, few)
    shots = max((len(pairs.shots) for pairs in directions.values()), default=0)
    first = _judged(run, FIRST, rules, settings.seed) if shots else None
    others = {
        name: replace(few[name], shots=drawn)
        for name, check in (first or {}).items()
        if check.works is False and (drawn := other_shots(directions[name], rules, settings.seed))
    }
    ask(OTHERS, others, OTHERS)
    tries = [*_tries(lm, shots, settings.chat, settings.seed), "another --template"]
    tries += ["the other direction", "a larger model"]
    return judge_translations(run, rules, settings.seed, _any_of(tries), answer_only)


def other_shots(pairs: PairFile, rules: Rules, seed: int) -> tuple[SentencePair, ...]:
    """As many other examples of the direction, without any sentence of those that are asked; none
    where there are too few."""
    asked = known_digests({"asked": text_digests(pairs.pairs[: rules.examples])})
    spare = [pair for pair in pairs.pairs[rules.examples :] if not leakage(asked, [pair])]
    number, sources = len(pairs.shots), {sentence_digest(pair.source) for pair in spare}
    return draw_shots(spare, number, seed + 1, pairs.path) if len(sources) >= number else ()


def _tries(lm: LanguageModel, shots: int, chat: bool | None, seed: int) -> list[str]:
    """What may help a model to a task: options that were not tried, and what decides."""
    tries = [f"--seed {seed + 1} (other shots)"] if shots else ["--shots 3"]
    if 0 < shots < MANY_SHOTS:
        tries.append(f"--shots {2 * shots}")
    if getattr(lm.tokenizer, "chat_template", None):
        tries.append("--chat" if chat is False else "--no-chat")
    return tries


def _any_of(tries: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(tries[:-1]), *tries[-1:]]))


def judge_translations(
    run: Run, rules: Rules, seed: int, tries: str, answer_only: bool = True
) -> Works:
    """Judge what `check_translations` kept in `run`; as it returns and warns."""
    judged, others = (_judged(run, part, rules, seed) for part in (FIRST, OTHERS))
    if judged is None or others is None:
        return {"baseline_works": None, "baseline_check": BaselineCheck(tries)}
    both = {name: with_other_shots(check, others.get(name)) for name, check in judged.items()}
    if any(check.near_zero and check.examples >= rules.examples for check in both.values()):
        tries = f"--baseline-examples {MORE * rules.examples} (its interval includes zero), {tries}"
    return about_baseline(both, tries, answer_only)


def _judged(run: Run, part: str, rules: Rules, seed: int) -> dict[str, Baseline] | None:
    """The translations that are kept in a part, judged; None where no chrF++ can be counted."""
    judged = {}
    for name, (languages, rows) in run.read_part(part).items():
        # Where answers alone count, the whole outputs stand behind them.
        sources, targets, texts, cut, *_ = zip(*rows, strict=True)
        target, source = languages
        try:
            judged[name] = translates(sources, targets, texts, cut, target, rules, seed, source)
        except MissingExtra:
            return None
    return judged


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
    from headscope.verify.masked_tasks.asking import Asking, Way, ask, asked
    from headscope.verify.masked_tasks.evidence import right, translations_in

    def judged(sides: TaskSides, seed: int, prefix: str) -> Baseline:
        task = replace(sides.test, examples=sides.test.examples[: rules.examples])
        question = asked(task, sides.pool, shots, seed)
        instructed = task.instruction is not None
        planned = {Condition(): Way()}
        if instructed:
            planned[Condition("instructed")] = Way(instructed=True)
        made = [*ask(lm, question, planned, Asking(), run, progress, prefix=prefix).values()]
        best = made[-1].texts
        inputs = [example.input for example in task.examples]
        references = [example.output for example in task.examples]
        if task.language is not None and task.is_translation:
            lines = translations_in(task, best)
            cut = made[-1].cut
            return translates(
                inputs,
                references,
                lines,
                cut,
                task.language,
                rules,
                seed,
                task.source_language,
                best,
            )
        ever = [
            any(right(output.texts[at], answer, task.at_start) for output in made)
            for at, answer in enumerate(references)
        ]
        return answers_right(inputs, references, best, ever, instructed)

    checks = {}
    for name, sides in tasks.items():
        first, other = judged(sides, seed, "baseline check, "), None
        if shots and first.works is False:
            other = judged(sides, seed + 1, "baseline check, other shots, ")
        checks[name] = with_other_shots(first, other)
    plain = all(sides.test.chat is False for sides in tasks.values())
    tries = _tries(lm, shots, False if plain else None, seed)
    return about_baseline(checks, _any_of([*tries, "another --instruction", "a larger model"]))


def about_baseline(judged: Mapping[str, Baseline], tries: str, answer_only: bool = True) -> Works:
    """`baseline_works` (of every direction or task) and `baseline_check`: of each what was judged.

    `baseline_works` is None where none fails and one cannot be told, or its data are at fault.
    Warns of each of these, and of outputs with a preamble; `tries` says what may help, and
    `answer_only` whether that option does.
    """

    def reasons(checks: Mapping[str, Baseline]) -> str:
        few = [f"{name}: {', '.join(check.reasons)}" for name, check in [*checks.items()][:SHOWN]]
        return "; ".join(few) + (f"; and {len(checks) - SHOWN} more" if len(checks) > SHOWN else "")

    failed = {name: check for name, check in judged.items() if check.works is False}
    faulty = {name: check for name, check in judged.items() if "data_at_fault" in check.counts}
    swayed = {name: check for name, check in judged.items() if check.swayed}
    open_ = {
        name: check
        for name, check in judged.items()
        if check.works is None and name not in {*faulty, *swayed}
    }
    around = {name: check for name, check in judged.items() if "preamble" in check.counts}
    cautions = []
    if faulty:
        cautions.append(f"the data are at fault, not the model ({reasons(faulty)})")
    if failed:
        cautions.append(
            f"the model does not do this task as it is ({reasons(failed)}), so what follows says "
            f"little about it; try {tries}"
        )
    if swayed:
        cautions.append(
            f"whether the model does this task depends on the shots ({reasons(swayed)}); try "
            f"{tries}"
        )
    if open_:
        cautions.append(
            f"whether the model does this task cannot be told ({reasons(open_)}); give more data, "
            "and --baseline-examples where there are more than it takes"
        )
    if around:
        told = "; ".join(
            f"{name}: {check.counts['preamble']} of {check.examples} outputs have a preamble "
            f"({enumeration(check.counts['preamble_kinds'])})"
            for name, check in around.items()
        )
        try_answers = "; try --answer-only" if answer_only else ""
        cautions.append(f"{told}, which counts as translation{try_answers}")
    for words in cautions:
        caution(words)
    works = False if failed else None if open_ or swayed or faulty else True
    return {"baseline_works": works, "baseline_check": BaselineCheck(tries, judged)}
