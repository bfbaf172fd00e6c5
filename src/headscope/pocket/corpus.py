"""A corpus of plain documents in the pocket model's world, some of which carry their translation.

Like a crawl of the web: most documents of a language are in it alone, and a known share says the
same again in another language, on the next line. Nothing but the text tells which, and documents
of both kinds have as many sentences, so length does not give them away.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headscope.pocket.mixture import bilingual_text, say, topic_sentences
from headscope.pocket.world.languages import CODES
from headscope.pocket.world.sampling import Split

#: Share of documents that carry their translation, where none is given.
BILINGUAL_SHARE = 0.05
#: Fewest and most sentences of a text that is said twice; a text said once has twice as many.
SENTENCES = (1, 4)


@dataclass(frozen=True)
class CorpusDocument:
    """One document; `to` is the language of the translation it carries, empty if it has none."""

    id: str
    text: str
    language: str
    to: str

    @property
    def kind(self) -> Literal["bilingual", "monolingual"]:
        """What the document really is, which a rater has to find out."""
        return "bilingual" if self.to else "monolingual"

    @property
    def record(self) -> dict[str, str]:
        """The document as one flat record of a corpus file, its label included."""
        return {
            "id": self.id,
            "text": self.text,
            "language": self.language,
            "kind": self.kind,
            "to": self.to,
        }


def corpus_documents(
    split: Split,
    seed: int,
    share: float = BILINGUAL_SHARE,
    languages: tuple[str, ...] = CODES,
    into: tuple[str, ...] = CODES,
    sentences: tuple[int, int] = SENTENCES,
) -> Iterator[CorpusDocument]:
    """An endless corpus, the same for the same seed; each document's language is drawn evenly.

    No two documents have the same text. A translation goes into one of the languages `into` other
    than the document's own; `sentences` are the fewest and most that are said twice.
    """
    rng = random.Random(f"corpus {split} {seed} {share} {languages} {into} {sentences}")
    seen: set[bytes] = set()
    while True:
        code = rng.choice(languages)
        to = rng.choice([one for one in into if one != code]) if rng.random() < share else ""
        count = rng.randint(*sentences)
        if to:
            text = bilingual_text(topic_sentences(rng, split, count), code, to)
        else:
            text = " ".join(say(one, code) for one in topic_sentences(rng, split, 2 * count))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            yield CorpusDocument(f"{split}-{seed}-{len(seen):06d}", text, code, to)
