"""Whether heads are tested on the sentences, documents or examples they were found on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from headscope.data.pairs import PairFile, SentencePair
from headscope.data.split import known_digests, sentence_digest
from headscope.data.tasks import Example, Task
from headscope.errors import InputError, naming
from headscope.heads.resolve import place_of
from headscope.results.common import Leakage

FOUND_ON = "found_on.json"


def check_leakage(
    heads: str, directions: Mapping[str, PairFile], allow_overlap: bool = False
) -> Leakage:
    """Count the test pairs whose source or target is among what `heads` were found on.

    `heads` is what `--heads` says; a run folder, or the scores or set inside one, tells by its
    `found_on.json`. Raises `InputError` if there is an overlap, also of the pairs set aside, unless
    it is allowed.
    """

    def sides(pairs: Iterable[SentencePair]) -> list[tuple[str, str]]:
        return [(pair.source, pair.target) for pair in pairs]

    counted = count_leakage(
        heads,
        sides(pair for pairs in directions.values() for pair in pairs.pairs),
        allow_overlap,
        "test pairs hold a sentence that these heads were found on",
        "test on other sentences (of one file: find with --split find, test with --split verify)",
    )
    reference = sides(pair for pairs in directions.values() for pair in pairs.reference)
    check_reference(heads, chain.from_iterable(reference), allow_overlap)
    return counted


def check_text_leakage(
    heads: str | Sequence[str], texts: Iterable[str], allow_overlap: bool = False
) -> Leakage:
    """Count the test texts that any of `heads` were found on; else as `check_leakage`."""
    words = "test texts are among those that these heads were found on"
    return count_leakage(heads, [(text,) for text in texts], allow_overlap, words)


def check_task_leakage(heads: str, tasks: Iterable[Task], allow_overlap: bool = False) -> Leakage:
    """Count the examples that the heads of a run were found on; else as `check_leakage`.

    Of translations one side is enough, of other tasks both have to be the same.
    """
    return count_leakage(
        heads,
        [_texts(example, task) for task in tasks for example in task.examples],
        allow_overlap,
        "test examples are among those these heads were found on",
        "test with the --held-out, --limit and --seed the heads were found with, on other examples",
    )


def count_leakage(
    heads: str | Sequence[str],
    tested: Sequence[Sequence[str]],
    allow_overlap: bool,
    words: str,
    remedy: str = "test on others",
) -> Leakage:
    """Count the examples of which a text is among what any of `heads` were found on.

    `tested` are the texts of each example. Raises `InputError`, whose `words` and `remedy` these
    are, if there is any, unless allowed.
    """
    digests = [[sentence_digest(text) for text in texts] for texts in tested]

    def overlap(known: Collection[str]) -> int:
        return sum(any(digest in known for digest in own) for own in digests)

    records = [known_examples(each) for each in ([heads] if isinstance(heads, str) else heads)]
    found_on = [record for record in records if record is not None]
    for file, known in found_on:
        if (many := overlap(known)) and not allow_overlap:
            raise InputError(
                f"{many} of {len(tested)} {words} ({file}), so they prove nothing new; {remedy}, "
                "or add --allow-overlap"
            )
    every = frozenset[str]().union(*(known for _, known in found_on))
    return Leakage(
        known=len(found_on) == len(records),
        overlap=overlap(every) if found_on else None,
        of=len(tested),
    )


def check_reference(heads: str, texts: Iterable[str], allow_overlap: bool = False) -> None:
    """Raises `InputError` if heads were found on texts that replacements are made from."""
    known = None if allow_overlap else known_examples(heads)
    if known is not None and (overlap := sum(sentence_digest(text) in known[1] for text in texts)):
        raise InputError(
            f"{overlap} of the reference texts are among those that these heads were found "
            f"on ({known[0]}); give other data, or add --allow-overlap"
        )


def together(leaks: Iterable[Leakage]) -> Leakage:
    """The leakage of several masks or tasks in all."""
    several = tuple(leaks)
    known = [leak.overlap for leak in several if leak.overlap is not None]
    return Leakage(
        known=all(leak.known for leak in several),
        overlap=sum(known) if known else None,
        of=sum(leak.of for leak in several),
    )


def apart(task: Task, others: Iterable[Task]) -> tuple[Example, ...]:
    """A task's examples without those that `check_task_leakage` would find among others'."""
    known = known_digests(
        {str(i): task_digests(each.examples, each.is_translation) for i, each in enumerate(others)}
    )
    return tuple(
        example
        for example in task.examples
        if not any(sentence_digest(text) in known for text in _texts(example, task))
    )


def _texts(example: Example, task: Task) -> tuple[str, ...]:
    """What an example is known by: of translations each side, of other tasks both together."""
    if task.is_translation:
        return example.input, example.output
    return (f"{example.input}\t{example.output}",)


def task_digests(examples: Sequence[Example], translation: bool) -> dict[str, list[str]]:
    """What a run keeps of examples, by side: of translations each side, of other tasks both."""
    if translation:
        return {
            "source": sorted({sentence_digest(example.input) for example in examples}),
            "target": sorted({sentence_digest(example.output) for example in examples}),
        }
    return {
        "examples": sorted(
            {sentence_digest(f"{example.input}\t{example.output}") for example in examples}
        )
    }


def known_examples(heads: str) -> tuple[Path, frozenset[str]] | None:
    """Where `heads` say what they were found on, and the digests of that; None if they do not."""
    place = place_of(heads)
    file = None if place is None else _found_on(place)
    if file is None:
        return None
    try:
        stored = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: is damaged; find the heads again") from error
    if not isinstance(stored, dict):
        raise InputError(f"{file}: is damaged; find the heads again")
    with naming(file):
        return file, known_digests(stored)


def _found_on(place: Path) -> Path | None:
    """The record of the run that `place` is or lies in (`RUN`, `RUN/heads`, `RUN/scores/en-de`)."""
    resolved = place.resolve()
    for folder in (resolved, resolved.parent, resolved.parent.parent):
        if (folder / FOUND_ON).is_file() and (folder / "run.json").is_file():
            return folder / FOUND_ON
    return None
