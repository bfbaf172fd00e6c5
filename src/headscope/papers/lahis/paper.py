"""The paper's experiments: what each needs, and what is missing where it cannot be run."""

from __future__ import annotations

from collections.abc import Callable

from headscope.data.transfer import LANGUAGES, language_of
from headscope.papers.claims import answering
from headscope.papers.lahis import findings
from headscope.papers.lahis import steps as runs
from headscope.papers.lahis.scale import astray, codes, directions_given
from headscope.papers.paper import Experiment, Missing, Paper, Setting, Steps
from headscope.shown.blocks import Findings

DOCUMENTS = Missing(
    "LAHIS scores heads on documents of several languages (the published code: 1,000 Wikipedia "
    "articles of each), which are not part of the package",
    "--documents de=FILE for each language, with 2,000 documents or more: half are scored, half "
    "tested",
)
ONE_LANGUAGE = Missing(
    "heads of one language are tested on text of another, and there are documents of one language",
    "--documents de=FILE for a second language",
)
SUMMARIES = Missing(
    "general heads are tested on texts with summaries (such as XL-Sum), which are not part of the "
    "package",
    "--summaries de=FILE for each language, with the columns text and summary",
)
REPEATED = Missing(
    "the bundled model cannot summarise; it repeats sentences instead",
    "--model MODEL with --documents and --summaries",
    "needs MODEL",
)
QUESTIONS = Missing(
    "gates are trained on questions with contexts and answers (the paper: XQuAD), which are not "
    "part of the package",
    "--questions de=FILE for each language (SQuAD, XQuAD or JSON Lines)",
)
ASTRAY = Missing(
    "answers go astray behind a text in the language that is translated from, and no direction has "
    "documents in both its languages",
    "--pairs en-de=FILE with --documents en=FILE and --documents de=FILE",
)
STATEMENTS = Missing(
    f"the package has contradicting statements in {', '.join(LANGUAGES)}, and there are documents "
    "in fewer than two of these",
    "--statements en-de=FILE (JSON Lines of a, b, prompt, answers_a and answers_b), or --documents "
    "de=FILE for two of these languages",
)


def _cross(setting: Setting) -> Steps:
    given = setting.data.documents
    single = not setting.pocket and len(given) == 1 and "=" in given[0]
    return ONE_LANGUAGE if single else (runs.perplexity(setting),)


def _general(setting: Setting) -> Steps:
    known = setting.pocket or setting.data.summaries
    return (runs.summaries(setting),) if known else SUMMARIES


def _off_target(setting: Setting) -> Steps:
    """Documents are continued always, sentences translated where they are given."""
    both = setting.pocket or directions_given(setting)
    return (
        *((runs.off_target(setting, "translate"),) if both else ()),
        runs.off_target(setting, "continue"),
    )


def _transfer(setting: Setting) -> Steps:
    named = [code for code in codes(setting.data.documents) if language_of(code)]
    known = setting.pocket or setting.data.statements or len(named) >= 2
    return (runs.transfer(setting),) if known else STATEMENTS


def _experiment(
    name: str,
    title: str,
    steps: Callable[[Setting], Steps],
    show: Callable[[Setting], Findings],
    *elements: str,
    missing: Callable[[Setting], Missing | None] = lambda setting: None,
) -> Experiment:
    """The heads and the runs that read them, where there are documents to find heads on.

    `missing` says what is missing for an element although the experiment can be run.
    """

    def every(setting: Setting) -> Steps:
        if not setting.pocket and not setting.data.documents:
            return DOCUMENTS
        own = steps(setting)
        return own if isinstance(own, Missing) else (runs.heads(setting), *own)

    return Experiment(
        name, elements, title, every, show, lambda setting, element, steps: missing(setting)
    )


EXPERIMENTS = (
    _experiment(
        "importance",
        "Importance of every head for each language",
        lambda setting: (),
        findings.show_importance,
        "attn_matrix.py",
    ),
    _experiment(
        "language-heads",
        "Heads specific to a language, general heads, and their layers",
        lambda setting: (),
        findings.show_sets,
        "language_heads.py",
    ),
    _experiment(
        "ppl",
        "A language's text without its heads, without random ones, and as it is",
        lambda setting: (runs.perplexity(setting),),
        findings.show_perplexity,
        "multilingual_exps.py ppl",
    ),
    _experiment(
        "ppl-cross",
        "Heads of one language, text of another",
        _cross,
        findings.show_cross,
        "multilingual_exps.py ppl-cross",
    ),
    _experiment(
        "general-head",
        "Summaries without general heads",
        _general,
        findings.show_general,
        "multilingual_exps.py general_head",
        missing=lambda setting: REPEATED if setting.pocket else None,
    ),
    _experiment(
        "off-target",
        "Text in another language, without the language's heads",
        _off_target,
        findings.show_off_target,
        "multilingual_exps.py off_target_lan",
    ),
    _experiment(
        "mitigation",
        "Answers in the wrong language, led back by the heads of either language",
        lambda setting: (runs.mitigation(setting),) if astray(setting)[1] else ASTRAY,
        findings.show_mitigation,
    ),
    _experiment(
        "attn-transfer",
        "Which of two contradicting statements is believed, with a language turned up or down",
        _transfer,
        findings.show_transfer,
        "multilingual_exps.py attn_transfer",
    ),
    _experiment(
        "head-mask",
        "Questions answered with trained gates of a few heads",
        lambda setting: (
            runs.gates(setting) if setting.pocket or setting.data.questions else QUESTIONS
        ),
        findings.show_gates,
        "lan_head_mask.py",
        "multilingual_exps.py head_mask",
    ),
    _experiment(
        "layers",
        "A language's text without whole layers, and where important heads lie",
        lambda setting: (runs.layers(setting),),
        findings.show_layers,
    ),
    _experiment(
        "moving-gate",
        "Heads by the gate that the published code moves, and those by the gate that stays",
        runs.moving,
        findings.show_moving,
    ),
)


PAPER = Paper(
    name="lahis",
    title=(
        "Focusing on Language: Revealing and Exploiting Language Attention Heads in Multilingual "
        "Large Language Models"
    ),
    source="Liu et al., 2025, arXiv 2511.07498",
    question=(
        "Do attention heads serve single languages, or all of them, and can a model's handling of "
        "a language be changed through its heads?"
    ),
    method=(
        "A head's importance for a language is the mean size of the derivative of a document's "
        "loss with respect to the head's gate, times the share of documents whose loss falls when "
        "the head is stronger.",
        "Heads above a quantile are a language's important ones; those important in most languages "
        "are general, the rest specific.",
        "Both kinds are removed, turned up or given trained gates, and text, answers and their "
        "language are compared with the untouched model and with as many random heads.",
    ),
    experiments=EXPERIMENTS,
    answer=answering("lahis", EXPERIMENTS, lambda experiment: experiment.name),
    steered=frozenset(("limit", "draws", "k", "protocol")),
    notes=findings.notes,
)
