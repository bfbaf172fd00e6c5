"""How large the experiments are, which data they have, and which documents heads are found on.

Documents of the user's own are cut in two: no text that heads are found on is tested on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from headscope.data.documents import DocumentFile
from headscope.data.files import write_text_atomically
from headscope.data.split import sentence_digest
from headscope.data.transfer import read_prompts
from headscope.errors import InputError
from headscope.heads import Amount, count_of
from headscope.measure.sequence import draws_for
from headscope.papers.claims import LEVEL
from headscope.papers.paper import Setting
from headscope.papers.published import published_claims
from headscope.studies.documents import DocumentsChoice, read_languages
from headscope.verify.language_texts.conditions import default_count

#: The step that scores heads, which every other reads.
HEADS = "heads"
#: The same with the gate that the published code moves.
MOVING = "heads-moving"

#: Languages of the bundled model.
POCKET_LANGUAGES = ("en", "de", "es", "ru", "tr")
#: In how many languages' sets a general head is, where a model has the paper's size.
GENERAL_IN = 4

Side = Literal["found", "tested"]
SIDES: tuple[Side, Side] = ("found", "tested")
#: Documents are read so many times as often as they are needed: halves are not quite equal.
READ = 3


@dataclass(frozen=True)
class Scale:
    """Counts of every experiment, and mean tokens of a text for the estimate of time.

    Attributes:
        found, tested: documents of each language that heads are found and tested on.
        draws: random sets for heads whose text is read.
        layer_draws: random sets for whole layers.
        writing_draws: random sets for heads while the model writes, at most (see
            `Setting.ends_early`).
        summaries, sentences, beginnings: prompts of a language (of a direction for sentences).
        statements: prompts of an ordered pair of languages.
        steered: prompts of a language to which a model is led back.
        steering_draws: random sets for heads that lead it back, or change which statement it
            follows, at most.
        questions: questions of a language that gates are tested on.
        seeds: trainings of the gates of a language.
        document, prompt, output: mean tokens of a document, a prompt and an output.
        ending: of the names of steps that need counts other than a plain command's.
    """

    found: int
    tested: int
    draws: int
    layer_draws: int
    writing_draws: int
    summaries: int
    sentences: int
    beginnings: int
    statements: int
    steered: int
    steering_draws: int
    questions: int
    seeds: int
    document: int
    prompt: int
    output: int
    ending: str = ""


#: Counts of prompts and questions, which a limit lowers.
LIMITED = ("summaries", "sentences", "beginnings", "statements", "questions")
#: Counts of random sets, which `--draws` gives.
DRAWN = ("draws", "layer_draws", "writing_draws", "steering_draws")
#: As in the published code: documents of 2,048 tokens. What the source leaves open is ours.
PAPER_SCALE = Scale(1000, 1000, 99, 10, 39, 100, 100, 100, 50, 100, 39, 500, 5, 2048, 400, 64)
#: The draws after which one of the paper's claims can hold, and one that is tested in two ways.
DRAWS, DRAWS_OF_TWO = (draws_for(ways * len(published_claims("lahis")), LEVEL) for ways in (1, 2))
#: What the bundled model does in about an hour on one core.
SHORT = Scale(200, 60, DRAWS, 5, DRAWS, 40, 5, 40, 10, 20, DRAWS_OF_TWO, 200, 1, 76, 30, 14)
#: What the commands do with the bundled model by themselves, with as many draws.
LONG = Scale(
    200, 200, DRAWS, 10, DRAWS, 40, 20, 100, 20, 60, DRAWS_OF_TWO, 500, 2, 76, 30, 14, "-full"
)  # fmt: skip


def scale(setting: Setting) -> Scale:
    """The counts for this model: the paper's, or for the bundled one short or, in full, long."""
    usual = PAPER_SCALE
    if setting.pocket:
        usual = LONG if setting.full else SHORT
    steering = setting.steering
    counts: dict[str, Any] = {}
    if steering.limit is not None:
        counts |= {name: min(getattr(usual, name), steering.limit) for name in LIMITED}
        counts |= {"found": steering.limit, "tested": steering.limit}
    if steering.draws is not None:
        counts |= dict.fromkeys(DRAWN, steering.draws)
    return replace(usual, **counts)


def step_name(setting: Setting, name: str) -> str:
    """The folder of a step: runs of other counts have another."""
    return f"{name}{scale(setting).ending}"


def codes(given: tuple[str, ...]) -> tuple[str, ...]:
    """The languages (or pairs) that `LANG=FILE` names; of a file without one its own name."""
    return tuple(place.partition("=")[0] if "=" in place else Path(place).stem for place in given)


def question_parts(setting: Setting) -> tuple[str, ...]:
    """The languages that there are questions in, each with gates of its own."""
    return POCKET_LANGUAGES if setting.pocket else codes(setting.data.questions)


def directions_given(setting: Setting) -> tuple[str, ...]:
    """The files of sentence pairs that say their direction."""
    return tuple(place for place in setting.data.pairs if "=" in place)


def astray(setting: Setting) -> tuple[str, tuple[str, ...]]:
    """From which language a model is led back, and files (the bundled model: names) of directions.

    The language that most directions start from, of those with documents on both sides.
    """
    if setting.pocket:
        return "en", tuple(f"en-{code}" for code in ("de", "es", "ru", "tr"))
    known, by_source = codes(setting.data.documents), dict[str, tuple[str, ...]]()
    for file in directions_given(setting):
        source, _, target = file.partition("=")[0].partition("-")
        if source in known and target in known:
            by_source[source] = (*by_source.get(source, ()), file)
    return max(by_source.items(), key=lambda item: len(item[1]), default=("", ()))


def languages(setting: Setting) -> int:
    """How many languages there are documents of."""
    return len(POCKET_LANGUAGES) if setting.pocket else max(1, len(setting.data.documents))


def general_in(setting: Setting) -> int | None:
    """In how many languages' sets a general head is; None: all but one, and two at least."""
    return GENERAL_IN if not setting.small and languages(setting) >= GENERAL_IN else None


def written_share(setting: Setting) -> Amount:
    """How many heads are changed while the model writes: 1 %, or in a small model 5 %."""
    if setting.steering.k is not None:
        return setting.steering.k
    return default_count(setting.geometry) if setting.small else "1%"


def settings_said(setting: Setting) -> str:
    """One sentence: whose settings these are."""
    counts, k = scale(setting), setting.steering.k
    changed = "5 % of the heads removed, and" if setting.small else "2 % of the heads removed, 1 %"
    if k is not None:
        changed = f"{count_of(k, setting.geometry.total)} heads (--k) removed, and"
    heads = (
        "With fewer than 256 heads the settings for small models hold (quantile 0.9, "
        f"{changed} changed while writing, 10 % trained, general in all languages but one)"
        if setting.small
        else f"Settings of the published code (quantile 0.96, {changed} changed while writing, 2 % "
        "trained, general in 4 languages or in all but one where there are fewer)"
    )
    return (
        f"{heads}; {counts.found:,} documents of a language at most to find "
        f"heads on, {counts.tested:,} others to test them on."
    )


def documents(setting: Setting, side: Side, limit: int | None = None) -> DocumentsChoice:
    """The documents of one side: the bundled model's own, or the files of `split`, made if need be.

    `limit` is of each language, as far as there are so many; None: what the scale says.
    """
    wanted = limit or getattr(scale(setting), side)
    if setting.pocket:
        return DocumentsChoice(limit=wanted)
    files = sorted(split(setting).glob(f"{side}-*.jsonl"))
    named = tuple(f"{file.stem.removeprefix(f'{side}-')}={file}" for file in files)
    # A file may hold fewer, which is an error where a limit is given.
    held = min(file.read_bytes().count(b"\n") for file in files)
    if held >= wanted:
        return DocumentsChoice(data=named, limit=wanted)
    return DocumentsChoice(data=named, limit=None if limit is None else held)


def split(setting: Setting) -> Path:
    """The folder of both files of every language; a document's text alone decides its side.

    Raises `InputError` if a language has no document for one of them.
    """
    folder = setting.folder / "documents"
    done = folder / "SPLIT"
    if done.is_file():
        return folder
    counts = scale(setting)
    given = DocumentsChoice(data=setting.data.documents)
    enough = READ * max(counts.found, counts.tested)
    files = read_languages(given, setting.model.model, "dev", setting.seed, enough, enough)
    for code, file in files.items():
        for side, texts in _sides(code, file).items():
            rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
            kept = rows[: getattr(counts, side)]
            write_text_atomically(folder / f"{side}-{code}.jsonl", "\n".join(kept) + "\n")
    write_text_atomically(done, "by the hash of each text\n")
    return folder


def statements(setting: Setting) -> Path:
    """The user's statements in one file, so that one run is of all pairs."""
    rows = [
        {"a": each.a, "b": each.b, "prompt": each.prompt, "stem": each.stem, "id": each.id}
        | {
            f"answers_{side}": [answer.english, *answer.native]
            for side, answer in (("a", each.answer_a), ("b", each.answer_b))
        }
        for given in setting.data.statements
        for file in read_prompts(given.partition("=")[2] or given).values()
        for each in file.prompts
    ]
    path = setting.folder / "statements.jsonl"
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text_atomically(path, "".join(lines))
    return path


def _sides(code: str, file: DocumentFile) -> dict[Side, list[str]]:
    sides: dict[Side, list[str]] = {side: [] for side in SIDES}
    for document in file.documents:
        sides[SIDES[int(sentence_digest(document.text)[:2], 16) & 1]].append(document.text)
    if not all(sides.values()):
        raise InputError(
            f"{file.path}: {len(file.documents)} documents in {code} are too few to find heads on "
            f"one half and test them on the other; give more with --documents {code}=FILE"
        )
    return sides
