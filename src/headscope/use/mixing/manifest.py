"""The manifest of a mixture: what proves its shares, and the proof."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.results.mixture import LanguageMix, MixManifest, WrittenFile
from headscope.runs.codec import decode
from headscope.runs.plain import dump_json, plain
from headscope.use.mixing.choose import Choice, LanguageChoice
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import RatedFile

FILE = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest(MixManifest):
    """The manifest of a mixture: made, written and read."""

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
            manifest: Manifest = decode(cls, value, FILE)
            return manifest
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); name the folder of a mixture"
            ) from error
        except InputError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is damaged; make the mixture again") from error


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
