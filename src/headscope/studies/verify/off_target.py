"""Outputs in another language than asked for, without heads of that language, in a run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.answers import answer_of
from headscope.data.documents import DocumentFile
from headscope.data.languages import same_language
from headscope.data.pairs import PairFile
from headscope.data.prompts import (
    DEFAULT_TEMPLATE,
    TEMPLATE_OPTION,
    Template,
    TemplateField,
    translation_prompts,
)
from headscope.errors import InputError
from headscope.evidence.controls import DEFAULT, Controlled
from headscope.evidence.rows import Basis, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import about_rank
from headscope.measure.baseline import Rules
from headscope.progress import Progress
from headscope.results.common import Checked
from headscope.results.writing import OffTarget, OffTargetDetails
from headscope.runs import encode
from headscope.settings import GIVEN, UNSIGNED, Nested, Option
from headscope.shown.blocks import HeadSets, Section, Shown, table_of
from headscope.shown.words import enumeration, percent
from headscope.studies.baseline import check_translations
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.leakage import check_document_leakage, check_leakage
from headscope.studies.models import POCKET, PROMPTED, ModelChoice, run_with_model
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.shows import leakage_caution, named_places
from headscope.studies.study import Study
from headscope.studies.verify.reference import (
    reference_number,
    translations_or_documents,
)
from headscope.studies.verify.writing import (
    conditions_settings,
    in_words,
    keep_numbers,
    writing_cautions,
    writing_heads,
    writing_shown,
    writing_verdict,
    written,
)
from headscope.verify.writing.measures import (
    OFF_TARGET_MEASURES,
    group_evidence,
    identified,
    identified_rows,
    language_conditions,
    languages_of,
    measured,
    own_heads,
)
from headscope.verify.writing.texts import Group, Prompt

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

COMMAND = "verify off-target"
#: Prompts of each language where no limit is given.
PROMPTS = 100
#: A sentence of the pocket world has about a dozen tokens, a document some eighty.
POCKET_START, POCKET_NEW = 16, 32

Ask = Literal["translate", "continue"]
DATA = Option(
    "What to translate: sentence pairs, with several --pair as PAIR=DATA; or what to continue: "
    "documents, as LANG=DATA; repeatable. May be left out for pocket.",
    metavar="DATA",
)


@dataclass(frozen=True)
class VerifyOffTarget(Controlled):
    """Count outputs in another language than asked for, without heads of that language.

    Removed are its specific heads, as many most important ones, and as many random ones. 100
    prompts of each direction or language are read unless --limit says otherwise, of the bundled
    model's own sentences 200 in all, at least 5 of each direction.
    """

    # A run of LAHIS, or heads that `resolve_heads` reads. They count in the signature, as the
    # reference texts do, not their place.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.AmountOfEach = field(default=None, metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    ask: Annotated[Ask, Option("Translate into the language, or continue documents in it.")] = (
        "translate"
    )
    # Those of what is not asked for are left aside.
    pairs: Annotated[PairsChoice, Nested(changed={"data": DATA})] = field(
        default_factory=PairsChoice
    )
    documents: Annotated[
        DocumentsChoice, Nested(changed={"data": DATA, "limit": options.LIMIT})
    ] = field(default_factory=DocumentsChoice)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    start_tokens: Annotated[
        int | None,
        Option(
            "Tokens of a document that are given to continue; without it 64, or 16 for pocket.",
            min=1,
        ),
    ] = None
    draws: options.Draws = 10
    controls: options.Controls = DEFAULT
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    # None: of a translation twice the source's and 32, of a document 64 (pocket: 32).
    max_new_tokens: options.MaxNewTokens = None
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)
    rank: options.Rank = field(default="above-chance", metadata=UNSIGNED)
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    ablate: options.Ablate = "zero"
    # None: of sentence pairs some are set aside, else pocket's own.
    reference_texts: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)


@dataclass(frozen=True)
class _Asked:
    """What is asked for in one language: prompts, where they come from, whether they are chats."""

    prompts: tuple[Prompt, ...]
    path: str
    digest: str


def verify_off_target(
    config: VerifyOffTarget, out: Path | None = None, progress: Progress | None = None
) -> OffTarget:
    """Let the model write in each language without its heads and without random ones.

    A run that was stopped goes on where it was. Beside the result the run holds `prompts.jsonl`,
    `outputs.jsonl` (a row a language, condition and prompt, with the identified language) and
    `statistics.safetensors`.
    """
    from headscope.lm.generation import newline_stop
    from headscope.lm.prompting import uses_chat

    if config.ask == "translate":
        config = replace(config, documents=DocumentsChoice())
    else:
        config = replace(config, pairs=PairsChoice())
    directions, files = _texts(config)
    if config.ask == "translate":
        leakage = check_leakage(config.heads, directions, config.allow_overlap)
    else:
        every = [document for file in files.values() for document in file.documents]
        leakage = check_document_leakage(config.heads, every, config.allow_overlap)
    lm = config.model.load_for()
    plain = config.ask == "continue" or not config.pairs.data  # pocket's prompts are complete
    chat = uses_chat(lm, False if plain else config.chat, config.template.text)
    config = replace(config, chat=chat)
    by_code = (
        _translations(config, directions, lm, chat)
        if config.ask == "translate"
        else _beginnings(config, files, lm)
    )
    heads_of = writing_heads(config.heads, config.k, list(by_code), lm, config.rank)
    chosen = (heads for sets in heads_of.values() for heads in (sets.chosen, sets.full))
    ranking = about_rank(*chosen)
    prompts = ([prompt.text for prompt in source.prompts] for source in by_code.values())
    basis = Basis.on(lm, prompts)
    groups = [
        Group(
            code,
            source.prompts,
            language_conditions(heads_of[code], config, config.ablate, basis),
        )
        for code, source in by_code.items()
        if code in heads_of
    ]
    reference = translations_or_documents(lm, directions, config)
    settings = {
        "settings": config,
        "conditions": conditions_settings(groups),
        "rank": ranking["rank"],
        "leakage": encode(leakage),
        "reference text": reference.digest,
    }

    def make(run: Run) -> OffTarget:
        checked = Checked()
        if directions:
            works = check_translations(lm, directions, config, run, config.baseline, progress)
            checked = Checked(**works)
        replacements = reference.replacements(lm, config)
        # A plain prompt asks for one line, a chat's answer may have several and ends by itself;
        # where the pocket model goes on from a document with a second line, it translates.
        newline = not chat if config.ask == "translate" else not config.documents.data
        stop = newline_stop(newline, config.answer_only)
        texts = written(
            lm, groups, run, stop, not chat, config.batch_tokens, replacements, progress
        )
        if config.answer_only:  # the run keeps the whole
            texts = [[list(map(answer_of, made)) for made in several] for several in texts]
        counts = measured(groups, texts, OFF_TARGET_MEASURES)
        identifier, named = identified(texts)
        run.write_jsonl("outputs.jsonl", identified_rows(groups, texts, named))
        keep_numbers(run, counts.parts)
        statistics = {name: TEXT_MEASURES[name].statistic for name in OFF_TARGET_MEASURES}
        found = group_evidence(groups, counts.parts, statistics, config.seed, progress)
        details = OffTargetDetails(
            ask=config.ask,
            template=config.template.text if config.ask == "translate" else None,
            **ranking,
            chat=chat,
            draws=config.draws,
            seed=config.seed,
            heads={code: heads.row for code, heads in heads_of.items()},
            heads_of=own_heads(groups, found),
            without_heads=tuple(code for code in by_code if code not in heads_of),
            data={
                code: {"path": source.path, "digest": source.digest, "prompts": len(source.prompts)}
                for code, source in by_code.items()
            },
            leakage=leakage,
            baseline_check=checked.baseline_check if directions else None,
            ablate=config.ablate,
            reference_text=reference.facts,
            identifier=identifier,
            written=languages_of(groups, named),
            not_measured=counts.missing,
        )
        return OffTarget(
            baseline_works=checked.baseline_works,
            verdict=writing_verdict(found, "off_target"),
            cautions=tuple(_cautions(details, found)),
            evidence=found,
            details=details,
        )

    data = {code: source.digest for code, source in by_code.items()}
    data |= {f"{name} shots": file.shots_digest for name, file in directions.items()}
    return run_with_model(lm, COMMAND, out, settings, data, make, seed=config.seed, kind=OffTarget)


def _texts(config: VerifyOffTarget) -> tuple[dict[str, PairFile], dict[str, DocumentFile]]:
    model = config.model.model
    if config.ask == "continue":
        return {}, read_languages(
            config.documents, model, "test", config.seed, PROMPTS, pocket_limit=PROMPTS
        )
    pairs = config.pairs
    if not pairs.data and model == POCKET and pairs.limit is None:
        # As many prompts of each language as there are of other languages to translate from.
        number = len(read_directions(replace(pairs, limit=1), POCKET, "test", seed=config.seed))
        pairs = replace(pairs, limit=max(5, 2 * PROMPTS // number))
    apart = 0 if config.reference_texts else reference_number(config.ablate)
    directions = read_directions(pairs, model, "test", PROMPTS, config.seed, apart)
    if config.pairs.data and pairs.limit is None:
        directions = {
            name: replace(file, pairs=file.pairs[:PROMPTS]) for name, file in directions.items()
        }
    return directions, {}


def _translations(
    config: VerifyOffTarget, directions: dict[str, PairFile], lm: LanguageModel, chat: bool
) -> dict[str, _Asked]:
    """Translation prompts by target language, whatever they are translated from."""
    from headscope.lm.prompting import chat_writer

    writer, bos = chat_writer(lm, chat), lm.tokenizer.bos_token or ""
    by_target: dict[str, list[tuple[str, PairFile]]] = {}
    for name, pairs in directions.items():
        target = pairs.target_language
        code = next((code for code in by_target if same_language(code, target)), target)
        by_target.setdefault(code, []).append((name, pairs))
    by_code = {}
    for code, parts in by_target.items():
        prompts = []
        for name, pairs in parts:
            written = translation_prompts(pairs, config.template, writer, bos)
            for pair, wording in zip(pairs.pairs, written, strict=True):
                limit = config.max_new_tokens or 2 * len(lm.encode(pair.source, special=False)) + 32
                prompts.append(Prompt(f"{name} {pair.id}", wording.text, pair.target, limit))
        path = ", ".join(dict.fromkeys(pairs.path for _, pairs in parts))
        by_code[code] = _Asked(tuple(prompts), path, " ".join(file.digest for _, file in parts))
    return by_code


def _beginnings(
    config: VerifyOffTarget, documents: dict[str, DocumentFile], lm: LanguageModel
) -> dict[str, _Asked]:
    """The first tokens of each document; documents that are not longer are left out."""
    pocket = not config.documents.data
    start = config.start_tokens or (POCKET_START if pocket else 64)
    limit = config.max_new_tokens or (POCKET_NEW if pocket else 64)
    by_code = {}
    for code, file in documents.items():
        prompts = []
        for document in file.documents:
            ids = lm.encode(document.text, special=False)
            if len(ids) <= start:
                continue
            begun = lm.decode(ids[:start])
            # A character of several tokens may be cut in two.
            text = begun.rstrip("\ufffd").rstrip()
            if text:
                rest = lm.decode(ids[start : start + limit])
                prompts.append(Prompt(document.id, text, rest.strip(), limit))
        if not prompts:
            raise InputError(
                f"{file.path}: no document in {code} has more than {start} tokens, so there is "
                "nothing to go on from; give longer ones or a lower --start-tokens"
            )
        by_code[code] = _Asked(tuple(prompts), file.path, file.digest)
    return by_code


def _cautions(details: OffTargetDetails, found: Evidence) -> list[str]:
    cautions = leakage_caution(details.leakage, "texts")
    base = found.level("off_target")
    if base is not None and base.value >= 0.5:
        cautions.append(
            f"The original model writes {percent(base.value)} of outputs in another language, "
            "so removal can show little."
        )
    if details.too_few:
        few = [f"{code} {own.available} of {own.k}" for code, own in details.too_few.items()]
        cautions.append(f"Fewer specific heads exist than were asked for: {enumeration(few)}.")
    if details.without_heads:
        cautions.append(f"Without known heads and left out: {enumeration(details.without_heads)}.")
    return [*cautions, *writing_cautions(found, details)]


def _show(result: OffTarget, run: Path) -> Shown:
    """Shares of outputs in another language, which languages these are, and outputs."""
    details = result.details
    texts = "translations" if details.ask == "translate" else "continued documents"
    sets = {
        f"{code}, {words}": named_places(heads)
        for code, own in details.heads.items()
        for words, heads in (("specific", own.chosen), ("most important", own.full))
        if heads
    }
    method = (
        "Of each language its own heads are removed: specific ones are important in few "
        "languages, the most important ones are as many by importance alone."
    )
    return writing_shown(
        result,
        run,
        "Language of outputs without language heads",
        f"Without a language's heads, how many {texts} are in another language?",
        ["off_target"],
        ["empty"],
        HeadSets("Heads removed, best first", sets),
        method,
        _languages(result),
        facts=[("identified by", details.identifier or "")],
    )


def _languages(result: OffTarget) -> list[Section]:
    """In which language outputs are, of the original model and without selected heads."""
    found = result.evidence
    names = {found.original.id: "original", **{each.id: in_words(each) for each in found.selected}}
    rows = [
        (f"{code}, {names[condition]}", languages)
        for code, written in result.details.written.items()
        for condition, languages in written.items()
        if condition in names
    ]
    note = "Outputs without a letter are in none. The identifier errs on short texts"
    table = table_of(
        "Languages of the outputs",
        rows,
        {
            "outputs": lambda counts: sum(counts.values()),
            "in which language": lambda counts: ", ".join(f"{c} {n}" for c, n in counts.items()),
        },
        note,
    )
    return [Section("In which language instead", [table])] if rows else []


command = Study(VerifyOffTarget, verify_off_target, result=OffTarget, show=_show)
