"""The bundled model's own questions: held-out facts, both kinds, answers that are told."""

from __future__ import annotations

import pytest

from headscope.errors import InputError
from headscope.pocket.facts import KINDS, sample_questions
from headscope.pocket.mixture import fact_stated, fact_value, person
from headscope.pocket.world.knowledge import CAPITALS, RELATIONS, item_split, spelled
from headscope.pocket.world.languages import CODES


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_fact_asked_for_is_told_once_and_is_of_the_split(split: str, kind: str) -> None:
    found = sample_questions(split, 60, 3, kind)
    assert len({(one.context, one.question) for one in found.questions}) == 60
    abroad = 0
    for one in found.questions:
        assert one.language in CODES
        relation, name, value = one.group.split()
        assert item_split(f"{relation} {name} {value}") == split
        asked = RELATIONS[relation][one.language].question.format(a=person(name, one.language))
        assert one.question == asked
        assert one.answers == (fact_value(relation, value, one.language),)
        told = [
            code
            for code in CODES
            if fact_stated(relation, code, person(name, code), fact_value(relation, value, code))
            in one.context
        ]
        assert told
        abroad += one.language not in told
    always = {"one-language": 0, "two-languages": 60, "translated": 60}
    assert abroad == always.get(kind, abroad)
    if kind == "translated":
        values = [*CAPITALS, *(spelled(name, "ru") for name in CAPITALS)]
        assert all(sum(one in q.context for one in values) <= 1 for q in found.questions)
    assert kind != "any" or 15 <= abroad <= 45


def test_a_seed_decides_and_fewer_are_the_first_ones() -> None:
    many, few = (sample_questions("dev", n, 5) for n in (20, 8))
    assert many.questions[:8] == few.questions and many.digest != few.digest
    assert many == sample_questions("dev", 20, 5)
    assert many.questions != sample_questions("dev", 20, 6).questions
    assert many.path == "pocket:dev" and many.unanswerable == 0


def test_what_the_world_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="n is 0"):
        sample_questions("dev", 0, 0)
    with pytest.raises(InputError, match="no kind of question"):
        sample_questions("dev", 1, 0, "three-languages")
    with pytest.raises(InputError, match="no language 'fr'"):
        sample_questions("dev", 1, 0, "any", ("fr",))
