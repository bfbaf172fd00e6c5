"""Links that the data give themselves: the most exact ones there are."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.data.links import Links
from headscope.data.pairs import SentencePair
from headscope.errors import InputError


def given_links(pairs: Sequence[SentencePair]) -> tuple[Links, ...]:
    """The links of each pair; raises ``InputError`` naming the first pair without."""
    for pair in pairs:
        if pair.links is None:
            raise InputError(
                f"sentence pair {pair.id} has no links; name the column that holds them with "
                "--links-column, or choose another aligner (--aligner eflomal or llm)"
            )
    return tuple(pair.links for pair in pairs if pair.links is not None)
