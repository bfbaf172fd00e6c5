"""Token Alignment Heads: what it asks, its experiments, and the answer for one model."""

from __future__ import annotations

from collections.abc import Mapping

from headscope.papers.claims import answer_of, claims_of
from headscope.papers.paper import Paper, Setting
from headscope.papers.token_alignment_heads.alignment import ALIGNMENT
from headscope.papers.token_alignment_heads.classes import CLASSES, POSITIONS
from headscope.papers.token_alignment_heads.consistency import CONSISTENCY
from headscope.papers.token_alignment_heads.failures import FAILURES
from headscope.papers.token_alignment_heads.formation import FORMATION
from headscope.papers.token_alignment_heads.key_words import KEY_WORDS
from headscope.papers.token_alignment_heads.rated import RATED
from headscope.papers.token_alignment_heads.removal import REMOVAL
from headscope.papers.token_alignment_heads.setting import NAME, how_chosen
from headscope.papers.token_alignment_heads.tasks import OTHER_TASKS
from headscope.papers.token_alignment_heads.trater import TRAININGS
from headscope.shown.blocks import Findings


def answer(setting: Setting, told: Mapping[str, Findings]) -> tuple[str, str]:
    """The paper's claims, each as it was found here, and what was left unanswered."""
    left = [
        one.elements[0]
        for one in PAPER.experiments
        if one.name not in told or not told[one.name].found
    ]
    return answer_of(claims_of(told), left)


PAPER = Paper(
    NAME,
    "Token Alignment Heads: Unveiling Attention's Role in LLM Multilingual Translation",
    "Liu and others, ICLR 2026",
    "Are there attention heads that map the words of a source sentence to those of its "
    "translation, and does the model need them to translate?",
    (
        "A head scores a hit where its largest attention weight, while a target word is predicted, "
        "lies on the source word that it translates; its translation score is the share of hits.",
        "Heads that score above 0.1 are counted by model, layer, direction and checkpoint.",
        "The best of them are removed, beside as many random heads, and what the model loses in "
        "translating, in other tasks and on texts is measured.",
    ),
    (
        REMOVAL,
        ALIGNMENT,
        CLASSES,
        POSITIONS,
        CONSISTENCY,
        FORMATION,
        OTHER_TASKS,
        TRAININGS,
        RATED,
        FAILURES,
        KEY_WORDS,
    ),
    answer,
    frozenset(("limit", "draws", "k", "aligner", "measure", "rank", "shots", "chat", "decode")),
    lambda setting: (how_chosen(setting),),
)
