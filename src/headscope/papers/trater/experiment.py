"""The experiment as one run: corpus, heads, rating, mixtures, trainings, and what they show."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import islice, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headscope.errors import InputError
from headscope.executors import Execution, execute
from headscope.heads.store import writing
from headscope.papers.trater.evidence import Mixture, describe
from headscope.papers.trater.result import TraterResult, show
from headscope.papers.trater.training import (
    Evaluation,
    Training,
    distinct,
    progress_of,
    records_of,
    train_and_measure,
)
from headscope.progress import Progress
from headscope.runs import Run, carry_out, decode, plain
from headscope.settings import UNSIGNED, MadeBy, Option, Settings
from headscope.studies.models import about_model, model_inputs, model_provenance
from headscope.studies.pairs import PairsChoice
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Kind = Literal["baseline", "remove", "enhance", "remove random", "enhance random"]

COMMAND = "pocket trater"
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

    # A model this small learns to translate between few languages from few words. What a mixture
    # does not take of the corpus is the reserve that fills up what is removed.
    documents: Annotated[
        int, Option("Documents of the corpus.", min=100, max=1_000_000_000, panel="Data")
    ] = 70_000
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
    workers: Annotated[
        int, Option("Trainings at a time, with one thread each.", min=1, panel="Running")
    ] = field(default=1, metadata=UNSIGNED)

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


def trater_experiment(
    config: TraterExperiment,
    out: Path | None = None,
    progress: Progress | None = None,
) -> TraterResult:
    """Run the experiment, as far as it has not been run, and return the command's result.

    `config.workers` trainings run at a time, each in a process of its own with one thread (with one
    worker: in as many threads as torch takes). Everything is below `out`: `find/`, `rated/`, a
    folder for each mixture and one for each training, each resumable by itself.
    """
    from headscope.lm import load

    began = time.monotonic()
    lm = load("pocket")
    model, provenance, inputs = about_model(lm), model_provenance(lm), model_inputs(lm)

    def compute(run: Run) -> TraterResult:
        nonlocal lm
        _check_size(config, _write_corpus(config, run.path, progress), lm)
        del lm  # the commands below load it by themselves
        corpus = _rate(config, run.path, progress)
        mixtures = _mixtures(config, corpus["bilingual_share_of_tokens"], run.path, progress)
        measured = _train(config, mixtures, run, progress)
        found = {"model": model, "corpus": corpus, **describe(mixtures, measured)}
        result: TraterResult = decode(TraterResult, plain(found))
        return result

    settings = {"settings": config}
    return carry_out(COMMAND, out, settings, inputs, compute, began, provenance, kind=TraterResult)


def selected_share(text: str, true: float) -> float:
    """The share that `text` stands for: `true`, or such as 1.3%; InputError for anything else."""
    if text == TRUE:
        return true
    try:
        # In decimals, so that 1.3% is 0.013 and not a neighbouring float.
        value = float(Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1))
    except (InvalidOperation, ValueError):
        value = 0.0
    if not 0 < value < 1:
        raise InputError(
            f"--share {text} is no share of a corpus; write `true`, or a share such as 1.3% or "
            "0.013"
        )
    return value


def _write_corpus(config: TraterExperiment, out: Path, progress: Progress | None) -> Path:
    """The file of the corpus, which is written unless it is there."""
    from headscope.pocket.mixture import corpus_documents

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


def _check_size(config: TraterExperiment, corpus: Path, lm: LanguageModel) -> None:
    """`InputError` unless the corpus has the tokens of every language that a mixture reads.

    They are counted as a rating counts them: all of a document but the first.
    """
    tokens, size = dict.fromkeys(config.evaluation.languages, 0), _size(config)
    with corpus.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            tokens[record["language"]] += len(lm.encode(record["text"], closed=True)) - 1
    for code, there in tokens.items():
        if there < size:
            raise InputError(
                f"--tokens {config.tokens} makes a mixture read {size} tokens of {code!r}, and the "
                f"{config.documents} documents of the corpus have only {there}; give more "
                "--documents or fewer --tokens"
            )


def _size(config: TraterExperiment) -> int:
    """Tokens of each language in a mixture."""
    return int(config.tokens * (1 - config.prompts)) // len(config.evaluation.languages)


def _rate(config: TraterExperiment, out: Path, progress: Progress | None) -> dict[str, Any]:
    """Find the heads and rate the corpus with them; what the corpus holds."""
    from headscope.studies.find.translation_score import FindTranslation, find_translation
    from headscope.studies.use.rate import UseRate, use_rate

    # On development sentences; the corpus is made of training sentences. Ranked as in the paper.
    directions = tuple(f"{a}-{b}" for a, b in permutations(config.evaluation.languages, 2))
    pairs = PairsChoice(pair=directions, limit=config.find_sentences)
    find_translation(FindTranslation(pairs=pairs, rank="score"), out / "find", progress)
    rate = UseRate(data=(str(out / CORPUS),), heads=str(out / "find"), rank="score")
    result = use_rate(rate, out / "rated", progress)
    _, documents, tokens = _contents(out / "rated")
    return {
        "documents": documents,
        "tokens": tokens,
        "bilingual_share_of_tokens": tokens["bilingual"] / tokens.total(),
        "heads": result.heads,
        "signature": result.signature,
    }


def _mixtures(
    config: TraterExperiment, true: float, out: Path, progress: Progress | None
) -> list[Mixture]:
    """All mixtures: for every seed a baseline, and for every share what was removed or enhanced.

    The selected documents are those with the highest scores and, as a control of the same size, as
    many random ones. `true` is the share of tokens that really carry a translation.
    """
    from headscope.use.mixing import MixPlan, mix

    wanted: list[tuple[str, Kind, float | None]] = [("baseline", "baseline", None)]
    for share in config.shares:
        selected = selected_share(share, true)
        suffix = "" if share == TRUE else f"-{selected}"
        kinds: tuple[Kind, ...] = ("remove", "enhance", "remove random", "enhance random")
        wanted += [(f"{kind.replace(' ', '-')}{suffix}", kind, selected) for kind in kinds]
    found = []
    for seed in config.seeds:
        for name, kind, value in wanted:
            folder = out / "mixtures" / f"seed-{seed}" / name
            plan = MixPlan(kind="baseline", by="tokens", size=_size(config), seed=seed)
            if value is not None:
                plan = replace(
                    plan,
                    kind="remove" if kind.startswith("remove") else "enhance",
                    share=value,
                    select="random" if kind.endswith("random") else "top",
                )
            manifest = mix([out / "rated"], folder, plan, progress)
            digest, documents, tokens = _contents(folder)
            about = {
                "kind": kind,
                "share": value,
                "seed": seed,
                "documents": documents.total(),
                "tokens": tokens.total(),
                "bilingual_documents": documents["bilingual"],
                "bilingual_share_of_tokens": tokens["bilingual"] / tokens.total(),
                "languages": {
                    code: language.share_after for code, language in manifest.languages.items()
                },
                "largest_difference_of_shares": manifest.largest_difference,
            }
            found.append(Mixture(f"seed-{seed}-{name}", kind, value, seed, folder, digest, about))
    return found


def _contents(folder: Path) -> tuple[str, Counter[str], Counter[str]]:
    """The digest of a folder's texts in order, and its documents and tokens by kind."""
    digest = hashlib.sha256()
    documents, tokens = Counter[str](), Counter[str]()
    for record in records_of(folder):
        digest.update(record["text"].encode() + b"\0")
        documents[record["kind"]] += 1
        tokens[record["kind"]] += record["tokens"]
    return digest.hexdigest(), documents, tokens


def _train(
    config: TraterExperiment, mixtures: list[Mixture], run: Run, progress: Progress | None
) -> list[dict[str, Any]]:
    """Train and measure one model a mixture; what is there already is read."""
    prompts, batch = round(config.tokens * config.prompts), config.batch_tokens
    trainings = [
        Training(mixture.folder, mixture.digest, prompts, mixture.seed, batch, config.evaluation)
        for mixture in mixtures
    ]
    places = [(run.path / "trainings" / mixture.name).resolve() for mixture in mixtures]
    given = list(zip(trainings, places, strict=True))
    if config.workers > 1:
        how = Execution(workers=min(config.workers, len(given)), share_gpus=False)
        watch = None if progress is None else partial(_watched, places, progress)
        execute([_Trainings(given)], how, run.path.resolve() / "logs", watch)
    measured = []
    for training, place in given:
        measured.append(train_and_measure(training, place))
        if progress:
            progress("trainings", len(measured), len(given))
    return measured


@dataclass(frozen=True)
class _Trainings:
    """What each worker does, as a step of datatrove's pipeline: its share, with one thread."""

    given: Sequence[tuple[Training, Path]]

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        for training, place in self.given[rank::world_size]:
            train_and_measure(training, place, threads=1)


def _watched(places: Sequence[Path], progress: Progress) -> None:
    share = sum(map(progress_of, places)) / len(places)
    progress("trainings, per mille", round(1000 * share), 1000)


command = Study(
    TraterExperiment,
    trater_experiment,
    result=TraterResult,
    show=show,
    usage="--workers 2 --out runs/trater",
)
