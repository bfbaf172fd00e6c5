"""The prompts that a model is steered on: by language, from files or the pocket model's world."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.data.files import write_text_atomically
from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.errors import InputError
from headscope.recipes.documents import DocumentsChoice, read_languages
from headscope.recipes.inputs import POCKET, PairsChoice, read_directions
from headscope.use.adapting import prompts as asking

if TYPE_CHECKING:
    from headscope.recipes.use.steering import Steer

__all__ = ["asked_for", "astray_files", "path_of", "write_astray"]

#: Prompts of each language where the pocket model's own are taken.
PROMPTS = 60
#: Characters of a text that leads astray.
BEFORE = 1000


def asked_for(config: Steer) -> dict[str, list[asking.Prompt]]:
    """The prompts of each language."""
    codes = config.languages
    if len(set(codes)) != len(codes):
        raise InputError("--steer names a language twice; name each once")
    choice = config.prompts
    if config.data:
        named = dict(one.partition("=")[::2] for one in config.data)
        if len(codes) == 1 and len(config.data) == 1 and codes[0] not in named:
            return {codes[0]: replace(choice, data=config.data[0]).read()}
        if sorted(named) != sorted(codes) or len(config.data) != len(named):
            raise InputError(
                f"prompts are needed for {', '.join(codes)}, each in a file of its own; write "
                + " ".join(f"--data {code}=FILE" for code in codes)
            )
        return {code: replace(choice, data=named[code]).read() for code in codes}
    if choice.prompt:
        if len(codes) > 1:
            raise InputError("--prompt is for one language; with several give --data LANG=FILE")
        return {codes[0]: choice.read()}
    if config.model.model != POCKET:
        raise InputError(
            f"no prompts are given; add --data FILE with prompts that ask for an answer in "
            f"{language_name(codes[0])}, or --prompt TEXT"
        )
    return {code: _of_pocket(code, choice.limit or PROMPTS, config.seed) for code in codes}


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


def path_of(config: Steer, code: str) -> str:
    """Where a language's prompts come from, in words."""
    if config.data:
        return next(
            (one.partition("=")[2] for one in config.data if one.startswith(f"{code}=")),
            config.data[0],
        )
    return "--prompt" if config.prompts.prompt else "pocket (test)"


def _of_pocket(code: str, number: int, seed: int) -> list[asking.Prompt]:
    """Translation prompts into a language of the pocket model, from each of its others in turn."""
    from headscope.pocket.world.languages import CODES

    others = [one for one in CODES if one != code]
    each = -(-number // len(others))
    pairs = PairsChoice(tuple(f"{one}-{code}" for one in others), limit=each)
    found = []
    for name, file in read_directions(pairs, POCKET, "test", seed=seed).items():
        names = language_name(file.source_language), language_name(file.target_language)
        for pair in file.pairs:
            text = DEFAULT_TEMPLATE.render(pair.source, *names).text
            found.append(asking.Prompt(f"{name} {pair.id}", text, f"{name} {pair.id}", pair.target))
    return found
