"""Which sentence pairs: from directions and files that people name to pairs, shots and halves."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias

from headscope import options
from headscope.data.align import EFLOMAL
from headscope.data.languages import parse_direction, same_language
from headscope.data.pairs import PairFile, PairSource, SentencePair, direction_of, read_pairs
from headscope.data.split import (
    draw_reference,
    draw_shots,
    halves,
    known_digests,
    leakage,
    text_digests,
)
from headscope.errors import InputError, MissingExtra, OptionalPart, naming, nearest
from headscope.evidence.runner import prompts_of
from headscope.settings import GIVEN, UNSIGNED, Option, Settings
from headscope.studies.baseline import check_translations
from headscope.studies.documents import pocket_codes
from headscope.studies.examples import Examples
from headscope.studies.leakage import check_leakage
from headscope.studies.models import POCKET, Prompted
from headscope.studies.named_data import split_named
from headscope.studies.verify.reference import Reference, translations

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

#: What `--split` calls the two halves of a single file.
HALVES = ("find", "verify")
#: Makes what replaces removed heads, of directions and settings.
MakesReference: TypeAlias = "Callable[[LanguageModel, Mapping[str, PairFile], Any], Reference]"

#: Sentences of the pocket model's own test split, over all directions and of one, if no limit is
#: given: so that all directions take a few minutes on two cores.
POCKET_SENTENCES, POCKET_AT_MOST, POCKET_AT_LEAST = 1000, 200, 10


@dataclass(frozen=True)
class PairsChoice(Settings):
    """Which sentence pairs: directions, and files for them.

    `pair` holds directions such as `en-de`; `all` stands for every direction of the pocket model.
    `data` holds one file (or folder, or dataset) for one direction, a FLORES folder or dataset
    for several, or `PAIR=FILE` for each. Without data the pocket model's own sentences are taken.

    `shots` examples stand before every sentence of a direction, drawn once by the seed: from
    `shots_data`, named as `data` is, else from sentences of the data that no direction then uses
    for anything else. `language_names` hold `zh=Simplified Chinese`: what prompts call a language.
    """

    pair: options.Pairs = ()
    data: Annotated[
        tuple[str, ...],
        Option(
            "File (TSV, CSV, JSON, Parquet, …), FLORES folder or Hub dataset; PAIR=DATA if "
            "several. Not needed for pocket.",
            metavar="DATA",
            held="pairs",
            panel="Data",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    source_language: options.SourceLanguage = None
    target_language: options.TargetLanguage = None
    source_column: options.SourceColumn = "source"
    target_column: options.TargetColumn = "target"
    links_column: options.LinksColumn = None
    min_confidence: options.MinConfidence = field(default=None, metadata=GIVEN)
    links_from: options.LinksFrom = field(default=None, metadata=GIVEN)
    links_swapped: options.LinksSwapped = field(default=None, metadata=GIVEN)
    split: options.Split = None
    limit: options.Limit = None
    shots: options.Shots = 0
    shots_data: options.ShotsData = field(default=(), metadata=UNSIGNED)
    language_names: options.LanguageNames = ()


def read_directions(
    choice: PairsChoice,
    model: str,
    split: Literal["dev", "test"],
    limit: int | None = None,
    seed: int = 0,
    reference: int = 0,
    into: str | None = None,
) -> dict[str, PairFile]:
    """The sentence pairs of each direction, by direction as `source-target`.

    For the pocket model without data: `limit` sentences (default 200) of its own `split`, and
    shots of its train split. Raises `InputError` for data that cannot be read, too few sentences
    for the shots, or shots that stand in the data.

    `reference`: so many pairs a direction, at most a quarter of its data, are set aside (see
    `PairFile.reference`); for the pocket model without data those of its train split. `into`: of
    directions into this language alone.

    Of a single file `choice.split` may be one of `HALVES`; of the pocket model's own sentences
    these are dev and test. Shots are drawn from the whole file, so they are the same for both
    halves; reference pairs from the half alone, since those of the other
    are found on or tested on.
    """
    if choice.split in HALVES and not choice.data and model == POCKET:
        split = "dev" if choice.split == HALVES[0] else "test"
        choice = dataclasses.replace(choice, split=None)
    if choice.split and not choice.data:
        raise InputError(
            f"--split {choice.split} is for --data; {model} takes its own sentences, to find on "
            "dev and to test on test"
        )
    if choice.split in HALVES and choice.data and _all_files(choice):
        whole = dataclasses.replace(choice, split=None, limit=None)
        both = _in_halves(read_directions(whole, model, split, limit, seed))
        drawn = dataclasses.replace(choice, shots=0, shots_data=())
        half = both[HALVES.index(choice.split)]
        return _with_examples(half, drawn, model, seed, reference, into)
    directions = _read_all(choice, model, split, limit, seed, reference)
    if choice.language_names:
        directions = _named(directions, choice.language_names)
    if choice.shots_data and not choice.shots:
        raise InputError("--shots-data needs --shots N, the number of examples to take from it")
    if not choice.shots and not reference:
        return directions
    return _with_examples(directions, choice, model, seed, reference, into)


def aligner_parts(
    choice: PairsChoice, model: str, check: Callable[[PairFile], object]
) -> Iterator[OptionalPart]:
    """What links the words of such pairs: eflomal, where `check`, given the first pair of each
    direction, wants it and it is not installed."""
    if EFLOMAL.missing:
        split = None if choice.split in HALVES else choice.split
        first = dataclasses.replace(choice, split=split, limit=1, shots=0, shots_data=())
        try:
            for pairs in read_directions(first, model, "dev").values():
                check(pairs)
        except MissingExtra as error:
            yield from error.parts


def _usual(directions: int) -> int:
    return max(POCKET_AT_LEAST, min(POCKET_AT_MOST, POCKET_SENTENCES // directions))


def read_test_directions(
    choice: PairsChoice,
    model: str,
    seed: int,
    reference: int = 0,
    usual: Callable[[int], int] = _usual,
    into: str | None = None,
) -> dict[str, PairFile]:
    """The sentences to verify on: the data given, or some of pocket's test split.

    `reference`: so many of each direction, or of those `into` a language alone, are set aside for
    what replaces heads. `usual`: of so
    many directions of pocket's, how many sentences each has if no limit is given.
    """
    if choice.data or model != POCKET:
        return read_directions(choice, model, "test", seed=seed, reference=reference, into=into)
    asked = read_directions(dataclasses.replace(choice, limit=1), model, "test", seed=seed)
    return read_directions(choice, model, "test", usual(len(asked)), seed, reference, into)


def read_direction(choice: PairsChoice, model: str, seed: int = 0) -> PairFile:
    """A direction for sentences that are yet to come, with shots from the data as for any others;
    without data or shots, of languages alone.

    Raises `InputError` unless one direction is named.
    """
    directions: Mapping[str, PairFile]
    if choice.data or choice.shots or model == POCKET:
        directions = read_directions(dataclasses.replace(choice, limit=1), model, "test", seed=seed)
    else:
        wanted = direction_of(PairSource("stdin", next(iter(choice.pair), None)))
        alone = PairFile((), wanted.source, wanted.target, "stdin", "")
        directions = _named(dict.fromkeys(choice.pair, alone), choice.language_names)
    if len(directions) != 1:
        raise InputError(
            f"what comes is of one direction, not of {len(directions)}; add --pair, such as en-de"
        )
    return dataclasses.replace(next(iter(directions.values())), pairs=(), path="stdin")


def _read_all(
    choice: PairsChoice,
    model: str,
    split: Literal["dev", "test"],
    limit: int | None,
    seed: int,
    reference: int = 0,
    option: str = "--data",
) -> dict[str, PairFile]:
    if not choice.data:
        if model != POCKET:
            near = "" if Path(model).exists() else nearest(model, [POCKET], 0.7)
            hint = near and f"{near}Else "
            raise InputError(
                f"no data given for the model {model}; {hint}add --data FILE and --pair, such as "
                "--data pairs.tsv --pair en-de"
            )
        return _pocket_directions(choice, split, limit or 200, seed)
    # Drawn from the whole of a file, so that examples do not depend on the limit.
    apart = reference + (0 if choice.shots_data else choice.shots)
    directions = {}
    for pair, name in _files(choice, option):
        most = choice.limit
        if apart and most is not None:
            most = None if Path(name).exists() else most + apart
        source = PairSource(
            name,
            pair,
            choice.source_language,
            choice.target_language,
            choice.source_column,
            choice.target_column,
            choice.links_column,
            choice.split,
            most,
            choice.min_confidence,
            choice.links_from,
            choice.links_swapped,
        )
        direction = direction_of(source)
        directions[f"{direction.source}-{direction.target}"] = read_pairs(source)
    return directions


def _named(directions: dict[str, PairFile], names: tuple[str, ...]) -> dict[str, PairFile]:
    """The directions with other names of their languages."""
    given: dict[str, str] = {}
    for written in names:
        code, _, name = written.partition("=")
        if code.strip() in given:
            raise InputError(f"--language-name names {code.strip()} twice; give each once")
        if not code.strip() or not name.strip():
            raise InputError(
                f"--language-name {written} names no language; write CODE=NAME, such as "
                'zh="Simplified Chinese"'
            )
        given[code.strip()] = name.strip()
    codes = {
        code
        for pairs in directions.values()
        for code in (pairs.source_language, pairs.target_language)
    }
    name_of: dict[str, str] = {}
    for code, name in given.items():
        fitting = [known for known in codes if same_language(known, code)]
        if not fitting:
            raise InputError(
                f"--language-name {code}={name}: no direction has the language {code}; there are "
                f"{', '.join(sorted(codes))}"
            )
        name_of |= dict.fromkeys(fitting, name)
    named = {}
    for pair, pairs in directions.items():
        source, target = pairs.language_names
        names_of_pair = (
            name_of.get(pairs.source_language, source),
            name_of.get(pairs.target_language, target),
        )
        named[pair] = dataclasses.replace(pairs, names=names_of_pair)
    return named


def _with_examples(
    directions: dict[str, PairFile],
    choice: PairsChoice,
    model: str,
    seed: int,
    reference: int,
    into: str | None = None,
) -> dict[str, PairFile]:
    """The directions with shots and reference pairs, and without any sentence of these."""
    from headscope.pocket.sample import sample_pairs

    shots = {pair: pairs.shots for pair, pairs in directions.items()}
    pools = directions
    if choice.shots and choice.shots_data:
        examples = dataclasses.replace(choice, data=choice.shots_data, limit=None)
        pools = _read_all(examples, model, "dev", None, seed, option="--shots-data")
        for pair in directions:
            if pair not in pools:
                raise InputError(
                    f"--shots-data has no sentences for {pair}; add --shots-data {pair}=FILE"
                )
    elif choice.shots and not choice.data:
        pools = {pair: sample_pairs(pair, "train", choice.shots, seed) for pair in directions}
    if choice.shots:
        shots = {
            pair: draw_shots(pools[pair].pairs, choice.shots, seed, pools[pair].path)
            for pair in directions
        }
    kept = _without(directions, shots)
    for pair, pairs in directions.items():
        if choice.shots_data and len(kept[pair]) < len(pairs.pairs):
            raise InputError(
                f"{pairs.path} holds {len(pairs.pairs) - len(kept[pair])} pairs with a sentence of "
                f"the shots that were drawn from {pools[pair].path}; give other examples as "
                "--shots-data"
            )
        if not kept[pair]:
            raise InputError(
                f"{pairs.path} has no sentences left beside {choice.shots} shots; give fewer shots "
                "or more sentences"
            )
    apart: dict[str, tuple[SentencePair, ...]] = dict.fromkeys(directions, ())
    wanted = [
        pair
        for pair, pairs in directions.items()
        if into is None or same_language(pairs.target_language, into)
    ]
    if reference and choice.data:
        paths = {pair: pairs.path for pair, pairs in directions.items()}
        apart |= draw_reference({pair: kept[pair] for pair in wanted}, reference, seed, paths)
    elif reference:
        more = reference + choice.shots
        train = {pair: sample_pairs(pair, "train", more, seed) for pair in wanted}
        apart |= {pair: rows[:reference] for pair, rows in _without(train, shots).items()}
    kept = _without(directions, {name: (*shots[name], *apart[name]) for name in directions})
    complete = {}
    for pair, pairs in directions.items():
        if not kept[pair]:
            raise InputError(
                f"{pairs.path} has no sentences left beside those set aside as a reference; "
                "give more sentences"
            )
        rows = kept[pair][: choice.limit]
        complete[pair] = dataclasses.replace(
            pairs, pairs=rows, shots=shots[pair], reference=apart[pair]
        )
    return complete


def _without(
    directions: Mapping[str, PairFile], taken: Mapping[str, tuple[SentencePair, ...]]
) -> dict[str, tuple[SentencePair, ...]]:
    """The pairs of each direction that share no sentence with what any direction has taken."""
    known = known_digests({pair: text_digests(rows) for pair, rows in taken.items()})
    return {
        pair: tuple(row for row in pairs.pairs if not leakage(known, [row]))
        for pair, pairs in directions.items()
    }


def find_and_check(
    choice: PairsChoice, model: str, check: int | None, seed: int = 0, reference: int = 0
) -> tuple[dict[str, PairFile], dict[str, PairFile]]:
    """The sentences to find heads on, and at most `check` of each direction to check them on; None:
    20, or 60 of all where directions are more, but at least 3.

    Of the data given, two halves that share no sentence in any direction; for the pocket model
    without data, sentences of its dev and of its test split. `reference`: see `read_directions`.
    """
    if choice.split in HALVES and (not choice.data or _all_files(choice)):
        raise InputError(
            "this command takes both halves of the data, one to find and one to verify; leave "
            f"--split {choice.split} out"
        )
    directions = read_directions(choice, model, "dev", limit=100, seed=seed, reference=reference)
    check = check or min(20, max(3, 60 // len(directions)))
    if not choice.data:
        limited = dataclasses.replace(choice, limit=check)
        return directions, read_directions(limited, model, "test", seed=seed, reference=reference)
    first, second = _in_halves(directions)
    return first, {
        name: dataclasses.replace(pairs, pairs=pairs.pairs[:check])
        for name, pairs in second.items()
    }


def _in_halves(
    directions: dict[str, PairFile],
) -> tuple[dict[str, PairFile], dict[str, PairFile]]:
    """Two halves of all directions, by a hash of the source, that share no sentence."""
    every = [pair for pairs in directions.values() for pair in pairs.pairs]
    together = every if len(directions) > 1 else []
    first, second = {}, {}
    for name, pairs in directions.items():
        with naming(pairs.path):
            first_half, other = halves(pairs.pairs, together)
        first[name] = dataclasses.replace(pairs, pairs=first_half)
        second[name] = dataclasses.replace(pairs, pairs=other)
    return first, second


def _all_files(choice: PairsChoice) -> bool:
    return all(Path(name).is_file() for _, name in _files(choice))


def _files(choice: PairsChoice, option: str = "--data") -> list[tuple[str | None, str]]:
    """Each direction asked for with its data."""
    pairs, plain = split_named(choice.data)
    named: dict[str, str] = {}
    for pair, name in pairs:
        direction = parse_direction(pair)
        for other in map(parse_direction, named):
            if same_language(direction.source, other.source) and same_language(
                direction.target, other.target
            ):
                raise InputError(f"{option} names {pair} twice; give one file a direction")
        named[pair] = name
    if named and plain:
        raise InputError(
            f"{option} {plain[0]} says no direction while another does; write all as PAIR=FILE"
        )
    if named:
        missing = [pair for pair in choice.pair if pair not in named]
        if missing:
            raise InputError(f"--pair {missing[0]} has no data; add {option} {missing[0]}=FILE")
        return [(pair, named[pair]) for pair in choice.pair or named]
    if len(plain) > 1:
        raise InputError(f"several {option} need a direction each; write {option} en-de=FILE")
    if "all" in choice.pair:
        raise InputError("--pair all is for the pocket model's own sentences; name the directions")
    wanted = list(dict.fromkeys(choice.pair))
    several = len(wanted) > 1
    if several and Path(plain[0]).is_file():
        raise InputError(
            f"{plain[0]} is one file for {len(wanted)} directions; give each its own by "
            f"{option} PAIR=FILE"
        )
    return [(pair, plain[0]) for pair in wanted or (None,)]


def _pocket_directions(
    choice: PairsChoice, split: Literal["dev", "test"], limit: int, seed: int
) -> dict[str, PairFile]:
    from headscope.pocket.sample import sample_pairs
    from headscope.pocket.world.languages import DIRECTIONS

    wanted = choice.pair
    if not wanted and choice.source_language and choice.target_language:
        wanted = (f"{choice.source_language}-{choice.target_language}",)
    if not wanted and (choice.source_language or choice.target_language):
        raise InputError(
            "one language alone is given; add --pair en-de, or both --source-language and "
            "--target-language"
        )
    if not wanted or "all" in wanted:
        wanted = DIRECTIONS
    for pair in wanted:
        direction = parse_direction(pair)
        for lang, code in (
            (choice.source_language, direction.source),
            (choice.target_language, direction.target),
        ):
            if lang and not same_language(lang, code):
                raise InputError(f"--pair {pair} contradicts the language {lang}; give one of them")
        pocket_codes((direction.source, direction.target))
        if direction.source == direction.target:
            raise InputError(f"--pair {pair} names one language twice")
    return {pair: sample_pairs(pair, split, choice.limit or limit, seed) for pair in wanted}


class TestedOnPairs(Protocol):
    """Settings of a command that tests heads on sentence pairs."""

    @property
    def heads(self) -> str: ...
    @property
    def allow_overlap(self) -> bool: ...


def pair_examples(
    directions: Mapping[str, PairFile],
    config: TestedOnPairs,
    reference: MakesReference = translations,
    answer_only: bool = True,
) -> Examples[PairFile]:
    """Sentence pairs as what is measured; InputError if heads were found on any, unless allowed.

    `reference` makes what replaces removed heads of the pairs set aside; `answer_only`: whether
    that option may be named as a remedy.
    """
    return Examples(
        directions,
        {name: [pair.source for pair in pairs.pairs] for name, pairs in directions.items()},
        pair_inputs(directions),
        check_leakage(config.heads, directions, config.allow_overlap),
        lambda lm, config: reference(lm, directions, config),
        lambda lm, config, run, progress: check_translations(
            lm, directions, config, run, config.baseline, progress, answer_only
        ),
        cautions=pair_cautions(directions),
        sent=lambda lm, config: first_prompts(lm, directions, config),
    )


def first_prompts(
    lm: LanguageModel, directions: Mapping[str, PairFile], settings: Prompted
) -> dict[str, str]:
    """The prompt of each direction's first sentence, shots included, as this model reads it."""
    prompts = {}
    for name, pairs in directions.items():
        first = dataclasses.replace(pairs, pairs=pairs.pairs[:1])
        (prompt,) = prompts_of(lm, first, settings.template, settings.chat)
        prompts[name] = prompt.text
    return prompts


def pair_cautions(*directions: Mapping[str, PairFile]) -> tuple[str, ...]:
    """What seems wrong with the files of directions, in sentences."""
    every = [pairs for own in directions for pairs in own.values()]
    return tuple(dict.fromkeys(words for pairs in every for words in pairs.cautions))


def pair_inputs(
    directions: Mapping[str, PairFile], checked_on: Mapping[str, PairFile] | None = None
) -> dict[str, str]:
    """Content hashes of each direction's sentences and shots, and of those heads are checked on."""
    return {
        **{pair: pairs.digest for pair, pairs in directions.items()},
        **{f"{pair} shots": pairs.shots_digest for pair, pairs in directions.items()},
        **{f"{pair} (check)": pairs.digest for pair, pairs in (checked_on or {}).items()},
    }
