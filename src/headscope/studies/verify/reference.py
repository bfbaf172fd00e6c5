"""The examples that what replaces removed heads is made from.

They neither find nor test: they are set aside from the data, or come from elsewhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from headscope.data.documents import LONGEST, DocumentSource, read_documents
from headscope.data.split import draw_apart, reference_size, sentence_digest
from headscope.errors import InputError
from headscope.evidence.runner import ZERO, Replacements, prompts_of
from headscope.results.common import ReferenceText
from headscope.studies.leakage import check_reference
from headscope.studies.models import POCKET, ModelChoice
from headscope.verify.removal_translations.conditions import Translating

if TYPE_CHECKING:
    from headscope.data.pairs import PairFile
    from headscope.lm import LanguageModel
    from headscope.lm.prompting import Answered
    from headscope.lm.replacement import Replacement

#: Examples of each direction or language that are set aside, and documents read of a file of them.
REFERENCES, DOCUMENTS = 50, 200


class Ablating(Protocol):
    """Settings that remove heads by one kind of ablation or several."""

    @property
    def ablate(self) -> str | tuple[str, ...]: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Reference:
    """Texts, and in words where they come from; no texts where removed heads give zeros.

    `answers` are the characters at which the answer of each text begins; None: the texts are
    documents. `special`: whether the tokenizer adds its special tokens to answered texts. `rows`
    are texts with answers as tokens already. `everywhere`: heads give their mean over answers at
    every token, so at the prompt's last one, too, which decides the first of the answer.
    """

    source: str = ""
    texts: tuple[str, ...] = ()
    answers: tuple[int, ...] | None = None
    special: bool = True
    rows: tuple[Answered, ...] = ()
    everywhere: bool = False

    @property
    def digest(self) -> str | None:
        """SHA-256 of the texts, and of where their answers begin; None without texts."""
        if not self.texts:
            return None
        parts = [*self.texts, *map(str, self.answers or ())]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def given(self) -> dict[str, str]:
        """The digest, for settings that leave out what plays no part."""
        return {"reference text": self.digest} if self.digest else {}

    def replacements(self, lm: LanguageModel, settings: Ablating) -> Replacements:
        """What stands in the place of removed heads, by the kind of ablation."""
        made: dict[str, Replacement | None] = {
            kind: self.replacement(lm, kind, settings.batch_tokens, settings.seed)
            for kind in kinds_of(settings.ablate)
            if kind != "zero"
        }
        return {**ZERO, **made}

    def replacement(
        self, lm: LanguageModel, kind: str, batch_tokens: int, seed: int = 0
    ) -> Replacement | None:
        """What stands in the place of removed heads by one kind of ablation; None: zero.

        Raises `InputError` if an answered text is longer than the model's context.
        """
        from headscope.lm import replacement_of
        from headscope.lm.prompting import encode_answer
        from headscope.lm.replacement import Mean, head_means

        if self.answers is None and not self.rows:
            rows = [lm.encode(text, most=LONGEST, closed=True) for text in self.texts]
            return replacement_of(kind, lm, rows, None, batch_tokens, seed)
        answered = self.rows or [
            encode_answer(lm, text, start, self.special)
            for text, start in zip(self.texts, self.answers or (), strict=True)
        ]
        most = max((len(row.ids) for row in answered), default=0)
        if most > lm.context_length:
            raise InputError(
                f"a reference example has {most} tokens, more than the model's context "
                f"of {lm.context_length}; give shorter examples, or fewer shots"
            )
        starts, ids = [row.start for row in answered], [row.ids for row in answered]
        if self.everywhere:
            answer = head_means(lm, ids, starts, batch_tokens)[-1]
            return Mean(np.stack([answer, answer, answer]))
        return replacement_of(kind, lm, ids, starts, batch_tokens, seed)

    @property
    def facts(self) -> ReferenceText | None:
        """What a result says of it."""
        if not self.texts:
            return None
        return ReferenceText(self.source, len(self.texts), self.digest, self.everywhere)


def kinds_of(ablate: str | tuple[str, ...]) -> tuple[str, ...]:
    """The kinds of ablation that settings name, one or several."""
    return (ablate,) if isinstance(ablate, str) else ablate


def reference_number(*ablate: str) -> int:
    """How many examples are to be set aside for these kinds of ablation."""
    return REFERENCES if {*ablate} - {"zero"} else 0


class _HasText(Protocol):
    @property
    def text(self) -> str: ...


T = TypeVar("T", bound=_HasText)


def drawn_apart(items: Sequence[T], seed: int, place: str) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Items to test on, and those set aside by a hash of their text: at most a quarter.

    Raises `InputError`, naming `place`, if there are fewer than four different texts.
    """
    by_text = {sentence_digest(item.text): item for item in reversed(items)}
    drawn = draw_apart(
        by_text, reference_size(len(by_text), REFERENCES, place), f"reference {seed}"
    )
    texts = {item.text for item in drawn}
    return tuple(item for item in items if item.text not in texts), drawn


class MeanAblated(Ablating, Protocol):
    """Settings of a command that removes heads which data chose."""

    @property
    def model(self) -> ModelChoice: ...
    @property
    def heads(self) -> str: ...
    @property
    def allow_overlap(self) -> bool: ...


class TranslatingOrReading(MeanAblated, Translating, Protocol):
    """The same of a command that translates; `reference_texts` names a file of documents."""

    @property
    def reference_texts(self) -> str | None: ...


def translations(
    lm: LanguageModel, directions: Mapping[str, PairFile], settings: Translating
) -> Reference:
    """Prompts and translations of the pairs that each direction has set aside, if any."""
    if not any(file.reference for file in directions.values()):
        return Reference()
    full = []
    for file in directions.values():
        apart = dataclasses.replace(file, pairs=file.reference)
        prompts = prompts_of(lm, apart, settings.template, settings.chat)
        full += [
            prompt.with_target(pair.target)
            for prompt, pair in zip(prompts, file.reference, strict=True)
        ]
    pocket = all(file.path.startswith("pocket:") for file in directions.values())
    return Reference(
        "prompts and translations of the pocket model's train split"
        if pocket
        else "prompts and translations set aside from the data",
        tuple(row.text for row in full),
        tuple(row.target_start for row in full),
        all(row.special for row in full),
    )


def from_tasks(rows: Sequence[Answered]) -> Reference:
    """Prompts and answers of examples that tasks have set aside, if any."""
    if not rows:
        return Reference()
    texts = tuple(f"{row.start} {' '.join(map(str, row.ids))}" for row in rows)
    return Reference("prompts and answers set aside from the tasks", texts, rows=tuple(rows))


def documents(
    file: str | None, model: str, heads: str, allow_overlap: bool = False, seed: int = 0
) -> Reference:
    """The first documents of a file; without one, for the pocket model, those of its train split.

    For commands whose data leaves nothing to be set aside. Raises `InputError` if there is no file,
    or the heads were found on its documents, unless that is allowed.
    """
    if file is None and model != POCKET:
        raise InputError(
            f"what replaces heads of {model} is made from reference texts; add --reference FILE "
            "with documents that neither find nor test, or use --ablate zero"
        )
    if file is None:
        from headscope.pocket.sample import sample_documents
        from headscope.pocket.world.languages import CODES

        files = [sample_documents(code, "train", REFERENCES, seed) for code in CODES]
        source = "documents of the pocket model's train split"
    else:
        files = list(read_documents(DocumentSource(file, limit=DOCUMENTS)))
        source = f"documents of {Path(file).name}"
    texts = tuple(document.text for some in files for document in some.documents)
    check_reference(heads, texts, allow_overlap)
    return Reference(source, texts)


def documents_for(settings: MeanAblated, file: str | None) -> Reference:
    """`documents` of a file for what settings remove; none where that gives zeros."""
    if not reference_number(*kinds_of(settings.ablate)):
        return Reference()
    model = settings.model.model
    return documents(file, model, settings.heads, settings.allow_overlap, settings.seed)


def translations_or_documents(
    lm: LanguageModel, directions: Mapping[str, PairFile], settings: TranslatingOrReading
) -> Reference:
    """The pairs set aside where sentence pairs are used and no file is named, else documents."""
    if directions and settings.reference_texts is None:
        return translations(lm, directions, settings)
    return documents_for(settings, settings.reference_texts)
