"""Held-out sentences, documents, words and tasks of the bundled model's world."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import cast

from headscope.data.documents import Document, DocumentFile, digest_of
from headscope.data.languages import parse_direction
from headscope.data.pairs import PairFile, SentencePair, format_links
from headscope.data.tasks import Example, Task, translation_task
from headscope.data.words import Concept, ConceptFile, concept_file
from headscope.errors import InputError, nearest
from headscope.pocket.mixture import (
    BARE,
    TEMPLATES,
    WORD,
    instruction,
    monolingual_sentences,
    say,
    translation_prompt,
)
from headscope.pocket.world.knowledge import INSTRUCTIONS, Item, word_items
from headscope.pocket.world.languages import CODES, DIRECTIONS, language
from headscope.pocket.world.sampling import SPLITS, Split, sentences
from headscope.pocket.world.sentences import Sentence, of_kind, render

#: The word tasks; "translate" has one variant a target language.
TASKS = (*INSTRUCTIONS, "translate")


def sample_pairs(direction: str, split: str, n: int, seed: int) -> PairFile:
    """The first `n` sentences drawn with `seed`, in two languages, with exact word links.

    No two have the same source text. Ids, lines and the digest are those of the TSV file that
    `write_pairs` makes of them, so a file and a sample of the same sentences are the same data.
    InputError for a direction or split that the world lacks, or n below 1.
    """
    source, target = _languages(direction)
    chosen = _split(split)
    if n < 1:
        raise InputError(f"n is {n}; ask for at least one sentence pair")
    pairs: list[SentencePair] = []
    seen: set[str] = set()
    for sentence in sentences(chosen, seed):
        first, second = render(sentence, language(source)), render(sentence, language(target))
        if first.text in seen:
            continue
        seen.add(first.text)
        line = len(pairs) + 2  # line 1 holds the names of the columns
        pairs.append(SentencePair(str(line), first.text, second.text, first.links(second), line))
        if len(pairs) == n:
            break
    digest = hashlib.sha256(b"source\ttarget\tlinks\n")
    for pair in pairs:
        links = format_links(pair.links or ())
        digest.update(f"{pair.source}\t{pair.target}\t{links}\n".encode())
    return PairFile(tuple(pairs), source, target, f"pocket:{chosen}", digest.hexdigest())


def sample_documents(code: str, split: str, n: int, seed: int) -> DocumentFile:
    """The first `n` documents drawn with `seed`: texts of three to eight sentences in one language.

    The sentences of a document share their people, as in the mixture the model was trained on, and
    all are of the split. The same seed says the same things in every language, so the documents of
    two languages are translations of each other. No two say the same. InputError for a
    language or split that the world lacks, or n below 1.
    """
    check_known("language", code, CODES)
    chosen = _split(split)
    if n < 1:
        raise InputError(f"n is {n}; ask for at least one document")
    texts = [" ".join(say(s, code) for s in drawn) for drawn in _said(chosen, n, seed)]
    documents = tuple(Document(str(line), text, code, line) for line, text in enumerate(texts, 1))
    return DocumentFile(documents, code, f"pocket:{chosen}", digest_of(texts))


def task_items(task: str, code: str, split: str, to: str = "") -> tuple[Item, ...]:
    """The items of a word task of `TASKS` in one language and split, in a fixed order.

    `to` is the language of the answers of "translate". InputError for what the world lacks.
    """
    chosen = _split(split)
    check_known("word task", task, TASKS)
    check_known("language", code, CODES)
    if (task == "translate") != bool(to):
        raise InputError('the task "translate" needs the language to translate to, no other does')
    if to:
        check_known(
            "language to translate to", to, [candidate for candidate in CODES if candidate != code]
        )
    wanted = (task, code, to)
    return tuple(
        item
        for item in word_items()
        if (item.task, item.language, item.to) == wanted and item.split == chosen
    )


def word_table() -> ConceptFile:
    """Nouns, adjectives and verbs: the meanings that the world's word translations are made of.

    Of most of them some directions were answered in training: they show which heads carry a known
    word over, not whether new words can be learned.
    """
    meanings = [*of_kind("noun"), *of_kind("adjective")]
    meanings += [verb for verb in of_kind("verb") if verb.id != "be"]
    concepts = [
        Concept(meaning.id, {code: language(code).citation(meaning.id) for code in CODES}, line)
        for line, meaning in enumerate(meanings, 2)
    ]
    return concept_file(concepts, CODES, "pocket:words")


def contents() -> dict[str, tuple[str, ...]]:
    """What the world holds: languages, directions, splits and word tasks by name."""
    return {"languages": CODES, "directions": DIRECTIONS, "splits": SPLITS, "tasks": TASKS}


@lru_cache(maxsize=8)
def _said(split: Split, n: int, seed: int) -> tuple[tuple[Sentence, ...], ...]:
    """What `n` documents say, for any language: drawing it takes longer than saying it."""
    drawn: dict[tuple[Sentence, ...], None] = {}
    for document in monolingual_sentences(split, f"documents {seed}"):
        drawn.setdefault(tuple(document))
        if len(drawn) == n:
            break
    return tuple(drawn)


def _languages(direction: str) -> tuple[str, str]:
    if direction not in DIRECTIONS:
        parse_direction(direction)  # says what is wrong with the spelling, if that is it
        check_known("direction", direction, DIRECTIONS)
    source, _, target = direction.partition("-")
    return source, target


def _split(name: str) -> Split:
    check_known("split", name, SPLITS)
    return cast("Split", name)


def check_known(what: str, name: str, known: Sequence[str]) -> None:
    """InputError, with the nearest name, for something that the world lacks."""
    if name not in known:
        hint = nearest(name, known, 0.81)
        raise InputError(
            f"the world of the model pocket has no {what} {name!r}; {hint}known: {', '.join(known)}"
        )


@cache
def task_names() -> tuple[str, ...]:
    """Names of all word tasks.

    `plural-de`, `translate-en-de` where two languages take part, and `plural` for all languages.
    """
    alone = [task for task in TASKS if task != "translate"]
    named = [*alone, *(f"{task}-{code}" for task in alone for code in CODES)]
    named += [f"translate-{a}-{b}" for a in CODES for b in CODES if a != b]
    return tuple(named)


# Prompts of tasks are those the model was trained with. They are complete, so none goes through the
# chat template, which would add the end of the bare prompt once more.
def word_task(name: str, *splits: str) -> Task:
    """A word task of one split or several, in the fixed order of the world.

    Raises `InputError`, with the nearest name, for a task or split that the world lacks.
    """
    if name not in task_names():
        hint = nearest(name, task_names())
        raise InputError(
            f"the model pocket has no word task {name!r}; {hint}a name is one of "
            f"{', '.join(TASKS)} and a language ({', '.join(CODES)}), such as plural-de or "
            "translate-en-de"
        )
    kind, *codes = name.split("-")
    items = [
        item
        for code in codes[:1] or CODES
        for split in splits
        for item in task_items(kind, code, split, *codes[1:])
    ]
    examples = tuple(
        Example(str(number), item.input, item.output, number)
        for number, item in enumerate(items, 1)
    )
    text = "".join(f"{example.input}\t{example.output}\n" for example in examples)
    return Task(
        name=name,
        examples=examples,
        instruction=WORD.replace("{instruction}", instruction(items[0])),
        bare=BARE,
        language=codes[-1] if codes else None,
        at_start=kind == "first_letter",
        path=f"pocket:{'+'.join(splits)}",
        digest=hashlib.sha256(text.encode("utf-8")).hexdigest(),
        chat=False,
    )


def sentence_task(direction: str, split: str, n: int, seed: int) -> Task:
    """Translating the first `n` sentences of a split drawn with `seed`; see `sample_pairs`."""
    pairs = sample_pairs(direction, split, n, seed)
    template = translation_prompt(
        TEMPLATES[0], "{input}", pairs.source_language, pairs.target_language
    )
    return translation_task(pairs, template, BARE, direction, chat=False)
