"""Sentence pairs, documents, questions, needles, languages, words and prompts, from files.

`align` links words, `tasks` holds tasks of inputs and outputs, `transfer` statements that
contradict each other.
"""

from headscope.data.languages import Direction, language_name, parse_direction
from headscope.data.pairs import Links, PairFile, PairSource, SentencePair, read_pairs, write_pairs
from headscope.data.prompts import DEFAULT_TEMPLATE, FullPrompt, Prompt, Template
from headscope.data.split import halves, leakage, sentence_digest, source_digests, with_shots
from headscope.data.words import Word, split_words, units_name

__all__ = [
    "DEFAULT_TEMPLATE",
    "Direction",
    "FullPrompt",
    "Links",
    "PairFile",
    "PairSource",
    "Prompt",
    "SentencePair",
    "Template",
    "Word",
    "halves",
    "language_name",
    "leakage",
    "parse_direction",
    "read_pairs",
    "sentence_digest",
    "source_digests",
    "split_words",
    "units_name",
    "with_shots",
    "write_pairs",
]
