"""Counting a mixture again from its files, without the corpus or with it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headscope.errors import InputError
from headscope.results.mixture import Count, LanguageMix
from headscope.runs import file_digest
from headscope.runs.plain import plain
from headscope.use.mixing.choose import choose, score_places
from headscope.use.mixing.cut import Cuts
from headscope.use.mixing.index import Index, build_index
from headscope.use.mixing.manifest import FILE, Manifest, digest_of
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, fields_of, rated_files
from headscope.use.mixing.texts import IN_BASELINE, SELECTED, deal_texts


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
    plan = _plan(folder, manifest)
    _check_files(folder, manifest)
    written = [RatedFile(folder / one.file, one.sha256, one.bytes) for one in manifest.files]
    with tempfile.TemporaryDirectory() as name:
        index = build_index(Path(name) / "written", written, fields_of(plan))
        recount = _recount(index, plan, manifest, Path(name) / "texts")
    _compare(folder, manifest, plan, recount)
    if index.rows != tuple(one.documents for one in manifest.files):
        raise _wrong(folder, "the documents of a file")
    if sources is not None:
        _compare_sources(folder, manifest, plan, sources)
    return recount


def _plan(folder: Path, manifest: Manifest) -> MixPlan:
    names = {field.name for field in fields(MixPlan)}
    if set(manifest.plan) != names:
        raise InputError(f"{folder / FILE} is damaged; make the mixture again")
    return MixPlan(**manifest.plan)


def _check_files(folder: Path, manifest: Manifest) -> None:
    for one in manifest.files:
        if file_digest(folder / one.file) != one.sha256:
            raise InputError(
                f"{folder / one.file} is not the file that {FILE} tells of; make the mixture again"
            )
    known = {Path(one.file).name for one in manifest.files}
    for path in sorted((folder / DOCUMENTS).iterdir()):
        if path.name not in known:
            raise InputError(f"{path} is no part of the mixture; move it away")
    if manifest.digest != digest_of(list(manifest.files)):
        raise _wrong(folder, "the digest of the files")


def _recount(index: Index, plan: MixPlan, manifest: Manifest, work: Path) -> Recount:
    found = [manifest.languages.get(code) for code in index.languages]
    cuts = Cuts(tuple(-1 if one is None or not one.cut else int(one.cut, 16) for one in found))
    size = len(index.languages)
    documents, tokens = np.zeros(size, np.int64), np.zeros(size, np.int64)
    marks = np.full(len(index), IN_BASELINE)
    for block in index.blocks():
        documents += np.bincount(block.language, minlength=size)
        tokens += np.bincount(block.language, block.tokens, size).astype(np.int64)
        marks[block.rows] |= SELECTED * cuts.before(score_places(block, plan))
    texts = deal_texts(index, work, plan.seed)
    texts.close_over(marks)
    selected = np.zeros(size, np.int64)
    for block in index.blocks():
        some = marks[block.rows] & SELECTED > 0
        selected += np.bincount(block.language[some], minlength=size)
    counts = {
        code: Count(int(documents[at]), int(tokens[at]) if index.has_tokens else None)
        for at, code in enumerate(index.languages)
    }
    total = sum(one.by(plan.by) for one in counts.values())
    return Recount(
        counts,
        {code: one.by(plan.by) / total if total else 0.0 for code, one in counts.items()},
        {code: int(selected[at]) for at, code in enumerate(index.languages)},
        texts.duplicates(np.ones(len(index), np.uint8)),
    )


def _compare(folder: Path, manifest: Manifest, plan: MixPlan, recount: Recount) -> None:
    told = manifest.languages
    nothing = Count(0, None if manifest.tokens is None else 0)
    before = sum(one.baseline.by(plan.by) for one in told.values())
    for code in sorted({*told, *recount.counts}):
        one = told.get(code)
        if one is None or one.mixture != recount.counts.get(code, nothing):
            raise _wrong(folder, f"the documents or tokens of {code!r}")
        if one.share_after != recount.shares.get(code, 0.0) or (
            one.share_before != (one.baseline.by(plan.by) / before if before else 0.0)
        ):
            raise _wrong(folder, f"the share of {code!r}")
        if one.copies * one.selected.documents != recount.selected.get(code, 0):
            raise _wrong(folder, f"the selected documents of {code!r}")
    duplicates = manifest.duplicates
    if duplicates["mixture"] + duplicates["by_copies"] != recount.duplicates:
        raise _wrong(folder, "the number of duplicates")


def _compare_sources(
    folder: Path, manifest: Manifest, plan: MixPlan, sources: Sequence[str | Path]
) -> None:
    files = rated_files(sources)
    if [one.digest for one in files] != [one["sha256"] for one in manifest.inputs]:
        raise InputError(
            f"{folder / FILE} tells of other files than those given; name the ones that the "
            "mixture was made of, in the same order"
        )
    with tempfile.TemporaryDirectory() as name:
        index = build_index(Path(name) / "corpus", files, fields_of(plan))
        choice = choose(index, plan, Path(name) / "texts")
    again = Manifest.of(plan, files, index.rows, choice, index.languages, list(manifest.files))
    for code, one in again.languages.items():
        if plain(one) != plain(manifest.languages.get(code)):
            what = _first_difference(one, manifest.languages.get(code))
            raise _wrong(folder, f"the {what} of {code!r}")
    if plain(again.duplicates) != plain(manifest.duplicates):
        raise _wrong(folder, "the number of duplicates")


def _first_difference(one: LanguageMix, other: LanguageMix | None) -> str:
    values: dict[str, Any] = vars(other) if other else {}
    return next(name for name, value in vars(one).items() if value != values.get(name))


def _wrong(folder: Path, what: str) -> InputError:
    return InputError(f"{folder / FILE}: {what} is not what the files hold; make the mixture again")
