"""German in the pocket world: sentences written by hand, completeness, exact links to English."""

from __future__ import annotations

from typing import Any

import pytest

from headscope.pocket.world.languages import de, en
from headscope.pocket.world.lexicon import concepts, of_kind, table
from headscope.pocket.world.sentences import Clause, NounPhrase, Rendered, Sentence, render


def np(text: str) -> NounPhrase:
    """ "the big dog", "two dog", "a+ dog" (plural), "anna": determiner, adjective, noun."""
    parts = text.split()
    if len(parts) == 1:
        return NounPhrase(parts[0], number="plural" if parts[0] in ("we", "they") else "singular")
    determiner, several = parts[0].removesuffix("+"), parts[0].endswith("+")
    counted = concepts().get(determiner) is not None and concepts()[determiner].kind == "number"
    number = "plural" if several or counted else "singular"
    return NounPhrase(parts[-1], determiner, number, parts[1] if len(parts) == 3 else "")


def say(subject: str, verb: str, object: str = "", place: str = "", **rest: Any) -> Clause:
    """A clause; `place` is "in the garden"."""
    preposition, _, there = place.partition(" ")
    return Clause(
        np(subject) if subject else None,
        verb,
        np(object) if object else None,
        place=(preposition, np(there)) if place else None,
        **rest,
    )


PAST = {"tense": "past"}
NOT = {"negated": True}

CLAUSES = [
    # Agreement, case and gender.
    (say("the man", "see", "a dog"), "Der Mann sieht einen Hund."),
    (say("the woman", "see", "this cat"), "Die Frau sieht diese Katze."),
    (say("this child", "love", "my horse"), "Dieses Kind liebt mein Pferd."),
    (say("i", "smile"), "Ich lächle."),
    (say("you", "read", "our book"), "Du liest unser Buch."),
    (say("we", "open", "your letter"), "Wir öffnen deinen Brief."),
    (say("they", "buy", "a+ apple"), "Sie kaufen Äpfel."),
    (say("every girl", "draw", "a+ small bird"), "Jedes Mädchen zeichnet kleine Vögel."),
    (say("the small boy", "eat", "a red apple"), "Der kleine Junge isst einen roten Apfel."),
    (say("this+ old dog", "eat", "my+ good cake"), "Diese alten Hunde fressen meine guten Kuchen."),
    (
        say("my good friend", "wear", "this+ new shoe"),
        "Mein guter Freund trägt diese neuen Schuhe.",
    ),
    (
        say("our small child", "find", "a expensive ring"),
        "Unser kleines Kind findet einen teuren Ring.",
    ),
    # Weak nouns, dative, prepositions of verbs, separable prefixes.
    (say("the student", "know_person", "my neighbour"), "Der Student kennt meinen Nachbarn."),
    (say("the boy", "help", "this boy"), "Der Junge hilft diesem Jungen."),
    (say("the cow", "follow", "two child"), "Die Kuh folgt zwei Kindern."),
    (say("anna", "thank", "thomas"), "Anna dankt Thomas."),
    (say("you", "wait_for", "my sister"), "Du wartest auf meine Schwester."),
    (say("my mother", "call", "a doctor"), "Meine Mutter ruft einen Arzt an."),
    (say("paul", "invite", "our+ guest"), "Paul lädt unsere Gäste ein."),
    # Numerals.
    (say("two man", "sell", "three old car"), "Zwei Männer verkaufen drei alte Autos."),
    (say("ten soldier", "sleep"), "Zehn Soldaten schlafen."),
    # The past.
    (say("the man", "see", "a dog", **PAST), "Der Mann hat einen Hund gesehen."),
    (say("you", "run", place="in the dark forest", **PAST), "Du bist im dunklen Wald gerannt."),
    (say("the+ bee", "disappear", **PAST), "Die Bienen sind verschwunden."),
    (say("the lion", "eat", "a fish", **PAST), "Der Löwe hat einen Fisch gefressen."),
    (say("i", "call", "my father", **PAST), "Ich habe meinen Vater angerufen."),
    (say("you", "follow", "a bear", **PAST), "Du bist einem Bären gefolgt."),
    # The copula.
    (say("the soup", "be", predicate="hot"), "Die Suppe ist heiß."),
    (say("i", "be", predicate="tired", **PAST), "Ich war müde."),
    (say("you", "be", place="in the city"), "Du bist in der Stadt."),
    (say("the+ egg", "be", predicate="fresh", **NOT), "Die Eier sind nicht frisch."),
    (
        say("maria", "be", place="in this museum", **PAST, **NOT),
        "Maria war nicht in diesem Museum.",
    ),
    # Places.
    (say("the cat", "sit", place="on the table"), "Die Katze sitzt auf dem Tisch."),
    (say("the cat", "sit", place="under my bed"), "Die Katze sitzt unter meinem Bett."),
    (say("i", "travel", place="with anna"), "Ich reise mit Anna."),
    (say("we", "stand", place="behind our+ house"), "Wir stehen hinter unseren Häusern."),
    (say("i", "buy", "a cheese", "in the market"), "Ich kaufe einen Käse auf dem Markt."),
    (say("they", "wait", place="in_front_of the+ white tree"), "Sie warten vor den weißen Bäumen."),
    # Negation.
    (say("the man", "see", "a dog", **NOT), "Der Mann sieht keinen Hund."),
    (say("the man", "see", "a+ red rose", **NOT), "Der Mann sieht keine roten Rosen."),
    (say("we", "help", "a tourist", **NOT), "Wir helfen keinem Touristen."),
    (say("i", "see", "my dog", **NOT), "Ich sehe meinen Hund nicht."),
    (say("i", "see", "two dog", **NOT), "Ich sehe nicht zwei Hunde."),
    (
        say("i", "wait_for", "my brother", **PAST, **NOT),
        "Ich habe nicht auf meinen Bruder gewartet.",
    ),
    (say("i", "wait_for", "a bus", **NOT), "Ich warte auf keinen Bus."),
    (
        say("vera", "meet", "paul", "in the park", **PAST, **NOT),
        "Vera hat Paul nicht im Park getroffen.",
    ),
    (say("the man", "read", "a book", adverb="often", **NOT), "Der Mann liest nicht oft ein Buch."),
    (say("the man", "read", "a book", adverb="today", **NOT), "Der Mann liest heute kein Buch."),
    # Adverbs.
    (say("the man", "see", "my dog", adverb="tonight"), "Der Mann sieht heute Abend meinen Hund."),
    (
        say("the dog", "sleep", place="near the house", adverb="always"),
        "Der Hund schläft immer neben dem Haus.",
    ),
    (
        say("i", "steal", "a hat", adverb="secretly", **PAST),
        "Ich habe heimlich einen Hut gestohlen.",
    ),
    # Questions.
    (say("the man", "see", "a dog", question="polar"), "Sieht der Mann einen Hund?"),
    (say("you", "sleep", question="polar", **PAST, **NOT), "Hast du nicht geschlafen?"),
    (say("the tea", "be", predicate="cold", question="polar"), "Ist der Tee kalt?"),
    (say("", "see", "my dog", question="who"), "Wer sieht meinen Hund?"),
    (say("", "invite", "anna", question="who", **PAST), "Wer hat Anna eingeladen?"),
    (say("the fox", "eat", question="what"), "Was frisst der Fuchs?"),
    (say("they", "buy", question="what", **PAST), "Was haben sie gekauft?"),
    (say("oscar", "wait_for", question="what"), "Worauf wartet Oscar?"),
    (say("the dog", "follow", question="what", **PAST), "Wem ist der Hund gefolgt?"),
]


@pytest.mark.parametrize(("clause", "expected"), CLAUSES, ids=[text for _, text in CLAUSES])
def test_a_clause_in_german(clause: Clause, expected: str) -> None:
    assert render(Sentence(clause), de).text == expected


SENTENCES = [
    (
        Sentence(say("the man", "sleep"), "and", say("the woman", "work")),
        "Der Mann schläft und die Frau arbeitet.",
    ),
    (
        Sentence(say("i", "sing"), "but", say("you", "cry", **NOT)),
        "Ich singe, aber du weinst nicht.",
    ),
    (
        Sentence(say("i", "laugh"), "because", say("the child", "be", predicate="happy")),
        "Ich lache, weil das Kind glücklich ist.",
    ),
    (
        Sentence(say("anna", "know", **NOT), "that", say("i", "see", "a dog", **PAST)),
        "Anna weiß nicht, dass ich einen Hund gesehen habe.",
    ),
    (
        Sentence(say("you", "think", **PAST), "that", say("my father", "call", "a nurse", **NOT)),
        "Du hast gedacht, dass mein Vater keine Krankenschwester anruft.",
    ),
    (
        Sentence(say("we", "hope"), "that", say("they", "be", place="in the hotel", **PAST)),
        "Wir hoffen, dass sie im Hotel waren.",
    ),
    (
        Sentence(
            say("the king", "believe", question="polar"),
            "that",
            say("every thief", "steal", "a+ coin", adverb="sometimes"),
        ),
        "Glaubt der König, dass jeder Dieb manchmal Münzen stiehlt?",
    ),
]


@pytest.mark.parametrize(("sentence", "expected"), SENTENCES, ids=[text for _, text in SENTENCES])
def test_two_clauses_in_german(sentence: Sentence, expected: str) -> None:
    assert render(sentence, de).text == expected


def linked(english: Rendered, german: Rendered) -> set[tuple[str, str]]:
    return {(english.pieces[i].text, german.pieces[j].text) for i, j in english.links(german)}


LINKS = [
    (
        Sentence(say("the man", "see", "a dog", **NOT)),
        "The-Der man-Mann does-keinen not-keinen see-sieht a-keinen dog.-Hund.",
    ),
    (
        Sentence(say("the man", "see", "a dog", **PAST)),
        "The-Der man-Mann saw-hat saw-gesehen. a-einen dog.-Hund",
    ),
    (
        Sentence(say("i", "sleep", place="in the garden")),
        "I-Ich sleep-schlafe in-im the-im garden.-Garten.",
    ),
    (
        Sentence(say("my mother", "call", "a doctor")),
        "My-Meine mother-Mutter calls-ruft calls-an. a-einen doctor.-Arzt",
    ),
    (
        Sentence(say("you", "wait_for", "two old friend")),
        "You-Du wait-wartest wait-auf for-wartest for-auf two-zwei old-alte friends.-Freunde.",
    ),
    (
        Sentence(say("oscar", "wait_for", question="what")),
        (
            "What-Worauf does-Worauf does-wartet Oscar-Oscar? wait-Worauf wait-wartet "
            "for?-Worauf for?-wartet"
        ),
    ),
    (
        Sentence(say("i", "laugh"), "because", say("anna", "be", predicate="happy")),
        "I-Ich laugh-lache, because-weil Anna-Anna is-ist. happy.-glücklich",
    ),
    (
        Sentence(say("you", "read", "my letter", question="polar", adverb="often")),
        "you-du often-oft read-Liest my-meinen letter?-Brief?",
    ),
]


@pytest.mark.parametrize(("sentence", "expected"), LINKS, ids=[text for _, text in LINKS])
def test_links_to_english(sentence: Sentence, expected: str) -> None:
    pairs = {tuple(pair.split("-")) for pair in expected.split()}
    assert linked(render(sentence, en), render(sentence, de)) == pairs


def test_every_concept_has_a_german_word() -> None:
    named = {name for name, concept in concepts().items() if concept.kind == "name"}
    assert set(table("de")) == set(concepts()) - named
    words = {name: de.citation(name) for name in concepts()}
    assert all(words.values())
    # German says "tragen" of clothes and of loads; all other words differ.
    del words["carry"]
    assert len(set(words.values())) == len(words)


def test_nouns_have_gender_plural_and_a_capital() -> None:
    for concept in of_kind("noun"):
        entry = table("de")[concept.id]
        assert entry["gender"] in ("m", "f", "n"), concept.id
        assert de.plural(concept.id)[0].isupper() and entry["base"][0].isupper(), concept.id


def test_every_noun_adjective_and_verb_renders() -> None:
    for concept in concepts().values():
        if concept.kind == "noun":
            said = render(Sentence(say(f"the {concept.id}", "be", predicate="big")), de).text
            assert de.citation(concept.id) in said
        elif concept.kind == "adjective":
            said = render(Sentence(say("the house", "be", predicate=concept.id)), de).text
            assert said == f"Das Haus ist {de.citation(concept.id)}."
        elif concept.kind == "verb" and concept.id != "be":
            said = render(Sentence(say("the man", concept.id, **PAST)), de).text
            perfect = said.removeprefix("Der Mann ").removesuffix(".")
            assert de.past(concept.id).split()[:2] == perfect.split()


@pytest.mark.parametrize(
    ("concept", "expected"),
    [
        ("see", "hat gesehen"),
        ("follow", "ist gefolgt"),
        ("work", "hat gearbeitet"),
        ("visit", "hat besucht"),
        ("photograph", "hat fotografiert"),
        ("wait_for", "hat gewartet auf"),
        ("be", "war"),
    ],
)
def test_past(concept: str, expected: str) -> None:
    assert de.past(concept) == expected


def test_word_forms() -> None:
    assert de.citation("see") == "sehen"
    assert de.citation("wait_for") == "warten auf"
    assert de.citation("this") == "dieser"
    assert de.citation("olga") == "Olga"
    assert de.plural("child") == "Kinder"
    assert de.connective("because") == "weil"
