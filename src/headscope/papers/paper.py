"""What a paper is here: experiments, the runs that they need, and how runs become its tables.

An experiment stands for tables and figures of the paper. It needs steps, each a run of a recipe in
a folder of its own, which several experiments may share; and it says what they show.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from headscope import options
from headscope.data.align import LlmAligner
from headscope.data.chat import ChatModel
from headscope.errors import InputError
from headscope.heads import Amount, Geometry, count_of
from headscope.heads.store import with_details
from headscope.papers.show import Answer
from headscope.progress import Progress
from headscope.runs.codec import Result, decode, encode
from headscope.runs.reading import naming, read_object, read_result, result_of
from headscope.settings import UNSIGNED, Option, Settings
from headscope.shown.blocks import Findings, Shown
from headscope.studies.costs.estimate import Work
from headscope.studies.models import POCKET, ModelChoice
from headscope.studies.named_data import data_digests
from headscope.studies.registry import study_of
from headscope.studies.study import shown_of
from headscope.studies.tasks import Instruction
from headscope.verify.removal_translations import Removal

AnyResult = TypeVar("AnyResult", bound=Result)


@dataclass(frozen=True)
class PaperData(Settings):
    """Local files for the experiments; without them the pocket model takes its own data."""

    # A FLORES folder may stand for all directions.
    pairs: options.PairFiles = field(default=(), metadata=UNSIGNED)
    documents: options.DocumentFiles = field(default=(), metadata=UNSIGNED)
    tasks: Annotated[
        tuple[str, ...],
        Option(
            "A task of inputs and outputs, or a folder of such; repeatable.",
            metavar="FILE",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    benchmarks: Annotated[
        tuple[str, ...],
        Option(
            "A task of lm-evaluation-harness, or its file; repeatable.",
            metavar="NAME",
            panel="Data",
        ),
    ] = ()
    questions: Annotated[
        tuple[str, ...],
        Option(
            "Questions with contexts and answers; repeatable.", metavar="LANG=FILE", panel="Data"
        ),
    ] = field(default=(), metadata=UNSIGNED)
    summaries: Annotated[
        tuple[str, ...],
        Option("Texts with summaries; repeatable.", metavar="LANG=FILE", panel="Data"),
    ] = field(default=(), metadata=UNSIGNED)
    statements: Annotated[
        tuple[str, ...],
        Option(
            "Contradicting statements of two languages; repeatable.",
            metavar="PAIR=FILE",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    # In their order.
    checkpoints: Annotated[
        tuple[str, ...],
        Option(
            "A revision of the model in its training; repeatable.", metavar="REVISION", panel="Data"
        ),
    ] = ()
    # Such as the other sizes of a family.
    others: Annotated[
        tuple[str, ...],
        Option(
            "Another model to compare, such as its base; repeatable.", metavar="MODEL", panel="Data"
        ),
    ] = ()

    def digests(self) -> dict[str, str]:
        """A content hash for each file and folder that was named, by what it was named as."""
        return {
            f"{name} {place.removeprefix('data ')}": digest
            for name in ("pairs", "documents", "tasks", "questions", "summaries", "statements")
            for place, digest in data_digests(getattr(self, name)).items()
        }


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Steering(Settings):
    """What a user decides instead of a paper; None leaves it to the paper."""

    limit: options.Limit = None
    draws: Annotated[
        int | None,
        Option("Draws of random heads; without it as the experiment takes.", min=1, panel="Test"),
    ] = None
    k: Annotated[
        Amount | None,
        Option("Heads compared, removed or changed: a number or a share.", metavar="K", typed=str),
    ] = None
    aligner: Annotated[
        options.AlignerName | None,
        Option("What links words: the data's links, eflomal, or --llm-model.", panel="Expert"),
    ] = None
    measure: Annotated[tuple[str, ...], replace(options.MEASURES, read=_each_once)] = ()
    rank: Annotated[
        options.RankName | None, Option("What --k cuts translation scores by.", panel="Expert")
    ] = None
    shots: Annotated[
        int | None, Option("Examples put before each input or sentence.", min=0, panel="Prompt")
    ] = None
    chat: options.Chat = None
    instruction: Instruction = None
    steps: Annotated[
        int | None, Option("Steps of the training of a mask.", min=1, panel="Expert")
    ] = None
    protocol: Annotated[
        Literal["published", "own"] | None,
        Option(
            "As the paper's public code asks and counts, or as headscope does by itself; without "
            "it published, but own for pocket.",
            panel="Expert",
        ),
    ] = None
    decode: Annotated[
        options.DecodeName | None,
        Option("Score the reference, or the model's own translation.", panel="Expert"),
    ] = None

    def __post_init__(self) -> None:
        # Impossible values are refused before a folder is bound to them.
        Removal(measure=self.measure or None)
        if self.k is not None:
            count_of(self.k, 10**9)
        super().__post_init__()

    @property
    def given(self) -> dict[str, Any]:
        """What the user decided, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}


@dataclass(frozen=True)
class Setting:
    """What every step and experiment is given.

    Attributes:
        model: the model, to be loaded by the studies.
        geometry: its layers and heads.
        digest: digest of its weights.
        data: local files, where they were named.
        folder: the folder of the paper's run; steps run below it.
        seed: of everything that is drawn.
        full: whether the steps that are left out by default are run as well.
        retrain: whether trainings are repeated whose results come with the package.
        batch_tokens: upper bound of the tokens of a batch.
        steering: what the user decided instead of the paper.
        llm: the language model that sorts failures besides the rules and links words, if any.
        suffix: of the runs of another model than the paper's run is of; see `of`.
    """

    model: ModelChoice
    geometry: Geometry
    digest: str
    data: PaperData
    folder: Path
    seed: int = 0
    full: bool = False
    retrain: bool = False
    batch_tokens: int = 8192
    steering: Steering = field(default_factory=Steering)
    llm: ChatModel | None = None
    suffix: str = ""

    def of(self, other: str) -> Setting:
        """The same for another model, whose runs lie in the same folder: `scores-of-NAME`."""
        name = re.sub(r"[^A-Za-z0-9.]+", "-", other).strip("-")
        model = replace(self.model, model=other, revision=None)
        return replace(self, model=model, suffix=f"-of-{name}")

    @property
    def pocket(self) -> bool:
        """Whether it is the bundled model, which brings data for everything."""
        return self.model.model == POCKET

    @property
    def as_published(self) -> bool:
        """Whether prompts, labels and held-out examples are those of the paper's public code."""
        chosen = self.steering.protocol
        return chosen == "published" or (chosen is None and not self.pocket)

    @property
    def ends_early(self) -> bool:
        """Whether the draws for a claim end at the first that does as much: on the bundled model,
        so that claims that fail cost little; a number that a user gives is drawn whole."""
        return self.pocket and self.steering.draws is None

    def claims(self, *whose: str) -> tuple[str, ...] | None:
        """The claims that end draws, by whose heads they are about (without any: all)."""
        return whose if self.ends_early else None

    @property
    def linker(self) -> LlmAligner | None:
        """The language model as a word aligner."""
        return None if self.llm is None else LlmAligner(**vars(self.llm))

    @property
    def small(self) -> bool:
        """Whether the model has too few heads for the papers' numbers: shares are taken instead."""
        return self.geometry.total < 256

    def at(self, step: str) -> Path:
        """The run folder of a step; sentences are those of every model."""
        return self.folder / "runs" / (step if step == "sentences" else f"{step}{self.suffix}")

    def done(self, step: str) -> bool:
        """Whether the step's run is finished, and its result whole."""
        return (self.at(step) / "DONE.json").is_file() and self.damage(step) is None

    def damage(self, step: str) -> str | None:
        """What is wrong with a step's finished run, and what to do; None if nothing is."""
        folder = self.at(step)
        if not (folder / "DONE.json").is_file():
            return None
        try:
            read_result(folder)
        except InputError as error:
            wrong = str(error).partition("; ")[0]
            return f"{wrong}; delete {folder} and run the same command again"
        return None

    def kept(self, step: str) -> Path:
        """Where the result lies that came with the package and stands for the step's run."""
        return self.folder / "stored" / f"{step}.json"

    def result(self, step: str) -> dict[str, Any] | None:
        """The result of a finished step, else the one that stands for it, else None; what stands
        in its `details` beside all else.

        Nothing stands for a training that is to be repeated.
        """
        written = self._written(step)
        return None if written is None else with_details(written)

    def _written(self, step: str) -> dict[str, Any] | None:
        done, kept = self.done(step), self.kept(step)
        if not done and (self.retrain or not kept.is_file()):
            return None
        return read_object(self.at(step) / "result.json" if done else kept)

    def read(self, step: str, kind: type[AnyResult]) -> AnyResult | None:
        """The typed result of a finished step, as `result` has it; None if there is none."""
        value = self._written(step)
        if value is None:
            return None
        with naming(self.at(step) / "result.json", step):
            read: AnyResult = decode(kind, value)
        return read

    def shown(self, step: str) -> Shown | None:
        """What the study of a finished step shows of its run; None if the run was not made."""
        folder = self.at(step)
        if not self.done(step):
            return None
        study = study_of(str(read_object(folder / "run.json").get("command")))
        return shown_of(study, result_of(folder, study.result, step), folder)


def decided(setting: Setting) -> tuple[str, ...]:
    """What a user decided instead of the paper, each in a few words; which weights, too."""
    model = setting.model
    weights = {"revision": model.revision, "quantise": model.quantise}
    given = {name: value for name, value in weights.items() if value} | setting.steering.given
    return tuple(f"{name} {value}" for name, value in given.items())


@dataclass(frozen=True)
class Step:
    """One run of a recipe.

    Attributes:
        name: its folder below `runs/`, such as `mask-en-de`.
        title: in words, such as `mask for en-de`.
        run: the recipe, given the setting, the folder and where to report progress.
        work: its work on the model, for the estimate of time.
        at_most: whether there may be less work, since draws may end before all are drawn.
        after: steps whose folders it reads.
        extended: whether it is left to `--full`.
        stored: name of a result that comes with the package and stands for the run, unless
            trainings shall be repeated.
    """

    name: str
    title: str
    run: Callable[[Setting, Path, Progress | None], Mapping[str, Any]] = field(compare=False)
    work: Work
    after: tuple[str, ...] = ()
    extended: bool = False
    stored: str | None = None
    at_most: bool = False


@dataclass(frozen=True)
class StudyRun:
    """A study, or the command of one, with the settings that follow from those of the paper."""

    study: str | Callable[..., Any]
    settings: Callable[[Setting], Any]

    def __call__(self, setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
        run = study_of(self.study).run if isinstance(self.study, str) else self.study
        helpers = {"progress": progress} if "progress" in inspect.signature(run).parameters else {}
        result: Mapping[str, Any] = encode(run(self.settings(setting), out, **helpers))
        return result


#: What a table or figure needs that is not there.
Word = Literal["needs DATA", "needs MODEL", "needs ENDPOINT"]
#: Why a step failed, and what it needs; None where that is a package or a whole result.
Failed = tuple[str, Word | None]


@dataclass(frozen=True)
class Missing:
    """Why an experiment cannot be run here, and what to give so that it can.

    `give` is empty where nothing would help, such as a model that somebody else trained. What is
    missing are data, a model (another one, or its checkpoints), or the endpoint of an LLM.
    """

    why: str
    give: str = ""
    coverage: Word = "needs DATA"


#: The runs of an experiment, in an order in which they can be run, or why it cannot be run.
Steps = tuple[Step, ...] | Missing
#: The runs that one of its elements needs (None: all of them), or what is missing for it.
Needed = Sequence[Step] | Missing | None


@dataclass(frozen=True)
class Experiment:
    """One or more tables and figures of a paper that the same runs answer.

    Attributes:
        name: as `--only` takes it, such as `table-1`.
        elements: the paper's tables and figures that it stands for, such as `Table 1`.
        title: what it is about, in our words.
        steps: the runs it needs, in an order in which they can be run, or why it cannot be run.
        show: what the finished steps show; the others are shown as not run.
        needs: which of the steps one of the elements needs (None: all of them), or what is missing
            for it although the experiment can be run. Without it every element needs all steps.
        apart: whether it is another experiment than the paper's, run only where it is named; its
            elements need the paper's model.
    """

    name: str
    elements: tuple[str, ...]
    title: str
    steps: Callable[[Setting], Steps]
    show: Callable[[Setting], Findings]
    needs: Callable[[Setting, str, Sequence[Step]], Needed] = lambda setting, element, steps: None
    apart: bool = False


@dataclass(frozen=True)
class Paper:
    """A paper: its name on the command line, its question, and its experiments.

    Attributes:
        name: as the command takes it.
        title: of the paper.
        source: authors, venue and year.
        question: of the paper.
        method: its method, in three sentences.
        experiments: in the paper's order.
        answer: the answer for this model, from what the experiments found, by their names.
        steered: what of `Steering` its experiments follow.
        notes: what holds for several experiments, said once for all of them.
    """

    name: str
    title: str
    source: str
    question: str
    method: tuple[str, str, str]
    experiments: tuple[Experiment, ...]
    answer: Callable[[Setting, Mapping[str, Findings]], Answer]
    steered: frozenset[str] = frozenset()
    notes: Callable[[Setting], tuple[str, ...]] = lambda setting: ()
