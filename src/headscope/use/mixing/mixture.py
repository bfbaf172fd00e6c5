"""Making a mixture: documents in a new order, a manifest that proves its shares, a summary."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from headscope.data.tables import descend
from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.progress import Progress
from headscope.results.mix import (
    Count,
    MixedCorpus,
    MixManifest,
    MixSummary,
    ShownDocument,
    ShownLanguage,
    WrittenFile,
)
from headscope.runs import Run, carry_out, encode, file_digest
from headscope.runs.codec import decode
from headscope.runs.plain import dump_json, plain
from headscope.scratch import scratch
from headscope.use.corpus.records import valid_unicode
from headscope.use.mixing.choose import Cuts, DocumentChoice, choose, score_places
from headscope.use.mixing.index import Index, SameTexts, build_index
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, check_whole, rated_files
from headscope.use.mixing.writing import write_mixture

COMMAND = "use mix"
SUMMARY = "summary.json"
WORK = "work"
#: Bins of a histogram; documents shown with the highest scores, and on either side of the cut;
#: characters of each.
BINS, HIGHEST, AT_CUT, CHARACTERS = 60, 10, 3, 400


_Bins = tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]
FILE = "manifest.json"
FORMAT = 1


def mix(
    sources: Sequence[str | Path],
    out: str | Path,
    plan: MixPlan,
    progress: Progress | None = None,
) -> Manifest:
    """Write a mixture of rated documents to the run folder `out`, and return its manifest.

    `sources` are runs of `headscope use rate`, folders, and JSON Lines (plain, gzip, zstd …) or
    Parquet files whose records have `text`, `score` (higher is selected), `tokens`, and, unless
    the plan says otherwise, `language`; an `id` tells records of one text apart.  `out` gets
    `documents/*.jsonl`, the records as they were read in a drawn order, and `manifest.json`.

    What is drawn depends on the seed and the records, not on how they are spread over files; only
    records that agree in text, language and id are told apart by the order of the files.  A call
    that was killed is continued by the same call, one that has ended returns its manifest.
    While it works, `out` holds up to twice the mixture and about 70 bytes a record of the corpus.

    Raises:
        InputError: naming file and line of a record that cannot be used, or if the plan cannot be
            kept, before anything is written; if `out` holds something else, left untouched.
    """
    mix_in_run(sources, out, plan, progress)
    return Manifest.read(out)


def mix_in_run(
    sources: Sequence[str | Path],
    out: str | Path | None,
    plan: MixPlan,
    progress: Progress | None = None,
) -> MixedCorpus:
    """As `mix`; returns the result of the run.  `out` None: a folder below `runs`."""
    began = time.monotonic()
    existed = out is not None and Path(out).exists()
    _check_apart(sources, out)
    files = rated_files(sources)
    whole = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()

    def compute(run: Run) -> MixedCorpus:
        try:
            manifest = _make_mixture(run, sources, files, plan, progress)
        except InputError:
            _withdraw(run, existed)
            raise
        except OSError as error:  # a full disk tells no name
            if error.errno is None or error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, str(run.path)) from error
        return MixedCorpus(
            kind=plan.kind,
            documents=manifest.documents,
            tokens=manifest.tokens,
            languages=manifest.languages,
            largest_difference=manifest.largest_difference,
            factor=manifest.factor,
            duplicates=manifest.duplicates,
            manifest=FILE,
            digest=manifest.digest,
        )

    about = {"data": [str(file.path) for file in files], "seed": plan.seed}
    inputs = {"documents": whole}
    return carry_out(
        COMMAND, out, {"settings": plan}, inputs, compute, began, about, kind=MixedCorpus
    )


def _make_mixture(
    run: Run,
    sources: Sequence[str | Path],
    files: Sequence[RatedFile],
    plan: MixPlan,
    progress: Progress | None = None,
) -> Manifest:
    """Make the mixture of the sources' files in an open run folder: all but the run's result."""
    if (run.path / FILE).exists():  # killed when only the result was missing
        manifest = Manifest.read(run.path)
        if all(file_digest(run.path / file.file) == file.sha256 for file in manifest.files):
            return manifest
    work = run.path / WORK
    index = build_index(work / "index", files, plan, progress)
    check_whole(sources, files, index.rows)
    choice = choose(index, plan, work / "texts")
    near = _documents_near(index, plan, choice)
    rows = [document.row for document in near]
    written, lines = write_mixture(
        run.path, work / "drafts", files, index, choice.copies, plan, rows, progress
    )
    run.write_json(SUMMARY, encode(_summary(index, plan, choice, near, lines)))
    manifest = Manifest.of(plan, files, index, choice, written)
    manifest.write(run.path)
    shutil.rmtree(work)
    return manifest


def _check_apart(sources: Sequence[str | Path], out: str | Path | None) -> None:
    """InputError if the mixture would be written among the files it is made of."""
    for source in map(Path, sources):
        inside = out is not None and Path(out).resolve().is_relative_to(source.resolve())
        if inside and not (source / "run.json").exists():
            raise InputError(
                f"{out} is inside {source}, whose files the mixture is made of; name a folder "
                "beside it"
            )


def _withdraw(run: Run, existed: bool) -> None:
    """Leave the folder as it was found: what these files and this plan ask for cannot be made."""
    for name in (WORK, DOCUMENTS):
        shutil.rmtree(run.path / name, ignore_errors=True)
    for name in ("run.json", "provenance.json", ".lock", SUMMARY, FILE):
        (run.path / name).unlink(missing_ok=True)
    if not existed and not any(run.path.iterdir()):
        run.path.rmdir()


@dataclass(frozen=True)
class _Near:
    """A document that is shown: its row, language and score, and why it is."""

    row: int
    language: int
    score: float
    place: str


def _documents_near(index: Index, plan: MixPlan, choice: DocumentChoice) -> list[_Near]:
    """Of each language's baseline the highest, and those just before and behind the cut."""
    places = {"highest": (1.0, HIGHEST)}
    if plan.select == "top":
        places |= {"last selected": (-1.0, AT_CUT), "first not selected": (1.0, AT_CUT)}
    ends: dict[tuple[int, str], list[tuple[float, int, float]]] = {}
    for block in index.blocks():
        before = choice.before[block.rows]
        for language in np.unique(block.language).tolist():
            here = choice.baseline[block.rows] & (block.language == language)
            for place, (sign, most) in places.items():
                some = np.flatnonzero(here & (~before if place == "first not selected" else before))
                order = -sign * block.score[some]
                best = some[np.argsort(order, kind="stable")[:most]].tolist()
                new = [(-sign * block.score[at], block.start + at, block.score[at]) for at in best]
                known = ends.get((language, place), [])
                ends[language, place] = sorted([*known, *new])[:most]  # of equal scores the first
    near: dict[int, _Near] = {}
    for language in range(len(index.languages)):
        for place in places:
            for _, row, score in ends.get((language, place), ()):
                near.setdefault(row, _Near(row, language, float(score), place))
    return list(near.values())


def _summary(
    index: Index, plan: MixPlan, choice: DocumentChoice, near: list[_Near], lines: dict[int, bytes]
) -> MixSummary:
    """Scores of each language by `edges` (b + 1): counts of `baseline` and `selected` (b).

    The counts are those of the baseline's records between two edges, selected ones included.
    """
    histograms = _histograms(index, choice)
    languages: dict[str, ShownLanguage] = {}
    for code, number in sorted((code, at) for at, code in enumerate(index.languages)):
        shown = []
        own = (document for document in near if document.language == number)
        for document in sorted(own, key=lambda document: -document.score):
            record = json.loads(lines[document.row])
            text = str(descend(record, plan.text_column))
            shown.append(
                ShownDocument(
                    id=valid_unicode(str(record.get("id"))),
                    score=document.score,
                    place=document.place,
                    text=valid_unicode(text[:CHARACTERS]),
                    cut=len(text) > CHARACTERS,
                    tokens=record.get("tokens"),
                )
            )
        languages[code] = ShownLanguage(*histograms[number], tuple(shown))
    return MixSummary(languages)


def _histograms(index: Index, choice: DocumentChoice) -> list[_Bins]:
    """Of each language the edges, and the counts of the baseline and of what is selected in it."""
    size = len(index.languages)
    edges = {
        at: np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        for at, (low, high) in enumerate(index.extremes(choice.baseline, choice.baseline))
        if low is not None and high is not None
    }
    counts = np.zeros((size, 2, BINS), np.int64)
    for block in index.blocks():
        based, chosen = choice.baseline[block.rows], choice.selected[block.rows]
        for language in np.unique(block.language[based]).tolist():
            here = based & (block.language == language)
            for at, some in enumerate((here, here & chosen)):
                counts[language, at] += np.histogram(block.score[some], edges[language])[0]
    bins: list[_Bins] = [((), (), ())] * size
    for at, bounds in edges.items():
        whole, selected = counts[at].tolist()
        bins[at] = tuple(bounds.tolist()), tuple(whole), tuple(selected)
    return bins


@dataclass(frozen=True)
class Manifest(MixManifest):
    """The manifest of a mixture: made, written and read."""

    @classmethod
    def of(
        cls,
        plan: MixPlan,
        inputs: Sequence[RatedFile],
        index: Index,
        choice: DocumentChoice,
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
    with scratch("mixture") as aside:
        index = build_index(aside / "written", written, plan)
        recount = _recount(index, plan, manifest, aside / "texts")
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
    with scratch("mixture") as aside:
        index = build_index(aside / "corpus", files, plan)
        choice = choose(index, plan, aside / "texts")
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
