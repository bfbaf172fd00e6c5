"""Tasks of the pocket world as files of lm-evaluation-harness, made from held-out items.

Every question has a prompt that the bundled model was trained with. Two families:
*cross-lingual* tasks need a mapping from one language to another (a sentence's or a word's
translation), *one-language* tasks do not (to repeat a sentence; plural, past and first letter of a
word; the capital of an invented country). The choices of a sentence task differ in one word, and
the repeated sentences are the translated ones: the two differ for a model in the mapping alone.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.pocket.mixture import (
    REPEAT,
    TEMPLATES,
    WORD,
    capital_prompt,
    instruction,
    items_of,
    say,
    translation_prompt,
)
from headscope.pocket.world.knowledge import CAPITALS, Item, item_split, spelled
from headscope.pocket.world.languages import CODES, DIRECTIONS
from headscope.pocket.world.sampling import Split, sentences, split_of
from headscope.pocket.world.sentences import (
    Clause,
    NounPhrase,
    Sentence,
    concepts,
    of_kind,
)

#: Choices of an item.
CHOICES = 4
#: New tokens of a generated answer: the longest sentence of the world takes fewer.
LONGEST = 64
#: Items of a task that can be meant.
MOST = 1_000_000

Row = dict[str, Any]


@dataclass(frozen=True)
class PocketTask:
    """A task: its name, what it asks, its items, and whether the answer is chosen or generated."""

    name: str
    asks: str
    rows: Callable[[Split, int], Iterator[Row]]
    generated: bool = False


def write_tasks(folder: Path, split: Split = "test", n: int = 200, seed: int = 0) -> dict[str, int]:
    """Write every task, at most `n` items each, and the two groups; items by name of the task.

    A task is `NAME.yaml` and `NAME.jsonl`; the folder may be moved. Items are those of `split` and
    the same for the same seed. InputError if n is below 1 or above a million, or if the folder
    holds other files.
    """
    if n < 1:
        raise InputError(f"n is {n}; ask for at least one item a task")
    if n > MOST:
        raise InputError(f"n is {n}; ask for at most {MOST} items a task")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the task files")
    own = {f"{task.name}.{end}" for task in TASKS for end in ("yaml", "jsonl")}
    own |= {f"{name}.yaml" for name in GROUPS}
    for file in sorted(folder.iterdir()) if folder.exists() else ():
        if file.name not in own:
            raise InputError(f"{file}: is no task file of pocket; name a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for task in TASKS:
        rows = list(islice(task.rows(split, seed), n))
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{task.name}.jsonl").write_text(text, encoding="utf-8")
        (folder / f"{task.name}.yaml").write_text(_yaml(task, split), encoding="utf-8")
        counts[task.name] = len(rows)
    for name, tasks in GROUPS.items():
        listed = "".join(f"  - {task.name}\n" for task in tasks)
        metric = "aggregate_metric_list:\n  - metric: acc\n    weight_by_size: false\n"
        text = f"group: {name}\ntask:\n{listed}{metric}"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return counts


_YAML = """\
# {asks} ({split} items of the pocket world)
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {name}.jsonl
test_split: test
output_type: {kind}
doc_to_text: "{{{{prompt}}}}"
{answer}
target_delimiter: " "
metric_list:
  - metric: {metric}
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
_CHOSEN_ANSWER = "doc_to_choice: choices\ndoc_to_target: answer"
# The model puts one space between prompt and answer, which is no part of the answer.
_GENERATED_ANSWER = f"""\
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
  do_sample: false
  max_gen_toks: {LONGEST}
filter_list:
  - name: none
    filter:
      - function: remove_whitespace
      - function: take_first"""


def _yaml(task: PocketTask, split: Split) -> str:
    return _YAML.format(
        asks=task.asks,
        split=split,
        name=task.name,
        kind="generate_until" if task.generated else "multiple_choice",
        answer=_GENERATED_ANSWER if task.generated else _CHOSEN_ANSWER,
        metric="exact_match" if task.generated else "acc",
    )


def _said(split: Split, seed: int) -> Iterator[tuple[str, str, Sentence, list[Sentence]]]:
    """Sentences with near misses, each with a direction; directions take turns."""
    rng = random.Random(f"pocket tasks {split} {seed}")
    seen: set[str] = set()
    at = 0
    for sentence in sentences(split, seed):
        source, _, target = DIRECTIONS[at % len(DIRECTIONS)].partition("-")
        others = near_misses(sentence, split, rng, (source, target), CHOICES - 1)
        text = say(sentence, source)
        if others is None or text in seen:
            continue
        seen.add(text)
        at += 1
        yield source, target, sentence, others


def near_misses(
    sentence: Sentence, split: Split, rng: random.Random, codes: tuple[str, ...], wanted: int
) -> list[Sentence] | None:
    """`wanted` sentences of the same split that differ from this one in one content word.

    None where there are too few. Their texts differ in each of the languages `codes`.

    Of the same split, since a choice whose words never went together in training would stand out
    among others whose words did.
    """
    near: list[Sentence] = []
    texts = [{say(sentence, code)} for code in codes]
    candidates = list(_variants(sentence))
    rng.shuffle(candidates)
    for candidate in candidates:
        if split_of(candidate) != split:
            continue
        candidate_texts = [say(candidate, code) for code in codes]
        if any(text in known for text, known in zip(candidate_texts, texts, strict=True)):
            continue
        for text, known in zip(candidate_texts, texts, strict=True):
            known.add(text)
        near.append(candidate)
        if len(near) == wanted:
            return near
    return None


def _variants(sentence: Sentence) -> Iterator[Sentence]:
    """The sentence with one noun, verb or adjective replaced by another of its class."""
    second = sentence.second
    return _replaced(
        sentence,
        first=_clause_variants(sentence.first),
        second=_clause_variants(second) if second is not None else (),
    )


def _clause_variants(clause: Clause) -> Iterator[Clause]:
    preposition, place = clause.place or ("", None)
    return _replaced(
        clause,
        verb=_like(clause.verb),
        predicate=_like(clause.predicate),
        subject=_phrase_variants(clause.subject),
        object=_phrase_variants(clause.object),
        place=((preposition, phrase) for phrase in _phrase_variants(place)),
    )


def _phrase_variants(phrase: NounPhrase | None) -> Iterable[NounPhrase]:
    if phrase is None:
        return ()
    return _replaced(phrase, noun=_like(phrase.noun), adjective=_like(phrase.adjective))


def _replaced(whole: Any, **parts: Iterable[Any]) -> Iterator[Any]:
    """Copies of something, each with one part replaced by one of the others for it."""
    for name, others in parts.items():
        for replacement in others:
            yield replace(whole, **{name: replacement})


def _like(concept: str) -> list[str]:
    """Other concepts that may stand wherever this one does."""
    if not concept or concept == "be" or concepts()[concept].kind == "pronoun":
        return []
    known = concepts()[concept]
    frame = attrgetter("classes", "subjects", "objects", "place")
    return [
        candidate.id
        for candidate in of_kind(known.kind)
        if candidate.id != concept and frame(candidate) == frame(known)
    ]


def _chosen(prompt: str, right: str, wrong: list[str], key: str, **about: str) -> Row:
    """A row with its choices in an order that depends on nothing but `key`."""
    choices = [right, *wrong]
    random.Random(f"choices {key}").shuffle(choices)
    return {"prompt": prompt, "choices": choices, "answer": choices.index(right), **about}


def _sentences(translated: bool, generated: bool, split: Split, seed: int) -> Iterator[Row]:
    """Sentences to translate, or to repeat, by choosing among near misses or by generating."""
    for source, translation, sentence, near in _said(split, seed):
        target = translation if translated else source
        text, right = say(sentence, source), say(sentence, target)
        prompt = REPEAT.format(source=text)
        if translated:
            prompt = translation_prompt(TEMPLATES[0], text, source, target)
        if generated:
            yield {"prompt": prompt, "answer": right, "source": text}
        else:
            about = {"source": text, "language": source}
            wrong = [say(miss, target) for miss in near]
            yield _chosen(
                prompt, right, wrong, text, **about, **({"to": target} if translated else {})
            )


def word_choices(
    task: str, split: Split, seed: int, languages: Collection[str] = CODES
) -> Iterator[Row]:
    """Items of one word task in these languages: `prompt`, `choices`, and which is the `answer`.

    The wrong choices are the answers to the words spelt most like this one.
    """
    items = list(items_of(split).get(task, ()))
    random.Random(f"pocket words {task} {seed}").shuffle(items)
    for item in items:
        wrong = _wrong(item) if {item.language, item.to or item.language} <= {*languages} else []
        if len(wrong) == CHOICES - 1:
            prompt = WORD.format(instruction=instruction(item), input=item.input)
            key = f"{task} {item.language} {item.to} {item.input}"
            yield _chosen(prompt, item.output, wrong, key, language=item.language)


def _wrong(item: Item) -> list[str]:
    """Three wrong answers: the word itself, left as it is, and others' answers."""
    like = [
        candidate
        for split in ("test", "dev", "train")
        for candidate in items_of(split)[item.task]
        if (candidate.language, candidate.to) == (item.language, item.to)
        and candidate.output != item.output
    ]
    near = sorted(
        like, key=lambda candidate: (-_alike(candidate.input, item.input), candidate.input)
    )
    answers = [] if item.task in ("translate", "first_letter", "capital") else [item.input]
    answers += [candidate.output for candidate in near]
    right = [
        item.output,
        *(candidate.output for candidate in like if candidate.input == item.input),
    ]
    return [answer for answer in dict.fromkeys(answers) if answer not in right][: CHOICES - 1]


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def _capitals(split: Split, seed: int) -> Iterator[Row]:
    """Questions for capitals, then the capital as a word task: countries are few."""
    rng = random.Random(f"pocket capitals {seed}")
    for code in CODES:
        for country, capital in CAPITALS.items():
            if item_split(f"question {code} {country}") != split:
                continue
            others = rng.sample(
                [name for name in CAPITALS.values() if name != capital], CHOICES - 1
            )
            wrong = [spelled(name, code) for name in others]
            key = f"capital {code} {country}"
            prompt = capital_prompt(country, code)
            yield _chosen(prompt, spelled(capital, code), wrong, key, language=code)
    yield from word_choices("capital", split, seed)


#: Tasks that need a mapping from one language to another.
CROSS_LINGUAL = (
    PocketTask(
        "pocket_translate_sentences",
        "Which of four sentences translates this one?",
        partial(_sentences, True, False),
    ),
    PocketTask(
        "pocket_translate_words",
        "Which of four words translates this one?",
        partial(word_choices, "translate"),
    ),
    PocketTask(
        "pocket_translate_generated", "Translate a sentence", partial(_sentences, True, True), True
    ),
)
#: Tasks within one language.
ONE_LANGUAGE = (
    PocketTask(
        "pocket_repeat_sentences",
        "Which of four sentences repeats this one?",
        partial(_sentences, False, False),
    ),
    PocketTask(
        "pocket_plurals", "Which is the plural of this word?", partial(word_choices, "plural")
    ),
    PocketTask(
        "pocket_past_forms", "Which is the past form of this verb?", partial(word_choices, "past")
    ),
    PocketTask(
        "pocket_first_letters",
        "Which letter does a word begin with?",
        partial(word_choices, "first_letter"),
    ),
    PocketTask("pocket_capitals", "Which is the capital of this country?", _capitals),
    PocketTask(
        "pocket_repeat_generated", "Repeat a sentence", partial(_sentences, False, True), True
    ),
)
TASKS = (*CROSS_LINGUAL, *ONE_LANGUAGE)
GROUPS = {"pocket_cross_lingual": CROSS_LINGUAL, "pocket_one_language": ONE_LANGUAGE}
