"""The settings of the experiment, its corpus, the scores, and the mixtures that are trained on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from itertools import islice, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headscope.errors import InputError
from headscope.heads.store import writing
from headscope.papers.trater.evaluation import Evaluation, distinct
from headscope.settings import UNSIGNED, MadeBy, Option, Settings
from headscope.studies.inputs import PairsChoice, Progress

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.use.mixing import Manifest

Kind = Literal["baseline", "remove", "enhance", "remove random", "enhance random"]
TRUE = "true"
CORPUS = "corpus.jsonl"
#: Fewest and most sentences of a text that is said twice: few, so that what they say is found soon.
SENTENCES = (1, 2)
#: More models on each mixture are a slip of the pen, and their list may fill the memory.
MOST_SEEDS = 1000


def _seeds(
    seeds: Annotated[int, Option("Models trained on each mixture.", min=1)] = 3,
) -> tuple[int, ...]:
    if seeds > MOST_SEEDS:
        raise InputError(f"--seeds is {seeds}; give at most {MOST_SEEDS}")
    return tuple(range(seeds))


@dataclass(frozen=True)
class TraterExperiment(Settings):
    """Train the bundled model from nothing on mixtures of a corpus that it rated.

    Token Alignment Heads, Table 1, at the size of a pocket: the corpus as it is, without the
    documents that need the token alignment heads most, with those three times, and the same with
    as many random documents. Without --language the corpus is in English and German. Fifteen
    models take one to two hours on two cores; a run that was stopped goes on with the same
    command.
    """

    # The world is cut to the languages of `evaluation`, and its documents to few sentences: a model
    # this small learns to translate between fewer languages from fewer words. What a mixture does
    # not take of the corpus is the reserve that fills up what is removed.
    documents: Annotated[int, Option("Documents of the corpus.", min=100, max=1_000_000_000)] = (
        70_000
    )
    bilingual: Annotated[float, Option("Share of documents that carry their translation.")] = 0.3
    tokens: Annotated[int, Option("Tokens that each model reads, prompts included.", min=1000)] = (
        1_700_000
    )
    # The same prompts in all mixtures.
    prompts: Annotated[float, Option("Share of those tokens that are translation prompts.")] = 0.1
    # Shares of tokens.
    shares: Annotated[
        tuple[str, ...],
        Option(
            "Share of every language that is selected, repeatable: true (what really carries a "
            "translation), or such as 1.3%.",
            flag="--share",
            metavar="SHARE",
            read=distinct,
        ),
    ] = ("true",)
    # Every seed stands for mixtures, an order and weights of its own.
    seeds: Annotated[tuple[int, ...], MadeBy(_seeds)] = (0, 1, 2)
    batch_tokens: int = 1024
    # Sentences of each direction that heads are found on.
    find_sentences: int = 100
    evaluation: Evaluation = field(default_factory=Evaluation)
    workers: Annotated[int, Option("Trainings at a time, with one thread each.", min=1)] = field(
        default=1, metadata=UNSIGNED
    )

    def __post_init__(self) -> None:
        if not 0 < self.bilingual < 1 or not 0 <= self.prompts < 1:
            raise InputError(
                f"the share of bilingual documents is {self.bilingual} and that of prompts "
                f"{self.prompts}; both must lie between 0 and 1"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"the seeds are {self.seeds}; give at least one, and each once")
        for share in self.shares:
            selected_share(share, 0.5)
        super().__post_init__()


@dataclass(frozen=True)
class Prepared:
    """A rated corpus: the folder of its run, how much of it is bilingual, and what it holds."""

    rated: Path
    bilingual_share: float
    about: dict[str, Any]


@dataclass(frozen=True)
class Mixture:
    """One mixture to train on; `digest` is that of its texts in order, which a training sees.

    `share` is what was selected of every language's tokens, None for a baseline.
    """

    name: str
    kind: Kind
    share: float | None
    seed: int
    folder: Path
    digest: str
    about: dict[str, Any]


def prepare(config: TraterExperiment, out: Path, progress: Progress | None = None) -> Prepared:
    """Find the heads and rate the corpus with them; what is there is kept."""
    from headscope.studies.find.translation import FindTranslation, find_translation
    from headscope.studies.use.rate import UseRate, use_rate

    # On development sentences; the corpus is made of training sentences.
    directions = tuple(f"{a}-{b}" for a, b in permutations(config.evaluation.languages, 2))
    pairs = PairsChoice(pair=directions, limit=config.find_sentences)
    find_translation(FindTranslation(pairs=pairs, rank="score"), out / "find", progress)
    rated = out / "rated"
    rate = UseRate(
        data=(str(out / CORPUS),), heads=str(out / "find"), rank="score"
    )  # as in the paper
    result = use_rate(rate, rated, progress)
    tokens: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for record in records_of(rated):
        documents[record["kind"]] += 1
        tokens[record["kind"]] += record["tokens"]
    share = tokens["bilingual"] / tokens.total()
    about = {
        "documents": dict(documents),
        "tokens": dict(tokens),
        "bilingual_share_of_tokens": share,
        "heads": result.heads,
        "signature": result.signature,
    }
    return Prepared(rated, share, about)


def mixtures_of(
    config: TraterExperiment, prepared: Prepared, out: Path, progress: Progress | None = None
) -> list[Mixture]:
    """All mixtures: for every seed a baseline, and for every share what was removed or enhanced.

    The selected documents are those with the highest scores and, as a control of the same size, as
    many random ones.
    """
    from headscope.use.mixing import MixPlan, mix

    size = _size(config)
    wanted: list[tuple[str, Kind, float | None]] = [("baseline", "baseline", None)]
    for share in config.shares:
        selected = selected_share(share, prepared.bilingual_share)
        suffix = "" if share == TRUE else f"-{selected}"
        kinds: tuple[Kind, ...] = ("remove", "enhance", "remove random", "enhance random")
        wanted += [(f"{kind.replace(' ', '-')}{suffix}", kind, selected) for kind in kinds]
    found = []
    for seed in config.seeds:
        for name, kind, value in wanted:
            folder = out / "mixtures" / f"seed-{seed}" / name
            plan = MixPlan(kind="baseline", by="tokens", size=size, seed=seed)
            if value is not None:
                plan = replace(
                    plan,
                    kind="remove" if kind.startswith("remove") else "enhance",
                    share=value,
                    select="random" if kind.endswith("random") else "top",
                )
            manifest = mix([prepared.rated], folder, plan, progress)
            digest, about = _contents(folder)
            held = {"kind": kind, "share": value, "seed": seed, **about, **_shares(manifest)}
            found.append(Mixture(f"seed-{seed}-{name}", kind, value, seed, folder, digest, held))
    return found


def selected_share(text: str, true: float) -> float:
    """The share that `text` stands for: `true`, or such as 1.3%; InputError for anything else."""
    if text == TRUE:
        return true
    try:
        # In decimals, so that 1.3% is 0.013 and not the number beside it.
        value = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))
    except (InvalidOperation, ValueError):
        value = 0.0
    if not 0 < value < 1:
        raise InputError(
            f"--share {text} is no share of a corpus; write `true`, or a share such as 1.3% or "
            "0.013"
        )
    return value


def write_corpus(config: TraterExperiment, out: Path, progress: Progress | None = None) -> Path:
    """The file of the corpus, which is written unless it is there."""
    from headscope.pocket.corpus import corpus_documents

    path = out / CORPUS
    if path.exists():
        return path
    languages = config.evaluation.languages
    stream = corpus_documents("train", 0, config.bilingual, languages, languages, SENTENCES)
    with writing(path) as file:
        for number, document in enumerate(islice(stream, config.documents), 1):
            file.write((json.dumps(document.record, ensure_ascii=False) + "\n").encode())
            if progress and (number % 1000 == 0 or number == config.documents):
                progress("writing the corpus", number, config.documents)
    return path


def check_size(config: TraterExperiment, corpus: Path, lm: LanguageModel) -> None:
    """`InputError` unless the corpus has the tokens of every language that a mixture reads.

    They are counted as a rating counts them: all of a document but the first.
    """
    tokens = dict.fromkeys(config.evaluation.languages, 0)
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            tokens[record["language"]] += len(lm.encode(record["text"])) - 1
    for code, there in tokens.items():
        if there < _size(config):
            raise InputError(
                f"--tokens {config.tokens} makes a mixture read {_size(config)} tokens of "
                f"{code!r}, and the {config.documents} documents of the corpus have only {there}; "
                "give more --documents or fewer --tokens"
            )


def _size(config: TraterExperiment) -> int:
    """Tokens of each language in a mixture."""
    return int(config.tokens * (1 - config.prompts)) // len(config.evaluation.languages)


def records_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The records of a rating's or a mixture's documents in the order of their files."""
    for path in sorted((folder / "documents").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def _contents(folder: Path) -> tuple[str, dict[str, Any]]:
    """The digest of a mixture's texts in order, and how much of it really is bilingual."""
    digest = hashlib.sha256()
    documents: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for record in records_of(folder):
        digest.update(record["text"].encode() + b"\0")
        documents[record["kind"]] += 1
        tokens[record["kind"]] += record["tokens"]
    about = {
        "documents": documents.total(),
        "tokens": tokens.total(),
        "bilingual_documents": documents["bilingual"],
        "bilingual_share_of_tokens": tokens["bilingual"] / tokens.total(),
    }
    return digest.hexdigest(), about


def _shares(manifest: Manifest) -> dict[str, Any]:
    return {
        "languages": {code: one.share_after for code, one in manifest.languages.items()},
        "largest_difference_of_shares": manifest.largest_difference,
    }
