"""A stand-in for the model's rating that needs no model, and small corpora."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headscope.use.rating import Rated, Unrated

LANGUAGES = ("de", "en", "tr")


def rate_by_hash(
    lm: object,
    texts: Sequence[str],
    gate: object,
    config: object = None,
    progress: Callable[[int, int], None] | None = None,
    replacement: object = None,
) -> list[Rated | Unrated]:
    """Losses that follow from each text alone; none for a single word or the word NAN."""
    found: list[Rated | Unrated] = []
    for text in texts:
        if "NAN" in text:
            found.append(Unrated("its loss under the gate is not finite"))
        elif " " not in text:
            found.append(Unrated("it has 1 tokens, so none is predicted from another"))
        else:
            digest = hashlib.sha256(text.encode()).digest()
            found.append(Rated(digest[0] / 64, digest[1] / 64, len(text.split()) - 1))
        if progress:
            progress(len(found), len(texts))
    return found


def documents(number: int, offset: int = 0) -> list[dict[str, Any]]:
    """Records of several languages with fields of all kinds."""
    return [
        {
            "id": f"doc-{at}",
            "text": f"Dokument Nummer {at}: " + "ein Wort und noch eins " * (at % 7),
            "language": LANGUAGES[at % 3],
            "meta": {"source": None, "marks": [at, at / 8], "empty": {}},
            "falsy": "",
            "big": 10**30 + at,
        }
        for at in range(offset, offset + number)
    ]


def write_jsonl(path: Path, records: Iterable[Any]) -> Path:
    """JSON Lines, compressed as the name says."""
    import zstandard

    data = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records).encode()
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(data))
    return path


def contents(out: Path) -> dict[str, bytes]:
    """What a run must come out with however it went: documents and rejects."""
    names = [*sorted((out / "documents").iterdir()), out / "rejects.jsonl"]
    return {str(path.relative_to(out)): path.read_bytes() for path in names}


def rated_records(out: Path) -> list[dict[str, Any]]:
    """All rated records of a run written as plain JSON Lines."""
    return [
        json.loads(line)
        for path in sorted((out / "documents").glob("*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def rejects(out: Path) -> list[dict[str, Any]]:
    """All rejected records of a run."""
    return [json.loads(line) for line in (out / "rejects.jsonl").read_text("utf-8").splitlines()]
