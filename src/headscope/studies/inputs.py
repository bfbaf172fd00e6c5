"""From what people name (a model, directions, files) to what methods take."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, cast

from headscope import options
from headscope.data.languages import language_name, parse_direction, same_language
from headscope.data.pairs import PairFile, PairSource, SentencePair, direction_of, read_pairs
from headscope.data.split import (
    draw_reference,
    draw_shots,
    halves,
    known_digests,
    leakage,
    text_digests,
)
from headscope.errors import InputError, MissingExtra, ModelError, naming
from headscope.progress import Progress, Steps
from headscope.results.common import ModelFacts, ModelResult
from headscope.runs.codec import decode
from headscope.settings import GIVEN, UNSIGNED, Nested, Option, Settings

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.lm import LanguageModel
    from headscope.runs import Run

POCKET = "pocket"
#: Sentences, documents, facts and pairs of prompts of a quick survey.
QUICK = 20
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
#: What `--split` calls the two halves of a single file.
HALVES = ("find", "verify")
AnyResult = TypeVar("AnyResult")
#: The model that `kept_model` keeps, under its choice; None outside.
_KEPT: ContextVar[dict[ModelChoice, LanguageModel] | None] = ContextVar("kept model", default=None)
#: The model that `given_model` stands for, with its choice.
_GIVEN: ContextVar[tuple[ModelChoice, LanguageModel] | None] = ContextVar("given", default=None)


_MODEL = Option("pocket (bundled), a Hub id, a folder, or a GGUF file.", metavar="MODEL")
#: For commands whose subject is the model: it is named by its place.
MODEL_ARGUMENT = Nested(changed={"model": dataclasses.replace(_MODEL, argument=True)})
DTYPE = Option("auto: float32 on CPU, else the checkpoint's own.")


@dataclass(frozen=True)
class ModelChoice(Settings):
    """Which model, and how it is loaded (see `headscope.load`)."""

    model: Annotated[str, _MODEL] = POCKET
    revision: Annotated[str | None, Option("Branch, tag or commit of a Hub model.")] = None
    device: Annotated[
        str | None, Option("Such as cpu or cuda:1; without it the first GPU, or CPU.")
    ] = field(default=None, metadata=UNSIGNED)
    dtype: Annotated[DtypeName, DTYPE] = "auto"
    device_map: Annotated[str | None, Option("Placement over several devices, such as auto.")] = (
        field(default=None, metadata=UNSIGNED)
    )
    max_memory: Annotated[
        tuple[str, ...],
        Option(
            "With --device-map auto: weights a device takes at most, such as 0=20GiB or "
            "cpu=64GiB; repeatable. What fits nowhere waits on disk.",
            metavar="DEVICE=SIZE",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    offload_folder: Annotated[
        str | None,
        Option(
            "With --device-map: where weights wait that cannot be read from the checkpoint as "
            "they are; removed at the end.",
            metavar="DIR",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    quantise: Annotated[
        Literal["8bit", "4bit"] | None,
        Option("Load the weights of an ordinary checkpoint in 8 bits (LLM.int8) or 4 (NF4)."),
    ] = field(default=None, metadata=GIVEN)
    # What it reads is in every signature, so where it lies need not be.
    tokenizer: Annotated[
        str | None,
        Option(
            "Take the tokenizer from here: a folder, a Hub id, or a GGUF file.", metavar="MODEL"
        ),
    ] = field(default=None, metadata=UNSIGNED)

    def load(self) -> LanguageModel:
        """The model, self-checked; inside `kept_model` the one loaded last, if it is the same.

        Raises `ModelError` if it cannot be loaded, `MissingExtra` if a package for it is missing.
        """
        from headscope.lm import load
        from headscope.lm.weights import memory_limits

        kept, given = _KEPT.get(), _GIVEN.get()
        if given is not None and self == given[0]:
            return given[1]
        if kept is not None and self in kept:
            return kept[self]
        if kept is not None:
            kept.clear()  # before the next one is loaded: there may be no room for both
        try:
            lm = load(
                self.model,
                self.revision,
                self.device,
                self.dtype,
                self.device_map,
                max_memory=memory_limits(self.max_memory) or None,
                offload_folder=self.offload_folder,
                quantise=self.quantise,
                tokenizer=self.tokenizer,
            )
        except MissingExtra:
            raise
        except InputError as error:
            raise ModelError(str(error)) from error
        if kept is not None:
            kept[self] = lm
        return lm

    def load_for(self, out: Path | None) -> LanguageModel:
        """The model of a run in the folder `out`, or in one of its own in `runs`.

        Where a finished run may hold the answer already, its weights are read when they are first
        needed: files say all that decides which run it is.
        """
        from headscope.lm.loading import waiting_model

        folders = Path("runs").glob("*") if out is None else [Path(out)]
        named = ModelChoice(
            self.model, self.revision, self.device, self.dtype, tokenizer=self.tokenizer
        )
        done = any((folder / "DONE.json").exists() for folder in folders)
        loaded = self in (_KEPT.get() or ()) or self == (_GIVEN.get() or (None,))[0]
        if self == named and not loaded and done:
            lm = waiting_model(
                self.model, self.revision, self.device, self.dtype, self.load, self.tokenizer
            )
            if lm is not None:
                return lm
        return self.load()


@contextmanager
def kept_model() -> Iterator[None]:
    """Keep the model that was loaded last, so that commands in a row load it only once.

    Gates and recordings are contexts that put everything back, so a model is the same for each of
    them as if it had been loaded anew.
    """
    before = _KEPT.set({} if _KEPT.get() is None else _KEPT.get())
    try:
        yield
    finally:
        _KEPT.reset(before)


@contextmanager
def given_model(lm: Any) -> Iterator[dict[str, str]]:
    """Let commands take a loaded model where they ask for one of its name and revision.

    Gives the options that name it; none, where `lm` is no loaded model.
    """
    if not hasattr(lm, "gated"):
        yield {}
        return
    named = {"model": lm.name} | ({"revision": lm.revision} if lm.revision else {})
    before = _GIVEN.set((ModelChoice(**named), lm))
    try:
        yield named
    finally:
        _GIVEN.reset(before)


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
            "TSV, JSON Lines or Parquet file, FLORES folder, or Hub dataset; with several "
            "pairs PAIR=DATA, repeatable. May be left out for pocket.",
            metavar="DATA",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    source_language: options.SourceLanguage = None
    target_language: options.TargetLanguage = None
    source_column: options.SourceColumn = "source"
    target_column: options.TargetColumn = "target"
    links_column: options.LinksColumn = None
    split: options.Split = None
    limit: options.Limit = None
    shots: options.Shots = 0
    shots_data: options.ShotsData = field(default=(), metadata=UNSIGNED)
    language_names: options.LanguageNames = ()


def kin(model: str, others: Iterable[str], part: str) -> tuple[str, ...]:
    """Those of other models whose names differ from this one's in a part alone, a pattern of it."""

    def name(other: str) -> str:
        return re.sub("^meta-", "", other.rstrip("/").rpartition("/")[2].casefold())

    own, rest = name(model), re.sub(part, "", name(model))
    return tuple(
        other for other in others if name(other) != own and re.sub(part, "", name(other)) == rest
    )


def read_directions(
    choice: PairsChoice,
    model: str,
    split: Literal["dev", "test"],
    limit: int | None = None,
    seed: int = 0,
    reference: int = 0,
) -> dict[str, PairFile]:
    """The sentence pairs of each direction, by direction as `source-target`.

    For the pocket model without data: `limit` sentences (default 200) of its own `split`, and
    shots of its train split. Raises `InputError` for data that cannot be read, too few sentences
    for the shots, or shots that stand in the data.

    `reference`: so many pairs a direction, at most a quarter of its data, are set aside for mean
    ablation (see `PairFile.reference`); for the pocket model without data those of its train split.

    Of a single file `choice.split` may be one of `HALVES`. Shots are drawn from the whole file, so
    they are the same for both halves; reference pairs from the half alone, since those of the other
    are found on or tested on.
    """
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
        return _with_examples(half, drawn, model, seed, reference)
    directions = _read_all(choice, model, split, limit, seed, reference)
    if choice.language_names:
        directions = _named(directions, choice.language_names)
    if choice.shots_data and not choice.shots:
        raise InputError("--shots-data needs --shots N, the number of examples to take from it")
    if not choice.shots and not reference:
        return directions
    return _with_examples(directions, choice, model, seed, reference)


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
            near = difflib.get_close_matches(model, [POCKET], cutoff=0.7)
            hint = f"did you mean {POCKET}? Else " if near and not Path(model).exists() else ""
            raise InputError(
                f"no data given for the model {model}; {hint}add --data FILE and --pair, such as "
                "--data pairs.tsv --pair en-de"
            )
        return _pocket_directions(choice, split, limit or 200, seed)
    # Drawn from the whole of a file, so that examples do not depend on the limit.
    apart = reference + (0 if choice.shots_data else choice.shots)
    found = {}
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
        )
        direction = direction_of(source)
        found[f"{direction.source}-{direction.target}"] = read_pairs(source)
    return found


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
    directions: dict[str, PairFile], choice: PairsChoice, model: str, seed: int, reference: int
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
    if reference and choice.data:
        paths = {pair: pairs.path for pair, pairs in directions.items()}
        apart = draw_reference(kept, reference, seed, paths)
    elif reference:
        more = reference + choice.shots
        train = {pair: sample_pairs(pair, "train", more, seed) for pair in directions}
        apart = {pair: rows[:reference] for pair, rows in _without(train, shots).items()}
    kept = _without(directions, {name: (*shots[name], *apart[name]) for name in directions})
    found = {}
    for pair, pairs in directions.items():
        if not kept[pair]:
            raise InputError(
                f"{pairs.path} has no sentences left beside those set aside for mean ablation; "
                "give more sentences"
            )
        rows = kept[pair][: choice.limit]
        found[pair] = dataclasses.replace(
            pairs, pairs=rows, shots=shots[pair], reference=apart[pair]
        )
    return found


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
    choice: PairsChoice, model: str, check: int, seed: int = 0, reference: int = 0
) -> tuple[dict[str, PairFile], dict[str, PairFile]]:
    """The sentences to find heads on, and at most `check` of each direction to check them on.

    Of the data given, two halves that share no sentence in any direction; for the pocket model
    without data, sentences of its dev and of its test split. `reference`: see `read_directions`.
    """
    if choice.split in HALVES and choice.data and _all_files(choice):
        raise InputError(
            "this command takes both halves of the data, one to find and one to verify; leave "
            f"--split {choice.split} out"
        )
    directions = read_directions(choice, model, "dev", limit=100, seed=seed, reference=reference)
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
    beside = every if len(directions) > 1 else []
    first, second = {}, {}
    for name, pairs in directions.items():
        with naming(pairs.path):
            one, other = halves(pairs.pairs, beside)
        first[name] = dataclasses.replace(pairs, pairs=one)
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
    asked = list(dict.fromkeys(choice.pair))
    several = len(asked) > 1
    if several and Path(plain[0]).is_file():
        raise InputError(
            f"{plain[0]} is one file for {len(asked)} directions; give each its own by "
            f"{option} PAIR=FILE"
        )
    return [(pair, plain[0]) for pair in asked or (None,)]


def split_named(data: Iterable[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """What is written as `NAME=DATA`, with its name, and what is data without one."""
    named, plain = [], []
    for given in data:
        name, equals, place = given.partition("=")
        if equals and "/" not in name and not Path(given).exists():
            named.append((name, place))
        else:
            plain.append(given)
    return named, plain


def _pocket_directions(
    choice: PairsChoice, split: Literal["dev", "test"], limit: int, seed: int
) -> dict[str, PairFile]:
    from headscope.pocket.sample import sample_pairs
    from headscope.pocket.world.languages import CODES, DIRECTIONS

    asked = choice.pair
    if not asked and choice.source_language and choice.target_language:
        asked = (f"{choice.source_language}-{choice.target_language}",)
    if not asked and (choice.source_language or choice.target_language):
        raise InputError(
            "one language alone is given; add --pair en-de, or both --source-language and "
            "--target-language"
        )
    if not asked or "all" in asked:
        asked = DIRECTIONS
    for pair in asked:
        direction = parse_direction(pair)
        for said, code in (
            (choice.source_language, direction.source),
            (choice.target_language, direction.target),
        ):
            if said and not same_language(said, code):
                raise InputError(f"--pair {pair} contradicts the language {said}; give one of them")
        for code in (direction.source, direction.target):
            if code not in CODES:
                raise InputError(
                    f"the pocket model does not speak {language_name(code)} ({code}); it knows "
                    f"{', '.join(CODES)}"
                )
        if direction.source == direction.target:
            raise InputError(f"--pair {pair} names one language twice")
    return {pair: sample_pairs(pair, split, choice.limit or limit, seed) for pair in asked}


def model_inputs(lm: LanguageModel) -> dict[str, str]:
    """Content hashes of the model, for a run's signature.

    The weights are not the whole model: the same ones read other tokens, or attend otherwise,
    under another tokenizer or configuration.
    """
    return {
        "model": lm.digest,
        "model configuration": _digest([_settled(lm.shell.config.to_dict()), lm.eos_token_ids]),
        "tokenizer": _digest(_tokenizer(lm.tokenizer)),
        "chat template": _digest(getattr(lm.tokenizer, "chat_template", None)),
    }


def pair_inputs(
    directions: Mapping[str, PairFile], checked_on: Mapping[str, PairFile] | None = None
) -> dict[str, str]:
    """Content hashes of each direction's sentences and shots, and of those heads are checked on."""
    return {
        **{pair: pairs.digest for pair, pairs in directions.items()},
        **{f"{pair} shots": pairs.shots_digest for pair, pairs in directions.items()},
        **{f"{pair} (check)": pairs.digest for pair, pairs in (checked_on or {}).items()},
    }


def _settled(config: Any) -> Any:
    """A configuration without names, versions, and the dtype, which a run notes by itself."""
    if isinstance(config, dict):
        passing = ("transformers_version", "dtype", "torch_dtype", "use_cache")
        return {
            str(name): _settled(value)
            for name, value in config.items()
            if not str(name).startswith("_") and name not in passing
        }
    return [_settled(item) for item in config] if isinstance(config, list | tuple) else config


def _tokenizer(tokenizer: Any) -> Any:
    """What decides a tokenizer's tokens; padding and cutting are settings of single calls."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return sorted(tokenizer.get_vocab().items())
    settings: dict[str, Any] = json.loads(backend.to_str())
    return {name: settings[name] for name in settings if name not in ("padding", "truncation")}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


class Prompted(Protocol):
    """Settings that say how translations are prompted."""

    @property
    def template(self) -> Template: ...
    @property
    def chat(self) -> bool | None: ...


PromptedSettings = TypeVar("PromptedSettings", bound=Prompted)


def resolved_chat(lm: LanguageModel, settings: PromptedSettings) -> PromptedSettings:
    """The settings with what `chat` comes to for this model, as its signature has to say.

    Raises `InputError` if a chat template is wanted of a tokenizer without one.
    """
    from headscope.lm.prompting import uses_chat

    chat = uses_chat(lm, settings.chat, settings.template.text)
    return cast(PromptedSettings, dataclasses.replace(cast(Any, settings), chat=chat))


def model_provenance(lm: LanguageModel) -> dict[str, Any]:
    """What a result tells about its model."""
    return {"model": lm.name, "weights": lm.digest, **_as_loaded(lm)}


def dtype_name(lm: LanguageModel) -> str:
    """What the model computes in, such as `float32`."""
    return str(lm.dtype).removeprefix("torch.")


def about_model(lm: LanguageModel) -> dict[str, Any]:
    """What a result says about its model."""
    from headscope.lm.geometry import key_value_heads

    return {
        "name": lm.name,
        "digest": lm.digest,
        "parameters": lm.parameters,
        **_as_loaded(lm),
        "heads": lm.geometry.total,
        "geometry": lm.geometry.as_dict(),
        "key_value_heads": list(key_value_heads(lm)),
        "architecture": type(lm.model).__name__,
    }


def _as_loaded(lm: LanguageModel) -> dict[str, Any]:
    """`noise`: how far repeated passes lie apart, in standard deviations of the logits."""
    return {
        "revision": lm.revision,
        "dtype": dtype_name(lm),
        "quantised": lm.quantised,
        "dequantised": lm.dequantised,
        "device": str(lm.device),
        "noise": None if lm.noise is None else lm.noise.largest,
    }


def run_with_model(
    lm: LanguageModel,
    command: str,
    out: Path | None,
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    compute: Callable[[Run], AnyResult],
    began: float | None = None,
    *,
    kind: type[AnyResult],
    **known: Any,
) -> AnyResult:
    """`carry_out` of a command with a model, which counts in its signature.

    A result that has a place for its model, or is a dictionary, tells of it. `data` maps names to
    content hashes of what else is read; `known` adds to the provenance.
    """
    from headscope.runs import carry_out

    def with_model(run: Run) -> Any:
        computed: Any = compute(run)
        if isinstance(computed, ModelResult):
            facts = computed.model or decode(ModelFacts, about_model(lm))
            return dataclasses.replace(computed, model=facts)
        return {"model": about_model(lm), **computed} if isinstance(computed, dict) else computed

    config = {"computed_in": dtype_name(lm), **settings}
    inputs = {**model_inputs(lm), **data}
    about = {**model_provenance(lm), **known}
    typed: Any = None if kind is dict else kind
    result: AnyResult = carry_out(
        command, out, config, inputs, with_model, began, about, kind=typed
    )
    return result


def steps_of(progress: Progress | None, title: str) -> Steps | None:
    """What a method that knows no title calls; None where nobody listens."""
    if progress is None:
        return None
    return lambda done, total: progress(title, done, total)
