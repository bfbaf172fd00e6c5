"""`headscope pocket sample`: sentence pairs of the bundled model's world."""

from __future__ import annotations

import time
from typing import Annotated

from typer import Option

from headscope.cli import options
from headscope.cli.output import emit
from headscope.errors import InputError

HEADER = b"source\ttarget\tlinks\n"


def sample(
    pair: options.Pair = None,
    split: Annotated[
        options.WorldSplit, Option("--split", help="Find on dev, verify on test.")
    ] = "dev",
    n: Annotated[int, Option("--n", min=1, help="Number of sentence pairs.")] = 100,
    seed: options.Seed = 0,
    out: options.OutFile = None,
    listing: Annotated[
        bool, Option("--list", help="Only name languages, directions, splits and tasks.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write sentence pairs with exact word links as a TSV; the same for the same seed."""
    started = time.monotonic()
    from pathlib import Path

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
    if pair is None:
        raise InputError("no direction is given; add --pair en-de, or --list to see all")
    pairs = sample_pairs(pair, split, n, seed)
    config = {"pair": str(pairs.direction), "split": split, "n": n, "seed": seed}
    key = Signature.of("pocket sample", config, {})
    file = out or Path("runs") / f"pocket-sample-{key.hash}.tsv"
    # An earlier sample is made again in no time; anything else may be somebody's work.
    if file.is_file() and not file.read_bytes().startswith(HEADER):
        raise InputError(f"{file} exists and holds no sample; name another file with --out")
    write_pairs(file, pairs.pairs)
    result = {
        "signature": str(key),
        "run": file,
        "seconds": time.monotonic() - started,
        "pairs": len(pairs.pairs),
        "sha256": pairs.digest,
    }
    emit(result, as_json, f"{file}: {len(pairs.pairs)} sentence pairs")
