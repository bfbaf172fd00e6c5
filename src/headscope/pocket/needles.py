"""Hidden facts in texts of the bundled model's world."""

from __future__ import annotations

import random

from headscope.data.needles import Needle, NeedleFile, needle_file
from headscope.pocket.mixture import draw_of_split, fact_stated, fact_value, person, say
from headscope.pocket.world.knowledge import CAPITALS, COLOURS, RELATIONS, item_split
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.lexicon import of_kind
from headscope.pocket.world.sampling import Split

#: Sentences of a haystack; about ten tokens each.
SENTENCES = 8


def sample_needles(split: Split, n: int, seed: int) -> NeedleFile:
    """The first `n` facts drawn with `seed`: who comes from where, or likes which colour.

    Languages take turns. A haystack is held-out sentences of one language and one fact of the same
    kind about somebody else, so that the right one has to be found. A person and a value that go
    together in `split` do so nowhere else.
    """
    rng = random.Random(f"needles {split} {seed}")
    people = [name.id for name in of_kind("name")]
    needles = []
    for number in range(n):
        code = CODES[number % len(CODES)]
        relation = rng.choice(("origin", "colour"))
        values = list(CAPITALS) if relation == "origin" else list(COLOURS)
        while True:
            (name, other), (value, another) = rng.sample(people, 2), rng.sample(values, 2)
            if item_split(f"{relation} {name} {value}") == split:
                break
        answer = fact_value(relation, value, code)
        told = fact_stated(relation, code, person(name, code), answer)
        asked = RELATIONS[relation][code].question.format(a=person(name, code))
        distractor = fact_stated(
            relation, code, person(other, code), fact_value(relation, another, code)
        )
        said = [say(draw_of_split(rng, split), code) for _ in range(SENTENCES)]
        said.insert(rng.randint(0, 2), distractor)
        needles.append(Needle(f"{code}-{number}", told, asked, " ".join(said), answer, number + 1))
    return needle_file(needles, f"pocket:{split}")
