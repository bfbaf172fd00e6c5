"""Summaries without general heads, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.data.documents import Document, Summarised, SummaryFile, digest_of, read_summaries
from headscope.data.languages import language_name, same_language
from headscope.data.prompts import Template, TemplateField
from headscope.errors import InputError
from headscope.evidence.controls import DEFAULT, Controlled
from headscope.evidence.rows import Basis, Condition, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import (
    Amount,
    HeadSet,
    Rank,
    about_rank,
    check_geometry,
    count_of,
    resolve_heads,
)
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished, kind_of
from headscope.progress import Progress
from headscope.results.writing import Summaries, SummariesDetails
from headscope.runs import encode
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.blocks import HeadSets, Shown
from headscope.shown.words import count
from headscope.studies.documents import DocumentsChoice, document_sources, pocket_codes
from headscope.studies.leakage import check_document_leakage
from headscope.studies.models import POCKET, PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import leakage_caution, named_places
from headscope.studies.study import Study
from headscope.studies.verify.reference import REFERENCES, Reference, drawn_apart
from headscope.studies.verify.writing import (
    SHARE,
    conditions_settings,
    fitted,
    keep_numbers,
    writing_cautions,
    writing_shown,
    writing_verdict,
    written,
)
from headscope.verify.translation.conditions import check_gate
from headscope.verify.writing.measures import (
    OFF_TARGET_MEASURES,
    SUMMARY_MEASURES,
    changed,
    group_evidence,
    measured,
)
from headscope.verify.writing.texts import Group, Prompt, output_rows

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

COMMAND = "verify summaries"
#: Ours. `{source}` is the text; the languages are both that of the text.
TEMPLATE = Template(
    "Summarise this text in {target_language} in one or two sentences\nText: {source}\nSummary:"
)
#: What the pocket model was trained to do instead: it never saw a summary.
REPEAT = Template("Repeat this sentence\nSentence: {source}\nAnswer:")
#: Texts of each language where no limit is given: of files, and of the pocket model's own.
TEXTS, POCKET_TEXTS = 100, 40


@dataclass(frozen=True)
class VerifySummaries(Controlled):
    """Summarise without the heads that all languages share, and without random ones.

    ROUGE-L over words of the language, chrF++, and BERTScore where its command is installed
    (HEADSCOPE_BERTSCORE). 100 texts of each language are read unless --limit says otherwise.
    Without --data the bundled model repeats 40 sentences of each of its languages instead.
    """

    # What `general_heads` reads; the heads count in the signature, not their place.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: Annotated[
        Amount | None,
        Option(
            "Number of heads, or a share such as 0.02 or 2%. Without it 1% of a run that found "
            "general heads, at least one; a set is used whole.",
            metavar="K",
            typed=str,
        ),
    ] = field(default=None, metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    texts: Annotated[
        DocumentsChoice,
        Nested(
            without=("split",),
            changed={
                "data": Option(
                    "Texts with summaries (JSON Lines, CSV, Parquet, …); LANG may be left out "
                    "where a column says it; repeatable. Without it pocket repeats sentences, "
                    "which is what it can do.",
                    metavar="LANG=FILE",
                ),
                "limit": options.LIMIT,
            },
        ),
    ] = field(default_factory=DocumentsChoice)
    summary_column: Annotated[str, Option("By name, or by number from 0.", metavar="COLUMN")] = (
        "summary"
    )
    template: Annotated[
        TemplateField[Template | None],
        Option(
            "Prompt up to where the summary begins, with {source}, the text, and "
            "{target_language}, its language.",
            typed=str,
            read=Template.from_option,
        ),
    ] = TemplateField(None, Template)
    gate: Annotated[
        float, Option("Number by which the heads' outputs are multiplied; 0 removes.")
    ] = 0.0
    draws: options.Draws = 10
    controls: options.Controls = DEFAULT
    chat: options.Chat = None
    # None: twice the tokens of the reference and 32.
    max_new_tokens: options.MaxNewTokens = None
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    # The mean over texts with summaries that are set aside.
    ablate: options.Ablate = "zero"


def verify_summaries(
    config: VerifySummaries, out: Path | None = None, progress: Progress | None = None
) -> Summaries:
    """Let the model summarise without general heads and without random ones, and compare.

    A run that was stopped goes on where it was. Beside the result the run holds `prompts.jsonl`,
    `outputs.jsonl` (a row a language, condition and text) and `statistics.safetensors`.
    """
    from headscope.lm.prompting import uses_chat

    check_gate(config.gate)
    files = _read(config)
    tested = [
        Document(item.id, item.text, code, item.line)
        for code, file in files.items()
        for item in file.items
    ]
    leakage = check_document_leakage(config.heads, tested, config.allow_overlap)
    files, apart = _set_apart(config, files)
    lm = config.model.load_for()
    heads = general_heads(config.heads, config.k, lm, config.rank)
    texts = ([item.text for item in file.items] for file in files.values())
    basis = Basis.on(lm, texts)
    conditions = (
        Condition(),
        *changed("", len(heads), heads, config.gate, config, config.ablate, basis),
    )
    chat = uses_chat(lm, False if not config.texts.data else config.chat)
    config = replace(config, chat=chat)
    groups, cut = _groups(config, files, lm, chat, conditions)
    reference = _reference(config, apart, lm, chat) if apart else Reference()
    ranking = about_rank(heads)
    settings = {
        "settings": config,
        "conditions": conditions_settings(groups),
        "rank": ranking["rank"],
        "leakage": encode(leakage),
        **reference.given,
    }

    def make(run: Run) -> Summaries:
        replacements = reference.replacements(lm, config)
        # A chat model ends its turn itself; a plain one goes on with the next text.
        texts = written(
            lm, groups, run, not chat, not chat, config.batch_tokens, replacements, progress
        )
        run.write_jsonl("outputs.jsonl", output_rows(groups, texts))
        if progress:
            progress("measuring", 0, 1)
        sources = {code: [item.text for item in file.items] for code, file in files.items()}
        names = (*SUMMARY_MEASURES, *OFF_TARGET_MEASURES)
        counts = measured(groups, texts, names, sources)
        if progress:
            progress("measuring", 1, 1)
        keep_numbers(run, counts.parts)
        statistics = {name: TEXT_MEASURES[name].statistic for name in names}
        found = group_evidence(groups, counts.parts, statistics, config.seed, progress)
        details = SummariesDetails(
            task="summarise" if config.texts.data else "repeat",
            template=_template(config).text,
            chat=chat,
            **ranking,
            gate=config.gate,
            ablate=config.ablate,
            reference_text=reference.facts,
            draws=config.draws,
            seed=config.seed,
            heads=tuple(map(str, heads)),
            data={
                code: {"path": file.path, "digest": file.digest, "prompts": len(file.items)}
                for code, file in files.items()
            },
            cut=cut,
            leakage=leakage,
            not_measured=counts.missing,
        )
        return Summaries(
            verdict=writing_verdict(found, "rouge_l"),
            cautions=tuple(_cautions(details, found)),
            evidence=found,
            details=details,
        )

    data = {code: file.digest for code, file in files.items()}
    return run_with_model(lm, COMMAND, out, settings, data, make, seed=config.seed, kind=Summaries)


def general_heads(
    spec: str, k: Amount | None, lm: LanguageModel, rank: Rank = "above-chance"
) -> HeadSet:
    """The first k general heads of a run that found some, else the heads that `spec` names.

    Where fewer are general than asked for, those there are. Raises `InputError` if there is none.
    """
    place = place_of(spec)
    folder = None if place is None else place / "general"
    if folder is None or kind_of(folder) != "heads":
        heads = resolve_heads(spec, k, lm.geometry, default=SHARE, by=rank)
        if not len(heads):
            raise InputError(f"{spec}: holds no heads, so there is nothing to remove; name some")
        return heads
    check_finished(folder)
    general = HeadSet.from_pretrained(folder)
    check_geometry(general, lm.geometry, str(folder))
    if not len(general):
        raise InputError(
            f"{folder}: no head is general to these languages, so there is nothing to remove; find "
            "heads of more documents or with a lower quantile"
        )
    count = count_of(SHARE if k is None else k, lm.geometry.total)
    return HeadSet(general.geometry, general.heads[:count], general.origin)


def _template(config: VerifySummaries) -> Template:
    return config.template or (TEMPLATE if config.texts.data else REPEAT)


def _read(config: VerifySummaries) -> dict[str, SummaryFile]:
    """The texts of each language by its code."""
    choice = config.texts
    if not choice.data:
        return _of_pocket(config, "test", choice.limit or POCKET_TEXTS)
    files: dict[str, SummaryFile] = {}
    for source in document_sources(choice, choice.limit or TEXTS):
        for file in read_summaries(source, config.summary_column):
            for other in files:
                if same_language(other, file.language):
                    raise InputError(
                        f"{file.path} and {files[other].path} both hold texts in "
                        f"{file.language}; put them into one file"
                    )
            files[file.language] = file
    return files


def _set_apart(
    config: VerifySummaries, files: dict[str, SummaryFile]
) -> tuple[dict[str, SummaryFile], dict[str, SummaryFile]]:
    """The texts to test on, and those that what replaces heads is made from."""
    if config.ablate == "zero":
        return files, {}
    if not config.texts.data:
        return files, _of_pocket(config, "train", REFERENCES)
    tested, apart = {}, {}
    for code, file in files.items():
        rest, drawn = drawn_apart(file.items, config.seed, file.path)
        tested[code], apart[code] = replace(file, items=rest), replace(file, items=drawn)
    return tested, apart


def _of_pocket(
    config: VerifySummaries, split: Literal["train", "test"], limit: int
) -> dict[str, SummaryFile]:
    """Sentences of one of the pocket model's splits, each its own "summary": it can repeat them."""
    from headscope.pocket.sample import sample_pairs
    from headscope.pocket.world.languages import CODES

    choice = config.texts
    if config.model.model != POCKET:
        raise InputError(
            f"no data given for the model {config.model.model}; add --data LANG=FILE with texts "
            "and summaries, such as --data de=summaries.jsonl"
        )
    files = {}
    for code in pocket_codes(choice.languages):
        pair = f"{code}-{next(other for other in CODES if other != code)}"
        pairs = sample_pairs(pair, split, limit, config.seed)
        items = tuple(
            Summarised(row.id, row.source, row.source, at) for at, row in enumerate(pairs.pairs, 2)
        )
        digest = digest_of([item.text for item in items])
        files[code] = SummaryFile(items, code, pairs.path, digest)
    return files


def _reference(
    config: VerifySummaries, apart: dict[str, SummaryFile], lm: LanguageModel, chat: bool
) -> Reference:
    """Prompts and summaries of the texts set aside, cut as those that are tested."""
    from headscope.lm.prompting import chat_writer

    writer = chat_writer(lm, chat)
    joint = " " if writer is None else writer.joint
    groups, _ = _groups(config, apart, lm, chat, ())
    prompts = [prompt for group in groups for prompt in group.prompts]
    source = "set aside from the data" if config.texts.data else "of the pocket model's train split"
    return Reference(
        f"prompts and summaries {source}",
        tuple(f"{prompt.text}{joint}{prompt.reference}" for prompt in prompts),
        tuple(len(prompt.text) + len(joint) for prompt in prompts),
        not chat,
    )


def _groups(
    config: VerifySummaries,
    files: dict[str, SummaryFile],
    lm: LanguageModel,
    chat: bool,
    conditions: tuple[Condition, ...],
) -> tuple[list[Group], dict[str, int]]:
    """The prompts of each language, and how many texts were cut to fit the context."""
    from headscope.lm.prompting import wrap_prompts

    template = _template(config)
    groups, cut = [], {}
    for code, file in files.items():
        name, prompts, cut[code] = language_name(code), [], 0

        def render(text: str, name: str = name) -> str:
            return wrap_prompts(lm, [template.render(text, name, name).text], chat)[0]

        for item in file.items:
            limit = config.max_new_tokens or 2 * len(lm.encode(item.summary, special=False)) + 32
            place = f"{file.path}, line {item.line}"
            prompt, shorter = fitted(lm, item.text, limit, render, place)
            cut[code] += shorter
            prompts.append(Prompt(item.id, prompt, item.summary, limit))
        groups.append(Group(code, tuple(prompts), conditions))
    return groups, cut


def _cautions(details: SummariesDetails, found: Evidence) -> list[str]:
    cautions = leakage_caution(details.leakage, "texts")
    if details.task == "repeat":
        cautions.append(
            "No summaries were given: the model repeated sentences. This shows whether it can "
            "still write what it reads, not whether it can summarise."
        )
    if cut := sum(details.cut.values()):
        cautions.append(f"{count(cut, 'text')} cut to fit the context.")
    return [*cautions, *writing_cautions(found, details)]


def _show(result: Summaries, run: Path) -> Shown:
    """Quality with the general heads, without them and without random ones, and outputs."""
    title = "Repeated sentences" if result.details.task == "repeat" else "Summaries"
    method = (
        "ROUGE-L is the F1 of the longest common sequence of words (characters where a script has "
        "no spaces between words), mean over texts. chrF++ compares sequences of characters and "
        "words of all texts together. BERTScore is F1 times 100, from hidden states of another "
        "model."
    )
    sets = {"general": named_places(result.details.heads)}
    return writing_shown(
        result,
        run,
        f"{title} without general heads",
        "Does the model still write well without the heads that all languages share?",
        SUMMARY_MEASURES,
        OFF_TARGET_MEASURES,
        HeadSets("Heads that all languages share", sets),
        method,
    )


command = Study(VerifySummaries, verify_summaries, result=Summaries, show=_show)
