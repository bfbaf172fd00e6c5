"""The manifest of a mixture: what proves its shares, and the proof."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.runs.plain import dump_json, plain
from headscope.use.mixing.choose import Choice, Count, LanguageChoice
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import RatedFile
from headscope.use.mixing.writing import WrittenFile

__all__ = ["FILE", "FORMAT", "LanguageMix", "Manifest"]

FILE = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class LanguageMix:
    """One language of a mixture.

    Attributes:
        corpus, baseline, mixture: what there was, what the baseline has, what was written.
        share_before, share_after: of the language in baseline and mixture, by what the plan counts.
        share_difference: after minus before.
        selected: documents of the baseline with the highest scores, once each; copies of a
            selected text are selected too.
        selected_share: of the baseline, by what the plan counts; `wanted` documents or tokens were
            asked for.
        threshold: the least score before the cut; None where the selection is random.
        next_score: the highest score of the baseline behind the cut; None likewise.
        cut: where the order by score and draw was cut: 32 hexadecimal digits; see
            `headscope.use.mixing.choose.score_places`.
        copies: how often each selected document stands in the mixture.
        kept: what is there of the baseline's other documents.
        reserve: what the rest of the corpus could give: documents below the cut whose text is not
            in the baseline, each text once.  `refilled`: what it gave.
    """

    corpus: Count
    baseline: Count
    mixture: Count
    share_before: float
    share_after: float
    share_difference: float
    selected: Count
    selected_share: float
    wanted: int
    threshold: float | None
    next_score: float | None
    cut: str | None
    copies: int
    kept: Count
    reserve: Count
    refilled: Count


@dataclass(frozen=True)
class Manifest:
    """What a mixture was made of and how, as `manifest.json` says it.

    `inputs` hold name, SHA-256, bytes and records of each input file; `files` of each written one.
    `digest` is the SHA-256 over names and digests of the written files.  `factor` is what all
    budgets were multiplied by: below 1 where *remove* had too little to refill from.
    `duplicates` counts records whose text stands in an earlier record: in the `baseline`, in the
    `mixture` with each record taken once, and those `by_copies` that *enhance* wants.
    """

    plan: Mapping[str, Any]
    inputs: tuple[Mapping[str, Any], ...]
    documents: int
    tokens: int | None
    languages: Mapping[str, LanguageMix]
    largest_difference: float
    factor: float
    duplicates: Mapping[str, int]
    files: tuple[WrittenFile, ...]
    digest: str

    @classmethod
    def of(
        cls,
        plan: MixPlan,
        inputs: list[RatedFile],
        rows: tuple[int, ...],
        choice: Choice,
        order: tuple[str, ...],
        files: list[WrittenFile],
    ) -> Manifest:
        """The manifest of a mixture; `order` are the languages as the cuts are numbered."""
        cuts = dict(zip(order, choice.selection.last, strict=True))
        totals = [
            sum(count.by(plan.by) for count in counts)
            for counts in (
                [one.baseline for one in choice.languages.values()],
                [one.mixture for one in choice.languages.values()],
            )
        ]
        languages = {
            code: _language(plan, one, cuts[code], totals[0], totals[1])
            for code, one in choice.languages.items()
        }
        written = sum(one.mixture.documents for one in languages.values())
        tokens = [one.mixture.tokens for one in languages.values()]
        return cls(
            plain(plan),
            tuple(
                {
                    "file": str(one.path),
                    "sha256": one.digest,
                    "bytes": one.size,
                    "documents": count,
                }
                for one, count in zip(inputs, rows, strict=True)
            ),
            written,
            None if None in tokens else sum(one or 0 for one in tokens),
            languages,
            max(abs(one.share_difference) for one in languages.values()),
            float(choice.factor),
            {
                "baseline": choice.duplicates_before,
                "mixture": choice.duplicates,
                "by_copies": written - int((choice.copies > 0).sum()),
            },
            tuple(files),
            digest_of(files),
        )

    def as_dict(self) -> dict[str, Any]:
        """The manifest as a JSON object."""
        return {"format": FORMAT, **plain(self)}

    def write(self, folder: Path) -> None:
        """Write `manifest.json`, whole or not at all."""
        write_bytes(folder / FILE, f"{dump_json(self.as_dict(), indent=2)}\n".encode())

    @classmethod
    def read(cls, folder: str | Path) -> Manifest:
        """The manifest of a folder; InputError if there is none or it is damaged."""
        path = Path(folder) / FILE
        try:
            value = json.loads(path.read_bytes())
            if value.pop("format") != FORMAT:
                raise InputError(
                    f"{path} has another format than this version of headscope writes; make the "
                    "mixture again"
                )
            value["inputs"] = tuple(value["inputs"])
            value["files"] = tuple(WrittenFile(**one) for one in value["files"])
            value["languages"] = {
                code: _read_language(one) for code, one in value["languages"].items()
            }
            return cls(**value)
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); name the folder of a mixture"
            ) from error
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is damaged; make the mixture again") from error


def _read_language(value: dict[str, Any]) -> LanguageMix:
    counted = {name: Count(**one) for name, one in value.items() if isinstance(one, dict)}
    fields: dict[str, Any] = {**value, **counted}
    return LanguageMix(**fields)


def digest_of(files: list[WrittenFile]) -> str:
    """The SHA-256 over names and digests of files."""
    whole = hashlib.sha256()
    for one in files:
        whole.update(f"{one.sha256}  {one.file}\n".encode())
    return whole.hexdigest()


def _language(plan: MixPlan, one: LanguageChoice, cut: int, before: int, after: int) -> LanguageMix:
    base = one.baseline.by(plan.by)
    share_before = base / before if before else 0.0
    share_after = one.mixture.by(plan.by) / after if after else 0.0
    times = {"baseline": 1, "remove": 0, "enhance": plan.times}
    return LanguageMix(
        one.corpus,
        one.baseline,
        one.mixture,
        share_before,
        share_after,
        share_after - share_before,
        one.selected,
        one.selected.by(plan.by) / base if base else 0.0,
        plan.selected_of(base) if base else 0,
        one.lowest,
        one.highest_left,
        f"{cut:032x}" if cut >= 0 else None,
        times[plan.kind],
        one.kept,
        one.fresh,
        one.refilled,
    )
