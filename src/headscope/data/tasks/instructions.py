"""What to do, in words, for the word tasks that the function-vector datasets made customary.

The names are those of the files of Todd et al., "Function Vectors in Large Language Models"
(ICLR 2024); the Heads Up! paper trains masks for 35 of them (its Table 10). The wording is this
project's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """What is known of a task by its name.

    Attributes:
        says: what to do, as a sentence.
        at_start: whether an answer counts at the start of an output alone.
        chosen: whether the output is one of the comma-separated words of the input.
        language: code of the language of the outputs.
    """

    says: str
    at_start: bool = False
    chosen: bool = False
    language: str = "en"


def _letter(says: str) -> Known:
    return Known(says, at_start=True)


def _item(says: str) -> Known:
    return Known(says, at_start=True)


def _extract(says: str) -> Known:
    return Known(says, at_start=True)


def _choose(says: str) -> Known:
    return Known(says, at_start=True, chosen=True)


#: By task name.
INSTRUCTIONS: dict[str, Known] = {
    # Letters and spelling
    "capitalize": _letter("Write this word with a capital first letter."),
    "capitalize_first_letter": _letter("Which letter does this word begin with? Write a capital."),
    "capitalize_second_letter": _letter("Which letter comes second in this word? Write a capital."),
    "capitalize_last_letter": _letter("Which letter does this word end with? Write a capital."),
    "lowercase_first_letter": _letter(
        "Which letter does this word begin with? Write it as a small letter."
    ),
    "lowercase_last_letter": _letter(
        "Which letter does this word end with? Write it as a small letter."
    ),
    "next_capital_letter": _letter(
        "Take the first letter of this word and write the letter that follows it in the alphabet, "
        "as a capital."
    ),
    "word_length": Known("Count the letters of this word and write the number."),
    # Order
    "next_item": _item("Write what comes right after this in its series."),
    "prev_item": _item("Write what comes right before this in its series."),
    # Forms and meaning of words
    "antonym": Known("Give a word that means the opposite."),
    "synonym": Known("Give another word with the same meaning."),
    "present-past": Known("Write this verb in the simple past."),
    "singular-plural": Known("Write this noun in the plural."),
    "english-french": Known("Say this English word in French.", language="fr"),
    "english-german": Known("Say this English word in German.", language="de"),
    "english-spanish": Known("Say this English word in Spanish.", language="es"),
    # Knowledge
    "country-capital": Known("Name the capital city of this country."),
    "country-currency": Known("Name the money that this country uses."),
    "landmark-country": Known("In which country is this place? Name the country."),
    "park-country": Known("In which country is this national park? Name the country."),
    "national_parks": Known("In which state of the United States is this park? Name the state."),
    "person-instrument": Known("Which instrument does this musician play?"),
    "person-occupation": Known("What does this person do for a living?"),
    "person-sport": Known("Which sport does this athlete play?"),
    "product-company": Known("Which company makes this product?"),
    # Classes
    "ag_news": Known(
        "Which section does this news item belong to: World, Sports, Business or Science? Write "
        "the section alone."
    ),
    "sentiment": Known("Is this review positive or negative? Answer with one of these two words."),
    # Extraction
    "conll2003_location": _extract("Copy the name of the place out of this text."),
    "conll2003_organization": _extract("Copy the name of the organization out of this text."),
    "conll2003_person": _extract("Copy the name of the person out of this text."),
    "adjective_v_verb_3": _choose("One of these words is an adjective. Write that word."),
    "verb_v_adjective_3": _choose("One of these words is a verb. Write that word."),
    "animal_v_object_3": _choose("One of these words is an animal. Write that word."),
    "fruit_v_animal_3": _choose("One of these words is a fruit. Write that word."),
    "color_v_animal_3": _choose("One of these words is a colour. Write that word."),
    "concept_v_object_3": _choose("One of these words is no concrete object. Write that word."),
    "object_v_concept_3": _choose("One of these words is a concrete object. Write that word."),
    "alphabetically_first_3": _choose("Write the word that comes first in the alphabet."),
    "alphabetically_last_3": _choose("Write the word that comes last in the alphabet."),
    "choose_first_of_3": _choose("Write the first word of this list."),
    "choose_middle_of_3": _choose("Write the word in the middle of this list."),
    "choose_last_of_3": _choose("Write the last word of this list."),
}

# Lists of five words exist beside those of three, under the same names.
_COUNT = re.compile(r"_\d+$")


def known_task(name: str) -> Known | None:
    """What is known of a task of this name; lists of other lengths count as those of three."""
    return INSTRUCTIONS.get(name) or INSTRUCTIONS.get(_COUNT.sub("_3", name))


def template(says: str) -> str:
    """The prompt of an instruction: what to do, the input, and where the answer goes."""
    return f"{says}\nInput: {{input}}\nAnswer:"


def instruction_for(name: str) -> str | None:
    """The instruction of a task by its name, as a template, or None for unknown names."""
    known = known_task(name)
    return template(known.says) if known is not None else None
