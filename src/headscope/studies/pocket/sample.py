"""`headscope pocket sample`: sentence pairs or a corpus of the bundled model's world."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from headscope import options
from headscope.errors import InputError
from headscope.runs import Result, Signature
from headscope.settings import Option, Settings
from headscope.studies.study import OUT_FILE, Study

#: How the files begin that this command writes, and may write again.
HEADER, RECORD = b"source\ttarget\tlinks\n", b'{"id": "'
#: More of them would not fit into memory.
MOST = 10_000_000


@dataclass(frozen=True)
class PocketSample(Settings):
    """Write sentence pairs with exact word links as a TSV; a seed always gives the same."""

    pair: options.Pair = None
    split: Annotated[options.WorldSplit, Option("Find on dev, verify on test.", panel="Data")] = (
        "dev"
    )
    n: Annotated[int, Option("Number of sentence pairs or documents.", min=1, max=MOST)] = 100
    bilingual: Annotated[
        float | None,
        Option(
            "Write a corpus instead (JSON Lines): documents in all languages, of which this share, "
            "such as 0.05, carry their translation.",
            metavar="SHARE",
            min=0.0,
            max=1.0,
        ),
    ] = None
    seed: options.Seed = 0
    listing: Annotated[
        bool, Option("Only name languages, directions, splits and tasks.", flag="--list")
    ] = False


@dataclass(frozen=True, kw_only=True)
class SampledPairs(Result):
    """How many sentence pairs were written, and the digest of the file."""

    pairs: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SampledCorpus(Result):
    """How many documents were written, and how many of them carry their translation."""

    documents: int
    bilingual: int


def sample(settings: PocketSample, out: Path | None) -> Result:
    """Write the sentence pairs or the corpus, or list what there is (in `unknown`)."""
    from headscope.data.pairs import write_pairs
    from headscope.pocket.sample import contents, sample_pairs

    if settings.listing:
        what = contents()
        key = Signature.of("pocket sample --list", what, {})
        return Result(signature=str(key), unknown=what)
    if settings.bilingual is not None:
        if settings.pair is not None:
            raise InputError("a corpus is in all languages; leave out --pair or --bilingual")
        return _corpus(settings, settings.bilingual, out)
    if settings.pair is None:
        raise InputError(
            "no direction is given; add --pair en-de, --bilingual 0.05 for a corpus, or --list to "
            "see all"
        )
    split, n, seed = settings.split, settings.n, settings.seed
    pairs = sample_pairs(settings.pair, split, n, seed)
    config = {"pair": str(pairs.direction), "split": split, "n": n, "seed": seed}
    key = Signature.of("pocket sample", config, {})
    file = out or Path("runs") / f"pocket-sample-{key.hash}.tsv"
    _check_own(file, HEADER)
    write_pairs(file, pairs.pairs)
    return SampledPairs(
        signature=str(key),
        run=str(file),
        pairs=len(pairs.pairs),
        sha256=pairs.digest,
    )


def _corpus(settings: PocketSample, bilingual: float, out: Path | None) -> SampledCorpus:
    from headscope.heads.store import write_bytes
    from headscope.pocket.mixture import corpus_documents

    split, n, seed = settings.split, settings.n, settings.seed
    config = {"split": split, "n": n, "seed": seed, "bilingual": bilingual}
    key = Signature.of("pocket sample --bilingual", config, {})
    file = out or Path("runs") / f"pocket-corpus-{key.hash}.jsonl"
    _check_own(file, RECORD)
    drawn = list(islice(corpus_documents(split, seed, bilingual), n))
    lines = [json.dumps(document.record, ensure_ascii=False) for document in drawn]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, "".join(f"{line}\n" for line in lines).encode())
    return SampledCorpus(
        signature=str(key),
        run=str(file),
        documents=len(drawn),
        bilingual=sum(bool(document.to) for document in drawn),
    )


def _check_own(file: Path, beginning: bytes) -> None:
    """An earlier sample is made again in no time; anything else may be somebody's work."""
    if file.is_file():
        with file.open("rb") as opened:
            if opened.read(len(beginning)) != beginning:
                raise InputError(f"{file} exists and holds no sample; name another file with --out")


def _text(result: Result) -> str:
    match result:
        case SampledPairs():
            return f"{result.run}: {result.pairs} sentence pairs"
        case SampledCorpus():
            return (
                f"{result.run}: {result.documents} documents, {result.bilingual} of them with a "
                "translation"
            )
    return "\n".join(f"{name}: {', '.join(held)}" for name, held in result.unknown.items())


command = Study(
    PocketSample, sample, _text, out=OUT_FILE, usage="--pair en-de --n 100 --out en-de.tsv"
)
