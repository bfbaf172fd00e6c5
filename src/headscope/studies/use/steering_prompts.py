"""Files of prompts that lead a model astray, for it to be steered back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from headscope.data.files import write_text_atomically
from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.inputs import PairsChoice, read_directions

#: Characters of a text that leads astray.
BEFORE = 1000


def write_astray(path: Path, pairs: PairFile, before: Sequence[str]) -> Path:
    """A file of translation prompts that lead a model astray: each behind one of these texts.

    The texts are taken in turn; they are in a language that the model is to stray to, such as the
    source language. Rows hold `id`, `text` and `reference`.
    """
    names = language_name(pairs.source_language), language_name(pairs.target_language)
    rows = []
    for at, pair in enumerate(pairs.pairs):
        prompt = DEFAULT_TEMPLATE.render(pair.source, *names).text
        text = "\n".join((before[at % len(before)], prompt)) if before else prompt
        rows.append({"id": pair.id, "text": text, "reference": pair.target})
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text_atomically(path, lines)
    return path


def astray_files(
    folder: Path,
    pairs: PairsChoice,
    documents: DocumentsChoice,
    away: str,
    model: str,
    seed: int = 0,
) -> dict[str, Path]:
    """`write_astray` for every direction of the test data, by target language, below `folder`.

    The texts before are the beginnings of documents in the language `away`.
    """
    texts = read_languages(documents, model, "test", seed)[away].documents
    before = [one.text[:BEFORE] for one in texts]
    return {
        one.target_language: write_astray(folder / f"{one.target_language}.jsonl", one, before)
        for one in read_directions(pairs, model, "test", seed=seed).values()
    }
