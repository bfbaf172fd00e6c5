"""`headscope find soft-gate`: the gates of a few heads, trained on questions and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.groups import model_choice, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice

AmountOfHeads = Annotated[
    str | None,
    Option(
        "--k",
        metavar="K",
        help="Number of heads, or a share such as 0.02 or 2%; without it a set is used whole, and "
        "of scores 2%, or 10% in a model of fewer than 256 heads.",
    ),
]
DataOfQuestions = Annotated[
    str | None,
    Option(
        "--data",
        metavar="FILE",
        help="Questions with contexts and answers: SQuAD or XQuAD JSON, or JSON Lines with "
        "context, question and answers. May be left out for pocket.",
    ),
]
TestData = Annotated[
    str | None,
    Option("--test-data", metavar="FILE", help="Test on this file instead of a part of --data."),
]
QuestionLanguage = Annotated[
    str | None,
    Option("--language", metavar="CODE", help="Language of the questions, for the prompt's words."),
]
KindName = Literal["translated", "one-language", "two-languages", "any"]
Kinds = Annotated[
    KindName,
    Option(
        "--kind",
        help="Of pocket's own questions: the fact asked for is told alone, in another language; "
        "or beside another fact, in the question's language, in another one, or half of each.",
    ),
]
Template = Annotated[
    str | None,
    Option(
        "--template",
        help="The prompt up to where the answer begins, with {context} and {question}.",
    ),
]
Seeds = Annotated[
    int, Option("--seeds", min=1, help="How often to train, each time with another seed.")
]
Train = Annotated[int, Option("--train", min=1, help="Pairs to learn from.")]
Stop = Annotated[int, Option("--stop", min=1, help="Other pairs, on which training is stopped.")]
Test = Annotated[int, Option("--test", min=1, help="Questions tested on, of neither.")]
Epochs = Annotated[int, Option("--epochs", min=1, help="How often each pair is learned from.")]
Batch = Annotated[int, Option("--batch", min=1, help="Samples of a step.")]
LearningRate = Annotated[float, Option("--learning-rate", help="How far a step goes.")]
LayerMatched = Annotated[
    bool,
    Option(
        "--layer-matched/--no-layer-matched",
        help="Also draw as many random heads of the same layers.",
    ),
]


@taking(model=model_choice)
def soft_gate(
    model: ModelChoice,
    heads: options.Heads,
    k: AmountOfHeads = None,
    rank: options.Rank = "above-chance",
    data: DataOfQuestions = None,
    test_data: TestData = None,
    language: QuestionLanguage = None,
    kind: Kinds = "translated",
    template: Template = None,
    chat: options.ChatTemplate = None,
    limit: options.Limit = None,
    seeds: Seeds = 5,
    train: Train = 200,
    stop: Stop = 100,
    test: Test = 500,
    epochs: Epochs = 2,
    batch: Batch = 1,
    learning_rate: LearningRate = 1e-2,
    max_new_tokens: options.MaxNewTokens = 10,
    checkpointing: options.Checkpointing = False,
    layer_matched: LayerMatched = True,
    allow_overlap: options.AllowOverlap = False,
    seed: options.Seed = 0,
    batch_tokens: options.BatchTokens = 8192,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Train the gates of a few heads on questions and answers, beside as many random heads.

    The share of held-out questions that are answered, within 10 new tokens unless told otherwise,
    is given for the untouched model, for these heads with their trained gates, for random heads
    trained alike, and for these heads removed.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.data.question_prompts import QuestionTemplate
    from headscope.find.soft_gate import SoftGate
    from headscope.recipes.find.soft_gate import FindSoftGate, find_soft_gate
    from headscope.recipes.questions import QuestionsChoice

    hide_loading_bars()
    config = FindSoftGate(
        heads,
        k,
        model,
        QuestionsChoice(data, test_data, language, kind, train, stop, test, limit),
        QuestionTemplate.from_option(template),
        SoftGate(
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch,
            max_new_tokens=max_new_tokens or 10,
            chat=chat,
            checkpointing=checkpointing,
            batch_tokens=batch_tokens,
        ),
        seeds,
        seed,
        layer_matched,
        allow_overlap,
        rank,
    )
    with progress() as update:
        result = find_soft_gate(config, out, update)
    emit(result, as_json, _table(result))


NAMES = {
    "untouched": "untouched",
    "trained": "gates trained",
    "random": "random heads",
    "random-layer-matched": "same layers",
    "removed": "removed",
    "random-removed": "random removed",
}


def _table(result: Mapping[str, Any]) -> str:
    """Conditions with their accuracies, what the gates add, and where the rest is."""
    lines = [f"{'':<16}{'answered':>9}  {'95 % interval':<16}{'sd':>7}{'loss':>8}"]
    for kind, words in NAMES.items():
        if kind not in result["accuracy"]:
            continue
        one = result["accuracy"][kind]
        right = one["accuracy"]
        bounds = f"{right['low']:.3f} to {right['high']:.3f}"
        spread = "" if right["sd"] is None else f"{right['sd']:.3f}"
        loss = f"{one['nll']['mean']:.3f}"
        lines.append(f"{words:<16}{right['mean']:>9.3f}  {bounds:<16}{spread:>7}{loss:>8}")
    for one in result["differences"]:
        change = one["accuracy"]
        lines.append(
            f"{NAMES[one['condition']]} - {NAMES[one['minus']]}: {change['value']:+.3f} "
            f"({change['low']:+.3f} to {change['high']:+.3f})"
        )
    gates = result["seeds"][0]["trained"]["heads"]
    shown = ", ".join(f"{one['layer']}.{one['head']} {one['gate']:.2f}" for one in gates[:8])
    more = ", …" if len(gates) > 8 else ""
    counts = result["pairs"]
    lines.append(f"gates of seed {result['seeds'][0]['seed']}: {shown}{more}")
    lines.append(
        f"{counts['train']} pairs learned from, {counts['stop']} stopped on, {counts['test']} "
        f"tested on; {counts['unanswerable']} without an answer left out, {counts['cut']} contexts "
        "cut"
    )
    return "\n".join([*lines, f"run: {result['run']}"])


command = soft_gate
