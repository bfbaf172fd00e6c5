"""The words of the bundled model's world, in all its languages."""

from __future__ import annotations

from headscope.data.concepts import Concept, ConceptFile, concept_file
from headscope.pocket.world.languages import CODES, language
from headscope.pocket.world.lexicon import of_kind


def word_table() -> ConceptFile:
    """Nouns, adjectives and verbs: the meanings that the world's word translations are made of.

    Of most of them some directions were answered in training: which heads carry a known word over
    is asked with them, not whether new words can be learned.
    """
    meanings = [*of_kind("noun"), *of_kind("adjective")]
    meanings += [verb for verb in of_kind("verb") if verb.id != "be"]
    concepts = [
        Concept(one.id, {code: language(code).citation(one.id) for code in CODES}, line)
        for line, one in enumerate(meanings, 2)
    ]
    return concept_file(concepts, CODES, "pocket:words")
