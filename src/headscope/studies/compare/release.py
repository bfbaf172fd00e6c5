"""What each language lost from one checkpoint of a model to the next, in a run folder."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree

import numpy as np

from headscope import options
from headscope.compare.artifacts import check_one_geometry
from headscope.compare.release_changes import (
    FEWEST,
    Margins,
    chrf_change,
    loss_change,
    needed,
    share_change,
)
from headscope.data.documents import DocumentFile
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.errors import InputError
from headscope.evidence.rows import LEVEL, Condition
from headscope.heads import Geometry
from headscope.progress import Progress, Steps, steps_of
from headscope.results.common import DataRead, ModelFacts
from headscope.results.release import Change, ReleaseResult
from headscope.runs import Run, carry_out, decode
from headscope.runs.kept import digest
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import Forest, Gap, Section, Shown, method_section, table_of
from headscope.shown.words import enumeration, fixed
from headscope.studies.compare.checkpoints import single_checkpoint
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import (
    POCKET,
    PROMPTED,
    ModelChoice,
    about_model,
    cautions_of,
    dtype_name,
    model_inputs,
    resolved_chat,
    template_inputs,
)
from headscope.studies.pairs import PairsChoice, pair_inputs, read_directions
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

COMMAND = "compare release"
#: Documents of each language and sentences of each direction where no limit is given.
EXAMPLES = 200
#: Directions of the pocket model's own sentences.
POCKET_PAIRS = ("en-de", "en-es", "en-ru", "en-tr", "de-en")
JUNIT = "junit.xml"
#: Changes that the figure draws, the worst first.
LISTED = 10
#: What the command line ends with where something is lost, and where something cannot be told.
LOST, OPEN = 1, 3
NAMES = {
    "loss": "loss of documents",
    "reference_loss": "loss of translations",
    "off_target": "outputs in another language",
    "chrf": "chrF++",
}


@dataclass(frozen=True)
class CompareRelease(Settings):
    """Compare a new checkpoint with the old one: what each language kept, lost, or cannot tell.

    On the same texts: the loss of documents and of translations, outputs in another language, and
    chrF++. Ends with code 1 if anything is lost, with 3 if something cannot be told, else with 0;
    the run folder has junit.xml. Of each language and direction 200 texts are read unless --limit
    says otherwise.
    """

    models: Annotated[
        tuple[str, ...],
        Option("The old checkpoint, and the new one.", metavar="OLD NEW", argument=True),
    ]
    model: Annotated[
        ModelChoice,
        Nested(changed=PROMPTED.changed, without=("model", "revision")),
    ] = field(default_factory=ModelChoice)
    documents: Annotated[
        DocumentsChoice,
        Nested(
            changed={
                "data": Option(
                    "Documents of a language; repeatable. Not needed for pocket.",
                    flag="--language",
                    metavar="LANG=FILE",
                    held="documents",
                    panel="Data",
                ),
                "limit": options.LIMIT,
            },
            without=("languages",),
        ),
    ] = field(default_factory=DocumentsChoice)
    pairs: options.PairFiles = field(default=(), metadata=UNSIGNED)
    shots: options.Shots = 0
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    write: Annotated[
        bool,
        Option(
            "Whether translations are written, for chrF++ and their language; without it losses "
            "alone.",
            flag="--translate/--no-translate",
            panel="Test",
        ),
    ] = True
    margin_loss: Annotated[
        float, Option("Nats a token by which a loss may rise.", min=0.0, max=10.0, panel="Test")
    ] = Margins.loss
    margin_off_target: Annotated[
        float,
        Option(
            "Share of outputs that may turn to another language.", min=0.0, max=1.0, panel="Test"
        ),
    ] = Margins.off_target
    margin_chrf: Annotated[
        float, Option("Points by which chrF++ may fall.", min=0.0, max=100.0, panel="Test")
    ] = Margins.chrf
    max_new_tokens: options.MaxNewTokens = None
    batch_tokens: options.BatchTokens = 8192
    alpha: Annotated[
        float,
        Option(
            "How often any of all intervals may miss.",
            flag="--error-rate",
            min=1e-6,
            max=0.5,
            panel="Test",
        ),
    ] = 0.05
    seed: options.Seed = 0


@dataclass(frozen=True)
class _Texts:
    """The same texts for both checkpoints."""

    documents: Mapping[str, DocumentFile]
    directions: Mapping[str, PairFile]

    def about(self) -> dict[str, DataRead]:
        """What was read, by language and direction."""
        sizes = {code: len(file.documents) for code, file in self.documents.items()}
        sizes |= {name: len(file.pairs) for name, file in self.directions.items()}
        files: dict[str, DocumentFile | PairFile] = {**self.documents, **self.directions}
        return {
            name: decode(
                DataRead, {"path": file.path, "digest": file.digest, "examples": sizes[name]}
            )
            for name, file in files.items()
        }


def release(
    config: CompareRelease, out: Path | None = None, progress: Progress | None = None
) -> ReleaseResult:
    """Measure both checkpoints, one in memory at a time, and return the command's result.

    What is done already is kept by checkpoint, language and direction, translations by batch.
    Raises `InputError` unless
    two checkpoints of one shape and one tokenizer are named.
    """
    began = time.monotonic()
    if len(config.models) != 2:
        raise InputError(
            f"{len(config.models)} checkpoints are named; name the old one and the new one"
        )
    texts = _read(config)
    if not config.pairs and config.chat is None:
        # The bundled model's prompts are complete; its template would ask for the answer once more.
        config = replace(config, chat=False)
    choices = [single_checkpoint(name, config.model) for name in config.models]
    opened = [_opened(choice, config, bool(texts.directions)) for choice in choices]
    old, new = opened
    check_one_geometry(
        [(each.name, each.geometry) for each in opened], "two checkpoints of one model are compared"
    )
    for what, fix in (
        ("tokenizer", "their losses a token cannot be compared; give checkpoints with one"),
        ("chat template", "they would read other prompts; add --no-chat"),
        ("rendered prompts", "they would read other prompts; add --no-chat"),
    ):
        prompted = what == "tokenizer" or old.chat or new.chat
        if prompted and old.inputs.get(what) != new.inputs.get(what):
            raise InputError(f"{old.name} and {new.name} have not the same {what}, so {fix}")
    config = replace(config, chat=old.chat)
    inputs = {
        f"{which} {what}": value
        for which, each in zip(("old", "new"), opened, strict=True)
        for what, value in each.inputs.items()
    }
    context = min(old.context, new.context)
    read = texts.about()

    same = (old.inputs, old.computed_in) == (new.inputs, new.computed_in)

    def compute(run: Run) -> ReleaseResult:
        # What is the same is measured once.
        measured = {"old": choices[0]} | ({} if same else {"new": choices[1]})
        about: dict[str, ModelFacts] = {}
        for which, choice in measured.items():
            lm = choice.load()
            if lm.digest != inputs[f"{which} model"]:
                raise InputError(
                    f"{lm.name} was changed while {run.path} was computed; leave the checkpoint "
                    "alone and run the same command again with another --out"
                )
            about[which] = decode(ModelFacts, about_model(lm))
            _measure(run, which, lm, texts, config, context, progress)
            del lm
            gc.collect()
        last = "old" if same else "new"
        level, changes, identifier = _changes(run, texts, config, last)
        if same:
            changes = tuple(replace(change, answer="kept") for change in changes)
        result = ReleaseResult(
            old=replace(about["old"], name=config.models[0]),
            new=replace(about[last], name=config.models[1]),
            level=level,
            changes=changes,
            same=same,
            identifier=identifier,
            data=read,
        )
        run.write_text(JUNIT, junit(result))
        return result

    settings = {
        "settings": replace(config, models=()),
        "computed_in": [each.computed_in for each in opened],
    }
    digests = inputs | pair_inputs(texts.directions)
    digests |= {f"{code} documents": file.digest for code, file in texts.documents.items()}
    names = [each.name for each in opened]
    return carry_out(
        COMMAND, out, settings, digests, compute, began, {"models": names, "seed": config.seed},
        kind=ReleaseResult,
        cautions=tuple(dict.fromkeys(said for each in opened for said in each.cautions)),
    )  # fmt: skip


@dataclass(frozen=True)
class _Opened:
    """What a checkpoint told when it was opened: everything but the model itself."""

    name: str
    geometry: Geometry
    inputs: Mapping[str, str]
    computed_in: str
    chat: bool | None
    context: int
    cautions: tuple[str, ...]


def _opened(choice: ModelChoice, config: CompareRelease, prompted: bool) -> _Opened:
    lm = choice.load_for()
    chat = resolved_chat(lm, config).chat if prompted else None
    inputs = model_inputs(lm) | (template_inputs(lm) if chat else {})
    return _Opened(
        choice.model, lm.geometry, inputs, dtype_name(lm), chat, lm.context_length,
        cautions_of(lm, bool(chat)),
    )  # fmt: skip


def _read(config: CompareRelease) -> _Texts:
    bundled = config.models[0].partition(":")[0] == POCKET
    if not (config.documents.data or config.pairs or bundled):
        raise InputError(
            "no texts are given; add --language de=FILE for each language, and --pairs en-de=FILE "
            "for translations"
        )
    model = POCKET if bundled else config.models[0]
    documents: Mapping[str, DocumentFile] = {}
    if config.documents.data or not config.pairs:
        documents = read_languages(config.documents, model, "test", config.seed, EXAMPLES, EXAMPLES)
    limit = config.documents.limit or EXAMPLES
    choice = PairsChoice(
        data=config.pairs, limit=limit, shots=config.shots, split=config.documents.split
    )
    directions: Mapping[str, PairFile] = {}
    if config.pairs:
        directions = read_directions(choice, model, "test", seed=config.seed)
    elif bundled and not config.documents.data:
        choice = replace(choice, pair=POCKET_PAIRS)
        directions = read_directions(choice, model, "test", limit, config.seed)
    if not directions and (config.shots or config.chat or config.model.system):
        raise InputError(
            "--shots, --chat and --system are for translations; add --pairs en-de=FILE, or leave "
            "them out"
        )
    if config.write:
        from headscope.measure.identify import check_known

        for pairs in directions.values():
            check_known(pairs.target_language, "compare losses alone by --no-translate")
    return _Texts(documents, directions)


#: Parts of a run, by checkpoint: `old documents`, `new pairs`.
DOCUMENTS, PAIRS = "documents", "pairs"


def _measure(
    run: Run,
    which: str,
    lm: LanguageModel,
    texts: _Texts,
    config: CompareRelease,
    context: int,
    progress: Progress | None,
) -> None:
    """Measure what is not kept yet of a checkpoint."""
    kept = run.read_part(f"{which} {DOCUMENTS}")
    for code, file in texts.documents.items():
        if code not in kept:
            told = steps_of(progress, f"{which} checkpoint, {code}: losses")
            losses = _document_losses(lm, file, config, context, told)
            run.append_part(f"{which} {DOCUMENTS}", code, losses)
    kept = run.read_part(f"{which} {PAIRS}")
    for name, pairs in texts.directions.items():
        if name not in kept:
            made = _translations(run, f"{which} checkpoint, {name}", lm, pairs, config, progress)
            run.append_part(f"{which} {PAIRS}", name, made)


def _document_losses(
    lm: LanguageModel,
    file: DocumentFile,
    config: CompareRelease,
    context: int,
    progress: Steps | None,
) -> dict[str, Any]:
    """Sums of losses of each document, its tokens, and what was read."""
    from headscope.find.gate_gradients import texts_of
    from headscope.lm.losses import token_losses

    rows = [text.ids[:context] for text in texts_of(lm, file)]
    losses = token_losses(
        lm, rows, batch_tokens=config.batch_tokens, progress=progress, reduce=_summed
    )
    return _losses_of(losses, [len(row) - 1 for row in rows], rows)


def _summed(row: int, losses: Any) -> float:
    return float(losses.sum(dtype=np.float64))


def _losses_of(losses: list[float], tokens: list[int], rows: Any) -> dict[str, Any]:
    return {"losses": losses, "tokens": tokens, "read": digest(rows)}


def _translations(
    run: Run,
    title: str,
    lm: LanguageModel,
    pairs: PairFile,
    config: CompareRelease,
    progress: Progress | None,
) -> dict[str, Any]:
    """Losses of the references behind their prompts, and what the model writes itself; of a run
    that was stopped the texts of finished batches are there, under the `title`."""
    from headscope.evidence.runner import kept_texts, passes_of, prompts_of, room_for
    from headscope.lm.generation import GenerateConfig, newline_stop
    from headscope.lm.losses import token_losses
    from headscope.lm.prompting import encode_answer

    prompts = prompts_of(lm, pairs, config.template, config.chat)
    rows = []
    for prompt, pair in zip(prompts, pairs.pairs, strict=True):
        text = prompt.with_target(pair.target)
        rows.append(encode_answer(lm, text.text, text.target_start, prompt.special))
    losses = token_losses(
        lm, [row.ids for row in rows], [row.start for row in rows], config.batch_tokens,
        steps_of(progress, f"{title}: losses"), _summed,
    )  # fmt: skip
    made = _losses_of(losses, [len(row.ids) - row.start for row in rows], [row.ids for row in rows])
    if config.write:
        special = all(prompt.special for prompt in prompts)
        settings = GenerateConfig(
            batch_tokens=config.batch_tokens, stop_at_newline=newline_stop(special, None)
        )
        limits = [config.max_new_tokens or room_for(lm, pair.source) for pair in pairs.pairs]
        (as_is,) = passes_of([Condition()], lm.geometry, range(len(prompts))).values()
        texts = kept_texts(
            lm, [prompt.text for prompt in prompts], limits, {title: as_is}, settings, run,
            f"{title}: translations", progress, special,
        )  # fmt: skip
        made["texts"] = [texts[title][at] for at in range(len(prompts))]
    return made


def _changes(
    run: Run, texts: _Texts, config: CompareRelease, last: str
) -> tuple[float, tuple[Change, ...], str | None]:
    """Every change from the old checkpoint to the `last`, with intervals that hold for all of them
    together (Bonferroni)."""
    from headscope.measure.identify import identifier_name, off_targets

    documents, pairs = (
        [run.read_part(f"{which} {kind}") for which in ("old", last)] for kind in (DOCUMENTS, PAIRS)
    )
    losses = [("loss", code, documents) for code in texts.documents]
    losses += [("reference_loss", name, pairs) for name in texts.directions]
    written = len(texts.directions) if config.write else 0
    level = 1 - config.alpha / (len(losses) + 2 * written)
    changes = []
    for statistic, part, (old, new) in losses:
        if old[part]["read"] != new[part]["read"]:
            raise InputError(
                f"the checkpoints read the texts of {part} as other tokens, so their losses cannot "
                "be compared; give checkpoints with one tokenizer and one chat template"
            )
        changes.append(
            loss_change(
                part, statistic, old[part]["losses"], new[part]["losses"], old[part]["tokens"],
                config.margin_loss, level,
            )
        )  # fmt: skip
    for name, file in texts.directions.items() if config.write else ():
        before, after = (each[name]["texts"] for each in pairs)
        was_wrong, is_wrong = (
            off_targets(outputs, file.target_language) for outputs in (before, after)
        )
        references = [pair.target for pair in file.pairs]
        changes += [
            share_change(name, was_wrong, is_wrong, config.margin_off_target, level),
            chrf_change(name, before, after, references, config.margin_chrf, level, config.seed),
        ]
    return level, tuple(changes), identifier_name() if written else None


def junit(result: ReleaseResult) -> str:
    """The changes as test cases of JUnit's XML: lost ones failed, those that cannot be told are
    skipped."""
    lost, open_ = result.answered("lost"), result.answered("cannot tell")
    suite = ElementTree.Element(
        "testsuite", name=f"headscope {COMMAND}", tests=str(len(result.changes)),
        failures=str(len(lost)), errors="0", skipped=str(len(open_)),
    )  # fmt: skip
    for change in result.changes:
        case = ElementTree.SubElement(
            suite, "testcase", classname=change.part, name=NAMES[change.statistic]
        )
        if change.answer == "lost":
            ElementTree.SubElement(case, "failure", message=_words(change))
        elif change.answer == "cannot tell":
            ElementTree.SubElement(case, "skipped", message=_words(change))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _severity(change: Change) -> float:
    """The most margins first; where the new checkpoint gives no number, before all."""
    moved = abs(change.change.value) / max(change.margin, 1e-9)
    return -moved if np.isfinite(moved) else -np.inf


def _digits(change: Change) -> int:
    return 1 if change.statistic == "chrf" else 3


def _words(change: Change) -> str:
    """`0.021 (0.015 to 0.030)`."""
    digits, moved = _digits(change), change.change
    bounds = f" ({fixed(moved.low, digits)} to {fixed(moved.high, digits)})"
    return f"{fixed(moved.value, digits)}{bounds if moved.bounded else ''}"


def _figure(changes: Sequence[Change], usual: bool) -> Forest:
    """The changes as multiples of their margins, above 0 where they are worse; with intervals where
    these hold together at the `usual` level."""
    rows = []
    for change in changes:
        sign = -1 if change.statistic == "chrf" else 1
        moved, unit = change.change, sign * max(change.margin, 1e-9)
        drawn = usual and moved.bounded
        ends = sorted((moved.low / unit, moved.high / unit)) if drawn else (None, None)
        gap = Gap("", moved.value / unit, *ends)
        rows.append((f"{change.part}, {NAMES[change.statistic]}", (gap,)))
    return Forest(
        "New minus old checkpoint",
        tuple(rows),
        "How much worse, as a multiple of the margin: above 1 is lost",
        ("better", "worse"),
        1,
        "Intervals hold for all changes together." if usual else "",
        over="texts",
    )


def _cautions(result: ReleaseResult) -> Iterator[str]:
    def parts(some: list[Change]) -> str:
        return enumeration([*dict.fromkeys(change.part for change in some)])

    if few := [change for change in result.changes if change.examples < FEWEST]:
        yield f"Fewer than {FEWEST} texts decide nothing: {parts(few)}."
    shares = [change for change in result.changes if change.statistic == "off_target"]
    short = [change for change in shares if change.examples < needed(change.margin, result.level)]
    if short and not result.same:
        most = max(needed(change.margin, result.level) for change in short)
        yield (
            f"So few outputs cannot show that their language is kept, even if none changes: "
            f"{parts(short)}; {most} can."
        )
    if idle := [change for change in shares if change.old >= 0.5]:
        yield (
            f"The old checkpoint writes most outputs in another language, so little can be lost: "
            f"{parts(idle)}."
        )


def _show(result: ReleaseResult, run: Path) -> Shown:
    lost, open_ = result.answered("lost"), result.answered("cannot tell")
    parts = list(dict.fromkeys(change.part for change in lost))
    if result.same:
        finding = "Both checkpoints have the same weights, so everything is kept."
    elif lost:
        finding = f"Lost: {enumeration(parts)} ({len(lost)} of {len(result.changes)} numbers)."
    elif len(open_) == len(result.changes):
        finding = f"Nothing is shown to be lost, and none of {len(open_)} numbers can be told."
    elif open_:
        finding = (
            f"Nothing is shown to be lost; {len(open_)} of {len(result.changes)} numbers cannot be "
            "told."
        )
    else:
        finding = f"All {len(result.changes)} numbers are kept."
    cautions = list(_cautions(result))
    order = [*sorted(lost, key=_severity), *open_, *result.answered("kept")]
    rows = [(f"{change.part}, {NAMES[change.statistic]}", change) for change in order]
    table = table_of(
        "What changed",
        rows,
        {
            "old": lambda change: fixed(change.old, _digits(change)),
            "new": lambda change: fixed(change.new, _digits(change)),
            "change": _words,
            "margin": lambda change: f"{change.margin:g}",
            "texts": lambda change: f"{change.examples:,}",
            "answer": lambda change: change.answer,
        },
    )
    worst = [
        f"{change.part}, {NAMES[change.statistic]}: {_words(change)}"
        for change in order[: min(2, len(lost))]
    ]
    return Shown(
        "From one checkpoint to the next",
        "What did each language lose?",
        [finding, *([f"{enumeration(worst)}."] if worst else [])],
        f"Intervals hold for all changes together ({result.level:.2%} each).",
        f"--limit {2 * max(change.examples for change in open_)}" if open_ else "",
        cautions,
        [("old", result.old.name or ""), ("new", result.new.name or "")],
        [
            Section("Every number", [table], brief=True),
            method_section(
                "Both checkpoints read and write the same texts. Loss: nats a token. A number is "
                "lost where the whole interval of its change is worse than the margin, and kept "
                "where none of it is; else it cannot be told. Intervals of losses are Student's "
                "over texts, those of chrF++ from a paired bootstrap. Both hold nearly: where few "
                "texts change much they are too narrow. Outputs in another language: those that "
                "became wrong minus those that became right, each share with Wilson's interval."
            ),
        ],
        _figure(order[:LISTED], isclose((1 - result.level) * len(order), LEVEL)),
    )


command = Study(
    CompareRelease,
    release,
    result=ReleaseResult,
    show=_show,
    ends=lambda result: (
        LOST if result.answered("lost") else OPEN if result.answered("cannot tell") else 0
    ),
    usage="pocket pocket:step-06400",
)
