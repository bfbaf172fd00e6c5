"""Options with the same name and meaning in several settings.

The names are a contract: a script written for one command works with the next one. Where values
are listed, the first one is the default.
"""

from __future__ import annotations

from dataclasses import replace
from operator import not_
from pathlib import Path
from typing import Annotated, Literal

from headscope.ablations import KINDS, AblateName
from headscope.errors import InputError
from headscope.settings import Option

#: A number of heads (`20`, `"20"`) or a share of all heads (`0.15`, `"0.15"`, `"15%"`).
Amount = int | float | str

# The model
BatchTokens = Annotated[int, Option("Padded tokens of a batch.", min=1, panel="Expert")]
BatchTokensByDevice = Annotated[
    int | None, Option("Padded tokens of a batch.", min=1, panel="Expert")
]

# The run
Seed = Annotated[int, Option("Seed of everything drawn at random.", min=0, panel="Running")]
LIMIT = Option(
    "The first so many of each direction or task.",
    min=1,
    panel="Data",
)
Limit = Annotated[int | None, LIMIT]

# Sentence pairs
Pairs = Annotated[
    tuple[str, ...],
    Option(
        "Source and target language; repeatable; or all.",
        metavar="en-de",
        held="direction",
        panel="Data",
    ),
]
Pair = Annotated[
    str | None,
    Option("Source and target language.", metavar="en-de", held="direction", panel="Data"),
]
Data = Annotated[
    str,
    Option(
        "File (TSV, CSV, JSON, Parquet, …), FLORES folder, or Hub dataset.",
        metavar="DATA",
        held="pairs",
        panel="Data",
    ),
]
SourceLanguage = Annotated[str | None, Option("Instead of --pair.", metavar="CODE", panel="Expert")]
TargetLanguage = SourceLanguage
SourceColumn = Annotated[
    str, Option("By name, or by number from 0.", metavar="COLUMN", panel="Data")
]
TargetColumn = Annotated[str, Option("Likewise.", metavar="COLUMN", panel="Data")]
LinksColumn = Annotated[
    str | None,
    Option(
        "By name, or by number from 0; without it links, if there.",
        metavar="COLUMN",
        panel="Expert",
    ),
]
LinksFrom = Annotated[
    int | None,
    Option(
        "What links call the first word: 0 (the default), or 1 as in GIZA's files.",
        min=0,
        max=1,
        metavar="0|1",
        panel="Expert",
    ),
]
LinksSwapped = Annotated[bool | None, Option("Links name the target word first.", panel="Expert")]
Split = Annotated[
    str | None,
    Option(
        "Half of a file (find, verify), or a dataset's split.",
        panel="Data",
    ),
]
WorldSplit = Literal["train", "dev", "test"]

# Scoring
MaxNewTokens = Annotated[int | None, Option("Longest generated answer.", min=1, panel="Expert")]
DecodeName = Literal["reference", "greedy"]
Decode = Annotated[
    DecodeName, Option("Score the reference in one pass, or the model's own translation.")
]
ScopeName = Literal["all", "source"]
Scope = Annotated[
    ScopeName, Option("Keys that a peak may fall on: all, or the source's.", panel="Expert")
]
QueryName = Literal["predict", "read"]
Query = Annotated[
    QueryName, Option("The position that predicts a token, or its own.", panel="Expert")
]
AverageName = Literal["macro", "micro"]
Average = Annotated[
    AverageName, Option("Mean of sentence scores, or over all tokens.", panel="Expert")
]
SkipIdentical = Annotated[
    bool,
    Option(
        "Leave out target words whose source word looks the same (names, digits).", panel="Expert"
    ),
]
KeepPeaks = Annotated[
    bool,
    Option(
        "Keep the peaks of all heads on all sentences in the run folder, not just of 40 heads on "
        "200 sentences.",
        panel="Expert",
    ),
]
AlignerName = Literal["links", "eflomal", "llm", "heads"]
Aligner = Annotated[
    AlignerName | None,
    Option(
        "What links words: without it the data's links, else, and in the model's outputs, eflomal."
    ),
]
Threshold = Annotated[
    float, Option("Score above which a head aligns tokens.", min=0.0, max=1.0, panel="Expert")
]
Inactive = Annotated[
    float, Option("Score up to which a head is inactive.", min=0.0, max=1.0, panel="Expert")
]

# The language model that annotates word links or judges translations
LlmModel = Annotated[
    str | None,
    Option("Language model that links words or judges.", metavar="NAME", panel="Expert"),
]
BaseUrl = Annotated[
    str | None,
    Option(
        "Endpoint of --llm-model; without it HEADSCOPE_BASE_URL or OPENAI_BASE_URL. The key is "
        "read from HEADSCOPE_API_KEY or OPENAI_API_KEY.",
        metavar="URL",
        panel="Expert",
    ),
]
Cache = Annotated[
    Path | None, Option("Where answers of --llm-model are kept.", metavar="DIR", panel="Expert")
]
Confidence = Annotated[
    float, Option("Links above this confidence of --aligner llm.", min=0.0, max=1.0, panel="Expert")
]
MinConfidence = Annotated[
    float | None,
    Option(
        "Of a file of word alignments, links above this confidence.",
        min=0.0,
        max=1.0,
        panel="Expert",
    ),
]

# Sets of heads
HEADS = Option(
    "A run, a saved set, a file of heads or scores, or a list: 5.3,7.11.",
    held="heads",
)
Heads = Annotated[str, HEADS]
Masks = Annotated[
    tuple[str, ...],
    Option(
        "A run of headscope find mask; repeatable, with several tasks as TASK=RUN.",
        flag="--heads",
        metavar="RUN",
        held="heads",
    ),
]
Amounts = Annotated[
    tuple[Amount, ...],
    Option(
        "Heads: a number, or a share such as 15%; repeatable. By default a set whole, of scores 20 "
        "(15% below 256).",
        metavar="K",
        typed=str,
    ),
]
AmountOfEach = Annotated[
    Amount | None,
    Option(
        "Number of heads of each language, or a share such as 0.02 or 2%. Without it 1% of a run "
        "of find lahis, at least one; a set is used whole.",
        metavar="K",
        typed=str,
    ),
]
RankName = Literal["above-chance", "score"]
Rank = Annotated[
    RankName,
    Option(
        "What --k cuts scores by: the score minus chance, or the score (as in the paper of "
        "translation scores). Scores without chance are cut by score.",
        panel="Expert",
    ),
]
VERIFY_LIMIT = Option(
    "Sentences of each direction that are translated.", flag="--verify-limit", min=1, panel="Data"
)
VerifyLimit = Annotated[int, VERIFY_LIMIT]
Draws = Annotated[int, Option("Draws of random heads.", min=1, panel="Test")]


def _number_or_auto(text: str) -> int | str:
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise InputError(f"--draws is {text!r}; give a number from 1, or auto")
    return text if text == "auto" else int(text)


DrawsOrAuto = Annotated[
    int | Literal["auto"],
    Option(
        "Draws of random heads: a number, or auto (until decided).",
        metavar="auto|N",
        min=1,
        typed=str,
        read=_number_or_auto,
        panel="Test",
    ),
]
KeptIn = Annotated[
    str | None,
    Option(
        "Where numbers of examples are kept for other runs (by default runs/kept), or none.",
        flag="--kept",
        metavar="DIR|none",
        panel="Expert",
    ),
]
Minutes = Annotated[
    float | None,
    Option("End after so many minutes; the same command goes on.", min=0.0, panel="Running"),
]
Plan = Annotated[
    bool, Option("Tell from a first part how long it takes, and end.", panel="Running")
]
Alpha = Annotated[
    float,
    Option(
        "What p over draws may be at most for a verdict that heads do more than random ones.",
        flag="--level",
        min=0.0,
        max=1.0,
        panel="Expert",
    ),
]
MEASURES = Option(
    "What is measured: translations (text, the default), or the loss of references (loss, "
    "faster); repeatable.",
    metavar="text|loss",
    typed=str,
    held="measure",
)
ONE_MEASURE = Option(
    "What is measured: the loss of the reference translations (loss, the default), or chrF++ of "
    "the translations (text).",
    metavar="text|loss",
    typed=str,
    held="measure",
)
CONTROL = Option(
    "Ways to draw random heads: random, same layers, outside, equal norm; repeatable",
    flag="--control",
    metavar="NAME",
    panel="Test",
)
Controls = Annotated[
    tuple[str, ...], replace(CONTROL, help=f"{CONTROL.help}; by default the first two.")
]
MaskControls = Annotated[
    tuple[str, ...],
    replace(
        CONTROL,
        help=f"{CONTROL.help}; shuffled and shuffled same layers draw masks.",
    ),
]
*_first, _last = (kind.option for kind in KINDS.values())
ABLATE = Option(f"What a removed head gives: {', '.join(_first)}, or {_last}.")
Ablate = Annotated[AblateName, ABLATE]
Ablations = Annotated[
    tuple[AblateName, ...],
    replace(
        ABLATE,
        help=f"{ABLATE.help[:-1]}; repeatable.",
        metavar="|".join(KINDS),
        typed=str,
    ),
]
OneAblation = Annotated[tuple[AblateName, ...], replace(ABLATE, single=True)]
ReferenceTexts = Annotated[
    str | None,
    Option(
        "For --ablate mean and resample: documents that neither find nor test (.txt, or a column "
        "text); the first 200 of a language. May be left out for pocket, and where some of the "
        "data can be set aside.",
        flag="--reference",
        metavar="FILE",
        panel="Expert",
    ),
]
Gates = Annotated[
    tuple[float, ...],
    Option(
        "What the heads' outputs are multiplied by; without it 0, removal; repeatable: 0, 0.5, 2 "
        "make a dose curve.",
        flag="--gate",
        metavar="G",
    ),
]
AllowOverlap = Annotated[
    bool, Option("Test also on sentences that the heads were found on.", panel="Test")
]

# Tasks of inputs and outputs
Tasks = Annotated[
    tuple[str, ...],
    Option(
        "A file of inputs and outputs, a name in the folder of the data, ioi, or a task of "
        "pocket; repeatable.",
        metavar="FILE|NAME",
        held="examples",
        panel="Data",
    ),
]
DataOfTasks = Annotated[
    tuple[str, ...],
    Option(
        "A folder of task files, or sentence pairs; of several directions PAIR=DATA. May be left "
        "out for pocket.",
        metavar="DATA",
        held="pairs",
        panel="Data",
    ),
]
Chat = Annotated[
    bool | None,
    Option(
        "Apply the chat template, by default where there is one.",
        flag="--chat/--no-chat",
        panel="Prompt",
    ),
]
SYSTEM = Option(
    "The system message of prompts that go through the chat template, or none to leave out the "
    "one that the template writes by itself.",
    metavar="TEXT|none",
    panel="Expert",
)
GENERATION_CONFIG = Option(
    "Texts follow the checkpoint's generation settings (repetition_penalty, no_repeat_ngram_size, "
    "suppress_tokens, …), greedily; without it each token is the likeliest one.",
    flag="--generation-config",
    panel="Expert",
)
AnswerOnly = Annotated[
    bool | None,
    Option(
        "Take off outputs what chat models put around a translation before it is measured: first "
        "lines that end in a colon, quotes, Markdown, further paragraphs. The whole is kept.",
        flag="--answer-only",
        panel="Expert",
    ),
]
Shots = Annotated[int, Option("Examples before each input or sentence.", min=0, panel="Prompt")]
ShotsData = Annotated[
    tuple[str, ...],
    Option(
        "Where --shots are drawn from, given like the sentence pairs; without it some of these, "
        "which are then used for nothing else.",
        metavar="DATA",
        panel="Expert",
    ),
]
LanguageNames = Annotated[
    tuple[str, ...],
    Option(
        'In prompts: zh="Simplified Chinese"; repeatable.',
        flag="--language-name",
        metavar="CODE=NAME",
        panel="Expert",
    ),
]
BaselineExamples = Annotated[
    int,
    Option(
        "Examples of each direction or task on which the original model is tried first.",
        flag="--baseline-examples",
        min=1,
        panel="Expert",
    ),
]
BaselineOffTarget = Annotated[
    float,
    Option(
        "Share of their outputs in another language above which a warning is given.",
        flag="--baseline-off-target",
        min=0.0,
        max=1.0,
        panel="Expert",
    ),
]
BaselineUnfinished = Annotated[
    float,
    Option(
        "Share of their outputs that are empty or cut off above which a warning is given.",
        flag="--baseline-unfinished",
        min=0.0,
        max=1.0,
        panel="Expert",
    ),
]
BaselineErrors = Annotated[
    float,
    Option(
        "Standard errors above chance that the original model's accuracy must reach, else a "
        "warning is given.",
        flag="--baseline-errors",
        min=0.0,
        panel="Expert",
    ),
]
HeldOut = Annotated[int, Option("Examples of each task to test on.", min=1, panel="Data")]
OutputLanguage = Annotated[
    str | None,
    Option("Language of a task file's outputs.", flag="--language", metavar="CODE", panel="Data"),
]
InputColumn = Annotated[
    str, Option("Key or column of a task's inputs.", metavar="COLUMN", panel="Expert")
]
OutputColumn = Annotated[
    str, Option("Key or column of a task's outputs.", metavar="COLUMN", panel="Expert")
]

# Documents
TextColumn = Annotated[
    str,
    Option("By name, or by number from 0.", flag="--text-column", metavar="COLUMN", panel="Data"),
]
LanguageColumn = Annotated[
    str | None, Option("Likewise; without it language, if there.", metavar="COLUMN", panel="Data")
]

# Heads that copy and carry over
#: A field that leaves out what the model does not get right by itself, unless `--all`.
OnlyKnown = Annotated[
    bool,
    Option(
        "Also count items that the original model gets wrong.",
        flag="--all",
        default=False,
        read=not_,
    ),
]

# Memory of backward passes
Checkpointing = Annotated[
    bool,
    Option(
        "Compute layers twice instead of keeping what they computed.",
        flag="--checkpointing",
        panel="Expert",
    ),
]

# Looking at single examples
Example = Annotated[
    str | None, Option("The id of one held-out example to show.", metavar="ID", panel="Expert")
]

# Data of many experiments at once
PairFiles = Annotated[
    tuple[str, ...],
    Option("Sentence pairs of en-de, say; repeatable.", metavar="PAIR=FILE", panel="Data"),
]
DocumentFiles = Annotated[
    tuple[str, ...],
    Option("Documents of a language; repeatable.", metavar="LANG=FILE", panel="Data"),
]
