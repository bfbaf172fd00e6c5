"""Rated records made up for mixing, and the selection written from its definition."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Record = Mapping[str, Any]


def corpus(documents: int, seed: int = 0, copies: float = 0.1) -> list[dict[str, Any]]:
    """Records in three languages of unequal size, some of which share a text."""
    chance = random.Random(seed)
    texts: dict[tuple[str, int], float] = {}
    records = []
    for number in range(documents):
        language = chance.choice(("en", "en", "en", "de", "de", "is"))
        name = number % 7 if chance.random() < copies else number
        score = texts.setdefault((language, name), chance.gauss(0.0, 1.0))
        records.append(
            {
                "id": number,
                "text": f"{language} {name}",
                "language": language,
                "score": score,
                "tokens": chance.randint(1, 60),
            }
        )
    return records


@st.composite
def corpora(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Small corpora with many equal scores and equal texts."""
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(("en", "de", "is")),
                st.integers(0, 25),
                st.integers(0, 12),
            ),
            min_size=4,
            max_size=60,
        )
    )
    scores = draw(
        st.lists(
            st.floats(-1e6, 1e6) | st.sampled_from((0.0, -0.0, 1.0, 5e-324)),
            min_size=26,
            max_size=26,
        )
    )
    return [
        {
            "id": number,
            "text": f"text {name}",
            "language": language,
            "score": scores[name],
            "tokens": tokens,
        }
        for number, (language, name, tokens) in enumerate(rows)
    ]


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write JSON Lines, compressed where the name ends so."""
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def written(out: Path) -> list[dict[str, Any]]:
    """The records of a mixture in the order of its files."""
    return [
        json.loads(line)
        for path in sorted((out / "documents").iterdir())
        for line in path.read_text("utf-8").splitlines()
    ]


def weight(records: Iterable[Record], by: str) -> int:
    """How many records there are, or how many tokens they have."""
    return sum(1 if by == "documents" else record["tokens"] for record in records)


def of_language(records: Iterable[Record], language: str) -> list[Record]:
    """The records of one language."""
    return [record for record in records if record["language"] == language]


def repeats(records: Sequence[Record]) -> int:
    """Records whose text stands in an earlier one."""
    return len(records) - len({record["text"] for record in records})


def times(records: Iterable[Record]) -> Counter[Any]:
    """How often each id is there."""
    return Counter(record["id"] for record in records)
