"""`headscope find key-tokens`: how much attention heads pay to key words of a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

PromptText = Annotated[
    str | None,
    Option("--prompt", metavar="TEXT", help="The prompt, as the model reads it."),
]
PromptFile = Annotated[
    Path | None,
    Option(
        "--prompt-file",
        metavar="FILE",
        help="A UTF-8 file that holds the prompt; a line break at its end is left out.",
    ),
]
Words = Annotated[
    list[str],
    Option(
        "--word",
        metavar="WORD",
        help="A key word of the prompt, with its capitals: all its occurrences, or WORD#2 for the "
        "second; repeatable.",
    ),
]
AmountOfHeads = Annotated[
    str | None, Option("--k", metavar="K", help="Number of heads, or a share such as 0.15 or 15%.")
]
Answer = Annotated[
    str | None,
    Option("--answer", metavar="TEXT", help="An answer; without it the model's own, greedily."),
]
StepsName = Literal["answer", "last"]
Steps = Annotated[
    StepsName,
    Option(
        "--steps",
        help="Look from every step that predicts a token of the answer, or from the last token of "
        "the prompt alone.",
    ),
]
Draws = Annotated[int, Option("--draws", min=0, help="Draws of random heads.")]


@taking(model=model_choice)
def key_tokens(
    model: ModelChoice,
    word: Words,
    heads: options.Heads,
    prompt: PromptText = None,
    prompt_file: PromptFile = None,
    k: AmountOfHeads = None,
    rank: options.Rank = "above-chance",
    answer: Answer = None,
    steps: Steps = "answer",
    max_new_tokens: options.MaxNewTokens = None,
    chat: options.ChatTemplate = None,
    draws: Draws = 10,
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure the attention that heads pay to key words of a prompt while an answer is predicted.

    Beside it stands what even attention over all visible tokens would give, and random other heads.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.find.key_tokens import KeyTokens
    from headscope.recipes.find.key_tokens import FindKeyTokens, find_key_tokens

    hide_loading_bars()
    text = _prompt(prompt, prompt_file)
    measure = KeyTokens(
        tuple(word),
        answer,
        steps,
        max_new_tokens=max_new_tokens,
        chat=chat,
        draws=draws,
        seed=seed,
    )
    with progress() as update:
        config = FindKeyTokens(text, heads, measure, k, model, rank)
        result = find_key_tokens(config, out, update)
    emit(result, as_json, _table(result))


def _prompt(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise InputError("give the prompt as --prompt TEXT or as --prompt-file FILE, one of both")
    if file is None:
        assert text is not None  # one of both is given
        return text
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: is not UTF-8 (byte {error.start}); save it as UTF-8 text"
        ) from error


def _table(result: dict[str, Any]) -> str:
    """Heads and words, the controls, and where the rest is."""
    names = [one["word"] for one in result["words"]]
    widths = [max(8, len(name)) + 2 for name in names]
    columns = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines = [f"head       all    even{columns}"]
    for one in result["heads"]:
        cells = "".join(
            f"{word['mean']:>{width}.4f}" for word, width in zip(one["words"], widths, strict=True)
        )
        name = f"{one['layer']}.{one['head']}"
        lines.append(f"{name:<6}{one['score']:>8.4f}{one['uniform']:>8.4f}{cells}")
    lines.append(
        f"mean attention on all key words: {result['score']:.4f}; "
        f"were it spread evenly: {result['uniform']:.4f}"
    )
    named = {"random": "random heads", "random-layer-matched": "random heads of the same layers"}
    for kind, control in result["control"].items():
        lines.append(
            f"{named[kind]}: {control['mean']:.4f} ({control['low']:.4f} to {control['high']:.4f} "
            f"in {len(control['draws'])} draws)"
        )
    if result["answer"]:
        whose = "the model's answer" if result["generated"] else "the given answer"
        lines.append(f"{whose}, {result['tokens']} tokens: {result['answer'].strip()}")
    lines.append(f"run: {result['run']}")
    return "\n".join(lines)


command = key_tokens
