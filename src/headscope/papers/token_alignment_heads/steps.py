"""The runs that the experiments share: sentences, scores, overlap, removal, failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headscope.data.pairs import write_pairs
from headscope.find.translation import TranslationScore
from headscope.papers.paper import Missing, Setting, Step
from headscope.papers.token_alignment_heads.setting import (
    POCKET_CHECKED,
    POCKET_FOUND,
    THRESHOLD,
    amounts,
    checked_on,
    decoded,
    directions,
    found_on,
    given,
    halved,
    in_chat,
    needs_pairs,
    ranked_by,
    top,
)
from headscope.runs import Run, carry_out, encode
from headscope.studies.compare.overlap import CompareOverlap, compare_overlap
from headscope.studies.costs.work import Work
from headscope.studies.find.translation import FindTranslation, find_translation
from headscope.studies.inputs import Progress, find_and_check
from headscope.studies.verify.failures import VerifyFailures, verify_failures
from headscope.studies.verify.removal import VerifyRemoval, verify_removal
from headscope.verify.removal import Removal

#: Random sets of heads of each kind beside those that are removed: with fewer than 19 p over draws
#: cannot be 0.05.
DRAWS = 39
#: Tokens of a prompt with its sentence, and of a translation: of the pocket world, and of FLORES.
POCKET_TOKENS, TOKENS = (28, 17), (70, 50)
#: Sentences of FLORES-101's dev and test splits.
FLORES = (997, 1012)

Result = Mapping[str, Any]


def score_steps(setting: Setting, *more: Step) -> tuple[Step, ...] | Missing:
    """Translation scores of every direction, and steps that read them."""
    missing = needs_pairs(setting)
    if missing is not None:
        return missing
    own = _score_step(setting, "scores", "every direction", _scores)
    return (*_sentences(setting), own, *more)


def other_scores(setting: Setting) -> tuple[Step, ...]:
    """The same of other models, which need sentences that are not of the pocket world alone."""
    return tuple(
        _score_step(
            setting, f"scores{setting.of(name).suffix}", name, partial(elsewhere, _scores, name)
        )
        for name in setting.data.others
        if setting.data.pairs
    )


def _score_step(setting: Setting, name: str, of: str, run: Callable[..., Result]) -> Step:
    work = sentences_of(setting, POCKET_FOUND, FLORES[0], generate=decoded(setting) == "greedy")
    before = ("sentences",) if halved(setting) else ()
    return Step(name, f"translation scores of {of}", run, work, before)


def elsewhere(run: Callable[..., Result], other: str, setting: Setting, *rest: Any) -> Result:
    """A run with another model, by the settings of this one."""
    return run(setting.of(other), *rest)


def overlap_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    """The best heads of every direction, compared."""
    given_ones = len(setting.data.pairs) if halved(setting) else len(directions(setting))
    if given_ones == 1:
        return Missing(
            "heads of one direction alone cannot be compared with those of another",
            "a second direction, such as the reverse: --pairs de-en=FILE",
        )
    own = Step("overlap", "the best heads of every two directions", _overlap, Work(), ("scores",))
    return score_steps(setting, own)


def removal_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    """Translation without the best heads, and without random ones."""
    times = 1 + len(amounts(setting)) * (1 + 2 * (setting.steering.draws or DRAWS))
    work = sentences_of(setting, POCKET_CHECKED, FLORES[1], generate=True) * times
    own = Step("removal", "translation without the heads", _removal, work, ("scores",))
    return score_steps(setting, own)


def failure_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    """How translations fail without the best heads."""
    removal = removal_steps(setting)
    if isinstance(removal, Missing):
        return removal
    if "text" not in (setting.steering.measure or ("text",)):
        return Missing("by loss alone no text is written that could fail", "--measure text")
    own = Step("failures", "how translations fail", _failures, Work(), ("removal",))
    return (*removal, own)


def sentences_of(setting: Setting, pocket: int, others: int, generate: bool) -> Work:
    """The work of every direction's sentences once, read or translated."""
    if setting.data.pairs:
        count = len(setting.data.pairs) if halved(setting) else len(directions(setting))
        each, (prompt, answer) = others, TOKENS
    else:
        count, each, (prompt, answer) = 20, pocket, POCKET_TOKENS
    rows = max(1.0, setting.batch_tokens / (prompt + answer))
    number = count * each
    batches = number / rows
    if not generate:
        return Work(
            forward=number * (prompt + answer), length=prompt + answer, rows=rows, calls=batches
        )
    return Work(
        forward=number * prompt,
        generated=number * answer,
        length=prompt + answer / 2,
        rows=rows,
        calls=batches * answer,
    )


def _sentences(setting: Setting) -> tuple[Step, ...]:
    if not halved(setting):
        return ()
    return (Step("sentences", "two halves of the sentences", _halves, Work()),)


def _halves(setting: Setting, out: Path, progress: Progress | None) -> Result:
    """Write the halves of the sentences given, to find heads on and to check them on."""
    most = FLORES[1]
    found, checked = find_and_check(given(setting), setting.model.model, most, setting.seed)
    inputs = {pair: pairs.digest for pair, pairs in found.items()}

    def write(run: Run) -> Result:
        for split, halves in (("dev", found), ("devtest", checked)):
            (run.path / split).mkdir(exist_ok=True)
            for pair, pairs in halves.items():
                write_pairs(run.path / split / f"{pair}.tsv", pairs.pairs)
        return {
            "found_on": {pair: len(pairs.pairs) for pair, pairs in found.items()},
            "checked_on": {pair: len(pairs.pairs) for pair, pairs in checked.items()},
        }

    settings = {"seed": setting.seed, "most": most}
    return carry_out("reproduce sentences", out, settings, inputs, write)


def scoring(setting: Setting) -> TranslationScore:
    """How heads are scored."""
    return TranslationScore(
        decode=decoded(setting),
        aligner=setting.steering.aligner,
        llm=setting.linker if setting.steering.aligner == "llm" else None,
        chat=in_chat(setting),
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )


def _scores(setting: Setting, out: Path, progress: Progress | None) -> Result:
    config = FindTranslation(
        setting.model, found_on(setting), scoring(setting), THRESHOLD, ranked_by(setting)
    )
    result: Result = encode(find_translation(config, out, progress))
    return result


def _overlap(setting: Setting, out: Path, progress: Progress | None) -> Result:
    config = CompareOverlap((str(setting.at("scores")),), top(setting), rank=ranked_by(setting))
    return dict(encode(compare_overlap(config, out)))


def _removal(setting: Setting, out: Path, progress: Progress | None) -> Result:
    removal = Removal(
        draws=setting.steering.draws or DRAWS,
        loss_draws=setting.steering.draws,
        measure=setting.steering.measure or None,
        chat=in_chat(setting),
        threshold=THRESHOLD,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )
    heads = str(setting.at("scores"))
    config = VerifyRemoval(
        heads,
        amounts(setting),
        setting.model,
        checked_on(setting),
        removal,
        rank=ranked_by(setting),
    )
    return encode(verify_removal(config, out, progress))


def _failures(setting: Setting, out: Path, progress: Progress | None) -> Result:
    config = VerifyFailures(run=setting.at("removal"), llm=setting.llm)
    return encode(verify_failures(config, out, progress))
