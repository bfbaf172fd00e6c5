"""Which model, and runs of studies with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, cast

from headscope import options
from headscope.errors import InputError, MissingExtra, ModelError, OptionalPart, caution
from headscope.executors import Execution
from headscope.heads import Geometry
from headscope.own import digest_of
from headscope.results.common import ModelFacts, ModelResult
from headscope.runs.codec import Result, decode
from headscope.runs.kept import place_of_kept
from headscope.runs.plain import file_digest
from headscope.settings import GIVEN, UNSIGNED, Nested, Option, Settings
from headscope.shown.words import sentence_of

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.lm import LanguageModel
    from headscope.runs import Run
    from headscope.studies.workers import Divided

POCKET = "pocket"
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
AnyResult = TypeVar("AnyResult", bound=Result)
#: The model that `kept_model` keeps, under its choice; None outside.
_KEPT: ContextVar[dict[ModelChoice, LanguageModel] | None] = ContextVar("kept model", default=None)
#: The model that `given_model` stands for, with its choice.
_GIVEN: ContextVar[tuple[ModelChoice, LanguageModel] | None] = ContextVar("given", default=None)
_MODEL = Option("A Hub id, a folder or a GGUF file.", metavar="MODEL", held="model")
#: For commands whose subject is the model: it is named by its place.
MODEL_ARGUMENT = Nested(changed={"model": dataclasses.replace(_MODEL, argument=True)})
#: For commands whose prompts may go through a chat template.
TEMPLATED = Nested(changed={"system": options.SYSTEM})
#: For those of them that also write texts, be it to see whether the model does the task.
PROMPTED = Nested(changed={**TEMPLATED.changed, "generation_config": options.GENERATION_CONFIG})
PROMPTED_ARGUMENT = Nested(changed={**MODEL_ARGUMENT.changed, **PROMPTED.changed})
DTYPE = Option("auto: float32 on CPU, else the checkpoint's own.", panel="Model loading")


@dataclass(frozen=True)
class ModelChoice(Settings):
    """Which model, and how it is loaded (see `headscope.load`)."""

    model: Annotated[str, _MODEL] = POCKET
    revision: Annotated[
        str | None, Option("Branch, tag or commit of a Hub model.", panel="Model loading")
    ] = None
    device: Annotated[
        str | None,
        Option("Such as cpu or cuda:1; without it the first GPU, or CPU.", panel="Model loading"),
    ] = field(default=None, metadata=UNSIGNED)
    dtype: Annotated[DtypeName, DTYPE] = "auto"
    device_map: Annotated[
        str | None, Option("Placement over several devices, such as auto.", panel="Expert")
    ] = field(default=None, metadata=UNSIGNED)
    tp_plan: Annotated[
        Literal["auto"] | None,
        Option(
            "auto: divide every layer's heads among the processes that torchrun started, each on "
            "its GPU.",
            panel="Expert",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    max_memory: Annotated[
        tuple[str, ...],
        Option(
            "With --device-map auto: weights a device takes at most, such as 0=20GiB or "
            "cpu=64GiB; repeatable. What fits nowhere waits on disk.",
            metavar="DEVICE=SIZE",
            panel="Expert",
        ),
    ] = field(default=(), metadata=UNSIGNED)
    offload_folder: Annotated[
        str | None,
        Option(
            "With --device-map: where weights wait that cannot be read from the checkpoint as "
            "they are; removed at the end.",
            metavar="DIR",
            panel="Expert",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    quantise: Annotated[
        Literal["8bit", "4bit"] | None,
        Option("Weights in 8 bits (LLM.int8) or 4 (NF4).", panel="Model loading"),
    ] = field(default=None, metadata=GIVEN)
    # What it reads is in every signature, so where it lies need not be.
    tokenizer: Annotated[
        str | None,
        Option(
            "Take the tokenizer from here: a folder, a Hub id, or a GGUF file.",
            metavar="MODEL",
            panel="Expert",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    check: Annotated[
        Literal["once", "always", "never"],
        Option(
            "When the model proves that its heads can be reached: once as it is loaded here (the "
            "verdict is kept), always, or never.",
            panel="Expert",
        ),
    ] = field(default="once", metadata=UNSIGNED)
    # Options of commands with prompts alone: see `TEMPLATED` and `PROMPTED`.
    system: str | None = field(default=None, metadata=GIVEN)
    generation_config: bool | None = field(default=None, metadata=GIVEN)

    def parts(self) -> Iterator[OptionalPart]:
        """What loading the model needs; nothing of one that is loaded."""
        from headscope.lm.loading import parts_of

        if self._plain != (_GIVEN.get() or (None,))[0]:
            yield from parts_of(self.model, self.device_map, self.quantise, self.tokenizer)

    @property
    def _plain(self) -> ModelChoice:
        return dataclasses.replace(self, system=None, generation_config=None)

    def _prompted(self, lm: LanguageModel) -> LanguageModel:
        """The model with what prompts and texts are to be like."""
        if self.generation_config:
            lm = lm.with_generation_config()
        return lm if self.system is None else lm.with_system(self._system)

    def load(self) -> LanguageModel:
        """The model, self-checked; inside `kept_model` the one loaded last, if it is the same.

        Raises `ModelError` if it cannot be loaded, `MissingExtra` if a package for it is missing.
        """
        from headscope.lm import load

        if self != self._plain:
            return self._prompted(self._plain.load())
        kept, given = _KEPT.get(), _GIVEN.get()
        if given is not None and self == given[0]:
            return given[1]
        if kept is not None and self in kept and kept[self].files_are_there():
            return kept[self]
        if kept is not None:
            kept.clear()  # before the next one is loaded: there may be no room for both
        try:
            lm = load(self.model, check=self.check, **self._settings())
        except MissingExtra:
            raise
        except InputError as error:
            raise ModelError(str(error)) from error
        if kept is not None:
            kept[self] = lm
        self._work_together()
        return lm

    def _work_together(self) -> None:
        if self.tp_plan is not None:
            from headscope.lm.shards import all_true, first
            from headscope.runs import Group, working_in

            working_in(Group(first(), lambda: all_true(True)))

    def whole_for(self, command: str) -> None:
        """`InputError` if the model is divided among processes, which the command cannot use."""
        if self.tp_plan is not None:
            raise InputError(
                f"{command} needs the whole model in one process; leave --tp-plan out and take "
                "--device-map auto"
            )

    def load_for(self, execution: Execution | None = None) -> LanguageModel:
        """The model of a run, whose weights are read when they are first needed.

        So heads, data and folders that cannot be used are told before, and a finished run needs no
        weights: files say all that decides which run it is. `InputError` where the workers of an
        execution cannot load it.
        """
        if execution is not None:
            self._check_workers(execution)
        from headscope.lm.loading import waiting_model

        plain = self._plain
        if plain not in (_KEPT.get() or ()) and plain != (_GIVEN.get() or (None,))[0]:
            try:
                lm = waiting_model(self.model, plain.load, **plain._settings())
            except MissingExtra:
                raise
            except InputError as error:
                raise ModelError(str(error)) from error
            if lm is not None:
                self._work_together()
                return self._prompted(lm)
        return self.load()

    def _settings(self) -> dict[str, Any]:
        """The settings of `headscope.load`, which knows the model's name besides."""
        from headscope.lm.weights import memory_limits

        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        del given["model"], given["system"], given["generation_config"], given["check"]
        return {**given, "max_memory": memory_limits(self.max_memory) or None}

    @property
    def _system(self) -> str | None:
        return "" if self.system == "none" else self.system

    def _check_workers(self, execution: Execution) -> None:
        execution.check()
        if not execution.elsewhere:
            return
        self.whole_for("a command with workers")
        given = _GIVEN.get()
        if given is not None and self._plain == given[0] and given[1].folder is None:
            raise InputError(
                f"the model {self.model!r} is held in memory, where other processes cannot load it "
                "from; save it and load it by its folder, or take one worker"
            )
        if self.device_map is not None and execution.executor == "local":
            raise InputError(
                "--device-map spreads the model over the devices of this machine, which leaves "
                "none to a second worker; leave --workers out, or take --executor ray or slurm, "
                "where each worker has devices of its own"
            )


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
    """Let commands take a loaded model where they ask for one of its name and revision; other
    threads wait with theirs until the block has ended.

    It is one of `headscope.load`, or of `transformers`, which is loaded from there first. Gives the
    options that name it; none, where `lm` is no loaded model.
    """
    if hasattr(lm, "state_dict") and hasattr(lm, "config"):
        from headscope.lm import load

        lm = load(lm)
    if not hasattr(lm, "gated"):
        yield {}
        return
    named = {"model": lm.name} | ({"revision": lm.revision} if lm.revision else {})
    with _owned_for_a_study(lm):
        before = _GIVEN.set((ModelChoice(**named), lm))
        try:
            yield named
        finally:
            _GIVEN.reset(before)


def given_geometry() -> Geometry | None:
    """The heads of the loaded model that `given_model` has; None where it has none."""
    given = _GIVEN.get()
    return None if given is None else given[1].geometry


def _owned_for_a_study(lm: LanguageModel) -> AbstractContextManager[None]:
    from headscope.lm.owners import STUDY, owned

    # One that has no weights yet is of this study alone.
    return owned(lm.model, STUDY) if getattr(lm, "loaded", True) else nullcontext()


def kin(model: str, others: Iterable[str], part: str) -> tuple[str, ...]:
    """Those of other models whose names differ from this one's in a part alone, a pattern of it."""

    def name(other: str) -> str:
        return re.sub("^meta-", "", other.rstrip("/").rpartition("/")[2].casefold())

    own, rest = name(model), re.sub(part, "", name(model))
    return tuple(
        other for other in others if name(other) != own and re.sub(part, "", name(other)) == rest
    )


def model_inputs(lm: LanguageModel) -> dict[str, str]:
    """Content hashes of the model, for a run's signature.

    The weights are not the whole model: the same ones read other tokens, or attend otherwise,
    under another tokenizer or configuration. Raises `InputError` where a model in memory is in no
    state that a signature could say: with an open gate, with other modules than when its heads were
    found, under autocast.
    """
    from headscope.lm.generation.settings import text_settings
    from headscope.lm.identity import check_as_probed

    if getattr(lm, "loaded", True):
        check_as_probed(lm)
    return {
        "model": lm.digest,
        "model configuration": _digest([_settled(lm.shell.config.to_dict()), lm.eos_token_ids]),
        "tokenizer": _digest(_tokenizer(lm.tokenizer)),
        "chat template": _digest(getattr(lm.tokenizer, "chat_template", None)),
        **({"generation settings": _digest(text_settings(lm))} if lm.generation_config else {}),
    }


def template_inputs(lm: LanguageModel) -> dict[str, str]:
    """The content hash of what the chat template makes of prompts, for a run whose prompts go
    through it.

    Its text is not all that decides: it may ask for a date or name special tokens, and is given a
    system message. Warns (`Caution`) of one that contradicts itself (see `AnswerPlace`); raises
    `InputError` for one that cannot be used.
    """
    from headscope.lm.tokens import ChatWriter

    writer = ChatWriter(lm.tokenizer, lm.system)
    if words := writer.contradiction:
        caution(words)
    return {"rendered prompts": _digest(writer.probes)}


def about_prompts(lm: LanguageModel) -> dict[str, Any]:
    """What a result says about the chat template that its prompts went through.

    `system_turn`: the text before the user's first turn, where there is one; `prompt_date`: the
    date that is given to every template that asks for one, where this one does; `template_told`: a
    variable that it is told; `answers_follow`: what prompts end in where that is not the end of
    the template's generation prompt (see `AnswerPlace`).
    """
    from headscope.lm.rendering import PROMPT_DATE
    from headscope.lm.tokens import ChatWriter

    writer = ChatWriter(lm.tokenizer, lm.system)
    turn, date = writer.system_turn, PROMPT_DATE.date().isoformat() if writer.dated else None
    place = writer.place
    known = {
        "system_turn": turn,
        "prompt_date": date,
        "template_told": place.told,
        "answers_follow": place.ends if place.moved else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def through_template(settings: Any) -> bool:
    """Whether settings say, at any depth, that prompts go through the chat template."""
    from headscope.runs.signature import configuration

    def said(value: Any) -> bool:
        if isinstance(value, Mapping):
            return value.get("chat") is True or any(map(said, value.values()))
        return isinstance(value, list | tuple) and any(map(said, value))

    return said(configuration(settings))


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
    """What decides a tokenizer's tokens; padding and cutting are settings of single calls.

    Settings outside of its backend count where they are not as they are by default.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    own: dict[str, Any] = {}
    kind = type(tokenizer)
    if kind.__module__.partition(".")[0] not in ("transformers", "tokenizers"):
        own["type"] = digest_of(kind)
    own |= {
        f"patched {name}": digest_of(value)
        for name, value in sorted(vars(tokenizer).items())
        if isinstance(value, FunctionType | MethodType)
    }
    if getattr(tokenizer, "split_special_tokens", False):
        own["split_special_tokens"] = True
    if backend is None:  # its vocabulary is not all: merges, pieces, normalisation
        with tempfile.TemporaryDirectory() as folder:
            files = tokenizer.save_pretrained(folder)
            own |= {Path(file).name: file_digest(file) for file in files if Path(file).is_file()}
        return [sorted(tokenizer.get_vocab().items()), own]
    settings: dict[str, Any] = json.loads(backend.to_str())
    passing = ("padding", "truncation")
    return {name: settings[name] for name in settings if name not in passing} | own


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


def numbers_of(lm: LanguageModel, inputs: Mapping[str, str]) -> dict[str, Any]:
    """All of a model that numbers of examples follow from, to the bit: its content hashes, what it
    computes in, by what and on which kind of device."""
    from headscope.lm.proofs import machinery

    weights = [dtype_name(lm), lm.quantised, lm.dequantised]
    return {"inputs": inputs, "computed in": weights, **machinery(lm)}


def model_provenance(lm: LanguageModel) -> dict[str, Any]:
    """What a result tells about its model."""
    proved = lm.proved if getattr(lm, "loaded", True) else None
    return {"model": lm.name, "weights": lm.digest, "self_check": proved, **_as_loaded(lm)}


def about_loaded(lm: LanguageModel, **known: Any) -> dict[str, Any]:
    """`model_provenance` of a model whose weights are read now, if they were not before; `known`
    is added."""
    _ = lm.model
    return {**model_provenance(lm), **known}


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
    """`noise`: how far repeated passes lie apart, in standard deviations of the logits;
    `characters`: of a GGUF file, where llama.cpp would read other ids from some texts;
    `generation_settings`: those of the checkpoint that change greedy texts, and whether texts
    followed them."""
    from headscope.lm.generation.settings import text_settings

    backend = getattr(lm.tokenizer_or_none, "backend_tokenizer", None)
    composed = type(getattr(backend, "normalizer", None)).__name__ == "NFC"
    from_gguf = lm.folder is not None and lm.folder.is_file()
    apart = {"characters": "composed (NFC), unlike in llama.cpp"} if composed and from_gguf else {}
    if lm.adapter is not None:
        apart["adapter"] = lm.adapter
    if found := text_settings(lm):
        done = "followed" if lm.generation_config else "left out of texts"
        listed = ", ".join(f"{name}={value!r:.40}" for name, value in found.items())
        apart["generation_settings"] = f"{done}: {listed}"
    return {
        "revision": lm.revision,
        "dtype": dtype_name(lm),
        "quantised": lm.quantised,
        "dequantised": lm.dequantised,
        "device": str(lm.device),
        "noise": None if lm.noise is None else lm.noise.largest,
        **apart,
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
    config: Divided | None = None,
    chat: bool = False,
    cautions: tuple[str, ...] = (),
    kept: str | None = None,
    **known: Any,
) -> AnyResult:
    """`carry_out` of a command with a model, which counts in its signature.

    So does what its chat template makes of prompts, where settings say so or `chat` does.

    A result that has a place for its model tells of it. `data` maps names to content hashes of what
    else is read, `cautions` say what seems wrong with it; `known` adds to the provenance. `config`
    are the settings of a study whose units workers may compute, who are given them again. `kept`
    says where numbers are kept beside the runs (see `headscope.runs.kept`).
    """
    from headscope.lm.shards import shared
    from headscope.runs import KeptNumbers, carry_out
    from headscope.studies.workers import divided

    if config is not None:
        compute = divided(compute, command, config, lm)

    def with_model(run: Run) -> Any:
        if beside is not None and not shared():  # processes that share a model go the same way
            waiting = None if before is None else dict[str, Any]()
            run.beside = KeptNumbers(beside, lm.name, numbers_of(lm, of_model), waiting)
        computed: Any = compute(run)
        if before is not None and lm.identity_now(functions=False) != before:
            raise InputError(
                f"{lm.name} was changed while {run.path} was computed, so its numbers are of two "
                "models; delete that folder and leave the model alone until the command ends"
            )
        if run.beside is not None:
            run.beside.settle()
        if isinstance(computed, ModelResult):
            facts = computed.model or decode(ModelFacts, about_model(lm) | about)
            computed = dataclasses.replace(computed, model=facts)
        return computed

    signed = {"computed_in": dtype_name(lm), **settings}
    templated = template_inputs(lm) if chat or through_template(signed) else {}
    about = about_prompts(lm) if templated else {}
    beside = place_of_kept(kept)
    with lm.settled():
        of_model = {**model_inputs(lm), **templated}
        inputs = {**of_model, **data}
        before = lm.identity_now(functions=False) if lm.within_reach else None
        return carry_out(
            command,
            out,
            signed,
            inputs,
            with_model,
            began,
            lambda: about_loaded(lm, **about, **known),
            kind=kind,
            cautions=(*cautions_of(lm, bool(templated)), *cautions),
        )


def cautions_of(lm: LanguageModel, templated: bool) -> tuple[str, ...]:
    """What is to be known of any number of a model, and of one whose prompts went through its chat
    template, in sentences."""
    from headscope.lm.checkpoints import about_adapter
    from headscope.lm.tokens import ChatWriter

    adapter = about_adapter(lm.name, lm.adapter) if lm.adapter else None
    template = ChatWriter(lm.tokenizer, lm.system).contradiction if templated else None
    return tuple(sentence_of(words) for words in (adapter, template) if words)
