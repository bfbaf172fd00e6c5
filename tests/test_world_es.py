"""Spanish of the pocket world: hand-written sentences, completeness, exact links to English."""

from __future__ import annotations

import pytest

from headscope.pocket.world.languages import en, es
from headscope.pocket.world.lexicon import concepts, of_kind, table
from headscope.pocket.world.sentences import (
    PRONOUNS,
    Clause,
    Connective,
    NounPhrase,
    Sentence,
    render,
)


def the(noun: str, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun, "the", adjective=adjective)


def some(noun: str, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun, "a", adjective=adjective)


def many(determiner: str, noun: str, adjective: str = "") -> NounPhrase:
    return NounPhrase(noun, determiner, "plural", adjective)


def name(noun: str) -> NounPhrase:
    return NounPhrase(noun)


def joined(first: Clause, connective: Connective, second: Clause) -> Sentence:
    return Sentence(first, connective, second)


SENTENCES: list[tuple[Sentence | Clause, str]] = [
    # Agreement and word order.
    (Clause(the("man"), "see", some("house", "white")), "El hombre ve una casa blanca."),
    (
        Clause(many("the", "girl", "hardworking"), "read", many("a", "book", "old")),
        "Las chicas trabajadoras leen libros viejos.",
    ),
    (
        Clause(NounPhrase("student", "every"), "need", NounPhrase("pencil", "our")),
        "Cada estudiante necesita nuestro lápiz.",
    ),
    (
        Clause(many("three", "thief", "young"), "steal", many("five", "nut")),
        "Tres ladrones jóvenes roban cinco nueces.",
    ),
    (
        Clause(many("our", "queen"), "buy", many("two", "umbrella", "blue")),
        "Nuestras reinas compran dos paraguas azules.",
    ),
    (
        Clause(many("this", "lion"), "hide", many("your", "sock", "dirty")),
        "Estos leones esconden tus calcetines sucios.",
    ),
    (Clause(name("anna"), "drink", some("water", "cold")), "Anna bebe un agua fría."),
    (Clause(the("water"), "be", predicate="hot"), "El agua está caliente."),
    (Clause(NounPhrase("water", "this"), "be", predicate="bitter"), "Esta agua es amarga."),
    # Personal "a" and prepositions of verbs.
    (Clause(name("i"), "love", name("martin")), "Yo amo a Martin."),
    (Clause(name("we"), "greet", NounPhrase("aunt", "my")), "Nosotros saludamos a mi tía."),
    (Clause(name("they"), "feed", some("cow")), "Ellos alimentan una vaca."),
    (
        Clause(the("nurse"), "thank", name("clara"), adverb="often"),
        "La enfermera da a menudo las gracias a Clara.",
    ),
    (Clause(the("dog"), "help", some("cat")), "El perro ayuda a un gato."),
    (
        Clause(name("i"), "meet", some("friend"), place=("in", the("park")), adverb="today"),
        "Yo me encuentro con un amigo en el parque hoy.",
    ),
    # Past.
    (
        Clause(name("you"), "bring", some("cake"), adverb="yesterday", tense="past"),
        "Tú trajiste un pastel ayer.",
    ),
    (
        Clause(name("i"), "look_for", some("key"), place=("under", the("bed")), tense="past"),
        "Yo busqué una llave debajo de la cama.",
    ),
    (
        Clause(many("the", "woman"), "build", some("bridge", "long"), tense="past"),
        "Las mujeres construyeron un puente largo.",
    ),
    (
        Clause(many("the", "child"), "sit", place=("on", NounPhrase("sofa", "my")), tense="past"),
        "Los niños estaban sentados sobre mi sofá.",
    ),
    (
        Clause(name("laura"), "stay", place=("in", the("hotel")), adverb="alone", tense="past"),
        "Laura se quedó a solas en el hotel.",
    ),
    # Negation and adverbs.
    (
        Clause(the("baker"), "eat", some("sausage"), adverb="always", negated=True),
        "El panadero no come siempre una salchicha.",
    ),
    (
        Clause(the("singer"), "write", some("letter"), adverb="slowly", negated=True, tense="past"),
        "El cantante no escribió lentamente una carta.",
    ),
    # Copula and places.
    (Clause(name("sofia"), "be", predicate="tired"), "Sofia está cansada."),
    (Clause(name("we"), "be", predicate="polite", tense="past"), "Nosotros éramos educados."),
    (
        Clause(many("the", "city"), "be", predicate="safe", negated=True),
        "Las ciudades no son seguras.",
    ),
    (
        Clause(the("mouse"), "be", place=("behind", the("tree", "big")), tense="past"),
        "El ratón estaba detrás del árbol grande.",
    ),
    (
        Clause(the("boat"), "be", place=("near", NounPhrase("bridge", "this")), adverb="now"),
        "La barca está cerca de este puente ahora.",
    ),
    # Questions.
    (Clause(the("man"), "see", some("dog"), question="polar"), "¿Ve el hombre un perro?"),
    (
        Clause(name("you"), "be", predicate="hungry", question="polar", negated=True),
        "¿No estás tú hambriento?",
    ),
    (Clause(name("they"), "be", predicate="rich", question="polar"), "¿Son ellos ricos?"),
    (Clause(the("girl"), "sit", question="polar"), "¿Está la chica sentada?"),
    (
        Clause(the("farmer"), "sell", question="what", adverb="sometimes"),
        "¿Qué vende el granjero a veces?",
    ),
    (Clause(the("boy"), "help", question="what"), "¿A qué ayuda el chico?"),
    (
        Clause(None, "call", name("olga"), question="who", tense="past"),
        "¿Quién llamó a Olga?",
    ),
    (Clause(None, "be", predicate="sick", question="who"), "¿Quién está enfermo?"),
    # Two clauses.
    (
        joined(
            Clause(name("vera"), "hope", adverb="now"),
            "that",
            Clause(the("train"), "be", place=("in", the("station"))),
        ),
        "Vera confía ahora en que el tren está en la estación.",
    ),
    (
        joined(
            Clause(the("judge"), "know", tense="past"),
            "that",
            Clause(name("hugo"), "play", tense="past", negated=True),
        ),
        "El juez sabía que Hugo no jugó.",
    ),
    (
        joined(Clause(name("i"), "laugh"), "because", Clause(name("you"), "dance")),
        "Yo río porque tú bailas.",
    ),
    (
        joined(Clause(the("wolf"), "sleep"), "but", Clause(the("bear"), "run", tense="past")),
        "El lobo duerme, pero el oso corrió.",
    ),
    (
        joined(
            Clause(name("adam"), "cook_food", some("soup")),
            "and",
            Clause(name("emma"), "stand", place=("in_front_of", the("church"))),
        ),
        "Adam cocina una sopa y Emma está de pie delante de la iglesia.",
    ),
]


@pytest.mark.parametrize(("said", "expected"), SENTENCES, ids=[text for _, text in SENTENCES])
def test_sentences(said: Sentence | Clause, expected: str) -> None:
    sentence = Sentence(said) if isinstance(said, Clause) else said
    assert render(sentence, es).text == expected


def test_every_concept_has_a_form_and_no_row_is_foreign() -> None:
    lexicon = table("es")
    for concept in concepts().values():
        assert es.citation(concept.id).strip()
        assert (concept.id in lexicon) == (concept.kind != "name")
    assert set(lexicon) <= set(concepts())


def test_dictionary_forms_are_distinct() -> None:
    forms = [es.citation(concept) for concept in concepts()]
    assert sorted(form for form in set(forms) if forms.count(form) > 1) == []


@pytest.mark.parametrize("concept", [concept.id for concept in of_kind("verb")])
def test_every_verb_has_all_persons_in_both_tenses(concept: str) -> None:
    subjects = [name(pronoun) for pronoun in PRONOUNS] + [the("man")]
    predicate = "big" if concept == "be" else ""
    for tense in ("present", "past"):
        forms = {
            render(Sentence(Clause(s, concept, tense=tense, predicate=predicate)), es).text
            for s in subjects
        }
        assert len(forms) == 5
    listed = [table("es")[concept].get(column) for column in ("present", "preterite", "imperfect")]
    assert all(len(forms.split()) == 5 for forms in listed if forms)


def test_columns_are_known() -> None:
    known = {"base", "gender", "plural", "article", "copula", "agrees", "present", "preterite"}
    known |= {"imperfect", "past", "reflexive", "rest", "object", "that"}
    for concept, row in table("es").items():
        assert set(row) <= known, concept


@pytest.mark.parametrize(
    ("concept", "expected"),
    [
        ("thief", "ladrones"),
        ("fish", "peces"),
        ("bus", "autobuses"),
        ("garden", "jardines"),
        ("king", "reyes"),
        ("coffee", "cafés"),
        ("umbrella", "paraguas"),
        ("tree", "árboles"),
        ("clock", "relojes"),
    ],
)
def test_plural(concept: str, expected: str) -> None:
    assert es.plural(concept) == expected


@pytest.mark.parametrize(
    ("concept", "expected"),
    [
        ("be", "era"),
        ("drive", "condujo"),
        ("follow", "siguió"),
        ("meet", "se encontró con"),
        ("thank", "dio las gracias"),
        ("sit", "estaba sentado"),
        ("eat", "comió"),
    ],
)
def test_past(concept: str, expected: str) -> None:
    assert es.past(concept) == expected


@pytest.mark.parametrize(
    ("clause", "english", "spanish", "links"),
    [
        (
            Clause(the("man"), "see", some("house", "white")),
            "The man sees a white house.",
            "El hombre ve una casa blanca.",
            {(0, 0), (1, 1), (2, 2), (3, 3), (4, 5), (5, 4)},
        ),
        (
            Clause(name("i"), "love", name("martin"), negated=True),
            "I do not love Martin.",
            "Yo no amo a Martin.",
            {(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (4, 4)},
        ),
        (
            Clause(the("mouse"), "be", place=("behind", the("tree")), tense="past"),
            "The mouse was behind the tree.",
            "El ratón estaba detrás del árbol.",
            {(0, 0), (1, 1), (2, 2), (3, 3), (3, 4), (4, 4), (5, 5)},
        ),
        (
            Clause(the("farmer"), "sell", question="what"),
            "What does the farmer sell?",
            "¿Qué vende el granjero?",
            {(0, 0), (1, 1), (2, 2), (3, 3), (4, 1)},
        ),
        (
            Clause(name("i"), "look_for", many("three", "key"), adverb="often"),
            "I often look for three keys.",
            "Yo busco a menudo tres llaves.",
            {(0, 0), (1, 2), (1, 3), (2, 1), (3, 1), (4, 4), (5, 5)},
        ),
        (
            Clause(the("girl"), "sit", place=("near", name("anna"))),
            "The girl sits near Anna.",
            "La chica está sentada cerca de Anna.",
            {(0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (3, 5), (4, 6)},
        ),
        (
            Clause(None, "meet", name("olga"), question="who"),
            "Who meets Olga?",
            "¿Quién se encuentra con Olga?",
            {(0, 0), (1, 1), (1, 2), (1, 3), (2, 4)},
        ),
    ],
)
def test_links_to_english(
    clause: Clause, english: str, spanish: str, links: set[tuple[int, int]]
) -> None:
    source, target = render(Sentence(clause), en), render(Sentence(clause), es)
    assert (source.text, target.text) == (english, spanish)
    assert source.links(target) == links
