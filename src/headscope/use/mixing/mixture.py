"""Making a mixture: from rated files to documents in a new order, their manifest and a summary."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headscope.data.columns import descend
from headscope.errors import InputError
from headscope.progress import Progress
from headscope.results.mixture import MixedCorpus, MixSummary, ShownDocument, ShownLanguage
from headscope.runs import Run, carry_out, encode, file_digest
from headscope.use.corpus.records import valid_unicode
from headscope.use.mixing.choose import Choice, choose
from headscope.use.mixing.index import Index, build_index
from headscope.use.mixing.manifest import FILE, Manifest
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, check_whole, rated_files
from headscope.use.mixing.writing import write_mixture

COMMAND = "use mix"
SUMMARY = "summary.json"
WORK = "work"
#: Bins of a histogram; documents shown with the highest scores, and on either side of the cut;
#: characters of each.
BINS, HIGHEST, AT_CUT, CHARACTERS = 60, 10, 3, 400


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


def _documents_near(index: Index, plan: MixPlan, choice: Choice) -> list[_Near]:
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
    found: dict[int, _Near] = {}
    for language in range(len(index.languages)):
        for place in places:
            for _, row, score in ends.get((language, place), ()):
                found.setdefault(row, _Near(row, language, float(score), place))
    return list(found.values())


def _summary(
    index: Index, plan: MixPlan, choice: Choice, near: list[_Near], lines: dict[int, bytes]
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


_Bins = tuple[tuple[float, ...], tuple[int, ...], tuple[int, ...]]


def _histograms(index: Index, choice: Choice) -> list[_Bins]:
    """Of each language the edges, and the counts of the baseline and of what is selected in it."""
    size = len(index.languages)
    lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
    for block in index.blocks():
        based = choice.baseline[block.rows]
        np.minimum.at(lowest, block.language[based], block.score[based])
        np.maximum.at(highest, block.language[based], block.score[based])
    edges = {
        at: np.linspace(low, high if high > low else low + 1.0, BINS + 1)
        for at, (low, high) in enumerate(zip(lowest, highest, strict=True))
        if low <= high
    }
    counts = np.zeros((size, 2, BINS), np.int64)
    for block in index.blocks():
        based, chosen = choice.baseline[block.rows], choice.selected[block.rows]
        for language in np.unique(block.language[based]).tolist():
            here = based & (block.language == language)
            for at, some in enumerate((here, here & chosen)):
                counts[language, at] += np.histogram(block.score[some], edges[language])[0]
    found: list[_Bins] = [((), (), ())] * size
    for at, bounds in edges.items():
        whole, selected = counts[at].tolist()
        found[at] = tuple(bounds.tolist()), tuple(whole), tuple(selected)
    return found
