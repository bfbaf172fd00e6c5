"""Options and arguments with the same name and meaning in every command.

The names are a contract: a script written for one command works with the next one. Where values
are listed, the first one is the default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

# The model
ModelName = Annotated[
    str, Argument(metavar="MODEL", help="pocket (bundled), a Hub id, a folder, or a GGUF file.")
]
ModelOption = Annotated[
    str,
    Option(
        "--model", metavar="MODEL", help="pocket (bundled), a Hub id, a folder, or a GGUF file."
    ),
]
Revision = Annotated[str | None, Option("--revision", help="Branch, tag or commit of a Hub model.")]
Device = Annotated[
    str | None, Option("--device", help="Such as cpu or cuda:1; without it the first GPU, or CPU.")
]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Dtype = Annotated[
    DtypeName, Option("--dtype", help="auto: float32 on CPU, else the checkpoint's own.")
]
DeviceMap = Annotated[
    str | None, Option("--device-map", help="Placement over several devices, such as auto.")
]
MaxMemory = Annotated[
    list[str] | None,
    Option(
        "--max-memory",
        metavar="DEVICE=SIZE",
        help="With --device-map auto: weights a device takes at most, such as 0=20GiB or "
        "cpu=64GiB; repeatable. What fits nowhere waits on disk.",
    ),
]
OffloadFolder = Annotated[
    Path | None,
    Option(
        "--offload-folder",
        metavar="DIR",
        help="With --device-map: where weights wait that cannot be read from the checkpoint as "
        "they are; removed at the end.",
    ),
]
QuantiseName = Literal["8bit", "4bit"]
Quantise = Annotated[
    QuantiseName | None,
    Option(
        "--quantise",
        help="Load the weights of an ordinary checkpoint in 8 bits (LLM.int8) or 4 (NF4).",
    ),
]
Tokenizer = Annotated[
    str | None,
    Option(
        "--tokenizer",
        metavar="MODEL",
        help="Take the tokenizer from here: a folder, a Hub id, or a GGUF file.",
    ),
]
BatchTokens = Annotated[int, Option("--batch-tokens", min=1, help="Padded tokens of a batch.")]

# The run
Seed = Annotated[int, Option("--seed", min=0, help="Seed of everything drawn at random.")]
Limit = Annotated[
    int | None,
    Option(
        "--limit",
        min=1,
        help="Read the first so many records of each direction or task; without it all, or as "
        "many as the command says.",
    ),
]
OutFolder = Annotated[
    Path | None,
    Option("--out", metavar="DIR", help="The run folder; without it runs/COMMAND-HASH."),
]
OutFile = Annotated[Path | None, Option("--out", metavar="FILE", help="The file to write.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object on stdout and nothing else.")]

# Sentence pairs
Pair = Annotated[str | None, Option("--pair", metavar="en-de", help="Source and target language.")]
Pairs = Annotated[
    list[str] | None,
    Option("--pair", metavar="en-de", help="Source and target language; repeatable; or all."),
]
SourceLanguage = Annotated[
    str | None, Option("--source-language", metavar="CODE", help="Instead of --pair.")
]
TargetLanguage = Annotated[
    str | None, Option("--target-language", metavar="CODE", help="Instead of --pair.")
]
Data = Annotated[
    str,
    Option(
        "--data",
        metavar="DATA",
        help="TSV, JSON Lines or Parquet file, FLORES folder, or Hub dataset.",
    ),
]
DataOfPairs = Annotated[
    list[str] | None,
    Option(
        "--data",
        metavar="DATA",
        help="TSV, JSON Lines or Parquet file, FLORES folder, or Hub dataset; with several "
        "pairs PAIR=DATA, repeatable. May be left out for pocket.",
    ),
]
SourceColumn = Annotated[
    str, Option("--source-column", metavar="COLUMN", help="By name, or by number from 0.")
]
TargetColumn = Annotated[str, Option("--target-column", metavar="COLUMN", help="Likewise.")]
LinksColumn = Annotated[
    str | None,
    Option("--links-column", metavar="COLUMN", help="Likewise; without it links, if there."),
]
Split = Annotated[
    str | None,
    Option(
        "--split",
        help="Split of a FLORES folder (dev) or of a dataset; of a file of sentence pairs find or "
        "verify, one half of it each.",
    ),
]

WorldSplit = Literal["train", "dev", "test"]

# Scoring
TemplateText = Annotated[
    str | None,
    Option(
        "--template",
        help="The prompt up to where the target begins, with {source}, {source_language} and "
        "{target_language}.",
    ),
]
MaxNewTokens = Annotated[
    int | None, Option("--max-new-tokens", min=1, help="Longest generated answer.")
]
DecodeName = Literal["reference", "greedy"]
Decode = Annotated[
    DecodeName,
    Option("--decode", help="Score the reference in one pass, or the model's own translation."),
]
ScopeName = Literal["all", "source"]
Scope = Annotated[
    ScopeName, Option("--scope", help="Keys that a peak may fall on: all, or the source's.")
]
QueryName = Literal["predict", "read"]
Query = Annotated[
    QueryName, Option("--query", help="The position that predicts a token, or its own.")
]
AverageName = Literal["macro", "micro"]
Average = Annotated[
    AverageName, Option("--average", help="Mean of sentence scores, or over all tokens.")
]
SkipIdentical = Annotated[
    bool,
    Option(
        "--skip-identical",
        help="Leave out target words whose source word looks the same (names, digits).",
    ),
]
KeepPeaks = Annotated[
    bool,
    Option(
        "--keep-peaks",
        help="Keep the peaks of all heads on all sentences in the run folder, and not of 40 heads "
        "on 200 sentences.",
    ),
]
AlignerName = Literal["links", "eflomal", "llm"]
Aligner = Annotated[
    AlignerName | None,
    Option("--aligner", help="Without it the data's links if it has them, else eflomal."),
]
Threshold = Annotated[
    float,
    Option("--threshold", min=0.0, max=1.0, help="Score above which a head aligns tokens."),
]
Inactive = Annotated[
    float,
    Option("--inactive", min=0.0, max=1.0, help="Score up to which a head is inactive."),
]

# The language model that annotates word links or judges translations
LlmModel = Annotated[
    str | None,
    Option(
        "--llm-model", metavar="NAME", help="Language model that is asked, where llm is chosen."
    ),
]
BaseUrl = Annotated[
    str | None,
    Option(
        "--base-url",
        metavar="URL",
        help="Endpoint of --llm-model; without it HEADSCOPE_BASE_URL or OPENAI_BASE_URL. "
        "The key is read from HEADSCOPE_API_KEY or OPENAI_API_KEY.",
    ),
]
Cache = Annotated[
    Path | None, Option("--cache", metavar="DIR", help="Where answers of --llm-model are kept.")
]
Confidence = Annotated[
    float,
    Option("--confidence", min=0.0, max=1.0, help="Links above this confidence of --aligner llm."),
]

# Sets of heads
Heads = Annotated[
    str,
    Option(
        "--heads",
        help="A run folder, a saved set, a CSV or JSON of layer and head, or a list: 5.3,7.11.",
    ),
]
Amounts = Annotated[
    list[str] | None,
    Option(
        "--k",
        metavar="K",
        help="Number of heads, or a share such as 0.15 or 15%; repeatable. Without it a set is "
        "used whole, and of scores 20 heads, or 15% in a model of fewer than 256.",
    ),
]
RankName = Literal["above-chance", "score"]
Rank = Annotated[
    RankName,
    Option(
        "--rank",
        help="What --k cuts translation scores by: the score minus chance, or the score as in the "
        "paper. Other scores, and those without chance, are cut by score.",
    ),
]
Draws = Annotated[int, Option("--draws", min=1, help="Draws of random heads.")]
DrawsOfMeasure = Annotated[
    int | None,
    Option(
        "--draws", min=1, help="Draws of random heads; without it as many as the measure asks for."
    ),
]
Measures = Annotated[
    list[str] | None,
    Option(
        "--measure",
        metavar="text|loss",
        help="What is measured: the translations (text, the default), or the loss of the "
        "reference translations (loss), which needs no generation; repeatable.",
    ),
]
PoolName = Literal["non-alignment", "outside"]
Pool = Annotated[PoolName, Option("--pool", help="Heads that random ones are drawn from.")]
AblateName = Literal["zero", "mean"]
Ablate = Annotated[
    AblateName,
    Option("--ablate", help="What a removed head gives: zero, or its mean over other examples."),
]
ReferenceTexts = Annotated[
    str | None,
    Option(
        "--reference",
        metavar="FILE",
        help="For --ablate mean: documents that neither find nor test (.txt, or a column text); "
        "the first 200 of a language give the means. May be left out for pocket, and where some of "
        "the data can be set aside.",
    ),
]
Gates = Annotated[
    list[float] | None,
    Option(
        "--gate",
        metavar="G",
        help="Number by which the heads' outputs are multiplied; without it 0, removal; "
        "repeatable: 0, 0.5, 2 are points of a dose curve.",
    ),
]
AllowOverlap = Annotated[
    bool,
    Option("--allow-overlap", help="Test also on sentences that the heads were found on."),
]

# Tasks of inputs and outputs
Tasks = Annotated[
    list[str] | None,
    Option(
        "--task",
        metavar="FILE|NAME",
        help="A file of inputs and outputs (JSON list, JSON Lines, TSV), a name in the folder "
        "--data, or for pocket a word task such as plural-de; repeatable.",
    ),
]
DataOfTasks = Annotated[
    list[str] | None,
    Option(
        "--data",
        metavar="DATA",
        help="A folder of task files, or the sentence pairs of --pair; with several pairs "
        "PAIR=DATA, repeatable. May be left out for pocket.",
    ),
]
Instruction = Annotated[
    str | None,
    Option(
        "--instruction",
        metavar="TEXT",
        help="The instructed prompt up to where the output begins, with {input}; without it the "
        "task's own.",
    ),
]
Bare = Annotated[
    str | None,
    Option("--bare", metavar="TEXT", help="The prompt without an instruction, with {input}."),
]
ChatTemplate = Annotated[
    bool | None,
    Option(
        "--chat/--no-chat",
        help="Put prompts through the chat template; without it where the tokenizer has one.",
    ),
]
Shots = Annotated[int, Option("--shots", min=0, help="Examples put before each input or sentence.")]
ShotsData = Annotated[
    list[str] | None,
    Option(
        "--shots-data",
        metavar="DATA",
        help="Where --shots are drawn from, named as the sentence pairs are; without it sentences "
        "of these that are then used for nothing else.",
    ),
]
LanguageNames = Annotated[
    list[str] | None,
    Option(
        "--language-name",
        metavar="CODE=NAME",
        help='What prompts call a language, such as zh="Simplified Chinese"; repeatable.',
    ),
]
BaselineExamples = Annotated[
    int,
    Option(
        "--baseline-examples",
        min=1,
        help="Examples of each direction or task on which the original model is tried first.",
    ),
]
BaselineOffTarget = Annotated[
    float,
    Option(
        "--baseline-off-target",
        min=0.0,
        max=1.0,
        help="Share of their outputs in another language above which a warning is given.",
    ),
]
BaselineUnfinished = Annotated[
    float,
    Option(
        "--baseline-unfinished",
        min=0.0,
        max=1.0,
        help="Share of their outputs that are empty or cut off above which a warning is given.",
    ),
]
BaselineErrors = Annotated[
    float,
    Option(
        "--baseline-errors",
        min=0.0,
        help="Standard errors above chance that the original model's accuracy has to reach; below "
        "a warning is given.",
    ),
]
HeldOut = Annotated[
    int, Option("--held-out", min=1, help="Examples of each task to test on, not trained on.")
]
OutputLanguage = Annotated[
    str | None,
    Option("--language", metavar="CODE", help="Language of a task file's outputs."),
]
InputColumn = Annotated[
    str, Option("--input-column", metavar="COLUMN", help="Key or column of a task's inputs.")
]
OutputColumn = Annotated[
    str, Option("--output-column", metavar="COLUMN", help="Key or column of a task's outputs.")
]

# Documents
DataOfDocuments = Annotated[
    list[str] | None,
    Option(
        "--data",
        metavar="LANG=DATA",
        help="Documents: text file (.txt, one a line), JSON Lines, Parquet or TSV file, or Hub "
        "dataset; LANG may be left out where a column says it; repeatable. May be left out for "
        "pocket.",
    ),
]
Languages = Annotated[
    list[str] | None,
    Option("--language", metavar="CODE", help="Only these languages; repeatable."),
]
TextColumn = Annotated[
    str, Option("--text-column", metavar="COLUMN", help="By name, or by number from 0.")
]
LanguageColumn = Annotated[
    str | None,
    Option("--language-column", metavar="COLUMN", help="Likewise; without it language, if there."),
]
DocumentLimit = Annotated[
    int | None,
    Option(
        "--limit",
        min=1,
        help="Read the first so many documents of each language, and insist on them; without it "
        "1000, or for pocket its own 200.",
    ),
]

# Memory of backward passes
Checkpointing = Annotated[
    bool,
    Option("--checkpointing", help="Compute layers twice instead of keeping what they computed."),
]

# Looking at single examples
Example = Annotated[
    str | None,
    Option("--example", metavar="ID", help="The id of one held-out example to show."),
]

# Data of many experiments at once
PairFiles = Annotated[
    list[str] | None,
    Option("--pairs", metavar="PAIR=FILE", help="Sentence pairs of en-de, say; repeatable."),
]
DocumentFiles = Annotated[
    list[str] | None,
    Option("--documents", metavar="LANG=FILE", help="Documents of a language; repeatable."),
]
