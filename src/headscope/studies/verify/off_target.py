"""Outputs in another language than asked for, without heads of that language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.answers import answer_of
from headscope.data.documents import DocumentFile
from headscope.data.languages import language_name, same_language
from headscope.data.pairs import PairFile
from headscope.data.prompts import (
    DEFAULT_TEMPLATE,
    TEMPLATE_OPTION,
    Template,
    TemplateField,
)
from headscope.errors import InputError
from headscope.evidence.rows import Evidence
from headscope.evidence.runner import prompts_of, room_for
from headscope.evidence.table import own_heads
from headscope.evidence.texts import TEXT_MEASURES
from headscope.measure.baseline import Rules
from headscope.measure.identify import check_known
from headscope.measure.identify import same_language as identified_alike
from headscope.results.writing import OffTarget, OffTargetDetails
from headscope.settings import GIVEN, UNSIGNED, Nested, Option
from headscope.shown.words import enumeration, percent
from headscope.studies.comparison import (
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
    Removing,
    Selecting,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.leakage import check_leakage, check_text_leakage
from headscope.studies.pairs import (
    PairsChoice,
    pair_cautions,
    pair_examples,
    read_test_directions,
)
from headscope.studies.verify.reference import (
    Reference,
    documents_for,
    reference_number,
    translations,
    translations_or_documents,
)
from headscope.studies.verify.writing import (
    about_prompts,
    few_prompts,
    groups_of,
    keep_numbers,
    languages_section,
    mended,
    sent_of,
    unmeasured,
    writing_cases,
    writing_extras,
    writing_heads,
    written,
)
from headscope.verify.writing.measures import (
    GIVEN_STATISTIC,
    OFF_TARGET_MEASURES,
    identified,
    identified_rows,
    in_language,
    languages_of,
    measured,
    own_sets,
)
from headscope.verify.writing.texts import Prompt

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Prompts of each language where no limit is given.
PROMPTS = 100
#: A sentence of the pocket world has about a dozen tokens, a document some eighty.
POCKET_START, POCKET_NEW = 16, 32

Ask = Literal["translate", "continue"]
DATA = Option(
    "Sentence pairs to translate (PAIR=DATA if several), or documents to continue (LANG=DATA). Not "
    "needed for pocket.",
    metavar="DATA",
    held="pairs",
    panel="Data",
)


@dataclass(frozen=True, kw_only=True)
class VerifyOffTarget(Removing, Selecting):
    """Count outputs in another language than asked for, without heads of that language.

    Removed are its specific heads, as many most important ones, and as many random ones; with
    --give they write their mean output in another language. Without --limit 100 prompts of each
    direction or language are read, of pocket's own 200, at least 5 of each. A sentence is asked
    for once in a language.
    """

    # A run of LAHIS, or heads that `resolve_heads` reads. They count in the signature, as the
    # reference texts do, not their place.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.AmountOfEach = field(default=None, metadata=UNSIGNED)
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
    give: Annotated[
        str | None,
        Option(
            "In place of the heads' output put their mean in translations into this language, and "
            "count outputs in it; its sentences are among the data, and are not asked for.",
            metavar="LANG",
            panel="Expert",
        ),
    ] = field(default=None, metadata=GIVEN)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    start_tokens: Annotated[
        int | None,
        Option(
            "Tokens of a document that are given to continue; without it 64, or 16 for pocket.",
            min=1,
            panel="Expert",
        ),
    ] = None
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    # None: of a translation twice the source's and 32, of a document 64 (pocket: 32).
    max_new_tokens: options.MaxNewTokens = None
    baseline: Annotated[Rules, Nested(without=("errors",))] = field(default_factory=Rules)
    # None: of sentence pairs some are set aside, else pocket's own.
    reference_texts: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.give is None:
            return
        language_name(self.give)
        check_known(self.give, "give another language")
        if self.ask != "translate" or self.reference_texts:
            raise InputError(
                "--give takes its mean output from translations among the data; leave --ask "
                "continue and --reference away"
            )
        if self.ablate == ("zero",):
            object.__setattr__(self, "ablate", ("mean",))
        if self.ablate != ("mean",):
            raise InputError("--give puts a mean output in place; leave --ablate away")


@dataclass(frozen=True)
class IntoLanguage:
    """Sentences to be translated into one language, by direction."""

    directions: Mapping[str, PairFile]

    @property
    def path(self) -> str:
        """Where they were read from."""
        return ", ".join(dict.fromkeys(pairs.path for pairs in self.directions.values()))

    @property
    def digest(self) -> str:
        """Of all directions."""
        return " ".join(pairs.digest for pairs in self.directions.values())


Requested = IntoLanguage | DocumentFile


def _read(config: VerifyOffTarget) -> Examples[Requested]:
    # Controls look at prompts, which need the model.
    if config.ask == "continue":
        files = read_languages(
            config.documents, config.model.model, "test", config.seed, PROMPTS, PROMPTS
        )
        texts = (document.text for file in files.values() for document in file.documents)
        leakage = check_text_leakage(config.heads, texts, config.allow_overlap)
        reference = documents_for(config, config.reference_texts)
        digests = {code: file.digest for code, file in files.items()}
        return Examples(files, {}, digests, leakage, lambda lm, config: reference)
    directions = _directions(config)
    most = config.pairs.limit or (PROMPTS if config.pairs.data else _of_pocket(len(directions)))
    if config.give is None:
        asked = _asked_once(directions, most)
        examples = pair_examples(asked, config, translations_or_documents)
    else:
        asked, given = _asked_and_given(directions, config.give)
        asked = _asked_once(asked, most)
        examples = replace(
            pair_examples(asked, config, lambda lm, asked, config: _giving(lm, given, config)),
            leakage=check_leakage(config.heads, {**asked, **given}, config.allow_overlap),
            cautions=pair_cautions(directions),
        )
    by_target = _by_target(asked)
    digests = {code: part.digest for code, part in by_target.items()}
    digests |= {f"{name} shots": file.shots_digest for name, file in directions.items()}
    return Examples(
        by_target,
        {},
        digests,
        examples.leakage,
        examples.reference,
        examples.works,
        cautions=examples.cautions,
    )


def _directions(config: VerifyOffTarget) -> dict[str, PairFile]:
    """Sentences to translate, so many of each direction that each need be asked for but once."""
    apart = 0 if config.reference_texts else reference_number(*config.ablate)
    choice, limit = config.pairs, config.pairs.limit
    several = max(len(choice.data), len(choice.pair))
    return read_test_directions(
        replace(choice, limit=limit * several if limit and choice.data else None),
        config.model.model,
        config.seed,
        apart,
        lambda number: number * (limit or _of_pocket(number)),
        config.give,
    )


def _of_pocket(directions: int) -> int:
    # As many prompts of each language as there are of other languages to translate from.
    return max(5, 2 * PROMPTS // directions)


def _asked_once(directions: Mapping[str, PairFile], most: int) -> dict[str, PairFile]:
    """The directions, those into one language without a sentence in common: what stands in several
    is kept in one of them, each in turn, at most so many; without those that have none left.
    Outputs of one sentence tell less than those of several.
    """
    once = {}
    for target in _by_target(directions).values():
        holders: dict[str, list[str]] = {}
        for name, file in target.directions.items():
            for pair in file.pairs:
                holders.setdefault(pair.target, []).append(name)
        kept: Counter[str] = Counter()
        keeper: dict[str, str] = {}
        for sentence, names in holders.items():
            keeper[sentence] = min(names, key=kept.__getitem__)
            kept[keeper[sentence]] += 1
        for name, file in target.directions.items():
            own = tuple(pair for pair in file.pairs if keeper[pair.target] == name)
            once[name] = replace(file, pairs=own[:most])
    return {name: once[name] for name in directions if once[name].pairs}


def _asked_and_given(
    directions: Mapping[str, PairFile], give: str
) -> tuple[dict[str, PairFile], dict[str, PairFile]]:
    """The directions into other languages than the one given, and those into it, of which the
    sentences that are set aside alone are used."""
    given = {
        name: replace(file, pairs=())
        for name, file in directions.items()
        if same_language(file.target_language, give)
    }
    asked = {name: file for name, file in directions.items() if name not in given}
    if not asked or not given:
        raise InputError(
            f"--give {give} needs sentences in {language_name(give)}, and others that are asked "
            f"for in another language; the data has {', '.join(directions)}"
        )
    for name, file in asked.items():
        if identified_alike(file.target_language, give):
            raise InputError(
                f"outputs of {name} cannot be told from {language_name(give)}; leave {name} out, "
                "or give another language"
            )
    return asked, given


def _giving(lm: LanguageModel, given: Mapping[str, PairFile], config: VerifyOffTarget) -> Reference:
    """What heads write in translations into the language given, of the sentences set aside."""
    return replace(translations(lm, given, config), everywhere=True)


def _by_target(directions: Mapping[str, PairFile]) -> dict[str, IntoLanguage]:
    """Sentences by target language, whatever they are translated from."""
    by_target: dict[str, dict[str, PairFile]] = {}
    for name, pairs in directions.items():
        target = pairs.target_language
        code = next((code for code in by_target if same_language(code, target)), target)
        by_target.setdefault(code, {})[name] = pairs
    return {code: IntoLanguage(files) for code, files in by_target.items()}


def _ready(
    lm: LanguageModel, config: VerifyOffTarget, examples: Examples[Requested]
) -> tuple[VerifyOffTarget, Examples[Requested]]:
    from headscope.lm.prompting import uses_chat

    # What is not asked for is left aside; pocket's prompts are complete.
    if config.ask == "translate":
        config = replace(config, documents=DocumentsChoice())
    else:
        config = replace(config, pairs=PairsChoice())
    plain = config.ask == "continue" or not config.pairs.data
    chat = uses_chat(lm, False if plain else config.chat, config.template.text)
    config = replace(config, chat=chat)
    prompts = {
        code: _beginnings(config, code, file, lm)
        if isinstance(file, DocumentFile)
        else _translations(config, file.directions, lm)
        for code, file in examples.parts.items()
    }
    texts = {code: [prompt.text for prompt in own] for code, own in prompts.items()}
    return config, replace(examples, prompted=prompts, sent=sent_of(prompts), texts=texts)


def _translations(
    config: VerifyOffTarget, directions: Mapping[str, PairFile], lm: LanguageModel
) -> tuple[Prompt, ...]:
    prompts = []
    for name, pairs in directions.items():
        wordings = prompts_of(lm, pairs, config.template, config.chat)
        for pair, wording in zip(pairs.pairs, wordings, strict=True):
            limit = config.max_new_tokens or room_for(lm, pair.source)
            prompts.append(Prompt(f"{name} {pair.id}", wording.text, pair.target, limit))
    return tuple(prompts)


def _beginnings(
    config: VerifyOffTarget, code: str, file: DocumentFile, lm: LanguageModel
) -> tuple[Prompt, ...]:
    """The first tokens of each document; documents that are not longer are left out."""
    pocket = not config.documents.data
    start = config.start_tokens or (POCKET_START if pocket else 64)
    limit = config.max_new_tokens or (POCKET_NEW if pocket else 64)
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
    return tuple(prompts)


def _heads(lm: LanguageModel, config: VerifyOffTarget, examples: Examples[Requested]) -> Chosen:
    heads = writing_heads(config.heads, config.k, list(examples.parts), lm, config.rank)
    sets = {code: own_sets(heads[code]) for code in examples.parts if code in heads}
    return Chosen(sets, known=heads)


def _measure(bench: Bench[VerifyOffTarget, Requested]) -> Measured:
    from headscope.lm.generation import newline_stop

    config, heads = bench.config, bench.chosen.known
    groups = groups_of(bench)
    # A plain prompt asks for one line, a chat's answer may have several and ends by itself;
    # where the pocket model goes on from a document with a second line, it translates.
    newline = not config.chat if config.ask == "translate" else not config.documents.data
    stop = newline_stop(newline, config.answer_only)
    texts = written(bench, groups, stop, not config.chat)
    if config.answer_only:  # the run keeps the whole
        texts = [[list(map(answer_of, made)) for made in several] for several in texts]
    counts = measured(groups, texts, OFF_TARGET_MEASURES)
    identifier, named = identified(texts)
    bench.run.write_jsonl("outputs.jsonl", identified_rows(groups, texts, named))
    statistics = {name: TEXT_MEASURES[name].statistic for name in OFF_TARGET_MEASURES}
    numbers, how = counts.parts, {}
    if config.give and named is not None:
        given = zip(groups, in_language(named, config.give), strict=True)
        numbers = {group.name: {"given": own, **numbers[group.name]} for group, own in given}
        words = f"share in {language_name(config.give)}"
        statistics = {"given": replace(GIVEN_STATISTIC, words=words), **statistics}
        how = {"helps": lambda condition: True, "harmed": OFF_TARGET_MEASURES}
    keep_numbers(bench.run, numbers)
    found = bench.table(numbers, statistics, **how)
    about = {
        "ask": config.ask,
        "give": config.give,
        "template": config.template.text if config.ask == "translate" else None,
        "chat": config.chat,
        "heads": {code: of_language.row for code, of_language in heads.items()},
        "heads_of": own_heads(bench.conditions, found),
        "without_heads": tuple(code for code in bench.parts if code not in heads),
        "data": about_prompts(bench),
        "identifier": identifier,
        "written": languages_of(groups, named),
        "mended": mended(groups, counts.parts),
        "not_measured": counts.missing,
    }
    return Measured(found, about)


def _cautions(found: Evidence, details: OffTargetDetails) -> Iterator[str]:
    base = found.level("off_target")
    if base is not None and base.value >= 0.5 and not details.give:
        yield (
            f"The original model writes {percent(base.value)} of outputs in another language, "
            "so removal can show little."
        )
    if details.too_few:
        few = [f"{code} {own.available} of {own.k}" for code, own in details.too_few.items()]
        yield f"Fewer specific heads exist than were asked for: {enumeration(few)}."
    if details.without_heads:
        yield f"Without known heads and left out: {enumeration(details.without_heads)}."
    yield from few_prompts(found, details)


WORDS = Words(
    "Language of outputs without language heads",
    "Without a language's heads, how many outputs are in another language?",
    "prompt",
    "Of each language its own heads are removed: specific ones are important in few languages, "
    "the most important ones are as many by importance alone.",
    case="condition",
    joint="with",
)


def _lead(found: Evidence) -> str:
    return "given" if "given" in found.statistics else "off_target"


def _worded(details: OffTargetDetails) -> Words:
    if details.give is None:
        return WORDS
    language = language_name(details.give)
    return replace(
        WORDS,
        title="Language of outputs whose heads are given another language",
        question=f"With the heads' mean output in {language}, how many outputs are in {language}?",
        method="The heads' output is replaced at every token by its mean over answers in "
        f"{language} to other prompts, that of random heads by theirs.",
    )


def _extras(result: OffTarget, run: Path) -> Extras:
    """Which languages outputs are in, and the outputs."""
    sets = {
        f"{code}, {words}": heads
        for code, own in result.details.heads.items()
        for words, heads in (("specific", own.chosen), ("most important", own.full))
        if heads
    }
    facts = [("identified by", result.details.identifier or "")]
    if result.details.give:
        facts.append(("mean output in translations into", language_name(result.details.give)))
    return writing_extras(
        result,
        run,
        _lead(result.evidence),
        heads=sets,
        facts=facts,
        sections=languages_section(result),
    )


comparison = Comparison(
    command="verify off-target",
    settings=VerifyOffTarget,
    result=OffTarget,
    details=OffTargetDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    measure=_measure,
    leads=lambda found: [_lead(found)],
    cases=lambda found, details: writing_cases(found, _lead(found)),
    answer=lambda found, details: unmeasured(found, _lead(found)),
    cautions=_cautions,
    words=WORDS,
    worded=_worded,
    extras=_extras,
    usage="--heads runs/lahis --pair en-de",
)
command = comparison.study
