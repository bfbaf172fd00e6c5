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
BatchTokens = Annotated[int, Option("Padded tokens of a batch.", min=1)]
BatchTokensByDevice = Annotated[int | None, Option("Padded tokens of a batch.", min=1)]

# The run
Seed = Annotated[int, Option("Seed of everything drawn at random.", min=0)]
LIMIT = Option(
    "Read the first so many records of each direction or task; without it all, or as many as the "
    "command says.",
    min=1,
)
Limit = Annotated[int | None, LIMIT]

# Sentence pairs
Pairs = Annotated[
    tuple[str, ...],
    Option("Source and target language; repeatable; or all.", metavar="en-de", held="direction"),
]
Pair = Annotated[
    str | None, Option("Source and target language.", metavar="en-de", held="direction")
]
Data = Annotated[
    str,
    Option(
        "File (TSV, CSV, JSON, Parquet, …), FLORES folder, or Hub dataset.",
        metavar="DATA",
        held="pairs",
    ),
]
SourceLanguage = Annotated[str | None, Option("Instead of --pair.", metavar="CODE")]
TargetLanguage = SourceLanguage
SourceColumn = Annotated[str, Option("By name, or by number from 0.", metavar="COLUMN")]
TargetColumn = Annotated[str, Option("Likewise.", metavar="COLUMN")]
LinksColumn = Annotated[
    str | None, Option("Likewise; without it links, if there.", metavar="COLUMN")
]
LinksFrom = Annotated[
    int | None,
    Option(
        "What links call the first word: 0 (the default), or 1 as in GIZA's files.",
        min=0,
        max=1,
        metavar="0|1",
    ),
]
LinksSwapped = Annotated[bool | None, Option("Links name the target word first.")]
Split = Annotated[
    str | None,
    Option(
        "Split of a FLORES folder (dev) or of a dataset; of a file of sentence pairs find or "
        "verify, one half of it each.",
    ),
]
WorldSplit = Literal["train", "dev", "test"]

# Scoring
MaxNewTokens = Annotated[int | None, Option("Longest generated answer.", min=1)]
DecodeName = Literal["reference", "greedy"]
Decode = Annotated[
    DecodeName, Option("Score the reference in one pass, or the model's own translation.")
]
ScopeName = Literal["all", "source"]
Scope = Annotated[ScopeName, Option("Keys that a peak may fall on: all, or the source's.")]
QueryName = Literal["predict", "read"]
Query = Annotated[QueryName, Option("The position that predicts a token, or its own.")]
AverageName = Literal["macro", "micro"]
Average = Annotated[AverageName, Option("Mean of sentence scores, or over all tokens.")]
SkipIdentical = Annotated[
    bool, Option("Leave out target words whose source word looks the same (names, digits).")
]
KeepPeaks = Annotated[
    bool,
    Option(
        "Keep the peaks of all heads on all sentences in the run folder, not just of 40 heads on "
        "200 sentences.",
    ),
]
AlignerName = Literal["links", "eflomal", "llm", "heads"]
Aligner = Annotated[
    AlignerName | None,
    Option(
        "By default the data's links if there are any, else eflomal, which links what the model "
        "writes (--decode greedy), too."
    ),
]
Threshold = Annotated[float, Option("Score above which a head aligns tokens.", min=0.0, max=1.0)]
Inactive = Annotated[float, Option("Score up to which a head is inactive.", min=0.0, max=1.0)]

# The language model that annotates word links or judges translations
LlmModel = Annotated[
    str | None, Option("Language model for --aligner llm or --judge llm.", metavar="NAME")
]
BaseUrl = Annotated[
    str | None,
    Option(
        "Endpoint of --llm-model; without it HEADSCOPE_BASE_URL or OPENAI_BASE_URL. The key is "
        "read from HEADSCOPE_API_KEY or OPENAI_API_KEY.",
        metavar="URL",
    ),
]
Cache = Annotated[Path | None, Option("Where answers of --llm-model are kept.", metavar="DIR")]
Confidence = Annotated[
    float, Option("Links above this confidence of --aligner llm.", min=0.0, max=1.0)
]
MinConfidence = Annotated[
    float | None,
    Option("Of a file of word alignments, links above this confidence.", min=0.0, max=1.0),
]

# Sets of heads
HEADS = Option(
    "A run folder, a saved set, a file of heads or scores (CSV, JSON, published formats), or a "
    "list: 5.3,7.11.",
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
        "Number of heads, or a share such as 0.15 or 15%; repeatable. Without it a set is used "
        "whole, and of scores 20 heads, or 15% in a model of fewer than 256.",
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
    ),
]
VERIFY_LIMIT = Option(
    "Sentences of each direction that are translated.", flag="--verify-limit", min=1
)
VerifyLimit = Annotated[int, VERIFY_LIMIT]
Draws = Annotated[int, Option("Draws of random heads.", min=1)]


def _number_or_auto(text: str) -> int | str:
    if text != "auto" and not (text.isdecimal() and int(text)):
        raise InputError(f"--draws is {text!r}; give a number from 1, or auto")
    return text if text == "auto" else int(text)


DrawsOrAuto = Annotated[
    int | Literal["auto"],
    Option(
        "Draws of random heads: a number, or auto, one after another until they decide.",
        metavar="auto|N",
        min=1,
        typed=str,
        read=_number_or_auto,
    ),
]
KeptIn = Annotated[
    str | None,
    Option(
        "Where numbers of examples are kept for other runs (by default runs/kept), or none.",
        flag="--kept",
        metavar="DIR|none",
    ),
]
Minutes = Annotated[
    float | None,
    Option("End after so many minutes with what there is; the same command goes on.", min=0.0),
]
Plan = Annotated[bool, Option("Tell how long it takes here, and end.")]
Alpha = Annotated[
    float,
    Option(
        "What p over draws may be at most for a verdict that heads do more than random ones.",
        flag="--level",
        min=0.0,
        max=1.0,
    ),
]
DRAWS_OF_MEASURE = Option(
    "Draws of random heads; without it as many as the measure asks for.", min=1, default=None
)
MEASURES = Option(
    "What is measured: the translations (text, the default), or the loss of the reference "
    "translations (loss), which needs no generation; repeatable.",
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
    "How random heads are drawn: random (any heads), same layers, outside (heads that are not "
    "selected and, where they are known, no token alignment heads or heads of a language), equal "
    "norm (whose outputs are as large); repeatable",
    flag="--control",
    metavar="NAME",
)
Controls = Annotated[
    tuple[str, ...], replace(CONTROL, help=f"{CONTROL.help}; without it the first two.")
]
MaskControls = Annotated[
    tuple[str, ...],
    replace(
        CONTROL,
        help=f"{CONTROL.help}; shuffled and shuffled same layers draw random masks as the first "
        "two draw heads.",
    ),
]
*_first, _last = (kind.option for kind in KINDS.values())
ABLATE = Option(f"What replaces a removed head's output: {', '.join(_first)}, or {_last}.")
Ablate = Annotated[AblateName, ABLATE]
Ablations = Annotated[
    tuple[AblateName, ...],
    replace(
        ABLATE,
        help=f"{ABLATE.help[:-1]}; repeatable, with the same heads and draws.",
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
    ),
]
Gates = Annotated[
    tuple[float, ...],
    Option(
        "Number by which the heads' outputs are multiplied; without it 0, removal; repeatable: 0, "
        "0.5, 2 are points of a dose curve.",
        flag="--gate",
        metavar="G",
    ),
]
AllowOverlap = Annotated[bool, Option("Test also on sentences that the heads were found on.")]

# Tasks of inputs and outputs
Tasks = Annotated[
    tuple[str, ...],
    Option(
        "A file of inputs and outputs (JSON, TSV, CSV, …), a name in the folder --data, ioi, or "
        "for pocket a word task such as plural-de; repeatable.",
        metavar="FILE|NAME",
        held="examples",
    ),
]
DataOfTasks = Annotated[
    tuple[str, ...],
    Option(
        "A folder of task files, or the sentence pairs of --pair; with several pairs PAIR=DATA, "
        "repeatable. May be left out for pocket.",
        metavar="DATA",
        held="pairs",
    ),
]
Chat = Annotated[
    bool | None,
    Option(
        "Apply the chat template to prompts; by default where the tokenizer has one.",
        flag="--chat/--no-chat",
    ),
]
SYSTEM = Option(
    "The system message of prompts that go through the chat template, or none to leave out the "
    "one that the template writes by itself.",
    metavar="TEXT|none",
)
GENERATION_CONFIG = Option(
    "Texts follow the checkpoint's generation settings (repetition_penalty, no_repeat_ngram_size, "
    "suppress_tokens, …), greedily; without it each token is the likeliest one.",
    flag="--generation-config",
)
AnswerOnly = Annotated[
    bool | None,
    Option(
        "Take off outputs what chat models put around a translation before it is measured: first "
        "lines that end in a colon, quotes, Markdown, further paragraphs. The whole is kept.",
        flag="--answer-only",
    ),
]
Shots = Annotated[int, Option("Examples put before each input or sentence.", min=0)]
ShotsData = Annotated[
    tuple[str, ...],
    Option(
        "Where --shots are drawn from, given like the sentence pairs; without it some of these, "
        "which are then used for nothing else.",
        metavar="DATA",
    ),
]
LanguageNames = Annotated[
    tuple[str, ...],
    Option(
        'What prompts call a language, such as zh="Simplified Chinese"; repeatable.',
        flag="--language-name",
        metavar="CODE=NAME",
    ),
]
BaselineExamples = Annotated[
    int,
    Option(
        "Examples of each direction or task on which the original model is tried first.",
        flag="--baseline-examples",
        min=1,
    ),
]
BaselineOffTarget = Annotated[
    float,
    Option(
        "Share of their outputs in another language above which a warning is given.",
        flag="--baseline-off-target",
        min=0.0,
        max=1.0,
    ),
]
BaselineUnfinished = Annotated[
    float,
    Option(
        "Share of their outputs that are empty or cut off above which a warning is given.",
        flag="--baseline-unfinished",
        min=0.0,
        max=1.0,
    ),
]
BaselineErrors = Annotated[
    float,
    Option(
        "Standard errors above chance that the original model's accuracy must reach, else a "
        "warning is given.",
        flag="--baseline-errors",
        min=0.0,
    ),
]
HeldOut = Annotated[int, Option("Examples of each task to test on, not trained on.", min=1)]
OutputLanguage = Annotated[
    str | None, Option("Language of a task file's outputs.", flag="--language", metavar="CODE")
]
InputColumn = Annotated[str, Option("Key or column of a task's inputs.", metavar="COLUMN")]
OutputColumn = Annotated[str, Option("Key or column of a task's outputs.", metavar="COLUMN")]

# Documents
TextColumn = Annotated[
    str, Option("By name, or by number from 0.", flag="--text-column", metavar="COLUMN")
]
LanguageColumn = Annotated[
    str | None, Option("Likewise; without it language, if there.", metavar="COLUMN")
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
    Option("Compute layers twice instead of keeping what they computed.", flag="--checkpointing"),
]

# Looking at single examples
Example = Annotated[str | None, Option("The id of one held-out example to show.", metavar="ID")]

# Data of many experiments at once
PairFiles = Annotated[
    tuple[str, ...], Option("Sentence pairs of en-de, say; repeatable.", metavar="PAIR=FILE")
]
DocumentFiles = Annotated[
    tuple[str, ...], Option("Documents of a language; repeatable.", metavar="LANG=FILE")
]
