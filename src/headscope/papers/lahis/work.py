"""What the runs ask of a model, from their counts, for the estimate of time."""

from __future__ import annotations

import math

from headscope.find.trained_gates import SoftGate
from headscope.papers.lahis.scale import scale
from headscope.papers.paper import Setting
from headscope.studies.costs.work import Work

#: Padded tokens of a batch with gradients, and of losses on a small model, where more is slower.
BATCH = 2048
#: Pairs of questions and answers that gates are trained on and stopped on, and epochs (METHODS).
PAIRS, STOP, EPOCHS = 200, 100, 2


def gradient_batch(setting: Setting) -> int:
    """Padded tokens of a batch with gradients."""
    return min(BATCH, setting.batch_tokens)


def loss_batch(setting: Setting) -> int:
    """Padded tokens of a batch whose losses are read."""
    return min(BATCH, setting.batch_tokens) if setting.small else setting.batch_tokens


def scoring(setting: Setting, languages: int, moving: bool = False) -> Work:
    """Every document of every language once, with gradients; alone if the gate moves."""
    one = scale(setting)
    together = 1 if moving else max(1, gradient_batch(setting) // one.document)
    return Work(
        backward=languages * one.found * one.document,
        length=one.document,
        rows=min(one.found, together),
        calls=languages * math.ceil(one.found / together),
    )


def reading(setting: Setting, rows: int) -> Work:
    """So many documents are read, those of a language and a condition together."""
    one = scale(setting)
    together = max(1, min(one.tested, loss_batch(setting) // one.document))
    return Work(
        forward=rows * one.document,
        length=one.document,
        rows=together,
        calls=math.ceil(rows / together),
    )


def writing(setting: Setting, arms: int, prompts: int, passes: int = 1) -> Work:
    """Every arm reads its prompts so many times and writes once; tokens are the scale's means."""
    one = scale(setting)
    together = max(1, min(prompts, setting.batch_tokens // (one.prompt + one.output)))
    return Work(
        forward=arms * prompts * passes * one.prompt,
        generated=arms * prompts * one.output,
        length=one.prompt + one.output / 2,
        rows=together,
        calls=arms * math.ceil(prompts / together) * (passes + one.output),
    )


def training(setting: Setting) -> Work:
    """Three kinds of heads a seed; pairs held out are looked at every 25 steps; then all answer."""
    one = scale(setting)
    trainings, steps = 3 * one.seeds, EPOCHS * PAIRS
    looks = 1 + steps // SoftGate().check_every
    together = max(1, setting.batch_tokens // one.prompt)
    learned = Work(
        backward=trainings * steps * one.prompt, length=one.prompt, calls=trainings * steps
    )
    looked = Work(
        forward=trainings * looks * STOP * one.prompt,
        length=one.prompt,
        rows=min(STOP, together),
        calls=trainings * looks * math.ceil(STOP / together),
    )
    # As is, the heads removed, random ones of every seed removed, and every trained gate.
    conditions = 2 + one.seeds + trainings
    return learned + looked + writing(setting, conditions, one.questions, passes=2)
