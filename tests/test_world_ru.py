"""Russian of the pocket world: forms, sentences written out by hand, links to English."""

from __future__ import annotations

import pytest

from headscope.pocket.world.languages import en, ru
from headscope.pocket.world.lexicon import concepts, of_kind, table
from headscope.pocket.world.sentences import (
    NUMERALS,
    Clause,
    NounPhrase,
    Sentence,
    Tense,
    render,
)


def np(noun: str, determiner: str = "the", adjective: str = "", plural: bool = False) -> NounPhrase:
    number = "plural" if plural or determiner in NUMERALS else "singular"
    return NounPhrase(noun, determiner, number, adjective)


def bare(noun: str) -> NounPhrase:
    """A name or a pronoun."""
    return NounPhrase(noun, number="plural" if noun in ("we", "they") else "singular")


MAN, WOMAN = np("man"), np("woman")
PAST: Tense = "past"

SENTENCES = [
    # gender and animacy of objects
    (Clause(MAN, "see", np("dog", "a")), "Мужчина видит собаку."),
    (Clause(MAN, "see", np("table", "a")), "Мужчина видит стол."),
    (Clause(WOMAN, "see", np("lion", "this", "old")), "Женщина видит этого старого льва."),
    (Clause(WOMAN, "see", np("judge", "my", "good")), "Женщина видит моего хорошего судью."),
    (Clause(WOMAN, "love", np("mother", "our")), "Женщина любит нашу мать."),
    (Clause(WOMAN, "see", np("child", "a", plural=True)), "Женщина видит детей."),
    (Clause(MAN, "read", np("letter", "a", plural=True)), "Мужчина читает письма."),
    (Clause(MAN, "need", np("coat", "a", "blue")), "Мужчина нуждается в синем пальто."),
    (Clause(MAN, "help", np("friend", "your", plural=True)), "Мужчина помогает твоим друзьям."),
    (Clause(bare("anna"), "watch", bare("paul")), "Анна наблюдает за Павлом."),
    # persons and numbers of the verb
    (Clause(bare("i"), "eat", np("apple", "a")), "Я ем яблоко."),
    (Clause(bare("you"), "look_for", np("key", "my")), "Ты ищешь мой ключ."),
    (Clause(bare("we"), "sing"), "Мы поём."),
    (Clause(bare("they"), "laugh"), "Они смеются."),
    (Clause(np("horse", plural=True), "sleep"), "Лошади спят."),
    # past: gender, number, aspect
    (Clause(bare("i"), "sleep", tense=PAST), "Я спал."),
    (Clause(WOMAN, "bring", np("soup", "a"), tense=PAST), "Женщина принесла суп."),
    (Clause(np("letter"), "disappear", tense=PAST), "Письмо исчезло."),
    (Clause(bare("they"), "stay", tense=PAST), "Они остались."),
    (
        Clause(WOMAN, "find", np("coin", "a"), adverb="often", tense=PAST),
        "Женщина часто находила монету.",
    ),
    # numerals
    (Clause(np("boy", "two"), "see", np("cat", "two")), "Два мальчика видят двух кошек."),
    (Clause(np("girl", "two", "small"), "run"), "Две маленьких девочки бегают."),
    (Clause(np("duck", "five"), "swim"), "Пять уток плавают."),
    (Clause(MAN, "buy", np("chair", "three", "new")), "Мужчина покупает три новых стула."),
    (Clause(MAN, "buy", np("egg", "ten"), tense=PAST), "Мужчина купил десять яиц."),
    (Clause(MAN, "know_person", np("doctor", "six")), "Мужчина знает шесть врачей."),
    (Clause(MAN, "drive", np("car", "four")), "Мужчина управляет четырьмя машинами."),
    (Clause(np("guest", "every"), "call", np("son", "two")), "Каждый гость звонит двум сыновьям."),
    # negation and adverbs
    (Clause(MAN, "eat", np("cheese", "a"), negated=True), "Мужчина не ест сыр."),
    (Clause(MAN, "work", adverb="always", negated=True), "Мужчина не всегда работает."),
    (Clause(MAN, "work", adverb="tonight", negated=True), "Мужчина сегодня вечером не работает."),
    (
        Clause(WOMAN, "drink", np("tea", "a"), place=("in", np("kitchen")), adverb="alone"),
        "Женщина пьёт чай одна на кухне.",
    ),
    (Clause(MAN, "sing", adverb="here"), "Мужчина поёт здесь."),
    # questions
    (Clause(MAN, "see", np("dog", "a"), question="polar"), "Мужчина видит собаку?"),
    (Clause(None, "buy", np("ring", "a"), question="who", tense=PAST), "Кто купил кольцо?"),
    (Clause(np("queen"), "read", question="what", tense=PAST), "Что читала королева?"),
    (Clause(bare("you"), "paint", question="what"), "Что ты красишь?"),
    (Clause(MAN, "need", question="what"), "В чём нуждается мужчина?"),
    (Clause(None, "be", place=("in", np("tower")), question="who"), "Кто в башне?"),
    # copula
    (Clause(WOMAN, "be", predicate="tired"), "Женщина усталая."),
    (Clause(np("house"), "be", predicate="big"), "Дом большой."),
    (Clause(np("apple"), "be", predicate="fresh"), "Яблоко свежее."),
    (Clause(np("boot", "my", plural=True), "be", predicate="dirty"), "Мои сапоги грязные."),
    (Clause(np("egg"), "be", predicate="cold", tense=PAST), "Яйцо было холодное."),
    (Clause(bare("we"), "be", place=("near", np("lake")), tense=PAST), "Мы были возле озера."),
    (Clause(bare("i"), "be", predicate="hungry", negated=True), "Я не голодный."),
    # places
    (
        Clause(MAN, "sleep", place=("in", np("forest", "the", "dark"))),
        "Мужчина спит в тёмном лесу.",
    ),
    (Clause(MAN, "stand", place=("on", np("bridge", "our"))), "Мужчина стоит на нашем мосту."),
    (Clause(MAN, "wait", place=("in", np("station"))), "Мужчина ждёт на вокзале."),
    (Clause(MAN, "sit", place=("behind", bare("maria"))), "Мужчина сидит за Марией."),
    (
        Clause(MAN, "talk", place=("in_front_of", np("shop"))),
        "Мужчина разговаривает перед магазином.",
    ),
    (Clause(np("mouse"), "live", place=("under", np("bed"))), "Мышь живёт под кроватью."),
    (Clause(MAN, "play", place=("with", np("elephant"))), "Мужчина играет со слоном."),
    (Clause(MAN, "play", place=("with", np("lion"))), "Мужчина играет со львом."),
    (
        Clause(MAN, "play", place=("with", np("son", "my", plural=True))),
        "Мужчина играет с моими сыновьями.",
    ),
]


@pytest.mark.parametrize(("clause", "text"), SENTENCES, ids=[text for _, text in SENTENCES])
def test_main_clauses(clause: Clause, text: str) -> None:
    assert render(Sentence(clause), ru).text == text


@pytest.mark.parametrize(
    ("connective", "text"),
    [
        ("that", "Мужчина знает, что женщина не спит."),
        ("because", "Мужчина знает, потому что женщина не спит."),
        ("but", "Мужчина знает, но женщина не спит."),
        ("and", "Мужчина знает, и женщина не спит."),
    ],
)
def test_two_clauses(connective: str, text: str) -> None:
    second = Clause(WOMAN, "sleep", negated=True)
    assert render(Sentence(Clause(MAN, "know"), connective, second), ru).text == text


def test_every_concept_has_its_forms() -> None:
    assert set(table("ru")) == set(concepts())
    for concept in concepts():
        assert ru.citation(concept)
    assert ru.connective("because") == "потому что"


def test_citation_forms_are_distinct() -> None:
    """But for the words that Russian itself does not tell apart."""
    shared = {"wait_for", "know_person", "what"}
    forms = [ru.citation(concept) for concept in concepts() if concept not in shared]
    assert len(set(forms)) == len(forms)


def test_every_noun_renders_in_every_case_and_number() -> None:
    indeclinable = {"coffee", "radio", "piano", "coat", "taxi"}
    for noun in of_kind("noun"):
        singular, several = (
            {
                render(Sentence(Clause(MAN, verb, np(noun.id, "a", plural=plural))), ru).text
                for verb in ("help", "see")
            }
            for plural in (False, True)
        )
        assert singular.isdisjoint(several) == (noun.id not in indeclinable), noun.id


def test_every_adjective_agrees_in_four_ways() -> None:
    nouns = [np("house"), np("school"), np("field"), np("house", plural=True)]
    for adjective in of_kind("adjective"):
        forms = {
            render(Sentence(Clause(noun, "be", predicate=adjective.id)), ru).pieces[-1].text
            for noun in nouns
        }
        assert len(forms) == 4, adjective.id


def test_every_verb_tells_its_persons_apart() -> None:
    for verb in of_kind("verb"):
        if verb.id == "be":
            continue
        subjects = [bare(name) for name in ("i", "you", "we", "they", "anna")]
        forms = {render(Sentence(Clause(who, verb.id)), ru).pieces[1].text for who in subjects}
        assert len(forms) == 5, verb.id


@pytest.mark.parametrize(
    ("concept", "form"),
    [
        ("child", "дети"),
        ("tree", "деревья"),
        ("apple", "яблоки"),
        ("father", "отцы"),
        ("flower", "цветы"),
        ("museum", "музеи"),
        ("book", "книги"),
        ("message", "сообщения"),
        ("taxi", "такси"),
    ],
)
def test_plural(concept: str, form: str) -> None:
    assert ru.plural(concept) == form


@pytest.mark.parametrize(
    ("concept", "form"),
    [
        ("see", "видел"),
        ("find", "нашёл"),
        ("carry", "нёс"),
        ("smile", "улыбался"),
        ("follow", "следовал за"),
        ("be", "был"),
    ],
)
def test_past(concept: str, form: str) -> None:
    assert ru.past(concept) == form


@pytest.mark.parametrize(
    ("sentence", "links"),
    [
        # The man sees a dog. / Мужчина видит собаку.
        (Sentence(Clause(MAN, "see", np("dog", "a"))), {(1, 0), (2, 1), (4, 2)}),
        # My old friend is not in the garden. / Мой старый друг не в саду.
        (
            Sentence(
                Clause(np("friend", "my", "old"), "be", place=("in", np("garden")), negated=True)
            ),
            {(0, 0), (1, 1), (2, 2), (4, 3), (5, 4), (7, 5)},
        ),
        # The woman did not look for Anna. / Женщина не искала Анну.
        (
            Sentence(Clause(WOMAN, "look_for", bare("anna"), tense=PAST, negated=True)),
            {(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)},
        ),
        # What does the man need? / В чём нуждается мужчина?
        (
            Sentence(Clause(MAN, "need", question="what")),
            {(0, 1), (1, 0), (1, 2), (3, 3), (4, 0), (4, 2)},
        ),
        # Two boys often follow my cats. / Два мальчика часто следуют за моими кошками.
        (
            Sentence(
                Clause(np("boy", "two"), "follow", np("cat", "my", plural=True), adverb="often")
            ),
            {(0, 0), (1, 1), (2, 2), (3, 3), (3, 4), (4, 5), (5, 6)},
        ),
        # We know that you slept. / Мы знаем, что ты спал.
        (
            Sentence(Clause(bare("we"), "know"), "that", Clause(bare("you"), "sleep", tense=PAST)),
            {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)},
        ),
        # I sing because Anton dances. / Я пою, потому что Антон танцует.
        (
            Sentence(Clause(bare("i"), "sing"), "because", Clause(bare("anton"), "dance")),
            {(0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (4, 5)},
        ),
    ],
)
def test_links_to_english(sentence: Sentence, links: set[tuple[int, int]]) -> None:
    assert render(sentence, en).links(render(sentence, ru)) == links
