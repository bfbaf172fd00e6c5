"""Options that come together: each group makes one value, and commands take the values.

A command names the groups it takes; on the command line it then has their options among its own::

    @taking(model=model_choice, pairs=pairs_choice)
    def removal(model: ModelChoice, pairs: PairsChoice, k: options.Amounts = None) -> None: ...

So an option is declared, and its value built, in one place for all commands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headscope.cli import old_options as options
from headscope.recipes.inputs import ModelChoice, PairsChoice

if TYPE_CHECKING:
    from headscope.data.prompts import Template
    from headscope.find.translation import TranslationScore
    from headscope.measure.baseline import Rules
    from headscope.recipes.documents import DocumentsChoice
    from headscope.recipes.tasks import TaskChoice

__all__ = [
    "baseline_rules",
    "documents_choice",
    "model_choice",
    "pairs_choice",
    "taking",
    "task_choice",
    "template_choice",
    "translation_score_choice",
]

Command = Callable[..., None]


def taking(**groups: Callable[..., Any]) -> Callable[[Command], Command]:
    """Fill the named parameters of a command from groups, and show the groups' options instead.

    Groups may share an option, such as the seed, with each other and with the command.
    """
    wanted = {name: _parameters(group) for name, group in groups.items()}

    def decorate(command: Command) -> Command:
        own = _parameters(command, without=groups)
        shown: dict[str, inspect.Parameter] = {}
        for name in inspect.signature(command).parameters:
            options_of = wanted[name] if name in wanted else {name: own[name]}
            for option, parameter in options_of.items():
                shown.setdefault(option, parameter)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = {
                name: group(**{option: given[option] for option in wanted[name]})
                for name, group in groups.items()
            }
            command(**made, **{option: given[option] for option in own})

        described: Any = run
        # Typer reads these two; what `wraps` sets would lead past them to the command's own.
        del described.__wrapped__
        described.__signature__ = inspect.Signature(list(shown.values()))
        described.__annotations__ = {name: one.annotation for name, one in shown.items()}
        return run

    return decorate


def _parameters(
    function: Callable[..., Any], without: dict[str, Any] | None = None
) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name, with evaluated annotations, to be given by name."""
    names = vars(inspect.getmodule(function))
    return {
        name: one.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=eval(one.annotation, names)
            if isinstance(one.annotation, str)
            else one.annotation,
        )
        for name, one in inspect.signature(function).parameters.items()
        if name not in (without or {})
    }


def model_choice(
    model: options.ModelOption = "pocket",
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    max_memory: options.MaxMemory = None,
    offload_folder: options.OffloadFolder = None,
    quantise: options.Quantise = None,
    tokenizer: options.Tokenizer = None,
) -> ModelChoice:
    """The model as an option, for commands that have another subject."""
    return ModelChoice(
        model,
        revision,
        device,
        dtype,
        device_map,
        tuple(max_memory or ()),
        None if offload_folder is None else str(offload_folder),
        quantise,
        tokenizer,
    )


def pairs_choice(
    pair: options.Pairs = None,
    data: options.DataOfPairs = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    source_column: options.SourceColumn = "source",
    target_column: options.TargetColumn = "target",
    links_column: options.LinksColumn = None,
    split: options.Split = None,
    limit: options.Limit = None,
    shots: options.Shots = 0,
    shots_data: options.ShotsData = None,
    language_name: options.LanguageNames = None,
) -> PairsChoice:
    """Sentence pairs of one or several directions."""
    return PairsChoice(
        tuple(pair or ()),
        tuple(data or ()),
        source_language,
        target_language,
        source_column,
        target_column,
        links_column,
        split,
        limit,
        shots,
        tuple(shots_data or ()),
        tuple(language_name or ()),
    )


def task_choice(
    task: options.Tasks = None,
    pair: options.Pairs = None,
    data: options.DataOfTasks = None,
    instruction: options.Instruction = None,
    bare: options.Bare = None,
    chat: options.ChatTemplate = None,
    shots: options.Shots = 0,
    held_out: options.HeldOut = 100,
    limit: options.Limit = None,
    language: options.OutputLanguage = None,
    input_column: options.InputColumn = "input",
    output_column: options.OutputColumn = "output",
    source_column: options.SourceColumn = "source",
    target_column: options.TargetColumn = "target",
    split: options.Split = None,
) -> TaskChoice:
    """Tasks from files, translation directions, and the pocket model's own tasks."""
    from headscope.data.tasks.task import from_option
    from headscope.recipes.tasks import TaskChoice

    return TaskChoice(
        task=tuple(task or ()),
        pair=tuple(pair or ()),
        data=tuple(data or ()),
        instruction=None if instruction is None else from_option(instruction),
        bare=None if bare is None else from_option(bare),
        chat=chat,
        shots=shots,
        held_out=held_out,
        limit=limit,
        language=language,
        input_column=input_column,
        output_column=output_column,
        source_column=source_column,
        target_column=target_column,
        split=split,
    )


def documents_choice(
    data: options.DataOfDocuments = None,
    text_column: options.TextColumn = "text",
    language_column: options.LanguageColumn = None,
    language: options.Languages = None,
    split: options.Split = None,
    limit: options.DocumentLimit = None,
) -> DocumentsChoice:
    """Documents of one or several languages."""
    from headscope.recipes.documents import DocumentsChoice

    return DocumentsChoice(
        tuple(data or ()), text_column, language_column, tuple(language or ()), split, limit
    )


def template_choice(template: options.TemplateText = None) -> Template:
    """The prompt for a translation."""
    from headscope.data.prompts import DEFAULT_TEMPLATE, Template

    return DEFAULT_TEMPLATE if template is None else Template.from_option(template)


def baseline_rules(
    baseline_examples: options.BaselineExamples = 16,
    baseline_off_target: options.BaselineOffTarget = 0.5,
    baseline_unfinished: options.BaselineUnfinished = 0.5,
) -> Rules:
    """When a model counts as not doing the task."""
    from headscope.measure.baseline import Rules

    return Rules(baseline_examples, baseline_off_target, baseline_unfinished)


def translation_score_choice(
    decode: options.Decode = "reference",
    scope: options.Scope = "all",
    query: options.Query = "predict",
    average: options.Average = "macro",
    skip_identical: options.SkipIdentical = False,
    aligner: options.Aligner = None,
    llm_model: options.LlmModel = None,
    base_url: options.BaseUrl = None,
    confidence: options.Confidence = 0.9,
    template: options.TemplateText = None,
    chat: options.ChatTemplate = None,
    max_new_tokens: options.MaxNewTokens = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    keep_peaks: options.KeepPeaks = False,
) -> TranslationScore:
    """How translation scores are computed."""
    from headscope.cli.models import llm_aligner
    from headscope.find.translation import TranslationScore

    return TranslationScore(
        decode=decode,
        scope=scope,
        query=query,
        average=average,
        skip_identical=skip_identical,
        aligner=aligner,
        llm=llm_aligner(aligner, llm_model, base_url, confidence),
        template=template_choice(template),
        chat=chat,
        max_new_tokens=max_new_tokens,
        seed=seed,
        batch_tokens=batch_tokens,
        keep_peaks=keep_peaks,
    )
