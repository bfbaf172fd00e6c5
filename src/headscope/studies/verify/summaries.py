"""Summaries without general heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.data.documents import Summarised, SummaryFile, digest_of, read_summaries
from headscope.data.languages import language_name, same_language
from headscope.data.prompts import Template, TemplateField
from headscope.errors import InputError
from headscope.evidence.controls import SelectedHeads
from headscope.evidence.rows import Evidence
from headscope.evidence.runner import room_for
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import Amount, HeadSet, Rank, check_geometry, count_of, resolve_heads
from headscope.heads.geometry import keys_of
from headscope.heads.resolve import place_of
from headscope.heads.store import check_finished, kind_of
from headscope.results.writing import Summaries, SummariesDetails
from headscope.settings import UNSIGNED, Nested, Option
from headscope.shown.words import count
from headscope.studies.comparison import (
    ALL_PARTS,
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.comparison_page import Words
from headscope.studies.documents import DocumentsChoice, document_sources, pocket_codes
from headscope.studies.leakage import check_text_leakage
from headscope.studies.models import POCKET
from headscope.studies.verify.reference import REFERENCES, Reference, drawn_apart, reference_number
from headscope.studies.verify.writing import (
    SHARE,
    about_prompts,
    few_prompts,
    fitted,
    groups_of,
    keep_numbers,
    sent_of,
    unmeasured,
    writing_cases,
    writing_extras,
    written,
)
from headscope.verify.removal_translations.conditions import check_gate
from headscope.verify.writing.measures import OFF_TARGET_MEASURES, SUMMARY_MEASURES, measured
from headscope.verify.writing.texts import Prompt, output_rows

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Ours. `{source}` is the text; the languages are both that of the text.
TEMPLATE = Template(
    "Summarise this text in {target_language} in one or two sentences\nText: {source}\nSummary:"
)
#: What the pocket model was trained to do instead: it never saw a summary.
REPEAT = Template("Repeat this sentence\nSentence: {source}\nAnswer:")
#: Texts of each language where no limit is given: of files, and of the pocket model's own.
TEXTS, POCKET_TEXTS = 100, 40
MEASURES = (*SUMMARY_MEASURES, *OFF_TARGET_MEASURES)


@dataclass(frozen=True, kw_only=True)
class VerifySummaries(Removing, Selecting):
    """Summarise without the heads that all languages share, and without random ones.

    ROUGE-L over words of the language, chrF++, and BERTScore where its command is installed
    (HEADSCOPE_BERTSCORE). 100 texts of each language are read unless --limit says otherwise.
    Without --data the bundled model repeats 40 sentences of each of its languages instead.

    Beside the result the run holds `prompts.jsonl`, `outputs.jsonl` (a row a language, condition
    and text) and `statistics.safetensors`.
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
                    held="documents",
                    panel="Data",
                ),
                "limit": options.LIMIT,
            },
        ),
    ] = field(default_factory=DocumentsChoice)
    summary_column: Annotated[
        str, Option("By name, or by number from 0.", metavar="COLUMN", panel="Data")
    ] = "summary"
    template: Annotated[
        TemplateField[Template | None],
        Option(
            "Prompt up to where the summary begins, with {source}, the text, and "
            "{target_language}, its language.",
            typed=str,
            read=Template.from_option,
            held="template",
            panel="Prompt",
        ),
    ] = TemplateField(None, Template)
    gate: Annotated[
        float, Option("Number by which the heads' outputs are multiplied; 0 removes.")
    ] = 0.0
    chat: options.Chat = None
    # None: twice the tokens of the reference and 32.
    max_new_tokens: options.MaxNewTokens = None

    def __post_init__(self) -> None:
        check_gate(self.gate)
        super().__post_init__()


@dataclass(frozen=True)
class CutPrompt(Prompt):
    """A prompt, and whether its text was `cut` to fit the context."""

    cut: bool


def general_heads(
    spec: str, k: Amount | None, lm: LanguageModel, rank: Rank = "above-chance"
) -> HeadSet:
    """The first k general heads of a run that found some, else the heads that `spec` names.

    Where fewer are general than asked for, those there are. Raises `InputError` if there is none.
    """
    place = place_of(spec)
    folder = None if place is None else place / "general"
    if folder is None or kind_of(folder) != "heads":
        heads = resolve_heads(spec, k, lm.geometry, default=SHARE, by=rank, model=lm.name)
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


def _read(config: VerifySummaries) -> Examples[SummaryFile]:
    files = _files(config)
    texts = (item.text for file in files.values() for item in file.items)
    leakage = check_text_leakage(config.heads, texts, config.allow_overlap)
    files, apart = _set_apart(config, files)
    return Examples(
        files,
        {code: [item.text for item in file.items] for code, file in files.items()},
        {code: file.digest for code, file in files.items()},
        leakage,
        lambda lm, config: _reference(config, apart, lm) if apart else Reference(),
    )


def _files(config: VerifySummaries) -> dict[str, SummaryFile]:
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
    if not reference_number(*config.ablate):
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


def _ready(
    lm: LanguageModel, config: VerifySummaries, examples: Examples[SummaryFile]
) -> tuple[VerifySummaries, Examples[SummaryFile]]:
    from headscope.lm.prompting import uses_chat

    config = replace(config, chat=uses_chat(lm, config.chat if config.texts.data else False))
    prompts = {code: _prompted(config, file, lm) for code, file in examples.parts.items()}
    return config, replace(examples, prompted=prompts, sent=sent_of(prompts))


def _prompted(
    config: VerifySummaries, file: SummaryFile, lm: LanguageModel
) -> tuple[CutPrompt, ...]:
    """The prompts of a language, with texts cut to fit the context."""
    from headscope.lm.prompting import wrap_prompts

    template, name = _template(config), language_name(file.language)
    prompts = []

    def render(text: str) -> str:
        return wrap_prompts(lm, [template.render(text, name, name).text], config.chat)[0]

    for item in file.items:
        limit = config.max_new_tokens or room_for(lm, item.summary)
        prompt, cut = fitted(lm, item.text, limit, render, f"{file.path}, line {item.line}")
        prompts.append(CutPrompt(item.id, prompt, item.summary, limit, cut))
    return tuple(prompts)


def _reference(
    config: VerifySummaries, apart: Mapping[str, SummaryFile], lm: LanguageModel
) -> Reference:
    """Prompts and summaries of the texts set aside, cut as those that are tested."""
    from headscope.lm.prompting import chat_writer

    writer = chat_writer(lm, config.chat)
    joint = " " if writer is None else writer.joint
    prompts = [prompt for file in apart.values() for prompt in _prompted(config, file, lm)]
    source = "set aside from the data" if config.texts.data else "of the pocket model's train split"
    return Reference(
        f"prompts and summaries {source}",
        tuple(f"{prompt.text}{joint}{prompt.reference}" for prompt in prompts),
        tuple(len(prompt.text) + len(joint) for prompt in prompts),
        not config.chat,
    )


def _heads(lm: LanguageModel, config: VerifySummaries, examples: Examples[SummaryFile]) -> Chosen:
    heads = general_heads(config.heads, config.k, lm, config.rank)
    return Chosen({ALL_PARTS: [SelectedHeads(heads, gates=(config.gate,))]})


def _measure(bench: Bench[VerifySummaries, SummaryFile]) -> Measured:
    config = bench.config
    groups = groups_of(bench)
    # A chat model ends its turn itself; a plain one goes on with the next text.
    plain = not config.chat
    texts = written(bench, groups, plain, plain)
    bench.run.write_jsonl("outputs.jsonl", output_rows(groups, texts))
    counts = measured(groups, texts, MEASURES, bench.examples.texts)
    (heads,) = bench.chosen.every()
    keep_numbers(bench.run, counts.parts)
    about = {
        "task": "summarise" if config.texts.data else "repeat",
        "template": _template(config).text,
        "chat": config.chat,
        "gate": config.gate,
        "heads": keys_of(heads),
        "data": about_prompts(bench),
        "cut": {
            code: sum(prompt.cut for prompt in prompts) for code, prompts in bench.prompted.items()
        },
        "not_measured": counts.missing,
    }
    statistics = {name: TEXT_MEASURES[name].statistic for name in MEASURES}
    return Measured(bench.table(counts.parts, statistics), about)


def _cautions(found: Evidence, details: SummariesDetails) -> Iterator[str]:
    if details.task == "repeat":
        yield (
            "No summaries were given: the model repeated sentences. This shows whether it can "
            "still write what it reads, not whether it can summarise."
        )
    if cut := sum(details.cut.values()):
        yield f"{count(cut, 'text')} cut to fit the context."
    yield from few_prompts(found, details)


WORDS = Words(
    "Summaries without general heads",
    "Does the model still write well without the heads that all languages share?",
    "prompt",
    "ROUGE-L is the F1 of the longest common sequence of words (characters where a script has no "
    "spaces between words), mean over texts. chrF++ compares sequences of characters and words of "
    "all texts together. BERTScore is F1 times 100, from hidden states of another model.",
    case="condition",
    joint="with",
)

comparison = Comparison(
    command="verify summaries",
    settings=VerifySummaries,
    result=Summaries,
    details=SummariesDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    measure=_measure,
    leads=lambda found: ["rouge_l"],
    cases=lambda found, details: writing_cases(found, "rouge_l"),
    answer=lambda found, details: unmeasured(found, "rouge_l"),
    cautions=_cautions,
    words=WORDS,
    extras=lambda result, run: writing_extras(result, run, "rouge_l"),
    usage="--heads runs/lahis --limit 20",
)
command = comparison.study
