"""`headscope pocket sample`: sentence pairs or a corpus of the bundled model's world."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.output import emit
from headscope.errors import InputError

#: How the files begin that this command writes, and may write again.
HEADER, RECORD = b"source\ttarget\tlinks\n", b'{"id": "'
#: More of them would not fit into memory.
MOST = 10_000_000


def sample(
    pair: options.Pair = None,
    split: Annotated[
        options.WorldSplit, Option("--split", help="Find on dev, verify on test.")
    ] = "dev",
    n: Annotated[
        int, Option("--n", min=1, max=MOST, help="Number of sentence pairs or documents.")
    ] = 100,
    bilingual: Annotated[
        float | None,
        Option(
            "--bilingual",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Write a corpus instead (JSON Lines): documents in all languages, of which this "
            "share, such as 0.05, carry their translation.",
        ),
    ] = None,
    seed: options.Seed = 0,
    out: options.OutFile = None,
    listing: Annotated[
        bool, Option("--list", help="Only name languages, directions, splits and tasks.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write sentence pairs with exact word links as a TSV; the same for the same seed."""
    started = time.monotonic()
    from headscope.data.pairs import write_pairs
    from headscope.pocket.sample import contents, sample_pairs
    from headscope.runs import Signature

    if listing:
        what = contents()
        key = Signature.of("pocket sample --list", what, {})
        told = {"signature": str(key), "run": None, "seconds": time.monotonic() - started}
        lines = [f"{name}: {', '.join(values)}" for name, values in what.items()]
        emit({**told, **what}, as_json, "\n".join(lines))
        return
    if bilingual is not None:
        if pair is not None:
            raise InputError("a corpus is in all languages; leave out --pair or --bilingual")
        wanted: dict[str, Any] = {"split": split, "n": n, "seed": seed, "bilingual": bilingual}
        emit(*_corpus(wanted, out, started, as_json))
        return
    if pair is None:
        raise InputError(
            "no direction is given; add --pair en-de, --bilingual 0.05 for a corpus, or --list to "
            "see all"
        )
    pairs = sample_pairs(pair, split, n, seed)
    config = {"pair": str(pairs.direction), "split": split, "n": n, "seed": seed}
    key = Signature.of("pocket sample", config, {})
    file = out or Path("runs") / f"pocket-sample-{key.hash}.tsv"
    _check_own(file, HEADER)
    write_pairs(file, pairs.pairs)
    result = {
        "signature": str(key),
        "run": file,
        "seconds": time.monotonic() - started,
        "pairs": len(pairs.pairs),
        "sha256": pairs.digest,
    }
    emit(result, as_json, f"{file}: {len(pairs.pairs)} sentence pairs")


def _check_own(file: Path, beginning: bytes) -> None:
    """An earlier sample is made again in no time; anything else may be somebody's work."""
    if file.is_file():
        with file.open("rb") as opened:
            if opened.read(len(beginning)) != beginning:
                raise InputError(f"{file} exists and holds no sample; name another file with --out")


def _corpus(
    config: dict[str, Any], out: Path | None, started: float, as_json: bool
) -> tuple[dict[str, Any], bool, str]:
    """Write a corpus; what `emit` takes."""
    import json
    from itertools import islice

    from headscope.heads.store import write_bytes
    from headscope.pocket.corpus import corpus_documents
    from headscope.runs import Signature

    key = Signature.of("pocket sample --bilingual", config, {})
    file = out or Path("runs") / f"pocket-corpus-{key.hash}.jsonl"
    _check_own(file, RECORD)
    stream = corpus_documents(config["split"], config["seed"], config["bilingual"])
    drawn = list(islice(stream, config["n"]))
    lines = [json.dumps(one.record, ensure_ascii=False) for one in drawn]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, "".join(f"{line}\n" for line in lines).encode())
    result = {
        "signature": str(key),
        "run": file,
        "seconds": time.monotonic() - started,
        "documents": len(drawn),
        "bilingual": sum(bool(one.to) for one in drawn),
    }
    words = f"{file}: {len(drawn)} documents, {result['bilingual']} of them with a translation"
    return result, as_json, words


command = sample
