"""`headscope find patching`: heads whose output carries a language or a meaning over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.find.score_table import score_table
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice


@taking(model=model_choice)
def patching(
    model: ModelChoice,
    data: Annotated[
        str | None,
        Option(
            "--data",
            metavar="FILE",
            help="TSV, JSON Lines or Parquet of words, one meaning a row, columns named by "
            "language codes (en, de, es…). May be left out for pocket.",
        ),
    ] = None,
    prompts: Annotated[
        int, Option("--prompts", min=1, help="Pairs of prompts that are drawn.")
    ] = 100,
    template: options.TemplateText = None,
    chat: options.ChatTemplate = None,
    every: options.CountAll = False,
    control: Annotated[
        bool,
        Option(
            "--control/--no-control",
            help="Patch every head also from an unrelated prompt, which takes as long again.",
        ),
    ] = True,
    limit: options.Limit = None,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Put each head's output from one word translation into another; see what comes over.

    The other target language and the other meaning are reported apart. Without --data the words of
    the bundled model's world.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.data.prompts import Template
    from headscope.find.patching import Patching
    from headscope.find.word_prompts import WORD_TEMPLATE
    from headscope.recipes.find.patching import FindPatching, WordsChoice, find_patching

    hide_loading_bars()
    measure = Patching(
        pairs=prompts,
        template=WORD_TEMPLATE if template is None else Template.from_option(template),
        known_only=not every,
        control=control,
        chat=chat,
        seed=seed,
        batch_tokens=batch_tokens,
    )
    with progress() as update:
        config = FindPatching(model, WordsChoice(data, limit), measure)
        result = find_patching(config, out, update)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> str:
    """The best heads for either effect, what was counted, and where the rest is."""
    lines = []
    for name, words in (("language", "the other language"), ("concept", "the other meaning")):
        part = result["parts"][name]
        lines += [f"change in probability of {words}:", score_table(part, rows=10), ""]
    left = result["left_out"]
    lines.append(
        f"{result['examples']} pairs of prompts; left out: {left['not_known']} not known, "
        f"{left['same_first_token']} whose answers begin alike"
    )
    return "\n".join([*lines, f"run: {result['run']}"])


command = patching
