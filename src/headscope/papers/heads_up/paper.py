"""Heads Up! as a recipe: its experiments, and what they answer together."""

from __future__ import annotations

from collections.abc import Mapping

from headscope.papers.claims import answer_of, claims_of
from headscope.papers.heads_up.attention import TABLE_7
from headscope.papers.heads_up.examples import FIGURE_1, TABLE_4
from headscope.papers.heads_up.families import TABLE_6
from headscope.papers.heads_up.history import FIGURE_3
from headscope.papers.heads_up.orders import FIGURE_8, FIGURE_9
from headscope.papers.heads_up.scaling import FIGURE_6
from headscope.papers.heads_up.settings import TABLE_9
from headscope.papers.heads_up.shots import TABLE_3
from headscope.papers.heads_up.similarity import FIGURE_7, TABLE_5
from headscope.papers.heads_up.states import FIGURE_4
from headscope.papers.heads_up.translation import TABLE_1
from headscope.papers.heads_up.variants import TABLE_39, TABLE_40, TABLE_43
from headscope.papers.heads_up.walks import FIGURE_2
from headscope.papers.heads_up.words import TABLE_2
from headscope.papers.paper import Paper, Setting
from headscope.shown.blocks import Findings


def _answer(setting: Setting, told: Mapping[str, Findings]) -> tuple[str, str]:
    """The paper's claims, each as it was found here, and what was left unanswered."""
    left = [
        one.elements[0]
        for one in PAPER.experiments
        if one.name not in told or not told[one.name].found
    ]
    return answer_of(claims_of(told), left)


PAPER = Paper(
    name="heads-up",
    title="Heads up! Large Language Models Can Perform Tasks Without Your Instruction via "
    "Selective Attention Head Masking",
    source="Han, Zeng, Yu and Chen, ICML 2025",
    question="Which heads must be silent for a model to do a task that nobody tells it?",
    method=(
        "Every head has a weight, and a noisy gate of 0 or 1 drawn from it multiplies what the "
        "head writes while the model is given inputs without an instruction.",
        "The weights alone are trained, on the loss of the right outputs, with noise that cools "
        "down.",
        "At the end a head is kept where its weight is zero or more, and the mask is tested on "
        "held-out examples beside the model as it is, the instructed model and random masks of the "
        "same size.",
    ),
    experiments=(
        FIGURE_1,
        TABLE_1,
        TABLE_2,
        TABLE_3,
        TABLE_4,
        TABLE_5,
        FIGURE_2,
        TABLE_6,
        FIGURE_3,
        FIGURE_4,
        TABLE_7,
        FIGURE_6,
        TABLE_9,
        FIGURE_7,
        FIGURE_8,
        FIGURE_9,
        TABLE_39,
        TABLE_40,
        TABLE_43,
    ),
    answer=_answer,
    steered=frozenset(("limit", "draws", "shots", "chat", "instruction", "steps")),
    notes=lambda setting: (
        "Figures of several directions or tasks are means; claims are tested in each of them, by "
        "the tests of the weakest.",
    ),
)
