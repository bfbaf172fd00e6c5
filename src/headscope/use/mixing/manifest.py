"""The manifest of a mixture, which proves its shares, and counting the mixture again."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.results.mixture import Count, MixManifest, WrittenFile
from headscope.runs import file_digest
from headscope.runs.codec import decode
from headscope.runs.plain import dump_json, plain
from headscope.use.mixing.choose import Choice, choose, score_places
from headscope.use.mixing.cut import Cuts
from headscope.use.mixing.index import Index, SameTexts, build_index
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, rated_files

FILE = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest(MixManifest):
    """The manifest of a mixture: made, written and read."""

    @classmethod
    def of(
        cls,
        plan: MixPlan,
        inputs: Sequence[RatedFile],
        index: Index,
        choice: Choice,
        files: Sequence[WrittenFile],
    ) -> Manifest:
        """The manifest of what was chosen of the inputs, written to `files`."""
        languages = choice.languages.values()
        tokens = [mix.mixture.tokens for mix in languages]
        documents = sum(mix.mixture.documents for mix in languages)
        return cls(
            plan=plain(plan),
            inputs=tuple(
                {
                    "file": str(file.path),
                    "sha256": file.digest,
                    "bytes": file.size,
                    "documents": count,
                }
                for file, count in zip(inputs, index.rows, strict=True)
            ),
            documents=documents,
            tokens=None if None in tokens else sum(filter(None, tokens)),
            languages=choice.languages,
            largest_difference=max(abs(mix.share_difference) for mix in languages),
            factor=float(choice.factor),
            duplicates={
                "baseline": choice.duplicates_before,
                "mixture": choice.duplicates,
                "by_copies": documents - int((choice.copies > 0).sum()),
            },
            files=tuple(files),
            digest=_digest(files),
        )

    def write(self, folder: Path) -> None:
        """Write `manifest.json`, whole or not at all."""
        value = {"format": FORMAT, **plain(self)}
        write_bytes(folder / FILE, f"{dump_json(value, indent=2)}\n".encode())

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


def _digest(files: Sequence[WrittenFile]) -> str:
    """The SHA-256 over names and digests of files."""
    lines = (f"{file.sha256}  {file.file}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class Recount:
    """What the files of a mixture hold.

    By language: `counts`, `shares` (by what the plan counts) and `selected`, the number of records
    that are selected, every copy counted.  `duplicates` are records whose text stands in an
    earlier record.
    """

    counts: Mapping[str, Count]
    shares: Mapping[str, float]
    selected: Mapping[str, int]
    duplicates: int


def verify_manifest(folder: str | Path, sources: Sequence[str | Path] | None = None) -> Recount:
    """Count the files of a mixture again and compare with its manifest.

    Digests, documents, tokens and shares of the languages, the copies of what is selected and the
    duplicates are counted from the written files.  With the `sources` the mixture was made of, the
    baseline, the selection and what was left in reserve are worked out again too.

    Raises:
        InputError: naming the first thing that is not as the manifest says.
    """
    folder = Path(folder)
    manifest = Manifest.read(folder)
    if set(manifest.plan) != {field.name for field in fields(MixPlan)}:
        raise InputError(f"{folder / FILE} is damaged; make the mixture again")
    plan = MixPlan(**manifest.plan)
    _check_files(folder, manifest)
    written = [RatedFile(folder / file.file, file.sha256, file.bytes) for file in manifest.files]
    with tempfile.TemporaryDirectory() as name:
        index = build_index(Path(name) / "written", written, plan)
        recount = _recount(index, plan, manifest, Path(name) / "texts")
    wrong = _first_difference(manifest, plan, recount)
    if wrong is None and index.rows != tuple(file.documents for file in manifest.files):
        wrong = "the documents of a file"
    if wrong is None and sources is not None:
        wrong = _first_difference_to_sources(folder, manifest, plan, sources)
    if wrong is not None:
        raise _wrong(folder, wrong)
    return recount


def _check_files(folder: Path, manifest: Manifest) -> None:
    for file in manifest.files:
        if file_digest(folder / file.file) != file.sha256:
            raise InputError(
                f"{folder / file.file} is not the file that {FILE} names; make the mixture again"
            )
    known = {Path(file.file).name for file in manifest.files}
    for path in sorted((folder / DOCUMENTS).iterdir()):
        if path.name not in known:
            raise InputError(f"{path} is no part of the mixture; move it away")
    if manifest.digest != _digest(manifest.files):
        raise _wrong(folder, "the digest of the files")


def _recount(index: Index, plan: MixPlan, manifest: Manifest, work: Path) -> Recount:
    mixes = [manifest.languages.get(code) for code in index.languages]
    cuts = Cuts(tuple(-1 if mix is None or not mix.cut else int(mix.cut, 16) for mix in mixes))
    size = len(index.languages)
    documents, tokens, chosen = np.zeros((3, size), np.int64)
    before = np.zeros(len(index), bool)
    for block in index.blocks():
        documents += np.bincount(block.language, minlength=size)
        tokens += np.bincount(block.language, block.tokens, size).astype(np.int64)
        before[block.rows] = cuts.before(score_places(block, plan))
    texts = SameTexts.of(index, work, plan.seed)
    selected, _ = texts.closed(np.ones(len(index), bool), before)
    for block in index.blocks():
        chosen += np.bincount(block.language[selected[block.rows]], minlength=size)
    counts = {
        code: Count(int(documents[at]), int(tokens[at]) if index.has_tokens else None)
        for at, code in enumerate(index.languages)
    }
    total = sum(count.by(plan.by) for count in counts.values())
    return Recount(
        counts,
        {code: count.by(plan.by) / total if total else 0.0 for code, count in counts.items()},
        {code: int(chosen[at]) for at, code in enumerate(index.languages)},
        texts.duplicates(np.ones(len(index), np.uint8)),
    )


def _first_difference(manifest: Manifest, plan: MixPlan, recount: Recount) -> str | None:
    """What of the manifest is not as it was counted."""
    languages = manifest.languages
    nothing = Count(0, None if manifest.tokens is None else 0)
    before = sum(mix.baseline.by(plan.by) for mix in languages.values())
    for code in sorted({*languages, *recount.counts}):
        mix = languages.get(code)
        if mix is None or mix.mixture != recount.counts.get(code, nothing):
            return f"the documents or tokens of {code!r}"
        share_before = mix.baseline.by(plan.by) / before if before else 0.0
        if (mix.share_after, mix.share_before) != (recount.shares.get(code, 0.0), share_before):
            return f"the share of {code!r}"
        if mix.copies * mix.selected.documents != recount.selected.get(code, 0):
            return f"the selected documents of {code!r}"
    if manifest.duplicates["mixture"] + manifest.duplicates["by_copies"] != recount.duplicates:
        return "the number of duplicates"
    return None


def _first_difference_to_sources(
    folder: Path, manifest: Manifest, plan: MixPlan, sources: Sequence[str | Path]
) -> str | None:
    """What of the manifest is not as it follows from the files that the mixture was made of."""
    files = rated_files(sources)
    if [file.digest for file in files] != [file["sha256"] for file in manifest.inputs]:
        raise InputError(
            f"{folder / FILE} names other files than those given; name the ones that the "
            "mixture was made of, in the same order"
        )
    with tempfile.TemporaryDirectory() as name:
        index = build_index(Path(name) / "corpus", files, plan)
        choice = choose(index, plan, Path(name) / "texts")
    again = Manifest.of(plan, files, index, choice, manifest.files)
    for code, mix in again.languages.items():
        other = manifest.languages.get(code)
        values: dict[str, Any] = vars(other) if other else {}
        for name, value in vars(mix).items():
            if name not in values or plain(value) != plain(values[name]):
                return f"the {name} of {code!r}"
    if plain(again.duplicates) != plain(manifest.duplicates):
        return "the number of duplicates"
    return None


def _wrong(folder: Path, what: str) -> InputError:
    return InputError(f"{folder / FILE}: {what} is not what the files hold; make the mixture again")
