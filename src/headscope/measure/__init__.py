"""Text metrics and statistics, computed from stored outputs; no model is needed here."""

from headscope.measure.metrics import (
    BleuTokenizer,
    Score,
    bleu,
    bleu_from_statistics,
    bleu_tokenizer,
    chrf,
    chrf_from_statistics,
    sentence_chrf,
    source_copies,
    source_copy,
)
from headscope.measure.statistics import (
    Interval,
    Overlap,
    bootstrap_interval,
    bootstrap_score,
    overlap,
    p_draws,
    p_sentences,
)

__all__ = [
    "BleuTokenizer",
    "Interval",
    "Overlap",
    "Score",
    "bleu",
    "bleu_from_statistics",
    "bleu_tokenizer",
    "bootstrap_interval",
    "bootstrap_score",
    "chrf",
    "chrf_from_statistics",
    "overlap",
    "p_draws",
    "p_sentences",
    "sentence_chrf",
    "source_copies",
    "source_copy",
]
