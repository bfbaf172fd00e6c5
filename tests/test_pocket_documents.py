"""Documents of the bundled model's world: held out, repeatable, the same in every language."""

from __future__ import annotations

from itertools import islice

import pytest

from headscope.errors import InputError
from headscope.pocket.mixture import MONOLINGUAL_SENTENCES, monolingual_sentences, say
from headscope.pocket.sample import sample_documents
from headscope.pocket.world.sampling import SPLITS, split_of


def test_documents_are_those_of_the_stream_in_one_language() -> None:
    file = sample_documents("ru", "dev", 4, 7)
    stream = islice(monolingual_sentences("dev", "documents 7"), 4)
    wanted = [" ".join(say(one, "ru") for one in some) for some in stream]
    assert [one.text for one in file.documents] == wanted
    assert [one.line for one in file.documents] == [1, 2, 3, 4]
    assert {one.language for one in file.documents} == {file.language} == {"ru"}


def test_every_sentence_is_of_the_split_and_documents_have_a_length() -> None:
    few, many = MONOLINGUAL_SENTENCES
    for split in SPLITS:
        for some in islice(monolingual_sentences(split, "x"), 5):
            assert few <= len(some) <= many
            assert {split_of(one) for one in some} == {split}


def test_what_the_world_lacks_is_named() -> None:
    for code, split, n, message in (
        ("fr", "dev", 1, "no language 'fr'"),
        ("de", "devel", 1, "no split 'devel'; known: train, dev, test"),
        ("de", "dev", 0, "at least one document"),
    ):
        with pytest.raises(InputError, match=message):
            sample_documents(code, split, n, 0)
