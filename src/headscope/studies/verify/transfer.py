"""Attention transfer between the languages of two contradicting statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from headscope import options
from headscope.data.languages import parse_direction, same_language
from headscope.data.transfer import TransferFile, TransferPrompt, language_of, read_prompts, written
from headscope.errors import InputError
from headscope.evidence.rows import Evidence
from headscope.evidence.table import own_heads
from headscope.heads import HeadSet
from headscope.results.writing import LensExample, Transfer, TransferDetails
from headscope.settings import UNSIGNED, Option
from headscope.shown.blocks import (
    Block,
    Lines,
    Section,
    Series,
    Text,
    table_of,
)
from headscope.shown.words import arrow, enumeration
from headscope.studies.comparison import (
    Bench,
    Chosen,
    Comparison,
    Examples,
    Measured,
    Removing,
)
from headscope.studies.comparison_page import Extras, Words
from headscope.studies.leakage import check_text_leakage
from headscope.studies.models import POCKET
from headscope.studies.shows import layer_labels
from headscope.studies.verify.reference import documents_for
from headscope.studies.verify.writing import (
    about_prompts,
    few_prompts,
    groups_of,
    in_words,
    keep_numbers,
    run_languages,
    sent_of,
    writing_cases,
    writing_extras,
    writing_heads,
)
from headscope.verify.language_texts.conditions import NAMED
from headscope.verify.removal_translations.conditions import check_gate
from headscope.verify.writing.measures import (
    TRANSFER_STATISTICS,
    best_ranks,
    measure_answers,
    statement_sets,
)
from headscope.verify.writing.texts import Prompt, output_rows, passes, places, write

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: Prompts over all pairs where no limit is given, and the fewest and most of one pair.
PROMPTS, AT_LEAST, AT_MOST = 400, 10, 50
#: New tokens in which the answer is looked for.
ANSWER_TOKENS = 10


@dataclass(frozen=True, kw_only=True)
class VerifyTransfer(Removing):
    """Ask about two contradicting statements, with the heads of either language scaled.

    A statement in language A, one in language B that contradicts it, a question in English: A's
    heads times --up, or B's times --down, compared with random heads under the same gate. 10 to
    50 prompts of each pair, about 400 in all, unless --limit says otherwise.

    Beside the result the run holds `prompts.jsonl`, `outputs.jsonl` (a row a pair, condition and
    prompt: output and ranks), `statistics.safetensors` and, in the result, the logit lens of the
    first prompt.
    """

    # A run of LAHIS, or another that scored heads language by language. The heads count in the
    # signature, as the reference texts do, not their place.
    heads: options.Heads = field(metadata=UNSIGNED)
    k: options.AmountOfEach = field(default=None, metadata=UNSIGNED)
    pair: Annotated[
        tuple[str, ...],
        Option(
            "Languages of the first and of the second statement, such as de-ru; repeatable. "
            "Without it every pair of the run's languages.",
            metavar="A-B",
            held="direction",
            panel="Data",
        ),
    ] = ()
    data: Annotated[
        str | None,
        Option(
            "Prompts of your own: a file with a, b, prompt, answers_a, answers_b and, if "
            "wanted, stem and id. Without it those that come with headscope, in fifteen languages.",
            metavar="FILE",
            held="pairs",
            panel="Data",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    up: Annotated[float, Option("Gate of the first language's heads.", metavar="G")] = 3.0
    down: Annotated[float, Option("Gate of the second language's heads.", metavar="G")] = 0.0
    limit: options.Limit = None
    chat: options.Chat = None
    max_new_tokens: Annotated[
        int, Option("Longest generated answer.", min=1, default=None, panel="Prompt")
    ] = ANSWER_TOKENS
    reference: options.ReferenceTexts = field(default=None, metadata=UNSIGNED)
    allow_overlap: options.AllowOverlap = field(default=False, metadata=UNSIGNED)

    def __post_init__(self) -> None:
        check_gate(self.up)
        check_gate(self.down)
        super().__post_init__()


def _read(config: VerifyTransfer) -> Examples[TransferFile]:
    files, reference = _files(config), documents_for(config, config.reference)
    texts = {pair: [prompt.prompt for prompt in file.prompts] for pair, file in files.items()}
    leakage = check_text_leakage(
        config.heads, chain.from_iterable(texts.values()), config.allow_overlap
    )
    digests = {pair: file.digest for pair, file in files.items()}
    return Examples(files, texts, digests, leakage, lambda lm, config: reference)


def _ready(
    lm: LanguageModel, config: VerifyTransfer, examples: Examples[TransferFile]
) -> tuple[VerifyTransfer, Examples[TransferFile]]:
    from headscope.lm.prompting import uses_chat

    pocket = config.model.model == POCKET and config.data is None
    chat = uses_chat(lm, False if pocket else config.chat)
    most = config.max_new_tokens
    prompts = {
        pair: tuple(given_prompt(lm, prompt, chat, most) for prompt in file.prompts)
        for pair, file in examples.parts.items()
    }
    examples = replace(examples, prompted=prompts, sent=sent_of(prompts))
    return replace(config, chat=chat), examples


def _heads(lm: LanguageModel, config: VerifyTransfer, examples: Examples[TransferFile]) -> Chosen:
    files = examples.parts
    codes = list(dict.fromkeys(code for file in files.values() for code in _codes(file)))
    heads = writing_heads(config.heads, config.k, codes, lm)
    if any(of_language.language == NAMED for of_language in heads.values()):
        raise InputError(
            f"{config.heads}: does not say which heads belong to which language; name a run of "
            "find lahis"
        )
    nothing = HeadSet(lm.geometry, ())
    k = next((of_language.wanted for of_language in heads.values()), 0)
    sets = {}
    for pair, file in files.items():
        a, b = (heads[code].chosen if code in heads else nothing for code in _codes(file))
        sets[pair] = statement_sets(a, b, k, (config.up, config.down))
    return Chosen(sets, known=heads)


def _measure(bench: Bench[VerifyTransfer, TransferFile]) -> Measured:
    from headscope.lm.generation import GenerateConfig
    from headscope.verify.writing.ranks import example_lens, first_tokens, kept_ranks

    lm, config, run = bench.lm, bench.config, bench.run
    chat, batch, progress = bool(config.chat), config.batch_tokens, bench.progress
    by_pair = {pair: file.prompts for pair, file in bench.parts.items()}
    forms = first_tokens(lm, [prompt for prompts in by_pair.values() for prompt in prompts], chat)
    groups = groups_of(bench)
    how = GenerateConfig(batch_tokens=batch)
    texts = write(lm, groups, how, run, "answering", progress, not chat, bench.replacements)
    gated = passes(groups, lm.geometry, bench.replacements)
    by_key = kept_ranks(lm, forms, gated, batch, run, progress)
    ranks = [
        [
            [best_ranks(forms[at], by_key[condition.key][at]) for at in of_group]
            for condition in group.conditions
        ]
        for group, of_group in zip(groups, places(groups), strict=True)
    ]
    run.write_jsonl(
        "prompts.jsonl",
        [
            {
                "pair": group.name,
                "id": prompt.id,
                "prompt": prompt.text,
                "answers_a": statement.answer_a.forms,
                "answers_b": statement.answer_b.forms,
            }
            for group in groups
            for prompt, statement in zip(group.prompts, by_pair[group.name], strict=True)
        ],
    )
    run.write_jsonl(
        "outputs.jsonl",
        [
            {"pair": row["language"]}
            | {key: row[key] for key in ("id", "condition", "draw", "output")}
            | {f"rank_{side}": rank for side, rank in row["ranks"].items()}
            for row in output_rows(groups, texts, ranks=ranks)
        ],
    )
    numbers = measure_answers(groups, by_pair, texts, ranks)
    keep_numbers(run, numbers)
    found = bench.table(numbers, TRANSFER_STATISTICS, helps=lambda condition: True)
    first = by_pair[groups[0].name][0]
    about = {
        "up": config.up,
        "down": config.down,
        "chat": chat,
        "heads": {code: of_language.row for code, of_language in bench.chosen.known.items()},
        "heads_of": own_heads(bench.conditions, found),
        "data": about_prompts(bench),
        "lens": LensExample(
            pair=groups[0].name,
            id=first.id,
            prompt=groups[0].prompts[0].text,
            answers_a=first.answer_a.forms,
            answers_b=first.answer_b.forms,
            conditions=example_lens(lm, groups[0].conditions, forms[0], bench.replacements),
        ),
    }
    return Measured(found, about)


def _cautions(found: Evidence, details: TransferDetails) -> Iterator[str]:
    if without := details.without_heads:
        yield f"No heads are specific to {enumeration(without)}, so none are changed."
    yield from few_prompts(found, details)


def _files(config: VerifyTransfer) -> dict[str, TransferFile]:
    """The prompts of each pair."""
    if config.data is not None:
        files = read_prompts(config.data, config.limit)
        wanted = [_same(pair, files, config.data) for pair in dict.fromkeys(config.pair)]
        return {pair: files[pair] for pair in wanted} if wanted else files
    pocket = config.model.model == POCKET
    pairs = list(dict.fromkeys(config.pair)) or _every_pair(config, pocket)
    limit = config.limit or max(AT_LEAST, min(AT_MOST, PROMPTS // len(pairs)))
    if pocket:
        from headscope.pocket.facts import transfer_prompts

        return {pair: transfer_prompts(pair, "test", limit, config.seed) for pair in pairs}
    return {pair: written(pair, limit, config.seed) for pair in pairs}


def _every_pair(config: VerifyTransfer, pocket: bool) -> list[str]:
    """All ordered pairs of the languages that the run has heads of and there are prompts in."""
    from headscope.pocket.world.languages import CODES

    codes = run_languages(config.heads)
    known = [code for code in codes if (code in CODES if pocket else language_of(code))]
    if not codes and pocket:
        known = list(CODES)
    if len(known) < 2:
        raise InputError(
            f"{config.heads}: has heads of "
            f"{', '.join(codes) or 'no language by name'}, so there is no pair of languages to "
            "try; name one with --pair de-ru"
        )
    return [f"{a}-{b}" for a, b in permutations(known, 2)]


def _same(pair: str, files: dict[str, TransferFile], path: str) -> str:
    """The name in a file of the pair that is asked for."""
    direction = parse_direction(pair)
    for name, file in files.items():
        a, b = _codes(file)
        if same_language(a, direction.source) and same_language(b, direction.target):
            return name
    raise InputError(f"{path} holds no prompts of the pair {pair}; it has {', '.join(files)}")


def _codes(file: TransferFile) -> tuple[str, str]:
    return file.prompts[0].a, file.prompts[0].b


def given_prompt(lm: LanguageModel, prompt: TransferPrompt, chat: bool, limit: int) -> Prompt:
    """What the model is given: the question, and behind it the beginning of the answer."""
    from headscope.lm.prompting import joints, wrap_prompts

    wrapped = wrap_prompts(lm, [prompt.prompt], chat)
    begun = joints(lm, wrapped, chat)[0] + prompt.stem if prompt.stem else ""
    return Prompt(prompt.id, wrapped[0] + begun, "", limit)


WORDS = Words(
    "Attention transfer",
    "A statement in language A, one in language B that contradicts it, a question in English: "
    "does the answer follow A when A's heads are scaled up or B's down?",
    "prompt",
    "By text: an answer follows A if it holds A's answer and not B's, in English or in A's "
    "language. By rank: the better rank of the first tokens of A's answer (English, native) "
    "against that of B's; equal ranks count half. Ranks can show an effect that the text does "
    "not. Expected are more answers that follow A, and fewer of all others.",
    case="condition",
    joint="with",
)


def _extras(result: Transfer, run: Path) -> Extras:
    """One prompt by layer, and answers."""
    names = {each.id: in_words(each) for each in result.evidence.selected}
    return writing_extras(
        result,
        run,
        "follows_a",
        "pair",
        heads={code: own.chosen for code, own in result.details.heads.items()},
        sections=[Section("One prompt by layer", _lens_blocks(result.details.lens, names))],
    )


def _lens_blocks(lens: LensExample, names: Mapping[str, str]) -> list[Block]:
    """The ranks of both answers layer by layer of one prompt, and the likeliest tokens."""
    if not lens.conditions:
        return []
    by_words = {names.get(each.condition, "original"): each.layers for each in lens.conditions}
    series = tuple(
        Series(words, tuple((float(row.layer), row.rank_b / row.rank_a)
                            for row in layers if row.rank_a and row.rank_b))
        for words, layers in by_words.items()
    )  # fmt: skip
    ranks = Lines(
        f"Ranks of both answers, {arrow(lens.pair)}, {lens.id}",
        series,
        "layer",
        "rank of B / rank of A",
        labels=layer_labels([row.layer for row in next(iter(by_words.values()), ())]),
        logarithmic_y=True,
        note="Above 1 A is likelier. The hidden state after each layer, at the last token of the "
        "prompt, is read as if that layer were the last (logit lens). One example is no evidence "
        "for others",
    )
    rows = [
        (f"layer {row.layer}, {words}", row) for words, layers in by_words.items() for row in layers
    ]
    tokens = table_of(
        "Likeliest tokens by layer",
        rows,
        {
            "rank of A": lambda row: row.rank_a,
            "rank of B": lambda row: row.rank_b,
            "likeliest tokens": lambda row: " ".join(map(_quoted, row.tokens)),
        },
    )
    texts = {"prompt": lens.prompt, "answers of A": lens.answers_a, "answers of B": lens.answers_b}
    given = {
        name: text if isinstance(text, str) else ", ".join(text) for name, text in texts.items()
    }
    return [ranks, Text("The prompt", tuple(given.items())), tokens]


def _quoted(token: str) -> str:
    return f"\u201c{token}\u201d"


comparison = Comparison(
    command="verify transfer",
    settings=VerifyTransfer,
    result=Transfer,
    details=TransferDetails,
    read=_read,
    ready=_ready,
    heads=_heads,
    measure=_measure,
    leads=lambda found: ["follows_a"],
    cases=lambda found, details: writing_cases(found, "follows_a"),
    cautions=_cautions,
    words=WORDS,
    extras=_extras,
    examples="prompts",
    usage="--heads runs/lahis --pair de-ru --limit 20",
)
command = comparison.study
