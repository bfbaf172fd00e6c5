"""Making a mixture: from rated files to documents in a new order and their manifest."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from headscope.errors import InputError
from headscope.results.mixture import MixedCorpus
from headscope.runs import Run, carry_out, encode, file_digest
from headscope.use.mixing.choose import choose
from headscope.use.mixing.index import Progress, build_index
from headscope.use.mixing.manifest import FILE, Manifest
from headscope.use.mixing.plan import MixPlan
from headscope.use.mixing.reading import DOCUMENTS, RatedFile, check_whole, fields_of, rated_files
from headscope.use.mixing.summary import documents_near, summary
from headscope.use.mixing.writing import write_mixture

COMMAND = "use mix"
SUMMARY = "summary.json"
WORK = "work"


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
            manifest = make_mixture(run, sources, files, plan, progress)
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


def make_mixture(
    run: Run,
    sources: Sequence[str | Path],
    files: Sequence[RatedFile],
    plan: MixPlan,
    progress: Progress | None = None,
) -> Manifest:
    """Make the mixture of the sources' files in an open run folder: all but the run's result."""
    if (run.path / FILE).exists():  # killed when only the result was missing
        manifest = Manifest.read(run.path)
        if all(file_digest(run.path / one.file) == one.sha256 for one in manifest.files):
            return manifest
    work = run.path / WORK
    index = build_index(work / "index", files, fields_of(plan), progress)
    check_whole(sources, files, index.rows)
    choice = choose(index, plan, work / "texts")
    near = documents_near(index, plan, choice)
    shown = [one.row for one in near]
    written, lines = write_mixture(
        run.path, work / "drafts", files, index, choice.copies, plan, shown, progress
    )
    run.write_json(SUMMARY, encode(summary(index, plan, choice, near, lines)))
    manifest = Manifest.of(plan, list(files), index.rows, choice, index.languages, written)
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
