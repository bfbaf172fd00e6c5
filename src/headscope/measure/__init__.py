"""Text metrics and statistics, computed from stored outputs; no model is needed here."""

from headscope.estimates import Estimate
from headscope.measure.external import External, bert_score, bleurt, comet

# `identify` itself stays in its module, whose name it would take.
from headscope.measure.identify import identifier_name, off_targets, same_language
from headscope.measure.intervals import (
    Interval,
    bootstrap_difference,
    bootstrap_interval,
    bootstrap_mean,
    bootstrap_score,
    rate_interval,
    wilson_interval,
)
from headscope.measure.metrics import (
    BleuTokenizer,
    RougeL,
    Score,
    bleu,
    bleu_from_statistics,
    bleu_tokenizer,
    chrf,
    chrf_from_statistics,
    rouge_l,
    rouge_l_from_statistics,
    sentence_chrf,
    source_copies,
)
from headscope.measure.statistics import (
    Overlap,
    least_p,
    overlap,
    overlap_within,
    p_draws,
    p_sentences,
)

__all__ = [
    "BleuTokenizer",
    "Estimate",
    "External",
    "Interval",
    "Overlap",
    "RougeL",
    "Score",
    "bert_score",
    "bleu",
    "bleu_from_statistics",
    "bleu_tokenizer",
    "bleurt",
    "bootstrap_difference",
    "bootstrap_interval",
    "bootstrap_mean",
    "bootstrap_score",
    "chrf",
    "chrf_from_statistics",
    "comet",
    "identifier_name",
    "least_p",
    "off_targets",
    "overlap",
    "overlap_within",
    "p_draws",
    "p_sentences",
    "rate_interval",
    "rouge_l",
    "rouge_l_from_statistics",
    "same_language",
    "sentence_chrf",
    "source_copies",
    "wilson_interval",
]
