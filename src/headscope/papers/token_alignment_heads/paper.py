"""Token Alignment Heads: its question, its experiments, and the answer for one model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headscope.papers.claims import answering
from headscope.papers.paper import Experiment, Missing, Paper, Setting, Step, Steps
from headscope.papers.token_alignment_heads import findings, steps
from headscope.papers.token_alignment_heads.setting import NAME, given_directions, how_chosen

#: The groups of models of Figures 13 to 15, of 16 to 18, and of 19 to 21.
MODEL_GROUPS = ("small", "medium", "large")
#: The paper's families and the size that follows: Llama-3.2-1B, Qwen3-30B-A3B, Mixtral-8x7B-v0.1.
FAMILIES = re.compile(
    r"(?:(?:meta-)?llama-?3(?:\.\d)?|qwen3|mistral(?:-[\w.]+)*?|mixtral|gemma-?2)"
    r"-(?:\d+x)?(\d+(?:\.\d+)?)b(?![a-z])",
    re.IGNORECASE,
)
#: The paper's kinds of tasks: one of lm-evaluation-harness, and what names of this kind hold
#: (hellaswag, arc_easy, arc_challenge and mmlu are English).
TASK_KINDS = {
    "hellaswag_multilingual": "hellaswag_",
    "arc_multilingual": r"\warc_|arc_(?!easy$|challenge$)",
    **{name: name for name in ("xwinograd", "xstorycloze", "xnli", "xcopa")},
    "cmmlu": r"\wmmlu|vmlu",
}
OWN_PROMPTS = Missing(
    "the paper's prompts and key words are French and German texts that the bundled model cannot "
    "read; prompts of its own world are shown instead",
    "--model MODEL",
    "needs MODEL",
)


def group_of(model: str) -> str | None:
    """The paper's group of a model by its name (appendix A.5); of a mixture by one expert's size.

    Its small models have 1 or 2 billion parameters, its medium ones 8 or 9, its large ones over 13.
    None for a model of another family than the four of the paper.
    """
    found = FAMILIES.match(model.rpartition("/")[2])
    if found is None:
        return None
    billions = float(found[1])
    return MODEL_GROUPS[0 if billions < 5 else 1 if billions < 13 else 2]


def _of_group(
    setting: Setting, element: str, others: Sequence[str], flags: str = "--pairs"
) -> Missing | None:
    """Figures 13 to 21 are of three groups of models; the figures before them of any.

    `others` are the other models that are run, which needs `flags`.
    """
    number = int(element.partition(" ")[2])
    group = MODEL_GROUPS[(number - 13) % 3]
    if number < 13 or group in map(group_of, (setting.model.model, *others)):
        return None
    why = f"a {group} model of the paper's families (Llama 3, Qwen3, Mistral, Gemma 2), by its name"
    return Missing(why, f"--others MODEL with {flags}, or --model MODEL", "needs MODEL")


def _scored(setting: Setting, element: str, own: Sequence[Step]) -> Missing | None:
    return _of_group(setting, element, setting.data.others if setting.data.pairs else ())


def _linked(setting: Setting, element: str, own: Sequence[Step]) -> Missing | None:
    """The figure is one of links by a language model."""
    if setting.steering.aligner == "llm" and setting.llm is not None:
        return None
    why = "the figure shows links by a language model"
    return Missing(why, "--aligner llm --llm-model NAME", "needs ENDPOINT")


def _overlapping(setting: Setting, element: str, own: Sequence[Step]) -> Missing | None:
    """Each figure is of all its directions."""
    if setting.pocket:
        why = "the paper's directions are of languages that the bundled model does not know"
        return Missing(why, "--model MODEL with --pairs for each direction", "needs MODEL")
    every = findings.FIGURES[element]
    left = [pair for pair in every if pair not in given_directions(setting)]
    why = f"{element} is of {len(every)} directions, {len(left)} of them not given"
    return Missing(why, f"--pairs PAIR=FILE for {', '.join(left)}") if left else None


def _tasks(setting: Setting) -> Steps:
    lacking = _lacking_tasks(setting)
    if lacking and not (setting.pocket or setting.data.benchmarks):
        return lacking
    return steps.task_steps(setting)


def _tasks_missing(setting: Setting, element: str, own: Sequence[Step]) -> Missing | None:
    """Every figure is of all kinds of tasks, Figures 19 to 21 of one group of models each."""
    flags = "--pairs and --benchmarks"
    if setting.pocket and element == "Figure 9":
        why = "the paper's tasks are in languages that the bundled model does not know"
        return Missing(why, f"--model MODEL with {flags}", "needs MODEL")
    others = steps.other_models(setting)
    return _of_group(setting, element, others, flags) or _lacking_tasks(setting)


def _lacking_tasks(setting: Setting) -> Missing | None:
    """What is missing of the paper's kinds of tasks, by the names of tasks and of their files."""
    places = map(Path, setting.data.benchmarks)
    names = [file.stem for place in places for file in (place, *place.rglob("*.y*ml"))]
    left = [
        f"--benchmarks {kind}"
        for kind, pattern in TASK_KINDS.items()
        if not any(re.search(pattern, name, re.IGNORECASE) for name in names)
    ]
    why = (
        "the paper takes translated HellaSwag and ARC (MuBench), XWinograd, XStoryCloze, XNLI, "
        "XCOPA and local versions of MMLU"
    )
    give = f"tasks of lm-evaluation-harness, or folders of such, of each kind: {', '.join(left)}"
    return Missing(why, give) if left else None


def _figures(*numbers: int) -> tuple[str, ...]:
    return tuple(f"Figure {number}" for number in numbers)


EXPERIMENTS = (
    Experiment(
        "figure-1",
        _figures(1, 8),
        "What translation is without these heads",
        steps.spared_steps,
        findings.show_removal,
    ),
    Experiment(
        "figure-2",
        _figures(2),
        "Which words of two sentences belong together",
        steps.link_steps,
        findings.show_links,
        _linked,
    ),
    Experiment(
        "figure-3",
        _figures(3, 13, 14, 15),
        "Which share of the heads aligns tokens",
        steps.class_steps,
        findings.show_classes,
        _scored,
    ),
    Experiment(
        "figure-4",
        _figures(4, 16, 17, 18),
        "In which layers these heads lie",
        lambda setting: steps.score_steps(setting, *steps.other_scores(setting)),
        findings.show_positions,
        _scored,
    ),
    Experiment(
        "figure-5",
        _figures(5, 28),
        "Whether the same heads translate in all directions",
        steps.overlap_steps,
        findings.show_overlap,
        _overlapping,
    ),
    Experiment(
        "figure-6",
        _figures(6, 7),
        "How these heads form during training",
        steps.formation_steps,
        findings.show_formation,
    ),
    Experiment(
        "figure-9",
        _figures(9, 19, 20, 21),
        "What other tasks lose without these heads",
        _tasks,
        findings.show_tasks,
        _tasks_missing,
    ),
    Experiment(
        "table-1",
        ("Table 1",),
        "Another experiment than the paper's: small models learn from texts that need these heads",
        steps.training_steps,
        findings.show_trainings,
        apart=True,
    ),
    Experiment(
        "table-2",
        ("Table 2", "Table 3"),
        "Which texts need these heads",
        steps.rated_steps,
        findings.show_rated,
    ),
    Experiment(
        "figure-10",
        _figures(10, 11, 12),
        "How translations fail without these heads",
        steps.failure_steps,
        findings.show_failures,
    ),
    Experiment(
        "figure-22",
        _figures(*range(22, 28)),
        "Whether these heads look at the words on which a prompt turns",
        steps.key_word_steps,
        findings.show_key_words,
        lambda setting, element, own: OWN_PROMPTS if setting.pocket else None,
    ),
)


PAPER = Paper(
    NAME,
    "Token Alignment Heads: Unveiling Attention's Role in LLM Multilingual Translation",
    "Liu and others, ICLR 2026",
    "Are there attention heads that map the words of a source sentence to those of its "
    "translation, and does the model need them to translate?",
    (
        "A head scores a hit where its largest attention weight, while a target word is predicted, "
        "lies on the source word that it translates; its translation score is the share of hits.",
        "Heads that score above 0.1 are counted by model, layer, direction and checkpoint.",
        "The best of them are removed, and in comparison as many random heads; the loss is "
        "measured in translation, in other tasks and on texts.",
    ),
    EXPERIMENTS,
    answering(NAME, EXPERIMENTS),
    frozenset(("limit", "draws", "k", "aligner", "measure", "rank", "shots", "chat", "decode")),
    lambda setting: (how_chosen(setting),),
)
