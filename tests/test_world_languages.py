"""The languages of the pocket world: sentences written by hand, completeness, links to English."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headscope.pocket.world.languages import en, language, ru, tr
from headscope.pocket.world.sentences import (
    PRONOUNS,
    Clause,
    NounPhrase,
    Sentence,
    concepts,
    of_kind,
    render,
    table,
)

#: One or two clauses with their connective, and what is expected of them.
Said = tuple[Any, ...]


def np(text: str) -> NounPhrase:
    """ "the big dog", "two dog", "a+ dog" (plural), "anna": determiner, adjective, noun."""
    parts = text.split()
    if len(parts) == 1:
        return NounPhrase(parts[0], number="plural" if parts[0] in ("we", "they") else "singular")
    determiner, several = parts[0].removesuffix("+"), parts[0].endswith("+")
    counted = concepts().get(determiner) is not None and concepts()[determiner].kind == "number"
    number = "plural" if several or counted else "singular"
    return NounPhrase(parts[-1], determiner, number, parts[1] if len(parts) == 3 else "")


def say(
    subject: str, verb: str, object: str = "", place: str = "", *, past: bool = False, **rest: Any
) -> Clause:
    """A clause; `place` is "in the garden"."""
    preposition, _, there = place.partition(" ")
    return Clause(
        np(subject) if subject else None,
        verb,
        np(object) if object else None,
        place=(preposition, np(there)) if place else None,
        tense="past" if past else "present",
        **rest,
    )


def text_of(code: str, first: Clause, connective: Any = "", second: Clause | None = None) -> str:
    return render(Sentence(first, connective, second), language(code)).text


DE: list[Said] = [
    (say("this child", "love", "my horse"), "Dieses Kind liebt mein Pferd."),
    (say("we", "open", "your letter"), "Wir öffnen deinen Brief."),
    (say("the small boy", "eat", "a red apple"), "Der kleine Junge isst einen roten Apfel."),
    (say("this+ old dog", "eat", "my+ good cake"), "Diese alten Hunde fressen meine guten Kuchen."),
    (say("the student", "know_person", "my neighbour"), "Der Student kennt meinen Nachbarn."),
    (say("anna", "thank", "thomas"), "Anna dankt Thomas."),
    (say("two man", "sell", "three old car"), "Zwei Männer verkaufen drei alte Autos."),
    (say("the+ bee", "disappear", past=True), "Die Bienen sind verschwunden."),
    (say("you", "follow", "a bear", past=True), "Du bist einem Bären gefolgt."),
    (say("you", "be", "", "in the city"), "Du bist in der Stadt."),
    (say("the cat", "sit", "", "on the table"), "Die Katze sitzt auf dem Tisch."),
    (say("we", "stand", "", "behind our+ house"), "Wir stehen hinter unseren Häusern."),
    (say("the man", "see", "a+ red rose", negated=True), "Der Mann sieht keine roten Rosen."),
    (say("i", "see", "two dog", negated=True), "Ich sehe nicht zwei Hunde."),
    (say("vera", "meet", "paul", "in the park", past=True, negated=True),
     "Vera hat Paul nicht im Park getroffen."),
    (say("the man", "see", "my dog", adverb="tonight"), "Der Mann sieht heute Abend meinen Hund."),
    (say("the dog", "sleep", "", "near the house", adverb="always"),
     "Der Hund schläft immer neben dem Haus."),
    (say("you", "sleep", question="polar", past=True, negated=True), "Hast du nicht geschlafen?"),
    (say("", "invite", "anna", question="who", past=True), "Wer hat Anna eingeladen?"),
    (say("the fox", "eat", question="what"), "Was frisst der Fuchs?"),
    (say("the dog", "follow", question="what", past=True), "Wem ist der Hund gefolgt?"),
    (say("i", "sing"), "but", say("you", "cry", negated=True), "Ich singe, aber du weinst nicht."),
    (say("you", "think", past=True), "that", say("my father", "call", "a nurse", negated=True),
     "Du hast gedacht, dass mein Vater keine Krankenschwester anruft."),
    (say("the king", "believe", question="polar"), "that",
     say("every thief", "steal", "a+ coin", adverb="sometimes"),
     "Glaubt der König, dass jeder Dieb manchmal Münzen stiehlt?"),
]  # fmt: skip

ES: list[Said] = [
    (say("the man", "see", "a white house"), "El hombre ve una casa blanca."),
    (say("the+ hardworking girl", "read", "a+ old book"),
     "Las chicas trabajadoras leen libros viejos."),
    (say("three young thief", "steal", "five nut"), "Tres ladrones jóvenes roban cinco nueces."),
    (say("this+ lion", "hide", "your+ dirty sock"), "Estos leones esconden tus calcetines sucios."),
    (say("the water", "be", predicate="hot"), "El agua está caliente."),
    (say("i", "love", "martin"), "Yo amo a Martin."),
    (say("the nurse", "thank", "clara", adverb="often"),
     "La enfermera da a menudo las gracias a Clara."),
    (say("you", "bring", "a cake", adverb="yesterday", past=True), "Tú trajiste un pastel ayer."),
    (say("i", "look_for", "a key", "under the bed", past=True),
     "Yo busqué una llave debajo de la cama."),
    (say("laura", "stay", "", "in the hotel", adverb="alone", past=True),
     "Laura se quedó a solas en el hotel."),
    (say("sofia", "be", predicate="tired"), "Sofia está cansada."),
    (say("we", "be", predicate="polite", past=True), "Nosotros éramos educados."),
    (say("the+ city", "be", predicate="safe", negated=True), "Las ciudades no son seguras."),
    (say("the mouse", "be", "", "behind the big tree", past=True),
     "El ratón estaba detrás del árbol grande."),
    (say("you", "be", predicate="hungry", question="polar", negated=True),
     "¿No estás tú hambriento?"),
    (say("the farmer", "sell", adverb="sometimes", question="what"),
     "¿Qué vende el granjero a veces?"),
    (say("", "be", predicate="sick", question="who"), "¿Quién está enfermo?"),
    (say("vera", "hope", adverb="now"), "that", say("the train", "be", "", "in the station"),
     "Vera confía ahora en que el tren está en la estación."),
    (say("the judge", "know", past=True), "that", say("hugo", "play", past=True, negated=True),
     "El juez sabía que Hugo no jugó."),
    (say("adam", "cook_food", "a soup"), "and", say("emma", "stand", "", "in_front_of the church"),
     "Adam cocina una sopa y Emma está de pie delante de la iglesia."),
]  # fmt: skip

RU: list[Said] = [
    (say("the woman", "see", "my good judge"), "Женщина видит моего хорошего судью."),
    (say("the woman", "love", "our mother"), "Женщина любит нашу мать."),
    (say("the man", "read", "a+ letter"), "Мужчина читает письма."),
    (say("the man", "need", "a blue coat"), "Мужчина нуждается в синем пальто."),
    (say("the man", "help", "your+ friend"), "Мужчина помогает твоим друзьям."),
    (say("i", "eat", "a apple"), "Я ем яблоко."),
    (say("they", "laugh"), "Они смеются."),
    (say("the woman", "bring", "a soup", past=True), "Женщина принесла суп."),
    (say("the woman", "find", "a coin", adverb="often", past=True),
     "Женщина часто находила монету."),
    (say("two boy", "see", "two cat"), "Два мальчика видят двух кошек."),
    (say("the man", "buy", "three new chair"), "Мужчина покупает три новых стула."),
    (say("the man", "know_person", "six doctor"), "Мужчина знает шесть врачей."),
    (say("every guest", "call", "two son"), "Каждый гость звонит двум сыновьям."),
    (say("the man", "eat", "a cheese", negated=True), "Мужчина не ест сыр."),
    (say("the woman", "drink", "a tea", "in the kitchen", adverb="alone"),
     "Женщина пьёт чай одна на кухне."),
    (say("the man", "sing", adverb="here"), "Мужчина поёт здесь."),
    (say("the man", "see", "a dog", question="polar"), "Мужчина видит собаку?"),
    (say("", "buy", "a ring", question="who", past=True), "Кто купил кольцо?"),
    (say("you", "paint", question="what"), "Что ты красишь?"),
    (say("the woman", "be", predicate="tired"), "Женщина усталая."),
    (say("my+ boot", "be", predicate="dirty"), "Мои сапоги грязные."),
    (say("the egg", "be", predicate="cold", past=True), "Яйцо было холодное."),
    (say("the man", "sleep", "", "in the dark forest"), "Мужчина спит в тёмном лесу."),
    (say("the man", "sit", "", "behind maria"), "Мужчина сидит за Марией."),
    (say("the mouse", "live", "", "under the bed"), "Мышь живёт под кроватью."),
    (say("the man", "play", "", "with the lion"), "Мужчина играет со львом."),
    (say("the man", "know"), "because", say("the woman", "sleep", negated=True),
     "Мужчина знает, потому что женщина не спит."),
]  # fmt: skip

TR: list[Said] = [
    (say("the+ man", "eat", "a+ apple"), "Adamlar elmalar yiyor."),
    (say("i", "read", "your old book"), "Ben senin eski kitabını okuyorum."),
    (say("our son", "sleep", past=True), "Oğlumuz uyudu."),
    (say("we", "drink", "this juice"), "Biz bu meyve suyunu içiyoruz."),
    (say("we", "drink", "our juice", past=True), "Biz meyve suyumuzu içtik."),
    (say("anna", "love", "paul"), "Anna Paul'ü seviyor."),
    (say("anna", "hate", "robert", negated=True), "Anna Robert'ten nefret etmiyor."),
    (say("i", "need", "a tree"), "Ben bir ağaca ihtiyaç duyuyorum."),
    (say("you", "see", "a cat", question="polar", past=True), "Sen bir kedi gördün mü?"),
    (say("clara", "cry", question="polar", past=True), "Clara ağladı mı?"),
    (say("", "steal", "my clock", question="who", past=True), "Kim saatimi çaldı?"),
    (say("the man", "look_for", adverb="secretly", question="what"), "Adam gizlice ne arıyor?"),
    (say("i", "be", predicate="small", negated=True), "Ben küçük değilim."),
    (say("the man", "be", predicate="sick", past=True), "Adam hastaydı."),
    (say("they", "be", predicate="sad", question="polar"), "Onlar üzgünler mi?"),
    (say("they", "be", predicate="sad", question="polar", past=True), "Onlar üzgün müydüler?"),
    (say("you", "be", predicate="tired", question="polar", past=True, negated=True),
     "Sen yorgun değil miydin?"),
    (say("the dog", "be", "", "near anna", adverb="always"), "Köpek her zaman Anna'nın yakınında."),
    (say("the girl", "dance", "", "with martin", adverb="tonight"),
     "Kız bu gece Martin ile dans ediyor."),
    (say("this+ wet cat", "disappear", past=True), "Bu ıslak kediler kayboldu."),
    (say("the+ child", "play", adverb="alone", past=True), "Çocuklar tek başlarına oynadı."),
    (say("the man", "be", predicate="rich"), "but", say("the woman", "be", predicate="poor"),
     "Adam zengin, ama kadın fakir."),
    (say("the man", "sing"), "and", say("ten bird", "sleep"),
     "Adam şarkı söylüyor ve on kuş uyuyor."),
]  # fmt: skip

LINKS: list[Said] = [
    ("de", say("the man", "see", "a dog", negated=True), "The man does not see a dog.",
     "Der Mann sieht keinen Hund.", "0-0 1-1 2-3 3-3 4-2 5-3 6-4"),
    ("de", say("the man", "see", "a dog", past=True), "The man saw a dog.",
     "Der Mann hat einen Hund gesehen.", "0-0 1-1 2-2 2-5 3-3 4-4"),
    ("de", say("i", "sleep", "", "in the garden"), "I sleep in the garden.",
     "Ich schlafe im Garten.", "0-0 1-1 2-2 3-2 4-3"),
    ("de", say("my mother", "call", "a doctor"), "My mother calls a doctor.",
     "Meine Mutter ruft einen Arzt an.", "0-0 1-1 2-2 2-5 3-3 4-4"),
    ("de", say("you", "wait_for", "two old friend"), "You wait for two old friends.",
     "Du wartest auf zwei alte Freunde.", "0-0 1-1 1-2 2-1 2-2 3-3 4-4 5-5"),
    ("de", say("oscar", "wait_for", question="what"), "What does Oscar wait for?",
     "Worauf wartet Oscar?", "0-0 1-0 1-1 2-2 3-0 3-1 4-0 4-1"),
    ("de", say("i", "laugh"), "because", say("anna", "be", predicate="happy"),
     "I laugh because Anna is happy.", "Ich lache, weil Anna glücklich ist.",
     "0-0 1-1 2-2 3-3 4-5 5-4"),
    ("de", say("you", "read", "my letter", adverb="often", question="polar"),
     "Do you often read my letter?", "Liest du oft meinen Brief?", "1-1 2-2 3-0 4-3 5-4"),
    ("es", say("the man", "see", "a white house"), "The man sees a white house.",
     "El hombre ve una casa blanca.", "0-0 1-1 2-2 3-3 4-5 5-4"),
    ("es", say("i", "love", "martin", negated=True), "I do not love Martin.", "Yo no amo a Martin.",
     "0-0 1-1 2-1 3-2 4-3 4-4"),
    ("es", say("the mouse", "be", "", "behind the tree", past=True),
     "The mouse was behind the tree.", "El ratón estaba detrás del árbol.",
     "0-0 1-1 2-2 3-3 3-4 4-4 5-5"),
    ("es", say("the farmer", "sell", question="what"), "What does the farmer sell?",
     "¿Qué vende el granjero?", "0-0 1-1 2-2 3-3 4-1"),
    ("es", say("i", "look_for", "three key", adverb="often"), "I often look for three keys.",
     "Yo busco a menudo tres llaves.", "0-0 1-2 1-3 2-1 3-1 4-4 5-5"),
    ("es", say("the girl", "sit", "", "near anna"), "The girl sits near Anna.",
     "La chica está sentada cerca de Anna.", "0-0 1-1 2-2 2-3 3-4 3-5 4-6"),
    ("es", say("", "meet", "olga", question="who"), "Who meets Olga?",
     "¿Quién se encuentra con Olga?", "0-0 1-1 1-2 1-3 2-4"),
    ("ru", say("the man", "see", "a dog"), "The man sees a dog.", "Мужчина видит собаку.",
     "1-0 2-1 4-2"),
    ("ru", say("my old friend", "be", "", "in the garden", negated=True),
     "My old friend is not in the garden.", "Мой старый друг не в саду.",
     "0-0 1-1 2-2 4-3 5-4 7-5"),
    ("ru", say("the woman", "look_for", "anna", past=True, negated=True),
     "The woman did not look for Anna.", "Женщина не искала Анну.", "1-0 2-1 3-1 4-2 5-2 6-3"),
    ("ru", say("the man", "need", question="what"), "What does the man need?",
     "В чём нуждается мужчина?", "0-1 1-0 1-2 3-3 4-0 4-2"),
    ("ru", say("two boy", "follow", "my+ cat", adverb="often"), "Two boys often follow my cats.",
     "Два мальчика часто следуют за моими кошками.", "0-0 1-1 2-2 3-3 3-4 4-5 5-6"),
    ("ru", say("we", "know"), "that", say("you", "sleep", past=True), "We know that you slept.",
     "Мы знаем, что ты спал.", "0-0 1-1 2-2 3-3 4-4"),
    ("ru", say("i", "sing"), "because", say("anton", "dance"), "I sing because Anton dances.",
     "Я пою, потому что Антон танцует.", "0-0 1-1 2-2 2-3 3-4 4-5"),
    ("tr", say("the man", "see", "a dog"), "The man sees a dog.", "Adam bir köpek görüyor.",
     "1-0 2-3 3-1 4-2"),
    ("tr", say("my father", "be", "", "in our house", negated=True),
     "My father is not in our house.", "Babam evimizde değil.", "0-0 1-0 2-2 3-2 4-1 5-1 6-1"),
    ("tr", say("you", "see", "this cat", question="polar"), "Do you see this cat?",
     "Sen bu kediyi görüyor musun?", "0-4 1-0 2-3 3-1 4-2"),
    ("tr", say("i", "read", "your book", past=True, negated=True), "I did not read your book.",
     "Ben senin kitabını okumadım.", "0-0 1-3 2-3 3-3 4-1 4-2 5-2"),
    ("tr", say("we", "be", predicate="tired"), "We are tired.", "Biz yorgunuz.", "0-0 1-1 2-1"),
    ("tr", say("anna", "look_for", question="what"), "What does Anna look for?", "Anna ne arıyor?",
     "0-1 1-2 2-0 3-2 4-2"),
    ("tr", say("the dog", "sleep", "", "behind this tree"), "The dog sleeps behind this tree.",
     "Köpek bu ağacın arkasında uyuyor.", "1-0 2-4 3-3 4-1 5-2"),
    ("tr", say("i", "know"), "that", say("anna", "be", predicate="rich"),
     "I know that Anna is rich.", "Ben biliyorum ki Anna zengin.", "0-0 1-1 2-2 3-3 5-4"),
]  # fmt: skip


PLURALS = {
    "es": {"thief": "ladrones", "fish": "peces", "bus": "autobuses", "garden": "jardines",
           "king": "reyes", "coffee": "cafés", "umbrella": "paraguas", "tree": "árboles",
           "clock": "relojes"},
    "ru": {"child": "дети", "tree": "деревья", "apple": "яблоки", "father": "отцы",
           "flower": "цветы", "museum": "музеи", "book": "книги", "message": "сообщения",
           "taxi": "такси"},
    "tr": {"juice": "meyve suları", "clock": "saatler", "son": "oğullar", "bus": "otobüsler",
           "shop": "dükkânlar", "city": "şehirler", "sister": "kız kardeşler"},
}  # fmt: skip


PASTS = {
    "de": {"see": "hat gesehen", "follow": "ist gefolgt", "work": "hat gearbeitet",
           "visit": "hat besucht", "photograph": "hat fotografiert", "wait_for": "hat gewartet auf",
           "be": "war"},
    "es": {"be": "era", "drive": "condujo", "follow": "siguió", "meet": "se encontró con",
           "thank": "dio las gracias", "sit": "estaba sentado", "eat": "comió"},
    "ru": {"see": "видел", "find": "нашёл", "carry": "нёс", "smile": "улыбался",
           "follow": "следовал за", "be": "был"},
    "tr": {"eat": "yedi", "cook_food": "pişirdi", "hate": "nefret etti", "sell": "sattı",
           "run": "koştu", "see": "gördü", "be": "idi", "understand": "anladı"},
}  # fmt: skip


#: Words that a language does not tell apart.
SHARED: dict[str, list[set[str]]] = {
    "de": [{"carry", "wear"}],
    "es": [],
    "ru": [{"know_person", "know"}, {"wait_for", "wait"}, {"that", "what"}],
    "tr": [{"wait_for", "wait"}],
}


@pytest.mark.parametrize(
    ("code", "said"),
    [(code, said) for code, rows in zip(SHARED, (DE, ES, RU, TR), strict=True) for said in rows],
    ids=lambda value: value if isinstance(value, str) else value[-1],
)
def test_a_sentence(code: str, said: Said) -> None:
    *clauses, expected = said
    assert text_of(code, *clauses) == expected


@pytest.mark.parametrize("said", LINKS, ids=lambda said: f"{said[0]} {said[-2]}")
def test_links_to_english(said: Said) -> None:
    code, *clauses, source, target, links = said
    sentence = Sentence(*clauses)
    english, other = render(sentence, en), render(sentence, language(code))
    assert (english.text, other.text) == (source, target)
    linked = english.links(other)
    assert linked == {tuple(map(int, pair.split("-"))) for pair in links.split()}


def test_plurals_and_pasts() -> None:
    for code, plurals in PLURALS.items():
        assert {word: language(code).plural(word) for word in plurals} == plurals
    for code, pasts in PASTS.items():
        assert {verb: language(code).past(verb) for verb in pasts} == pasts


@pytest.mark.parametrize("code", SHARED)
def test_every_concept_has_a_word_of_its_own(code: str) -> None:
    names = {name for name, concept in concepts().items() if concept.kind == "name"}
    assert set(concepts()) - names <= set(table(code)) <= set(concepts())
    by_word: dict[str, set[str]] = {}
    for concept in concepts():
        by_word.setdefault(language(code).citation(concept), set()).add(concept)
    assert all(word.strip() for word in by_word)
    assert [same for same in by_word.values() if len(same) > 1] == SHARED[code]


@pytest.mark.parametrize("code", ["es", "ru"])
@pytest.mark.parametrize("tense", ["present", "past"])
def test_every_verb_tells_its_persons_apart(code: str, tense: str) -> None:
    if (code, tense) == ("ru", "past"):  # which has a gender instead of persons
        return
    for verb in of_kind("verb"):
        if verb.id == "be" and code == "ru":
            continue
        predicate = "big" if verb.id == "be" else ""
        forms = {
            text_of(code, say(who, verb.id, predicate=predicate, past=tense == "past"))
            for who in (*PRONOUNS, "the man")
        }
        assert len(forms) == 5, verb.id


def test_every_russian_noun_renders_in_every_case_and_number() -> None:
    indeclinable = {"coffee", "radio", "piano", "coat", "taxi"}
    for noun in of_kind("noun"):
        singular, several = (
            {
                text_of("ru", say("the man", verb, f"{article} {noun.id}"))
                for verb in ("help", "see")
            }
            for article in ("a", "a+")
        )
        assert singular.isdisjoint(several) == (noun.id not in indeclinable), noun.id


def test_every_russian_adjective_agrees_in_four_ways() -> None:
    for adjective in of_kind("adjective"):
        forms = {
            render(Sentence(say(noun, "be", predicate=adjective.id)), ru).pieces[-1].text
            for noun in ("the house", "the school", "the field", "the+ house")
        }
        assert len(forms) == 4, adjective.id


@pytest.mark.parametrize(
    ("noun", "accusative"),
    [("book", "kitabı"), ("pilot", "pilotu"), ("pear", "armudu"), ("wolf", "kurdu"),
     ("park", "parkı"), ("river", "nehri"), ("picture", "resmi"), ("jacket", "ceketi"),
     ("water", "suyu"), ("nut", "fındığı"), ("judge", "yargıcı"), ("fork", "çatalı"),
     ("daughter", "kız evladı"), ("clock", "saati"), ("sock", "çorabı"), ("fish", "balığı")],
)  # fmt: skip
def test_turkish_accusative(noun: str, accusative: str) -> None:
    assert text_of("tr", say("i", "see", f"this {noun}")) == f"Ben bu {accusative} görüyorum."


def test_no_two_turkish_noun_forms_coincide_in_one_place() -> None:
    """As subjects no two nouns are confused, with whatever owner and number."""
    assert all(tr.plural(noun.id) != tr.citation(noun.id) for noun in of_kind("noun"))
    assert all(tr.past(verb.id)[-1] in "iıuü" for verb in of_kind("verb"))
    said = [
        text_of("tr", say(f"{determiner} {noun.id}", "sleep"))
        for noun in of_kind("noun")
        for owner in ("the", "my", "your", "our")
        for determiner in (owner, f"{owner}+")
    ]
    assert len(set(said)) == len(said)


def test_different_turkish_sentences_differ() -> None:
    """Determiner, number, person, tense, negation and question all show in the text."""

    def phrases(nouns: tuple[str, ...], article: str) -> list[str]:
        owners = (article, "this", "my", "your", "our")
        return [f"{owner}{number} {noun}" for noun in nouns for owner in owners
                for number in ("", "+")]  # fmt: skip

    subjects = [*PRONOUNS, "anna", *phrases(("man", "boy", "daughter"), "the")]
    said = [
        text_of("tr", say(who, "paint", what, past=past, negated=negated, question=question))
        for who, what in itertools.product(subjects, phrases(("city", "juice"), "a"))
        for past in (False, True)
        for negated in (False, True)
        for question in ("", "polar")
    ]
    assert len(set(said)) == len(said)
