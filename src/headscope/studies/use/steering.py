"""Leading a model that answers in the wrong language back, by turning heads of a language up.

LAHIS (Liu et al. 2025, arXiv 2511.07498) moves a model between languages by multiplying the heads
of one by 3 or those of the other by 0. Here the model is asked for answers in a language; counted
is how many are in another one as it is, with that language's heads multiplied by each factor, with
the heads of the language it strays to removed, and with as many random heads multiplied alike.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from headscope import options
from headscope.data.files import write_text_atomically
from headscope.data.languages import language_name
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE
from headscope.errors import InputError
from headscope.evidence.blocks import few_sets
from headscope.evidence.controls import DEFAULT, Controlled, SelectedHeads, planned
from headscope.evidence.rows import Basis, Condition
from headscope.evidence.table import evidence_of_parts, own_heads
from headscope.evidence.texts import TEXT_MEASURES, MeasuredTexts
from headscope.heads import Amount, HeadSet, Rank, about_rank, read_scores
from headscope.heads.adaptation import Adaptation
from headscope.heads.resolve import place_of
from headscope.progress import Progress
from headscope.results.writing import Steering, SteeringDetails
from headscope.settings import UNSIGNED, Option
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.studies.models import POCKET, PROMPTED, ModelChoice, run_with_model
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.use.gates import GateChoice, about
from headscope.studies.use.prompts import (
    GivenPrompt,
    OneLine,
    PromptsChoice,
    Rendered,
    prompts_digest,
    rendered,
)
from headscope.studies.verify.writing import (
    SHARE,
    few_prompts,
    keep_numbers,
    writing_heads,
    writing_verdict,
)
from headscope.verify.languages.conditions import NAMED
from headscope.verify.translation.conditions import check_gate
from headscope.verify.writing.measures import (
    OWN,
    identified,
    identified_rows,
    languages_of,
    measured,
)
from headscope.verify.writing.texts import Group, Prompt, write

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.runs import Run

COMMAND = "use adapt"
FACTORS = (0.5, 1.5, 2.0, 3.0, 5.0)
#: Prompts of each language where the pocket model's own are taken.
PROMPTS = 60
#: New tokens of an answer where nobody says.
NEW_TOKENS = 64
#: Characters of a text that leads astray.
BEFORE = 1000
#: What is to be proved: fewer answers in another language, closer to the references; and whether
#: more are empty.
STATISTICS = {name: TEXT_MEASURES[name].statistic for name in ("off_target", "empty", "chrf")}

ChosenBy = Literal["specific", "importance"]
#: Answers by language, condition and prompt.
Texts = list[list[list[str]]]


@dataclass(frozen=True)
class Steer(Controlled):
    """A whole run of the command with `--steer`.

    Attributes:
        heads: a run of LAHIS, or heads that `resolve_heads` reads, which then stand for every
            language; they count in the signature, not their place.
        k: how many heads of each; None: 1 % for a run of LAHIS, a named set whole.
        gate: what is on the model in every condition, such as a mask that leads it astray.
        prompts: file of the only language's prompts, and how it is read.
        data: files by language, as `LANG=FILE`, if there are several.
        max_new_tokens: of an answer; None: 64.
        seed: of the draws and tests, and of the pocket model's sentences.
        rank: what scores are ranked by.
    """

    languages: Annotated[
        tuple[str, ...],
        Option(
            "Instead count answers in another language than this, which prompts ask for, with its "
            "heads multiplied by each --factor, and random heads beside; repeatable.",
            flag="--steer",
            metavar="LANG",
            default=None,
        ),
    ]
    heads: str = field(metadata=UNSIGNED)
    k: Amount | None = field(default=None, metadata=UNSIGNED)
    ranking: Annotated[
        ChosenBy,
        Option("To --steer: heads specific to the language, or the most important ones."),
    ] = "specific"
    factors: Annotated[
        tuple[float, ...],
        Option(
            "To --steer; repeatable; without it 0.5, 1.5, 2, 3, 5.", flag="--factor", metavar="X"
        ),
    ] = FACTORS
    away: Annotated[
        str | None,
        Option(
            "To --steer: also remove the heads of this language, as a condition of its own.",
            metavar="LANG",
        ),
    ] = None
    gate: GateChoice | None = None
    prompts: PromptsChoice = field(default_factory=PromptsChoice)
    data: Annotated[
        tuple[str, ...],
        Option(
            "Prompts: text file (.txt, one a line), or JSON Lines, Parquet, CSV, … with texts or "
            "chat messages; to --steer several languages, LANG=FILE, repeatable.",
            metavar="FILE",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    draws: options.Draws = 5
    controls: options.Controls = DEFAULT
    max_new_tokens: options.MaxNewTokens = None
    one_line: OneLine = False
    seed: options.Seed = 0
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)
    rank: Rank = field(default="above-chance", metadata=UNSIGNED)

    def __post_init__(self) -> None:
        if not self.languages:
            raise InputError("no language is named to lead the model to; give --steer CODE")
        for code in (*self.languages, *([self.away] if self.away else [])):
            language_name(code)
        if not self.factors:
            raise InputError("there is no factor; give at least one with --factor, such as 2")
        for factor in self.factors:
            check_gate(factor)
        if len(set(self.factors)) != len(self.factors) or 1 in self.factors:
            raise InputError(
                "factors are given once each, and 1 is the model as it is, which is always there; "
                f"these are {', '.join(f'{given:g}' for given in self.factors)}"
            )
        super().__post_init__()


def steer(config: Steer, out: Path | None = None, progress: Progress | None = None) -> Steering:
    """Ask in every language under every condition; a run that was stopped goes on where it was.

    Beside the result the run holds `prompts.jsonl`, `outputs.jsonl` (a row a language, condition
    and prompt, with the identified language) and `statistics.safetensors`.
    """
    read = _asked_for(config)
    prompts_of = {code: prompts for code, (_, prompts) in read.items()}
    if config.gate is not None:
        config.gate.check()
    lm = config.model.load_for()
    base = None if config.gate is None else config.gate.read(lm.geometry)
    rows = {
        code: rendered(lm, prompts, config.prompts.chat) for code, prompts in prompts_of.items()
    }
    kinds = {row.special for several in rows.values() for row in several}
    if len(kinds) > 1:
        raise InputError(
            "some prompts are texts and others conversations; give them in runs of their own, or "
            "all through the chat template with --chat"
        )
    limit = config.max_new_tokens or NEW_TOKENS
    heads = steering_heads(config, lm)
    # Of heads that are gone already nothing can be multiplied: they count on neither side.
    gone = None if base is None else base.gate.removed_heads()
    basis = Basis.on(lm, ([row.text for row in several] for several in rows.values()), gone=gone)
    conditions = {code: _conditions(config, code, heads, basis) for code in rows}
    groups = [
        Group(
            code,
            tuple(
                Prompt(row.prompt.id, row.text, row.prompt.reference or "", limit)
                for row in several
            ),
            conditions[code],
        )
        for code, several in rows.items()
    ]
    ranking = about_rank(*heads.values())
    settings = {
        "settings": config,
        "steering": {
            code: [f"{condition.id}: {condition.key}" for condition in own]
            for code, own in conditions.items()
        },
        "applied": None if base is None else base.as_dict(),
        "rank": ranking["rank"],
    }

    data = {code: prompts_digest(prompts) for code, prompts in prompts_of.items()}

    def make(run: Run) -> Steering:
        texts = _written(lm, config, groups, rows, base, run, progress)
        counts = _measured(groups, texts)
        identifier, named = identified(texts)
        run.write_jsonl("outputs.jsonl", identified_rows(groups, texts, named))
        keep_numbers(run, counts.parts)
        found = evidence_of_parts(
            conditions,
            counts.parts,
            STATISTICS,
            config.seed,
            progress=progress,
            helps=lambda condition: True,
            harmed=("empty",),
        )
        details = SteeringDetails(
            steer=config.languages,
            away=config.away,
            ranking=config.ranking,
            **ranking,
            factors=tuple(sorted(config.factors)),
            draws=config.draws,
            seed=config.seed,
            gate=None if base is None else about(base),
            data={
                code: {
                    "path": read[code][0],
                    "digest": data[code],
                    "prompts": len(prompts),
                }
                for code, prompts in prompts_of.items()
            },
            heads={code: tuple(map(str, chosen)) for code, chosen in heads.items()},
            heads_of=own_heads(conditions, found),
            identifier=identifier,
            written=languages_of(groups, named),
            not_measured=counts.missing,
        )
        cautions = [
            "An empty answer in the right language is not a success: see chrF++ and empty "
            "answers, too."
        ]
        if (several := len(found.selected)) > 1:
            cautions.append(
                f"The condition with the fewest such answers is one of {several} on these same "
                "answers; p is not corrected for that."
            )
        return Steering(
            verdict=writing_verdict(found, "off_target"),
            cautions=(
                *cautions,
                *few_prompts(found, details),
                *few_sets(found, config.draws),
            ),
            evidence=found,
            details=details,
        )

    seed, chat = config.seed, kinds == {False}
    return run_with_model(
        lm, COMMAND, out, settings, data, make, seed=seed, kind=Steering, chat=chat
    )


def steering_heads(config: Steer, lm: LanguageModel) -> dict[str, HeadSet]:
    """The heads of each language asked for, and of the one to lead away from.

    Raises `InputError` if a language has none.
    """
    codes = list(dict.fromkeys([*config.languages, *([config.away] if config.away else [])]))
    rows = writing_heads(config.heads, config.k, codes, lm, config.rank)
    heads: dict[str, HeadSet] = {}
    for code in codes:
        if code not in rows:
            raise InputError(
                f"{config.heads}: holds no heads of {language_name(code)} ({code}); name a run of "
                "find lahis with documents in it"
            )
        own = rows[code]
        if own.language == NAMED and config.away:
            raise InputError(
                f"{config.heads}: does not say which heads belong to which language, so none are "
                f"those of {config.away}; name a run of find lahis"
            )
        chosen = own.chosen
        if config.ranking == "importance" and own.language != NAMED:
            scores = read_scores(place_of(config.heads) or config.heads)
            chosen = scores.get(code, scores.get("mean", next(iter(scores.values())))).top(
                config.k or SHARE, config.rank
            )
        if not len(chosen):
            raise InputError(
                f"{config.heads}: no head is specific to {language_name(code)}; take the most "
                "important ones with --ranking importance"
            )
        heads[code] = chosen
    return heads


def _conditions(
    config: Steer, code: str, heads: Mapping[str, HeadSet], basis: Basis
) -> tuple[Condition, ...]:
    own = heads[code]
    gone = basis.gone or HeadSet(own.geometry, ())
    k, own = len(own), own - gone
    if not len(own):
        raise InputError(
            f"the gate that is on the model removes every head that {language_name(code)} was to "
            "be steered with; take more of them with --k, or another gate"
        )
    sets = [SelectedHeads(own, OWN, k, tuple(sorted(config.factors)))]
    if config.away and config.away != code:
        other = heads[config.away]
        sets.append(SelectedHeads(other - gone, config.away, len(other)))
    return planned(sets, config, basis)


def _written(
    lm: LanguageModel,
    config: Steer,
    groups: Sequence[Group],
    rows: Mapping[str, Sequence[Rendered]],
    base: Adaptation | None,
    run: Run,
    progress: Progress | None,
) -> Texts:
    """The answers by language, condition and prompt."""
    from headscope.lm.generation import GenerateConfig

    every = [row for several in rows.values() for row in several]
    limit = groups[0].prompts[0].limit
    newline = config.one_line or not (config.data or config.prompts.prompt)
    how = GenerateConfig(limit, config.batch_tokens, newline)
    with contextlib.nullcontext() if base is None else lm.adapted(base):
        texts = write(lm, groups, how, run, "writing", progress, special=every[0].special)
    given = [
        {"language": code, "id": row.prompt.id, "prompt": row.prompt.plain}
        for code, several in rows.items()
        for row in several
    ]
    run.write_jsonl("prompts.jsonl", given)
    return texts


def _asked_for(config: Steer) -> dict[str, tuple[str, list[GivenPrompt]]]:
    """Of each language where its prompts come from, in words, and the prompts."""
    codes, choice = config.languages, config.prompts
    if len(set(codes)) != len(codes):
        raise InputError("--steer names a language twice; name each once")
    if config.data:
        files = dict(file.partition("=")[::2] for file in config.data)
        if len(codes) == 1 and len(config.data) == 1 and codes[0] not in files:
            files = {codes[0]: config.data[0]}
        elif sorted(files) != sorted(codes) or len(config.data) != len(files):
            raise InputError(
                f"prompts are needed for {', '.join(codes)}, each in a file of its own; write "
                + " ".join(f"--data {code}=FILE" for code in codes)
            )
        return {code: (files[code], replace(choice, data=files[code]).read()) for code in codes}
    if choice.prompt:
        if len(codes) > 1:
            raise InputError("--prompt is for one language; with several give --data LANG=FILE")
        return {codes[0]: ("--prompt", choice.read())}
    if config.model.model != POCKET:
        raise InputError(
            f"no prompts are given; add --data FILE with prompts that ask for an answer in "
            f"{language_name(codes[0])}, or --prompt TEXT"
        )
    number = choice.limit or PROMPTS
    return {code: ("pocket (test)", _of_pocket(code, number, config.seed)) for code in codes}


def _of_pocket(code: str, number: int, seed: int) -> list[GivenPrompt]:
    """Translation prompts into a language of the pocket model, from each of its others in turn."""
    from headscope.pocket.world.languages import CODES

    others = [other for other in CODES if other != code]
    each = -(-number // len(others))
    pairs = PairsChoice(tuple(f"{other}-{code}" for other in others), limit=each)
    prompts = []
    for name, file in read_directions(pairs, POCKET, "test", seed=seed).items():
        names = language_name(file.source_language), language_name(file.target_language)
        for pair in file.pairs:
            text = DEFAULT_TEMPLATE.render(pair.source, *names).text
            prompts.append(GivenPrompt(f"{name} {pair.id}", text, f"{name} {pair.id}", pair.target))
    return prompts


def _measured(groups: Sequence[Group], texts: Texts) -> MeasuredTexts:
    """The numbers of each answer by language; chrF++ where every prompt has a reference."""
    referenced = all(prompt.reference for group in groups for prompt in group.prompts)
    names = [name for name in STATISTICS if referenced or name != "chrf"]
    counts = measured(groups, texts, names)
    why = {} if referenced else {"chrf": "not every prompt has a reference"}
    return replace(counts, missing={**counts.missing, **why})


def write_astray(path: Path, pairs: PairFile, before: Sequence[str]) -> Path:
    """A file of translation prompts that lead a model astray: each behind one of these texts.

    The texts are taken in turn; they are in a language that the model is to stray to, such as the
    source language. Rows hold `id`, `text` and `reference`.
    """
    names = language_name(pairs.source_language), language_name(pairs.target_language)
    rows = []
    for at, pair in enumerate(pairs.pairs):
        prompt = DEFAULT_TEMPLATE.render(pair.source, *names).text
        text = "\n".join((before[at % len(before)], prompt)) if before else prompt
        rows.append({"id": pair.id, "text": text, "reference": pair.target})
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text_atomically(path, lines)
    return path


def astray_files(
    folder: Path,
    pairs: PairsChoice,
    documents: DocumentsChoice,
    away: str,
    model: str,
    seed: int = 0,
) -> dict[str, Path]:
    """`write_astray` for every direction of the test data, by target language, below `folder`.

    The texts before are the beginnings of documents in the language `away`.
    """
    texts = read_languages(documents, model, "test", seed)[away].documents
    before = [document.text[:BEFORE] for document in texts]
    return {
        file.target_language: write_astray(folder / f"{file.target_language}.jsonl", file, before)
        for file in read_directions(pairs, model, "test", seed=seed).values()
    }
