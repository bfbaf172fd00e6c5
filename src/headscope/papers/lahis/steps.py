"""The runs of the paper's experiments: studies with its settings, and what each asks of a model."""

from __future__ import annotations

from functools import partial

from headscope.papers.lahis.runs import (
    answer_contradictions,
    go_on,
    lead_back,
    read_text,
    read_without_layers,
    score_heads,
    summarise,
    train_gates,
    translate,
)
from headscope.papers.lahis.scale import (
    HEADS,
    astray,
    codes,
    directions_given,
    languages,
    scale,
    step_name,
)
from headscope.papers.lahis.work import reading, scoring, training, writing
from headscope.papers.paper import Setting, Step


def heads(setting: Setting) -> Step:
    """Importance of every head for every language; specific and general sets."""
    return Step(
        HEADS,
        "importance of every head for each language",
        score_heads,
        scoring(setting, languages(setting)),
    )


def perplexity(setting: Setting) -> Step:
    """Every language's text without every language's heads."""
    one, n = scale(setting), languages(setting)
    # As is, the chosen and the full heads on every text, free draws beside the chosen ones on every
    # text (the same for languages with as many heads), the other three kinds on their own text.
    texts = n + 2 * n * n + one.draws * n + 3 * one.draws * n
    return Step(
        step_name(setting, "perplexity"),
        "text of each language without the heads of each",
        read_text,
        reading(setting, texts * one.tested),
        (HEADS,),
    )


def layers(setting: Setting) -> Step:
    """Every language's text without the heads of one layer at a time."""
    one, counts = scale(setting), [count for count in setting.geometry.counts if count]
    texts = languages(setting) * (1 + len(counts) + one.layer_draws * len(set(counts)))
    return Step(
        step_name(setting, "layers"),
        "text of each language without whole layers",
        read_without_layers,
        reading(setting, texts * one.tested),
        (HEADS,),
    )


def summaries(setting: Setting) -> Step:
    """Summaries without general heads."""
    one = scale(setting)
    n = languages(setting) if setting.pocket else len(setting.data.summaries)
    arms = n * (2 + 2 * one.writing_draws)
    return Step(
        step_name(setting, "summaries"),
        "repeated sentences without general heads"
        if setting.pocket
        else "summaries without general heads",
        summarise,
        writing(setting, arms, one.summaries),
        (HEADS,),
    )


def translating(setting: Setting) -> Step:
    """The language of translations without the heads of the target language."""
    one = scale(setting)
    directions = 20 if setting.pocket else len(directions_given(setting))
    arms = directions * (3 + 2 * one.writing_draws)
    return Step(
        step_name(setting, "off-target-translate"),
        "language of translations without the target language's heads",
        translate,
        writing(setting, arms, one.sentences),
        (HEADS,),
    )


def continuing(setting: Setting) -> Step:
    """The language of continued documents without the heads of it."""
    one = scale(setting)
    arms = languages(setting) * (3 + 2 * one.writing_draws)
    return Step(
        step_name(setting, "off-target-continue"),
        "language of continued documents without its heads",
        go_on,
        writing(setting, arms, one.beginnings),
        (HEADS,),
    )


def mitigation(setting: Setting) -> Step:
    """Answers in the wrong language, with that language's heads or those asked for changed."""
    one, (_, ways) = scale(setting), astray(setting)
    arms = len(ways) * (1 + 2 * (1 + 2 * one.steering_draws))
    return Step(
        step_name(setting, "mitigation"),
        "answers led back to the language asked for",
        lead_back,
        writing(setting, arms, one.steered, passes=2),
        (HEADS,),
    )


def transfers(setting: Setting) -> tuple[Step, ...]:
    """Contradicting statements with one language's heads turned up or the other's removed.

    One run for the statements that there are, or one for each file of one's own.
    """
    one = scale(setting)
    arms = 1 + 2 * (1 + 2 * one.writing_draws)
    if setting.pocket or not setting.data.statements:
        n = languages(setting)
        return (
            Step(
                step_name(setting, "transfer"),
                "answers to statements that contradict each other",
                answer_contradictions,
                writing(setting, n * (n - 1) * arms, one.statements, passes=2),
                (HEADS,),
            ),
        )
    return tuple(
        Step(
            step_name(setting, f"transfer-{pair}"),
            f"answers to statements that contradict each other, {pair}",
            partial(answer_contradictions, pair=pair),
            writing(setting, arms, one.statements, passes=2),
            (HEADS,),
        )
        for pair in codes(setting.data.statements)
    )


def gates(setting: Setting) -> tuple[Step, ...]:
    """Trained gates of the first heads: on the bundled model's questions, or language by language.

    Of a language of the documents its own scores are taken, of another the mean of all.
    """
    if setting.pocket:
        return (
            Step(
                step_name(setting, "soft-gate"),
                "gates of a few heads trained on questions",
                train_gates,
                training(setting),
                (HEADS,),
            ),
        )
    return tuple(
        Step(
            step_name(setting, f"soft-gate-{code}"),
            f"gates of a few heads trained on questions in {code}",
            partial(train_gates, code=code),
            training(setting),
            (HEADS,),
        )
        for code in codes(setting.data.questions)
    )
