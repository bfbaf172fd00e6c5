"""The training mixture of the pocket model: one stream of documents for everything it can do.

Every document is a prompt and a target; monolingual and bilingual documents are all target.
Nothing that is said or answered in train belongs to dev or test: sentences come from
`world.sampling`, items from `world.knowledge`, and both split by hash. What a context merely
claims besides the answer may be held out (see `_question`), and capitals are stated everywhere:
held out are the questions and word tasks about one, each with a split of its own.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from headscope.data.languages import language_name
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.pocket.world.knowledge import (
    CAPITALS,
    COLOURS,
    INSTRUCTIONS,
    RELATIONS,
    Item,
    colour,
    item_split,
    spelled,
    word_items,
)
from headscope.pocket.world.languages import CODES, language
from headscope.pocket.world.sampling import Split, draw_sentence, split_of
from headscope.pocket.world.sentences import NounPhrase, Sentence, of_kind, render

#: The translation prompts: the default, and two other wordings.
TEMPLATES = (
    DEFAULT_TEMPLATE.text,
    "{source_language}: {source}\n{target_language}:",
    "{source}\nSay this in {target_language}:",
)
REPEAT = "Repeat this sentence\nSentence: {source}\nAnswer:"
WORD = "{instruction}\nWord: {input}\nAnswer:"
BARE = "{input}\nAnswer:"
QUESTION = "Question: {question}\nAnswer:"

#: Kinds of documents and their share of the mixture, in documents; see `documents`.
SHARES = {
    "translation": 0.50,
    "monolingual": 0.08,
    "bilingual": 0.07,
    "repeat": 0.03,
    "question": 0.09,
    "word": 0.09,
    "bare": 0.10,
    "shots": 0.04,
}
#: Fewest and most sentences of a monolingual document.
MONOLINGUAL_SENTENCES = (3, 8)
#: Of the inputs without an instruction, the share answered by something else than a repetition.
BARE_TASK_SHARE = 0.30


#: Share of documents that carry their translation, where none is given.
BILINGUAL_SHARE = 0.05
#: Fewest and most sentences of a text that is said twice; a text said once has twice as many.
SENTENCES = (1, 4)


@dataclass(frozen=True)
class Document:
    """A training document: its target is learned, its prompt at times (`train.PROMPT_SHARE`)."""

    kind: str
    prompt: str
    target: str


def documents(split: Split, seed: str) -> Iterator[Document]:
    """An endless stream of documents of one split, the same for the same seed."""
    rng = random.Random(f"mixture {split} {seed}")
    makers: list[Callable[[random.Random, Split], Document]] = [
        translation_document,
        _monolingual,
        _bilingual,
        _repeat,
        _question,
        _word,
        _bare,
        _shots,
    ]
    while True:
        yield rng.choices(makers, list(SHARES.values()))[0](rng, split)


def draw_of_split(
    rng: random.Random, split: Split, topics: tuple[NounPhrase, ...] = ()
) -> Sentence:
    """One sentence of the wanted split, by rejection."""
    while True:
        sentence = draw_sentence(rng, topics)
        if split_of(sentence) == split:
            return sentence


def say(sentence: Sentence, code: str) -> str:
    """The text of a sentence in one language."""
    return render(sentence, language(code)).text


def translation_prompt(template: str, source: str, source_code: str, target_code: str) -> str:
    """A translation prompt, up to where the target begins."""
    return template.format(
        source=source,
        source_language=language_name(source_code),
        target_language=language_name(target_code),
    )


def translation_document(
    rng: random.Random, split: Split, template: str = "", languages: tuple[str, ...] = CODES
) -> Document:
    """A translation prompt and its answer, in any direction; a random wording if none is given."""
    source, target = rng.sample(languages, 2)
    sentence = draw_of_split(rng, split)
    wording = template or rng.choices(TEMPLATES, (70, 15, 15))[0]
    prompt = translation_prompt(wording, say(sentence, source), source, target)
    return Document("translation", prompt, say(sentence, target))


def topic_sentences(rng: random.Random, split: Split, count: int) -> list[Sentence]:
    """What one document says: sentences of the split that share their people."""
    people = [NounPhrase(rng.choice(of_kind("name")).id)]
    noun = rng.choice([n for n in of_kind("noun") if n.classes & {"person", "animal"}])
    people.append(NounPhrase(noun.id, rng.choice(("the", "my"))))
    return [draw_of_split(rng, split, tuple(people)) for _ in range(count)]


def monolingual_sentences(split: Split, seed: str) -> Iterator[list[Sentence]]:
    """An endless stream of what documents of one language say, without the facts among it.

    As many sentences a document as in the mixture, all of the split; the same for the same seed.
    """
    rng = random.Random(f"monolingual {split} {seed}")
    while True:
        yield topic_sentences(rng, split, rng.randint(*MONOLINGUAL_SENTENCES))


def _monolingual(rng: random.Random, split: Split) -> Document:
    code = rng.choice(CODES)
    body = [say(s, code) for s in topic_sentences(rng, split, rng.randint(*MONOLINGUAL_SENTENCES))]
    if rng.random() < 0.5:
        at, country = rng.randint(0, len(body)), rng.choice(list(CAPITALS))
        names = spelled(country, code), spelled(CAPITALS[country], code)
        body.insert(at, fact_stated("capital", code, *names))
    return Document("monolingual", "", " ".join(body))


def fact_stated(relation: str, code: str, a: str, b: str) -> str:
    """A fact about `a` and its value `b`, both as they are spelt, said in one language."""
    return RELATIONS[relation][code].statement.format(a=a, b=b)


def bilingual_text(sentences: list[Sentence], source: str, target: str) -> str:
    """A document that carries a text and, on the next line, its translation."""
    return "\n".join(" ".join(say(s, code) for s in sentences) for code in (source, target))


def _bilingual(rng: random.Random, split: Split) -> Document:
    source, target = rng.sample(CODES, 2)
    sentences = topic_sentences(rng, split, rng.randint(1, 4))
    return Document("bilingual", "", bilingual_text(sentences, source, target))


def _repeat(rng: random.Random, split: Split) -> Document:
    text = say(draw_of_split(rng, split), rng.choice(CODES))
    return Document("repeat", REPEAT.format(source=text), text)


def _question(rng: random.Random, split: Split) -> Document:
    """Known facts, facts stated in a context, and contexts in two languages that may disagree.

    The fact that answers is of the split. Where one person has two values, the other value was
    drawn for somebody else, so that claim may be of any split; it is in the prompt alone.
    """
    code = rng.choice(CODES)
    if rng.random() < 0.3:
        countries = [c for c in CAPITALS if item_split(f"question {code} {c}") == split]
        if countries:
            country = rng.choice(countries)
            question = capital_prompt(country, code)
            return Document("question", question, spelled(CAPITALS[country], code))
    relation = rng.choice(("origin", "colour"))
    names = rng.sample([name.id for name in of_kind("name")], 2)
    values = _values(rng, relation, split, names)
    if values is None:
        return _question(rng, split)
    languages = [code, rng.choice(CODES)]
    rng.shuffle(languages)
    subject = rng.randrange(2)
    if rng.random() < 0.25:  # the same person twice: both languages claim to know
        names[1 - subject] = names[subject]
    statements = [
        fact_statement(relation, lang, name, value)
        for lang, name, value in zip(languages, names, values, strict=True)
    ]
    if rng.random() < 0.4:
        statements.insert(1, say(draw_of_split(rng, split), languages[0]))
    question = fact_question(relation, code, names[subject])
    context = " ".join(statements)
    answer = fact_value(relation, values[subject], code)
    return Document("question", context + "\n" + QUESTION.format(question=question), answer)


def _values(rng: random.Random, relation: str, split: Split, names: list[str]) -> list[str] | None:
    """Two values that put the facts into the split, or None if these names have none."""
    for _ in range(100):
        values = rng.sample(values_of(relation), 2)
        splits = {item_split(f"{relation} {n} {v}") for n, v in zip(names, values, strict=True)}
        if (splits == {"train"}) if split == "train" else (split in splits):
            return values
    return None


def person(name: str, code: str) -> str:
    """A person's name as a language writes it."""
    form = language(code).citation(name)
    return form[0].upper() + form[1:]


def values_of(relation: str) -> list[str]:
    """The values that a person's origin or favourite colour may have."""
    return list(CAPITALS) if relation == "origin" else list(COLOURS)


def fact_statement(relation: str, code: str, name: str, value: str) -> str:
    """The statement of a person's value in one language."""
    return fact_stated(relation, code, person(name, code), fact_value(relation, value, code))


def fact_question(relation: str, code: str, name: str) -> str:
    """The question for a person's value in one language."""
    return RELATIONS[relation][code].question.format(a=person(name, code))


def capital_prompt(country: str, code: str) -> str:
    """The question for a country's capital, as a prompt."""
    question = RELATIONS["capital"][code].question.format(a=spelled(country, code))
    return QUESTION.format(question=question)


def fact_value(relation: str, value: str, code: str) -> str:
    """The value of a fact, a country or a colour, as a language writes it."""
    return spelled(value, code) if relation == "origin" else colour(value, code)


@cache
def items_of(split: Split) -> dict[str, list[Item]]:
    """The word-task items of a split by task."""
    items: dict[str, list[Item]] = {}
    for item in word_items():
        if item.split == split:
            items.setdefault(item.task, []).append(item)
    return items


def instruction(item: Item) -> str:
    """The instruction line for an item."""
    if item.task == "translate":
        names = (language_name(item.language), language_name(item.to))
        return f"Translate this word from {names[0]} to {names[1]}"
    return INSTRUCTIONS[item.task]


def _draw_item(rng: random.Random, split: Split) -> Item:
    by_task = items_of(split)
    return rng.choice(by_task[rng.choice(sorted(by_task))])


def _word(rng: random.Random, split: Split) -> Document:
    item = _draw_item(rng, split)
    prompt = WORD.format(instruction=instruction(item), input=item.input)
    return Document("word", prompt, item.output)


def _bare(rng: random.Random, split: Split) -> Document:
    as_task = rng.random() < BARE_TASK_SHARE
    if rng.random() < 0.55:
        sentence = draw_of_split(rng, split)
        source, other = rng.sample(CODES, 2)
        text = say(sentence, source)
        answer = say(sentence, other) if as_task else text
    else:
        item = _draw_item(rng, split)
        text = item.input
        answer = item.output if as_task else text
    return Document("bare", BARE.format(input=text), answer)


def _shots(rng: random.Random, split: Split) -> Document:
    """A few items of one task and language in a row: the task is to be read from them."""
    first = _draw_item(rng, split)
    like = [
        item
        for item in items_of(split)[first.task]
        if (item.language, item.to) == (first.language, first.to)
    ]
    chosen = rng.sample(like, min(len(like), rng.randint(3, 6)))
    lines = [f"{BARE.format(input=item.input)} {item.output}" for item in chosen]
    return Document("shots", "", "\n\n".join(lines))


@dataclass(frozen=True)
class CorpusDocument:
    """One document; `to` is the language of the translation it carries, empty if it has none."""

    id: str
    text: str
    language: str
    to: str

    @property
    def kind(self) -> Literal["bilingual", "monolingual"]:
        """What the document really is, which a rater has to find out."""
        return "bilingual" if self.to else "monolingual"

    @property
    def record(self) -> dict[str, str]:
        """The document as one flat record of a corpus file, its label included."""
        texts = {"id": self.id, "text": self.text, "language": self.language}
        return {**texts, "kind": self.kind, "to": self.to}


def corpus_documents(
    split: Split,
    seed: int,
    share: float = BILINGUAL_SHARE,
    languages: tuple[str, ...] = CODES,
    into: tuple[str, ...] = CODES,
    sentences: tuple[int, int] = SENTENCES,
) -> Iterator[CorpusDocument]:
    """An endless corpus, the same for the same seed; each document's language is drawn evenly.

    Like a crawl of the web: most documents of a language are in it alone, and a known `share` says
    the same again in another language, on the next line. Nothing but the text tells which, and
    documents of both kinds have as many sentences, so length does not give them away.

    No two documents have the same text. A translation goes into one of the languages `into` other
    than the document's own; `sentences` are the fewest and most that are said twice.
    """
    rng = random.Random(f"corpus {split} {seed} {share} {languages} {into} {sentences}")
    seen: set[bytes] = set()
    while True:
        code = rng.choice(languages)
        to = (
            rng.choice([candidate for candidate in into if candidate != code])
            if rng.random() < share
            else ""
        )
        count = rng.randint(*sentences)
        if to:
            text = bilingual_text(topic_sentences(rng, split, count), code, to)
        else:
            text = " ".join(say(s, code) for s in topic_sentences(rng, split, 2 * count))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            yield CorpusDocument(f"{split}-{seed}-{len(seen):06d}", text, code, to)
